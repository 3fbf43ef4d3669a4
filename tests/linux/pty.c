// Pseudo-terminals: line discipline, job control, window size, hang-up.
#include "t.h"
#include <pty.h>
#include <sys/ioctl.h>
#include <termios.h>

static int m, s;
static volatile int got;
static void note(int sig, siginfo_t *si, void *u) {
    (void)si, (void)u;
    got = sig;
}
static void open_pair(void) { CHECK_OK(openpty(&m, &s, NULL, NULL, NULL)); }
static struct termios get(void) {
    struct termios t;
    CHECK(tcgetattr(s, &t) == 0);
    return t;
}
static void local(tcflag_t off, tcflag_t on) {
    struct termios t = get();
    t.c_lflag = (t.c_lflag & ~off) | on;
    CHECK(tcsetattr(s, TCSANOW, &t) == 0);
}
static void type(const char *k) { CHECK_EQ(write(m, k, strlen(k)), strlen(k)); }
static int ready(int fd, int ms) {
    struct pollfd f = {fd, POLLIN, 0};
    return poll(&f, 1, ms) == 1;
}
// Reads from a side what is there and compares.
static void expect(int fd, const char *want) {
    char b[1024];
    size_t n = 0;
    while (n < strlen(want)) {
        if (!ready(fd, 1000)) FAIL("only %zu bytes, want '%s'", n, want);
        ssize_t r = read(fd, b + n, sizeof b - 1 - n);
        CHECK(r > 0);
        n += r;
    }
    b[n] = 0;
    if (strcmp(b, want)) FAIL("got '%s', want '%s'", b, want);
}
// Child becomes a session leader with the slave as its terminal.
#define WITH_TTY(...) SPAWN({ CHECK(setsid() >= 0); CHECK_OK(ioctl(s, TIOCSCTTY, 0)); close(m); __VA_ARGS__; })

