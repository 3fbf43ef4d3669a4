// Sockets in more depth: queues and waiting, garbage of descriptors in flight, urgent data, options, netlink, epoll.
#include "t.h"
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/un.h>

static struct sockaddr_in loop4(int port) {
    return (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}
static int port_of(int s) {
    struct sockaddr_in a;
    socklen_t l = sizeof a;
    CHECK(getsockname(s, (void *)&a, &l) == 0);
    return ntohs(a.sin_port);
}
static int bound4(int type) {
    struct sockaddr_in a = loop4(0);
    int s = socket(AF_INET, type, 0);
    CHECK(s >= 0);
    CHECK_OK(bind(s, (void *)&a, sizeof a));
    return s;
}
static int ls, c, d, sp[2];
static void conn(void) {
    ls = bound4(SOCK_STREAM);
    CHECK(listen(ls, 8) == 0);
    struct sockaddr_in a = loop4(port_of(ls));
    c = socket(AF_INET, SOCK_STREAM, 0);
    CHECK_OK(connect(c, (void *)&a, sizeof a));
    CHECK((d = accept(ls, NULL, NULL)) >= 0);
}
static socklen_t abstract(struct sockaddr_un *a, const char *name) {
    memset(a, 0, sizeof *a);
    a->sun_family = AF_UNIX;
    strcpy(a->sun_path + 1, name);
    return offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name);
}
static int ulisten(int type, const char *name, int backlog) {
    struct sockaddr_un a;
    socklen_t l = abstract(&a, name);
    int s = socket(AF_UNIX, type, 0);
    CHECK(bind(s, (void *)&a, l) == 0 && listen(s, backlog) == 0);
    return s;
}
static int udial(int type, const char *name) {
    struct sockaddr_un a;
    socklen_t l = abstract(&a, name);
    int s = socket(AF_UNIX, type, 0);
    CHECK(s >= 0);
    return connect(s, (void *)&a, l) == 0 ? s : -1;
}
static ssize_t send_fd(int s, int fd) {
    char x = 'f', m[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec v = {&x, 1};
    struct msghdr h = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = m, .msg_controllen = sizeof m};
    struct cmsghdr *k = CMSG_FIRSTHDR(&h);
    k->cmsg_level = SOL_SOCKET, k->cmsg_type = SCM_RIGHTS, k->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(k), &fd, sizeof fd);
    return sendmsg(s, &h, MSG_DONTWAIT);
}
static int recv_fd(int s, int flags) {
    char x, m[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec v = {&x, 1};
    struct msghdr h = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = m, .msg_controllen = sizeof m};
    CHECK(recvmsg(s, &h, flags) == 1);
    struct cmsghdr *k = CMSG_FIRSTHDR(&h);
    CHECK(k && k->cmsg_type == SCM_RIGHTS);
    int fd;
    memcpy(&fd, CMSG_DATA(k), sizeof fd);
    return fd;
}
static int hung_up(int fd) {
    struct pollfd p = {fd, POLLIN, 0};
    return poll(&p, 1, 0) == 1 && (p.revents & POLLHUP);
}
static int events(int fd, int want) {
    struct pollfd p = {fd, want, 0};
    CHECK(poll(&p, 1, 0) >= 0);
    return p.revents;
}
static int so(int fd, int level, int opt) {
    int v = -1;
    socklen_t l = sizeof v;
    CHECK_OK(getsockopt(fd, level, opt, &v, &l));
    return v;
}

