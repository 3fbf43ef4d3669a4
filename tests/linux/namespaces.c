// Namespaces in common: /proc/PID/ns, nsfs, unshare, setns; UTS, IPC and control group namespaces.
#include "ns.h"
#include <mqueue.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/statfs.h>
#include <sys/utsname.h>

static const struct { const char *name; int flag; bool children; } KINDS[] = {
    {"cgroup", CLONE_NEWCGROUP, false}, {"ipc", CLONE_NEWIPC, false}, {"mnt", CLONE_NEWNS, false}, {"net", CLONE_NEWNET, false},
    {"pid", CLONE_NEWPID, false}, {"pid_for_children", CLONE_NEWPID, true}, {"time", CLONE_NEWTIME, false},
    {"time_for_children", CLONE_NEWTIME, true}, {"user", CLONE_NEWUSER, false}, {"uts", CLONE_NEWUTS, false},
};
enum { COUNT = sizeof KINDS / sizeof *KINDS };

static const char *host(void) {
    static struct utsname u;
    CHECK_OK(uname(&u));
    return u.nodename;
}
static int open_of(pid_t p, const char *name) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/ns/%s", p, name);
    return CHECK_OK(open(path, O_RDONLY | O_CLOEXEC));
}
// A process that has made new namespaces and waits.
static pid_t other(int flags) {
    int ready[2];
    char byte;
    needs_root();
    CHECK_OK(pipe(ready));
    pid_t p = SPAWN(CHECK_OK(unshare(flags)); CHECK_EQ(write(ready[1], "", 1), 1); pause());
    CHECK_EQ(read(ready[0], &byte, 1), 1);
    return p;
}
static void end(pid_t p) {
    CHECK_OK(kill(p, SIGKILL));
    CHECK_EQ(join(p), 128 + SIGKILL);
}