CASE(names_and_modes) {
    int fd = posix_openpt(O_RDWR | O_NOCTTY), n = -1;
    CHECK(fd >= 0 && grantpt(fd) == 0);
    char *name = ptsname(fd);
    CHECK(name && !strncmp(name, "/dev/pts/", 9));
    CHECK(ioctl(fd, TIOCGPTN, &n) == 0 && atoi(name + 9) == n);
    CHECK_ERR(open(name, O_RDWR | O_NOCTTY), EIO);  // still locked
    CHECK(unlockpt(fd) == 0);
    int t = open(name, O_RDWR | O_NOCTTY);
    struct stat st;
    CHECK(t >= 0 && isatty(t) && fstat(t, &st) == 0 && S_ISCHR(st.st_mode));
    CHECK(!strcmp(ttyname(t), name));
    CHECK(isatty(fd));
}
CASE(canonical_line_and_echo) {
    open_pair();
    type("ab");
    CHECK(!ready(s, 30));
    type("c\n");
    expect(m, "abc\r\n");
    expect(s, "abc\n");
}
CASE(output_nl_to_crnl) {
    open_pair();
    CHECK(write(s, "x\ny", 3) == 3);
    expect(m, "x\r\ny");
    struct termios t = get();
    t.c_oflag &= ~OPOST;
    tcsetattr(s, TCSANOW, &t);
    CHECK(write(s, "a\nb", 3) == 3);
    expect(m, "a\nb");
}
CASE(input_cr_to_nl) {
    open_pair();
    type("hi\r");
    expect(s, "hi\n");
}
CASE(erase_and_kill_characters) {
    open_pair();
    type("abx\177c\n");
    expect(s, "abc\n");
    type("garbage\025ok\n");
    expect(s, "ok\n");
    type("one two\027three\n");  // word erase
    expect(s, "one three\n");
}
CASE(eof_character) {
    open_pair();
    char b[8];
    type("ab\004");
    CHECK_EQ(read(s, b, 8), 2);
    type("\004");
    CHECK_EQ(read(s, b, 8), 0);
    type("x\n");
    CHECK_EQ(read(s, b, 8), 2);
}
CASE(canonical_read_stops_at_line) {
    open_pair();
    char b[16];
    type("one\ntwo\n");
    CHECK_EQ(read(s, b, 16), 4);
    CHECK_EQ(read(s, b, 2), 2);  // part of a line; the rest stays
    CHECK_EQ(read(s, b, 16), 2);
}
CASE(literal_next) {
    open_pair();
    type("a\026\003b\n");
    expect(s, "a\003b\n");
}
CASE(raw_mode_bytes_at_once) {
    open_pair();
    struct termios t = get();
    cfmakeraw(&t);
    tcsetattr(s, TCSANOW, &t);
    type("a\003\r");
    expect(s, "a\003\r");
    CHECK(!ready(m, 30));  // no echo
}
CASE(raw_vmin_vtime) {
    open_pair();
    struct termios t = get();
    cfmakeraw(&t);
    char b[8];
    t.c_cc[VMIN] = 0, t.c_cc[VTIME] = 0;
    tcsetattr(s, TCSANOW, &t);
    CHECK_EQ(read(s, b, 8), 0);
    t.c_cc[VTIME] = 1;
    tcsetattr(s, TCSANOW, &t);
    int64_t t0 = now_us();
    CHECK_EQ(read(s, b, 8), 0);
    CHECK(now_us() - t0 > 80000);
    t.c_cc[VMIN] = 3, t.c_cc[VTIME] = 0;
    tcsetattr(s, TCSANOW, &t);
    pid_t c = SPAWN({ type("a"); msleep(20); type("b"); msleep(20); type("c"); });
    CHECK_EQ(read(s, b, 8), 3);
    join(c);
}
CASE(echo_off_but_newline_with_echonl) {
    open_pair();
    local(ECHO, ECHONL);
    type("secret\n");
    expect(s, "secret\n");
    expect(m, "\r\n");
}
CASE(echoctl_shows_caret) {
    open_pair();
    type("\001\n");
    expect(m, "^A\r\n");
}
CASE(isig_sends_to_foreground_group) {
    open_pair();
    pid_t c = WITH_TTY(on_signal(SIGINT, note, 0); CHECK(write(s, "rdy", 3) == 3); while (!got) pause(); _exit(got));
    expect(m, "rdy");
    type("\003");
    CHECK_EQ(join(c), SIGINT);
}
CASE(quit_and_suspend_characters) {
    open_pair();
    pid_t c = WITH_TTY(signal(SIGQUIT, SIG_DFL); CHECK(write(s, "rdy", 3) == 3); for (;;) pause());
    expect(m, "rdy");
    type("\034");
    CHECK_EQ(join(c), 128 + SIGQUIT);
}
CASE(suspend_character_stops) {
    open_pair();
    // The group must not be orphaned for SIGTSTP to stop it: a shell-like leader with one job.
    pid_t c = WITH_TTY({
        pid_t j = SPAWN({ setpgid(0, 0); for (;;) pause(); });
        setpgid(j, j);
        CHECK_OK(tcsetpgrp(s, j));
        CHECK(write(s, "rdy", 3) == 3);
        int st;
        CHECK_EQ(waitpid(j, &st, WUNTRACED), j);
        CHECK(WIFSTOPPED(st) && WSTOPSIG(st) == SIGTSTP);
        kill(j, SIGKILL);
    });
    expect(m, "rdy");
    type("\032");
    CHECK_EQ(join(c), 0);
}
CASE(isig_off_passes_bytes) {
    open_pair();
    local(ISIG | ICANON, 0);
    type("\003");
    expect(s, "\003");
}
CASE(interrupt_flushes_input) {
    open_pair();
    pid_t c = WITH_TTY(signal(SIGINT, SIG_IGN); CHECK(write(s, "r", 1) == 1); char b[16]; ssize_t n = read(s, b, 16); CHECK_EQ(n, 3));
    expect(m, "r");
    type("junk\003ok\n");
    CHECK_EQ(join(c), 0);
}
CASE(background_read_gets_sigttin) {
    open_pair();
    pid_t c = WITH_TTY({
        pid_t j = SPAWN({ setpgid(0, 0); char b; read(s, &b, 1); _exit(1); });
        setpgid(j, j);
        int st;
        CHECK_EQ(waitpid(j, &st, WUNTRACED), j);
        CHECK(WIFSTOPPED(st) && WSTOPSIG(st) == SIGTTIN);
        kill(j, SIGKILL);
    });
    CHECK_EQ(join(c), 0);
}
CASE(background_read_ignored_is_eio) {
    open_pair();
    pid_t c = WITH_TTY({
        pid_t j = SPAWN({ setpgid(0, 0); signal(SIGTTIN, SIG_IGN); char b; CHECK_ERR(read(s, &b, 1), EIO); });
        setpgid(j, j);
        CHECK_EQ(join(j), 0);
    });
    CHECK_EQ(join(c), 0);
}
CASE(background_write_tostop) {
    open_pair();
    local(0, TOSTOP);
    pid_t c = WITH_TTY({
        pid_t j = SPAWN({ setpgid(0, 0); write(s, "x", 1); _exit(1); });
        setpgid(j, j);
        int st;
        CHECK_EQ(waitpid(j, &st, WUNTRACED), j);
        CHECK(WIFSTOPPED(st) && WSTOPSIG(st) == SIGTTOU);
        kill(j, SIGKILL);
    });
    CHECK_EQ(join(c), 0);
}
CASE(tcsetpgrp_from_background_ttou) {
    open_pair();
    pid_t c = WITH_TTY({
        pid_t j = SPAWN({ setpgid(0, 0); tcsetpgrp(s, getpid()); _exit(1); });
        setpgid(j, j);
        int st;
        CHECK_EQ(waitpid(j, &st, WUNTRACED), j);
        CHECK(WIFSTOPPED(st) && WSTOPSIG(st) == SIGTTOU);
        kill(j, SIGKILL);
    });
    CHECK_EQ(join(c), 0);
}
CASE(tcgetpgrp_tcgetsid) {
    open_pair();
    CHECK_ERR(tcgetpgrp(s), ENOTTY);  // not my terminal
    pid_t c = WITH_TTY({
        CHECK_EQ(tcgetpgrp(s), getpid());
        CHECK_EQ(tcgetsid(s), getpid());
        CHECK_ERR(tcsetpgrp(s, 1), EPERM);
        int t = open("/dev/tty", O_RDWR);
        CHECK(t >= 0 && tcgetpgrp(t) == getpid());
    });
    CHECK_EQ(join(c), 0);
}
CASE(dev_tty_without_terminal) {
    CHECK_EQ(join(SPAWN({ setsid(); CHECK_ERR(open("/dev/tty", O_RDWR), ENXIO); })), 0);
}
CASE(open_without_noctty_becomes_terminal) {
    open_pair();
    char *n = ptsname(m);
    CHECK_EQ(join(SPAWN({ setsid(); CHECK(open(n, O_RDWR) >= 0); CHECK(open("/dev/tty", O_RDWR) >= 0); })), 0);
    close(m), close(s);
    open_pair();
    n = ptsname(m);
    CHECK_EQ(join(SPAWN({ setsid(); CHECK(open(n, O_RDWR | O_NOCTTY) >= 0); CHECK_ERR(open("/dev/tty", O_RDWR), ENXIO); })), 0);
}
CASE(tiocnotty_detaches) {
    open_pair();
    pid_t c = WITH_TTY({
        signal(SIGHUP, SIG_IGN);
        CHECK_OK(ioctl(s, TIOCNOTTY));
        CHECK_ERR(open("/dev/tty", O_RDWR), ENXIO);
    });
    CHECK_EQ(join(c), 0);
}
CASE(window_size_and_sigwinch) {
    open_pair();
    struct winsize w = {40, 132, 1, 2}, r;
    CHECK(ioctl(m, TIOCSWINSZ, &w) == 0 && ioctl(s, TIOCGWINSZ, &r) == 0);
    CHECK(r.ws_row == 40 && r.ws_col == 132 && r.ws_ypixel == 2);
    pid_t c = WITH_TTY(on_signal(SIGWINCH, note, 0); CHECK(write(s, "r", 1) == 1); while (!got) pause(); ioctl(s, TIOCGWINSZ, &w); _exit(w.ws_row));
    expect(m, "r");
    w.ws_row = 50;
    CHECK(ioctl(m, TIOCSWINSZ, &w) == 0);
    CHECK_EQ(join(c), 50);
}
CASE(master_close_hangs_up) {
    open_pair();
    pid_t c = WITH_TTY(on_signal(SIGHUP, note, 0); CHECK(write(s, "r", 1) == 1); while (!got) pause(); char b; CHECK(read(s, &b, 1) == 0); CHECK_ERR(write(s, "x", 1), EIO); _exit(got));
    close(s);
    expect(m, "r");
    close(m);
    CHECK_EQ(join(c), SIGHUP);
}
CASE(slave_close_gives_eio_to_master) {
    open_pair();
    CHECK(write(s, "last", 4) == 4);
    close(s);
    expect(m, "last");
    char b;
    CHECK_ERR(read(m, &b, 1), EIO);
    struct pollfd f = {m, POLLIN, 0};
    CHECK(poll(&f, 1, 0) == 1 && (f.revents & POLLHUP));
}
CASE(session_leader_exit_hangs_up_foreground) {
    open_pair();
    int q[2];
    char b;
    CHECK(pipe(q) == 0);
    pid_t c = WITH_TTY({
        pid_t j = SPAWN({ setpgid(0, 0); on_signal(SIGHUP, note, 0); CHECK(write(q[1], "r", 1) == 1); while (!got) pause(); CHECK(write(q[1], "h", 1) == 1); });
        setpgid(j, j);
        signal(SIGTTOU, SIG_IGN);
        CHECK_OK(tcsetpgrp(s, j));
        CHECK(read(q[0], &b, 1) == 1);
    });
    CHECK_EQ(join(c), 0);
    CHECK(ready(q[0], 2000) && read(q[0], &b, 1) == 1 && b == 'h');
}
CASE(nonblocking_and_fionread) {
    open_pair();
    fcntl(s, F_SETFL, O_RDWR | O_NONBLOCK);
    char b;
    int n = 0;
    CHECK_ERR(read(s, &b, 1), EAGAIN);
    type("abc\n");
    EVENTUALLY(ioctl(s, FIONREAD, &n) == 0 && n == 4);
}
CASE(tcflush_and_drain) {
    open_pair();
    type("junk\n");
    CHECK(tcflush(s, TCIFLUSH) == 0);
    CHECK(!ready(s, 20));
    CHECK(tcdrain(s) == 0);
    CHECK(tcflow(s, TCOOFF) == 0 && tcflow(s, TCOON) == 0);
    CHECK(tcsendbreak(s, 0) == 0);
}
CASE(termios_round_trip_and_speed) {
    open_pair();
    struct termios t = get();
    CHECK((t.c_lflag & (ICANON | ECHO | ISIG)) == (ICANON | ECHO | ISIG));
    CHECK(t.c_cc[VINTR] == 3 && t.c_cc[VEOF] == 4 && t.c_cc[VERASE] == 0177);
    t.c_cc[VINTR] = 'q';
    cfsetspeed(&t, B9600);
    CHECK(tcsetattr(s, TCSAFLUSH, &t) == 0);
    t = get();
    CHECK(t.c_cc[VINTR] == 'q' && cfgetospeed(&t) == B9600);
}
CASE(not_a_terminal) {
    int q[2];
    struct termios t;
    CHECK(pipe(q) == 0);
    CHECK_ERR(tcgetattr(q[0], &t), ENOTTY);
    CHECK(!isatty(q[0]));
    CHECK_ERR(ioctl(q[0], TIOCSCTTY, 0), ENOTTY);
    CHECK_ERR(ioctl(999, TCGETS, &t), EBADF);
}
CASE(packet_mode) {
    open_pair();
    int on = 1;
    char b[16];
    CHECK(ioctl(m, TIOCPKT, &on) == 0);
    CHECK(write(s, "ab", 2) == 2);
    CHECK_EQ(read(m, b, 16), 3);
    CHECK(b[0] == 0 && b[1] == 'a');
}
CASE(large_output_through_pty) {
    open_pair();
    struct termios t = get();
    cfmakeraw(&t);
    tcsetattr(s, TCSANOW, &t);
    pid_t c = SPAWN({ close(m); char b[1000]; memset(b, 'z', 1000); for (int i = 0; i < 200; i++) CHECK(write(s, b, 1000) == 1000); });
    close(s);
    size_t n = 0;
    char b[4096];
    for (ssize_t r; (r = read(m, b, sizeof b)) > 0;) n += r;
    CHECK_EQ(n, 200000);
    CHECK_EQ(join(c), 0);
}
CASE(interactive_shell_job_control) {
    pid_t c = forkpty(&m, NULL, NULL, NULL);
    CHECK(c >= 0);
    if (!c) {
        setenv("PS1", "$ ", 1);
        execl("/bin/sh", "sh", "-i", NULL);
        _exit(99);
    }
    type("echo $((6*7))\n");
    char b[8192] = "";
    size_t n = 0;
    int64_t t0 = now_us();
    while (!strstr(b, "42") && now_us() - t0 < 30000000 && n < sizeof b - 1) {
        if (!ready(m, 100)) continue;
        ssize_t r = read(m, b + n, sizeof b - 1 - n);
        if (r <= 0) break;
        n += r;
    }
    if (!strstr(b, "42")) FAIL("shell said: %s", b);
    type("exit 7\n");
    while (read(m, b, sizeof b) > 0) {}
    CHECK_EQ(join(c), 7);
}
CASE(ptmx_many) {
    int fd[40];
    for (int i = 0; i < 40; i++) CHECK((fd[i] = posix_openpt(O_RDWR | O_NOCTTY)) >= 0);
    for (int i = 0; i < 40; i++) close(fd[i]);
}
