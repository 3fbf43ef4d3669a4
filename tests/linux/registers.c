// Registers and flags that a program may load, and that a kernel beside it needs itself.
#include "t.h"
#include <setjmp.h>
// Bare calls: libc's own may do anything with memory that is not aligned.
static inline long bare(long n, long a, long b, long c) {
    long r;
    __asm__ volatile("syscall" : "=a"(r) : "a"(n), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return r;
}
static inline void load_gs(unsigned selector) { __asm__ volatile("mov %0, %%gs" : : "r"(selector)); }
static volatile int count;
static void counted(int s) { (void)s; count++; }
CASE(gs_can_be_loaded) {
    int fd[2];
    CHECK(pipe(fd) == 0);
    signal(SIGUSR1, counted);
    char c = 'x', *fresh = mmap(NULL, 64 << 12, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    // The first calls come by a trap, further ones perhaps not.
    for (int i = 0; i < 64; i++) {
        load_gs(i & 1 ? 0 : 0x2b);
        long pid = bare(SYS_getpid, 0, 0, 0);
        load_gs(i & 1 ? 0x2b : 0);
        long n = bare(SYS_write, fd[1], (long)&c, 1);
        load_gs(0);
        fresh[i << 12] = 1;
        load_gs(0);
        long k = bare(SYS_kill, pid, SIGUSR1, 0);
        CHECK(n == 1 && k == 0 && pid == getpid());
    }
    CHECK_EQ(count, 64);
    load_gs(0);
    pid_t p = fork();
    if (p == 0) {
        load_gs(0);
        _exit(3);
    }
    CHECK_EQ(join(p), 3);
    load_gs(0);
    *(volatile char *)&c = 'y';
    p = fork();
    if (p == 0) {
        load_gs(0);
        *(volatile int *)noaccess() = 1;
        _exit(0);
    }
    int status;
    CHECK(waitpid(p, &status, 0) == p && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}
// Whatever becomes of what GS points to.
static inline void write_gs(const void *base) { __asm__ volatile("wrgsbase %0" : : "r"(base)); }
static sigjmp_buf back;
static void go_back(int s) { (void)s, siglongjmp(back, 1); }
CASE(gs_can_point_anywhere) {
    signal(SIGILL, go_back);
    if (sigsetjmp(back, 1)) SKIP("the processor or the kernel has no FSGSBASE");
    write_gs(NULL);
    signal(SIGUSR1, counted);
    char *zeros = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const void *all[] = {NULL, zeros, (void *)64, noaccess(), zeros + 4000};
    pid_t self = getpid();
    for (int i = 0; i < 64 * 5; i++) {
        write_gs(all[i % 5]);
        long pid = bare(SYS_getpid, 0, 0, 0);
        write_gs(all[i % 5]);
        long k = bare(SYS_kill, pid, SIGUSR1, 0);
        write_gs(all[i % 5]);
        char *fresh = (char *)bare(SYS_brk, 0, 0, 0);
        CHECK(pid == self && k == 0 && fresh != NULL);
    }
    CHECK_EQ(count, 64 * 5);
    for (int i = 0; i < 8192; i++) CHECK(zeros[i] == 0);
}
CASE(alignment_checks_are_the_programs_own) {
    int fd[2];
    CHECK(pipe(fd) == 0);
    static char from[4096] __attribute__((aligned(64))), to[4096] __attribute__((aligned(64)));
    for (int i = 0; i < 4096; i++) from[i] = i * 7;
    signal(SIGUSR1, counted);
    long bad = 0;
    pid_t self = getpid();
    char *fresh = mmap(NULL, 64 << 12, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 64; i++) {
        __asm__ volatile("pushf; orl $0x40000, (%%rsp); popf" : : : "cc", "memory");
        bad += bare(SYS_write, fd[1], (long)from + 1 + i, 1001) != 1001;
        bad += bare(SYS_read, fd[0], (long)to + 3, 1001) != 1001;
        fresh[i << 12] = 1;
        bad += bare(SYS_getpid, 0, 0, 0) != self;
        __asm__ volatile("pushf; andl $~0x40000, (%%rsp); popf" : : : "cc", "memory");
        CHECK(bad == 0 && memcmp(from + 1 + i, to + 3, 1001) == 0);
    }
}
