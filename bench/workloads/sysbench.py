"""sysbench: eight threads that yield with locks held, eight that fight for mutexes, and files."""
from harness.servers import rates

UNIT = "/s"
REPEATS = 3
SCRIPT = r"""
mkdir -p /tmp/b && cd /tmp/b
run() { local row=$1; shift; sysbench "$@" run >out 2>&1 || { cat out >&2; exit 1; }
    awk -v row="$row" '/total number of events:/ { n = $NF } /total time:/ { sub("s", "", $NF); t = $NF } END { print row ": " n / t }' out; }
run 'sysbench threads' --time="$D" threads --threads=8 --thread-yields=100 --thread-locks=4
run 'sysbench mutex' --time=0 mutex --threads=8 --mutex-num=64 --mutex-locks=20000 --mutex-loops=500
[ "$D" = 1 ] && exit
sysbench fileio --file-total-size=64M --file-num=8 prepare >/dev/null
run 'sysbench files, random read and write' --time="$D" fileio --file-total-size=64M --file-num=8 --file-test-mode=rndrw --threads=2
"""  # noqa: E501


def measure(runtime, opt):
    return rates(runtime, f"D={1 if opt.quick else 2}\n" + SCRIPT)
