// Identity, limits, randomness, scheduling calls, system information, and bad pointers everywhere.
#include "t.h"
#include <grp.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>

static void need_root(void) {
    if (geteuid()) SKIP("needs root");
}
CASE(uname_fields) {
    struct utsname u;
    CHECK(uname(&u) == 0);
    CHECK(!strcmp(u.sysname, "Linux") && !strcmp(u.machine, "x86_64"));
    int a, b;
    CHECK(sscanf(u.release, "%d.%d", &a, &b) == 2 && a >= 4);
    CHECK(u.nodename[0] && u.version[0]);
}
CASE(sethostname_permission) {
    CHECK_EQ(join(SPAWN({ t_drop_root(); CHECK_ERR(sethostname("x", 1), EPERM); })), 0);
    CHECK_ERR(sethostname("x", -1), EINVAL);
}
CASE(ids_consistent) {
    uid_t r, e, s;
    CHECK(getresuid(&r, &e, &s) == 0 && r == getuid() && e == geteuid());
    gid_t a, b, c;
    CHECK(getresgid(&a, &b, &c) == 0 && a == getgid() && b == getegid());
}
CASE(setuid_root_drops_all) {
    need_root();
    CHECK_EQ(join(SPAWN({
        uid_t r, e, s;
        CHECK(setuid(1000) == 0 && getresuid(&r, &e, &s) == 0);
        CHECK(r == 1000 && e == 1000 && s == 1000);
        CHECK_ERR(setuid(0), EPERM);
    })), 0);
}
CASE(seteuid_and_back) {
    need_root();
    CHECK_EQ(join(SPAWN({
        CHECK(seteuid(1000) == 0 && geteuid() == 1000 && getuid() == 0);
        CHECK(seteuid(0) == 0 && geteuid() == 0);
    })), 0);
}
CASE(setreuid_saved_id) {
    need_root();
    CHECK_EQ(join(SPAWN({
        uid_t r, e, s;
        CHECK(setreuid(1000, 2000) == 0 && getresuid(&r, &e, &s) == 0);
        CHECK(r == 1000 && e == 2000 && s == 2000);
        CHECK(setreuid(2000, 1000) == 0);
        CHECK_ERR(setreuid(3000, -1), EPERM);
    })), 0);
}
CASE(setresuid_rules) {
    need_root();
    CHECK_EQ(join(SPAWN({
        CHECK(setresuid(1000, 1001, 1002) == 0);
        CHECK(setresuid(-1, 1002, -1) == 0 && geteuid() == 1002);
        CHECK_ERR(setresuid(0, -1, -1), EPERM);
        CHECK(setresuid(1002, 1000, 1000) == 0);
    })), 0);
}
CASE(setgid_groups) {
    need_root();
    CHECK_EQ(join(SPAWN({
        gid_t g[3] = {5, 6, 7}, o[10];
        CHECK(setgroups(3, g) == 0 && getgroups(10, o) == 3 && o[2] == 7);
        CHECK_EQ(getgroups(0, NULL), 3);
        CHECK_ERR(getgroups(1, o), EINVAL);
        CHECK(setresgid(10, 10, 10) == 0 && setresuid(10, 10, 10) == 0);
        CHECK_ERR(setgroups(0, NULL), EPERM);
        CHECK_ERR(setgid(0), EPERM);
        CHECK_EQ(getgroups(10, o), 3);
    })), 0);
}
CASE(setfsuid_returns_old) {
    need_root();
    CHECK_EQ(join(SPAWN({ CHECK_EQ(syscall(SYS_setfsuid, 1000), 0); CHECK_EQ(syscall(SYS_setfsuid, -1), 1000); })), 0);
}
CASE(keepcaps_and_capget) {
    struct { uint32_t v; int pid; } h = {0x20080522, 0};
    struct { uint32_t e, p, i; } d[2];
    CHECK(syscall(SYS_capget, &h, d) == 0);
    CHECK(geteuid() || d[0].e);
    CHECK_EQ(join(SPAWN({ t_drop_root(); CHECK(syscall(SYS_capget, &h, d) == 0); CHECK_EQ(d[0].e, 0); })), 0);
    h.v = 7;
    CHECK_ERR(syscall(SYS_capget, &h, d), EINVAL);
    CHECK_EQ(h.v, 0x20080522);
}
CASE(umask_returns_old_and_inherits) {
    umask(077);
    CHECK_EQ(umask(022), 077);
    CHECK_EQ(join(SPAWN({ CHECK_EQ(umask(0), 022); })), 0);
}
CASE(personality_query) { CHECK_EQ(syscall(SYS_personality, 0xffffffff), 0); }
CASE(rlimit_get_set_lower) {
    CHECK_EQ(join(SPAWN({
        struct rlimit r;
        CHECK(getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur > 10 && r.rlim_max >= r.rlim_cur);
        r.rlim_cur = 20;
        CHECK(setrlimit(RLIMIT_NOFILE, &r) == 0);
        r.rlim_cur = r.rlim_max + 1;
        CHECK_ERR(setrlimit(RLIMIT_NOFILE, &r), EINVAL);
        CHECK_ERR(getrlimit(99, &r), EINVAL);
        CHECK(getrlimit(RLIMIT_STACK, &r) == 0 && r.rlim_cur >= 1 << 20);
    })), 0);
}
CASE(rlimit_raise_needs_privilege) {
    CHECK_EQ(join(SPAWN({
        struct rlimit r = {10, 10};
        CHECK(setrlimit(RLIMIT_CORE, &r) == 0);
        t_drop_root();
        r.rlim_max = 20;
        CHECK_ERR(setrlimit(RLIMIT_CORE, &r), EPERM);
    })), 0);
}
CASE(rlimit_nofile_emfile) {
    CHECK_EQ(join(SPAWN({
        struct rlimit r = {16, 16};
        CHECK(setrlimit(RLIMIT_NOFILE, &r) == 0);
        int last = -1, fd;
        while ((fd = open("/dev/null", O_RDONLY)) >= 0) last = fd;
        CHECK(errno == EMFILE && last == 15);
        int p[2];
        CHECK_ERR(pipe(p), EMFILE);
        CHECK_ERR(socket(AF_UNIX, SOCK_STREAM, 0), EMFILE);
        CHECK_ERR(dup(0), EMFILE);
        CHECK_ERR(dup2(0, 16), EBADF);
        CHECK_ERR(fcntl(0, F_DUPFD, 16), EINVAL);
        CHECK_ERR(epoll_create1(0), EMFILE);
    })), 0);
}
CASE(rlimit_inherited_and_prlimit_other) {
    struct rlimit r = {33, 44}, o;
    CHECK(prlimit(0, RLIMIT_NOFILE, NULL, &o) == 0);
    pid_t p = SPAWN({ pause(); });
    CHECK(prlimit(p, RLIMIT_CORE, &r, NULL) == 0);
    CHECK(prlimit(p, RLIMIT_CORE, NULL, &o) == 0 && o.rlim_cur == 33 && o.rlim_max == 44);
    CHECK_ERR(prlimit(999999, RLIMIT_CORE, NULL, &o), ESRCH);
    kill(p, SIGKILL);
    join(p);
}
CASE(rlimit_cpu_kills) {
    CHECK_EQ(join(SPAWN({ struct rlimit r = {1, 2}; setrlimit(RLIMIT_CPU, &r); for (;;) {} })), 128 + SIGXCPU);
}
CASE(rlimit_nproc_eagain) {
    need_root();
    CHECK_EQ(join(SPAWN({
        struct rlimit r = {3, 3};
        CHECK(setresuid(54321, 54321, 54321) == 0 && setrlimit(RLIMIT_NPROC, &r) == 0);
        int n = 0;
        pid_t p[10];
        while (n < 10 && (p[n] = fork()) > 0) n++;
        if (n < 10 && p[n] == 0) { pause(); _exit(0); }
        CHECK(n < 10 && errno == EAGAIN);
        for (int i = 0; i < n; i++) kill(p[i], SIGKILL);
    })), 0);
}
CASE(sysconf_cpus_agree_with_affinity) {
    cpu_set_t s;
    CHECK(sched_getaffinity(0, sizeof s, &s) == 0);
    CHECK(CPU_COUNT(&s) >= 1 && CPU_COUNT(&s) <= sysconf(_SC_NPROCESSORS_CONF));
    CHECK(sysconf(_SC_NPROCESSORS_ONLN) >= 1);
}
CASE(setaffinity_one_cpu) {
    cpu_set_t s, o;
    CPU_ZERO(&s);
    CPU_SET(0, &s);
    CHECK(sched_setaffinity(0, sizeof s, &s) == 0);
    CHECK(sched_getaffinity(0, sizeof o, &o) == 0 && CPU_COUNT(&o) == 1);
    CPU_ZERO(&s);
    CHECK_ERR(sched_setaffinity(0, sizeof s, &s), EINVAL);
    CHECK_ERR(sched_getaffinity(999999, sizeof o, &o), ESRCH);
    CHECK(sched_getcpu() == 0);
}
CASE(getcpu_call) {
    unsigned c = 99, n = 99;
    CHECK(syscall(SYS_getcpu, &c, &n, NULL) == 0 && c < 4096 && n < 64);
}
CASE(sched_policy_calls) {
    struct sched_param p = {0};
    CHECK_EQ(sched_getscheduler(0), SCHED_OTHER);
    CHECK(sched_getparam(0, &p) == 0 && p.sched_priority == 0);
    CHECK(sched_setscheduler(0, SCHED_BATCH, &p) == 0 && sched_getscheduler(0) == SCHED_BATCH);
    p.sched_priority = 5;
    CHECK_ERR(sched_setscheduler(0, SCHED_OTHER, &p), EINVAL);
    CHECK(sched_get_priority_max(SCHED_FIFO) == 99 && sched_get_priority_min(SCHED_FIFO) == 1);
    CHECK(sched_yield() == 0);
    struct timespec ts;
    CHECK(sched_rr_get_interval(0, &ts) == 0);
    CHECK_ERR(sched_getscheduler(999999), ESRCH);
}
CASE(getrandom_flags) {
    unsigned char a[64], b[64];
    CHECK(getrandom(a, 64, 0) == 64 && getrandom(b, 64, GRND_NONBLOCK) == 64);
    CHECK(memcmp(a, b, 64));
    CHECK(getrandom(a, 64, GRND_RANDOM) > 0);
    CHECK_ERR(getrandom(a, 64, 0x100), EINVAL);
    CHECK_ERR(getrandom(BAD, 64, 0), EFAULT);
    CHECK_EQ(getrandom(a, 0, 0), 0);
    char *big = malloc(1 << 20);
    CHECK_EQ(getrandom(big, 1 << 20, 0), 1 << 20);
}
CASE(getrandom_differs_in_children) {
    int p[2];
    uint64_t a, b;
    CHECK(pipe(p) == 0);
    for (int i = 0; i < 2; i++) join(SPAWN({ CHECK(getrandom(&a, 8, 0) == 8); CHECK(write(p[1], &a, 8) == 8); }));
    CHECK(read(p[0], &a, 8) == 8 && read(p[0], &b, 8) == 8 && a != b);
}
CASE(sysinfo_sane) {
    struct sysinfo s;
    CHECK(sysinfo(&s) == 0 && s.totalram > 0 && s.freeram <= s.totalram && s.procs >= 1 && s.uptime >= 0 && s.mem_unit >= 1);
}
CASE(nosys_and_forbidden_calls) {
    CHECK(syscall(SYS_reboot, 0, 0, 0, 0) < 0);
    CHECK(syscall(SYS_init_module, NULL, 0, "") < 0);
    CHECK(syscall(SYS_iopl, 3) < 0 || geteuid() == 0);
    CHECK(syscall(SYS_swapon, "/none", 0) < 0);
    CHECK(syscall(SYS_uselib, "/none") < 0);
    CHECK(syscall(SYS_vhangup) <= 0);
}
CASE(ptrace_self_or_refused) {
    long r = syscall(SYS_ptrace, 0xdead, 0, 0, 0);
    CHECK(r == -1);
}
CASE(process_vm_readv_child) {
    static int secret = 31337;
    pid_t p = SPAWN({ secret = 4242; pause(); });
    msleep(30);
    int v = 0;
    struct iovec l = {&v, sizeof v}, r = {&secret, sizeof secret};
    ssize_t n = process_vm_readv(p, &l, 1, &r, 1, 0);
    kill(p, SIGKILL);
    join(p);
    if (n < 0 && errno == ENOSYS) SKIP("no process_vm_readv");
    CHECK(n == 4 && v == 4242);
}
CASE(arch_prctl_fs) {
    unsigned long fs = 0;
    CHECK(syscall(SYS_arch_prctl, 0x1003 /* ARCH_GET_FS */, &fs) == 0 && fs != 0);
    CHECK_ERR(syscall(SYS_arch_prctl, 0x9999, 0), EINVAL);
    CHECK_ERR(syscall(SYS_arch_prctl, 0x1002, 0xffff800000000000ul), EPERM);
}
CASE(arch_prctl_gs) {
    static long v = 0x1122334455667788;
    long got;
    if (syscall(SYS_arch_prctl, 0x1001 /* ARCH_SET_GS */, &v) < 0) SKIP("GS is refused");
    __asm__ volatile("mov %%gs:0, %0" : "=r"(got));
    CHECK_EQ(got, v);
    getppid();
    sched_yield();
    __asm__ volatile("mov %%gs:0, %0" : "=r"(got));
    CHECK_EQ(got, v);
}
CASE(x32_and_high_numbers_enosys) {
    CHECK_ERR(syscall(0x40000000 + SYS_getpid), ENOSYS);
    CHECK_ERR(syscall(600), ENOSYS);
}
CASE(rseq_registration) {
    long r = syscall(SYS_rseq, BAD, 32, 0, 0x53053053);
    CHECK(r == -1);
}

