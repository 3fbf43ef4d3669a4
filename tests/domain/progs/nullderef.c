// Dereferences NULL and handles it, a million-page guard style recovery, then dies of it by default.
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static sigjmp_buf jb;
static void *volatile addr;
static void handler(int s, siginfo_t *si, void *u) {
    (void)u;
    addr = si->si_addr;
    siglongjmp(jb, s);
}
int main(void) {
    struct sigaction sa = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &sa, NULL);
    for (volatile long i = 0; i < 1000; i++) {
        int s = sigsetjmp(jb, 1);
        if (!s) {
            *(volatile char *)(i * 4) = 1;
            puts("no fault");
            return 1;
        }
        if (s != SIGSEGV || addr != (void *)(i * 4)) return printf("signal %d at %p\n", s, addr), 1;
    }
    puts("handled");
    fflush(stdout);
    signal(SIGSEGV, SIG_DFL);
    *(volatile int *)0 = 1;
    return 2;
}
