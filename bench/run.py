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

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import workloads  # noqa: E402
from harness import report, runtimes as kinds  # noqa: E402

RESULTS = HERE / "results"


def run_all(chosen, runtimes, opt, notes):
    """Rows, their units, their targets."""
    rows, units, targets = {}, {}, {}
    for name, module in chosen.items():
        targets.update(getattr(module, "TARGETS", {}))
        repeats = getattr(module, "REPEATS", opt.repeats)
        if opt.quick:
            repeats = min(repeats, 2)
        # Some runtimes are only for workloads that name them.
        usable = [r for r in runtimes if not r.asked_only or r.name in getattr(module, "ALSO", ())]
        for k in range(repeats):
            for r in list(usable):
                try:
                    got = module.measure(r, opt)
                except (kinds.Failed, OSError, subprocess.SubprocessError) as e:
                    notes.append(str(e))
                    if k == 0:  # it cannot: do not wait for it again
                        usable.remove(r)
                    continue
                for row, value in got.items():
                    value, units[row] = value if isinstance(value, tuple) else (value, module.UNIT)
                    rows.setdefault(row, {}).setdefault(r.name, []).append(value)
        print(f"  {name}: {repeats} done", file=sys.stderr, flush=True)
    return rows, units, targets


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("doppel", nargs="?", default=str(HERE.parent / "target/release/doppel"))
    ap.add_argument("--repeats", type=int, default=5)
    ap.add_argument("--only", action="append", default=[], help="a row of `micro`; may be repeated")
    ap.add_argument("--workload", action="append", default=[], help="a module of bench/workloads; may be repeated")
    ap.add_argument("--skip", action="append", default=[], help="a runtime to leave out; may be repeated")
    ap.add_argument("--quick", action="store_true", default=os.environ.get("QUICK", "") not in ("", "0"), help="two short repeats (or QUICK=1)")
    opt = ap.parse_args()
    known = workloads.load()
    for w in opt.workload:
        if w not in known:
            ap.error(f"no workload {w}: there are {', '.join(known)}")
    wanted = opt.workload or (["micro"] if opt.only else list(known))
    load = os.getloadavg()[0]
    runtimes = [r for r in kinds.present(opt.doppel) if r.name not in opt.skip]
    names, notes = [r.name for r in runtimes], []
    try:
        rows, units, targets = run_all({w: known[w] for w in wanted}, runtimes, opt, notes)
    finally:
        for r in runtimes:
            r.close()
    notes = sorted(set(notes))
    host = f"{platform.release()}, {os.cpu_count()} CPUs"
    date = time.strftime("%Y-%m-%d %H:%M")
    text = (f"Medians of {'2 short' if opt.quick else opt.repeats} interleaved runs, Linux {host}, {date}; load {load:.1f} before.\n\n"
            + report.table(rows, units, targets, names) + "\n" + "".join(f"\n- {n}" for n in notes))
    data = {"date": date, "host": host, "load": load, "quick": opt.quick, "rows": rows, "units": units, "targets": targets, "notes": notes}
    RESULTS.mkdir(exist_ok=True)
    for w in wanted:
        if hasattr(known[w], "finish"):
            known[w].finish(RESULTS)
    (RESULTS / "latest.json").write_text(json.dumps(data, indent=1))
    (RESULTS / "latest.md").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
