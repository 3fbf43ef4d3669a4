// Cases of calls that block while the domain is frozen: they go on waiting and give what they would have given.
#include "survive.h"

#include <arpa/inet.h>
#include <linux/futex.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

static char buffer[8][256];

static long read_call(long fd) {
    return read(fd, buffer[0], sizeof buffer[0]);
}

CASE(pipes) {
    int p[2], full[2];
    CHECK(pipe(p) == 0 && pipe(full) == 0);
    char data[65536], back[65536];
    for (size_t i = 0; i < sizeof data; i++) data[i] = i * 31 >> 3;
    CHECK(write(full[1], data, sizeof data) == sizeof data);
    struct blocked r;
    begin(&r, read_call, p[0]);
    ready();
    STILL_BLOCKED(r);
    CHECK(write(p[1], "hello", 5) == 5);
    CHECK(wait_for(&r) == 5 && !memcmp(buffer[0], "hello", 5));
    for (size_t got = 0; got < sizeof back;) {
        ssize_t n = read(full[0], back + got, sizeof back - got);
        CHECK(n > 0);
        got += n;
    }
    CHECK(!memcmp(data, back, sizeof data));
    close(p[1]);
    CHECK(read(p[0], back, 1) == 0);
}

static long write_call(long fd) {
    static char data[100000];
    return write(fd, data, sizeof data);
}

CASE(write_to_a_full_pipe) {
    int p[2];
    CHECK(pipe(p) == 0);
    struct blocked w;
    begin(&w, write_call, p[1]);
    ready();
    STILL_BLOCKED(w);
    static char back[100000];
    size_t got = 0;
    while (got < sizeof back) {
        ssize_t n = read(p[0], back, sizeof back);
        CHECK(n > 0);
        got += n;
    }
    CHECK(wait_for(&w) == sizeof back);
}

static int futexes[2];
static long futex_call(long i) {
    struct timespec t = {100, 0};
    return syscall(SYS_futex, &futexes[i], FUTEX_WAIT, 0, i ? &t : NULL, NULL, 0);
}

static long futex_short(long unused) {
    (void)unused;
    struct timespec t = {0, 400000000};
    static int word;
    return syscall(SYS_futex, &word, FUTEX_WAIT, 0, &t, NULL, 0) < 0 ? errno : 0;
}

CASE(futexes) {
    struct blocked b[3];
    begin(&b[0], futex_call, 0);
    begin(&b[1], futex_call, 1);
    begin(&b[2], futex_short, 0);
    ready();
    for (int i = 0; i < 2; i++) {
        STILL_BLOCKED(b[i]);
        futexes[i] = 1;
        CHECK(syscall(SYS_futex, &futexes[i], FUTEX_WAKE, 1, NULL, NULL, 0) == 1);
        CHECK(wait_for(&b[i]) == 0);
    }
    CHECK(wait_for(&b[2]) == ETIMEDOUT);
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static int told;
static long cond_call(long unused) {
    (void)unused;
    pthread_mutex_lock(&mutex);
    while (!told) pthread_cond_wait(&cond, &mutex);
    pthread_mutex_unlock(&mutex);
    return 7;
}

CASE(condition_variables) {
    struct blocked b[4];
    for (int i = 0; i < 4; i++) begin(&b[i], cond_call, 0);
    ready();
    pthread_mutex_lock(&mutex);
    told = 1;
    pthread_cond_broadcast(&cond);
    pthread_mutex_unlock(&mutex);
    for (int i = 0; i < 4; i++) CHECK(wait_for(&b[i]) == 7);
}

static long poll_call(long fd) {
    struct pollfd p = {fd, POLLIN, 0};
    return poll(&p, 1, -1) == 1 && p.revents == POLLIN;
}

static long ppoll_call(long fd) {
    struct pollfd p = {fd, POLLIN, 0};
    struct timespec t = {100, 0};
    sigset_t none;
    sigemptyset(&none);
    return ppoll(&p, 1, &t, &none) == 1 && p.revents == POLLIN;
}

static long select_call(long fd) {
    fd_set in;
    FD_ZERO(&in);
    FD_SET(fd, &in);
    struct timeval t = {100, 0};
    return select(fd + 1, &in, NULL, NULL, &t) == 1 && FD_ISSET(fd, &in);
}

static long epoll_call(long ep) {
    struct epoll_event e;
    return epoll_wait(ep, &e, 1, -1) == 1 && e.data.u64 == 77 && e.events == EPOLLIN;
}

static long short_poll(long unused) {
    (void)unused;
    return poll(NULL, 0, 400);
}

CASE(readiness) {
    int p[2], q[2], ep = epoll_create1(0);
    CHECK(pipe(p) == 0 && pipe(q) == 0 && write(q[1], "x", 1) == 1);
    struct epoll_event e = {EPOLLIN, {.u64 = 77}}, edge = {EPOLLIN | EPOLLET, {.u64 = 78}};
    CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, p[0], &e) == 0);
    int ep2 = epoll_create1(0);
    CHECK(epoll_ctl(ep2, EPOLL_CTL_ADD, q[0], &edge) == 0);
    CHECK(epoll_wait(ep2, &edge, 1, 0) == 1 && edge.data.u64 == 78);
    struct blocked b[5];
    begin(&b[0], poll_call, p[0]);
    begin(&b[1], ppoll_call, p[0]);
    begin(&b[2], select_call, p[0]);
    begin(&b[3], epoll_call, ep);
    begin(&b[4], short_poll, 0);
    ready();
    for (int i = 0; i < 4; i++) STILL_BLOCKED(b[i]);
    CHECK(epoll_wait(ep2, &edge, 1, 0) == 0);
    CHECK(write(p[1], "x", 1) == 1 && write(q[1], "y", 1) == 1);
    for (int i = 0; i < 4; i++) CHECK(wait_for(&b[i]) == 1);
    CHECK(wait_for(&b[4]) == 0);
    CHECK(epoll_wait(ep2, &edge, 1, 0) == 1);
}

