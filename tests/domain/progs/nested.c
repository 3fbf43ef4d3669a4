// Random calls of namespaces and mounts by nested roots: nested SECONDS SEED. Whatever they do, the program goes on.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { OPEN_TREE = 428, MOVE_MOUNT, FSOPEN, FSCONFIG, FSMOUNT, PIDFD_OPEN = 434, CLONE3, MOUNT_SETATTR = 442, STATMOUNT = 457, LISTMOUNT };
#define NEWTIME 0x80
#define ANY(list) (list[any() % (sizeof list / sizeof *list)])

static const char *PATHS[] = {"/", "/tmp", "/tmp/a", "/tmp/b", "/tmp/a/x", "/tmp/b/y", "/proc", "/dev", "/sys", "/tmp/f",
    "/proc/self", "/mnt", ".", "..", "/dev/pts", "", "/tmp/a/x/z"};
static const char *TYPES[] = {"tmpfs", "proc", "sysfs", "devpts", "mqueue", "cgroup2", "overlay", "ext4", "ramfs", "erofs"};
static const char *OPTIONS[] = {NULL, "", "size=1m", "mode=755", "nr_inodes=10", "hidepid=2", "subset=pid", "newinstance",
    "uid=5", "lowerdir=/tmp/a", "garbage", "size=99999999999g", "a=b,c=d,,,"};
static const unsigned long FLAGS[] = {0, MS_BIND, MS_BIND | MS_REC, MS_MOVE, MS_SHARED, MS_PRIVATE, MS_SLAVE, MS_UNBINDABLE,
    MS_REC | MS_SHARED, MS_REC | MS_SLAVE, MS_REC | MS_PRIVATE, MS_REMOUNT, MS_REMOUNT | MS_BIND | MS_RDONLY, MS_RDONLY};
static const int KINDS[] = {CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWCGROUP,
    CLONE_NEWNET, NEWTIME, CLONE_FS, CLONE_FILES, CLONE_SYSVSEM};
static const char *NAMES[] = {"user", "uts", "ipc", "pid", "pid_for_children", "mnt", "net", "cgroup", "time"};

static unsigned state;

static unsigned any(void) {
    state = state * 1103515245 + 12345;
    return state >> 8;
}

static int some_kinds(void) { return ANY(KINDS) | (any() % 2 ? ANY(KINDS) : 0); }

static void put(const char *path, const char *text) {
    int fd = open(path, O_WRONLY);
    if (fd < 0) return;
    if (write(fd, text, strlen(text)) < 0) errno = 0;
    close(fd);
}

static void one(void);

static void child(pid_t pid) {
    if (pid == 0) {
        for (unsigned n = any() % 30; n; n--) one();
        _exit(0);
    }
    if (pid > 0 && any() % 3) waitpid(pid, NULL, 0);
}

static void make(void) {
    int numbers[3] = {any() % 2 ? 1 : any() % 500, any() % 500, 1};
    unsigned long a[11] = {some_kinds(), 0, 0, 0, SIGCHLD, 0, 0, 0, 0, 0, 0};
    if (any() % 3 == 0) a[8] = (unsigned long)numbers, a[9] = 1 + any() % 3;
    child(any() % 2 ? fork() : syscall(CLONE3, a, sizeof a));
}

static void enter(void) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/ns/%s", any() % 3 ? getpid() : (int)(any() % 40), ANY(NAMES));
    int fd = any() % 3 ? open(path, O_RDONLY) : syscall(PIDFD_OPEN, any() % 60, 0);
    if (fd < 0) return;
    setns(fd, any() % 2 ? 0 : some_kinds());
    ioctl(fd, 0xb701 + any() % 12, path);
    close(fd);
}

static void map(void) {
    char line[64];
    snprintf(line, sizeof line, "%u %u %u\n", any() % 3, any() % 2 ? 0 : any() % 3000, any() % 3 ? 1 : any());
    put("/proc/self/setgroups", any() % 2 ? "deny" : "allow");
    put(any() % 2 ? "/proc/self/uid_map" : "/proc/self/gid_map", line);
}

static void tree(void) {
    int fd = syscall(OPEN_TREE, AT_FDCWD, ANY(PATHS), any() % 2 ? 0x8001 : any());
    if (fd >= 0) syscall(MOVE_MOUNT, fd, "", AT_FDCWD, ANY(PATHS), 4 | (any() % 2 ? 0x100 : any() & 0x3ff));
}

