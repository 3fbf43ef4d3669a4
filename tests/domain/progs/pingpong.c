// A byte to and fro between two processes, so many times; then "done", and the end when standard input ends.
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int s[2], n = atoi(argv[argc - 1]);
    char c = 'x';
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, s)) return 1;
    if (!fork()) {
        close(s[0]);
        while (read(s[1], &c, 1) == 1)
            if (write(s[1], &c, 1) != 1) return 1;
        return 0;
    }
    close(s[1]);
    while (n--)
        if (write(s[0], &c, 1) != 1 || read(s[0], &c, 1) != 1) return 1;
    puts("done");
    fflush(stdout);
    return read(0, &c, 1) != 0;
}
