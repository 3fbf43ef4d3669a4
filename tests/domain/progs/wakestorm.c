// Random ping-pong among threads of many processes: wakestorm SEED SECONDS
//
// Every node (a thread) waits at its mailbox (a pipe, a pipe with poll, a datagram socket or a shared futex) and
// passes each token on to a random node, after a random pause of 0-60 µs now and then. A lost wake-up stops a token;
// with a single token in flight everything stops, and the parent says so. Now and then the parent kills a process
// with SIGKILL, starts it again, and puts new tokens of a new generation in flight; older ones are dropped.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PROCESSES = 7, THREADS = 3, NODES = PROCESSES * THREADS, SLOTS = 16, STALL_MS = 15000 };
#define MUST(c) do { if (!(c)) { perror(#c); _exit(1); } } while (0)

struct shared {
    uint32_t generation;
    uint64_t hops[NODES];
    struct { uint32_t seq, slot[SLOTS]; } box[NODES];
};
static struct shared *s;
static int in[NODES], out[NODES];

static int64_t ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

static uint32_t rnd(uint64_t *x) {
    *x ^= *x << 13, *x ^= *x >> 7, *x ^= *x << 17;
    return *x >> 20;
}

static void post(int to, uint32_t token) {
    if (to % 4 != 3) {
        MUST(write(out[to], &token, 4) == 4);
        return;
    }
    // As many slots as there can be tokens of two generations.
    for (int i = 0;; i = (i + 1) % SLOTS) {
        uint32_t empty = 0;
        if (__atomic_compare_exchange_n(&s->box[to].slot[i], &empty, token, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) break;
    }
    __atomic_add_fetch(&s->box[to].seq, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, &s->box[to].seq, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static uint32_t take(int me) {
    uint32_t token;
    if (me % 4 == 1) {
        struct pollfd p = {.fd = in[me], .events = POLLIN};
        MUST(poll(&p, 1, me & 8 ? -1 : 100000) == 1);
    }
    if (me % 4 != 3) {
        MUST(read(in[me], &token, 4) == 4);
        return token;
    }
    for (;;) {
        uint32_t seen = __atomic_load_n(&s->box[me].seq, __ATOMIC_SEQ_CST);
        for (int i = 0; i < SLOTS; i++)
            if ((token = __atomic_exchange_n(&s->box[me].slot[i], 0, __ATOMIC_SEQ_CST))) return token;
        long r = syscall(SYS_futex, &s->box[me].seq, FUTEX_WAIT, seen, NULL, NULL, 0);
        MUST(r == 0 || errno == EAGAIN || errno == EINTR);
    }
}

static void *node(void *arg) {
    int me = (int)(intptr_t)arg;
    uint64_t x = (uint64_t)ms() * 2654435761u + me * 977 + getpid();
    for (;;) {
        uint32_t token = take(me);
        if (token != __atomic_load_n(&s->generation, __ATOMIC_SEQ_CST)) continue;
        __atomic_add_fetch(&s->hops[me], 1, __ATOMIC_RELAXED);
        if (rnd(&x) % 16 == 0) for (volatile int k = rnd(&x) % 60000; k > 0; k--) {}
        // Mostly near: the same process, or the same few nodes for a while.
        uint32_t r = rnd(&x);
        int near = me / THREADS * THREADS + r / 3 % THREADS, fixed = (me + NODES / 2) % NODES, any = r / 3 % NODES;
        post(r % 3 == 0 ? near : r % 3 == 1 ? fixed : any, token);
    }
    return NULL;
}

static pid_t start(int p) {
    pid_t c = fork();
    MUST(c >= 0);
    if (c) return c;
    pthread_t t;
    for (int i = 1; i < THREADS; i++) MUST(pthread_create(&t, NULL, node, (void *)(intptr_t)(p * THREADS + i)) == 0);
    node((void *)(intptr_t)(p * THREADS));
    return 0;
}

static uint64_t hops(void) {
    uint64_t n = 0;
    for (int i = 0; i < NODES; i++) n += __atomic_load_n(&s->hops[i], __ATOMIC_RELAXED);
    return n;
}

int main(int argc, char **argv) {
    MUST(argc == 3);
    uint64_t x = strtoull(argv[1], NULL, 0) * 2654435761u + 1;
    int64_t end = ms() + (int64_t)(atof(argv[2]) * 1000);
    s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MUST(s != MAP_FAILED);
    for (int i = 0; i < NODES; i++) {
        int p[2];
        if (i % 4 == 2) MUST(socketpair(AF_UNIX, SOCK_DGRAM, 0, p) == 0);
        else MUST(pipe(p) == 0);
        in[i] = p[0], out[i] = p[1];
    }
    pid_t pids[PROCESSES];
    for (int p = 0; p < PROCESSES; p++) pids[p] = start(p);
    int kills = 0;
    uint64_t seen = 0;
    while (ms() < end) {
        uint32_t g = __atomic_add_fetch(&s->generation, 1, __ATOMIC_SEQ_CST);
        // One token most of the time: then nothing else covers up a lost wake-up.
        for (int tokens = rnd(&x) % 3 ? 1 : 1 + rnd(&x) % 4; tokens > 0; tokens--) post(rnd(&x) % NODES, g);
        int64_t until = ms() + 50 + rnd(&x) % 200, last = ms();
        while (ms() < until) {
            usleep(1000 + rnd(&x) % 20000);
            uint64_t now = hops();
            if (now != seen) seen = now, last = ms();
            else if (until = ms() + 100, ms() - last > STALL_MS) {
                printf("stalled after %lu hops, %d kills\n", (unsigned long)now, kills);
                for (int p = 0; p < PROCESSES; p++) kill(pids[p], SIGKILL);
                return 1;
            }
        }
        int p = rnd(&x) % PROCESSES;
        MUST(kill(pids[p], SIGKILL) == 0);
        int st;
        MUST(waitpid(pids[p], &st, 0) == pids[p] && WIFSIGNALED(st) && WTERMSIG(st) == SIGKILL);
        pids[p] = start(p);
        kills++;
    }
    for (int p = 0; p < PROCESSES; p++) kill(pids[p], SIGKILL);
    for (int p = 0; p < PROCESSES; p++) waitpid(pids[p], NULL, 0);
    printf("ok: %lu hops, %d kills\n", (unsigned long)hops(), kills);
    return 0;
}
