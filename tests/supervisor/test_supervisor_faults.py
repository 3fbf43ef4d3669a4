"""Faults that the supervisor survives: sudden death of it and of its keeper, a full disk, many clients, many cycles.

Rounds are few in CI; DOPPEL_FAULT_ROUNDS and DOPPEL_FAULT_CYCLES ask for more (soak: 100 and 10000).
"""
import concurrent.futures
import os
import pathlib
import random
import subprocess
import threading
import time

import leftovers
import pytest

ROUNDS = int(os.environ.get("DOPPEL_FAULT_ROUNDS", "5"))
CYCLES = int(os.environ.get("DOPPEL_FAULT_CYCLES", "50"))
GROUPS = [pathlib.Path("/sys/fs/cgroup/pids/doppel"), pathlib.Path("/sys/fs/cgroup/doppel")]

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def sleeper(name=None, script="exec sleep 1000"):
    wanted = {"image": "busybox", "command": ["sh", "-c", script]}
    return {**wanted, "name": name} if name else wanted


def processes(d):
    """Processes of domains of this supervisor's keepers."""
    found = set(d.kept(spares=False))
    for keeper in d.keepers():
        found |= set(leftovers.children(keeper))
    return found


def consistent(d):
    """Every domain there is runs, or ended, and nothing runs that nobody knows."""
    deadline = time.monotonic() + 60
    while True:
        domains = d.get("/v1/domains?all=true").ok()
        live = {x.get("pid") for x in domains if x["state"] in ("running", "paused")}
        left = {p.name for p in (d.store / "domains").iterdir()} - {x["id"] for x in domains}
        if set(processes(d)) == live and not left:
            return domains
        assert time.monotonic() < deadline, (
            processes(d),
            live,
            domains,
            f"directories of domains that are no more: {left}",
        )
        time.sleep(0.1)


def clear(d):
    for x in d.get("/v1/domains?all=true").ok():
        d.delete(f"/v1/domains/{x['id']}?force=true").ok()


def killed_during(d, request):
    """Sends a request and kills the supervisor at some moment of it; starts it again."""
    thread = threading.Thread(target=lambda: quietly(request))
    thread.start()
    time.sleep(random.random() ** 2 * 0.03)
    d.kill()
    thread.join()
    d.start()


def quietly(request):
    try:
        request()
    except Exception:  # the connection breaks: that is the test
        pass


@pytest.fixture
def own(new_doppeld):
    return new_doppeld().start()


def test_killed_during_create_and_start(own):
    for i in range(ROUNDS):
        name = f"c{i}"
        killed_during(own, lambda: own.post("/v1/domains?start=true", sleeper(name)))
        for x in consistent(own):
            assert x["state"] in ("created", "running"), x
            if x["state"] == "created":
                own.post(f"/v1/domains/{x['id']}/start").ok()
        clear(own)
    assert consistent(own) == []


def test_killed_during_remove(own):
    for i in range(ROUNDS):
        x = own.post("/v1/domains?start=true", sleeper(f"r{i}")).ok()["domain"]
        killed_during(own, lambda: own.delete(f"/v1/domains/{x['id']}?force=true"))
        left = consistent(own)
        assert all(y["state"] in ("running", "exited") for y in left), left
        clear(own)
    assert consistent(own) == []


def test_killed_during_freeze_and_clone(own):
    for i in range(ROUNDS):
        x = own.post("/v1/domains?start=true", sleeper(f"f{i}")).ok()["domain"]
        time.sleep(0.1)
        killed_during(own, lambda: own.post(f"/v1/domains/{x['id']}/freeze", {"frozen": f"z{i}"}))
        assert [y["state"] for y in consistent(own)] == ["running"]
        deadline = time.monotonic() + 60
        if not [z for z in own.get("/v1/frozen").ok() if z["name"] == f"z{i}"]:
            # The keeper may still be writing it.
            while (a := own.post(f"/v1/domains/{x['id']}/freeze", {"frozen": f"z{i}"})).status != 200:
                if a.json["code"] == "name_in_use":
                    break
                assert time.monotonic() < deadline, a.body
                time.sleep(0.2)
        killed_during(own, lambda: own.post(f"/v1/frozen/z{i}/clone", {"count": 3, "name": f"k{i}"}))
        clones = [y for y in consistent(own) if y.get("cloned_from")]
        assert all(y["state"] in ("created", "running") for y in clones), clones
        clear(own)
        deadline = time.monotonic() + 60
        while own.delete(f"/v1/frozen/z{i}").status == 409:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert own.get("/v1/frozen").ok() == []


