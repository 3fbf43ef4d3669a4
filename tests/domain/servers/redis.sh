# Redis: data types, blocking clients, replication, and three ways to survive a kill.
# Redis-benchmark's number of requests a test comes in $REQUESTS.
mkdir -p /tmp/r/a /tmp/r/b
cd /tmp/r
master() { redis-server --port 6379 --dir /tmp/r/a --unixsocket /tmp/r/sock --loglevel warning "$@" >>/tmp/r/a.log 2>&1 & pid=$!; wait_for redis-cli ping; }

master --save ""
same "$(redis-cli set k v)" OK
same "$(redis-cli -s /tmp/r/sock get k)" v
same "$(redis-cli eval 'local s=0 for i=1,1000 do s=s+i redis.call("hset",KEYS[1],i,s) end return s' 1 h)" 500500
same "$(redis-cli hget h 1000)" 500500
redis-cli blpop q 20 >blpop & b=$!
redis-cli subscribe ch >sub & s=$!
wait_for sh -c "redis-cli pubsub numsub ch | grep -qx 1"
wait_for sh -c "redis-cli info clients | grep -q blocked_clients:1"
redis-cli rpush q item >/dev/null
redis-cli publish ch hello >/dev/null
wait $b
same "$(tail -n 1 blpop)" item
wait_for grep -q hello sub
kill $s

echo "== load"
redis-benchmark -q -n "$REQUESTS" -c 20 -t ping,set,get,incr,lpush,lpop,sadd,zadd,mset
redis-benchmark -q -n "$REQUESTS" -c 20 -P 16 -r 100000 -t set,get
redis-benchmark -q -n "$REQUESTS" -c 20 --threads 2 -s /tmp/r/sock -t get
same "$(redis-cli info stats | grep -c '^rejected_connections:0')" 1

echo "== a replica follows"
redis-server --port 6380 --dir /tmp/r/b --save "" --replicaof 127.0.0.1 6379 --loglevel warning >b.log 2>&1 & replica=$!
wait_for sh -c "redis-cli -p 6380 info replication | grep -q master_link_status:up"
redis-cli set after-sync yes >/dev/null
wait_for sh -c "test \"\$(redis-cli -p 6380 get after-sync)\" = yes"
same "$(redis-cli -p 6380 dbsize)" "$(redis-cli dbsize)"
kill $replica; wait $replica || true

echo "== a snapshot survives a kill"
redis-cli debug populate 20000 snap 100 >/dev/null
redis-cli bgsave >/dev/null
redis-benchmark -q -n 5000 -c 5 -t incr >/dev/null   # writes while the child saves
wait_for sh -c "redis-cli info persistence | grep -q rdb_bgsave_in_progress:0"
same "$(redis-cli info persistence | grep -c '^rdb_last_bgsave_status:ok')" 1
size=$(redis-cli dbsize); digest=$(redis-cli debug digest)
same "$(redis-cli save)" OK
kill -9 $pid; wait $pid || true
master --save ""
same "$(redis-cli dbsize)" "$size"
same "$(redis-cli debug digest)" "$digest"

echo "== a log survives a kill"
redis-cli config set appendonly yes >/dev/null
redis-cli config set appendfsync always >/dev/null
wait_for sh -c "redis-cli info persistence | grep -q aof_rewrite_in_progress:0"
for i in 1 2 3 4 5; do redis-cli set "aof$i" "$i" >/dev/null; done
redis-cli bgrewriteaof >/dev/null
wait_for sh -c "redis-cli info persistence | grep -q aof_rewrite_in_progress:0"
redis-cli set aof6 6 >/dev/null
digest=$(redis-cli debug digest)
kill -9 $pid; wait $pid || true
master --save "" --appendonly yes
wait_for sh -c "redis-cli info persistence | grep -q loading:0"
same "$(redis-cli mget aof1 aof5 aof6 | tr '\n' ' ')" "1 5 6 "
same "$(redis-cli debug digest)" "$digest"
redis-cli shutdown nosave || true
wait $pid
echo "redis ok"
