// Path resolution while names change: what a directory cache could get wrong.
#include "t.h"
#include <dirent.h>
#include <sys/mount.h>

static void touch(const char *p) { close(mkfile(p, p)); }
static int exists(const char *p) {
    struct stat st;
    return lstat(p, &st) == 0;
}
static int rename2(const char *a, const char *b, unsigned f) { return syscall(SYS_renameat2, AT_FDCWD, a, AT_FDCWD, b, f); }
static _Atomic int stop, looked;
static char first_error[200];

// Ends the loops of the other threads with a reason.
#define WRONG(fmt, ...) do { if (!first_error[0]) snprintf(first_error, sizeof first_error, fmt, ##__VA_ARGS__); stop = 1; } while (0)

// Runs `look` in two threads while `change` runs in this one for 300 ms or until something is wrong.
static void race(void *(*look)(void *), void (*change)(int)) {
    pthread_t t[2];
    for (int i = 0; i < 2; i++) CHECK(pthread_create(&t[i], NULL, look, NULL) == 0);
    int64_t end = now_us() + 300000;
    for (int i = 0; !stop && now_us() < end; i++) change(i);
    while (!stop && looked < 100 && now_us() < end + 30000000) pause_ms(1);
    stop = 1;
    for (int i = 0; i < 2; i++) pthread_join(t[i], NULL);
    if (first_error[0]) FAIL("%s", first_error);
    CHECK(looked >= 100);
}

