// AF_UNIX sockets: stream, datagram, seqpacket, names, descriptors and credentials in messages.
#include "t.h"
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/un.h>

static struct sockaddr_un un(const char *path, socklen_t *len) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (path[0] == '@') {
        strcpy(a.sun_path + 1, path + 1);
        *len = offsetof(struct sockaddr_un, sun_path) + strlen(path);
    } else {
        strcpy(a.sun_path, path);
        *len = sizeof a;
    }
    return a;
}
static int bound(int type, const char *path) {
    socklen_t l;
    struct sockaddr_un a = un(path, &l);
    int s = socket(AF_UNIX, type, 0);
    CHECK(s >= 0);
    CHECK_OK(bind(s, (void *)&a, l));
    return s;
}
static int server(int type, const char *path) {
    int s = bound(type, path);
    CHECK(listen(s, 5) == 0);
    return s;
}
static int dial(int type, const char *path) {
    socklen_t l;
    struct sockaddr_un a = un(path, &l);
    int s = socket(AF_UNIX, type, 0);
    CHECK(s >= 0);
    return connect(s, (void *)&a, l) == 0 ? s : (close(s), -1);
}
static int sp[2];
static void pair(int type) { CHECK(socketpair(AF_UNIX, type, 0, sp) == 0); }
static ssize_t send_fds(int s, int *fd, int n, const char *data) {
    struct iovec v = {(void *)data, strlen(data)};
    char c[CMSG_SPACE(sizeof(int) * 64)] = {0};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = c, .msg_controllen = CMSG_SPACE(sizeof(int) * n)};
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    h->cmsg_level = SOL_SOCKET, h->cmsg_type = SCM_RIGHTS, h->cmsg_len = CMSG_LEN(sizeof(int) * n);
    memcpy(CMSG_DATA(h), fd, sizeof(int) * n);
    return sendmsg(s, &m, 0);
}
static int recv_fds(int s, int *fd, int flags, int *mflags) {
    char d[64];
    struct iovec v = {d, sizeof d};
    char c[CMSG_SPACE(sizeof(int) * 64)] = {0};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = c, .msg_controllen = sizeof c};
    CHECK(recvmsg(s, &m, flags) >= 0);
    if (mflags) *mflags = m.msg_flags;
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    if (!h || h->cmsg_type != SCM_RIGHTS) return 0;
    int n = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    memcpy(fd, CMSG_DATA(h), n * sizeof(int));
    return n;
}

