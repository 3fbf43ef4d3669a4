// Harness of survive.c and its parts: cases that stand in the middle of something while the domain is frozen.
//
// CASE(name) { set up; ready(); check; }. Each case is a process of its own; all of them are frozen together, in
// ready(), with whatever their threads and children wait for. CHECK ends a case that goes wrong.
#pragma once
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct test {
    const char *name;
    void (*fn)(void);
    struct test *next;
    pid_t pid;
};

void add_test(struct test *t);
void ready(void);
int generation(void);
extern const char *case_name;

#define CASE(id)                                                          \
    static void run_##id(void);                                           \
    static struct test test_##id = {#id, run_##id, NULL, 0};              \
    __attribute__((constructor)) static void add_##id(void) { add_test(&test_##id); } \
    static void run_##id(void)

#define CHECK(cond)                                                                        \
    do {                                                                                   \
        if (!(cond)) {                                                                     \
            dprintf(1, "not ok %s: %s:%d %s (errno %d)\n", case_name, __FILE__, __LINE__, #cond, errno); \
            _exit(1);                                                                      \
        }                                                                                  \
    } while (0)

// A thread that makes one blocking call; wait_for gives what the call gave, with errno.
struct blocked {
    pthread_t thread;
    long (*call)(long);
    long arg, result;
    int error;
};
void begin(struct blocked *b, long (*call)(long), long arg);
long wait_for(struct blocked *b);
#define STILL_BLOCKED(b) CHECK(pthread_tryjoin_np((b).thread, NULL) == EBUSY)
void nap(int ms);
