// Takes all the memory there is, then starts a program that needs more than what is left: exec must say so.
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static char large[8 << 20];

int main(int argc, char **argv) {
    (void)argv;
    if (argc > 1) {
        memset(large, 1, sizeof large);
        return 3;
    }
    while (mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED) {}
    volatile int error = 0;
    pid_t p = vfork();
    if (p == 0) {
        execl("/proc/self/exe", "execroom", "again", NULL);
        error = errno;
        _exit(0);
    }
    int status = 0;
    waitpid(p, &status, 0);
    printf("%s %d\n", error ? strerror(error) : "ran", status);
    return error != ENOMEM;
}
