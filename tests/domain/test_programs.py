"""Compiled programs: C with threads built inside, static Go, static musl, sqlite3, fault handling, fork storms."""
import json
import subprocess
import sys
import time

import pytest
from conftest import BUILD, DOPPEL, domain_memory

THREADED_C = r"""
#include <pthread.h>
#include <stdio.h>
#include <math.h>
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER; static double total;
static void *work(void *a) {
    double s = 0; for (long i = 1; i < 200000; i++) s += sqrt((double)i * (long)a);
    pthread_mutex_lock(&m); total += s; pthread_mutex_unlock(&m); return 0;
}
int main(void) {
    pthread_t t[8];
    for (long i = 0; i < 8; i++) pthread_create(&t[i], 0, work, (void *)(i + 1));
    for (int i = 0; i < 8; i++) pthread_join(t[i], 0);
    printf("%.3e\n", total); return 0;
}
"""


def test_gcc_compile_and_run(place):
    out = place.run(
        "sh", "-c", "cat > p.c && gcc -O2 -Wall -pthread -o p p.c -lm && ./p", stdin=THREADED_C, timeout=180
    ).ok()
    assert out == "9.723e+08\n"


def test_gcc_separate_objects_static_and_debug(place):
    script = r"""
set -e
printf 'int f(int x){return x*2;}' > a.c; printf '#include <stdio.h>\nint f(int);int main(void){printf("%%d\\n", f(21));}' > b.c
gcc -g -c a.c; gcc -g -c b.c; ar rcs liba.a a.o; gcc -o dyn b.o -L. -la; ./dyn
gcc -shared -fPIC -o libs.so a.c; gcc -o sh b.o -L. -ls -Wl,-rpath,'$ORIGIN'; ./sh
gcc -static -o st b.o a.o; ./st
"""  # noqa: E501
    assert place.run("sh", "-c", script, timeout=180).ok() == "42\n42\n42\n"


def test_go_program(place, need):
    need("goload")
    assert place.run("/t/goload", timeout=180).ok() == "go ok\n"


def test_musl_program(place, need):
    need("muslall")
    assert place.run("/t/muslall").ok() == "musl ok\n"


def test_null_dereference(place, need):
    need("nullderef")
    r = place.run("/t/nullderef")
    assert r.out == "handled\n"
    assert r.code == (-11 if place.name == "native" else 139)


def test_signals_in_patched_calls(place, need):
    """Handlers see addresses of the program, and unwind, wherever in a system call a signal lands."""
    need("windows")
    for opts in [(), ("--no-patch",)] if place.name == "domain" else [()]:
        assert place.run("/t/windows", timeout=90, opts=opts).ok() == "windows ok\n"


def test_timers_in_patched_calls(place, need):
    """All registers, vector and mask registers and flags survive calls of 8 threads under a storm of timer signals."""
    need("storm")
    for opts in [(), ("--no-patch",)] if place.name == "domain" else [()]:
        assert place.run("/t/storm", timeout=60, opts=opts).ok() == "storm ok\n"


def in_tmp(place, program, *args):
    """The command that runs a copy of a program from a file that no image has."""
    copy = 'd=$(mktemp -d) && cat < $0 > $d/p && chmod 755 $d/p && exec $d/p "$@"'
    if place.name == "native":
        return ("/bin/sh", "-c", copy, str(BUILD / "image/t" / program), *args)
    return ("/bin/busybox", "sh", "-c", copy, f"/t/{program}", *args)


def run_copy(place, program, *args, opts=(), timeout=90):
    more = {} if place.name == "native" else {"image": "domain-tests"}
    return place.run(*in_tmp(place, program, *args), opts=opts, timeout=timeout, **more)


def test_code_that_appears_later(place, need):
    """Code made, rewritten, moved, replaced and forked by its program, with calls that are patched meanwhile."""
    need("late")
    if place.name == "native":
        assert place.run("/t/late", "code").ok() == "code ok\n"
        return
    assert run_copy(place, "late", "code", "patched").ok() == "code ok\n"
    assert run_copy(place, "late", "code", opts=("--no-patch",)).ok() == "code ok\n"


def test_code_rewritten_under_threads(place, need):
    need("late")
    assert run_copy(place, "late", "threads").ok() == "threads ok\n"


