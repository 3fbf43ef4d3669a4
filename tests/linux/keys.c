// Keys and keyrings: add_key, request_key, keyctl, /proc/keys, /proc/key-users.
#define T_HELPER
#include "t.h"

enum {
    THREAD = -1, PROCESS = -2, SESSION = -3, USER = -4, USER_SESSION = -5, GROUP = -6, AUTHORITY = -7, REQUESTOR = -8,
    GET_ID = 0, JOIN = 1, UPDATE = 2, REVOKE = 3, CHOWN = 4, SETPERM = 5, DESCRIBE = 6, CLEAR = 7, LINK = 8, UNLINK = 9,
    SEARCH = 10, READ = 11, INSTANTIATE = 12, NEGATE = 13, SET_REQKEY = 14, SET_TIMEOUT = 15, ASSUME = 16, GET_SECURITY = 17,
    TO_PARENT = 18, REJECT = 19, INSTANTIATE_IOV = 20, INVALIDATE = 21, GET_PERSISTENT = 22, RESTRICT = 29, MOVE = 30,
    CAPABILITIES = 31,
};
// A user whom nobody else is, for quotas.
enum { NOBODY = 61234 };

#define key_ctl(op, ...) key_ctl_(op, (long[4]){__VA_ARGS__})
static long key_ctl_(int op, const long *a) { return syscall(SYS_keyctl, op, a[0], a[1], a[2], a[3]); }
static long add(const char *type, const char *name, const void *data, size_t len, int ring) {
    return syscall(SYS_add_key, type, name, data, len, ring);
}
static long request(const char *type, const char *name, const char *info, int ring) {
    return syscall(SYS_request_key, type, name, info, ring);
}
// A session keyring of the case's own.
static int fresh(void) {
    long r = syscall(SYS_keyctl, JOIN, NULL);
    if (r < 0 && (errno == ENOSYS || errno == EPERM)) SKIP("no keyctl here");
    CHECK(r > 0);
    return r;
}
static int user_key(const char *name, int ring) { return CHECK_OK(add("user", name, "data", 4, ring)); }
static int new_ring(const char *name, int ring) { return CHECK_OK(add("keyring", name, NULL, 0, ring)); }
static const char *describe(int key) {
    static char text[5000];
    CHECK_OK(key_ctl(DESCRIBE, key, (long)text, sizeof text));
    return text;
}
static bool is(int key, const char *want) {
    const char *got = describe(key);
    if (strcmp(got, want)) FAIL("%s is not %s", got, want);
    return true;
}
static long content(int key, char *to, size_t room) { return key_ctl(READ, key, (long)to, room); }
static bool holds(int key, const char *want) {
    char got[100];
    long n = CHECK_OK(content(key, got, sizeof got));
    return n == (long)strlen(want) && !memcmp(got, want, n);
}
static bool has(int ring, int key) {
    int keys[200];
    long n = CHECK_OK(content(ring, (char *)keys, sizeof keys));
    for (int i = 0; i < n / 4; i++)
        if (keys[i] == key) return true;
    return false;
}
static long links(int ring) { return CHECK_OK(content(ring, NULL, 0)) / 4; }
static long find(int ring, const char *type, const char *name, int into) {
    return key_ctl(SEARCH, ring, (long)type, (long)name, into);
}
static void become(int id) {
    CHECK(syscall(SYS_setgroups, 0, NULL) == 0 || errno == EPERM);
    CHECK_OK(setresgid(id, id, id));
    CHECK_OK(setresuid(id, id, id));
}
static void needs_root(void) {
    if (geteuid()) SKIP("needs root");
}

// add_key

CASE(add_user) {
    fresh();
    int k = user_key("a", SESSION);
    CHECK(k > 2 && holds(k, "data"));
}
CASE(add_gives_it_its_caller_and_default_permissions) {
    fresh();
    char want[100];
    snprintf(want, sizeof want, "user;%d;%d;3f010000;a", geteuid(), getegid());
    CHECK(is(user_key("a", SESSION), want));
    snprintf(want, sizeof want, "keyring;%d;%d;3f010000;r", geteuid(), getegid());
    CHECK(is(new_ring("r", SESSION), want));
}
CASE(add_links_it) {
    int s = fresh(), k = user_key("a", SESSION);
    CHECK(has(s, k));
    CHECK_EQ(links(s), 1);
}
CASE(add_again_updates) {
    fresh();
    int k = user_key("a", SESSION);
    CHECK_EQ(add("user", "a", "other", 5, SESSION), k);
    CHECK(holds(k, "other"));
}
CASE(add_keyring_again_displaces) {
    int s = fresh(), one = new_ring("r", SESSION), two = new_ring("r", SESSION);
    CHECK(one != two && has(s, two) && !has(s, one));
    EVENTUALLY(key_ctl(DESCRIBE, one) < 0);
    CHECK_EQ(errno, ENOKEY);
}
CASE(add_same_name_of_other_type_is_another) {
    int s = fresh(), k = user_key("x:y", SESSION);
    long l = CHECK_OK(add("logon", "x:y", "z", 1, SESSION));
    CHECK(k != l);
    CHECK_EQ(links(s), 2);
}
CASE(add_types_unknown) {
    fresh();
    CHECK_ERR(add("nosuch", "a", "x", 1, SESSION), ENODEV);
    CHECK_ERR(add("1234567890123456789012345678901", "a", "x", 1, SESSION), ENODEV);
    CHECK_ERR(add("12345678901234567890123456789012", "a", "x", 1, SESSION), EINVAL);
    CHECK_ERR(add("", "a", "x", 1, SESSION), EINVAL);
    CHECK_ERR(add(".user", "a", "x", 1, SESSION), EPERM);
}
CASE(add_descriptions) {
    fresh();
    CHECK_ERR(add("user", "", "x", 1, SESSION), EINVAL);
    CHECK_ERR(add("user", NULL, "x", 1, SESSION), EINVAL);
    CHECK_ERR(add("keyring", ".r", NULL, 0, SESSION), EPERM);
    CHECK_OK(add("user", ".r", "x", 1, SESSION));
    char *name = malloc(5000);
    memset(name, 'n', 4999);
    name[4096] = 0;
    CHECK_ERR(add("user", name, "x", 1, SESSION), EINVAL);
    name[4095] = 0;
    CHECK_OK(add("user", name, "x", 1, SESSION));
}
CASE(add_sizes) {
    fresh();
    char *data = calloc(1, 2 << 20);
    CHECK_ERR(add("user", "a", "", 0, SESSION), EINVAL);
    CHECK_ERR(add("user", "a", NULL, 0, SESSION), EINVAL);
    CHECK_ERR(add("user", "a", data, 32768, SESSION), EINVAL);
    CHECK_ERR(add("user", "a", data, 1 << 20, SESSION), EINVAL);
    CHECK_ERR(add("keyring", "a", "x", 1, SESSION), EINVAL);
    if (!geteuid()) CHECK_OK(add("user", "a", data, 32767, SESSION));
}
CASE(add_addresses) {
    fresh();
    CHECK_ERR(add(BAD, "a", "x", 1, SESSION), EFAULT);
    CHECK_ERR(add(NULL, "a", "x", 1, SESSION), EFAULT);
    CHECK_ERR(add("user", BAD, "x", 1, SESSION), EFAULT);
    CHECK_ERR(add("user", "a", BAD, 1, SESSION), EFAULT);
    CHECK_ERR(add("user", "a", NULL, 4, SESSION), EFAULT);
}
CASE(add_to_what_is_no_keyring) {
    fresh();
    int k = user_key("a", SESSION);
    CHECK_ERR(add("user", "b", "x", 1, k), ENOTDIR);
    CHECK_ERR(add("user", "b", NULL, 0, k), ENOTDIR);
    CHECK_ERR(add("nosuch", "b", "x", 1, k), ENODEV);
}
CASE(add_to_no_key) {
    fresh();
    CHECK_ERR(add("user", "b", "x", 1, 0), EINVAL);
    CHECK_ERR(add("user", "b", "x", 1, GROUP), EINVAL);
    CHECK_ERR(add("user", "b", "x", 1, -9), EINVAL);
    CHECK_ERR(add("user", "b", "x", 1, AUTHORITY), ENOKEY);
    CHECK_ERR(add("user", "b", "x", 1, REQUESTOR), ENOKEY);
    CHECK_ERR(add("user", "b", "x", 1, 0x7ffffff1), ENOKEY);
}
CASE(add_order_of_checks) {
    fresh();
    CHECK_ERR(add(".user", BAD, "x", 1, 0), EPERM);
    CHECK_ERR(add("", BAD, "x", 1, 0), EINVAL);
    CHECK_ERR(add(BAD, "a", "x", 1 << 20, 0), EINVAL);
    CHECK_ERR(add("nosuch", "a", "x", 1, 0), EINVAL);
    CHECK_ERR(add("user", "a", BAD, 1, 0), EFAULT);
}
CASE(add_needs_write_permission_of_the_ring) {
    fresh();
    int r = new_ring("r", SESSION);
    CHECK_OK(key_ctl(SETPERM, r, 0x3b000000));
    CHECK_ERR(add("user", "a", "x", 1, r), EACCES);
}
CASE(add_update_needs_write_permission_of_the_key) {
    fresh();
    int k = user_key("a", SESSION);
    CHECK_OK(key_ctl(SETPERM, k, 0x3b000000));
    CHECK_ERR(add("user", "a", "x", 1, SESSION), EACCES);
    CHECK(holds(k, "data"));
}
CASE(add_after_revocation_makes_another) {
    int s = fresh(), k = user_key("a", SESSION);
    CHECK_OK(key_ctl(REVOKE, k));
    int n = user_key("a", SESSION);
    CHECK(n != k && has(s, n) && !has(s, k));
}

