// Cases of files, terminals, timers, signals and processes.
#include "survive.h"

#include <dirent.h>
#include <pty.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/user.h>
#include <termios.h>

static char text[512];

CASE(files) {
    CHECK(mkdir("/tmp/dir", 0700) == 0 && chdir("/tmp/dir") == 0);
    int a = open("a", O_RDWR | O_CREAT, 0640), gone = open("gone", O_RDWR | O_CREAT | O_APPEND, 0600);
    CHECK(a >= 0 && gone >= 0 && write(a, "0123456789", 10) == 10 && lseek(a, 3, SEEK_SET) == 3);
    CHECK(write(gone, "unlinked", 8) == 8 && unlink("gone") == 0 && symlink("a", "l") == 0);
    int up = open("/etc/passwd", O_RDWR | O_APPEND), ro = open("/etc/group", O_RDONLY);
    CHECK(up >= 0 && write(up, "new:x:5:5::/:\n", 14) == 14 && read(ro, text, 2) == 2);
    int d = dup(a), go[2];
    CHECK(pipe(go) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        char c;
        CHECK(read(go[0], &c, 1) == 1);
        CHECK(read(a, text, 2) == 2 && !memcmp(text, "78", 2));
        _exit(0);
    }
    DIR *list = opendir("/");
    CHECK(list && readdir(list) && readdir(list));
    ready();
    CHECK(read(a, text, 2) == 2 && !memcmp(text, "34", 2) && read(d, text, 2) == 2 && !memcmp(text, "56", 2));
    // The offset is shared with the child too.
    CHECK(write(go[1], "x", 1) == 1);
    struct stat st;
    CHECK(fstat(a, &st) == 0 && st.st_size == 10 && (st.st_mode & 07777) == 0640 && stat("l", &st) == 0);
    CHECK(fstat(gone, &st) == 0 && st.st_nlink == 0 && pread(gone, text, 20, 0) == 8 && !memcmp(text, "unlinked", 8));
    CHECK(stat("gone", &st) == -1 && errno == ENOENT);
    int again = open("/etc/passwd", O_RDONLY);
    ssize_t n = read(again, text, sizeof text - 1);
    text[n < 0 ? 0 : n] = 0;
    CHECK(strstr(text, "root:x") && strstr(text, "new:x:5"));
    CHECK(getcwd(text, sizeof text) && !strcmp(text, "/tmp/dir"));
    CHECK(read(ro, text, 1) == 1 && readdir(list));
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

static int count_events(int fd, int ms) {
    struct pollfd p = {fd, POLLIN, 0};
    uint64_t n = 0;
    if (poll(&p, 1, ms) != 1) return 0;
    CHECK(read(fd, &n, 8) == 8);
    return n;
}

CASE(timer_descriptors) {
    int once = timerfd_create(CLOCK_MONOTONIC, 0), often = timerfd_create(CLOCK_REALTIME, 0);
    int late = timerfd_create(CLOCK_BOOTTIME, 0), e = eventfd(3, EFD_SEMAPHORE);
    struct itimerspec half = {{0, 0}, {0, 400000000}}, tick = {{0, 20000000}, {0, 20000000}}, hour = {{0, 0}, {3600, 0}};
    CHECK(timerfd_settime(once, 0, &half, NULL) == 0 && timerfd_settime(often, 0, &tick, NULL) == 0);
    CHECK(timerfd_settime(late, 0, &hour, NULL) == 0);
    ready();
    CHECK(count_events(once, 5000) == 1 && count_events(once, 50) == 0);
    CHECK(count_events(often, 1000) >= 1 && count_events(often, 1000) >= 1);
    CHECK(timerfd_gettime(late, &hour) == 0 && hour.it_value.tv_sec > 3000 && count_events(late, 0) == 0);
    CHECK(count_events(e, 0) == 1 && count_events(e, 0) == 1 && count_events(e, 0) == 1 && count_events(e, 0) == 0);
}

static volatile sig_atomic_t alarms, ticks, posix;
static void on_alarm(int s) {
    if (s == SIGALRM) alarms++;
    else if (s == SIGVTALRM) ticks++;
    else posix++;
}

CASE(itimers_and_posix_timers) {
    struct sigaction a = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGALRM, &a, NULL) == 0 && sigaction(SIGVTALRM, &a, NULL) == 0 && sigaction(SIGUSR2, &a, NULL) == 0);
    struct itimerval once = {{0, 0}, {0, 400000}}, often = {{0, 10000}, {0, 10000}};
    CHECK(setitimer(ITIMER_REAL, &once, NULL) == 0 && setitimer(ITIMER_VIRTUAL, &often, NULL) == 0);
    timer_t t;
    struct sigevent ev = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR2};
    struct itimerspec soon = {{0, 0}, {0, 450000000}};
    CHECK(timer_create(CLOCK_MONOTONIC, &ev, &t) == 0 && timer_settime(t, 0, &soon, NULL) == 0);
    ready();
    for (int i = 0; i < 400 && (!alarms || !posix); i++) usleep(10000);
    usleep(50000);
    CHECK(alarms == 1 && posix == 1);
    int then = ticks;
    for (volatile long i = 0; i < 3000000000L && ticks == then; i++) {}
    CHECK(ticks > then);
}

