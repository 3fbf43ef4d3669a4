"""What else people run: Ruby, PHP, numpy, CMake on a small project, and stress-ng's stressors, two workers each.

The programs time themselves; stress-ng counts its operations a second of real time.
"""
from harness.servers import HELPERS

REPEATS = 2
UNIT = "ns"
RUBY = (
    "t = Process.clock_gettime(1); h = Hash.new(0); 400_000.times { |i| h[(i * 7919 % 10007).to_s] += 1 }; "
    "h.sort_by { |k, v| [-v, k] }; puts((Process.clock_gettime(1) - t) * 1e9)"
)
PHP = (
    '$t = hrtime(true); $a = []; for ($i = 0; $i < 600000; $i++) $a[md5((string)($i % 20000))] = $i; ksort($a); echo '
    'hrtime(true) - $t, "\\n";'
)
NUMPY = """
import time, numpy
t = time.perf_counter_ns()
a = numpy.random.default_rng(1).random((500, 500))
for _ in range(6):
    a = a @ a
    a /= numpy.sort(a, axis=None)[-1]
print(time.perf_counter_ns() - t)
"""
CMAKE = r"""
rm -rf /tmp/c && mkdir -p /tmp/c && cd /tmp/c
{ echo 'cmake_minimum_required(VERSION 3.10)'; echo 'project(p C)'; echo 'file(GLOB s *.c)'; echo 'add_executable(p ${s})'; } >CMakeLists.txt
echo 'int main(void) { return 0; }' >main.c
for i in $(seq 12); do echo "#include <stdio.h>
int f$i(int a) { printf(\"%d\", a); return a * $i; }" >f$i.c; done
t=$(date +%s%N)
{ cmake -S . -B b && cmake --build b -j2; } >log 2>&1 || { cat log >&2; exit 1; }
echo $(($(date +%s%N) - t))
"""  # noqa: E501
STRESSORS = ["cpu", "vm", "pipe", "futex", "fork", "timer", "signal", "hdd"]
STRESS = r"""
mkdir -p /tmp/s && cd /tmp/s
for s in %s; do
    stress-ng --$s 2 -t "$T" --metrics-brief --temp-path /tmp/s $([ $s = vm ] && echo --vm-bytes 64m) $([ $s = hdd ] && echo --hdd-bytes 32m) >out 2>&1 || true
    awk -v s="$s" '$4 == s && NF == 10 { print "stress-ng " s ", operations: " $9 }' out
done
"""  # noqa: E501


def measure(runtime, opt):
    def took(*command):
        return float(runtime.run(*command, image="runtimes", timeout=120).split()[-1])

    rows = {
        "Ruby, a table of words": took("/usr/bin/ruby", "-e", RUBY),
        "PHP, a table of digests": took("/usr/bin/php", "-r", PHP),
        "numpy, matrix products": took("/usr/bin/python3", "-c", NUMPY),
    }
    if opt.quick:
        return rows
    rows["CMake, configure and build 13 files"] = took("/bin/bash", "-c", HELPERS + CMAKE)
    out = runtime.run("/bin/bash", "-c", "T=2\n" + STRESS % " ".join(STRESSORS), image="servers", timeout=120)
    for line in out.splitlines():
        name, _, figure = line.rpartition(": ")
        if name:
            rows[name] = float(figure), "/s"
    return rows
