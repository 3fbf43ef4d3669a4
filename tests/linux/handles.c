// File handles: name_to_handle_at, open_by_handle_at.
#include "t.h"
#include <sys/mount.h>

#ifndef AT_HANDLE_FID
#define AT_HANDLE_FID 0x200
#endif
#ifndef AT_HANDLE_MNT_ID_UNIQUE
#define AT_HANDLE_MNT_ID_UNIQUE 1
#endif
#ifndef AT_HANDLE_CONNECTABLE
#define AT_HANDLE_CONNECTABLE 2
#endif

struct handle {
    struct file_handle h;
    unsigned char data[MAX_HANDLE_SZ];
};

static int to_handle(int dir, const char *name, struct handle *h, int flags) {
    int mount;
    memset(h, 0, sizeof *h);
    h->h.handle_bytes = MAX_HANDLE_SZ;
    return name_to_handle_at(dir, name, &h->h, &mount, flags);
}
static struct handle handle_of(const char *name) {
    struct handle h;
    CHECK_OK(to_handle(AT_FDCWD, name, &h, 0));
    CHECK(h.h.handle_bytes > 0 && h.h.handle_bytes <= MAX_HANDLE_SZ);
    return h;
}
static bool same(const struct handle *a, const struct handle *b) {
    return a->h.handle_bytes == b->h.handle_bytes && a->h.handle_type == b->h.handle_type &&
           !memcmp(a->data, b->data, a->h.handle_bytes);
}
static int by_handle(struct handle *h, int flags) { return open_by_handle_at(AT_FDCWD, &h->h, flags); }
static void expect(int fd, const char *text) {
    char buf[100] = "";
    CHECK_OK(fd);
    CHECK_EQ(read(fd, buf, sizeof buf - 1), strlen(text));
    CHECK(!strcmp(buf, text));
    close(fd);
}
static void need_root(void) {
    if (geteuid()) SKIP("opening by handle needs CAP_DAC_READ_SEARCH");
}
// A fresh directory whose file system has handles.
static void place(void) {
    struct handle h;
    scratch();
    if (to_handle(AT_FDCWD, ".", &h, 0) < 0 && errno == EOPNOTSUPP) SKIP("the file system here has no handles");
}
// Moves to a fresh directory of a tmpfs.
static void on_tmpfs(void) {
    setenv("TMPDIR", "/dev/shm", 1);
    place();
}

