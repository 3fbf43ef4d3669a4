// Readiness: epoll (level, edge, one-shot, nested), poll, select, eventfd, and descriptors of events.
#include "t.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/timerfd.h>

static int ep, p[2];
static struct epoll_event out[16];
static void mk(void) {
    CHECK((ep = epoll_create1(0)) >= 0);
    CHECK(pipe(p) == 0);
}
static int ctl(int op, int fd, uint32_t ev) {
    struct epoll_event e = {ev, {.fd = fd}};
    return epoll_ctl(ep, op, fd, &e);
}
static int wait_ms(int ms) { return epoll_wait(ep, out, 16, ms); }
static void put(int fd) { CHECK(write(fd, "x", 1) == 1); }
static void get(int fd) {
    char c;
    CHECK(read(fd, &c, 1) == 1);
}
static void nop(int s, siginfo_t *si, void *u) { (void)s, (void)si, (void)u; }

CASE(epoll_level) {
    mk();
    CHECK(ctl(EPOLL_CTL_ADD, p[0], EPOLLIN) == 0);
    CHECK_EQ(wait_ms(0), 0);
    put(p[1]);
    CHECK(wait_ms(0) == 1 && out[0].events == EPOLLIN && out[0].data.fd == p[0]);
    CHECK_EQ(wait_ms(0), 1);
    get(p[0]);
    CHECK_EQ(wait_ms(0), 0);
}
CASE(epoll_edge) {
    mk();
    CHECK(ctl(EPOLL_CTL_ADD, p[0], EPOLLIN | EPOLLET) == 0);
    put(p[1]);
    CHECK_EQ(wait_ms(0), 1);
    CHECK_EQ(wait_ms(0), 0);  // no new edge
    put(p[1]);
    CHECK_EQ(wait_ms(0), 1);  // new data is an edge even if not drained
    get(p[0]);
    CHECK_EQ(wait_ms(0), 0);
    put(p[1]);
    CHECK_EQ(wait_ms(0), 1);
}
CASE(epoll_edge_ready_at_add_and_mod) {
    mk();
    put(p[1]);
    CHECK(ctl(EPOLL_CTL_ADD, p[0], EPOLLIN | EPOLLET) == 0);
    CHECK_EQ(wait_ms(0), 1);
    CHECK_EQ(wait_ms(0), 0);
    CHECK(ctl(EPOLL_CTL_MOD, p[0], EPOLLIN | EPOLLET) == 0);
    CHECK_EQ(wait_ms(0), 1);  // MOD re-arms
}
CASE(epoll_edge_out) {
    mk();
    char b[4096] = {0};
    fcntl(p[1], F_SETFL, O_NONBLOCK);
    CHECK(ctl(EPOLL_CTL_ADD, p[1], EPOLLOUT | EPOLLET) == 0);
    CHECK_EQ(wait_ms(0), 1);
    CHECK_EQ(wait_ms(0), 0);
    while (write(p[1], b, sizeof b) > 0) {}
    while (read(p[0], b, sizeof b) == sizeof b && wait_ms(0) == 0) {}
    CHECK(out[0].events & EPOLLOUT);
}
CASE(epoll_oneshot) {
    mk();
    CHECK(ctl(EPOLL_CTL_ADD, p[0], EPOLLIN | EPOLLONESHOT) == 0);
    put(p[1]);
    CHECK_EQ(wait_ms(0), 1);
    put(p[1]);
    CHECK_EQ(wait_ms(0), 0);
    CHECK(ctl(EPOLL_CTL_MOD, p[0], EPOLLIN | EPOLLONESHOT) == 0);
    CHECK_EQ(wait_ms(0), 1);
}
CASE(epoll_hup_err_always) {
    mk();
    CHECK(ctl(EPOLL_CTL_ADD, p[0], 0) == 0);
    close(p[1]);
    CHECK(wait_ms(0) == 1 && out[0].events == EPOLLHUP);
}
CASE(epoll_rdhup) {
    mk();
    int s[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0);
    CHECK(ctl(EPOLL_CTL_ADD, s[0], EPOLLIN | EPOLLRDHUP) == 0);
    shutdown(s[1], SHUT_WR);
    CHECK(wait_ms(0) == 1 && out[0].events == (EPOLLIN | EPOLLRDHUP));
}
CASE(epoll_ctl_errors) {
    mk();
    CHECK(ctl(EPOLL_CTL_ADD, p[0], EPOLLIN) == 0);
    CHECK_ERR(ctl(EPOLL_CTL_ADD, p[0], EPOLLIN), EEXIST);
    CHECK_ERR(ctl(EPOLL_CTL_MOD, p[1], EPOLLIN), ENOENT);
    CHECK_ERR(ctl(EPOLL_CTL_DEL, p[1], 0), ENOENT);
    CHECK_ERR(ctl(EPOLL_CTL_ADD, 999, EPOLLIN), EBADF);
    CHECK_ERR(ctl(EPOLL_CTL_ADD, ep, EPOLLIN), EINVAL);
    CHECK_ERR(ctl(77, p[0], 0), EINVAL);
    scratch();
    CHECK_ERR(ctl(EPOLL_CTL_ADD, mkfile("f", ""), EPOLLIN), EPERM);
    struct epoll_event e;
    CHECK_ERR(epoll_ctl(p[0], EPOLL_CTL_ADD, p[1], &e), EINVAL);
    CHECK_ERR(epoll_wait(ep, out, 0, 0), EINVAL);
    put(p[1]);
    CHECK_ERR(syscall(SYS_epoll_wait, ep, noaccess(), 1, 0), EFAULT);
    CHECK_ERR(epoll_create1(1), EINVAL);
    CHECK_ERR(epoll_create(0), EINVAL);
}
CASE(epoll_close_removes) {
    mk();
    CHECK(ctl(EPOLL_CTL_ADD, p[0], EPOLLIN) == 0);
    put(p[1]);
    close(p[0]);
    CHECK_EQ(wait_ms(0), 0);
}
CASE(epoll_dup_keeps_registration) {
    mk();
    int d = dup(p[0]);
    CHECK(ctl(EPOLL_CTL_ADD, p[0], EPOLLIN) == 0);
    CHECK(ctl(EPOLL_CTL_ADD, d, EPOLLIN) == 0);  // another key: same file, other number
    put(p[1]);
    CHECK_EQ(wait_ms(0), 2);
    int was = p[0];
    close(p[0]);
    CHECK(wait_ms(0) == 2);  // the open file lives on through the dup
    CHECK(out[0].data.fd == was || out[1].data.fd == was);
    close(d);
    CHECK_EQ(wait_ms(0), 0);
}
CASE(epoll_nested) {
    mk();
    int outer = epoll_create1(0);
    CHECK(ctl(EPOLL_CTL_ADD, p[0], EPOLLIN) == 0);
    struct epoll_event e = {EPOLLIN, {.u64 = 7}};
    CHECK(epoll_ctl(outer, EPOLL_CTL_ADD, ep, &e) == 0);
    CHECK_EQ(epoll_wait(outer, out, 1, 0), 0);
    put(p[1]);
    CHECK(epoll_wait(outer, out, 1, 30000) == 1 && out[0].data.u64 == 7);
    struct pollfd q = {ep, POLLIN, 0};
    CHECK(poll(&q, 1, 0) == 1 && q.revents == POLLIN);
    e.events = EPOLLIN;
    CHECK_ERR(epoll_ctl(ep, EPOLL_CTL_ADD, outer, &e), ELOOP);
}
CASE(epoll_fair_rotation) {
    mk();
    int q[8][2];
    for (int i = 0; i < 8; i++) {
        CHECK(pipe(q[i]) == 0 && ctl(EPOLL_CTL_ADD, q[i][0], EPOLLIN) == 0);
        put(q[i][1]);
    }
    int seen = 0;
    for (int k = 0; k < 8; k++) {
        CHECK_EQ(epoll_wait(ep, out, 1, 0), 1);
        for (int i = 0; i < 8; i++)
            if (out[0].data.fd == q[i][0]) seen |= 1 << i;
    }
    CHECK_EQ(seen, 255);
}
CASE(epoll_timeout_and_wakeup) {
    mk();
    CHECK(ctl(EPOLL_CTL_ADD, p[0], EPOLLIN) == 0);
    int64_t t0 = now_us();
    CHECK_EQ(wait_ms(40), 0);
    CHECK(now_us() - t0 >= 39000);
    pid_t c = SPAWN({ msleep(30); put(p[1]); });
    CHECK_EQ(wait_ms(30000), 1);
    join(c);
}
static void *adder(void *a) {
    msleep(30);
    CHECK(ctl(EPOLL_CTL_ADD, p[0], EPOLLIN) == 0);
    return a;
}
CASE(epoll_add_while_waiting) {
    mk();
    put(p[1]);
    pthread_t t;
    pthread_create(&t, NULL, adder, NULL);
    CHECK_EQ(wait_ms(30000), 1);
    pthread_join(t, NULL);
}
CASE(epoll_pwait_mask) {
    mk();
    on_signal(SIGALRM, nop, 0);
    sigset_t m, none;
    sigemptyset(&none);
    sigemptyset(&m);
    sigaddset(&m, SIGALRM);
    sigprocmask(SIG_BLOCK, &m, NULL);
    raise(SIGALRM);
    CHECK_EQ(wait_ms(0), 0);
    CHECK_ERR(epoll_pwait(ep, out, 1, 1000, &none), EINTR);
    sigprocmask(SIG_BLOCK, NULL, &none);
    CHECK(sigismember(&none, SIGALRM));
}
CASE(epoll_pwait2) {
    mk();
    struct timespec ts = {0, 20000000};
    long r = syscall(SYS_epoll_pwait2, ep, out, 1, &ts, NULL, 0);
    if (r < 0 && errno == ENOSYS) SKIP("no epoll_pwait2");
    CHECK_EQ(r, 0);
}
CASE(epoll_survives_fork_shared) {
    mk();
    CHECK(ctl(EPOLL_CTL_ADD, p[0], EPOLLIN) == 0);
    CHECK_EQ(join(SPAWN({ put(p[1]); CHECK_EQ(wait_ms(30000), 1); })), 0);
    CHECK_EQ(wait_ms(0), 1);
}
static _Atomic int woke;
static void *ex_waiter(void *a) {
    struct epoll_event e;
    if (epoll_wait(ep, &e, 1, -1) == 1) woke++;
    return a;
}
CASE(epoll_edge_wakes_one_thread_per_event) {
    mk();
    CHECK(ctl(EPOLL_CTL_ADD, p[0], EPOLLIN | EPOLLET) == 0);
    pthread_t t[4];
    for (int i = 0; i < 4; i++) pthread_create(&t[i], NULL, ex_waiter, NULL);
    msleep(50);
    put(p[1]);
    EVENTUALLY(woke);
    msleep(50);
    CHECK_EQ(woke, 1);
}
CASE(epoll_many_descriptors) {
    mk();
    int e[500];
    for (int i = 0; i < 500; i++) {
        e[i] = eventfd(0, 0);
        CHECK(e[i] >= 0 && ctl(EPOLL_CTL_ADD, e[i], EPOLLIN) == 0);
    }
    uint64_t one = 1;
    for (int i = 0; i < 500; i += 50) CHECK(write(e[i], &one, 8) == 8);
    CHECK_EQ(wait_ms(0), 10);
}

