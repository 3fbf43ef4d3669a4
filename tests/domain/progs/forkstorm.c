// Forks 1,000 times from a process whose 16 threads allocate, lock and sleep all the time.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile int stop;
static void *load(void *a) {
    unsigned seed = (unsigned)(long)a;
    while (!stop) {
        size_t n = rand_r(&seed) % 20000 + 1;
        char *p = malloc(n);
        memset(p, 1, n);
        pthread_mutex_lock(&lock);
        pthread_mutex_unlock(&lock);
        free(p);
        if (rand_r(&seed) % 8 == 0) usleep(50);
    }
    return NULL;
}
int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 1000;
    pthread_t t[16];
    for (long i = 0; i < 16; i++) pthread_create(&t[i], NULL, load, (void *)i);
    for (int i = 0; i < rounds; i++) {
        pid_t p = fork();
        if (p < 0) return perror("fork"), 1;
        if (p == 0) _exit(i % 100);
        int st;
        if (waitpid(p, &st, 0) != p || !WIFEXITED(st) || WEXITSTATUS(st) != i % 100) return printf("round %d: status %x\n", i, st), 1;
    }
    stop = 1;
    for (int i = 0; i < 16; i++) pthread_join(t[i], NULL);
    puts("forkstorm ok");
    return 0;
}
