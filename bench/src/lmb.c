// The categories of lmbench (McVoy and Staelin, 1996), as the papers' tables have them: latencies of processes, context
// switches, files and virtual memory, and bandwidths. A workload a process; prints "NAME: NANOSECONDS" or, for
// bandwidths, "NAME: MEGABYTES A SECOND", the best of several batches of 20 ms (or MS).
//
// Usage: lmb [-n BATCHES] [-t MS] [NAME...]      (no name: all)
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <libgen.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MUST(c) do { if (!(c)) { perror(#c); _exit(1); } } while (0)
#define KB 1024L
#define MB (1024 * KB)
#define FILE_SIZE (8 * MB)
static char buf[256 * 1024];
static const char *shell;
static int fds[2], file, high;
static char *area;
static long size, many;

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}
static void none(void) {}

// Processes.
static void handler(int s) { (void)s; }
static void install_run(long n) {
    struct sigaction a = {.sa_handler = handler};
    while (n--) MUST(sigaction(SIGUSR2, &a, NULL) == 0);
}
static void sh_run(long n) {
    while (n--) {
        int st;
        pid_t c = fork();
        MUST(c >= 0);
        if (!c) {
            execl(shell, "sh", "-c", "exit 0", NULL);
            _exit(127);
        }
        MUST(waitpid(c, &st, 0) == c && st == 0);
    }
}
// `many` processes are made, end at once, and are waited for.
static void crowd_run(long n) {
    while (n--) {
        for (long i = 0; i < many; i++) {
            pid_t c = fork();
            MUST(c >= 0);
            if (!c) _exit(0);
        }
        for (long i = 0; i < many; i++) MUST(wait(NULL) > 0);
    }
}
static void crowd_1(void) { many = 1; }
static void crowd_8(void) { many = 8; }
static void crowd_32(void) { many = 32; }
static fd_set watched;
static void select_open(int sockets) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    int l = socket(AF_INET, SOCK_STREAM, 0);
    MUST(bind(l, (void *)&a, sizeof a) == 0 && listen(l, 128) == 0 && getsockname(l, (void *)&a, &len) == 0);
    FD_ZERO(&watched);
    for (int i = 0; i < 100; i++) {
        if (sockets) {
            MUST((fds[0] = socket(AF_INET, SOCK_STREAM, 0)) >= 0 && connect(fds[0], (void *)&a, sizeof a) == 0 && accept(l, NULL, NULL) >= 0);
        } else {
            MUST(pipe(fds) == 0);
        }
        FD_SET(fds[0], &watched);
        if (fds[0] >= high) high = fds[0] + 1;
    }
}
static void select_pipes(void) { select_open(0); }
static void select_sockets(void) { select_open(1); }
static void select_run(long n) {
    while (n--) {
        fd_set r = watched;
        struct timeval zero = {0, 0};
        MUST(select(high, &r, NULL, NULL, &zero) == 0);
    }
}

// A token goes round a ring of `many` processes, each of which reads `size` bytes of its own when it has it. What the
// reading and a pipe cost in one process is taken off.
static int ring[17][2];
static long touch(void) {
    long sum = 0;
    for (long i = 0; i < size; i += 8) sum += *(volatile long *)(area + i);
    return sum;
}
static double overhead;
static void ring_open(void) {
    char c = 0;
    MUST((area = malloc(size + 8)) != NULL);
    memset(area, 1, size + 8);
    MUST(pipe(fds) == 0);
    for (int k = 0; k < 3; k++) {
        int64_t t = now();
        for (int i = 0; i < 2000; i++) {
            MUST(write(fds[1], &c, 1) == 1 && read(fds[0], &c, 1) == 1);
            touch();
        }
        t = now() - t;
        if (k == 0 || t / 2000.0 < overhead) overhead = t / 2000.0;
    }
    for (int i = 0; i < many; i++) MUST(pipe(ring[i]) == 0);
    for (int i = 1; i < many; i++) {
        pid_t child = fork();
        MUST(child >= 0);
        if (child) continue;
        // Each has what the others wrote no more, so that the end of the first one is an end of file.
        char *mine = malloc(size + 8);
        memset(mine, i, size + 8);
        area = mine;
        for (int k = 0; k < many; k++) {
            if (k != i - 1) close(ring[k][0]);
            if (k != i) close(ring[k][1]);
        }
        while (read(ring[i - 1][0], &c, 1) == 1) {
            touch();
            if (write(ring[i][1], &c, 1) != 1) break;
        }
        _exit(0);
    }
}
static void ring_run(long n) {
    char c = 0;
    while (n--) {
        MUST(write(ring[0][1], &c, 1) == 1 && read(ring[many - 1][0], &c, 1) == 1);
        touch();
    }
}
#define RING(P, K) static void ring_##P##_##K(void) { many = P; size = K * KB; ring_open(); }
RING(2, 0) RING(2, 16) RING(2, 64) RING(8, 16) RING(8, 64) RING(16, 16) RING(16, 64)

// Files.
static long counter;
// All on the file system of shared memory: the one that is the same kind everywhere.
static void name(char *to, long i) { sprintf(to, "/dev/shm/lmb-%d-%ld", getpid(), i); }
// Creation and removal are timed apart: each call of the other kind is between two looks at the clock.
static int64_t apart;
static void make(long n, long bytes, int removal) {
    char at[64];
    int64_t total = 0;
    while (n--) {
        name(at, counter++);
        int64_t t = now();
        int f = open(at, O_CREAT | O_EXCL | O_WRONLY, 0600);
        MUST(f >= 0);
        if (bytes) MUST(write(f, buf, bytes) == bytes);
        close(f);
        int64_t made = now();
        MUST(unlink(at) == 0);
        total += removal ? now() - made : made - t;
    }
    apart = total;
}
static void create0_run(long n) { make(n, 0, 0); }
static void delete0_run(long n) { make(n, 0, 1); }
static void create10_run(long n) { make(n, 10 * KB, 0); }
static void delete10_run(long n) { make(n, 10 * KB, 1); }

// Virtual memory.
static void big_file(void) {
    MUST((file = open("/dev/shm/lmb-file", O_CREAT | O_RDWR | O_TRUNC, 0600)) >= 0);
    for (long i = 0; i < FILE_SIZE; i += sizeof buf) MUST(write(file, buf, sizeof buf) == sizeof buf);
    unlink("/dev/shm/lmb-file");
}
static void mmap_run(long n) {
    while (n--) {
        char *m = mmap(NULL, FILE_SIZE, PROT_READ, MAP_SHARED, file, 0);
        MUST(m != MAP_FAILED);
        long sum = 0;
        for (long i = 0; i < FILE_SIZE; i += 16 * KB) sum += *(volatile char *)(m + i);
        MUST(munmap(m, FILE_SIZE) == 0 && sum == 0);
    }
}
static sigjmp_buf back;
static void on_fault(int s) {
    (void)s;
    siglongjmp(back, 1);
}
static void protection_open(void) {
    struct sigaction a = {.sa_handler = on_fault, .sa_flags = SA_NODEFER};
    sigaction(SIGSEGV, &a, NULL);
    MUST((area = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) != MAP_FAILED);
}
static void protection_run(long n) {
    while (n--)
        if (sigsetjmp(back, 0) == 0) *(volatile char *)area = 1;
}

// Bandwidths: a batch is a megabyte.
static void feed(int out) {
    while (write(out, buf, 64 * KB) > 0) {}
    _exit(0);
}
static void pipe_open(void) {
    MUST(pipe(fds) == 0);
    if (fork() == 0) feed(fds[1]);
    close(fds[1]);
}
static void unix_open(void) {
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    if (fork() == 0) feed(fds[1]);
    close(fds[1]);
}
static void tcp_open(void) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    int l = socket(AF_INET, SOCK_STREAM, 0), window = size;
    if (window) setsockopt(l, SOL_SOCKET, SO_RCVBUF, &window, sizeof window);
    MUST(bind(l, (void *)&a, sizeof a) == 0 && listen(l, 1) == 0 && getsockname(l, (void *)&a, &len) == 0);
    if (fork() == 0) {
        int s = socket(AF_INET, SOCK_STREAM, 0);
        if (window) setsockopt(s, SOL_SOCKET, SO_SNDBUF, &window, sizeof window);
        if (connect(s, (void *)&a, sizeof a)) _exit(1);
        feed(s);
    }
    MUST((fds[0] = accept(l, NULL, NULL)) >= 0);
}
#define WINDOW(K) static void tcp_##K(void) { size = K * KB; tcp_open(); }
WINDOW(4) WINDOW(16) WINDOW(64) WINDOW(256)
static void drain_run(long n) {
    while (n--)
        for (long left = MB; left > 0;) {
            long r = read(fds[0], buf, 64 * KB);
            MUST(r > 0);
            left -= r;
        }
}
static void reread_run(long n) {
    while (n--)
        for (long i = 0; i < MB; i += 64 * KB) {
            if (lseek(file, 0, SEEK_CUR) >= FILE_SIZE) lseek(file, 0, SEEK_SET);
            MUST(read(file, buf, 64 * KB) == 64 * KB);
        }
}
static void mapped_run(long n) {
    while (n--) {
        static long at;
        char *m = mmap(NULL, MB, PROT_READ, MAP_SHARED, file, at % FILE_SIZE);
        MUST(m != MAP_FAILED);
        at += MB;
        long sum = 0;
        for (long i = 0; i < MB; i += 8) sum += *(volatile long *)(m + i);
        MUST(munmap(m, MB) == 0 && sum == 0);
    }
}
// Throughput of writes of one size.
static void writes_open(long bytes) {
    big_file();
    size = bytes;
}
static void writes_run(long n) {
    while (n--)
        for (long i = 0; i < MB; i += size) {
            if (lseek(file, 0, SEEK_CUR) >= FILE_SIZE) lseek(file, 0, SEEK_SET);
            MUST(write(file, buf, size) == size);
        }
}
#define WRITES(B) static void writes_##B(void) { writes_open(B); }
WRITES(64) WRITES(512) WRITES(4096) WRITES(16384) WRITES(65536) WRITES(262144)
static void memory_open(void) {
    MUST((area = malloc(16 * MB)) != NULL);
    memset(area, 1, 16 * MB);
}
static void copy_run(long n) {
    static long at;
    while (n--) memcpy(area + 8 * MB + at % (8 * MB), area + at % (8 * MB), MB), at += MB;
}
static void load_run(long n) {
    static long at;
    while (n--) {
        long sum = 0;
        for (long i = 0; i < MB; i += 8) sum += *(volatile long *)(area + at % (16 * MB) + i);
        at += MB;
        MUST(sum != 0);
    }
}
static void store_run(long n) {
    static long at;
    while (n--) memset(area + at % (16 * MB), (int)n, MB), at += MB;
}

