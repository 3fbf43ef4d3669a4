// System V semaphores, messages and shared memory, and POSIX queues, at their edges.
#include "t.h"
#include <mqueue.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>

static int sems(int n) { return CHECK_OK(semget(IPC_PRIVATE, n, 0600)); }
static int val(int id, int i) { return semctl(id, i, GETVAL); }
static void setv(int id, int i, int v) { CHECK(semctl(id, i, SETVAL, v) == 0); }
static int op1(int id, int i, int by, int flag) {
    struct sembuf o = {i, by, flag};
    return semop(id, &o, 1);
}
static void rm(int id) { CHECK(semctl(id, 0, IPC_RMID) == 0); }
static struct { long type; char text[70000]; } m;

CASE(sem_all_or_nothing) {
    int id = sems(3);
    setv(id, 0, 1), setv(id, 1, 0);
    struct sembuf o[3] = {{0, -1, 0}, {2, 5, 0}, {1, -1, IPC_NOWAIT}};
    CHECK_ERR(semop(id, o, 3), EAGAIN);
    CHECK(val(id, 0) == 1 && val(id, 2) == 0);
    rm(id);
}
CASE(sem_same_semaphore_twice_in_one_call) {
    int id = sems(1);
    struct sembuf o[2] = {{0, 2, 0}, {0, -1, 0}}, z[2] = {{0, 0, IPC_NOWAIT}, {0, 1, 0}};
    CHECK(semop(id, o, 2) == 0 && val(id, 0) == 1);
    CHECK_ERR(semop(id, z, 2), EAGAIN);
    rm(id);
}
CASE(sem_wait_for_zero) {
    int id = sems(1);
    setv(id, 0, 1);
    pid_t c = SPAWN(_exit(op1(id, 0, 0, 0) == 0 ? 3 : 4));
    EVENTUALLY(semctl(id, 0, GETZCNT) == 1);
    CHECK(op1(id, 0, -1, 0) == 0);
    CHECK_EQ(join(c), 3);
    CHECK_EQ(semctl(id, 0, GETZCNT), 0);
    rm(id);
}
CASE(sem_waiter_has_what_it_waited_for_although_the_set_is_removed_at_once) {
    for (int i = 0; i < 20; i++) {
        int id = sems(1);
        setv(id, 0, 1);
        pid_t zero = SPAWN(_exit(op1(id, 0, 0, 0) == 0 ? 3 : 4)), grow = SPAWN(_exit(op1(id, 0, -5, 0) == 0 ? 3 : 4));
        EVENTUALLY(semctl(id, 0, GETZCNT) == 1 && semctl(id, 0, GETNCNT) == 1);
        CHECK(op1(id, 0, -1, 0) == 0);
        CHECK(op1(id, 0, 5, 0) == 0);
        rm(id);
        CHECK_EQ(join(zero), 3);
        CHECK_EQ(join(grow), 3);
    }
}
CASE(sem_growth_goes_to_those_who_waited_in_their_order) {
    int id = sems(2);
    pid_t c = SPAWN(_exit(op1(id, 0, -1, 0) == 0 ? 3 : 4));
    EVENTUALLY(semctl(id, 0, GETNCNT) == 1);
    // It is gone when the call is over: nobody can take it again.
    CHECK(op1(id, 0, 1, 0) == 0);
    CHECK_EQ(val(id, 0), 0);
    CHECK_EQ(semctl(id, 0, GETNCNT), 0);
    CHECK_ERR(op1(id, 0, -1, IPC_NOWAIT), EAGAIN);
    CHECK_EQ(join(c), 3);
    // What one waiter does lets the next one go on.
    pid_t first = SPAWN(struct sembuf o[2] = {{0, -1, 0}, {1, 1, 0}}; _exit(semop(id, o, 2) == 0 ? 3 : 4));
    pid_t second = SPAWN(_exit(op1(id, 1, -1, 0) == 0 ? 3 : 4));
    EVENTUALLY(semctl(id, 0, GETNCNT) == 1 && semctl(id, 1, GETNCNT) == 1);
    setv(id, 0, 1);
    CHECK(val(id, 0) == 0 && val(id, 1) == 0);
    CHECK_EQ(join(first), 3);
    CHECK_EQ(join(second), 3);
    rm(id);
}
CASE(sem_limits_and_errors) {
    int id = sems(2);
    CHECK_ERR(semctl(id, 0, SETVAL, 32768), ERANGE);
    CHECK_ERR(semctl(id, 0, SETVAL, -1), ERANGE);
    CHECK_ERR(semctl(id, 2, GETVAL), EINVAL);
    CHECK_ERR(op1(id, 2, 1, 0), EFBIG);
    setv(id, 0, 32767);
    CHECK_ERR(op1(id, 0, 1, 0), ERANGE);
    struct sembuf o;
    CHECK_ERR(semop(id, &o, 0), EINVAL);
    CHECK_ERR(semop(id, BAD, 1), EFAULT);
    struct sembuf many[501] = {0};
    CHECK_ERR(semop(id, many, 501), E2BIG);
    CHECK_ERR(semget(IPC_PRIVATE, 0, 0600), EINVAL);
    CHECK_ERR(semget(IPC_PRIVATE, 40000, 0600), EINVAL);
    CHECK_ERR(semctl(id, 0, 99), EINVAL);
    rm(id);
    CHECK_ERR(op1(id, 0, 1, 0), EINVAL);
}
CASE(sem_undo_of_a_killed_process) {
    int id = sems(2);
    setv(id, 0, 3);
    pid_t c = SPAWN(op1(id, 0, -2, SEM_UNDO); op1(id, 1, 4, SEM_UNDO); op1(id, 1, -1, 0); pause());
    EVENTUALLY(val(id, 1) == 3);
    CHECK_EQ(val(id, 0), 1);
    kill(c, SIGKILL), join(c);
    EVENTUALLY(val(id, 0) == 3);
    EVENTUALLY(val(id, 1) == 0);  // 3 - 4 stops at zero
    rm(id);
}
CASE(sem_undo_wakes_waiters) {
    int id = sems(1);
    setv(id, 0, 1);
    pid_t c = SPAWN(op1(id, 0, -1, SEM_UNDO); msleep(60));
    EVENTUALLY(val(id, 0) == 0);
    CHECK(op1(id, 0, -1, 0) == 0);
    join(c);
    rm(id);
}
CASE(sem_setval_clears_undo) {
    int id = sems(1);
    setv(id, 0, 5);
    pid_t c = SPAWN(op1(id, 0, -2, SEM_UNDO); setv(id, 0, 9));
    join(c);
    CHECK_EQ(val(id, 0), 9);
    rm(id);
}
CASE(sem_undo_not_inherited_by_fork) {
    int id = sems(1);
    setv(id, 0, 5);
    CHECK(op1(id, 0, -1, SEM_UNDO) == 0);
    join(SPAWN((void)0));
    CHECK_EQ(val(id, 0), 4);
    rm(id);
}
CASE(sem_last_pid_times_and_getall) {
    int id = sems(3);
    unsigned short a[3] = {7, 8, 9}, b[3];
    CHECK(semctl(id, 0, SETALL, a) == 0 && semctl(id, 0, GETALL, b) == 0 && !memcmp(a, b, sizeof a));
    pid_t c = SPAWN(op1(id, 1, -1, 0));
    join(c);
    CHECK_EQ(semctl(id, 1, GETPID), c);
    struct semid_ds d;
    CHECK(semctl(id, 0, IPC_STAT, &d) == 0 && d.sem_nsems == 3 && d.sem_otime >= time(NULL) - 5 && (d.sem_perm.mode & 0777) == 0600);
    rm(id);
}
CASE(sem_timed_wait) {
    int id = sems(1);
    struct sembuf o = {0, -1, 0};
    struct timespec t = {0, 30000000}, bad = {0, 1000000000};
    int64_t s = now_us();
    CHECK_ERR(semtimedop(id, &o, 1, &t), EAGAIN);
    CHECK(now_us() - s >= 30000);
    CHECK_ERR(semtimedop(id, &o, 1, &bad), EINVAL);
    rm(id);
}
CASE(sem_permissions) {
    int id = CHECK_OK(semget(IPC_PRIVATE, 1, 0640)), r = CHECK_OK(semget(IPC_PRIVATE, 1, 0604));
    CHECK_EQ(join(SPAWN(t_drop_root(); _exit(semctl(id, 0, GETVAL) == -1 && errno == EACCES && semctl(r, 0, GETVAL) == 0 && op1(r, 0, 1, 0) == -1 && errno == EACCES && semctl(r, 0, IPC_RMID) == -1 && errno == EPERM ? 3 : 4))), 3);
    rm(id), rm(r);
}
CASE(keys_and_exclusive_creation) {
    key_t k = 0x51000000 | getpid();
    CHECK_ERR(semget(k, 1, 0600), ENOENT);
    int id = CHECK_OK(semget(k, 2, IPC_CREAT | IPC_EXCL | 0600));
    CHECK_ERR(semget(k, 2, IPC_CREAT | IPC_EXCL | 0600), EEXIST);
    CHECK(semget(k, 0, 0) == id && semget(k, 2, 0600) == id);
    CHECK_ERR(semget(k, 3, 0600), EINVAL);  // it has only two
    rm(id);
    CHECK_ERR(semget(k, 0, 0), ENOENT);
    CHECK(msgget(k, IPC_CREAT | 0600) >= 0);  // each kind has keys of its own
    CHECK(msgctl(msgget(k, 0), IPC_RMID, NULL) == 0);
}
static int queue(void) { return CHECK_OK(msgget(IPC_PRIVATE, 0600)); }
static int put(int id, long type, const char *text) {
    m.type = type;
    strcpy(m.text, text);
    return msgsnd(id, &m, strlen(text), IPC_NOWAIT);
}
CASE(msg_selection_by_type) {
    int id = queue();
    CHECK(put(id, 3, "three") == 0 && put(id, 1, "one") == 0 && put(id, 2, "two") == 0 && put(id, 1, "uno") == 0);
    CHECK(msgrcv(id, &m, 100, -2, 0) == 3 && m.type == 1 && !memcmp(m.text, "one", 3));  // lowest up to 2
    CHECK(msgrcv(id, &m, 100, 3, MSG_EXCEPT) == 3 && !memcmp(m.text, "two", 3));
    CHECK(msgrcv(id, &m, 100, 3, 0) == 5);
    CHECK_ERR(msgrcv(id, &m, 100, 9, IPC_NOWAIT), ENOMSG);
    CHECK(msgrcv(id, &m, 100, 0, 0) == 3 && !memcmp(m.text, "uno", 3));
    msgctl(id, IPC_RMID, NULL);
}
CASE(msg_size_rules) {
    int id = queue();
    CHECK(put(id, 1, "0123456789") == 0);
    CHECK_ERR(msgrcv(id, &m, 4, 0, 0), E2BIG);  // and it stays
    CHECK(msgrcv(id, &m, 4, 0, MSG_NOERROR) == 4);
    CHECK_ERR(msgrcv(id, &m, 4, 0, IPC_NOWAIT), ENOMSG);
    CHECK_ERR(put(id, 0, "x"), EINVAL);
    CHECK_ERR(put(id, -1, "x"), EINVAL);
    m.type = 1;
    CHECK_ERR(msgsnd(id, &m, 65537, 0), EINVAL);
    CHECK_ERR(msgsnd(id, BAD, 1, 0), EFAULT);
    CHECK_ERR(msgrcv(id, &m, -1, 0, 0), EINVAL);
    CHECK(msgsnd(id, &m, 0, 0) == 0 && msgrcv(id, &m, 10, 0, 0) == 0);
    msgctl(id, IPC_RMID, NULL);
}
CASE(msg_copy_peeks) {
    int id = queue();
    CHECK(put(id, 1, "a") == 0 && put(id, 2, "b") == 0);
#ifndef MSG_COPY
#define MSG_COPY 040000
#endif
    long r = msgrcv(id, &m, 10, 1, MSG_COPY | IPC_NOWAIT);
    if (r < 0 && errno == ENOSYS) SKIP("kernel without checkpoint support");
    CHECK(r == 1 && m.text[0] == 'b');
    CHECK_ERR(msgrcv(id, &m, 10, 5, MSG_COPY | IPC_NOWAIT), ENOMSG);
    CHECK_ERR(msgrcv(id, &m, 10, 0, MSG_COPY), EINVAL);
    msgctl(id, IPC_RMID, NULL);
}
CASE(msg_queue_bytes_limit) {
    int id = queue();
    struct msqid_ds d;
    CHECK(msgctl(id, IPC_STAT, &d) == 0);
    d.msg_qbytes = 10;
    CHECK(msgctl(id, IPC_SET, &d) == 0);
    CHECK(put(id, 1, "0123456789") == 0);
    CHECK_ERR(put(id, 1, "x"), EAGAIN);
    CHECK(msgctl(id, IPC_STAT, &d) == 0 && d.msg_qnum == 1 && d.msg_lspid == getpid() && d.msg_lrpid == 0);
    msgctl(id, IPC_RMID, NULL);
}
CASE(msg_removal_wakes_both_sides) {
    int id = queue();
    pid_t c = SPAWN(_exit(msgrcv(id, &m, 10, 0, 0) == -1 && errno == EIDRM ? 3 : 4));
    msleep(50);
    CHECK(msgctl(id, IPC_RMID, NULL) == 0);
    CHECK_EQ(join(c), 3);
    CHECK_ERR(msgrcv(id, &m, 10, 0, IPC_NOWAIT), EINVAL);
}
CASE(shm_removed_lives_until_detached) {
    int id = CHECK_OK(shmget(IPC_PRIVATE, 5000, 0600));
    char *p = shmat(id, NULL, 0);
    CHECK(p != (void *)-1 && shmctl(id, IPC_RMID, NULL) == 0);
    strcpy(p + 4990, "alive");
    struct shmid_ds d;
    CHECK(shmctl(id, IPC_STAT, &d) == 0 && d.shm_perm.mode & SHM_DEST && d.shm_nattch == 1 && d.shm_segsz == 5000);
    char *q = shmat(id, NULL, SHM_RDONLY);  // Linux lets a doomed segment be attached
    CHECK(q != (void *)-1 && !strcmp(q + 4990, "alive") && shmdt(q) == 0);
    CHECK(shmdt(p) == 0);
    CHECK_ERR(shmctl(id, IPC_STAT, &d), EINVAL);
}
CASE(shm_attach_rules) {
    int id = CHECK_OK(shmget(IPC_PRIVATE, 4096, 0600));
    char *p = shmat(id, NULL, 0);
    CHECK(shmat(id, p + 4096 * 100 + 7, 0) == (void *)-1 && errno == EINVAL);
    char *r = shmat(id, p + 4096 * 100 + 7, SHM_RND);
    CHECK(r == p + 4096 * 100 || (r == (void *)-1 && errno == EINVAL));
    CHECK(shmat(id, p, 0) == (void *)-1 && errno == EINVAL);  // taken
    CHECK(shmat(id, p, SHM_REMAP) == p);
    CHECK_ERR(shmdt(p + 1), EINVAL);
    CHECK_ERR(shmdt((void *)0x10000), EINVAL);
    CHECK_ERR(shmget(IPC_PRIVATE, 0, 0600), EINVAL);
    CHECK(shmctl(id, IPC_RMID, NULL) == 0);
}
CASE(shm_counts_forked_attachments) {
    int id = CHECK_OK(shmget(IPC_PRIVATE, 4096, 0600)), p[2];
    CHECK(pipe(p) == 0 && shmat(id, NULL, 0) != (void *)-1);
    pid_t c = SPAWN(char x; close(p[1]); read(p[0], &x, 1));
    struct shmid_ds d;
    CHECK(shmctl(id, IPC_STAT, &d) == 0);
    CHECK_EQ(d.shm_nattch, 2);
    close(p[1]);
    join(c);
    EVENTUALLY(shmctl(id, IPC_STAT, &d) == 0 && d.shm_nattch == 1);
    shmctl(id, IPC_RMID, NULL);
}
CASE(shm_read_only_attachment) {
    int id = CHECK_OK(shmget(IPC_PRIVATE, 4096, 0600));
    char *p = shmat(id, NULL, SHM_RDONLY);
    CHECK_EQ(join(SPAWN(*p = 1)), 128 + SIGSEGV);
    CHECK_ERR(mprotect(p, 4096, PROT_READ | PROT_WRITE), EACCES);
    shmctl(id, IPC_RMID, NULL);
}
static char name[40];
static mqd_t mq(int flags, long max, long size) {
    snprintf(name, sizeof name, "/conf%d", getpid());
    struct mq_attr a = {.mq_maxmsg = max, .mq_msgsize = size};
    mqd_t q = mq_open(name, O_CREAT | O_RDWR | flags, 0600, &a);
    CHECK(q >= 0);
    mq_unlink(name);
    return q;
}
CASE(mq_order_within_priorities) {
    mqd_t q = mq(0, 8, 16);
    const char *in[] = {"a1", "b9", "c1", "d9"}, *want[] = {"b9", "d9", "a1", "c1"};
    for (int i = 0; i < 4; i++) CHECK(mq_send(q, in[i], 2, in[i][1] - '0') == 0);
    char b[16];
    unsigned prio;
    for (int i = 0; i < 4; i++) CHECK(mq_receive(q, b, 16, &prio) == 2 && !memcmp(b, want[i], 2) && prio == (unsigned)want[i][1] - '0');
}
CASE(mq_size_and_priority_errors) {
    mqd_t q = mq(O_NONBLOCK, 2, 8);
    char b[16];
    CHECK_ERR(mq_send(q, b, 9, 0), EMSGSIZE);
    CHECK_ERR(mq_receive(q, b, 7, NULL), EMSGSIZE);
    CHECK_ERR(mq_send(q, b, 1, 32768), EINVAL);
    CHECK_ERR(mq_receive(q, b, 8, NULL), EAGAIN);
    CHECK(mq_send(q, b, 0, 32767) == 0 && mq_send(q, b, 8, 0) == 0);
    CHECK_ERR(mq_send(q, b, 1, 0), EAGAIN);
    CHECK_EQ(mq_receive(q, b, 8, NULL), 0);
}
CASE(mq_names) {
    struct mq_attr a = {.mq_maxmsg = 1, .mq_msgsize = 1};
    CHECK_ERR(syscall(SYS_mq_open, "a/b", O_CREAT | O_RDWR, 0600, &a), EACCES);
    CHECK_ERR(syscall(SYS_mq_open, "", O_CREAT | O_RDWR, 0600, &a), ENOENT);
    CHECK_ERR(mq_open("/conf-missing", O_RDWR), ENOENT);
    CHECK_ERR(mq_unlink("/conf-missing"), ENOENT);
    a.mq_maxmsg = 0;
    CHECK_ERR(mq_open("/conf-zero", O_CREAT | O_RDWR, 0600, &a), EINVAL);
    snprintf(name, sizeof name, "/conf%d", getpid());
    a.mq_maxmsg = 1;
    mqd_t q = mq_open(name, O_CREAT | O_EXCL | O_RDONLY, 0600, &a);
    CHECK(q >= 0);
    CHECK_ERR(mq_open(name, O_CREAT | O_EXCL | O_RDWR, 0600, &a), EEXIST);
    char b[4];
    CHECK_ERR(mq_send(q, b, 1, 0), EBADF);
    CHECK_EQ(join(SPAWN(t_drop_root(); _exit(mq_open(name, O_RDONLY) == -1 && errno == EACCES ? 3 : 4))), 3);
    CHECK(mq_unlink(name) == 0);
}
CASE(mq_timed_forms) {
    mqd_t q = mq(0, 1, 8);
    char b[8];
    struct timespec t, bad = {0, -1};
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_sec -= 1;
    CHECK_ERR(mq_timedreceive(q, b, 8, NULL, &t), ETIMEDOUT);
    CHECK_ERR(mq_timedreceive(q, b, 8, NULL, &bad), EINVAL);
    CHECK(mq_send(q, "x", 1, 0) == 0);
    CHECK_ERR(mq_timedsend(q, "y", 1, 0, &t), ETIMEDOUT);
    CHECK_EQ(mq_timedreceive(q, b, 8, NULL, &t), 1);  // there is one: the time does not matter
}
static volatile int notified, notified_value, notified_code;
static void on_mq(int s, siginfo_t *si, void *u) { (void)s, (void)u, notified++, notified_value = si->si_value.sival_int, notified_code = si->si_code; }
CASE(mq_notify_once_and_only_when_empty) {
    mqd_t q = mq(0, 4, 8);
    struct sigevent e = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1, .sigev_value.sival_int = 77};
    on_signal(SIGUSR1, on_mq, 0);
    CHECK(mq_notify(q, &e) == 0);
    CHECK_ERR(mq_notify(q, &e), EBUSY);
    CHECK(mq_send(q, "x", 1, 0) == 0);
    EVENTUALLY(notified == 1);
    CHECK(notified_value == 77 && notified_code == SI_MESGQ);
    CHECK(mq_notify(q, &e) == 0 && mq_send(q, "y", 1, 0) == 0);
    msleep(30);
    CHECK_EQ(notified, 1);  // it was not empty
    CHECK(mq_notify(q, NULL) == 0);
    e.sigev_notify = 99;
    CHECK_ERR(mq_notify(q, &e), EINVAL);
}
CASE(mq_flags_by_setattr) {
    mqd_t q = mq(0, 1, 8);
    struct mq_attr a = {.mq_flags = O_NONBLOCK, .mq_maxmsg = 99}, old;
    CHECK(mq_setattr(q, &a, &old) == 0 && old.mq_flags == 0 && old.mq_maxmsg == 1);
    char b[8];
    CHECK_ERR(mq_receive(q, b, 8, NULL), EAGAIN);
    CHECK(mq_getattr(q, &a) == 0 && a.mq_flags == O_NONBLOCK && a.mq_maxmsg == 1 && a.mq_msgsize == 8 && a.mq_curmsgs == 0);
    a.mq_flags = 1;
    CHECK_ERR(mq_setattr(q, &a, NULL), EINVAL);
    struct pollfd p = {q, POLLIN | POLLOUT, 0};
    CHECK(poll(&p, 1, 0) == 1 && p.revents == POLLOUT);
}
