// For gdb: a signal handler, called from a function that makes a system call.
#include <signal.h>
#include <stdio.h>
#include <sys/types.h>
#include <unistd.h>

static volatile int hits;
void handler(int s) { hits += s; }
__attribute__((noinline)) int inner(pid_t me) {
    int r = kill(me, SIGUSR1);
    return r + hits;
}
__attribute__((noinline)) int outer(void) { return inner(getpid()) + 1; }

int main(void) {
    signal(SIGUSR1, handler);
    printf("value %d\n", outer());
    return 0;
}
