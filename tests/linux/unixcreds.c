// What goes with bytes on AF_UNIX: whose they are, and descriptors that come with nothing.
#include "t.h"
#include <sys/un.h>

static char control[256];
static struct msghdr m;
static int pair[2];
static struct ucred cred;

static int set(int s, int name, int v) { return setsockopt(s, SOL_SOCKET, name, &v, sizeof v); }
static void *found(int type) {
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == type) return CMSG_DATA(c);
    return NULL;
}
// Receives; whose it is in `cred`, with pid -1 if that is not told.
static ssize_t take(int s, void *to, size_t n, int flags) {
    struct iovec v = {to, n};
    m = (struct msghdr){.msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t r = recvmsg(s, &m, flags);
    cred.pid = -1;
    if (r >= 0 && found(SCM_CREDENTIALS)) memcpy(&cred, found(SCM_CREDENTIALS), sizeof cred);
    return r;
}
static void send_fd(int s, int fd, size_t n) {
    char c[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec v = {"wxyz", n};
    struct msghdr h = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = c, .msg_controllen = sizeof c};
    struct cmsghdr *k = CMSG_FIRSTHDR(&h);
    k->cmsg_level = SOL_SOCKET, k->cmsg_type = SCM_RIGHTS, k->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(k), &fd, sizeof fd);
    CHECK_EQ(sendmsg(s, &h, 0), (ssize_t)n);
}

static void sent_before(int type) {
    char b[8];
    CHECK(socketpair(AF_UNIX, type, 0, pair) == 0 && send(pair[0], "a", 1, 0) == 1);
    CHECK(set(pair[1], SO_PASSCRED, 1) == 0 && send(pair[0], "b", 1, 0) == 1);
    CHECK_EQ(take(pair[1], b, 1, 0), 1);
    CHECK(cred.pid == 0 && cred.uid == 65534 && cred.gid == 65534);
    CHECK(take(pair[1], b, 1, 0) == 1 && cred.pid == getpid() && cred.uid == getuid());
}
CASE(sent_before_anybody_asked_stream) { sent_before(SOCK_STREAM); }
CASE(sent_before_anybody_asked_dgram) { sent_before(SOCK_DGRAM); }
CASE(sent_before_anybody_asked_seqpacket) { sent_before(SOCK_SEQPACKET); }
CASE(asked_for_by_the_sender) {
    char b[8];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && set(pair[0], SO_PASSCRED, 1) == 0);
    CHECK(send(pair[0], "a", 1, 0) == 1 && set(pair[1], SO_PASSCRED, 1) == 0);
    CHECK(take(pair[1], b, 1, 0) == 1 && cred.pid == getpid());
}
CASE(kept_apart_on_a_stream) {
    char b[8];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && send(pair[0], "ab", 2, 0) == 2);
    CHECK(set(pair[1], SO_PASSCRED, 1) == 0 && send(pair[0], "cd", 2, 0) == 2);
    CHECK_EQ(join(SPAWN(CHECK(send(pair[0], "ef", 2, 0) == 2))), 0);
    CHECK(take(pair[1], b, 8, MSG_PEEK) == 2 && cred.pid == 0);
    CHECK(take(pair[1], b, 8, 0) == 2 && cred.pid == 0);
    CHECK(take(pair[1], b, 8, 0) == 2 && cred.pid == getpid());
    CHECK(take(pair[1], b, 8, 0) == 2 && cred.pid != getpid() && cred.pid > 0);
    // Who does not ask reads over the border.
    CHECK(send(pair[0], "gh", 2, 0) == 2 && set(pair[1], SO_PASSCRED, 0) == 0 && send(pair[0], "ij", 2, 0) == 2);
    CHECK_EQ(take(pair[1], b, 8, 0), 4);
}
CASE(before_it_is_accepted) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    socklen_t n = sizeof at;
    int l = socket(AF_UNIX, SOCK_STREAM, 0), c = socket(AF_UNIX, SOCK_STREAM, 0), s;
    char b[8];
    CHECK(bind(l, (void *)&at, sizeof(sa_family_t)) == 0 && getsockname(l, (void *)&at, &n) == 0 && listen(l, 1) == 0);
    CHECK(connect(c, (void *)&at, n) == 0 && send(c, "early", 5, 0) == 5 && (s = accept(l, NULL, NULL)) >= 0);
    CHECK(send(c, "late", 4, 0) == 4 && set(s, SO_PASSCRED, 1) == 0);
    CHECK(take(s, b, 8, 0) == 5 && cred.pid == getpid());
    CHECK(take(s, b, 8, 0) == 4 && cred.pid == 0);
}
CASE(descriptors_with_nothing_read) {
    char b[8];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    send_fd(pair[0], 0, 4);
    CHECK_EQ(take(pair[1], b, 0, 0), 0);
    int *fd = found(SCM_RIGHTS);
    CHECK(fd && fcntl(*fd, F_GETFD) >= 0);
    CHECK(take(pair[1], b, 8, 0) == 4 && !memcmp(b, "wxyz", 4) && !found(SCM_RIGHTS));
}
CASE(descriptors_with_an_empty_message) {
    char b[8];
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0);
    send_fd(pair[0], 0, 0);
    CHECK_EQ(take(pair[1], b, 8, 0), 0);
    CHECK(found(SCM_RIGHTS));
}
CASE(descriptors_with_no_bytes_of_a_stream) {
    char b[8];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    send_fd(pair[0], 0, 0);
    CHECK_ERR(take(pair[1], b, 8, MSG_DONTWAIT), EAGAIN);
}
CASE(an_empty_read_waits_for_bytes) {
    char b[8];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    CHECK_ERR(recv(pair[1], b, 0, MSG_DONTWAIT), EAGAIN);
    CHECK_EQ(read(pair[1], b, 0), 0);
    CHECK(send(pair[0], "a", 1, 0) == 1 && recv(pair[1], b, 0, MSG_DONTWAIT) == 0 && recv(pair[1], b, 8, 0) == 1);
}
CASE(who_the_peer_is) {
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    int fd = -1;
    socklen_t n = sizeof fd;
    if (getsockopt(pair[0], SOL_SOCKET, 77 /* SO_PEERPIDFD */, &fd, &n)) { CHECK_EQ(errno, ENOPROTOOPT); return; }
    CHECK_EQ(syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0), 0);
}
CASE(who_sends_as_a_descriptor) {
    char b[8];
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0);
    if (set(pair[1], 76 /* SO_PASSPIDFD */, 1)) return;
    CHECK(send(pair[0], "a", 1, 0) == 1 && take(pair[1], b, 8, 0) == 1 && cred.pid == -1);
    int *fd = found(4 /* SCM_PIDFD */);
    CHECK(fd && syscall(SYS_pidfd_send_signal, *fd, 0, NULL, 0) == 0);
}
CASE(times_of_messages) {
    char b[8];
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0 && set(pair[1], SO_TIMESTAMP, 1) == 0);
    CHECK(send(pair[0], "a", 1, 0) == 1 && take(pair[1], b, 8, 0) == 1 && found(SO_TIMESTAMP));
}
