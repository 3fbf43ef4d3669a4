// TCP between a server in a runtime and a client outside. Static. Without an IP it is 127.0.0.1.
//
//   net serve PORT              one process a connection; the first byte says what it does: sink, source or echo
//   net sink|source [IP:]PORT MS   bytes a second through one connection, writes of 64 KiB: to or from the server
//   net echo [IP:]PORT MS       nanoseconds of a request of one byte and its answer, the median
//   net slices WHAT [IP:]PORT MS   a line for each 100 ms: its beginning (CLOCK_MONOTONIC, ns), the bytes or answers in it, and the
//                               longest time without any that ended in it (ns), for `sink`, `source` or `echo`; goes on with
//                               another connection when one ends
//   net flood udp|tcp IP PORT   datagrams to an address, or connections opened and closed, without an end
//   net abandon IP PORT N       N datagram sockets that have sent one each, closed all at once, again and again
//   net deaf PORT               takes connections and datagrams, and reads nothing
//   net fill IP PORT N          N connections, written to until none takes more; says "full", and waits
//   net burn                    a CPU, without an end
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SIZE (64 << 10)
static char buf[SIZE];

static void must(int good, const char *what) {
    if (!good) { perror(what); exit(1); }
}
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}
static struct sockaddr_in at(in_addr_t ip, const char *port) {
    return (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(atoi(port)), .sin_addr.s_addr = htonl(ip)};
}
static struct sockaddr_in server(const char *where) {
    const char *colon = strchr(where, ':');
    if (!colon) return at(INADDR_LOOPBACK, where);
    char ip[16] = "";
    must(colon - where < (long)sizeof ip, "an address");
    memcpy(ip, where, colon - where);
    return at(ntohl(inet_addr(ip)), colon + 1);
}
static void work(int s) {
    char what;
    int one = 1;
    setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (read(s, &what, 1) != 1) return;
    if (what == 's') while (read(s, buf, SIZE) > 0) continue;
    if (what == 'o') while (write(s, buf, SIZE) > 0) continue;
    if (what == 'e') while (read(s, buf, 1) == 1 && write(s, buf, 1) == 1) continue;
}
static int serve(const char *port) {
    struct sockaddr_in a = at(INADDR_ANY, port);
    int one = 1, l = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    must(bind(l, (void *)&a, sizeof a) == 0 && listen(l, 64) == 0, "listen");
    signal(SIGCHLD, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    for (;;) {
        int s = accept(l, NULL, NULL);
        must(s >= 0, "accept");
        if (fork() == 0) { close(l); work(s); _exit(0); }
        close(s);
    }
}
static int order(const void *a, const void *b) {
    double x = *(double *)a, y = *(double *)b;
    return (x > y) - (x < y);
}
static char letter(const char *what) { return what[0] == 'e' ? 'e' : what[1] == 'i' ? 's' : 'o'; }
// A connection to the server, which knows what it is for; -1 if there is none now.
static int call(struct sockaddr_in a, char what) {
    int one = 1, s = socket(AF_INET, SOCK_STREAM, 0);
    must(s >= 0, "socket");
    setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(s, (void *)&a, sizeof a) == 0 && write(s, &what, 1) == 1) return s;
    close(s);
    return -1;
}
#define SLICE 100e6
static int slices(char what, const char *where, double ms) {
    struct sockaddr_in a = server(where);
    size_t count = ms * 1e6 / SLICE;
    double *done = calloc(count, sizeof *done), *longest = calloc(count, sizeof *longest), begun = now(), last = begun;
    must(done && longest, "calloc");
    signal(SIGPIPE, SIG_IGN);
    for (int s = -1;;) {
        size_t i = (now() - begun) / SLICE;
        if (i >= count) break;
        if (s < 0 && (s = call(a, what)) < 0) continue;
        ssize_t n = what == 'o' ? read(s, buf, SIZE) : write(s, buf, what == 'e' ? 1 : SIZE);
        if (n > 0 && what == 'e') n = read(s, buf, 1);
        if (n <= 0) {
            close(s);
            s = -1;
            continue;
        }
        // It counts where it ended.
        double t = now();
        if ((i = (t - begun) / SLICE) >= count) break;
        done[i] += n;
        if (t - last > longest[i]) longest[i] = t - last;
        last = t;
    }
    for (size_t i = 0; i < count; i++) printf("%.0f %.0f %.0f\n", begun + i * SLICE, done[i], longest[i]);
    return 0;
}
static void flood(const char *kind, const char *ip, const char *port) {
    struct sockaddr_in a = at(ntohl(inet_addr(ip)), port);
    int datagrams = kind[0] == 'u', s = -1;
    for (;;) {
        // Whatever comes of it: it may be refused or find no room.
        if (s < 0) s = socket(AF_INET, datagrams ? SOCK_DGRAM : SOCK_STREAM, 0);
        must(s >= 0, "socket");
        if (datagrams) {
            sendto(s, buf, 1024, MSG_DONTWAIT, (void *)&a, sizeof a);
            continue;
        }
        connect(s, (void *)&a, sizeof a);
        close(s);
        s = -1;
    }
}
static void abandon(const char *ip, const char *port, int n) {
    struct sockaddr_in a = at(ntohl(inet_addr(ip)), port);
    for (;;) {
        pid_t child = fork();
        must(child >= 0, "fork");
        if (child > 0) { waitpid(child, NULL, 0); continue; }
        for (int i = 0, s; i < n && (s = socket(AF_INET, SOCK_DGRAM, 0)) >= 0; i++) sendto(s, buf, 64, MSG_DONTWAIT, (void *)&a, sizeof a);
        _exit(0);
    }
}
static void deaf(const char *port) {
    struct sockaddr_in a = at(INADDR_ANY, port);
    int l = socket(AF_INET, SOCK_STREAM, 0), d = socket(AF_INET, SOCK_DGRAM, 0);
    must(bind(l, (void *)&a, sizeof a) == 0 && listen(l, 4096) == 0 && bind(d, (void *)&a, sizeof a) == 0, "listen");
    for (;;) must(accept(l, NULL, NULL) >= 0, "accept");
}
static void fill(const char *ip, const char *port, int n) {
    struct sockaddr_in a = at(ntohl(inet_addr(ip)), port);
    for (int i = 0; i < n; i++) {
        int s = socket(AF_INET, SOCK_STREAM, 0), tries = 0;
        // The other one may not listen yet.
        while (s >= 0 && connect(s, (void *)&a, sizeof a) && errno == ECONNREFUSED && tries++ < 500) usleep(10000);
        must(s >= 0 && tries <= 500, "connect");
        while (send(s, buf, SIZE, MSG_DONTWAIT) > 0) continue;
    }
    puts("full");
    fflush(stdout);
    for (;;) pause();
}
// As many descriptors as it may have.
static void many(void) {
    struct rlimit most;
    must(getrlimit(RLIMIT_NOFILE, &most) == 0, "getrlimit");
    most.rlim_cur = most.rlim_max;
    must(setrlimit(RLIMIT_NOFILE, &most) == 0, "setrlimit");
}
int main(int argc, char **argv) {
    many();
    if (argc == 5 && !strcmp(argv[1], "abandon")) abandon(argv[2], argv[3], atoi(argv[4]));
    if (argc == 3 && !strcmp(argv[1], "deaf")) deaf(argv[2]);
    if (argc == 5 && !strcmp(argv[1], "fill")) fill(argv[2], argv[3], atoi(argv[4]));
    if (argc == 3 && !strcmp(argv[1], "serve")) return serve(argv[2]);
    if (argc == 5 && !strcmp(argv[1], "slices")) return slices(letter(argv[2]), argv[3], atof(argv[4]));
    if (argc == 5 && !strcmp(argv[1], "flood")) flood(argv[2], argv[3], argv[4]);
    if (argc == 2 && !strcmp(argv[1], "burn")) for (volatile unsigned n = 0;; n++);
    if (argc != 4) return fprintf(stderr, "see net.c\n"), 2;
    struct sockaddr_in a = server(argv[2]);
    int one = 1, s = socket(AF_INET, SOCK_STREAM, 0);
    must(connect(s, (void *)&a, sizeof a) == 0, "connect");
    setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    char what = letter(argv[1]);
    must(write(s, &what, 1) == 1, "write");
    double bytes = 0, begun = now(), end = begun + atof(argv[3]) * 1e6;
    if (what == 'e') {
        static double took[1 << 20];
        size_t n = 0;
        for (double t = begun; t < end && n < sizeof took / sizeof *took; n++) {
            must(write(s, buf, 1) == 1 && read(s, buf, 1) == 1, "echo");
            double u = now();
            took[n] = u - t;
            t = u;
        }
        qsort(took, n, sizeof *took, order);
        return printf("%f\n", took[n / 2]), 0;
    }
    while (now() < end) {
        ssize_t n = what == 's' ? write(s, buf, SIZE) : read(s, buf, SIZE);
        must(n > 0, argv[1]);
        bytes += n;
    }
    return printf("%f\n", bytes / ((now() - begun) / 1e9)), 0;
}
