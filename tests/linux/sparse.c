// Mappings of more than there is memory for: pages of sparse files that cost when they are touched; mappings that grow
// down; what locking, advice and the like answer about them.
#include "t.h"
#include <sys/resource.h>

enum { PG = 4096 };
#define HUGE (1ul << 40)

static int sparse(void) {
    scratch();
    int fd = CHECK_OK(open("sparse", O_CREAT | O_RDWR, 0600));
    CHECK(ftruncate(fd, HUGE) == 0);
    CHECK_EQ(pwrite(fd, "at the start", 12, 0), 12);
    CHECK_EQ(pwrite(fd, "in the middle", 13, HUGE / 2), 13);
    return fd;
}

CASE(a_sparse_file_is_mapped_whole) {
    int fd = sparse();
    char *m = mmap(NULL, HUGE, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(m != MAP_FAILED);
    CHECK(!memcmp(m, "at the start", 12) && !memcmp(m + HUGE / 2, "in the middle", 13));
    CHECK(m[HUGE - 1] == 0 && m[HUGE / 4] == 0);
    // What is written later shows, where a page has been looked at and where none has.
    CHECK_EQ(pwrite(fd, "a", 1, HUGE / 4), 1);
    CHECK_EQ(pwrite(fd, "b", 1, HUGE / 8), 1);
    CHECK(m[HUGE / 4] == 'a' && m[HUGE / 8] == 'b');
    CHECK(munmap(m, HUGE) == 0);
}

CASE(writes_through_a_sparse_map_reach_the_file) {
    int fd = sparse();
    char *m = mmap(NULL, HUGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(m != MAP_FAILED);
    for (size_t at = PG; at < HUGE; at *= 2) m[at] = 'x';
    // Another process that has it from here, and one that maps it itself.
    CHECK_EQ(join(SPAWN({
        for (size_t at = PG; at < HUGE; at *= 2) CHECK_EQ(m[at], 'x');
        m[3 * PG] = 'y';
        char *own = mmap(NULL, HUGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        own[HUGE - PG] = 'z';
    })), 0);
    CHECK(m[3 * PG] == 'y' && m[HUGE - PG] == 'z');
    char c[3];
    CHECK(pread(fd, c, 1, HUGE / 4) == 1 && c[0] == 'x');
    CHECK(pread(fd, c, 1, 3 * PG) == 1 && c[0] == 'y');
    struct stat st;
    CHECK(fstat(fd, &st) == 0 && st.st_blocks * 512 < 1 << 30);
}

CASE(a_private_sparse_map_keeps_what_is_written_to_itself) {
    int fd = sparse();
    char *m = mmap(NULL, HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, fd, 0);
    CHECK(m != MAP_FAILED);
    for (int i = 0; i < 64; i++) m[HUGE / 4 + i * PG] = 'a' + i % 26;
    m[0] = 'A';
    for (int i = 63; i >= 0; i--) CHECK_EQ(m[HUGE / 4 + i * PG], 'a' + i % 26);
    char c;
    CHECK(pread(fd, &c, 1, HUGE / 4) == 1 && c == 0);
    CHECK(pread(fd, &c, 1, 0) == 1 && c == 'a');
    CHECK(m[HUGE / 4 + 64 * PG] == 0 && m[HUGE / 2] == 'i');
}

CASE(protection_of_a_sparse_map_holds) {
    int fd = sparse();
    char *m = mmap(NULL, HUGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(m != MAP_FAILED);
    CHECK(mprotect(m, HUGE / 2, PROT_READ) == 0);
    CHECK(m[5 * PG] == 0);
    CHECK_EQ(join(SPAWN(m[9 * PG] = 1)), 128 + SIGSEGV);
    CHECK(mprotect(m, HUGE / 2, PROT_READ | PROT_WRITE) == 0);
    m[9 * PG] = 1;
    char *n = mremap(m, HUGE, HUGE / 2, 0);
    CHECK(n == m);
    CHECK_EQ(join(SPAWN(m[HUGE / 2] = 1)), 128 + SIGSEGV);
}

CASE(calls_reach_holes_of_a_sparse_map) {
    int fd = sparse();
    char *m = mmap(NULL, HUGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(m != MAP_FAILED);
    int p[2];
    CHECK(pipe(p) == 0);
    CHECK_EQ(write(p[1], "through a pipe", 14), 14);
    CHECK_EQ(read(p[0], m + HUGE / 4, 14), 14);
    CHECK(!memcmp(m + HUGE / 4, "through a pipe", 14));
    CHECK_EQ(write(p[1], m + HUGE / 8, 3), 3);
    struct stat *st = (void *)(m + HUGE / 16);
    CHECK(fstat(fd, st) == 0 && st->st_size == (off_t)HUGE);
    CHECK_ERR(read(p[0], m + HUGE, 1), EFAULT);
}

CASE(behind_a_cut_sparse_file_is_a_bus_error) {
    int fd = sparse();
    char *m = mmap(NULL, HUGE, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(m != MAP_FAILED);
    CHECK(ftruncate(fd, HUGE / 4) == 0);
    CHECK_EQ(join(SPAWN(_exit(m[HUGE / 4]))), 128 + SIGBUS);
    CHECK_EQ(join(SPAWN(_exit(m[HUGE / 8]))), 0);
}

CASE(reserved_memory_without_reserve_is_free) {
    char *m = mmap(NULL, HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(m != MAP_FAILED);
    m[HUGE / 2] = 1;
    char *s = mmap(NULL, HUGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(s != MAP_FAILED);
    CHECK_EQ(join(SPAWN(s[HUGE / 2] = 7)), 0);
    CHECK(s[HUGE / 2] == 7);
}

// A place with nothing for megabytes below the mapping.
static char *grows(size_t room) {
    char *at = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    CHECK(munmap(at, room) == 0);
    char *top = at + room - PG;
    CHECK(mmap(top, PG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_GROWSDOWN, -1, 0) == top);
    return top;
}

CASE(a_mapping_grows_down_to_where_it_is_touched) {
    char *top = grows(16 << 20);
    top[-PG] = 1;
    top[-(4 << 20)] = 2;
    CHECK(top[-(2 << 20)] == 0 && top[-PG] == 1);
    // A call does it too.
    int p[2];
    CHECK(pipe(p) == 0 && write(p[1], "x", 1) == 1);
    CHECK_EQ(read(p[0], top - (6 << 20), 1), 1);
    CHECK(top[-(6 << 20)] == 'x');
}

CASE(growth_ends_at_the_stack_limit) {
    struct rlimit r = {1 << 20, RLIM_INFINITY};
    CHECK(getrlimit(RLIMIT_STACK, &r) == 0);
    r.rlim_cur = 1 << 20;
    char *top = grows(16 << 20);
    CHECK(setrlimit(RLIMIT_STACK, &r) == 0);
    top[PG - (1 << 20)] = 1;
    CHECK_EQ(join(SPAWN(top[-(1 << 20)] = 1)), 128 + SIGSEGV);
}

CASE(growth_keeps_away_from_what_lies_below) {
    size_t room = 16 << 20;
    char *top = grows(room), *low = top - (8 << 20);
    CHECK(mmap(low, PG, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == low);
    top[-(6 << 20)] = 1;
    CHECK_EQ(join(SPAWN(low[2 * PG] = 1)), 128 + SIGSEGV);
    CHECK_EQ(join(SPAWN(low[(1 << 20) - PG] = 1)), 128 + SIGSEGV);
    CHECK_EQ(join(SPAWN(low[(1 << 20) + 2 * PG] = 1)), 0);
    // Not from what may not be touched.
    CHECK(mprotect(low, PG, PROT_NONE) == 0);
    CHECK_EQ(join(SPAWN(low[2 * PG] = 1)), 0);
}

static void on_own_stack(int sig) { (void)sig; }
static void *deep_in_a_grown_stack(void *top) {
    // A signal's frame is below what was touched.
    char *sp = (char *)top - (3 << 20) - 64;
    __asm__ volatile("mov %%rsp, %%rbx\n mov %0, %%rsp\n mov $39, %%eax\n syscall\n mov %%eax, %%edi\n mov %1, %%esi\n mov $62, %%eax\n syscall\n mov %%rbx, %%rsp"
                     :: "r"(sp), "i"(SIGUSR1) : "rax", "rbx", "rcx", "rdi", "rsi", "r11", "memory");
    return NULL;
}
CASE(signal_frames_grow_it_too) {
    char *top = grows(16 << 20);
    signal(SIGUSR1, on_own_stack);
    deep_in_a_grown_stack(top);
    CHECK(top[-(3 << 20) - PG] == 0 || true);
}

CASE(locking_answers) {
    char *m = mmap(NULL, 8 * PG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *none = mmap(NULL, PG, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(m != MAP_FAILED && none != MAP_FAILED);
    CHECK_ERR(mlock((void *)-PG, 2 * PG), EINVAL);
    CHECK_ERR(mlock(none, PG), ENOMEM);
    CHECK(munmap(m + 4 * PG, PG) == 0);
    CHECK_ERR(mlock(m, 8 * PG), ENOMEM);
    CHECK_ERR(munlock(m, 8 * PG), ENOMEM);
    CHECK(mlock(m, PG) == 0);
    CHECK_ERR(madvise(m, PG, MADV_DONTNEED), EINVAL);
    CHECK_ERR(madvise(m, PG, MADV_FREE), EINVAL);
    CHECK_ERR(msync(m, PG, MS_INVALIDATE), EBUSY);
    CHECK(munlock(m, PG) == 0);
    CHECK(msync(m, (size_t)-1, MS_SYNC) == 0);
    CHECK_ERR(msync(m, 8 * PG, MS_SYNC), ENOMEM);
    CHECK_ERR(munmap((void *)0x7fffffffe000, 2 * PG), EINVAL);
    CHECK_ERR(madvise((void *)0x7ffffffff000, 2 * PG, MADV_DONTNEED), ENOMEM);
    CHECK_ERR(madvise(m, 0, 99), EINVAL);
}

CASE(mapping_locked_memory_minds_the_limit) {
    struct rlimit r = {4 * PG, 4 * PG};
    CHECK(setrlimit(RLIMIT_MEMLOCK, &r) == 0);
    t_drop_root();
    char *m = mmap(NULL, 2 * PG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_LOCKED, -1, 0);
    CHECK(m != MAP_FAILED);
    CHECK_ERR(mmap(NULL, 3 * PG, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_LOCKED, -1, 0), EAGAIN);
    CHECK_ERR(mremap(m, 2 * PG, 5 * PG, MREMAP_MAYMOVE), EAGAIN);
    CHECK(mlockall(MCL_FUTURE) == 0);
    CHECK_ERR(mmap(NULL, 3 * PG, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), EAGAIN);
    CHECK(munlockall() == 0);
    r.rlim_cur = r.rlim_max = 0;
    CHECK(setrlimit(RLIMIT_MEMLOCK, &r) == 0);
    CHECK_ERR(mmap(NULL, PG, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_LOCKED, -1, 0), EPERM);
    CHECK_ERR(mlock(m, PG), EPERM);
}
