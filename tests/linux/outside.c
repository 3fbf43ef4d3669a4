// Sockets to a server outside the domain (partner.py), which the network service executes: the same as Linux's own.
// T_OUTSIDE is the server's address, T_PUBLISHED a port of ours that it can call.
#define T_HELPER
#include "t.h"

#include <arpa/inet.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>

static struct sockaddr_in partner(void) {
    static struct sockaddr_in a = {.sin_family = AF_INET};
    const char *where = getenv("T_OUTSIDE");
    if (!where) SKIP("T_OUTSIDE is not set");
    char ip[32];
    int port;
    CHECK(sscanf(where, "%31[^:]:%d", ip, &port) == 2 && inet_aton(ip, &a.sin_addr));
    a.sin_port = htons(port);
    return a;
}
static int published(void) {
    const char *p = getenv("T_PUBLISHED");
    if (!p) SKIP("T_PUBLISHED is not set");
    return atoi(p);
}
static int plain(int kind) {
    struct sockaddr_in a = partner();
    int s = socket(AF_INET, kind, 0);
    CHECK(s >= 0);
    CHECK_OK(connect(s, (void *)&a, sizeof a));
    return s;
}
static int udp(void) { return plain(SOCK_DGRAM); }
// A connection on which the partner does this.
static int ask(const char *fmt, ...) {
    char line[300];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    int s = plain(SOCK_STREAM);
    line[n++] = '\n';
    CHECK_EQ(send(s, line, n, MSG_NOSIGNAL), n);
    return s;
}
static char *line_of(int s) {
    static char b[4096];
    size_t n = 0;
    while (n < sizeof b - 1 && read(s, b + n, 1) == 1 && b[n] != '\n') n++;
    b[n] = 0;
    close(s);
    return b;
}
// A name for what happens on one connection.
static const char *key(void) {
    static char k[64];
    static int n;
    snprintf(k, sizeof k, "%s-%d-%lld-%d", t_name, getpid(), (long long)now_us(), n++);
    return k;
}
static void go(const char *k) { CHECK(!strcmp(line_of(ask("go %s", k)), "ok")); }
static char *told(const char *k) { return line_of(ask("told %s", k)); }
static void full(int s, const char *want) {
    char b[100] = {0};
    size_t n = strlen(want), have = 0;
    while (have < n) {
        ssize_t r = read(s, b + have, n - have);
        CHECK(r > 0);
        have += r;
    }
    CHECK(!memcmp(b, want, n));
}
static int events(int s, int want, int timeout) {
    struct pollfd p = {s, want, 0};
    int r = poll(&p, 1, timeout);
    CHECK(r >= 0);
    return p.revents;
}
// Nobody has this port of the partner's host.
static struct sockaddr_in nobody(void) {
    struct sockaddr_in a = partner();
    a.sin_port = htons(1);
    return a;
}
static void nonblock(int s) { CHECK_OK(fcntl(s, F_SETFL, O_NONBLOCK)); }
// Whatever stands between has had a turn since, however busy this machine is: another connection was served.
static void everybody_had_a_turn(void) {
    int other = ask("pieces %s a", key());
    full(other, "a");
    CHECK_OK(close(other));
}
// Sends until nothing more goes; value: how much that was.
static long fill(int s) {
    static char b[65536];
    long total = 0;
    for (int quiet = 0; quiet < 20;) {
        ssize_t n = send(s, b, sizeof b, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n > 0) total += n, quiet = 0;
        else {
            CHECK(errno == EAGAIN);
            quiet++;
            everybody_had_a_turn();
            pause_ms(5);
        }
    }
    return total;
}
static void linger(int s, int on, int seconds) {
    struct linger l = {on, seconds};
    CHECK_OK(setsockopt(s, SOL_SOCKET, SO_LINGER, &l, sizeof l));
}
static int option(int s, int level, int name) {
    int v = -12345;
    socklen_t l = sizeof v;
    CHECK_OK(getsockopt(s, level, name, &v, &l));
    return v;
}
static void set(int s, int level, int name, int v) { CHECK_OK(setsockopt(s, level, name, &v, sizeof v)); }
static void no_more(int sig, siginfo_t *i, void *u) { (void)sig, (void)i, (void)u; }
static volatile int signals;
static void count(int sig, siginfo_t *i, void *u) { (void)sig, (void)i, (void)u, signals++; }

// Connections