enum kind { LATENCY, EACH, HOPS, APART, BANDWIDTH };
static const struct workload { const char *name; enum kind kind; void (*open)(void); void (*run)(long); } all[] = {
    {"lmbench: signal install", LATENCY, none, install_run},
    {"lmbench: fork+exec sh -c", LATENCY, none, sh_run},
    {"lmbench: fork, exit, wait: 1 process", EACH, crowd_1, crowd_run},
    {"lmbench: fork, exit, wait: 8 at once, each", EACH, crowd_8, crowd_run},
    {"lmbench: fork, exit, wait: 32 at once, each", EACH, crowd_32, crowd_run},
    {"lmbench: select, 100 pipes", LATENCY, select_pipes, select_run},
    {"lmbench: select, 100 TCP sockets", LATENCY, select_sockets, select_run},
    {"lmbench: context switch, 2 processes", HOPS, ring_2_0, ring_run},
    {"lmbench: context switch, 2 with 16 KB", HOPS, ring_2_16, ring_run},
    {"lmbench: context switch, 2 with 64 KB", HOPS, ring_2_64, ring_run},
    {"lmbench: context switch, 8 with 16 KB", HOPS, ring_8_16, ring_run},
    {"lmbench: context switch, 8 with 64 KB", HOPS, ring_8_64, ring_run},
    {"lmbench: context switch, 16 with 16 KB", HOPS, ring_16_16, ring_run},
    {"lmbench: context switch, 16 with 64 KB", HOPS, ring_16_64, ring_run},
    {"lmbench: file create, empty", APART, none, create0_run},
    {"lmbench: file delete, empty", APART, none, delete0_run},
    {"lmbench: file create, 10 KB", APART, none, create10_run},
    {"lmbench: file delete, 10 KB", APART, none, delete10_run},
    {"lmbench: mmap 8 MB of a file, touched", LATENCY, big_file, mmap_run},
    {"lmbench: protection fault", LATENCY, protection_open, protection_run},
    {"bandwidth: pipe", BANDWIDTH, pipe_open, drain_run},
    {"bandwidth: AF_UNIX", BANDWIDTH, unix_open, drain_run},
    {"bandwidth: TCP", BANDWIDTH, tcp_open, drain_run},
    {"bandwidth: TCP, window 4 KB", BANDWIDTH, tcp_4, drain_run},
    {"bandwidth: TCP, window 16 KB", BANDWIDTH, tcp_16, drain_run},
    {"bandwidth: TCP, window 64 KB", BANDWIDTH, tcp_64, drain_run},
    {"bandwidth: TCP, window 256 KB", BANDWIDTH, tcp_256, drain_run},
    {"bandwidth: file reread", BANDWIDTH, big_file, reread_run},
    {"bandwidth: mmap reread", BANDWIDTH, big_file, mapped_run},
    {"bandwidth: file write by 64 B", BANDWIDTH, writes_64, writes_run},
    {"bandwidth: file write by 512 B", BANDWIDTH, writes_512, writes_run},
    {"bandwidth: file write by 4 KB", BANDWIDTH, writes_4096, writes_run},
    {"bandwidth: file write by 16 KB", BANDWIDTH, writes_16384, writes_run},
    {"bandwidth: file write by 64 KB", BANDWIDTH, writes_65536, writes_run},
    {"bandwidth: file write by 256 KB", BANDWIDTH, writes_262144, writes_run},
    {"bandwidth: memory copy", BANDWIDTH, memory_open, copy_run},
    {"bandwidth: memory read", BANDWIDTH, memory_open, load_run},
    {"bandwidth: memory write", BANDWIDTH, memory_open, store_run},
};

