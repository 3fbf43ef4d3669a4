// Processes: fork, vfork, exit, wait, process groups, sessions, prctl.
#include "t.h"
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>

CASE(fork_returns_child_pid) {
    int fd[2];
    CHECK(pipe(fd) == 0);
    pid_t p = SPAWN({ pid_t me = getpid(); CHECK(write(fd[1], &me, sizeof me) == sizeof me); });
    pid_t seen;
    CHECK_EQ(read(fd[0], &seen, sizeof seen), sizeof seen);
    CHECK_EQ(seen, p);
    CHECK_EQ(join(p), 0);
}
CASE(fork_copies_memory) {
    volatile int x = 1;
    pid_t p = SPAWN({ x = 2; _exit(x); });
    CHECK_EQ(join(p), 2);
    CHECK_EQ(x, 1);
}
CASE(fork_memory_isolated_both_ways) {
    char *m = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(m, 7, 1 << 20);
    int fd[2];
    CHECK(pipe(fd) == 0);
    pid_t p = SPAWN({
        char c;
        CHECK(read(fd[0], &c, 1) == 1);
        for (int i = 0; i < 1 << 20; i += 4096) CHECK(m[i] == 7);
    });
    memset(m, 9, 1 << 20);
    CHECK(write(fd[1], "x", 1) == 1);
    CHECK_EQ(join(p), 0);
}
CASE(fork_shares_file_offset) {
    scratch();
    int fd = mkfile("f", "abcdef");
    pid_t p = SPAWN({ char c; CHECK(read(fd, &c, 1) == 1); });
    CHECK_EQ(join(p), 0);
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), 1);
}
CASE(fork_copies_descriptor_table) {
    int fd[2];
    CHECK(pipe(fd) == 0);
    pid_t p = SPAWN({ close(fd[0]); close(fd[1]); });
    CHECK_EQ(join(p), 0);
    CHECK(fcntl(fd[0], F_GETFD) == 0);
}
CASE(fork_child_ppid) {
    pid_t me = getpid();
    pid_t p = SPAWN({ CHECK_EQ(getppid(), me); });
    CHECK_EQ(join(p), 0);
}
CASE(fork_clears_pending_signals) {
    sigset_t s, q;
    sigemptyset(&s);
    sigaddset(&s, SIGUSR1);
    CHECK(sigprocmask(SIG_BLOCK, &s, NULL) == 0);
    CHECK(raise(SIGUSR1) == 0);
    pid_t p = SPAWN({ CHECK(sigpending(&q) == 0); CHECK(!sigismember(&q, SIGUSR1)); });
    CHECK_EQ(join(p), 0);
}
CASE(fork_inherits_mask_and_handlers) {
    sigset_t s, q;
    sigemptyset(&s);
    sigaddset(&s, SIGUSR2);
    sigprocmask(SIG_BLOCK, &s, NULL);
    signal(SIGHUP, SIG_IGN);
    pid_t p = SPAWN({
        struct sigaction sa;
        sigprocmask(SIG_BLOCK, NULL, &q);
        CHECK(sigismember(&q, SIGUSR2));
        CHECK(sigaction(SIGHUP, NULL, &sa) == 0);
        CHECK(sa.sa_handler == SIG_IGN);
    });
    CHECK_EQ(join(p), 0);
}
CASE(fork_clears_timers) {
    struct itimerval it = {{0, 0}, {100, 0}}, got;
    CHECK(setitimer(ITIMER_REAL, &it, NULL) == 0);
    pid_t p = SPAWN({ CHECK(getitimer(ITIMER_REAL, &got) == 0); CHECK_EQ(got.it_value.tv_sec, 0); });
    CHECK_EQ(join(p), 0);
}
CASE(fork_many_children) {
    pid_t p[64];
    for (int i = 0; i < 64; i++) p[i] = SPAWN({ _exit(i); });
    for (int i = 63; i >= 0; i--) CHECK_EQ(join(p[i]), i);
}
CASE(fork_deep_chain) {
    int depth = 0;
    for (; depth < 20; depth++) {
        pid_t p = fork();
        CHECK(p >= 0);
        if (p) {
            int r = join(p);
            if (depth == 0) {
                CHECK_EQ(r, 20);
                return;
            }
            _exit(r);
        }
    }
    _exit(depth);
}
CASE(vfork_child_runs_first) {
    static volatile int x;
    pid_t p = vfork();
    if (p == 0) {
        x = 5;
        _exit(3);
    }
    CHECK_EQ(x, 5);  // the parent's memory is the child's until it exits
    CHECK_EQ(join(p), 3);
}
CASE(vfork_parent_waits_for_exec) {
    int64_t t0 = now_us();
    pid_t p = vfork();
    if (p == 0) {
        usleep(50000);
        _exit(0);
    }
    CHECK(now_us() - t0 >= 45000);
    CHECK_EQ(join(p), 0);
}
CASE(exit_code_low_byte) {
    CHECK_EQ(join(SPAWN({ _exit(0x1ff); })), 255);
    CHECK_EQ(join(SPAWN({ _exit(256); })), 0);
    CHECK_EQ(join(SPAWN({ _exit(-1); })), 255);
}
static int exit_fd;
static void at_exit_1(void) { CHECK(write(exit_fd, "1", 1) == 1); }
static void at_exit_2(void) { CHECK(write(exit_fd, "2", 1) == 1); }
CASE(exit_runs_atexit_in_reverse) {
    int fd[2];
    char b[3] = "";
    CHECK(pipe(fd) == 0);
    exit_fd = fd[1];
    pid_t p = SPAWN({ atexit(at_exit_1); atexit(at_exit_2); exit(4); });
    CHECK_EQ(join(p), 4);
    CHECK_EQ(read(fd[0], b, 2), 2);
    CHECK(!strcmp(b, "21"));
}
static void *exit_group_thread(void *a) {
    (void)a;
    syscall(SYS_exit_group, 9);
    return NULL;
}
CASE(exit_group_from_thread) {
    pid_t p = SPAWN({ pthread_t t; pthread_create(&t, NULL, exit_group_thread, NULL); pause(); });
    CHECK_EQ(join(p), 9);
}
static void *late_exit(void *a) {
    (void)a;
    msleep(50);
    _exit(6);
}
CASE(main_thread_exit_keeps_process) {
    pid_t p = SPAWN({ pthread_t t; pthread_create(&t, NULL, late_exit, NULL); syscall(SYS_exit, 0); });
    CHECK_EQ(join(p), 6);
}
CASE(wait_no_children) {
    CHECK_ERR(wait(NULL), ECHILD);
    CHECK_ERR(waitpid(getppid(), NULL, 0), ECHILD);
}
CASE(wait_not_my_child) { CHECK_ERR(waitpid(1, NULL, WNOHANG), ECHILD); }
CASE(wait_bad_options) { CHECK_ERR(waitpid(-1, NULL, 0x100), EINVAL); }
CASE(wait_nohang) {
    int fd[2];
    CHECK(pipe(fd) == 0);
    pid_t p = SPAWN({ char c; close(fd[1]); CHECK(read(fd[0], &c, 1) == 0); });
    CHECK_EQ(waitpid(p, NULL, WNOHANG), 0);
    close(fd[1]);
    CHECK_EQ(join(p), 0);
}
CASE(wait_signaled_status) {
    int st;
    pid_t p = SPAWN({ pause(); });
    CHECK(kill(p, SIGTERM) == 0);
    CHECK_EQ(waitpid(p, &st, 0), p);
    CHECK(WIFSIGNALED(st));
    CHECK_EQ(WTERMSIG(st), SIGTERM);
    CHECK(!WCOREDUMP(st));
}
CASE(wait_stopped_continued) {
    int st;
    pid_t p = SPAWN({ for (;;) pause(); });
    CHECK(kill(p, SIGSTOP) == 0);
    CHECK_EQ(waitpid(p, &st, WUNTRACED), p);
    CHECK(WIFSTOPPED(st));
    CHECK_EQ(WSTOPSIG(st), SIGSTOP);
    CHECK_EQ(waitpid(p, &st, WUNTRACED | WNOHANG), 0);  // reported once
    CHECK(kill(p, SIGCONT) == 0);
    CHECK_EQ(waitpid(p, &st, WCONTINUED), p);
    CHECK(WIFCONTINUED(st));
    CHECK(kill(p, SIGKILL) == 0);
    CHECK_EQ(join(p), 128 + SIGKILL);
}
CASE(wait_by_group) {
    pid_t a = SPAWN({ setpgid(0, 0); pause(); });
    setpgid(a, a);
    pid_t b = SPAWN({ _exit(2); });
    CHECK_EQ(waitpid(-a, NULL, WNOHANG), 0);
    int st;
    CHECK_EQ(waitpid(0, &st, 0), b);  // only my own group
    CHECK(kill(a, SIGKILL) == 0);
    CHECK_EQ(waitpid(-a, &st, 0), a);
}
CASE(wait_zombie_until_reaped) {
    pid_t p = SPAWN({});
    siginfo_t si;
    CHECK(waitid(P_PID, p, &si, WEXITED | WNOWAIT) == 0);
    CHECK(kill(p, 0) == 0);  // still there
    CHECK_EQ(join(p), 0);
    CHECK_ERR(kill(p, 0), ESRCH);
}
CASE(waitid_fields_exit) {
    pid_t p = SPAWN({ _exit(42); });
    siginfo_t si;
    memset(&si, 0, sizeof si);
    CHECK(waitid(P_PID, p, &si, WEXITED) == 0);
    CHECK_EQ(si.si_pid, p);
    CHECK_EQ(si.si_status, 42);
    CHECK_EQ(si.si_code, CLD_EXITED);
    CHECK_EQ(si.si_signo, SIGCHLD);
    CHECK_EQ(si.si_uid, getuid());
}
CASE(waitid_fields_killed) {
    pid_t p = SPAWN({ raise(SIGKILL); });
    siginfo_t si;
    CHECK(waitid(P_ALL, 0, &si, WEXITED) == 0);
    CHECK_EQ(si.si_pid, p);
    CHECK_EQ(si.si_code, CLD_KILLED);
    CHECK_EQ(si.si_status, SIGKILL);
}
CASE(waitid_nohang_zeroes) {
    pid_t p = SPAWN({ pause(); });
    siginfo_t si;
    memset(&si, 0xff, sizeof si);
    CHECK(waitid(P_PID, p, &si, WEXITED | WNOHANG) == 0);
    CHECK_EQ(si.si_pid, 0);
    kill(p, SIGKILL);
    join(p);
}
CASE(waitid_invalid) {
    siginfo_t si;
    CHECK_ERR(waitid(P_ALL, 0, &si, 0), EINVAL);
    CHECK_ERR(waitid(99, 0, &si, WEXITED), EINVAL);
}
CASE(waitid_pidfd) {
    pid_t p = SPAWN({ _exit(8); });
    int fd = syscall(SYS_pidfd_open, p, 0);
    if (fd < 0 && errno == ENOSYS) SKIP("no pidfd_open");
    CHECK(fd >= 0);
    siginfo_t si;
    CHECK(waitid(3 /* P_PIDFD */, fd, &si, WEXITED) == 0);
    CHECK_EQ(si.si_status, 8);
}
CASE(pidfd_poll_and_signal) {
    pid_t p = SPAWN({ pause(); });
    int fd = syscall(SYS_pidfd_open, p, 0);
    if (fd < 0 && errno == ENOSYS) SKIP("no pidfd_open");
    struct pollfd pf = {fd, POLLIN, 0};
    CHECK_EQ(poll(&pf, 1, 0), 0);
    CHECK(syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0) == 0);
    CHECK_EQ(poll(&pf, 1, 30000), 1);
    CHECK_EQ(join(p), 128 + SIGKILL);
}
CASE(pidfd_send_signal_to_a_proc_directory) {
    pid_t p = SPAWN({ pause(); });
    char path[32];
    snprintf(path, sizeof path, "/proc/%d", p);
    int fd = CHECK_OK(open(path, O_RDONLY | O_DIRECTORY)), other = CHECK_OK(open("/proc", O_RDONLY | O_DIRECTORY));
    CHECK_ERR(syscall(SYS_pidfd_send_signal, other, SIGKILL, NULL, 0), EBADF);
    CHECK_OK(syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0));
    CHECK_OK(syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0));
    CHECK_EQ(join(p), 128 + SIGKILL);
    CHECK_ERR(syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0), ESRCH);
}
CASE(wait4_rusage) {
    pid_t p = SPAWN({ volatile char *m = malloc(8 << 20); for (int i = 0; i < 8 << 20; i += 4096) m[i] = 1; for (volatile long i = 0; i < 100000000; i++) {} });
    struct rusage ru;
    memset(&ru, 0, sizeof ru);
    int st;
    CHECK_EQ(wait4(p, &st, 0, &ru), p);
    CHECK(ru.ru_utime.tv_sec > 0 || ru.ru_utime.tv_usec > 10000);
    CHECK(ru.ru_maxrss > 0);
}
CASE(sigchld_ignored_autoreaps) {
    signal(SIGCHLD, SIG_IGN);
    pid_t p = SPAWN({});
    CHECK_ERR(waitpid(p, NULL, 0), ECHILD);  // waits for it to go, then ECHILD
    CHECK_ERR(kill(p, 0), ESRCH);
}
CASE(sa_nocldwait_autoreaps) {
    struct sigaction sa = {.sa_handler = SIG_DFL, .sa_flags = SA_NOCLDWAIT};
    CHECK(sigaction(SIGCHLD, &sa, NULL) == 0);
    pid_t p = SPAWN({});
    CHECK_ERR(waitpid(p, NULL, 0), ECHILD);
}
static volatile int chld_pid, chld_status, chld_code;
static void on_chld(int s, siginfo_t *si, void *u) {
    (void)s, (void)u;
    chld_pid = si->si_pid, chld_status = si->si_status, chld_code = si->si_code;
}
CASE(sigchld_siginfo) {
    on_signal(SIGCHLD, on_chld, 0);
    pid_t p = SPAWN({ _exit(7); });
    EVENTUALLY(chld_pid == p);
    CHECK_EQ(chld_status, 7);
    CHECK_EQ(chld_code, CLD_EXITED);
    CHECK_EQ(join(p), 7);
}
CASE(sigchld_on_stop_unless_nocldstop) {
    on_signal(SIGCHLD, on_chld, 0);
    pid_t p = SPAWN({ for (;;) pause(); });
    kill(p, SIGSTOP);
    EVENTUALLY(chld_code == CLD_STOPPED);
    chld_code = 0;
    on_signal(SIGCHLD, on_chld, SA_NOCLDSTOP);
    kill(p, SIGCONT);
    msleep(30);
    CHECK_EQ(chld_code, 0);
    kill(p, SIGKILL);
    join(p);
}
CASE(orphan_reparented_to_init_or_subreaper) {
    CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
    int on = 0;
    CHECK(prctl(PR_GET_CHILD_SUBREAPER, &on) == 0);
    CHECK_EQ(on, 1);
    int fd[2];
    CHECK(pipe(fd) == 0);
    pid_t p = SPAWN({
        pid_t parent = getpid();
        SPAWN({
            while (getppid() == parent) pause_ms(1);
            pid_t me = getpid();
            CHECK(write(fd[1], &me, sizeof me) == sizeof me);
            _exit(5);
        });
    });
    CHECK_EQ(join(p), 0);
    pid_t orphan;
    CHECK_EQ(read(fd[0], &orphan, sizeof orphan), sizeof orphan);
    CHECK_EQ(join(orphan), 5);
}
CASE(pdeathsig) {
    int fd[2];
    CHECK(pipe(fd) == 0);
    pid_t p = SPAWN({
        SPAWN({
            CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
            CHECK(write(fd[1], "r", 1) == 1);
            pause();
        });
        char c;
        CHECK(read(fd[0], &c, 1) == 1);
    });
    CHECK_EQ(join(p), 0);
    close(fd[1]);
    char c;
    CHECK_EQ(read(fd[0], &c, 1), 0);  // the grandchild died, so no writer is left
}
CASE(setpgid_and_getpgid) {
    CHECK_EQ(getpgrp(), getpid());  // the harness made a group
    pid_t p = SPAWN({ CHECK_EQ(getpgid(0), getppid()); CHECK(setpgid(0, 0) == 0); CHECK_EQ(getpgrp(), getpid()); });
    CHECK_EQ(join(p), 0);
}
CASE(setpgid_errors) {
    CHECK_ERR(setpgid(0, -1), EINVAL);
    CHECK_ERR(setpgid(0, 999999), EPERM);
    CHECK_ERR(setpgid(999999, 0), ESRCH);
    CHECK_ERR(getpgid(999999), ESRCH);
}
CASE(setpgid_after_exec_fails) {
    int fd[2];
    CHECK(pipe2(fd, O_CLOEXEC) == 0);
    pid_t p = SPAWN({ execlp("sleep", "sleep", "5", NULL); _exit(1); });
    close(fd[1]);
    char c;
    CHECK_EQ(read(fd[0], &c, 1), 0);
    CHECK_ERR(setpgid(p, p), EACCES);
    kill(p, SIGKILL);
    join(p);
}
CASE(setsid_new_session) {
    pid_t p = SPAWN({
        pid_t s = setsid();
        CHECK_EQ(s, getpid());
        CHECK_EQ(getsid(0), getpid());
        CHECK_EQ(getpgrp(), getpid());
        CHECK_ERR(setsid(), EPERM);
        CHECK_ERR(setpgid(0, 0), EPERM);
    });
    CHECK_EQ(join(p), 0);
}
CASE(setsid_group_leader_fails) { CHECK_ERR(setsid(), EPERM); }
CASE(setpgid_other_session) {
    int fd[2];
    CHECK(pipe(fd) == 0);
    pid_t p = SPAWN({ setsid(); CHECK(write(fd[1], "x", 1) == 1); pause(); });
    char c;
    CHECK_EQ(read(fd[0], &c, 1), 1);
    CHECK_ERR(setpgid(p, getpgrp()), EPERM);
    CHECK_EQ(getsid(p), p);
    kill(p, SIGKILL);
    join(p);
}
CASE(orphaned_stopped_group_gets_hup) {
    int fd[2];
    char c;
    CHECK(pipe(fd) == 0);
    pid_t p = SPAWN({
        pid_t q = SPAWN({ setpgid(0, 0); close(fd[0]); raise(SIGSTOP); _exit(0); });
        int st;
        CHECK_EQ(waitpid(q, &st, WUNTRACED), q);
    });
    CHECK_EQ(join(p), 0);
    close(fd[1]);
    CHECK_EQ(read(fd[0], &c, 1), 0);  // SIGHUP then SIGCONT killed it
}
CASE(prctl_name) {
    char b[17] = "";
    CHECK(prctl(PR_SET_NAME, "a-very-long-thread-name") == 0);
    CHECK(prctl(PR_GET_NAME, b) == 0);
    CHECK(!strcmp(b, "a-very-long-thr"));
    CHECK(!strncmp(slurp("/proc/self/comm"), "a-very-long-thr", 15));
}
CASE(prctl_dumpable_and_nnp) {
    CHECK_EQ(prctl(PR_GET_DUMPABLE), 1);
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK_EQ(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), 1);
    CHECK_ERR(prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0), EINVAL);
}
CASE(prctl_unknown) { CHECK_ERR(prctl(9999, 0, 0, 0, 0), EINVAL); }
CASE(getpid_stable_and_gettid) {
    CHECK_EQ(getpid(), syscall(SYS_gettid));
    CHECK_EQ(getpid(), syscall(SYS_getpid));
}
CASE(pid_not_reused_at_once) {
    pid_t a = SPAWN({});
    join(a);
    pid_t b = SPAWN({});
    join(b);
    CHECK(a != b);
}
CASE(kill_errors) {
    CHECK_ERR(kill(999999, 0), ESRCH);
    CHECK_ERR(kill(getpid(), 65), EINVAL);
    CHECK_ERR(kill(getpid(), -1), EINVAL);
    CHECK_ERR(kill(-999999, SIGTERM), ESRCH);
}
CASE(kill_group) {
    pid_t p[3];
    for (int i = 0; i < 3; i++) {
        p[i] = SPAWN({ pause(); });
        CHECK(setpgid(p[i], p[0]) == 0);
    }
    CHECK(kill(-p[0], SIGTERM) == 0);
    for (int i = 0; i < 3; i++) CHECK_EQ(join(p[i]), 128 + SIGTERM);
}
CASE(kill_permission) {
    pid_t p = SPAWN({ pause(); });
    pid_t q = SPAWN({ t_drop_root(); CHECK_ERR(kill(p, SIGTERM), EPERM); });
    CHECK_EQ(join(q), 0);
    kill(p, SIGKILL);
    join(p);
}
CASE(getrusage_self) {
    struct rusage ru = {0};
    // A host that counts by ticks may find the program in none of a few of them.
    for (int k = 0; k < 50 && ru.ru_utime.tv_usec + ru.ru_utime.tv_sec * 1000000 <= 1000; k++) {
        for (volatile long i = 0; i < 50000000; i++) {}
        CHECK(getrusage(RUSAGE_SELF, &ru) == 0);
    }
    CHECK(ru.ru_utime.tv_usec + ru.ru_utime.tv_sec * 1000000 > 1000);
    CHECK(getrusage(RUSAGE_CHILDREN, &ru) == 0);
    CHECK(getrusage(RUSAGE_THREAD, &ru) == 0);
    CHECK_ERR(getrusage(77, &ru), EINVAL);
}
CASE(clone_exit_signal_zero) {
    pid_t p = syscall(SYS_clone, 0, 0, 0, 0, 0);
    CHECK(p >= 0);
    if (p == 0) _exit(3);
    int st;
    CHECK_ERR(waitpid(p, &st, 0), ECHILD);  // not a SIGCHLD child
    CHECK_EQ(waitpid(p, &st, __WCLONE), p);
    CHECK_EQ(WEXITSTATUS(st), 3);
}
CASE(clone_invalid_flags) {
    CHECK_ERR(syscall(SYS_clone, CLONE_THREAD | SIGCHLD, 0, 0, 0, 0), EINVAL);
    CHECK_ERR(syscall(SYS_clone, CLONE_SIGHAND | SIGCHLD, 0, 0, 0, 0), EINVAL);
    CHECK_ERR(syscall(SYS_clone, CLONE_FS | CLONE_NEWNS | SIGCHLD, 0, 0, 0, 0), EINVAL);
}
CASE(clone_parent_settid_child_settid) {
    pid_t ptid = 0, ctid = 0;
    pid_t p = syscall(SYS_clone, CLONE_PARENT_SETTID | CLONE_CHILD_SETTID | SIGCHLD, 0, &ptid, &ctid, 0);
    CHECK(p >= 0);
    if (p == 0) _exit(ctid == getpid() ? 0 : 1);
    CHECK_EQ(ptid, p);
    CHECK_EQ(ctid, 0);  // only the child's copy is written
    CHECK_EQ(join(p), 0);
}
struct clone3_args { uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size, cgroup; };
CASE(clone3_fork) {
    struct clone3_args a = {.exit_signal = SIGCHLD};
    pid_t p = syscall(SYS_clone3, &a, sizeof a);
    if (p < 0 && errno == ENOSYS) SKIP("no clone3");
    CHECK(p >= 0);
    if (p == 0) _exit(11);
    CHECK_EQ(join(p), 11);
}
CASE(clone3_bad_size) {
    struct clone3_args a = {.exit_signal = SIGCHLD};
    long r = syscall(SYS_clone3, &a, 8);
    if (r < 0 && errno == ENOSYS) SKIP("no clone3");
    CHECK(r == -1 && errno == EINVAL);
    CHECK_ERR(syscall(SYS_clone3, BAD, sizeof a), EFAULT);
}
CASE(nice_and_priority) {
    errno = 0;
    CHECK_EQ(getpriority(PRIO_PROCESS, 0), 0);
    CHECK(setpriority(PRIO_PROCESS, 0, 5) == 0);
    CHECK_EQ(getpriority(PRIO_PROCESS, 0), 5);
    CHECK_ERR(getpriority(PRIO_PROCESS, 999999), ESRCH);
}
CASE(fork_stress_200) {
    for (int i = 0; i < 200; i++) CHECK_EQ(join(SPAWN({ _exit(i & 127); })), i & 127);
}
