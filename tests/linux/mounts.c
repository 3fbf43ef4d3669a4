// mount and umount2 as far as a container's root uses them. Natively each case runs in a mount name space of its own.
#include "t.h"
#include <sys/mount.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>

static void own(void) {
    scratch();
    if (geteuid()) SKIP("needs root");
    if (unshare(0x00020000) == 0) {  // CLONE_NEWNS; a domain refuses, and has only its own mounts anyway
        if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL)) SKIP("no private mounts");
    }
    CHECK(mkdir("m", 0755) == 0);
}
static int mounted(const char *path) {
    struct stat a, b;
    char up[300];
    snprintf(up, sizeof up, "%s/..", path);
    CHECK(stat(path, &a) == 0 && stat(up, &b) == 0);
    return a.st_dev != b.st_dev;
}
CASE(every_file_system_has_a_number_of_its_own) {
    own();
    CHECK(mount("none", "m", "tmpfs", 0, NULL) == 0);
    const char *on[] = {"/", "/proc", "/sys", "/dev/shm", "m"};
    struct stat a, b;
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < i; j++) {
            CHECK(stat(on[i], &a) == 0 && stat(on[j], &b) == 0);
            if (a.st_dev == b.st_dev) FAIL("%s and %s share one", on[i], on[j]);
        }
    CHECK(umount("m") == 0);
}
CASE(tmpfs_covers_and_uncovers) {
    own();
    close(mkfile("m/under", ""));
    CHECK(mount("none", "m", "tmpfs", 0, NULL) == 0);
    CHECK(mounted("m"));
    CHECK_ERR(access("m/under", F_OK), ENOENT);
    close(mkfile("m/over", ""));
    CHECK(umount("m") == 0);
    CHECK(access("m/under", F_OK) == 0);
    CHECK_ERR(access("m/over", F_OK), ENOENT);
}
CASE(tmpfs_options) {
    own();
    CHECK(mount("none", "m", "tmpfs", 0, "mode=0710,uid=5,gid=6,size=1m") == 0);
    struct stat s;
    CHECK(stat("m", &s) == 0 && (s.st_mode & 07777) == 0710 && s.st_uid == 5 && s.st_gid == 6);
    struct statfs f;
    CHECK(statfs("m", &f) == 0 && f.f_type == 0x01021994);
    CHECK(umount("m") == 0);
}
CASE(tmpfs_size_is_a_limit) {
    own();
    CHECK(mount("none", "m", "tmpfs", 0, "size=64k") == 0);
    struct statfs f;
    CHECK(statfs("m", &f) == 0 && f.f_blocks * f.f_bsize == 65536);
    int fd = open("m/f", O_CREAT | O_RDWR, 0600);
    static char b[65536 + 4096];
    CHECK_EQ(write(fd, b, sizeof b), 65536);
    CHECK_ERR(write(fd, b, 1), ENOSPC);
    CHECK(ftruncate(fd, 0) == 0);
    CHECK_EQ(write(fd, b, 4096), 4096);
    close(fd);
    CHECK(umount("m") == 0);
}
CASE(busy_mount_is_refused) {
    own();
    CHECK(mount("none", "m", "tmpfs", 0, NULL) == 0);
    int fd = mkfile("m/f", "text");
    CHECK_ERR(umount("m"), EBUSY);
    close(fd);
    CHECK(umount("m") == 0);
}
CASE(working_directory_keeps_busy) {
    own();
    CHECK(mount("none", "m", "tmpfs", 0, NULL) == 0);
    CHECK(chdir("m") == 0);
    char here[PATH_MAX];
    CHECK(getcwd(here, sizeof here) != NULL);
    CHECK_ERR(umount(here), EBUSY);
    CHECK(chdir("..") == 0);
    CHECK(umount("m") == 0);
}
CASE(submount_keeps_busy) {
    own();
    CHECK(mount("none", "m", "tmpfs", 0, NULL) == 0 && mkdir("m/n", 0755) == 0);
    CHECK(mount("none", "m/n", "tmpfs", 0, NULL) == 0);
    CHECK_ERR(umount("m"), EBUSY);
    CHECK(umount("m/n") == 0 && umount("m") == 0);
}
CASE(mapping_keeps_busy) {
    own();
    CHECK(mount("none", "m", "tmpfs", 0, NULL) == 0);
    int fd = mkfile("m/f", "text");
    char *p = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(p != MAP_FAILED);
    close(fd);
    CHECK_ERR(umount("m"), EBUSY);
    CHECK(munmap(p, 4096) == 0);
    CHECK(umount("m") == 0);
}
CASE(detach_is_lazy) {
    own();
    CHECK(mount("none", "m", "tmpfs", 0, NULL) == 0);
    int fd = mkfile("m/f", "text");
    CHECK(umount2("m", MNT_DETACH) == 0);
    CHECK(!mounted("m"));
    char b[8];
    CHECK_EQ(read(fd, b, 8), 4);
}
CASE(umount_errors) {
    own();
    CHECK_ERR(umount("m"), EINVAL);  // not a mount point
    CHECK_ERR(umount("missing"), ENOENT);
    CHECK_ERR(umount2("m", 0x100), EINVAL);
    CHECK_ERR(umount2("m", MNT_EXPIRE | MNT_DETACH), EINVAL);
    CHECK_ERR(umount2(BAD, 0), EFAULT);
}
CASE(umount_nofollow) {
    own();
    CHECK(mount("none", "m", "tmpfs", 0, NULL) == 0 && symlink("m", "l") == 0);
    CHECK_ERR(umount2("l", UMOUNT_NOFOLLOW), EINVAL);
    CHECK(umount2("l", 0) == 0);
}
CASE(mount_errors) {
    own();
    close(mkfile("f", ""));
    CHECK_ERR(mount("none", "missing", "tmpfs", 0, NULL), ENOENT);
    CHECK_ERR(mount("none", "m", "nosuchfs", 0, NULL), ENODEV);
    CHECK_ERR(mount("none", "f", "tmpfs", 0, NULL), ENOTDIR);
    CHECK_ERR(mount("none", "m", NULL, 0, NULL), EINVAL);
    CHECK_ERR(mount("none", "m", "tmpfs", 0, "nosuchoption=1"), EINVAL);
}
CASE(needs_privilege) {
    own();
    t_drop_root();
    CHECK_ERR(mount("none", "m", "tmpfs", 0, NULL), EPERM);
    CHECK_ERR(umount("m"), EPERM);
}
CASE(bind_directory) {
    own();
    CHECK(mkdir("src", 0755) == 0);
    close(mkfile("src/f", "hello"));
    CHECK(mount("src", "m", NULL, MS_BIND, NULL) == 0);
    CHECK(!strcmp(slurp("m/f"), "hello"));
    close(mkfile("m/new", ""));
    CHECK(access("src/new", F_OK) == 0);
    struct stat a, b;
    CHECK(stat("src/f", &a) == 0 && stat("m/f", &b) == 0 && a.st_ino == b.st_ino && a.st_dev == b.st_dev);
    CHECK(umount("m") == 0);
    CHECK_ERR(access("m/f", F_OK), ENOENT);
}
CASE(bind_file) {
    own();
    close(mkfile("a", "a"));
    close(mkfile("b", "b"));
    CHECK(mount("a", "b", NULL, MS_BIND, NULL) == 0);
    CHECK(!strcmp(slurp("b"), "a"));
    CHECK_ERR(unlink("b"), EBUSY);
    CHECK(umount("b") == 0);
    CHECK(!strcmp(slurp("b"), "b"));
    CHECK_ERR(mount("a", "m", NULL, MS_BIND, NULL), ENOTDIR);
}
CASE(rename_and_link_across_mounts) {
    own();
    CHECK(mount("none", "m", "tmpfs", 0, NULL) == 0);
    close(mkfile("f", ""));
    CHECK_ERR(rename("f", "m/f"), EXDEV);
    CHECK_ERR(link("f", "m/f"), EXDEV);
    CHECK(mkdir("src", 0755) == 0 && mkdir("b", 0755) == 0 && mount("src", "b", NULL, MS_BIND, NULL) == 0);
    close(mkfile("src/f", ""));
    CHECK_ERR(rename("b/f", "src/g"), EXDEV);  // the same file system, another mount
    CHECK_ERR(rmdir("m"), EBUSY);
    CHECK_ERR(rename("m", "m2"), EBUSY);
    CHECK(umount("m") == 0 && umount("b") == 0);
}
CASE(read_only_mount) {
    own();
    CHECK(mount("none", "m", "tmpfs", 0, NULL) == 0);
    close(mkfile("m/f", "x"));
    CHECK(mount("none", "m", NULL, MS_REMOUNT | MS_RDONLY, NULL) == 0);
    CHECK_ERR(open("m/f", O_RDWR), EROFS);
    CHECK_ERR(open("m/new", O_CREAT | O_RDWR, 0600), EROFS);
    CHECK_ERR(mkdir("m/d", 0700), EROFS);
    CHECK_ERR(unlink("m/f"), EROFS);
    CHECK_ERR(chmod("m/f", 0600), EROFS);
    CHECK_ERR(access("m/f", W_OK), EROFS);
    CHECK(access("m/f", R_OK) == 0);
    struct statvfs v;
    CHECK(statvfs("m", &v) == 0 && v.f_flag & ST_RDONLY);
    CHECK(mount("none", "m", NULL, MS_REMOUNT, NULL) == 0);
    CHECK(chmod("m/f", 0600) == 0);
    CHECK(umount("m") == 0);
}
CASE(read_only_bind) {
    own();
    CHECK(mkdir("src", 0755) == 0);
    CHECK(mount("src", "m", NULL, MS_BIND, NULL) == 0);
    CHECK(mount(NULL, "m", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL) == 0);
    CHECK_ERR(open("m/f", O_CREAT | O_RDWR, 0600), EROFS);
    close(mkfile("src/f", ""));
    CHECK(umount("m") == 0);
}
CASE(noexec_nosuid_nodev) {
    own();
    CHECK(mount("none", "m", "tmpfs", MS_NOEXEC | MS_NODEV, NULL) == 0);
    int fd = open("m/x", O_CREAT | O_RDWR, 0755);
    CHECK(write(fd, "#!/bin/sh\n", 10) == 10);
    close(fd);
    CHECK_ERR(execl("m/x", "x", NULL), EACCES);
    CHECK(mknod("m/null", S_IFCHR | 0666, 0x103) == 0);
    CHECK_ERR(open("m/null", O_RDONLY), EACCES);
    CHECK_ERR(access("m/x", X_OK), EACCES);
    CHECK(umount("m") == 0);
}
CASE(stacked_mounts) {
    own();
    CHECK(mount("one", "m", "tmpfs", 0, NULL) == 0);
    close(mkfile("m/1", ""));
    CHECK(mount("two", "m", "tmpfs", 0, NULL) == 0);
    CHECK_ERR(access("m/1", F_OK), ENOENT);
    CHECK(umount("m") == 0 && access("m/1", F_OK) == 0 && umount("m") == 0);
}
CASE(shown_in_proc_mounts) {
    own();
    CHECK(mount("mysource", "m", "tmpfs", MS_NOSUID, NULL) == 0);
    char want[PATH_MAX + 40], here[PATH_MAX];
    CHECK(getcwd(here, sizeof here) != NULL);
    snprintf(want, sizeof want, "mysource %s/m tmpfs rw,nosuid", here);
    CHECK(strstr(slurp("/proc/self/mounts"), want) != NULL);
    CHECK(umount("m") == 0);
    CHECK(strstr(slurp("/proc/self/mounts"), want) == NULL);
}
CASE(proc_on_another_place) {
    own();
    CHECK(mount("proc", "m", "proc", 0, NULL) == 0);
    char path[40];
    snprintf(path, sizeof path, "m/%d/comm", getpid());
    CHECK(access(path, R_OK) == 0);
    CHECK(umount("m") == 0);
}