// Types

CASE(logon_names_a_service) {
    fresh();
    CHECK_ERR(add("logon", "a", "x", 1, SESSION), EINVAL);
    CHECK_ERR(add("logon", ":a", "x", 1, SESSION), EINVAL);
    CHECK_OK(add("logon", "a:", "x", 1, SESSION));
}
CASE(logon_is_not_read) {
    fresh();
    char want[100], got[10];
    long k = CHECK_OK(add("logon", "a:b", "x", 1, SESSION));
    snprintf(want, sizeof want, "logon;%d;%d;3d010000;a:b", geteuid(), getegid());
    CHECK(is(k, want));
    CHECK_ERR(content(k, got, sizeof got), EOPNOTSUPP);
    CHECK_OK(key_ctl(SETPERM, k, 0x3f3f0000));
    CHECK_ERR(content(k, NULL, 0), EOPNOTSUPP);
    CHECK_OK(key_ctl(UPDATE, k, (long)"yy", 2));
}
CASE(big_key_or_none) {
    fresh();
    char *data = calloc(1, 1 << 20);
    memset(data, 'b', 50000);
    long k = add("big_key", "a", data, 50000, SESSION);
    if (k < 0) {
        CHECK_EQ(errno, ENODEV);
        return;
    }
    CHECK_EQ(content(k, NULL, 0), 50000);
    char *got = calloc(1, 50000);
    CHECK_EQ(content(k, got, 50000), 50000);
    CHECK(!memcmp(got, data, 50000));
    CHECK_ERR(add("big_key", "b", data, 0, SESSION), EINVAL);
}
CASE(keyring_has_no_content) {
    fresh();
    int r = new_ring("r", SESSION);
    CHECK_ERR(key_ctl(UPDATE, r, (long)"x", 1), EOPNOTSUPP);
    CHECK_EQ(content(r, NULL, 0), 0);
}

// Reading

CASE(read_lengths) {
    fresh();
    int k = user_key("a", SESSION);
    char b[8] = "zzzzzzz";
    CHECK_EQ(content(k, NULL, 0), 4);
    CHECK_EQ(content(k, NULL, 10), 4);
    CHECK_EQ(content(k, b, 3), 4);
    CHECK_EQ(b[0], 'z');
    CHECK_EQ(content(k, b, 4), 4);
    CHECK(!memcmp(b, "datazzz", 8));
}
CASE(read_a_keyring) {
    fresh();
    int r = new_ring("r", SESSION), a = user_key("a", r), b = user_key("b", r), got[4] = {0};
    CHECK_EQ(content(r, (char *)got, 8), 8);
    CHECK((got[0] == a && got[1] == b) || (got[0] == b && got[1] == a));
    CHECK_ERR(content(r, (char *)got, 6), EINVAL);
    CHECK_ERR(content(r, (char *)got, 9), EINVAL);
    CHECK_EQ(content(r, NULL, 0), 8);
}
CASE(read_a_keyring_with_little_room) {
    fresh();
    int r = new_ring("r", SESSION), got[2] = {0, 0};
    user_key("a", r), user_key("b", r);
    CHECK_EQ(content(r, (char *)got, 4), 8);
}
CASE(read_errors) {
    fresh();
    int k = user_key("a", SESSION);
    CHECK_ERR(content(0x7ffffff1, NULL, 0), ENOKEY);
    CHECK_ERR(content(0, NULL, 0), ENOKEY);
    CHECK_ERR(content(GROUP, NULL, 0), ENOKEY);
    CHECK_ERR(content(k, BAD, 100), EFAULT);
    CHECK_EQ(content(k, BAD, 3), 4);
}
CASE(read_what_is_possessed_and_searchable) {
    fresh();
    int k = user_key("a", SESSION);
    CHECK_OK(key_ctl(SETPERM, k, 0x28000000));
    CHECK(holds(k, "data"));
}
CASE(read_without_permission) {
    fresh();
    int k = user_key("a", SESSION);
    CHECK_OK(key_ctl(SETPERM, k, 0x20000000));
    CHECK_ERR(content(k, NULL, 0), EACCES);
}

// Describing

CASE(describe_lengths) {
    fresh();
    int k = user_key("a", SESSION);
    size_t len = strlen(describe(k)) + 1;
    char b[100] = "zzz";
    CHECK_EQ(key_ctl(DESCRIBE, k, 0, 0), len);
    CHECK_EQ(key_ctl(DESCRIBE, k, (long)b, len - 1), len);
    CHECK(!strcmp(b, "zzz"));
    CHECK_EQ(key_ctl(DESCRIBE, k, (long)b, len), len);
    CHECK(!strncmp(b, "user;", 5));
    CHECK_EQ(key_ctl(DESCRIBE, k, (long)BAD, len - 1), len);
    CHECK_ERR(key_ctl(DESCRIBE, k, (long)BAD, len), EFAULT);
}
CASE(describe_special_keyrings) {
    fresh();
    char want[100];
    int uid = getuid(), gid = getgid();
    CHECK_OK(key_ctl(GET_ID, THREAD, 1));
    CHECK_OK(key_ctl(GET_ID, PROCESS, 1));
    snprintf(want, sizeof want, "keyring;%d;%d;3f010000;_tid", uid, gid);
    CHECK(is(THREAD, want));
    snprintf(want, sizeof want, "keyring;%d;%d;3f010000;_pid", uid, gid);
    CHECK(is(PROCESS, want));
    snprintf(want, sizeof want, "keyring;%d;%d;3f030000;_ses", uid, gid);
    CHECK(is(SESSION, want));
    snprintf(want, sizeof want, "keyring;%d;65534;1f3f0000;_uid.%d", uid, uid);
    CHECK(is(USER, want));
    snprintf(want, sizeof want, "keyring;%d;65534;1f3f0000;_uid_ses.%d", uid, uid);
    CHECK(is(USER_SESSION, want));
}
CASE(describe_needs_view) {
    fresh();
    int k = user_key("a", SESSION);
    CHECK_OK(key_ctl(SETPERM, k, 0x3e000000));
    CHECK_ERR(key_ctl(DESCRIBE, k), EACCES);
}
CASE(security_label_is_some_text) {
    fresh();
    int k = user_key("a", SESSION);
    char b[200] = "z";
    long n = CHECK_OK(key_ctl(GET_SECURITY, k, (long)b, sizeof b));
    CHECK(n >= 1 && b[n - 1] == 0);
    CHECK_EQ(key_ctl(GET_SECURITY, k, 0, 0), n);
    CHECK_ERR(key_ctl(GET_SECURITY, k, (long)BAD, 200), EFAULT);
    CHECK_ERR(key_ctl(GET_SECURITY, 0, 0, 0), EINVAL);
}

