"""PostgreSQL 15 under pgbench: 4 clients over AF_UNIX, TPC-B and read-only, scale 5, 128 MB of shared buffers."""
from harness.servers import rates

UNIT = "/s"
REPEATS = 3
SCRIPT = r"""
cd /tmp
export PGDATA=/tmp/pg PGHOST=/tmp PGPORT=15432 PGUSER=postgres PGDATABASE=postgres
as() { setpriv --reuid=postgres --regid=postgres --clear-groups -- env HOME=/tmp "$@"; }
bin=/usr/lib/postgresql/15/bin
as $bin/initdb --no-sync -A trust >log 2>&1 || { cat log >&2; exit 1; }
printf "unix_socket_directories = '/tmp'\nlisten_addresses = ''\nautovacuum = off\n" >>pg/postgresql.conf
as $bin/pg_ctl -w -l /tmp/pglog start >log 2>&1 || { cat log pglog >&2; exit 1; }
pgbench -i -q -s $([ "$D" = 1 ] && echo 1 || echo 5) >log 2>&1
load() { local row=$1; shift; pgbench -n -T "$D" -c 4 -j 2 "$@" >log 2>&1 || { cat log >&2; exit 1; }; echo "$row: $(awk '/^tps/ { print $3 }' log)"; }
[ "$D" = 1 ] || load 'PostgreSQL, TPC-B'
load 'PostgreSQL, read-only' -S
[ "$D" = 1 ] || load 'PostgreSQL, read-only, prepared' -S -M prepared
as $bin/pg_ctl -w -m immediate stop >log
"""  # noqa: E501


def measure(runtime, opt):
    return rates(runtime, f"D={1 if opt.quick else 4}\n" + SCRIPT)
