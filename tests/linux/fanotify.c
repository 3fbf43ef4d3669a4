// fanotify: fanotify_init, fanotify_mark, events by descriptor and by handle, questions.
#include "t.h"
#include <sys/eventfd.h>
#include <sys/fanotify.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/statfs.h>

#ifndef FAN_MARK_IGNORE
#define FAN_MARK_IGNORE 0x400
#endif
#ifndef FAN_MARK_EVICTABLE
#define FAN_MARK_EVICTABLE 0x200
#endif
#ifndef FAN_RENAME
#define FAN_RENAME 0x10000000
#endif
#ifndef FAN_REPORT_TARGET_FID
#define FAN_REPORT_TARGET_FID 0x1000
#endif
#ifndef FAN_REPORT_PIDFD
#define FAN_REPORT_PIDFD 0x80
#endif
enum { T_FID = 1, T_DFID_NAME = 2, T_DFID = 3, T_PIDFD = 4, T_OLD = 10, T_NEW = 12 };
#define FID FAN_REPORT_FID
#define DIR_NAME (FAN_REPORT_DIR_FID | FAN_REPORT_NAME)
#define TARGET (FID | DIR_NAME | FAN_REPORT_TARGET_FID)
#define ALL (FAN_ACCESS | FAN_MODIFY | FAN_CLOSE | FAN_OPEN)
#define ENTRIES (FAN_CREATE | FAN_DELETE | FAN_MOVE)
#define IN_DIR (FAN_EVENT_ON_CHILD | FAN_ONDIR)

static int start(unsigned flags) {
    int g = syscall(SYS_fanotify_init, flags | FAN_NONBLOCK | FAN_CLOEXEC, O_RDONLY);
    if (g < 0 && (errno == ENOSYS || errno == EPERM)) SKIP("no fanotify here");
    CHECK(g >= 0);
    return g;
}
static long mark(int g, unsigned flags, uint64_t mask, const char *name) {
    return syscall(SYS_fanotify_mark, g, flags, mask, AT_FDCWD, name);
}
static int in_scratch(unsigned flags) {
    if (geteuid()) SKIP("needs root");
    scratch();
    return start(flags);
}

// Events that were read: each is one line of text.
struct rec { int kind; struct { struct file_handle h; unsigned char data[MAX_HANDLE_SZ]; } f; int fsid[2]; char name[300]; int pidfd; };
static struct { uint64_t mask; int fd, pid, n; struct rec rec[4]; char path[PATH_MAX]; } ev[200];
static int n_ev;
static void parse_records(char *at, char *end) {
    for (; at < end; at += ((struct fanotify_event_info_header *)at)->len) {
        struct fanotify_event_info_header *h = (void *)at;
        struct rec *r = &ev[n_ev].rec[ev[n_ev].n++];
        CHECK(h->len >= 8 && at + h->len <= end && ev[n_ev].n <= 4);
        r->kind = h->info_type;
        if (h->info_type == T_PIDFD) {
            r->pidfd = *(int *)(at + 4);
            continue;
        }
        struct file_handle *f = (void *)(at + 12);
        memcpy(r->fsid, at + 4, 8);
        memcpy(&r->f, f, sizeof *f + f->handle_bytes);
        if (r->kind != T_FID && r->kind != T_DFID) strcpy(r->name, (char *)f->f_handle + f->handle_bytes);
    }
}
static int take(int g) {
    char b[16384];
    n_ev = 0;
    for (ssize_t n; (n = read(g, b, sizeof b)) > 0;)
        for (char *p = b; p < b + n; n_ev++) {
            struct fanotify_event_metadata *m = (void *)p;
            CHECK(m->event_len >= 24 && m->vers == 3 && m->metadata_len == 24 && n_ev < 200);
            memset(&ev[n_ev], 0, sizeof ev[n_ev]);
            ev[n_ev].mask = m->mask, ev[n_ev].fd = m->fd, ev[n_ev].pid = m->pid;
            if (m->fd >= 0) {
                char q[40];
                snprintf(q, sizeof q, "/proc/self/fd/%d", m->fd);
                CHECK(readlink(q, ev[n_ev].path, PATH_MAX - 1) > 0);
            }
            parse_records(p + 24, p + m->event_len);
            p += m->event_len;
        }
    CHECK(errno == EAGAIN);
    return n_ev;
}
static void done(void) {
    for (int i = 0; i < n_ev; i++)
        if (ev[i].fd >= 0) close(ev[i].fd);
}
static const char *last(const char *path) { return strrchr(path, '/') + 1; }
// One event by descriptor, of a file of this name.
static bool one(int g, uint64_t mask, const char *name) {
    int n = take(g);
    if (n != 1) FAIL("%d events, want 1; first %llx", n, (long long)ev[0].mask);
    if (ev[0].mask != mask) FAIL("mask %llx, want %llx", (long long)ev[0].mask, (long long)mask);
    CHECK(ev[0].fd >= 0 && ev[0].pid == getpid());
    if (strcmp(last(ev[0].path), name)) FAIL("%s is not %s", ev[0].path, name);
    done();
    return true;
}
static bool none(int g) {
    int n = take(g);
    if (n) FAIL("%d events, first %llx", n, (long long)ev[0].mask);
    return true;
}
// Whether a record is of this file, as name_to_handle_at has it.
static bool is_fid(const struct rec *r, const char *path) {
    struct { struct file_handle h; unsigned char data[MAX_HANDLE_SZ]; } h = {.h.handle_bytes = MAX_HANDLE_SZ};
    int mount;
    struct statfs s;
    CHECK_OK(name_to_handle_at(AT_FDCWD, path, &h.h, &mount, 0));
    CHECK_OK(statfs(path, &s));
    return h.h.handle_bytes == r->f.h.handle_bytes && h.h.handle_type == r->f.h.handle_type &&
           !memcmp(h.data, r->f.data, h.h.handle_bytes) && !memcmp(&s.f_fsid, r->fsid, 8);
}
static void is_event(int i, uint64_t mask, int n) {
    if (i >= n_ev) FAIL("only %d events, want %llx", n_ev, (long long)mask);
    if (ev[i].mask != mask) FAIL("event %d: mask %llx, want %llx", i, (long long)ev[i].mask, (long long)mask);
    if (ev[i].n != n) FAIL("event %d: %d records, want %d", i, ev[i].n, n);
    CHECK(ev[i].fd == FAN_NOFD);
}
static void is_record(int i, int k, int kind, const char *path, const char *name) {
    struct rec *r = &ev[i].rec[k];
    if (r->kind != kind) FAIL("event %d record %d: kind %d, want %d", i, k, r->kind, kind);
    if (strcmp(r->name, name)) FAIL("event %d record %d: name %s, want %s", i, k, r->name, name);
    if (path && !is_fid(r, path)) FAIL("event %d record %d: not %s", i, k, path);
}
static void touch(const char *name) { close(mkfile(name, "text")); }
static void look(const char *name) { CHECK_OK(close(CHECK_OK(open(name, O_RDONLY)))); }

// fanotify_init

