// Datagrams at their edges: errors that are kept, parts that are put together or cut, groups, addresses they come from and by.
#include "t.h"
#include <arpa/inet.h>
#include <linux/errqueue.h>
#include <netinet/in.h>
#include <netinet/udp.h>

enum { LITE = 136, SEGMENT = 103, GRO = 104 };
static struct sockaddr_in at;
static socklen_t alen = sizeof at;
static char b[70000];

static int set(int s, int level, int name, int v) { return setsockopt(s, level, name, &v, sizeof v); }
static int bound(int protocol) {
    int s = socket(AF_INET, SOCK_DGRAM, protocol);
    memset(&at, 0, sizeof at);
    at.sin_family = AF_INET, at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(s >= 0 && bind(s, (void *)&at, sizeof at) == 0 && getsockname(s, (void *)&at, &alen) == 0);
    return s;
}
static int dialled(int protocol) {
    int c = socket(AF_INET, SOCK_DGRAM, protocol);
    CHECK(c >= 0 && connect(c, (void *)&at, sizeof at) == 0);
    return c;
}
// A receive with control messages; value: length, the control message of this type in `data`.
static char control[512];
static struct msghdr m;
static struct sockaddr_in from;
static ssize_t take(int s, int flags) {
    static struct iovec v;
    v = (struct iovec){b, sizeof b};
    m = (struct msghdr){&from, sizeof from, &v, 1, control, sizeof control, 0};
    return recvmsg(s, &m, flags);
}
static void *found(int level, int type) {
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c))
        if (c->cmsg_level == level && c->cmsg_type == type) return CMSG_DATA(c);
    return NULL;
}
static int events(int s) {
    struct pollfd p = {s, POLLIN, 0};
    CHECK(poll(&p, 1, 0) >= 0);
    return p.revents;
}