def test_calls_that_become_jumps_with_what_is_behind(place, need):
    """Threads that wait, signals, children, jumps, single steps and changes of the text, wherever the jump is."""
    need("behind")
    if place.name == "native":
        assert place.run("/t/behind").ok() == "behind ok\n"
        return
    assert run_copy(place, "behind", "patched").ok() == "behind ok\n"
    assert run_copy(place, "behind", opts=("--no-patch",)).ok() == "behind ok\n"


@pytest.mark.parametrize("number", ["known", "in a register"])
def test_late_patches_are_fast(domain, need, number):
    """A program from no image, static: its calls become several times faster."""
    need("late")
    more = ["speed"] + ["register"] * (number != "known")
    fast = float(run_copy(domain, "late", *more).ok())
    slow = float(run_copy(domain, "late", *more, opts=("--no-patch",)).ok())
    assert fast * 5 < slow, (fast, slow)


def test_signals_in_late_patches(domain, need):
    """As the tests above, in copies whose calls are patched at run time."""
    for program, *args in [("windows",), ("storm", "patched"), ("thrown",)]:
        need(program)
        assert run_copy(domain, program, *args).ok() == f"{program} ok\n"


def test_exceptions_through_patched_calls(place, need):
    """A C++ exception thrown by a signal handler unwinds through the signal frame and the interrupted call."""
    need("thrown")
    for opts in [(), ("--no-patch",)] if place.name == "domain" else [()]:
        assert place.run("/t/thrown", timeout=60, opts=opts).ok() == "thrown ok\n"


def test_inspect_counts_patches(domain):
    """The image `debian` is patched: at least nine in ten sites of all its programs."""
    report = json.loads(
        subprocess.run(
            [DOPPEL, "image", "inspect", "--quick", "--json", "debian"], capture_output=True, check=True
        ).stdout
    )["patches"]
    assert report["rule_a"] + report["rule_b"] >= 0.9 * report["sites"] > 0
    assert any(f["path"].endswith("/libc.so.6") for f in report["top"])


def test_calls_preserve_state(place, need):
    """By trap, and in a domain also by the fast entry that patched calls use."""
    need("preserve")
    ways = [()] if place.name == "native" else [(), ("fast",)]
    for way in ways:
        assert place.run("/t/preserve", *way, timeout=60).ok() == "preserve ok\n"


def test_fork_from_16_threads(place, need):
    need("forkstorm")
    assert place.run("/t/forkstorm", "1000", timeout=180).ok() == "forkstorm ok\n"


def test_signals_from_all_sides(place, need):
    """Kicks and ends of children reach a computing thread faster than it handles them."""
    need("kickstorm")
    assert place.run("/t/kickstorm", timeout=90).ok() == "kickstorm ok\n"


def test_ten_thousand_spawns_without_leak(domain, need):
    need("spawner")
    p = domain.start("/t/spawner", "1000", "9000")
    try:
        assert p.stdout.readline() == b"done 1000\n", p.stderr.read(2000)
        before = domain_memory(p.pid)
        p.stdin.write(b"go\n")
        p.stdin.flush()
        assert p.stdout.readline() == b"done 9000\n", p.stderr.read(2000)
        after = domain_memory(p.pid)
        p.stdin.write(b"end\n")
        p.stdin.close()
        assert p.wait(20) == 0
    finally:
        p.kill()
        p.wait()
    assert after - before < 4 << 20, f"grew from {before >> 10} to {after >> 10} KiB over 9,000 spawns"


SQL = """
create table t(id integer primary key, k integer, v blob);
begin; with recursive n(i) as (select 1 union all select i + 1 from n where i < 100000)
insert into t(k, v) select i % 1000, randomblob(1000) from n; commit;
create index tk on t(k);
select count(*), sum(length(v)) from t where k < 500;
update t set k = k + 1 where id % 10 = 0;
delete from t where id % 3 = 0;
select count(*) from t;
pragma integrity_check;
vacuum;
select count(*) from t;
"""


def test_sqlite3_shell_100_mb(place):
    r = place.run("sh", "-c", "sqlite3 big.db && ls -l big.db | awk '{print ($5 > 60000000)}'", stdin=SQL, timeout=300)
    assert r.ok().split("\n")[:5] == ["50000|50000000", "66667", "ok", "66667", "1"]


def test_cpu_work_is_native_speed(place):
    code = "import time\nt=time.perf_counter()\nx=0\nfor i in range(2000000): x+=i*i%7\nprint(x)"
    t = time.monotonic()
    assert place.run(sys.executable if place.name == "native" else "python3", "-c", code).ok() == "3999997\n"
    assert time.monotonic() - t < 30
