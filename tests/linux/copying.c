// splice, tee, vmsplice, sendfile and copy_file_range: offsets, overlaps, ends of files, blocking, refusals.
#include "t.h"
#include <sys/ioctl.h>
#include <sys/sendfile.h>

static int p[2], q[2];
static char buf[1 << 17] __attribute__((aligned(4096)));
static void pipes(void) { CHECK(pipe(p) == 0 && pipe(q) == 0); }
static void nop(int s, siginfo_t *si, void *u) { (void)s, (void)si, (void)u; }
static int pending(int fd) {
    int n = -1;
    CHECK(ioctl(fd, 0x541b, &n) == 0);
    return n;
}
CASE(copy_range_moves_both_offsets) {
    scratch();
    int a = mkfile("a", "0123456789"), b = mkfile("b", "");
    off_t in = 2, out = 5;
    CHECK_EQ(copy_file_range(a, &in, b, &out, 4, 0), 4);
    CHECK(in == 6 && out == 9);
    CHECK(lseek(a, 0, SEEK_CUR) == 0 && lseek(b, 0, SEEK_CUR) == 0);
    CHECK_EQ(pread(b, buf, 20, 0), 9);
    CHECK(!memcmp(buf, "\0\0\0\0\0" "2345", 9));
}
CASE(copy_range_uses_file_positions) {
    scratch();
    int a = mkfile("a", "0123456789"), b = mkfile("b", "");
    lseek(a, 7, SEEK_SET);
    CHECK_EQ(copy_file_range(a, NULL, b, NULL, 100, 0), 3);
    CHECK(lseek(a, 0, SEEK_CUR) == 10 && lseek(b, 0, SEEK_CUR) == 3);
    CHECK_EQ(copy_file_range(a, NULL, b, NULL, 100, 0), 0);  // at the end
}
CASE(copy_range_overlap_in_one_file) {
    scratch();
    int a = mkfile("a", "0123456789");
    off_t in = 0, out = 5;
    CHECK_ERR(copy_file_range(a, &in, a, &out, 6, 0), EINVAL);
    CHECK_EQ(copy_file_range(a, &in, a, &out, 5, 0), 5);
    CHECK(!strcmp(slurp("a"), "0123401234"));
    int again = open("a", O_RDWR);  // another open file, the same inode
    in = 3, out = 1;
    CHECK_ERR(copy_file_range(a, &in, again, &out, 4, 0), EINVAL);
}
CASE(copy_range_overlap_counts_only_what_exists) {
    scratch();
    int a = mkfile("a", "0123456789");
    off_t in = 5, out = 10;
    CHECK_EQ(copy_file_range(a, &in, a, &out, 1000, 0), 5);  // only five bytes are there to copy
    CHECK(!strcmp(slurp("a"), "012345678956789"));
}
CASE(copy_range_refusals) {
    scratch();
    int a = mkfile("a", "x"), b = mkfile("b", ""), r = open("b", O_RDONLY), ap = open("b", O_WRONLY | O_APPEND), d = open(".", O_RDONLY);
    pipes();
    CHECK_ERR(copy_file_range(a, NULL, r, NULL, 1, 0), EBADF);
    CHECK_ERR(copy_file_range(a, NULL, ap, NULL, 1, 0), EBADF);
    CHECK_ERR(copy_file_range(ap, NULL, a, NULL, 1, 0), EBADF);
    CHECK_ERR(copy_file_range(d, NULL, b, NULL, 1, 0), EISDIR);
    CHECK_ERR(copy_file_range(p[0], NULL, b, NULL, 1, 0), EINVAL);
    CHECK_ERR(copy_file_range(a, NULL, b, NULL, 1, 4), EINVAL);
    CHECK_ERR(copy_file_range(a, NULL, 999, NULL, 1, 0), EBADF);
    CHECK_ERR(copy_file_range(a, BAD, b, NULL, 1, 0), EFAULT);
    CHECK_EQ(copy_file_range(a, NULL, b, NULL, 0, 0), 0);
}
CASE(copy_range_large_keeps_bytes) {
    scratch();
    int a = mkfile("a", ""), b = mkfile("b", "");
    for (int i = 0; i < 300000; i++) buf[i % 1000] = i, (i % 1000 == 999) && write(a, buf, 1000);
    off_t in = 0;
    long done = 0, n;
    while ((n = copy_file_range(a, &in, b, NULL, 1 << 20, 0)) > 0) done += n;
    CHECK_EQ(done, 300000);
    char *x = mmap(NULL, 300000, PROT_READ, MAP_SHARED, a, 0), *y = mmap(NULL, 300000, PROT_READ, MAP_SHARED, b, 0);
    CHECK(!memcmp(x, y, 300000));
}
CASE(copy_range_respects_fsize_limit) {
    scratch();
    int a = mkfile("a", "0123456789"), b = mkfile("b", "");
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit { unsigned long c, m; } l = {4, 4};
    CHECK(syscall(SYS_setrlimit, 1, &l) == 0);
    CHECK_EQ(copy_file_range(a, NULL, b, NULL, 10, 0), 4);
    CHECK_ERR(copy_file_range(a, NULL, b, NULL, 10, 0), EFBIG);
}
CASE(sendfile_with_offset_keeps_position) {
    scratch();
    pipes();
    int a = mkfile("a", "0123456789");
    off_t at = 8;
    CHECK_EQ(sendfile(p[1], a, &at, 100), 2);
    CHECK(at == 10 && lseek(a, 0, SEEK_CUR) == 0);
    CHECK_EQ(sendfile(p[1], a, &at, 100), 0);
    at = 50;
    CHECK_EQ(sendfile(p[1], a, &at, 100), 0);  // past the end
    CHECK_EQ(pending(p[0]), 2);
}
CASE(sendfile_between_files_appends_nothing) {
    scratch();
    int a = mkfile("a", "abc"), b = mkfile("b", "123456");
    lseek(b, 2, SEEK_SET);
    CHECK_EQ(sendfile(b, a, NULL, 3), 3);
    CHECK(!strcmp(slurp("b"), "12abc6"));
    CHECK_ERR(sendfile(open("b", O_WRONLY | O_APPEND), a, NULL, 3), EINVAL);
}
CASE(sendfile_refusals) {
    scratch();
    pipes();
    int a = mkfile("a", "abc");
    CHECK_ERR(sendfile(p[0], a, NULL, 1), EBADF);
    CHECK_ERR(sendfile(p[1], open("a", O_WRONLY), NULL, 1), EBADF);
    off_t neg = -5;
    CHECK_ERR(sendfile(p[1], a, &neg, 1), EINVAL);
    CHECK_ERR(syscall(SYS_sendfile, p[1], a, BAD, 1), EFAULT);
}
CASE(sendfile_fills_nonblocking_pipe_partly) {
    scratch();
    pipes();
    int a = mkfile("a", "");
    CHECK(write(a, buf, sizeof buf) == sizeof buf);
    lseek(a, 0, SEEK_SET);
    fcntl(p[1], F_SETFL, O_NONBLOCK);
    CHECK_EQ(sendfile(p[1], a, NULL, sizeof buf), 65536);
    CHECK_EQ(lseek(a, 0, SEEK_CUR), 65536);
    CHECK_ERR(sendfile(p[1], a, NULL, 1), EAGAIN);
}
CASE(splice_file_to_pipe_offset) {
    scratch();
    pipes();
    int a = mkfile("a", "0123456789");
    loff_t at = 4;
    CHECK_EQ(splice(a, &at, p[1], NULL, 3, 0), 3);
    CHECK(at == 7 && lseek(a, 0, SEEK_CUR) == 0);
    CHECK(read(p[0], buf, 9) == 3 && !memcmp(buf, "456", 3));
    CHECK_EQ(splice(a, NULL, p[1], NULL, 100, 0), 10);
    CHECK_EQ(lseek(a, 0, SEEK_CUR), 10);
    CHECK_EQ(splice(a, NULL, p[1], NULL, 100, 0), 0);
}
CASE(splice_pipe_to_file_offset) {
    scratch();
    pipes();
    int a = mkfile("a", "----------");
    CHECK(write(p[1], "abc", 3) == 3);
    loff_t at = 3;
    CHECK_EQ(splice(p[0], NULL, a, &at, 100, 0), 3);
    CHECK(at == 6 && !strcmp(slurp("a"), "---abc----"));
    CHECK_ERR(splice(p[0], NULL, open("a", O_WRONLY | O_APPEND), NULL, 1, SPLICE_F_NONBLOCK), EINVAL);
}
CASE(splice_pipe_to_pipe) {
    pipes();
    CHECK(write(p[1], "hello", 5) == 5);
    CHECK_EQ(splice(p[0], NULL, q[1], NULL, 3, 0), 3);
    CHECK(pending(p[0]) == 2 && pending(q[0]) == 3);
    CHECK_ERR(splice(p[0], NULL, p[1], NULL, 1, 0), EINVAL);
}
CASE(splice_empty_pipe) {
    pipes();
    CHECK_ERR(splice(p[0], NULL, q[1], NULL, 3, SPLICE_F_NONBLOCK), EAGAIN);
    close(p[1]);
    CHECK_EQ(splice(p[0], NULL, q[1], NULL, 3, 0), 0);
}
CASE(splice_argument_errors) {
    scratch();
    pipes();
    int a = mkfile("a", "x"), b = mkfile("b", "x");
    loff_t at = 0;
    CHECK_ERR(splice(a, NULL, b, NULL, 1, 0), EINVAL);
    CHECK_ERR(splice(p[0], &at, b, NULL, 1, 0), ESPIPE);
    CHECK_ERR(splice(a, NULL, p[1], &at, 1, 0), ESPIPE);
    CHECK_ERR(splice(a, NULL, p[1], NULL, 1, 0x100), EINVAL);
    CHECK_ERR(splice(a, NULL, p[0], NULL, 1, 0), EBADF);
    CHECK_ERR(splice(p[1], NULL, a, NULL, 1, 0), EBADF);
    CHECK_EQ(splice(999, NULL, 998, NULL, 0, 0), 0);  // nothing asked, nothing looked at
    CHECK_ERR(splice(open(".", O_RDONLY), NULL, p[1], NULL, 1, 0), EINVAL);
}
CASE(splice_blocked_is_interrupted) {
    pipes();
    on_signal(SIGALRM, nop, 0);
    ualarm(200000, 200000);
    CHECK_ERR(splice(p[0], NULL, q[1], NULL, 1, 0), EINTR);
}
CASE(splice_gives_sigpipe) {
    pipes();
    signal(SIGPIPE, SIG_IGN);
    CHECK(write(p[1], "x", 1) == 1);
    close(q[0]);
    CHECK_ERR(splice(p[0], NULL, q[1], NULL, 1, 0), EPIPE);
    CHECK_EQ(pending(p[0]), 1);
}
CASE(splice_to_dev_null_and_from_zero) {
    pipes();
    int n = open("/dev/null", O_WRONLY), z = open("/dev/zero", O_RDONLY);
    CHECK_EQ(splice(z, NULL, p[1], NULL, 4096, 0), 4096);
    CHECK_EQ(splice(p[0], NULL, n, NULL, 4096, 0), 4096);
    CHECK_EQ(pending(p[0]), 0);
}
CASE(tee_leaves_the_source) {
    pipes();
    CHECK(write(p[1], "abcdef", 6) == 6);
    CHECK_EQ(tee(p[0], q[1], 4, 0), 4);
    CHECK(pending(p[0]) == 6 && pending(q[0]) == 4);
    CHECK_EQ(tee(p[0], q[1], 100, 0), 6);  // from the start again
    CHECK(read(q[0], buf, 100) == 10 && !memcmp(buf, "abcdabcdef", 10));
}
CASE(tee_errors) {
    scratch();
    pipes();
    int a = mkfile("a", "x");
    CHECK_ERR(tee(p[0], q[1], 1, SPLICE_F_NONBLOCK), EAGAIN);
    CHECK_ERR(tee(a, q[1], 1, 0), EINVAL);
    CHECK_ERR(tee(p[0], p[1], 1, 0), EINVAL);
    CHECK_ERR(tee(p[1], q[1], 1, 0), EBADF);
    CHECK_EQ(tee(p[0], q[1], 0, 0), 0);
    close(p[1]);
    CHECK_EQ(tee(p[0], q[1], 1, 0), 0);
}
CASE(vmsplice_gathers_and_scatters) {
    pipes();
    char a[4] = "abcd", b[4] = {0};
    struct iovec v[2] = {{a, 2}, {a + 3, 1}}, w[2] = {{b, 1}, {b + 2, 2}};
    CHECK_EQ(vmsplice(p[1], v, 2, 0), 3);
    CHECK_EQ(vmsplice(p[0], w, 2, 0), 3);
    CHECK(b[0] == 'a' && b[1] == 0 && b[2] == 'b' && b[3] == 'd');
}
CASE(vmsplice_errors) {
    scratch();
    pipes();
    char c;
    struct iovec v = {&c, 1}, bad = {BAD, 10};
    CHECK_ERR(vmsplice(mkfile("f", ""), &v, 1, 0), EBADF);
    CHECK_ERR(vmsplice(p[1], &v, 1, 0x80), EINVAL);
    CHECK_ERR(vmsplice(p[1], &v, 2000, 0), EINVAL);
    CHECK_ERR(vmsplice(p[1], &bad, 1, 0), EFAULT);
    CHECK_ERR(vmsplice(p[0], &v, 1, SPLICE_F_NONBLOCK), EAGAIN);
    CHECK_EQ(vmsplice(p[1], &v, 0, 0), 0);
}
CASE(vmsplice_full_pipe) {
    pipes();
    struct iovec v = {buf, sizeof buf};
    CHECK_EQ(vmsplice(p[1], &v, 1, SPLICE_F_NONBLOCK), 65536);
    CHECK_ERR(vmsplice(p[1], &v, 1, SPLICE_F_NONBLOCK), EAGAIN);
}
