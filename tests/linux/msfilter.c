// Lists of sources of multicast groups, set and read as a whole (IP_MSFILTER, MCAST_MSFILTER), and whom they let through.
#include "t.h"
#include <arpa/inet.h>
#include <netinet/in.h>

static int s, out;
static struct sockaddr_in to;
static const char GROUP[] = "239.7.7.7";
// A member of the group on the loopback, and somebody who sends to it from this address.
static void members(void) {
    socklen_t n = sizeof to;
    s = socket(AF_INET, SOCK_DGRAM, 0), out = socket(AF_INET, SOCK_DGRAM, 0);
    struct ip_mreq q = {{inet_addr(GROUP)}, {htonl(INADDR_LOOPBACK)}};
    struct in_addr lo = {htonl(INADDR_LOOPBACK)};
    to = (struct sockaddr_in){.sin_family = AF_INET};
    CHECK(bind(s, (void *)&to, n) == 0 && getsockname(s, (void *)&to, &n) == 0);
    CHECK(setsockopt(s, 0, IP_ADD_MEMBERSHIP, &q, sizeof q) == 0);
    CHECK(setsockopt(out, 0, IP_MULTICAST_IF, &lo, sizeof lo) == 0);
    to.sin_addr.s_addr = inet_addr(GROUP);
}
static bool heard_from(const char *source) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = inet_addr(source)};
    int o = socket(AF_INET, SOCK_DGRAM, 0);
    struct in_addr lo = {htonl(INADDR_LOOPBACK)};
    char b[8];
    CHECK(setsockopt(o, 0, IP_MULTICAST_IF, &lo, sizeof lo) == 0 && bind(o, (void *)&a, sizeof a) == 0);
    CHECK_EQ(sendto(o, "hi", 2, 0, (void *)&to, sizeof to), 2);
    close(o);
    return recv(s, b, sizeof b, MSG_DONTWAIT) == 2;
}
static union { struct ip_msfilter f; char room[1024]; } v4;
static int set4(int mode, int n, const char *const *sources) {
    v4.f.imsf_multiaddr.s_addr = inet_addr(GROUP), v4.f.imsf_interface.s_addr = htonl(INADDR_LOOPBACK);
    v4.f.imsf_fmode = mode, v4.f.imsf_numsrc = n;
    for (int i = 0; i < n; i++) (&v4.f.imsf_slist[0])[i].s_addr = inet_addr(sources[i % 2]);
    return setsockopt(s, 0, IP_MSFILTER, &v4, 16 + 4 * n);
}
static const char *const two[] = {"127.0.0.8", "127.0.0.9"};

