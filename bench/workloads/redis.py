"""redis-server under redis-benchmark: 50 clients over loopback, one request at a time and 16 at a time."""
from harness.servers import rates

UNIT = "/s"
REPEATS = 3
SCRIPT = r"""
redis-server --port 16379 --save '' --dir /tmp --loglevel warning >/dev/null & server=$!
wait_for redis-cli -p 16379 ping
load() { local row=$1; shift; redis-benchmark -p 16379 -c 50 --csv "$@" | tr -d '"' | awk -F, -v row="$row" '$2 ~ /^[0-9.]+$/ { print row " " $1 ": " $2 }'; }
load Redis -t set,get -n "$N"
load 'Redis pipelined' -t set,get -n $((N * 5)) -P 16
kill $server
wait $server || true
"""  # noqa: E501


def measure(runtime, opt):
    return rates(runtime, f"N={5000 if opt.quick else 60000}\n" + SCRIPT)