CASE(names_of_both_ends) {
    int s = ask("echo");
    struct sockaddr_in a, to = partner();
    socklen_t l = sizeof a;
    CHECK_OK(getpeername(s, (void *)&a, &l));
    CHECK(a.sin_addr.s_addr == to.sin_addr.s_addr && a.sin_port == to.sin_port);
    CHECK_OK(getsockname(s, (void *)&a, &l));
    CHECK(a.sin_family == AF_INET && a.sin_port != 0 && a.sin_addr.s_addr != INADDR_ANY);
    CHECK_EQ(option(s, SOL_SOCKET, SO_ERROR), 0);
    CHECK_EQ(option(s, SOL_SOCKET, SO_PROTOCOL), IPPROTO_TCP);
    struct tcp_info i;
    l = sizeof i;
    CHECK_OK(getsockopt(s, IPPROTO_TCP, TCP_INFO, &i, &l));
    CHECK_EQ(i.tcpi_state, TCP_ESTABLISHED);
    CHECK(i.tcpi_snd_mss > 0 && i.tcpi_pmtu >= 1280);
    CHECK_ERR(connect(s, (void *)&to, sizeof to), EISCONN);
}
CASE(refused_at_once_or_by_poll) {
    struct sockaddr_in a = nobody();
    CHECK_ERR(connect(socket(AF_INET, SOCK_STREAM, 0), (void *)&a, sizeof a), ECONNREFUSED);
    int s = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    CHECK_ERR(connect(s, (void *)&a, sizeof a), EINPROGRESS);
    CHECK_EQ(events(s, POLLIN | POLLOUT | POLLRDHUP, 30000), POLLIN | POLLOUT | POLLERR | POLLHUP | POLLRDHUP);
    CHECK_EQ(option(s, SOL_SOCKET, SO_ERROR), ECONNREFUSED);
    CHECK_EQ(option(s, SOL_SOCKET, SO_ERROR), 0);
}
CASE(connected_by_poll) {
    struct sockaddr_in a = partner();
    int s = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    CHECK_EQ(events(s, POLLIN | POLLOUT, 0), POLLOUT | POLLHUP);
    CHECK_ERR(connect(s, (void *)&a, sizeof a), EINPROGRESS);
    CHECK_EQ(events(s, POLLIN | POLLOUT, 30000), POLLOUT);
    CHECK_EQ(option(s, SOL_SOCKET, SO_ERROR), 0);
    CHECK_EQ(send(s, "echo\nx", 6, 0), 6);
    CHECK_EQ(events(s, POLLIN, 30000), POLLIN);
}
CASE(a_socket_is_used_again_after_a_disconnect) {
    int s = ask("watch %s", key());
    struct sockaddr no = {.sa_family = AF_UNSPEC};
    CHECK_OK(connect(s, &no, sizeof no));
    struct sockaddr_in a = partner();
    CHECK_ERR(getpeername(s, (void *)&a, (socklen_t[]){sizeof a}), ENOTCONN);
    CHECK_OK(connect(s, (void *)&a, sizeof a));
    CHECK_EQ(send(s, "echo\nabc", 8, 0), 8);
    full(s, "abc");
}
CASE(half_close_from_here) {
    const char *k = key();
    int s = ask("half %s", k);
    full(s, "hello");
    char b;
    CHECK_EQ(read(s, &b, 1), 0);
    CHECK_EQ(events(s, POLLIN | POLLOUT | POLLRDHUP, 0), POLLIN | POLLOUT | POLLRDHUP);
    CHECK_EQ(write(s, "12345", 5), 5);
    CHECK_OK(shutdown(s, SHUT_WR));
    CHECK(!strcmp(told(k), "end 5"));
    CHECK_EQ(events(s, POLLIN | POLLOUT | POLLRDHUP, 0) & POLLHUP, POLLHUP);
    CHECK_EQ(send(s, "x", 1, MSG_NOSIGNAL), -1);
    CHECK_EQ(errno, EPIPE);
}
CASE(half_close_from_there) {
    int s = ask("echo");
    CHECK_EQ(write(s, "abc", 3), 3);
    CHECK_OK(shutdown(s, SHUT_WR));
    full(s, "abc");
    char b;
    CHECK_EQ(read(s, &b, 1), 0);
    CHECK_ERR(send(s, "x", 1, MSG_NOSIGNAL), EPIPE);
    CHECK_EQ(join(SPAWN({ write(s, "x", 1); })), 128 + SIGPIPE);
}
CASE(reading_ends_after_shutdown_for_reading) {
    int s = ask("echo");
    CHECK_OK(shutdown(s, SHUT_RD));
    char b;
    CHECK_EQ(read(s, &b, 1), 0);
    CHECK_EQ(events(s, POLLIN | POLLRDHUP, 0), POLLIN | POLLRDHUP);
    CHECK_EQ(write(s, "x", 1), 1);
}
CASE(a_reset_is_told_once) {
    int s = ask("reset text");
    full(s, "text");
    CHECK_EQ(write(s, "x", 1), 1);
    EVENTUALLY(events(s, 0, 0) & POLLERR);
    CHECK_EQ(events(s, POLLIN | POLLOUT | POLLRDHUP, 0), POLLIN | POLLOUT | POLLERR | POLLHUP | POLLRDHUP);
    char b;
    CHECK_ERR(read(s, &b, 1), ECONNRESET);
    CHECK_EQ(read(s, &b, 1), 0);
    CHECK_ERR(send(s, "x", 1, MSG_NOSIGNAL), EPIPE);
}
CASE(linger_zero_resets) {
    const char *k = key();
    int s = ask("watch %s", k);
    CHECK_EQ(write(s, "abc", 3), 3);
    linger(s, 1, 0);
    CHECK_OK(close(s));
    char *r = told(k);
    CHECK(!strncmp(r, "reset", 5));
}
CASE(unread_bytes_reset) {
    int s = ask("echo"), n;
    CHECK_EQ(write(s, "abc", 3), 3);
    EVENTUALLY(ioctl(s, FIONREAD, &n) == 0 && n == 3);
    CHECK_OK(close(s));
    // The partner's next read fails, which it survives.
    full(ask("pieces %s abc", key()), "abc");
}
CASE(bytes_before_the_end_arrive) {
    const char *k = key();
    int s = ask("watch %s", k);
    static char b[300000];
    for (int i = 0; i < 10; i++) CHECK_EQ(write(s, b, sizeof b), (ssize_t)sizeof b);
    CHECK_OK(close(s));
    CHECK(!strcmp(told(k), "end 3000000"));
}
static int lingering;
static volatile int closed;
static void *closes(void *u) {
    (void)u;
    close(lingering);
    closed = 1;
    return NULL;
}
CASE(linger_waits_until_all_is_sent) {
    char k[64], want[40];
    strcpy(k, key());
    lingering = ask("watch %s 1", k);
    snprintf(want, sizeof want, "end %ld", fill(lingering));
    linger(lingering, 1, 60);
    pthread_t t;
    pthread_create(&t, NULL, closes, NULL);
    msleep(100);
    CHECK_EQ(closed, 0);
    go(k);
    pthread_join(t, NULL);
    CHECK(!strcmp(told(k), want));
}
CASE(linger_gives_up_and_sends_on) {
    char k[64], want[40];
    strcpy(k, key());
    int s = ask("watch %s 1", k);
    snprintf(want, sizeof want, "end %ld", fill(s));
    linger(s, 1, 1);
    int64_t begun = now_us();
    CHECK_OK(close(s));
    CHECK(now_us() - begun >= 900000);
    go(k);
    CHECK(!strcmp(told(k), want));
}
CASE(without_linger_nobody_waits) {
    char k[64], want[40];
    strcpy(k, key());
    int s = ask("watch %s 1", k);
    snprintf(want, sizeof want, "end %ld", fill(s));
    CHECK_OK(close(s));
    go(k);
    CHECK(!strcmp(told(k), want));
}

