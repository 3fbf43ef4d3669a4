/*
 * A hostile stand-in for the guest kernel: started exactly as the real one, it reports what it can see and
 * reach. The integration tests compile it and run it with `doppel run --kernel`.
 *
 * The first boot argument chooses what to do; see the table at the end. Layouts: common/abi/machine/src/lib.rs.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

/* Headers of the console rings, on one page, and their data (common/abi/machine, control). */
enum { PAGE = 4096, RING = 65536, RINGS = 256 * PAGE, HEADER = 256, DATA = RINGS + PAGE, CONTROL = DATA + 4 * RING };
enum { STDIN, STDOUT, STDERR, LOG };
enum { BOOTING, RUNNING, EXITED, PANICKED };
enum { DOORBELL = 4 };

struct vregs {
    _Atomic uint64_t pending;
    _Atomic uint32_t event_seq, state;
    _Atomic int32_t exit_status;
    _Atomic uint32_t winsize;
    _Atomic uint64_t signals;
};

struct ring {
    _Atomic uint32_t head, closed, producer_waits, pad0[13];
    _Atomic uint32_t tail, hung_up, consumer_waits, pad1[13];
};

static char *control;
static struct vregs *vregs;

long gate(long nr, long a, long b, long c, long d, long e, long f);
void sigreturn_site(void);
long elsewhere(long nr, long a, long b, long c, long d, long e, long f);
/* The flag words of new address spaces (common/abi/machine, clone_flags). */
#define SPACE (CLONE_FS | CLONE_FILES | CLONE_PARENT_SETTID | SIGCHLD)

#define BODY \
    "mov %rdi,%rax; mov %rsi,%rdi; mov %rdx,%rsi; mov %rcx,%rdx; mov %r8,%r10; mov %r9,%r8; mov 8(%rsp),%r9;"
__asm__(".text\n.globl gate, elsewhere, sigreturn_site\n"
        ".globl doppel_gate_syscall, doppel_gate_syscall_end, doppel_sigreturn_end\n"
        "gate: " BODY "\ndoppel_gate_syscall: syscall\ndoppel_gate_syscall_end: ret\n"
        "elsewhere: " BODY "\nsyscall; ret\n"
        "sigreturn_site: mov $15,%eax; syscall\ndoppel_sigreturn_end: ud2\n");

static struct ring *ring_at(int i) { return (struct ring *)(control + RINGS + (long)i * HEADER); }
static char *data_of(int i) { return control + DATA + (long)i * RING; }
static void ring_doorbell(void)
{
    uint64_t one = 1;
    gate(SYS_write, DOORBELL, (long)&one, 8, 0, 0, 0);
}
static void idle(uint32_t seen) { gate(SYS_futex, (long)&vregs->event_seq, 0, seen, 0, 0, 0); }

static int put(int index, const char *bytes, uint32_t len)
{
    struct ring *r = ring_at(index);
    char *data = data_of(index);
    while (len) {
        uint32_t seen = vregs->event_seq, head = r->head, room = RING - (head - r->tail);
        if (r->hung_up) return -1;
        if (!room) {
            r->producer_waits = 1;
            if (RING - (head - r->tail) == 0) idle(seen);
            continue;
        }
        uint32_t n = len < room ? len : room;
        for (uint32_t i = 0; i < n; i++) data[(head + i) & (RING - 1)] = bytes[i];
        r->head = head + n;
        if (atomic_exchange(&r->consumer_waits, 0)) ring_doorbell();
        bytes += n, len -= n;
    }
    return 0;
}

static void say(const char *format, ...)
{
    char line[512];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    put(STDOUT, line, n);
}

static void finish(uint32_t state, int status)
{
    vregs->exit_status = status;
    vregs->state = state;
    ring_doorbell();
    gate(SYS_exit_group, 0, 0, 0, 0, 0, 0);
}

static void install_filter(void)
{
    struct sock_fprog program = {*(uint32_t *)(control + 64), (struct sock_filter *)(control + 2 * PAGE)};
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program)) finish(PANICKED, 0);
}