static long sleep_call(long ms) {
    struct timespec t = {ms / 1000, ms % 1000 * 1000000}, left = {9, 9};
    long r = nanosleep(&t, &left);
    return r == 0 && left.tv_sec == 9;
}

CASE(sleeps) {
    struct blocked a;
    begin(&a, sleep_call, 700);
    ready();
    CHECK(wait_for(&a) == 1);
}

static long wait_call(long pid) {
    int status;
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

CASE(waiting_for_a_child) {
    int p[2];
    CHECK(pipe(p) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        char c;
        _exit(read(p[0], &c, 1) == 1 ? 33 : 1);
    }
    struct blocked w;
    begin(&w, wait_call, pid);
    ready();
    STILL_BLOCKED(w);
    CHECK(write(p[1], "x", 1) == 1);
    CHECK(wait_for(&w) == 33);
}

static long accept_call(long fd) {
    return accept(fd, NULL, NULL);
}

CASE(tcp) {
    struct sockaddr_in a = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}, {0}};
    socklen_t len = sizeof a;
    int l = socket(AF_INET, SOCK_STREAM, 0), c = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(l, (void *)&a, len) == 0 && listen(l, 5) == 0 && getsockname(l, (void *)&a, &len) == 0);
    CHECK(connect(c, (void *)&a, sizeof a) == 0);
    int s = accept(l, NULL, NULL);
    CHECK(s >= 0 && write(c, "before", 6) == 6);
    struct blocked acc, rd;
    begin(&acc, accept_call, l);
    begin(&rd, read_call, c);
    ready();
    STILL_BLOCKED(acc);
    STILL_BLOCKED(rd);
    char text[16] = "";
    CHECK(read(s, text, 16) == 6 && !strcmp(text, "before"));
    CHECK(write(s, "after", 5) == 5 && wait_for(&rd) == 5);
    int c2 = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(c2, (void *)&a, sizeof a) == 0);
    int s2 = wait_for(&acc);
    CHECK(s2 >= 0 && write(c2, "new", 3) == 3 && read(s2, text, 16) == 3);
    close(s);
    CHECK(read(c, text, 16) == 0);
}

