// How late sleeps of 2 to 5 ms end beside more busy threads of the same process than there are CPUs: the median in
// nanoseconds.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { SLEEPS = 200 };

static long long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int compare(const void *a, const void *b) {
    long long x = *(long long *)a, y = *(long long *)b;
    return x < y ? -1 : x > y;
}

static void *compute(void *arg) {
    for (volatile long i = 0;; i++) {}
    return arg;
}

int main(void) {
    static long long late[SLEEPS];
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    for (long i = 0; i < cpus + 1; i++) {
        pthread_t t;
        if (pthread_create(&t, NULL, compute, NULL) != 0) return 1;
    }
    for (int i = 0; i < SLEEPS; i++) {
        struct timespec t = {0, 2000000 + i % 4 * 1000000};
        long long start = now();
        nanosleep(&t, NULL);
        late[i] = now() - start - t.tv_nsec;
    }
    qsort(late, SLEEPS, sizeof *late, compare);
    printf("%lld\n", late[SLEEPS / 2]);
    return 0;
}
