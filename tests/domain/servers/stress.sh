# stress-ng's stressors of one class ($CLASS; or of it $STRESSORS), two instances each (but where it says so), verifying, for $SECONDS_OF_LOAD each.
mkdir -p -m 1777 /tmp/g; cd /tmp/g
case $CLASS in
    cpu) set -- cpu matrix qsort vecmath context ;;
    vm) set -- vm mmap brk mremap mlock madvise malloc stack shm shm-sysv vm-rw ;;
    pipe) set -- pipe fifo splice tee vm-splice sock udp sockpair sockfd poll epoll eventfd mq msg sem sem-sysv ;;
    futex) set -- futex pthread mutex switch yield membarrier ;;
    fork) set -- fork vfork clone exec daemon wait zombie nice ;;
    timer) set -- timer timerfd itimer clock nanosleep alarm hrtimers ;;
    signal) set -- signal sigfd sigpending sigq sigsegv sigsuspend sigchld sigrt sigpipe kill ;;
    file) set -- hdd seek dir dentry link symlink rename filename fallocate flock lockf locka chmod open readahead copy-file sendfile fcntl getdent inotify ;;
    *) echo "no class $CLASS" >&2; exit 1 ;;
esac
[ -z "${STRESSORS-}" ] || set -- $STRESSORS
for s; do
    code=0; as= instances=2
    # Two take keys from the same 65,536, and remove segments that they find by them: each other's.
    [ $s != shm-sysv ] || instances=1
    [ $s != exec ] || as='as nobody' # it refuses to run as root
    $as stress-ng --"$s" $instances --verify --timeout "$SECONDS_OF_LOAD" --metrics-brief --no-rand-seed --temp-path /tmp/g --hdd-bytes 16m --vm-bytes 64m >out 2>&1 || code=$?
    # "Metrics untrustworthy": stress-ng has killed a child of its own just when that counted.
    [ $code != 7 ] || code=0
    ops=$(awk -v s="$s" '$4 == s && $5 ~ /^[0-9]+$/ { print $9 }' out)
    # What stress-ng finds missing by itself has no figures; the caller knows which may be.
    if [ $code = 0 ] && [ -z "$ops" ] && grep -qE 'not (supported|implemented|available)' out; then echo "$s: not implemented"; continue; fi
    if [ $code != 0 ] || [ -z "$ops" ] || grep -qE ' (fail|error):' out; then echo "$s ended with $code" >&2; tail -n 40 out >&2; bad=1; fi
    echo "$s: $ops"
done
[ "${bad:-0}" = 0 ]
left=$(ls -A /tmp/g | grep -vx out || true)
[ -z "$left" ] || { echo "left behind: $left" >&2; exit 1; }
echo "stress $CLASS ok"
