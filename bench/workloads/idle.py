"""Memory of a domain whose only process sleeps, 1.5 s after its start; through the supervisor, of one in twenty."""
import subprocess
import time

from harness.memory import cgroup_bytes, memory_of, named, tree
from harness.runtimes import Failed

UNIT = "KiB"
REPEATS = 1
ALSO = ("doppel-api", "crun")
TOGETHER = 20


def of_supervisor(supervisor, settle):
    """As `measure`, the mean of some domains."""
    connection = supervisor.connection()
    before = memory_of(supervisor.processes())
    wanted = {"image": "bench", "command": ["/bin/busybox", "sleep", "1000"]}
    made = [connection.ask("POST", "/v1/domains?start=true", wanted)["domain"] for _ in range(TOGETHER)]
    time.sleep(settle)
    roots = [m["pid"] for m in made]
    pss, own, tables = memory_of({p for root in roots for p in [root, *tree(root)]})
    after = memory_of(supervisor.processes())
    charged = sum(cgroup_bytes(p) for p in roots) // 1024
    for m in made:
        connection.ask("DELETE", f"/v1/domains/{m['id']}?force=true")
    return {
        "idle: PSS of its processes": pss / TOGETHER,
        "idle: of this, no file's pages": own / TOGETHER,
        "idle: their page tables": tables / TOGETHER,
        "idle: charged to its cgroup": charged / TOGETHER,
        "idle: launcher (PSS + page tables)": (after[0] + after[2] - before[0] - before[2]) / TOGETHER,
    }


def measure(runtime, opt):
    settle = 0.5 if opt.quick else 1.5
    if runtime.name == "doppel-api":
        return of_supervisor(runtime.supervisor, settle)
    argv = runtime.argv("/bin/busybox", "sleep", "1000")
    p = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    time.sleep(settle)
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
