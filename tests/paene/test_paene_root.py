"""The image as a paene domain's root: mounted, or unpacked in the store where the host cannot mount it."""
import os
import pathlib
import shutil
import subprocess

import pytest
from conftest import DOPPEL, Doppeld, argv, eventually, run, text

UNPACKED = {**os.environ, "DOPPEL_PAENE_ROOT": "unpacked"}
STORE = pathlib.Path(os.environ["DOPPEL_STORE"])
# All of a file that does not tell how it is stored.
LIST = """
import hashlib, os, stat
for at, dirs, files in os.walk("/"):
    dirs[:] = sorted(d for d in dirs if os.path.join(at, d) not in ("/proc", "/sys", "/dev"))
    for name in sorted(dirs + files) + ([""] if at == "/" else []):
        path = os.path.join(at, name)
        s = os.lstat(path)
        kind = stat.S_IFMT(s.st_mode)
        data = hashlib.sha256(open(path, "rb").read()).hexdigest() if kind == stat.S_IFREG else os.readlink(path) if kind == stat.S_IFLNK else ""
        size, links = (0, 0) if kind == stat.S_IFDIR else (s.st_size, s.st_nlink)
        attributes = [(a, os.getxattr(path, a, follow_symlinks=False)) for a in sorted(os.listxattr(path, follow_symlinks=False))]
        print(path, oct(s.st_mode), s.st_uid, s.st_gid, size, links, s.st_rdev, s.st_mtime_ns if path != "/" else 0, data, attributes)
"""  # noqa: E501


def unpacked(*command, image="busybox", opts=(), env=UNPACKED):
    return subprocess.run(argv(*command, image=image, opts=opts), capture_output=True, timeout=300, env=env)


@pytest.fixture
def store(tmp_path):
    """A store of its own with one image of strange files, and the environment to use it."""
    tree = tmp_path / "tree"
    shutil.copytree("/bin", tree / "bin", symlinks=True, ignore=lambda d, names: [n for n in names if n != "busybox"])
    if not (tree / "bin/busybox").exists():
        pytest.skip("no busybox on this host")
    for name in ("sh", "stat", "cat", "ls", "getfattr", "sleep", "md5sum", "find", "sort"):
        (tree / "bin" / name).symlink_to("busybox")
    (tree / "etc").mkdir()
    (tree / "etc/secret").write_text("secret")
    os.chown(tree / "etc/secret", 7, 9)
    (tree / "etc/secret").chmod(0o4640)
    os.link(tree / "etc/secret", tree / "etc/again")
    os.mkfifo(tree / "etc/fifo")
    os.utime(tree / "etc/secret", ns=(1, 1_234_567_890_123_456_789))
    env = {**UNPACKED, "DOPPEL_STORE": str(tmp_path / "store")}
    text(subprocess.run([DOPPEL, "image", "import", str(tree), "strange"], env=env, capture_output=True))
    return tmp_path / "store", env


def test_both_forms_show_the_same_files(image):
    mounted = text(run("python3", "-c", LIST, image=image("debian"), timeout=300))
    again = text(unpacked("python3", "-c", LIST, image="debian"))
    assert mounted.count("\n") > 1000
    assert again.splitlines() == mounted.splitlines()


def below(p):
    """The attendant of a command."""
    return open(f"/proc/{p.pid}/task/{p.pid}/children").read().split()[0]


def test_one_directory_for_all_domains(started, store):
    place, env = store
    script = (
        "stat -c '%u:%g %a %h %Y' /etc/secret; stat -c %F /etc/fifo; echo x >> /etc/secret; cat /etc/secret; exec "
        "sleep 1000"
    )
    both = [started("sh", "-c", script, image="strange", env=env) for _ in range(2)]
    for p in both:
        assert [p.stdout.readline() for _ in range(3)] == [b"7:9 4640 2 1234567890\n", b"fifo\n", b"secretx\n"]
    [directory] = (place / "unpacked").iterdir()
    assert (directory / "etc/secret").read_text() == "secret" and os.stat(place / "unpacked").st_mode & 0o777 == 0o700

    def lower(p):
        return next(line.split() for line in open(f"/proc/{below(p)}/mountinfo") if " /run/lower " in line)

    mounts = [lower(p) for p in both]
    assert mounts[0][2:4] == mounts[1][2:4] and mounts[0][3].endswith(directory.name), mounts
    assert "ro" in mounts[0][5].split(",") and "nodev" in mounts[0][5].split(","), mounts
    # Who uses it keeps it.
    text(subprocess.run([DOPPEL, "image", "rm", "strange"], env=env, capture_output=True))
    assert directory.exists()
    assert (
        text(
            subprocess.run(["nsenter", "-t", below(both[0]), "-m", "cat", "/run/lower/etc/secret"], capture_output=True)
        )
        == "secret"
    )
    for p in both:
        p.kill()
        p.wait()
    tree = place.parent / "other"
    tree.mkdir()

    def gone():
        text(subprocess.run([DOPPEL, "image", "import", str(tree), "other"], env=env, capture_output=True))
        return not directory.exists()

    eventually(gone, "it goes with what is done to the store once nobody uses it")


def test_removing_the_image_removes_it(store):
    place, env = store
    assert text(unpacked("cat", "/etc/secret", image="strange", env=env)) == "secret"
    assert len(list((place / "unpacked").iterdir())) == 1
    text(subprocess.run([DOPPEL, "image", "rm", "strange"], env=env, capture_output=True))
    assert list((place / "unpacked").iterdir()) == []


def test_one_that_was_left_unfinished_is_made_anew(store):
    place, env = store
    left = place / "unpacked/new-left"
    left.mkdir(parents=True)
    assert text(unpacked("cat", "/etc/secret", image="strange", env=env)) == "secret"
    text(subprocess.run([DOPPEL, "image", "rm", "strange"], env=env, capture_output=True))
    assert not left.exists()


def test_hosts_without_loop_devices(store):
    """/dev without them, in a mount namespace of its own."""
    place, env = store
    env = {k: v for k, v in env.items() if k != "DOPPEL_PAENE_ROOT"}
    script = (
        "mount -t tmpfs x /mnt; mkdir /mnt/net; for d in null zero random urandom full tty net/tun; do touch "
        f"/mnt/$d; mount --bind /dev/$d /mnt/$d; done; mount --move /mnt /dev; {DOPPEL} doctor; exec {DOPPEL} run "
        "--standalone --kind paene strange -- cat /etc/secret"
    )
    p = subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True, timeout=60, env=env)
    assert p.stdout.endswith(b"secret") and b"unpacked in the store" in p.stdout, p
    assert len(list((place / "unpacked").iterdir())) == 1


def test_through_a_supervisor():
    d = Doppeld(env={"DOPPEL_PAENE_ROOT": "unpacked"}).start()
    try:
        assert text(d.cli("run", "--rm", "--kind", "paene", "busybox", "echo", "ran")) == "ran\n"
        assert list((STORE / "unpacked").glob("sha256-*"))
    finally:
        d.close()


def test_nonsense_is_refused():
    p = unpacked("true", env={**os.environ, "DOPPEL_PAENE_ROOT": "else"})
    assert p.returncode == 125 and b"DOPPEL_PAENE_ROOT" in p.stderr, p
