// The calls on mounts that take descriptors: open_tree, move_mount, fsopen, fsconfig, fsmount, fspick, mount_setattr, statmount,
// listmount. Each case in a mount namespace of its own.
#include "t.h"
#include <linux/types.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>

#define XS 0xffffffffffffffffULL
struct attr { uint64_t set, clear, propagation, userns; };
struct request { uint32_t size, spare; uint64_t id, param, ns; };
struct report {
    uint32_t size, options; uint64_t mask; uint32_t major, minor; uint64_t magic; uint32_t flags, type;
    uint64_t id, parent; uint32_t old_id, old_parent; uint64_t attr, propagation, group, master, from;
    uint32_t root, point; uint64_t ns; uint32_t subtype, source, opt_num, opt_array; uint64_t spare[47];
    char text[4096];
};
enum { RDONLY = 1, NOSUID = 2, NODEV = 4, NOEXEC = 8, NOATIME = 0x10, STRICTATIME = 0x20, ATIME = 0x70, NODIRATIME = 0x80,
       IDMAP = 0x100000, NOSYMFOLLOW = 0x200000 };
enum { CLONE_TREE = 1, RECURSIVE = 0x8000, EMPTY = 0x1000 };
enum { F_EMPTY = 4, T_EMPTY = 0x40, F_SYMLINKS = 1, T_SYMLINKS = 0x10, GROUP = 0x100, BENEATH = 0x200 };
enum { FLAG, STRING, BINARY, PATH, PATH_EMPTY, FD, CREATE, RECONFIGURE, CREATE_EXCL };

static int tree(int dir, const char *path, unsigned flags) { return syscall(428, dir, path, flags); }
static int move(int fd, const char *from, int to_fd, const char *to, unsigned flags) {
    return syscall(429, fd, from, to_fd, to, flags);
}
static int fs_open(const char *kind, unsigned flags) { return syscall(430, kind, flags); }
static int config(int fd, unsigned cmd, const char *key, const void *value, int aux) {
    return syscall(431, fd, cmd, key, value, aux);
}
static int fs_mount(int fd, unsigned flags, unsigned attr) { return syscall(432, fd, flags, attr); }
static int pick(int dir, const char *path, unsigned flags) { return syscall(433, dir, path, flags); }
static int set_attr(int dir, const char *path, unsigned flags, struct attr *a, size_t size) {
    return syscall(442, dir, path, flags, a, size);
}
static int stat_mount(struct request *r, void *buf, size_t size, unsigned flags) {
    return syscall(457, r, buf, size, flags);
}
static int list_mount(struct request *r, uint64_t *ids, size_t n, unsigned flags) {
    return syscall(458, r, ids, n, flags);
}

static void own(void) {
    scratch();
    if (geteuid()) SKIP("needs root");
    CHECK(unshare(CLONE_NEWNS) == 0);
    CHECK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    CHECK(mkdir("top", 0755) == 0 && mount("top", "top", "tmpfs", 0, NULL) == 0 && chdir("top") == 0);
    CHECK(mkdir("a", 0755) == 0 && mkdir("b", 0755) == 0);
}
static int tmpfs(const char *at) { return mount("t", at, "tmpfs", 0, NULL); }
static bool is_mount(const char *path) {
    struct statx x;
    CHECK(statx(AT_FDCWD, path, 0, STATX_BASIC_STATS, &x) == 0);
    CHECK(x.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT);
    return x.stx_attributes & STATX_ATTR_MOUNT_ROOT;
}
static uint64_t unique(const char *path) {
    struct statx x;
    CHECK(statx(AT_FDCWD, path, 0, 0x4000, &x) == 0);
    if (!(x.stx_mask & 0x4000)) SKIP("an older kernel");
    return x.stx_mnt_id;
}
static uint64_t old_id(const char *path) {
    struct statx x;
    CHECK(statx(AT_FDCWD, path, 0, STATX_MNT_ID, &x) == 0 && x.stx_mask & STATX_MNT_ID);
    return x.stx_mnt_id;
}
static unsigned long flags_of(const char *path) {
    struct statfs s;
    CHECK(statfs(path, &s) == 0);
    return s.f_flags & ~0x20;
}
static const char *message(int fd) {
    static char text[400];
    ssize_t n = read(fd, text, sizeof text - 1);
    text[n > 0 ? n : 0] = 0;
    return text;
}
static int make_tmpfs(unsigned attr) {
    int fd = fs_open("tmpfs", 0);
    CHECK(fd >= 0 && config(fd, CREATE, NULL, NULL, 0) == 0);
    int m = fs_mount(fd, 0, attr);
    CHECK(m >= 0 && close(fd) == 0);
    return m;
}

