// Addresses after the end of a connection (FIN_WAIT_2, TIME_WAIT), and connections that are accepted late (TCP_DEFER_ACCEPT).
#include "t.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

static struct sockaddr_in at;
static socklen_t alen = sizeof at;
static int l, c, s;  // listener, client, server
static char b[64];

static int set(int fd, int level, int name, int v) { return setsockopt(fd, level, name, &v, sizeof v); }
static int tcp(int reuse) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0 && set(fd, SOL_SOCKET, SO_REUSEADDR, reuse) == 0);
    return fd;
}
// An address of this case alone: what else the machine does with its ports does not matter.
static struct sockaddr_in own(int port) {
    int of_case = 127 << 24 | 77 << 16 | (getpid() & 0x7fff) << 1;
    return (struct sockaddr_in){.sin_family = AF_INET, .sin_port = port, .sin_addr.s_addr = htonl(of_case)};
}
static int port_of(int fd) {
    struct sockaddr_in a;
    socklen_t n = sizeof a;
    CHECK(getsockname(fd, (void *)&a, &n) == 0);
    return a.sin_port;
}
// A connection whose listener is gone again.
static void connected(int reuse) {
    struct sockaddr_in me = own(0);
    l = tcp(reuse), at = own(0);
    CHECK(bind(l, (void *)&at, alen) == 0 && listen(l, 5) == 0 && getsockname(l, (void *)&at, &alen) == 0);
    c = tcp(reuse);
    CHECK(bind(c, (void *)&me, sizeof me) == 0);
    CHECK(connect(c, (void *)&at, alen) == 0 && (s = accept(l, NULL, NULL)) >= 0);
    close(l);
}
// What a bind of this port answers.
static int bound(int port, int reuse) {
    struct sockaddr_in a = own(port);
    int fd = tcp(reuse), e = bind(fd, (void *)&a, sizeof a) ? errno : 0;
    close(fd);
    return e;
}
// Until the other end has heard of it: a read ends.
static void ended(int fd) { CHECK_EQ(recv(fd, b, 1, 0), 0); }

static void server_first(int reuse) {
    connected(reuse);
    int port = at.sin_port;
    close(s);
    ended(c);
    CHECK(bound(port, 0) == EADDRINUSE && bound(port, 1) == (reuse ? 0 : EADDRINUSE));
    close(c);
    CHECK(bound(port, 0) == EADDRINUSE && bound(port, 1) == (reuse ? 0 : EADDRINUSE));
}
CASE(who_ends_first_keeps_its_address) { server_first(0); }
CASE(unless_both_reuse_it) { server_first(1); }
CASE(who_ends_second_does_not) {
    connected(0);
    int mine = port_of(c), port = at.sin_port;
    close(c);
    ended(s);
    CHECK_EQ(bound(mine, 0), EADDRINUSE);
    close(s);
    CHECK(bound(mine, 0) == EADDRINUSE && bound(port, 0) == 0);
}
CASE(shut_down_first_closed_last) {
    connected(0);
    int mine = port_of(c);
    CHECK(shutdown(c, SHUT_WR) == 0);
    ended(s);
    close(s);
    ended(c);
    CHECK(bound(at.sin_port, 0) == 0 && bound(mine, 0) == EADDRINUSE);
    close(c);
    CHECK_EQ(bound(mine, 0), EADDRINUSE);
}
CASE(resets_keep_nothing) {
    connected(0);
    int mine = port_of(c);
    struct linger now = {1, 0};
    CHECK(setsockopt(c, SOL_SOCKET, SO_LINGER, &now, sizeof now) == 0);
    close(c);
    CHECK_ERR(recv(s, b, 1, 0), ECONNRESET);
    EVENTUALLY(bound(mine, 0) == 0);
    close(s);
    EVENTUALLY(bound(at.sin_port, 0) == 0);
}
CASE(bytes_for_who_is_gone_free_its_address) {
    connected(0);
    int mine = port_of(c);
    close(c);
    ended(s);
    CHECK(send(s, "x", 1, MSG_NOSIGNAL) == 1);
    EVENTUALLY(bound(mine, 0) == 0);
}
CASE(other_addresses_of_the_port_are_free) {
    connected(0);
    int port = at.sin_port;
    close(s);
    ended(c);
    close(c);
    struct sockaddr_in a = own(port);
    a.sin_addr.s_addr ^= htonl(1);
    int fd = tcp(0);
    CHECK(bind(fd, (void *)&a, sizeof a) == 0);
    a.sin_addr.s_addr = 0;
    CHECK_ERR(bind(tcp(0), (void *)&a, sizeof a), EADDRINUSE);
}
CASE(they_are_in_the_table_of_connections) {
    connected(0);
    char want[64];
    snprintf(want, sizeof want, "%08X:%04X %08X:%04X 06", at.sin_addr.s_addr, ntohs(at.sin_port), at.sin_addr.s_addr, ntohs(port_of(c)));
    close(s);
    ended(c);
    close(c);
    EVENTUALLY(strstr(slurp("/proc/net/tcp"), want));
}

static void deferring(void) {
    l = tcp(0);
    at = own(0);
    CHECK(set(l, IPPROTO_TCP, TCP_DEFER_ACCEPT, 30) == 0 && fcntl(l, F_SETFL, O_NONBLOCK) == 0);
    CHECK(bind(l, (void *)&at, alen) == 0 && listen(l, 5) == 0 && getsockname(l, (void *)&at, &alen) == 0);
    c = tcp(0);
    CHECK(connect(c, (void *)&at, alen) == 0);
    CHECK_ERR(accept(l, NULL, NULL), EAGAIN);
}
static void accepted(void) {
    struct pollfd p = {l, POLLIN, 0};
    CHECK(poll(&p, 1, 30000) == 1 && (s = accept(l, NULL, NULL)) >= 0);
}
CASE(accepted_once_there_are_bytes) {
    deferring();
    struct pollfd p = {l, POLLIN, 0};
    CHECK(poll(&p, 1, 0) == 0);
    CHECK(send(c, "first", 5, 0) == 5);
    accepted();
    CHECK_EQ(recv(s, b, sizeof b, MSG_DONTWAIT), 5);
}
CASE(accepted_when_it_has_ended) {
    deferring();
    close(c);
    accepted();
    ended(s);
}
CASE(accepted_when_the_time_is_over) {
    l = tcp(0), c = tcp(0);
    at = own(0);
    CHECK(set(l, IPPROTO_TCP, TCP_DEFER_ACCEPT, 1) == 0);
    CHECK(bind(l, (void *)&at, alen) == 0 && listen(l, 5) == 0 && getsockname(l, (void *)&at, &alen) == 0);
    CHECK(connect(c, (void *)&at, alen) == 0);
    accepted();
    CHECK_ERR(recv(s, b, sizeof b, MSG_DONTWAIT), EAGAIN);
}
CASE(kept_back_only_where_asked) {
    deferring();
    CHECK(set(l, IPPROTO_TCP, TCP_DEFER_ACCEPT, 0) == 0);
    int d = tcp(0);
    CHECK(connect(d, (void *)&at, alen) == 0);
    accepted();
    CHECK(send(d, "d", 1, 0) == 1 && recv(s, b, sizeof b, 0) == 1 && b[0] == 'd');
}
