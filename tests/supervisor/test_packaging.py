"""What `make install` puts where."""
import os
import pathlib
import re
import shutil
import subprocess

import pytest
from conftest import DOPPEL, ROOT


def test_install(binaries, tmp_path):
    install = [ROOT / "scripts/install", pathlib.Path(DOPPEL).parent]
    env = {**os.environ, "DESTDIR": str(tmp_path), "PREFIX": "/opt/doppel"}
    subprocess.run(install, env=env, check=True, capture_output=True, timeout=120)
    bin = tmp_path / "opt/doppel/bin"
    assert os.access(bin / "doppel", os.X_OK) and os.access(bin / "doppeld", os.X_OK)
    # What runs has no symbols; what a debugger wants lies beside.
    for program in ("doppel", "doppeld"):
        sections = subprocess.run(["objdump", "-h", bin / program], check=True, capture_output=True, text=True).stdout
        assert ".gnu_debuglink" in sections and ".debug_info" not in sections and ".symtab" not in sections
        assert (tmp_path / f"opt/doppel/lib/debug/opt/doppel/bin/{program}.debug").exists()
    share = tmp_path / "opt/doppel/share"
    assert (share / "man/man1/doppel-run.1").exists() and (share / "bash-completion/completions/doppel").exists()
    assert (share / "doppel/para-only.conf").exists()
    # Its configuration is valid, and survives the next installation.
    config = tmp_path / "etc/doppel/doppeld.toml"
    checked = subprocess.run(
        [bin / "doppeld", "--check", "--config", config], capture_output=True, text=True, timeout=60
    )
    assert checked.returncode == 0, checked.stderr
    config.write_text("# mine\n")
    subprocess.run(install, env=env, check=True, capture_output=True, timeout=120)
    assert config.read_text() == "# mine\n"


def test_units(binaries, tmp_path):
    """systemd finds no fault with the units; what they start is there."""
    if not shutil.which("systemd-analyze"):
        pytest.skip("no systemd-analyze")
    for unit in (ROOT / "packaging/systemd").glob("doppeld.*"):
        text = unit.read_text()
        (tmp_path / unit.name).write_text(
            text.replace("/usr/bin/doppeld", str(pathlib.Path(DOPPEL).parent.resolve() / "doppeld"))
        )
    units = [tmp_path / "doppeld.service", tmp_path / "doppeld.socket"]
    p = subprocess.run(["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True, timeout=60)
    # It also speaks of units of this host.
    said = [line for line in p.stderr.splitlines() if "doppeld" in line]
    assert p.returncode == 0 and not said, p.stderr


def test_programs_need_no_loader_and_lie_at_random_addresses(binaries):
    """A command is over before a dynamic linker has found its libraries; its addresses are still nobody's to know."""
    for program in ("doppel", "doppeld"):
        path = pathlib.Path(DOPPEL).parent / program
        headers = subprocess.run(["readelf", "-hlW", path], check=True, capture_output=True, text=True).stdout
        assert re.search(r"Type: +DYN", headers), headers
        assert "INTERP" not in headers and "GNU_RELRO" in headers, headers
    found = set()
    for _ in range(4):
        # It waits for the program's end, and that for its input's.
        argv = [DOPPEL, "run", "--standalone", "-i", "busybox", "cat"]
        p = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert p.stdin and p.stdout
        p.stdin.write(b"begun\n")
        p.stdin.flush()
        assert p.stdout.readline() == b"begun\n"
        maps = pathlib.Path(f"/proc/{p.pid}/maps").read_text().splitlines()
        found.add(next(line.split("-")[0] for line in maps if line.endswith("/doppel")))
        p.communicate(timeout=60)
    assert len(found) > 1, found


def test_the_service_is_confined_as_far_as_it_can_be(tmp_path):
    """SECURITY.md says what is left, and why."""
    if not shutil.which("systemd-analyze"):
        pytest.skip("no systemd-analyze")
    unit = tmp_path / "doppeld.service"
    shutil.copy(ROOT / "packaging/systemd/doppeld.service", unit)
    assert exposure(unit) < 6.5
    # What para domains do not need.
    (tmp_path / "doppeld.service.d").mkdir()
    shutil.copy(ROOT / "packaging/systemd/para-only.conf", tmp_path / "doppeld.service.d")
    assert exposure(unit) < 5.2


def exposure(unit):
    """Versions of systemd weigh a little differently."""
    env = {**os.environ, "SYSTEMD_UNIT_PATH": f"{unit.parent}:"}
    p = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--no-pager", unit],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    if p.returncode != 0 and "unrecognized option" in p.stderr:
        pytest.skip("this systemd-analyze looks at units of a running systemd only")
    found = re.search(r"Overall exposure level for doppeld.service: ([0-9.]+)", p.stdout)
    assert found, (p.stdout[-500:], p.stderr)
    return float(found[1])
