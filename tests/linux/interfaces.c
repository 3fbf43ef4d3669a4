// Network interfaces, addresses and routes: what netlink, ioctls, /proc/net and /sys/class/net say is the same.
#include "t.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netpacket/packet.h>
#include <sys/ioctl.h>

static struct ifaddrs *all;
static int s;

static void begin(void) {
    CHECK_OK(getifaddrs(&all));
    CHECK((s = socket(AF_INET, SOCK_DGRAM, 0)) >= 0);
}
static struct ifreq ask(const char *name, unsigned long what) {
    struct ifreq r = {0};
    snprintf(r.ifr_name, sizeof r.ifr_name, "%s", name);
    CHECK_OK(ioctl(s, what, &r));
    return r;
}
static const char *sys(const char *name, const char *file) {
    char path[200];
    snprintf(path, sizeof path, "/sys/class/net/%s/%s", name, file);
    return slurp(path);
}
#define EACH(i, family) for (struct ifaddrs *i = all; i; i = i->ifa_next) if (i->ifa_addr && i->ifa_addr->sa_family == (family))

static int count_names(void) {
    struct if_nameindex *n = if_nameindex();
    CHECK(n);
    int k = 0;
    while (n[k].if_index) k++;
    if_freenameindex(n);
    return k;
}

CASE(the_same_names_everywhere) {
    begin();
    int links = 0, dirs = 0;
    EACH(i, AF_PACKET) {
        links++;
        char line[64];
        snprintf(line, sizeof line, "%s:", i->ifa_name);
        CHECK(strstr(slurp("/proc/net/dev"), line));
        CHECK_EQ(if_nametoindex(i->ifa_name), ((struct sockaddr_ll *)i->ifa_addr)->sll_ifindex);
    }
    DIR *d = opendir("/sys/class/net");
    CHECK(d);
    for (struct dirent *e; (e = readdir(d));) dirs += e->d_name[0] != '.' && e->d_type == DT_LNK;
    CHECK_EQ(links, dirs);
    CHECK_EQ(links, count_names());
}
CASE(links_have_one_description) {
    begin();
    EACH(i, AF_PACKET) {
        struct sockaddr_ll *a = (void *)i->ifa_addr;
        unsigned char *m = a->sll_addr;
        char want[64];
        CHECK_EQ(ask(i->ifa_name, SIOCGIFINDEX).ifr_ifindex, a->sll_ifindex);
        CHECK_EQ(atoi(sys(i->ifa_name, "ifindex")), a->sll_ifindex);
        CHECK_EQ((unsigned short)ask(i->ifa_name, SIOCGIFFLAGS).ifr_flags, i->ifa_flags & 0xffff);
        CHECK_EQ(ask(i->ifa_name, SIOCGIFMTU).ifr_mtu, atoi(sys(i->ifa_name, "mtu")));
        CHECK_EQ(ask(i->ifa_name, SIOCGIFTXQLEN).ifr_qlen, atoi(sys(i->ifa_name, "tx_queue_len")));
        struct ifreq h = ask(i->ifa_name, SIOCGIFHWADDR);
        CHECK_EQ(h.ifr_hwaddr.sa_family, a->sll_hatype);
        CHECK_EQ(atoi(sys(i->ifa_name, "type")), a->sll_hatype);
        if (a->sll_halen != 6) continue;
        CHECK(!memcmp(h.ifr_hwaddr.sa_data, m, 6));
        snprintf(want, sizeof want, "%02x:%02x:%02x:%02x:%02x:%02x\n", m[0], m[1], m[2], m[3], m[4], m[5]);
        CHECK(!strcmp(sys(i->ifa_name, "address"), want));
        struct ifreq n = {.ifr_ifindex = a->sll_ifindex};
        CHECK_OK(ioctl(s, SIOCGIFNAME, &n));
        CHECK(!strcmp(n.ifr_name, i->ifa_name));
    }
}
CASE(ipv4_addresses_masks_and_broadcast) {
    begin();
    struct ifconf c = {0};
    CHECK_OK(ioctl(s, SIOCGIFCONF, &c));
    int room = c.ifc_len, found = 0, told = 0;
    CHECK((c.ifc_buf = malloc(room)));
    CHECK_OK(ioctl(s, SIOCGIFCONF, &c));
    CHECK_EQ(c.ifc_len, room);
    EACH(i, AF_INET) {
        found++;
        struct in_addr own = ((struct sockaddr_in *)i->ifa_addr)->sin_addr;
        for (int k = 0; k < room / (int)sizeof(struct ifreq); k++)
            told += ((struct sockaddr_in *)&c.ifc_req[k].ifr_addr)->sin_addr.s_addr == own.s_addr;
        struct ifreq r = ask(i->ifa_name, SIOCGIFADDR);
        if (((struct sockaddr_in *)&r.ifr_addr)->sin_addr.s_addr != own.s_addr) continue;  // has several
        r = ask(i->ifa_name, SIOCGIFNETMASK);
        CHECK_EQ(((struct sockaddr_in *)&r.ifr_addr)->sin_addr.s_addr, ((struct sockaddr_in *)i->ifa_netmask)->sin_addr.s_addr);
        r = ask(i->ifa_name, SIOCGIFBRDADDR);
        if ((i->ifa_flags & IFF_BROADCAST) && i->ifa_broadaddr)
            CHECK_EQ(((struct sockaddr_in *)&r.ifr_addr)->sin_addr.s_addr, ((struct sockaddr_in *)i->ifa_broadaddr)->sin_addr.s_addr);
    }
    CHECK(found > 0 && told >= found);
    c.ifc_len = sizeof(struct ifreq);
    CHECK_OK(ioctl(s, SIOCGIFCONF, &c));
    CHECK_EQ(c.ifc_len, sizeof(struct ifreq));
}
CASE(ipv6_addresses_are_in_proc) {
    begin();
    EACH(i, AF_INET6) {
        struct sockaddr_in6 *a = (void *)i->ifa_addr, *m = (void *)i->ifa_netmask;
        char want[64], *p = want;
        int bits = 0;
        for (int k = 0; k < 16; k++) {
            p += sprintf(p, "%02x", a->sin6_addr.s6_addr[k]);
            bits += __builtin_popcount(m->sin6_addr.s6_addr[k]);
        }
        sprintf(p, " %02x %02x ", if_nametoindex(i->ifa_name), bits);
        CHECK(strstr(slurp("/proc/net/if_inet6"), want));
    }
}
CASE(own_addresses_can_be_bound_and_reached) {
    begin();
    EACH(i, AF_INET) {
        struct sockaddr_in a = *(struct sockaddr_in *)i->ifa_addr;
        socklen_t len = sizeof a;
        int l = socket(AF_INET, SOCK_STREAM, 0), c = socket(AF_INET, SOCK_STREAM, 0);
        CHECK_OK(bind(l, (void *)&a, sizeof a));
        CHECK_OK(listen(l, 1));
        CHECK_OK(getsockname(l, (void *)&a, &len));
        CHECK_OK(connect(c, (void *)&a, sizeof a));
        struct sockaddr_in from;
        int d = accept(l, (void *)&from, &len);
        CHECK(d >= 0 && from.sin_addr.s_addr == a.sin_addr.s_addr);
        close(c), close(d), close(l);
    }
}

