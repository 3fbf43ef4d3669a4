"""Files that stay, on the host's disk: a named volume, a directory of the host, and (Doppel alone) the writable layer.

`src/disk.c` measures single operations; git, tar, SQLite and PostgreSQL do the rest. The other runtimes have no such
difference: their figures, taken once, stand in each of the rows. runsc has its default, directfs; `runsc-gofer` is the
same without. A domain has a volume alone, so its kernel may keep it in memory under a lease (docs/volumes.md); a host's
directory is asked of the storage service each time. Bubblewrap is left out: it is a bind mount, as runc's.
"""
from collections.abc import Iterator
from typing import Any

from harness.inside import timed
from harness.place import Place
from harness.servers import rates

UNIT = "ns"
REPEATS = 3
ALSO = ("runsc-gofer",)
KINDS = {"volume": "volume", "directory": "host directory", "layer": "layer"}
OPERATIONS = {
    "read 4 KB, cached": 0.6,
    "read 1 MB, cached": 1.0,
    "write 1 MB, buffered, fsync at the end": 1 / 0.95,
    "read 1 MB, buffered": 1 / 0.95,
    "write 1 MB, O_DIRECT": 1 / 0.95,
    "read 1 MB, O_DIRECT": 1 / 0.95,
    "read 4 KB at random, O_DIRECT, depth 1": 1 / 0.7,
    "write 4 KB at random, O_DIRECT, depth 1": 1 / 0.7,
    "read 4 KB at random, O_DIRECT, depth 32": 1 / 0.95,
    "write 4 KB at random, O_DIRECT, depth 32": 1 / 0.95,
    "create a file of 1 KB": 1 / 0.6,
    "stat": 1 / 0.6,
    "rename": 1 / 0.6,
    "unlink": 1 / 0.6,
    "git clone": 1 / 0.9,
    "git status": 1 / 0.9,
    "make -j2": 1 / 0.9,
    "pip install": 1 / 0.9,
    "SQLite, synchronous": 1 / 0.95,
    "PostgreSQL, TPC-B": 0.95,
}
TARGETS = {f"{kind}: {row}": round(ratio, 2) for kind in KINDS.values() for row, ratio in OPERATIONS.items()}

TREE = r"""
mkdir /mnt/tree && cd /mnt/tree
python3 -c '
import os
for d in range(100):
    os.makedirs(f"dir{d:02}")
    for f in range(FILES):
        open(f"dir{d:02}/file{f:02}.c", "w").write(f"int f{d}_{f}(void) {{ return {d * f}; }}\n")
open("part.c", "w").write("".join(f"int f{i}(int x) {{ return x * {i}; }}\n" for i in range(50)))
open("Makefile", "w").write(".PHONY: all\nall:" + "".join(f" o{i}.o" for i in range(20)) + "\n%.o: part.c\n\tgcc -O1 -c -o $@ $<\n")
'
git init -q . && git add . && git -c user.name=b -c user.email=b@localhost commit -qm all && sleep 1.1 && git status
"""  # noqa: E501
# Packages as pip's cache has them: wheels, of so many modules each.
WHEELS = r"""
mkdir /mnt/wheels && cd /mnt/wheels && python3 -c '
import base64, hashlib, zipfile
for p in range(10):
    info = f"part{p}-1.0.dist-info"
    text = "\n".join(f"def f{i}(x): return x + {i}" for i in range(40))
    files = {f"part{p}/{name}.py": text for name in ["__init__", *(f"m{i}" for i in range(MODULES))]}
    files[info + "/METADATA"] = f"Metadata-Version: 2.1\nName: part{p}\nVersion: 1.0\n"
    files[info + "/WHEEL"] = "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    sums = {n: base64.urlsafe_b64encode(hashlib.sha256(t.encode()).digest()).rstrip(b"=").decode() for n, t in files.items()}
    lines = [f"{n},sha256={sums[n]},{len(files[n])}" for n in files]
    files[info + "/RECORD"] = "\n".join([*lines, info + "/RECORD,,"]) + "\n"
    with zipfile.ZipFile(f"part{p}-1.0-py3-none-any.whl", "w") as z:
        for name, text in files.items(): z.writestr(name, text)
'
"""  # noqa: E501
PIP = "pip install -q --no-index --find-links /mnt/wheels --target /mnt/site".split()
SQLITE = r"""
python3 -c '
print("create table t(k integer, v text); pragma synchronous=full;")
for i in range(ROWS): print(f"insert into t values({i}, \x27name {i}\x27);")
' > /mnt/rows.sql
"""
POSTGRES = r"""
mkdir -p /mnt/pg && chown postgres /mnt/pg && cd /tmp
export PGDATA=/mnt/pg/data PGHOST=/tmp PGPORT=15432 PGUSER=postgres PGDATABASE=postgres
as() { setpriv --reuid=postgres --regid=postgres --clear-groups -- env HOME=/tmp "$@"; }
bin=/usr/lib/postgresql/15/bin
as $bin/initdb --no-sync -A trust >log 2>&1 || { cat log >&2; exit 1; }
printf "unix_socket_directories = '/tmp'\nlisten_addresses = ''\nautovacuum = off\n" >>/mnt/pg/data/postgresql.conf
as $bin/pg_ctl -w -l /tmp/pglog start >log 2>&1 || { cat log pglog >&2; exit 1; }
pgbench -i -q -s 2 >log 2>&1
pgbench -n -T "$D" -c 4 -j 2 >log 2>&1 || { cat log >&2; exit 1; }
echo "PostgreSQL, TPC-B: $(awk '/^tps/ { print $3 }' log)"
as $bin/pg_ctl -w -m fast stop >log
"""


