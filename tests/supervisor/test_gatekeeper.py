"""The gatekeeper: idle domains hibernate by themselves and wake for calls and timers; who wants memory that is short
waits for it, and others give theirs. Memory is made short by a small budget for all domains, which fill a file in
memory."""
import itertools
import re
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from conftest import Doppeld, eventually, ok, output_of

#: Sleeps for as long as anybody looks.
IDLE = ("sleep", "100000")
#: Megabytes that a fat domain uses, and what of them all may use together.
FAT = 24
BUDGET = 64


def fat(then: str = "exec sleep 100000") -> tuple[str, ...]:
    return ("sh", "-c", f"yes | head -c {FAT}m > /dev/shm/fat; echo full; {then}")


def gate(**rules: Any) -> str:
    """A configuration with these rules. The host's own memory, which others use too, is not looked at."""
    rules = {"reserve": "0", "pressure_percent": 0.0, "quiet_seconds": 1.0, "protect_seconds": 0.1, **rules}
    lines = [f"{name} = {value!r}" for name, value in rules.items()]
    return "[gatekeeper]\n" + "\n".join(lines) + "\n"


@pytest.fixture
def gatekeeper(new_doppeld: Callable[..., Doppeld]) -> Iterator[Callable[..., Doppeld]]:
    def make(more: str = "", **rules: Any) -> Doppeld:
        return new_doppeld(config=gate(**rules) + more).start()

    yield make


def create(d: Doppeld, image: str, name: str, command: tuple[str, ...] = IDLE, **more: Any) -> Any:
    residency = {k: more.pop(k) for k in ("hibernate_after_seconds", "priority", "pinned", "wait_seconds") if k in more}
    body = {"image": image, "name": name, "command": list(command), "residency": residency, **more}
    return d.post("/v1/domains", body, start=True, timeout=120)


def domain(d: Doppeld, name: str) -> Any:
    return d.get(f"/v1/domains/{name}").ok()


def is_asleep(d: Doppeld, name: str) -> bool:
    return domain(d, name)["state"] == "hibernated"


def is_full(d: Doppeld, name: str) -> Any:
    """A fat domain has written all that it will, and the supervisor has counted it."""

    def check() -> bool:
        lines = d.get(f"/v1/domains/{name}/logs").lines
        running = [x["id"] for x in d.get("/v1/domains").ok() if x["state"] == "running"]
        every = [d.get(f"/v1/domains/{one}/stats").ok() for one in running]
        used = {one["name"]: one["memory"]["usage_bytes"] for one in every}
        counted = d.get("/v1/info").ok()["memory"]["domains_bytes"]
        return output_of(lines)[0] == b"full\n" and used[name] > FAT << 20 and counted > sum(used.values()) * 0.9

    return eventually(check, f"{name} does not get full")


def run(d: Doppeld, name: str, *command: str) -> bytes:
    made = d.post(f"/v1/domains/{name}/exec", {"command": list(command)}, timeout=120).ok()
    out, err, code = output_of(d.get(f"/v1/execs/{made['id']}/output", timeout=120).lines)
    assert code == 0, (command, out, err, code)
    return out


def metric(d: Doppeld, name: str) -> float:
    found = re.search(rf"^{re.escape(name)} (\S+)$", d.get("/metrics").body.decode(), re.M)
    return float(found[1]) if found else 0.0


def events(d: Doppeld, of: str) -> list[tuple[str, dict[str, str]]]:
    lines = d.get("/v1/events", since="0", until=str(time.time()), subject=of).lines
    return [(e["kind"], e.get("attributes", {})) for e in lines]


