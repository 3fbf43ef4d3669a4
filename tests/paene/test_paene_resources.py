"""A paene domain's shares and limits, as programs notice them, and while they run; its clocks and System V objects."""
import re
import socket
import time

import pytest
from conftest import eventually, of_group, run, text

SPIN = "while :; do :; done"


@pytest.fixture
def made(doppeld):
    """Makes domains through the supervisor that end with the test."""
    ids = []

    def make(script, image="busybox", **config):
        config = {"image": image, "kind": "paene", "command": ["sh", "-c", script], **config}
        ids.append(doppeld.post("/v1/domains?start=true", config).ok(201)["domain"]["id"])
        return ids[-1]

    yield make
    for i in ids:
        doppeld.delete(f"/v1/domains/{i}?force=true")


def cpu_seconds(d, id):
    return d.get(f"/v1/domains/{id}/stats").ok()["cpu_seconds"]


def test_clocks():
    """A time namespace of its own, without offsets: clocks and /proc/uptime are the host's, as in Docker."""
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    out = text(run("sh", "-c", "cat /proc/uptime; cat /proc/self/timens_offsets"))
    after = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before - 1 <= float(out.split()[0]) <= after + 1, out
    assert re.findall(r"^(\w+)\s+0\s+0$", out, re.M) == ["monotonic", "boottime"], out


CLOCKS = (
    "import time; print(*[time.clock_gettime(getattr(time, c)) for c in ('CLOCK_MONOTONIC', 'CLOCK_BOOTTIME', "
    "'CLOCK_REALTIME')])"
)


def test_clocks_of_programs(image):
    names = (time.CLOCK_MONOTONIC, time.CLOCK_BOOTTIME, time.CLOCK_REALTIME)
    before = [time.clock_gettime(c) for c in names]
    inside = [float(word) for word in text(run("python3", "-c", CLOCKS, image=image("debian"))).split()]
    after = [time.clock_gettime(c) for c in names]
    assert all(b <= i <= a for b, i, a in zip(before, inside, after)), (before, inside, after)


