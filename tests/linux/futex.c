// futex: wait, wake, bitset, requeue, shared and private keys, time-outs, robust lists, PI refusal.
#include "t.h"
#include <linux/futex.h>

static long fx(volatile uint32_t *a, int op, uint32_t v, const struct timespec *ts, void *a2, uint32_t v3) {
    return syscall(SYS_futex, a, op, v, ts, a2, v3);
}
static const struct timespec MS50 = {0, 50000000};
static volatile uint32_t w, w2;
static volatile int woken;

CASE(wait_value_differs) { CHECK_ERR(fx(&w, FUTEX_WAIT, 1, NULL, NULL, 0), EAGAIN); }
CASE(wait_times_out) {
    int64_t t0 = now_us();
    CHECK_ERR(fx(&w, FUTEX_WAIT, 0, &MS50, NULL, 0), ETIMEDOUT);
    CHECK(now_us() - t0 >= 49000);
}
CASE(wait_zero_timeout) {
    struct timespec z = {0, 0};
    CHECK_ERR(fx(&w, FUTEX_WAIT_PRIVATE, 0, &z, NULL, 0), ETIMEDOUT);
}
CASE(wait_bad_timeout) {
    struct timespec b = {0, 1000000000}, n = {-1, 0};
    CHECK_ERR(fx(&w, FUTEX_WAIT, 0, &b, NULL, 0), EINVAL);
    CHECK_ERR(fx(&w, FUTEX_WAIT, 0, &n, NULL, 0), EINVAL);
}
CASE(wake_nobody) { CHECK_EQ(fx(&w, FUTEX_WAKE, 100, NULL, NULL, 0), 0); }
CASE(misaligned) { CHECK_ERR(fx((void *)((char *)&w + 1), FUTEX_WAIT, 0, NULL, NULL, 0), EINVAL); }
CASE(bad_address) {
    CHECK_ERR(fx(BAD, FUTEX_WAIT, 0, &MS50, NULL, 0), EFAULT);
    CHECK_ERR(fx(noaccess(), FUTEX_WAIT_PRIVATE, 0, &MS50, NULL, 0), EFAULT);
}
CASE(unknown_op) { CHECK_ERR(fx(&w, 77, 0, NULL, NULL, 0), ENOSYS); }
CASE(absolute_monotonic_bitset_timeout) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    ts.tv_nsec += 50000000;
    if (ts.tv_nsec >= 1000000000) ts.tv_sec++, ts.tv_nsec -= 1000000000;
    int64_t t0 = now_us();
    CHECK_ERR(fx(&w, FUTEX_WAIT_BITSET, 0, &ts, NULL, ~0u), ETIMEDOUT);
    CHECK(now_us() - t0 >= 48000);
}
CASE(absolute_realtime_in_past) {
    struct timespec ts = {1000, 0};
    CHECK_ERR(fx(&w, FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME, 0, &ts, NULL, ~0u), ETIMEDOUT);
}
CASE(bitset_zero_invalid) {
    CHECK_ERR(fx(&w, FUTEX_WAIT_BITSET, 0, NULL, NULL, 0), EINVAL);
    CHECK_ERR(fx(&w, FUTEX_WAKE_BITSET, 1, NULL, NULL, 0), EINVAL);
}
static void *waiter(void *a) {
    long r = fx(a, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
    CHECK(r == 0);
    __atomic_add_fetch(&woken, 1, __ATOMIC_SEQ_CST);
    return NULL;
}
static pthread_t start(void *(*f)(void *), void *a) {
    pthread_t t;
    CHECK_EQ(pthread_create(&t, NULL, f, a), 0);
    return t;
}
CASE(wake_counts) {
    for (int i = 0; i < 5; i++) start(waiter, (void *)&w);
    int n = 0;
    EVENTUALLY((n += fx(&w, FUTEX_WAKE_PRIVATE, 2 - n > 0 ? 2 - n : 0, NULL, NULL, 0)) >= 2);
    EVENTUALLY(woken == 2);
    msleep(20);
    CHECK_EQ(woken, 2);
    EVENTUALLY((n += fx(&w, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0)) == 5);
    EVENTUALLY(woken == 5);
}
static void *bit_waiter(void *a) {
    CHECK(fx(&w, FUTEX_WAIT_BITSET_PRIVATE, 0, NULL, NULL, (uint32_t)(long)a) == 0);
    __atomic_or_fetch(&woken, (int)(long)a, __ATOMIC_SEQ_CST);
    return NULL;
}
CASE(bitset_selects_waiters) {
    start(bit_waiter, (void *)1);
    start(bit_waiter, (void *)2);
    msleep(50);
    CHECK_EQ(fx(&w, FUTEX_WAKE_BITSET_PRIVATE, 10, NULL, NULL, 4), 0);
    CHECK_EQ(fx(&w, FUTEX_WAKE_BITSET_PRIVATE, 10, NULL, NULL, 2), 1);
    EVENTUALLY(woken == 2);
    CHECK_EQ(fx(&w, FUTEX_WAKE_PRIVATE, 10, NULL, NULL, 0), 1);
    EVENTUALLY(woken == 3);
}
CASE(cmp_requeue_moves) {
    for (int i = 0; i < 4; i++) start(waiter, (void *)&w);
    msleep(80);
    CHECK_ERR(fx(&w, FUTEX_CMP_REQUEUE_PRIVATE, 1, (void *)10, (void *)&w2, 99), EAGAIN);
    CHECK_EQ(fx(&w, FUTEX_CMP_REQUEUE_PRIVATE, 1, (void *)2, (void *)&w2, 0), 3);  // 1 woken + 2 moved
    EVENTUALLY(woken == 1);
    CHECK_EQ(fx(&w2, FUTEX_WAKE_PRIVATE, 10, NULL, NULL, 0), 2);
    EVENTUALLY(woken == 3);
    CHECK_EQ(fx(&w, FUTEX_WAKE_PRIVATE, 10, NULL, NULL, 0), 1);
}
CASE(requeue_counts_only_woken) {
    for (int i = 0; i < 3; i++) start(waiter, (void *)&w);
    msleep(80);
    CHECK_EQ(fx(&w, FUTEX_REQUEUE_PRIVATE, 1, (void *)10, (void *)&w2, 0), 3);
    CHECK_EQ(fx(&w2, FUTEX_WAKE_PRIVATE, 10, NULL, NULL, 0), 2);
    EVENTUALLY(woken == 3);
}
CASE(wake_op) {
    start(waiter, (void *)&w);
    start(waiter, (void *)&w2);
    msleep(60);
    // w2 becomes 5 and, the old value being 0, its waiters wake too.
    int op = FUTEX_OP(FUTEX_OP_SET, 5, FUTEX_OP_CMP_EQ, 0);
    CHECK_EQ(fx(&w, FUTEX_WAKE_OP_PRIVATE, 1, (void *)1, (void *)&w2, op), 2);
    CHECK_EQ(w2, 5);
    EVENTUALLY(woken == 2);
}
static volatile uint32_t *shared_word(void) {
    void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    return p;
}
CASE(shared_between_processes) {
    volatile uint32_t *s = shared_word();
    pid_t p = SPAWN({ CHECK(fx(s, FUTEX_WAIT, 0, NULL, NULL, 0) == 0); _exit(4); });
    EVENTUALLY(fx(s, FUTEX_WAKE, 1, NULL, NULL, 0) == 1);
    CHECK_EQ(join(p), 4);
}
CASE(shared_through_two_mappings_of_a_file) {
    scratch();
    int fd = mkfile("f", "");
    CHECK(ftruncate(fd, 8192) == 0);
    volatile uint32_t *a = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    volatile uint32_t *b = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 4096);
    pid_t p = SPAWN({ CHECK(fx(a + 1024, FUTEX_WAIT, 0, NULL, NULL, 0) == 0); });
    EVENTUALLY(fx(b, FUTEX_WAKE, 1, NULL, NULL, 0) == 1);
    CHECK_EQ(join(p), 0);
}
CASE(private_memory_is_not_shared_after_fork) {
    pid_t p = SPAWN({ CHECK_ERR(fx(&w, FUTEX_WAIT, 0, &MS50, NULL, 0), ETIMEDOUT); });
    for (int i = 0; i < 10; i++) {
        CHECK_EQ(fx(&w, FUTEX_WAKE, 1, NULL, NULL, 0), 0);
        pause_ms(5);
    }
    CHECK_EQ(join(p), 0);
}
CASE(shared_value_change_before_wait) {
    volatile uint32_t *s = shared_word();
    pid_t p = SPAWN({ *s = 1; });
    join(p);
    CHECK_ERR(fx(s, FUTEX_WAIT, 0, NULL, NULL, 0), EAGAIN);
}
static void nop(int s, siginfo_t *si, void *u) { (void)s, (void)si, (void)u; }
CASE(wait_eintr_without_restart) {
    on_signal(SIGALRM, nop, 0);
    struct itimerval it = {{0, 0}, {0, 30000}};
    setitimer(ITIMER_REAL, &it, NULL);
    CHECK_ERR(fx(&w, FUTEX_WAIT, 0, NULL, NULL, 0), EINTR);
}
static void *late_waker(void *a) {
    msleep(100);
    EVENTUALLY(fx(a, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0) == 1);
    return NULL;
}
CASE(wait_restarts_with_sa_restart) {
    on_signal(SIGALRM, nop, SA_RESTART);
    sigset_t s;
    sigemptyset(&s);
    sigaddset(&s, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &s, NULL);
    start(late_waker, (void *)&w);  // the timer's signal must come to this thread
    pthread_sigmask(SIG_UNBLOCK, &s, NULL);
    struct itimerval it = {{0, 0}, {0, 20000}};
    setitimer(ITIMER_REAL, &it, NULL);
    CHECK_EQ(fx(&w, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0), 0);
}
CASE(kill_while_waiting) {
    pid_t p = SPAWN({ fx(&w, FUTEX_WAIT, 0, NULL, NULL, 0); });
    msleep(20);
    kill(p, SIGKILL);
    CHECK_EQ(join(p), 128 + SIGKILL);
}
static void robust_child(pthread_mutex_t *m) { CHECK_EQ(pthread_mutex_lock(m), 0); }
CASE(robust_mutex_owner_death_process) {
    pthread_mutex_t *m = (void *)shared_word();
    pthread_mutexattr_t a;
    pthread_mutexattr_init(&a);
    pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
    CHECK_EQ(pthread_mutex_init(m, &a), 0);
    CHECK_EQ(join(SPAWN({ robust_child(m); })), 0);
    CHECK_EQ(pthread_mutex_lock(m), EOWNERDEAD);
    CHECK_EQ(pthread_mutex_consistent(m), 0);
    CHECK_EQ(pthread_mutex_unlock(m), 0);
}
CASE(robust_mutex_waiter_woken_on_kill) {
    pthread_mutex_t *m = (void *)shared_word();
    int fd[2];
    CHECK(pipe(fd) == 0);
    pthread_mutexattr_t a;
    pthread_mutexattr_init(&a);
    pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(m, &a);
    pid_t p = SPAWN({ robust_child(m); CHECK(write(fd[1], "x", 1) == 1); pause(); });
    char c;
    CHECK(read(fd[0], &c, 1) == 1);
    pid_t q = SPAWN({ CHECK_EQ(pthread_mutex_lock(m), EOWNERDEAD); });
    msleep(50);
    kill(p, SIGKILL);
    CHECK_EQ(join(p), 128 + SIGKILL);
    CHECK_EQ(join(q), 0);
}
static pthread_mutex_t rm;
static void *robust_thread(void *a) {
    robust_child(&rm);
    return a;
}
CASE(robust_mutex_thread_exit) {
    pthread_mutexattr_t a;
    pthread_mutexattr_init(&a);
    pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&rm, &a);
    pthread_join(start(robust_thread, NULL), NULL);
    CHECK_EQ(pthread_mutex_lock(&rm), EOWNERDEAD);
}
CASE(robust_list_syscalls) {
    void *head;
    size_t len = 0;
    CHECK(syscall(SYS_get_robust_list, 0, &head, &len) == 0);
    CHECK_EQ(len, 24);
    CHECK_ERR(syscall(SYS_set_robust_list, head, 8), EINVAL);
}
static volatile uint32_t *pp;
static void *ponger(void *a) {
    for (uint32_t i = 0; i < 5000; i++) {
        while (pp[0] == i) fx(pp, FUTEX_WAIT_PRIVATE, i, NULL, NULL, 0);
        pp[1] = i + 1;
        fx(pp + 1, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    }
    return a;
}
CASE(ping_pong_5000) {
    pp = shared_word();
    pthread_t t = start(ponger, NULL);
    for (uint32_t i = 0; i < 5000; i++) {
        pp[0] = i + 1;
        fx(pp, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
        while (pp[1] == i) fx(pp + 1, FUTEX_WAIT_PRIVATE, i, NULL, NULL, 0);
    }
    pthread_join(t, NULL);
}
CASE(process_ping_pong_2000) {
    pp = shared_word();
    pid_t p = SPAWN({
        for (uint32_t i = 0; i < 2000; i++) {
            while (pp[0] == i) fx(pp, FUTEX_WAIT, i, NULL, NULL, 0);
            pp[1] = i + 1;
            fx(pp + 1, FUTEX_WAKE, 1, NULL, NULL, 0);
        }
    });
    for (uint32_t i = 0; i < 2000; i++) {
        pp[0] = i + 1;
        fx(pp, FUTEX_WAKE, 1, NULL, NULL, 0);
        while (pp[1] == i) fx(pp + 1, FUTEX_WAIT, i, NULL, NULL, 0);
    }
    CHECK_EQ(join(p), 0);
}
CASE(exit_clears_tid_and_wakes_joiner) {
    static volatile uint32_t v;
    v = 0;
    pthread_t t = start(waiter, (void *)&v);
    EVENTUALLY(fx(&v, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0) == 1);
    CHECK_EQ(pthread_join(t, NULL), 0);
}
