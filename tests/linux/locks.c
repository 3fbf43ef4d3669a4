// File locks (flock, POSIX, OFD) and inotify.
#include "t.h"
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>

static int lk(int fd, int cmd, int type, off_t start, off_t len) {
    struct flock l = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = len};
    return fcntl(fd, cmd, &l);
}
CASE(flock_shared_exclusive) {
    scratch();
    int a = mkfile("f", ""), b = open("f", O_RDWR);
    CHECK(flock(a, LOCK_SH) == 0 && flock(b, LOCK_SH) == 0);
    CHECK_ERR(flock(a, LOCK_EX | LOCK_NB), EWOULDBLOCK);
    CHECK(flock(b, LOCK_UN) == 0);
    CHECK(flock(a, LOCK_EX | LOCK_NB) == 0);
    CHECK_ERR(flock(b, LOCK_SH | LOCK_NB), EWOULDBLOCK);
    CHECK_ERR(flock(a, 77), EINVAL);
    CHECK_ERR(flock(-1, LOCK_EX), EBADF);
}
CASE(flock_shared_by_dup_and_fork) {
    scratch();
    int a = mkfile("f", ""), d = dup(a), b = open("f", O_RDWR);
    CHECK(flock(a, LOCK_EX) == 0);
    CHECK(flock(d, LOCK_EX | LOCK_NB) == 0);
    close(a);
    CHECK_ERR(flock(b, LOCK_EX | LOCK_NB), EWOULDBLOCK);
    CHECK_EQ(join(SPAWN({ CHECK(flock(d, LOCK_UN) == 0); })), 0);
    CHECK(flock(b, LOCK_EX | LOCK_NB) == 0);
}
CASE(flock_blocks_until_released) {
    scratch();
    int a = mkfile("f", ""), fd[2];
    CHECK(flock(a, LOCK_EX) == 0 && pipe(fd) == 0);
    pid_t p = SPAWN({ int b = open("f", O_RDWR); CHECK(flock(b, LOCK_EX) == 0); CHECK(write(fd[1], "x", 1) == 1); });
    struct pollfd pf = {fd[0], POLLIN, 0};
    CHECK_EQ(poll(&pf, 1, 50), 0);
    flock(a, LOCK_UN);
    CHECK_EQ(poll(&pf, 1, 30000), 1);
    CHECK_EQ(join(p), 0);
}
CASE(flock_released_at_exit) {
    scratch();
    int a = mkfile("f", "");
    CHECK_EQ(join(SPAWN({ int b = open("f", O_RDWR); CHECK(flock(b, LOCK_EX) == 0); })), 0);
    CHECK(flock(a, LOCK_EX | LOCK_NB) == 0);
}
CASE(posix_lock_conflict_and_getlk) {
    scratch();
    int a = mkfile("f", "0123456789");
    CHECK(lk(a, F_SETLK, F_WRLCK, 2, 3) == 0);
    pid_t me = getpid();
    CHECK_EQ(join(SPAWN({
        struct flock l = {.l_type = F_WRLCK};
        CHECK(fcntl(a, F_GETLK, &l) == 0);
        CHECK(l.l_type == F_WRLCK && l.l_start == 2 && l.l_len == 3 && l.l_pid == me);
        int r = lk(a, F_SETLK, F_RDLCK, 4, 1);
        CHECK(r == -1 && (errno == EAGAIN || errno == EACCES));
        CHECK(lk(a, F_SETLK, F_WRLCK, 0, 2) == 0);
        CHECK(lk(a, F_SETLK, F_WRLCK, 5, 0) == 0);
    })), 0);
}
CASE(posix_lock_split_and_merge) {
    scratch();
    int a = mkfile("f", "");
    CHECK(lk(a, F_SETLK, F_WRLCK, 0, 100) == 0);
    CHECK(lk(a, F_SETLK, F_UNLCK, 40, 20) == 0);
    CHECK(lk(a, F_SETLK, F_RDLCK, 90, 10) == 0);
    CHECK_EQ(join(SPAWN({
        CHECK(lk(a, F_SETLK, F_WRLCK, 40, 20) == 0);
        CHECK(lk(a, F_SETLK, F_RDLCK, 95, 1) == 0);
        CHECK(lk(a, F_SETLK, F_RDLCK, 39, 1) < 0);
        CHECK(lk(a, F_SETLK, F_RDLCK, 60, 1) < 0);
    })), 0);
}
CASE(posix_lock_dropped_on_any_close) {
    scratch();
    int a = mkfile("f", "");
    CHECK(lk(a, F_SETLK, F_WRLCK, 0, 0) == 0);
    close(open("f", O_RDONLY));
    CHECK_EQ(join(SPAWN({ CHECK(lk(a, F_SETLK, F_WRLCK, 0, 0) == 0); })), 0);
}
CASE(posix_lock_not_inherited) {
    scratch();
    int a = mkfile("f", "");
    CHECK(lk(a, F_SETLK, F_WRLCK, 0, 0) == 0);
    CHECK_EQ(join(SPAWN({ CHECK(lk(a, F_SETLK, F_WRLCK, 0, 0) < 0); })), 0);
}
CASE(posix_lock_wait_and_eintr) {
    scratch();
    int a = mkfile("f", "");
    CHECK(lk(a, F_SETLK, F_WRLCK, 0, 0) == 0);
    pid_t p = SPAWN({ CHECK(lk(a, F_SETLKW, F_WRLCK, 0, 0) == 0); _exit(3); });
    msleep(40);
    CHECK_EQ(waitpid(p, NULL, WNOHANG), 0);
    CHECK(lk(a, F_SETLK, F_UNLCK, 0, 0) == 0);
    CHECK_EQ(join(p), 3);
}
CASE(posix_lock_deadlock) {
    scratch();
    int a = mkfile("f", ""), fd[2];
    char c;
    CHECK(pipe(fd) == 0);
    CHECK(lk(a, F_SETLK, F_WRLCK, 0, 1) == 0);
    pid_t p = SPAWN({
        CHECK(lk(a, F_SETLK, F_WRLCK, 1, 1) == 0);
        CHECK(write(fd[1], "x", 1) == 1);
        lk(a, F_SETLKW, F_WRLCK, 0, 1);
    });
    CHECK_EQ(read(fd[0], &c, 1), 1);
    msleep(50);
    CHECK_ERR(lk(a, F_SETLKW, F_WRLCK, 1, 1), EDEADLK);
    lk(a, F_SETLK, F_UNLCK, 0, 0);
    join(p);
}
// Nobody waits while holding, so there is never a circle, however the waiters' turns fall.
CASE(posix_lock_taking_turns_is_no_deadlock) {
    scratch();
    int a = mkfile("f", "");
    pid_t p[4];
    for (int k = 0; k < 4; k++)
        p[k] = SPAWN({
            for (int i = 0; i < 5000; i++) {
                CHECK(lk(a, F_SETLKW, i % 3 ? F_WRLCK : F_RDLCK, i % 2, 2) == 0);
                if (i % 8 == 0) sched_yield();
                CHECK(lk(a, F_SETLK, F_UNLCK, 0, 0) == 0);
            }
        });
    for (int k = 0; k < 4; k++) CHECK_EQ(join(p[k]), 0);
}
CASE(posix_lock_mode_check) {
    scratch();
    close(mkfile("f", ""));
    int r = open("f", O_RDONLY), w = open("f", O_WRONLY);
    CHECK_ERR(lk(r, F_SETLK, F_WRLCK, 0, 1), EBADF);
    CHECK_ERR(lk(w, F_SETLK, F_RDLCK, 0, 1), EBADF);
    CHECK_ERR(lk(w, F_SETLK, 77, 0, 1), EINVAL);
    CHECK_ERR(lk(w, F_SETLK, F_WRLCK, -5, 1), EINVAL);
    CHECK(lk(w, F_SETLK, F_WRLCK, 5, -5) == 0);
}
CASE(ofd_lock_belongs_to_open_file) {
    scratch();
    int a = mkfile("f", ""), b = open("f", O_RDWR), d = dup(a);
    CHECK(lk(a, F_OFD_SETLK, F_WRLCK, 0, 10) == 0);
    CHECK_ERR(lk(b, F_OFD_SETLK, F_WRLCK, 5, 1), EAGAIN);
    CHECK(lk(d, F_OFD_SETLK, F_WRLCK, 0, 10) == 0);
    struct flock l = {.l_type = F_WRLCK};
    CHECK(fcntl(b, F_OFD_GETLK, &l) == 0 && l.l_pid == -1 && l.l_type == F_WRLCK);
    close(open("f", O_RDONLY));
    CHECK_ERR(lk(b, F_OFD_SETLK, F_WRLCK, 5, 1), EAGAIN);
    close(a);
    close(d);
    CHECK(lk(b, F_OFD_SETLK, F_WRLCK, 5, 1) == 0);
}
CASE(flock_and_posix_are_independent) {
    scratch();
    int a = mkfile("f", "");
    CHECK(flock(a, LOCK_EX) == 0);
    CHECK_EQ(join(SPAWN({ CHECK(lk(a, F_SETLK, F_WRLCK, 0, 0) == 0); })), 0);
}