/* What a domain is born with, seen before the filter is there. */
static void report(void)
{
    say("pid %d\nuid %d %d\ngid %d %d\n", getpid(), getuid(), geteuid(), getgid(), getegid());
    say("groups %d\nsid %d\n", getgroups(0, NULL), getsid(0));
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct caps[2];
    syscall(SYS_capget, &header, caps);
    say("caps %x %x %x\n", caps[0].effective | caps[1].effective, caps[0].permitted | caps[1].permitted,
        caps[0].inheritable | caps[1].inheritable);
    int bounding = 0;
    for (int c = 0; c < 64; c++) bounding += prctl(PR_CAPBSET_READ, c, 0, 0, 0) == 1;
    say("bounding %d\nno_new_privs %d\n", bounding, prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
    int death = 0;
    prctl(PR_GET_PDEATHSIG, &death, 0, 0, 0);
    say("pdeathsig %d\n", death);
    int fds = 0;
    for (int fd = 0; fd < 4096; fd++) fds += fcntl(fd, F_GETFD) >= 0;
    say("descriptors %d\n", fds);
    errno = 0;
    int root = open("/", O_RDONLY | O_DIRECTORY);
    say("open / %d %d\n", root, errno);
    struct stat st;
    say("links / %d\n", stat("/", &st) ? -1 : (int)st.st_nlink);
    say("mkdir %d\n", mkdir("/x", 0755) ? errno : 0);
    for (const char **p = (const char *[]){"/proc", "/sys", "/dev", "/etc", "/home", "/..", "..", NULL}; *p; p++)
        say("stat %s %d\n", *p, stat(*p, &st) ? errno : 0);
    char dot_dot[8];
    say("cwd %s\n", getcwd(dot_dot, sizeof dot_dot) ? dot_dot : "?");
    say("socket %d\n", socket(AF_INET, SOCK_STREAM, 0) < 0 ? errno : 0);
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    say("nofile %ld %ld\n", (long)limit.rlim_cur, (long)limit.rlim_max);
    getrlimit(RLIMIT_CORE, &limit);
    say("core %ld\n", (long)limit.rlim_max);
    struct sigaction old;
    int changed = 0;
    for (int s = 1; s < 32; s++) changed += !sigaction(s, NULL, &old) && old.sa_handler != SIG_DFL;
    sigset_t mask;
    sigprocmask(SIG_BLOCK, NULL, &mask);
    for (int s = 1; s < 32; s++) changed += sigismember(&mask, s) == 1;
    say("signals changed %d\nenvironment %d\n", changed, environ && *environ ? 1 : 0);
    say("control resize %d\n", ftruncate(0, 1 << 30) ? errno : 0);
    say("image write %d\n", pwrite(3, "x", 1, 0) < 0 ? errno : 0);
    say("kill outside %d\n", kill(2, 0) ? errno : 0);
    finish(EXITED, 0);
}

static _Atomic int traps;
static void on_sigsys(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RAX] = -(1000 + info->si_syscall);
    traps++;
}
/* Handlers return through the allowed site: glibc's own restorer would trap. */
static void handle(int signal, void (*handler)(int, siginfo_t *, void *))
{
    struct { void *handler; unsigned long flags; void *restorer; uint64_t mask; } action = {
        (void *)handler, SA_SIGINFO | SA_NODEFER | 0x04000000, (void *)sigreturn_site, 0};
    syscall(SYS_rt_sigaction, signal, &action, NULL, 8);
}

/* Newer kernels exempt these from every filter; without a probe in place they only raise SIGILL. */
enum { URETPROBE = 335, UPROBE = 336 };

/* Every system call number, with three sets of arguments, through the gate. */
static void calls(void)
{
    install_filter();
    static const int skip[] = {SYS_exit, SYS_exit_group, SYS_munmap, SYS_sigaltstack, SYS_futex, SYS_wait4,
                               URETPROBE, UPROBE};
    int other = 0, refused = 0;
    char page[PAGE] = "/";
    for (long nr = 0; nr < 600; nr++) {
        int skipped = 0;
        for (size_t i = 0; i < sizeof skip / sizeof *skip; i++) skipped |= skip[i] == nr;
        if (skipped) continue;
        long sets[3][6] = {{0, 0, 0, 0, 0, 0}, {1, (long)page, 1, 0, 0, 0}, {-1, -1, -1, -1, -1, -1}};
        for (int i = 0; i < 3; i++) {
            /* What the rules allow with these arguments is harmless: nothing mapped, advised or moved. */
            long *s = sets[i], r = gate(nr, s[0], s[1], s[2], s[3], s[4], s[5]);
            if (r == -EPERM) refused++;
            else { other++; say("passed %ld set %d: %ld\n", nr, i, r); }
        }
    }
    say("refused %d other %d\n", refused, other);
    finish(EXITED, 0);
}

