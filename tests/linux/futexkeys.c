// Futexes: which words are the same one, and what is asked of the memory they lie in (futex(2)).
#include "t.h"

#include <linux/futex.h>

static long fx(void *addr, int op, long val, const void *timeout, void *addr2, long val3) {
    return syscall(SYS_futex, addr, op, val, timeout, addr2, val3);
}

enum { SHARED = 0, PRIVATE = FUTEX_PRIVATE_FLAG };

struct waiter {
    uint32_t *word;
    int kind;
    long result;
    volatile int done;
};

static void *wait_for(void *arg) {
    struct waiter *w = arg;
    long r = fx(w->word, FUTEX_WAIT | w->kind, 0, NULL, NULL, 0);
    w->result = r;
    w->done = 1;
    return NULL;
}

// One waiter of each kind for a word; each is woken by its own kind of call alone.
static void kinds_do_not_meet(uint32_t *word) {
    struct waiter w[2] = {{word, SHARED, 0, 0}, {word, PRIVATE, 0, 0}};
    pthread_t t[2];
    for (int i = 0; i < 2; i++) CHECK(pthread_create(&t[i], NULL, wait_for, &w[i]) == 0);
    EVENTUALLY(fx(word, FUTEX_WAKE | PRIVATE, 100, NULL, NULL, 0) == 1);
    EVENTUALLY(w[1].done);
    CHECK(!w[0].done);
    CHECK_EQ(fx(word, FUTEX_WAKE | PRIVATE, 100, NULL, NULL, 0), 0);
    EVENTUALLY(fx(word, FUTEX_WAKE | SHARED, 100, NULL, NULL, 0) == 1);
    for (int i = 0; i < 2; i++) CHECK(pthread_join(t[i], NULL) == 0);
}

CASE(kinds_do_not_meet_in_private_memory) {
    static uint32_t word;
    kinds_do_not_meet(&word);
}

CASE(kinds_do_not_meet_in_shared_memory) {
    uint32_t *word = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(word != MAP_FAILED);
    kinds_do_not_meet(word);
}

CASE(shared_words_need_memory) {
    uint32_t w[2] = {0, 0};
    char *gone = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *read_only = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *none = noaccess();
    munmap(gone, 4096);
    char *bad[] = {gone, read_only, none, NULL};
    for (int i = 0; i < 4; i++) {
        CHECK_ERR(fx(bad[i], FUTEX_WAKE, 1, NULL, NULL, 0), EFAULT);
        CHECK_EQ(fx(bad[i], FUTEX_WAKE | PRIVATE, 1, NULL, NULL, 0), 0);
        CHECK_ERR(fx(bad[i], FUTEX_WAKE_BITSET, 1, NULL, NULL, 1), EFAULT);
        CHECK_ERR(fx(bad[i], FUTEX_REQUEUE, 1, (void *)1, w, 0), EFAULT);
        CHECK_ERR(fx(w, FUTEX_REQUEUE, 1, (void *)1, bad[i], 0), EFAULT);
        CHECK_ERR(fx(w, FUTEX_CMP_REQUEUE, 1, (void *)1, bad[i], 0), EFAULT);
        CHECK_EQ(fx(w, FUTEX_CMP_REQUEUE | PRIVATE, 1, (void *)1, bad[i], 0), 0);
        CHECK_ERR(fx(bad[i], FUTEX_WAKE_OP, 1, (void *)1, w, 0), EFAULT);
        CHECK_ERR(fx(w, FUTEX_WAKE_OP, 1, (void *)1, bad[i], 0), EFAULT);
        CHECK_ERR(fx(bad[i], FUTEX_WAIT, 0, NULL, NULL, 0), EFAULT);
        CHECK_ERR(fx(bad[i], FUTEX_LOCK_PI, 0, NULL, NULL, 0), EFAULT);
        if (i != 1) CHECK_ERR(fx(bad[i], FUTEX_UNLOCK_PI, 0, NULL, NULL, 0), EFAULT);
    }
}

CASE(read_only_shared_memory_will_do) {
    struct timespec soon = {0, 1};
    uint32_t *word = mmap(NULL, 4096, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(word != MAP_FAILED);
    CHECK_EQ(fx(word, FUTEX_WAKE, 1, NULL, NULL, 0), 0);
    CHECK_ERR(fx(word, FUTEX_WAIT, 0, &soon, NULL, 0), ETIMEDOUT);
    CHECK_ERR(fx(word, FUTEX_LOCK_PI, 0, NULL, NULL, 0), EFAULT);
}
