// Pipes and FIFOs, and the calls that move data: splice, tee, vmsplice, sendfile, copy_file_range.
#include "t.h"
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>

static int p[2];
static void mk(int flags) { CHECK(pipe2(p, flags) == 0); }
static size_t fill(int fd) {
    char b[4096] = {0};
    size_t n = 0;
    ssize_t r;
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    while ((r = write(fd, b, sizeof b)) > 0) n += r;
    CHECK(errno == EAGAIN);
    return n;
}
static int revents(int fd, int ev) {
    struct pollfd f = {fd, ev, 0};
    CHECK(poll(&f, 1, 0) >= 0);
    return f.revents;
}
static void nop(int s, siginfo_t *si, void *u) { (void)s, (void)si, (void)u; }

CASE(write_read_order) {
    mk(0);
    CHECK(write(p[1], "abc", 3) == 3 && write(p[1], "de", 2) == 2);
    char b[10];
    CHECK_EQ(read(p[0], b, 2), 2);
    CHECK_EQ(read(p[0], b, 10), 3);  // what is there, not what is asked
    CHECK(!memcmp(b, "cde", 3));
}
CASE(eof_after_last_writer) {
    mk(0);
    int d = dup(p[1]);
    CHECK(write(d, "x", 1) == 1);
    close(p[1]);
    close(d);
    char c;
    CHECK_EQ(read(p[0], &c, 1), 1);
    CHECK_EQ(read(p[0], &c, 1), 0);
    CHECK_EQ(read(p[0], &c, 1), 0);
}
CASE(epipe_and_sigpipe) {
    mk(0);
    close(p[0]);
    CHECK_EQ(join(SPAWN({ write(p[1], "x", 1); })), 128 + SIGPIPE);
    signal(SIGPIPE, SIG_IGN);
    CHECK_ERR(write(p[1], "x", 1), EPIPE);
    CHECK(revents(p[1], POLLOUT) & POLLERR);
}
CASE(wrong_direction) {
    mk(0);
    char c;
    CHECK_ERR(write(p[0], "x", 1), EBADF);
    CHECK_ERR(read(p[1], &c, 1), EBADF);
}
CASE(nonblock_empty_and_full) {
    mk(O_NONBLOCK | O_CLOEXEC);
    char c;
    CHECK_ERR(read(p[0], &c, 1), EAGAIN);
    CHECK_EQ(fill(p[1]), 65536);
    CHECK_ERR(write(p[1], "x", 1), EAGAIN);
    CHECK_EQ(fcntl(p[0], F_GETFD), FD_CLOEXEC);
}
CASE(pipe2_bad_flags) {
    CHECK_ERR(pipe2(p, 0x1), EINVAL);
    CHECK_ERR(syscall(SYS_pipe2, BAD, 0), EFAULT);
}
CASE(pipe_buf_atomic_when_nearly_full) {
    mk(0);
    fill(p[1]);
    char b[4096];
    CHECK_EQ(read(p[0], b, 100), 100);
    CHECK_ERR(write(p[1], b, 4096), EAGAIN);  // 4096 must go whole or not at all
}
CASE(large_nonblocking_write_is_partial) {
    mk(O_NONBLOCK);
    char *b = calloc(1, 200000);
    ssize_t n = write(p[1], b, 200000);
    CHECK_EQ(n, 65536);
}
CASE(blocking_large_write_completes) {
    mk(0);
    char *b = malloc(1 << 20);
    for (int i = 0; i < 1 << 20; i++) b[i] = (char)(i * 7);
    pid_t c = SPAWN({
        close(p[0]);
        CHECK_EQ(write(p[1], b, 1 << 20), 1 << 20);
    });
    close(p[1]);
    size_t n = 0;
    char r[5000];
    for (ssize_t k; (k = read(p[0], r, sizeof r)) > 0; n += k)
        for (ssize_t i = 0; i < k; i++) CHECK(r[i] == (char)((n + i) * 7));
    CHECK_EQ(n, 1 << 20);
    CHECK_EQ(join(c), 0);
}
CASE(small_writes_never_interleave) {
    mk(0);
    pid_t c[4];
    for (int i = 0; i < 4; i++)
        c[i] = SPAWN({
            char b[512];
            memset(b, 'a' + i, 512);
            for (int k = 0; k < 200; k++) CHECK(write(p[1], b, 512) == 512);
        });
    close(p[1]);
    char b[512];
    for (int k = 0; k < 800; k++) {
        size_t n = 0;
        while (n < 512) {
            ssize_t r = read(p[0], b + n, 512 - n);
            CHECK(r > 0);
            n += r;
        }
        for (int i = 1; i < 512; i++) CHECK(b[i] == b[0]);
    }
    for (int i = 0; i < 4; i++) CHECK_EQ(join(c[i]), 0);
}
CASE(interrupted_partial_write_returns_count) {
    mk(0);
    on_signal(SIGALRM, nop, 0);
    struct itimerval it = {{0, 0}, {0, 30000}};
    setitimer(ITIMER_REAL, &it, NULL);
    char *b = calloc(1, 200000);
    CHECK_EQ(write(p[1], b, 200000), 65536);
}
CASE(blocked_reader_woken_by_close) {
    mk(0);
    pid_t c = SPAWN({ char x; close(p[1]); CHECK_EQ(read(p[0], &x, 1), 0); });
    msleep(20);
    close(p[1]);
    CHECK_EQ(join(c), 0);
}
CASE(blocked_writer_gets_epipe) {
    mk(0);
    pid_t c = SPAWN({
        signal(SIGPIPE, SIG_IGN);
        close(p[0]);
        char *b = calloc(1, 100000);
        ssize_t n = write(p[1], b, 100000);
        CHECK(n == 65536 || (n == -1 && errno == EPIPE));
        CHECK_ERR(write(p[1], b, 1), EPIPE);
    });
    msleep(40);
    close(p[0]);
    CHECK_EQ(join(c), 0);
}
CASE(poll_states) {
    mk(0);
    CHECK_EQ(revents(p[0], POLLIN), 0);
    CHECK_EQ(revents(p[1], POLLOUT), POLLOUT);
    CHECK(write(p[1], "x", 1) == 1);
    CHECK_EQ(revents(p[0], POLLIN), POLLIN);
    close(p[1]);
    CHECK_EQ(revents(p[0], POLLIN), POLLIN | POLLHUP);
    char c;
    CHECK(read(p[0], &c, 1) == 1);
    CHECK_EQ(revents(p[0], POLLIN), POLLHUP);
}
CASE(fionread_counts) {
    mk(0);
    int n = -1;
    CHECK(write(p[1], "hello", 5) == 5);
    CHECK(ioctl(p[0], FIONREAD, &n) == 0);
    CHECK_EQ(n, 5);
}
CASE(pipe_size_get_set) {
    mk(0);
    CHECK_EQ(fcntl(p[0], F_GETPIPE_SZ), 65536);
    CHECK(fcntl(p[0], F_SETPIPE_SZ, 8192) >= 8192);
    CHECK_EQ(fill(p[1]), fcntl(p[0], F_GETPIPE_SZ));
    CHECK_ERR(fcntl(p[0], F_SETPIPE_SZ, 4096), EBUSY);
}
CASE(packet_mode) {
    CHECK(pipe2(p, O_DIRECT) == 0);
    CHECK(write(p[1], "abc", 3) == 3 && write(p[1], "de", 2) == 2);
    char b[10];
    CHECK_EQ(read(p[0], b, 2), 2);   // the rest of a packet is dropped
    CHECK_EQ(read(p[0], b, 10), 2);
}
CASE(pipe_stat) {
    mk(0);
    struct stat a, b;
    CHECK(fstat(p[0], &a) == 0 && fstat(p[1], &b) == 0);
    CHECK(S_ISFIFO(a.st_mode) && a.st_ino == b.st_ino);
    char l[64] = "", w[64], n[40];
    sprintf(n, "/proc/self/fd/%d", p[0]);
    CHECK(readlink(n, l, sizeof l) > 0);
    sprintf(w, "pipe:[%lu]", (unsigned long)a.st_ino);
    CHECK(!strcmp(l, w));
}
CASE(reopen_through_proc) {
    mk(0);
    char n[40], c;
    sprintf(n, "/proc/self/fd/%d", p[1]);
    int w = open(n, O_WRONLY);
    CHECK(w >= 0);
    close(p[1]);
    CHECK(write(w, "x", 1) == 1 && read(p[0], &c, 1) == 1);
    close(w);
    CHECK_EQ(read(p[0], &c, 1), 0);
}
CASE(fifo_open_blocks_for_peer) {
    scratch();
    CHECK(mkfifo("f", 0600) == 0);
    pid_t c = SPAWN({ msleep(40); int w = open("f", O_WRONLY); CHECK(write(w, "hi", 2) == 2); });
    int64_t t0 = now_us();
    int r = open("f", O_RDONLY);
    CHECK(r >= 0 && now_us() - t0 > 30000);
    char b[4];
    CHECK_EQ(read(r, b, 4), 2);
    CHECK_EQ(read(r, b, 4), 0);
    CHECK_EQ(join(c), 0);
}
CASE(fifo_nonblock_open) {
    scratch();
    mkfifo("f", 0600);
    CHECK_ERR(open("f", O_WRONLY | O_NONBLOCK), ENXIO);
    int r = open("f", O_RDONLY | O_NONBLOCK);
    CHECK(r >= 0);
    char c;
    CHECK_EQ(read(r, &c, 1), 0);  // no writer yet: end of file
    int w = open("f", O_WRONLY | O_NONBLOCK);
    CHECK(w >= 0);
    CHECK_ERR(read(r, &c, 1), EAGAIN);
    CHECK_EQ(revents(r, POLLIN), 0);
    close(w);
    CHECK_EQ(revents(r, POLLIN), POLLHUP);
}
CASE(fifo_rdwr_never_blocks) {
    scratch();
    mkfifo("f", 0600);
    int f = open("f", O_RDWR);
    char c;
    CHECK(f >= 0 && write(f, "q", 1) == 1 && read(f, &c, 1) == 1 && c == 'q');
}
CASE(fifo_open_interrupted) {
    scratch();
    mkfifo("f", 0600);
    on_signal(SIGALRM, nop, 0);
    struct itimerval it = {{0, 0}, {0, 30000}};
    setitimer(ITIMER_REAL, &it, NULL);
    CHECK_ERR(open("f", O_RDONLY), EINTR);
}
CASE(splice_pipe_to_file_and_back) {
    scratch();
    mk(0);
    int f = mkfile("f", "");
    CHECK(write(p[1], "hello", 5) == 5);
    CHECK_EQ(splice(p[0], NULL, f, NULL, 100, 0), 5);
    CHECK(!strcmp(slurp("f"), "hello"));
    loff_t o = 1;
    CHECK_EQ(splice(f, &o, p[1], NULL, 3, 0), 3);
    CHECK_EQ(o, 4);
    char b[8] = "";
    CHECK_EQ(read(p[0], b, 8), 3);
    CHECK(!strcmp(b, "ell"));
}
CASE(splice_errors) {
    scratch();
    int f = mkfile("f", "x"), g = mkfile("g", "");
    mk(0);
    loff_t o = 0;
    CHECK_ERR(splice(f, NULL, g, NULL, 1, 0), EINVAL);
    CHECK_ERR(splice(p[0], &o, f, NULL, 1, 0), ESPIPE);
    CHECK_ERR(splice(p[0], NULL, p[1], NULL, 1, 0), EINVAL);
    CHECK_ERR(splice(p[0], NULL, f, NULL, 1, SPLICE_F_NONBLOCK), EAGAIN);
}
CASE(tee_duplicates) {
    int q[2];
    mk(0);
    CHECK(pipe(q) == 0 && write(p[1], "abc", 3) == 3);
    CHECK_EQ(tee(p[0], q[1], 10, 0), 3);
    char b[4] = "", c[4] = "";
    CHECK(read(p[0], b, 3) == 3 && read(q[0], c, 3) == 3);
    CHECK(!strcmp(b, "abc") && !strcmp(c, "abc"));
}
CASE(vmsplice_writes) {
    mk(0);
    struct iovec v = {"memory", 6};
    CHECK_EQ(vmsplice(p[1], &v, 1, 0), 6);
    char b[7] = "";
    CHECK(read(p[0], b, 6) == 6 && !strcmp(b, "memory"));
}
CASE(sendfile_to_pipe_and_file) {
    scratch();
    int f = mkfile("f", "0123456789"), g = mkfile("g", "");
    off_t o = 2;
    mk(0);
    CHECK_EQ(sendfile(p[1], f, &o, 4), 4);
    CHECK(o == 6 && lseek(f, 0, SEEK_CUR) == 0);
    char b[5] = "";
    CHECK(read(p[0], b, 4) == 4 && !strcmp(b, "2345"));
    CHECK_EQ(sendfile(g, f, NULL, 100), 10);
    CHECK_EQ(lseek(f, 0, SEEK_CUR), 10);
    CHECK(!strcmp(slurp("g"), "0123456789"));
    CHECK_EQ(sendfile(g, f, NULL, 100), 0);
    CHECK_ERR(sendfile(g, p[0], NULL, 1), EINVAL);
}
CASE(copy_file_range_basic) {
    scratch();
    int f = mkfile("f", "0123456789"), g = mkfile("g", "xxxx");
    loff_t i = 3, o = 1;
    CHECK_EQ(copy_file_range(f, &i, g, &o, 4, 0), 4);
    CHECK(i == 7 && o == 5 && !strcmp(slurp("g"), "x3456"));
    i = 10;
    CHECK_EQ(copy_file_range(f, &i, g, &o, 4, 0), 0);
    CHECK_ERR(copy_file_range(f, NULL, g, NULL, 4, 1), EINVAL);
    i = 0, o = 2;
    CHECK_ERR(copy_file_range(f, &i, f, &o, 5, 0), EINVAL);  // overlap
    mk(0);
    CHECK_ERR(copy_file_range(p[0], NULL, g, NULL, 4, 0), EINVAL);
}
// Waits for an edge, like Go's poller: the descriptor was registered once, for everything.
static int edge(int fd, int events) {
    static int ep[2000];
    struct epoll_event e = {EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, {.fd = fd}};
    if (!ep[fd]) {
        ep[fd] = epoll_create1(0);
        CHECK(epoll_ctl(ep[fd], EPOLL_CTL_ADD, fd, &e) == 0);
    }
    for (;;) {
        CHECK_EQ(epoll_wait(ep[fd], &e, 1, 30000), 1);
        if (e.events & events) return 1;
    }
}
static int level(int fd, int events) {
    struct pollfd f = {fd, events, 0};
    return poll(&f, 1, 30000) == 1;
}
static int (*wait_for)(int, int) = level;
static void relay(int from, int to, size_t total) {
    // What Go's net package does: splice socket to pipe to socket, without blocking on the pipe.
    mk(O_NONBLOCK);
    size_t done = 0;
    while (done < total) {
        ssize_t n = splice(from, NULL, p[1], NULL, 1 << 20, SPLICE_F_NONBLOCK);
        if (n < 0) {
            CHECK(errno == EAGAIN);
            CHECK(wait_for(from, POLLIN));
            continue;
        }
        CHECK(n > 0);
        while (n > 0) {
            ssize_t m = splice(p[0], NULL, to, NULL, n, SPLICE_F_NONBLOCK);
            if (m < 0) {
                CHECK(errno == EAGAIN);
                CHECK(wait_for(to, POLLOUT));
                continue;
            }
            CHECK(m > 0);
            n -= m, done += m;
        }
    }
}
static void relayed(int domain, int nonblock) {
    int a[2], b[2];
    const size_t total = 4 << 20;
    if (domain == AF_UNIX) CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, a) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, b) == 0);
    else
        for (int i = 0; i < 2; i++) {
            int l = socket(AF_INET, SOCK_STREAM, 0), *q = i ? b : a;
            struct sockaddr_in x = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
            socklen_t n = sizeof x;
            CHECK(bind(l, (void *)&x, n) == 0 && listen(l, 1) == 0 && getsockname(l, (void *)&x, &n) == 0);
            CHECK((q[0] = socket(AF_INET, SOCK_STREAM, 0)) >= 0 && connect(q[0], (void *)&x, n) == 0);
            CHECK((q[1] = accept(l, NULL, NULL)) >= 0);
        }
    pid_t w = SPAWN({
        char *m = malloc(total);
        memset(m, 7, total);
        if (nonblock) fcntl(a[0], F_SETFL, O_RDWR | O_NONBLOCK);
        for (size_t n = 0; n < total;) {
            ssize_t k = write(a[0], m, total - n);
            CHECK(k > 0 || (k < 0 && errno == EAGAIN));
            if (k > 0) n += k;
            else CHECK(wait_for(a[0], POLLOUT));
        }
    });
    pid_t r = SPAWN({
        char *m = malloc(total);
        if (nonblock) fcntl(b[1], F_SETFL, O_RDWR | O_NONBLOCK);
        for (size_t n = 0; n < total;) {
            ssize_t k = read(b[1], m, total);
            CHECK((k > 0 && m[0] == 7 && m[k - 1] == 7) || (k < 0 && errno == EAGAIN));
            if (k > 0) n += k;
            else CHECK(wait_for(b[1], POLLIN));
        }
    });
    if (nonblock) {
        fcntl(a[1], F_SETFL, O_RDWR | O_NONBLOCK);
        fcntl(b[0], F_SETFL, O_RDWR | O_NONBLOCK);
    }
    relay(a[1], b[0], total);
    CHECK_EQ(join(w), 0);
    CHECK_EQ(join(r), 0);
}
CASE(splice_relay_tcp) { relayed(AF_INET, 0); }
CASE(splice_relay_tcp_nonblocking) { relayed(AF_INET, 1); }
CASE(splice_relay_unix_nonblocking) { relayed(AF_UNIX, 1); }
CASE(splice_relay_tcp_edge) {
    wait_for = edge;
    relayed(AF_INET, 1);
}
CASE(splice_relay_unix_edge) {
    wait_for = edge;
    relayed(AF_UNIX, 1);
}
CASE(splice_socket_end_of_file) {
    int a[2];
    mk(0);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, a) == 0 && write(a[0], "xyz", 3) == 3);
    close(a[0]);
    CHECK_EQ(splice(a[1], NULL, p[1], NULL, 100, 0), 3);
    CHECK_EQ(splice(a[1], NULL, p[1], NULL, 100, 0), 0);
}
CASE(splice_to_full_pipe_nonblock) {
    int a[2];
    mk(0);
    fill(p[1]);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, a) == 0 && write(a[0], "xyz", 3) == 3);
    CHECK_ERR(splice(a[1], NULL, p[1], NULL, 3, SPLICE_F_NONBLOCK), EAGAIN);
    char b[8];
    CHECK_EQ(read(a[1], b, 8), 3);  // nothing was lost
}
CASE(many_pipes) {
    int q[200][2];
    for (int i = 0; i < 200; i++) CHECK(pipe(q[i]) == 0);
    for (int i = 0; i < 200; i++) CHECK(write(q[i][1], &i, sizeof i) == sizeof i);
    for (int i = 199; i >= 0; i--) {
        int v;
        CHECK(read(q[i][0], &v, sizeof v) == sizeof v && v == i);
    }
}
CASE(process_ring) {
    // A token goes 50 times round 10 processes.
    int q[10][2];
    for (int i = 0; i < 10; i++) CHECK(pipe(q[i]) == 0);
    pid_t c[10];
    for (int i = 0; i < 10; i++)
        c[i] = SPAWN({
            int v;
            for (int k = 0; k < 50; k++) {
                CHECK(read(q[i][0], &v, sizeof v) == sizeof v);
                v++;
                if (v < 500) CHECK(write(q[(i + 1) % 10][1], &v, sizeof v) == sizeof v);
            }
        });
    int v = 0;
    CHECK(write(q[0][1], &v, sizeof v) == sizeof v);
    for (int i = 0; i < 10; i++) CHECK_EQ(join(c[i]), 0);
}
CASE(shell_pipeline_of_five) {
    FILE *f = popen("yes | head -n 1000 | cat | sort -u | wc -l", "r");
    char b[20] = "";
    CHECK(f && fgets(b, sizeof b, f));
    CHECK_EQ(atoi(b), 1);
    pclose(f);
}
