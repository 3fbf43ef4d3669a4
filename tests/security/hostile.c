// A hostile program: tries every system call with hostile arguments, from its own text, through the
// guest kernel's host-call gate (a plain call to its address), by the x32 numbers and by int 0x80.
// It announces each attempt ("try NR PATTERN") before making it, so that its driver (test_hostile.py)
// knows where to go on when the domain dies of one. Nothing it does may be felt outside the domain.
//
// Usage: hostile text|x32|int80 FROM TO
//        hostile gate ADDRESS FROM TO PATTERN      (from number FROM, pattern PATTERN on)
//        hostile aimed ADDRESS WHAT FROM           (tgkill, clone, mmap, futex, prctl, files)
//        hostile swap ADDRESS SIZE                 (beyond the swap region, and what is in it; then waits)
//        hostile hold                              (all it can get, then waits for end of input)
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PATTERNS = 14 };
static char *page;
static const char canary[] = "/tmp/doppel-canary/file";

// The arguments of a pattern. Pointers lead to a page with a host path, or to nothing good.
static void arguments(int pattern, long nr, long a[6]) {
    long v = (long)page, bad = (long)0xffffffff81000000, path = v + 2048;
    long table[PATTERNS][6] = {
        {0, 0, 0, 0, 0, 0},
        {-1, -1, -1, -1, -1, -1},
        {1, 2, 3, 4, 5, 6},
        {path, path, path, path, path, path},
        {bad, bad, bad, bad, bad, bad},
        {INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, UINT32_MAX, 1},
        {1, 9, 9, 0, 0, 0},
        {-1, 9, 0, 0, 0, 0},
        {1, 1, 9, 0, 0, 0},
        {0, v, 4096, 0, 0, 0},
        {4, v, 8, 0, 0, 0},
        {AT_FDCWD, path, O_CREAT | O_RDWR | O_TRUNC, 0666, 0, 0},
        {path, O_CREAT | O_RDWR | O_TRUNC, 0666, 0, 0, 0},
    };
    if (pattern < PATTERNS - 1) {
        memcpy(a, table[pattern], sizeof table[0]);
        return;
    }
    uint64_t x = (uint64_t)nr * 2654435761u + 88172645463325252ull;
    for (int i = 0; i < 6; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        a[i] = (long)(x >> (x & 63));
    }
}
static void fill_page(void) {
    page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(page, 0, 8192);
    for (int o = 2048; o < 4096; o += 512) strcpy(page + o, canary);
}

