// A system call whose number is in a register, in code that no image has: behind [patched]
// Each case makes a copy of the same code, as which a call becomes a jump (rule c of docs/images.md) while programs stand
// in its middle, look at it, step through it, and change it. With `patched` the jump must be there.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define CHECK(x) ((x) ? (void)0 : (fprintf(stderr, "line %d: %s, errno %d\n", __LINE__, #x, errno), exit(1)))

// long call(long number, long a, long b, long c): the result, or the error as a positive number.
asm(".text\n"
    "code: mov %rdi, %rax\n mov %rsi, %rdi\n mov %rdx, %rsi\n mov %rcx, %rdx\n"
    "code_call: syscall\n"
    "code_behind: cmp $-4095, %rax\n"
    "code_after: jae 1f\n ret\n 1: neg %rax\n ret\n"
    "code_end:\n"
    // long enter(void *at, long rax): goes on there.
    "enter: mov %rsi, %rax\n jmp *%rdi\n");
extern const unsigned char code[], code_call[], code_behind[], code_after[], code_end[];
long enter(const void *at, long rax);
typedef long call_fn(long, long, long, long);

#define CALL (code_call - code)
#define BEHIND (code_behind - code)
#define AFTER (code_after - code)

static int patches;

static unsigned char *fresh(void) {
    unsigned char *p = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    memcpy(p, code, code_end - code);
    CHECK(!mprotect(p, 4096, PROT_READ | PROT_EXEC));
    return p;
}

static long call(unsigned char *p, long number, long a, long b, long c) { return ((call_fn *)p)(number, a, b, c); }

static void make_patched(unsigned char *p) {
    long pid = getpid();
    for (int i = 0; i < 200; i++) CHECK(call(p, SYS_getpid, 0, 0, 0) == pid);
    CHECK((*(volatile unsigned char *)(p + CALL) != 0x0f) == patches);
}

static void numbers(void) {
    unsigned char *p = fresh();
    make_patched(p);
    CHECK(call(p, SYS_gettid, 0, 0, 0) == gettid() && call(p, SYS_getppid, 0, 0, 0) == getppid());
    CHECK(call(p, SYS_close, -1, 0, 0) == EBADF && call(p, 100000, 0, 0, 0) == ENOSYS);
    int fds[2];
    char c;
    CHECK(call(p, SYS_pipe2, (long)fds, O_CLOEXEC, 0) == 0);
    CHECK(call(p, SYS_write, fds[1], (long)"x", 1) == 1 && call(p, SYS_read, fds[0], (long)&c, 1) == 1 && c == 'x');
    // One that makes a process, of which both go on behind it.
    fflush(0);
    long pid = getpid(), child = call(p, SYS_clone, SIGCHLD, 0, 0);
    if (child == 0) _exit(call(p, SYS_getppid, 0, 0, 0) == pid ? 7 : 1);
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    child = call(p, SYS_fork, 0, 0, 0);
    if (child == 0) _exit(call(p, SYS_getppid, 0, 0, 0) == pid ? 8 : 1);
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 8);
}

static int fds[2];
static long blocked_result;

static void *read_call(void *p) {
    char c = 0;
    blocked_result = call(p, SYS_read, fds[0], (long)&c, 1);
    return 0;
}

// Whoever waits in the call meanwhile goes on behind it.
static void blocked(void) {
    unsigned char *p = fresh();
    pthread_t t[3];
    CHECK(!pipe(fds));
    for (int i = 0; i < 3; i++) CHECK(!pthread_create(&t[i], 0, read_call, p));
    usleep(100000);
    make_patched(p);
    for (int i = 0; i < 3; i++) {
        CHECK(write(fds[1], "x", 1) == 1);
        usleep(20000);
    }
    for (int i = 0; i < 3; i++) CHECK(!pthread_join(t[i], 0));
    CHECK(blocked_result == 1);
}

static volatile uintptr_t at;
static volatile int handled;

static void note(int s, siginfo_t *i, void *u) {
    (void)s, (void)i;
    at = ((ucontext_t *)u)->uc_mcontext.gregs[REG_RIP];
    handled++;
}