// Flags

CASE(peek_keeps_and_waitall_waits) {
    char k[64], b[10] = {0};
    strcpy(k, key());
    int s = ask("pieces %s ab cd ef", k);
    CHECK_EQ(recv(s, b, 2, MSG_WAITALL), 2);
    CHECK_ERR(recv(s, b, 1, MSG_DONTWAIT), EAGAIN);
    pid_t p = SPAWN({ msleep(30); go(k); msleep(30); go(k); });
    CHECK_EQ(recv(s, b, 4, MSG_WAITALL | MSG_PEEK), 4);
    CHECK(!memcmp(b, "cdef", 4));
    CHECK_EQ(recv(s, b, 4, MSG_WAITALL), 4);
    CHECK(!memcmp(b, "cdef", 4));
    CHECK_EQ(join(p), 0);
    CHECK_ERR(recv(s, b, 1, MSG_DONTWAIT | MSG_PEEK), EAGAIN);
    go(k);
    CHECK_EQ(recv(s, b, 4, MSG_WAITALL), 0);
}
CASE(waitall_gives_what_came_before_the_end) {
    char k[64], b[10] = {0};
    strcpy(k, key());
    int s = ask("pieces %s abc", k);
    pid_t p = SPAWN({ msleep(30); go(k); });
    CHECK_EQ(recv(s, b, 10, MSG_WAITALL), 3);
    CHECK_EQ(join(p), 0);
}
CASE(trunc_drops_bytes) {
    int s = ask("pieces %s abcdef", key()), n;
    EVENTUALLY(ioctl(s, FIONREAD, &n) == 0 && n == 6);
    CHECK_EQ(recv(s, NULL, 4, MSG_TRUNC), 4);
    full(s, "ef");
}
CASE(low_water_holds_poll_back) {
    char k[64], b[10];
    strcpy(k, key());
    int s = ask("pieces %s ab cd", k), n;
    EVENTUALLY(ioctl(s, FIONREAD, &n) == 0 && n == 2);
    CHECK_EQ(events(s, POLLIN, 0), POLLIN);
    set(s, SOL_SOCKET, SO_RCVLOWAT, 4);
    CHECK_EQ(events(s, POLLIN, 0), 0);
    pid_t p = SPAWN({ msleep(30); go(k); });
    CHECK_EQ(events(s, POLLIN, 30000), POLLIN);
    CHECK_EQ(join(p), 0);
    CHECK_EQ(recv(s, b, sizeof b, 0), 4);
}
CASE(times_to_wait) {
    struct timeval tv = {0, 30000};
    char b, k[64];
    strcpy(k, key());
    int s = ask("watch %s 1", k);
    CHECK_OK(setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv));
    CHECK_OK(setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof tv));
    CHECK_ERR(read(s, &b, 1), EAGAIN);
    fill(s);
    // What lies in the host's buffers may still have gone on meanwhile.
    ssize_t n;
    while ((n = send(s, "x", 1, 0)) == 1) {
    }
    CHECK(n == -1 && errno == EAGAIN);
    go(k);
}
CASE(a_full_connection_is_not_writable) {
    char k[64];
    strcpy(k, key());
    int s = ask("watch %s 1", k), n;
    nonblock(s);
    fill(s);
    CHECK_EQ(events(s, POLLOUT, 0), 0);
    CHECK(ioctl(s, SIOCOUTQ, &n) == 0 && n > 0);
    go(k);
    CHECK_EQ(events(s, POLLOUT, 30000), POLLOUT);
    EVENTUALLY(ioctl(s, SIOCOUTQ, &n) == 0 && n == 0);
}

// Waiting for several

