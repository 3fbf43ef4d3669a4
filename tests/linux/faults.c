// Fault signals and signal frames: si_addr, si_code, editing the saved context, vector state kept.
#include "t.h"
#include <cpuid.h>
#include <immintrin.h>
#include <setjmp.h>
#include <ucontext.h>

static sigjmp_buf jb;
static siginfo_t last;
static volatile int count;
static ucontext_t uc;
static void leave(int s, siginfo_t *si, void *u) {
    last = *si;
    memcpy(&uc, u, sizeof(uc.uc_mcontext) + offsetof(ucontext_t, uc_mcontext));
    siglongjmp(jb, s);
}
#define FAULT(sig, ...)                                  \
    ({ on_signal(sig, leave, 0);                         \
       int s_ = sigsetjmp(jb, 1);                        \
       if (!s_) { __VA_ARGS__; }                         \
       CHECK_EQ(s_, sig); })

CASE(null_write) {
    FAULT(SIGSEGV, *(volatile int *)0 = 1);
    CHECK(last.si_addr == NULL);
    CHECK_EQ(last.si_code, SEGV_MAPERR);
    CHECK_EQ(last.si_signo, SIGSEGV);
    CHECK_EQ(uc.uc_mcontext.gregs[REG_TRAPNO], 14);
    CHECK_EQ(uc.uc_mcontext.gregs[REG_ERR] & 7, 6);  // user, write, not present
    CHECK_EQ(uc.uc_mcontext.gregs[REG_CR2], 0);
}
CASE(null_read_error_code) {
    FAULT(SIGSEGV, (void)*(volatile int *)0x123);
    CHECK_EQ((long)last.si_addr, 0x123);
    CHECK_EQ(uc.uc_mcontext.gregs[REG_ERR] & 7, 4);
}
CASE(non_canonical_address) {
    FAULT(SIGSEGV, *(volatile int *)0x8000000000000000ul = 1);
    CHECK_EQ(last.si_code, SI_KERNEL);
    CHECK(last.si_addr == NULL);
    CHECK_EQ(uc.uc_mcontext.gregs[REG_TRAPNO], 13);
}
CASE(kernel_address) {
    FAULT(SIGSEGV, (void)*(volatile int *)0xffffffff81000000ul);
    CHECK_EQ(last.si_signo, SIGSEGV);
}
CASE(read_only_write) {
    char *p = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    (void)*(volatile char *)p;
    FAULT(SIGSEGV, *(volatile char *)(p + 9) = 1);
    CHECK(last.si_addr == p + 9);
    CHECK_EQ(last.si_code, SEGV_ACCERR);
}
CASE(text_write) {
    FAULT(SIGSEGV, *(volatile char *)(void *)leave = 1);
    CHECK_EQ(last.si_code, SEGV_ACCERR);
}
CASE(jump_to_null) {
    FAULT(SIGSEGV, ((void (*volatile)(void))0)());
    CHECK(last.si_addr == NULL);
    CHECK_EQ(uc.uc_mcontext.gregs[REG_RIP], 0);
}
CASE(integer_divide_by_zero) {
    volatile int z = 0, r;
    FAULT(SIGFPE, r = 7 / z);
    (void)r;
    CHECK_EQ(last.si_code, FPE_INTDIV);
    CHECK((long)last.si_addr == uc.uc_mcontext.gregs[REG_RIP]);
    CHECK_EQ(uc.uc_mcontext.gregs[REG_TRAPNO], 0);
}
CASE(integer_divide_overflow) {
    volatile int m = INT_MIN, n = -1, r;
    FAULT(SIGFPE, r = m / n);
    (void)r;
}
CASE(illegal_instruction) {
    FAULT(SIGILL, __asm__ volatile("ud2"));
    CHECK_EQ(last.si_code, ILL_ILLOPN);
    CHECK((long)last.si_addr == uc.uc_mcontext.gregs[REG_RIP]);
}
CASE(privileged_instruction) {
    FAULT(SIGSEGV, __asm__ volatile("hlt"));
    CHECK_EQ(last.si_code, SI_KERNEL);
}
CASE(io_instruction) { FAULT(SIGSEGV, __asm__ volatile("outb %%al, $0x80" ::: "memory")); }
CASE(breakpoint) {
    FAULT(SIGTRAP, __asm__ volatile("int3"));
    CHECK_EQ(last.si_code, SI_KERNEL);
}
CASE(sse_exception) {
    FAULT(SIGFPE, {
        unsigned m = _mm_getcsr() & ~_MM_MASK_DIV_ZERO;
        _mm_setcsr(m);
        volatile float z = 0, r = 1;
        r = r / z;
    });
    CHECK_EQ(last.si_code, FPE_FLTDIV);
}
CASE(x87_exception) {
    FAULT(SIGFPE, {
        unsigned short cw = 0x37f & ~4;
        __asm__ volatile("fldcw %0; fld1; fldz; fdivrp; fwait" ::"m"(cw));
    });
    CHECK_EQ(last.si_code, FPE_FLTDIV);
}
CASE(default_actions_kill) {
    CHECK_EQ(join(SPAWN({ *(volatile int *)0 = 1; })), 128 + SIGSEGV);
    CHECK_EQ(join(SPAWN({ __asm__ volatile("ud2"); })), 128 + SIGILL);
    CHECK_EQ(join(SPAWN({ volatile int z = 0; z = 7 / z; })), 128 + SIGFPE);
    CHECK_EQ(join(SPAWN({ __asm__ volatile("int3"); })), 128 + SIGTRAP);
}
CASE(blocked_fault_kills) {
    CHECK_EQ(join(SPAWN({
        sigset_t m;
        sigfillset(&m);
        on_signal(SIGSEGV, leave, 0);
        sigprocmask(SIG_SETMASK, &m, NULL);
        *(volatile int *)0 = 1;
    })), 128 + SIGSEGV);
}
CASE(ignored_fault_kills) {
    CHECK_EQ(join(SPAWN({ signal(SIGSEGV, SIG_IGN); *(volatile int *)0 = 1; })), 128 + SIGSEGV);
}
CASE(fault_inside_fault_handler_kills) {
    CHECK_EQ(join(SPAWN({
        struct sigaction sa = {.sa_handler = (void (*)(int))1};
        sigaction(SIGSEGV, &sa, NULL);
        *(volatile int *)0 = 1;
    })), 128 + SIGSEGV);
}
static char *page;
static void fix_page(int s, siginfo_t *si, void *u) {
    (void)s, (void)u;
    count++;
    mprotect((void *)((uintptr_t)si->si_addr & ~4095ul), 4096, PROT_READ | PROT_WRITE);
}
CASE(handler_maps_page_and_access_resumes) {
    page = mmap(NULL, 64 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    on_signal(SIGSEGV, fix_page, 0);
    for (int i = 0; i < 64; i++) page[i * 4096 + 5] = (char)i;
    CHECK_EQ(count, 64);
    for (int i = 0; i < 64; i++) CHECK(page[i * 4096 + 5] == (char)i);
}
static void skip2(int s, siginfo_t *si, void *u) {
    (void)s, (void)si;
    ((ucontext_t *)u)->uc_mcontext.gregs[REG_RIP] += 2;
    count++;
}
CASE(edit_rip_skips_instruction) {
    on_signal(SIGILL, skip2, 0);
    for (int i = 0; i < 100; i++) __asm__ volatile("ud2");
    CHECK_EQ(count, 100);
}
static void set_regs(int s, siginfo_t *si, void *u) {
    (void)s, (void)si;
    greg_t *g = ((ucontext_t *)u)->uc_mcontext.gregs;
    g[REG_RIP] += 2;
    g[REG_RBX] = 0x1111, g[REG_R12] = 0x2222, g[REG_RCX] = 0x3333, g[REG_R11] = 0x4444;
}
CASE(edit_registers) {
    on_signal(SIGILL, set_regs, 0);
    register long b __asm__("rbx") = 1;
    register long r12 __asm__("r12") = 2;
    register long c __asm__("rcx") = 3;
    register long r11 __asm__("r11") = 4;
    __asm__ volatile("ud2" : "+r"(b), "+r"(r12), "+r"(c), "+r"(r11));
    CHECK(b == 0x1111 && r12 == 0x2222 && c == 0x3333 && r11 == 0x4444);
}
static void set_mask(int s, siginfo_t *si, void *u) {
    (void)s, (void)si;
    sigaddset(&((ucontext_t *)u)->uc_sigmask, SIGHUP);
}
CASE(edit_saved_mask) {
    on_signal(SIGUSR1, set_mask, 0);
    raise(SIGUSR1);
    sigset_t m;
    sigprocmask(SIG_BLOCK, NULL, &m);
    CHECK(sigismember(&m, SIGHUP));
}
static void clobber(int s, siginfo_t *si, void *u) {
    (void)s, (void)si, (void)u;
    count++;
    __asm__ volatile("pcmpeqd %%xmm0,%%xmm0; pcmpeqd %%xmm1,%%xmm1; pcmpeqd %%xmm7,%%xmm7; pcmpeqd %%xmm15,%%xmm15; fld1; fld1"
                     ::: "xmm0", "xmm1", "xmm7", "xmm15", "memory");
}
CASE(xmm_preserved_across_async_signal) {
    on_signal(SIGALRM, clobber, 0);
    struct itimerval it = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_REAL, &it, NULL);
    uint64_t v[2] = {0x0123456789abcdef, 0xfedcba9876543210}, o[2] = {0, 0};
    __asm__ volatile("movdqu %1, %%xmm7; movdqu %1, %%xmm15; 1: cmpl $30, %2; jl 1b; pxor %%xmm7, %%xmm15; movdqu %%xmm15, %0"
                     : "=m"(o) : "m"(v), "m"(count) : "xmm7", "xmm15", "memory");
    CHECK(o[0] == 0 && o[1] == 0);
}
__attribute__((target("avx"))) static void clobber_avx(int s, siginfo_t *si, void *u) {
    (void)s, (void)si, (void)u;
    count++;
    __asm__ volatile("vxorps %%ymm0,%%ymm0,%%ymm0; vxorps %%ymm9,%%ymm9,%%ymm9" ::: "xmm0", "xmm9");
}
CASE(avx_preserved_across_async_signal) {
    if (!__builtin_cpu_supports("avx")) SKIP("no AVX");
    on_signal(SIGALRM, clobber_avx, 0);
    struct itimerval it = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_REAL, &it, NULL);
    uint64_t v[4] = {1, 2, 3, 4}, o[4] = {0};
    __asm__ volatile("vmovdqu %1, %%ymm9; 1: cmpl $30, %2; jl 1b; vmovdqu %%ymm9, %0"
                     : "=m"(o) : "m"(v), "m"(count) : "xmm9", "memory");
    CHECK(!memcmp(v, o, sizeof v));
}
CASE(avx512_preserved_across_async_signal) {
    if (!__builtin_cpu_supports("avx512f")) SKIP("no AVX-512");
    on_signal(SIGALRM, clobber_avx, 0);
    struct itimerval it = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_REAL, &it, NULL);
    uint64_t v[8] = {1, 2, 3, 4, 5, 6, 7, 8}, o[8] = {0};
    unsigned k = 0xa5a5, kk;
    __asm__ volatile("vmovdqu64 %2, %%zmm25; kmovw %4, %%k3; 1: cmpl $30, %3; jl 1b; vmovdqu64 %%zmm25, %0; kmovw %%k3, %1"
                     : "=m"(o), "=r"(kk) : "m"(v), "m"(count), "r"(k) : "memory");
    CHECK(!memcmp(v, o, sizeof v));
    CHECK_EQ(kk & 0xffff, k);
}
CASE(avx_preserved_across_syscalls_and_switches) {
    if (!__builtin_cpu_supports("avx")) SKIP("no AVX");
    uint64_t v[4] = {11, 12, 13, 14}, o[4] = {0};
    for (int i = 0; i < 200; i++) {
        long r = SYS_sched_yield;
        __asm__ volatile("vmovdqu %2, %%ymm9; vmovdqu %2, %%ymm0; syscall; vxorps %%ymm0,%%ymm9,%%ymm0; vmovdqu %%ymm0, %1"
                         : "+a"(r), "=m"(o) : "m"(v) : "rcx", "r11", "xmm0", "xmm9", "memory");
        CHECK(!(o[0] | o[1] | o[2] | o[3]));
        r = SYS_getppid;
        __asm__ volatile("vmovdqu %2, %%ymm9; syscall; vmovdqu %%ymm9, %1"
                         : "+a"(r), "=m"(o) : "m"(v) : "rcx", "r11", "xmm9", "memory");
        CHECK(!memcmp(v, o, sizeof v));
    }
}
CASE(mxcsr_and_x87_control_preserved) {
    on_signal(SIGUSR1, clobber, 0);
    unsigned m = _mm_getcsr() | _MM_ROUND_UP;
    unsigned short cw = 0x27f, got;
    _mm_setcsr(m);
    __asm__ volatile("fldcw %0" ::"m"(cw));
    raise(SIGUSR1);
    getppid();
    __asm__ volatile("fnstcw %0" : "=m"(got));
    CHECK_EQ(got, cw);
    CHECK_EQ(_mm_getcsr() & 0x6000, _MM_ROUND_UP);
}
static void edit_xmm(int s, siginfo_t *si, void *u) {
    (void)s, (void)si;
    ucontext_t *c = u;
    c->uc_mcontext.gregs[REG_RIP] += 2;
    c->uc_mcontext.fpregs->_xmm[3].element[0] = 0xdeadbeef;
}
CASE(edit_xmm_in_frame) {
    on_signal(SIGILL, edit_xmm, 0);
    uint64_t v[2] = {1, 2};
    __asm__ volatile("movdqu %0, %%xmm3; ud2; movdqu %%xmm3, %0" : "+m"(v)::"xmm3");
    CHECK_EQ(v[0] & 0xffffffff, 0xdeadbeef);
}
static uint32_t magic1, xsize, magic2;
static void see_magic(int s, siginfo_t *si, void *u) {
    (void)s, (void)si;
    char *fp = (char *)((ucontext_t *)u)->uc_mcontext.fpregs;
    memcpy(&magic1, fp + 464, 4);
    memcpy(&xsize, fp + 468, 4);
    memcpy(&magic2, fp + xsize - 4, 4);
}
CASE(frame_has_xstate_magic) {
    on_signal(SIGUSR1, see_magic, 0);
    raise(SIGUSR1);
    CHECK_EQ(magic1, 0x46505853);
    CHECK_EQ(magic2, 0x46505845);
}
CASE(flags_preserved) {
    on_signal(SIGUSR1, clobber, 0);
    long f = 0, want = 0xcd5;  // CF PF AF ZF SF DF(0x400) OF
    __asm__ volatile("push %2; popf; mov $39,%%eax; syscall; pushf; pop %0; cld"
                     : "=r"(f) : "r"(0L), "r"(want | 0x202) : "rax", "rcx", "r11", "memory", "cc");
    CHECK_EQ(f & 0xcd5, want);
}
CASE(all_registers_preserved_by_syscall) {
    long bad = 0;
    __asm__ volatile(
        "mov $1,%%rbx; mov $2,%%rdi; mov $3,%%rsi; mov $4,%%rdx; mov $5,%%r8; mov $6,%%r9; mov $7,%%r10;"
        "mov $8,%%r12; mov $9,%%r13; mov $10,%%r14; mov $11,%%r15; mov $110,%%eax; syscall; xor %0,%0;"
        "cmp $1,%%rbx; jne 1f; cmp $2,%%rdi; jne 1f; cmp $3,%%rsi; jne 1f; cmp $4,%%rdx; jne 1f; cmp $5,%%r8; jne 1f;"
        "cmp $6,%%r9; jne 1f; cmp $7,%%r10; jne 1f; cmp $8,%%r12; jne 1f; cmp $9,%%r13; jne 1f; cmp $10,%%r14; jne 1f;"
        "cmp $11,%%r15; je 2f; 1: mov $1,%0; 2:"
        : "=&a"(bad)::"rbx", "rdi", "rsi", "rdx", "r8", "r9", "r10", "r12", "r13", "r14", "r15", "rcx", "r11", "memory", "cc");
    CHECK_EQ(bad, 0);
}
CASE(syscall_leaves_return_address_in_rcx) {
    long rcx, want;
    __asm__ volatile("mov $110,%%eax; lea 1f(%%rip),%1; syscall; 1: mov %%rcx,%0" : "=&r"(rcx), "=&r"(want)::"rax", "rcx", "r11", "memory");
    CHECK_EQ(rcx, want);
}
CASE(red_zone_survives_signal) {
    on_signal(SIGALRM, clobber, 0);
    struct itimerval it = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_REAL, &it, NULL);
    long ok;
    __asm__ volatile("movq $0x5a5a,-128(%%rsp); movq $0x1b1b,-8(%%rsp); 1: cmpl $20,%1; jl 1b; xor %%eax,%%eax;"
                     "cmpq $0x5a5a,-128(%%rsp); jne 2f; cmpq $0x1b1b,-8(%%rsp); jne 2f; inc %%eax; 2:"
                     : "=&a"(ok) : "m"(count) : "memory", "cc");
    CHECK_EQ(ok, 1);
}
CASE(red_zone_survives_syscall) {
    long ok;
    __asm__ volatile("movq $0x5a5a,-128(%%rsp); movq $0x1b1b,-8(%%rsp); mov $110,%%eax; syscall; xor %%eax,%%eax;"
                     "cmpq $0x5a5a,-128(%%rsp); jne 2f; cmpq $0x1b1b,-8(%%rsp); jne 2f; inc %%eax; 2:"
                     : "=&a"(ok)::"rcx", "r11", "memory", "cc");
    CHECK_EQ(ok, 1);
}
static void on_thread_stack(int s, siginfo_t *si, void *u) {
    (void)s, (void)si, (void)u;
    volatile char b[20000];
    memset((void *)b, 1, sizeof b);
    count++;
}
CASE(fault_on_altstack_in_thread_storm) {
    static char alt[4][65536];
    for (int i = 0; i < 4; i++) {
        stack_t ss = {.ss_sp = alt[i], .ss_size = sizeof alt[i]};
        CHECK(sigaltstack(&ss, NULL) == 0);
        on_signal(SIGUSR1, on_thread_stack, SA_ONSTACK);
        raise(SIGUSR1);
    }
    CHECK_EQ(count, 4);
}
CASE(siginfo_padding_and_frame_alignment) {
    on_signal(SIGUSR1, see_magic, 0);
    for (int i = 0; i < 100; i++) {
        volatile char *p = __builtin_alloca(i);
        (void)p;
        raise(SIGUSR1);
    }
    CHECK_EQ(magic2, 0x46505845);
}
CASE(unknown_syscall_enosys) {
    CHECK_ERR(syscall(1000), ENOSYS);
    CHECK_ERR(syscall(-1), ENOSYS);
    CHECK_ERR(syscall(0x7fffffff), ENOSYS);
}