def test_an_idle_domain_hibernates_and_wakes_for_what_needs_it(gatekeeper, busybox):
    d = gatekeeper()
    create(d, busybox, "idle", hibernate_after_seconds=1).ok()
    create(d, busybox, "other").ok()
    eventually(lambda: is_asleep(d, "idle"), "it does not hibernate")
    # How much is on disk is known a moment later.
    eventually(lambda: domain(d, "idle")["hibernated"]["memory_bytes"] > 0, "it has no memory")
    found = domain(d, "idle")["hibernated"]
    assert (found["by"], found["reason"]) == ("gatekeeper", "idle")
    # Its program sleeps for 100,000 s.
    assert "wakes_at" in found
    # What is known without it does not wake it.
    assert d.get("/v1/domains/idle/logs").status == 200
    assert d.get("/v1/domains/idle/stats").status == 200
    listed = ok(d.cli("ps"))
    assert re.search(r"Hibernated \(idle\).* idle\n", listed), listed
    assert is_asleep(d, "idle")
    # What is to happen in it does.
    assert run(d, "idle", "echo", "here") == b"here\n"
    assert domain(d, "idle")["state"] == "running" and "hibernated" not in domain(d, "idle")
    eventually(lambda: is_asleep(d, "idle"), "it does not hibernate again")
    ok(d.cli("cp", "idle:/etc/passwd", str(d.dir / "passwd")))
    assert b"root" in (d.dir / "passwd").read_bytes()
    eventually(lambda: is_asleep(d, "idle"), "it does not hibernate again")
    ok(d.cli("start", "idle"))
    assert domain(d, "other")["state"] == "running"
    told = [(kind, more.get("reason")) for kind, more in events(d, "idle") if kind in ("hibernate", "wake")]
    assert told == [("hibernate", "idle"), ("wake", "call")] * 2 + [("hibernate", "idle"), ("wake", "request")]
    assert metric(d, 'doppel_hibernations_total{reason="idle"}') == 3
    assert metric(d, 'doppel_wakes_total{reason="call"}') == 2
    # Whoever waits for its end does not take its sleep for that.
    waited: list[Any] = []
    waiter = threading.Thread(target=lambda: waited.append(d.post("/v1/domains/idle/wait", timeout=120).ok()))
    waiter.start()
    eventually(lambda: is_asleep(d, "idle"), "it does not hibernate again")
    assert not waited
    d.post("/v1/domains/idle/stop", {"timeout_seconds": 1}, timeout=120).ok()
    waiter.join()
    assert waited[0]["exit"]["exit_code"] == 137
    assert domain(d, "idle")["state"] == "exited"


def test_who_is_used_or_works_or_is_pinned_stays(gatekeeper, busybox):
    rule = '[[gatekeeper.rules]]\nlabel = "tier=batch"\nhibernate_after_seconds = 1.0\n'
    d = gatekeeper(rule, hibernate_after_seconds=0.0)
    batch = {"labels": {"tier": "batch"}}
    create(d, busybox, "idle", **batch).ok()
    create(d, busybox, "busy", ("sh", "-c", "while :; do :; done"), **batch).ok()
    create(d, busybox, "pinned", pinned=True, **batch).ok()
    create(d, busybox, "never", hibernate_after_seconds=0, **batch).ok()
    create(d, busybox, "none").ok()
    create(d, busybox, "followed", **batch).ok()
    create(d, busybox, "used", **batch).ok()
    create(d, busybox, "soon", ("sh", "-c", "while :; do sleep 5; done"), **batch).ok()
    follower = threading.Thread(target=lambda: d.get("/v1/domains/followed/attach", timeout=120))
    follower.start()
    d.post("/v1/domains/used/exec", {"command": ["sleep", "1000"]}).ok()
    eventually(lambda: is_asleep(d, "idle"), "it does not hibernate")
    time.sleep(4)
    for name in ("busy", "pinned", "never", "none", "followed", "used", "soon"):
        assert domain(d, name)["state"] == "running", name
    assert metric(d, "doppel_hibernations_put_off_total") > 0, "the one whose timer is due soon"
    # Rules change while it runs.
    ok(d.cli("update", "--pin=false", "pinned"))
    ok(d.cli("update", "--hibernate-after", "1s", "none"))
    for name in ("pinned", "none"):
        eventually(lambda name=name: is_asleep(d, name), f"{name} does not hibernate")
    d.post("/v1/domains/followed/kill", {}).ok(None)
    follower.join()


