// Tiny test harness of the Linux conformance suites: one program per system call family.
//
// CASE(name) { ... } defines a case. Each case runs in its own forked process, in a process group of
// its own, with a time limit, so a crash or a hang costs that case only. CHECK(cond) ends the case
// when the condition is false; SKIP(reason) ends it as skipped. Output, one line a case:
//     ok NAME | not ok NAME: file:line expr | skip NAME: reason
// and a last line "total: N ok, N failed, N skipped". A failing helper process of a case prints its
// own line first; readers keep the first line of each name. Where a case gives others time to get to where
// they block, `msleep` also waits until they do, so that a busy machine changes nothing.
//
// Usage: SUITE [-l] [-a NAME] [NAME...]   (-l lists, -a starts after NAME)
#pragma once
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct t_case {
    const char *name;
    void (*fn)(void);
    struct t_case *next;
};
static struct t_case *t_first, *t_last;
static const char *t_name = "?";
static char t_self[PATH_MAX];
// Seconds after which a case is taken to hang. The machine may be busy.
enum { T_LIMIT = 60 };

static void t_add(struct t_case *c) {
    if (t_last) t_last->next = c;
    else t_first = c;
    t_last = c;
}

#define CASE(id)                                                             \
    static void t_fn_##id(void);                                             \
    static struct t_case t_case_##id = {#id, t_fn_##id, NULL};               \
    __attribute__((constructor)) static void t_reg_##id(void) { t_add(&t_case_##id); } \
    static void t_fn_##id(void)

// Prints one result line with a single write and ends the process.
__attribute__((noreturn, format(printf, 2, 3))) static void t_end(int code, const char *fmt, ...) {
    char line[600];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(line, sizeof line - 1, fmt, ap);
    va_end(ap);
    if (n > (int)sizeof line - 2) n = sizeof line - 2;
    line[n++] = '\n';
    if (write(1, line, n) != n) code = 99;
    _exit(code);
}

