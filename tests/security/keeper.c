// A hostile program against the process that keeps its domain, from memory that it shares with its guest kernel.
//
// Usage: keeper freeze ADDRESS        asks to be frozen all the time, by the register at ADDRESS, and never stops
//        keeper ask ADDRESS           the same, but sees events: those of programs that are started beside it are not lost
//        keeper maps PROCESSES COUNT  so many processes with so many mappings each
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static void freeze_all_the_time(char *vregs, int deaf) {
    volatile uint64_t *pending = (void *)vregs;
    volatile uint32_t *requests = (void *)(vregs + 56);
    for (;;) {
        // Who is deaf does not see that it is to stop. And a doorbell for each request.
        for (int i = 0; i < 1000; i++) {
            if (deaf) *pending = 0;
            else (void)*pending;
        }
        ++*requests;
        (void)!write(1, "begun\n", 6);
    }
}

static int many_mappings(int processes, long count) {
    for (int p = 0; p < processes; p++) {
        if (fork()) continue;
        char *at = mmap(0, count * 2 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED) return 1;
        for (long i = 0; i < count; i++) mprotect(at + i * 8192, 4096, PROT_READ);
        (void)!write(1, "+", 1);
        pause();
    }
    pause();
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "freeze")) freeze_all_the_time((char *)strtoul(argv[2], 0, 0), 1);
    if (argc == 3 && !strcmp(argv[1], "ask")) freeze_all_the_time((char *)strtoul(argv[2], 0, 0), 0);
    if (argc == 4 && !strcmp(argv[1], "maps")) return many_mappings(atoi(argv[2]), atol(argv[3]));
    return 2;
}