static long by_text(long nr, const long a[6]) {
    long r = nr;
    register long r10 __asm__("r10") = a[3], r8 __asm__("r8") = a[4], r9 __asm__("r9") = a[5];
    __asm__ volatile("syscall" : "+a"(r) : "D"(a[0]), "S"(a[1]), "d"(a[2]), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
    return r;
}
static uint64_t gate;
// The gate is a syscall instruction and a return.
static long by_gate(long nr, const long a[6]) {
    long r = nr;
    register long r10 __asm__("r10") = a[3], r8 __asm__("r8") = a[4], r9 __asm__("r9") = a[5];
    __asm__ volatile("sub $256, %%rsp; call *%[g]; add $256, %%rsp"
                     : "+a"(r) : "D"(a[0]), "S"(a[1]), "d"(a[2]), "r"(r10), "r"(r8), "r"(r9), [g] "b"(gate) : "rcx", "r11", "memory");
    return r;
}
static long by_int80(long nr, const long a[6]) {
    long r = nr;
    __asm__ volatile("int $0x80" : "+a"(r) : "b"(a[0]), "c"(a[1]), "d"(a[2]), "S"(a[3]), "D"(a[4]) : "memory");
    return r;
}
static void say(const char *what, long nr, long k) {
    char b[64];
    int n = snprintf(b, sizeof b, "%s %ld %ld\n", what, nr, k);
    if (write(1, b, n) != n) _exit(3);
}

// Each number in a child of its own, with a limit of time.
static int sweep(const char *mode, long from, long to) {
    for (long nr = from; nr <= to; nr++) {
        say("try", nr, 0);
        pid_t c = fork();
        if (c < 0) return printf("fork: %s\n", strerror(errno)), 2;
        if (c == 0) {
            setpgid(0, 0);
            int null = open("/dev/null", O_RDWR);
            dup2(null, 0), dup2(null, 2);
            for (int k = 0; k < PATTERNS; k++) {
                long a[6];
                arguments(k, nr, a);
                // A call may well end, stop or replace this process: one more child for each.
                pid_t g = fork();
                if (g == 0) {
                    alarm(1);
                    dup2(null, 1);
                    if (mode[0] == 't') by_text(nr, a);
                    else if (mode[0] == 'x') by_text(nr | 0x40000000, a);
                    else by_int80(nr, a);
                    _exit(0);
                }
                for (int i = 0; g > 0 && i < 400; i++) {
                    if (waitpid(g, NULL, WNOHANG | __WALL) != 0) break;
                    usleep(i < 50 ? 200 : 5000);
                    if (i == 399) kill(g, SIGKILL), waitpid(g, NULL, __WALL);
                }
            }
            _exit(0);
        }
        int st;
        for (int i = 0; waitpid(c, &st, WNOHANG) == 0 && i < 6000; i++) {
            usleep(i < 100 ? 300 : 5000);
            if (i == 5999) kill(-c, SIGKILL), kill(c, SIGKILL);
        }
        while (waitpid(-1, NULL, WNOHANG) > 0) {}
    }
    puts("survived");
    return 0;
}
static int through_gate(long from, long to, int pattern) {
    for (long nr = from; nr <= to; nr++, pattern = 0)
        for (; pattern < PATTERNS; pattern++) {
            long a[6];
            arguments(pattern, nr, a);
            say("try", nr, pattern);
            by_gate(nr, a);
        }
    puts("survived");
    return 0;
}
static int aimed(const char *what, long from) {
    struct timespec soon = {0, 1000};
    for (long k = from;; k++) {
        long a[6] = {0}, nr = -1;
        if (!strcmp(what, "tgkill")) {  // every small process and thread number, three signals, and -1
            static const int sig[] = {9, 23, 19};
            if (k >= 3 * 300) break;
            nr = SYS_tgkill, a[0] = k / 3 == 299 ? -1 : k / 3, a[1] = k / 3 == 299 ? -1 : k / 3, a[2] = sig[k % 3];
        } else if (!strcmp(what, "clone")) {  // every flag alone and with the usual ones
            if (k >= 64) break;
            nr = SYS_clone, a[0] = k < 32 ? 1ul << k : (1ul << (k - 32)) | 0x150f00;
            a[1] = k & 1 ? (long)page + 4096 : 0;
        } else if (!strcmp(what, "mmap")) {  // every descriptor, shared and private, writable and executable
            if (k >= 64 * 4) break;
            nr = SYS_mmap, a[0] = 0x10000000, a[1] = 4096, a[2] = k & 1 ? 7 : 3, a[3] = (k & 2 ? 1 : 2) | 0x10, a[4] = k / 4;
        } else if (!strcmp(what, "futex")) {  // every operation, private or not
            if (k >= 512) break;
            nr = SYS_futex, a[0] = (long)page, a[1] = k, a[3] = (long)&soon, a[4] = (long)page + 64, a[5] = -1;
        } else if (!strcmp(what, "prctl")) {
            if (k >= 100) break;
            nr = k < 80 ? SYS_prctl : SYS_arch_prctl, a[0] = k < 80 ? k : 0x1000 + k - 80, a[1] = 1;
        } else {  // what would give a host descriptor
            static const long calls[] = {SYS_open, SYS_openat, SYS_socket, SYS_socketpair, SYS_memfd_create, SYS_eventfd2, SYS_epoll_create1,
                                         SYS_pipe2, SYS_dup, SYS_dup2, SYS_fcntl, SYS_io_uring_setup, SYS_userfaultfd, SYS_perf_event_open,
                                         SYS_bpf, SYS_signalfd4, SYS_timerfd_create, SYS_inotify_init1, SYS_fanotify_init, SYS_pidfd_open,
                                         SYS_open_by_handle_at, SYS_name_to_handle_at, SYS_process_vm_writev, SYS_ptrace, SYS_kcmp,
                                         SYS_mount, SYS_unshare, SYS_setns, SYS_keyctl, SYS_shmget, SYS_msgget, SYS_semget, SYS_mq_open,
                                         SYS_setuid, SYS_capset, SYS_chroot, SYS_pivot_root, SYS_execve, SYS_vfork, SYS_clone3};
            if (k >= (long)(sizeof calls / sizeof *calls)) break;
            nr = calls[k], a[0] = (long)page + 2048, a[1] = O_CREAT | O_RDWR, a[2] = 0666;
        }
        say("try", nr, k);
        by_gate(nr, a);
    }
    puts("survived");
    return 0;
}

// The swap region by the calls that a domain has for it: makes it longer, looks for what others left, maps what is behind it.
static int beyond(uint64_t size) {
    enum { SWAP = 12, SHARED_FIXED = 0x11, KEEP = 1, PUNCH = 2 };
    for (int mode = 0; mode < 256; mode++) {
        long r = by_gate(SYS_fallocate, (long[6]){SWAP, mode, size, 1 << 20});
        if (r == 0 && mode != (KEEP | PUNCH)) printf("mode %d is allowed\n", mode);
    }
    for (int call = 0; call < 3; call++) {
        long nr = (long[]){SYS_ftruncate, SYS_pwrite64, SYS_write}[call];
        if (by_gate(nr, (long[6]){SWAP, (long)page, 8, size}) >= 0) printf("call %ld is allowed\n", nr);
    }
    uint64_t *m = (uint64_t *)0x10000000;
    for (uint64_t at = 0; at < size; at += size / 64 & ~4095ul) {
        if (by_gate(SYS_mmap, (long[6]){(long)m, 4096, 3, SHARED_FIXED, SWAP, at}) != (long)m) return 3;
        for (int i = 0; i < 512; i++)
            if (m[i]) printf("%llx at %llx\n", (unsigned long long)m[i], (unsigned long long)at);
        m[0] = ~at;
    }
    puts("done");
    char c;
    while (read(0, &c, 1) > 0) {}
    // Behind the end there is nothing.
    by_gate(SYS_mmap, (long[6]){(long)m, 4096, 3, SHARED_FIXED, SWAP, size + (1 << 20)});
    m[0] = 1;
    puts("written");
    return 0;
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IONBF, 0);
    fill_page();
    signal(SIGSYS, SIG_IGN);
    if (argc > 3 && !strcmp(argv[1], "gate")) {
        gate = strtoull(argv[2], NULL, 0);
        return through_gate(atol(argv[3]), atol(argv[4]), argc > 5 ? atoi(argv[5]) : 0);
    }
    if (argc > 4 && !strcmp(argv[1], "aimed")) {
        gate = strtoull(argv[2], NULL, 0);
        return aimed(argv[3], atol(argv[4]));
    }
    if (argc > 3 && !strcmp(argv[1], "swap")) {
        gate = strtoull(argv[2], NULL, 0);
        return beyond(strtoull(argv[3], NULL, 0));
    }
    if (argc > 3) return sweep(argv[1], atol(argv[2]), atol(argv[3]));
    if (argc > 1 && !strcmp(argv[1], "hold")) {
        for (int i = 0; i < 20; i++) {
            open("/etc/passwd", O_RDONLY);
            socket(AF_INET, SOCK_STREAM, 0);
            socket(AF_UNIX, SOCK_DGRAM, 0);
            int p[2];
            if (pipe(p)) return 1;
        }
        if (fork() == 0) pause();
        puts("ready");
        char c;
        while (read(0, &c, 1) > 0) {}
        return 0;
    }
    return 2;
}
