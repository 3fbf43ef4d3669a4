"""`doppel rollback`: a domain goes back to a frozen image, with what it had in memory and in files."""
import json
import os
import signal
import socket
import urllib.request

import pytest
from conftest import eventually, ok, refused

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
# A number in memory, which grows by each line that is asked for, and in a file.
COUNTER = (
    "mkfifo /ask /answer; n=0; while :; do read -r _ < /ask; n=$((n + 1)); echo $n > /kept; echo $n > /tmp/kept; "
    "echo $n > /answer; done"
)


@pytest.fixture
def own(new_doppeld, busybox):
    return new_doppeld().start()


def begin(own, *opts: str, name: str = "d") -> str:
    id = ok(own.cli("run", "-d", "--name", name, *opts, "busybox", "sh", "-c", COUNTER)).strip()
    eventually(lambda: own.cli("exec", name, "test", "-p", "/answer").returncode == 0, "it has begun")
    return id


def count(own, name: str = "d") -> tuple[int, int, int]:
    """The next number, and what its files said of the last one."""
    script = "a=$(cat /kept 2>/dev/null); b=$(cat /tmp/kept 2>/dev/null); echo > /ask; echo $(cat /answer) ${a:-0}"
    script += " ${b:-0}"
    n, kept, in_memory = ok(own.cli("exec", name, "sh", "-c", script)).split()
    return int(n), int(kept), int(in_memory)


def inspected(own, name: str = "d"):
    return json.loads(ok(own.cli("inspect", name)))[0]


def test_memory_and_files_go_back(own):
    id = begin(own, "--hostname", "here")
    assert [count(own) for _ in range(2)] == [(1, 0, 0), (2, 1, 1)]
    ok(own.cli("freeze", "d", "two"))
    for _ in range(3):
        assert [count(own) for _ in range(3)] == [(3, 2, 2), (4, 3, 3), (5, 4, 4)]
        assert ok(own.cli("rollback", "d", "two")) == "d\n"
    found = inspected(own)
    assert (found["id"], found["state"], found["cloned_from"]) == (id, "running", "two")
    assert ok(own.cli("exec", "d", "hostname")) == "here\n"
    # A later image of it; and then the first again.
    assert count(own) == (3, 2, 2)
    ok(own.cli("freeze", "d", "three"))
    assert count(own) == (4, 3, 3)
    ok(own.cli("rollback", "d", "three"))
    assert count(own) == (4, 3, 3)
    ok(own.cli("rollback", "d", "two"))
    assert count(own) == (3, 2, 2)
    refused(own.cli("frozen", "rm", "two"), "in use by a clone")
    ok(own.cli("frozen", "rm", "three"))


def test_it_is_a_clone_from_then_on(own):
    begin(own)
    count(own)
    ok(own.cli("freeze", "d", "one"))
    count(own)
    ok(own.cli("rollback", "d", "one"))
    assert count(own) == (2, 1, 1)
    ok(own.cli("restart", "-t", "0", "d"))
    assert count(own) == (2, 1, 1)
    # What it had kept has gone, and is nobody's.
    assert ok(own.cli("layer", "ls", "-q")) == ""
    ok(own.cli("hibernate", "d"))
    ok(own.cli("wake", "d"))
    assert count(own) == (3, 2, 2)
    ok(own.cli("rm", "-f", "d"))
    ok(own.cli("frozen", "rm", "one"))


def test_files_of_a_layer_go_back(own):
    """They are not in the image's memory."""
    begin(own)
    ok(own.cli("exec", "d", "sh", "-c", "dd if=/dev/urandom of=/large bs=1M count=20 2> /dev/null; sync"))
    digest = ok(own.cli("exec", "d", "md5sum", "/large"))
    ok(own.cli("freeze", "d", "large"))
    assert ok(own.cli("layer", "ls", "-q")) != ""
    for _ in range(2):
        ok(own.cli("exec", "d", "sh", "-c", "echo other > /large; echo new > /new; sync"))
        ok(own.cli("rollback", "d", "large"))
        assert ok(own.cli("exec", "d", "md5sum", "/large")) == digest
        assert own.cli("exec", "d", "cat", "/new").returncode != 0
    ok(own.cli("rm", "-f", "d"))
    eventually(lambda: ok(own.cli("layer", "ls", "-q")) == "", "its layer has gone")


