// Futexes beyond waiting and waking: several at once, priority inheritance, robust lists, requeueing, bad arguments.
#include "t.h"
#include <linux/futex.h>

#ifndef FUTEX_LOCK_PI2
#define FUTEX_LOCK_PI2 13
#endif
struct waitv { uint64_t val, addr; uint32_t flags, reserved; };
enum { F32 = 2, FPRIV = 128 };
static uint32_t *shared;
static long fut(void *a, int op, long v, void *t, void *b, long v3) { return syscall(SYS_futex, a, op, v, t, b, v3); }
static long waitv(struct waitv *w, int n, int flags, struct timespec *t) { return syscall(SYS_futex_waitv, w, n, flags, t, CLOCK_MONOTONIC); }
static void setup(void) { shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0); }
static void *waker(void *a) {
    msleep(30);
    *(uint32_t *)a = 1;
    fut(a, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, NULL, NULL, 0);
    return NULL;
}
static struct timespec soon(long ms) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_nsec += ms * 1000000;
    while (t.tv_nsec >= 1000000000) t.tv_nsec -= 1000000000, t.tv_sec++;
    return t;
}

CASE(several_returns_which_was_woken) {
    uint32_t f[3] = {0};
    struct waitv w[3];
    for (int i = 0; i < 3; i++) w[i] = (struct waitv){0, (uint64_t)&f[i], F32 | FPRIV, 0};
    pthread_t t;
    pthread_create(&t, NULL, waker, &f[2]);
    CHECK_EQ(waitv(w, 3, 0, NULL), 2);
    pthread_join(t, NULL);
}
CASE(several_with_one_changed) {
    uint32_t f[2] = {0, 5};
    struct waitv w[2] = {{0, (uint64_t)&f[0], F32 | FPRIV, 0}, {4, (uint64_t)&f[1], F32 | FPRIV, 0}};
    CHECK_ERR(waitv(w, 2, 0, NULL), EAGAIN);
}
CASE(several_time_out) {
    uint32_t f = 0;
    struct waitv w = {0, (uint64_t)&f, F32 | FPRIV, 0};
    struct timespec t = soon(30), bad = {0, -1};
    int64_t s = now_us();
    CHECK_ERR(waitv(&w, 1, 0, &t), ETIMEDOUT);
    CHECK(now_us() - s >= 29000);
    CHECK_ERR(waitv(&w, 1, 0, &bad), EINVAL);
}
CASE(several_argument_errors) {
    uint32_t f = 0;
    struct waitv w = {0, (uint64_t)&f, F32 | FPRIV, 0}, bad = w;
    CHECK_ERR(waitv(&w, 0, 0, NULL), EINVAL);
    CHECK_ERR(waitv(&w, 129, 0, NULL), EINVAL);
    CHECK_ERR(waitv(&w, 1, 1, NULL), EINVAL);
    CHECK_ERR(waitv(BAD, 1, 0, NULL), EFAULT);
    bad.reserved = 1;
    CHECK_ERR(waitv(&bad, 1, 0, NULL), EINVAL);
    bad = w, bad.flags = 0x40;
    CHECK_ERR(waitv(&bad, 1, 0, NULL), EINVAL);
    bad = w, bad.addr = (uint64_t)BAD & ~3;
    CHECK_ERR(waitv(&bad, 1, 0, NULL), EFAULT);
}
CASE(several_shared_between_processes) {
    setup();
    struct waitv w[2] = {{0, (uint64_t)shared, F32, 0}, {0, (uint64_t)(shared + 1), F32, 0}};
    pid_t c = SPAWN(_exit(waitv(w, 2, 0, NULL) == 1 ? 3 : 4));
    EVENTUALLY(fut(shared + 1, FUTEX_WAKE, 1, NULL, NULL, 0) == 1);
    CHECK_EQ(join(c), 3);
}
CASE(pi_uncontended_is_done_by_the_kernel_too) {
    uint32_t f = 0;
    CHECK(fut(&f, FUTEX_LOCK_PI, 0, NULL, NULL, 0) == 0);
    CHECK_EQ(f & FUTEX_TID_MASK, gettid());
    CHECK_ERR(fut(&f, FUTEX_LOCK_PI, 0, NULL, NULL, 0), EDEADLK);
    CHECK_ERR(fut(&f, FUTEX_TRYLOCK_PI, 0, NULL, NULL, 0), EDEADLK);
    CHECK(fut(&f, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0) == 0 && f == 0);
    CHECK_ERR(fut(&f, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0), EPERM);
}
static uint32_t pi;
static volatile int got_it;
static void *pi_locker(void *a) {
    CHECK(fut(&pi, FUTEX_LOCK_PI, 0, NULL, NULL, 0) == 0);
    got_it = (pi & FUTEX_TID_MASK) == (uint32_t)gettid();
    CHECK(fut(&pi, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0) == 0);
    return a;
}
CASE(pi_is_handed_over) {
    pi = gettid();
    pthread_t t;
    pthread_create(&t, NULL, pi_locker, NULL);
    EVENTUALLY(pi & FUTEX_WAITERS);
    CHECK(fut(&pi, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0) == 0);
    pthread_join(t, NULL);
    CHECK(got_it && pi == 0);
}
CASE(pi_times_out_on_the_real_clock) {
    setup();
    pid_t c = SPAWN(*shared = gettid(); pause());
    EVENTUALLY(*shared);
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    CHECK_ERR(fut(shared, FUTEX_LOCK_PI, 0, &t, NULL, 0), ETIMEDOUT);
    CHECK_ERR(fut(shared, FUTEX_TRYLOCK_PI, 0, NULL, NULL, 0), EAGAIN);
    t = soon(10);
    CHECK_ERR(fut(shared, FUTEX_LOCK_PI2, 0, &t, NULL, 0), ETIMEDOUT);  // the monotonic clock
    kill(c, SIGKILL), join(c);
}
CASE(pi_owner_that_does_not_exist) {
    uint32_t f = 999999;
    CHECK_ERR(fut(&f, FUTEX_LOCK_PI, 0, NULL, NULL, 0), ESRCH);
}
CASE(pi_mutex_of_pthreads) {
    pthread_mutex_t m;
    pthread_mutexattr_t a;
    pthread_mutexattr_init(&a);
    CHECK(pthread_mutexattr_setprotocol(&a, PTHREAD_PRIO_INHERIT) == 0);
    pthread_mutexattr_settype(&a, PTHREAD_MUTEX_ERRORCHECK);
    CHECK(pthread_mutex_init(&m, &a) == 0 && pthread_mutex_lock(&m) == 0);
    CHECK_EQ(pthread_mutex_lock(&m), EDEADLK);
    CHECK(pthread_mutex_unlock(&m) == 0 && pthread_mutex_unlock(&m) == EPERM);
}
static pthread_mutex_t *robust(int pshared) {
    setup();
    pthread_mutex_t *m = (void *)shared;
    pthread_mutexattr_t a;
    pthread_mutexattr_init(&a);
    pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
    if (pshared) pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
    CHECK(pthread_mutex_init(m, &a) == 0);
    return m;
}
CASE(robust_not_made_consistent_is_lost_for_ever) {
    pthread_mutex_t *m = robust(1);
    join(SPAWN(pthread_mutex_lock(m)));
    CHECK_EQ(pthread_mutex_lock(m), EOWNERDEAD);
    CHECK(pthread_mutex_unlock(m) == 0);
    CHECK_EQ(pthread_mutex_lock(m), ENOTRECOVERABLE);
}
CASE(robust_survives_exec_of_the_owner) {
    pthread_mutex_t *m = robust(1);
    pid_t c = SPAWN(pthread_mutex_lock(m); execl("/bin/true", "true", NULL); _exit(9));
    CHECK_EQ(join(c), 0);
    CHECK_EQ(pthread_mutex_lock(m), EOWNERDEAD);
}
CASE(robust_several_locks_of_one_owner) {
    pthread_mutex_t *m = robust(1);
    pthread_mutexattr_t a;
    pthread_mutexattr_init(&a), pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST), pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
    for (int i = 1; i < 5; i++) pthread_mutex_init(m + i, &a);
    pid_t c = SPAWN(for (int i = 0; i < 5; i++) pthread_mutex_lock(m + i); pthread_mutex_unlock(m + 2); raise(SIGKILL));
    join(c);
    for (int i = 0; i < 5; i++) CHECK_EQ(pthread_mutex_lock(m + i), i == 2 ? 0 : EOWNERDEAD);
}
struct node { struct node *next; };
CASE(robust_list_with_a_circle_ends) {
    setup();
    pid_t c = SPAWN(struct { struct node list; long off; struct node *pend; } h = {{NULL}, 8, NULL};
                    struct node a; h.list.next = &a; a.next = &a;  // never comes back to the head
                    syscall(SYS_set_robust_list, &h, 24); syscall(SYS_exit, 5));
    CHECK_EQ(join(c), 5);
    CHECK_ERR(syscall(SYS_set_robust_list, BAD, 23), EINVAL);
}
CASE(wake_op_arithmetic) {
    uint32_t f = 0, g = 7;
    // FUTEX_OP_ADD 3, compare old == 7
    CHECK_EQ(fut(&f, FUTEX_WAKE_OP, 1, (void *)1, &g, FUTEX_OP(FUTEX_OP_ADD, 3, FUTEX_OP_CMP_EQ, 7)), 0);
    CHECK_EQ(g, 10);
    CHECK_EQ(fut(&f, FUTEX_WAKE_OP, 1, (void *)1, &g, FUTEX_OP(FUTEX_OP_OR, 5, FUTEX_OP_CMP_NE, 0)), 0);
    CHECK_EQ(g, 15);
    CHECK_EQ(fut(&f, FUTEX_WAKE_OP, 1, (void *)1, &g, FUTEX_OP(FUTEX_OP_ANDN, 1, FUTEX_OP_CMP_LT, 0)), 0);
    CHECK_EQ(g, 14);
    CHECK_EQ(fut(&f, FUTEX_WAKE_OP, 1, (void *)1, &g, FUTEX_OP((FUTEX_OP_SET | FUTEX_OP_OPARG_SHIFT), 4, FUTEX_OP_CMP_GE, 0)), 0);
    CHECK_EQ(g, 16);
    CHECK_ERR(fut(&f, FUTEX_WAKE_OP, 1, (void *)1, &g, 0x70000000), ENOSYS);
    CHECK_ERR(fut(&f, FUTEX_WAKE_OP, 1, (void *)1, BAD, FUTEX_OP(FUTEX_OP_SET, 1, FUTEX_OP_CMP_EQ, 0)), EFAULT);
}
CASE(requeue_argument_errors) {
    uint32_t f = 3, g = 0;
    CHECK_ERR(fut(&f, FUTEX_CMP_REQUEUE, 1, (void *)1, &g, 4), EAGAIN);
    CHECK_ERR(fut(&f, FUTEX_CMP_REQUEUE, -1, (void *)1, &g, 3), EINVAL);
    CHECK_ERR(fut(&f, FUTEX_CMP_REQUEUE, 1, (void *)-1, &g, 3), EINVAL);
    CHECK_ERR(fut(&f, FUTEX_CMP_REQUEUE, 1, (void *)1, (char *)&g + 1, 3), EINVAL);
    CHECK_EQ(fut(&f, FUTEX_CMP_REQUEUE, 1, (void *)1, &g, 3), 0);
    CHECK_ERR(fut(&f, FUTEX_WAIT | 0x1000, 0, NULL, NULL, 0), ENOSYS);
}
CASE(file_backed_futex_by_inode) {
    scratch();
    int fd = mkfile("f", "");
    CHECK(ftruncate(fd, 4096) == 0);
    uint32_t *a = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    pid_t c = SPAWN(int again = open("f", O_RDWR); uint32_t *b = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0);
                    _exit(fut(b + 4, FUTEX_WAIT, 0, NULL, NULL, 0) == 0 ? 3 : 4));
    EVENTUALLY(fut(a + 4, FUTEX_WAKE, 1, NULL, NULL, 0) == 1);
    CHECK_EQ(join(c), 3);
}
CASE(wait_on_read_only_memory) {
    uint32_t *f = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct timespec t = {0, 10000000};
    CHECK_ERR(fut(f, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 0, &t, NULL, 0), ETIMEDOUT);
    CHECK_ERR(fut(f, FUTEX_LOCK_PI, 0, NULL, NULL, 0), EFAULT);
}
CASE(thread_list_of_another_process) {
    void *head;
    size_t len;
    pid_t c = SPAWN(pause());
    CHECK(syscall(SYS_get_robust_list, c, &head, &len) == 0 && len == 24);
    CHECK_EQ(join(SPAWN(t_drop_root(); _exit(syscall(SYS_get_robust_list, c, &head, &len) == -1 && errno == EPERM ? 3 : 4))), 3);
    CHECK_ERR(syscall(SYS_get_robust_list, 999999, &head, &len), ESRCH);
    kill(c, SIGKILL), join(c);
}