// Sends a request; the answers' datagrams come one by one.
static int netlink(int type, int flags, const void *body, size_t len) {
    struct {
        struct nlmsghdr h;
        char body[256];
    } m = {.h = {.nlmsg_len = NLMSG_LENGTH(len), .nlmsg_type = type, .nlmsg_flags = NLM_F_REQUEST | flags, .nlmsg_seq = 7}};
    memcpy(m.body, body, len);
    int n = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    CHECK(n >= 0);
    CHECK_EQ(send(n, &m, m.h.nlmsg_len, 0), m.h.nlmsg_len);
    return n;
}
static struct nlmsghdr *answer(int n) {
    static char buf[65536] __attribute__((aligned(8)));
    ssize_t r = recv(n, buf, sizeof buf, 0);
    CHECK(r >= (ssize_t)sizeof(struct nlmsghdr));
    struct nlmsghdr *h = (void *)buf;
    CHECK_EQ(h->nlmsg_seq, 7);
    return h;
}
static int error_of(int n) {
    struct nlmsghdr *h = answer(n);
    CHECK_EQ(h->nlmsg_type, NLMSG_ERROR);
    return -((struct nlmsgerr *)NLMSG_DATA(h))->error;
}
static void *attribute(struct nlmsghdr *h, size_t head, int type) {
    struct rtattr *a = (void *)((char *)NLMSG_DATA(h) + NLMSG_ALIGN(head));
    int left = h->nlmsg_len - NLMSG_SPACE(head);
    for (; RTA_OK(a, left); a = RTA_NEXT(a, left))
        if ((a->rta_type & NLA_TYPE_MASK) == type) return RTA_DATA(a);
    return NULL;
}

