"""What domains use is counted and kept, limits change while they run, reservations are refused with the numbers."""
import os
import pathlib
import re

import pytest
from conftest import eventually, of_group


@pytest.fixture
def made(supervisor):
    """Makes domains that end with the test."""
    ids = []

    def make(script, **config):
        config = {"image": "busybox", "command": ["sh", "-c", script], **config}
        ids.append(supervisor.post("/v1/domains?start=true", config).ok(201)["domain"]["id"])
        return ids[-1]

    yield make
    for i in ids:
        supervisor.delete(f"/v1/domains/{i}?force=true")


def test_use_is_counted_and_kept(supervisor, busybox, made):
    loop = "i=0; while [ $i -lt 5000 ]; do i=$((i+1)); : </dev/null; done; echo done; exec sleep 1000"
    domain = made(loop)
    stats = lambda: supervisor.get(f"/v1/domains/{domain}/stats").ok()
    eventually(lambda: stats()["console_bytes"] == 5, "it has looped")
    used = stats()
    # Each turn opens, duplicates and closes.
    assert used["calls"] > 15_000 and used["memory"]["usage_bytes"] > 0 and used["pids"] > 0
    text = supervisor.get("/metrics").body.decode()
    shown = re.search(rf'^doppel_domain_calls_total{{id="{domain}",.*}} (\d+)$', text, re.M)
    assert int(shown[1]) >= used["calls"]
    for kind in ("record", "queue", "memory", "group", "process", "all"):
        assert f'doppel_start_stage_seconds_count{{kind="boot",stage="{kind}"}}' in text
    supervisor.post(f"/v1/domains/{domain}/kill").ok()
    supervisor.post(f"/v1/domains/{domain}/wait").ok()
    kept = supervisor.get(f"/v1/domains/{domain}").ok()["usage"]
    for figure in ("calls", "cpu_seconds", "page_seconds", "console_bytes"):
        assert kept[figure] >= used[figure], (figure, kept, used)
    supervisor.post(f"/v1/domains/{domain}/start").ok()
    eventually(lambda: stats()["calls"] >= kept["calls"] + 15_000, "its next run is added")


def test_a_memory_target_below_what_is_used_is_refused(supervisor, busybox, made):
    """A guest kernel takes nothing back from programs: they would find their next requests failing, for ever."""
    domain = made("dd if=/dev/zero of=/dev/shm/a bs=1M count=48 2>/dev/null; echo ready; exec sleep 1000")
    eventually(lambda: supervisor.get(f"/v1/domains/{domain}/stats").ok()["console_bytes"] == 6, "it has what it wants")
    before = supervisor.get(f"/v1/domains/{domain}").ok()["config"]
    change = {"resources": {"memory_target_bytes": 32 << 20, "cpus": 0.5}}
    text = supervisor.patch(f"/v1/domains/{domain}", change).problem(400, "invalid_request")
    used = int(re.search(r"target of 32 MiB is below the (\d+) MiB that .* nothing is changed", text)[1])
    assert 48 <= used < 64, text
    assert supervisor.get(f"/v1/domains/{domain}").ok()["config"] == before
    change["resources"]["memory_target_bytes"] = 128 << 20
    assert (
        supervisor.patch(f"/v1/domains/{domain}", change).ok()["config"]["resources"]["memory_target_bytes"]
        == 128 << 20
    )


