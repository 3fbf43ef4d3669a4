// Files: open flags, reading and writing, truncation, holes, links, unlinked files, descriptors.
#include "t.h"
#include <sys/file.h>
#include <sys/ioctl.h>

static int64_t size_of(int fd) {
    struct stat st;
    CHECK(fstat(fd, &st) == 0);
    return st.st_size;
}
CASE(open_missing) {
    scratch();
    CHECK_ERR(open("none", O_RDONLY), ENOENT);
    CHECK_ERR(open("none/x", O_CREAT | O_RDWR, 0644), ENOENT);
    CHECK_ERR(open("", O_RDONLY), ENOENT);
}
CASE(open_path_through_file) {
    scratch();
    close(mkfile("f", "x"));
    CHECK_ERR(open("f/x", O_RDONLY), ENOTDIR);
    CHECK_ERR(open("f/", O_RDONLY), ENOTDIR);
    CHECK_ERR(open("f/.", O_RDONLY), ENOTDIR);
}
CASE(open_name_too_long) {
    char n[300], p[5000];
    memset(n, 'a', 299), n[299] = 0;
    CHECK_ERR(open(n, O_RDONLY), ENAMETOOLONG);
    memset(p, '/', 4999), p[4999] = 0;
    CHECK_ERR(open(p, O_RDONLY), ENAMETOOLONG);
    scratch();
    n[255] = 0;
    int fd = open(n, O_CREAT | O_WRONLY, 0600);
    CHECK(fd >= 0);
}
CASE(open_excl) {
    scratch();
    int fd = open("f", O_CREAT | O_EXCL | O_RDWR, 0600);
    CHECK(fd >= 0);
    CHECK_ERR(open("f", O_CREAT | O_EXCL | O_RDWR, 0600), EEXIST);
    CHECK(symlink("nowhere", "l") == 0);
    CHECK_ERR(open("l", O_CREAT | O_EXCL | O_RDWR, 0600), EEXIST);
}
CASE(open_creates_through_dangling_symlink) {
    scratch();
    CHECK(symlink("target", "l") == 0);
    CHECK(open("l", O_CREAT | O_RDWR, 0600) >= 0);
    CHECK(access("target", F_OK) == 0);
}
CASE(open_nofollow) {
    scratch();
    close(mkfile("f", "x"));
    symlink("f", "l");
    CHECK_ERR(open("l", O_RDONLY | O_NOFOLLOW), ELOOP);
    int fd = open("l", O_PATH | O_NOFOLLOW);
    CHECK(fd >= 0);
    struct stat st;
    CHECK(fstat(fd, &st) == 0 && S_ISLNK(st.st_mode));
}
CASE(open_directory_flag) {
    scratch();
    close(mkfile("f", "x"));
    CHECK_ERR(open("f", O_RDONLY | O_DIRECTORY), ENOTDIR);
    CHECK_ERR(open(".", O_RDWR), EISDIR);
    CHECK_ERR(open(".", O_WRONLY), EISDIR);
    CHECK(open(".", O_RDONLY | O_DIRECTORY) >= 0);
    CHECK_ERR(open(".", O_RDONLY | O_CREAT, 0644), EISDIR);
}
CASE(open_trunc) {
    scratch();
    close(mkfile("f", "hello"));
    int fd = open("f", O_RDWR | O_TRUNC);
    CHECK_EQ(size_of(fd), 0);
}
CASE(open_mode_and_umask) {
    scratch();
    umask(027);
    int fd = open("f", O_CREAT | O_RDWR, 0777);
    struct stat st;
    fstat(fd, &st);
    CHECK_EQ(st.st_mode & 07777, 0750);
}
CASE(open_created_read_only_mode_can_write) {
    scratch();
    int fd = open("f", O_CREAT | O_RDWR, 0);
    CHECK(fd >= 0 && write(fd, "x", 1) == 1);
}
CASE(open_lowest_descriptor) {
    int a = open("/dev/null", O_RDONLY), b = open("/dev/null", O_RDONLY);
    CHECK_EQ(b, a + 1);
    close(a);
    CHECK_EQ(open("/dev/null", O_RDONLY), a);
}
CASE(access_mode_enforced) {
    scratch();
    close(mkfile("f", "x"));
    char c;
    int r = open("f", O_RDONLY), w = open("f", O_WRONLY);
    CHECK_ERR(write(r, "x", 1), EBADF);
    CHECK_ERR(read(w, &c, 1), EBADF);
    CHECK_ERR(ftruncate(r, 0), EINVAL);
}
CASE(o_path_restrictions) {
    int fd = open("/etc/passwd", O_PATH);
    char c;
    CHECK(fd >= 0);
    CHECK_ERR(read(fd, &c, 1), EBADF);
    CHECK_ERR(fchmod(fd, 0644), EBADF);
    CHECK_ERR(lseek(fd, 0, SEEK_SET), EBADF);
    CHECK_ERR(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0), EBADF);
    CHECK(fcntl(fd, F_GETFL) & O_PATH);
    struct stat st;
    CHECK(fstat(fd, &st) == 0);
}
CASE(o_append_always_at_end) {
    scratch();
    int a = mkfile("f", "123"), b = open("f", O_WRONLY | O_APPEND);
    CHECK(write(b, "45", 2) == 2);
    CHECK(pwrite(a, "x", 1, 0) == 1);
    CHECK(lseek(b, 0, SEEK_SET) == 0);
    CHECK(write(b, "67", 2) == 2);
    CHECK(pwrite(b, "8", 1, 0) == 1);  // Linux appends here too
    CHECK(!strcmp(slurp("f"), "x2345678"));
    CHECK_EQ(lseek(b, 0, SEEK_CUR), 7);
}
CASE(o_append_atomic_across_processes) {
    scratch();
    close(mkfile("f", ""));
    pid_t p[4];
    for (int i = 0; i < 4; i++)
        p[i] = SPAWN({
            int fd = open("f", O_WRONLY | O_APPEND);
            char b[8];
            memset(b, 'a' + i, 7), b[7] = '\n';
            for (int k = 0; k < 300; k++) CHECK(write(fd, b, 8) == 8);
        });
    for (int i = 0; i < 4; i++) CHECK_EQ(join(p[i]), 0);
    char *s = slurp("f");
    CHECK_EQ(strlen(s), 9600);
    for (int i = 0; i < 9600; i += 8)
        for (int k = 0; k < 7; k++) CHECK(s[i + k] == s[i]);
}
CASE(fcntl_setfl_append_nonblock) {
    scratch();
    int fd = mkfile("f", "abc");
    CHECK(fcntl(fd, F_SETFL, O_APPEND | O_NONBLOCK | O_RDONLY) == 0);
    CHECK_EQ(fcntl(fd, F_GETFL) & (O_APPEND | O_NONBLOCK | O_ACCMODE), O_APPEND | O_NONBLOCK | O_RDWR);
    CHECK(write(fd, "d", 1) == 1);
    CHECK(!strcmp(slurp("f"), "abcd"));
}
CASE(tmpfile_and_linkat) {
    scratch();
    int fd = open(".", O_TMPFILE | O_RDWR, 0600);
    if (fd < 0 && errno == EOPNOTSUPP) SKIP("no O_TMPFILE here");
    CHECK(fd >= 0);
    CHECK(write(fd, "tmp", 3) == 3);
    struct stat st;
    fstat(fd, &st);
    CHECK_EQ(st.st_nlink, 0);
    char p[40];
    sprintf(p, "/proc/self/fd/%d", fd);
    CHECK(linkat(AT_FDCWD, p, AT_FDCWD, "named", AT_SYMLINK_FOLLOW) == 0);
    CHECK(!strcmp(slurp("named"), "tmp"));
    CHECK_ERR(open(".", O_TMPFILE | O_RDONLY, 0600), EINVAL);
    int g = open(".", O_TMPFILE | O_RDWR | O_EXCL, 0600);
    sprintf(p, "/proc/self/fd/%d", g);
    CHECK_ERR(linkat(AT_FDCWD, p, AT_FDCWD, "n2", AT_SYMLINK_FOLLOW), ENOENT);
}
CASE(unlinked_but_open) {
    scratch();
    int fd = mkfile("f", "still");
    CHECK(unlink("f") == 0);
    CHECK_ERR(open("f", O_RDONLY), ENOENT);
    char b[6] = "";
    CHECK_EQ(read(fd, b, 5), 5);
    CHECK(write(fd, " here", 5) == 5);
    struct stat st;
    CHECK(fstat(fd, &st) == 0);
    CHECK_EQ(st.st_nlink, 0);
    CHECK_EQ(st.st_size, 10);
    char p[40], l[PATH_MAX] = "";
    sprintf(p, "/proc/self/fd/%d", fd);
    CHECK(readlink(p, l, sizeof l - 1) > 0);
    CHECK(strstr(l, " (deleted)") != NULL);
    int g = open(p, O_RDONLY);  // reopen through /proc
    CHECK(g >= 0 && read(g, b, 5) == 5 && !memcmp(b, "still", 5));
}
CASE(lseek_kinds_and_errors) {
    scratch();
    int fd = mkfile("f", "0123456789");
    CHECK_EQ(lseek(fd, -3, SEEK_END), 7);
    CHECK_EQ(lseek(fd, -2, SEEK_CUR), 5);
    CHECK_ERR(lseek(fd, -6, SEEK_CUR), EINVAL);
    CHECK_ERR(lseek(fd, 0, 99), EINVAL);
    CHECK_EQ(lseek(fd, 1l << 40, SEEK_SET), 1l << 40);
    char c;
    CHECK_EQ(read(fd, &c, 1), 0);
    int p[2];
    CHECK(pipe(p) == 0);
    CHECK_ERR(lseek(p[0], 0, SEEK_CUR), ESPIPE);
    CHECK_ERR(lseek(p[0], 0, 9), EINVAL);
    CHECK_ERR(pread(p[0], &c, 1, 0), ESPIPE);
}
CASE(sparse_write_reads_zero) {
    scratch();
    int fd = mkfile("f", "x");
    CHECK(pwrite(fd, "y", 1, 1 << 20) == 1);
    char b[4096];
    CHECK_EQ(pread(fd, b, 4096, 8192), 4096);
    for (int i = 0; i < 4096; i++) CHECK(b[i] == 0);
    CHECK_EQ(size_of(fd), (1 << 20) + 1);
}
CASE(seek_hole_data) {
    scratch();
    int fd = mkfile("f", "x");
    CHECK(pwrite(fd, "y", 1, 1 << 20) == 1);
    CHECK_EQ(lseek(fd, 0, SEEK_DATA), 0);
    int64_t h = lseek(fd, 0, SEEK_HOLE);
    CHECK(h > 0 && h <= (1 << 20) + 1);
    int64_t d = lseek(fd, 65536, SEEK_DATA);
    CHECK(d >= 65536 && d <= 1 << 20);
    CHECK_ERR(lseek(fd, 2 << 20, SEEK_DATA), ENXIO);
    CHECK_EQ(lseek(fd, 1 << 20, SEEK_HOLE), (1 << 20) + 1);
}
CASE(truncate_grow_shrink) {
    scratch();
    int fd = mkfile("f", "hello world");
    CHECK(ftruncate(fd, 5) == 0);
    CHECK(ftruncate(fd, 8) == 0);
    char b[9] = "xxxxxxxx";
    CHECK_EQ(pread(fd, b, 8, 0), 8);
    CHECK(!memcmp(b, "hello\0\0\0", 8));
    CHECK(truncate("f", 2) == 0);
    CHECK_EQ(size_of(fd), 2);
    CHECK_ERR(truncate("f", -1), EINVAL);
    CHECK_ERR(truncate("none", 0), ENOENT);
    CHECK_ERR(truncate(".", 0), EISDIR);
}
CASE(fallocate_modes) {
    scratch();
    int fd = mkfile("f", "hello");
    CHECK(fallocate(fd, 0, 0, 10000) == 0);
    CHECK_EQ(size_of(fd), 10000);
    CHECK(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 50000) == 0);
    CHECK_EQ(size_of(fd), 10000);
    if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == 0) {
        char c = 9;
        CHECK(pread(fd, &c, 1, 0) == 1 && c == 0);
    } else CHECK_EQ(errno, EOPNOTSUPP);
    CHECK_ERR(fallocate(fd, 0, 0, 0), EINVAL);
    CHECK_ERR(fallocate(fd, 0, -1, 10), EINVAL);
    int r = open("f", O_RDONLY);
    CHECK_ERR(fallocate(r, 0, 0, 10), EBADF);
}
CASE(readv_writev) {
    scratch();
    int fd = mkfile("f", "");
    struct iovec v[3] = {{"ab", 2}, {NULL, 0}, {"cde", 3}};
    CHECK_EQ(writev(fd, v, 3), 5);
    char x[3] = "", y[4] = "";
    struct iovec r[2] = {{x, 2}, {y, 10}};
    r[1].iov_len = 3;
    CHECK_EQ(preadv(fd, r, 2, 0), 5);
    CHECK(!memcmp(x, "ab", 2) && !memcmp(y, "cde", 3));
    CHECK_EQ(pwritev(fd, v, 1, 3), 2);
    CHECK(!strcmp(slurp("f"), "abcab"));
    CHECK_ERR(writev(fd, v, 1025), EINVAL);
    CHECK_ERR(writev(fd, v, -1), EINVAL);
    CHECK_EQ(writev(fd, v, 0), 0);
}
CASE(iov_length_overflow) {
    struct iovec v[2] = {{"a", (size_t)1 << 63}, {"b", 1}};
    int fd = open("/dev/null", O_WRONLY);
    CHECK_ERR(writev(fd, v, 2), EINVAL);
}
CASE(preadv2_flags) {
    scratch();
    int fd = mkfile("f", "abc");
    char b[3];
    struct iovec v = {b, 3};
    CHECK_EQ(preadv2(fd, &v, 1, 0, 0), 3);
    CHECK_EQ(preadv2(fd, &v, 1, -1, 0), 3);  // -1: use the file position
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), 3);
    CHECK_ERR(preadv2(fd, &v, 1, 0, 0x8000000), EOPNOTSUPP);
}
CASE(pread_does_not_move) {
    scratch();
    int fd = mkfile("f", "abc");
    char c;
    CHECK_EQ(pread(fd, &c, 1, 2), 1);
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), 0);
    CHECK_ERR(pread(fd, &c, 1, -1), EINVAL);
}
CASE(read_directory_is_eisdir) {
    char c;
    int fd = open("/", O_RDONLY);
    CHECK_ERR(read(fd, &c, 1), EISDIR);
}
CASE(read_write_zero_bytes) {
    scratch();
    int fd = mkfile("f", "abc");
    CHECK_EQ(read(fd, NULL, 0), 0);
    CHECK_EQ(write(fd, NULL, 0), 0);
    CHECK_ERR(read(-1, NULL, 0), EBADF);
}
CASE(large_file_io) {
    scratch();
    int fd = mkfile("f", "");
    static char b[1 << 20];
    for (int i = 0; i < 16; i++) {
        memset(b, i, sizeof b);
        CHECK_EQ(write(fd, b, sizeof b), sizeof b);
    }
    for (int i = 15; i >= 0; i--) {
        CHECK_EQ(pread(fd, b, sizeof b, (int64_t)i << 20), sizeof b);
        CHECK(b[0] == i && b[sizeof b - 1] == i);
    }
}
CASE(write_beyond_rlimit_fsize) {
    scratch();
    int fd = mkfile("f", "");
    struct { uint64_t a, b; } r = {10, 10};
    signal(SIGXFSZ, SIG_IGN);
    CHECK(syscall(SYS_setrlimit, 1, &r) == 0);
    CHECK_EQ(write(fd, "0123456789abc", 13), 10);
    CHECK_ERR(write(fd, "x", 1), EFBIG);
    CHECK_ERR(ftruncate(fd, 20), EFBIG);
}
CASE(dup_family) {
    scratch();
    int fd = mkfile("f", "abc");
    int d = dup(fd);
    CHECK(d > fd);
    CHECK_EQ(lseek(d, 2, SEEK_SET), 2);
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), 2);
    CHECK_EQ(dup2(fd, 100), 100);
    CHECK_EQ(dup2(fd, fd), fd);
    CHECK_ERR(dup2(-1, 5), EBADF);
    CHECK_ERR(dup2(fd, 1 << 30), EBADF);
    CHECK_ERR(dup3(fd, fd, 0), EINVAL);
    CHECK_EQ(dup3(fd, 101, O_CLOEXEC), 101);
    CHECK_EQ(fcntl(101, F_GETFD), FD_CLOEXEC);
    CHECK_EQ(fcntl(fd, F_DUPFD, 150), 150);
    CHECK_EQ(fcntl(fd, F_DUPFD_CLOEXEC, 150), 151);
    CHECK_ERR(fcntl(fd, F_DUPFD, -1), EINVAL);
}
CASE(close_twice_and_range) {
    int a = open("/dev/null", O_RDONLY);
    CHECK(close(a) == 0);
    CHECK_ERR(close(a), EBADF);
    int b = dup2(1, 200), c = dup2(1, 201);
    CHECK(syscall(SYS_close_range, 200, 201, 0) == 0);
    CHECK_ERR(fcntl(b, F_GETFD), EBADF);
    CHECK_ERR(fcntl(c, F_GETFD), EBADF);
    CHECK_ERR(syscall(SYS_close_range, 10, 5, 0), EINVAL);
    dup2(1, 202);
    CHECK(syscall(SYS_close_range, 202, 202, 4) == 0);  // CLOSE_RANGE_CLOEXEC
    CHECK_EQ(fcntl(202, F_GETFD), FD_CLOEXEC);
}
CASE(dev_null_zero_full_random) {
    char b[64];
    int n = open("/dev/null", O_RDWR), z = open("/dev/zero", O_RDWR), f = open("/dev/full", O_RDWR), r = open("/dev/urandom", O_RDONLY);
    CHECK_EQ(read(n, b, 10), 0);
    CHECK_EQ(write(n, b, 10), 10);
    memset(b, 1, 64);
    CHECK_EQ(read(z, b, 64), 64);
    CHECK(b[63] == 0);
    CHECK_EQ(write(z, b, 64), 64);
    CHECK_ERR(write(f, b, 1), ENOSPC);
    CHECK_EQ(read(f, b, 64), 64);
    CHECK_EQ(read(r, b, 64), 64);
    int nz = 0;
    for (int i = 0; i < 64; i++) nz += b[i] != 0;
    CHECK(nz > 40);
}
CASE(fionread_on_file_and_bad_ioctl) {
    scratch();
    int fd = mkfile("f", "abc"), n = 0;
    CHECK(ioctl(fd, FIONREAD, &n) == 0);
    CHECK_EQ(n, 3);
    CHECK_ERR(ioctl(fd, 0x5401, &n), ENOTTY);
}
CASE(fd_open_by_proc_and_dev) {
    scratch();
    int fd = mkfile("f", "abc");
    char p[40];
    sprintf(p, "/dev/fd/%d", fd);
    int g = open(p, O_RDONLY);
    CHECK(g >= 0);
    CHECK_ERR(open("/dev/fd/999", O_RDONLY), ENOENT);
}
CASE(fsync_family) {
    scratch();
    int fd = mkfile("f", "abc"), p[2];
    CHECK(fsync(fd) == 0 && fdatasync(fd) == 0 && syncfs(fd) == 0);
    sync();
    CHECK(pipe(p) == 0);
    CHECK_ERR(fsync(p[0]), EINVAL);
    CHECK_ERR(fsync(-1), EBADF);
    CHECK(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
    CHECK_EQ(posix_fadvise(p[0], 0, 0, POSIX_FADV_NORMAL), ESPIPE);
    CHECK(readahead(fd, 0, 100) == 0);
}
CASE(openat2_resolve) {
    scratch();
    mkdir("d", 0755);
    close(mkfile("d/f", "x"));
    CHECK(symlink("/etc/passwd", "d/abs") == 0);
    int d = open("d", O_RDONLY);
    struct { uint64_t flags, mode, resolve; } how = {O_RDONLY, 0, 0x08 /* BENEATH */};
    long r = syscall(SYS_openat2, d, "f", &how, sizeof how);
    if (r < 0 && errno == ENOSYS) SKIP("no openat2");
    CHECK(r >= 0);
    CHECK_ERR(syscall(SYS_openat2, d, "../d/f", &how, sizeof how), EXDEV);
    CHECK_ERR(syscall(SYS_openat2, d, "abs", &how, sizeof how), EXDEV);
    how.resolve = 0x04;  // NO_SYMLINKS
    CHECK_ERR(syscall(SYS_openat2, d, "abs", &how, sizeof how), ELOOP);
    how.flags = 1ull << 60;
    CHECK_ERR(syscall(SYS_openat2, d, "f", &how, sizeof how), EINVAL);
}
CASE(copy_up_image_file) {
    // Writing a file of the image must not be seen as a change of identity by open descriptors.
    if (geteuid()) SKIP("needs root");
    struct stat a, b;
    int r = open("/etc/passwd", O_RDONLY);
    CHECK(r >= 0 && fstat(r, &a) == 0);
    int w = open("/etc/passwd", O_RDWR);
    CHECK(w >= 0 && fstat(w, &b) == 0);
    CHECK(a.st_ino == b.st_ino && a.st_dev == b.st_dev);
}
