// Reads, writes and offsets at their edges: positions, vectors, holes, limits, append, descriptors' tables.
#include "t.h"
#include <sys/ioctl.h>
#include <sys/resource.h>

#ifndef RWF_NOWAIT
#define RWF_NOWAIT 8
#endif
#ifndef RWF_APPEND
#define RWF_APPEND 0x10
#endif
static char b[1 << 16];
static struct stat st;
static void nop(int s, siginfo_t *si, void *u) { (void)s, (void)si, (void)u; }

CASE(write_past_end_leaves_a_hole) {
    scratch();
    int fd = mkfile("f", "ab");
    CHECK_EQ(pwrite(fd, "z", 1, 100000), 1);
    CHECK(fstat(fd, &st) == 0 && st.st_size == 100001);
    CHECK_EQ(pread(fd, b, 10, 50000), 10);
    for (int i = 0; i < 10; i++) CHECK_EQ(b[i], 0);
    CHECK(lseek(fd, 0, SEEK_CUR) == 0);
}
CASE(read_at_and_behind_end) {
    scratch();
    int fd = mkfile("f", "abc");
    CHECK_EQ(pread(fd, b, 10, 2), 1);
    CHECK_EQ(pread(fd, b, 10, 3), 0);
    CHECK_EQ(pread(fd, b, 10, LONG_MAX - 10), 0);
    CHECK_ERR(pread(fd, b, 10, -1), EINVAL);
    CHECK_ERR(pwrite(fd, b, 10, -1), EINVAL);
}
CASE(offset_overflow) {
    scratch();
    int fd = mkfile("f", "");
    CHECK_ERR(pwrite(fd, "ab", 2, LONG_MAX), EINVAL);
    CHECK_ERR(ftruncate(fd, -1), EINVAL);
    CHECK(ftruncate(fd, LONG_MAX) == -1 && (errno == EFBIG || errno == EINVAL));
}
CASE(seek_arithmetic) {
    scratch();
    int fd = mkfile("f", "0123456789");
    CHECK_EQ(lseek(fd, -3, SEEK_END), 7);
    CHECK_EQ(lseek(fd, -7, SEEK_CUR), 0);
    CHECK_ERR(lseek(fd, -1, SEEK_CUR), EINVAL);
    CHECK_ERR(lseek(fd, -11, SEEK_END), EINVAL);
    CHECK_EQ(lseek(fd, 5, SEEK_END), 15);
    CHECK_ERR(lseek(fd, 0, 99), EINVAL);
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), 15);  // errors move nothing
    CHECK_EQ(read(fd, b, 10), 0);
    CHECK(fstat(fd, &st) == 0 && st.st_size == 10);
}
CASE(seek_hole_and_data_edges) {
    scratch();
    int fd = mkfile("f", "");
    ftruncate(fd, 1 << 20);
    pwrite(fd, "x", 1, 512 << 10);
    CHECK_EQ(lseek(fd, 0, SEEK_HOLE), 0);
    CHECK_EQ(lseek(fd, 0, SEEK_DATA), 512 << 10);
    CHECK_EQ(lseek(fd, 513 << 10, SEEK_HOLE) >= (513 << 10), 1);
    CHECK_ERR(lseek(fd, 1 << 20, SEEK_DATA), ENXIO);
    CHECK_ERR(lseek(fd, 1 << 20, SEEK_HOLE), ENXIO);
    CHECK_ERR(lseek(fd, -1, SEEK_DATA), ENXIO);
    CHECK_ERR(lseek(fd, 700 << 10, SEEK_DATA), ENXIO);  // only a hole is left
    CHECK_EQ(lseek(fd, 700 << 10, SEEK_HOLE), 700 << 10);
}
CASE(vectors_count_and_order) {
    scratch();
    int fd = mkfile("f", "");
    struct iovec v[3] = {{"ab", 2}, {NULL, 0}, {"cde", 3}};
    CHECK_EQ(writev(fd, v, 3), 5);
    char x[2], y[10];
    struct iovec r[2] = {{x, 2}, {y, 10}};
    CHECK_EQ(preadv(fd, r, 2, 1), 4);
    CHECK(!memcmp(x, "bc", 2) && !memcmp(y, "de", 2));
    CHECK_EQ(pwritev(fd, v, 1, 3), 2);
    CHECK(!strcmp(slurp("f"), "abcab"));
    CHECK_EQ(writev(fd, v, 0), 0);
}
CASE(vectors_errors) {
    scratch();
    int fd = mkfile("f", "abc");
    struct iovec big[2] = {{b, 1}, {b, 1}}, neg = {b, -1};
    CHECK_ERR(readv(fd, &neg, 1), EINVAL);
    CHECK_ERR(syscall(SYS_readv, fd, big, -1), EINVAL);
    CHECK_ERR(syscall(SYS_readv, fd, big, 1025), EINVAL);
    CHECK_ERR(syscall(SYS_readv, fd, BAD, 1), EFAULT);
    CHECK_ERR(preadv(fd, &neg, 1, 0), EINVAL);
}
CASE(vector_with_bad_second_part) {
    scratch();
    int fd = mkfile("f", "0123456789");
    struct iovec v[2] = {{b, 4}, {BAD, 4}};
    CHECK_EQ(readv(fd, v, 2), 4);
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), 4);
    CHECK_EQ(writev(fd, v, 2), 4);
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), 8);
}
CASE(vectored_with_flags) {
    scratch();
    int fd = mkfile("f", "abc");
    struct iovec v = {"XY", 2};
    CHECK_EQ(pwritev2(fd, &v, 1, 0, RWF_APPEND), 2);
    CHECK(!strcmp(slurp("f"), "abcXY"));
    CHECK_EQ(pwritev2(fd, &v, 1, -1, 0), 2);  // -1: at the position, which moves
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), 2);
    CHECK_ERR(pwritev2(fd, &v, 1, -2, 0), EINVAL);
    CHECK_ERR(pwritev2(fd, &v, 1, 0, 0x4000), EOPNOTSUPP);
    CHECK_EQ(pwritev2(fd, &v, 1, 1, RWF_DSYNC | RWF_SYNC), 2);
    v.iov_base = b;
    CHECK_EQ(preadv2(fd, &v, 1, -1, RWF_HIPRI) < 0 ? errno == EOPNOTSUPP : 1, 1);
}
CASE(nowait_on_empty_pipe) {
    int p[2];
    CHECK(pipe(p) == 0);
    struct iovec v = {b, 10};
    CHECK_ERR(preadv2(p[0], &v, 1, -1, RWF_NOWAIT), EAGAIN);
    CHECK_ERR(preadv2(p[0], &v, 1, 0, 0), ESPIPE);
}
CASE(append_moves_position_to_end) {
    scratch();
    close(mkfile("f", "abc"));
    int fd = open("f", O_RDWR | O_APPEND);
    CHECK(lseek(fd, 1, SEEK_SET) == 1 && write(fd, "d", 1) == 1);
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), 4);
    CHECK_EQ(pwrite(fd, "e", 1, 0), 1);  // Linux: the offset is ignored
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), 4);
    CHECK(!strcmp(slurp("f"), "abcde"));
    CHECK(fcntl(fd, F_SETFL, 0) == 0 && pwrite(fd, "Z", 1, 0) == 1);
    CHECK(!strcmp(slurp("f"), "Zbcde"));
}
CASE(append_records_never_mix) {
    scratch();
    close(mkfile("f", ""));
    for (int k = 0; k < 4; k++)
        SPAWN(int fd = open("f", O_WRONLY | O_APPEND); char r[100]; memset(r, 'a' + k, 100); for (int i = 0; i < 200; i++) write(fd, r, 100));
    for (int k = 0; k < 4; k++) wait(NULL);
    int fd = open("f", O_RDONLY), n = 0;
    for (; read(fd, b, 100) == 100; n++)
        for (int i = 1; i < 100; i++) CHECK_EQ(b[i], b[0]);
    CHECK_EQ(n, 800);
}
CASE(shared_position_gives_each_byte_once) {
    scratch();
    int fd = mkfile("f", ""), p[2];
    for (int i = 0; i < 2000; i++) write(fd, &(int){i}, 4);
    lseek(fd, 0, SEEK_SET);
    CHECK(pipe(p) == 0);
    for (int k = 0; k < 3; k++) SPAWN(int v; while (read(fd, &v, 4) == 4) write(p[1], &v, 4));
    for (int k = 0; k < 3; k++) wait(NULL);
    close(p[1]);
    static char seen[2000];
    int v, n = 0;
    while (read(p[0], &v, 4) == 4) {
        CHECK(v >= 0 && v < 2000 && !seen[v]);
        seen[v] = 1, n++;
    }
    CHECK_EQ(n, 2000);
}
CASE(size_limit_cuts_then_signals) {
    scratch();
    int fd = mkfile("f", "");
    struct rlimit l = {100, RLIM_INFINITY};
    CHECK(setrlimit(RLIMIT_FSIZE, &l) == 0);
    signal(SIGXFSZ, SIG_IGN);
    CHECK_EQ(write(fd, b, 150), 100);
    CHECK_ERR(write(fd, b, 1), EFBIG);
    CHECK_ERR(ftruncate(fd, 101), EFBIG);
    CHECK_ERR(fallocate(fd, 0, 0, 200), EFBIG);
    CHECK(ftruncate(fd, 50) == 0 && pwrite(fd, b, 1, 99) == 1);
    signal(SIGXFSZ, SIG_DFL);
    CHECK_EQ(join(SPAWN(pwrite(fd, b, 1, 100))), 128 + SIGXFSZ);
}
CASE(truncate_by_path_rules) {
    scratch();
    close(mkfile("f", "abc"));
    mkdir("d", 0755), mkfifo("p", 0666), symlink("f", "l");
    CHECK(truncate("l", 1) == 0 && stat("f", &st) == 0 && st.st_size == 1);
    CHECK_ERR(truncate("d", 0), EISDIR);
    CHECK_ERR(truncate("p", 0), EINVAL);
    CHECK_ERR(truncate("f", -1), EINVAL);
    CHECK_ERR(truncate("", 0), ENOENT);
    CHECK_ERR(ftruncate(open("f", O_RDONLY), 0), EINVAL);
    chmod("f", 0444);
    t_drop_root();
    CHECK_ERR(truncate("f", 0), EACCES);
}
CASE(truncate_zeroes_what_it_uncovers) {
    scratch();
    int fd = mkfile("f", "abcdef");
    CHECK(ftruncate(fd, 3) == 0 && ftruncate(fd, 6) == 0);
    CHECK(pread(fd, b, 10, 0) == 6 && !memcmp(b, "abc\0\0\0", 6));
}
CASE(truncate_times_and_suid) {
    scratch();
    int fd = mkfile("f", "abc");
    struct timespec old[2] = {{1, 0}, {1, 0}};
    CHECK(futimens(fd, old) == 0 && ftruncate(fd, 3) == 0);
    CHECK(fstat(fd, &st) == 0 && st.st_mtime > 1);  // even when nothing changes
    CHECK(fchown(fd, 1000, 1000) == 0 && fchmod(fd, 06777) == 0);
    setresuid(1000, 1000, 1000);
    CHECK(ftruncate(fd, 1) == 0 && fstat(fd, &st) == 0 && (st.st_mode & 07777) == 0777);
}
CASE(fallocate_arguments) {
    scratch();
    int fd = mkfile("f", "abcdef"), p[2];
    CHECK(pipe(p) == 0);
    CHECK_ERR(fallocate(fd, 0, 0, 0), EINVAL);
    CHECK_ERR(fallocate(fd, 0, -1, 5), EINVAL);
    CHECK_ERR(fallocate(fd, FALLOC_FL_PUNCH_HOLE, 0, 5), EOPNOTSUPP);  // only with KEEP_SIZE
    CHECK_ERR(fallocate(fd, 0x8000, 0, 5), EOPNOTSUPP);
    CHECK_ERR(fallocate(open("f", O_RDONLY), 0, 0, 5), EBADF);
    CHECK_ERR(fallocate(p[1], 0, 0, 5), ESPIPE);
    CHECK_ERR(fallocate(open(".", O_RDONLY), 0, 0, 5), EBADF);
    CHECK_ERR(fallocate(fd, 0, LONG_MAX - 5, 10), EFBIG);
    CHECK(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 100000) == 0 && fstat(fd, &st) == 0 && st.st_size == 6 && st.st_blocks >= 192);
    CHECK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 1, 2) == 0 && pread(fd, b, 6, 0) == 6 && !memcmp(b, "a\0\0def", 6));
}
CASE(read_into_bad_memory_moves_nothing) {
    scratch();
    int fd = mkfile("f", "abcdef");
    CHECK_ERR(read(fd, BAD, 3), EFAULT);
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), 0);
    char *edge = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(edge + 4096, 4096);
    CHECK_EQ(read(fd, edge + 4096 - 2, 6), 2);
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), 2);
    CHECK_EQ(write(fd, edge + 4096 - 3, 6), 3);
    CHECK_ERR(write(fd, BAD, 3), EFAULT);
}
CASE(zero_length_still_checks) {
    scratch();
    int fd = mkfile("f", "abc"), p[2];
    CHECK(pipe(p) == 0);
    CHECK_EQ(read(fd, BAD, 0), 0);
    CHECK_EQ(read(p[0], b, 0), 0);  // does not block
    CHECK_ERR(read(p[1], b, 0), EBADF);
    CHECK_ERR(write(p[0], b, 0), EBADF);
    CHECK_ERR(read(999, b, 0), EBADF);
    CHECK_ERR(read(open(".", O_RDONLY), b, 0), EISDIR);
}
CASE(largest_count_is_capped) {
    int z = open("/dev/zero", O_RDONLY), n = open("/dev/null", O_WRONLY);
    CHECK(z >= 0);
    CHECK_EQ(write(n, b, sizeof b), sizeof b);
    char *big = mmap(NULL, 1ul << 32, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (big == MAP_FAILED) SKIP("no address space");
    CHECK_EQ(write(n, big, 1ul << 32), 0x7ffff000);
}
CASE(dup_shares_offset_and_flags_not_cloexec) {
    scratch();
    int fd = mkfile("f", "abcdef"), d = dup(fd), e = fcntl(fd, F_DUPFD_CLOEXEC, 100);
    CHECK_EQ(e, 100);
    CHECK(read(fd, b, 2) == 2 && lseek(d, 0, SEEK_CUR) == 2);
    CHECK(fcntl(d, F_SETFL, O_NONBLOCK) == 0 && fcntl(fd, F_GETFL) & O_NONBLOCK);
    CHECK(fcntl(fd, F_GETFD) == 0 && fcntl(e, F_GETFD) == FD_CLOEXEC);
    int again = open("f", O_RDONLY);
    CHECK_EQ(lseek(again, 0, SEEK_CUR), 0);
}
CASE(dup2_edges) {
    int p[2];
    CHECK(pipe(p) == 0);
    CHECK_EQ(dup2(p[0], p[0]), p[0]);
    CHECK_ERR(dup2(999, 5), EBADF);
    CHECK_ERR(dup2(p[0], -1), EBADF);
    CHECK_ERR(dup2(p[0], 1 << 30), EBADF);
    CHECK_ERR(dup3(p[0], p[0], 0), EINVAL);
    CHECK_ERR(dup3(p[0], 50, O_NONBLOCK), EINVAL);
    CHECK_EQ(dup3(p[0], 50, O_CLOEXEC), 50);
    CHECK_EQ(fcntl(50, F_GETFD), FD_CLOEXEC);
    CHECK_EQ(dup2(p[1], 50), 50);  // closes the old one, clears the flag
    CHECK_EQ(fcntl(50, F_GETFD), 0);
    CHECK_ERR(fcntl(p[0], F_DUPFD, -1), EINVAL);
    CHECK_ERR(fcntl(p[0], F_DUPFD, 1 << 30), EINVAL);
}
CASE(table_limit) {
    struct rlimit l = {20, 20};
    CHECK(setrlimit(RLIMIT_NOFILE, &l) == 0);
    int fd, last = -1;
    while ((fd = open("/dev/null", O_RDONLY)) >= 0) last = fd;
    CHECK(errno == EMFILE && last == 19);
    CHECK_ERR(dup(0), EMFILE);
    int p[2];
    CHECK_ERR(pipe(p), EMFILE);
    close(10);
    CHECK_ERR(pipe(p), EMFILE);  // two are needed
    CHECK_EQ(open("/dev/null", O_RDONLY), 10);
    CHECK_ERR(dup2(0, 20), EBADF);
    close(5);
    CHECK_ERR(socketpair(AF_UNIX, SOCK_STREAM, 0, p), EMFILE);
    CHECK_EQ(dup(0), 5);
}
CASE(close_range_flags) {
    for (int i = 20; i < 30; i++) dup2(0, i);
    CHECK(syscall(SYS_close_range, 22, 24, 0) == 0);
    CHECK(fcntl(21, F_GETFD) == 0 && fcntl(25, F_GETFD) == 0);
    CHECK_ERR(fcntl(22, F_GETFD), EBADF);
    CHECK(syscall(SYS_close_range, 25, ~0u, 4) == 0);  // CLOSE_RANGE_CLOEXEC
    CHECK_EQ(fcntl(25, F_GETFD), FD_CLOEXEC);
    CHECK_ERR(syscall(SYS_close_range, 30, 29, 0), EINVAL);
    CHECK_ERR(syscall(SYS_close_range, 3, 4, 8), EINVAL);
    CHECK(syscall(SYS_close_range, 1000000, ~0u, 0) == 0);
}
static void *keep_open(void *a) {
    CHECK(syscall(SYS_close_range, 20, 20, 2) == 0);  // CLOSE_RANGE_UNSHARE
    CHECK_ERR(fcntl(20, F_GETFD), EBADF);
    return a;
}
CASE(close_range_unshare_in_a_thread) {
    dup2(0, 20);
    pthread_t t;
    pthread_create(&t, NULL, keep_open, NULL);
    pthread_join(t, NULL);
    CHECK_EQ(fcntl(20, F_GETFD), 0);  // the others keep theirs
}
static void *own_table(void *a) {
    CHECK(unshare(0x400) == 0);  // CLONE_FILES
    CHECK(close(20) == 0 && dup2(0, 21) == 21);
    return a;
}
CASE(unshare_files_in_a_thread) {
    dup2(0, 20);
    pthread_t t;
    pthread_create(&t, NULL, own_table, NULL);
    pthread_join(t, NULL);
    CHECK_EQ(fcntl(20, F_GETFD), 0);
    CHECK_ERR(fcntl(21, F_GETFD), EBADF);
}
CASE(closed_while_another_thread_reads_it) {
    int p[2];
    CHECK(pipe(p) == 0);
    on_signal(SIGALRM, nop, 0);
    pid_t c = SPAWN(alarm(0); msleep(50); write(p[1], "late", 4));
    pthread_t t;
    pthread_create(&t, NULL, (void *(*)(void *))(void *)close, (void *)(long)p[1]);
    CHECK_EQ(read(p[0], b, 10), 4);
    pthread_join(t, NULL);
    join(c);
}
CASE(setfl_keeps_access_mode_and_creation_flags) {
    scratch();
    int fd = open("f", O_CREAT | O_WRONLY | O_APPEND, 0600);
    CHECK(fcntl(fd, F_SETFL, O_RDWR | O_NONBLOCK | O_CREAT | O_TRUNC) == 0);
    int fl = fcntl(fd, F_GETFL);
    CHECK((fl & O_ACCMODE) == O_WRONLY && fl & O_NONBLOCK && !(fl & O_APPEND) && !(fl & (O_CREAT | O_TRUNC)));
    CHECK_ERR(fcntl(fd, 9999, 0), EINVAL);
    CHECK_ERR(fcntl(999, F_GETFL), EBADF);
}
CASE(noatime_needs_the_owner) {
    scratch();
    close(mkfile("f", "x"));
    chmod("f", 0644);
    CHECK(open("f", O_RDONLY | O_NOATIME) >= 0);
    t_drop_root();
    CHECK_ERR(open("f", O_RDONLY | O_NOATIME), EPERM);
    int fd = open("f", O_RDONLY);
    CHECK_ERR(fcntl(fd, F_SETFL, O_NOATIME), EPERM);
}
CASE(ioctl_size_queries) {
    scratch();
    int fd = mkfile("f", "abcdef"), p[2], n = -1;
    CHECK(ioctl(fd, FIONREAD, &n) == 0 && n == 6);
    lseek(fd, 2, SEEK_SET);
    CHECK(ioctl(fd, FIONREAD, &n) == 0 && n == 4);
    CHECK(pipe(p) == 0);
    CHECK_ERR(ioctl(p[0], TIOCGWINSZ, b), ENOTTY);
    CHECK_ERR(ioctl(999, FIONREAD, &n), EBADF);
    CHECK_ERR(ioctl(fd, FIONREAD, BAD), EFAULT);
    CHECK(ioctl(fd, FIOCLEX) == 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC && ioctl(fd, FIONCLEX) == 0 && fcntl(fd, F_GETFD) == 0);
}
// A copy takes different ways by its length and by how far the destination is ahead of the source (modulo a page).
CASE(copies_are_whole_at_all_alignments) {
    scratch();
    static char from[12288] __attribute__((aligned(4096))), to[12288] __attribute__((aligned(4096)));
    for (size_t i = 0; i < sizeof from; i++) from[i] = i * 31 + i / 251;
    int fd = open("a", O_RDWR | O_CREAT, 0600);
    static const size_t lengths[] = {1, 7, 8, 63, 64, 65, 71, 95, 96, 97, 103, 104, 105, 127, 128, 129, 4095, 4096, 5000};
    for (int ahead = 0; ahead < 40; ahead++)
        for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
            size_t n = lengths[k];
            CHECK_EQ(pwrite(fd, from + 1, n, ahead), (ssize_t)n);
            memset(to, 0, sizeof to);
            CHECK_EQ(pread(fd, to + 2 * ahead, n, ahead), (ssize_t)n);
            CHECK(!memcmp(to + 2 * ahead, from + 1, n));
            CHECK(to[2 * ahead + n] == 0 && (ahead == 0 || to[2 * ahead - 1] == 0));
        }
}
CASE(copies_end_at_the_first_fault) {
    scratch();
    char *end = (char *)mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) + 4096;
    CHECK_OK(mprotect(end, 4096, PROT_NONE));
    static char from[4096] __attribute__((aligned(4096)));
    for (size_t i = 0; i < sizeof from; i++) from[i] = i * 7 + 1;
    int fd = open("a", O_RDWR | O_CREAT, 0600);
    CHECK_EQ(write(fd, from, sizeof from), 4096);
    for (int room = 1; room < 200; room++)
        for (int ahead = 0; ahead < 20; ahead++) {
            // The file's bytes lie at the same place of a page as its offset.
            int at = (4096 - room - ahead) & 4095;
            int n = at + room + 100 > 4096 ? 4096 - at : room + 100;
            memset(end - room, 0, room);
            CHECK_EQ(pread(fd, end - room, n, at), n < room ? n : room);
            CHECK(!memcmp(end - room, from + at, n < room ? n : room));
        }
}
