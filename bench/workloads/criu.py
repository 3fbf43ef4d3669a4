"""A warm Python restored by CRIU, the host's own checkpoint and restore, to compare with `clone`.

Where CRIU cannot do it, its own words are kept as the reason. `apt-get install criu`; without it there is no row.
"""
import shutil
import subprocess
import time

from harness import paper
from harness.runtimes import WORK, Cannot, Failed

from workloads.clone import DOTS, PYTHON

UNIT = "ns"
REPEATS = 1
ROW = "warm Python restored by CRIU, to first output"


def measure(runtime, opt):
    if runtime.name != "native":
        raise Cannot(f"{runtime.name}: CRIU restores processes of the host")
    if not shutil.which("criu"):
        raise Cannot("native: CRIU is not installed")
    version = "CRIU " + subprocess.run(["criu", "--version"], capture_output=True, text=True).stdout.split("\n")[
        0
    ].removeprefix("Version: ")
    try:
        took = restored(5 if opt.quick else 20)
    except Failed as e:
        paper.keep("ways", "CRIU", f"{version} cannot do it here: {e}")
        raise Cannot(f"native: {version}: {e}") from None
    paper.keep("ways", "CRIU", took)
    return {ROW: took}


def restored(count):
    """The median of `count` restores."""
    images, out = WORK / "criu", WORK / "criu-out"
    shutil.rmtree(images, ignore_errors=True)
    images.mkdir(parents=True)
    out.write_bytes(b"")
    with open(out, "ab") as f:
        p = subprocess.Popen([PYTHON, "-c", DOTS], stdin=subprocess.DEVNULL, stdout=f, stderr=f, start_new_session=True)
    try:
        until = time.monotonic() + 20
        while b"." not in out.read_bytes() and time.monotonic() < until:
            time.sleep(0.01)
        criu("dump", "-t", str(p.pid), "-D", str(images))
    finally:
        p.kill()
        p.wait()
    took = []
    for _ in range(count):
        size = out.stat().st_size
        begun = time.perf_counter_ns()
        criu("restore", "-d", "-D", str(images), "--pidfile", "pid")
        while out.stat().st_size == size and time.perf_counter_ns() - begun < 10e9:
            pass
        took.append(time.perf_counter_ns() - begun)
        pid = (images / "pid").read_text()
        subprocess.run(["kill", "-9", pid], check=True)
        (images / "pid").unlink()
        while subprocess.run(["kill", "-0", pid], capture_output=True).returncode == 0:
            time.sleep(0.01)
    return sorted(took)[count // 2]


def criu(*argv):
    p = subprocess.run(["criu", *argv], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    if p.returncode:
        errors = [line for line in p.stderr.splitlines() if "Error" in line]
        raise Failed(f"{argv[0]}: {'; '.join(errors[:2])[-300:] or p.stderr[-200:]}")


def finish(results):
    paper.write(results)