CASE(pending_signals_and_signalfd) {
    sigset_t m;
    sigemptyset(&m);
    sigaddset(&m, SIGUSR1);
    sigaddset(&m, SIGUSR2);
    CHECK(sigprocmask(SIG_BLOCK, &m, NULL) == 0);
    int fd = signalfd(-1, &m, 0);
    struct sigaction a = {.sa_handler = on_alarm};
    CHECK(fd >= 0 && sigaction(SIGUSR2, &a, NULL) == 0 && kill(getpid(), SIGUSR1) == 0 && kill(getpid(), SIGUSR2) == 0);
    ready();
    CHECK(sigpending(&m) == 0 && sigismember(&m, SIGUSR1) && sigismember(&m, SIGUSR2) && posix == 0);
    struct signalfd_siginfo i;
    CHECK(read(fd, &i, sizeof i) == sizeof i && i.ssi_signo == SIGUSR1 && i.ssi_pid == (uint32_t)getpid());
    CHECK(sigprocmask(SIG_UNBLOCK, &m, NULL) == 0 && posix == 1);
}

static char alternate[65536];
static volatile int on_alternate;
static void note_stack(int s) {
    (void)s;
    char here;
    on_alternate = &here > alternate && &here < alternate + sizeof alternate;
}

static int inside[2];
static void wait_inside(int s) {
    char c;
    note_stack(s);
    CHECK(read(inside[0], &c, 1) == 1 && c == 'k');
}

static long in_a_handler(long unused) {
    (void)unused;
    stack_t st = {alternate, 0, sizeof alternate};
    struct sigaction a = {.sa_handler = wait_inside, .sa_flags = SA_ONSTACK};
    CHECK(sigaltstack(&st, NULL) == 0 && sigaction(SIGUSR1, &a, NULL) == 0 && raise(SIGUSR1) == 0);
    // The handler has returned; the stack is free for the next one.
    int was = on_alternate;
    a.sa_handler = note_stack;
    on_alternate = 0;
    CHECK(sigaction(SIGUSR1, &a, NULL) == 0 && raise(SIGUSR1) == 0);
    return was == 1 && on_alternate == 1;
}

CASE(signal_handlers_on_alternate_stacks) {
    CHECK(pipe(inside) == 0);
    struct blocked b;
    begin(&b, in_a_handler, 0);
    ready();
    STILL_BLOCKED(b);
    CHECK(write(inside[1], "k", 1) == 1 && wait_for(&b) == 1);
}

static long read_line(long fd) {
    return read(fd, text, sizeof text);
}

CASE(terminals) {
    int m, s;
    struct winsize w = {30, 90, 0, 0};
    CHECK(openpty(&m, &s, NULL, NULL, &w) == 0 && write(m, "par", 3) == 3);
    struct blocked r;
    begin(&r, read_line, s);
    ready();
    STILL_BLOCKED(r);
    CHECK(write(m, "tial\n", 5) == 5 && wait_for(&r) == 8 && !memcmp(text, "partial\n", 8));
    struct winsize now;
    CHECK(ioctl(s, TIOCGWINSZ, &now) == 0 && now.ws_row == 30 && now.ws_col == 90);
    CHECK(write(s, "out", 3) == 3 && read(m, text, sizeof text) > 0);
}

