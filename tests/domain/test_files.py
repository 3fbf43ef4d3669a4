"""The guest kernel's built-in commands: files and processes of a running domain, without a program of the image."""
import io
import os
import subprocess
import tarfile

import pytest
from conftest import DOPPEL, eventually


@pytest.fixture
def at(box, request):
    """A directory of the test's own in the domain."""
    path = "/tmp/" + request.node.name
    builtin(box, "mkdir", path)
    return path


def raw(box, *command, stdin=b"", opts=()):
    argv = [DOPPEL, "exec", "--builtin", "-i", *opts, box.name, *command]
    p = subprocess.run(argv, input=stdin, capture_output=True, timeout=60)
    return p.returncode, p.stdout, p.stderr


def builtin(box, *command, stdin=b"", opts=()):
    code, out, err = raw(box, *command, stdin=stdin, opts=opts)
    assert code == 0, (command, code, err)
    assert err == b""
    return out


def refused(box, *command, stdin=b"", opts=()):
    code, _, err = raw(box, *command, stdin=stdin, opts=opts)
    assert code == 1
    return err.decode(errors="replace").split(":")[0]


def records(out):
    parts = out.split(b"\0")
    assert parts.pop() == b""
    for head, target in zip(parts[::2], parts[1::2], strict=True):
        kind, size, mode, uid, gid, _mtime, links, name = head.split(b" ", 7)
        yield name, (kind.decode(), int(size), int(mode, 8), int(uid), int(gid), int(links), target)


def test_write_and_read(box, at):
    data = os.urandom(300_000)
    builtin(box, "write", at + "/new/dir/f", "640", stdin=data)
    assert builtin(box, "read", at + "/new/dir/f") == data
    assert builtin(box, "read", at + "/new/dir/f", "1000", "70000") == data[1000:71000]
    assert builtin(box, "read", at + "/new/dir/f", "299999") == data[-1:]
    builtin(box, "write", at + "/new/dir/f", "600", stdin=b"shorter")
    [(_, info)] = records(builtin(box, "stat", at + "/new/dir/f"))
    assert info == ("f", 7, 0o600, 0, 0, 1, b"")
    assert refused(box, "read", at + "/none") == "ENOENT"
    assert refused(box, "read", at) == "EISDIR"
    assert refused(box, "write", at, stdin=b"x") == "EISDIR"
    assert refused(box, "write", "/proc/none", stdin=b"x") in ("ENOENT", "EACCES", "EPERM", "EROFS")


def test_stat_and_list(box, at):
    box.exec(
        "sh", "-c", f"cd {at}; mkdir -p d/e; echo x > d/f; ln -s ../f d/l; ln -s d/f follow; mkfifo p; touch 'a b\n'"
    ).ok()
    found = dict(records(builtin(box, "list", at, "9")))
    assert set(found) == {b"d", b"d/e", b"d/f", b"d/l", b"follow", b"p", b"a b\n"}
    assert found[b"d/l"][0] == "l" and found[b"d/l"][-1] == b"../f" and found[b"p"][0] == "p"
    assert set(dict(records(builtin(box, "list", at)))) == {b"d", b"follow", b"p", b"a b\n"}
    [(_, link)] = records(builtin(box, "stat", at + "/follow"))
    [(_, file)] = records(builtin(box, "stat", "-L", at + "/follow"))
    assert link[0] == "l" and file[:2] == ("f", 2)
    assert refused(box, "list", at + "/d/f") == "ENOTDIR"
    assert refused(box, "stat") == "EINVAL"


def test_remove_and_rename(box, at):
    box.exec(
        "sh",
        "-c",
        f"cd {at}; mkdir -p a/b/c a/d; touch a/b/f a/b/c/g a/h; ln -s /etc a/etc; mkdir other; touch other/x",
    ).ok()
    assert refused(box, "remove", at + "/a") == "ENOTEMPTY"
    builtin(box, "rename", at + "/a", at + "/z")
    builtin(box, "remove", "-r", at + "/z")
    assert refused(box, "stat", at + "/z") == "ENOENT"
    # A link is removed, not what it points to.
    assert len(list(records(builtin(box, "list", "/etc")))) > 0
    builtin(box, "remove", at + "/other/x")
    builtin(box, "remove", at + "/other")
    assert list(records(builtin(box, "list", at))) == []
    assert refused(box, "remove", "-r", "/") == "EINVAL"
    assert refused(box, "remove", at + "/..") == "EINVAL"


