// Touches memory until refused ("hog anon"), fills /dev/shm ("hog shm") or forks without end ("hog fork").
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv) {
    long mb = 0;
    if (argc > 1 && !strcmp(argv[1], "fork")) {
        for (;;)
            if (fork() < 0) usleep(1000);
    }
    if (argc > 1 && !strcmp(argv[1], "shm")) {
        static char b[1 << 20];
        memset(b, 1, sizeof b);
        int fd = open("/tmp/hog", O_CREAT | O_WRONLY, 0600);
        while (mb < 4096 && write(fd, b, sizeof b) == sizeof b) mb++;
        printf("refused after %ld MB\n", mb);
        return mb == 4096;
    }
    for (; mb < 4096; mb++) {
        char *p = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED) break;
        memset(p, 1, 1 << 20);
    }
    printf("refused after %ld MB\n", mb);
    return mb == 4096;
}