CASE(errors_of_unconnected_senders_are_kept) {
    int dead = bound(0), s = socket(AF_INET, SOCK_DGRAM, 0), e;
    struct sockaddr_in to = at;
    close(dead);
    CHECK(sendto(s, "one", 3, 0, (void *)&to, sizeof to) == 3);
    CHECK_ERR(recv(s, b, 1, MSG_DONTWAIT), EAGAIN);
    CHECK(set(s, 0, IP_RECVERR, 1) == 0 && sendto(s, "two", 3, 0, (void *)&to, sizeof to) == 3);
    CHECK(events(s) & POLLERR);
    CHECK_EQ(take(s, MSG_ERRQUEUE), 3);
    CHECK(!memcmp(b, "two", 3) && m.msg_flags & MSG_ERRQUEUE);
    CHECK(from.sin_port == to.sin_port && from.sin_addr.s_addr == to.sin_addr.s_addr);
    struct sock_extended_err *x = found(0, IP_RECVERR);
    CHECK(x && x->ee_errno == ECONNREFUSED && x->ee_origin == SO_EE_ORIGIN_ICMP && x->ee_type == 3 && x->ee_code == 3);
    struct sockaddr_in *by = (void *)SO_EE_OFFENDER(x);
    CHECK(by->sin_family == AF_INET && by->sin_addr.s_addr == htonl(INADDR_LOOPBACK));
    // Taken from the queue, it is no SO_ERROR any more.
    socklen_t n = sizeof e;
    CHECK(getsockopt(s, SOL_SOCKET, SO_ERROR, &e, &n) == 0 && e == 0 && !(events(s) & POLLERR));
    CHECK_ERR(take(s, MSG_ERRQUEUE), EAGAIN);
    CHECK(sendto(s, "three", 5, 0, (void *)&to, sizeof to) == 5);
    CHECK_ERR(recv(s, b, 1, MSG_DONTWAIT), ECONNREFUSED);
    CHECK(set(s, 0, IP_RECVERR, 0) == 0);
    CHECK_ERR(take(s, MSG_ERRQUEUE), EAGAIN);
}
CASE(parts_go_as_one) {
    int r = bound(0), s = dialled(0);
    CHECK(send(s, "ab", 2, MSG_MORE) == 2 && send(s, "cd", 2, MSG_MORE) == 2);
    CHECK_ERR(recv(r, b, 9, MSG_DONTWAIT), EAGAIN);
    CHECK(send(s, "ef", 2, 0) == 2 && recv(r, b, 99, 0) == 6 && !memcmp(b, "abcdef", 6));
    CHECK(set(s, IPPROTO_UDP, UDP_CORK, 1) == 0 && send(s, "x", 1, 0) == 1 && send(s, "yz", 2, 0) == 2);
    CHECK_ERR(recv(r, b, 9, MSG_DONTWAIT), EAGAIN);
    CHECK(set(s, IPPROTO_UDP, UDP_CORK, 0) == 0 && recv(r, b, 99, 0) == 3 && !memcmp(b, "xyz", 3));
    // The first part says where all go.
    int other = socket(AF_INET, SOCK_DGRAM, 0), q;
    struct sockaddr_in first = at;
    CHECK(sendto(other, "1", 1, MSG_MORE, (void *)&first, sizeof first) == 1);
    q = bound(0);
    CHECK(sendto(other, "2", 1, 0, (void *)&at, sizeof at) == 1 && recv(r, b, 9, 0) == 2);
    CHECK_ERR(recv(q, b, 9, MSG_DONTWAIT), EAGAIN);
}
CASE(parts_have_a_whole_length) {
    int r = bound(0), s = dialled(0);
    CHECK(send(s, b, 60000, MSG_MORE) == 60000);
    CHECK_ERR(send(s, b, 6000, 0), EMSGSIZE);
    CHECK(send(s, "new", 3, 0) == 3 && recv(r, b, 99, 0) == 3);
}
CASE(one_send_cut_into_many) {
    int r = bound(0), s = dialled(0);
    if (set(s, IPPROTO_UDP, SEGMENT, 1000)) return;
    CHECK_EQ(send(s, b, 2500, 0), 2500);
    CHECK(recv(r, b, sizeof b, 0) == 1000 && recv(r, b, sizeof b, 0) == 1000 && recv(r, b, sizeof b, 0) == 500);
    CHECK(send(s, b, 900, 0) == 900 && recv(r, b, sizeof b, 0) == 900);
    CHECK(set(s, IPPROTO_UDP, SEGMENT, 1) == 0);
    CHECK_ERR(send(s, b, 60000, 0), EINVAL);
    CHECK(set(s, IPPROTO_UDP, SEGMENT, 500) == 0 && set(r, IPPROTO_UDP, GRO, 1) == 0);
    CHECK(send(s, b, 1200, 0) == 1200 && take(r, 0) == 1200);
    int *size = found(IPPROTO_UDP, GRO);
    CHECK(size && *size == 500);
}
CASE(one_message_cut_as_it_says) {
    int r = bound(0), s = dialled(0);
    char c[CMSG_SPACE(2)] = {0};
    struct iovec v = {b, 700};
    struct msghdr h = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = c, .msg_controllen = sizeof c};
    struct cmsghdr *k = CMSG_FIRSTHDR(&h);
    k->cmsg_level = IPPROTO_UDP, k->cmsg_type = SEGMENT, k->cmsg_len = CMSG_LEN(2);
    *(uint16_t *)CMSG_DATA(k) = 400;
    CHECK_EQ(sendmsg(s, &h, 0), 700);
    CHECK(recv(r, b, sizeof b, 0) == 400 && recv(r, b, sizeof b, 0) == 300);
}
CASE(lite) {
    int r = socket(AF_INET, SOCK_DGRAM, LITE), v = -1;
    if (r < 0) return;  // newer kernels have none
    close(r);
    r = bound(LITE);
    int s = dialled(LITE), plain = bound(0);
    socklen_t n = sizeof v;
    CHECK(getsockopt(s, SOL_SOCKET, SO_PROTOCOL, &v, &n) == 0 && v == LITE);
    CHECK(send(s, "hello", 5, 0) == 5 && recv(r, b, 99, 0) == 5);
    CHECK_ERR(recv(plain, b, 9, MSG_DONTWAIT), EAGAIN);
    CHECK(set(s, LITE, 10, 3) == 0 && getsockopt(s, LITE, 10, &v, &n) == 0 && v == 8);
    CHECK(send(s, "part", 4, 0) == 4 && recv(r, b, 99, 0) == 4);
    CHECK(set(r, LITE, 11, 20) == 0 && send(s, "too little of it covered", 24, 0) == 24);
    CHECK_ERR(recv(r, b, 99, MSG_DONTWAIT), EAGAIN);
    CHECK(set(s, LITE, 10, 20) == 0 && send(s, "just enough of it covered", 25, 0) == 25 && recv(r, b, 99, 0) == 25);
}
CASE(peeking_with_an_offset) {
    int r = bound(0), s = dialled(0);
    CHECK(send(s, "abcdef", 6, 0) == 6 && send(s, "ghi", 3, 0) == 3);
    CHECK(set(r, SOL_SOCKET, SO_PEEK_OFF, 2) == 0);
    CHECK(recv(r, b, 2, MSG_PEEK) == 2 && !memcmp(b, "cd", 2));
    CHECK(recv(r, b, 9, MSG_PEEK) == 2 && !memcmp(b, "ef", 2));
    CHECK(recv(r, b, 9, MSG_PEEK) == 3 && !memcmp(b, "ghi", 3));
    CHECK(recv(r, b, 9, 0) == 6 && recv(r, b, 9, MSG_PEEK | MSG_DONTWAIT) == -1);
}
CASE(peeked_length_of_what_was_cut) {
    int r = bound(0), s = dialled(0);
    CHECK(send(s, "abcdef", 6, 0) == 6);
    CHECK(recv(r, b, 2, MSG_PEEK | MSG_TRUNC) == 6 && recv(r, b, 2, MSG_TRUNC) == 6);
}