// Until no edge is left: Linux may wake those who wait after it has shown them the bytes, which is one more. Were it no
// matter of edges, they would never end.
static void quiet(int e) {
    struct epoll_event got[4];
    EVENTUALLY(epoll_wait(e, got, 4, 20) == 0);
}
CASE(edges_come_once_for_each_arrival) {
    char k[64];
    strcpy(k, key());
    int s = ask("pieces %s ab cd ef", k), e = epoll_create1(0);
    struct epoll_event ev = {EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, {.u64 = 7}}, got[4];
    CHECK_OK(epoll_ctl(e, EPOLL_CTL_ADD, s, &ev));
    EVENTUALLY(epoll_wait(e, got, 4, 100) == 1 && got[0].events == (EPOLLIN | EPOLLOUT));
    quiet(e);
    // New bytes are a new edge though the old ones were not taken.
    go(k);
    CHECK(epoll_wait(e, got, 4, 30000) == 1 && (got[0].events & EPOLLIN));
    full(s, "abcd");
    quiet(e);
    go(k);
    CHECK(epoll_wait(e, got, 4, 30000) == 1 && (got[0].events & EPOLLIN));
    go(k);
    EVENTUALLY(epoll_wait(e, got, 4, 100) == 1 && (got[0].events & EPOLLRDHUP));
    quiet(e);
    ev.events = EPOLLIN | EPOLLONESHOT;
    CHECK_OK(epoll_ctl(e, EPOLL_CTL_MOD, s, &ev));
    CHECK(epoll_wait(e, got, 4, 30000) == 1 && got[0].events == EPOLLIN);
    CHECK_EQ(epoll_wait(e, got, 4, 20), 0);
}
CASE(writable_edge_after_a_full_buffer) {
    char k[64];
    strcpy(k, key());
    int s = ask("watch %s 1", k), e = epoll_create1(0);
    struct epoll_event ev = {EPOLLOUT | EPOLLET, {0}}, got;
    CHECK_OK(epoll_ctl(e, EPOLL_CTL_ADD, s, &ev));
    CHECK_EQ(epoll_wait(e, &got, 1, 30000), 1);
    fill(s);
    while (epoll_wait(e, &got, 1, 0) == 1) fill(s);
    go(k);
    CHECK(epoll_wait(e, &got, 1, 30000) == 1 && got.events == EPOLLOUT);
}
CASE(remote_and_local_descriptors_together) {
    char k[64], b[8];
    strcpy(k, key());
    int s = ask("pieces %s ab cd", k), p[2], e = eventfd(0, 0), u = udp(), ep = epoll_create1(0);
    full(s, "ab");
    CHECK_OK(pipe(p));
    struct epoll_event ev = {EPOLLIN, {0}};
    CHECK_OK(epoll_ctl(ep, EPOLL_CTL_ADD, s, &ev));
    CHECK_OK(epoll_ctl(ep, EPOLL_CTL_ADD, u, &ev));
    struct pollfd f[4] = {{s, POLLIN, 0}, {p[0], POLLIN, 0}, {e, POLLIN, 0}, {ep, POLLIN, 0}};
    CHECK_EQ(poll(f, 4, 20), 0);
    pid_t c = SPAWN({ msleep(20); go(k); });
    CHECK(poll(f, 4, 30000) >= 1);
    CHECK(f[0].revents == POLLIN || f[3].revents == POLLIN);
    EVENTUALLY(poll(f, 4, 0) == 2 && f[0].revents == POLLIN && f[3].revents == POLLIN);
    full(s, "cd");
    CHECK_EQ(join(c), 0);
    CHECK_EQ(send(u, "hey", 3, 0), 3);
    CHECK_EQ(write(p[1], "x", 1), 1);
    EVENTUALLY(poll(f, 4, 100) == 2 && f[1].revents == POLLIN && f[3].revents == POLLIN);
    fd_set r;
    FD_ZERO(&r);
    FD_SET(s, &r);
    FD_SET(u, &r);
    FD_SET(p[0], &r);
    CHECK_EQ(select(FD_SETSIZE, &r, NULL, NULL, NULL), 2);
    CHECK(FD_ISSET(u, &r) && FD_ISSET(p[0], &r) && !FD_ISSET(s, &r));
    CHECK_EQ(recv(u, b, sizeof b, 0), 3);
}

// Signals

CASE(signals_interrupt_and_restart) {
    char k[64], b[4];
    strcpy(k, key());
    int s = ask("pieces %s ab cd", k);
    full(s, "ab");
    on_signal(SIGUSR1, count, 0);
    pid_t self = getpid(), p = SPAWN({ for (;;) msleep(20), kill(self, SIGUSR1); });
    CHECK_ERR(read(s, b, 2), EINTR);
    struct pollfd f = {s, POLLIN, 0};
    CHECK_ERR(poll(&f, 1, -1), EINTR);
    on_signal(SIGUSR1, count, SA_RESTART);
    int before = signals;
    pid_t q = SPAWN({ msleep(150); go(k); });
    CHECK_EQ(read(s, b, 2), 2);
    CHECK(signals > before);
    kill(p, SIGKILL);
    join(p), join(q);
}
CASE(a_signal_ends_a_send_with_what_was_sent) {
    static char b[32 << 20];
    char k[64];
    strcpy(k, key());
    int s = ask("watch %s 1", k);
    on_signal(SIGALRM, no_more, 0);
    struct itimerval t = {{0, 20000}, {0, 100000}};
    CHECK_OK(setitimer(ITIMER_REAL, &t, NULL));
    ssize_t n = send(s, b, sizeof b, 0);
    CHECK(n > 0 && n < (ssize_t)sizeof b);
    // The host's buffers may have grown since.
    ssize_t more;
    while ((more = send(s, b, sizeof b, 0)) > 0) n += more;
    CHECK_EQ(errno, EINTR);
    memset(&t, 0, sizeof t);
    setitimer(ITIMER_REAL, &t, NULL);
    go(k);
    close(s);
    char want[40];
    snprintf(want, sizeof want, "end %zd", n);
    CHECK(!strcmp(told(k), want));
}

// Descriptors that move