CASE(zombies_and_stopped_processes) {
    pid_t dead = fork();
    if (dead == 0) _exit(5);
    pid_t stopped = fork();
    if (stopped == 0) {
        raise(SIGSTOP);
        _exit(6);
    }
    int status;
    siginfo_t i;
    CHECK(waitid(P_PID, dead, &i, WEXITED | WNOWAIT) == 0);
    CHECK(waitpid(stopped, &status, WUNTRACED) == stopped && WIFSTOPPED(status));
    ready();
    CHECK(waitpid(dead, &status, 0) == dead && WEXITSTATUS(status) == 5);
    CHECK(waitpid(stopped, &status, WNOHANG) == 0);
    CHECK(kill(stopped, SIGCONT) == 0 && waitpid(stopped, &status, 0) == stopped && WEXITSTATUS(status) == 6);
}

CASE(vfork_in_progress) {
    int p[2];
    CHECK(pipe(p) == 0);
    static int pipe_end;
    pipe_end = p[0];
    pid_t helper = fork();
    if (helper == 0) {
        volatile int mine = 1;
        pid_t pid = vfork();
        if (pid == 0) {
            char c;
            // On its parent's memory, across the freeze.
            mine = read(pipe_end, &c, 1) == 1 ? 2 : 3;
            execl("/proc/self/exe", "survive", "child", NULL);
            _exit(9);
        }
        int status;
        _exit(mine == 2 && waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 42 ? 0 : 1);
    }
    ready();
    int status;
    CHECK(waitpid(helper, &status, WNOHANG) == 0);
    CHECK(write(p[1], "x", 1) == 1 && waitpid(helper, &status, 0) == helper && status == 0);
}

CASE(exec_and_threads_later) {
    ready();
    pid_t pid = fork();
    if (pid == 0) {
        execl("/proc/self/exe", "survive", "child", NULL);
        _exit(9);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 42);
    struct blocked b[16];
    int e = eventfd(0, EFD_SEMAPHORE);
    for (int i = 0; i < 16; i++) begin(&b[i], read_line, e);
    uint64_t n = 16;
    CHECK(write(e, &n, 8) == 8);
    for (int i = 0; i < 16; i++) CHECK(wait_for(&b[i]) == 8);
}

CASE(traced_child) {
    pid_t pid = fork();
    static volatile long secret = 1234;
    if (pid == 0) {
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        raise(SIGSTOP);
        _exit(secret == 4321 ? 8 : 9);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && WIFSTOPPED(status));
    ready();
    struct user_regs_struct r;
    CHECK(ptrace(PTRACE_GETREGS, pid, 0, &r) == 0 && r.rip != 0);
    errno = 0;
    CHECK(ptrace(PTRACE_PEEKDATA, pid, &secret, 0) == 1234 && errno == 0);
    CHECK(ptrace(PTRACE_POKEDATA, pid, &secret, 4321L) == 0);
    // Step by step, then to the end.
    for (int i = 0; i < 5; i++) {
        CHECK(ptrace(PTRACE_SINGLESTEP, pid, 0, 0) == 0 && waitpid(pid, &status, 0) == pid);
        CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP);
    }
    CHECK(ptrace(PTRACE_CONT, pid, 0, 0) == 0 && waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 8);
}

CASE(pipelines_in_motion) {
    // Data flows through three processes before, during and after the freeze; every byte arrives once.
    int p[2], q[2];
    CHECK(pipe(p) == 0 && pipe(q) == 0);
    pid_t a = fork();
    if (a == 0) {
        close(p[0]);
        for (uint32_t i = 0; i < 3000000; i++) {
            static uint32_t block[512];
            block[i % 512] = i;
            if (i % 512 == 511 && write(p[1], block, sizeof block) != sizeof block) _exit(1);
        }
        _exit(0);
    }
    pid_t b = fork();
    if (b == 0) {
        close(p[1]);
        char buf[3000];
        ssize_t n;
        while ((n = read(p[0], buf, sizeof buf)) > 0) {
            if (write(q[1], buf, n) != n) _exit(1);
        }
        _exit(n != 0);
    }
    close(p[0]);
    close(p[1]);
    close(q[1]);
    uint32_t next = 0, block[512];
    while (next < 500000) {
        for (size_t got = 0; got < sizeof block;) {
            ssize_t n = read(q[0], (char *)block + got, sizeof block - got);
            CHECK(n > 0);
            got += n;
        }
        for (int i = 0; i < 512; i++) CHECK(block[i] == next++);
    }
    ready();
    for (;;) {
        size_t got = 0;
        while (got < sizeof block) {
            ssize_t n = read(q[0], (char *)block + got, sizeof block - got);
            CHECK(n >= 0);
            if (n == 0) break;
            got += n;
        }
        if (got == 0) break;
        for (size_t i = 0; i < got / 4; i++) CHECK(block[i] == next++);
    }
    CHECK(next == 3000000 / 512 * 512);
    int status;
    CHECK(waitpid(a, &status, 0) == a && status == 0 && waitpid(b, &status, 0) == b && status == 0);
}

