// Options of sockets: every one is read back as Linux keeps it, and what is out of its bounds has Linux' errno.
#include "t.h"
#include <arpa/inet.h>
#include <linux/net_tstamp.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

enum { TCP = 1, UDP = 2, UNIX = 4, V6 = 8, INET = TCP | UDP, any = INET | UNIX, v6 = INET | V6, so = SOL_SOCKET };
static int made(int kind) {
    int family = kind & UNIX ? AF_UNIX : kind & V6 ? AF_INET6 : AF_INET;
    int s = socket(family, kind & UDP ? SOCK_DGRAM : SOCK_STREAM, 0);
    CHECK(s >= 0);
    return s;
}
static int get(int s, int level, int name) {
    int v = -77;
    socklen_t n = sizeof v;
    return getsockopt(s, level, name, &v, &n) ? -1000 - errno : v;
}
static int set(int s, int level, int name, int v) { return setsockopt(s, level, name, &v, sizeof v); }

// Sets a value and expects another, or an error, on a fresh socket of each kind.
struct row { int kinds, level, name, value, then, error; };
static void rows(const struct row *r, unsigned n) {
    for (; n--; r++)
        for (int kind = TCP; kind <= UNIX; kind *= 2) {
            if (!(r->kinds & kind)) continue;
            int s = made(kind | (r->kinds & V6));
            int e = set(s, r->level, r->name, r->value) ? errno : 0;
            if (e != r->error) FAIL("kind %d, option %d/%d = %d: errno %d, want %d", kind, r->level, r->name, r->value, e, r->error);
            int v = e ? 0 : get(s, r->level, r->name);
            if (!e && v != r->then) FAIL("kind %d, option %d/%d = %d reads %d, want %d", kind, r->level, r->name, r->value, v, r->then);
            close(s);
        }
}
#define ROWS(...) do { static const struct row all_[] = {__VA_ARGS__}; rows(all_, sizeof all_ / sizeof *all_); } while (0)

