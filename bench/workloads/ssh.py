"""OpenSSH and rsync over loopback: connections a second, one stream, and a tree of 2,000 files."""
from harness.servers import rates

UNIT = "/s"
REPEATS = 3
SCRIPT = r"""
mkdir -p /run/sshd /tmp/s && cd /tmp/s
ssh-keygen -q -t ed25519 -N '' -f host && ssh-keygen -q -t ed25519 -N '' -f key
cp key.pub keys
/usr/sbin/sshd -D -f /dev/null -e -p 12222 -o ListenAddress=127.0.0.1 -o HostKey=/tmp/s/host -o AuthorizedKeysFile=/tmp/s/keys \
    -o StrictModes=no -o PidFile=none -o UsePAM=no -o PermitRootLogin=yes 2>log & server=$!
s="ssh -F /dev/null -p 12222 -i /tmp/s/key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/tmp/s/known -o LogLevel=ERROR root@127.0.0.1"
wait_for $s true || { cat log >&2; exit 1; }
now() { date +%s%N; }
rate() { awk -v n="$2" -v a="$3" -v b="$(now)" -v row="$1" 'BEGIN { print row ": " n / (b - a) * 1e9 }'; }
a=$(now); for i in $(seq $N); do $s true; done; rate 'ssh connections' $N $a
head -c 100000000 /dev/zero >big
a=$(now); $s 'cat >/dev/null' <big; rate 'ssh, 1 MB of a stream' 100 $a
mkdir tree; for d in $(seq 20); do mkdir tree/$d; for f in $(seq 100); do echo $d $f >tree/$d/$f; done; done
a=$(now); rsync -a tree/ copy/; rate 'rsync, local, a file' 2000 $a
a=$(now); rsync -a -e "${s% *}" tree/ root@127.0.0.1:/tmp/s/over/; rate 'rsync over ssh, a file' 2000 $a
kill $server; wait $server || true
"""  # noqa: E501


def measure(runtime, opt):
    return rates(runtime, f"N={2 if opt.quick else 8}\n" + SCRIPT)
