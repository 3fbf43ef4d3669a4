// AF_UNIX, less usual: control messages and their truncation, names, credentials, options, peeking, shutdown, queues.
#include "t.h"
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/un.h>

static int s[2];
static char buf[4096];
static void pair(int type) { CHECK(socketpair(AF_UNIX, type, 0, s) == 0); }
static struct sockaddr_un at(const char *p) {
    struct sockaddr_un u = {.sun_family = AF_UNIX};
    strcpy(u.sun_path, p);
    return u;
}
static ssize_t send_fds(int to, const char *text, int n, const int *fds) {
    char c[CMSG_SPACE(sizeof(int) * 260)] = {0};
    struct iovec v = {(void *)text, strlen(text)};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = c, .msg_controllen = CMSG_SPACE(4 * n)};
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    h->cmsg_level = SOL_SOCKET, h->cmsg_type = SCM_RIGHTS, h->cmsg_len = CMSG_LEN(4 * n);
    memcpy(CMSG_DATA(h), fds, 4 * n);
    return sendmsg(to, &m, 0);
}
static struct msghdr got;
static char control[512];
static ssize_t receive(int from, size_t room, size_t control_room, int flags) {
    static struct iovec v;
    v = (struct iovec){buf, room};
    memset(control, 0, sizeof control);
    got = (struct msghdr){.msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = control_room};
    return recvmsg(from, &got, flags);
}
static int received_fds(int *out) {
    int n = 0;
    for (struct cmsghdr *h = CMSG_FIRSTHDR(&got); h; h = CMSG_NXTHDR(&got, h))
        if (h->cmsg_type == SCM_RIGHTS) n = (h->cmsg_len - CMSG_LEN(0)) / 4, memcpy(out, CMSG_DATA(h), 4 * n);
    return n;
}
static int open_fds(void) {
    int n = 0;
    for (int i = 0; i < 300; i++) n += fcntl(i, F_GETFD) != -1;
    return n;
}

