// Rarely asked questions, and what Linux answers: epoll's exclusive waiters, waiting for clones that are traced, locks that
// waiters are moved to, attributes that are kept, the vsyscall page.
#include "t.h"
#include <linux/futex.h>
#include <sched.h>
#include <setjmp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <ucontext.h>

static int woken;
static void *wait_once(void *arg) {
    int ep = *(int *)arg;
    struct epoll_event e;
    if (epoll_wait(ep, &e, 1, -1) == 1) __atomic_add_fetch(&woken, 1, __ATOMIC_SEQ_CST);
    return NULL;
}
static void watch(int ep, int fd, uint32_t events) {
    struct epoll_event e = {.events = events};
    CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e) == 0);
}

CASE(exclusive_waiters_are_woken_one_at_a_time) {
    enum { N = 4 };
    int fd = CHECK_OK(eventfd(0, EFD_SEMAPHORE)), ep[N];
    pthread_t t[N];
    for (int i = 0; i < N; i++) {
        ep[i] = CHECK_OK(epoll_create1(0));
        watch(ep[i], fd, EPOLLIN | EPOLLEXCLUSIVE);
        pthread_create(&t[i], NULL, wait_once, &ep[i]);
    }
    msleep(20);
    for (int n = 1; n <= N; n++) {
        CHECK(eventfd_write(fd, 1) == 0);
        EVENTUALLY(__atomic_load_n(&woken, __ATOMIC_SEQ_CST) >= n);
        msleep(20);
        CHECK_EQ(__atomic_load_n(&woken, __ATOMIC_SEQ_CST), n);
    }
}
CASE(the_end_of_a_pipe_wakes_all_exclusive_waiters) {
    int p[2], ep[3];
    CHECK(pipe(p) == 0);
    pthread_t t[3];
    for (int i = 0; i < 3; i++) {
        ep[i] = CHECK_OK(epoll_create1(0));
        watch(ep[i], p[0], EPOLLIN | EPOLLEXCLUSIVE);
        pthread_create(&t[i], NULL, wait_once, &ep[i]);
    }
    msleep(20);
    close(p[1]);
    for (int i = 0; i < 3; i++) pthread_join(t[i], NULL);
    CHECK_EQ(woken, 3);
}
CASE(exclusive_watches_have_rules) {
    int ep = CHECK_OK(epoll_create1(0)), inner = CHECK_OK(epoll_create1(0)), fd = CHECK_OK(eventfd(0, 0));
    struct epoll_event e = {.events = EPOLLIN | EPOLLEXCLUSIVE};
    CHECK_ERR(epoll_ctl(ep, EPOLL_CTL_MOD, fd, &e), EINVAL);
    CHECK_ERR(epoll_ctl(ep, EPOLL_CTL_ADD, inner, &e), EINVAL);
    e.events = EPOLLIN | EPOLLEXCLUSIVE | EPOLLONESHOT;
    CHECK_ERR(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e), EINVAL);
    e.events = EPOLLIN | EPOLLEXCLUSIVE | EPOLLRDHUP;
    CHECK_ERR(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e), EINVAL);
    e.events = EPOLLIN | EPOLLOUT | EPOLLEXCLUSIVE | EPOLLET;
    CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e) == 0);
    e.events = EPOLLIN;
    CHECK_ERR(epoll_ctl(ep, EPOLL_CTL_MOD, fd, &e), EINVAL);
    CHECK(epoll_ctl(ep, EPOLL_CTL_DEL, fd, NULL) == 0);
}

CASE(wclone_finds_traced_children_dead_ones_too) {
    pid_t c = SPAWN({ CHECK(ptrace(PTRACE_TRACEME, 0, 0, 0) == 0); raise(SIGSTOP); _exit(7); });
    int st;
    CHECK_EQ(waitpid(c, &st, 0), c);
    CHECK(WIFSTOPPED(st));
    CHECK_EQ(waitpid(c, &st, __WCLONE | WNOHANG), 0);
    CHECK(ptrace(PTRACE_CONT, c, 0, 0) == 0);
    siginfo_t si;
    CHECK(waitid(P_PID, c, &si, WEXITED | WNOWAIT) == 0);
    CHECK_EQ(waitpid(c, &st, __WCLONE), c);
    CHECK(WIFEXITED(st) && WEXITSTATUS(st) == 7);
    // One that is let go is an ordinary child again.
    c = SPAWN({ CHECK(ptrace(PTRACE_TRACEME, 0, 0, 0) == 0); raise(SIGSTOP); _exit(8); });
    CHECK_EQ(waitpid(c, &st, 0), c);
    CHECK(ptrace(PTRACE_DETACH, c, 0, 0) == 0);
    CHECK_ERR(waitpid(c, &st, __WCLONE), ECHILD);
    CHECK_EQ(join(c), 8);
}