// Keyrings of the caller

CASE(special_ids) {
    int s = fresh();
    CHECK_EQ(key_ctl(GET_ID, SESSION, 0), s);
    CHECK_EQ(key_ctl(GET_ID, s, 0), s);
    CHECK_ERR(key_ctl(GET_ID, THREAD, 0), ENOKEY);
    CHECK_ERR(key_ctl(GET_ID, PROCESS, 0), ENOKEY);
    CHECK_ERR(key_ctl(GET_ID, GROUP, 1), EINVAL);
    CHECK_ERR(key_ctl(GET_ID, AUTHORITY, 1), ENOKEY);
    CHECK_ERR(key_ctl(GET_ID, REQUESTOR, 1), ENOKEY);
    CHECK_ERR(key_ctl(GET_ID, 0, 1), EINVAL);
    CHECK_ERR(key_ctl(GET_ID, -9, 1), EINVAL);
    CHECK_ERR(key_ctl(GET_ID, 0x7ffffff1, 1), ENOKEY);
}
CASE(thread_and_process_keyrings_are_made_once) {
    fresh();
    long t = CHECK_OK(key_ctl(GET_ID, THREAD, 1)), p = CHECK_OK(key_ctl(GET_ID, PROCESS, 1));
    CHECK(t != p);
    CHECK_EQ(key_ctl(GET_ID, THREAD, 1), t);
    CHECK_EQ(key_ctl(GET_ID, PROCESS, 0), p);
}
CASE(user_session_links_the_user_keyring) {
    fresh();
    long u = CHECK_OK(key_ctl(GET_ID, USER, 0));
    CHECK(has(USER_SESSION, u));
}
CASE(fork_keeps_the_session_only) {
    int s = fresh();
    CHECK_OK(key_ctl(GET_ID, THREAD, 1));
    CHECK_OK(key_ctl(GET_ID, PROCESS, 1));
    pid_t p = SPAWN({
        CHECK_EQ(key_ctl(GET_ID, SESSION, 0), s);
        CHECK_ERR(key_ctl(GET_ID, THREAD, 0), ENOKEY);
        CHECK_ERR(key_ctl(GET_ID, PROCESS, 0), ENOKEY);
    });
    CHECK_EQ(join(p), 0);
}
static void *in_thread(void *got) {
    long *ids = got;
    for (int i = 0; i < 3; i++) ids[i] = key_ctl(GET_ID, THREAD - i, 0);
    ids[3] = key_ctl(GET_ID, THREAD, 1);
    return NULL;
}
CASE(threads_share_process_and_session) {
    int s = fresh();
    long t = CHECK_OK(key_ctl(GET_ID, THREAD, 1)), p = CHECK_OK(key_ctl(GET_ID, PROCESS, 1)), ids[4];
    pthread_t other;
    CHECK(pthread_create(&other, NULL, in_thread, ids) == 0);
    CHECK(pthread_join(other, NULL) == 0);
    CHECK(ids[0] > 0 && ids[0] != t);
    CHECK_EQ(ids[1], p);
    CHECK_EQ(ids[2], s);
    CHECK_EQ(ids[3], ids[0]);
}
CASE(thread_keyring_goes_with_the_thread) {
    fresh();
    long ids[4];
    pthread_t other;
    CHECK(pthread_create(&other, NULL, in_thread, ids) == 0);
    CHECK(pthread_join(other, NULL) == 0);
    EVENTUALLY(key_ctl(DESCRIBE, ids[3]) < 0 && errno == ENOKEY);
}
CASE(process_keyring_goes_with_the_process) {
    fresh();
    int fds[2];
    long ring = 0;
    CHECK_OK(pipe(fds));
    pid_t p = SPAWN({
        ring = CHECK_OK(key_ctl(GET_ID, PROCESS, 1));
        user_key("a", PROCESS);
        CHECK_EQ(write(fds[1], &ring, sizeof ring), sizeof ring);
    });
    CHECK_EQ(join(p), 0);
    CHECK_EQ(read(fds[0], &ring, sizeof ring), sizeof ring);
    EVENTUALLY(key_ctl(DESCRIBE, ring) < 0 && errno == ENOKEY);
}
int t_helper(int argc, char **argv) {
    t_name = "exec";
    CHECK(argc == 3);
    CHECK_EQ(key_ctl(GET_ID, SESSION, 0), atol(argv[2]));
    CHECK_ERR(key_ctl(GET_ID, THREAD, 0), ENOKEY);
    CHECK_ERR(key_ctl(GET_ID, PROCESS, 0), ENOKEY);
    CHECK_EQ(key_ctl(SET_REQKEY, -1), 4);
    return 0;
}
CASE(exec_keeps_the_session_only) {
    char s[20];
    snprintf(s, sizeof s, "%d", fresh());
    CHECK_OK(key_ctl(GET_ID, THREAD, 1));
    CHECK_OK(key_ctl(GET_ID, PROCESS, 1));
    CHECK_OK(key_ctl(SET_REQKEY, 4));
    pid_t p = SPAWN({
        CHECK_OK(key_ctl(GET_ID, THREAD, 1));
        CHECK_OK(key_ctl(GET_ID, PROCESS, 1));
        execl(t_self, t_self, "@exec", s, NULL);
        _exit(9);
    });
    CHECK_EQ(join(p), 0);
}
CASE(join_makes_a_session) {
    int a = fresh(), b = fresh();
    CHECK(a != b);
    CHECK_EQ(key_ctl(GET_ID, SESSION, 0), b);
    EVENTUALLY(key_ctl(DESCRIBE, a) < 0 && errno == ENOKEY);
}
CASE(join_by_name) {
    char name[40], want[100];
    snprintf(name, sizeof name, "t.%d", getpid());
    fresh();
    long s = CHECK_OK(key_ctl(JOIN, (long)name));
    snprintf(want, sizeof want, "keyring;%d;%d;3f130000;%s", getuid(), getgid(), name);
    CHECK(is(SESSION, want));
    // Who may not search it does not find it.
    CHECK(CHECK_OK(key_ctl(JOIN, (long)name)) != s);
    s = CHECK_OK(key_ctl(GET_ID, SESSION, 0));
    CHECK_OK(key_ctl(SETPERM, s, 0x3f1f0000));
    CHECK_EQ(key_ctl(JOIN, (long)name), 0);
    pid_t p = SPAWN({
        fresh();
        CHECK_EQ(key_ctl(JOIN, (long)name), s);
    });
    CHECK_EQ(join(p), 0);
}
CASE(join_names) {
    fresh();
    CHECK_ERR(key_ctl(JOIN, (long)""), EINVAL);
    CHECK_ERR(key_ctl(JOIN, (long)".x"), EPERM);
    CHECK_ERR(key_ctl(JOIN, (long)BAD), EFAULT);
}
CASE(identity_takes_the_thread_keyring_along) {
    needs_root();
    fresh();
    CHECK_OK(key_ctl(GET_ID, THREAD, 1));
    CHECK_OK(key_ctl(GET_ID, PROCESS, 1));
    become(NOBODY);
    CHECK(is(THREAD, "keyring;61234;61234;3f010000;_tid"));
    CHECK(is(PROCESS, "keyring;0;0;3f010000;_pid"));
}
CASE(session_of_who_has_none) {
    needs_root();
    pid_t p = SPAWN({
        fresh();
        become(NOBODY);
        char name[60];
        snprintf(name, sizeof name, "keyring;61234;65534;1f3f0000;_uid.61234");
        CHECK(is(USER, name));
        CHECK(key_ctl(GET_ID, SESSION, 0) != key_ctl(GET_ID, USER_SESSION, 0));
    });
    CHECK_EQ(join(p), 0);
}

