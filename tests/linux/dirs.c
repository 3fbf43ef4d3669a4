// Directories and names: mkdir, rmdir, rename, link, symlink, getdents, cwd, the *at calls.
#include "t.h"
#include <dirent.h>
#include <sys/sysmacros.h>

static ino_t ino(const char *p) {
    struct stat st;
    if (lstat(p, &st) < 0) FAIL("lstat %s: errno %d", p, errno);
    return st.st_ino;
}
static int nlink(const char *p) {
    struct stat st;
    if (lstat(p, &st) < 0) FAIL("lstat %s: errno %d", p, errno);
    return st.st_nlink;
}
static void touch(const char *p) { close(mkfile(p, p)); }
static int rename2(const char *a, const char *b, unsigned f) { return syscall(SYS_renameat2, AT_FDCWD, a, AT_FDCWD, b, f); }

CASE(mkdir_rmdir) {
    scratch();
    CHECK(mkdir("d", 0755) == 0);
    CHECK_ERR(mkdir("d", 0755), EEXIST);
    CHECK_ERR(mkdir("x/y", 0755), ENOENT);
    CHECK(mkdir("d/e/", 0755) == 0);  // trailing slash is fine
    CHECK_ERR(rmdir("d"), ENOTEMPTY);
    CHECK_ERR(rmdir("d/e/."), EINVAL);
    CHECK(rmdir("d/e") == 0 && rmdir("d") == 0);
    CHECK_ERR(rmdir("d"), ENOENT);
    touch("f");
    CHECK_ERR(rmdir("f"), ENOTDIR);
    CHECK_ERR(rmdir("/"), EBUSY);
}
CASE(mkdir_mode_umask_setgid) {
    scratch();
    umask(022);
    CHECK(mkdir("d", 0777) == 0);
    struct stat st;
    stat("d", &st);
    CHECK_EQ(st.st_mode & 07777, 0755);
    if (geteuid() == 0) {
        CHECK(chown("d", -1, 1234) == 0 && chmod("d", 02755) == 0);
        CHECK(mkdir("d/s", 0755) == 0);
        touch("d/f");
        stat("d/s", &st);
        CHECK(st.st_gid == 1234 && (st.st_mode & S_ISGID));
        stat("d/f", &st);
        CHECK_EQ(st.st_gid, 1234);
    }
}
CASE(directory_link_count) {
    scratch();
    mkdir("d", 0755);
    CHECK_EQ(nlink("d"), 2);
    mkdir("d/a", 0755);
    mkdir("d/b", 0755);
    touch("d/f");
    CHECK_EQ(nlink("d"), 4);
    rmdir("d/a");
    CHECK_EQ(nlink("d"), 3);
}
CASE(unlink_errors) {
    scratch();
    mkdir("d", 0755);
    CHECK_ERR(unlink("d"), EISDIR);
    CHECK_ERR(unlink("none"), ENOENT);
    touch("f");
    CHECK_ERR(unlink("f/"), ENOTDIR);
    CHECK_ERR(unlinkat(AT_FDCWD, "f", AT_REMOVEDIR), ENOTDIR);
    CHECK_ERR(unlinkat(AT_FDCWD, "f", 1), EINVAL);
    CHECK(unlinkat(AT_FDCWD, "d", AT_REMOVEDIR) == 0);
}
CASE(link_counts_and_identity) {
    scratch();
    touch("a");
    CHECK(link("a", "b") == 0);
    CHECK_EQ(ino("a"), ino("b"));
    CHECK_EQ(nlink("a"), 2);
    CHECK(unlink("a") == 0);
    CHECK_EQ(nlink("b"), 1);
    CHECK(!strcmp(slurp("b"), "a"));
}
CASE(link_errors) {
    scratch();
    touch("a");
    touch("b");
    mkdir("d", 0755);
    CHECK_ERR(link("a", "b"), EEXIST);
    CHECK_ERR(link("none", "c"), ENOENT);
    CHECK_ERR(link("d", "e"), EPERM);
    CHECK_ERR(link("a", "none/x"), ENOENT);
}
CASE(link_to_symlink_itself) {
    scratch();
    touch("a");
    symlink("a", "l");
    CHECK(link("l", "l2") == 0);
    CHECK_EQ(ino("l"), ino("l2"));
    CHECK(linkat(AT_FDCWD, "l", AT_FDCWD, "a2", AT_SYMLINK_FOLLOW) == 0);
    CHECK_EQ(ino("a"), ino("a2"));
}
CASE(symlink_readlink) {
    scratch();
    char b[10];
    CHECK(symlink("target/of/link", "l") == 0);
    CHECK_EQ(readlink("l", b, 10), 10);  // truncated, no terminator
    CHECK(!memcmp(b, "target/of/", 10));
    CHECK_ERR(symlink("x", "l"), EEXIST);
    CHECK_ERR(symlink("", "m"), ENOENT);
    touch("f");
    CHECK_ERR(readlink("f", b, 10), EINVAL);
    CHECK_ERR(readlink("l", b, 0), EINVAL);
    struct stat st;
    lstat("l", &st);
    CHECK_EQ(st.st_size, 14);
    CHECK_EQ(st.st_mode & 0777, 0777);
}
CASE(symlink_loops_and_depth) {
    scratch();
    symlink("b", "a");
    symlink("a", "b");
    CHECK_ERR(open("a", O_RDONLY), ELOOP);
    touch("s0");
    char x[8], y[8];
    for (int i = 1; i <= 45; i++) {
        sprintf(x, "s%d", i - 1), sprintf(y, "s%d", i);
        CHECK(symlink(x, y) == 0);
    }
    CHECK(open("s40", O_RDONLY) >= 0);
    CHECK_ERR(open("s41", O_RDONLY), ELOOP);
}
CASE(symlink_dotdot_is_physical) {
    scratch();
    mkdir("a", 0755);
    mkdir("a/b", 0755);
    touch("a/f");
    symlink("a/b", "l");
    CHECK(access("l/../f", F_OK) == 0);
    CHECK_ERR(access("f", F_OK), ENOENT);
}
CASE(rename_replaces_file) {
    scratch();
    touch("a");
    touch("b");
    int fd = open("b", O_RDONLY);
    ino_t i = ino("a");
    CHECK(rename("a", "b") == 0);
    CHECK_EQ(ino("b"), i);
    CHECK_ERR(access("a", F_OK), ENOENT);
    char c;
    CHECK(read(fd, &c, 1) == 1 && c == 'b');  // the replaced file lives on
}
CASE(rename_same_file_noop) {
    scratch();
    touch("a");
    link("a", "b");
    CHECK(rename("a", "b") == 0);
    CHECK(access("a", F_OK) == 0 && access("b", F_OK) == 0);
    CHECK(rename("a", "a") == 0);
}
CASE(rename_directories) {
    scratch();
    mkdir("a", 0755), mkdir("b", 0755), mkdir("full", 0755);
    touch("full/f");
    touch("f");
    CHECK(rename("a", "b") == 0);  // over an empty directory
    CHECK(mkdir("a", 0755) == 0);
    int r = rename("a", "full");
    CHECK(r == -1 && (errno == ENOTEMPTY || errno == EEXIST));
    CHECK_ERR(rename("a", "f"), ENOTDIR);
    CHECK_ERR(rename("f", "a"), EISDIR);
    CHECK_ERR(rename("a", "a/sub"), EINVAL);
    CHECK_ERR(rename("none", "x"), ENOENT);
    CHECK_ERR(rename("a/.", "x"), EBUSY);
    CHECK_ERR(rename("f", "x/"), ENOTDIR);
}
CASE(rename_dir_updates_dotdot_and_counts) {
    scratch();
    mkdir("a", 0755), mkdir("b", 0755), mkdir("a/d", 0755);
    CHECK(rename("a/d", "b/d") == 0);
    CHECK_EQ(nlink("a"), 2);
    CHECK_EQ(nlink("b"), 3);
    CHECK_EQ(ino("b/d/.."), ino("b"));
}
CASE(rename_noreplace) {
    scratch();
    touch("a"), touch("b");
    CHECK_ERR(rename2("a", "b", 1), EEXIST);
    CHECK(rename2("a", "c", 1) == 0);
    CHECK_ERR(rename2("c", "d", 3), EINVAL);
}
CASE(rename_exchange) {
    scratch();
    touch("a");
    mkdir("d", 0755);
    ino_t a = ino("a"), d = ino("d");
    CHECK(rename2("a", "d", 2) == 0);
    CHECK(ino("a") == d && ino("d") == a);
    CHECK_ERR(rename2("a", "none", 2), ENOENT);
}
CASE(rename_open_file_follows) {
    scratch();
    int fd = mkfile("a", "x");
    rename("a", "b");
    CHECK(write(fd, "yy", 2) == 2);
    CHECK(!strcmp(slurp("b"), "yy"));
    char p[40], l[PATH_MAX] = "";
    sprintf(p, "/proc/self/fd/%d", fd);
    CHECK(readlink(p, l, sizeof l) > 0 && !strcmp(strrchr(l, '/'), "/b"));
}
static int list(const char *p, char names[][32]) {
    DIR *d = opendir(p);
    CHECK(d != NULL);
    int n = 0;
    for (struct dirent *e; (e = readdir(d));)
        if (n < 64) strncpy(names[n++], e->d_name, 31);
    closedir(d);
    return n;
}
CASE(getdents_dots_and_types) {
    scratch();
    touch("f"), mkdir("d", 0755), symlink("f", "l"), mkfifo("p", 0600);
    DIR *d = opendir(".");
    int seen = 0;
    for (struct dirent *e; (e = readdir(d));) {
        if (!strcmp(e->d_name, ".")) seen |= e->d_type == DT_DIR && e->d_ino == ino(".") ? 1 : 0;
        if (!strcmp(e->d_name, "..")) seen |= e->d_ino == ino("..") ? 2 : 0;
        if (!strcmp(e->d_name, "f")) seen |= e->d_type == DT_REG && e->d_ino == ino("f") ? 4 : 0;
        if (!strcmp(e->d_name, "d")) seen |= e->d_type == DT_DIR ? 8 : 0;
        if (!strcmp(e->d_name, "l")) seen |= e->d_type == DT_LNK ? 16 : 0;
        if (!strcmp(e->d_name, "p")) seen |= e->d_type == DT_FIFO ? 32 : 0;
    }
    CHECK_EQ(seen, 63);
}
CASE(getdents_many_small_buffer) {
    scratch();
    char n[32];
    for (int i = 0; i < 500; i++) {
        sprintf(n, "file%d", i);
        int fd = open(n, O_CREAT | O_WRONLY, 0600);
        CHECK(fd >= 0 && close(fd) == 0);
    }
    int fd = open(".", O_RDONLY), seen = 0;
    static bool got[500];
    char b[100];
    for (long r; (r = syscall(SYS_getdents64, fd, b, sizeof b)) > 0;)
        for (long o = 0; o < r;) {
            struct dirent64 *e = (void *)(b + o);
            if (!strncmp(e->d_name, "file", 4)) {
                int k = atoi(e->d_name + 4);
                CHECK(!got[k]);
                got[k] = true;
                seen++;
            }
            o += e->d_reclen;
        }
    CHECK_EQ(seen, 500);
    lseek(fd, 0, SEEK_SET);
    CHECK_ERR(syscall(SYS_getdents64, fd, b, 10), EINVAL);
}
CASE(readdir_while_unlinking_visits_all) {
    scratch();
    char n[32];
    for (int i = 0; i < 300; i++) {
        sprintf(n, "f%d", i);
        close(open(n, O_CREAT | O_WRONLY, 0600));
    }
    DIR *d = opendir(".");
    for (struct dirent *e; (e = readdir(d));)
        if (e->d_name[0] == 'f') CHECK(unlink(e->d_name) == 0);
    char names[64][32];
    CHECK_EQ(list(".", names), 2);
}
CASE(telldir_seekdir) {
    scratch();
    touch("a"), touch("b"), touch("c");
    DIR *d = opendir(".");
    readdir(d);
    readdir(d);
    long pos = telldir(d);
    char first[64];
    strcpy(first, readdir(d)->d_name);
    readdir(d);
    seekdir(d, pos);
    CHECK(!strcmp(readdir(d)->d_name, first));
    rewinddir(d);
    int n = 0;
    while (readdir(d)) n++;
    CHECK_EQ(n, 5);
}
CASE(getdents_of_removed_directory) {
    scratch();
    mkdir("d", 0755);
    int fd = open("d", O_RDONLY);
    rmdir("d");
    char b[512];
    long r = syscall(SYS_getdents64, fd, b, sizeof b);
    CHECK(r == 0 || (r == -1 && errno == ENOENT));
    CHECK_ERR(openat(fd, "x", O_CREAT | O_WRONLY, 0600), ENOENT);
}
CASE(getdents_not_a_directory) {
    scratch();
    int fd = mkfile("f", "x");
    char b[512];
    CHECK_ERR(syscall(SYS_getdents64, fd, b, sizeof b), ENOTDIR);
}
CASE(chdir_getcwd) {
    scratch();
    char a[PATH_MAX], b[PATH_MAX];
    mkdir("d", 0755);
    symlink("d", "l");
    getcwd(a, sizeof a);
    CHECK(chdir("l") == 0);
    CHECK(getcwd(b, sizeof b) != NULL);
    strcat(a, "/d");
    CHECK(!strcmp(a, b));
    CHECK_ERR(syscall(SYS_getcwd, b, 2), ERANGE);
    CHECK(chdir("..") == 0);
    touch("f");
    CHECK_ERR(chdir("f"), ENOTDIR);
    CHECK_ERR(chdir("none"), ENOENT);
    int fd = open("d", O_RDONLY);
    CHECK(fchdir(fd) == 0);
    CHECK_ERR(fchdir(1000), EBADF);
}
CASE(cwd_follows_rename_and_removal) {
    scratch();
    char b[PATH_MAX];
    mkdir("d", 0755);
    chdir("d");
    CHECK(rename("../d", "../e") == 0);
    CHECK(getcwd(b, sizeof b) && !strcmp(strrchr(b, '/'), "/e"));
    CHECK(rmdir("../e") == 0);
    CHECK_ERR(syscall(SYS_getcwd, b, sizeof b), ENOENT);
    CHECK_ERR(open("x", O_CREAT | O_WRONLY, 0600), ENOENT);
    CHECK(access("..", F_OK) == 0);
}
CASE(root_dotdot_is_root) {
    CHECK_EQ(ino("/"), ino("/.."));
    CHECK_EQ(ino("/"), ino("/../../.."));
}
CASE(chroot_confines) {
    if (geteuid()) SKIP("needs root");
    scratch();
    mkdir("r", 0755);
    touch("r/inside");
    CHECK_EQ(join(SPAWN({
        CHECK(chroot("r") == 0 && chdir("/") == 0);
        CHECK(access("/inside", F_OK) == 0);
        CHECK(access("/../../inside", F_OK) == 0);
        CHECK_ERR(access("/etc/passwd", F_OK), ENOENT);
    })), 0);
    CHECK_EQ(join(SPAWN({ t_drop_root(); CHECK_ERR(chroot("r"), EPERM); })), 0);
}
CASE(at_calls_relative_to_descriptor) {
    scratch();
    mkdir("d", 0755);
    int d = open("d", O_RDONLY | O_DIRECTORY);
    struct stat st;
    CHECK(openat(d, "f", O_CREAT | O_RDWR, 0600) >= 0);
    CHECK(access("d/f", F_OK) == 0);
    CHECK(mkdirat(d, "e", 0755) == 0);
    CHECK(symlinkat("f", d, "l") == 0);
    CHECK(renameat(d, "f", d, "g") == 0);
    CHECK(linkat(d, "g", AT_FDCWD, "h", 0) == 0);
    CHECK(fstatat(d, "l", &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode));
    CHECK(faccessat(d, "g", R_OK, 0) == 0);
    CHECK(fchmodat(d, "g", 0640, 0) == 0);
    CHECK(fstatat(d, "", &st, AT_EMPTY_PATH) == 0 && S_ISDIR(st.st_mode));
    CHECK(mkfifoat(d, "p", 0600) == 0);
    CHECK(unlinkat(d, "g", 0) == 0);
    CHECK_ERR(openat(1234, "f", O_RDONLY), EBADF);
    CHECK(openat(1234, "/etc/passwd", O_RDONLY) >= 0);  // absolute: the descriptor is not looked at
    int f = open("h", O_RDONLY);
    CHECK_ERR(openat(f, "x", O_RDONLY), ENOTDIR);
}
CASE(mknod_kinds) {
    scratch();
    struct stat st;
    CHECK(mknod("reg", S_IFREG | 0644, 0) == 0);
    CHECK(mknod("fifo", S_IFIFO | 0600, 0) == 0);
    CHECK(stat("fifo", &st) == 0 && S_ISFIFO(st.st_mode));
    CHECK(mknod("sock", S_IFSOCK | 0600, 0) == 0);
    CHECK_ERR(mknod("dir", S_IFDIR | 0600, 0), EPERM);
    CHECK_ERR(open("sock", O_RDWR), ENXIO);
    CHECK_EQ(join(SPAWN({ t_drop_root(); CHECK_ERR(mknod("n", S_IFCHR | 0600, makedev(1, 3)), EPERM); })), 0);
}
CASE(path_oddities) {
    scratch();
    mkdir("d", 0755);
    touch("d/f");
    CHECK(access("d//f", F_OK) == 0);
    CHECK(access("./d/./f", F_OK) == 0);
    CHECK(access("d/../d/f", F_OK) == 0);
    CHECK_ERR(access("d/none/../f", F_OK), ENOENT);
    CHECK(access("d/", F_OK) == 0);
    CHECK(access("//etc///passwd", F_OK) == 0);
}
CASE(deep_tree) {
    scratch();
    for (int i = 0; i < 100; i++) CHECK(mkdir("dir", 0755) == 0 && chdir("dir") == 0);
    char b[PATH_MAX];
    CHECK(getcwd(b, sizeof b) && strlen(b) > 400);
    CHECK(open("f", O_CREAT | O_WRONLY, 0600) >= 0);
    for (int i = 0; i < 100; i++) CHECK(chdir("..") == 0);
    CHECK(access("dir/dir/dir", F_OK) == 0);
}
CASE(image_dir_unlink_hides_and_recreate) {
    if (geteuid()) SKIP("needs root");
    scratch();
    // Natively an ordinary file; in a domain /usr/share/t-image/* comes from the image (whiteouts).
    const char *d = getenv("T_IMAGE_DIR");
    if (!d) d = ".", touch("one");
    CHECK(chdir(d) == 0);
    CHECK(access("one", F_OK) == 0);
    CHECK(unlink("one") == 0);
    CHECK_ERR(access("one", F_OK), ENOENT);
    char names[64][32];
    int n = list(".", names);
    for (int i = 0; i < n; i++) CHECK(strcmp(names[i], "one"));
    close(mkfile("one", "new"));
    CHECK(!strcmp(slurp("one"), "new"));
}
CASE(concurrent_create_in_one_directory) {
    scratch();
    pid_t p[4];
    for (int i = 0; i < 4; i++)
        p[i] = SPAWN({
            char n[32];
            for (int k = 0; k < 100; k++) {
                sprintf(n, "%d-%d", i, k);
                int fd = open(n, O_CREAT | O_EXCL | O_WRONLY, 0600);
                CHECK(fd >= 0);
                close(fd);
                if (k % 2) CHECK(unlink(n) == 0);
            }
        });
    for (int i = 0; i < 4; i++) CHECK_EQ(join(p[i]), 0);
    DIR *d = opendir(".");
    int n = 0;
    while (readdir(d)) n++;
    CHECK_EQ(n, 202);
}
CASE(rename_storm) {
    scratch();
    touch("a");
    pid_t p = SPAWN({ for (int i = 0; i < 500; i++) { CHECK(rename("a", "b") == 0); CHECK(rename("b", "a") == 0); } });
    while (waitpid(p, NULL, WNOHANG) == 0) CHECK(access("a", F_OK) == 0 || access("b", F_OK) == 0 || access("a", F_OK) == 0 || errno == ENOENT);
    CHECK(access("a", F_OK) == 0);
}