CASE(unix_backlog_full) {
    int s = ulisten(SOCK_STREAM, "t-full", 0);
    CHECK(udial(SOCK_STREAM, "t-full") >= 0);
    CHECK(udial(SOCK_STREAM | SOCK_NONBLOCK, "t-full") < 0 && errno == EAGAIN);
    pid_t k = SPAWN({ CHECK(udial(SOCK_STREAM, "t-full") >= 0); });  // waits for room
    msleep(30);
    CHECK(accept(s, NULL, NULL) >= 0);
    CHECK_EQ(join(k), 0);
}
CASE(unix_listener_close_resets_queue) {
    int s = ulisten(SOCK_STREAM, "t-drop", 5), k = udial(SOCK_STREAM, "t-drop");
    CHECK(k >= 0);
    close(s);
    char b;
    CHECK_ERR(read(k, &b, 1), ECONNRESET);
    CHECK_EQ(read(k, &b, 1), 0);
    CHECK_ERR(send(k, "x", 1, MSG_NOSIGNAL), EPIPE);
}
CASE(unix_send_to_closed_peer_keeps_error) {
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sp) == 0);
    CHECK(write(sp[0], "x", 1) == 1);
    close(sp[1]);
    CHECK_ERR(send(sp[0], "x", 1, MSG_NOSIGNAL), EPIPE);
    CHECK_EQ(so(sp[0], SOL_SOCKET, SO_ERROR), ECONNRESET);
}
CASE(unix_seqpacket_has_no_sigpipe) {
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sp) == 0);
    close(sp[1]);
    CHECK_EQ(join(SPAWN({ CHECK_ERR(send(sp[0], "x", 1, 0), EPIPE); })), 0);
}
CASE(unix_pass_o_path_descriptor) {
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sp) == 0);
    int f = open("/", O_PATH);
    CHECK(f >= 0 && send_fd(sp[0], f) == 1);
    struct stat st;
    CHECK(fstat(recv_fd(sp[1], 0), &st) == 0 && S_ISDIR(st.st_mode));
}
CASE(reopening_a_socket_is_refused) {
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sp) == 0);
    char p[64];
    snprintf(p, sizeof p, "/proc/self/fd/%d", sp[0]);
    CHECK_ERR(open(p, O_RDWR), ENXIO);
}
CASE(unix_unconnected_states) {
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    char b;
    CHECK_EQ(events(s, POLLIN | POLLOUT), POLLOUT | POLLHUP);
    CHECK_ERR(recv(s, &b, 1, 0), EINVAL);
    CHECK_ERR(send(s, "x", 1, MSG_NOSIGNAL), ENOTCONN);
    CHECK_ERR(listen(s, 1), EINVAL);
    struct sockaddr_un a;
    socklen_t l = sizeof a;
    CHECK_ERR(getpeername(s, (void *)&a, &l), ENOTCONN);
    CHECK(getsockname(s, (void *)&a, &l) == 0 && l == 2);
    int q = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    CHECK_ERR(recv(q, &b, 1, 0), ENOTCONN);
    int g = socket(AF_UNIX, SOCK_DGRAM, 0);
    CHECK_ERR(listen(g, 1), EOPNOTSUPP);
    CHECK_ERR(accept(g, NULL, NULL), EOPNOTSUPP);
    CHECK_EQ(events(g, POLLIN | POLLOUT), POLLOUT);
}
CASE(unix_listener_poll) {
    int s = ulisten(SOCK_STREAM, "t-lpoll", 5);
    CHECK_EQ(events(s, POLLIN | POLLOUT), 0);
    CHECK(udial(SOCK_STREAM, "t-lpoll") >= 0);
    CHECK_EQ(events(s, POLLIN | POLLOUT), POLLIN);
}
CASE(unix_name_is_unique_and_freed) {
    int s = ulisten(SOCK_STREAM, "t-unique", 5);
    struct sockaddr_un a;
    socklen_t l = abstract(&a, "t-unique");
    int t = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK_ERR(bind(t, (void *)&a, l), EADDRINUSE);
    int k = udial(SOCK_STREAM, "t-unique"), e = accept(s, NULL, NULL);
    close(s);
    CHECK_OK(bind(t, (void *)&a, l));  // a connection does not hold its listener's name
    close(e);
    CHECK(listen(t, 1) == 0 && udial(SOCK_STREAM, "t-unique") >= 0);
    close(k);
}
CASE(unix_dgram_full_queue_blocks_and_polls) {
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, sp) == 0);
    int n = 0;
    while (send(sp[0], "x", 1, 0) == 1) n++;
    CHECK(errno == EAGAIN && n >= 10 && n < 5000);
    CHECK_EQ(events(sp[0], POLLOUT), 0);
    char b;
    while (recv(sp[1], &b, 1, 0) == 1) n--;
    CHECK_EQ(n, 0);
    CHECK_EQ(events(sp[0], POLLOUT), POLLOUT);
}
CASE(unix_dgram_reconnect_and_unconnect) {
    struct sockaddr_un a;
    socklen_t l = abstract(&a, "t-dg");
    int r = socket(AF_UNIX, SOCK_DGRAM, 0), s = socket(AF_UNIX, SOCK_DGRAM, 0);
    CHECK(bind(r, (void *)&a, l) == 0 && connect(s, (void *)&a, l) == 0);
    CHECK(send(s, "x", 1, 0) == 1);
    a.sun_family = AF_UNSPEC;
    CHECK(connect(s, (void *)&a, sizeof(sa_family_t)) == 0);
    CHECK_ERR(send(s, "x", 1, 0), ENOTCONN);
    l = abstract(&a, "t-dg");
    CHECK(connect(s, (void *)&a, l) == 0);
    close(r);
    CHECK_ERR(send(s, "x", 1, 0), ECONNREFUSED);
    CHECK_ERR(send(s, "x", 1, 0), ENOTCONN);
}
CASE(unix_message_too_big) {
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sp) == 0);
    size_t n = 8 << 20;
    char *b = calloc(1, n);
    CHECK_ERR(send(sp[0], b, n, 0), EMSGSIZE);
    CHECK_EQ(send(sp[0], b, 100000, 0), 100000);
    CHECK_EQ(recv(sp[1], b, n, 0), 100000);
}
CASE(unix_peek_shares_descriptors) {
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sp) == 0);
    int p[2];
    CHECK(pipe(p) == 0 && send_fd(sp[0], p[1]) == 1);
    close(p[1]);
    int a = recv_fd(sp[1], MSG_PEEK), b = recv_fd(sp[1], 0);
    CHECK(a != b && write(a, "x", 1) == 1);
    close(a);
    CHECK(!hung_up(p[0]) || events(p[0], POLLIN) & POLLIN);
    close(b);
    char x;
    CHECK(read(p[0], &x, 1) == 1 && read(p[0], &x, 1) == 0);
}
CASE(unix_cycle_is_collected) {
    int p[2];
    CHECK(pipe(p) == 0);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sp) == 0);
    CHECK(send_fd(sp[0], p[1]) == 1 && send_fd(sp[0], sp[0]) == 1 && send_fd(sp[0], sp[1]) == 1);
    close(p[1]), close(sp[0]), close(sp[1]);
    // Linux looks for garbage when some AF_UNIX socket closes.
    EVENTUALLY(({ socketpair(AF_UNIX, SOCK_STREAM, 0, sp); close(sp[0]); close(sp[1]); hung_up(p[0]); }));
}
CASE(unix_cycle_reachable_stays) {
    int p[2], q[2];
    CHECK(pipe(p) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, sp) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, q) == 0);
    // sp[1] waits in q's queue, and holds the pipe; q stays open.
    CHECK(send_fd(sp[0], p[1]) == 1 && send_fd(q[0], sp[1]) == 1);
    close(p[1]), close(sp[1]);
    for (int i = 0; i < 3; i++) {
        int t[2];
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, t) == 0);
        close(t[0]), close(t[1]);
    }
    msleep(20);
    CHECK(!hung_up(p[0]));
    int s = recv_fd(q[1], 0), w = recv_fd(s, 0);
    CHECK(write(w, "x", 1) == 1);
}
CASE(unix_deep_nesting) {
    // Each socket waits in the next one's queue: closing the last closes a long chain.
    int p[2], last;
    CHECK(pipe(p) == 0);
    last = p[1];
    for (int i = 0; i < 200; i++) {
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sp) == 0 && send_fd(sp[0], last) == 1);
        close(last), close(sp[0]);
        last = sp[1];
    }
    CHECK(!hung_up(p[0]));
    close(last);
    EVENTUALLY(hung_up(p[0]));
}
CASE(unix_passcred_does_not_glue_writers) {
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sp) == 0);
    int on = 1;
    CHECK(setsockopt(sp[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof on) == 0);
    CHECK(write(sp[0], "ab", 2) == 2);
    CHECK_EQ(join(SPAWN({ CHECK(write(sp[0], "cd", 2) == 2); })), 0);
    char b[8];
    CHECK_EQ(recv(sp[1], b, 8, 0), 2);
    CHECK_EQ(recv(sp[1], b, 8, 0), 2);
}
CASE(unix_forged_credentials_refused) {
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, sp) == 0);
    CHECK_EQ(join(SPAWN({
        t_drop_root();
        struct ucred u = {getpid(), getuid() + 1, getgid()};
        char x = 'x', m[CMSG_SPACE(sizeof u)] = {0};
        struct iovec v = {&x, 1};
        struct msghdr h = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = m, .msg_controllen = sizeof m};
        struct cmsghdr *k = CMSG_FIRSTHDR(&h);
        k->cmsg_level = SOL_SOCKET, k->cmsg_type = SCM_CREDENTIALS, k->cmsg_len = CMSG_LEN(sizeof u);
        memcpy(CMSG_DATA(k), &u, sizeof u);
        CHECK_ERR(sendmsg(sp[0], &h, 0), EPERM);
        u.uid = getuid();
        memcpy(CMSG_DATA(k), &u, sizeof u);
        CHECK_EQ(sendmsg(sp[0], &h, 0), 1);
    })), 0);
}
CASE(unix_path_permissions) {
    scratch();
    if (geteuid()) SKIP("needs root");
    struct sockaddr_un a = {.sun_family = AF_UNIX, .sun_path = "sock"};
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(bind(s, (void *)&a, sizeof a) == 0 && listen(s, 5) == 0 && chmod("sock", 0600) == 0 && chmod(".", 0777) == 0);
    CHECK_EQ(join(SPAWN({
        t_drop_root();
        CHECK_ERR(connect(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&a, sizeof a), EACCES);
    })), 0);
    CHECK_ERR(open("sock", O_RDWR), ENXIO);
    CHECK(unlink("sock") == 0);
    CHECK_ERR(connect(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&a, sizeof a), ENOENT);
}
CASE(unix_umask_applies_to_path) {
    scratch();
    umask(027);
    struct sockaddr_un a = {.sun_family = AF_UNIX, .sun_path = "sock"};
    CHECK(bind(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&a, sizeof a) == 0);
    struct stat st;
    CHECK(stat("sock", &st) == 0);
    CHECK_EQ(st.st_mode & 0777, 0750);
}
CASE(siocoutq_and_peek_off) {
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sp) == 0);
    int n = 0, off = 2;
    CHECK(write(sp[0], "abcdef", 6) == 6 && ioctl(sp[0], TIOCOUTQ, &n) == 0 && n >= 6);
    char b[8] = {0};
    CHECK(setsockopt(sp[1], SOL_SOCKET, SO_PEEK_OFF, &off, sizeof off) == 0);
    CHECK(recv(sp[1], b, 2, MSG_PEEK) == 2 && !memcmp(b, "cd", 2));
    CHECK(recv(sp[1], b, 2, MSG_PEEK) == 2 && !memcmp(b, "ef", 2));
    CHECK(read(sp[1], b, 6) == 6 && ioctl(sp[0], TIOCOUTQ, &n) == 0 && n == 0);
}
CASE(recv_into_bad_memory_keeps_data) {
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sp) == 0);
    CHECK(write(sp[0], "abc", 3) == 3);
    CHECK_ERR(recv(sp[1], (void *)8, 3, 0), EFAULT);
    char b[4];
    CHECK_EQ(recv(sp[1], b, 4, MSG_DONTWAIT), 3);
    CHECK_ERR(send(sp[0], (void *)8, 3, 0), EFAULT);
}
CASE(zero_length_stream_io) {
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sp) == 0);
    CHECK_EQ(write(sp[0], "", 0), 0);
    char b;
    CHECK_ERR(recv(sp[1], &b, 1, MSG_DONTWAIT), EAGAIN);
}
CASE(epoll_edges_of_stream) {
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sp) == 0);
    int e = epoll_create1(0);
    struct epoll_event ev = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET}, got;
    CHECK(epoll_ctl(e, EPOLL_CTL_ADD, sp[0], &ev) == 0);
    CHECK_EQ(epoll_wait(e, &got, 1, 0), 0);
    CHECK(write(sp[1], "a", 1) == 1);
    CHECK_EQ(epoll_wait(e, &got, 1, 30000), 1);
    CHECK_EQ(epoll_wait(e, &got, 1, 0), 0);
    CHECK(write(sp[1], "b", 1) == 1);  // a new edge, nothing was read
    CHECK_EQ(epoll_wait(e, &got, 1, 30000), 1);
    shutdown(sp[1], SHUT_WR);
    CHECK_EQ(epoll_wait(e, &got, 1, 30000), 1);
    CHECK(got.events & EPOLLRDHUP);
    close(sp[1]);
    CHECK_EQ(epoll_wait(e, &got, 1, 30000), 1);
    CHECK(got.events & EPOLLHUP);
}
CASE(epoll_accept_and_writable_edge) {
    ls = bound4(SOCK_STREAM | SOCK_NONBLOCK);
    CHECK(listen(ls, 8) == 0);
    int e = epoll_create1(0);
    struct epoll_event ev = {.events = EPOLLIN | EPOLLET}, got;
    CHECK(epoll_ctl(e, EPOLL_CTL_ADD, ls, &ev) == 0);
    struct sockaddr_in a = loop4(port_of(ls));
    c = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(c, (void *)&a, sizeof a) == 0);
    CHECK_EQ(epoll_wait(e, &got, 1, 30000), 1);
    CHECK((d = accept(ls, NULL, NULL)) >= 0);
    fcntl(c, F_SETFL, O_NONBLOCK);
    ev.events = EPOLLOUT | EPOLLET;
    CHECK(epoll_ctl(e, EPOLL_CTL_ADD, c, &ev) == 0);
    CHECK_EQ(epoll_wait(e, &got, 1, 30000), 1);
    char *b = calloc(1, 1 << 20);
    for (int idle = 0; idle < 10;)
        if (write(c, b, 1 << 20) > 0) idle = 0;
        else idle++, pause_ms(2);
    while (epoll_wait(e, &got, 1, 0) > 0);
    while (recv(d, b, 1 << 20, MSG_DONTWAIT) > 0);
    CHECK_EQ(epoll_wait(e, &got, 1, 30000), 1);  // room again
    CHECK(got.events & EPOLLOUT);
}
CASE(tcp_urgent_data) {
    conn();
    char b[8];
    CHECK(send(c, "abc", 3, 0) == 3 && send(c, "!", 1, MSG_OOB) == 1 && send(c, "de", 2, 0) == 2);
    EVENTUALLY(events(d, POLLPRI) == POLLPRI);
    CHECK_EQ(recv(d, b, 8, 0), 3);
    int at = 0;
    CHECK(ioctl(d, SIOCATMARK, &at) == 0 && at == 1);
    CHECK(recv(d, b, 1, MSG_OOB) == 1 && b[0] == '!');
    CHECK_ERR(recv(d, b, 1, MSG_OOB), EINVAL);
    CHECK_EQ(recv(d, b, 8, 0), 2);
}
CASE(tcp_urgent_inline) {
    conn();
    int on = 1;
    char b[8];
    CHECK(setsockopt(d, SOL_SOCKET, SO_OOBINLINE, &on, sizeof on) == 0);
    CHECK(send(c, "ab", 2, 0) == 2 && send(c, "!", 1, MSG_OOB) == 1);
    struct pollfd p = {d, POLLIN, 0};
    CHECK_EQ(poll(&p, 1, 30000), 1);
    CHECK_EQ(recv(d, b, 8, 0), 2);
    CHECK(recv(d, b, 8, 0) == 1 && b[0] == '!');
}
CASE(tcp_msg_trunc_discards) {
    conn();
    CHECK(send(c, "abcdef", 6, 0) == 6);
    struct pollfd p = {d, POLLIN, 0};
    CHECK_EQ(poll(&p, 1, 30000), 1);
    CHECK_EQ(recv(d, NULL, 4, MSG_TRUNC), 4);
    char b[8];
    CHECK(recv(d, b, 8, 0) == 2 && b[0] == 'e');
    CHECK_ERR(recv(d, b, 8, MSG_ERRQUEUE), EAGAIN);
}
CASE(tcp_disconnect_and_reuse) {
    conn();
    struct sockaddr a = {.sa_family = AF_UNSPEC};
    CHECK(connect(c, &a, sizeof a) == 0);
    char b;
    CHECK_ERR(read(d, &b, 1), ECONNRESET);
    struct sockaddr_in to = loop4(port_of(ls));
    CHECK_OK(connect(c, (void *)&to, sizeof to));
    CHECK((d = accept(ls, NULL, NULL)) >= 0 && write(c, "x", 1) == 1 && read(d, &b, 1) == 1);
}
CASE(tcp_unconnected_poll) {
    int s = socket(AF_INET, SOCK_STREAM, 0);
    CHECK_EQ(events(s, POLLIN | POLLOUT), POLLOUT | POLLHUP);
    CHECK_ERR(shutdown(s, SHUT_WR), ENOTCONN);
    CHECK_EQ(join(SPAWN({ send(s, "x", 1, 0); })), 128 + SIGPIPE);
}
CASE(tcp_listen_without_bind) {
    int s = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(listen(s, 1) == 0 && port_of(s) > 0);
    struct sockaddr_in a = loop4(port_of(s));
    CHECK_OK(connect(socket(AF_INET, SOCK_STREAM, 0), (void *)&a, sizeof a));
}
CASE(tcp_shutdown_listener_wakes_accept) {
    ls = bound4(SOCK_STREAM);
    CHECK(listen(ls, 1) == 0);
    pid_t k = SPAWN({ CHECK_ERR(accept(ls, NULL, NULL), EINVAL); });
    msleep(40);
    CHECK(shutdown(ls, SHUT_RD) == 0);
    CHECK_EQ(join(k), 0);
}
CASE(tcp_shutdown_wakes_reader) {
    conn();
    pid_t k = SPAWN({ char b; CHECK_EQ(read(d, &b, 1), 0); });
    msleep(40);
    CHECK(shutdown(d, SHUT_RDWR) == 0);
    CHECK_EQ(join(k), 0);
    char b;
    CHECK_EQ(read(c, &b, 1), 0);
}
CASE(tcp_queued_data_survives_close) {
    conn();
    CHECK(write(c, "bye", 3) == 3);
    close(c);
    struct pollfd p = {d, POLLIN, 0};
    CHECK_EQ(poll(&p, 1, 30000), 1);
    char b[8];
    CHECK_EQ(read(d, b, 8), 3);
    CHECK_EQ(read(d, b, 8), 0);
    CHECK_EQ(write(d, "x", 1), 1);  // the first brings the reset
    EVENTUALLY(send(d, "x", 1, MSG_NOSIGNAL) == -1 && errno == EPIPE);
}
CASE(tcp_accept_after_reset) {
    ls = bound4(SOCK_STREAM);
    CHECK(listen(ls, 5) == 0);
    struct sockaddr_in a = loop4(port_of(ls)), from;
    c = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(c, (void *)&a, sizeof a) == 0);
    struct linger lg = {1, 0};
    CHECK(setsockopt(c, SOL_SOCKET, SO_LINGER, &lg, sizeof lg) == 0);
    close(c);
    msleep(10);
    socklen_t l = sizeof from;
    d = accept(ls, (void *)&from, &l);
    CHECK(d >= 0 && from.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
    char b;
    CHECK_ERR(read(d, &b, 1), ECONNRESET);
}
CASE(tcp_many_acceptors) {
    ls = bound4(SOCK_STREAM);
    CHECK(listen(ls, 4) == 0);
    pid_t k[4];
    for (int i = 0; i < 4; i++) k[i] = SPAWN({
        for (int n = 0; n < 50; n++) {
            int s = accept(ls, NULL, NULL);
            char b;
            CHECK(s >= 0 && read(s, &b, 1) == 1 && write(s, &b, 1) == 1);
            close(s);
        }
    });
    struct sockaddr_in a = loop4(port_of(ls));
    for (int n = 0; n < 200; n++) {
        char b = n;
        int s = socket(AF_INET, SOCK_STREAM, 0);
        CHECK_OK(connect(s, (void *)&a, sizeof a));
        CHECK(write(s, &b, 1) == 1 && read(s, &b, 1) == 1 && b == (char)n);
        close(s);
    }
    for (int i = 0; i < 4; i++) CHECK_EQ(join(k[i]), 0);
}
CASE(tcp_keeps_options) {
    conn();
    int v[][3] = {{TCP_KEEPIDLE, 100, 100}, {TCP_KEEPINTVL, 5, 5}, {TCP_KEEPCNT, 3, 3}, {TCP_CORK, 1, 1}, {TCP_USER_TIMEOUT, 1234, 1234}};
    for (unsigned i = 0; i < sizeof v / sizeof *v; i++) {
        CHECK_OK(setsockopt(c, IPPROTO_TCP, v[i][0], &v[i][1], sizeof(int)));
        CHECK_EQ(so(c, IPPROTO_TCP, v[i][0]), v[i][2]);
    }
    int bad = 40000;
    CHECK_ERR(setsockopt(c, IPPROTO_TCP, TCP_KEEPIDLE, &bad, sizeof bad), EINVAL);
    int tos = 0x10;
    CHECK(setsockopt(c, IPPROTO_IP, IP_TOS, &tos, sizeof tos) == 0);
    CHECK_EQ(so(c, IPPROTO_IP, IP_TOS), 0x10);
    CHECK_EQ(so(c, IPPROTO_IP, IP_TTL), 64);
    struct linger lg = {1, 7};
    socklen_t l = sizeof lg;
    CHECK(setsockopt(c, SOL_SOCKET, SO_LINGER, &lg, sizeof lg) == 0 && getsockopt(c, SOL_SOCKET, SO_LINGER, &lg, &l) == 0);
    CHECK(lg.l_onoff && lg.l_linger == 7);
    char name[16];
    l = sizeof name;
    CHECK(getsockopt(c, IPPROTO_TCP, TCP_CONGESTION, name, &l) == 0 && name[0]);
}
CASE(sendfile_to_socket) {
    scratch();
    conn();
    char *b = malloc(100000);
    for (int i = 0; i < 100000; i++) b[i] = i * 7;
    int f = open("f", O_RDWR | O_CREAT, 0600);
    CHECK(write(f, b, 100000) == 100000);
    off_t o = 0;
    pid_t k = SPAWN({
        size_t n = 0;
        char *r = malloc(100000);
        while (n < 100000) n += recv(d, r + n, 100000 - n, 0);
        CHECK(!memcmp(r, b, 100000));
    });
    while (o < 100000) CHECK(sendfile(c, f, &o, 100000 - o) > 0);
    CHECK_EQ(join(k), 0);
}
CASE(udp_truncation_and_control) {
    int a = bound4(SOCK_DGRAM), b = bound4(SOCK_DGRAM), on = 1;
    CHECK(setsockopt(b, IPPROTO_IP, IP_PKTINFO, &on, sizeof on) == 0);
    CHECK(setsockopt(b, SOL_SOCKET, SO_TIMESTAMP, &on, sizeof on) == 0);
    struct sockaddr_in to = loop4(port_of(b));
    CHECK(sendto(a, "hello", 5, 0, (void *)&to, sizeof to) == 5);
    char d2[2], m[256];
    struct iovec v = {d2, 2};
    struct msghdr h = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = m, .msg_controllen = sizeof m};
    CHECK_EQ(recvmsg(b, &h, 0), 2);
    CHECK(h.msg_flags & MSG_TRUNC);
    int info = 0, stamp = 0;
    for (struct cmsghdr *k = CMSG_FIRSTHDR(&h); k; k = CMSG_NXTHDR(&h, k)) {
        if (k->cmsg_level == IPPROTO_IP && k->cmsg_type == IP_PKTINFO) info = ((struct in_pktinfo *)CMSG_DATA(k))->ipi_ifindex;
        if (k->cmsg_level == SOL_SOCKET && k->cmsg_type == SCM_TIMESTAMP) stamp = 1;
    }
    CHECK(info == 1 && stamp);
}
CASE(udp_reuseport_and_conflict) {
    int a = bound4(SOCK_DGRAM), b = socket(AF_INET, SOCK_DGRAM, 0), on = 1;
    struct sockaddr_in at = loop4(port_of(a));
    CHECK_ERR(bind(b, (void *)&at, sizeof at), EADDRINUSE);
    int x = socket(AF_INET, SOCK_DGRAM, 0), y = socket(AF_INET, SOCK_DGRAM, 0);
    setsockopt(x, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
    setsockopt(y, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
    at = loop4(0);
    CHECK(bind(x, (void *)&at, sizeof at) == 0);
    at = loop4(port_of(x));
    CHECK_OK(bind(y, (void *)&at, sizeof at));
}
CASE(udp_queue_overflow_loses) {
    int a = bound4(SOCK_DGRAM), b = bound4(SOCK_DGRAM), small = 4096;
    CHECK(setsockopt(b, SOL_SOCKET, SO_RCVBUF, &small, sizeof small) == 0);
    struct sockaddr_in to = loop4(port_of(b));
    CHECK(connect(a, (void *)&to, sizeof to) == 0);
    char m[1000] = {0};
    for (int i = 0; i < 100; i++) CHECK_EQ(send(a, m, sizeof m, 0), (ssize_t)sizeof m);
    int n = 0;
    while (recv(b, m, sizeof m, MSG_DONTWAIT) > 0) n++;
    CHECK(n > 0 && n < 100);
}
CASE(udp_broadcast_needs_option) {
    int a = bound4(SOCK_DGRAM);
    struct sockaddr_in to = loop4(9);
    to.sin_addr.s_addr = htonl(INADDR_BROADCAST);
    ssize_t r = sendto(a, "x", 1, 0, (void *)&to, sizeof to);
    CHECK(r == -1 && (errno == EACCES || errno == ENETUNREACH));
    to = loop4(0);
    CHECK_ERR(sendto(a, "x", 1, 0, (void *)&to, sizeof to), EINVAL);
}
CASE(connect_to_wildcard_is_loopback) {
    ls = bound4(SOCK_STREAM);
    CHECK(listen(ls, 1) == 0);
    struct sockaddr_in a = loop4(port_of(ls));
    a.sin_addr.s_addr = INADDR_ANY;
    CHECK_OK(connect(socket(AF_INET, SOCK_STREAM, 0), (void *)&a, sizeof a));
}
CASE(ephemeral_ports_vary) {
    int p = port_of(bound4(SOCK_STREAM)), same = 0;
    for (int i = 0; i < 8; i++) same += port_of(bound4(SOCK_STREAM)) == p;
    CHECK(same == 0 && p >= 1024);
}
CASE(getifaddrs_shows_lo) {
    struct ifaddrs *a, *i;
    CHECK_OK(getifaddrs(&a));
    int v4 = 0, link = 0;
    for (i = a; i; i = i->ifa_next)
        if (!strcmp(i->ifa_name, "lo") && i->ifa_addr) {
            CHECK(i->ifa_flags & IFF_LOOPBACK);
            if (i->ifa_addr->sa_family == AF_INET)
                v4 = ((struct sockaddr_in *)i->ifa_addr)->sin_addr.s_addr == htonl(INADDR_LOOPBACK);
            if (i->ifa_addr->sa_family == AF_PACKET) link = 1;
        }
    CHECK(v4 && link);
    freeifaddrs(a);
}
CASE(if_names) {
    CHECK_EQ(if_nametoindex("lo"), 1);
    char n[IF_NAMESIZE];
    CHECK(if_indextoname(1, n) && !strcmp(n, "lo"));
    CHECK(if_nametoindex("none0") == 0 && errno == ENODEV);
}
CASE(proc_net_shows_sockets) {
    conn();
    char want[64];
    snprintf(want, sizeof want, "0100007F:%04X 00000000:0000 0A", port_of(ls));
    CHECK(strstr(slurp("/proc/net/tcp"), want));
    snprintf(want, sizeof want, ":%04X 01 ", port_of(ls));
    CHECK(strstr(slurp("/proc/net/tcp"), want));
    int s = ulisten(SOCK_STREAM, "t-proc-net", 1);
    CHECK(strstr(slurp("/proc/net/unix"), "@t-proc-net"));
    char link[64], to[64] = {0};
    snprintf(link, sizeof link, "/proc/self/fd/%d", s);
    CHECK(readlink(link, to, 63) > 0 && !strncmp(to, "socket:[", 8));
    struct stat st;
    CHECK(fstat(s, &st) == 0 && S_ISSOCK(st.st_mode) && strtoul(to + 8, NULL, 10) == st.st_ino);
}
static void nothing(int s) { (void)s; }
CASE(interrupted_by_signal) {
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sp) == 0);
    pid_t k = SPAWN({
        struct sigaction a = {.sa_handler = SIG_DFL};
        a.sa_handler = nothing;
        sigaction(SIGUSR1, &a, NULL);
        char b;
        CHECK_ERR(recv(sp[0], &b, 1, 0), EINTR);
        a.sa_flags = SA_RESTART;
        sigaction(SIGUSR1, &a, NULL);
        CHECK(write(sp[0], "r", 1) == 1);
        CHECK_EQ(recv(sp[0], &b, 1, 0), 1);
    });
    char b;
    msleep(40);
    kill(k, SIGUSR1);
    CHECK(read(sp[1], &b, 1) == 1);
    msleep(40);
    kill(k, SIGUSR1);
    msleep(40);
    CHECK(write(sp[1], "x", 1) == 1);
    CHECK_EQ(join(k), 0);
}
