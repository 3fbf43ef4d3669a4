// Signals between threads and processes: routing, stops, exec, job control, CPU time limits and timers,
// floods, vector state under asynchronous signals.
#include "t.h"
#include <sys/prctl.h>
#include <sys/resource.h>

static volatile sig_atomic_t count, who, got;
static volatile siginfo_t last;  // volatile: kill() is declared a leaf function
static void note(int s, siginfo_t *si, void *u) {
    (void)u;
    got = s, last = *si, who = syscall(SYS_gettid);
    count++;
}
static void mask(int how, int s) {
    sigset_t m;
    sigemptyset(&m);
    sigaddset(&m, s);
    CHECK(pthread_sigmask(how, &m, NULL) == 0);
}
static volatile int stop;
static volatile int tids[8];

static void *waiter(void *a) {
    mask(SIG_UNBLOCK, SIGUSR1);
    tids[(long)a] = syscall(SYS_gettid);
    while (!stop) pause_ms(2);
    return NULL;
}
CASE(process_signal_goes_to_thread_that_takes_it) {
    on_signal(SIGUSR1, note, SA_RESTART);
    mask(SIG_BLOCK, SIGUSR1);
    pthread_t t;
    pthread_create(&t, NULL, waiter, (void *)0);
    EVENTUALLY(tids[0]);
    kill(getpid(), SIGUSR1);
    EVENTUALLY(count == 1);
    CHECK_EQ(who, tids[0]);
    stop = 1;
    pthread_join(t, NULL);
}
static void *caller(void *a) {
    while (!stop) syscall(SYS_getppid);
    return a;
}
CASE(process_signal_goes_to_the_first_thread_whatever_others_do) {
    on_signal(SIGUSR1, note, 0);
    pthread_t t[2];
    for (int i = 0; i < 2; i++) pthread_create(&t[i], NULL, caller, NULL);
    pid_t main = syscall(SYS_gettid);
    for (int i = 1; i <= 50; i++) {
        pid_t c = SPAWN(until_blocked(main); kill(main, SIGUSR1));
        struct timespec long_time = {5, 0};
        // It is the one whose call ends.
        CHECK_ERR(nanosleep(&long_time, NULL), EINTR);
        CHECK(count == i && who == main);
        CHECK_EQ(join(c), 0);
    }
    stop = 1;
    for (int i = 0; i < 2; i++) pthread_join(t[i], NULL);
}
static void *blocker(void *a) {
    (void)a;
    mask(SIG_BLOCK, SIGUSR1);
    tids[1] = syscall(SYS_gettid);
    msleep(300);
    return NULL;
}
CASE(pending_process_signal_waits_for_any_thread) {
    on_signal(SIGUSR1, note, 0);
    mask(SIG_BLOCK, SIGUSR1);
    pthread_t t;
    pthread_create(&t, NULL, blocker, NULL);
    EVENTUALLY(tids[1]);
    kill(getpid(), SIGUSR1);
    msleep(20);
    CHECK_EQ(count, 0);
    mask(SIG_UNBLOCK, SIGUSR1);
    CHECK_EQ(count, 1);
    CHECK_EQ(who, syscall(SYS_gettid));
    pthread_join(t, NULL);
}
static volatile long spins[3];
static void *spinner(void *a) {
    for (;;) spins[(long)a]++;
    return NULL;
}
CASE(stop_holds_every_thread) {
    volatile long *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t p = SPAWN({
        pthread_t t;
        for (long i = 0; i < 3; i++) pthread_create(&t, NULL, spinner, (void *)i);
        for (;;) {
            shared[0] = spins[0], shared[1] = spins[1], shared[2] = spins[2];
            shared[3]++;
        }
    });
    EVENTUALLY(shared[0] && shared[1] && shared[2]);
    kill(p, SIGSTOP);
    int st;
    CHECK_EQ(waitpid(p, &st, WUNTRACED), p);
    CHECK(WIFSTOPPED(st) && WSTOPSIG(st) == SIGSTOP);
    msleep(20);
    long a = shared[3];
    msleep(50);
    CHECK_EQ(shared[3], a);
    kill(p, SIGCONT);
    CHECK_EQ(waitpid(p, &st, WCONTINUED), p);
    CHECK(WIFCONTINUED(st));
    EVENTUALLY(shared[3] > a);
    kill(p, SIGKILL);
    CHECK_EQ(join(p), 128 + SIGKILL);
}
CASE(sigchld_tells_of_stop_and_continue) {
    on_signal(SIGCHLD, note, SA_RESTART);
    pid_t p = SPAWN({ for (;;) pause(); });
    kill(p, SIGSTOP);
    EVENTUALLY(count >= 1);
    CHECK_EQ(last.si_code, CLD_STOPPED);
    CHECK_EQ(last.si_status, SIGSTOP);
    CHECK_EQ(last.si_pid, p);
    kill(p, SIGCONT);
    EVENTUALLY(count >= 2);
    CHECK_EQ(last.si_code, CLD_CONTINUED);
    kill(p, SIGTERM);
    EVENTUALLY(count >= 3);
    CHECK_EQ(last.si_code, CLD_KILLED);
    CHECK_EQ(last.si_status, SIGTERM);
    join(p);
}
CASE(nocldstop_and_nocldwait) {
    on_signal(SIGCHLD, note, SA_RESTART | SA_NOCLDSTOP);
    pid_t p = SPAWN({ for (;;) pause(); });
    kill(p, SIGSTOP);
    int st;
    CHECK_EQ(waitpid(p, &st, WUNTRACED), p);
    CHECK_EQ(count, 0);
    kill(p, SIGKILL);
    join(p);
    on_signal(SIGCHLD, note, SA_NOCLDWAIT);
    p = SPAWN({});
    EVENTUALLY(count >= 2);
    CHECK_ERR(waitpid(p, &st, 0), ECHILD);
}
CASE(sigcont_handler_runs_after_stop) {
    int fd[2];
    char c;
    CHECK(pipe(fd) == 0);
    pid_t p = SPAWN({
        on_signal(SIGCONT, note, 0);
        raise(SIGSTOP);
        CHECK_EQ(count, 1);
        CHECK_EQ(write(fd[1], "y", 1), 1);
    });
    int st;
    CHECK_EQ(waitpid(p, &st, WUNTRACED), p);
    kill(p, SIGCONT);
    CHECK_EQ(read(fd[0], &c, 1), 1);
    CHECK_EQ(join(p), 0);
}
CASE(stop_and_continue_race_never_leaves_it_stopped) {
    pid_t p = SPAWN({ for (;;) getppid(); });
    for (int i = 0; i < 300; i++) {
        kill(p, SIGSTOP);
        if (i % 3) sched_yield();
        kill(p, SIGCONT);
    }
    kill(p, SIGTERM);
    CHECK_EQ(join(p), 128 + SIGTERM);
}
CASE(ignored_and_mask_survive_exec_handlers_do_not) {
    pid_t p = SPAWN({
        signal(SIGTERM, SIG_IGN);
        on_signal(SIGUSR1, note, 0);
        mask(SIG_BLOCK, SIGUSR2);
        execlp("sleep", "sleep", "0.3", NULL);
    });
    msleep(150);
    kill(p, SIGTERM);
    kill(p, SIGUSR2);
    CHECK_EQ(join(p), 0);
    p = SPAWN({ on_signal(SIGUSR1, note, 0); execlp("sleep", "sleep", "5", NULL); });
    msleep(150);
    kill(p, SIGUSR1);
    CHECK_EQ(join(p), 128 + SIGUSR1);
}
CASE(alarm_survives_exec) {
    pid_t p = SPAWN({
        struct itimerval it = {{0, 0}, {0, 200000}};
        setitimer(ITIMER_REAL, &it, NULL);
        execlp("sleep", "sleep", "5", NULL);
    });
    CHECK_EQ(join(p), 128 + SIGALRM);
}
CASE(orphaned_group_is_hung_up) {
    int fd[2];
    char c;
    CHECK(pipe(fd) == 0);
    pid_t p = SPAWN({
        setpgid(0, 0);
        pid_t q = SPAWN({
            setpgid(0, 0);
            on_signal(SIGHUP, note, 0);
            raise(SIGSTOP);
            CHECK_EQ(count, 1);
            CHECK_EQ(write(fd[1], "h", 1), 1);
        });
        int st;
        CHECK_EQ(waitpid(q, &st, WUNTRACED), q);
    });
    CHECK_EQ(join(p), 0);
    close(fd[1]);
    CHECK_EQ(read(fd[0], &c, 1), 1);
    CHECK_EQ(c, 'h');
}
CASE(orphaned_group_ignores_tstp) {
    CHECK_EQ(join(SPAWN({ setsid(); raise(SIGTSTP); _exit(7); })), 7);
}
static void burn(long ms) {
    struct timespec ts;
    int64_t end;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    end = ts.tv_sec * 1000LL + ts.tv_nsec / 1000000 + ms;
    do clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    while (ts.tv_sec * 1000LL + ts.tv_nsec / 1000000 < end);
}
// A host may count by samples for the limits, and by the clock for all else: only the order is sure (cputime.c has more).
CASE(rlimit_cpu_soft_then_hard) {
    int fd[2];
    char c;
    CHECK(pipe(fd) == 0);
    struct rlimit l = {1, 2};
    pid_t p = SPAWN({
        on_signal(SIGXCPU, note, 0);
        CHECK(setrlimit(RLIMIT_CPU, &l) == 0);
        while (!count) {}
        CHECK_EQ(write(fd[1], "x", 1), 1);
        for (;;) {}
    });
    CHECK_EQ(join(p), 128 + SIGKILL);
    CHECK_EQ(read(fd[0], &c, 1), 1);
}
static int64_t cpu_ns(clockid_t clock) {
    struct timespec ts;
    CHECK(clock_gettime(clock, &ts) == 0);
    return ts.tv_sec * 1000000000LL + ts.tv_nsec;
}
CASE(posix_timer_on_cpu_clocks) {
    on_signal(SIGRTMIN, note, 0);
    struct sigevent se = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN};
    static const clockid_t clocks[] = {CLOCK_PROCESS_CPUTIME_ID, CLOCK_THREAD_CPUTIME_ID};
    for (int i = 0; i < 2; i++) {
        timer_t t;
        count = 0;
        CHECK(timer_create(clocks[i], &se, &t) == 0);
        struct itimerspec its = {{0, 0}, {0, 30000000}};
        int64_t start = cpu_ns(clocks[i]);
        CHECK(timer_settime(t, 0, &its, NULL) == 0);
        // Sleeping does not count; msleep would look for others meanwhile, which does.
        pause_ms(60);
        CHECK_EQ(count, 0);
        while (!count) burn(1);
        CHECK(cpu_ns(clocks[i]) - start >= 30000000);
        CHECK_EQ(count, 1);
        timer_delete(t);
    }
}
// However often a program asks for its CPU time, and is preempted, its timers expire.
CASE(cpu_timers_of_programs_that_read_their_clock) {
    enum { PROGRAMS = 6, TIMERS = 20 };
    on_signal(SIGRTMIN, note, 0);
    struct sigevent se = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN};
    pid_t programs[PROGRAMS];
    for (int i = 0; i < PROGRAMS; i++)
        programs[i] = SPAWN({
            timer_t t;
            struct itimerspec its = {{0, 0}, {0, 4000000}};
            CHECK(timer_create(CLOCK_PROCESS_CPUTIME_ID, &se, &t) == 0);
            for (int n = 1; n <= TIMERS; n++) {
                CHECK(timer_settime(t, 0, &its, NULL) == 0);
                for (int64_t begun = cpu_ns(CLOCK_THREAD_CPUTIME_ID); count < n;)
                    CHECK(cpu_ns(CLOCK_THREAD_CPUTIME_ID) - begun < 2000000000);
            }
        });
    for (int i = 0; i < PROGRAMS; i++) CHECK_EQ(join(programs[i]), 0);
}
CASE(ppoll_unblocks_while_it_waits) {
    on_signal(SIGUSR1, note, 0);
    mask(SIG_BLOCK, SIGUSR1);
    raise(SIGUSR1);
    sigset_t none;
    sigemptyset(&none);
    struct timespec ts = {5, 0};
    CHECK_ERR(ppoll(NULL, 0, &ts, &none), EINTR);
    CHECK_EQ(count, 1);
    raise(SIGUSR1);
    CHECK_EQ(count, 1);
}
static _Atomic int received;
static void add(int s, siginfo_t *si, void *u) {
    (void)s, (void)si, (void)u;
    received++;
}
static void *flood(void *a) {
    int me = (long)a;
    tids[me] = syscall(SYS_gettid);
    for (int i = 0; i < 4; i++)
        while (!tids[i]) sched_yield();
    for (int i = 0; i < 1000; i++) {
        siginfo_t si = {.si_code = SI_QUEUE};
        while (syscall(SYS_rt_tgsigqueueinfo, getpid(), tids[(me + i) % 4], SIGRTMIN + 1, &si) < 0) {
            if (errno != EAGAIN) FAIL("errno %d", errno);
            sched_yield();
        }
    }
    while (received < 4000) pause_ms(1);
    return NULL;
}
CASE(threads_flood_each_other_without_loss) {
    on_signal(SIGRTMIN + 1, add, SA_RESTART);
    pthread_t t[4];
    for (long i = 0; i < 4; i++) pthread_create(&t[i], NULL, flood, (void *)i);
    for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
    CHECK_EQ(received, 4000);
}
static void clobber(int s, siginfo_t *si, void *u) {
    (void)s, (void)si, (void)u;
    count++;
    __asm__ volatile("pcmpeqd %%xmm0,%%xmm0; pcmpeqd %%xmm1,%%xmm1; pcmpeqd %%xmm7,%%xmm7; pcmpeqd %%xmm15,%%xmm15; fninit; std; cld"
                     ::: "xmm0", "xmm1", "xmm7", "xmm15");
}
CASE(vector_and_integer_state_survive_async_signals) {
    on_signal(SIGALRM, clobber, SA_RESTART);
    struct itimerval it = {{0, 300}, {0, 300}}, z = {{0, 0}, {0, 0}};
    CHECK(setitimer(ITIMER_REAL, &it, NULL) == 0);
    int64_t t0 = now_us();
    while (now_us() - t0 < 1000000 || count <= 100) {
        double x = 1.0, y = 0.5;
        uint64_t h = 1469598103934665603u;
        for (int i = 0; i < 20000; i++) {
            x = x * 1.0000001 + y * 1e-7;
            y = y * 0.9999999 + 1e-9;
            h = (h ^ i) * 1099511628211u;
        }
        static double x0, y0;
        static uint64_t h0;
        if (h0 == 0) x0 = x, y0 = y, h0 = h;
        CHECK(x == x0 && y == y0 && h == h0);
    }
    setitimer(ITIMER_REAL, &z, NULL);
}
CASE(pidfd_signals) {
    pid_t p = SPAWN({ for (;;) pause(); });
    int fd = syscall(SYS_pidfd_open, p, 0);
    CHECK(fd >= 0);
    CHECK(syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0) == 0);
    CHECK_ERR(syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0x8000), EINVAL);
    CHECK(syscall(SYS_pidfd_send_signal, fd, SIGTERM, NULL, 0) == 0);
    CHECK_EQ(join(p), 128 + SIGTERM);
    CHECK_ERR(syscall(SYS_pidfd_send_signal, fd, SIGTERM, NULL, 0), ESRCH);
}
static void *taker(void *a) {
    (void)a;
    mask(SIG_UNBLOCK, SIGUSR1);
    tids[2] = 1;
    syscall(SYS_exit, 0);
    return NULL;
}
CASE(ending_threads_lose_no_process_signal) {
    on_signal(SIGUSR1, note, SA_RESTART);
    for (int i = 1; i <= 100; i++) {
        mask(SIG_BLOCK, SIGUSR1);
        pthread_t t;
        tids[2] = 0;
        pthread_create(&t, NULL, taker, NULL);
        while (!tids[2]) sched_yield();
        kill(getpid(), SIGUSR1);
        mask(SIG_UNBLOCK, SIGUSR1);
        EVENTUALLY(count == i);
        pthread_join(t, NULL);
    }
}
CASE(permissions) {
    pid_t root = SPAWN({ for (;;) pause(); });
    CHECK_EQ(join(SPAWN({
        if (getuid() == 0) {
            t_drop_root();
            CHECK_ERR(kill(root, SIGTERM), EPERM);
            CHECK_ERR(kill(root, 0), EPERM);
            CHECK(kill(root, SIGCONT) == 0);  // same session
        }
        CHECK_ERR(kill(99999, 0), ESRCH);
        CHECK_ERR(kill(getpid(), 65), EINVAL);
        CHECK_ERR(syscall(SYS_tgkill, getpid(), 0, SIGTERM), EINVAL);
        CHECK_ERR(syscall(SYS_tgkill, 1, getpid(), 0), ESRCH);
    })), 0);
    kill(root, SIGKILL);
    join(root);
}
CASE(group_kill_reaches_all) {
    pid_t p[5];
    for (int i = 0; i < 5; i++) {
        p[i] = SPAWN({ for (;;) pause(); });
        setpgid(p[i], p[0]);
    }
    CHECK(kill(-p[0], SIGTERM) == 0);
    for (int i = 0; i < 5; i++) CHECK_EQ(join(p[i]), 128 + SIGTERM);
    CHECK_ERR(kill(-p[0], SIGTERM), ESRCH);
}
CASE(fast_itimer_does_not_starve) {
    on_signal(SIGALRM, note, SA_RESTART);
    struct itimerval it = {{0, 100}, {0, 100}}, z = {{0, 0}, {0, 0}};
    CHECK(setitimer(ITIMER_REAL, &it, NULL) == 0);
    burn(200);
    setitimer(ITIMER_REAL, &z, NULL);
    CHECK(count > 10);
}
