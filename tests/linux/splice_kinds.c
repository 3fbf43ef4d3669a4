// splice, tee, vmsplice, sendfile and copy_file_range between every two kinds of descriptors, and calls that must not
// block for ever. Every answer is compared with a table of what Linux answers.
#include "t.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <netinet/in.h>


// Kinds of descriptors, by the letter that stands for each in the tables.
static const char kinds[] = "rRwWqfaAdhnzp/esctikKmuDUgxo";
// The other ends of pipes and sockets, which must stay open.
static int keep[2];

static int remembered(int mine, int other) {
    keep[keep[0] >= 0] = other;
    return mine;
}

// A new descriptor of a kind. `end` is 0 for what is read from and 1 for what is written to.
static int make(char kind) {
    int p[2];
    char path[] = "m.XXXXXX";
    int fd;
    switch (kind) {
    case 'r':  // a pipe's reading end, with data
        CHECK(pipe(p) == 0);
        CHECK(write(p[1], "0123456789", 10) == 10);
        return remembered(p[0], p[1]);
    case 'R':  // without
        CHECK(pipe(p) == 0);
        return remembered(p[0], p[1]);
    case 'w':  // a pipe's writing end, empty
        CHECK(pipe(p) == 0);
        return remembered(p[1], p[0]);
    case 'W':  // full
        CHECK(pipe(p) == 0);
        CHECK(fcntl(p[1], F_SETPIPE_SZ, 4096) == 4096);
        for (int i = 0; i < 4096; i++) CHECK(write(p[1], "x", 1) == 1);
        return remembered(p[1], p[0]);
    case 'q':  // a FIFO's both ends at once, with data
        CHECK(mkfifo("fifo", 0600) == 0);
        CHECK((fd = open("fifo", O_RDWR)) >= 0);
        unlink("fifo");
        CHECK(write(fd, "0123456789", 10) == 10);
        return fd;
    case 'f':  // a regular file
        CHECK((fd = mkstemp(path)) >= 0);
        unlink(path);
        CHECK(pwrite(fd, "0123456789", 10, 0) == 10);
        return fd;
    case 'a':  // one to append to
        CHECK((fd = mkstemp(path)) >= 0);
        unlink(path);
        CHECK(pwrite(fd, "0123456789", 10, 0) == 10);
        CHECK(fcntl(fd, F_SETFL, O_APPEND) == 0);
        return fd;
    case 'A':  // one to read only
        CHECK((fd = mkstemp(path)) >= 0);
        close(fd);
        CHECK((fd = open(path, O_RDONLY)) >= 0);
        unlink(path);
        return fd;
    case 'd': return open("/", O_RDONLY | O_DIRECTORY);
    case 'h': return open("/", O_PATH);
    case 'n': return open("/dev/null", O_RDWR);
    case 'z': return open("/dev/zero", O_RDWR);
    case 'p': return open("/proc/self/stat", O_RDONLY);
    case '/': return open("/proc/sys/kernel/pid_max", O_RDONLY);
    case 'e': return eventfd(0, 0);
    case 's': {
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGUSR2);
        return signalfd(-1, &set, 0);
    }
    case 'c': return epoll_create1(0);
    case 't': return timerfd_create(CLOCK_MONOTONIC, 0);
    case 'i': return inotify_init1(0);
    case 'k': return syscall(SYS_pidfd_open, getpid(), 0);
    case 'K': return syscall(SYS_mq_open, "t-splice", O_RDWR | O_CREAT, 0600, NULL);
    case 'm':
        CHECK((fd = memfd_create("m", 0)) >= 0);
        CHECK(pwrite(fd, "0123456789", 10, 0) == 10);
        return fd;
    case 'u':  // a connected stream, with data to read
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, p) == 0);
        CHECK(write(p[1], "0123456789", 10) == 10);
        return remembered(p[0], p[1]);
    case 'D':  // a connected datagram socket, with data to read
        CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, p) == 0);
        CHECK(write(p[1], "0123456789", 10) == 10);
        return remembered(p[0], p[1]);
    case 'U': return socket(AF_UNIX, SOCK_STREAM, 0);
    case 'g': return socket(AF_INET, SOCK_DGRAM, 0);
    case 'x': return 999;
    case 'o':  // a terminal's controlling side
        return open("/dev/ptmx", O_RDWR | O_NOCTTY);
    }
    return -1;
}

