// Memory policy, by number: what is said of one node, and what is refused.
#include "t.h"

enum { MOVE = 2, MOVE_ALL = 4 };
static void need(long number) {
    if (syscall(number, 0, 0, NULL, NULL, NULL, 0) < 0 && errno == ENOSYS) SKIP("the kernel has no memory policy");
}
CASE(move_pages_tells_where_pages_are) {
    need(SYS_move_pages);
    char *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    p[0] = 1, p[4096] = 1;
    void *pages[3] = {p, p + 4096, noaccess()};
    int status[3] = {77, 77, 77}, nodes[3] = {0, 0, 0};
    CHECK(munmap(pages[2] = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096) == 0);
    CHECK_EQ(syscall(SYS_move_pages, 0, 3, pages, NULL, status, 0), 0);
    CHECK(status[0] == 0 && status[1] == 0 && status[2] == -EFAULT);
    status[0] = status[1] = 77;
    CHECK_EQ(syscall(SYS_move_pages, getpid(), 2, pages, nodes, status, MOVE), 0);
    CHECK(status[0] == 0 && status[1] == 0);
    nodes[0] = 900;
    CHECK_ERR(syscall(SYS_move_pages, 0, 2, pages, nodes, status, MOVE), ENODEV);
    CHECK_ERR(syscall(SYS_move_pages, 0, 1, pages, NULL, status, 1), EINVAL);
    CHECK_ERR(syscall(SYS_move_pages, 0, 1, pages, NULL, status, 8), EINVAL);
    CHECK_ERR(syscall(SYS_move_pages, 0x3ffffff, 1, pages, NULL, status, 0), ESRCH);
    CHECK_ERR(syscall(SYS_move_pages, 0, 1, noaccess(), NULL, status, 0), EFAULT);
    CHECK_ERR(syscall(SYS_move_pages, 0, 1, pages, NULL, noaccess(), 0), EFAULT);
    CHECK_EQ(syscall(SYS_move_pages, 0, 0, NULL, NULL, NULL, 0), 0);
    CHECK_EQ(syscall(SYS_move_pages, 0, 2, pages, NULL, status, MOVE_ALL), 0);
    CHECK_OK(setuid(1000));
    CHECK_ERR(syscall(SYS_move_pages, 0, 2, pages, NULL, status, MOVE_ALL), EPERM);
    CHECK_ERR(syscall(SYS_move_pages, 1, 1, pages, NULL, status, 0), EPERM);
}
CASE(migrate_pages_goes_nowhere) {
    need(SYS_migrate_pages);
    unsigned long none = 0, first = 1;
    CHECK_EQ(syscall(SYS_migrate_pages, 0, 64, &first, &first), 0);
    CHECK_EQ(syscall(SYS_migrate_pages, getpid(), 64, &none, &first), 0);
    CHECK_ERR(syscall(SYS_migrate_pages, 0, 64, &first, &none), EINVAL);
    CHECK_ERR(syscall(SYS_migrate_pages, 0, 64, &first, NULL), EINVAL);
    CHECK_ERR(syscall(SYS_migrate_pages, 0, 64, noaccess(), &first), EFAULT);
    CHECK_ERR(syscall(SYS_migrate_pages, 0, 1L << 40, &first, &first), EINVAL);
    CHECK_ERR(syscall(SYS_migrate_pages, 0x3ffffff, 64, &first, &first), ESRCH);
    CHECK_OK(setuid(1000));
    CHECK_ERR(syscall(SYS_migrate_pages, 1, 64, &first, &first), EPERM);
}
CASE(mbind_flags) {
    need(SYS_move_pages);
    char *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK_EQ(syscall(SYS_mbind, p, 8192L, 0, NULL, 0L, 0), 0);
    CHECK_EQ(syscall(SYS_mbind, p, 8192L, 0, NULL, 0L, MOVE_ALL), 0);
    CHECK_ERR(syscall(SYS_mbind, p, 8192L, 0, NULL, 0L, 1L << 10), EINVAL);
    CHECK_OK(setuid(1000));
    CHECK_ERR(syscall(SYS_mbind, p, 8192L, 0, NULL, 0L, MOVE_ALL), EPERM);
}
CASE(home_node_needs_a_policy) {
    char *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (syscall(450, p, 0L, 0L, 0L) < 0 && errno == ENOSYS) SKIP("the kernel has no set_mempolicy_home_node");
    CHECK_EQ(syscall(450, p, 0L, 0L, 0L), 0);
    CHECK_ERR(syscall(450, p, 8192L, 0L, 0L), ENOENT);
    CHECK_ERR(syscall(450, p + 1, 8192L, 0L, 0L), EINVAL);
    CHECK_ERR(syscall(450, p, 8192L, 900L, 0L), EINVAL);
    CHECK_ERR(syscall(450, p, 8192L, 0L, 1L), EINVAL);
}