CASE(init_flags) {
    if (geteuid()) SKIP("needs root");
    close(start(0));
#define INIT(f, e) syscall(SYS_fanotify_init, f, e)
    CHECK_ERR(INIT(0x8000, 0), EINVAL);
    CHECK_ERR(INIT(0x80000000, 0), EINVAL);
    CHECK_ERR(INIT(FAN_CLASS_CONTENT | FAN_CLASS_PRE_CONTENT, 0), EINVAL);
    CHECK_ERR(INIT(FAN_REPORT_PIDFD | FAN_REPORT_TID, 0), EINVAL);
    CHECK_ERR(INIT(FAN_REPORT_NAME, 0), EINVAL);
    CHECK_ERR(INIT(FAN_REPORT_NAME | FID, 0), EINVAL);
    CHECK_ERR(INIT(FAN_REPORT_TARGET_FID, 0), EINVAL);
    CHECK_ERR(INIT(FAN_REPORT_TARGET_FID | DIR_NAME, 0), EINVAL);
    CHECK_ERR(INIT(FAN_REPORT_TARGET_FID | FID | FAN_REPORT_DIR_FID, 0), EINVAL);
    CHECK_ERR(INIT(FID | FAN_CLASS_CONTENT, 0), EINVAL);
    CHECK_OK(INIT(TARGET, 0));
    CHECK_OK(INIT(FAN_UNLIMITED_QUEUE | FAN_UNLIMITED_MARKS | FAN_CLASS_PRE_CONTENT, 0));
}
CASE(init_event_flags) {
    if (geteuid()) SKIP("needs root");
    close(start(0));
    CHECK_ERR(INIT(0, 3), EINVAL);
    CHECK_ERR(INIT(0, O_CREAT), EINVAL);
    CHECK_ERR(INIT(0, O_DIRECT), EINVAL);
    CHECK_ERR(INIT(0, O_PATH), EINVAL);
    CHECK_OK(INIT(0, O_RDWR | O_APPEND | O_NONBLOCK | O_CLOEXEC | O_DSYNC | O_SYNC | O_NOATIME | 0100000));
}
CASE(init_descriptor) {
    if (geteuid()) SKIP("needs root");
    close(start(0));
    int g = CHECK_OK(INIT(0, 0)), h = CHECK_OK(INIT(FAN_CLOEXEC | FAN_NONBLOCK, 0));
    CHECK_EQ(fcntl(g, F_GETFD), 0);
    CHECK_EQ(fcntl(h, F_GETFD), FD_CLOEXEC);
    CHECK_EQ(fcntl(g, F_GETFL) & (O_ACCMODE | O_NONBLOCK), O_RDWR);
    CHECK_EQ(fcntl(h, F_GETFL) & (O_ACCMODE | O_NONBLOCK), O_RDWR | O_NONBLOCK);
}
CASE(init_without_rights) {
    if (geteuid()) SKIP("needs root");
    close(start(0));
    t_drop_root();
    CHECK_ERR(INIT(0, 0), EPERM);
    CHECK_ERR(INIT(0x8000, 0), EPERM);
    CHECK_ERR(INIT(FID | FAN_UNLIMITED_QUEUE, 0), EPERM);
    CHECK_ERR(INIT(FID | FAN_UNLIMITED_MARKS, 0), EPERM);
    CHECK_ERR(INIT(FID | FAN_CLASS_CONTENT, 0), EPERM);
    CHECK_ERR(INIT(FID | FAN_REPORT_TID, 0), EPERM);
    CHECK_ERR(INIT(FID | FAN_REPORT_PIDFD, 0), EPERM);
    CHECK_ERR(INIT(FID | FAN_REPORT_NAME, 0), EINVAL);
    CHECK_OK(INIT(FID, 0));
}

// fanotify_mark

