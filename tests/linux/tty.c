// Terminals, second part: flow control, packet mode, odd settings, hang-up order, limits, poll edges.
#include "t.h"
#include <asm/termbits.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/vfs.h>

// <termios.h> clashes with <asm/termbits.h>, which has the kernel's own structures; so no openpty here.
static int m, s, number;
static char name[64];
static volatile int got;
static void note(int sig, siginfo_t *si, void *u) {
    (void)si, (void)u;
    got = sig;
}
static int open_slave(int flags) {
    int fd = open(name, O_RDWR | flags);
    CHECK(fd >= 0);
    return fd;
}
static void open_master(void) {
    int off = 0;
    m = open("/dev/ptmx", O_RDWR | O_NOCTTY);
    CHECK(m >= 0);
    CHECK(ioctl(m, TIOCGPTN, &number) == 0);
    CHECK(ioctl(m, TIOCSPTLCK, &off) == 0);
    snprintf(name, sizeof name, "/dev/pts/%d", number);
}
static void open_pair(void) {
    open_master();
    s = open_slave(O_NOCTTY);
}
static struct termios get(void) {
    struct termios t;
    CHECK(ioctl(s, TCGETS, &t) == 0);
    return t;
}
static void set(struct termios t) { CHECK(ioctl(s, TCSETS, &t) == 0); }
static void raw(int min, int time) {
    struct termios t = get();
    t.c_iflag = t.c_oflag = t.c_lflag = 0;
    t.c_cc[VMIN] = min, t.c_cc[VTIME] = time;
    set(t);
}
static void type(const char *k) { CHECK_EQ(write(m, k, strlen(k)), strlen(k)); }
static int events(int fd, int want, int ms) {
    struct pollfd f = {fd, want, 0};
    return poll(&f, 1, ms) == 1 ? f.revents : 0;
}
static void expect(int fd, const char *want) {
    char b[1024];
    size_t n = 0;
    while (n < strlen(want)) {
        if (!events(fd, POLLIN, 1000)) FAIL("only %zu bytes, want '%s'", n, want);
        ssize_t r = read(fd, b + n, sizeof b - 1 - n);
        CHECK(r > 0);
        n += r;
    }
    b[n] = 0;
    if (strcmp(b, want)) FAIL("got '%s', want '%s'", b, want);
}
#define WITH_TTY(...) SPAWN({ CHECK(setsid() >= 0); CHECK_OK(ioctl(s, TIOCSCTTY, 0)); close(m); __VA_ARGS__; })

