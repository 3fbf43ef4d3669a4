// Extended attributes: sizes, flags, lists, name spaces, links, descriptors, and what survives renames and copies.
#include "t.h"
#include <sys/xattr.h>

static int file(void) {
    scratch();
    int fd = mkfile("f", "x");
    if (setxattr("f", "user.probe", "1", 1, 0) && errno == EOPNOTSUPP) SKIP("no xattrs here");
    removexattr("f", "user.probe");
    return fd;
}
CASE(size_query_then_erange) {
    file();
    CHECK(setxattr("f", "user.a", "hello", 5, 0) == 0);
    char b[8] = "########";
    CHECK_EQ(getxattr("f", "user.a", NULL, 0), 5);
    CHECK_ERR(getxattr("f", "user.a", b, 4), ERANGE);
    CHECK_EQ(b[0], '#');
    CHECK_EQ(getxattr("f", "user.a", b, 8), 5);
    CHECK(!memcmp(b, "hello###", 8));
}
CASE(empty_value) {
    file();
    CHECK(setxattr("f", "user.e", "", 0, 0) == 0);
    char b[4];
    CHECK_EQ(getxattr("f", "user.e", b, 4), 0);
    CHECK(setxattr("f", "user.e2", NULL, 0, 0) == 0);
    CHECK_EQ(getxattr("f", "user.e2", b, 4), 0);
}
CASE(list_has_every_name_with_terminators) {
    file();
    CHECK(setxattr("f", "user.one", "1", 1, 0) == 0 && setxattr("f", "user.two", "2", 1, 0) == 0);
    char b[256];
    long n = CHECK_OK(listxattr("f", b, sizeof b));
    int found = 0;
    for (char *p = b; p < b + n; p += strlen(p) + 1) found += !strcmp(p, "user.one") + !strcmp(p, "user.two");
    CHECK_EQ(found, 2);
    CHECK_EQ(b[n - 1], 0);
    CHECK_EQ(listxattr("f", NULL, 0), n);
    CHECK_ERR(listxattr("f", b, n - 1), ERANGE);
}
CASE(create_and_replace_flags) {
    file();
    CHECK_ERR(setxattr("f", "user.a", "1", 1, XATTR_REPLACE), ENODATA);
    CHECK(setxattr("f", "user.a", "1", 1, XATTR_CREATE) == 0);
    CHECK_ERR(setxattr("f", "user.a", "2", 1, XATTR_CREATE), EEXIST);
    CHECK(setxattr("f", "user.a", "333", 3, XATTR_REPLACE) == 0);
    CHECK_ERR(setxattr("f", "user.a", "1", 1, 4), EINVAL);
}
CASE(value_is_replaced_not_extended) {
    file();
    CHECK(setxattr("f", "user.a", "longer value", 12, 0) == 0 && setxattr("f", "user.a", "s", 1, 0) == 0);
    char b[16];
    CHECK(getxattr("f", "user.a", b, sizeof b) == 1 && b[0] == 's');
}
CASE(missing_attribute) {
    file();
    char b[4];
    CHECK_ERR(getxattr("f", "user.no", b, 4), ENODATA);
    CHECK_ERR(removexattr("f", "user.no"), ENODATA);
    CHECK_ERR(getxattr("no", "user.no", b, 4), ENOENT);
}
CASE(name_limits) {
    file();
    char name[300] = "user.";
    memset(name + 5, 'n', 250);
    CHECK(setxattr("f", name, "1", 1, 0) == 0);  // 255 bytes
    name[255] = 'n';
    CHECK_ERR(setxattr("f", name, "1", 1, 0), ERANGE);
    CHECK_ERR(setxattr("f", "", "1", 1, 0), ERANGE);
    CHECK_ERR(setxattr("f", "nonsense", "1", 1, 0), EOPNOTSUPP);
    CHECK_ERR(setxattr("f", "nosuch.space", "1", 1, 0), EOPNOTSUPP);
}
CASE(value_limit) {
    file();
    char *big = calloc(1, 70000);
    CHECK_ERR(setxattr("f", "user.big", big, 65537, 0), E2BIG);
    CHECK_ERR(getxattr("f", "user.big", big, 70000), ENODATA);
}
CASE(bad_pointers) {
    file();
    CHECK_ERR(setxattr("f", "user.a", BAD, 4, 0), EFAULT);
    CHECK_ERR(setxattr("f", BAD, "1", 1, 0), EFAULT);
    CHECK_ERR(setxattr(BAD, "user.a", "1", 1, 0), EFAULT);
    CHECK(setxattr("f", "user.a", "1234", 4, 0) == 0);
    CHECK_ERR(getxattr("f", "user.a", noaccess(), 16), EFAULT);
    CHECK_ERR(listxattr("f", noaccess(), 160), EFAULT);
}
CASE(by_descriptor) {
    int fd = file();
    char b[64];
    CHECK(fsetxattr(fd, "user.d", "val", 3, 0) == 0);
    CHECK_EQ(fgetxattr(fd, "user.d", b, sizeof b), 3);
    CHECK(flistxattr(fd, b, sizeof b) >= 7);
    CHECK(unlink("f") == 0);
    CHECK_EQ(fgetxattr(fd, "user.d", b, sizeof b), 3);  // an unlinked file keeps them
    CHECK(fremovexattr(fd, "user.d") == 0);
    CHECK_ERR(fgetxattr(fd, "user.d", b, sizeof b), ENODATA);
    CHECK_ERR(fgetxattr(999, "user.d", b, sizeof b), EBADF);
}
CASE(read_only_descriptor_may_set) {
    file();
    int fd = open("f", O_RDONLY);
    CHECK(fsetxattr(fd, "user.d", "v", 1, 0) == 0);
}
CASE(o_path_descriptor_may_not) {
    file();
    int fd = open("f", O_PATH);
    char b[4];
    CHECK_ERR(fgetxattr(fd, "user.d", b, 4), EBADF);
    CHECK_ERR(fsetxattr(fd, "user.d", b, 1, 0), EBADF);
    CHECK_ERR(flistxattr(fd, b, 4), EBADF);
}
CASE(through_and_on_symlinks) {
    file();
    symlink("f", "l");
    CHECK(setxattr("l", "user.t", "file", 4, 0) == 0);
    char b[16];
    CHECK_EQ(getxattr("f", "user.t", b, 16), 4);
    CHECK_ERR(lgetxattr("l", "user.t", b, 16), ENODATA);
    CHECK_ERR(lsetxattr("l", "user.s", "x", 1, 0), EPERM);  // user attributes only on files and directories
    CHECK(lsetxattr("l", "trusted.s", "link", 4, 0) == 0);
    CHECK_EQ(lgetxattr("l", "trusted.s", b, 16), 4);
    CHECK(llistxattr("l", b, 16) >= 10);
    CHECK_ERR(getxattr("f", "trusted.s", b, 16), ENODATA);
    CHECK(lremovexattr("l", "trusted.s") == 0);
    CHECK_ERR(lremovexattr("l", "trusted.s"), ENODATA);
}
CASE(user_space_needs_regular_or_directory) {
    file();
    CHECK(mkfifo("p", 0644) == 0);
    CHECK_ERR(setxattr("p", "user.a", "1", 1, 0), EPERM);
    char b[4];
    CHECK_ERR(getxattr("p", "user.a", b, 4), ENODATA);
    CHECK(mkdir("d", 0755) == 0 && setxattr("d", "user.a", "1", 1, 0) == 0);
}
CASE(follow_file_not_name) {
    file();
    CHECK(setxattr("f", "user.a", "1", 1, 0) == 0 && link("f", "g") == 0 && rename("f", "h") == 0);
    char b[4];
    CHECK_EQ(getxattr("g", "user.a", b, 4), 1);
    CHECK_EQ(getxattr("h", "user.a", b, 4), 1);
    close(mkfile("f", ""));
    CHECK_ERR(getxattr("f", "user.a", b, 4), ENODATA);
}
CASE(permissions_of_user_space) {
    file();
    CHECK(setxattr("f", "user.a", "1", 1, 0) == 0 && chmod("f", 0604) == 0);
    t_drop_root();
    char b[4];
    CHECK_EQ(getxattr("f", "user.a", b, 4), 1);
    CHECK_ERR(setxattr("f", "user.a", "2", 1, 0), EACCES);
    CHECK_ERR(removexattr("f", "user.a"), EACCES);
}
CASE(unreadable_value_is_refused_names_are_not) {
    file();
    CHECK(setxattr("f", "user.a", "1", 1, 0) == 0 && chmod("f", 0602) == 0);
    t_drop_root();
    char b[64];
    CHECK_ERR(getxattr("f", "user.a", b, 4), EACCES);
    CHECK(listxattr("f", b, 64) >= 7);
}
CASE(trusted_hidden_from_users) {
    file();
    CHECK(setxattr("f", "trusted.t", "1", 1, 0) == 0 && setxattr("f", "user.u", "1", 1, 0) == 0 && chmod("f", 0666) == 0);
    t_drop_root();
    char b[64];
    CHECK_ERR(getxattr("f", "trusted.t", b, 4), ENODATA);
    CHECK_ERR(setxattr("f", "trusted.t", "2", 1, 0), EPERM);
    long n = CHECK_OK(listxattr("f", b, sizeof b));
    for (char *p = b; p < b + n; p += strlen(p) + 1) CHECK(strcmp(p, "trusted.t") != 0);
}
CASE(sticky_directory_needs_owner) {
    file();
    CHECK(mkdir("d", 0777) == 0 && chmod("d", 01777) == 0);
    t_drop_root();
    CHECK_ERR(setxattr("d", "user.a", "1", 1, 0), EPERM);
}
CASE(change_touches_ctime_only) {
    file();
    struct stat a, b;
    CHECK(stat("f", &a) == 0);
    msleep(20);
    CHECK(setxattr("f", "user.a", "1", 1, 0) == 0 && stat("f", &b) == 0);
    CHECK(b.st_ctim.tv_sec > a.st_ctim.tv_sec || b.st_ctim.tv_nsec > a.st_ctim.tv_nsec);
    CHECK(b.st_mtim.tv_nsec == a.st_mtim.tv_nsec);
}
CASE(not_on_pipes_and_proc) {
    int p[2];
    char b[4];
    CHECK(pipe(p) == 0);
    CHECK_ERR(fsetxattr(p[0], "user.a", "1", 1, 0), EPERM);
    CHECK_ERR(setxattr("/proc/self/status", "user.a", "1", 1, 0), EOPNOTSUPP);
    CHECK_ERR(getxattr("/proc/self/status", "user.a", b, 4), EOPNOTSUPP);
}

