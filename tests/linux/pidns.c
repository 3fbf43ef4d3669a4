// PID namespaces: pid_namespaces(7), numbers in nested ones, the first process of one and its end.
#include "ns.h"
#include <sched.h>

static pid_t in_new(void) { return raw_clone(CLONE_NEWPID); }
// Runs the statements as the first process of a new PID namespace. Value: its number here.
#define INIT(...)                                                                  \
    ({ needs_root(); pid_t p_ = in_new(); if (p_ < 0 && errno == EPERM) SKIP("no PID namespaces here"); CHECK(p_ >= 0); \
       if (p_ == 0) { __VA_ARGS__; _exit(0); } p_; })
#define IN_INIT(...) CHECK_EQ(join(INIT(__VA_ARGS__)), 0)
static void tell(int fd) { CHECK_EQ(write(fd, "", 1), 1); }
static void hear(int fd) {
    char byte;
    CHECK_EQ(read(fd, &byte, 1), 1);
}
static int status_numbers(pid_t p, const char *what, int *out, int most) {
    char path[64], key[32];
    snprintf(path, sizeof path, "/proc/%d/status", p);
    snprintf(key, sizeof key, "\n%s:", what);
    const char *at = strstr(get(path), key);
    CHECK(at);
    at += strlen(key);
    int n = 0, used;
    while (n < most && *at != '\n' && sscanf(at, " %d%n", &out[n], &used) == 1) n++, at += used;
    return n;
}