/* The same from another place: each must trap. */
static void outside(void)
{
    handle(SIGSYS, on_sigsys);
    install_filter();
    int wrong = 0;
    for (long nr = 0; nr < 600; nr++)
        if (nr != URETPROBE && nr != UPROBE && elsewhere(nr, 0, 0, 0, 0, 0, 0) != -(1000 + nr)) wrong++;
    say("x32 %ld\n", gate(0x40000000 | SYS_futex, 0, 0, 0, 0, 0, 0));
    say("wrong %d traps %d\n", wrong, traps);
    finish(EXITED, 0);
}

/* Hostile arguments to calls that are on the list. */
static void arguments(void)
{
    install_filter();
    uint32_t word = 0;
    struct { const char *what; long nr, a[6]; } tries[] = {
        {"clone3", SYS_clone3, {0, 88}},
        {"clone newuser", SYS_clone, {CLONE_NEWUSER | SPACE}},
        {"clone newpid", SYS_clone, {CLONE_NEWPID | SPACE}},
        {"clone vfork", SYS_clone, {CLONE_VM | CLONE_VFORK | SPACE}},
        {"clone parent vm", SYS_clone, {CLONE_VM | CLONE_PARENT | SPACE}},
        {"tgkill kill", SYS_tgkill, {1, 1, SIGKILL}},
        {"tgkill 0", SYS_tgkill, {1, 1, 0}},
        {"mmap control", SYS_mmap, {0x10000000, PAGE, 3, 0x11, 0, 0}},
        {"mmap arena", SYS_mmap, {0x10000000, PAGE, 3, 0x11, 1, 0}},
        {"mmap doorbell", SYS_mmap, {0x10000000, PAGE, 3, 0x11, 4, 0}},
        {"mmap image rw", SYS_mmap, {0x10000000, PAGE, 3, 0x11, 3, 0}},
        {"mmap high fd", SYS_mmap, {0x10000000, PAGE, 3, 0x11, 2 | 1L << 32, 0}},
        {"mmap anywhere", SYS_mmap, {0, PAGE, 3, 0x22, -1, 0}},
        {"futex requeue", SYS_futex, {(long)&word, 3, 1, 1, (long)&word, 0}},
        {"futex lock_pi", SYS_futex, {(long)&word, 6}},
        {"futex realtime", SYS_futex, {(long)&word, 9 | 256, 1, 0, 0, -1}},
        {"madvise remove", SYS_madvise, {0x10000000, PAGE, 9}},
        {"madvise mergeable", SYS_madvise, {0x10000000, PAGE, 12}},
        {"madvise poison", SYS_madvise, {0x10000000, PAGE, 100}},
        {"fallocate grow", SYS_fallocate, {2, 0, 0, PAGE}},
        {"fallocate control", SYS_fallocate, {0, 3, 0, PAGE}},
        {"write stdout", SYS_write, {1, (long)"x", 1}},
        {"write long", SYS_write, {4, (long)"xxxxxxxxxxxxxxxx", 16}},
        {"membarrier global", SYS_membarrier, {1}},
        {"membarrier rseq", SYS_membarrier, {128}},
        {"mprotect pkey", SYS_pkey_mprotect, {0x10000000, PAGE, 0, 0}},
        {"wait4 traced", SYS_wait4, {-1, 0, 0x20000000 | WNOHANG}},
        {"sigreturn at gate", SYS_rt_sigreturn, {0}},
        {"seccomp", SYS_seccomp, {0}},
        {"ptrace", SYS_ptrace, {0}},
    };
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        long *a = tries[i].a, r = gate(tries[i].nr, a[0], a[1], a[2], a[3], a[4], a[5]);
        if (r != -EPERM) say("PASSED %s: %ld\n", tries[i].what, r);
    }
    say("tried %d\n", (int)(sizeof tries / sizeof *tries));
    finish(EXITED, 0);
}

/* What a guest kernel needs does work. */
static void allowed(void)
{
    install_filter();
    void *at = (void *)0x10000000;
    say("mmap %d\n", gate(SYS_mmap, (long)at, PAGE, 3, 0x32, -1, 0) == (long)at);
    say("pagefile %d\n", gate(SYS_mmap, (long)at, PAGE, 7, 0x11, 2, 0) == (long)at);
    *(int *)at = 42;
    say("punch %ld\n", gate(SYS_fallocate, 2, 3, 0, PAGE, 0, 0));
    say("zero %d\n", *(int *)at);
    say("image %d\n", gate(SYS_mmap, (long)at, PAGE, 3, 0x12, 3, 0) == (long)at);
    say("munmap %ld\n", gate(SYS_munmap, (long)at, PAGE, 0, 0, 0, 0));
    long child = gate(SYS_clone, SPACE, 0, 0, 0, 0, 0);
    if (child == 0) {
        long sibling = gate(SYS_clone, CLONE_PARENT | SPACE, 0, 0, 0, 0, 0);
        gate(SYS_exit_group, sibling < 0, 0, 0, 0, 0, 0);
    }
    int status = 0, children = 0;
    while (gate(SYS_wait4, -1, (long)&status, 0x40000000, 0, 0, 0) > 0) children++;
    say("children %d status %d\n", children, status);
    finish(EXITED, 5 << 8);
}