static void round_trip(void) {
    need_root();
    close(mkfile("f", "hello"));
    struct handle h = handle_of("f");
    expect(by_handle(&h, O_RDONLY), "hello");
    struct stat a, b;
    int fd = CHECK_OK(by_handle(&h, O_RDONLY));
    CHECK(fstat(fd, &a) == 0 && stat("f", &b) == 0);
    CHECK(a.st_ino == b.st_ino && a.st_dev == b.st_dev);
}
CASE(opens_what_was_named) { place(); round_trip(); }
CASE(opens_what_was_named_on_tmpfs) { on_tmpfs(); round_trip(); }
CASE(too_small_a_buffer_tells_the_size) {
    place();
    close(mkfile("f", "x"));
    struct handle want = handle_of("f"), h;
    int mount = -1;
    for (unsigned room = 0; room < want.h.handle_bytes; room += 4) {
        memset(&h, 0x55, sizeof h);
        h.h.handle_bytes = room;
        mount = -1;
        CHECK_ERR(name_to_handle_at(AT_FDCWD, "f", &h.h, &mount, 0), EOVERFLOW);
        CHECK_EQ(h.h.handle_bytes, want.h.handle_bytes);
        CHECK(mount != -1);
        CHECK_EQ(h.data[0], 0x55);
    }
    h.h.handle_bytes = want.h.handle_bytes;
    CHECK_OK(name_to_handle_at(AT_FDCWD, "f", &h.h, &mount, 0));
    CHECK(same(&h, &want));
    CHECK_EQ(h.data[h.h.handle_bytes], 0x55);
}
CASE(bad_arguments_of_name_to_handle) {
    place();
    struct handle h;
    int mount;
    close(mkfile("f", "x"));
    CHECK_ERR(to_handle(AT_FDCWD, "f", &h, 0x800000), EINVAL);
    CHECK_ERR(to_handle(AT_FDCWD, "f", &h, AT_SYMLINK_NOFOLLOW), EINVAL);
    CHECK_ERR(to_handle(AT_FDCWD, "none", &h, 0), ENOENT);
    CHECK_ERR(to_handle(AT_FDCWD, "", &h, 0), ENOENT);
    CHECK_ERR(to_handle(AT_FDCWD, "f/g", &h, 0), ENOTDIR);
    CHECK_ERR(to_handle(-1, "f", &h, 0), EBADF);
    CHECK_ERR(to_handle(-1, "", &h, AT_EMPTY_PATH), EBADF);
    int fd = open("f", O_RDONLY);
    CHECK_ERR(to_handle(fd, "g", &h, 0), ENOTDIR);
    h.h.handle_bytes = MAX_HANDLE_SZ + 1;
    CHECK_ERR(name_to_handle_at(AT_FDCWD, "f", &h.h, &mount, 0), EINVAL);
    CHECK_ERR(syscall(SYS_name_to_handle_at, AT_FDCWD, BAD, &h, &mount, 0), EFAULT);
    CHECK_ERR(syscall(SYS_name_to_handle_at, AT_FDCWD, "f", BAD, &mount, 0), EFAULT);
    h.h.handle_bytes = MAX_HANDLE_SZ;
    CHECK_ERR(syscall(SYS_name_to_handle_at, AT_FDCWD, "f", &h, BAD, 0), EFAULT);
}
CASE(bad_arguments_of_open_by_handle) {
    need_root();
    place();
    close(mkfile("f", "x"));
    struct handle h = handle_of("f"), bad = h;
    CHECK_ERR(open_by_handle_at(-1, &h.h, O_RDONLY), EBADF);
    CHECK_ERR(open_by_handle_at(open(".", O_PATH), &h.h, O_RDONLY), EBADF);
    CHECK_ERR(syscall(SYS_open_by_handle_at, AT_FDCWD, BAD, O_RDONLY), EFAULT);
    bad.h.handle_bytes = 0;
    CHECK_ERR(by_handle(&bad, O_RDONLY), EINVAL);
    bad.h.handle_bytes = MAX_HANDLE_SZ + 1;
    CHECK_ERR(by_handle(&bad, O_RDONLY), EINVAL);
    bad = h;
    CHECK_ERR(by_handle(&bad, O_RDONLY | O_DIRECTORY), ENOTDIR);
    memset(bad.data, 0xff, sizeof bad.data);
    CHECK_ERR(by_handle(&bad, O_RDONLY), ESTALE);
}
static void any_mount_fd(int fd) {
    struct handle h = handle_of("f");
    expect(open_by_handle_at(fd, &h.h, O_RDONLY), "x");
}
CASE(any_descriptor_of_the_file_system_will_do) {
    need_root();
    place();
    close(mkfile("f", "x"));
    mkdir("d", 0700);
    any_mount_fd(open(".", O_RDONLY));
    any_mount_fd(open("d", O_RDONLY));
    any_mount_fd(open("g", O_WRONLY | O_CREAT, 0600));
}
CASE(needs_the_capability) {
    need_root();
    place();
    chmod(".", 0755);
    close(mkfile("f", "x"));
    struct handle h;
    CHECK_EQ(join(SPAWN({
        t_drop_root();
        CHECK_OK(to_handle(AT_FDCWD, "f", &h, 0));  // to ask for one needs nothing
        CHECK_ERR(by_handle(&h, O_RDONLY), EPERM);
    })), 0);
}
CASE(survives_renames) {
    need_root();
    place();
    mkdir("d", 0700);
    close(mkfile("f", "x"));
    struct handle before = handle_of("f");
    CHECK(rename("f", "d/g") == 0);
    struct handle after = handle_of("d/g");
    CHECK(same(&before, &after));
    expect(by_handle(&before, O_RDONLY), "x");
}
CASE(names_the_file_not_the_name) {
    need_root();
    place();
    close(mkfile("f", "x"));
    close(mkfile("other", "y"));
    CHECK(link("f", "g") == 0);
    struct handle f = handle_of("f"), g = handle_of("g"), other = handle_of("other");
    CHECK(same(&f, &g));
    CHECK(!same(&f, &other));
    CHECK(unlink("g") == 0);
    expect(by_handle(&g, O_RDONLY), "x");
}
static void stale(void) {
    need_root();
    close(mkfile("f", "old"));
    struct handle old = handle_of("f");
    CHECK(unlink("f") == 0);
    CHECK_ERR(by_handle(&old, O_RDONLY), ESTALE);
    close(mkfile("f", "new"));
    struct handle new = handle_of("f");
    CHECK(!same(&old, &new));
    CHECK_ERR(by_handle(&old, O_RDONLY), ESTALE);
    expect(by_handle(&new, O_RDONLY), "new");
}
CASE(a_removed_file_is_stale) { place(); stale(); }
CASE(a_removed_file_is_stale_on_tmpfs) { on_tmpfs(); stale(); }
CASE(a_replaced_file_is_stale) {
    need_root();
    place();
    close(mkfile("f", "old"));
    close(mkfile("g", "new"));
    struct handle f = handle_of("f"), g = handle_of("g");
    CHECK(rename("g", "f") == 0);
    CHECK_ERR(by_handle(&f, O_RDONLY), ESTALE);
    expect(by_handle(&g, O_RDONLY), "new");
}
CASE(a_removed_directory_is_stale) {
    need_root();
    place();
    mkdir("d", 0700);
    struct handle h = handle_of("d");
    CHECK(rmdir("d") == 0);
    CHECK_ERR(by_handle(&h, O_RDONLY), ESTALE);
}
CASE(a_directory_keeps_its_place) {
    need_root();
    place();
    char here[PATH_MAX], want[PATH_MAX + 10], got[PATH_MAX + 10];
    CHECK(getcwd(here, sizeof here));
    CHECK(mkdir("a", 0700) == 0 && mkdir("a/b", 0700) == 0);
    close(mkfile("a/b/f", "x"));
    struct handle h = handle_of("a/b");
    CHECK(rename("a", "c") == 0);
    int fd = CHECK_OK(by_handle(&h, O_RDONLY | O_DIRECTORY));
    expect(openat(fd, "f", O_RDONLY), "x");
    CHECK(fchdir(fd) == 0 && getcwd(got, sizeof got));
    snprintf(want, sizeof want, "%s/c/b", here);
    CHECK(!strcmp(got, want));
    CHECK(chdir("../..") == 0 && getcwd(got, sizeof got));
    CHECK(!strcmp(got, here));
}
CASE(links_are_named_themselves_unless_followed) {
    need_root();
    place();
    close(mkfile("f", "x"));
    CHECK(symlink("f", "l") == 0);
    struct handle f = handle_of("f"), l = handle_of("l"), followed;
    CHECK(!same(&f, &l));
    CHECK_OK(to_handle(AT_FDCWD, "l", &followed, AT_SYMLINK_FOLLOW));
    CHECK(same(&f, &followed));
    CHECK_ERR(by_handle(&l, O_RDONLY), ELOOP);
    char text[10] = "";
    int fd = CHECK_OK(by_handle(&l, O_PATH));
    CHECK_EQ(readlinkat(fd, "", text, sizeof text), 1);
    CHECK_EQ(text[0], 'f');
}
CASE(empty_names_mean_the_descriptor) {
    place();
    int fd = mkfile("f", "x"), path = open("f", O_PATH);
    struct handle f = handle_of("f"), h;
    CHECK_OK(to_handle(fd, "", &h, AT_EMPTY_PATH));
    CHECK(same(&f, &h));
    CHECK_OK(to_handle(path, "", &h, AT_EMPTY_PATH));
    CHECK(same(&f, &h));
    struct handle dot = handle_of(".");
    CHECK_OK(to_handle(AT_FDCWD, "", &h, AT_EMPTY_PATH));
    CHECK(same(&dot, &h));
    CHECK_ERR(to_handle(fd, "", &h, 0), ENOENT);
}
CASE(opens_for_writing_as_asked) {
    need_root();
    place();
    close(mkfile("f", "hello"));
    struct handle h = handle_of("f");
    int fd = CHECK_OK(by_handle(&h, O_WRONLY | O_TRUNC | O_CLOEXEC));
    CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
    CHECK_EQ(fcntl(fd, F_GETFL) & O_ACCMODE, O_WRONLY);
    CHECK_EQ(write(fd, "by", 2), 2);
    expect(open("f", O_RDONLY), "by");
    mkdir("d", 0700);
    struct handle d = handle_of("d");
    CHECK_ERR(by_handle(&d, O_RDWR), EISDIR);
}
CASE(path_descriptors_open_nothing) {
    need_root();
    place();
    close(mkfile("f", "x"));
    struct handle h = handle_of("f");
    char c;
    int fd = CHECK_OK(by_handle(&h, O_PATH));
    CHECK_ERR(read(fd, &c, 1), EBADF);
    struct handle again;
    CHECK_OK(to_handle(fd, "", &again, AT_EMPTY_PATH));
    CHECK(same(&h, &again));
}
CASE(special_files) {
    need_root();
    place();
    CHECK(mkfifo("p", 0600) == 0);
    struct handle h = handle_of("p");
    int r = CHECK_OK(by_handle(&h, O_RDONLY | O_NONBLOCK)), w = CHECK_OK(open("p", O_WRONLY));
    char c = 0;
    CHECK(write(w, "z", 1) == 1 && read(r, &c, 1) == 1 && c == 'z');
    CHECK(mknod("s", S_IFSOCK | 0600, 0) == 0);
    h = handle_of("s");
    CHECK_ERR(by_handle(&h, O_RDONLY), ENXIO);
}
// The mount with an id, in /proc/self/mountinfo.
static bool mount_is(int id, const char *point) {
    FILE *f = fopen("/proc/self/mountinfo", "r");
    char line[4096], at[4096];
    int n;
    bool found = false;
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "%d %*d %*s %*s %4000s", &n, at) == 2 && n == id) found = !strcmp(at, point);
    fclose(f);
    return found;
}
CASE(tells_the_mount) {
    struct handle h;
    int id = -1;
    if (to_handle(AT_FDCWD, "/dev/shm", &h, 0) < 0) SKIP("no tmpfs");
    h.h.handle_bytes = MAX_HANDLE_SZ;
    CHECK_OK(name_to_handle_at(AT_FDCWD, "/dev/shm", &h.h, &id, 0));
    CHECK(mount_is(id, "/dev/shm"));
}
CASE(unique_mount_ids_have_64_bits) {
    struct handle h;
    uint64_t id[2] = {-1, -1};
    h.h.handle_bytes = MAX_HANDLE_SZ;
    long r = syscall(SYS_name_to_handle_at, AT_FDCWD, "/dev/shm", &h, id, AT_HANDLE_MNT_ID_UNIQUE);
    if (r < 0 && errno == EINVAL) SKIP("older than Linux 6.12");
    CHECK_EQ(r, 0);
    CHECK(id[0] != UINT64_MAX && id[1] == UINT64_MAX);
}
// Mounts a new file system and takes it out of the tree at once, so that nothing stays behind: a descriptor of it.
static int detached(const char *type) {
    CHECK(mkdir("m", 0700) == 0);
    if (mount("none", "m", type, 0, NULL) < 0) SKIP("cannot mount");
    int fd = open("m", O_RDONLY);
    CHECK(umount2("m", MNT_DETACH) == 0);
    return CHECK_OK(fd);
}
CASE(file_systems_are_told_apart) {
    need_root();
    on_tmpfs();
    close(mkfile("f", "x"));
    struct handle h = handle_of("f"), inside;
    int at = detached("tmpfs");
    for (int i = 0; i < 20; i++) {
        char name[20];
        snprintf(name, sizeof name, "%d", i);
        int fd = CHECK_OK(openat(at, name, O_CREAT | O_WRONLY, 0600));
        CHECK_EQ(write(fd, "y", 1), 1);
        close(fd);
    }
    CHECK_ERR(open_by_handle_at(at, &h.h, O_RDONLY), ESTALE);
    CHECK_OK(to_handle(at, "3", &inside, 0));
    expect(open_by_handle_at(at, &inside.h, O_RDONLY), "y");
    CHECK_ERR(by_handle(&inside, O_RDONLY), ESTALE);
}
CASE(no_handles_where_nothing_lasts) {
    struct handle h;
    int p[2];
    CHECK(pipe(p) == 0);
    CHECK_ERR(to_handle(AT_FDCWD, "/proc/self/stat", &h, 0), EOPNOTSUPP);
    CHECK_ERR(to_handle(AT_FDCWD, "/proc", &h, 0), EOPNOTSUPP);
    CHECK_ERR(to_handle(AT_FDCWD, "/sys", &h, 0), EOPNOTSUPP);
    CHECK_ERR(to_handle(p[0], "", &h, AT_EMPTY_PATH), EOPNOTSUPP);
    CHECK_ERR(to_handle(socket(AF_UNIX, SOCK_STREAM, 0), "", &h, AT_EMPTY_PATH), EOPNOTSUPP);
    struct stat st;
    if (stat("/dev/pts", &st) == 0 && st.st_dev != (stat("/dev", &st), st.st_dev))
        CHECK_ERR(to_handle(AT_FDCWD, "/dev/pts", &h, 0), EOPNOTSUPP);
}
CASE(handles_to_compare) {
    struct handle a, b, c;
    if (to_handle(AT_FDCWD, "/proc", &a, AT_HANDLE_FID) < 0) SKIP("older than Linux 6.6");
    CHECK_OK(to_handle(AT_FDCWD, "/proc", &b, AT_HANDLE_FID));
    CHECK_OK(to_handle(AT_FDCWD, "/proc/sys", &c, AT_HANDLE_FID));
    CHECK(same(&a, &b) && !same(&a, &c));
    CHECK_ERR(to_handle(AT_FDCWD, "/proc", &a, AT_HANDLE_FID | AT_HANDLE_CONNECTABLE), EINVAL);
    if (!geteuid()) CHECK_ERR(open_by_handle_at(open("/proc", O_RDONLY), &b.h, O_RDONLY), ESTALE);
    place();
    close(mkfile("f", "x"));
    CHECK_OK(to_handle(AT_FDCWD, "f", &a, AT_HANDLE_FID));
    b = handle_of("f");
    CHECK(same(&a, &b));
}
CASE(control_groups_have_numbers) {
    struct handle top, file;
    need_root();
    scratch();
    CHECK(fchdir(detached("cgroup2")) == 0);
    top = handle_of(".");
    file = handle_of("cgroup.procs");
    CHECK(top.h.handle_type == 0xfe && top.h.handle_bytes == 8);
    CHECK(!same(&top, &file));
    int fd = CHECK_OK(by_handle(&top, O_RDONLY | O_DIRECTORY));
    CHECK(openat(fd, "cgroup.procs", O_RDONLY) >= 0);
    char c;
    CHECK_EQ(read(by_handle(&file, O_RDONLY), &c, 1), 1);
    memset(file.data, 0x7f, 8);
    CHECK_ERR(by_handle(&file, O_RDONLY), ESTALE);
}
CASE(memory_files) {
    struct handle a, b;
    int fd = memfd_create("m", 0), other = memfd_create("m", 0);
    CHECK_OK(to_handle(fd, "", &a, AT_EMPTY_PATH));
    CHECK_OK(to_handle(other, "", &b, AT_EMPTY_PATH));
    CHECK(!same(&a, &b));
}
// Files that come with the image of a domain: unchanged, changed and removed.
CASE(files_of_an_image) {
    need_root();
    const char *dir = getenv("T_IMAGE_DIR");
    if (!dir) SKIP("no image natively");
    CHECK(chdir(dir) == 0);
    struct handle one = handle_of("one"), two = handle_of("two"), here = handle_of(".");
    int caches = CHECK_OK(open("/proc/sys/vm/drop_caches", O_WRONLY));
    CHECK(chdir("/") == 0);
    CHECK_EQ(write(caches, "2\n", 2), 2);
    expect(by_handle(&one, O_RDONLY), "one");
    int fd = CHECK_OK(by_handle(&here, O_RDONLY | O_DIRECTORY));
    CHECK(fchdir(fd) == 0);
    char at[PATH_MAX];
    CHECK(getcwd(at, sizeof at) && !strcmp(at, dir));
    fd = CHECK_OK(by_handle(&one, O_WRONLY | O_APPEND));
    CHECK_EQ(write(fd, "!", 1), 1);
    close(fd);
    CHECK_EQ(write(caches, "2\n", 2), 2);
    expect(by_handle(&one, O_RDONLY), "one!");
    CHECK(unlink("two") == 0);
    CHECK_EQ(write(caches, "2\n", 2), 2);
    CHECK_ERR(by_handle(&two, O_RDONLY), ESTALE);
    CHECK_ERR(openat(AT_FDCWD, "two", O_RDONLY), ENOENT);
}
