# PostgreSQL in mid-pgbench: the books balance at every moment, clients go on, and the files are sound at the end.
bin=/usr/lib/postgresql/15/bin
export PGDATA=/tmp/pg PGHOST=/tmp PGUSER=postgres PGDATABASE=postgres
cd /tmp
as postgres $bin/initdb -k -N -A trust >initdb.log 2>&1 || { cat initdb.log >&2; exit 1; }
printf "unix_socket_directories = '/tmp'\nlisten_addresses = '127.0.0.1'\nlogging_collector = off\n" >>$PGDATA/postgresql.conf
as postgres $bin/pg_ctl -w -t 60 -l /tmp/pg.log start >/dev/null || { cat pg.log >&2; exit 1; }
sql() { psql -X -q -A -t -v ON_ERROR_STOP=1 -c "$1"; }
pgbench -i -q -s 1 2>/dev/null
pgbench -n -T 1000 -c 3 -j 2 >bench.log 2>&1 & unix=$!
pgbench -n -T 1000 -c 2 -h 127.0.0.1 -M prepared >tcp.log 2>&1 & tcp=$!
done_more() { [ "$(sql 'select count(*) from pgbench_history')" -gt "$1" ]; }
consistent() { same "$(sql 'select (select sum(abalance) from pgbench_accounts) = (select sum(delta) from pgbench_history),
    (select sum(tbalance) from pgbench_tellers) = (select sum(delta) from pgbench_history),
    (select sum(bbalance) from pgbench_branches) = (select sum(delta) from pgbench_history)')" "t|t|t"; }
wait_for done_more 300
echo ready
read -r _
wait_for done_more $(($(sql 'select count(*) from pgbench_history') + 300))
kill -0 $unix; kill -0 $tcp
consistent
sql 'create table t as select i, md5(i::text) from generate_series(1, 20000) i; create index on t(i)'
sql 'vacuum analyze t'
same "$(sql 'select md5 from t where i = 777')" "$(printf 777 | md5sum | cut -c1-32)"
same "$(grep -E 'PANIC|FATAL|ERROR|terminated by' pg.log || true)" ""
kill $unix $tcp
wait $unix $tcp || true
consistent
as postgres $bin/pg_ctl -w -m fast stop >/dev/null
as postgres $bin/pg_checksums --check | grep -q 'Bad checksums:  0'
echo ok
