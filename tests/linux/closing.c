// A descriptor that is closed while a call is blocked on it: what it named stays until that call returns.
#include "t.h"
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <sys/un.h>

// Another thread that makes one call.
static struct {
    ssize_t (*call)(void);
    int tid, err;
    volatile int started, ended;
    ssize_t r;
    pthread_t t;
} other;
static int fd;
static char got[65536];

static void *run(void *arg) {
    (void)arg;
    other.tid = gettid();
    __atomic_store_n(&other.started, 1, __ATOMIC_SEQ_CST);
    other.r = other.call();
    other.err = errno;
    __atomic_store_n(&other.ended, 1, __ATOMIC_SEQ_CST);
    return NULL;
}
static char state_of(int tid) {
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
    int f = open(path, O_RDONLY);
    ssize_t n = f < 0 ? -1 : read(f, text, sizeof text - 1);
    close(f);
    if (n <= 0) return '?';
    text[n] = 0;
    return strrchr(text, ')')[2];
}
// Starts the call and returns when its thread sleeps in it.
static void block_in(ssize_t (*call)(void)) {
    other.call = call;
    other.started = other.ended = 0;
    CHECK(pthread_create(&other.t, NULL, run, NULL) == 0);
    EVENTUALLY(other.started);
    for (int seen = 0; seen < 3;) {
        seen = state_of(other.tid) == 'S' ? seen + 1 : 0;
        sched_yield();
    }
    CHECK(!other.ended);
}
static ssize_t result(void) {
    pthread_join(other.t, NULL);
    errno = other.err;
    return other.r;
}
static ssize_t read_it(void) { return read(fd, got, sizeof got); }
static ssize_t recv_it(void) { return recv(fd, got, sizeof got, 0); }
static ssize_t accept_it(void) { return accept(fd, NULL, NULL); }
static ssize_t write_it(void) { return write(fd, got, sizeof got); }

CASE(pipe_reader) {
    int p[2];
    CHECK(pipe(p) == 0);
    signal(SIGPIPE, SIG_IGN);
    fd = p[0];
    block_in(read_it);
    close(p[0]);
    CHECK_EQ(write(p[1], "abc", 3), 3);
    CHECK_EQ(result(), 3);
    CHECK_ERR(write(p[1], "abc", 3), EPIPE);
}

CASE(pipe_writer) {
    int p[2];
    CHECK(pipe(p) == 0);
    fd = p[1];
    CHECK_EQ(write(fd, got, sizeof got), sizeof got);
    block_in(write_it);
    close(fd);
    size_t n = 0;
    for (ssize_t r; (r = read(p[0], got, sizeof got)) != 0; n += r) CHECK(r > 0);
    CHECK_EQ(n, 2 * sizeof got);
    CHECK_EQ(result(), sizeof got);
}

CASE(pipe_replaced_by_dup2) {
    int p[2], q[2];
    CHECK(pipe(p) == 0 && pipe(q) == 0);
    signal(SIGPIPE, SIG_IGN);
    fd = p[0];
    block_in(read_it);
    CHECK(dup2(q[0], p[0]) == p[0]);
    CHECK_EQ(write(q[1], "no", 2), 2);
    CHECK_EQ(write(p[1], "yes", 3), 3);
    CHECK_EQ(result(), 3);
    CHECK(!memcmp(got, "yes", 3));
    CHECK_ERR(write(p[1], "abc", 3), EPIPE);
}

CASE(pipe_closed_by_close_range) {
    int p[2];
    CHECK(pipe(p) == 0);
    signal(SIGPIPE, SIG_IGN);
    fd = p[0];
    block_in(read_it);
    CHECK(syscall(SYS_close_range, fd, fd, 0) == 0);
    CHECK_EQ(write(p[1], "abc", 3), 3);
    CHECK_EQ(result(), 3);
    CHECK_ERR(write(p[1], "abc", 3), EPIPE);
}

