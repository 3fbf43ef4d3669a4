// CPU time: what processes and threads are told they have used.
#include "t.h"
#include <sys/resource.h>
#include <sys/times.h>
#include <sys/wait.h>

static int64_t clk(clockid_t c) {
    struct timespec ts;
    CHECK(clock_gettime(c, &ts) == 0);
    return ts.tv_sec * 1000000000LL + ts.tv_nsec;
}
static int64_t us(struct timeval t) { return t.tv_sec * 1000000LL + t.tv_usec; }
static int64_t used(int who) {
    struct rusage r;
    CHECK(getrusage(who, &r) == 0);
    return us(r.ru_utime) + us(r.ru_stime);
}
static volatile uint64_t sink;
static void work(void) { for (int i = 0; i < 1000; i++) sink += i; }

static int rings[8][2];
static void *pass(void *arg) {
    long i = (long)arg;
    char c;
    while (read(rings[i][0], &c, 1) == 1 && c)
        if (write(rings[(i + 1) % 8][1], &c, 1) != 1) break;
    return NULL;
}
// Threads that wake each other across CPUs, as they fall asleep: every one's time is its own running time.
static void hand_around(void) {
    pthread_t t[8];
    for (int i = 0; i < 8; i++) CHECK(pipe(rings[i]) == 0);
    for (long i = 0; i < 8; i++) CHECK(pthread_create(&t[i], NULL, pass, (void *)i) == 0);
    for (int i = 0; i < 3; i++) CHECK(write(rings[i * 2][1], "x", 1) == 1);
    for (int64_t end = now_us() + 500000; now_us() < end;) work();
    for (int i = 0; i < 8; i++) CHECK(write(rings[i][1], "\0", 1) == 1);
    for (int i = 0; i < 8; i++) CHECK(pthread_join(t[i], NULL) == 0);
}
CASE(no_more_than_passes) {
    int64_t t0 = now_us(), cpus = sysconf(_SC_NPROCESSORS_ONLN);
    pid_t kids[3];
    for (int i = 0; i < 3; i++) kids[i] = SPAWN(hand_around(););
    for (int i = 0; i < 3; i++) CHECK_EQ(join(kids[i]), 0);
    int64_t most = (now_us() - t0) * cpus;
    CHECK(used(RUSAGE_CHILDREN) <= most);
}

CASE(clocks_agree) {
    int64_t w0 = now_us() * 1000, p0 = clk(CLOCK_PROCESS_CPUTIME_ID), t0 = clk(CLOCK_THREAD_CPUTIME_ID);
    for (int64_t end = p0 + 200000000; clk(CLOCK_PROCESS_CPUTIME_ID) < end;) work();
    int64_t t1 = clk(CLOCK_THREAD_CPUTIME_ID), p1 = clk(CLOCK_PROCESS_CPUTIME_ID), w1 = now_us() * 1000 + 1000;
    CHECK(t1 - t0 <= w1 - w0);
    CHECK(p1 - p0 <= w1 - w0);
    CHECK(t1 <= p1 && t1 - t0 > (p1 - p0) * 9 / 10);
    int64_t r = used(RUSAGE_SELF) * 1000, u = used(RUSAGE_THREAD) * 1000, p2 = clk(CLOCK_PROCESS_CPUTIME_ID);
    CHECK(r + 2000 >= p1 && r <= p2 && u + 2000 >= t1 && u <= p2);
    struct tms tms;
    CHECK(times(&tms) != -1);
    CHECK((tms.tms_utime + tms.tms_stime) * 10000000LL >= p1 - 20000000);
}
CASE(never_back) {
    struct rusage a, b;
    int64_t last = 0;
    CHECK(getrusage(RUSAGE_SELF, &a) == 0);
    for (int i = 0; i < 2000; i++) {
        if (i % 100 == 0) usleep(100);
        int64_t now = clk(CLOCK_PROCESS_CPUTIME_ID);
        CHECK(now >= last);
        CHECK(getrusage(RUSAGE_SELF, &b) == 0);
        CHECK(us(b.ru_utime) >= us(a.ru_utime) && us(b.ru_stime) >= us(a.ru_stime));
        a = b, last = now;
    }
}
CASE(asleep_nothing_is_used) {
    int64_t c = used(RUSAGE_SELF), t0 = now_us();
    usleep(300000);
    CHECK(used(RUSAGE_SELF) - c < (now_us() - t0) / 10);
}
// Whoever calls the kernel all the time has system time, whoever does not has user time. A host may tell them apart by
// samples, which on a busy one fall where others ended: so it is done again until the difference is sure.
CASE(system_time_is_told_apart) {
    struct rusage a, b, c;
    static char page[65536];
    int fd = open("/dev/zero", O_RDONLY);
    int64_t apart = 0;
    CHECK(fd >= 0);
    while (apart < 300000) {
        CHECK(getrusage(RUSAGE_SELF, &a) == 0);
        for (int64_t end = clk(CLOCK_PROCESS_CPUTIME_ID) + 200000000; clk(CLOCK_PROCESS_CPUTIME_ID) < end;)
            for (int i = 0; i < 100; i++) CHECK(read(fd, page, sizeof page) == sizeof page);
        CHECK(getrusage(RUSAGE_SELF, &b) == 0);
        for (int64_t end = clk(CLOCK_PROCESS_CPUTIME_ID) + 200000000; clk(CLOCK_PROCESS_CPUTIME_ID) < end;)
            for (int i = 0; i < 100; i++) work();
        CHECK(getrusage(RUSAGE_SELF, &c) == 0);
        apart += (us(b.ru_stime) - us(a.ru_stime)) - (us(c.ru_stime) - us(b.ru_stime));
    }
}
// A process that forks touches pages and waits: its children's time is what they used, and its own is not.
CASE(children_are_counted_when_reaped) {
    int64_t own = used(RUSAGE_SELF);
    pid_t p = SPAWN(for (int64_t end = clk(CLOCK_PROCESS_CPUTIME_ID) + 300000000; clk(CLOCK_PROCESS_CPUTIME_ID) < end;) work(););
    siginfo_t si;
    CHECK(waitid(P_PID, p, &si, WEXITED | WNOWAIT) == 0);
    CHECK_EQ(used(RUSAGE_CHILDREN), 0);
    struct rusage r;
    CHECK(wait4(p, NULL, 0, &r) == p);
    int64_t theirs = us(r.ru_utime) + us(r.ru_stime);
    CHECK(theirs >= 300000);
    CHECK_EQ(used(RUSAGE_CHILDREN), theirs);
    CHECK(used(RUSAGE_SELF) - own < 150000);
}
// Processes and threads that live shortly count with all they have used, and with no more.
static void *one_ms(void *told) {
    int64_t c = clk(CLOCK_THREAD_CPUTIME_ID);
    while (clk(CLOCK_THREAD_CPUTIME_ID) - c < 1000000) work();
    return told;
}
CASE(short_lives_are_counted) {
    int64_t w0 = now_us(), cpus = sysconf(_SC_NPROCESSORS_ONLN), own = used(RUSAGE_SELF);
    for (int i = 0; i < 100; i++) CHECK_EQ(join(SPAWN(one_ms(NULL);)), 0);
    int64_t theirs = used(RUSAGE_CHILDREN);
    CHECK(theirs >= 100000 && theirs <= (now_us() - w0) * cpus);
    CHECK(used(RUSAGE_SELF) - own < theirs);
    own = used(RUSAGE_SELF), w0 = now_us();
    for (int i = 0; i < 100; i++) {
        pthread_t t;
        CHECK(pthread_create(&t, NULL, one_ms, NULL) == 0 && pthread_join(t, NULL) == 0);
    }
    own = used(RUSAGE_SELF) - own;
    CHECK(own >= 100000 && own <= (now_us() - w0) * cpus);
}

