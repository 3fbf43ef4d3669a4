"""Domains under the confinement of the systemd units, made by `as_unit.py` where systemd does not run."""
import pathlib
import shutil
import subprocess
import tempfile

import pytest
from conftest import DOPPELD, ROOT, eventually, have_image

UNITS = ROOT / "packaging/systemd"
PLAIN = [UNITS / "doppeld.service"]
PARA_ONLY = [*PLAIN, UNITS / "para-only.conf"]


@pytest.fixture
def unit(binaries, new_doppeld):
    """Starts a supervisor as such a unit's. Its directory is where the unit's are: not in /tmp, of which it has its
    own."""
    if not shutil.which("systemd-analyze"):
        pytest.skip("no systemd-analyze, which knows systemd's groups of system calls")
    if not have_image("busybox"):
        pytest.skip("no image busybox: make test-images")

    def start(files, config=""):
        directory = pathlib.Path(tempfile.mkdtemp(prefix="doppeld-unit-", dir="/var/lib"))
        d = new_doppeld(directory=directory, config=config)
        launcher = directory / "start"
        files = ",".join(map(str, files))
        launcher.write_text(f'#!/bin/sh\nexec {ROOT}/tests/supervisor/as_unit.py {files} {directory} {DOPPELD} "$@"\n')
        launcher.chmod(0o755)
        d.program = str(launcher)
        return d.start()

    return start


def said(p):
    assert p.returncode == 0, (p.args, p.stdout, p.stderr)
    return p.stdout.decode().strip()


def capabilities(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(dict(line.split(":\t") for line in status.splitlines())["CapBnd"], 16)


def lives(d, kind):
    """A domain from its start to its end: limits, output, exec, pause, a port, a restart of the supervisor."""
    serve = "mkdir /tmp/w; echo hello >/tmp/w/index.html; httpd -p 80 -h /tmp/w; echo up; exec sleep 1000"
    limits = ["--memory", "64m", "--cpus", "0.5", "--pids-limit", "64"]
    said(d.cli("run", "-d", "--name", "web", "--kind", kind, *limits, "-p", "80", "busybox", "sh", "-c", serve))
    port = d.get("/v1/domains/web").ok()["network"]["ports"][0]["host_port"]
    fetch = lambda: subprocess.run(["curl", "-s", f"http://127.0.0.1:{port}/"], capture_output=True, timeout=60).stdout
    eventually(lambda: fetch() == b"hello\n", "it serves")
    said(d.cli("pause", "web"))
    said(d.cli("unpause", "web"))
    assert said(d.cli("exec", "web", "echo", "here")) == "here"
    assert said(d.cli("logs", "web")) == "up"
    said(d.cli("update", "--memory", "96m", "--cpus", "1", "web"))
    source = d.dir / "file"
    source.write_text("copied\n")
    said(d.cli("cp", str(source), "web:/tmp/file"))
    d.stop()
    d.start()
    assert said(d.cli("exec", "web", "cat", "/tmp/file")) == "copied"
    assert fetch() == b"hello\n"
    said(d.cli("rm", "-f", "web"))
    assert said(d.cli("run", "--rm", "--kind", kind, "busybox", "echo", "again")) == "again"
    said(d.cli("disk", "create", "--size", "1m", f"of-{kind}"))
    disk = ["--kind", kind, "--block-device", f"of-{kind}"]
    assert said(d.cli("run", "--rm", *disk, "busybox", "sh", "-c", "echo hi >/dev/vda; head -c 2 /dev/vda")) == "hi"


def freezes(d):
    said(d.cli("run", "-d", "--name", "warm", "busybox", "sh", "-c", "x=$(cat /proc/uptime); exec sleep 1000"))
    said(d.cli("freeze", "warm", "image"))
    clone = said(d.cli("clone", "-d", "image"))
    assert said(d.cli("exec", clone, "echo", "cloned")) == "cloned"
    said(d.cli("hibernate", "warm"))
    said(d.cli("wake", "warm"))
    assert said(d.cli("exec", "warm", "echo", "awake")) == "awake"


@pytest.mark.parametrize("kind", ["para", "paene"])
def test_the_unit_lets_domains_live(unit, kind):
    d = unit(PLAIN)
    lives(d, kind)
    if kind == "para":
        freezes(d)


def test_hosts_for_para_domains_only(unit):
    d = unit(PARA_ONLY)
    assert not capabilities(d.process.pid) & (1 << 12 | 1 << 27), "no NET_ADMIN, no MKNOD"
    lives(d, "para")
    freezes(d)
    assert all(capabilities(pid) == capabilities(d.process.pid) for pid in d.keepers())
    refused = d.cli("run", "--rm", "--kind", "paene", "busybox", "true")
    assert refused.returncode == 125 and refused.stderr, refused
    assert said(d.cli("run", "--rm", "busybox", "echo", "still here")) == "still here"
