"""Go: a net/http server under load by clients in the same program, built with this host's Go (bench/src/gohttp)."""
import os
import shutil
import subprocess

from harness.runtimes import BENCH, WORK, Cannot

UNIT = "/s"
TARGETS = {}
IMAGE = "bench-go"
made = False


def prepare(runtime):
    """The image with the program, where there is Go."""
    global made
    go = shutil.which("go") or "/usr/local/go/bin/go"
    if not os.path.exists(go):
        return
    root = WORK / "go"
    for d in ("bin", "usr/bin", "tmp", "proc", "sys", "dev", "etc"):
        (root / d).mkdir(parents=True, exist_ok=True)
    shutil.copy("/bin/busybox", root / "bin/busybox")
    env = root / "usr/bin/env"
    if not env.is_symlink():
        env.symlink_to("/bin/busybox")
    subprocess.run([go, "build", "-o", root / "bin/gohttp", "main.go"], cwd=BENCH / "src/gohttp",
                   env={**os.environ, "CGO_ENABLED": "0"}, check=True, capture_output=True)
    doppel = runtime.roots.doppel
    subprocess.run([doppel, "image", "rm", IMAGE], capture_output=True)
    subprocess.run([doppel, "image", "import", root, IMAGE], check=True, capture_output=True)
    made = True


def measure(runtime, opt):
    if not made:
        raise Cannot("no Go to build with")
    out = runtime.run("/bin/gohttp", "400" if opt.quick else "3000", image=IMAGE)
    return {"Go, HTTP requests": float(out.split()[-1])}
