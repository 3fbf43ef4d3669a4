// Cases of memory: what was there is there, what is asked for anew is new.
#include "survive.h"

#include <malloc.h>
#include <sys/ipc.h>
#include <sys/prctl.h>
#include <sys/shm.h>

#define PAGE 4096UL
#define MB (1UL << 20)

static unsigned char *anonymous(size_t len, int prot, int flags) {
    void *p = mmap(NULL, len, prot, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    CHECK(p != MAP_FAILED);
    return p;
}

static uint64_t value(uint64_t i) {
    return (i + 1) * 0x9e3779b97f4a7c15;
}

// A word in every 512 bytes.
static void fill(unsigned char *p, size_t from, size_t to) {
    for (size_t i = from; i < to; i += 512) *(uint64_t *)(p + i) = value(i);
}

static int filled(unsigned char *p, size_t from, size_t to) {
    for (size_t i = from; i < to; i += 512) {
        if (*(uint64_t *)(p + i) != value(i)) return 0;
    }
    return 1;
}

static int zero(unsigned char *p, size_t from, size_t to) {
    for (size_t i = from; i < to; i += 8) {
        if (*(uint64_t *)(p + i)) return 0;
    }
    return 1;
}

CASE(big_heap) {
    size_t n = 48 * MB;
    unsigned char *p = anonymous(n, PROT_READ | PROT_WRITE, 0);
    fill(p, 0, n);
    ready();
    CHECK(filled(p, 0, n));
    fill(p, MB, 2 * MB);
    CHECK(filled(p, 0, n) && munmap(p, n) == 0);
}

CASE(dontneed_gives_zeros) {
    unsigned char *p = anonymous(8 * MB, PROT_READ | PROT_WRITE, 0);
    fill(p, 0, 8 * MB);
    ready();
    CHECK(madvise(p + MB, MB, MADV_DONTNEED) == 0 && madvise(p + 3 * MB + PAGE, PAGE, MADV_DONTNEED) == 0);
    CHECK(zero(p, MB, 2 * MB) && zero(p, 3 * MB + PAGE, 3 * MB + 2 * PAGE));
    CHECK(filled(p, 0, MB) && filled(p, 2 * MB, 3 * MB + PAGE) && filled(p, 3 * MB + 2 * PAGE, 8 * MB));
    fill(p, MB, 2 * MB);
    CHECK(filled(p, MB, 2 * MB));
    CHECK(madvise(p + 5 * MB, MB, MADV_FREE) == 0);
    CHECK(mmap(p + 6 * MB, MB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == p + 6 * MB);
    CHECK(zero(p, 6 * MB, 7 * MB) && filled(p, 7 * MB, 8 * MB));
}

CASE(malloc_and_trim) {
    static char *all[20000];
    for (int i = 0; i < 20000; i++) CHECK((all[i] = malloc(2000)) && memset(all[i], i, 2000));
    ready();
    for (int i = 0; i < 20000; i++) CHECK(all[i][0] == (char)i && all[i][1999] == (char)i);
    for (int i = 10; i < 20000; i++) free(all[i]);
    CHECK(malloc_trim(0) == 1);
    for (int i = 10; i < 20000; i++) CHECK((all[i] = calloc(1, 2000)) && zero((void *)all[i], 0, 2000));
}

CASE(brk_grows) {
    unsigned char *top = sbrk(2 * MB);
    memset(top, 7, 2 * MB);
    ready();
    CHECK(sbrk(0) == top + 2 * MB && sbrk(MB) == top + 2 * MB && top[MB - 1] == 7);
    for (size_t i = 2 * MB; i < 3 * MB; i++) CHECK(top[i] == 0);
    memset(top, 9, 3 * MB);
    // What is given back and taken again is new.
    CHECK(sbrk(-2 * (long)MB) == top + 3 * MB && sbrk(2 * MB) == top + MB);
    for (size_t i = MB + PAGE; i < 3 * MB; i++) CHECK(top[i] == 0);
    CHECK(top[MB - 1] == 9);
}

CASE(mremap_of_old_memory) {
    unsigned char *p = anonymous(4 * MB, PROT_READ | PROT_WRITE, 0);
    unsigned char *q = anonymous(4 * MB, PROT_READ | PROT_WRITE, 0);
    fill(p, 0, 2 * MB); // with a gap that was never touched
    fill(p, 3 * MB + 512 * PAGE / 2, 4 * MB);
    fill(q, 0, 4 * MB);
    ready();
    unsigned char *moved = mremap(p, 4 * MB, 16 * MB, MREMAP_MAYMOVE);
    CHECK(moved != MAP_FAILED && filled(moved, 0, 2 * MB) && zero(moved, 2 * MB, 3 * MB) && zero(moved, 4 * MB, 16 * MB));
    fill(moved, 0, 16 * MB);
    CHECK(filled(moved, 0, 16 * MB));
    CHECK(mremap(q, 4 * MB, MB, 0) == q && filled(q, 0, MB));
    unsigned char *again = mremap(q, MB, 2 * MB, MREMAP_MAYMOVE);
    CHECK(again != MAP_FAILED && filled(again, 0, MB) && zero(again, MB, 2 * MB));
}

CASE(mremap_that_leaves_the_old_place) {
    unsigned char *p = anonymous(MB, PROT_READ | PROT_WRITE, 0);
    fill(p, 0, MB);
    ready();
    unsigned char *to = mremap(p, MB, MB, MREMAP_MAYMOVE | 4 /* DONTUNMAP */);
    CHECK(to != MAP_FAILED && filled(to, 0, MB) && zero(p, 0, MB));
}

static volatile sig_atomic_t faults;
static unsigned char *guarded;
static void on_fault(int s, siginfo_t *i, void *unused) {
    (void)s;
    (void)unused;
    faults++;
    if (i->si_addr != guarded || mprotect(guarded, PAGE, PROT_READ | PROT_WRITE)) _exit(9);
}

CASE(protection) {
    guarded = anonymous(3 * PAGE, PROT_READ | PROT_WRITE, 0);
    unsigned char *code = anonymous(PAGE, PROT_READ | PROT_WRITE, 0);
    memcpy(code, "\xb8\x2a\0\0\0\xc3", 6); // mov eax, 42; ret
    memset(guarded, 5, 3 * PAGE);
    CHECK(mprotect(guarded, PAGE, PROT_NONE) == 0 && mprotect(guarded + PAGE, PAGE, PROT_READ) == 0);
    CHECK(mprotect(code, PAGE, PROT_READ | PROT_EXEC) == 0);
    struct sigaction a = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGSEGV, &a, NULL) == 0);
    ready();
    CHECK(*(volatile unsigned char *)guarded == 5 && faults == 1);
    CHECK(guarded[PAGE] == 5 && ((int (*)(void))code)() == 42);
    CHECK(mprotect(guarded, 3 * PAGE, PROT_READ | PROT_WRITE) == 0);
    guarded[PAGE] = 6;
    CHECK(guarded[PAGE] == 6 && guarded[2 * PAGE] == 5);
}

