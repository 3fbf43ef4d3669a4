"""Images made by umoci, a registry, and stores of their own for every test."""
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import oci


@pytest.fixture(scope="session")
def tools() -> None:
    for path in (*oci.TOOLS, oci.DOPPEL):
        if not os.path.exists(path):
            pytest.skip(f"no {path}: make setup build")
    if os.getuid() != 0:
        pytest.skip("umoci needs root for owners and devices")


@pytest.fixture(scope="session")
def layout(tools: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[pathlib.Path]:
    """An OCI layout with `base` (one layer) and `app` (four more, with whiteouts and a configuration)."""
    top = tmp_path_factory.mktemp("layout")
    lay = top / "layout"
    oci.tool("umoci", "init", "--layout", lay)
    oci.tool("umoci", "new", "--image", f"{lay}:base")
    oci.tool("umoci", "unpack", "--image", f"{lay}:base", top / "bundle")
    oci.small_root(top / "bundle/rootfs")
    oci.tool("umoci", "repack", "--image", f"{lay}:base", top / "bundle")
    oci.tool("umoci", "tag", "--image", f"{lay}:base", "app")
    extra = top / "extra"
    (extra / "deep/er").mkdir(parents=True)
    (extra / "deep/er/file").write_text("text\n")
    (extra / "link").symlink_to("deep/er/file")
    (extra / "big").write_bytes(os.urandom(2 << 20))
    (extra / "zeros").write_bytes(bytes(4 << 20))
    app = f"{lay}:app"
    oci.tool("umoci", "insert", "--image", app, extra, "/opt")
    oci.tool("umoci", "insert", "--image", app, "--whiteout", "/etc/motd")
    oci.tool("umoci", "insert", "--image", app, "--opaque", extra / "deep", "/var/cache")
    oci.tool("umoci", "insert", "--image", app, extra / "deep/er/file", "/usr/lib/file")
    oci.tool(
        "umoci", "config", "--image", app, "--config.user", "web:staff", "--config.env", "A=image",
        "--config.env", "PATH=/bin",
        "--config.entrypoint", "/bin/sh", "--config.entrypoint", "-c", "--config.cmd", "id; pwd; echo $A $HOME",
        "--config.workingdir", "/opt", "--config.exposedports", "80/tcp", "--config.label", "x=y",
        "--config.stopsignal", "SIGINT",
    )  # fmt: skip
    yield lay
    subprocess.run(["rm", "-rf", top])


@pytest.fixture(scope="session")
def registry(layout: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A registry with the images `base` and `app` under team/."""
    top = tmp_path_factory.mktemp("registry")
    registry = oci.Registry(top)
    for name in ("base", "app"):
        oci.skopeo("copy", "--dest-tls-verify=false", f"oci:{layout}:{name}", f"docker://{registry.host}/team/{name}:1")
    yield registry
    registry.stop()
    subprocess.run(["rm", "-rf", top])


@pytest.fixture
def store(tools: None, tmp_path: pathlib.Path) -> Iterator[Any]:
    yield oci.Store(tmp_path / "store")
    subprocess.run(["rm", "-rf", tmp_path / "store"])


@pytest.fixture
def faulty(layout: pathlib.Path) -> Iterator[Any]:
    registry = oci.Faulty(layout, "app")
    yield registry
    registry.stop()
