"""What a freeze or a clone refuses, in words that help, with the domain running on and nothing left behind.

Another CPU, host kernel or format version cannot be had here: host/freezer's own tests hold what is said of them.
Another root image, damage, a full disk during a freeze, and who is killed when: test_freezer.py.
"""
import glob
import os
import random
import stat
import subprocess
import time

import pytest
from conftest import DOPPEL, ROOT, call
from freezing import clean, doppel_call, names, path_of, refused, root_file, small_disk  # noqa: F401

ECHO = "echo ready; while read l; do echo $l; done"


class Running:
    """A shell that echoes lines."""

    def __init__(self, domain, name, **kw):
        self.p = domain.start("sh", "-c", ECHO, image="busybox", opts=["--name", name], **kw)
        assert self.p.stdout.readline() == b"ready\n", self.p.stderr.read()

    def ask(self, line):
        self.p.stdin.write(line + b"\n")
        self.p.stdin.flush()
        assert self.p.stdout.readline() == line + b"\n"

    def end(self):
        _out, err = self.p.communicate(timeout=60)
        assert self.p.returncode == 0, err


def test_another_guest_kernel(domain, names, clean, tmp_path):
    kernels = glob.glob(str(ROOT / "target/kernel/*/kernel/doppel-kernel"))
    if not kernels:
        pytest.skip("no guest kernel beside the binary: make build")
    code = open(max(kernels, key=os.path.getmtime), "rb").read()
    text = b"doppel: no new /etc/machine-id"
    assert text in code
    other = tmp_path / "kernel"
    other.write_bytes(code.replace(text, text.upper()))
    frozen = names()
    doppel_call(
        "run",
        "--rm",
        "--kernel",
        other,
        "--freeze-as",
        frozen,
        "busybox",
        "--",
        "sh",
        "-c",
        "echo freeze >/sys/power/state",
    ).ok()
    error = refused("clone", frozen)
    assert (
        "does not fit: it was frozen with another guest kernel" in error
        and "use the doppel that froze it, or freeze again" in error
    )
    # It is there still, and can be looked at and taken away.
    doppel_call("frozen", "inspect", frozen).ok()


def test_missing_root_image(domain, names, clean, tmp_path):
    frozen, asleep = names(), f"fzt-{os.getpid()}-rootless"
    file = tmp_path / "root.erofs"
    file.write_bytes(open(root_file("busybox"), "rb").read())
    doppel_call("run", "--rm", "--freeze-as", frozen, file, "--", "sh", "-c", "echo freeze >/sys/power/state").ok()
    p = subprocess.Popen(
        [DOPPEL, "run", "--rm", "-i", "--name", asleep, file, "--", "sh", "-c", ECHO],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert p.stdout.readline() == b"ready\n"
    doppel_call("hibernate", asleep).ok()
    p.communicate(timeout=60)
    away = tmp_path / "away"
    file.rename(away)
    for argv in (("clone", frozen), ("clone", "-n", "3", frozen), ("wake", asleep)):
        error = refused(*argv)
        assert str(file) in error and "No such file" in error, error
    away.rename(file)
    doppel_call("clone", frozen).ok()
    doppel_call("wake", asleep).ok()  # its input ends at once


def test_full_disk_elsewhere(domain, names, clean, tmp_path):
    """Hibernating, exporting and importing find no room; /dev/shm has none for an image in memory."""
    disk, frozen, name = small_disk(tmp_path / "disk", "4m"), names(), f"fzt-{os.getpid()}-shm"
    shm = (
        f'mount -t tmpfs -o size=4m,mode=1777 none /dev/shm && exec {DOPPEL} run --rm -i --name {name} '
        f'{root_file("debian")} -- python3 -uc "$0"'
    )
    program = (
        "import os\nb = os.urandom(20 << 20)\nh = hash(b)\nprint('ready')\nwhile input() == 'still there': "
        "print(h == hash(b))"
    )
    p = subprocess.Popen(
        ["unshare", "-m", "sh", "-c", shm, program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "DOPPEL_STORE": str(disk)},
    )

    def there():
        p.stdin.write(b"still there\n")
        p.stdin.flush()
        assert p.stdout.readline() == b"True\n"

    try:
        assert p.stdout.readline() == b"ready\n", p.stderr.read()
        env = {"DOPPEL_STORE": str(disk)}
        for _ in range(2):
            assert "No space left" in refused("hibernate", name, env=env)
            there()
            assert os.listdir(disk / "frozen") == []
            inside = call(
                ["nsenter", "-t", str(p.pid), "-m", DOPPEL, "freeze", "--in-memory", name, "x"],
                b"",
                30,
                env={**os.environ, **env},
            )
            assert inside.code and "No space left" in inside.err, inside.err
            there()
            left = call(["nsenter", "-t", str(p.pid), "-m", "find", "/dev/shm", "-type", "f"], b"", 20)
            assert left.out == "", left.out
        # Where there is room, it can be frozen still.
        doppel_call("freeze", name, frozen).ok()
        error = refused("frozen", "export", frozen, disk / "export")
        assert "No space left" in error and not (disk / "export").exists(), error
        doppel_call("frozen", "export", frozen, tmp_path / "export").ok()
        assert "No space left" in refused("frozen", "import", tmp_path / "export", "x", env=env)
        assert os.listdir(disk / "frozen") == []
        _out, err = p.communicate(b"end\n", timeout=60)
        assert p.returncode == 0, err
    finally:
        p.kill()
        p.communicate()
        subprocess.run(["umount", disk], check=True)


def test_dying_domains(domain, names, clean):
    """Frozen while it ends by itself: whole or not at all, with a reason; the command never hangs."""
    rnd, outcomes = random.Random(3), set()
    for i in range(12):
        frozen, name = names(), f"fzt-{os.getpid()}-dying{i}"
        r = Running(domain, name)
        f = None
        if i % 2:
            f = subprocess.Popen(
                [DOPPEL, "freeze", name, frozen], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            time.sleep(rnd.random() * 0.01)
        r.p.stdin.close()
        if not f:
            time.sleep(rnd.random() * 0.01)
            f = subprocess.Popen(
                [DOPPEL, "freeze", name, frozen], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        _, err = f.communicate(timeout=60)
        assert r.p.wait(60) == 0
        if f.returncode:
            assert err.startswith("doppel: ") and any(
                x in err for x in ("no domain named", "ended before it", "the domain ended")
            ), err
            assert "no frozen image" in refused("frozen", "inspect", frozen)
        else:
            doppel_call("clone", frozen).ok()
        outcomes.add(f.returncode == 0)
        r.p.stdout.close()
        r.p.stderr.close()
    assert outcomes


def test_only_the_owner_reads_images(domain, names, clean):
    """Frozen images hold the secrets of all processes."""
    r = Running(domain, f"fzt-{os.getpid()}-secret")
    for options in ([], ["--in-memory"]):
        frozen = names()
        doppel_call("freeze", *options, f"fzt-{os.getpid()}-secret", frozen).ok()
        path = path_of(frozen)
        assert (
            stat.S_IMODE(os.stat(path).st_mode) == 0o600
            and stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode) == 0o700
        )
        other = call(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "head", "-c", "8", path], b"", 20)
        assert other.code != 0 and "ermission denied" in other.err, other.err
    r.ask(b"still here")
    r.end()
