"""What an idle connection from the host to a server in an instance takes, everything counted: pages of processes and of
memory files, and the host kernel's own objects, both ends' sockets among them.
"""

import glob
import os
import resource
import socket
import time

from harness.memory import tree
from harness.runtimes import Cannot, Failed

from workloads.network import Server

UNIT = "KiB"
REPEATS = 1
SERVE = """
import resource, socket
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 20000), hard))
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("", PORT))
s.listen(4096)
kept = []
while True:
    c = s.accept()[0]
    c.sendall(c.recv(1))
    kept.append(c)
"""


def taken(pid):
    """KiB of the processes below one, and of the host kernel's own objects."""
    pages, files = 0, {}
    for p in [pid, *tree(pid)]:
        try:
            pages += sum(
                int(line.split()[1]) for line in open(f"/proc/{p}/smaps_rollup") if line.startswith("Pss_Anon:")
            )
            for fd in glob.glob(f"/proc/{p}/fd/*"):
                if os.readlink(fd).startswith("/memfd:"):
                    st = os.stat(fd)
                    files[st.st_ino] = st.st_blocks // 2
        except OSError:
            pass  # it has ended, or closed it
    kernel = sum(
        int(line.split()[1])
        for line in open("/proc/meminfo")
        if line.startswith(("SUnreclaim:", "KernelStack:", "PageTables:"))
    )
    return pages + sum(files.values()), kernel


def measure(runtime, opt):
    if runtime.name in ("runc", "runsc"):
        raise Cannot(f"{runtime.name}: has the host's connections, or memory that is not told apart")
    count = 200 if opt.quick else 5000
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, count + 2000), hard))
    with Server(runtime, "/usr/bin/python3", "-c", SERVE, image="debian") as s:
        clients = []

        def connect(n):
            for _ in range(n):
                c = socket.create_connection(("127.0.0.1", s.port), timeout=60)
                c.sendall(b"x")
                if c.recv(1) != b"x":
                    raise Failed(f"{runtime.name}: the server does not answer")
                clients.append(c)

        try:
            connect(100)
            time.sleep(0.5)
            before = taken(s.process.pid)
            connect(count)
            time.sleep(0.5)
            after = taken(s.process.pid)
        finally:
            for c in clients:
                c.close()
    own, kernel = ((b - a) / count for a, b in zip(before, after))
    return {
        "an idle connection: pages": own,
        "an idle connection: pages and the host kernel's objects": own + max(0, kernel),
    }