static void tick(int sig, siginfo_t *i, void *c) { (void)sig, (void)i, (void)c; }

static void start_ticks(void) {
    // Ticks come again and again, so that none is lost between two calls.
    struct itimerval every = {{0, 3000}, {0, 3000}};
    on_signal(SIGALRM, tick, 0);
    signal(SIGPIPE, SIG_IGN);
    CHECK(setitimer(ITIMER_REAL, &every, NULL) == 0);
}

static char letter(long r) {
    if (r >= 0) return r == 0 ? '0' : r == 10 ? '+' : r == 5 ? '5' : '?';
    switch (errno) {
    case EINTR: return 'w';  // waited
    case EAGAIN: return 'a';
    case EBADF: return 'b';
    case EINVAL: return '.';
    case ESPIPE: return 's';
    case EISDIR: return 'd';
    case EPIPE: return 'p';
    case ENOTCONN: return 'n';
    case EIO: return 'i';
    case ENOTSUP: return 'o';
    case EDESTADDRREQ: return 'D';
    case EMSGSIZE: return 'M';
    case EXDEV: return 'x';
    case EFBIG: return 'f';
    default: return '!';
    }
}

enum { NONBLOCK = 1, OFFSETS = 2, FLAG = 4 };

typedef long (*call)(int in, int out, int how);

static long do_splice(int in, int out, int how) {
    loff_t a = 0, b = 0;
    return splice(in, how & OFFSETS ? &a : NULL, out, how & OFFSETS ? &b : NULL, 10, how & FLAG ? SPLICE_F_NONBLOCK : 0);
}

static long do_tee(int in, int out, int how) { return tee(in, out, 10, how & FLAG ? SPLICE_F_NONBLOCK : 0); }

static long do_sendfile(int in, int out, int how) {
    off_t at = 0;
    return sendfile(out, in, how & OFFSETS ? &at : NULL, 10);
}

static long do_copy(int in, int out, int how) {
    loff_t a = 0, b = 20;
    return copy_file_range(in, how & OFFSETS ? &a : NULL, out, how & OFFSETS ? &b : NULL, 10, 0);
}

// Every kind into every kind. Rows are what is read from, columns what is written to. What waits in the table gives
// EAGAIN when it must not; what is `*` is left open.
static void matrix(call f, int how, const char *const want[]) {
    scratch();
    start_ticks();
    bool show = getenv("T_SHOW");
    char wrong[400] = "";
    for (int i = 0; kinds[i]; i++) {
        char row[64] = "";
        for (int o = 0; kinds[o]; o++) {
            int kept[4];
            keep[0] = keep[1] = -1;
            int in = make(kinds[i]);
            kept[0] = keep[0], kept[1] = keep[1];
            keep[0] = keep[1] = -1;
            int out = make(kinds[o]);
            kept[2] = keep[0], kept[3] = keep[1];
            CHECK(in >= 0 && out >= 0);
            if (how & NONBLOCK) {
                fcntl(in, F_SETFL, fcntl(in, F_GETFL) | O_NONBLOCK);
                fcntl(out, F_SETFL, fcntl(out, F_GETFL) | O_NONBLOCK);
            }
            // What waits is interrupted by every tick, what does not perhaps by one that came as it began.
            int tries = want && want[i][o] == 'w' ? 1 : 20;
            do row[o] = letter(f(in, out, how));
            while (row[o] == 'w' && --tries);
            close(in), close(out);
            for (int k = 0; k < 4; k++)
                if (kept[k] >= 0) close(kept[k]);
        }
        if (show) dprintf(2, "        \"%s\",\n", row);
        else
            for (int o = 0; kinds[o]; o++)
                if (want[i][o] != '*' && row[o] != (how & NONBLOCK && want[i][o] == 'w' ? 'a' : want[i][o]) && strlen(wrong) < 380)
                    sprintf(wrong + strlen(wrong), " %c>%c:%c(%c)", kinds[i], kinds[o], row[o], want[i][o]);
    }
    syscall(SYS_mq_unlink, "t-splice");
    if (wrong[0]) FAIL("from>to:got(wanted)%s", wrong);
}