static void cat(void)
{
    install_filter();
    struct ring *r = ring_at(STDIN);
    char *data = data_of(STDIN);
    for (;;) {
        uint32_t seen = vregs->event_seq, tail = r->tail, n = r->head - tail;
        if (!n && r->closed && r->head == tail) break;
        if (!n) {
            r->consumer_waits = 1;
            if (r->head == tail && !r->closed) idle(seen);
            continue;
        }
        if (n > RING - (tail & (RING - 1))) n = RING - (tail & (RING - 1));
        if (put(STDOUT, data + (tail & (RING - 1)), n)) finish(EXITED, SIGPIPE);
        r->tail = tail + n;
        if (atomic_exchange(&r->producer_waits, 0)) ring_doorbell();
    }
    finish(EXITED, 0);
}

static void wait_signal(void)
{
    install_filter();
    say("ready\n");
    for (;;) {
        uint32_t seen = vregs->event_seq;
        uint64_t signals = atomic_exchange(&vregs->signals, 0);
        if (signals) {
            say("signals %lx\n", signals);
            finish(EXITED, 15);
        }
        idle(seen);
    }
}

static void yes(void)
{
    install_filter();
    while (!put(STDOUT, "y\n", 2)) {}
    finish(EXITED, SIGPIPE);
}

static void window(void)
{
    install_filter();
    say("ready\n");
    while (!(atomic_exchange(&vregs->pending, 0) & 4)) idle(vregs->event_seq);
    say("%u rows %u columns\n", vregs->winsize >> 16, vregs->winsize & 0xffff);
    finish(EXITED, 0);
}

/* When the kernel's first instructions run, for measuring what comes before. */
static void clock_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    say("%lld\n", now.tv_sec * 1000000000ll + now.tv_nsec);
    finish(EXITED, 0);
}

static void hang(void) { install_filter(); say("ready\n"); for (;;) idle(vregs->event_seq); }
static void crash(void) { install_filter(); *(volatile int *)8 = 1; }
static void int80(void) { install_filter(); __asm__ volatile("int $0x80" ::"a"(1), "b"(0) : "memory"); say("alive\n"); hang(); }
static void panic(void) { install_filter(); put(LOG, "last words\n", 11); finish(PANICKED, 0); }
static void bad_ring(void) { install_filter(); ring_at(STDOUT)->head = 1u << 31; ring_doorbell(); hang(); }
static void huge_state(void) { install_filter(); vregs->state = 77; vregs->exit_status = -1; ring_doorbell(); hang(); }
static void hog(void)
{
    install_filter();
    for (long at = 0x100000000;; at += 1 << 20)
        if (gate(SYS_mmap, at, 1 << 20, 3, 0x32 | 0x8000, -1, 0) != at) finish(EXITED, 9 << 8);
}
static void bomb(void)
{
    install_filter();
    long made = 0, child;
    while ((child = gate(SYS_clone, SPACE, 0, 0, 0, 0, 0)) > 0) made++;
    /* Children wait to be killed with the domain. */
    if (child == 0) for (;;) idle(vregs->event_seq);
    say("made %s\n", made > 100 ? "many" : "few");
    finish(EXITED, 0);
}

int main(void)
{
    control = mmap(NULL, CONTROL, PROT_READ | PROT_WRITE, MAP_SHARED, 0, 0);
    if (control == MAP_FAILED) return 1;
    vregs = (struct vregs *)(control + PAGE);
    vregs->state = RUNNING;
    const char *what = control + 4 * PAGE + 40; // behind BootArgs
    static const struct { const char *name; void (*run)(void); } table[] = {
        {"report", report}, {"calls", calls}, {"outside", outside}, {"arguments", arguments},
        {"allowed", allowed}, {"cat", cat}, {"signal", wait_signal}, {"yes", yes}, {"hang", hang},
        {"crash", crash}, {"int80", int80}, {"panic", panic}, {"bad-ring", bad_ring}, {"state", huge_state},
        {"hog", hog}, {"bomb", bomb}, {"clock", clock_now},
        {"window", window},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!strcmp(what, table[i].name)) table[i].run();
    return 2;
}
