"""Events of the guest kernel: `doppel debug events`."""

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import DOPPEL, Running, call

NO_DESCRIPTORS = """
import os, resource

resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
for _ in range(5):
    try:
        os.dup(0)
    except OSError:
        pass
"""


def events(name: str, *opts: str) -> list[dict[str, Any]]:
    """Those that are kept, by a command of its own."""
    shown = subprocess.run(
        [DOPPEL, "debug", "events", "--json", *opts, name], capture_output=True, text=True, check=True
    )
    return [json.loads(line) for line in shown.stdout.splitlines()]


def kinds(name: str) -> dict[str, dict[str, Any]]:
    """The newest event of each kind."""
    return {event["kind"]: event for event in events(name)}


@pytest.fixture
def domain() -> Iterator[Running]:
    running = Running("debian", "sh", "-c", "echo up; exec sleep 1000", opts=["--memory", "128m"])
    yield running
    running.stop()


def test_nothing_is_kept_unless_it_is_wanted(domain: Running) -> None:
    domain.exec("true").ok()
    shown = call([DOPPEL, "debug", "events", domain.name], "", 60)
    assert shown.out == "" and "--level info" in shown.err, shown
    events(domain.name, "--level", "info")
    domain.exec("true").ok()
    kept = events(domain.name, "--level", "off")
    assert kept, "nothing was kept"
    domain.exec("true").ok()
    assert events(domain.name) == kept


def test_processes(domain: Running) -> None:
    events(domain.name, "--level", "debug")
    assert domain.exec("sh", "-c", "(exit 7); exit 9").code == 9
    kept = events(domain.name)
    assert [e["number"] for e in kept] == list(range(len(kept)))
    messages = [(e["kind"], e["message"]) for e in kept]
    assert ("process.exec", "executes sh") in messages
    ends = [m for kind, m in messages if kind == "process.exit"]
    assert ends == ["exits with 7", "exits with 9"], messages
    child = next(e for e in kept if e["kind"] == "process.start")
    assert child["level"] == "info" and f" {kept[-1]['pid'] + 1} " in child["message"] + " ", child


def test_from_the_start() -> None:
    running = Running("busybox", "sh", "-c", "(exit 7); echo up; exec sleep 1000", opts=["--events", "info"])
    try:
        kept = events(running.name)
    finally:
        running.stop()
    assert kept[0]["number"] == 0, kept
    assert ("process.exit", "exits with 7") in [(e["kind"], e["message"]) for e in kept], kept
    refused = call([DOPPEL, "run", "--rm", "--kind", "paene", "--events", "info", "busybox", "true"], "", 60)
    assert refused.code == 125 and "events of a guest kernel" in refused.err, refused


def test_levels(domain: Running) -> None:
    events(domain.name, "--level", "warning")
    domain.exec("sh", "-c", "sleep 100 & kill -TERM $!; wait").ok()
    kept = events(domain.name)
    assert {e["level"] for e in kept} == {"warning"}, kept
    killed = next(e for e in kept if e["kind"] == "signal.kill")
    assert killed["message"].startswith("SIGTERM kills it"), killed


def test_what_is_refused(domain: Running) -> None:
    events(domain.name, "--level", "info")
    domain.exec("sh", "-c", "ulimit -p 1; true & wait", opts=["-u", "1000"])
    domain.exec("python3", "-c", NO_DESCRIPTORS).ok()
    domain.exec("dd", "if=/dev/zero", "of=/dev/null", "bs=1G", "count=1")
    newest = kinds(domain.name)
    assert "RLIMIT_NPROC is 1" in newest["limit.processes"]["message"], newest
    assert "RLIMIT_NOFILE is 3" in newest["limit.files"]["message"], newest
    # Each attempt failed alike: that is one event.
    assert newest["limit.files"]["count"] == 5, newest
    assert f"the limit is {128 << 20}" in newest["memory.refused"]["message"], newest


def test_follow(domain: Running) -> None:
    events(domain.name, "--level", "info")
    follower = subprocess.Popen(
        [DOPPEL, "debug", "events", "-f", domain.name], stdout=subprocess.PIPE, text=True
    )
    try:
        domain.exec("sh", "-c", "exit 33")
        line = next(line for line in follower.stdout if "exits with 33" in line)
        assert " info " in line and " process.exit: " in line, line
    finally:
        domain.stop()
    # It ends with the domain.
    assert follower.wait(20) == 0
    follower.stdout.close()


def test_faults_and_hostile_names(domain: Running) -> None:
    events(domain.name, "--level", "error")
    domain.exec("python3", "-c", "import ctypes; ctypes.string_at(0x1230)")
    fault = kinds(domain.name)["fault.kill"]
    assert fault["message"].startswith("SIGSEGV kills it: address 0x1230, instruction 0x"), fault
    events(domain.name, "--level", "info")
    domain.exec("bash", "-c", r"cp /bin/true $'/tmp/a\e[31m b'; $'/tmp/a\e[31m b'").ok()
    assert any("a?[31m?b" in e["message"] for e in events(domain.name))


def test_a_paene_domain_has_none() -> None:
    running = Running("busybox", "sh", "-c", "echo up; exec sleep 1000", opts=["--kind", "paene"])
    try:
        shown = call([DOPPEL, "debug", "events", running.name], "", 60)
        assert shown.code != 0 and "no guest kernel" in shown.err, shown
    finally:
        running.stop()
