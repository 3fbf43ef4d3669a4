// Reads with O_DIRECT, 32 at once, by io_uring: direct FILE SECONDS. Each page of the file has its number.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define CHECK(x) ((x) ? (void)0 : (fprintf(stderr, "line %d: %s, errno %d\n", __LINE__, #x, errno), exit(1)))
#define PAGES 4096
#define DEPTH 32

int main(int argc, char **argv) {
    CHECK(argc == 3);
    static uint64_t page[512];
    int fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0);
    for (uint64_t i = 0; i < PAGES; i++) {
        for (int j = 0; j < 512; j++) page[j] = i * 512 + j;
        CHECK(write(fd, page, 4096) == 4096);
    }
    CHECK(!fsync(fd) && !close(fd) && (fd = open(argv[1], O_RDONLY | O_DIRECT)) >= 0);
    struct io_uring_params q = {0};
    int ring = syscall(SYS_io_uring_setup, DEPTH, &q);
    CHECK(ring >= 0);
    const int RW = PROT_READ | PROT_WRITE;
    char *m = mmap(0, q.sq_off.array + DEPTH * 4, RW, MAP_SHARED, ring, IORING_OFF_SQ_RING);
    struct io_uring_sqe *sqes = mmap(0, DEPTH * sizeof *sqes, RW, MAP_SHARED, ring, IORING_OFF_SQES);
    uint64_t(*to)[512] = mmap(0, DEPTH * 4096, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(m != MAP_FAILED && sqes != MAP_FAILED && to != MAP_FAILED);
    struct io_uring_cqe *cqes = (void *)(m + q.cq_off.cqes);
    unsigned *tail = (void *)(m + q.sq_off.tail), *array = (void *)(m + q.sq_off.array);
    unsigned *head = (void *)(m + q.cq_off.head), *end = (void *)(m + q.cq_off.tail), n = 0, x = 1;
    uint64_t wanted[DEPTH];
    int idle[DEPTH];
    for (int i = 0; i < DEPTH; i++) idle[n++] = i;
    long done = 0, under_way = 0;
    for (time_t over = time(0) + atoi(argv[2]); under_way || time(0) < over;) {
        unsigned t = *tail, k = 0;
        while (n && time(0) < over) {
            int i = idle[--n];
            unsigned place = (t + k++) % DEPTH;
            wanted[i] = (x = x * 1103515245 + 12345) >> 8 & (PAGES - 1);
            sqes[place] = (struct io_uring_sqe){.opcode = IORING_OP_READ, .fd = fd, .off = wanted[i] * 4096,
                .addr = (uintptr_t)to[i], .len = 4096, .user_data = i};
            array[place] = place;
        }
        __atomic_store_n(tail, t + k, __ATOMIC_RELEASE);
        under_way += k;
        if (!under_way) break;
        CHECK(syscall(SYS_io_uring_enter, ring, k, 1, IORING_ENTER_GETEVENTS, 0, 0) == k);
        for (; *head != __atomic_load_n(end, __ATOMIC_ACQUIRE); done++, under_way--) {
            struct io_uring_cqe *c = &cqes[*head & (q.cq_entries - 1)];
            CHECK(c->res == 4096 && to[c->user_data][0] == wanted[c->user_data] * 512);
            CHECK(to[c->user_data][511] == wanted[c->user_data] * 512 + 511);
            memset(to[c->user_data], 0xff, 4096);
            idle[n++] = c->user_data;
            __atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
        }
    }
    CHECK(done > 1000);
    printf("direct ok, %ld\n", done);
    return 0;
}