static const char *const splice_waits[] = {
    "bb+w++.bbb++bb....b..+++nDb+",
    "bbwwww.bbbwwbb....b..wwwwwbw",
    "bbbbbbbbbbbbbbbbbbbbbbbbbbbb",
    "bbbbbbbbbbbbbbbbbbbbbbbbbbbb",
    "bb+w++.bbb++bb....b..+++nDb+",
    "bb+w+..bbb..bb....b.......b.",
    "bb+w+..bbb..bb....b.......b.",
    "bb0w0..bbb..bb....b.......b.",
    "bb.w...bbb..bb....b.......b.",
    "bbbbbbbbbbbbbbbbbbbbbbbbbbbb",
    "bb.w...bbb..bb....b.......b.",
    "bb+w+..bbb..bb....b.......b.",
    "bb.w...bbb..bb....b.......b.",
    "bb?w?..bbb..bb....b.......b.",
    "bb.w...bbb..bb....b.......b.",
    "bb.w...bbb..bb....b.......b.",
    "bb.w...bbb..bb....b.......b.",
    "bb.w...bbb..bb....b.......b.",
    "bb.w...bbb..bb....b.......b.",
    "bb.w...bbb..bb....b.......b.",
    "bb.w...bbb..bb....b.......b.",
    "bb+w+..bbb..bb....b.......b.",
    "bb+w+..bbb..bb....b.......b.",
    "bb+w+..bbb..bb....b.......b.",
    "bb.w...bbb..bb....b.......b.",
    "bbwww..bbb..bb....b.......b.",
    "bbbbbbbbbbbbbbbbbbbbbbbbbbbb",
    "bbwww..bbb..bb....b.......b.",
};

static const char *const splice_at[] = {
    "sssssssssbssssssssssssssssbs",
    "sssssssssbssssssssssssssssbs",
    "sssssssssbssssssssssssssssbs",
    "sssssssssbssssssssssssssssbs",
    "sssssssssbssssssssssssssssbs",
    "sssss..bbb..bb....b.......b.",
    "sssss..bbb..bb....b.......b.",
    "sssss..bbb..bb....b.......b.",
    "sssss..bbb..bb....b.......b.",
    "bbbbbbbbbbbbbbbbbbbbbbbbbbbb",
    "sssss..bbb..bb....b.......b.",
    "sssss..bbb..bb....b.......b.",
    "sssss..bbb..bb....b.......b.",
    "sssss..bbb..bb....b.......b.",
    "sssss..bbb..bb....b.......b.",
    "sssss..bbb..bb....b.......b.",
    "sssss..bbb..bb....b.......b.",
    "sssss..bbb..bb....b.......b.",
    "sssss..bbb..bb....b.......b.",
    "sssss..bbb..bb....b.......b.",
    "sssss..bbb..bb....b.......b.",
    "sssss..bbb..bb....b.......b.",
    "sssss..bbb..bb....b.......b.",
    "sssss..bbb..bb....b.......b.",
    "sssss..bbb..bb....b.......b.",
    "sssss..bbb..bb....b.......b.",
    "bbbbbbbbbbbbbbbbbbbbbbbbbbbb",
    "sssss..bbb..bb....b.......b.",
};

static const char *const tee_waits[] = {
    "bb+w+..bbb..bb....b.......b.",
    "bbwww..bbb..bb....b.......b.",
    "bbbbbbbbbbbbbbbbbbbbbbbbbbbb",
    "bbbbbbbbbbbbbbbbbbbbbbbbbbbb",
    "bb+w+..bbb..bb....b.......b.",
    "bb.....bbb..bb....b.......b.",
    "bb.....bbb..bb....b.......b.",
    "bb.....bbb..bb....b.......b.",
    "bb.....bbb..bb....b.......b.",
    "bbbbbbbbbbbbbbbbbbbbbbbbbbbb",
    "bb.....bbb..bb....b.......b.",
    "bb.....bbb..bb....b.......b.",
    "bb.....bbb..bb....b.......b.",
    "bb.....bbb..bb....b.......b.",
    "bb.....bbb..bb....b.......b.",
    "bb.....bbb..bb....b.......b.",
    "bb.....bbb..bb....b.......b.",
    "bb.....bbb..bb....b.......b.",
    "bb.....bbb..bb....b.......b.",
    "bb.....bbb..bb....b.......b.",
    "bb.....bbb..bb....b.......b.",
    "bb.....bbb..bb....b.......b.",
    "bb.....bbb..bb....b.......b.",
    "bb.....bbb..bb....b.......b.",
    "bb.....bbb..bb....b.......b.",
    "bb.....bbb..bb....b.......b.",
    "bbbbbbbbbbbbbbbbbbbbbbbbbbbb",
    "bb.....bbb..bb....b.......b.",
};

