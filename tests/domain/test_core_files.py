"""Core files of a domain go where its own `core_pattern` says."""

CRASH = "ulimit -c unlimited; sh -c 'kill -ABRT $$' 2>/dev/null"


def test_names_follow_the_pattern(domain):
    out = domain.run("sh", "-c", f"""
        cat /proc/sys/kernel/core_pattern
        mkdir /tmp/cores && cd /tmp
        echo '/tmp/cores/%e.%s.%u.%%.%h' > /proc/sys/kernel/core_pattern; {CRASH}
        ls cores
        echo plain > /proc/sys/kernel/core_pattern; echo 1 > /proc/sys/kernel/core_uses_pid; {CRASH}
        ls plain.*[0-9] | wc -l
        echo > /proc/sys/kernel/core_pattern; cd cores; {CRASH}
        ls | wc -l""", opts=("--hostname", "box")).ok()
    assert out.split() == ["core", "sh.6.0.%.box", "1", "1"]


HELPER = """#!/bin/sh
{ echo "$@"; id -u; pwd; ulimit -c; env | grep -c HOME; } > /tmp/told
cat > /tmp/core.piped
echo whole >> /tmp/told
"""


def test_a_program_gets_the_core(domain):
    out = domain.run("sh", "-c", """
        cat > /tmp/helper; chmod 755 /tmp/helper; mkdir /tmp/w && cd /tmp/w
        echo 1 > /proc/sys/kernel/core_pipe_limit; cat /proc/sys/kernel/core_pipe_limit
        echo '|/tmp/helper %e %s %u %c a%%b %p' > /proc/sys/kernel/core_pattern
        ulimit -c 0
        cp /bin/sh '/tmp/two words'; '/tmp/two words' -c 'echo $$; kill -SEGV $$' > /tmp/pid 2>/dev/null; echo $?
        sed "s/ $(cat /tmp/pid)$/ PID/" /tmp/told
        head -c 4 /tmp/core.piped | tail -c 3; echo
        ls; ps -eo comm | grep -c '^helper'; true""", stdin=HELPER).ok().split("\n")
    # Waited for, with no limit in the way; arguments are told apart before they are filled in.
    assert out[:3] == ["1", "139", "two words 11 0 0 a%b PID"], out
    assert out[3:5] == ["0", "/"] and out[7] == "whole" and out[8] == "ELF", out
    assert out[9:] == ["0", ""], out


def test_a_limit_of_one_byte_is_no_core_for_a_program(domain):
    out = domain.run("sh", "-c", """
        cat > /tmp/helper; chmod 755 /tmp/helper; cd /tmp
        echo 9 > /proc/sys/kernel/core_pipe_limit; echo '|/tmp/helper' > /proc/sys/kernel/core_pattern
        python3 -c '
import os, resource, signal
for limit in (1, 0):
    pid = os.fork()
    if pid == 0:
        resource.setrlimit(resource.RLIMIT_CORE, (limit, limit))
        os.kill(os.getpid(), signal.SIGQUIT)
    print(os.WCOREDUMP(os.waitpid(pid, 0)[1]), os.path.exists("told"))'
        echo '|/nowhere' > /proc/sys/kernel/core_pattern
        python3 -c '
import os, signal
pid = os.fork()
pid or os.abort()
print(os.WCOREDUMP(os.waitpid(pid, 0)[1]))'""", stdin=HELPER).ok()
    assert out.split() == ["False", "False", "True", "True", "False"], out


def test_a_program_that_does_not_read(domain):
    out = domain.run("sh", "-c", """
        echo '|/bin/true' > /proc/sys/kernel/core_pattern
        for i in 1 2 3 4 5; do sh -c 'kill -ABRT $$' 2>/dev/null; echo $?; done""").ok()
    assert out.split() == ["134"] * 5


def test_no_core_without_being_asked(domain):
    assert domain.run("sh", "-c", "cd /tmp; sh -c 'kill -ABRT $$' 2>/dev/null; ls").ok() == ""
