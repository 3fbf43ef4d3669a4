// System V IPC, signal descriptors, process descriptors, and stress of pipes, event counters and epoll: no
// wake-up may be lost, no byte changed.
#include "t.h"
#include <mqueue.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>

CASE(shm_shared_between_processes) {
    int id = shmget(IPC_PRIVATE, 10000, IPC_CREAT | 0600);
    CHECK(id >= 0);
    volatile int *p = shmat(id, NULL, 0);
    CHECK(p != (void *)-1 && p[0] == 0 && p[2499] == 0);
    CHECK_EQ(join(SPAWN({ p[7] = 77; })), 0);
    CHECK_EQ(p[7], 77);
    volatile int *q = shmat(id, NULL, SHM_RDONLY);
    CHECK(q != p && q[7] == 77);
    struct shmid_ds d;
    CHECK(shmctl(id, IPC_STAT, &d) == 0);
    CHECK(d.shm_segsz == 10000 && d.shm_nattch == 2 && (d.shm_perm.mode & 0777) == 0600);
    CHECK(d.shm_cpid == getpid());
    CHECK(shmdt((void *)q) == 0);
    CHECK_ERR(shmdt((void *)q), EINVAL);
    CHECK(shmctl(id, IPC_RMID, NULL) == 0);
    CHECK(shmctl(id, IPC_STAT, &d) == 0 && d.shm_nattch == 1 && (d.shm_perm.mode & 01000));
    p[0] = 5;  // alive until the last detach
    CHECK(shmdt((void *)p) == 0);
    CHECK_ERR(shmctl(id, IPC_STAT, &d), EINVAL);
}
CASE(shm_keys_and_errors) {
    key_t k = 0x7e570000 + getpid();
    CHECK_ERR(shmget(k, 4096, 0600), ENOENT);
    int id = shmget(k, 4096, IPC_CREAT | IPC_EXCL | 0600);
    CHECK(id >= 0 && shmget(k, 100, 0600) == id);
    CHECK_ERR(shmget(k, 8192, 0600), EINVAL);
    CHECK_ERR(shmget(k, 4096, IPC_CREAT | IPC_EXCL | 0600), EEXIST);
    CHECK_ERR(shmget(IPC_PRIVATE, 0, IPC_CREAT | 0600), EINVAL);
    CHECK_ERR((long)shmat(id, (void *)0x1001, 0), EINVAL);
    char *at = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK_ERR((long)shmat(id, at, 0), EINVAL);
    CHECK(shmat(id, at, SHM_REMAP) == at);
    CHECK(shmctl(id, IPC_RMID, NULL) == 0);
    CHECK(shmdt(at) == 0);
    CHECK_ERR(shmget(k, 4096, 0600), ENOENT);
    CHECK_ERR((long)shmat(id, NULL, 0), EINVAL);
}
CASE(shm_permissions) {
    if (geteuid()) SKIP("needs root");
    int id = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600);
    CHECK_EQ(join(SPAWN({
        CHECK(setresgid(1234, 1234, 1234) == 0 && setresuid(1234, 1234, 1234) == 0);
        CHECK_ERR((long)shmat(id, NULL, 0), EACCES);
        CHECK_ERR(shmctl(id, IPC_RMID, NULL), EPERM);
    })), 0);
    CHECK(shmctl(id, IPC_RMID, NULL) == 0);
}
static int sop(int id, int num, int op, int flags) {
    struct sembuf b = {num, op, flags};
    return semop(id, &b, 1);
}
CASE(sem_basic_and_errors) {
    int id = semget(IPC_PRIVATE, 3, IPC_CREAT | 0600);
    CHECK(id >= 0 && semctl(id, 0, SETVAL, 2) == 0 && semctl(id, 0, GETVAL) == 2);
    CHECK(sop(id, 0, -2, 0) == 0);
    CHECK_ERR(sop(id, 0, -1, IPC_NOWAIT), EAGAIN);
    CHECK(sop(id, 0, 0, 0) == 0);
    CHECK_ERR(sop(id, 9, 1, 0), EFBIG);
    CHECK(semctl(id, 0, GETPID) == getpid());
    unsigned short v[3] = {1, 2, 3}, o[3];
    CHECK(semctl(id, 0, SETALL, v) == 0 && semctl(id, 0, GETALL, o) == 0 && o[2] == 3);
    CHECK_ERR(semctl(id, 0, SETVAL, 40000), ERANGE);
    struct sembuf b[2] = {{0, -1, 0}, {1, -5, IPC_NOWAIT}};
    CHECK_ERR(semop(id, b, 2), EAGAIN);  // all or none
    CHECK_EQ(semctl(id, 0, GETVAL), 1);
    struct timespec ts = {0, 20000000};
    struct sembuf w = {1, -5, 0};
    int64_t t = now_us();
    CHECK_ERR(semtimedop(id, &w, 1, &ts), EAGAIN);
    CHECK(now_us() - t >= 19000);
    struct semid_ds d;
    CHECK(semctl(id, 0, IPC_STAT, &d) == 0 && d.sem_nsems == 3);
    CHECK(semctl(id, 0, IPC_RMID) == 0);
    CHECK_ERR(sop(id, 0, 1, 0), EINVAL);
}
CASE(sem_blocks_counts_and_eidrm) {
    int id = semget(IPC_PRIVATE, 1, IPC_CREAT | 0600);
    pid_t a = SPAWN({ CHECK(sop(id, 0, -1, 0) == 0); });
    EVENTUALLY(semctl(id, 0, GETNCNT) == 1);
    CHECK(sop(id, 0, 1, 0) == 0);
    CHECK_EQ(join(a), 0);
    pid_t b = SPAWN({ CHECK_ERR(sop(id, 0, -1, 0), EIDRM); });
    EVENTUALLY(semctl(id, 0, GETNCNT) == 1);
    CHECK(semctl(id, 0, IPC_RMID) == 0);
    CHECK_EQ(join(b), 0);
}
CASE(sem_undo_at_exit) {
    int id = semget(IPC_PRIVATE, 2, IPC_CREAT | 0600);
    CHECK(semctl(id, 0, SETVAL, 5) == 0);
    CHECK_EQ(join(SPAWN({ CHECK(sop(id, 0, -3, SEM_UNDO) == 0 && sop(id, 1, 4, SEM_UNDO) == 0); })), 0);
    CHECK_EQ(semctl(id, 0, GETVAL), 5);
    CHECK_EQ(semctl(id, 1, GETVAL), 0);
    semctl(id, 0, IPC_RMID);
}
static void nop(int s) { (void)s; }
CASE(sem_wait_is_never_restarted) {
    int id = semget(IPC_PRIVATE, 1, IPC_CREAT | 0600);
    struct sigaction sa = {.sa_handler = nop, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &sa, NULL);
    struct itimerval it = {{0, 0}, {0, 20000}};
    setitimer(ITIMER_REAL, &it, NULL);
    CHECK_ERR(sop(id, 0, -1, 0), EINTR);
    CHECK_EQ(semctl(id, 0, GETNCNT), 0);
    semctl(id, 0, IPC_RMID);
}
CASE(sem_ping_pong) {
    int id = semget(IPC_PRIVATE, 2, IPC_CREAT | 0600);
    pid_t c = SPAWN({ for (int i = 0; i < 2000; i++) CHECK(sop(id, 0, -1, 0) == 0 && sop(id, 1, 1, 0) == 0); });
    for (int i = 0; i < 2000; i++) CHECK(sop(id, 0, 1, 0) == 0 && sop(id, 1, -1, 0) == 0);
    CHECK_EQ(join(c), 0);
    semctl(id, 0, IPC_RMID);
}
struct mb { long type; char text[64]; };
CASE(msg_types_and_order) {
    int id = msgget(IPC_PRIVATE, IPC_CREAT | 0600);
    CHECK(id >= 0);
    struct mb m = {3, "three"}, r;
    CHECK(msgsnd(id, &m, 6, 0) == 0);
    m = (struct mb){1, "one"};
    CHECK(msgsnd(id, &m, 4, 0) == 0);
    m = (struct mb){2, "two"};
    CHECK(msgsnd(id, &m, 4, 0) == 0);
    struct msqid_ds d;
    CHECK(msgctl(id, IPC_STAT, &d) == 0 && d.msg_qnum == 3 && d.msg_lspid == getpid());
    CHECK_EQ(msgrcv(id, &r, 64, 2, 0), 4);
    CHECK(r.type == 2 && !strcmp(r.text, "two"));
    CHECK(msgrcv(id, &r, 64, -5, 0) == 4 && r.type == 1);
    CHECK_ERR(msgrcv(id, &r, 2, 0, 0), E2BIG);
    CHECK(msgrcv(id, &r, 2, 0, MSG_NOERROR) == 2 && r.type == 3);
    CHECK_ERR(msgrcv(id, &r, 64, 0, IPC_NOWAIT), ENOMSG);
    m.type = 0;
    CHECK_ERR(msgsnd(id, &m, 4, 0), EINVAL);
    CHECK(msgctl(id, IPC_RMID, NULL) == 0);
    CHECK_ERR(msgrcv(id, &r, 64, 0, 0), EINVAL);
}
CASE(msg_blocks_when_full_and_empty) {
    int id = msgget(IPC_PRIVATE, IPC_CREAT | 0600);
    pid_t c = SPAWN({
        struct { long t; char b[4096]; } r;
        for (int i = 0; i < 100; i++) CHECK(msgrcv(id, &r, 4096, 0, 0) == 4096 && r.b[0] == (char)i);
    });
    struct { long t; char b[4096]; } m = {1, {0}};
    for (int i = 0; i < 100; i++) {
        m.b[0] = i;
        CHECK(msgsnd(id, &m, 4096, 0) == 0);
    }
    CHECK_EQ(join(c), 0);
    msgctl(id, IPC_RMID, NULL);
}
static mqd_t mq_new(int flags) {
    char name[40];
    snprintf(name, sizeof name, "/t-mq-%d", getpid());
    struct mq_attr a = {.mq_maxmsg = 4, .mq_msgsize = 32};
    mqd_t q = mq_open(name, O_CREAT | O_EXCL | O_RDWR | flags, 0600, &a);
    if (q < 0 && errno == ENOSYS) SKIP("no message queues");
    CHECK(q >= 0);
    CHECK_ERR(mq_open(name, O_CREAT | O_EXCL | O_RDWR, 0600, &a), EEXIST);
    CHECK(mq_unlink(name) == 0);
    CHECK_ERR(mq_unlink(name), ENOENT);
    return q;
}
CASE(mq_priorities_and_limits) {
    mqd_t q = mq_new(O_NONBLOCK);
    CHECK(mq_send(q, "low", 4, 1) == 0 && mq_send(q, "high", 5, 9) == 0 && mq_send(q, "high2", 6, 9) == 0);
    struct mq_attr a;
    CHECK(mq_getattr(q, &a) == 0 && a.mq_curmsgs == 3 && a.mq_maxmsg == 4 && a.mq_msgsize == 32);
    char b[32];
    unsigned p;
    CHECK(mq_receive(q, b, 32, &p) == 5 && p == 9 && !strcmp(b, "high"));
    CHECK(mq_receive(q, b, 32, &p) == 6 && !strcmp(b, "high2"));
    CHECK_ERR(mq_receive(q, b, 31, &p), EMSGSIZE);
    CHECK(mq_receive(q, b, 32, &p) == 4 && p == 1);
    CHECK_ERR(mq_receive(q, b, 32, &p), EAGAIN);
    CHECK_ERR(mq_send(q, b, 33, 0), EMSGSIZE);
    for (int i = 0; i < 4; i++) CHECK(mq_send(q, b, 1, 0) == 0);
    CHECK_ERR(mq_send(q, b, 1, 0), EAGAIN);
    struct pollfd f = {q, POLLIN | POLLOUT, 0};
    CHECK(poll(&f, 1, 0) == 1 && f.revents == POLLIN);
}
CASE(mq_blocks_times_out_and_notifies) {
    mqd_t q = mq_new(0);
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    ts.tv_nsec += 30000000;
    if (ts.tv_nsec >= 1000000000) ts.tv_sec++, ts.tv_nsec -= 1000000000;
    char b[32];
    int64_t t = now_us();
    CHECK_ERR(mq_timedreceive(q, b, 32, NULL, &ts), ETIMEDOUT);
    CHECK(now_us() - t >= 25000);
    pid_t c = SPAWN({ for (int i = 0; i < 50; i++) { b[0] = i; CHECK(mq_send(q, b, 1, 0) == 0); } });
    for (int i = 0; i < 50; i++) CHECK(mq_receive(q, b, 32, NULL) == 1 && b[0] == i);
    CHECK_EQ(join(c), 0);
    sigset_t s;
    sigemptyset(&s);
    sigaddset(&s, SIGUSR2);
    sigprocmask(SIG_BLOCK, &s, NULL);
    struct sigevent ev = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR2, .sigev_value = {.sival_int = 7}};
    CHECK(mq_notify(q, &ev) == 0);
    CHECK_ERR(mq_notify(q, &ev), EBUSY);
    CHECK(mq_send(q, "x", 1, 0) == 0);
    siginfo_t si;
    CHECK(sigwaitinfo(&s, &si) == SIGUSR2 && si.si_value.sival_int == 7 && si.si_code == SI_MESGQ);
}
CASE(signalfd_reads_pending) {
    sigset_t s;
    sigemptyset(&s);
    sigaddset(&s, SIGUSR1);
    sigaddset(&s, SIGRTMIN);
    sigprocmask(SIG_BLOCK, &s, NULL);
    int fd = signalfd(-1, &s, SFD_NONBLOCK | SFD_CLOEXEC);
    CHECK(fd >= 0);
    struct signalfd_siginfo i[4];
    CHECK_ERR(read(fd, i, sizeof i), EAGAIN);
    CHECK_ERR(read(fd, i, 100), EINVAL);
    kill(getpid(), SIGUSR1);
    struct pollfd p = {fd, POLLIN, 0};
    CHECK(poll(&p, 1, 30000) == 1);
    CHECK_EQ(read(fd, i, sizeof i), sizeof *i);
    CHECK(i[0].ssi_signo == SIGUSR1 && i[0].ssi_pid == (unsigned)getpid() && i[0].ssi_code == SI_USER);
    union sigval v = {.sival_int = 42};
    sigqueue(getpid(), SIGRTMIN, v);
    v.sival_int = 43;
    sigqueue(getpid(), SIGRTMIN, v);
    CHECK_EQ(read(fd, i, sizeof i), 2 * sizeof *i);
    CHECK(i[0].ssi_int == 42 && i[1].ssi_int == 43);
}
CASE(signalfd_sigchld_in_epoll) {
    sigset_t s;
    sigemptyset(&s);
    sigaddset(&s, SIGCHLD);
    sigprocmask(SIG_BLOCK, &s, NULL);
    int fd = signalfd(-1, &s, 0), ep = epoll_create1(0);
    struct epoll_event e = {EPOLLIN, {.fd = fd}}, o;
    CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e) == 0);
    pid_t c = SPAWN({ _exit(3); });
    CHECK(epoll_wait(ep, &o, 1, 30000) == 1);
    struct signalfd_siginfo i;
    CHECK(read(fd, &i, sizeof i) == sizeof i && i.ssi_signo == SIGCHLD && i.ssi_pid == (unsigned)c && i.ssi_status == 3);
    CHECK_EQ(join(c), 3);
}
CASE(pidfd_poll_and_getfd) {
    int p[2];
    CHECK(pipe(p) == 0);
    pid_t c = SPAWN({ close(p[0]); pause(); });
    int fd = syscall(SYS_pidfd_open, c, 0);
    CHECK(fd >= 0 && (fcntl(fd, F_GETFD) & FD_CLOEXEC));
    struct pollfd q = {fd, POLLIN, 0};
    CHECK_EQ(poll(&q, 1, 0), 0);
    int g = syscall(SYS_pidfd_getfd, fd, p[1], 0);
    if (g >= 0) CHECK(write(g, "z", 1) == 1);
    else CHECK(errno == EPERM);
    kill(c, SIGKILL);
    CHECK(poll(&q, 1, 30000) == 1 && q.revents == POLLIN);
    CHECK_EQ(join(c), 128 + SIGKILL);
    CHECK_ERR(syscall(SYS_pidfd_open, c, 0), ESRCH);
    CHECK_ERR(syscall(SYS_pidfd_open, -1, 0), EINVAL);
}
// One writer, one reader in another process, sizes of all kinds: every byte in its place.
CASE(pipe_bytes_survive) {
    int p[2];
    CHECK(pipe(p) == 0);
    enum { TOTAL = 8 << 20 };
    pid_t c = SPAWN({
        close(p[0]);
        static unsigned char b[100000];
        unsigned x = 1, at = 0;
        while (at < TOTAL) {
            x = x * 1103515245 + 12345;
            unsigned n = x >> 8 & 1 ? (x >> 16) % 100 + 1 : (x >> 16) % 60000 + 1;
            if (n > TOTAL - at) n = TOTAL - at;
            for (unsigned i = 0; i < n; i++) b[i] = (at + i) * 2654435761u >> 24;
            CHECK(write(p[1], b, n) == (ssize_t)n);
            at += n;
        }
    });
    close(p[1]);
    static unsigned char b[70000];
    unsigned x = 7, at = 0;
    for (;;) {
        x = x * 1103515245 + 12345;
        ssize_t n = read(p[0], b, (x >> 16) % sizeof b + 1);
        CHECK(n >= 0);
        if (!n) break;
        for (ssize_t i = 0; i < n; i++) CHECK(b[i] == (unsigned char)((at + i) * 2654435761u >> 24));
        at += n;
    }
    CHECK_EQ(at, TOTAL);
    CHECK_EQ(join(c), 0);
}
// Writes of up to PIPE_BUF bytes from many processes are never mixed.
CASE(pipe_atomic_writes) {
    int p[2];
    CHECK(pipe(p) == 0);
    enum { WRITERS = 6, ROUNDS = 300 };
    for (int w = 0; w < WRITERS; w++)
        SPAWN({
            char b[4096];
            for (int i = 0; i < ROUNDS; i++) {
                int n = 16 + (i * 37 + w * 911) % 4000;
                memset(b, 'a' + w, n);
                memcpy(b, &n, sizeof n);
                CHECK(write(p[1], b, n) == n);
            }
        });
    close(p[1]);
    int messages = 0;
    char b[4096];
    for (;;) {
        int n, have = 0;
        ssize_t r = read(p[0], &n, sizeof n);
        if (!r) break;
        CHECK(r == sizeof n && n >= 16 && n <= 4096);
        while (have < n - 4) {
            r = read(p[0], b + have, n - 4 - have);
            CHECK(r > 0);
            have += r;
        }
        for (int i = 1; i < n - 4; i++) CHECK(b[i] == b[0]);
        messages++;
    }
    CHECK_EQ(messages, WRITERS * ROUNDS);
}
CASE(pipe_ping_pong) {
    int p[2], q[2];
    CHECK(pipe(p) == 0 && pipe(q) == 0);
    pid_t c = SPAWN({
        char b;
        for (int i = 0; i < 20000; i++) CHECK(read(p[0], &b, 1) == 1 && write(q[1], &b, 1) == 1);
    });
    char b = 'x';
    for (int i = 0; i < 20000; i++) CHECK(write(p[1], &b, 1) == 1 && read(q[0], &b, 1) == 1);
    CHECK_EQ(join(c), 0);
}
// Threads of one process pass a token through event counters.
static int ring_fd[8];
static void *ring(void *arg) {
    long me = (long)arg;
    for (int i = 0; i < 2000; i++) {
        uint64_t v;
        if (read(ring_fd[me], &v, 8) != 8) return (void *)1;
        v = 1;
        if (write(ring_fd[(me + 1) % 8], &v, 8) != 8) return (void *)2;
    }
    return NULL;
}
CASE(eventfd_ring_of_threads) {
    pthread_t t[8];
    for (int i = 0; i < 8; i++) ring_fd[i] = eventfd(0, 0);
    for (long i = 0; i < 8; i++) CHECK(pthread_create(&t[i], NULL, ring, (void *)i) == 0);
    uint64_t one = 1;
    CHECK(write(ring_fd[0], &one, 8) == 8);
    for (int i = 0; i < 8; i++) {
        void *r;
        pthread_join(t[i], &r);
        CHECK(r == NULL);
    }
}
// Edge-triggered readers in several threads against several writers: every count arrives.
static int st_ep, st_fd[16];
static long st_got;
static void *st_reader(void *arg) {
    (void)arg;
    struct epoll_event e[4];
    for (;;) {
        int n = epoll_wait(st_ep, e, 4, -1);
        for (int i = 0; i < n; i++) {
            uint64_t v;
            if (e[i].data.fd < 0) return NULL;
            while (read(e[i].data.fd, &v, 8) == 8) __atomic_add_fetch(&st_got, v, __ATOMIC_SEQ_CST);
        }
    }
}
static void *st_writer(void *arg) {
    unsigned x = (unsigned)(long)arg + 1;
    for (int i = 0; i < 5000; i++) {
        x = x * 1103515245 + 12345;
        uint64_t one = 1;
        if (write(st_fd[(x >> 16) % 16], &one, 8) != 8) abort();
    }
    return NULL;
}
static void stress(uint32_t mode) {
    pthread_t r[4], w[4];
    st_ep = epoll_create1(0);
    for (int i = 0; i < 16; i++) {
        st_fd[i] = eventfd(0, EFD_NONBLOCK);
        struct epoll_event e = {EPOLLIN | mode, {.fd = st_fd[i]}};
        CHECK(epoll_ctl(st_ep, EPOLL_CTL_ADD, st_fd[i], &e) == 0);
    }
    for (long i = 0; i < 4; i++) CHECK(pthread_create(&r[i], NULL, st_reader, NULL) == 0);
    for (long i = 0; i < 4; i++) CHECK(pthread_create(&w[i], NULL, st_writer, (void *)i) == 0);
    for (int i = 0; i < 4; i++) pthread_join(w[i], NULL);
    EVENTUALLY(__atomic_load_n(&st_got, __ATOMIC_SEQ_CST) == 4 * 5000);
    int stop = eventfd(1, 0);
    struct epoll_event e = {EPOLLIN, {.fd = -1}};
    CHECK(epoll_ctl(st_ep, EPOLL_CTL_ADD, stop, &e) == 0);
    for (int i = 0; i < 4; i++) pthread_join(r[i], NULL);
}
CASE(epoll_edge_stress) { stress(EPOLLET); }
CASE(epoll_level_stress) { stress(0); }
// One-shot: never two threads with the same descriptor, nothing lost.
static int os_busy[16];
static void *os_reader(void *arg) {
    (void)arg;
    struct epoll_event e;
    for (;;) {
        if (epoll_wait(st_ep, &e, 1, -1) != 1) continue;
        int i = e.data.fd;
        if (i < 0) return NULL;
        if (__atomic_exchange_n(&os_busy[i], 1, __ATOMIC_SEQ_CST)) abort();
        uint64_t v;
        if (read(st_fd[i], &v, 8) == 8) __atomic_add_fetch(&st_got, v, __ATOMIC_SEQ_CST);
        __atomic_store_n(&os_busy[i], 0, __ATOMIC_SEQ_CST);
        e.events = EPOLLIN | EPOLLONESHOT;
        if (epoll_ctl(st_ep, EPOLL_CTL_MOD, st_fd[i], &e)) abort();
    }
}
CASE(epoll_oneshot_stress) {
    pthread_t r[4], w[4];
    st_ep = epoll_create1(0);
    for (int i = 0; i < 16; i++) {
        st_fd[i] = eventfd(0, EFD_NONBLOCK);
        struct epoll_event e = {EPOLLIN | EPOLLONESHOT, {.fd = i}};
        CHECK(epoll_ctl(st_ep, EPOLL_CTL_ADD, st_fd[i], &e) == 0);
    }
    for (long i = 0; i < 4; i++) CHECK(pthread_create(&r[i], NULL, os_reader, NULL) == 0);
    for (long i = 0; i < 4; i++) CHECK(pthread_create(&w[i], NULL, st_writer, (void *)i) == 0);
    for (int i = 0; i < 4; i++) pthread_join(w[i], NULL);
    EVENTUALLY(__atomic_load_n(&st_got, __ATOMIC_SEQ_CST) == 4 * 5000);
    int stop = eventfd(1, 0);
    struct epoll_event e = {EPOLLIN, {.fd = -1}};
    CHECK(epoll_ctl(st_ep, EPOLL_CTL_ADD, stop, &e) == 0);
    for (int i = 0; i < 4; i++) pthread_join(r[i], NULL);
}
// Processes share one instance; its users come and go.
CASE(epoll_shared_by_processes) {
    int ep = epoll_create1(0), p[2], done[2];
    CHECK(pipe(p) == 0 && pipe(done) == 0);
    struct epoll_event e = {EPOLLIN | EPOLLEXCLUSIVE, {.fd = p[0]}};
    CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, p[0], &e) == 0);
    fcntl(p[0], F_SETFL, O_NONBLOCK);
    for (int i = 0; i < 4; i++)
        SPAWN({
            char c;
            for (;;) {
                struct epoll_event o;
                CHECK(epoll_wait(ep, &o, 1, -1) == 1);
                ssize_t n = read(p[0], &c, 1);
                if (n == 1 && c == 'q') _exit(0);
                if (n == 1) CHECK(write(done[1], &c, 1) == 1);
            }
        });
    char c = 'x';
    for (int i = 0; i < 2000; i++) CHECK(write(p[1], &c, 1) == 1 && read(done[0], &c, 1) == 1);
    CHECK(write(p[1], "qqqq", 4) == 4);
    for (int i = 0; i < 4; i++) CHECK(wait(NULL) > 0);
}
// One write brings work for all: each waiter that is woken wakes the next, whoever else looks meanwhile.
CASE(epoll_wakes_a_waiter_for_each_byte) {
    enum { WORKERS = 4, ROUNDS = 20000 };
    int ep = epoll_create1(0), work[2], done[2], go[2];
    CHECK(pipe2(work, O_NONBLOCK) == 0 && pipe2(done, O_NONBLOCK) == 0 && pipe(go) == 0);
    struct epoll_event e = {EPOLLIN | EPOLLEXCLUSIVE, {.fd = work[0]}};
    CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, work[0], &e) == 0);
    pid_t workers[WORKERS];
    for (int i = 0; i < WORKERS; i++)
        workers[i] = SPAWN({
            char c;
            for (;;) {
                CHECK(epoll_wait(ep, &e, 1, -1) == 1);
                if (read(work[0], &c, 1) == 1) CHECK(write(done[1], &c, 1) == 1 && read(go[0], &c, 1) == 1);
            }
        });
    char c[WORKERS] = {0};
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(write(work[1], c, WORKERS) == WORKERS);
        int64_t give_up = now_us() + 20000000;
        for (int n = 0; n < WORKERS; n += read(done[0], c, 1) == 1) {
            CHECK(epoll_wait(ep, &e, 1, 0) >= 0);
            CHECK(now_us() < give_up);
        }
        CHECK(write(go[1], c, WORKERS) == WORKERS);
    }
    for (int i = 0; i < WORKERS; i++) CHECK(kill(workers[i], SIGKILL) == 0 && wait(NULL) > 0);
}
CASE(epoll_nesting_limits) {
    int e[8];
    struct epoll_event ev = {EPOLLIN, {0}};
    for (int i = 0; i < 8; i++) e[i] = epoll_create1(0);
    int i = 1;
    while (i < 8 && epoll_ctl(e[i], EPOLL_CTL_ADD, e[i - 1], &ev) == 0) i++;
    CHECK(i >= 4 && i < 8);
    CHECK(errno == ELOOP || errno == EINVAL);
    CHECK_ERR(epoll_ctl(e[0], EPOLL_CTL_ADD, e[i - 1], &ev), ELOOP);
    int fd = eventfd(1, 0);
    CHECK(epoll_ctl(e[0], EPOLL_CTL_ADD, fd, &ev) == 0);
    CHECK_EQ(epoll_wait(e[i - 1], &ev, 1, 30000), 1);
}
CASE(memfd_write_seal_waits_for_mappings) {
    int fd = memfd_create("s", MFD_ALLOW_SEALING);
    CHECK(ftruncate(fd, 4096) == 0);
    char *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK_ERR(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), EBUSY);
    munmap(p, 4096);
    CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SEAL) == 0);
    CHECK_ERR(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW), EPERM);
    CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) != MAP_FAILED || errno == EPERM);
    CHECK(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0) != MAP_FAILED);
}
CASE(timerfd_periodic_counts) {
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    struct itimerspec s = {{0, 5000000}, {0, 5000000}}, o;
    uint64_t n;
    CHECK_ERR(read(fd, &n, 8), EAGAIN);
    int64_t begun = now_us();
    CHECK(timerfd_settime(fd, 0, &s, NULL) == 0);
    msleep(52);
    CHECK(read(fd, &n, 8) == 8 && n >= 9 && n <= (uint64_t)(now_us() - begun) / 5000);
    CHECK(timerfd_gettime(fd, &o) == 0 && o.it_interval.tv_nsec == 5000000);
    CHECK(o.it_value.tv_sec == 0 && o.it_value.tv_nsec > 0 && o.it_value.tv_nsec <= 5000000);
    memset(&s, 0, sizeof s);
    CHECK(timerfd_settime(fd, 0, &s, &o) == 0);
    CHECK_ERR(read(fd, &n, 8), EAGAIN);
    CHECK(timerfd_gettime(fd, &o) == 0 && o.it_value.tv_nsec == 0);
}
CASE(splice_keeps_what_it_cannot_deliver) {
    int p[2], q[2];
    CHECK(pipe(p) == 0 && pipe(q) == 0);
    char b[65536];
    for (unsigned i = 0; i < sizeof b; i++) b[i] = i % 251;
    CHECK(fcntl(q[1], F_SETPIPE_SZ, 4096) >= 4096);
    CHECK(write(p[1], b, sizeof b) == sizeof b);
    size_t at = 0;
    while (at < sizeof b) {
        ssize_t n = splice(p[0], NULL, q[1], NULL, 60000, SPLICE_F_NONBLOCK);
        CHECK(n > 0);
        char c[65536];
        CHECK(read(q[0], c, sizeof c) == n && !memcmp(c, b + at, n));
        at += n;
    }
}