CASE(links_say_kind_and_number) {
    for (int i = 0; i < COUNT; i++) {
        char kind[32];
        unsigned long n;
        CHECK_EQ(sscanf(ns_link(KINDS[i].name), "%31[a-z]:[%lu]", kind, &n), 2);
        CHECK(!strncmp(kind, KINDS[i].name, strlen(kind)) && n > 4000000000);
    }
}
CASE(the_directory_lists_them) {
    DIR *d = opendir("/proc/self/ns");
    CHECK(d);
    int n = 0;
    for (struct dirent *e; (e = readdir(d));) {
        if (*e->d_name == '.') continue;
        CHECK_EQ(e->d_type, DT_LNK);
        for (int i = 0; i < COUNT; i++) n += !strcmp(e->d_name, KINDS[i].name);
    }
    CHECK_EQ(n, COUNT);
}
CASE(the_directorys_mode) {
    struct stat st;
    CHECK_OK(stat("/proc/self/ns", &st));
    CHECK_EQ(st.st_mode, S_IFDIR | 0511);
    CHECK_OK(lstat("/proc/self/ns/uts", &st));
    CHECK_EQ(st.st_mode, S_IFLNK | 0777);
}
CASE(numbers_are_inodes) {
    for (int i = 0; i < COUNT; i++) {
        unsigned long n;
        CHECK_EQ(sscanf(strchr(ns_link(KINDS[i].name), '['), "[%lu]", &n), 1);
        CHECK_EQ(ns_ino(ns_fd(KINDS[i].name)), n);
    }
}
CASE(files_are_of_one_file_system) {
    struct stat a, b;
    CHECK_OK(fstat(ns_fd("uts"), &a));
    CHECK_OK(stat("/proc/self/ns/user", &b));
    CHECK_EQ(a.st_dev, b.st_dev);
    CHECK(a.st_ino != b.st_ino);
    CHECK_EQ(a.st_mode, S_IFREG | 0444);
    CHECK_EQ(a.st_size, 0);
}
CASE(statfs_knows_nsfs) {
    struct statfs s;
    CHECK_OK(fstatfs(ns_fd("uts"), &s));
    CHECK_EQ(s.f_type, 0x6e736673);
}
CASE(a_descriptor_reads_as_its_namespace) {
    char path[64], text[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", ns_fd("uts"));
    long n = CHECK_OK(readlink(path, text, 63));
    text[n] = 0;
    CHECK(!strcmp(text, ns_link("uts")));
}
CASE(a_descriptor_holds_no_bytes) {
    char byte;
    int fd = ns_fd("uts");
    CHECK_ERR(read(fd, &byte, 1), EINVAL);
    CHECK_ERR(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED ? -1 : 0, ENODEV);
}
CASE(no_such_kind) { CHECK_ERR(open("/proc/self/ns/nothing", O_RDONLY), ENOENT); }
CASE(links_of_a_stranger) {
    needs_root();
    pid_t p = SPAWN(pause());
    CHECK_EQ(join(SPAWN({
        char path[64];
        char text[64];
        CHECK_OK(setresuid(1000, 1000, 1000));
        snprintf(path, sizeof path, "/proc/%d/ns/uts", p);
        CHECK_ERR(readlink(path, text, 64), EACCES);
        CHECK_ERR(open(path, O_RDONLY), EACCES);
    })), 0);
    end(p);
}
CASE(threads_have_them_too) {
    char path[64], text[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/ns/uts", getpid());
    long n = CHECK_OK(readlink(path, text, 63));
    text[n] = 0;
    CHECK(!strcmp(text, ns_link("uts")));
}
CASE(kinds_by_ioctl) {
    for (int i = 0; i < COUNT; i++) CHECK_EQ(ioctl(ns_fd(KINDS[i].name), GET_NSTYPE), KINDS[i].flag);
}
CASE(owners_by_ioctl) {
    ino_t user = ns_ino(ns_fd("user"));
    CHECK_EQ(ns_ino(CHECK_OK(ioctl(ns_fd("uts"), GET_USERNS))), user);
    CHECK_EQ(ns_ino(CHECK_OK(ioctl(ns_fd("ipc"), GET_USERNS))), user);
}
CASE(descriptors_of_ioctl_are_closed_at_exec) {
    int fd = CHECK_OK(ioctl(ns_fd("uts"), GET_USERNS));
    CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
}
CASE(parents_only_of_those_with_parents) {
    CHECK_ERR(ioctl(ns_fd("uts"), GET_PARENT), EINVAL);
    CHECK_ERR(ioctl(ns_fd("ipc"), GET_PARENT), EINVAL);
    CHECK_ERR(ioctl(ns_fd("net"), GET_PARENT), EINVAL);
    CHECK_ERR(ioctl(ns_fd("user"), GET_PARENT), EPERM);
    CHECK_ERR(ioctl(ns_fd("pid"), GET_PARENT), EPERM);
}
CASE(owner_uid_only_of_user_namespaces) {
    uid_t u = 5;
    CHECK_ERR(ioctl(ns_fd("uts"), GET_OWNER_UID, &u), EINVAL);
    CHECK_OK(ioctl(ns_fd("user"), GET_OWNER_UID, &u));
    CHECK_EQ(u, 0);
    CHECK_ERR(ioctl(ns_fd("user"), GET_OWNER_UID, NULL), EFAULT);
}
CASE(unknown_ioctl) { CHECK_ERR(ioctl(ns_fd("uts"), 0xb7ff), ENOTTY); }
CASE(unshare_of_nothing) { CHECK_OK(unshare(0)); }
CASE(unshare_of_unknown_flags) {
    CHECK_ERR(unshare(1), EINVAL);
    CHECK_ERR(unshare(CLONE_VFORK), EINVAL);
    CHECK_ERR(unshare(CLONE_PARENT), EINVAL);
    CHECK_ERR(unshare(CLONE_SETTLS), EINVAL);
    CHECK_ERR(unshare(CLONE_NEWUTS | CLONE_PIDFD), EINVAL);
}
CASE(unshare_of_what_is_not_shared) {
    CHECK_OK(unshare(CLONE_THREAD));
    CHECK_OK(unshare(CLONE_SIGHAND));
    CHECK_OK(unshare(CLONE_VM));
    CHECK_OK(unshare(CLONE_SYSVSEM));
    CHECK_OK(unshare(CLONE_FS | CLONE_FILES));
}
CASE(unshare_of_what_threads_share) {
    second_thread();
    CHECK_ERR(unshare(CLONE_THREAD), EINVAL);
    CHECK_ERR(unshare(CLONE_SIGHAND), EINVAL);
    CHECK_ERR(unshare(CLONE_VM), EINVAL);
    CHECK_OK(unshare(CLONE_FS | CLONE_FILES));
}
CASE(unshare_needs_the_capability) {
    needs_root();
    CHECK_OK(setresuid(1000, 1000, 1000));
    CHECK_ERR(unshare(CLONE_NEWUTS), EPERM);
    CHECK_ERR(unshare(CLONE_NEWIPC), EPERM);
    CHECK_ERR(unshare(CLONE_NEWCGROUP), EPERM);
    CHECK_ERR(unshare(CLONE_NEWNET), EPERM);
    CHECK_ERR(raw_clone(CLONE_NEWUTS), EPERM);
}
CASE(an_unshare_that_fails_changes_nothing) {
    needs_root();
    const char *before = ns_link("uts");
    CHECK_OK(chdir("/"));
    CHECK_ERR(unshare(CLONE_NEWUTS | CLONE_PIDFD), EINVAL);
    CHECK(!strcmp(before, ns_link("uts")));
}
CASE(each_one_is_new) {
    needs_root();
    const char *a = ns_link("uts");
    CHECK_OK(unshare(CLONE_NEWUTS));
    const char *b = ns_link("uts");
    CHECK_OK(unshare(CLONE_NEWUTS));
    const char *c = ns_link("uts");
    CHECK(strcmp(a, b) && strcmp(b, c) && strcmp(a, c));
}
CASE(others_stay) {
    needs_root();
    const char *ipc = ns_link("ipc"), *user = ns_link("user");
    CHECK_OK(unshare(CLONE_NEWUTS));
    CHECK(!strcmp(ipc, ns_link("ipc")) && !strcmp(user, ns_link("user")));
}
CASE(several_at_once) {
    needs_root();
    const char *a = ns_link("ipc"), *b = ns_link("uts");
    CHECK_OK(unshare(CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP));
    CHECK(strcmp(a, ns_link("ipc")) && strcmp(b, ns_link("uts")));
}
CASE(a_thread_has_its_own) {
    needs_root();
    void *run(void *out) {
        CHECK_OK(unshare(CLONE_NEWUTS));
        CHECK_OK(sethostname("thread", 6));
        char path[64];
        snprintf(path, sizeof path, "/proc/self/task/%d/ns/uts", gettid());
        long n = readlink(path, out, 63);
        ((char *)out)[n] = 0;
        return NULL;
    }
    char theirs[64];
    pthread_t t;
    CHECK(pthread_create(&t, NULL, run, theirs) == 0);
    CHECK(pthread_join(t, NULL) == 0);
    CHECK(strcmp(theirs, ns_link("uts")));
    CHECK(strcmp(host(), "thread"));
}
CASE(names_are_copied_then_apart) {
    needs_root();
    CHECK_OK(unshare(CLONE_NEWUTS));
    CHECK_OK(sethostname("outer", 5));
    CHECK_OK(setdomainname("dom", 3));
    CHECK_EQ(join(SPAWN({
        CHECK_OK(unshare(CLONE_NEWUTS));
        CHECK(!strcmp(host(), "outer"));
        CHECK_OK(sethostname("inner", 5));
        CHECK(!strcmp(host(), "inner"));
        CHECK(!strcmp(get("/proc/sys/kernel/hostname"), "inner\n"));
        CHECK(!strcmp(get("/proc/sys/kernel/domainname"), "dom\n"));
    })), 0);
    CHECK(!strcmp(host(), "outer"));
}
CASE(names_of_64_bytes_fit) {
    needs_root();
    char name[66];
    memset(name, 'x', sizeof name);
    CHECK_OK(unshare(CLONE_NEWUTS));
    CHECK_OK(sethostname(name, 64));
    CHECK_EQ(strlen(host()), 64);
    CHECK_ERR(sethostname(name, 65), EINVAL);
    CHECK_ERR(sethostname(name, -1), EINVAL);
    CHECK_ERR(sethostname(NULL, 3), EFAULT);
    CHECK_OK(sethostname("", 0));
    CHECK_EQ(strlen(host()), 0);
}
CASE(clone_makes_one_for_the_child) {
    needs_root();
    const char *mine = ns_link("uts");
    long p = raw_clone(CLONE_NEWUTS);
    CHECK(p >= 0);
    if (p == 0) _exit(strcmp(mine, ns_link("uts")) ? 0 : 1);
    CHECK_EQ(join(p), 0);
    CHECK(!strcmp(mine, ns_link("uts")));
}
CASE(clone3_makes_one_for_the_child) {
    needs_root();
    const char *mine = ns_link("ipc");
    long p = clone3_tids(CLONE_NEWIPC | CLONE_NEWUTS, NULL, 0);
    CHECK(p >= 0);
    if (p == 0) _exit(strcmp(mine, ns_link("ipc")) ? 0 : 1);
    CHECK_EQ(join(p), 0);
}
CASE(clone_of_contradictions) {
    CHECK_ERR(raw_clone(CLONE_NEWNS | CLONE_FS), EINVAL);
    CHECK_ERR(raw_clone(CLONE_NEWIPC | CLONE_SYSVSEM), EINVAL);
    CHECK_ERR(raw_clone(CLONE_NEWUSER | CLONE_FS), EINVAL);
}
CASE(setns_of_no_descriptor) {
    CHECK_ERR(setns(-1, 0), EBADF);
    CHECK_ERR(setns(1000, CLONE_NEWUTS), EBADF);
}
CASE(setns_of_another_file) {
    int fd = CHECK_OK(open("/", O_RDONLY));
    CHECK_ERR(setns(fd, 0), EINVAL);
    CHECK_ERR(setns(fd, CLONE_NEWUTS), EINVAL);
    CHECK_ERR(setns(CHECK_OK(open("/proc/self/ns/uts", O_PATH)), 0), EBADF);
}
CASE(setns_of_another_kind) {
    CHECK_ERR(setns(ns_fd("uts"), CLONE_NEWIPC), EINVAL);
    CHECK_ERR(setns(ns_fd("uts"), CLONE_NEWUTS | CLONE_NEWIPC), EINVAL);
    CHECK_ERR(setns(ns_fd("uts"), -1), EINVAL);
}
CASE(setns_needs_the_capability) {
    needs_root();
    int uts = ns_fd("uts"), ipc = ns_fd("ipc");
    CHECK_OK(setresuid(1000, 1000, 1000));
    CHECK_ERR(setns(uts, 0), EPERM);
    CHECK_ERR(setns(ipc, CLONE_NEWIPC), EPERM);
}
CASE(setns_there_and_back) {
    needs_root();
    int mine = ns_fd("uts");
    pid_t p = other(CLONE_NEWUTS);
    int theirs = open_of(p, "uts");
    CHECK_OK(setns(theirs, CLONE_NEWUTS));
    CHECK_EQ(ns_ino(ns_fd("uts")), ns_ino(theirs));
    CHECK_OK(setns(mine, 0));
    CHECK_EQ(ns_ino(ns_fd("uts")), ns_ino(mine));
    end(p);
}
CASE(an_open_file_keeps_it) {
    needs_root();
    pid_t p = other(CLONE_NEWUTS);
    int theirs = open_of(p, "uts");
    end(p);
    CHECK_OK(setns(theirs, CLONE_NEWUTS));
    CHECK_OK(sethostname("kept", 4));
    CHECK(!strcmp(host(), "kept"));
}
CASE(setns_to_a_user_namespaces_own) {
    needs_root();
    int mine = ns_fd("uts");
    if (unshare(CLONE_NEWUSER)) SKIP("no user namespaces here");
    CHECK_ERR(setns(mine, CLONE_NEWUTS), EPERM);
}
CASE(setns_of_a_process) {
    needs_root();
    pid_t p = other(CLONE_NEWUTS | CLONE_NEWIPC);
    int fd = CHECK_OK(syscall(SYS_pidfd_open, p, 0));
    ino_t uts = ns_ino(open_of(p, "uts")), ipc = ns_ino(open_of(p, "ipc"));
    CHECK_OK(setns(fd, CLONE_NEWUTS | CLONE_NEWIPC));
    CHECK_EQ(ns_ino(ns_fd("uts")), uts);
    CHECK_EQ(ns_ino(ns_fd("ipc")), ipc);
    end(p);
}
CASE(setns_of_a_process_wants_kinds) {
    needs_root();
    int fd = CHECK_OK(syscall(SYS_pidfd_open, getpid(), 0));
    CHECK_ERR(setns(fd, 0), EINVAL);
    CHECK_ERR(setns(fd, CLONE_FS), EINVAL);
    CHECK_ERR(setns(fd, CLONE_NEWUTS | 1), EINVAL);
    CHECK_OK(setns(fd, CLONE_NEWUTS));
}
CASE(setns_of_an_ended_process) {
    needs_root();
    pid_t p = SPAWN(pause());
    int fd = CHECK_OK(syscall(SYS_pidfd_open, p, 0));
    end(p);
    CHECK_ERR(setns(fd, CLONE_NEWUTS), ESRCH);
}
CASE(setns_of_a_strangers_process) {
    needs_root();
    int fd = CHECK_OK(syscall(SYS_pidfd_open, getppid(), 0));
    CHECK_OK(setresuid(1000, 1000, 1000));
    CHECK_ERR(setns(fd, CLONE_NEWUTS), EPERM);
}
CASE(setns_of_a_process_is_all_or_nothing) {
    needs_root();
    pid_t p = other(CLONE_NEWUTS | CLONE_NEWPID);
    int fd = CHECK_OK(syscall(SYS_pidfd_open, p, 0));
    ino_t mine = ns_ino(ns_fd("uts"));
    // Its user namespace is the caller's own already.
    CHECK_ERR(setns(fd, CLONE_NEWUTS | CLONE_NEWUSER), EINVAL);
    CHECK_EQ(ns_ino(ns_fd("uts")), mine);
    end(p);
}
CASE(namespaces_of_a_pidfd) {
    needs_root();
    pid_t p = other(CLONE_NEWUTS);
    int fd = CHECK_OK(syscall(SYS_pidfd_open, p, 0));
    long got = ioctl(fd, 0xff0a, 0);
    if (got < 0 && (errno == ENOTTY || errno == EINVAL)) SKIP("an older kernel");
    CHECK_EQ(ns_ino(got), ns_ino(open_of(p, "uts")));
    CHECK_EQ(ns_ino(CHECK_OK(ioctl(fd, 0xff09, 0))), ns_ino(ns_fd("user")));
    CHECK_ERR(ioctl(fd, 0xff0a, 1), EINVAL);
    end(p);
    CHECK_ERR(ioctl(fd, 0xff0a, 0), ESRCH);
}
CASE(numbers_between_pid_namespaces) {
    needs_root();
    long p = raw_clone(CLONE_NEWPID);
    CHECK(p >= 0);
    if (p == 0) pause(), _exit(0);
    int fd = open_of(p, "pid");
    long n = ioctl(fd, 0x8004b706, 1);
    if (n < 0 && errno == ENOTTY) SKIP("an older kernel");
    CHECK_EQ(n, p);
    CHECK_EQ(ioctl(fd, 0x8004b707, 1), p);
    CHECK_EQ(ioctl(fd, 0x8004b708, p), 1);
    CHECK_EQ(ioctl(fd, 0x8004b709, p), 1);
    CHECK_ERR(ioctl(fd, 0x8004b706, 99), ESRCH);
    CHECK_ERR(ioctl(fd, 0x8004b708, getpid()), ESRCH);
    CHECK_ERR(ioctl(ns_fd("uts"), 0x8004b706, 1), EINVAL);
    end(p);
}
CASE(queues_are_apart) {
    needs_root();
    key_t key = 0x6e730001 + getpid();
    int id = CHECK_OK(msgget(key, IPC_CREAT | 0600));
    CHECK_EQ(join(SPAWN({
        CHECK_OK(unshare(CLONE_NEWIPC));
        CHECK_ERR(msgget(key, 0), ENOENT);
        struct msqid_ds ds;
        CHECK_ERR(msgctl(id, IPC_STAT, &ds), EINVAL);
        CHECK_OK(msgget(key, IPC_CREAT | IPC_EXCL | 0600));
    })), 0);
    CHECK_OK(msgctl(id, IPC_RMID, NULL));
}
CASE(semaphores_are_apart) {
    needs_root();
    key_t key = 0x6e740001 + getpid();
    int id = CHECK_OK(semget(key, 1, IPC_CREAT | 0600));
    CHECK_EQ(join(SPAWN({
        CHECK_OK(unshare(CLONE_NEWIPC));
        CHECK_ERR(semget(key, 1, 0), ENOENT);
        CHECK_ERR(semctl(id, 0, GETVAL), EINVAL);
    })), 0);
    CHECK_OK(semctl(id, 0, IPC_RMID));
}
CASE(segments_are_apart_but_stay_mapped) {
    needs_root();
    key_t key = 0x6e750001 + getpid();
    int id = CHECK_OK(shmget(key, 4096, IPC_CREAT | 0600));
    int *at = shmat(id, NULL, 0);
    CHECK(at != (void *)-1);
    CHECK_EQ(join(SPAWN({
        CHECK_OK(unshare(CLONE_NEWIPC));
        CHECK_ERR(shmget(key, 4096, 0), ENOENT);
        CHECK_ERR(shmat(id, NULL, 0) == (void *)-1 ? -1 : 0, EINVAL);
        *at = 77;
    })), 0);
    CHECK_EQ(*at, 77);
    CHECK_OK(shmctl(id, IPC_RMID, NULL));
}
CASE(named_queues_are_apart) {
    needs_root();
    char name[64];
    snprintf(name, sizeof name, "/ns-%d", getpid());
    mqd_t q = mq_open(name, O_CREAT | O_RDWR, 0600, NULL);
    if (q < 0 && errno == ENOSYS) SKIP("no message queues here");
    CHECK(q >= 0);
    CHECK_EQ(join(SPAWN({
        CHECK_OK(unshare(CLONE_NEWIPC));
        CHECK_ERR(mq_open(name, O_RDWR), ENOENT);
        CHECK_ERR(mq_unlink(name), ENOENT);
        CHECK_OK(mq_open(name, O_CREAT | O_EXCL | O_RDWR, 0600, NULL));
        // A descriptor from before still works.
        CHECK_OK(mq_send(q, "x", 1, 0));
    })), 0);
    CHECK_OK(mq_unlink(name));
}
CASE(leaving_undoes_semaphores) {
    needs_root();
    int id = CHECK_OK(semget(IPC_PRIVATE, 1, 0600));
    CHECK_OK(semctl(id, 0, SETVAL, 5));
    int step[2], back[2];
    char byte;
    CHECK_OK(pipe(step));
    CHECK_OK(pipe(back));
    pid_t p = SPAWN({
        struct sembuf b = {0, -3, SEM_UNDO};
        CHECK_OK(semop(id, &b, 1));
        CHECK_OK(unshare(CLONE_NEWIPC));
        CHECK_EQ(write(step[1], "", 1), 1);
        CHECK_EQ(read(back[0], &byte, 1), 1);
    });
    CHECK_EQ(read(step[0], &byte, 1), 1);
    CHECK_EQ(semctl(id, 0, GETVAL), 5);
    CHECK_EQ(write(back[1], "", 1), 1);
    CHECK_EQ(join(p), 0);
    CHECK_OK(semctl(id, 0, IPC_RMID));
}
CASE(objects_go_with_the_namespace) {
    needs_root();
    for (int i = 0; i < 50; i++)
        CHECK_EQ(join(SPAWN(CHECK_OK(unshare(CLONE_NEWIPC)); CHECK_OK(shmget(0x1234, 1 << 20, IPC_CREAT | 0600)))), 0);
}
CASE(owner_of_the_ipc_namespace_has_rights) {
    needs_root();
    if (unshare(CLONE_NEWUSER | CLONE_NEWIPC)) SKIP("no user namespaces here");
    int id = CHECK_OK(msgget(IPC_PRIVATE, 0));
    CHECK_OK(msgctl(id, IPC_STAT, &(struct msqid_ds){0}));
}
CASE(control_groups_show_a_path) {
    needs_root();
    CHECK_OK(unshare(CLONE_NEWCGROUP));
    CHECK(strstr(get("/proc/self/cgroup"), ":/\n"));
}
CASE(many_come_and_go) {
    needs_root();
    for (int i = 0; i < 300; i++) CHECK_OK(unshare(CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWCGROUP));
}