CASE(mark_arguments) {
    int g = in_scratch(0);
    CHECK_ERR(mark(g, FAN_MARK_ADD, 0, "."), EINVAL);
    CHECK_ERR(mark(g, FAN_MARK_REMOVE, 0, "."), EINVAL);
    CHECK_ERR(mark(g, 0, FAN_OPEN, "."), EINVAL);
    CHECK_ERR(mark(g, FAN_MARK_ADD | FAN_MARK_REMOVE, FAN_OPEN, "."), EINVAL);
    CHECK_ERR(mark(g, FAN_MARK_ADD | FAN_MARK_FLUSH, FAN_OPEN, "."), EINVAL);
    CHECK_ERR(mark(g, FAN_MARK_FLUSH | FAN_MARK_ONLYDIR, 0, "."), EINVAL);
    CHECK_ERR(mark(g, FAN_MARK_ADD | FAN_MARK_MOUNT | FAN_MARK_FILESYSTEM, FAN_OPEN, "."), EINVAL);
    CHECK_ERR(mark(g, FAN_MARK_ADD | 0x4000, FAN_OPEN, "."), EINVAL);
    CHECK_ERR(mark(g, FAN_MARK_ADD, 0x80000000, "."), EINVAL);
    CHECK_ERR(mark(g, FAN_MARK_ADD, 0x100000000 | FAN_OPEN, "."), EINVAL);
    CHECK_ERR(mark(g, FAN_MARK_ADD, FAN_Q_OVERFLOW, "."), EINVAL);
    CHECK_ERR(mark(g, FAN_MARK_ADD | FAN_MARK_IGNORE | FAN_MARK_IGNORED_MASK, FAN_OPEN, "."), EINVAL);
    CHECK_ERR(mark(g, FAN_MARK_ADD | FAN_MARK_MOUNT | FAN_MARK_EVICTABLE, FAN_OPEN, "."), EINVAL);
}
CASE(mark_descriptors) {
    int g = in_scratch(0), p[2];
    CHECK_ERR(mark(-1, FAN_MARK_ADD, FAN_OPEN, "."), EBADF);
    CHECK_ERR(mark(open(".", O_RDONLY), FAN_MARK_ADD, FAN_OPEN, "."), EINVAL);
    CHECK_ERR(syscall(SYS_fanotify_mark, g, FAN_MARK_ADD, (uint64_t)FAN_OPEN, -1, NULL), EBADF);
    CHECK_ERR(syscall(SYS_fanotify_mark, g, FAN_MARK_ADD, (uint64_t)FAN_OPEN, AT_FDCWD, NULL), EBADF);
    CHECK_ERR(syscall(SYS_fanotify_mark, g, FAN_MARK_ADD, (uint64_t)FAN_OPEN, -1, "x"), EBADF);
    CHECK_OK(syscall(SYS_fanotify_mark, g, FAN_MARK_ADD, (uint64_t)FAN_OPEN, open(".", O_RDONLY), NULL));
    touch("f");
    CHECK_ERR(syscall(SYS_fanotify_mark, g, FAN_MARK_ADD | FAN_MARK_ONLYDIR, (uint64_t)FAN_OPEN, open("f", O_RDONLY), NULL),
              ENOTDIR);
    CHECK_OK(pipe(p));
    CHECK_ERR(syscall(SYS_fanotify_mark, g, FAN_MARK_ADD | FAN_MARK_MOUNT, (uint64_t)FAN_OPEN, p[0], NULL), EINVAL);
}
CASE(mark_names) {
    int g = in_scratch(0);
    touch("f");
    CHECK_OK(symlink("f", "l"));
    CHECK_ERR(mark(g, FAN_MARK_ADD, FAN_OPEN, "none"), ENOENT);
    CHECK_ERR(mark(g, FAN_MARK_ADD, FAN_OPEN, ""), ENOENT);
    CHECK_ERR(mark(g, FAN_MARK_ADD, FAN_OPEN, BAD), EFAULT);
    CHECK_ERR(mark(g, FAN_MARK_ADD | FAN_MARK_ONLYDIR, FAN_OPEN, "f"), ENOTDIR);
    CHECK_OK(mark(g, FAN_MARK_ADD, FAN_OPEN, "l"));
    CHECK_ERR(mark(g, FAN_MARK_REMOVE | FAN_MARK_DONT_FOLLOW, FAN_OPEN, "l"), ENOENT);
    CHECK_OK(mark(g, FAN_MARK_REMOVE, FAN_OPEN, "f"));
}
CASE(mark_events_of_handles) {
    int g = in_scratch(0), f = start(FID), n = start(FID | DIR_NAME);
    CHECK_ERR(mark(g, FAN_MARK_ADD, FAN_CREATE, "."), EINVAL);
    CHECK_ERR(mark(g, FAN_MARK_ADD, FAN_ATTRIB, "."), EINVAL);
    CHECK_ERR(mark(g, FAN_MARK_ADD, FAN_DELETE_SELF, "."), EINVAL);
    CHECK_ERR(mark(f, FAN_MARK_ADD | FAN_MARK_MOUNT, FAN_CREATE, "."), EINVAL);
    CHECK_ERR(mark(f, FAN_MARK_ADD, FAN_RENAME, "."), EINVAL);
    CHECK_ERR(mark(f, FAN_MARK_ADD, 0x8000, "."), EINVAL);
    CHECK_OK(mark(f, FAN_MARK_ADD, FAN_CREATE | FAN_ATTRIB, "."));
    CHECK_OK(mark(n, FAN_MARK_ADD, FAN_RENAME, "."));
}
CASE(mark_questions_need_a_class) {
    int g = in_scratch(0), c = start(FAN_CLASS_CONTENT);
    touch("f");
    CHECK_ERR(mark(g, FAN_MARK_ADD, FAN_OPEN_PERM, "f"), EINVAL);
    CHECK_ERR(mark(g, FAN_MARK_ADD, FAN_ACCESS_PERM, "f"), EINVAL);
    CHECK_OK(mark(c, FAN_MARK_ADD, FAN_OPEN_PERM, "f"));
    CHECK_ERR(mark(c, FAN_MARK_ADD, FAN_ACCESS_PERM, "/proc/self/maps"), EINVAL);
}
CASE(mark_directories_only) {
    int g = in_scratch(TARGET), n = start(FID | DIR_NAME);
    touch("f");
    CHECK_ERR(mark(g, FAN_MARK_ADD, FAN_CREATE, "f"), ENOTDIR);
    CHECK_ERR(mark(g, FAN_MARK_ADD, FAN_OPEN | FAN_ONDIR, "f"), ENOTDIR);
    CHECK_ERR(mark(g, FAN_MARK_ADD, FAN_OPEN | FAN_EVENT_ON_CHILD, "f"), ENOTDIR);
    CHECK_ERR(mark(n, FAN_MARK_ADD, FAN_RENAME, "f"), ENOTDIR);
    CHECK_OK(mark(n, FAN_MARK_ADD, FAN_CREATE | FAN_ONDIR, "f"));
    CHECK_OK(mark(g, FAN_MARK_ADD, FAN_OPEN, "f"));
}
CASE(mark_remove) {
    int g = in_scratch(0);
    touch("f");
    CHECK_ERR(mark(g, FAN_MARK_REMOVE, FAN_OPEN, "f"), ENOENT);
    CHECK_OK(mark(g, FAN_MARK_ADD, FAN_OPEN | FAN_CLOSE_NOWRITE, "f"));
    CHECK_OK(mark(g, FAN_MARK_REMOVE, FAN_OPEN, "f"));
    CHECK_OK(mark(g, FAN_MARK_REMOVE, FAN_MODIFY, "f"));
    look("f");
    CHECK(one(g, FAN_CLOSE_NOWRITE, "f"));
    CHECK_OK(mark(g, FAN_MARK_REMOVE, FAN_CLOSE_NOWRITE, "f"));
    CHECK_ERR(mark(g, FAN_MARK_REMOVE, FAN_OPEN, "f"), ENOENT);
    look("f");
    CHECK(none(g));
}
CASE(mark_flush) {
    int g = in_scratch(0);
    touch("f");
    CHECK_OK(mark(g, FAN_MARK_ADD, FAN_OPEN, "f"));
    CHECK_OK(mark(g, FAN_MARK_ADD, FAN_OPEN | FAN_EVENT_ON_CHILD, "."));
    CHECK_OK(mark(g, FAN_MARK_FLUSH | FAN_MARK_MOUNT, 0, "."));
    look("f");
    CHECK(one(g, FAN_OPEN, "f"));
    CHECK_OK(mark(g, FAN_MARK_FLUSH, 0, "/none"));
    look("f");
    CHECK(none(g));
}
CASE(mark_without_rights) {
    int g = in_scratch(0);
    touch("f");
    touch("secret");
    CHECK_OK(chmod("secret", 0600));
    t_drop_root();
    int u = CHECK_OK(INIT(FID | FAN_NONBLOCK, 0));
    CHECK_ERR(mark(u, FAN_MARK_ADD | FAN_MARK_MOUNT, FAN_OPEN, "f"), EPERM);
    CHECK_ERR(mark(u, FAN_MARK_ADD | FAN_MARK_FILESYSTEM, FAN_OPEN, "f"), EPERM);
    CHECK_ERR(mark(g, FAN_MARK_ADD | FAN_MARK_MOUNT, FAN_OPEN, "f"), EPERM);
    CHECK_ERR(mark(u, FAN_MARK_ADD, FAN_OPEN, "secret"), EACCES);
    CHECK_OK(mark(u, FAN_MARK_ADD, FAN_OPEN, "f"));
    look("f");
    CHECK_EQ(take(u), 1);
    CHECK_EQ(ev[0].pid, getpid());
    pid_t p = SPAWN(look("f"));
    CHECK_EQ(join(p), 0);
    CHECK_EQ(take(u), 1);
    CHECK_EQ(ev[0].pid, 0);
}
CASE(mark_file_systems_without_handles) {
    int g = in_scratch(FID);
    CHECK_ERR(mark(g, FAN_MARK_ADD | FAN_MARK_FILESYSTEM, FAN_OPEN, "/proc/self/maps"), EOPNOTSUPP);
    CHECK_ERR(mark(g, FAN_MARK_ADD | FAN_MARK_MOUNT, FAN_OPEN, "/proc/self/maps"), EOPNOTSUPP);
    CHECK_OK(mark(g, FAN_MARK_ADD, FAN_OPEN, "/proc/self/maps"));
}

// Events by descriptor

