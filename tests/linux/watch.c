// inotify at its edges, and openat2's ways of resolving.
#include "t.h"
#include <linux/openat2.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>

static int in;
static char ev[8192];
static long have, at;
static struct inotify_event *next(void) {
    if (at >= have) {
        struct pollfd p = {in, POLLIN, 0};
        if (poll(&p, 1, 50) <= 0) return NULL;
        have = read(in, ev, sizeof ev), at = 0;
        CHECK(have > 0);
    }
    struct inotify_event *e = (void *)(ev + at);
    at += sizeof *e + e->len;
    return e;
}
static int watch(const char *p, uint32_t mask) { return inotify_add_watch(in, p, mask); }
#define EVENT(bits, file) \
    do { struct inotify_event *e_ = next(); CHECK(e_ != NULL); CHECK_EQ(e_->mask, (uint32_t)(bits)); \
         if (file) CHECK(e_->len > 0 && !strcmp(e_->name, file)); else CHECK(e_->len == 0); } while (0)
#define NO_EVENT() do { struct inotify_event *e_ = next(); if (e_) FAIL("unexpected event %x %s", e_->mask, e_->len ? e_->name : ""); } while (0)
static void mk(void) {
    scratch();
    CHECK((in = inotify_init1(IN_NONBLOCK)) >= 0);
}

