"""A file server's work (Xen Fig. 3): dbench's file operations of NetBench on a file system in memory, for one client
and for four; and tbench, the network traffic of the same, over TCP loopback. Debian's dbench with the load file it
comes with.
"""

from harness.servers import rates

UNIT = "MB/s"
REPEATS = 2
SCRIPT = r"""
mkdir -p /tmp/d && cd /tmp/d
load() { local row=$1; shift; "$@" >out 2>&1 || { tail -n 20 out >&2; exit 1; }
    awk -v row="$row" '/^Throughput/ && $2 > 0 { print row ": " $2; n = 1 } END { exit !n }' out || { tail -n 20 out >&2; exit 1; }; }
load 'files: dbench, 1 client' dbench -c "$LOAD" -D /tmp/d -t "$D" 1
[ "$D" = 2 ] && exit
load 'files: dbench, 4 clients' dbench -c "$LOAD" -D /tmp/d -t "$D" 4
tbench_srv >srv 2>&1 & server=$!
sleep 0.3
load 'files: tbench, 1 client over TCP' tbench -c "$LOAD" -t "$D" 1 127.0.0.1
load 'files: tbench, 4 clients over TCP' tbench -c "$LOAD" -t "$D" 4 127.0.0.1
kill $server
wait $server || true
"""  # noqa: E501


def measure(runtime, opt):
    return rates(runtime, f"LOAD=/usr/share/dbench/client.txt D={2 if opt.quick else 3}\n" + SCRIPT)
