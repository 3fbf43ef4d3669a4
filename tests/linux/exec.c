// execve: what survives, scripts, errors, argument passing, auxiliary vector.
#define T_HELPER
#include "t.h"
#include <elf.h>
#include <sys/auxv.h>
#include <sys/prctl.h>

// The program started again as "exec @what ...": reports what it sees through its exit code.
int t_helper(int argc, char **argv) {
    const char *w = argv[1];
    if (!strcmp(w, "@exit")) return atoi(argv[2]);
    if (!strcmp(w, "@argc")) return argc;
    if (!strcmp(w, "@env")) return getenv(argv[2]) ? !!strcmp(getenv(argv[2]), argv[3]) : 2;
    if (!strcmp(w, "@fd")) return fcntl(atoi(argv[2]), F_GETFD) < 0 ? 1 : 0;
    if (!strcmp(w, "@len")) return strlen(argv[2]) == (size_t)atoi(argv[3]) ? 0 : 1;
    if (!strcmp(w, "@arg0")) return strcmp(argv[0], argv[2]) != 0;
    if (!strcmp(w, "@sig")) {
        struct sigaction sa;
        sigset_t s;
        sigprocmask(SIG_BLOCK, NULL, &s);
        sigaction(SIGUSR1, NULL, &sa);
        int r = sa.sa_handler != SIG_DFL;
        sigaction(SIGUSR2, NULL, &sa);
        return r | (sa.sa_handler != SIG_IGN) << 1 | !sigismember(&s, SIGHUP) << 2;
    }
    if (!strcmp(w, "@pending")) {
        sigset_t s;
        sigpending(&s);
        return !sigismember(&s, SIGHUP);
    }
    if (!strcmp(w, "@pid")) return getpid() != atoi(argv[2]);
    if (!strcmp(w, "@tid")) return syscall(SYS_gettid) != getpid() || getpid() != atoi(argv[2]);
    if (!strcmp(w, "@name")) {
        char b[17];
        prctl(PR_GET_NAME, b);
        return strcmp(b, argv[2]) != 0;
    }
    if (!strcmp(w, "@aux")) {
        if (getauxval(AT_PAGESZ) != 4096 || !getauxval(AT_RANDOM) || !getauxval(AT_PHDR)) return 1;
        if (getauxval(AT_UID) != getuid() || !getauxval(AT_ENTRY)) return 2;
        const char *fn = (const char *)getauxval(AT_EXECFN);
        if (!fn || strcmp(fn, argv[2])) return 3;
        if (!getauxval(AT_HWCAP) || getauxval(AT_CLKTCK) != 100) return 4;
        return getauxval(AT_SECURE) ? 5 : 0;
    }
    if (!strcmp(w, "@altstack")) {
        stack_t ss;
        sigaltstack(NULL, &ss);
        return !(ss.ss_flags & SS_DISABLE);
    }
    if (!strcmp(w, "@ids")) return !(getuid() == (uid_t)atoi(argv[2]) && geteuid() == (uid_t)atoi(argv[3]));
    if (!strcmp(w, "@brk")) {
        char *a = sbrk(4096), *b = sbrk(0);
        return !(b - a == 4096 && (a[0] = 1));
    }
    return 99;
}

extern char **environ;
#define RUN(...) join(SPAWN({ char *av[] = {t_self, __VA_ARGS__, NULL}; execv(t_self, av); _exit(100); }))

