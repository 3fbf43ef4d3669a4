// Signals by table: which calls a handler interrupts or restarts, order and limits of queues, masks, stacks, SIGCHLD rules.
#include "t.h"
#include <sys/ioctl.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <ucontext.h>
#include <linux/futex.h>

static volatile int hits;
static volatile int *seen;  // for others to see, once a handler has run
static int fds[2];
static char b[1 << 16];
static void count(int s, siginfo_t *si, void *u) { (void)s, (void)si, (void)u, hits++; if (seen) *seen = 1; }

// The handler runs after 30 ms; with SA_RESTART the call must go on until `release` lets it end 80 ms after that.
static void release_later(void (*release)(void)) {
    pid_t parent = getpid();
    seen = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(seen != MAP_FAILED);
    SPAWN(msleep(30); kill(parent, SIGUSR1); EVENTUALLY(*seen); msleep(80); if (release) release());
}
#define INTERRUPTED(call)                                                        \
    do {                                                                         \
        on_signal(SIGUSR1, count, 0);                                            \
        release_later(NULL);                                                     \
        CHECK_ERR(call, EINTR);                                                  \
        CHECK_EQ(hits, 1);                                                       \
    } while (0)
#define NEVER_RESTARTED(call)                                                    \
    do {                                                                         \
        on_signal(SIGUSR1, count, SA_RESTART);                                   \
        release_later(NULL);                                                     \
        CHECK_ERR(call, EINTR);                                                  \
        CHECK_EQ(hits, 1);                                                       \
    } while (0)
#define RESTARTED(release, call)                                                 \
    do {                                                                         \
        on_signal(SIGUSR1, count, SA_RESTART);                                   \
        release_later(release);                                                  \
        CHECK((call) >= 0);                                                      \
        CHECK_EQ(hits, 1);                                                       \
    } while (0)
static void put_byte(void) { CHECK(write(fds[1], "x", 1) == 1); }
static void take_bytes(void) { CHECK(read(fds[0], b, sizeof b) > 0); }
static void pipe_full(void) {
    CHECK(pipe(fds) == 0);
    CHECK_EQ(write(fds[1], b, 65536), 65536);
}
static void upair(void) { CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0); }
static struct sockaddr_in sa = {.sin_family = AF_INET};
static socklen_t sl = sizeof sa;
static void listener(void) {
    sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    fds[0] = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(fds[0], (void *)&sa, sl) == 0 && listen(fds[0], 4) == 0 && getsockname(fds[0], (void *)&sa, &sl) == 0);
}
static void connect_now(void) { CHECK(connect(socket(AF_INET, SOCK_STREAM, 0), (void *)&sa, sl) == 0); }