static void map(const char *what, pid_t p, const char *line) {
    snprintf(text, sizeof text, "/proc/%d/%s", p, what);
    int fd = open(text, O_WRONLY);
    CHECK(fd >= 0 && write(fd, line, strlen(line)) == (ssize_t)strlen(line) && close(fd) == 0);
}

CASE(namespaces) {
    int go[2], set[2];
    char c;
    CHECK(pipe(go) == 0 && pipe(set) == 0);
    pid_t pid = syscall(SYS_clone, CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWUTS | CLONE_NEWIPC | SIGCHLD, 0, 0, 0, 0);
    CHECK(pid >= 0);
    if (pid == 0) {
        CHECK(sethostname("frozen", 6) == 0 && write(set[1], "x", 1) == 1);
        pid_t inner = fork();
        if (inner == 0) {
            CHECK(read(go[0], &c, 1) == 1);
            CHECK(getpid() == 2 && getppid() == 1 && getuid() == 7);
            _exit(0);
        }
        int status;
        CHECK(inner == 2 && waitpid(2, &status, 0) == 2 && status == 0);
        CHECK(gethostname(text, sizeof text) == 0 && !strcmp(text, "frozen"));
        CHECK(getpid() == 1 && getuid() == 7 && fork() >= 0);
        _exit(0);
    }
    CHECK(read(set[0], &c, 1) == 1);
    map("uid_map", pid, "7 0 1\n");
    char before[64], after[64];
    snprintf(text, sizeof text, "/proc/%d/ns/uts", pid);
    char *link = strdup(text);
    ssize_t n = readlink(link, before, sizeof before);
    CHECK(n > 0);
    ready();
    CHECK(readlink(link, after, sizeof after) == n && !memcmp(before, after, n));
    int status;
    CHECK(write(go[1], "x", 1) == 1 && waitpid(pid, &status, 0) == pid && status == 0);
}

// In a mount namespace of its own: a bind, a peer, a slave, a tree that hangs nowhere and a file system in the making.
static int is_tmpfs(const char *path) {
    struct statfs s;
    return statfs(path, &s) == 0 && s.f_type == 0x01021994;
}
CASE(mounts) {
    CHECK(unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    CHECK(mkdir("/tmp/mounts", 0700) == 0 && mount("m", "/tmp/mounts", "tmpfs", 0, "size=1m") == 0);
    CHECK(chdir("/tmp/mounts") == 0 && mkdir("a", 0700) == 0 && mkdir("b", 0700) == 0 && mkdir("c", 0700) == 0);
    CHECK(mount("m", "a", "tmpfs", 0, NULL) == 0 && mount(NULL, "a", NULL, MS_SHARED, NULL) == 0);
    CHECK(mount("a", "b", NULL, MS_BIND, NULL) == 0 && mount("a", "c", NULL, MS_BIND, NULL) == 0);
    CHECK(mount(NULL, "c", NULL, MS_SLAVE, NULL) == 0 && mkdir("a/x", 0700) == 0 && mkdir("d", 0700) == 0);
    int tree = syscall(428, AT_FDCWD, "a", 1), context = syscall(430, "tmpfs", 0);
    CHECK(tree >= 0 && context >= 0 && syscall(431, context, 1, "size", "64k", 0) == 0);
    struct pollfd table = {open("/proc/self/mounts", O_RDONLY), POLLPRI, 0};
    ready();
    CHECK(poll(&table, 1, 0) == 0 && mount("m", "a/x", "tmpfs", 0, NULL) == 0);
    CHECK(is_tmpfs("b/x") && is_tmpfs("c/x") && poll(&table, 1, 0) == 1);
    CHECK(umount("c/x") == 0 && umount("b/x") == 0 && mkdir("a/x/y", 0700) == 0 && mkdir("b/z", 0700) == 0);
    CHECK(syscall(429, tree, "", AT_FDCWD, "d", 4) == 0 && mkdir("d/w", 0700) == 0 && access("a/w", F_OK) == 0);
    CHECK(syscall(431, context, 6, NULL, NULL, 0) == 0 && syscall(432, context, 0, 0) >= 0);
    CHECK(umount("b") == 0 && umount2("/tmp/mounts", MNT_DETACH) == 0 && access("a", F_OK) == 0);
}
