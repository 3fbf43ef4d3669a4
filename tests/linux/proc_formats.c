// /proc as programs parse it: exact formats of status, stat, maps, smaps, limits, io, environ, task, fd, sys.
#define T_HELPER
#include "t.h"
#include <sys/prctl.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/mount.h>
#include <sys/resource.h>

static char *field(const char *path, const char *name) {
    static char line[4096];
    for (char *s = slurp(path); s; s = strchr(s, '\n') ? strchr(s, '\n') + 1 : NULL)
        if (!strncmp(s, name, strlen(name))) {
            snprintf(line, sizeof line, "%.*s", (int)strcspn(s + strlen(name), "\n"), s + strlen(name));
            return line;
        }
    FAIL("no %s in %s", name, path);
}
static void *sleeper(void *a) {
    for (;;) pause();
    return a;
}

CASE(stat_with_a_hostile_name) {
    CHECK(prctl(PR_SET_NAME, "a) b (c") == 0);
    char *s = slurp("/proc/self/stat");
    int pid, ppid, pgrp, session, tty;
    char state;
    char want[40];
    snprintf(want, sizeof want, "%d (a) b (c) ", getpid());
    CHECK(!strncmp(s, want, strlen(want)));
    CHECK_EQ(sscanf(strrchr(s, ')') + 2, "%c %d %d %d %d", &state, &ppid, &pgrp, &session, &tty), 5);
    (void)pid;
    CHECK(state == 'R' && ppid == getppid() && pgrp == getpgrp() && session == getsid(0));
}
CASE(stat_has_52_fields) {
    int n = 2;
    for (char *s = strrchr(slurp("/proc/self/stat"), ')') + 1; *s; s++) n += *s == ' ';
    CHECK_EQ(n, 52);
}
CASE(stat_counts_threads_and_priority) {
    pthread_t t;
    for (int i = 0; i < 3; i++) pthread_create(&t, NULL, sleeper, NULL);
    CHECK(nice(4) == 4);
    long prio, nicev, threads;
    CHECK_EQ(sscanf(strrchr(slurp("/proc/self/stat"), ')') + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*u %*u %ld %ld %ld", &prio, &nicev, &threads), 3);
    CHECK(prio == 24 && nicev == 4 && threads == 4);
}
CASE(states_of_other_processes) {
    pid_t c = SPAWN(pause());
    char p[40];
    snprintf(p, sizeof p, "/proc/%d/status", c);
    EVENTUALLY(strchr(field(p, "State:"), 'S'));
    kill(c, SIGSTOP);
    EVENTUALLY(strchr(field(p, "State:"), 'T'));
    kill(c, SIGKILL);
    EVENTUALLY(strchr(field(p, "State:"), 'Z'));
    CHECK(strstr(field(p, "State:"), "(zombie)") != NULL);
    join(c);
    CHECK_ERR(open(p, O_RDONLY), ENOENT);
}
CASE(status_shows_name_with_escapes) {
    CHECK(prctl(PR_SET_NAME, "a\nb\\c") == 0);
    CHECK(!strcmp(field("/proc/self/status", "Name:"), "\ta\\nb\\\\c"));
}
CASE(status_signal_sets) {
    sigset_t m;
    sigemptyset(&m), sigaddset(&m, SIGUSR1), sigaddset(&m, 64);
    sigprocmask(SIG_BLOCK, &m, NULL);
    signal(SIGUSR2, SIG_IGN), raise(SIGUSR1), kill(getpid(), 64);
    CHECK(!strcmp(field("/proc/self/status", "SigBlk:"), "\t8000000000000200"));
    CHECK(strtoull(field("/proc/self/status", "SigIgn:"), NULL, 16) & 1 << (SIGUSR2 - 1));
    CHECK(!strcmp(field("/proc/self/status", "SigPnd:"), "\t0000000000000200"));
    CHECK(!strcmp(field("/proc/self/status", "ShdPnd:"), "\t8000000000000000"));
}
CASE(status_ids_and_umask) {
    umask(027);
    CHECK(setresgid(1, 2, 3) == 0 && setresuid(4, 5, 6) == 0);
    CHECK(!strcmp(field("/proc/self/status", "Uid:"), "\t4\t5\t6\t5"));
    CHECK(!strcmp(field("/proc/self/status", "Gid:"), "\t1\t2\t3\t2"));
    CHECK(!strcmp(field("/proc/self/status", "Umask:"), "\t0027"));
    CHECK_EQ(atoi(field("/proc/self/status", "Tgid:")), getpid());
}
CASE(cmdline_can_be_overwritten) {
    // setproctitle(): the file shows the memory of the arguments.
    int fd = open("/proc/self/cmdline", O_RDONLY);
    char b[300], c[300];
    int n = read(fd, b, sizeof b);
    CHECK(n > 0 && b[n - 1] == 0);
    extern char **environ;
    unsigned long start = 0;
    CHECK_EQ(sscanf(strrchr(slurp("/proc/self/stat"), ')') + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %*u %*u %*d %*u %*u %*u %*u %*u %*u %*u %*u %*u %*u %*u %*u %*u %*d %*d %*u %*u %*u %*u %*d %*u %*u %*u %lu", &start), 1);
    CHECK(start && !memcmp((void *)start, b, n));
    *(char *)start = '#';
    lseek(fd, 0, SEEK_SET);
    CHECK(read(fd, c, sizeof c) == n && c[0] == '#' && !memcmp(c + 1, b + 1, n - 1));
}
CASE(environ_of_another_process_and_permission) {
    pid_t c = SPAWN(execl("/proc/self/exe", "x", "@sleep", NULL));
    char p[40], b[100];
    snprintf(p, sizeof p, "/proc/%d/environ", c);
    EVENTUALLY(access(p, R_OK) == 0);
    CHECK_EQ(join(SPAWN(t_drop_root(); _exit(open(p, O_RDONLY) == -1 && errno == EACCES ? 3 : 4))), 3);
    (void)b;
    kill(c, SIGKILL), join(c);
}
CASE(maps_lines_are_sorted_and_named) {
    unsigned long a, b, last = 0, off, ino;
    char perm[5], dev[12];
    int n = 0, stack = 0, vdso = 0;
    for (char *s = slurp("/proc/self/maps"); s && *s; s = strchr(s, '\n') ? strchr(s, '\n') + 1 : NULL, n++) {
        CHECK_EQ(sscanf(s, "%lx-%lx %4s %lx %11s %lu", &a, &b, perm, &off, dev, &ino), 6);
        CHECK(a < b && a >= last && a % 4096 == 0 && strlen(perm) == 4 && strchr(dev, ':'));
        last = b;
        char *eol = strchr(s, '\n');
        stack += eol - s > 7 && !memcmp(eol - 7, "[stack]", 7);
        vdso += eol - s > 6 && !memcmp(eol - 6, "[vdso]", 6);
        if (eol - s > 73 && s[73] != ' ' && s[72] != ' ') FAIL("the path starts at column 73");
    }
    CHECK(n > 5 && stack == 1 && vdso == 1);
}
CASE(maps_of_shared_deleted_and_anonymous) {
    scratch();
    int fd = mkfile("the file", "x");
    char *p = mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, 4096), want[80];
    unlink("the file");
    snprintf(want, sizeof want, "%lx-%lx r--s 00001000 ", (unsigned long)p, (unsigned long)p + 8192);
    char *l = strstr(slurp("/proc/self/maps"), want);
    CHECK(l != NULL);
    *strchr(l, '\n') = 0;
    CHECK(strstr(l, "the file (deleted)") != NULL);
}
CASE(smaps_agrees_with_maps) {
    int maps = 0, smaps = 0;
    for (char *s = slurp("/proc/self/maps"); (s = strchr(s, '\n')); s++) maps++;
    for (char *s = slurp("/proc/self/smaps"); (s = strstr(s, "\nSize:")); s++) smaps++;
    CHECK(abs(maps - smaps) <= 1);
    CHECK(strstr(slurp("/proc/self/smaps"), "VmFlags: ") != NULL);
    CHECK(strstr(slurp("/proc/self/smaps_rollup"), "[rollup]") != NULL);
}
CASE(limits_table) {
    struct rlimit l = {123, 456};
    CHECK(setrlimit(RLIMIT_NOFILE, &l) == 0);
    char *s = field("/proc/self/limits", "Max open files");
    int soft, hard;
    char unit[10];
    CHECK(sscanf(s, "%d %d %9s", &soft, &hard, unit) == 3 && soft == 123 && hard == 456 && !strcmp(unit, "files"));
    CHECK(!strncmp(slurp("/proc/self/limits"), "Limit                     Soft Limit           Hard Limit           Units", 70));
    l.rlim_cur = l.rlim_max = RLIM_INFINITY;
    CHECK(setrlimit(RLIMIT_CORE, &l) == 0 && strstr(field("/proc/self/limits", "Max core file size"), "unlimited"));
}
CASE(fd_directory_follows_the_table) {
    int fd = open("/dev/null", O_RDONLY);
    dup2(fd, 77);
    char b[100];
    CHECK(readlink("/proc/self/fd/77", b, sizeof b) == 9 && !memcmp(b, "/dev/null", 9));
    struct stat s;
    CHECK(lstat("/proc/self/fd/77", &s) == 0 && S_ISLNK(s.st_mode) && (s.st_mode & 0777) == 0500);
    dup2(open("/dev/null", O_RDWR), 77);
    CHECK(lstat("/proc/self/fd/77", &s) == 0 && (s.st_mode & 0777) == 0700);
    close(77);
    CHECK_ERR(lstat("/proc/self/fd/77", &s), ENOENT);
    CHECK_ERR(lstat("/proc/self/fd/077", &s), ENOENT);
    CHECK_ERR(lstat("/proc/self/fd/-1", &s), ENOENT);
}
CASE(fdinfo_of_kinds) {
    scratch();
    int fd = open("f", O_CREAT | O_RDWR | O_APPEND | O_CLOEXEC, 0600);
    write(fd, "abc", 3);
    char p[40];
    snprintf(p, sizeof p, "/proc/self/fdinfo/%d", fd);
    CHECK_EQ(atoi(field(p, "pos:")), 3);
    CHECK_EQ(strtol(field(p, "flags:"), NULL, 8) & (O_APPEND | O_CLOEXEC | O_ACCMODE), O_APPEND | O_CLOEXEC | O_RDWR);
    CHECK(field(p, "mnt_id:") != NULL);
}
CASE(task_directory_and_its_comm) {
    pthread_t t;
    pthread_create(&t, NULL, sleeper, NULL);
    pthread_setname_np(t, "worker");
    char p[60];
    int found = 0;
    for (int tid = gettid(); tid < gettid() + 50 && !found; tid++) {
        snprintf(p, sizeof p, "/proc/self/task/%d/comm", tid);
        found = tid != gettid() && access(p, R_OK) == 0 && !strcmp(slurp(p), "worker\n");
    }
    CHECK(found);
    CHECK_ERR(access("/proc/self/task/1234567", F_OK), ENOENT);
}
CASE(thread_self_and_self) {
    char b[60], want[60];
    int n = readlink("/proc/self", b, sizeof b);
    snprintf(want, sizeof want, "%d", getpid());
    CHECK(n == (int)strlen(want) && !memcmp(b, want, n));
    n = readlink("/proc/thread-self", b, sizeof b);
    snprintf(want, sizeof want, "%d/task/%d", getpid(), gettid());
    CHECK(n == (int)strlen(want) && !memcmp(b, want, n));
}
CASE(oom_score_adjustment_rules) {
    int fd = open("/proc/self/oom_score_adj", O_RDWR);
    CHECK(write(fd, "500\n", 4) == 4 && !strcmp(slurp("/proc/self/oom_score_adj"), "500\n"));
    CHECK_ERR(write(fd, "1001", 4), EINVAL);
    CHECK_ERR(write(fd, "abc", 3), EINVAL);
    CHECK_EQ(join(SPAWN(_exit(atoi(slurp("/proc/self/oom_score_adj")) == 500 ? 3 : 4))), 3);
}
CASE(files_report_size_zero_and_seek) {
    struct stat s;
    CHECK(stat("/proc/self/status", &s) == 0 && S_ISREG(s.st_mode) && s.st_size == 0 && (s.st_mode & 0777) == 0444);
    int fd = open("/proc/self/status", O_RDONLY);
    char a[8], b[8];
    CHECK(read(fd, a, 8) == 8 && pread(fd, b, 8, 0) == 8 && !memcmp(a, b, 8));
    CHECK(lseek(fd, 4, SEEK_SET) == 4 && read(fd, b, 4) == 4 && !memcmp(b, a + 4, 4));
    CHECK_ERR(unlink("/proc/self/status"), EPERM);
    CHECK_ERR(mkdir("/proc/x", 0755), ENOENT);
}
CASE(sys_values_are_numbers) {
    const char *files[] = {"/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max", "/proc/sys/fs/file-max", "/proc/sys/vm/overcommit_memory", "/proc/sys/fs/pipe-max-size", "/proc/sys/net/core/somaxconn", "/proc/sys/kernel/msgmax", "/proc/sys/vm/max_map_count", "/proc/sys/kernel/cap_last_cap", "/proc/sys/kernel/ngroups_max"};
    for (unsigned i = 0; i < sizeof files / sizeof *files; i++) {
        char *e;
        char *s = slurp(files[i]);
        strtoll(s, &e, 10);
        if (e == s || *e != '\n') FAIL("%s: %s", files[i], s);
    }
    CHECK_EQ(atoi(slurp("/proc/sys/fs/pipe-max-size")), 1048576);
    CHECK_EQ(atoi(slurp("/proc/sys/kernel/cap_last_cap")), 40);
}
CASE(random_identifiers) {
    char a[64], b[64];
    strcpy(a, slurp("/proc/sys/kernel/random/uuid")), strcpy(b, slurp("/proc/sys/kernel/random/uuid"));
    CHECK(strlen(a) == 37 && strcmp(a, b) && a[14] == '4');
    strcpy(a, slurp("/proc/sys/kernel/random/boot_id")), strcpy(b, slurp("/proc/sys/kernel/random/boot_id"));
    CHECK(!strcmp(a, b));
}
CASE(loadavg_uptime_stat_formats) {
    double l[3], up, idle;
    int run, all, last;
    CHECK(sscanf(slurp("/proc/loadavg"), "%lf %lf %lf %d/%d %d", l, l + 1, l + 2, &run, &all, &last) == 6 && all >= run && last > 0);
    CHECK(sscanf(slurp("/proc/uptime"), "%lf %lf", &up, &idle) == 2 && up > 0);
    unsigned long long v[10];
    CHECK_EQ(sscanf(slurp("/proc/stat"), "cpu %llu %llu %llu %llu %llu %llu %llu %llu %llu %llu", v, v + 1, v + 2, v + 3, v + 4, v + 5, v + 6, v + 7, v + 8, v + 9), 10);
    long long boot = atoll(field("/proc/stat", "btime "));
    CHECK(llabs(boot + (long long)up - time(NULL)) < 120);
}
CASE(filesystems_and_devices) {
    char *s = slurp("/proc/filesystems");
    CHECK(strstr(s, "nodev\ttmpfs\n") && strstr(s, "nodev\tproc\n"));
    CHECK(strstr(slurp("/proc/devices"), "Character devices:\n") != NULL);
    CHECK(strstr(slurp("/proc/cmdline"), "\n") != NULL);
}
int t_helper(int argc, char **argv) {
    (void)argc, (void)argv;
    pause();
    return 0;
}

CASE(the_mount_table_tells_of_changes) {
    if (geteuid() != 0) SKIP("needs root");
    // Not to be seen by others; a domain has no mount namespaces, and is its own.
    if (unshare(CLONE_NEWNS) == 0) CHECK(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    scratch();
    CHECK(mkdir("m", 0755) == 0);
    struct pollfd p[2] = {{open("/proc/self/mounts", O_RDONLY), POLLPRI | POLLERR, 0},
                          {open("/proc/self/mountinfo", O_RDONLY), POLLPRI, 0}};
    CHECK_EQ(poll(p, 2, 0), 0);
    CHECK(mount("none", "m", "tmpfs", 0, NULL) == 0);
    CHECK_EQ(poll(p, 2, -1), 2);
    CHECK_EQ(p[0].revents, POLLPRI | POLLERR);
    CHECK_EQ(p[1].revents, POLLPRI | POLLERR);
    CHECK_EQ(poll(p, 2, 0), 0);
    // Who waits is woken, and epoll takes it.
    struct epoll_event e = {.events = EPOLLPRI};
    int ep = epoll_create1(0);
    CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, p[0].fd, &e) == 0);
    pid_t child = SPAWN(msleep(20); CHECK(umount("m") == 0));
    CHECK_EQ(epoll_wait(ep, &e, 1, -1), 1);
    CHECK_EQ(e.events, EPOLLPRI | EPOLLERR);
    CHECK_EQ(join(child), 0);
}

CASE(coredump_filter_is_kept) {
    const char *path = "/proc/self/coredump_filter";
    int f = open(path, O_RDWR);
    CHECK(f >= 0);
    static const struct { const char *in; const char *out; } v[] = {
        {"0x7f", "0000007f\n"}, {"10\n", "0000000a\n"}, {"010", "00000008\n"}, {"0", "00000000\n"}, {"0xffffffff", "000001ff\n"}};
    for (int i = 0; i < 5; i++) {
        CHECK_EQ(write(f, v[i].in, strlen(v[i].in)), strlen(v[i].in));
        CHECK(!strcmp(slurp(path), v[i].out));
    }
    CHECK_ERR(write(f, "zz", 2), EINVAL);
    CHECK_EQ(join(SPAWN(CHECK(!strcmp(slurp(path), "000001ff\n")))), 0);
}
