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