CASE(unix_sockets) {
    int sv[2], p[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sv) == 0 && pipe(p) == 0);
    union {
        struct cmsghdr h;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {.h = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
    memcpy(CMSG_DATA(&control.h), &p[1], sizeof(int));
    char byte = 'f';
    struct iovec iov = {&byte, 1};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    CHECK(sendmsg(sv[0], &m, 0) == 1);
    close(p[1]);
    struct sockaddr_un a = {AF_UNIX, "/tmp/freezer.sock"};
    int l = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    CHECK(bind(l, (void *)&a, sizeof a) == 0 && listen(l, 3) == 0);
    struct blocked acc, rd;
    begin(&acc, accept_call, l);
    begin(&rd, read_call, sv[0]);
    ready();
    STILL_BLOCKED(acc);
    STILL_BLOCKED(rd);
    memset(&control, 0, sizeof control);
    CHECK(recvmsg(sv[1], &m, 0) == 1 && byte == 'f');
    int fd;
    memcpy(&fd, CMSG_DATA(&control.h), sizeof fd);
    char c;
    CHECK(write(fd, "z", 1) == 1 && read(p[0], &c, 1) == 1 && c == 'z');
    int s = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    CHECK(connect(s, (void *)&a, sizeof a) == 0 && wait_for(&acc) >= 0);
    CHECK(write(sv[1], "abc", 3) == 3 && wait_for(&rd) == 3);
}

static long flock_call(long fd) {
    return flock(fd, LOCK_EX);
}

static long setlk_call(long fd) {
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 10};
    return fcntl(fd, F_SETLKW, &l);
}

CASE(file_locks) {
    int a = open("/tmp/locked", O_RDWR | O_CREAT, 0600), b = open("/tmp/locked", O_RDWR), p[2], held[2];
    CHECK(a >= 0 && b >= 0 && flock(a, LOCK_EX) == 0 && pipe(p) == 0 && pipe(held) == 0);
    char c;
    pid_t pid = fork();
    if (pid == 0) {
        CHECK(setlk_call(a) == 0 && write(held[1], "x", 1) == 1 && read(p[0], &c, 1) == 1);
        _exit(0);
    }
    CHECK(read(held[0], &c, 1) == 1);
    struct blocked f, r;
    begin(&f, flock_call, b);
    begin(&r, setlk_call, b);
    ready();
    STILL_BLOCKED(f);
    STILL_BLOCKED(r);
    CHECK(flock(a, LOCK_UN) == 0 && wait_for(&f) == 0);
    CHECK(write(p[1], "x", 1) == 1 && wait_for(&r) == 0);
    CHECK(waitpid(pid, NULL, 0) == pid);
}

static long semop_call(long id) {
    struct sembuf op = {0, -1, 0};
    return semop(id, &op, 1);
}

static long msgrcv_call(long id) {
    struct {
        long type;
        char text[64];
    } m;
    return msgrcv(id, &m, sizeof m.text, 5, 0) == 4 && !memcmp(m.text, "five", 4);
}

CASE(sysv_waits) {
    int sem = semget(IPC_PRIVATE, 1, 0600), q = msgget(IPC_PRIVATE, 0600);
    CHECK(sem >= 0 && q >= 0);
    struct {
        long type;
        char text[64];
    } m = {3, "three"}, back = {0, ""};
    CHECK(msgsnd(q, &m, 6, 0) == 0);
    struct blocked s, r;
    begin(&s, semop_call, sem);
    begin(&r, msgrcv_call, q);
    ready();
    STILL_BLOCKED(s);
    STILL_BLOCKED(r);
    struct sembuf up = {0, 1, 0};
    CHECK(semop(sem, &up, 1) == 0 && wait_for(&s) == 0);
    m.type = 5;
    memcpy(m.text, "five", 4);
    CHECK(msgsnd(q, &m, 4, 0) == 0 && wait_for(&r) == 1);
    CHECK(msgrcv(q, &back, sizeof back.text, 3, 0) == 6 && !strcmp(back.text, "three"));
    CHECK(semctl(sem, 0, IPC_RMID) == 0 && msgctl(q, IPC_RMID, NULL) == 0);
}

static volatile sig_atomic_t caught;
static void on_signal(int s) {
    caught = s;
}

static long suspend_call(long unused) {
    (void)unused;
    sigset_t m;
    sigfillset(&m);
    sigdelset(&m, SIGUSR1);
    return sigsuspend(&m) == -1 && errno == EINTR && caught == SIGUSR1;
}

static long sigwait_call(long s) {
    sigset_t m;
    sigemptyset(&m);
    sigaddset(&m, s);
    siginfo_t i;
    return sigwaitinfo(&m, &i) == s ? i.si_value.sival_int : -1;
}

