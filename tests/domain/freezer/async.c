// Cases of requests that are under way while the domain is frozen.
#include "survive.h"

#include <linux/aio_abi.h>
#include <linux/io_uring.h>

CASE(aio_requests) {
    aio_context_t ctx = 0;
    int p[2];
    CHECK(pipe(p) == 0 && syscall(SYS_io_setup, 4, &ctx) == 0);
    struct iocb io = {.aio_lio_opcode = IOCB_CMD_POLL, .aio_fildes = p[0], .aio_buf = POLLIN, .aio_data = 7};
    struct iocb *list[] = {&io};
    CHECK(syscall(SYS_io_submit, ctx, 1, list) == 1);
    ready();
    struct io_event e;
    struct timespec none = {0, 0};
    CHECK(syscall(SYS_io_getevents, ctx, 0, 1, &e, &none) == 0);
    CHECK(write(p[1], "x", 1) == 1);
    CHECK(syscall(SYS_io_getevents, ctx, 1, 1, &e, NULL) == 1);
    CHECK(e.data == 7 && (e.res & POLLIN));
}

CASE(uring_requests) {
    struct io_uring_params q = {0};
    int p[2], ring = syscall(SYS_io_uring_setup, 4, &q);
    CHECK(ring >= 0 && pipe(p) == 0);
    char *m = mmap(NULL, q.sq_off.array + 16, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING), b[8];
    struct io_uring_sqe *sqes = mmap(NULL, 4 * sizeof *sqes, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
    CHECK(m != MAP_FAILED && sqes != MAP_FAILED);
    volatile unsigned *tail = (void *)(m + q.sq_off.tail), *array = (void *)(m + q.sq_off.array);
    volatile unsigned *head = (void *)(m + q.cq_off.head), *end = (void *)(m + q.cq_off.tail);
    struct io_uring_cqe *cqes = (void *)(m + q.cq_off.cqes);
    struct __kernel_timespec t = {0, 300000000};
    sqes[0] = (struct io_uring_sqe){.opcode = IORING_OP_READ, .fd = p[0], .addr = (uintptr_t)b, .len = 8, .user_data = 1};
    sqes[1] = (struct io_uring_sqe){.opcode = IORING_OP_TIMEOUT, .fd = -1, .addr = (uintptr_t)&t, .len = 1, .user_data = 2};
    sqes[2] = (struct io_uring_sqe){.opcode = IORING_OP_NOP, .fd = -1, .user_data = 3};
    for (unsigned i = 0; i < 3; i++) array[i] = i;
    *tail = 3;
    CHECK(syscall(SYS_io_uring_enter, ring, 3, 0, 0, NULL, 0) == 3);
    // The timeout may be over by now, on a busy host.
    CHECK(*end >= 1 && cqes[0].user_data == 3);
    ready();
    CHECK(write(p[1], "after", 5) == 5);
    CHECK(syscall(SYS_io_uring_enter, ring, 0, 3, IORING_ENTER_GETEVENTS, NULL, 0) == 0);
    CHECK(*end == 3);
    int read = -1, timed = -1;
    for (unsigned i = 1; i < 3; i++) *(cqes[i].user_data == 1 ? &read : &timed) = cqes[i].res;
    CHECK(read == 5 && !memcmp(b, "after", 5) && timed == -ETIME);
    // And the rings still work.
    *head = 3;
    sqes[3] = (struct io_uring_sqe){.opcode = IORING_OP_NOP, .fd = -1, .user_data = 4};
    array[3] = 3;
    *tail = 4;
    CHECK(syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) == 1);
    CHECK(*end == 4 && cqes[3].user_data == 4 && cqes[3].res == 0);
}