def test_clones_go_back_alone(own):
    begin(own)
    count(own)
    ok(own.cli("freeze", "d", "one"))
    ok(own.cli("clone", "-d", "-n", "2", "--name", "c", "one"))
    for name in ("d", "c-1", "c-2"):
        assert count(own, name) == (2, 1, 1)
    ok(own.cli("freeze", "c-1", "mine"))
    assert count(own, "c-1") == (3, 2, 2)
    ok(own.cli("rollback", "c-1", "one"))
    assert count(own, "c-1") == (2, 1, 1)
    ok(own.cli("rollback", "c-1", "mine"))
    assert count(own, "c-1") == (3, 2, 2)
    assert (count(own, "d"), count(own, "c-2")) == ((3, 2, 2), (3, 2, 2))


def test_one_that_does_not_run_goes_on_from_there(own):
    begin(own)
    count(own)
    ok(own.cli("freeze", "d", "one"))
    for how in (("kill", "d"), ("pause", "d"), ("hibernate", "d")):
        ok(own.cli(*how))
        ok(own.cli("rollback", "d", "one"))
        assert count(own) == (2, 1, 1), how
    # Nobody starts it meanwhile, and it is not taken for one that has ended.
    assert inspected(own)["restarts"] == 0


def test_policies_do_not_mind(own):
    """Neither is one that goes when it ends removed, nor one that is to run always started twice."""
    begin(own, "--rm", name="gone")
    begin(own, "--restart", "always", name="kept")
    for name in ("gone", "kept"):
        ok(own.cli("freeze", name, f"{name}-then"))
        ok(own.cli("rollback", name, f"{name}-then"))
        assert count(own, name)[0] == 1 and inspected(own, name)["restarts"] == 0
    ok(own.cli("kill", "gone"))
    eventually(lambda: own.cli("inspect", "gone").returncode != 0, "it is removed")


def test_deaths_in_between(own):
    """Neither the supervisor nor the keeper forgets from which image it goes on."""
    begin(own)
    count(own)
    ok(own.cli("freeze", "d", "one"))
    count(own)
    ok(own.cli("rollback", "d", "one"))
    own.kill()
    own.start()
    assert inspected(own)["cloned_from"] == "one" and count(own) == (2, 1, 1)
    for keeper in own.keepers():
        os.kill(keeper, signal.SIGKILL)
    eventually(lambda: own.cli("exec", "d", "true").returncode == 0, "a successor has it")
    assert count(own) == (3, 2, 2)
    ok(own.cli("rollback", "d", "one"))
    assert count(own) == (2, 1, 1)


def test_what_cannot_go_back(own):
    begin(own)
    ok(own.cli("freeze", "d", "one"))
    refused(own.cli("rollback", "d", "none"), 'no frozen image "none"')
    refused(own.cli("rollback", "nobody", "one"), 'no domain "nobody"')
    ok(own.cli("run", "-d", "--kind", "paene", "--name", "p", "busybox", "sleep", "1000"))
    refused(own.cli("rollback", "p", "one"), "a paene domain")
    ok(own.cli("run", "-d", "-v", "data:/data", "--name", "v", "busybox", "sleep", "1000"))
    refused(own.cli("rollback", "v", "one"), "a domain without its volumes")
    ok(own.cli("freeze", "v", "with"))
    refused(own.cli("rollback", "d", "with"), "a domain with other volumes")
    ok(own.cli("run", "-d", "--persist=shared", "--name", "l", "busybox", "sleep", "1000"))
    refused(own.cli("rollback", "l", "one"), "layer shared")
    # They are as they were.
    assert all(inspected(own, name)["state"] == "running" for name in "dpvl")


def test_volumes_stay(own):
    begin(own, "-v", "data:/data")
    ok(own.cli("exec", "d", "sh", "-c", "echo then > /data/at; mkdir /data/old"))
    ok(own.cli("freeze", "d", "one"))
    ok(own.cli("exec", "d", "sh", "-c", "echo now > /data/at; echo more > /data/more; rmdir /data/old"))
    ok(own.cli("rollback", "d", "one"))
    assert ok(own.cli("exec", "d", "sh", "-c", "cat /data/at /data/more; ls /data")) == "now\nmore\nat\nmore\n"


def test_network_stays(own):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = "while :; do echo -e 'HTTP/1.0 200 OK\\r\\n\\r\\nhere' | nc -l -p 80; done"
    opts = ("--network", "nat", "-p", f"127.0.0.1:{port}:80", "--name", "web")
    ok(own.cli("run", "-d", *opts, "busybox", "sh", "-c", server))

    def get() -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}", timeout=30) as answer:
            return answer.read()

    assert get() == b"here\n"
    ok(own.cli("freeze", "web", "one"))
    before = inspected(own, "web")["network"]
    ok(own.cli("rollback", "web", "one"))
    assert inspected(own, "web")["network"]["ports"] == before["ports"]
    assert get() == b"here\n"
