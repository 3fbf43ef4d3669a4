"""Runs modules of CPython's own test-suite, each in a process and directory of its own, some at once.

Prints {module: {"module.test": "ok" | "skip" | text of the failure}} as JSON; what crashed or hung as a whole is the
test "module". Usage: regrtest.py SECONDS JOBS IGNORED,... MODULE... ; no module may take longer than SECONDS.
"""
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree


def outcome(case):
    for kind in ("failure", "error"):
        found = case.find(kind)
        if found is not None:
            return (found.text or kind)[-1500:]
    return "skip" if case.find("skipped") is not None or case.get("result") == "skipped" else "ok"


def run(module, seconds, ignored):
    with tempfile.TemporaryDirectory() as d:
        report = os.path.join(d, "report.xml")
        argv = [
            sys.executable,
            "-m",
            "test",
            "--timeout",
            str(seconds),
            "--junit-xml",
            report,
            *(f"-i{i}" for i in ignored),
            module,
        ]
        p = subprocess.run(argv, cwd=d, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        found = {}
        try:
            # Output of tests may hold control characters, which XML cannot.
            text = re.sub(
                r"&#(\d|[12]\d|3[01]);|[\0-\x08\x0b\x0c\x0e-\x1f]",
                "?",
                open(report, encoding="utf-8", errors="replace").read(),
            )
            for case in xml.etree.ElementTree.fromstring(text).iter("testcase"):
                # A test whose subtests fail one by one is in the report more than once.
                name = f"{module}.{case.get('name').removeprefix('test.').removeprefix(module + '.')}"
                if found.get(name, "ok") in ("ok", "skip"):
                    found[name] = outcome(case)
        except (OSError, xml.etree.ElementTree.ParseError):
            pass
        if not found:
            text = p.stdout.decode(errors="replace")
            found[module] = "skip" if p.returncode == 0 and "skipped" in text else text[-3000:]
        return found


def main():
    seconds, jobs, ignored, modules = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3].split(","), sys.argv[4:]
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        print(json.dumps(dict(zip(modules, pool.map(lambda m: run(m, seconds, ignored), modules)))))


main()
