"""`git status` on a tree of 10,000 files (in a quick run 1,000) in 100 directories, on a file system in memory."""
from harness.inside import timed

UNIT = "ns"
TARGETS = {"git status, 10,000 files": 1.0}
PREPARE = """
mkdir /tmp/tree && cd /tmp/tree
python3 -c '
import os
for d in range(100):
    os.makedirs(f"dir{d:02}/sub")
    for f in range(FILES):
        name = f"dir{d:02}/sub/file{f:02}.c" if f % 2 else f"dir{d:02}/file{f:02}.c"
        open(name, "w").write(f"int f{d}_{f}(void) {{ return {d * f}; }}\\n")
'
git init -q . && git add . && git -c user.name=b -c user.email=b@localhost commit -qm all && sleep 1.1 && git status
"""


def measure(runtime, opt):
    files = 10 if opt.quick else 100
    t = timed(
        runtime,
        "/usr/bin/git",
        "-C",
        "/tmp/tree",
        "status",
        prepare=PREPARE.replace("FILES", str(files)),
        count=3 if opt.quick else 10,
    )
    return {f"git status, {100 * files:,} files": t}