CASE(open_and_close) {
    int g = in_scratch(0);
    touch("f");
    CHECK_OK(mark(g, FAN_MARK_ADD, ALL, "f"));
    look("f");
    CHECK(one(g, FAN_OPEN | FAN_CLOSE_NOWRITE, "f"));
    close(open("f", O_WRONLY));
    CHECK(one(g, FAN_OPEN | FAN_CLOSE_WRITE, "f"));
}
CASE(read_and_write) {
    int g = in_scratch(0), fd;
    char c;
    touch("f");
    CHECK_OK(mark(g, FAN_MARK_ADD, ALL, "f"));
    fd = CHECK_OK(open("f", O_RDWR));
    CHECK(one(g, FAN_OPEN, "f"));
    CHECK_EQ(read(fd, &c, 1), 1);
    CHECK(one(g, FAN_ACCESS, "f"));
    CHECK_EQ(write(fd, "x", 1), 1);
    CHECK(one(g, FAN_MODIFY, "f"));
    CHECK_EQ(pread(fd, &c, 1, 0), 1);
    CHECK_EQ(pwrite(fd, "x", 1, 0), 1);
    CHECK(one(g, FAN_ACCESS | FAN_MODIFY, "f"));
    // There is no open file of which this could be told.
    CHECK_OK(ftruncate(fd, 1));
    CHECK_OK(truncate("f", 0));
    CHECK(none(g));
}
CASE(events_of_one_file_are_merged) {
    int g = in_scratch(0);
    touch("f");
    touch("o");
    CHECK_OK(mark(g, FAN_MARK_ADD, ALL | FAN_EVENT_ON_CHILD, "."));
    for (int i = 0; i < 5; i++) look("f"), look("o");
    CHECK_EQ(take(g), 2);
    CHECK_EQ(ev[0].mask, FAN_OPEN | FAN_CLOSE_NOWRITE);
    CHECK(!strcmp(last(ev[0].path), "f") && !strcmp(last(ev[1].path), "o"));
    done();
}
CASE(events_of_processes_are_apart) {
    int g = in_scratch(0);
    touch("f");
    CHECK_OK(mark(g, FAN_MARK_ADD, FAN_OPEN, "f"));
    look("f");
    pid_t p = SPAWN(look("f"));
    CHECK_EQ(join(p), 0);
    CHECK_EQ(take(g), 2);
    CHECK_EQ(ev[0].pid, getpid());
    CHECK_EQ(ev[1].pid, p);
    done();
}
CASE(children_of_a_directory) {
    int g = in_scratch(0);
    touch("f");
    CHECK_OK(mark(g, FAN_MARK_ADD, FAN_OPEN, "."));
    look("f");
    CHECK(none(g));
    CHECK_OK(mark(g, FAN_MARK_ADD, FAN_EVENT_ON_CHILD, "."));
    look("f");
    CHECK(one(g, FAN_OPEN, "f"));
    CHECK_OK(mkdir("d", 0700));
    touch("d/g");
    look("d/g");
    CHECK(none(g));
}
CASE(directories) {
    int g = in_scratch(0);
    char cwd[PATH_MAX];
    CHECK_OK(mkdir("d", 0700));
    CHECK_OK(mark(g, FAN_MARK_ADD, ALL | FAN_EVENT_ON_CHILD, "."));
    look("d");
    look(".");
    CHECK(none(g));
    CHECK_OK(mark(g, FAN_MARK_ADD, FAN_ONDIR, "."));
    look("d");
    CHECK(one(g, FAN_OPEN | FAN_CLOSE_NOWRITE, "d"));
    look(".");
    CHECK(one(g, FAN_OPEN | FAN_CLOSE_NOWRITE, last(getcwd(cwd, sizeof cwd))));
}
CASE(descriptors_are_as_asked) {
    int g = in_scratch(0), h = CHECK_OK(INIT(FAN_NONBLOCK, O_RDWR | O_CLOEXEC | O_APPEND));
    touch("f");
    CHECK_OK(mark(g, FAN_MARK_ADD, FAN_OPEN, "f"));
    CHECK_OK(mark(h, FAN_MARK_ADD, FAN_OPEN, "f"));
    look("f");
    CHECK_EQ(take(g), 1);
    CHECK_EQ(fcntl(ev[0].fd, F_GETFL) & (O_ACCMODE | O_APPEND), O_RDONLY);
    CHECK_EQ(fcntl(ev[0].fd, F_GETFD), 0);
    char c;
    CHECK_EQ(read(ev[0].fd, &c, 1), 1);
    CHECK_EQ(take(h), 1);
    CHECK_EQ(fcntl(ev[0].fd, F_GETFL) & (O_ACCMODE | O_APPEND), O_RDWR | O_APPEND);
    CHECK_EQ(fcntl(ev[0].fd, F_GETFD), FD_CLOEXEC);
}
CASE(descriptors_of_events_tell_nobody) {
    int g = in_scratch(0);
    char c;
    touch("f");
    CHECK_OK(mark(g, FAN_MARK_ADD, ALL, "f"));
    look("f");
    CHECK_EQ(take(g), 1);
    CHECK_EQ(read(ev[0].fd, &c, 1), 1);
    done();
    CHECK(none(g));
}
CASE(files_that_are_gone_can_be_opened) {
    int g = in_scratch(0);
    char c;
    touch("f");
    CHECK_OK(mark(g, FAN_MARK_ADD, FAN_OPEN, "f"));
    look("f");
    CHECK_OK(unlink("f"));
    CHECK_EQ(take(g), 1);
    CHECK(strstr(ev[0].path, "f (deleted)"));
    CHECK_EQ(read(ev[0].fd, &c, 1), 1);
}
CASE(reading) {
    int g = in_scratch(0), n;
    char b[200];
    CHECK_ERR(read(g, b, sizeof b), EAGAIN);
    touch("f");
    touch("o");
    CHECK_OK(mark(g, FAN_MARK_ADD, FAN_OPEN | FAN_EVENT_ON_CHILD, "."));
    look("f");
    look("o");
    CHECK_ERR(read(g, b, 23), EINVAL);
    CHECK_OK(ioctl(g, FIONREAD, &n));
    CHECK_EQ(n, 48);
    CHECK_EQ(read(g, b, 47), 24);
    CHECK_EQ(read(g, b, sizeof b), 24);
    CHECK_ERR(read(g, b, sizeof b), EAGAIN);
    CHECK_ERR(ioctl(g, FIOCLEX + 100, &n), ENOTTY);
}
CASE(poll_and_wait) {
    int g = in_scratch(0);
    struct pollfd p = {g, POLLIN, 0};
    touch("f");
    CHECK_OK(mark(g, FAN_MARK_ADD, FAN_OPEN, "f"));
    CHECK_EQ(poll(&p, 1, 0), 0);
    look("f");
    CHECK_EQ(poll(&p, 1, 0), 1);
    CHECK_EQ(p.revents, POLLIN);
    CHECK_EQ(take(g), 1);
    done();
    CHECK_OK(fcntl(g, F_SETFL, 0));
    pid_t c = SPAWN({
        msleep(20);
        look("f");
    });
    char b[100];
    CHECK_EQ(read(g, b, sizeof b), 24);
    CHECK_EQ(join(c), 0);
}
CASE(seek_does_nothing) {
    int g = in_scratch(0);
    CHECK_EQ(lseek(g, 0, SEEK_SET), 0);
}
CASE(writing_without_questions) {
    int g = in_scratch(0);
    struct fanotify_response r = {99, FAN_ALLOW};
    CHECK_ERR(write(g, &r, 4), EINVAL);
    r.response = 77;
    CHECK_ERR(write(g, &r, sizeof r), EINVAL);
    r.response = FAN_ALLOW, r.fd = -1;
    CHECK_ERR(write(g, &r, sizeof r), EINVAL);
}
CASE(marks_of_mounts) {
    int g = in_scratch(0);
    CHECK_OK(mkdir("m", 0700));
    if (mount("t", "m", "tmpfs", 0, NULL)) SKIP("no mount here");
    touch("m/f");
    touch("out");
    CHECK_OK(mark(g, FAN_MARK_ADD | FAN_MARK_MOUNT, FAN_OPEN, "m"));
    look("m/f");
    CHECK(one(g, FAN_OPEN, "f"));
    CHECK_OK(mkdir("m/d", 0700));
    touch("m/d/deep");
    CHECK(one(g, FAN_OPEN, "deep"));
    look("out");
    look("m/d");
    CHECK(none(g));
    CHECK_OK(mark(g, FAN_MARK_FLUSH | FAN_MARK_MOUNT, 0, "."));
    look("m/f");
    CHECK(none(g));
    CHECK_OK(umount("m"));
}
CASE(marks_of_file_systems) {
    int g = in_scratch(0);
    CHECK_OK(mkdir("m", 0700));
    if (mount("t", "m", "tmpfs", 0, NULL)) SKIP("no mount here");
    touch("m/f");
    touch("out");
    CHECK_OK(mark(g, FAN_MARK_ADD | FAN_MARK_FILESYSTEM, FAN_CLOSE_NOWRITE, "m/f"));
    look("m/f");
    CHECK(one(g, FAN_CLOSE_NOWRITE, "f"));
    look("out");
    CHECK(none(g));
    CHECK_OK(mark(g, FAN_MARK_REMOVE | FAN_MARK_FILESYSTEM, FAN_CLOSE_NOWRITE, "m"));
    look("m/f");
    CHECK(none(g));
    CHECK_OK(umount("m"));
}
CASE(a_file_of_several_marks_is_told_once) {
    int g = in_scratch(0);
    touch("f");
    CHECK_OK(mark(g, FAN_MARK_ADD, FAN_OPEN, "f"));
    CHECK_OK(mark(g, FAN_MARK_ADD, FAN_OPEN | FAN_CLOSE_NOWRITE | FAN_EVENT_ON_CHILD, "."));
    look("f");
    CHECK(one(g, FAN_OPEN | FAN_CLOSE_NOWRITE, "f"));
}
CASE(executing) {
    int g = in_scratch(0);
    CHECK_OK(mark(g, FAN_MARK_ADD, FAN_OPEN_EXEC | FAN_OPEN, "/bin/true"));
    look("/bin/true");
    CHECK_EQ(take(g), 1);
    CHECK_EQ(ev[0].mask, FAN_OPEN);
    done();
    pid_t p = SPAWN(execl("/bin/true", "true", NULL));
    CHECK_EQ(join(p), 0);
    CHECK_EQ(take(g), 1);
    CHECK_EQ(ev[0].mask, FAN_OPEN | FAN_OPEN_EXEC);
    CHECK_EQ(ev[0].pid, p);
}
static void *open_f(void *tid) {
    *(pid_t *)tid = syscall(SYS_gettid);
    look("f");
    return NULL;
}
CASE(thread_ids) {
    int g = in_scratch(FAN_REPORT_TID), h = start(0);
    pid_t tid;
    pthread_t t;
    touch("f");
    CHECK_OK(mark(g, FAN_MARK_ADD, FAN_OPEN, "f"));
    CHECK_OK(mark(h, FAN_MARK_ADD, FAN_OPEN, "f"));
    CHECK(pthread_create(&t, NULL, open_f, &tid) == 0);
    CHECK(pthread_join(t, NULL) == 0);
    CHECK_EQ(take(g), 1);
    CHECK_EQ(ev[0].pid, tid);
    CHECK_EQ(take(h), 1);
    CHECK_EQ(ev[0].pid, getpid());
}
CASE(process_descriptors) {
    int g = in_scratch(FAN_REPORT_PIDFD);
    touch("f");
    CHECK_OK(mark(g, FAN_MARK_ADD, FAN_OPEN, "f"));
    look("f");
    CHECK_EQ(take(g), 1);
    CHECK_EQ(ev[0].n, 1);
    CHECK_EQ(ev[0].rec[0].kind, T_PIDFD);
    CHECK(ev[0].rec[0].pidfd >= 0 && ev[0].fd >= 0);
    CHECK_OK(syscall(SYS_pidfd_send_signal, ev[0].rec[0].pidfd, 0, NULL, 0));
    pid_t p = SPAWN(look("f"));
    CHECK_EQ(join(p), 0);
    CHECK_EQ(take(g), 1);
    CHECK_EQ(ev[0].rec[0].pidfd, -1);
}

