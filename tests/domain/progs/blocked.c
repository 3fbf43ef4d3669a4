// Named functions around a call that blocks, for backtraces of programs: main > outer > inner > read, and a handler that a
// signal runs meanwhile in `signalled`. Built with -O2 and without frame pointers.
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int ends[2];

__attribute__((noinline)) static long inner(char *to) {
    char padding[300];
    memset(padding, 1, sizeof padding);
    long n = read(ends[0], to, 1);
    __asm__ volatile("" : : "r"(padding) : "memory");
    return n + 1;
}

__attribute__((noinline)) static long outer(int depth) {
    char c = (char)depth;
    long n = inner(&c);
    __asm__ volatile("" : : "r"(&c) : "memory");
    return n * depth;
}

static void handler(int signo) {
    long n = outer(signo);
    __asm__ volatile("" : : "r"(n));
}

__attribute__((noinline)) static void signalled(void) {
    raise(SIGUSR1);
    __asm__ volatile("");
}

int main(int argc, char **argv) {
    if (pipe(ends) != 0) return 1;
    signal(SIGUSR1, handler);
    puts("up");
    fflush(stdout);
    if (argc > 1 && strcmp(argv[1], "signal") == 0) signalled();
    return (int)outer(argc);
}