CASE(routes_of_the_main_table_are_in_proc) {
    struct rtmsg want = {.rtm_family = AF_INET};
    int n = netlink(RTM_GETROUTE, NLM_F_DUMP, &want, sizeof want), routes = 0, lines = -1, done = 0;
    static char buf[65536] __attribute__((aligned(8)));
    while (!done) {
        int len = CHECK_OK(recv(n, buf, sizeof buf, 0));
        for (struct nlmsghdr *h = (void *)buf; NLMSG_OK(h, (unsigned)len); h = NLMSG_NEXT(h, len)) {
            struct rtmsg *r = NLMSG_DATA(h);
            if (h->nlmsg_type == NLMSG_DONE) { done = 1; break; }
            CHECK_EQ(h->nlmsg_type, RTM_NEWROUTE);
            CHECK(h->nlmsg_flags & NLM_F_MULTI);
            if (r->rtm_table != RT_TABLE_MAIN || r->rtm_type != RTN_UNICAST) continue;
            routes++;
            uint32_t *to = attribute(h, sizeof *r, RTA_DST), *via = attribute(h, sizeof *r, RTA_GATEWAY);
            int *device = attribute(h, sizeof *r, RTA_OIF);
            char name[IF_NAMESIZE], line[100];
            CHECK(device && if_indextoname(*device, name));
            snprintf(line, sizeof line, "%s\t%08X\t%08X\t", name, to ? *to : 0, via ? *via : 0);
            CHECK(strstr(slurp("/proc/net/route"), line));
        }
    }
    for (char *p = slurp("/proc/net/route"); *p; p++) lines += *p == '\n';
    CHECK_EQ(routes, lines);
}
CASE(the_way_to_an_address) {
    struct {
        struct rtmsg m;
        struct rtattr a;
        uint32_t ip;
    } q = {{.rtm_family = AF_INET, .rtm_dst_len = 32}, {RTA_LENGTH(4), RTA_DST}, htonl(INADDR_LOOPBACK)};
    struct nlmsghdr *h = answer(netlink(RTM_GETROUTE, 0, &q, sizeof q));
    struct rtmsg *r = NLMSG_DATA(h);
    CHECK_EQ(h->nlmsg_type, RTM_NEWROUTE);
    CHECK_EQ(r->rtm_type, RTN_LOCAL);
    CHECK_EQ(*(int *)attribute(h, sizeof *r, RTA_OIF), 1);
    CHECK_EQ(*(uint32_t *)attribute(h, sizeof *r, RTA_PREFSRC), htonl(INADDR_LOOPBACK));
}
CASE(one_link_by_index_or_name) {
    struct ifinfomsg m = {.ifi_index = 1};
    struct nlmsghdr *h = answer(netlink(RTM_GETLINK, 0, &m, sizeof m));
    CHECK_EQ(h->nlmsg_type, RTM_NEWLINK);
    CHECK(!strcmp(attribute(h, sizeof m, IFLA_IFNAME), "lo"));
    CHECK_EQ(*(unsigned *)attribute(h, sizeof m, IFLA_MTU), 65536);
    struct {
        struct ifinfomsg m;
        struct rtattr a;
        char name[8];
    } q = {{0}, {RTA_LENGTH(3), IFLA_IFNAME}, "lo"};
    CHECK_EQ(((struct ifinfomsg *)NLMSG_DATA(answer(netlink(RTM_GETLINK, 0, &q, sizeof q))))->ifi_index, 1);
    m.ifi_index = 4711;
    CHECK_EQ(error_of(netlink(RTM_GETLINK, 0, &m, sizeof m)), ENODEV);
    CHECK_EQ(error_of(netlink(RTM_GETLINK, 0, &m, 2)), EINVAL);
}
CASE(a_dump_fits_small_buffers) {
    struct ifinfomsg m = {0};
    int n = netlink(RTM_GETLINK, NLM_F_DUMP, &m, sizeof m), links = 0;
    for (;;) {
        char buf[8192] __attribute__((aligned(8)));
        struct iovec v = {buf, sizeof buf};
        struct msghdr mh = {.msg_iov = &v, .msg_iovlen = 1};
        int len = CHECK_OK(recvmsg(n, &mh, 0));
        CHECK(!(mh.msg_flags & MSG_TRUNC));
        struct nlmsghdr *h = (void *)buf;
        for (; NLMSG_OK(h, (unsigned)len); h = NLMSG_NEXT(h, len)) {
            if (h->nlmsg_type == NLMSG_DONE) {
                CHECK_EQ(links, count_names());
                return;
            }
            links++;
        }
    }
}
CASE(nothing_is_changed_without_privilege) {
    CHECK_EQ(join(SPAWN({
        t_drop_root();
        s = socket(AF_INET, SOCK_DGRAM, 0);
        struct ifreq r = ask("lo", SIOCGIFMTU);
        CHECK_ERR(ioctl(s, SIOCSIFMTU, &r), EPERM);
        CHECK_ERR(ioctl(s, SIOCSIFFLAGS, &r), EPERM);
        struct ifinfomsg m = {.ifi_index = 1};
        CHECK_EQ(error_of(netlink(RTM_SETLINK, NLM_F_ACK, &m, sizeof m)), EPERM);
    })), 0);
}
CASE(lo_has_no_settings_of_hardware) {
    begin();
    struct ethtool_cmd c = {.cmd = ETHTOOL_GSET};
    struct ifreq r = {.ifr_name = "lo", .ifr_data = (void *)&c};
    CHECK_ERR(ioctl(s, SIOCETHTOOL, &r), EOPNOTSUPP);
    strcpy(r.ifr_name, "nope0");
    CHECK_ERR(ioctl(s, SIOCETHTOOL, &r), ENODEV);
    CHECK_ERR(ioctl(s, SIOCGIFFLAGS, &r), ENODEV);
    CHECK_ERR(ioctl(s, SIOCGIFFLAGS, BAD), EFAULT);
}