int t_helper(int argc, char **argv) {
    int s = atoi(argv[1] + 1);
    if (argc < 2 || write(s, "from exec", 9) != 9) return 3;
    char b[9];
    return recv(s, b, 9, MSG_WAITALL) == 9 && !memcmp(b, "from exec", 9) ? 0 : 4;
}
CASE(dup_fork_and_exec_share_a_connection) {
    int s = ask("echo"), d = dup(s);
    char arg[16];
    CHECK(d >= 0);
    CHECK_OK(close(s));
    CHECK_EQ(join(SPAWN({ write(d, "child", 5); full(d, "child"); })), 0);
    snprintf(arg, sizeof arg, "@%d", d);
    CHECK_EQ(join(SPAWN({ execl(t_self, t_self, arg, NULL); _exit(9); })), 0);
    CHECK_EQ(write(d, "parent", 6), 6);
    full(d, "parent");
}
CASE(a_connection_is_passed_to_another_process) {
    int p[2], s = ask("echo");
    CHECK_OK(socketpair(AF_UNIX, SOCK_STREAM, 0, p));
    union {
        struct cmsghdr h;
        char b[CMSG_SPACE(sizeof(int))];
    } c = {0};
    struct iovec v = {"x", 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = sizeof c};
    pid_t child = SPAWN({
        close(s);
        char b;
        v.iov_base = &b;
        CHECK_EQ(recvmsg(p[1], &m, 0), 1);
        int got = *(int *)CMSG_DATA(&c.h);
        CHECK_EQ(write(got, "passed", 6), 6);
        full(got, "passed");
    });
    c.h.cmsg_len = CMSG_LEN(sizeof(int));
    c.h.cmsg_level = SOL_SOCKET, c.h.cmsg_type = SCM_RIGHTS;
    *(int *)CMSG_DATA(&c.h) = s;
    CHECK_EQ(sendmsg(p[0], &m, 0), 1);
    CHECK_OK(close(s));
    CHECK_EQ(join(child), 0);
}
CASE(files_and_pipes_are_sent_and_received) {
    scratch();
    static char b[200000], c[200000];
    for (size_t i = 0; i < sizeof b; i++) b[i] = i * 7;
    int f = open("file", O_CREAT | O_RDWR, 0600), s = ask("echo"), p[2];
    CHECK_EQ(write(f, b, sizeof b), (ssize_t)sizeof b);
    off_t at = 0;
    pid_t q = SPAWN({
        while (at < (off_t)sizeof b) CHECK(sendfile(s, f, &at, sizeof b - at) > 0);
        shutdown(s, SHUT_WR);
    });
    CHECK_EQ(recv(s, c, sizeof c, MSG_WAITALL), (ssize_t)sizeof c);
    CHECK(!memcmp(b, c, sizeof b));
    CHECK_EQ(join(q), 0);
    s = ask("echo");
    CHECK_OK(pipe(p));
    CHECK_EQ(write(p[1], b, 5000), 5000);
    for (int left = 5000; left > 0;) left -= CHECK_OK(splice(p[0], NULL, s, NULL, left, SPLICE_F_MORE));
    for (int have = 0; have < 5000;) {
        int n = CHECK_OK(splice(s, NULL, p[1], NULL, 5000 - have, 0));
        CHECK(n > 0 && read(p[0], c + have, n) == n);
        have += n;
    }
    CHECK(!memcmp(b, c, 5000));
}
CASE(scattered_buffers_and_more_to_come) {
    int s = ask("echo");
    char a[3], b[4];
    struct iovec out[3] = {{"ab", 2}, {"", 0}, {"cde", 3}}, in[2] = {{a, 3}, {b, 4}};
    struct msghdr m = {.msg_iov = out, .msg_iovlen = 3};
    CHECK_EQ(sendmsg(s, &m, MSG_MORE | MSG_NOSIGNAL), 5);
    CHECK_EQ(send(s, "fg", 2, 0), 2);
    m.msg_iov = in, m.msg_iovlen = 2;
    CHECK_EQ(recvmsg(s, &m, MSG_WAITALL), 7);
    CHECK(!memcmp(a, "abc", 3) && !memcmp(b, "defg", 4));
}
CASE(a_flood_arrives_in_order) {
    int s = ask("flood 3000000");
    static unsigned char b[100000];
    long at = 0;
    ssize_t n;
    while ((n = read(s, b, sizeof b)) > 0)
        for (ssize_t i = 0; i < n; i++, at++) CHECK_EQ(b[i], at % 251 * 7 % 251);
    CHECK(n == 0 && at >= 3000000);
}

// Options

