// Memory that leaves and comes back under everything that a program does with it. Every page has a header that says what the rest
// of it is; whoever looks checks all of it. Arguments: MiB, seconds.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, WORDS = PAGE / 8, THREADS = 3 };

static uint64_t *area;
static size_t pages;
static atomic_int over;
static atomic_long rounds[8];

static void fail(const char *what, size_t page, uint64_t got) {
    printf("not ok %s: page %zu has %llx (errno %d)\n", what, page, (unsigned long long)got, errno);
    fflush(stdout);
    _exit(1);
}

static uint64_t mix(uint64_t x) {
    x ^= x >> 33, x *= 0xff51afd7ed558ccdull, x ^= x >> 29;
    return x;
}

// Number and version of a page: all other words follow from that.
static void fill(uint64_t *p, size_t n, uint64_t version) {
    p[0] = n, p[1] = version;
    for (int i = 2; i < WORDS; i++) p[i] = mix(n * 1000003 + version + i);
}

static void check(const char *what, const uint64_t *p, size_t n) {
    if (p[0] != n) fail(what, n, p[0]);
    for (int i = 2; i < WORDS; i++)
        if (p[i] != mix(n * 1000003 + p[1] + i)) fail(what, n, p[i]);
}

// Each thread has its own pages, every THREADS-th.
static void *worker(void *arg) {
    size_t me = (size_t)arg;
    uint64_t x = me * 77 + 1;
    while (!over) {
        x = mix(x + 1);
        size_t n = x % (pages / THREADS) * THREADS + me;
        uint64_t *p = area + n * WORDS;
        check("thread", p, n);
        if (x & 1 << 20) fill(p, n, p[1] + 1);
        rounds[0]++;
    }
    return 0;
}

// Locks and condition variables far apart in memory that leaves.
static struct pair {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    long turn;
} *pairs[16];

static void *waiter(void *arg) {
    long me = (long)arg;
    while (!over) {
        for (int i = 0; i < 16; i++) {
            struct pair *q = pairs[i];
            pthread_mutex_lock(&q->lock);
            while (q->turn % 2 != me && !over) {
                struct timespec t;
                clock_gettime(CLOCK_REALTIME, &t);
                t.tv_nsec += 50000000;
                if (t.tv_nsec >= 1000000000) t.tv_sec++, t.tv_nsec -= 1000000000;
                pthread_cond_timedwait(&q->cond, &q->lock, &t);
            }
            q->turn++;
            pthread_cond_signal(&q->cond);
            pthread_mutex_unlock(&q->lock);
            rounds[1]++;
        }
    }
    return 0;
}

// A child sees what its parent had at the fork, whatever both write afterwards. No thread writes these pages.
static void forks(uint64_t *mine, size_t n) {
    for (size_t i = 0; i < n; i++) check("before fork", mine + i * WORDS, i);
    int to[2];
    if (pipe(to)) fail("pipe", 0, 0);
    uint64_t version = mine[1];
    pid_t child = fork();
    if (child < 0) fail("fork", 0, 0);
    if (child == 0) {
        char c;
        for (size_t i = 0; i < n; i += 3) fill(mine + i * WORDS, i, 1000000);
        if (read(to[0], &c, 1) != 1) _exit(2);
        for (size_t i = 0; i < n; i++) {
            check("child", mine + i * WORDS, i);
            if (mine[i * WORDS + 1] != (i % 3 ? version : 1000000)) fail("child's version", i, mine[i * WORDS + 1]);
        }
        _exit(0);
    }
    for (size_t i = 0; i < n; i++) fill(mine + i * WORDS, i, version + 1);
    usleep(30000);
    if (write(to[1], "x", 1) != 1) fail("write", 0, 0);
    int status;
    if (waitpid(child, &status, 0) != child || status) fail("child's status", 0, status);
    close(to[0]), close(to[1]);
    for (size_t i = 0; i < n; i++) {
        check("after fork", mine + i * WORDS, i);
        if (mine[i * WORDS + 1] != version + 1) fail("parent's version", i, mine[i * WORDS + 1]);
    }
    rounds[2]++;
}