#define FAIL(fmt, ...) t_end(1, "not ok %s: %s:%d " fmt, t_name, __FILE__, __LINE__, ##__VA_ARGS__)
#define SKIP(reason) t_end(77, "skip %s: %s", t_name, reason)
#define CHECK(cond)                                                          \
    do {                                                                     \
        if (!(cond)) { int e_ = errno; FAIL("%s (errno %d %s)", #cond, e_, strerror(e_)); } \
    } while (0)
#define CHECK_EQ(a, b)                                                       \
    do {                                                                     \
        long long a_ = (long long)(a); int e_ = errno; long long b_ = (long long)(b); \
        if (a_ != b_) FAIL("%s == %s: got %lld, want %lld (errno %d)", #a, #b, a_, b_, e_); \
    } while (0)
// The call must return -1 and set the given errno.
#define CHECK_ERR(call, err)                                                 \
    do {                                                                     \
        errno = 0; long r_ = (long)(call); int e_ = errno;                   \
        if (r_ != -1 || e_ != (err))                                         \
            FAIL("%s: got %ld errno %d (%s), want %s", #call, r_, e_, strerror(e_), #err); \
    } while (0)
#define CHECK_OK(call)                                                       \
    ({ errno = 0; long r_ = (long)(call); int e_ = errno;                    \
       if (r_ == -1) { FAIL("%s: errno %d (%s)", #call, e_, strerror(e_)); } \
       r_; })

// Runs the statements in a forked child, which then exits 0. Value: the child's pid.
#define SPAWN(...)                                                           \
    ({ pid_t p_ = fork(); CHECK(p_ >= 0); if (p_ == 0) { __VA_ARGS__; _exit(0); } p_; })

// Waits for a child. Value: its exit code, or 128 + signal.
static inline int join(pid_t p) {
    int st;
    pid_t r;
    do r = waitpid(p, &st, 0);
    while (r < 0 && errno == EINTR);
    CHECK(r == p);
    return WIFEXITED(st) ? WEXITSTATUS(st) : WIFSIGNALED(st) ? 128 + WTERMSIG(st) : -1;
}

static inline int64_t now_us(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * 1000000LL + ts.tv_nsec / 1000;
}

// The first process of the case; none in a helper program, whose group tells.
static pid_t t_root;

// Parent and state of a process or thread, from its `stat`; false if it is gone.
static inline bool t_stat(const char *path, pid_t *parent, char *state) {
    char text[512];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0) return false;
    text[n] = 0;
    char *end = strrchr(text, ')');
    return end && sscanf(end + 1, " %c %d", state, parent) == 2;
}

// Whether a process is the case's first or descends from it.
static inline bool t_is_of_case(pid_t p, pid_t root) {
    char path[64], state;
    for (int depth = 0; p > 1 && depth < 16; depth++) {
        if (p == root) return true;
        snprintf(path, sizeof path, "/proc/%d/stat", p);
        if (!t_stat(path, &p, &state)) return false;
    }
    return false;
}

// Whether all threads of a process but the caller are blocked, stopped or dead.
static inline bool t_is_blocked(pid_t p) {
    char path[80], state;
    pid_t parent;
    snprintf(path, sizeof path, "/proc/%d/task", p);
    DIR *tasks = opendir(path);
    if (!tasks) return true;
    bool blocked = true;
    for (struct dirent *e; blocked && (e = readdir(tasks));) {
        pid_t t = atoi(e->d_name);
        if (t == 0 || t == (pid_t)syscall(SYS_gettid)) continue;
        snprintf(path, sizeof path, "/proc/%d/task/%d/stat", p, t);
        if (t_stat(path, &parent, &state)) blocked = state != 'R';
    }
    closedir(tasks);
    return blocked;
}

// Whether all others of the case are. Processes of a case are younger than its first one.
static inline bool t_all_blocked(void) {
    pid_t root = t_root ? t_root : getpgrp();
    DIR *all = opendir("/proc");
    if (!all) return true;
    bool blocked = true;
    for (struct dirent *e; blocked && (e = readdir(all));) {
        pid_t p = atoi(e->d_name);
        if (p >= root && t_is_of_case(p, root)) blocked = t_is_blocked(p);
    }
    closedir(all);
    return blocked;
}

// Lets time pass.
static inline void pause_ms(long ms) {
    struct timespec ts = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&ts, &ts) < 0 && errno == EINTR) {}
}

// Waits until a process' first thread is blocked, whatever its others do.
static inline void until_blocked(pid_t p) {
    char path[64], state = 'R';
    pid_t parent;
    snprintf(path, sizeof path, "/proc/%d/task/%d/stat", p, p);
    for (int still = 0; still < 3 && t_stat(path, &parent, &state); pause_ms(1)) still = state == 'R' ? 0 : still + 1;
}

// Lets time pass, and then waits, for two seconds at most, until all other threads and processes of the case are blocked.
static inline void msleep(long ms) {
    pause_ms(ms);
    int kept = errno;
    // In a row, since a thread may just be on its way from one wait to the next.
    for (int still = 0, n = 0; still < 2 && n < 400; n++) {
        still = t_all_blocked() ? still + 1 : 0;
        if (still < 2) pause_ms(n < 4 ? 1 : 5);
    }
    errno = kept;
}

// Polls the condition for up to half a minute.
#define EVENTUALLY(cond)                                                     \
    do {                                                                     \
        int n_ = 0;                                                          \
        while (!(cond)) { if (++n_ > 15000) FAIL("never: %s", #cond); pause_ms(2); } \
    } while (0)

// Makes a fresh directory for the case and moves into it.
static inline void scratch(void) {
    const char *base = getenv("TMPDIR");
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/t.%s.XXXXXX", base ? base : "/tmp", t_name);
    CHECK(mkdtemp(path) != NULL);
    CHECK(chmod(path, 0777) == 0);
    CHECK(chdir(path) == 0);
}

static inline int mkfile(const char *path, const char *text) {
    int fd = open(path, O_CREAT | O_RDWR | O_TRUNC, 0644);
    CHECK(fd >= 0);
    CHECK_EQ(write(fd, text, strlen(text)), strlen(text));
    CHECK(lseek(fd, 0, SEEK_SET) == 0);
    return fd;
}

// Reads a whole (small) file as a string.
static inline char *slurp(const char *path) {
    static char buf[4 << 20];  // a busy host has long tables of sockets
    int fd = open(path, O_RDONLY);
    if (fd < 0) FAIL("open %s: errno %d", path, errno);
    size_t n = 0;
    ssize_t r;
    while (n < sizeof buf - 1 && (r = read(fd, buf + n, sizeof buf - 1 - n)) > 0) n += r;
    close(fd);
    buf[n] = 0;
    return buf;
}

static inline void on_signal(int sig, void (*fn)(int, siginfo_t *, void *), int flags) {
    struct sigaction sa = {0};
    sa.sa_sigaction = fn;
    sa.sa_flags = SA_SIGINFO | flags;
    sigemptyset(&sa.sa_mask);
    CHECK(sigaction(sig, &sa, NULL) == 0);
}

// An address that is certainly not mapped, and one that is mapped but not accessible.
#define BAD ((void *)0x10)
static inline void *noaccess(void) {
    void *p = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    return p;
}

static void t_drop_root(void) __attribute__((unused));
static void t_drop_root(void) {
    CHECK(syscall(SYS_setgroups, 0, NULL) == 0 || errno == EPERM);
    CHECK(setresgid(1000, 1000, 1000) == 0);
    CHECK(setresuid(1000, 1000, 1000) == 0);
}

static int t_run(struct t_case *c) {
    t_name = c->name;
    pid_t p = fork();
    if (p < 0) {
        printf("not ok %s: fork: errno %d\n", c->name, errno);
        return 1;
    }
    if (p == 0) {
        setpgid(0, 0);
        t_root = getpid();
        c->fn();
        t_end(0, "ok %s", c->name);
    }
    int st = 0;
    long waited = 0, step = 200;
    while (waitpid(p, &st, WNOHANG) == 0) {
        if (waited > T_LIMIT * 1000000L) {
            kill(-p, SIGKILL);
            kill(p, SIGKILL);
            waitpid(p, &st, 0);
            printf("not ok %s: timeout after %d s\n", c->name, T_LIMIT);
            return 1;
        }
        struct timespec ts = {0, step * 1000};
        nanosleep(&ts, NULL);
        waited += step;
        if (step < 20000) step *= 2;
    }
    kill(-p, SIGKILL);  // leftovers of the case
    if (WIFSIGNALED(st)) printf("not ok %s: killed by signal %d\n", c->name, WTERMSIG(st));
    else if (WEXITSTATUS(st) == 77) return 77;
    else if (WEXITSTATUS(st) > 1) printf("not ok %s: exit code %d\n", c->name, WEXITSTATUS(st));
    else return WEXITSTATUS(st);
    return 1;
}

int t_helper(int argc, char **argv);  // what the program does when started as "SUITE @..." (exec tests)

int main(int argc, char **argv) {
    if (argc > 1 && argv[1][0] == '@') return t_helper(argc, argv);
    setvbuf(stdout, NULL, _IONBF, 0);
    // Whoever started this in the background may have had them ignored.
    signal(SIGINT, SIG_DFL);
    signal(SIGQUIT, SIG_DFL);
    if (!realpath("/proc/self/exe", t_self)) snprintf(t_self, sizeof t_self, "%s", argv[0]);
    bool list = false;
    const char *after = NULL;
    int i = 1, ok = 0, bad = 0, skipped = 0;
    for (; i < argc && argv[i][0] == '-'; i++) {
        if (argv[i][1] == 'l') list = true;
        else if (argv[i][1] == 'a' && i + 1 < argc) after = argv[++i];
    }
    for (struct t_case *c = t_first; c; c = c->next) {
        if (after) {
            if (!strcmp(after, c->name)) after = NULL;
            continue;
        }
        if (i < argc) {
            int k = i;
            while (k < argc && strcmp(argv[k], c->name)) k++;
            if (k == argc) continue;
        }
        if (list) {
            puts(c->name);
            continue;
        }
        int r = t_run(c);
        if (r == 0) ok++;
        else if (r == 77) skipped++;
        else bad++;
    }
    if (!list) printf("total: %d ok, %d failed, %d skipped\n", ok, bad, skipped);
    return bad != 0;
}

#ifndef T_HELPER
int t_helper(int argc, char **argv) {
    (void)argc, (void)argv;
    return 2;
}
#endif
