"""The command's verbs, through the supervisor and without."""
import json
import os
import subprocess

import pytest
from conftest import DOPPEL

VERBS = """run exec create start stop restart kill pause unpause wait rm rename update prune ps inspect attach logs events top
info version doctor freeze clone hibernate wake frozen stats image pull push images rmi cp completion man""".split()  # noqa: E501


def cli(*argv, env=None, timeout=60):
    return subprocess.run(
        [DOPPEL, *argv], capture_output=True, text=True, timeout=timeout, env={**os.environ, **(env or {})}
    )


NOWHERE = {"DOPPEL_HOST": "unix:///nonexistent/doppeld.sock"}


def test_every_verb_has_help(binaries):
    text = cli("--help").stdout
    for verb in VERBS:
        assert f"\n  {verb} " in text, verb
        assert "Usage: doppel" in cli(verb, "--help").stdout, verb


@pytest.mark.parametrize(
    "argv",
    [("ps",), ("stop", "x"), ("logs", "x"), ("create", "busybox"), ("info",), ("run", "busybox", "true"), ("events",)],
    ids=lambda a: a[0],
)
def test_without_a_supervisor_it_says_so(binaries, argv):
    p = cli(*argv, env=NOWHERE)
    assert p.returncode in (1, 125) and "/nonexistent/doppeld.sock" in p.stderr, (p.returncode, p.stderr)
    assert "doppeld" in p.stderr


def test_options_that_need_it_are_refused_without(binaries, tmp_path):
    # No DOPPEL_HOST: the default socket, which is not there in tests.
    if os.path.exists("/run/doppel/doppeld.sock"):
        pytest.skip("a supervisor runs on this host")
    p = cli("run", "-d", "busybox", "true", env={"DOPPEL_HOST": ""})
    assert p.returncode == 125 and "supervisor" in p.stderr
    p = cli("run", "--restart", "always", "busybox", "true", env={"DOPPEL_HOST": ""})
    assert p.returncode == 125 and "supervisor" in p.stderr


def test_addresses_that_are_none(binaries):
    for host in ("tcp://x:1", "http://example.org:80", "nonsense"):
        p = cli("ps", env={"DOPPEL_HOST": host})
        assert p.returncode == 125 and "DOPPEL_HOST" in p.stderr, p.stderr


def test_version(supervisor):
    out = supervisor.cli("version").stdout.decode()
    assert "Client:" in out and "Server:" in out and "guest kernel" in out
    value = json.loads(supervisor.cli("version", "--json").stdout)
    assert value["server"]["api"] == "v1" == value["client"]["api"]
    assert supervisor.cli("version", "--format", "{{.Server.Api}}").stdout == b"v1\n"
    # Without one it still tells its own.
    assert "Client:" in cli("version", env=NOWHERE).stdout


def test_refusals(supervisor):
    p = supervisor.cli("create", "--name", "a/b", "busybox")
    assert p.returncode == 125 and b"name: " in p.stderr, p.stderr
    p = supervisor.cli("create", "--cpus=-1", "busybox")
    assert p.returncode == 125 and b"cpus" in p.stderr, p.stderr
    p = supervisor.cli("create", "--trace", "busybox")
    assert p.returncode == 125 and b"--trace" in p.stderr
    p = supervisor.cli("ps", "--filter", "colour=red")
    assert p.returncode == 125 and b"colour" in p.stderr
    p = supervisor.cli("ps", "--format", "{{range .}}")
    assert p.returncode in (1, 125)


def test_doctor(supervisor):
    p = supervisor.cli("doctor", "--json")
    checks = {c["name"]: c for c in map(json.loads, p.stdout.splitlines())}
    assert len(checks) == 18 and "paene domains" in checks
    assert checks["supervisor"]["verdict"] == "ok"
    assert (p.returncode == 1) == any(c["verdict"] == "failed" for c in checks.values())
    assert all("remedy" in c for c in checks.values() if c["verdict"] != "ok")
    # What is missing is found: a store that cannot be written.
    p = supervisor.cli("doctor", env={"DOPPEL_STORE": "/proc/nothing"})
    assert p.returncode == 1 and b"FAILED  image store" in p.stdout and b"DOPPEL_STORE" in p.stdout
    p = cli("doctor", "--json", env=NOWHERE)
    assert next(c for c in map(json.loads, p.stdout.splitlines()) if c["name"] == "supervisor")["verdict"] == "warning"


@pytest.mark.parametrize(
    "shell,says", [("bash", "_doppel()"), ("zsh", "#compdef doppel"), ("fish", "complete -c doppel")]
)
def test_completion(binaries, shell, says):
    p = cli("completion", shell)
    assert p.returncode == 0 and says in p.stdout and "unpause" in p.stdout
    if shell == "bash":
        assert subprocess.run(["bash", "-n"], input=p.stdout, text=True).returncode == 0


def test_man(binaries, tmp_path):
    assert cli("man", str(tmp_path / "man")).returncode == 0
    pages = {p.name for p in (tmp_path / "man").iterdir()}
    assert {"doppel.1", "doppel-run.1", "doppel-ps.1", "doppel-image-ls.1"} <= pages
    assert ".TH doppel-run 1" in (tmp_path / "man/doppel-run.1").read_text()