CASE(pair_stream) {
    pair(SOCK_STREAM);
    CHECK(send(sp[0], "abc", 3, 0) == 3 && write(sp[0], "de", 2) == 2);
    char b[10];
    CHECK_EQ(recv(sp[1], b, 10, MSG_PEEK), 5);
    CHECK_EQ(recv(sp[1], b, 10, 0), 5);
    CHECK(write(sp[1], "z", 1) == 1 && read(sp[0], b, 10) == 1);
}
CASE(pair_dgram_keeps_boundaries) {
    pair(SOCK_DGRAM);
    CHECK(send(sp[0], "abc", 3, 0) == 3 && send(sp[0], "", 0, 0) == 0 && send(sp[0], "de", 2, 0) == 2);
    char b[10];
    CHECK_EQ(recv(sp[1], b, 2, 0), 2);  // truncated
    CHECK_EQ(recv(sp[1], b, 10, 0), 0);
    CHECK_EQ(recv(sp[1], b, 10, MSG_TRUNC), 2);
}
CASE(pair_seqpacket) {
    pair(SOCK_SEQPACKET);
    CHECK(send(sp[0], "abc", 3, 0) == 3 && send(sp[0], "de", 2, 0) == 2);
    char b[10];
    struct iovec v = {b, 2};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
    CHECK_EQ(recvmsg(sp[1], &m, 0), 2);
    CHECK(m.msg_flags & MSG_TRUNC);
    CHECK_EQ(recv(sp[1], b, 10, 0), 2);
    close(sp[0]);
    CHECK_EQ(recv(sp[1], b, 10, 0), 0);
}
CASE(socket_bad_arguments) {
    CHECK_ERR(socket(AF_UNIX, 77, 0), EINVAL);
    CHECK_ERR(socket(AF_UNIX, SOCK_STREAM, 5), EPROTONOSUPPORT);
    CHECK_ERR(socket(99, SOCK_STREAM, 0), EAFNOSUPPORT);
    CHECK_ERR(socketpair(AF_INET, SOCK_STREAM, 0, sp), EOPNOTSUPP);
    char b;
    CHECK_ERR(recv(0, &b, 1, 0), ENOTSOCK);
    CHECK_ERR(recv(-1, &b, 1, 0), EBADF);
}
CASE(socket_flags) {
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    CHECK(fcntl(s, F_GETFD) == FD_CLOEXEC && (fcntl(s, F_GETFL) & O_NONBLOCK));
}
CASE(connect_accept_by_path) {
    scratch();
    int s = server(SOCK_STREAM, "sock");
    struct stat st;
    CHECK(stat("sock", &st) == 0 && S_ISSOCK(st.st_mode));
    int c = dial(SOCK_STREAM, "sock");
    CHECK(c >= 0 && write(c, "hi", 2) == 2);  // before accept
    struct sockaddr_un a;
    socklen_t l = sizeof a;
    int d = accept(s, (void *)&a, &l);
    CHECK(d >= 0);
    CHECK(l == sizeof(sa_family_t) && a.sun_family == AF_UNIX);  // unnamed peer
    char b[4];
    CHECK_EQ(read(d, b, 4), 2);
    l = sizeof a;
    CHECK(getsockname(d, (void *)&a, &l) == 0 && !strcmp(a.sun_path, "sock"));
    l = sizeof a;
    CHECK(getpeername(c, (void *)&a, &l) == 0 && !strcmp(a.sun_path, "sock"));
}
CASE(connect_errors) {
    scratch();
    CHECK(dial(SOCK_STREAM, "none") < 0 && errno == ENOENT);
    close(mkfile("file", ""));
    CHECK(dial(SOCK_STREAM, "file") < 0 && errno == ECONNREFUSED);
    int s = bound(SOCK_STREAM, "sock");
    CHECK(dial(SOCK_STREAM, "sock") < 0 && errno == ECONNREFUSED);  // not listening
    CHECK(listen(s, 1) == 0);
    CHECK(dial(SOCK_DGRAM, "sock") < 0 && errno == EPROTOTYPE);
    close(s);
    CHECK(dial(SOCK_STREAM, "sock") < 0 && errno == ECONNREFUSED);
}
CASE(bind_errors) {
    scratch();
    close(mkfile("file", ""));
    socklen_t l;
    struct sockaddr_un a = un("file", &l);
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK_ERR(bind(s, (void *)&a, l), EADDRINUSE);
    a = un("/", &l);
    CHECK_ERR(bind(s, (void *)&a, l), EADDRINUSE);
    a = un("//", &l);
    CHECK_ERR(bind(s, (void *)&a, l), EADDRINUSE);
    a = un("none/x", &l);
    CHECK_ERR(bind(s, (void *)&a, l), ENOENT);
    a = un("ok", &l);
    CHECK(bind(s, (void *)&a, l) == 0);
    a = un("again", &l);
    CHECK_ERR(bind(s, (void *)&a, l), EINVAL);
    CHECK_ERR(bind(s, (void *)&a, 1), EINVAL);
}
CASE(abstract_names) {
    int s = server(SOCK_STREAM, "@t-abstract-name");
    int c = dial(SOCK_STREAM, "@t-abstract-name");
    CHECK(c >= 0);
    struct sockaddr_un a;
    socklen_t l = sizeof a;
    CHECK(getpeername(c, (void *)&a, &l) == 0);
    CHECK_EQ(l, 2 + strlen("@t-abstract-name"));
    CHECK(a.sun_path[0] == 0 && !memcmp(a.sun_path + 1, "t-abstract-name", 15));
    close(s);
    CHECK(dial(SOCK_STREAM, "@t-abstract-name") < 0 && errno == ECONNREFUSED);
}
CASE(autobind) {
    int s = socket(AF_UNIX, SOCK_DGRAM, 0);
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    CHECK(bind(s, (void *)&a, sizeof(sa_family_t)) == 0);
    socklen_t l = sizeof a;
    CHECK(getsockname(s, (void *)&a, &l) == 0);
    CHECK(l == 8 && a.sun_path[0] == 0);
}
CASE(dgram_sendto_and_source) {
    scratch();
    int a = bound(SOCK_DGRAM, "a"), b = bound(SOCK_DGRAM, "b");
    socklen_t l;
    struct sockaddr_un to = un("b", &l), from;
    CHECK_EQ(sendto(a, "msg", 3, 0, (void *)&to, l), 3);
    char d[8];
    l = sizeof from;
    CHECK_EQ(recvfrom(b, d, 8, 0, (void *)&from, &l), 3);
    CHECK(!strcmp(from.sun_path, "a"));
    close(b);
    CHECK_ERR(sendto(a, "msg", 3, 0, (void *)&to, sizeof to), ECONNREFUSED);
    CHECK_ERR(send(a, "x", 1, 0), ENOTCONN);
}
CASE(dgram_connected_filters) {
    scratch();
    int a = bound(SOCK_DGRAM, "a"), b = bound(SOCK_DGRAM, "b"), c = bound(SOCK_DGRAM, "c");
    socklen_t l;
    struct sockaddr_un x = un("b", &l);
    CHECK(connect(a, (void *)&x, l) == 0);
    x = un("a", &l);
    CHECK_ERR(sendto(c, "x", 1, 0, (void *)&x, l), EPERM);
    CHECK(sendto(b, "y", 1, 0, (void *)&x, l) == 1);
}
CASE(send_after_peer_close) {
    pair(SOCK_STREAM);
    close(sp[1]);
    CHECK_ERR(send(sp[0], "x", 1, MSG_NOSIGNAL), EPIPE);
    CHECK_EQ(join(SPAWN({ write(sp[0], "x", 1); })), 128 + SIGPIPE);
}
CASE(close_with_unread_data_resets) {
    pair(SOCK_STREAM);
    CHECK(write(sp[0], "unread", 6) == 6);
    close(sp[1]);
    char b;
    CHECK_ERR(read(sp[0], &b, 1), ECONNRESET);
}
CASE(shutdown_halves) {
    pair(SOCK_STREAM);
    char b;
    CHECK(shutdown(sp[0], SHUT_WR) == 0);
    CHECK_EQ(read(sp[1], &b, 1), 0);
    CHECK_ERR(send(sp[0], "x", 1, MSG_NOSIGNAL), EPIPE);
    CHECK(write(sp[1], "y", 1) == 1 && read(sp[0], &b, 1) == 1);
    CHECK(shutdown(sp[0], SHUT_RD) == 0);
    CHECK_ERR(send(sp[1], "x", 1, MSG_NOSIGNAL), EPIPE);
    CHECK_ERR(shutdown(sp[0], 9), EINVAL);
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(shutdown(s, SHUT_RD) == 0);  // unlike TCP
}
CASE(pass_descriptor) {
    pair(SOCK_STREAM);
    int p[2], got;
    CHECK(pipe(p) == 0);
    CHECK_EQ(send_fds(sp[0], &p[0], 1, "x"), 1);
    close(p[0]);
    CHECK_EQ(recv_fds(sp[1], &got, 0, NULL), 1);
    char c;
    CHECK(write(p[1], "z", 1) == 1 && read(got, &c, 1) == 1 && c == 'z');
}
CASE(pass_descriptor_to_other_process) {
    pair(SOCK_STREAM);
    scratch();
    pid_t c = SPAWN({
        int got;
        CHECK_EQ(recv_fds(sp[1], &got, 0, NULL), 1);
        CHECK(write(got, "from child", 10) == 10);
    });
    int f = mkfile("f", "");
    CHECK_EQ(send_fds(sp[0], &f, 1, "x"), 1);
    CHECK_EQ(join(c), 0);
    CHECK(!strcmp(slurp("f"), "from child"));
    CHECK_EQ(lseek(f, 0, SEEK_CUR), 10);  // the same open file
}
CASE(pass_many_and_cloexec) {
    pair(SOCK_DGRAM);
    int fd[10], got[64];
    for (int i = 0; i < 10; i++) fd[i] = open("/dev/null", O_RDONLY);
    CHECK_EQ(send_fds(sp[0], fd, 10, "x"), 1);
    CHECK_EQ(recv_fds(sp[1], got, MSG_CMSG_CLOEXEC, NULL), 10);
    CHECK_EQ(fcntl(got[9], F_GETFD), FD_CLOEXEC);
    fd[3] = 999;
    CHECK_ERR(send_fds(sp[0], fd, 10, "x"), EBADF);
}
CASE(pass_descriptor_control_truncated) {
    pair(SOCK_STREAM);
    int fd = open("/dev/null", O_RDONLY);
    CHECK_EQ(send_fds(sp[0], &fd, 1, "x"), 1);
    char d;
    struct iovec v = {&d, 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
    int before = dup(0);
    close(before);
    CHECK_EQ(recvmsg(sp[1], &m, 0), 1);
    CHECK(m.msg_flags & MSG_CTRUNC);
    CHECK_EQ(dup(0), before);  // nothing was installed
}
CASE(descriptor_messages_do_not_merge) {
    pair(SOCK_STREAM);
    int fd = open("/dev/null", O_RDONLY);
    char b[20];
    CHECK_EQ(send_fds(sp[0], &fd, 1, "with"), 4);
    CHECK(write(sp[0], "plain", 5) == 5);
    CHECK_EQ(recv(sp[1], b, 20, 0), 4);  // a read stops after data that carried descriptors
    CHECK_EQ(recv(sp[1], b, 20, 0), 5);
}
CASE(in_flight_descriptor_dies_with_socket) {
    pair(SOCK_STREAM);
    int p[2];
    char c;
    CHECK(pipe(p) == 0);
    CHECK_EQ(send_fds(sp[0], &p[1], 1, "x"), 1);
    close(p[1]);
    close(sp[0]);
    close(sp[1]);
    CHECK_EQ(read(p[0], &c, 1), 0);
}
CASE(pass_socket_over_itself_cycle) {
    pair(SOCK_STREAM);
    CHECK_EQ(send_fds(sp[0], &sp[0], 1, "x"), 1);
    CHECK_EQ(send_fds(sp[0], &sp[1], 1, "x"), 1);
    close(sp[0]);
    close(sp[1]);
}
CASE(peercred) {
    pair(SOCK_STREAM);
    struct ucred u;
    socklen_t l = sizeof u;
    CHECK(getsockopt(sp[0], SOL_SOCKET, SO_PEERCRED, &u, &l) == 0);
    CHECK(u.pid == getpid() && u.uid == getuid() && u.gid == getgid());
}
CASE(peercred_is_from_connect_time) {
    int s = server(SOCK_STREAM, "@t-peercred");
    pid_t c = SPAWN({ int k = dial(SOCK_STREAM, "@t-peercred"); CHECK(k >= 0); char b; CHECK(read(k, &b, 1) == 0); });
    int d = accept(s, NULL, NULL);
    struct ucred u;
    socklen_t l = sizeof u;
    CHECK(getsockopt(d, SOL_SOCKET, SO_PEERCRED, &u, &l) == 0);
    CHECK_EQ(u.pid, c);
    close(d);
    CHECK_EQ(join(c), 0);
}
CASE(scm_credentials) {
    pair(SOCK_DGRAM);
    int on = 1;
    CHECK(setsockopt(sp[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof on) == 0);
    CHECK(send(sp[0], "x", 1, 0) == 1);
    char d, c[CMSG_SPACE(sizeof(struct ucred))];
    struct iovec v = {&d, 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = c, .msg_controllen = sizeof c};
    CHECK_EQ(recvmsg(sp[1], &m, 0), 1);
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    CHECK(h && h->cmsg_type == SCM_CREDENTIALS);
    struct ucred u;
    memcpy(&u, CMSG_DATA(h), sizeof u);
    CHECK_EQ(u.pid, getpid());
}
CASE(backlog_and_nonblocking_accept) {
    int s = server(SOCK_STREAM | SOCK_NONBLOCK, "@t-backlog");
    CHECK_ERR(accept(s, NULL, NULL), EAGAIN);
    int c = dial(SOCK_STREAM, "@t-backlog");
    struct pollfd p = {s, POLLIN, 0};
    CHECK(c >= 0 && poll(&p, 1, 0) == 1);
    int d = accept4(s, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    CHECK(d >= 0 && fcntl(d, F_GETFD) == FD_CLOEXEC && (fcntl(d, F_GETFL) & O_NONBLOCK));
    CHECK_ERR(accept(c, NULL, NULL), EINVAL);
}
CASE(stream_flow_control) {
    pair(SOCK_STREAM | SOCK_NONBLOCK);
    char b[4096] = {0};
    size_t n = 0;
    ssize_t r;
    while ((r = write(sp[0], b, sizeof b)) > 0) n += r;
    CHECK(errno == EAGAIN && n > 10000);
    struct pollfd p = {sp[0], POLLOUT, 0};
    CHECK_EQ(poll(&p, 1, 0), 0);
    while ((r = read(sp[1], b, sizeof b)) > 0) n -= r;
    CHECK_EQ(n, 0);
    CHECK_EQ(poll(&p, 1, 0), 1);
}
CASE(stream_bulk_integrity) {
    pair(SOCK_STREAM);
    pid_t c = SPAWN({
        close(sp[1]);
        unsigned char b[7777];
        unsigned x = 0;
        for (int k = 0; k < 300; k++) {
            for (unsigned i = 0; i < sizeof b; i++) b[i] = x++ * 13;
            for (size_t o = 0; o < sizeof b;) {
                ssize_t r = write(sp[0], b + o, sizeof b - o);
                CHECK(r > 0);
                o += r;
            }
        }
    });
    close(sp[0]);
    unsigned char b[5000];
    unsigned x = 0;
    for (ssize_t r; (r = read(sp[1], b, sizeof b)) > 0;)
        for (ssize_t i = 0; i < r; i++) CHECK(b[i] == (unsigned char)(x++ * 13));
    CHECK_EQ(x, 7777 * 300);
    CHECK_EQ(join(c), 0);
}
CASE(msg_waitall_and_dontwait) {
    pair(SOCK_STREAM);
    char b[10];
    CHECK_ERR(recv(sp[1], b, 1, MSG_DONTWAIT), EAGAIN);
    pid_t c = SPAWN({ CHECK(write(sp[0], "12345", 5) == 5); msleep(30); CHECK(write(sp[0], "67890", 5) == 5); });
    CHECK_EQ(recv(sp[1], b, 10, MSG_WAITALL), 10);
    join(c);
}
CASE(rcvtimeo) {
    pair(SOCK_STREAM);
    struct timeval tv = {0, 50000};
    CHECK(setsockopt(sp[0], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv) == 0);
    char b;
    int64_t t0 = now_us();
    CHECK_ERR(read(sp[0], &b, 1), EAGAIN);
    CHECK(now_us() - t0 >= 40000);
}
CASE(socket_options) {
    pair(SOCK_STREAM);
    int v = 0;
    socklen_t l = sizeof v;
    CHECK(getsockopt(sp[0], SOL_SOCKET, SO_TYPE, &v, &l) == 0 && v == SOCK_STREAM);
    CHECK(getsockopt(sp[0], SOL_SOCKET, SO_DOMAIN, &v, &l) == 0 && v == AF_UNIX);
    CHECK(getsockopt(sp[0], SOL_SOCKET, SO_ACCEPTCONN, &v, &l) == 0 && v == 0);
    CHECK(getsockopt(sp[0], SOL_SOCKET, SO_ERROR, &v, &l) == 0 && v == 0);
    CHECK(getsockopt(sp[0], SOL_SOCKET, SO_SNDBUF, &v, &l) == 0 && v > 1000);
    CHECK_ERR(getsockopt(sp[0], SOL_SOCKET, 9999, &v, &l), ENOPROTOOPT);
    CHECK_ERR(setsockopt(sp[0], SOL_SOCKET, SO_RCVBUF, &v, 1), EINVAL);
}
CASE(poll_hup_and_rdhup) {
    pair(SOCK_STREAM);
    struct pollfd p = {sp[0], POLLIN | POLLRDHUP | POLLOUT, 0};
    CHECK(poll(&p, 1, 0) == 1 && p.revents == POLLOUT);
    shutdown(sp[1], SHUT_WR);
    CHECK(poll(&p, 1, 0) == 1 && p.revents == (POLLIN | POLLRDHUP | POLLOUT));
    close(sp[1]);
    CHECK(poll(&p, 1, 0) == 1 && (p.revents & POLLHUP));
}
CASE(sendmmsg_recvmmsg) {
    pair(SOCK_DGRAM);
    struct iovec v[3] = {{"a", 1}, {"bb", 2}, {"ccc", 3}};
    struct mmsghdr m[3] = {0};
    for (int i = 0; i < 3; i++) m[i].msg_hdr.msg_iov = &v[i], m[i].msg_hdr.msg_iovlen = 1;
    CHECK_EQ(sendmmsg(sp[0], m, 3, 0), 3);
    char b[4][8];
    struct iovec w[4];
    struct mmsghdr r[4] = {0};
    for (int i = 0; i < 4; i++) w[i] = (struct iovec){b[i], 8}, r[i].msg_hdr.msg_iov = &w[i], r[i].msg_hdr.msg_iovlen = 1;
    CHECK_EQ(recvmmsg(sp[1], r, 4, MSG_DONTWAIT, NULL), 3);
    CHECK(r[0].msg_len == 1 && r[1].msg_len == 2 && r[2].msg_len == 3);
}
CASE(siocinq) {
    pair(SOCK_STREAM);
    int n = 0;
    CHECK(write(sp[0], "abcd", 4) == 4 && ioctl(sp[1], FIONREAD, &n) == 0);
    CHECK_EQ(n, 4);
}
