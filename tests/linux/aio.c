// Kernel AIO, by number: io_setup, io_submit, io_getevents, io_pgetevents, io_cancel, io_destroy.
#include "t.h"
#include <linux/aio_abi.h>
#include <netinet/in.h>
#include <sys/eventfd.h>

static aio_context_t ctx;
static int setup(unsigned n) { return syscall(SYS_io_setup, n, &ctx); }
static long submit(long n, struct iocb **list) { return syscall(SYS_io_submit, ctx, n, list); }
static long submit1(struct iocb *io) { return submit(1, &io); }
static long get(long least, long most, struct io_event *e, struct timespec *t) {
    return syscall(SYS_io_getevents, ctx, least, most, e, t);
}
static struct iocb make(int op, int fd, void *buf, size_t len, long long off) {
    return (struct iocb){.aio_lio_opcode = op, .aio_fildes = fd, .aio_buf = (uintptr_t)buf, .aio_nbytes = len,
                         .aio_offset = off, .aio_data = 0x1234};
}
static int file(void) {
    char name[] = "/tmp/aioXXXXXX";
    int fd = mkstemp(name);
    CHECK(fd >= 0);
    unlink(name);
    CHECK_EQ(write(fd, "0123456789abcdef", 16), 16);
    return fd;
}
static void begin(void) {
    if (setup(8) < 0 && errno == ENOSYS) SKIP("the kernel has no AIO");
    CHECK(ctx);
}
static struct timespec soon = {0, 50000000}, none = {0, 0}, late = {20, 0};

