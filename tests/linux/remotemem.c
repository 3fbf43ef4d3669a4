// Advice for memory of a process named by a descriptor, and the memory of one that is being killed.
#include "t.h"

static int pidfd(pid_t p) { return syscall(SYS_pidfd_open, p, 0); }
static long advise(int fd, void *at, size_t len, int advice, unsigned flags) {
    struct iovec v = {at, len};
    return syscall(440, fd, &v, 1L, advice, flags);
}
static char *p;
static void need(void) {
    p = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(p, 7, 1 << 16);
    if (advise(-1, p, 4096, MADV_COLD, 0) < 0 && errno == ENOSYS) SKIP("the kernel has no process_madvise");
}
CASE(advises_itself) {
    need();
    int fd = CHECK_OK(pidfd(getpid()));
    struct iovec v[2] = {{p, 8192}, {p + 16384, 4096}};
    long n = syscall(440, fd, v, 2L, MADV_DONTNEED, 0);
    if (n < 0) SKIP("the kernel advises others only");
    CHECK_EQ(n, 12288);
    CHECK(p[0] == 0 && p[8191] == 0 && p[8192] == 7 && p[16384] == 0 && p[20480] == 7);
    CHECK_EQ(advise(fd, p, 4096, MADV_WILLNEED, 0), 4096);
    CHECK_ERR(advise(fd, p + 1, 4096, MADV_DONTNEED, 0), EINVAL);
    CHECK_ERR(advise(fd, p, 4096, 9999, 0), EINVAL);
    CHECK_ERR(advise(fd, p, 4096, MADV_DONTNEED, 1), EINVAL);
    // What was done before the first that cannot be.
    struct iovec w[2] = {{p + 32768, 4096}, {p + 1, 4096}};
    CHECK_EQ(syscall(440, fd, w, 2L, MADV_DONTNEED, 0), 4096);
    CHECK_EQ(p[32768], 0);
    CHECK_EQ(syscall(440, fd, w, 0L, MADV_DONTNEED, 0), 0);
    CHECK_ERR(syscall(440, fd, w, 1025L, MADV_DONTNEED, 0), EINVAL);
    CHECK_ERR(syscall(440, fd, noaccess(), 1L, MADV_DONTNEED, 0), EFAULT);
}
CASE(advises_others) {
    need();
    pid_t c = fork();
    if (c == 0) {
        pause();
        _exit(0);
    }
    int fd = CHECK_OK(pidfd(c));
    CHECK_EQ(advise(fd, p, 8192, MADV_COLD, 0), 8192);
    CHECK_EQ(advise(fd, p, 8192, MADV_PAGEOUT, 0), 8192);
    CHECK_ERR(advise(fd, p, 8192, MADV_DONTNEED, 0), EINVAL);
    CHECK_ERR(advise(-1, p, 8192, MADV_COLD, 0), EBADF);
    CHECK_ERR(advise(1, p, 8192, MADV_COLD, 0), EBADF);
    pid_t user = fork();
    if (user == 0) {
        if (setgid(1000) || setuid(1000)) _exit(1);
        _exit(advise(fd, p, 8192, MADV_COLD, 0) == -1 && errno == EACCES ? 0 : 2);
    }
    CHECK_EQ(join(user), 0);
    kill(c, SIGKILL);
    int status;
    CHECK(waitpid(c, &status, 0) == c);
    CHECK_ERR(advise(fd, p, 8192, MADV_COLD, 0), ESRCH);
}
CASE(mrelease_is_for_who_is_killed) {
    int self = CHECK_OK(pidfd(getpid()));
    if (syscall(448, self, 0) < 0 && errno == ENOSYS) SKIP("the kernel has no process_mrelease");
    CHECK_ERR(syscall(448, self, 0), EINVAL);
    CHECK_ERR(syscall(448, self, 1), EINVAL);
    CHECK_ERR(syscall(448, -1, 0), EBADF);
    pid_t c = fork();
    if (c == 0) {
        pause();
        _exit(0);
    }
    int fd = CHECK_OK(pidfd(c)), status;
    CHECK_ERR(syscall(448, fd, 0), EINVAL);
    kill(c, SIGKILL);
    CHECK(waitpid(c, &status, 0) == c);
    CHECK_ERR(syscall(448, fd, 0), ESRCH);
}
