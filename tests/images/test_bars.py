"""What a terminal shows while an image is made."""
import io
import os
import pty
import select
import subprocess
import tarfile

import oci


def archive():
    """A root file system with a program, as an archive."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        tar.add(oci.BUSYBOX, "bin/busybox")
    return file.getvalue()


def test_a_terminal_shows_what_is_done(store):
    ours, theirs = pty.openpty()
    p = store.popen("image", "import", "-", "bars", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    tar = archive()
    p.stdin.write(tar[: len(tar) // 2])
    p.stdin.flush()
    # The archive does not end before the bar is there.
    seen = b""
    while b"unpacking" not in seen:
        assert select.select([ours], [], [], 60)[0], seen
        seen += os.read(ours, 4096)
    p.stdin.write(tar[len(tar) // 2 :])
    p.stdin.close()
    assert b"bars: " in p.stdout.read()
    assert p.wait() == 0
    os.close(ours)


def test_nothing_but_a_terminal_does(store):
    done = store.run("image", "import", "-", "bars", input=archive())
    assert (done.returncode, done.stderr) == (0, b"")
