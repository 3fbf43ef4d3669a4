// Identities, capabilities and file permissions at their edges: id changes, set-id bits, groups, umask, statx, times.
#include "t.h"
#include <dirent.h>
#include <grp.h>
#include <linux/capability.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/sysmacros.h>

static struct stat st;
static int mode(const char *p) { return stat(p, &st) == 0 ? (int)(st.st_mode & 07777) : -1; }
static void touch(const char *p, int m) {
    close(mkfile(p, ""));
    CHECK(chmod(p, m) == 0);
}
static uint64_t caps(const char *field) {
    char *s = strstr(slurp("/proc/self/status"), field);
    return s ? strtoull(s + strlen(field), NULL, 16) : 0;
}

CASE(setuid_of_root_is_final) {
    CHECK(setuid(1000) == 0);
    uid_t r, e, s;
    CHECK(getresuid(&r, &e, &s) == 0 && r == 1000 && e == 1000 && s == 1000);
    CHECK_ERR(setuid(0), EPERM);
    CHECK_ERR(setreuid(-1, 0), EPERM);
    CHECK(setuid(1000) == 0);
}
CASE(saved_id_lets_back) {
    CHECK(setresuid(1000, 1000, 0) == 0);
    CHECK(setuid(0) == 0 && geteuid() == 0 && getuid() == 1000);
    CHECK(setresuid(-1, -1, 1000) == 0 && setuid(0) == 0);  // still effective root: all three
    CHECK(getuid() == 0);
}
CASE(setreuid_sets_saved_when_real_changes) {
    CHECK(setreuid(1000, 1001) == 0);
    uid_t r, e, s;
    CHECK(getresuid(&r, &e, &s) == 0 && r == 1000 && e == 1001 && s == 1001);
    CHECK(setreuid(1001, 1000) == 0 && getresuid(&r, &e, &s) == 0 && r == 1001 && e == 1000 && s == 1000);
    CHECK_ERR(setreuid(7, -1), EPERM);
}
CASE(effective_id_controls_effective_capabilities) {
    uint64_t all = caps("CapPrm:");
    CHECK(all && caps("CapEff:") == all);
    CHECK(seteuid(1000) == 0 && caps("CapEff:") == 0 && caps("CapPrm:") == all);
    CHECK(seteuid(0) == 0 && caps("CapEff:") == all);
    CHECK(setresuid(1000, 1000, 1000) == 0 && caps("CapPrm:") == 0);
}
CASE(keepcaps_keeps_permitted_only) {
    CHECK(prctl(PR_SET_KEEPCAPS, 1) == 0 && setresuid(1000, 1000, 1000) == 0);
    CHECK(caps("CapPrm:") != 0 && caps("CapEff:") == 0);
    CHECK_ERR(prctl(PR_SET_KEEPCAPS, 2), EINVAL);
}
CASE(groups_limits_and_privilege) {
    gid_t g[3] = {7, 5, 6}, got[3];
    CHECK(setgroups(3, g) == 0 && getgroups(0, NULL) == 3);
    CHECK_ERR(getgroups(2, got), EINVAL);
    CHECK_ERR(getgroups(-1, got), EINVAL);
    CHECK(getgroups(3, got) == 3);
    CHECK_ERR(syscall(SYS_setgroups, 65537, g), EINVAL);
    CHECK_ERR(syscall(SYS_setgroups, 1, BAD), EFAULT);
    CHECK(setresuid(1000, 1000, 1000) == 0);
    CHECK_ERR(setgroups(0, NULL), EPERM);
}
CASE(fsuid_follows_and_decides) {
    scratch();
    touch("f", 0600);
    CHECK_EQ(setfsuid(1000), 0);
    CHECK_ERR(open("f", O_RDONLY), EACCES);
    CHECK(access("f", R_OK) == 0);  // by the real id
    int fd = open("mine", O_CREAT | O_RDWR, 0600);
    CHECK(fd >= 0 && fstat(fd, &st) == 0 && st.st_uid == 1000);
    CHECK(seteuid(0) == 0 && setfsuid(-1) == 0);
}
CASE(access_of_real_and_effective) {
    scratch();
    touch("f", 0600);
    CHECK(setresuid(1000, 0, 0) == 0);
    CHECK_ERR(access("f", R_OK), EACCES);
    CHECK(faccessat(AT_FDCWD, "f", R_OK, AT_EACCESS) == 0);
    CHECK(open("f", O_RDONLY) >= 0);
}
CASE(root_needs_one_execute_bit) {
    scratch();
    touch("f", 0600);
    CHECK_ERR(access("f", X_OK), EACCES);
    CHECK_ERR(execl("f", "f", NULL), EACCES);
    chmod("f", 0601);
    CHECK(access("f", X_OK) == 0);
    mkdir("d", 0);
    CHECK(access("d", X_OK | W_OK) == 0);
}
CASE(owner_class_is_not_widened) {
    scratch();
    touch("f", 0077), chown("f", 1000, 1000);
    t_drop_root();
    CHECK_ERR(open("f", O_RDONLY), EACCES);  // the owner has less than everybody
    CHECK(chmod("f", 0477) == 0 && open("f", O_RDONLY) >= 0);
}
CASE(chmod_group_rules) {
    scratch();
    touch("f", 0644), chown("f", 1000, 5);
    t_drop_root();
    CHECK(chmod("f", 02755) == 0);
    CHECK_EQ(mode("f"), 0755);  // not a member of the group: no set-group-id
    CHECK(chmod("f", 04755) == 0);
    CHECK_EQ(mode("f"), 04755);
    CHECK_ERR(chmod("/", 0755), EPERM);
}
CASE(chown_rules_for_users) {
    scratch();
    touch("f", 06755), chown("f", 1000, 1000), chmod("f", 06755);
    gid_t g[1] = {7};
    CHECK(setgroups(1, g) == 0 && setresgid(1000, 1000, 1000) == 0 && setresuid(1000, 1000, 1000) == 0);
    CHECK_ERR(chown("f", 1001, -1), EPERM);
    CHECK_ERR(chown("f", -1, 8), EPERM);
    CHECK(chown("f", -1, 7) == 0);
    CHECK_EQ(mode("f"), 0755);
    CHECK(chown("f", 1000, -1) == 0);
}
CASE(chown_by_root_and_minus_one) {
    scratch();
    touch("f", 0644);
    chmod("f", 02745);  // set-group-id without group execute was mandatory locking
    CHECK(chown("f", -1, -1) == 0 && chown("f", 5, 6) == 0 && mode("f") == 02745 && st.st_uid == 5);
    chmod("f", 06755);
    CHECK(chown("f", 9, -1) == 0 && mode("f") == 0755 && st.st_gid == 6);
    mkdir("d", 0755), chmod("d", 02755);
    CHECK(chown("d", 5, 6) == 0 && mode("d") == 02755);  // directories keep theirs
}
CASE(setgid_directory_passes_its_group) {
    scratch();
    mkdir("d", 0777), chown("d", 0, 77), chmod("d", 02777);
    touch("d/f", 0644), mkdir("d/e", 0755);
    CHECK(stat("d/f", &st) == 0 && st.st_gid == 77);
    CHECK(stat("d/e", &st) == 0 && st.st_gid == 77 && st.st_mode & S_ISGID);
    t_drop_root();
    int fd = open("d/x", O_CREAT | O_RDWR, 02775);  // not in that group
    CHECK(fstat(fd, &st) == 0 && st.st_gid == 77 && !(st.st_mode & S_ISGID));
}
CASE(umask_and_kinds) {
    scratch();
    umask(0137);
    close(open("f", O_CREAT | O_RDWR, 0777)), mkdir("d", 0777), mkfifo("p", 0777), mknod("r", 0777, 0);
    CHECK(mode("f") == 0640 && mode("d") == 0640 && mode("p") == 0640 && mode("r") == 0640);
    CHECK_EQ(umask(01777), 0137);
    CHECK_EQ(umask(0), 0777);  // only permission bits
    symlink("x", "l");
    CHECK(lstat("l", &st) == 0 && (st.st_mode & 0777) == 0777);
}
CASE(write_by_user_drops_set_ids) {
    scratch();
    touch("f", 06777), chown("f", 0, 0), chmod("f", 06777);
    int fd = open("f", O_RDWR);
    CHECK(write(fd, "x", 1) == 1 && mode("f") == 06777);  // root may
    t_drop_root();
    fd = open("f", O_RDWR);
    CHECK(write(fd, "x", 1) == 1 && mode("f") == 0777);
}
CASE(no_new_privs_ignores_set_ids) {
    scratch();
    char self[PATH_MAX];
    CHECK(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1);
    CHECK_ERR(prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0), EINVAL);
    CHECK_ERR(prctl(PR_SET_NO_NEW_PRIVS, 1, 1, 0, 0), EINVAL);
    CHECK_EQ(join(SPAWN(_exit(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ? 3 : 4))), 3);
}
CASE(times_and_permissions) {
    scratch();
    touch("f", 0666), touch("g", 0644);
    t_drop_root();
    struct timespec now[2] = {{0, UTIME_NOW}, {0, UTIME_NOW}}, half[2] = {{0, UTIME_NOW}, {0, UTIME_OMIT}}, old[2] = {{1, 0}, {1, 0}}, omit[2] = {{0, UTIME_OMIT}, {0, UTIME_OMIT}};
    CHECK(utimensat(AT_FDCWD, "f", now, 0) == 0);            // write permission is enough for "now"
    CHECK_ERR(utimensat(AT_FDCWD, "f", old, 0), EPERM);
    CHECK_ERR(utimensat(AT_FDCWD, "f", half, 0), EPERM);     // not both now
    CHECK_ERR(utimensat(AT_FDCWD, "g", now, 0), EACCES);
    CHECK(utimensat(AT_FDCWD, "g", omit, 0) == 0);           // nothing to do
    old[0].tv_nsec = 1000000000;
    CHECK_ERR(utimensat(AT_FDCWD, "f", old, 0), EINVAL);
}
CASE(statx_masks_and_flags) {
    scratch();
    touch("f", 0640), symlink("f", "l");
    struct statx x;
    CHECK(statx(AT_FDCWD, "f", 0, STATX_BASIC_STATS | STATX_BTIME, &x) == 0);
    CHECK((x.stx_mask & STATX_BASIC_STATS) == STATX_BASIC_STATS && x.stx_nlink == 1 && (x.stx_mode & 0777) == 0640);
    CHECK(stat("f", &st) == 0 && x.stx_ino == st.st_ino && makedev(x.stx_dev_major, x.stx_dev_minor) == st.st_dev);
    CHECK(statx(AT_FDCWD, "l", AT_SYMLINK_NOFOLLOW, STATX_TYPE, &x) == 0 && S_ISLNK(x.stx_mode));
    CHECK(statx(open("f", O_RDONLY), "", AT_EMPTY_PATH, STATX_SIZE, &x) == 0 && x.stx_size == 0);
    CHECK(statx(AT_FDCWD, "f", AT_STATX_FORCE_SYNC, 0, &x) == 0);
    CHECK_ERR(statx(AT_FDCWD, "f", AT_STATX_FORCE_SYNC | AT_STATX_DONT_SYNC, 0, &x), EINVAL);
    CHECK_ERR(statx(AT_FDCWD, "f", 0x40000000, 0, &x), EINVAL);
    CHECK_ERR(statx(AT_FDCWD, "f", 0, 0x80000000u, &x), EINVAL);
    CHECK_ERR(statx(AT_FDCWD, "", 0, 0, &x), ENOENT);
    CHECK_ERR(syscall(SYS_statx, AT_FDCWD, "f", 0, 0, BAD), EFAULT);
}
CASE(stat_families_agree) {
    scratch();
    touch("f", 0644);
    int fd = open("f", O_RDONLY), p = open("f", O_PATH);
    struct stat a, b, c;
    CHECK(stat("f", &a) == 0 && fstat(fd, &b) == 0 && fstatat(p, "", &c, AT_EMPTY_PATH) == 0);
    CHECK(!memcmp(&a, &b, sizeof a) && !memcmp(&a, &c, sizeof a));
    CHECK_ERR(fstatat(fd, "", &c, 0), ENOENT);
    CHECK_ERR(fstatat(fd, "x", &c, 0), ENOTDIR);
    CHECK_ERR(fstatat(999, "x", &c, 0), EBADF);
    CHECK(fstatat(999, "/", &c, 0) == 0);
    CHECK_ERR(fstatat(AT_FDCWD, "f", &c, 0x8000), EINVAL);
}
CASE(directory_positions_survive_changes) {
    scratch();
    char n[20];
    for (int i = 0; i < 100; i++) snprintf(n, 20, "f%d", i), touch(n, 0644);
    DIR *d = opendir(".");
    struct dirent *e;
    int seen = 0;
    long mid = 0;
    while ((e = readdir(d))) {
        if (++seen == 50) mid = telldir(d);
    }
    CHECK_EQ(seen, 102);
    seekdir(d, mid);
    unlink("f3"), touch("new", 0644);
    int rest = 0;
    while (readdir(d)) rest++;
    CHECK(rest >= 50 && rest <= 53);
    rewinddir(d);
    for (seen = 0; readdir(d); seen++) {}
    CHECK_EQ(seen, 102);
}
CASE(capability_bounding_and_ambient) {
    CHECK_EQ(prctl(PR_CAPBSET_READ, 5, 0, 0, 0), 1);
    CHECK(prctl(PR_CAPBSET_DROP, 5, 0, 0, 0) == 0 && prctl(PR_CAPBSET_READ, 5, 0, 0, 0) == 0);
    CHECK_ERR(prctl(PR_CAPBSET_READ, 999, 0, 0, 0), EINVAL);
    CHECK_ERR(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, 6, 0, 0), EPERM);  // not inheritable
    CHECK_EQ(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, 6, 0, 0), 0);
    CHECK(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) == 0);
    CHECK_EQ(caps("CapBnd:") >> 5 & 1, 0);
    setresuid(1000, 1000, 1000);
    CHECK_ERR(prctl(PR_CAPBSET_DROP, 6, 0, 0, 0), EPERM);
}

