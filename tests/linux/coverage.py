#!/usr/bin/env python3
"""Which system calls do the conformance cases make? Every row of docs/COMPATIBILITY.md needs one.

    tests/linux/coverage.py [--suite NAME]... [-v]

Runs the suites in a domain with `doppel run --trace` and attributes each call to the case whose process
(or a descendant of it) made it. Calls the harness makes for every case (its setpgid, the result line, the
exit) do not count, nor do those of libc's start-up, nor calls that ended with ENOSYS. Rows marked "full" or
"partial" that no case exercises are printed, and the exit code is then 1.
"""
import argparse
import collections
import concurrent.futures
import re
import subprocess
import sys

import run

CALL = re.compile(r"^\[(\d+)\] (\w+)\((.*)$")
RESULT = re.compile(r" = (-?\d+|0x[0-9a-f]+|\?)(?: (E[A-Z0-9]+))?$")
ROW = re.compile(r"^\| (\d+) \| (\w+) \| (full|partial|stub) \|")
CREATES = {"clone", "fork", "vfork", "clone3"}
# Never seen returning, or never written by a program: covered by what their cases check.
SILENT = {"rt_sigreturn", "restart_syscall"}


def promised():
    """Names of the calls the table marks full or partial."""
    text = (run.ROOT / "docs" / "COMPATIBILITY.md").read_text()
    rows = [m.groups() for m in map(ROW.match, text.splitlines()) if m]
    assert rows, "no rows in docs/COMPATIBILITY.md"
    return [name for _, name, level in rows if level != "stub"]


def calls_by_case(trace):
    """Maps each case's name to the Counter of calls made for it."""
    parent, made, names = {}, collections.defaultdict(collections.Counter), {}

    def case_of(pid):
        seen = set()
        while parent.get(pid, 1) != 1 and pid not in seen:
            seen.add(pid)
            pid = parent[pid]
        return pid

    lines = trace.splitlines()
    for line in lines:
        m = CALL.match(line)
        r = m and RESULT.search(m[3])
        if r and m[2] in CREATES and r[1].isdigit() and int(r[1]) > 0:
            parent.setdefault(int(r[1]), int(m[1]))
    for line in lines:
        m = CALL.match(line)
        if not m or m[1] == "1":
            continue
        case, call, rest = case_of(int(m[1])), m[2], m[3]
        said = re.match(r'1, "(?:ok|not ok|skip) (\w+)', rest) if call == "write" else None
        if said:
            names.setdefault(case, said[1])
            continue
        r = RESULT.search(rest)
        if (
            call == "exit_group"
            or (r and r[2] == "ENOSYS")
            or (call == "setpgid" and rest.startswith("0, 0)") and not made[case]["setpgid"])
        ):
            made[case][f"harness {call}"] += 1
            continue
        made[case][call] += 1
    return {name: made[case] for case, name in names.items()}


def cases_by_call(programs):
    """Maps each call to the cases that make it, by running the glibc programs, several at once: most of it is
    waiting."""

    def traced(p):
        args = run.in_domain(p, ["-s"])
        args.insert(2, "--trace")
        r = subprocess.run(
            args, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=600
        )
        return calls_by_case(r.stderr.decode(errors="replace"))

    programs = [p for p in programs if not p.name.endswith("-musl")]
    cases = collections.defaultdict(list)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        found = list(pool.map(traced, programs))
    for p, made_by in zip(programs, found):
        for name, made in made_by.items():
            for call in made:
                cases[call].append(f"{p.name}/{name}")
            if "harness exit_group" in made:
                cases["exit_group"].append(f"{p.name}/{name}")
    return cases


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--suite", action="append", default=[])
    ap.add_argument("-v", action="store_true", help="print the number of cases of every call, and some names")
    opt = ap.parse_args()
    programs = run.build()
    run.make_image(programs)
    cases = cases_by_call([p for p in programs if not opt.suite or p.name in opt.suite])
    rows = promised()
    if opt.v:
        for name in rows:
            print(f"{name:<24}{len(cases[name]):>5}  {' '.join(cases[name][:3])}")
    bare = [n for n in rows if not cases[n] and n not in SILENT]
    print(f"{len(rows)} calls promised, {len(rows) - len(bare)} made by a case")
    for n in bare:
        print(f"    no case: {n}")
    return 1 if bare else 0


if __name__ == "__main__":
    sys.exit(main())
