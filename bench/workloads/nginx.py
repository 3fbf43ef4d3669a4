"""nginx with two workers under wrk: 32 connections over loopback, files of 1 KB and of 1 MB, and a connection a
request."""

from harness.servers import rates

UNIT = "/s"
REPEATS = 3
SCRIPT = r"""
mkdir -p /tmp/n/www /tmp/n/t && cd /tmp/n
head -c 1024 /dev/urandom >www/1k
head -c 1048576 /dev/urandom >www/1m
cat >conf <<'C'
worker_processes 2;
user root;
pid /tmp/n/pid;
error_log /tmp/n/error.log;
events { worker_connections 512; }
http {
    access_log off; sendfile on; tcp_nopush on; keepalive_requests 10000000;
    client_body_temp_path t/b; proxy_temp_path t/p; fastcgi_temp_path t/f; uwsgi_temp_path t/u; scgi_temp_path t/s;
    server { listen 127.0.0.1:18080; root /tmp/n/www; }
}
C
nginx -p /tmp/n -c /tmp/n/conf -e /tmp/n/error.log -g 'daemon off;' & server=$!
wait_for curl -sf -o /dev/null http://127.0.0.1:18080/1k
load() { local row=$1; shift; wrk -d "$D" "$@" >out; ! grep -E 'Socket errors|Non-2xx' out >&2; echo "$row: $(awk '/^Requests\/sec/ { print $2 }' out)"; }
load 'nginx, 1 KB' -t 2 -c 32 http://127.0.0.1:18080/1k
if [ "$D" != 1 ]; then
load 'nginx, 1 MB' -t 1 -c 8 http://127.0.0.1:18080/1m
load 'nginx, a connection a request' -t 1 -c 16 -H 'Connection: close' http://127.0.0.1:18080/1k
fi
kill -QUIT $server
wait $server
"""  # noqa: E501


def measure(runtime, opt):
    return rates(runtime, f"D={1 if opt.quick else 3}\n" + SCRIPT)