// What follows changes more than a place of its own: always in a namespace that is the case's alone, on a tmpfs of its own.
#include <sched.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

static char top[PATH_MAX];
static void alone(void) {
    scratch();
    if (geteuid()) SKIP("needs root");
    CHECK(unshare(CLONE_NEWNS) == 0);
    CHECK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    CHECK(mkdir("top", 0755) == 0 && mount("top", "top", "tmpfs", 0, NULL) == 0 && chdir("top") == 0);
    CHECK(getcwd(top, sizeof top) != NULL);
    CHECK(mkdir("a", 0755) == 0 && mkdir("b", 0755) == 0);
}
static int bound(const char *from, const char *to) { return mount(from, to, NULL, MS_BIND, NULL); }
static int again(const char *at, unsigned long flags, const char *data) {
    return mount(NULL, at, NULL, MS_REMOUNT | flags, data);
}
// A field of the last row of mountinfo for a place: 3 root, 4 point, 5 options; from "- " on: 7 type, 8 source, 9 super options.
static char *field(const char *at, int which) {
    static char found[PATH_MAX], want[PATH_MAX + 300];
    snprintf(want, sizeof want, "%s/%s", top, at);
    if (at[0] == '/') strcpy(want, at);
    *found = 0;
    char *text = strdup(slurp("/proc/self/mountinfo")), *save, *inner;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *f[40] = {"", "", "", "", "", "", "", "", "", ""}, *tail = strstr(line, " - ") + 3;
        int n = 0;
        tail[-3] = 0;
        for (char *w = strtok_r(line, " ", &inner); w && n < 7; w = strtok_r(NULL, " ", &inner)) f[n++] = w;
        n = 7;
        for (char *w = strtok_r(tail, " ", &inner); w && n < 40; w = strtok_r(NULL, " ", &inner)) f[n++] = w;
        if (!strcmp(f[4], want)) strcpy(found, f[which]);
    }
    free(text);
    return found;
}
static int has(const char *options, const char *one) {
    char all[PATH_MAX + 2], word[100];
    snprintf(all, sizeof all, ",%s,", options);
    snprintf(word, sizeof word, ",%s,", one);
    return strstr(all, word) != NULL;
}
static long long mount_id(const char *path) {
    struct statx x;
    CHECK(statx(AT_FDCWD, path, 0, STATX_MNT_ID, &x) == 0);
    return x.stx_mnt_id;
}
static unsigned long flags(const char *path) {
    struct statfs s;
    CHECK(statfs(path, &s) == 0);
    return s.f_flags & ~0x20;
}
static int pivot(const char *new, const char *old) { return syscall(SYS_pivot_root, new, old); }

