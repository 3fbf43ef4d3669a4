// seccomp(2) and prctl(PR_SET_SECCOMP): probing as sandboxes do it, strict mode, filters and each of their actions.
#define T_HELPER
#include "t.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <ucontext.h>

#define NR BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))
#define ARG(i) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[i]))
#define RET(v) BPF_STMT(BPF_RET | BPF_K, v)
#define ON(call, action) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1), RET(action)
#define ALLOW RET(SECCOMP_RET_ALLOW)
#define INSTALL(...)                                                                    \
    ({ struct sock_filter f_[] = {__VA_ARGS__};                                         \
       struct sock_fprog prog_ = {sizeof f_ / sizeof *f_, f_};                          \
       syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog_); })
static void nnp(void) { CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0); }
static long install_errno(int code, unsigned k) {
    struct sock_filter f[] = {BPF_STMT(code, k), ALLOW};
    struct sock_fprog prog = {2, f};
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) ? errno : 0;
}

CASE(actions_are_available) {
    uint32_t known[] = {SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_KILL_THREAD, SECCOMP_RET_TRAP, SECCOMP_RET_ERRNO, SECCOMP_RET_ALLOW, SECCOMP_RET_LOG};
    for (unsigned i = 0; i < sizeof known / 4; i++) CHECK(syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &known[i]) == 0);
    uint32_t odd = 0x12340000;
    CHECK_ERR(syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &odd), EOPNOTSUPP);
    CHECK_ERR(syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 1, known), EINVAL);
    CHECK_ERR(syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, NULL), EFAULT);
}
CASE(probing_by_bad_pointer) {
    // What libseccomp, nginx and OpenSSH do to learn whether filters exist.
    CHECK_EQ(prctl(PR_GET_SECCOMP), 0);
    CHECK_ERR(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL), EFAULT);
    CHECK_ERR(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, NULL), EFAULT);
    CHECK_ERR(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, NULL), EFAULT);
    CHECK_ERR(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_LOG, NULL), EFAULT);
    CHECK_ERR(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 1 << 20, NULL), EINVAL);
    CHECK_ERR(syscall(SYS_seccomp, 77, 0, NULL), EINVAL);
    CHECK_ERR(prctl(PR_SET_SECCOMP, 9, NULL), EINVAL);
}
CASE(strict_arguments) {
    CHECK_ERR(syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 1, NULL), EINVAL);
    CHECK_ERR(syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 0, "x"), EINVAL);
}
CASE(strict_kills_other_calls) {
    pid_t p = SPAWN(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT); syscall(SYS_getpid));
    CHECK_EQ(join(p), 128 + SIGKILL);
}
CASE(strict_allows_read_write_exit) {
    int fd[2];
    CHECK(pipe(fd) == 0);
    pid_t p = SPAWN(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT); char c = 'a'; write(fd[1], &c, 1); read(fd[0], &c, 1);
                    syscall(SYS_exit, c == 'a' ? 7 : 8));
    CHECK_EQ(join(p), 7);
}
CASE(filter_needs_no_new_privs) {
    t_drop_root();
    CHECK_ERR(INSTALL(ALLOW), EACCES);
    nnp();
    CHECK(INSTALL(ALLOW) == 0);
    CHECK_EQ(prctl(PR_GET_SECCOMP), SECCOMP_MODE_FILTER);
}
CASE(errno_action) {
    nnp();
    CHECK(INSTALL(NR, ON(SYS_getppid, SECCOMP_RET_ERRNO | 77), ALLOW) == 0);
    CHECK_ERR(syscall(SYS_getppid), 77);
    CHECK(getpid() > 0);
}
CASE(errno_is_capped_and_may_be_zero) {
    nnp();
    CHECK(INSTALL(NR, ON(SYS_getppid, SECCOMP_RET_ERRNO | 0xffff), ON(SYS_getuid, SECCOMP_RET_ERRNO), ALLOW) == 0);
    CHECK_ERR(syscall(SYS_getppid), 4095);
    CHECK(setresuid(1000, 1000, 1000) == 0);
    CHECK_EQ(syscall(SYS_getuid), 0);
}
CASE(kill_process_is_sigsys) {
    nnp();
    pid_t p = SPAWN(INSTALL(NR, ON(SYS_getppid, SECCOMP_RET_KILL_PROCESS), ALLOW); signal(SIGSYS, SIG_IGN); syscall(SYS_getppid));
    CHECK_EQ(join(p), 128 + SIGSYS);
}
static void *one_call(void *a) {
    syscall(SYS_getppid);
    return a;
}
static int tids(void) {
    char *s = strstr(slurp("/proc/self/status"), "Threads:");
    return s ? atoi(s + 8) : -1;
}
CASE(kill_thread_leaves_the_process) {
    nnp();
    CHECK(INSTALL(NR, ON(SYS_getppid, SECCOMP_RET_KILL_THREAD), ALLOW) == 0);
    pthread_t t;
    pthread_create(&t, NULL, one_call, NULL);
    EVENTUALLY(tids() == 1);
}
CASE(kill_thread_of_the_only_thread) {
    nnp();
    pid_t p = SPAWN(INSTALL(NR, ON(SYS_getppid, SECCOMP_RET_KILL_THREAD), ALLOW); syscall(SYS_getppid));
    CHECK_EQ(join(p), 128 + SIGSYS);
}
static volatile int sys_no, sys_code, sys_errno, sys_arch;
static void on_sys(int s, siginfo_t *si, void *u) {
    (void)s;
    sys_no = si->si_syscall, sys_code = si->si_code, sys_errno = si->si_errno, sys_arch = si->si_arch;
    ((ucontext_t *)u)->uc_mcontext.gregs[REG_RAX] = -42;
}
CASE(trap_delivers_sigsys_with_details) {
    nnp();
    on_signal(SIGSYS, on_sys, 0);
    CHECK(INSTALL(NR, ON(SYS_getppid, SECCOMP_RET_TRAP | 5), ALLOW) == 0);
    CHECK_ERR(syscall(SYS_getppid), 42);  // the handler's answer
    CHECK_EQ(sys_no, SYS_getppid);
    CHECK_EQ(sys_code, 1);  // SYS_SECCOMP
    CHECK_EQ(sys_errno, 5);
    CHECK_EQ(sys_arch, (int)AUDIT_ARCH_X86_64);
}
CASE(trap_without_handler_kills) {
    nnp();
    pid_t p = SPAWN(INSTALL(NR, ON(SYS_getppid, SECCOMP_RET_TRAP), ALLOW); syscall(SYS_getppid));
    CHECK_EQ(join(p), 128 + SIGSYS);
}
CASE(trap_blocked_still_kills) {
    nnp();
    sigset_t m;
    sigemptyset(&m);
    sigaddset(&m, SIGSYS);
    pid_t p = SPAWN(sigprocmask(SIG_BLOCK, &m, NULL); INSTALL(NR, ON(SYS_getppid, SECCOMP_RET_TRAP), ALLOW); syscall(SYS_getppid));
    CHECK_EQ(join(p), 128 + SIGSYS);
}
CASE(trace_without_tracer_is_enosys) {
    nnp();
    CHECK(INSTALL(NR, ON(SYS_getppid, SECCOMP_RET_TRACE), ALLOW) == 0);
    CHECK_ERR(syscall(SYS_getppid), ENOSYS);
}
CASE(log_action_allows) {
    nnp();
    CHECK(INSTALL(NR, ON(SYS_getppid, SECCOMP_RET_LOG), ALLOW) == 0);
    CHECK(syscall(SYS_getppid) > 0);
}
CASE(argument_is_compared) {
    nnp();
    CHECK(INSTALL(NR, BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_dup2, 0, 3), ARG(1),
                  BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, 100, 0, 1), RET(SECCOMP_RET_ERRNO | EBUSY), ALLOW) == 0);
    CHECK_EQ(syscall(SYS_dup2, 1, 50), 50);
    CHECK_ERR(syscall(SYS_dup2, 1, 101), EBUSY);
}
CASE(high_half_of_argument) {
    nnp();
    CHECK(INSTALL(NR, BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_lseek, 0, 3),
                  BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1]) + 4),
                  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 7, 0, 1), RET(SECCOMP_RET_ERRNO | EBUSY), ALLOW) == 0);
    CHECK_ERR(lseek(999, 7ll << 32, SEEK_SET), EBUSY);
    CHECK_ERR(lseek(999, 7, SEEK_SET), EBADF);
}
CASE(architecture_and_address_are_given) {
    nnp();
    CHECK(INSTALL(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
                  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0), RET(SECCOMP_RET_KILL_PROCESS),
                  NR, BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 3),
                  BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, instruction_pointer) + 4),
                  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0), RET(SECCOMP_RET_ERRNO | EBUSY), ALLOW) == 0);
    CHECK_ERR(syscall(SYS_getppid), EBUSY);  // libc is mapped above 4 GiB
}
CASE(arithmetic_and_memory) {
    nnp();
    CHECK(INSTALL(NR, BPF_STMT(BPF_ST, 3), BPF_STMT(BPF_LD | BPF_IMM, 10), BPF_STMT(BPF_ALU | BPF_MUL | BPF_K, 11),
                  BPF_STMT(BPF_MISC | BPF_TAX, 0), BPF_STMT(BPF_LD | BPF_MEM, 3),  // X = 110 = SYS_getppid, A = number
                  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_X, 0, 0, 1), RET(SECCOMP_RET_ERRNO | EXDEV), ALLOW) == 0);
    CHECK_ERR(syscall(SYS_getppid), EXDEV);
    CHECK(getpid() > 0);
}
CASE(division_by_zero_register_kills_nothing_else) {
    nnp();
    // A / X with X = 0 ends the filter with 0: the thread is killed.
    pid_t p = SPAWN(INSTALL(NR, BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 1, 0), ALLOW,
                            BPF_STMT(BPF_LDX | BPF_IMM, 0), BPF_STMT(BPF_ALU | BPF_DIV | BPF_X, 0), ALLOW);
                    syscall(SYS_getppid));
    CHECK_EQ(join(p), 128 + SIGSYS);
}
CASE(bad_programs_are_refused) {
    nnp();
    CHECK_EQ(install_errno(BPF_LD | BPF_W | BPF_ABS, 64), EINVAL);   // past the data
    CHECK_EQ(install_errno(BPF_LD | BPF_W | BPF_ABS, 2), EINVAL);    // not aligned
    CHECK_EQ(install_errno(BPF_LD | BPF_B | BPF_ABS, 0), EINVAL);    // bytes are for packets
    CHECK_EQ(install_errno(BPF_LD | BPF_W | BPF_IND, 0), EINVAL);
    CHECK_EQ(install_errno(BPF_JMP | BPF_JA, 5), EINVAL);            // out of the program
    CHECK_EQ(install_errno(BPF_ST, 16), EINVAL);                     // 16 cells: 0 to 15
    CHECK_EQ(install_errno(BPF_LD | BPF_MEM, 0), EINVAL);            // never stored
    CHECK_EQ(install_errno(BPF_ALU | BPF_DIV | BPF_K, 0), EINVAL);
    CHECK_EQ(install_errno(BPF_ALU | BPF_LSH | BPF_K, 32), EINVAL);
    CHECK_EQ(install_errno(0xffff, 0), EINVAL);
    struct sock_filter f[] = {NR};
    struct sock_fprog prog = {1, f}, none = {0, f}, lost = {1, BAD};
    CHECK_ERR(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog), EINVAL);  // does not end in a return
    CHECK_ERR(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &none), EINVAL);
    CHECK_ERR(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &lost), EFAULT);
}
CASE(strictest_of_several_wins) {
    nnp();
    CHECK(INSTALL(NR, ON(SYS_getppid, SECCOMP_RET_ERRNO | 1), ON(SYS_getsid, SECCOMP_RET_ERRNO | 1), ALLOW) == 0);
    CHECK(INSTALL(NR, ON(SYS_getppid, SECCOMP_RET_ERRNO | 2), ON(SYS_getsid, SECCOMP_RET_LOG), ALLOW) == 0);
    CHECK_ERR(syscall(SYS_getppid), 2);  // of equal actions the newest filter's value
    CHECK_ERR(syscall(SYS_getsid, 0), 1);
}
CASE(inherited_by_fork_and_exec) {
    nnp();
    CHECK(INSTALL(NR, ON(SYS_getppid, SECCOMP_RET_ERRNO | 3), ALLOW) == 0);
    pid_t p = SPAWN(_exit(syscall(SYS_getppid) == -1 && errno == 3 ? 9 : 8));
    CHECK_EQ(join(p), 9);
    p = SPAWN(execl(t_self, t_self, "@getppid", NULL));
    CHECK_EQ(join(p), 9);
}
static volatile int go, result;
static void *other_thread(void *a) {
    while (!go) usleep(1000);
    result = syscall(SYS_getppid) == -1 ? errno : 0;
    return a;
}
CASE(belongs_to_one_thread) {
    nnp();
    pthread_t t;
    pthread_create(&t, NULL, other_thread, NULL);
    CHECK(INSTALL(NR, ON(SYS_getppid, SECCOMP_RET_ERRNO | 3), ALLOW) == 0);
    go = 1;
    pthread_join(t, NULL);
    CHECK_EQ(result, 0);
}
CASE(tsync_reaches_all_threads) {
    nnp();
    pthread_t t;
    pthread_create(&t, NULL, other_thread, NULL);
    struct sock_filter f[] = {NR, ON(SYS_getppid, SECCOMP_RET_ERRNO | 3), ALLOW};
    struct sock_fprog prog = {sizeof f / sizeof *f, f};
    CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &prog) == 0);
    go = 1;
    pthread_join(t, NULL);
    CHECK_EQ(result, 3);
}
CASE(new_thread_inherits) {
    nnp();
    CHECK(INSTALL(NR, ON(SYS_getppid, SECCOMP_RET_ERRNO | 3), ALLOW) == 0);
    go = 1;
    pthread_t t;
    pthread_create(&t, NULL, other_thread, NULL);
    pthread_join(t, NULL);
    CHECK_EQ(result, 3);
}
CASE(status_shows_mode_and_filters) {
    nnp();
    CHECK(strstr(slurp("/proc/self/status"), "Seccomp:\t0\n") != NULL);
    CHECK(INSTALL(ALLOW) == 0 && INSTALL(ALLOW) == 0);
    char *s = slurp("/proc/self/status");
    CHECK(strstr(s, "Seccomp:\t2\n") != NULL && strstr(s, "Seccomp_filters:\t2\n") != NULL && strstr(s, "NoNewPrivs:\t1\n") != NULL);
}
CASE(strict_after_filter_is_refused) {
    nnp();
    CHECK(INSTALL(ALLOW) == 0);
    CHECK_ERR(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT), EINVAL);
}
CASE(sandbox_as_openssh_builds_it) {
    nnp();
    int fd[2];
    CHECK(pipe(fd) == 0);
    pid_t p = SPAWN(struct prlimit { unsigned long c, m; } zero = {0, 0}; syscall(SYS_setrlimit, 7, &zero);
                    INSTALL(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
                            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0), RET(SECCOMP_RET_KILL), NR,
                            ON(SYS_openat, SECCOMP_RET_ERRNO | EACCES), ON(SYS_write, SECCOMP_RET_ALLOW),
                            ON(SYS_getpid, SECCOMP_RET_ALLOW), ON(SYS_exit_group, SECCOMP_RET_ALLOW), RET(SECCOMP_RET_KILL));
                    if (open("/etc/passwd", O_RDONLY) >= 0 || errno != EACCES) _exit(1);
                    write(fd[1], "ok", 2); syscall(SYS_socket, 1, 1, 0); _exit(2));
    char b[4];
    CHECK_EQ(read(fd[0], b, 4), 2);
    CHECK_EQ(join(p), 128 + SIGSYS);
}
int t_helper(int argc, char **argv) {
    (void)argc, (void)argv;
    return syscall(SYS_getppid) == -1 && errno == 3 ? 9 : 8;
}