// Permissions

CASE(setperm) {
    fresh();
    int k = user_key("a", SESSION);
    CHECK_OK(key_ctl(SETPERM, k, 0x3f3f3f3f));
    CHECK(strstr(describe(k), ";3f3f3f3f;a"));
    CHECK_ERR(key_ctl(SETPERM, k, 0x40000000), EINVAL);
    CHECK_ERR(key_ctl(SETPERM, k, 0x3f3f3fff), EINVAL);
    CHECK_ERR(key_ctl(SETPERM, 0, 0x80), EINVAL);
    CHECK_ERR(key_ctl(SETPERM, 0x7ffffff1, 0), ENOKEY);
}
CASE(without_permissions_only_unlinked) {
    fresh();
    int k = user_key("a", SESSION);
    CHECK_OK(key_ctl(SETPERM, k, 0));
    CHECK_ERR(key_ctl(DESCRIBE, k), EACCES);
    CHECK_ERR(content(k, NULL, 0), EACCES);
    CHECK_ERR(key_ctl(UPDATE, k, (long)"x", 1), EACCES);
    CHECK_ERR(key_ctl(REVOKE, k), EACCES);
    CHECK_ERR(key_ctl(INVALIDATE, k), EACCES);
    CHECK_ERR(key_ctl(SETPERM, k, 0x3f000000), EACCES);
    CHECK_ERR(key_ctl(SET_TIMEOUT, k, 1), EACCES);
    CHECK_ERR(request("user", "a", NULL, 0), EACCES);
    CHECK_ERR(key_ctl(LINK, k, THREAD), EACCES);
    // There is none in the thread's keyring, which counts for more.
    CHECK_ERR(request("user", "a", NULL, 0), ENOKEY);
    CHECK_OK(key_ctl(UNLINK, k, SESSION));
}
CASE(possession_comes_from_the_callers_keyrings) {
    fresh();
    int r = new_ring("r", SESSION), k = user_key("a", r);
    CHECK_OK(key_ctl(SETPERM, k, 0x3f000000));
    CHECK(holds(k, "data"));
    // A keyring that may not be searched gives nothing.
    CHECK_OK(key_ctl(SETPERM, r, 0x37000000));
    CHECK_ERR(content(k, NULL, 0), EACCES);
    CHECK_OK(key_ctl(SETPERM, SESSION, 0x37000000));
    CHECK_ERR(content(r, NULL, 0), EACCES);
}
CASE(possession_of_what_may_not_be_searched) {
    fresh();
    int k = user_key("a", SESSION);
    CHECK_OK(key_ctl(SETPERM, k, 0x37000000));
    CHECK_ERR(content(k, NULL, 0), EACCES);
}
CASE(user_permissions_without_possession) {
    fresh();
    int k = user_key("a", SESSION);
    CHECK_OK(key_ctl(SETPERM, k, 0x3f030000));
    pid_t p = SPAWN({
        fresh();
        CHECK(holds(k, "data"));
        CHECK_ERR(key_ctl(UPDATE, k, (long)"x", 1), EACCES);
        CHECK_ERR(key_ctl(SETPERM, k, 0), EACCES);
        CHECK_ERR(key_ctl(LINK, k, SESSION), EACCES);
    });
    CHECK_EQ(join(p), 0);
}
CASE(group_and_other_permissions) {
    needs_root();
    fresh();
    int g = user_key("g", SESSION), o = user_key("o", SESSION);
    CHECK_OK(key_ctl(CHOWN, g, -1, NOBODY));
    CHECK_OK(key_ctl(SETPERM, g, 0x3f000200));
    CHECK_OK(key_ctl(SETPERM, o, 0x3f3f0002));
    pid_t p = SPAWN({
        fresh();
        become(NOBODY);
        CHECK(holds(g, "data") && holds(o, "data"));
        CHECK_ERR(key_ctl(DESCRIBE, g), EACCES);
        CHECK_ERR(key_ctl(DESCRIBE, o), EACCES);
    });
    CHECK_EQ(join(p), 0);
    p = SPAWN({
        fresh();
        become(NOBODY + 1);
        CHECK_ERR(content(g, NULL, 0), EACCES);
        CHECK(holds(o, "data"));
    });
    CHECK_EQ(join(p), 0);
}
CASE(setperm_is_for_the_owner) {
    needs_root();
    fresh();
    int k = user_key("a", SESSION);
    CHECK_OK(key_ctl(SETPERM, k, 0x3f3f3f3f));
    pid_t p = SPAWN({
        become(NOBODY);
        CHECK_ERR(key_ctl(SETPERM, k, 0x3f3f3f3f), EACCES);
        CHECK_ERR(key_ctl(CHOWN, k, NOBODY, -1), EACCES);
    });
    CHECK_EQ(join(p), 0);
}
CASE(chown) {
    needs_root();
    fresh();
    int k = user_key("a", SESSION);
    CHECK_OK(key_ctl(CHOWN, k, NOBODY, 7));
    CHECK(is(k, "user;61234;7;3f010000;a"));
    CHECK_OK(key_ctl(CHOWN, k, 0, -1));
    CHECK(is(k, "user;0;7;3f010000;a"));
}
CASE(chown_of_nothing) {
    fresh();
    CHECK_OK(key_ctl(CHOWN, 0, -1, -1));
    CHECK_OK(key_ctl(CHOWN, 0x7ffffff1, -1, -1));
    CHECK_ERR(key_ctl(CHOWN, 0, 1, -1), EINVAL);
    CHECK_ERR(key_ctl(CHOWN, 0x7ffffff1, 1, -1), ENOKEY);
}
CASE(chown_to_a_group_of_ones_own) {
    needs_root();
    fresh();
    gid_t more = 4321;
    CHECK_OK(syscall(SYS_setgroups, 1, &more));
    CHECK_OK(setresgid(NOBODY, NOBODY, NOBODY));
    CHECK_OK(setresuid(NOBODY, NOBODY, NOBODY));
    int k = user_key("a", SESSION);
    CHECK_OK(key_ctl(CHOWN, k, -1, 4321));
    CHECK_OK(key_ctl(CHOWN, k, NOBODY, NOBODY));
    CHECK_ERR(key_ctl(CHOWN, k, -1, 4322), EACCES);
    CHECK_ERR(key_ctl(CHOWN, k, 0, -1), EACCES);
}

// Content

