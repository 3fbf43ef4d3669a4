"""What programs size themselves by shows the domain's own CPUs and memory, not the host's."""
import os
import shutil
import subprocess

import pytest
from conftest import BUILD
from images import make_image, need_image

IMAGE = "runtimes"
MEMORY = 700 << 20
GO = """package main
import ("fmt"; "runtime")
func main() { fmt.Println(runtime.NumCPU(), runtime.GOMAXPROCS(0)) }
"""


@pytest.fixture(params=[1, 2])
def sized(request, doppel):
    """A domain with that many CPUs and 700 MiB."""
    need_image(IMAGE)
    if request.param > len(os.sched_getaffinity(0)):
        pytest.skip(f"this host has fewer than {request.param} CPUs")

    def run(*argv, image=IMAGE, **kw):
        return doppel.run(*argv, image=image, opts=("--cpus", str(request.param), "-m", str(MEMORY)), **kw).ok()
    run.cpus = request.param
    return run


def test_tools(sized):
    n = sized.cpus
    out = sized(
        "bash",
        "-c",
        "nproc; getconf _NPROCESSORS_ONLN; grep -c ^processor /proc/cpuinfo; ls -d /sys/devices/system/cpu/cpu[0-9]* | "
        "wc -l; "
        "cat /sys/devices/system/cpu/online; grep -c ^cpu[0-9] /proc/stat; grep Cpus_allowed_list /proc/self/status | "
        "cut -f2",
    )
    span = "0" if n == 1 else f"0-{n - 1}"
    assert out.split() == [str(n)] * 4 + [span, str(n), span]


def test_memory(sized):
    out = sized(
        "bash",
        "-c",
        "awk '/MemTotal/ {print $2 * 1024}' /proc/meminfo; free -b | awk '/Mem:/ {print $2}'; "
        "echo $(($(getconf _PHYS_PAGES) * $(getconf PAGESIZE))); cat /sys/fs/cgroup/memory.max",
    )
    for seen in map(int, out.split()):
        assert 0.9 * MEMORY <= seen <= MEMORY, out
    assert int(out.split()[-1]) == MEMORY, out


def test_cgroup(sized):
    out = sized(
        "bash",
        "-c",
        "cat /proc/self/cgroup; cat /sys/fs/cgroup/cpu.max /sys/fs/cgroup/cgroup.controllers; stat -f -c %T "
        "/sys/fs/cgroup",
    )
    group, quota, controllers, kind = out.splitlines()
    assert group == "0::/" and kind == "cgroup2fs" and {"cpu", "memory"} <= set(controllers.split()), out
    q, period = quota.split()
    assert q == "max" or int(q) == sized.cpus * int(period), out


def test_python_and_node(sized):
    n = str(sized.cpus)
    code = (
        "import os, multiprocessing as m; print(os.cpu_count(), m.cpu_count(), len(os.sched_getaffinity(0)), "
        "os.sysconf('SC_NPROCESSORS_CONF'))"
    )
    assert sized("python3", "-c", code).split() == [n] * 4
    cpus, memory = sized("node", "-e", "const o = require('os'); console.log(o.cpus().length, o.totalmem())").split()
    assert cpus == n and 0.9 * MEMORY <= int(memory) <= MEMORY


def test_jvm(sized):
    code = (
        "public class E { public static void main(String[] a) { var r = Runtime.getRuntime(); "
        'System.out.println(r.availableProcessors() + " " + r.maxMemory()); } }'
    )
    cpus, heap = sized("sh", "-c", "cat > E.java && exec java E.java", stdin=code).split()
    # A quarter of the memory, which is the default for a heap.
    assert int(cpus) == sized.cpus and 0.2 * MEMORY <= int(heap) <= 0.26 * MEMORY, (cpus, heap)


def test_go(sized):
    go = shutil.which("go") or "/usr/local/go/bin/go"
    if not os.path.exists(go):
        pytest.skip("go is not installed")
    src = BUILD / "ncpu"
    src.mkdir(parents=True, exist_ok=True)
    (src / "main.go").write_text(GO)
    subprocess.run(
        [go, "build", "-o", src / "ncpu", src / "main.go"], env={**os.environ, "CGO_ENABLED": "0"}, check=True
    )
    image = make_image("domain-ncpu", [], [(src / "ncpu", "bin/ncpu")])
    assert sized("/bin/ncpu", image=image).split() == [str(sized.cpus)] * 2
