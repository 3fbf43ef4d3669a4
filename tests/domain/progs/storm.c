// Timer signals landing anywhere in patched system calls of 8 threads. Every round loads all vector registers (and
// mask registers, where there are any), all general registers and arithmetic flags with DF, makes one call by
// `mov eax; syscall` or by `mov rax; syscall`, and compares everything the ABI preserves, and rcx and r11, which
// the processor sets. Handlers spoil the registers, and must see addresses of the program only.
#define _GNU_SOURCE
#include <cpuid.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

extern char __executable_start[], etext[];
struct area {
    unsigned char vector[2048];
    uint64_t mask[8];
    uint64_t regs[16];  // rbx rbp r12 r13 r14 r15 rdi rsi rdx r8 r9 r10 rcx r11 rax flags
    uint64_t back;      // address behind the syscall
};

// call_NAME(in, out, flags): one round.
#define CALL(name, load_vectors, store_vectors, mov)                                                      \
    asm(".text\n.globl " #name "\n.type " #name ",@function\n" #name ":\n"                                \
        "push %rbx\n push %rbp\n push %r12\n push %r13\n push %r14\n push %r15\n push %rsi\n push %rdx\n" \
        load_vectors                                                                                      \
        "lea 2112(%rdi), %rax\n mov (%rax), %rbx\n mov 8(%rax), %rbp\n mov 16(%rax), %r12\n"              \
        "mov 24(%rax), %r13\n mov 32(%rax), %r14\n mov 40(%rax), %r15\n mov 48(%rax), %rdi\n"             \
        "mov 56(%rax), %rsi\n mov 64(%rax), %rdx\n mov 72(%rax), %r8\n mov 80(%rax), %r9\n"               \
        "mov 88(%rax), %r10\n popfq\n"                                                                    \
        mov "\n syscall\n 9: pushfq\n push %rax\n mov 16(%rsp), %rax\n"                                   \
        "mov %rbx, 2112(%rax)\n mov %rbp, 2120(%rax)\n mov %r12, 2128(%rax)\n mov %r13, 2136(%rax)\n"     \
        "mov %r14, 2144(%rax)\n mov %r15, 2152(%rax)\n mov %rdi, 2160(%rax)\n mov %rsi, 2168(%rax)\n"     \
        "mov %rdx, 2176(%rax)\n mov %r8, 2184(%rax)\n mov %r9, 2192(%rax)\n mov %r10, 2200(%rax)\n"       \
        "mov %rcx, 2208(%rax)\n mov %r11, 2216(%rax)\n mov %rax, %rdi\n"                                  \
        "pop %rax\n mov %rax, 2224(%rdi)\n pop %rax\n mov %rax, 2232(%rdi)\n lea 9b(%rip), %rax\n"        \
        "mov %rax, 2240(%rdi)\n cld\n" store_vectors                                                      \
        "pop %rsi\n pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbp\n pop %rbx\n ret\n"              \
        ".size " #name ", .-" #name "\n");                                                                \
    void name(const struct area *, struct area *, uint64_t)

#define IRP(n, op) ".irp i," n "\n" op "\n.endr\n"
#define UP_TO_15 "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15"
#define UP_TO_31 UP_TO_15 ",16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31"
#define LOAD512 IRP(UP_TO_31, "vmovdqu64 \\i*64(%rdi), %zmm\\i") IRP("1,2,3,4,5,6,7", "kmovq 2048+\\i*8(%rdi), %k\\i")
#define STORE512 IRP(UP_TO_31, "vmovdqu64 %zmm\\i, \\i*64(%rdi)") IRP("1,2,3,4,5,6,7", "kmovq %k\\i, 2048+\\i*8(%rdi)")
#define LOAD256 IRP(UP_TO_15, "vmovdqu \\i*64(%rdi), %ymm\\i")
#define STORE256 IRP(UP_TO_15, "vmovdqu %ymm\\i, \\i*64(%rdi)")
#define SHORT "mov $39, %eax"
#define WIDE "mov $39, %rax"
CALL(short512, LOAD512, STORE512, SHORT);
CALL(wide512, LOAD512, STORE512, WIDE);
CALL(short256, LOAD256, STORE256, SHORT);
CALL(wide256, LOAD256, STORE256, WIDE);

static int wide_vectors;
static volatile int stop;
static int hits, inside, strange, rounds, bad;

static void handler(int s, siginfo_t *i, void *context) {
    (void)s, (void)i;
    unsigned long pc = ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    __atomic_add_fetch(&hits, 1, __ATOMIC_RELAXED);
    if (pc < (unsigned long)__executable_start || pc >= (unsigned long)etext)
        __atomic_add_fetch(&strange, 1, __ATOMIC_RELAXED);
    unsigned long f = (unsigned long)short512, l = (unsigned long)wide256;
    if (pc >= f && pc < l + 4096) __atomic_add_fetch(&inside, 1, __ATOMIC_RELAXED);
    asm volatile("vzeroall");
    if (wide_vectors) asm volatile("kxnorq %k1, %k1, %k1\n kmovq %k1, %k7\n vpternlogd $255, %zmm17, %zmm17, %zmm17");
}

static void *work(void *arg) {
    struct sigevent e = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGRTMIN};
    e.sigev_notify_thread_id = (int)syscall(SYS_gettid);
    struct itimerspec it = {{0, 300000}, {0, 300000}};
    timer_t timer;
    if (timer_create(CLOCK_MONOTONIC, &e, &timer) || timer_settime(timer, 0, &it, 0)) abort();
    unsigned seed = (unsigned)(long)arg;
    uint64_t pid = (uint64_t)getpid();
    struct area in, out;
    for (unsigned i = 0; i < sizeof in; i++) ((unsigned char *)&in)[i] = (unsigned char)rand_r(&seed);
    while (!stop) {
        // CF PF AF ZF SF DF OF, and the bits that are always set.
        uint64_t flags = ((uint64_t)rand_r(&seed) & 0xcd5) | 0x202;
        memset(&out, 0xa5, sizeof out);
        // Direct calls: what patches run-time code looks for them.
        if (wide_vectors && flags & 1) short512(&in, &out, flags);
        else if (wide_vectors) wide512(&in, &out, flags);
        else if (flags & 1) short256(&in, &out, flags);
        else wide256(&in, &out, flags);
        int wrong = memcmp(in.regs, out.regs, 12 * 8) || out.regs[12] != out.back || out.regs[13] != flags ||
                    out.regs[14] != pid || out.regs[15] != flags;
        if (wide_vectors) wrong |= memcmp(in.vector, out.vector, 2048) || memcmp(in.mask + 1, out.mask + 1, 56);
        else for (int i = 0; i < 16; i++) wrong |= memcmp(in.vector + i * 64, out.vector + i * 64, 32) != 0;
        if (wrong) __atomic_add_fetch(&bad, 1, __ATOMIC_RELAXED);
        __atomic_add_fetch(&rounds, 1, __ATOMIC_RELAXED);
    }
    timer_delete(timer);
    return 0;
}