CASE(update) {
    fresh();
    int k = user_key("a", SESSION);
    char *data = calloc(1, 5000);
    CHECK_OK(key_ctl(UPDATE, k, (long)"new data", 8));
    CHECK(holds(k, "new data"));
    CHECK_OK(key_ctl(UPDATE, k, (long)data, 4096));
    CHECK_ERR(key_ctl(UPDATE, k, (long)data, 4097), EINVAL);
    CHECK_ERR(key_ctl(UPDATE, k, 0, 0), EINVAL);
    CHECK_ERR(key_ctl(UPDATE, k, 0, 3), EFAULT);
    CHECK_ERR(key_ctl(UPDATE, 0x7ffffff1, (long)"x", 1), ENOKEY);
}
CASE(update_ends_a_timeout) {
    fresh();
    int k = user_key("a", SESSION);
    CHECK_OK(key_ctl(SET_TIMEOUT, k, 1));
    CHECK_OK(key_ctl(UPDATE, k, (long)"x", 1));
    pause_ms(1100);
    CHECK(holds(k, "x"));
}
CASE(revoke) {
    fresh();
    int k = user_key("a", SESSION);
    CHECK_OK(key_ctl(REVOKE, k));
    CHECK_ERR(key_ctl(REVOKE, k), EKEYREVOKED);
    CHECK_ERR(content(k, NULL, 0), EKEYREVOKED);
    CHECK_ERR(key_ctl(DESCRIBE, k), EKEYREVOKED);
    CHECK_ERR(key_ctl(UPDATE, k, (long)"x", 1), EKEYREVOKED);
    CHECK_ERR(request("user", "a", NULL, 0), EKEYREVOKED);
    CHECK_ERR(find(SESSION, "user", "a", 0), EKEYREVOKED);
    CHECK_OK(key_ctl(UNLINK, k, SESSION));
}
CASE(revoke_by_who_may_change_attributes) {
    fresh();
    int k = user_key("a", SESSION);
    CHECK_OK(key_ctl(SETPERM, k, 0x28000000));
    CHECK_OK(key_ctl(REVOKE, k));
}
CASE(revoke_a_keyring) {
    fresh();
    int r = new_ring("r", SESSION), k = user_key("a", r);
    CHECK_OK(key_ctl(LINK, k, SESSION));
    CHECK_OK(key_ctl(REVOKE, r));
    CHECK_ERR(add("user", "b", "x", 1, r), EKEYREVOKED);
    CHECK_ERR(content(r, NULL, 0), EKEYREVOKED);
    CHECK(holds(k, "data"));
}
CASE(invalidate) {
    int s = fresh(), k = user_key("a", SESSION);
    CHECK_OK(key_ctl(INVALIDATE, k));
    CHECK_ERR(key_ctl(DESCRIBE, k), ENOKEY);
    CHECK_ERR(key_ctl(INVALIDATE, k), ENOKEY);
    EVENTUALLY(links(s) == 0);
    CHECK_ERR(request("user", "a", NULL, 0), ENOKEY);
}
CASE(invalidate_needs_search) {
    fresh();
    int k = user_key("a", SESSION);
    CHECK_OK(key_ctl(SETPERM, k, 0x37000000));
    CHECK_ERR(key_ctl(INVALIDATE, k), EACCES);
}
CASE(timeout) {
    fresh();
    int k = user_key("a", SESSION);
    CHECK_OK(key_ctl(SET_TIMEOUT, k, 1));
    EVENTUALLY(content(k, NULL, 0) < 0);
    CHECK_EQ(errno, EKEYEXPIRED);
    CHECK_ERR(key_ctl(DESCRIBE, k), EKEYEXPIRED);
    CHECK_ERR(key_ctl(SET_TIMEOUT, k, 0), EKEYEXPIRED);
    CHECK_ERR(key_ctl(UPDATE, k, (long)"x", 1), EKEYEXPIRED);
    CHECK_ERR(request("user", "a", NULL, 0), ENOKEY);
    CHECK_ERR(find(SESSION, "user", "a", 0), EKEYEXPIRED);
    CHECK_EQ(add("user", "a", "new", 3, SESSION), k);
    CHECK(holds(k, "new"));
}
CASE(timeout_taken_back) {
    fresh();
    int k = user_key("a", SESSION);
    CHECK_OK(key_ctl(SET_TIMEOUT, k, 1));
    CHECK_OK(key_ctl(SET_TIMEOUT, k, 0));
    pause_ms(1100);
    CHECK(holds(k, "data"));
    CHECK_ERR(key_ctl(SET_TIMEOUT, 0x7ffffff1, 0), ENOKEY);
}

// Links

CASE(link_and_unlink) {
    fresh();
    int r = new_ring("r", SESSION), k = user_key("a", SESSION);
    CHECK_OK(key_ctl(LINK, k, r));
    CHECK_OK(key_ctl(LINK, k, r));
    CHECK_EQ(links(r), 1);
    CHECK_OK(key_ctl(UNLINK, k, r));
    CHECK_ERR(key_ctl(UNLINK, k, r), ENOENT);
}
CASE(link_displaces_its_like) {
    fresh();
    int r = new_ring("r", SESSION), q = new_ring("q", SESSION), a = user_key("a", r), b = user_key("a", q);
    CHECK_OK(key_ctl(LINK, a, q));
    CHECK(has(q, a) && !has(q, b));
    EVENTUALLY(key_ctl(DESCRIBE, b) < 0 && errno == ENOKEY);
}
CASE(unlink_takes_its_like) {
    fresh();
    int r = new_ring("r", SESSION), q = new_ring("q", SESSION), a = user_key("a", r);
    user_key("a", q);
    CHECK_OK(key_ctl(UNLINK, a, q));
    CHECK_EQ(links(q), 0);
    CHECK_EQ(links(r), 1);
}
CASE(last_link_takes_the_key) {
    fresh();
    int r = new_ring("r", SESSION), k = user_key("a", r);
    CHECK_OK(key_ctl(UNLINK, r, SESSION));
    EVENTUALLY(key_ctl(DESCRIBE, k) < 0 && errno == ENOKEY);
}
CASE(link_errors) {
    fresh();
    int r = new_ring("r", SESSION), k = user_key("a", SESSION);
    CHECK_ERR(key_ctl(LINK, r, k), ENOTDIR);
    CHECK_ERR(key_ctl(LINK, k, 0), EINVAL);
    CHECK_ERR(key_ctl(LINK, 0, r), EINVAL);
    CHECK_ERR(key_ctl(LINK, 0x7ffffff1, r), ENOKEY);
    CHECK_ERR(key_ctl(LINK, 0x7ffffff1, 0), EINVAL);
    CHECK_ERR(key_ctl(UNLINK, k, k), ENOTDIR);
    CHECK_ERR(key_ctl(UNLINK, 0, r), EINVAL);
    CHECK_ERR(key_ctl(UNLINK, 0x7ffffff1, r), ENOKEY);
}
CASE(link_needs_link_permission) {
    fresh();
    int r = new_ring("r", SESSION), k = user_key("a", SESSION);
    CHECK_OK(key_ctl(SETPERM, k, 0x2f000000));
    CHECK_ERR(key_ctl(LINK, k, r), EACCES);
    CHECK_OK(key_ctl(SETPERM, k, 0x3f000000));
    CHECK_OK(key_ctl(SETPERM, r, 0x3b000000));
    CHECK_ERR(key_ctl(LINK, k, r), EACCES);
    CHECK_ERR(key_ctl(UNLINK, k, r), EACCES);
    CHECK_ERR(key_ctl(CLEAR, r), EACCES);
}
CASE(link_cycles) {
    fresh();
    int a = new_ring("a", SESSION), b = new_ring("b", a), c = new_ring("c", b);
    CHECK_ERR(key_ctl(LINK, a, a), EDEADLK);
    CHECK_ERR(key_ctl(LINK, a, b), EDEADLK);
    CHECK_ERR(key_ctl(LINK, a, c), EDEADLK);
    CHECK_OK(key_ctl(LINK, c, a));
}
CASE(link_depth) {
    fresh();
    int ring[9] = {new_ring("0", SESSION)}, into = new_ring("into", SESSION);
    char name[4];
    for (int i = 1; i < 8; i++) {
        snprintf(name, sizeof name, "%d", i);
        ring[i] = new_ring(name, ring[i - 1]);
    }
    CHECK_ERR(key_ctl(LINK, ring[0], into), ELOOP);
    CHECK_OK(key_ctl(LINK, ring[1], into));
}
CASE(possession_depth) {
    fresh();
    int at = new_ring("0", SESSION);
    char name[4];
    for (int i = 1; i < 8; i++) {
        snprintf(name, sizeof name, "%d", i);
        at = new_ring(name, at);
    }
    // Its keyring is found no more, so it is nobody's.
    CHECK_ERR(add("user", "a", "x", 1, at), EACCES);
}
CASE(clear) {
    int s = fresh();
    int r = new_ring("r", SESSION), k = user_key("a", r);
    CHECK_OK(key_ctl(CLEAR, r));
    CHECK_EQ(links(r), 0);
    CHECK_EQ(links(s), 1);
    EVENTUALLY(key_ctl(DESCRIBE, k) < 0 && errno == ENOKEY);
    k = user_key("b", SESSION);
    CHECK_ERR(key_ctl(CLEAR, k), ENOTDIR);
    CHECK_ERR(key_ctl(CLEAR, 0), EINVAL);
    CHECK_ERR(key_ctl(CLEAR, 0x7ffffff1), ENOKEY);
}
CASE(move) {
    fresh();
    int r = new_ring("r", SESSION), q = new_ring("q", SESSION), k = user_key("a", r);
    CHECK_OK(key_ctl(MOVE, k, r, q, 0));
    CHECK(has(q, k) && !has(r, k));
    CHECK_ERR(key_ctl(MOVE, k, r, q, 0), ENOENT);
    CHECK_OK(key_ctl(MOVE, k, q, q, 0));
    CHECK_OK(key_ctl(MOVE, k, r, r, 0));
    CHECK_OK(key_ctl(MOVE, k, q, r, 1));
}
CASE(move_takes_a_place_or_not) {
    fresh();
    int r = new_ring("r", SESSION), q = new_ring("q", SESSION), k = user_key("a", r), other = user_key("a", q);
    CHECK_ERR(key_ctl(MOVE, k, r, q, 1), EEXIST);
    CHECK(has(r, k) && has(q, other));
    CHECK_OK(key_ctl(MOVE, k, r, q, 0));
    CHECK(!has(r, k) && has(q, k) && !has(q, other));
}
CASE(move_errors) {
    fresh();
    int r = new_ring("r", SESSION), q = new_ring("q", SESSION), k = user_key("a", r);
    CHECK_ERR(key_ctl(MOVE, k, r, q, 2), EINVAL);
    CHECK_ERR(key_ctl(MOVE, k, k, q, 0), ENOTDIR);
    CHECK_ERR(key_ctl(MOVE, k, r, k, 0), ENOTDIR);
    CHECK_ERR(key_ctl(MOVE, 0, r, q, 0), EINVAL);
    CHECK_ERR(key_ctl(MOVE, 0x7ffffff1, r, q, 0), ENOKEY);
    CHECK_ERR(key_ctl(MOVE, r, SESSION, r, 0), EDEADLK);
    CHECK_OK(key_ctl(SETPERM, k, 0x2f000000));
    CHECK_ERR(key_ctl(MOVE, k, r, q, 0), EACCES);
}

