"""Domains that stand still: what needs them is refused at once, and whoever goes away takes the request along."""
import contextlib
import os
import signal
import socket
import subprocess
import time

import pytest
from conftest import DOPPEL


@pytest.fixture
def web(supervisor, busybox):
    made = supervisor.post("/v1/domains?start=true", {"image": "busybox", "command": ["sleep", "1000"]}).ok(201)
    # It has begun, and what it forks for programs of ours is there.
    assert supervisor.cli("exec", made["domain"]["id"], "true").returncode == 0
    yield made["domain"]
    supervisor.delete(f"/v1/domains/{made['domain']['id']}?force=true")


def test_paused_refuses_at_once(supervisor, web):
    path = f"/v1/domains/{web['id']}"
    supervisor.post(f"{path}/pause").ok()
    for answer in (
        supervisor.post(f"{path}/exec", {"command": ["id"]}),
        supervisor.get(f"{path}/files?path=/etc/passwd"),
        supervisor.get(f"{path}/files/list?path=/"),
        supervisor.get(f"{path}/archive?path=/etc"),
        supervisor.get(f"{path}/top"),
    ):
        assert "is paused, unpause it first" in answer.problem(409, "wrong_state")
    for args in (["exec", web["id"], "id"], ["cp", f"{web['id']}:/etc/passwd", "-"]):
        done = supervisor.cli(*args)
        assert done.returncode in (1, 125, 126) and b"is paused, unpause it first" in done.stderr, done.stderr
    supervisor.post(f"{path}/unpause").ok()
    assert supervisor.cli("exec", web["id"], "echo", "x").stdout == b"x\n"


def processes(pid):
    """A process and all below it."""
    children = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                stat = open(f"/proc/{entry.name}/stat").read().rpartition(")")[2].split()
            except OSError:
                continue
            children.setdefault(int(stat[1]), []).append(int(entry.name))
    found, at = [], [pid]
    while at:
        found.append(at.pop())
        at += children.get(found[-1], [])
    return found


def send(number, pids):
    """Sends a signal to those that are still there: what served a program that has ended goes by itself."""
    for p in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(p, number)


def stand_still(pid):
    """Stops a domain's processes behind the supervisor's back; gives them."""
    def stands(p):
        try:
            # A dead one that nobody has waited for does so too.
            return open(f"/proc/{p}/stat").read().rpartition(")")[2].split()[0] in "TZ"
        except (FileNotFoundError, ProcessLookupError):
            return False

    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        pids = processes(pid)
        send(signal.SIGSTOP, pids)
        # What was being forked meanwhile is found in the next round.
        if all(map(stands, pids)) and processes(pid) == pids:
            return pids
    raise AssertionError(f"{pids} do not stop")


def test_a_client_that_goes_away_cancels(supervisor, web):
    """Also when the domain hangs, of which the supervisor knows nothing."""
    path, pids = f"/v1/domains/{web['id']}", stand_still(web["pid"])
    try:
        client = socket.socket(socket.AF_UNIX)
        client.connect(str(supervisor.socket))
        body = b'{"command": ["touch", "/ran"]}'
        head = f"POST {path}/exec HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        client.sendall(head.encode() + body)
        # These go the same way to the keeper, behind it.
        for _ in range(3):
            supervisor.get(f"{path}/stats").ok()
        client.close()
        audited = lambda: (supervisor.store / "supervisor/audit.log").read_text()
        deadline = time.monotonic() + 60
        while f'POST {path}/exec","status":499' not in audited():
            assert time.monotonic() < deadline, audited()[-1000:]
            time.sleep(0.02)
        # The keeper has heard of it when it answers what was asked behind it.
        supervisor.get(f"{path}/stats").ok()
    finally:
        send(signal.SIGCONT, pids)
    assert supervisor.cli("exec", web["id"], "ls", "/ran").returncode == 1, "it ran for nobody"


def test_interrupted_command(supervisor, web):
    """The command, killed while it waits."""
    pids = stand_still(web["pid"])
    try:
        env = {**os.environ, "DOPPEL_HOST": f"unix://{supervisor.socket}"}
        waits = subprocess.Popen([DOPPEL, "exec", web["id"], "touch", "/ran"], env=env)
        with pytest.raises(subprocess.TimeoutExpired):
            waits.wait(0.5)
        waits.kill()
        waits.wait()
        for _ in range(3):
            supervisor.get(f"/v1/domains/{web['id']}/stats").ok()
    finally:
        send(signal.SIGCONT, pids)
    assert supervisor.cli("exec", web["id"], "ls", "/ran").returncode == 1