def test_timers_are_kept(gatekeeper, busybox):
    """A program that sleeps goes on when it is due, also if the supervisor died meanwhile."""
    d = gatekeeper(least_sleep_seconds=1.0)
    script = "for i in 1 2; do date +%s; sleep 9; done; date +%s"
    create(d, busybox, "sleeper", ("sh", "-c", script), hibernate_after_seconds=1).ok()
    for again in (False, True):
        eventually(lambda: is_asleep(d, "sleeper"), "it does not hibernate")
        due = domain(d, "sleeper")["hibernated"]["wakes_at"]
        assert due > time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
        if again:
            time.sleep(0.3)  # until that is written down
            d.kill()
            d.start()
            assert is_asleep(d, "sleeper") and domain(d, "sleeper")["hibernated"]["wakes_at"] == due
        eventually(lambda: not is_asleep(d, "sleeper"), "it does not wake")
    eventually(lambda: domain(d, "sleeper")["state"] == "exited", "it does not end")
    times = [int(t) for t in output_of(d.get("/v1/domains/sleeper/logs").lines)[0].split()]
    gaps = [b - a for a, b in itertools.pairwise(times)]
    assert len(gaps) == 2 and all(9 <= gap <= 11 for gap in gaps), times


def test_one_hibernated_by_hand_is_not_woken_by_its_timers(gatekeeper, busybox):
    d = gatekeeper()
    create(d, busybox, "byhand", ("sh", "-c", "while :; do sleep 1; done")).ok()
    ok(d.cli("hibernate", "byhand"))
    found = domain(d, "byhand")["hibernated"]
    assert (found["by"], found["reason"]) == ("uid 0", "request") and "wakes_at" not in found
    time.sleep(3)
    assert is_asleep(d, "byhand")
    ok(d.cli("wake", "byhand"))


def test_the_rule_survives_the_supervisor(gatekeeper, busybox):
    d = gatekeeper()
    create(d, busybox, "idle", hibernate_after_seconds=4).ok()
    d.kill()
    d.start()
    eventually(lambda: is_asleep(d, "idle"), "it does not hibernate")


def test_the_least_recently_active_gives_its_memory(gatekeeper, busybox):
    d = gatekeeper(budget=f"{BUDGET}m")
    for name in ("first", "second"):
        create(d, busybox, name, fat()).ok()
        is_full(d, name)
    run(d, "first", "true")
    create(d, busybox, "small", priority=5).ok()
    # It takes until a domain counts as quiet.
    assert create(d, busybox, "third", fat(), resources={"memory_reservation_bytes": FAT << 20}).status == 201
    assert [is_asleep(d, name) for name in ("first", "second", "small")] == [False, True, False]
    found = domain(d, "second")["hibernated"]
    assert (found["by"], found["reason"]) == ("gatekeeper", "memory")
    # Its memory comes back when it is wanted, and another one's goes.
    is_full(d, "third")
    assert run(d, "second", "cat", "/dev/shm/fat")[:4] == b"y\ny\n"
    assert is_asleep(d, "first")
    assert metric(d, 'doppel_hibernations_total{reason="memory"}') == 2


