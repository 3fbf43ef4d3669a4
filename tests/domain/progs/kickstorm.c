// A computing thread is signalled by three others as fast as they can, while children end all the time: host signals
// must not pile up on the signal stack.
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static pthread_t target;
static volatile int stop, seen, children;
static void note(int s) { if (s == SIGCHLD) children++; else seen++; }
static void *sender(void *a) {
    while (!stop) pthread_kill(target, SIGUSR1);
    return a;
}
static void *forker(void *a) {
    while (!stop) {
        pid_t p[4];
        for (int i = 0; i < 4; i++)
            if ((p[i] = fork()) == 0) _exit(0);
        for (int i = 0; i < 4; i++) waitpid(p[i], NULL, 0);
    }
    return a;
}
int main(void) {
    target = pthread_self();
    signal(SIGUSR1, note);
    signal(SIGCHLD, note);
    pthread_t t[4];
    pthread_create(&t[0], NULL, forker, NULL);
    for (int i = 1; i < 4; i++) pthread_create(&t[i], NULL, sender, NULL);
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    double x = 1;
    do {
        for (int i = 0; i < 100000; i++) x = x * 1.0000001 + 1e-9;
        clock_gettime(CLOCK_MONOTONIC, &b);
    } while (b.tv_sec - a.tv_sec < 3);
    stop = 1;
    for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
    if (x < 1 || seen < 100 || children < 10) return printf("only %d signals, %d children\n", seen, children), 1;
    puts("kickstorm ok");
    return 0;
}