CASE(absent_name_appears) {
    scratch();
    struct stat st;
    CHECK(mkdir("d", 0755) == 0);
    for (int i = 0; i < 3; i++) {  // known to be absent, made by each way there is
        CHECK_ERR(stat("d/a", &st), ENOENT);
        CHECK_ERR(open("d/a", O_RDONLY), ENOENT);
        CHECK_ERR(access("d/a", F_OK), ENOENT);
        touch("d/a");
        CHECK(stat("d/a", &st) == 0 && unlink("d/a") == 0);
        CHECK_ERR(stat("d/a", &st), ENOENT);
        CHECK(mkdir("d/a", 0755) == 0 && stat("d/a", &st) == 0 && S_ISDIR(st.st_mode) && rmdir("d/a") == 0);
        CHECK_ERR(stat("d/a", &st), ENOENT);
        CHECK(symlink("x", "d/a") == 0 && lstat("d/a", &st) == 0 && S_ISLNK(st.st_mode) && unlink("d/a") == 0);
        CHECK_ERR(lstat("d/a", &st), ENOENT);
        touch("b");
        CHECK(link("b", "d/a") == 0 && stat("d/a", &st) == 0 && st.st_nlink == 2 && unlink("d/a") == 0);
        CHECK_ERR(stat("d/a", &st), ENOENT);
        CHECK(rename("b", "d/a") == 0 && stat("d/a", &st) == 0);
        CHECK_ERR(stat("b", &st), ENOENT);
        CHECK(rename("d/a", "b") == 0 && stat("b", &st) == 0 && unlink("b") == 0);
        CHECK_ERR(stat("d/a", &st), ENOENT);
        CHECK(mkfifo("d/a", 0600) == 0 && stat("d/a", &st) == 0 && S_ISFIFO(st.st_mode) && unlink("d/a") == 0);
    }
}
CASE(absent_name_in_image_directory) {
    struct stat st;
    char p[64];
    snprintf(p, sizeof p, "/usr/share/walks-%d", getpid());
    if (access("/usr/share", W_OK)) SKIP("not root");
    CHECK_ERR(stat(p, &st), ENOENT);
    CHECK_ERR(stat(p, &st), ENOENT);
    touch(p);
    CHECK(stat(p, &st) == 0 && unlink(p) == 0);
    CHECK_ERR(stat(p, &st), ENOENT);
}
CASE(absent_name_errors) {
    scratch();
    CHECK(mkdir("d", 0755) == 0);
    touch("f");
    for (int i = 0; i < 2; i++) {
        CHECK_ERR(open("d/no/x", O_CREAT | O_WRONLY, 0600), ENOENT);
        CHECK_ERR(mkdir("d/no/x", 0700), ENOENT);
        CHECK_ERR(access("f/no", F_OK), ENOTDIR);
        CHECK_ERR(access("f/", F_OK), ENOTDIR);
        CHECK_ERR(access("f/.", F_OK), ENOTDIR);
        CHECK_ERR(access("f/..", F_OK), ENOTDIR);
        CHECK_ERR(access("d/no/..", F_OK), ENOENT);
        CHECK(access("d/.././d//.///../f", F_OK) == 0);
        CHECK(access("/../../tmp/..", F_OK) == 0);
    }
    int fd = open("d/no", O_CREAT | O_EXCL | O_WRONLY, 0600);
    CHECK(fd >= 0);
    CHECK_ERR(open("d/no", O_CREAT | O_EXCL, 0600), EEXIST);
    CHECK_ERR(open("d", O_WRONLY), EISDIR);
    CHECK_ERR(open("d", O_CREAT | O_RDONLY, 0600), EISDIR);
    CHECK_ERR(open("f", O_DIRECTORY), ENOTDIR);
    CHECK_ERR(open("d/no", O_DIRECTORY), ENOTDIR);
}
CASE(long_names_and_many) {
    scratch();
    char name[300];
    struct stat st;
    for (int len = 1; len <= 255; len++) {
        memset(name, 'x', len), name[len] = 0;
        touch(name);
    }
    for (int len = 1; len <= 255; len++) {
        memset(name, 'x', len), name[len] = 0;
        CHECK(stat(name, &st) == 0 && st.st_size == len);
        if (len % 2) CHECK(unlink(name) == 0);
    }
    for (int len = 1; len <= 255; len++) {
        memset(name, 'x', len), name[len] = 0;
        CHECK_EQ(exists(name), len % 2 == 0);
    }
    memset(name, 'x', 256), name[256] = 0;
    CHECK_ERR(stat(name, &st), ENAMETOOLONG);
}
// More names than a cache keeps, with some held open or as a working directory while the others are forgotten.
CASE(more_names_than_are_kept) {
    scratch();
    char p[64];
    struct stat st;
    for (int d = 0; d < 20; d++) {
        snprintf(p, sizeof p, "d%d", d);
        CHECK(mkdir(p, 0755) == 0);
        for (int f = 0; f < 200; f++) {
            snprintf(p, sizeof p, "d%d/file-with-a-name-longer-than-thirty-%d", d, f);
            touch(p);
        }
    }
    int held = open("d7/file-with-a-name-longer-than-thirty-7", O_RDONLY), dir = open("d8", O_RDONLY | O_DIRECTORY);
    CHECK(held >= 0 && dir >= 0 && chdir("d9") == 0);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 20 * 200; i++) {
            snprintf(p, sizeof p, "../d%d/file-with-a-name-longer-than-thirty-%d", i % 20, i / 20);
            CHECK(stat(p, &st) == 0 && (size_t)st.st_size == strlen(p) - 3);
            // Most names are of nothing: on a volume these are the cheapest.
            for (int k = 0; k < (round ? 1 : 6); k++) {
                snprintf(p, sizeof p, "../d%d/absent-%d-%d", i % 20, i, k);
                CHECK_ERR(stat(p, &st), ENOENT);
            }
        }
    }
    CHECK(fstatat(dir, "file-with-a-name-longer-than-thirty-1", &st, 0) == 0);
    char name[PATH_MAX], link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", held);
    ssize_t n = readlink(link, name, sizeof name - 1);
    CHECK(n > 0);
    name[n] = 0;
    CHECK(strstr(name, "/d7/file-with-a-name-longer-than-thirty-7"));
    CHECK(getcwd(name, sizeof name) && strstr(name, "/d9"));
    for (int i = 0; i < 20 * 200; i++) {
        snprintf(p, sizeof p, "../d%d/file-with-a-name-longer-than-thirty-%d", i % 20, i / 20);
        CHECK(unlink(p) == 0);
    }
    for (int d = 0; d < 20; d++) {
        snprintf(p, sizeof p, "../d%d", d);
        CHECK(rmdir(p) == 0);
    }
}
CASE(search_permission_is_checked_every_time) {
    if (geteuid() != 0) SKIP("not root");
    scratch();
    struct stat st;
    CHECK(chmod(".", 0755) == 0 && mkdir("d", 0755) == 0 && mkdir("d/e", 0755) == 0);
    touch("d/e/f");
    CHECK(stat("d/e/f", &st) == 0);
    CHECK_EQ(join(SPAWN({
        CHECK(setgid(1000) == 0 && setuid(1000) == 0);
        CHECK(stat("d/e/f", &st) == 0);
    })), 0);
    CHECK(chmod("d", 0700) == 0);
    CHECK_EQ(join(SPAWN({
        CHECK(stat("d/e/f", &st) == 0);
        CHECK(setgid(1000) == 0 && setuid(1000) == 0);
        CHECK_ERR(stat("d/e/f", &st), EACCES);
        CHECK_ERR(stat("d/no", &st), EACCES);
        CHECK_ERR(open("d/e/f", O_RDONLY), EACCES);
        CHECK(stat("d", &st) == 0);
    })), 0);
    CHECK(chmod("d", 0755) == 0 && chmod("d/e/f", 0600) == 0);
    CHECK_EQ(join(SPAWN({
        CHECK(setgid(1000) == 0 && setuid(1000) == 0);
        CHECK(stat("d/e/f", &st) == 0);
        CHECK_ERR(open("d/e/f", O_RDONLY), EACCES);
        CHECK_ERR(open("d/e/f", O_WRONLY), EACCES);
        CHECK_ERR(access("d/e/f", R_OK), EACCES);
    })), 0);
}
CASE(working_directory_and_descriptors_follow_renames) {
    scratch();
    struct stat st, a;
    CHECK(mkdir("a", 0755) == 0 && mkdir("a/b", 0755) == 0 && mkdir("c", 0755) == 0);
    touch("a/b/f");
    int fd = open("a/b", O_RDONLY | O_DIRECTORY);
    CHECK(fd >= 0 && stat("c", &a) == 0 && chdir("a/b") == 0);
    CHECK(renameat(AT_FDCWD, "../../a/b", AT_FDCWD, "../../c/b") == 0);
    CHECK(stat("f", &st) == 0 && fstatat(fd, "f", &st, 0) == 0);
    CHECK(stat("..", &st) == 0 && st.st_ino == a.st_ino);
    CHECK(fstatat(fd, "..", &st, 0) == 0 && st.st_ino == a.st_ino);
    CHECK(stat("../../c/b/f", &st) == 0);
    CHECK_ERR(stat("../../a/b/f", &st), ENOENT);
    CHECK(unlink("f") == 0 && rmdir("../b") == 0);
    CHECK_ERR(stat("f", &st), ENOENT);
    CHECK_ERR(open("f", O_CREAT | O_WRONLY, 0600), ENOENT);
    CHECK(stat(".", &st) == 0 && st.st_nlink == 0);
    CHECK_ERR(fstatat(fd, "f", &st, 0), ENOENT);
}
CASE(symlink_chains_and_loops) {
    scratch();
    struct stat st;
    char from[16], to[16];
    touch("l0");
    for (int i = 1; i <= 41; i++) {
        snprintf(from, sizeof from, "l%d", i), snprintf(to, sizeof to, "l%d", i - 1);
        CHECK(symlink(to, from) == 0);
    }
    for (int i = 0; i < 2; i++) {
        CHECK(stat("l40", &st) == 0 && S_ISREG(st.st_mode));
        CHECK_ERR(stat("l41", &st), ELOOP);
        CHECK(lstat("l41", &st) == 0);
        CHECK_ERR(open("l1", O_RDONLY | O_NOFOLLOW), ELOOP);
    }
    CHECK(symlink("y", "x") == 0 && symlink("x", "y") == 0 && symlink("self/self", "self") == 0);
    CHECK_ERR(stat("x", &st), ELOOP);
    CHECK_ERR(stat("self", &st), ELOOP);
    CHECK_ERR(stat("x/z", &st), ELOOP);
    CHECK(mkdir("d", 0755) == 0 && symlink("d", "ld") == 0 && symlink("../d", "d/up") == 0);
    touch("d/f");
    CHECK(stat("ld/f", &st) == 0 && stat("d/up/up/up/f", &st) == 0 && stat("ld/", &st) == 0 && S_ISDIR(st.st_mode));
    CHECK(lstat("ld", &st) == 0 && S_ISLNK(st.st_mode) && lstat("ld/", &st) == 0 && S_ISDIR(st.st_mode));
    CHECK(unlink("ld") == 0 && symlink("no", "ld") == 0);  // the link's text is not remembered
    CHECK_ERR(stat("ld/f", &st), ENOENT);
}
CASE(mount_points_come_and_go) {
    scratch();
    struct stat st, under, over;
    CHECK(mkdir("m", 0755) == 0 && stat("m", &under) == 0);
    touch("m/below");
    if (mount("none", "m", "tmpfs", 0, "") != 0) SKIP("cannot mount");
    CHECK(stat("m", &over) == 0 && over.st_dev != under.st_dev);
    CHECK_ERR(stat("m/below", &st), ENOENT);
    touch("m/above");
    CHECK(stat("m/../m/above", &st) == 0 && stat("m/..", &st) == 0 && st.st_dev == under.st_dev);
    CHECK(mount("none", "m", "tmpfs", 0, "") == 0);
    CHECK_ERR(stat("m/above", &st), ENOENT);
    CHECK(umount("m") == 0 && stat("m/above", &st) == 0);
    CHECK(umount("m") == 0 && stat("m/below", &st) == 0 && stat("m", &st) == 0 && st.st_dev == under.st_dev);
    CHECK_ERR(stat("m/above", &st), ENOENT);
}

