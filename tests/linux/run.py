#!/usr/bin/env python3
"""Builds the Linux conformance suites, runs them natively and in a domain, and compares.

    tests/linux/run.py [--native-only | --domain-only] [--suite NAME]... [--json FILE] [-v]

Every suite is one C program of this directory (see t.h for its output). All are built against glibc;
those of MUSL are built a second time, static, against musl, so that another libc's way of calling
the kernel is tried as well. A case counts for the domain only when it passes (or is skipped) natively.
When a suite dies in the middle (a crashed domain), the case it was in is marked and the rest resumed.
"""
import argparse
import functools
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from typing import Any

from partner import Partner

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent))
import store  # noqa: E402, F401

BUILD = ROOT / "target" / "linux-tests"
IMAGE = os.environ.get("T_IMAGE", "linux-tests")
DOPPEL = pathlib.Path(os.environ.get("DOPPEL", ROOT / "target" / "release" / "doppel"))
SUITES = sorted(p.stem for p in HERE.glob("*.c"))
MUSL = ["process", "threads", "futex", "faults", "pipes"]
# Suites that want a domain with a network, and the one that has a partner outside.
NETWORKED = ["interfaces", "outside"]
PARTNERED = "outside"
# Suites of files, whose cases pass on a volume as well.
FILES = """closing copying dirs files handles locks maps meta names rwinfo sparse walks watch xattr""".split()
# More options of `doppel run`, and a command of the domain's shell before each suite.
OPTIONS: list[str] = []
BEFORE: list[str] = []
FLAGS = ("-std=gnu11 -O1 -g -Wall -Wextra -Werror -Wno-stringop-overflow -Wno-stringop-overread -Wno-nonnull "
         "-Wno-clobbered -Wno-format-truncation -Wno-unused-result -Wno-unused-function -pthread").split()
# Commands the suites start themselves, put into the image with their libraries.
TOOLS = ["sh", "cp", "cat", "chown", "chmod", "true", "sleep", "yes", "head", "sort", "wc", "bash", "mount"]
LINE = re.compile(r"^(ok|not ok|skip) ([A-Za-z0-9_]+)(?:: (.*))?$")


def build() -> Any:
    """Compiles every suite; value: list of program paths."""
    BUILD.mkdir(parents=True, exist_ok=True)
    header = max(h.stat().st_mtime for h in HERE.glob("*.h"))
    out = []
    jobs: list[tuple[str, str, list[str]]] = [(s, "gcc", []) for s in SUITES]
    if shutil.which("musl-gcc"):
        after = ["-idirafter", "/usr/include", "-idirafter", "/usr/include/x86_64-linux-gnu"]  # linux/*.h
        jobs += [(s, "musl-gcc", ["-static", *after]) for s in MUSL]
    for suite, compiler, extra in jobs:
        src = HERE / f"{suite}.c"
        exe = BUILD / (suite if compiler == "gcc" else f"{suite}-musl")
        if not exe.exists() or exe.stat().st_mtime < max(src.stat().st_mtime, header):
            subprocess.run([compiler, *FLAGS, *extra, "-o", exe, src, "-lutil"], check=True)
        out.append(exe)
    return out


def libraries(program: Any) -> Any:
    """The shared objects a program needs, by ldd."""
    text = subprocess.run(["ldd", program], capture_output=True, text=True).stdout
    return re.findall(r"(/\S+) \(0x", text)


