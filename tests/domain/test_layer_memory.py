"""Files of a layer that are larger than the domain's memory, and domains that are killed as they write.

Memory is a cache of the layer's files: pages are brought in by need and given up when they were stored. A killed
domain loses what it has not synced, and nothing else.
"""
import os
import random
import signal
import subprocess
import threading
import uuid
from collections.abc import Iterator

import pytest
from conftest import DOPPEL, call

IMAGE = "debian"

# Random operations on files that do not fit in memory, against what each page should hold.
ORACLE = r"""
import ctypes, mmap, os, random, sys
random.seed(int(sys.argv[1]))
os.makedirs("/e", exist_ok=True)
PAGE, FILES, SIZE = 4096, 3, 24 << 20
PAGES = SIZE // PAGE
held = [[0] * PAGES for _ in range(FILES)]
def page(f, p):
    g = held[f][p]
    return (b"%d.%d.%d|" % (f, p, g) * 600)[:PAGE] if g else bytes(PAGE)
fds = [os.open("/e/%d" % f, os.O_RDWR | os.O_CREAT | os.O_TRUNC) for f in range(FILES)]
for fd in fds: os.ftruncate(fd, SIZE)
libc = ctypes.CDLL(None, use_errno=True)
def check(f, p, got, step):
    want = page(f, p)
    assert got == want, (f, p, step, got[:20], want[:20])
for step in range(1, int(sys.argv[2])):
    f, r, p = random.randrange(FILES), random.random(), random.randrange(PAGES)
    n = min(random.choice([1, 1, 4, 64, 400]), PAGES - p)
    if r < .45:
        held[f][p:p + n] = [step] * n
        assert os.pwrite(fds[f], b"".join(page(f, q) for q in range(p, p + n)), p * PAGE) == n * PAGE
    elif r < .5:
        at = random.randrange(PAGE - 10)
        os.pwrite(fds[f], page(f, p)[at:at + 10], p * PAGE + at)
    elif r < .53:
        assert libc.fallocate(fds[f], 3, ctypes.c_long(p * PAGE), ctypes.c_long(n * PAGE)) == 0
        held[f][p:p + n] = [0] * n
    elif r < .55:
        cut = random.randrange(SIZE)
        os.ftruncate(fds[f], cut)
        os.ftruncate(fds[f], SIZE)
        k, part = divmod(cut, PAGE)
        assert os.pread(fds[f], PAGE, k * PAGE) == page(f, k)[:part] + bytes(PAGE - part), ("edge", f, k, step)
        os.pwrite(fds[f], page(f, k), k * PAGE)
        held[f][k + 1:] = [0] * (PAGES - k - 1)
    elif r < .57:
        os.fsync(fds[f])
    elif r < .6:
        with mmap.mmap(fds[f], n * PAGE, offset=p * PAGE) as m:
            for q in range(n): check(f, p + q, m[q * PAGE:(q + 1) * PAGE], step)
            if n < 64:
                held[f][p:p + n] = [step] * n
                for q in range(n): m[q * PAGE:(q + 1) * PAGE] = page(f, p + q)
    else:
        got = os.pread(fds[f], n * PAGE, p * PAGE)
        for q in range(n): check(f, p + q, got[q * PAGE:(q + 1) * PAGE], step)
for f in range(FILES):
    # The read that goes beyond the end ends there.
    assert len(os.pread(fds[f], PAGE * 2, SIZE - 100)) == 100
    for p in range(PAGES): check(f, p, os.pread(fds[f], PAGE, p * PAGE), "end")
print("good", flush=True)
"""