static const char *const sendfile_waits[] = {
    "bb.w...bbb..bb....b.......b.",
    "bb.w...bbb..bb....b.......b.",
    "bbbbbbbbbbbbbbbbbbbbbbbbbbbb",
    "bbbbbbbbbbbbbbbbbbbbbbbbbbbb",
    "bb.w...bbb..bb....b.......b.",
    "bb+w++.bbb++bb....b..+++nDb+",
    "bb+w++.bbb++bb....b..+++nDb+",
    "bb0w00.bbb00bb0000b0000000b0",
    "bb.w...bbb..bb....b.......b.",
    "bbbbbbbbbbbbbbbbbbbbbbbbbbbb",
    "bb.w...bbb..bb....b.......b.",
    "bb+w++.bbb++bb....b..+++nDb+",
    "bb.w...bbb..bb....b.......b.",
    "bb?w??.bbb??bb....b..???nDb?",
    "bb.w...bbb..bb....b.......b.",
    "bb.w...bbb..bb....b.......b.",
    "bb.w...bbb..bb....b.......b.",
    "bb.w...bbb..bb....b.......b.",
    "bb.w...bbb..bb....b.......b.",
    "bb.w...bbb..bb....b.......b.",
    "bb.w...bbb..bb....b.......b.",
    "bb+w++.bbb++bb....b..+++nDb+",
    "bb+w+..bbb..bb....b.......b.",
    "bb+w+..bbb..bb....b.......b.",
    "bb.w...bbb..bb....b.......b.",
    "bbwww..bbb..bb....b.......b.",
    "bbbbbbbbbbbbbbbbbbbbbbbbbbbb",
    "bbwww..bbb..bb....b.......b.",
};

static const char *const sendfile_at[] = {
    "ssssssssssssssssssssssssssss",
    "ssssssssssssssssssssssssssss",
    "bbbbbbbbbbbbbbbbbbbbbbbbbbbb",
    "bbbbbbbbbbbbbbbbbbbbbbbbbbbb",
    "ssssssssssssssssssssssssssss",
    "bb+w++.bbb++bb....b..+++nDb+",
    "bb+w++.bbb++bb....b..+++nDb+",
    "bb0w00.bbb00bb0000b0000000b0",
    "bb.w...bbb..bb....b.......b.",
    "bbbbbbbbbbbbbbbbbbbbbbbbbbbb",
    "bb.w...bbb..bb....b.......b.",
    "bb+w++.bbb++bb....b..+++nDb+",
    "bb.w...bbb..bb....b.......b.",
    "bb?w??.bbb??bb....b..???nDb?",
    "ssssssssssssssssssssssssssss",
    "ssssssssssssssssssssssssssss",
    "ssssssssssssssssssssssssssss",
    "ssssssssssssssssssssssssssss",
    "ssssssssssssssssssssssssssss",
    "****************************",
    "****************************",
    "bb+w++.bbb++bb....b..+++nDb+",
    "ssssssssssssssssssssssssssss",
    "ssssssssssssssssssssssssssss",
    "ssssssssssssssssssssssssssss",
    "ssssssssssssssssssssssssssss",
    "bbbbbbbbbbbbbbbbbbbbbbbbbbbb",
    "ssssssssssssssssssssssssssss",
};

static const char *const copies[] = {
    "........db.........**.....b.",
    "........db.........**.....b.",
    "........db.........**.....b.",
    "........db.........**.....b.",
    "........db.........**.....b.",
    ".....+bbdb..bb.....**x....b.",
    ".....+bbdb..bb.....**x....b.",
    ".....0bbdb..bb.....**x....b.",
    "dddddddddbddddddddd**dddddbd",
    "bbbbbbbbbbbbbbbbbbb**bbbbbbb",
    "........db.........**.....b.",
    "........db.........**.....b.",
    ".....xbbdb..bb.....**x....b.",
    ".....xbbdb..bb.....**x....b.",
    "........db.........**.....b.",
    "........db.........**.....b.",
    "........db.........**.....b.",
    "........db.........**.....b.",
    "........db.........**.....b.",
    "****************************",
    "****************************",
    ".....xbbdb..bb.....**+....b.",
    "........db.........**.....b.",
    "........db.........**.....b.",
    "........db.........**.....b.",
    "........db.........**.....b.",
    "bbbbbbbbbbbbbbbbbbb**bbbbbbb",
    "........db.........**.....b.",
};

