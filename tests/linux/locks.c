// File locks (flock, POSIX, OFD) and inotify.
#define T_HELPER
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

// Less usual: upgrades, edges of ranges, deadlocks, threads, closing, signals.
static void nop(int s, siginfo_t *si, void *u) { (void)s, (void)si, (void)u; }
// What another process sees: the type that hinders a write lock, and its place.
static struct flock seen;
static struct flock *probe(int fd, off_t start, off_t len) {
    struct flock *s = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    join(SPAWN(s->l_type = F_WRLCK; s->l_whence = SEEK_SET; s->l_start = start; s->l_len = len; fcntl(fd, F_GETLK, s)));
    seen = *s;
    return &seen;
}
static int held(int fd) {  // by another process
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    CHECK(fcntl(fd, F_GETLK, &l) == 0);
    return l.l_type != F_UNLCK;
}
static int open_f(void) {
    scratch();
    return mkfile("f", "0123456789");
}

CASE(read_locks_are_shared_write_excluded) {
    int fd = open_f();
    CHECK(lk(fd, F_SETLK, F_RDLCK, 0, 5) == 0);
    CHECK_EQ(join(SPAWN(_exit(lk(fd, F_SETLK, F_RDLCK, 0, 5) == 0 && lk(fd, F_SETLK, F_WRLCK, 0, 1) == -1 && (errno == EAGAIN || errno == EACCES) ? 3 : 4))), 3);
}
CASE(getlk_reports_first_conflict) {
    int fd = open_f();
    CHECK(lk(fd, F_SETLK, F_RDLCK, 2, 2) == 0 && lk(fd, F_SETLK, F_WRLCK, 6, 2) == 0);
    struct flock *l = probe(fd, 0, 0);
    CHECK(l->l_type == F_RDLCK && l->l_start == 2 && l->l_len == 2 && l->l_pid == getpid() && l->l_whence == SEEK_SET);
    l = probe(fd, 4, 0);
    CHECK(l->l_type == F_WRLCK && l->l_start == 6);
    CHECK_EQ(probe(fd, 8, 0)->l_type, F_UNLCK);
}
CASE(getlk_leaves_the_rest_when_free) {
    int fd = open_f();
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 3, .l_len = 4, .l_pid = 77};
    CHECK(fcntl(fd, F_GETLK, &l) == 0);
    CHECK(l.l_type == F_UNLCK && l.l_start == 3 && l.l_len == 4 && l.l_pid == 77);
}
CASE(own_locks_never_conflict_and_are_replaced) {
    int fd = open_f();
    CHECK(lk(fd, F_SETLK, F_WRLCK, 0, 10) == 0 && lk(fd, F_SETLK, F_RDLCK, 3, 4) == 0);
    CHECK_EQ(probe(fd, 0, 3)->l_type, F_WRLCK);
    CHECK_EQ(probe(fd, 3, 4)->l_type, F_RDLCK);
    CHECK_EQ(probe(fd, 7, 3)->l_type, F_WRLCK);
}
CASE(neighbours_of_one_type_merge) {
    int fd = open_f();
    CHECK(lk(fd, F_SETLK, F_WRLCK, 0, 3) == 0 && lk(fd, F_SETLK, F_WRLCK, 3, 3) == 0);
    struct flock *l = probe(fd, 0, 0);
    CHECK(l->l_start == 0 && l->l_len == 6);
}
CASE(length_forms) {
    int fd = open_f();
    CHECK(lk(fd, F_SETLK, F_WRLCK, 8, -3) == 0);  // 5 to 7
    struct flock *l = probe(fd, 0, 0);
    CHECK(l->l_start == 5 && l->l_len == 3);
    CHECK(lk(fd, F_SETLK, F_UNLCK, 0, 0) == 0 && lk(fd, F_SETLK, F_WRLCK, 4, 0) == 0);
    l = probe(fd, 0, 0);
    CHECK(l->l_start == 4 && l->l_len == 0);
    CHECK_EQ(probe(fd, 1l << 40, 1)->l_type, F_WRLCK);
    CHECK_ERR(lk(fd, F_SETLK, F_WRLCK, 2, -3), EINVAL);
    CHECK_ERR(lk(fd, F_SETLK, F_WRLCK, -1, 1), EINVAL);
    CHECK_ERR(lk(fd, F_SETLK, F_WRLCK, LONG_MAX, 2), EOVERFLOW);
    CHECK(lk(fd, F_SETLK, F_WRLCK, LONG_MAX, 1) == 0);
}
CASE(relative_to_position_and_end) {
    int fd = open_f();
    lseek(fd, 4, SEEK_SET);
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_CUR, .l_start = -1, .l_len = 2};
    CHECK(fcntl(fd, F_SETLK, &l) == 0);
    struct flock *s = probe(fd, 0, 0);
    CHECK(s->l_start == 3 && s->l_len == 2);
    l = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_END, .l_start = -2, .l_len = 0};
    CHECK(fcntl(fd, F_SETLK, &l) == 0);
    s = probe(fd, 6, 0);
    CHECK(s->l_start == 8 && s->l_len == 0);
    l.l_whence = 9;
    CHECK_ERR(fcntl(fd, F_SETLK, &l), EINVAL);
    l.l_whence = 0, l.l_type = 9;
    CHECK_ERR(fcntl(fd, F_SETLK, &l), EINVAL);
}
CASE(upgrade_waits_for_other_readers) {
    int fd = open_f(), p[2];
    CHECK(pipe(p) == 0 && lk(fd, F_SETLK, F_RDLCK, 0, 1) == 0);
    pid_t c = SPAWN(lk(fd, F_SETLK, F_RDLCK, 0, 1); write(p[1], "x", 1); msleep(80));
    char x;
    CHECK(read(p[0], &x, 1) == 1);
    CHECK_ERR(lk(fd, F_SETLK, F_WRLCK, 0, 1), EAGAIN);
    int64_t t = now_us();
    CHECK(lk(fd, F_SETLKW, F_WRLCK, 0, 1) == 0);
    CHECK(now_us() - t > 20000);
    join(c);
}
CASE(downgrade_lets_readers_in) {
    int fd = open_f(), p[2];
    CHECK(pipe(p) == 0 && lk(fd, F_SETLK, F_WRLCK, 0, 1) == 0);
    pid_t c = SPAWN(write(p[1], "x", 1); _exit(lk(fd, F_SETLKW, F_RDLCK, 0, 1) ? 1 : 3));
    char x;
    CHECK(read(p[0], &x, 1) == 1);
    msleep(30);
    CHECK(lk(fd, F_SETLK, F_RDLCK, 0, 1) == 0);
    CHECK_EQ(join(c), 3);
}
CASE(deadlock_of_three) {
    int fd = open_f(), p[2];
    CHECK(pipe(p) == 0);
    char x;
    pid_t a = SPAWN(lk(fd, F_SETLK, F_WRLCK, 1, 1); write(p[1], "x", 1); msleep(60); int r = lk(fd, F_SETLKW, F_WRLCK, 2, 1); _exit(r ? 9 : 3));
    pid_t b = SPAWN(lk(fd, F_SETLK, F_WRLCK, 2, 1); write(p[1], "x", 1); msleep(60); int r = lk(fd, F_SETLKW, F_WRLCK, 3, 1); _exit(r ? 9 : 3));
    CHECK(lk(fd, F_SETLK, F_WRLCK, 3, 1) == 0);
    CHECK(read(p[0], &x, 1) == 1 && read(p[0], &x, 1) == 1);
    msleep(150);
    CHECK_ERR(lk(fd, F_SETLKW, F_WRLCK, 1, 1), EDEADLK);
    CHECK(lk(fd, F_SETLK, F_UNLCK, 0, 0) == 0);
    CHECK_EQ(join(b), 3);
    CHECK_EQ(join(a), 3);
}
CASE(wait_ends_by_signal_without_lock) {
    int fd = open_f();
    pid_t c = SPAWN(lk(fd, F_SETLK, F_WRLCK, 0, 1); pause());
    EVENTUALLY(held(fd));
    on_signal(SIGALRM, nop, 0);
    ualarm(50000, 50000);
    CHECK_ERR(lk(fd, F_SETLKW, F_WRLCK, 0, 1), EINTR);
    kill(c, SIGKILL), join(c);
    CHECK(lk(fd, F_SETLK, F_WRLCK, 0, 1) == 0);
}
CASE(wait_is_restarted) {
    int fd = open_f(), p[2];
    CHECK(pipe(p) == 0);
    pid_t c = SPAWN(lk(fd, F_SETLK, F_WRLCK, 0, 1); write(p[1], "x", 1); msleep(150));
    char x;
    CHECK(read(p[0], &x, 1) == 1);
    on_signal(SIGALRM, nop, SA_RESTART);
    ualarm(40000, 40000);
    CHECK(lk(fd, F_SETLKW, F_WRLCK, 0, 1) == 0);
    join(c);
}
CASE(any_close_of_the_file_drops_all) {
    int fd = open_f();
    CHECK(lk(fd, F_SETLK, F_WRLCK, 0, 0) == 0);
    link("f", "g");
    int other = open("g", O_RDONLY);  // another name, another open file
    CHECK_EQ(probe(fd, 0, 0)->l_type, F_WRLCK);
    close(other);
    CHECK_EQ(probe(fd, 0, 0)->l_type, F_UNLCK);
}
CASE(close_in_child_keeps_the_parents) {
    int fd = open_f();
    CHECK(lk(fd, F_SETLK, F_WRLCK, 0, 0) == 0);
    join(SPAWN(close(fd)));
    CHECK_EQ(probe(fd, 0, 0)->l_type, F_WRLCK);
}
CASE(kept_over_exec) {
    int fd = open_f(), p[2];
    CHECK(pipe(p) == 0);
    pid_t c = SPAWN(lk(fd, F_SETLK, F_WRLCK, 0, 0); dup2(p[0], 0); execl(t_self, t_self, "@wait", NULL));
    EVENTUALLY(held(fd));
    msleep(50);
    CHECK_ERR(lk(fd, F_SETLK, F_RDLCK, 0, 1), EAGAIN);
    kill(c, SIGKILL), join(c);
    CHECK(lk(fd, F_SETLK, F_RDLCK, 0, 1) == 0);
}
static int shared_fd, thread_result;
static void *lock_from_thread(void *a) {
    thread_result = lk(shared_fd, F_SETLK, F_WRLCK, 0, 0);
    return a;
}
CASE(threads_of_a_process_share_ownership) {
    shared_fd = open_f();
    CHECK(lk(shared_fd, F_SETLK, F_WRLCK, 0, 0) == 0);
    pthread_t t;
    pthread_create(&t, NULL, lock_from_thread, NULL);
    pthread_join(t, NULL);
    CHECK_EQ(thread_result, 0);
}
CASE(ofd_conflicts_between_opens_of_one_process) {
    int a = open_f(), b = open("f", O_RDWR);
    CHECK(lk(a, F_OFD_SETLK, F_WRLCK, 0, 5) == 0);
    CHECK_ERR(lk(b, F_OFD_SETLK, F_RDLCK, 4, 1), EAGAIN);
    CHECK(lk(dup(a), F_OFD_SETLK, F_RDLCK, 0, 5) == 0);  // the same open file
    CHECK(lk(b, F_OFD_SETLK, F_RDLCK, 4, 1) == 0);
    CHECK_ERR(lk(b, F_SETLK, F_WRLCK, 0, 1), EAGAIN);  // the process' own kind conflicts as well
}
CASE(ofd_released_at_last_close) {
    int a = open_f(), b = open("f", O_RDWR), d = dup(a);
    CHECK(lk(a, F_OFD_SETLK, F_WRLCK, 0, 0) == 0);
    close(a);
    CHECK_ERR(lk(b, F_OFD_SETLK, F_WRLCK, 0, 0), EAGAIN);
    close(open("f", O_RDONLY));  // no matter
    CHECK_ERR(lk(b, F_OFD_SETLK, F_WRLCK, 0, 0), EAGAIN);
    close(d);
    CHECK(lk(b, F_OFD_SETLK, F_WRLCK, 0, 0) == 0);
}
CASE(ofd_getlk_has_no_pid) {
    int a = open_f(), b = open("f", O_RDWR);
    CHECK(lk(a, F_OFD_SETLK, F_WRLCK, 1, 2) == 0);
    struct flock l = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    CHECK(fcntl(b, F_OFD_GETLK, &l) == 0 && l.l_type == F_WRLCK && l.l_start == 1 && l.l_pid == -1);
    l.l_pid = 5;
    CHECK_ERR(fcntl(b, F_OFD_SETLK, &l), EINVAL);
}
CASE(ofd_shared_by_fork) {
    int a = open_f(), b = open("f", O_RDWR);
    CHECK(lk(a, F_OFD_SETLK, F_WRLCK, 0, 0) == 0);
    join(SPAWN(lk(a, F_OFD_SETLK, F_UNLCK, 0, 0)));  // the child may release it
    CHECK(lk(b, F_OFD_SETLK, F_WRLCK, 0, 0) == 0);
}
CASE(flock_conversion_and_errors) {
    int a = open_f(), b = open("f", O_RDONLY);
    CHECK(flock(a, LOCK_EX) == 0);
    CHECK_ERR(flock(b, LOCK_SH | LOCK_NB), EWOULDBLOCK);
    CHECK(flock(a, LOCK_SH) == 0 && flock(b, LOCK_SH | LOCK_NB) == 0);
    CHECK_ERR(flock(a, LOCK_EX | LOCK_NB), EWOULDBLOCK);
    CHECK(flock(b, LOCK_UN) == 0 && flock(a, LOCK_EX | LOCK_NB) == 0);
    CHECK_ERR(flock(a, 0), EINVAL);
    CHECK_ERR(flock(a, LOCK_SH | LOCK_EX), EINVAL);
    CHECK_ERR(flock(999, LOCK_SH), EBADF);
    CHECK_ERR(flock(open("f", O_PATH), LOCK_SH), EBADF);
    CHECK(flock(b, LOCK_UN) == 0);  // not held: no matter
}
CASE(flock_failed_conversion_may_lose_the_lock) {
    int a = open_f(), b = open("f", O_RDONLY), c = open("f", O_RDONLY);
    CHECK(flock(a, LOCK_SH) == 0 && flock(b, LOCK_SH) == 0);
    CHECK_ERR(flock(a, LOCK_EX | LOCK_NB), EWOULDBLOCK);
    CHECK(flock(b, LOCK_UN) == 0);
    int r = flock(c, LOCK_EX | LOCK_NB);  // flock(2): conversion is not atomic; the shared lock is gone
    CHECK_EQ(r, 0);
}
CASE(flock_wait_interrupted_and_on_directory) {
    scratch();
    int a = open(".", O_RDONLY), b = open(".", O_RDONLY);
    CHECK(flock(a, LOCK_EX) == 0);
    on_signal(SIGALRM, nop, 0);
    ualarm(40000, 40000);
    CHECK_ERR(flock(b, LOCK_EX), EINTR);
}
CASE(shown_in_proc_locks) {
    int fd = open_f();
    struct stat s;
    CHECK(lk(fd, F_SETLK, F_WRLCK, 2, 3) == 0 && fstat(fd, &s) == 0);
    char want[80];
    snprintf(want, sizeof want, ":%lu 2 4", s.st_ino);
    char *p = strstr(slurp("/proc/locks"), want);
    CHECK(p != NULL);
}
int t_helper(int argc, char **argv) {
    (void)argc, (void)argv;
    pause();
    return 0;
}

