// memfd_create, file seals, and memory shared through them.
#include "t.h"

static int sealed(unsigned seals) {
    int fd = memfd_create("m", MFD_ALLOW_SEALING);
    CHECK(fd >= 0 && ftruncate(fd, 8192) == 0);
    CHECK(fcntl(fd, F_ADD_SEALS, seals) == 0);
    return fd;
}
static void *map(int fd, int prot, int flags) { return mmap(NULL, 8192, prot, flags, fd, 0); }

CASE(names_and_flags) {
    char name[251];
    memset(name, 'n', 250), name[249] = 0;
    int fd = CHECK_OK(memfd_create(name, MFD_CLOEXEC));
    CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
    memset(name, 'n', 251), name[250] = 0;
    CHECK_ERR(memfd_create(name, 0), EINVAL);
    CHECK_ERR(memfd_create("x", 0x80), EINVAL);
    CHECK_ERR(memfd_create(BAD, 0), EFAULT);
    CHECK(memfd_create("", 0) >= 0);
}
CASE(shown_as_deleted_file) {
    int fd = memfd_create("some name", 0);
    char p[40], b[100];
    snprintf(p, sizeof p, "/proc/self/fd/%d", fd);
    int n = readlink(p, b, sizeof b);
    CHECK(n > 0);
    b[n] = 0;
    CHECK(!strcmp(b, "/memfd:some name (deleted)"));
    struct stat s;
    CHECK(fstat(fd, &s) == 0 && S_ISREG(s.st_mode) && s.st_nlink == 0 && (s.st_mode & 0777) == 0777);
}
CASE(two_of_a_name_differ) {
    int a = memfd_create("same", 0), b = memfd_create("same", 0);
    struct stat s, t;
    CHECK(write(a, "x", 1) == 1 && fstat(b, &t) == 0 && t.st_size == 0 && fstat(a, &s) == 0 && s.st_ino != t.st_ino);
}
CASE(without_allow_sealing) {
    int fd = memfd_create("m", 0);
    CHECK_EQ(fcntl(fd, F_GET_SEALS), F_SEAL_SEAL);
    CHECK_ERR(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW), EPERM);
}
CASE(seals_accumulate) {
    int fd = sealed(F_SEAL_GROW);
    CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    CHECK_EQ(fcntl(fd, F_GET_SEALS), F_SEAL_GROW | F_SEAL_SHRINK);
    CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL) == 0);
    CHECK_ERR(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), EPERM);
    CHECK_ERR(fcntl(fd, F_ADD_SEALS, 0x1000), EINVAL);
}
CASE(grow) {
    int fd = sealed(F_SEAL_GROW);
    CHECK_ERR(ftruncate(fd, 8193), EPERM);
    CHECK(ftruncate(fd, 4096) == 0);
    CHECK_ERR(pwrite(fd, "xy", 2, 4096), EPERM);
    CHECK_EQ(pwrite(fd, "xy", 2, 4094), 2);
    CHECK_ERR(fallocate(fd, 0, 0, 8192), EPERM);
    CHECK(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 4096) == 0);
}
CASE(grow_cuts_a_crossing_write) {
    int fd = sealed(F_SEAL_GROW);
    char b[100] = {1};
    CHECK_EQ(pwrite(fd, b, 100, 8192 - 40), 40);
}
CASE(shrink) {
    int fd = sealed(F_SEAL_SHRINK);
    CHECK_ERR(ftruncate(fd, 8191), EPERM);
    CHECK(ftruncate(fd, 8192) == 0 && ftruncate(fd, 10000) == 0);
    CHECK_ERR(ftruncate(fd, 8192), EPERM);
    CHECK_ERR(open("/proc/self/fd/3", O_RDWR | O_TRUNC), EPERM);
}
CASE(write_seal_refuses_all_changes) {
    int fd = sealed(F_SEAL_WRITE);
    CHECK_ERR(write(fd, "x", 1), EPERM);
    CHECK_ERR(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), EPERM);
    CHECK(map(fd, PROT_READ | PROT_WRITE, MAP_SHARED) == MAP_FAILED && errno == EPERM);
    void *p = map(fd, PROT_READ, MAP_SHARED);
    CHECK(p != MAP_FAILED);
    CHECK_ERR(mprotect(p, 8192, PROT_READ | PROT_WRITE), EACCES);
    CHECK(map(fd, PROT_READ | PROT_WRITE, MAP_PRIVATE) != MAP_FAILED);
    CHECK(ftruncate(fd, 10) == 0);  // the size is another seal's
}
CASE(write_seal_waits_for_writable_maps) {
    int fd = sealed(0);
    char *p = map(fd, PROT_READ | PROT_WRITE, MAP_SHARED);
    CHECK_ERR(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), EBUSY);
    CHECK(mprotect(p, 8192, PROT_READ) == 0);
    CHECK_ERR(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), EBUSY);  // it could be made writable again
    munmap(p, 4096);
    CHECK_ERR(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), EBUSY);
    munmap(p + 4096, 4096);
    CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == 0);
}
CASE(private_map_does_not_hinder_write_seal) {
    int fd = sealed(0);
    char *p = map(fd, PROT_READ | PROT_WRITE, MAP_PRIVATE);
    p[0] = 'x';
    CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == 0);
    p[1] = 'y';
    CHECK_EQ(p[0], 'x');
}
CASE(write_seal_waits_for_other_process) {
    int fd = sealed(0), p[2], q[2];
    CHECK(pipe(p) == 0 && pipe(q) == 0);
    pid_t c = SPAWN(void *m = map(fd, PROT_WRITE, MAP_SHARED); write(p[1], m == MAP_FAILED ? "f" : "m", 1); char x; read(q[0], &x, 1));
    char x;
    CHECK(read(p[0], &x, 1) == 1 && x == 'm');
    CHECK_ERR(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), EBUSY);
    write(q[1], "x", 1), join(c);
    CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == 0);
}
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x10
#endif
CASE(future_write_keeps_present_maps) {
    int fd = sealed(0);
    char *p = map(fd, PROT_READ | PROT_WRITE, MAP_SHARED);
    CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) == 0);
    p[0] = 'x';
    char c;
    CHECK(pread(fd, &c, 1, 0) == 1 && c == 'x');
    CHECK_ERR(write(fd, "x", 1), EPERM);
    CHECK(map(fd, PROT_READ | PROT_WRITE, MAP_SHARED) == MAP_FAILED && errno == EPERM);
    char *r = map(fd, PROT_READ, MAP_SHARED);
    CHECK(r != MAP_FAILED && r[0] == 'x');
    CHECK_ERR(mprotect(r, 8192, PROT_READ | PROT_WRITE), EACCES);
}
CASE(seals_need_a_writable_descriptor) {
    int fd = sealed(0);
    char p[40];
    snprintf(p, sizeof p, "/proc/self/fd/%d", fd);
    int r = open(p, O_RDONLY);
    CHECK(r >= 0);
    CHECK_ERR(fcntl(r, F_ADD_SEALS, F_SEAL_GROW), EPERM);
    CHECK_EQ(fcntl(r, F_GET_SEALS), 0);
}
CASE(seals_are_of_the_file) {
    int fd = sealed(F_SEAL_GROW), p[2];
    char path[40];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int again = open(path, O_RDWR);
    CHECK_ERR(ftruncate(again, 100000), EPERM);
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, p) == 0);
    pid_t c = SPAWN(_exit(ftruncate(again, 100000) == -1 && errno == EPERM ? 3 : 4));
    CHECK_EQ(join(c), 3);
}
CASE(other_files_have_no_seals) {
    scratch();
    int fd = mkfile("f", ""), p[2];
    CHECK(pipe(p) == 0);
    CHECK_ERR(fcntl(p[0], F_GET_SEALS), EINVAL);
    CHECK_ERR(fcntl(p[1], F_ADD_SEALS, 0), EINVAL);
    int r = fcntl(fd, F_GET_SEALS);
    CHECK(r == F_SEAL_SEAL || (r == -1 && errno == EINVAL));  // tmpfs files say sealed, others have none
}
CASE(survives_exec_of_itself) {
    int fd = memfd_create("prog", 0), src = open("/proc/self/exe", O_RDONLY);
    char b[65536];
    long n;
    while ((n = read(src, b, sizeof b)) > 0) CHECK(write(fd, b, n) == n);
    pid_t c = SPAWN(char *argv[] = {"prog", "-l", NULL}; char *env[] = {NULL}; close(1); open("/dev/null", O_WRONLY); fexecve(fd, argv, env); _exit(99));
    CHECK_EQ(join(c), 0);
}
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8
#define MFD_EXEC 0x10
#endif
CASE(noexec_seal) {
    int fd = memfd_create("m", MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL) SKIP("before Linux 6.3");
    CHECK_EQ(fcntl(fd, F_GET_SEALS), 0x20);  // F_SEAL_EXEC
    struct stat s;
    CHECK(fstat(fd, &s) == 0 && (s.st_mode & 0777) == 0666);
    CHECK_ERR(fchmod(fd, 0777), EPERM);
    CHECK_ERR(memfd_create("m", MFD_NOEXEC_SEAL | MFD_EXEC), EINVAL);
}