static int futex(int *a, int op, int val, uintptr_t timeout, int *b, int val3) {
    return syscall(SYS_futex, a, op, val, timeout, b, val3);
}
static int cond, lock, served;
static void *wait_for_lock(void *a) {
    (void)a;
    if (futex(&cond, FUTEX_WAIT_REQUEUE_PI_PRIVATE, 0, 0, &lock, 0) != 0) return (void *)1;
    // The lock is this thread's now.
    if ((lock & FUTEX_TID_MASK) != syscall(SYS_gettid)) return (void *)2;
    __atomic_add_fetch(&served, 1, __ATOMIC_SEQ_CST);
    if (futex(&lock, FUTEX_UNLOCK_PI_PRIVATE, 0, 0, NULL, 0) != 0) return (void *)3;
    return NULL;
}
CASE(waiters_are_moved_to_a_lock) {
    pthread_t t[3];
    for (int held = 0; held < 2; held++) {
        served = 0;
        for (int i = 0; i < 3; i++) pthread_create(&t[i], NULL, wait_for_lock, NULL);
        msleep(20);
        if (held) CHECK(futex(&lock, FUTEX_LOCK_PI_PRIVATE, 0, 0, NULL, 0) == 0);
        // With two left to move, and one of them given the lock if it is free.
        CHECK_EQ(futex(&cond, FUTEX_CMP_REQUEUE_PI_PRIVATE, 1, 2, &lock, 0), 3);
        if (held) {
            msleep(20);
            CHECK_EQ(served, 0);
            CHECK(futex(&lock, FUTEX_UNLOCK_PI_PRIVATE, 0, 0, NULL, 0) == 0);
        }
        for (int i = 0; i < 3; i++) {
            void *r;
            pthread_join(t[i], &r);
            CHECK_EQ((long)r, 0);
        }
        CHECK(served == 3 && lock == 0);
    }
}
CASE(moving_to_a_lock_has_rules) {
    struct timespec soon;
    clock_gettime(CLOCK_MONOTONIC, &soon);
    CHECK_ERR(futex(&cond, FUTEX_WAIT_REQUEUE_PI, 0, (uintptr_t)&soon, &cond, 0), EINVAL);
    CHECK_ERR(futex(&cond, FUTEX_WAIT_REQUEUE_PI, 1, (uintptr_t)&soon, &lock, 0), EAGAIN);
    CHECK_ERR(futex(&cond, FUTEX_WAIT_REQUEUE_PI, 0, (uintptr_t)&soon, &lock, 0), ETIMEDOUT);
    CHECK_EQ(futex(&cond, FUTEX_CMP_REQUEUE_PI, 1, 0, &lock, 0), 0);
    CHECK_ERR(futex(&cond, FUTEX_CMP_REQUEUE_PI, 2, 0, &lock, 0), EINVAL);
    CHECK_ERR(futex(&cond, FUTEX_CMP_REQUEUE_PI, 1, 0, &cond, 0), EINVAL);
    CHECK_ERR(futex(&cond, FUTEX_CMP_REQUEUE_PI, 1, 0, &lock, 7), EAGAIN);
}

CASE(prctl_answers) {
    CHECK(prctl(PR_TASK_PERF_EVENTS_DISABLE) == 0 && prctl(PR_TASK_PERF_EVENTS_ENABLE) == 0);
    CHECK_EQ(prctl(PR_MCE_KILL_GET, 0, 0, 0, 0), PR_MCE_KILL_DEFAULT);
    CHECK(prctl(PR_MCE_KILL, PR_MCE_KILL_SET, PR_MCE_KILL_EARLY, 0, 0) == 0);
    CHECK_EQ(prctl(PR_MCE_KILL_GET, 0, 0, 0, 0), PR_MCE_KILL_EARLY);
    CHECK_ERR(prctl(PR_MCE_KILL, PR_MCE_KILL_SET, 3, 0, 0), EINVAL);
    CHECK(prctl(PR_MCE_KILL, PR_MCE_KILL_CLEAR, 0, 0, 0) == 0);
    CHECK_ERR(prctl(PR_GET_SPECULATION_CTRL, 99, 0, 0, 0), ENODEV);
    CHECK_ERR(prctl(PR_GET_SPECULATION_CTRL, 0, 1, 0, 0), EINVAL);
    // Needs a privilege that not every root has.
    if (prctl(PR_GET_IO_FLUSHER, 0, 0, 0, 0) >= 0) {
        CHECK(prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) == 0);
        CHECK_EQ(prctl(PR_GET_IO_FLUSHER, 0, 0, 0, 0), 1);
        CHECK_EQ(join(SPAWN(CHECK_EQ(prctl(PR_GET_IO_FLUSHER, 0, 0, 0, 0), 1))), 0);
        CHECK_ERR(prctl(PR_SET_IO_FLUSHER, 2, 0, 0, 0), EINVAL);
        CHECK_ERR(prctl(PR_SET_IO_FLUSHER, 1, 1, 0, 0), EINVAL);
        CHECK(prctl(PR_SET_IO_FLUSHER, 0, 0, 0, 0) == 0);
    } else {
        CHECK(errno == EPERM);
    }
    t_drop_root();
    CHECK_ERR(prctl(PR_SET_IO_FLUSHER, 0, 0, 0, 0), EPERM);
}

