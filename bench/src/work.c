// Work that is counted, and neighbours nobody wants. Static.
//
//   work units N                N units of computation (about 1 ms each); prints nothing
//   work count AT SECONDS N [BEFORE]   from the wall clock AT (seconds since 1970) on, SECONDS long, N processes: prints the
//                               units they have done; they compute from BEFORE seconds before that; "late" if it
//                               began after AT
//   work serve AT SECONDS       likewise, a client that asks a server of another process every millisecond: prints the
//                               median and the 99th percentile of the time to the answer, in nanoseconds
//   work hog fork|memory|disk|cpu SECONDS    takes what it can get, then ends, whatever has been refused
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}
static volatile uint64_t sink;
static void unit(void) {
    uint64_t x = 88172645463325252u;
    for (int i = 0; i < 400000; i++) x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    sink = x;
}
static void burn(double until) {
    while (now(CLOCK_MONOTONIC) < until) unit();
}
static void hog(const char *what, double until) {
    if (!strcmp(what, "fork")) {
        // Every process makes more, and none ends.
        signal(SIGCHLD, SIG_IGN);
        while (now(CLOCK_MONOTONIC) < until)
            if (fork() < 0) usleep(1000);
    } else if (!strcmp(what, "memory")) {
        // A part of it that is refused or fatal is another process's next attempt.
        while (now(CLOCK_MONOTONIC) < until) {
            pid_t c = fork();
            if (c == 0) {
                while (now(CLOCK_MONOTONIC) < until) {
                    char *m = mmap(NULL, 1 << 24, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                    if (m == MAP_FAILED) usleep(1000);
                    else memset(m, 1, 1 << 24);
                }
                _exit(0);
            }
            if (c < 0) usleep(1000);
            else waitpid(c, NULL, 0);
        }
    } else if (!strcmp(what, "disk")) {
        static char block[1 << 20];
        memset(block, 'x', sizeof block);
        for (long i = 0; now(CLOCK_MONOTONIC) < until; i++) {
            char name[64];
            snprintf(name, sizeof name, "/tmp/hog-%ld", i % 4096);
            int f = open(name, O_CREAT | O_WRONLY | O_TRUNC, 0600);
            if (f < 0) { usleep(1000); continue; }
            for (int k = 0; k < 16; k++)
                if (write(f, block, sizeof block) < (long)sizeof block) { usleep(1000); break; }
            fsync(f);
            close(f);
        }
    } else {
        for (int i = 0; i < 7; i++)
            if (fork() == 0) { burn(until); _exit(0); }
        burn(until);
    }
}

static void wait_for(double at) {
    while (now(CLOCK_REALTIME) < at) usleep(1000);
}
static int count(double at, double seconds, int processes, double before) {
    int p[2];
    long sum = 0, n;
    if (pipe(p)) return 1;
    if (now(CLOCK_REALTIME) > at) return puts("late"), 0;
    for (int i = 0; i < processes; i++) {
        pid_t c = fork();
        if (c < 0) return 1;
        if (c) continue;
        n = 0;
        wait_for(at - before);
        while (now(CLOCK_REALTIME) < at) unit();
        for (; now(CLOCK_REALTIME) < at + seconds; n++) unit();
        _exit(write(p[1], &n, sizeof n) != sizeof n);
    }
    for (int i = 0; i < processes; i++) {
        if (read(p[0], &n, sizeof n) != sizeof n) return 1;
        sum += n;
    }
    return printf("%ld\n", sum), 0;
}
static int order(const void *a, const void *b) {
    double x = *(double *)a, y = *(double *)b;
    return (x > y) - (x < y);
}
static int serve(double at, double seconds) {
    static double took[100000];
    int s[2], n = 0;
    char c = 0;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, s)) return 1;
    pid_t server = fork();
    if (server < 0) return 1;
    if (server == 0) {
        close(s[1]);
        while (read(s[0], &c, 1) == 1 && write(s[0], &c, 1) == 1) continue;
        _exit(0);
    }
    wait_for(at);
    while (now(CLOCK_REALTIME) < at + seconds && n < 100000) {
        double t = now(CLOCK_MONOTONIC);
        if (write(s[1], &c, 1) != 1 || read(s[1], &c, 1) != 1) return 1;
        took[n++] = now(CLOCK_MONOTONIC) - t;
        usleep(1000);
    }
    qsort(took, n, sizeof *took, order);
    return printf("%.0f %.0f\n", took[n / 2] * 1e9, took[n * 99 / 100] * 1e9), 0;
}

int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "units")) {
        for (long n = atol(argv[2]); n > 0; n--) unit();
        return 0;
    }
    if ((argc == 5 || argc == 6) && !strcmp(argv[1], "count"))
        return count(atof(argv[2]), atof(argv[3]), atoi(argv[4]), argc == 6 ? atof(argv[5]) : 0);
    if (argc == 4 && !strcmp(argv[1], "serve")) return serve(atof(argv[2]), atof(argv[3]));
    if (argc == 4 && !strcmp(argv[1], "hog")) return hog(argv[2], now(CLOCK_MONOTONIC) + atof(argv[3])), 0;
    return fprintf(stderr, "work units N | count AT SECONDS N [BEFORE] | serve AT SECONDS | hog WHAT SECONDS\n"), 2;
}
