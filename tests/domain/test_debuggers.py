"""strace and gdb, unmodified from Debian, on programs beside them: natively and in a domain (image `runtimes`).

Hardware watchpoints: PTRACE_POKEUSER refuses the debug registers in a domain, so gdb's `watch` steps instead.
"""
import re

import pytest
from conftest import HERE
from images import Chroot, need_image

IMAGE = "runtimes"
SOURCE = (HERE / "debuggers/threads.c").read_text()


@pytest.fixture(params=["native", "domain"])
def shell(request, doppel):
    """Runs a shell script where ./threads is, built with debug information and without optimisation."""
    need_image(IMAGE)
    place = Chroot() if request.param == "native" else doppel
    build = "mkdir -p /tmp/d && cd /tmp/d && cat > threads.c && gcc -g -O0 -pthread -o threads threads.c || exit 99\n"

    def run(script):
        r = place.run("bash", "-c", f"{{ {build} {script}\n}} 2>&1", stdin=SOURCE, image=IMAGE, timeout=90)
        assert r.code != 99, r.out
        return r.out
    run.place = request.param
    return run


def gdb(
    *commands,
    args="",
    batch="gdb -q -nx -batch -ex 'set confirm off' -ex 'set debuginfod enabled off' -ex 'set pagination off'",
):
    return (
        f"{batch} "
        + " ".join(f"-ex '{c}'" for c in commands)
        + (f" --args ./threads {args}" if args is not None else "")
        + " </dev/null"
    )


def test_strace_names_arguments_and_results(shell):
    out = shell("echo hello > in; strace -s 20 -e trace=openat,read,write,close,exit_group cat in nofile; echo code $?")
    assert re.search(r'openat\(AT_FDCWD, "in", O_RDONLY\) += 3', out), out
    assert re.search(r'read\(3, "hello\\n", 131072\) += 6', out), out
    assert re.search(r'write\(1, "hello\\n", 6(hello\n)?\) += 6', out) or 'write(1, "hello\\n", 6' in out, out
    assert re.search(r'openat\(AT_FDCWD, "nofile", O_RDONLY\) += -1 ENOENT \(No such file or directory\)', out), out
    assert re.search(r"exit_group\(1\) += \?", out) and "+++ exited with 1 +++" in out and out.endswith("code 1\n"), out


def whole(log):
    """strace's lines of calls, each in one: where another program is heard of meanwhile it writes two."""
    begun, lines = {}, []
    for line in log.splitlines():
        pid, _, rest = line.partition(" ")
        if line.endswith(" <unfinished ...>"):
            begun[pid] = line.removesuffix(" <unfinished ...>")
        elif (end := re.match(r" *<\.\.\. \w+ resumed>(.*)", rest)) and pid in begun:
            lines.append(begun.pop(pid) + re.sub(r"^\) +=", ") =", end[1]))
        else:
            lines.append(line)
    return "\n".join([*lines, *begun.values()])


def test_strace_follows_forks_execs_and_threads(shell):
    out = shell(
        "strace -f -o log bash -c '/bin/true; (exit 3); echo sub | cat'; strace -f -o log2 ./threads; cat log; echo "
        "=====; cat log2"
    )
    bash, threads = (whole(log) for log in out.split("=====\n"))
    assert len(set(re.findall(r"^(\d+) ", bash, re.M))) >= 4, bash[-3000:]
    assert re.search(r'^\d+ +execve\("/bin/true", \["/bin/true"\], 0x\w+ /\* \d+ vars \*/\) = 0', bash, re.M), bash[
        -3000:
    ]
    assert "+++ exited with 3 +++" in bash and "--- SIGCHLD {si_signo=SIGCHLD, si_code=CLD_EXITED" in bash
    assert re.search(r"^(\d+) .*wait4\(-1", bash, re.M)
    assert len(set(re.findall(r"^(\d+) ", threads, re.M))) == 4, threads[-3000:]
    assert (
        threads.count("+++ exited with 0 +++") == 4
        and "clone3({flags=CLONE_VM|CLONE_FS|CLONE_FILES|CLONE_SIGHAND|CLONE_THREAD" in threads
    )


def test_strace_hears_of_every_thread_however_close_to_the_end(shell):
    """Threads that end while their process ends: their tracer's waits found nobody left, now and then."""
    out = shell(
        "for i in $(seq 100); do strace -f -o log ./threads >/dev/null; grep -c '+++ exited with 0 +++' log; done"
    )
    assert out.split() == ["4"] * 100


