// What is done to files of a disk by block size, over time, by many at once, and by who is not wanted. Static.
//
//   storage blocks [-q] WHERE       writes 16 MiB in chunks of each size: "write by SIZE: MB/s" into a new file, and "overwrite by
//                                   SIZE: MB/s" over it, the best of several; WHERE is a directory, or a block device,
//                                   of which the first 16 MiB are overwritten
//   storage flow DIRECTORY MS       writes a file on and on, 64 KiB at a time: a line for each 100 ms with its beginning
//                                   (CLOCK_MONOTONIC, ns), the bytes, and the longest write that ended in it (ns)
//   storage load pages|synced|names DIRECTORY AT SECONDS THREADS
//                                   from the wall clock AT (seconds since 1970) on, transactions of four reads and a write of
//                                   16 KiB at random places of a file, or of those and an fdatasync, or of a file made,
//                                   renamed and removed: prints how many; "late" if it was not ready by then
//   storage hog compute|write|create DIRECTORY SECONDS
//                                   takes a CPU, the disk (sustained writes), or names (small files in large directories)
//   storage hold DIRECTORY N        makes N files and keeps them open; says "held", and waits
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MUST(c) do { if (!(c)) { fprintf(stderr, "%s: %s\n", #c, strerror(errno)); exit(1); } } while (0)
enum { KB = 1 << 10, MB = 1 << 20, PAGE = 16 * KB, PAGES = 4096, LARGEST = 2 * MB };
static char *buffer;

static double clock_of(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}
static double now(void) { return clock_of(CLOCK_MONOTONIC); }

// Writes so much in chunks, in seconds; less than `best` is the best.
static void filled(double *best, const char *path, int flags, long size, long all) {
    int fd = open(path, O_WRONLY | flags, 0600);
    MUST(fd >= 0);
    double t = now();
    for (long at = 0; at < all; at += size) MUST(write(fd, buffer, size) == size);
    t = now() - t;
    close(fd);
    if (t < *best) *best = t;
}
static int blocks(const char *where, int quick) {
    static const long sizes[] = {32, 128, 512, 2 * KB, 8 * KB, 32 * KB, 128 * KB, 512 * KB, 2 * MB};
    char path[4096], name[32];
    struct stat st;
    MUST(stat(where, &st) == 0);
    int device = S_ISBLK(st.st_mode);
    snprintf(path, sizeof path, device ? "%s" : "%s/blocks", where);
    for (int i = 0; i < 9; i++) {
        // Of small chunks it is the calls that take time.
        long size = sizes[i], all = quick && size < 2 * KB ? 2 * MB : 16 * MB;
        double made = 1e9, over = 1e9;
        for (int batch = 0; batch < (quick ? 2 : 5); batch++) {
            if (!device) filled(&made, path, O_CREAT | O_EXCL, size, all);
            filled(&over, path, 0, size, all);
            if (!device) MUST(unlink(path) == 0);
        }
        if (size < KB) sprintf(name, "%ld B", size);
        else if (size < MB) sprintf(name, "%ld KB", size / KB);
        else sprintf(name, "%ld MB", size / MB);
        if (!device) printf("write by %s: %.3f\n", name, all / made / 1e6);
        printf("overwrite by %s: %.3f\n", name, all / over / 1e6);
    }
    return 0;
}

static int flow(double ms) {
    const double slice = 0.1;
    long count = ms / 1000 / slice, at = 0;
    double *done = calloc(count, sizeof *done), *longest = calloc(count, sizeof *longest);
    int fd = open("flow", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    MUST(done && longest && fd >= 0);
    for (double begun = now(), last = begun;;) {
        MUST(pwrite(fd, buffer, 64 * KB, at) == 64 * KB);
        at = (at + 64 * KB) % (256L * MB);
        // It counts where it ended.
        double t = now();
        long i = (t - begun) / slice;
        if (i >= count) {
            for (i = 0; i < count; i++) printf("%.0f %.0f %.0f\n", (begun + i * slice) * 1e9, done[i], longest[i] * 1e9);
            return 0;
        }
        done[i] += 64 * KB;
        if (t - last > longest[i]) longest[i] = t - last;
        last = t;
    }
}

static int file, synced, names;
static double end;
static void *transactions(void *seed) {
    uint64_t x = (uintptr_t)seed * 0x9e3779b97f4a7c15 + 1;
    char *page = aligned_alloc(PAGE, PAGE), made[32], other[32];
    long n = 0;
    MUST(page != NULL);
    sprintf(made, "made-%ld", (long)seed), sprintf(other, "other-%ld", (long)seed);
    for (; clock_of(CLOCK_REALTIME) < end; n++) {
        if (names) {
            int fd = open(made, O_WRONLY | O_CREAT | O_EXCL, 0600);
            MUST(fd >= 0 && close(fd) == 0 && rename(made, other) == 0 && unlink(other) == 0);
            continue;
        }
        for (int i = 0; i < 5; i++) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            long at = (long)(x % PAGES) * PAGE;
            MUST((i < 4 ? pread(file, page, PAGE, at) : pwrite(file, page, PAGE, at)) == PAGE);
        }
        if (synced) MUST(fdatasync(file) == 0);
    }
    free(page);
    return (void *)n;
}
static int load(const char *what, double at, double seconds, int threads) {
    pthread_t all[16];
    long sum = 0;
    synced = !strcmp(what, "synced"), names = !strcmp(what, "names");
    MUST(threads <= 16 && (file = open("pages", O_RDWR | O_CREAT | O_TRUNC, 0600)) >= 0);
    for (long i = 0; i < PAGES / 64; i++) MUST(write(file, buffer, 64 * PAGE) == 64 * PAGE);
    MUST(fdatasync(file) == 0);
    if (clock_of(CLOCK_REALTIME) > at) return puts("late"), 0;
    while (clock_of(CLOCK_REALTIME) < at) usleep(1000);
    end = at + seconds;
    for (long i = 0; i < threads; i++) MUST(pthread_create(&all[i], NULL, transactions, (void *)(i + 1)) == 0);
    for (int i = 0; i < threads; i++) {
        void *n;
        MUST(pthread_join(all[i], &n) == 0);
        sum += (long)n;
    }
    return printf("%ld\n", sum), 0;
}

// What is refused it tries again.
static void hog(const char *what, double until) {
    char name[64];
    if (!strcmp(what, "compute"))
        for (volatile unsigned n = 0; n % (1 << 20) || now() < until; n++);
    else if (!strcmp(what, "write")) {
        int fd = open("hog", O_WRONLY | O_CREAT | O_TRUNC, 0600);
        MUST(fd >= 0);
        for (long at = 0; now() < until; at = (at + MB) % (1024L * MB)) {
            if (pwrite(fd, buffer, MB, at) != MB) usleep(1000);
            if (at % (64 * MB) == 0) fdatasync(fd);
        }
    } else
        for (long n = 0; now() < until; n++) {
            // Made, and removed when as many others have been made.
            snprintf(name, sizeof name, "small-%ld", n % 20000);
            if (unlink(name) && errno != ENOENT) usleep(1000);
            int fd = open(name, O_WRONLY | O_CREAT | O_EXCL, 0600);
            if (fd < 0) { usleep(1000); continue; }
            if (write(fd, buffer, KB) != KB) usleep(1000);
            close(fd);
        }
}
static void hold(int n) {
    struct rlimit most;
    char name[64];
    MUST(getrlimit(RLIMIT_NOFILE, &most) == 0);
    // As root it may have more than it has been given.
    most.rlim_cur = (rlim_t)n + 64;
    if (most.rlim_max < most.rlim_cur) most.rlim_max = most.rlim_cur;
    MUST(setrlimit(RLIMIT_NOFILE, &most) == 0);
    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof name, "held-%d", i);
        int fd = open(name, O_RDWR | O_CREAT, 0600);
        MUST(fd >= 0 && write(fd, buffer, KB) == KB);
    }
    sync();
    puts("held");
    for (;;) pause();
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    MUST((buffer = aligned_alloc(4 * KB, LARGEST)) != NULL);
    memset(buffer, 'x', LARGEST);
    const char *what = argc > 2 ? argv[1] : "";
    int quick = !strcmp(what, "blocks") && !strcmp(argv[2], "-q");
    if (!strcmp(what, "blocks") && argc == 3 + quick) return blocks(argv[2 + quick], quick);
    int named = !strcmp(what, "hog") || !strcmp(what, "load") ? 3 : 2;
    if (argc > named) MUST(chdir(argv[named]) == 0);
    if (!strcmp(what, "flow") && argc == 4) return flow(atof(argv[3]));
    if (!strcmp(what, "load") && argc == 7) return load(argv[2], atof(argv[4]), atof(argv[5]), atoi(argv[6]));
    if (!strcmp(what, "hog") && argc == 5) return hog(argv[2], now() + atof(argv[4])), 0;
    if (!strcmp(what, "hold") && argc == 4) hold(atoi(argv[3]));
    return fprintf(stderr, "see storage.c\n"), 2;
}