static ssize_t poll_it(void) {
    struct pollfd p = {fd, POLLIN, 0};
    int n = poll(&p, 1, -1);
    return n == 1 ? p.revents : -1;
}
static ssize_t select_it(void) {
    fd_set s;
    FD_ZERO(&s);
    FD_SET(fd, &s);
    return select(fd + 1, &s, NULL, NULL, NULL);
}
CASE(pipe_polled) {
    int p[2];
    CHECK(pipe(p) == 0);
    signal(SIGPIPE, SIG_IGN);
    fd = p[0];
    block_in(poll_it);
    close(fd);
    CHECK_EQ(write(p[1], "abc", 3), 3);
    // It is looked up again as poll wakes.
    CHECK_EQ(result(), POLLNVAL);
    CHECK_ERR(write(p[1], "abc", 3), EPIPE);
}

CASE(pipe_selected) {
    int p[2];
    CHECK(pipe(p) == 0);
    signal(SIGPIPE, SIG_IGN);
    fd = p[0];
    block_in(select_it);
    close(fd);
    CHECK_EQ(write(p[1], "abc", 3), 3);
    CHECK_EQ(result(), 1);
    CHECK_ERR(write(p[1], "abc", 3), EPIPE);
}

static int listener(struct sockaddr_in *a) {
    socklen_t l = sizeof *a;
    memset(a, 0, sizeof *a);
    a->sin_family = AF_INET, a->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int s = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(s, (void *)a, sizeof *a) == 0 && listen(s, 5) == 0);
    CHECK(getsockname(s, (void *)a, &l) == 0);
    return s;
}
CASE(tcp_accept) {
    struct sockaddr_in a;
    fd = listener(&a);
    block_in(accept_it);
    close(fd);
    int c = socket(AF_INET, SOCK_STREAM, 0), d = socket(AF_INET, SOCK_STREAM, 0);
    CHECK_OK(connect(c, (void *)&a, sizeof a));
    int s = result();
    CHECK(s >= 0);
    CHECK_EQ(write(c, "x", 1), 1);
    CHECK_EQ(read(s, got, 9), 1);
    // Now it is gone.
    CHECK_ERR(connect(d, (void *)&a, sizeof a), ECONNREFUSED);
}

CASE(tcp_accept_and_dup2) {
    struct sockaddr_in a;
    fd = listener(&a);
    block_in(accept_it);
    CHECK(dup2(0, fd) == fd);
    int c = socket(AF_INET, SOCK_STREAM, 0);
    CHECK_OK(connect(c, (void *)&a, sizeof a));
    CHECK(result() >= 0);
}

CASE(tcp_recv) {
    struct sockaddr_in a;
    int l = listener(&a), c = socket(AF_INET, SOCK_STREAM, 0);
    CHECK_OK(connect(c, (void *)&a, sizeof a));
    fd = accept(l, NULL, NULL);
    block_in(recv_it);
    close(fd);
    CHECK_EQ(send(c, "abc", 3, 0), 3);
    CHECK_EQ(result(), 3);
    CHECK_EQ(recv(c, got, 9, 0), 0);
}

CASE(tcp_send) {
    struct sockaddr_in a;
    int l = listener(&a), c = socket(AF_INET, SOCK_STREAM, 0), n = 4096;
    CHECK(setsockopt(c, SOL_SOCKET, SO_SNDBUF, &n, sizeof n) == 0);
    CHECK_OK(connect(c, (void *)&a, sizeof a));
    int s = accept(l, NULL, NULL);
    ssize_t r;
    size_t sent = 0;
    while ((r = send(c, got, sizeof got, MSG_DONTWAIT)) > 0) sent += r;
    fd = c;
    block_in(write_it);
    close(c);
    size_t taken = 0;
    while ((r = recv(s, got, sizeof got, 0)) > 0) taken += r;
    CHECK_EQ(r, 0);
    CHECK_EQ(result(), sizeof got);
    CHECK_EQ(taken, sent + sizeof got);
}