// Searching

CASE(search) {
    fresh();
    int r = new_ring("r", SESSION), k = user_key("a", r);
    CHECK_EQ(find(SESSION, "user", "a", 0), k);
    CHECK_EQ(find(r, "user", "a", 0), k);
    CHECK_EQ(find(SESSION, "keyring", "r", 0), r);
    CHECK_EQ(find(r, "keyring", "r", 0), r);
    CHECK_ERR(find(SESSION, "user", "b", 0), ENOKEY);
    CHECK_ERR(find(SESSION, "logon", "a", 0), ENOKEY);
}
CASE(search_errors) {
    fresh();
    int k = user_key("a", SESSION);
    CHECK_ERR(find(SESSION, "nosuch", "a", 0), ENOKEY);
    CHECK_ERR(find(k, "user", "a", 0), ENOTDIR);
    CHECK_ERR(find(0, "user", "a", 0), EINVAL);
    CHECK_ERR(find(THREAD, "user", "a", 0), ENOKEY);
    CHECK_ERR(find(SESSION, "", "a", 0), EINVAL);
    CHECK_ERR(find(SESSION, ".user", "a", 0), EPERM);
    CHECK_ERR(find(SESSION, BAD, "a", 0), EFAULT);
    CHECK_ERR(find(SESSION, "user", BAD, 0), EFAULT);
    CHECK_ERR(find(SESSION, "user", NULL, 0), EFAULT);
    CHECK_ERR(find(SESSION, "user", "", 0), ENOKEY);
    CHECK_ERR(find(SESSION, "user", "a", k), ENOTDIR);
    CHECK_ERR(find(SESSION, "user", "a", -9), EINVAL);
}
CASE(search_links) {
    fresh();
    int r = new_ring("r", SESSION), k = user_key("a", SESSION);
    CHECK_EQ(find(SESSION, "user", "a", r), k);
    CHECK(has(r, k));
    CHECK_OK(key_ctl(SETPERM, k, 0x2f000000));
    CHECK_ERR(find(SESSION, "user", "a", THREAD), EACCES);
}
CASE(search_passes_by_what_may_not_be_searched) {
    fresh();
    int r = new_ring("r", SESSION), k = user_key("a", r);
    CHECK_OK(key_ctl(SETPERM, r, 0x37000000));
    CHECK_ERR(find(SESSION, "user", "a", 0), ENOKEY);
    CHECK_ERR(key_ctl(SETPERM, k, 0), EACCES);
}
CASE(search_needs_search_permission) {
    fresh();
    int r = new_ring("r", SESSION), k = user_key("a", r);
    CHECK_OK(key_ctl(SETPERM, k, 0x37000000));
    CHECK_ERR(find(SESSION, "user", "a", 0), EACCES);
    CHECK_OK(key_ctl(SETPERM, r, 0x37000000));
    CHECK_ERR(find(r, "user", "a", 0), EACCES);
}
CASE(search_nearest_first) {
    fresh();
    int r = new_ring("r", SESSION);
    user_key("a", r);
    int near = user_key("a", SESSION);
    CHECK_EQ(find(SESSION, "user", "a", 0), near);
}
CASE(search_depth) {
    fresh();
    int at = new_ring("0", SESSION), k = 0;
    char name[4];
    for (int i = 1; i < 7; i++) {
        if (i == 6) k = user_key("found", at);
        snprintf(name, sizeof name, "%d", i);
        at = new_ring(name, at);
    }
    CHECK_EQ(find(SESSION, "user", "found", 0), k);
    int below = user_key("deep", at);
    CHECK_ERR(find(SESSION, "user", "deep", 0), ENOKEY);
    CHECK_ERR(content(below, NULL, 0), EACCES);
}

// request_key

