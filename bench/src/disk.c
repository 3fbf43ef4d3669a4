// Operations on the files of one directory. Each row times itself and is printed as "NAME: NANOSECONDS" an operation (a
// byte rate's operation is 1 MiB); of what is repeated cheaply, the best of several batches counts.
//
// Usage: disk [-q] DIRECTORY      (-q: less of everything)
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MUST(c) do { if (!(c)) { fprintf(stderr, "%s: %s\n", #c, strerror(errno)); exit(1); } } while (0)
enum { KB = 1 << 10, MB = 1 << 20 };
static char *buffer;
static int quick, fd;
static long file_size;

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}
static void row(const char *name, double ns) { printf("%s: %.1f\n", name, ns); }

// The best of batches that take some 20 ms each.
static void repeated(const char *name, void (*run)(long)) {
    long n = 1;
    double best = 1e18;
    for (int batch = 0; batch < (quick ? 3 : 7);) {
        int64_t t = now();
        run(n);
        t = now() - t;
        if (t < 20000000 && n < 1 << 20) { n *= 2; continue; }
        if ((double)t / n < best) best = (double)t / n;
        batch++;
    }
    row(name, best);
}
static void read_small(long n) { while (n--) MUST(pread(fd, buffer, 4 * KB, (n & 63) * 4 * KB) == 4 * KB); }
static void read_large(long n) { while (n--) MUST(pread(fd, buffer, MB, 0) == MB); }
static void write_small(long n) { while (n--) MUST(pwrite(fd, buffer, 4 * KB, (n & 63) * 4 * KB) == 4 * KB); }
static void write_synced(long n) {
    while (n--) MUST(pwrite(fd, buffer, 4 * KB, (n & 63) * 4 * KB) == 4 * KB && fdatasync(fd) == 0);
}

static void sequential(const char *writes, const char *reads, int direct) {
    fd = open("large", O_RDWR | O_CREAT | O_TRUNC | (direct ? O_DIRECT : 0), 0600);
    MUST(fd >= 0);
    int64_t t = now();
    for (long at = 0; at < file_size; at += MB) MUST(pwrite(fd, buffer, MB, at) == MB);
    MUST(fsync(fd) == 0);
    row(writes, (double)(now() - t) * MB / file_size);
    t = now();
    for (long at = 0; at < file_size; at += MB) MUST(pread(fd, buffer, MB, at) == MB);
    row(reads, (double)(now() - t) * MB / file_size);
    close(fd);
}

// Random places of 4 KB in the large file, by as many threads as requests may be under way.
static int writing, threads, each;
static void *random_places(void *seed) {
    uint64_t x = (uintptr_t)seed * 0x9e3779b97f4a7c15 + 1;
    char *page = aligned_alloc(4 * KB, 4 * KB);
    memset(page, 1, 4 * KB);
    for (int i = 0; i < each; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        long at = (long)(x % (file_size / (4 * KB))) * 4 * KB;
        MUST((writing ? pwrite(fd, page, 4 * KB, at) : pread(fd, page, 4 * KB, at)) == 4 * KB);
    }
    free(page);
    return NULL;
}
static void random_direct(const char *name, int write, int depth, int count) {
    pthread_t all[32];
    fd = open("large", O_RDWR | O_DIRECT);
    MUST(fd >= 0);
    writing = write, threads = depth, each = count / depth;
    int64_t t = now();
    for (long i = 0; i < depth; i++) MUST(pthread_create(&all[i], NULL, random_places, (void *)(i + 1)) == 0);
    for (int i = 0; i < depth; i++) pthread_join(all[i], NULL);
    row(name, (double)(now() - t) / (each * depth));
    close(fd);
}

static void path(char *to, const char *kind, int i) { sprintf(to, "many/d%02d/%s%05d", i % 100, kind, i); }
static void small_files(int count) {
    char name[64], other[64];
    struct stat st;
    MUST(mkdir("many", 0755) == 0);
    for (int i = 0; i < 100; i++) { sprintf(name, "many/d%02d", i); MUST(mkdir(name, 0755) == 0); }
    int64_t t = now();
    for (int i = 0; i < count; i++) {
        path(name, "file", i);
        int f = open(name, O_WRONLY | O_CREAT | O_EXCL, 0644);
        MUST(f >= 0 && write(f, buffer, 1000) == 1000 && close(f) == 0);
    }
    row("create a file of 1 KB", (double)(now() - t) / count);
    t = now();
    for (int i = 0; i < count; i++) { path(name, "file", i); MUST(stat(name, &st) == 0 && st.st_size == 1000); }
    row("stat", (double)(now() - t) / count);
    t = now();
    for (int i = 0; i < count; i++) { path(name, "file", i), path(other, "name", i); MUST(rename(name, other) == 0); }
    row("rename", (double)(now() - t) / count);
    t = now();
    for (int i = 0; i < count; i++) { path(name, "name", i); MUST(unlink(name) == 0); }
    row("unlink", (double)(now() - t) / count);
    for (int i = 0; i < 100; i++) { sprintf(name, "many/d%02d", i); MUST(rmdir(name) == 0); }
    MUST(rmdir("many") == 0);
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    quick = argc > 2 && strcmp(argv[1], "-q") == 0;
    MUST(argc == 2 + quick && chdir(argv[1 + quick]) == 0);
    file_size = (quick ? 128L : 1024L) * MB;
    buffer = aligned_alloc(4 * KB, MB);
    memset(buffer, 'x', MB);
    MUST((fd = open("small", O_RDWR | O_CREAT | O_TRUNC, 0600)) >= 0 && write(fd, buffer, MB) == MB && fsync(fd) == 0);
    repeated("read 4 KB, cached", read_small);
    repeated("read 1 MB, cached", read_large);
    repeated("write 4 KB, cached", write_small);
    repeated("write 4 KB + fdatasync", write_synced);
    close(fd);
    small_files(quick ? 2000 : 10000);
    sequential("write 1 MB, buffered, fsync at the end", "read 1 MB, buffered", 0);
    sequential("write 1 MB, O_DIRECT", "read 1 MB, O_DIRECT", 1);
    random_direct("read 4 KB at random, O_DIRECT, depth 1", 0, 1, quick ? 1000 : 5000);
    random_direct("read 4 KB at random, O_DIRECT, depth 32", 0, 32, quick ? 4000 : 20000);
    random_direct("write 4 KB at random, O_DIRECT, depth 1", 1, 1, quick ? 1000 : 5000);
    random_direct("write 4 KB at random, O_DIRECT, depth 32", 1, 32, quick ? 4000 : 20000);
    unlink("large"), unlink("small");
    return 0;
}