def test_identity(box, at):
    """The caller's permissions count."""
    user = ["-u", "1000:1000"]
    assert refused(box, "write", at + "/f", stdin=b"x", opts=user) == "EACCES"
    builtin(box, "mkdir", at + "/open", "777")
    box.exec("chmod", "777", at + "/open").ok()
    builtin(box, "write", at + "/open/f", "600", stdin=b"x", opts=user)
    [(_, info)] = records(builtin(box, "stat", at + "/open/f"))
    assert info[3:5] == (1000, 1000)
    builtin(box, "write", at + "/secret", "600", stdin=b"x")
    assert refused(box, "read", at + "/secret", opts=user) == "EACCES"
    assert refused(box, "remove", at + "/secret", opts=user) == "EACCES"


def archive(*members):
    """A tar archive of (name, type, link, data)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as t:
        for name, kind, link, data in members:
            m = tarfile.TarInfo(name)
            m.type, m.linkname, m.size, m.mode = kind, link, len(data), 0o644
            t.addfile(m, io.BytesIO(data))
    return out.getvalue()


def test_tar_out(box, at):
    name = "n" * 120 + "/" + "\u00e9" * 60
    box.exec(
        "sh",
        "-c",
        f"cd {at}; mkdir -p t/{'n' * 120}; echo long > t/{name}; echo x > t/f; ln t/f t/h; ln -s f t/l; chown 12:34 "
        "t/f;"
        " chmod 2751 t/f; mkfifo t/p; mknod t/null c 1 3; touch -d '2001-02-03 04:05:06' t/f",
    ).ok()
    out = builtin(box, "tar-out", at + "/t")
    with tarfile.open(fileobj=io.BytesIO(out)) as t:
        m = {x.name: x for x in t.getmembers()}
        assert set(m) == {"t", "t/f", "t/h", "t/l", "t/p", "t/null", "t/" + "n" * 120, "t/" + name}
        assert t.extractfile("t/" + name).read() == b"long\n"
        assert {m["t/f"].type, m["t/h"].type} == {tarfile.REGTYPE, tarfile.LNKTYPE}
        f = next(x for x in (m["t/f"], m["t/h"]) if x.isreg())
        assert (f.mode, f.uid, f.gid, int(f.mtime)) == (0o2751, 12, 34, 981173106)
        assert (m["t/null"].devmajor, m["t/null"].devminor) == (1, 3)
        assert m["t/l"].linkname == "f" and m["t/p"].isfifo()
    # A file by itself; and what is in a directory.
    with tarfile.open(fileobj=io.BytesIO(builtin(box, "tar-out", at + "/t/l"))) as t:
        assert t.getnames() == ["l"]
    with tarfile.open(fileobj=io.BytesIO(builtin(box, "tar-out", at + "/t/."))) as t:
        assert "./f" in t.getnames()
    # Mounted file systems are left out.
    with tarfile.open(fileobj=io.BytesIO(builtin(box, "tar-out", "/"))) as t:
        names = t.getnames()
        assert any(n.endswith("bin/busybox") for n in names) and not any("proc/self" in n for n in names)


def test_tar_in(box, at):
    """What this host's tar makes arrives, and comes back the same."""
    big = bytes(100_000) + os.urandom(50_000) + bytes(1 << 20)
    data = archive(
        ("d", tarfile.DIRTYPE, "", b""),
        ("d/" + "x" * 150, tarfile.REGTYPE, "", b"one"),
        ("d/f", tarfile.REGTYPE, "", big),
        ("d/h", tarfile.LNKTYPE, "d/f", b""),
        ("d/l", tarfile.SYMTYPE, "nowhere", b""),
        ("d/\udcff\udcfe", tarfile.REGTYPE, "", b"bytes"),
    )
    builtin(box, "tar-in", at, stdin=data)
    found = dict(records(builtin(box, "list", at, "9")))
    assert found[b"d/f"][1] == len(big) and found[b"d/f"][5] == 2
    assert found[b"d/l"][-1] == b"nowhere" and b"d/\xff\xfe" in found
    assert builtin(box, "read", at + "/d/h") == big
    # A second time replaces.
    builtin(
        box,
        "tar-in",
        at,
        stdin=archive(("d/l", tarfile.REGTYPE, "", b"now a file"), ("d/f", tarfile.REGTYPE, "", b"new")),
    )
    assert builtin(box, "read", at + "/d/l") == b"now a file"
    assert builtin(box, "read", at + "/d/h") == big


