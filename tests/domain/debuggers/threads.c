// What the debuggers are pointed at: three threads that wait, then a function with locals, then a fault when asked.
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

volatile int watched, stop;
static pthread_barrier_t ready;

static void *waiter(void *arg) {
    pthread_barrier_wait(&ready);
    while (!stop) usleep(1000);
    return arg;
}

int inner(int a, int b) {
    int sum = a + b;
    watched = sum;
    return sum * 2;
}

int outer(int n) {
    int result = inner(n, 40);
    return result + 1;
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "loop")) {
        printf("%d\n", getpid());
        fflush(stdout);
        for (;;) { watched++; usleep(1000); }
    }
    if (argc > 1 && !strcmp(argv[1], "fork")) {
        if (!fork()) _exit(outer(1) & 0x7f);
        int status;
        wait(&status);
        printf("child %d\n", WEXITSTATUS(status));
        return 0;
    }
    pthread_t t[3];
    pthread_barrier_init(&ready, 0, 4);
    for (long i = 0; i < 3; i++) pthread_create(&t[i], 0, waiter, (void *)i);
    pthread_barrier_wait(&ready);
    printf("outer %d\n", outer(2));
    fflush(stdout);
    stop = 1;
    for (int i = 0; i < 3; i++) pthread_join(t[i], 0);
    if (argc > 1 && !strcmp(argv[1], "crash")) *(volatile int *)8 = 1;
    return 0;
}