CASE(control_cut_after_one_descriptor) {
    pair(SOCK_STREAM);
    int fds[3] = {0, 1, 2}, out[8];
    CHECK_EQ(send_fds(s[0], "x", 3, fds), 1);
    int before = open_fds();
    CHECK_EQ(receive(s[1], 10, CMSG_LEN(4), 0), 1);
    CHECK(got.msg_flags & MSG_CTRUNC && received_fds(out) == 1);
    CHECK_EQ(open_fds(), before + 1);  // the others are closed
}
CASE(control_without_room_closes_all) {
    pair(SOCK_STREAM);
    CHECK_EQ(send_fds(s[0], "x", 2, (int[]){0, 1}), 1);
    int before = open_fds();
    CHECK_EQ(receive(s[1], 10, 0, 0), 1);
    CHECK(got.msg_flags & MSG_CTRUNC);
    CHECK_EQ(open_fds(), before);
}
CASE(plain_read_drops_descriptors) {
    pair(SOCK_STREAM);
    int p[2], before;
    CHECK(pipe(p) == 0);
    CHECK_EQ(send_fds(s[0], "x", 1, &p[1]), 1);
    close(p[1]);
    before = open_fds();
    CHECK_EQ(read(s[1], buf, 10), 1);
    CHECK_EQ(open_fds(), before);
    CHECK_EQ(read(p[0], buf, 1), 0);  // the last writer is gone
}
CASE(descriptor_limit_of_a_message) {
    pair(SOCK_STREAM);
    int fds[254] = {0};
    CHECK_EQ(send_fds(s[0], "x", 253, fds), 1);
    CHECK_ERR(send_fds(s[0], "x", 254, fds), EINVAL);
    CHECK_ERR(send_fds(s[0], "x", 1, (int[]){999}), EBADF);
}
CASE(receiver_table_full) {
    pair(SOCK_STREAM);
    CHECK_EQ(send_fds(s[0], "x", 2, (int[]){0, 1}), 1);
    struct { unsigned long c, m; } l = {open_fds() + 1, 1024};
    while (open("/dev/null", O_RDONLY) < (int)l.c - 2) {}
    CHECK(syscall(SYS_setrlimit, 7, &l) == 0);
    int out[8];
    CHECK_EQ(receive(s[1], 10, 512, 0), 1);
    CHECK(received_fds(out) <= 1 && got.msg_flags & MSG_CTRUNC);
}
CASE(stream_read_stops_at_descriptors) {
    pair(SOCK_STREAM);
    CHECK(write(s[0], "ab", 2) == 2 && send_fds(s[0], "cd", 1, (int[]){0}) == 2 && write(s[0], "ef", 2) == 2);
    int out[4];
    CHECK_EQ(receive(s[1], 100, 512, 0), 4);  // up to and with the message that carries them
    CHECK_EQ(received_fds(out), 1);
    CHECK_EQ(receive(s[1], 100, 512, 0), 2);
}
CASE(cloexec_of_received) {
    pair(SOCK_DGRAM);
    int out[4];
    CHECK_EQ(send_fds(s[0], "x", 1, (int[]){0}), 1);
    CHECK_EQ(send_fds(s[0], "x", 1, (int[]){0}), 1);
    CHECK(receive(s[1], 10, 512, MSG_CMSG_CLOEXEC) == 1 && received_fds(out) == 1 && fcntl(out[0], F_GETFD) == FD_CLOEXEC);
    CHECK(receive(s[1], 10, 512, 0) == 1 && received_fds(out) == 1 && fcntl(out[0], F_GETFD) == 0);
}
CASE(control_message_errors) {
    pair(SOCK_STREAM);
    char c[CMSG_SPACE(4)] = {0};
    struct iovec v = {"x", 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = c, .msg_controllen = sizeof c};
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    h->cmsg_level = SOL_SOCKET, h->cmsg_type = SCM_RIGHTS, h->cmsg_len = 4;
    CHECK_ERR(sendmsg(s[0], &m, 0), EINVAL);  // shorter than its header
    h->cmsg_len = 1000;
    CHECK_ERR(sendmsg(s[0], &m, 0), EINVAL);
    h->cmsg_len = CMSG_LEN(4), h->cmsg_type = 77;
    CHECK_ERR(sendmsg(s[0], &m, 0), EINVAL);
    m.msg_control = BAD;
    CHECK_ERR(sendmsg(s[0], &m, 0), EFAULT);
    m.msg_control = NULL, m.msg_controllen = 0, m.msg_iovlen = 1025;
    CHECK_ERR(sendmsg(s[0], &m, 0), EMSGSIZE);
}
CASE(datagram_truncation_and_length) {
    pair(SOCK_DGRAM);
    CHECK(send(s[0], "0123456789", 10, 0) == 10 && send(s[0], "next", 4, 0) == 4);
    CHECK(receive(s[1], 4, 0, MSG_PEEK | MSG_TRUNC) == 10 && got.msg_flags & MSG_TRUNC);
    CHECK(receive(s[1], 4, 0, 0) == 4 && got.msg_flags & MSG_TRUNC);
    CHECK_EQ(receive(s[1], 100, 0, 0), 4);
    CHECK_EQ(got.msg_flags & MSG_TRUNC, 0);
}
CASE(empty_datagram_is_a_message) {
    pair(SOCK_DGRAM);
    CHECK(send(s[0], "", 0, 0) == 0 && send(s[0], "x", 1, 0) == 1);
    struct pollfd p = {s[1], POLLIN, 0};
    CHECK(poll(&p, 1, 0) == 1);
    CHECK_EQ(recv(s[1], buf, 10, 0), 0);
    CHECK_EQ(recv(s[1], buf, 10, 0), 1);
}
CASE(seqpacket_record_end) {
    pair(SOCK_SEQPACKET);
    CHECK(write(s[0], "abc", 3) == 3 && write(s[0], "de", 2) == 2);
    CHECK_EQ(receive(s[1], 100, 0, 0), 3);
    CHECK_EQ(receive(s[1], 1, 0, 0), 1);
    CHECK(got.msg_flags & MSG_TRUNC);
    close(s[0]);
    CHECK_EQ(recv(s[1], buf, 10, 0), 0);
}
CASE(peek_and_offset) {
    pair(SOCK_STREAM);
    CHECK(write(s[0], "abcdef", 6) == 6);
    CHECK(recv(s[1], buf, 3, MSG_PEEK) == 3 && !memcmp(buf, "abc", 3));
    int off = 2;
    CHECK(setsockopt(s[1], SOL_SOCKET, SO_PEEK_OFF, &off, sizeof off) == 0);
    CHECK(recv(s[1], buf, 2, MSG_PEEK) == 2 && !memcmp(buf, "cd", 2));
    CHECK(recv(s[1], buf, 2, MSG_PEEK) == 2 && !memcmp(buf, "ef", 2));
    CHECK(recv(s[1], buf, 6, 0) == 6);
}
CASE(waitall_spans_writes_not_end) {
    pair(SOCK_STREAM);
    pid_t c = SPAWN(close(s[1]); write(s[0], "ab", 2); msleep(40); write(s[0], "cd", 2));
    close(s[0]);
    CHECK_EQ(recv(s[1], buf, 4, MSG_WAITALL), 4);
    CHECK_EQ(recv(s[1], buf, 4, MSG_WAITALL), 0);
    join(c);
}
CASE(shutdown_write_then_read_side) {
    pair(SOCK_STREAM);
    CHECK(write(s[0], "x", 1) == 1 && shutdown(s[0], SHUT_WR) == 0);
    CHECK(recv(s[1], buf, 2, 0) == 1 && recv(s[1], buf, 2, 0) == 0);
    CHECK(send(s[1], "y", 1, 0) == 1 && recv(s[0], buf, 1, 0) == 1);
    CHECK_ERR(send(s[0], "z", 1, MSG_NOSIGNAL), EPIPE);
    CHECK(shutdown(s[0], SHUT_RD) == 0);
    CHECK_ERR(send(s[1], "z", 1, MSG_NOSIGNAL), EPIPE);
    CHECK_EQ(recv(s[0], buf, 1, 0), 0);
    CHECK_ERR(shutdown(s[0], 5), EINVAL);
}
CASE(names_with_double_slash_and_existing) {
    scratch();
    int a = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un u = at("//");
    CHECK_ERR(bind(a, (void *)&u, sizeof u), EADDRINUSE);
    u = at("/");
    CHECK_ERR(bind(a, (void *)&u, sizeof u), EADDRINUSE);
    u = at(".");
    CHECK_ERR(bind(a, (void *)&u, sizeof u), EADDRINUSE);
    close(mkfile("f", ""));
    u = at("f");
    CHECK_ERR(bind(a, (void *)&u, sizeof u), EADDRINUSE);
    u = at("nodir/x");
    CHECK_ERR(bind(a, (void *)&u, sizeof u), ENOENT);
    u = at("f/x");
    CHECK_ERR(bind(a, (void *)&u, sizeof u), ENOTDIR);
    symlink("target", "l");
    u = at("l");
    CHECK_ERR(bind(a, (void *)&u, sizeof u), EADDRINUSE);
}
CASE(connect_needs_a_socket_with_permission) {
    scratch();
    int l = socket(AF_UNIX, SOCK_STREAM, 0), c = socket(AF_UNIX, SOCK_STREAM, 0), d = socket(AF_UNIX, SOCK_DGRAM, 0);
    close(mkfile("f", ""));
    struct sockaddr_un u = at("f"), v = at("s");
    CHECK_ERR(connect(c, (void *)&u, sizeof u), ECONNREFUSED);
    CHECK(bind(l, (void *)&v, sizeof v) == 0);
    CHECK_ERR(connect(c, (void *)&v, sizeof v), ECONNREFUSED);  // not listening
    CHECK(listen(l, 1) == 0);
    CHECK_ERR(connect(d, (void *)&v, sizeof v), EPROTOTYPE);
    chmod("s", 0600);
    CHECK_EQ(join(SPAWN(t_drop_root(); _exit(connect(c, (void *)&v, sizeof v) == -1 && errno == EACCES ? 3 : 4))), 3);
    unlink("s");
    CHECK_ERR(connect(c, (void *)&v, sizeof v), ENOENT);
}
CASE(bound_name_forms) {
    scratch();
    struct sockaddr_un u = at("s"), r;
    socklen_t l = sizeof r;
    int a = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(bind(a, (void *)&u, offsetof(struct sockaddr_un, sun_path) + 1) == 0);  // no terminator given
    CHECK(getsockname(a, (void *)&r, &l) == 0);
    CHECK(l == offsetof(struct sockaddr_un, sun_path) + 2 && !strcmp(r.sun_path, "s"));
    u = at("other");
    CHECK_ERR(bind(a, (void *)&u, sizeof u), EINVAL);  // already bound
    l = 3;
    memset(&r, 'z', sizeof r);
    CHECK(getsockname(a, (void *)&r, &l) == 0 && l == offsetof(struct sockaddr_un, sun_path) + 2 && r.sun_path[1] == 'z');
    struct stat st;
    CHECK(stat("s", &st) == 0 && S_ISSOCK(st.st_mode));
}
CASE(longest_name) {
    scratch();
    struct sockaddr_un u = {.sun_family = AF_UNIX};
    memset(u.sun_path, 'n', sizeof u.sun_path);
    int a = socket(AF_UNIX, SOCK_STREAM, 0), b = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(bind(a, (void *)&u, sizeof u) == 0 && listen(a, 1) == 0);  // all 108 bytes, unterminated
    CHECK(connect(b, (void *)&u, sizeof u) == 0);
    CHECK_ERR(bind(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&u, sizeof u + 1), EINVAL);
}
CASE(abstract_names_are_bytes) {
    struct sockaddr_un u = {.sun_family = AF_UNIX};
    snprintf(u.sun_path + 1, 40, "conf%d", getpid());
    socklen_t base = offsetof(struct sockaddr_un, sun_path), n = base + 1 + strlen(u.sun_path + 1);
    int a = socket(AF_UNIX, SOCK_STREAM, 0), b = socket(AF_UNIX, SOCK_STREAM, 0), c = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(bind(a, (void *)&u, n) == 0 && bind(b, (void *)&u, n + 1) == 0);  // one more NUL is another name
    CHECK_ERR(bind(c, (void *)&u, n), EADDRINUSE);
    CHECK(listen(a, 1) == 0 && connect(c, (void *)&u, n) == 0);
    struct sockaddr_un r;
    socklen_t l = sizeof r;
    CHECK(getpeername(c, (void *)&r, &l) == 0 && l == n && !memcmp(&r, &u, n));
    close(a), close(b);
    CHECK_ERR(connect(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&u, n), ECONNREFUSED);
}
CASE(unnamed_peer) {
    pair(SOCK_STREAM);
    struct sockaddr_un r;
    socklen_t l = sizeof r;
    CHECK(getsockname(s[0], (void *)&r, &l) == 0 && l == 2 && r.sun_family == AF_UNIX);
    l = sizeof r;
    CHECK(getpeername(s[0], (void *)&r, &l) == 0 && l == 2);
    close(s[1]);
    CHECK(getpeername(s[0], (void *)&r, &l) == 0);  // still remembered
    CHECK_ERR(getpeername(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&r, &l), ENOTCONN);
}
CASE(credentials_with_and_without_asking) {
    pair(SOCK_DGRAM);
    int one = 1;
    CHECK(send(s[0], "x", 1, 0) == 1);
    CHECK(setsockopt(s[1], SOL_SOCKET, SO_PASSCRED, &one, sizeof one) == 0);
    CHECK(send(s[0], "y", 1, 0) == 1);
    CHECK_EQ(receive(s[1], 1, 512, 0), 1);
    CHECK_EQ(receive(s[1], 1, 512, 0), 1);
    struct cmsghdr *h = CMSG_FIRSTHDR(&got);
    CHECK(h && h->cmsg_type == SCM_CREDENTIALS);
    struct ucred *u = (void *)CMSG_DATA(h);
    CHECK(u->pid == getpid() && u->uid == 0);
}
CASE(credentials_and_descriptors_together) {
    pair(SOCK_STREAM);
    int one = 1, out[4];
    CHECK(setsockopt(s[1], SOL_SOCKET, SO_PASSCRED, &one, sizeof one) == 0);
    CHECK_EQ(send_fds(s[0], "x", 1, (int[]){0}), 1);
    CHECK_EQ(receive(s[1], 10, 512, 0), 1);
    int creds = 0;
    for (struct cmsghdr *h = CMSG_FIRSTHDR(&got); h; h = CMSG_NXTHDR(&got, h)) creds += h->cmsg_type == SCM_CREDENTIALS;
    CHECK(creds == 1 && received_fds(out) == 1);
}
CASE(option_values) {
    pair(SOCK_STREAM);
    int v;
    socklen_t l = sizeof v;
    CHECK(getsockopt(s[0], SOL_SOCKET, SO_TYPE, &v, &l) == 0 && v == SOCK_STREAM);
    CHECK(getsockopt(s[0], SOL_SOCKET, SO_DOMAIN, &v, &l) == 0 && v == AF_UNIX);
    CHECK(getsockopt(s[0], SOL_SOCKET, SO_PROTOCOL, &v, &l) == 0 && v == 0);
    CHECK(getsockopt(s[0], SOL_SOCKET, SO_ACCEPTCONN, &v, &l) == 0 && v == 0);
    CHECK(getsockopt(s[0], SOL_SOCKET, SO_ERROR, &v, &l) == 0 && v == 0);
    v = 50000;
    CHECK(setsockopt(s[0], SOL_SOCKET, SO_SNDBUF, &v, sizeof v) == 0 && getsockopt(s[0], SOL_SOCKET, SO_SNDBUF, &v, &l) == 0 && v == 100000);
    CHECK_ERR(setsockopt(s[0], SOL_SOCKET, SO_SNDBUF, &v, 3), EINVAL);
    CHECK_ERR(setsockopt(s[0], SOL_SOCKET, SO_TYPE, &v, sizeof v), ENOPROTOOPT);
    CHECK_ERR(getsockopt(s[0], SOL_SOCKET, 9999, &v, &l), ENOPROTOOPT);
    CHECK_ERR(getsockopt(s[0], SOL_SOCKET, SO_TYPE, BAD, &l), EFAULT);
    l = 2, v = -1;
    CHECK(getsockopt(s[0], SOL_SOCKET, SO_TYPE, &v, &l) == 0 && l == 2 && (v & 0xffff) == SOCK_STREAM && v >> 16 == -1);
}
CASE(peer_credentials_of_pair_and_listener) {
    pair(SOCK_STREAM);
    struct ucred u;
    socklen_t l = sizeof u;
    CHECK(getsockopt(s[0], SOL_SOCKET, SO_PEERCRED, &u, &l) == 0 && u.pid == getpid() && u.uid == 0);
    int n = socket(AF_UNIX, SOCK_STREAM, 0);
    l = sizeof u;
    CHECK(getsockopt(n, SOL_SOCKET, SO_PEERCRED, &u, &l) == 0 && u.pid == 0 && u.uid == (uid_t)-1);
}
CASE(datagram_to_closed_and_reconnect) {
    scratch();
    struct sockaddr_un u = at("a"), v = at("b"), none = {.sun_family = AF_UNSPEC};
    int a = socket(AF_UNIX, SOCK_DGRAM, 0), b = socket(AF_UNIX, SOCK_DGRAM, 0), c = socket(AF_UNIX, SOCK_DGRAM, 0);
    CHECK(bind(a, (void *)&u, sizeof u) == 0 && bind(b, (void *)&v, sizeof v) == 0);
    CHECK(connect(c, (void *)&u, sizeof u) == 0 && send(c, "1", 1, 0) == 1);
    CHECK(sendto(c, "2", 1, 0, (void *)&v, sizeof v) == 1);  // elsewhere for once
    CHECK(connect(c, (void *)&none, sizeof none) == 0);
    CHECK_ERR(send(c, "3", 1, 0), ENOTCONN);
    close(a);
    CHECK_ERR(sendto(c, "4", 1, 0, (void *)&u, sizeof u), ECONNREFUSED);
    unlink("b");
    CHECK_ERR(sendto(c, "5", 1, 0, (void *)&v, sizeof v), ENOENT);
}
CASE(sender_address_of_datagrams) {
    scratch();
    struct sockaddr_un u = at("a"), v = at("b"), r;
    int a = socket(AF_UNIX, SOCK_DGRAM, 0), b = socket(AF_UNIX, SOCK_DGRAM, 0), c = socket(AF_UNIX, SOCK_DGRAM, 0);
    CHECK(bind(a, (void *)&u, sizeof u) == 0 && bind(b, (void *)&v, sizeof v) == 0);
    CHECK(sendto(b, "x", 1, 0, (void *)&u, sizeof u) == 1 && sendto(c, "y", 1, 0, (void *)&u, sizeof u) == 1);
    socklen_t l = sizeof r;
    CHECK(recvfrom(a, buf, 1, 0, (void *)&r, &l) == 1 && !strcmp(r.sun_path, "b"));
    l = sizeof r;
    CHECK(recvfrom(a, buf, 1, 0, (void *)&r, &l) == 1 && l == 0);  // nameless
}
CASE(urgent_data_is_an_option_of_streams) {
    pair(SOCK_DGRAM);
    CHECK_ERR(send(s[0], "x", 1, MSG_OOB), EOPNOTSUPP);
    CHECK_ERR(recv(s[1], buf, 1, MSG_OOB | MSG_DONTWAIT), EOPNOTSUPP);
}
CASE(outgoing_queue_size) {
    pair(SOCK_STREAM);
    int n = -1;
    CHECK(ioctl(s[0], TIOCOUTQ, &n) == 0 && n == 0);
    CHECK(write(s[0], buf, 1000) == 1000);
    CHECK(ioctl(s[0], TIOCOUTQ, &n) == 0 && n >= 1000);
    CHECK(ioctl(s[1], FIONREAD, &n) == 0 && n == 1000);
    CHECK(read(s[1], buf, 4096) == 1000 && ioctl(s[0], TIOCOUTQ, &n) == 0 && n == 0);
}
CASE(accepted_socket_has_no_inherited_flags) {
    scratch();
    struct sockaddr_un u = at("s");
    int l = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), c = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(bind(l, (void *)&u, sizeof u) == 0 && listen(l, 1) == 0 && connect(c, (void *)&u, sizeof u) == 0);
    int a = accept(l, NULL, NULL);
    CHECK(!(fcntl(a, F_GETFL) & O_NONBLOCK) && fcntl(a, F_GETFD) == 0);
    CHECK_ERR(accept(l, NULL, NULL), EAGAIN);
    CHECK_ERR(accept(a, NULL, NULL), EINVAL);
    CHECK_ERR(accept4(l, NULL, NULL, 1), EINVAL);
    CHECK_ERR(accept(s[0], NULL, NULL), ENOTSOCK);
    CHECK_ERR(listen(socket(AF_UNIX, SOCK_DGRAM, 0), 1), EOPNOTSUPP);
}
