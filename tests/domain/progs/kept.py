"""Files, shared memory and mappings against models in private memory, before and after a freeze and in clones.

Prints `ok N` in a clone of generation N that has left everything as the models say, or what differs. With an argument
clones freeze themselves again if they may.
"""
import ctypes
import fcntl
import mmap
import os
import random
import select
import struct
import sys

PAGE = 4096
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
for function in (libc.mmap, libc.mremap):
    function.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
generation = lambda: int(open("/sys/doppel/generation").read())


class Thing:
    """A file, and what must be in it."""

    def __init__(self, path, size, rng):
        self.path, self.model = path, bytearray(rng.randbytes(size))
        if path is None:
            self.fd = os.memfd_create("kept", os.MFD_ALLOW_SEALING)
        else:
            self.fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        # Holes, too.
        for at in range(0, size, 7 * PAGE):
            if rng.random() < 0.2:
                n = min(7 * PAGE, size - at)
                self.model[at:at + n] = bytes(n)
                os.ftruncate(self.fd, at + n)
            else:
                os.pwrite(self.fd, self.model[at:at + 7 * PAGE], at)
        self.map = mmap.mmap(self.fd, size) if size and rng.random() < 0.5 else None

    def check(self):
        size = os.fstat(self.fd).st_size
        assert size == len(self.model), (self.path, size, len(self.model))
        data = os.pread(self.fd, size + 1, 0)
        if data != self.model:
            bad = next(i for i in range(len(data)) if data[i] != self.model[i])
            raise AssertionError(f"{self.path}: byte {bad:#x} of {size:#x}")
        if self.map is not None:
            seen = min(len(self.map), size)
            assert self.map[:seen] == self.model[:seen], f"{self.path}: its mapping"


def some(rng, t, most=5 * PAGE):
    at = rng.randrange(0, max(1, len(t.model)))
    if rng.random() < 0.4:
        at -= at % PAGE
    return at, min(rng.choice([1, 8, 100, PAGE, rng.randrange(1, most)]), len(t.model) - at)


def write(rng, t):
    at, n = some(rng, t)
    data = rng.randbytes(max(1, n))
    t.model.extend(bytes(max(0, at + len(data) - len(t.model))))
    t.model[at:at + len(data)] = data
    assert os.pwrite(t.fd, data, at) == len(data)


def read(rng, t):
    at, n = some(rng, t, 40 * PAGE)
    assert os.pread(t.fd, n, at) == t.model[at:at + n], (t.path, at, n)


def truncate(rng, t):
    if t.map is not None:
        return
    size = rng.randrange(0, len(t.model) + 9 * PAGE)
    os.ftruncate(t.fd, size)
    t.model = t.model[:size] + bytes(max(0, size - len(t.model)))


def punch(rng, t):
    at, n = some(rng, t, 30 * PAGE)
    if n > 0:
        assert libc.fallocate(t.fd, 3, at, n) == 0, ctypes.get_errno()
        t.model[at:at + n] = bytes(n)


def map_write(rng, t):
    """Through a mapping that is there, or a new one; another process does it now and then."""
    if not t.model:
        return
    m = t.map or mmap.mmap(t.fd, len(t.model))
    at = rng.randrange(0, min(len(m), len(t.model)))
    data = rng.randbytes(min(rng.choice([1, 60, 2 * PAGE]), min(len(m), len(t.model)) - at))
    t.model[at:at + len(data)] = data
    if rng.random() < 0.2:
        child = os.fork()
        if child == 0:
            m[at:at + len(data)] = data
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    else:
        m[at:at + len(data)] = data
    if m is not t.map:
        m.close()


def map_read(rng, t):
    if not t.model:
        return
    m = mmap.mmap(t.fd, len(t.model), prot=mmap.PROT_READ)
    at, n = some(rng, t, 40 * PAGE)
    assert m[at:at + n] == t.model[at:at + n], (t.path, at, n)
    m.close()


def map_private(rng, t):
    """Which shows the file, and changes nothing in it."""
    if not t.model:
        return
    m = mmap.mmap(t.fd, len(t.model), flags=mmap.MAP_PRIVATE)
    at, n = some(rng, t)
    assert m[at:at + n] == t.model[at:at + n], (t.path, at, n)
    m[at:at + n] = bytes(n)
    m.close()


def map_change(rng, t):
    """Through a mapping that is protected, moved, forked and cut meanwhile."""
    size = len(t.model) // PAGE * PAGE
    if size == 0:
        return
    at = libc.mmap(None, size, 3, mmap.MAP_SHARED, t.fd, 0)
    assert at != -1 % (1 << 64), ctypes.get_errno()

    def store():
        place = rng.randrange(0, size)
        data = rng.randbytes(min(rng.choice([1, 60, 2 * PAGE]), size - place))
        t.model[place:place + len(data)] = data
        ctypes.memmove(at + place, data, len(data))

    for _ in range(4):
        store()
        what = rng.randrange(3)
        if what == 0:
            assert libc.mprotect(ctypes.c_void_p(at), ctypes.c_size_t(size), 1) == 0
            assert libc.mprotect(ctypes.c_void_p(at), ctypes.c_size_t(size), 3) == 0
        elif what == 1:
            at = libc.mremap(ctypes.c_void_p(at), ctypes.c_size_t(size), ctypes.c_size_t(size + PAGE), 1)
            assert at != -1 % (1 << 64), ctypes.get_errno()
            at = libc.mremap(ctypes.c_void_p(at), ctypes.c_size_t(size + PAGE), ctypes.c_size_t(size), 0)
        else:
            place, data = rng.randrange(0, size), rng.randbytes(1)
            t.model[place:place + 1] = data
            child = os.fork()
            if child == 0:
                ctypes.memmove(at + place, data, 1)
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
    store()
    assert libc.munmap(ctypes.c_void_p(at), ctypes.c_size_t(size)) == 0


