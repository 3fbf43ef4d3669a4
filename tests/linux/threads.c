// Threads: clone, TLS, per-thread state, pthread synchronisation under load.
#include "t.h"
#include <linux/futex.h>
#include <sched.h>
#include <semaphore.h>
#include <sys/prctl.h>

static pthread_t go(void *(*f)(void *), void *a) {
    pthread_t t;
    CHECK_EQ(pthread_create(&t, NULL, f, a), 0);
    return t;
}
static void *ret_arg(void *a) { return a; }
CASE(create_join_value) {
    void *r;
    CHECK_EQ(pthread_join(go(ret_arg, (void *)77), &r), 0);
    CHECK_EQ((long)r, 77);
}
static void *get_tid(void *a) {
    *(pid_t *)a = syscall(SYS_gettid);
    return (void *)(long)getpid();
}
CASE(tid_differs_pid_same) {
    pid_t tid = 0;
    void *r;
    pthread_join(go(get_tid, &tid), &r);
    CHECK(tid && tid != getpid());
    CHECK_EQ((long)r, getpid());
}
static __thread int tls = 5;
static void *tls_fn(void *a) {
    CHECK_EQ(tls, 5);
    tls = (int)(long)a;
    sched_yield();
    CHECK_EQ(tls, (long)a);
    return NULL;
}
CASE(tls_is_private) {
    pthread_t t[16];
    for (long i = 0; i < 16; i++) t[i] = go(tls_fn, (void *)(100 + i));
    for (int i = 0; i < 16; i++) pthread_join(t[i], NULL);
    CHECK_EQ(tls, 5);
}
CASE(create_many_sequential) {
    for (long i = 0; i < 1000; i++) {
        void *r;
        pthread_join(go(ret_arg, (void *)i), &r);
        CHECK_EQ((long)r, i);
    }
}
static pthread_barrier_t bar;
static void *bar_fn(void *a) {
    pthread_barrier_wait(&bar);
    return a;
}
CASE(many_at_once_200) {
    pthread_t t[200];
    pthread_attr_t at;
    pthread_attr_init(&at);
    pthread_attr_setstacksize(&at, 65536);
    pthread_barrier_init(&bar, NULL, 201);
    for (int i = 0; i < 200; i++) CHECK_EQ(pthread_create(&t[i], &at, bar_fn, NULL), 0);
    pthread_barrier_wait(&bar);
    for (int i = 0; i < 200; i++) pthread_join(t[i], NULL);
}
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cv = PTHREAD_COND_INITIALIZER;
static long counter;
static void *inc_fn(void *a) {
    for (int i = 0; i < 20000; i++) {
        pthread_mutex_lock(&mu);
        counter++;
        pthread_mutex_unlock(&mu);
    }
    return a;
}
CASE(mutex_stress) {
    pthread_t t[8];
    for (int i = 0; i < 8; i++) t[i] = go(inc_fn, NULL);
    for (int i = 0; i < 8; i++) pthread_join(t[i], NULL);
    CHECK_EQ(counter, 160000);
}
static int turn, rounds = 2000;
static void *pingpong(void *a) {
    int me = (int)(long)a;
    for (int i = 0; i < rounds; i++) {
        pthread_mutex_lock(&mu);
        while (turn != me) pthread_cond_wait(&cv, &mu);
        turn = !me;
        pthread_cond_broadcast(&cv);
        pthread_mutex_unlock(&mu);
    }
    return NULL;
}
CASE(cond_ping_pong) {
    pthread_t a = go(pingpong, (void *)0), b = go(pingpong, (void *)1);
    pthread_join(a, NULL);
    pthread_join(b, NULL);
}
static void *barrier_loop(void *a) {
    for (int i = 0; i < 300; i++) {
        __atomic_add_fetch(&counter, 1, __ATOMIC_SEQ_CST);
        pthread_barrier_wait(&bar);
        CHECK(__atomic_load_n(&counter, __ATOMIC_SEQ_CST) >= (i + 1) * 4L);
        pthread_barrier_wait(&bar);
    }
    return a;
}
CASE(barrier_stress) {
    pthread_t t[4];
    pthread_barrier_init(&bar, NULL, 4);
    for (int i = 0; i < 4; i++) t[i] = go(barrier_loop, NULL);
    for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
    CHECK_EQ(counter, 1200);
}
CASE(cond_timedwait_times_out) {
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    ts.tv_nsec += 50000000;
    if (ts.tv_nsec >= 1000000000) ts.tv_sec++, ts.tv_nsec -= 1000000000;
    int64_t t0 = now_us();
    pthread_mutex_lock(&mu);
    CHECK_EQ(pthread_cond_timedwait(&cv, &mu, &ts), ETIMEDOUT);
    CHECK(now_us() - t0 >= 40000);
}
static sem_t sem;
static void *sem_fn(void *a) {
    for (int i = 0; i < 1000; i++) sem_post(&sem);
    return a;
}
CASE(semaphores) {
    sem_init(&sem, 0, 0);
    pthread_t a = go(sem_fn, NULL), b = go(sem_fn, NULL);
    for (int i = 0; i < 2000; i++) CHECK(sem_wait(&sem) == 0);
    pthread_join(a, NULL);
    pthread_join(b, NULL);
    CHECK_ERR(sem_trywait(&sem), EAGAIN);
}
static pthread_rwlock_t rw = PTHREAD_RWLOCK_INITIALIZER;
static void *rw_fn(void *a) {
    for (int i = 0; i < 3000; i++) {
        if ((i + (long)a) % 4 == 0) {
            pthread_rwlock_wrlock(&rw);
            counter++;
            counter++;
        } else {
            pthread_rwlock_rdlock(&rw);
            CHECK(counter % 2 == 0);
        }
        pthread_rwlock_unlock(&rw);
    }
    return NULL;
}
CASE(rwlock_stress) {
    pthread_t t[4];
    for (long i = 0; i < 4; i++) t[i] = go(rw_fn, (void *)i);
    for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
    CHECK_EQ(counter, 6000);
}
static void *blocked_read(void *a) {
    char c;
    CHECK_EQ(read(*(int *)a, &c, 1), 1);
    return NULL;
}
CASE(blocking_call_does_not_stop_others) {
    int fd[2];
    CHECK(pipe(fd) == 0);
    pthread_t t[8];
    for (int i = 0; i < 8; i++) t[i] = go(blocked_read, &fd[0]);
    msleep(20);
    for (int i = 0; i < 8; i++) CHECK(write(fd[1], "x", 1) == 1);
    for (int i = 0; i < 8; i++) pthread_join(t[i], NULL);
}
static volatile bool stop;
static void *spin(void *a) {
    while (!stop) {}
    return a;
}
CASE(preemption_of_spinning_threads) {
    pthread_t t[6];
    for (int i = 0; i < 6; i++) t[i] = go(spin, NULL);
    msleep(100);  // the main thread must get to run again
    stop = true;
    for (int i = 0; i < 6; i++) pthread_join(t[i], NULL);
}
static void *spin_count(void *a) {
    while (!stop) ++*(volatile long *)a;
    return NULL;
}
CASE(spinning_threads_share_cpu) {
    long n[4] = {0};
    pthread_t t[4];
    for (int i = 0; i < 4; i++) t[i] = go(spin_count, &n[i]);
    msleep(600);
    stop = true;
    for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
    for (int i = 0; i < 4; i++) CHECK(n[i] > 1000);
}
static void *cancel_me(void *a) {
    for (;;) pause();
    return a;
}
CASE(pthread_cancel_blocked) {
    pthread_t t = go(cancel_me, NULL);
    msleep(10);
    CHECK_EQ(pthread_cancel(t), 0);
    void *r;
    pthread_join(t, &r);
    CHECK(r == PTHREAD_CANCELED);
}
static void *set_name(void *a) {
    prctl(PR_SET_NAME, "worker");
    pthread_barrier_wait(&bar);
    pthread_barrier_wait(&bar);
    return a;
}
CASE(thread_names_are_per_thread) {
    pthread_barrier_init(&bar, NULL, 2);
    pthread_t t = go(set_name, NULL);
    pthread_barrier_wait(&bar);
    char b[17];
    prctl(PR_GET_NAME, b);
    CHECK(strcmp(b, "worker"));
    CHECK_EQ(pthread_getname_np(t, b, sizeof b), 0);
    CHECK(!strcmp(b, "worker"));
    pthread_barrier_wait(&bar);
    pthread_join(t, NULL);
}
static void *mask_fn(void *a) {
    sigset_t s;
    pthread_sigmask(SIG_BLOCK, NULL, &s);
    CHECK(sigismember(&s, SIGUSR1));
    sigemptyset(&s);
    pthread_sigmask(SIG_SETMASK, &s, NULL);
    return a;
}
CASE(signal_mask_inherited_and_private) {
    sigset_t s;
    sigemptyset(&s);
    sigaddset(&s, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &s, NULL);
    pthread_join(go(mask_fn, NULL), NULL);
    pthread_sigmask(SIG_BLOCK, NULL, &s);
    CHECK(sigismember(&s, SIGUSR1));
}
static volatile pid_t handled_by;
static void note_tid(int s, siginfo_t *si, void *u) {
    (void)s, (void)si, (void)u;
    handled_by = syscall(SYS_gettid);
}
static void *wait_stop(void *a) {
    *(volatile pid_t *)a = syscall(SYS_gettid);
    while (!stop) pause_ms(1);
    return NULL;
}
CASE(pthread_kill_targets_thread) {
    on_signal(SIGUSR1, note_tid, 0);
    volatile pid_t tid = 0;
    pthread_t t = go(wait_stop, (void *)&tid);
    EVENTUALLY(tid);
    CHECK_EQ(pthread_kill(t, SIGUSR1), 0);
    EVENTUALLY(handled_by);
    CHECK_EQ(handled_by, tid);
    stop = true;
    pthread_join(t, NULL);
}
CASE(process_signal_goes_to_unblocked_thread) {
    on_signal(SIGUSR1, note_tid, 0);
    volatile pid_t tid = 0;
    pthread_t t = go(wait_stop, (void *)&tid);
    EVENTUALLY(tid);
    sigset_t s;
    sigemptyset(&s);
    sigaddset(&s, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &s, NULL);
    kill(getpid(), SIGUSR1);
    EVENTUALLY(handled_by);
    CHECK_EQ(handled_by, tid);
    stop = true;
    pthread_join(t, NULL);
}
CASE(tgkill_errors) {
    CHECK_ERR(syscall(SYS_tgkill, getpid(), 999999, 0), ESRCH);
    CHECK_ERR(syscall(SYS_tgkill, -1, getpid(), 0), EINVAL);
    CHECK_ERR(syscall(SYS_tgkill, getpid(), 0, 0), EINVAL);
    CHECK_ERR(syscall(SYS_tgkill, getpid() + 77777, getpid(), 0), ESRCH);
    CHECK_ERR(syscall(SYS_tkill, 999999, 0), ESRCH);
}
static void *fork_fn(void *a) {
    for (int i = 0; i < 20; i++) CHECK_EQ(join(SPAWN({ _exit(3); })), 3);
    return a;
}
CASE(fork_from_many_threads) {
    pthread_t t[8];
    for (int i = 0; i < 8; i++) t[i] = go(fork_fn, NULL);
    for (int i = 0; i < 8; i++) pthread_join(t[i], NULL);
}
CASE(fork_child_has_one_thread) {
    volatile pid_t tid = 0;
    pthread_t t = go(wait_stop, (void *)&tid);
    EVENTUALLY(tid);
    CHECK_EQ(join(SPAWN({ CHECK_ERR(syscall(SYS_tgkill, getpid(), tid, 0), ESRCH); CHECK_EQ(syscall(SYS_gettid), getpid()); })), 0);
    stop = true;
    pthread_join(t, NULL);
}
static void *close_fd(void *a) {
    close(*(int *)a);
    return NULL;
}
CASE(threads_share_descriptors_and_cwd) {
    int fd = open("/dev/null", O_RDONLY);
    pthread_join(go(close_fd, &fd), NULL);
    CHECK_ERR(fcntl(fd, F_GETFD), EBADF);
}
static int raw_fn(void *a) {
    *(volatile int *)a = 1;
    return 0;
}
CASE(raw_clone_child_cleartid_wakes) {
    static char stack[65536] __attribute__((aligned(16)));
    static volatile int ran;
    static volatile pid_t ctid = -1;
    int fl = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;
    pid_t ptid = 0;
    int tid = clone(raw_fn, stack + sizeof stack, fl, (void *)&ran, &ptid, NULL, &ctid);
    CHECK(tid > 0);
    CHECK_EQ(ptid, tid);
    EVENTUALLY(ran == 1 && ctid == 0);
}
CASE(set_tid_address_returns_tid) {
    static int x;
    CHECK_EQ(syscall(SYS_set_tid_address, &x), syscall(SYS_gettid));
}
static void *fs_unshared(void *a) {
    CHECK(unshare(CLONE_FS) == 0);
    CHECK(chdir("/") == 0);
    return a;
}
CASE(unshare_fs_of_thread) {
    scratch();
    char a[PATH_MAX], b[PATH_MAX];
    CHECK(getcwd(a, sizeof a) != NULL);
    pthread_join(go(fs_unshared, NULL), NULL);
    CHECK(getcwd(b, sizeof b) != NULL);
    CHECK(!strcmp(a, b));
}
static void *errno_fn(void *a) {
    for (int i = 0; i < 2000; i++) CHECK_ERR(close(-1), EBADF);
    return a;
}
CASE(errno_is_per_thread) {
    pthread_t t = go(errno_fn, NULL);
    for (int i = 0; i < 2000; i++) CHECK_ERR(open("/no/such", O_RDONLY), ENOENT);
    pthread_join(t, NULL);
}
static void *fp_fn(void *a) {
    double x = (long)a + 0.5, y = x;
    for (int i = 0; i < 300000; i++) {
        x = x * 1.0000001 + 0.25;
        if (i % 1000 == 0) sched_yield();
    }
    double z = y;
    for (int i = 0; i < 300000; i++) z = z * 1.0000001 + 0.25;
    CHECK(x == z);
    return NULL;
}
CASE(fp_registers_survive_switches) {
    pthread_t t[6];
    for (long i = 0; i < 6; i++) t[i] = go(fp_fn, (void *)i);
    for (int i = 0; i < 6; i++) pthread_join(t[i], NULL);
}
// What two threads that hand over to each other by a futex keep in their registers. Some is changed in every round and
// some only now and then, so that state which the kernel takes for unchanged, or for initial, is tried as well.
static uint32_t turn_word;
static void take_turn(uint32_t me) {
    uint32_t v;
    while ((v = __atomic_load_n(&turn_word, __ATOMIC_ACQUIRE)) % 2 != me) syscall(SYS_futex, &turn_word, FUTEX_WAIT_PRIVATE, v, NULL);
}
static void give_turn(void) {
    __atomic_add_fetch(&turn_word, 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, &turn_word, FUTEX_WAKE_PRIVATE, 1);
}
#define ROUND                                                                                                          \
    "mov %[give], %%eax; lock incl (%[w]); mov %[w], %%rdi; mov $129, %%esi; mov $1, %%edx; syscall;"                 \
    "1: mov (%[w]), %%edx; mov %%edx, %%eax; and $1, %%eax; cmp %%eax, %[me]; je 2f;"                                 \
    "mov %[give], %%eax; mov %[w], %%rdi; mov $128, %%esi; xor %%r10d, %%r10d; syscall; jmp 1b; 2:"
