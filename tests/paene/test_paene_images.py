"""Images that the host's kernel must not be given to mount."""
import json
import os
import pathlib

import pytest
from conftest import run, text

SUPER, SLOT = 1024, 32


STORE = pathlib.Path(os.environ["DOPPEL_STORE"])


def image_file(name="busybox"):
    digest = json.loads((STORE / "names" / f"{name}.json").read_text())["digest"]
    return STORE / "images" / f"sha256-{digest}.erofs"


@pytest.fixture
def crafted(tmp_path):
    """An image by its path, changed, with no checksum that would tell."""

    def make(change):
        data = bytearray(image_file().read_bytes())
        data[SUPER + 8] &= ~1
        change(data)
        path = tmp_path / "crafted.erofs"
        path.write_bytes(data)
        return path

    return make


def attached(path):
    """Whether the host has it as a block device."""
    files = pathlib.Path("/sys/block").glob("loop*/loop/backing_file")
    return any(f.read_text().strip() == str(path) for f in files)


def root(data):
    return int.from_bytes(data[SUPER + 14:SUPER + 16], "little") * SLOT


def names_elsewhere(data):
    """The root's first name lies beyond its directory."""
    data[root(data) + 64 + 8:root(data) + 64 + 10] = b"\xff\xff"


def huge_root(data):
    data[root(data) + 8:root(data) + 16] = (1 << 50).to_bytes(8, "little")


def compressed(data):
    data[root(data)] |= 1 << 1


def more_devices(data):
    data[SUPER + 86] = 1


def prefixes(data):
    data[SUPER + 91] = 255


@pytest.mark.parametrize("change", [names_elsewhere, huge_root, compressed, more_devices, prefixes])
def test_a_malformed_image_never_reaches_the_kernel(crafted, change):
    path = crafted(change)
    p = run("true", image=str(path))
    assert p.returncode == 125 and b"not mounted" in p.stderr, (p.returncode, p.stderr)
    assert not attached(path)


def test_a_sound_one_is_mounted(crafted):
    assert text(run("echo", "here", image=str(crafted(lambda data: None)))) == "here\n"


@pytest.mark.parametrize("owner,mode", [(12345, 0o644), (0, 0o666), (0, 0o664)])
def test_one_that_others_can_change_is_not_mounted(crafted, owner, mode):
    path = crafted(lambda data: None)
    os.chown(path, owner, 0)
    path.chmod(mode)
    p = run("true", image=str(path))
    assert p.returncode == 125 and b"others than root" in p.stderr, (p.returncode, p.stderr)
    assert not attached(path)


def test_one_that_was_found_good_and_changed_is_looked_at_again(crafted):
    path = crafted(lambda data: None)
    text(run("true", image=str(path)))
    data = bytearray(path.read_bytes())
    names_elsewhere(data)
    with open(path, "r+b") as file:
        file.write(data)
    p = run("true", image=str(path))
    assert p.returncode == 125 and b"not mounted" in p.stderr, (p.returncode, p.stderr)