def test_limits_change_live(supervisor, busybox, made):
    domain = made("exec sleep 1000")
    pid = supervisor.get(f"/v1/domains/{domain}").ok()["pid"]

    def update(**resources):
        supervisor.patch(f"/v1/domains/{domain}", {"resources": resources}).ok()

    for megabytes in (128, 96):
        update(memory_bytes=megabytes << 20)
        # The guest kernel's own memory comes on top.
        limit = (megabytes << 20) * 9 // 8 + (64 << 20)
        assert of_group(pid, "memory", "memory.limit_in_bytes", "memory.max") == str(limit)
        assert supervisor.get(f"/v1/domains/{domain}/stats").ok()["memory"]["limit_bytes"] == megabytes << 20
    for cpus, quota in ((0.5, 50_000), (1.5, 150_000)):
        update(cpus=cpus)
        # While others want the host's CPUs, one that does nothing is held to less (docs/supervisor.md).
        assert 0 < int(of_group(pid, "cpu", "cpu.cfs_quota_us", "cpu.max").split()[0]) <= quota
    update(cpu_weight=200)
    assert of_group(pid, "cpu", "cpu.shares", "cpu.weight") in ("2048", "200")
    update(pids=77)
    # The guest kernel keeps it; a process may have a task a CPU, and the kernel has some (docs/machine-interface.md).
    assert of_group(pid, "pids", "pids.max", "pids.max") == str(77 * len(os.sched_getaffinity(0)) + 16)
    update(memory_reservation_bytes=8 << 20)
    assert of_group(pid, "memory", "memory.soft_limit_in_bytes", "memory.low") == str(8 << 20)
    # Block I/O is weighed where the host can; where it cannot, it says so and changes nothing.
    weighed = supervisor.patch(f"/v1/domains/{domain}", {"resources": {"io_weight": 300}})
    now = supervisor.get(f"/v1/domains/{domain}").ok()["config"]["resources"]
    assert now.get("io_weight") == (300 if weighed.status == 200 else None), weighed.body
    assert (now["cpus"], now["pids"]) == (1.5, 77)
    # So are limits of devices.
    device = next(line.split() for line in pathlib.Path("/proc/partitions").read_text().splitlines()[2:])
    number = f"{device[0]}:{device[1]}"
    limited = supervisor.patch(
        f"/v1/domains/{domain}",
        {"resources": {"io_devices": [{"device": number, "read_bps": 8 << 20, "write_iops": 50}]}},
    )
    if limited.status == 200:
        of_device = lambda v1: [
            line for line in of_group(pid, "blkio", v1, "io.max").splitlines() if line.startswith(number + " ")
        ]
        assert of_device("blkio.throttle.read_bps_device")[0].split()[1] in (str(8 << 20), f"rbps={8 << 20}")
        assert "50" in of_device("blkio.throttle.write_iops_device")[0].replace("=", " ").split()
        update(io_devices=[{"device": number, "read_bps": 0}])
        assert str(8 << 20) not in "".join(of_device("blkio.throttle.read_bps_device"))
        shown = supervisor.get(f"/v1/domains/{domain}").ok()["config"]["resources"]["io_devices"]
        assert shown == [{"device": number, "read_bps": 0, "write_iops": 50}]
    else:
        limited.problem(501, "unsupported")
    refused = supervisor.patch(
        f"/v1/domains/{domain}", {"resources": {"io_devices": [{"device": "/dev/null", "read_bps": 1}]}}
    )
    assert "/dev/null: not a block device" in refused.problem(400, "invalid_request")
    # All of it is the same for the next run.
    supervisor.post(f"/v1/domains/{domain}/kill").ok()
    supervisor.post(f"/v1/domains/{domain}/wait").ok()
    pid = supervisor.post(f"/v1/domains/{domain}/start").ok()["pid"]
    # The guest kernel keeps it; a process may have a task a CPU, and the kernel has some (docs/machine-interface.md).
    assert of_group(pid, "pids", "pids.max", "pids.max") == str(77 * len(os.sched_getaffinity(0)) + 16)


def test_reservations_are_refused_with_the_numbers(supervisor, busybox, made):
    info = supervisor.get("/v1/info").ok()
    keep = {"cpu_reservation": 0.25, "memory_reservation_bytes": 64 << 20}
    domain = made("exec sleep 1000", resources=keep)
    left = info["cpus"] - info["reserved_cpus"] - 0.25
    wanted = {"image": "busybox", "command": ["true"], "resources": {"cpu_reservation": left + 0.5}}
    refused = supervisor.post("/v1/domains", wanted).problem(409, "capacity")
    assert all(f"{n:g}" in refused for n in (left + 0.5, info["cpus"], left)), refused
    wanted["resources"] = {"memory_reservation_bytes": info["memory_bytes"]}
    refused = supervisor.post("/v1/domains", wanted).problem(409, "capacity")
    assert str(info["memory_bytes"]) in refused
    refused = supervisor.patch(f"/v1/domains/{domain}", {"resources": {"cpu_reservation": left + 0.5}})
    refused.problem(409, "capacity")
    now = supervisor.get(f"/v1/domains/{domain}").ok()["config"]["resources"]
    assert now["cpu_reservation"] == 0.25
