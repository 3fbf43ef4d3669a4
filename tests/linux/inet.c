// AF_INET and AF_INET6 loopback: TCP and UDP, states, errors, options, large transfers.
#include "t.h"
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <net/if.h>

union addr {
    struct sockaddr sa;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};
static socklen_t loop(union addr *a, int af, int port) {
    memset(a, 0, sizeof *a);
    a->sa.sa_family = af;
    if (af == AF_INET) {
        a->v4.sin_port = htons(port), a->v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        return sizeof a->v4;
    }
    a->v6.sin6_port = htons(port), a->v6.sin6_addr = in6addr_loopback;
    return sizeof a->v6;
}
static int port_of(int s) {
    union addr a;
    socklen_t l = sizeof a;
    CHECK(getsockname(s, &a.sa, &l) == 0);
    return ntohs(a.v4.sin_port);
}
static int sock(int af, int type) {
    int s = socket(af, type, 0);
    if (s < 0 && errno == EAFNOSUPPORT) SKIP("no such address family");
    CHECK(s >= 0);
    return s;
}
static int bound(int af, int type) {
    union addr a;
    socklen_t l = loop(&a, af, 0);
    int s = sock(af, type);
    if (bind(s, &a.sa, l) < 0 && errno == EADDRNOTAVAIL) SKIP("no loopback address of this family");
    return s;
}
static int listener(int af) {
    int s = bound(af, SOCK_STREAM);
    CHECK(listen(s, 16) == 0);
    CHECK(port_of(s) > 0);
    return s;
}
static int dial(int af, int port) {
    union addr a;
    socklen_t l = loop(&a, af, port);
    int c = sock(af, SOCK_STREAM);
    CHECK_OK(connect(c, &a.sa, l));
    return c;
}
static int ls, c, d;
static void conn(int af) {
    ls = listener(af);
    c = dial(af, port_of(ls));
    CHECK((d = accept(ls, NULL, NULL)) >= 0);
}
static int so(int fd, int level, int opt) {
    int v = -1;
    socklen_t l = sizeof v;
    CHECK_OK(getsockopt(fd, level, opt, &v, &l));
    return v;
}

