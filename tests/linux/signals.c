// Signals: delivery, masks, restart, siginfo, alternate stacks, queues, signalfd, see faults.c for
// faults and frames.
#include "t.h"
#include <setjmp.h>
#include <sys/signalfd.h>

static volatile int count, order[64];
static siginfo_t last;
static void note(int s, siginfo_t *si, void *u) {
    (void)u;
    if (count < 64) order[count] = s;
    last = *si;
    count++;
}
static void block(int how, int s) {
    sigset_t m;
    sigemptyset(&m);
    sigaddset(&m, s);
    CHECK(sigprocmask(how, &m, NULL) == 0);
}
static void alarm_in(long us, long every) {
    struct itimerval it = {{0, every}, {0, us}};
    CHECK(setitimer(ITIMER_REAL, &it, NULL) == 0);
}

CASE(raise_delivers_before_return) {
    on_signal(SIGUSR1, note, 0);
    raise(SIGUSR1);
    CHECK_EQ(count, 1);
    kill(getpid(), SIGUSR1);
    CHECK_EQ(count, 2);
}
CASE(siginfo_kill) {
    on_signal(SIGUSR1, note, 0);
    kill(getpid(), SIGUSR1);
    CHECK_EQ(last.si_signo, SIGUSR1);
    CHECK_EQ(last.si_code, SI_USER);
    CHECK_EQ(last.si_pid, getpid());
    CHECK_EQ(last.si_uid, getuid());
}
CASE(siginfo_tgkill) {
    on_signal(SIGUSR1, note, 0);
    syscall(SYS_tgkill, getpid(), getpid(), SIGUSR1);
    CHECK_EQ(last.si_code, SI_TKILL);
}
CASE(sigqueue_value) {
    on_signal(SIGRTMIN, note, 0);
    CHECK(sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = 1234}) == 0);
    CHECK_EQ(last.si_value.sival_int, 1234);
    CHECK_EQ(last.si_code, SI_QUEUE);
    CHECK_EQ(last.si_pid, getpid());
}
CASE(default_terminate) {
    static const int sigs[] = {SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGALRM, SIGPIPE, SIGPROF, SIGIO, SIGPWR};
    for (unsigned i = 0; i < sizeof sigs / sizeof *sigs; i++)
        CHECK_EQ(join(SPAWN({ raise(sigs[i]); msleep(5000); })), 128 + sigs[i]);
}
CASE(default_ignore) {
    static const int sigs[] = {SIGCHLD, SIGURG, SIGWINCH, SIGCONT};
    CHECK_EQ(join(SPAWN({ for (int i = 0; i < 4; i++) raise(sigs[i]); })), 0);
}
CASE(rt_default_terminate) { CHECK_EQ(join(SPAWN({ raise(SIGRTMIN + 3); })), 128 + SIGRTMIN + 3); }
CASE(abort_is_sigabrt) { CHECK_EQ(join(SPAWN({ abort(); })), 128 + SIGABRT); }
CASE(sigkill_cannot_be_caught_or_blocked) {
    struct sigaction sa = {.sa_handler = SIG_IGN};
    CHECK_ERR(sigaction(SIGKILL, &sa, NULL), EINVAL);
    CHECK_ERR(sigaction(SIGSTOP, &sa, NULL), EINVAL);
    sigset_t m, o;
    sigfillset(&m);
    CHECK(sigprocmask(SIG_SETMASK, &m, NULL) == 0);
    CHECK(sigprocmask(SIG_SETMASK, NULL, &o) == 0);
    CHECK(!sigismember(&o, SIGKILL) && !sigismember(&o, SIGSTOP) && sigismember(&o, SIGTERM));
}
CASE(sigaction_errors) {
    struct sigaction sa = {.sa_handler = SIG_IGN};
    CHECK_ERR(sigaction(0, &sa, NULL), EINVAL);
    CHECK_ERR(sigaction(65, &sa, NULL), EINVAL);
    CHECK_ERR(syscall(SYS_rt_sigaction, SIGUSR1, &sa, NULL, 4), EINVAL);
    CHECK_ERR(syscall(SYS_rt_sigaction, SIGUSR1, BAD, NULL, 8), EFAULT);
    CHECK_ERR(sigprocmask(77, (sigset_t *)&sa, NULL), EINVAL);
}
CASE(sigaction_returns_old) {
    struct sigaction o;
    on_signal(SIGUSR1, note, SA_NODEFER);
    CHECK(sigaction(SIGUSR1, NULL, &o) == 0);
    CHECK(o.sa_sigaction == note);
    CHECK_EQ(o.sa_flags & ~0x04000000, SA_SIGINFO | SA_NODEFER);
}
CASE(blocked_stays_pending_then_delivered) {
    on_signal(SIGUSR1, note, 0);
    block(SIG_BLOCK, SIGUSR1);
    raise(SIGUSR1);
    raise(SIGUSR1);
    CHECK_EQ(count, 0);
    sigset_t p;
    sigpending(&p);
    CHECK(sigismember(&p, SIGUSR1));
    block(SIG_UNBLOCK, SIGUSR1);
    CHECK_EQ(count, 1);  // standard signals do not queue
}
CASE(rt_signals_queue_in_order) {
    on_signal(SIGRTMIN + 1, note, 0);
    on_signal(SIGRTMIN + 2, note, 0);
    block(SIG_BLOCK, SIGRTMIN + 1);
    block(SIG_BLOCK, SIGRTMIN + 2);
    for (int i = 0; i < 5; i++) {
        sigqueue(getpid(), SIGRTMIN + 2, (union sigval){.sival_int = i});
        sigqueue(getpid(), SIGRTMIN + 1, (union sigval){.sival_int = i});
    }
    sigset_t m;
    siginfo_t si;
    sigemptyset(&m);
    sigaddset(&m, SIGRTMIN + 1);
    sigaddset(&m, SIGRTMIN + 2);
    for (int i = 0; i < 10; i++) {  // lowest number first, then first in first out
        CHECK_EQ(sigwaitinfo(&m, &si), i < 5 ? SIGRTMIN + 1 : SIGRTMIN + 2);
        CHECK_EQ(si.si_value.sival_int, i % 5);
    }
}
CASE(pending_ignored_is_discarded) {
    on_signal(SIGUSR1, note, 0);
    block(SIG_BLOCK, SIGUSR1);
    raise(SIGUSR1);
    signal(SIGUSR1, SIG_IGN);
    on_signal(SIGUSR1, note, 0);
    block(SIG_UNBLOCK, SIGUSR1);
    CHECK_EQ(count, 0);
}
static void nest(int s, siginfo_t *si, void *u) {
    (void)si, (void)u;
    order[count++] = s;
    if (s == SIGUSR1 && count == 1) {
        raise(SIGUSR1);  // blocked while its handler runs
        raise(SIGUSR2);  // nests
    }
    order[count++] = -s;
}
CASE(handler_nesting_and_self_block) {
    on_signal(SIGUSR1, nest, 0);
    on_signal(SIGUSR2, nest, 0);
    raise(SIGUSR1);
    static const int want[] = {SIGUSR1, SIGUSR2, -SIGUSR2, -SIGUSR1, SIGUSR1, -SIGUSR1};
    CHECK_EQ(count, 6);
    for (int i = 0; i < 6; i++) CHECK_EQ(order[i], want[i]);
}
static void nest_once(int s, siginfo_t *si, void *u) {
    (void)si, (void)u;
    order[count++] = s;
    if (count < 3) raise(s);
    order[count++] = -s;
}
CASE(nodefer_nests) {
    on_signal(SIGUSR1, nest_once, SA_NODEFER);
    raise(SIGUSR1);
    CHECK_EQ(order[1], SIGUSR1);  // entered again before leaving
}
CASE(no_nodefer_defers) {
    on_signal(SIGUSR1, nest_once, 0);
    raise(SIGUSR1);
    CHECK_EQ(order[1], -SIGUSR1);
    CHECK_EQ(order[2], SIGUSR1);
}
CASE(resethand) {
    on_signal(SIGUSR1, note, SA_RESETHAND);
    raise(SIGUSR1);
    struct sigaction o;
    sigaction(SIGUSR1, NULL, &o);
    CHECK(o.sa_handler == SIG_DFL);
}
static sigset_t in_handler;
static void see_mask(int s, siginfo_t *si, void *u) {
    (void)s, (void)si, (void)u;
    sigprocmask(SIG_BLOCK, NULL, &in_handler);
}
CASE(sa_mask_applies_and_is_undone) {
    struct sigaction sa = {.sa_sigaction = see_mask, .sa_flags = SA_SIGINFO};
    sigaddset(&sa.sa_mask, SIGHUP);
    sigaction(SIGUSR1, &sa, NULL);
    raise(SIGUSR1);
    CHECK(sigismember(&in_handler, SIGHUP) && sigismember(&in_handler, SIGUSR1));
    sigprocmask(SIG_BLOCK, NULL, &in_handler);
    CHECK(!sigismember(&in_handler, SIGHUP) && !sigismember(&in_handler, SIGUSR1));
}
CASE(eintr_read_without_restart) {
    int fd[2];
    char c;
    CHECK(pipe(fd) == 0);
    on_signal(SIGALRM, note, 0);
    alarm_in(20000, 20000);
    CHECK_ERR(read(fd[0], &c, 1), EINTR);
}
static int wfd;
static void write_it(int s, siginfo_t *si, void *u) {
    (void)s, (void)si, (void)u;
    if (++count == 3) CHECK(write(wfd, "z", 1) == 1);
}
CASE(restart_read) {
    int fd[2];
    char c;
    CHECK(pipe(fd) == 0);
    wfd = fd[1];
    on_signal(SIGALRM, write_it, SA_RESTART);
    alarm_in(10000, 10000);
    CHECK_EQ(read(fd[0], &c, 1), 1);
    CHECK_EQ(c, 'z');
}
CASE(restart_wait) {
    on_signal(SIGALRM, note, SA_RESTART);
    pid_t p = SPAWN({ msleep(100); _exit(3); });
    alarm_in(10000, 10000);
    int st;
    CHECK_EQ(waitpid(p, &st, 0), p);
    CHECK(count > 0);
}
CASE(eintr_always_poll_epoll_sleep_pause) {
    on_signal(SIGALRM, note, SA_RESTART);
    alarm_in(10000, 10000);
    CHECK_ERR(poll(NULL, 0, 50000), EINTR);
    CHECK_ERR(pause(), EINTR);
    struct timespec ts = {500, 0}, rem = {0};
    CHECK_ERR(nanosleep(&ts, &rem), EINTR);
    CHECK(rem.tv_sec > 0 && rem.tv_sec < 500);
    struct timeval tv = {500, 0};
    CHECK_ERR(select(0, NULL, NULL, NULL, &tv), EINTR);
}
CASE(ignored_signal_does_not_interrupt) {
    signal(SIGALRM, SIG_IGN);
    alarm_in(10000, 0);
    int64_t t0 = now_us();
    CHECK(usleep(60000) == 0);
    CHECK(now_us() - t0 >= 59000);
}
CASE(stop_cont_restarts_sleep_and_poll) {
    pid_t p = SPAWN({ int64_t t0 = now_us(); CHECK_EQ(usleep(100000), 0); CHECK_EQ(poll(NULL, 0, 100), 0); CHECK(now_us() - t0 >= 199000); });
    for (int i = 0; i < 4; i++) {
        msleep(20);
        kill(p, SIGSTOP);
        pause_ms(5);
        kill(p, SIGCONT);
    }
    CHECK_EQ(join(p), 0);
}
CASE(sigsuspend_swaps_mask_atomically) {
    on_signal(SIGUSR1, note, 0);
    block(SIG_BLOCK, SIGUSR1);
    raise(SIGUSR1);
    sigset_t m;
    sigemptyset(&m);
    CHECK_ERR(sigsuspend(&m), EINTR);
    CHECK_EQ(count, 1);
    sigprocmask(SIG_BLOCK, NULL, &m);
    CHECK(sigismember(&m, SIGUSR1));
}
CASE(sigtimedwait_times_out_and_zero) {
    sigset_t m;
    sigemptyset(&m);
    sigaddset(&m, SIGUSR1);
    block(SIG_BLOCK, SIGUSR1);
    struct timespec z = {0, 0}, t = {0, 30000000};
    CHECK_ERR(sigtimedwait(&m, NULL, &z), EAGAIN);
    int64_t t0 = now_us();
    CHECK_ERR(sigtimedwait(&m, NULL, &t), EAGAIN);
    CHECK(now_us() - t0 >= 29000);
    struct timespec bad = {0, -1};
    CHECK_ERR(sigtimedwait(&m, NULL, &bad), EINVAL);
}
CASE(sigwaitinfo_from_child) {
    sigset_t m;
    sigemptyset(&m);
    sigaddset(&m, SIGUSR1);
    block(SIG_BLOCK, SIGUSR1);
    pid_t me = getpid(), p = SPAWN({ msleep(20); kill(me, SIGUSR1); });
    siginfo_t si;
    CHECK_EQ(sigwaitinfo(&m, &si), SIGUSR1);
    CHECK_EQ(si.si_pid, p);
    join(p);
}
CASE(sigtimedwait_eintr_by_other_signal) {
    sigset_t m;
    sigemptyset(&m);
    sigaddset(&m, SIGUSR1);
    on_signal(SIGALRM, note, SA_RESTART);
    alarm_in(20000, 20000);
    CHECK_ERR(sigwaitinfo(&m, NULL), EINTR);
}
static char alt[65536];
static char *volatile handler_sp;  // volatile: raise() is declared a leaf function
static volatile int handler_flags;
static void where(int s, siginfo_t *si, void *u) {
    (void)s, (void)si, (void)u;
    char c;
    handler_sp = &c;
    stack_t ss;
    sigaltstack(NULL, &ss);
    handler_flags = ss.ss_flags;
}
CASE(altstack_used_and_reported) {
    stack_t ss = {.ss_sp = alt, .ss_size = sizeof alt}, o;
    CHECK(sigaltstack(&ss, NULL) == 0);
    on_signal(SIGUSR1, where, SA_ONSTACK);
    raise(SIGUSR1);
    CHECK(handler_sp > alt && handler_sp < alt + sizeof alt);
    CHECK_EQ(handler_flags, SS_ONSTACK);
    on_signal(SIGUSR1, where, 0);
    raise(SIGUSR1);
    CHECK(!(handler_sp > alt && handler_sp < alt + sizeof alt));
    CHECK(sigaltstack(NULL, &o) == 0 && o.ss_sp == alt && o.ss_flags == 0);
}
static volatile int alt_err;
static void change_alt(int s, siginfo_t *si, void *u) {
    (void)s, (void)si, (void)u;
    stack_t ss = {.ss_flags = SS_DISABLE};
    alt_err = sigaltstack(&ss, NULL) < 0 ? errno : 0;
}
CASE(altstack_errors) {
    stack_t ss = {.ss_sp = alt, .ss_size = 100};
    CHECK_ERR(sigaltstack(&ss, NULL), ENOMEM);
    ss.ss_size = sizeof alt, ss.ss_flags = 0x100;
    CHECK_ERR(sigaltstack(&ss, NULL), EINVAL);
    ss.ss_flags = 0;
    CHECK(sigaltstack(&ss, NULL) == 0);
    on_signal(SIGUSR1, change_alt, SA_ONSTACK);
    raise(SIGUSR1);
    CHECK_EQ(alt_err, EPERM);
    CHECK_ERR(sigaltstack(BAD, NULL), EFAULT);
}
CASE(altstack_autodisarm) {
    stack_t ss = {.ss_sp = alt, .ss_size = sizeof alt, .ss_flags = (int)(1u << 31)}, o;
    CHECK(sigaltstack(&ss, NULL) == 0);
    on_signal(SIGUSR1, where, SA_ONSTACK);
    raise(SIGUSR1);
    CHECK_EQ(handler_flags, SS_DISABLE);
    CHECK(sigaltstack(NULL, &o) == 0 && o.ss_sp == alt);
}
CASE(bad_stack_kills_with_segv) {
    int r = join(SPAWN({
        on_signal(SIGUSR1, note, 0);
        __asm__ volatile("mov $0x10, %%rsp; mov $39, %%eax; syscall; mov %%eax, %%edi; mov $10, %%esi; mov $62, %%eax; syscall" ::: "memory");
    }));
    CHECK_EQ(r, 128 + SIGSEGV);
}

