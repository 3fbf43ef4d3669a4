# sysbench: threads, mutex, memory and file tests, each for $SECONDS_OF_LOAD.
mkdir -p /tmp/b; cd /tmp/b
run() { local name=$1; shift; sysbench --time="$SECONDS_OF_LOAD" "$@" run >out 2>&1 || { cat out >&2; exit 1; }
    if grep -iE 'fatal|error' out >&2; then exit 1; fi
    echo "$name: $(sed -n 's/^ *total number of events: *//p' out)"; }
run cpu cpu --threads=2
run threads threads --threads=8 --thread-yields=100 --thread-locks=4
run mutex mutex --threads=8 --mutex-num=128 --mutex-locks=5000 --mutex-loops=1000
run memory memory --threads=2
sysbench fileio --file-total-size=32M --file-num=8 prepare >/dev/null
for mode in seqrd seqwr rndrd rndwr rndrw; do
    run "fileio $mode" fileio --file-total-size=32M --file-num=8 --file-test-mode=$mode --threads=4 --file-fsync-freq=10
done
run "fileio mmap" fileio --file-total-size=32M --file-num=8 --file-test-mode=rndrw --file-io-mode=mmap --threads=2
sysbench fileio --file-total-size=32M --file-num=8 cleanup >/dev/null
echo "sysbench ok"
