"""Another user of the host between a user and the domain they run: a directory prepared for it, and peers of another
user."""

import os
import pathlib
import socket
import subprocess
import tempfile
import threading

import pytest

DOPPEL = os.environ.get("DOPPEL", str(pathlib.Path(__file__).resolve().parent.parent.parent / "target/release/doppel"))
STORE = pathlib.Path(os.environ["DOPPEL_STORE"])
USER, OTHER = 45001, 45002

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="acts as two users")


@pytest.fixture
def place():
    """A directory for temporary files as /tmp is, with an image."""
    with tempfile.TemporaryDirectory(prefix="doppel-holders-") as path:
        path = pathlib.Path(path)
        path.chmod(0o1777)
        images = subprocess.run([DOPPEL, "image", "inspect", "--quick", "busybox"], capture_output=True, text=True)
        if images.returncode != 0:
            pytest.skip("no image busybox: make test-images")
        digest = next(line.split("sha256:")[1] for line in images.stdout.splitlines() if line.startswith("digest"))
        (path / "busybox.erofs").write_bytes((STORE / "images" / f"sha256-{digest.strip()}.erofs").read_bytes())
        yield path


def start(place, *argv, user=USER):
    env = {
        "PATH": os.environ["PATH"],
        "TMPDIR": str(place),
        "HOME": str(place),
        "DOPPEL_STORE": str(place / f"store-{user}"),
    }
    return subprocess.Popen(
        [DOPPEL, *argv],
        env=env,
        user=user,
        group=user,
        extra_groups=[],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def run(place, *argv, user=USER):
    p = start(place, *argv, user=user)
    out, err = p.communicate(timeout=60)
    return p.returncode, out, err


def prepared(path, owner, mode):
    path.mkdir()
    os.chown(path, owner, owner)
    path.chmod(mode)


@pytest.mark.parametrize(
    "owner,mode,why",
    [
        (OTHER, 0o777, b"belongs to user"),
        (OTHER, 0o700, b"belongs to user"),
        (USER, 0o777, b"others can get at it"),
        (USER, 0o750, b"others can get at it"),
    ],
)
def test_a_directory_that_others_can_get_at_is_not_used(place, owner, mode, why):
    base = place / f"doppel-{USER}"
    prepared(base, owner, mode)
    code, _, err = run(place, "exec", "victim", "true")
    assert code == 125 and why in err, err
    # A domain runs, and says that nobody can ask it; nothing of it is written there.
    _, _, err = run(place, "run", "--standalone", "--name", "victim", str(place / "busybox.erofs"), "--", "true")
    assert why in err, err
    assert not any(p for p in base.rglob("*") if p.is_socket()), list(base.rglob("*"))


def test_a_link_to_elsewhere_is_not_followed(place):
    elsewhere = place / "elsewhere"
    prepared(elsewhere, USER, 0o700)
    os.symlink(elsewhere, place / f"doppel-{USER}")
    code, _, err = run(place, "exec", "victim", "true")
    assert code == 125 and b"is no directory" in err, err


@pytest.fixture
def victim(place):
    """A domain of the user, which runs, and its socket."""
    p = start(
        place,
        "run",
        "--standalone",
        "--name",
        "victim",
        str(place / "busybox.erofs"),
        "--",
        "sh",
        "-c",
        "echo up; sleep 1000",
    )
    assert p.stdout.readline() == b"up\n", p.communicate()
    [path] = (place / f"doppel-{USER}/holders").glob("*.sock")
    yield path
    p.kill()
    p.communicate()


def test_the_user_can(place, victim):
    assert run(place, "exec", "victim", "echo", "hello") == (0, b"hello\n", b"")


def opened(place):
    """Others can get at it after all, as if the check of the directory were not there."""
    for path in (place / f"doppel-{USER}", place / f"doppel-{USER}/holders"):
        path.chmod(0o777)


def test_a_client_of_another_user_is_not_answered(place, victim):
    opened(place)
    victim.chmod(0o777)
    ask = f"""
import socket
s = socket.socket(socket.AF_UNIX)
s.settimeout(60)
s.connect({str(victim)!r})
try:
    s.sendall(b'{{"domain":"victim","request":"stats"}}\\n')
    print(len(s.recv(100)))
except (BrokenPipeError, ConnectionResetError):
    print(0)
"""
    p = subprocess.run(
        ["python3", "-c", ask], user=OTHER, group=OTHER, extra_groups=[], capture_output=True, timeout=120
    )
    assert p.stdout == b"0\n", (p.stdout, p.stderr)


def test_a_holder_of_another_user_is_told_nothing(place, victim):
    """One whose socket has taken the place of the real one, in a directory that looks right."""
    victim.unlink()
    heard = []
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(victim))
    os.chown(victim, OTHER, OTHER)
    victim.chmod(0o777)
    try:
        # What counts is who listens.
        os.seteuid(OTHER)
        listener.listen()
    finally:
        os.seteuid(0)

    def serve():
        connection, _ = listener.accept()
        connection.settimeout(60)
        try:
            heard.append(connection.recv(4096))
        except OSError:
            heard.append(b"")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    code, out, err = run(place, "exec", "-e", "TOKEN=secret", "victim", "true")
    assert code == 125 and b"is of user" in err, (code, out, err)
    thread.join(timeout=60)
    listener.close()
    assert b"".join(heard) == b"", heard