static void context(void) {
    char log[200];
    int fd = syscall(FSOPEN, ANY(TYPES), any() % 2);
    for (unsigned n = any() % 4; n; n--)
        syscall(FSCONFIG, fd, any() % 9, any() % 2 ? "size" : "source", any() % 2 ? "1m" : "x", any() % 2);
    syscall(FSCONFIG, fd, 6, 0, 0, 0);
    int mount = syscall(FSMOUNT, fd, 1, any() % 2 ? 0 : any() & 0xff);
    if (mount >= 0) syscall(MOVE_MOUNT, mount, "", AT_FDCWD, ANY(PATHS), 4);
    if (read(fd, log, sizeof log) < 0) errno = 0;
}

static void attributes(void) {
    char out[4096];
    unsigned long a[4] = {any() & 0x3fffff, any() & 0x3fffff, any() % 2 ? 1 << 20 : any(), any() % 5};
    syscall(MOUNT_SETATTR, AT_FDCWD, ANY(PATHS), any() % 2 ? 0x8000 : 0, a, 32);
    unsigned long q[3] = {24, any() % 2 ? ~0ul : 0x80000000ul + any() % 100, any()};
    syscall(STATMOUNT, q, out, sizeof out, any() % 2);
    syscall(LISTMOUNT, q, out, 100, any() % 2);
}

static void look(void) {
    static const char *files[] = {"/proc/self/mountinfo", "/proc/self/mounts", "/proc/self/status"};
    char text[4096];
    int fd = open(ANY(files), O_RDONLY);
    while (fd >= 0 && read(fd, text, sizeof text) > 0) {}
}

static void names(void) {
    int r = symlink(ANY(PATHS), "/tmp/b/l") + link("/tmp/f", "/tmp/a/h") + rename(ANY(PATHS), ANY(PATHS));
    r += mkdir(ANY(PATHS), 0777) + rmdir(ANY(PATHS)) + chown(ANY(PATHS), any() % 3000, any() % 5);
    r += any() % 4 ? chdir(ANY(PATHS)) : chroot(ANY(PATHS));
    errno = r < 0 ? 0 : errno;
}

static void one(void) {
    switch (any() % 16) {
    case 0: case 1: unshare(some_kinds()); break;
    case 2: case 3: case 4: mount(ANY(PATHS), ANY(PATHS), ANY(TYPES), ANY(FLAGS), ANY(OPTIONS)); break;
    case 5: umount2(ANY(PATHS), any() % 2 ? MNT_DETACH : any() % 16); break;
    case 6: syscall(SYS_pivot_root, ANY(PATHS), ANY(PATHS)); break;
    case 7: enter(); break;
    case 8: make(); break;
    case 9: map(); break;
    case 10: tree(); break;
    case 11: context(); break;
    case 12: attributes(); break;
    case 13: look(); break;
    case 14: names(); break;
    case 15:
        kill(any() % 4 ? (int)(any() % 60) + 2 : 0, any() % 3 ? 0 : SIGTERM);
        if (setuid(any() % 3) < 0) errno = 0;
        break;
    }
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    mkdir("/tmp/a", 0777), mkdir("/tmp/b", 0777), mkdir("/tmp/a/x", 0777);
    close(open("/tmp/f", O_CREAT | O_RDWR, 0666));
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    time_t end = time(NULL) + atoi(argv[1]);
    int rounds = 0;
    for (unsigned seed = atoi(argv[2]); time(NULL) < end; seed++, rounds++) {
        pid_t pid = fork();
        if (pid == 0) {
            state = seed;
            alarm(3);
            // The mounts of the others are what is looked at in the end.
            if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL)) _exit(1);
            for (int i = 0; i < 200; i++) one();
            _exit(0);
        }
        if (pid < 0) usleep(10000);
        else waitpid(pid, NULL, 0);
        // What they have left is ended now and then.
        if (rounds % 20 == 0) kill(-1, SIGKILL);
        while (waitpid(-1, NULL, rounds % 20 ? WNOHANG : 0) > 0) {}
    }
    // The domain is as it was for who is in no namespace of theirs.
    mkdir("/last", 0700);
    if (rounds < 20 || mount("t", "/last", "tmpfs", 0, NULL) || umount("/last")) {
        fprintf(stderr, "%d rounds, errno %d\n", rounds, errno);
        return 1;
    }
    printf("nested ok, %d rounds\n", rounds);
    return 0;
}