// Another process that holds record locks of `fd`: [300,310) read, [200,210) write, [100,110) read, [400,end) write.
static pid_t holder(int fd) {
    int p[2];
    char c;
    CHECK(pipe(p) == 0);
    pid_t child = SPAWN(
        static const struct { short type; off_t start, len; } held[] = {
            {F_RDLCK, 300, 10}, {F_WRLCK, 200, 10}, {F_RDLCK, 100, 10}, {F_WRLCK, 400, 0}};
        for (int i = 0; i < 4; i++) {
            struct flock l = {.l_type = held[i].type, .l_start = held[i].start, .l_len = held[i].len};
            CHECK(fcntl(fd, F_SETLK, &l) == 0);
        }
        CHECK(write(p[1], "x", 1) == 1);
        for (;;) pause());
    CHECK(read(p[0], &c, 1) == 1);
    return child;
}

CASE(getlk_tells_the_first_lock) {
    scratch();
    int fd = mkfile("f", "0123456789");
    pid_t p = holder(fd);
    static const struct { short type; off_t start, len; short got; off_t at, count; } asked[] = {
        {F_WRLCK, 0, 0, F_RDLCK, 100, 10},  {F_RDLCK, 0, 0, F_WRLCK, 200, 10}, {F_WRLCK, 205, 1, F_WRLCK, 200, 10},
        {F_WRLCK, 210, 0, F_RDLCK, 300, 10}, {F_RDLCK, 210, 0, F_WRLCK, 400, 0}, {F_WRLCK, 210, -5, F_WRLCK, 200, 10},
    };
    for (int i = 0; i < 6; i++) {
        struct flock l = {.l_type = asked[i].type, .l_start = asked[i].start, .l_len = asked[i].len};
        CHECK(fcntl(fd, F_GETLK, &l) == 0);
        CHECK_EQ(l.l_type, asked[i].got);
        CHECK_EQ(l.l_start, asked[i].at);
        CHECK_EQ(l.l_len, asked[i].count);
        CHECK_EQ(l.l_pid, p);
    }
    struct flock l = {.l_type = F_WRLCK, .l_start = 110, .l_len = 90};
    CHECK(fcntl(fd, F_GETLK, &l) == 0);
    CHECK_EQ(l.l_type, F_UNLCK);
    kill(p, SIGKILL);
    join(p);
}

CASE(ofd_getlk_wants_no_pid) {
    scratch();
    int fd = mkfile("f", "0123456789");
    struct flock l = {.l_type = F_WRLCK, .l_pid = 5};
    CHECK_ERR(fcntl(fd, F_OFD_GETLK, &l), EINVAL);
    CHECK_ERR(fcntl(fd, F_OFD_SETLK, &l), EINVAL);
    l.l_pid = 0;
    CHECK(fcntl(fd, F_OFD_GETLK, &l) == 0);
}

CASE(flock_takes_mandatory_requests_for_done) {
    scratch();
    int fd = mkfile("f", "0123456789");
    CHECK_EQ(flock(fd, 32 | 64), 0);
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
