"""1 to 16 web servers, and 1 to 4 databases, at the same time (Xen Figs. 4-5): nginx for SPEC WEB99's, PostgreSQL for
OSDB's, each with its load generator inside. And two databases of weights 1 and 3: how near their rates are to 1:3.
"""
import time

from harness.servers import HELPERS, IMAGE
from harness.together import outputs

UNIT = "/s"
REPEATS = 1
WAIT = """
[ "$(date +%s)" -lt "$AT" ] || { echo "was not ready in time" >&2; exit 1; }
until [ "$(date +%s)" -ge "$AT" ]; do sleep 0.02; done
"""
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
nginx -p /tmp/n -c /tmp/n/conf -e /tmp/n/error.log & server=$!
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
as $bin/initdb -A trust >log 2>&1 || { cat log >&2; exit 1; }
printf "unix_socket_directories = '/tmp'\nlisten_addresses = ''\nautovacuum = off\nshared_buffers = 32MB\n" >>pg/postgresql.conf
as $bin/pg_ctl -w -l /tmp/pglog start >log 2>&1 || { cat log pglog >&2; exit 1; }
pgbench -i -q -s 1 >log 2>&1
WAIT
pgbench -n -S -T "$D" -c 2 -j 1 >log 2>&1 || { cat log >&2; exit 1; }
awk '/^tps/ { print $3 }' log
as $bin/pg_ctl -w -m immediate stop >log
"""


def rates(runtimes, script, seconds, ahead):
    """Each one's rate in a window that begins when all are ready."""
    at = int(time.time() + ahead)
    prepared = lambda i: f"PORT={18080 + i} AT={at} D={seconds}\n{HELPERS}{script.replace('WAIT', WAIT)}"  # noqa: E731
    return [float(x) for x in outputs(runtimes, lambda i: ["/bin/bash", "-c", prepared(i)], image=IMAGE, timeout=180)]


def measure(runtime, opt):
    seconds = 1 if opt.quick else 4
    rows = {}
    for n in [1, 4] if opt.quick else [1, 2, 4, 8, 16]:
        rows[f"hosting: {n} web servers, all requests"] = sum(rates([runtime] * n, WEB, seconds, 3 + n))
    for n in [1] if opt.quick else [1, 2, 4]:
        rows[f"hosting: {n} databases, all transactions"] = sum(rates([runtime] * n, DATABASE, seconds, 6 + 4 * n))
    if runtime.name not in ("native", "runsc"):
        one, three = rates([runtime.limited(weight=100), runtime.limited(weight=300)], DATABASE, seconds, 14)
        rows["hosting: databases of weights 1 and 3, of the ideal split"] = (100 * (1 - max(abs(4 * one / (one + three) - 1), abs(4 / 3 * three / (one + three) - 1))), "%")
    return rows
