// The parts of /proc, /sys and /dev that programs read.
#include "t.h"
#include <dirent.h>
#include <sys/prctl.h>
#include <sys/statfs.h>
#include <sys/sysinfo.h>

static bool has(const char *path, const char *text) { return strstr(slurp(path), text) != NULL; }
static long field(const char *path, const char *key) {
    char *s = strstr(slurp(path), key);
    if (!s) FAIL("no %s in %s", key, path);
    return strtol(s + strlen(key), NULL, 10);
}

CASE(self_links) {
    char l[64] = "", me[20];
    sprintf(me, "%d", getpid());
    CHECK(readlink("/proc/self", l, sizeof l) > 0 && !strcmp(l, me));
    memset(l, 0, sizeof l);
    CHECK(readlink("/proc/thread-self", l, sizeof l) > 0);
    char w[64];
    sprintf(w, "%d/task/%d", getpid(), getpid());
    CHECK(!strcmp(l, w));
}
CASE(self_exe) {
    char l[PATH_MAX] = "";
    CHECK(readlink("/proc/self/exe", l, sizeof l) > 0);
    CHECK(!strcmp(l, t_self));
    int fd = open("/proc/self/exe", O_RDONLY);
    char m[4];
    CHECK(read(fd, m, 4) == 4 && !memcmp(m, "\177ELF", 4));
}
CASE(self_cwd_root) {
    scratch();
    char l[PATH_MAX] = "", d[PATH_MAX];
    CHECK(readlink("/proc/self/cwd", l, sizeof l) > 0 && !strcmp(l, getcwd(d, sizeof d)));
    memset(l, 0, sizeof l);
    CHECK(readlink("/proc/self/root", l, sizeof l) > 0 && !strcmp(l, "/"));
}
CASE(self_fd_list) {
    int fd = open("/dev/null", O_RDONLY);
    char n[40], l[64] = "";
    sprintf(n, "/proc/self/fd/%d", fd);
    CHECK(readlink(n, l, sizeof l) > 0 && !strcmp(l, "/dev/null"));
    DIR *d = opendir("/proc/self/fd");
    bool seen = false;
    for (struct dirent *e; (e = readdir(d));) seen |= atoi(e->d_name) == fd && e->d_name[0] != '.';
    CHECK(seen);
    close(fd);
    CHECK_ERR(readlink(n, l, sizeof l), ENOENT);
}
CASE(self_fdinfo) {
    scratch();
    int fd = mkfile("f", "abcdef");
    lseek(fd, 3, SEEK_SET);
    char n[40];
    sprintf(n, "/proc/self/fdinfo/%d", fd);
    CHECK(has(n, "pos:\t3\n") && has(n, "flags:\t0"));
}
CASE(self_maps_contains_exe_stack_heap) {
    sbrk(4096);
    char *m = slurp("/proc/self/maps");
    CHECK(strstr(m, t_self) && strstr(m, "[stack]") && strstr(m, "[heap]") && strstr(m, "r-xp"));
}
CASE(self_maps_tracks_mmap) {
    char *p = mmap((void *)0x123400000000, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    CHECK(p != MAP_FAILED);
    CHECK(has("/proc/self/maps", "123400000000-123400002000 r--p 00000000 00:00 0"));
    mprotect(p, 4096, PROT_READ | PROT_WRITE);
    CHECK(has("/proc/self/maps", "123400000000-123400001000 rw-p"));
    munmap(p, 8192);
    CHECK(!has("/proc/self/maps", "123400000000"));
}
CASE(self_maps_file_line) {
    scratch();
    int fd = mkfile("mapped-file", "x");
    struct stat st;
    fstat(fd, &st);
    ftruncate(fd, 8192);
    mmap((void *)0x123400000000, 4096, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 4096);
    char w[200];
    char *l = strstr(slurp("/proc/self/maps"), "123400000000-");
    CHECK(l != NULL);
    *strchr(l, '\n') = 0;
    CHECK(strstr(l, "r--s 00001000") && strstr(l, "mapped-file"));
    sprintf(w, " %lu ", (unsigned long)st.st_ino);
    CHECK(strstr(l, w));
}
CASE(self_status_fields) {
    CHECK_EQ(field("/proc/self/status", "\nPid:\t"), getpid());
    CHECK_EQ(field("/proc/self/status", "\nTgid:\t"), getpid());
    CHECK_EQ(field("/proc/self/status", "\nPPid:\t"), getppid());
    CHECK_EQ(field("/proc/self/status", "\nUid:\t"), getuid());
    CHECK_EQ(field("/proc/self/status", "\nThreads:\t"), 1);
    CHECK(field("/proc/self/status", "\nVmRSS:") > 0);
    CHECK(field("/proc/self/status", "\nVmSize:") > 0);
    CHECK(has("/proc/self/status", "State:\tR (running)"));
    CHECK(has("/proc/self/status", "SigBlk:\t") && has("/proc/self/status", "CapEff:\t"));
}
CASE(status_signal_masks) {
    sigset_t m;
    sigemptyset(&m);
    sigaddset(&m, SIGUSR1);
    sigprocmask(SIG_BLOCK, &m, NULL);
    signal(SIGUSR2, SIG_IGN);
    raise(SIGUSR1);
    CHECK(has("/proc/self/status", "SigBlk:\t0000000000000200"));
    char *s = strstr(slurp("/proc/self/status"), "SigIgn:\t");
    CHECK(strtoull(s + 8, NULL, 16) & 1 << (SIGUSR2 - 1));
}
CASE(self_stat_layout) {
    prctl(PR_SET_NAME, "a) (b");
    char *s = slurp("/proc/self/stat"), *e = strrchr(s, ')');
    CHECK(e && atoi(s) == getpid() && strstr(s, "(a) (b)"));
    char st;
    int ppid, pgrp, sid;
    CHECK_EQ(sscanf(e + 2, "%c %d %d %d", &st, &ppid, &pgrp, &sid), 4);
    CHECK(st == 'R' && ppid == getppid() && pgrp == getpgrp() && sid == getsid(0));
    int n = 0;
    for (char *p = e; *p; p++) n += *p == ' ';
    CHECK_EQ(n, 50);
}
CASE(stat_of_child_states) {
    pid_t p = SPAWN({ pause(); });
    char n[40];
    sprintf(n, "/proc/%d/stat", p);
    EVENTUALLY(strstr(slurp(n), ") S "));
    kill(p, SIGSTOP);
    EVENTUALLY(strstr(slurp(n), ") T "));
    kill(p, SIGKILL);
    EVENTUALLY(strstr(slurp(n), ") Z "));
    join(p);
    CHECK_ERR(open(n, O_RDONLY), ENOENT);
}
CASE(cmdline_environ) {
    CHECK_EQ(join(SPAWN({
        int p[2];
        CHECK(pipe(p) == 0);
        pid_t c = SPAWN({ char *av[] = {"cat", "/proc/self/cmdline", NULL}; dup2(p[1], 1); execv("/bin/cat", av); });
        char b[64] = "";
        CHECK_EQ(join(c), 0);
        CHECK_EQ(read(p[0], b, 64), 23);
        CHECK(!memcmp(b, "cat\0/proc/self/cmdline", 23));
    })), 0);
    CHECK(open("/proc/self/environ", O_RDONLY) >= 0);
}
CASE(comm_write) {
    int fd = open("/proc/self/comm", O_RDWR);
    CHECK(fd >= 0 && write(fd, "renamed", 7) == 7);
    char b[17];
    prctl(PR_GET_NAME, b);
    CHECK(!strcmp(b, "renamed"));
}
static void *sleeper(void *a) {
    msleep(200);
    return a;
}
CASE(task_directory) {
    pthread_t t;
    for (int i = 0; i < 3; i++) pthread_create(&t, NULL, sleeper, NULL);
    DIR *d = opendir("/proc/self/task");
    int n = 0;
    for (struct dirent *e; (e = readdir(d));) n += e->d_name[0] != '.';
    CHECK_EQ(n, 4);
    CHECK_EQ(field("/proc/self/status", "\nThreads:\t"), 4);
}
CASE(proc_lists_processes) {
    pid_t p = SPAWN({ pause(); });
    DIR *d = opendir("/proc");
    bool me = false, child = false, one = false;
    for (struct dirent *e; (e = readdir(d));) {
        int k = atoi(e->d_name);
        me |= k == getpid(), child |= k == p, one |= k == 1;
    }
    CHECK(me && child && one);
    kill(p, SIGKILL);
    join(p);
}
CASE(statm_and_limits) {
    long a, b;
    CHECK(sscanf(slurp("/proc/self/statm"), "%ld %ld", &a, &b) == 2 && a > b && b > 0);
    CHECK(has("/proc/self/limits", "Max open files"));
}
CASE(meminfo) {
    long total = field("/proc/meminfo", "MemTotal:"), avail = field("/proc/meminfo", "MemAvailable:");
    CHECK(total > 1000 && avail > 0 && avail <= total);
    CHECK(field("/proc/meminfo", "MemFree:") >= 0);
    struct sysinfo si;
    CHECK(sysinfo(&si) == 0);
    CHECK(llabs((long long)(si.totalram * si.mem_unit / 1024) - total) < total / 10);
}
CASE(cpuinfo_and_stat) {
    CHECK(has("/proc/cpuinfo", "processor\t: 0") && has("/proc/cpuinfo", "flags\t") && has("/proc/cpuinfo", "model name"));
    CHECK(has("/proc/stat", "cpu ") && has("/proc/stat", "cpu0 ") && has("/proc/stat", "btime "));
}
CASE(uptime_loadavg_version) {
    double up, idle, l1;
    CHECK(sscanf(slurp("/proc/uptime"), "%lf %lf", &up, &idle) == 2 && up > 0);
    CHECK(sscanf(slurp("/proc/loadavg"), "%lf", &l1) == 1);
    CHECK(has("/proc/version", "Linux version "));
}
CASE(mounts_and_mountinfo) {
    CHECK(has("/proc/mounts", " / ") && has("/proc/mounts", " /proc proc "));
    CHECK(has("/proc/self/mountinfo", " / ") && has("/proc/self/mounts", " /proc "));
    CHECK(has("/proc/filesystems", "tmpfs"));
}
CASE(sys_kernel_values) {
    CHECK(has("/proc/sys/kernel/ostype", "Linux"));
    CHECK(strlen(slurp("/proc/sys/kernel/osrelease")) > 3);
    CHECK(strtol(slurp("/proc/sys/kernel/pid_max"), NULL, 10) > 300);
    CHECK(strtol(slurp("/proc/sys/fs/file-max"), NULL, 10) > 100);
    CHECK(strtol(slurp("/proc/sys/vm/overcommit_memory"), NULL, 10) >= 0);
    char b[64];
    strncpy(b, slurp("/proc/sys/kernel/random/boot_id"), 63);
    CHECK(strlen(b) >= 36 && !strcmp(b, slurp("/proc/sys/kernel/random/boot_id")));
    strncpy(b, slurp("/proc/sys/kernel/random/uuid"), 63);
    CHECK(strcmp(b, slurp("/proc/sys/kernel/random/uuid")));
}
CASE(hostname_file_matches_uname) {
    char h[65];
    CHECK(gethostname(h, sizeof h) == 0);
    CHECK(!strncmp(slurp("/proc/sys/kernel/hostname"), h, strlen(h)));
}
CASE(proc_is_read_only_for_creation) {
    CHECK(open("/proc/newfile", O_CREAT | O_WRONLY, 0644) < 0);
    CHECK(mkdir("/proc/newdir", 0755) < 0);
    CHECK(unlink("/proc/self/status") < 0);
    CHECK_ERR(open("/proc/self/nothing", O_RDONLY), ENOENT);
    CHECK_ERR(open("/proc/999999/status", O_RDONLY), ENOENT);
}
CASE(proc_seek_and_partial_reads) {
    int fd = open("/proc/self/status", O_RDONLY);
    char a[200], b[200];
    CHECK_EQ(read(fd, a, 100), 100);
    CHECK_EQ(lseek(fd, 0, SEEK_SET), 0);
    for (int i = 0; i < 100; i++) CHECK_EQ(read(fd, b + i, 1), 1);
    CHECK(!memcmp(a, b, 60));
    struct stat st;
    CHECK(fstat(fd, &st) == 0 && st.st_size == 0 && S_ISREG(st.st_mode));
}
CASE(self_mem_read) {
    int fd = open("/proc/self/mem", O_RDONLY);
    if (fd < 0) SKIP("no /proc/self/mem");
    static char text[] = "through mem";
    char b[12];
    CHECK_EQ(pread(fd, b, 12, (off_t)(uintptr_t)text), 12);
    CHECK(!strcmp(b, text));
}
CASE(self_smaps_oom_cgroup) {
    CHECK(open("/proc/self/oom_score_adj", O_RDWR) >= 0);
    CHECK(open("/proc/self/cgroup", O_RDONLY) >= 0);
    CHECK(has("/proc/self/smaps", "Rss:"));
}
CASE(other_process_fd_denied_to_user) {
    if (geteuid()) SKIP("needs root");
    pid_t p = SPAWN({ pause(); });
    char n[40];
    sprintf(n, "/proc/%d/fd", p);
    CHECK_EQ(join(SPAWN({ t_drop_root(); CHECK(opendir(n) == NULL); })), 0);
    kill(p, SIGKILL);
    join(p);
}
CASE(sys_cpu_online) {
    char *s = slurp("/sys/devices/system/cpu/online");
    CHECK(s[0] == '0');
    struct stat st;
    CHECK(stat("/sys/devices/system/cpu/cpu0", &st) == 0 && S_ISDIR(st.st_mode));
    CHECK(stat("/sys/fs/cgroup", &st) == 0);
}
CASE(dev_entries) {
    struct stat st;
    static const char *d[] = {"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx"};
    for (unsigned i = 0; i < sizeof d / sizeof *d; i++)
        if (stat(d[i], &st) < 0 || !S_ISCHR(st.st_mode)) FAIL("%s", d[i]);
    CHECK(stat("/dev/shm", &st) == 0 && S_ISDIR(st.st_mode) && (st.st_mode & 01777) == 01777);
    CHECK(stat("/dev/pts", &st) == 0 && S_ISDIR(st.st_mode));
    CHECK(access("/dev/stdin", F_OK) == 0 || errno == ENOENT);
}
CASE(shm_open_works) {
    int fd = shm_open("/t-shm-test", O_CREAT | O_RDWR, 0600);
    CHECK(fd >= 0 && ftruncate(fd, 4096) == 0);
    int *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK_EQ(join(SPAWN({ int g = shm_open("/t-shm-test", O_RDWR, 0); int *q = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, g, 0); *q = 77; })), 0);
    CHECK_EQ(*p, 77);
    CHECK(shm_unlink("/t-shm-test") == 0);
    struct statfs s;
    CHECK(statfs("/dev/shm", &s) == 0 && s.f_type == 0x01021994);
}
static long links(const char *path) {
    struct stat st;
    CHECK(stat(path, &st) == 0);
    return st.st_nlink;
}
static int directories(const char *path) {
    DIR *d = opendir(path);
    CHECK(d);
    int n = 0;
    for (struct dirent *e; (e = readdir(d));) n += e->d_type == DT_DIR && e->d_name[0] != '.';
    closedir(d);
    return n;
}
static void *until(void *fd) {
    char c;
    return read(*(int *)fd, &c, 1) == 1 ? fd : NULL;
}
// Browsers count threads by the link count of /proc/self/task.
CASE(links_of_directories_count_those_in_them) {
    pthread_t t[3];
    int p[2];
    CHECK(pipe(p) == 0);
    CHECK_EQ(links("/proc/self/task"), 3);
    for (int i = 0; i < 3; i++) CHECK(pthread_create(&t[i], NULL, until, &p[0]) == 0);
    CHECK_EQ(links("/proc/self/task"), 6);
    CHECK(write(p[1], "abc", 3) == 3);
    for (int i = 0; i < 3; i++) CHECK(pthread_join(t[i], NULL) == 0);
    EVENTUALLY(links("/proc/self/task") == 3);
    CHECK_EQ(links("/proc/self/fd"), 2);
    CHECK_EQ(links("/sys/devices/system/cpu"), 2 + directories("/sys/devices/system/cpu"));
    CHECK(links("/proc") > 4);
}
