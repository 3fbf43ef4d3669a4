"""Shells and the usual tools: bash and busybox scripts, find, tar, perl, awk, git."""
import shutil

import pytest

SCRIPT = r"""
set -e
# pipelines
[ "$(printf 'c\na\nb\n' | sort | tr -d '\n')" = abc ]
[ "$(seq 1 1000 | grep 7 | wc -l | tr -d ' ')" = 271 ]
[ "$(yes | head -n 5 | uniq -c | awk '{print $1}')" = 5 ]
# here-documents
cat > f <<END
one $((1 + 1))
END
[ "$(cat f)" = "one 2" ]
cat > g <<'END'
$HOME `x`
END
[ "$(cat g)" = '$HOME `x`' ]
# traps
out=$(sh -c 'trap "echo term; exit 3" TERM; kill -TERM $$; sleep 5' || echo code $?)
[ "$out" = "term
code 3" ]
[ "$(sh -c 'trap "echo bye" EXIT; exit 0')" = bye ]
# background jobs and wait
( sleep 0.2; echo late > h ) &
wait $!
[ "$(cat h)" = late ]
sleep 30 & p=$!
kill $p
code=0; wait $p || code=$?
[ $code = 143 ]
# exit codes
( exit 5 ) || [ $? = 5 ]
code=0; /nonexistent 2>/dev/null || code=$?
[ $code = 127 ]
# redirections, subshells, globs
[ "$( (echo err >&2) 2>&1 )" = err ]
touch x1 x2 x3
[ "$(echo x?)" = "x1 x2 x3" ]
exec 5> fd5; echo five >&5; exec 5>&-
[ "$(cat fd5)" = five ]
# many processes
i=0; while [ $i -lt 200 ]; do /bin/true; i=$((i+1)); done
# fifo
mkfifo ff; (echo through > ff) & read line < ff; [ "$line" = through ]; wait
echo all fine
"""


def test_bash_script(place):
    assert place.run("bash", "-c", SCRIPT).ok().strip() == "all fine"


def test_busybox_script(place):
    script = SCRIPT.replace("/bin/true", "true").replace("sh -c", "busybox sh -c")
    assert place.run("busybox", "sh", "-c", script, image="busybox").ok().strip() == "all fine"


def test_bash_features(place):
    script = r"""
set -eo pipefail
a=(one two three); [ ${#a[@]} = 3 ]; [ "${a[-1]}" = three ]
declare -A m; m[k]=v; [ "${m[k]}" = v ]
diff <(echo same) <(echo same)
[[ abc123 =~ ^[a-z]+([0-9]+)$ ]]; [ "${BASH_REMATCH[1]}" = 123 ]
read -r x <<< "here string"; [ "$x" = "here string" ]
coproc cat; echo hi >&"${COPROC[1]}"; read -r y <&"${COPROC[0]}"; [ "$y" = hi ]
mapfile -t lines < <(seq 10); [ ${#lines[@]} = 10 ]
false | true && exit 9 || true
printf -v z '%05.2f' 3.14159; [ "$z" = 03.14 ]
eval "exec ${COPROC[1]}>&-"; wait $COPROC_PID
exec {fd}</etc/passwd; read -r first <&$fd; [ -n "$first" ]
echo done
"""
    assert place.run("bash", "-c", script).ok().strip() == "done"


def test_bash_job_control(place):
    script = r"""
set -m
sleep 30 & p=$!
kill -STOP %1
until jobs | grep -q Stopped; do sleep 0.05; done; echo stopped
bg %1 >/dev/null
until jobs | grep -q Running; do sleep 0.05; done; echo running
kill %1
wait $p 2>/dev/null
echo "code $?"
"""
    assert place.run("bash", "-c", script).ok().split("\n")[:3] == ["stopped", "running", "code 143"]


def test_find_whole_tree(place):
    out = place.run("sh", "-c", "find / -xdev 2>/dev/null | wc -l", timeout=300).ok()
    assert int(out) > 1000


def test_find_proc_and_sys(domain):
    out = domain.run("sh", "-c", "find / 2>/dev/null | wc -l", timeout=120).ok()
    assert int(out) > 5000


def test_tar_gzip_round_trip(place):
    script = r"""
set -e
mkdir src dst
cp -a /usr/share/perl* /usr/lib/x86_64-linux-gnu/perl* /usr/include src/ 2>/dev/null || cp -a /usr/share/misc /usr/bin/* src/
ln -s target src/link; ln src/link src/hard 2>/dev/null || true
printf 'data' > src/file; chmod 4711 src/file; mkdir -p src/empty/dir; touch -d '2001-02-03 04:05:06 UTC' src/file
tar -czf a.tgz src
tar -C dst -xzpf a.tgz
diff -r --no-dereference src dst/src
[ "$(stat -c '%a %Y' dst/src/file)" = "4711 981173106" ]
gzip -dc a.tgz | tar -tf - | wc -l
"""  # noqa: E501
    assert int(place.run("bash", "-c", script, timeout=300).ok()) > 20


