// io_uring, by number: rings, requests, links, timeouts, cancellation, files and sockets.
#include "t.h"
#include <arpa/inet.h>
#include <linux/io_uring.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

static struct io_uring_params p;
static int ring;
static unsigned *sq_head, *sq_tail, *sq_mask, *sq_flags, *sq_array, *cq_head, *cq_tail, *cq_mask, *cq_overflow;
static struct io_uring_sqe *sqes;
static struct io_uring_cqe *cqes;

static int setup(unsigned entries) { return syscall(SYS_io_uring_setup, entries, &p); }
static long enter(unsigned submit, unsigned wait) {
    return syscall(SYS_io_uring_enter, ring, submit, wait, wait ? IORING_ENTER_GETEVENTS : 0, NULL, 0);
}
static long reg(unsigned op, const void *arg, unsigned n) { return syscall(SYS_io_uring_register, ring, op, arg, n); }

// A ring that is mapped.
static void begin(unsigned entries, unsigned flags) {
    memset(&p, 0, sizeof p);
    p.flags = flags;
    ring = setup(entries);
    if (ring < 0 && (errno == ENOSYS || errno == EPERM)) SKIP("the kernel has no io_uring");
    CHECK(ring >= 0);
    size_t a = p.sq_off.array + p.sq_entries * 4, b = p.cq_off.cqes + p.cq_entries * sizeof *cqes;
    char *m = mmap(NULL, a > b ? a : b, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQ_RING);
    CHECK(m != MAP_FAILED);
    sqes = mmap(NULL, p.sq_entries * sizeof *sqes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQES);
    CHECK(sqes != MAP_FAILED);
    sq_head = (void *)(m + p.sq_off.head), sq_tail = (void *)(m + p.sq_off.tail), sq_mask = (void *)(m + p.sq_off.ring_mask);
    sq_flags = (void *)(m + p.sq_off.flags), sq_array = (void *)(m + p.sq_off.array);
    cq_head = (void *)(m + p.cq_off.head), cq_tail = (void *)(m + p.cq_off.tail), cq_mask = (void *)(m + p.cq_off.ring_mask);
    cq_overflow = (void *)(m + p.cq_off.overflow), cqes = (void *)(m + p.cq_off.cqes);
}
static unsigned queued;
// The next request, with what most have.
static struct io_uring_sqe *next(int op, int fd, const void *addr, unsigned len, uint64_t off, uint64_t data) {
    unsigned tail = *sq_tail, i = tail & *sq_mask;
    CHECK(tail - __atomic_load_n(sq_head, __ATOMIC_ACQUIRE) <= *sq_mask);
    sqes[i] = (struct io_uring_sqe){.opcode = op, .fd = fd, .addr = (uintptr_t)addr, .len = len, .off = off, .user_data = data};
    sq_array[i] = i;
    __atomic_store_n(sq_tail, tail + 1, __ATOMIC_RELEASE);
    queued++;
    return &sqes[i];
}
static void submit(void) {
    CHECK_EQ(enter(queued, 0), queued);
    queued = 0;
}
static struct io_uring_cqe cqe;
static bool ready(void) { return *cq_head != __atomic_load_n(cq_tail, __ATOMIC_ACQUIRE); }
static void take(void) {
    cqe = cqes[*cq_head & *cq_mask];
    __atomic_store_n(cq_head, *cq_head + 1, __ATOMIC_RELEASE);
}
// Waits for a completion.
static void wait_cqe(void) {
    if (!ready()) CHECK_EQ(enter(0, 1), 0);
    CHECK(ready());
    take();
}
// What the next completion must be.
#define DONE(data, result)             \
    do {                               \
        wait_cqe();                    \
        CHECK_EQ(cqe.user_data, data); \
        CHECK_EQ(cqe.res, result);     \
    } while (0)
static int file(void) {
    char name[] = "/tmp/uringXXXXXX";
    int fd = mkstemp(name);
    CHECK(fd >= 0);
    unlink(name);
    CHECK_EQ(write(fd, "0123456789abcdef", 16), 16);
    return fd;
}
static struct __kernel_timespec ms(int n) { return (struct __kernel_timespec){n / 1000, n % 1000 * 1000000L}; }