// A handler sees the program's own addresses, before and after the call became a jump, and returns to them.
static void signals(int before) {
    unsigned char *p = fresh();
    pthread_t t;
    CHECK(!pipe(fds));
    if (before) make_patched(p);
    struct sigaction a = {.sa_sigaction = note, .sa_flags = SA_SIGINFO};
    CHECK(!sigaction(SIGUSR1, &a, 0));
    CHECK(!pthread_create(&t, 0, read_call, p));
    usleep(100000);
    if (!before) make_patched(p);
    handled = 0;
    CHECK(!pthread_kill(t, SIGUSR1) && !pthread_join(t, 0));
    CHECK(blocked_result == EINTR && handled == 1 && at == (uintptr_t)p + BEHIND);
    a.sa_flags |= SA_RESTART;
    CHECK(!sigaction(SIGUSR1, &a, 0) && !pthread_create(&t, 0, read_call, p));
    usleep(100000);
    CHECK(!pthread_kill(t, SIGUSR1));
    usleep(50000);
    CHECK(handled == 2 && at == (uintptr_t)p + CALL);
    CHECK(write(fds[1], "x", 1) == 1 && !pthread_join(t, 0) && blocked_result == 1);
}

static void jumps(void) {
    unsigned char *p = fresh();
    make_patched(p);
    for (int i = 0; i < 100; i++) CHECK(enter(p + BEHIND, 7) == 7 && enter(p + BEHIND, -5) == 5);
    CHECK(call(p, SYS_getpid, 0, 0, 0) == getpid());
}

static void looks(void) {
    unsigned char *p = fresh(), got[64];
    size_t n = code_end - code;
    make_patched(p);
    int fd = open("/proc/self/mem", O_RDWR);
    CHECK(fd >= 0 && pread(fd, got, n, (off_t)(uintptr_t)p) == (ssize_t)n && !memcmp(got, code, n));
    CHECK(!mprotect(p, 4096, PROT_READ | PROT_WRITE) && !memcmp(p, code, n));
    CHECK(!mprotect(p, 4096, PROT_READ | PROT_EXEC));
    make_patched(p);
    // A change behind the jump, of what was moved.
    CHECK(pwrite(fd, "\xff", 1, (off_t)(uintptr_t)(p + AFTER - 1)) == 1 && !memcmp(p, code, n));
    make_patched(p);
    CHECK(!mprotect(p, 4096, PROT_READ | PROT_WRITE));
    // Another comparison: nothing is an error.
    p[BEHIND + 2] = p[BEHIND + 3] = p[BEHIND + 4] = p[BEHIND + 5] = 0xff;
    CHECK(!mprotect(p, 4096, PROT_READ | PROT_EXEC));
    make_patched(p);
    CHECK(call(p, SYS_close, -1, 0, 0) == -EBADF);
    close(fd);
    // Where it would be too short, relative, or a branch.
    static const char *others[] = {"\xc3\xc3\xc3\xc3", "\x85\xc0\x90\xc3", "\x73\x00\x90\xc3", "\x66\x90\x90\xc3"};
    for (int i = 0; i < 4; i++) {
        unsigned char *q = fresh();
        CHECK(!mprotect(q, 4096, PROT_READ | PROT_WRITE));
        memcpy(q + BEHIND, others[i], 4);
        CHECK(!mprotect(q, 4096, PROT_READ | PROT_EXEC));
        for (int j = 0; j < 200; j++) CHECK(call(q, SYS_getpid, 0, 0, 0) == getpid());
        CHECK(q[CALL] == 0x0f);
    }
}

