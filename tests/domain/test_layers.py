"""Files that stay: `doppel run --persist=NAME` alone, `doppel layer`, `diff`, `export` and `commit`."""
import io
import os
import subprocess
import tarfile
import uuid
from collections.abc import Iterator

import pytest
from conftest import DOPPEL, Domain, Result, command

# Makes all kinds of files and changes, and prints what there is then.
MAKE = r"""
import os, shutil
os.makedirs("/kept/d/e")
def put(name, data, mode=0o644, owner=(0, 0)):
    with open(name, "wb") as f:
        f.write(data)
    os.chmod(name, mode)
    os.chown(name, *owner)
put("/kept/set-id", b"x" * 5000, 0o755, (1000, 1001))
os.chmod("/kept/set-id", 0o6755)
put("/kept/d/secret", b"", 0o600, (65534, 65534))
put("/kept/d/a b\nc", b"name")
os.setxattr("/kept/d/a b\nc", "user.note", b"\0value")
os.setxattr("/kept/d", "user.dir", b"1")
os.symlink("../nowhere/at all", "/kept/link")
os.link("/kept/set-id", "/kept/d/e/same")
os.mkfifo("/kept/fifo", 0o640)
os.utime("/kept/d/e", ns=(5, 1_600_000_000_123_456_789))
os.chmod("/kept/d", 0o1777)
with open("/kept/sparse", "wb") as f:
    f.seek(1 << 30)
    f.write(b"end")
    f.seek(4096 * 7 + 5)
    f.write(b"middle")
    f.truncate((1 << 30) + 100_000)
put("/kept/large", bytes(range(256)) * (64 << 12))
# Of the image: appended to, other attributes, removed, moved, replaced.
with open("/etc/passwd", "ab") as f:
    f.write(b"more:x:7:7::/:/bin/sh\n")
os.chmod("/etc/group", 0o600)
os.remove("/etc/shells")
shutil.move("/etc/skel", "/kept/skel")
shutil.rmtree("/etc/default")
os.mkdir("/etc/default", 0o700)
put("/etc/default/only", b"mine")
"""
LIST = r"""
import hashlib, os
def say(path):
    s = os.lstat(path)
    what = os.readlink(path) if os.path.islink(path) else ""
    if os.path.isfile(path) and not os.path.islink(path):
        h = hashlib.sha256()
        with open(path, "rb") as f:
            while piece := f.read(1 << 20):
                h.update(piece)
        what = h.hexdigest()
    names = sorted(os.listxattr(path, follow_symlinks=False))
    xattrs = [(n, os.getxattr(path, n, follow_symlinks=False)) for n in names if n.startswith("user.")]
    size = 0 if os.path.isdir(path) else s.st_size
    links = 0 if os.path.isdir(path) else s.st_nlink
    mtime = s.st_mtime_ns if path.startswith("/kept") else 0
    print(repr(path), oct(s.st_mode), s.st_uid, s.st_gid, size, links, mtime, what, xattrs)
for top in ("/kept", "/etc"):
    say(top)
    for at, dirs, files in os.walk(top):
        dirs.sort()
        for name in sorted(dirs + files):
            if at == "/etc/default" or top == "/kept" or at == "/etc" and name in ("passwd", "group", "shells", "skel"):
                say(os.path.join(at, name))
print(os.stat("/kept/sparse").st_blocks < 2048)
"""


class Layers:
    """Domains of `doppel run` without a supervisor that have a layer of this name."""

    def __init__(self, domain: Domain, kind: str) -> None:
        self.domain, self.kind, self.name = domain, kind, "test-" + uuid.uuid4().hex[:10]
        self.opts = ("--standalone", "--kind", kind, f"--persist={self.name}")

    def sh(self, script: str, image: str = "busybox") -> Result:
        return self.domain.run("sh", "-c", script, image=image, opts=self.opts)

    def python(self, script: str) -> str:
        return self.domain.run("python3", "-c", script, opts=self.opts, timeout=120).ok()


