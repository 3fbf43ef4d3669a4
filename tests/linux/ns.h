// What the suites of namespaces share: entering user namespaces, and writing small files.
#pragma once
#include "t.h"
#include <linux/capability.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif
enum { GET_USERNS = 0xb701, GET_PARENT = 0xb702, GET_NSTYPE = 0xb703, GET_OWNER_UID = 0xb704 };

static inline void needs_root(void) {
    if (geteuid()) SKIP("needs root");
}
// Writes a text with one call; -1 and errno as write, or as open.
static inline long put(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    long n = write(fd, text, strlen(text));
    int e = errno;
    close(fd);
    errno = e;
    return n < 0 ? -1 : 0;
}
// The content of a small file.
static inline const char *get(const char *path) {
    static char text[8192];
    int fd = CHECK_OK(open(path, O_RDONLY | O_CLOEXEC));
    long n = CHECK_OK(read(fd, text, sizeof text - 1));
    close(fd);
    text[n] = 0;
    return text;
}
// What a link of /proc/self/ns says.
static inline const char *ns_link(const char *name) {
    static char text[4][64];
    static int at;
    char path[64], *out = text[at++ % 4];
    snprintf(path, sizeof path, "/proc/self/ns/%s", name);
    long n = CHECK_OK(readlink(path, out, 63));
    out[n] = 0;
    return out;
}
static inline int ns_fd(const char *name) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/ns/%s", name);
    return CHECK_OK(open(path, O_RDONLY | O_CLOEXEC));
}
static inline ino_t ns_ino(int fd) {
    struct stat st;
    CHECK_OK(fstat(fd, &st));
    return st.st_ino;
}
// A new user namespace, whose maps somebody outside has written; none for an empty text.
static inline void enter_user(const char *uids, const char *gids) {
    int go[2];
    char byte = 0, path[64];
    pid_t me = getpid();
    CHECK_OK(pipe2(go, O_CLOEXEC));
    pid_t helper = SPAWN({
        CHECK_EQ(read(go[0], &byte, 1), 1);
        snprintf(path, sizeof path, "/proc/%d/uid_map", me);
        if (*uids) CHECK_OK(put(path, uids));
        snprintf(path, sizeof path, "/proc/%d/gid_map", me);
        if (*gids) CHECK_OK(put(path, gids));
    });
    if (unshare(CLONE_NEWUSER)) {
        if (errno == EPERM || errno == ENOSPC) SKIP("no user namespaces here");
        CHECK(!"unshare(CLONE_NEWUSER)");
    }
    CHECK_EQ(write(go[1], &byte, 1), 1);
    CHECK_EQ(join(helper), 0);
    close(go[0]);
    close(go[1]);
}
static inline long raw_clone(unsigned long flags) { return syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0); }
struct ns_clone_args {
    uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size, cgroup;
};
static inline long clone3_tids(uint64_t flags, pid_t *tids, size_t n) {
    struct ns_clone_args a = {.flags = flags, .exit_signal = SIGCHLD, .set_tid = (uintptr_t)tids, .set_tid_size = n};
    return syscall(SYS_clone3, &a, sizeof a);
}
static inline void *ns_sleeper(void *arg) {
    (void)arg;
    pause();
    return NULL;
}
static inline void second_thread(void) {
    pthread_t t;
    CHECK(pthread_create(&t, NULL, ns_sleeper, NULL) == 0);
}
