"""What a domain, or a host short of threads, can do to the process that keeps it: its neighbours must not feel it.

keeper.c rings the keeper from within; the shortage is a control group with the tasks that the keeper has, and no more.
"""
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import time

import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BUILD = ROOT / "target/security-tests"
PIDS = pathlib.Path("/sys/fs/cgroup/pids")


def beside(path):
    """A module of another directory of tests."""
    spec = importlib.util.spec_from_file_location(f"beside_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


supervisors = beside(HERE.parent / "supervisor/conftest.py")
eventually, binaries = supervisors.eventually, supervisors.binaries


def layout(name):
    """A constant of `common/abi/machine`."""
    text = (ROOT / "common/abi/machine/src/lib.rs").read_text()
    known = dict(re.findall(r"pub const (\w+): u64 = ([^;]+);", text))
    value = lambda words: eval(re.sub(r"\b[A-Z]\w+\b", lambda m: f"({value(known[m[0]])})", words))
    return value(known[name])


@pytest.fixture(scope="module")
def doppeld(binaries):
    one = supervisors.Doppeld().start()
    root = BUILD / "keeper-image"
    for d in ("bin", "tmp", "proc", "sys", "dev"):
        (root / d).mkdir(parents=True, exist_ok=True)
    subprocess.run(["gcc", "-O1", "-static", "-Wall", "-o", root / "bin/keeper", HERE / "keeper.c"], check=True)
    (root / "bin/busybox").write_bytes(pathlib.Path("/bin/busybox").read_bytes())
    (root / "bin/busybox").chmod(0o755)
    subprocess.run(
        [supervisors.DOPPEL, "image", "import", root, "keeper-tests"],
        check=True,
        env={**os.environ, "DOPPEL_STORE": str(one.store)},
    )
    yield one
    one.close()


@pytest.fixture
def domains(doppeld):
    """Makes domains that end with the test."""
    made = []

    def make(name, *argv, **more):
        body = {"name": name, "image": "keeper-tests", "command": list(argv), **more}
        doppeld.post("/v1/domains", body).ok()
        made.append(name)
        doppeld.post(f"/v1/domains/{name}/start", {}).ok()
        return doppeld.get(f"/v1/domains/{name}").ok()

    yield make
    for name in made:
        doppeld.delete(f"/v1/domains/{name}", force=True)


@pytest.fixture
def no_more_tasks(doppeld):
    """The keeper may have no more tasks than it has, as on a host that has none left."""
    if not (PIDS / "cgroup.procs").exists():
        pytest.skip("no hierarchy of control groups v1 with the pids controller")
    group = PIDS / f"doppel-test-{os.getpid()}"
    group.mkdir()
    (keeper,) = doppeld.keepers()

    def close():
        (group / "cgroup.procs").write_text(str(keeper))
        (group / "pids.max").write_text((group / "pids.current").read_text())
        return keeper

    yield close
    for pid in (group / "cgroup.procs").read_text().split():
        (PIDS / "cgroup.procs").write_text(pid)
    group.rmdir()


def threads(pid):
    return int(re.search(r"Threads:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1])


def state(doppeld, name):
    return doppeld.get(f"/v1/domains/{name}").ok()["state"]


def freezes(doppeld, name):
    """What was told of a domain's freezes."""
    events = (json.dumps(line) for line in doppeld.get("/v1/events", follow=False).lines)
    return [text for text in events if '"freeze"' in text and f'"{name}"' in text]


ADDRESS = hex(layout("CONTROL_BASE") + layout("VREGS"))


def printed(doppeld, name):
    """The last of what a domain has printed."""
    lines = doppeld.get(f"/v1/domains/{name}/logs", tail=9).lines
    return b"".join(supervisors.base64.b64decode(line.get("data", "")) for line in lines)


def test_requests_to_be_frozen_are_served_one_at_a_time(doppeld, domains):
    """A domain that never stops and asks to be frozen all the time costs one thread, and little news."""
    calm = domains("calm", "/bin/busybox", "sleep", "1000")
    domains("bomb", "/bin/keeper", "freeze", ADDRESS, freeze_as="never")
    eventually(lambda: b"begun" in printed(doppeld, "bomb"), "it has not begun")
    (keeper,) = doppeld.keepers()
    most = 0
    for _ in range(50):
        most = max(most, threads(keeper))
        time.sleep(0.02)
    assert most < 20, "a thread for each request"
    assert state(doppeld, "calm") == calm["state"] == "running"


def test_refused_freezes_are_no_news(doppeld, domains):
    """Who may not freeze itself and asks all the time is told so; nobody else is."""
    domains("beggar", "/bin/keeper", "ask", ADDRESS)
    eventually(lambda: b"begun" in printed(doppeld, "beggar"), "it has not begun")
    before = len(doppeld.logged())
    out = doppeld.cli("exec", "beggar", "/bin/busybox", "echo", "there")
    assert out.stdout == b"there\n", out
    assert not freezes(doppeld, "beggar")
    assert len(doppeld.logged()) - before < 4000


def test_a_keeper_without_threads_goes_on(doppeld, domains, no_more_tasks):
    """What the owner wants is done, what a domain wants is refused, and nobody ends."""
    domains("calm2", "/bin/busybox", "sleep", "1000")
    domains("bomb2", "/bin/keeper", "freeze", ADDRESS, freeze_as="never2")
    eventually(lambda: b"begun" in printed(doppeld, "bomb2"), "it has not begun")
    domains("plain2", "/bin/keeper", "freeze", ADDRESS)
    eventually(lambda: b"begun" in printed(doppeld, "plain2"), "it has not begun")
    keeper = no_more_tasks()
    for _ in range(3):
        doppeld.post("/v1/domains/calm2/pause", {}).ok()
        doppeld.post("/v1/domains/calm2/unpause", {}).ok()
        doppeld.get("/v1/domains/calm2/stats").ok()
    assert doppeld.cli("exec", "calm2", "/bin/busybox", "echo", "there").stdout == b"there\n"
    doppeld.post("/v1/domains/plain2/kill", {}).ok()
    eventually(lambda: state(doppeld, "plain2") == "exited", "it does not end")
    assert doppeld.keepers() == [keeper]
    assert {state(doppeld, n) for n in ("calm2", "bomb2")} == {"running"}


def test_counting_memory_does_not_stop_the_keeper(doppeld, domains):
    """Statistics of a domain with a hundred thousand mappings come from its control group."""
    processes, mappings = 4, 25000
    domains("pieces", "/bin/keeper", "maps", str(processes), str(mappings))
    eventually(lambda: printed(doppeld, "pieces").count(b"+") == processes, "the mappings are not made")
    (keeper,) = doppeld.keepers()

    def read():
        """Bytes that the keeper has read, of files in /proc as well."""
        return int(re.search(r"rchar: (\d+)", pathlib.Path(f"/proc/{keeper}/io").read_text())[1])

    before = read()
    memory = doppeld.get("/v1/domains/pieces/stats").ok()["memory"]
    assert memory["private_bytes"] > 0
    assert read() - before < 1 << 20, "it has read all mappings"


def test_all_domains_together_have_a_bound_of_tasks(doppeld, domains):
    domains("bound", "/bin/busybox", "sleep", "1000")
    host = min(int(pathlib.Path(f"/proc/sys/kernel/{f}").read_text()) for f in ("pid_max", "threads-max"))
    files = [d / "doppel/pids.max" for d in (PIDS, pathlib.Path("/sys/fs/cgroup")) if (d / "doppel/pids.max").exists()]
    if not files:
        pytest.skip("no pids controller")
    assert all(int(f.read_text()) <= host * 3 // 4 for f in files)


def test_no_core_of_a_domain_is_made_by_a_pipe_either(doppeld, domains):
    """The host's kernel ignores a limit of 0 for a pipe, and makes no core at all at 1."""
    pid = domains("core", "/bin/busybox", "sleep", "1000")["pid"]
    limits = pathlib.Path(f"/proc/{pid}/limits").read_text()
    assert re.search(r"Max core file size +1 +1 ", limits), limits


def test_images_are_named_and_never_a_path(doppeld):
    for image in ("/etc/shadow", "/etc/../etc/shadow", "../etc/shadow", "./x.erofs"):
        for kind in ("para", "paene"):
            doppeld.post("/v1/domains", {"image": image, "kind": kind, "command": ["x"]}).problem(
                400, "invalid_request"
            )


def test_heads_are_bounded_and_name_a_host(doppeld):
    def status(head):
        with supervisors.socket.socket(supervisors.socket.AF_UNIX) as s:
            s.connect(str(doppeld.socket))
            s.sendall(head)
            return int(s.recv(100).split()[1])

    assert status(b"GET /v1/ping HTTP/1.1\r\nHost: x\r\n\r\n") == 200
    assert status(b"GET /v1/ping HTTP/1.1\r\n\r\n") == 400
    assert status(b"GET /v1/ping HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 66000 + b"\r\n\r\n") in (413, 431)


def test_what_is_kept_of_domains_is_for_root_alone(doppeld, domains):
    domains("files", "/bin/busybox", "true")
    for name in ("keeper.log", "state.redb"):
        assert (doppeld.store / "supervisor" / name).stat().st_mode & 0o077 == 0, name