CASE(udp_recv) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t l = sizeof a;
    fd = socket(AF_INET, SOCK_DGRAM, 0);
    int c = socket(AF_INET, SOCK_DGRAM, 0), d = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(bind(fd, (void *)&a, sizeof a) == 0 && getsockname(fd, (void *)&a, &l) == 0);
    block_in(recv_it);
    close(fd);
    CHECK_ERR(bind(d, (void *)&a, sizeof a), EADDRINUSE);
    CHECK_EQ(sendto(c, "abc", 3, 0, (void *)&a, sizeof a), 3);
    CHECK_EQ(result(), 3);
    CHECK_OK(bind(d, (void *)&a, sizeof a));
}

static void unix_recv(int type, ssize_t end) {
    int p[2];
    CHECK(socketpair(AF_UNIX, type, 0, p) == 0);
    signal(SIGPIPE, SIG_IGN);
    fd = p[0];
    block_in(recv_it);
    close(fd);
    CHECK_EQ(send(p[1], "abc", 3, 0), 3);
    CHECK_EQ(result(), 3);
    if (type == SOCK_DGRAM) CHECK_ERR(send(p[1], "abc", 3, 0), end);
    else CHECK_ERR(send(p[1], "abc", 3, 0), EPIPE);
}
CASE(unix_recv_stream) { unix_recv(SOCK_STREAM, EPIPE); }
CASE(unix_recv_seqpacket) { unix_recv(SOCK_SEQPACKET, EPIPE); }
CASE(unix_recv_dgram) { unix_recv(SOCK_DGRAM, ECONNREFUSED); }

static struct sockaddr_un un;
static ssize_t connect_it(void) { return connect(fd, (void *)&un, sizeof un); }
CASE(unix_accept_and_connect) {
    un.sun_family = AF_UNIX;
    snprintf(un.sun_path + 1, 90, "closing.%d", getpid());
    int l = socket(AF_UNIX, SOCK_STREAM, 0), a = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(bind(l, (void *)&un, sizeof un) == 0 && listen(l, 0) == 0);
    CHECK_OK(connect(a, (void *)&un, sizeof un));
    // The queue is full now.
    fd = socket(AF_UNIX, SOCK_STREAM, 0);
    block_in(connect_it);
    close(fd);
    CHECK(accept(l, NULL, NULL) >= 0);
    CHECK_EQ(result(), 0);
    int s = accept(l, NULL, NULL);
    CHECK(s >= 0);
    CHECK_EQ(read(s, got, 9), 0);  // it was closed as connect returned
    fd = l;
    block_in(accept_it);
    close(l);
    int b = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK_OK(connect(b, (void *)&un, sizeof un));
    CHECK(result() >= 0);
    CHECK_ERR(connect(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&un, sizeof un), ECONNREFUSED);
}

static ssize_t epoll_it(void) {
    struct epoll_event e;
    return epoll_wait(fd, &e, 1, -1);
}
CASE(epoll_instance) {
    int ep = epoll_create1(0), ev = eventfd(0, 0);
    struct epoll_event e = {.events = EPOLLIN};
    CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, ev, &e) == 0);
    fd = ep;
    block_in(epoll_it);
    close(ep);
    CHECK(eventfd_write(ev, 1) == 0);
    CHECK_EQ(result(), 1);
}

// What is watched stays watched while a call uses it.
CASE(epoll_item) {
    int p[2], ep = epoll_create1(0);
    struct epoll_event e = {.events = EPOLLIN | EPOLLET};
    CHECK(pipe(p) == 0);
    CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, p[0], &e) == 0);
    fd = p[0];
    block_in(read_it);
    close(fd);
    CHECK_EQ(write(p[1], "abc", 3), 3);
    CHECK_EQ(result(), 3);
    CHECK_EQ(epoll_wait(ep, &e, 1, 0), 0);
}

CASE(eventfd_read) {
    fd = eventfd(0, 0);
    int d = dup(fd);
    block_in(read_it);
    close(fd);
    CHECK(eventfd_write(d, 7) == 0);
    CHECK_EQ(result(), 8);
}

