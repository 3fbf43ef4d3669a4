"""Go's standard library: its own tests, built natively, run natively and in a domain, outcomes side by side.

All with -test.short: without it os, net and runtime take minutes (stress loops, large files, profiles). The image has
no Go toolchain, so tests that build programs skip themselves in both places: most of runtime's, which are about
crashes of other programs. `make test-all` runs two packages more, whose tests alone take a minute to build.
"""
import os
import re
import shutil
import subprocess

import pytest
from conftest import BUILD, doppel  # noqa: F401
from images import ALL, Chroot, both, columns, make_image

IMAGE = "domain-go"
PACKAGES = ["os", "os/exec", "os/signal", "net", "sync", "syscall", "time"] + (["net/http", "runtime"] if ALL else [])
# Where the domain differs on purpose.
KNOWN = {
    "net": dict.fromkeys(("TestIPConnRemoteName", "TestIPConnSpecificMethods"), "raw IP sockets are not provided")
    | {"TestMultiPathTCP": "there is no multipath TCP; the test skips itself"},
    "syscall": {"TestCloneTimeNamespace": "there are no time namespaces; the test skips itself",
                "TestUnshare": "it wants the host's network interfaces; the test skips itself"},
}


@pytest.fixture(scope="module")
def image(doppel):
    """Test programs with the directories they read, where a Go installation would have them."""
    go = shutil.which("go") or "/usr/local/go/bin/go"
    if not os.path.exists(go):
        pytest.skip("go is not installed")
    root = subprocess.run([go, "env", "GOROOT"], capture_output=True, text=True, check=True).stdout.strip()
    programs = BUILD / "gotests"
    programs.mkdir(parents=True, exist_ok=True)
    extra = [
        (f"{root}/{f}", f"{root[1:]}/{f}")
        for f in ("VERSION", "lib/time", "src/testdata")
        if os.path.exists(f"{root}/{f}")
    ]
    for package in PACKAGES:
        program = programs / (package.replace("/", "-") + ".test")
        subprocess.run([go, "test", "-c", "-o", program, package], env={**os.environ, "CGO_ENABLED": "0"}, check=True)
        extra += [(program, f"bin/{program.name}"), (f"{root}/src/{package}", f"{root[1:]}/src/{package}")]
    return make_image(IMAGE, [], extra), root


def outcomes(result):
    """{test: outcome} of verbose output."""
    found = {}
    for kind, name in re.findall(r"^ *--- (PASS|FAIL|SKIP): (\S+)", result.out, re.M):
        found[name] = {"PASS": "ok", "SKIP": "skip"}.get(kind, f"failed\n{result.out[-1500:]}{result.err[-500:]}")
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_standard_library(image, doppel, capsys, package):
    name, root = image

    def run(place):
        program = f"/bin/{package.replace('/', '-')}.test"
        return outcomes(
            place.run(
                program,
                "-test.short",
                "-test.v",
                "-test.timeout",
                "300s",
                image=name,
                timeout=360,
                env={"GOROOT": root},
                workdir=f"{root}/src/{package}",
            )
        )

    columns(capsys, f"go test {package}", *both(run, Chroot(), doppel), KNOWN.get(package, ()))
