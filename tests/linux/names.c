// Renames, links, removals and path walks at their edges: kinds, trailing slashes, loops, sticky directories, races.
#include "t.h"
#include <dirent.h>
#include <sys/syscall.h>

static struct stat st;
static int mode_of(const char *p) { return lstat(p, &st) == 0 ? (int)(st.st_mode & S_IFMT) : -1; }
static int ren2(const char *a, const char *b, unsigned f) { return syscall(SYS_renameat2, AT_FDCWD, a, AT_FDCWD, b, f); }
static void touch(const char *p) { close(mkfile(p, p)); }

CASE(rename_directory_over_empty_directory) {
    scratch();
    mkdir("a", 0700), mkdir("b", 0755), touch("a/x");
    CHECK(rename("a", "b") == 0);
    CHECK(access("b/x", F_OK) == 0 && mode_of("a") == -1);
    CHECK(stat("b", &st) == 0 && (st.st_mode & 0777) == 0700);
}
CASE(rename_directory_over_full_directory) {
    scratch();
    mkdir("a", 0700), mkdir("b", 0755), touch("b/x");
    CHECK(rename("a", "b") == -1 && (errno == ENOTEMPTY || errno == EEXIST));
    CHECK(mode_of("a") == S_IFDIR && access("b/x", F_OK) == 0);
}
CASE(rename_kind_mismatch) {
    scratch();
    mkdir("d", 0755), touch("f");
    CHECK_ERR(rename("f", "d"), EISDIR);
    CHECK_ERR(rename("d", "f"), ENOTDIR);
    CHECK(symlink("d", "l") == 0 && rename("f", "l") == 0);  // the link itself is replaced
    CHECK(mode_of("l") == S_IFREG && mode_of("d") == S_IFDIR);
}
CASE(rename_into_own_child) {
    scratch();
    mkdir("a", 0755), mkdir("a/b", 0755), mkdir("a/b/c", 0755);
    CHECK_ERR(rename("a", "a/b/c/a"), EINVAL);
    CHECK_ERR(rename("a", "a/b"), EINVAL);
    CHECK(rename("a/b/c", "a") == -1 && (errno == ENOTEMPTY || errno == EEXIST));
}
CASE(rename_dot_names) {
    scratch();
    mkdir("a", 0755);
    CHECK_ERR(rename("a/.", "b"), EBUSY);
    CHECK_ERR(rename("a/..", "b"), EBUSY);
    CHECK_ERR(rename("a", "."), EBUSY);
    // EXDEV where the scratch directory is on another mount.
    CHECK(rename("/", "x") == -1 && (errno == EBUSY || errno == EXDEV));
    CHECK_ERR(rename("a", ""), ENOENT);
}
CASE(rename_trailing_slash) {
    scratch();
    mkdir("d", 0755), touch("f");
    CHECK(rename("d/", "e/") == 0);
    CHECK_ERR(rename("f/", "g"), ENOTDIR);
    CHECK_ERR(rename("f", "g/"), ENOTDIR);
    CHECK_ERR(rename("e", "f/"), ENOTDIR);
}
CASE(rename_two_links_of_one_file_does_nothing) {
    scratch();
    touch("a"), link("a", "b");
    CHECK(rename("a", "b") == 0);
    CHECK(stat("a", &st) == 0 && st.st_nlink == 2);
}
CASE(rename_replaced_file_lives_while_open) {
    scratch();
    int fd = mkfile("old", "old");
    touch("new");
    CHECK(rename("new", "old") == 0);
    char b[4];
    CHECK(read(fd, b, 4) == 3 && fstat(fd, &st) == 0 && st.st_nlink == 0);
    CHECK(!strcmp(slurp("old"), "new"));
}
CASE(rename_replaced_directory_is_dead) {
    scratch();
    mkdir("a", 0755), mkdir("b", 0755);
    int fd = open("b", O_RDONLY);
    CHECK(rename("a", "b") == 0);
    CHECK_ERR(openat(fd, "x", O_CREAT | O_RDWR, 0600), ENOENT);
    CHECK(fstat(fd, &st) == 0 && st.st_nlink == 0);
}
CASE(rename_needs_write_on_moved_directory_parent_change) {
    scratch();
    mkdir("a", 0777), mkdir("b", 0777), chmod("a", 0777), chmod("b", 0777);
    mkdir("a/d", 0555);
    CHECK(chown("a/d", 1000, 1000) == 0);
    t_drop_root();
    CHECK(rename("a/d", "a/e") == 0);       // the same parent
    CHECK_ERR(rename("a/e", "b/e"), EACCES);  // ".." would change
}
CASE(sticky_directory_rename_and_replace) {
    scratch();
    mkdir("s", 0777), chmod("s", 01777), touch("s/roots");
    t_drop_root();
    CHECK_ERR(rename("s/roots", "s/mine"), EPERM);
    touch("s/mine");
    CHECK_ERR(rename("s/mine", "s/roots"), EPERM);
    CHECK_ERR(unlink("s/roots"), EPERM);
    CHECK(rename("s/mine", "s/other") == 0);
}
CASE(sticky_directory_owner_may_remove) {
    scratch();
    mkdir("s", 0777), chmod("s", 01777), chown("s", 1000, 1000), touch("s/roots");
    t_drop_root();
    CHECK(unlink("s/roots") == 0);
}
CASE(exchange_kinds_and_counts) {
    scratch();
    mkdir("p", 0755), mkdir("d", 0755), mkdir("d/x", 0755), touch("p/f");
    CHECK(ren2("p/f", "d", 2) == 0);
    CHECK(mode_of("d") == S_IFREG && mode_of("p/f") == S_IFDIR && mode_of("p/f/x") == S_IFDIR);
    CHECK(stat("p", &st) == 0 && st.st_nlink == 3);
    CHECK_ERR(ren2("p/f", "missing", 2), ENOENT);
    CHECK_ERR(ren2("p", "p/f/x", 2), EINVAL);
    CHECK_ERR(ren2("p/f/x", "p", 2), EINVAL);
}
CASE(renameat2_flag_errors) {
    scratch();
    touch("a"), touch("b");
    CHECK_ERR(ren2("a", "b", 1), EEXIST);
    CHECK_ERR(ren2("a", "c", 3), EINVAL);
    CHECK_ERR(ren2("a", "c", 8), EINVAL);
    CHECK_ERR(ren2("a", "a", 1), EEXIST);
    CHECK(ren2("a", "a", 2) == 0);
}
CASE(link_rules) {
    scratch();
    touch("f"), mkdir("d", 0755), symlink("f", "l");
    CHECK_ERR(link("d", "e"), EPERM);
    CHECK_ERR(link("f", "d"), EEXIST);
    CHECK_ERR(link("f", "nodir/x"), ENOENT);
    CHECK_ERR(link("f/", "x"), ENOTDIR);
    CHECK_ERR(link("f", "x/"), ENOENT);
    CHECK(linkat(AT_FDCWD, "l", AT_FDCWD, "hard", AT_SYMLINK_FOLLOW) == 0 && mode_of("hard") == S_IFREG);
    CHECK_ERR(linkat(AT_FDCWD, "f", AT_FDCWD, "z", 0x8), EINVAL);
}
CASE(link_by_empty_path) {
    scratch();
    int fd = mkfile("f", "x");
    CHECK(linkat(fd, "", AT_FDCWD, "g", AT_EMPTY_PATH) == 0);
    CHECK(stat("g", &st) == 0 && st.st_nlink == 2);
    CHECK(unlink("f") == 0 && unlink("g") == 0);
    CHECK_ERR(linkat(fd, "", AT_FDCWD, "h", AT_EMPTY_PATH), ENOENT);  // cannot come back
}
CASE(unlink_kinds) {
    scratch();
    mkdir("d", 0755), touch("f"), symlink("d", "l");
    CHECK_ERR(unlink("d"), EISDIR);
    CHECK_ERR(rmdir("f"), ENOTDIR);
    CHECK_ERR(rmdir("l"), ENOTDIR);
    CHECK_ERR(unlink("l/"), ENOTDIR);
    CHECK_ERR(unlink("f/"), ENOTDIR);
    CHECK(unlink("l") == 0 && mode_of("d") == S_IFDIR);
    CHECK_ERR(unlinkat(AT_FDCWD, "f", 0x1), EINVAL);
    CHECK(unlinkat(AT_FDCWD, "d", AT_REMOVEDIR) == 0);
}
CASE(rmdir_names) {
    scratch();
    mkdir("d", 0755), mkdir("d/e", 0755);
    CHECK_ERR(rmdir("d/e/."), EINVAL);
    CHECK_ERR(rmdir("d/e/.."), ENOTEMPTY);
    CHECK_ERR(rmdir("d"), ENOTEMPTY);
    CHECK_ERR(rmdir("/"), EBUSY);
    CHECK(rmdir("d/e/") == 0 && rmdir("d///") == 0);
}
CASE(mkdir_names) {
    scratch();
    CHECK(mkdir("d/", 0755) == 0);
    CHECK_ERR(mkdir("d", 0755), EEXIST);
    CHECK_ERR(mkdir("d/.", 0755), EEXIST);
    CHECK_ERR(mkdir("d/..", 0755), EEXIST);
    CHECK_ERR(mkdir("/", 0755), EEXIST);
    CHECK_ERR(mkdir("x/y", 0755), ENOENT);
    CHECK_ERR(mkdir("", 0755), ENOENT);
    symlink("nowhere", "l");
    CHECK_ERR(mkdir("l", 0755), EEXIST);  // a dangling link is a name
}
CASE(open_with_slash_behind_file) {
    scratch();
    touch("f");
    CHECK_ERR(open("f/", O_RDONLY), ENOTDIR);
    CHECK_ERR(open("new/", O_CREAT | O_RDWR, 0600), EISDIR);
    CHECK_ERR(open("f/.", O_RDONLY), ENOTDIR);
    CHECK_ERR(stat("f/..", &st), ENOTDIR);
    CHECK_ERR(open(".", O_CREAT | O_RDONLY, 0600), EISDIR);
}
CASE(symlink_with_trailing_slash_is_followed) {
    scratch();
    mkdir("d", 0755), symlink("d", "l"), symlink("f", "lf"), touch("f");
    CHECK(lstat("l/", &st) == 0 && S_ISDIR(st.st_mode));
    CHECK_ERR(lstat("lf/", &st), ENOTDIR);
    char b[8];
    CHECK_ERR(readlink("l/", b, 8), EINVAL);
}
CASE(symlink_arguments) {
    scratch();
    CHECK_ERR(symlink("", "e"), ENOENT);
    CHECK_ERR(symlink("x", ""), ENOENT);
    CHECK_ERR(symlink("x", "nodir/l"), ENOENT);
    char big[4200];
    memset(big, 'a', sizeof big), big[4199] = 0;
    CHECK_ERR(symlink(big, "l"), ENAMETOOLONG);
    big[4095] = 0;
    CHECK(symlink(big, "l") == 0);
    CHECK_EQ(readlink("l", big, sizeof big), 4095);
    CHECK(lstat("l", &st) == 0 && st.st_size == 4095 && (st.st_mode & 0777) == 0777);
}
CASE(symlink_limit_of_forty) {
    scratch();
    touch("l0");
    char a[16], b[16];
    for (int i = 1; i <= 41; i++) snprintf(a, 16, "l%d", i - 1), snprintf(b, 16, "l%d", i), symlink(a, b);
    CHECK(stat("l40", &st) == 0);
    CHECK_ERR(stat("l41", &st), ELOOP);
}
CASE(path_length_limits) {
    scratch();
    char p[5000];
    memset(p, '/', sizeof p);
    p[4096] = 0;
    CHECK_ERR(stat(p, &st), ENAMETOOLONG);
    p[4095] = 0;
    CHECK(stat(p, &st) == 0);
    memset(p, 'a', 256), p[256] = 0;
    CHECK_ERR(stat(p, &st), ENAMETOOLONG);
    CHECK_ERR(mkdir(p, 0755), ENAMETOOLONG);
    p[255] = 0;
    CHECK(mkdir(p, 0755) == 0);
}
CASE(search_permission_on_each_step) {
    scratch();
    mkdir("a", 0755), mkdir("a/b", 0755), touch("a/b/f"), chmod("a/b", 0644);
    t_drop_root();
    CHECK_ERR(stat("a/b/f", &st), EACCES);
    CHECK_ERR(stat("a/b/nothing", &st), EACCES);
    CHECK_ERR(stat("a/b/..", &st), EACCES);
    CHECK(stat("a/b", &st) == 0);
    DIR *d = opendir("a/b");  // but it can be listed
    CHECK(d && readdir(d));
}
CASE(open_directory_keeps_working_without_search) {
    scratch();
    mkdir("a", 0755), touch("a/f");
    int fd = open("a", O_RDONLY);
    chmod("a", 0);
    t_drop_root();
    CHECK_ERR(openat(fd, "f", O_RDONLY), EACCES);
    CHECK(fstat(fd, &st) == 0);
    CHECK_ERR(fchdir(fd), EACCES);
}
CASE(removed_directory_refuses_new_names) {
    scratch();
    mkdir("d", 0755);
    int fd = open("d", O_RDONLY);
    CHECK(rmdir("d") == 0);
    CHECK_ERR(mkdirat(fd, "x", 0755), ENOENT);
    CHECK_ERR(symlinkat("a", fd, "x"), ENOENT);
    CHECK_ERR(openat(fd, "x", O_CREAT | O_RDWR, 0600), ENOENT);
    CHECK(fstatat(fd, ".", &st, 0) == 0 && fchdir(fd) == 0);
    char b[100];
    CHECK_ERR(syscall(SYS_getcwd, b, sizeof b), ENOENT);
}
CASE(getcwd_sizes) {
    scratch();
    char b[PATH_MAX];
    int n = CHECK_OK(syscall(SYS_getcwd, b, sizeof b));
    CHECK_EQ(n, strlen(b) + 1);
    CHECK_ERR(syscall(SYS_getcwd, b, n - 1), ERANGE);
    CHECK_EQ(syscall(SYS_getcwd, b, n), n);
    CHECK_ERR(syscall(SYS_getcwd, noaccess(), 4096), EFAULT);
}
CASE(mknod_kinds_and_privilege) {
    scratch();
    CHECK(mknod("r", S_IFREG | 0640, 0) == 0 && mode_of("r") == S_IFREG);
    CHECK(mknod("z", 0600, 0) == 0 && mode_of("z") == S_IFREG);  // no kind means a regular file
    CHECK(mknod("s", S_IFSOCK | 0600, 0) == 0 && mode_of("s") == S_IFSOCK);
    CHECK_ERR(mknod("d", S_IFDIR | 0700, 0), EPERM);
    CHECK_ERR(mknod("x", 0170000, 0), EINVAL);
    CHECK_ERR(mknod("r", S_IFIFO | 0600, 0), EEXIST);
    CHECK_ERR(open("s", O_RDWR), ENXIO);
    t_drop_root();
    CHECK_ERR(mknod("n", S_IFCHR | 0600, 0x103), EPERM);
    CHECK(mknod("p", S_IFIFO | 0600, 0) == 0);
}
CASE(o_tmpfile_rules) {
    scratch();
    int fd = open(".", O_TMPFILE | O_RDWR, 0640);
    CHECK(fd >= 0 && fstat(fd, &st) == 0 && st.st_nlink == 0 && (st.st_mode & 0777) == 0640);
    CHECK_ERR(open(".", O_TMPFILE | O_RDONLY, 0600), EINVAL);
    touch("f");
    CHECK_ERR(open("f", O_TMPFILE | O_RDWR, 0600), ENOTDIR);
    int ex = open(".", O_TMPFILE | O_RDWR | O_EXCL, 0600);
    char p[40];
    snprintf(p, sizeof p, "/proc/self/fd/%d", ex);
    CHECK_ERR(linkat(AT_FDCWD, p, AT_FDCWD, "never", AT_SYMLINK_FOLLOW), ENOENT);
    snprintf(p, sizeof p, "/proc/self/fd/%d", fd);
    CHECK(linkat(AT_FDCWD, p, AT_FDCWD, "now", AT_SYMLINK_FOLLOW) == 0 && stat("now", &st) == 0 && st.st_nlink == 1);
}
CASE(rename_over_is_never_a_gap) {
    scratch();
    touch("target");
    pid_t p = SPAWN(for (int i = 0; i < 1000; i++) { char n[20]; snprintf(n, 20, "t%d", i); touch(n); if (rename(n, "target")) _exit(1); });
    int st2;
    while (waitpid(p, &st2, WNOHANG) == 0)
        if (access("target", F_OK)) FAIL("the name was gone for a moment");
    CHECK_EQ(WEXITSTATUS(st2), 0);
}
CASE(excl_create_has_one_winner) {
    scratch();
    int p[2];
    CHECK(pipe(p) == 0);
    for (int k = 0; k < 4; k++)
        SPAWN(for (int i = 0; i < 200; i++) { char n[20]; snprintf(n, 20, "f%d", i); int fd = open(n, O_CREAT | O_EXCL | O_RDWR, 0600); if (fd >= 0) write(p[1], "x", 1), close(fd); });
    for (int k = 0; k < 4; k++) CHECK(wait(NULL) > 0);
    char b[1024];
    CHECK_EQ(read(p[0], b, sizeof b), 200);
}
CASE(mkdir_rmdir_race_keeps_tree_sane) {
    scratch();
    for (int k = 0; k < 3; k++)
        SPAWN(for (int i = 0; i < 500; i++) { mkdir("d", 0755); mkdir("d/e", 0755); rmdir("d/e"); rmdir("d"); });
    for (int k = 0; k < 3; k++) CHECK(wait(NULL) > 0);
    rmdir("d/e"), rmdir("d");
    CHECK(stat(".", &st) == 0);
    CHECK_EQ(st.st_nlink, 2);
}