def test_priorities_and_pins(gatekeeper, busybox):
    d = gatekeeper(budget=f"{BUDGET}m")
    create(d, busybox, "pinned", fat(), pinned=True).ok()
    is_full(d, "pinned")
    create(d, busybox, "high", fat(), priority=10).ok()
    is_full(d, "high")
    wants = {"memory_reservation_bytes": FAT << 20}
    # Nobody goes for one of lower priority.
    refusal = create(d, busybox, "low", fat(), resources=wants, wait_seconds=3).problem(504, "timeout")
    assert "low" in refusal and "24.0 MiB of memory" in refusal
    assert d.get("/v1/domains/low").status == 404, "what could not start is not kept"
    create(d, busybox, "higher", fat(), resources=wants, priority=20).ok()
    assert [is_asleep(d, name) for name in ("pinned", "high", "higher")] == [False, True, False]


@pytest.fixture
def short(gatekeeper, busybox):
    """A supervisor without memory for another fat domain: those that have it are pinned."""
    d = gatekeeper(budget=f"{BUDGET}m")
    for name in ("one", "two"):
        create(d, busybox, name, fat(), pinned=True).ok()
        is_full(d, name)
    return d


WANTS: dict[str, Any] = {"resources": {"memory_reservation_bytes": FAT << 20}}


def start_later(d: Doppeld, image: str, name: str, said: dict[str, Any], **more: Any) -> threading.Thread:
    thread = threading.Thread(target=lambda: said.update({name: create(d, image, name, **WANTS, **more)}))
    thread.start()
    eventually(lambda: "waiting" in d.get(f"/v1/domains/{name}").json, f"{name} does not wait")
    return thread


def test_starts_wait_for_memory_and_say_so(short, busybox):
    d, said = short, {}
    waits = start_later(d, busybox, "waits", said)
    found = domain(d, "waits")
    assert found["state"] == "created" and found["waiting"]["what"] == "memory"
    assert found["waiting"]["memory_bytes"] == FAT << 20 and found["waiting"]["until"] > found["waiting"]["since"]
    assert "Created (waiting for memory)" in ok(d.cli("ps"))
    assert d.get("/v1/info").ok()["memory"]["waiting"] == 1
    assert metric(d, "doppel_memory_waiting") == 1
    # One of higher priority that needs less passes.
    create(d, busybox, "little", wait_seconds=0, priority=1).ok()
    # One that is not to wait is refused, and so is what can never be.
    assert "is not to wait" in create(d, busybox, "x", wait_seconds=0, **WANTS).problem(409, "capacity")
    never = {"memory_reservation_bytes": 2 * BUDGET << 20}
    assert "never" in create(d, busybox, "x", resources=never).problem(409, "capacity")
    ok(d.cli("stop", "-t", "1", "one"))
    waits.join()
    assert said["waits"].ok()["domain"]["state"] == "running"
    assert "waiting" in dict(events(d, "waits"))
    assert metric(d, 'doppel_memory_wait_seconds_count{what="memory"}') == 1


def test_first_in_first_out(short, busybox):
    d, said = short, {}
    threads = [start_later(d, busybox, f"w{n}", said) for n in range(3)]
    threads.append(start_later(d, busybox, "urgent", said, priority=3))
    # One that gives up does not hold the others up; nor does its start happen after all.
    ok(d.cli("rm", "-f", "w0"))
    threads[0].join()
    said["w0"].problem(409, "cancelled")
    for name, gone in (("urgent", "one"), ("w1", "two"), ("w2", "w1")):
        assert name not in said
        d.delete(f"/v1/domains/{gone}", force=True)
        eventually(lambda name=name: name in said, f"{name} does not start")
        said[name].ok()
    for thread in threads:
        thread.join()


def test_who_waits_is_not_lost_with_the_supervisor(short, busybox):
    d = short
    d.post("/v1/domains", {"image": busybox, "name": "later", "command": list(IDLE), **WANTS}).ok()
    failed: list[Any] = []

    def start() -> None:
        try:
            failed.append(d.post("/v1/domains/later/start", timeout=120))
        except OSError as e:
            failed.append(e)

    thread = threading.Thread(target=start)
    thread.start()
    eventually(lambda: "waiting" in domain(d, "later"), "it does not wait")
    before = domain(d, "later")["waiting"]
    time.sleep(0.2)
    d.kill()
    thread.join()
    # Its caller is told by the end of the connection.
    assert isinstance(failed[0], OSError), failed
    d.start()
    assert domain(d, "later")["waiting"]["until"] == before["until"]
    d.delete("/v1/domains/one", force=True)
    eventually(lambda: domain(d, "later")["state"] == "running", "it does not start")


