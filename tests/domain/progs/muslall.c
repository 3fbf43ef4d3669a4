// A static musl program that uses a bit of everything.
#include <arpa/inet.h>
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MUST(c) do { if (!(c)) { printf("line %d: %s\n", __LINE__, #c); exit(1); } } while (0)
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static int n;
static void *add(void *a) {
    for (int i = 0; i < 10000; i++) pthread_mutex_lock(&m), n++, pthread_mutex_unlock(&m);
    return a;
}
int main(void) {
    pthread_t t[8];
    for (int i = 0; i < 8; i++) MUST(!pthread_create(&t[i], NULL, add, NULL));
    for (int i = 0; i < 8; i++) pthread_join(t[i], NULL);
    MUST(n == 80000);
    FILE *f = popen("echo from shell", "r");
    char b[64] = "";
    MUST(f && fgets(b, sizeof b, f) && !strcmp(b, "from shell\n") && pclose(f) == 0);
    int p[2];
    MUST(!pipe(p));
    pid_t c = fork();
    if (!c) { write(p[1], "child", 5); _exit(7); }
    int st;
    MUST(waitpid(c, &st, 0) == c && WEXITSTATUS(st) == 7 && read(p[0], b, 5) == 5);
    int s = socket(AF_INET, SOCK_STREAM, 0), k = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t l = sizeof a;
    MUST(!bind(s, (void *)&a, sizeof a) && !listen(s, 1) && !getsockname(s, (void *)&a, &l) && !connect(k, (void *)&a, sizeof a));
    MUST(write(k, "net", 3) == 3 && read(accept(s, NULL, NULL), b, 3) == 3);
    DIR *d = opendir("/proc/self/fd");
    MUST(d && readdir(d));
    struct timespec ts = {0, 1000000};
    MUST(!nanosleep(&ts, NULL) && !clock_gettime(CLOCK_MONOTONIC, &ts));
    char *big = malloc(50 << 20);
    memset(big, 1, 50 << 20);
    free(big);
    puts("musl ok");
    return 0;
}