def test_strace_of_threads_that_end_together(shell):
    """Each stops on its way out while others end: nobody may wait for somebody who stands still."""
    out = shell("for k in 1 2 3 4 5 6 7 8; do strace -f -o log ./threads; done; echo all")
    assert out.endswith("all\n"), out


def test_strace_sees_signals_and_restarts(shell):
    out = shell(
        "strace -e trace=rt_sigaction,pause,kill,rt_sigreturn,nanosleep,clock_nanosleep bash -c 'trap \"echo trapped\" "
        "USR1; kill -USR1 $$; sleep 0.01; kill -TERM $$'"
    )
    assert re.search(r"--- SIGUSR1 \{si_signo=SIGUSR1, si_code=SI_USER, si_pid=\d+, si_uid=0\} ---", out), out
    assert "rt_sigreturn({mask=[" in out and "trapped\n" in out
    assert "--- SIGTERM {si_signo=SIGTERM, si_code=SI_USER" in out and "+++ killed by SIGTERM +++" in out, out


def test_strace_counts(shell):
    out = shell("strace -c -f ./threads")
    assert "outer 85" in out and re.search(r"\d+ +clone3\n", out) and re.search(r"100\.00 .* total", out), out


def test_strace_attaches_and_detaches(shell):
    out = shell(
        "./threads loop > pid & P=$!; until [ -s pid ]; do sleep 0.05; done; strace -p $P -o log & S=$!; "
        "until [ -s log ] && [ $(grep -c 'nanosleep.* = 0' log) -gt 10 ]; do kill -0 $S || exit; sleep 0.05; done; "
        "kill -INT $S; wait $S; kill -0 $P && echo alive; "
        "grep State: /proc/$P/status; kill $P; wait $P; echo code $?; head -50 log"
    )
    assert "alive\n" in out and "code 143" in out, out
    assert re.search(r"State:\t[SR] ", out), out
    assert (
        len(re.findall(r"clock_nanosleep\(CLOCK_REALTIME, 0, \{tv_sec=0, tv_nsec=1000000\}, NULL\) += 0", out)) > 10
    ), out


def test_gdb_break_step_registers_locals(shell):
    out = shell(
        gdb(
            "break inner",
            "run",
            "info registers rip rsp",
            "print a + b",
            "next",
            "next",
            "info locals",
            "print watched",
            "up",
            "print n",
            "finish",
            "tbreak exit",
            "continue",
            "info breakpoints",
            "kill",
        )
    )
    assert re.search(r"Breakpoint 1, inner \(a=2, b=40\)", out), out
    assert re.search(r"rip +0x\w+ +0x\w+ <inner\+\d+>", out) and "$1 = 42" in out, out
    assert "sum = 42" in out and "= 42\n" in out and "= 2\n" in out, out
    assert "Temporary breakpoint 2" in out and "breakpoint already hit 1 time" in out, out


def test_gdb_steps_instructions_and_runs_to_the_end(shell):
    out = shell(gdb("starti", *["stepi"] * 5, "info registers rip", "x/2i $pc", "continue"))
    assert re.search(r"rip +0x\w+", out) and "=> 0x" in out and "exited normally" in out and "outer 85" in out, out


def test_gdb_threads(shell):
    out = shell(
        gdb(
            "break inner", "run", "info threads", "thread apply all backtrace", "thread 3", "print $_thread", "continue"
        )
    )
    assert len(re.findall(r"^\*? +\d +Thread 0x\w+ \(LWP \d+\)", out, re.M)) == 4, out
    assert len(re.findall(r"#\d+ .*\bwaiter \(arg=0x[012]|#\d+ .*\bwaiter \(arg=0x0\)", out)) == 3, out
    assert re.search(r"#1 .* in outer \(n=2\) at threads.c", out) and re.search(r"#2 .* in main ", out), out
    assert "$1 = 3" in out and "exited normally" in out, out


def test_gdb_watchpoint(shell):
    """A software watchpoint where there are no debug registers: gdb steps through the program."""
    out = shell(
        gdb(
            "set can-use-hw-watchpoints 0",
            "break outer",
            "run",
            "watch watched",
            "continue",
            "print watched",
            "delete",
            "continue",
        )
    )
    assert "Old value = 0" in out and "New value = 42" in out and "$1 = 42" in out and "exited normally" in out, out


