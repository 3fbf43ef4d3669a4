"""pytest entry of the conformance suites: every case natively, and the same cases in a domain.

`tests/linux/run.py` prints the comparison as a table; here each suite is one test per place, whose
failure message lists the cases that failed.
"""
import importlib.util
import os
import pathlib
import subprocess
import sys
import uuid

import pytest

HERE = pathlib.Path(__file__).resolve().parent
spec = importlib.util.spec_from_file_location("linux_run", HERE / "run.py")
run = importlib.util.module_from_spec(spec)
spec.loader.exec_module(run)
sys.modules["run"] = run
cover = importlib.util.spec_from_file_location("linux_coverage", HERE / "coverage.py")
coverage = importlib.util.module_from_spec(cover)
cover.loader.exec_module(coverage)
NAMES = run.SUITES + [f"{s}-musl" for s in run.MUSL]


@pytest.fixture(scope="session")
def programs():
    return {p.name: p for p in run.build()}


@pytest.fixture(scope="session")
def image(programs):
    if not run.DOPPEL.exists():
        pytest.skip(f"no {run.DOPPEL}: make build")
    run.make_image(list(programs.values()))


# Cases that fail in a domain, with the reason; docs/COMPATIBILITY.md names each limit. One that passes fails the test.
KNOWN = {
    "image_file_map_follows_later_writes": "maps of an image file made before its first write keep the old content "
                                           "(mmap)",
}


def failed(got):
    return [f"{n}: {why}" for n, (state, why) in got.items() if state == "not ok"]


def test_every_promised_call_has_a_case(image):
    """Rows of docs/COMPATIBILITY.md marked full or partial that no case makes; see coverage.py."""
    made = coverage.cases_by_call(run.build())
    assert not [n for n in coverage.promised() if not made[n] and n not in coverage.SILENT]


@pytest.mark.parametrize("suite", NAMES)
def test_native(suite, programs, tmp_path, monkeypatch):
    if suite not in programs:
        pytest.skip("no musl-gcc")
    tmp_path.chmod(0o777)
    for p in list(tmp_path.parents)[:3]:
        os.chmod(p, os.stat(p).st_mode | 0o111)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    p = programs[suite]
    assert not failed(run.run_suite(run.native, p, run.cases_of(p), 600))


@pytest.mark.parametrize("suite", NAMES)
def test_domain(suite, programs, image):
    if suite not in programs:
        pytest.skip("no musl-gcc")
    p = programs[suite]
    got = run.run_suite(run.in_domain, p, run.cases_of(p), 600)
    for name in KNOWN.keys() & got.keys():
        assert got.pop(name)[0] != "ok", f"{name} passes now: take it out of KNOWN"
        print(f"known limit: {name}: {KNOWN[name]}")
    assert not failed(got)


# Cases that fail on a volume, with the reason (docs/services.md).
KNOWN_ON_VOLUMES = {
    "through_and_on_symlinks": "the service keeps no trusted attributes",
    "trusted_hidden_from_users": "the service keeps no trusted attributes",
}


@pytest.fixture(params=["directory", "named"])
def volume(request, tmp_path):
    """What --volume has as its source: a directory of the host, or a volume that the domain has alone, and keeps."""
    if request.param == "directory":
        tmp_path.chmod(0o1777)
        yield tmp_path
        return
    name = "test-" + uuid.uuid4().hex[:10]
    yield name
    subprocess.run([run.DOPPEL, "volume", "rm", "-f", name], check=True, capture_output=True)


@pytest.mark.parametrize("suite", run.FILES)
def test_volume(suite, programs, image, volume, monkeypatch):
    """The cases about files, on a volume."""
    monkeypatch.setattr(run, "OPTIONS", ["--volume", f"{volume}:/tmp"])
    p = programs[suite]
    got = run.run_suite(run.in_domain, p, run.cases_of(p), 600)
    known = {**KNOWN, **KNOWN_ON_VOLUMES}
    for name in known.keys() & got.keys():
        assert got.pop(name)[0] != "ok", f"{name} passes now: take it out of the known"
    assert not failed(got)


@pytest.fixture
def disk():
    """A disk that is all zero."""
    name = "test-" + uuid.uuid4().hex[:10]
    subprocess.run([run.DOPPEL, "disk", "create", "--size", "256m", name], check=True, capture_output=True)
    yield name
    subprocess.run([run.DOPPEL, "disk", "rm", "-f", name], check=True, capture_output=True)


@pytest.mark.parametrize("suite", run.FILES)
def test_disk(suite, programs, image, disk, monkeypatch):
    """The cases about files, on a file system of a disk."""
    monkeypatch.setattr(run, "OPTIONS", ["--block-device", disk])
    monkeypatch.setattr(run, "BEFORE", ["mount -t doppelfs -o mkfs /dev/vda /tmp && chmod 1777 /tmp"])
    p = programs[suite]
    got = run.run_suite(run.in_domain, p, run.cases_of(p), 600)
    for name in KNOWN.keys() & got.keys():
        assert got.pop(name)[0] != "ok", f"{name} passes now: take it out of KNOWN"
    assert not failed(got)
