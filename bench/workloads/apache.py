"""Apache 2 of single-threaded processes under `ab`, objects of several sizes, over loopback (VirtuOS Figs. 11-12)."""
from harness.servers import rates

UNIT = "/s"
REPEATS = 2
SCRIPT = r"""
mkdir -p /tmp/a/www && cd /tmp/a
for k in $SIZES; do head -c $((k * 1024)) /dev/urandom >www/$k; done
m=/usr/lib/apache2/modules
cat >conf <<C
ServerRoot /tmp/a
ServerName localhost
Listen 127.0.0.1:18088
LoadModule mpm_prefork_module $m/mod_mpm_prefork.so
LoadModule authz_core_module $m/mod_authz_core.so
PidFile /tmp/a/pid
DefaultRuntimeDir /tmp/a
ErrorLog /tmp/a/error.log
User www-data
Group www-data
DocumentRoot /tmp/a/www
StartServers 8
MaxKeepAliveRequests 0
C
chmod 755 /tmp/a /tmp/a/www
# It ends its whole process group with itself.
setsid apache2 -f /tmp/a/conf -DFOREGROUND & server=$!
wait_for curl -sf -o /dev/null http://127.0.0.1:18088/${SIZES%% *} || { cat error.log >&2; exit 1; }
for k in $SIZES; do
    ab -q -k -c 8 -t "$D" -n 10000000 http://127.0.0.1:18088/$k >out 2>&1 || { tail -n 20 out >&2; exit 1; }
    awk -v row="Apache, $k KB" '/^Requests per second/ { print row ": " $4 } /^Failed requests/ && $3 { print "failed requests: " $3 >"/dev/stderr"; exit 1 }' out
done
kill $server
wait $server || true
"""  # noqa: E501


def measure(runtime, opt):
    return rates(runtime, f"D=1 SIZES='{'4' if opt.quick else '1 4 16 64 256 1024'}'\n" + SCRIPT)
