"""The warm templates of examples/: frozen, cloned, and asked."""
import subprocess
import sys

import pytest
from conftest import DOPPEL, ROOT
from images import need_image

RUN = str(ROOT / "examples/warm/run")


def run(image, name):
    return subprocess.run(
        [sys.executable, RUN, "--doppel", DOPPEL, "--image", image, "--clones", "3", name],
        capture_output=True,
        text=True,
        timeout=240,
    )


def check(image, name):
    p = run(image, name)
    assert p.returncode == 0, p.stdout + p.stderr
    assert f"{name}: warm after" in p.stdout and "3 clones answered" in p.stdout, p.stdout
    return p.stdout


def test_python_with_the_standard_library(doppel):
    assert "asyncio first" in check("debian", "python")


@pytest.mark.parametrize("name", ["python", "node", "jvm"])
def test_runtimes(doppel, name):
    need_image("runtimes")
    out = check("runtimes", name)
    assert name != "python" or "numpy first" in out


def test_a_missing_runtime_is_told(doppel):
    p = run("busybox", "node")
    assert p.returncode == 0 and "node: skipped: " in p.stdout, p.stdout + p.stderr


def test_a_wrong_answer_is_told(doppel, tmp_path):
    """The check can fail: a program that answers something else."""
    copy = tmp_path / "warm"
    copy.mkdir()
    for f in (ROOT / "examples/warm").iterdir():
        (copy / f.name).write_bytes(f.read_bytes())
    (copy / "python.py").write_text("open('/sys/power/state', 'w').write('freeze\\n')\nprint('no')\n")
    p = subprocess.run(
        [sys.executable, str(copy / "run"), "--doppel", DOPPEL, "--image", "debian", "--clones", "1", "python"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert p.returncode == 1 and "wrong answer" in p.stderr, p.stdout + p.stderr
