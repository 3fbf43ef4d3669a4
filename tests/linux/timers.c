// Timers and clocks: setitimer, timer_create, timerfd, nanosleep, clock_*, the vDSO; scheduling calls and priorities.
#include "t.h"
#include <sched.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <sys/times.h>
#include <sys/timex.h>

static volatile int count, value, code, overrun;  // the largest overrun
static timer_t timer;
static void tick(int s, siginfo_t *si, void *u) {
    (void)s, (void)u;
    count++, value = si->si_value.sival_int, code = si->si_code;
    if (si->si_overrun > overrun) overrun = si->si_overrun;
}
static int64_t clk(clockid_t c) {
    struct timespec ts;
    CHECK(clock_gettime(c, &ts) == 0);
    CHECK(ts.tv_nsec >= 0 && ts.tv_nsec < 1000000000);
    return ts.tv_sec * 1000000000LL + ts.tv_nsec;
}

CASE(itimer_real_once) {
    on_signal(SIGALRM, tick, 0);
    struct itimerval far = {{0, 0}, {1000, 0}}, it = {{0, 0}, {0, 20000}}, o;
    CHECK(setitimer(ITIMER_REAL, &far, NULL) == 0);
    pause_ms(5);
    CHECK(getitimer(ITIMER_REAL, &o) == 0);
    CHECK(o.it_value.tv_sec > 0 && o.it_value.tv_sec < 1000);
    CHECK(setitimer(ITIMER_REAL, &it, NULL) == 0);
    EVENTUALLY(count);
    msleep(40);
    CHECK_EQ(count, 1);
    CHECK(getitimer(ITIMER_REAL, &o) == 0);
    CHECK_EQ(o.it_value.tv_usec, 0);
}
CASE(itimer_real_periodic_and_cancel) {
    on_signal(SIGALRM, tick, 0);
    struct itimerval it = {{0, 5000}, {0, 5000}}, z = {{0, 0}, {0, 0}}, o;
    CHECK(setitimer(ITIMER_REAL, &it, NULL) == 0);
    EVENTUALLY(count >= 5);
    CHECK(setitimer(ITIMER_REAL, &z, &o) == 0);
    CHECK_EQ(o.it_interval.tv_usec, 5000);
    int c = count;
    msleep(30);
    CHECK_EQ(count, c);
}
CASE(itimer_virtual_counts_cpu) {
    on_signal(SIGVTALRM, tick, 0);
    struct itimerval it = {{0, 0}, {0, 30000}};
    CHECK(setitimer(ITIMER_VIRTUAL, &it, NULL) == 0);
    pause_ms(100);
    CHECK_EQ(count, 0);  // asleep: no CPU time
    int64_t t0 = now_us();
    while (!count && now_us() - t0 < 30000000) {}
    CHECK_EQ(count, 1);
}
CASE(itimer_prof_counts_cpu) {
    on_signal(SIGPROF, tick, 0);
    struct itimerval it = {{0, 10000}, {0, 10000}};
    CHECK(setitimer(ITIMER_PROF, &it, NULL) == 0);
    int64_t t0 = now_us();
    while (count < 3 && now_us() - t0 < 30000000) getppid();
    CHECK(count >= 3);
}
CASE(itimer_errors) {
    struct itimerval it = {{0, 0}, {0, 1000000}};
    CHECK_ERR(setitimer(ITIMER_REAL, &it, NULL), EINVAL);
    CHECK_ERR(setitimer(9, &it, NULL), EINVAL);
    CHECK_ERR(getitimer(9, &it), EINVAL);
}
CASE(alarm_returns_remaining) {
    CHECK_EQ(alarm(100), 0);
    CHECK_EQ(alarm(0), 100);
}
CASE(timer_create_signal_value) {
    on_signal(SIGRTMIN, tick, 0);
    struct sigevent se = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN, .sigev_value.sival_int = 77};
    CHECK(timer_create(CLOCK_MONOTONIC, &se, &timer) == 0);
    struct itimerspec its = {{0, 0}, {0, 10000000}}, o;
    CHECK(timer_settime(timer, 0, &its, NULL) == 0);
    EVENTUALLY(count);
    CHECK_EQ(value, 77);
    CHECK_EQ(code, SI_TIMER);
    CHECK(timer_gettime(timer, &o) == 0 && o.it_value.tv_nsec == 0);
    CHECK(timer_delete(timer) == 0);
}
CASE(timer_default_is_sigalrm) {
    on_signal(SIGALRM, tick, 0);
    CHECK(timer_create(CLOCK_REALTIME, NULL, &timer) == 0);
    struct itimerspec its = {{0, 0}, {0, 5000000}};
    CHECK(timer_settime(timer, 0, &its, NULL) == 0);
    EVENTUALLY(count);
}
CASE(timer_absolute) {
    on_signal(SIGALRM, tick, 0);
    CHECK(timer_create(CLOCK_MONOTONIC, NULL, &timer) == 0);
    int64_t t = clk(CLOCK_MONOTONIC) + 30000000;
    struct itimerspec its = {{0, 0}, {t / 1000000000, t % 1000000000}};
    CHECK(timer_settime(timer, TIMER_ABSTIME, &its, NULL) == 0);
    EVENTUALLY(count);
    CHECK(clk(CLOCK_MONOTONIC) >= t);
}
CASE(timer_overrun) {
    on_signal(SIGRTMIN, tick, 0);
    sigset_t m;
    sigemptyset(&m);
    sigaddset(&m, SIGRTMIN);
    sigprocmask(SIG_BLOCK, &m, NULL);
    struct sigevent se = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN};
    CHECK(timer_create(CLOCK_MONOTONIC, &se, &timer) == 0);
    struct itimerspec its = {{0, 2000000}, {0, 2000000}};
    CHECK(timer_settime(timer, 0, &its, NULL) == 0);
    msleep(60);
    sigprocmask(SIG_UNBLOCK, &m, NULL);
    CHECK(count >= 1);
    CHECK(overrun >= 5);
}
CASE(timer_thread_id) {
    on_signal(SIGUSR1, tick, 0);
    struct sigevent se = {.sigev_notify = 4 /* SIGEV_THREAD_ID */, .sigev_signo = SIGUSR1};
    se._sigev_un._tid = syscall(SYS_gettid);
    CHECK(timer_create(CLOCK_MONOTONIC, &se, &timer) == 0);
    struct itimerspec its = {{0, 0}, {0, 5000000}};
    timer_settime(timer, 0, &its, NULL);
    EVENTUALLY(count);
}
static void in_thread(union sigval v) { value = v.sival_int; }
CASE(timer_sigev_thread) {
    struct sigevent se = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = in_thread, .sigev_value.sival_int = 3};
    CHECK(timer_create(CLOCK_MONOTONIC, &se, &timer) == 0);
    struct itimerspec its = {{0, 0}, {0, 5000000}};
    timer_settime(timer, 0, &its, NULL);
    EVENTUALLY(value == 3);
}
CASE(timer_errors) {
    struct itimerspec its = {{0, 0}, {0, 1000000000}};
    CHECK(timer_create(CLOCK_MONOTONIC, NULL, &timer) == 0);
    CHECK_ERR(timer_settime(timer, 0, &its, NULL), EINVAL);
    CHECK(timer_delete(timer) == 0);
    CHECK_ERR(syscall(SYS_timer_delete, 9999), EINVAL);
    CHECK_ERR(syscall(SYS_timer_create, 99, NULL, &timer), EINVAL);
}
CASE(timer_not_inherited_by_fork) {
    int id;
    CHECK(syscall(SYS_timer_create, CLOCK_MONOTONIC, NULL, &id) == 0);
    CHECK_EQ(join(SPAWN({ CHECK_ERR(syscall(SYS_timer_delete, id), EINVAL); })), 0);
}
CASE(timerfd_once) {
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    CHECK(fd >= 0);
    uint64_t n;
    CHECK_ERR(read(fd, &n, 8), EAGAIN);
    struct itimerspec far = {{0, 0}, {1000, 0}}, its = {{0, 0}, {0, 20000000}}, o;
    CHECK(timerfd_settime(fd, 0, &far, NULL) == 0);
    CHECK(timerfd_gettime(fd, &o) == 0 && o.it_value.tv_sec > 0);
    CHECK(timerfd_settime(fd, 0, &its, NULL) == 0);
    struct pollfd p = {fd, POLLIN, 0};
    CHECK_EQ(poll(&p, 1, 30000), 1);
    CHECK_EQ(read(fd, &n, 8), 8);
    CHECK_EQ(n, 1);
    CHECK_ERR(read(fd, &n, 8), EAGAIN);
    CHECK_ERR(read(fd, &n, 4), EINVAL);
}
CASE(timerfd_periodic_counts) {
    int fd = timerfd_create(CLOCK_MONOTONIC, 0);
    struct itimerspec its = {{0, 5000000}, {0, 5000000}};
    CHECK(timerfd_settime(fd, 0, &its, NULL) == 0);
    msleep(42);
    uint64_t n;
    CHECK_EQ(read(fd, &n, 8), 8);
    CHECK(n >= 7);
    CHECK_EQ(read(fd, &n, 8), 8);
    CHECK(n >= 1);
}
CASE(timerfd_absolute_past_fires_at_once) {
    int fd = timerfd_create(CLOCK_REALTIME, 0);
    struct itimerspec its = {{0, 0}, {1, 0}};
    CHECK(timerfd_settime(fd, TFD_TIMER_ABSTIME, &its, NULL) == 0);
    uint64_t n;
    CHECK_EQ(read(fd, &n, 8), 8);
    CHECK_EQ(n, 1);
}
CASE(timerfd_disarm_and_errors) {
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    struct itimerspec its = {{0, 0}, {1000, 0}}, z = {{0, 0}, {0, 0}}, bad = {{0, 0}, {0, -1}};
    timerfd_settime(fd, 0, &its, NULL);
    timerfd_settime(fd, 0, &z, NULL);
    msleep(20);
    uint64_t n;
    CHECK_ERR(read(fd, &n, 8), EAGAIN);
    CHECK_ERR(timerfd_settime(fd, 0, &bad, NULL), EINVAL);
    CHECK_ERR(timerfd_settime(0, 0, &its, NULL), EINVAL);
    CHECK_ERR(timerfd_create(77, 0), EINVAL);
    CHECK_ERR(timerfd_create(CLOCK_MONOTONIC, 1), EINVAL);
    CHECK_ERR(write(fd, &n, 8), EINVAL);
}
CASE(timerfd_shared_across_fork) {
    int fd = timerfd_create(CLOCK_MONOTONIC, 0);
    struct itimerspec its = {{0, 0}, {0, 20000000}};
    timerfd_settime(fd, 0, &its, NULL);
    CHECK_EQ(join(SPAWN({ uint64_t n; CHECK_EQ(read(fd, &n, 8), 8); })), 0);
}
CASE(nanosleep_duration) {
    int64_t t0 = clk(CLOCK_MONOTONIC);
    struct timespec ts = {0, 30000000};
    CHECK(nanosleep(&ts, NULL) == 0);
    int64_t d = clk(CLOCK_MONOTONIC) - t0;
    CHECK(d >= 30000000 && d < 30000000000);
}
CASE(nanosleep_errors) {
    struct timespec a = {0, 1000000000}, b = {-1, 0};
    CHECK_ERR(nanosleep(&a, NULL), EINVAL);
    CHECK_ERR(nanosleep(&b, NULL), EINVAL);
    CHECK_ERR(syscall(SYS_nanosleep, BAD, NULL), EFAULT);
    struct timespec z = {0, 0};
    CHECK(nanosleep(&z, NULL) == 0);
}
CASE(clock_nanosleep_absolute) {
    int64_t t = clk(CLOCK_MONOTONIC) + 30000000;
    struct timespec ts = {t / 1000000000, t % 1000000000};
    CHECK_EQ(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL), 0);
    CHECK(clk(CLOCK_MONOTONIC) >= t);
    CHECK_EQ(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL), 0);  // past
    CHECK_EQ(clock_nanosleep(CLOCK_THREAD_CPUTIME_ID, 0, &ts, NULL), EINVAL);
}
CASE(monotonic_never_goes_back) {
    int64_t a = clk(CLOCK_MONOTONIC);
    for (int i = 0; i < 200000; i++) {
        int64_t b = clk(CLOCK_MONOTONIC);
        CHECK(b >= a);
        a = b;
    }
}
static void *mono_thread(void *a) {
    _Atomic int64_t *last = a;
    for (int i = 0; i < 50000; i++) {
        int64_t l = *last, t = clk(CLOCK_MONOTONIC);
        CHECK(t >= l);
        *last = t;
    }
    return NULL;
}
CASE(monotonic_across_threads) {
    static _Atomic int64_t last;
    pthread_t t[3];
    for (int i = 0; i < 3; i++) CHECK_EQ(pthread_create(&t[i], NULL, mono_thread, (void *)&last), 0);
    for (int i = 0; i < 3; i++) pthread_join(t[i], NULL);
}
CASE(realtime_is_sane) {
    int64_t r = clk(CLOCK_REALTIME) / 1000000000;
    CHECK(r > 1700000000 && r < 4000000000LL);
    CHECK(llabs(time(NULL) - r) <= 1);
    struct timeval tv;
    CHECK(gettimeofday(&tv, NULL) == 0 && llabs(tv.tv_sec - r) <= 1);
}
CASE(vdso_and_syscall_agree) {
    for (int c = 0; c < 2; c++) {
        struct timespec s, s2;
        CHECK(syscall(SYS_clock_gettime, c, &s) == 0);
        int64_t v = clk(c);
        CHECK(syscall(SYS_clock_gettime, c, &s2) == 0);
        CHECK(v >= s.tv_sec * 1000000000LL + s.tv_nsec - 1000);
        CHECK(v <= s2.tv_sec * 1000000000LL + s2.tv_nsec + 1000);
    }
}
CASE(vdso_present) {
    char *p = (char *)getauxval(AT_SYSINFO_EHDR);
    CHECK(p != NULL);
    CHECK(!memcmp(p, "\177ELF", 4));
    CHECK(strstr(slurp("/proc/self/maps"), "[vdso]") != NULL);
}
CASE(coarse_boottime_raw) {
    int64_t m = clk(CLOCK_MONOTONIC), b = clk(CLOCK_BOOTTIME);
    CHECK(b >= m);
    int64_t c = clk(CLOCK_MONOTONIC_COARSE);
    CHECK(c > m - 100000000 && c <= clk(CLOCK_MONOTONIC));
    CHECK(clk(CLOCK_MONOTONIC_RAW) > 0);
    int64_t r = clk(CLOCK_REALTIME);
    CHECK(clk(CLOCK_REALTIME_COARSE) > r - 100000000);
    clk(CLOCK_TAI);
}
CASE(process_cpu_time_advances_with_work) {
    int64_t a = clk(CLOCK_PROCESS_CPUTIME_ID), t = clk(CLOCK_THREAD_CPUTIME_ID);
    pause_ms(50);
    CHECK(clk(CLOCK_PROCESS_CPUTIME_ID) - a < 40000000);
    // Until the time limit of a case.
    while (clk(CLOCK_PROCESS_CPUTIME_ID) - a < 10000000 || clk(CLOCK_THREAD_CPUTIME_ID) - t < 10000000) {}
}
CASE(clock_getres_values) {
    struct timespec r;
    CHECK(clock_getres(CLOCK_MONOTONIC, &r) == 0 && r.tv_sec == 0 && r.tv_nsec >= 1);
    CHECK(clock_getres(CLOCK_REALTIME_COARSE, &r) == 0 && r.tv_nsec >= 1000000);
    CHECK_ERR(clock_getres(99, &r), EINVAL);
    CHECK_ERR(clock_gettime(99, &r), EINVAL);
    CHECK(clock_getres(CLOCK_MONOTONIC, NULL) == 0);
}
CASE(clock_settime_needs_privilege) {
    struct timespec ts = {1, 0};
    CHECK_EQ(join(SPAWN({ t_drop_root(); CHECK_ERR(clock_settime(CLOCK_REALTIME, &ts), EPERM); })), 0);
    CHECK_ERR(clock_settime(CLOCK_MONOTONIC, &ts), EINVAL);
}
CASE(times_call) {
    struct tms t;
    CHECK(times(&t) != (clock_t)-1);
    // Until the time limit of a case.
    while (t.tms_utime + t.tms_stime < 1) CHECK(times(&t) != (clock_t)-1);
}
CASE(clock_getcpuclockid_of_child) {
    pid_t p = SPAWN({ for (;;) {} });
    clockid_t c;
    CHECK_EQ(clock_getcpuclockid(p, &c), 0);
    EVENTUALLY(clk(c) > 1000000);
    kill(p, SIGKILL);
    join(p);
}
CASE(adjtimex_read) {
    struct timex t = {0};
    CHECK(adjtimex(&t) >= 0);
}
CASE(many_timers_fire_in_order) {
    // On a busy machine a timer may be seen late, and then later ones have fired as well; but none may fire
    // before its time, and whenever one is seen, all before it have fired.
    int fd[20], seen[20] = {0};
    uint64_t n;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    long long base = now.tv_sec * 1000000000LL + now.tv_nsec, at[20];
    for (int i = 0; i < 20; i++) {
        fd[i] = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
        at[i] = base + (20 - i) * 3000000LL;
        struct itimerspec its = {{0, 0}, {at[i] / 1000000000, at[i] % 1000000000}};
        CHECK(timerfd_settime(fd[i], TFD_TIMER_ABSTIME, &its, NULL) == 0);
    }
    for (int i = 19; i >= 0; i--) {
        struct pollfd p = {fd[i], POLLIN, 0};
        if (!seen[i]) {
            CHECK_EQ(poll(&p, 1, 30000), 1);
            CHECK_EQ(read(fd[i], &n, 8), 8);
        }
        if (i < 4) continue;
        if (read(fd[i - 4], &n, 8) == 8) {
            seen[i - 4] = 1;
            clock_gettime(CLOCK_MONOTONIC, &now);
            CHECK(now.tv_sec * 1000000000LL + now.tv_nsec >= at[i - 4]);
            for (int k = i - 3; k < i; k++) {
                p.fd = fd[k];
                CHECK(seen[k] || poll(&p, 1, 0) == 1);
            }
        } else {
            CHECK(errno == EAGAIN);
        }
    }
}

