"""PostgreSQL on a volume beside neighbours that take the disk: sustained writes, and small files in large directories
(Xen 4.4, where OSDB-IR and SPEC WEB99 lost 4 % and 2 %).

All have volumes of their own through one storage service, and the same weight. What the victim gets beside each of
them is compared with what it gets beside a neighbour that takes a CPU and no disk, just before and just after it.
Selects are of OSDB-IR's kind: what they read stays in memory; transactions (TPC-B) are synced, and wait for the
disk that the neighbour keeps busy.
"""
import contextlib
import statistics
import subprocess
import time
from collections.abc import Iterator
from typing import Any

from harness.place import Place
from harness.runtimes import Cannot, Failed
from harness.servers import HELPERS, IMAGE

UNIT = "%"
REPEATS = 1
BUSY = "compute"
# Seconds in which a neighbour has started and made its first files.
SETTLES = 1
HOGS = {"write": "sustained writes", "create": "small files"}
VICTIMS = {"select-only": "PostgreSQL, selects", "tpcb-like": "PostgreSQL, transactions"}
BESIDE = "{} on a volume beside {}, of those beside computing"
TARGETS = {BESIDE.format(victim, hog): 96 for victim in VICTIMS.values() for hog in HOGS.values()}
SCRIPT = r"""
mkdir -p /mnt/pg && chown postgres /mnt/pg && cd /tmp
export PGDATA=/mnt/pg/data PGHOST=/tmp PGPORT=15432 PGUSER=postgres PGDATABASE=postgres
as() { setpriv --reuid=postgres --regid=postgres --clear-groups -- env HOME=/tmp "$@"; }
bin=/usr/lib/postgresql/15/bin
as $bin/initdb --no-sync -A trust >log 2>&1 || { cat log >&2; exit 1; }
printf "unix_socket_directories = '/tmp'\nlisten_addresses = ''\nautovacuum = off\n" >>$PGDATA/postgresql.conf
as $bin/pg_ctl -w -l /tmp/pglog start >log 2>&1 || { cat log pglog >&2; exit 1; }
pgbench -i -q -s 2 >log 2>&1
for kind in $KINDS; do
    echo "begins $kind"
    pgbench -n -b $kind -T "$D" -c 4 -j 2 -P 1 --progress-timestamp >log 2>&1 || { cat log >&2; exit 1; }
    awk '/^progress:/ { print $2, $4 }' log
    echo ends
done
as $bin/pg_ctl -w -m immediate stop >log
"""


@contextlib.contextmanager
def hogging(runtime: Any, what: str, seconds: float) -> Iterator[None]:
    """While a neighbour with files of its own does this."""
    with Place(runtime.limited(memory=256 << 20, pids=200), "volume") as hog:
        p = subprocess.Popen(
            hog.argv("/storage", "hog", what, "/mnt", str(seconds)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield
            if p.poll() is not None:
                said = p.stderr.read()[-200:]
                raise Failed(f"{runtime.name}: the neighbour ({what}) ended with {p.returncode}: {said}")
        finally:
            hog.clean()
            p.kill()
            p.communicate()


def windows(runtime: Any, order: list[str], length: float) -> list[tuple[str, float, float]]:
    """Neighbours one after the other, and from when to when each of them was at work."""
    found = []
    for what in order:
        with hogging(runtime, what, 4 * length + 10):
            time.sleep(SETTLES)
            begun = time.time()
            time.sleep(length)
            found.append((what, begun, time.time()))
    return found


def measure(runtime: Any, opt: Any) -> Iterator[tuple[str, Any]]:
    if runtime.name in ("native", "runsc", "bwrap"):
        raise Cannot(f"{runtime.name}: sets its neighbours no limits here")
    if opt.quick and runtime.name != "doppel":
        raise Cannot(f"{runtime.name}: neighbours on the disk need more time than a short run has")
    rounds, length, starts = (1, 2, 1) if opt.quick else (4, 8, 2)
    order = [BUSY] + [what for _ in range(rounds) for hog in HOGS for what in (hog, BUSY)]
    lasts = len(order) * (SETTLES + length + starts) + 1
    with Place(runtime.limited(weight=100), "volume") as victim:
        script = f"{HELPERS}D={lasts} KINDS='{' '.join(VICTIMS)}'\n{SCRIPT}"
        p = subprocess.Popen(
            victim.argv("/bin/bash", "-c", script, image=IMAGE),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            for kind, name in VICTIMS.items():
                if (line := p.stdout.readline()) != f"begins {kind}\n":
                    raise Failed(f"{runtime.name}: {name}: {line}{p.communicate()[1].strip()[-300:]}")
                found = windows(runtime, order, length)
                rates = []
                while (line := p.stdout.readline()) != "ends\n":
                    if not line:
                        raise Failed(f"{runtime.name}: {name}: {p.communicate()[1].strip()[-300:]}")
                    rates.append(tuple(map(float, line.split())))
                yield from compared(name, found, rates)
        finally:
            victim.clean()
            p.kill()
            p.communicate()


def rate(rates: list[Any], begun: float, ended: float) -> float:
    """Of a window: each of these is of the time since the one before."""
    done, last = 0.0, 0.0
    for at, per_second in rates:
        done += per_second * max(0.0, min(at, ended) - max(last or at - 1, begun))
        last = at
    return done / (ended - begun)


def compared(name: str, found: list[tuple[str, float, float]], rates: list[Any]) -> Iterator[tuple[str, Any]]:
    """Each neighbour's windows, of the mean of those beside computing before and after it."""
    if not rates or rates[-1][0] < found[-1][2] - 2:
        raise Failed(f"{name} ended before its neighbours")
    done = [(what, rate(rates, begun, ended)) for what, begun, ended in found]
    if not all(per_second for what, per_second in done if what == BUSY):
        raise Failed(f"{name} does nothing beside a neighbour that computes")
    busy = [per_second for what, per_second in done if what == BUSY]
    yield f"{name} on a volume beside computing", (statistics.median(busy), "/s")
    for hog, shown in HOGS.items():
        of_busy = [
            100 * per_second / statistics.fmean([done[i - 1][1], done[i + 1][1]])
            for i, (what, per_second) in enumerate(done)
            if what == hog
        ]
        yield BESIDE.format(name, shown), statistics.median(of_busy)
