# rsync: local, from a daemon with a password, over ssh; whole trees are compared.
mkdir -p /tmp/y /run/sshd; cd /tmp/y
# A tree of everything: sizes, links, modes, owners, times, holes, odd names.
mkdir -p src/{a,b/c/d,empty}
for i in $(seq 1 300); do head -c $((i * 37)) /dev/urandom >src/a/f$i; done
head -c 8000000 /dev/urandom >src/b/big
truncate -s 20M src/b/holes; echo end >>src/b/holes
ln src/a/f1 src/b/hard; ln -s ../a/f2 src/b/soft; ln -s nowhere src/b/dangling
mkfifo src/b/fifo
touch -d '2001-02-03 04:05:06.789' src/a/f3; chmod 4751 src/a/f4; chown 1000:1001 src/a/f5
touch "src/b/c/ space ünïcode 'q'"
chmod 700 src/b/c
# Sizes and link counts of directories are the file system's affair, and rsync keeps fractions of seconds of files only.
tree() {
    (cd "$1"
    find . -printf '%P|%y|%m|%U:%G|%s|%n|%l|%T@\n' | sed -E '/\|d\|/s/\|[0-9]+\|[0-9]+\|\|/|||/; /\|f\|/!s/\.[0-9]+$//' | sort
    find . -type f -print0 | sort -z | xargs -0 sha256sum)
}
alike() { diff <(tree "$1") <(tree "$2") >diff || { head -n 20 diff >&2; exit 1; }; }

echo "== local"
rsync -aHAXS src/ dst/
alike src dst
same "$(rsync -aHAXSni src/ dst/)" ""
[ "$(du -k dst/b/holes | cut -f 1)" -lt 1000 ]
# A change in the middle, a deletion, a new name.
cp -a src src2
printf x | dd of=src2/b/big bs=1 seek=4000000 conv=notrunc status=none
touch -d '2002-02-02' src2/b/big # the size is the same
rm -r src2/a/f1*; mv src2/a/f200 src2/a/g200
rsync -aHAX --delete --no-whole-file --stats src2/ dst/ >stats
alike src2 dst
[ "$(sed -n 's/,//g; s/^Literal data: \([0-9]*\).*/\1/p' stats)" -lt 100000 ]
rsync -a --link-dest=/tmp/y/src2 src2/ linked/
same "$(stat -c %i linked/b/big)" "$(stat -c %i src2/b/big)"
rm -r linked # the counts of links count

echo "== from a daemon"
printf 'guest:secret\n' >secrets; chmod 600 secrets
printf 'secret\n' >password; chmod 600 password
cat >conf <<'C'
port = 8730
address = 127.0.0.1
pid file = /tmp/y/pid
uid = 0
gid = 0
use chroot = yes
[src]
    path = /tmp/y/src
    auth users = guest
    secrets file = /tmp/y/secrets
[in]
    path = /tmp/y/in
    read only = no
C
mkdir in
rsync --daemon --no-detach --config=conf --log-file=log & pid=$!
wait_for rsync rsync://127.0.0.1:8730/
rsync -aHAXS --password-file=password rsync://guest@127.0.0.1:8730/src/ daemon/
alike src daemon
code=0; rsync -a --password-file=/dev/null rsync://guest@127.0.0.1:8730/src/ no/ 2>/dev/null || code=$?; [ $code != 0 ]
rsync -aHAXz --numeric-ids src2/ rsync://127.0.0.1:8730/in/
alike src2 in
kill $pid; wait $pid || true

echo "== over ssh"
ssh-keygen -A >/dev/null; ssh-keygen -q -t ed25519 -N '' -f key
mkdir -p -m 700 /root/.ssh; cat key.pub >/root/.ssh/authorized_keys
/usr/sbin/sshd -D -p 2222 -o ListenAddress=127.0.0.1 -o UsePAM=no -E sshd.log & pid=$!
ssh="ssh -p 2222 -i /tmp/y/key -o StrictHostKeyChecking=no -o LogLevel=ERROR"
wait_for $ssh 127.0.0.1 true
rsync -aHAXS -e "$ssh" src/ 127.0.0.1:/tmp/y/over/
alike src over
rsync -aHAXS --delete -e "$ssh" 127.0.0.1:/tmp/y/src2/ over/
alike src2 over
kill $pid; wait $pid || true
echo "rsync ok"