def test_adopted(own):
    pids = {}
    for i in range(20):
        x = own.post("/v1/domains?start=true", sleeper(f"a{i}")).ok()["domain"]
        pids[x["id"]] = own.get(f"/v1/domains/{x['id']}").ok()["pid"]
    x = own.post("/v1/domains?start=true", sleeper("short", "sleep 0.3; exit 9")).ok()["domain"]
    own.kill()
    time.sleep(1)
    own.start()
    assert {y["id"]: y["pid"] for y in own.get("/v1/domains").ok()} == pids
    assert own.post("/v1/domains/short/wait").ok()["exit"]["exit_code"] == 9
    clear(own)


def test_many_clients(own):
    def one(i):
        x = own.post("/v1/domains?start=true", sleeper(f"m{i}", "exit 3")).ok()["domain"]
        code = own.post(f"/v1/domains/{x['id']}/wait").ok()["exit"]["exit_code"]
        own.delete(f"/v1/domains/{x['id']}").ok()
        return code

    with concurrent.futures.ThreadPoolExecutor(100) as pool:
        codes = list(pool.map(one, range(200)))
    assert codes == [3] * 200
    assert consistent(own) == []


def test_cycles_leave_nothing(own):
    def open_files(pid):
        return len(os.listdir(f"/proc/{pid}/fd"))

    def resident(pid):
        return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096

    def cycle():
        x = own.post("/v1/domains?start=true", sleeper(script="true")).ok()["domain"]
        own.post(f"/v1/domains/{x['id']}/wait").ok()
        own.delete(f"/v1/domains/{x['id']}?force=true").ok()

    for _ in range(10):
        cycle()
    pids = [own.process.pid, *own.keepers()]
    before = [(open_files(p), resident(p)) for p in pids]
    for _ in range(CYCLES):
        cycle()
    deadline = time.monotonic() + 60
    for (files, memory), pid in zip(before, pids):
        # The last cycle's are closed a moment later.
        while open_files(pid) > files + 3:
            assert time.monotonic() < deadline, (files, open_files(pid))
            time.sleep(0.1)
        assert resident(pid) <= memory + (4 << 20) + CYCLES * 1500, (memory, resident(pid))
    assert consistent(own) == []
    assert resident(own.process.pid) < 30 << 20


def test_full_disk(new_doppeld, tmp_path):
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "none", str(place)], check=True)
    d = None
    try:
        d = new_doppeld(directory=place).start()
        d.post("/v1/domains", sleeper("before")).ok()
        (place / "fill").write_bytes(b"")
        try:
            with open(place / "fill", "wb") as f:
                while True:
                    f.write(b"x" * 4096)
                    f.flush()
        except OSError:
            pass
        refused = [d.post("/v1/domains", {**sleeper(f"n{i}"), "labels": {"x": "y" * 4000}}) for i in range(20)]
        bad = [a for a in refused if a.status >= 300]
        assert bad and all(a.json["code"] == "storage_full" for a in bad), [a.body for a in bad[:1]]
        (place / "fill").unlink()
        d.post("/v1/domains", sleeper("after")).ok()
        d.kill()
        d.start()
        names = {x["name"] for x in d.get("/v1/domains?all=true").ok()}
        assert {"before", "after"} <= names
    finally:
        if d:
            d.close()
        subprocess.run(["umount", "-l", str(place)], check=True)