def measure(runtime: Any, opt: Any) -> Iterator[tuple[str, Any]]:
    if runtime.name == "bwrap":
        return
    if not runtime.name.startswith("doppel") and runtime.name != "paene":
        for row, value in rows(runtime, "directory", opt):
            yield from ((f"{kind}: {row}", value) for kind in KINDS.values())
        return
    for kind, name in KINDS.items():
        yield from ((f"{name}: {row}", value) for row, value in rows(runtime, kind, opt))


def rows(runtime: Any, kind: str, opt: Any) -> Iterator[tuple[str, Any]]:
    """All of one runtime on one kind of files, each part on new ones."""
    with Place(runtime, kind) as at:
        quick = ("-q",) if opt.quick else ()
        for line in at.run("/disk", *quick, "/mnt").splitlines():
            name, _, value = line.rpartition(": ")
            yield name, float(value)
    with Place(runtime, kind) as at:
        tree = TREE.replace("FILES", "10" if opt.quick else "100")
        count = 1 if opt.quick else 3
        # One domain for each: what a start of it has to read is part of what a volume costs.
        yield "git status", timed(at, "git", "-C", "/mnt/tree", "status", prepare=tree, count=count)
        clone = ("git", "clone", "-q", "/mnt/tree", "/mnt/copy")
        yield "git clone", timed(at, *clone, before="rm -rf /mnt/copy", count=count)
        make = ("make", "-s", "-C", "/mnt/tree", "-j2")
        yield "make -j2", timed(at, *make, before="rm -f /mnt/tree/*.o", count=count)
    with Place(runtime, kind) as at:
        wheels = WHEELS.replace("MODULES", "20" if opt.quick else "100")
        install = (*PIP, *(f"part{p}" for p in range(10)))
        took = timed(at, *install, image="runtimes", prepare=wheels, before="rm -rf /mnt/site", count=count)
        yield "pip install", took
    with Place(runtime, kind) as at:
        fill = SQLITE.replace("ROWS", "100" if opt.quick else "500")
        insert = ("sh", "-c", "sqlite3 /mnt/new.db < /mnt/rows.sql")
        yield "SQLite, synchronous", timed(at, *insert, prepare=fill, before="rm -f /mnt/new.db*", count=2)
    with Place(runtime, kind) as at:
        for row, value in rates(at, f"D={2 if opt.quick else 8}\n" + POSTGRES).items():
            yield row, (value, "/s")