CASE(timerfd_read) {
    fd = timerfd_create(CLOCK_MONOTONIC, 0);
    struct itimerspec t = {.it_value = {0, 300000000}};
    CHECK(timerfd_settime(fd, 0, &t, NULL) == 0);
    block_in(read_it);
    close(fd);
    CHECK_EQ(result(), 8);
}

CASE(signalfd_read) {
    sigset_t s;
    sigemptyset(&s);
    sigaddset(&s, SIGUSR1);
    CHECK(pthread_sigmask(SIG_BLOCK, &s, NULL) == 0);
    fd = signalfd(-1, &s, 0);
    block_in(read_it);
    close(fd);
    CHECK(kill(getpid(), SIGUSR1) == 0);
    CHECK_EQ(result(), sizeof(struct signalfd_siginfo));
}

CASE(inotify_read) {
    scratch();
    fd = inotify_init();
    CHECK(inotify_add_watch(fd, ".", IN_CREATE) > 0);
    block_in(read_it);
    close(fd);
    close(mkfile("new", ""));
    CHECK(result() > 0);
}

static ssize_t flock_it(void) { return flock(fd, LOCK_EX); }
CASE(flock_waits) {
    scratch();
    int a = mkfile("f", "x"), c = open("f", O_RDWR);
    CHECK(flock(a, LOCK_EX) == 0);
    fd = open("f", O_RDWR);
    block_in(flock_it);
    close(fd);
    CHECK(flock(a, LOCK_UN) == 0);
    CHECK_EQ(result(), 0);
    // Its lock went as the call returned.
    CHECK_OK(flock(c, LOCK_EX | LOCK_NB));
}

static ssize_t lock_it(void) {
    struct flock l = {.l_type = F_WRLCK};
    return fcntl(fd, F_SETLKW, &l);
}
CASE(record_lock_waits) {
    scratch();
    int a = mkfile("f", "x"), go[2], back[2];
    CHECK(pipe(go) == 0 && pipe(back) == 0);
    struct flock l = {.l_type = F_WRLCK};
    pid_t child = fork();
    if (child == 0) {
        CHECK(fcntl(a, F_SETLK, &l) == 0);
        CHECK_EQ(write(back[1], "x", 1), 1);
        CHECK_EQ(read(go[0], got, 1), 1);
        _exit(0);
    }
    CHECK_EQ(read(back[0], got, 1), 1);
    fd = open("f", O_RDWR);
    block_in(lock_it);
    close(fd);
    CHECK_EQ(write(go[1], "x", 1), 1);
    CHECK_ERR(result(), EBADF);
    CHECK(waitpid(child, NULL, 0) == child);
}

// A file may also be closed by its own user, in the middle of nothing.
CASE(closed_by_an_ended_thread) {
    int p[2];
    CHECK(pipe(p) == 0);
    signal(SIGPIPE, SIG_IGN);
    fd = p[0];
    block_in(read_it);
    pid_t child = fork();
    if (child == 0) {
        close(p[0]);
        close(p[1]);
        _exit(0);
    }
    CHECK(waitpid(child, NULL, 0) == child);
    close(p[1]);
    CHECK_EQ(result(), 0);
}

// The end of a process ends its blocked calls.
CASE(process_ends_with_blocked_threads) {
    int p[2], q[2];
    CHECK(pipe(p) == 0 && pipe(q) == 0);
    signal(SIGPIPE, SIG_IGN);
    pid_t child = fork();
    if (child == 0) {
        close(p[1]);
        fd = p[0];
        block_in(read_it);
        close(fd);
        CHECK_EQ(write(q[1], "x", 1), 1);
        pause();
    }
    close(p[0]);
    CHECK_EQ(read(q[0], got, 1), 1);
    CHECK(kill(child, SIGKILL) == 0);
    CHECK(waitpid(child, NULL, 0) == child);
    CHECK_ERR(write(p[1], "abc", 3), EPIPE);
}
