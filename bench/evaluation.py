#!/usr/bin/env python3
"""Writes docs/EVALUATION.md, bench/results/summary.md and their plots: the papers' tables and figures, with what was
measured beside the papers' own figures.

    bench/evaluation.py
    bench/evaluation.py RESULTS.json[:WORKLOAD,...]... [--machine RESULTS.json]...

Without arguments it takes what bench/results/evaluation.json has. With files of bench/run.py it writes that first: of a
file all workloads are taken, or those that are named; of a row that is in several files the last one's. The file itself
may be the first of them: `bench/evaluation.py bench/results/evaluation.json bench/results/latest.json`. Of runs on
several machines it keeps the means of areas and the targets. What has not been measured is said to be missing.

The text is bench/evaluation/template.md, the papers' figures are in papers.toml beside it, and the reasons for what is
slow in reasons.toml.
"""
import argparse
import json
import pathlib
import re
import sys
import tomllib
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from harness import summary, svg  # noqa: E402
from harness.merged import KINDS, Results, dumped, machine, merge  # noqa: E402

TEXT = HERE / "evaluation"
RESULTS = HERE / "results"
PAPERS = tomllib.loads((TEXT / "papers.toml").read_text())
REASONS = tomllib.loads((TEXT / "reasons.toml").read_text())
APACHE = [1, 4, 16, 64, 256, 1024]
WRITES = ["64 B", "512 B", "4 KB", "16 KB", "64 KB", "256 KB"]
WINDOWS = [f"bandwidth: TCP, window {n} KB" for n in (4, 16, 64, 256)] + ["bandwidth: TCP"]
THREADS = [1, 2, 4, 8, 16]
# Where files are: a kind, and the place of its rows. The others have one place, whose figures stand in each.
PLACES = {
    "para, volume": ("doppel", "volume"),
    "para, disk": ("doppel", "disk"),
    "para, host directory": ("doppel", "host directory"),
    "para, block device": ("doppel", "block device"),
    "paene, volume": ("paene", "volume"),
    "runc": ("runc", "volume"),
    "gVisor": ("runsc", "volume"),
}
COUNTS = [1, 2, 4, 8, 16, 32, 64, 128]
# A row that is slower than this part of native's speed is explained.
NOTEWORTHY = 0.9


def short(row: str) -> str:
    return row.removeprefix("lmbench: ").removeprefix("bandwidth: ")


def latencies(r: Results, head: str, figures: list[dict[str, Any]]) -> str:
    return r.table(head, [(short(f["row"]), f["row"], f["xen"] / f["linux"]) for f in figures], ["Xen 2003"])


def bandwidths(r: Results) -> str:
    rows = [(short(f["row"]), f["row"], f["plk"] / f["linux"], f["xen"] / f["linux"]) for f in PAPERS["bandwidths"]]
    return r.table("bandwidth", rows, ["PLK (paene) 2005", "XenLinux 2005"])


def mtus(r: Results) -> str:
    rows = [(f["name"], f"TCP, MTU {f['name']}", f["xen"] / f["linux"], f["study"]) for f in PAPERS["mtus"]]
    return r.table("TCP, 64 KB writes, MTU", rows, ["Xen 2003", "XenLinux 2005 (PLK 1.00)"])


def published(r: Results) -> str:
    rows = [(re.sub("^published(: |, )", "", row), row) for row in r.rows if row.startswith("published")]
    return r.table("published", rows, [])


def programs(r: Results) -> str:
    rows = [(f"{f['what']}: {f['row']}", f["row"], f["xen"]) for f in PAPERS["programs"]]
    return r.table("workload", rows, ["Xen 2003"], better_is_more=True)


def threads(row: str) -> tuple[str, int]:
    name, _, n = row.rpartition(": ")
    return name, int(n)


def oltp(r: Results) -> str:
    rows = sorted((row for row in r.rows if row.startswith("OLTP")), key=threads)
    return r.table("OLTP, transactions", [(row.removeprefix("OLTP: "), row) for row in rows], [])


def crowd(r: Results, form: str) -> list[tuple[int, str]]:
    """How many at once were measured, and their rows; `form` has {} for the number."""
    return [(n, form.format(n)) for n in COUNTS if form.format(n) in r.rows]


WEB_SERVERS = "hosting: {} web servers, all requests"
DATABASES = "hosting: {} databases, all transactions"
COMPUTE = "compute: {} at once"


def many(r: Results) -> str:
    rows = [(short(row), row, PAPERS["web_servers"][str(n)]) for n, row in crowd(r, WEB_SERVERS)]
    rows += [(short(row), row, "") for form in (DATABASES, COMPUTE) for _, row in crowd(r, form)]
    return r.table("all rates together", rows, ["Xen 2003"])


