"""What benchmarks make of their figures: the page on them, and what a workload that fails leaves."""
import pathlib
import sys
import types

import pytest

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"


@pytest.fixture(autouse=True)
def bench(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    yield
    for name in [n for n in sys.modules if n.split(".")[0] in ("harness", "workloads", "run", "evaluation")]:
        del sys.modules[name]


ROWS = {
    "a call": {"native": [100.0, 100.0], "doppel": [50.0, 50.0], "paene": [100.0]},
    "a rate": {"native": [100.0], "doppel": [50.0], "runc": [90.0]},
    "a share": {"doppel": [97.0], "paene": [99.0]},
}
UNITS = {"a call": "ns", "a rate": "/s", "a share": "%"}
WORKLOADS = {"a call": "micro", "a rate": "micro", "a share": "compute"}


def test_page_has_means_targets_and_the_worst(tmp_path):
    from harness import summary

    notes = ["cannot: many: native: has no supervisor", "FAILED: ssh: runsc: no"]
    page = summary.page(
        ["a machine"], ROWS, UNITS, {"a call": 0.5, "a share": 98}, WORKLOADS, notes, tmp_path / "plot.svg"
    )
    # Twice as fast in one, half as fast in the other.
    assert "| system calls, files, processes | 1.00 (2) | 1.00 (1) | 0.90 (1) |" in page
    assert "Targets under para: 1 met, 1 missed" in page and "- missed: a share: 97.0 %, target ≥ 98" in page
    assert "Targets under paene: 1 met, 0 missed" in page
    assert "- 0.50: a rate (50.0/s (0.50×))" in page
    assert "- FAILED: ssh: runsc: no" in page and "supervisor" not in page
    assert (tmp_path / "plot.svg").read_text().startswith("<svg")


def test_what_was_measured_before_a_failure_is_kept_and_a_reason_is_no_failure():
    import run
    from harness.runtimes import Cannot, Failed

    def measure(runtime, opt):
        if runtime.name == "bwrap":
            raise Cannot("bwrap: has none")
        yield "first", 1.0
        if runtime.name == "paene":
            raise Failed("paene: broke")
        yield "second", (2.0, "%")

    module = types.SimpleNamespace(measure=measure, UNIT="ns")
    runtimes = [types.SimpleNamespace(name=n, asked_only=False) for n in ("native", "paene", "bwrap")]
    notes, kept = [], []
    found = run.run_all({"w": module}, runtimes, types.SimpleNamespace(quick=False, repeats=2), notes, kept.append)
    rows, units, workloads, seconds = (found[what] for what in ("rows", "units", "workloads", "seconds"))
    assert kept == [found]
    assert rows == {"first": {"native": [1.0, 1.0], "paene": [1.0]}, "second": {"native": [2.0, 2.0]}}
    assert (
        units == {"first": "ns", "second": "%"}
        and set(workloads.values()) == {"w"}
        and set(seconds["w"]) == {"native", "paene", "bwrap"}
    )
    assert sorted(notes) == [("FAILED", "paene", "w: paene: broke"), ("cannot", "bwrap", "w: bwrap: has none")]


def test_evaluation_is_what_template_and_figures_give(monkeypatch):
    import evaluation

    monkeypatch.setattr(evaluation.svg, "plot", lambda *_: None)
    data = evaluation.json.loads((BENCH / "results/evaluation.json").read_text())
    page = evaluation.page(evaluation.Results(data), data["machines"])
    assert page == (BENCH.parent / "docs/EVALUATION.md").read_text(), "run bench/evaluation.py"


def test_every_unit_of_a_workload_can_be_shown():
    import re

    from harness import report

    for path in sorted((BENCH / "workloads").glob("*.py")):
        text = path.read_text()
        units = re.findall(r'^UNIT = "([^"]+)"', text, re.M) + re.findall(r', "(n|%|[KM]?i?B(?:/s)?|/s)"\)', text)
        for unit in set(units):
            assert unit in report.UNITS, f"{path.name}: {unit}"
