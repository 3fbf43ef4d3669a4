"""Programs hear of what other domains and the host change in volumes that they watch, each thing once."""
import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest
from conftest import eventually, ok

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
WATCHER = pathlib.Path(__file__).parent / "watcher.c"
# Longer than a service has a file open for writing after it was written.
CLOSED = 0.7
MADE = ["/data CREATE f", "/data MODIFY f", "/data CLOSE_WRITE f"]


@pytest.fixture(scope="module")
def tools(tmp_path_factory: Any) -> Any:
    """A directory with the watcher."""
    directory = tmp_path_factory.mktemp("tools")
    flags = ["-O2", "-static", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["gcc", *flags, "-o", directory / "watcher", WATCHER], check=True)
    return directory


@pytest.fixture
def own(new_doppeld: Any, busybox: Any) -> Any:
    return new_doppeld().start()


@pytest.fixture(params=["volume", "directory"])
def source(request: Any, own: Any, tmp_path: Any) -> tuple[str, pathlib.Path]:
    """What is shared, and where it lies on the host."""
    if request.param == "volume":
        ok(own.cli("volume", "create", "shared"))
        return "shared", own.store / "volumes/shared/_data"
    return str(tmp_path), tmp_path


class Heard:
    """What a domain's watcher has said."""

    def __init__(self, own: Any, name: str) -> None:
        self.own, self.name, self.at = own, name, 0

    def lines(self) -> list[str]:
        return ok(self.own.cli("logs", self.name)).splitlines()[self.at :]

    def begin(self) -> "Heard":
        eventually(lambda: self.lines() == ["ready"], "it watches")
        self.at += 1
        return self

    def next(self, count: int) -> list[list[str]]:
        """The next lines: so many, and no more within a moment."""
        eventually(lambda: len(self.lines()) >= count, f"{count} events")
        time.sleep(CLOSED)
        lines = self.lines()
        assert len(lines) == count, lines
        self.at += count
        return [line.split() for line in lines]

    def events(self, count: int) -> list[str]:
        """The same without cookies."""
        return [" ".join([file, event, name]) for file, event, _, name in self.next(count)]


def watch(own: Any, tools: Any, source: str, *files: str, name: str = "watcher") -> Heard:
    mounts = ("-v", f"{source}:/data", "-v", f"{tools}:/tools:ro")
    ok(own.cli("run", "-d", "--name", name, *mounts, "busybox", "/tools/watcher", *files))
    return Heard(own, name).begin()


def begin(own: Any, source: str, *options: str) -> Callable[[str], str]:
    """Another domain that has it; gives what runs a script there."""
    ok(own.cli("run", "-d", "--name", "other", *options, "-v", f"{source}:/data", "busybox", "sleep", "1000"))
    return lambda script: ok(own.cli("exec", "other", "sh", "-ec", script))


def changes(heard: Heard, run: Callable[[str], Any]) -> None:
    """Files of /data, and of /data/d, are changed by what `run` runs."""
    run("echo text > /data/f")
    assert heard.events(3) == MADE
    run("echo more >> /data/f")
    assert heard.events(2) == MADE[1:]
    run("chmod 600 /data/f")
    assert heard.events(1) == ["/data ATTRIB f"]
    run("mv /data/f /data/g")
    moved = heard.next(2)
    assert [m[1::2] for m in moved] == [["MOVED_FROM", "f"], ["MOVED_TO", "g"]]
    run("mv /data/g /data/d/h")
    across = heard.next(2)
    assert [[m[0], m[1], m[3]] for m in across] == [["/data", "MOVED_FROM", "g"], ["/data/d", "MOVED_TO", "h"]]
    cookies = [m[2] for m in moved + across]
    assert cookies[0] == cookies[1] != cookies[2] == cookies[3] != "0"
    run("rm /data/d/h")
    assert heard.events(1) == ["/data/d DELETE h"]
    run("mkdir /data/e; rmdir /data/e")
    assert heard.events(2) == ["/data CREATE,ISDIR e", "/data DELETE,ISDIR e"]


def test_what_another_domain_changes(own: Any, tools: Any, source: Any) -> None:
    """The watcher has it alone at first, then shares it."""
    name, place = source
    (place / "d").mkdir()
    heard = watch(own, tools, name, "/data", "/data/d")
    other = begin(own, name)
    changes(heard, other)
    other("rmdir /data/d")
    assert sorted(heard.events(3)) == ["/data DELETE,ISDIR d", "/data/d DELETE_SELF -", "/data/d IGNORED -"]


def test_a_file_is_closed_when_its_program_closes_it(own: Any, tools: Any, source: Any) -> None:
    name, _ = source
    heard = watch(own, tools, name, "/data")
    other = begin(own, name)
    other("exec 3>/data/f; echo a >&3; sleep 1; echo b >&3; sleep 1; exec 3>&-; sleep 1")
    assert heard.events(4) == [MADE[0], MADE[1], MADE[1], MADE[2]]


