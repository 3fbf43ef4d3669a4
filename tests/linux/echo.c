// ICMP echo without privilege: icmp(7), over the loopback. Natively only for groups of net.ipv4.ping_group_range.
#include "t.h"

#include <arpa/inet.h>
#include <netinet/icmp6.h>
#include <netinet/in.h>
#include <netinet/ip_icmp.h>
#include <poll.h>
#include <sys/socket.h>

union addr {
    struct sockaddr sa;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};
static int sock(int af) {
    int s = socket(af, SOCK_DGRAM, af == AF_INET ? IPPROTO_ICMP : IPPROTO_ICMPV6);
    if (s < 0 && errno == EACCES) SKIP("net.ipv4.ping_group_range does not let us");
    if (s < 0 && errno == EAFNOSUPPORT) SKIP("no IPv6");
    CHECK(s >= 0);
    return s;
}
static socklen_t loop(union addr *a, int af, int id) {
    memset(a, 0, sizeof *a);
    a->sa.sa_family = af;
    a->v4.sin_port = htons(id);
    if (af == AF_INET) a->v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    else a->v6.sin6_addr = in6addr_loopback;
    return af == AF_INET ? sizeof a->v4 : sizeof a->v6;
}
static int id_of(int s) {
    union addr a;
    socklen_t l = sizeof a;
    CHECK_OK(getsockname(s, &a.sa, &l));
    return ntohs(a.v4.sin_port);
}
// A request that says it has another identifier than its socket.
static int request(int af, unsigned char *m, int seq) {
    memset(m, 0, 64);
    m[0] = af == AF_INET ? ICMP_ECHO : ICMP6_ECHO_REQUEST;
    m[4] = m[5] = 0xee;
    m[7] = seq;
    memcpy(m + 8, "hello", 5);
    return 13;
}
static unsigned sum(const unsigned char *m, int n) {
    unsigned s = 0;
    for (int i = 0; i < n; i++) s += m[i] << (i % 2 ? 0 : 8);
    while (s >> 16) s = (s & 0xffff) + (s >> 16);
    return s;
}
static void ask(int af, int s, int seq) {
    unsigned char m[64];
    union addr a;
    int n = request(af, m, seq);
    CHECK_EQ(sendto(s, m, n, 0, &a.sa, loop(&a, af, 9)), n);
}
static void answered(int af, int s, int seq) {
    unsigned char m[64], want[64];
    union addr a, lo;
    socklen_t l = sizeof a, ll = loop(&lo, af, 0);
    struct pollfd p = {s, POLLIN, 0};
    CHECK_EQ(poll(&p, 1, 60000), 1);
    int n = request(af, want, seq);
    CHECK_EQ(recvfrom(s, m, sizeof m, 0, &a.sa, &l), n);
    CHECK_EQ(m[0], af == AF_INET ? ICMP_ECHOREPLY : ICMP6_ECHO_REPLY);
    CHECK_EQ(m[1], 0);
    CHECK_EQ(m[4] << 8 | m[5], id_of(s));
    CHECK_EQ(memcmp(m + 6, want + 6, n - 6), 0);
    if (af == AF_INET) CHECK_EQ(sum(m, n), 0xffff);
    CHECK(l == ll && memcmp(&a, &lo, l) == 0);
}
static void both_ways(int af) {
    int s = sock(af);
    ask(af, s, 1);
    int id = id_of(s);
    CHECK(id != 0);
    answered(af, s, 1);
    ask(af, s, 2);
    ask(af, s, 3);
    answered(af, s, 2);
    answered(af, s, 3);
    CHECK_EQ(id_of(s), id);
    CHECK_ERR(recv(s, &id, sizeof id, MSG_DONTWAIT), EAGAIN);
}
CASE(an_echo) { both_ways(AF_INET); }
CASE(an_echo_of_ipv6) { both_ways(AF_INET6); }
CASE(bind_gives_the_identifier) {
    int s = sock(AF_INET), t = sock(AF_INET);
    union addr a;
    socklen_t l = loop(&a, AF_INET, 0);
    CHECK_OK(bind(t, &a.sa, l));
    int id = id_of(t);
    CHECK(id != 0);
    a.v4.sin_port = htons(id);
    // Unlike other sockets they share it if they do not say otherwise.
    int on = 1, off = 0;
    socklen_t size = sizeof on;
    CHECK_OK(getsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, &size));
    CHECK_EQ(on, 1);
    CHECK_OK(setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &off, sizeof off));
    CHECK_ERR(bind(s, &a.sa, l), EADDRINUSE);
    CHECK_OK(setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
    CHECK_OK(bind(s, &a.sa, l));
    CHECK_EQ(id_of(s), id);
    close(t);
    CHECK_ERR(bind(s, &a.sa, l), EINVAL);
    ask(AF_INET, s, 1);
    answered(AF_INET, s, 1);
}
CASE(low_identifiers_are_no_privilege) {
    close(sock(AF_INET));
    CHECK_EQ(join(SPAWN({
        t_drop_root();
        int s = sock(AF_INET);
        union addr a;
        int r = bind(s, &a.sa, loop(&a, AF_INET, 7));
        CHECK(r == 0 || errno == EADDRINUSE);
    })), 0);
}
CASE(only_requests_are_sent) {
    int s = sock(AF_INET);
    unsigned char m[64];
    union addr a;
    socklen_t l = loop(&a, AF_INET, 0);
    int n = request(AF_INET, m, 1);
    CHECK_ERR(send(s, m, n, 0), EDESTADDRREQ);
    CHECK_ERR(sendto(s, m, 7, 0, &a.sa, l), EINVAL);
    CHECK_ERR(sendto(s, m, n, MSG_OOB, &a.sa, l), EOPNOTSUPP);
    m[1] = 1;
    CHECK_ERR(sendto(s, m, n, 0, &a.sa, l), EINVAL);
    m[0] = ICMP_ECHOREPLY, m[1] = 0;
    CHECK_ERR(sendto(s, m, n, 0, &a.sa, l), EINVAL);
}
CASE(connected) {
    int s = sock(AF_INET);
    unsigned char m[64];
    union addr a;
    CHECK_OK(connect(s, &a.sa, loop(&a, AF_INET, 5)));
    int n = request(AF_INET, m, 4);
    CHECK_EQ(send(s, m, n, 0), n);
    answered(AF_INET, s, 4);
    socklen_t l = sizeof a;
    CHECK_OK(getsockname(s, &a.sa, &l));
    CHECK_EQ(a.v4.sin_addr.s_addr, htonl(INADDR_LOOPBACK));
}
CASE(hops_of_an_answer) {
    int s = sock(AF_INET), on = 1, hops = 0;
    char b[64], c[64];
    CHECK_OK(setsockopt(s, IPPROTO_IP, IP_RECVTTL, &on, sizeof on));
    ask(AF_INET, s, 1);
    struct iovec v = {b, sizeof b};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = c, .msg_controllen = sizeof c};
    CHECK_EQ(recvmsg(s, &m, 0), 13);
    struct cmsghdr *k = CMSG_FIRSTHDR(&m);
    CHECK(k && k->cmsg_level == IPPROTO_IP && k->cmsg_type == IP_TTL);
    memcpy(&hops, CMSG_DATA(k), sizeof hops);
    CHECK_EQ(hops, 64);
}
CASE(what_it_says_of_itself) {
    int s = sock(AF_INET), v;
    socklen_t l = sizeof v;
    CHECK_OK(getsockopt(s, SOL_SOCKET, SO_PROTOCOL, &v, &l));
    CHECK_EQ(v, IPPROTO_ICMP);
    CHECK_OK(getsockopt(s, SOL_SOCKET, SO_TYPE, &v, &l));
    CHECK_EQ(v, SOCK_DGRAM);
}
CASE(no_family_speaks_the_others_protocol) {
    CHECK_ERR(socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMPV6), EPROTONOSUPPORT);
    CHECK_ERR(socket(AF_INET6, SOCK_DGRAM, IPPROTO_ICMP), EPROTONOSUPPORT);
}
