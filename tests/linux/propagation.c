// How mounts propagate (mount_namespaces(7), sharedsubtree): each case in a mount namespace of its own.
#include "t.h"
#include <sched.h>
#include <sys/mount.h>

static char here[PATH_MAX];

// A tmpfs of the case's own, in its own namespace, so that nothing of the host's is touched.
static void own(void) {
    scratch();
    if (geteuid()) SKIP("needs root");
    CHECK(unshare(CLONE_NEWNS) == 0);
    CHECK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    CHECK(mkdir("top", 0755) == 0 && mount("top", "top", "tmpfs", 0, NULL) == 0 && chdir("top") == 0);
    CHECK(getcwd(here, sizeof here) != NULL);
}
static void dirs(const char *names) {
    char all[200], *p = all;
    strcpy(all, names);
    for (char *n; (n = strsep(&p, " "));) CHECK(mkdir(n, 0755) == 0);
}
static int tmpfs(const char *at) { return mount("t", at, "tmpfs", 0, NULL); }
static int mbind(const char *from, const char *to) { return mount(from, to, NULL, MS_BIND, NULL); }
static int rbind(const char *from, const char *to) { return mount(from, to, NULL, MS_BIND | MS_REC, NULL); }
static int make(const char *at, unsigned long kind) { return mount(NULL, at, NULL, kind, NULL); }

// The last row of mountinfo for a place, from its optional fields on; "" if nothing is mounted there.
static char *row(const char *at) {
    static char found[4][600];
    static int turn;
    char want[PATH_MAX + 300], *best = found[turn++ & 3];
    snprintf(want, sizeof want, "%s%s%s", at[0] == '/' ? "" : here, at[0] == '/' ? "" : "/", at);
    *best = 0;
    char *text = strdup(slurp("/proc/self/mountinfo"));
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        char point[PATH_MAX];
        int n = 0;
        if (sscanf(line, "%*d %*d %*s %*s %s %*s %n", point, &n) == 1 && n && !strcmp(point, want))
            snprintf(best, 600, "%s", line + n);
    }
    free(text);
    return best;
}
static int count(const char *at) {
    char want[PATH_MAX + 300];
    int n = 0;
    snprintf(want, sizeof want, " %s/%s ", here, at);
    char *text = slurp("/proc/self/mountinfo");
    for (char *p = text; (p = strstr(p, want)); p++) n++;
    return n;
}
// The number behind a tag of a place, 0 if it has none.
static int tag(const char *at, const char *name) {
    char *r = row(at), *end = strstr(r, "- ");
    char *p = strstr(r, name);
    return p && p < end ? atoi(p + strlen(name)) : 0;
}
#define SHARED(at) tag(at, "shared:")
#define MASTER(at) tag(at, "master:")
static int unbindable(const char *at) { return !strncmp(row(at), "unbindable", 10); }
static int mounted(const char *at) { return row(at)[0] != 0; }