// What is not wanted

CASE(ignored_until_changed) {
    int g = in_scratch(0);
    touch("f");
    CHECK_OK(mark(g, FAN_MARK_ADD, FAN_OPEN, "f"));
    CHECK_OK(mark(g, FAN_MARK_ADD | FAN_MARK_IGNORED_MASK, FAN_OPEN, "f"));
    look("f");
    CHECK(none(g));
    // While it is open for writing nothing is ignored that would not last.
    int w = CHECK_OK(open("f", O_WRONLY)), h = start(0);
    CHECK_OK(mark(h, FAN_MARK_ADD, FAN_OPEN, "f"));
    CHECK_OK(mark(h, FAN_MARK_ADD | FAN_MARK_IGNORED_MASK, FAN_OPEN, "f"));
    look("f");
    CHECK(one(h, FAN_OPEN, "f"));
    close(w);
    int fd = CHECK_OK(open("f", O_WRONLY));
    CHECK_EQ(write(fd, "x", 1), 1);
    close(fd);
    look("f");
    CHECK(one(g, FAN_OPEN, "f"));
}
CASE(a_change_is_told_all_the_same) {
    int g = in_scratch(0);
    touch("f");
    CHECK_OK(mark(g, FAN_MARK_ADD, FAN_MODIFY, "f"));
    CHECK_OK(mark(g, FAN_MARK_ADD | FAN_MARK_IGNORED_MASK, FAN_MODIFY, "f"));
    int fd = CHECK_OK(open("f", O_WRONLY));
    CHECK_EQ(write(fd, "x", 1), 1);
    CHECK(one(g, FAN_MODIFY, "f"));
}
CASE(ignored_for_good) {
    int g = in_scratch(0);
    touch("f");
    touch("o");
    CHECK_OK(mark(g, FAN_MARK_ADD, FAN_OPEN | FAN_EVENT_ON_CHILD, "."));
    CHECK_OK(mark(g, FAN_MARK_ADD | FAN_MARK_IGNORED_MASK | FAN_MARK_IGNORED_SURV_MODIFY, FAN_OPEN, "f"));
    int fd = CHECK_OK(open("f", O_WRONLY));
    CHECK_EQ(write(fd, "x", 1), 1);
    close(fd);
    look("f");
    look("o");
    CHECK(one(g, FAN_OPEN, "o"));
    CHECK_OK(mark(g, FAN_MARK_REMOVE | FAN_MARK_IGNORED_MASK, FAN_OPEN, "f"));
    look("f");
    CHECK(one(g, FAN_OPEN, "f"));
}
CASE(ignored_of_a_mount) {
    int g = in_scratch(0);
    touch("f");
    CHECK_OK(mkdir("m", 0700));
    if (mount("t", "m", "tmpfs", 0, NULL)) SKIP("no mount here");
    touch("m/f");
    CHECK_OK(mark(g, FAN_MARK_ADD | FAN_MARK_FILESYSTEM, FAN_OPEN, "m"));
    CHECK_OK(mark(g, FAN_MARK_ADD | FAN_MARK_MOUNT | FAN_MARK_IGNORED_MASK | FAN_MARK_IGNORED_SURV_MODIFY, FAN_OPEN, "m"));
    look("m/f");
    CHECK(none(g));
    CHECK_OK(umount("m"));
}
CASE(ignore_marks) {
    int g = in_scratch(0);
    touch("f");
    CHECK_ERR(mark(g, FAN_MARK_ADD | FAN_MARK_IGNORE, FAN_OPEN, "."), EISDIR);
    CHECK_ERR(mark(g, FAN_MARK_ADD | FAN_MARK_IGNORE | FAN_MARK_MOUNT, FAN_OPEN, "."), EINVAL);
    CHECK_ERR(mark(g, FAN_MARK_ADD | FAN_MARK_IGNORE | FAN_MARK_FILESYSTEM, FAN_OPEN, "."), EINVAL);
    CHECK_OK(mark(g, FAN_MARK_ADD | FAN_MARK_IGNORE | FAN_MARK_IGNORED_SURV_MODIFY, FAN_OPEN | FAN_EVENT_ON_CHILD, "."));
    CHECK_ERR(mark(g, FAN_MARK_ADD | FAN_MARK_IGNORED_MASK, FAN_OPEN, "."), EEXIST);
    CHECK_OK(mark(g, FAN_MARK_ADD, ALL, "f"));
    look("f");
    CHECK(one(g, FAN_CLOSE_NOWRITE, "f"));
}
CASE(evictable_marks) {
    int g = in_scratch(0);
    touch("f");
    CHECK_OK(mark(g, FAN_MARK_ADD | FAN_MARK_EVICTABLE, FAN_OPEN, "f"));
    CHECK_OK(mark(g, FAN_MARK_ADD, FAN_CLOSE_NOWRITE, "f"));
    CHECK_ERR(mark(g, FAN_MARK_ADD | FAN_MARK_EVICTABLE, FAN_OPEN, "f"), EEXIST);
    look("f");
    CHECK(one(g, FAN_OPEN | FAN_CLOSE_NOWRITE, "f"));
}