// One name is always there: a rename over it never shows it absent.
static void *look_always_there(void *a) {
    struct stat st;
    while (!stop) {
        looked++;
        if (stat("d/target", &st) != 0) WRONG("stat: errno %d", errno);
        int fd = open("d/target", O_RDONLY);
        if (fd < 0) WRONG("open: errno %d", errno);
        else close(fd);
    }
    return a;
}
static void replace(int i) {
    char n[20];
    snprintf(n, sizeof n, "d/new%d", i % 3);
    touch(n);
    if (rename(n, "d/target") != 0) WRONG("rename: errno %d", errno);
}
CASE(race_replace_by_rename) {
    scratch();
    CHECK(mkdir("d", 0755) == 0);
    touch("d/target");
    race(look_always_there, replace);
}

// A file moves between two directories: a walk finds it in at most one, and never anything else.
static ino_t moving;
static void *look_moving(void *a) {
    struct stat st;
    while (!stop) {
        looked++;
        for (int i = 0; i < 2; i++)
            if (stat(i ? "b/sub/f" : "a/sub/f", &st) == 0) {
                if (st.st_ino != moving) WRONG("another file");
            } else if (errno != ENOENT) WRONG("stat: errno %d", errno);
    }
    return a;
}
static void move(int i) {
    if (rename(i % 2 ? "b/sub" : "a/sub", i % 2 ? "a/sub" : "b/sub") != 0) WRONG("rename: errno %d", errno);
    if (exists(i % 2 ? "b/sub/f" : "a/sub/f") || !exists(i % 2 ? "a/sub/f" : "b/sub/f")) WRONG("after a rename");
}
CASE(race_directory_moves) {
    scratch();
    struct stat st;
    CHECK(mkdir("a", 0755) == 0 && mkdir("b", 0755) == 0 && mkdir("a/sub", 0755) == 0);
    touch("a/sub/f");
    stat("a/sub/f", &st);
    moving = st.st_ino;
    race(look_moving, move);
}

