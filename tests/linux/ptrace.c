// Tracing: ptrace(2), and how wait(2) and signals show tracees.
#include "t.h"
#include <elf.h>
#include <stddef.h>
#include <sys/ptrace.h>
#include <sys/user.h>

#define STOPPED_BY(st, sig) (WIFSTOPPED(st) && WSTOPSIG(st) == (sig))
#define EVENT(st, ev) ((st) >> 8 == (SIGTRAP | (ev) << 8))

static int st;

static void wait_stop(pid_t p, int sig) {
    CHECK_EQ(waitpid(p, &st, __WALL), p);
    if (!STOPPED_BY(st, sig)) FAIL("status %#x, want a stop by %d", st, sig);
}

// A child that is traced and stopped by its own SIGSTOP, then runs the statements.
#define TRACED(...)                                                          \
    ({ pid_t t_ = fork(); CHECK(t_ >= 0);                                    \
       if (t_ == 0) { if (ptrace(PTRACE_TRACEME, 0, 0, 0)) _exit(99); raise(SIGSTOP); __VA_ARGS__; _exit(0); } \
       wait_stop(t_, SIGSTOP); t_; })

static void finish(pid_t p, int code) {
    CHECK_OK(ptrace(PTRACE_CONT, p, 0, 0));
    CHECK_EQ(waitpid(p, &st, 0), p);
    CHECK(WIFEXITED(st));
    CHECK_EQ(WEXITSTATUS(st), code);
}

static volatile long word = 42;
__attribute__((noinline)) static int answer(void) { __asm__ volatile(""); return 7; }