def test_what_a_command_of_its_own_changes(own: Any, tools: Any, tmp_path: Any) -> None:
    """Which has a storage service of its own."""
    (tmp_path / "d").mkdir()
    heard = watch(own, tools, str(tmp_path), "/data", "/data/d")
    run = ("run", "--standalone", "--rm", "-v", f"{tmp_path}:/data", "busybox", "sh", "-ec")
    changes(heard, lambda script: ok(own.cli(*run, script)))


def test_what_a_container_changes(own: Any, tools: Any, source: Any) -> None:
    name, place = source
    (place / "d").mkdir()
    heard = watch(own, tools, name, "/data", "/data/d")
    # It opens and closes the file beside that, which is not told of.
    changes(heard, begin(own, name, "--kind", "paene"))


def test_what_the_host_changes(own: Any, tools: Any, source: Any) -> None:
    """Which the watcher then sees, though it has the volume alone."""
    name, place = source
    (place / "d").mkdir()
    heard = watch(own, tools, name, "/data", "/data/d")
    changes(heard, lambda script: subprocess.run(["sh", "-ec", script.replace("/data", str(place))], check=True))
    look = ("exec", "watcher", "sh", "-c", "cat /data/log; stat -c %s /data/log")
    (place / "log").write_text("one\n")
    assert ok(own.cli(*look)) == "one\n4\n"
    with open(place / "log", "a") as log:
        log.write("two\n")
    eventually(lambda: any(line.endswith("MODIFY 0 log") for line in heard.lines()), "it hears")
    assert ok(own.cli(*look)) == "one\ntwo\n8\n"


def test_a_file_that_is_watched(own: Any, tools: Any, source: Any) -> None:
    """As `tail -F` does."""
    name, place = source
    (place / "log").write_text("")
    heard = watch(own, tools, name, "/data/log")
    other = begin(own, name)
    other("echo line >> /data/log")
    assert heard.events(2) == ["/data/log MODIFY -", "/data/log CLOSE_WRITE -"]
    other("mv /data/log /data/log.1")
    assert heard.events(1) == ["/data/log MOVE_SELF -"]
    other("rm /data/log.1")
    assert heard.events(3) == ["/data/log ATTRIB -", "/data/log DELETE_SELF -", "/data/log IGNORED -"]


def test_what_it_does_itself_is_told_once(own: Any, tools: Any, source: Any) -> None:
    name, _ = source
    heard = watch(own, tools, name, "/data")
    begin(own, name)
    ok(own.cli("exec", "--user", "7", "watcher", "sh", "-ec", "umask 0; echo a > /tmp/x"))
    script = "echo text > /data/f; chmod 640 /data/f; mv /data/f /data/g; rm /data/g; mkdir /data/d; rmdir /data/d"
    ok(own.cli("exec", "watcher", "sh", "-ec", script))
    time.sleep(CLOSED)
    told = [line.split()[1] for line in heard.lines()]
    expected = ["CREATE", "OPEN", "MODIFY", "CLOSE_WRITE", "ATTRIB", "MOVED_FROM", "MOVED_TO", "DELETE"]
    assert [e for e in told if not e.endswith("ISDIR")] == expected
    assert [e for e in told if e.startswith(("CREATE,", "DELETE,"))] == ["CREATE,ISDIR", "DELETE,ISDIR"]


def test_a_service_is_killed(own: Any, tools: Any, source: Any) -> None:
    """Its successor watches what it has watched; what came meanwhile may be missed, which is said."""
    name, _ = source
    heard = watch(own, tools, name, "/data")
    other = begin(own, name)
    for _ in range(3):
        [service] = [s for s in own.get("/v1/services").ok() if s["kind"] == "storage"]
        os.kill(service["pid"], signal.SIGKILL)
        assert heard.events(1) == ["- Q_OVERFLOW -"]
        other("echo text > /data/f")
        assert heard.events(3) == MADE
        other("rm /data/f")
        assert heard.events(1) == ["/data DELETE f"]


def test_a_domain_sleeps_and_is_cloned(own: Any, tools: Any, source: Any) -> None:
    """One that wakes, and a clone, watch what it has watched, and know that they may have missed something."""
    name, place = source
    heard = watch(own, tools, name, "/data")
    ok(own.cli("hibernate", "watcher"))
    (place / "unseen").mkdir()
    ok(own.cli("wake", "watcher"))
    assert heard.events(1) == ["- Q_OVERFLOW -"]
    (place / "seen").mkdir()
    assert heard.events(1) == ["/data CREATE,ISDIR seen"]
    ok(own.cli("freeze", "watcher", "image"))
    # It goes on, and has missed nothing.
    (place / "frozen").mkdir()
    assert heard.events(1) == ["/data CREATE,ISDIR frozen"]
    ok(own.cli("clone", "-d", "--name", "clone", "image"))
    clone = Heard(own, "clone")
    assert clone.events(1) == ["- Q_OVERFLOW -"]
    (place / "both").mkdir()
    assert clone.events(1) == heard.events(1) == ["/data CREATE,ISDIR both"]
    ok(own.cli("exec", "clone", "rmdir", "/data/both"))
    assert heard.events(1) == ["/data DELETE,ISDIR both"]
