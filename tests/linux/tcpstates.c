// TCP state by state: ends and resets, listeners that stop, ports shared by SO_REUSEPORT, mapped addresses.
#include "t.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

static struct sockaddr_in at;
static socklen_t alen = sizeof at;
static char b[64];

static int tcp(void) {
    int s = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(s >= 0);
    return s;
}
static int bound(int type) {
    int s = socket(AF_INET, type, 0);
    memset(&at, 0, sizeof at);
    at.sin_family = AF_INET, at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(bind(s, (void *)&at, sizeof at) == 0 && getsockname(s, (void *)&at, &alen) == 0);
    return s;
}
static int listening(int backlog) {
    int s = bound(SOCK_STREAM);
    CHECK(listen(s, backlog) == 0);
    return s;
}
static int dial(void) {
    int c = tcp();
    CHECK_OK(connect(c, (void *)&at, sizeof at));
    return c;
}
static int state(int s) {
    struct tcp_info i;
    socklen_t l = sizeof i;
    CHECK(getsockopt(s, SOL_TCP, TCP_INFO, &i, &l) == 0);
    return i.tcpi_state;
}
static int error_of(int s) {
    int e = -1;
    socklen_t l = sizeof e;
    CHECK(getsockopt(s, SOL_SOCKET, SO_ERROR, &e, &l) == 0);
    return e;
}
static void reset(int s) {
    struct linger l = {1, 0};
    CHECK(setsockopt(s, SOL_SOCKET, SO_LINGER, &l, sizeof l) == 0);
    close(s);
}
static void wait_for(int s, int events) {
    struct pollfd p = {s, events, 0};
    CHECK_EQ(poll(&p, 1, 30000), 1);
}

CASE(end_then_reset_is_the_end) {
    int l = listening(4), c = dial(), s = accept(l, NULL, NULL);
    CHECK_EQ(send(s, "abc", 3, 0), 3);
    close(s);
    wait_for(c, POLLRDHUP);
    CHECK_EQ(send(c, "x", 1, MSG_NOSIGNAL), 1);
    EVENTUALLY(state(c) == TCP_CLOSE);
    CHECK_EQ(recv(c, b, sizeof b, 0), 3);
    CHECK_EQ(recv(c, b, sizeof b, 0), 0);
    CHECK_EQ(recv(c, b, sizeof b, 0), 0);
    CHECK_EQ(error_of(c), EPIPE);
    CHECK_EQ(recv(c, b, sizeof b, 0), 0);
    CHECK_ERR(send(c, "x", 1, MSG_NOSIGNAL), EPIPE);
}

CASE(end_then_reset_by_the_other) {
    int l = listening(4), c = dial(), s = accept(l, NULL, NULL);
    CHECK(shutdown(s, SHUT_WR) == 0);
    wait_for(c, POLLRDHUP);
    reset(s);
    EVENTUALLY(state(c) == TCP_CLOSE);
    CHECK_EQ(recv(c, b, sizeof b, 0), 0);
    CHECK_EQ(error_of(c), EPIPE);
}

CASE(reset_without_end) {
    int l = listening(4), c = dial(), s = accept(l, NULL, NULL);
    reset(s);
    wait_for(c, POLLIN);
    CHECK_ERR(recv(c, b, sizeof b, 0), ECONNRESET);
    CHECK_EQ(recv(c, b, sizeof b, 0), 0);
    CHECK_ERR(send(c, "x", 1, MSG_NOSIGNAL), EPIPE);
}

CASE(states_of_half_closed) {
    int l = listening(4), c = dial(), s = accept(l, NULL, NULL);
    CHECK_EQ(state(c), TCP_ESTABLISHED);
    CHECK(shutdown(c, SHUT_RD) == 0);
    CHECK_EQ(state(c), TCP_ESTABLISHED);
    CHECK(shutdown(c, SHUT_RDWR) == 0);
    EVENTUALLY(state(c) == TCP_FIN_WAIT2);
    EVENTUALLY(state(s) == TCP_CLOSE_WAIT);
    CHECK_OK(getpeername(c, (void *)&at, &alen));
    CHECK(shutdown(s, SHUT_WR) == 0);
    EVENTUALLY(state(c) == TCP_CLOSE && state(s) == TCP_CLOSE);
    CHECK_ERR(getpeername(c, (void *)&at, &alen), ENOTCONN);
    CHECK_ERR(getpeername(s, (void *)&at, &alen), ENOTCONN);
    CHECK_EQ(recv(s, b, sizeof b, 0), 0);
}

CASE(listener_shut_down_resets_its_queue) {
    int l = listening(4), c = dial(), e = tcp();
    CHECK(shutdown(l, SHUT_RD) == 0);
    wait_for(c, POLLIN);
    CHECK_ERR(recv(c, b, sizeof b, 0), ECONNRESET);
    CHECK_ERR(connect(e, (void *)&at, sizeof at), ECONNREFUSED);
    CHECK_ERR(accept(l, NULL, NULL), EINVAL);
    CHECK(listen(l, 4) == 0);
    CHECK_OK(getsockname(l, (void *)&at, &alen));  // Linux chooses again a port that it had chosen
    CHECK_OK(connect(e, (void *)&at, sizeof at));
    CHECK(accept(l, NULL, NULL) >= 0);
}

