// epoll, less usual: EXCLUSIVE, one-shot with several events, nesting rules, closing, forks, edges on each kind of file.
#include "t.h"
#include <netinet/in.h>
#include <pty.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>

static int ep;
static struct epoll_event out[64];
static int add(int e, int fd, uint32_t ev) {
    struct epoll_event x = {ev, {.fd = fd}};
    return epoll_ctl(e, EPOLL_CTL_ADD, fd, &x);
}
static int mod(int fd, uint32_t ev) {
    struct epoll_event x = {ev, {.fd = fd}};
    return epoll_ctl(ep, EPOLL_CTL_MOD, fd, &x);
}
static int ready(void) { return epoll_wait(ep, out, 64, 0); }
static void mk(void) { CHECK((ep = epoll_create1(EPOLL_CLOEXEC)) >= 0); }
static void pair(int s[2]) { CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, s) == 0); }

CASE(exclusive_rules) {
    mk();
    int e = eventfd(0, 0), inner = epoll_create1(0);
    CHECK(add(ep, e, EPOLLIN | EPOLLEXCLUSIVE) == 0);
    CHECK_ERR(mod(e, EPOLLIN), EINVAL);
    CHECK(epoll_ctl(ep, EPOLL_CTL_DEL, e, NULL) == 0);
    CHECK_ERR(add(ep, e, EPOLLIN | EPOLLEXCLUSIVE | EPOLLONESHOT), EINVAL);
    CHECK_ERR(add(ep, e, EPOLLPRI | EPOLLEXCLUSIVE), EINVAL);
    CHECK_ERR(add(ep, inner, EPOLLIN | EPOLLEXCLUSIVE), EINVAL);
    CHECK(add(ep, e, EPOLLIN) == 0);
    CHECK_ERR(mod(e, EPOLLIN | EPOLLEXCLUSIVE), EINVAL);
}
CASE(exclusive_wakes_at_least_one) {
    int e = eventfd(0, 0), done[2];
    CHECK(pipe(done) == 0);
    pid_t kids[4];
    for (int i = 0; i < 4; i++) kids[i] = SPAWN(mk(); add(ep, e, EPOLLIN | EPOLLEXCLUSIVE); write(done[1], "r", 1);
                                                int n = epoll_wait(ep, out, 1, 30000); write(done[1], n == 1 ? "w" : "t", 1));
    char c[4];
    for (int n = 0; n < 4;) n += read(done[0], c, 4 - n);
    msleep(50);
    CHECK(write(e, &(uint64_t){1}, 8) == 8);
    CHECK(read(done[0], c, 1) == 1 && c[0] == 'w');
    for (int i = 0; i < 4; i++) kill(kids[i], SIGKILL), join(kids[i]);
}
CASE(oneshot_disarms_all_events) {
    mk();
    int s[2];
    pair(s);
    CHECK(add(ep, s[0], EPOLLIN | EPOLLOUT | EPOLLONESHOT) == 0);
    CHECK(ready() == 1 && out[0].events == EPOLLOUT);
    write(s[1], "x", 1);
    CHECK_EQ(ready(), 0);
    close(s[1]);
    CHECK_EQ(ready(), 0);  // not even a hang-up
    CHECK(mod(s[0], EPOLLIN | EPOLLONESHOT) == 0);
    CHECK(ready() == 1 && out[0].events == (EPOLLIN | EPOLLHUP));
}
CASE(oneshot_with_edge) {
    mk();
    int e = eventfd(1, 0);
    CHECK(add(ep, e, EPOLLIN | EPOLLONESHOT | EPOLLET) == 0);
    CHECK_EQ(ready(), 1);
    write(e, &(uint64_t){1}, 8);
    CHECK_EQ(ready(), 0);
    CHECK(mod(e, EPOLLIN | EPOLLONESHOT | EPOLLET) == 0);
    CHECK_EQ(ready(), 1);
}
CASE(mod_changes_data_and_mask) {
    mk();
    int s[2];
    pair(s);
    CHECK(add(ep, s[0], EPOLLIN) == 0);
    CHECK_EQ(ready(), 0);
    struct epoll_event x = {EPOLLOUT, {.u64 = 0x1122334455667788}};
    CHECK(epoll_ctl(ep, EPOLL_CTL_MOD, s[0], &x) == 0);
    CHECK(ready() == 1 && out[0].data.u64 == 0x1122334455667788);
    x.events = 0;
    CHECK(epoll_ctl(ep, EPOLL_CTL_MOD, s[0], &x) == 0);
    CHECK_EQ(ready(), 0);
}
CASE(unasked_events_are_not_told) {
    mk();
    int s[2];
    pair(s);
    CHECK(add(ep, s[0], EPOLLPRI) == 0);
    write(s[1], "x", 1);
    CHECK_EQ(ready(), 0);
}
CASE(writable_edge_once_room_comes) {
    mk();
    int s[2];
    pair(s);
    static char b[65536];
    CHECK(add(ep, s[0], EPOLLOUT | EPOLLET) == 0);
    CHECK_EQ(ready(), 1);
    while (write(s[0], b, sizeof b) > 0) {}
    CHECK_EQ(ready(), 0);
    while (read(s[1], b, sizeof b) > 0) {}
    CHECK(ready() == 1 && out[0].events & EPOLLOUT);
    CHECK_EQ(ready(), 0);
}
CASE(edge_for_each_message_of_a_socket) {
    mk();
    int s[2];
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, s) == 0);
    CHECK(add(ep, s[0], EPOLLIN | EPOLLET) == 0);
    for (int i = 0; i < 3; i++) {
        CHECK(write(s[1], "x", 1) == 1);
        CHECK_EQ(ready(), 1);
        CHECK_EQ(ready(), 0);
    }
}
CASE(hangup_is_an_edge) {
    mk();
    int p[2];
    CHECK(pipe(p) == 0);
    CHECK(add(ep, p[0], EPOLLIN | EPOLLET) == 0);
    write(p[1], "x", 1);
    CHECK_EQ(ready(), 1);
    close(p[1]);
    CHECK(ready() == 1 && out[0].events == (EPOLLIN | EPOLLHUP));
    CHECK_EQ(ready(), 0);
}
CASE(reader_gone_is_error_for_writer) {
    mk();
    int p[2];
    CHECK(pipe(p) == 0);
    CHECK(add(ep, p[1], 0) == 0);
    CHECK_EQ(ready(), 0);
    close(p[0]);
    CHECK(ready() == 1 && out[0].events == EPOLLERR);
}
CASE(eventfd_overflow_and_writability) {
    mk();
    int e = eventfd(0, EFD_NONBLOCK);
    CHECK(add(ep, e, EPOLLIN | EPOLLOUT) == 0);
    CHECK(ready() == 1 && out[0].events == EPOLLOUT);
    CHECK(write(e, &(uint64_t){UINT64_MAX - 1}, 8) == 8);
    CHECK(ready() == 1 && out[0].events == EPOLLIN);
    CHECK_ERR(write(e, &(uint64_t){1}, 8), EAGAIN);
}
CASE(timerfd_edges) {
    mk();
    int t = timerfd_create(CLOCK_MONOTONIC, 0);
    struct itimerspec its = {{0, 20000000}, {0, 1}};
    CHECK(timerfd_settime(t, 0, &its, NULL) == 0);
    CHECK(add(ep, t, EPOLLIN | EPOLLET) == 0);
    CHECK_EQ(epoll_wait(ep, out, 1, 30000), 1);
    CHECK_EQ(epoll_wait(ep, out, 1, 60), 0);  // an unread expiry is not followed by others
    CHECK(read(t, &its, 8) == 8);
    CHECK_EQ(epoll_wait(ep, out, 1, 30000), 1);
}
CASE(signalfd_in_epoll) {
    mk();
    sigset_t m;
    sigemptyset(&m);
    sigaddset(&m, SIGUSR1);
    sigprocmask(SIG_BLOCK, &m, NULL);
    int s = signalfd(-1, &m, 0);
    CHECK(add(ep, s, EPOLLIN) == 0);
    CHECK_EQ(ready(), 0);
    kill(getpid(), SIGUSR1);
    CHECK_EQ(ready(), 1);
    struct signalfd_siginfo si;
    CHECK(read(s, &si, sizeof si) == sizeof si);
    CHECK_EQ(ready(), 0);
}
CASE(inotify_in_epoll) {
    mk();
    scratch();
    int n = inotify_init1(0);
    inotify_add_watch(n, ".", IN_CREATE);
    CHECK(add(ep, n, EPOLLIN) == 0);
    CHECK_EQ(ready(), 0);
    close(mkfile("f", ""));
    CHECK_EQ(ready(), 1);
}
CASE(terminal_in_epoll) {
    mk();
    int m, s;
    CHECK(openpty(&m, &s, NULL, NULL, NULL) == 0);
    CHECK(add(ep, s, EPOLLIN | EPOLLET) == 0);
    write(m, "half", 4);
    CHECK_EQ(epoll_wait(ep, out, 1, 50), 0);  // no line yet
    write(m, "\n", 1);
    CHECK_EQ(epoll_wait(ep, out, 1, 30000), 1);
}
CASE(closed_while_dup_lives_needs_del) {
    mk();
    int e = eventfd(1, 0), d = dup(e);
    CHECK(add(ep, e, EPOLLIN) == 0);
    close(e);
    CHECK_EQ(ready(), 1);
    CHECK_ERR(epoll_ctl(ep, EPOLL_CTL_DEL, e, NULL), EBADF);
    close(d);
    CHECK_EQ(ready(), 0);
}
CASE(number_reused_is_another_key) {
    mk();
    int e = eventfd(0, 0), keep = dup(e);
    CHECK(add(ep, e, EPOLLIN) == 0);
    close(e);
    int f = eventfd(0, 0);
    CHECK_EQ(f, e);
    CHECK(add(ep, f, EPOLLIN) == 0);  // the same number, another open file
    write(keep, &(uint64_t){1}, 8);
    write(f, &(uint64_t){1}, 8);
    CHECK_EQ(ready(), 2);
}
CASE(child_closing_does_not_remove) {
    mk();
    int e = eventfd(1, 0);
    CHECK(add(ep, e, EPOLLIN) == 0);
    pid_t p = SPAWN(close(e));
    join(p);
    CHECK_EQ(ready(), 1);
}
CASE(child_may_remove_for_parent) {
    mk();
    int e = eventfd(1, 0);
    CHECK(add(ep, e, EPOLLIN) == 0);
    CHECK_EQ(join(SPAWN(_exit(epoll_ctl(ep, EPOLL_CTL_DEL, e, NULL) ? 1 : 0))), 0);
    CHECK_EQ(ready(), 0);
}
CASE(nested_loop_and_depth) {
    int e[8];
    for (int i = 0; i < 8; i++) e[i] = epoll_create1(0);
    CHECK(add(e[0], e[1], EPOLLIN) == 0);
    CHECK(add(e[1], e[2], EPOLLIN) == 0);
    CHECK_ERR(add(e[2], e[0], EPOLLIN), ELOOP);
    CHECK_ERR(add(e[0], e[0], EPOLLIN), EINVAL);
    CHECK(add(e[2], e[3], EPOLLIN) == 0 && add(e[3], e[4], EPOLLIN) == 0);
    CHECK_ERR(add(e[4], e[5], EPOLLIN), ELOOP);  // more than four levels
}
CASE(nested_edge_of_inner) {
    mk();
    int inner = epoll_create1(0), e = eventfd(0, 0);
    CHECK(add(inner, e, EPOLLIN) == 0 && add(ep, inner, EPOLLIN | EPOLLET) == 0);
    CHECK_EQ(ready(), 0);
    write(e, &(uint64_t){1}, 8);
    CHECK_EQ(ready(), 1);
    CHECK_EQ(ready(), 0);
    write(e, &(uint64_t){1}, 8);
    CHECK_EQ(ready(), 1);
}
CASE(epoll_descriptor_can_be_polled) {
    mk();
    int e = eventfd(0, 0);
    CHECK(add(ep, e, EPOLLIN) == 0);
    struct pollfd p = {ep, POLLIN | POLLOUT, 0};
    CHECK_EQ(poll(&p, 1, 0), 0);
    write(e, &(uint64_t){1}, 8);
    CHECK(poll(&p, 1, 0) == 1 && p.revents == POLLIN);
}
CASE(wait_limits) {
    mk();
    CHECK_ERR(epoll_wait(ep, out, -1, 0), EINVAL);
    CHECK_ERR(epoll_wait(ep, out, INT_MAX, 0), EINVAL);
    CHECK_ERR(epoll_wait(0, out, 1, 0), EINVAL);
    CHECK_ERR(epoll_wait(999, out, 1, 0), EBADF);
    CHECK_ERR(syscall(SYS_epoll_pwait, ep, out, 1, 0, BAD, 8), EFAULT);
    CHECK_ERR(syscall(SYS_epoll_pwait, ep, out, 1, 0, &(uint64_t){0}, 4), EINVAL);
}
CASE(pwait2_timeouts) {
    mk();
    struct timespec bad = {0, 1000000000}, neg = {-1, 0}, small = {0, 20000000};
    CHECK_ERR(syscall(SYS_epoll_pwait2, ep, out, 1, &bad, NULL, 8), EINVAL);
    CHECK_ERR(syscall(SYS_epoll_pwait2, ep, out, 1, &neg, NULL, 8), EINVAL);
    int64_t t = now_us();
    CHECK_EQ(syscall(SYS_epoll_pwait2, ep, out, 1, &small, NULL, 8), 0);
    CHECK(now_us() - t >= 20000);
}
CASE(many_ready_are_cut_and_continue) {
    mk();
    int fds[20], seen[256] = {0};
    for (int i = 0; i < 20; i++) fds[i] = eventfd(1, 0), add(ep, fds[i], EPOLLIN);
    for (int round = 0; round < 4; round++) {
        CHECK_EQ(epoll_wait(ep, out, 5, 0), 5);
        for (int i = 0; i < 5; i++) seen[out[i].data.fd]++;
    }
    for (int i = 0; i < 20; i++) CHECK_EQ(seen[fds[i]], 1);  // nobody starves
}
CASE(listener_edge_and_queue) {
    mk();
    int l = socket(AF_INET, SOCK_STREAM, 0), c[3];
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof sa;
    CHECK(bind(l, (void *)&sa, n) == 0 && listen(l, 8) == 0 && getsockname(l, (void *)&sa, &n) == 0);
    CHECK(add(ep, l, EPOLLIN | EPOLLET) == 0);
    for (int i = 0; i < 3; i++) {
        c[i] = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(connect(c[i], (void *)&sa, n) == 0);
        CHECK_EQ(epoll_wait(ep, out, 1, 30000), 1);
        CHECK_EQ(ready(), 0);
    }
}
CASE(connect_completes_as_writable) {
    mk();
    int l = socket(AF_INET, SOCK_STREAM, 0), c = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof sa;
    CHECK(bind(l, (void *)&sa, n) == 0 && listen(l, 8) == 0 && getsockname(l, (void *)&sa, &n) == 0);
    CHECK(add(ep, c, EPOLLOUT | EPOLLET) == 0);
    CHECK(ready() == 1 && out[0].events & EPOLLHUP);  // not connected yet
    CHECK(connect(c, (void *)&sa, n) == 0 || errno == EINPROGRESS);
    CHECK_EQ(epoll_wait(ep, out, 1, 30000), 1);
    CHECK_EQ(out[0].events, EPOLLOUT);
}
static void *adder(void *a) {
    msleep(30);
    add(ep, *(int *)a, EPOLLIN);
    return NULL;
}
CASE(ready_descriptor_added_during_wait) {
    mk();
    int e = eventfd(1, 0);
    pthread_t t;
    pthread_create(&t, NULL, adder, &e);
    CHECK_EQ(epoll_wait(ep, out, 1, 30000), 1);
    pthread_join(t, NULL);
}
static void *closer(void *a) {
    msleep(30);
    close(*(int *)a);
    return NULL;
}
CASE(closing_epoll_does_not_end_the_wait) {
    mk();
    pthread_t t;
    pthread_create(&t, NULL, closer, &ep);
    CHECK_EQ(epoll_wait(ep, out, 1, 100), 0);
    pthread_join(t, NULL);
}
CASE(wakeup_flag_is_accepted) {
    mk();
    int e = eventfd(1, 0);
    CHECK(add(ep, e, EPOLLIN | EPOLLWAKEUP) == 0);
    CHECK(ready() == 1 && out[0].events == EPOLLIN);
}
CASE(passed_by_descriptor_message) {
    mk();
    int e = eventfd(1, 0);
    CHECK(add(ep, e, EPOLLIN) == 0);
    pid_t p = SPAWN(close(e); _exit(epoll_wait(ep, out, 1, 30000) == 1 && out[0].data.fd == e ? 4 : 5));
    CHECK_EQ(join(p), 4);
}
