// File metadata: permissions, owners, times, stat, statx, statfs, extended attributes.
#include "t.h"
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

static struct stat st_of(const char *p) {
    struct stat st;
    if (lstat(p, &st) < 0) FAIL("lstat %s: errno %d", p, errno);
    return st;
}
static void need_root(void) {
    if (geteuid()) SKIP("needs root");
}
#define AS_USER(...) CHECK_EQ(join(SPAWN({ t_drop_root(); __VA_ARGS__; })), 0)

CASE(permission_read_write_denied) {
    need_root();
    scratch();
    close(mkfile("f", "x"));
    chmod("f", 0600);
    AS_USER(CHECK_ERR(open("f", O_RDONLY), EACCES); CHECK_ERR(open("f", O_WRONLY), EACCES));
    chmod("f", 0604);
    AS_USER(CHECK(open("f", O_RDONLY) >= 0); CHECK_ERR(open("f", O_RDWR), EACCES));
}
CASE(permission_class_is_exclusive) {
    need_root();
    scratch();
    close(mkfile("f", "x"));
    chown("f", 1000, 1000);
    chmod("f", 0066);  // the owner is refused even though others may
    AS_USER(CHECK_ERR(open("f", O_RDONLY), EACCES));
    chown("f", 0, 1000);
    chmod("f", 0606);
    AS_USER(CHECK_ERR(open("f", O_RDONLY), EACCES));
}
CASE(permission_supplementary_group) {
    need_root();
    scratch();
    close(mkfile("f", "x"));
    chown("f", 0, 777);
    chmod("f", 0640);
    CHECK_EQ(join(SPAWN({
        gid_t g = 777;
        CHECK(syscall(SYS_setgroups, 1, &g) == 0);
        CHECK(setresgid(1000, 1000, 1000) == 0 && setresuid(1000, 1000, 1000) == 0);
        CHECK(open("f", O_RDONLY) >= 0);
        CHECK_ERR(open("f", O_WRONLY), EACCES);
    })), 0);
}
CASE(permission_directory_search_and_write) {
    need_root();
    scratch();
    mkdir("d", 0755);
    close(mkfile("d/f", "x"));
    chmod("d/f", 0666);
    AS_USER(CHECK_ERR(unlink("d/f"), EACCES); CHECK_ERR(open("d/g", O_CREAT | O_WRONLY, 0600), EACCES); CHECK_ERR(rename("d/f", "d/h"), EACCES));
    chmod("d", 0711);
    AS_USER(CHECK(open("d/f", O_RDONLY) >= 0); CHECK_ERR(open("d", O_RDONLY), EACCES); CHECK(chdir("d") == 0));
    chmod("d", 0744);
    AS_USER(CHECK_ERR(open("d/f", O_RDONLY), EACCES); CHECK(open("d", O_RDONLY) >= 0); CHECK_ERR(chdir("d"), EACCES));
}
CASE(sticky_directory) {
    need_root();
    scratch();
    mkdir("d", 0755);
    chmod("d", 01777);
    close(mkfile("d/f", "x"));
    chmod("d/f", 0666);
    AS_USER(CHECK_ERR(unlink("d/f"), EPERM); CHECK_ERR(rename("d/f", "d/g"), EPERM));
}
CASE(root_overrides_but_not_exec) {
    need_root();
    scratch();
    close(mkfile("f", "x"));
    chmod("f", 0);
    CHECK(open("f", O_RDWR) >= 0);
    CHECK_ERR(access("f", X_OK), EACCES);
    chmod("f", 0001);
    CHECK(access("f", X_OK) == 0);
}
CASE(access_uses_real_ids) {
    need_root();
    scratch();
    close(mkfile("f", "x"));
    chmod("f", 0600);
    CHECK_EQ(join(SPAWN({
        CHECK(setresuid(1000, 0, 0) == 0);
        CHECK_ERR(access("f", R_OK), EACCES);
        CHECK(faccessat(AT_FDCWD, "f", R_OK, AT_EACCESS) == 0);
        CHECK(open("f", O_RDONLY) >= 0);
    })), 0);
    CHECK_ERR(access("f", 0x10), EINVAL);
}
CASE(chmod_rules) {
    need_root();
    scratch();
    close(mkfile("f", "x"));
    CHECK(chmod("f", 04755) == 0);
    CHECK_EQ(st_of("f").st_mode & 07777, 04755);
    AS_USER(CHECK_ERR(chmod("f", 0777), EPERM));
    chown("f", 1000, 500);
    AS_USER(CHECK(chmod("f", 02755) == 0));
    CHECK_EQ(st_of("f").st_mode & 07777, 0755);  // not in the group: setgid is dropped
}
CASE(chown_rules_and_suid_drop) {
    need_root();
    scratch();
    close(mkfile("f", "x"));
    chmod("f", 06755);
    CHECK(chown("f", 1000, 1000) == 0);
    CHECK_EQ(st_of("f").st_mode & 07777, 0755);
    AS_USER(CHECK_ERR(chown("f", 0, -1), EPERM); CHECK_ERR(chown("f", -1, 55), EPERM); CHECK(chown("f", -1, 1000) == 0));
    symlink("f", "l");
    CHECK(lchown("l", 7, 8) == 0);
    CHECK(st_of("l").st_uid == 7 && st_of("f").st_uid == 1000);
    CHECK(fchownat(AT_FDCWD, "l", 9, -1, AT_SYMLINK_NOFOLLOW) == 0);
    CHECK(st_of("l").st_uid == 9 && st_of("l").st_gid == 8);
}
CASE(write_drops_suid) {
    need_root();
    scratch();
    close(mkfile("f", "x"));
    chown("f", 1000, 1000);
    chmod("f", 04777);
    AS_USER(int fd = open("f", O_WRONLY); CHECK(write(fd, "y", 1) == 1));
    CHECK_EQ(st_of("f").st_mode & 07777, 0777);
}
CASE(utimens_set_and_special) {
    scratch();
    close(mkfile("f", "x"));
    struct timespec t[2] = {{1000, 123456789}, {2000, 5}};
    CHECK(utimensat(AT_FDCWD, "f", t, 0) == 0);
    struct stat s = st_of("f");
    CHECK(s.st_atim.tv_sec == 1000 && s.st_mtim.tv_sec == 2000);
    CHECK_EQ(s.st_atim.tv_nsec, 123456789);
    t[0].tv_nsec = UTIME_OMIT, t[1].tv_nsec = UTIME_NOW;
    CHECK(utimensat(AT_FDCWD, "f", t, 0) == 0);
    s = st_of("f");
    CHECK(s.st_atim.tv_sec == 1000 && s.st_mtim.tv_sec > 1000000000);
    t[0].tv_nsec = 1000000000;
    CHECK_ERR(utimensat(AT_FDCWD, "f", t, 0), EINVAL);
    CHECK_ERR(utimensat(AT_FDCWD, "none", NULL, 0), ENOENT);
}
CASE(utimens_symlink_and_fd) {
    scratch();
    int fd = mkfile("f", "x");
    symlink("f", "l");
    struct timespec t[2] = {{10, 0}, {20, 0}};
    CHECK(utimensat(AT_FDCWD, "l", t, AT_SYMLINK_NOFOLLOW) == 0);
    CHECK_EQ(st_of("l").st_mtim.tv_sec, 20);
    CHECK(st_of("f").st_mtim.tv_sec != 20);
    CHECK(futimens(fd, t) == 0);
    CHECK_EQ(st_of("f").st_mtim.tv_sec, 20);
}
CASE(utimens_permission) {
    need_root();
    scratch();
    close(mkfile("f", "x"));
    chmod("f", 0666);
    AS_USER(struct timespec t[2]; memset(t, 0, sizeof t); CHECK(utimensat(AT_FDCWD, "f", NULL, 0) == 0); CHECK_ERR(utimensat(AT_FDCWD, "f", t, 0), EPERM));
    chmod("f", 0644);
    AS_USER(CHECK_ERR(utimensat(AT_FDCWD, "f", NULL, 0), EACCES));
}
CASE(times_follow_operations) {
    scratch();
    int fd = mkfile("f", "x");
    struct timespec old[2] = {{100, 0}, {100, 0}};
    futimens(fd, old);
    CHECK(write(fd, "y", 1) == 1);
    CHECK(st_of("f").st_mtim.tv_sec > 100);
    futimens(fd, old);
    CHECK(ftruncate(fd, 0) == 0);
    CHECK(st_of("f").st_mtim.tv_sec > 100);
    struct timespec c = st_of("f").st_ctim;
    msleep(20);
    CHECK(chmod("f", 0600) == 0);
    struct timespec d = st_of("f").st_ctim;
    CHECK(d.tv_sec > c.tv_sec || d.tv_nsec > c.tv_nsec);
    utimensat(AT_FDCWD, ".", old, 0);
    CHECK(unlink("f") == 0);
    CHECK(st_of(".").st_mtim.tv_sec > 100);
}
CASE(stat_fields) {
    scratch();
    int fd = mkfile("f", "hello");
    struct stat s, t;
    CHECK(fstat(fd, &s) == 0 && stat("f", &t) == 0);
    CHECK(s.st_ino == t.st_ino && s.st_dev == t.st_dev);
    CHECK(S_ISREG(s.st_mode) && s.st_size == 5 && s.st_nlink == 1 && s.st_uid == getuid());
    CHECK(s.st_blksize >= 512);
    CHECK(stat("/dev/null", &s) == 0);
    CHECK(S_ISCHR(s.st_mode) && s.st_rdev == makedev(1, 3));
    CHECK_ERR(stat("", &s), ENOENT);
    CHECK_ERR(fstat(-1, &s), EBADF);
}
CASE(statx_fields) {
    scratch();
    int fd = mkfile("f", "hello");
    struct statx x;
    CHECK(statx(AT_FDCWD, "f", 0, STATX_BASIC_STATS | STATX_BTIME, &x) == 0);
    CHECK((x.stx_mask & STATX_BASIC_STATS) == STATX_BASIC_STATS);
    CHECK(x.stx_size == 5 && S_ISREG(x.stx_mode) && x.stx_nlink == 1);
    struct stat s;
    fstat(fd, &s);
    CHECK(x.stx_ino == s.st_ino && makedev(x.stx_dev_major, x.stx_dev_minor) == s.st_dev);
    CHECK(statx(fd, "", AT_EMPTY_PATH, STATX_SIZE, &x) == 0 && x.stx_size == 5);
    CHECK_ERR(statx(AT_FDCWD, "f", 0x40000000, 0, &x), EINVAL);
    CHECK_ERR(statx(AT_FDCWD, "f", 0, 0x80000000, &x), EINVAL);
    CHECK_ERR(statx(AT_FDCWD, "none", 0, 0, &x), ENOENT);
}
CASE(blocks_account_for_holes) {
    scratch();
    int fd = mkfile("f", "");
    ftruncate(fd, 1 << 20);
    CHECK(st_of("f").st_blocks < 64);
    char b[65536];
    memset(b, 1, sizeof b);
    CHECK(write(fd, b, sizeof b) == sizeof b);
    fsync(fd);
    CHECK(st_of("f").st_blocks >= 128);
}
CASE(inode_numbers_unique_and_stable) {
    scratch();
    ino_t i[50];
    char n[10];
    for (int k = 0; k < 50; k++) {
        sprintf(n, "%d", k);
        close(mkfile(n, ""));
        i[k] = st_of(n).st_ino;
        for (int j = 0; j < k; j++) CHECK(i[j] != i[k]);
    }
    for (int k = 0; k < 50; k++) {
        sprintf(n, "%d", k);
        CHECK_EQ(st_of(n).st_ino, i[k]);
    }
}
CASE(statfs_calls) {
    struct statfs s;
    struct statvfs v;
    CHECK(statfs("/", &s) == 0 && s.f_bsize > 0 && s.f_namelen == 255);
    CHECK(statvfs("/tmp", &v) == 0 && v.f_blocks > 0);
    CHECK(statfs("/proc", &s) == 0 && s.f_type == 0x9fa0);
    int fd = open("/dev/null", O_RDONLY);
    CHECK(fstatfs(fd, &s) == 0);
    CHECK_ERR(statfs("/none", &s), ENOENT);
}
static bool xattr_ok(void) {
    close(mkfile("x", ""));
    return setxattr("x", "user.probe", "1", 1, 0) == 0;
}
CASE(xattr_set_get_list_remove) {
    scratch();
    if (!xattr_ok()) SKIP("no user.* attributes on this file system");
    int fd = mkfile("f", "");
    char b[64];
    CHECK(setxattr("f", "user.a", "one", 3, 0) == 0);
    CHECK(fsetxattr(fd, "user.bb", "", 0, 0) == 0);
    CHECK_EQ(getxattr("f", "user.a", b, sizeof b), 3);
    CHECK(!memcmp(b, "one", 3));
    CHECK_EQ(fgetxattr(fd, "user.bb", b, sizeof b), 0);
    CHECK_EQ(getxattr("f", "user.a", NULL, 0), 3);
    CHECK_ERR(getxattr("f", "user.a", b, 2), ERANGE);
    ssize_t n = listxattr("f", b, sizeof b);
    CHECK_EQ(n, 15);
    CHECK_ERR(listxattr("f", b, 3), ERANGE);
    CHECK(removexattr("f", "user.a") == 0);
    CHECK_ERR(getxattr("f", "user.a", b, 3), ENODATA);
    CHECK_ERR(removexattr("f", "user.a"), ENODATA);
}
CASE(xattr_flags_and_names) {
    scratch();
    if (!xattr_ok()) SKIP("no user.* attributes on this file system");
    close(mkfile("f", ""));
    CHECK_ERR(setxattr("f", "user.a", "1", 1, XATTR_REPLACE), ENODATA);
    CHECK(setxattr("f", "user.a", "1", 1, XATTR_CREATE) == 0);
    CHECK_ERR(setxattr("f", "user.a", "1", 1, XATTR_CREATE), EEXIST);
    CHECK_ERR(setxattr("f", "bogus.a", "1", 1, 0), EOPNOTSUPP);
    CHECK_ERR(setxattr("f", "user.", "1", 1, 0), EINVAL);
    CHECK_ERR(setxattr("f", "", "1", 1, 0), ERANGE);
    CHECK_ERR(setxattr("f", "user.b", "1", 70000, 0), E2BIG);
    symlink("f", "l");
    CHECK_ERR(lsetxattr("l", "user.a", "1", 1, 0), EPERM);
}
CASE(xattr_trusted_needs_root) {
    scratch();
    if (!xattr_ok()) SKIP("no user.* attributes on this file system");
    chmod("x", 0666);
    AS_USER(CHECK_ERR(setxattr("x", "trusted.a", "1", 1, 0), EPERM); CHECK(setxattr("x", "user.z", "1", 1, 0) == 0));
}

