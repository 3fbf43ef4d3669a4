// Freezes its domain while many processes and threads are in the middle of something, and checks in the original,
// in clones, and in clones of clones that nothing was lost, changed, interrupted or done twice.
//
// Output: one line "ok NAME" or "not ok NAME: why" a case, and lines "fact NAME VALUE" for the caller to compare.
#include "survive.h"

#include <linux/futex.h>
#include <sys/auxv.h>
#include <sys/random.h>
#include <sys/stat.h>

static struct test *tests;
const char *case_name = "main";
static struct {
    uint32_t gate, ready;
} *shared;

void add_test(struct test *t) {
    t->next = tests;
    tests = t;
}

void nap(int ms) {
    struct timespec t = {ms / 1000, ms % 1000 * 1000000L};
    CHECK(nanosleep(&t, NULL) == 0);
}

static void *call_thread(void *arg) {
    struct blocked *b = arg;
    errno = 0;
    b->result = b->call(b->arg);
    b->error = errno;
    return NULL;
}

void begin(struct blocked *b, long (*call)(long), long arg) {
    *b = (struct blocked){.call = call, .arg = arg};
    CHECK(pthread_create(&b->thread, NULL, call_thread, b) == 0);
}

long wait_for(struct blocked *b) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_sec += 8;
    CHECK(pthread_timedjoin_np(b->thread, NULL, &t) == 0);
    errno = b->error;
    return b->result;
}

void ready(void) {
    __atomic_add_fetch(&shared->ready, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&shared->gate, __ATOMIC_SEQ_CST) == 0) {
        long r = syscall(SYS_futex, &shared->gate, FUTEX_WAIT, 0, NULL, NULL, 0);
        CHECK(r == 0 || errno == EAGAIN || (errno == EINTR && !strncmp(case_name, "itimer", 6)));
    }
}

static void text_of(const char *path, char *out, size_t size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, out, size - 1);
    out[n < 0 ? 0 : n] = 0;
    out[strcspn(out, "\n")] = 0;
    if (fd >= 0) close(fd);
}

int generation(void) {
    char text[32];
    text_of("/sys/doppel/generation", text, sizeof text);
    return atoi(text);
}

static int64_t now(clockid_t c) {
    struct timespec t;
    clock_gettime(c, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int freeze(void) {
    int fd = open("/sys/power/state", O_WRONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    ssize_t n = write(fd, "freeze\n", 7);
    int error = errno;
    close(fd);
    return n == 7 ? 0 : error;
}

static void facts(void) {
    const char *files[] = {"boot_id", "/proc/sys/kernel/random/boot_id", "hostname", "/proc/sys/kernel/hostname",
        "machine_id", "/etc/machine-id", "domain_id", "/sys/doppel/domain_id", "index", "/sys/doppel/clone_index",
        "args", "/sys/doppel/args"};
    char text[128];
    for (size_t i = 0; i < sizeof files / sizeof *files; i += 2) {
        text_of(files[i + 1], text, sizeof text);
        printf("fact %s %s\n", files[i], text);
    }
    uint64_t r = 0;
    CHECK(getrandom(&r, sizeof r, 0) == sizeof r);
    printf("fact getrandom %016lx\n", r);
    int fd = open("/dev/urandom", O_RDONLY);
    CHECK(read(fd, &r, sizeof r) == sizeof r);
    close(fd);
    printf("fact urandom %016lx\n", r);
    memcpy(&r, (void *)getauxval(AT_RANDOM), sizeof r);
    printf("fact at_random %016lx\n", r);
    struct stat st;
    CHECK(stat("/etc/machine-id", &st) == 0);
    printf("fact machine_id_size %ld\n", (long)st.st_size);
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IONBF, 0);
    if (argc == 2 && !strcmp(argv[1], "child")) return 42;
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    uint32_t count = 0;
    for (struct test *t = tests; t; t = t->next) {
        if (argc > 1 && !strstr(argv[1], t->name)) continue;
        count++;
        t->pid = fork();
        CHECK(t->pid >= 0);
        if (t->pid == 0) {
            case_name = t->name;
            t->fn();
            printf("ok %s\n", t->name);
            _exit(0);
        }
    }
    for (int i = 0; i < 2000 && __atomic_load_n(&shared->ready, __ATOMIC_SEQ_CST) < count; i++) {
        int status;
        pid_t gone = waitpid(-1, &status, WNOHANG);
        if (gone > 0) {
            printf("not ok set-up: process %d ended with %x\n", gone, status);
            return 1;
        }
        nap(5);
    }
    if (shared->ready != count) {
        printf("not ok set-up: %u of %u ready\n", shared->ready, count);
        return 1;
    }
    nap(100); // Their threads are in their calls by now.
    int64_t mono = now(CLOCK_MONOTONIC), real = now(CLOCK_REALTIME);
    int error = freeze();
    if (error) {
        printf("not ok freeze: errno %d\n", error);
        return 1;
    }
    int g = generation();
    // A clone freezes itself again if it was given a place for it.
    if (g == 1) error = freeze();
    if (error && error != EPERM) printf("not ok freeze again: errno %d\n", error);
    CHECK(now(CLOCK_MONOTONIC) > mono && now(CLOCK_REALTIME) > real);
    printf("fact generation %d\n", generation());
    printf("fact realtime %.6f\n", now(CLOCK_REALTIME) / 1e9);
    facts();
    __atomic_store_n(&shared->gate, 1, __ATOMIC_SEQ_CST);
    CHECK(syscall(SYS_futex, &shared->gate, FUTEX_WAKE, 1 << 30, NULL, NULL, 0) >= 0);
    int bad = 0;
    int64_t give_up = now(CLOCK_MONOTONIC) + 15000000000LL;
    for (uint32_t left = count; left;) {
        int status;
        pid_t pid = waitpid(-1, &status, WNOHANG);
        if (pid > 0) {
            for (struct test *t = tests; t; t = t->next) {
                if (t->pid != pid) continue;
                t->pid = 0;
                left--;
                bad += status != 0;
                if (WIFSIGNALED(status)) printf("not ok %s: killed by signal %d\n", t->name, WTERMSIG(status));
            }
            continue;
        }
        if (now(CLOCK_MONOTONIC) > give_up) {
            for (struct test *t = tests; t; t = t->next) {
                if (t->pid) printf("not ok %s: no end\n", t->name);
            }
            return 1;
        }
        nap(5);
    }
    printf("done\n");
    return bad != 0;
}