CASE(setup_edges) {
    begin(1, 0);
    struct io_uring_params q = {0};
    CHECK_ERR(syscall(SYS_io_uring_setup, 0, &q), EINVAL);
    CHECK_ERR(syscall(SYS_io_uring_setup, 32769, &q), EINVAL);
    CHECK_ERR(syscall(SYS_io_uring_setup, 1, (void *)8), EFAULT);
    q.flags = 1u << 30;
    CHECK_ERR(syscall(SYS_io_uring_setup, 1, &q), EINVAL);
    q = (struct io_uring_params){.resv = {1}};
    CHECK_ERR(syscall(SYS_io_uring_setup, 1, &q), EINVAL);
    q = (struct io_uring_params){.flags = IORING_SETUP_CQSIZE};
    CHECK_ERR(syscall(SYS_io_uring_setup, 1, &q), EINVAL);
    q = (struct io_uring_params){.flags = IORING_SETUP_CQSIZE, .cq_entries = 4};
    CHECK_ERR(syscall(SYS_io_uring_setup, 8, &q), EINVAL);
    q = (struct io_uring_params){.flags = IORING_SETUP_SQ_AFF};
    CHECK_ERR(syscall(SYS_io_uring_setup, 1, &q), EINVAL);
}
CASE(sizes) {
    begin(5, 0);
    CHECK_EQ(p.sq_entries, 8);
    CHECK_EQ(p.cq_entries, 16);
    struct io_uring_params q = {.flags = IORING_SETUP_CLAMP};
    int fd = syscall(SYS_io_uring_setup, 100000, &q);
    CHECK(fd >= 0);
    CHECK_EQ(q.sq_entries, 32768);
    close(fd);
    q = (struct io_uring_params){.flags = IORING_SETUP_CQSIZE, .cq_entries = 9};
    fd = syscall(SYS_io_uring_setup, 4, &q);
    CHECK(fd >= 0);
    CHECK_EQ(q.cq_entries, 16);
    CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
    char name[64] = "", link[64];
    sprintf(link, "/proc/self/fd/%d", fd);
    CHECK(readlink(link, name, 63) > 0);
    CHECK(!strcmp(name, "anon_inode:[io_uring]"));
    CHECK(p.features & IORING_FEAT_SINGLE_MMAP);
    CHECK(p.features & IORING_FEAT_NODROP);
}
CASE(completions_mapped_apart) {
    begin(4, 0);
    char *m = mmap(NULL, p.cq_off.cqes + p.cq_entries * sizeof *cqes, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_CQ_RING);
    CHECK(m != MAP_FAILED);
    next(IORING_OP_NOP, -1, NULL, 0, 0, 7);
    submit();
    CHECK_EQ(*(unsigned *)(m + p.cq_off.tail), 1);
    CHECK_EQ(((struct io_uring_cqe *)(m + p.cq_off.cqes))[0].user_data, 7);
}
CASE(enter_edges) {
    begin(4, 0);
    CHECK_ERR(syscall(SYS_io_uring_enter, -1, 0, 0, 0, NULL, 0), EBADF);
    CHECK_ERR(syscall(SYS_io_uring_enter, 0, 0, 0, 0, NULL, 0), EOPNOTSUPP);
    CHECK_ERR(syscall(SYS_io_uring_enter, ring, 0, 0, 1u << 30, NULL, 0), EINVAL);
    CHECK_EQ(enter(5, 0), 0);
    CHECK_ERR(read(ring, &p, 8), EINVAL);
}
CASE(nops) {
    begin(8, 0);
    for (int i = 0; i < 8; i++) next(IORING_OP_NOP, -1, NULL, 0, 0, i);
    submit();
    CHECK_EQ(*sq_head, 8);
    for (int i = 0; i < 8; i++) DONE(i, 0);
    CHECK(!ready());
}
CASE(bad_requests) {
    begin(8, 0);
    next(200, -1, NULL, 0, 0, 1);
    next(IORING_OP_NOP, -1, NULL, 0, 0, 2);
    CHECK_EQ(enter(2, 0), 1);
    queued = 0;
    DONE(1, -EINVAL);
    CHECK_EQ(enter(1, 0), 1);
    DONE(2, 0);
    next(IORING_OP_NOP, -1, NULL, 0, 0, 3)->flags = 0x80;
    CHECK_EQ(enter(1, 0), 1);
    DONE(3, -EINVAL);
}
CASE(bad_requests_with_submit_all) {
    begin(8, IORING_SETUP_SUBMIT_ALL);
    next(200, -1, NULL, 0, 0, 1);
    next(IORING_OP_NOP, -1, NULL, 0, 0, 2);
    submit();
    DONE(1, -EINVAL);
    DONE(2, 0);
}
CASE(reads_and_writes) {
    begin(8, 0);
    int fd = file();
    char b[8] = "", c[8] = "";
    struct iovec v[2] = {{b, 2}, {c, 3}};
    next(IORING_OP_WRITE, fd, "XYZ", 3, 4, 1);
    submit();
    DONE(1, 3);
    next(IORING_OP_READ, fd, b, 5, 3, 2);
    submit();
    DONE(2, 5);
    CHECK(!memcmp(b, "3XYZ7", 5));
    next(IORING_OP_READV, fd, v, 2, 10, 3);
    submit();
    DONE(3, 5);
    CHECK(!memcmp(b, "ab", 2) && !memcmp(c, "cde", 3));
    next(IORING_OP_WRITEV, fd, v, 2, 16, 4);
    submit();
    DONE(4, 5);
    CHECK_EQ(lseek(fd, 0, SEEK_END), 21);
    next(IORING_OP_READ, fd, b, 8, 100, 5);
    submit();
    DONE(5, 0);
    next(IORING_OP_READ, fd, (void *)8, 8, 0, 6);
    submit();
    DONE(6, -EFAULT);
    next(IORING_OP_READ, 999, b, 8, 0, 7);
    submit();
    DONE(7, -EBADF);
}
CASE(current_position) {
    begin(8, 0);
    int fd = file();
    char b[4];
    lseek(fd, 4, SEEK_SET);
    next(IORING_OP_READ, fd, b, 4, -1, 1);
    submit();
    DONE(1, 4);
    CHECK(!memcmp(b, "4567", 4));
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), 8);
    next(IORING_OP_WRITE, fd, "!!", 2, -1, 2);
    submit();
    DONE(2, 2);
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), 10);
}
CASE(wrong_direction) {
    begin(4, 0);
    char b[4];
    int r = open("/proc/self/exe", O_RDONLY), w = open("/dev/null", O_WRONLY);
    next(IORING_OP_WRITE, r, b, 4, 0, 1);
    next(IORING_OP_READ, w, b, 4, 0, 2);
    submit();
    DONE(1, -EBADF);
    DONE(2, -EBADF);
}
CASE(registered_buffers) {
    begin(4, 0);
    int fd = file();
    static char b[64];
    struct iovec v = {b, sizeof b};
    CHECK_OK(reg(IORING_REGISTER_BUFFERS, &v, 1));
    CHECK_ERR(reg(IORING_REGISTER_BUFFERS, &v, 1), EBUSY);
    next(IORING_OP_READ_FIXED, fd, b + 8, 4, 2, 1);
    submit();
    DONE(1, 4);
    CHECK(!memcmp(b + 8, "2345", 4));
    next(IORING_OP_WRITE_FIXED, fd, b + 8, 4, 0, 2);
    submit();
    DONE(2, 4);
    next(IORING_OP_READ_FIXED, fd, b + 62, 4, 0, 3);
    submit();
    DONE(3, -EFAULT);
    next(IORING_OP_READ_FIXED, fd, b, 4, 0, 4)->buf_index = 1;
    submit();
    DONE(4, -EFAULT);
    CHECK_OK(reg(IORING_UNREGISTER_BUFFERS, NULL, 0));
    CHECK_ERR(reg(IORING_UNREGISTER_BUFFERS, NULL, 0), ENXIO);
}
CASE(registered_files) {
    begin(4, 0);
    int fds[3] = {file(), -1, file()};
    char b[4];
    CHECK_OK(reg(IORING_REGISTER_FILES, fds, 3));
    CHECK_ERR(reg(IORING_REGISTER_FILES, fds, 3), EBUSY);
    close(fds[0]);
    next(IORING_OP_READ, 0, b, 4, 0, 1)->flags = IOSQE_FIXED_FILE;
    submit();
    DONE(1, 4);
    next(IORING_OP_READ, 1, b, 4, 0, 2)->flags = IOSQE_FIXED_FILE;
    submit();
    DONE(2, -EBADF);
    next(IORING_OP_READ, 3, b, 4, 0, 3)->flags = IOSQE_FIXED_FILE;
    submit();
    DONE(3, -EBADF);
    struct io_uring_files_update u = {.offset = 1, .fds = (uintptr_t)&fds[2]};
    CHECK_EQ(reg(IORING_REGISTER_FILES_UPDATE, &u, 1), 1);
    next(IORING_OP_READ, 1, b, 4, 0, 4)->flags = IOSQE_FIXED_FILE;
    submit();
    DONE(4, 4);
    int none = -1;
    next(IORING_OP_FILES_UPDATE, -1, &none, 1, 1, 5);
    submit();
    DONE(5, 1);
    next(IORING_OP_READ, 1, b, 4, 0, 6)->flags = IOSQE_FIXED_FILE;
    submit();
    DONE(6, -EBADF);
    CHECK_OK(reg(IORING_UNREGISTER_FILES, NULL, 0));
    CHECK_ERR(reg(IORING_UNREGISTER_FILES, NULL, 0), ENXIO);
}
CASE(syncs) {
    begin(4, 0);
    int fd = file(), s[2];
    CHECK_OK(pipe(s));
    next(IORING_OP_FSYNC, fd, NULL, 0, 0, 1);
    submit();
    DONE(1, 0);
    next(IORING_OP_FSYNC, fd, NULL, 0, 0, 2)->fsync_flags = IORING_FSYNC_DATASYNC;
    submit();
    DONE(2, 0);
    next(IORING_OP_FSYNC, s[0], NULL, 0, 0, 3);
    submit();
    DONE(3, -EINVAL);
}
CASE(a_pipe_is_waited_for) {
    begin(4, 0);
    int s[2];
    char b[8] = "";
    CHECK_OK(pipe(s));
    next(IORING_OP_READ, s[0], b, 8, 0, 1);
    submit();
    CHECK(!ready());
    CHECK_EQ(write(s[1], "hello", 5), 5);
    DONE(1, 5);
    CHECK(!memcmp(b, "hello", 5));
    next(IORING_OP_READ, s[0], b, 8, 0, 2);
    submit();
    close(s[1]);
    DONE(2, 0);
}
CASE(o_nonblock_means_calls_alone) {
    begin(4, 0);
    int s[2];
    char b[8];
    CHECK_OK(pipe2(s, O_NONBLOCK));
    next(IORING_OP_READ, s[0], b, 8, 0, 1);
    submit();
    CHECK(!ready());
    CHECK_EQ(write(s[1], "x", 1), 1);
    DONE(1, 1);
}
CASE(a_closed_descriptor_is_still_waited_for) {
    begin(4, 0);
    int s[2];
    char b[8];
    CHECK_OK(pipe(s));
    next(IORING_OP_READ, s[0], b, 8, 0, 1);
    submit();
    close(s[0]);
    CHECK_EQ(write(s[1], "x", 1), 1);
    DONE(1, 1);
}
CASE(polls) {
    begin(8, 0);
    int s[2];
    CHECK_OK(pipe(s));
    next(IORING_OP_POLL_ADD, s[1], NULL, 0, 0, 1)->poll32_events = POLLOUT;
    submit();
    DONE(1, POLLOUT);
    next(IORING_OP_POLL_ADD, s[0], NULL, 0, 0, 2)->poll32_events = POLLIN;
    submit();
    CHECK(!ready());
    CHECK_EQ(write(s[1], "x", 1), 1);
    wait_cqe();
    CHECK_EQ(cqe.user_data, 2);
    CHECK(cqe.res & POLLIN);
    CHECK_EQ(cqe.flags & IORING_CQE_F_MORE, 0);
}
CASE(polls_tell_what_was_there) {
    begin(8, 0);
    int s[2];
    char b;
    CHECK_OK(pipe(s));
    next(IORING_OP_POLL_ADD, s[0], NULL, 0, 0, 2)->poll32_events = POLLIN;
    submit();
    CHECK_EQ(write(s[1], "x", 1), 1);
    CHECK_EQ(read(s[0], &b, 1), 1);
    wait_cqe();
    CHECK(cqe.user_data == 2 && cqe.res & POLLIN);
}
CASE(completions_come_without_a_call) {
    begin(8, 0);
    int s[2];
    char b[4];
    struct __kernel_timespec t = ms(20);
    CHECK_OK(pipe(s));
    next(IORING_OP_READ, s[0], b, 4, 0, 1);
    submit();
    CHECK_EQ(write(s[1], "x", 1), 1);
    while (!ready()) sched_yield();
    DONE(1, 1);
    next(IORING_OP_TIMEOUT, -1, &t, 1, 0, 2);
    submit();
    while (!ready()) sched_yield();
    DONE(2, -ETIME);
}
CASE(polls_that_go_on) {
    begin(8, 0);
    int s[2];
    char b[8];
    CHECK_OK(pipe(s));
    struct io_uring_sqe *q = next(IORING_OP_POLL_ADD, s[0], NULL, 0, 0, 2);
    q->poll32_events = POLLIN;
    q->len = IORING_POLL_ADD_MULTI;
    submit();
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(write(s[1], "x", 1), 1);
        wait_cqe();
        CHECK(cqe.res & POLLIN);
        CHECK(cqe.flags & IORING_CQE_F_MORE);
        CHECK_EQ(read(s[0], b, 8), 1);
    }
    next(IORING_OP_POLL_REMOVE, -1, (void *)2, 0, 0, 3);
    submit();
    bool gone = false, told = false;
    for (int i = 0; i < 2; i++) {
        wait_cqe();
        if (cqe.user_data == 2) gone = cqe.res == -ECANCELED;
        else told = cqe.user_data == 3 && cqe.res == 0;
    }
    CHECK(gone && told);
}
CASE(poll_removal) {
    begin(8, 0);
    int s[2];
    CHECK_OK(pipe(s));
    next(IORING_OP_POLL_REMOVE, -1, (void *)9, 0, 0, 1);
    submit();
    DONE(1, -ENOENT);
}
CASE(timeouts) {
    begin(4, 0);
    struct __kernel_timespec t = ms(30);
    int64_t b = now_us();
    next(IORING_OP_TIMEOUT, -1, &t, 1, 0, 1);
    submit();
    DONE(1, -ETIME);
    CHECK(now_us() - b >= 29000);
    next(IORING_OP_TIMEOUT, -1, &t, 2, 0, 2);
    submit();
    DONE(2, -EINVAL);
    next(IORING_OP_TIMEOUT, -1, (void *)8, 1, 0, 3);
    submit();
    DONE(3, -EFAULT);
}
CASE(timeouts_at_a_time) {
    begin(4, 0);
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    struct __kernel_timespec t = {now.tv_sec, now.tv_nsec};
    next(IORING_OP_TIMEOUT, -1, &t, 1, 0, 1)->timeout_flags = IORING_TIMEOUT_ABS;
    submit();
    DONE(1, -ETIME);
}
CASE(timeouts_by_count) {
    begin(8, 0);
    struct __kernel_timespec t = ms(20000);
    next(IORING_OP_TIMEOUT, -1, &t, 1, 2, 1);
    submit();
    next(IORING_OP_NOP, -1, NULL, 0, 0, 2);
    next(IORING_OP_NOP, -1, NULL, 0, 0, 3);
    submit();
    DONE(2, 0);
    DONE(3, 0);
    DONE(1, 0);
}
CASE(timeouts_removed_and_changed) {
    begin(8, 0);
    struct __kernel_timespec t = ms(20000), s = ms(10);
    next(IORING_OP_TIMEOUT, -1, &t, 1, 0, 1);
    submit();
    next(IORING_OP_TIMEOUT_REMOVE, -1, (void *)1, 0, (uintptr_t)&s, 2)->timeout_flags = IORING_TIMEOUT_UPDATE;
    submit();
    DONE(2, 0);
    DONE(1, -ETIME);
    next(IORING_OP_TIMEOUT, -1, &t, 1, 0, 3);
    submit();
    next(IORING_OP_TIMEOUT_REMOVE, -1, (void *)3, 0, 0, 4);
    submit();
    bool gone = false, told = false;
    for (int i = 0; i < 2; i++) {
        wait_cqe();
        if (cqe.user_data == 3) gone = cqe.res == -ECANCELED;
        else told = cqe.user_data == 4 && cqe.res == 0;
    }
    CHECK(gone && told);
    next(IORING_OP_TIMEOUT_REMOVE, -1, (void *)3, 0, 0, 5);
    submit();
    DONE(5, -ENOENT);
}
CASE(waits_with_a_timeout) {
    begin(4, 0);
    struct __kernel_timespec t = ms(30);
    struct io_uring_getevents_arg arg = {.ts = (uintptr_t)&t};
    int64_t b = now_us();
    CHECK_ERR(syscall(SYS_io_uring_enter, ring, 0, 1, IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG, &arg, sizeof arg), ETIME);
    CHECK(now_us() - b >= 29000);
    CHECK_ERR(syscall(SYS_io_uring_enter, ring, 0, 1, IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG, &arg, 8), EINVAL);
}
static void nothing(int s) { (void)s; }
CASE(waits_are_interrupted) {
    begin(4, 0);
    struct sigaction sa = {.sa_handler = nothing, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &sa, NULL);
    struct itimerval it = {{0, 0}, {0, 50000}};
    setitimer(ITIMER_REAL, &it, NULL);
    CHECK_ERR(enter(0, 1), EINTR);
}
CASE(links) {
    begin(8, 0);
    int s[2];
    char b[8];
    CHECK_OK(pipe(s));
    next(IORING_OP_READ, s[0], b, 3, 0, 1)->flags = IOSQE_IO_LINK;
    next(IORING_OP_NOP, -1, NULL, 0, 0, 2);
    next(IORING_OP_NOP, -1, NULL, 0, 0, 3);
    submit();
    DONE(3, 0);
    CHECK(!ready());
    CHECK_EQ(write(s[1], "abc", 3), 3);
    DONE(1, 3);
    DONE(2, 0);
}
CASE(links_that_break) {
    begin(8, 0);
    char b[8];
    int fd = file();
    next(IORING_OP_READ, fd, b, 8, 12, 1)->flags = IOSQE_IO_LINK;
    next(IORING_OP_NOP, -1, NULL, 0, 0, 2)->flags = IOSQE_IO_LINK;
    next(IORING_OP_NOP, -1, NULL, 0, 0, 3);
    submit();
    DONE(1, 4);
    DONE(2, -ECANCELED);
    DONE(3, -ECANCELED);
}
CASE(hard_links_do_not_break) {
    begin(8, 0);
    next(IORING_OP_READ, 999, NULL, 8, 0, 1)->flags = IOSQE_IO_HARDLINK;
    next(IORING_OP_NOP, -1, NULL, 0, 0, 2);
    submit();
    DONE(1, -EBADF);
    DONE(2, 0);
}
CASE(a_bad_request_in_a_chain) {
    begin(8, IORING_SETUP_SUBMIT_ALL);
    next(IORING_OP_NOP, -1, NULL, 0, 0, 1)->flags = IOSQE_IO_LINK;
    next(200, -1, NULL, 0, 0, 2);
    submit();
    DONE(1, -ECANCELED);
    DONE(2, -EINVAL);
}
CASE(link_timeouts) {
    begin(8, 0);
    int s[2];
    char b[8];
    struct __kernel_timespec t = ms(30), longer = ms(20000);
    CHECK_OK(pipe(s));
    next(IORING_OP_READ, s[0], b, 3, 0, 1)->flags = IOSQE_IO_LINK;
    next(IORING_OP_LINK_TIMEOUT, -1, &t, 1, 0, 2);
    submit();
    bool a = false, c = false;
    for (int i = 0; i < 2; i++) {
        wait_cqe();
        if (cqe.user_data == 1) a = cqe.res == -ECANCELED;
        else c = cqe.user_data == 2 && cqe.res == -ETIME;
    }
    CHECK(a && c);
    CHECK_EQ(write(s[1], "abc", 3), 3);
    next(IORING_OP_READ, s[0], b, 3, 0, 3)->flags = IOSQE_IO_LINK;
    next(IORING_OP_LINK_TIMEOUT, -1, &longer, 1, 0, 4);
    submit();
    a = c = false;
    for (int i = 0; i < 2; i++) {
        wait_cqe();
        if (cqe.user_data == 3) a = cqe.res == 3;
        else c = cqe.user_data == 4 && cqe.res == -ECANCELED;
    }
    CHECK(a && c);
    next(IORING_OP_LINK_TIMEOUT, -1, &t, 1, 0, 5);
    submit();
    DONE(5, -EINVAL);
}
CASE(drain) {
    begin(8, 0);
    int s[2];
    char b[8];
    CHECK_OK(pipe(s));
    next(IORING_OP_READ, s[0], b, 8, 0, 1);
    next(IORING_OP_NOP, -1, NULL, 0, 0, 2)->flags = IOSQE_IO_DRAIN;
    next(IORING_OP_NOP, -1, NULL, 0, 0, 3);
    submit();
    CHECK(!ready());
    CHECK_EQ(write(s[1], "x", 1), 1);
    DONE(1, 1);
    DONE(2, 0);
    DONE(3, 0);
}
CASE(success_that_is_not_told) {
    begin(8, 0);
    next(IORING_OP_NOP, -1, NULL, 0, 0, 1)->flags = IOSQE_CQE_SKIP_SUCCESS;
    next(IORING_OP_NOP, -1, NULL, 0, 0, 2);
    submit();
    DONE(2, 0);
    next(IORING_OP_READ, 999, NULL, 8, 0, 3)->flags = IOSQE_CQE_SKIP_SUCCESS;
    submit();
    DONE(3, -EBADF);
}
CASE(cancel) {
    begin(8, 0);
    int s[2];
    char b[8];
    CHECK_OK(pipe(s));
    next(IORING_OP_ASYNC_CANCEL, -1, (void *)1, 0, 0, 2);
    submit();
    DONE(2, -ENOENT);
    next(IORING_OP_READ, s[0], b, 8, 0, 1);
    submit();
    next(IORING_OP_ASYNC_CANCEL, -1, (void *)1, 0, 0, 2);
    submit();
    bool a = false, c = false;
    for (int i = 0; i < 2; i++) {
        wait_cqe();
        if (cqe.user_data == 1) a = cqe.res == -ECANCELED || cqe.res == -EINTR;
        else c = cqe.user_data == 2 && cqe.res == 0;
    }
    CHECK(a && c);
}
CASE(cancel_all_of_a_file) {
    begin(8, 0);
    int s[2];
    CHECK_OK(pipe(s));
    for (int i = 0; i < 3; i++) next(IORING_OP_POLL_ADD, s[0], NULL, 0, 0, 10 + i)->poll32_events = POLLIN;
    submit();
    next(IORING_OP_ASYNC_CANCEL, s[0], NULL, 0, 0, 2)->cancel_flags = IORING_ASYNC_CANCEL_FD | IORING_ASYNC_CANCEL_ALL;
    submit();
    int gone = 0, told = -1;
    for (int i = 0; i < 4; i++) {
        wait_cqe();
        if (cqe.user_data == 2) told = cqe.res;
        else gone += cqe.res == -ECANCELED;
    }
    CHECK_EQ(gone, 3);
    CHECK_EQ(told, 3);
}
CASE(completions_beyond_the_ring) {
    begin(4, 0);
    for (int r = 0; r < 4; r++) {
        for (int i = 0; i < 4; i++) next(IORING_OP_NOP, -1, NULL, 0, 0, r * 4 + i);
        submit();
    }
    CHECK(*sq_flags & IORING_SQ_CQ_OVERFLOW);
    CHECK_EQ(*cq_overflow, 0);
    for (int i = 0; i < 8; i++) DONE(i, 0);
    CHECK_EQ(enter(0, 1), 0);
    for (int i = 8; i < 16; i++) DONE(i, 0);
    CHECK(!(*sq_flags & IORING_SQ_CQ_OVERFLOW));
}
CASE(the_ring_is_polled) {
    begin(4, 0);
    int s[2];
    char b[4];
    CHECK_OK(pipe(s));
    struct pollfd f = {ring, POLLIN | POLLOUT, 0};
    CHECK_EQ(poll(&f, 1, 0), 1);
    CHECK_EQ(f.revents, POLLOUT);
    next(IORING_OP_NOP, -1, NULL, 0, 0, 1);
    submit();
    CHECK_EQ(poll(&f, 1, 5000), 1);
    CHECK(f.revents & POLLIN);
    take();
    f.events = POLLIN;
    CHECK_EQ(poll(&f, 1, 0), 0);
    int e = epoll_create1(0);
    struct epoll_event ev = {.events = EPOLLIN};
    CHECK_OK(epoll_ctl(e, EPOLL_CTL_ADD, ring, &ev));
    CHECK_EQ(epoll_wait(e, &ev, 1, 0), 0);
    next(IORING_OP_READ, s[0], b, 4, 0, 2);
    submit();
    pid_t c = SPAWN(msleep(30); CHECK_EQ(write(s[1], "x", 1), 1));
    int n;
    // What the kernel does for the ring may interrupt it.
    do n = epoll_wait(e, &ev, 1, 5000);
    while (n < 0 && errno == EINTR);
    CHECK_EQ(n, 1);
    DONE(2, 1);
    join(c);
}
CASE(a_ring_in_a_ring) {
    begin(4, 0);
    int other = ring;
    begin(4, 0);
    next(IORING_OP_POLL_ADD, other, NULL, 0, 0, 5)->poll32_events = POLLIN;
    next(IORING_OP_POLL_ADD, ring, NULL, 0, 0, 6)->poll32_events = POLLIN;
    submit();
    next(IORING_OP_NOP, -1, NULL, 0, 0, 7);
    submit();
    DONE(7, 0);
    wait_cqe();
    CHECK_EQ(cqe.user_data, 6);
}
CASE(event_counter) {
    begin(4, 0);
    int e = eventfd(0, EFD_NONBLOCK), s[2];
    uint64_t n = 0;
    char b[4];
    CHECK_OK(pipe(s));
    CHECK_ERR(reg(IORING_UNREGISTER_EVENTFD, NULL, 0), ENXIO);
    CHECK_OK(reg(IORING_REGISTER_EVENTFD, &e, 1));
    CHECK_ERR(reg(IORING_REGISTER_EVENTFD, &e, 1), EBUSY);
    next(IORING_OP_NOP, -1, NULL, 0, 0, 1);
    submit();
    CHECK_EQ(read(e, &n, 8), 8);
    take();
    next(IORING_OP_READ, s[0], b, 4, 0, 2);
    submit();
    CHECK_ERR(read(e, &n, 8), EAGAIN);
    CHECK_EQ(write(s[1], "x", 1), 1);
    struct pollfd f = {e, POLLIN, 0};
    CHECK_EQ(poll(&f, 1, 5000), 1);
    DONE(2, 1);
    CHECK_OK(reg(IORING_UNREGISTER_EVENTFD, NULL, 0));
}
CASE(probe) {
    begin(4, 0);
    static struct { struct io_uring_probe p; struct io_uring_probe_op ops[256]; } q;
    CHECK_OK(reg(IORING_REGISTER_PROBE, &q, 256));
    CHECK(q.p.last_op >= IORING_OP_SHUTDOWN);
    CHECK(q.p.ops[IORING_OP_READ].flags & IO_URING_OP_SUPPORTED);
    CHECK_EQ(q.p.ops[IORING_OP_READ].op, IORING_OP_READ);
    CHECK_ERR(reg(IORING_REGISTER_PROBE, &q, 1), EINVAL);
}
CASE(register_edges) {
    begin(4, 0);
    CHECK_ERR(reg(200, NULL, 0), EINVAL);
    CHECK_ERR(syscall(SYS_io_uring_register, 0, IORING_REGISTER_BUFFERS, &p, 1), EOPNOTSUPP);
    CHECK_ERR(syscall(SYS_io_uring_register, -1, IORING_REGISTER_BUFFERS, &p, 1), EINVAL);
    int bad = 999;
    CHECK_ERR(reg(IORING_REGISTER_FILES, &bad, 1), EBADF);
    CHECK_ERR(reg(IORING_REGISTER_EVENTFD, &bad, 1), EBADF);
    CHECK_ERR(reg(IORING_REGISTER_FILES_UPDATE, &p, 1), EINVAL);
}
CASE(disabled) {
    begin(4, IORING_SETUP_R_DISABLED);
    next(IORING_OP_NOP, -1, NULL, 0, 0, 1);
    CHECK_ERR(enter(1, 0), EBADFD);
    CHECK_OK(reg(IORING_REGISTER_ENABLE_RINGS, NULL, 0));
    CHECK_ERR(reg(IORING_REGISTER_ENABLE_RINGS, NULL, 0), EBADFD);
    submit();
    DONE(1, 0);
}
CASE(a_thread_of_the_kernel_submits) {
    begin(4, IORING_SETUP_SQPOLL);
    next(IORING_OP_NOP, -1, NULL, 0, 0, 1);
    while (!ready()) {
        __sync_synchronize();
        if (*(volatile unsigned *)sq_flags & IORING_SQ_NEED_WAKEUP)
            CHECK_OK(syscall(SYS_io_uring_enter, ring, 1, 0, IORING_ENTER_SQ_WAKEUP, NULL, 0));
        sched_yield();
    }
    DONE(1, 0);
}
CASE(names) {
    begin(8, 0);
    char dir[] = "/tmp/uringXXXXXX", a[64], b[64];
    CHECK(mkdtemp(dir));
    sprintf(a, "%s/a", dir), sprintf(b, "%s/b", dir);
    struct io_uring_sqe *q = next(IORING_OP_OPENAT, AT_FDCWD, a, 0600, 0, 1);
    q->open_flags = O_CREAT | O_RDWR;
    submit();
    wait_cqe();
    CHECK(cqe.res >= 0);
    int fd = cqe.res;
    next(IORING_OP_FALLOCATE, fd, (void *)100, 0, 0, 2);
    submit();
    DONE(2, 0);
    struct statx st;
    next(IORING_OP_STATX, AT_FDCWD, a, STATX_SIZE, (uintptr_t)&st, 3);
    submit();
    DONE(3, 0);
    CHECK_EQ(st.stx_size, 100);
    next(IORING_OP_RENAMEAT, AT_FDCWD, a, AT_FDCWD, (uintptr_t)b, 4);
    submit();
    DONE(4, 0);
    next(IORING_OP_LINKAT, AT_FDCWD, b, AT_FDCWD, (uintptr_t)a, 5);
    submit();
    DONE(5, 0);
    next(IORING_OP_UNLINKAT, AT_FDCWD, a, 0, 0, 6);
    next(IORING_OP_UNLINKAT, AT_FDCWD, b, 0, 0, 7);
    next(IORING_OP_UNLINKAT, AT_FDCWD, b, 0, 0, 8);
    submit();
    DONE(6, 0);
    DONE(7, 0);
    DONE(8, -ENOENT);
    next(IORING_OP_MKDIRAT, AT_FDCWD, a, 0700, 0, 9);
    submit();
    DONE(9, 0);
    next(IORING_OP_UNLINKAT, AT_FDCWD, a, 0, 0, 10)->unlink_flags = AT_REMOVEDIR;
    submit();
    DONE(10, 0);
    next(IORING_OP_CLOSE, fd, NULL, 0, 0, 11);
    submit();
    DONE(11, 0);
    CHECK_ERR(fcntl(fd, F_GETFD), EBADF);
    rmdir(dir);
}
static int listener(struct sockaddr_in *at) {
    int l = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t n = sizeof *at;
    *at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    CHECK_OK(bind(l, (void *)at, n));
    CHECK_OK(listen(l, 8));
    CHECK_OK(getsockname(l, (void *)at, &n));
    return l;
}
CASE(sockets) {
    begin(8, 0);
    struct sockaddr_in at, from;
    socklen_t n = sizeof from;
    char b[16] = "";
    int l = listener(&at);
    next(IORING_OP_ACCEPT, l, &from, 0, (uintptr_t)&n, 1);
    submit();
    CHECK(!ready());
    int c = socket(AF_INET, SOCK_STREAM, 0);
    next(IORING_OP_CONNECT, c, &at, 0, sizeof at, 2);
    submit();
    int fd = -1, connected = -1;
    for (int i = 0; i < 2; i++) {
        wait_cqe();
        if (cqe.user_data == 1) fd = cqe.res;
        else connected = cqe.res;
    }
    CHECK(fd >= 0);
    CHECK_EQ(connected, 0);
    CHECK_EQ(from.sin_family, AF_INET);
    next(IORING_OP_RECV, fd, b, 16, 0, 3);
    submit();
    CHECK(!ready());
    next(IORING_OP_SEND, c, "hello", 5, 0, 4);
    submit();
    int sent = -1, got = -1;
    for (int i = 0; i < 2; i++) {
        wait_cqe();
        if (cqe.user_data == 3) got = cqe.res;
        else sent = cqe.res;
    }
    CHECK_EQ(sent, 5);
    CHECK_EQ(got, 5);
    CHECK(!memcmp(b, "hello", 5));
    struct iovec v = {b, 16};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
    next(IORING_OP_RECVMSG, fd, &m, 1, 0, 5)->msg_flags = MSG_DONTWAIT;
    submit();
    DONE(5, -EAGAIN);
    next(IORING_OP_SHUTDOWN, c, NULL, SHUT_WR, 0, 6);
    submit();
    DONE(6, 0);
    next(IORING_OP_RECVMSG, fd, &m, 1, 0, 7);
    submit();
    DONE(7, 0);
}
CASE(a_connection_that_is_refused) {
    begin(8, 0);
    struct sockaddr_in at;
    close(listener(&at));
    int c = socket(AF_INET, SOCK_STREAM, 0);
    next(IORING_OP_CONNECT, c, &at, 0, sizeof at, 1);
    submit();
    DONE(1, -ECONNREFUSED);
    next(IORING_OP_SEND, 0, "x", 1, 0, 2);
    submit();
    wait_cqe();
    CHECK(cqe.res == -ENOTSOCK);
}
CASE(accepts_that_go_on) {
    begin(8, 0);
    struct sockaddr_in at;
    int l = listener(&at);
    next(IORING_OP_ACCEPT, l, NULL, 0, 0, 1)->ioprio = IORING_ACCEPT_MULTISHOT;
    submit();
    for (int i = 0; i < 3; i++) {
        int c = socket(AF_INET, SOCK_STREAM, 0);
        CHECK_OK(connect(c, (void *)&at, sizeof at));
        wait_cqe();
        CHECK(cqe.res >= 0);
        CHECK(cqe.flags & IORING_CQE_F_MORE);
    }
}
CASE(buffers_that_are_chosen) {
    begin(8, 0);
    int s[2];
    static char b[4][16];
    CHECK_OK(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
    struct io_uring_sqe *q = next(IORING_OP_RECV, s[0], NULL, 16, 0, 1);
    q->flags = IOSQE_BUFFER_SELECT;
    q->buf_group = 3;
    CHECK_EQ(write(s[1], "no", 2), 2);
    submit();
    DONE(1, -ENOBUFS);
    next(IORING_OP_PROVIDE_BUFFERS, 4, b, 16, 7, 2)->buf_group = 3;
    submit();
    DONE(2, 0);
    q = next(IORING_OP_RECV, s[0], NULL, 16, 0, 3);
    q->flags = IOSQE_BUFFER_SELECT;
    q->buf_group = 3;
    submit();
    DONE(3, 2);
    CHECK(cqe.flags & IORING_CQE_F_BUFFER);
    unsigned id = cqe.flags >> IORING_CQE_BUFFER_SHIFT;
    CHECK(id >= 7 && id < 11);
    CHECK(!memcmp(b[id - 7], "no", 2));
    // Of a vector only the length counts, and there is one.
    struct iovec v = {NULL, 5};
    CHECK_EQ(write(s[1], "12345678", 8), 8);
    for (int n = 2; n >= 1; n--) {
        q = next(IORING_OP_READV, s[0], &v, n, -1, 5);
        q->flags = IOSQE_BUFFER_SELECT;
        q->buf_group = 3;
        submit();
        DONE(5, n == 2 ? -EINVAL : 5);
    }
    id = cqe.flags >> IORING_CQE_BUFFER_SHIFT;
    CHECK(cqe.flags & IORING_CQE_F_BUFFER && id >= 7 && id < 11 && !memcmp(b[id - 7], "12345", 5));
    next(IORING_OP_REMOVE_BUFFERS, 9, NULL, 0, 0, 4)->buf_group = 3;
    submit();
    DONE(4, 2);
}
CASE(messages_between_rings) {
    begin(4, 0);
    int other = ring;
    unsigned *head = cq_head, *tail = cq_tail, *mask = cq_mask;
    struct io_uring_cqe *list = cqes;
    begin(4, 0);
    next(IORING_OP_MSG_RING, other, NULL, 77, 0x55, 1);
    submit();
    DONE(1, 0);
    for (int i = 0; i < 5000 && *head == __atomic_load_n(tail, __ATOMIC_ACQUIRE); i++) usleep(1000);
    CHECK_EQ(list[*head & *mask].user_data, 0x55);
    CHECK_EQ(list[*head & *mask].res, 77);
}
CASE(ends_with_requests_under_way) {
    int s[2];
    CHECK_OK(pipe(s));
    pid_t c = SPAWN(begin(4, 0); static char b[8]; next(IORING_OP_READ, s[0], b, 8, 0, 1); submit(); close(s[1]));
    CHECK_EQ(join(c), 0);
    c = SPAWN(begin(4, 0); static char b[8]; next(IORING_OP_READ, s[0], b, 8, 0, 1); submit(); close(ring);
              CHECK_EQ(write(s[1], "x", 1), 1); execl("/bin/true", "true", NULL); _exit(9));
    CHECK_EQ(join(c), 0);
}
static void *reads_too(void *x) {
    int *s = x;
    long n = 0;
    char b;
    while (read(s[0], &b, 1) == 1 && b != 'q') n++;
    return (void *)n;
}
CASE(others_take_what_it_waits_for) {
    begin(8, 0);
    int s[2], r[2];
    char b, stop = 0;
    long got = 0;
    CHECK_OK(pipe(s));
    CHECK_OK(pipe(r));
    pthread_t t;
    CHECK_EQ(pthread_create(&t, NULL, reads_too, s), 0);
    next(IORING_OP_READ, s[0], &b, 1, 0, 1);
    submit();
    for (int i = 0; i < 3000; i++) {
        CHECK_EQ(write(s[1], "x", 1), 1);
        // Another request of the ring gets through all the while.
        next(IORING_OP_NOP, -1, NULL, 0, 0, 2);
        submit();
        for (bool nop = false; !nop;) {
            wait_cqe();
            nop = cqe.user_data == 2;
            if (nop) continue;
            CHECK_EQ(cqe.res, 1);
            got++;
            next(IORING_OP_READ, s[0], &b, 1, 0, 1);
            submit();
        }
    }
    next(IORING_OP_ASYNC_CANCEL, -1, (void *)1, 0, 0, 3);
    submit();
    (void)stop;
    for (bool over = false; !over;) {
        wait_cqe();
        if (cqe.user_data == 1 && cqe.res == 1) got++;
        over = cqe.user_data == 3;
    }
    CHECK_EQ(write(s[1], "q", 1), 1);
    void *n;
    pthread_join(t, &n);
    CHECK(got + (long)n <= 3000 && got + (long)n >= 2999);
}
static void *writes(void *fd) {
    for (int i = 0; i < 200; i++) {
        if (i % 20 == 0) usleep(1000);
        if (write(*(int *)fd, "x", 1) != 1) return fd;
    }
    return NULL;
}
CASE(a_thread_feeds_another) {
    begin(8, 0);
    int s[2];
    char b;
    CHECK_OK(pipe(s));
    pthread_t t;
    CHECK_EQ(pthread_create(&t, NULL, writes, &s[1]), 0);
    for (int i = 0; i < 200; i++) {
        next(IORING_OP_READ, s[0], &b, 1, 0, i);
        submit();
        DONE(i, 1);
    }
    void *r;
    pthread_join(t, &r);
    CHECK(r == NULL);
}