static int ino_fd;
static char buf[8192];
// Reads one event; checks its mask and name.
static struct inotify_event *ev(uint32_t mask, const char *name) {
    static ssize_t have, pos;
    if (pos >= have) {
        struct pollfd p = {ino_fd, POLLIN, 0};
        if (poll(&p, 1, 30000) != 1) FAIL("no event, want mask %x %s", mask, name);
        have = read(ino_fd, buf, sizeof buf);
        CHECK(have > 0);
        pos = 0;
    }
    struct inotify_event *e = (void *)(buf + pos);
    pos += sizeof *e + e->len;
    if (e->mask != mask || strcmp(e->len ? e->name : "", name)) FAIL("event %x '%s', want %x '%s'", e->mask, e->len ? e->name : "", mask, name);
    return e;
}
static int watch(const char *p, uint32_t m) {
    if (!ino_fd) ino_fd = inotify_init1(IN_NONBLOCK);
    CHECK(ino_fd >= 0);
    int w = inotify_add_watch(ino_fd, p, m);
    CHECK(w >= 0);
    return w;
}
CASE(inotify_create_modify_delete) {
    scratch();
    watch(".", IN_CREATE | IN_MODIFY | IN_DELETE | IN_CLOSE_WRITE);
    int fd = mkfile("f", "x");
    close(fd);
    unlink("f");
    mkdir("d", 0755);
    ev(IN_CREATE, "f");
    ev(IN_MODIFY, "f");
    ev(IN_CLOSE_WRITE, "f");
    ev(IN_DELETE, "f");
    ev(IN_CREATE | IN_ISDIR, "d");
    CHECK_ERR(read(ino_fd, buf, sizeof buf), EAGAIN);
}
CASE(inotify_open_access_close_attrib) {
    scratch();
    close(mkfile("f", "x"));
    watch("f", IN_OPEN | IN_ACCESS | IN_CLOSE_NOWRITE | IN_ATTRIB);
    int fd = open("f", O_RDONLY);
    char c;
    CHECK(read(fd, &c, 1) == 1);
    close(fd);
    chmod("f", 0600);
    ev(IN_OPEN, "");
    ev(IN_ACCESS, "");
    ev(IN_CLOSE_NOWRITE, "");
    ev(IN_ATTRIB, "");
}
CASE(inotify_move_cookie) {
    scratch();
    mkdir("a", 0755), mkdir("b", 0755);
    close(mkfile("a/f", ""));
    int wa = watch("a", IN_MOVE), wb = watch("b", IN_MOVE);
    rename("a/f", "b/g");
    struct inotify_event *e = ev(IN_MOVED_FROM, "f");
    uint32_t c = e->cookie;
    CHECK_EQ(e->wd, wa);
    e = ev(IN_MOVED_TO, "g");
    CHECK(e->cookie == c && c && e->wd == wb);
}
CASE(inotify_delete_self_and_ignored) {
    scratch();
    close(mkfile("f", ""));
    watch("f", IN_DELETE_SELF);
    unlink("f");
    ev(IN_DELETE_SELF, "");
    ev(IN_IGNORED, "");
}
CASE(inotify_rm_watch_oneshot_errors) {
    scratch();
    int w = watch(".", IN_CREATE);
    CHECK(inotify_rm_watch(ino_fd, w) == 0);
    ev(IN_IGNORED, "");
    CHECK_ERR(inotify_rm_watch(ino_fd, w), EINVAL);
    CHECK_ERR(inotify_add_watch(ino_fd, "none", IN_CREATE), ENOENT);
    CHECK_ERR(inotify_add_watch(ino_fd, ".", 0), EINVAL);
    CHECK_ERR(inotify_add_watch(0, ".", IN_CREATE), EINVAL);
    watch(".", IN_CREATE | IN_ONESHOT);
    close(mkfile("a", ""));
    close(mkfile("b", ""));
    ev(IN_CREATE, "a");
    ev(IN_IGNORED, "");
    CHECK_ERR(read(ino_fd, buf, sizeof buf), EAGAIN);
}
CASE(inotify_coalesces_and_fionread) {
    scratch();
    int fd = mkfile("f", ""), n = 0;
    watch("f", IN_MODIFY);
    for (int i = 0; i < 5; i++) CHECK(write(fd, "x", 1) == 1);
    CHECK(ioctl(ino_fd, FIONREAD, &n) == 0);
    CHECK_EQ(n, 16);
    ev(IN_MODIFY, "");
    CHECK_ERR(read(ino_fd, buf, sizeof buf), EAGAIN);
    CHECK(write(fd, "x", 1) == 1);
    CHECK_ERR(read(ino_fd, buf, 8), EINVAL);
}
CASE(inotify_same_watch_updates_mask) {
    scratch();
    int w = watch(".", IN_CREATE);
    CHECK_EQ(watch(".", IN_DELETE), w);
    close(mkfile("f", ""));
    unlink("f");
    ev(IN_DELETE, "f");
    CHECK_EQ(watch(".", IN_CREATE | IN_MASK_ADD), w);
    close(mkfile("f", ""));
    ev(IN_CREATE, "f");
}
