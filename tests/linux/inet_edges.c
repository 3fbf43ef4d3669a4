// TCP and UDP over loopback at their edges: options' values, errors on UDP, half-close, resets, linger, peeking, messages.
#include "t.h"
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <arpa/inet.h>

static struct sockaddr_in sa;
static socklen_t sl;
static int a, b, l;  // two ends, and a listener
static char buf[1 << 17];
static void loop(int port) {
    sa = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    sl = sizeof sa;
}
static void listening(void) {
    l = socket(AF_INET, SOCK_STREAM, 0);
    loop(0);
    CHECK(bind(l, (void *)&sa, sl) == 0 && listen(l, 8) == 0 && getsockname(l, (void *)&sa, &sl) == 0);
}
static void tcp(void) {
    listening();
    a = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(a, (void *)&sa, sl) == 0 && (b = accept(l, NULL, NULL)) >= 0);
}
static void udp(void) {
    a = socket(AF_INET, SOCK_DGRAM, 0), b = socket(AF_INET, SOCK_DGRAM, 0);
    loop(0);
    CHECK(bind(b, (void *)&sa, sl) == 0 && getsockname(b, (void *)&sa, &sl) == 0 && connect(a, (void *)&sa, sl) == 0);
}
static int get(int fd, int level, int name) {
    int v = -1;
    socklen_t n = sizeof v;
    CHECK(getsockopt(fd, level, name, &v, &n) == 0 && n == sizeof v);
    return v;
}
static int set(int fd, int level, int name, int v) { return setsockopt(fd, level, name, &v, sizeof v); }
static int events(int fd) {
    struct pollfd p = {fd, POLLIN | POLLOUT | POLLRDHUP | POLLPRI, 0};
    CHECK(poll(&p, 1, 0) >= 0);
    return p.revents;
}