static double timed(const struct workload *w, long n) {
    int64_t t = now();
    w->run(n);
    t = now() - t;
    return (w->kind == APART ? apart : t) / (double)n;
}

int main(int argc, char **argv) {
    int batches = 5, first = 1;
    char *self = realpath("/proc/self/exe", NULL);
    static char busybox[4096];
    snprintf(busybox, sizeof busybox, "%s/bin/busybox", dirname(self ? self : strdup(argv[0])));
    shell = busybox;
    double least = 20e6;
    for (; first + 1 < argc && argv[first][0] == '-'; first += 2) {
        if (argv[first][1] == 'n') batches = atoi(argv[first + 1]);
        if (argv[first][1] == 't') least = atof(argv[first + 1]) * 1e6;
    }
    setvbuf(stdout, NULL, _IONBF, 0);
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
        const struct workload *w = &all[i];
        int k = first;
        while (k < argc && strcmp(argv[k], w->name)) k++;
        if (first < argc && k == argc) continue;
        // A group of processes of its own: a workload that fails or hangs costs only itself, and ends with its peers.
        pid_t c = fork();
        MUST(c >= 0);
        if (c) {
            int st;
            while (waitpid(c, &st, 0) < 0) {}
            kill(-c, SIGKILL);
            continue;
        }
        setpgid(0, 0);
        alarm(20);
        signal(SIGPIPE, SIG_IGN);
        w->open();
        long n = 1;
        while (timed(w, n) * n < least && n < 1L << 40) n *= 2;
        double best = timed(w, n);
        for (int b = 1; b < batches; b++) {
            double t = timed(w, n);
            if (t < best) best = t;
        }
        if (w->kind == EACH) best /= many;
        if (w->kind == HOPS) best = best / many - overhead;
        if (w->kind == BANDWIDTH) best = MB / 1e6 / (best / 1e9);
        printf("%s: %.1f\n", w->name, best);
        _exit(0);
    }
    return 0;
}