def kernel_write(rng, t):
    """A call of the kernel stores into the mapping: it reads another file there, or the file itself."""
    m = t.map or (mmap.mmap(t.fd, len(t.model)) if t.model else None)
    if m is None:
        return
    at, n = some(rng, t)
    n = min(n, len(m) - at)
    if n <= 0:
        return
    with open("/proc/self/exe", "rb", buffering=0) as f:
        with memoryview(m)[at:at + n] as view:
            got = f.readinto(view)
        assert got == n, (got, n)
        t.model[at:at + n] = os.pread(f.fileno(), n, 0)
    if m is not t.map:
        m.close()


def kernel_read(rng, t):
    """A call of the kernel reads from the mapping."""
    if not t.model:
        return
    m = t.map or mmap.mmap(t.fd, len(t.model))
    at, n = some(rng, t, 20 * PAGE)
    n = min(n, len(m) - at)
    if n <= 0:
        return
    other = os.open("/tmp", os.O_TMPFILE | os.O_RDWR)
    with memoryview(m)[at:at + n] as view:
        assert os.write(other, view) == n
    assert os.pread(other, n, 0) == t.model[at:at + n], (t.path, at, n)
    os.close(other)
    if m is not t.map:
        m.close()


def send(rng, t):
    other = os.open("/tmp", os.O_TMPFILE | os.O_RDWR)
    at, n = some(rng, t, 20 * PAGE)
    assert n == 0 or os.sendfile(other, t.fd, at, n) == n
    assert os.pread(other, n, 0) == t.model[at:at + n], (t.path, at, n)
    os.close(other)


def replace(rng, t):
    if t.map is not None or t.path is None:
        return
    os.unlink(t.path)
    os.close(t.fd)
    t.fd = os.open(t.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    t.model = bytearray(rng.randbytes(rng.randrange(0, 30 * PAGE)))
    os.write(t.fd, t.model)


OPERATIONS = [
    write, read, truncate, punch, map_write, map_read, map_private, map_change, kernel_write, kernel_read, send,
    replace,
]


def work(rng, things, count):
    for i in range(count):
        t = rng.choice(things)
        what = rng.choice(OPERATIONS)
        try:
            what(rng, t)
        except AssertionError as e:
            raise AssertionError(f"{what.__name__} {i}: {e}") from None
    for t in things:
        t.check()


def system_v(size):
    """A segment of System V shared memory: a view of it."""
    number = libc.shmget(0, ctypes.c_size_t(size), 0o1600)
    return (ctypes.c_char * size).from_address(libc.shmat(number, None, 0))


def go_on(things):
    """Until its input ends, or for a while in a clone; whoever freezes it meets it in the middle of something."""
    began = generation()
    print("ready", flush=True)
    while generation() == began and not select.select([0], [], [], 0)[0]:
        work(random.Random(os.urandom(8)), things, 5)
    work(random.Random(os.urandom(8)), things, 60)
    print("ok", generation() - began, flush=True)


def main():
    rng = random.Random(1)
    paths = ["/tmp/a", "/tmp/b", "/dev/shm/c", "/dev/shm/d", None, "/tmp/e", "/dev/shm/f"]
    # Mappings of a MiB and more have their pages when they are touched.
    most = {"/tmp/b": 700, "/dev/shm/c": 600, "/dev/shm/d": 500}
    pages = lambda p: rng.randrange(most.get(p, 120) // 2, most.get(p, 120))
    things = [Thing(p, pages(p) * PAGE - rng.randrange(0, 500), rng) for p in paths]
    work(rng, things, 60)
    if sys.argv[1:] == ["on"]:
        return go_on(things)
    segment, marks = system_v(64 * PAGE), rng.randbytes(64 * PAGE)
    segment[:] = marks
    sealed = os.memfd_create("sealed", os.MFD_ALLOW_SEALING)
    os.write(sealed, marks)
    fcntl.fcntl(sealed, 1033, 15)
    # A process that shares memory, and answers in it.
    shared = mmap.mmap(-1, 16 * PAGE)
    shared[:] = marks[:16 * PAGE]
    ours, theirs = os.pipe(), os.pipe()
    if os.fork() == 0:
        os.close(ours[1])
        while line := os.read(ours[0], 4):
            at, = struct.unpack("I", line)
            value = shared[at:at + 8]
            segment[at:at + 8] = value
            shared[at:at + 8] = value[::-1]
            os.write(theirs[1], b".")
        os._exit(0)
    began = generation()
    with open("/sys/power/state", "w") as f:
        f.write("freeze")
    for again in range(2):
        rng = random.Random(int.from_bytes(os.urandom(8), "little"))
        for t in things:
            t.check()
        assert bytes(segment) == marks and os.pread(sealed, len(marks), 0) == marks and shared[:] == marks[:16 * PAGE]
        for at in range(0, 16 * PAGE, 3 * PAGE // 2 & ~7):
            word = os.urandom(8)
            shared[at:at + 8] = word
            os.write(ours[1], struct.pack("I", at))
            assert os.read(theirs[0], 1) == b"."
            assert shared[at:at + 8] == word[::-1] and segment[at:at + 8] == word, at
        try:
            os.pwrite(sealed, b"x", 0)
            raise AssertionError("a seal is broken")
        except PermissionError:
            pass
        work(rng, things, 250)
        segment[:], shared[:] = marks, marks[:16 * PAGE]
        if again or generation() == began or len(sys.argv) < 2:
            break
        try:
            with open("/sys/power/state", "w") as f:
                f.write("freeze")
        except PermissionError:
            break
    print("ok", generation() - began, flush=True)


main()
