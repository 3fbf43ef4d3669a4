// Descriptor tables under concurrent use: lookups against close, dup2, fork, exec and exit.
#include "t.h"
#include <dirent.h>
#include <sched.h>
#include <stdatomic.h>

static pthread_t go(void *(*f)(void *), void *a) {
    pthread_t t;
    CHECK_EQ(pthread_create(&t, NULL, f, a), 0);
    return t;
}
static atomic_int stop, fd_at, ready;

// Reads a descriptor that others close and open again: a byte of one of the two files, or EBADF.
static void *reader(void *a) {
    long seen = 0;
    (void)a;
    while (!stop) {
        char c = 0;
        ssize_t n = pread(fd_at, &c, 1, 0);
        if (n == 1) seen++;
        CHECK(n == 1 ? c == 'a' || c == 'b' : n == -1 && errno == EBADF);
    }
    return (void *)seen;
}
CASE(close_against_read) {
    scratch();
    close(mkfile("a", "a"));
    fd_at = CHECK_OK(open("a", O_RDONLY));
    pthread_t t[3];
    for (int i = 0; i < 3; i++) t[i] = go(reader, NULL);
    for (int64_t end = now_us() + 600000; now_us() < end;) {
        CHECK_OK(close(fd_at));
        CHECK_EQ(open("a", O_RDONLY), fd_at);
        sched_yield();
    }
    stop = 1;
    long seen = 0;
    for (int i = 0; i < 3; i++) {
        void *r;
        pthread_join(t[i], &r);
        seen += (long)r;
    }
    CHECK(seen > 100);
}
// dup2 replaces in one step: a reader finds the old file or the new one, never a closed descriptor.
static void *steady_reader(void *a) {
    long both[2] = {0, 0};
    (void)a;
    while (!stop) {
        char c = 0;
        CHECK_EQ(pread(fd_at, &c, 1, 0), 1);
        CHECK(c == 'a' || c == 'b');
        both[c - 'a']++;
    }
    return (void *)(long)(both[0] > 0 && both[1] > 0);
}
CASE(dup2_over_a_descriptor_being_read) {
    scratch();
    int a = mkfile("a", "a"), b = mkfile("b", "b");
    fd_at = CHECK_OK(dup(a));
    pthread_t t[3];
    for (int i = 0; i < 3; i++) t[i] = go(steady_reader, NULL);
    for (int64_t end = now_us() + 600000; now_us() < end;) {
        CHECK_EQ(dup2(b, fd_at), fd_at);
        CHECK_EQ(dup2(a, fd_at), fd_at);
    }
    stop = 1;
    long both = 0;
    for (int i = 0; i < 3; i++) {
        void *r;
        pthread_join(t[i], &r);
        both += (long)r;
    }
    CHECK(both > 0);
}
static void *closer(void *a) {
    (void)a;
    while (!stop) {
        int fd = CHECK_OK(open("a", O_RDONLY));
        CHECK_OK(close(fd));
    }
    return NULL;
}
CASE(fork_while_another_thread_closes) {
    scratch();
    int keep = mkfile("a", "a");
    pthread_t t[2];
    for (int i = 0; i < 2; i++) t[i] = go(closer, NULL);
    for (int i = 0; i < 60; i++) {
        pid_t c = SPAWN({
            char b;
            CHECK_EQ(pread(keep, &b, 1, 0), 1);
            // What the others had open at the fork is this process' own now, and whole.
            for (int fd = 3; fd < 10; fd++)
                if (fcntl(fd, F_GETFD) == 0) {
                    CHECK_EQ(pread(fd, &b, 1, 0), 1);
                    CHECK_OK(close(fd));
                    CHECK_ERR(close(fd), EBADF);
                }
        });
        CHECK_EQ(join(c), 0);
    }
    stop = 1;
    for (int i = 0; i < 2; i++) pthread_join(t[i], NULL);
}
static void *storm(void *a) {
    char name[8], want = 'a' + (long)a, c;
    snprintf(name, sizeof name, "%c", want);
    for (int i = 0; i < 1500; i++) {
        int fd = CHECK_OK(open(name, O_RDONLY | O_CLOEXEC));
        int fd2 = i % 3 == 0 ? CHECK_OK(dup(fd)) : -1;
        CHECK_EQ(read(fd, &c, 1), 1);
        CHECK_EQ(c, want);
        if (fd2 >= 0) {
            CHECK_EQ(read(fd2, &c, 1), 0);
            CHECK_OK(close(fd2));
        }
        CHECK_OK(close(fd));
    }
    return NULL;
}
CASE(open_read_close_storm_8_threads) {
    scratch();
    for (char n[2] = "a"; n[0] < 'i'; n[0]++) close(mkfile(n, n));
    pthread_t t[8];
    for (long i = 0; i < 8; i++) t[i] = go(storm, (void *)i);
    for (int i = 0; i < 8; i++) pthread_join(t[i], NULL);
    CHECK_EQ(open("a", O_RDONLY), 3);
}
// Closed by another thread while it reads: what it waits for still comes, from the open end.
static int pp[2];
static void *blocked_reader(void *a) {
    (void)a;
    char c = 0;
    ready = 1;
    ssize_t n = read(pp[0], &c, 1);
    return (void *)(long)(n == 1 ? c : -errno);
}
CASE(close_under_a_blocked_read_keeps_the_file) {
    CHECK_OK(pipe(pp));
    int other = CHECK_OK(dup(pp[0]));
    pthread_t t = go(blocked_reader, NULL);
    EVENTUALLY(ready);
    msleep(30);
    CHECK_OK(close(pp[0]));
    CHECK_ERR(read(pp[0], &other, 0), EBADF);
    CHECK_EQ(write(pp[1], "x", 1), 1);
    void *r;
    pthread_join(t, &r);
    CHECK_EQ((long)r, 'x');
    CHECK_OK(close(other));
}
static void *exits(void *a) {
    CHECK_EQ(pread(fd_at, &a, 1, 0), 1);
    return NULL;
}
CASE(alone_again_after_threads) {
    scratch();
    fd_at = mkfile("a", "a");
    char c;
    for (int i = 0; i < 50; i++) {
        pthread_join(go(exits, NULL), NULL);
        CHECK_EQ(pread(fd_at, &c, 1, 0), 1);
        int fd = CHECK_OK(open("a", O_RDONLY));
        CHECK_EQ(read(fd, &c, 1), 1);
        CHECK_OK(close(fd));
        CHECK_ERR(read(fd, &c, 1), EBADF);
    }
}
static int share_child(void *a) {
    char c;
    (void)a;
    CHECK_EQ(read(fd_at, &c, 1), 1);
    CHECK_EQ(c, 'a');
    CHECK_OK(close(fd_at));
    CHECK_EQ(open("b", O_RDONLY), fd_at);
    return 0;
}
CASE(processes_that_share_a_table) {
    scratch();
    fd_at = mkfile("a", "aa");
    close(mkfile("b", "b"));
    static char stack[65536];
    for (int i = 0; i < 20; i++) {
        pid_t p = clone(share_child, stack + sizeof stack, CLONE_FILES | SIGCHLD, NULL);
        CHECK(p > 0);
        CHECK_EQ(join(p), 0);
        char c = 0;
        CHECK_EQ(pread(fd_at, &c, 1, 0), 1);
        CHECK_EQ(c, 'b');
        CHECK_OK(close(fd_at));
        CHECK_EQ(open("a", O_RDONLY), fd_at);
    }
}
// /proc/PID/fd of a process that opens and closes all the time.
CASE(listing_anothers_descriptors) {
    scratch();
    close(mkfile("a", "a"));
    pid_t c = SPAWN({
        for (;;) {
            int fd = CHECK_OK(open("a", O_RDONLY));
            for (int i = 0; i < 200; i++) CHECK_EQ(pread(fd, &(char){0}, 1, 0), 1);
            CHECK_OK(close(fd));
        }
    });
    char dir[64];
    snprintf(dir, sizeof dir, "/proc/%d/fd", c);
    int found = 0;
    for (int64_t end = now_us() + 400000; now_us() < end;) {
        DIR *d = opendir(dir);
        CHECK(d != NULL);
        for (struct dirent *e; (e = readdir(d)) != NULL;) {
            char path[400], to[400];
            snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
            ssize_t n = readlink(path, to, sizeof to - 1);
            if (n > 2 && !strncmp(to + n - 2, "/a", 2)) found++;
            CHECK(n >= 0 || errno == ENOENT || e->d_name[0] == '.');
        }
        closedir(d);
    }
    CHECK(found > 0);
    kill(c, SIGKILL);
    CHECK_EQ(join(c), 128 + SIGKILL);
}
// A thread execs while the others look up, open and close.
static void *exec_it(void *a) {
    execl("/proc/self/exe", "descriptors", "-l", NULL);
    return a;
}
CASE(exec_in_the_middle) {
    scratch();
    close(mkfile("a", "a"));
    for (int i = 0; i < 10; i++) {
        pid_t c = SPAWN({
            int null = CHECK_OK(open("/dev/null", O_WRONLY));
            fd_at = CHECK_OK(open("a", O_RDONLY | O_CLOEXEC));
            CHECK_OK(dup2(null, 1));
            for (int k = 0; k < 3; k++) go(k ? reader : closer, NULL);
            pause_ms(5);
            pthread_join(go(exec_it, NULL), NULL);
            _exit(9);
        });
        CHECK_EQ(join(c), 0);
    }
}
// Each file position moves by what was read, however many share it.
static atomic_long total;
static void *share_position(void *a) {
    char c[3];
    ssize_t n;
    (void)a;
    while ((n = read(fd_at, c, 3)) > 0) total += n;
    CHECK_EQ(n, 0);
    return NULL;
}
CASE(a_shared_position_skips_nothing) {
    scratch();
    fd_at = CHECK_OK(open("a", O_CREAT | O_RDWR, 0600));
    CHECK_OK(ftruncate(fd_at, 100000));
    pthread_t t[4];
    for (int i = 0; i < 4; i++) t[i] = go(share_position, NULL);
    for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
    CHECK_EQ(total, 100000);
}
CASE(processes_share_a_position) {
    scratch();
    fd_at = CHECK_OK(open("a", O_CREAT | O_RDWR, 0600));
    CHECK_OK(ftruncate(fd_at, 60000));
    CHECK_OK(pipe(pp));
    for (int i = 0; i < 3; i++) {
        SPAWN({
            share_position(NULL);
            long n = total;
            CHECK_EQ(write(pp[1], &n, sizeof n), (ssize_t)sizeof n);
        });
    }
    long sum = 0, n;
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(read(pp[0], &n, sizeof n), (ssize_t)sizeof n);
        sum += n;
    }
    CHECK_EQ(sum, 60000);
}
// A buffer that ends in an unmapped page: what fits arrives to the byte, whatever the size, and nothing else.
CASE(reads_into_the_end_of_memory) {
    scratch();
    int file = CHECK_OK(open("a", O_CREAT | O_RDWR, 0600)), zero = CHECK_OK(open("/dev/zero", O_RDONLY));
    char text[256];
    for (int i = 0; i < 256; i++) text[i] = 1 + i % 200;
    CHECK_EQ(write(file, text, 256), 256);
    char *m = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(m != MAP_FAILED);
    CHECK_OK(munmap(m + 4096, 4096));
    for (int n = 1; n <= 130; n++)
        for (int room = 0; room <= n && room <= 80; room++) {
            char *to = m + 4096 - room;
            memset(m + 4000 - 200, 0x55, 296);
            ssize_t got = pread(file, to, n, 0);
            CHECK_EQ(got, room ? room : -1);
            CHECK(memcmp(to, text, room) == 0);
            CHECK_EQ(to[-1], 0x55);
            memset(to, 0x55, room);
            got = read(zero, to, n);
            CHECK_EQ(got, room ? room : -1);
            for (int k = 0; k < room; k++) CHECK_EQ(to[k], 0);
            CHECK_EQ(to[-1], 0x55);
        }
}
CASE(transfers_of_every_size) {
    scratch();
    int file = CHECK_OK(open("a", O_CREAT | O_RDWR, 0600));
    CHECK_OK(pipe(pp));
    char text[300], back[304];
    for (int i = 0; i < 300; i++) text[i] = 1 + i % 211;
    for (int n = 0; n <= 150; n++)
        for (int off = 0; off < 8; off++) {
            CHECK_EQ(pwrite(file, text + off, n, off * 3), n);
            memset(back, 0x77, sizeof back);
            CHECK_EQ(pread(file, back + 1, n, off * 3), n);
            CHECK(memcmp(back + 1, text + off, n) == 0 && back[0] == 0x77 && back[n + 1] == 0x77);
            if (n == 0) continue;
            CHECK_EQ(write(pp[1], text + off, n), n);
            memset(back, 0x77, sizeof back);
            CHECK_EQ(read(pp[0], back + off, n), n);
            CHECK(memcmp(back + off, text + off, n) == 0 && back[n + off] == 0x77);
        }
}
