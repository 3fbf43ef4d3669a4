// wait4, waitid, pidfds, clone and exec with threads, process groups and sessions at their edges.
#define T_HELPER
#include "t.h"
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#ifndef P_PIDFD
#define P_PIDFD 3
#endif
static siginfo_t si;
static int wid(int type, id_t id, int opt) {
    memset(&si, 0xee, sizeof si);
    return waitid(type, id, &si, opt);
}
static int pidfd(pid_t p) { return syscall(SYS_pidfd_open, p, 0); }

CASE(nowait_leaves_the_child) {
    pid_t c = SPAWN(_exit(7));
    for (int i = 0; i < 3; i++) CHECK(wid(P_PID, c, WEXITED | WNOWAIT) == 0 && si.si_pid == c && si.si_status == 7 && si.si_code == CLD_EXITED);
    CHECK_EQ(join(c), 7);
    CHECK_ERR(wid(P_PID, c, WEXITED), ECHILD);
}
CASE(stopped_and_continued_once_each) {
    pid_t c = SPAWN(pause());
    kill(c, SIGSTOP);
    CHECK(wid(P_PID, c, WSTOPPED) == 0 && si.si_code == CLD_STOPPED && si.si_status == SIGSTOP);
    CHECK(wid(P_PID, c, WSTOPPED | WNOHANG) == 0 && si.si_pid == 0);
    kill(c, SIGCONT);
    CHECK(wid(P_PID, c, WCONTINUED) == 0 && si.si_code == CLD_CONTINUED && si.si_status == SIGCONT);
    CHECK(wid(P_PID, c, WCONTINUED | WNOHANG) == 0 && si.si_pid == 0);
    kill(c, SIGKILL), join(c);
}
CASE(stop_nowait_can_be_seen_again) {
    pid_t c = SPAWN(pause());
    kill(c, SIGSTOP);
    CHECK(wid(P_PID, c, WSTOPPED | WNOWAIT) == 0);
    int st;
    CHECK(waitpid(c, &st, WUNTRACED) == c && WIFSTOPPED(st) && WSTOPSIG(st) == SIGSTOP);
    kill(c, SIGKILL), join(c);
}
CASE(exit_is_not_reported_without_wexited) {
    pid_t c = SPAWN(_exit(0));
    msleep(40);
    CHECK_ERR(wid(P_PID, c, WSTOPPED | WNOHANG), ECHILD);  // a zombie will never stop
    join(c);
}
CASE(argument_errors) {
    pid_t c = SPAWN(pause());
    CHECK_ERR(wid(P_PID, c, 0), EINVAL);
    CHECK_ERR(wid(P_PID, c, WEXITED | 0x100), EINVAL);
    CHECK_ERR(wid(9, c, WEXITED), EINVAL);
    CHECK_ERR(wid(P_PID, 0, WEXITED), EINVAL);
    CHECK_ERR(wid(P_PIDFD, 0, WEXITED), EBADF);  // not a pidfd
    CHECK_ERR(wid(P_PIDFD, 999, WEXITED), EBADF);
    CHECK_ERR(waitpid(c, NULL, 0x100), EINVAL);
    CHECK_ERR(waitpid(INT_MIN, NULL, WNOHANG), ESRCH);
    kill(c, SIGKILL), join(c);
}
CASE(bad_status_pointer_loses_the_child) {
    pid_t c = SPAWN(_exit(3));
    CHECK_ERR(wait4(c, BAD, 0, NULL), EFAULT);
    CHECK_ERR(waitpid(c, NULL, 0), ECHILD);
}
CASE(by_group) {
    pid_t a = SPAWN(_exit(1)), b = SPAWN(setpgid(0, 0); msleep(60); _exit(2));
    setpgid(b, b);
    int st;
    CHECK(waitpid(-b, &st, 0) == b && WEXITSTATUS(st) == 2);
    CHECK_ERR(waitpid(-b, &st, 0), ECHILD);
    CHECK(waitpid(0, &st, 0) == a);
    CHECK_ERR(wid(P_PGID, 999999, WEXITED), ECHILD);
}
CASE(by_any_in_order_of_death) {
    pid_t a = SPAWN(msleep(120); _exit(1)), b = SPAWN(_exit(2));
    int st;
    CHECK(wait(&st) == b && wait(&st) == a);
    CHECK_ERR(wait(&st), ECHILD);
}
CASE(usage_of_the_child) {
    pid_t c = SPAWN(while (clock() < 60000) {});
    struct rusage u;
    CHECK(wait4(c, NULL, 0, &u) == c);
    CHECK(u.ru_utime.tv_sec * 1000000 + u.ru_utime.tv_usec + u.ru_stime.tv_usec >= 20000);
    struct rusage all;
    CHECK(getrusage(RUSAGE_CHILDREN, &all) == 0);
    CHECK(all.ru_utime.tv_usec >= u.ru_utime.tv_usec);
    CHECK_ERR(getrusage(5, &all), EINVAL);
}
CASE(clone_children_need_clone_flag) {
    pid_t c = syscall(SYS_clone, 0, 0, 0, 0, 0);  // no exit signal: a "clone" child
    if (c == 0) _exit(5);
    CHECK_ERR(waitpid(c, NULL, 0), ECHILD);
    int st;
    CHECK(waitpid(c, &st, __WCLONE) == c && WEXITSTATUS(st) == 5);
    signal(SIGUSR2, SIG_IGN);
    pid_t d = syscall(SYS_clone, SIGUSR2, 0, 0, 0, 0);
    if (d == 0) _exit(6);
    CHECK(waitpid(d, &st, __WALL) == d && WEXITSTATUS(st) == 6);
}
static void *wait_in_thread(void *a) {
    int st = 0;
    pid_t p = waitpid(*(pid_t *)a, &st, 0);
    return (void *)(long)(p == *(pid_t *)a ? WEXITSTATUS(st) : -1);
}
static void *nowait_in_thread(void *a) { return (void *)(long)(waitpid(*(pid_t *)a, NULL, __WNOTHREAD) == -1 ? errno : 0); }
CASE(threads_wait_for_each_others_children) {
    pid_t c = SPAWN(msleep(30); _exit(4));
    pthread_t t;
    void *r;
    pthread_create(&t, NULL, nowait_in_thread, &c);
    pthread_join(t, &r);
    CHECK_EQ((long)r, ECHILD);
    pthread_create(&t, NULL, wait_in_thread, &c);
    pthread_join(t, &r);
    CHECK_EQ((long)r, 4);
}
CASE(subreaper_takes_grandchildren) {
    CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0);
    int p[2];
    CHECK(pipe(p) == 0);
    pid_t c = SPAWN(pid_t g = fork(); if (!g) { msleep(40); _exit(getppid() == getpgrp() ? 8 : 9); } write(p[1], &g, sizeof g));
    pid_t g;
    CHECK(read(p[0], &g, sizeof g) == sizeof g);
    CHECK_EQ(join(c), 0);
    int st;
    CHECK(waitpid(g, &st, 0) == g && WEXITSTATUS(st) == 8);
}
CASE(pidfd_open_and_errors) {
    pid_t c = SPAWN(pause());
    int f = CHECK_OK(pidfd(c));
    CHECK_EQ(fcntl(f, F_GETFD), FD_CLOEXEC);
    CHECK_ERR(syscall(SYS_pidfd_open, c, 1), EINVAL);
    CHECK_ERR(pidfd(0), EINVAL);
    CHECK_ERR(pidfd(-1), EINVAL);
    CHECK_ERR(pidfd(999999), ESRCH);
    char b[8];
    CHECK_ERR(read(f, b, 8), EINVAL);
    CHECK(syscall(SYS_pidfd_send_signal, f, SIGKILL, NULL, 0) == 0);
    struct pollfd p = {f, POLLIN, 0};
    CHECK(poll(&p, 1, 30000) == 1 && p.revents & POLLIN);
    CHECK(wid(P_PIDFD, f, WEXITED) == 0 && si.si_pid == c && si.si_code == CLD_KILLED);
    CHECK_ERR(syscall(SYS_pidfd_send_signal, f, 0, NULL, 0), ESRCH);
    CHECK_ERR(wid(P_PIDFD, f, WEXITED), ECHILD);
}
CASE(pidfd_nonblocking_wait) {
    pid_t c = SPAWN(pause());
    int f = syscall(SYS_pidfd_open, c, O_NONBLOCK);
    CHECK(f >= 0);
    CHECK_ERR(wid(P_PIDFD, f, WEXITED), EAGAIN);
    kill(c, SIGKILL);
    EVENTUALLY(wid(P_PIDFD, f, WEXITED) == 0);
}
CASE(pidfd_getfd_copies) {
    int p[2], q[2];
    CHECK(pipe(p) == 0 && pipe(q) == 0);
    pid_t c = SPAWN(int n = open("/dev/null", O_RDWR); dup2(p[1], 100); (void)n; write(q[1], "x", 1); pause());
    char b[4];
    CHECK(read(q[0], b, 1) == 1);
    int f = pidfd(c), mine = CHECK_OK(syscall(SYS_pidfd_getfd, f, 100, 0));
    CHECK_EQ(fcntl(mine, F_GETFD), FD_CLOEXEC);
    CHECK(write(mine, "y", 1) == 1 && read(p[0], b, 1) == 1);
    CHECK_ERR(syscall(SYS_pidfd_getfd, f, 99, 0), EBADF);
    CHECK_ERR(syscall(SYS_pidfd_getfd, f, 100, 1), EINVAL);
    CHECK_ERR(syscall(SYS_pidfd_getfd, mine, 100, 0), EBADF);
    kill(c, SIGKILL), join(c);
    CHECK_ERR(syscall(SYS_pidfd_getfd, f, 100, 0), ESRCH);
}
static int exec_pipe[2];
static void *exec_now(void *a) {
    execl(t_self, t_self, "@tid", NULL);
    return a;
}
static void *spin(void *a) {
    for (;;) pause();
    return a;
}
CASE(exec_in_thread_with_blocked_others) {
    CHECK(pipe(exec_pipe) == 0);
    pid_t c = SPAWN(pthread_t t; for (int i = 0; i < 5; i++) pthread_create(&t, NULL, spin, NULL); pthread_create(&t, NULL, exec_now, NULL); pause());
    CHECK_EQ(join(c), 42);  // the program runs as the leader, alone
}
CASE(leader_exits_first) {
    pid_t c = SPAWN(pthread_t t; pthread_create(&t, NULL, spin, NULL); syscall(SYS_exit, 3));
    msleep(60);
    CHECK_EQ(waitpid(c, NULL, WNOHANG), 0);  // not while a thread lives
    CHECK(kill(c, SIGTERM) == 0);
    CHECK_EQ(join(c), 128 + SIGTERM);
}
CASE(fork_in_thread_copies_only_that_thread) {
    pthread_t t;
    for (int i = 0; i < 3; i++) pthread_create(&t, NULL, spin, NULL);
    pid_t c = SPAWN(char *s = strstr(slurp("/proc/self/status"), "Threads:"); _exit(atoi(s + 8)));
    CHECK_EQ(join(c), 1);
}
static int shared;
static int set_shared(void *a) {
    shared = 5;
    close(*(int *)a);
    return chdir("/");
}
CASE(clone_sharing_flags) {
    scratch();
    static char stack[65536] __attribute__((aligned(16)));
    int fd = open("/dev/null", O_RDONLY);
    pid_t c = clone(set_shared, stack + sizeof stack, CLONE_VM | CLONE_FILES | CLONE_FS | SIGCHLD, &fd);
    CHECK_EQ(join(c), 0);
    char b[PATH_MAX];
    CHECK(shared == 5 && fcntl(fd, F_GETFD) == -1 && !strcmp(getcwd(b, sizeof b), "/"));
}
CASE(clone_parent_makes_a_sibling) {
    int p[2];
    CHECK(pipe(p) == 0);
    pid_t c = SPAWN(pid_t s = syscall(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0); if (!s) { msleep(40); _exit(6); } write(p[1], &s, sizeof s));
    pid_t s;
    CHECK(read(p[0], &s, sizeof s) == sizeof s);
    CHECK_EQ(join(c), 0);
    CHECK_EQ(join(s), 6);
}
CASE(session_and_group_rules) {
    pid_t c = SPAWN(setsid(); pid_t g = fork(); if (!g) { msleep(200); _exit(0); }
                    _exit(setpgid(g, getpgrp()) == 0 && setpgid(0, 0) == -1 && errno == EPERM && setpgid(g, 1 << 29) == -1 && errno == EPERM ? 3 : 4));
    CHECK_EQ(join(c), 3);
    CHECK_ERR(setpgid(getpid(), -1), EINVAL);
    CHECK_ERR(setpgid(999999, 0), ESRCH);
    CHECK_ERR(setpgid(getppid(), 0), ESRCH);
}
CASE(parent_death_signal_follows_thread_exit) {
    pid_t c = SPAWN(pid_t p = fork(); if (!p) { prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0); pause(); } msleep(50); _exit(p % 100 + 1));
    (void)join(c);
    int v = 0;
    CHECK(prctl(PR_SET_PDEATHSIG, 65, 0, 0, 0) == -1 && errno == EINVAL);
    CHECK(prctl(PR_SET_PDEATHSIG, 9, 0, 0, 0) == 0 && prctl(PR_GET_PDEATHSIG, &v, 0, 0, 0) == 0 && v == 9);
    CHECK_EQ(join(SPAWN(int w = 1; prctl(PR_GET_PDEATHSIG, &w, 0, 0, 0); _exit(w))), 0);  // not inherited
}
int t_helper(int argc, char **argv) {
    (void)argc, (void)argv;
    return getpid() == gettid() ? 42 : 41;
}

static volatile int ends;
static void an_end(int s) { (void)s; ends++; }
CASE(a_wait_that_finds_a_child_finds_its_signal) {
    struct sigaction a = {.sa_handler = an_end};
    CHECK(sigaction(SIGCHLD, &a, NULL) == 0);
    for (int i = 1; i <= 1000; i++) {
        pid_t p = fork(), found;
        if (p == 0) _exit(0);
        while ((found = waitpid(p, NULL, WNOHANG)) == 0) {}
        CHECK_EQ(found, p);
        CHECK_EQ(ends, i);
    }
}
