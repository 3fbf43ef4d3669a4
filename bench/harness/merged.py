"""Results of several runs as one: what docs/EVALUATION.md is made of.

`merge` makes the data of files of bench/run.py, `Results` answers for its rows, `machine` keeps of a run what is
compared between machines.
"""
import json
import pathlib
import statistics
from collections.abc import Sequence
from typing import Any

from harness import report, summary

# Beside native Linux, ours and the others: names of runtimes and how they are shown.
KINDS = {"doppel": "para", "paene": "paene", "runc": "runc", "runsc": "gVisor", "bwrap": "bubblewrap"}


def _about(data: dict[str, Any], only: str) -> str:
    """When and where a file was measured."""
    about = [
        data.get("machine", "").split(";")[0],
        f"load {data['load']:.1f} before",
        f"Linux {data['host']}",
        "short runs" if data["quick"] else "",
        only.replace(",", ", "),
    ]
    return f"{data['date']} ({'; '.join(x for x in about if x)})"


def merge(paths: Sequence[str]) -> dict[str, Any]:
    """The rows of `FILE[:WORKLOAD,...]`, later ones in the place of earlier ones, and how each file was measured."""
    merged: dict[str, Any] = {"about": [], "notes": [], "units": {}, "targets": {}, "workloads": {}, "rows": {}}
    for name in paths:
        path, _, only = name.partition(":")
        data = json.loads(pathlib.Path(path).read_text())
        workload = data.get("workloads", {})
        # A merged file has been measured several times.
        merged["about"] += data.get("about") or [_about(data, only)]
        taken = set(only.split(",") if only else workload.values())
        merged["rows"].update({row: per for row, per in data["rows"].items() if not only or workload[row] in taken})
        for part in ("units", "targets"):
            merged[part].update(data[part])
        merged["workloads"].update(workload)
        # "FAILED: WORKLOAD: …"; what an earlier run says of the same workload is past.
        of = lambda note: note.split(": ")[1]
        merged["notes"] = [n for n in merged["notes"] if of(n) not in taken]
        merged["notes"] += [n for n in data["notes"] if not only or of(n) in taken]
    return merged


def dumped(data: dict[str, Any]) -> str:
    """The merged data as JSON, a row a line."""
    text = lambda value: json.dumps(value, ensure_ascii=False)
    parts = []
    for name, value in data.items():
        lines = [f"  {text(k)}: {text(v)}" for k, v in value.items()] if isinstance(value, dict) else []
        lines = lines or [f"  {text(v)}" for v in value]
        begin, end = "{}" if isinstance(value, dict) else "[]"
        parts.append(f" {text(name)}: {begin}\n" + ",\n".join(lines) + f"\n {end}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


class Results:
    """What was measured, by row and kind of runtime."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.rows: dict[str, dict[str, list[float]]] = data["rows"]
        self.units: dict[str, str] = data["units"]
        self.targets: dict[str, float] = data["targets"]
        self.workloads: dict[str, str] = data["workloads"]
        self.about: list[str] = data["about"]
        self.notes: list[str] = data["notes"]
        self.kinds = [k for k in KINDS if any(k in per for per in self.rows.values())]

    def median(self, row: str, kind: str) -> Any:
        """None if it has not been measured."""
        found = self.rows.get(row, {}).get(kind)
        return statistics.median(found) if found else None

    def shown(self, row: str, kind: str) -> str:
        return report.cell(self.rows[row], kind, self.units[row]) if self.median(row, kind) is not None else "not yet"

    def ratio(self, row: str, kind: str, better_is_more: bool = False) -> str:
        """How many times native's time, or what part of native's rate."""
        r = report.ratio(self.rows.get(row, {}), kind)
        if r is None:
            return "not yet"
        if better_is_more and not report.UNITS[self.units[row]][1]:
            r = 1 / r
        return f"{r:.2f}"

    def table(
        self, head: str, rows: Sequence[tuple[Any, ...]], paper: list[str], better_is_more: bool = False
    ) -> str:
        """A row each: native's figure, ratios of the kinds, and the paper's ratios."""
        heads = [head, "native", *(KINDS[k] for k in self.kinds), *paper]
        lines = ["| " + " | ".join(heads) + " |", "|---|" + "---:|" * (len(heads) - 1)]
        for title, row, *figures in rows:
            ratios = [self.ratio(row, k, better_is_more) for k in self.kinds]
            said = [f if isinstance(f, str) else f"{f:.2f}" for f in figures]
            lines.append("| " + " | ".join([title, self.shown(row, "native"), *ratios, *said]) + " |")
        return "\n".join(lines) + "\n"


def machine(run: Results) -> dict[str, Any]:
    """What is compared between machines: the means of the summary's areas, and which targets are met."""
    targets = []
    for kind in summary.OURS:
        met, missed = summary.verdicts(run.rows, run.units, run.targets, kind)
        said = f"{KINDS[kind]} meets {len(met)} targets and misses {len(missed)}"
        targets.append("; ".join([said, *missed]))
    natively = f"getppid natively {run.shown('getppid', 'native')}, `stat` {run.shown('stat', 'native')}"
    areas = summary.by_area(run.rows, run.units, run.workloads)
    return {
        "said": f"{natively}; {run.about[0]}. " + ". ".join(targets) + ".",
        "areas": {area: {k: summary.mean(speeds) for k, speeds in per.items()} for area, per in areas.items()},
    }