// Exec and vfork: a process keeps its time over them.
CASE(exec_keeps_it) {
    int fds[2];
    CHECK(pipe(fds) == 0);
    pid_t p = vfork();
    if (p == 0) {
        int64_t end = clk(CLOCK_THREAD_CPUTIME_ID) + 200000000;
        while (clk(CLOCK_THREAD_CPUTIME_ID) < end) work();
        dup2(fds[1], 1);
        execl("/bin/sh", "sh", "-c", "read l < /proc/self/stat; echo $l", NULL);
        _exit(9);
    }
    CHECK(p > 0);
    char line[1024] = "";
    CHECK(read(fds[0], line, sizeof line - 1) > 0);
    CHECK_EQ(join(p), 0);
    unsigned long u, s;
    CHECK_EQ(sscanf(strrchr(line, ')'), ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &u, &s), 2);
    CHECK(u + s >= 19);
    struct rusage r;
    CHECK(getrusage(RUSAGE_CHILDREN, &r) == 0);
    CHECK(us(r.ru_utime) + us(r.ru_stime) >= 200000);
}
static void *spin(void *until) {
    while (!__atomic_load_n((int *)until, __ATOMIC_RELAXED)) work();
    return NULL;
}
// Threads that never call the kernel are counted while they run, also seen by others.
CASE(running_threads_are_counted) {
    pthread_t t[2];
    int stop = 0;
    int64_t c0 = used(RUSAGE_SELF);
    for (int i = 0; i < 2; i++) CHECK(pthread_create(&t[i], NULL, spin, &stop) == 0);
    for (int64_t w = now_us(); used(RUSAGE_SELF) - c0 < 200000;) {
        CHECK(now_us() - w < 30000000);
        usleep(10000);
    }
    clockid_t clock;
    CHECK(pthread_getcpuclockid(t[0], &clock) == 0);
    CHECK(clk(clock) > 20000000);
    stop = 1;
    for (int i = 0; i < 2; i++) CHECK(pthread_join(t[i], NULL) == 0);
    CHECK(used(RUSAGE_SELF) - c0 >= 200000);
}
static volatile int rang;
static void ring(int s) { (void)s, rang++; }
CASE(virtual_timer_counts_the_program_only) {
    on_signal(SIGVTALRM, (void *)ring, 0);
    struct itimerval it = {{0, 0}, {0, 100000}};
    struct rusage a, b;
    CHECK(getrusage(RUSAGE_SELF, &a) == 0);
    CHECK(setitimer(ITIMER_VIRTUAL, &it, NULL) == 0);
    while (!rang) work();
    CHECK(getrusage(RUSAGE_SELF, &b) == 0);
    CHECK(us(b.ru_utime) - us(a.ru_utime) >= 10000);
}
CASE(cpu_limit_counts_cpu_time) {
    pid_t p = SPAWN({
        struct rlimit r = {1, 2};
        CHECK(setrlimit(RLIMIT_CPU, &r) == 0);
        usleep(1500000);
        int64_t end = clk(CLOCK_PROCESS_CPUTIME_ID) + 150000000;
        while (clk(CLOCK_PROCESS_CPUTIME_ID) < end) work();
    });
    CHECK_EQ(join(p), 0);
    p = SPAWN({
        struct rlimit r = {1, 2};
        CHECK(setrlimit(RLIMIT_CPU, &r) == 0);
        for (;;) work();
    });
    CHECK_EQ(join(p), 128 + SIGXCPU);
}