static void steps(void) {
    unsigned char *p = fresh();
    make_patched(p);
    fflush(0);
    pid_t child = fork();
    if (!child) {
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        raise(SIGSTOP);
        for (int i = 0; i < 20; i++) call(p, SYS_getppid, 0, 0, 0);
        _exit(call(p, SYS_getppid, 0, 0, 0) == getppid() ? 0 : 1);
    }
    int status, seen[64] = {0}, wrong = 0;
    CHECK(waitpid(child, &status, 0) == child && WIFSTOPPED(status));
    for (int i = 0; i < 4000 && WIFSTOPPED(status); i++) {
        CHECK(!ptrace(PTRACE_SINGLESTEP, child, 0, 0) && waitpid(child, &status, 0) == child);
        if (!WIFSTOPPED(status)) break;
        struct user_regs_struct r;
        CHECK(WSTOPSIG(status) == SIGTRAP && !ptrace(PTRACE_GETREGS, child, 0, &r));
        uintptr_t offset = r.rip - (uintptr_t)p;
        if (offset < 64) seen[offset]++;
        wrong += offset > (uintptr_t)CALL && offset < (uintptr_t)BEHIND;
        wrong += offset > (uintptr_t)BEHIND && offset < (uintptr_t)AFTER;
    }
    if (WIFSTOPPED(status)) CHECK(!ptrace(PTRACE_DETACH, child, 0, 0) && waitpid(child, &status, 0) == child);
    CHECK(status == 0 && !wrong);
    CHECK(seen[0] >= 20 && seen[0] == seen[CALL] && seen[0] == seen[BEHIND] && seen[0] == seen[AFTER]);
}

static volatile unsigned char *storm_code;
static volatile int strange, ticks;

static void tick(int s, siginfo_t *i, void *u) {
    (void)s, (void)i;
    uintptr_t rip = ((ucontext_t *)u)->uc_mcontext.gregs[REG_RIP], offset = rip - (uintptr_t)storm_code;
    ticks++;
    if (offset < 64 && offset > (uintptr_t)CALL && offset < (uintptr_t)AFTER && offset != (uintptr_t)BEHIND) strange++;
}

static void storm(void) {
    storm_code = fresh();
    struct sigaction a = {.sa_sigaction = tick, .sa_flags = SA_SIGINFO | SA_RESTART};
    struct itimerval often = {{0, 300}, {0, 300}}, never = {{0, 0}, {0, 0}};
    CHECK(!sigaction(SIGALRM, &a, 0) && !setitimer(ITIMER_REAL, &often, 0));
    long pid = getpid();
    for (int i = 0; ticks < 1000; i++) {
        CHECK(call((unsigned char *)storm_code, SYS_getpid, 0, 0, 0) == pid);
        CHECK(call((unsigned char *)storm_code, SYS_close, -1, 0, 0) == EBADF);
    }
    CHECK(!setitimer(ITIMER_REAL, &never, 0) && !strange);
}

// Many sites at once, a few bytes and whole pages from each other: some find no room and go on trapping.
static void many(void) {
    unsigned char *all = mmap(0, 64 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(all != MAP_FAILED);
    for (int i = 0; i < 64; i++)
        for (int j = 0; j < 64; j++) memcpy(all + i * 4096 + j * 64, code, code_end - code);
    CHECK(!mprotect(all, 64 * 4096, PROT_READ | PROT_EXEC));
    long pid = getpid(), changed = 0;
    for (int i = 0; i < 64 * 64; i++) {
        unsigned char *p = all + i * 64;
        for (int j = 0; j < 12; j++) CHECK(call(p, SYS_getpid, 0, 0, 0) == pid);
        changed += p[CALL] != 0x0f;
    }
    CHECK(patches ? changed > 500 && changed < 64 * 64 : !changed);
    for (int i = 0; i < 64 * 64; i++) CHECK(call(all + i * 64, SYS_getpid, 0, 0, 0) == pid);
    CHECK(!mprotect(all, 64 * 4096, PROT_READ));
    for (int i = 0; i < 64 * 64; i++) CHECK(!memcmp(all + i * 64, code, code_end - code));
}

int main(int argc, char **argv) {
    patches = argc > 1 && !strcmp(argv[1], "patched");
    numbers();
    blocked();
    signals(0);
    signals(1);
    jumps();
    looks();
    steps();
    storm();
    many();
    puts("behind ok");
    return 0;
}
