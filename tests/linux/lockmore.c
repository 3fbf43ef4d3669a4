// Record locks, open-file locks and flock, less usual: upgrades, edges of ranges, deadlocks, threads, closing, signals.
#define T_HELPER
#include "t.h"
#include <sys/file.h>

static void nop(int s, siginfo_t *si, void *u) { (void)s, (void)si, (void)u; }
static int lk(int fd, int cmd, int type, off_t start, off_t len) {
    struct flock l = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = len};
    return fcntl(fd, cmd, &l);
}
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
