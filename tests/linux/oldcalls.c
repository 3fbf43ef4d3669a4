// Calls that libc no longer makes itself: the older forms must agree with the newer ones, and keep their own rules.
#include "t.h"
#include <dirent.h>
#include <linux/kcmp.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/timex.h>
#include <utime.h>
#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif

CASE(creat_truncates_and_is_write_only) {
    scratch();
    close(mkfile("f", "text"));
    int fd = CHECK_OK(syscall(SYS_creat, "f", 0600));
    struct stat s;
    CHECK(fstat(fd, &s) == 0 && s.st_size == 0 && (s.st_mode & 0777) == 0644);  // the mode is for new files
    char c;
    CHECK_ERR(read(fd, &c, 1), EBADF);
    CHECK_ERR(syscall(SYS_creat, ".", 0600), EISDIR);
}
CASE(open_call_and_umask) {
    scratch();
    umask(027);
    int fd = CHECK_OK(syscall(SYS_open, "f", O_CREAT | O_RDWR, 0777));
    struct stat s;
    CHECK(fstat(fd, &s) == 0 && (s.st_mode & 0777) == 0750);
    CHECK_ERR(syscall(SYS_open, "g", O_CREAT | O_EXCL | O_DIRECTORY, 0777), EINVAL);
}
CASE(fork_call) {
    pid_t p = syscall(SYS_fork);
    if (p == 0) _exit(getppid() == getpgrp() ? 3 : 4);
    CHECK(p > 0);
    CHECK_EQ(join(p), 3);
}
CASE(time_agrees_with_gettimeofday) {
    struct timeval a, b;
    gettimeofday(&a, NULL);
    time_t stored = 0, t = syscall(SYS_time, &stored);
    gettimeofday(&b, NULL);
    CHECK(t == stored && t >= a.tv_sec - 1 && t <= b.tv_sec);
    CHECK_ERR(syscall(SYS_time, noaccess()), EFAULT);
}
CASE(utime_sets_whole_seconds) {
    scratch();
    close(mkfile("f", ""));
    struct utimbuf u = {1000, 2000};
    CHECK(syscall(SYS_utime, "f", &u) == 0);
    struct stat s;
    CHECK(stat("f", &s) == 0 && s.st_atime == 1000 && s.st_mtime == 2000 && s.st_mtim.tv_nsec == 0);
    time_t now = time(NULL);
    CHECK(syscall(SYS_utime, "f", NULL) == 0);
    CHECK(stat("f", &s) == 0 && s.st_atime >= now - 1 && s.st_mtime == s.st_atime);
    CHECK_ERR(syscall(SYS_utime, "missing", NULL), ENOENT);
}
CASE(utimes_microseconds) {
    scratch();
    close(mkfile("f", ""));
    struct timeval tv[2] = {{10, 123456}, {20, 999999}};
    CHECK(syscall(SYS_utimes, "f", tv) == 0);
    struct stat s;
    CHECK(stat("f", &s) == 0 && s.st_atim.tv_nsec == 123456000 && s.st_mtim.tv_nsec == 999999000 && s.st_mtime == 20);
    tv[1].tv_usec = 1000000;
    CHECK_ERR(syscall(SYS_utimes, "f", tv), EINVAL);
    tv[1].tv_usec = -1;
    CHECK_ERR(syscall(SYS_utimes, "f", tv), EINVAL);
}
CASE(futimesat_relative_and_null_path) {
    scratch();
    mkdir("d", 0755);
    close(mkfile("d/f", ""));
    int d = open("d", O_RDONLY), f = open("d/f", O_RDWR);
    struct timeval tv[2] = {{1, 0}, {2, 0}};
    CHECK(syscall(SYS_futimesat, d, "f", tv) == 0);
    struct stat s;
    CHECK(stat("d/f", &s) == 0 && s.st_mtime == 2);
    tv[1].tv_sec = 3;
    CHECK(syscall(SYS_futimesat, f, NULL, tv) == 0);
    CHECK(stat("d/f", &s) == 0 && s.st_mtime == 3);
    CHECK_ERR(syscall(SYS_futimesat, f, "x", tv), ENOTDIR);
}
struct old_dirent { unsigned long ino, off; unsigned short len; char name[]; };
CASE(getdents_old_layout) {
    scratch();
    mkdir("sub", 0755);
    close(mkfile("file", ""));
    symlink("x", "link");
    int fd = open(".", O_RDONLY), seen = 0;
    char b[1024];
    long n = syscall(SYS_getdents, fd, b, sizeof b);
    for (long i = 0; i < n;) {
        struct old_dirent *e = (void *)(b + i);
        char type = b[i + e->len - 1];  // the type is the last byte of the record
        CHECK(e->len % 8 == 0);
        struct stat s;
        CHECK(lstat(e->name, &s) == 0 && (s.st_ino == e->ino || !strcmp(e->name, "..")));
        CHECK_EQ(type, IFTODT(s.st_mode));
        seen++, i += e->len;
    }
    CHECK_EQ(seen, 5);
    CHECK_EQ(syscall(SYS_getdents, fd, b, sizeof b), 0);
    lseek(fd, 0, SEEK_SET);
    CHECK_ERR(syscall(SYS_getdents, fd, b, 8), EINVAL);
    CHECK_ERR(syscall(SYS_getdents, fd, noaccess(), 1024), EFAULT);
}
CASE(eventfd_call_has_no_flags) {
    int fd = CHECK_OK(syscall(SYS_eventfd, 5));
    uint64_t v;
    CHECK(read(fd, &v, 8) == 8 && v == 5);
    CHECK_EQ(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
    CHECK_EQ(fcntl(fd, F_GETFD), 0);
}
CASE(signalfd_call) {
    uint64_t m = 1ull << (SIGUSR1 - 1);
    sigprocmask(SIG_BLOCK, (sigset_t *)(uint64_t[16]){m}, NULL);
    int fd = CHECK_OK(syscall(SYS_signalfd, -1, &m, 8));
    raise(SIGUSR1);
    char info[128];
    CHECK_EQ(read(fd, info, 128), 128);
    CHECK_EQ(*(int *)info, SIGUSR1);
    CHECK_ERR(syscall(SYS_signalfd, -1, &m, 4), EINVAL);
}
CASE(inotify_init_call) {
    scratch();
    int fd = CHECK_OK(syscall(SYS_inotify_init));
    CHECK_OK(inotify_add_watch(fd, ".", IN_CREATE));
    close(mkfile("new", ""));
    struct { struct inotify_event e; char name[16]; } ev;
    CHECK(read(fd, &ev, sizeof ev) == sizeof ev && ev.e.mask == IN_CREATE && !strcmp(ev.name, "new"));
}
CASE(epoll_create_size_ignored) {
    int a = CHECK_OK(syscall(SYS_epoll_create, 1)), b = CHECK_OK(syscall(SYS_epoll_create, INT_MAX));
    CHECK(a != b && fcntl(a, F_GETFD) == 0);
    CHECK_ERR(syscall(SYS_epoll_create, -1), EINVAL);
}
CASE(readlinkat_forms) {
    scratch();
    symlink("target-text", "l");
    close(mkfile("f", ""));
    int d = open(".", O_RDONLY), l = open("l", O_PATH | O_NOFOLLOW), f = open("f", O_RDONLY);
    char b[32] = "################";
    CHECK_EQ(readlinkat(d, "l", b, 6), 6);  // cut, no terminator
    CHECK(!memcmp(b, "target#", 7));
    CHECK_EQ(readlinkat(l, "", b, sizeof b), 11);
    CHECK_ERR(readlinkat(f, "", b, sizeof b), ENOENT);
    CHECK_ERR(readlinkat(d, "f", b, sizeof b), EINVAL);
    CHECK_ERR(readlinkat(d, "l", b, 0), EINVAL);
    CHECK_ERR(readlinkat(f, "l", b, sizeof b), ENOTDIR);
}
CASE(faccessat_has_no_flags) {
    scratch();
    close(mkfile("f", ""));
    symlink("missing", "l");
    CHECK(syscall(SYS_faccessat, AT_FDCWD, "f", R_OK | W_OK, 0xffff) == 0);  // a fourth argument does not exist
    CHECK_ERR(syscall(SYS_faccessat, AT_FDCWD, "l", F_OK), ENOENT);
    CHECK_ERR(syscall(SYS_faccessat, AT_FDCWD, "f", 8), EINVAL);
    CHECK_ERR(syscall(SYS_faccessat2, AT_FDCWD, "f", R_OK, 0x8000), EINVAL);
    CHECK(syscall(SYS_faccessat2, AT_FDCWD, "l", F_OK, AT_SYMLINK_NOFOLLOW) == 0);
    CHECK(syscall(SYS_faccessat2, open("f", O_PATH), "", F_OK, AT_EMPTY_PATH) == 0);
}
CASE(fchmodat2_flags) {
    scratch();
    close(mkfile("f", ""));
    symlink("f", "l");
    int p = open("f", O_PATH);
    struct stat s;
    CHECK(syscall(SYS_fchmodat2, p, "", 0601, AT_EMPTY_PATH) == 0);
    CHECK(stat("f", &s) == 0 && (s.st_mode & 07777) == 0601);
    CHECK_ERR(syscall(SYS_fchmodat2, AT_FDCWD, "l", 0600, AT_SYMLINK_NOFOLLOW), EOPNOTSUPP);
    CHECK_ERR(syscall(SYS_fchmodat2, AT_FDCWD, "l", 0600, 0x4), EINVAL);
    CHECK(syscall(SYS_fchmodat2, AT_FDCWD, "l", 0640, 0) == 0);
    CHECK(stat("f", &s) == 0 && (s.st_mode & 07777) == 0640);
}
CASE(sync_file_range_arguments) {
    scratch();
    int fd = mkfile("f", "data"), p[2];
    CHECK(sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER) == 0);
    CHECK_ERR(sync_file_range(fd, -1, 1, 0), EINVAL);
    CHECK_ERR(sync_file_range(fd, 0, 1, 0x80), EINVAL);
    CHECK(pipe(p) == 0);
    CHECK_ERR(sync_file_range(p[0], 0, 1, 0), ESPIPE);
    CHECK_ERR(sync_file_range(999, 0, 1, 0), EBADF);
}
CASE(adjtimex_reads_state) {
    struct timex t = {0};
    int r = CHECK_OK(syscall(SYS_adjtimex, &t));
    CHECK(r >= 0 && r <= 5);
    CHECK(t.tick > 8000 && t.tick < 12000);
    CHECK(llabs(t.time.tv_sec - time(NULL)) <= 1);
    CHECK_ERR(syscall(SYS_adjtimex, noaccess()), EFAULT);
}
CASE(adjtimex_change_needs_privilege) {
    t_drop_root();
    struct timex t = {.modes = ADJ_TICK, .tick = 10000};
    CHECK_ERR(syscall(SYS_adjtimex, &t), EPERM);
}
CASE(alarm_is_rounded_up) {
    alarm(100);
    CHECK_EQ(syscall(SYS_alarm, 0), 100);
    CHECK_EQ(syscall(SYS_alarm, 0), 0);
}
CASE(getpgrp_and_getpgid_agree) {
    CHECK_EQ(syscall(SYS_getpgrp), getpid());
    CHECK_EQ(getpgid(0), getpid());
    CHECK_ERR(getpgid(-1), ESRCH);
    CHECK_ERR(getsid(-1), ESRCH);
}
static pid_t forked;
CASE(kcmp_files_and_memory) {
    int a = open("/", O_RDONLY), b = dup(a), c = open("/", O_RDONLY);
    pid_t me = getpid();
    CHECK_EQ(syscall(SYS_kcmp, me, me, KCMP_FILE, a, b), 0);
    long r = syscall(SYS_kcmp, me, me, KCMP_FILE, a, c);
    CHECK(r == 1 || r == 2);
    CHECK_EQ(syscall(SYS_kcmp, me, me, KCMP_FILE, c, a), 3 - r);  // an order
    CHECK_EQ(syscall(SYS_kcmp, me, me, KCMP_VM, 0, 0), 0);
    CHECK_ERR(syscall(SYS_kcmp, me, me, KCMP_FILE, a, 999), EBADF);
    CHECK_ERR(syscall(SYS_kcmp, me, me, 99, 0, 0), EINVAL);
    CHECK_ERR(syscall(SYS_kcmp, me, 999999, KCMP_VM, 0, 0), ESRCH);
    int p[2];
    CHECK(pipe(p) == 0);
    forked = SPAWN(char x; read(p[0], &x, 1));
    CHECK_EQ(syscall(SYS_kcmp, me, forked, KCMP_FILE, a, a), 0);
    CHECK(syscall(SYS_kcmp, me, forked, KCMP_VM, 0, 0) > 0);
    CHECK(syscall(SYS_kcmp, me, forked, KCMP_FILES, 0, 0) > 0);
    write(p[1], "x", 1);
    join(forked);
}
CASE(setdomainname_rules) {
    char old[65], now[65];
    CHECK(getdomainname(old, sizeof old) == 0);
    if (unshare(0x04000000) != 0) {}  // natively: a UTS name space of our own
    CHECK(setdomainname("some.domain", 11) == 0);
    CHECK(getdomainname(now, sizeof now) == 0 && !strcmp(now, "some.domain"));
    char big[80];
    memset(big, 'a', sizeof big);
    CHECK_ERR(setdomainname(big, 65), EINVAL);
    CHECK_ERR(syscall(SYS_setdomainname, "x", -1), EINVAL);
    CHECK_ERR(syscall(SYS_setdomainname, noaccess(), 5), EFAULT);
    CHECK(setdomainname(old, strlen(old)) == 0);
    t_drop_root();
    CHECK_ERR(setdomainname("x", 1), EPERM);
}
CASE(setregid_saved_id) {
    CHECK(setregid(5, 6) == 0);
    gid_t r, e, s;
    CHECK(getresgid(&r, &e, &s) == 0 && r == 5 && e == 6 && s == 6);
    CHECK(setregid(-1, 7) == 0 && getresgid(&r, &e, &s) == 0 && r == 5 && e == 7 && s == 7);
    CHECK(setresuid(1000, 1000, 1000) == 0);
    CHECK_ERR(setregid(99, -1), EPERM);
    CHECK(setregid(7, 5) == 0 && getgid() == 7 && getegid() == 5);
}
CASE(setfsgid_returns_old_and_limits) {
    CHECK_EQ(syscall(SYS_setfsgid, 42), 0);
    CHECK_EQ(syscall(SYS_setfsgid, -1), 42);
    scratch();
    close(mkfile("f", ""));
    struct stat s;
    CHECK(stat("f", &s) == 0 && s.st_gid == 42);
    t_drop_root();
    CHECK_EQ(syscall(SYS_setfsgid, 5), 1000);   // follows the effective id
    CHECK_EQ(syscall(SYS_setfsgid, -1), 1000);  // refused without an error
}
struct cap_head { uint32_t version; int pid; };
struct cap_data { uint32_t e, p, i; };
CASE(capset_lowers_and_never_raises) {
    struct cap_head h = {0x20080522, 0};
    struct cap_data d[2];
    CHECK(syscall(SYS_capget, &h, d) == 0);
    CHECK(d[0].p & 1 << 5);  // CAP_KILL
    d[0].e &= ~(1u << 5);
    CHECK(syscall(SYS_capset, &h, d) == 0);
    d[0].e |= 1 << 5;  // still permitted
    CHECK(syscall(SYS_capset, &h, d) == 0);
    d[0].e &= ~(1u << 5), d[0].p &= ~(1u << 5);
    CHECK(syscall(SYS_capset, &h, d) == 0);
    d[0].p |= 1 << 5;
    CHECK_ERR(syscall(SYS_capset, &h, d), EPERM);
    d[0].p &= ~(1u << 5), d[0].e |= 1 << 5;  // effective must be within permitted
    CHECK_ERR(syscall(SYS_capset, &h, d), EPERM);
    h.version = 1;
    CHECK_ERR(syscall(SYS_capset, &h, d), EINVAL);
    CHECK_EQ(h.version, 0x20080522);  // told the version to use
    h.pid = 1 << 30;
    CHECK_ERR(syscall(SYS_capset, &h, d), EPERM);
}
CASE(cap_kill_is_what_lets_root_kill) {
    int p[2];
    CHECK(pipe(p) == 0);
    pid_t other = SPAWN(setresuid(1000, 1000, 1000); write(p[1], "x", 1); pause());
    char c;
    CHECK(read(p[0], &c, 1) == 1);
    struct cap_head h = {0x20080522, 0};
    struct cap_data d[2];
    CHECK(syscall(SYS_capget, &h, d) == 0);
    struct cap_data without[2] = {d[0], d[1]};
    without[0].e &= ~(1u << 5);
    CHECK(syscall(SYS_capset, &h, without) == 0);
    CHECK_ERR(kill(other, 0), EPERM);
    CHECK(syscall(SYS_capset, &h, d) == 0);
    CHECK(kill(other, SIGKILL) == 0);
    CHECK_EQ(join(other), 128 + SIGKILL);
}
CASE(semop_without_timeout) {
    int id = CHECK_OK(syscall(SYS_semget, 0, 2, 0600));
    struct { unsigned short num; short op, flag; } ops[2] = {{0, 3, 0}, {1, 1, 0}};
    CHECK(syscall(SYS_semop, id, ops, 2) == 0);
    CHECK_EQ(syscall(SYS_semctl, id, 0, 12), 3);  // GETVAL
    ops[0].op = -4, ops[0].flag = 04000, ops[1].op = -1;
    CHECK_ERR(syscall(SYS_semop, id, ops, 2), EAGAIN);
    CHECK_EQ(syscall(SYS_semctl, id, 1, 12), 1);  // all or nothing
    CHECK(syscall(SYS_semctl, id, 0, 0) == 0);
}