// setxattrat and its kin, by number: libc has none of them yet.
struct args { uint64_t value; uint32_t size, flags; };
static long set_at(int dir, const char *path, int at, const char *name, const char *value, uint32_t how) {
    struct args a = {(uintptr_t)value, strlen(value), how};
    return syscall(463, dir, path, at, name, &a, sizeof a);
}
static long get_at(int dir, const char *path, int at, const char *name, char *out, uint32_t room) {
    struct args a = {(uintptr_t)out, room, 0};
    return syscall(464, dir, path, at, name, &a, sizeof a);
}
static void need_at(void) {
    if (syscall(463, -1, NULL, 0, NULL, NULL, 0) < 0 && errno == ENOSYS) SKIP("the kernel has no setxattrat");
}
CASE(at_directories_and_descriptors) {
    need_at();
    int fd = file(), dir = CHECK_OK(open(".", O_RDONLY | O_DIRECTORY)), other = CHECK_OK(open("/", O_RDONLY));
    char b[64];
    CHECK_EQ(set_at(dir, "f", 0, "user.a", "one", 0), 0);
    CHECK_EQ(get_at(AT_FDCWD, "f", 0, "user.a", b, sizeof b), 3);
    CHECK(!memcmp(b, "one", 3));
    CHECK_EQ(get_at(dir, "f", 0, "user.a", NULL, 0), 3);
    CHECK_ERR(get_at(dir, "f", 0, "user.a", b, 2), ERANGE);
    CHECK_ERR(get_at(other, "f", 0, "user.a", b, sizeof b), ENOENT);
    CHECK_ERR(get_at(fd, "f", 0, "user.a", b, sizeof b), ENOTDIR);
    CHECK_ERR(set_at(dir, "f", 0, "user.a", "two", XATTR_CREATE), EEXIST);
    CHECK_ERR(set_at(dir, "f", 0, "user.b", "two", XATTR_REPLACE), ENODATA);
    // What the descriptor is of: an empty name, or none.
    CHECK_EQ(set_at(fd, "", AT_EMPTY_PATH, "user.b", "two", XATTR_CREATE), 0);
    CHECK_EQ(get_at(fd, NULL, AT_EMPTY_PATH, "user.b", b, sizeof b), 3);
    CHECK_ERR(get_at(fd, "", 0, "user.b", b, sizeof b), ENOENT);
    CHECK_ERR(get_at(fd, NULL, 0, "user.b", b, sizeof b), EFAULT);
    CHECK_ERR(get_at(-1, "", AT_EMPTY_PATH, "user.b", b, sizeof b), EBADF);
    CHECK_EQ(set_at(AT_FDCWD, "", AT_EMPTY_PATH, "user.c", "dir", 0), 0);
    CHECK_EQ(getxattr(".", "user.c", b, sizeof b), 3);
    long n = syscall(465, dir, "f", 0, b, sizeof b);
    CHECK_EQ(n, 14);
    CHECK_EQ(syscall(465, fd, "", AT_EMPTY_PATH, NULL, 0), 14);
    CHECK_EQ(syscall(466, dir, "f", 0, "user.a"), 0);
    CHECK_ERR(syscall(466, dir, "f", 0, "user.a"), ENODATA);
    CHECK_EQ(syscall(466, fd, "", AT_EMPTY_PATH, "user.b"), 0);
    CHECK_EQ(syscall(465, dir, "f", 0, b, sizeof b), 0);
}
CASE(at_links_flags_and_sizes) {
    need_at();
    file();
    char b[64];
    CHECK(symlink("f", "l") == 0);
    CHECK_EQ(set_at(AT_FDCWD, "l", 0, "user.a", "x", 0), 0);
    CHECK_EQ(getxattr("f", "user.a", b, sizeof b), 1);
    CHECK_ERR(set_at(AT_FDCWD, "l", AT_SYMLINK_NOFOLLOW, "user.a", "x", 0), EPERM);
    CHECK_ERR(get_at(AT_FDCWD, "l", AT_SYMLINK_NOFOLLOW, "user.a", b, sizeof b), ENODATA);
    CHECK_ERR(set_at(AT_FDCWD, "f", 0x400, "user.a", "x", 0), EINVAL);
    CHECK_ERR(syscall(465, AT_FDCWD, "f", 0x200, b, sizeof b), EINVAL);
    CHECK_ERR(syscall(466, AT_FDCWD, "f", 1, "user.a"), EINVAL);
    CHECK_ERR(set_at(AT_FDCWD, "f", 0, "user.a", "x", 4), EINVAL);
    struct { struct args a; uint64_t more[600]; } long_args = {{(uintptr_t)b, sizeof b, 0}, {0}};
    CHECK_EQ(syscall(464, AT_FDCWD, "f", 0, "user.a", &long_args, sizeof(struct args) + 64), 1);
    CHECK_ERR(syscall(464, AT_FDCWD, "f", 0, "user.a", &long_args, sizeof(struct args) - 1), EINVAL);
    CHECK_ERR(syscall(464, AT_FDCWD, "f", 0, "user.a", &long_args, 4097), E2BIG);
    long_args.more[7] = 1;
    CHECK_ERR(syscall(464, AT_FDCWD, "f", 0, "user.a", &long_args, sizeof(struct args) + 64), E2BIG);
    long_args.a.flags = 1;
    CHECK_ERR(syscall(464, AT_FDCWD, "f", 0, "user.a", &long_args, sizeof(struct args)), EINVAL);
    CHECK_ERR(syscall(464, AT_FDCWD, "f", 0, "user.a", noaccess(), sizeof(struct args)), EFAULT);
}
