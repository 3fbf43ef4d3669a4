"""sysbench's OLTP (VirtuOS Figs. 7-8) with 1, 4 and 16 threads: PostgreSQL, and MariaDB for MySQL, over TCP loopback;
all data in memory. Transactions a second, of ten selects each, or of those and some writes.
"""

from harness.servers import rates

UNIT = "/s"
REPEATS = 2
LOAD = r"""
loads() { for t in $TESTS; do load "OLTP: $1, ${t//_/-}" oltp_$t; done; }
load() {
    local row=$1 test=$2 options="$OPTIONS --db-ps-mode=auto --tables=2 --table-size=5000"
    sysbench $test $options prepare >out 2>&1 || { tail -n 20 out >&2; exit 1; }
    for n in $THREADS; do
        sysbench $test $options --time="$D" --threads=$n run >out 2>&1 || { tail -n 20 out >&2; exit 1; }
        awk -v row="$row, threads: $n" '/transactions:/ { sub("\\(", "", $3); print row ": " $3 }' out
    done
    sysbench $test $options cleanup >out 2>&1 || { tail -n 20 out >&2; exit 1; }
}
"""
POSTGRES = r"""
cd /tmp
as() { setpriv --reuid=postgres --regid=postgres --clear-groups -- env HOME=/tmp "$@"; }
bin=/usr/lib/postgresql/15/bin
as $bin/initdb -D /tmp/pg -A trust >log 2>&1 || { cat log >&2; exit 1; }
printf "port = 15432\nunix_socket_directories = '/tmp'\nautovacuum = off\nfsync = off\n" >>pg/postgresql.conf
as $bin/pg_ctl -D /tmp/pg -w -l /tmp/pglog start >log 2>&1 || { cat log pglog >&2; exit 1; }
OPTIONS="--db-driver=pgsql --pgsql-host=127.0.0.1 --pgsql-port=15432 --pgsql-user=postgres --pgsql-db=postgres"
loads PostgreSQL
as $bin/pg_ctl -D /tmp/pg -w -m immediate stop >log
"""
MARIADB = r"""
mkdir -p /tmp/my && cd /tmp
# As mariadb-install-db does, without what only the clients' package has.
( printf 'create database mysql;\nuse mysql;\nset @auth_root_socket = null;\n'
  cd /usr/share/mysql && cat mysql_system_tables.sql mysql_performance_tables.sql mysql_system_tables_data.sql ) >tables.sql
options="--no-defaults --user=root --datadir=/tmp/my --innodb-use-native-aio=0 --innodb-log-file-size=16M"
mariadbd $options --bootstrap --skip-log-bin <tables.sql >log 2>&1 || { tail -n 30 log >&2; exit 1; }
mariadbd $options --socket=/tmp/my.sock --port=13306 --bind-address=127.0.0.1 --skip-name-resolve \
    --innodb-flush-log-at-trx-commit=0 --pid-file=/tmp/my.pid >mylog 2>&1 & server=$!
port() { (: </dev/tcp/127.0.0.1/13306) 2>/dev/null; }
wait_for port || { tail -n 30 mylog >&2; exit 1; }
OPTIONS="--db-driver=mysql --mysql-host=127.0.0.1 --mysql-port=13306 --mysql-user=root --mysql-db=mysql"
loads MariaDB
kill $server
wait $server || true
"""  # noqa: E501


def measure(runtime, opt):
    # A short run has PostgreSQL in `postgres`.
    given = (
        f"D={1 if opt.quick else 2} TESTS='read_only{'' if opt.quick else ' read_write'}' "
        f"THREADS='{'4' if opt.quick else '1 4 16'}'\n"
        + LOAD
    )
    for script in [MARIADB] if opt.quick else [POSTGRES, MARIADB]:
        yield from rates(runtime, given + script).items()