@pytest.mark.parametrize(
    "members, errno",
    [
        ([("../x", tarfile.REGTYPE, "", b"x")], "EINVAL"),
        ([("a/../../x", tarfile.REGTYPE, "", b"x")], "EINVAL"),
        ([("l", tarfile.SYMTYPE, "/etc", b""), ("l/x", tarfile.REGTYPE, "", b"x")], "ELOOP"),
        ([("l", tarfile.SYMTYPE, "..", b""), ("l/x", tarfile.DIRTYPE, "", b"")], "ELOOP"),
        ([("l", tarfile.SYMTYPE, "/etc", b""), ("l", tarfile.DIRTYPE, "", b"")], "ELOOP"),
        ([("h", tarfile.LNKTYPE, "../../etc/passwd", b"")], "EINVAL"),
        ([("l", tarfile.SYMTYPE, "/etc", b""), ("h", tarfile.LNKTYPE, "l/passwd", b"")], "ELOOP"),
        ([("h", tarfile.LNKTYPE, "none", b"")], "ENOENT"),
        ([("d", tarfile.DIRTYPE, "", b""), ("d", tarfile.REGTYPE, "", b"x")], "EISDIR"),
        ([("f", tarfile.REGTYPE, "", b"x"), ("f/x", tarfile.REGTYPE, "", b"x")], "ENOTDIR"),
    ],
)
def test_hostile_tar(box, at, members, errno):
    assert refused(box, "tar-in", at, stdin=archive(*members)) == errno
    for outside in ("/tmp/x", "/etc/x", "/x"):
        assert refused(box, "stat", outside) == "ENOENT"


def test_absolute_names_stay_below(box, at):
    builtin(box, "tar-in", at, stdin=archive(("/etc/abs", tarfile.REGTYPE, "", b"x")))
    assert builtin(box, "read", at + "/etc/abs") == b"x"
    assert refused(box, "stat", "/etc/abs") == "ENOENT"


def test_broken_tar(box, at):
    good = archive(("f", tarfile.REGTYPE, "", b"x" * 5000))
    assert refused(box, "tar-in", at, stdin=good[:3000]) == "EINVAL"
    assert refused(box, "tar-in", at, stdin=b"no archive at all " * 100) == "EINVAL"
    assert refused(box, "tar-in", at, stdin=good[:100]) == "EINVAL"
    builtin(box, "tar-in", at, stdin=b"")
    # The end mark may be missing.
    builtin(box, "tar-in", at, stdin=good[: 512 + 5120])


def test_watch(box, at):
    p = subprocess.Popen([DOPPEL, "exec", "--builtin", box.name, "watch", "-r", at], stdout=subprocess.PIPE)

    def next_record():
        out = b""
        while not out.endswith(b"\0"):
            byte = p.stdout.read(1)
            assert byte, out
            out += byte
        return out[:-1].decode()

    assert next_record() == "ready "
    box.exec("sh", "-c", f"cd {at}; echo x > n; mkdir q").ok()
    assert [next_record() for _ in range(4)] == ["created n", "modified n", "written n", "created q"]
    box.exec("sh", "-c", f"cd {at}; mkdir q/sub; rm n; mv q r").ok()
    assert [next_record() for _ in range(4)] == ["created q/sub", "removed n", "removed q", "created r"]
    p.kill()
    p.wait()
    p.stdout.close()
    # Without its caller it ends.
    assert eventually(lambda: b"watch" not in builtin(box, "processes"))


def test_processes(box):
    p = subprocess.Popen(
        [DOPPEL, "exec", "-u", "7:8", box.name, "sh", "-c", "echo ready; sleep 100; true"], stdout=subprocess.PIPE
    )
    assert p.stdout.readline() == b"ready\n"

    def processes():
        found = {}
        for line in builtin(box, "processes").split(b"\0")[:-1]:
            pid, ppid, uid, gid, state, threads, cpu, age, rss, command = line.split(b" ", 9)
            found[command] = (int(pid), int(ppid), int(uid), int(gid), state, int(threads))
            assert int(cpu) >= 0 and int(age) > 0 and (int(rss) > 0 or state == b"Z")
        return found

    # The shell's child is there a moment after its word, and is the shell first.
    assert eventually(lambda: b"sleep 100" in processes()), processes()
    found = processes()
    shell = found[b"sh -c echo ready; sleep 100; true"]
    assert shell[1:4] == (0, 7, 8) and found[b"sleep 100"][1] == shell[0]
    assert found[b"sleep 1000"] == (1, 0, 0, 0, b"S", 1)
    p.kill()
    p.wait()
    p.stdout.close()
    box.exec("pkill", "sleep 100")