CASE(open_tree_is_a_path_descriptor) {
    own();
    int fd = tree(AT_FDCWD, "a", 0);
    CHECK(fd >= 0);
    CHECK(fcntl(fd, F_GETFL) & O_PATH);
    CHECK_EQ(fcntl(fd, F_GETFD), 0);
    CHECK_ERR(read(fd, NULL, 0), EBADF);
    close(mkfile("a/f", "x"));
    CHECK(faccessat(fd, "f", F_OK, 0) == 0);
}
CASE(open_tree_cloexec) {
    own();
    int fd = tree(AT_FDCWD, "a", O_CLOEXEC);
    CHECK(fd >= 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC);
    fd = tree(AT_FDCWD, "a", CLONE_TREE | O_CLOEXEC);
    CHECK(fd >= 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC);
}
CASE(open_tree_errors) {
    own();
    CHECK_ERR(tree(AT_FDCWD, "missing", 0), ENOENT);
    CHECK_ERR(tree(AT_FDCWD, "", 0), ENOENT);
    CHECK_ERR(tree(AT_FDCWD, "a", 2), EINVAL);
    CHECK_ERR(tree(AT_FDCWD, "a", RECURSIVE), EINVAL);
    CHECK_ERR(tree(77, "a", 0), EBADF);
    CHECK_ERR(tree(AT_FDCWD, BAD, 0), EFAULT);
}
CASE(open_tree_needs_rights_only_to_clone) {
    own();
    CHECK(chmod(".", 0755) == 0);
    t_drop_root();
    CHECK(tree(AT_FDCWD, "a", 0) >= 0);
    CHECK_ERR(tree(AT_FDCWD, "a", CLONE_TREE), EPERM);
}
CASE(open_tree_nofollow) {
    own();
    CHECK(symlink("a", "l") == 0);
    struct stat s;
    int fd = tree(AT_FDCWD, "l", AT_SYMLINK_NOFOLLOW);
    CHECK(fd >= 0 && fstat(fd, &s) == 0 && S_ISLNK(s.st_mode));
    fd = tree(AT_FDCWD, "l", 0);
    CHECK(fd >= 0 && fstat(fd, &s) == 0 && S_ISDIR(s.st_mode));
}
CASE(open_tree_empty_path) {
    own();
    int d = open("a", O_PATH);
    CHECK(tree(d, "", EMPTY) >= 0);
    CHECK(tree(d, "", EMPTY | CLONE_TREE) >= 0);
}
CASE(clone_is_detached) {
    own();
    CHECK(tmpfs("a") == 0);
    int fd = tree(AT_FDCWD, "a", CLONE_TREE);
    CHECK(fd >= 0);
    close(mkfile("a/f", "x"));
    CHECK(faccessat(fd, "f", F_OK, 0) == 0);
    CHECK(umount("a") == 0);  // the copy keeps the file system
    CHECK(faccessat(fd, "f", F_OK, 0) == 0);
}
CASE(clone_of_a_directory_and_move) {
    own();
    close(mkfile("a/f", "text"));
    int fd = tree(AT_FDCWD, "a", CLONE_TREE);
    CHECK(fd >= 0 && move(fd, "", AT_FDCWD, "b", F_EMPTY) == 0);
    CHECK(!strcmp(slurp("b/f"), "text") && is_mount("b"));
    CHECK(close(fd) == 0);
    CHECK(is_mount("b"));  // moved: the last close takes nothing away
    CHECK(umount("b") == 0);
}
CASE(close_dissolves) {
    own();
    CHECK(tmpfs("a") == 0);
    int fd = tree(AT_FDCWD, "a", CLONE_TREE);
    CHECK(fd >= 0);
    int in = openat(fd, ".", O_RDONLY);
    CHECK(in >= 0 && close(fd) == 0);
    // A directory of the tree is left, but the tree cannot be mounted any more.
    CHECK_ERR(move(in, "", AT_FDCWD, "b", F_EMPTY), EINVAL);
}
CASE(clone_without_what_is_below) {
    own();
    CHECK(tmpfs("a") == 0 && mkdir("a/x", 0755) == 0 && tmpfs("a/x") == 0);
    close(mkfile("a/x/f", ""));
    int fd = tree(AT_FDCWD, "a", CLONE_TREE), all = tree(AT_FDCWD, "a", CLONE_TREE | RECURSIVE);
    CHECK(fd >= 0 && all >= 0);
    CHECK_ERR(faccessat(fd, "x/f", F_OK, 0), ENOENT);
    CHECK(faccessat(all, "x/f", F_OK, 0) == 0);
}
CASE(clone_of_unbindable) {
    own();
    CHECK(tmpfs("a") == 0 && mount(NULL, "a", NULL, MS_UNBINDABLE, NULL) == 0);
    CHECK_ERR(tree(AT_FDCWD, "a", CLONE_TREE), EINVAL);
    CHECK(tree(AT_FDCWD, "a", 0) >= 0);
}
CASE(dotdot_of_a_detached_tree) {
    own();
    CHECK(tmpfs("a") == 0);
    int fd = tree(AT_FDCWD, "a", CLONE_TREE);
    struct stat s, t;
    CHECK(fstatat(fd, ".", &s, 0) == 0 && fstatat(fd, "..", &t, 0) == 0);
    CHECK(s.st_dev == t.st_dev && s.st_ino == t.st_ino);
}
CASE(move_of_an_attached_mount) {
    own();
    CHECK(tmpfs("a") == 0);
    close(mkfile("a/f", ""));
    CHECK(move(AT_FDCWD, "a", AT_FDCWD, "b", 0) == 0);
    CHECK(!is_mount("a") && is_mount("b") && access("b/f", F_OK) == 0);
}
CASE(move_by_descriptors) {
    own();
    CHECK(tmpfs("a") == 0);
    int f = open("a", O_PATH), t = open("b", O_PATH);
    CHECK(move(f, "", t, "", F_EMPTY | T_EMPTY) == 0);
    CHECK(is_mount("b"));
}
CASE(move_errors) {
    own();
    CHECK(tmpfs("a") == 0 && mkdir("a/in", 0755) == 0);
    close(mkfile("f", ""));
    CHECK_ERR(move(AT_FDCWD, "a", AT_FDCWD, "b", 0x1000), EINVAL);
    CHECK_ERR(move(AT_FDCWD, "a", AT_FDCWD, "b", GROUP | BENEATH), EINVAL);
    CHECK_ERR(move(AT_FDCWD, "b", AT_FDCWD, "a", 0), EINVAL);     // not a mount
    CHECK_ERR(move(AT_FDCWD, "a/in", AT_FDCWD, "b", 0), EINVAL);  // not its root
    CHECK_ERR(move(AT_FDCWD, "a", AT_FDCWD, "a/in", 0), ELOOP);
    CHECK_ERR(move(AT_FDCWD, "a", AT_FDCWD, "f", 0), EINVAL);  // a directory on a file
    CHECK_ERR(move(AT_FDCWD, "missing", AT_FDCWD, "b", 0), ENOENT);
    CHECK_ERR(move(AT_FDCWD, "a", AT_FDCWD, "missing", 0), ENOENT);
    CHECK_ERR(move(AT_FDCWD, "", AT_FDCWD, "b", 0), ENOENT);
    CHECK_ERR(move(77, "", AT_FDCWD, "b", F_EMPTY), EBADF);
    t_drop_root();
    CHECK_ERR(move(AT_FDCWD, "a", AT_FDCWD, "b", 0), EPERM);
}
CASE(move_of_a_clone_twice) {
    own();
    int fd = tree(AT_FDCWD, "a", CLONE_TREE);
    CHECK(fd >= 0 && move(fd, "", AT_FDCWD, "a", F_EMPTY) == 0);
    CHECK(move(fd, "", AT_FDCWD, "b", F_EMPTY) == 0);  // attached now: it moves on
    CHECK(is_mount("b") && !is_mount("a"));
}
CASE(move_into_a_detached_tree) {
    own();
    CHECK(tmpfs("a") == 0 && mkdir("a/x", 0755) == 0 && tmpfs("b") == 0);
    int one = tree(AT_FDCWD, "a", CLONE_TREE);
    CHECK_ERR(move(AT_FDCWD, "b", one, "x", 0), EINVAL);
}
CASE(move_symlinks) {
    own();
    CHECK(tmpfs("a") == 0 && symlink("a", "la") == 0 && symlink("b", "lb") == 0);
    CHECK_ERR(move(AT_FDCWD, "la", AT_FDCWD, "b", 0), EINVAL);
    CHECK(move(AT_FDCWD, "la", AT_FDCWD, "lb", F_SYMLINKS | T_SYMLINKS) == 0);
    CHECK(is_mount("b"));
}
CASE(beneath) {
    own();
    CHECK(tmpfs("a") == 0 && tmpfs("b") == 0);
    close(mkfile("a/from", "")), close(mkfile("b/top", ""));
    if (move(AT_FDCWD, "a", AT_FDCWD, "b", BENEATH) < 0) SKIP("an older kernel");
    CHECK(access("b/top", F_OK) == 0);
    CHECK(umount("b") == 0);
    CHECK(access("b/from", F_OK) == 0);
    CHECK(umount("b") == 0 && !is_mount("b"));
}
CASE(beneath_errors) {
    own();
    CHECK(tmpfs("a") == 0);
    CHECK_ERR(move(AT_FDCWD, "a", AT_FDCWD, "b", BENEATH), EINVAL);  // not a mount
    CHECK_ERR(move(AT_FDCWD, "a", AT_FDCWD, "/", BENEATH), EINVAL);
}
CASE(set_group) {
    own();
    CHECK(tmpfs("a") == 0 && mount("a", "b", NULL, MS_BIND, NULL) == 0);
    CHECK_ERR(move(AT_FDCWD, "a", AT_FDCWD, "b", GROUP), EINVAL);  // private
    CHECK(mount(NULL, "a", NULL, MS_SHARED, NULL) == 0);
    CHECK(move(AT_FDCWD, "a", AT_FDCWD, "b", GROUP) == 0);
    CHECK(mkdir("a/x", 0755) == 0 && tmpfs("a/x") == 0 && is_mount("b/x"));
    CHECK_ERR(move(AT_FDCWD, "a", AT_FDCWD, "b", GROUP), EINVAL);  // no longer private
}
CASE(set_group_of_another_file_system) {
    own();
    CHECK(tmpfs("a") == 0 && tmpfs("b") == 0 && mount(NULL, "a", NULL, MS_SHARED, NULL) == 0);
    CHECK_ERR(move(AT_FDCWD, "a", AT_FDCWD, "b", GROUP), EINVAL);
}
CASE(fsopen_makes_a_context) {
    own();
    int fd = fs_open("tmpfs", 1);
    CHECK(fd >= 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC && (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR);
    char link[100] = "";
    char path[40];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    CHECK(readlink(path, link, 99) > 0 && !strcmp(link, "anon_inode:[fscontext]"));
}
CASE(fsopen_errors) {
    own();
    CHECK_ERR(fs_open("nosuchfs", 0), ENODEV);
    CHECK_ERR(fs_open("tmpfs", 2), EINVAL);
    CHECK_ERR(fs_open(BAD, 0), EFAULT);
    static char long_name[5000];
    memset(long_name, 'x', 300);
    CHECK_ERR(fs_open(long_name, 0), ENODEV);
    memset(long_name, 'x', 4999);
    CHECK_ERR(fs_open(long_name, 0), EINVAL);
    t_drop_root();
    CHECK_ERR(fs_open("tmpfs", 0), EPERM);
}
CASE(fsmount_whole_way) {
    own();
    int fd = fs_open("tmpfs", 0);
    CHECK(config(fd, STRING, "source", "mine", 0) == 0);
    CHECK(config(fd, STRING, "size", "64k", 0) == 0);
    CHECK(config(fd, STRING, "mode", "0710", 0) == 0);
    CHECK(config(fd, CREATE, NULL, NULL, 0) == 0);
    int m = fs_mount(fd, 1, NOSUID | NODEV);
    CHECK(m >= 0 && fcntl(m, F_GETFD) == FD_CLOEXEC && fcntl(m, F_GETFL) & O_PATH);
    CHECK(move(m, "", AT_FDCWD, "a", F_EMPTY) == 0);
    struct stat s;
    struct statfs f;
    CHECK(stat("a", &s) == 0 && (s.st_mode & 07777) == 0710);
    CHECK(statfs("a", &f) == 0 && f.f_blocks * f.f_bsize == 65536);
    CHECK_EQ(flags_of("a"), 2 | 4 | 0x1000);
    CHECK(strstr(slurp("/proc/self/mounts"), "mine /") != NULL);
}
CASE(fsmount_attributes) {
    own();
    struct { unsigned attr; unsigned long flags; } all[] = {
        {0, 0x1000}, {RDONLY, 0x1001}, {NOEXEC, 0x1008}, {NOATIME, 0x400}, {STRICTATIME, 0},
        {NODIRATIME, 0x1800}, {NOSYMFOLLOW, 0x3000}, {NOSUID | NODEV | NOEXEC | NOATIME | NODIRATIME, 0xc0e},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        int m = make_tmpfs(all[i].attr);
        CHECK(move(m, "", AT_FDCWD, "a", F_EMPTY) == 0 && close(m) == 0);
        CHECK_EQ(flags_of("a"), all[i].flags);
        CHECK(umount("a") == 0);
    }
}
CASE(fsmount_errors) {
    own();
    int fd = fs_open("tmpfs", 0), other = open("a", O_RDONLY);
    CHECK_ERR(fs_mount(fd, 0, 0), EINVAL);  // nothing is made yet
    CHECK_ERR(fs_mount(other, 0, 0), EINVAL);
    CHECK_ERR(fs_mount(77, 0, 0), EBADF);
    CHECK(config(fd, CREATE, NULL, NULL, 0) == 0);
    CHECK_ERR(fs_mount(fd, 2, 0), EINVAL);
    CHECK_ERR(fs_mount(fd, 0, 0x40), EINVAL);
    CHECK_ERR(fs_mount(fd, 0, NOATIME | STRICTATIME), EINVAL);
    CHECK(fs_mount(fd, 0, 0) >= 0);
}
CASE(fsmount_closed_is_gone) {
    own();
    int m = make_tmpfs(0);
    int in = openat(m, ".", O_RDONLY);
    CHECK(in >= 0 && close(m) == 0);
    CHECK(mkdirat(in, "d", 0755) == 0);  // who uses it keeps it
    CHECK_ERR(move(in, "", AT_FDCWD, "a", F_EMPTY), EINVAL);
}
CASE(fsmount_is_usable_before_it_is_mounted) {
    own();
    int m = make_tmpfs(0);
    int f = openat(m, "f", O_CREAT | O_RDWR, 0600);
    CHECK(f >= 0 && write(f, "abc", 3) == 3 && close(f) == 0);
    CHECK(move(m, "", AT_FDCWD, "a", F_EMPTY) == 0 && !strcmp(slurp("a/f"), "abc"));
}
CASE(config_arguments) {
    own();
    int fd = fs_open("tmpfs", 0);
    CHECK_ERR(config(-1, CREATE, NULL, NULL, 0), EINVAL);
    CHECK_ERR(config(77, CREATE, NULL, NULL, 0), EBADF);
    CHECK_ERR(config(0, FLAG, "ro", NULL, 0), EINVAL);  // no context
    CHECK_ERR(config(fd, 99, NULL, NULL, 0), EOPNOTSUPP);
    CHECK_ERR(config(fd, FLAG, NULL, NULL, 0), EINVAL);
    CHECK_ERR(config(fd, FLAG, "ro", "x", 0), EINVAL);
    CHECK_ERR(config(fd, FLAG, "ro", NULL, 1), EINVAL);
    CHECK_ERR(config(fd, STRING, "size", NULL, 0), EINVAL);
    CHECK_ERR(config(fd, STRING, NULL, "1", 0), EINVAL);
    CHECK_ERR(config(fd, STRING, "size", "1m", 1), EINVAL);
    CHECK_ERR(config(fd, BINARY, "x", "1", 0), EINVAL);
    CHECK_ERR(config(fd, BINARY, "x", "1", 2 << 20), EINVAL);
    CHECK_ERR(config(fd, PATH, "x", NULL, AT_FDCWD), EINVAL);
    CHECK_ERR(config(fd, PATH, "x", "a", -5), EINVAL);
    CHECK_ERR(config(fd, FD, "x", "a", 0), EINVAL);
    CHECK_ERR(config(fd, FD, "x", NULL, -1), EINVAL);
    CHECK_ERR(config(fd, CREATE, "x", NULL, 0), EINVAL);
    CHECK_ERR(config(fd, CREATE, NULL, NULL, 1), EINVAL);
    CHECK_ERR(config(fd, RECONFIGURE, NULL, "x", 0), EINVAL);
    CHECK_ERR(config(fd, STRING, BAD, "x", 0), EFAULT);
    CHECK_ERR(config(fd, STRING, "size", BAD, 0), EFAULT);
    CHECK_ERR(config(fd, FD, "x", NULL, 77), EBADF);
}
CASE(config_unknown_option_is_logged) {
    own();
    int fd = fs_open("tmpfs", 0);
    CHECK_ERR(config(fd, STRING, "nosuch", "1", 0), EINVAL);
    CHECK(strstr(message(fd), "nosuch") != NULL);
    CHECK_ERR(read(fd, NULL, 0), ENODATA);
    CHECK_ERR(config(fd, FLAG, "nosuch", NULL, 0), EINVAL);
    char b[4];
    CHECK_ERR(read(fd, b, 4), EMSGSIZE);
    CHECK(!strcmp(message(fd), "e tmpfs: Unknown parameter 'nosuch'\n"));
    CHECK_ERR(config(fd, STRING, "size", "much", 0), EINVAL);
    CHECK(!strcmp(message(fd), "e tmpfs: Bad value for 'size'\n"));
}
CASE(config_source_twice) {
    own();
    int fd = fs_open("tmpfs", 0);
    CHECK(config(fd, STRING, "source", "x", 0) == 0);
    CHECK_ERR(config(fd, STRING, "source", "y", 0), EINVAL);
}
CASE(config_source_that_is_no_string) {
    own();
    int fd = fs_open("tmpfs", 0);
    CHECK_ERR(config(fd, FLAG, "source", NULL, 0), EINVAL);
}
CASE(config_bad_value) {
    own();
    int fd = fs_open("tmpfs", 0);
    CHECK_ERR(config(fd, STRING, "size", "much", 0), EINVAL);
    CHECK_ERR(config(fd, STRING, "mode", "9", 0), EINVAL);
    CHECK_ERR(config(fd, STRING, "uid", "x", 0), EINVAL);
}
CASE(config_twice_created) {
    own();
    int fd = fs_open("tmpfs", 0);
    CHECK(config(fd, CREATE, NULL, NULL, 0) == 0);
    CHECK_ERR(config(fd, CREATE, NULL, NULL, 0), EBUSY);
    CHECK_ERR(config(fd, STRING, "size", "1m", 0), EBUSY);
    CHECK_ERR(config(fd, RECONFIGURE, NULL, NULL, 0), EBUSY);
}
CASE(config_reconfigure_before_created) {
    own();
    int fd = fs_open("tmpfs", 0);
    CHECK_ERR(config(fd, RECONFIGURE, NULL, NULL, 0), EBUSY);
}
CASE(config_create_exclusive) {
    own();
    int fd = fs_open("tmpfs", 0);
    if (config(fd, CREATE_EXCL, NULL, NULL, 0) < 0) SKIP("an older kernel");
    CHECK(fs_mount(fd, 0, 0) >= 0);
}
CASE(config_read_only_file_system) {
    own();
    int fd = fs_open("tmpfs", 0);
    CHECK(config(fd, FLAG, "ro", NULL, 0) == 0 && config(fd, CREATE, NULL, NULL, 0) == 0);
    int m = fs_mount(fd, 0, 0);
    CHECK_ERR(mkdirat(m, "d", 0755), EROFS);
    CHECK(move(m, "", AT_FDCWD, "a", F_EMPTY) == 0 && flags_of("a") & 1);
}
CASE(reconfigure_after_mounting) {
    own();
    int fd = fs_open("tmpfs", 0);
    CHECK(config(fd, CREATE, NULL, NULL, 0) == 0);
    int m = fs_mount(fd, 0, 0);
    CHECK(m >= 0 && config(fd, STRING, "size", "32k", 0) == 0 && config(fd, RECONFIGURE, NULL, NULL, 0) == 0);
    struct statfs f;
    CHECK(fstatfs(m, &f) == 0 && f.f_blocks * f.f_bsize == 32768);
    CHECK_ERR(fs_mount(fd, 0, 0), EBUSY);
}
CASE(pick_and_reconfigure) {
    own();
    CHECK(mount("t", "a", "tmpfs", 0, "size=1m") == 0);
    int fd = pick(AT_FDCWD, "a", 0);
    CHECK(fd >= 0 && config(fd, FLAG, "ro", NULL, 0) == 0 && config(fd, RECONFIGURE, NULL, NULL, 0) == 0);
    CHECK_ERR(mkdir("a/d", 0755), EROFS);
    CHECK(config(fd, FLAG, "rw", NULL, 0) == 0 && config(fd, STRING, "size", "2m", 0) == 0);
    CHECK(config(fd, RECONFIGURE, NULL, NULL, 0) == 0);
    CHECK(mkdir("a/d", 0755) == 0);
    struct statfs f;
    CHECK(statfs("a", &f) == 0 && f.f_blocks * f.f_bsize == 2 << 20);
}
CASE(pick_errors) {
    own();
    CHECK(tmpfs("a") == 0 && mkdir("a/d", 0755) == 0);
    CHECK_ERR(pick(AT_FDCWD, "b", 0), EINVAL);
    CHECK_ERR(pick(AT_FDCWD, "a/d", 0), EINVAL);
    CHECK_ERR(pick(AT_FDCWD, "missing", 0), ENOENT);
    CHECK_ERR(pick(AT_FDCWD, "a", 16), EINVAL);
    CHECK_ERR(pick(AT_FDCWD, "", 0), ENOENT);
    int d = open("a", O_PATH);
    CHECK(pick(d, "", 8) >= 0);
    int c = pick(AT_FDCWD, "a", 1);
    CHECK(c >= 0 && fcntl(c, F_GETFD) == FD_CLOEXEC);
    CHECK_ERR(config(c, CREATE, NULL, NULL, 0), EBUSY);
    CHECK_ERR(fs_mount(c, 0, 0), EBUSY);
    t_drop_root();
    CHECK_ERR(pick(AT_FDCWD, "a", 0), EPERM);
}
CASE(context_does_not_keep_busy) {
    own();
    int fd = fs_open("tmpfs", 0);
    CHECK(config(fd, CREATE, NULL, NULL, 0) == 0);
    int m = fs_mount(fd, 0, 0);
    CHECK(move(m, "", AT_FDCWD, "a", F_EMPTY) == 0);
    CHECK_ERR(umount("a"), EBUSY);  // the descriptor of the mount
    CHECK(close(m) == 0 && umount("a") == 0);
}
CASE(setattr_sets_and_clears) {
    own();
    CHECK(tmpfs("a") == 0);
    struct attr a = {RDONLY | NOSUID, 0, 0, 0};
    CHECK(set_attr(AT_FDCWD, "a", 0, &a, 32) == 0);
    CHECK_EQ(flags_of("a"), 0x1003);
    CHECK_ERR(mkdir("a/d", 0755), EROFS);
    a = (struct attr){NOEXEC, RDONLY, 0, 0};
    CHECK(set_attr(AT_FDCWD, "a", 0, &a, 32) == 0);
    CHECK_EQ(flags_of("a"), 0x100a);
    CHECK(mkdir("a/d", 0755) == 0);
}
CASE(setattr_times) {
    own();
    CHECK(tmpfs("a") == 0);
    struct attr a = {NOATIME, ATIME, 0, 0};
    CHECK(set_attr(AT_FDCWD, "a", 0, &a, 32) == 0);
    CHECK_EQ(flags_of("a"), 0x400);
    a = (struct attr){STRICTATIME, ATIME, 0, 0};
    CHECK(set_attr(AT_FDCWD, "a", 0, &a, 32) == 0);
    CHECK_EQ(flags_of("a"), 0);
    a = (struct attr){0, ATIME, 0, 0};
    CHECK(set_attr(AT_FDCWD, "a", 0, &a, 32) == 0);
    CHECK_EQ(flags_of("a"), 0x1000);
    a = (struct attr){NOATIME, 0, 0, 0};
    CHECK_ERR(set_attr(AT_FDCWD, "a", 0, &a, 32), EINVAL);
    a = (struct attr){NOATIME, 0x10, 0, 0};
    CHECK_ERR(set_attr(AT_FDCWD, "a", 0, &a, 32), EINVAL);
    a = (struct attr){NOATIME | STRICTATIME, ATIME, 0, 0};
    CHECK_ERR(set_attr(AT_FDCWD, "a", 0, &a, 32), EINVAL);
}
CASE(setattr_propagation) {
    own();
    CHECK(tmpfs("a") == 0);
    struct attr a = {0, 0, MS_SHARED, 0};
    CHECK(set_attr(AT_FDCWD, "a", 0, &a, 32) == 0);
    CHECK(strstr(slurp("/proc/self/mountinfo"), " shared:") != NULL);
    a.propagation = MS_PRIVATE;
    CHECK(set_attr(AT_FDCWD, "a", 0, &a, 32) == 0);
    a.propagation = MS_PRIVATE | MS_SHARED;
    CHECK_ERR(set_attr(AT_FDCWD, "a", 0, &a, 32), EINVAL);
    a.propagation = MS_REC;
    CHECK_ERR(set_attr(AT_FDCWD, "a", 0, &a, 32), EINVAL);
}
CASE(setattr_recursive) {
    own();
    CHECK(tmpfs("a") == 0 && mkdir("a/x", 0755) == 0 && tmpfs("a/x") == 0);
    struct attr a = {NOEXEC, 0, 0, 0};
    CHECK(set_attr(AT_FDCWD, "a", 0, &a, 32) == 0 && flags_of("a/x") == 0x1000);
    CHECK(set_attr(AT_FDCWD, "a", RECURSIVE, &a, 32) == 0 && flags_of("a/x") == 0x1008);
}
CASE(setattr_all_or_nothing) {
    own();
    CHECK(tmpfs("a") == 0 && mkdir("a/x", 0755) == 0 && tmpfs("a/x") == 0);
    int fd = open("a/x/f", O_CREAT | O_RDWR, 0600);
    CHECK(fd >= 0);
    struct attr a = {RDONLY, 0, 0, 0};
    CHECK_ERR(set_attr(AT_FDCWD, "a", RECURSIVE, &a, 32), EBUSY);
    CHECK(mkdir("a/d", 0755) == 0);
    close(fd);
    CHECK(set_attr(AT_FDCWD, "a", RECURSIVE, &a, 32) == 0);
    CHECK_ERR(mkdir("a/e", 0755), EROFS);
}
CASE(setattr_errors) {
    own();
    CHECK(tmpfs("a") == 0 && mkdir("a/d", 0755) == 0);
    struct attr a = {NOEXEC, 0, 0, 0};
    CHECK_ERR(set_attr(AT_FDCWD, "b", 0, &a, 32), EINVAL);
    CHECK_ERR(set_attr(AT_FDCWD, "a/d", 0, &a, 32), EINVAL);
    CHECK_ERR(set_attr(AT_FDCWD, "missing", 0, &a, 32), ENOENT);
    CHECK_ERR(set_attr(AT_FDCWD, "a", 2, &a, 32), EINVAL);
    CHECK_ERR(set_attr(AT_FDCWD, "a", 0, &a, 31), EINVAL);
    CHECK_ERR(set_attr(AT_FDCWD, "a", 0, &a, 5000), E2BIG);
    CHECK_ERR(set_attr(AT_FDCWD, "a", 0, BAD, 32), EFAULT);
    struct { struct attr a; uint64_t more; } big = {{NOEXEC, 0, 0, 0}, 1};
    CHECK_ERR(set_attr(AT_FDCWD, "a", 0, &big.a, sizeof big), E2BIG);
    big.more = 0;
    CHECK(set_attr(AT_FDCWD, "a", 0, &big.a, sizeof big) == 0);
    a.set = 1ULL << 40;
    CHECK_ERR(set_attr(AT_FDCWD, "a", 0, &a, 32), EINVAL);
    a = (struct attr){0};
    CHECK(set_attr(AT_FDCWD, "missing", 0, &a, 32) == 0);  // nothing is asked for
    a.set = NOEXEC;
    t_drop_root();
    CHECK_ERR(set_attr(AT_FDCWD, "a", 0, &a, 32), EPERM);
}
CASE(setattr_of_a_detached_tree) {
    own();
    int m = make_tmpfs(0);
    struct attr a = {RDONLY, 0, 0, 0};
    CHECK(set_attr(m, "", EMPTY, &a, 32) == 0);
    CHECK_ERR(mkdirat(m, "d", 0755), EROFS);
}
CASE(setattr_nosymfollow) {
    own();
    CHECK(tmpfs("a") == 0 && symlink("f", "a/l") == 0);
    close(mkfile("a/f", ""));
    struct attr a = {NOSYMFOLLOW, 0, 0, 0};
    CHECK(set_attr(AT_FDCWD, "a", 0, &a, 32) == 0);
    CHECK_ERR(open("a/l", O_RDONLY), ELOOP);
    char b[10];
    CHECK_EQ(readlink("a/l", b, 10), 1);
    struct stat s;
    CHECK_ERR(stat("a/l", &s), ELOOP);
    CHECK(lstat("a/l", &s) == 0);
    CHECK(open("a/f", O_RDONLY) >= 0);
}
CASE(unique_numbers) {
    own();
    CHECK(tmpfs("a") == 0);
    uint64_t n = unique("a");
    CHECK(n > 1ULL << 31);
    CHECK(n != unique("b"));
    CHECK(umount("a") == 0 && tmpfs("a") == 0);
    CHECK(unique("a") != n);
}
CASE(statx_both_numbers) {
    own();
    struct statx x;
    CHECK(statx(AT_FDCWD, "a", 0, STATX_MNT_ID | 0x4000, &x) == 0);
    if (!(x.stx_mask & 0x4000)) SKIP("an older kernel");
    CHECK(!(x.stx_mask & STATX_MNT_ID) && x.stx_mnt_id > 1ULL << 31);
}
static struct report rep;
static int about(uint64_t id, uint64_t what) {
    struct request r = {24, 0, id, what, 0};
    memset(&rep, 0xaa, sizeof rep);
    return stat_mount(&r, &rep, sizeof rep, 0);
}
CASE(statmount_basic) {
    own();
    CHECK(mount("t", "a", "tmpfs", MS_NOSUID | MS_NOATIME, NULL) == 0);
    uint64_t id = unique("a");
    if (about(id, 3) < 0 && errno == ENOSYS) SKIP("an older kernel");
    CHECK(about(id, 3) == 0);
    struct stat s;
    CHECK(stat("a", &s) == 0);
    CHECK((rep.mask & 3) == 3 && rep.id == id && rep.parent == unique("."));
    CHECK(rep.old_id == old_id("a") && rep.old_parent == old_id("."));
    CHECK(rep.major == major(s.st_dev) && rep.minor == minor(s.st_dev) && rep.magic == 0x01021994);
    CHECK_EQ(rep.attr, NOSUID | NOATIME);
    CHECK_EQ(rep.propagation, MS_PRIVATE);
    CHECK(rep.group == 0 && rep.master == 0 && rep.size == 512);
}
CASE(statmount_strings) {
    own();
    CHECK(mount("mine", "a", "tmpfs", 0, NULL) == 0);
    CHECK(about(unique("a"), 8 | 0x10 | 0x20 | 0x200) == 0);
    char want[PATH_MAX + 10], here[PATH_MAX];
    snprintf(want, sizeof want, "%s/a", getcwd(here, sizeof here));
    CHECK(!strcmp(rep.text + rep.root, "/") && !strcmp(rep.text + rep.point, want));
    CHECK(!strcmp(rep.text + rep.type, "tmpfs"));
    CHECK(rep.size > 512);
    if (rep.mask & 0x200) CHECK(!strcmp(rep.text + rep.source, "mine"));
}
CASE(statmount_root_of_a_bind) {
    own();
    CHECK(mkdir("a/deep", 0755) == 0 && mount("a/deep", "b", NULL, MS_BIND, NULL) == 0);
    CHECK(about(unique("b"), 8) == 0);
    CHECK(!strcmp(rep.text + rep.root, "/a/deep"));
}
CASE(statmount_groups) {
    own();
    CHECK(tmpfs("a") == 0 && mount(NULL, "a", NULL, MS_SHARED, NULL) == 0 && mount("a", "b", NULL, MS_BIND, NULL) == 0);
    CHECK(mount(NULL, "b", NULL, MS_SLAVE, NULL) == 0);
    CHECK(about(unique("a"), 2) == 0);
    uint64_t group = rep.group;
    CHECK(rep.propagation == MS_SHARED && group != 0);
    CHECK(about(unique("b"), 2 | 4) == 0);
    CHECK(rep.propagation == MS_SLAVE && rep.master == group && rep.from == group);
}
CASE(statmount_errors) {
    own();
    struct request r = {24, 0, unique("a"), 3, 0};
    if (stat_mount(&r, &rep, sizeof rep, 0) < 0 && errno == ENOSYS) SKIP("an older kernel");
    CHECK_ERR(stat_mount(&r, &rep, sizeof rep, 1), EINVAL);
    CHECK_ERR(stat_mount(BAD, &rep, sizeof rep, 0), EFAULT);
    CHECK_ERR(stat_mount(&r, BAD, sizeof rep, 0), EFAULT);
    r.size = 23;
    CHECK_ERR(stat_mount(&r, &rep, sizeof rep, 0), EINVAL);
    r.size = 5000;
    CHECK_ERR(stat_mount(&r, &rep, sizeof rep, 0), E2BIG);
    r = (struct request){24, 0, unique("a") + 100000, 3, 0};
    CHECK_ERR(stat_mount(&r, &rep, sizeof rep, 0), ENOENT);
    r = (struct request){24, 0, 5, 3, 0};
    CHECK_ERR(stat_mount(&r, &rep, sizeof rep, 0), EINVAL);
    r = (struct request){24, 0, unique("a"), 0x10, 0};
    CHECK_ERR(stat_mount(&r, &rep, 512, 0), EOVERFLOW);
    CHECK_ERR(stat_mount(&r, &rep, 515, 0), EOVERFLOW);
}
CASE(listmount_children) {
    own();
    CHECK(tmpfs("a") == 0 && mkdir("a/x", 0755) == 0 && tmpfs("a/x") == 0 && tmpfs("b") == 0);
    struct request r = {24, 0, unique("a"), 0, 0};
    uint64_t ids[10];
    int n = list_mount(&r, ids, 10, 0);
    if (n < 0 && errno == ENOSYS) SKIP("an older kernel");
    CHECK_EQ(n, 1);
    CHECK(ids[0] == unique("a/x"));
    r.id = unique(".");
    CHECK_EQ(list_mount(&r, ids, 10, 0), 3);
    CHECK(ids[0] == unique("a") && ids[1] == unique("a/x") && ids[2] == unique("b"));
    CHECK_EQ(list_mount(&r, ids, 2, 0), 2);
    r.param = ids[1];
    CHECK_EQ(list_mount(&r, ids, 10, 0), 1);
    CHECK(ids[0] == unique("b"));
}
CASE(listmount_reverse) {
    own();
    CHECK(tmpfs("a") == 0 && tmpfs("b") == 0);
    struct request r = {24, 0, unique("."), 0, 0};
    uint64_t ids[10];
    int n = list_mount(&r, ids, 10, 1);
    if (n < 0) SKIP("an older kernel");
    CHECK_EQ(n, 2);
    CHECK(ids[0] == unique("b") && ids[1] == unique("a"));
    r.param = ids[0];
    CHECK_EQ(list_mount(&r, ids, 10, 1), 1);
    CHECK(ids[0] == unique("a"));
}
CASE(listmount_of_the_root) {
    own();
    struct request r = {24, 0, XS, 0, 0};
    uint64_t ids[1000];
    int n = list_mount(&r, ids, 1000, 0), found = 0;
    if (n < 0 && errno == ENOSYS) SKIP("an older kernel");
    for (int i = 0; i < n; i++) found += ids[i] == unique(".") || ids[i] == unique("/proc");
    CHECK_EQ(found, 2);
}
CASE(listmount_errors) {
    own();
    uint64_t ids[10];
    struct request r = {24, 0, XS, 0, 0};
    if (list_mount(&r, ids, 10, 0) < 0 && errno == ENOSYS) SKIP("an older kernel");
    CHECK_ERR(list_mount(&r, ids, 10, 2), EINVAL);
    CHECK_ERR(list_mount(&r, ids, 2000000, 0), EOVERFLOW);
    CHECK_ERR(list_mount(BAD, ids, 10, 0), EFAULT);
    CHECK_ERR(list_mount(&r, BAD, 10, 0), EFAULT);
    r.size = 8;
    CHECK_ERR(list_mount(&r, ids, 10, 0), EINVAL);
    r = (struct request){24, 0, XS, 5, 0};
    CHECK_ERR(list_mount(&r, ids, 10, 0), EINVAL);
    r = (struct request){24, 0, unique("a") + 100000, 0, 0};
    CHECK_ERR(list_mount(&r, ids, 10, 0), ENOENT);
    r = (struct request){24, 0, XS, 0, 0};
    CHECK_EQ(list_mount(&r, ids, 0, 0), 0);
}
CASE(open_tree_attr_clone) {
    own();
    CHECK(tmpfs("a") == 0);
    struct attr a = {RDONLY, 0, 0, 0};
    int fd = syscall(467, AT_FDCWD, "a", CLONE_TREE, &a, 32);
    if (fd < 0 && errno == ENOSYS) SKIP("an older kernel");
    CHECK(fd >= 0);
    CHECK_ERR(mkdirat(fd, "d", 0755), EROFS);
    CHECK(mkdir("a/d", 0755) == 0);
    CHECK_ERR(syscall(467, AT_FDCWD, "a", CLONE_TREE, NULL, 32), EINVAL);
}
