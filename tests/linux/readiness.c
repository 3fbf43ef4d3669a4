// poll, select and their relatives at their edges: sets, masks, timeouts, closed descriptors, many waiters.
#include "t.h"
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/select.h>

static int p[2];
static fd_set r, w, x;
static void nop(int s, siginfo_t *si, void *u) { (void)s, (void)si, (void)u; }
static void zero(void) {
    FD_ZERO(&r);
    FD_ZERO(&w);
    FD_ZERO(&x);
}
static void mk(void) {
    CHECK(pipe(p) == 0);
    zero();
}

CASE(select_counts_every_set) {
    mk();
    int s[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0 && write(s[1], "x", 1) == 1);
    FD_SET(s[0], &r);
    FD_SET(s[0], &w);
    FD_SET(p[0], &r);
    FD_SET(p[1], &w);
    struct timeval z = {0, 0};
    CHECK_EQ(select(100, &r, &w, &x, &z), 3);
    CHECK(FD_ISSET(s[0], &r) && FD_ISSET(s[0], &w) && FD_ISSET(p[1], &w) && !FD_ISSET(p[0], &r));
}
CASE(select_bad_descriptor_leaves_sets) {
    mk();
    FD_SET(p[0], &r);
    FD_SET(60, &r);
    CHECK_ERR(select(61, &r, NULL, NULL, &(struct timeval){0, 0}), EBADF);
    CHECK(FD_ISSET(p[0], &r) && FD_ISSET(60, &r));
    CHECK_EQ(select(60, &r, NULL, NULL, &(struct timeval){0, 0}), 0);  // 60 is not looked at
    CHECK_ERR(select(-1, &r, NULL, NULL, NULL), EINVAL);
    CHECK_ERR(select(1, &r, NULL, NULL, &(struct timeval){-1, 0}), EINVAL);
    CHECK_ERR(select(1, BAD, NULL, NULL, &(struct timeval){0, 0}), EFAULT);
}
CASE(select_end_of_file_and_errors_are_readable_and_writable) {
    mk();
    close(p[1]);
    FD_SET(p[0], &r);
    CHECK_EQ(select(p[0] + 1, &r, NULL, NULL, &(struct timeval){0, 0}), 1);
    mk();
    close(p[0]);
    FD_SET(p[1], &w);
    FD_SET(p[1], &r);
    CHECK_EQ(select(p[1] + 1, &r, &w, NULL, &(struct timeval){0, 0}), 2);
}
CASE(select_without_sets_sleeps) {
    struct timeval t = {0, 30000};
    int64_t s = now_us();
    CHECK_EQ(select(0, NULL, NULL, NULL, &t), 0);
    CHECK(now_us() - s >= 30000 && t.tv_sec == 0 && t.tv_usec == 0);
}
CASE(select_far_microseconds) {
    int64_t s = now_us();
    CHECK_EQ(select(0, NULL, NULL, NULL, &(struct timeval){0, 1030000 - 1000000}), 0);
    CHECK(now_us() - s >= 30000);
    struct timespec bad = {0, 1000000000};
    CHECK_ERR(pselect(0, NULL, NULL, NULL, &bad, NULL), EINVAL);
}
CASE(pselect_leaves_the_timeout) {
    struct timespec t = {0, 20000000};
    CHECK_EQ(pselect(0, NULL, NULL, NULL, &t, NULL), 0);
    CHECK_EQ(t.tv_nsec, 20000000);
    CHECK_ERR(syscall(SYS_pselect6, 0, NULL, NULL, NULL, &t, &(uint64_t[2]){(uint64_t)&t, 4}), EINVAL);
}
CASE(pselect_pending_signal_beats_readiness_not) {
    mk();
    on_signal(SIGUSR1, nop, 0);
    sigset_t m, empty;
    sigemptyset(&m);
    sigaddset(&m, SIGUSR1);
    sigemptyset(&empty);
    sigprocmask(SIG_BLOCK, &m, NULL);
    raise(SIGUSR1);
    FD_SET(p[0], &r);
    CHECK_ERR(pselect(p[0] + 1, &r, NULL, NULL, &(struct timespec){1, 0}, &empty), EINTR);
    sigset_t now;
    CHECK(sigprocmask(0, NULL, &now) == 0 && sigismember(&now, SIGUSR1));
}
CASE(poll_reports_nval_among_others) {
    mk();
    struct pollfd f[3] = {{500, POLLIN, 0}, {-5, POLLIN, 99}, {p[1], POLLOUT, 0}};
    CHECK_EQ(poll(f, 3, -1), 2);
    CHECK(f[0].revents == POLLNVAL && f[1].revents == 0 && f[2].revents == POLLOUT);
}
CASE(poll_same_descriptor_twice) {
    mk();
    write(p[1], "x", 1);
    struct pollfd f[2] = {{p[0], POLLIN, 0}, {p[0], POLLRDNORM, 0}};
    CHECK(poll(f, 2, 0) == 2 && f[0].revents == POLLIN && f[1].revents == POLLRDNORM);
}
CASE(poll_number_limit) {
    struct rlimit l = {30, 30};
    CHECK(setrlimit(RLIMIT_NOFILE, &l) == 0);
    static struct pollfd f[40];
    for (int i = 0; i < 40; i++) f[i].fd = -1;
    CHECK_ERR(poll(f, 31, 0), EINVAL);
    CHECK_EQ(poll(f, 30, 0), 0);
    CHECK_EQ(poll(NULL, 0, 10), 0);
}
CASE(poll_on_o_path_and_closed) {
    int o = open("/", O_PATH);
    struct pollfd f = {o, POLLIN, 0};
    CHECK(poll(&f, 1, 0) == 1 && f.revents == POLLNVAL);
}
CASE(ppoll_updates_and_checks_time) {
    struct timespec t = {0, 30000000}, bad = {0, -1};
    CHECK_EQ(syscall(SYS_ppoll, NULL, 0, &t, NULL, 8), 0);
    CHECK(t.tv_sec == 0 && t.tv_nsec == 0);  // the call itself tells what is left
    CHECK_ERR(syscall(SYS_ppoll, NULL, 0, &bad, NULL, 8), EINVAL);
    CHECK_ERR(syscall(SYS_ppoll, NULL, 0, &t, &(uint64_t){0}, 4), EINVAL);
}
static void *late(void *a) {
    msleep(30);
    write(*(int *)a, "x", 1);
    return NULL;
}
CASE(poll_woken_by_thread_on_last_of_many) {
    int q[60][2];
    struct pollfd f[60];
    for (int i = 0; i < 60; i++) {
        CHECK(pipe(q[i]) == 0);
        f[i] = (struct pollfd){q[i][0], POLLIN, 0};
    }
    pthread_t t;
    pthread_create(&t, NULL, late, &q[59][1]);
    CHECK(poll(f, 60, 30000) == 1 && f[59].revents == POLLIN);
    pthread_join(t, NULL);
}
CASE(directories_and_devices_are_ready) {
    int n = open("/dev/null", O_RDWR), z = open("/dev/zero", O_RDONLY), d = open("/", O_RDONLY);
    struct pollfd f[3] = {{n, POLLIN | POLLOUT, 0}, {z, POLLIN, 0}, {d, POLLIN | POLLOUT, 0}};
    CHECK_EQ(poll(f, 3, 0), 3);
    CHECK(f[0].revents == (POLLIN | POLLOUT) && f[1].revents == POLLIN && f[2].revents == (POLLIN | POLLOUT));
}
CASE(own_pipe_filled_and_drained_in_a_loop) {
    mk();
    fcntl(p[1], F_SETFL, O_NONBLOCK);
    struct pollfd f = {p[1], POLLOUT, 0};
    static char b[65536];
    for (int i = 0; i < 20; i++) {
        while (write(p[1], b, sizeof b) > 0) {}
        CHECK_EQ(poll(&f, 1, 0), 0);
        CHECK_EQ(read(p[0], b, sizeof b), 65536);
        CHECK(poll(&f, 1, 0) == 1);
    }
}