def test_gdb_hardware_watchpoint_or_refusal(shell):
    """gdb chooses a hardware watchpoint; a domain may refuse it, and then must say so instead of missing the write."""
    out = shell(gdb("break outer", "run", "watch watched", "continue", "print watched", "delete", "continue"))
    hit = "Old value = 0" in out and "New value = 42" in out
    if shell.place == "native":
        assert hit or "Could not insert hardware" in out, out
    else:
        assert hit or "Could not insert hardware" in out or "Couldn't write debug register" in out, out


def test_gdb_changes_the_program(shell):
    out = shell(gdb("break inner", "run", "set var a = 100", "continue"))
    assert "outer 281" in out, out


def test_gdb_calls_functions_of_the_program(shell):
    """With registers saved and restored, extended state too."""
    out = shell(gdb("break outer", "run", "print inner(5, 6)", "return 7", "continue"))
    if shell.place == "native" and "Couldn't write extended state" in out:
        pytest.skip("this gdb cannot write this processor's extended state")
    assert "$1 = 22" in out and "outer 7\n" in out, out


def test_gdb_signals_and_faults(shell):
    out = shell(
        gdb(
            "run",
            "print $_siginfo.si_signo",
            "print $_siginfo._sifields._sigfault.si_addr",
            "backtrace",
            "kill",
            args="crash",
        )
    )
    assert (
        "received signal SIGSEGV" in out
        and "$1 = 11" in out
        and "(void *) 0x8" in out
        and re.search(r"#0 .*main \(argc=2", out)
    ), out


def test_gdb_follows_a_child(shell):
    out = shell(
        gdb(
            "set follow-fork-mode child",
            "set detach-on-fork on",
            "break inner",
            "run",
            "backtrace",
            "continue",
            args="fork",
        )
    )
    assert (
        re.search(r"inner \(a=1, b=40\)", out)
        and re.search(r"#1 .*outer \(n=1\)", out)
        and "exited with code 0123" in out
    ), out


def test_gdb_attaches_and_detaches(shell):
    attach = gdb("attach '$P'", "backtrace", "set var watched = 1000000", "detach", args=None).replace(
        "'attach '$P''", '"attach $P"'
    )
    again = gdb("attach '$P'", "print watched > 1000000", "kill", args=None).replace("'attach '$P''", '"attach $P"')
    out = shell(
        f"./threads loop > pid & P=$!; until [ -s pid ]; do sleep 0.05; done; {attach}; sleep 0.3; kill -0 $P && echo "
        f"alive; {again}; wait $P; echo code $?"
    )
    assert re.search(r"#\d+ .*main \(argc=2", out) and "alive\n" in out and "$1 = 1" in out and "code 137" in out, out


CRASH = r"""
cat > crash.c <<'C'
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static volatile int tid;
static void *waits(void *a) { tid = gettid(); for (;;) pause(); }
static int sleeps(void) {
    char path[64], state = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
    FILE *f = fopen(path, "r");
    if (f && fscanf(f, "%*d (%*[^)]) %c", &state) != 1) state = 0;
    if (f) fclose(f);
    return state == 'S';
}
static void deep(int n) { if (n == 0) abort(); deep(n - 1); }
int main(void) { pthread_t t; pthread_create(&t, NULL, waits, NULL); while (!tid || !sleeps()) usleep(1000); deep(3); }
C
gcc -g -O0 -pthread -o crash crash.c
ulimit -c unlimited; ./crash; echo code $?
"""


def test_gdb_opens_a_core_file(shell):
    if shell.place == "native" and open("/proc/sys/kernel/core_pattern").read() != "core\n":
        pytest.skip("this host keeps core files elsewhere")
    script = gdb("info threads", "bt", "thread apply all bt", args=None)
    out = shell(CRASH + script.replace("</dev/null", "./crash core* </dev/null"))
    assert "code 134" in out, out
    assert (
        "Program terminated with signal SIGABRT" in out
        and len(set(re.findall(r"Thread 0x\w+ \(LWP (\d+)\)", out))) == 2
    ), out
    frames = re.findall(r"deep \(n=(\d)\) at crash.c", out.split("bt")[-1])
    assert frames[:4] == ["0", "1", "2", "3"], out
    assert re.search(r"in main \(\) at crash.c", out) and re.search(r"in waits \(", out) and "pause" in out, out
    assert "warning: core file may not match" not in out and "Cannot access memory" not in out, out
