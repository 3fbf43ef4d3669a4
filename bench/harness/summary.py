"""The page for a person: by area, how many times native's speed each runtime reaches, which targets are missed, and
where ours are worst. Markdown, and a plot of the same.
"""

import pathlib
import statistics
from collections.abc import Sequence
from typing import Any

from harness import report, svg

# How runtimes are shown, and those that are ours.
SHOWN = {"doppel": "para", "paene": "paene", "runc": "runc", "runsc": "gVisor", "bwrap": "bubblewrap"}
OURS = ("doppel", "paene")
# What rows count as, by their workload. What compares nothing with native, as memory and shares, is in the targets
# alone.
AREAS = {
    "system calls, files, processes": ("micro", "lmbench"),
    "start of an instance": ("start",),
    "programs: compilers, interpreters, tools": (
        "python",
        "git",
        "compile",
        "sqlite",
        "langs",
        "gohttp",
        "more",
        "sysbench",
    ),
    "servers and their clients inside": ("redis", "nginx", "apache", "postgres", "oltp", "ssh", "files"),
    "servers asked from outside": ("network", "mtu"),
    "files on the host's disk": ("disk", "blocks"),
    "many at once": ("hosting", "compute", "packing"),
}
WORST = 5


def speed(per: dict[str, list[float]], unit: str, kind: str) -> float | None:
    """How many times as fast as native; None if there is nothing to compare."""
    if unit in ("KiB", "%", "n"):
        return None
    r = report.ratio(per, kind)
    # Less than nothing is what is left when what measures it is taken off.
    return None if not r or r < 0 else r if report.UNITS[unit][1] else 1 / r


def by_area(
    rows: dict[str, dict[str, list[float]]], units: dict[str, str], workloads: dict[str, str]
) -> dict[str, dict[str, list[float]]]:
    """{area: {kind: [speed, ...]}}."""
    found: dict[str, dict[str, list[float]]] = {}
    for area, names in AREAS.items():
        for row, per in rows.items():
            if workloads.get(row) in names:
                for kind in SHOWN:
                    s = speed(per, units[row], kind)
                    if s is not None:
                        found.setdefault(area, {}).setdefault(kind, []).append(s)
    return found


def mean(speeds: Sequence[float] | None) -> float | None:
    return statistics.geometric_mean(speeds) if speeds else None


def verdicts(
    rows: dict[str, dict[str, list[float]]], units: dict[str, str], targets: dict[str, Any], kind: str
) -> tuple[list[str], list[str]]:
    """Rows with a target, met and missed ones: the row and how it is shown. Ratios to native are para's targets
    alone."""
    met: list[str] = []
    missed: list[str] = []
    for row, target in targets.items():
        if rows.get(row, {}).get(kind) and (kind == "doppel" or units[row] in report.ABSOLUTE):
            said = report.verdict(rows[row], units[row], target, kind)
            (met if said.endswith("✓") else missed).append(
                f"{row}: {report.cell(rows[row], kind, units[row])}, target {said[:-2]}"
            )
    return met, missed


def worst(rows: dict[str, dict[str, list[float]]], units: dict[str, str], kind: str) -> list[tuple[float, str]]:
    found = [(s, row) for row, per in rows.items() if (s := speed(per, units[row], kind)) is not None]
    return sorted(found)[:WORST]


def page(
    about: Sequence[str],
    rows: dict[str, dict[str, list[float]]],
    units: dict[str, str],
    targets: dict[str, Any],
    workloads: dict[str, str],
    notes: list[Any],
    plot: pathlib.Path,
) -> str:
    """`about`: lines on machine and date; `plot`: the path of the plot to write, beside the page."""
    areas = by_area(rows, units, workloads)
    kinds = [k for k in SHOWN if any(k in per for per in areas.values())]
    lines = [
        "# Summary of `make bench`\n",
        *about,
        "",
        "How many times native's speed (1: as fast; more is better), the geometric mean of so many rows:\n",
        "| area | " + " | ".join(SHOWN[k] for k in kinds) + " |",
        "|---|" + "---:|" * len(kinds),
    ]
    for area, per in areas.items():
        lines.append(
            f"| {area} | "
            + " | ".join(f"{mean(per[k]):.2f} ({len(per[k])})" if k in per else "–" for k in kinds)
            + " |"
        )
    if areas:
        svg.bars(
            plot,
            "How many times native's speed, by area",
            {a: {SHOWN[k]: mean(per[k]) for k in kinds if k in per} for a, per in areas.items()},
        )
        lines += ["", f"![]({plot.name})"]
    for kind in OURS:
        met, missed = verdicts(rows, units, targets, kind)
        if not met and not missed:
            continue
        lines += [
            "",
            f"## Targets under {SHOWN[kind]}: {len(met)} met, {len(missed)} missed\n",
            *(f"- missed: {m}" for m in missed),
        ]
    for kind in OURS:
        if found := worst(rows, units, kind):
            lines += [
                "",
                f"## The worst of {SHOWN[kind]}, as times native's speed\n",
                *(f"- {s:.2f}: {row} ({report.cell(rows[row], kind, units[row])})" for s, row in found),
            ]
    failed = [n for n in notes if n.startswith("FAILED")]
    lines += ["", "## What did not run to its end\n", *(f"- {n}" for n in failed or ["Nothing."])]
    return "\n".join(lines) + "\n"