CASE(options_of_a_connection) {
    int s = ask("echo"), mss = option(s, IPPROTO_TCP, TCP_MAXSEG), mtu = option(s, IPPROTO_IP, IP_MTU);
    CHECK(mss >= 536 && mss < mtu && mtu >= 1280 && mtu <= 65536);
    int tcp[][2] = {{TCP_NODELAY, 1}, {TCP_CORK, 0}, {TCP_KEEPIDLE, 33}, {TCP_KEEPINTVL, 7}, {TCP_KEEPCNT, 4}, {TCP_SYNCNT, 3},
                    {TCP_USER_TIMEOUT, 9000}, {TCP_LINGER2, 5}, {TCP_NOTSENT_LOWAT, 4096}};
    for (size_t i = 0; i < sizeof tcp / sizeof *tcp; i++) {
        set(s, IPPROTO_TCP, tcp[i][0], tcp[i][1]);
        CHECK_EQ(option(s, IPPROTO_TCP, tcp[i][0]), tcp[i][1]);
    }
    int ip[][2] = {{IP_TOS, 0x10}, {IP_TTL, 33}, {IP_MTU_DISCOVER, IP_PMTUDISC_DO}, {IP_RECVTOS, 1}};
    for (size_t i = 0; i < sizeof ip / sizeof *ip; i++) {
        set(s, IPPROTO_IP, ip[i][0], ip[i][1]);
        CHECK_EQ(option(s, IPPROTO_IP, ip[i][0]), ip[i][1]);
    }
    set(s, SOL_SOCKET, SO_KEEPALIVE, 1);
    set(s, SOL_SOCKET, SO_PRIORITY, 3);
    CHECK_EQ(option(s, SOL_SOCKET, SO_PRIORITY), 3);
    CHECK_ERR(setsockopt(s, IPPROTO_TCP, TCP_KEEPIDLE, (int[]){0}, 4), EINVAL);
    CHECK_ERR(setsockopt(s, IPPROTO_TCP, TCP_CONGESTION, "nothing", 7), ENOENT);
    CHECK_EQ(write(s, "abc", 3), 3);
    full(s, "abc");
}
CASE(a_corked_connection_sends_all_in_the_end) {
    int s = ask("echo"), wide = 100000;
    set(s, IPPROTO_TCP, TCP_CORK, 1);
    CHECK_EQ(write(s, "ab", 2), 2);
    CHECK_EQ(write(s, "cd", 2), 2);
    full(s, "abcd");  // after 200 ms at the latest
    CHECK_EQ(write(s, "ef", 2), 2);
    set(s, IPPROTO_TCP, TCP_CORK, 0);
    full(s, "ef");
    CHECK_EQ(send(s, "gh", 2, MSG_MORE), 2);
    CHECK_EQ(events(s, POLLIN, 60000), POLLIN);
    full(s, "gh");
    // More than is held back, and then the end while something is.
    set(s, IPPROTO_TCP, TCP_CORK, 1);
    char *b = calloc(1, wide);
    for (int at = 0; at < wide; at += 1000) CHECK_EQ(write(s, b, 1000), 1000);
    CHECK_OK(shutdown(s, SHUT_WR));
    for (ssize_t n, have = 0; have < wide; have += n) CHECK((n = read(s, b, wide)) > 0);
    CHECK_EQ(read(s, b, 1), 0);
}
CASE(an_unconnected_socket_knows_no_mtu) {
    int s = socket(AF_INET, SOCK_DGRAM, 0), v;
    CHECK_ERR(getsockopt(s, IPPROTO_IP, IP_MTU, &v, (socklen_t[]){4}), ENOTCONN);
}
CASE(marks_need_privilege) {
    CHECK_EQ(join(SPAWN({
        int s = ask("echo");
        t_drop_root();
        CHECK_ERR(setsockopt(s, SOL_SOCKET, SO_MARK, (int[]){1}, 4), EPERM);
        CHECK_ERR(setsockopt(s, SOL_SOCKET, SO_SNDBUFFORCE, (int[]){9999}, 4), EPERM);
        CHECK_ERR(setsockopt(s, SOL_SOCKET, SO_PRIORITY, (int[]){7}, 4), EPERM);
        CHECK_OK(setsockopt(s, SOL_SOCKET, SO_PRIORITY, (int[]){6}, 4));
    })), 0);
}
CASE(a_socket_of_one_device) {
    int s = socket(AF_INET, SOCK_STREAM, 0);
    char name[16] = {0};
    socklen_t l = sizeof name;
    CHECK_OK(getsockopt(s, SOL_SOCKET, SO_BINDTODEVICE, name, &l));
    CHECK_EQ(l, 0);
    CHECK_OK(setsockopt(s, SOL_SOCKET, SO_BINDTODEVICE, "lo", 2));
    l = sizeof name;
    CHECK_OK(getsockopt(s, SOL_SOCKET, SO_BINDTODEVICE, name, &l));
    CHECK(l == 3 && !strcmp(name, "lo"));
    CHECK_OK(setsockopt(s, SOL_SOCKET, SO_BINDTODEVICE, "", 0));
    CHECK_ERR(setsockopt(s, SOL_SOCKET, SO_BINDTODEVICE, "none0", 5), ENODEV);
}

// Datagrams

