# nginx: files, ranges, compression, a proxy, reload and graceful end, and wrk for $SECONDS_OF_LOAD.
mkdir -p /tmp/n/www /tmp/n/tmp
cd /tmp/n
head -c 1024 /dev/urandom >www/1k
head -c 5000001 /dev/urandom >www/5m
yes 'compress me' | head -n 5000 >www/text.txt
chmod -R a+rX /tmp/n
cat >conf <<'C'
worker_processes 2;
pid /tmp/n/pid;
error_log /tmp/n/error.log notice;
events { worker_connections 1024; }
http {
    access_log /tmp/n/access.log;
    client_body_temp_path /tmp/n/tmp/b; proxy_temp_path /tmp/n/tmp/p; fastcgi_temp_path /tmp/n/tmp/f;
    uwsgi_temp_path /tmp/n/tmp/u; scgi_temp_path /tmp/n/tmp/s;
    sendfile on; tcp_nopush on; keepalive_requests 100000;
    gzip on; gzip_types text/plain; types { text/plain txt; }
    upstream back { server unix:/tmp/n/back.sock; keepalive 16; }
    server { listen 127.0.0.1:8080 reuseport; listen [::1]:8080; root /tmp/n/www; location = /status { return 200 "version 1\n"; } }
    server { listen unix:/tmp/n/back.sock; root /tmp/n/www; }
    server { listen 127.0.0.1:8081; location / { proxy_pass http://back; proxy_http_version 1.1; proxy_set_header Connection ""; } }
}
C
nginx -t -c /tmp/n/conf 2>&1
nginx -c /tmp/n/conf -g 'daemon off;' & pid=$!
wait_for curl -sf -o /dev/null http://127.0.0.1:8080/1k

sum() { sha256sum | cut -c 1-64; }
same "$(curl -s http://127.0.0.1:8080/5m | sum)" "$(sum <www/5m)"
same "$(curl -sg 'http://[::1]:8080/1k' | sum)" "$(sum <www/1k)"
same "$(curl -s http://127.0.0.1:8081/5m | sum)" "$(sum <www/5m)"
same "$(curl -s --unix-socket back.sock http://x/1k | sum)" "$(sum <www/1k)"
same "$(curl -s -r 1000000-1999999 http://127.0.0.1:8080/5m | sum)" "$(tail -c +1000001 www/5m | head -c 1000000 | sum)"
same "$(curl -s --compressed http://127.0.0.1:8080/text.txt | sum)" "$(sum <www/text.txt)"
[ "$(curl -s -H 'Accept-Encoding: gzip' http://127.0.0.1:8080/text.txt | wc -c)" -lt 2000 ]
same "$(curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:8080/none)" 404
same "$(curl -s http://127.0.0.1:8080/status)" "version 1"

load() { # name, arguments of wrk
    local name=$1; shift
    wrk -d "$SECONDS_OF_LOAD" --timeout 60 "$@" >load || { cat load >&2; exit 1; }
    if grep -E 'Socket errors|Non-2xx' load >&2; then exit 1; fi
    echo "$name: $(awk '/^Requests\/sec/ { print $2 }' load)"
    awk '/^Requests\/sec/ { exit !($2 > 0) }' load
}
echo "== load"
load "1 KB files" -t 2 -c 32 http://127.0.0.1:8080/1k
load "5 MB files" -t 1 -c 4 http://127.0.0.1:8080/5m || true
load "proxied" -t 1 -c 16 http://127.0.0.1:8081/1k
ab -q -n 500 -c 10 http://127.0.0.1:8080/1k | grep -E 'Failed requests: +0$' # a connection a request

echo "== a reload under load loses nothing"
wrk -t 1 -c 8 -d 2 --timeout 60 http://127.0.0.1:8080/1k >load & w=$!
for i in 1 2 3; do sleep 0.5; sed -i "s/\"version [0-9]*/\"version $((i + 1))/" conf; kill -HUP $pid; done
wait $w
if grep -q Non-2xx load; then cat load >&2; exit 1; fi
wait_for sh -c "curl -s http://127.0.0.1:8080/status | grep -qx 'version 4'"
kill -USR1 $pid   # reopens its logs
[ "$(wc -l <access.log)" -gt 500 ]
if grep -E '\[(alert|crit|emerg|error)\]' error.log | grep -v '/tmp/n/www/none' >&2; then exit 1; fi
kill -QUIT $pid
wait $pid
echo "nginx ok"