CASE(poll_basic_and_negative_fd) {
    CHECK(pipe(p) == 0);
    put(p[1]);
    struct pollfd f[3] = {{p[0], POLLIN, 0}, {-1, POLLIN, 7}, {999, POLLIN, 0}};
    CHECK_EQ(poll(f, 3, 0), 2);
    CHECK(f[0].revents == POLLIN && f[1].revents == 0 && f[2].revents == POLLNVAL);
}
CASE(poll_timeout_and_efault) {
    int64_t t0 = now_us();
    CHECK_EQ(poll(NULL, 0, 40), 0);
    CHECK(now_us() - t0 >= 39000);
    CHECK_ERR(syscall(SYS_poll, BAD, 1, 0), EFAULT);
    CHECK_ERR(syscall(SYS_poll, NULL, 1u << 30, 0), EINVAL);
}
CASE(poll_regular_file_always_ready) {
    scratch();
    struct pollfd f = {mkfile("f", ""), POLLIN | POLLOUT, 0};
    CHECK(poll(&f, 1, 0) == 1 && f.revents == (POLLIN | POLLOUT));
}
CASE(poll_woken_by_other_process) {
    CHECK(pipe(p) == 0);
    pid_t c = SPAWN({ msleep(30); put(p[1]); });
    struct pollfd f = {p[0], POLLIN, 0};
    CHECK_EQ(poll(&f, 1, 30000), 1);
    join(c);
}
CASE(ppoll_mask_and_timeout) {
    struct timespec ts = {0, 30000000};
    CHECK_EQ(ppoll(NULL, 0, &ts, NULL), 0);
    CHECK_EQ(ts.tv_nsec, 30000000);  // glibc keeps it
    ts.tv_nsec = -1;
    CHECK_ERR(ppoll(NULL, 0, &ts, NULL), EINVAL);
}
CASE(select_sets_and_count) {
    CHECK(pipe(p) == 0);
    put(p[1]);
    fd_set r, w;
    FD_ZERO(&r);
    FD_ZERO(&w);
    FD_SET(p[0], &r);
    FD_SET(p[1], &w);
    struct timeval tv = {0, 0};
    int n = select(p[1] + 1, &r, &w, NULL, &tv);
    CHECK(n >= 2 && FD_ISSET(p[0], &r) && FD_ISSET(p[1], &w));
}
CASE(select_timeout_updates_remaining) {
    struct timeval tv = {0, 60000};
    CHECK_EQ(select(0, NULL, NULL, NULL, &tv), 0);
    CHECK(tv.tv_sec == 0 && tv.tv_usec == 0);
    CHECK(pipe(p) == 0);
    put(p[1]);
    fd_set r;
    FD_ZERO(&r);
    FD_SET(p[0], &r);
    tv.tv_sec = 5;
    CHECK_EQ(select(p[0] + 1, &r, NULL, NULL, &tv), 1);
    CHECK(tv.tv_sec >= 4);
}
CASE(select_errors) {
    fd_set r;
    FD_ZERO(&r);
    FD_SET(50, &r);
    struct timeval tv = {0, 0}, bad = {-1, 0};
    CHECK_ERR(select(51, &r, NULL, NULL, &tv), EBADF);
    CHECK_ERR(select(-1, NULL, NULL, NULL, &tv), EINVAL);
    CHECK_ERR(select(0, NULL, NULL, NULL, &bad), EINVAL);
}
CASE(pselect_mask_is_atomic) {
    on_signal(SIGALRM, nop, 0);
    sigset_t m, none;
    sigemptyset(&none);
    sigemptyset(&m);
    sigaddset(&m, SIGALRM);
    sigprocmask(SIG_BLOCK, &m, NULL);
    raise(SIGALRM);
    struct timespec ts = {2, 0};
    CHECK_ERR(pselect(0, NULL, NULL, NULL, &ts, &none), EINTR);
}
CASE(eventfd_counter) {
    int e = eventfd(3, EFD_NONBLOCK);
    uint64_t v = 4;
    CHECK_EQ(write(e, &v, 8), 8);
    CHECK(read(e, &v, 8) == 8 && v == 7);
    CHECK_ERR(read(e, &v, 8), EAGAIN);
    CHECK_ERR(read(e, &v, 4), EINVAL);
    v = ~0ull;
    CHECK_ERR(write(e, &v, 8), EINVAL);
    v = ~0ull - 1;
    CHECK_EQ(write(e, &v, 8), 8);
    v = 1;
    CHECK_ERR(write(e, &v, 8), EAGAIN);
    struct pollfd f = {e, POLLIN | POLLOUT, 0};
    CHECK(poll(&f, 1, 0) == 1 && f.revents == POLLIN);
}
CASE(eventfd_semaphore) {
    int e = eventfd(2, EFD_SEMAPHORE | EFD_NONBLOCK);
    uint64_t v;
    CHECK(read(e, &v, 8) == 8 && v == 1);
    CHECK(read(e, &v, 8) == 8 && v == 1);
    CHECK_ERR(read(e, &v, 8), EAGAIN);
    CHECK_ERR(eventfd(0, 0x8), EINVAL);
}
CASE(eventfd_blocks_and_wakes) {
    int e = eventfd(0, EFD_CLOEXEC);
    pid_t c = SPAWN({ msleep(20); uint64_t v = 9; CHECK(write(e, &v, 8) == 8); });
    uint64_t v;
    CHECK(read(e, &v, 8) == 8 && v == 9);
    join(c);
}
CASE(eventfd_edge_each_write) {
    mk();
    int e = eventfd(0, 0);
    uint64_t v = 1;
    CHECK(ctl(EPOLL_CTL_ADD, e, EPOLLIN | EPOLLET) == 0);
    for (int i = 0; i < 3; i++) {
        CHECK(write(e, &v, 8) == 8);
        CHECK_EQ(wait_ms(0), 1);
        CHECK_EQ(wait_ms(0), 0);
    }
}
CASE(poll_and_epoll_on_timerfd) {
    mk();
    int t = timerfd_create(CLOCK_MONOTONIC, 0);
    struct itimerspec its = {{0, 10000000}, {0, 10000000}};
    timerfd_settime(t, 0, &its, NULL);
    CHECK(ctl(EPOLL_CTL_ADD, t, EPOLLIN | EPOLLET) == 0);
    for (int i = 0; i < 3; i++) {
        uint64_t n;
        CHECK_EQ(wait_ms(30000), 1);
        CHECK_EQ(read(t, &n, 8), 8);
    }
}
CASE(poll_many_processes_thundering) {
    CHECK(pipe(p) == 0);
    pid_t c[10];
    for (int i = 0; i < 10; i++)
        c[i] = SPAWN({
            struct pollfd f = {p[0], POLLIN, 0};
            char x;
            fcntl(p[0], F_SETFL, O_NONBLOCK);
            for (;;) {
                CHECK(poll(&f, 1, 30000) == 1);
                if (read(p[0], &x, 1) == 1) break;
                CHECK(errno == EAGAIN);
            }
        });
    for (int i = 0; i < 10; i++) {
        pause_ms(2);
        put(p[1]);
    }
    for (int i = 0; i < 10; i++) CHECK_EQ(join(c[i]), 0);
}