CASE(signal_waits) {
    sigset_t m;
    sigemptyset(&m);
    sigaddset(&m, SIGUSR1);
    sigaddset(&m, SIGRTMIN + 1);
    sigaddset(&m, SIGRTMIN + 2);
    CHECK(pthread_sigmask(SIG_BLOCK, &m, NULL) == 0);
    struct sigaction act = {.sa_handler = on_signal};
    CHECK(sigaction(SIGUSR1, &act, NULL) == 0);
    struct blocked s, w;
    begin(&s, suspend_call, 0);
    begin(&w, sigwait_call, SIGRTMIN + 1);
    CHECK(sigqueue(getpid(), SIGRTMIN + 2, (union sigval){11}) == 0);
    CHECK(sigqueue(getpid(), SIGRTMIN + 2, (union sigval){12}) == 0);
    ready();
    STILL_BLOCKED(s);
    STILL_BLOCKED(w);
    CHECK(sigwait_call(SIGRTMIN + 2) == 11 && sigwait_call(SIGRTMIN + 2) == 12);
    CHECK(sigqueue(getpid(), SIGRTMIN + 1, (union sigval){13}) == 0 && wait_for(&w) == 13);
    CHECK(pthread_kill(s.thread, SIGUSR1) == 0 && wait_for(&s) == 1);
}

static long open_call(long unused) {
    (void)unused;
    return open("/tmp/a-fifo", O_RDONLY);
}

CASE(fifo_open) {
    CHECK(mkfifo("/tmp/a-fifo", 0600) == 0);
    struct blocked o;
    begin(&o, open_call, 0);
    ready();
    STILL_BLOCKED(o);
    int w = open("/tmp/a-fifo", O_WRONLY);
    int r = wait_for(&o);
    char c;
    CHECK(r >= 0 && w >= 0 && write(w, "q", 1) == 1 && read(r, &c, 1) == 1);
}

CASE(event_descriptors_waited_for) {
    int e = eventfd(0, 0), i = inotify_init1(0);
    CHECK(e >= 0 && i >= 0 && mkdir("/tmp/watched", 0700) == 0);
    int watch = inotify_add_watch(i, "/tmp/watched", IN_CREATE);
    CHECK(watch >= 0);
    struct blocked r, n;
    begin(&r, read_call, e);
    begin(&n, poll_call, i);
    ready();
    STILL_BLOCKED(r);
    STILL_BLOCKED(n);
    uint64_t five = 5;
    CHECK(write(e, &five, 8) == 8 && wait_for(&r) == 8 && !memcmp(buffer[0], &five, 8));
    CHECK(close(open("/tmp/watched/new", O_CREAT | O_RDWR, 0600)) == 0 && wait_for(&n) == 1);
    struct inotify_event *ev = (void *)buffer[1];
    CHECK(read(i, buffer[1], sizeof buffer[1]) > 0 && ev->wd == watch && !strcmp(ev->name, "new"));
}

// The generation file tells clones, and only them, that they are clones. Both wait without a limit: how long it takes
// until all cases are ready and frozen is the host's.
static long generation_poll(long fd) {
    struct pollfd p = {fd, POLLPRI, 0};
    return poll(&p, 1, -1) == 1 && p.revents & POLLPRI;
}

static long generation_epoll(long ep) {
    struct epoll_event e;
    return epoll_wait(ep, &e, 1, -1) == 1 && e.events & EPOLLPRI;
}

CASE(generation_file) {
    int fd = open("/sys/doppel/generation", O_RDONLY), ep = epoll_create1(0);
    int fd2 = open("/sys/doppel/generation", O_RDONLY);
    char text[16];
    CHECK(read(fd, text, 16) > 0 && text[0] == '0' && read(fd2, text, 16) > 0);
    struct epoll_event e = {EPOLLPRI | EPOLLET, {.u64 = 5}};
    CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, fd2, &e) == 0);
    struct pollfd p = {fd, POLLPRI, 0};
    CHECK(poll(&p, 1, 0) == 0 && epoll_wait(ep, &e, 1, 0) == 0);
    struct blocked a, b;
    begin(&a, generation_poll, fd);
    begin(&b, generation_epoll, ep);
    ready();
    if (generation() > 0) {
        CHECK(wait_for(&a) == 1);
        CHECK(wait_for(&b) == 1);
    } else {
        nap(500);
        STILL_BLOCKED(a);
        STILL_BLOCKED(b);
    }
    CHECK(lseek(fd, 0, SEEK_SET) == 0 && read(fd, text, 16) == 2 && text[0] == '0' + generation());
    CHECK(poll(&p, 1, 0) == 0);
}