@pytest.fixture(params=["para", "paene"])
def layers(domain: Domain, request: pytest.FixtureRequest) -> Iterator[Layers]:
    if request.param == "paene" and os.geteuid() != 0:
        pytest.skip("paene domains need root")
    one = Layers(domain, request.param)
    yield one
    command("layer", "rm", "-f", one.name)


def test_the_next_run_finds_the_files_of_the_last(layers):
    """Owners, modes, times, attributes, links, holes, large files, and what became of the image's."""
    before = layers.python(MAKE + LIST)
    assert "'/etc/skel'" not in before and "'/etc/shells'" not in before and "'/etc/default/only'" in before
    assert before.endswith("\nTrue\n"), before
    same = "import os; print(os.path.samefile('/kept/set-id', '/kept/d/e/same'))"
    assert layers.python(same) == "True\n"
    assert layers.python(LIST) == before
    change = "os.remove('/kept/large'); os.rename('/kept/d', '/kept/D'); os.truncate('/kept/sparse', 3)"
    layers.python(f"import os; {change}")
    after = layers.python(LIST)
    assert "'/kept/large'" not in after and "'/kept/D/e/same'" in after and layers.python(LIST) == after


def test_runs_add_up(layers):
    script = "n=$(cat /root/runs 2>/dev/null || echo 0); mkdir -p /root; echo $((n + 1)) > /root/runs; cat /root/runs"
    assert [layers.sh(script).ok() for _ in range(4)] == ["1\n", "2\n", "3\n", "4\n"]
    assert layers.sh("touch /tmp/x; exit 3").code == 3
    assert layers.sh("ls /tmp/x; " + script).ok() == "/tmp/x\n5\n"


def test_without_it_nothing_stays(layers):
    opts = ("--standalone", "--kind", layers.kind)
    layers.domain.run("sh", "-c", "mkdir -p /root; echo x > /root/f", image="busybox", opts=opts).ok()
    assert layers.domain.run("ls", "/root/f", image="busybox", opts=opts).code == 1
    r = layers.domain.run("true", image="busybox", opts=(*opts, "--persist"))
    assert r.code == 125 and "needs a name" in r.err, r.err
    # The domain's name is one.
    opts = (*opts, "--persist", "--name", layers.name)
    layers.domain.run("touch", "/f", image="busybox", opts=opts).ok()
    assert layers.domain.run("ls", "/f", image="busybox", opts=opts).ok() == "/f\n"


def test_one_domain_at_a_time(layers):
    argv = layers.domain.argv("sh", "-c", "echo up; exec cat", image="busybox", opts=layers.opts)
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as p:
        assert p.stdout.readline() == b"up\n"
        for r in (layers.sh("true"), command("layer", "rm", layers.name), command("diff", layers.name)):
            assert r.code != 0 and f'"{layers.name}" is in use' in r.err, r.err
        assert layers.name not in command("layer", "prune", "-f").ok().split()
        p.stdin.close()
    assert p.returncode == 0 and layers.sh("true").code == 0


def test_it_is_of_one_image_and_kind(layers):
    layers.sh("true").ok()
    r = layers.sh("true", image="debian")
    assert r.code == 125 and "made for the image busybox" in r.err and "not for debian" in r.err, r.err
    other = "para" if layers.kind == "paene" else "paene"
    opts = ("--standalone", "--kind", other, f"--persist={layers.name}")
    r = layers.domain.run("true", image="busybox", opts=opts)
    assert r.code == 125 and f"made for a {layers.kind} domain" in r.err, r.err
    r = layers.domain.run("true", image="busybox", opts=("--standalone", "--persist=a/b"))
    assert "no name of a layer" in r.err, r.err