// Events by handle

CASE(fid_of_a_file) {
    int g = in_scratch(FID);
    touch("f");
    CHECK_OK(mark(g, FAN_MARK_ADD, ALL | FAN_ATTRIB | FAN_MOVE_SELF, "f"));
    look("f");
    CHECK_EQ(take(g), 1);
    is_event(0, FAN_OPEN | FAN_CLOSE_NOWRITE, 1);
    is_record(0, 0, T_FID, "f", "");
    CHECK_OK(chmod("f", 0600));
    CHECK_OK(link("f", "l"));
    CHECK_EQ(take(g), 1);
    is_event(0, FAN_ATTRIB, 1);
    CHECK_OK(rename("f", "x"));
    CHECK_EQ(take(g), 1);
    is_event(0, FAN_MOVE_SELF, 1);
    is_record(0, 0, T_FID, "x", "");
}
CASE(fid_of_what_changes_its_size) {
    int g = in_scratch(FID);
    touch("f");
    CHECK_OK(mark(g, FAN_MARK_ADD, FAN_MODIFY, "f"));
    CHECK_OK(truncate("f", 1));
    CHECK_EQ(take(g), 1);
    is_event(0, FAN_MODIFY, 1);
    close(CHECK_OK(open("f", O_WRONLY | O_TRUNC)));
    CHECK_EQ(take(g), 1);
    is_event(0, FAN_MODIFY, 1);
}
CASE(fid_opens_the_file) {
    int g = in_scratch(FID);
    char b[9] = "";
    touch("f");
    CHECK_OK(mark(g, FAN_MARK_ADD, FAN_OPEN, "f"));
    look("f");
    CHECK_EQ(take(g), 1);
    int fd = CHECK_OK(open_by_handle_at(AT_FDCWD, &ev[0].rec[0].f.h, O_RDONLY));
    CHECK_EQ(read(fd, b, 8), 4);
    CHECK(!strcmp(b, "text"));
}
CASE(fid_of_a_child) {
    int g = in_scratch(FID);
    touch("f");
    CHECK_OK(mark(g, FAN_MARK_ADD, FAN_OPEN | IN_DIR, "."));
    look("f");
    CHECK_EQ(take(g), 1);
    is_event(0, FAN_OPEN, 1);
    is_record(0, 0, T_FID, "f", "");
    look(".");
    CHECK_EQ(take(g), 1);
    is_event(0, FAN_OPEN | FAN_ONDIR, 1);
    is_record(0, 0, T_FID, ".", "");
}
CASE(fid_of_entries_is_the_directorys) {
    int g = in_scratch(FID);
    CHECK_OK(mark(g, FAN_MARK_ADD, ENTRIES, "."));
    touch("f");
    CHECK_OK(rename("f", "x"));
    CHECK_OK(unlink("x"));
    CHECK_OK(mkdir("d", 0700));
    CHECK_EQ(take(g), 1);
    is_event(0, FAN_CREATE | FAN_DELETE | FAN_MOVE, 1);
    is_record(0, 0, T_FID, ".", "");
    CHECK_OK(mark(g, FAN_MARK_ADD, FAN_ONDIR, "."));
    CHECK_OK(rmdir("d"));
    CHECK_EQ(take(g), 1);
    is_event(0, FAN_DELETE | FAN_ONDIR, 1);
}
CASE(dir_fid_alone) {
    int g = in_scratch(FAN_REPORT_DIR_FID);
    CHECK_OK(mark(g, FAN_MARK_ADD, ALL | ENTRIES | FAN_ATTRIB | IN_DIR, "."));
    touch("f");
    CHECK_OK(chmod("f", 0600));
    CHECK_EQ(take(g), 1);
    is_event(0, FAN_CREATE | FAN_OPEN | FAN_MODIFY | FAN_CLOSE_WRITE | FAN_ATTRIB, 1);
    is_record(0, 0, T_DFID, ".", "");
    CHECK_OK(mkdir("d", 0700));
    CHECK_OK(rmdir("d"));
    CHECK_EQ(take(g), 1);
    is_event(0, FAN_CREATE | FAN_DELETE | FAN_ONDIR, 1);
    is_record(0, 0, T_DFID, ".", "");
}
CASE(dir_fid_and_fid) {
    int g = in_scratch(FAN_REPORT_DIR_FID | FID);
    touch("f");
    CHECK_OK(mark(g, FAN_MARK_ADD, ALL | ENTRIES | IN_DIR, "."));
    look("f");
    CHECK_EQ(take(g), 1);
    is_event(0, FAN_OPEN | FAN_CLOSE_NOWRITE, 2);
    is_record(0, 0, T_DFID, ".", "");
    is_record(0, 1, T_FID, "f", "");
    CHECK_OK(unlink("f"));
    CHECK_EQ(take(g), 1);
    is_event(0, FAN_DELETE, 1);
    is_record(0, 0, T_DFID, ".", "");
}
CASE(names_of_children) {
    int g = in_scratch(DIR_NAME);
    touch("f");
    CHECK_OK(mark(g, FAN_MARK_ADD, FAN_OPEN | IN_DIR, "."));
    look("f");
    CHECK_EQ(take(g), 1);
    is_event(0, FAN_OPEN, 1);
    is_record(0, 0, T_DFID_NAME, ".", "f");
    CHECK_OK(mkdir("d", 0700));
    look("d");
    CHECK_EQ(take(g), 1);
    is_event(0, FAN_OPEN | FAN_ONDIR, 1);
    is_record(0, 0, T_DFID_NAME, "d", ".");
    look(".");
    CHECK_EQ(take(g), 1);
    is_event(0, FAN_OPEN | FAN_ONDIR, 1);
    is_record(0, 0, T_DFID_NAME, ".", ".");
}
CASE(names_of_entries) {
    int g = in_scratch(DIR_NAME | FID);
    CHECK_OK(mark(g, FAN_MARK_ADD, ENTRIES | FAN_ONDIR, "."));
    touch("f");
    CHECK_OK(symlink("x", "s"));
    CHECK_OK(link("f", "l"));
    CHECK_OK(mknod("p", S_IFIFO | 0600, 0));
    CHECK_OK(rename("l", "m"));
    CHECK_OK(unlink("m"));
    CHECK_OK(mkdir("d", 0700));
    CHECK_OK(rename("d", "e"));
    CHECK_OK(rmdir("e"));
    const struct { uint64_t mask; const char *name; } want[] = {
        {FAN_CREATE, "f"}, {FAN_CREATE, "s"}, {FAN_CREATE | FAN_MOVED_FROM, "l"}, {FAN_CREATE, "p"},
        {FAN_MOVED_TO | FAN_DELETE, "m"}, {FAN_CREATE | FAN_MOVED_FROM | FAN_ONDIR, "d"},
        {FAN_MOVED_TO | FAN_DELETE | FAN_ONDIR, "e"}};
    CHECK_EQ(take(g), 7);
    for (int i = 0; i < 7; i++) {
        is_event(i, want[i].mask, 1);
        is_record(i, 0, T_DFID_NAME, ".", want[i].name);
    }
}
CASE(entries_of_other_directories_are_not_told) {
    int g = in_scratch(DIR_NAME);
    CHECK_OK(mkdir("d", 0700));
    CHECK_OK(mark(g, FAN_MARK_ADD, ENTRIES | FAN_ONDIR | FAN_EVENT_ON_CHILD, "."));
    touch("d/f");
    CHECK(none(g));
    CHECK_OK(rename("d/f", "f"));
    CHECK_EQ(take(g), 1);
    is_event(0, FAN_MOVED_TO, 1);
    is_record(0, 0, T_DFID_NAME, ".", "f");
}
CASE(target_fid) {
    int g = in_scratch(TARGET);
    CHECK_OK(mark(g, FAN_MARK_ADD, ENTRIES | FAN_ONDIR, "."));
    touch("f");
    CHECK_EQ(take(g), 1);
    is_event(0, FAN_CREATE, 2);
    is_record(0, 0, T_DFID_NAME, ".", "f");
    is_record(0, 1, T_FID, "f", "");
    CHECK_OK(mkdir("d", 0700));
    CHECK_EQ(take(g), 1);
    is_event(0, FAN_CREATE | FAN_ONDIR, 2);
    is_record(0, 1, T_FID, "d", "");
    CHECK_OK(unlink("f"));
    CHECK_EQ(take(g), 1);
    is_event(0, FAN_DELETE, 2);
    is_record(0, 0, T_DFID_NAME, ".", "f");
    is_record(0, 1, T_FID, NULL, "");
}
CASE(renaming) {
    int g = in_scratch(DIR_NAME);
    touch("f");
    CHECK_OK(mkdir("d", 0700));
    CHECK_OK(mark(g, FAN_MARK_ADD, FAN_RENAME, "."));
    CHECK_OK(rename("f", "x"));
    CHECK_EQ(take(g), 1);
    is_event(0, FAN_RENAME, 2);
    is_record(0, 0, T_OLD, ".", "f");
    is_record(0, 1, T_NEW, ".", "x");
    // Only of the directories that are marked.
    CHECK_OK(rename("x", "d/y"));
    CHECK_EQ(take(g), 1);
    is_event(0, FAN_RENAME, 1);
    is_record(0, 0, T_OLD, ".", "x");
    CHECK_OK(rename("d/y", "z"));
    CHECK_EQ(take(g), 1);
    is_event(0, FAN_RENAME, 1);
    is_record(0, 0, T_NEW, ".", "z");
    CHECK_OK(rename("d", "e"));
    CHECK(none(g));
}
CASE(renaming_with_target) {
    int g = in_scratch(TARGET);
    CHECK_OK(mkdir("d", 0700));
    CHECK_OK(mark(g, FAN_MARK_ADD, FAN_RENAME | FAN_MOVE | FAN_ONDIR, "."));
    CHECK_OK(rename("d", "e"));
    CHECK_EQ(take(g), 3);
    is_event(0, FAN_RENAME | FAN_ONDIR, 3);
    is_record(0, 0, T_OLD, ".", "d");
    is_record(0, 1, T_NEW, ".", "e");
    is_record(0, 2, T_FID, "e", "");
    is_event(1, FAN_MOVED_FROM | FAN_ONDIR, 2);
    is_event(2, FAN_MOVED_TO | FAN_ONDIR, 2);
}
CASE(self) {
    int g = in_scratch(FID | DIR_NAME);
    touch("f");
    CHECK_OK(mkdir("d", 0700));
    CHECK_OK(mark(g, FAN_MARK_ADD, FAN_MOVE_SELF | FAN_DELETE_SELF, "f"));
    CHECK_OK(mark(g, FAN_MARK_ADD, FAN_MOVE_SELF | FAN_DELETE_SELF | FAN_ONDIR, "d"));
    CHECK_OK(rename("f", "x"));
    CHECK_OK(rename("d", "e"));
    CHECK_EQ(take(g), 2);
    is_event(0, FAN_MOVE_SELF, 1);
    is_record(0, 0, T_FID, "x", "");
    is_event(1, FAN_MOVE_SELF | FAN_ONDIR, 1);
    is_record(1, 0, T_DFID_NAME, "e", ".");
    CHECK_OK(unlink("x"));
    CHECK_EQ(take(g), 1);
    is_event(0, FAN_DELETE_SELF, 1);
    CHECK_OK(rmdir("e"));
    CHECK_EQ(take(g), 1);
    is_event(0, FAN_DELETE_SELF | FAN_ONDIR, 1);
}
CASE(file_systems_by_name) {
    int g = in_scratch(FID | DIR_NAME);
    CHECK_OK(mkdir("m", 0700));
    if (mount("t", "m", "tmpfs", 0, NULL)) SKIP("no mount here");
    CHECK_OK(mkdir("m/d", 0700));
    CHECK_OK(mark(g, FAN_MARK_ADD | FAN_MARK_FILESYSTEM, FAN_CREATE | FAN_DELETE | FAN_RENAME | FAN_CLOSE_WRITE | FAN_ONDIR, "m"));
    touch("m/d/f");
    CHECK_EQ(take(g), 2);
    is_event(0, FAN_CREATE, 1);
    is_record(0, 0, T_DFID_NAME, "m/d", "f");
    is_event(1, FAN_CLOSE_WRITE, 2);
    is_record(1, 0, T_DFID_NAME, "m/d", "f");
    is_record(1, 1, T_FID, "m/d/f", "");
    CHECK_OK(rename("m/d/f", "m/g"));
    CHECK_EQ(take(g), 1);
    is_event(0, FAN_RENAME, 2);
    is_record(0, 0, T_OLD, "m/d", "f");
    is_record(0, 1, T_NEW, "m", "g");
    touch("out");
    CHECK(none(g));
    int dir = CHECK_OK(open("m", O_RDONLY));
    char q[64], path[PATH_MAX] = "";
    int fd = CHECK_OK(open_by_handle_at(dir, &ev[0].rec[0].f.h, O_RDONLY));
    snprintf(q, sizeof q, "/proc/self/fd/%d", fd);
    CHECK(readlink(q, path, sizeof path - 1) > 0);
    CHECK(!strcmp(last(path), "d"));
    close(fd);
    close(dir);
    CHECK_OK(umount("m"));
}