// mremap, mprotect, madvise, munmap and calls of the kernel on memory that is out.
static void changes(size_t n) {
    uint64_t *m = mmap(0, n * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (m == MAP_FAILED) fail("mmap", 0, 0);
    for (size_t i = 0; i < n; i++) fill(m + i * WORDS, i, i);
    usleep(300000);
    if (mprotect(m, n * PAGE, PROT_READ)) fail("mprotect", 0, 0);
    for (size_t i = 0; i < n; i += 2) check("read-only", m + i * WORDS, i);
    usleep(100000);
    if (mprotect(m, n * PAGE, PROT_READ | PROT_WRITE)) fail("mprotect", 1, 0);
    m = mremap(m, n * PAGE, 2 * n * PAGE, MREMAP_MAYMOVE);
    if (m == MAP_FAILED) fail("mremap", 0, 0);
    for (size_t i = 0; i < n; i++) check("moved", m + i * WORDS, i);
    for (size_t i = n; i < 2 * n; i++)
        if (m[i * WORDS] != 0) fail("new pages", i, m[i * WORDS]);
    usleep(200000);
    if (madvise(m + n / 4 * WORDS, n / 4 * PAGE, MADV_DONTNEED)) fail("madvise", 0, 0);
    for (size_t i = 0; i < n; i++) {
        if (i >= n / 4 && i < n / 4 * 2) {
            for (int k = 0; k < WORDS; k++)
                if (m[i * WORDS + k]) fail("dropped", i, m[i * WORDS + k]);
        } else check("kept", m + i * WORDS, i);
    }
    if (munmap(m + n / 2 * WORDS, PAGE * (n / 4))) fail("munmap", 0, 0);
    usleep(200000);
    int s[2];
    char *buf = malloc(PAGE);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, s)) fail("socketpair", 0, 0);
    for (size_t i = n / 4 * 3; i < n; i++) {
        if (write(s[0], m + i * WORDS, PAGE) != PAGE) fail("write of a page", i, 0);
        // The destination may be out as well.
        uint64_t *to = m + (i - n / 2) * WORDS;
        ssize_t got = recv(s[1], to, PAGE, MSG_WAITALL);
        if (got != PAGE) fail("read of a page", i, got);
        check("through the kernel", to, i);
    }
    close(s[0]), close(s[1]), free(buf);
    munmap(m, 2 * n * PAGE);
    rounds[3]++;
}

int main(int argc, char **argv) {
    size_t mib = argc > 1 ? atoi(argv[1]) : 64;
    int seconds = argc > 2 ? atoi(argv[2]) : 5;
    pages = mib * 256 / THREADS * THREADS;
    area = mmap(0, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    size_t mine = 1500;
    uint64_t *own = mmap(0, mine * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (area == MAP_FAILED || own == MAP_FAILED) fail("mmap", 0, 0);
    for (size_t i = 0; i < pages; i++) fill(area + i * WORDS, i, 1);
    for (size_t i = 0; i < mine; i++) fill(own + i * WORDS, i, 1);
    char *spread = mmap(0, 16 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(spread, 1, 16 << 20);
    for (int i = 0; i < 16; i++) {
        pairs[i] = (struct pair *)(spread + (i << 20) + 64);
        pthread_mutex_init(&pairs[i]->lock, 0);
        pthread_cond_init(&pairs[i]->cond, 0);
        pairs[i]->turn = 0;
    }
    pthread_t t[THREADS + 2];
    for (size_t i = 0; i < THREADS; i++) pthread_create(&t[i], 0, worker, (void *)i);
    for (long i = 0; i < 2; i++) pthread_create(&t[THREADS + i], 0, waiter, (void *)i);
    printf("up\n");
    fflush(stdout);
    for (time_t end = time(0) + seconds; time(0) < end;) {
        forks(own, mine);
        changes(2048);
    }
    over = 1;
    for (int i = 0; i < THREADS + 2; i++) pthread_join(t[i], 0);
    for (size_t i = 0; i < pages; i++) check("end", area + i * WORDS, i);
    printf("ok %ld checks, %ld turns, %ld forks, %ld changes\n", rounds[0], rounds[1], rounds[2], rounds[3]);
    return 0;
}
