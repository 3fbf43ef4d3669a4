# PostgreSQL: initdb, pgbench for $SECONDS_OF_LOAD each, a crash in the middle of it, and what was promised is there.
bin=/usr/lib/postgresql/15/bin
export PGDATA=/tmp/pg PGHOST=/tmp PGUSER=postgres PGDATABASE=postgres
cd /tmp
as postgres $bin/initdb -k -A trust >initdb.log 2>&1 || { cat initdb.log >&2; exit 1; }
cat >>$PGDATA/postgresql.conf <<'C'
unix_socket_directories = '/tmp'
listen_addresses = '127.0.0.1'
logging_collector = off
C
start() { as postgres $bin/pg_ctl -w -t 60 -l /tmp/pg.log start >/dev/null || { cat /tmp/pg.log >&2; exit 1; }; }
sql() { psql -X -q -A -t -v ON_ERROR_STOP=1 "$@"; }
start
same "$(sql -c 'select 6 * 7')" 42
same "$(sql -h 127.0.0.1 -c 'select count(*) from generate_series(1, 100000)')" 100000

echo "== load"
pgbench -i -q -s 2 2>/dev/null
bench() { local name=$1; shift; pgbench -n -T "$SECONDS_OF_LOAD" "$@" >bench.log 2>&1 || { cat bench.log >&2; exit 1; }
    same "$(sed -n 's/^number of failed transactions: \([0-9]*\).*/\1/p' bench.log)" 0
    echo "$name: $(awk '/^tps/ { print $3 }' bench.log)"; }
bench "TPC-B" -c 4 -j 2
bench "read-only" -S -c 4 -j 2
bench "read-only, TCP, prepared" -S -M prepared -h 127.0.0.1 -c 8 -j 2
bench "a connection a transaction" -S -C -c 2
consistent() { same "$(sql -c 'select (select sum(abalance) from pgbench_accounts) = (select sum(delta) from pgbench_history),
    (select sum(tbalance) from pgbench_tellers) = (select sum(delta) from pgbench_history),
    (select sum(bbalance) from pgbench_branches) = (select sum(delta) from pgbench_history)')" "t|t|t"; }
consistent

echo "== features"
sql <<'S' >out
create table p(id int, v text) partition by hash (id);
create table p0 partition of p for values with (modulus 2, remainder 0);
create table p1 partition of p for values with (modulus 2, remainder 1);
insert into p select i, md5(i::text) from generate_series(1, 50000) i;
create index on p(v);
set force_parallel_mode = on;
set max_parallel_workers_per_gather = 2;
select count(*), sum(length(v)) from p where v > '8';
set work_mem = '64kB';
select count(*) from (select * from p order by v desc offset 10) x;
create extension pgcrypto;
select encode(digest('doppel', 'sha256'), 'hex') = encode(sha256('doppel'), 'hex');
vacuum analyze p;
S
same "$(tail -n 2 out | tr '\n' ' ')" "49990 t "
as postgres pg_dump -Fc -f /tmp/dump postgres
sql -c 'create database copy'
as postgres pg_restore -j 2 -d copy /tmp/dump
same "$(sql -d copy -c 'select md5(string_agg(v, $$,$$ order by id)) from p')" "$(sql -c 'select md5(string_agg(v, $$,$$ order by id)) from p')"

echo "== every process killed at once; committed work is there"
sql -c 'create table promised(n int primary key)'
( n=0; while n=$((n + 1)); sql -c "insert into promised values ($n)" 2>/dev/null; do echo $n >promised; done ) & w=$!
pgbench -n -T 60 -c 4 -j 2 >/dev/null 2>&1 & b=$!
committed() { [ "$(cat promised)" -gt "$1" ]; }
wait_for committed 20
sleep 0.3
pkill -9 -x postgres
wait $w; wait $b || true
rm -f $PGDATA/postmaster.pid
start
grep -q 'database system was not properly shut down' pg.log
same "$(sql -c 'select count(*) from promised where n <= '"$(cat promised)")" "$(cat promised)"
consistent

echo "== one backend killed: the others restart"
( sql -c 'select pg_sleep(60)' 2>/dev/null || true ) & s=$!
wait_for sh -c "psql -X -A -t -c \"select pid from pg_stat_activity where query like 'select pg_sleep%'\" | grep -q ."
kill -9 "$(sql -c "select pid from pg_stat_activity where query like 'select pg_sleep%'")"
wait $s
wait_for psql -X -c 'select 1'
consistent
as postgres $bin/pg_ctl -w -m fast stop >/dev/null
as postgres $bin/pg_checksums --check | grep -q 'Bad checksums:  0'
echo "postgres ok"
