"""pytest entry of the conformance suites: every case natively, and the same cases in a domain.

`tests/linux/run.py` prints the comparison as a table; here each suite is one test per place, whose
failure message lists the cases that failed.
"""
import importlib.util
import os
import pathlib

import pytest

HERE = pathlib.Path(__file__).resolve().parent
spec = importlib.util.spec_from_file_location("linux_run", HERE / "run.py")
run = importlib.util.module_from_spec(spec)
spec.loader.exec_module(run)
NAMES = run.SUITES + [f"{s}-musl" for s in run.MUSL]


@pytest.fixture(scope="session")
def programs():
    return {p.name: p for p in run.build()}


@pytest.fixture(scope="session")
def image(programs):
    if not run.DOPPEL.exists():
        pytest.skip(f"no {run.DOPPEL}: make build")
    run.make_image(list(programs.values()))


def failed(got):
    return [f"{n}: {why}" for n, (state, why) in got.items() if state == "not ok"]


@pytest.mark.parametrize("suite", NAMES)
def test_native(suite, programs, tmp_path, monkeypatch):
    if suite not in programs:
        pytest.skip("no musl-gcc")
    tmp_path.chmod(0o777)
    for p in list(tmp_path.parents)[:3]:
        os.chmod(p, os.stat(p).st_mode | 0o111)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    p = programs[suite]
    assert not failed(run.run_suite(run.native, p, run.cases_of(p), 180))


@pytest.mark.parametrize("suite", NAMES)
def test_domain(suite, programs, image):
    if suite not in programs:
        pytest.skip("no musl-gcc")
    p = programs[suite]
    assert not failed(run.run_suite(run.in_domain, p, run.cases_of(p), 180))