CASE(the_first_process_is_one) {
    IN_INIT({
        CHECK_EQ(getpid(), 1);
        CHECK_EQ(gettid(), 1);
        CHECK_EQ(syscall(SYS_set_tid_address, NULL), 1);
    });
}
CASE(its_parent_is_none_it_sees) { IN_INIT(CHECK_EQ(getppid(), 0)); }
CASE(its_group_and_session_are_out_of_sight) {
    IN_INIT({
        CHECK_EQ(getpgrp(), 0);
        CHECK_EQ(getpgid(0), 0);
        CHECK_EQ(getsid(0), 0);
    });
}
CASE(it_may_make_a_session) {
    IN_INIT({
        CHECK_EQ(setsid(), 1);
        CHECK_EQ(getsid(0), 1);
        CHECK_EQ(getpgrp(), 1);
    });
}
CASE(children_are_counted_from_two) {
    IN_INIT({
        pid_t a = SPAWN(CHECK_EQ(getpid(), 2); CHECK_EQ(getppid(), 1));
        CHECK_EQ(a, 2);
        pid_t b = SPAWN(CHECK_EQ(getpid(), 3));
        CHECK_EQ(b, 3);
        CHECK_EQ(waitpid(2, NULL, 0), 2);
        CHECK_EQ(wait(NULL), 3);
    });
}
CASE(the_parent_sees_another_number) {
    pid_t p = INIT(CHECK_EQ(getpid(), 1));
    CHECK(p > 1);
    CHECK_EQ(join(p), 0);
}
CASE(threads_have_numbers_there) {
    IN_INIT({
        pthread_t t;
        CHECK(pthread_create(&t, NULL, ns_sleeper, NULL) == 0);
        CHECK_EQ(syscall(SYS_tgkill, 1, 2, 0), 0);
        CHECK_ERR(syscall(SYS_tgkill, 1, 3, 0), ESRCH);
        CHECK_ERR(syscall(SYS_tgkill, 2, 2, 0), ESRCH);
    });
}
CASE(nobody_outside_can_be_named) {
    pid_t me = getpid();
    IN_INIT({
        CHECK(me > 50 || me > 1);
        CHECK_ERR(kill(me + 20000, 0), ESRCH);
        CHECK_ERR(getpgid(9), ESRCH);
        CHECK_ERR(getsid(9), ESRCH);
        CHECK_ERR(syscall(SYS_pidfd_open, 9, 0), ESRCH);
        CHECK_ERR(sched_getparam(9, &(struct sched_param){0}), ESRCH);
        CHECK_ERR(syscall(SYS_prlimit64, 9, 7, NULL, NULL), ESRCH);
    });
}
CASE(wait_for_a_number_nobody_has) { IN_INIT(CHECK_ERR(waitpid(77, NULL, 0), ECHILD)); }
CASE(kill_all_spares_oneself_and_init) {
    IN_INIT({
        pid_t a = SPAWN(pause());
        pid_t b = SPAWN(CHECK_OK(kill(-1, SIGKILL)));
        CHECK_EQ(join(a), 128 + SIGKILL);
        CHECK_EQ(join(b), 0);
    });
}
CASE(kill_all_stays_inside) {
    pid_t outside = SPAWN(pause());
    IN_INIT(CHECK_ERR(kill(-1, SIGKILL), ESRCH));
    CHECK_OK(kill(outside, SIGKILL));
    CHECK_EQ(join(outside), 128 + SIGKILL);
}
CASE(init_is_not_killed_from_inside) {
    IN_INIT({
        CHECK_OK(kill(1, SIGKILL));
        CHECK_OK(kill(1, SIGTERM));
        CHECK_OK(kill(1, SIGSTOP));
        CHECK_EQ(join(SPAWN(CHECK_OK(kill(1, SIGKILL)))), 0);
    });
}
static volatile sig_atomic_t seen;
static void note(int s) { seen = s; }
CASE(init_gets_signals_it_handles) {
    IN_INIT({
        signal(SIGTERM, note);
        CHECK_OK(kill(1, SIGTERM));
        CHECK_EQ(seen, SIGTERM);
    });
}
CASE(init_is_killed_from_outside) {
    pid_t p = INIT(pause());
    CHECK_OK(kill(p, SIGKILL));
    CHECK_EQ(join(p), 128 + SIGKILL);
}
CASE(init_is_stopped_from_outside) {
    pid_t p = INIT(pause());
    int st;
    CHECK_OK(kill(p, SIGSTOP));
    CHECK_EQ(waitpid(p, &st, WUNTRACED), p);
    CHECK(WIFSTOPPED(st));
    CHECK_OK(kill(p, SIGKILL));
    CHECK_EQ(join(p), 128 + SIGKILL);
}
CASE(other_signals_from_outside_do_nothing_to_init) {
    int done[2];
    CHECK_OK(pipe(done));
    pid_t p = INIT(hear(done[0]));
    CHECK_OK(kill(p, SIGTERM));
    CHECK_OK(kill(p, SIGINT));
    tell(done[1]);
    CHECK_EQ(join(p), 0);
}
CASE(a_fault_ends_init) {
    pid_t p = INIT(*(volatile int *)8 = 1);
    CHECK_EQ(join(p), 128 + SIGSEGV);
}
CASE(with_init_all_end) {
    int s[2], there[2];
    char byte;
    CHECK_OK(pipe(s));
    CHECK_OK(pipe(there));
    pid_t p = INIT({
        close(s[0]);
        for (int i = 0; i < 5; i++) SPAWN(SPAWN(tell(there[1]); pause()); pause());
        // Nobody is made any more once it ends.
        for (int i = 0; i < 5; i++) hear(there[0]);
        _exit(3);
    });
    close(s[1]);
    CHECK_EQ(join(p), 3);
    // Nobody has the other end any more.
    CHECK_EQ(read(s[0], &byte, 1), 0);
}
CASE(with_init_those_below_end) {
    int s[2], ready[2];
    char byte;
    CHECK_OK(pipe(s));
    CHECK_OK(pipe(ready));
    pid_t p = INIT({
        close(s[0]);
        pid_t q = in_new();
        CHECK(q >= 0);
        if (q == 0) tell(ready[1]), pause(), _exit(0);
        hear(ready[0]);
    });
    close(s[1]);
    CHECK_EQ(join(p), 0);
    CHECK_EQ(read(s[0], &byte, 1), 0);
}
CASE(the_wait_for_init_ends_after_all_others) {
    int s[2];
    char byte;
    CHECK_OK(pipe2(s, O_NONBLOCK));
    pid_t p = INIT({
        close(s[0]);
        for (int i = 0; i < 20; i++) SPAWN(pause());
    });
    close(s[1]);
    CHECK_EQ(join(p), 0);
    CHECK_EQ(read(s[0], &byte, 1), 0);
}
CASE(orphans_go_to_init) {
    IN_INIT({
        int s[2];
        CHECK_OK(pipe(s));
        pid_t a = SPAWN(SPAWN({
            close(s[1]);
            char byte;
            CHECK_EQ(read(s[0], &byte, 1), 0);
            while (getppid() != 1) msleep(1);
            _exit(9);
        }));
        close(s[1]);
        CHECK_EQ(join(a), 0);
        int st;
        CHECK_EQ(waitpid(3, &st, 0), 3);
        CHECK_EQ(WEXITSTATUS(st), 9);
    });
}
CASE(orphans_stay_inside_a_subreaper_outside) {
    CHECK_OK(prctl(PR_SET_CHILD_SUBREAPER, 1));
    IN_INIT({
        CHECK_EQ(join(SPAWN(SPAWN(while (getppid() == 2) msleep(1); _exit(getppid() == 1 ? 4 : 5)))), 0);
        int st;
        CHECK_EQ(waitpid(3, &st, 0), 3);
        CHECK_EQ(WEXITSTATUS(st), 4);
    });
}
CASE(a_subreaper_inside_inherits) {
    IN_INIT({
        CHECK_EQ(join(SPAWN({
            CHECK_OK(prctl(PR_SET_CHILD_SUBREAPER, 1));
            CHECK_EQ(join(SPAWN(SPAWN(while (getppid() == 3) msleep(1); _exit(getppid() == 2 ? 4 : 5)))), 0);
            int st;
            CHECK_EQ(waitpid(4, &st, 0), 4);
            CHECK_EQ(WEXITSTATUS(st), 4);
        })), 0);
    });
}
CASE(no_siblings_of_init) {
    IN_INIT(CHECK_ERR(raw_clone(CLONE_PARENT), EINVAL));
}
CASE(unshare_is_for_children) {
    needs_root();
    pid_t me = getpid();
    if (unshare(CLONE_NEWPID)) SKIP("no PID namespaces here");
    CHECK_EQ(getpid(), me);
    char text[64];
    CHECK_ERR(readlink("/proc/self/ns/pid_for_children", text, 64), ENOENT);
    CHECK_EQ(join(SPAWN(CHECK_EQ(getpid(), 1); CHECK(!strcmp(ns_link("pid"), ns_link("pid_for_children"))))), 0);
}
CASE(after_its_first_process_there_are_no_others) {
    needs_root();
    CHECK_OK(unshare(CLONE_NEWPID));
    CHECK_EQ(join(SPAWN(CHECK_EQ(getpid(), 1))), 0);
    CHECK_ERR(fork(), ENOMEM);
    CHECK_ERR(raw_clone(0), ENOMEM);
}
CASE(later_children_join_the_first) {
    needs_root();
    CHECK_OK(unshare(CLONE_NEWPID));
    pid_t a = SPAWN(pause());
    pid_t b = SPAWN(CHECK_EQ(getpid(), 2); CHECK_EQ(getppid(), 0));
    CHECK_EQ(join(b), 0);
    CHECK_OK(kill(a, SIGKILL));
    CHECK_EQ(join(a), 128 + SIGKILL);
}
CASE(unshare_once) {
    needs_root();
    CHECK_OK(unshare(CLONE_NEWPID));
    CHECK_ERR(unshare(CLONE_NEWPID), EINVAL);
    CHECK_ERR(raw_clone(CLONE_NEWPID), EINVAL);
}
CASE(no_threads_after_unshare) {
    needs_root();
    CHECK_OK(unshare(CLONE_NEWPID));
    pthread_t t;
    CHECK_EQ(pthread_create(&t, NULL, ns_sleeper, NULL), EINVAL);
}
CASE(not_for_a_thread) { CHECK_ERR(raw_clone(CLONE_NEWPID | CLONE_THREAD | CLONE_SIGHAND | CLONE_VM), EINVAL); }
CASE(needs_the_capability) {
    needs_root();
    CHECK_OK(setresuid(1000, 1000, 1000));
    CHECK_ERR(unshare(CLONE_NEWPID), EPERM);
    CHECK_ERR(raw_clone(CLONE_NEWPID), EPERM);
}
CASE(depth_is_bounded) {
    needs_root();
    int s[2];
    CHECK_OK(pipe(s));
    pid_t p = SPAWN({
        for (int n = 0;; n++) {
            pid_t q = in_new();
            if (q < 0) {
                CHECK_EQ(write(s[1], &n, sizeof n), sizeof n);
                int e = errno;
                CHECK_EQ(write(s[1], &e, sizeof e), sizeof e);
                _exit(0);
            }
            if (q > 0) _exit(join(q));
        }
    });
    int n, e;
    CHECK_EQ(read(s[0], &n, sizeof n), sizeof n);
    CHECK_EQ(read(s[0], &e, sizeof e), sizeof e);
    CHECK_EQ(e, ENOSPC);
    CHECK(n <= 32 && n > 24);
    CHECK_EQ(join(p), 0);
}
CASE(status_shows_all_numbers_below) {
    int s[2];
    CHECK_OK(pipe(s));
    pid_t p = INIT({
        SPAWN(tell(s[1]); pause());
        pause();
    });
    hear(s[0]);
    int out[9];
    // Natively the suite may be in a namespace itself.
    int n = status_numbers(p, "NSpid", out, 9);
    CHECK(n >= 2);
    CHECK(out[n - 2] == p && out[n - 1] == 1);
    n = status_numbers(p, "NStgid", out, 9);
    CHECK(out[n - 2] == p && out[n - 1] == 1);
    n = status_numbers(p, "NSpgid", out, 9);
    CHECK_EQ(out[n - 1], 0);
    CHECK_OK(kill(p, SIGKILL));
    CHECK_EQ(join(p), 128 + SIGKILL);
}
CASE(old_proc_shows_the_numbers_outside) {
    needs_root();
    IN_INIT({
        char path[64];
        long n = CHECK_OK(readlink("/proc/self", path, 63));
        path[n] = 0;
        CHECK(atoi(path) > 1);
    });
}
CASE(set_tid_in_both) {
    needs_root();
    CHECK_OK(unshare(CLONE_NEWPID));
    pid_t tids[2] = {1, 31111};
    long p = clone3_tids(0, tids, 2);
    if (p < 0 && errno == EEXIST) SKIP("somebody has the number");
    CHECK(p >= 0);
    if (p == 0) {
        CHECK_EQ(getpid(), 1);
        pid_t t = 42;
        long q = clone3_tids(0, &t, 1);
        CHECK(q >= 0);
        if (q == 0) _exit(getpid() == 42 ? 0 : 1);
        CHECK_EQ(q, 42);
        CHECK_EQ(join(q), 0);
        _exit(0);
    }
    CHECK_EQ(p, 31111);
    CHECK_EQ(join(p), 0);
}
CASE(set_tid_of_too_many) {
    needs_root();
    pid_t tids[33] = {1, 2, 3};
    CHECK_ERR(clone3_tids(0, tids, 33), EINVAL);
    IN_INIT({
        pid_t many[32];
        for (int i = 0; i < 32; i++) many[i] = 31000 + i;
        CHECK_ERR(clone3_tids(0, many, 32), EINVAL);
    });
}
CASE(set_tid_of_the_first_is_one) {
    needs_root();
    pid_t t = 5;
    CHECK_ERR(clone3_tids(CLONE_NEWPID, &t, 1), EINVAL);
    t = 1;
    long p = clone3_tids(CLONE_NEWPID, &t, 1);
    CHECK(p >= 0);
    if (p == 0) _exit(getpid() == 1 ? 0 : 1);
    CHECK_EQ(join(p), 0);
}
CASE(set_tid_that_is_taken) {
    IN_INIT({
        pid_t t = 1;
        CHECK_ERR(clone3_tids(0, &t, 1), EEXIST);
    });
}
CASE(set_tid_needs_the_capability_in_each) {
    needs_root();
    CHECK_EQ(join(SPAWN({
        CHECK_OK(setresuid(1000, 1000, 1000));
        CHECK_OK(unshare(CLONE_NEWUSER | CLONE_NEWPID));
        pid_t tids[2] = {1, 31222};
        CHECK_ERR(clone3_tids(0, tids, 2), EPERM);
        long p = clone3_tids(0, tids, 1);
        CHECK(p >= 0);
        if (p == 0) _exit(getpid() == 1 ? 0 : 1);
        CHECK_EQ(join(p), 0);
    })), 0);
}
CASE(clone_stores_the_numbers_of_each) {
    needs_root();
    int *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    long p = syscall(SYS_clone, CLONE_NEWPID | CLONE_PARENT_SETTID | CLONE_CHILD_SETTID | SIGCHLD, 0, &shared[0], &shared[1], 0);
    CHECK(p >= 0);
    if (p == 0) _exit(0);
    CHECK_EQ(join(p), 0);
    CHECK_EQ(shared[0], p);
    CHECK_EQ(shared[1], 1);
}
CASE(signals_from_outside_come_from_nobody) {
    int ready[2];
    CHECK_OK(pipe(ready));
    pid_t p = INIT({
        sigset_t set;
        siginfo_t i;
        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        CHECK_OK(sigprocmask(SIG_BLOCK, &set, NULL));
        tell(ready[1]);
        CHECK_EQ(sigwaitinfo(&set, &i), SIGUSR1);
        CHECK_EQ(i.si_pid, 0);
        CHECK_OK(kill(getpid(), SIGUSR1));
        CHECK_EQ(sigwaitinfo(&set, &i), SIGUSR1);
        CHECK_EQ(i.si_pid, 1);
    });
    hear(ready[0]);
    CHECK_OK(kill(p, SIGUSR1));
    CHECK_EQ(join(p), 0);
}
CASE(the_end_of_a_child_tells_its_number_there) {
    IN_INIT({
        sigset_t set;
        siginfo_t i;
        sigemptyset(&set);
        sigaddset(&set, SIGCHLD);
        CHECK_OK(sigprocmask(SIG_BLOCK, &set, NULL));
        SPAWN();
        CHECK_EQ(sigwaitinfo(&set, &i), SIGCHLD);
        CHECK_EQ(i.si_pid, 2);
        CHECK_OK(waitid(P_ALL, 0, &i, WEXITED));
        CHECK_EQ(i.si_pid, 2);
    });
}
CASE(peers_are_told_by_the_readers_numbers) {
    needs_root();
    int s[2];
    struct ucred c;
    socklen_t n = sizeof c;
    CHECK_OK(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
    IN_INIT({
        CHECK_OK(getsockopt(s[0], SOL_SOCKET, SO_PEERCRED, &c, &n));
        CHECK_EQ(c.pid, 0);
        int t[2];
        CHECK_OK(socketpair(AF_UNIX, SOCK_STREAM, 0, t));
        CHECK_OK(getsockopt(t[0], SOL_SOCKET, SO_PEERCRED, &c, &n));
        CHECK_EQ(c.pid, 1);
    });
}
CASE(messages_tell_the_receivers_numbers) {
    needs_root();
    int s[2], on = 1;
    CHECK_OK(socketpair(AF_UNIX, SOCK_DGRAM, 0, s));
    CHECK_OK(setsockopt(s[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof on));
    pid_t p = INIT(CHECK_EQ(send(s[1], "x", 1, 0), 1));
    char data, control[CMSG_SPACE(sizeof(struct ucred))];
    struct iovec v = {&data, 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    CHECK_EQ(recvmsg(s[0], &m, 0), 1);
    CHECK_EQ(((struct ucred *)CMSG_DATA(CMSG_FIRSTHDR(&m)))->pid, p);
    CHECK_EQ(join(p), 0);
}
CASE(owners_of_files_by_the_readers_numbers) {
    needs_root();
    int s[2];
    CHECK_OK(pipe(s));
    CHECK_OK(fcntl(s[0], F_SETOWN, getpid()));
    IN_INIT({
        CHECK_EQ(fcntl(s[0], F_GETOWN), 0);
        CHECK_OK(fcntl(s[1], F_SETOWN, 1));
        CHECK_EQ(fcntl(s[1], F_GETOWN), 1);
        CHECK_ERR(fcntl(s[1], F_SETOWN, 7), ESRCH);
    });
}
CASE(locks_tell_the_readers_numbers) {
    needs_root();
    int fd = CHECK_OK(open(".", O_TMPFILE | O_RDWR, 0600));
    struct flock l = {.l_type = F_WRLCK};
    CHECK_OK(fcntl(fd, F_SETLK, &l));
    IN_INIT({
        struct flock g = {.l_type = F_WRLCK};
        CHECK_OK(fcntl(fd, F_GETLK, &g));
        CHECK_EQ(g.l_type, F_WRLCK);
        CHECK(g.l_pid <= 0);
    });
}
CASE(groups_by_their_numbers_there) {
    IN_INIT({
        pid_t a = SPAWN(pause());
        CHECK_OK(setpgid(a, a));
        CHECK_EQ(getpgid(a), 2);
        pid_t b = SPAWN(pause());
        CHECK_OK(setpgid(b, a));
        CHECK_EQ(getpgid(b), 2);
        CHECK_ERR(setpgid(b, 55), EPERM);
        CHECK_OK(kill(-2, SIGKILL));
        CHECK_EQ(waitpid(-2, NULL, 0) > 0, 1);
        CHECK_EQ(wait(NULL) > 0, 1);
    });
}
CASE(a_group_outlives_its_first_process) {
    IN_INIT({
        int s[2];
        CHECK_OK(pipe(s));
        pid_t a = SPAWN(CHECK_OK(setpgid(0, 0)); SPAWN(tell(s[1]); pause()); hear(s[0]));
        CHECK_EQ(join(a), 0);
        CHECK_EQ(getpgid(3), 2);
        CHECK_OK(kill(-2, SIGKILL));
        CHECK_EQ(waitpid(3, NULL, 0), 3);
    });
}
CASE(numbers_are_used_again) {
    IN_INIT({
        pid_t t = 9;
        for (int i = 0; i < 3; i++) {
            long p = clone3_tids(0, &t, 1);
            CHECK(p >= 0);
            if (p == 0) _exit(0);
            CHECK_EQ(join(p), 0);
        }
    });
}
CASE(pidfds_tell_their_numbers) {
    int fd;
    needs_root();
    struct ns_clone_args a = {.flags = CLONE_NEWPID | CLONE_PIDFD, .pidfd = (uintptr_t)&fd, .exit_signal = SIGCHLD};
    long p = syscall(SYS_clone3, &a, sizeof a);
    CHECK(p >= 0);
    if (p == 0) pause(), _exit(0);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    int one = 0, two = 0;
    CHECK_EQ(sscanf(strstr(get(path), "\nNSpid:"), "\nNSpid: %d %d", &one, &two), 2);
    CHECK(one == p && two == 1);
    CHECK_OK(syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0));
    siginfo_t i;
    CHECK_OK(waitid(3, fd, &i, WEXITED));
    CHECK_EQ(i.si_pid, p);
}
CASE(pidfds_of_those_above_signal_nobody) {
    needs_root();
    int fd = CHECK_OK(syscall(SYS_pidfd_open, getpid(), 0));
    IN_INIT(CHECK_ERR(syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0), EINVAL));
}
CASE(setns_is_for_children) {
    int ready[2];
    CHECK_OK(pipe(ready));
    pid_t p = INIT(tell(ready[1]); pause());
    hear(ready[0]);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/ns/pid", p);
    int fd = CHECK_OK(open(path, O_RDONLY));
    pid_t me = getpid();
    CHECK_OK(setns(fd, CLONE_NEWPID));
    CHECK_EQ(getpid(), me);
    CHECK_EQ(join(SPAWN(CHECK_EQ(getpid(), 2); CHECK_EQ(getppid(), 0); CHECK_OK(kill(1, 0)))), 0);
    CHECK_OK(kill(p, SIGKILL));
    CHECK_EQ(join(p), 128 + SIGKILL);
    CHECK_ERR(fork(), ENOMEM);
}
CASE(setns_back_up) {
    needs_root();
    int fd = ns_fd("pid");
    CHECK_OK(setns(fd, CLONE_NEWPID));
    IN_INIT(CHECK_ERR(setns(fd, CLONE_NEWPID), EINVAL));
    CHECK_OK(unshare(CLONE_NEWPID));
    CHECK_OK(setns(fd, CLONE_NEWPID));
    CHECK_EQ(join(SPAWN(CHECK(getpid() > 2))), 0);
}
CASE(parent_of_one) {
    needs_root();
    int mine = ns_fd("pid");
    int ready[2];
    CHECK_OK(pipe(ready));
    pid_t p = INIT({
        CHECK_ERR(ioctl(ns_fd("pid"), GET_PARENT), EPERM);
        tell(ready[1]);
        pause();
    });
    hear(ready[0]);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/ns/pid", p);
    int fd = CHECK_OK(open(path, O_RDONLY));
    CHECK_EQ(ns_ino(CHECK_OK(ioctl(fd, GET_PARENT))), ns_ino(mine));
    CHECK_EQ(ioctl(fd, GET_NSTYPE), CLONE_NEWPID);
    CHECK_OK(kill(p, SIGKILL));
}
CASE(exec_keeps_the_number) {
    IN_INIT({
        execl("/bin/sh", "sh", "-c", "[ $$ = 1 ]", NULL);
        _exit(9);
    });
}
CASE(exec_of_another_thread_keeps_the_number) {
    IN_INIT({
        void *run(void *arg) {
            (void)arg;
            execl("/bin/sh", "sh", "-c", "[ $$ = 1 ]", NULL);
            _exit(9);
        }
        pthread_t t;
        CHECK(pthread_create(&t, NULL, run, NULL) == 0);
        pause();
    });
}
CASE(vfork_in_it) {
    IN_INIT({
        pid_t p = vfork();
        if (p == 0) _exit(7);
        CHECK_EQ(p, 2);
        CHECK_EQ(join(p), 7);
    });
}
CASE(robust_and_pi_locks_hold_the_number_there) {
    IN_INIT({
        int word = 0;
        CHECK_OK(syscall(SYS_futex, &word, 6 /* FUTEX_LOCK_PI */, 0, NULL, NULL, 0));
        CHECK_EQ(word & 0x3fffffff, 1);
        CHECK_OK(syscall(SYS_futex, &word, 7 /* FUTEX_UNLOCK_PI */, 0, NULL, NULL, 0));
        CHECK_EQ(word, 0);
    });
}
CASE(tracing_in_it_tells_its_numbers) {
    IN_INIT({
        pid_t p = SPAWN(raise(SIGSTOP); SPAWN());
        int st;
        CHECK_EQ(waitpid(p, &st, WUNTRACED), p);
        CHECK_OK(syscall(SYS_ptrace, 0x4206 /* SEIZE */, p, 0, 2 /* TRACEFORK */));
        CHECK_OK(kill(p, SIGCONT));
        unsigned long child = 0;
        for (;;) {
            CHECK_EQ(waitpid(p, &st, 0), p);
            if (WIFEXITED(st)) break;
            if (st >> 16 == 1) CHECK_OK(syscall(SYS_ptrace, 0x4201 /* GETEVENTMSG */, p, 0, &child));
            CHECK_OK(syscall(SYS_ptrace, 7 /* CONT */, p, 0, 0));
            if (child) break;
        }
        CHECK_EQ(child, p + 1);
    });
}
CASE(terminals_tell_groups_there) {
    IN_INIT({
        CHECK_EQ(setsid(), 1);
        int m = posix_openpt(O_RDWR | O_NOCTTY);
        if (m < 0) SKIP("no terminals here");
        CHECK_OK(grantpt(m));
        CHECK_OK(unlockpt(m));
        int s = CHECK_OK(open(ptsname(m), O_RDWR));
        int g = 0;
        CHECK_OK(ioctl(s, 0x540f /* TIOCGPGRP */, &g));
        CHECK_EQ(g, 1);
        CHECK_OK(ioctl(s, 0x5429 /* TIOCGSID */, &g));
        CHECK_EQ(g, 1);
    });
}
static long reboot_(unsigned cmd) { return syscall(SYS_reboot, 0xfee1dead, 672274793, cmd, NULL); }
CASE(restart_ends_it) {
    pid_t p = INIT(SPAWN(reboot_(0x01234567), pause()); pause());
    CHECK_EQ(join(p), 128 + SIGHUP);
}
CASE(power_off_ends_it) {
    pid_t p = INIT(reboot_(0x4321fedc); pause());
    CHECK_EQ(join(p), 128 + SIGINT);
}
CASE(other_reboots_are_none) {
    IN_INIT({
        CHECK_ERR(reboot_(0x89abcdef), EINVAL);
        CHECK_ERR(syscall(SYS_reboot, 1, 2, 3, NULL), EINVAL);
        CHECK_OK(setresuid(1000, 1000, 1000));
        CHECK_ERR(reboot_(0x01234567), EPERM);
    });
}