CASE(sparse_mappings) {
    size_t n = 64UL << 30;
    unsigned char *p = anonymous(n, PROT_READ | PROT_WRITE, MAP_NORESERVE);
    for (size_t i = 0; i < 64; i++) p[i << 30] = i + 1;
    ready();
    for (size_t i = 0; i < 64; i++) CHECK(p[i << 30] == i + 1 && p[(i << 30) + PAGE] == 0);
    p[5 * PAGE] = 1;
}

CASE(shared_between_processes) {
    volatile uint64_t *p = mmap(NULL, MB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    p[0] = 1;
    pid_t pid = fork();
    if (pid == 0) {
        // Counts on and on; the parent sees it count after the freeze too.
        while (!p[1]) p[2]++;
        _exit(0);
    }
    while (p[2] == 0) nap(1);
    ready();
    uint64_t then = p[2];
    for (int i = 0; i < 500 && p[2] == then; i++) nap(10);
    CHECK(p[2] != then && p[0] == 1);
    p[1] = 1;
    CHECK(waitpid(pid, NULL, 0) == pid);
}

CASE(memfd_and_shm) {
    int fd = memfd_create("m", MFD_ALLOW_SEALING), id = shmget(IPC_PRIVATE, MB, 0600);
    CHECK(fd >= 0 && id >= 0 && ftruncate(fd, MB) == 0);
    unsigned char *a = mmap(NULL, MB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    unsigned char *b = mmap(NULL, MB, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    unsigned char *s = shmat(id, NULL, 0);
    CHECK(a != MAP_FAILED && b != MAP_FAILED && s != (void *)-1);
    fill(a, 0, MB);
    fill(s, 0, MB);
    b[9 * PAGE] = 77;
    ready();
    CHECK(filled(a, 0, MB) && filled(s, 0, MB) && b[9 * PAGE] == 77 && filled(b, 0, 9 * PAGE));
    char c = 5;
    CHECK(pwrite(fd, &c, 1, 20 * PAGE) == 1 && a[20 * PAGE] == 5 && b[20 * PAGE] == 5);
    unsigned char *s2 = shmat(id, NULL, SHM_RDONLY);
    s[3] = 99;
    CHECK(s2[3] == 99);
    CHECK(madvise(b + 9 * PAGE, PAGE, MADV_DONTNEED) == 0 && b[9 * PAGE] == a[9 * PAGE]);
    CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW) == 0 && ftruncate(fd, 2 * MB) == -1);
    CHECK(shmctl(id, IPC_RMID, NULL) == 0);
}

CASE(wiped_in_clones) {
    unsigned char *p = anonymous(4 * PAGE, PROT_READ | PROT_WRITE, 0);
    memset(p, 3, 4 * PAGE);
    CHECK(madvise(p, 2 * PAGE, MADV_WIPEONFORK) == 0);
    ready();
    CHECK(p[0] == (generation() ? 0 : 3) && p[PAGE] == (generation() ? 0 : 3) && p[2 * PAGE] == 3);
    memset(p, 4, PAGE);
    pid_t pid = fork();
    if (pid == 0) _exit(p[0] == 0 && p[2 * PAGE] == 3 ? 0 : 1);
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0 && p[0] == 4);
}