CASE(switches_are_one_or_nothing) {
    ROWS({any, so, SO_REUSEADDR, -2, 1}, {any, so, SO_KEEPALIVE, 7, 1}, {any, so, SO_BROADCAST, 256, 1}, {any, so, SO_DONTROUTE, 2, 1},
         {INET, so, SO_REUSEPORT, 3, 1}, {any, so, SO_OOBINLINE, 2, 1}, {any, so, SO_NO_CHECK, 9, 1}, {any, so, SO_RXQ_OVFL, 5, 1},
         {INET, 0, IP_RECVTTL, -1, 1}, {INET, 0, IP_RECVERR, 2, 1}, {INET, 0, IP_PKTINFO, 256, 1}, {INET, 0, IP_RECVTOS, 2, 1},
         {INET, 0, IP_FREEBIND, 2, 1}, {INET, 0, IP_MULTICAST_LOOP, 2, 1}, {INET | V6, 41, IPV6_RECVERR, 7, 1},
         {INET | V6, 41, IPV6_RECVPKTINFO, 2, 1}, {INET | V6, 41, IPV6_RECVTCLASS, -1, 1}, {INET | V6, 41, IPV6_RECVHOPLIMIT, 3, 1},
         {TCP, 6, TCP_NODELAY, 9, 1}, {TCP, 6, TCP_CORK, -1, 1}, {UDP, 17, 1 /* CORK */, 2, 1}, {UDP, 17, 104 /* GRO */, 2, 1});
}
CASE(bounds_of_ip) {
    ROWS({INET, 0, IP_TTL, -1, 64}, {INET, 0, IP_TTL, 0, 0, EINVAL}, {INET, 0, IP_TTL, 255, 255}, {INET, 0, IP_TTL, 256, 0, EINVAL}, {INET, 0, IP_TTL, -2, 0, EINVAL},
         {TCP, 0, IP_TOS, 255, 252}, {UDP, 0, IP_TOS, 255, 255}, {TCP, 0, IP_TOS, 3, 0}, {UDP, 0, IP_TOS, 0x128, 0x28},
         {INET, 0, IP_MTU_DISCOVER, 5, 5}, {INET, 0, IP_MTU_DISCOVER, 6, 0, EINVAL}, {INET, 0, IP_MTU_DISCOVER, -1, 0, EINVAL},
         {INET, 0, IP_MINTTL, 255, 255}, {INET, 0, IP_MINTTL, 256, 0, EINVAL}, {INET, 0, IP_MULTICAST_ALL, 2, 0, EINVAL},
         {UDP, 0, IP_MULTICAST_TTL, 0, 0}, {UDP, 0, IP_MULTICAST_TTL, -1, 1}, {UDP, 0, IP_MULTICAST_TTL, 256, 0, EINVAL}, {TCP, 0, IP_MULTICAST_TTL, 1, 0, EINVAL},
         {INET, 0, IP_HDRINCL, 1, 0, ENOPROTOOPT}, {INET, 0, 50 /* UNICAST_IF */, 0x01000000, 0x01000000}, {INET, 0, 50, 0x7f000000, 0, EADDRNOTAVAIL},
         {INET, 0, 99, 1, 0, ENOPROTOOPT}, {UDP, 0, IP_MULTICAST_IF, 0x01010101, 0, EADDRNOTAVAIL}, {TCP, 0, IP_MULTICAST_IF, 0, 0, EINVAL});
    int s = made(UDP);
    unsigned char byte = 17, none[4];
    CHECK(setsockopt(s, 0, IP_TTL, &byte, 1) == 0 && get(s, 0, IP_TTL) == 17);
    CHECK(setsockopt(s, 0, IP_TOS, &byte, 1) == 0 && get(s, 0, IP_TOS) == 17);
    CHECK_ERR(setsockopt(s, 0, IP_TTL, &byte, 0), EINVAL);
    CHECK(setsockopt(s, 0, IP_PKTINFO, &byte, 0) == 0 && get(s, 0, IP_PKTINFO) == 0);
    socklen_t n = sizeof none;
    CHECK(getsockopt(s, 0, IP_OPTIONS, none, &n) == 0 && n == 0);
    CHECK_EQ(get(s, 0, IP_MTU), -1000 - ENOTCONN);
}
CASE(bounds_of_ipv6) {
    ROWS({v6, 41, IPV6_UNICAST_HOPS, -1, 64}, {v6, 41, IPV6_UNICAST_HOPS, 0, 0}, {v6, 41, IPV6_UNICAST_HOPS, 256, 0, EINVAL}, {v6, 41, IPV6_UNICAST_HOPS, -2, 0, EINVAL},
         {UDP | V6, 41, IPV6_MULTICAST_HOPS, -1, 1}, {UDP | V6, 41, IPV6_MULTICAST_HOPS, 255, 255}, {UDP | V6, 41, IPV6_MULTICAST_HOPS, 256, 0, EINVAL},
         {TCP | V6, 41, IPV6_MULTICAST_HOPS, 1, 0, ENOPROTOOPT}, {v6, 41, IPV6_MULTICAST_LOOP, 2, 0, EINVAL}, {v6, 41, IPV6_TCLASS, 256, 0, EINVAL},
         {UDP | V6, 41, IPV6_TCLASS, 255, 255}, {TCP | V6, 41, IPV6_TCLASS, 255, 252}, {v6, 41, IPV6_TCLASS, -1, 0}, {v6, 41, IPV6_MTU, 1279, 0, EINVAL},
         {v6, 41, IPV6_MTU_DISCOVER, 6, 0, EINVAL}, {UDP | V6, 41, IPV6_MULTICAST_IF, 9999, 0, ENODEV}, {UDP | V6, 41, IPV6_MULTICAST_IF, 1, 1},
         {v6, 41, IPV6_CHECKSUM, 2, 0, ENOPROTOOPT}, {INET, 41, IPV6_V6ONLY, 1, 0, ENOPROTOOPT}, {v6, 0, IP_TTL, 9, 9});
    CHECK_EQ(get(made(UDP), 41, IPV6_V6ONLY), -1000 - EOPNOTSUPP);
    CHECK_EQ(get(made(UDP | V6), 41, IPV6_MTU), -1000 - ENOTCONN);
}
CASE(bounds_of_tcp) {
    ROWS({TCP, 6, TCP_MAXSEG, 0, 536}, {TCP, 6, TCP_MAXSEG, 87, 0, EINVAL}, {TCP, 6, TCP_MAXSEG, 1000, 1000}, {TCP, 6, TCP_MAXSEG, 32768, 0, EINVAL},
         {TCP, 6, TCP_KEEPIDLE, 0, 0, EINVAL}, {TCP, 6, TCP_KEEPIDLE, 32767, 32767}, {TCP, 6, TCP_KEEPINTVL, 32768, 0, EINVAL}, {TCP, 6, TCP_KEEPCNT, 128, 0, EINVAL},
         {TCP, 6, TCP_SYNCNT, 127, 127}, {TCP, 6, TCP_SYNCNT, 0, 0, EINVAL}, {TCP, 6, TCP_LINGER2, -5, -1}, {TCP, 6, TCP_LINGER2, 7, 7}, {TCP, 6, TCP_LINGER2, 500, 120},
         {TCP, 6, TCP_DEFER_ACCEPT, 0, 0}, {TCP, 6, TCP_DEFER_ACCEPT, 2, 3}, {TCP, 6, TCP_DEFER_ACCEPT, 5, 7}, {TCP, 6, TCP_DEFER_ACCEPT, 64, 127}, {TCP, 6, TCP_DEFER_ACCEPT, -3, 0},
         {TCP, 6, TCP_WINDOW_CLAMP, 1, 1152}, {TCP, 6, TCP_WINDOW_CLAMP, 0, 0}, {TCP, 6, TCP_WINDOW_CLAMP, 65535, 65535},
         {TCP, 6, TCP_USER_TIMEOUT, -1, 0, EINVAL}, {TCP, 6, TCP_USER_TIMEOUT, 9, 9}, {TCP, 6, TCP_FASTOPEN, -1, 0, EINVAL},
         {TCP, 6, TCP_NOTSENT_LOWAT, 4096, 4096}, {TCP, 6, TCP_INFO, 1, 0, ENOPROTOOPT}, {TCP, 6, 99, 1, 0, ENOPROTOOPT}, {TCP, 17, 1, 1, 0, ENOPROTOOPT});
    CHECK_EQ(get(made(TCP), 17, 1), -1000 - EOPNOTSUPP);
    CHECK_ERR(setsockopt(made(TCP), 6, TCP_NODELAY, "ab", 3), EINVAL);
}
CASE(bounds_of_udp) {
    ROWS({UDP, 17, 103 /* SEGMENT */, 65535, 65535}, {UDP, 17, 103, 65536, 0, EINVAL}, {UDP, 17, 103, -1, 0, EINVAL},
         {UDP, 17, 101 /* NO_CHECK6_TX */, 3, 1}, {UDP, 17, 55, 1, 0, ENOPROTOOPT}, {UDP, 6, 1, 1, 0, ENOPROTOOPT});
    CHECK_EQ(get(made(UDP), 17, 1), 0);
}
CASE(bounds_of_all_sockets) {
    ROWS({any, so, SO_SNDBUF, 0, 4608}, {any, so, SO_RCVBUF, 0, 2304}, {any, so, SO_SNDBUF, 10000, 20000}, {any, so, SO_RCVBUF, 30000, 60000},
         {any, so, SO_PRIORITY, 6, 6}, {any, so, SO_TYPE, 1, 0, ENOPROTOOPT}, {any, so, SO_ACCEPTCONN, 1, 0, ENOPROTOOPT}, {any, so, SO_SNDLOWAT, 1, 0, ENOPROTOOPT},
         {any, so, SO_RCVLOWAT, 0, 1}, {any, so, SO_RCVLOWAT, 9, 9}, {UDP | UNIX, so, SO_RCVLOWAT, -1, INT_MAX}, {any, so, SO_BUSY_POLL, -1, 0, EINVAL},
         {INET, so, SO_ZEROCOPY, 1, 1}, {INET, so, SO_ZEROCOPY, 2, 0, EINVAL}, {UNIX, so, SO_ZEROCOPY, 1, 0, EOPNOTSUPP}, {any, so, SO_INCOMING_CPU, 0, 0},
         {any, so, 999, 1, 0, ENOPROTOOPT});
    // A negative size is a huge one: the largest there is.
    int s = made(UDP), most = 0;
    CHECK(set(s, so, SO_RCVBUF, INT_MAX) == 0 && (most = get(s, so, SO_RCVBUF)) >= 2304);
    CHECK(set(s, so, SO_RCVBUF, 0) == 0 && set(s, so, SO_RCVBUF, -1) == 0);
    CHECK_EQ(get(s, so, SO_RCVBUF), most);
    CHECK_ERR(setsockopt(s, so, SO_RCVBUF, &most, 3), EINVAL);
    uint64_t rate = 0;
    socklen_t n = sizeof rate;
    CHECK(getsockopt(s, so, SO_MAX_PACING_RATE, &rate, &n) == 0 && n == 8 && rate == UINT64_MAX);
    CHECK(set(s, so, SO_MAX_PACING_RATE, 5000) == 0 && getsockopt(s, so, SO_MAX_PACING_RATE, &rate, &n) == 0 && rate == 5000);
}
CASE(forced_buffers_have_no_maximum) {
    int s = made(UNIX);
    if (set(s, SOL_SOCKET, SO_SNDBUFFORCE, 30 << 20)) { CHECK_EQ(errno, EPERM); return; }
    CHECK_EQ(get(s, SOL_SOCKET, SO_SNDBUF), 60 << 20);
    CHECK(set(s, SOL_SOCKET, SO_RCVBUFFORCE, 40 << 20) == 0);
    CHECK_EQ(get(s, SOL_SOCKET, SO_RCVBUF), 80 << 20);
    CHECK(set(s, SOL_SOCKET, SO_SNDBUFFORCE, -9) == 0);
    CHECK_EQ(get(s, SOL_SOCKET, SO_SNDBUF), 4608);
}
CASE(linger_keeps_its_time) {
    int s = made(TCP);
    struct linger l = {1, 77};
    socklen_t n = sizeof l;
    CHECK(setsockopt(s, SOL_SOCKET, SO_LINGER, &l, sizeof l) == 0);
    l.l_onoff = 0, l.l_linger = 5;
    CHECK(setsockopt(s, SOL_SOCKET, SO_LINGER, &l, sizeof l) == 0 && getsockopt(s, SOL_SOCKET, SO_LINGER, &l, &n) == 0);
    CHECK(l.l_onoff == 0 && l.l_linger == 77 && n == sizeof l);
    CHECK_ERR(setsockopt(s, SOL_SOCKET, SO_LINGER, &l, 4), EINVAL);
}
CASE(times_and_what_bounds_them) {
    int s = made(UNIX);
    struct timeval t = {0, 1000000}, got;
    socklen_t n = sizeof got;
    CHECK_ERR(setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t), EDOM);
    CHECK_ERR(setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &t, 8), EINVAL);
    t = (struct timeval){LONG_MAX, 0};
    CHECK(setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t) == 0 && getsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &got, &n) == 0);
    CHECK(got.tv_sec == 0 && got.tv_usec == 0);
    t = (struct timeval){-5, 0};
    CHECK(setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t) == 0);
    CHECK_ERR(recv(s, &n, 1, 0), EINVAL);
}
CASE(congestion_control_by_name) {
    int s = made(TCP);
    char name[16] = "";
    socklen_t n = sizeof name;
    CHECK(setsockopt(s, 6, TCP_CONGESTION, "reno", 4) == 0 && getsockopt(s, 6, TCP_CONGESTION, name, &n) == 0);
    CHECK(n == 16 && !strcmp(name, "reno"));
    CHECK_ERR(setsockopt(s, 6, TCP_CONGESTION, "nobody", 6), ENOENT);
    CHECK_ERR(setsockopt(s, 6, TCP_CONGESTION, "", 0), EINVAL);
    CHECK(getsockopt(s, 6, TCP_CONGESTION, name, &n) == 0 && !strcmp(name, "reno"));
}
CASE(one_way_of_time_stamps) {
    int s = made(UDP);
    CHECK(set(s, so, SO_TIMESTAMP, 1) == 0 && get(s, so, SO_TIMESTAMP) == 1 && get(s, so, SO_TIMESTAMPNS) == 0);
    CHECK(set(s, so, SO_TIMESTAMPNS, 1) == 0 && get(s, so, SO_TIMESTAMP) == 0 && get(s, so, SO_TIMESTAMPNS) == 1);
    CHECK(set(s, so, 63 /* SO_TIMESTAMP_NEW */, 1) == 0 && get(s, so, 63) == 1 && get(s, so, SO_TIMESTAMP) == 0);
    CHECK(set(s, so, SO_TIMESTAMP, 0) == 0 && get(s, so, 63) == 0);
    CHECK_ERR(set(s, so, SO_TIMESTAMPING, 1 << 30), EINVAL);
    int f[2] = {0}, want = SOF_TIMESTAMPING_RX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE;
    socklen_t n = sizeof f;
    CHECK(set(s, so, SO_TIMESTAMPING, want) == 0 && getsockopt(s, so, SO_TIMESTAMPING, f, &n) == 0 && f[0] == want);
}
CASE(class_of_service_sets_the_priority) {
    int s = made(UDP);
    CHECK(set(s, 0, IP_TOS, 0x10) == 0 && get(s, SOL_SOCKET, SO_PRIORITY) == 6);
    CHECK(set(s, 0, IP_TOS, 0x08) == 0 && get(s, SOL_SOCKET, SO_PRIORITY) == 2);
}
CASE(locked_filters_stay_locked) {
    int s = made(UDP);
    CHECK_ERR(set(s, SOL_SOCKET, SO_DETACH_FILTER, 0), ENOENT);
    CHECK(set(s, SOL_SOCKET, SO_LOCK_FILTER, 1) == 0 && get(s, SOL_SOCKET, SO_LOCK_FILTER) == 1);
    CHECK_ERR(set(s, SOL_SOCKET, SO_LOCK_FILTER, 0), EPERM);
}
CASE(accepted_sockets_have_the_listeners_options) {
    int l = made(TCP), c = made(TCP), s;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    CHECK(set(l, 6, TCP_NODELAY, 1) == 0 && set(l, 0, IP_TTL, 44) == 0 && set(l, SOL_SOCKET, SO_RCVLOWAT, 5) == 0 && set(l, 6, TCP_KEEPIDLE, 33) == 0);
    CHECK(set(l, SOL_SOCKET, SO_SNDBUF, 50000) == 0 && setsockopt(l, 6, TCP_CONGESTION, "reno", 4) == 0);
    CHECK(bind(l, (void *)&at, n) == 0 && listen(l, 1) == 0 && getsockname(l, (void *)&at, &n) == 0);
    CHECK(connect(c, (void *)&at, n) == 0 && (s = accept(l, NULL, NULL)) >= 0);
    CHECK(get(s, 6, TCP_NODELAY) == 1 && get(s, 0, IP_TTL) == 44 && get(s, SOL_SOCKET, SO_RCVLOWAT) == 5 && get(s, 6, TCP_KEEPIDLE) == 33);
    char name[16];
    CHECK(get(s, SOL_SOCKET, SO_SNDBUF) == 100000 && getsockopt(s, 6, TCP_CONGESTION, name, &n) == 0 && !strcmp(name, "reno"));
    CHECK(get(s, 6, TCP_MAXSEG) > 10000);
}
CASE(foreign_addresses_if_one_asks) {
    int s = made(UDP);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = inet_addr("192.0.2.77")};
    CHECK_ERR(bind(s, (void *)&at, sizeof at), EADDRNOTAVAIL);
    CHECK(set(s, 0, IP_FREEBIND, 1) == 0);
    CHECK(bind(s, (void *)&at, sizeof at) == 0);
}
CASE(any_address_without_a_family) {
    struct sockaddr_in at = {.sin_family = AF_UNSPEC};
    socklen_t n = sizeof at;
    int s = made(UDP);
    CHECK(bind(s, (void *)&at, sizeof at) == 0 && getsockname(s, (void *)&at, &n) == 0 && at.sin_family == AF_INET && at.sin_port != 0);
    at.sin_family = AF_UNSPEC, at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK_ERR(bind(made(UDP), (void *)&at, sizeof at), EAFNOSUPPORT);
    struct sockaddr_in6 six = {.sin6_family = AF_UNSPEC};
    CHECK_ERR(bind(made(UDP | V6), (void *)&six, sizeof six), EAFNOSUPPORT);
}
CASE(an_address_first_and_its_port_at_connect) {
    int l = made(TCP), c = made(TCP);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}, me = at;
    socklen_t n = sizeof at;
    CHECK(bind(l, (void *)&at, n) == 0 && listen(l, 1) == 0 && getsockname(l, (void *)&at, &n) == 0);
    me.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
    CHECK(set(c, 0, IP_BIND_ADDRESS_NO_PORT, 1) == 0 && bind(c, (void *)&me, n) == 0);
    CHECK(getsockname(c, (void *)&me, &n) == 0 && me.sin_port == 0 && me.sin_addr.s_addr == htonl(INADDR_LOOPBACK + 1));
    CHECK(connect(c, (void *)&at, n) == 0 && getsockname(c, (void *)&me, &n) == 0);
    CHECK(me.sin_port != 0 && me.sin_addr.s_addr == htonl(INADDR_LOOPBACK + 1));
}
