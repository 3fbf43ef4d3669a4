// What a system call preserves: vector registers, flags, the red zone, tiny stacks; under signals, by the
// `syscall` instruction and, with the argument "fast", through the guest kernel's fast entry as a patched call does.
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

static int fast;
static volatile int hits;
static void handler(int s) {
    (void)s;
    hits++;
    volatile double x = 1.5;
    for (int i = 0; i < 10; i++) x *= 1.1;
}

#define BODY(enter)                                                                                        \
    asm volatile("movdqu (%[in]), %%xmm0\n movdqu 16(%[in]), %%xmm1\n movdqu 32(%[in]), %%xmm7\n"          \
                 "movdqu 48(%[in]), %%xmm8\n movdqu 64(%[in]), %%xmm15\n"                                  \
                 "mov %[out], -8(%%rsp)\n mov %[out], -120(%%rsp)\n" /* red zone */                        \
                 "mov $0x1111, %%r8\n mov $0x2222, %%r9\n mov $0x3333, %%r10\n mov $0x4444, %%r12\n"       \
                 "mov $39, %%eax\n stc\n" enter                                                            \
                 "setc %[carry]\n mov -8(%%rsp), %%rax\n mov -120(%%rsp), %%rdx\n"                          \
                 "movdqu %%xmm0, (%[out])\n movdqu %%xmm1, 16(%[out])\n movdqu %%xmm7, 32(%[out])\n"       \
                 "movdqu %%xmm8, 48(%[out])\n movdqu %%xmm15, 64(%[out])\n"                                \
                 "xor $0x1111, %%r8\n xor $0x2222, %%r9\n or %%r9, %%r8\n xor $0x3333, %%r10\n"            \
                 "or %%r10, %%r8\n xor $0x4444, %%r12\n or %%r12, %%r8\n xor %[out], %%rax\n"             \
                 "xor %[out], %%rdx\n or %%rax, %%r8\n or %%rdx, %%r8\n mov %%r8, %[regs]\n"             \
                 : [carry] "=m"(carry), [regs] "=m"(regs)                                                  \
                 : [in] "r"(in), [out] "r"(out)                                                            \
                 : "rax", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "memory", "cc", "xmm0", "xmm1",   \
                   "xmm7", "xmm8", "xmm15")

static int round_once(const unsigned char *in) {
    unsigned char out[128];
    char carry;
    long regs;
    if (fast) BODY("lea 1f(%%rip), %%rcx\n jmp *%%gs:48\n 1:\n");
    else BODY("syscall\n");
    return memcmp(in, out, 80) || !carry || regs;
}

static long rounds, bad;
static void *work(void *arg) {
    unsigned char in[128];
    unsigned seed = (unsigned)(long)arg;
    for (int i = 0; i < 128; i++) in[i] = (unsigned char)rand_r(&seed);
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    do {
        for (int i = 0; i < 1000; i++) {
            __atomic_add_fetch(&rounds, 1, __ATOMIC_RELAXED);
            if (round_once(in)) __atomic_add_fetch(&bad, 1, __ATOMIC_RELAXED);
        }
        clock_gettime(CLOCK_MONOTONIC, &b);
    } while (b.tv_sec - a.tv_sec < 2);
    return 0;
}

int main(int argc, char **argv) {
    fast = argc > 1 && !strcmp(argv[1], "fast");
    struct itimerval it = {{0, 1000}, {0, 1000}};
    signal(SIGALRM, handler);
    setitimer(ITIMER_REAL, &it, 0);
    pthread_t t[8];
    for (long i = 0; i < 8; i++) pthread_create(&t[i], 0, work, (void *)(i + 1));
    for (int i = 0; i < 8; i++) pthread_join(t[i], 0);
    if (bad || !hits) return printf("%ld rounds, %d signals, %ld bad\n", rounds, hits, bad), 1;
    return puts("preserve ok"), 0;
}