CASE(wipeonfork_asked_for_later) {
    unsigned char *p = anonymous(4 * PAGE, PROT_READ | PROT_WRITE, 0);
    memset(p, 3, 4 * PAGE);
    ready();
    CHECK(madvise(p + PAGE, 2 * PAGE, MADV_WIPEONFORK) == 0);
    CHECK(p[PAGE] == 3);
    pid_t pid = fork();
    if (pid == 0) _exit(p[0] == 3 && zero(p, PAGE, 3 * PAGE) && p[3 * PAGE] == 3 ? 0 : 1);
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0 && p[PAGE] == 3);
    CHECK(madvise(p + PAGE, PAGE, MADV_KEEPONFORK) == 0);
    pid = fork();
    if (pid == 0) _exit(p[PAGE] == 3 && p[2 * PAGE] == 0 ? 0 : 1);
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

static __attribute__((noinline)) long deep(long n) {
    volatile char room[4000];
    room[n % 4000] = n;
    return n ? deep(n - 1) + room[n % 4000] * 0 + 1 : 0;
}

CASE(the_stack_grows) {
    CHECK(deep(20) == 20);
    ready();
    CHECK(deep(1000) == 1000);
}

CASE(fork_of_old_memory) {
    unsigned char *p = anonymous(4 * MB, PROT_READ | PROT_WRITE, 0);
    fill(p, 0, 4 * MB);
    ready();
    pid_t pid = fork();
    if (pid == 0) {
        CHECK(filled(p, 0, 4 * MB));
        memset(p, 1, 2 * MB);
        CHECK(filled(p, 2 * MB, 4 * MB) && madvise(p, PAGE, MADV_DONTNEED) == 0 && p[0] == 0 && p[PAGE] == 1);
        _exit(0);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0 && filled(p, 0, 4 * MB));
}

// Eight threads whose vector registers are full of what they compute.
static volatile int stop;
static double series(int seed) {
    double a[8], sum = 0;
    for (int i = 0; i < 8; i++) a[i] = seed + i;
    for (int k = 0; k < 20000; k++) {
        for (int i = 0; i < 8; i++) a[i] = a[i] * 0.99999 + 1.0 / (k + 1 + i);
    }
    for (int i = 0; i < 8; i++) sum += a[i];
    return sum;
}

static long compute(long seed) {
    double expected = series(seed);
    long rounds = 0;
    while (!stop) {
        if (series(seed) != expected) return -1;
        rounds++;
    }
    return rounds;
}

static long hold_registers(long seed) {
    // What lies in ymm/xmm registers across the freeze, untouched by any call.
    uint64_t in[2] = {value(seed), value(seed + 1)}, out[2];
    __asm__ volatile("movdqu %1, %%xmm7\n1: cmpl $0, %2\n pause\n je 1b\n movdqu %%xmm7, %0"
                     : "=m"(out) : "m"(in), "m"(stop) : "xmm7", "memory");
    return out[0] == in[0] && out[1] == in[1];
}

CASE(vector_registers) {
    struct blocked b[8];
    for (int i = 0; i < 8; i++) begin(&b[i], i < 6 ? compute : hold_registers, i);
    ready();
    nap(30);
    stop = 1;
    for (int i = 0; i < 6; i++) CHECK(wait_for(&b[i]) > 0);
    CHECK(wait_for(&b[6]) == 1 && wait_for(&b[7]) == 1);
}