CASE(signalfd_reads_info) {
    sigset_t m;
    sigemptyset(&m);
    sigaddset(&m, SIGUSR1);
    sigaddset(&m, SIGRTMIN);
    sigprocmask(SIG_BLOCK, &m, NULL);
    int fd = signalfd(-1, &m, SFD_NONBLOCK | SFD_CLOEXEC);
    CHECK(fd >= 0);
    struct signalfd_siginfo si[3];
    CHECK_ERR(read(fd, si, sizeof si), EAGAIN);
    sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = 5});
    raise(SIGUSR1);
    struct pollfd p = {fd, POLLIN, 0};
    CHECK_EQ(poll(&p, 1, 0), 1);
    CHECK_EQ(read(fd, si, sizeof si), 2 * sizeof *si);
    CHECK_EQ(si[0].ssi_signo, SIGUSR1);
    CHECK_EQ(si[0].ssi_pid, getpid());
    CHECK_EQ(si[1].ssi_signo, SIGRTMIN);
    CHECK_EQ(si[1].ssi_int, 5);
    CHECK_ERR(read(fd, si, 10), EINVAL);
}
CASE(signalfd_blocking_and_update) {
    sigset_t m;
    sigemptyset(&m);
    sigaddset(&m, SIGUSR1);
    int fd = signalfd(-1, &m, 0);
    sigaddset(&m, SIGUSR2);
    CHECK_EQ(signalfd(fd, &m, 0), fd);
    sigprocmask(SIG_BLOCK, &m, NULL);
    pid_t me = getpid(), p = SPAWN({ msleep(20); kill(me, SIGUSR2); });
    struct signalfd_siginfo si;
    CHECK_EQ(read(fd, &si, sizeof si), sizeof si);
    CHECK_EQ(si.ssi_signo, SIGUSR2);
    CHECK_EQ(si.ssi_pid, p);
    CHECK_ERR(signalfd(0x7fff, &m, 0), EBADF);
    join(p);
}
CASE(restart_after_many_signals_no_loss) {
    on_signal(SIGRTMIN, note, SA_RESTART);
    pid_t me = getpid(), p = SPAWN({ for (int i = 0; i < 2000; i++) while (sigqueue(me, SIGRTMIN, (union sigval){0}) < 0) pause_ms(1); });
    CHECK_EQ(join(p), 0);
    EVENTUALLY(count == 2000);
}
static jmp_buf jump;
static void leave(int s, siginfo_t *si, void *u) {
    (void)s, (void)si, (void)u;
    siglongjmp(jump, 1);
}
CASE(siglongjmp_out_of_handler_repeatedly) {
    on_signal(SIGUSR1, leave, 0);
    for (volatile int i = 0; i < 200; i++)
        if (!sigsetjmp(jump, 1)) {
            raise(SIGUSR1);
            FAIL("handler returned");
        }
}
CASE(sigpipe_raised_by_write) {
    int fd[2];
    CHECK(pipe(fd) == 0);
    close(fd[0]);
    on_signal(SIGPIPE, note, 0);
    CHECK_ERR(write(fd[1], "x", 1), EPIPE);
    CHECK_EQ(count, 1);
}
CASE(kill_all_but_self_and_init_checks) {
    CHECK(kill(0, 0) == 0);
    CHECK(kill(getpid(), 0) == 0);
}
CASE(sigqueue_limit_eagain) {
    block(SIG_BLOCK, SIGRTMIN);
    pid_t p = SPAWN({
        block(SIG_BLOCK, SIGRTMIN);
        int i = 0;
        for (; i < 1000000; i++)
            if (sigqueue(getpid(), SIGRTMIN, (union sigval){0}) < 0) {
                CHECK(errno == EAGAIN);
                break;
            }
        CHECK(i < 1000000 && i > 30);
    });
    CHECK_EQ(join(p), 0);
}
CASE(rt_sigqueueinfo_forbids_kernel_codes_to_others) {
    pid_t p = SPAWN({ pause(); });
    siginfo_t si = {.si_signo = SIGUSR1, .si_code = SI_USER};
    CHECK_ERR(syscall(SYS_rt_sigqueueinfo, p, SIGUSR1, &si), EPERM);
    kill(p, SIGKILL);
    join(p);
}
CASE(sigcont_resumes_even_if_blocked) {
    pid_t p = SPAWN({ block(SIG_BLOCK, SIGCONT); raise(SIGSTOP); _exit(9); });
    int st;
    CHECK_EQ(waitpid(p, &st, WUNTRACED), p);
    kill(p, SIGCONT);
    CHECK_EQ(join(p), 9);
}
CASE(stop_discards_cont_and_vice_versa) {
    block(SIG_BLOCK, SIGCONT);
    block(SIG_BLOCK, SIGTSTP);
    raise(SIGTSTP);
    raise(SIGCONT);
    sigset_t p;
    sigpending(&p);
    CHECK(!sigismember(&p, SIGTSTP));
    CHECK(sigismember(&p, SIGCONT));
}
CASE(kill_stopped_process) {
    pid_t p = SPAWN({ raise(SIGSTOP); });
    int st;
    waitpid(p, &st, WUNTRACED);
    kill(p, SIGTERM);
    CHECK_EQ(waitpid(p, &st, WNOHANG), 0);  // only when continued
    kill(p, SIGKILL);
    CHECK_EQ(join(p), 128 + SIGKILL);
}