CASE(request_finds) {
    fresh();
    int k = user_key("a", SESSION);
    CHECK_EQ(request("user", "a", NULL, 0), k);
    CHECK_EQ(request("user", "a", "info", 0), k);
    CHECK_ERR(request("user", "b", NULL, 0), ENOKEY);
}
CASE(request_looks_in_thread_process_session) {
    fresh();
    int s = user_key("a", SESSION);
    CHECK_EQ(request("user", "a", NULL, 0), s);
    int p = user_key("a", PROCESS);
    CHECK_EQ(request("user", "a", NULL, 0), p);
    int t = user_key("a", THREAD);
    CHECK_EQ(request("user", "a", NULL, 0), t);
}
CASE(request_links) {
    fresh();
    int k = user_key("a", SESSION), r = new_ring("r", SESSION);
    CHECK_EQ(request("user", "a", NULL, r), k);
    CHECK(has(r, k));
}
CASE(request_errors) {
    fresh();
    int k = user_key("a", SESSION);
    CHECK_ERR(request("nosuch", "a", NULL, 0), ENOKEY);
    CHECK_ERR(request("nosuch", "a", "info", 0), ENOKEY);
    CHECK_ERR(request(".user", "a", NULL, 0), EPERM);
    CHECK_ERR(request("", "a", NULL, 0), EINVAL);
    CHECK_ERR(request("user", "", NULL, 0), ENOKEY);
    CHECK_ERR(request("user", NULL, NULL, 0), EFAULT);
    CHECK_ERR(request(NULL, "a", NULL, 0), EFAULT);
    CHECK_ERR(request("user", "a", BAD, 0), EFAULT);
    CHECK_ERR(request("user", "a", NULL, k), ENOTDIR);
    CHECK_ERR(request("user", "a", NULL, -9), EINVAL);
    CHECK_ERR(request("user", "a", NULL, 0x7ffffff1), ENOKEY);
    CHECK_ERR(request("keyring", "none", "info", 0), EPERM);
}
CASE(request_of_what_nobody_makes) {
    if (!access("/sbin/request-key", X_OK)) SKIP("this host makes keys");
    int s = fresh();
    CHECK_ERR(request("user", "neg", "info", 0), ENOENT);
    CHECK_ERR(request("user", "neg", "info", 0), ENOKEY);
    CHECK_ERR(request("user", "neg", NULL, 0), ENOKEY);
    CHECK_ERR(find(SESSION, "user", "neg", 0), ENOKEY);
    CHECK_EQ(links(s), 1);
    int k;
    CHECK_EQ(content(SESSION, (char *)&k, 4), 4);
    CHECK_ERR(content(k, NULL, 0), ENOKEY);
    CHECK(!strcmp(strrchr(describe(k), ';'), ";neg"));
    CHECK_EQ(add("user", "neg", "x", 1, SESSION), k);
    CHECK_EQ(request("user", "neg", NULL, 0), k);
}
CASE(request_destinations) {
    if (!access("/sbin/request-key", X_OK)) SKIP("this host makes keys");
    int s = fresh();
    CHECK_OK(key_ctl(GET_ID, PROCESS, 1));
    CHECK_ERR(request("user", "p", "", 0), ENOENT);
    CHECK_EQ(links(PROCESS), 1);
    CHECK_OK(key_ctl(SET_REQKEY, 1));
    CHECK_ERR(request("user", "t", "", 0), ENOENT);
    CHECK_EQ(links(THREAD), 1);
    CHECK_OK(key_ctl(SET_REQKEY, 3));
    CHECK_ERR(request("user", "s", "", 0), ENOENT);
    CHECK_EQ(links(s), 1);
    int r = new_ring("r", SESSION);
    CHECK_ERR(request("user", "r", "", r), ENOENT);
    CHECK_EQ(links(r), 1);
}
CASE(set_reqkey_keyring) {
    fresh();
    CHECK_EQ(key_ctl(SET_REQKEY, -1), 0);
    CHECK_EQ(key_ctl(SET_REQKEY, 3), 0);
    CHECK_EQ(key_ctl(SET_REQKEY, 5), 3);
    CHECK_EQ(key_ctl(SET_REQKEY, 7), 5);
    CHECK_EQ(key_ctl(SET_REQKEY, -1), 7);
    CHECK_ERR(key_ctl(SET_REQKEY, 6), EINVAL);
    CHECK_ERR(key_ctl(SET_REQKEY, 8), EINVAL);
    CHECK_ERR(key_ctl(SET_REQKEY, -2), EINVAL);
    CHECK_ERR(key_ctl(GET_ID, PROCESS, 0), ENOKEY);
    CHECK_EQ(key_ctl(SET_REQKEY, 2), 7);
    CHECK_OK(key_ctl(GET_ID, PROCESS, 0));
    pid_t p = SPAWN(CHECK_EQ(key_ctl(SET_REQKEY, -1), 2));
    CHECK_EQ(join(p), 0);
}
CASE(no_authority) {
    fresh();
    int k = user_key("a", SESSION);
    struct iovec v = {"x", 1};
    CHECK_ERR(key_ctl(INSTANTIATE, k, (long)"x", 1, 0), EPERM);
    CHECK_ERR(key_ctl(INSTANTIATE, k, (long)"x", 1 << 20, 0), EINVAL);
    CHECK_ERR(key_ctl(INSTANTIATE_IOV, k, (long)&v, 1, 0), EPERM);
    CHECK_ERR(key_ctl(INSTANTIATE_IOV, k, (long)BAD, 1, 0), EFAULT);
    CHECK_ERR(key_ctl(INSTANTIATE_IOV, k, 0, 0, 0), EPERM);
    CHECK_ERR(key_ctl(NEGATE, k, 1, 0), EPERM);
    CHECK_ERR(key_ctl(REJECT, k, 1, EKEYREJECTED, 0), EPERM);
    CHECK_ERR(key_ctl(REJECT, k, 1, 0, 0), EINVAL);
    CHECK_ERR(key_ctl(REJECT, k, 1, 4095, 0), EINVAL);
    CHECK_ERR(key_ctl(REJECT, k, 1, 512, 0), EINVAL);
    CHECK_EQ(key_ctl(ASSUME, 0), 0);
    CHECK_ERR(key_ctl(ASSUME, -1), EINVAL);
    CHECK_ERR(key_ctl(ASSUME, k), ENOKEY);
}

// Restricting keyrings

CASE(restrict_closes) {
    fresh();
    int r = new_ring("r", SESSION), k = user_key("a", SESSION), in = user_key("in", r);
    CHECK_OK(key_ctl(RESTRICT, r, 0, 0));
    CHECK_ERR(key_ctl(LINK, k, r), EPERM);
    CHECK_ERR(add("user", "b", "x", 1, r), EPERM);
    CHECK_ERR(add("user", "in", "x", 1, r), EPERM);
    CHECK_ERR(key_ctl(MOVE, k, SESSION, r, 0), EPERM);
    CHECK_OK(key_ctl(UNLINK, in, r));
    CHECK_ERR(key_ctl(RESTRICT, r, 0, 0), EEXIST);
}
CASE(restrict_errors) {
    fresh();
    int r = new_ring("r", SESSION), k = user_key("a", SESSION);
    CHECK_ERR(key_ctl(RESTRICT, k, 0, 0), ENOTDIR);
    CHECK_ERR(key_ctl(RESTRICT, r, (long)"user", 0), EINVAL);
    CHECK_ERR(key_ctl(RESTRICT, r, 0, (long)"x"), EINVAL);
    CHECK_ERR(key_ctl(RESTRICT, r, (long)"user", (long)"x"), ENOENT);
    CHECK_ERR(key_ctl(RESTRICT, r, (long)"nosuch", (long)"x"), ENOKEY);
    CHECK_ERR(key_ctl(RESTRICT, 0, 0, 0), EINVAL);
    CHECK_OK(key_ctl(SETPERM, r, 0x1f000000));
    CHECK_ERR(key_ctl(RESTRICT, r, 0, 0), EACCES);
}

// Persistent keyrings

CASE(persistent) {
    fresh();
    long k = key_ctl(GET_PERSISTENT, -1, SESSION);
    if (k < 0 && errno == EOPNOTSUPP) SKIP("no persistent keyrings here");
    CHECK_OK(k);
    char want[100];
    snprintf(want, sizeof want, "keyring;%d;65534;1f030000;_persistent.%d", getuid(), getuid());
    CHECK(is(k, want));
    CHECK(has(SESSION, k));
    CHECK_EQ(key_ctl(GET_PERSISTENT, getuid(), THREAD), k);
    CHECK(has(THREAD, k));
}
CASE(persistent_of_others) {
    needs_root();
    fresh();
    int r = new_ring("r", SESSION), k = user_key("a", SESSION);
    CHECK_OK(key_ctl(GET_PERSISTENT, NOBODY, r));
    CHECK_ERR(key_ctl(GET_PERSISTENT, -1, k), ENOTDIR);
    CHECK_ERR(key_ctl(GET_PERSISTENT, -1, 0), EINVAL);
    pid_t p = SPAWN({
        become(NOBODY);
        fresh();
        CHECK_OK(key_ctl(GET_PERSISTENT, -1, SESSION));
        CHECK_ERR(key_ctl(GET_PERSISTENT, 0, SESSION), EPERM);
        CHECK_ERR(key_ctl(GET_PERSISTENT, 0, 0), EPERM);
    });
    CHECK_EQ(join(p), 0);
}

// The parent's session

CASE(session_to_parent) {
    int s = fresh();
    pid_t p = SPAWN({
        CHECK_OK(key_ctl(TO_PARENT));
        long mine = fresh();
        user_key("a", SESSION);
        CHECK_OK(key_ctl(TO_PARENT));
        CHECK_EQ(key_ctl(GET_ID, SESSION, 0), mine);
    });
    CHECK_EQ(join(p), 0);
    CHECK(key_ctl(GET_ID, SESSION, 0) != s);
    CHECK_OK(request("user", "a", NULL, 0));
}
CASE(session_to_parent_of_another_user) {
    needs_root();
    int s = fresh();
    pid_t p = SPAWN({
        become(NOBODY);
        fresh();
        CHECK_ERR(key_ctl(TO_PARENT), EPERM);
    });
    CHECK_EQ(join(p), 0);
    CHECK_EQ(key_ctl(GET_ID, SESSION, 0), s);
}
static void *stay(void *nothing) {
    pause();
    return nothing;
}
CASE(session_to_parent_with_threads) {
    fresh();
    pthread_t other;
    CHECK(pthread_create(&other, NULL, stay, NULL) == 0);
    pid_t p = SPAWN({
        fresh();
        CHECK_ERR(key_ctl(TO_PARENT), EPERM);
    });
    CHECK_EQ(join(p), 0);
}