// Questions

// Answers `n` questions in a child.
static pid_t answers(int g, int n, unsigned answer) {
    return SPAWN({
        CHECK_OK(fcntl(g, F_SETFL, 0));
        while (n) {
            struct fanotify_event_metadata m[8];
            ssize_t got = CHECK_OK(read(g, m, sizeof m));
            for (int i = 0; i < got / 24; i++, n--) {
                struct fanotify_response r = {m[i].fd, answer};
                CHECK_EQ(write(g, &r, sizeof r), sizeof r);
                CHECK_ERR(write(g, &r, sizeof r), ENOENT);
                close(m[i].fd);
            }
        }
    });
}
CASE(open_allowed) {
    int g = in_scratch(FAN_CLASS_CONTENT);
    touch("f");
    CHECK_OK(mark(g, FAN_MARK_ADD, FAN_OPEN_PERM, "f"));
    pid_t p = answers(g, 2, FAN_ALLOW);
    look("f");
    look("f");
    CHECK_EQ(join(p), 0);
}
CASE(open_denied) {
    int g = in_scratch(FAN_CLASS_CONTENT);
    touch("f");
    CHECK_OK(mark(g, FAN_MARK_ADD, FAN_OPEN_PERM, "f"));
    pid_t p = answers(g, 1, FAN_DENY);
    CHECK_ERR(open("f", O_RDONLY), EPERM);
    CHECK_EQ(join(p), 0);
}
CASE(read_denied) {
    int g = in_scratch(FAN_CLASS_PRE_CONTENT);
    char c;
    touch("f");
    CHECK_OK(mark(g, FAN_MARK_ADD, FAN_ACCESS_PERM, "f"));
    int fd = CHECK_OK(open("f", O_RDONLY));
    pid_t p = answers(g, 2, FAN_DENY);
    CHECK_ERR(read(fd, &c, 1), EPERM);
    CHECK_ERR(pread(fd, &c, 1, 0), EPERM);
    CHECK_EQ(join(p), 0);
    p = answers(g, 1, FAN_ALLOW);
    CHECK_EQ(read(fd, &c, 1), 1);
    CHECK_EQ(join(p), 0);
}
CASE(exec_denied) {
    int g = in_scratch(FAN_CLASS_CONTENT);
    pid_t p = SPAWN(execl("/bin/cp", "cp", "/bin/true", "t", NULL));
    CHECK_EQ(join(p), 0);
    CHECK_OK(mark(g, FAN_MARK_ADD, FAN_OPEN_EXEC_PERM, "t"));
    look("t");
    p = answers(g, 1, FAN_DENY);
    CHECK_ERR(execl("./t", "t", NULL), EPERM);
    CHECK_EQ(join(p), 0);
}
CASE(closing_allows) {
    int g = in_scratch(FAN_CLASS_CONTENT);
    touch("f");
    CHECK_OK(mark(g, FAN_MARK_ADD, FAN_OPEN_PERM, "f"));
    pid_t p = SPAWN({
        close(g);
        look("f");
    });
    struct pollfd w = {g, POLLIN, 0};
    CHECK_EQ(poll(&w, 1, 30000), 1);
    close(g);
    CHECK_EQ(join(p), 0);
}
CASE(questions_and_news) {
    int g = in_scratch(FAN_CLASS_CONTENT);
    touch("f");
    CHECK_OK(mark(g, FAN_MARK_ADD, FAN_OPEN_PERM | FAN_OPEN | FAN_CLOSE_NOWRITE, "f"));
    pid_t p = SPAWN(look("f"));
    struct pollfd w = {g, POLLIN, 0};
    CHECK_EQ(poll(&w, 1, 30000), 1);
    struct fanotify_event_metadata m[4];
    CHECK_EQ(read(g, m, sizeof m), 24);
    CHECK_EQ(m[0].mask, FAN_OPEN_PERM);
    CHECK_EQ(m[0].pid, p);
    struct fanotify_response r = {m[0].fd, FAN_ALLOW};
    CHECK_EQ(write(g, &r, sizeof r), sizeof r);
    CHECK_EQ(join(p), 0);
    CHECK_EQ(read(g, m, sizeof m), 24);
    CHECK_EQ(m[0].mask, FAN_OPEN | FAN_CLOSE_NOWRITE);
}

