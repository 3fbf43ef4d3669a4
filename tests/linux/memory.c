// Memory: mmap, munmap, mprotect, mremap, brk, madvise, mincore, shared and file mappings, limits.
#include "t.h"
#include <setjmp.h>
#include <sys/resource.h>

#define PG 4096
static sigjmp_buf jb;
static volatile int sig_code;
static void *volatile sig_addr;
static void on_fault(int s, siginfo_t *si, void *u) {
    (void)u;
    sig_code = si->si_code, sig_addr = si->si_addr;
    siglongjmp(jb, s);
}
// Value: 0 when the access works, else the signal.
static int probe(volatile char *p, int write) {
    on_signal(SIGSEGV, on_fault, SA_NODEFER);
    on_signal(SIGBUS, on_fault, SA_NODEFER);
    int s = sigsetjmp(jb, 1);
    if (s == 0) {
        if (write) *p = *p;
        else (void)*p;
    }
    return s;
}
static char *anon(size_t n, int prot) {
    char *p = mmap(NULL, n, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    return p;
}
#define RW (PROT_READ | PROT_WRITE)

CASE(anon_is_zero) {
    char *p = anon(1 << 20, RW);
    for (int i = 0; i < 1 << 20; i += 512) CHECK(p[i] == 0);
}
CASE(mmap_zero_length) { CHECK_ERR(mmap(NULL, 0, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), EINVAL); }
CASE(mmap_needs_type) { CHECK_ERR(mmap(NULL, PG, RW, MAP_ANONYMOUS, -1, 0), EINVAL); }
CASE(mmap_bad_fd) { CHECK_ERR(mmap(NULL, PG, RW, MAP_PRIVATE, 500, 0), EBADF); }
CASE(mmap_unaligned_offset) {
    scratch();
    int fd = mkfile("f", "x");
    CHECK_ERR(mmap(NULL, PG, PROT_READ, MAP_PRIVATE, fd, 100), EINVAL);
}
CASE(mmap_huge_enomem) { CHECK_ERR(mmap(NULL, 1ul << 50, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), ENOMEM); }
CASE(mmap_unaligned_fixed) { CHECK_ERR(mmap((void *)0x10000001, PG, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), EINVAL); }
CASE(mmap_hint_is_used_when_free) {
    char *p = anon(PG, RW);
    munmap(p, PG);
    CHECK(mmap(p, PG, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == p);
}
CASE(mmap_hint_taken_moves) {
    char *p = anon(PG, RW);
    char *q = mmap(p, PG, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(q != MAP_FAILED && q != p);
}
CASE(mmap_fixed_replaces) {
    char *p = anon(4 * PG, RW);
    memset(p, 1, 4 * PG);
    CHECK(mmap(p + PG, 2 * PG, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == p + PG);
    CHECK(p[0] == 1 && p[PG] == 0 && p[2 * PG] == 0 && p[3 * PG] == 1);
}
CASE(mmap_fixed_noreplace) {
    char *p = anon(PG, RW);
    CHECK_ERR(mmap(p, PG, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0), EEXIST);
}
CASE(mmap_overflow_rounding) { CHECK_ERR(mmap(NULL, (size_t)-1, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), ENOMEM); }
CASE(mmap_low_address_refused_or_moved) {
    char *p = mmap(NULL, PG, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(p > (char *)65536);
}
CASE(munmap_then_fault) {
    char *p = anon(3 * PG, RW);
    CHECK(munmap(p + PG, PG) == 0);
    CHECK_EQ(probe(p, 1), 0);
    CHECK_EQ(probe(p + PG, 0), SIGSEGV);
    CHECK_EQ(sig_code, SEGV_MAPERR);
    CHECK(sig_addr == p + PG);
    CHECK_EQ(probe(p + 2 * PG, 1), 0);
}
CASE(munmap_hole_ok_errors) {
    char *p = anon(PG, RW);
    CHECK(munmap(p, PG) == 0);
    CHECK(munmap(p, PG) == 0);
    CHECK_ERR(munmap(p + 1, PG), EINVAL);
    CHECK_ERR(munmap(p, 0), EINVAL);
}
CASE(mprotect_read_only) {
    char *p = anon(3 * PG, RW);
    CHECK(mprotect(p + PG, PG, PROT_READ) == 0);
    CHECK_EQ(probe(p + PG, 0), 0);
    CHECK_EQ(probe(p + PG, 1), SIGSEGV);
    CHECK_EQ(sig_code, SEGV_ACCERR);
    CHECK_EQ(probe(p + 2 * PG, 1), 0);
    CHECK(mprotect(p, 3 * PG, RW) == 0);
    CHECK_EQ(probe(p + PG, 1), 0);
}
CASE(mprotect_none_then_back_keeps_data) {
    char *p = anon(PG, RW);
    p[5] = 42;
    CHECK(mprotect(p, PG, PROT_NONE) == 0);
    CHECK_EQ(probe(p, 0), SIGSEGV);
    CHECK(mprotect(p, PG, PROT_READ) == 0);
    CHECK(p[5] == 42);
}
CASE(mprotect_errors) {
    char *p = anon(2 * PG, RW);
    CHECK_ERR(mprotect(p + 1, PG, PROT_READ), EINVAL);
    munmap(p + PG, PG);
    CHECK_ERR(mprotect(p, 2 * PG, PROT_READ), ENOMEM);
    CHECK_ERR(mprotect(p, PG, 0x100), EINVAL);
    CHECK(mprotect(p, 0, PROT_READ) == 0);
}
CASE(mprotect_shared_read_only_file_eacces) {
    scratch();
    close(mkfile("f", "hello"));
    int fd = open("f", O_RDONLY);
    char *p = mmap(NULL, PG, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(p != MAP_FAILED);
    CHECK_ERR(mprotect(p, PG, RW), EACCES);
}
CASE(exec_anonymous_code) {
    static const unsigned char code[] = {0xb8, 42, 0, 0, 0, 0xc3};
    char *p = anon(PG, RW);
    memcpy(p, code, sizeof code);
    CHECK(mprotect(p, PG, PROT_READ | PROT_EXEC) == 0);
    CHECK_EQ(((int (*)(void))(void *)p)(), 42);
}
CASE(exec_rwx_self_modifying) {
    unsigned char *p = (void *)anon(PG, RW | PROT_EXEC);
    for (int i = 0; i < 3; i++) {
        unsigned char code[] = {0xb8, i, 0, 0, 0, 0xc3};
        memcpy(p, code, sizeof code);
        CHECK_EQ(((int (*)(void))(void *)p)(), i);
    }
}
CASE(exec_syscall_in_anonymous_code) {
    static const unsigned char code[] = {0xb8, SYS_getpid, 0, 0, 0, 0x0f, 0x05, 0xc3};
    char *p = anon(PG, RW | PROT_EXEC);
    memcpy(p, code, sizeof code);
    for (int i = 0; i < 50; i++) CHECK_EQ(((int (*)(void))(void *)p)(), getpid());
}
CASE(exec_without_permission) {
    char *p = anon(PG, RW);
    p[0] = (char)0xc3;
    on_signal(SIGSEGV, on_fault, SA_NODEFER);
    int s = sigsetjmp(jb, 1);
    if (!s) ((void (*)(void))(void *)p)();
    CHECK_EQ(s, SIGSEGV);
    CHECK(sig_addr == p);
}
CASE(shared_anon_between_processes) {
    int *p = mmap(NULL, PG, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK_EQ(join(SPAWN({ *p = 99; })), 0);
    CHECK_EQ(*p, 99);
}
CASE(shared_anon_stays_shared_after_double_fork) {
    int *p = mmap(NULL, PG, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK_EQ(join(SPAWN({ CHECK_EQ(join(SPAWN({ __atomic_add_fetch(p, 5, 5); })), 0); __atomic_add_fetch(p, 1, 5); })), 0);
    CHECK_EQ(*p, 6);
}
CASE(private_after_fork_diverges) {
    int *p = (int *)anon(PG, RW);
    *p = 1;
    CHECK_EQ(join(SPAWN({ *p = 2; })), 0);
    CHECK_EQ(*p, 1);
}
CASE(file_private_copy) {
    scratch();
    int fd = mkfile("f", "hello");
    char *p = mmap(NULL, PG, RW, MAP_PRIVATE, fd, 0);
    p[0] = 'J';
    char b[6] = "";
    CHECK_EQ(pread(fd, b, 5, 0), 5);
    CHECK(!strcmp(b, "hello"));
    CHECK(!strcmp(p, "Jello"));
}
CASE(file_shared_write_visible_to_read) {
    scratch();
    int fd = mkfile("f", "hello");
    char *p = mmap(NULL, PG, RW, MAP_SHARED, fd, 0);
    CHECK(p != MAP_FAILED);
    p[0] = 'J';
    char b[6] = "";
    CHECK_EQ(pread(fd, b, 5, 0), 5);
    CHECK(!strcmp(b, "Jello"));
}
CASE(file_shared_write_call_visible_to_map) {
    scratch();
    int fd = mkfile("f", "hello");
    char *p = mmap(NULL, PG, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(p[0] == 'h');
    CHECK_EQ(pwrite(fd, "Y", 1, 0), 1);
    CHECK(p[0] == 'Y');
}
CASE(file_private_sees_write_until_touched) {
    scratch();
    int fd = mkfile("f", "hello");
    char *p = mmap(NULL, PG, RW, MAP_PRIVATE, fd, 0);
    CHECK(p[1] == 'e');
    CHECK_EQ(pwrite(fd, "Y", 1, 0), 1);
    CHECK(p[0] == 'Y');  // Linux: unmodified private pages follow the file
    p[1] = 'z';
    CHECK_EQ(pwrite(fd, "Q", 1, 0), 1);
    CHECK(p[0] == 'Y');
}
CASE(file_shared_two_processes) {
    scratch();
    int fd = mkfile("f", "hello");
    char *p = mmap(NULL, PG, RW, MAP_SHARED, fd, 0);
    pid_t c = SPAWN({
        int g = open("f", O_RDWR);
        char *q = mmap(NULL, PG, RW, MAP_SHARED, g, 0);
        q[4] = '!';
    });
    CHECK_EQ(join(c), 0);
    CHECK(p[4] == '!');
}
CASE(file_map_survives_close_and_unlink) {
    scratch();
    int fd = mkfile("f", "hello");
    char *p = mmap(NULL, PG, RW, MAP_SHARED, fd, 0);
    close(fd);
    unlink("f");
    p[0] = 'c';
    CHECK(!strcmp(p, "cello"));
}
CASE(file_tail_of_last_page_is_zero) {
    scratch();
    int fd = mkfile("f", "abc");
    char *p = mmap(NULL, PG, PROT_READ, MAP_SHARED, fd, 0);
    for (int i = 3; i < PG; i++) CHECK(p[i] == 0);
}
CASE(file_tail_write_not_in_file) {
    scratch();
    int fd = mkfile("f", "abc");
    char *p = mmap(NULL, PG, RW, MAP_SHARED, fd, 0);
    p[100] = 'x';
    struct stat st;
    CHECK(fstat(fd, &st) == 0);
    CHECK_EQ(st.st_size, 3);
}
CASE(sigbus_beyond_eof) {
    scratch();
    int fd = mkfile("f", "abc");
    char *p = mmap(NULL, 3 * PG, RW, MAP_SHARED, fd, 0);
    CHECK_EQ(probe(p, 0), 0);
    CHECK_EQ(probe(p + PG, 0), SIGBUS);
    CHECK_EQ(sig_code, BUS_ADRERR);
    CHECK(sig_addr == p + PG);
    char *q = mmap(NULL, 3 * PG, RW, MAP_PRIVATE, fd, 0);
    CHECK_EQ(probe(q + 2 * PG, 1), SIGBUS);
}
CASE(sigbus_after_truncate_and_growth_again) {
    scratch();
    int fd = mkfile("f", "");
    CHECK(ftruncate(fd, 2 * PG) == 0);
    char *p = mmap(NULL, 2 * PG, RW, MAP_SHARED, fd, 0);
    p[PG] = 7;
    CHECK(ftruncate(fd, PG) == 0);
    CHECK_EQ(probe(p + PG, 0), SIGBUS);
    CHECK(ftruncate(fd, 2 * PG) == 0);
    CHECK_EQ(probe(p + PG, 0), 0);
    CHECK(p[PG] == 0);
}
CASE(map_read_only_fd_shared_write) {
    scratch();
    close(mkfile("f", "x"));
    int fd = open("f", O_RDONLY);
    CHECK_ERR(mmap(NULL, PG, RW, MAP_SHARED, fd, 0), EACCES);
    CHECK(mmap(NULL, PG, RW, MAP_PRIVATE, fd, 0) != MAP_FAILED);
    int w = open("f", O_WRONLY);
    CHECK_ERR(mmap(NULL, PG, PROT_READ, MAP_SHARED, w, 0), EACCES);
}
CASE(map_directory_and_pipe) {
    int d = open("/", O_RDONLY), fd[2];
    CHECK_ERR(mmap(NULL, PG, PROT_READ, MAP_PRIVATE, d, 0), ENODEV);
    CHECK(pipe(fd) == 0);
    CHECK_ERR(mmap(NULL, PG, PROT_READ, MAP_PRIVATE, fd[0], 0), ENODEV);
}
CASE(map_image_file_matches_read) {
    int fd = open("/bin/sh", O_RDONLY);
    char b[PG];
    CHECK_EQ(pread(fd, b, PG, PG), PG);
    char *p = mmap(NULL, 2 * PG, PROT_READ, MAP_PRIVATE, fd, 0);
    CHECK(p != MAP_FAILED);
    CHECK(!memcmp(p + PG, b, PG));
}
CASE(map_dev_zero) {
    int fd = open("/dev/zero", O_RDWR);
    char *p = mmap(NULL, PG, RW, MAP_PRIVATE, fd, 0);
    CHECK(p != MAP_FAILED);
    CHECK(p[10] == 0);
    p[10] = 1;
}
CASE(read_into_mapping_of_same_file) {
    scratch();
    int fd = mkfile("f", "");
    CHECK(ftruncate(fd, 2 * PG) == 0);
    CHECK_EQ(pwrite(fd, "data", 4, PG), 4);
    char *p = mmap(NULL, 2 * PG, RW, MAP_SHARED, fd, 0);
    CHECK_EQ(pread(fd, p, 4, PG), 4);
    CHECK(!memcmp(p, "data", 4));
}
CASE(mremap_grow_in_place_or_move) {
    char *p = anon(PG, RW);
    p[1] = 9;
    char *q = mremap(p, PG, 16 * PG, MREMAP_MAYMOVE);
    CHECK(q != MAP_FAILED && q[1] == 9 && q[15 * PG] == 0);
    q[15 * PG] = 1;
}
CASE(mremap_no_room_without_maymove) {
    char *p = anon(2 * PG, RW);
    CHECK_ERR(mremap(p, PG, 2 * PG, 0), ENOMEM);
}
CASE(mremap_shrink) {
    char *p = anon(4 * PG, RW);
    CHECK(mremap(p, 4 * PG, PG, 0) == p);
    CHECK_EQ(probe(p + PG, 0), SIGSEGV);
}
CASE(mremap_fixed) {
    char *p = anon(PG, RW), *t = anon(4 * PG, RW);
    p[0] = 3;
    t[PG] = 8;
    CHECK(mremap(p, PG, PG, MREMAP_MAYMOVE | MREMAP_FIXED, t + PG) == t + PG);
    CHECK(t[PG] == 3);
    CHECK_EQ(probe(p, 0), SIGSEGV);
}
CASE(mremap_dontunmap) {
    char *p = anon(PG, RW);
    p[0] = 3;
    char *q = (char *)syscall(SYS_mremap, p, PG, PG, MREMAP_MAYMOVE | 4, 0);
    if (q == MAP_FAILED && errno == EINVAL) SKIP("no MREMAP_DONTUNMAP");
    CHECK(q != MAP_FAILED && q[0] == 3);
    CHECK(p[0] == 0);
}
CASE(mremap_errors) {
    char *p = anon(PG, RW);
    CHECK_ERR(mremap(p, PG, 0, 0), EINVAL);
    CHECK_ERR(mremap(p + 1, PG, PG, 0), EINVAL);
    munmap(p, PG);
    CHECK_ERR(mremap(p, PG, 2 * PG, MREMAP_MAYMOVE), EFAULT);
}
CASE(mremap_file_shared_keeps_contents) {
    scratch();
    int fd = mkfile("f", "hello");
    CHECK(ftruncate(fd, 8 * PG) == 0);
    char *p = mmap(NULL, PG, RW, MAP_SHARED, fd, 0);
    char *q = mremap(p, PG, 8 * PG, MREMAP_MAYMOVE);
    CHECK(q != MAP_FAILED && !strcmp(q, "hello"));
    q[7 * PG] = 'E';
    char c;
    CHECK(pread(fd, &c, 1, 7 * PG) == 1 && c == 'E');
}
CASE(brk_grow_shrink) {
    char *a = sbrk(0);
    CHECK(sbrk(10 * PG) == a);
    memset(a, 1, 10 * PG);
    CHECK(brk(a) == 0);
    CHECK(brk(a + PG) == 0);
    CHECK(a[0] == 0 || ((uintptr_t)a & 4095));  // given back, so fresh
}
CASE(brk_refused_returns_old) {
    char *a = (char *)syscall(SYS_brk, 0);
    CHECK((char *)syscall(SYS_brk, 1ul << 50) == a);
    CHECK((char *)syscall(SYS_brk, 4096) == a);
}
CASE(madvise_dontneed_zeroes_private) {
    char *p = anon(4 * PG, RW);
    memset(p, 5, 4 * PG);
    CHECK(madvise(p + PG, 2 * PG, MADV_DONTNEED) == 0);
    CHECK(p[0] == 5 && p[PG] == 0 && p[2 * PG] == 0 && p[3 * PG] == 5);
}
CASE(madvise_dontneed_file_rereads) {
    scratch();
    int fd = mkfile("f", "hello");
    char *p = mmap(NULL, PG, RW, MAP_PRIVATE, fd, 0);
    p[0] = 'J';
    CHECK(madvise(p, PG, MADV_DONTNEED) == 0);
    CHECK(p[0] == 'h');
}
CASE(madvise_free_and_hints) {
    char *p = anon(4 * PG, RW);
    CHECK(madvise(p, 4 * PG, MADV_FREE) == 0);
    CHECK(madvise(p, 4 * PG, MADV_WILLNEED) == 0);
    CHECK(madvise(p, 4 * PG, MADV_SEQUENTIAL) == 0);
    CHECK(madvise(p, 4 * PG, MADV_NORMAL) == 0);
}
CASE(madvise_errors) {
    char *p = anon(2 * PG, RW);
    CHECK_ERR(madvise(p + 1, PG, MADV_DONTNEED), EINVAL);
    CHECK_ERR(madvise(p, PG, 9999), EINVAL);
    munmap(p + PG, PG);
    CHECK_ERR(madvise(p, 2 * PG, MADV_DONTNEED), ENOMEM);
}
CASE(madvise_wipeonfork) {
    char *p = anon(PG, RW);
    p[0] = 1;
    if (madvise(p, PG, 18) < 0 && errno == EINVAL) SKIP("no MADV_WIPEONFORK");
    CHECK_EQ(join(SPAWN({ CHECK(p[0] == 0); })), 0);
    CHECK(p[0] == 1);
}
CASE(madvise_dontfork) {
    char *p = anon(PG, RW);
    CHECK(madvise(p, PG, MADV_DONTFORK) == 0);
    CHECK_EQ(join(SPAWN({ CHECK_EQ(probe(p, 0), SIGSEGV); })), 0);
}
CASE(mincore_reports) {
    char *p = anon(4 * PG, RW);
    unsigned char v[4];
    p[0] = 1;
    CHECK(mincore(p, 4 * PG, v) == 0);
    CHECK(v[0] & 1);
    munmap(p + PG, PG);
    CHECK_ERR(mincore(p, 4 * PG, v), ENOMEM);
    CHECK_ERR(mincore(p + 1, PG, v), EINVAL);
}
CASE(msync_and_mlock) {
    scratch();
    int fd = mkfile("f", "abc");
    char *p = mmap(NULL, PG, RW, MAP_SHARED, fd, 0);
    CHECK(msync(p, PG, MS_SYNC) == 0);
    CHECK_ERR(msync(p, PG, MS_SYNC | MS_ASYNC), EINVAL);
    CHECK_ERR(msync(p + 1, PG, MS_SYNC), EINVAL);
    CHECK(mlock(p, PG) == 0);
    CHECK(munlock(p, PG) == 0);
    munmap(p, PG);
    CHECK_ERR(msync(p, PG, MS_SYNC), ENOMEM);
}
CASE(guard_page_hit) {
    char *p = anon(2 * PG, RW);
    mprotect(p, PG, PROT_NONE);
    CHECK_EQ(probe(p + PG - 1, 1), SIGSEGV);
    CHECK_EQ(probe(p + PG, 1), 0);
}
static int deep(int n) {
    volatile char b[4000];
    b[0] = (char)n;
    return n ? deep(n - 1) + b[0] : b[0];
}
CASE(stack_grows_to_megabytes) { CHECK(deep(1000) != -1); }
CASE(stack_overflow_is_sigsegv) {
    CHECK_EQ(join(SPAWN({ deep(100000); })), 128 + SIGSEGV);
}
CASE(stack_overflow_on_altstack_is_handled) {
    static char alt[65536];
    stack_t ss = {.ss_sp = alt, .ss_size = sizeof alt};
    CHECK(sigaltstack(&ss, NULL) == 0);
    on_signal(SIGSEGV, on_fault, SA_ONSTACK);
    int s = sigsetjmp(jb, 1);
    if (!s) deep(100000);
    CHECK_EQ(s, SIGSEGV);
}
CASE(many_small_mappings) {
    char *p[2000];
    for (int i = 0; i < 2000; i++) {
        p[i] = anon(PG, i & 1 ? RW : PROT_READ);
        if (i & 1) p[i][0] = (char)i;
    }
    for (int i = 1; i < 2000; i += 2) CHECK(p[i][0] == (char)i);
    for (int i = 0; i < 2000; i++) CHECK(munmap(p[i], PG) == 0);
}
CASE(alternate_page_protections) {
    char *p = anon(512 * PG, RW);
    for (int i = 0; i < 512; i += 2) CHECK(mprotect(p + i * PG, PG, PROT_READ) == 0);
    CHECK_EQ(probe(p + 100 * PG, 1), SIGSEGV);
    CHECK_EQ(probe(p + 101 * PG, 1), 0);
    CHECK(mprotect(p, 512 * PG, RW) == 0);
    for (int i = 0; i < 512; i++) p[i * PG] = 1;
}
CASE(big_sparse_reservation) {
    char *p = mmap(NULL, 64ul << 30, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(p != MAP_FAILED);
    CHECK(mprotect(p + (10ul << 30), 1 << 20, RW) == 0);
    p[10ul << 30] = 1;
    CHECK(munmap(p, 64ul << 30) == 0);
}
CASE(rlimit_as_enforced) {
    CHECK_EQ(join(SPAWN({
        struct rlimit r = {1ul << 30, 1ul << 30};
        CHECK(setrlimit(RLIMIT_AS, &r) == 0);
        CHECK_ERR(mmap(NULL, 2ul << 30, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), ENOMEM);
        CHECK(mmap(NULL, 1 << 20, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
    })), 0);
}
CASE(memfd_shared) {
    int fd = memfd_create("m", MFD_CLOEXEC);
    CHECK(fd >= 0);
    CHECK(ftruncate(fd, PG) == 0);
    char *p = mmap(NULL, PG, RW, MAP_SHARED, fd, 0), *q = mmap(NULL, PG, RW, MAP_SHARED, fd, 0);
    p[3] = 'm';
    CHECK(q[3] == 'm');
    char c;
    CHECK(pread(fd, &c, 1, 3) == 1 && c == 'm');
}
CASE(memfd_seals) {
    int fd = memfd_create("m", MFD_ALLOW_SEALING);
    CHECK(fd >= 0 && ftruncate(fd, PG) == 0);
    CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) == 0);
    CHECK_ERR(ftruncate(fd, 0), EPERM);
    CHECK_ERR(write(fd, "x", 1), EPERM);
    CHECK_ERR(mmap(NULL, PG, RW, MAP_SHARED, fd, 0), EPERM);
    CHECK_EQ(fcntl(fd, F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
    int g = memfd_create("n", 0);
    CHECK_ERR(fcntl(g, F_ADD_SEALS, F_SEAL_WRITE), EPERM);
}
CASE(write_from_fault_range_partial) {
    char *p = anon(2 * PG, RW);
    munmap(p + PG, PG);
    int fd[2];
    CHECK(pipe(fd) == 0);
    CHECK_EQ(write(fd[1], p + PG - 10, 10), 10);
    CHECK_ERR(write(fd[1], p + PG, 10), EFAULT);
}
CASE(read_into_read_only_is_efault) {
    char *p = anon(PG, PROT_READ);
    int fd = open("/dev/zero", O_RDONLY);
    CHECK_ERR(read(fd, p, 10), EFAULT);
}
CASE(large_fill_256_mb) {
    size_t n = 256ul << 20;
    char *p = anon(n, RW);
    for (size_t i = 0; i < n; i += PG) p[i] = (char)(i >> 12);
    for (size_t i = 0; i < n; i += 16 * PG) CHECK(p[i] == (char)(i >> 12));
    CHECK(munmap(p, n) == 0);
}
CASE(membarrier_query) {
    long r = syscall(SYS_membarrier, 0, 0, 0);
    if (r < 0 && errno == ENOSYS) SKIP("no membarrier");
    CHECK(r >= 0);
}
