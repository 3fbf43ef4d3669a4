// futex_wake, futex_wait and futex_requeue, by number: libc has none of them.
#include "t.h"

enum { U32 = 2, PRIVATE = 128 };
#define ALL 0xffffffffUL
struct waitv { uint64_t val, addr; uint32_t flags, reserved; };
static uint32_t *w1, *w2;
static long wake(uint32_t *w, unsigned long mask, int n, unsigned flags) { return syscall(454, w, mask, n, flags); }
static long wait_for(uint32_t *w, unsigned long val, unsigned long mask, unsigned flags, struct timespec *t, int clock) {
    return syscall(455, w, val, mask, flags, t, clock);
}
static long requeue(uint32_t *a, unsigned long val, uint32_t *b, unsigned flags, int wake, int move) {
    struct waitv v[2] = {{val, (uintptr_t)a, flags, 0}, {0, (uintptr_t)b, flags, 0}};
    return syscall(456, v, 0, wake, move);
}
static void words(void) {
    w1 = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    w2 = w1 + 8;
    if (wake(w1, ALL, 1, U32) < 0 && errno == ENOSYS) SKIP("the kernel has no futex_wake");
}
static struct timespec in_ms(int clock, int ms) {
    struct timespec t;
    clock_gettime(clock, &t);
    t.tv_nsec += ms * 1000000L;
    t.tv_sec += t.tv_nsec / 1000000000, t.tv_nsec %= 1000000000;
    return t;
}
static pid_t waiter(uint32_t *w, unsigned long mask) {
    pid_t p = fork();
    if (p == 0) _exit(wait_for(w, 0, mask, U32, NULL, 0) == 0 ? 0 : 1);
    msleep(50);
    return p;
}
CASE(wakes_as_many_as_asked) {
    words();
    pid_t p[3];
    for (int i = 0; i < 3; i++) p[i] = waiter(w1, ALL);
    CHECK_EQ(wake(w1, ALL, 0, U32), 0);
    CHECK_EQ(wake(w1, ALL, 2, U32), 2);
    CHECK_EQ(wake(w1, ALL, 9, U32), 1);
    CHECK_EQ(wake(w1, ALL, 9, U32), 0);
    for (int i = 0; i < 3; i++) CHECK_EQ(join(p[i]), 0);
}
CASE(masks_choose) {
    words();
    pid_t a = waiter(w1, 1), b = waiter(w1, 6);
    CHECK_EQ(wake(w1, 8, 9, U32), 0);
    CHECK_EQ(wake(w1, 2, 9, U32), 1);
    CHECK_EQ(join(b), 0);
    CHECK_EQ(wake(w1, 1, 9, U32), 1);
    CHECK_EQ(join(a), 0);
    CHECK_ERR(wake(w1, 0, 1, U32), EINVAL);
    CHECK_ERR(wait_for(w1, 0, 0, U32, NULL, 0), EINVAL);
}
CASE(meets_futex_of_old) {
    words();
    pid_t p = waiter(w1, ALL);
    CHECK_EQ(syscall(SYS_futex, w1, 1 /* FUTEX_WAKE */, 1, NULL, NULL, 0), 1);
    CHECK_EQ(join(p), 0);
}
CASE(values_and_ends) {
    words();
    *w1 = 5;
    CHECK_ERR(wait_for(w1, 4, ALL, U32, NULL, 0), EAGAIN);
    for (int clock = CLOCK_REALTIME; clock <= CLOCK_MONOTONIC; clock++) {
        struct timespec t = in_ms(clock, 30);
        CHECK_ERR(wait_for(w1, 5, ALL, U32, &t, clock), ETIMEDOUT);
        CHECK_ERR(wait_for(w1, 5, ALL, U32 | PRIVATE, &t, clock), ETIMEDOUT);
    }
    struct timespec t = {0, 0}, bad = {0, 1000000000};
    CHECK_ERR(wait_for(w1, 5, ALL, U32, &t, CLOCK_MONOTONIC), ETIMEDOUT);
    CHECK_ERR(wait_for(w1, 5, ALL, U32, &bad, CLOCK_MONOTONIC), EINVAL);
    CHECK_ERR(wait_for(w1, 5, ALL, U32, &t, CLOCK_BOOTTIME), EINVAL);
    CHECK_ERR(wait_for(w1, 5, ALL, U32, noaccess(), CLOCK_MONOTONIC), EFAULT);
}
CASE(sizes_and_flags) {
    words();
    for (int size = 0; size < 4; size++)
        if (size != U32) {
            CHECK_ERR(wake(w1, 1, 1, size), EINVAL);
            CHECK_ERR(wait_for(w1, 0, 1, size, NULL, 0), EINVAL);
            CHECK_ERR(requeue(w1, 0, w2, size, 1, 1), EINVAL);
        }
    CHECK_ERR(wake(w1, 1, 1, U32 | 0x100), EINVAL);
    CHECK_ERR(wake(w1, 1UL << 32, 1, U32), EINVAL);
    CHECK_ERR(wait_for(w1, 1UL << 32, 1, U32, NULL, 0), EINVAL);
    CHECK_ERR(wait_for(w1, 0, 1UL << 32, U32, NULL, 0), EINVAL);
    CHECK_ERR(wake((uint32_t *)((char *)w1 + 1), 1, 1, U32), EINVAL);
    CHECK_ERR(wait_for(noaccess(), 0, 1, U32, NULL, 0), EFAULT);
}
CASE(requeue_moves) {
    words();
    pid_t p[3];
    for (int i = 0; i < 3; i++) p[i] = waiter(w1, ALL);
    CHECK_ERR(requeue(w1, 1, w2, U32, 1, 1), EAGAIN);
    CHECK_EQ(requeue(w1, 0, w2, U32, 1, 1), 2);
    CHECK_EQ(wake(w2, ALL, 9, U32), 1);
    CHECK_EQ(wake(w1, ALL, 9, U32), 1);
    for (int i = 0; i < 3; i++) CHECK_EQ(join(p[i]), 0);
    CHECK_ERR(requeue(w1, 0, w2, U32, -1, 1), EINVAL);
    CHECK_ERR(requeue(w1, 0, w2, U32, 1, -1), EINVAL);
    CHECK_ERR(requeue(w1, 1UL << 32, w2, U32, 1, 1), EINVAL);
    CHECK_ERR(syscall(456, NULL, 0, 1, 1), EINVAL);
    CHECK_ERR(syscall(456, noaccess(), 0, 1, 1), EFAULT);
    struct waitv v[2] = {{0, (uintptr_t)w1, U32, 0}, {0, (uintptr_t)w2, U32, 1}};
    CHECK_ERR(syscall(456, v, 0, 1, 1), EINVAL);
    v[1].reserved = 0;
    CHECK_ERR(syscall(456, v, 1, 1, 1), EINVAL);
}
