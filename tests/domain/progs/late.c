// System calls in code that appears at run time: late speed [register] | late code | late threads
//   speed    prints the nanoseconds of one call from this program's own text; `register`: of one whose number is an argument
//   code     makes, moves, rewrites, shares and forks code with a system call, between calls
//   threads  rewrites it while other threads run it
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(x) ((x) ? (void)0 : (fprintf(stderr, "line %d: %s, errno %d\n", __LINE__, #x, errno), exit(1)))

// mov eax, number; syscall; ret
static const unsigned char CODE[8] = {0xb8, SYS_getpid, 0, 0, 0, 0x0f, 0x05, 0xc3};
typedef long fn(void);

asm(".text\n.globl own_getppid\n.type own_getppid,@function\nown_getppid: mov $110, %eax\n syscall\n ret\n"
    ".size own_getppid, .-own_getppid\n");
long own_getppid(void);

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static int speed(int in_register) {
    double best = 1e9;
    long parent = getppid();
    for (int i = 0; i < 300; i++) {
        double start = now();
        for (int j = 0; j < 100; j++) CHECK((in_register ? syscall(SYS_getppid) : own_getppid()) == parent);
        double each = (now() - start) / 100;
        if (each < best) best = each;
    }
    printf("%.1f\n", best);
    return 0;
}

__attribute__((noinline)) static void run(fn *f, long want) {
    for (int i = 0; i < 100000; i++) CHECK(f() == want);
}

// Whether the program sees a jump instead of its own instruction.
static int changed(const void *code) { return *(volatile const unsigned char *)code != 0xb8; }

static void through_mem(const void *code, const unsigned char *want) {
    unsigned char got[8];
    int fd = open("/proc/self/mem", O_RDONLY);
    CHECK(fd >= 0 && pread(fd, got, 8, (off_t)(uintptr_t)code) == 8);
    CHECK(!memcmp(got, want, 8));
    close(fd);
}

static unsigned char *fresh(int prot, int flags) {
    unsigned char *p = mmap(0, 4096, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    memcpy(p + 64, CODE, 8);
    CHECK(!mprotect(p, 4096, prot));
    return p;
}

// A child with the code, as others see it: bytes of the program, which they may change.
static void traced(fn *f) {
    fflush(0);
    long parent = getpid();
    pid_t child = fork();
    if (!child) {
        long me = getpid();
        while (f() == me) usleep(100);
        _exit(f() == parent ? 0 : 1);
    }
    unsigned char got[8];
    struct iovec to = {got, 8}, from = {(void *)f, 8};
    CHECK(process_vm_readv(child, &to, 1, &from, 1, 0) == 8 && !memcmp(got, CODE, 8));
    int status;
    CHECK(!ptrace(PTRACE_ATTACH, child, 0, 0) && waitpid(child, &status, 0) == child && WIFSTOPPED(status));
    errno = 0;
    long word = ptrace(PTRACE_PEEKTEXT, child, (void *)f, 0);
    CHECK(!errno && !memcmp(&word, CODE, 8));
    ((unsigned char *)&word)[1] = SYS_getppid;
    CHECK(!ptrace(PTRACE_POKETEXT, child, (void *)f, (void *)word) && !ptrace(PTRACE_DETACH, child, 0, 0));
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static int code(int patches) {
    const int RX = PROT_READ | PROT_EXEC, RW = PROT_READ | PROT_WRITE;
    long pid = getpid(), parent = getppid();
    unsigned char *p = fresh(RX, MAP_PRIVATE);
    fn *f = (fn *)(p + 64);
    run(f, pid);
    CHECK(changed(f) == patches);
    through_mem(f, CODE);
    // Writable: its own bytes are there, and one of them may be changed.
    CHECK(!mprotect(p, 4096, RW) && !memcmp(p + 64, CODE, 8));
    p[65] = SYS_getppid;
    CHECK(!mprotect(p, 4096, RX));
    run(f, parent);
    CHECK(changed(f) == patches);
    CHECK(!mprotect(p, 4096, RW));
    p[65] = SYS_getpid;
    CHECK(!mprotect(p, 4096, RX));
    run(f, pid);
    // A child has them too, and may do with them what it likes.
    fflush(0);
    pid_t child = fork();
    if (!child) {
        long me = getpid();
        run(f, me);
        CHECK(!mprotect(p, 4096, RW) && !memcmp(p + 64, CODE, 8));
        p[65] = SYS_getppid;
        CHECK(!mprotect(p, 4096, RX));
        run(f, pid);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    run(f, pid);
    traced(f);
    // Moved.
    unsigned char *q = mremap(p, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, (char *)p - (16 << 20));
    CHECK(q == p - (16 << 20) && !memcmp(q + 64, CODE, 8));
    f = (fn *)(q + 64);
    run(f, pid);
    CHECK(changed(f) == patches);
    // Written by another way.
    unsigned char number = SYS_getppid;
    int fd = open("/proc/self/mem", O_RDWR);
    CHECK(fd >= 0 && pwrite(fd, &number, 1, (off_t)(uintptr_t)(q + 65)) == 1);
    run(f, parent);
    // Its pages given back: zeros, and then new code.
    CHECK(!mprotect(q, 4096, RW) && !madvise(q, 4096, MADV_DONTNEED) && q[64] == 0);
    memcpy(q + 64, CODE, 8);
    CHECK(!mprotect(q, 4096, RX));
    run(f, pid);
    // Replaced.
    CHECK(mmap(q, 4096, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == q && q[64] == 0);
    memcpy(q + 64, CODE, 8);
    CHECK(!mprotect(q, 4096, RX));
    run(f, pid);
    // Never where others could see it, or the program could write.
    unsigned char *s = fresh(RX, MAP_SHARED), *w = fresh(RW | PROT_EXEC, MAP_PRIVATE);
    run((fn *)(s + 64), pid), run((fn *)(w + 64), pid);
    CHECK(!changed(s + 64) && !changed(w + 64));
    // In the middle of another instruction (mov r8d, 39), which the number happens to agree with.
    unsigned char *m = fresh(RX, MAP_PRIVATE);
    CHECK(!mprotect(m, 4096, RW));
    memcpy(m + 64, "\x6a\x27\x58\x41\xb8\x27\x00\x00\x00\x0f\x05\xc3", 12);
    CHECK(!mprotect(m, 4096, RX));
    run((fn *)(m + 64), pid);
    CHECK(!changed(m + 68) && m[67] == 0x41);
    // A program that takes the place of whatever its code jumps to.
    if (patches) {
        CHECK(changed(f));
        int32_t d;
        memcpy(&d, q + 65, 4);
        uintptr_t at = ((uintptr_t)q + 69 + d) & ~4095ul;
        CHECK(mmap((void *)at, 4096, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == (void *)at);
        memset((void *)at, 0xcc, 4096);
        CHECK(!memcmp(q + 64, CODE, 8));
        run(f, pid);
        CHECK(own_getppid() == parent);
    }
    puts("code ok");
    return 0;
}

static volatile int stop;
static fn *shared;
static long pid;
static int wrong;
static long calls;

static void *caller(void *unused) {
    long me = syscall(SYS_gettid), n = 0;
    (void)unused;
    fn *f = shared;
    for (; !stop; n++) {
        long r = f();
        if (r != pid && r != me) __atomic_add_fetch(&wrong, 1, __ATOMIC_RELAXED);
    }
    __atomic_add_fetch(&calls, n, __ATOMIC_RELAXED);
    return 0;
}

static int threads(void) {
    unsigned char *p = fresh(PROT_READ | PROT_EXEC, MAP_PRIVATE);
    pid = getpid();
    shared = (fn *)(p + 64);
    pthread_t t[8];
    for (int i = 0; i < 8; i++) CHECK(!pthread_create(&t[i], 0, caller, 0));
    for (int i = 0; i < 400; i++) {
        CHECK(!mprotect(p, 4096, PROT_READ | PROT_WRITE | PROT_EXEC) && !memcmp(p + 66, CODE + 2, 6));
        __atomic_store_n(p + 65, i & 1 ? SYS_getpid : SYS_gettid, __ATOMIC_SEQ_CST);
        CHECK(!mprotect(p, 4096, PROT_READ | PROT_EXEC));
        usleep(2000);
    }
    stop = 1;
    for (int i = 0; i < 8; i++) CHECK(!pthread_join(t[i], 0));
    CHECK(!wrong);
    fprintf(stderr, "%ld calls\n", calls);
    puts("threads ok");
    return 0;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "speed")) return speed(argc > 2);
    if (!strcmp(what, "code")) return code(argc > 2 && !strcmp(argv[2], "patched"));
    if (!strcmp(what, "threads")) return threads();
    return 2;
}
