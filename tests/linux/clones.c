// clone and clone3: which requests are refused, and how children made in odd ways are waited for.
#define T_HELPER
#include "t.h"

#include <linux/sched.h>
#include <sched.h>
#include <sys/ptrace.h>

#ifndef CLONE_CLEAR_SIGHAND
#define CLONE_CLEAR_SIGHAND 0x100000000ULL
#define CLONE_INTO_CGROUP 0x200000000ULL
#endif

// struct clone_args, and what a later kernel may add.
struct args {
    uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size, cgroup, more[4];
};

static struct args a;
static size_t size;

static void fresh(void) {
    a = (struct args){.exit_signal = SIGCHLD};
    size = 88;
}

// The answer of clone3 for a child that ends at once: 0 or an error.
static int clone3_error(void) {
    long r = syscall(SYS_clone3, &a, size);
    if (r == 0) _exit(0);
    if (r < 0) return errno;
    CHECK_EQ(waitpid(r, NULL, __WALL), r);
    return 0;
}

// What clone3 answers when the fields are set as told.
#define WITH(want, ...)                                                      \
    do { fresh(); __VA_ARGS__; int got_ = clone3_error();                    \
         if (got_ != (want)) FAIL("%s: got %d, want %s", #__VA_ARGS__, got_, #want); } while (0)

CASE(sizes_and_what_lies_behind) {
    WITH(EINVAL, size = 63);
    WITH(EINVAL, size = 0);
    WITH(0, size = 64);
    WITH(0, size = 120);
    WITH(E2BIG, size = 120; a.more[3] = 1);
    WITH(E2BIG, size = 4097);
    CHECK_ERR(syscall(SYS_clone3, BAD, 88), EFAULT);
}

CASE(unknown_flags) {
    for (int bit = 34; bit < 64; bit++) WITH(EINVAL, a.flags = 1ull << bit);
    for (int bit = 0; bit < 7; bit++) WITH(EINVAL, a.flags = 1 << bit);
    WITH(EINVAL, a.flags = CLONE_DETACHED);
    // The old call ignores what it does not know.
    long r = syscall(SYS_clone, 1ul << 36 | CLONE_DETACHED | SIGCHLD, 0, 0, 0, 0);
    if (r == 0) _exit(5);
    CHECK_EQ(join(r), 5);
}

CASE(flags_that_do_not_go_together) {
    static int fd;
    WITH(EINVAL, a.flags = CLONE_THREAD);
    WITH(EINVAL, a.flags = CLONE_THREAD | CLONE_SIGHAND);
    WITH(EINVAL, a.flags = CLONE_SIGHAND);
    WITH(EINVAL, a.flags = CLONE_SIGHAND | CLONE_VM | CLONE_CLEAR_SIGHAND);
    WITH(EINVAL, a.flags = CLONE_THREAD | CLONE_SIGHAND | CLONE_VM);  // with an exit signal
    WITH(EINVAL, a.flags = CLONE_PARENT);
    WITH(EINVAL, a.flags = CLONE_PIDFD | CLONE_DETACHED; a.pidfd = (long)&fd);
    WITH(EINVAL, a.flags = CLONE_PIDFD | CLONE_PARENT_SETTID; a.pidfd = a.parent_tid = (long)&fd);
    WITH(EINVAL, a.flags = CLONE_NEWNS | CLONE_FS);
    CHECK_ERR(syscall(SYS_clone, CLONE_PIDFD | CLONE_DETACHED | SIGCHLD, 0, &fd, 0, 0), EINVAL);
    CHECK_ERR(syscall(SYS_clone, CLONE_PIDFD | CLONE_PARENT_SETTID | SIGCHLD, 0, &fd, 0, 0), EINVAL);
}

CASE(exit_signals) {
    signal(64, SIG_IGN);
    WITH(0, a.exit_signal = 0);
    WITH(0, a.exit_signal = 64);
    WITH(EINVAL, a.exit_signal = 65);
    WITH(EINVAL, a.exit_signal = 256 | SIGCHLD);
    WITH(EINVAL, a.exit_signal = 1ull << 32 | SIGCHLD);
    // The old call takes numbers that are no signals; nobody is told then.
    for (int s = 65; s < 256; s += 95) {
        long r = syscall(SYS_clone, s, 0, 0, 0, 0);
        if (r == 0) _exit(4);
        CHECK_EQ(waitpid(r, NULL, __WCLONE), r);
    }
}

CASE(stacks) {
    static char stack[65536];
    WITH(EINVAL, a.stack = (long)stack);
    WITH(EINVAL, a.stack_size = 4096);
    WITH(EINVAL, a.stack = -4096ull; a.stack_size = 8192);
    WITH(EINVAL, a.stack = 1ull << 63; a.stack_size = 4096);
    WITH(EINVAL, a.stack = (long)stack; a.stack_size = 1ull << 62);
}

CASE(places_for_ids) {
    WITH(EFAULT, a.flags = CLONE_PIDFD; a.pidfd = (long)BAD);
    WITH(0, a.flags = CLONE_PARENT_SETTID; a.parent_tid = (long)BAD);
    WITH(0, a.flags = CLONE_CHILD_SETTID; a.child_tid = (long)BAD);
    // A pidfd that could not be given leaves no descriptor.
    int next = dup(0);
    close(next);
    WITH(EFAULT, a.flags = CLONE_PIDFD; a.pidfd = (long)BAD);
    CHECK_EQ(dup(0), next);
}

CASE(set_tid) {
    if (geteuid() != 0) SKIP("needs root");
    static int tid[40];
    WITH(EINVAL, a.set_tid = (long)tid);
    WITH(EINVAL, a.set_tid_size = 1);
    WITH(EINVAL, a.set_tid = (long)tid; a.set_tid_size = 1);
    WITH(EINVAL, tid[0] = -1; a.set_tid = (long)tid; a.set_tid_size = 1);
    WITH(EINVAL, tid[0] = 1 << 30; a.set_tid = (long)tid; a.set_tid_size = 1);
    WITH(EEXIST, tid[0] = 1; a.set_tid = (long)tid; a.set_tid_size = 1);
    WITH(EEXIST, tid[0] = getpid(); a.set_tid = (long)tid; a.set_tid_size = 1);
    WITH(EFAULT, a.set_tid = (long)BAD; a.set_tid_size = 1);
    WITH(EINVAL, tid[0] = 30000; a.set_tid = (long)tid; a.set_tid_size = 33);
    // The number of a child that has been reaped is free again.
    int free = SPAWN();
    join(free);
    fresh();
    tid[0] = free;
    a.set_tid = (long)tid;
    a.set_tid_size = 1;
    long r = syscall(SYS_clone3, &a, size);
    if (r == 0) _exit(getpid() == free ? 0 : 1);
    if (r < 0 && errno == EEXIST) SKIP("somebody else has taken the number");
    CHECK_EQ(r, free);
    CHECK_EQ(join(r), 0);
}

CASE(control_groups) {
    WITH(EBADF, a.flags = CLONE_INTO_CGROUP; a.cgroup = 999);
    WITH(EBADF, a.flags = CLONE_INTO_CGROUP; a.cgroup = 0);
    WITH(EINVAL, a.flags = CLONE_INTO_CGROUP; a.cgroup = 1ull << 31);
    WITH(EINVAL, a.flags = CLONE_INTO_CGROUP; size = 80);
    WITH(0, a.cgroup = 5);
}

CASE(a_sibling_has_its_makers_signal) {
    // With CLONE_PARENT the child is its maker's sibling, and tells the parent as that does: by SIGCHLD.
    pid_t maker = fork();
    CHECK(maker >= 0);
    if (maker == 0) {
        long r = syscall(SYS_clone, CLONE_PARENT | SIGUSR2, 0, 0, 0, 0);
        if (r == 0) _exit(7);
        _exit(r < 0);
    }
    int seven = 0, st;
    for (int i = 0; i < 2; i++) {
        pid_t p = wait4(-1, &st, 0, NULL);
        CHECK(p > 0);
        if (p == maker) CHECK_EQ(st, 0);
        else seven = WEXITSTATUS(st);
    }
    CHECK_EQ(seven, 7);
    CHECK_ERR(wait4(-1, &st, __WALL, NULL), ECHILD);
}

static char stack[65536];

static int runs(void *arg) {
    (void)arg;
    execl(t_self, t_self, "@nine", NULL);
    _exit(1);
}

CASE(a_thread_made_as_by_vfork_execs) {
    pid_t p = fork();
    CHECK(p >= 0);
    if (p == 0) {
        clone(runs, stack + sizeof stack, CLONE_VM | CLONE_SIGHAND | CLONE_THREAD | CLONE_VFORK, NULL);
        _exit(2);
    }
    CHECK_EQ(join(p), 9);
}

static int sleeps(void *arg) {
    (void)arg;
    for (;;) pause();
    return 0;
}

CASE(who_waits_for_a_vfork_child_can_be_killed) {
    pid_t p = fork();
    CHECK(p >= 0);
    if (p == 0) {
        clone(sleeps, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
        _exit(2);
    }
    msleep(50);
    kill(p, SIGKILL);
    CHECK_EQ(join(p), 128 + SIGKILL);
}

CASE(a_traced_child_is_waited_for_with_any_kind) {
    int st;
    pid_t p = SPAWN(for (;;) pause());
    CHECK_ERR(wait4(p, &st, __WCLONE | WNOHANG, NULL), ECHILD);
    CHECK(ptrace(PTRACE_SEIZE, p, 0, 0) == 0);
    CHECK(ptrace(PTRACE_INTERRUPT, p, 0, 0) == 0);
    CHECK_EQ(wait4(p, &st, __WCLONE, NULL), p);
    CHECK(WIFSTOPPED(st));
    kill(p, SIGKILL);
    CHECK_EQ(join(p), 128 + SIGKILL);
}

int t_helper(int argc, char **argv) {
    (void)argc, (void)argv;
    return 9;
}