// Quotas

static void usage(int uid, int *keys, int *bytes) {
    char *line = slurp("/proc/key-users");
    *keys = *bytes = 0;
    for (; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        int id, refs, n, inst, max;
        if (sscanf(line, "%d: %d %d/%d %d/%d %d/%d", &id, &refs, &n, &inst, keys, &max, bytes, &max) == 8 && id == uid) return;
    }
    *keys = *bytes = 0;
}
CASE(quota_of_keys) {
    needs_root();
    become(NOBODY + 2);
    fresh();
    int n = 0;
    char name[20];
    for (; n < 300; n++) {
        snprintf(name, sizeof name, "k%d", n);
        if (add("user", name, "x", 1, SESSION) < 0) break;
    }
    CHECK_EQ(errno, EDQUOT);
    CHECK_EQ(n, 199);
    CHECK_OK(add("user", "k0", "y", 1, SESSION));
    CHECK_ERR(add("keyring", "r", NULL, 0, SESSION), EDQUOT);
    CHECK_ERR(syscall(SYS_keyctl, JOIN, NULL), EDQUOT);
    // These are made all the same.
    CHECK_OK(key_ctl(GET_ID, THREAD, 1));
    CHECK_OK(key_ctl(GET_ID, PROCESS, 1));
    CHECK_OK(key_ctl(CLEAR, SESSION));
    EVENTUALLY(add("keyring", "r", NULL, 0, SESSION) > 0);
}
CASE(quota_of_bytes) {
    needs_root();
    become(NOBODY + 3);
    fresh();
    char *data = calloc(1, 32000);
    CHECK_ERR(add("user", "a", data, 20000, SESSION), EDQUOT);
    long k = CHECK_OK(add("user", "a", data, 15000, SESSION));
    CHECK_ERR(add("user", "b", data, 6000, SESSION), EDQUOT);
    CHECK_ERR(add("user", "a", data, 20000, SESSION), EDQUOT);
    CHECK_EQ(content(k, NULL, 0), 15000);
    CHECK_OK(key_ctl(UPDATE, k, (long)"x", 1));
    CHECK_OK(add("user", "b", data, 16000, SESSION));
}
CASE(quota_is_told) {
    needs_root();
    become(NOBODY + 4);
    fresh();
    int keys, bytes, keys2, bytes2;
    usage(NOBODY + 4, &keys, &bytes);
    CHECK(keys > 0);
    user_key("abc", SESSION);
    usage(NOBODY + 4, &keys2, &bytes2);
    CHECK_EQ(keys2, keys + 1);
    CHECK_EQ(bytes2, bytes + 4 + 4 + 4);
    CHECK_OK(key_ctl(CLEAR, SESSION));
    EVENTUALLY((usage(NOBODY + 4, &keys2, &bytes2), keys2 == keys && bytes2 == bytes));
}
CASE(quota_moves_with_the_owner) {
    needs_root();
    fresh();
    int keys, bytes, keys2, bytes2, k = user_key("abc", SESSION);
    usage(NOBODY + 5, &keys, &bytes);
    CHECK_OK(key_ctl(CHOWN, k, NOBODY + 5, -1));
    usage(NOBODY + 5, &keys2, &bytes2);
    CHECK_EQ(keys2, keys + 1);
    CHECK_EQ(bytes2, bytes + 8);
    CHECK_OK(key_ctl(UPDATE, k, (long)"0123456789", 10));
    usage(NOBODY + 5, &keys2, &bytes2);
    CHECK_EQ(bytes2, bytes + 14);
}
CASE(quota_of_a_new_owner) {
    needs_root();
    fresh();
    char *data = calloc(1, 32000);
    long a = CHECK_OK(add("user", "a", data, 15000, SESSION)), b = CHECK_OK(add("user", "b", data, 15000, SESSION));
    CHECK_OK(key_ctl(CHOWN, a, NOBODY + 6, -1));
    CHECK_ERR(key_ctl(CHOWN, b, NOBODY + 6, -1), EDQUOT);
}

// What else is told

CASE(capabilities) {
    fresh();
    unsigned char b[20];
    memset(b, 0xee, sizeof b);
    long n = CHECK_OK(key_ctl(CAPABILITIES, 0, 0));
    CHECK(n >= 2);
    CHECK_EQ(key_ctl(CAPABILITIES, (long)b, 1), n);
    CHECK(b[0] & 1 && b[1] == 0xee);
    CHECK_EQ(key_ctl(CAPABILITIES, (long)b, 18), n);
    CHECK(b[0] & 0x20 && b[0] & 0x40 && b[0] & 0x80);
    for (int i = n; i < 18; i++) CHECK_EQ(b[i], 0);
    CHECK_EQ(b[18], 0xee);
    CHECK_ERR(key_ctl(CAPABILITIES, (long)BAD, 2), EFAULT);
}
CASE(commands_unknown) {
    fresh();
    CHECK_ERR(key_ctl(33), EOPNOTSUPP);
    CHECK_ERR(key_ctl(-1), EOPNOTSUPP);
    CHECK_ERR(key_ctl(1000), EOPNOTSUPP);
}
static bool shown(int key, const char *want) {
    char id[12];
    snprintf(id, sizeof id, "\n%08x ", key);
    char *all = slurp("/proc/keys"), *line = strncmp(all, id + 1, 9) ? strstr(all, id) : all - 1;
    if (!line) return false;
    line++;
    *strchr(line, '\n') = 0;
    if (!strstr(line, want)) FAIL("%s: not %s", line, want);
    return true;
}
CASE(proc_keys) {
    needs_root();
    int s = fresh(), k = user_key("a", SESSION), r = new_ring("r", SESSION);
    CHECK(shown(k, " I--Q---     1 perm 3f010000     0     0 user      a: 4"));
    CHECK(shown(r, " 3f010000     0     0 keyring   r: empty"));
    CHECK(shown(s, " 3f030000     0     0 keyring   _ses: 2"));
    CHECK_OK(key_ctl(SET_TIMEOUT, k, 3700));
    CHECK(shown(k, "   1h 3f010000"));
    CHECK_OK(key_ctl(SET_TIMEOUT, k, 50));
    CHECK(shown(k, "s 3f010000"));
    CHECK_OK(key_ctl(SET_TIMEOUT, k, 200000));
    CHECK(shown(k, "   2d 3f010000"));
    CHECK_OK(key_ctl(REVOKE, k));
    CHECK(shown(k, " IR-Q---     1 expd 3f010000     0     0 user      a: 0"));
}
CASE(proc_keys_shows_what_may_be_viewed) {
    fresh();
    int k = user_key("a", SESSION);
    CHECK(shown(k, "a: 4"));
    CHECK_OK(key_ctl(SETPERM, k, 0x3f000000));
    CHECK(shown(k, "a: 4"));
    pid_t p = SPAWN({
        fresh();
        CHECK(!shown(k, ""));
    });
    CHECK_EQ(join(p), 0);
    CHECK_OK(key_ctl(SETPERM, k, 0x3e000000));
    CHECK(!shown(k, ""));
}
CASE(proc_settings) {
    CHECK(!strcmp(slurp("/proc/sys/kernel/keys/maxkeys"), "200\n"));
    CHECK(!strcmp(slurp("/proc/sys/kernel/keys/maxbytes"), "20000\n"));
    CHECK(!strcmp(slurp("/proc/sys/kernel/keys/root_maxkeys"), "1000000\n"));
    CHECK(!strcmp(slurp("/proc/sys/kernel/keys/root_maxbytes"), "25000000\n"));
    CHECK(atoi(slurp("/proc/sys/kernel/keys/gc_delay")) > 0);
    CHECK(!access("/proc/sys/kernel/keys/persistent_keyring_expiry", F_OK) || errno == ENOENT);
}
