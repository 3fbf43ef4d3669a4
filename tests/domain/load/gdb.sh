# gdb: threads that run into a breakpoint all the time; /tmp/ticks is there.
cd /tmp
gdb -q -nx -batch -ex 'set confirm off' -ex 'set debuginfod enabled off' -ex 'break tick' -ex run -ex 'shell touch up' -ex 'ignore 1 10000000' -ex continue \
    -ex 'info breakpoints' ./ticks </dev/null >log 2>&1 & debugger=$!
wait_for test -e up
sleep 0.2
echo ready
read -r _
touch end
wait $debugger || true
same "$(grep -o 'exited with code 07' log)" "exited with code 07"
grep -q 'breakpoint already hit' log
echo ok