CASE(life_of_a_file) {
    mk();
    CHECK(watch(".", IN_ALL_EVENTS) > 0);
    int fd = open("f", O_CREAT | O_RDWR, 0600);
    EVENT(IN_CREATE, "f");
    EVENT(IN_OPEN, "f");
    write(fd, "x", 1);
    EVENT(IN_MODIFY, "f");
    fchmod(fd, 0644);
    EVENT(IN_ATTRIB, "f");
    close(fd);
    EVENT(IN_CLOSE_WRITE, "f");
    unlink("f");
    EVENT(IN_DELETE, "f");
    NO_EVENT();
}
CASE(directories_carry_isdir) {
    mk();
    CHECK(watch(".", IN_CREATE | IN_DELETE | IN_OPEN | IN_CLOSE) > 0);
    mkdir("d", 0700);
    EVENT(IN_CREATE | IN_ISDIR, "d");
    close(open("d", O_RDONLY));
    EVENT(IN_OPEN | IN_ISDIR, "d");
    EVENT(IN_CLOSE_NOWRITE | IN_ISDIR, "d");
    rmdir("d");
    EVENT(IN_DELETE | IN_ISDIR, "d");
}
CASE(moves_are_pairs) {
    mk();
    mkdir("a", 0700), mkdir("b", 0700);
    close(mkfile("a/f", ""));
    int wa = watch("a", IN_MOVE), wb = watch("b", IN_MOVE);
    rename("a/f", "b/g");
    struct inotify_event *e = next();
    CHECK(e && e->mask == IN_MOVED_FROM && e->wd == wa && !strcmp(e->name, "f"));
    uint32_t cookie = e->cookie;
    e = next();
    CHECK(e && e->mask == IN_MOVED_TO && e->wd == wb && !strcmp(e->name, "g") && e->cookie == cookie && cookie);
}
CASE(self_events) {
    mk();
    close(mkfile("f", ""));
    mkdir("d", 0700);
    int w = watch("f", IN_MOVE_SELF | IN_DELETE_SELF | IN_ATTRIB), d = watch("d", IN_DELETE_SELF);
    rename("f", "g");
    EVENT(IN_MOVE_SELF, (char *)NULL);
    unlink("g");
    struct inotify_event *e = next();
    CHECK(e && e->mask == IN_ATTRIB && e->wd == w);  // the link count
    EVENT(IN_DELETE_SELF, (char *)NULL);
    EVENT(IN_IGNORED, (char *)NULL);
    rmdir("d");
    e = next();
    CHECK(e && (e->mask & ~IN_ISDIR) == IN_DELETE_SELF && e->wd == d);
    EVENT(IN_IGNORED, (char *)NULL);
    CHECK_ERR(inotify_rm_watch(in, w), EINVAL);
}
CASE(replaced_by_rename_is_deleted) {
    mk();
    close(mkfile("old", "")), close(mkfile("new", ""));
    CHECK(watch("old", IN_DELETE_SELF) > 0);
    rename("new", "old");
    EVENT(IN_DELETE_SELF, (char *)NULL);
    EVENT(IN_IGNORED, (char *)NULL);
}
CASE(oneshot_ends_itself) {
    mk();
    int w = watch(".", IN_CREATE | IN_ONESHOT);
    close(mkfile("a", "")), close(mkfile("b", ""));
    EVENT(IN_CREATE, "a");
    EVENT(IN_IGNORED, (char *)NULL);
    NO_EVENT();
    CHECK_ERR(inotify_rm_watch(in, w), EINVAL);
}
CASE(masks_add_and_create) {
    mk();
    int w = watch(".", IN_CREATE);
    CHECK_EQ(watch(".", IN_DELETE | IN_MASK_ADD), w);
    close(mkfile("a", "")), unlink("a");
    EVENT(IN_CREATE, "a");
    EVENT(IN_DELETE, "a");
    CHECK_ERR(watch(".", IN_CREATE | IN_MASK_CREATE), EEXIST);
    CHECK_ERR(watch(".", IN_CREATE | IN_MASK_ADD | IN_MASK_CREATE), EINVAL);
    CHECK_EQ(watch(".", IN_DELETE), w);  // replaces the mask
    close(mkfile("b", ""));
    NO_EVENT();
}
CASE(kind_flags_of_a_watch) {
    mk();
    close(mkfile("f", "")), symlink("f", "l");
    CHECK_ERR(watch("f", IN_OPEN | IN_ONLYDIR), ENOTDIR);
    CHECK(watch("l", IN_ATTRIB | IN_DONT_FOLLOW) > 0 && watch("f", IN_OPEN) > 0);
    unlink("l");
    EVENT(IN_ATTRIB, (char *)NULL);
    EVENT(IN_IGNORED, (char *)NULL);
    CHECK_ERR(watch("f", 0), EINVAL);
    CHECK_ERR(watch("missing", IN_OPEN), ENOENT);
    CHECK_ERR(watch(BAD, IN_OPEN), EFAULT);
    CHECK_ERR(inotify_add_watch(0, "f", IN_OPEN), EINVAL);
    CHECK_ERR(inotify_add_watch(999, "f", IN_OPEN), EBADF);
    CHECK_ERR(inotify_rm_watch(in, 9999), EINVAL);
    CHECK_ERR(inotify_init1(1), EINVAL);
}
CASE(unlinked_but_open_with_excl) {
    mk();
    CHECK(watch(".", IN_MODIFY | IN_EXCL_UNLINK) > 0);
    int fd = mkfile("f", "");
    unlink("f");
    write(fd, "x", 1);
    NO_EVENT();
}
CASE(hard_link_and_watched_file) {
    mk();
    close(mkfile("f", ""));
    mkdir("d", 0700);
    CHECK(watch("f", IN_MODIFY | IN_ATTRIB) > 0);
    link("f", "d/g");
    EVENT(IN_ATTRIB, (char *)NULL);
    int fd = open("d/g", O_WRONLY);
    write(fd, "x", 1);
    EVENT(IN_MODIFY, (char *)NULL);  // by another name
}
CASE(same_events_in_a_row_are_one) {
    mk();
    int fd = mkfile("f", ""), n;
    CHECK(watch("f", IN_MODIFY) > 0);
    for (int i = 0; i < 5; i++) write(fd, "x", 1);
    CHECK(ioctl(in, FIONREAD, &n) == 0 && n == sizeof(struct inotify_event));
}
CASE(read_needs_room) {
    mk();
    CHECK(watch(".", IN_CREATE) > 0);
    close(mkfile("a-long-name-for-an-event", ""));
    CHECK_ERR(read(in, ev, sizeof(struct inotify_event)), EINVAL);
    CHECK_ERR(read(in, BAD, 4096), EFAULT);
    in = inotify_init1(IN_NONBLOCK);
    CHECK_ERR(read(in, ev, sizeof ev), EAGAIN);
}
CASE(truncation_and_times_are_told) {
    mk();
    int fd = mkfile("f", "abc");
    CHECK(watch("f", IN_MODIFY | IN_ATTRIB | IN_ACCESS) > 0);
    ftruncate(fd, 1);
    EVENT(IN_MODIFY, (char *)NULL);
    futimens(fd, NULL);
    EVENT(IN_ATTRIB, (char *)NULL);
    char c;
    read(fd, &c, 1);
    EVENT(IN_ACCESS, (char *)NULL);
}
CASE(queue_overflow) {
    mk();
    CHECK(watch(".", IN_CREATE | IN_DELETE) > 0);
    int limit = atoi(slurp("/proc/sys/fs/inotify/max_queued_events"));
    CHECK(limit > 0);
    if (limit > 20000) SKIP("a very long queue");
    for (int i = 0; i < limit / 2 + 10; i++) close(mkfile("f", "")), unlink("f");
    struct inotify_event *e, *last = NULL;
    while ((e = next())) last = e;
    CHECK(last && last->mask == IN_Q_OVERFLOW && last->wd == -1);
}
static int o2(int d, const char *p, uint64_t flags, uint64_t mode, uint64_t resolve) {
    struct open_how h = {flags, mode, resolve};
    return syscall(SYS_openat2, d, p, &h, sizeof h);
}
CASE(resolve_beneath) {
    scratch();
    mkdir("d", 0755), mkdir("d/e", 0755), close(mkfile("f", "")), close(mkfile("d/g", ""));
    symlink("../f", "d/out"), symlink("/etc", "d/abs"), symlink("e/../g", "d/in");
    int d = open("d", O_PATH);
    CHECK_ERR(o2(d, "../f", O_RDONLY, 0, RESOLVE_BENEATH), EXDEV);
    CHECK_ERR(o2(d, "out", O_RDONLY, 0, RESOLVE_BENEATH), EXDEV);
    CHECK_ERR(o2(d, "abs", O_RDONLY, 0, RESOLVE_BENEATH), EXDEV);
    CHECK_ERR(o2(d, "/etc", O_RDONLY, 0, RESOLVE_BENEATH), EXDEV);
    CHECK(o2(d, "in", O_RDONLY, 0, RESOLVE_BENEATH) >= 0);
    CHECK(o2(d, "e/../g", O_RDONLY, 0, RESOLVE_BENEATH) >= 0);
}
CASE(resolve_in_root) {
    scratch();
    mkdir("d", 0755), close(mkfile("d/f", "mine"));
    symlink("/f", "d/abs"), symlink("../../../../f", "d/up");
    int d = open("d", O_PATH);
    CHECK(o2(d, "abs", O_RDONLY, 0, RESOLVE_IN_ROOT) >= 0);
    CHECK(o2(d, "up", O_RDONLY, 0, RESOLVE_IN_ROOT) >= 0);
    CHECK(o2(d, "/f", O_RDONLY, 0, RESOLVE_IN_ROOT) >= 0);
    CHECK_ERR(o2(d, "/etc", O_RDONLY, 0, RESOLVE_IN_ROOT), ENOENT);
    CHECK_ERR(o2(d, "f", O_RDONLY, 0, RESOLVE_IN_ROOT | RESOLVE_BENEATH), EINVAL);
}
CASE(resolve_without_links) {
    scratch();
    mkdir("d", 0755), close(mkfile("d/f", "")), symlink("d", "l"), symlink("d/f", "lf");
    CHECK_ERR(o2(AT_FDCWD, "l/f", O_RDONLY, 0, RESOLVE_NO_SYMLINKS), ELOOP);
    CHECK_ERR(o2(AT_FDCWD, "lf", O_RDONLY, 0, RESOLVE_NO_SYMLINKS), ELOOP);
    CHECK(o2(AT_FDCWD, "lf", O_PATH | O_NOFOLLOW, 0, RESOLVE_NO_SYMLINKS) >= 0);
    CHECK_ERR(o2(AT_FDCWD, "/proc/self/exe", O_RDONLY, 0, RESOLVE_NO_MAGICLINKS), ELOOP);
    CHECK(o2(AT_FDCWD, "l/f", O_RDONLY, 0, RESOLVE_NO_MAGICLINKS) >= 0);
}
CASE(resolve_without_crossing_mounts) {
    CHECK_ERR(o2(AT_FDCWD, "/proc/version", O_RDONLY, 0, RESOLVE_NO_XDEV), EXDEV);
    int p = open("/proc", O_PATH);
    CHECK(o2(p, "version", O_RDONLY, 0, RESOLVE_NO_XDEV) >= 0);
    CHECK_ERR(o2(p, "..", O_PATH, 0, RESOLVE_NO_XDEV), EXDEV);
}
CASE(open_how_is_checked) {
    scratch();
    close(mkfile("f", ""));
    struct { struct open_how h; uint64_t more; } big = {{O_RDONLY, 0, 0}, 0};
    CHECK(syscall(SYS_openat2, AT_FDCWD, "f", &big, sizeof big) >= 0);
    big.more = 1;
    CHECK_ERR(syscall(SYS_openat2, AT_FDCWD, "f", &big, sizeof big), E2BIG);
    CHECK_ERR(syscall(SYS_openat2, AT_FDCWD, "f", &big, 23), EINVAL);
    CHECK_ERR(o2(AT_FDCWD, "f", O_RDONLY, 0600, 0), EINVAL);  // a mode without creation
    CHECK_ERR(o2(AT_FDCWD, "f", 1ull << 40, 0, 0), EINVAL);
    CHECK_ERR(o2(AT_FDCWD, "f", O_RDONLY, 0, 1ull << 20), EINVAL);
    CHECK_ERR(o2(AT_FDCWD, "g", O_CREAT | O_RDWR, 070000, 0), EINVAL);
    CHECK(o2(AT_FDCWD, "g", O_CREAT | O_RDWR, 0600, 0) >= 0);
    CHECK_ERR(o2(AT_FDCWD, "f", O_PATH | O_RDWR | O_TRUNC, 0, 0), EINVAL);
}