CASE(read_pipe_interrupted) { CHECK(pipe(fds) == 0); INTERRUPTED(read(fds[0], b, 1)); }
CASE(read_pipe_restarted) { CHECK(pipe(fds) == 0); RESTARTED(put_byte, read(fds[0], b, 1)); }
CASE(write_pipe_interrupted) { pipe_full(); INTERRUPTED(write(fds[1], b, 1)); }
CASE(write_pipe_restarted) { pipe_full(); RESTARTED(take_bytes, write(fds[1], b, 1)); }
CASE(recv_interrupted) { upair(); INTERRUPTED(recv(fds[0], b, 1, 0)); }
CASE(recv_restarted) { upair(); RESTARTED(put_byte, recv(fds[0], b, 1, 0)); }
CASE(recv_with_timeout_never_restarted) {
    upair();
    struct timeval tv = {50, 0};
    CHECK(setsockopt(fds[0], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv) == 0);
    NEVER_RESTARTED(recv(fds[0], b, 1, 0));
}
CASE(send_with_timeout_never_restarted) {
    upair();
    struct timeval tv = {50, 0};
    CHECK(setsockopt(fds[1], SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof tv) == 0);
    fcntl(fds[1], F_SETFL, O_NONBLOCK);
    while (send(fds[1], b, sizeof b, 0) > 0) {}
    fcntl(fds[1], F_SETFL, 0);
    NEVER_RESTARTED(send(fds[1], b, sizeof b, 0));
}
CASE(accept_interrupted) { listener(); INTERRUPTED(accept(fds[0], NULL, NULL)); }
CASE(accept_restarted) { listener(); RESTARTED(connect_now, accept(fds[0], NULL, NULL)); }
CASE(connect_full_backlog_interrupted) {
    scratch();
    struct sockaddr_un { sa_family_t f; char p[108]; } u = {AF_UNIX, "s"};
    int l = socket(AF_UNIX, SOCK_STREAM, 0), c;
    CHECK(bind(l, (void *)&u, sizeof u) == 0 && listen(l, 0) == 0);
    do c = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    while (connect(c, (void *)&u, sizeof u) == 0);
    fcntl(c, F_SETFL, 0);
    INTERRUPTED(connect(c, (void *)&u, sizeof u));
}
CASE(poll_never_restarted) { CHECK(pipe(fds) == 0); NEVER_RESTARTED(poll(&(struct pollfd){fds[0], POLLIN, 0}, 1, 50000)); }
CASE(ppoll_never_restarted) { CHECK(pipe(fds) == 0); NEVER_RESTARTED(ppoll(&(struct pollfd){fds[0], POLLIN, 0}, 1, NULL, NULL)); }
CASE(select_never_restarted) {
    CHECK(pipe(fds) == 0);
    fd_set r;
    FD_ZERO(&r);
    FD_SET(fds[0], &r);
    NEVER_RESTARTED(select(fds[0] + 1, &r, NULL, NULL, &(struct timeval){50, 0}));
}
CASE(epoll_wait_never_restarted) { int e = epoll_create1(0); NEVER_RESTARTED(epoll_wait(e, (void *)b, 1, 50000)); }
CASE(pause_never_restarted) { NEVER_RESTARTED(pause()); }
CASE(sigsuspend_never_restarted) { sigset_t m; sigemptyset(&m); NEVER_RESTARTED(sigsuspend(&m)); }
CASE(nanosleep_never_restarted) { NEVER_RESTARTED(nanosleep(&(struct timespec){50, 0}, NULL)); }
CASE(clock_nanosleep_absolute_never_restarted) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += 5;
    on_signal(SIGUSR1, count, SA_RESTART);
    release_later(NULL);
    CHECK_EQ(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL), EINTR);
}
CASE(sigtimedwait_never_restarted) {
    sigset_t m;
    sigemptyset(&m), sigaddset(&m, SIGUSR2);
    NEVER_RESTARTED(sigtimedwait(&m, NULL, &(struct timespec){50, 0}));
}
CASE(semop_never_restarted) {
    int id = semget(IPC_PRIVATE, 1, 0600);
    struct sembuf op = {0, -1, 0};
    NEVER_RESTARTED(semop(id, &op, 1));
    semctl(id, 0, IPC_RMID);
}
CASE(msgrcv_never_restarted) {
    int id = msgget(IPC_PRIVATE, 0600);
    NEVER_RESTARTED(msgrcv(id, b, 100, 0, 0));
    msgctl(id, IPC_RMID, NULL);
}
CASE(msgsnd_never_restarted) {
    int id = msgget(IPC_PRIVATE, 0600);
    *(long *)b = 1;
    while (msgsnd(id, b, 4000, IPC_NOWAIT) == 0) {}
    NEVER_RESTARTED(msgsnd(id, b, 4000, 0));
    msgctl(id, IPC_RMID, NULL);
}
static void read_eventfd(void) { CHECK(read(fds[0], b, 8) == 8); }
static void write_eventfd(void) { CHECK(write(fds[0], &(uint64_t){1}, 8) == 8); }
CASE(eventfd_read_restarted) { fds[0] = eventfd(0, 0); RESTARTED(write_eventfd, read(fds[0], b, 8)); }
CASE(eventfd_write_restarted) { fds[0] = eventfd(0, 0); CHECK(write(fds[0], &(uint64_t){UINT64_MAX - 1}, 8) == 8); RESTARTED(read_eventfd, write(fds[0], &(uint64_t){1}, 8)); }
static void set_timerfd(void) { CHECK(timerfd_settime(fds[0], 0, &(struct itimerspec){{0, 0}, {0, 1000000}}, NULL) == 0); }
CASE(timerfd_read_restarted) {
    fds[0] = timerfd_create(CLOCK_MONOTONIC, 0);
    RESTARTED(set_timerfd, read(fds[0], b, 8));
}
CASE(signalfd_read_interrupted) {
    sigset_t m;
    sigemptyset(&m), sigaddset(&m, SIGUSR2);
    int s = signalfd(-1, &m, 0);
    INTERRUPTED(read(s, b, sizeof b));
}
CASE(inotify_read_interrupted) {
    // The man page says that SA_RESTART does not help; Linux restarts it nevertheless, so only EINTR is checked.
    int n = inotify_init();
    INTERRUPTED(read(n, b, sizeof b));
}
CASE(fifo_open_interrupted) { scratch(); mkfifo("p", 0600); INTERRUPTED(open("p", O_RDONLY)); }
static void open_writer(void) { CHECK(open("p", O_WRONLY) >= 0); }
CASE(fifo_open_restarted) { scratch(); mkfifo("p", 0600); RESTARTED(open_writer, open("p", O_RDONLY)); }
CASE(flock_restarted) {
    scratch();
    int a = mkfile("f", "");
    CHECK(pipe(fds) == 0);
    int q[2];
    CHECK(pipe(q) == 0);
    pid_t c = SPAWN(int o = open("f", O_RDWR); flock(o, LOCK_EX); write(q[1], "x", 1); read(fds[0], b, 1));
    CHECK(read(q[0], b, 1) == 1);
    RESTARTED(put_byte, flock(a, LOCK_EX));
    join(c);
}
CASE(wait_interrupted) { SPAWN(msleep(1000)); INTERRUPTED(waitpid(-1, NULL, 0)); }
CASE(wait_restarted) {
    CHECK(pipe(fds) == 0);
    pid_t c = SPAWN(read(fds[0], b, 1));
    RESTARTED(put_byte, waitpid(c, NULL, 0));
}
CASE(waitid_restarted) {
    CHECK(pipe(fds) == 0);
    pid_t c = SPAWN(read(fds[0], b, 1));
    siginfo_t si;
    RESTARTED(put_byte, waitid(P_PID, c, &si, WEXITED));
}
static int *word;
static void wake_word(void) { *word = 1, syscall(SYS_futex, word, FUTEX_WAKE, 1); }
CASE(futex_wait_restarted) {
    word = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    RESTARTED(wake_word, syscall(SYS_futex, word, FUTEX_WAIT, 0, NULL));
}
static mqd_t queue;
static void send_message(void) { CHECK(mq_send(queue, "x", 1, 0) == 0); }
CASE(mq_receive_restarted) {
    char name[40];
    snprintf(name, sizeof name, "/sigtable%d", getpid());
    queue = mq_open(name, O_CREAT | O_RDWR, 0600, NULL);
    CHECK(queue >= 0 && mq_unlink(name) == 0);
    RESTARTED(send_message, mq_receive(queue, b, sizeof b, NULL));
}
CASE(partial_write_beats_the_signal) {
    pipe_full();
    CHECK(read(fds[0], b, 4096) == 4096);
    on_signal(SIGUSR1, count, 0);
    release_later(NULL);
    CHECK_EQ(write(fds[1], b, 8192), 4096);
}
CASE(waitall_returns_what_came) {
    upair();
    CHECK(write(fds[1], "abc", 3) == 3);
    on_signal(SIGUSR1, count, 0);
    release_later(NULL);
    CHECK_EQ(recv(fds[0], b, 10, MSG_WAITALL), 3);
}
static int order[80], nth;
static void record(int s, siginfo_t *si, void *u) { (void)u, order[nth++] = s * 1000 + si->si_value.sival_int; }
CASE(pending_order_lowest_first_realtime_fifo) {
    sigset_t m, old;
    sigemptyset(&m);
    int sigs[] = {SIGRTMIN + 2, SIGRTMIN, SIGUSR2, SIGHUP};
    for (int i = 0; i < 4; i++) {
        struct sigaction a = {.sa_sigaction = record, .sa_flags = SA_SIGINFO};
        sigfillset(&a.sa_mask);
        sigaction(sigs[i], &a, NULL), sigaddset(&m, sigs[i]);
    }
    sigprocmask(SIG_BLOCK, &m, &old);
    for (int i = 0; i < 4; i++)
        for (int v = 1; v <= 2; v++) sigqueue(getpid(), sigs[i], (union sigval){.sival_int = v});
    sigprocmask(SIG_SETMASK, &old, NULL);
    CHECK_EQ(nth, 6);  // standard signals only once
    int want[] = {SIGHUP * 1000 + 1, SIGUSR2 * 1000 + 1, SIGRTMIN * 1000 + 1, SIGRTMIN * 1000 + 2, (SIGRTMIN + 2) * 1000 + 1, (SIGRTMIN + 2) * 1000 + 2};
    for (int i = 0; i < 6; i++) CHECK_EQ(order[i], want[i]);
}
CASE(sigwait_order_is_the_same) {
    sigset_t m;
    sigfillset(&m);
    sigprocmask(SIG_BLOCK, &m, NULL);
    raise(SIGRTMIN + 1), raise(SIGTERM), raise(SIGRTMIN), raise(SIGHUP);
    int s, want[] = {SIGHUP, SIGTERM, SIGRTMIN, SIGRTMIN + 1};
    for (int i = 0; i < 4; i++) CHECK(sigwait(&m, &s) == 0 && s == want[i]);
}
CASE(queue_limit_falls_to_eagain_not_for_kill) {
    struct rlimit l = {5, 5};
    sigset_t m;
    sigfillset(&m);
    sigprocmask(SIG_BLOCK, &m, NULL);
    t_drop_root();
    CHECK(setrlimit(RLIMIT_SIGPENDING, &l) == 0);
    int n = 0;
    while (sigqueue(getpid(), SIGRTMIN, (union sigval){0}) == 0 && n < 100) n++;
    CHECK(n <= 5 && errno == EAGAIN);
    CHECK(kill(getpid(), SIGTERM) == 0);
    sigset_t p;
    CHECK(sigpending(&p) == 0 && sigismember(&p, SIGTERM) == 1);
}
CASE(mask_survives_longjmp_only_when_saved) {
    sigset_t m, now;
    sigemptyset(&m), sigaddset(&m, SIGUSR1);
    CHECK(sigprocmask(SIG_BLOCK, &m, NULL) == 0);
    CHECK_ERR(sigprocmask(77, &m, NULL), EINVAL);
    CHECK(sigprocmask(77, NULL, &now) == 0 && sigismember(&now, SIGUSR1));  // without a set the way is not looked at
    CHECK_ERR(syscall(SYS_rt_sigprocmask, SIG_BLOCK, &m, NULL, 4), EINVAL);
    CHECK_ERR(syscall(SYS_rt_sigprocmask, SIG_BLOCK, BAD, NULL, 8), EFAULT);
    CHECK_ERR(syscall(SYS_rt_sigprocmask, SIG_SETMASK, &(uint64_t){0}, BAD, 8), EFAULT);
    CHECK(sigprocmask(0, NULL, &now) == 0 && !sigismember(&now, SIGUSR1));  // set before the old one was written
}
CASE(nodefer_mask_still_holds_sa_mask) {
    struct sigaction a = {.sa_sigaction = count, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigemptyset(&a.sa_mask), sigaddset(&a.sa_mask, SIGUSR2);
    struct sigaction got;
    CHECK(sigaction(SIGUSR1, &a, NULL) == 0 && sigaction(SIGUSR1, NULL, &got) == 0);
    CHECK(got.sa_flags & SA_NODEFER && sigismember(&got.sa_mask, SIGUSR2) == 1);
    CHECK_ERR(sigaction(SIGKILL, &a, NULL), EINVAL);
    CHECK(sigaction(SIGKILL, NULL, &got) == 0);
    CHECK_ERR(syscall(SYS_rt_sigaction, 65, NULL, NULL, 8), EINVAL);
    CHECK_ERR(syscall(SYS_rt_sigaction, 0, NULL, NULL, 8), EINVAL);
    CHECK_ERR(syscall(SYS_rt_sigaction, SIGUSR1, NULL, NULL, 4), EINVAL);
}
static volatile int c_status, c_code, c_uid;
static void child_info(int s, siginfo_t *si, void *u) { (void)s, (void)u, c_status = si->si_status, c_code = si->si_code, c_uid = si->si_uid, hits++; }
CASE(sigchld_tells_killed_and_user) {
    on_signal(SIGCHLD, child_info, 0);
    pid_t c = SPAWN(setresuid(1000, 1000, 1000); raise(SIGTERM));
    EVENTUALLY(hits);
    CHECK(c_code == CLD_KILLED && c_status == SIGTERM && c_uid == 1000);
    join(c);
}
CASE(sigchld_ignored_means_no_zombies) {
    signal(SIGCHLD, SIG_IGN);
    pid_t c = SPAWN(_exit(3));
    CHECK_ERR(waitpid(c, NULL, 0), ECHILD);  // waits for the end, then finds nothing
    CHECK_ERR(kill(c, 0), ESRCH);
}
CASE(sigchld_default_keeps_zombies) {
    pid_t c = SPAWN(_exit(3));
    msleep(50);
    CHECK(kill(c, 0) == 0);
    CHECK_EQ(join(c), 3);
}
CASE(nocldwait_still_signals) {
    on_signal(SIGCHLD, count, SA_NOCLDWAIT);
    pid_t c = SPAWN(_exit(3));
    EVENTUALLY(hits);
    EVENTUALLY(kill(c, 0) == -1);
    CHECK_ERR(waitpid(c, NULL, 0), ECHILD);
}
CASE(default_stop_signals_need_a_parent_group_in_session) {
    pid_t c = SPAWN(setsid(); raise(SIGTSTP); _exit(4));  // an orphaned group does not stop by the terminal's signals
    CHECK_EQ(join(c), 4);
}
CASE(kill_zero_group_and_minus_one_errors) {
    CHECK(kill(0, 0) == 0);
    CHECK_ERR(kill(-999999, 0), ESRCH);
    CHECK_ERR(kill(getpid(), 65), EINVAL);
    CHECK_ERR(kill(getpid(), -1), EINVAL);
    CHECK_ERR(syscall(SYS_tgkill, getpid(), 0, SIGUSR1), EINVAL);
    CHECK_ERR(syscall(SYS_tgkill, -1, getpid(), SIGUSR1), EINVAL);
    CHECK_ERR(syscall(SYS_tgkill, getppid(), getpid(), 0), ESRCH);
    CHECK_ERR(syscall(SYS_tkill, 0, SIGUSR1), EINVAL);
    CHECK_ERR(syscall(SYS_tkill, 999999, SIGUSR1), ESRCH);
}
CASE(queueinfo_checks_the_code) {
    siginfo_t si = {0};
    si.si_code = SI_USER;
    CHECK_ERR(syscall(SYS_rt_sigqueueinfo, getppid(), SIGUSR1, &si), EPERM);
    si.si_code = SI_TKILL;
    CHECK_ERR(syscall(SYS_rt_sigqueueinfo, getppid(), SIGUSR1, &si), EPERM);
    si.si_code = 5;
    CHECK_ERR(syscall(SYS_rt_sigqueueinfo, getppid(), SIGUSR1, &si), EPERM);
    on_signal(SIGUSR1, child_info, 0);
    si.si_code = 5;
    CHECK(syscall(SYS_rt_sigqueueinfo, getpid(), SIGUSR1, &si) == 0);  // to oneself anything goes
    CHECK_EQ(c_code, 5);
    CHECK_ERR(syscall(SYS_rt_tgsigqueueinfo, getpid(), getpid(), 99, &si), EINVAL);
    CHECK_ERR(syscall(SYS_rt_sigqueueinfo, getpid(), SIGUSR1, BAD), EFAULT);
}
static volatile unsigned long stack_seen;
static void note_stack(int s, siginfo_t *si, void *u) {
    (void)s, (void)si;
    stack_t now;
    stack_seen = (unsigned long)&now;
    sigaltstack(NULL, &now);
    hits = now.ss_flags | (((ucontext_t *)u)->uc_stack.ss_size ? 0x100 : 0);
}
CASE(alternate_stack_rules) {
    static char mem[65536];
    stack_t ss = {.ss_sp = mem, .ss_size = sizeof mem}, bad = ss;
    bad.ss_size = 1000;
    CHECK_ERR(sigaltstack(&bad, NULL), ENOMEM);
    bad = ss, bad.ss_flags = 8;
    CHECK_ERR(sigaltstack(&bad, NULL), EINVAL);
    CHECK(sigaltstack(&ss, NULL) == 0);
    on_signal(SIGUSR1, note_stack, SA_ONSTACK);
    raise(SIGUSR1);
    CHECK(stack_seen > (unsigned long)mem && stack_seen < (unsigned long)mem + sizeof mem);
    CHECK_EQ(hits, SS_ONSTACK | 0x100);
    on_signal(SIGUSR1, note_stack, 0);
    raise(SIGUSR1);
    CHECK(!(stack_seen > (unsigned long)mem && stack_seen < (unsigned long)mem + sizeof mem));
    stack_t off = {.ss_flags = SS_DISABLE}, old;
    CHECK(sigaltstack(&off, &old) == 0 && old.ss_sp == mem && sigaltstack(NULL, &old) == 0 && old.ss_flags == SS_DISABLE);
}