// Every pointer argument that lies: EFAULT, no crash. The table holds calls with a bad pointer at
// various places; the second half uses a mapped page without access.
struct bad_call { const char *name; long nr, a[6]; };
#define B 0x10
static const struct bad_call calls[] = {
    {"read", SYS_read, {-2, B, 10}}, {"write", SYS_write, {-3, B, 10}}, {"open", SYS_open, {B, 0}},
    {"stat", SYS_stat, {B, B}}, {"fstat", SYS_fstat, {0, B}}, {"lstat", SYS_lstat, {B, B}},
    {"rt_sigaction", SYS_rt_sigaction, {10, B, 0, 8}}, {"rt_sigprocmask", SYS_rt_sigprocmask, {0, B, 0, 8}},
    {"readv", SYS_readv, {-2, B, 1}}, {"writev", SYS_writev, {-3, B, 1}}, {"access", SYS_access, {B, 0}},
    {"pipe", SYS_pipe, {B}}, {"select", SYS_select, {1, B, 0, 0, 0}}, {"nanosleep", SYS_nanosleep, {B, 0}},
    {"getitimer", SYS_getitimer, {0, B}}, {"setitimer", SYS_setitimer, {0, B, 0}}, {"sendto", SYS_sendto, {-5, B, 10, 0, 0, 0}},
    {"recvfrom", SYS_recvfrom, {-5, B, 10, 0x40, 0, 0}}, {"sendmsg", SYS_sendmsg, {-5, B, 0}}, {"recvmsg", SYS_recvmsg, {-5, B, 0}},
    {"bind", SYS_bind, {-5, B, 20}}, {"connect", SYS_connect, {-5, B, 20}}, {"getsockname", SYS_getsockname, {-5, B, B}},
    {"getsockopt", SYS_getsockopt, {-5, 1, 3, B, B}}, {"setsockopt", SYS_setsockopt, {-5, 1, 2, B, 4}},
    {"socketpair", SYS_socketpair, {1, 1, 0, B}}, {"uname", SYS_uname, {B}},
    {"getcwd", SYS_getcwd, {B, 100}}, {"chdir", SYS_chdir, {B}}, {"rename", SYS_rename, {B, B}}, {"mkdir", SYS_mkdir, {B, 0}},
    {"rmdir", SYS_rmdir, {B}}, {"link", SYS_link, {B, B}}, {"unlink", SYS_unlink, {B}}, {"symlink", SYS_symlink, {B, B}},
    {"readlink", SYS_readlink, {B, B, 10}}, {"chmod", SYS_chmod, {B, 0}}, {"chown", SYS_chown, {B, 0, 0}},
    {"gettimeofday", SYS_gettimeofday, {B, 0}}, {"getrlimit", SYS_getrlimit, {0, B}}, {"setrlimit", SYS_setrlimit, {4, B}},
    {"getrusage", SYS_getrusage, {0, B}}, {"sysinfo", SYS_sysinfo, {B}}, {"times", SYS_times, {B}},
    {"rt_sigpending", SYS_rt_sigpending, {B, 8}}, {"rt_sigtimedwait", SYS_rt_sigtimedwait, {B, 0, 0, 8}},
    {"rt_sigsuspend", SYS_rt_sigsuspend, {B, 8}}, {"sigaltstack", SYS_sigaltstack, {B, 0}}, {"statfs", SYS_statfs, {B, B}},
    {"getresuid", SYS_getresuid, {B, B, B}},
    {"clock_gettime", SYS_clock_gettime, {0, B}}, {"clock_nanosleep", SYS_clock_nanosleep, {1, 0, B, 0}},
    {"timer_create", SYS_timer_create, {1, B, B}}, {"epoll_ctl", SYS_epoll_ctl, {-6, 1, 0, B}},
    {"getdents64", SYS_getdents64, {-4, B, 1000}}, {"openat", SYS_openat, {-100, B, 0}}, {"newfstatat", SYS_newfstatat, {-100, B, B, 0}},
    {"utimensat", SYS_utimensat, {-100, B, 0, 0}}, {"pselect6", SYS_pselect6, {1, B, 0, 0, 0, 0}}, {"ppoll", SYS_ppoll, {B, 1, 0, 0, 0}},
    {"statx", SYS_statx, {-100, B, 0, 0, B}}, {"prlimit64", SYS_prlimit64, {0, 7, B, 0}}, {"poll", SYS_poll, {B, 1, 0}},
    {"pread64", SYS_pread64, {-2, B, 10, 0}}, {"preadv", SYS_preadv, {-2, B, 1, 0}}, {"sendfile", SYS_sendfile, {-3, -2, B, 1}},
    {"getxattr", SYS_getxattr, {B, B, 0, 0}}, {"inotify_add_watch", SYS_inotify_add_watch, {-7, B, 1}},
    {"sched_getaffinity", SYS_sched_getaffinity, {0, 128, B}}, {"sched_setaffinity", SYS_sched_setaffinity, {0, 128, B}},
    {"sched_setparam", SYS_sched_setparam, {0, B}}, {"clock_getres", SYS_clock_getres, {0, B}},
    {"wait4", SYS_wait4, {-1, B, 0, 0}}, {"memfd_create", SYS_memfd_create, {B, 0}}, {"fcntl_getlk", SYS_fcntl, {-2, 5, B}},
    {"ioctl_fionread", SYS_ioctl, {-5, 0x541b, B}}, {"truncate", SYS_truncate, {B, 0}}, {"mknod", SYS_mknod, {B, 0, 0}},
    {"chroot", SYS_chroot, {B}}, {"sethostname", SYS_sethostname, {B, 3}}, {"capget", SYS_capget, {B, B}},
};
static int bad_one(const struct bad_call *c, long replace) {
    int fd_zero = open("/dev/zero", O_RDONLY), pp[2], sp[2];
    CHECK(pipe(pp) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, sp) == 0);
    CHECK(write(sp[1], "xxxxxxxxxxxx", 12) == 12);
    int dir = open("/", O_RDONLY), ep = epoll_create1(0), in = syscall(SYS_inotify_init1, 0);
    if (c->nr == SYS_wait4) SPAWN({ _exit(0); });
    long a[6];
    for (int i = 0; i < 6; i++) {
        a[i] = c->a[i];
        if (a[i] == B) a[i] = replace;
        if (i < 2 && c->nr != SYS_utimensat && c->nr != SYS_openat && c->nr != SYS_newfstatat && c->nr != SYS_statx && c->nr != SYS_wait4)
            a[i] = a[i] == -2 ? fd_zero : a[i] == -3 ? pp[1] : a[i] == -4 ? dir : a[i] == -5 ? sp[0] : a[i] == -6 ? ep : a[i] == -7 ? in : a[i];
    }
    if (c->nr == SYS_sendfile) a[1] = open("/etc/passwd", O_RDONLY);
    errno = 0;
    long r = syscall(c->nr, a[0], a[1], a[2], a[3], a[4], a[5]);
    int e = errno;
    if (c->nr == SYS_wait4) while (waitpid(-1, NULL, WNOHANG) > 0) {}
    for (int fd = fd_zero; fd <= in + 3; fd++) close(fd);
    if (r == -1 && e == EFAULT) return 0;
    FAIL("%s with pointer %#lx: %ld errno %d (%s)", c->name, replace, r, e, strerror(e));
}
CASE(efault_low_address) {
    for (unsigned i = 0; i < sizeof calls / sizeof *calls; i++) bad_one(&calls[i], 0x10);
}
CASE(efault_no_access_page) {
    void *p = noaccess();
    for (unsigned i = 0; i < sizeof calls / sizeof *calls; i++) bad_one(&calls[i], (long)p);
}
CASE(efault_kernel_half) {
    for (unsigned i = 0; i < sizeof calls / sizeof *calls; i++) bad_one(&calls[i], 0xffff888000001000ul);
}
CASE(efault_non_canonical) {
    for (unsigned i = 0; i < sizeof calls / sizeof *calls; i++) bad_one(&calls[i], 0x7000000000000000ul);
}
CASE(efault_one_case_each) {
    // Each call in a process of its own so that one wrong call names itself.
    int bad = 0;
    for (unsigned i = 0; i < sizeof calls / sizeof *calls; i++) {
        pid_t p = fork();
        if (!p) {
            dup2(open("/dev/null", O_WRONLY), 1);
            bad_one(&calls[i], 0x10);
            _exit(0);
        }
        int r = join(p);
        if (r) {
            bad++;
            printf("# efault %s: exit %d\n", calls[i].name, r);
        }
    }
    CHECK_EQ(bad, 0);
}
CASE(path_crossing_into_unmapped_page) {
    char *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(p + 4096, 4096);
    memcpy(p + 4096 - 12, "/etc/passwd", 12);  // ends exactly at the border
    CHECK(open(p + 4096 - 12, O_RDONLY) >= 0);
    memcpy(p + 4096 - 11, "/etc/passwd", 11);  // no terminator before the border
    CHECK_ERR(open(p + 4096 - 11, O_RDONLY), EFAULT);
}
CASE(partial_copy_counts) {
    char *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(p + 4096, 4096);
    int fd[2];
    CHECK(pipe(fd) == 0);
    struct iovec v[2] = {{p, 4}, {p + 4096, 4}};
    ssize_t r = writev(fd[1], v, 2);
    CHECK(r == 4 || (r == -1 && errno == EFAULT));
}
