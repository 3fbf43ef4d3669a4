// Directory notification: which events give which signals, once or again, and when they end.
#include "t.h"

static volatile int hits, fd_told, code, band;
static void note(int s, siginfo_t *si, void *u) { (void)s, (void)u, hits++, fd_told = si->si_fd, code = si->si_code, band = si->si_band; }
static int dir;
static void mk(unsigned mask) {
    scratch();
    CHECK(mkdir("d", 0755) == 0);
    mkfile("d/f", "text");
    CHECK((dir = open("d", O_RDONLY | O_DIRECTORY)) >= 0);
    on_signal(SIGRTMIN, note, 0);
    CHECK(fcntl(dir, F_SETSIG, SIGRTMIN) == 0);
    CHECK(fcntl(dir, F_NOTIFY, mask) == 0);
}
// Signals since the last question.
static int told(void) {
    int n = hits;
    hits = 0;
    return n;
}

CASE(arguments) {
    scratch();
    int f = mkfile("f", "");
    CHECK_ERR(fcntl(f, F_NOTIFY, DN_CREATE), ENOTDIR);
    CHECK(fcntl(f, F_NOTIFY, 0) == 0);
    CHECK_ERR(fcntl(999, F_NOTIFY, DN_CREATE), EBADF);
    CHECK_ERR(fcntl(open(".", O_PATH), F_NOTIFY, DN_CREATE), EBADF);
}
CASE(each_event) {
    mk(DN_CREATE | DN_MULTISHOT);
    int f = open("d/new", O_CREAT | O_RDWR, 0600);
    CHECK_EQ(told(), 1);
    CHECK(fd_told == dir && code == POLL_MSG && band == (POLLIN | POLLRDNORM | POLLMSG));
    CHECK(mkdir("d/sub", 0700) == 0 && symlink("x", "d/s") == 0 && link("d/f", "d/l") == 0);
    CHECK_EQ(told(), 3);
    CHECK(write(f, "x", 1) == 1 && fchmod(f, 0644) == 0 && unlink("d/new") == 0);
    CHECK_EQ(told(), 0);
    CHECK(fcntl(dir, F_NOTIFY, 0) == 0);
    CHECK(fcntl(dir, F_NOTIFY, DN_MODIFY | DN_MULTISHOT) == 0);
    f = open("d/f", O_RDWR);
    CHECK(write(f, "x", 1) == 1 && told() == 1);
    CHECK(ftruncate(f, 0) == 0 && told() == 1);
    CHECK(fcntl(dir, F_NOTIFY, 0) == 0 && fcntl(dir, F_NOTIFY, DN_ATTRIB | DN_MULTISHOT) == 0);
    CHECK(fchmod(f, 0600) == 0 && told() == 1);
    CHECK(fcntl(dir, F_NOTIFY, 0) == 0 && fcntl(dir, F_NOTIFY, DN_DELETE | DN_MULTISHOT) == 0);
    CHECK(unlink("d/l") == 0 && rmdir("d/sub") == 0 && told() == 2);
    CHECK(rename("d/s", "away") == 0 && told() == 1);
    CHECK(rename("away", "d/back") == 0 && told() == 0);
    CHECK(fcntl(dir, F_NOTIFY, 0) == 0 && fcntl(dir, F_NOTIFY, DN_RENAME | DN_MULTISHOT) == 0);
    CHECK(rename("d/back", "d/again") == 0 && told() == 1);
    CHECK(fcntl(dir, F_NOTIFY, 0) == 0 && fcntl(dir, F_NOTIFY, DN_ACCESS | DN_MULTISHOT) == 0);
    char c;
    CHECK(write(f, "abc", 3) == 3 && told() == 0);
    CHECK(pread(f, &c, 1, 0) == 1 && told() == 1);
}
CASE(once_unless_asked_again) {
    mk(DN_CREATE);
    mkfile("d/1", ""), mkfile("d/2", "");
    CHECK_EQ(told(), 1);
    CHECK(fcntl(dir, F_NOTIFY, DN_CREATE) == 0);
    mkfile("d/3", "");
    CHECK_EQ(told(), 1);
}
CASE(events_are_added) {
    mk(DN_CREATE | DN_MULTISHOT);
    CHECK(fcntl(dir, F_NOTIFY, DN_DELETE) == 0);
    mkfile("d/1", "");
    CHECK(unlink("d/1") == 0);
    CHECK_EQ(told(), 2);
}
CASE(the_directory_and_what_is_in_it_and_no_deeper) {
    mk(DN_CREATE | DN_ATTRIB | DN_DELETE | DN_MULTISHOT);
    CHECK(chmod("d", 0700) == 0);
    CHECK_EQ(told(), 1);
    CHECK(mkdir("d/sub", 0700) == 0);
    CHECK_EQ(told(), 1);
    mkfile("d/sub/f", "");
    CHECK_EQ(told(), 0);
}
CASE(sigio_if_none_was_chosen) {
    mk(0);
    on_signal(SIGIO, note, 0);
    CHECK(fcntl(dir, F_SETSIG, 0) == 0 && fcntl(dir, F_NOTIFY, DN_CREATE) == 0);
    CHECK_EQ(fcntl(dir, F_GETOWN), getpid());
    mkfile("d/1", "");
    CHECK_EQ(told(), 1);
}
CASE(ends_with_a_close_by_the_process) {
    mk(DN_CREATE | DN_MULTISHOT);
    int other = dup(dir);
    // Another process has nothing to do with it.
    CHECK_EQ(join(SPAWN(close(dir); _exit(0))), 0);
    mkfile("d/1", "");
    CHECK_EQ(told(), 1);
    close(other);
    mkfile("d/2", "");
    CHECK_EQ(told(), 0);
}
CASE(changes_by_others_count) {
    mk(DN_CREATE | DN_MULTISHOT);
    CHECK_EQ(join(SPAWN(mkfile("d/1", ""))), 0);
    CHECK_EQ(told(), 1);
}