def growth(r: Results) -> str:
    """All databases together against one, as Xen's Fig. 5 has them."""
    bases = crowd(r, DATABASES)
    if len(bases) < 2:
        return ""
    one = DATABASES.format(1)
    kinds = [k for k in ["native", *r.kinds] if r.median(one, k)]
    lines = [
        "All databases together, as a multiple of one:\n",
        "| databases | " + " | ".join(KINDS.get(k, k) for k in kinds) + " | Xen 2003 (OSDB-IR) |",
        "|---|" + "---:|" * (len(kinds) + 1),
    ]
    for n, row in bases:
        grown = [f"{r.median(row, k) / r.median(one, k):.2f}" if r.median(row, k) else "not yet" for k in kinds]
        lines.append(f"| {n} | " + " | ".join(grown) + f" | {PAPERS['databases'].get(str(n), '')} |")
    return "\n".join(lines) + "\n"


def places(r: Results, head: str, rows: list[tuple[str, str, str]], without: str = "") -> str:
    """A row each, of what is done to files, by where they are; as parts of native's speed."""
    columns = {name: at for name, at in PLACES.items() if at[1] != without}
    lines = [f"| {head} | native | {' | '.join(columns)} | VirtuOS 2013 |", "|---|" + "---:|" * (len(columns) + 2)]
    for title, row, paper in rows:
        of = [r.ratio(f"{place}: {row}", kind, better_is_more=True) for kind, place in columns.values()]
        native = f"volume: {row}"
        shown = r.shown(native, "native") if native in r.rows else "not yet"
        lines.append("| " + " | ".join([title, shown, *of, paper]) + " |")
    return "\n".join(lines) + "\n"


def fileio(r: Results) -> str:
    rows = [
        (f"{f['load'].removeprefix('FileIO, ')}, threads: {n}", f"{f['load']}, threads: {n}", f["virtuos"])
        for f in PAPERS["fileio"]
        for n in THREADS
    ]
    return places(r, "FileIO", rows, without="block device")


def blocks(r: Results, way: str, without: str = "") -> str:
    """Writes into new files, or over what is there: what the paper's were is not said, and stands at the first."""
    said = [(f["size"], f["virtuos"] if way == "write" else "") for f in PAPERS["blocks"]]
    return places(r, f"{way} by", [(size, f"{way} by {size}", paper) for size, paper in said], without)


def plot(r: Results, name: str, title: str, x_label: str, y_label: str, points: list[tuple[int, str]]) -> str:
    """A line for each kind that has all points."""
    lines = {}
    for kind in ["native", *r.kinds]:
        line = [(x, r.median(row, kind)) for x, row in points]
        if all(y is not None for _, y in line):
            lines[KINDS.get(kind, kind)] = line
    if not points or not lines:
        return ""
    svg.plot(RESULTS / f"{name}.svg", title, x_label, y_label, lines)
    return f"![](../bench/results/{name}.svg)\n"


def values(r: Results, *begin: str, inside: str = "") -> str:
    """Rows as they were measured, of all kinds."""
    rows = [row for row in r.rows if row.startswith(begin) and inside in row]
    if not rows:
        return "not yet\n"
    kinds = [k for k in ["native", *KINDS, "doppel-api"] if any(k in r.rows[row] for row in rows)]
    lines = ["| | " + " | ".join(KINDS.get(k, k) for k in kinds) + " |", "|---|" + "---:|" * len(kinds)]
    for row in rows:
        lines.append("| " + " | ".join([row, *(r.shown(row, k) if k in r.rows[row] else "–" for k in kinds)]) + " |")
    return "\n".join(lines) + "\n"


def losses(r: Results) -> str:
    """Rows in which ours are slower than native, by reason."""
    parts = []
    for kind, reasons in REASONS.items():
        found: dict[str, list[tuple[float, str]]] = {}
        for row, per in r.rows.items():
            speed = summary.speed(per, r.units[row], kind)
            if speed is not None and speed < NOTEWORTHY:
                why = next((one["why"] for one in reasons if re.search(one["pattern"], row)), "Not known.")
                found.setdefault(why, []).append((speed, row))
        said = "as times native's speed" if found else "nowhere by more than a tenth"
        parts.append(f"**{KINDS[kind]}**: {said}.\n")
        for why, rows in sorted(found.items(), key=lambda f: f[0] == "Not known."):
            parts.append(f"- {why} " + "; ".join(f"{row} {speed:.2f}" for speed, row in sorted(rows)) + ".")
        parts.append("")
    return "\n".join(parts)