struct attr {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
    uint32_t util_min, util_max;
    char more[72];
};
CASE(scheduling_attributes_have_rules) {
    struct attr a = {.size = 40};
    CHECK_ERR(syscall(SYS_sched_setattr, 0, &a, 0), E2BIG);
    CHECK(a.size >= 48);
    a = (struct attr){.size = sizeof a, .more = {1}};
    CHECK_ERR(syscall(SYS_sched_setattr, 0, &a, 0), E2BIG);
    CHECK(a.size >= 48 && a.size < sizeof a);
    a = (struct attr){.size = 48, .flags = 1 << 20};
    CHECK_ERR(syscall(SYS_sched_setattr, 0, &a, 0), EINVAL);
    a = (struct attr){.size = 48, .policy = SCHED_BATCH, .nice = 5};
    CHECK(syscall(SYS_sched_setattr, 0, &a, 0) == 0);
    // KEEP_POLICY: whatever it says.
    a = (struct attr){.size = 48, .policy = 77, .flags = 8, .nice = 7};
    CHECK(syscall(SYS_sched_setattr, 0, &a, 0) == 0);
    CHECK(syscall(SYS_sched_getattr, 0, &a, sizeof a, 0) == 0);
    CHECK(a.policy == SCHED_BATCH && a.nice == 7);
}
CASE(io_priority_of_a_group_follows_nice) {
    CHECK_EQ(syscall(SYS_ioprio_get, 1, 0), 0);
    CHECK_EQ(syscall(SYS_ioprio_get, 2, 0), 2 << 13 | 4);
    CHECK(setpriority(PRIO_PROCESS, 0, 10) == 0);
    CHECK_EQ(syscall(SYS_ioprio_get, 2, 0), 2 << 13 | 6);
    CHECK(syscall(SYS_ioprio_set, 1, 0, 2 << 13 | 1) == 0);
    CHECK_EQ(syscall(SYS_ioprio_get, 2, 0), 2 << 13 | 1);
    CHECK_ERR(syscall(SYS_ioprio_get, 4, 0), EINVAL);
    CHECK_ERR(syscall(SYS_ioprio_set, 1, 0, 5 << 13), EINVAL);
}

CASE(vsyscall_page_is_not_readable) {
    CHECK_EQ(join(SPAWN(_exit(*(volatile char *)0xffffffffff600000 == 0))), 128 + SIGSEGV);
}
// What the page's calls answer is what the system calls do; a host may have none of it, and then they fault.
static sigjmp_buf back;
static siginfo_t fault;
static unsigned long fault_pc;
static void faulted(int s, siginfo_t *si, void *u) {
    ucontext_t *c = u;
    fault = *si, fault_pc = c->uc_mcontext.gregs[REG_RIP];
    siglongjmp(back, s);
}
#define VSYSCALL 0xffffffffff600000
static long legacy(unsigned long offset, void *a, void *b) {
    return ((long (*)(void *, void *, void *))(VSYSCALL + offset))(a, b, NULL);
}
CASE(vsyscall_page_answers_or_faults) {
    static const unsigned long GETTIMEOFDAY = 0, TIME = 0x400, GETCPU = 0x800;
    on_signal(SIGSEGV, faulted, 0);
    if (sigsetjmp(back, 1)) {
        // None of it: where it was called.
        CHECK(fault_pc == VSYSCALL + TIME && fault.si_code == SEGV_MAPERR);
        t_end(0, "ok %s", t_name);
    }
    time_t t = 0, before = time(NULL);
    CHECK(legacy(TIME, &t, NULL) == t && t >= before && t <= time(NULL) + 1);
    struct timeval tv = {0, -1}, after;
    // time(2) is a tick behind.
    CHECK(legacy(GETTIMEOFDAY, &tv, NULL) == 0 && !gettimeofday(&after, NULL));
    CHECK(tv.tv_sec >= before && tv.tv_sec <= after.tv_sec && tv.tv_usec >= 0);
    unsigned cpu = -1, node = -1;
    CHECK(legacy(GETCPU, &cpu, &node) == 0 && cpu < 4096 && node == 0);
    // A bad pointer is followed, and so is a call of the page's rest, where the page is not readable.
    static const unsigned long bad[] = {GETTIMEOFDAY, TIME};
    for (volatile int i = 0; i < 2; i++)
        if (!sigsetjmp(back, 1)) FAIL("%ld for a bad pointer", legacy(bad[i], BAD, NULL));
        else CHECK(fault_pc == VSYSCALL + bad[i] && fault.si_code == SI_KERNEL && !fault.si_addr);
    if (!sigsetjmp(back, 1)) FAIL("%ld inside of the page", legacy(16, NULL, NULL));
    CHECK(fault_pc == VSYSCALL + 16 && fault.si_code == SI_KERNEL);
}