CASE(traceme_stop_and_continue) {
    pid_t p = TRACED(_exit(5));
    finish(p, 5);
}
CASE(requests_need_a_stopped_tracee) {
    CHECK_ERR(ptrace(PTRACE_CONT, getpid(), 0, 0), ESRCH);
    CHECK_ERR(ptrace(PTRACE_PEEKDATA, 999999, 0, 0), ESRCH);
    pid_t p = TRACED(pause());
    CHECK_OK(ptrace(PTRACE_CONT, p, 0, 0));
    CHECK_ERR(ptrace(PTRACE_CONT, p, 0, 0), ESRCH);
    kill(p, SIGKILL);
    CHECK_EQ(join(p), 128 + SIGKILL);
}
CASE(traceme_twice_fails) {
    pid_t p = TRACED({ if (ptrace(PTRACE_TRACEME, 0, 0, 0) == 0 || errno != EPERM) _exit(1); });
    finish(p, 0);
}
CASE(peek_and_poke_data) {
    pid_t p = TRACED(_exit(word == 43 ? 0 : 1));
    errno = 0;
    CHECK_EQ(ptrace(PTRACE_PEEKDATA, p, &word, 0), 42);
    CHECK_EQ(errno, 0);
    CHECK_OK(ptrace(PTRACE_POKEDATA, p, &word, 43L));
    CHECK_EQ(word, 42);
    errno = 0;
    CHECK(ptrace(PTRACE_PEEKDATA, p, BAD, 0) == -1 && errno == EIO);
    CHECK_ERR(ptrace(PTRACE_POKEDATA, p, BAD, 0), EIO);
    finish(p, 0);
}
CASE(breakpoint_in_text) {
    pid_t p = TRACED(_exit(answer()));
    errno = 0;
    long old = ptrace(PTRACE_PEEKTEXT, p, answer, 0);
    CHECK_EQ(errno, 0);
    CHECK_OK(ptrace(PTRACE_POKETEXT, p, answer, (old & ~0xffL) | 0xcc));
    CHECK_EQ(answer(), 7);  // only the child's copy
    CHECK_OK(ptrace(PTRACE_CONT, p, 0, 0));
    wait_stop(p, SIGTRAP);
    siginfo_t si;
    CHECK_OK(ptrace(PTRACE_GETSIGINFO, p, 0, &si));
    CHECK_EQ(si.si_signo, SIGTRAP);
    CHECK_EQ(si.si_code, SI_KERNEL);
    struct user_regs_struct r;
    CHECK_OK(ptrace(PTRACE_GETREGS, p, 0, &r));
    CHECK_EQ(r.rip, (long)answer + 1);
    CHECK_OK(ptrace(PTRACE_POKETEXT, p, answer, old));
    r.rip--;
    CHECK_OK(ptrace(PTRACE_SETREGS, p, 0, &r));
    finish(p, 7);
}
CASE(registers_by_peekuser) {
    pid_t p = TRACED(_exit(0));
    struct user_regs_struct r;
    CHECK_OK(ptrace(PTRACE_GETREGS, p, 0, &r));
    CHECK_EQ(ptrace(PTRACE_PEEKUSER, p, offsetof(struct user, regs.rip), 0), r.rip);
    CHECK_EQ(ptrace(PTRACE_PEEKUSER, p, offsetof(struct user, regs.rsp), 0), r.rsp);
    CHECK_EQ(r.cs, 0x33);
    CHECK(r.fs_base != 0);
    CHECK_OK(ptrace(PTRACE_POKEUSER, p, offsetof(struct user, regs.r15), 77L));
    CHECK_OK(ptrace(PTRACE_GETREGS, p, 0, &r));
    CHECK_EQ(r.r15, 77);
    CHECK_ERR(ptrace(PTRACE_POKEUSER, p, 3, 0), EIO);
    CHECK_ERR(ptrace(PTRACE_POKEUSER, p, 1 << 20, 0), EIO);
    kill(p, SIGKILL);
    CHECK_EQ(join(p), 128 + SIGKILL);
}
CASE(register_sets) {
    pid_t p = TRACED(_exit(0));
    struct user_regs_struct r;
    struct iovec v = {&r, sizeof r};
    CHECK_OK(ptrace(PTRACE_GETREGSET, p, NT_PRSTATUS, &v));
    CHECK_EQ(v.iov_len, sizeof r);
    CHECK_OK(ptrace(PTRACE_SETREGSET, p, NT_PRSTATUS, &v));
    struct user_fpregs_struct f;
    v = (struct iovec){&f, sizeof f};
    CHECK_OK(ptrace(PTRACE_GETREGSET, p, NT_PRFPREG, &v));
    CHECK_EQ(v.iov_len, 512);
    CHECK_EQ(f.cwd, 0x37f);
    CHECK_EQ(f.mxcsr & 0xffc0, 0x1f80);
    static char x[16384];
    v = (struct iovec){x, sizeof x};
    CHECK_OK(ptrace(PTRACE_GETREGSET, p, NT_X86_XSTATE, &v));
    CHECK(v.iov_len >= 576);
    CHECK_EQ(x[464] & 3, 3);  // XCR0
    CHECK_OK(ptrace(PTRACE_SETREGSET, p, NT_X86_XSTATE, &v));
    CHECK_ERR(ptrace(PTRACE_GETREGSET, p, 0x7777, &v), EINVAL);
    finish(p, 0);
}
CASE(fp_registers_reach_the_program) {
    pid_t p = TRACED({
        double d;
        __asm__ volatile("mov $0, %%eax; movq %%rax, %%xmm9; int3; movsd %%xmm9, %0" : "=m"(d) : : "rax", "xmm9");
        _exit(d == 2.5 ? 0 : 1);
    });
    CHECK_OK(ptrace(PTRACE_CONT, p, 0, 0));
    wait_stop(p, SIGTRAP);
    struct user_fpregs_struct f;
    CHECK_OK(ptrace(PTRACE_GETFPREGS, p, 0, &f));
    double d = 2.5;
    memcpy((char *)f.xmm_space + 9 * 16, &d, 8);
    CHECK_OK(ptrace(PTRACE_SETFPREGS, p, 0, &f));
    finish(p, 0);
}
CASE(single_step) {
    pid_t p = TRACED({ __asm__ volatile("int3; nop; nop; mov $5, %%ecx; nop" ::: "ecx"); _exit(3); });
    CHECK_OK(ptrace(PTRACE_CONT, p, 0, 0));
    wait_stop(p, SIGTRAP);
    long want[] = {1, 2, 7, 8};
    long at = ptrace(PTRACE_PEEKUSER, p, offsetof(struct user, regs.rip), 0);
    for (int i = 0; i < 4; i++) {
        CHECK_OK(ptrace(PTRACE_SINGLESTEP, p, 0, 0));
        wait_stop(p, SIGTRAP);
        siginfo_t si;
        CHECK_OK(ptrace(PTRACE_GETSIGINFO, p, 0, &si));
        CHECK_EQ(si.si_code, TRAP_TRACE);
        CHECK_EQ(ptrace(PTRACE_PEEKUSER, p, offsetof(struct user, regs.rip), 0) - at, want[i]);
        CHECK_EQ(ptrace(PTRACE_PEEKUSER, p, offsetof(struct user, regs.eflags), 0) & 0x100, 0);
    }
    finish(p, 3);
}
CASE(single_step_over_calls) {
    pid_t p = TRACED({
        long r;
        __asm__ volatile("int3; mov $39, %%eax; syscall; nop" : "=a"(r) : : "rcx", "r11", "memory");
        _exit(r == getpid() ? 0 : 1);
    });
    CHECK_OK(ptrace(PTRACE_CONT, p, 0, 0));
    wait_stop(p, SIGTRAP);
    long at = ptrace(PTRACE_PEEKUSER, p, offsetof(struct user, regs.rip), 0);
    int seen = 0;
    for (int i = 0; i < 3; i++) {
        CHECK_OK(ptrace(PTRACE_SINGLESTEP, p, 0, 0));
        wait_stop(p, SIGTRAP);
        long off = ptrace(PTRACE_PEEKUSER, p, offsetof(struct user, regs.rip), 0) - at;
        if (off == 7) seen++;
        if (off >= 7) break;
    }
    CHECK_EQ(seen, 1);
    CHECK_EQ(ptrace(PTRACE_PEEKUSER, p, offsetof(struct user, regs.rax), 0), p);
    finish(p, 0);
}
CASE(single_step_a_thousand) {
    pid_t p = TRACED({ for (int i = 0; i < 50; i++) syscall(SYS_getppid); getpid(); _exit(9); });
    for (int i = 0; i < 1000; i++) {
        CHECK_OK(ptrace(PTRACE_SINGLESTEP, p, 0, 0));
        wait_stop(p, SIGTRAP);
    }
    finish(p, 9);
}
static void handler(int s) { (void)s; }
CASE(single_step_into_handler) {
    pid_t p = TRACED({ signal(SIGUSR1, handler); raise(SIGUSR1); _exit(4); });
    CHECK_OK(ptrace(PTRACE_CONT, p, 0, 0));
    wait_stop(p, SIGUSR1);
    CHECK_OK(ptrace(PTRACE_SINGLESTEP, p, 0, SIGUSR1));
    wait_stop(p, SIGTRAP);
    CHECK_EQ(ptrace(PTRACE_PEEKUSER, p, offsetof(struct user, regs.rip), 0), (long)handler);
    finish(p, 4);
}
CASE(kill_request) {
    pid_t p = TRACED(_exit(0));
    CHECK_OK(ptrace(PTRACE_KILL, p, 0, 0));
    CHECK_EQ(join(p), 128 + SIGKILL);
}
CASE(syscall_stops) {
    pid_t p = TRACED({ syscall(SYS_getppid); _exit(6); });
    CHECK_OK(ptrace(PTRACE_SETOPTIONS, p, 0, PTRACE_O_TRACESYSGOOD));
    long in = 0, out = 0, exits = 0;
    struct user_regs_struct r;
    for (;;) {
        CHECK_OK(ptrace(PTRACE_SYSCALL, p, 0, 0));
        CHECK_EQ(waitpid(p, &st, 0), p);
        if (WIFEXITED(st)) break;
        CHECK_EQ(WSTOPSIG(st), SIGTRAP | 0x80);
        CHECK_OK(ptrace(PTRACE_GETREGS, p, 0, &r));
        if (r.orig_rax == SYS_exit_group) exits++;
        if (r.orig_rax != SYS_getppid) continue;
        if (in == out) {
            in++;
            CHECK_EQ(r.rax, -ENOSYS);
        } else {
            out++;
            CHECK_EQ(r.rax, getpid());
        }
    }
    CHECK_EQ(WEXITSTATUS(st), 6);
    CHECK(in == 1 && out == 1 && exits == 1);
}
CASE(syscall_info) {
    pid_t p = TRACED({ syscall(SYS_lseek, 77, 88L, 99); _exit(0); });
    CHECK_OK(ptrace(PTRACE_SETOPTIONS, p, 0, PTRACE_O_TRACESYSGOOD));
    struct __attribute__((packed)) { uint8_t op, pad[3]; uint32_t arch; uint64_t ip, sp; union { struct { uint64_t nr, args[6]; } entry; struct { int64_t rval; uint8_t err; } exit; }; } i;
    CHECK_EQ(CHECK_OK(ptrace(0x420e, p, sizeof i, &i)), 24);
    CHECK_EQ(i.op, 0);
    do {
        CHECK_OK(ptrace(PTRACE_SYSCALL, p, 0, 0));
        wait_stop(p, SIGTRAP | 0x80);
        CHECK(ptrace(0x420e, p, sizeof i, &i) >= 33);
    } while (i.op != 1 || i.entry.nr != SYS_lseek);
    CHECK_EQ(i.arch, 0xc000003e);
    CHECK(i.entry.args[0] == 77 && i.entry.args[1] == 88 && i.entry.args[2] == 99);
    CHECK_OK(ptrace(PTRACE_SYSCALL, p, 0, 0));
    wait_stop(p, SIGTRAP | 0x80);
    CHECK_EQ(CHECK_OK(ptrace(0x420e, p, sizeof i, &i)), 33);
    CHECK_EQ(i.op, 2);
    CHECK_EQ(i.exit.rval, -EBADF);
    CHECK_EQ(i.exit.err, 1);
    finish(p, 0);
}
CASE(syscall_changed_and_suppressed) {
    pid_t p = TRACED({
        if (syscall(SYS_getppid) != getpid()) _exit(1);  // made a getpid
        if (syscall(SYS_getuid) != 1234) _exit(2);       // not made at all
        _exit(0);
    });
    CHECK_OK(ptrace(PTRACE_SETOPTIONS, p, 0, PTRACE_O_TRACESYSGOOD));
    struct user_regs_struct r;
    do {
        CHECK_OK(ptrace(PTRACE_SYSCALL, p, 0, 0));
        wait_stop(p, SIGTRAP | 0x80);
        CHECK_OK(ptrace(PTRACE_GETREGS, p, 0, &r));
    } while (r.orig_rax != SYS_getppid);
    r.orig_rax = SYS_getpid;
    CHECK_OK(ptrace(PTRACE_SETREGS, p, 0, &r));
    do {
        CHECK_OK(ptrace(PTRACE_SYSCALL, p, 0, 0));
        wait_stop(p, SIGTRAP | 0x80);
        CHECK_OK(ptrace(PTRACE_GETREGS, p, 0, &r));
    } while (r.orig_rax != SYS_getuid);
    r.orig_rax = -1;
    CHECK_OK(ptrace(PTRACE_SETREGS, p, 0, &r));
    CHECK_OK(ptrace(PTRACE_SYSCALL, p, 0, 0));
    wait_stop(p, SIGTRAP | 0x80);
    CHECK_OK(ptrace(PTRACE_POKEUSER, p, offsetof(struct user, regs.rax), 1234L));
    finish(p, 0);
}
CASE(signal_suppressed) {
    pid_t p = TRACED({ raise(SIGTERM); _exit(8); });
    CHECK_OK(ptrace(PTRACE_CONT, p, 0, 0));
    wait_stop(p, SIGTERM);
    siginfo_t si;
    CHECK_OK(ptrace(PTRACE_GETSIGINFO, p, 0, &si));
    CHECK(si.si_signo == SIGTERM && si.si_code == SI_TKILL && si.si_pid == p);
    finish(p, 8);
}
CASE(signal_delivered) {
    pid_t p = TRACED({ raise(SIGTERM); _exit(8); });
    CHECK_OK(ptrace(PTRACE_CONT, p, 0, 0));
    wait_stop(p, SIGTERM);
    CHECK_OK(ptrace(PTRACE_CONT, p, 0, SIGTERM));
    CHECK_EQ(join(p), 128 + SIGTERM);
}
CASE(signal_replaced) {
    pid_t p = TRACED({ raise(SIGTERM); _exit(8); });
    CHECK_OK(ptrace(PTRACE_CONT, p, 0, 0));
    wait_stop(p, SIGTERM);
    CHECK_OK(ptrace(PTRACE_CONT, p, 0, SIGUSR2));
    CHECK_EQ(join(p), 128 + SIGUSR2);
}
CASE(ignored_signal_is_reported) {
    pid_t p = TRACED({ signal(SIGUSR1, SIG_IGN); raise(SIGUSR1); _exit(2); });
    CHECK_OK(ptrace(PTRACE_CONT, p, 0, 0));
    wait_stop(p, SIGUSR1);
    CHECK_OK(ptrace(PTRACE_CONT, p, 0, SIGUSR1));
    CHECK_EQ(join(p), 2);
}
CASE(continue_with_a_bad_signal) {
    pid_t p = TRACED(_exit(0));
    CHECK_ERR(ptrace(PTRACE_CONT, p, 0, 65), EIO);
    finish(p, 0);
}
CASE(kill_while_stopped) {
    pid_t p = TRACED(_exit(0));
    CHECK_OK(kill(p, SIGKILL));
    CHECK_EQ(join(p), 128 + SIGKILL);
}
CASE(sigchld_tells_the_tracer) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
    pid_t p = fork();
    if (p == 0) { ptrace(PTRACE_TRACEME, 0, 0, 0); raise(SIGSTOP); _exit(0); }
    siginfo_t si;
    CHECK_EQ(sigwaitinfo(&set, &si), SIGCHLD);
    CHECK_EQ(si.si_code, CLD_TRAPPED);
    CHECK_EQ(si.si_pid, p);
    CHECK_EQ(si.si_status, SIGSTOP);
    siginfo_t wi = {0};
    CHECK_OK(waitid(P_PID, p, &wi, WSTOPPED | WNOWAIT));
    CHECK_EQ(wi.si_code, CLD_TRAPPED);
    CHECK_EQ(wi.si_status, SIGSTOP);
    wait_stop(p, SIGSTOP);
    CHECK_EQ(waitpid(p, &st, WNOHANG), 0);  // once
    finish(p, 0);
}
CASE(exec_traps) {
    pid_t p = TRACED({ execl("/bin/true", "true", NULL); _exit(9); });
    CHECK_OK(ptrace(PTRACE_CONT, p, 0, 0));
    wait_stop(p, SIGTRAP);
    CHECK_EQ(st >> 16, 0);
    finish(p, 0);
}
CASE(exec_event) {
    pid_t p = TRACED({ execl("/bin/true", "true", NULL); _exit(9); });
    CHECK_OK(ptrace(PTRACE_SETOPTIONS, p, 0, PTRACE_O_TRACEEXEC));
    CHECK_OK(ptrace(PTRACE_CONT, p, 0, 0));
    CHECK_EQ(waitpid(p, &st, 0), p);
    CHECK(EVENT(st, PTRACE_EVENT_EXEC));
    unsigned long m;
    CHECK_OK(ptrace(PTRACE_GETEVENTMSG, p, 0, &m));
    CHECK_EQ(m, p);
    finish(p, 0);
}
CASE(exit_event) {
    pid_t p = TRACED(_exit(3));
    CHECK_OK(ptrace(PTRACE_SETOPTIONS, p, 0, PTRACE_O_TRACEEXIT));
    CHECK_OK(ptrace(PTRACE_CONT, p, 0, 0));
    CHECK_EQ(waitpid(p, &st, 0), p);
    CHECK(EVENT(st, PTRACE_EVENT_EXIT));
    unsigned long m;
    CHECK_OK(ptrace(PTRACE_GETEVENTMSG, p, 0, &m));
    CHECK_EQ(m, 3 << 8);
    finish(p, 3);
}
CASE(fork_event_follows_the_child) {
    pid_t p = TRACED({ pid_t c = fork(); if (c == 0) _exit(4); int s; waitpid(c, &s, 0); _exit(WEXITSTATUS(s) + 1); });
    CHECK_OK(ptrace(PTRACE_SETOPTIONS, p, 0, PTRACE_O_TRACEFORK));
    CHECK_OK(ptrace(PTRACE_CONT, p, 0, 0));
    CHECK_EQ(waitpid(p, &st, 0), p);
    CHECK(EVENT(st, PTRACE_EVENT_FORK));
    unsigned long c;
    CHECK_OK(ptrace(PTRACE_GETEVENTMSG, p, 0, &c));
    wait_stop(c, SIGSTOP);
    CHECK_OK(ptrace(PTRACE_CONT, c, 0, 0));
    CHECK_EQ(waitpid(c, &st, 0), c);  // not our child, but our tracee
    CHECK(WIFEXITED(st) && WEXITSTATUS(st) == 4);
    CHECK_OK(ptrace(PTRACE_CONT, p, 0, 0));
    CHECK_EQ(waitpid(p, &st, 0), p);
    if (STOPPED_BY(st, SIGCHLD)) {
        CHECK_OK(ptrace(PTRACE_CONT, p, 0, SIGCHLD));
        CHECK_EQ(waitpid(p, &st, 0), p);
    }
    CHECK_EQ(WEXITSTATUS(st), 5);
}
CASE(vfork_events) {
    pid_t p = TRACED({ pid_t c = vfork(); if (c == 0) _exit(0); _exit(0); });
    CHECK_OK(ptrace(PTRACE_SETOPTIONS, p, 0, PTRACE_O_TRACEVFORKDONE | PTRACE_O_TRACEVFORK));
    CHECK_OK(ptrace(PTRACE_CONT, p, 0, 0));
    CHECK_EQ(waitpid(p, &st, 0), p);
    CHECK(EVENT(st, PTRACE_EVENT_VFORK));
    unsigned long c;
    CHECK_OK(ptrace(PTRACE_GETEVENTMSG, p, 0, &c));
    wait_stop(c, SIGSTOP);
    CHECK_OK(ptrace(PTRACE_DETACH, c, 0, 0));
    CHECK_OK(ptrace(PTRACE_CONT, p, 0, 0));
    CHECK_EQ(waitpid(p, &st, 0), p);
    CHECK(EVENT(st, PTRACE_EVENT_VFORK_DONE));
    kill(p, SIGKILL);
}
static void *thread_fn(void *a) { return a; }
CASE(clone_event_follows_threads) {
    pid_t p = TRACED({ pthread_t t; pthread_create(&t, NULL, thread_fn, NULL); pthread_join(t, NULL); _exit(6); });
    CHECK_OK(ptrace(PTRACE_SETOPTIONS, p, 0, PTRACE_O_TRACECLONE));
    CHECK_OK(ptrace(PTRACE_CONT, p, 0, 0));
    CHECK_EQ(waitpid(p, &st, 0), p);
    CHECK(EVENT(st, PTRACE_EVENT_CLONE));
    unsigned long c;
    CHECK_OK(ptrace(PTRACE_GETEVENTMSG, p, 0, &c));
    wait_stop(c, SIGSTOP);
    CHECK_OK(ptrace(PTRACE_CONT, c, 0, 0));
    CHECK_OK(ptrace(PTRACE_CONT, p, 0, 0));
    CHECK_EQ(waitpid(c, &st, __WALL), c);
    // The process may exit while its thread, already joined, is still on its way out.
    CHECK(WIFEXITED(st) && (WEXITSTATUS(st) == 0 || WEXITSTATUS(st) == 6));
    CHECK_EQ(waitpid(p, &st, 0), p);
    CHECK_EQ(WEXITSTATUS(st), 6);
}
CASE(attach_and_detach) {
    int fd[2];
    CHECK(pipe(fd) == 0);
    pid_t p = SPAWN({ char c; close(fd[1]); _exit(read(fd[0], &c, 1) == 1 ? 0 : 1); });
    msleep(20);
    CHECK_OK(ptrace(PTRACE_ATTACH, p, 0, 0));
    CHECK_ERR(ptrace(PTRACE_ATTACH, p, 0, 0), EPERM);
    wait_stop(p, SIGSTOP);
    struct user_regs_struct r;
    CHECK_OK(ptrace(PTRACE_GETREGS, p, 0, &r));
    CHECK_EQ(r.orig_rax, SYS_read);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/status", p);
    CHECK(strstr(slurp(path), "State:\tt (tracing stop)") != NULL);
    char want[64];
    snprintf(want, sizeof want, "TracerPid:\t%d\n", getpid());
    CHECK(strstr(slurp(path), want) != NULL);
    CHECK_OK(ptrace(PTRACE_DETACH, p, 0, 0));
    CHECK_ERR(ptrace(PTRACE_DETACH, p, 0, 0), ESRCH);
    CHECK_EQ(write(fd[1], "x", 1), 1);  // the read was made again
    CHECK_EQ(join(p), 0);
}
CASE(attach_needs_another_process) {
    CHECK_ERR(ptrace(PTRACE_ATTACH, getpid(), 0, 0), EPERM);
    CHECK_ERR(ptrace(PTRACE_ATTACH, 999999, 0, 0), ESRCH);
}
CASE(attach_needs_permission) {
    if (getuid() != 0) SKIP("not root");
    pid_t p = SPAWN(pause());
    pid_t q = SPAWN({ t_drop_root(); _exit(ptrace(PTRACE_ATTACH, p, 0, 0) == -1 && errno == EPERM ? 0 : 1); });
    CHECK_EQ(join(q), 0);
    kill(p, SIGKILL);
}
CASE(seize_and_interrupt) {
    pid_t p = SPAWN(for (;;) {});
    CHECK_OK(ptrace(PTRACE_SEIZE, p, 0, PTRACE_O_TRACESYSGOOD));
    CHECK_EQ(waitpid(p, &st, WNOHANG), 0);
    CHECK_OK(ptrace(PTRACE_INTERRUPT, p, 0, 0));
    CHECK_EQ(waitpid(p, &st, 0), p);
    CHECK(EVENT(st, PTRACE_EVENT_STOP));
    CHECK_OK(ptrace(PTRACE_CONT, p, 0, 0));
    kill(p, SIGKILL);
    CHECK_EQ(join(p), 128 + SIGKILL);
}
CASE(seize_interrupts_a_call) {
    int fd[2];
    CHECK(pipe(fd) == 0);
    pid_t p = SPAWN({ char c; _exit(read(fd[0], &c, 1) == 1 ? 0 : 1); });
    msleep(20);
    CHECK_OK(ptrace(PTRACE_SEIZE, p, 0, 0));
    CHECK_OK(ptrace(PTRACE_INTERRUPT, p, 0, 0));
    CHECK_EQ(waitpid(p, &st, 0), p);
    CHECK(EVENT(st, PTRACE_EVENT_STOP));
    CHECK_OK(ptrace(PTRACE_CONT, p, 0, 0));
    CHECK_EQ(write(fd[1], "x", 1), 1);
    CHECK_EQ(join(p), 0);
}
CASE(seize_bad_options) {
    pid_t p = SPAWN(pause());
    CHECK_ERR(ptrace(PTRACE_SEIZE, p, 1, 0), EIO);
    CHECK(ptrace(PTRACE_SEIZE, p, 0, 1 << 30) == -1);
    CHECK_OK(ptrace(PTRACE_SEIZE, p, 0, 0));
    CHECK_OK(ptrace(PTRACE_INTERRUPT, p, 0, 0));
    CHECK_EQ(waitpid(p, &st, 0), p);
    CHECK_ERR(ptrace(PTRACE_SETOPTIONS, p, 0, 1 << 30), EINVAL);
    kill(p, SIGKILL);
}
CASE(group_stop_of_a_seized_tracee) {
    pid_t p = SPAWN(for (;;) pause());
    CHECK_OK(ptrace(PTRACE_SEIZE, p, 0, 0));
    kill(p, SIGSTOP);
    wait_stop(p, SIGSTOP);
    CHECK_EQ(st >> 16, 0);  // first the signal
    CHECK_OK(ptrace(PTRACE_CONT, p, 0, SIGSTOP));
    CHECK_EQ(waitpid(p, &st, 0), p);
    CHECK_EQ(st >> 8, SIGSTOP | PTRACE_EVENT_STOP << 8);
    CHECK_OK(ptrace(PTRACE_LISTEN, p, 0, 0));
    CHECK_EQ(waitpid(p, &st, WNOHANG), 0);
    kill(p, SIGCONT);
    CHECK_EQ(waitpid(p, &st, 0), p);
    CHECK_EQ(st >> 8, SIGTRAP | PTRACE_EVENT_STOP << 8);
    CHECK_OK(ptrace(PTRACE_CONT, p, 0, 0));
    wait_stop(p, SIGCONT);
    CHECK_OK(ptrace(PTRACE_CONT, p, 0, SIGCONT));
    kill(p, SIGKILL);
    CHECK_EQ(join(p), 128 + SIGKILL);
}
CASE(tracer_death_detaches) {
    int fd[2];
    CHECK(pipe(fd) == 0);
    pid_t p = SPAWN({ char c; close(fd[1]); _exit(read(fd[0], &c, 1) == 1 ? 0 : 1); });
    pid_t q = SPAWN({ ptrace(PTRACE_ATTACH, p, 0, 0); waitpid(p, &st, 0); _exit(0); });
    CHECK_EQ(join(q), 0);
    CHECK_EQ(write(fd[1], "x", 1), 1);
    CHECK_EQ(join(p), 0);
}
CASE(exitkill) {
    pid_t p = SPAWN(pause());
    pid_t q = SPAWN({ ptrace(PTRACE_SEIZE, p, 0, PTRACE_O_EXITKILL); _exit(0); });
    CHECK_EQ(join(q), 0);
    CHECK_EQ(join(p), 128 + SIGKILL);
}
CASE(tracer_that_is_not_the_parent_sees_the_exit) {
    int fd[2];
    CHECK(pipe(fd) == 0);
    pid_t p = SPAWN({ char c; read(fd[0], &c, 1); _exit(21); });
    pid_t q = SPAWN({
        CHECK_OK(ptrace(PTRACE_SEIZE, p, 0, 0));
        CHECK_EQ(write(fd[1], "x", 1), 1);
        CHECK_EQ(waitpid(p, &st, 0), p);
        _exit(WIFEXITED(st) && WEXITSTATUS(st) == 21 ? 0 : 1);
    });
    CHECK_EQ(join(q), 0);
    CHECK_EQ(join(p), 21);
}
CASE(a_tracer_that_is_not_the_parent_never_misses_an_end) {
    for (int i = 0; i < 300; i++) {
        pid_t p = SPAWN({ pause(); });
        pid_t q = SPAWN({
            CHECK_OK(ptrace(PTRACE_SEIZE, p, 0, 0));
            CHECK_OK(kill(p, SIGKILL));
            pid_t r;  // while it ends there is nothing to report, but something to wait for
            while ((r = waitpid(p, &st, __WALL | (i % 2 ? WNOHANG : 0))) == 0) continue;
            CHECK_EQ(r, p);
            CHECK(WIFSIGNALED(st) && WTERMSIG(st) == SIGKILL);
            CHECK_ERR(waitpid(p, &st, __WALL), ECHILD);
            _exit(0);
        });
        CHECK_EQ(join(q), 0);
        CHECK_EQ(join(p), 128 + SIGKILL);
    }
}
CASE(signal_mask_of_a_tracee) {
    pid_t p = TRACED(_exit(0));
    uint64_t mask = 0;
    CHECK_OK(ptrace(PTRACE_GETSIGMASK, p, 8, &mask));
    mask |= 1 << (SIGUSR1 - 1);
    CHECK_OK(ptrace(PTRACE_SETSIGMASK, p, 8, &mask));
    mask = 0;
    CHECK_OK(ptrace(PTRACE_GETSIGMASK, p, 8, &mask));
    CHECK(mask & 1 << (SIGUSR1 - 1));
    CHECK_ERR(ptrace(PTRACE_GETSIGMASK, p, 4, &mask), EINVAL);
    finish(p, 0);
}
CASE(memory_through_proc) {
    pid_t p = TRACED(_exit(answer()));
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/mem", p);
    int fd = CHECK_OK(open(path, O_RDWR));
    unsigned char old, brk = 0xcc;
    CHECK_EQ(pread(fd, &old, 1, (long)answer), 1);
    CHECK_EQ(pwrite(fd, &brk, 1, (long)answer), 1);  // text, which the program may not write
    CHECK_OK(ptrace(PTRACE_CONT, p, 0, 0));
    wait_stop(p, SIGTRAP);
    CHECK_EQ(pwrite(fd, &old, 1, (long)answer), 1);
    CHECK_OK(ptrace(PTRACE_POKEUSER, p, offsetof(struct user, regs.rip), (long)answer));
    finish(p, 7);
}
CASE(a_reaped_tracee_is_a_child_no_more) {
    // Its death by a signal, its reaping and the next wait follow each other closely.
    for (int i = 0; i < 100; i++) {
        pid_t p = TRACED(raise(SIGTERM); pause());
        CHECK_OK(ptrace(PTRACE_CONT, p, 0, 0));
        wait_stop(p, SIGTERM);
        CHECK_OK(ptrace(PTRACE_CONT, p, 0, SIGTERM));
        CHECK_EQ(waitpid(-1, &st, __WALL), p);
        CHECK(WIFSIGNALED(st) && WTERMSIG(st) == SIGTERM);
        CHECK_ERR(waitpid(-1, &st, __WALL | WNOHANG), ECHILD);
    }
}
