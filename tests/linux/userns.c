// User namespaces: user_namespaces(7), the maps of /proc, ids and capabilities in them.
#include "ns.h"
#include <sys/fsuid.h>
#include <grp.h>
#include <sys/resource.h>
#include <sys/sendfile.h>

static const char *const UIDS = "0 100000 1000\n", *const GIDS = "0 200000 1000\n";

static uint64_t caps(int which) {
    struct __user_cap_header_struct h = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct d[2];
    CHECK_OK(syscall(SYS_capget, &h, d));
    uint32_t lo[] = {d[0].effective, d[0].permitted, d[0].inheritable}, hi[] = {d[1].effective, d[1].permitted, d[1].inheritable};
    return (uint64_t)hi[which] << 32 | lo[which];
}
static bool has(int cap) { return caps(0) >> cap & 1; }
static void fresh(void) { enter_user("", ""); }
static void mapped(void) {
    needs_root();
    enter_user(UIDS, GIDS);
}
// Mapped, as its root.
static void inner_root(void) {
    mapped();
    CHECK_OK(setresgid(0, 0, 0));
    CHECK_OK(setresuid(0, 0, 0));
}
// A file of somebody, by the ids outside.
static int file_of(int uid, int gid, int mode) {
    int fd = CHECK_OK(open(".", O_TMPFILE | O_RDWR, 0600));
    CHECK_OK(fchown(fd, uid, gid));
    CHECK_OK(fchmod(fd, mode));
    return fd;
}
static int reopen(int fd, int how) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return open(path, how);
}

CASE(ids_are_nobody_before_there_is_a_map) {
    fresh();
    CHECK_EQ(getuid(), 65534);
    CHECK_EQ(geteuid(), 65534);
    CHECK_EQ(getgid(), 65534);
    CHECK_EQ(getegid(), 65534);
}
CASE(its_maker_has_all_capabilities) {
    fresh();
    CHECK_EQ(caps(0), (1ull << 41) - 1);
    CHECK_EQ(caps(1), (1ull << 41) - 1);
    CHECK_EQ(caps(2), 0);
}
CASE(inheritable_and_ambient_are_empty_in_it) {
    needs_root();
    struct __user_cap_header_struct h = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct d[2];
    CHECK_OK(syscall(SYS_capget, &h, d));
    d[0].inheritable = d[0].permitted;
    CHECK_OK(syscall(SYS_capset, &h, d));
    fresh();
    CHECK_EQ(caps(2), 0);
}
CASE(securebits_are_default_in_it) {
    needs_root();
    CHECK_OK(prctl(PR_SET_SECUREBITS, 4));
    fresh();
    CHECK_EQ(prctl(PR_GET_SECUREBITS), 0);
}
CASE(the_first_map_is_everything) {
    unsigned a, b, c;
    CHECK_EQ(sscanf(get("/proc/1/uid_map"), "%u %u %u", &a, &b, &c), 3);
    // Natively the suite may itself be in a namespace.
    CHECK(a == 0 && c > 0);
}
CASE(a_map_is_empty_at_first) {
    fresh();
    CHECK_EQ(strlen(get("/proc/self/uid_map")), 0);
    CHECK_EQ(strlen(get("/proc/self/gid_map")), 0);
    CHECK_EQ(strlen(get("/proc/self/projid_map")), 0);
}
CASE(one_may_map_oneself) {
    char line[64];
    int uid = geteuid();
    snprintf(line, sizeof line, "0 %d 1", uid);
    fresh();
    CHECK_OK(put("/proc/self/uid_map", line));
    CHECK_EQ(getuid(), 0);
}
CASE(one_may_map_oneself_to_any_id) {
    char line[64];
    snprintf(line, sizeof line, "4000 %d 1\n", geteuid());
    fresh();
    CHECK_OK(put("/proc/self/uid_map", line));
    CHECK_EQ(getuid(), 4000);
}
CASE(one_may_not_map_others) {
    fresh();
    CHECK_ERR(put("/proc/self/uid_map", "0 61234 1\n"), EPERM);
}
CASE(one_may_not_map_more_than_oneself) {
    char line[64];
    snprintf(line, sizeof line, "0 %d 2\n", geteuid());
    fresh();
    CHECK_ERR(put("/proc/self/uid_map", line), EPERM);
}
CASE(a_map_is_written_once) {
    char line[64];
    snprintf(line, sizeof line, "0 %d 1\n", geteuid());
    fresh();
    CHECK_OK(put("/proc/self/uid_map", line));
    CHECK_ERR(put("/proc/self/uid_map", line), EPERM);
}
CASE(groups_need_setgroups_denied) {
    char line[64];
    snprintf(line, sizeof line, "0 %d 1\n", getegid());
    fresh();
    CHECK_ERR(put("/proc/self/gid_map", line), EPERM);
    CHECK_OK(put("/proc/self/setgroups", "deny"));
    CHECK_OK(put("/proc/self/gid_map", line));
    CHECK_EQ(getgid(), 0);
}
CASE(setgroups_reads_allow_then_deny) {
    fresh();
    CHECK(!strcmp(get("/proc/self/setgroups"), "allow\n"));
    CHECK_OK(put("/proc/self/setgroups", "deny\n"));
    CHECK(!strcmp(get("/proc/self/setgroups"), "deny\n"));
}
CASE(setgroups_is_not_allowed_again) {
    fresh();
    CHECK_OK(put("/proc/self/setgroups", "allow"));
    CHECK_OK(put("/proc/self/setgroups", "deny"));
    CHECK_ERR(put("/proc/self/setgroups", "allow"), EPERM);
    CHECK_OK(put("/proc/self/setgroups", "deny"));
}
CASE(setgroups_is_not_denied_after_the_map) {
    mapped();
    CHECK_ERR(put("/proc/self/setgroups", "deny"), EPERM);
    CHECK_OK(put("/proc/self/setgroups", "allow"));
}
CASE(setgroups_takes_two_words) {
    fresh();
    CHECK_ERR(put("/proc/self/setgroups", "maybe"), EINVAL);
    CHECK_ERR(put("/proc/self/setgroups", "deny x"), EINVAL);
    CHECK_ERR(put("/proc/self/setgroups", "denydeny"), EINVAL);
}
CASE(setgroups_is_inherited_denied) {
    fresh();
    CHECK_OK(put("/proc/self/setgroups", "deny"));
    char line[64];
    // Its own ids, as the case has them outside.
    snprintf(line, sizeof line, "0 %d 1\n", 0);
    if (put("/proc/self/uid_map", line) || put("/proc/self/gid_map", line)) SKIP("needs root");
    CHECK_OK(unshare(CLONE_NEWUSER));
    CHECK(!strcmp(get("/proc/self/setgroups"), "deny\n"));
    CHECK_ERR(put("/proc/self/setgroups", "allow"), EPERM);
}
CASE(the_call_setgroups_needs_a_map) {
    fresh();
    gid_t g = 0;
    CHECK_ERR(syscall(SYS_setgroups, 0, &g), EPERM);
}
CASE(the_call_setgroups_is_refused_where_denied) {
    needs_root();
    fresh();
    CHECK_OK(put("/proc/self/setgroups", "deny"));
    CHECK_OK(put("/proc/self/gid_map", "0 0 1\n"));
    gid_t g = 0;
    CHECK_ERR(syscall(SYS_setgroups, 1, &g), EPERM);
}
CASE(the_call_setgroups_takes_mapped_groups) {
    mapped();
    gid_t g[2] = {5, 7};
    CHECK_OK(syscall(SYS_setgroups, 2, g));
    CHECK_EQ(getgroups(2, g), 2);
    CHECK(g[0] == 5 && g[1] == 7);
    g[0] = 1000;
    CHECK_ERR(syscall(SYS_setgroups, 2, g), EINVAL);
}
#define BAD_MAP(name, text)                                 \
    CASE(map_##name) {                                      \
        fresh();                                            \
        CHECK_ERR(put("/proc/self/uid_map", text), EINVAL); \
        CHECK_ERR(put("/proc/self/gid_map", text), EINVAL); \
    }