CASE(shutdown_while_connecting) {
    int l = listening(0), c = dial(), d = tcp();
    (void)l, (void)c;
    CHECK(fcntl(d, F_SETFL, O_NONBLOCK) == 0);
    CHECK_ERR(connect(d, (void *)&at, sizeof at), EINPROGRESS);
    CHECK_EQ(state(d), TCP_SYN_SENT);
    CHECK_OK(shutdown(d, SHUT_RDWR));
    CHECK_EQ(state(d), TCP_CLOSE);
    CHECK_EQ(error_of(d), ECONNRESET);
    CHECK_ERR(getpeername(d, (void *)&at, &alen), ENOTCONN);
}

CASE(connected_to_itself) {
    int s = bound(SOCK_STREAM);
    CHECK_OK(connect(s, (void *)&at, sizeof at));
    struct sockaddr_in peer;
    CHECK_OK(getpeername(s, (void *)&peer, &alen));
    CHECK_EQ(peer.sin_port, at.sin_port);
    CHECK_EQ(send(s, "abc", 3, 0), 3);
    CHECK_EQ(recv(s, b, sizeof b, 0), 3);
    CHECK_OK(shutdown(s, SHUT_WR));
    CHECK_EQ(recv(s, b, sizeof b, 0), 0);
    CHECK(close(s) == 0);
}

CASE(truncated_peek_takes_nothing) {
    int l = listening(4), c = dial(), s = accept(l, NULL, NULL);
    CHECK_EQ(send(c, "abcd", 4, 0), 4);
    wait_for(s, POLLIN);
    CHECK_EQ(recv(s, b, 4, MSG_PEEK | MSG_TRUNC), 4);
    CHECK_EQ(recv(s, b, 2, MSG_TRUNC), 2);
    CHECK_EQ(recv(s, b, sizeof b, 0), 2);
    CHECK(!memcmp(b, "cd", 2));
}

// Each of those who share a port gets its part of what many send; who sends again reaches the same one.
static void spread(int type) {
    enum { N = 3, M = 120 };
    int s[N], on = 1, got[N] = {0};
    memset(&at, 0, sizeof at);
    at.sin_family = AF_INET, at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (int i = 0; i < N; i++) {
        s[i] = socket(AF_INET, type, 0);
        CHECK(setsockopt(s[i], SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) == 0);
        CHECK_OK(bind(s[i], (void *)&at, sizeof at));
        CHECK(getsockname(s[i], (void *)&at, &alen) == 0);
        if (type == SOCK_STREAM) CHECK_OK(listen(s[i], 256));
    }
    for (int i = 0; i < M; i++) {
        int c = socket(AF_INET, type, 0), from = -1;
        CHECK_OK(connect(c, (void *)&at, sizeof at));
        for (int again = 0; again < (type == SOCK_STREAM ? 1 : 2); again++) {
            if (type == SOCK_DGRAM) CHECK_EQ(send(c, "x", 1, 0), 1);
            struct pollfd p[N];
            for (int k = 0; k < N; k++) p[k] = (struct pollfd){s[k], POLLIN, 0};
            CHECK_EQ(poll(p, N, 30000), 1);
            int k = p[0].revents ? 0 : p[1].revents ? 1 : 2;
            CHECK(from < 0 || from == k);
            from = k, got[k]++;
            if (type == SOCK_STREAM) close(accept(s[k], NULL, NULL));
            else CHECK_EQ(recv(s[k], b, 9, 0), 1);
        }
        close(c);
    }
    for (int k = 0; k < N; k++) CHECK(got[k] >= M / 12);
}
CASE(shared_port_spreads_connections) { spread(SOCK_STREAM); }
CASE(shared_port_spreads_datagrams) { spread(SOCK_DGRAM); }

static void bind_mapped(int type) {
    struct sockaddr_in6 a = {.sin6_family = AF_INET6};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t l = sizeof a;
    int on = 1, s = socket(AF_INET6, type, 0), only = socket(AF_INET6, type, 0);
    if (s < 0) SKIP("no IPv6");
    CHECK(inet_pton(AF_INET6, "::ffff:0.0.0.0", &a.sin6_addr) == 1);
    CHECK(setsockopt(only, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on) == 0);
    CHECK_ERR(bind(only, (void *)&a, sizeof a), EINVAL);
    CHECK_OK(bind(s, (void *)&a, sizeof a));
    CHECK_OK(getsockname(s, (void *)&a, &l));
    CHECK(inet_ntop(AF_INET6, &a.sin6_addr, b, sizeof b) && !strcmp(b, "::ffff:0.0.0.0"));
    if (type == SOCK_STREAM) CHECK_OK(listen(s, 4));
    to.sin_port = a.sin6_port;
    int c = socket(AF_INET, type, 0);
    CHECK_OK(connect(c, (void *)&to, sizeof to));
    CHECK_EQ(send(c, "abc", 3, 0), 3);
    int r = type == SOCK_STREAM ? accept(s, NULL, NULL) : s;
    CHECK_EQ(recv(r, b, sizeof b, 0), 3);
    // The port is free for IPv6.
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = a.sin6_port, .sin6_addr = in6addr_loopback};
    CHECK_OK(bind(only, (void *)&six, sizeof six));
}
CASE(mapped_wildcard_tcp) { bind_mapped(SOCK_STREAM); }
CASE(mapped_wildcard_udp) { bind_mapped(SOCK_DGRAM); }