// At their edges.
static volatile int hits;
static void note_hit(int s, siginfo_t *si, void *u) { (void)s, (void)u, hits++, value = si->si_value.sival_int; }
static timer_t mk(int clock, int sig) {
    timer_t t;
    struct sigevent e = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = sig, .sigev_value.sival_int = 9};
    CHECK(timer_create(clock, &e, &t) == 0);
    return t;
}
static struct itimerspec in_ms(long first, long every) { return (struct itimerspec){{every / 1000, every % 1000 * 1000000}, {first / 1000, first % 1000 * 1000000}}; }
static int set(timer_t t, long first, long every) {
    struct itimerspec i = in_ms(first, every);
    return timer_settime(t, 0, &i, NULL);
}

CASE(overrun_counts_while_blocked) {
    sigset_t m;
    sigemptyset(&m), sigaddset(&m, SIGRTMIN);
    sigprocmask(SIG_BLOCK, &m, NULL);
    timer_t t = mk(CLOCK_MONOTONIC, SIGRTMIN);
    CHECK(set(t, 5, 5) == 0);
    msleep(100);
    siginfo_t si;
    CHECK(sigwaitinfo(&m, &si) == SIGRTMIN && si.si_code == SI_TIMER && si.si_value.sival_int == 9);
    CHECK(si.si_overrun >= 10);
    int o = timer_getoverrun(t);
    CHECK_EQ(o, si.si_overrun);  // that of the last delivery
    CHECK(timer_delete(t) == 0);
}
CASE(one_signal_per_timer_is_pending) {
    sigset_t m;
    sigemptyset(&m), sigaddset(&m, SIGRTMIN);
    sigprocmask(SIG_BLOCK, &m, NULL);
    timer_t a = mk(CLOCK_MONOTONIC, SIGRTMIN), b = mk(CLOCK_MONOTONIC, SIGRTMIN);
    CHECK(set(a, 1, 1) == 0 && set(b, 1, 1) == 0);
    msleep(30);
    set(a, 0, 0), set(b, 0, 0);
    int n = 0;
    while (sigtimedwait(&m, NULL, &(struct timespec){0, 0}) > 0) n++;
    CHECK(n <= 2);
}
CASE(gettime_of_disarmed_and_running) {
    timer_t t = mk(CLOCK_REALTIME, SIGUSR1);
    struct itimerspec i;
    CHECK(timer_gettime(t, &i) == 0 && i.it_value.tv_sec == 0 && i.it_value.tv_nsec == 0);
    int64_t begun = now_us();
    CHECK(set(t, 5000000, 700) == 0 && timer_gettime(t, &i) == 0);
    int64_t left = i.it_value.tv_sec * 1000000LL + i.it_value.tv_nsec / 1000;
    CHECK(left < 5000000000 && left + 1000 >= 5000000000 - (now_us() - begun) && i.it_interval.tv_nsec == 700000000);
    struct itimerspec off = {0}, old;
    CHECK(timer_settime(t, 0, &off, &old) == 0 && old.it_value.tv_sec >= 4000 && old.it_value.tv_sec < 5000);
}
CASE(deleted_timer_does_not_fire) {
    on_signal(SIGUSR1, note_hit, 0);
    timer_t t = mk(CLOCK_MONOTONIC, SIGUSR1);
    CHECK(set(t, 20, 0) == 0 && timer_delete(t) == 0);
    msleep(50);
    CHECK_EQ(hits, 0);
    CHECK_ERR(timer_delete(t), EINVAL);
    CHECK_ERR(timer_getoverrun(t), EINVAL);
}
CASE(absolute_time_in_the_past_fires_at_once) {
    on_signal(SIGUSR1, note_hit, 0);
    timer_t t = mk(CLOCK_MONOTONIC, SIGUSR1);
    struct itimerspec i = {{0, 0}, {0, 1}};
    CHECK(timer_settime(t, TIMER_ABSTIME, &i, NULL) == 0);
    EVENTUALLY(hits == 1);
}
CASE(create_arguments) {
    timer_t t;
    struct sigevent e = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = 99};
    CHECK_ERR(timer_create(CLOCK_MONOTONIC, &e, &t), EINVAL);
    e.sigev_signo = SIGUSR1;
    CHECK_ERR(timer_create(77, &e, &t), EINVAL);
    e.sigev_notify = 77;
    CHECK_ERR(timer_create(CLOCK_MONOTONIC, &e, &t), EINVAL);
    e.sigev_notify = SIGEV_NONE;
    CHECK(timer_create(CLOCK_BOOTTIME, &e, &t) == 0 && set(t, 10, 0) == 0);
    msleep(20);
    struct itimerspec i = in_ms(1, 0);
    CHECK(timer_gettime(t, &i) == 0 && i.it_value.tv_nsec == 0);  // over, and nobody was told
    i.it_value.tv_nsec = 1000000000;
    CHECK_ERR(timer_settime(t, 0, &i, NULL), EINVAL);
    CHECK_ERR(syscall(SYS_timer_settime, t, 0, NULL, NULL), EINVAL);
}
CASE(cpu_time_timer_only_counts_work) {
    on_signal(SIGUSR1, note_hit, 0);
    timer_t t = mk(CLOCK_PROCESS_CPUTIME_ID, SIGUSR1);
    CHECK(set(t, 30, 0) == 0);
    pause_ms(80);  // msleep would look for others meanwhile, which does
    CHECK_EQ(hits, 0);
    clock_t until = clock() + 300000;
    while (!hits && clock() < until) {}
    CHECK_EQ(hits, 1);
}
CASE(exec_and_fork_drop_timers) {
    on_signal(SIGUSR1, note_hit, 0);
    timer_t t = mk(CLOCK_MONOTONIC, SIGUSR1);
    CHECK(set(t, 40, 0) == 0);
    CHECK_EQ(join(SPAWN(_exit(timer_delete(t) == -1 && errno == EINVAL ? 3 : 4))), 3);
}
CASE(interval_timer_remaining_and_zero) {
    struct itimerval v = {{0, 0}, {3000, 0}}, old;
    CHECK(setitimer(ITIMER_REAL, &v, NULL) == 0 && getitimer(ITIMER_REAL, &old) == 0);
    CHECK(old.it_value.tv_sec >= 2000 && old.it_value.tv_sec < 3000);
    v.it_value.tv_sec = 0;
    CHECK(setitimer(ITIMER_REAL, &v, &old) == 0 && old.it_value.tv_sec >= 2000 && old.it_value.tv_sec < 3000);
    CHECK(getitimer(ITIMER_REAL, &old) == 0 && old.it_value.tv_sec == 0 && old.it_value.tv_usec == 0);
    v.it_value.tv_usec = 1000000;
    CHECK_ERR(setitimer(ITIMER_REAL, &v, NULL), EINVAL);
    CHECK_ERR(setitimer(7, &v, NULL), EINVAL);
    CHECK_ERR(getitimer(ITIMER_REAL, BAD), EFAULT);
}
CASE(alarm_and_interval_timer_are_one) {
    alarm(1000);
    struct itimerval v;
    CHECK(getitimer(ITIMER_REAL, &v) == 0 && v.it_value.tv_sec > 0 && v.it_value.tv_sec < 1000);
    v = (struct itimerval){{0, 0}, {2000, 0}};
    CHECK(setitimer(ITIMER_REAL, &v, NULL) == 0);
    unsigned left = alarm(0);
    CHECK(left > 1000 && left <= 2000);
    // What is left of less than a second is one.
    v = (struct itimerval){{0, 0}, {0, 999999}};
    CHECK(setitimer(ITIMER_REAL, &v, NULL) == 0);
    signal(SIGALRM, SIG_IGN);
    CHECK(alarm(0) <= 1);
}
CASE(descriptor_reads_count_and_blocks) {
    int f = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    uint64_t n;
    CHECK(fcntl(f, F_GETFD) == FD_CLOEXEC);
    CHECK_ERR(read(f, &n, 8), EAGAIN);
    struct itimerspec i = in_ms(5, 5);
    CHECK(timerfd_settime(f, 0, &i, NULL) == 0);
    msleep(60);
    CHECK(read(f, &n, 8) == 8 && n >= 5);
    CHECK_ERR(read(f, &n, 7), EINVAL);
    CHECK_ERR(write(f, &n, 8), EINVAL);
    i = in_ms(0, 5);
    CHECK(timerfd_settime(f, 0, &i, NULL) == 0);
    msleep(20);
    CHECK_ERR(read(f, &n, 8), EAGAIN);  // disarmed
}
CASE(descriptor_arguments) {
    struct itimerspec i = in_ms(5, 0);
    CHECK_ERR(timerfd_create(77, 0), EINVAL);
    CHECK_ERR(timerfd_create(CLOCK_MONOTONIC, 1), EINVAL);
    CHECK_ERR(timerfd_create(CLOCK_PROCESS_CPUTIME_ID, 0), EINVAL);
    int f = timerfd_create(CLOCK_REALTIME, 0);
    CHECK_ERR(timerfd_settime(f, 8, &i, NULL), EINVAL);
    CHECK_ERR(timerfd_settime(0, 0, &i, NULL), EINVAL);
    CHECK_ERR(timerfd_settime(999, 0, &i, NULL), EBADF);
    CHECK_ERR(timerfd_settime(f, 0, BAD, NULL), EFAULT);
    CHECK_ERR(timerfd_gettime(f, BAD), EFAULT);
    i.it_value.tv_nsec = -1;
    CHECK_ERR(timerfd_settime(f, 0, &i, NULL), EINVAL);
}
CASE(descriptor_set_again_forgets_expiries) {
    int f = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    struct itimerspec i = in_ms(1, 0), j = in_ms(5000000, 0), old;
    uint64_t n;
    CHECK(timerfd_settime(f, 0, &i, NULL) == 0);
    msleep(20);
    CHECK(timerfd_settime(f, 0, &j, &old) == 0 && old.it_value.tv_nsec == 0);
    CHECK_ERR(read(f, &n, 8), EAGAIN);
}
CASE(sleep_reports_what_is_left) {
    on_signal(SIGALRM, note_hit, 0);
    ualarm(30000, 30000);
    struct timespec r = {0, 0};
    CHECK_ERR(nanosleep(&(struct timespec){2000, 0}, &r), EINTR);
    CHECK(r.tv_sec > 1000 && r.tv_sec < 2000);
}
CASE(sleep_argument_errors) {
    CHECK_ERR(nanosleep(&(struct timespec){0, 1000000000}, NULL), EINVAL);
    CHECK_ERR(nanosleep(&(struct timespec){-1, 0}, NULL), EINVAL);
    CHECK_EQ(clock_nanosleep(77, 0, &(struct timespec){0, 0}, NULL), EINVAL);
    CHECK_EQ(clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){0, -1}, NULL), EINVAL);
    CHECK_EQ(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &(struct timespec){0, 0}, NULL), 0);  // long ago
    CHECK_EQ(clock_nanosleep(CLOCK_THREAD_CPUTIME_ID, 0, &(struct timespec){0, 1}, NULL), EINVAL);
}
CASE(boottime_and_realtime_sleeps) {
    struct timespec t;
    for (int c = 0; c < 2; c++) {
        int clock = c ? CLOCK_BOOTTIME : CLOCK_REALTIME;
        clock_gettime(clock, &t);
        int64_t s = now_us();
        t.tv_nsec += 30000000;
        if (t.tv_nsec >= 1000000000) t.tv_nsec -= 1000000000, t.tv_sec++;
        CHECK_EQ(clock_nanosleep(clock, TIMER_ABSTIME, &t, NULL), 0);
        CHECK(now_us() - s >= 29000);
    }
}
CASE(clock_arguments) {
    struct timespec t;
    CHECK_ERR(clock_gettime(77, &t), EINVAL);
    CHECK_ERR(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, BAD), EFAULT);
    CHECK_ERR(clock_settime(CLOCK_MONOTONIC, &(struct timespec){1, 0}), EINVAL);
    CHECK(clock_getres(CLOCK_MONOTONIC, NULL) == 0);
    CHECK_ERR(clock_getres(77, &t), EINVAL);
    clockid_t other;
    CHECK_EQ(clock_getcpuclockid(999999, &other), ESRCH);
}
CASE(policies_and_their_priorities) {
    CHECK(sched_get_priority_min(SCHED_FIFO) == 1 && sched_get_priority_max(SCHED_FIFO) == 99);
    CHECK(sched_get_priority_min(SCHED_OTHER) == 0 && sched_get_priority_max(SCHED_BATCH) == 0);
    CHECK_ERR(sched_get_priority_max(77), EINVAL);
    struct sched_param p = {0};
    CHECK_ERR(sched_setscheduler(0, SCHED_FIFO, &p), EINVAL);
    p.sched_priority = 5;
    CHECK_ERR(sched_setscheduler(0, SCHED_OTHER, &p), EINVAL);
    CHECK_ERR(sched_setscheduler(999999, SCHED_FIFO, &p), ESRCH);
    CHECK_ERR(sched_setscheduler(-1, SCHED_FIFO, &p), EINVAL);
    CHECK_ERR(sched_setscheduler(0, SCHED_FIFO, NULL), EINVAL);
    CHECK(sched_setscheduler(0, SCHED_RR, &p) == 0 && sched_getscheduler(0) == SCHED_RR);
    CHECK(sched_getparam(0, &p) == 0 && p.sched_priority == 5);
    struct timespec t;
    CHECK(sched_rr_get_interval(0, &t) == 0 && (t.tv_sec || t.tv_nsec));
    CHECK_EQ(join(SPAWN(_exit(sched_getscheduler(0) == SCHED_RR ? 3 : 4))), 3);
    p.sched_priority = 0;
    CHECK(sched_setscheduler(0, SCHED_OTHER | SCHED_RESET_ON_FORK, &p) == 0);
    CHECK_EQ(sched_getscheduler(0), SCHED_OTHER | SCHED_RESET_ON_FORK);
}
CASE(realtime_needs_privilege) {
    struct rlimit none = {0, 0};
    CHECK(setrlimit(RLIMIT_RTPRIO, &none) == 0 && setrlimit(RLIMIT_NICE, &none) == 0);
    t_drop_root();
    struct sched_param p = {1};
    CHECK_ERR(sched_setscheduler(0, SCHED_FIFO, &p), EPERM);
    CHECK_ERR(setpriority(PRIO_PROCESS, 0, -5), EACCES);
    CHECK(setpriority(PRIO_PROCESS, 0, 5) == 0);
    CHECK_ERR(setpriority(PRIO_PROCESS, 0, 0), EACCES);  // no way back
    CHECK_ERR(setpriority(PRIO_PROCESS, getppid(), 7), EPERM);
}
struct attr { uint32_t size, policy; uint64_t flags; int32_t nice; uint32_t prio; uint64_t runtime, deadline, period; };
CASE(attributes_round_trip) {
    struct attr a = {.size = sizeof a, .policy = SCHED_BATCH, .nice = 7}, b;
    CHECK(syscall(SYS_sched_setattr, 0, &a, 0) == 0);
    memset(&b, 0xff, sizeof b);
    CHECK(syscall(SYS_sched_getattr, 0, &b, sizeof b, 0) == 0 && b.policy == SCHED_BATCH && b.nice == 7 && b.prio == 0);
    CHECK_EQ(getpriority(PRIO_PROCESS, 0), 7);
    CHECK_ERR(syscall(SYS_sched_setattr, 0, &a, 1), EINVAL);
    CHECK_ERR(syscall(SYS_sched_getattr, 0, &b, 8, 0), EINVAL);
    CHECK_ERR(syscall(SYS_sched_getattr, 0, NULL, sizeof b, 0), EINVAL);
    a.policy = 77;
    CHECK_ERR(syscall(SYS_sched_setattr, 0, &a, 0), EINVAL);
    a.size = 8;
    CHECK_ERR(syscall(SYS_sched_setattr, 0, &a, 0), E2BIG);
}
CASE(affinity_masks) {
    cpu_set_t s, none;
    CPU_ZERO(&none);
    long n = CHECK_OK(syscall(SYS_sched_getaffinity, 0, sizeof s, &s));
    CHECK(n % 8 == 0 && n > 0);
    CHECK_ERR(syscall(SYS_sched_getaffinity, 0, 3, &s), EINVAL);
    CHECK_ERR(sched_setaffinity(0, sizeof none, &none), EINVAL);
    CPU_SET(1000, &none);
    CHECK_ERR(sched_setaffinity(0, sizeof none, &none), EINVAL);
    CHECK_ERR(sched_setaffinity(999999, sizeof s, &s), ESRCH);
    CHECK(sched_getaffinity(0, sizeof s, &s) == 0);
    int first = 0;
    while (!CPU_ISSET(first, &s)) first++;
    CPU_ZERO(&none);
    CPU_SET(first, &none);
    CHECK(sched_setaffinity(0, sizeof none, &none) == 0 && sched_getcpu() == first);
    CHECK_EQ(join(SPAWN(sched_getaffinity(0, sizeof s, &s); _exit(CPU_COUNT(&s)))), 1);
}
CASE(priority_of_groups_and_users) {
    pid_t c = SPAWN(pause());
    CHECK(setpriority(PRIO_PGRP, 0, 3) == 0);
    CHECK_EQ(getpriority(PRIO_PROCESS, c), 3);
    CHECK(setpriority(PRIO_PROCESS, c, 9) == 0);
    errno = 0;
    CHECK_EQ(getpriority(PRIO_PGRP, 0), 3);  // the highest of them
    CHECK_ERR(getpriority(9, 0), EINVAL);
    CHECK_ERR(getpriority(PRIO_PROCESS, 999999), ESRCH);
    CHECK(setpriority(PRIO_PROCESS, c, 100) == 0 && getpriority(PRIO_PROCESS, c) == 19);
    kill(c, SIGKILL), join(c);
}
CASE(io_priorities) {
    CHECK(syscall(SYS_ioprio_set, 1, 0, 2 << 13 | 5) == 0);
    CHECK_EQ(syscall(SYS_ioprio_get, 1, 0), 2 << 13 | 5);
    CHECK_EQ(join(SPAWN(_exit(syscall(SYS_ioprio_get, 1, 0) == (2 << 13 | 5) ? 3 : 4))), 3);
    CHECK_ERR(syscall(SYS_ioprio_set, 1, 0, 7 << 13), EINVAL);
    CHECK_ERR(syscall(SYS_ioprio_set, 9, 0, 2 << 13), EINVAL);
    CHECK_ERR(syscall(SYS_ioprio_get, 1, 999999), ESRCH);
    t_drop_root();
    CHECK_ERR(syscall(SYS_ioprio_set, 1, 0, 1 << 13), EPERM);  // real-time class
}