CASE(exec_exit_code) { CHECK_EQ(RUN("@exit", "37"), 37); }
CASE(exec_keeps_pid) {
    pid_t p = SPAWN({ char n[20]; sprintf(n, "%d", getpid()); char *av[] = {t_self, "@pid", n, NULL}; execv(t_self, av); });
    CHECK_EQ(join(p), 0);
}
CASE(exec_environment) {
    char *env[] = {"FOO=bar baz", NULL};
    pid_t p = SPAWN({ char *av[] = {t_self, "@env", "FOO", "bar baz", NULL}; execve(t_self, av, env); });
    CHECK_EQ(join(p), 0);
}
CASE(exec_empty_argv_gets_one) {
    pid_t p = SPAWN({ char *av[] = {NULL}; execve("/bin/true", av, environ); _exit(errno == EFAULT || errno == EINVAL ? 0 : 50); });
    CHECK(join(p) < 128);
}
CASE(exec_arg0_free) {
    pid_t p = SPAWN({ char *av[] = {"anything", "@arg0", "anything", NULL}; execv(t_self, av); });
    CHECK_EQ(join(p), 0);
}
CASE(exec_many_args) {
    char *av[2002];
    for (int i = 0; i < 2001; i++) av[i] = "x";
    av[1] = "@argc", av[2001] = NULL;
    CHECK_EQ(join(SPAWN({ execv(t_self, av); })), 2001 & 255);
}
CASE(exec_long_arg) {
    char *big = malloc(120001);
    memset(big, 'a', 120000);
    big[120000] = 0;
    CHECK_EQ(RUN("@len", big, "120000"), 0);
}
CASE(exec_arg_over_128k_is_e2big) {
    char *big = malloc(140001);
    memset(big, 'a', 140000);
    big[140000] = 0;
    char *av[] = {t_self, big, NULL};
    CHECK_ERR(execv(t_self, av), E2BIG);
}
CASE(exec_cloexec_closed_others_kept) {
    int a = open("/dev/null", O_RDONLY | O_CLOEXEC), b = open("/dev/null", O_RDONLY);
    char x[8], y[8];
    sprintf(x, "%d", a), sprintf(y, "%d", b);
    CHECK_EQ(RUN("@fd", x), 1);
    CHECK_EQ(RUN("@fd", y), 0);
}
CASE(exec_cloexec_flag_not_shared_by_dup) {
    int a = open("/dev/null", O_RDONLY | O_CLOEXEC), b = dup(a);
    char y[8];
    sprintf(y, "%d", b);
    CHECK_EQ(RUN("@fd", y), 0);
}
static void nop(int s) { (void)s; }
CASE(exec_resets_handlers_keeps_ignored_and_mask) {
    signal(SIGUSR1, nop);
    signal(SIGUSR2, SIG_IGN);
    sigset_t s;
    sigemptyset(&s);
    sigaddset(&s, SIGHUP);
    sigprocmask(SIG_BLOCK, &s, NULL);
    CHECK_EQ(RUN("@sig"), 0);
}
CASE(exec_keeps_pending) {
    sigset_t s;
    sigemptyset(&s);
    sigaddset(&s, SIGHUP);
    sigprocmask(SIG_BLOCK, &s, NULL);
    pid_t p = SPAWN({ raise(SIGHUP); char *av[] = {t_self, "@pending", NULL}; execv(t_self, av); });
    CHECK_EQ(join(p), 0);
}
CASE(exec_drops_altstack) {
    static char st[16384];
    stack_t ss = {.ss_sp = st, .ss_size = sizeof st};
    CHECK(sigaltstack(&ss, NULL) == 0);
    CHECK_EQ(RUN("@altstack"), 0);
}
CASE(exec_sets_comm) {
    char *base = strrchr(t_self, '/') + 1;
    char b[16];
    snprintf(b, sizeof b, "%s", base);
    prctl(PR_SET_NAME, "other");
    CHECK_EQ(RUN("@name", b), 0);
}
CASE(exec_auxv) { CHECK_EQ(RUN("@aux", t_self), 0); }
CASE(exec_fresh_brk) { CHECK_EQ(RUN("@brk"), 0); }
static void *exec_thread(void *a) {
    char n[20];
    sprintf(n, "%d", getpid());
    char *av[] = {t_self, "@tid", n, NULL};
    execv(t_self, av);
    return a;
}
static void *spin_thread(void *a) {
    for (;;) usleep(1000);
    return a;
}
CASE(exec_from_thread_kills_others_and_takes_pid) {
    pid_t p = SPAWN({
        pthread_t t;
        for (int i = 0; i < 4; i++) CHECK(pthread_create(&t, NULL, spin_thread, NULL) == 0);
        CHECK(pthread_create(&t, NULL, exec_thread, NULL) == 0);
        pause();
        _exit(60);
    });
    CHECK_EQ(join(p), 0);
}
CASE(exec_enoent) {
    char *av[] = {"x", NULL};
    CHECK_ERR(execv("/no/such/file", av), ENOENT);
    CHECK_ERR(execv("", av), ENOENT);
}
CASE(exec_enotdir_eacces) {
    scratch();
    char *av[] = {"x", NULL};
    close(mkfile("plain", "data"));
    CHECK_ERR(execv("plain", av), EACCES);      // no x bit, not even for root
    CHECK_ERR(execv("plain/x", av), ENOTDIR);
    CHECK_ERR(execv("/", av), EACCES);
}
CASE(exec_enoexec) {
    scratch();
    char *av[] = {"x", NULL};
    close(mkfile("junk", "this is no program\n"));
    chmod("junk", 0755);
    CHECK_ERR(execv("./junk", av), ENOEXEC);
    close(mkfile("empty", ""));
    chmod("empty", 0755);
    CHECK_ERR(execv("./empty", av), ENOEXEC);
    close(mkfile("short", "\177ELF"));
    chmod("short", 0755);
    CHECK_ERR(execv("./short", av), ENOEXEC);
}
CASE(exec_truncated_elf) {
    scratch();
    char b[4096], *av[] = {"x", NULL};
    int in = open(t_self, O_RDONLY), out = open("cut", O_CREAT | O_WRONLY, 0755);
    CHECK_EQ(read(in, b, 200), 200);
    CHECK_EQ(write(out, b, 200), 200);
    close(out);
    pid_t p = SPAWN({ execv("./cut", av); _exit(0); });
    int r = join(p);
    CHECK(r == 0 || r >= 128);  // refused, or killed when found broken too late
}
CASE(exec_wrong_machine) {
    scratch();
    char b[4096], *av[] = {"x", NULL};
    int in = open(t_self, O_RDONLY), out = open("arm", O_CREAT | O_WRONLY, 0755);
    CHECK_EQ(read(in, b, 4096), 4096);
    ((Elf64_Ehdr *)b)->e_machine = EM_AARCH64;
    CHECK_EQ(write(out, b, 4096), 4096);
    close(out);
    CHECK_ERR(execv("./arm", av), ENOEXEC);
}
static void script(const char *path, const char *text) {
    close(mkfile(path, text));
    chmod(path, 0755);
}
CASE(exec_script) {
    scratch();
    script("s", "#!/bin/sh\nexit 21\n");
    CHECK_EQ(join(SPAWN({ execl("./s", "s", NULL); })), 21);
}
CASE(exec_script_arguments) {
    scratch();
    script("s", "#!/bin/sh\n[ \"$0\" = ./s ] && [ \"$1\" = one ] && [ $# = 2 ] && exit 22\n");
    CHECK_EQ(join(SPAWN({ execl("./s", "ignored", "one", "two", NULL); })), 22);
}
CASE(exec_script_interpreter_argument) {
    scratch();
    char t[PATH_MAX + 50];
    snprintf(t, sizeof t, "#!%s @argc\n", t_self);
    script("s2", t);
    CHECK_EQ(join(SPAWN({ execl("./s2", "s2", "x", NULL); })), 4);  // self @argc ./s2 x
}
CASE(exec_script_nested) {
    scratch();
    char t[PATH_MAX + 50], d[PATH_MAX];
    script("a", "#!/bin/sh\nexit 23\n");
    snprintf(t, sizeof t, "#!%s/a\n", getcwd(d, sizeof d));
    script("b", t);
    CHECK_EQ(join(SPAWN({ execl("./b", "b", NULL); })), 23);
}
CASE(exec_script_loop) {
    scratch();
    char t[PATH_MAX + 50], d[PATH_MAX], *av[] = {"x", NULL};
    snprintf(t, sizeof t, "#!%s/me\n", getcwd(d, sizeof d));
    script("me", t);
    CHECK_ERR(execv("./me", av), ELOOP);
}
CASE(exec_script_missing_interpreter) {
    scratch();
    char *av[] = {"x", NULL};
    script("s", "#!/no/such/interp\n");
    CHECK_ERR(execv("./s", av), ENOENT);
    script("t", "#!\n");
    CHECK_ERR(execv("./t", av), ENOEXEC);
}
CASE(exec_write_busy_text) {
    CHECK_ERR(open(t_self, O_WRONLY), ETXTBSY);
}
CASE(exec_file_open_for_write) {
    scratch();
    char *av[] = {"x", NULL}, c[PATH_MAX + 60];
    snprintf(c, sizeof c, "cp %s prog", t_self);
    CHECK(system(c) == 0);
    int fd = open("prog", O_RDWR);
    CHECK(fd >= 0);
    CHECK_ERR(execv("./prog", av), ETXTBSY);
}
CASE(exec_deleted_binary_keeps_running) {
    scratch();
    char c[PATH_MAX + 60];
    snprintf(c, sizeof c, "cp %s prog", t_self);
    CHECK(system(c) == 0);
    int fd = open("prog", O_PATH | O_CLOEXEC);
    unlink("prog");
    CHECK_EQ(join(SPAWN({
        char *av[] = {"p", "@exit", "3", NULL};
        syscall(SYS_execveat, fd, "", av, environ, AT_EMPTY_PATH);
    })), 3);
}
CASE(execveat_empty_path) {
    int fd = open(t_self, O_RDONLY);
    CHECK_EQ(join(SPAWN({ char *av[] = {"p", "@exit", "5", NULL}; fexecve(fd, av, environ); })), 5);
}
CASE(execveat_dirfd) {
    int fd = open("/bin", O_DIRECTORY | O_RDONLY);
    CHECK_EQ(join(SPAWN({ char *av[] = {"sh", "-c", "exit 6", NULL}; syscall(SYS_execveat, fd, "sh", av, environ, 0); })), 6);
}
CASE(execveat_bad) {
    char *av[] = {"x", NULL};
    CHECK_ERR(syscall(SYS_execveat, -5, "sh", av, environ, 0), EBADF);
    CHECK_ERR(syscall(SYS_execveat, AT_FDCWD, "/bin/sh", av, environ, 0x100000), EINVAL);
}
CASE(exec_efault) {
    CHECK_ERR(syscall(SYS_execve, BAD, NULL, NULL), EFAULT);
    CHECK_ERR(syscall(SYS_execve, "/bin/true", BAD, NULL), EFAULT);
}
CASE(exec_failed_leaves_process_intact) {
    char *av[] = {"x", NULL};
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    CHECK_ERR(execv("/etc/passwd", av), EACCES);
    CHECK(fcntl(fd, F_GETFD) == FD_CLOEXEC);
    CHECK_EQ(join(SPAWN({ _exit(1); })), 1);
}
CASE(exec_setuid_bit) {
    if (geteuid()) SKIP("needs root");
    scratch();
    char c[PATH_MAX + 60];
    snprintf(c, sizeof c, "cp %s prog; chown 1234 prog; chmod 4755 prog", t_self);
    CHECK(system(c) == 0);
    CHECK_EQ(join(SPAWN({ t_drop_root(); execl("./prog", "p", "@ids", "1000", "1234", NULL); })), 0);
}
CASE(exec_unreadable_but_executable) {
    if (geteuid()) SKIP("needs root");
    scratch();
    char c[PATH_MAX + 60];
    snprintf(c, sizeof c, "cp %s prog; chmod 0711 prog", t_self);
    CHECK(system(c) == 0);
    CHECK_EQ(join(SPAWN({ t_drop_root(); execl("./prog", "p", "@exit", "4", NULL); })), 4);
}
CASE(posix_spawn_reports_error) {
    extern int posix_spawn(pid_t *, const char *, const void *, const void *, char *const *, char *const *);
    char *av[] = {"x", NULL};
    pid_t p;
    CHECK_EQ(posix_spawn(&p, "/no/such", NULL, NULL, av, environ), ENOENT);
}
CASE(posix_spawn_and_system) {
    CHECK_EQ(WEXITSTATUS(system("exit 9")), 9);
    FILE *f = popen("echo hello", "r");
    char b[20] = "";
    CHECK(fgets(b, sizeof b, f) != NULL);
    CHECK(!strcmp(b, "hello\n"));
    CHECK_EQ(pclose(f), 0);
}
CASE(vfork_exec_from_large_process) {
    char *m = mmap(NULL, 64 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(m, 1, 64 << 20);
    for (int i = 0; i < 20; i++) {
        pid_t p = vfork();
        if (p == 0) {
            execl(t_self, "p", "@exit", "0", NULL);
            _exit(100);
        }
        CHECK_EQ(join(p), 0);
    }
    CHECK(m[12345678] == 1);
}
// A forked copy this large may be left to the host to take apart while the new program runs.
static char *large(void) {
    char *m = mmap(NULL, 64 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(m != MAP_FAILED);
    memset(m, 1, 64 << 20);
    return m;
}
CASE(exec_from_large_forked_copy) {
    char *m = large(), pid[16];
    int *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    for (int i = 0; i < 20; i++) {
        int p[2];
        char c;
        CHECK_EQ(pipe2(p, O_CLOEXEC), 0);
        pid_t child = fork();
        if (child == 0) {
            m[12345678] = 2;
            shared[0] = i + 1;
            sprintf(pid, "%d", getpid());
            execl(t_self, "p", "@tid", pid, NULL);
            _exit(100);
        }
        close(p[1]);
        CHECK_EQ(read(p[0], &c, 1), 0);
        close(p[0]);
        CHECK_EQ(shared[0], i + 1);
        CHECK_EQ(join(child), 0);
    }
    CHECK(m[12345678] == 1);
}
CASE(exec_from_large_copy_keeps_pending_and_mask) {
    large();
    pid_t child = fork();
    if (child == 0) {
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGHUP);
        sigprocmask(SIG_BLOCK, &set, NULL);
        raise(SIGHUP);
        execl(t_self, "p", "@pending", NULL);
        _exit(100);
    }
    CHECK_EQ(join(child), 0);
}
CASE(exec_from_thread_of_large_copy) {
    large();
    for (int i = 0; i < 5; i++) {
        pid_t child = fork();
        if (child == 0) {
            pthread_t t;
            pthread_create(&t, NULL, spin_thread, NULL);
            pthread_create(&t, NULL, exec_thread, NULL);
            pause();
        }
        CHECK_EQ(join(child), 0);
    }
}
CASE(exec_from_large_copies_at_once_some_killed) {
    large();
    pid_t child[8];
    char code[16];
    for (int i = 0; i < 8; i++) {
        if ((child[i] = fork()) == 0) {
            sprintf(code, "%d", i);
            execl(t_self, "p", "@exit", code, NULL);
            _exit(100);
        }
        if (i % 3 == 2) kill(child[i], SIGKILL);
    }
    for (int i = 0; i < 8; i++) {
        int st;
        CHECK_EQ(waitpid(child[i], &st, 0), child[i]);
        if (i % 3 == 2 && WIFSIGNALED(st)) CHECK_EQ(WTERMSIG(st), SIGKILL);
        else CHECK_EQ(WEXITSTATUS(st), i);
    }
}
CASE(exec_stress_100) {
    for (int i = 0; i < 100; i++) CHECK_EQ(RUN("@exit", "7"), 7);
}