// How many of the rounds' calls are jumps now.
static int patched(void) {
    int n = 0;
    for (const unsigned char *p = (const unsigned char *)short512; p < (const unsigned char *)wide256 + 2048; p++)
        n += *p == 0xe9 && (!memcmp(p + 5, "\x0f\x05", 2) || !memcmp(p + 7, "\x0f\x05", 2));
    return n;
}

// storm [patched]: with an argument it fails unless its own calls are patched.
int main(int argc, char **argv) {
    (void)argv;
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx")) return puts("storm ok"), 0;
    wide_vectors = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
    struct sigaction sa = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(SIGRTMIN, &sa, 0);
    pthread_t t[8];
    for (long i = 0; i < 8; i++) pthread_create(&t[i], 0, work, (void *)(i + 1));
    sleep(4);
    stop = 1;
    for (int i = 0; i < 8; i++) pthread_join(t[i], 0);
    if (argc > 1 && !patched()) return fputs("not patched\n", stderr), 1;
    fprintf(stderr, "rounds %d, signals %d, of these in rounds %d, strange %d, bad %d, %s\n", rounds, hits, inside, strange,
            bad, wide_vectors ? "AVX-512" : "AVX");
    if (bad || strange || hits < 100 || !inside) return 1;
    puts("storm ok");
    return 0;
}
