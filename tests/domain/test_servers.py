"""Servers and load generators, unmodified from Debian, each doing real work in one domain.

A test runs a script of servers/ in the image `servers`. The scripts print a figure per load and end with
"NAME ok"; they check what they do themselves. $SECONDS_OF_LOAD makes every load last longer.
"""
import os
import pathlib

import pytest
from conftest import have_image

SCRIPTS = pathlib.Path(__file__).resolve().parent / "servers"
SECONDS = os.environ.get("SECONDS_OF_LOAD", "1")


def script(name):
    """A script of servers/ with its helpers in front."""
    return (SCRIPTS / "lib.sh").read_text() + (SCRIPTS / f"{name}.sh").read_text()


@pytest.fixture
def run(domain):
    if not have_image("servers"):
        pytest.skip("no image servers: make test-images")

    def call(name, timeout=180, **env):
        return domain.run(
            "bash", "-c", script(name), image="servers", timeout=timeout, env={"SECONDS_OF_LOAD": SECONDS, **env}
        ).ok()

    return call


def test_redis(run):
    assert run("redis", REQUESTS="20000").endswith("redis ok\n")


def test_nginx(run):
    assert run("nginx").endswith("nginx ok\n")


def test_postgres(run):
    assert run("postgres").endswith("postgres ok\n")


def test_ssh(run):
    assert run("ssh").endswith("ssh ok\n")


def test_rsync(run):
    assert run("rsync").endswith("rsync ok\n")


def test_sqlite(run):
    assert run("sqlite").endswith("sqlite ok\n")


def test_sysbench(run):
    assert run("sysbench").endswith("sysbench ok\n")


# What no stressor may fall below: those that the host has not (stress-ng finds out) are named here.
NOT_IMPLEMENTED = {"membarrier"}


@pytest.mark.parametrize("name", ["cpu", "vm", "pipe", "futex", "fork", "timer", "signal", "file"])
def test_stress_ng(run, name):
    out = run("stress", timeout=120 + 20 * int(SECONDS), CLASS=name)
    assert out.endswith(f"stress {name} ok\n")
    absent = {x.split(":")[0] for x in out.splitlines() if x.endswith(": not implemented")}
    assert absent <= NOT_IMPLEMENTED
