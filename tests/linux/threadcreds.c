// Identities of threads: what the bare system calls change is the calling thread's alone (credentials(7)).
#define T_HELPER
#include "t.h"

#include <linux/capability.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>

#define NEED_ROOT() do { if (geteuid() != 0) SKIP("needs root"); } while (0)

// A second thread that does what it is told, one step at a time.
static void (*step)(void);
static pthread_barrier_t go, done;
static pid_t other_tid;

static void *other(void *arg) {
    (void)arg;
    other_tid = syscall(SYS_gettid);
    for (;;) {
        pthread_barrier_wait(&go);
        step();
        pthread_barrier_wait(&done);
    }
    return NULL;
}

static void nothing(void) {}

static void in_other(void (*f)(void)) {
    step = f;
    pthread_barrier_wait(&go);
    pthread_barrier_wait(&done);
}

static void start(void) {
    pthread_t t;
    pthread_barrier_init(&go, NULL, 2);
    pthread_barrier_init(&done, NULL, 2);
    CHECK(pthread_create(&t, NULL, other, NULL) == 0);
    in_other(nothing);
}

// The line of /proc/self/task/TID/status that starts with `field`.
static const char *status(pid_t tid, const char *field) {
    char path[64];
    static char line[256];
    snprintf(path, sizeof path, "/proc/self/task/%d/status", tid);
    char *p = strstr(slurp(path), field);
    CHECK(p != NULL);
    snprintf(line, sizeof line, "%.*s", (int)strcspn(p, "\n"), p);
    return line;
}

static void become_1000(void) { CHECK(syscall(SYS_setresuid, 1000, 1000, 1000) == 0); }
static void is_1000(void) { CHECK(syscall(SYS_getuid) == 1000 && syscall(SYS_geteuid) == 1000); }

CASE(setuid_of_a_thread) {
    NEED_ROOT();
    start();
    in_other(become_1000);
    CHECK_EQ(syscall(SYS_getuid), 0);
    CHECK_EQ(syscall(SYS_geteuid), 0);
    in_other(is_1000);
    CHECK(!strcmp(status(other_tid, "Uid:"), "Uid:\t1000\t1000\t1000\t1000"));
    CHECK(!strcmp(status(getpid(), "Uid:"), "Uid:\t0\t0\t0\t0"));
    CHECK(strstr(status(other_tid, "CapEff:"), "0000000000000000"));
    CHECK(!strstr(status(getpid(), "CapEff:"), "0000000000000000"));
}

static void open_secret_fails(void) {
    CHECK_ERR(open("secret", O_RDONLY), EACCES);
    struct stat st;
    CHECK_ERR(stat("closed/x", &st), EACCES);
}
static void make_mine(void) { CHECK(close(open("mine", O_CREAT | O_RDWR, 0600)) == 0); }

CASE(files_ask_the_thread) {
    NEED_ROOT();
    scratch();
    close(mkfile("secret", "x"));
    CHECK(chmod("secret", 0600) == 0);
    CHECK(mkdir("closed", 0700) == 0);
    close(mkfile("closed/x", "x"));
    start();
    in_other(become_1000);
    in_other(open_secret_fails);
    in_other(make_mine);
    struct stat st;
    CHECK(stat("mine", &st) == 0 && st.st_uid == 1000);
    CHECK(stat("closed/x", &st) == 0);
    CHECK(close(open("secret", O_RDONLY)) == 0);
}

static void fs_1000(void) {
    CHECK_EQ(syscall(SYS_setfsuid, 1000), 0);
    CHECK_EQ(syscall(SYS_setfsuid, -1), 1000);
}

CASE(setfsuid_of_a_thread) {
    NEED_ROOT();
    scratch();
    close(mkfile("secret", "x"));
    CHECK(chmod("secret", 0600) == 0);
    CHECK(mkdir("closed", 0700) == 0);
    start();
    in_other(fs_1000);
    in_other(open_secret_fails);
    CHECK_EQ(setfsuid(-1), 0);
    CHECK(!strcmp(status(other_tid, "Uid:"), "Uid:\t0\t0\t0\t1000"));
}

static void groups_7(void) {
    gid_t g[] = {7, 8};
    CHECK(syscall(SYS_setgroups, 2, g) == 0);
    CHECK(syscall(SYS_setresgid, 5, 5, 5) == 0);
}

