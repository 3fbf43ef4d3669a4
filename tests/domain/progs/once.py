"""System calls that store what they take in shared memory, while the domain is frozen again and again, and in clones.

Each worker takes numbered things one after the other, and has each stored at a random place of mappings that fault
because of guards, or of pages that are still in the image. A call that was made twice has lost one: the number that
follows tells. Prints how many workers found something wrong, of how many.
"""
import ctypes
import errno
import mmap
import os
import random
import select
import signal
import socket
import struct
import sys
import time

PAGE = 4096
PAGES = 1024
libc = ctypes.CDLL(None, use_errno=True)
libc.msgrcv.restype = ctypes.c_ssize_t
libc.read.restype = libc.recvmsg.restype = libc.recvfrom.restype = ctypes.c_ssize_t


def call(function, *args):
    """A call of the C library; what is interrupted is made again, as nothing was taken then."""
    while True:
        result = getattr(libc, function)(*args)
        if result >= 0 or ctypes.get_errno() != errno.EINTR:
            assert result >= 0, (function, os.strerror(ctypes.get_errno()))
            return result


class Memory:
    """A mapping, and random places in it."""

    def __init__(self, path, flags=mmap.MAP_SHARED):
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        if os.fstat(fd).st_size == 0:
            os.write(fd, os.urandom(PAGE) * PAGES)
        self.map = mmap.mmap(fd, PAGES * PAGE, flags=flags)
        os.close(fd)
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(self.map))

    def places(self, rng, *sizes):
        """One in three is across the border of two pages."""
        pages = rng.sample(range(2, PAGES, 2), len(sizes))
        return [self.base + page * PAGE - (rng.choice([0, size // 2, PAGE]) & ~3) for page, size in zip(pages, sizes)]

    def place(self, rng, size):
        return self.places(rng, size)[0]

    def get(self, address, size):
        return ctypes.string_at(address, size)


def pipes(m, rng):
    r, w = os.pipe()
    for n in range(1 << 60):
        os.write(w, struct.pack("Q", n))
        at = m.place(rng, 8)
        assert call("read", r, ctypes.c_void_p(at), ctypes.c_size_t(8)) == 8
        assert m.get(at, 8) == struct.pack("Q", n), n
        yield


def counters(m, rng):
    fd = os.eventfd(0, os.EFD_NONBLOCK)
    for n in range(1, 1 << 60):
        os.eventfd_write(fd, n)
        at = m.place(rng, 8)
        assert call("read", fd, ctypes.c_void_p(at), ctypes.c_size_t(8)) == 8
        assert m.get(at, 8) == struct.pack("Q", n), n
        yield


def connections(m, rng):
    name = f"\0once-{os.getpid()}"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(name)
    listener.listen(4)
    listener.setblocking(False)
    for n in range(1 << 60):
        client = socket.socket(socket.AF_UNIX)
        client.bind(f"\0{n:08}")
        client.connect(name)
        size, address = m.places(rng, 4, 110)
        ctypes.memmove(size, struct.pack("I", 110), 4)
        fd = call("accept4", listener.fileno(), ctypes.c_void_p(address), ctypes.c_void_p(size), 0)
        got = struct.unpack("I", m.get(size, 4))[0]
        assert m.get(address, got)[2:] == f"\0{n:08}".encode(), n
        os.close(fd)
        client.close()
        yield


def messages(m, rng):
    """With an address and a descriptor each."""
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    b.setblocking(False)
    for n in range(1 << 60):
        socket.send_fds(a, [struct.pack("Q", n)], [0])
        data, iov, control, header = m.places(rng, 8, 16, 64, 56)
        ctypes.memmove(iov, struct.pack("QQ", data, 8), 16)
        ctypes.memmove(header, struct.pack("QIIQQQQII", 0, 0, 0, iov, 1, control, 64, 0, 0), 56)
        assert call("recvmsg", b.fileno(), ctypes.c_void_p(header), 0) == 8
        assert m.get(data, 8) == struct.pack("Q", n), n
        size, level, kind, fd = struct.unpack("Qiii", m.get(control, 20))
        assert (size, level, kind) == (20, socket.SOL_SOCKET, socket.SCM_RIGHTS), (size, level, kind)
        os.close(fd)
        yield


def children(m, rng):
    while True:
        status = rng.randrange(256)
        pid = os.fork()
        if pid == 0:
            os._exit(status)
        at, usage = m.places(rng, 4, 144)
        assert call("wait4", -1, ctypes.c_void_p(at), 0, ctypes.c_void_p(usage)) == pid
        assert m.get(at, 4) == struct.pack("I", status << 8), status
        yield


def signals(m, rng):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
    wanted = struct.pack("16Q", 1 << signal.SIGRTMIN - 1, *[0] * 15)
    for n in range(1 << 60):
        assert libc.sigqueue(os.getpid(), signal.SIGRTMIN, ctypes.c_void_p(n)) == 0
        at = m.place(rng, 128)
        zero = struct.pack("QQ", 0, 0)
        assert call("sigtimedwait", wanted, ctypes.c_void_p(at), zero) == signal.SIGRTMIN
        assert struct.unpack("Q", m.get(at + 24, 8))[0] == n
        yield


def events(m, rng):
    """Told once each, as they are edges."""
    poll, fd = select.epoll(), os.eventfd(0)
    poll.register(fd, select.EPOLLIN | select.EPOLLET)
    while True:
        os.eventfd_write(fd, 1)
        at = m.place(rng, 12)
        assert call("epoll_wait", poll.fileno(), ctypes.c_void_p(at), 1, 0) == 1
        assert struct.unpack("I", m.get(at, 4))[0] == select.EPOLLIN
        yield


def queued(m, rng):
    queue = call("msgget", 0, 0o1600)
    for n in range(1, 1 << 60):
        assert call("msgsnd", queue, struct.pack("QQ", n, ~n & (1 << 64) - 1), ctypes.c_size_t(8), 0) == 0
        at = m.place(rng, 16)
        got = call("msgrcv", queue, ctypes.c_void_p(at), ctypes.c_size_t(8), ctypes.c_long(0), 0o4000)
        assert got == 8 and m.get(at, 16) == struct.pack("QQ", n, ~n & (1 << 64) - 1), n
        yield


def words(m, rng):
    """Words that the kernel changes, and those it is to change when a thread ends."""
    FUTEX_WAKE_OP, ADD_ONE = 5, 1 << 28 | 1 << 12
    while True:
        at = m.place(rng, 4) & ~3
        before = struct.unpack("I", m.get(at, 4))[0]
        call("syscall", 202, ctypes.c_void_p(at), FUTEX_WAKE_OP, 1, 1, ctypes.c_void_p(at), ADD_ONE)
        assert m.get(at, 4) == struct.pack("I", before + 1 & 0xffffffff)
        yield


KINDS = [pipes, counters, connections, messages, children, signals, events, queued, words]
PLACES = ["/dev/shm/once", "/tmp/once"]


def work(kind, path, flags, control, slot):
    rng = random.Random(os.urandom(8))
    steps = kind(Memory(path, flags), rng)
    try:
        while control[0] == 0:
            next(steps)
            control[slot] = control[slot] + 1 & 0xff
    except BaseException as e:
        sys.stderr.write(f"{kind.__name__} in {path}: {e!r}\n")
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


def main():
    control = mmap.mmap(-1, PAGE)
    workers = []
    plans = [(kind, f"{PLACES[i % 2]}{i}", mmap.MAP_SHARED) for i, kind in enumerate(KINDS)]
    plans += [(kind, f"/tmp/private-{kind.__name__}", mmap.MAP_PRIVATE) for kind in (pipes, children)]
    for i, plan in enumerate(plans):
        pid = os.fork()
        if pid == 0:
            work(*plan, control, i + 1)
        workers.append(pid)

    def advanced():
        """Waits until each has done something more, or has ended."""
        before = control[1:len(plans) + 1]
        until = time.monotonic() + 10
        while any(a == b for a, b in zip(before, control[1:len(plans) + 1])) and time.monotonic() < until:
            time.sleep(0.002)

    generation = os.open("/sys/doppel/generation", os.O_RDONLY)
    began = os.pread(generation, 20, 0)
    advanced()
    print("ready", flush=True)
    while True:
        ready = select.select([0], [], [], 0.01)[0]
        cloned = os.pread(generation, 20, 0) != began
        if cloned or (ready and not os.read(0, 1)):
            break
    advanced()
    time.sleep(0.5 if cloned else 0)
    control[0] = 1
    wrong = [os.waitpid(pid, 0)[1] for pid in workers]
    print(sum(map(bool, wrong)), "of", len(wrong), flush=True)


main()
