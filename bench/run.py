#!/usr/bin/env python3
"""Compares Doppel with the host itself, runc, gVisor's runsc and bubblewrap: `make bench`, `QUICK=1 make bench`.

    bench/run.py [DOPPEL] [--repeats N] [--only ROW]... [--workload MODULE]... [--skip RUNTIME]... [--quick]

Workloads are the modules of bench/workloads. Their measurements in the runtimes are interleaved, so that a slow
minute of the machine hits all; the table shows medians, spreads (half the distance between the quartiles), the ratio
to native and the ratio promised. Results go to bench/results/ as JSON and Markdown. Absent runtimes are left out.
"""
import argparse
import json
import os
import pathlib
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import workloads  # noqa: E402
from harness import report, summary  # noqa: E402
from harness import runtimes as kinds  # noqa: E402
from harness.machine import machine  # noqa: E402

RESULTS = HERE / "results"
OTHERS = ("runc", "crun", "runsc", "bwrap")


def prepare(chosen: dict[str, Any], runtimes: list[Any]) -> None:
    """What is made once and is no part of what is measured."""
    for image in ("debian", "servers", "runtimes"):
        try:
            runtimes[0].roots.of(image)
        except kinds.Failed as e:
            print(f"  {e}", file=sys.stderr)
    for module in chosen.values():
        if hasattr(module, "prepare"):
            module.prepare(runtimes[0])


def measured(module: Any, runtime: Any, opt: Any) -> Iterator[Any]:
    """Rows and values of one measurement, those before a failure too."""
    got = module.measure(runtime, opt)
    yield from got.items() if isinstance(got, dict) else got


def run_all(
    chosen: dict[str, Any], runtimes: list[Any], opt: Any, notes: list[Any], keep: Callable[[dict[str, Any]], None]
) -> Any:
    """Rows, their units, their targets, their workloads, and the seconds of each workload by runtime; kept after
    each."""
    rows: dict[str, Any] = {}
    units: dict[str, str] = {}
    targets: dict[str, Any] = {}
    workload: dict[str, str] = {}
    seconds: dict[str, Any] = {}
    found = {"rows": rows, "units": units, "targets": targets, "workloads": workload, "seconds": seconds}
    for name, module in chosen.items():
        targets.update(getattr(module, "TARGETS", {}))
        repeats = getattr(module, "REPEATS", opt.repeats)
        if opt.quick:
            repeats = min(repeats, getattr(module, "QUICK", 1))
        # Some runtimes are only for workloads that name them.
        usable = [r for r in runtimes if not r.asked_only or r.name in getattr(module, "ALSO", ())]
        took = seconds[name] = {}
        for k in range(repeats):
            for r in list(usable):
                begun = time.monotonic()
                try:
                    for row, value in measured(module, r, opt):
                        value, units[row] = value if isinstance(value, tuple) else (value, module.UNIT)
                        workload[row] = name
                        rows.setdefault(row, {}).setdefault(r.name, []).append(value)
                except (kinds.Failed, OSError, subprocess.SubprocessError) as e:
                    notes.append((
                        "cannot" if isinstance(e, kinds.Cannot) else "FAILED",
                        r.name,
                        f"{name}: {' '.join(str(e).split())}",
                    ))
                    if k == 0:  # it cannot: do not wait for it again
                        usable.remove(r)
                took[r.name] = took.get(r.name, 0) + time.monotonic() - begun
        each = ", ".join(f"{r} {s:.1f}" for r, s in took.items() if s >= 0.05)
        print(f"  {name}: {sum(took.values()):.0f} s ({each})", file=sys.stderr, flush=True)
        keep(found)
    return found


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("doppel", nargs="?", default=str(HERE.parent / "target/release/doppel"))
    ap.add_argument("--repeats", type=int, default=5)
    ap.add_argument("--only", action="append", default=[], help="a row of `micro`; may be repeated")
    ap.add_argument("--workload", action="append", default=[], help="a module of bench/workloads; may be repeated")
    ap.add_argument("--skip", action="append", default=[], help="a runtime to leave out; may be repeated")
    ap.add_argument(
        "--quick",
        action="store_true",
        default=os.environ.get("QUICK", "") not in ("", "0"),
        help="short, mostly once (or QUICK=1)",
    )
    opt = ap.parse_args()
    known = workloads.load()
    for w in opt.workload:
        if w not in known:
            ap.error(f"no workload {w}: there are {', '.join(known)}")
    wanted = opt.workload or (["micro"] if opt.only else list(known))
    load = os.getloadavg()[0]
    begun = time.monotonic()
    runtimes = [r for r in kinds.present(opt.doppel) if r.name not in opt.skip]
    names = [r.name for r in runtimes]
    notes: list[Any] = []
    chosen = {w: known[w] for w in wanted}
    prepare(chosen, runtimes)
    print(f"Images unpacked, benchmarks built: {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
    begun = time.monotonic()
    host = f"{platform.release()}, {os.cpu_count()} CPUs"
    date = time.strftime("%Y-%m-%d %H:%M")
    about = {"date": date, "host": host, "load": load, "quick": opt.quick, "machine": machine()}

    def told() -> list[str]:
        return [f"{what}: {text}" for what, _, text in sorted(set(notes))]

    def keep(found: dict[str, Any]) -> None:
        """A run that is broken off leaves what it has found."""
        (RESULTS / "latest.json").write_text(json.dumps(about | found | {"notes": told()}, indent=1))

    try:
        found = run_all(chosen, runtimes, opt, notes, keep)
    finally:
        for r in runtimes:
            r.close()
    total = time.monotonic() - begun
    rows, units, targets = found["rows"], found["units"], found["targets"]
    failed = {name for what, name, _ in notes if what == "FAILED" and name not in OTHERS}
    notes = told()
    runs = "short runs, mostly single" if opt.quick else f"{opt.repeats} interleaved runs"
    text = (
        f"Medians of {runs}, Linux {host}, {date}; load {load:.1f} before; {total:.0f} s.\n\n"
        + report.table(rows, units, targets, names)
        + "\n"
        + "".join(f"\n- {n}" for n in notes)
    )
    # Short runs do not take the place of what is kept.
    kept = HERE / "work/results" if opt.quick else RESULTS
    kept.mkdir(exist_ok=True, parents=True)
    for module in chosen.values():
        if hasattr(module, "finish"):
            module.finish(kept)
    (RESULTS / "latest.md").write_text(text + "\n")
    lines = [f"{date}{', short runs' if opt.quick else ''}, {about['machine']}; {total:.0f} s."]
    (RESULTS / "latest-summary.md").write_text(
        summary.page(lines, rows, units, targets, found["workloads"], notes, RESULTS / "latest-summary.svg")
    )
    print(text)
    print(f"{total:.0f} s in all", file=sys.stderr)
    # What cannot be is said, and what others fail in; what should have been is an error.
    if failed:
        sys.exit(f"failed under {', '.join(sorted(failed))}: see the notes")


if __name__ == "__main__":
    main()
