// Random socket calls from several threads and processes that share descriptors: nothing may crash, hang or leak.
#include "t.h"
#include <net/if.h>
#include <netinet/in.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <linux/sockios.h>
#include <sys/un.h>

enum { SLOTS = 64, BIG = 1 << 17 };
static int slot[SLOTS];
static char data[BIG];
static __thread uint64_t seed;
static int seconds = 2;

static unsigned any(unsigned n) {
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return n ? (seed >> 33) % n : 0;
}
// Puts a descriptor into a slot and closes what was there.
static void put(int i, int fd) {
    int old = __atomic_exchange_n(&slot[i], fd, __ATOMIC_RELAXED);
    if (old > 2) close(old);
}
static int get(int i) { return __atomic_load_n(&slot[i], __ATOMIC_RELAXED); }

static socklen_t some_address(void *p) {
    memset(p, 0, 160);
    struct sockaddr_un *u = p;
    struct sockaddr_in *v4 = p;
    struct sockaddr_in6 *v6 = p;
    switch (any(6)) {
    case 0:
        u->sun_family = AF_UNIX;
        sprintf(u->sun_path + 1, "storm%u", any(8));
        return offsetof(struct sockaddr_un, sun_path) + 7;
    case 1:
        u->sun_family = AF_UNIX;
        sprintf(u->sun_path, "storm%u", any(8));
        if (any(4) == 0) unlink(u->sun_path);
        return sizeof *u;
    case 2:
        v4->sin_family = AF_INET, v4->sin_port = htons(any(3) ? 47000 + any(6) : 0);
        v4->sin_addr.s_addr = any(3) ? htonl(INADDR_LOOPBACK) : INADDR_ANY;
        return any(8) ? sizeof *v4 : any(128);
    case 3:
        v6->sin6_family = AF_INET6, v6->sin6_port = htons(any(3) ? 47000 + any(6) : 0);
        if (any(2)) v6->sin6_addr = in6addr_loopback;
        return any(8) ? sizeof *v6 : any(128);
    case 4: return sizeof(struct sockaddr);  // AF_UNSPEC
    default: {
        unsigned char *c = p;
        for (int i = 0; i < 128; i++) c[i] = any(256);
        u->sun_family = any(20);
        // An absolute name would be a file of the host's, natively.
        if (u->sun_path[0] == '/') u->sun_path[0] = 0;
        return any(140);
    }
    }
}
static void send_message(int fd) {
    char name[160], m[256] = {0};
    struct iovec io[3] = {{data, any(100)}, {any(20) ? data : (void *)8, any(5000)}, {data, any(10)}};
    struct msghdr h = {.msg_iov = io, .msg_iovlen = any(4)};
    if (any(2)) h.msg_namelen = some_address(name), h.msg_name = name;
    if (any(2)) {
        struct cmsghdr *k = (void *)m;
        int n = any(4);
        k->cmsg_len = any(10) ? CMSG_LEN(4 * n) : any(300);
        k->cmsg_level = any(6) ? SOL_SOCKET : (int)any(50), k->cmsg_type = 1 + any(3);
        for (int i = 0; i < n; i++) {
            int f = get(any(SLOTS));
            memcpy(CMSG_DATA(k) + 4 * i, &f, 4);
        }
        h.msg_control = m, h.msg_controllen = any(10) ? CMSG_SPACE(4 * n) : any(200);
    }
    sendmsg(fd, &h, MSG_DONTWAIT | MSG_NOSIGNAL);
}
static void receive_message(int fd) {
    char name[160], m[256];
    struct iovec io[2] = {{data, any(100)}, {data, any(5000)}};
    struct msghdr h = {.msg_name = name, .msg_namelen = any(128), .msg_iov = io, .msg_iovlen = any(3)};
    if (any(2)) h.msg_control = m, h.msg_controllen = any(200);
    if (recvmsg(fd, &h, MSG_DONTWAIT | (any(3) ? 0 : MSG_PEEK) | (any(5) ? 0 : MSG_TRUNC)) < 0 || !h.msg_control) return;
    for (struct cmsghdr *k = CMSG_FIRSTHDR(&h); k; k = CMSG_NXTHDR(&h, k))
        if (k->cmsg_level == SOL_SOCKET && k->cmsg_type == SCM_RIGHTS)
            for (size_t i = 0; i < (k->cmsg_len - CMSG_LEN(0)) / 4; i++) {
                int f;
                memcpy(&f, CMSG_DATA(k) + 4 * i, 4);
                put(any(SLOTS), f);
            }
}
static void one_call(void) {
    static const int families[] = {AF_UNIX, AF_INET, AF_INET6, AF_NETLINK};
    static const int types[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET};
    static const int levels[] = {0, 1, 6, 17, 41, 270};
    static const unsigned ioctls[] = {FIONREAD, TIOCOUTQ, SIOCATMARK, SIOCGIFCONF, SIOCGIFFLAGS, SIOCGIFINDEX};
    char name[160], opt[200] = {0};
    int fd = get(any(SLOTS)), sp[2];
    socklen_t l = any(200);
    size_t n = any(4) ? any(300) : any(BIG);
    switch (any(18)) {
    case 0: case 1: put(any(SLOTS), socket(families[any(4)], types[any(3)] | SOCK_NONBLOCK, 0)); break;
    case 2:
        if (socketpair(AF_UNIX, types[any(3)] | SOCK_NONBLOCK, 0, sp) == 0) put(any(SLOTS), sp[0]), put(any(SLOTS), sp[1]);
        break;
    case 3: l = some_address(name); bind(fd, (void *)name, l); break;
    case 4: listen(fd, any(4)); break;
    case 5: case 6: l = some_address(name); connect(fd, (void *)name, l); break;
    case 7: case 8:
        if ((sp[0] = accept4(fd, any(2) ? (void *)name : NULL, &l, SOCK_NONBLOCK)) >= 0) put(any(SLOTS), sp[0]);
        break;
    case 9: case 10: send(fd, data, n, (any(4) ? 0 : any(1u << 16) & ~MSG_FASTOPEN) | MSG_NOSIGNAL | MSG_DONTWAIT); break;
    case 11: case 12: recv(fd, data, n, (any(4) ? 0 : any(1u << 16)) | MSG_DONTWAIT); break;
    case 13: send_message(fd); break;
    case 14: receive_message(fd); break;
    case 15: shutdown(fd, any(4)); break;
    case 16: put(any(SLOTS), -1); break;
    case 17:
        for (int i = 0; i < 64; i++) opt[i] = any(4) ? 0 : any(256);
        int o = any(66);
        if (o != SO_RCVTIMEO && o != SO_SNDTIMEO && o != SO_BUSY_POLL) setsockopt(fd, levels[any(6)], o, opt, any(3) ? 4 : any(64));
        getsockopt(fd, levels[any(6)], any(80), opt, &l);
        l = any(128), getsockname(fd, (void *)name, &l);
        l = any(128), getpeername(fd, (void *)name, &l);
        ioctl(fd, ioctls[any(6)], any(9) ? data : (void *)8);
        struct pollfd p = {fd, -1, 0};
        poll(&p, 1, 0);
    }
}
static void *storm(void *arg) {
    seed = (uintptr_t)arg * 7919 + getpid();
    for (time_t end = time(NULL) + seconds; time(NULL) < end;)
        for (int i = 0; i < 200; i++) one_call();
    return NULL;
}
static int types_of(int round) { return round % 3 == 0 ? SOCK_STREAM : round % 3 == 1 ? SOCK_DGRAM : SOCK_SEQPACKET; }
static int rows(const char *file, const char *what) {
    int n = 0;
    for (char *p = slurp(file); (p = strstr(p, what)); p++) n++;
    return n;
}
CASE(random_calls_from_many) {
    scratch();
    for (int i = 0; i < SLOTS; i++) slot[i] = -1;
    pid_t k[3];
    for (int i = 0; i < 3; i++) k[i] = SPAWN({
        pthread_t t;
        CHECK(pthread_create(&t, NULL, storm, (void *)(uintptr_t)(2 * i + 1)) == 0);
        storm((void *)(uintptr_t)(2 * i));
        pthread_join(t, NULL);
    });
    for (int i = 0; i < 3; i++) CHECK_EQ(join(k[i]), 0);
    EVENTUALLY(rows("/proc/net/unix", "storm") == 0);
}
CASE(chains_in_flight_from_many) {
    // Sockets sent over sockets sent over sockets, by processes that end in the middle.
    pid_t k[4];
    for (int i = 0; i < 4; i++) k[i] = SPAWN({
        seed = i;
        for (int round = 0; round < 300; round++) {
            int sp[2];
            CHECK(socketpair(AF_UNIX, types_of(round), 0, sp) == 0);
            for (int n = 0; n < 4; n++) {
                char x = 'x', m[CMSG_SPACE(sizeof sp)] = {0};
                struct iovec v = {&x, 1};
                struct msghdr h = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = m, .msg_controllen = sizeof m};
                struct cmsghdr *c = CMSG_FIRSTHDR(&h);
                c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof sp);
                memcpy(CMSG_DATA(c), sp, sizeof sp);
                sendmsg(sp[n & 1], &h, MSG_DONTWAIT);
            }
            close(sp[any(2)]);
            if (any(2)) close(sp[0]), close(sp[1]);
            if (round > 250 && any(20) == 0) _exit(0);
        }
    });
    for (int i = 0; i < 4; i++) CHECK_EQ(join(k[i]), 0);
}