def test_listed_and_removed(layers):
    layers.sh("dd if=/dev/zero of=/f bs=1M count=3").ok()
    line = next(line for line in command("layer", "ls").ok().splitlines() if line.startswith(layers.name))
    assert ["busybox", layers.kind] == line.split()[1:3] and "MiB" in line, line
    assert command("layer", "rm", layers.name).ok() == f"{layers.name}\n"
    assert layers.name not in command("layer", "ls", "-q").ok().split()
    r = command("layer", "rm", layers.name)
    assert r.code == 1 and f'no layer "{layers.name}"' in r.err
    assert layers.sh("ls /f").code == 1


def test_a_clone_has_the_files_and_no_layer(layers):
    """What it changes afterwards the layer does not hold, and the domain goes on with it."""
    if layers.kind == "paene":
        r = layers.domain.run("true", image="busybox", opts=(*layers.opts, "--freeze-as", "never"))
        assert r.code == 125 and "freezing itself" in r.err, r.err
        return
    layers.sh("head -c 3000000 /dev/zero > /kept; echo one > /file").ok()
    frozen, name = layers.name + "-frozen", layers.name + "-domain"
    script = "echo up; until [ -e /go ]; do sleep 0.1; done; cat /file; echo two > /file; sync"
    argv = layers.domain.argv("sh", "-c", script, image="busybox", opts=(*layers.opts, "--name", name))
    try:
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as p:
            assert p.stdout.readline() == "up\n"
            r = command("hibernate", name)
            assert r.code != 0 and "can be hibernated with a layer" in r.err, r.err
            command("freeze", name, frozen).ok()
            inside = "cat /file; wc -c < /kept; echo clone > /file; sync; cat /file"
            assert command("clone", frozen, "--", "sh", "-c", inside).ok() == "one\n3000000\nclone\n"
            command("exec", name, "touch", "/go").ok()
            out, _ = p.communicate(timeout=60)
            assert (p.returncode, out) == (0, "one\n")
    finally:
        command("frozen", "rm", frozen)
    assert layers.sh("cat /file").ok() == "two\n"


def test_limits_on_the_disk(layers):
    fill = ("dd", "if=/dev/zero", "of=/f", "bs=1M", "count=9")
    r = layers.domain.run(*fill, image="busybox", opts=(*layers.opts, "--disk", "8m"))
    if layers.kind == "paene":
        assert r.code == 125 and "disk" in r.err, r.err
    else:
        assert r.code == 1 and "No space" in r.err, r.err
        assert layers.sh("wc -c < /f").ok() == f"{8 << 20}\n"


def test_diff_export_and_commit(layers):
    made = "mkdir -p /new/deep; echo hi > /new/deep/f; ln /new/deep/f /new/g"
    layers.sh(f"rm /etc/group; echo x >> /etc/passwd; {made}").ok()
    found = command("diff", layers.name).ok().splitlines()
    expected = ["C /etc", "D /etc/group", "C /etc/passwd", "A /new", "A /new/deep", "A /new/deep/f", "A /new/g"]
    assert [line for line in found if line.split()[1].startswith(("/etc", "/new"))] == expected, found
    env = {name: value for name, value in os.environ.items() if name != "DOPPEL_HOST"}
    p = subprocess.run([DOPPEL, "export", layers.name], capture_output=True, env=env, timeout=120)
    assert p.returncode == 0, p.stderr
    with tarfile.open(fileobj=io.BytesIO(p.stdout)) as tar:
        names = {name.removeprefix("./") for name in tar.getnames()}
        assert "new/deep/f" in names and "etc/group" not in names and "bin/busybox" in names, names
        assert tar.getmember("new/g").islnk() and tar.extractfile("etc/passwd").read().endswith(b"x\n")
    image = layers.name + "-image"
    try:
        assert command("commit", layers.name, image).ok().startswith("sha256:")
        opts = ("--standalone", "--kind", layers.kind)
        out = layers.domain.run("sh", "-c", "cat /new/g; ls /etc/group", image=image, opts=opts)
        assert out.out == "hi\n" and out.code != 0, (out.out, out.err)
        assert "of busybox" in command("image", "inspect", image).ok()
    finally:
        command("image", "rm", image)
