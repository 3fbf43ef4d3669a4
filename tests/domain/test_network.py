"""A domain's network: servers reached from the host, clients that reach out, and a network service that dies."""
import hashlib
import os
import re
import signal
import socket
import threading

import pytest
from conftest import descendants, eventually, free_port
from processes import words

SERVER = r"""
import socketserver
class Echo(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            self.wfile.write(b"echo " + line)
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
with Server(("", 7000), Echo) as s:
    print("ready", flush=True)
    s.serve_forever()
"""


@pytest.fixture
def published(domain):
    """A server in a domain, and the host's port that leads to it."""
    port = free_port()
    p = domain.start("python3", "-c", SERVER, opts=("--network", "nat", "-p", f"127.0.0.1:{port}:7000"))
    assert p.stdout.readline() == b"ready\n"
    yield p, port
    p.kill()
    p.wait()


def ask(port, text=b"hello\n"):
    with socket.create_connection(("127.0.0.1", port), timeout=60) as s:
        s.sendall(text)
        return s.makefile("rb").readline()


def test_a_published_port(published):
    _, port = published
    for _ in range(3):
        assert ask(port) == b"echo hello\n"
    line = b"x" * 500_000 + b"\n"
    assert ask(port, line) == b"echo " + line


def test_many_clients_at_once(published):
    _, port = published
    answers = []
    threads = [threading.Thread(target=lambda i=i: answers.append(ask(port, b"%d\n" % i))) for i in range(50)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(answers) == sorted(b"echo %d\n" % i for i in range(50))


def test_downloads_and_uploads(domain, site):
    port, body = site
    code = f"""
import hashlib, urllib.request
url = "http://10.88.0.1:{port}/"
got = urllib.request.urlopen(url).read()
print(hashlib.sha256(got).hexdigest())
print(hashlib.sha256(urllib.request.urlopen(url, data=got).read()).hexdigest())
"""
    out = domain.run("python3", "-c", code, opts=("--network", "nat", "--allow", f"10.88.0.1:{port}")).ok()
    assert out.split() == [hashlib.sha256(body).hexdigest(), hashlib.sha256(body[::-1]).hexdigest()]


def test_what_is_private_is_refused(domain):
    code = """
import socket
for to in ("10.88.0.1", "169.254.169.254", "192.168.1.1"):
    try:
        socket.create_connection((to, 80), timeout=30)
    except PermissionError as e:
        print(to, "refused")
"""
    out = domain.run("python3", "-c", code, opts=("--network", "nat")).ok()
    assert out.count("refused") == 3, out


def test_without_a_network_there_is_none(domain):
    r = domain.run("python3", "-c", "import socket; socket.create_connection(('192.0.2.1', 80))")
    assert r.code == 1 and "Network is unreachable" in r.err


def service_of(p):
    """The network service of a command."""
    [service] = [d for d in descendants(p.pid) if b"network-service" in words(d)]
    return service


@pytest.fixture
def without_polling(monkeypatch):
    monkeypatch.setenv("DOPPEL_NO_POLLING", "1")


def test_polling_can_be_left_out(without_polling, published):
    p, port = published
    assert b"--no-polling" in words(service_of(p))
    for _ in range(100):
        assert ask(port) == b"echo hello\n"


def overwrite(pid, address, data):
    """Changes a process' memory, its code included."""
    with open(f"/proc/{pid}/mem", "r+b", buffering=0) as mem:
        mem.seek(address)
        mem.write(data)


def next_instruction(pid):
    """Where a process goes on that sleeps in a system call."""
    return int(open(f"/proc/{pid}/syscall").read().split()[-1], 16)


def stop(pid):
    os.kill(pid, signal.SIGSTOP)


def loop(pid):
    overwrite(pid, next_instruction(pid), b"\xeb\xfe")  # jmp .


def block(pid):
    """Has it sleep wherever it is, again and again: futex(stack pointer, FUTEX_WAIT, what is there, no time-out)."""
    code = bytes.fromhex("b8ca000000 4889e7 31f6 8b17 4531d2 0f05 ebed")
    overwrite(pid, next_instruction(pid), code)


def corrupt(pid):
    stack = next(line.split()[0] for line in open(f"/proc/{pid}/maps") if line.endswith("[stack]\n"))
    start, end = (int(a, 16) for a in stack.split("-"))
    overwrite(pid, start, b"\xa5" * (end - start))


def abort(pid):
    overwrite(pid, next_instruction(pid), b"\x0f\x0b")  # ud2, as abort does; no signal from outside ends a PID 1


def answers(port):
    """Whether a call is answered. One that had reached a service which then died is not."""
    try:
        return ask(port) == b"echo hello\n"
    except ConnectionError:
        return False


@pytest.mark.parametrize("harm", [stop, loop, block, corrupt, abort])
def test_a_service_that_is_harmed_is_replaced(published, harm):
    p, port = published
    assert ask(port) == b"echo hello\n"
    harmed = service_of(p)
    eventually(lambda: open(f"/proc/{harmed}/syscall").read().strip() != "running")
    harm(harmed)
    # Whoever is harmed in its sleep notices when it is needed. A caller of one that hangs is reset when it is replaced.
    eventually(lambda: answers(port))
    assert service_of(p) != harmed
    assert p.poll() is None


@pytest.mark.parametrize("harm", [loop, block])
def test_a_service_that_is_harmed_while_nobody_needs_it(published, harm):
    """It says that it rests, and cannot wake: it is asked once in a while."""
    p, port = published
    assert ask(port) == b"echo hello\n"
    harmed = service_of(p)
    eventually(lambda: open(f"/proc/{harmed}/syscall").read().strip() != "running")
    harm(harmed)
    eventually(lambda: not os.path.exists(f"/proc/{harmed}"))
    assert ask(port) == b"echo hello\n"
    assert p.poll() is None


def test_a_service_that_rests_is_left_alone(published):
    """However often it is asked: it takes a step each time."""
    p, port = published
    assert ask(port) == b"echo hello\n"
    service = service_of(p)
    counted = re.compile(r"^voluntary_ctxt_switches:\s+(\d+)", re.M)
    switches = lambda: int(counted.search(open(f"/proc/{service}/status").read())[1])
    before = switches()
    eventually(lambda: switches() >= before + 2)
    assert service_of(p) == service
    assert ask(port) == b"echo hello\n"


def test_a_service_that_dies_is_replaced(published):
    p, port = published
    assert ask(port) == b"echo hello\n"
    with socket.create_connection(("127.0.0.1", port), timeout=60) as old:
        old.sendall(b"one\n")
        assert old.makefile("rb").readline() == b"echo one\n"
        for _ in range(5):
            service = [d for d in descendants(p.pid) if b"network-service" in words(d)]
            os.kill(service[0], signal.SIGKILL)
            # The listening socket is the supervisor's too: whoever calls meanwhile waits.
            assert ask(port, b"again\n") == b"echo again\n"
        assert old.recv(1) == b"", "what was connected is no more"
    assert p.poll() is None