def make_image(programs: Any) -> None:
    """Imports an image with the suites, a few tools, and what both need."""
    with tempfile.TemporaryDirectory() as tmp:
        root = pathlib.Path(tmp)
        root.chmod(0o755)  # a temporary directory is its owner's alone; "/" is not
        for d in ["bin", "t", "etc", "tmp", "proc", "sys", "dev", "root", "lib64", "usr/share/t-image"]:
            (root / d).mkdir(parents=True)
        root.chmod(0o755)
        (root / "tmp").chmod(0o1777)
        (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/tmp:/bin/sh\n")
        (root / "etc/group").write_text("root:x:0:\nuser:x:1000:\n")
        (root / "etc/hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")
        (root / "usr/share/t-image/one").write_text("one")
        (root / "usr/share/t-image/two").write_text("two")
        for p in programs:
            shutil.copy(p, root / "t" / p.name)
        wanted = list(programs)
        for t in TOOLS:
            src = pathlib.Path(shutil.which(t)).resolve()
            shutil.copy(src, root / "bin" / t)
            wanted.append(src)
        for lib in {lib for p in wanted for lib in libraries(p)} | {
            "/lib/x86_64-linux-gnu/libgcc_s.so.1"
        }:  # for pthread_cancel
            dst = root / lib.lstrip("/")
            dst.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(pathlib.Path(lib).resolve(), dst)
        subprocess.run([DOPPEL, "image", "rm", IMAGE], capture_output=True)
        subprocess.run([DOPPEL, "image", "import", root, IMAGE], check=True, stdout=subprocess.DEVNULL)


def parse(text: str, into: dict[str, tuple[str, str]]) -> None:
    for line in text.splitlines():
        m = LINE.match(line.strip())
        if m and m[2] not in into:
            into[m[2]] = (m[1], m[3] or "")


def cases_of(program: Any) -> list[str]:
    return subprocess.run([program, "-l"], capture_output=True, text=True, check=True).stdout.split()


def run_suite(start: Any, program: Any, names: list[str], limit: float) -> Any:
    """Runs one suite with `start(arguments)`; resumes after the case in which it died."""
    got: dict[str, tuple[str, str]] = {}
    last: str | None = None
    while True:
        args = ["-a", last] if last else []
        try:
            r = subprocess.run(start(program, args), stdin=subprocess.DEVNULL, capture_output=True, timeout=limit)
            said, err, why = r.stdout, r.stderr, f"ended with code {r.returncode}"
        except subprocess.TimeoutExpired as e:
            said, err, why = e.stdout or b"", e.stderr or b"", f"no end after {limit} s"
        text = said.decode(errors="replace")
        parse(text, got)
        missing = [n for n in names if n not in got]
        if "\ntotal: " in "\n" + text or not missing:
            break
        tail = err.decode(errors="replace").strip().splitlines()[-1:] or [""]
        got[missing[0]] = ("not ok", f"the whole run {why} here: {tail[0][:200]}")
        last = missing[0]
    for n in names:
        got.setdefault(n, ("not ok", "no result"))
    return got


@functools.cache
def partner() -> Any:
    """The server that the suite `outside` calls, and a port of the host for its calls to the suite."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return Partner(), s.getsockname()[1]


def native(program: Any, args: Any) -> Any:
    if program.name != PARTNERED:
        return [program, *args]
    server, port = partner()
    return ["env", f"T_OUTSIDE=127.0.0.1:{server.port}", f"T_PUBLISHED={port}", program, *args]


def in_domain(program: Any, args: Any) -> Any:
    network = ["--network", "nat"] if program.name in NETWORKED else []
    if program.name == PARTNERED:
        server, port = partner()
        network += [
            "--allow",
            "10.88.0.1",
            "-p",
            f"127.0.0.1:{port}:{port}",
            "-p",
            f"127.0.0.1:{port}:{port}/udp",
            "-e",
            f"T_OUTSIDE=10.88.0.1:{server.port}",
            "-e",
            f"T_PUBLISHED={port}",
        ]
    return [
        DOPPEL,
        "run",
        "--rm",
        *OPTIONS,
        *network,
        "-e",
        "TMPDIR=/tmp",
        "-e",
        "T_IMAGE_DIR=/usr/share/t-image",
        IMAGE,
        "--",
        *(["sh", "-c", f'{BEFORE[0]} && exec "$@"', "sh"] if BEFORE else []),
        f"/t/{program.name}",
        *args,
    ]


def main() -> Any:
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--native-only", action="store_true")
    ap.add_argument("--domain-only", action="store_true", help="take the native column as passed")
    ap.add_argument("--suite", action="append", default=[])
    ap.add_argument("--kernel", help="guest kernel ELF in place of the command's own (docs/debugging.md)")
    ap.add_argument("--option", action="append", default=[], help="another option of doppel run")
    ap.add_argument("--json")
    ap.add_argument("--limit", type=int, default=600, help="seconds a suite may take")
    ap.add_argument("-v", action="store_true", help="print every case, not only differences")
    opt = ap.parse_args()
    OPTIONS[:] = (["--kernel", opt.kernel] if opt.kernel else []) + opt.option
    programs = build()
    chosen = [p for p in programs if not opt.suite or p.name in opt.suite or p.name.removesuffix("-musl") in opt.suite]
    domain = not opt.native_only
    if domain:
        make_image(programs)
    os.environ["TMPDIR"] = scratch = tempfile.mkdtemp(prefix="linux-tests-")
    os.chmod(scratch, 0o777)
    results, sums = {}, [0, 0, 0, 0]
    try:
        print(f"{'suite':<18}{'cases':>6}{'native':>9}{'domain':>9}")
        for p in chosen:
            names = cases_of(p)
            nat = dict.fromkeys(names, ("ok", "")) if opt.domain_only else run_suite(native, p, names, opt.limit)
            dom = run_suite(in_domain, p, names, opt.limit) if domain else {}
            results[p.name] = {n: {"native": nat[n], "domain": dom.get(n)} for n in names}
            valid = [n for n in names if nat[n][0] == "ok"]
            n_ok, d_ok = len(valid), sum(dom.get(n, ("",))[0] == "ok" for n in valid)
            for i, v in enumerate([len(names), n_ok, n_ok, d_ok]):
                sums[i] += v
            print(f"{p.name:<18}{len(names):>6}{n_ok:>9}{d_ok if domain else '-':>9}", flush=True)
            for n in names:
                for where, got in (("native", nat[n]), ("domain", dom.get(n))):
                    if got and (
                        opt.v
                        or got[0] == "not ok"
                        or (got[0] == "skip" and where == "native")
                        or (got[0] == "skip" and nat[n][0] == "ok")
                    ):
                        print(f"    {where} {got[0]} {n}: {got[1]}")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print(f"total: {sums[0]} cases, {sums[1]} ok natively", end="")
    print(f", {sums[3]} of these ok in a domain ({100 * sums[3] / max(1, sums[2]):.1f} %)" if domain else "")
    if opt.json:
        pathlib.Path(opt.json).write_text(json.dumps(results, indent=1))
    return 0 if sums[1] == sums[0] and (not domain or sums[3] == sums[2]) else 1


if __name__ == "__main__":
    sys.exit(main())