CASE(private_at_first) {
    own(); dirs("a");
    CHECK(tmpfs("a") == 0);
    CHECK_EQ(SHARED("a"), 0);
    CHECK_EQ(MASTER("a"), 0);
}
CASE(shared_has_a_number) {
    own(); dirs("a");
    CHECK(tmpfs("a") == 0 && make("a", MS_SHARED) == 0);
    CHECK(SHARED("a") > 0);
    int n = SHARED("a");
    CHECK(make("a", MS_SHARED) == 0);
    CHECK_EQ(SHARED("a"), n);
}
CASE(private_again) {
    own(); dirs("a");
    CHECK(tmpfs("a") == 0 && make("a", MS_SHARED) == 0 && make("a", MS_PRIVATE) == 0);
    CHECK_EQ(SHARED("a"), 0);
}
CASE(each_shared_mount_has_its_own_group) {
    own(); dirs("a b");
    CHECK(tmpfs("a") == 0 && tmpfs("b") == 0 && make("a", MS_SHARED) == 0 && make("b", MS_SHARED) == 0);
    CHECK(SHARED("a") != SHARED("b"));
}
CASE(bind_of_shared_is_a_peer) {
    own(); dirs("a b");
    CHECK(tmpfs("a") == 0 && make("a", MS_SHARED) == 0 && mbind("a", "b") == 0);
    CHECK(SHARED("a") > 0);
    CHECK_EQ(SHARED("a"), SHARED("b"));
}
CASE(bind_of_private_is_private) {
    own(); dirs("a b");
    CHECK(tmpfs("a") == 0 && mbind("a", "b") == 0);
    CHECK_EQ(SHARED("b"), 0);
}
CASE(mount_propagates_to_peers) {
    own(); dirs("a b");
    CHECK(tmpfs("a") == 0 && make("a", MS_SHARED) == 0 && mbind("a", "b") == 0);
    dirs("a/x");
    CHECK(tmpfs("a/x") == 0);
    CHECK(mounted("b/x"));
    CHECK(SHARED("a/x") > 0);
    CHECK_EQ(SHARED("a/x"), SHARED("b/x"));
    close(mkfile("b/x/f", ""));
    CHECK(access("a/x/f", F_OK) == 0);
}
CASE(mount_propagates_both_ways) {
    own(); dirs("a b");
    CHECK(tmpfs("a") == 0 && make("a", MS_SHARED) == 0 && mbind("a", "b") == 0);
    dirs("a/x");
    CHECK(tmpfs("b/x") == 0);
    CHECK(mounted("a/x"));
}
CASE(unmount_propagates) {
    own(); dirs("a b");
    CHECK(tmpfs("a") == 0 && make("a", MS_SHARED) == 0 && mbind("a", "b") == 0);
    dirs("a/x");
    CHECK(tmpfs("a/x") == 0 && umount("b/x") == 0);
    CHECK(!mounted("a/x") && !mounted("b/x"));
}
CASE(unmount_of_a_peer_leaves_the_other) {
    own(); dirs("a b");
    CHECK(tmpfs("a") == 0 && make("a", MS_SHARED) == 0 && mbind("a", "b") == 0);
    CHECK(umount("b") == 0);
    CHECK(mounted("a") && SHARED("a") > 0);
}
CASE(lazy_unmount_propagates) {
    own(); dirs("a b");
    CHECK(tmpfs("a") == 0 && make("a", MS_SHARED) == 0 && mbind("a", "b") == 0);
    dirs("a/x");
    CHECK(tmpfs("a/x") == 0);
    int fd = open("b/x", O_RDONLY);
    CHECK_ERR(umount("a/x"), EBUSY);
    CHECK(umount2("a/x", MNT_DETACH) == 0);
    CHECK(!mounted("b/x"));
    close(fd);
}
CASE(busy_peer_refuses) {
    own(); dirs("a b");
    CHECK(tmpfs("a") == 0 && make("a", MS_SHARED) == 0 && mbind("a", "b") == 0);
    dirs("a/x");
    CHECK(tmpfs("a/x") == 0);
    int fd = open("b/x", O_RDONLY);
    CHECK_ERR(umount("a/x"), EBUSY);
    close(fd);
    CHECK(umount("a/x") == 0 && !mounted("b/x"));
}
CASE(private_does_not_propagate) {
    own(); dirs("a b");
    CHECK(tmpfs("a") == 0 && mbind("a", "b") == 0);
    dirs("a/x");
    CHECK(tmpfs("a/x") == 0 && !mounted("b/x"));
}
CASE(slave_of_shared) {
    own(); dirs("a b");
    CHECK(tmpfs("a") == 0 && make("a", MS_SHARED) == 0 && mbind("a", "b") == 0 && make("b", MS_SLAVE) == 0);
    CHECK_EQ(SHARED("b"), 0);
    CHECK_EQ(MASTER("b"), SHARED("a"));
}
CASE(slave_receives) {
    own(); dirs("a b");
    CHECK(tmpfs("a") == 0 && make("a", MS_SHARED) == 0 && mbind("a", "b") == 0 && make("b", MS_SLAVE) == 0);
    dirs("a/x");
    CHECK(tmpfs("a/x") == 0 && mounted("b/x"));
    CHECK_EQ(MASTER("b/x"), SHARED("a/x"));
    CHECK_EQ(SHARED("b/x"), 0);
}
CASE(slave_does_not_give) {
    own(); dirs("a b");
    CHECK(tmpfs("a") == 0 && make("a", MS_SHARED) == 0 && mbind("a", "b") == 0 && make("b", MS_SLAVE) == 0);
    dirs("a/x");
    CHECK(tmpfs("b/x") == 0 && !mounted("a/x"));
    CHECK_EQ(MASTER("b/x"), 0);
}
CASE(slave_loses_with_master) {
    own(); dirs("a b");
    CHECK(tmpfs("a") == 0 && make("a", MS_SHARED) == 0 && mbind("a", "b") == 0 && make("b", MS_SLAVE) == 0);
    dirs("a/x");
    CHECK(tmpfs("a/x") == 0 && umount("a/x") == 0 && !mounted("b/x"));
}
CASE(slave_unmounts_alone) {
    own(); dirs("a b");
    CHECK(tmpfs("a") == 0 && make("a", MS_SHARED) == 0 && mbind("a", "b") == 0 && make("b", MS_SLAVE) == 0);
    dirs("a/x");
    CHECK(tmpfs("a/x") == 0 && umount("b/x") == 0 && mounted("a/x"));
    CHECK(umount("a/x") == 0);
}
CASE(slave_and_shared) {
    own(); dirs("a b c");
    CHECK(tmpfs("a") == 0 && make("a", MS_SHARED) == 0 && mbind("a", "b") == 0);
    CHECK(make("b", MS_SLAVE) == 0 && make("b", MS_SHARED) == 0 && mbind("b", "c") == 0);
    CHECK_EQ(MASTER("b"), SHARED("a"));
    CHECK(SHARED("b") && SHARED("b") != SHARED("a"));
    CHECK_EQ(SHARED("c"), SHARED("b"));
    CHECK_EQ(MASTER("c"), SHARED("a"));
}
CASE(through_slave_and_shared) {
    own(); dirs("a b c");
    CHECK(tmpfs("a") == 0 && make("a", MS_SHARED) == 0 && mbind("a", "b") == 0);
    CHECK(make("b", MS_SLAVE) == 0 && make("b", MS_SHARED) == 0 && mbind("b", "c") == 0);
    dirs("a/x");
    CHECK(tmpfs("a/x") == 0 && mounted("b/x") && mounted("c/x"));
    CHECK_EQ(MASTER("b/x"), SHARED("a/x"));
    CHECK_EQ(MASTER("c/x"), SHARED("a/x"));
    CHECK(SHARED("b/x") > 0);
    CHECK_EQ(SHARED("b/x"), SHARED("c/x"));
    CHECK(umount("a/x") == 0 && !mounted("b/x") && !mounted("c/x"));
}
CASE(slave_of_a_slave) {
    own(); dirs("a b c");
    CHECK(tmpfs("a") == 0 && make("a", MS_SHARED) == 0 && mbind("a", "b") == 0);
    CHECK(make("b", MS_SLAVE) == 0 && make("b", MS_SHARED) == 0 && mbind("b", "c") == 0 && make("c", MS_SLAVE) == 0);
    CHECK_EQ(MASTER("c"), SHARED("b"));
    dirs("a/x");
    CHECK(tmpfs("a/x") == 0 && mounted("c/x"));
    CHECK_EQ(MASTER("c/x"), SHARED("b/x"));
    CHECK(umount("a/x") == 0 && !mounted("c/x"));
}
CASE(last_peer_slave_is_private) {
    own(); dirs("a");
    CHECK(tmpfs("a") == 0 && make("a", MS_SHARED) == 0 && make("a", MS_SLAVE) == 0);
    CHECK_EQ(SHARED("a"), 0);
    CHECK_EQ(MASTER("a"), 0);
}
CASE(slave_of_private_stays_private) {
    own(); dirs("a");
    CHECK(tmpfs("a") == 0 && make("a", MS_SLAVE) == 0);
    CHECK_EQ(MASTER("a"), 0);
}
CASE(slave_twice) {
    own(); dirs("a b");
    CHECK(tmpfs("a") == 0 && make("a", MS_SHARED) == 0 && mbind("a", "b") == 0);
    CHECK(make("b", MS_SLAVE) == 0 && make("b", MS_SLAVE) == 0);
    CHECK_EQ(MASTER("b"), SHARED("a"));
}
CASE(private_frees_of_the_master) {
    own(); dirs("a b");
    CHECK(tmpfs("a") == 0 && make("a", MS_SHARED) == 0 && mbind("a", "b") == 0);
    CHECK(make("b", MS_SLAVE) == 0 && make("b", MS_PRIVATE) == 0);
    CHECK_EQ(MASTER("b"), 0);
}
CASE(slaves_pass_to_the_next_peer) {
    own(); dirs("a b c");
    CHECK(tmpfs("a") == 0 && make("a", MS_SHARED) == 0 && mbind("a", "b") == 0 && mbind("a", "c") == 0);
    CHECK(make("c", MS_SLAVE) == 0 && umount("a") == 0);
    CHECK(SHARED("b") > 0);
    CHECK_EQ(MASTER("c"), SHARED("b"));
}
CASE(slaves_of_the_last_are_freed) {
    own(); dirs("a b");
    CHECK(tmpfs("a") == 0 && make("a", MS_SHARED) == 0 && mbind("a", "b") == 0 && make("b", MS_SLAVE) == 0);
    CHECK(umount("a") == 0);
    CHECK_EQ(MASTER("b"), 0);
}
CASE(slaves_of_a_slave_get_its_master) {
    own(); dirs("a b c");
    CHECK(tmpfs("a") == 0 && make("a", MS_SHARED) == 0 && mbind("a", "b") == 0);
    CHECK(make("b", MS_SLAVE) == 0 && make("b", MS_SHARED) == 0 && mbind("b", "c") == 0 && make("c", MS_SLAVE) == 0);
    CHECK(umount("b") == 0);
    CHECK_EQ(MASTER("c"), SHARED("a"));
}
CASE(bind_of_slave_is_slave) {
    own(); dirs("a b c");
    CHECK(tmpfs("a") == 0 && make("a", MS_SHARED) == 0 && mbind("a", "b") == 0 && make("b", MS_SLAVE) == 0);
    CHECK(mbind("b", "c") == 0);
    CHECK_EQ(MASTER("c"), SHARED("a"));
    CHECK_EQ(SHARED("c"), 0);
}
CASE(unbindable_is_shown) {
    own(); dirs("a");
    CHECK(tmpfs("a") == 0 && make("a", MS_UNBINDABLE) == 0 && unbindable("a"));
    CHECK(make("a", MS_PRIVATE) == 0 && !unbindable("a"));
}
CASE(unbindable_refuses_binds) {
    own(); dirs("a b");
    CHECK(tmpfs("a") == 0 && make("a", MS_UNBINDABLE) == 0);
    CHECK_ERR(mbind("a", "b"), EINVAL);
    CHECK_ERR(rbind("a", "b"), EINVAL);
    dirs("a/x");
    CHECK_ERR(mbind("a/x", "b"), EINVAL);
}
CASE(unbindable_is_left_out) {
    own(); dirs("a b");
    CHECK(tmpfs("a") == 0);
    dirs("a/x a/y");
    CHECK(tmpfs("a/x") == 0 && tmpfs("a/y") == 0 && make("a/x", MS_UNBINDABLE) == 0);
    CHECK(rbind("a", "b") == 0);
    CHECK(!mounted("b/x") && mounted("b/y"));
}
CASE(shared_makes_bindable) {
    own(); dirs("a b");
    CHECK(tmpfs("a") == 0 && make("a", MS_UNBINDABLE) == 0 && make("a", MS_SHARED) == 0);
    CHECK(!unbindable("a") && mbind("a", "b") == 0);
}
CASE(slave_keeps_unbindable) {
    own(); dirs("a");
    CHECK(tmpfs("a") == 0 && make("a", MS_UNBINDABLE) == 0 && make("a", MS_SLAVE) == 0);
    CHECK(unbindable("a"));
}
CASE(unbindable_of_shared_leaves_the_group) {
    own(); dirs("a b");
    CHECK(tmpfs("a") == 0 && make("a", MS_SHARED) == 0 && mbind("a", "b") == 0 && make("b", MS_UNBINDABLE) == 0);
    CHECK_EQ(SHARED("b"), 0);
    CHECK(unbindable("b") && SHARED("a") > 0);
}
CASE(recursive_kinds) {
    own(); dirs("a");
    CHECK(tmpfs("a") == 0);
    dirs("a/x");
    CHECK(tmpfs("a/x") == 0 && make("a", MS_REC | MS_SHARED) == 0);
    CHECK(SHARED("a") && SHARED("a/x") && SHARED("a") != SHARED("a/x"));
    CHECK(make("a", MS_PRIVATE) == 0);
    CHECK(!SHARED("a") && SHARED("a/x"));
    CHECK(make("a", MS_REC | MS_PRIVATE) == 0);
    CHECK(!SHARED("a/x"));
}
CASE(kind_errors) {
    own(); dirs("a");
    CHECK_ERR(make("a", MS_SHARED), EINVAL);  // not a mount point
    CHECK(tmpfs("a") == 0);
    CHECK_ERR(make("a", MS_SHARED | MS_PRIVATE), EINVAL);
    CHECK_ERR(make("a", MS_SHARED | MS_NOSUID), EINVAL);
    CHECK_ERR(make("a", MS_SLAVE | MS_UNBINDABLE | MS_REC), EINVAL);
    CHECK(make("a", MS_SHARED | MS_SILENT) == 0);
    CHECK_ERR(make("missing", MS_SHARED), ENOENT);
}
CASE(new_mount_on_shared_is_shared) {
    own(); dirs("a");
    CHECK(tmpfs("a") == 0 && make("a", MS_SHARED) == 0);
    dirs("a/x");
    CHECK(tmpfs("a/x") == 0 && SHARED("a/x") > 0);
}
CASE(bind_onto_shared_is_shared) {
    own(); dirs("a s");
    CHECK(tmpfs("a") == 0 && make("a", MS_SHARED) == 0 && tmpfs("s") == 0);
    dirs("a/x");
    CHECK(mbind("s", "a/x") == 0 && SHARED("a/x") > 0);
    CHECK_EQ(SHARED("s"), 0);
}
CASE(bind_of_slave_onto_shared_is_both) {
    own(); dirs("a b c");
    CHECK(tmpfs("a") == 0 && make("a", MS_SHARED) == 0 && mbind("a", "b") == 0 && make("b", MS_SLAVE) == 0);
    CHECK(tmpfs("c") == 0 && make("c", MS_SHARED) == 0);
    dirs("c/x");
    CHECK(mbind("b", "c/x") == 0);
    CHECK(SHARED("c/x") > 0);
    CHECK_EQ(MASTER("c/x"), SHARED("a"));
}
CASE(move_from_shared_parent_is_refused) {
    own(); dirs("a b");
    CHECK(tmpfs("a") == 0 && make("a", MS_SHARED) == 0);
    dirs("a/x");
    CHECK(tmpfs("a/x") == 0);
    CHECK_ERR(mount("a/x", "b", NULL, MS_MOVE, NULL), EINVAL);
}
CASE(move_onto_shared_propagates) {
    own(); dirs("a b s");
    CHECK(tmpfs("a") == 0 && make("a", MS_SHARED) == 0 && mbind("a", "b") == 0 && tmpfs("s") == 0);
    dirs("a/x");
    CHECK(mount("s", "a/x", NULL, MS_MOVE, NULL) == 0);
    CHECK(!mounted("s") && mounted("a/x") && mounted("b/x"));
    CHECK(SHARED("a/x") > 0);
    CHECK_EQ(SHARED("a/x"), SHARED("b/x"));
}
CASE(move_of_unbindable_onto_shared) {
    own(); dirs("a s");
    CHECK(tmpfs("a") == 0 && make("a", MS_SHARED) == 0 && tmpfs("s") == 0 && make("s", MS_UNBINDABLE) == 0);
    dirs("a/x");
    CHECK_ERR(mount("s", "a/x", NULL, MS_MOVE, NULL), EINVAL);
    CHECK(make("a", MS_PRIVATE) == 0 && mount("s", "a/x", NULL, MS_MOVE, NULL) == 0);
    CHECK(unbindable("a/x"));
}
CASE(move_of_a_tree_with_unbindable_onto_shared) {
    own(); dirs("a s");
    CHECK(tmpfs("a") == 0 && make("a", MS_SHARED) == 0 && tmpfs("s") == 0);
    dirs("a/x s/u");
    CHECK(tmpfs("s/u") == 0 && make("s/u", MS_UNBINDABLE) == 0);
    CHECK_ERR(mount("s", "a/x", NULL, MS_MOVE, NULL), EINVAL);
}
CASE(move_keeps_shared) {
    own(); dirs("s d");
    CHECK(tmpfs("s") == 0 && make("s", MS_SHARED) == 0);
    int n = SHARED("s");
    CHECK(mount("s", "d", NULL, MS_MOVE, NULL) == 0);
    CHECK_EQ(SHARED("d"), n);
}
CASE(trees_propagate) {
    own(); dirs("a b s");
    CHECK(tmpfs("a") == 0 && make("a", MS_SHARED) == 0 && mbind("a", "b") == 0 && tmpfs("s") == 0);
    dirs("a/x s/u");
    CHECK(tmpfs("s/u") == 0 && rbind("s", "a/x") == 0);
    CHECK(mounted("a/x/u") && mounted("b/x/u"));
    CHECK_EQ(SHARED("a/x/u"), SHARED("b/x/u"));
}
CASE(not_where_the_name_is_not) {
    own(); dirs("a b");
    CHECK(tmpfs("a") == 0 && make("a", MS_SHARED) == 0);
    dirs("a/in a/out a/in/x a/out/y");
    CHECK(mbind("a/in", "b") == 0);
    CHECK_EQ(SHARED("b"), SHARED("a"));
    CHECK(tmpfs("a/in/x") == 0 && mounted("b/x"));
    CHECK(tmpfs("a/out/y") == 0 && !mounted("b/y"));
}
CASE(within_one_mount) {
    own(); dirs("a");
    CHECK(tmpfs("a") == 0 && make("a", MS_SHARED) == 0);
    dirs("a/x a/y a/x/z");
    CHECK(mbind("a/x", "a/y") == 0);
    CHECK_EQ(SHARED("a/y"), SHARED("a"));
    CHECK(tmpfs("a/x/z") == 0 && mounted("a/y/z"));
    CHECK(umount("a/y/z") == 0 && !mounted("a/x/z"));
}
CASE(on_the_same_place_twice) {
    own(); dirs("a b");
    CHECK(tmpfs("a") == 0 && make("a", MS_SHARED) == 0 && mbind("a", "b") == 0);
    dirs("a/x");
    CHECK(tmpfs("a/x") == 0 && tmpfs("a/x") == 0);
    CHECK_EQ(count("a/x"), 2);
    CHECK_EQ(count("b/x"), 2);
    CHECK(umount("b/x") == 0);
    CHECK_EQ(count("a/x"), 1);
    CHECK(umount("a/x") == 0);
    CHECK_EQ(count("b/x"), 0);
}
CASE(beneath_what_the_slave_has) {
    own(); dirs("a b");
    CHECK(tmpfs("a") == 0 && make("a", MS_SHARED) == 0 && mbind("a", "b") == 0 && make("b", MS_SLAVE) == 0);
    dirs("a/x");
    CHECK(mount("slave", "b/x", "tmpfs", 0, NULL) == 0);
    close(mkfile("b/x/own", ""));
    CHECK(tmpfs("a/x") == 0);
    CHECK_EQ(count("b/x"), 2);
    CHECK(access("b/x/own", F_OK) == 0);  // still on top
    CHECK(umount("a/x") == 0);
    CHECK_EQ(count("b/x"), 1);
    CHECK(access("b/x/own", F_OK) == 0);
}
CASE(unmount_spares_what_has_mounts_of_its_own) {
    own(); dirs("a b");
    CHECK(tmpfs("a") == 0 && make("a", MS_SHARED) == 0 && mbind("a", "b") == 0 && make("b", MS_SLAVE) == 0);
    dirs("a/x");
    CHECK(tmpfs("a/x") == 0);
    dirs("b/x/d");
    CHECK(mount("own", "b/x/d", "tmpfs", 0, NULL) == 0);
    CHECK(umount("a/x") == 0);
    CHECK(!mounted("a/x") && mounted("b/x") && mounted("b/x/d"));
}
CASE(new_namespace_shares) {
    own(); dirs("a");
    CHECK(tmpfs("a") == 0 && make("a", MS_SHARED) == 0);
    dirs("a/x");
    int n = SHARED("a"), p[2], q[2];
    CHECK(pipe(p) == 0 && pipe(q) == 0);
    pid_t c = SPAWN({
        char b;
        CHECK(unshare(CLONE_NEWNS) == 0);
        CHECK_EQ(SHARED("a"), n);
        CHECK(write(p[1], "x", 1) == 1 && read(q[0], &b, 1) == 1);
        CHECK(mounted("a/x"));
        CHECK(umount("a/x") == 0);
    });
    char b;
    CHECK(read(p[0], &b, 1) == 1 && tmpfs("a/x") == 0 && write(q[1], "x", 1) == 1);
    CHECK_EQ(join(c), 0);
    CHECK(!mounted("a/x"));
}
CASE(new_namespace_private_is_apart) {
    own(); dirs("a b");
    CHECK(tmpfs("a") == 0);
    pid_t c = SPAWN({
        CHECK(unshare(CLONE_NEWNS) == 0);
        CHECK(mounted("a"));
        CHECK(tmpfs("b") == 0 && umount("a") == 0);
    });
    CHECK_EQ(join(c), 0);
    CHECK(mounted("a") && !mounted("b"));
}
CASE(namespaces_end_takes_no_mount_of_others) {
    own(); dirs("a");
    CHECK(tmpfs("a") == 0 && make("a", MS_SHARED) == 0);
    dirs("a/x");
    CHECK(tmpfs("a/x") == 0);
    pid_t c = SPAWN({ CHECK(unshare(CLONE_NEWNS) == 0); });
    CHECK_EQ(join(c), 0);
    CHECK(mounted("a/x"));
    CHECK(umount("a/x") == 0);
}
CASE(new_namespace_slaves) {
    own(); dirs("a");
    CHECK(tmpfs("a") == 0 && make("a", MS_SHARED) == 0);
    dirs("a/x a/y");
    int n = SHARED("a");
    pid_t c = SPAWN({
        CHECK(unshare(CLONE_NEWNS) == 0 && make("/", MS_REC | MS_SLAVE) == 0);
        CHECK_EQ(MASTER("a"), n);
        CHECK(tmpfs("a/y") == 0);
    });
    CHECK_EQ(join(c), 0);
    CHECK(!mounted("a/y"));
}
CASE(propagate_from_is_shown) {
    own(); dirs("a b r r/a r/c r/proc");
    // c gets from b's group, of which no member can be seen from the new root; one of a's can.
    CHECK(tmpfs("a") == 0 && make("a", MS_SHARED) == 0 && mbind("a", "r/a") == 0 && mbind("a", "b") == 0);
    CHECK(make("b", MS_SLAVE) == 0 && make("b", MS_SHARED) == 0 && mbind("b", "r/c") == 0);
    CHECK(make("r/c", MS_SLAVE) == 0);
    int a = SHARED("a"), b = SHARED("b");
    CHECK_EQ(MASTER("r/c"), b);
    CHECK_EQ(tag("r/c", "propagate_from:"), 0);
    CHECK(mount("proc", "r/proc", "proc", 0, NULL) == 0 && chroot("r") == 0 && chdir("/") == 0);
    CHECK_EQ(MASTER("/c"), b);
    CHECK_EQ(tag("/c", "propagate_from:"), a);
}
CASE(groups_of_a_tree_are_apart) {
    own(); dirs("a b");
    CHECK(tmpfs("a") == 0);
    dirs("a/x");
    CHECK(tmpfs("a/x") == 0 && make("a", MS_SHARED | MS_REC) == 0 && rbind("a", "b") == 0);
    CHECK_EQ(SHARED("a"), SHARED("b"));
    CHECK_EQ(SHARED("a/x"), SHARED("b/x"));
    dirs("a/x/y");
    CHECK(tmpfs("b/x/y") == 0 && mounted("a/x/y"));
}
CASE(many_peers) {
    own();
    CHECK(mkdir("m", 0755) == 0 && tmpfs("m") == 0 && make("m", MS_SHARED) == 0 && mkdir("m/x", 0755) == 0);
    char name[20];
    for (int i = 0; i < 50; i++) {
        snprintf(name, sizeof name, "p%d", i);
        CHECK(mkdir(name, 0755) == 0 && mbind("m", name) == 0);
        if (i % 3 == 1) CHECK(make(name, MS_SLAVE) == 0);
    }
    CHECK(tmpfs("m/x") == 0);
    for (int i = 0; i < 50; i++) {
        snprintf(name, sizeof name, "p%d/x", i);
        CHECK(mounted(name));
    }
    CHECK(umount("p0/x") == 0);
    for (int i = 0; i < 50; i++) {
        snprintf(name, sizeof name, "p%d/x", i);
        CHECK(!mounted(name));
    }
}
CASE(member_that_leaves_and_comes_back) {
    own(); dirs("a b");
    CHECK(tmpfs("a") == 0 && make("a", MS_SHARED) == 0 && mbind("a", "b") == 0);
    CHECK(make("b", MS_PRIVATE) == 0 && make("b", MS_SHARED) == 0);
    CHECK(SHARED("b") != SHARED("a"));
    dirs("a/x");
    CHECK(tmpfs("a/x") == 0 && !mounted("b/x"));
}
CASE(files_propagate_too) {
    own(); dirs("a b");
    CHECK(tmpfs("a") == 0 && make("a", MS_SHARED) == 0 && mbind("a", "b") == 0);
    close(mkfile("src", "source"));
    close(mkfile("a/f", ""));
    CHECK(mbind("src", "a/f") == 0);
    CHECK(!strcmp(slurp("b/f"), "source"));
    CHECK(umount("b/f") == 0);
    CHECK(!strcmp(slurp("a/f"), ""));
}
CASE(remount_does_not_propagate) {
    own(); dirs("a b");
    CHECK(tmpfs("a") == 0 && make("a", MS_SHARED) == 0 && mbind("a", "b") == 0);
    CHECK(mount(NULL, "b", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL) == 0);
    close(mkfile("a/f", ""));
    CHECK_ERR(open("b/g", O_CREAT | O_RDWR, 0600), EROFS);
}