CASE(whom_a_list_lets_through) {
    members();
    CHECK(heard_from("127.0.0.8") && heard_from("127.0.0.7"));
    CHECK(set4(MCAST_INCLUDE, 2, two) == 0);
    CHECK(heard_from("127.0.0.8") && heard_from("127.0.0.9") && !heard_from("127.0.0.7"));
    CHECK(set4(MCAST_EXCLUDE, 2, two) == 0);
    CHECK(!heard_from("127.0.0.8") && !heard_from("127.0.0.9") && heard_from("127.0.0.7"));
    CHECK(set4(MCAST_EXCLUDE, 0, two) == 0);
    CHECK(heard_from("127.0.0.8"));
}
CASE(nobody_is_wanted_is_to_leave) {
    members();
    CHECK(set4(MCAST_INCLUDE, 0, two) == 0);
    CHECK_ERR(set4(MCAST_INCLUDE, 0, two), EADDRNOTAVAIL);
    CHECK_ERR(set4(MCAST_INCLUDE, 1, two), EINVAL);
}
CASE(arguments) {
    members();
    CHECK_ERR(set4(7, 1, two), EINVAL);
    CHECK_ERR(set4(MCAST_INCLUDE, 11, two), ENOBUFS);
    CHECK(set4(MCAST_INCLUDE, 1, two) == 0);
    CHECK_ERR(setsockopt(s, 0, IP_MSFILTER, &v4, 15), EINVAL);
    CHECK_ERR(setsockopt(s, 0, IP_MSFILTER, &v4, 16), EINVAL);  // its list is longer
    v4.f.imsf_multiaddr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK_ERR(setsockopt(s, 0, IP_MSFILTER, &v4, 20), EINVAL);
    v4.f.imsf_multiaddr.s_addr = inet_addr("239.7.7.8");
    CHECK_ERR(setsockopt(s, 0, IP_MSFILTER, &v4, 20), EINVAL);
}
CASE(read_as_it_was_set) {
    members();
    CHECK(set4(MCAST_INCLUDE, 2, two) == 0);
    socklen_t n = 24;
    memset(v4.room + 8, 0, 100), v4.f.imsf_numsrc = 2;
    CHECK(getsockopt(s, 0, IP_MSFILTER, &v4, &n) == 0 && n == 24);
    CHECK(v4.f.imsf_fmode == MCAST_INCLUDE && v4.f.imsf_numsrc == 2);
    CHECK((&v4.f.imsf_slist[0])[1].s_addr == inet_addr(two[1]));
    // Less room: as many as fit, and how many there are.
    memset(v4.room + 8, 0, 100), v4.f.imsf_numsrc = 1, n = 20;
    CHECK(getsockopt(s, 0, IP_MSFILTER, &v4, &n) == 0 && n == 20 && v4.f.imsf_numsrc == 2);
    n = 8;
    CHECK_ERR(getsockopt(s, 0, IP_MSFILTER, &v4, &n), EINVAL);
    v4.f.imsf_multiaddr.s_addr = inet_addr("239.7.7.8"), n = 24;
    CHECK_ERR(getsockopt(s, 0, IP_MSFILTER, &v4, &n), EADDRNOTAVAIL);
}
CASE(the_general_form) {
    members();
    static union { struct group_filter f; char room[2048]; } g;
    g.f.gf_interface = 1, g.f.gf_fmode = MCAST_EXCLUDE, g.f.gf_numsrc = 1;
    *(struct sockaddr_in *)&g.f.gf_group = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = inet_addr(GROUP)};
    *(struct sockaddr_in *)&g.f.gf_slist[0] = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = inet_addr(two[0])};
    CHECK(setsockopt(s, 0, MCAST_MSFILTER, &g, GROUP_FILTER_SIZE(1)) == 0);
    CHECK(!heard_from(two[0]) && heard_from(two[1]));
    socklen_t n = GROUP_FILTER_SIZE(1);
    g.f.gf_fmode = 9, memset(&g.f.gf_slist[0], 0, sizeof g.f.gf_slist[0]);
    CHECK(getsockopt(s, 0, MCAST_MSFILTER, &g, &n) == 0 && n == GROUP_FILTER_SIZE(1));
    CHECK(g.f.gf_fmode == MCAST_EXCLUDE && g.f.gf_numsrc == 1);
    CHECK(((struct sockaddr_in *)&g.f.gf_slist[0])->sin_addr.s_addr == inet_addr(two[0]));
}
CASE(of_ipv6) {
    static union { struct group_filter f; char room[2048]; } g;
    s = socket(AF_INET6, SOCK_DGRAM, 0);
    struct sockaddr_in6 *group = (void *)&g.f.gf_group, *source = (void *)&g.f.gf_slist[0];
    struct ipv6_mreq q = {.ipv6mr_interface = 1};
    group->sin6_family = source->sin6_family = AF_INET6;
    CHECK(inet_pton(AF_INET6, "ff02::77", &group->sin6_addr) == 1 && inet_pton(AF_INET6, "fe80::8", &source->sin6_addr) == 1);
    q.ipv6mr_multiaddr = group->sin6_addr;
    g.f.gf_interface = 1, g.f.gf_fmode = MCAST_INCLUDE, g.f.gf_numsrc = 1;
    CHECK_ERR(setsockopt(s, IPPROTO_IPV6, MCAST_MSFILTER, &g, GROUP_FILTER_SIZE(1)), EINVAL);
    CHECK(setsockopt(s, IPPROTO_IPV6, IPV6_ADD_MEMBERSHIP, &q, sizeof q) == 0);
    CHECK(setsockopt(s, IPPROTO_IPV6, MCAST_MSFILTER, &g, GROUP_FILTER_SIZE(1)) == 0);
    socklen_t n = sizeof g;
    g.f.gf_numsrc = 5, g.f.gf_fmode = 9;
    CHECK(getsockopt(s, IPPROTO_IPV6, MCAST_MSFILTER, &g, &n) == 0 && n == GROUP_FILTER_SIZE(1));
    CHECK(g.f.gf_fmode == MCAST_INCLUDE && g.f.gf_numsrc == 1 && source->sin6_addr.s6_addr[15] == 8);
}
