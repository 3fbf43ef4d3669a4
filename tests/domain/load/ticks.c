// For a debugger: threads that call tick() all the time, until there is a file.
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

static atomic_int ticks;

void tick(void) { ticks++; }

static void *worker(void *arg) {
    while (access("/tmp/end", F_OK)) {
        tick();
        usleep(1000);
    }
    return arg;
}

int main(void) {
    pthread_t t[3];
    for (int i = 0; i < 3; i++) pthread_create(&t[i], 0, worker, 0);
    for (int i = 0; i < 3; i++) pthread_join(t[i], 0);
    return ticks > 0 ? 7 : 9;
}
