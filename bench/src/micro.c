// Micro-benchmarks of the kernel interface. Each workload times itself, so process start is not
// counted: batches are grown until one takes 20 ms (or MS), then the best of several batches is printed,
// as "NAME NANOSECONDS" an operation.
//
// Usage: micro [-n BATCHES] [-t MS] [NAME...]      (no name: all)
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MUST(c) do { if (!(c)) { perror(#c); _exit(1); } } while (0)
extern char **environ;
static char buf[65536], *self;
static int fd, p[2], q[2];

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}
static void none(void) {}

static void getppid_run(long n) { while (n--) syscall(SYS_getppid); }
static void zero_open(void) { MUST((fd = open("/dev/zero", O_RDONLY)) >= 0); }
static void read_run(long n) { while (n--) MUST(read(fd, buf, 1) == 1); }
static void null_open(void) { MUST((fd = open("/dev/null", O_WRONLY)) >= 0); }
static void write_run(long n) { while (n--) MUST(write(fd, buf, 1) == 1); }
static void file_open(void) {
    MUST((fd = open("/tmp/bench-file", O_CREAT | O_RDWR | O_TRUNC, 0600)) >= 0);
    MUST(write(fd, buf, sizeof buf) == sizeof buf);
}
static void file_close(void) { unlink("/tmp/bench-file"); }
static void pread_run(long n) { while (n--) MUST(pread(fd, buf, 4096, (n & 15) * 4096) == 4096); }
static void pwrite_run(long n) { while (n--) MUST(pwrite(fd, buf, 4096, (n & 15) * 4096) == 4096); }
static void stat_run(long n) {
    struct stat st;
    while (n--) MUST(stat("/tmp/bench-file", &st) == 0);
}
static void open_run(long n) {
    while (n--) {
        int f = open("/tmp/bench-file", O_RDONLY);
        MUST(f >= 0);
        close(f);
    }
}
static void pipe_open(void) { MUST(pipe(p) == 0); }
static void pipe_run(long n) { while (n--) MUST(write(p[1], buf, 1) == 1 && read(p[0], buf, 1) == 1); }

// Round trips: a child echoes single bytes until end of file.
static void echo(int in, int out) {
    while (read(in, buf, 1) == 1) MUST(write(out, buf, 1) == 1);
    _exit(0);
}
static int trip_in, trip_out;
static void trip_run(long n) { while (n--) MUST(write(trip_out, buf, 1) == 1 && read(trip_in, buf, 1) == 1); }
static void trip_close(void) {
    close(trip_out);
    if (trip_in != trip_out) close(trip_in);
    wait(NULL);
}
static void pipes_open(void) {
    MUST(pipe(p) == 0 && pipe(q) == 0);
    if (fork() == 0) { close(p[1]); close(q[0]); echo(p[0], q[1]); }
    close(p[0]), close(q[1]);
    trip_in = q[0], trip_out = p[1];
}
static void unix_open(void) {
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, p) == 0);
    if (fork() == 0) { close(p[1]); echo(p[0], p[0]); }
    close(p[0]);
    trip_in = trip_out = p[1];
}
static void tcp_open(void) {
    int l = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    MUST(bind(l, (void *)&a, sizeof a) == 0 && listen(l, 1) == 0 && getsockname(l, (void *)&a, &len) == 0);
    if (fork() == 0) {
        int s = accept(l, NULL, NULL);
        setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        echo(s, s);
    }
    trip_in = trip_out = socket(AF_INET, SOCK_STREAM, 0);
    MUST(connect(trip_in, (void *)&a, sizeof a) == 0);
    setsockopt(trip_in, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    close(l);
}

static uint32_t word[2];
static void fwait(uint32_t *w, uint32_t seen) { while (__atomic_load_n(w, __ATOMIC_ACQUIRE) == seen) syscall(SYS_futex, w, FUTEX_WAIT_PRIVATE, seen, NULL); }
static void fpost(uint32_t *w) {
    __atomic_add_fetch(w, 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, w, FUTEX_WAKE_PRIVATE, 1);
}
static void *futex_peer(void *a) {
    for (uint32_t k = 0;; k++) {
        fwait(&word[0], k);
        fpost(&word[1]);
    }
    return a;
}
static void futex_open(void) {
    pthread_t t;
    MUST(pthread_create(&t, NULL, futex_peer, NULL) == 0);
}
static void futex_run(long n) {
    while (n--) {
        uint32_t seen = word[1];
        fpost(&word[0]);
        fwait(&word[1], seen);
    }
}
static void fork_run(long n) {
    while (n--) {
        pid_t c = fork();
        MUST(c >= 0);
        if (c == 0) _exit(0);
        MUST(waitpid(c, NULL, 0) == c);
    }
}
static void exec_run(long n) {
    while (n--) {
        pid_t c = fork();
        MUST(c >= 0);
        if (c == 0) {
            execl(self, self, "--exit", NULL);
            _exit(1);
        }
        int st;
        MUST(waitpid(c, &st, 0) == c && st == 0);
    }
}
static void spawn_run(long n) {
    char *av[] = {self, "--exit", NULL};
    while (n--) {
        pid_t c;
        int st;
        MUST(posix_spawn(&c, self, NULL, NULL, av, environ) == 0);
        MUST(waitpid(c, &st, 0) == c && st == 0);
    }
}
// A parent with 1 GiB of private memory, all of it touched.
static void big_open(void) {
    char *m = mmap(NULL, 1 << 30, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(m != MAP_FAILED);
    for (long i = 0; i < 1 << 30; i += 4096) m[i] = 1;
}
static void mmap_run(long n) {
    while (n--) {
        char *m = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        MUST(m != MAP_FAILED);
        for (int i = 0; i < 65536; i += 4096) m[i] = 1;
        munmap(m, 65536);
    }
}
static void *nothing(void *a) { return a; }
static void thread_run(long n) {
    while (n--) {
        pthread_t t;
        MUST(pthread_create(&t, NULL, nothing, NULL) == 0);
        pthread_join(t, NULL);
    }
}
static void handler(int s) { (void)s; }
static void signal_open(void) { signal(SIGUSR1, handler); }
static void signal_run(long n) {
    pid_t me = getpid();
    while (n--) kill(me, SIGUSR1);
}
static void clock_run(long n) {
    struct timespec t;
    while (n--) clock_gettime(CLOCK_MONOTONIC, &t);
}
static void fault_run(long n) {
    static char *m;
    static long left;
    while (n--) {
        if (left == 0) {
            if (m) munmap(m, 64 << 20);
            m = mmap(NULL, 64 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            left = (64 << 20) / 4096;
        }
        m[--left * 4096] = 1;
    }
}

static const struct workload { const char *name; void (*open)(void); void (*run)(long); void (*close)(void); } all[] = {
    {"getppid", none, getppid_run, none},
    {"clock_gettime", none, clock_run, none},
    {"read 1 B", zero_open, read_run, none},
    {"write 1 B", null_open, write_run, none},
    {"pread 4 KB", file_open, pread_run, file_close},
    {"pwrite 4 KB", file_open, pwrite_run, file_close},
    {"stat", file_open, stat_run, file_close},
    {"open+close", file_open, open_run, file_close},
    {"pipe write+read", pipe_open, pipe_run, none},
    {"pipe round trip, 2 processes", pipes_open, trip_run, trip_close},
    {"AF_UNIX round trip", unix_open, trip_run, trip_close},
    {"TCP loopback round trip", tcp_open, trip_run, trip_close},
    {"futex ping-pong, 2 threads", futex_open, futex_run, none},
    {"signal to self", signal_open, signal_run, none},
    {"thread create+join", none, thread_run, none},
    {"fork+exit+wait", none, fork_run, none},
    {"fork+exec+wait", none, exec_run, none},
    {"posix_spawn+wait", none, spawn_run, none},
    {"fork+exit+wait, 1 GB parent", big_open, fork_run, none},
    {"fork+exec+wait, 1 GB parent", big_open, exec_run, none},
    {"posix_spawn+wait, 1 GB parent", big_open, spawn_run, none},
    {"mmap+touch 64 KB+munmap", none, mmap_run, none},
    {"page fault", none, fault_run, none},
};

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "--exit")) return 0;
    int batches = 5, first = 1;
    self = realpath("/proc/self/exe", NULL);
    if (!self) self = argv[0];
    double least = 20e6;
    for (; first + 1 < argc && argv[first][0] == '-'; first += 2) {
        if (argv[first][1] == 'n') batches = atoi(argv[first + 1]);
        if (argv[first][1] == 't') least = atof(argv[first + 1]) * 1e6;
    }
    setvbuf(stdout, NULL, _IONBF, 0);
    for (unsigned w = 0; w < sizeof all / sizeof *all; w++) {
        int k = first;
        while (k < argc && strcmp(argv[k], all[w].name)) k++;
        if (first < argc && k == argc) continue;
        // A process of its own: a workload that fails or hangs costs only itself.
        pid_t c = fork();
        MUST(c >= 0);
        if (c) {
            int st;
            while (waitpid(c, &st, 0) < 0) {}
            continue;
        }
        alarm(20);
        all[w].open();
        long n = 1;
        int64_t t = 0;
        for (;; n *= 2) {
            t = now();
            all[w].run(n);
            t = now() - t;
            if (t > least) break;
        }
        double best = (double)t / n;
        for (int i = 0; i < batches; i++) {
            t = now();
            all[w].run(n);
            t = now() - t;
            if ((double)t / n < best) best = (double)t / n;
        }
        printf("%s: %.1f\n", all[w].name, best);
        all[w].close();
        _exit(0);
    }
    return 0;
}