static int member(int port, const char *group, const char *interface) {
    int s = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(set(s, SOL_SOCKET, SO_REUSEADDR, 1) == 0);
    at = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = port};
    CHECK(bind(s, (void *)&at, sizeof at) == 0 && getsockname(s, (void *)&at, &alen) == 0);
    struct ip_mreq q = {{inet_addr(group)}, {inet_addr(interface)}};
    CHECK(setsockopt(s, 0, IP_ADD_MEMBERSHIP, &q, sizeof q) == 0);
    return s;
}
static void to_loopback(int s) {
    struct in_addr lo = {htonl(INADDR_LOOPBACK)}, got;
    socklen_t n = sizeof got;
    CHECK(setsockopt(s, 0, IP_MULTICAST_IF, &lo, sizeof lo) == 0);
    CHECK(getsockopt(s, 0, IP_MULTICAST_IF, &got, &n) == 0 && got.s_addr == lo.s_addr);
}
CASE(groups_on_the_loopback) {
    int one = member(0, "239.7.7.7", "127.0.0.1"), two = member(at.sin_port, "239.7.7.7", "127.0.0.1");
    int other = member(at.sin_port, "239.8.8.8", "127.0.0.1"), s = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(set(other, 0, IP_MULTICAST_ALL, 0) == 0 && set(one, 0, IP_PKTINFO, 1) == 0 && set(one, 0, IP_RECVTTL, 1) == 0);
    to_loopback(s);
    at.sin_addr.s_addr = inet_addr("239.7.7.7");
    CHECK(sendto(s, "all", 3, 0, (void *)&at, sizeof at) == 3);
    CHECK(recv(two, b, 9, 0) == 3 && take(one, 0) == 3);
    CHECK(from.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
    struct in_pktinfo *i = found(0, IP_PKTINFO);
    CHECK(i && i->ipi_ifindex == 1 && i->ipi_addr.s_addr == at.sin_addr.s_addr);
    int *ttl = found(0, IP_TTL);
    CHECK(ttl && *ttl == 1);
    CHECK_ERR(recv(other, b, 9, MSG_DONTWAIT), EAGAIN);
    struct ip_mreq q = {at.sin_addr, {htonl(INADDR_LOOPBACK)}};
    CHECK_ERR(setsockopt(one, 0, IP_ADD_MEMBERSHIP, &q, sizeof q), EADDRINUSE);
    CHECK(setsockopt(one, 0, IP_DROP_MEMBERSHIP, &q, sizeof q) == 0 && set(one, 0, IP_MULTICAST_ALL, 0) == 0);
    CHECK_ERR(setsockopt(one, 0, IP_DROP_MEMBERSHIP, &q, sizeof q), EADDRNOTAVAIL);
    CHECK(sendto(s, "again", 5, 0, (void *)&at, sizeof at) == 5 && recv(two, b, 9, 0) == 5);
    CHECK_ERR(recv(one, b, 9, MSG_DONTWAIT), EAGAIN);
    q.imr_multiaddr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK_ERR(setsockopt(one, 0, IP_ADD_MEMBERSHIP, &q, sizeof q), EINVAL);
    q.imr_multiaddr = at.sin_addr, q.imr_interface.s_addr = inet_addr("192.0.2.9");
    CHECK_ERR(setsockopt(one, 0, IP_ADD_MEMBERSHIP, &q, sizeof q), ENODEV);
}
CASE(groups_that_nobody_joined) {
    int r = bound(0), s = socket(AF_INET, SOCK_DGRAM, 0);
    close(r), r = socket(AF_INET, SOCK_DGRAM, 0);
    at.sin_addr.s_addr = 0;
    CHECK(bind(r, (void *)&at, sizeof at) == 0);
    to_loopback(s);
    at.sin_addr.s_addr = inet_addr("239.9.9.9");
    CHECK(sendto(s, "none", 4, 0, (void *)&at, sizeof at) == 4);
    CHECK_ERR(recv(r, b, 9, MSG_DONTWAIT), EAGAIN);
}
CASE(groups_by_source) {
    int s = socket(AF_INET, SOCK_DGRAM, 0), r = bound(0);
    close(r), r = socket(AF_INET, SOCK_DGRAM, 0);
    at.sin_addr.s_addr = 0;
    CHECK(bind(r, (void *)&at, sizeof at) == 0);
    struct ip_mreq_source q = {{inet_addr("239.6.6.6")}, {htonl(INADDR_LOOPBACK)}, {inet_addr("127.0.0.9")}};
    CHECK(setsockopt(r, 0, IP_ADD_SOURCE_MEMBERSHIP, &q, sizeof q) == 0);
    CHECK_ERR(setsockopt(r, 0, IP_ADD_SOURCE_MEMBERSHIP, &q, sizeof q), EADDRNOTAVAIL);
    to_loopback(s);
    at.sin_addr.s_addr = inet_addr("239.6.6.6");
    CHECK(sendto(s, "x", 1, 0, (void *)&at, sizeof at) == 1);
    CHECK_ERR(recv(r, b, 9, MSG_DONTWAIT), EAGAIN);
    q.imr_sourceaddr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(setsockopt(r, 0, IP_ADD_SOURCE_MEMBERSHIP, &q, sizeof q) == 0);
    CHECK(sendto(s, "xy", 2, 0, (void *)&at, sizeof at) == 2 && recv(r, b, 9, 0) == 2);
}
CASE(groups_of_ipv6) {
    int r = socket(AF_INET6, SOCK_DGRAM, 0), s = socket(AF_INET6, SOCK_DGRAM, 0);
    struct sockaddr_in6 to = {.sin6_family = AF_INET6};
    socklen_t n = sizeof to;
    CHECK(bind(r, (void *)&to, n) == 0 && getsockname(r, (void *)&to, &n) == 0);
    struct ipv6_mreq q = {.ipv6mr_interface = 1};
    inet_pton(AF_INET6, "ff01::77", &q.ipv6mr_multiaddr);
    CHECK(setsockopt(r, 41, IPV6_JOIN_GROUP, &q, sizeof q) == 0 && set(s, 41, IPV6_MULTICAST_IF, 1) == 0);
    to.sin6_addr = q.ipv6mr_multiaddr;
    // The loopback has no route to groups.
    CHECK_ERR(sendto(s, "six", 3, 0, (void *)&to, n), ENETUNREACH);
    CHECK_ERR(setsockopt(r, 41, IPV6_JOIN_GROUP, &q, sizeof q), EADDRINUSE);
    CHECK(setsockopt(r, 41, IPV6_LEAVE_GROUP, &q, sizeof q) == 0);
    CHECK_ERR(setsockopt(r, 41, IPV6_LEAVE_GROUP, &q, sizeof q), EADDRNOTAVAIL);
    q.ipv6mr_interface = 9999;
    CHECK_ERR(setsockopt(r, 41, IPV6_JOIN_GROUP, &q, sizeof q), ENODEV);
}
CASE(the_address_it_shall_come_from) {
    int r = bound(0), s = socket(AF_INET, SOCK_DGRAM, 0);
    char c[CMSG_SPACE(sizeof(struct in_pktinfo))] = {0};
    struct iovec v = {"hi", 2};
    struct msghdr h = {&at, sizeof at, &v, 1, c, sizeof c, 0};
    struct cmsghdr *k = CMSG_FIRSTHDR(&h);
    k->cmsg_level = 0, k->cmsg_type = IP_PKTINFO, k->cmsg_len = CMSG_LEN(sizeof(struct in_pktinfo));
    ((struct in_pktinfo *)CMSG_DATA(k))->ipi_spec_dst.s_addr = inet_addr("127.0.0.5");
    CHECK_EQ(sendmsg(s, &h, 0), 2);
    CHECK(take(r, 0) == 2 && from.sin_addr.s_addr == inet_addr("127.0.0.5"));
}
CASE(times_of_arrival) {
    int r = bound(0), s = dialled(0);
    CHECK(set(r, SOL_SOCKET, SO_TIMESTAMPNS, 1) == 0 && send(s, "t", 1, 0) == 1 && take(r, 0) == 1);
    struct timespec *t = found(SOL_SOCKET, SO_TIMESTAMPNS);
    CHECK(t && t->tv_sec > 1000000000);
    CHECK(set(r, SOL_SOCKET, SO_TIMESTAMP, 1) == 0 && send(s, "t", 1, 0) == 1 && take(r, 0) == 1);
    CHECK(found(SOL_SOCKET, SO_TIMESTAMP) && !found(SOL_SOCKET, SO_TIMESTAMPNS));
    CHECK(set(r, SOL_SOCKET, SO_TIMESTAMP, 0) == 0 && set(r, SOL_SOCKET, SO_TIMESTAMPING, 8 | 16) == 0);
    // The first ones may come before the clock of arrivals runs.
    EVENTUALLY(send(s, "t", 1, 0) == 1 && take(r, 0) == 1 && found(SOL_SOCKET, SO_TIMESTAMPING));
}
CASE(where_it_was_going) {
    int r = bound(0), s = dialled(0);
    CHECK(set(r, 0, 20 /* IP_RECVORIGDSTADDR */, 1) == 0 && send(s, "o", 1, 0) == 1 && take(r, 0) == 1);
    struct sockaddr_in *to = found(0, 20);
    CHECK(to && to->sin_port == at.sin_port && to->sin_addr.s_addr == at.sin_addr.s_addr);
}
CASE(bound_to_the_loopback_device) {
    int r = bound(0), s = dialled(0);
    CHECK(setsockopt(r, SOL_SOCKET, SO_BINDTODEVICE, "lo", 3) == 0 && send(s, "lo", 2, 0) == 2 && recv(r, b, 9, 0) == 2);
    CHECK_ERR(setsockopt(r, SOL_SOCKET, SO_BINDTODEVICE, "nosuch0", 8), ENODEV);
    int out = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(setsockopt(out, SOL_SOCKET, SO_BINDTODEVICE, "lo", 3) == 0);
}
CASE(copies_told_of) {
    int r = bound(0), s = dialled(0);
    if (set(s, SOL_SOCKET, SO_ZEROCOPY, 1)) return;
    CHECK(send(s, b, 100, MSG_ZEROCOPY) == 100 && recv(r, b, sizeof b, 0) == 100);
    struct pollfd p = {s, 0, 0};
    CHECK(poll(&p, 1, 30000) == 1 && p.revents & POLLERR && take(s, MSG_ERRQUEUE) == 0);
    struct sock_extended_err *x = found(0, IP_RECVERR);
    CHECK(x && x->ee_errno == 0 && x->ee_origin == SO_EE_ORIGIN_ZEROCOPY && x->ee_info == 0 && x->ee_data == 0);
}
