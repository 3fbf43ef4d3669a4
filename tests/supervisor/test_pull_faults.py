"""The supervisor killed while it pulls images, and a disk too small for one: the store stays whole.

Rounds are few in CI; DOPPEL_FAULT_ROUNDS asks for more (soak: 100).
"""
import os
import random
import subprocess
import sys
import time

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "tests/images"))
import oci

ROUNDS = int(os.environ.get("DOPPEL_FAULT_ROUNDS", "5"))

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture(scope="module")
def registry(binaries, tmp_path_factory):
    """A registry with an image of one layer around busybox."""
    for path in oci.TOOLS:
        if not os.path.exists(path):
            pytest.skip(f"no {path}: make setup")
    top = tmp_path_factory.mktemp("layout")
    layout = top / "layout"
    oci.tool("umoci", "init", "--layout", layout)
    oci.tool("umoci", "new", "--image", f"{layout}:base")
    oci.tool("umoci", "unpack", "--image", f"{layout}:base", top / "bundle")
    oci.small_root(top / "bundle/rootfs")
    oci.tool("umoci", "repack", "--image", f"{layout}:base", top / "bundle")
    registry = oci.Faulty(layout, "base")
    yield registry
    registry.stop()
    subprocess.run(["rm", "-rf", top])


def without_images(new_doppeld, directory):
    """A supervisor over an empty store."""
    (directory / "store/images").mkdir(parents=True)
    return new_doppeld(directory=directory).start()


def pull(d, registry):
    """Begins to pull; gives the operation's id."""
    return d.post("/v1/images/pull", {"reference": f"{registry.host}/team/base:1", "name": "pulled"}).ok(202)["id"]


def ended(d, operation):
    return d.get(f"/v1/operations/{operation}?wait=true").ok()


def whole(d):
    """Nothing is in the store but what images that there are need, and those are whole; gives their names."""
    d.post("/v1/images/prune").ok()
    return [record["name"] for record in oci.Store(d.store).check()]


def test_killed_during_pull(new_doppeld, registry, tmp_path):
    d = without_images(new_doppeld, tmp_path / "place")
    begun = time.monotonic()
    assert ended(d, pull(d, registry))["state"] == "succeeded"
    took = time.monotonic() - begun
    # A domain that has ended still needs its image.
    d.post("/v1/domains?start=true", {"image": "pulled", "name": "user", "command": ["true"]}).ok()
    d.post("/v1/domains/user/wait").ok()
    d.delete("/v1/images/pulled").problem(409, "in_use")
    d.delete("/v1/domains/user").ok()
    d.delete("/v1/images/pulled").ok()
    assert whole(d) == []
    for i in range(ROUNDS):
        operation = pull(d, registry)
        time.sleep(random.uniform(0, took * 1.1))
        d.kill()
        d.start()
        state = ended(d, operation)["state"]
        names = [x["name"] for x in d.get("/v1/images").ok()]
        # It may have been done, and only its end not written down.
        assert names == ["pulled"] if state == "succeeded" else names in ([], ["pulled"]), (state, names)
        if names:
            d.delete("/v1/images/pulled").ok()
        # With every other round what has come is collected, else it is gone on with.
        if i % 2:
            assert whole(d) == []
    assert ended(d, pull(d, registry))["state"] == "succeeded"
    assert whole(d) == ["pulled"]


def test_a_disk_too_small_for_an_image(new_doppeld, registry, tmp_path):
    place = tmp_path / "small"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "none", place], capture_output=True).returncode:
        pytest.skip("cannot mount")
    d = None
    try:
        d = without_images(new_doppeld, place)
        # Room for nothing, then for the layer but not for the root image too.
        for room in (0, 7 << 20):
            free = os.statvfs(place).f_bavail * 4096
            with open(place / "fill", "wb") as f:
                os.posix_fallocate(f.fileno(), 0, max(free - room - (64 << 10), 4096))
            operation = d.post("/v1/images/pull", {"reference": f"{registry.host}/team/base:1", "name": "pulled"})
            problem = ended(d, operation.json["id"])["problem"] if operation.status == 202 else operation.json
            assert problem["code"] == "storage_full", problem
            (place / "fill").unlink()
            assert whole(d) == []
        assert ended(d, pull(d, registry))["state"] == "succeeded"
        d.post("/v1/domains?start=true", {"image": "pulled", "name": "user", "command": ["true"]}).ok()
        assert d.post("/v1/domains/user/wait").ok()["exit"]["exit_code"] == 0
    finally:
        if d:
            d.close()
        subprocess.run(["umount", "-l", place], check=True)


def test_a_pulled_image_stays_under_its_domain(new_doppeld, registry, tmp_path):
    """A stopped domain's image is kept although its name goes to another one."""
    d = without_images(new_doppeld, tmp_path / "place")
    assert ended(d, pull(d, registry))["state"] == "succeeded"
    d.post("/v1/domains", {"image": "pulled", "name": "user", "command": ["cat", "/etc/motd"]}).ok(201)
    other = tmp_path / "other"
    (other / "etc").mkdir(parents=True)
    (other / "etc/motd").write_text("other\n")
    oci.Store(d.store).ok("image", "import", other, "pulled")
    d.post("/v1/images/prune").ok()
    assert len(oci.Store(d.store).files("images")) == 2
    d.post("/v1/domains/user/start").ok()
    assert d.post("/v1/domains/user/wait").ok()["exit"]["exit_code"] == 0
    d.delete("/v1/domains/user").ok()
    d.post("/v1/images/prune").ok()
    assert len(oci.Store(d.store).files("images")) == 1