BAD_MAP(without_numbers, "\n")
BAD_MAP(of_words, "zero one two\n")
BAD_MAP(of_two_numbers, "0 0\n")
BAD_MAP(of_four_numbers, "0 0 1 1\n")
BAD_MAP(of_no_ids, "0 0 0\n")
BAD_MAP(with_minus_one_inside, "4294967295 0 1\n")
BAD_MAP(with_minus_one_outside, "0 4294967295 1\n")
BAD_MAP(that_wraps_inside, "4294967290 0 10\n")
BAD_MAP(that_wraps_outside, "0 4294967290 10\n")
BAD_MAP(that_overlaps_inside, "0 0 10\n9 100 10\n")
BAD_MAP(that_overlaps_outside, "0 0 10\n100 9 10\n")
BAD_MAP(with_an_empty_line, "0 0 1\n\n5 5 1\n")
BAD_MAP(with_a_sign, "0 -1 1\n")
CASE(map_of_no_bytes) {
    fresh();
    int fd = CHECK_OK(open("/proc/self/uid_map", O_WRONLY));
    CHECK_ERR(write(fd, "", 0) ? -1 : (errno = EINVAL, -1), EINVAL);
}
CASE(map_with_blanks_and_tabs) {
    needs_root();
    enter_user("  0\t100000   1  \n5 100005 1", GIDS);
    CHECK_OK(setresuid(5, 5, 5));
    CHECK_EQ(getuid(), 5);
}
CASE(map_of_340_lines) {
    needs_root();
    static char text[4096 * 4];
    int at = 0;
    for (int i = 0; i < 340; i++) at += sprintf(text + at, "%d %d 1\n", i, 1000 + i);
    // A write must fit in a page.
    CHECK(at < 4096);
    enter_user(text, "");
    CHECK_OK(setresuid(339, 339, 339));
    CHECK_EQ(getuid(), 339);
    CHECK_ERR(setresuid(340, 340, 340), EINVAL);
}
CASE(map_of_341_lines) {
    static char text[4096 * 4];
    int at = 0;
    for (int i = 0; i < 341; i++) at += sprintf(text + at, "%d %d 1\n", i, i);
    CHECK(at < 4096);
    fresh();
    CHECK_ERR(put("/proc/self/uid_map", text), EINVAL);
}
CASE(map_as_long_as_a_page) {
    static char text[4097];
    memset(text, ' ', 4096);
    memcpy(text, "0 0 1", 5);
    fresh();
    CHECK_ERR(put("/proc/self/uid_map", text), EINVAL);
}
CASE(map_of_the_namespace_one_is_in_from_outside_only_by_the_parent) {
    mapped();
    // A grandchild's map, from its grandparent.
    int ready[2], done[2];
    char byte = 0;
    CHECK_OK(pipe(ready));
    CHECK_OK(pipe(done));
    pid_t middle = SPAWN({
        CHECK_OK(setresgid(0, 0, 0));
        CHECK_OK(setresuid(0, 0, 0));
        CHECK_OK(prctl(PR_SET_DUMPABLE, 1));
        CHECK_OK(unshare(CLONE_NEWUSER));
        CHECK_EQ(write(ready[1], &byte, 1), 1);
        CHECK_EQ(read(done[0], &byte, 1), 1);
    });
    CHECK_EQ(read(ready[0], &byte, 1), 1);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/uid_map", middle);
    CHECK_OK(put(path, "0 0 10\n"));
    CHECK_EQ(write(done[1], &byte, 1), 1);
    CHECK_EQ(join(middle), 0);
}
CASE(map_shows_ids_outside_as_the_reader_has_them) {
    mapped();
    unsigned a, b, c;
    CHECK_EQ(sscanf(get("/proc/self/uid_map"), "%u %u %u", &a, &b, &c), 3);
    CHECK(a == 0 && b == 100000 && c == 1000);
    CHECK_EQ(sscanf(get("/proc/self/gid_map"), "%u %u %u", &a, &b, &c), 3);
    CHECK(a == 0 && b == 200000 && c == 1000);
}
CASE(map_of_a_grandchild_seen_from_inside_and_outside) {
    needs_root();
    int ready[2], done[2];
    char byte = 0, path[64];
    CHECK_OK(pipe(ready));
    CHECK_OK(pipe(done));
    pid_t p = SPAWN({
        inner_root();
        CHECK_OK(prctl(PR_SET_DUMPABLE, 1));
        enter_user("10 20 5\n", "10 20 5\n");
        unsigned a;
        unsigned b;
        unsigned c;
        CHECK_EQ(sscanf(get("/proc/self/uid_map"), "%u %u %u", &a, &b, &c), 3);
        CHECK(a == 10 && b == 20 && c == 5);
        CHECK_EQ(write(ready[1], &byte, 1), 1);
        CHECK_EQ(read(done[0], &byte, 1), 1);
    });
    CHECK_EQ(read(ready[0], &byte, 1), 1);
    snprintf(path, sizeof path, "/proc/%d/uid_map", p);
    unsigned a, b, c;
    CHECK_EQ(sscanf(get(path), "%u %u %u", &a, &b, &c), 3);
    CHECK(a == 10 && b == 100020 && c == 5);
    CHECK_EQ(write(done[1], &byte, 1), 1);
    CHECK_EQ(join(p), 0);
}
CASE(map_of_ids_that_the_parent_has_not) {
    inner_root();
    CHECK_OK(prctl(PR_SET_DUMPABLE, 1));
    int ready[2], done[2];
    char byte = 0, path[64];
    CHECK_OK(pipe(ready));
    CHECK_OK(pipe(done));
    pid_t p = SPAWN({
        CHECK_OK(unshare(CLONE_NEWUSER));
        CHECK_EQ(write(ready[1], &byte, 1), 1);
        CHECK_EQ(read(done[0], &byte, 1), 1);
    });
    CHECK_EQ(read(ready[0], &byte, 1), 1);
    snprintf(path, sizeof path, "/proc/%d/uid_map", p);
    CHECK_ERR(put(path, "0 995 10\n"), EPERM);
    CHECK_ERR(put(path, "0 5000 1\n"), EPERM);
    CHECK_OK(put(path, "0 990 10\n"));
    CHECK_EQ(write(done[1], &byte, 1), 1);
    CHECK_EQ(join(p), 0);
}
CASE(projects_may_be_mapped_by_all) {
    fresh();
    CHECK_OK(put("/proc/self/projid_map", "0 7 3\n"));
    unsigned a, b, c;
    CHECK_EQ(sscanf(get("/proc/self/projid_map"), "%u %u %u", &a, &b, &c), 3);
    CHECK(a == 0 && b == 7 && c == 3);
    CHECK_ERR(put("/proc/self/projid_map", "0 7 3\n"), EPERM);
}
CASE(setuid_takes_mapped_ids) {
    mapped();
    CHECK_EQ(getuid(), 65534);
    CHECK_ERR(setuid(1000), EINVAL);
    CHECK_ERR(setreuid(-1, 1000), EINVAL);
    CHECK_ERR(setresuid(-1, -1, 5000), EINVAL);
    CHECK_OK(setresuid(999, 7, 0));
    uid_t r, e, s;
    CHECK_OK(getresuid(&r, &e, &s));
    CHECK(r == 999 && e == 7 && s == 0);
}
CASE(setgid_takes_mapped_ids) {
    mapped();
    CHECK_ERR(setgid(1000), EINVAL);
    CHECK_ERR(setregid(1000, -1), EINVAL);
    CHECK_ERR(setresgid(1, 2, 1000), EINVAL);
    CHECK_OK(setresgid(1, 2, 3));
    gid_t r, e, s;
    CHECK_OK(getresgid(&r, &e, &s));
    CHECK(r == 1 && e == 2 && s == 3);
}
CASE(setfsuid_overlooks_ids_that_are_not_there) {
    inner_root();
    CHECK_EQ(setfsuid(1000), 0);
    CHECK_EQ(setfsuid(5), 0);
    CHECK_EQ(setfsuid(-1), 5);
    CHECK_EQ(setfsgid(2000), 0);
    CHECK_EQ(setfsgid(6), 0);
    CHECK_EQ(setfsgid(-1), 6);
}
CASE(leaving_root_takes_the_capabilities_away) {
    inner_root();
    CHECK(has(CAP_SYS_ADMIN));
    CHECK_OK(setresuid(5, 5, 5));
    CHECK_EQ(caps(0), 0);
    CHECK_EQ(caps(1), 0);
    CHECK_ERR(setuid(0), EPERM);
}
CASE(who_is_not_root_keeps_capabilities_over_setuid) {
    mapped();
    CHECK_OK(setresuid(5, 5, 5));
    CHECK(has(CAP_SYS_ADMIN));
}
CASE(groups_that_are_not_there_are_nobodys) {
    needs_root();
    gid_t g[2] = {4000, 200001};
    CHECK_OK(syscall(SYS_setgroups, 2, g));
    enter_user(UIDS, GIDS);
    CHECK_EQ(getgroups(2, g), 2);
    CHECK(g[0] == 65534 && g[1] == 1);
}
CASE(status_shows_ids_of_the_reader) {
    inner_root();
    unsigned a = 9, b = 9;
    CHECK(sscanf(strstr(get("/proc/self/status"), "\nUid:"), "\nUid:\t%u\t%u", &a, &b) == 2);
    CHECK(a == 0 && b == 0);
    CHECK(sscanf(strstr(get("/proc/self/status"), "\nGid:"), "\nGid:\t%u\t%u", &a, &b) == 2);
    CHECK(a == 0 && b == 0);
}
CASE(stat_shows_mapped_owners) {
    needs_root();
    int a = file_of(100005, 200006, 0600), b = file_of(0, 0, 0600);
    enter_user(UIDS, GIDS);
    struct stat st;
    CHECK_OK(fstat(a, &st));
    CHECK(st.st_uid == 5 && st.st_gid == 6);
    CHECK_OK(fstat(b, &st));
    CHECK(st.st_uid == 65534 && st.st_gid == 65534);
    struct statx sx;
    CHECK_OK(statx(a, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &sx));
    CHECK(sx.stx_uid == 5 && sx.stx_gid == 6);
}
CASE(new_files_belong_to_the_id_outside) {
    needs_root();
    char dir[] = "userns-XXXXXX";
    CHECK(mkdtemp(dir));
    CHECK_OK(chmod(dir, 0777));
    int at = CHECK_OK(open(dir, O_RDONLY | O_DIRECTORY));
    CHECK_EQ(join(SPAWN({
        inner_root();
        CHECK_OK(openat(at, "f", O_CREAT | O_RDWR, 0600));
        struct stat in;
        CHECK_OK(fstatat(at, "f", &in, 0));
        CHECK(in.st_uid == 0 && in.st_gid == 0);
    })), 0);
    struct stat st;
    CHECK_OK(fstatat(at, "f", &st, 0));
    CHECK(st.st_uid == 100000 && st.st_gid == 200000);
    CHECK_OK(unlinkat(at, "f", 0));
    CHECK_OK(rmdir(dir));
}
CASE(chown_takes_mapped_ids) {
    needs_root();
    int fd = file_of(100000, 200000, 0600);
    CHECK_EQ(join(SPAWN({
        inner_root();
        CHECK_ERR(fchown(fd, 1000, -1), EINVAL);
        CHECK_ERR(fchown(fd, -1, 70000), EINVAL);
        CHECK_OK(fchown(fd, 8, 9));
    })), 0);
    struct stat st;
    CHECK_OK(fstat(fd, &st));
    CHECK(st.st_uid == 100008 && st.st_gid == 200009);
}
CASE(chown_of_a_strangers_file) {
    needs_root();
    int fd = file_of(0, 0, 0666);
    inner_root();
    CHECK_ERR(fchown(fd, 0, 0), EPERM);
    CHECK_ERR(fchmod(fd, 0600), EPERM);
}
CASE(a_file_needs_both_ids_mapped_for_capabilities) {
    needs_root();
    int uid_only = file_of(100005, 0, 0600), both = file_of(100005, 200005, 0600);
    inner_root();
    CHECK_ERR(reopen(uid_only, O_RDWR), EACCES);
    CHECK_OK(reopen(both, O_RDWR));
}
CASE(no_override_for_a_strangers_file) {
    needs_root();
    int fd = file_of(0, 0, 0600);
    inner_root();
    CHECK(has(CAP_DAC_OVERRIDE));
    CHECK_ERR(reopen(fd, O_RDONLY), EACCES);
}
CASE(others_bits_count_for_a_strangers_file) {
    needs_root();
    int fd = file_of(0, 0, 0604);
    inner_root();
    CHECK_OK(reopen(fd, O_RDONLY));
    CHECK_ERR(reopen(fd, O_RDWR), EACCES);
}
CASE(fowner_counts_by_the_owner_alone) {
    needs_root();
    int fd = file_of(100007, 200007, 0600);
    inner_root();
    CHECK_OK(fchmod(fd, 0640));
}
CASE(the_host_name_belongs_to_another_namespace) {
    fresh();
    CHECK(has(CAP_SYS_ADMIN));
    CHECK_ERR(sethostname("x", 1), EPERM);
    CHECK_ERR(setdomainname("x", 1), EPERM);
}
CASE(a_new_uts_namespace_belongs_to_it) {
    fresh();
    CHECK_OK(unshare(CLONE_NEWUTS));
    CHECK_OK(sethostname("inner", 5));
}
CASE(both_at_once) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWUTS)) SKIP("no user namespaces here");
    CHECK_OK(sethostname("inner", 5));
}
CASE(global_things_stay_out_of_reach) {
    fresh();
    struct timespec ts;
    CHECK_OK(clock_gettime(CLOCK_REALTIME, &ts));
    CHECK_ERR(clock_settime(CLOCK_REALTIME, &ts), EPERM);
    CHECK_ERR(setpriority(PRIO_PROCESS, 0, -5), EACCES);
}
CASE(hard_limits_are_not_raised) {
    struct rlimit r;
    CHECK_OK(getrlimit(RLIMIT_NOFILE, &r));
    r.rlim_max = r.rlim_cur = 20;
    CHECK_OK(setrlimit(RLIMIT_NOFILE, &r));
    fresh();
    r.rlim_max = 30;
    CHECK_ERR(setrlimit(RLIMIT_NOFILE, &r), EPERM);
}
CASE(chroot_needs_the_capability_here_only) {
    fresh();
    CHECK_OK(chroot("/"));
}
CASE(nobody_outside_is_signalled) {
    needs_root();
    pid_t outside = SPAWN(pause());
    pid_t p = SPAWN({
        inner_root();
        CHECK(has(CAP_KILL));
        CHECK_ERR(kill(outside, 0), EPERM);
        CHECK_ERR(kill(outside, SIGKILL), EPERM);
    });
    CHECK_EQ(join(p), 0);
    CHECK_OK(kill(outside, SIGKILL));
    CHECK_EQ(join(outside), 128 + SIGKILL);
}
CASE(its_maker_may_signal_those_in_it) {
    needs_root();
    CHECK_EQ(join(SPAWN({
        CHECK_OK(setresgid(1000, 1000, 1000));
        CHECK_OK(setresuid(1000, 1000, 1000));
        int ready[2];
        char byte = 0;
        CHECK_OK(pipe(ready));
        pid_t p = SPAWN({
            CHECK_OK(unshare(CLONE_NEWUSER));
            CHECK_EQ(write(ready[1], &byte, 1), 1);
            pause();
        });
        CHECK_EQ(read(ready[0], &byte, 1), 1);
        CHECK_OK(kill(p, SIGKILL));
        CHECK_EQ(join(p), 128 + SIGKILL);
    })), 0);
}
CASE(its_maker_has_its_capabilities_from_outside) {
    needs_root();
    CHECK_EQ(join(SPAWN({
        CHECK_OK(setresgid(1000, 1000, 1000));
        CHECK_OK(setresuid(1000, 1000, 1000));
        CHECK_OK(prctl(PR_SET_DUMPABLE, 1));
        int ready[2];
        char byte = 0;
        char path[64];
        CHECK_OK(pipe(ready));
        pid_t p = SPAWN({
            CHECK_OK(unshare(CLONE_NEWUSER));
            CHECK_EQ(write(ready[1], &byte, 1), 1);
            pause();
        });
        CHECK_EQ(read(ready[0], &byte, 1), 1);
        snprintf(path, sizeof path, "/proc/%d/ns/user", p);
        int fd = CHECK_OK(open(path, O_RDONLY));
        CHECK_OK(setns(fd, CLONE_NEWUSER));
        CHECK(has(CAP_SYS_ADMIN));
        CHECK_EQ(getuid(), 65534);
        CHECK_OK(kill(p, SIGKILL));
    })), 0);
}
CASE(an_ordinary_user_makes_one) {
    needs_root();
    CHECK_EQ(join(SPAWN({
        CHECK_OK(syscall(SYS_setgroups, 0, NULL));
        CHECK_OK(setresgid(1000, 1000, 1000));
        CHECK_OK(setresuid(1000, 1000, 1000));
        CHECK_OK(prctl(PR_SET_DUMPABLE, 1));
        CHECK_ERR(unshare(CLONE_NEWUTS), EPERM);
        CHECK_OK(unshare(CLONE_NEWUSER));
        CHECK_OK(put("/proc/self/setgroups", "deny"));
        CHECK_OK(put("/proc/self/uid_map", "0 1000 1\n"));
        CHECK_OK(put("/proc/self/gid_map", "0 1000 1\n"));
        CHECK(getuid() == 0 && getgid() == 0);
        CHECK_OK(unshare(CLONE_NEWUTS));
    })), 0);
}
CASE(an_ordinary_user_does_not_map_root) {
    needs_root();
    CHECK_EQ(join(SPAWN({
        CHECK_OK(setresuid(1000, 1000, 1000));
        CHECK_OK(prctl(PR_SET_DUMPABLE, 1));
        CHECK_OK(unshare(CLONE_NEWUSER));
        CHECK_ERR(put("/proc/self/uid_map", "0 0 1\n"), EPERM);
    })), 0);
}
CASE(root_without_setfcap_does_not_map_itself) {
    needs_root();
    struct __user_cap_header_struct h = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct d[2];
    CHECK_OK(syscall(SYS_capget, &h, d));
    d[0].effective &= ~(1u << CAP_SETFCAP);
    CHECK_OK(syscall(SYS_capset, &h, d));
    fresh();
    CHECK_ERR(put("/proc/self/uid_map", "0 0 1\n"), EPERM);
}
CASE(not_from_a_process_with_threads) {
    second_thread();
    CHECK_ERR(unshare(CLONE_NEWUSER), EINVAL);
}
CASE(not_together_with_shared_places) {
    CHECK_ERR(raw_clone(CLONE_NEWUSER | CLONE_FS), EINVAL);
}
CASE(not_for_a_thread) {
    CHECK_ERR(raw_clone(CLONE_NEWUSER | CLONE_THREAD | CLONE_SIGHAND | CLONE_VM), EINVAL);
}
CASE(not_by_somebody_without_an_id) {
    fresh();
    CHECK_ERR(unshare(CLONE_NEWUSER), EPERM);
    CHECK_ERR(raw_clone(CLONE_NEWUSER), EPERM);
}
CASE(not_in_a_changed_root) {
    needs_root();
    char dir[] = "userns-XXXXXX";
    CHECK(mkdtemp(dir));
    CHECK_OK(chroot(dir));
    CHECK_ERR(unshare(CLONE_NEWUSER), EPERM);
}
CASE(depth_is_bounded) {
    needs_root();
    int n = 0;
    while (n < 40 && unshare(CLONE_NEWUSER) == 0) {
        n++;
        CHECK_OK(put("/proc/self/uid_map", "0 0 1\n"));
        CHECK_OK(put("/proc/self/setgroups", "deny"));
        CHECK_OK(put("/proc/self/gid_map", "0 0 1\n"));
    }
    CHECK_EQ(errno, ENOSPC);
    // Less where the suite is in one itself.
    CHECK(n <= 33 && n > 25);
}
CASE(clone_makes_one_for_the_child_alone) {
    int uid = getuid();
    long p = raw_clone(CLONE_NEWUSER);
    if (p < 0) SKIP("no user namespaces here");
    if (p == 0) {
        CHECK_EQ(getuid(), 65534);
        CHECK(has(CAP_SYS_ADMIN));
        _exit(0);
    }
    CHECK_EQ(join(p), 0);
    CHECK_EQ(getuid(), uid);
}
CASE(children_are_in_it) {
    fresh();
    const char *mine = ns_link("user");
    CHECK_EQ(join(SPAWN(CHECK(!strcmp(mine, ns_link("user"))))), 0);
}
CASE(setns_to_the_own_one) {
    int fd = ns_fd("user");
    CHECK_ERR(setns(fd, CLONE_NEWUSER), EINVAL);
    CHECK_ERR(setns(fd, 0), EINVAL);
}
CASE(setns_to_the_parent) {
    int fd = ns_fd("user");
    fresh();
    CHECK_ERR(setns(fd, CLONE_NEWUSER), EPERM);
}
CASE(setns_with_threads) {
    needs_root();
    long p = raw_clone(CLONE_NEWUSER);
    CHECK(p >= 0);
    if (p == 0) pause(), _exit(0);
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/ns/user", p);
    int fd = CHECK_OK(open(path, O_RDONLY));
    second_thread();
    CHECK_ERR(setns(fd, CLONE_NEWUSER), EINVAL);
    CHECK_OK(kill(p, SIGKILL));
}
CASE(owner_of_one) {
    long p = raw_clone(CLONE_NEWUSER);
    if (p < 0) SKIP("no user namespaces here");
    if (p == 0) pause(), _exit(0);
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/ns/user", p);
    int fd = CHECK_OK(open(path, O_RDONLY));
    uid_t owner = 77;
    CHECK_OK(ioctl(fd, GET_OWNER_UID, &owner));
    CHECK_EQ(owner, geteuid());
    CHECK_OK(kill(p, SIGKILL));
}
CASE(parent_of_one) {
    ino_t mine = ns_ino(ns_fd("user"));
    long p = raw_clone(CLONE_NEWUSER);
    if (p < 0) SKIP("no user namespaces here");
    if (p == 0) pause(), _exit(0);
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/ns/user", p);
    int fd = CHECK_OK(open(path, O_RDONLY));
    CHECK_EQ(ns_ino(CHECK_OK(ioctl(fd, GET_PARENT))), mine);
    CHECK_EQ(ns_ino(CHECK_OK(ioctl(fd, GET_USERNS))), mine);
    CHECK_OK(kill(p, SIGKILL));
}
CASE(parent_of_the_own_one_is_out_of_sight) {
    fresh();
    int fd = ns_fd("user");
    CHECK_ERR(ioctl(fd, GET_PARENT), EPERM);
    CHECK_ERR(ioctl(fd, GET_USERNS), EPERM);
}
CASE(peers_are_shown_with_mapped_ids) {
    needs_root();
    int s[2];
    CHECK_OK(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
    inner_root();
    struct ucred c;
    socklen_t n = sizeof c;
    CHECK_OK(getsockopt(s[0], SOL_SOCKET, SO_PEERCRED, &c, &n));
    CHECK(c.uid == 65534 && c.gid == 65534);
    CHECK_OK(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
    CHECK_OK(getsockopt(s[0], SOL_SOCKET, SO_PEERCRED, &c, &n));
    CHECK(c.uid == 0 && c.gid == 0);
}
static struct ucred passed(int fd) {
    char data, control[CMSG_SPACE(sizeof(struct ucred))];
    struct iovec v = {&data, 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    CHECK_EQ(recvmsg(fd, &m, 0), 1);
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    CHECK(c && c->cmsg_type == SCM_CREDENTIALS);
    return *(struct ucred *)CMSG_DATA(c);
}
static long pass(int fd, struct ucred u) {
    char data = 0, control[CMSG_SPACE(sizeof u)] = {0};
    struct iovec v = {&data, 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    *c = (struct cmsghdr){CMSG_LEN(sizeof u), SOL_SOCKET, SCM_CREDENTIALS};
    memcpy(CMSG_DATA(c), &u, sizeof u);
    return sendmsg(fd, &m, 0);
}
CASE(messages_carry_ids_of_the_receiver) {
    needs_root();
    int s[2], on = 1;
    CHECK_OK(socketpair(AF_UNIX, SOCK_DGRAM, 0, s));
    CHECK_OK(setsockopt(s[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof on));
    CHECK_EQ(join(SPAWN({
        inner_root();
        CHECK_EQ(pass(s[1], (struct ucred){getpid(), 5, 6}), 1);
        CHECK_ERR(pass(s[1], (struct ucred){getpid(), 1000, 0}), EINVAL);
    })), 0);
    struct ucred c = passed(s[0]);
    CHECK(c.uid == 100005 && c.gid == 200006);
}
CASE(messages_from_outside_are_nobodys) {
    needs_root();
    int s[2], on = 1;
    CHECK_OK(socketpair(AF_UNIX, SOCK_DGRAM, 0, s));
    CHECK_OK(setsockopt(s[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof on));
    CHECK_EQ(pass(s[1], (struct ucred){getpid(), 0, 0}), 1);
    inner_root();
    struct ucred c = passed(s[0]);
    CHECK(c.uid == 65534 && c.gid == 65534);
}
CASE(signals_tell_the_receivers_ids) {
    needs_root();
    sigset_t set;
    siginfo_t i;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    CHECK_OK(sigprocmask(SIG_BLOCK, &set, NULL));
    CHECK_OK(kill(getpid(), SIGUSR1));
    inner_root();
    CHECK_EQ(sigwaitinfo(&set, &i), SIGUSR1);
    CHECK_OK(kill(getpid(), SIGUSR1));
    CHECK_EQ(sigwaitinfo(&set, &i), SIGUSR1);
    CHECK_EQ(i.si_uid, 0);
}
CASE(waitid_tells_the_waiters_ids) {
    inner_root();
    pid_t p = SPAWN(CHECK_OK(setresuid(7, 7, 7)));
    siginfo_t i;
    CHECK_OK(waitid(P_PID, p, &i, WEXITED));
    CHECK_EQ(i.si_uid, 7);
}
CASE(exec_as_root_of_it_keeps_capabilities) {
    inner_root();
    CHECK_EQ(join(SPAWN({
        execl("/bin/sh", "sh", "-c", "grep -q 'CapEff:.000001ffffffffff' /proc/self/status || while read a b; do "
              "[ \"$a\" = CapEff: ] && [ \"$b\" = 000001ffffffffff ] && exit 0; done < /proc/self/status && exit 0; exit 1", NULL);
        _exit(9);
    })), 0);
}
CASE(exec_as_somebody_else_loses_them) {
    mapped();
    CHECK_OK(setresuid(5, 5, 5));
    CHECK_EQ(join(SPAWN({
        execl("/bin/sh", "sh", "-c", "while read a b; do [ \"$a\" = CapEff: ] && [ \"$b\" = 0000000000000000 ] && exit 0; done "
              "< /proc/self/status; exit 1", NULL);
        _exit(9);
    })), 0);
}
CASE(exec_of_a_strangers_setuid_program) {
    needs_root();
    char name[] = "suid-XXXXXX";
    int fd = CHECK_OK(mkstemp(name)), sh = CHECK_OK(open("/bin/sh", O_RDONLY));
    struct stat st;
    CHECK_OK(fstat(sh, &st));
    for (off_t at = 0; at < st.st_size;) CHECK(sendfile(fd, sh, &at, st.st_size - at) > 0);
    CHECK_OK(fchown(fd, 1, 1));
    CHECK_OK(fchmod(fd, 06755));
    close(fd);
    fd = CHECK_OK(open(name, O_RDONLY));
    unlink(name);
    inner_root();
    CHECK_EQ(join(SPAWN({
        char *argv[] = {"sh", "-pc", "while read a b c d; do [ \"$a\" = Uid: ] && [ \"$c\" = 0 ] && exit 0; done < /proc/self/status; exit 1", NULL};
        fexecve(fd, argv, environ);
        _exit(9);
    })), 0);
}
CASE(exec_of_a_setuid_program_of_a_mapped_user) {
    needs_root();
    char name[] = "suid-XXXXXX";
    int fd = CHECK_OK(mkstemp(name)), sh = CHECK_OK(open("/bin/sh", O_RDONLY));
    struct stat st;
    CHECK_OK(fstat(sh, &st));
    for (off_t at = 0; at < st.st_size;) CHECK(sendfile(fd, sh, &at, st.st_size - at) > 0);
    CHECK_OK(fchown(fd, 100003, 200003));
    CHECK_OK(fchmod(fd, 04755));
    close(fd);
    fd = CHECK_OK(open(name, O_RDONLY));
    unlink(name);
    inner_root();
    CHECK_EQ(join(SPAWN({
        char *argv[] = {"sh", "-pc", "while read a b c d; do [ \"$a\" = Uid: ] && [ \"$c\" = 3 ] && exit 0; done < /proc/self/status; exit 1", NULL};
        fexecve(fd, argv, environ);
        _exit(9);
    })), 0);
}
CASE(a_limit_of_its_own) {
    needs_root();
    enter_user("0 0 10\n", "0 0 10\n");
    if (put("/proc/sys/user/max_uts_namespaces", "1")) SKIP("/proc/sys is read-only here");
    pid_t p = raw_clone(CLONE_NEWUTS);
    CHECK(p >= 0);
    if (p == 0) pause(), _exit(0);
    CHECK_ERR(unshare(CLONE_NEWUTS), ENOSPC);
    CHECK_ERR(raw_clone(CLONE_NEWUTS), ENOSPC);
    CHECK_OK(kill(p, SIGKILL));
    CHECK_EQ(join(p), 128 + SIGKILL);
    // What has ended counts no more, a little later.
    int r = -1;
    for (int i = 0; i < 1000 && r; i++) r = unshare(CLONE_NEWUTS), msleep(1);
    CHECK_EQ(r, 0);
}
CASE(a_limit_on_namespaces_below) {
    needs_root();
    enter_user("0 0 10\n", "0 0 10\n");
    if (put("/proc/sys/user/max_user_namespaces", "0")) SKIP("/proc/sys is read-only here");
    CHECK_ERR(unshare(CLONE_NEWUSER), ENOSPC);
    CHECK_ERR(raw_clone(CLONE_NEWUSER), ENOSPC);
}
CASE(limits_are_numbers) {
    needs_root();
    enter_user("0 0 10\n", "0 0 10\n");
    if (put("/proc/sys/user/max_pid_namespaces", "5")) SKIP("/proc/sys is read-only here");
    CHECK(!strcmp(get("/proc/sys/user/max_pid_namespaces"), "5\n"));
    CHECK_ERR(put("/proc/sys/user/max_pid_namespaces", "-1"), EINVAL);
    CHECK_ERR(put("/proc/sys/user/max_pid_namespaces", "many"), EINVAL);
}