CASE(defaults) {
    open_pair();
    struct termios t = get();
    CHECK_EQ(t.c_iflag, ICRNL | IXON);
    CHECK_EQ(t.c_oflag, OPOST | ONLCR);
    CHECK_EQ(t.c_cflag, B38400 | CS8 | CREAD);
    CHECK_EQ(t.c_lflag, ISIG | ICANON | ECHO | ECHOE | ECHOK | ECHOCTL | ECHOKE | IEXTEN);
    CHECK_EQ(t.c_line, 0);
    static const unsigned char cc[19] = {3, 28, 127, 21, 4, 0, 1, 0, 17, 19, 26, 0, 18, 15, 23, 22, 0, 0, 0};
    for (int i = 0; i < 19; i++)
        if (t.c_cc[i] != cc[i]) FAIL("c_cc[%d] is %d, want %d", i, t.c_cc[i], cc[i]);
    struct winsize w;
    CHECK(ioctl(s, TIOCGWINSZ, &w) == 0 && w.ws_row == 0 && w.ws_col == 0);
    CHECK(ioctl(m, TCGETS, &t) == 0);
}
CASE(termios2_speeds) {
    open_pair();
    struct termios2 t;
    CHECK(ioctl(s, TCGETS2, &t) == 0);
    CHECK_EQ(t.c_ospeed, 38400);
    t.c_cflag = (t.c_cflag & ~CBAUD) | BOTHER;
    t.c_ospeed = t.c_ispeed = 12345;
    CHECK(ioctl(s, TCSETS2, &t) == 0);
    CHECK(ioctl(s, TCGETS2, &t) == 0 && t.c_ospeed == 12345 && (t.c_cflag & CBAUD) == BOTHER);
    t.c_cflag = (t.c_cflag & ~CBAUD) | B115200;
    CHECK(ioctl(s, TCSETS2, &t) == 0);
    CHECK(ioctl(s, TCGETS2, &t) == 0 && t.c_ospeed == 115200);
}
CASE(byte_size_is_fixed) {
    open_pair();
    struct termios t = get();
    t.c_cflag = B9600 | CS5 | PARENB;
    set(t);
    t = get();
    CHECK_EQ(t.c_cflag, B9600 | CS8 | CREAD);
}
CASE(old_termio) {
    open_pair();
    struct { unsigned short i, o, c, l; unsigned char line, cc[8]; } t;
    CHECK(ioctl(s, 0x5405, &t) == 0);  // TCGETA
    CHECK_EQ(t.cc[0], 3);
    t.l &= ~ECHO;
    CHECK(ioctl(s, 0x5406, &t) == 0);
    CHECK(!(get().c_lflag & ECHO));
}
CASE(locked_settings_stay) {
    open_pair();
    struct termios old = get(), locks, t;
    CHECK(ioctl(s, 0x5456, &locks) == 0);  // TIOCGLCKTRMIOS
    CHECK(locks.c_iflag == 0 && locks.c_lflag == 0 && locks.c_cc[VINTR] == 0);
    locks.c_lflag = ECHO;
    locks.c_oflag = OPOST;
    locks.c_cc[VINTR] = 1;
    CHECK(ioctl(m, 0x5457, &locks) == 0);  // TIOCSLCKTRMIOS
    t = old;
    t.c_lflag = 0, t.c_oflag = ONLCR, t.c_cc[VINTR] = 7, t.c_cc[VQUIT] = 8;
    set(t);
    t = get();
    CHECK_EQ(t.c_lflag, ECHO);
    CHECK_EQ(t.c_oflag, OPOST | ONLCR);
    CHECK(t.c_cc[VINTR] == old.c_cc[VINTR] && t.c_cc[VQUIT] == 8);
    CHECK(ioctl(s, 0x5456, &t) == 0 && t.c_lflag == ECHO && t.c_cc[VINTR] == 1 && t.c_cc[VQUIT] == 0);
    CHECK_ERR(ioctl(s, 0x5456, BAD), EFAULT);
    CHECK_OK(setuid(1000));
    CHECK_ERR(ioctl(s, 0x5457, &locks), EPERM);
    CHECK(ioctl(s, 0x5456, &locks) == 0);
}
CASE(bad_pointers) {
    open_pair();
    CHECK_ERR(ioctl(s, TCGETS, BAD), EFAULT);
    CHECK_ERR(ioctl(s, TCSETS, BAD), EFAULT);
    CHECK_ERR(ioctl(s, TIOCGWINSZ, BAD), EFAULT);
    CHECK_ERR(ioctl(m, TIOCGPTN, BAD), EFAULT);
    CHECK_ERR(ioctl(s, TIOCGPTN, &number), ENOTTY);
    CHECK_ERR(ioctl(s, 0x54ff, 0), ENOTTY);
    CHECK_ERR(ioctl(s, TCFLSH, 7), EINVAL);
    CHECK_ERR(ioctl(s, TCXONC, 7), EINVAL);
}
CASE(stop_and_start_characters) {
    open_pair();
    type("\023");
    EVENTUALLY(!(events(s, POLLOUT, 0) & POLLOUT));  // Linux takes typed characters in from a worker
    fcntl(s, F_SETFL, O_RDWR | O_NONBLOCK);
    CHECK_ERR(write(s, "x", 1), EAGAIN);
    CHECK(!(events(s, POLLOUT, 0) & POLLOUT));
    type("\021");
    EVENTUALLY(write(s, "x", 1) == 1);
    expect(m, "x");
}
CASE(tcflow) {
    open_pair();
    CHECK(ioctl(s, TCXONC, TCOOFF) == 0);
    pid_t c = SPAWN(CHECK_EQ(write(s, "late", 4), 4));
    CHECK(!events(m, POLLIN, 50));
    CHECK(ioctl(s, TCXONC, TCOON) == 0);
    expect(m, "late");
    CHECK_EQ(join(c), 0);
    CHECK(ioctl(s, TCXONC, TCIOFF) == 0);
    expect(m, "\023");
    CHECK(ioctl(s, TCXONC, TCION) == 0);
    expect(m, "\021");
}
CASE(any_character_restarts) {
    open_pair();
    struct termios t = get();
    t.c_iflag |= IXANY;
    t.c_lflag &= ~ECHO;
    set(t);
    type("\023");
    EVENTUALLY(!(events(s, POLLOUT, 0) & POLLOUT));  // Linux takes typed characters in from a worker
    fcntl(s, F_SETFL, O_RDWR | O_NONBLOCK);
    CHECK_ERR(write(s, "x", 1), EAGAIN);
    type("a");
    EVENTUALLY(write(s, "x", 1) == 1);
}
CASE(packet_mode_status) {
    open_pair();
    int on = 1, is = 0;
    unsigned char b[16];
    CHECK(ioctl(m, TIOCPKT, &on) == 0);
    CHECK(ioctl(m, TIOCGPKT, &is) == 0 && is == 1);
    CHECK(ioctl(s, TCXONC, TCOOFF) == 0);
    CHECK(events(m, POLLIN | POLLPRI, 100) & POLLPRI);
    CHECK_EQ(read(m, b, 16), 1);
    CHECK_EQ(b[0], TIOCPKT_STOP);
    CHECK(ioctl(s, TCXONC, TCOON) == 0);
    CHECK_EQ(read(m, b, 16), 1);
    CHECK_EQ(b[0], TIOCPKT_START);
    struct termios t = get();
    t.c_iflag &= ~IXON;
    set(t);
    CHECK_EQ(read(m, b, 16), 1);
    CHECK(b[0] & TIOCPKT_NOSTOP);
    t.c_iflag |= IXON;
    set(t);
    CHECK_EQ(read(m, b, 16), 1);
    CHECK(b[0] & TIOCPKT_DOSTOP);
    CHECK(ioctl(s, TCFLSH, TCIFLUSH) == 0);
    CHECK_EQ(read(m, b, 16), 1);
    CHECK_EQ(b[0], TIOCPKT_FLUSHREAD);
    CHECK_EQ(write(s, "abc", 3), 3);
    CHECK_EQ(read(m, b, 2), 2);
    CHECK(b[0] == 0 && b[1] == 'a');
    CHECK_EQ(read(m, b, 16), 3);
    CHECK(b[0] == 0 && b[1] == 'b');
}
CASE(eol_characters) {
    open_pair();
    struct termios t = get();
    t.c_cc[VEOL] = ';', t.c_cc[VEOL2] = '!';
    set(t);
    char b[8];
    type("a;bc!");
    CHECK_EQ(read(s, b, 8), 2);
    CHECK_EQ(read(s, b, 8), 3);
}
CASE(reprint) {
    open_pair();
    type("ab\022c\n");
    expect(m, "ab^R\r\nabc\r\n");
    expect(s, "abc\n");
}
CASE(kill_echo_styles) {
    open_pair();
    type("ab\025\n");
    expect(m, "ab\b \b\b \b\r\n");
    struct termios t = get();
    t.c_lflag &= ~ECHOKE;
    set(t);
    type("ab\025\n");
    expect(m, "ab^U\r\n\r\n");
    t.c_lflag &= ~ECHOE;
    set(t);
    type("a\177\n");
    expect(m, "a^?\r\n");
}
CASE(erase_utf8_and_tabs) {
    open_pair();
    struct termios t = get();
    t.c_iflag |= IUTF8;
    set(t);
    type("a\xc3\xa9\177b\n");
    expect(s, "ab\n");
    expect(m, "a\xc3\xa9\b \bb\r\n");
    type("ab\t\177\n");
    expect(m, "ab\t\b\b\b\b\b\b\r\n");
}
CASE(output_flags) {
    open_pair();
    struct termios t = get();
    t.c_oflag = OPOST | OCRNL;
    set(t);
    CHECK_EQ(write(s, "a\rb\n", 4), 4);
    expect(m, "a\nb\n");
    t.c_oflag = OPOST | ONLCR | XTABS;
    set(t);
    CHECK_EQ(write(s, "\r\nab\tc", 6), 6);
    expect(m, "\r\r\nab      c");
    t.c_oflag = OPOST | ONOCR;
    set(t);
    CHECK_EQ(write(s, "\n\r", 2), 2);
}
CASE(input_flags) {
    open_pair();
    struct termios t = get();
    t.c_iflag = IGNCR;
    t.c_lflag &= ~ECHO;
    set(t);
    type("a\rb\n");
    expect(s, "ab\n");
    t.c_iflag = INLCR;
    t.c_lflag &= ~ICANON;
    set(t);
    type("a\nb");
    expect(s, "a\rb");
    t.c_iflag = ISTRIP;
    set(t);
    type("\xe1");
    expect(s, "a");
}
CASE(canonical_toggle_keeps_input) {
    open_pair();
    struct termios t = get();
    type("typed");
    CHECK(!events(s, POLLIN, 20));
    t.c_lflag &= ~ICANON;
    set(t);
    CHECK(events(s, POLLIN, 100) & POLLIN);
    t.c_lflag |= ICANON;
    set(t);
    char b[16];
    CHECK_EQ(read(s, b, 16), 5);
}
CASE(tcsetsf_discards_input) {
    open_pair();
    type("junk\n");
    msleep(20);
    struct termios t = get();
    CHECK(ioctl(s, TCSETSF, &t) == 0);
    CHECK(!events(s, POLLIN, 20));
}
CASE(long_line_is_cut) {
    open_pair();
    struct termios t = get();
    t.c_lflag &= ~ECHO;
    set(t);
    char b[8192];
    memset(b, 'x', 5000);
    b[5000] = '\n';
    for (int at = 0; at < 5001;) {
        int n = write(m, b + at, 5001 - at);
        CHECK(n > 0);
        at += n;
    }
    CHECK_EQ(read(s, b, sizeof b), 4096);
    CHECK(b[4095] == '\n' && b[4094] == 'x');
}
CASE(vmin_poll_and_short_reads) {
    open_pair();
    raw(3, 0);
    type("ab");
    CHECK(!events(s, POLLIN, 30));
    type("c");
    CHECK(events(s, POLLIN, 500) & POLLIN);
    char b[8];
    CHECK_EQ(read(s, b, 2), 2);
    fcntl(s, F_SETFL, O_RDWR | O_NONBLOCK);
    CHECK_EQ(read(s, b, 8), 1);
    CHECK_ERR(read(s, b, 8), EAGAIN);
}
CASE(vtime_between_bytes) {
    open_pair();
    raw(5, 2);
    pid_t c = SPAWN({ msleep(300); type("a"); msleep(50); type("b"); });
    char b[8];
    int64_t t0 = now_us();
    CHECK_EQ(read(s, b, 8), 2);
    CHECK(now_us() - t0 > 450000);
    join(c);
    raw(0, 3);
    c = SPAWN({ msleep(50); type("q"); });
    CHECK_EQ(read(s, b, 8), 1);
    join(c);
}
CASE(read_is_interrupted_and_restarted) {
    open_pair();
    pid_t parent = getpid();
    on_signal(SIGUSR1, note, 0);
    pid_t c = SPAWN({ msleep(50); kill(parent, SIGUSR1); });
    char b[8];
    CHECK_ERR(read(s, b, 8), EINTR);
    join(c);
    on_signal(SIGUSR1, note, SA_RESTART);
    c = SPAWN({ msleep(50); kill(parent, SIGUSR1); msleep(50); type("x\n"); });
    CHECK_EQ(read(s, b, 8), 2);
    join(c);
}
CASE(output_is_bounded) {
    open_pair();
    raw(1, 0);
    fcntl(s, F_SETFL, O_RDWR | O_NONBLOCK);
    char b[4096];
    memset(b, 'z', sizeof b);
    long n = 0, r;
    // Linux moves what is written to the other side from a worker, which makes room for a little more.
    do {
        while ((r = write(s, b, sizeof b)) > 0) {
            n += r;
            CHECK(n < 4 << 20);
        }
        CHECK_EQ(errno, EAGAIN);
    } while (events(s, POLLOUT, 0) & POLLOUT);
    CHECK(n >= 4096);
    long k = 0;
    while (k < n) {
        r = read(m, b, sizeof b);
        CHECK(r > 0);
        k += r;
    }
    CHECK(events(s, POLLOUT, 1000) & POLLOUT);
}
CASE(input_is_bounded) {
    open_pair();
    raw(1, 0);
    fcntl(m, F_SETFL, O_RDWR | O_NONBLOCK);
    char b[4096];
    memset(b, 'z', sizeof b);
    long n = 0, r;
    while ((r = write(m, b, sizeof b)) > 0) {
        n += r;
        CHECK(n < 4 << 20);
    }
    CHECK_EQ(errno, EAGAIN);
    CHECK(n >= 4096);
    long k = 0;
    while (k < n) {
        CHECK(events(s, POLLIN, 1000));
        r = read(s, b, sizeof b);
        CHECK(r > 0);
        k += r;
    }
    EVENTUALLY(write(m, "x", 1) == 1);
}
CASE(fionread_and_outq) {
    open_pair();
    int n = -1;
    type("abc");
    msleep(20);
    CHECK(ioctl(s, FIONREAD, &n) == 0 && n == 0);
    type("\nde\n\004");
    EVENTUALLY(ioctl(s, FIONREAD, &n) == 0 && n == 7);
    CHECK(ioctl(s, TIOCOUTQ, &n) == 0 && n == 0);
    EVENTUALLY(ioctl(m, FIONREAD, &n) == 0 && n == 9);
}
CASE(line_discipline_number) {
    open_pair();
    int n = 9;
    CHECK(ioctl(s, TIOCGETD, &n) == 0 && n == 0);
    CHECK(ioctl(s, TIOCSETD, &n) == 0);
    n = 29;
    CHECK_ERR(ioctl(s, TIOCSETD, &n), EINVAL);
}
CASE(lock_state) {
    open_master();
    int v = -1;
    CHECK(ioctl(m, 0x80045439, &v) == 0 && v == 0);  // TIOCGPTLCK
    v = 1;
    CHECK(ioctl(m, TIOCSPTLCK, &v) == 0);
    CHECK_ERR(open(name, O_RDWR | O_NOCTTY), EIO);
    v = 0;
    CHECK(ioctl(m, TIOCSPTLCK, &v) == 0);
    close(open_slave(O_NOCTTY));
}
CASE(exclusive) {
    open_pair();
    int v = -1;
    CHECK(ioctl(s, TIOCEXCL) == 0);
    CHECK(ioctl(s, 0x80045440, &v) == 0 && v == 1);  // TIOCGEXCL
    if (geteuid() == 0) {
        CHECK(fchown(s, 1000, 1000) == 0);
        CHECK_EQ(join(SPAWN({ t_drop_root(); CHECK_ERR(open(name, O_RDWR | O_NOCTTY), EBUSY); })), 0);
    }
    CHECK(ioctl(s, TIOCNXCL) == 0);
    close(open_slave(O_NOCTTY));
}
CASE(peer) {
    open_master();
    s = ioctl(m, 0x5441, O_RDWR | O_NOCTTY | O_CLOEXEC);  // TIOCGPTPEER
    CHECK(s >= 0);
    CHECK(fcntl(s, F_GETFD) == FD_CLOEXEC);
    type("x\n");
    expect(s, "x\n");
    char link[64], path[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", s);
    int n = readlink(link, path, sizeof path - 1);
    CHECK(n > 0);
    path[n] = 0;
    CHECK(!strcmp(path, name));
}
CASE(slave_node) {
    open_pair();
    struct stat a, b;
    CHECK(fstat(s, &a) == 0 && stat(name, &b) == 0);
    CHECK(S_ISCHR(a.st_mode) && a.st_rdev == b.st_rdev && a.st_ino == b.st_ino && a.st_dev == b.st_dev);
    CHECK_EQ(a.st_rdev, 136 << 8 | number);
    CHECK_EQ(a.st_uid, geteuid());
    CHECK(fchmod(s, 0600) == 0 && stat(name, &b) == 0);
    CHECK_EQ(b.st_mode & 07777, 0600);
    struct statfs f;
    CHECK(statfs("/dev/pts", &f) == 0);
    CHECK_EQ(f.f_type, 0x1cd1);
    CHECK(fstat(m, &a) == 0);
    CHECK_EQ(a.st_rdev, 5 << 8 | 2);
    CHECK_ERR(lseek(s, 0, SEEK_CUR), ESPIPE);
    CHECK_ERR(unlink(name), EPERM);
    close(m);
    CHECK_ERR(stat(name, &b), ENOENT);
    CHECK_ERR(open(name, O_RDWR | O_NOCTTY), ENOENT);
}
CASE(numbers_are_reused) {
    int first = -1;
    for (int i = 0; i < 300; i++) {
        open_pair();
        if (first < 0) first = number;
        CHECK_EQ(number, first);
        close(s), close(m);
    }
}
CASE(many_at_once) {
    int fd[100], seen[100];
    for (int i = 0; i < 100; i++) {
        open_master();
        fd[i] = m, seen[i] = number;
        for (int k = 0; k < i; k++) CHECK(seen[k] != number);
    }
    for (int i = 0; i < 100; i++) close(fd[i]);
}
CASE(reopening_the_slave_ends_hangup) {
    open_pair();
    close(s);
    CHECK(events(m, POLLIN, 100) & POLLHUP);
    char b[4];
    CHECK_ERR(read(m, b, 4), EIO);
    s = open_slave(O_NOCTTY);
    CHECK(!(events(m, POLLIN, 20) & POLLHUP));
    CHECK_EQ(write(s, "a", 1), 1);
    expect(m, "a");
}
CASE(hung_up_slave) {
    open_pair();
    pid_t c = SPAWN({ char b[4]; close(m); CHECK_ERR(read(s, b, 4), EIO); });
    msleep(50);
    close(m);
    CHECK_EQ(join(c), 0);
    CHECK_EQ(events(s, POLLIN | POLLOUT, 100) & (POLLIN | POLLOUT | POLLERR | POLLHUP), POLLIN | POLLOUT | POLLERR | POLLHUP);
    char b[4];
    CHECK_EQ(read(s, b, 4), 0);
    CHECK_ERR(write(s, "x", 1), EIO);
    struct termios t;
    CHECK_ERR(ioctl(s, TCGETS, &t), EIO);
    pid_t p = 1;
    CHECK_ERR(ioctl(s, TIOCSPGRP, &p), ENOTTY);
}
CASE(blocked_writer_sees_hangup) {
    open_pair();
    raw(1, 0);
    pid_t c = SPAWN({
        close(m);
        char b[4096] = {0};
        long r;
        while ((r = write(s, b, sizeof b)) > 0) {}
        CHECK_EQ(errno, EIO);
    });
    msleep(100);
    close(m);
    CHECK_EQ(join(c), 0);
}
CASE(hangup_reaches_the_foreground_when_the_leader_ends) {
    open_pair();
    int q[2];
    char b = 0;
    int over[2];
    CHECK(pipe(q) == 0 && pipe(over) == 0);
    pid_t c = WITH_TTY({
        signal(SIGHUP, SIG_IGN);
        pid_t j = SPAWN({ setpgid(0, 0); on_signal(SIGHUP, note, 0); CHECK(write(q[1], "r", 1) == 1); while (!got) pause(); CHECK(write(q[1], "h", 1) == 1); });
        setpgid(j, j);
        signal(SIGTTOU, SIG_IGN);
        CHECK_OK(ioctl(s, TIOCSPGRP, &j));
        char x;
        CHECK(read(q[0], &x, 1) == 1);
        CHECK(write(q[1], "k", 1) == 1);
        CHECK(read(over[0], &x, 1) == 1);
    });
    msleep(100);
    EVENTUALLY(read(q[0], &b, 1) == 1 && b == 'k');
    close(m), close(s);
    CHECK(!events(q[0], POLLIN, 80));  // the leader ignores SIGHUP and lives: nobody else is told yet
    CHECK(write(over[1], "o", 1) == 1);
    CHECK_EQ(join(c), 0);
    CHECK(events(q[0], POLLIN, 2000) && read(q[0], &b, 1) == 1 && b == 'h');
}
CASE(orphaned_background_read_is_eio) {
    open_pair();
    int q[2];
    char b;
    CHECK(pipe(q) == 0);
    // The leader stays; the reader's parent leaves, so nobody in the session could continue its group.
    pid_t c = WITH_TTY({
        pid_t mid = SPAWN({
            setpgid(0, 0);
            SPAWN({ msleep(100); char x; errno = 0; long r = read(s, &x, 1); CHECK(write(q[1], r == -1 && errno == EIO ? "e" : "?", 1) == 1); });
        });
        setpgid(mid, mid);
        join(mid);
        msleep(400);
    });
    CHECK(events(q[0], POLLIN, 3000) && read(q[0], &b, 1) == 1);
    CHECK_EQ(b, 'e');
    join(c);
}
CASE(background_tcsetattr_ttou) {
    open_pair();
    pid_t c = WITH_TTY({
        pid_t j = SPAWN({ setpgid(0, 0); struct termios t = get(); ioctl(s, TCSETS, &t); _exit(1); });
        setpgid(j, j);
        int st;
        CHECK_EQ(waitpid(j, &st, WUNTRACED), j);
        CHECK(WIFSTOPPED(st) && WSTOPSIG(st) == SIGTTOU);
        kill(j, SIGKILL);
        join(j);
        j = SPAWN({ setpgid(0, 0); signal(SIGTTOU, SIG_IGN); struct termios t = get(); CHECK_OK(ioctl(s, TCSETS, &t)); });
        CHECK_EQ(join(j), 0);
    });
    CHECK_EQ(join(c), 0);
}
CASE(stopped_reader_continues_in_foreground) {
    open_pair();
    pid_t c = WITH_TTY({
        pid_t j = SPAWN({ setpgid(0, 0); char b[8]; CHECK_EQ(read(s, b, 8), 3); });
        setpgid(j, j);
        int st;
        CHECK_EQ(waitpid(j, &st, WUNTRACED), j);
        CHECK(WIFSTOPPED(st));
        CHECK_OK(ioctl(s, TIOCSPGRP, &j));
        CHECK(kill(-j, SIGCONT) == 0);
        signal(SIGTTOU, SIG_IGN);
        CHECK_EQ(write(s, "go", 2), 2);
        CHECK_EQ(join(j), 0);
    });
    expect(m, "go");
    type("hi\n");
    CHECK_EQ(join(c), 0);
}
CASE(controlling_terminal_rules) {
    open_pair();
    CHECK_ERR(ioctl(s, TIOCSCTTY, 0), EPERM);  // not a leader
    pid_t c = WITH_TTY({
        CHECK_OK(ioctl(s, TIOCSCTTY, 0));  // again is fine
        pid_t j = SPAWN({ setsid(); CHECK_ERR(ioctl(s, TIOCSCTTY, 0), EPERM); CHECK_ERR(ioctl(s, TIOCNOTTY), ENOTTY); });
        CHECK_EQ(join(j), 0);
        pid_t g = -1;
        CHECK_ERR(ioctl(s, TIOCSPGRP, &g), EINVAL);
        g = 999999;
        CHECK_ERR(ioctl(s, TIOCSPGRP, &g), ESRCH);
    });
    CHECK_EQ(join(c), 0);
    pid_t g;
    CHECK(ioctl(m, TIOCGPGRP, &g) == 0);
    CHECK_EQ(g, 0);  // the leader has gone
}
CASE(master_asks_for_foreground_group) {
    open_pair();
    pid_t c = WITH_TTY({ CHECK(write(s, "r", 1) == 1); msleep(300); });
    expect(m, "r");
    pid_t g, sid;
    CHECK(ioctl(m, TIOCGPGRP, &g) == 0 && ioctl(m, TIOCGSID, &sid) == 0);
    CHECK_EQ(g, c);
    CHECK_EQ(sid, c);
    CHECK_EQ(join(c), 0);
}
CASE(master_sends_signal) {
    open_pair();
    pid_t c = WITH_TTY({ on_signal(SIGQUIT, note, 0); CHECK(write(s, "r", 1) == 1); while (!got) pause(); _exit(got); });
    expect(m, "r");
    CHECK_ERR(ioctl(m, 0x40045436, SIGUSR1), EINVAL);  // TIOCSIG
    CHECK_OK(ioctl(m, 0x40045436, SIGQUIT));
    CHECK_EQ(join(c), SIGQUIT);
}
CASE(noflsh_keeps_input) {
    open_pair();
    struct termios t = get();
    t.c_lflag |= NOFLSH;
    set(t);
    pid_t c = WITH_TTY({ signal(SIGINT, SIG_IGN); CHECK(write(s, "r", 1) == 1); char b[16]; CHECK_EQ(read(s, b, 16), 7); });
    expect(m, "r");
    type("keep\003ok\n");
    CHECK_EQ(join(c), 0);
}
CASE(winsize_signals_only_changes) {
    open_pair();
    struct winsize w = {10, 20, 0, 0};
    CHECK(ioctl(s, TIOCSWINSZ, &w) == 0);
    pid_t c = WITH_TTY({ on_signal(SIGWINCH, note, SA_RESTART); CHECK(write(s, "r", 1) == 1); char b[8]; CHECK_EQ(read(s, b, 8), 2); _exit(got != 0); });
    expect(m, "r");
    CHECK(ioctl(m, TIOCSWINSZ, &w) == 0);
    msleep(50);
    type("x\n");
    CHECK_EQ(join(c), 0);
}
CASE(epoll_edges) {
    open_pair();
    raw(1, 0);
    int ep = epoll_create1(0);
    struct epoll_event ev = {EPOLLIN | EPOLLET, {0}}, out[4];
    CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, s, &ev) == 0);
    CHECK_EQ(epoll_wait(ep, out, 4, 30), 0);
    type("a");
    CHECK_EQ(epoll_wait(ep, out, 4, 30000), 1);
    CHECK_EQ(epoll_wait(ep, out, 4, 30), 0);
    type("b");
    CHECK_EQ(epoll_wait(ep, out, 4, 30000), 1);
    expect(s, "ab");
    close(m);
    CHECK_EQ(epoll_wait(ep, out, 4, 30000), 1);
    CHECK(out[0].events & EPOLLHUP);
}
CASE(dev_tty_is_the_terminal) {
    open_pair();
    pid_t c = WITH_TTY({
        int t = open("/dev/tty", O_RDWR);
        CHECK(t >= 0);
        close(s);
        CHECK_EQ(write(t, "via tty", 7), 7);
        struct stat st;
        CHECK(fstat(t, &st) == 0 && st.st_rdev == (5 << 8));
        int dev = 0;
        CHECK(ioctl(t, 0x80045432, &dev) == 0 && dev == (136 << 8 | number));  // TIOCGDEV
    });
    close(s);
    expect(m, "via tty");
    CHECK_EQ(join(c), 0);
}
CASE(stat_shows_terminal) {
    open_pair();
    pid_t c = WITH_TTY({
        char *p = strrchr(slurp("/proc/self/stat"), ')');
        int pgrp, sid, tty, fg;
        CHECK(p && sscanf(p + 2, "%*c %*d %d %d %d %d", &pgrp, &sid, &tty, &fg) == 4);
        CHECK(pgrp == getpid() && sid == getpid() && fg == getpid());
        CHECK_EQ(tty, 136 << 8 | number);
    });
    CHECK_EQ(join(c), 0);
}
CASE(echo_storm) {
    open_pair();
    // Both directions at once; nothing hangs, nothing is lost in the raw direction.
    raw(1, 0);
    pid_t c = SPAWN({ char b[700]; long n = 0, r; while (n < 300000 && (r = read(s, b, sizeof b)) > 0) { n += r; for (long k = 0; k < r;) { long w = write(s, b + k, r - k); CHECK(w > 0); k += w; } } });
    pid_t w = SPAWN({ char b[1000]; memset(b, 'e', sizeof b); for (int i = 0; i < 300; i++) for (int k = 0; k < 1000;) { int r = write(m, b + k, 1000 - k); CHECK(r > 0); k += r; } });
    char b[4096];
    long n = 0;
    while (n < 300000) {
        long r = read(m, b, sizeof b);
        CHECK(r > 0);
        n += r;
    }
    CHECK_EQ(join(w), 0);
    CHECK_EQ(join(c), 0);
}
