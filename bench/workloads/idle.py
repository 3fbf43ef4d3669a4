"""Memory of a domain whose only process sleeps, 1.5 s after its start."""
import subprocess
import time

from harness.memory import cgroup_bytes, memory_of, named, tree
from harness.runtimes import Failed

UNIT = "KiB"
REPEATS = 1


def measure(runtime, opt):
    argv = runtime.argv("/bin/busybox", "sleep", "1000")
    p = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    time.sleep(1.5)
    if p.poll() is not None:
        raise Failed(f"{runtime.name}: sleep ended with {p.returncode}: {p.stderr.read().decode()[-200:]}")
    if runtime.name == "native":
        inside, launcher = {p.pid}, set()
    else:
        inside, launcher = set(tree(p.pid)), {p.pid}
        if runtime.name == "runsc":  # its sandbox is not below its launcher in every version
            inside |= named(runtime.id) - launcher
    pss, own, tables = memory_of(inside)
    lp, _, lt = memory_of(launcher)
    charged = cgroup_bytes(max(inside)) // 1024 if inside else 0
    p.terminate()
    time.sleep(0.1)
    runtime.clean()
    p.kill()
    p.wait()
    return {
        "idle: PSS of its processes": pss,
        "idle: of this, no file's pages": own,
        "idle: their page tables": tables,
        "idle: charged to its cgroup": charged,
        "idle: launcher (PSS + page tables)": lp + lt,
    }
