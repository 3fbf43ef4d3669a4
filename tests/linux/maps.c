// Memory calls at their edges: mremap, mprotect, madvise, mlock, msync, mincore, file mappings, SIGBUS, remote access.
#include "t.h"
#include <setjmp.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif
enum { P = 4096 };
static sigjmp_buf jb;
static volatile int sig_code;
static void *volatile sig_addr;
static void leave(int s, siginfo_t *si, void *u) {
    (void)u;
    sig_code = si->si_code, sig_addr = si->si_addr;
    siglongjmp(jb, s);
}
// The signal an access raises, 0 if none.
static int touch(volatile char *p, int write) {
    on_signal(SIGSEGV, leave, 0), on_signal(SIGBUS, leave, 0);
    int s = sigsetjmp(jb, 1);
    if (!s) {
        if (write) *p = 'w';
        else (void)*p;
    }
    return s;
}
static char *anon(int pages) {
    char *p = mmap(NULL, pages * P, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    return p;
}
static int maps_of(void *p) {  // lines of /proc/self/maps that lie within 16 pages of p
    int n = 0;
    unsigned long a, b;
    for (char *s = slurp("/proc/self/maps"); s && *s; s = strchr(s, '\n') ? strchr(s, '\n') + 1 : NULL)
        if (sscanf(s, "%lx-%lx", &a, &b) == 2 && a < (unsigned long)p + 16 * P && b > (unsigned long)p) n++;
    return n;
}

CASE(remap_moves_contents) {
    char *p = anon(4), *hole = anon(8);
    memset(p, 'a', 4 * P);
    char *q = mremap(p, 4 * P, 8 * P, MREMAP_MAYMOVE | MREMAP_FIXED, hole);
    CHECK(q == hole && q[0] == 'a' && q[4 * P - 1] == 'a' && q[4 * P] == 0);
    CHECK_EQ(touch(p, 0), SIGSEGV);
}
CASE(remap_fixed_replaces_the_target) {
    char *p = anon(1), *q = anon(1);
    *p = 'p', *q = 'q';
    CHECK(mremap(p, P, P, MREMAP_MAYMOVE | MREMAP_FIXED, q) == q && *q == 'p');
}
CASE(remap_fixed_errors) {
    char *p = anon(4);
    CHECK(mremap(p, 4 * P, 4 * P, MREMAP_MAYMOVE | MREMAP_FIXED, p + P) == MAP_FAILED && errno == EINVAL);  // overlap
    CHECK(mremap(p, P, P, MREMAP_FIXED, p + 8 * P) == MAP_FAILED && errno == EINVAL);  // needs MAYMOVE
    CHECK(mremap(p, P, P, MREMAP_MAYMOVE | MREMAP_FIXED, p + 1) == MAP_FAILED && errno == EINVAL);
    CHECK(mremap(p + 1, P, P, MREMAP_MAYMOVE) == MAP_FAILED && errno == EINVAL);
    CHECK(mremap(p, P, 0, MREMAP_MAYMOVE) == MAP_FAILED && errno == EINVAL);
    CHECK(mremap(p, P, P, 8) == MAP_FAILED && errno == EINVAL);
}
CASE(remap_of_unmapped_is_efault) {
    char *p = anon(2);
    munmap(p, 2 * P);
    CHECK(mremap(p, P, 2 * P, MREMAP_MAYMOVE) == MAP_FAILED && errno == EFAULT);
}
CASE(remap_across_two_maps_is_efault) {
    char *p = anon(4);
    CHECK(mprotect(p + 2 * P, 2 * P, PROT_READ) == 0);
    CHECK(mremap(p, 4 * P, 8 * P, MREMAP_MAYMOVE) == MAP_FAILED && errno == EFAULT);
    CHECK(mremap(p, 4 * P, P, 0) == p);  // shrinking is only unmapping
    CHECK_EQ(touch(p + 2 * P, 0), SIGSEGV);
}
CASE(remap_zero_old_size_duplicates_shared) {
    char *p = mmap(NULL, P, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char *q = mremap(p, 0, P, MREMAP_MAYMOVE);
    CHECK(q != MAP_FAILED && q != p);
    *p = 'x';
    CHECK_EQ(*q, 'x');
    char *a = anon(1);
    CHECK(mremap(a, 0, P, MREMAP_MAYMOVE) == MAP_FAILED && errno == EINVAL);
}
CASE(remap_keeps_protection) {
    char *p = anon(1);
    *p = 'k';
    mprotect(p, P, PROT_READ);
    char *q = mremap(p, P, 64 * P, MREMAP_MAYMOVE);
    CHECK(q != MAP_FAILED && *q == 'k');
    CHECK_EQ(touch(q, 1), SIGSEGV);
    CHECK_EQ(touch(q + 63 * P, 0), 0);
}
CASE(remap_file_keeps_offset) {
    scratch();
    int fd = mkfile("f", "");
    ftruncate(fd, 8 * P);
    pwrite(fd, "three", 5, 3 * P);
    char *p = mmap(NULL, P, PROT_READ, MAP_SHARED, fd, 2 * P);
    char *q = mremap(p, P, 3 * P, MREMAP_MAYMOVE);
    CHECK(q != MAP_FAILED && !memcmp(q + P, "three", 5));
}
CASE(protect_splits_and_merges) {
    char *p = anon(16);
    int before = maps_of(p);
    mprotect(p + 4 * P, P, PROT_READ);
    CHECK_EQ(maps_of(p), before + 2);
    mprotect(p + 4 * P, P, PROT_READ | PROT_WRITE);
    CHECK_EQ(maps_of(p), before);
}
CASE(protect_over_a_hole_changes_the_first_part) {
    char *p = anon(4);
    munmap(p + 2 * P, P);
    CHECK_ERR(mprotect(p, 4 * P, PROT_READ), ENOMEM);
    CHECK_EQ(touch(p + P, 1), SIGSEGV);   // done
    CHECK_EQ(touch(p + 3 * P, 1), 0);     // not reached
}
CASE(protect_arguments) {
    char *p = anon(1);
    CHECK_ERR(mprotect(p + 1, P, PROT_READ), EINVAL);
    CHECK_ERR(mprotect(p, P, 0x80), EINVAL);
    CHECK(mprotect(p, 0, PROT_NONE) == 0 && touch(p, 1) == 0);
    CHECK_ERR(mprotect(p, P, PROT_GROWSDOWN | PROT_GROWSUP), EINVAL);
    CHECK_ERR(mprotect(p, SIZE_MAX & ~4095ul, PROT_READ), ENOMEM);
}
CASE(write_only_is_readable_on_x86) {
    char *p = mmap(NULL, P, PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(touch(p, 1) == 0 && touch(p, 0) == 0);
}
CASE(unmap_middle) {
    char *p = anon(3);
    memset(p, 'x', 3 * P);
    CHECK(munmap(p + P, 1) == 0);  // rounded up
    CHECK(p[0] == 'x' && p[2 * P] == 'x');
    CHECK_EQ(touch(p + P, 0), SIGSEGV);
    CHECK_EQ(sig_code, SEGV_MAPERR);
    CHECK_ERR(munmap(p, 0), EINVAL);
    CHECK_ERR(munmap(p + 1, P), EINVAL);
    CHECK_ERR(munmap(p, SIZE_MAX & ~4095ul), EINVAL);
}
CASE(fixed_noreplace) {
    char *p = anon(2);
    CHECK(mmap(p + P, P, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED && errno == EEXIST);
    munmap(p + P, P);
    CHECK(mmap(p + P, P, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == p + P);
    CHECK(mmap(p, 2 * P, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED && errno == EEXIST);
    CHECK_EQ(touch(p, 1), 0);  // untouched
}
CASE(map_flag_rules) {
    scratch();
    int fd = mkfile("f", "x");
    CHECK(mmap(NULL, P, PROT_READ, MAP_SHARED | MAP_PRIVATE, fd, 0) != MAP_FAILED);  // together: MAP_SHARED_VALIDATE
    CHECK(mmap(NULL, P, PROT_READ, MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0) == MAP_FAILED && errno == EOPNOTSUPP);
    CHECK(mmap(NULL, P, PROT_READ, 0, fd, 0) == MAP_FAILED && errno == EINVAL);
    CHECK(mmap(NULL, P, PROT_READ, MAP_SHARED, fd, LONG_MAX & ~4095l) == MAP_FAILED && errno == EOVERFLOW);
    CHECK(mmap(NULL, P, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, 999, 0) != MAP_FAILED);  // the descriptor is not looked at
}
CASE(map_needs_matching_open_mode) {
    scratch();
    close(mkfile("f", "x"));
    int w = open("f", O_WRONLY), r = open("f", O_RDONLY), a = open("f", O_PATH);
    CHECK(mmap(NULL, P, PROT_READ, MAP_PRIVATE, w, 0) == MAP_FAILED && errno == EACCES);
    CHECK(mmap(NULL, P, PROT_WRITE, MAP_SHARED, w, 0) == MAP_FAILED && errno == EACCES);
    CHECK(mmap(NULL, P, PROT_WRITE, MAP_SHARED, r, 0) == MAP_FAILED && errno == EACCES);
    CHECK(mmap(NULL, P, PROT_WRITE, MAP_PRIVATE, r, 0) != MAP_FAILED);
    CHECK(mmap(NULL, P, PROT_READ, MAP_PRIVATE, a, 0) == MAP_FAILED && errno == EBADF);
}
CASE(shared_read_map_cannot_become_writable) {
    scratch();
    close(mkfile("f", "x"));
    char *p = mmap(NULL, P, PROT_READ, MAP_SHARED, open("f", O_RDONLY), 0);
    CHECK_ERR(mprotect(p, P, PROT_READ | PROT_WRITE), EACCES);
    char *q = mmap(NULL, P, PROT_READ, MAP_SHARED, open("f", O_RDWR), 0);
    CHECK(mprotect(q, P, PROT_READ | PROT_WRITE) == 0);
}
CASE(bus_error_behind_the_last_page) {
    scratch();
    int fd = mkfile("f", "x");
    char *p = mmap(NULL, 3 * P, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(touch(p + P - 1, 1) == 0);
    CHECK_EQ(touch(p + P, 0), SIGBUS);
    CHECK(sig_code == BUS_ADRERR && sig_addr == p + P);
    ftruncate(fd, 2 * P);
    CHECK_EQ(touch(p + P, 1), 0);
    CHECK_EQ(touch(p + 2 * P, 0), SIGBUS);
}
CASE(bus_error_on_private_map) {
    scratch();
    int fd = mkfile("f", "");
    char *p = mmap(NULL, P, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    CHECK_EQ(touch(p, 1), SIGBUS);
}
CASE(truncation_reaches_other_processes) {
    scratch();
    int fd = mkfile("f", ""), p[2], q[2];
    ftruncate(fd, 2 * P);
    CHECK(pipe(p) == 0 && pipe(q) == 0);
    pid_t c = SPAWN(char *m = mmap(NULL, 2 * P, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0); m[P] = 'x'; write(p[1], "m", 1);
                    char x; read(q[0], &x, 1); _exit(touch(m + P, 0) == SIGBUS ? 3 : 4));
    char x;
    CHECK(read(p[0], &x, 1) == 1);
    CHECK(ftruncate(fd, P) == 0);
    write(q[1], "x", 1);
    CHECK_EQ(join(c), 3);
}
CASE(truncate_drops_private_copies) {
    scratch();
    int fd = mkfile("f", "");
    ftruncate(fd, 2 * P);
    char *m = mmap(NULL, 2 * P, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    m[P] = 'x';
    CHECK(ftruncate(fd, P) == 0);
    CHECK_EQ(touch(m + P, 0), SIGBUS);
    CHECK(ftruncate(fd, 2 * P) == 0);
    CHECK(touch(m + P, 0) == 0 && m[P] == 0);
}
CASE(call_into_truncated_map_is_efault) {
    scratch();
    int fd = mkfile("f", "");
    char *m = mmap(NULL, P, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK_ERR(read(open("/dev/zero", O_RDONLY), m, 10), EFAULT);
    CHECK_ERR(write(open("/dev/full", O_WRONLY), m, 10), ENOSPC);
    int p[2];
    CHECK(pipe(p) == 0);
    CHECK_ERR(write(p[1], m, 10), EFAULT);
}
CASE(punched_hole_reads_zero_through_map) {
    int fd = memfd_create("m", 0);
    ftruncate(fd, 4 * P);
    char *m = mmap(NULL, 4 * P, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    memset(m, 'x', 4 * P);
    CHECK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, P + 10, 2 * P) == 0);
    CHECK(m[P + 9] == 'x' && m[P + 10] == 0 && m[2 * P] == 0 && m[3 * P + 9] == 0 && m[3 * P + 10] == 'x');
}
CASE(written_through_a_map_where_a_hole_was_punched) {
    int fd = memfd_create("m", 0);
    ftruncate(fd, 4 * P);
    char *m = mmap(NULL, 4 * P, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), b[2] = "";
    memset(m, 'x', 4 * P);
    CHECK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, P, 2 * P) == 0);
    m[P + 7] = 'y';
    CHECK(pread(fd, b, 2, P + 7) == 2 && b[0] == 'y' && b[1] == 0);
}
CASE(advice_remove_punches) {
    char *m = mmap(NULL, 4 * P, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    memset(m, 'x', 4 * P);
    CHECK(madvise(m + P, P, MADV_REMOVE) == 0);
    CHECK(m[0] == 'x' && m[P] == 0 && m[2 * P] == 'x');
    CHECK_ERR(madvise(anon(1), P, MADV_REMOVE), EINVAL);
}
CASE(advice_dontneed_of_shared_keeps) {
    char *m = mmap(NULL, P, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    *m = 'x';
    CHECK(madvise(m, P, MADV_DONTNEED) == 0 && *m == 'x');
}
CASE(advice_over_a_hole) {
    char *p = anon(3);
    memset(p, 'x', 3 * P);
    munmap(p + P, P);
    CHECK_ERR(madvise(p, 3 * P, MADV_DONTNEED), ENOMEM);
    CHECK(p[0] == 0 && p[2 * P] == 0);  // all that exists is done
    CHECK_ERR(madvise(p + 1, P, MADV_NORMAL), EINVAL);
    CHECK_ERR(madvise(p, P, 9999), EINVAL);
    CHECK(madvise(p, 0, MADV_DONTNEED) == 0);
}
CASE(advice_populate) {
    char *p = anon(4);
    if (madvise(p, 4 * P, MADV_POPULATE_WRITE) && errno == EINVAL) SKIP("before Linux 5.14");
    unsigned char v[4];
    CHECK(mincore(p, 4 * P, v) == 0 && (v[0] & v[1] & v[2] & v[3] & 1));
    mprotect(p, P, PROT_READ);
    CHECK_ERR(madvise(p, P, MADV_POPULATE_WRITE), EINVAL);
    CHECK(madvise(p, P, MADV_POPULATE_READ) == 0);
    munmap(p, P);
    CHECK_ERR(madvise(p, P, MADV_POPULATE_READ), ENOMEM);
}
CASE(core_of_unmapped_and_arguments) {
    char *p = anon(2);
    unsigned char v[2];
    munmap(p + P, P);
    CHECK_ERR(mincore(p, 2 * P, v), ENOMEM);
    CHECK_ERR(mincore(p + 1, P, v), EINVAL);
    CHECK_ERR(mincore(p, P, noaccess()), EFAULT);
    CHECK(mincore(p, 0, v) == 0);
}
CASE(lock_limits_for_users) {
    struct rlimit l = {4 * P, 4 * P};
    CHECK(setrlimit(RLIMIT_MEMLOCK, &l) == 0);
    t_drop_root();
    char *p = anon(8);
    CHECK(mlock(p, 4 * P) == 0);
    CHECK_ERR(mlock(p + 4 * P, P), ENOMEM);
    CHECK(mlock(p, 2 * P) == 0);  // already counted
    CHECK(munlock(p, P) == 0 && mlock(p + 4 * P, P) == 0);
    CHECK_ERR(mlockall(MCL_CURRENT), ENOMEM);
    l.rlim_cur = 0;
    CHECK(setrlimit(RLIMIT_MEMLOCK, &l) == 0);
    CHECK_ERR(mlock(p, P), EPERM);
}
CASE(lock_arguments) {
    char *p = anon(2);
    munmap(p + P, P);
    CHECK_ERR(mlock(p, 2 * P), ENOMEM);
    CHECK_ERR(munlock(p, 2 * P), ENOMEM);
    CHECK(mlock(p + 1, 1) == 0 && munlock(p, 1) == 0);  // rounded to pages
    CHECK_ERR(syscall(SYS_mlock2, p, P, 2), EINVAL);
    CHECK(syscall(SYS_mlock2, p, P, 1) == 0);  // MLOCK_ONFAULT
    CHECK_ERR(mlockall(0), EINVAL);
    CHECK_ERR(mlockall(8), EINVAL);
    CHECK_ERR(mlockall(MCL_ONFAULT), EINVAL);
    CHECK(mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) == 0 && munlockall() == 0);
}
CASE(locked_memory_is_shown) {
    char *p = anon(16);
    CHECK(mlock(p, 16 * P) == 0);
    char *s = strstr(slurp("/proc/self/status"), "VmLck:");
    CHECK(s && atoi(s + 6) >= 64);
}
CASE(locked_pages_refuse_dontneed) {
    char *p = anon(1);
    *p = 'x';
    CHECK(mlock(p, P) == 0);
    CHECK_ERR(madvise(p, P, MADV_DONTNEED), EINVAL);
    CHECK_EQ(*p, 'x');
}
CASE(sync_arguments) {
    char *p = anon(2);
    CHECK_ERR(msync(p, P, MS_SYNC | MS_ASYNC), EINVAL);
    CHECK_ERR(msync(p + 1, P, MS_SYNC), EINVAL);
    CHECK_ERR(msync(p, P, 8), EINVAL);
    munmap(p + P, P);
    CHECK_ERR(msync(p, 2 * P, MS_ASYNC), ENOMEM);
    CHECK(mlock(p, P) == 0);
    CHECK_ERR(msync(p, P, MS_INVALIDATE), EBUSY);
}
CASE(old_page_rearranging) {
    int fd = memfd_create("m", 0);
    ftruncate(fd, 3 * P);
    char *m = mmap(NULL, 3 * P, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    for (int i = 0; i < 3; i++) m[i * P] = '0' + i;
    CHECK(syscall(SYS_remap_file_pages, m, P, 0, 2, 0) == 0);
    CHECK(m[0] == '2' && m[P] == '1');
    CHECK_ERR(syscall(SYS_remap_file_pages, anon(1), P, 0, 0, 0), EINVAL);
    CHECK_ERR(syscall(SYS_remap_file_pages, m, P, PROT_READ, 0, 0), EINVAL);
}
CASE(growth_is_limited_by_rlimit_data) {
    struct rlimit l = {32 << 20, 32 << 20};
    CHECK(setrlimit(RLIMIT_DATA, &l) == 0);
    CHECK(mmap(NULL, 64 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED && errno == ENOMEM);
    CHECK(mmap(NULL, 64 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
}
CASE(remote_read_and_write_both_directions) {
    static char mine[2 * P];
    char *shared = anon(2);
    strcpy(shared, "child sees this");
    pid_t c = SPAWN(EVENTUALLY(shared[100] == 'w'));
    struct iovec l = {mine, 15}, r = {shared, 15}, w = {"w", 1}, rw = {shared + 100, 1};
    CHECK_EQ(process_vm_readv(c, &l, 1, &r, 1, 0), 15);
    CHECK(!memcmp(mine, "child sees this", 15));
    CHECK_EQ(process_vm_writev(c, &w, 1, &rw, 1, 0), 1);
    CHECK_EQ(join(c), 0);
    CHECK_EQ(shared[100], 0);
}
CASE(remote_partial_and_errors) {
    char *p = anon(2), local[2 * P];
    munmap(p + P, P);
    struct iovec l = {local, 2 * P}, r = {p, 2 * P}, bad = {BAD, 10}, two[2] = {{p, 10}, {BAD, 10}};
    pid_t me = getpid();
    CHECK_EQ(process_vm_readv(me, &l, 1, &r, 1, 0), P);
    CHECK_EQ(process_vm_readv(me, &l, 1, two, 2, 0), 10);
    CHECK_ERR(process_vm_readv(me, &l, 1, &bad, 1, 0), EFAULT);
    CHECK_ERR(process_vm_readv(me, &l, 1, &r, 1, 1), EINVAL);
    CHECK_ERR(process_vm_readv(me, &l, 1, &r, 1025, 0), EINVAL);
    CHECK_ERR(process_vm_readv(999999, &l, 1, &r, 1, 0), ESRCH);
    CHECK_EQ(process_vm_readv(me, &l, 0, &r, 1, 0), 0);
    mprotect(p, P, PROT_READ);
    CHECK_ERR(process_vm_writev(me, &l, 1, &r, 1, 0), EFAULT);
}
CASE(remote_needs_permission) {
    int p[2], q[2];
    CHECK(pipe(p) == 0 && pipe(q) == 0);
    static char mark[8] = "mark";
    pid_t root = SPAWN(write(p[1], "x", 1); char x; read(q[0], &x, 1));
    char b[8], x;
    struct iovec l = {b, 4}, r = {mark, 4};
    CHECK(read(p[0], &x, 1) == 1);
    pid_t user = SPAWN(t_drop_root(); _exit(process_vm_readv(root, &l, 1, &r, 1, 0) == -1 && errno == EPERM ? 3 : 4));
    CHECK_EQ(join(user), 3);
    write(q[1], "x", 1);
    join(root);
}
CASE(fork_write_protects_both_ways_in_large_area) {
    char *p = anon(512);
    for (int i = 0; i < 512; i++) p[i * P] = 'a';
    pid_t c = SPAWN(for (int i = 0; i < 512; i += 2) p[i * P] = 'c'; for (int i = 1; i < 512; i += 2) if (p[i * P] != 'a') _exit(1));
    for (int i = 1; i < 512; i += 2) p[i * P] = 'p';
    CHECK_EQ(join(c), 0);
    for (int i = 0; i < 512; i++) CHECK_EQ(p[i * P], i & 1 ? 'p' : 'a');
}
CASE(image_file_map_follows_later_writes) {
    // A file of a read-only image is copied up by the first write: maps made before must show it.
    scratch();
    char src[300], *dir = getenv("T_IMAGE_DIR");
    snprintf(src, sizeof src, "%s/two", dir ? dir : ".");
    if (!dir) close(mkfile("two", "two"));
    int r = open(src, O_RDONLY), w = open(src, O_RDWR);
    CHECK(r >= 0 && w >= 0);
    char *m = mmap(NULL, P, PROT_READ, MAP_SHARED, r, 0);
    CHECK(!memcmp(m, "two", 3));
    CHECK(pwrite(w, "TWO", 3, 0) == 3);
    CHECK(!memcmp(m, "TWO", 3));
    CHECK(pwrite(w, "two", 3, 0) == 3);
}

CASE(shared_validate_knows_its_flags) {
    scratch();
    int f = mkfile("f", "x");
    CHECK(ftruncate(f, 8192) == 0);
    const int sv = MAP_SHARED_VALIDATE, rw = PROT_READ | PROT_WRITE;
    CHECK(mmap(NULL, 4096, rw, sv | MAP_NORESERVE | MAP_POPULATE, f, 0) != MAP_FAILED);
    unsigned unknown[] = {MAP_SYNC, 0x200000, 0x400000, 0x80000000, MAP_FIXED_NOREPLACE};
    for (int i = 0; i < 5; i++) {
        errno = 0;
        CHECK(mmap((void *)0x7000000000, 4096, rw, sv | unknown[i], f, 0) == MAP_FAILED);
        CHECK_EQ(errno, EOPNOTSUPP);
    }
    CHECK(mmap(NULL, 4096, rw, sv | MAP_ANONYMOUS, -1, 0) == MAP_FAILED && errno == EINVAL);
    // Only private memory without a file grows down.
    CHECK(mmap(NULL, 4096, rw, MAP_SHARED | MAP_GROWSDOWN, f, 0) == MAP_FAILED && errno == EINVAL);
    CHECK(mmap(NULL, 4096, rw, MAP_PRIVATE | MAP_GROWSDOWN, f, 0) == MAP_FAILED && errno == EINVAL);
    CHECK(mmap(NULL, 4096, rw, MAP_SHARED | MAP_ANONYMOUS | MAP_GROWSDOWN, -1, 0) == MAP_FAILED && errno == EINVAL);
    CHECK(mmap(NULL, 4096, rw, MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN, -1, 0) != MAP_FAILED);
}

CASE(protection_keys_are_had_or_refused) {
    // A processor without them gives EINVAL; one with them gives a key.
    CHECK_ERR(syscall(SYS_pkey_alloc, 1, 0), EINVAL);
    CHECK_ERR(syscall(SYS_pkey_alloc, 0, 4), EINVAL);
    CHECK_ERR(syscall(SYS_pkey_free, 16), EINVAL);
    CHECK_ERR(syscall(SYS_pkey_free, -1), EINVAL);
    long key = syscall(SYS_pkey_alloc, 0, 0);
    if (key == -1) CHECK_EQ(errno, EINVAL);
    else CHECK_EQ(syscall(SYS_pkey_free, key), 0);
}

// mseal, by number: libc does not have it yet.
static long seal(void *p, size_t len, unsigned long flags) { return syscall(462, p, len, flags); }
static char *pages(int n) {
    char *p = mmap(NULL, n * 4096L, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    memset(p, 7, n * 4096L);
    return p;
}
static void need_mseal(void) {
    if (seal(NULL, 0, 1) < 0 && errno == ENOSYS) SKIP("the kernel has no mseal");
}
CASE(sealed_memory_stays) {
    need_mseal();
    char *p = pages(6), *q = pages(2);
    CHECK_EQ(seal(p + 8192, 8192, 0), 0);
    CHECK_ERR(munmap(p + 8192, 4096), EPERM);
    CHECK_ERR(munmap(p, 6 * 4096), EPERM);
    CHECK_ERR(mprotect(p + 12288, 4096, PROT_READ), EPERM);
    CHECK_ERR((long)mmap(p + 8192, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), EPERM);
    CHECK_ERR((long)mremap(p + 8192, 8192, 4096, 0), EPERM);
    CHECK_ERR((long)mremap(p + 8192, 8192, 8192, MREMAP_MAYMOVE | MREMAP_FIXED, q), EPERM);
    CHECK_ERR((long)mremap(q, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, p + 8192), EPERM);
    for (int i = 0; i < 6 * 4096; i++) CHECK(p[i] == 7);
    // It may be written, so it may be emptied, too.
    CHECK_EQ(madvise(p + 8192, 4096, MADV_DONTNEED), 0);
    CHECK(p[8192] == 0 && p[12288] == 7);
    p[12288] = 8;
    // What is beside it is as any.
    CHECK_EQ(mprotect(p, 8192, PROT_READ), 0);
    CHECK_EQ(munmap(p + 16384, 8192), 0);
    CHECK_EQ(munmap(p, 8192), 0);
    CHECK_EQ(seal(p + 8192, 8192, 0), 0);
    pid_t c = fork();
    if (c == 0) _exit(munmap(p + 8192, 8192) == -1 && errno == EPERM ? 0 : 1);
    CHECK_EQ(join(c), 0);
}
CASE(sealed_memory_that_cannot_be_written_keeps_its_bytes) {
    need_mseal();
    char *p = pages(2);
    CHECK(mprotect(p, 8192, PROT_READ) == 0 && seal(p, 8192, 0) == 0);
    CHECK_ERR(madvise(p, 4096, MADV_DONTNEED), EPERM);
    CHECK_ERR(madvise(p, 4096, MADV_FREE), EPERM);
    CHECK_ERR(madvise(p, 4096, MADV_DONTFORK), EPERM);
    CHECK_EQ(madvise(p, 4096, MADV_WILLNEED), 0);
    CHECK_EQ(madvise(p, 4096, MADV_DONTDUMP), 0);
    CHECK(p[0] == 7 && p[8191] == 7);
}
CASE(what_cannot_be_sealed) {
    need_mseal();
    char *p = pages(3);
    CHECK_ERR(seal(p, 4096, 1), EINVAL);
    CHECK_ERR(seal(p + 1, 4096, 0), EINVAL);
    CHECK_ERR(seal(p, -1UL, 0), EINVAL);
    CHECK_EQ(seal(p, 0, 0), 0);
    CHECK_EQ(munmap(p + 4096, 4096), 0);
    CHECK_ERR(seal(p, 3 * 4096, 0), ENOMEM);
    CHECK_EQ(mprotect(p, 4096, PROT_READ), 0);
    CHECK_EQ(munmap(p, 4096), 0);
}