CASE(bind_of_a_subtree_shows_its_root) {
    alone();
    CHECK(mkdir("a/in", 0755) == 0 && bound("a/in", "b") == 0);
    CHECK(!strcmp(field("b", 3), "/a/in") && !strcmp(field("b", 7), "tmpfs") && !strcmp(field("b", 8), "top"));
}
CASE(bind_of_a_removed_directory_is_shown_deleted) {
    alone();
    CHECK(mkdir("a/in", 0755) == 0 && bound("a/in", "b") == 0 && rmdir("a/in") == 0);
    CHECK(!strcmp(field("b", 3), "/a/in//deleted"));
}
CASE(bind_without_what_is_below) {
    alone();
    CHECK(mkdir("a/x", 0755) == 0 && mount("t", "a/x", "tmpfs", 0, NULL) == 0);
    close(mkfile("a/x/f", ""));
    CHECK(bound("a", "b") == 0);
    CHECK_ERR(access("b/x/f", F_OK), ENOENT);
    CHECK(umount("b") == 0 && mount("a", "b", NULL, MS_BIND | MS_REC, NULL) == 0);
    CHECK(access("b/x/f", F_OK) == 0);
    CHECK_ERR(umount("b"), EBUSY);
    CHECK(umount("b/x") == 0 && umount("b") == 0 && access("a/x/f", F_OK) == 0);
}
CASE(bind_of_a_directory_with_what_is_mounted_in_it) {
    alone();
    CHECK(mkdir("a/d", 0755) == 0 && mkdir("a/d/x", 0755) == 0 && mkdir("a/e", 0755) == 0);
    CHECK(mount("t", "a/d/x", "tmpfs", 0, NULL) == 0 && mount("t", "a/e", "tmpfs", 0, NULL) == 0);
    CHECK(mount("a/d", "b", NULL, MS_BIND | MS_REC, NULL) == 0);
    CHECK(mount_id("b/x") != mount_id("b") && !strcmp(field("b/x", 8), "t"));
}
CASE(bind_onto_itself) {
    alone();
    long long id = mount_id("a");
    CHECK(bound("a", "a") == 0 && mount_id("a") != id);
    CHECK(umount("a") == 0 && mount_id("a") == id);
}
CASE(bind_of_a_tree_into_itself) {
    alone();
    CHECK(mount("t", "a", "tmpfs", 0, NULL) == 0 && mkdir("a/x", 0755) == 0);
    CHECK(mount("a", "a/x", NULL, MS_BIND | MS_REC, NULL) == 0);
    CHECK(access("a/x/x", F_OK) == 0 && mount_id("a/x/x") == mount_id("a/x"));
}
CASE(bind_errors) {
    alone();
    close(mkfile("f", ""));
    CHECK_ERR(bound("missing", "b"), ENOENT);
    CHECK_ERR(bound("a", "missing"), ENOENT);
    CHECK_ERR(bound("f", "b"), ENOTDIR);
    CHECK_ERR(bound("a", "f"), ENOTDIR);
    CHECK_ERR(mount(NULL, "b", NULL, MS_BIND, NULL), EINVAL);
    CHECK_ERR(mount("", "b", NULL, MS_BIND, NULL), EINVAL);
    CHECK_ERR(mount(BAD, "b", NULL, MS_BIND, NULL), EFAULT);
    CHECK_ERR(mount("a", BAD, NULL, MS_BIND, NULL), EFAULT);
}
CASE(bind_from_another_namespace) {
    alone();
    int p[2], q[2];
    char c;
    CHECK(pipe(p) == 0 && pipe(q) == 0);
    pid_t child = SPAWN({
        CHECK(unshare(CLONE_NEWNS) == 0 && mount("t", "a", "tmpfs", 0, NULL) == 0);
        CHECK(write(p[1], "x", 1) == 1 && read(q[0], &c, 1) == 1);
    });
    CHECK(read(p[0], &c, 1) == 1);
    char path[PATH_MAX];
    snprintf(path, sizeof path, "/proc/%d/root%s/a", child, top);
    CHECK_ERR(bound(path, "b"), EINVAL);
    CHECK_ERR(mount("t", path, "tmpfs", 0, NULL), EINVAL);
    CHECK_ERR(umount(path), EINVAL);
    CHECK_ERR(mount(NULL, path, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL), EINVAL);
    CHECK(write(q[1], "x", 1) == 1);
    CHECK_EQ(join(child), 0);
}
CASE(move_takes_what_is_below) {
    alone();
    CHECK(mount("t", "a", "tmpfs", 0, NULL) == 0 && mkdir("a/x", 0755) == 0 && mount("u", "a/x", "tmpfs", 0, NULL) == 0);
    long long id = mount_id("a/x");
    CHECK(mount("a", "b", NULL, MS_MOVE, NULL) == 0);
    CHECK(mount_id("b/x") == id && mount_id("a") == mount_id("."));
}
CASE(move_errors) {
    alone();
    close(mkfile("f", ""));
    CHECK_ERR(mount("a", "b", NULL, MS_MOVE, NULL), EINVAL);
    CHECK(mount("t", "a", "tmpfs", 0, NULL) == 0 && mkdir("a/x", 0755) == 0);
    CHECK_ERR(mount("a/x", "b", NULL, MS_MOVE, NULL), EINVAL);
    CHECK_ERR(mount("a", "a/x", NULL, MS_MOVE, NULL), ELOOP);
    CHECK_ERR(mount("a", "f", NULL, MS_MOVE, NULL), EINVAL);
    CHECK_ERR(mount("a", "missing", NULL, MS_MOVE, NULL), ENOENT);
    CHECK_ERR(mount(NULL, "b", NULL, MS_MOVE, NULL), EINVAL);
    CHECK_ERR(mount("missing", "b", NULL, MS_MOVE, NULL), ENOENT);
}
CASE(move_keeps_open_files) {
    alone();
    CHECK(mount("t", "a", "tmpfs", 0, NULL) == 0);
    int fd = mkfile("a/f", "text");
    CHECK(mount("a", "b", NULL, MS_MOVE, NULL) == 0);
    char link[PATH_MAX] = "", path[40], want[PATH_MAX + 10];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    CHECK(readlink(path, link, sizeof link - 1) > 0);
    snprintf(want, sizeof want, "%s/b/f", top);
    CHECK(!strcmp(link, want));
}
CASE(remount_of_the_mount_alone) {
    alone();
    CHECK(bound("a", "b") == 0 && again("b", MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV, NULL) == 0);
    CHECK(has(field("b", 5), "ro") && has(field("b", 5), "nosuid") && has(field("b", 5), "nodev"));
    CHECK(has(field("b", 9), "rw") && flags("b") == 0x1007 && flags("a") == 0x1000);
    close(mkfile("a/f", ""));
    CHECK_ERR(open("b/f", O_RDWR), EROFS);
    CHECK(again("b", MS_BIND, NULL) == 0 && flags("b") == 0x1000);
}
CASE(remount_of_the_file_system) {
    alone();
    CHECK(mount("t", "a", "tmpfs", 0, NULL) == 0 && bound("a", "b") == 0);
    CHECK(again("a", MS_RDONLY, NULL) == 0);
    CHECK(has(field("a", 5), "ro") && has(field("a", 9), "ro") && has(field("b", 5), "rw") && has(field("b", 9), "ro"));
    CHECK_ERR(mkdir("b/d", 0755), EROFS);  // either makes it so
    CHECK(flags("b") & 1);
    CHECK(again("b", 0, NULL) == 0);
    CHECK(mkdir("b/d", 0755) == 0);
    CHECK_ERR(mkdir("a/e", 0755), EROFS);  // the mount still is
}
CASE(remount_keeps_times_unless_told) {
    alone();
    CHECK(mount("t", "a", "tmpfs", MS_NOATIME, NULL) == 0 && flags("a") == 0x400);
    CHECK(again("a", MS_BIND | MS_NOEXEC, NULL) == 0 && flags("a") == 0x408);
    CHECK(again("a", MS_BIND | MS_STRICTATIME, NULL) == 0 && flags("a") == 0);
    CHECK(again("a", MS_BIND | MS_NOSUID, NULL) == 0 && flags("a") == 2);
    CHECK(again("a", MS_BIND | MS_RELATIME, NULL) == 0 && flags("a") == 0x1000);
    CHECK(again("a", MS_BIND | MS_NODIRATIME, NULL) == 0 && flags("a") == 0x1800);
}
CASE(remount_errors) {
    alone();
    CHECK_ERR(again("a", MS_RDONLY, NULL), EINVAL);
    CHECK_ERR(again("a", MS_BIND | MS_RDONLY, NULL), EINVAL);
    CHECK_ERR(again("missing", MS_RDONLY, NULL), ENOENT);
    CHECK(mount("t", "a", "tmpfs", 0, NULL) == 0);
    CHECK_ERR(again("a", 0, "nosuch=1"), EINVAL);
    int fd = open("a/f", O_CREAT | O_RDWR, 0600);
    CHECK_ERR(again("a", MS_RDONLY, NULL), EBUSY);
    CHECK_ERR(again("a", MS_BIND | MS_RDONLY, NULL), EBUSY);
    CHECK(close(fd) == 0);
    fd = open("a/f", O_RDONLY);
    CHECK(again("a", MS_BIND | MS_RDONLY, NULL) == 0);
}
CASE(remount_changes_limits) {
    alone();
    CHECK(mount("t", "a", "tmpfs", 0, "size=64k,nr_inodes=10") == 0);
    struct statfs s;
    CHECK(statfs("a", &s) == 0 && s.f_blocks * s.f_bsize == 65536 && s.f_files == 10);
    CHECK(again("a", 0, "size=128k") == 0);
    CHECK(statfs("a", &s) == 0 && s.f_blocks * s.f_bsize == 131072 && s.f_files == 10);
    CHECK(has(field("a", 9), "size=128k") && has(field("a", 9), "nr_inodes=10"));
    int fd = open("a/f", O_CREAT | O_RDWR, 0600);
    static char page[100000];
    CHECK_EQ(write(fd, page, sizeof page), sizeof page);
    close(fd);
    CHECK_ERR(again("a", 0, "size=64k"), EINVAL);  // more is in it
    CHECK(again("a", 0, "nr_inodes=20") == 0 && statfs("a", &s) == 0 && s.f_files == 20);
    CHECK_ERR(again("a", 0, "nr_inodes=1"), EINVAL);
}
CASE(tmpfs_inodes_are_a_limit) {
    alone();
    CHECK(mount("t", "a", "tmpfs", 0, "nr_inodes=3") == 0);
    CHECK(mkdir("a/1", 0755) == 0 && mkdir("a/2", 0755) == 0);
    CHECK_ERR(mkdir("a/3", 0755), ENOSPC);
    CHECK(rmdir("a/1") == 0 && mkdir("a/3", 0755) == 0);
}
CASE(tmpfs_options_are_shown) {
    alone();
    CHECK(mount("t", "a", "tmpfs", 0, "size=1m,mode=700,uid=3,gid=4,nr_inodes=77") == 0);
    char *o = field("a", 9);
    CHECK(has(o, "size=1024k") && has(o, "mode=700") && has(o, "uid=3") && has(o, "gid=4") && has(o, "nr_inodes=77"));
}
CASE(tmpfs_bad_options) {
    alone();
    CHECK_ERR(mount("t", "a", "tmpfs", 0, "size=x"), EINVAL);
    CHECK_ERR(mount("t", "a", "tmpfs", 0, "mode=9"), EINVAL);
    CHECK_ERR(mount("t", "a", "tmpfs", 0, "uid=-5"), EINVAL);
    CHECK_ERR(mount("t", "a", "tmpfs", 0, "size=1m,nosuch"), EINVAL);
    CHECK(mount("t", "a", "tmpfs", 0, "ro") == 0 && flags("a") & 1);
}
CASE(flags_that_conflict) {
    alone();
    CHECK(mount("t", "a", "tmpfs", MS_NOATIME | MS_STRICTATIME, NULL) == 0);
    CHECK_EQ(flags("a"), 0);
}
CASE(magic_in_the_flags) {
    alone();
    CHECK(mount("t", "a", "tmpfs", 0xc0ed0000 | MS_NOSUID, NULL) == 0);
    CHECK_EQ(flags("a"), 0x1002);
}
CASE(nosymfollow) {
    alone();
    CHECK(mount("t", "a", "tmpfs", 256, NULL) == 0 && symlink("f", "a/l") == 0);
    close(mkfile("a/f", ""));
    CHECK_ERR(access("a/l", F_OK), ELOOP);
    struct stat s;
    CHECK(lstat("a/l", &s) == 0);
    CHECK(has(field("a", 5), "nosymfollow") && flags("a") & 0x2000);
    CHECK(symlink("a/f", "l") == 0 && access("l", F_OK) == 0);  // a link elsewhere
}
CASE(noatime) {
    alone();
    CHECK(mount("t", "a", "tmpfs", MS_NOATIME, NULL) == 0);
    close(mkfile("a/f", "text"));
    struct timespec old[2] = {{1000, 0}, {2000, 0}};
    CHECK(utimensat(AT_FDCWD, "a/f", old, 0) == 0);
    slurp("a/f");
    struct stat s;
    CHECK(stat("a/f", &s) == 0 && s.st_atime == 1000);
    CHECK(again("a", MS_BIND | MS_RELATIME, NULL) == 0);
    slurp("a/f");
    CHECK(stat("a/f", &s) == 0 && s.st_atime != 1000);
}
CASE(strictatime_and_relatime) {
    alone();
    CHECK(mount("t", "a", "tmpfs", MS_STRICTATIME, NULL) == 0);
    close(mkfile("a/f", "text"));
    time_t now = time(NULL);
    struct timespec times[2] = {{now + 1000, 0}, {now, 0}};  // read after all changes
    CHECK(utimensat(AT_FDCWD, "a/f", times, 0) == 0);
    slurp("a/f");
    struct stat s;
    CHECK(stat("a/f", &s) == 0 && s.st_atime < now + 900);
    CHECK(again("a", MS_BIND | MS_RELATIME, NULL) == 0 && utimensat(AT_FDCWD, "a/f", times, 0) == 0);
    slurp("a/f");
    CHECK(stat("a/f", &s) == 0 && s.st_atime == now + 1000);
}
CASE(umount_of_a_file) {
    alone();
    close(mkfile("f", "f"));
    close(mkfile("g", "g"));
    CHECK(bound("f", "g") == 0 && !strcmp(slurp("g"), "f"));
    CHECK(!strcmp(field("g", 3), "/f"));
    int fd = open("g", O_RDONLY);
    CHECK_ERR(umount("g"), EBUSY);
    close(fd);
    CHECK(umount("g") == 0 && !strcmp(slurp("g"), "g"));
}
CASE(umount_by_another_name) {
    alone();
    CHECK(mount("t", "a", "tmpfs", 0, NULL) == 0 && mkdir("a/d", 0755) == 0);
    CHECK_ERR(umount("a/d"), EINVAL);
    CHECK(symlink("a", "l") == 0 && umount("l/d/..") == 0);
}
CASE(umount_detach_takes_what_is_below) {
    alone();
    CHECK(mount("t", "a", "tmpfs", 0, NULL) == 0 && mkdir("a/x", 0755) == 0 && mount("u", "a/x", "tmpfs", 0, NULL) == 0);
    close(mkfile("a/x/f", ""));
    int fd = open("a", O_RDONLY);
    CHECK(umount2("a", MNT_DETACH) == 0);
    CHECK(!*field("a", 8) && !*field("a/x", 8));
    CHECK_ERR(faccessat(fd, "x/f", F_OK, 0), ENOENT);  // each is on its own now
    CHECK(faccessat(fd, "x", F_OK, 0) == 0);
}
CASE(umount_expire) {
    alone();
    CHECK(mount("t", "a", "tmpfs", 0, NULL) == 0);
    CHECK_ERR(umount2("a", MNT_EXPIRE), EAGAIN);
    CHECK(umount2("a", MNT_EXPIRE) == 0 && !*field("a", 8));
}
CASE(umount_expire_after_use) {
    alone();
    CHECK(mount("t", "a", "tmpfs", 0, NULL) == 0);
    CHECK_ERR(umount2("a", MNT_EXPIRE), EAGAIN);
    close(mkfile("a/f", ""));
    CHECK_ERR(umount2("a", MNT_EXPIRE), EAGAIN);
    CHECK(umount2("a", MNT_EXPIRE) == 0);
}
CASE(umount_expire_busy) {
    alone();
    CHECK(mount("t", "a", "tmpfs", 0, NULL) == 0);
    int fd = open("a", O_RDONLY);
    CHECK_ERR(umount2("a", MNT_EXPIRE), EBUSY);
    close(fd);
    CHECK_ERR(umount2("a", MNT_EXPIRE), EAGAIN);
    CHECK_ERR(umount2("a", MNT_EXPIRE | MNT_FORCE), EINVAL);
    CHECK_ERR(umount2("/", MNT_EXPIRE), EINVAL);
}
CASE(umount_force) {
    alone();
    CHECK(mount("t", "a", "tmpfs", 0, NULL) == 0);
    int fd = open("a", O_RDONLY);
    CHECK_ERR(umount2("a", MNT_FORCE), EBUSY);
    close(fd);
    CHECK(umount2("a", MNT_FORCE) == 0);
}
CASE(many_on_one_place) {
    alone();
    for (int i = 0; i < 50; i++) CHECK(mount("t", "a", "tmpfs", 0, NULL) == 0);
    for (int i = 0; i < 50; i++) CHECK(umount("a") == 0);
    CHECK_ERR(umount("a"), EINVAL);
}
CASE(many_mounts) {
    alone();
    char name[40];
    for (int i = 0; i < 500; i++) {
        snprintf(name, sizeof name, "a/%d", i);
        CHECK(mkdir(name, 0755) == 0 && bound("b", name) == 0);
    }
    close(mkfile("b/f", ""));
    CHECK(access("a/499/f", F_OK) == 0 && access("a/0/f", F_OK) == 0);
    for (int i = 0; i < 500; i++) {
        snprintf(name, sizeof name, "a/%d", i);
        CHECK(umount(name) == 0);
    }
}
CASE(same_file_system_on_its_own_root) {
    alone();
    CHECK(mount("t", "a", "tmpfs", 0, NULL) == 0);
    CHECK(bound("a", "a") == 0);  // binds may
    CHECK(umount("a") == 0 && umount("a") == 0);
}
CASE(mountpoint_of_another_namespace_can_go) {
    alone();
    int p[2], q[2];
    char c;
    CHECK(pipe(p) == 0 && pipe(q) == 0);
    pid_t child = SPAWN({
        CHECK(unshare(CLONE_NEWNS) == 0 && mount("t", "a", "tmpfs", 0, NULL) == 0);
        CHECK(write(p[1], "x", 1) == 1 && read(q[0], &c, 1) == 1);
        CHECK(!*field("a", 8));
    });
    CHECK(read(p[0], &c, 1) == 1);
    CHECK(rmdir("a") == 0);
    CHECK(write(q[1], "x", 1) == 1);
    CHECK_EQ(join(child), 0);
}
CASE(mountpoint_cannot_go_or_be_renamed) {
    alone();
    CHECK(mount("t", "a", "tmpfs", 0, NULL) == 0);
    CHECK_ERR(rmdir("a"), EBUSY);
    CHECK_ERR(rename("a", "c"), EBUSY);
    CHECK_ERR(rename("b", "a"), EBUSY);
    CHECK(mkdir("d", 0755) == 0 && mkdir("d/x", 0755) == 0 && mount("t", "d/x", "tmpfs", 0, NULL) == 0);
    CHECK(rename("d", "e") == 0);  // what is above a mount point may move
    CHECK(*field("e/x", 8));
}
CASE(mount_on_a_removed_directory) {
    alone();
    CHECK(mkdir("gone", 0755) == 0);
    int fd = open("gone", O_PATH);
    CHECK(rmdir("gone") == 0);
    char path[40];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    CHECK_ERR(mount("t", path, "tmpfs", 0, NULL), ENOENT);
}
CASE(parent_and_number_in_mountinfo) {
    alone();
    CHECK(mount("t", "a", "tmpfs", 0, NULL) == 0);
    CHECK_EQ(atoll(field("a", 0)), mount_id("a"));
    CHECK_EQ(atoll(field("a", 1)), mount_id("."));
    struct stat s;
    unsigned ma, mi;
    CHECK(stat("a", &s) == 0 && sscanf(field("a", 2), "%u:%u", &ma, &mi) == 2);
    CHECK(makedev(ma, mi) == s.st_dev);
}
CASE(names_are_escaped) {
    alone();
    CHECK(mkdir("a b\tc\\d\ne", 0755) == 0 && mount("so urce", "a b\tc\\d\ne", "tmpfs", 0, NULL) == 0);
    CHECK(strstr(slurp("/proc/self/mountinfo"), "/a\\040b\\011c\\134d\\012e ") != NULL);
    CHECK(strstr(slurp("/proc/self/mounts"), "so\\040urce ") != NULL);
}
CASE(tables_are_relative_to_the_root) {
    alone();
    CHECK(mkdir("a/proc", 0755) == 0 && mkdir("a/m", 0755) == 0 && mount("t", "b", "tmpfs", 0, NULL) == 0);
    CHECK(mount("a", "a", NULL, MS_BIND, NULL) == 0);
    CHECK(mount("proc", "a/proc", "proc", 0, NULL) == 0 && mount("inside", "a/m", "tmpfs", 0, NULL) == 0);
    CHECK(chroot("a") == 0 && chdir("/") == 0);
    CHECK(strstr(slurp("/proc/self/mounts"), "inside /m tmpfs ") != NULL);
    int rows = 0;
    for (char *p = slurp("/proc/self/mounts"); (p = strchr(p, '\n')); p++) rows++;
    CHECK_EQ(rows, 3);  // nothing outside
}
CASE(tables_of_another_process) {
    alone();
    int p[2], q[2];
    char c, path[60];
    CHECK(pipe(p) == 0 && pipe(q) == 0);
    pid_t child = SPAWN({
        CHECK(unshare(CLONE_NEWNS) == 0 && mount("childs", "a", "tmpfs", 0, NULL) == 0);
        CHECK(write(p[1], "x", 1) == 1 && read(q[0], &c, 1) == 1);
    });
    CHECK(read(p[0], &c, 1) == 1);
    snprintf(path, sizeof path, "/proc/%d/mountinfo", child);
    CHECK(strstr(slurp(path), " childs ") != NULL);
    CHECK(strstr(slurp("/proc/self/mountinfo"), " childs ") == NULL);
    snprintf(path, sizeof path, "/proc/%d/mounts", child);
    CHECK(strstr(slurp(path), "childs ") != NULL);
    snprintf(path, sizeof path, "/proc/%d/mountstats", child);
    CHECK(strstr(slurp(path), "device childs mounted on ") != NULL);
    CHECK(write(q[1], "x", 1) == 1);
    CHECK_EQ(join(child), 0);
}
CASE(tables_tell_of_changes) {
    alone();
    struct pollfd f = {open("/proc/self/mountinfo", O_RDONLY), POLLPRI, 0};
    CHECK_EQ(poll(&f, 1, 0), 0);
    CHECK(mount("t", "a", "tmpfs", 0, NULL) == 0);
    CHECK(poll(&f, 1, 0) == 1 && f.revents & POLLPRI && f.revents & POLLERR);
    CHECK_EQ(poll(&f, 1, 0), 0);
    CHECK(umount("a") == 0 && poll(&f, 1, 0) == 1);
}
CASE(tables_do_not_tell_of_other_namespaces) {
    alone();
    struct pollfd f = {open("/proc/self/mounts", O_RDONLY), POLLPRI, 0};
    CHECK_EQ(poll(&f, 1, 0), 0);
    pid_t child = SPAWN({ CHECK(unshare(CLONE_NEWNS) == 0 && mount("t", "a", "tmpfs", 0, NULL) == 0); });
    CHECK_EQ(join(child), 0);
    CHECK_EQ(poll(&f, 1, 0), 0);
}
CASE(pivot_root_swaps) {
    alone();
    CHECK(mount("t", "a", "tmpfs", 0, NULL) == 0 && mkdir("a/old", 0755) == 0);
    close(mkfile("a/new", ""));
    CHECK(chdir("a") == 0 && pivot(".", "old") == 0);
    CHECK(access("/new", F_OK) == 0 && access("/old/proc", F_OK) == 0);
    char cwd[PATH_MAX];
    CHECK(getcwd(cwd, sizeof cwd) && !strcmp(cwd, "/"));
    CHECK(umount2("/old", MNT_DETACH) == 0 && rmdir("/old") == 0);
    CHECK_ERR(access("/proc/self", F_OK), ENOENT);
}
CASE(pivot_root_onto_itself) {
    alone();
    CHECK(mount("t", "a", "tmpfs", 0, NULL) == 0 && chdir("a") == 0);
    close(mkfile("new", ""));
    CHECK(pivot(".", ".") == 0);
    CHECK(umount2(".", MNT_DETACH) == 0 && access("/new", F_OK) == 0);
    CHECK(chdir("/") == 0 && access("new", F_OK) == 0);
}
CASE(pivot_root_errors) {
    alone();
    CHECK(mount("t", "a", "tmpfs", 0, NULL) == 0 && mkdir("a/old", 0755) == 0);
    close(mkfile("f", ""));
    CHECK_ERR(pivot("b", "b"), EINVAL);            // not a mount point
    CHECK_ERR(pivot("a", "b"), EINVAL);            // not below the new root
    CHECK_ERR(pivot("/", "/"), EBUSY);             // the root itself
    CHECK_ERR(pivot("a/old", "a/old"), EINVAL);    // in a mount, but not its root
    CHECK_ERR(pivot("f", "a/old"), ENOTDIR);
    CHECK_ERR(pivot("a", "missing"), ENOENT);
    CHECK_ERR(pivot("missing", "a"), ENOENT);
    CHECK_ERR(pivot(BAD, "a"), EFAULT);
    CHECK(mount(NULL, "a", NULL, MS_SHARED, NULL) == 0);
    CHECK_ERR(pivot("a", "a/old"), EINVAL);  // it would propagate
    t_drop_root();
    CHECK_ERR(pivot("a", "a/old"), EPERM);
}
CASE(pivot_root_of_a_chroot_that_is_no_mount) {
    alone();
    CHECK(mkdir("b/n", 0755) == 0 && mount("t", "b/n", "tmpfs", 0, NULL) == 0 && mkdir("b/n/old", 0755) == 0);
    CHECK(chroot("b") == 0 && chdir("/") == 0);
    CHECK_ERR(pivot("n", "n/old"), EINVAL);
}
CASE(pivot_root_moves_all_who_stand_there) {
    alone();
    int p[2], q[2];
    char c;
    CHECK(mount("t", "a", "tmpfs", 0, NULL) == 0 && mkdir("a/old", 0755) == 0 && pipe(p) == 0 && pipe(q) == 0);
    close(mkfile("a/new", ""));
    pid_t child = SPAWN({
        CHECK(chdir("/") == 0 && write(p[1], "x", 1) == 1 && read(q[0], &c, 1) == 1);
        CHECK(access("/new", F_OK) == 0 && access("new", F_OK) == 0);
    });
    CHECK(read(p[0], &c, 1) == 1 && pivot("a", "a/old") == 0 && write(q[1], "x", 1) == 1);
    CHECK_EQ(join(child), 0);
}
CASE(dotdot_at_the_root_of_a_mount) {
    alone();
    CHECK(mount("t", "a", "tmpfs", 0, NULL) == 0);
    CHECK_EQ(mount_id("a/.."), mount_id("."));
    CHECK(mount("u", "a", "tmpfs", 0, NULL) == 0);
    CHECK_EQ(mount_id("a/.."), mount_id("."));
    int fd = open("a", O_PATH);
    CHECK(umount2("a", MNT_DETACH) == 0);
    struct stat s, t;
    CHECK(fstatat(fd, "..", &t, 0) == 0 && fstat(fd, &s) == 0 && s.st_dev == t.st_dev);  // it has none any more
}
CASE(outside_of_the_root) {
    alone();
    CHECK(mkdir("a/in", 0755) == 0);
    CHECK(chroot("a") == 0);
    char cwd[PATH_MAX];
    CHECK(syscall(SYS_getcwd, cwd, sizeof cwd) > 0 && !strncmp(cwd, "(unreachable)/", 14));
    CHECK(access("b", F_OK) == 0);
    CHECK_ERR(access("/b", F_OK), ENOENT);
}
CASE(unreachable_in_a_detached_mount) {
    alone();
    CHECK(mount("t", "a", "tmpfs", 0, NULL) == 0 && mkdir("a/in", 0755) == 0 && chdir("a/in") == 0);
    CHECK(umount2("..", MNT_DETACH) == 0);
    char cwd[PATH_MAX];
    CHECK(syscall(SYS_getcwd, cwd, sizeof cwd) > 0);
    CHECK(!strcmp(cwd, "(unreachable)/in"));
}
CASE(new_namespace_keeps_places) {
    alone();
    CHECK(mount("t", "a", "tmpfs", 0, NULL) == 0 && chdir("a") == 0);
    long long before = mount_id(".");
    CHECK(unshare(CLONE_NEWNS) == 0);
    CHECK(mount_id(".") != before && mount_id(".") == mount_id(field("/", 8)[0] ? "." : "."));
    char cwd[PATH_MAX], want[PATH_MAX + 3];
    snprintf(want, sizeof want, "%s/a", top);
    CHECK(getcwd(cwd, sizeof cwd) && !strcmp(cwd, want));
    CHECK_ERR(umount(want), EBUSY);
}
CASE(new_namespace_by_clone) {
    alone();
    char link[2][60] = {"", ""};
    CHECK(readlink("/proc/self/ns/mnt", link[0], 59) > 0);
    pid_t child = syscall(SYS_clone, CLONE_NEWNS | SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        CHECK(readlink("/proc/self/ns/mnt", link[1], 59) > 0 && strcmp(link[0], link[1]));
        CHECK(mount("t", "a", "tmpfs", 0, NULL) == 0);
        _exit(0);
    }
    CHECK_EQ(join(child), 0);
    CHECK(!*field("a", 8));
}
CASE(new_namespace_with_clone_fs) {
    alone();
    CHECK_ERR(syscall(SYS_clone, CLONE_NEWNS | CLONE_FS | SIGCHLD, 0, 0, 0, 0), EINVAL);
}
CASE(new_namespace_needs_rights) {
    alone();
    t_drop_root();
    CHECK_ERR(unshare(CLONE_NEWNS), EPERM);
}
CASE(setns_goes_back) {
    alone();
    int fd = open("/proc/self/ns/mnt", O_RDONLY);
    CHECK(fd >= 0 && unshare(CLONE_NEWNS) == 0 && mount("t", "a", "tmpfs", 0, NULL) == 0);
    CHECK(*field("a", 8));
    CHECK(setns(fd, CLONE_NEWNS) == 0);
    CHECK(!*field("a", 8));
    char cwd[PATH_MAX];
    CHECK(getcwd(cwd, sizeof cwd) && !strcmp(cwd, "/"));
}
CASE(namespace_lives_as_long_as_its_file) {
    alone();
    int p[2];
    char c;
    CHECK(pipe(p) == 0);
    pid_t child = SPAWN({
        CHECK(unshare(CLONE_NEWNS) == 0 && mount("kept", "a", "tmpfs", 0, NULL) == 0);
        CHECK(write(p[1], "x", 1) == 1 && pause() == -1);
    });
    CHECK(read(p[0], &c, 1) == 1);
    char path[60];
    snprintf(path, sizeof path, "/proc/%d/ns/mnt", child);
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0 && kill(child, SIGKILL) == 0 && join(child) == 128 + SIGKILL);
    CHECK(setns(fd, CLONE_NEWNS) == 0);
    CHECK(!strcmp(field("a", 8), "kept"));
}
static void put(const char *path, const char *text) {
    int fd = open(path, O_WRONLY);
    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && close(fd) == 0);
}
static void apart(void) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0) SKIP("no user namespaces");
    put("/proc/self/setgroups", "deny");
    put("/proc/self/uid_map", "0 0 1");
    put("/proc/self/gid_map", "0 0 1");
}
// In a user namespace of its own: what was there before stays as it is.
static void user(void) {
    alone();
    CHECK(mount("t", "a", "tmpfs", MS_NOSUID, NULL) == 0 && mkdir("a/x", 0755) == 0);
    CHECK(mount("t", "a/x", "tmpfs", 0, NULL) == 0 && mount("t", "b", "tmpfs", MS_RDONLY | MS_NODEV | MS_NOATIME, NULL) == 0);
    apart();
}
CASE(received_mounts_stay) {
    user();
    CHECK_ERR(umount("a/x"), EINVAL);
    CHECK_ERR(umount2("a/x", MNT_DETACH), EINVAL);
    CHECK(mkdir("c", 0755) == 0 && bound("b", "c") == 0 && umount("c") == 0);
}
CASE(received_flags_stay) {
    user();
    CHECK_ERR(again("b", MS_BIND | MS_NODEV | MS_NOATIME, NULL), EPERM);
    CHECK_ERR(again("b", MS_BIND | MS_RDONLY | MS_NOATIME, NULL), EPERM);
    CHECK_ERR(again("b", MS_BIND | MS_RDONLY | MS_NODEV | MS_RELATIME, NULL), EPERM);
    CHECK(again("b", MS_BIND | MS_RDONLY | MS_NODEV | MS_NOATIME | MS_NOEXEC, NULL) == 0);
    CHECK_ERR(again("a", MS_BIND, NULL), EPERM);
    CHECK(again("a", MS_BIND | MS_NOSUID | MS_NODEV, NULL) == 0);
    CHECK_ERR(again("b", MS_RDONLY | MS_NODEV | MS_NOATIME | MS_NOEXEC, NULL), EPERM);  // not the file system's
}
CASE(received_binds_are_whole) {
    user();
    CHECK(mount("t", "/proc", "tmpfs", 0, NULL) == 0 && mkdir("/proc/m", 0755) == 0);
    CHECK_ERR(bound("a", "/proc/m"), EINVAL);
    CHECK(mount("a", "/proc/m", NULL, MS_BIND | MS_REC, NULL) == 0);
    CHECK_ERR(umount("/proc/m/x"), EINVAL);
    CHECK(umount2("/proc/m", MNT_DETACH) == 0);
}
CASE(types_in_a_user_namespace) {
    user();
    CHECK(mount("t", "a/x", "tmpfs", 0, NULL) == 0 && umount("a/x") == 0);
    CHECK(mount("t", "a/x", "ramfs", 0, NULL) == 0 && umount("a/x") == 0);
    CHECK_ERR(mount("/dev/null", "a/x", "erofs", 0, NULL), EPERM);
    CHECK_ERR(mount("x", "a/x", "nosuchfs", 0, NULL), ENODEV);
}
CASE(received_shared_is_a_slave) {
    alone();
    CHECK(mount("t", "a", "tmpfs", 0, NULL) == 0 && mount(NULL, "a", NULL, MS_SHARED, NULL) == 0);
    CHECK(!strncmp(field("a", 6), "shared:", 7));
    int group = atoi(field("a", 6) + 7);
    pid_t child = SPAWN({  // the namespace it came from stays, with its master
        apart();
        CHECK(!strncmp(field("a", 6), "master:", 7));
        CHECK_EQ(atoi(field("a", 6) + 7), group);
    });
    CHECK_EQ(join(child), 0);
}
CASE(slave_of_a_namespace_that_ended) {
    alone();
    CHECK(mount("t", "a", "tmpfs", 0, NULL) == 0 && mount(NULL, "a", NULL, MS_SHARED, NULL) == 0);
    apart();
    CHECK(!strcmp(field("a", 8), "t") && !*field("a", 6));
}