CASE(hops_and_class_of_datagrams_go_out) {
    int s = udp();
    char b[100] = {0};
    CHECK_EQ(send(s, "seen", 4, 0), 4);
    CHECK(recv(s, b, sizeof b - 1, 0) > 0 && !strcmp(b, "hops 64 class 0"));
    set(s, IPPROTO_IP, IP_TTL, 33);
    set(s, IPPROTO_IP, IP_TOS, 0x10);
    CHECK_EQ(send(s, "seen", 4, 0), 4);
    memset(b, 0, sizeof b);
    CHECK(recv(s, b, sizeof b - 1, 0) > 0 && !strcmp(b, "hops 33 class 16"));
    // Of one message.
    union {
        struct cmsghdr h;
        char b[CMSG_SPACE(sizeof(int))];
    } c = {0};
    struct iovec v = {"seen", 4};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = sizeof c};
    c.h.cmsg_len = CMSG_LEN(sizeof(int));
    c.h.cmsg_level = IPPROTO_IP, c.h.cmsg_type = IP_TTL;
    *(int *)CMSG_DATA(&c.h) = 44;
    CHECK_EQ(sendmsg(s, &m, 0), 4);
    memset(b, 0, sizeof b);
    CHECK(recv(s, b, sizeof b - 1, 0) > 0 && !strcmp(b, "hops 44 class 16"));
    CHECK_EQ(send(s, "seen", 4, 0), 4);
    memset(b, 0, sizeof b);
    CHECK(recv(s, b, sizeof b - 1, 0) > 0 && !strcmp(b, "hops 33 class 16"));
}
CASE(hops_class_and_address_of_datagrams_come_in) {
    int s = udp();
    set(s, IPPROTO_IP, IP_RECVTTL, 1);
    set(s, IPPROTO_IP, IP_RECVTOS, 1);
    set(s, IPPROTO_IP, IP_PKTINFO, 1);
    CHECK_EQ(send(s, "marked 44 8", 11, 0), 11);
    char b[100], c[200];
    struct sockaddr_in from, own, to = partner();
    socklen_t l = sizeof own;
    struct iovec v = {b, sizeof b};
    struct msghdr m = {.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &v, .msg_iovlen = 1, .msg_control = c, .msg_controllen = sizeof c};
    CHECK_EQ(recvmsg(s, &m, 0), 11);
    CHECK(from.sin_addr.s_addr == to.sin_addr.s_addr && from.sin_port == to.sin_port);
    CHECK_OK(getsockname(s, (void *)&own, &l));
    int seen = 0;
    for (struct cmsghdr *h = CMSG_FIRSTHDR(&m); h; h = CMSG_NXTHDR(&m, h)) {
        CHECK_EQ(h->cmsg_level, IPPROTO_IP);
        if (h->cmsg_type == IP_TTL) seen += *(int *)CMSG_DATA(h) == 44;
        if (h->cmsg_type == IP_TOS) seen += *CMSG_DATA(h) == 8;
        if (h->cmsg_type == IP_PKTINFO) {
            struct in_pktinfo *i = (void *)CMSG_DATA(h);
            seen += i->ipi_ifindex > 0 && i->ipi_addr.s_addr == own.sin_addr.s_addr;
        }
    }
    CHECK_EQ(seen, 3);
}
CASE(many_datagrams_in_a_call) {
    int s = udp();
    char b[8][8] = {{0}};
    struct iovec v[8];
    struct mmsghdr m[8] = {0};
    for (int i = 0; i < 8; i++) {
        sprintf(b[i], "m%d", i);
        v[i] = (struct iovec){b[i], 2};
        m[i].msg_hdr.msg_iov = &v[i], m[i].msg_hdr.msg_iovlen = 1;
    }
    CHECK_EQ(sendmmsg(s, m, 8, 0), 8);
    memset(b, 0, sizeof b);
    int got = 0;
    while (got < 8) got += CHECK_OK(recvmmsg(s, m + got, 8 - got, MSG_WAITFORONE, NULL));
    for (int i = 0; i < 8; i++) {
        CHECK_EQ(m[i].msg_len, 2);
        CHECK(b[i][0] == 'm' && b[i][1] == '0' + i);
    }
    CHECK_ERR(recvmmsg(s, m, 8, MSG_DONTWAIT, NULL), EAGAIN);
}
CASE(datagrams_are_cut_and_counted) {
    int s = udp(), n;
    char b[100];
    CHECK_EQ(send(s, "0123456789", 10, 0), 10);
    CHECK_EQ(events(s, POLLIN, 30000), POLLIN);
    CHECK(ioctl(s, FIONREAD, &n) == 0 && n == 10);
    CHECK_EQ(recv(s, b, 4, MSG_PEEK), 4);
    CHECK_EQ(recv(s, b, 4, MSG_PEEK | MSG_TRUNC), 10);
    struct iovec v = {b, 4};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
    CHECK_EQ(recvmsg(s, &m, 0), 4);
    CHECK_EQ(m.msg_flags, MSG_TRUNC);
    CHECK_ERR(recv(s, b, 4, MSG_DONTWAIT), EAGAIN);
    CHECK_EQ(send(s, "", 0, 0), 0);
    CHECK_EQ(recv(s, b, 4, 0), 0);
}
CASE(nobody_at_a_port_is_told_once) {
    struct sockaddr_in a = nobody();
    int s = socket(AF_INET, SOCK_DGRAM, 0);
    char b;
    CHECK_OK(connect(s, (void *)&a, sizeof a));
    CHECK_EQ(send(s, "x", 1, 0), 1);
    CHECK_ERR(recv(s, &b, 1, 0), ECONNREFUSED);
    CHECK_EQ(send(s, "x", 1, 0), 1);
    EVENTUALLY(events(s, 0, 0) == POLLERR);
    CHECK_EQ(option(s, SOL_SOCKET, SO_ERROR), ECONNREFUSED);
    CHECK_ERR(recv(s, &b, 1, MSG_DONTWAIT), EAGAIN);
}

// Urgent bytes