def test_perl(place):
    script = r"""
use strict; use warnings;
my %h; $h{$_ % 7}++ for 1..10000; die unless keys %h == 7;
my $s = join ",", map { $_ ** 2 } grep { $_ & 1 } 1..9; die $s unless $s eq "1,9,25,49,81";
open my $f, ">", "perl.$$" or die; print $f "line $_\n" for 1..100; close $f;
open $f, "<", "perl.$$" or die; my @l = <$f>; die unless @l == 100;
my $pid = fork; if (!$pid) { exit 42 } waitpid $pid, 0; die unless $? >> 8 == 42;
local $SIG{ALRM} = sub { die "alarm\n" }; eval { alarm 1; sleep 10; }; die unless $@ eq "alarm\n";
my $out = `echo sub; exit 3`; die unless $out eq "sub\n" && $? >> 8 == 3;
(my $t = "hello world") =~ s/(\w+)/\u$1/g; die unless $t eq "Hello World";
print "perl ok\n";
"""
    assert place.run("perl", "-e", script).ok() == "perl ok\n"


def test_awk(place):
    out = place.run(
        "awk",
        'BEGIN { for (i = 1; i <= 100000; i++) s += i; printf "%.0f\\n", s; "echo x" | getline y; print y; '
        'system("exit 0"); n = split("a:b:c", a, ":"); print n, a[3]; print substr("hello", 2, 3) > "/dev/stderr" }',
    ).ok()
    assert out == "5000050000\nx\n3 c\n"


def test_sed_grep_sort(place):
    script = r"""seq 20000 | sed -n 's/^\(.*\)7$/\1/p' | sort -rn | head -n 3 | tr '\n' ' '; seq 100000 | sort -R | sort -n | md5sum"""  # noqa: E501
    out = place.run("sh", "-c", script).ok()
    assert out.startswith("1999 1998 1997 ") and out != "dee8ff2d9d4d0bb0bd8bf6a8a2e9a2e8"


GIT = r"""
set -e
export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=A GIT_COMMITTER_EMAIL=a@example.org
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null
git init -q -b main repo; cd repo
mkdir -p a/b; for i in $(seq 300); do echo "file $i" > a/b/$i.txt; done
git add .; git commit -qm first
for i in $(seq 10); do echo more >> a/b/$i.txt; git commit -qam "change $i"; done
[ "$(git log --oneline | wc -l)" -eq 11 ]
git checkout -qb topic; echo t > topic; git add topic; git commit -qm topic
git checkout -q main; echo m > mainfile; git add mainfile; git commit -qm main; git merge -q -m merge topic
[ -f topic ] && [ -f mainfile ]
git clone -q . ../clone
git -C ../clone log --oneline | wc -l
git gc -q --aggressive --prune=now
git fsck --full 2>&1 | grep -v '^Checking' || true
git status --porcelain | wc -l
git diff HEAD~3 --stat | tail -n 1
"""


def test_git(place):
    out = place.run("bash", "-c", GIT, timeout=300).ok().split("\n")
    assert out[0].strip() == "14" and out[1].strip() == "0"
    assert "files changed" in out[2]


def test_coreutils(place):
    script = r"""
set -e
dd if=/dev/zero of=z bs=1M count=20 2>/dev/null; [ "$(stat -c %s z)" = 20971520 ]
md5sum z | cut -c1-8
truncate -s 1G sparse; [ "$(du -k sparse | cut -f1)" -lt 1000 ]
cp z z2; cmp z z2; mv z2 z3; ln -s z3 l; [ "$(readlink l)" = z3 ]; rm z z3 l sparse
mkdir -p p/q/r; rmdir -p p/q/r; install -m 700 -d d; stat -c %a d
timeout 0.2 sleep 5 || echo "timeout $?"
date -u -d @0 +%Y; id -u; nproc >/dev/null; df / >/dev/null; env | grep -q PATH
seq 5 | xargs -n 1 -P 3 echo | sort | tr -d '\n'; echo
nice -n 5 true; nohup true 2>/dev/null; tty || true
head -c 100000 /dev/urandom | base64 | base64 -d | wc -c
"""
    out = place.run("bash", "-c", script).ok().split("\n")
    assert (
        out[:7] == ["8f4e33f3", "700", "timeout 124", "1970", "0", "12345", "not a tty"] and out[7].strip() == "100000"
    )


def test_procps(place):
    script = "ps -C ps -o comm= | wc -l; free -m | grep -c Mem; top -bn1 | head -n 1 | cut -c1-3; uptime | grep -c load"
    if place.name == "native" and not shutil.which("top"):
        pytest.skip("procps is not installed natively")
    out = place.run("bash", "-c", script).ok().split()
    assert out == ["1", "1", "top", "1"]


def test_curl_loopback(place):
    if place.name == "native" and not shutil.which("curl"):
        pytest.skip("curl is not installed natively")
    script = r"""
mkdir www; seq 100000 > www/f
python3 -u -m http.server 0 --bind 127.0.0.1 -d www >log 2>&1 & p=$!
until port=$(sed -n 's/.* port \([0-9]*\) .*/\1/p' log) && [ -n "$port" ]; do kill -0 $p || exit; sleep 0.1; done
curl -sf "http://127.0.0.1:$port/f" -o got
kill $p; cmp www/f got && echo same
"""
    assert place.run("bash", "-c", script).ok().strip() == "same"
