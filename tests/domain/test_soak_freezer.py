"""A short run of the freezer's soak, and that it can fail."""
import subprocess
import sys

from conftest import DOPPEL, ROOT

sys.path.insert(0, str(ROOT / "tests"))
import soak_freezer


def test_cycles_leave_nothing(doppel):
    p = subprocess.run(
        [sys.executable, ROOT / "tests/soak_freezer.py", DOPPEL, "--cycles", "45"],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert p.returncode == 0 and p.stdout.startswith("45 cycles (96 clones)"), p.stdout + p.stderr


def test_leaks_are_found():
    before = {"processes": 2, "MemAvailable + AnonPages KiB": 10 << 20, "Shmem KiB": 4}
    assert soak_freezer.leaks(before, dict(before)) == []
    assert soak_freezer.leaks(before, {**before, "processes": 3}) == ["processes: 2 to 3"]
    assert soak_freezer.leaks(before, {**before, "MemAvailable + AnonPages KiB": 9 << 20})
    assert soak_freezer.leaks(before, {**before, "Shmem KiB": 200 << 10})