def machines(runs: list[dict[str, Any]]) -> str:
    """The summary's areas and targets, by machine."""
    kinds = [k for k in ("doppel", "paene", "runsc") if any(k in area for area in runs[0]["areas"].values())]
    heads = [f"{KINDS[k]}, {'abcdefgh'[i]}" for k in kinds for i in range(len(runs))]
    lines = ["| area | " + " | ".join(heads) + " |", "|---|" + "---:|" * len(heads)]
    for area in runs[0]["areas"]:
        means = [run["areas"].get(area, {}).get(k) for k in kinds for run in runs]
        lines.append(f"| {area} | " + " | ".join("–" if m is None else f"{m:.2f}" for m in means) + " |")
    named = [f"- {letter}: {run['said']}" for letter, run in zip("abcdefgh", runs, strict=False)]
    return "\n".join([*named, "", *lines]) + "\n"


def filled(template: str, parts: dict[str, str]) -> str:
    """The template with a part in the place of each {{name}}."""
    names = set(re.findall(r"{{(\w+)}}", template))
    assert names == set(parts), names ^ set(parts)
    return re.sub(r"{{(\w+)}}", lambda found: parts[found[1]], template)


def page(r: Results, runs: list[dict[str, Any]]) -> str:
    by_machine = filled((TEXT / "machines.md").read_text(), {"runs": machines(runs)}) if runs else ""
    parts = {
        "about": "\n".join(f"- {one}" for one in r.about),
        "processes": latencies(r, "processes", PAPERS["processes"]),
        "context_switches": latencies(r, "context switch", PAPERS["context_switches"]),
        "files": latencies(r, "files, virtual memory", PAPERS["files"]),
        "bandwidths": bandwidths(r),
        "windows": r.table("loopback TCP", [(short(row), row) for row in WINDOWS], []),
        "mtus": mtus(r),
        "published": published(r),
        "programs": programs(r),
        "oltp": oltp(r),
        "apache": r.table("objects of", [(f"{k} KB", f"Apache, {k} KB") for k in APACHE], []),
        "many": many(r),
        "growth": growth(r),
        "plot_hosting": plot(
            r, "hosting", "Web servers at the same time", "servers", "requests a second, all", crowd(r, WEB_SERVERS)
        ),
        "plot_compute": plot(
            r, "compute", "Instances that compute", "instances", "units a second, all", crowd(r, COMPUTE)
        ),
        "plot_hosting_databases": plot(
            r,
            "hosting-databases",
            "Databases at the same time",
            "databases",
            "transactions a second, all",
            crowd(r, DATABASES),
        ),
        "splits": values(r, "", inside="of the ideal split"),
        "neighbours": values(r, "victim", "an instance started"),
        "starts": values(r, "cold start", "a command that does nothing", "`doppel run --rm"),
        "writes": r.table("writes by", [(n, f"bandwidth: file write by {n}") for n in WRITES], []),
        "blocks": blocks(r, "write", without="block device"),
        "overwrites": blocks(r, "overwrite"),
        "fileio": fileio(r),
        "recovery": values(r, "dd on", "network stream", "network service killed: ", "storage service killed: "),
        "storage_neighbours": values(r, "PostgreSQL", inside=" beside "),
        "storage_weights": values(r, "storage: "),
        "storage_memory": values(r, "storage service: ", "storage service and keeper: "),
        "paging": values(r, "paging: "),
        "crowds": r.table(
            "processes", [(short(f["row"]), f["row"], f["virtuos"]) for f in PAPERS["crowds"]], ["VirtuOS 2013"]
        ),
        "packing": values(r, "packing"),
        "idle": values(r, "idle", "1000 servers", "1,000 clones", "supervisor and keeper"),
        "losses": losses(r),
        "machines": by_machine,
    }
    return re.sub("\n{3,}", "\n\n", filled((TEXT / "template.md").read_text(), parts))


def main() -> None:
    assert __doc__
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("results", nargs="*")
    ap.add_argument("--machine", action="append", default=[], help="a run on a machine, to compare; may be repeated")
    opt = ap.parse_args()
    kept = RESULTS / "evaluation.json"
    if opt.results:
        data = merge(opt.results)
        before = json.loads(kept.read_text())["machines"] if kept.exists() else []
        data["machines"] = [machine(Results(merge([path]))) for path in opt.machine] or before
        kept.write_text(dumped(data))
    data = json.loads(kept.read_text())
    r = Results(data)
    (HERE.parent / "docs/EVALUATION.md").write_text(page(r, data["machines"]))
    about = [
        "Measured:\n",
        *(f"- {one}" for one in r.about),
        "\nAll figures: [docs/EVALUATION.md](../../docs/EVALUATION.md).",
    ]
    (RESULTS / "summary.md").write_text(
        summary.page(about, r.rows, r.units, r.targets, r.workloads, r.notes, RESULTS / "summary.svg")
    )


if __name__ == "__main__":
    main()