// Limits and what is told of groups

CASE(overflow) {
    int g = in_scratch(FID | DIR_NAME);
    char name[20], b[4096];
    CHECK_OK(mark(g, FAN_MARK_ADD, FAN_CREATE, "."));
    int most = atoi(slurp("/proc/sys/fs/fanotify/max_queued_events"));
    CHECK(most >= 1000);
    if (most > 20000) SKIP("a long queue here");
    for (int i = 0; i < most + 10; i++) {
        snprintf(name, sizeof name, "%d", i);
        CHECK_OK(symlink("x", name));
    }
    int n = 0;
    uint64_t mask = 0;
    for (ssize_t got; (got = read(g, b, sizeof b)) > 0;)
        for (char *p = b; p < b + got; n++) {
            struct fanotify_event_metadata *m = (void *)p;
            mask = m->mask;
            if (mask == FAN_Q_OVERFLOW) CHECK(m->fd == FAN_NOFD && m->event_len == 24 && m->pid == 0);
            p += m->event_len;
        }
    CHECK_EQ(mask, FAN_Q_OVERFLOW);
    CHECK_EQ(n, most + 1);
}
CASE(most_groups) {
    if (geteuid()) SKIP("needs root");
    close(start(0));
    int most = atoi(slurp("/proc/sys/fs/fanotify/max_user_groups")), n = 0;
    if (most > 500) SKIP("very many groups here");
    CHECK_OK(setresuid(61240, 61240, 61240));
    while (n < most + 1 && INIT(FID, 0) >= 0) n++;
    CHECK_EQ(errno, EMFILE);
    CHECK_EQ(n, most);
}
CASE(fdinfo) {
    int g = in_scratch(FID | DIR_NAME);
    char q[64], want[100];
    touch("f");
    snprintf(q, sizeof q, "/proc/self/fdinfo/%d", g);
    CHECK(strstr(slurp(q), "\nfanotify flags:e03 event-flags:8000\n"));
    CHECK_OK(mark(g, FAN_MARK_ADD, FAN_OPEN | IN_DIR, "."));
    CHECK_OK(mark(g, FAN_MARK_ADD | FAN_MARK_MOUNT, FAN_ACCESS, "."));
    CHECK_OK(mark(g, FAN_MARK_ADD | FAN_MARK_FILESYSTEM, FAN_MODIFY, "."));
    CHECK_OK(mark(g, FAN_MARK_ADD | FAN_MARK_IGNORED_MASK | FAN_MARK_IGNORED_SURV_MODIFY, FAN_OPEN, "f"));
    struct stat s;
    CHECK_OK(stat(".", &s));
    char *text = slurp(q);
    snprintf(want, sizeof want, "\nfanotify ino:%lx sdev:", (long)s.st_ino);
    CHECK(strstr(text, want) && strstr(text, " mflags:0 mask:48000020 ignored_mask:0 fhandle-bytes:"));
    CHECK(strstr(text, "\nfanotify mnt_id:") && strstr(text, " mflags:0 mask:8000001 ignored_mask:0\n"));
    CHECK(strstr(text, "\nfanotify sdev:") && strstr(text, " mflags:0 mask:8000002 ignored_mask:0\n"));
    CHECK(strstr(text, " mflags:40 mask:0 ignored_mask:20 "));
}
CASE(watchers_of_both_kinds) {
    int g = in_scratch(DIR_NAME), h = start(0);
    CHECK_OK(mark(g, FAN_MARK_ADD, FAN_CREATE, "."));
    CHECK_OK(mark(h, FAN_MARK_ADD, FAN_OPEN | FAN_EVENT_ON_CHILD, "."));
    touch("f");
    CHECK_EQ(take(g), 1);
    is_record(0, 0, T_DFID_NAME, ".", "f");
    CHECK(one(h, FAN_OPEN, "f"));
    close(g);
    look("f");
    CHECK(one(h, FAN_OPEN, "f"));
}
