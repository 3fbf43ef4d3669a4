"""`doppel cp`: files into and out of a running domain."""
import io
import os
import pathlib
import stat
import subprocess
import tarfile

import pytest
from conftest import DOPPEL, Running, call


@pytest.fixture
def at(box, request):
    path = "/tmp/" + request.node.name
    box.exec("mkdir", path).ok()
    return path


def cp(source, target, stdin=b""):
    return call([DOPPEL, "cp", str(source), str(target)], stdin, 60)


def tree(top):
    """Everything below a directory: kind, mode, size, link, content."""
    found = {}
    for dir, dirs, files in os.walk(os.fsencode(top)):
        for name in dirs + files:
            path = os.path.join(dir, name)
            st = os.lstat(path)
            content = os.readlink(path) if stat.S_ISLNK(st.st_mode) else b""
            if stat.S_ISREG(st.st_mode):
                content = pathlib.Path(os.fsdecode(path)).read_bytes()
            mode = 0 if stat.S_ISLNK(st.st_mode) else st.st_mode & 0o777
            found[os.path.relpath(path, os.fsencode(top))] = (
                stat.S_IFMT(st.st_mode),
                mode,
                content,
                st.st_mtime_ns // 1000,
            )
    return found


def test_there_and_back(box, at, tmp_path):
    src = tmp_path / "src"
    (src / "sub" / "deep").mkdir(parents=True)
    (src / "plain").write_bytes(b"plain\n")
    (src / "sub" / "large").write_bytes(os.urandom(5 << 20))
    (src / "empty").touch()
    (src / "script").write_text("#!/bin/sh\n")
    (src / "script").chmod(0o755)
    (src / "read-only").mkdir()
    (src / "read-only" / "f").write_text("x")
    (src / "link").symlink_to("sub/large")
    (src / "dangling").symlink_to("/no/where")
    for name in ("with space", "new\nline", "-dash", "quote'\"", "*", "\u00fcml\u00e4ut", "x" * 255, "back\\slash"):
        (src / name).write_text(name)
    with open(os.fsencode(src) + b"/bytes\xff\xfe", "wb") as f:
        f.write(b"bytes")
    with open(src / "sparse", "wb") as f:
        f.truncate(64 << 20)
        f.seek(32 << 20)
        f.write(b"island")
    os.utime(src / "plain", ns=(10**18 + 5, 10**18 + 123456789))
    (src / "read-only").chmod(0o555)
    cp(src, f"{box.name}:{at}").ok()
    assert box.exec("cat", f"{at}/src/plain").ok() == "plain\n"
    assert box.exec("stat", "-c", "%u %g", f"{at}/src/plain").ok() == "0 0\n"
    assert int(box.exec("du", "-k", f"{at}/src/sparse").ok().split()[0]) < 1000
    back = tmp_path / "back"
    cp(f"{box.name}:{at}/src", back).ok()
    assert tree(back) == tree(src)
    assert os.stat(back / "sparse").st_blocks < 2000
    (back / "read-only").chmod(0o755)


def test_where_to(box, at, tmp_path):
    """Docker's rules."""
    (tmp_path / "f").write_text("file")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "x").write_text("inside")
    cp(tmp_path / "f", f"{box.name}:{at}").ok()
    cp(tmp_path / "f", f"{box.name}:{at}/g").ok()
    cp(tmp_path / "d", f"{box.name}:{at}/new").ok()
    cp(tmp_path / "d", f"{box.name}:{at}/new").ok()
    cp(str(tmp_path / "d") + "/.", f"{box.name}:{at}").ok()
    names = set(box.exec("sh", "-c", f"cd {at}; find . -type f").ok().split())
    assert names == {"./f", "./g", "./new/x", "./new/d/x", "./x"}
    r = cp(tmp_path / "f", f"{box.name}:{at}/none/f")
    assert r.code == 125 and "no such file or directory" in r.err
    r = cp(tmp_path / "d", f"{box.name}:{at}/f")
    assert r.code == 125 and "no directory" in r.err
    out = tmp_path / "out"
    out.mkdir()
    cp(f"{box.name}:{at}/f", out).ok()
    cp(f"{box.name}:{at}/f", out / "renamed").ok()
    cp(f"{box.name}:{at}/new", out / "fresh").ok()
    cp(f"{box.name}:{at}/new/.", out).ok()
    assert {str(p.relative_to(out)) for p in out.rglob("*") if p.is_file()} == {
        "f",
        "renamed",
        "fresh/x",
        "fresh/d/x",
        "x",
        "d/x",
    }
    r = cp(f"{box.name}:{at}/none", out)
    assert r.code == 125 and "no such file or directory" in r.err
    r = cp("no-such-domain:/f", out)
    assert r.code == 125 and "no domain named" in r.err
    assert cp(tmp_path / "none", f"{box.name}:{at}").code == 125
    assert cp(tmp_path / "f", tmp_path / "g").code == 125


def test_streams(box, at, tmp_path):
    p = subprocess.run([DOPPEL, "cp", f"{box.name}:/etc", "-"], capture_output=True, timeout=60)
    assert p.returncode == 0
    with tarfile.open(fileobj=io.BytesIO(p.stdout)) as t:
        assert "etc" in t.getnames()
    p = subprocess.run([DOPPEL, "cp", "-", f"{box.name}:{at}"], input=p.stdout, timeout=60)
    assert p.returncode == 0
    assert box.exec("ls", f"{at}/etc").ok() == box.exec("ls", "/etc").ok()


def test_devices_stay_inside(box, tmp_path):
    r = cp(f"{box.name}:/dev/null", tmp_path)
    assert r.code == 125 and "devices" in r.err
    assert list(tmp_path.iterdir()) == []


def test_a_domain_that_lies(tmp_path):
    """A tree whose links point outside comes as links, and nothing is written through them."""
    domain = Running(
        "busybox",
        "sh",
        "-c",
        f"mkdir -p /t/a; ln -s {tmp_path}/victim /t/a/link; ln -s / /t/a/root; echo up; exec sleep 1000",
    )
    (tmp_path / "victim").write_text("untouched")
    out = tmp_path / "out"
    out.mkdir()
    for _ in range(2):
        cp(f"{domain.name}:/t/a", out).ok()
    domain.exec("sh", "-c", "cd /t/a; rm link root; echo evil > link; mkdir root; echo evil > root/etc").ok()
    # Where the link was there is a file now; a directory does not replace a link.
    r = cp(f"{domain.name}:/t/a", out)
    assert r.code == 125 and "in its way" in r.err
    assert (tmp_path / "victim").read_text() == "untouched"
    assert (out / "a" / "link").read_text() == "evil\n" and not (out / "a" / "link").is_symlink()
    domain.stop()