CASE(option_defaults) {
    int s = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(get(s, SOL_SOCKET, SO_REUSEADDR) == 0 && get(s, SOL_SOCKET, SO_KEEPALIVE) == 0 && get(s, SOL_SOCKET, SO_BROADCAST) == 0);
    CHECK(get(s, IPPROTO_TCP, TCP_NODELAY) == 0 && get(s, IPPROTO_TCP, TCP_KEEPCNT) == 9 && get(s, IPPROTO_TCP, TCP_KEEPINTVL) == 75 && get(s, IPPROTO_TCP, TCP_KEEPIDLE) == 7200);
    CHECK(get(s, SOL_SOCKET, SO_TYPE) == SOCK_STREAM && get(s, SOL_SOCKET, SO_PROTOCOL) == IPPROTO_TCP && get(s, SOL_SOCKET, SO_DOMAIN) == AF_INET);
    CHECK(get(s, IPPROTO_IP, IP_TTL) == 64 && get(s, IPPROTO_IP, IP_TOS) == 0);
}
CASE(option_round_trips) {
    int s = socket(AF_INET, SOCK_STREAM, 0);
    int opts[][3] = {{SOL_SOCKET, SO_REUSEADDR, 1}, {SOL_SOCKET, SO_KEEPALIVE, 1}, {SOL_SOCKET, SO_REUSEPORT, 1}, {SOL_SOCKET, SO_OOBINLINE, 1}, {SOL_SOCKET, SO_PRIORITY, 3}, {IPPROTO_TCP, TCP_NODELAY, 1}, {IPPROTO_TCP, TCP_CORK, 1}, {IPPROTO_TCP, TCP_KEEPCNT, 4}, {IPPROTO_TCP, TCP_KEEPIDLE, 50}, {IPPROTO_TCP, TCP_KEEPINTVL, 20}, {IPPROTO_TCP, TCP_USER_TIMEOUT, 5000}, {IPPROTO_TCP, TCP_DEFER_ACCEPT, 1}, {IPPROTO_IP, IP_TTL, 33}, {IPPROTO_IP, IP_TOS, 0x10}};
    for (unsigned i = 0; i < sizeof opts / sizeof *opts; i++) {
        if (set(s, opts[i][0], opts[i][1], opts[i][2])) FAIL("option %d/%d: errno %d", opts[i][0], opts[i][1], errno);
        if (get(s, opts[i][0], opts[i][1]) != opts[i][2]) FAIL("option %d/%d reads %d", opts[i][0], opts[i][1], get(s, opts[i][0], opts[i][1]));
    }
}
CASE(option_errors) {
    int s = socket(AF_INET, SOCK_STREAM, 0), v = 1;
    CHECK_ERR(setsockopt(s, SOL_SOCKET, SO_KEEPALIVE, &v, 1), EINVAL);
    CHECK_ERR(setsockopt(s, SOL_SOCKET, SO_KEEPALIVE, BAD, 4), EFAULT);
    CHECK_ERR(set(s, IPPROTO_TCP, TCP_KEEPCNT, 0), EINVAL);
    CHECK_ERR(set(s, IPPROTO_TCP, TCP_KEEPIDLE, 40000), EINVAL);
    CHECK_ERR(set(s, IPPROTO_TCP, 9999, 1), ENOPROTOOPT);
    CHECK_ERR(set(s, 12345, 1, 1), ENOPROTOOPT);
    CHECK_ERR(set(s, IPPROTO_IP, IP_TTL, 256), EINVAL);
    CHECK_ERR(set(999, SOL_SOCKET, SO_KEEPALIVE, 1), EBADF);
    CHECK_ERR(set(open("/dev/null", O_RDWR), SOL_SOCKET, SO_KEEPALIVE, 1), ENOTSOCK);
    CHECK_ERR(set(socket(AF_INET, SOCK_DGRAM, 0), IPPROTO_TCP, TCP_NODELAY, 1), ENOPROTOOPT);
}
CASE(buffer_sizes_double_and_clamp) {
    int s = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(set(s, SOL_SOCKET, SO_RCVBUF, 20000) == 0 && get(s, SOL_SOCKET, SO_RCVBUF) == 40000);
    CHECK(set(s, SOL_SOCKET, SO_RCVBUF, 1) == 0 && get(s, SOL_SOCKET, SO_RCVBUF) >= 2048);
    CHECK(set(s, SOL_SOCKET, SO_SNDBUF, 1) == 0 && get(s, SOL_SOCKET, SO_SNDBUF) >= 4096);
    CHECK(set(s, SOL_SOCKET, SO_RCVBUF, INT_MAX) == 0 && get(s, SOL_SOCKET, SO_RCVBUF) > 100000);
}
CASE(linger_and_timeouts_are_structures) {
    int s = socket(AF_INET, SOCK_STREAM, 0);
    struct linger g = {1, 7}, h = {0};
    socklen_t n = sizeof h;
    CHECK(setsockopt(s, SOL_SOCKET, SO_LINGER, &g, sizeof g) == 0 && getsockopt(s, SOL_SOCKET, SO_LINGER, &h, &n) == 0 && h.l_onoff && h.l_linger == 7);
    struct timeval tv = {2, 500000}, tw;
    n = sizeof tw;
    CHECK(setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv) == 0 && getsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &tw, &n) == 0 && tw.tv_sec == 2 && tw.tv_usec == 500000);
    tv.tv_usec = 1000000;
    CHECK_ERR(setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv), EDOM);
    CHECK_ERR(setsockopt(s, SOL_SOCKET, SO_LINGER, &g, 4), EINVAL);
}
CASE(socket_arguments) {
    CHECK_ERR(socket(AF_INET, 77, 0), EINVAL);
    CHECK_ERR(socket(AF_INET, SOCK_STREAM, IPPROTO_UDP), EPROTONOSUPPORT);
    CHECK_ERR(socket(AF_INET, SOCK_SEQPACKET, 0), ESOCKTNOSUPPORT);
    CHECK_ERR(socket(999, SOCK_STREAM, 0), EAFNOSUPPORT);
    CHECK_ERR(socket(AF_INET, SOCK_STREAM | 0x100, 0), EINVAL);
    int p[2];
    CHECK_ERR(socketpair(AF_INET, SOCK_STREAM, 0, p), EOPNOTSUPP);
    int s = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
    CHECK(fcntl(s, F_GETFL) & O_NONBLOCK && fcntl(s, F_GETFD) == FD_CLOEXEC);
}
CASE(address_argument_errors) {
    int s = socket(AF_INET, SOCK_STREAM, 0);
    loop(0);
    CHECK_ERR(bind(s, (void *)&sa, 4), EINVAL);
    CHECK_ERR(bind(s, BAD, sl), EFAULT);
    CHECK_ERR(connect(s, (void *)&sa, 4), EINVAL);
    sa.sin_family = AF_INET6;
    CHECK_ERR(bind(s, (void *)&sa, sl), EAFNOSUPPORT);
    sa.sin_family = AF_INET;
    CHECK(bind(s, (void *)&sa, sl) == 0);
    CHECK_ERR(bind(s, (void *)&sa, sl), EINVAL);  // already
    socklen_t neg = -1;
    CHECK_ERR(getsockname(s, (void *)&sa, &neg), EINVAL);
    CHECK_ERR(getpeername(s, (void *)&sa, &sl), ENOTCONN);
}
CASE(half_close_keeps_the_other_way) {
    tcp();
    CHECK(shutdown(a, SHUT_WR) == 0);
    EVENTUALLY(events(b) & POLLRDHUP);
    CHECK_EQ(recv(b, buf, 10, 0), 0);
    CHECK_EQ(events(b), POLLIN | POLLOUT | POLLRDHUP);
    for (int i = 0; i < 10; i++) CHECK(send(b, buf, 1000, 0) == 1000);
    CHECK_EQ(recv(a, buf, 10000, MSG_WAITALL), 10000);
    CHECK_ERR(send(a, "x", 1, MSG_NOSIGNAL), EPIPE);
    CHECK_EQ(events(a) & POLLHUP, 0);
    CHECK(shutdown(b, SHUT_WR) == 0);
    EVENTUALLY(events(a) & POLLHUP);
}
CASE(reset_seen_by_reader_writer_and_poll) {
    tcp();
    struct linger g = {1, 0};
    CHECK(send(a, "x", 1, 0) == 1);
    CHECK(setsockopt(b, SOL_SOCKET, SO_LINGER, &g, sizeof g) == 0 && close(b) == 0);
    EVENTUALLY(events(a) & POLLERR);
    CHECK(events(a) & POLLHUP);
    CHECK_EQ(get(a, SOL_SOCKET, SO_ERROR), ECONNRESET);
    CHECK_EQ(get(a, SOL_SOCKET, SO_ERROR), 0);  // taken
    CHECK_ERR(send(a, "x", 1, MSG_NOSIGNAL), EPIPE);
    CHECK_EQ(recv(a, buf, 1, 0), 0);
}
CASE(second_write_after_close_is_epipe) {
    tcp();
    close(b);
    EVENTUALLY(events(a) & POLLRDHUP);
    CHECK_EQ(send(a, "x", 1, MSG_NOSIGNAL), 1);
    EVENTUALLY(send(a, "x", 1, MSG_NOSIGNAL) == -1);
    CHECK(errno == EPIPE || errno == ECONNRESET);
}
CASE(data_before_end_is_delivered) {
    tcp();
    CHECK(send(a, buf, 50000, 0) == 50000 && close(a) == 0);
    long n, all = 0;
    while ((n = recv(b, buf, sizeof buf, 0)) > 0) all += n;
    CHECK(n == 0 && all == 50000);
}
CASE(urgent_mark) {
    tcp();
    CHECK(send(a, "ab", 2, 0) == 2 && send(a, "!", 1, MSG_OOB) == 1 && send(a, "cd", 2, 0) == 2);
    EVENTUALLY(events(b) & POLLPRI);
    CHECK_EQ(recv(b, buf, 10, 0), 2);  // reading stops at the mark
    CHECK_EQ(ioctl(b, SIOCATMARK, buf) == 0 && *(int *)buf, 1);
    CHECK(recv(b, buf, 1, MSG_OOB) == 1 && buf[0] == '!');
    CHECK_ERR(recv(b, buf, 1, MSG_OOB), EINVAL);
    CHECK(recv(b, buf, 10, 0) == 2 && buf[0] == 'c');
}
CASE(peek_trunc_and_waitall) {
    tcp();
    CHECK(send(a, "abcdef", 6, 0) == 6);
    EVENTUALLY(recv(b, buf, 10, MSG_PEEK) == 6);
    CHECK(recv(b, buf, 3, MSG_PEEK | MSG_WAITALL) == 3 && recv(b, NULL, 2, MSG_TRUNC) == 2);  // discarded
    CHECK(recv(b, buf, 10, 0) == 4 && buf[0] == 'c');
    CHECK_ERR(recv(b, buf, 1, MSG_DONTWAIT), EAGAIN);
}
CASE(waitall_over_a_timeout) {
    tcp();
    struct timeval tv = {0, 50000};
    CHECK(setsockopt(b, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv) == 0 && send(a, "ab", 2, 0) == 2);
    CHECK_EQ(recv(b, buf, 10, MSG_WAITALL), 2);
    CHECK_ERR(recv(b, buf, 10, 0), EAGAIN);
}
CASE(more_flag_and_scatter) {
    tcp();
    CHECK(send(a, "ab", 2, MSG_MORE) == 2 && send(a, "cd", 2, 0) == 2);
    struct iovec v[3] = {{buf, 1}, {buf + 100, 2}, {buf + 200, 1}};
    struct msghdr m = {.msg_iov = v, .msg_iovlen = 3};
    CHECK_EQ(recvmsg(b, &m, MSG_WAITALL), 4);
    CHECK(buf[0] == 'a' && !memcmp(buf + 100, "bc", 2) && buf[200] == 'd');
}
CASE(connect_twice_and_states) {
    tcp();
    CHECK_ERR(connect(a, (void *)&sa, sl), EISCONN);
    CHECK_ERR(connect(l, (void *)&sa, sl), EISCONN);
    CHECK_ERR(listen(a, 1), EINVAL);
    CHECK_ERR(accept(a, NULL, NULL), EINVAL);
    CHECK_ERR(recv(l, buf, 1, 0), ENOTCONN);
    CHECK_ERR(send(l, buf, 1, MSG_NOSIGNAL), EPIPE);
    CHECK_ERR(shutdown(l + 50, SHUT_WR), EBADF);
    int s = socket(AF_INET, SOCK_STREAM, 0);
    CHECK_ERR(shutdown(s, SHUT_WR), ENOTCONN);
    CHECK_ERR(recv(s, buf, 1, 0), ENOTCONN);
    CHECK_ERR(send(s, buf, 1, MSG_NOSIGNAL), EPIPE);
}
CASE(refused_then_reused) {
    listening();
    close(l);
    int s = socket(AF_INET, SOCK_STREAM, 0);
    CHECK_ERR(connect(s, (void *)&sa, sl), ECONNREFUSED);
    int keep = ntohs(sa.sin_port);
    l = socket(AF_INET, SOCK_STREAM, 0);
    loop(keep);
    CHECK(bind(l, (void *)&sa, sl) == 0 && listen(l, 1) == 0);
    CHECK(connect(s, (void *)&sa, sl) == 0);  // the socket can try again
}
CASE(nonblocking_connect_reports_once) {
    listening();
    close(l);
    int s = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    int r = connect(s, (void *)&sa, sl);
    CHECK(r == -1 && (errno == EINPROGRESS || errno == ECONNREFUSED));
    if (errno == EINPROGRESS) {
        EVENTUALLY(events(s) & POLLERR);
        CHECK_EQ(get(s, SOL_SOCKET, SO_ERROR), ECONNREFUSED);
    }
}
CASE(accept_gives_the_address_cut_to_room) {
    listening();
    a = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(a, (void *)&sa, sl) == 0);
    struct sockaddr_in r, me;
    memset(&r, 0xee, sizeof r);
    socklen_t n = 4, k = sizeof me;
    b = accept(l, (void *)&r, &n);
    CHECK(b >= 0 && n == sizeof r && getsockname(a, (void *)&me, &k) == 0);
    CHECK(r.sin_port == me.sin_port && r.sin_addr.s_addr == 0xeeeeeeee);
}
CASE(tcp_info_and_state) {
    tcp();
    struct tcp_info i;
    socklen_t n = sizeof i;
    CHECK(getsockopt(a, IPPROTO_TCP, TCP_INFO, &i, &n) == 0 && i.tcpi_state == TCP_ESTABLISHED);
    n = sizeof i;
    CHECK(getsockopt(l, IPPROTO_TCP, TCP_INFO, &i, &n) == 0 && i.tcpi_state == TCP_LISTEN);
    n = 8;
    CHECK(getsockopt(a, IPPROTO_TCP, TCP_INFO, &i, &n) == 0 && n == 8);
    CHECK(get(a, IPPROTO_TCP, TCP_MAXSEG) > 500);
}
CASE(udp_error_comes_once_and_clears) {
    udp();
    close(b);
    CHECK_EQ(send(a, "x", 1, 0), 1);
    EVENTUALLY(events(a) & POLLERR);
    CHECK_ERR(recv(a, buf, 1, MSG_DONTWAIT), ECONNREFUSED);
    CHECK_ERR(recv(a, buf, 1, MSG_DONTWAIT), EAGAIN);
    CHECK_EQ(events(a) & POLLERR, 0);
}
CASE(udp_connected_filters_and_disconnects) {
    udp();
    int c = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in me, none = {.sin_family = AF_UNSPEC};
    socklen_t n = sizeof me;
    CHECK(getsockname(a, (void *)&me, &n) == 0);
    CHECK(sendto(c, "no", 2, 0, (void *)&me, n) == 2 && sendto(b, "yes", 3, 0, (void *)&me, n) == 3);
    CHECK_EQ(recv(a, buf, 10, 0), 3);
    CHECK(connect(a, (void *)&none, sizeof none) == 0);
    CHECK_ERR(send(a, "x", 1, 0), EDESTADDRREQ);
    CHECK_ERR(getpeername(a, (void *)&me, &n), ENOTCONN);
}
CASE(udp_sizes) {
    udp();
    CHECK_ERR(send(a, buf, 65508, 0), EMSGSIZE);
    CHECK_EQ(send(a, buf, 65507, 0), 65507);
    CHECK_EQ(recv(b, buf, 10, MSG_TRUNC), 65507);
    CHECK(send(a, "", 0, 0) == 0 && recv(b, buf, 10, 0) == 0);
    int n;
    CHECK(send(a, "abc", 3, 0) == 3 && send(a, "de", 2, 0) == 2 && ioctl(b, FIONREAD, &n) == 0 && n == 3);
}
CASE(udp_peek_keeps_source) {
    udp();
    struct sockaddr_in r, me;
    socklen_t n = sizeof r, k = sizeof me;
    CHECK(send(a, "abc", 3, 0) == 3 && getsockname(a, (void *)&me, &k) == 0);
    CHECK(recvfrom(b, buf, 1, MSG_PEEK, (void *)&r, &n) == 1 && r.sin_port == me.sin_port);
    CHECK(recvfrom(b, buf, 10, 0, (void *)&r, &n) == 3);
}
CASE(udp_packet_information) {
    udp();
    CHECK(set(b, IPPROTO_IP, IP_PKTINFO, 1) == 0 && set(b, IPPROTO_IP, IP_RECVTTL, 1) == 0);
    CHECK_EQ(send(a, "x", 1, 0), 1);
    char c[200];
    struct iovec v = {buf, 10};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = c, .msg_controllen = sizeof c};
    CHECK_EQ(recvmsg(b, &m, 0), 1);
    int info = 0, ttl = 0;
    for (struct cmsghdr *h = CMSG_FIRSTHDR(&m); h; h = CMSG_NXTHDR(&m, h)) {
        if (h->cmsg_level == IPPROTO_IP && h->cmsg_type == IP_PKTINFO) info = ((struct in_pktinfo *)CMSG_DATA(h))->ipi_addr.s_addr == htonl(INADDR_LOOPBACK);
        if (h->cmsg_level == IPPROTO_IP && h->cmsg_type == IP_TTL) ttl = *(int *)CMSG_DATA(h);
    }
    CHECK(info && ttl == 64);
}
CASE(udp_shutdown) {
    udp();
    CHECK(shutdown(a, SHUT_WR) == 0);
    CHECK_ERR(send(a, "x", 1, MSG_NOSIGNAL), EPIPE);
    CHECK(shutdown(a, SHUT_RD) == 0 && recv(a, buf, 1, 0) == 0);
    CHECK_ERR(shutdown(socket(AF_INET, SOCK_DGRAM, 0), SHUT_RD), ENOTCONN);
}
CASE(many_messages_at_once) {
    udp();
    struct iovec v[3] = {{"a", 1}, {"bb", 2}, {"ccc", 3}}, r[4];
    struct mmsghdr m[3], in[4];
    memset(m, 0, sizeof m), memset(in, 0, sizeof in);
    for (int i = 0; i < 3; i++) m[i].msg_hdr.msg_iov = &v[i], m[i].msg_hdr.msg_iovlen = 1;
    for (int i = 0; i < 4; i++) r[i] = (struct iovec){buf + 100 * i, 100}, in[i].msg_hdr.msg_iov = &r[i], in[i].msg_hdr.msg_iovlen = 1;
    CHECK(sendmmsg(a, m, 3, 0) == 3 && m[2].msg_len == 3);
    struct timespec bad = {0, -1};
    CHECK_ERR(recvmmsg(b, in, 4, 0, &bad), EINVAL);
    CHECK(recvmmsg(b, in, 4, MSG_WAITFORONE, NULL) == 3 && in[1].msg_len == 2);
    m[1].msg_hdr.msg_iov = BAD;
    CHECK_EQ(sendmmsg(a, m, 3, 0), 1);  // what went before the error
    CHECK_ERR(sendmmsg(a, m + 1, 1, 0), EFAULT);
}
CASE(address_reuse_matrix) {
    listening();
    int s = socket(AF_INET, SOCK_STREAM, 0), port = ntohs(sa.sin_port);
    CHECK(set(s, SOL_SOCKET, SO_REUSEADDR, 1) == 0);
    CHECK_ERR(bind(s, (void *)&sa, sl), EADDRINUSE);  // somebody listens
    sa.sin_addr.s_addr = htonl(INADDR_ANY);
    CHECK_ERR(bind(s, (void *)&sa, sl), EADDRINUSE);
    loop(port);
    sa.sin_addr.s_addr = htonl(0x7f000002);
    CHECK(bind(s, (void *)&sa, sl) == 0);  // another address
    int u = socket(AF_INET, SOCK_DGRAM, 0);
    loop(port);
    CHECK(bind(u, (void *)&sa, sl) == 0);  // another protocol
}
CASE(reuseport_shares_when_all_ask) {
    int s[2];
    loop(0);
    for (int i = 0; i < 2; i++) {
        s[i] = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(set(s[i], SOL_SOCKET, SO_REUSEPORT, 1) == 0 && bind(s[i], (void *)&sa, sl) == 0 && listen(s[i], 4) == 0);
        CHECK(getsockname(s[i], (void *)&sa, &sl) == 0);
    }
    int t = socket(AF_INET, SOCK_STREAM, 0);
    CHECK_ERR(bind(t, (void *)&sa, sl), EADDRINUSE);
    CHECK(connect(t, (void *)&sa, sl) == 0);
    EVENTUALLY((events(s[0]) | events(s[1])) & POLLIN);
}
CASE(closed_listener_frees_the_port_with_reuseaddr) {
    tcp();
    int port = ntohs(sa.sin_port);
    CHECK(set(a, SOL_SOCKET, SO_REUSEADDR, 1) == 0 && set(b, SOL_SOCKET, SO_REUSEADDR, 1) == 0);
    close(l), close(b), close(a);
    l = socket(AF_INET, SOCK_STREAM, 0);
    loop(port);
    CHECK(set(l, SOL_SOCKET, SO_REUSEADDR, 1) == 0 && bind(l, (void *)&sa, sl) == 0 && listen(l, 1) == 0);
}
CASE(v6_mapped_and_unspecified) {
    struct sockaddr_in6 s6 = {.sin6_family = AF_INET6}, r;
    int s = socket(AF_INET6, SOCK_STREAM, 0), c = socket(AF_INET, SOCK_STREAM, 0);
    if (s < 0) SKIP("no IPv6");
    socklen_t n = sizeof s6;
    CHECK(bind(s, (void *)&s6, n) == 0 && listen(s, 2) == 0 && getsockname(s, (void *)&s6, &n) == 0);
    loop(ntohs(s6.sin6_port));
    CHECK(connect(c, (void *)&sa, sl) == 0);
    n = sizeof r;
    CHECK(accept(s, (void *)&r, &n) >= 0 && r.sin6_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&r.sin6_addr));
    CHECK_EQ(get(s, IPPROTO_IPV6, IPV6_V6ONLY), 0);
    CHECK_ERR(set(s, IPPROTO_IPV6, IPV6_V6ONLY, 1), EINVAL);  // too late
}