__attribute__((target("avx2"))) static void *vector_fn(void *a) {
    uint32_t me = (long)a;
    uint64_t ymm[4] = {1 + me, 2, 3, 4}, xmm[2] = {77 + me, 78}, o[6];
    unsigned csr = 0x1f80 | (me ? 0x4000 : 0x2000), got;
    uint16_t cw = me ? 0x27f : 0x37f, gotcw;
    take_turn(me);
    __asm__ volatile("ldmxcsr %0; fldcw %1" ::"m"(csr), "m"(cw));
    for (int i = 0; i < 3000; i++) {
        if (i % 7 == 0) ymm[i % 4] += 5;
        xmm[i % 2]++;
        if (i % 100 < 50) __asm__ volatile("vzeroall" ::: "memory");  // back to the initial state
        __asm__ volatile("movdqu %[x], %%xmm4; " ROUND " movdqu %%xmm4, %[o]"
                         : [o] "=m"(*(uint64_t(*)[2])o) : [x] "m"(xmm), [w] "r"(&turn_word), [me] "r"(me), [give] "i"(SYS_futex)
                         : "rax", "rcx", "rdx", "rdi", "rsi", "r10", "r11", "xmm4", "memory", "cc");
        CHECK(!memcmp(o, xmm, sizeof xmm));
        if (i % 3) {
            __asm__ volatile("vmovdqu %[y], %%ymm5; " ROUND ROUND " vmovdqu %%ymm5, %[o]"
                             : [o] "=m"(*(uint64_t(*)[4])o) : [y] "m"(ymm), [w] "r"(&turn_word), [me] "r"(me), [give] "i"(SYS_futex)
                             : "rax", "rcx", "rdx", "rdi", "rsi", "r10", "r11", "xmm5", "memory", "cc");
            CHECK(!memcmp(o, ymm, sizeof ymm));
        }
        __asm__ volatile("stmxcsr %0; fnstcw %1" : "=m"(got), "=m"(gotcw));
        CHECK_EQ(got & 0xffc0, csr);
        CHECK_EQ(gotcw, cw);
    }
    give_turn();
    return NULL;
}
CASE(vector_registers_survive_handover) {
    if (!__builtin_cpu_supports("avx2")) SKIP("no AVX2");
    pthread_t t[2];
    for (long i = 0; i < 2; i++) t[i] = go(vector_fn, (void *)i);
    for (int i = 0; i < 2; i++) pthread_join(t[i], NULL);
}
// A thread that wakes another and then computes must not hold it up, whatever it did before.
static uint32_t posted, answered;
static void *answer_fn(void *a) {
    for (uint32_t k = 0; k < 2000; k++) {
        while (__atomic_load_n(&posted, __ATOMIC_ACQUIRE) == k) syscall(SYS_futex, &posted, FUTEX_WAIT_PRIVATE, k, NULL);
        __atomic_add_fetch(&answered, 1, __ATOMIC_RELEASE);
        syscall(SYS_futex, &answered, FUTEX_WAKE_PRIVATE, 1);
    }
    return a;
}
CASE(a_woken_thread_runs_although_its_waker_goes_on) {
    pthread_t t = go(answer_fn, NULL);
    for (uint32_t k = 0; k < 2000; k++) {
        __atomic_add_fetch(&posted, 1, __ATOMIC_RELEASE);
        syscall(SYS_futex, &posted, FUTEX_WAKE_PRIVATE, 1);
        if (k % 200 == 199) {
            while (__atomic_load_n(&answered, __ATOMIC_ACQUIRE) == k) {}  // never waits in the kernel
        } else {
            while (__atomic_load_n(&answered, __ATOMIC_ACQUIRE) == k) syscall(SYS_futex, &answered, FUTEX_WAIT_PRIVATE, k, NULL);
        }
    }
    pthread_join(t, NULL);
}
static void *exit_raw(void *a) {
    syscall(SYS_exit, 0);
    return a;
}
CASE(detached_threads_disappear) {
    for (int i = 0; i < 200; i++) {
        pthread_t t;
        pthread_attr_t at;
        pthread_attr_init(&at);
        pthread_attr_setdetachstate(&at, PTHREAD_CREATE_DETACHED);
        CHECK_EQ(pthread_create(&t, &at, exit_raw, NULL), 0);
    }
    EVENTUALLY(strstr(slurp("/proc/self/status"), "Threads:\t1\n") != NULL);
}
static void *crash_fn(void *a) {
    *(volatile int *)8 = 1;
    return a;
}
CASE(crash_in_thread_kills_process) {
    CHECK_EQ(join(SPAWN({ go(crash_fn, NULL); pause(); })), 128 + SIGSEGV);
}
static void *alloc_fn(void *a) {
    unsigned s = (unsigned)(long)a;
    void *p[64] = {0};
    for (int i = 0; i < 4000; i++) {
        int k = rand_r(&s) % 64;
        free(p[k]);
        size_t n = rand_r(&s) % 40000;
        p[k] = malloc(n + 1);
        memset(p[k], k, n + 1);
    }
    for (int i = 0; i < 64; i++) free(p[i]);
    return NULL;
}
CASE(malloc_stress_threads) {
    pthread_t t[8];
    for (long i = 0; i < 8; i++) t[i] = go(alloc_fn, (void *)i);
    for (int i = 0; i < 8; i++) pthread_join(t[i], NULL);
}
