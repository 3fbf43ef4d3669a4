# SQLite: several processes writing one database in both journal modes, and kills in the middle.
mkdir -p /tmp/q; cd /tmp/q
for mode in delete wal; do
    echo "== $mode"
    db=$mode.db
    sqlite3 $db "pragma journal_mode=$mode; create table t(w int, n int, v text, primary key(w, n)); create index tv on t(v);" >/dev/null
    for w in 1 2 3 4; do
        ( for n in $(seq 1 25); do
            printf '.timeout 30000\nbegin immediate; insert into t values(%d, %d, hex(randomblob(500))); update t set v = v || 1 where w = %d and n = %d - 1; commit;\n' $w $n $w $n | sqlite3 -bail $db
        done ) & p[w]=$!
    done
    for w in 1 2 3 4; do wait ${p[w]}; done
    same "$(sqlite3 $db 'select count(*), count(distinct w), sum(n) from t; pragma integrity_check')" "100|4|1300
ok"
    # Writers that are killed in the middle: nothing that was committed is lost, nothing is half there.
    for round in 1 2 3; do
        # One that begins between the two kills goes on, and says so in its own round's file.
        acked=acked-$mode-$round
        ( n=0; while n=$((n + 1)); printf '.timeout 9000\nbegin; insert into t values(%d, %d, 1); insert into t values(-%d, %d, 1); commit;\n.print %d\n' 1$round $n 1$round $n $n | timeout -s KILL 60 sqlite3 -bail $db; do :; done ) >$acked 2>/dev/null & p=$!
        wait_for [ -s $acked ]
        sleep 0.3
        pkill -9 -x sqlite3 || true
        kill -9 $p 2>/dev/null || true; wait $p 2>/dev/null || true
        last=$(tail -n 1 $acked); [ "${last:-0}" -gt 0 ]
        same "$(sqlite3 -cmd '.timeout 9000' $db "select count(*) >= $last, count(*) = (select count(*) from t where w = -1$round) from t where w = 1$round; pragma integrity_check")" "1|1
ok"
    done
    sqlite3 $db "vacuum; pragma wal_checkpoint(truncate); pragma integrity_check" | grep -qx ok
done
echo "== bulk"
sqlite3 bulk.db "pragma journal_mode=wal; create table t(id integer primary key, k int, v text); with recursive n(i) as (select 1 union all select i + 1 from n where i < 200000) insert into t select i, i * 7919 % 10007, hex(i) from n; create index k on t(k);" >/dev/null
same "$(sqlite3 bulk.db 'select count(*), sum(k) from t where k between 100 and 5000; select count(*) from t a join t b on a.k = b.id; pragma integrity_check' | tail -n 1)" ok
sqlite3 bulk.db .dump | sqlite3 again.db
same "$(sqlite3 again.db 'select count(*), sum(k), max(v) from t')" "$(sqlite3 bulk.db 'select count(*), sum(k), max(v) from t')"
echo "sqlite ok"