CASE(an_urgent_byte_is_sent) {
    char k[64];
    strcpy(k, key());
    int s = ask("hear %s", k);
    CHECK_EQ(send(s, "ab", 2, 0), 2);
    CHECK_EQ(send(s, "cX", 2, MSG_OOB), 2);
    CHECK_EQ(send(s, "de", 2, 0), 2);
    CHECK_OK(shutdown(s, SHUT_WR));
    go(k);
    CHECK(!strcmp(told(k), "abc[X]de"));
}
static int urged(const char *k, const char *before, const char *urgent, const char *after) {
    int s = ask("urge %s %s %s %s", k, before, urgent, after);
    CHECK_EQ(events(s, POLLPRI, 30000), POLLPRI);
    return s;
}
static int at_mark(int s) {
    int v;
    CHECK_OK(ioctl(s, SIOCATMARK, &v));
    return v;
}
CASE(an_urgent_byte_is_received_apart) {
    char b[10];
    int s = urged(key(), "abc", "X", "def"), n;
    CHECK_EQ(at_mark(s), 0);
    CHECK(ioctl(s, FIONREAD, &n) == 0 && n == 3);
    CHECK_EQ(recv(s, b, 10, MSG_OOB | MSG_PEEK), 1);
    struct iovec v = {b, 10};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
    CHECK_EQ(recvmsg(s, &m, MSG_OOB), 1);
    CHECK(b[0] == 'X' && (m.msg_flags & MSG_OOB));
    CHECK_ERR(recv(s, b, 10, MSG_OOB), EINVAL);
    CHECK_EQ(events(s, POLLPRI | POLLIN, 0), POLLIN);
    // A read stops at the mark, where the byte was.
    CHECK_EQ(recv(s, b, 10, 0), 3);
    CHECK(!memcmp(b, "abc", 3));
    CHECK_EQ(at_mark(s), 1);
    CHECK_EQ(recv(s, b, 3, MSG_WAITALL), 3);
    CHECK(!memcmp(b, "def", 3));
    CHECK_EQ(at_mark(s), 0);
}
CASE(an_urgent_byte_that_nobody_wants_is_left_out) {
    char b[10];
    int s = urged(key(), "abc", "X", "def");
    CHECK_EQ(recv(s, b, 10, MSG_WAITALL), 3);
    CHECK_EQ(recv(s, b, 3, MSG_WAITALL), 3);
    CHECK(!memcmp(b, "def", 3));
    CHECK_ERR(recv(s, b, 10, MSG_OOB), EINVAL);
    CHECK_EQ(events(s, POLLPRI | POLLIN, 0), 0);
}
CASE(an_urgent_byte_in_line) {
    char b[10];
    int s = urged(key(), "abc", "X", "def");
    set(s, SOL_SOCKET, SO_OOBINLINE, 1);
    CHECK_ERR(recv(s, b, 10, MSG_OOB), EINVAL);
    CHECK_EQ(recv(s, b, 10, 0), 3);
    CHECK_EQ(at_mark(s), 1);
    CHECK_EQ(events(s, POLLIN, 0), POLLIN);
    CHECK_EQ(recv(s, b, 4, MSG_WAITALL), 4);
    CHECK(!memcmp(b, "Xdef", 4));
    CHECK_EQ(at_mark(s), 0);
}
CASE(an_urgent_byte_alone_is_nothing_to_read) {
    char b[10], k[64];
    strcpy(k, key());
    int s = urged(k, "-", "X", "-");
    CHECK_EQ(at_mark(s), 1);
    CHECK_EQ(events(s, POLLIN, 0), 0);
    CHECK(recv(s, b, 10, MSG_OOB) == 1 && b[0] == 'X');
    CHECK_ERR(recv(s, b, 10, MSG_DONTWAIT), EAGAIN);
    go(k);
    CHECK_EQ(recv(s, b, 10, 0), 0);
}
CASE(urgent_bytes_come_with_signals_and_exceptions) {
    on_signal(SIGURG, count, SA_RESTART);
    char k[64];
    strcpy(k, key());
    int s = ask("pieces %s ab", k), u;
    full(s, "ab");
    go(k);
    u = ask("echo");
    CHECK_OK(fcntl(u, F_SETOWN, getpid()));
    CHECK_EQ(send(u, "!", 1, 0), 1);
    full(u, "!");
    CHECK_EQ(signals, 0);
    strcpy(k, key());  // the first one has not seen its own yet, perhaps
    int v = ask("urge_after %s", k);
    CHECK_OK(fcntl(v, F_SETOWN, getpid()));
    int e = epoll_create1(0);
    struct epoll_event ev = {EPOLLPRI | EPOLLET, {0}}, got;
    CHECK_OK(epoll_ctl(e, EPOLL_CTL_ADD, v, &ev));
    CHECK_EQ(epoll_wait(e, &got, 1, 20), 0);
    go(k);
    int r;
    while ((r = epoll_wait(e, &got, 1, 30000)) < 0) CHECK_EQ(errno, EINTR);
    CHECK(r == 1 && got.events == EPOLLPRI);
    EVENTUALLY(signals == 1);
    fd_set x;
    FD_ZERO(&x);
    FD_SET(v, &x);
    CHECK_EQ(select(v + 1, NULL, NULL, &x, NULL), 1);
}

// Those who call

static int listener(int kind) {
    int s = socket(AF_INET, kind, 0);
    set(s, SOL_SOCKET, SO_REUSEADDR, 1);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(published())};
    CHECK_OK(bind(s, (void *)&a, sizeof a));
    if (kind == SOCK_STREAM) CHECK_OK(listen(s, 8));
    return s;
}
CASE(callers_are_accepted) {
    int l = listener(SOCK_STREAM);
    set(l, SOL_SOCKET, SO_KEEPALIVE, 1);
    CHECK_EQ(events(l, POLLIN, 0), 0);
    int b = ask("call %d", published());
    CHECK_EQ(events(l, POLLIN, 30000), POLLIN);
    struct sockaddr_in from, name;
    socklen_t n = sizeof from;
    int s = accept4(l, (void *)&from, &n, SOCK_NONBLOCK | SOCK_CLOEXEC);
    CHECK(s >= 0 && n == sizeof from && from.sin_family == AF_INET && from.sin_port);
    CHECK(fcntl(s, F_GETFL) & O_NONBLOCK);
    CHECK_OK(getpeername(s, (void *)&name, &n));
    CHECK(name.sin_port == from.sin_port && name.sin_addr.s_addr == from.sin_addr.s_addr);
    CHECK_OK(getsockname(s, (void *)&name, &n));
    CHECK_EQ(ntohs(name.sin_port), published());
    CHECK_EQ(option(s, SOL_SOCKET, SO_KEEPALIVE), 1);
    CHECK(!strcmp(line_of(b), "ok"));
    fcntl(s, F_SETFL, 0);
    CHECK_EQ(write(s, "echo\nabc", 8), 8);
    full(s, "abc");
    CHECK_OK(close(l));
    CHECK_EQ(write(s, "def", 3), 3);
    full(s, "def");
}
CASE(a_caller_that_has_gone_is_accepted) {
    int l = listener(SOCK_STREAM);
    CHECK(!strcmp(line_of(ask("call_reset %d", published())), "ok"));
    int s = accept(l, NULL, NULL);
    CHECK(s >= 0);
    char b;
    EVENTUALLY(events(s, POLLIN, 0) & (POLLERR | POLLHUP));
    CHECK_ERR(read(s, &b, 1), ECONNRESET);
}
CASE(datagrams_of_callers_are_answered) {
    int s = listener(SOCK_DGRAM), b = ask("ask %d question", published());
    char m[100] = {0};
    struct sockaddr_in from;
    socklen_t n = sizeof from;
    CHECK_EQ(recvfrom(s, m, sizeof m, 0, (void *)&from, &n), 8);
    CHECK(!strcmp(m, "question"));
    CHECK_EQ(sendto(s, "answer", 6, 0, (void *)&from, n), 6);
    CHECK(!strcmp(line_of(b), "answer"));
}
