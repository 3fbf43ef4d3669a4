"""Images of the tests, and the host's kernel on their files: what a domain is compared with when versions matter.

`make_image` makes an image of host files; `root_of` unpacks any image; `Chroot` runs commands natively in one, with
a PID namespace, /proc, the host's /dev and a tmpfs on /tmp. `columns` compares the outcomes of a program's own tests.
"""
import concurrent.futures
import fcntl
import json
import os
import pathlib
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
from conftest import BUILD, DOPPEL, Native, call, have_image

STORE = pathlib.Path(os.environ["DOPPEL_STORE"])
# Long tests run only when asked.
ALL = os.environ.get("TEST_ALL", "") not in ("", "0")
ENTER = """
mount --rbind /dev "$0/dev" && mount -t proc proc "$0/proc" && mount -t tmpfs -o mode=1777 tmp "$0/tmp" &&
exec chroot "$0" /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp \
    sh -c 'cd "$1"; shift; exec /usr/bin/env "$@"' - "$@"
"""
APPLETS = "sh true false echo cat ls sleep kill pwd env date hostname head id whoami mkdir rm chmod stty tty seq tail"


def need_image(name: str) -> None:
    if not have_image(name):
        pytest.skip(f"no image {name}: make test-images")


def long(why: str) -> None:
    """Skips a test that `make test` has no time for."""
    if not ALL:
        pytest.skip(f"{why}: make test-all")


def make_image(name: str, files: Iterable[Any], extra: Sequence[Any] = ()) -> Any:
    """An image of host programs with their libraries and a small system around them; `extra` are (from, to)."""
    root = BUILD / name
    shutil.rmtree(root, ignore_errors=True)
    for d in ("bin", "usr/bin", "tmp", "proc", "sys", "dev", "etc"):
        (root / d).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    (root / "etc/passwd").write_text("root:x:0:0:root:/:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\n")
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")
    (root / "etc/resolv.conf").write_text("")
    for f in ("services", "protocols"):
        if os.path.exists(f"/etc/{f}"):
            shutil.copy(f"/etc/{f}", root / "etc" / f)
    shutil.copy("/bin/busybox", root / "bin/busybox")
    for applet in APPLETS.split():
        (root / "bin" / applet).symlink_to("busybox")
    (root / "usr/bin/env").symlink_to("/bin/busybox")
    for f in files:
        libs = re.findall(r"(/\S+) \(0x", subprocess.run(["ldd", f], capture_output=True, text=True).stdout)
        for path in {str(f), *libs}:
            to = root / path[1:]
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, to)
    for path, to in extra:
        (root / to).parent.mkdir(parents=True, exist_ok=True)
        if os.path.isdir(path):
            shutil.copytree(path, root / to, dirs_exist_ok=True)
        else:
            shutil.copy(path, root / to)
    subprocess.run([DOPPEL, "image", "rm", name], capture_output=True)
    subprocess.run([DOPPEL, "image", "import", root, name], check=True, capture_output=True)
    return name


def root_of(image: str) -> Any:
    """The directory of an image's files, unpacked when it has not been."""
    out = subprocess.run(
        [DOPPEL, "image", "inspect", "--quick", "--json", image], capture_output=True, check=True
    ).stdout
    digest = json.loads(out)["digest"]
    roots = BUILD / "roots"
    root = roots / f"{image}-{digest[:16]}"
    if root.exists():
        return root
    roots.mkdir(parents=True, exist_ok=True)
    with open(roots / "lock", "w") as lock:
        # Tests of another process may want it too.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not root.exists():
            for old in roots.glob(f"{image}-*"):
                shutil.rmtree(old)
            part = roots / "part"
            shutil.rmtree(part, ignore_errors=True)
            subprocess.run(
                ["fsck.erofs", f"--extract={part}", STORE / f"images/sha256-{digest}.erofs"],
                check=True,
                capture_output=True,
            )
            part.rename(root)
    return root


class Chroot(Native):
    """The host's kernel, the image's files."""

    def __init__(self) -> None:
        pass

    def run(
        self,
        *argv: Any,
        stdin: Any = b"",
        timeout: float = 60,
        image: str = "debian",
        env: Any = (),
        workdir: str = "/tmp",
        opts: Sequence[str] = (),
    ) -> Any:
        extra = [f"{k}={v}" for k, v in dict(env).items()]
        enter = [
            "unshare",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "sh",
            "-c",
            ENTER,
            str(root_of(image)),
            workdir,
            *extra,
            *argv,
        ]
        return call(enter, stdin, timeout)


def both(run: Callable[[Any], Any], *places: Any) -> Any:
    """`run(place)` for all places at the same time: most of such a time is waiting."""
    with concurrent.futures.ThreadPoolExecutor(len(places)) as pool:
        return list(pool.map(run, places))


def columns(capsys: pytest.CaptureFixture[str], what: str, native: Any, domain: Any, known: Any = ()) -> None:
    """Compares {test: "ok" | "skip" | text of a failure} of both places, and prints the counts.

    A test counts when it passes natively. Those of `known` ({test: why}) may fail in a domain, and must: a difference
    that is gone is to be taken off the list.
    """
    count = {t for t, o in native.items() if o == "ok"}
    known = dict(known)
    bad = {t: domain.get(t, "not run") for t in count if domain.get(t, "not run") != "ok" and t not in known}
    gone = [t for t in known if t in count and domain.get(t) == "ok"]
    good = sum(1 for t in count if domain.get(t) == "ok")
    with capsys.disabled():
        print(f"\n{what}: {len(count)} passed natively, {good} of these in a domain")
    assert count, f"{what}: nothing passed natively: {list(native.items())[:3]}"
    assert not bad, "\n".join(f"{t}: {o}" for t, o in sorted(bad.items())[:20])
    assert not gone, f"passes now, take it off the list of known differences: {gone}"
