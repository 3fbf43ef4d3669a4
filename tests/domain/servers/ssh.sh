# OpenSSH: keys, commands, terminals, copies, forwarding both ways, and a shared connection.
mkdir -p /run/sshd /tmp/s
chmod 755 /run/sshd
cd /tmp/s
useradd -m -s /bin/bash guest
usermod -p "*" guest # no password, but not locked
ssh-keygen -A >/dev/null
ssh-keygen -q -t ed25519 -N '' -f key
ssh-keygen -q -t rsa -b 2048 -N '' -f key2
install -d -m 700 -o guest -g guest /home/guest/.ssh
cat key.pub key2.pub >/home/guest/.ssh/authorized_keys
chown guest:guest /home/guest/.ssh/authorized_keys
cat >config <<'C'
Host d
  HostName 127.0.0.1
  Port 2222
  User guest
  IdentityFile /tmp/s/key
  IdentitiesOnly yes
  StrictHostKeyChecking no
  UserKnownHostsFile /tmp/s/known
  LogLevel ERROR
C
/usr/sbin/sshd -D -E /tmp/s/log -p 2222 -o ListenAddress=127.0.0.1 -o UsePAM=no & pid=$!
wait_for ssh -F config d true
s() { ssh -F config "$@"; }

same "$(s d 'id -un; pwd' | tr '\n' ' ')" "guest /home/guest "
same "$(s -i key2 -o IdentitiesOnly=yes d echo rsa)" rsa
code=0; s d 'exit 37' || code=$?; same $code 37
code=0; s -o BatchMode=yes -o IdentityFile=none -l nobody d true 2>/dev/null || code=$?; same $code 255
head -c 20000000 /dev/urandom >big
sum() { sha256sum | cut -c 1-64; }
same "$(s d 'sha256sum | cut -c 1-64' <big)" "$(sum <big)"
same "$(s d 'cat; echo err >&2' <big 2>/dev/null | sum)" "$(sum <big)"

echo "== terminals"
same "$(s -tt d 'tty | cut -c 1-9; stty size' </dev/null | tr -d '\r' | head -n 1)" "/dev/pts/"
same "$(script -qec 'stty rows 33 cols 77; ssh -F config -t d stty size' /dev/null </dev/null | grep -o '33 77')" "33 77"
# What the shell reads are keys: ^C must kill the sleep, not the shell.
same "$( (sleep 1; echo 'sleep 50'; sleep 1; printf '\003'; sleep 0.5; echo 'echo al''ive; exit') | s -tt d 2>/dev/null | tr -d '\r' | grep -cx alive)" 1

echo "== copies"
scp -q -F config big d:copy
scp -q -F config d:copy back
cmp big back
scp -q -O -F config d:copy back2
cmp big back2
mkdir -p tree/a/b; echo x >tree/a/b/f; ln -s f tree/a/b/l; chmod 640 tree/a/b/f
scp -q -r -p -F config tree d:
same "$(s d 'stat -c %a tree/a/b/f')" 640
printf 'mkdir up\nput big up/x\nrename up/x up/y\nchmod 600 up/y\nget up/y fetched\nls -l up\nrm up/y\nrmdir up\n' >batch
sftp -q -b batch -F config d | grep -q -- '-rw------- .* 20000000 .* up/y'
cmp big fetched

echo "== forwarding"
mkdir -p www; cp big www/
busybox httpd -p 127.0.0.1:8000 -h www
s -N -L 9001:127.0.0.1:8000 -R 9002:127.0.0.1:8000 -D 9003 -L /tmp/s/fwd.sock:127.0.0.1:8000 d & t=$!
wait_for curl -sf -o /dev/null -r 0-9 http://127.0.0.1:9001/big
same "$(curl -s http://127.0.0.1:9001/big | sum)" "$(sum <big)"
same "$(s d 'curl -s http://127.0.0.1:9002/big' | sum)" "$(sum <big)"
same "$(curl -s --socks5 127.0.0.1:9003 http://127.0.0.1:8000/big | sum)" "$(sum <big)"
same "$(curl -s --unix-socket fwd.sock http://x/big | sum)" "$(sum <big)"
for i in 1 2 3 4 5 6; do curl -s -o out$i http://127.0.0.1:9001/big & c[i]=$!; done
for i in 1 2 3 4 5 6; do wait ${c[i]}; cmp big out$i; done
kill $t; wait $t || true

echo "== one connection shared, and an agent"
s -M -S ctl -f -N d
for i in 1 2 3 4 5; do same "$(s -S ctl d echo $i)" $i; done
s -S ctl -O exit d 2>/dev/null
eval "$(ssh-agent)" >/dev/null
ssh-add -q key
rm key
same "$(s -A d ssh-add -l | grep -c ED25519)" 1
kill $SSH_AGENT_PID
kill $pid; wait $pid || true
echo "ssh ok"
