# strace: a shell that makes short-lived children and pipelines under a tracer all the time.
cd /tmp
strace -f -qq -o log bash -c '
    while [ ! -e end ]; do
        (exit 3); [ $? = 3 ] || exit 9
        [ "$(echo one | cat)" = one ] || exit 8
        echo >>rounds
    done
    exit 7' & traced=$!
went_on() { [ -e rounds ] && [ "$(wc -l <rounds)" -gt "$1" ]; }
wait_for went_on 2
echo ready
read -r _
wait_for went_on $(($(wc -l <rounds) + 2))
touch end
code=0; wait $traced || code=$?
same $code 7
# Nothing was missed at the end either.
grep -q 'exit_group(7) *= ?' log
echo ok
