# Redis: clients that write all the time over loopback, and one that blocks. Two counters go up together in each call.
cd /tmp
server() { redis-server --port 6379 --save "" --dir /tmp --loglevel warning >>redis.log 2>&1 & pid=$!; wait_for redis-cli ping; }
server
redis-benchmark -q -l -c 8 -P 4 -r 1000 -t set,get,lpush,sadd >/dev/null 2>load1 & one=$!
redis-benchmark -q -l -n 100000000 -c 8 eval "redis.call('incr','a') redis.call('incr','b') redis.call('hset','h',redis.call('get','a')%50,redis.call('get','b')) return 1" 0 >/dev/null 2>load2 & two=$!
redis-cli blpop later 0 >popped & pop=$!
counted() { [ "$(redis-cli get a)" -gt "$1" ]; }
wait_for counted 1000
echo ready
read -r _
wait_for counted $(($(redis-cli get a) + 1000))
kill -0 $one; kill -0 $two; kill -0 $pop
same "$(redis-cli eval "return redis.call('get','a') == redis.call('get','b') and 1 or 0" 0)" 1
redis-cli rpush later now >/dev/null
wait $pop
same "$(tail -n 1 popped)" now
kill $one $two
wait $one $two || true
same "$(cat load1 load2)" ""
# What it holds can be written and read again.
same "$(redis-cli save)" OK
size=$(redis-cli dbsize); a=$(redis-cli get a)
kill -9 $pid; wait $pid || true
server
same "$(redis-cli dbsize) $(redis-cli get b) $(redis-cli hlen h)" "$size $a 50"
redis-cli shutdown nosave || true
wait $pid
echo ok
