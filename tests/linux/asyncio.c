// Signal-driven input and output: O_ASYNC, F_SETOWN(_EX), F_SETSIG, and what the signal says.
#include "t.h"
#include <netinet/in.h>
#include <pty.h>
#include <sys/ioctl.h>

static volatile int got, last_sig, last_code, last_fd, last_band;
static void note(int s, siginfo_t *si, void *u) {
    (void)u;
    got++, last_sig = s, last_code = si->si_code, last_fd = si->si_fd, last_band = si->si_band;
}
static void arm(int fd, int sig) {
    on_signal(sig ? sig : SIGIO, note, SA_RESTART);
    CHECK(fcntl(fd, F_SETOWN, getpid()) == 0);
    if (sig) CHECK(fcntl(fd, F_SETSIG, sig) == 0);
    CHECK(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_ASYNC) == 0);
}
static void quiet(void) {
    msleep(30);
    CHECK_EQ(got, 0);
}

CASE(pipe_reader_gets_sigio) {
    int p[2];
    CHECK(pipe(p) == 0);
    arm(p[0], 0);
    quiet();
    CHECK(write(p[1], "x", 1) == 1);
    EVENTUALLY(got >= 1);
    CHECK_EQ(last_sig, SIGIO);
}
CASE(pipe_writer_told_of_room) {
    int p[2];
    char b[4096] = {0};
    CHECK(pipe(p) == 0);
    fcntl(p[1], F_SETFL, O_NONBLOCK);
    while (write(p[1], b, sizeof b) > 0) {}
    arm(p[1], 0);
    quiet();
    CHECK(read(p[0], b, sizeof b) == sizeof b);
    EVENTUALLY(got >= 1);
}
CASE(pipe_reader_told_of_hangup) {
    int p[2];
    CHECK(pipe(p) == 0);
    arm(p[0], 0);
    close(p[1]);
    EVENTUALLY(got >= 1);
}
CASE(setsig_gives_descriptor_and_band) {
    int p[2];
    CHECK(pipe(p) == 0);
    arm(p[0], SIGRTMIN + 3);
    CHECK(write(p[1], "x", 1) == 1);
    EVENTUALLY(got >= 1);
    CHECK_EQ(last_sig, SIGRTMIN + 3);
    CHECK_EQ(last_code, POLL_IN);
    CHECK_EQ(last_fd, p[0]);
    CHECK_EQ(last_band, POLLIN | POLLRDNORM);
}
CASE(setsig_sigio_also_gives_information) {
    int p[2];
    CHECK(pipe(p) == 0);
    arm(p[0], SIGIO);
    CHECK(write(p[1], "x", 1) == 1);
    EVENTUALLY(got >= 1);
    CHECK_EQ(last_code, POLL_IN);
    CHECK_EQ(last_fd, p[0]);
}
CASE(without_flag_no_signal) {
    int p[2];
    CHECK(pipe(p) == 0);
    on_signal(SIGIO, note, 0);
    CHECK(fcntl(p[0], F_SETOWN, getpid()) == 0);
    CHECK(write(p[1], "x", 1) == 1);
    quiet();
}
CASE(flag_cleared_stops_signals) {
    int p[2];
    CHECK(pipe(p) == 0);
    arm(p[0], 0);
    CHECK(fcntl(p[0], F_SETFL, 0) == 0);
    CHECK(write(p[1], "x", 1) == 1);
    quiet();
    CHECK_EQ(fcntl(p[0], F_GETFL) & O_ASYNC, 0);
}
CASE(without_owner_no_signal) {
    int p[2];
    CHECK(pipe(p) == 0);
    on_signal(SIGIO, note, 0);
    CHECK(fcntl(p[0], F_SETFL, O_ASYNC) == 0);
    CHECK(write(p[1], "x", 1) == 1);
    quiet();
}
CASE(fioasync_ioctl) {
    int s[2], on = 1;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0);
    on_signal(SIGIO, note, 0);
    CHECK(fcntl(s[0], F_SETOWN, getpid()) == 0);
    CHECK(ioctl(s[0], FIOASYNC, &on) == 0);
    CHECK(fcntl(s[0], F_GETFL) & O_ASYNC);
    CHECK(write(s[1], "x", 1) == 1);
    EVENTUALLY(got >= 1);
    on = 0, got = 0;
    CHECK(ioctl(s[0], FIOASYNC, &on) == 0);
    CHECK(write(s[1], "x", 1) == 1);
    quiet();
}
CASE(unix_stream_socket) {
    int s[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0);
    arm(s[0], SIGRTMIN);
    CHECK(write(s[1], "x", 1) == 1);
    EVENTUALLY(got >= 1);
    CHECK(last_code == POLL_IN && last_fd == s[0]);
}
CASE(udp_socket) {
    int a = socket(AF_INET, SOCK_DGRAM, 0), b = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t l = sizeof sa;
    CHECK(bind(a, (void *)&sa, l) == 0 && getsockname(a, (void *)&sa, &l) == 0);
    arm(a, 0);
    CHECK(sendto(b, "x", 1, 0, (void *)&sa, l) == 1);
    EVENTUALLY(got >= 1);
}
CASE(listener_told_of_connection) {
    int a = socket(AF_INET, SOCK_STREAM, 0), b = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t l = sizeof sa;
    CHECK(bind(a, (void *)&sa, l) == 0 && listen(a, 4) == 0 && getsockname(a, (void *)&sa, &l) == 0);
    arm(a, 0);
    CHECK(connect(b, (void *)&sa, l) == 0);
    EVENTUALLY(got >= 1);
}
CASE(terminal_input) {
    int m, s;
    CHECK(openpty(&m, &s, NULL, NULL, NULL) == 0);
    arm(s, 0);
    CHECK(write(m, "line\n", 5) == 5);
    EVENTUALLY(got >= 1);
}
CASE(owner_group_reaches_all_members) {
    int p[2], done[2];
    CHECK(pipe(p) == 0 && pipe(done) == 0);
    on_signal(SIGIO, note, 0);
    pid_t kids[2];
    for (int i = 0; i < 2; i++) kids[i] = SPAWN(write(done[1], "r", 1); EVENTUALLY(got); _exit(5));
    char c;
    CHECK(read(done[0], &c, 1) == 1 && read(done[0], &c, 1) == 1);
    CHECK(fcntl(p[0], F_SETOWN, -getpgrp()) == 0 && fcntl(p[0], F_SETFL, O_ASYNC) == 0);
    CHECK_EQ(fcntl(p[0], F_GETOWN), -getpgrp());
    CHECK(write(p[1], "x", 1) == 1);
    EVENTUALLY(got >= 1);
    for (int i = 0; i < 2; i++) CHECK_EQ(join(kids[i]), 5);
}
static volatile int tid_got;
static pthread_barrier_t bar;
static void thread_note(int s) { (void)s, tid_got = gettid(); }
static int wanted;
static void *waiter(void *a) {
    (void)a;
    wanted = gettid();
    pthread_barrier_wait(&bar);
    EVENTUALLY(tid_got);
    return NULL;
}
CASE(owner_thread_takes_it) {
    int p[2];
    CHECK(pipe(p) == 0);
    signal(SIGIO, thread_note);
    pthread_barrier_init(&bar, NULL, 2);
    pthread_t t;
    pthread_create(&t, NULL, waiter, NULL);
    pthread_barrier_wait(&bar);
    struct f_owner_ex o = {F_OWNER_TID, wanted}, r = {0};
    CHECK(fcntl(p[0], F_SETOWN_EX, &o) == 0 && fcntl(p[0], F_GETOWN_EX, &r) == 0);
    CHECK(r.type == F_OWNER_TID && r.pid == wanted);
    CHECK(fcntl(p[0], F_SETFL, O_ASYNC) == 0);
    CHECK(write(p[1], "x", 1) == 1);
    EVENTUALLY(tid_got);
    CHECK_EQ(tid_got, wanted);
    pthread_join(t, NULL);
}
CASE(owner_forms) {
    int p[2];
    CHECK(pipe(p) == 0);
    struct f_owner_ex o = {F_OWNER_PGRP, getpgrp()}, r;
    CHECK_EQ(fcntl(p[0], F_GETOWN), 0);
    CHECK(fcntl(p[0], F_SETOWN_EX, &o) == 0);
    CHECK_EQ(fcntl(p[0], F_GETOWN), -getpgrp());
    CHECK(fcntl(p[0], F_GETOWN_EX, &r) == 0 && r.type == F_OWNER_PGRP && r.pid == getpgrp());
    CHECK(fcntl(p[0], F_SETOWN, getpid()) == 0 && fcntl(p[0], F_GETOWN_EX, &r) == 0);
    CHECK(r.type == F_OWNER_PID && r.pid == getpid());
    o.type = 7;
    CHECK_ERR(fcntl(p[0], F_SETOWN_EX, &o), EINVAL);
    CHECK_ERR(fcntl(p[0], F_SETOWN, 999999), ESRCH);
    CHECK_ERR(fcntl(p[0], F_SETOWN, INT_MIN), EINVAL);
    CHECK(fcntl(p[0], F_SETOWN, 0) == 0);
}
CASE(setsig_values) {
    int p[2];
    CHECK(pipe(p) == 0);
    CHECK_EQ(fcntl(p[0], F_GETSIG), 0);
    CHECK(fcntl(p[0], F_SETSIG, SIGUSR1) == 0);
    CHECK_EQ(fcntl(p[0], F_GETSIG), SIGUSR1);
    CHECK_ERR(fcntl(p[0], F_SETSIG, 65), EINVAL);
    CHECK_ERR(fcntl(p[0], F_SETSIG, -1), EINVAL);
    CHECK_EQ(fcntl(dup(p[0]), F_GETSIG), SIGUSR1);  // of the open file
}
CASE(siocspgrp_and_fiogetown) {
    int s[2], who = 0;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0);
    who = getpid();
    CHECK(ioctl(s[0], FIOSETOWN, &who) == 0);
    CHECK_EQ(fcntl(s[0], F_GETOWN), getpid());
    who = -getpgrp();
    CHECK(ioctl(s[0], SIOCSPGRP, &who) == 0);
    who = 0;
    CHECK(ioctl(s[0], SIOCGPGRP, &who) == 0 && who == -getpgrp());
    who = 0;
    CHECK(ioctl(s[0], FIOGETOWN, &who) == 0 && who == -getpgrp());
}
CASE(owner_of_other_user_is_not_signalled) {
    int p[2], q[2];
    CHECK(pipe(p) == 0 && pipe(q) == 0);
    pid_t victim = SPAWN(signal(SIGIO, SIG_DFL); write(q[1], "x", 1); msleep(150));
    char c;
    CHECK(read(q[0], &c, 1) == 1);
    pid_t sender = SPAWN(t_drop_root(); fcntl(p[0], F_SETOWN, victim); fcntl(p[0], F_SETFL, O_ASYNC); write(p[1], "x", 1));
    CHECK_EQ(join(sender), 0);
    CHECK_EQ(join(victim), 0);  // SIGIO would have ended it
}
CASE(closed_descriptor_is_silent) {
    int p[2];
    CHECK(pipe(p) == 0);
    arm(p[0], 0);
    int other = open("/dev/null", O_RDONLY);
    close(p[0]);
    (void)other;
    signal(SIGPIPE, SIG_IGN);
    CHECK_ERR(write(p[1], "x", 1), EPIPE);
    quiet();
}
CASE(realtime_signals_queue_one_per_event) {
    int p[2];
    CHECK(pipe(p) == 0);
    sigset_t m;
    sigemptyset(&m);
    sigaddset(&m, SIGRTMIN + 1);
    sigprocmask(SIG_BLOCK, &m, NULL);
    arm(p[0], SIGRTMIN + 1);
    for (int i = 0; i < 3; i++) CHECK(write(p[1], "x", 1) == 1);
    siginfo_t si;
    struct timespec z = {0, 0};
    int n = 0;
    while (sigtimedwait(&m, &si, &z) > 0) n += si.si_fd == p[0];
    CHECK_EQ(n, 3);
}
CASE(sigurg_for_owner) {
    int a = socket(AF_INET, SOCK_STREAM, 0), b = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t l = sizeof sa;
    CHECK(bind(a, (void *)&sa, l) == 0 && listen(a, 4) == 0 && getsockname(a, (void *)&sa, &l) == 0);
    CHECK(connect(b, (void *)&sa, l) == 0);
    int c = accept(a, NULL, NULL);
    on_signal(SIGURG, note, 0);
    CHECK(fcntl(c, F_SETOWN, getpid()) == 0);
    CHECK(send(b, "u", 1, MSG_OOB) == 1);
    EVENTUALLY(got >= 1);
    CHECK_EQ(last_sig, SIGURG);
}