// The 32-bit ABI from a 64-bit program.
static long by_int80(long number, long a, long b, long c) {
    long r = number;
    __asm__ volatile("int $0x80" : "+a"(r) : "b"(a), "c"(b), "d"(c) : "memory", "r8", "r9", "r10", "r11");
    return r;
}
static void need_int80(void) {
    pid_t p = fork();
    if (p == 0) {
        by_int80(20, 0, 0, 0);
        _exit(0);
    }
    if (join(p) != 0) SKIP("the kernel has no 32-bit ABI");
}
CASE(int80_serves_numbers_names_and_bytes) {
    need_int80();
    scratch();
    CHECK_EQ(by_int80(20, 0, 0, 0), getpid());
    CHECK_EQ(by_int80(64, 0, 0, 0), getppid());
    CHECK_EQ(by_int80(224, 0, 0, 0), syscall(SYS_gettid));
    CHECK_EQ(by_int80(199, 0, 0, 0), getuid());
    char *low = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    CHECK(low != MAP_FAILED);
    strcpy(low, "file");
    int fd = by_int80(5, (long)low, O_CREAT | O_RDWR, 0600);
    CHECK(fd >= 0);
    CHECK_EQ(by_int80(4, fd, (long)low, 4), 4);
    CHECK(lseek(fd, 0, SEEK_SET) == 0);
    CHECK_EQ(by_int80(3, fd, (long)low + 100, 10), 4);
    CHECK(memcmp(low + 100, "file", 4) == 0);
    CHECK_EQ(by_int80(10, (long)low, 0, 0), 0);
    CHECK_EQ(by_int80(10, (long)low, 0, 0), -ENOENT);
    CHECK_EQ(by_int80(6, fd, 0, 0), 0);
    CHECK_EQ(by_int80(6, fd, 0, 0), -EBADF);
    // Only the lower halves of the registers count.
    CHECK_EQ(by_int80((1L << 40) | 20, 0, 0, 0), getpid());
    CHECK_EQ(by_int80(1000, 0, 0, 0), -ENOSYS);
    CHECK_EQ(by_int80(-1, 0, 0, 0), -ENOSYS);
    pid_t p = fork();
    if (p == 0) by_int80(1, 7, 0, 0);
    CHECK_EQ(join(p), 7);
}
CASE(int80_leaves_the_registers_alone) {
    need_int80();
    // r8 to r11 are not in that ABI.
    long r = 20, di = 0x1111222233334444, si = di + 1, dx = di + 2, cx = di + 3;
    long x_di = di, x_si = si, x_dx = dx, x_cx = cx;
    __asm__ volatile("int $0x80"
                     : "+a"(r), "+D"(x_di), "+S"(x_si), "+d"(x_dx), "+c"(x_cx)
                     :
                     : "memory", "r8", "r9", "r10", "r11");
    CHECK_EQ(r, getpid());
    CHECK(x_di == di && x_si == si && x_dx == dx && x_cx == cx);
}
static void noted(int s) { (void)s; }
CASE(int80_is_made_again_after_a_signal) {
    need_int80();
    char *low = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    CHECK(low != MAP_FAILED);
    int fd[2];
    CHECK(pipe(fd) == 0);
    struct sigaction a = {.sa_handler = noted, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &a, NULL);
    pid_t self = getpid(), p = fork();
    if (p == 0) {
        msleep(50);
        kill(self, SIGUSR1);
        msleep(50);
        if (write(fd[1], "x", 1) != 1) _exit(1);
        _exit(0);
    }
    CHECK_EQ(by_int80(3, fd[0], (long)low, 1), 1);
    CHECK(low[0] == 'x');
    CHECK_EQ(join(p), 0);
}
CASE(call_numbers_have_32_bits) {
    long r;
    __asm__ volatile("syscall" : "=a"(r) : "a"((1L << 32) | SYS_getpid) : "rcx", "r11", "memory");
    CHECK_EQ(r, getpid());
    __asm__ volatile("syscall" : "=a"(r) : "a"((1L << 63) | SYS_getppid) : "rcx", "r11", "memory");
    CHECK_EQ(r, getppid());
    __asm__ volatile("syscall" : "=a"(r) : "a"(1L << 31) : "rcx", "r11", "memory");
    CHECK_EQ(r, -ENOSYS);
}