CASE(setup_edges) {
    ctx = 0;
    CHECK_ERR(setup(0), EINVAL);
    ctx = 1;
    CHECK_ERR(setup(1), EINVAL);
    ctx = 0;
    CHECK_ERR(syscall(SYS_io_setup, 1, (void *)8), EFAULT);
    CHECK_ERR(syscall(SYS_io_setup, 0x10000001, &ctx), EINVAL);
    CHECK_ERR(syscall(SYS_io_setup, 0x400001, &ctx), EINVAL);
    CHECK_ERR(syscall(SYS_io_setup, 0x3fffff, &ctx), EAGAIN);
    CHECK_EQ(ctx, 0);
}
CASE(destroy_edges) {
    begin();
    CHECK_ERR(syscall(SYS_io_destroy, ctx + 4096), EINVAL);
    CHECK_ERR(syscall(SYS_io_destroy, 0), EINVAL);
    CHECK_OK(syscall(SYS_io_destroy, ctx));
    CHECK_ERR(syscall(SYS_io_destroy, ctx), EINVAL);
    CHECK_ERR(get(0, 1, NULL, NULL), EINVAL);
}
CASE(reads) {
    begin();
    char b[8] = "";
    struct iocb io = make(IOCB_CMD_PREAD, file(), b, 4, 10);
    io.aio_key = 77;
    CHECK_EQ(submit1(&io), 1);
    CHECK_EQ(io.aio_key, 0);
    struct io_event e;
    CHECK_EQ(get(1, 1, &e, NULL), 1);
    CHECK_EQ(e.data, 0x1234);
    CHECK_EQ(e.obj, (uintptr_t)&io);
    CHECK_EQ(e.res, 4);
    CHECK_EQ(e.res2, 0);
    CHECK(!memcmp(b, "abcd", 4));
    CHECK_EQ(lseek(io.aio_fildes, 0, SEEK_CUR), 16);
}
CASE(writes) {
    begin();
    char b[16];
    struct iocb io = make(IOCB_CMD_PWRITE, file(), "XYZ", 3, 5);
    CHECK_EQ(submit1(&io), 1);
    struct io_event e;
    CHECK_EQ(get(1, 1, &e, NULL), 1);
    CHECK_EQ(e.res, 3);
    CHECK_EQ(pread(io.aio_fildes, b, 16, 0), 16);
    CHECK(!memcmp(b, "01234XYZ89abcdef", 16));
}
CASE(writes_by_append) {
    begin();
    char name[] = "/tmp/aioXXXXXX";
    int fd = mkstemp(name);
    CHECK_EQ(write(fd, "abc", 3), 3);
    int a = open(name, O_WRONLY | O_APPEND);
    unlink(name);
    struct iocb io = make(IOCB_CMD_PWRITE, a, "def", 3, 0);
    CHECK_EQ(submit1(&io), 1);
    struct io_event e;
    CHECK_EQ(get(1, 1, &e, NULL), 1);
    char b[8];
    CHECK_EQ(pread(fd, b, 8, 0), 6);
    CHECK(!memcmp(b, "abcdef", 6));
}
CASE(vectors) {
    begin();
    char a[4], b[4];
    struct iovec v[2] = {{a, 2}, {b, 3}};
    struct iocb io = make(IOCB_CMD_PREADV, file(), v, 2, 1);
    CHECK_EQ(submit1(&io), 1);
    struct io_event e;
    CHECK_EQ(get(1, 1, &e, NULL), 1);
    CHECK_EQ(e.res, 5);
    CHECK(!memcmp(a, "12", 2) && !memcmp(b, "345", 3));
    io.aio_lio_opcode = IOCB_CMD_PWRITEV;
    io.aio_offset = 9;
    CHECK_EQ(submit1(&io), 1);
    CHECK_EQ(get(1, 1, &e, NULL), 1);
    char all[16];
    CHECK_EQ(pread(io.aio_fildes, all, 16, 0), 16);
    CHECK(!memcmp(all, "01234567812345ef", 16));
}
CASE(syncs) {
    begin();
    int fd = file();
    struct iocb io = make(IOCB_CMD_FSYNC, fd, NULL, 0, 0), d = make(IOCB_CMD_FDSYNC, fd, NULL, 0, 0);
    struct iocb *list[] = {&io, &d};
    CHECK_EQ(submit(2, list), 2);
    struct io_event e[2];
    CHECK_EQ(get(2, 2, e, NULL), 2);
    CHECK_EQ(e[0].res, 0);
    CHECK_EQ(e[1].res, 0);
    io.aio_nbytes = 1;
    CHECK_ERR(submit1(&io), EINVAL);
    int p[2];
    CHECK_OK(pipe(p));
    io = make(IOCB_CMD_FSYNC, p[0], NULL, 0, 0);
    CHECK_ERR(submit1(&io), EINVAL);
}
CASE(end_of_file_and_bad_buffer) {
    begin();
    char b[8];
    int fd = file();
    struct iocb io = make(IOCB_CMD_PREAD, fd, b, 8, 16), bad = make(IOCB_CMD_PREAD, fd, (void *)8, 8, 0);
    struct io_event e;
    CHECK_EQ(submit1(&io), 1);
    CHECK_EQ(get(1, 1, &e, NULL), 1);
    CHECK_EQ(e.res, 0);
    CHECK_EQ(submit1(&bad), 1);
    CHECK_EQ(get(1, 1, &e, NULL), 1);
    CHECK_EQ(e.res, -EFAULT);
}
CASE(submit_errors) {
    begin();
    char b[8];
    int fd = file();
    struct iocb io = make(IOCB_CMD_PREAD, fd, b, 4, 0);
    struct iocb *list[] = {&io}, *null[] = {NULL};
    CHECK_ERR(syscall(SYS_io_submit, ctx + 8, 1, list), EINVAL);
    CHECK_ERR(submit(-1, list), EINVAL);
    CHECK_EQ(submit(0, list), 0);
    CHECK_ERR(submit(1, (void *)8), EFAULT);
    CHECK_ERR(submit(1, null), EFAULT);
    io = make(IOCB_CMD_PREAD, 999, b, 4, 0);
    CHECK_ERR(submit1(&io), EBADF);
    io = make(4, fd, b, 4, 0);
    CHECK_ERR(submit1(&io), EINVAL);
    io = make(IOCB_CMD_NOOP, fd, b, 4, 0);
    CHECK_ERR(submit1(&io), EINVAL);
    io = make(IOCB_CMD_PREAD, fd, b, 4, 0);
    io.aio_reserved2 = 1;
    CHECK_ERR(submit1(&io), EINVAL);
    io = make(IOCB_CMD_PREAD, fd, b, -1, 0);
    CHECK_ERR(submit1(&io), EINVAL);
    io = make(IOCB_CMD_PREAD, fd, b, 4, -1);
    CHECK_ERR(submit1(&io), EINVAL);
    io = make(IOCB_CMD_PREAD, fd, b, 4, 0);
    io.aio_rw_flags = 0x40000000;
    CHECK_ERR(submit1(&io), EOPNOTSUPP);
    CHECK_EQ(get(0, 1, NULL, &none), 0);
}
CASE(wrong_direction) {
    begin();
    char b[4];
    int r = open("/proc/self/exe", O_RDONLY), w = open("/dev/null", O_WRONLY), path = open("/", O_PATH);
    struct iocb io = make(IOCB_CMD_PWRITE, r, b, 4, 0);
    CHECK_ERR(submit1(&io), EBADF);
    io = make(IOCB_CMD_PREAD, w, b, 4, 0);
    CHECK_ERR(submit1(&io), EBADF);
    io = make(IOCB_CMD_PREAD, path, b, 4, 0);
    CHECK_ERR(submit1(&io), EBADF);
}
CASE(stops_at_the_first_bad_one) {
    begin();
    char b[4];
    int fd = file();
    struct iocb good = make(IOCB_CMD_PREAD, fd, b, 4, 0), bad = make(IOCB_CMD_PREAD, -1, b, 4, 0);
    struct iocb *list[] = {&good, &good, &bad, &good};
    CHECK_EQ(submit(4, list), 2);
    struct io_event e[4];
    CHECK_EQ(get(0, 4, e, &none), 2);
}
CASE(event_counter) {
    begin();
    int ev = eventfd(0, EFD_NONBLOCK), fd = file();
    char b[4];
    uint64_t n = 0;
    struct iocb io = make(IOCB_CMD_PREAD, fd, b, 4, 0);
    io.aio_flags = IOCB_FLAG_RESFD;
    io.aio_resfd = ev;
    struct iocb *list[] = {&io, &io};
    CHECK_EQ(submit(2, list), 2);
    struct pollfd p = {ev, POLLIN, 0};
    CHECK_EQ(poll(&p, 1, 5000), 1);
    CHECK_EQ(read(ev, &n, 8), 8);
    CHECK_EQ(n, 2);
    io.aio_resfd = fd;
    CHECK_ERR(submit1(&io), EINVAL);
    io.aio_resfd = 999;
    CHECK_ERR(submit1(&io), EBADF);
}
CASE(getevents_edges) {
    begin();
    struct io_event e[2];
    struct timespec odd = {-1, 0}, big = {0, 2000000000};
    CHECK_ERR(get(2, 1, e, &none), EINVAL);
    CHECK_ERR(get(-1, 1, e, &none), EINVAL);
    CHECK_ERR(get(0, -1, e, &none), EINVAL);
    CHECK_EQ(get(0, 0, e, NULL), 0);
    CHECK_ERR(get(1, 1, e, (void *)8), EFAULT);
    int64_t t = now_us();
    CHECK_EQ(get(1, 2, e, &soon), 0);
    CHECK(now_us() - t >= 45000);
    CHECK_EQ(get(0, 0, e, &odd), 0);
    t = now_us();
    CHECK_EQ(get(1, 2, e, &big), 0);
    CHECK(now_us() - t >= 1900000);
}
CASE(getevents_into_bad_memory) {
    begin();
    char b[4];
    struct iocb io = make(IOCB_CMD_PREAD, file(), b, 4, 0);
    CHECK_EQ(submit1(&io), 1);
    CHECK_ERR(get(1, 1, (void *)8, NULL), EFAULT);
    struct io_event e;
    CHECK_EQ(get(1, 1, &e, NULL), 1);
}
static void nothing(int s) { (void)s; }
CASE(getevents_is_interrupted) {
    begin();
    struct sigaction sa = {.sa_handler = nothing, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &sa, NULL);
    struct itimerval it = {{0, 0}, {0, 50000}};
    setitimer(ITIMER_REAL, &it, NULL);
    struct io_event e;
    CHECK_ERR(get(1, 1, &e, &late), EINTR);
}
CASE(pgetevents_masks) {
    begin();
    struct sigaction sa = {.sa_handler = nothing};
    sigaction(SIGUSR1, &sa, NULL);
    sigset_t set, old;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, &old);
    raise(SIGUSR1);
    struct { const void *mask; size_t size; } arg = {&old, 8}, wrong = {&old, 4};
    struct io_event e;
    CHECK_EQ(syscall(SYS_io_pgetevents, ctx, 1, 1, &e, &soon, NULL), 0);
    CHECK_ERR(syscall(SYS_io_pgetevents, ctx, 1, 1, &e, &late, &wrong), EINVAL);
    CHECK_ERR(syscall(SYS_io_pgetevents, ctx, 1, 1, &e, &late, &arg), EINTR);
    sigset_t now;
    sigprocmask(SIG_BLOCK, NULL, &now);
    CHECK(sigismember(&now, SIGUSR1));
}
CASE(pipes_and_sockets) {
    begin();
    int p[2], s[2];
    char b[8];
    CHECK_OK(pipe(p));
    CHECK_OK(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
    struct iocb a = make(IOCB_CMD_PWRITE, p[1], "hello", 5, 0), c = make(IOCB_CMD_PREAD, p[0], b, 8, 0);
    struct iocb *list[] = {&a, &c};
    CHECK_EQ(submit(2, list), 2);
    struct io_event e[2];
    CHECK_EQ(get(2, 2, e, NULL), 2);
    CHECK_EQ(e[0].res, 5);
    CHECK_EQ(e[1].res, 5);
    fcntl(s[0], F_SETFL, O_NONBLOCK);
    a = make(IOCB_CMD_PREAD, s[0], b, 8, 0);
    CHECK_EQ(submit1(&a), 1);
    CHECK_EQ(get(1, 1, e, NULL), 1);
    CHECK_EQ(e[0].res, -EAGAIN);
}
static struct iocb poller(int fd, unsigned events) {
    struct iocb io = make(IOCB_CMD_POLL, fd, NULL, 0, 0);
    io.aio_buf = events;
    return io;
}
CASE(poll_of_what_is_ready) {
    begin();
    int p[2];
    CHECK_OK(pipe(p));
    struct iocb io = poller(p[1], POLLOUT);
    CHECK_EQ(submit1(&io), 1);
    struct io_event e;
    CHECK_EQ(get(1, 1, &e, &late), 1);
    CHECK_EQ(e.res, POLLOUT);
}
CASE(poll_waits) {
    begin();
    int p[2];
    CHECK_OK(pipe(p));
    struct iocb io = poller(p[0], POLLIN);
    CHECK_EQ(submit1(&io), 1);
    struct io_event e;
    CHECK_EQ(get(1, 1, &e, &soon), 0);
    pid_t c = SPAWN(msleep(50); CHECK_EQ(write(p[1], "x", 1), 1));
    CHECK_EQ(get(1, 1, &e, &late), 1);
    CHECK(e.res & POLLIN);
    CHECK_EQ(e.obj, (uintptr_t)&io);
    join(c);
}
CASE(poll_tells_what_was_there) {
    begin();
    int p[2];
    char b;
    CHECK_OK(pipe(p));
    struct iocb io = poller(p[0], POLLIN);
    CHECK_EQ(submit1(&io), 1);
    CHECK_EQ(write(p[1], "x", 1), 1);
    CHECK_EQ(read(p[0], &b, 1), 1);
    struct io_event e;
    CHECK_EQ(get(1, 1, &e, &late), 1);
    CHECK(e.res & POLLIN);
}
CASE(poll_tells_hangups) {
    begin();
    int p[2];
    CHECK_OK(pipe(p));
    struct iocb io = poller(p[0], 0);
    CHECK_EQ(submit1(&io), 1);
    close(p[1]);
    struct io_event e;
    CHECK_EQ(get(1, 1, &e, &late), 1);
    CHECK_EQ(e.res, POLLHUP);
}
CASE(poll_edges) {
    begin();
    int p[2];
    CHECK_OK(pipe(p));
    struct iocb io = poller(p[0], 0x10000);
    CHECK_ERR(submit1(&io), EINVAL);
    io = poller(p[0], POLLIN);
    io.aio_offset = 1;
    CHECK_ERR(submit1(&io), EINVAL);
    io = poller(p[0], POLLIN);
    io.aio_nbytes = 1;
    CHECK_ERR(submit1(&io), EINVAL);
}
CASE(poll_signals_a_counter) {
    begin();
    int p[2], ev = eventfd(0, 0);
    CHECK_OK(pipe(p));
    struct iocb io = poller(p[0], POLLIN);
    io.aio_flags = IOCB_FLAG_RESFD;
    io.aio_resfd = ev;
    CHECK_EQ(submit1(&io), 1);
    pid_t c = SPAWN(msleep(20); CHECK_EQ(write(p[1], "x", 1), 1));
    uint64_t n;
    CHECK_EQ(read(ev, &n, 8), 8);
    CHECK_EQ(n, 1);
    struct io_event e;
    CHECK_EQ(get(0, 1, &e, &none), 1);
    join(c);
}
CASE(polls_of_counters_that_tell_each_other) {
    begin();
    int a = eventfd(0, 0), b = eventfd(0, 0);
    struct iocb x = poller(a, POLLIN), y = poller(b, POLLIN);
    x.aio_flags = y.aio_flags = IOCB_FLAG_RESFD;
    x.aio_resfd = b, y.aio_resfd = a;
    struct iocb *list[] = {&x, &y};
    CHECK_EQ(submit(2, list), 2);
    uint64_t one = 1;
    CHECK_EQ(write(a, &one, 8), 8);
    struct io_event e[2];
    CHECK_EQ(get(2, 2, e, &late), 2);
}
CASE(poll_of_a_socket_between_threads) {
    begin();
    int l = socket(AF_INET, SOCK_STREAM, 0), c = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    CHECK_OK(bind(l, (void *)&at, n));
    CHECK_OK(listen(l, 1));
    CHECK_OK(getsockname(l, (void *)&at, &n));
    struct iocb io = poller(l, POLLIN);
    CHECK_EQ(submit1(&io), 1);
    pid_t p = SPAWN(msleep(20); CHECK_OK(connect(c, (void *)&at, n)));
    struct io_event e;
    CHECK_EQ(get(1, 1, &e, &late), 1);
    CHECK(e.res & POLLIN);
    join(p);
}
CASE(cancel) {
    begin();
    int p[2];
    CHECK_OK(pipe(p));
    struct iocb io = poller(p[0], POLLIN), other = poller(p[0], POLLIN);
    struct io_event e;
    CHECK_EQ(submit1(&io), 1);
    CHECK_ERR(syscall(SYS_io_cancel, ctx, &other, &e), EINVAL);
    CHECK_ERR(syscall(SYS_io_cancel, ctx + 8, &io, &e), EINVAL);
    CHECK_ERR(syscall(SYS_io_cancel, ctx, (void *)8, &e), EFAULT);
    CHECK_ERR(syscall(SYS_io_cancel, ctx, &io, &e), EINPROGRESS);
    CHECK_EQ(get(1, 1, &e, &late), 1);
    CHECK_EQ(e.obj, (uintptr_t)&io);
    CHECK_ERR(syscall(SYS_io_cancel, ctx, &io, &e), EINVAL);
}
CASE(room) {
    begin();
    int p[2], n = 0;
    CHECK_OK(pipe(p));
    struct iocb io = poller(p[0], POLLIN);
    while (submit1(&io) == 1 && n < 100000) n++;
    CHECK_EQ(errno, EAGAIN);
    CHECK(n >= 8);
    CHECK_EQ(write(p[1], "x", 1), 1);
    struct io_event e[16];
    int got = 0, r;
    while (got < n && (r = get(1, 16, e, &late)) > 0) got += r;
    CHECK_EQ(got, n);
    CHECK_EQ(get(0, 16, e, &none), 0);
    CHECK_EQ(submit1(&io), 1);
}
CASE(the_ring_can_be_read) {
    begin();
    struct ring { unsigned id, nr, head, tail, magic, compat, incompat, header; struct io_event e[]; };
    volatile struct ring *r = (void *)ctx;
    CHECK_EQ(r->magic, 0xa10a10a1);
    CHECK_EQ(r->incompat, 0);
    CHECK_EQ(r->header, 32);
    CHECK(r->nr >= 8);
    char b[4];
    struct iocb io = make(IOCB_CMD_PREAD, file(), b, 4, 0);
    CHECK_EQ(submit1(&io), 1);
    while (r->tail == r->head) sched_yield();
    CHECK_EQ(r->e[r->head].res, 4);
    r->head = (r->head + 1) % r->nr;
    struct io_event e;
    CHECK_EQ(get(0, 1, &e, &none), 0);
    r->head = 0xffffffff;
    CHECK(get(0, 1, &e, &none) <= 1);
}
CASE(a_child_has_none) {
    begin();
    struct io_event e;
    CHECK_EQ(join(SPAWN(CHECK_ERR(get(0, 1, &e, &none), EINVAL))), 0);
    CHECK_EQ(get(0, 1, &e, &none), 0);
}
CASE(files_stay_open_for_a_poll) {
    begin();
    int p[2];
    CHECK_OK(pipe(p));
    struct iocb io = poller(p[0], POLLIN);
    CHECK_EQ(submit1(&io), 1);
    close(p[0]);
    CHECK_EQ(write(p[1], "x", 1), 1);
    struct io_event e;
    CHECK_EQ(get(1, 1, &e, &late), 1);
    CHECK_EQ(e.res & POLLIN, POLLIN);
}
static void *waits_for_one(void *x) {
    struct io_event e;
    *(long *)x = get(1, 1, &e, &late);
    return NULL;
}
CASE(threads_share_an_instance) {
    begin();
    pthread_t t[4];
    long r[4];
    int p[2];
    CHECK_OK(pipe(p));
    for (int i = 0; i < 4; i++) CHECK_EQ(pthread_create(&t[i], NULL, waits_for_one, &r[i]), 0);
    msleep(20);
    struct iocb io = poller(p[0], POLLIN);
    struct iocb *list[] = {&io, &io, &io, &io};
    CHECK_EQ(submit(4, list), 4);
    CHECK_EQ(write(p[1], "x", 1), 1);
    for (int i = 0; i < 4; i++) {
        pthread_join(t[i], NULL);
        CHECK_EQ(r[i], 1);
    }
}
static void *destroys(void *x) {
    msleep(50);
    *(long *)x = syscall(SYS_io_destroy, ctx);
    return NULL;
}
CASE(destroyed_under_a_waiter) {
    begin();
    int p[2];
    CHECK_OK(pipe(p));
    struct iocb io = poller(p[0], POLLIN);
    CHECK_EQ(submit1(&io), 1);
    pthread_t t;
    long r;
    CHECK_EQ(pthread_create(&t, NULL, destroys, &r), 0);
    struct io_event e;
    long n = get(1, 1, &e, &late);
    CHECK(n == 1 || (n == -1 && errno == EINVAL));
    pthread_join(t, NULL);
    CHECK_EQ(r, 0);
}
CASE(exec_and_exit_with_requests) {
    begin();
    int p[2];
    CHECK_OK(pipe(p));
    pid_t c = SPAWN(
        ctx = 0; CHECK_OK(setup(4)); struct iocb io = poller(p[0], POLLIN); CHECK_EQ(submit1(&io), 1);
        execl("/bin/true", "true", NULL); _exit(9));
    CHECK_EQ(join(c), 0);
    c = SPAWN(ctx = 0; CHECK_OK(setup(4)); struct iocb io = poller(p[0], POLLIN); CHECK_EQ(submit1(&io), 1));
    CHECK_EQ(join(c), 0);
    close(p[0]);
    signal(SIGPIPE, SIG_IGN);
    CHECK_ERR(write(p[1], "x", 1), EPIPE);
}
CASE(direct_io_of_many) {
    begin();
    char name[] = "aioXXXXXX";
    int fd = mkstemp(name);
    CHECK(fd >= 0);
    close(fd);
    fd = open(name, O_RDWR | O_DIRECT);
    if (fd < 0) fd = open(name, O_RDWR);
    unlink(name);
    enum { N = 8, SIZE = 4096 };
    char *b = mmap(NULL, 2 * N * SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct iocb io[N], *list[N];
    for (int i = 0; i < N; i++) {
        memset(b + i * SIZE, 'a' + i, SIZE);
        io[i] = make(IOCB_CMD_PWRITE, fd, b + i * SIZE, SIZE, (long long)i * SIZE);
        list[i] = &io[i];
    }
    struct io_event e[N];
    CHECK_EQ(submit(N, list), N);
    CHECK_EQ(get(N, N, e, NULL), N);
    for (int i = 0; i < N; i++) {
        CHECK_EQ(e[i].res, SIZE);
        io[i] = make(IOCB_CMD_PREAD, fd, b + (N + i) * SIZE, SIZE, (long long)i * SIZE);
    }
    CHECK_EQ(submit(N, list), N);
    CHECK_EQ(get(N, N, e, NULL), N);
    CHECK(!memcmp(b, b + N * SIZE, N * SIZE));
    CHECK_EQ(ftruncate(fd, 0), 0);
}