# Says each row once it is on the disk. Files that a synced list names were written before it.
WRITER = r"""
import os, random, sqlite3, sys
os.makedirs("/w", exist_ok=True)
db = sqlite3.connect("/w/db")
db.execute("pragma journal_mode=" + sys.argv[1])
db.execute("pragma synchronous=extra")
db.execute("create table if not exists t(i integer primary key, v blob)")
db.commit()
row = db.execute("select count(*) from t").fetchone()[0]
assert db.execute("pragma integrity_check").fetchone()[0] == "ok"
try: sizes = dict(line.split() for line in open("/w/list"))
except FileNotFoundError: sizes = {}
def content(name, size): return (name.encode() * (size // len(name) + 1))[:size]
for name, size in sizes.items():
    with open("/w/" + name, "rb") as f: got = f.read()
    assert got == content(name, int(size)), (name, size, len(got))
print("found", row, flush=True)
while True:
    db.execute("insert into t values(?, ?)", (row, os.urandom(random.randrange(3000))))
    db.commit()
    row += 1
    print("row", row, flush=True)
    if random.random() < .3:
        name, size = f"f{row}", random.randrange(int(sys.argv[2]))
        with open("/w/" + name, "wb") as f: f.write(content(name, size))
        sizes[name] = str(size)
        with open("/w/new", "w") as f:
            f.writelines(f"{a} {b}\n" for a, b in sizes.items())
            f.flush()
            os.fsync(f.fileno())
        os.rename("/w/new", "/w/list")
"""


@pytest.fixture
def layer() -> Iterator[str]:
    """Name of a layer that goes afterwards."""
    name = f"t-{uuid.uuid4().hex[:12]}"
    yield name
    assert call([DOPPEL, "layer", "rm", name], b"", 60).code == 0


def command(layer: str, memory: str, *program: str) -> list[str]:
    return [DOPPEL, "run", "--rm", "-m", memory, f"--persist={layer}", IMAGE, *program]


@pytest.mark.parametrize("seed", [1, 2])
def test_files_larger_than_memory_hold_what_was_written(layer: str, seed: int) -> None:
    r = call(command(layer, "64m", "python3", "-c", ORACLE, str(seed), "600"), b"", 300)
    assert (r.code, r.out) == (0, "good\n"), r.err


def test_a_file_that_does_not_fit_is_read_again_by_another_domain(layer: str) -> None:
    size = 200 << 20
    write = f"head -c {size} /dev/zero | tr '\\0' x > /big; rm -f /none; sha256sum < /big"
    first = call(command(layer, "96m", "sh", "-c", write), b"", 300)
    assert first.code == 0, first.err
    again = call(command(layer, "96m", "sh", "-c", "sha256sum < /big; stat -c %s /big"), b"", 300)
    assert again.out == f"{first.out}{size}\n", again.err
    # Programs get the memory that was the files'.
    program = "x = open('/big', 'rb').read(64 << 20); del x; b = bytearray(40 << 20); print(len(b))"
    last = call(command(layer, "96m", "python3", "-c", program), b"", 120)
    assert (last.code, last.out) == (0, f"{40 << 20}\n"), last.err


@pytest.mark.parametrize("memory", ["96m", "512m"])
def test_a_killed_domain_loses_nothing_that_was_synced(layer: str, memory: str) -> None:
    acknowledged = 0
    for kill in range(int(os.environ.get("DOPPEL_LAYER_KILLS", "4"))):
        mode = ["delete", "wal"][kill % 2]
        program = command(layer, memory, "python3", "-u", "-c", WRITER, mode, "400000")
        pipe = subprocess.PIPE
        with subprocess.Popen(program, stdout=pipe, stderr=pipe, text=True, start_new_session=True) as p:
            assert p.stdout and p.stderr
            line = p.stdout.readline()
            assert line.startswith("found"), p.stderr.read()
            assert int(line.split()[1]) >= acknowledged, f"kill {kill}: {acknowledged} rows were acknowledged, {line}"
            timer = threading.Timer(random.uniform(0.3, 1.5), os.killpg, (p.pid, signal.SIGKILL))
            timer.start()
            rows = [int(text.split()[1]) for text in p.stdout if text.startswith("row") and text.endswith("\n")]
            timer.join()
            acknowledged = max([acknowledged, *rows])
    assert acknowledged > 10