// Two names exchange their files: both are always there.
static void *look_exchange(void *a) {
    while (!stop) {
        looked++;
        if (!exists("x") || !exists("y")) WRONG("a name is missing");
    }
    return a;
}
static void exchange(int i) {
    (void)i;
    if (rename2("x", "y", 2) != 0) WRONG("exchange: errno %d", errno);
}
CASE(race_exchange) {
    scratch();
    touch("x");
    touch("y");
    if (rename2("x", "y", 2) != 0) SKIP("no RENAME_EXCHANGE");
    race(look_exchange, exchange);
}

// A tree is taken away under walks through it, and ".." out of it.
static void *look_tree(void *a) {
    static const char *const names[] = {"t/u/v/w", "t/u/../u/v/../v/w", "t/u/v/../../../t/u/v/w", "t/l/v/w"};
    struct stat st;
    for (int i = 0; !stop; i++) {
        looked++;
        if (stat(names[i % 4], &st) != 0 && errno != ENOENT) WRONG("%s: errno %d", names[i % 4], errno);
        int fd = open(names[i % 4], O_RDWR);
        if (fd >= 0) {
            char c;
            if (read(fd, &c, 1) < 0) WRONG("read: errno %d", errno);
            close(fd);
        } else if (errno != ENOENT) WRONG("open %s: errno %d", names[i % 4], errno);
    }
    return a;
}
static void rebuild(int i) {
    (void)i;
    if (mkdir("t", 0755) || mkdir("t/u", 0755) || mkdir("t/u/v", 0755) || symlink("u", "t/l")) WRONG("make: errno %d", errno);
    int fd = open("t/u/v/w", O_CREAT | O_EXCL | O_WRONLY, 0644);
    if (fd < 0 || write(fd, "w", 1) != 1) WRONG("create: errno %d", errno);
    close(fd);
    if (!exists("t/u/v/w")) WRONG("not there");
    if (unlink("t/u/v/w") || unlink("t/l") || rmdir("t/u/v") || rmdir("t/u") || rmdir("t")) WRONG("remove: errno %d", errno);
    if (exists("t/u/v/w") || exists("t")) WRONG("still there");
}
CASE(race_tree_removed) {
    scratch();
    race(look_tree, rebuild);
}