static void echo(int af) {
    conn(af);
    char b[8];
    CHECK(write(c, "ping", 4) == 4 && read(d, b, 8) == 4 && !memcmp(b, "ping", 4));
    CHECK(write(d, "pong!", 5) == 5 && read(c, b, 8) == 5);
}
CASE(tcp4_echo) { echo(AF_INET); }
CASE(tcp6_echo) { echo(AF_INET6); }
CASE(tcp_names) {
    conn(AF_INET);
    union addr a, b;
    socklen_t l = sizeof a;
    CHECK(getpeername(c, &a.sa, &l) == 0 && l == sizeof a.v4);
    CHECK_EQ(ntohs(a.v4.sin_port), port_of(ls));
    l = sizeof b;
    CHECK(getpeername(d, &b.sa, &l) == 0);
    CHECK_EQ(ntohs(b.v4.sin_port), port_of(c));
    CHECK(b.v4.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
    CHECK_ERR(getpeername(ls, &a.sa, &l), ENOTCONN);
    l = 4;  // short buffer: truncated, true length told
    CHECK(getsockname(c, &a.sa, &l) == 0 && l == sizeof a.v4);
}
CASE(tcp_refused) {
    int s = bound(AF_INET, SOCK_STREAM);
    union addr a;
    socklen_t l = loop(&a, AF_INET, port_of(s));
    int k = sock(AF_INET, SOCK_STREAM);
    CHECK_ERR(connect(k, &a.sa, l), ECONNREFUSED);
}
CASE(tcp_nonblocking_connect) {
    ls = listener(AF_INET);
    union addr a;
    socklen_t l = loop(&a, AF_INET, port_of(ls));
    c = sock(AF_INET, SOCK_STREAM | SOCK_NONBLOCK);
    int r = connect(c, &a.sa, l);
    CHECK(r == 0 || errno == EINPROGRESS);
    struct pollfd p = {c, POLLOUT, 0};
    CHECK_EQ(poll(&p, 1, 30000), 1);
    CHECK_EQ(so(c, SOL_SOCKET, SO_ERROR), 0);
    r = connect(c, &a.sa, l);
    CHECK((r == -1 && errno == EISCONN) || r == 0);
    CHECK_ERR(connect(c, &a.sa, l), EISCONN);
}
CASE(tcp_nonblocking_connect_refused) {
    int s = bound(AF_INET, SOCK_STREAM);
    union addr a;
    socklen_t l = loop(&a, AF_INET, port_of(s));
    c = sock(AF_INET, SOCK_STREAM | SOCK_NONBLOCK);
    int r = connect(c, &a.sa, l);
    CHECK(r == -1);
    if (errno == EINPROGRESS) {
        struct pollfd p = {c, POLLOUT, 0};
        CHECK_EQ(poll(&p, 1, 30000), 1);
        CHECK(p.revents & (POLLERR | POLLHUP));
        CHECK_EQ(so(c, SOL_SOCKET, SO_ERROR), ECONNREFUSED);
        CHECK_EQ(so(c, SOL_SOCKET, SO_ERROR), 0);  // read once
    } else CHECK_EQ(errno, ECONNREFUSED);
}
CASE(tcp_half_close) {
    conn(AF_INET);
    char b[8];
    CHECK(write(c, "req", 3) == 3 && shutdown(c, SHUT_WR) == 0);
    CHECK_EQ(recv(d, b, 8, MSG_WAITALL), 3);
    CHECK_EQ(read(d, b, 8), 0);
    CHECK(write(d, "resp", 4) == 4);
    close(d);
    CHECK_EQ(recv(c, b, 8, MSG_WAITALL), 4);
    CHECK_EQ(read(c, b, 8), 0);
    CHECK_ERR(send(c, "x", 1, MSG_NOSIGNAL), EPIPE);
}
CASE(tcp_write_to_closed_peer) {
    conn(AF_INET);
    close(d);
    signal(SIGPIPE, SIG_IGN);
    EVENTUALLY(write(c, "x", 1) < 0 && (errno == EPIPE || errno == ECONNRESET));
}
CASE(tcp_reset_by_unread_close) {
    conn(AF_INET);
    char b;
    CHECK(write(c, "unread", 6) == 6);
    struct pollfd p = {d, POLLIN, 0};
    CHECK_EQ(poll(&p, 1, 30000), 1);
    close(d);
    EVENTUALLY(recv(c, &b, 1, MSG_DONTWAIT) < 0 && errno == ECONNRESET);
}
CASE(tcp_linger_zero_resets) {
    conn(AF_INET);
    struct linger lg = {1, 0};
    CHECK(setsockopt(d, SOL_SOCKET, SO_LINGER, &lg, sizeof lg) == 0);
    close(d);
    char b;
    CHECK_ERR(read(c, &b, 1), ECONNRESET);
}
CASE(tcp_peek_waitall) {
    conn(AF_INET);
    char b[10];
    pid_t k = SPAWN({ CHECK(write(d, "12345", 5) == 5); msleep(30); CHECK(write(d, "67890", 5) == 5); });
    CHECK_EQ(recv(c, b, 10, MSG_WAITALL), 10);
    join(k);
    CHECK(write(d, "abc", 3) == 3);
    struct pollfd p = {c, POLLIN, 0};
    CHECK_EQ(poll(&p, 1, 30000), 1);
    CHECK_EQ(recv(c, b, 10, MSG_PEEK), 3);
    int n = 0;
    CHECK(ioctl(c, FIONREAD, &n) == 0 && n == 3);
    CHECK_EQ(recv(c, b, 10, 0), 3);
}
static void bulk(int af, size_t total) {
    conn(af);
    pid_t k = SPAWN({
        close(d);
        unsigned char b[60000];
        size_t o = 0;
        while (o < total) {
            for (size_t i = 0; i < sizeof b; i++) b[i] = (o + i) * 31 >> 3;
            ssize_t r = write(c, b, total - o < sizeof b ? total - o : sizeof b);
            CHECK(r > 0);
            o += r;
        }
    });
    close(c);
    unsigned char b[30000];
    size_t o = 0;
    for (ssize_t r; (r = read(d, b, sizeof b)) > 0; o += r)
        for (ssize_t i = 0; i < r; i++) CHECK(b[i] == (unsigned char)((o + i) * 31 >> 3));
    CHECK_EQ(o, total);
    CHECK_EQ(join(k), 0);
}
CASE(tcp4_bulk_16_mb) { bulk(AF_INET, 16 << 20); }
CASE(tcp6_bulk_4_mb) { bulk(AF_INET6, 4 << 20); }
CASE(tcp_flow_control_nonblocking) {
    conn(AF_INET);
    fcntl(c, F_SETFL, O_NONBLOCK);
    char *b = calloc(1, 1 << 20);
    size_t n = 0, m = 0;
    ssize_t r;
    for (int idle = 0; idle < 20;) {
        r = write(c, b, 1 << 20);
        if (r > 0) n += r, idle = 0;
        else {
            CHECK(errno == EAGAIN);
            idle++;
            pause_ms(2);
        }
    }
    CHECK(n > 4096 && n < 256u << 20);
    while (m < n && (r = read(d, b, 1 << 20)) > 0) m += r;
    CHECK_EQ(m, n);
    struct pollfd p = {c, POLLOUT, 0};
    CHECK_EQ(poll(&p, 1, 30000), 1);
}
CASE(tcp_many_connections) {
    ls = listener(AF_INET);
    pid_t k = SPAWN({
        for (int i = 0; i < 200; i++) {
            int s = dial(AF_INET, port_of(ls));
            char b;
            CHECK(write(s, "x", 1) == 1 && read(s, &b, 1) == 1);
            close(s);
        }
    });
    for (int i = 0; i < 200; i++) {
        char b;
        d = accept(ls, NULL, NULL);
        CHECK(d >= 0 && read(d, &b, 1) == 1 && write(d, &b, 1) == 1);
        close(d);
    }
    CHECK_EQ(join(k), 0);
}
CASE(tcp_listener_close_refuses_and_drops_queue) {
    ls = listener(AF_INET);
    int port = port_of(ls);
    c = dial(AF_INET, port);
    close(ls);
    char b;
    ssize_t r = read(c, &b, 1);
    CHECK(r == 0 || (r == -1 && errno == ECONNRESET));
    union addr a;
    socklen_t l = loop(&a, AF_INET, port);
    CHECK_ERR(connect(sock(AF_INET, SOCK_STREAM), &a.sa, l), ECONNREFUSED);
}
CASE(bind_in_use_and_reuseaddr) {
    ls = listener(AF_INET);
    union addr a;
    socklen_t l = loop(&a, AF_INET, port_of(ls));
    int s = sock(AF_INET, SOCK_STREAM), on = 1;
    CHECK_ERR(bind(s, &a.sa, l), EADDRINUSE);
    CHECK_ERR(bind(s, &a.sa, 4), EINVAL);
    CHECK(setsockopt(ls, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
    c = dial(AF_INET, port_of(ls));
    d = accept(ls, NULL, NULL);
    close(d), close(c), close(ls);
    CHECK(setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
    CHECK_EQ(so(s, SOL_SOCKET, SO_REUSEADDR), 1);
    CHECK_OK(bind(s, &a.sa, l));
    CHECK(listen(s, 1) == 0);
}
CASE(bind_foreign_address) {
    union addr a;
    socklen_t l = loop(&a, AF_INET, 0);
    a.v4.sin_addr.s_addr = inet_addr("203.0.113.9");
    CHECK_ERR(bind(sock(AF_INET, SOCK_STREAM), &a.sa, l), EADDRNOTAVAIL);
}
CASE(bind_any_reachable_by_loopback) {
    union addr a;
    socklen_t l = loop(&a, AF_INET, 0);
    a.v4.sin_addr.s_addr = INADDR_ANY;
    ls = sock(AF_INET, SOCK_STREAM);
    CHECK(bind(ls, &a.sa, l) == 0 && listen(ls, 1) == 0);
    c = dial(AF_INET, port_of(ls));
    a.v4.sin_port = htons(port_of(ls)), a.v4.sin_addr.s_addr = inet_addr("127.0.0.5");
    int s = sock(AF_INET, SOCK_STREAM);
    CHECK_OK(connect(s, &a.sa, l));
}
CASE(dual_stack_v6_listener_takes_v4) {
    union addr a;
    socklen_t l = loop(&a, AF_INET6, 0);
    a.v6.sin6_addr = in6addr_any;
    ls = sock(AF_INET6, SOCK_STREAM);
    CHECK(bind(ls, &a.sa, l) == 0 && listen(ls, 1) == 0);
    c = dial(AF_INET, port_of(ls));
    l = sizeof a;
    d = accept(ls, &a.sa, &l);
    CHECK(d >= 0 && a.sa.sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&a.v6.sin6_addr));
}
CASE(v6only) {
    union addr a;
    socklen_t l = loop(&a, AF_INET6, 0);
    a.v6.sin6_addr = in6addr_any;
    ls = sock(AF_INET6, SOCK_STREAM);
    int on = 1;
    CHECK(setsockopt(ls, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on) == 0);
    CHECK(bind(ls, &a.sa, l) == 0 && listen(ls, 1) == 0);
    l = loop(&a, AF_INET, port_of(ls));
    CHECK_ERR(connect(sock(AF_INET, SOCK_STREAM), &a.sa, l), ECONNREFUSED);
}
CASE(connect_wrong_state_and_family) {
    conn(AF_INET);
    union addr a;
    socklen_t l = loop(&a, AF_INET, port_of(ls));
    CHECK_ERR(connect(c, &a.sa, l), EISCONN);
    int s = sock(AF_INET, SOCK_STREAM);
    a.sa.sa_family = 77;
    CHECK_ERR(connect(s, &a.sa, l), EAFNOSUPPORT);
    char b;
    CHECK_ERR(recv(s, &b, 1, 0), ENOTCONN);
    CHECK_ERR(accept(s, NULL, NULL), EINVAL);
    CHECK_ERR(send(s, "x", 1, MSG_NOSIGNAL), EPIPE);
}
CASE(udp4_sendto_recvfrom) {
    int a = bound(AF_INET, SOCK_DGRAM), b = bound(AF_INET, SOCK_DGRAM);
    union addr to, from;
    socklen_t l = loop(&to, AF_INET, port_of(b));
    CHECK_EQ(sendto(a, "hello", 5, 0, &to.sa, l), 5);
    CHECK_EQ(sendto(a, "", 0, 0, &to.sa, l), 0);
    char m[3];
    l = sizeof from;
    CHECK_EQ(recvfrom(b, m, 3, MSG_TRUNC, &from.sa, &l), 5);
    CHECK_EQ(ntohs(from.v4.sin_port), port_of(a));
    CHECK_EQ(recv(b, m, 3, 0), 0);
    CHECK_ERR(recv(b, m, 3, MSG_DONTWAIT), EAGAIN);
}
CASE(udp6_connected) {
    int a = bound(AF_INET6, SOCK_DGRAM), b = bound(AF_INET6, SOCK_DGRAM), e = bound(AF_INET6, SOCK_DGRAM);
    union addr to;
    socklen_t l = loop(&to, AF_INET6, port_of(b));
    CHECK(connect(a, &to.sa, l) == 0 && send(a, "x", 1, 0) == 1);
    char m;
    CHECK_EQ(recv(b, &m, 1, 0), 1);
    l = loop(&to, AF_INET6, port_of(a));
    CHECK(sendto(e, "stranger", 8, 0, &to.sa, l) == 8);
    msleep(10);
    CHECK_ERR(recv(a, &m, 1, MSG_DONTWAIT), EAGAIN);  // only the peer's
    to.sa.sa_family = AF_UNSPEC;
    CHECK(connect(a, &to.sa, sizeof to.sa) == 0);
    CHECK_ERR(send(a, "x", 1, 0), EDESTADDRREQ);
}
CASE(udp_port_unreachable) {
    int b = bound(AF_INET, SOCK_DGRAM), a = bound(AF_INET, SOCK_DGRAM);
    union addr to;
    socklen_t l = loop(&to, AF_INET, port_of(b));
    close(b);
    CHECK(connect(a, &to.sa, l) == 0 && send(a, "x", 1, 0) == 1);
    char m;
    EVENTUALLY(recv(a, &m, 1, MSG_DONTWAIT) < 0 && errno == ECONNREFUSED);
}
CASE(udp_message_size) {
    int a = bound(AF_INET, SOCK_DGRAM), b = bound(AF_INET, SOCK_DGRAM);
    union addr to;
    socklen_t l = loop(&to, AF_INET, port_of(b));
    char *m = calloc(1, 70000);
    CHECK_EQ(sendto(a, m, 65507, 0, &to.sa, l), 65507);
    CHECK_EQ(recv(b, m, 70000, 0), 65507);
    CHECK_ERR(sendto(a, m, 65508, 0, &to.sa, l), EMSGSIZE);
}
CASE(options) {
    conn(AF_INET);
    int on = 1, v = 100000;
    CHECK_EQ(so(c, SOL_SOCKET, SO_TYPE), SOCK_STREAM);
    CHECK_EQ(so(c, SOL_SOCKET, SO_DOMAIN), AF_INET);
    CHECK_EQ(so(c, SOL_SOCKET, SO_PROTOCOL), IPPROTO_TCP);
    CHECK_EQ(so(ls, SOL_SOCKET, SO_ACCEPTCONN), 1);
    CHECK(setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0);
    CHECK_EQ(so(c, IPPROTO_TCP, TCP_NODELAY), 1);
    CHECK(setsockopt(c, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on) == 0);
    CHECK(setsockopt(c, SOL_SOCKET, SO_SNDBUF, &v, sizeof v) == 0);
    CHECK_EQ(so(c, SOL_SOCKET, SO_SNDBUF), 200000);
    CHECK_ERR(setsockopt(c, IPPROTO_TCP, 9999, &on, sizeof on), ENOPROTOOPT);
    struct tcp_info ti;
    socklen_t l = sizeof ti;
    CHECK(getsockopt(c, IPPROTO_TCP, TCP_INFO, &ti, &l) == 0 && ti.tcpi_state == 1);
}
CASE(rcvtimeo_accept_and_read) {
    conn(AF_INET);
    struct timeval tv = {0, 40000};
    setsockopt(ls, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv);
    setsockopt(c, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv);
    char b;
    CHECK_ERR(accept(ls, NULL, NULL), EAGAIN);
    CHECK_ERR(read(c, &b, 1), EAGAIN);
}
CASE(poll_states) {
    conn(AF_INET);
    struct pollfd p = {d, POLLIN | POLLOUT | POLLRDHUP, 0};
    CHECK(poll(&p, 1, 0) == 1 && p.revents == POLLOUT);
    shutdown(c, SHUT_WR);
    p.events = POLLIN | POLLRDHUP;
    CHECK(poll(&p, 1, 30000) == 1 && p.revents == (POLLIN | POLLRDHUP));
    shutdown(d, SHUT_WR);
    EVENTUALLY(poll(&p, 1, 0) == 1 && (p.revents & POLLHUP));
}
CASE(interfaces_lo_is_up) {
    int s = sock(AF_INET, SOCK_DGRAM);
    struct ifreq r = {0};
    strcpy(r.ifr_name, "lo");
    CHECK(ioctl(s, SIOCGIFFLAGS, &r) == 0);
    CHECK((r.ifr_flags & IFF_UP) && (r.ifr_flags & IFF_LOOPBACK));
    CHECK(ioctl(s, SIOCGIFINDEX, &r) == 0 && r.ifr_ifindex == 1);
    CHECK(ioctl(s, SIOCGIFADDR, &r) == 0);
    CHECK(((struct sockaddr_in *)&r.ifr_addr)->sin_addr.s_addr == htonl(INADDR_LOOPBACK));
    strcpy(r.ifr_name, "nope0");
    CHECK_ERR(ioctl(s, SIOCGIFFLAGS, &r), ENODEV);
}
CASE(getaddrinfo_localhost) {
    struct addrinfo h = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *r;
    CHECK_EQ(getaddrinfo("127.0.0.1", "80", &h, &r), 0);
    CHECK_EQ(ntohs(((struct sockaddr_in *)r->ai_addr)->sin_port), 80);
}
CASE(raw_socket_needs_privilege) {
    CHECK_EQ(join(SPAWN({ t_drop_root(); CHECK_ERR(socket(AF_INET, SOCK_RAW, IPPROTO_ICMP), EPERM); })), 0);
}
CASE(privileged_port_or_allowed) {
    union addr a;
    socklen_t l = loop(&a, AF_INET, 81);
    CHECK_EQ(join(SPAWN({ t_drop_root(); int s = sock(AF_INET, SOCK_STREAM); int r = bind(s, &a.sa, l); CHECK(r == 0 || errno == EACCES || errno == EADDRINUSE); })), 0);
}
CASE(msg_nosignal_and_sigpipe) {
    conn(AF_INET);
    shutdown(c, SHUT_WR);
    CHECK_EQ(join(SPAWN({ write(c, "x", 1); })), 128 + SIGPIPE);
}
// Sends one datagram, with a control message of an int unless `type` is -1; the values of two that came with it.
static void marked(int af, int level, int type, int value, int out, int in, int first, int second, int got[2]) {
    struct iovec v = {"x", 1};
    union { struct cmsghdr h; char b[CMSG_SPACE(sizeof(int))]; } u;
    char b[8], c[256];
    union addr to;
    struct msghdr m = {.msg_name = &to, .msg_namelen = loop(&to, af, port_of(in)), .msg_iov = &v, .msg_iovlen = 1};
    if (type >= 0) {
        m.msg_control = &u, m.msg_controllen = CMSG_SPACE(sizeof value);
        u.h = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof value), .cmsg_level = level, .cmsg_type = type};
        memcpy(CMSG_DATA(&u.h), &value, sizeof value);
    }
    CHECK_EQ(sendmsg(out, &m, 0), 1);
    struct iovec r = {b, sizeof b};
    struct msghdr g = {.msg_iov = &r, .msg_iovlen = 1, .msg_control = c, .msg_controllen = sizeof c};
    CHECK_EQ(recvmsg(in, &g, 0), 1);
    got[0] = got[1] = -1;
    for (struct cmsghdr *k = CMSG_FIRSTHDR(&g); k; k = CMSG_NXTHDR(&g, k)) {
        int n = 0;
        memcpy(&n, CMSG_DATA(k), k->cmsg_len - CMSG_LEN(0) < sizeof n ? 1 : sizeof n);
        if (k->cmsg_level == level && k->cmsg_type == first) got[0] = n;
        if (k->cmsg_level == level && k->cmsg_type == second) got[1] = n;
    }
}
static int udp_bound(int af) {
    int s = CHECK_OK(socket(af, SOCK_DGRAM, 0));
    union addr a;
    CHECK_OK(bind(s, &a.sa, loop(&a, af, 0)));
    return s;
}
CASE(udp6_hop_limit_and_traffic_class) {
    int a = udp_bound(AF_INET6), b = udp_bound(AF_INET6), on = 1, got[2];
    CHECK_OK(setsockopt(b, IPPROTO_IPV6, IPV6_RECVTCLASS, &on, sizeof on));
    CHECK_OK(setsockopt(b, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, &on, sizeof on));
    marked(AF_INET6, IPPROTO_IPV6, -1, 0, a, b, IPV6_HOPLIMIT, IPV6_TCLASS, got);
    CHECK_EQ(got[0], 64);
    CHECK_EQ(got[1], 0);
    marked(AF_INET6, IPPROTO_IPV6, IPV6_TCLASS, 0x28, a, b, IPV6_HOPLIMIT, IPV6_TCLASS, got);
    CHECK_EQ(got[1], 0x28);
    marked(AF_INET6, IPPROTO_IPV6, IPV6_HOPLIMIT, 3, a, b, IPV6_HOPLIMIT, IPV6_TCLASS, got);
    CHECK_EQ(got[0], 3);
    CHECK_EQ(got[1], 0);
    int hops = 7, class = 0x10;
    CHECK_OK(setsockopt(a, IPPROTO_IPV6, IPV6_UNICAST_HOPS, &hops, sizeof hops));
    CHECK_OK(setsockopt(a, IPPROTO_IPV6, IPV6_TCLASS, &class, sizeof class));
    marked(AF_INET6, IPPROTO_IPV6, IPV6_HOPLIMIT, -1, a, b, IPV6_HOPLIMIT, IPV6_TCLASS, got);
    CHECK_EQ(got[0], 7);
    CHECK_EQ(got[1], 0x10);
}
CASE(udp4_time_to_live_and_type_of_service) {
    int a = udp_bound(AF_INET), b = udp_bound(AF_INET), on = 1, got[2];
    CHECK_OK(setsockopt(b, IPPROTO_IP, IP_RECVTOS, &on, sizeof on));
    CHECK_OK(setsockopt(b, IPPROTO_IP, IP_RECVTTL, &on, sizeof on));
    marked(AF_INET, IPPROTO_IP, IP_TTL, 9, a, b, IP_TTL, IP_TOS, got);
    CHECK_EQ(got[0], 9);
    CHECK_EQ(got[1], 0);
    int tos = 0x08;
    CHECK_OK(setsockopt(a, IPPROTO_IP, IP_TOS, &tos, sizeof tos));
    marked(AF_INET, IPPROTO_IP, -1, 0, a, b, IP_TTL, IP_TOS, got);
    CHECK_EQ(got[0], 64);
    CHECK_EQ(got[1], 0x08);
    marked(AF_INET, IPPROTO_IP, IP_TOS, 0x10, a, b, IP_TTL, IP_TOS, got);
    CHECK_EQ(got[1], 0x10);
    int zero = 0;
    union { struct cmsghdr h; char b[CMSG_SPACE(sizeof(int))]; } u = {.h = {CMSG_LEN(sizeof zero), IPPROTO_IP, IP_TTL}};
    struct iovec v = {"x", 1};
    union addr to;
    struct msghdr m = {&to, loop(&to, AF_INET, port_of(b)), &v, 1, &u, sizeof u, 0};
    memcpy(CMSG_DATA(&u.h), &zero, sizeof zero);
    CHECK_ERR(sendmsg(a, &m, 0), EINVAL);
}
