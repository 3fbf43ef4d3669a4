"""1 to 16 web servers, and as many databases, at the same time (Xen Figs. 4-5): nginx for SPEC WEB99's, PostgreSQL for
OSDB's, each with its load generator inside. And how near the rates of several are to their weights: equal ones, and 1
to 4.
"""

from harness.runtimes import Cannot
from harness.servers import HELPERS, IMAGE
from harness.together import when_ready

UNIT = "/s"
REPEATS = 1
WAIT = "echo ready; read -r _"
WEB = r"""
mkdir -p /tmp/n/www /tmp/n/t && cd /tmp/n && head -c 1024 /dev/urandom >www/1k
cat >conf <<C
worker_processes 1; user root; pid /tmp/n/pid; error_log /tmp/n/error.log; daemon off;
events { worker_connections 128; }
http {
    access_log off; keepalive_requests 10000000;
    client_body_temp_path t/b; proxy_temp_path t/p; fastcgi_temp_path t/f; uwsgi_temp_path t/u; scgi_temp_path t/s;
    server { listen 127.0.0.1:$PORT; root /tmp/n/www; }
}
C
nginx -p /tmp/n -c /tmp/n/conf -e /tmp/n/error.log </dev/null >/dev/null & server=$!
wait_for curl -sf -o /dev/null http://127.0.0.1:$PORT/1k
WAIT
wrk -t 1 -c 8 -d "$D" http://127.0.0.1:$PORT/1k >out
! grep -E 'Socket errors|Non-2xx' out >&2
awk '/^Requests\/sec/ { print $2 }' out
kill -QUIT $server; wait $server
"""
DATABASE = r"""
cd /tmp
export PGDATA=/tmp/pg PGHOST=/tmp PGPORT=$PORT PGUSER=postgres PGDATABASE=postgres
as() { setpriv --reuid=postgres --regid=postgres --clear-groups -- env HOME=/tmp "$@"; }
bin=/usr/lib/postgresql/15/bin
as $bin/initdb --no-sync -A trust >log 2>&1 </dev/null || { cat log >&2; exit 1; }
printf "unix_socket_directories = '/tmp'\nlisten_addresses = ''\nautovacuum = off\nshared_buffers = 32MB\n" >>pg/postgresql.conf
as $bin/pg_ctl -w -t 120 -l /tmp/pglog start >log 2>&1 </dev/null || { cat log pglog >&2; exit 1; }
pgbench -i -q -s 1 >log 2>&1 </dev/null
WAIT
pgbench -n -S -T "$D" -c 2 -j 1 >log 2>&1 || { cat log >&2; exit 1; }
awk '/^tps/ { print $3 }' log
as $bin/pg_ctl -w -m immediate stop >log
"""  # noqa: E501
KINDS = {"web servers": (WEB, "all requests"), "databases": (DATABASE, "all transactions")}
WEIGHTS = (1, 2, 3, 4)


def rates(runtimes, script, seconds):
    """Each one's rate in a window that begins when all are ready."""
    prepared = lambda i: f"PORT={18080 + i} D={seconds}\n{HELPERS}{script.replace('WAIT', WAIT)}"
    return [float(x) for x in when_ready(runtimes, lambda i: ["/bin/bash", "-c", prepared(i)], IMAGE)]


def of_ideal(rates, weights):
    """100 % less what the worst served lacks or the best served has too much of its share."""
    ideal = sum(rates) / sum(weights)
    return 100 * (1 - max(abs(r / (ideal * w) - 1) for r, w in zip(rates, weights))), "%"


def measure(runtime, opt):
    seconds = 1 if opt.quick else 4
    for name, (script, what) in list(KINDS.items())[: 1 if opt.quick else None]:
        for n in [4] if opt.quick else [1, 2, 4, 8, 16]:
            got = rates([runtime.limited(weight=100)] * n, script, seconds)
            yield f"hosting: {n} {name}, {what}", sum(got)
            if n == 4:
                yield f"hosting: 4 {name} of equal weight, of the ideal split", of_ideal(got, [1] * n)
    if runtime.name in ("native", "runsc", "bwrap"):
        raise Cannot(f"{runtime.name}: gives no weights here")
    if opt.quick:
        raise Cannot(f"{runtime.name}: weights need more time than a short run has")
    for name, (script, _) in KINDS.items():
        got = rates([runtime.limited(weight=100 * w) for w in WEIGHTS], script, 2 * seconds)
        yield f"hosting: {name} of weights 1 to 4, of the ideal split", of_ideal(got, WEIGHTS)