// The working directory of the process changes under relative walks of its threads.
static void *look_cwd(void *a) {
    char b[PATH_MAX];
    while (!stop) {
        looked++;
        if (!exists("both")) WRONG("errno %d", errno);
        if (!getcwd(b, sizeof b)) WRONG("getcwd: errno %d", errno);
    }
    return a;
}
static char home[PATH_MAX];
static void wander(int i) {
    char p[PATH_MAX + 4];
    snprintf(p, sizeof p, "%s/%c", home, i % 2 ? 'a' : 'b');
    if (chdir(p) != 0) WRONG("chdir: errno %d", errno);
}
CASE(race_chdir) {
    scratch();
    CHECK(getcwd(home, sizeof home) && mkdir("a", 0755) == 0 && mkdir("b", 0755) == 0);
    touch("a/both");
    touch("b/both");
    CHECK(chdir("a") == 0);
    race(look_cwd, wander);
}

// Something is mounted and unmounted under walks through the place.
static void *look_mount(void *a) {
    struct stat st;
    while (!stop) {
        looked++;
        if (stat("m", &st) != 0) WRONG("stat m: errno %d", errno);
        if (stat("m/below", &st) != 0 && errno != ENOENT) WRONG("stat: errno %d", errno);
        if (stat("m/../m/..", &st) != 0) WRONG("stat ..: errno %d", errno);
    }
    return a;
}
static void mounts(int i) {
    (void)i;
    if (mount("none", "m", "tmpfs", 0, "") != 0) WRONG("mount: errno %d", errno);
    if (exists("m/below")) WRONG("seen through a mount");
    while (umount("m") != 0)
        if (errno != EBUSY) { WRONG("umount: errno %d", errno); break; }
    if (!exists("m/below")) WRONG("not seen after a umount");
}
CASE(race_mount) {
    scratch();
    CHECK(mkdir("m", 0755) == 0);
    touch("m/below");
    if (mount("none", "m", "tmpfs", 0, "") != 0) SKIP("cannot mount");
    CHECK(umount("m") == 0);
    race(look_mount, mounts);
}

// Sizes seen while a file is written and truncated are those it had.
static void *look_size(void *a) {
    struct stat st;
    while (!stop) {
        looked++;
        // A write may show in parts.
        if (stat("f", &st) != 0 || st.st_size < 0 || st.st_size > 100000) WRONG("size %ld", (long)st.st_size);
    }
    return a;
}
static int size_fd;
static void resize(int i) {
    static char b[100000];
    struct stat st;
    off_t want = i % 3 == 0 ? 100000 : i % 3 == 1 ? 5000 : 0;
    if (want == 100000 ? pwrite(size_fd, b, want, 0) != want : ftruncate(size_fd, want) != 0) WRONG("change: errno %d", errno);
    if (stat("f", &st) != 0 || st.st_size != want) WRONG("size after a change: %ld", (long)st.st_size);
    if (fstat(size_fd, &st) != 0 || st.st_size != want || st.st_blocks * 512 < want) WRONG("blocks %ld", (long)st.st_blocks);
}
CASE(race_size) {
    scratch();
    size_fd = open("f", O_CREAT | O_RDWR, 0600);
    CHECK(size_fd >= 0);
    race(look_size, resize);
}