CASE(cachestat_counts_pages) {
    struct { uint64_t offset, len; } r = {0, 0};
    struct { uint64_t cache, dirty, writeback, evicted, recently; } s;
    scratch();
    int fd = mkfile("f", "");
    if (syscall(451, fd, &r, &s, 0) < 0 && errno == ENOSYS) SKIP("the kernel has no cachestat");
    CHECK(syscall(451, fd, &r, &s, 0) == 0 && s.cache == 0 && s.evicted == 0);
    char page[4096] = {1};
    for (int i = 0; i < 8; i++) CHECK_EQ(write(fd, page, sizeof page), sizeof page);
    CHECK_EQ(write(fd, page, 1), 1);
    CHECK_EQ(syscall(451, fd, &r, &s, 0), 0);
    CHECK_EQ(s.cache, 9);
    r.offset = 4096, r.len = 8192;
    CHECK_EQ(syscall(451, fd, &r, &s, 0), 0);
    CHECK_EQ(s.cache, 2);
    r.offset = 4095, r.len = 2;
    CHECK_EQ(syscall(451, fd, &r, &s, 0), 0);
    CHECK_EQ(s.cache, 2);
    r.offset = 1 << 20, r.len = 0;
    CHECK(syscall(451, fd, &r, &s, 0) == 0 && s.cache == 0);
    CHECK_ERR(syscall(451, fd, &r, &s, 1), EINVAL);
    CHECK_ERR(syscall(451, -1, &r, &s, 0), EBADF);
    CHECK_ERR(syscall(451, fd, noaccess(), &s, 0), EFAULT);
    CHECK_ERR(syscall(451, fd, &r, noaccess(), 0), EFAULT);
    // Whoever may neither write a file nor owns it learns nothing.
    CHECK(chmod("f", 0644) == 0 && chmod(".", 0755) == 0);
    CHECK_OK(setuid(1000));
    int other = CHECK_OK(open("f", O_RDONLY));
    CHECK_ERR(syscall(451, other, &r, &s, 0), EPERM);
    CHECK_EQ(syscall(451, fd, &r, &s, 0), 0);
}