CASE(groups_of_a_thread) {
    NEED_ROOT();
    start();
    CHECK(syscall(SYS_setgroups, 0, NULL) == 0);
    in_other(groups_7);
    CHECK_EQ(getgroups(0, NULL), 0);
    CHECK_EQ(syscall(SYS_getgid), 0);
    CHECK(!strncmp(status(other_tid, "Groups:"), "Groups:\t7 8", 11));
    CHECK(!strcmp(status(other_tid, "Gid:"), "Gid:\t5\t5\t5\t5"));
    CHECK(!strcmp(status(getpid(), "Gid:"), "Gid:\t0\t0\t0\t0"));
}

static void no_caps(void) {
    struct __user_cap_header_struct h = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct d[2] = {{0}};
    CHECK(syscall(SYS_capset, &h, d) == 0);
    CHECK_ERR(syscall(SYS_setgroups, 0, NULL), EPERM);
}

CASE(capset_of_a_thread) {
    NEED_ROOT();
    start();
    in_other(no_caps);
    CHECK(syscall(SYS_setgroups, 0, NULL) == 0);
    // capget of the other thread by its number.
    struct __user_cap_header_struct h = {_LINUX_CAPABILITY_VERSION_3, other_tid};
    struct __user_cap_data_struct d[2];
    CHECK(syscall(SYS_capget, &h, d) == 0);
    CHECK(d[0].permitted == 0 && d[0].effective == 0);
    h.pid = getpid();
    CHECK(syscall(SYS_capget, &h, d) == 0);
    CHECK(d[0].effective != 0);
    // capset of another thread is refused.
    h.pid = other_tid;
    CHECK_ERR(syscall(SYS_capset, &h, d), EPERM);
}

static void keep_and_drop(void) {
    CHECK(prctl(PR_SET_KEEPCAPS, 1) == 0);
    CHECK(prctl(PR_CAPBSET_DROP, 30) == 0);
}

CASE(securebits_and_bounding_set_of_a_thread) {
    NEED_ROOT();
    start();
    in_other(keep_and_drop);
    CHECK_EQ(prctl(PR_GET_KEEPCAPS), 0);
    CHECK_EQ(prctl(PR_CAPBSET_READ, 30), 1);
}

static pid_t child;
static void make_child(void) {
    child = fork();
    if (child == 0) _exit(syscall(SYS_getuid) == 1000 && syscall(SYS_geteuid) == 1000 ? 0 : 1);
    CHECK(child > 0);
}
static void make_thread(void) {
    pthread_t t;
    void *is(void *arg) { is_1000(); return arg; }
    CHECK(pthread_create(&t, NULL, is, NULL) == 0);
    CHECK(pthread_join(t, NULL) == 0);
}

CASE(children_take_it_from_the_thread) {
    NEED_ROOT();
    start();
    in_other(become_1000);
    in_other(make_child);
    CHECK_EQ(join(child), 0);
    in_other(make_thread);
}

CASE(libraries_change_all_threads) {
    NEED_ROOT();
    start();
    CHECK(setresuid(1000, 1000, 1000) == 0);
    in_other(is_1000);
    CHECK(!strcmp(status(other_tid, "Uid:"), "Uid:\t1000\t1000\t1000\t1000"));
}

static pid_t victim;
static void kill_fails(void) { CHECK_ERR(kill(victim, 0), EPERM); }

CASE(signals_ask_the_thread) {
    NEED_ROOT();
    victim = SPAWN(pause());
    start();
    in_other(become_1000);
    in_other(kill_fails);
    CHECK(kill(victim, SIGKILL) == 0);
    CHECK_EQ(join(victim), 128 + SIGKILL);
}

static void exec_id(void) {
    execl(t_self, t_self, "@ids", NULL);
    FAIL("exec");
}

CASE(exec_takes_the_calling_threads) {
    NEED_ROOT();
    pid_t p = fork();
    CHECK(p >= 0);
    if (p == 0) {
        start();
        in_other(become_1000);
        in_other(exec_id);
    }
    CHECK_EQ(join(p), 0);
}


int t_helper(int argc, char **argv) {
    (void)argc, (void)argv;
    return getuid() == 1000 && geteuid() == 1000 && getpid() == syscall(SYS_gettid) ? 0 : 3;
}