CASE(ambient_capabilities_may_be_forbidden) {
    if (geteuid() != 0) SKIP("needs root");
    struct __user_cap_header_struct h = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct d[2];
    CHECK(syscall(SYS_capget, &h, d) == 0);
    d[0].inheritable = 1 << 5;
    CHECK(syscall(SYS_capset, &h, d) == 0);
    CHECK(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, 5, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECUREBITS, 1 << 6, 0, 0, 0) == 0);
    CHECK_ERR(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, 5, 0, 0), EPERM);
    CHECK(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_LOWER, 5, 0, 0) == 0);
    // Locked, it cannot be allowed again.
    CHECK(prctl(PR_SET_SECUREBITS, 3 << 6, 0, 0, 0) == 0);
    CHECK_ERR(prctl(PR_SET_SECUREBITS, 1 << 7, 0, 0, 0), EPERM);
}

static int mode_of(const char *path) {
    struct stat st;
    CHECK(stat(path, &st) == 0);
    return st.st_mode & 07777;
}

// Gives the file a mode, does something, and compares what is left of it.
#define LEAVES(want, before, ...) do { CHECK(chmod("f", before) == 0); __VA_ARGS__; CHECK_EQ(mode_of("f"), want); } while (0)

CASE(set_id_bits_go_where_they_must) {
    if (geteuid() != 0) SKIP("needs root");
    scratch();
    umask(0);
    CHECK(mkdir("d", 0) == 0 && chown("d", 0, 500) == 0 && chmod("d", 02777) == 0);
    CHECK(syscall(SYS_setgroups, 0, NULL) == 0);
    int f = mkfile("f", "x");
    CHECK(chown("f", 1000, 1000) == 0);
    LEAVES(0777, 06777, CHECK(chown("f", -1, -1) == 0));
    LEAVES(02745, 06745, CHECK(chown("f", 1000, 1000) == 0));
    LEAVES(06777, 06777, CHECK(write(f, "x", 1) == 1));
    CHECK(setresgid(1000, 1000, 1000) == 0 && setresuid(1000, 1000, 1000) == 0);
    CHECK((f = open("f", O_RDWR)) >= 0);
    LEAVES(0777, 06777, CHECK(write(f, "x", 1) == 1));
    LEAVES(02767, 06767, CHECK(write(f, "x", 1) == 1));
    LEAVES(0777, 06777, CHECK(ftruncate(f, 5) == 0));
    LEAVES(0777, 06777, CHECK(truncate("f", 3) == 0));
    LEAVES(0777, 06777, CHECK(close(open("f", O_RDWR | O_TRUNC)) == 0));
    LEAVES(0777, 06777, CHECK(fallocate(f, 0, 0, 100) == 0));
    LEAVES(0777, 06777, CHECK(chown("f", -1, 1000) == 0));
    // In a directory that gives its group away, who is no member makes no programs of that group.
    struct stat st;
    CHECK(close(open("d/n", O_CREAT | O_RDWR, 02777)) == 0);
    CHECK_EQ(mode_of("d/n"), 0777);
    CHECK(close(open("d/m", O_CREAT | O_RDWR, 02767)) == 0);
    CHECK_EQ(mode_of("d/m"), 02767);
    CHECK(mknod("d/fifo", S_IFIFO | 02775, 0) == 0);
    CHECK_EQ(mode_of("d/fifo"), 0775);
    CHECK(mkdir("d/e", 0755) == 0);
    CHECK_EQ(mode_of("d/e"), 02755);
    CHECK(chmod("d/e", 02755) == 0);
    CHECK_EQ(mode_of("d/e"), 0755);
    int t = open("d", O_TMPFILE | O_RDWR, 02777);
    if (t >= 0) {
        CHECK(fstat(t, &st) == 0);
        CHECK_EQ(st.st_mode & 07777, 0777);
        CHECK_EQ(st.st_gid, 500);
    }
}