KEYS = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
new = 0o3600  # IPC_CREAT | IPC_EXCL
sem, queue, shm = libc.semget(0x77, 1, new), libc.msgget(0x77, new), libc.shmget(0x77, 4096, new)
assert libc.semctl(sem, 0, 16, int(sys.argv[1])) == 0
assert libc.msgsnd(queue, ctypes.create_string_buffer((1).to_bytes(8, "little") + sys.argv[1].encode()), len(sys.argv[1]), 0) == 0
print(min(sem, queue, shm) >= 0, flush=True)
sys.stdin.readline()
at = ctypes.create_string_buffer(64)
n = libc.msgrcv(queue, at, 56, 0, 0o4000)
print(libc.semctl(sem, 0, 12), at.raw[8:8 + n].decode(), libc.msgrcv(queue, at, 56, 0, 0o4000))
"""  # noqa: E501


def test_semaphores_and_queues_are_each_domains_own(started, image):
    both = [started("python3", "-c", KEYS, word, image=image("debian"), opts=["-i"]) for word in ("11", "22")]
    for p in both:
        assert p.stdout.readline() == b"True\n", p.stderr.read()
    for p, word in zip(both, ("11", "22")):
        p.stdin.write(b"\n")
        p.stdin.flush()
        assert p.stdout.read().decode() == f"{word} {word} -1\n"


def test_a_full_disk_loses_nothing():
    script = """
        seq 1000 > /kept; i=0
        while cat /kept > /file$i 2>/dev/null; do i=$((i+1)); done
        seq 10000 >> /none 2>/dev/null && echo there was room; rm /none
        rm /file$i
        for n in $(seq 0 $((i-1))); do cmp /kept /file$n || echo lost; done
        echo $i; md5sum < /kept; rm /file*; for n in $(seq 0 9); do cp /kept /again$n || echo none; done; md5sum < /again9
    """  # noqa: E501
    lines = text(run("sh", "-c", script, opts=["--disk", "400k"])).splitlines()
    assert len(lines) == 3 and int(lines[0]) > 20 and lines[1] == lines[2], lines


def test_a_cap_on_cpu_time_holds(doppeld, made):
    id = made(f"{SPIN} & {SPIN}", resources={"cpus": 0.2})
    eventually(lambda: cpu_seconds(doppeld, id) > 0.1, "it runs")
    used, begun = cpu_seconds(doppeld, id), time.monotonic()
    time.sleep(2)
    share = (cpu_seconds(doppeld, id) - used) / (time.monotonic() - begun)
    assert share < 0.3, share
    text(doppeld.cli("update", "--cpus", "0.6", id))
    used, begun = cpu_seconds(doppeld, id), time.monotonic()
    time.sleep(2)
    assert share < (cpu_seconds(doppeld, id) - used) / (time.monotonic() - begun) < 0.8


def test_weights_divide_cpu_time(doppeld, made):
    all = " & ".join([SPIN] * 4)
    light, heavy = made(all), made(all, resources={"cpu_weight": 400})
    eventually(lambda: min(cpu_seconds(doppeld, id) for id in (light, heavy)) > 0.1, "both run")
    before = [cpu_seconds(doppeld, id) for id in (light, heavy)]
    time.sleep(3)
    used = [cpu_seconds(doppeld, id) - b for id, b in zip((light, heavy), before)]
    # As much each without weights; what other tests and builds take they take from one CPU more than from another.
    assert 2 < used[1] / used[0] < 6, used


def test_reservations_are_refused_with_the_numbers(doppeld, made):
    info = doppeld.get("/v1/info").ok()
    made("exec sleep 1000", resources={"cpu_reservation": 0.25})
    left = info["cpus"] - info["reserved_cpus"] - 0.25
    p = doppeld.cli("create", "--kind", "paene", "--cpu-reservation", f"{left + 0.5}", "busybox", "true")
    assert p.returncode == 125 and all(f"{n:g}".encode() in p.stderr for n in (left + 0.5, left)), p
    text(doppeld.cli("run", "--rm", "--kind", "paene", "--cpu-reservation", f"{left}", "busybox", "true"))


def test_limits_of_devices_and_block_io(doppeld, made):
    id = made("exec sleep 1000")
    pid = doppeld.get(f"/v1/domains/{id}").ok()["pid"]
    device = next(line.split() for line in open("/proc/partitions").read().splitlines()[2:])
    number = f"{device[0]}:{device[1]}"
    of_device = lambda file: [
        line for line in of_group(pid, "blkio", file, "io.max").splitlines() if line.startswith(f"{number} ")
    ]
    limited = doppeld.patch(
        f"/v1/domains/{id}", {"resources": {"io_devices": [{"device": number, "write_bps": 4 << 20}]}}
    )
    if limited.status == 200:
        [line] = of_device("blkio.throttle.write_bps_device")
        assert line.split()[1] == str(4 << 20) or f"wbps={4 << 20}" in line
    else:
        limited.problem(501, "unsupported")
    # Where the host cannot weigh it says so, and the domain runs on.
    weighed = doppeld.cli("update", "--blkio-weight", "300", id)
    assert weighed.returncode == 0 or b"no scheduler that weighs" in weighed.stderr, weighed
    assert doppeld.get(f"/v1/domains/{id}").ok()["state"] == "running"


def test_limits_change_live(doppeld, made):
    id = made("while :; do sleep 0.1; done", resources={"pids": 50, "memory_bytes": 64 << 20})
    hog = ["exec", id, "sh", "-c", "head -c 80m /dev/zero | tail > /dev/null; echo $?"]
    forks = ["exec", id, "sh", "-c", "for i in $(seq 60); do sleep 1 & done 2>/dev/null; wait; echo forked"]
    assert b"forked" not in doppeld.cli(*forks).stdout
    eventually(lambda: doppeld.get(f"/v1/domains/{id}/stats").ok()["pids"] < 20, "those that were begun end")
    text(doppeld.cli("update", "--pids-limit", "100", "--memory", "256m", id))
    assert text(doppeld.cli(*forks)) == "forked\n"
    assert text(doppeld.cli(*hog)) == "0\n"
    assert doppeld.get(f"/v1/domains/{id}/stats").ok()["memory"]["limit_bytes"] == 256 << 20


def test_a_rate_of_the_network_holds_and_changes(doppeld, made):
    total, rate = 3 << 20, 1 << 20
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        port = server.getsockname()[1]
        id = made(
            f"while :; do head -c {total} /dev/zero | nc 10.88.0.1 {port}; done",
            network={"kind": "nat", "allow": ["10.88.0.1"], "rate": {"sent": rate}},
        )

        def take():
            with server.accept()[0] as connection:
                connection.settimeout(60)
                got, begun = 0, time.monotonic()
                while data := connection.recv(1 << 20):
                    got += len(data)
                return got, time.monotonic() - begun

        got, seconds = take()
        # A second's worth may come at once.
        assert got == total and 1.5 < seconds < 10, (got, seconds)
        text(doppeld.cli("update", "--network-rate", "0", id))
        take()
        # The quickest of some: whatever else the host does holds up one or the other.
        taken = [take() for _ in range(3)]
        assert all(got == total for got, _ in taken) and min(s for _, s in taken) < 1, taken
