// Filters of sockets (classic BPF): which programs are taken, how they are shown and locked, and what they let through.
#include "t.h"
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/un.h>

static int attach(int s, struct sock_filter *f, int n) {
    struct sock_fprog p = {n, f};
    return setsockopt(s, SOL_SOCKET, SO_ATTACH_FILTER, &p, sizeof p);
}
#define ATTACH(s, ...) ({ struct sock_filter f_[] = {__VA_ARGS__}; attach(s, f_, sizeof f_ / sizeof *f_); })
#define RET(n) BPF_STMT(BPF_RET | BPF_K, n)
#define LOAD(size, n) BPF_STMT(BPF_LD | size | BPF_ABS, (unsigned)(n))
// Takes what A is, and drops the rest.
#define IF_A(n) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, n, 0, 1), RET(~0u), RET(0)
static int detach(int s) {
    int zero = 0;
    return setsockopt(s, SOL_SOCKET, SO_DETACH_FILTER, &zero, sizeof zero);
}

static int s[2];
static void pair(int kind) { CHECK(socketpair(AF_UNIX, kind, 0, s) == 0); }
// A socket s[0] that s[1] is connected to.
static void udp(int family) {
    struct sockaddr_in6 a = {.sin6_family = family};
    socklen_t n = sizeof a;
    if (family == AF_INET) ((struct sockaddr_in *)&a)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    else a.sin6_addr = in6addr_loopback;
    s[0] = socket(family, SOCK_DGRAM, 0), s[1] = socket(family, SOCK_DGRAM, 0);
    CHECK(s[0] >= 0 && s[1] >= 0);
    CHECK(bind(s[0], (void *)&a, n) == 0 && getsockname(s[0], (void *)&a, &n) == 0 && connect(s[1], (void *)&a, n) == 0);
}
// Length of what comes of a message, -1 for nothing.
static int comes(const char *text) {
    char b[100];
    CHECK_EQ(send(s[1], text, strlen(text), 0), strlen(text));
    int n = recv(s[0], b, sizeof b, MSG_DONTWAIT);
    CHECK(n >= 0 ? !memcmp(b, text, n) : errno == EAGAIN);
    return n;
}