CASE(splice_any_to_any) { matrix(do_splice, 0, splice_waits); }
CASE(splice_any_to_any_nonblocking) { matrix(do_splice, NONBLOCK, splice_waits); }
CASE(splice_any_to_any_nonblocking_by_flag) { matrix(do_splice, NONBLOCK | FLAG, splice_waits); }
CASE(splice_any_to_any_with_offsets) { matrix(do_splice, OFFSETS, splice_at); }
CASE(tee_any_to_any) { matrix(do_tee, 0, tee_waits); }
CASE(tee_any_to_any_nonblocking) { matrix(do_tee, FLAG | NONBLOCK, tee_waits); }
CASE(sendfile_any_to_any) { matrix(do_sendfile, 0, sendfile_waits); }
CASE(sendfile_any_to_any_with_offset) { matrix(do_sendfile, OFFSETS, sendfile_at); }
CASE(sendfile_any_to_any_nonblocking) { matrix(do_sendfile, NONBLOCK, sendfile_waits); }
CASE(copy_file_range_any_to_any) { matrix(do_copy, 0, copies); }
CASE(copy_file_range_any_to_any_with_offsets) { matrix(do_copy, OFFSETS, copies); }

static char big[1 << 20] __attribute__((aligned(4096)));

CASE(vmsplice_gives_what_fits) {
    int p[2];
    start_ticks();
    CHECK(pipe(p) == 0);
    struct iovec v = {big, sizeof big};
    CHECK_EQ(vmsplice(p[1], &v, 1, 0), 65536);
    // Full: it waits for room, or gives EAGAIN.
    CHECK_ERR(vmsplice(p[1], &v, 1, 0), EINTR);
    CHECK_ERR(vmsplice(p[1], &v, 1, SPLICE_F_NONBLOCK), EAGAIN);
    for (int i = 0; i < 8; i++) CHECK_EQ(read(p[0], big, 4096), 4096);
    CHECK_EQ(vmsplice(p[1], &v, 1, 0), 8 * 4096);
}

CASE(vmsplice_minds_only_its_own_flag) {
    int p[2];
    start_ticks();
    CHECK(pipe2(p, O_NONBLOCK) == 0);
    struct iovec v = {big, sizeof big};
    CHECK_EQ(vmsplice(p[1], &v, 1, 0), 65536);
    CHECK_ERR(vmsplice(p[1], &v, 1, 0), EINTR);
    close(p[0]), close(p[1]);
    CHECK(pipe2(p, O_NONBLOCK) == 0);
    CHECK_ERR(vmsplice(p[0], &v, 1, 0), EINTR);
    CHECK_ERR(vmsplice(p[0], &v, 1, SPLICE_F_NONBLOCK), EAGAIN);
}

CASE(vmsplice_reads) {
    int p[2];
    char a[4], b[100];
    struct iovec v[2] = {{a, 4}, {b, 100}};
    CHECK(pipe(p) == 0);
    CHECK(write(p[1], "0123456789", 10) == 10);
    CHECK_EQ(vmsplice(p[0], v, 2, 0), 10);
    CHECK(!memcmp(a, "0123", 4) && !memcmp(b, "456789", 6));
    close(p[1]);
    CHECK_EQ(vmsplice(p[0], v, 2, 0), 0);
}

