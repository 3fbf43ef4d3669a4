// Spawns programs one after another: "spawner N", then prints a line; repeated for each argument,
// waiting for a line on standard input between them so that the tester can measure.
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
int main(int argc, char **argv) {
    char line[16];
    if (argc == 1) return 0;  // the spawned program
    for (int k = 1; k < argc; k++) {
        for (int i = 0; i < atoi(argv[k]); i++) {
            char *av[] = {argv[0], NULL};
            pid_t p;
            int st, r = posix_spawn(&p, argv[0], NULL, NULL, av, environ);
            if (r) return printf("spawn %d: error %d\n", i, r), 1;
            if (waitpid(p, &st, 0) != p || st) return printf("spawn %d: status %x\n", i, st), 1;
        }
        printf("done %s\n", argv[k]);
        fflush(stdout);
        if (!fgets(line, sizeof line, stdin)) return 0;
    }
    return 0;
}