def test_the_command_says_what_it_waits_for(short, busybox):
    d = short
    ok(d.cli("create", "--name", "waits", "--memory-reservation", f"{FAT}m", "--memory-wait", "2s", busybox, *IDLE))
    p = d.cli("start", "waits")
    assert p.returncode != 0
    assert b"waits for memory" in p.stderr and b"waited 2." in p.stderr, p.stderr


def test_thrashing_is_damped(gatekeeper, busybox):
    """A domain that is woken soon each time hibernates more and more rarely."""
    d = gatekeeper(protect_seconds=1.0)
    create(d, busybox, "restless", hibernate_after_seconds=0.4).ok()
    awake = []
    for _ in range(4):
        since = time.monotonic()
        eventually(lambda: is_asleep(d, "restless"), "it does not hibernate")
        awake.append(time.monotonic() - since)
        run(d, "restless", "true")
    # 0.4 s, then its protection: 2, 4 and 8 s, each with as much as half of that until it is noticed.
    assert awake[0] < 2 and awake[1] >= 1.9 and awake[2] >= 3.9 and awake[3] >= 7.9, awake
    assert metric(d, "doppel_thrashes_total") == 4


def test_a_hibernated_domain_keeps_its_place(new_doppeld, busybox):
    """Its ports are with its keeper, which takes no other in its place meanwhile."""
    d = new_doppeld(config="keeper_domains = 2\n" + gate()).start()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    serve = ("httpd", "-f", "-p", "80", "-h", "/etc")
    nat = {"kind": "nat", "ports": [{"port": 80, "host_port": port}]}
    create(d, busybox, "asleep", serve, network=nat).ok()
    for again in (False, True):
        ok(d.cli("hibernate", "asleep"))
        if again:
            d.kill()
            d.start()
        for n in range(3):
            create(d, busybox, f"other{n}-{again}", network={"kind": "nat"}).ok()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/passwd", timeout=60) as answer:
            assert answer.status == 200
        eventually(lambda: domain(d, "asleep")["state"] == "running", "it has woken")


def test_pages_of_a_list(gatekeeper, busybox):
    """More than the supervisor looks at without others having a turn."""
    d, many = gatekeeper(), 1030
    for n in range(many):
        asked = {"image": busybox, "name": f"p{n}", "command": ["true"], "labels": {"tens": str(n % 10)}}
        d.post("/v1/domains", {**asked, "files": {"persist": False}}).ok()
    first = d.get("/v1/domains", all=True, limit=2).ok()
    rest = d.get("/v1/domains", all=True, after=first[-1]["id"]).ok()
    assert [x["name"] for x in first + rest] == [f"p{n}" for n in reversed(range(many))]
    few = d.get("/v1/domains", all=True, label="tens=3", limit=102).ok()
    last = d.get("/v1/domains", all=True, label="tens=3", limit=102, after=few[-1]["id"]).ok()
    assert [x["name"] for x in few + last] == [f"p{n}" for n in reversed(range(3, many, 10))]
    d.get("/v1/domains", all=True, after="0123").problem(404, "domain_not_found")


def test_what_is_refused(gatekeeper, busybox):
    d = gatekeeper()
    wrong = create(d, busybox, "x", priority=2000).problem(400, "invalid_request")
    assert "residency.priority" in wrong
    create(d, busybox, "x", hibernate_after_seconds=5, kind="paene").problem(501, "unsupported")
    assert b"need" in d.cli("run", "--standalone", "--pin", busybox, "true").stderr
