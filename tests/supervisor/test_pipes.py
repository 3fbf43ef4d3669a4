"""Readers that have seen enough: the command ends quietly, by SIGPIPE, as others do."""
import os
import signal
import subprocess

import pytest
from conftest import DOPPEL


def into_nobody(d, *args, stream="stdout"):
    """Runs the command with an output that nobody reads; gives its end and what it said."""
    read, write = os.pipe()
    os.close(read)
    env = {**os.environ, "DOPPEL_HOST": f"unix://{d.socket}", "DOPPEL_STORE": str(d.store)}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: write}
    try:
        return subprocess.run([DOPPEL, *args], stdin=subprocess.DEVNULL, env=env, timeout=60, **streams)
    finally:
        os.close(write)


@pytest.fixture(scope="module")
def web(supervisor, busybox):
    made = supervisor.cli("run", "-d", "--name", "piped", "busybox", "sh", "-c", "yes | head -c 300000; sleep 1000")
    assert made.returncode == 0, made.stderr
    yield "piped"
    supervisor.cli("rm", "-f", "piped")


@pytest.mark.parametrize(
    "args",
    [
        ["ps", "-a"],
        ["ps", "-q"],
        ["ps", "--json"],
        ["ps", "--format", "table {{.ID}}"],
        ["inspect", "piped"],
        ["inspect", "--json", "piped"],
        ["images"],
        ["images", "-q"],
        ["image", "ls", "--json"],
        ["image", "inspect", "--quick", "busybox"],
        ["info"],
        ["info", "--json"],
        ["version"],
        ["top", "piped"],
        ["stats", "--no-stream"],
        ["logs", "piped"],
        ["logs", "--json", "piped"],
        ["logs", "-f", "piped"],
        ["events", "--since", "1h"],
        ["exec", "piped", "echo", "x"],
        ["exec", "-t", "piped", "echo", "x"],
        ["cp", "piped:/etc/passwd", "-"],
        ["service", "ls"],
        ["doctor"],
        ["completion", "bash"],
        ["--help"],
        ["run", "--help"],
        ["create", "--name", "unread", "busybox", "true"],
        ["rename", "--help"],
    ],
    ids=" ".join,
)
def test_nobody_reads(supervisor, web, args):
    done = into_nobody(supervisor, *args)
    # What it has made nevertheless.
    supervisor.cli("rm", "-f", "unread")
    assert (done.returncode, done.stderr) == (-signal.SIGPIPE, b"")


def test_run_ends_with_its_reader(supervisor, busybox):
    """As with Docker the command ends; the domain lives on if it can."""
    done = into_nobody(supervisor, "run", "--name", "talks", "busybox", "sh", "-c", "echo x; sleep 1000")
    assert (done.returncode, done.stderr) == (-signal.SIGPIPE, b"")
    assert supervisor.cli("inspect", "-f", "{{.State}}", "talks").stdout == b"running\n"
    assert supervisor.cli("rm", "-f", "talks").returncode == 0


def test_a_full_disk_is_an_error(supervisor, web):
    env = {**os.environ, "DOPPEL_HOST": f"unix://{supervisor.socket}"}
    with open("/dev/full", "wb") as full:
        done = subprocess.run([DOPPEL, "ps"], stdout=full, stderr=subprocess.PIPE, env=env, timeout=60)
    assert done.returncode == 125 and b"No space left" in done.stderr, done.stderr


def test_nobody_hears(supervisor):
    """An error that nobody hears is one."""
    assert into_nobody(supervisor, "inspect", "no-such", stream="stderr").returncode == 1
    assert into_nobody(supervisor, "ps", "--no-such", stream="stderr").returncode in (125, -signal.SIGPIPE)