CASE(programs_that_are_refused) {
    pair(SOCK_DGRAM);
    CHECK_ERR(attach(s[0], NULL, 1), EINVAL);
    CHECK_ERR(attach(s[0], (struct sock_filter[]){RET(0)}, 0), EINVAL);
    CHECK_ERR(attach(s[0], (struct sock_filter *)noaccess(), 1), EFAULT);
    struct sock_filter many[BPF_MAXINSNS + 1];
    for (int i = 0; i <= BPF_MAXINSNS; i++) many[i] = (struct sock_filter)RET(1);
    CHECK_ERR(attach(s[0], many, BPF_MAXINSNS + 1), EINVAL);
    CHECK(attach(s[0], many, BPF_MAXINSNS) == 0);
    CHECK_ERR(setsockopt(s[0], SOL_SOCKET, SO_ATTACH_FILTER, many, 8), EINVAL);
    static struct sock_filter bad[][3] = {
        {LOAD(BPF_W, 0), LOAD(BPF_W, 0), LOAD(BPF_W, 0)},                                 // no end
        {BPF_STMT(BPF_JMP | BPF_JA, 2), RET(0), RET(0)},                                  // out of it
        {BPF_STMT(BPF_JMP | BPF_JA, ~0u), RET(0), RET(0)},                                // back
        {BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 2), RET(0), RET(0)},                   // out of it
        {BPF_STMT(BPF_ALU | BPF_DIV | BPF_K, 0), RET(0), RET(0)}, {BPF_STMT(BPF_ALU | BPF_MOD | BPF_K, 0), RET(0), RET(0)},
        {BPF_STMT(BPF_ALU | BPF_LSH | BPF_K, 32), RET(0), RET(0)},
        {BPF_STMT(BPF_ST, 16), RET(0), RET(0)}, {BPF_STMT(BPF_LD | BPF_MEM, 0), RET(0), RET(0)},
        {LOAD(BPF_W, SKF_AD_OFF + 1), RET(0), RET(0)}, {LOAD(BPF_W, SKF_AD_OFF + SKF_AD_MAX), RET(0), RET(0)},
        {{0xffff, 0, 0, 0}, RET(0), RET(0)}, {{0x18, 0, 0, 0}, RET(0), RET(0)},
        {RET(0), RET(0), BPF_STMT(BPF_MISC | BPF_TAX, 0)},
    };
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++)
        if (attach(s[0], bad[i], 3) != -1 || errno != EINVAL) FAIL("program %u", i);
}
CASE(shown_as_it_was_attached) {
    pair(SOCK_DGRAM);
    struct sock_filter f[] = {LOAD(BPF_B, 0), IF_A('x')}, got[4];
    socklen_t n = 4;
    CHECK(getsockopt(s[0], SOL_SOCKET, SO_GET_FILTER, got, &n) == 0 && n == 0);
    CHECK(attach(s[0], f, 4) == 0);
    n = 0;
    CHECK(getsockopt(s[0], SOL_SOCKET, SO_GET_FILTER, got, &n) == 0);
    CHECK_EQ(n, 4);  // lengths are in instructions
    n = 3;
    CHECK_ERR(getsockopt(s[0], SOL_SOCKET, SO_GET_FILTER, got, &n), EINVAL);
    n = 4;
    CHECK(getsockopt(s[0], SOL_SOCKET, SO_GET_FILTER, got, &n) == 0 && n == 4 && !memcmp(f, got, sizeof f));
    CHECK_ERR(getsockopt(s[0], SOL_SOCKET, SO_GET_FILTER, BAD, &n), EFAULT);
    CHECK(detach(s[0]) == 0);
    CHECK_ERR(detach(s[0]), ENOENT);
}
CASE(locked_ones_stay) {
    pair(SOCK_DGRAM);
    int one = 1, zero = 0, fd = open("/dev/null", O_RDONLY), none = 999;
    CHECK_ERR(setsockopt(s[0], SOL_SOCKET, SO_ATTACH_BPF, &none, sizeof none), EBADF);
    CHECK_ERR(setsockopt(s[0], SOL_SOCKET, SO_ATTACH_BPF, &fd, sizeof fd), EINVAL);
    CHECK(ATTACH(s[0], RET(0)) == 0);
    CHECK(setsockopt(s[0], SOL_SOCKET, SO_LOCK_FILTER, &one, sizeof one) == 0);
    CHECK_ERR(setsockopt(s[0], SOL_SOCKET, SO_LOCK_FILTER, &zero, sizeof zero), EPERM);
    CHECK_ERR(ATTACH(s[0], RET(1)), EPERM);
    CHECK_ERR(detach(s[0]), EPERM);
    CHECK_ERR(setsockopt(s[0], SOL_SOCKET, SO_ATTACH_BPF, &fd, sizeof fd), EPERM);
    CHECK_EQ(comes("abc"), -1);
}
static void lets_through_and_cuts(int header) {
    CHECK_EQ(comes("abc"), 3);
    CHECK(ATTACH(s[0], LOAD(BPF_B, header), IF_A('x')) == 0);
    CHECK(comes("abc") == -1 && comes("xbc") == 3);
    CHECK_EQ(comes(""), -1);  // what is not there ends the program
    CHECK(ATTACH(s[0], RET(header + 2)) == 0);
    CHECK_EQ(comes("abc"), 2);
    CHECK(ATTACH(s[0], BPF_STMT(BPF_LD | BPF_LEN, 0), IF_A(header + 5)) == 0);
    CHECK(comes("abc") == -1 && comes("abcde") == 5);
    CHECK(ATTACH(s[0], BPF_STMT(BPF_LDX | BPF_IMM, header), BPF_STMT(BPF_LD | BPF_H | BPF_IND, 1), IF_A('b' << 8 | 'c')) == 0);
    CHECK(comes("abc") == 3 && comes("acb") == -1);
    CHECK(detach(s[0]) == 0);
    CHECK_EQ(comes("abc"), 3);
}
CASE(messages_of_unix_sockets) {
    pair(SOCK_DGRAM);
    lets_through_and_cuts(0);
    pair(SOCK_SEQPACKET);
    CHECK(ATTACH(s[0], RET(0)) == 0);
    CHECK_EQ(comes("abc"), -1);
    CHECK(ATTACH(s[0], RET(2)) == 0);
    CHECK_EQ(comes("abc"), 2);
    // Streams have none.
    pair(SOCK_STREAM);
    CHECK(ATTACH(s[0], RET(0)) == 0);
    CHECK_EQ(comes("abc"), 3);
}
CASE(datagrams_have_headers) {
    udp(AF_INET);
    lets_through_and_cuts(8);
    CHECK(ATTACH(s[0], RET(1)) == 0);
    CHECK_EQ(comes("abc"), 0);  // the header is not cut
    struct sockaddr_in a;
    socklen_t n = sizeof a;
    CHECK(getsockname(s[1], (void *)&a, &n) == 0);
    CHECK(ATTACH(s[0], LOAD(BPF_H, 0), IF_A(ntohs(a.sin_port))) == 0);
    CHECK_EQ(comes("abc"), 3);
    // The header of IP: its length, protocol and source.
    CHECK(ATTACH(s[0], BPF_STMT(BPF_LDX | BPF_B | BPF_MSH, SKF_NET_OFF), BPF_STMT(BPF_MISC | BPF_TXA, 0), IF_A(20)) == 0);
    CHECK_EQ(comes("abc"), 3);
    CHECK(ATTACH(s[0], LOAD(BPF_B, SKF_NET_OFF + 9), IF_A(IPPROTO_UDP)) == 0);
    CHECK_EQ(comes("abc"), 3);
    CHECK(ATTACH(s[0], LOAD(BPF_W, SKF_NET_OFF + 12), IF_A(INADDR_LOOPBACK)) == 0);
    CHECK_EQ(comes("abc"), 3);
    CHECK(ATTACH(s[0], LOAD(BPF_H, SKF_NET_OFF + 2), IF_A(20 + 8 + 3)) == 0);
    CHECK_EQ(comes("abc"), 3);
}
CASE(datagrams_of_ipv6) {
    udp(AF_INET6);
    lets_through_and_cuts(8);
    CHECK(ATTACH(s[0], LOAD(BPF_B, SKF_NET_OFF + 6), IF_A(IPPROTO_UDP)) == 0);
    CHECK_EQ(comes("abc"), 3);
}
CASE(what_is_known_beside_a_packet) {
    udp(AF_INET);
    CHECK(ATTACH(s[0], LOAD(BPF_W, SKF_AD_OFF + SKF_AD_PROTOCOL), IF_A(0x800)) == 0);
    CHECK_EQ(comes("abc"), 3);
    CHECK(ATTACH(s[0], LOAD(BPF_W, SKF_AD_OFF + SKF_AD_IFINDEX), IF_A(1)) == 0);
    CHECK_EQ(comes("abc"), 3);
    CHECK(ATTACH(s[0], LOAD(BPF_W, SKF_AD_OFF + SKF_AD_HATYPE), IF_A(772)) == 0);
    CHECK_EQ(comes("abc"), 3);
    CHECK(ATTACH(s[0], BPF_STMT(BPF_LD | BPF_IMM, 6), BPF_STMT(BPF_LDX | BPF_IMM, 3), LOAD(BPF_W, SKF_AD_OFF + SKF_AD_ALU_XOR_X), IF_A(5)) == 0);
    CHECK_EQ(comes("abc"), 3);
    // Division by zero ends it.
    CHECK(ATTACH(s[0], BPF_STMT(BPF_ALU | BPF_MOD | BPF_X, 0), RET(~0u)) == 0);
    CHECK_EQ(comes("abc"), -1);
}
CASE(who_connects_gets_the_filter_of_the_listener) {
    int l = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    CHECK(ATTACH(l, BPF_STMT(BPF_LD | BPF_LEN, 0), RET(~0u)) == 0);
    CHECK(bind(l, (void *)&a, n) == 0 && listen(l, 1) == 0 && getsockname(l, (void *)&a, &n) == 0);
    s[1] = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(s[1], (void *)&a, n) == 0 && (s[0] = accept(l, NULL, NULL)) >= 0);
    struct sock_filter got[2];
    n = 2;
    CHECK(getsockopt(s[0], SOL_SOCKET, SO_GET_FILTER, got, &n) == 0 && n == 2 && got[0].code == (BPF_LD | BPF_LEN));
    CHECK_EQ(send(s[1], "abc", 3, 0), 3);
    char b[4];
    CHECK_EQ(recv(s[0], b, 4, 0), 3);
    CHECK(detach(s[0]) == 0);
}