CASE(vmsplice_arguments) {
    int p[2];
    scratch();
    signal(SIGPIPE, SIG_IGN);
    CHECK(pipe(p) == 0);
    struct iovec v = {big, 10}, none = {big, 0}, bad = {BAD, 10};
    CHECK_ERR(vmsplice(999, &v, 1, 0), EBADF);
    CHECK_ERR(vmsplice(mkfile("f", "x"), &v, 1, 0), EBADF);
    CHECK_ERR(vmsplice(p[1], &v, 1, 0x10), EINVAL);
    CHECK_ERR(vmsplice(p[1], &v, 1025, 0), EINVAL);
    CHECK_ERR(vmsplice(p[1], BAD, 1, 0), EFAULT);
    CHECK_ERR(vmsplice(p[1], &bad, 1, 0), EFAULT);
    CHECK_EQ(vmsplice(p[1], &none, 1, 0), 0);
    CHECK_EQ(vmsplice(p[1], &v, 0, 0), 0);
    CHECK_EQ(vmsplice(p[0], &none, 1, 0), 0);
    close(p[0]);
    CHECK_ERR(vmsplice(p[1], &v, 1, 0), EPIPE);
}

CASE(splice_and_tee_at_the_end_of_pipes) {
    int a[2], b[2];
    signal(SIGPIPE, SIG_IGN);
    CHECK(pipe(a) == 0 && pipe(b) == 0);
    CHECK(write(a[1], "0123456789", 10) == 10);
    close(b[0]);
    CHECK_ERR(splice(a[0], NULL, b[1], NULL, 10, 0), EPIPE);
    CHECK_ERR(tee(a[0], b[1], 10, 0), EPIPE);
    CHECK_EQ(read(a[0], big, 100), 10);  // nothing was lost
    close(a[1]);
    CHECK(pipe(b) == 0);
    CHECK_EQ(splice(a[0], NULL, b[1], NULL, 10, 0), 0);
    CHECK_EQ(tee(a[0], b[1], 10, 0), 0);
    CHECK_EQ(splice(a[0], NULL, open("/dev/null", O_WRONLY), NULL, 10, 0), 0);
}

CASE(sendfile_to_a_pipe_gives_what_fits) {
    int p[2];
    scratch();
    start_ticks();
    int f = open("f", O_RDWR | O_CREAT, 0600);
    CHECK(ftruncate(f, sizeof big) == 0);
    CHECK(pipe(p) == 0);
    CHECK_EQ(sendfile(p[1], f, NULL, sizeof big), 65536);
    CHECK_EQ(lseek(f, 0, SEEK_CUR), 65536);
    CHECK_ERR(sendfile(p[1], f, NULL, sizeof big), EINTR);
    CHECK(fcntl(p[1], F_SETFL, O_NONBLOCK) == 0);
    CHECK_ERR(sendfile(p[1], f, NULL, sizeof big), EAGAIN);
    CHECK_ERR(splice(f, NULL, p[1], NULL, 1, 0), EAGAIN);
}

CASE(splice_arguments) {
    int p[2], q[2];
    loff_t bad = -1;
    scratch();
    int f = mkfile("f", "0123456789");
    CHECK(pipe(p) == 0 && pipe(q) == 0);
    CHECK(write(p[1], "0123456789", 10) == 10);
    CHECK_EQ(splice(998, NULL, 999, NULL, 0, 0x100), 0);
    CHECK_ERR(splice(p[0], NULL, f, NULL, 1, 0x10), EINVAL);
    CHECK_ERR(tee(p[0], q[1], 0, 0x10), EINVAL);
    CHECK_EQ(tee(998, 999, 0, 0), 0);
    CHECK_ERR(splice(p[0], NULL, f, &bad, 1, 0), EINVAL);
    CHECK_ERR(splice(f, &bad, q[1], NULL, 1, 0), EINVAL);
    CHECK_ERR(splice(p[0], NULL, f, BAD, 1, 0), EFAULT);
    CHECK_ERR(splice(p[0], BAD, f, NULL, 1, 0), ESPIPE);
    CHECK_ERR(splice(p[0], NULL, p[1], NULL, 1, 0), EINVAL);
    CHECK_ERR(tee(p[0], p[1], 1, 0), EINVAL);
    off_t at = -1;
    CHECK_ERR(sendfile(q[1], f, &at, 1), EINVAL);
    CHECK_ERR(sendfile(q[1], f, BAD, 1), EFAULT);
    loff_t in = LLONG_MAX, out = 0;
    CHECK_EQ(copy_file_range(f, &in, f, &out, 10, 0), 0);
    CHECK_ERR(copy_file_range(f, NULL, f, &out, 10, 2), EINVAL);
}
