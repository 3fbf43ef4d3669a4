// Core files (core(5)): when one is left, what is in it, and how limits, filters and dumpability decide.
#include "t.h"
#include <elf.h>
#include <sys/prctl.h>
#include <sys/procfs.h>
#include <sys/resource.h>
#include <sys/user.h>

enum { PG = 4096 };
static char marker[] = "a marker in the data segment: 0";

// Whether core files are left in the working directory; a host may have them go elsewhere.
static bool plain(void) {
    return !strcmp(slurp("/proc/sys/kernel/core_pattern"), "core\n") && !strcmp(slurp("/proc/sys/kernel/core_uses_pid"), "0\n");
}
#define NEEDS_PLAIN() do { if (!plain()) t_end(0, "ok %s", t_name); } while (0)

static void allow(rlim_t n) {
    struct rlimit r = {n, n};
    CHECK(setrlimit(RLIMIT_CORE, &r) == 0);
}
static int status_of(pid_t p) {
    int st;
    CHECK_EQ(waitpid(p, &st, 0), p);
    return st;
}
// The core file in memory.
static char *core;
static size_t core_size;
static void load(void) {
    int fd = CHECK_OK(open("core", O_RDONLY));
    struct stat st;
    CHECK(fstat(fd, &st) == 0 && S_ISREG(st.st_mode));
    CHECK_EQ(st.st_mode & 0777, 0600);
    core_size = st.st_size;
    CHECK(core_size >= PG);
    core = mmap(NULL, core_size, PROT_READ, MAP_PRIVATE, fd, 0);
    CHECK(core != MAP_FAILED);
    Elf64_Ehdr *h = (void *)core;
    CHECK(!memcmp(h->e_ident, ELFMAG, SELFMAG) && h->e_type == ET_CORE && h->e_machine == EM_X86_64);
    CHECK_EQ(h->e_phentsize, sizeof(Elf64_Phdr));
}
static Elf64_Phdr *headers(int *n) {
    Elf64_Ehdr *h = (void *)core;
    *n = h->e_phnum;
    return (void *)(core + h->e_phoff);
}
// The nth note of a type; NULL if there are fewer.
static char *note(unsigned type, int nth, size_t *len) {
    int n;
    Elf64_Phdr *p = headers(&n);
    CHECK(p[0].p_type == PT_NOTE);
    char *at = core + p[0].p_offset, *end = at + p[0].p_filesz;
    while (at < end) {
        Elf64_Nhdr *h = (void *)at;
        char *desc = at + sizeof *h + ((h->n_namesz + 3) & ~3u);
        if (h->n_type == type && nth-- == 0) {
            if (len) *len = h->n_descsz;
            return desc;
        }
        at = desc + ((h->n_descsz + 3) & ~3u);
    }
    return NULL;
}
// The segment of an address.
static Elf64_Phdr *segment(const void *addr) {
    int n;
    Elf64_Phdr *p = headers(&n);
    for (int i = 1; i < n; i++)
        if ((uintptr_t)addr - p[i].p_vaddr < p[i].p_memsz) return &p[i];
    return NULL;
}
// What the core file shows at an address; NULL if it has nothing there.
static char *shown(const void *addr) {
    Elf64_Phdr *p = segment(addr);
    if (!p || (uintptr_t)addr - p->p_vaddr >= p->p_filesz) return NULL;
    return core + p->p_offset + ((uintptr_t)addr - p->p_vaddr);
}

static void *idler(void *a) {
    for (;;) pause();
    return a;
}

CASE(abort_leaves_a_core_with_all_threads) {
    NEEDS_PLAIN();
    scratch();
    int ready[2];
    CHECK(pipe(ready) == 0);
    pid_t p = SPAWN({
        allow(RLIM_INFINITY);
        marker[sizeof marker - 2] = '7';
        prctl(PR_SET_NAME, "dumped (one)");
        pthread_t t[3];
        for (int i = 0; i < 3; i++) pthread_create(&t[i], NULL, idler, NULL);
        msleep(1);
        abort();
    });
    int st = status_of(p);
    CHECK(WIFSIGNALED(st) && WTERMSIG(st) == SIGABRT && WCOREDUMP(st));
    load();
    size_t len;
    for (int i = 0; i < 4; i++) {
        struct elf_prstatus *s = (void *)note(NT_PRSTATUS, i, &len);
        CHECK(s != NULL);
        CHECK_EQ(len, sizeof *s);
        CHECK(i != 0 || s->pr_pid == p);
        CHECK(s->pr_ppid == getpid() && s->pr_cursig == SIGABRT && s->pr_fpvalid);
        struct user_regs_struct *r = (void *)&s->pr_reg;
        CHECK(r->cs == 0x33 && r->fs_base != 0);
        // The stack it stood on is there, and the text it stood in is mapped.
        CHECK(shown((void *)r->rsp) != NULL && segment((void *)r->rip) != NULL);
        CHECK(note(NT_PRFPREG, i, &len) && len == 512);
        CHECK(note(NT_X86_XSTATE, i, &len) && len >= 576);
    }
    CHECK(!note(NT_PRSTATUS, 4, NULL));
    struct elf_prpsinfo *info = (void *)note(NT_PRPSINFO, 0, &len);
    CHECK(info && len == sizeof *info);
    CHECK(info->pr_pid == p && info->pr_ppid == getpid() && !strcmp(info->pr_fname, "dumped (one)"));
    siginfo_t *si = (void *)note(NT_SIGINFO, 0, &len);
    CHECK(si && si->si_signo == SIGABRT && si->si_pid == p);
    CHECK(!strcmp(shown(marker), "a marker in the data segment: 7"));
}

CASE(notes_tell_files_and_auxiliary_vector) {
    NEEDS_PLAIN();
    scratch();
    pid_t p = SPAWN({ allow(RLIM_INFINITY); *(volatile int *)0 = 0; });
    int st = status_of(p);
    CHECK(WIFSIGNALED(st) && WTERMSIG(st) == SIGSEGV && WCOREDUMP(st));
    load();
    size_t len;
    Elf64_auxv_t *a = (void *)note(NT_AUXV, 0, &len);
    CHECK(a != NULL);
    uint64_t entry = 0;
    for (; a->a_type != AT_NULL; a++) if (a->a_type == AT_ENTRY) entry = a->a_un.a_val;
    CHECK(segment((void *)entry) != NULL);
    uint64_t *f = (void *)note(NT_FILE, 0, &len);
    CHECK(f && f[0] > 1 && f[1] == PG);
    char *name = (char *)(f + 2 + 3 * f[0]);
    bool self = false;
    for (uint64_t i = 0; i < f[0]; i++, name += strlen(name) + 1)
        self |= !strcmp(name, t_self) && entry - f[2 + 3 * i] < f[3 + 3 * i] - f[2 + 3 * i];
    CHECK(self);
    siginfo_t *si = (void *)note(NT_SIGINFO, 0, &len);
    CHECK(si && si->si_signo == SIGSEGV && si->si_addr == NULL);
}

CASE(no_core_without_a_limit) {
    scratch();
    int st = status_of(SPAWN({ allow(0); abort(); }));
    CHECK(WIFSIGNALED(st) && !WCOREDUMP(st));
    CHECK_ERR(access("core", F_OK), ENOENT);
}

CASE(the_limit_bounds_the_file) {
    NEEDS_PLAIN();
    scratch();
    int st = status_of(SPAWN({ allow(5 * PG); abort(); }));
    CHECK(WIFSIGNALED(st) && WCOREDUMP(st));
    struct stat f;
    CHECK(stat("core", &f) == 0);
    CHECK(f.st_size > 0 && f.st_blocks * 512 <= 5 * PG);
    // Less than a page is nothing.
    unlink("core");
    st = status_of(SPAWN({ allow(PG - 1); abort(); }));
    CHECK(WIFSIGNALED(st) && !WCOREDUMP(st));
    CHECK_ERR(access("core", F_OK), ENOENT);
}

CASE(no_core_of_what_is_not_dumpable) {
    scratch();
    int st = status_of(SPAWN({ allow(RLIM_INFINITY); prctl(PR_SET_DUMPABLE, 0); abort(); }));
    CHECK(WIFSIGNALED(st) && !WCOREDUMP(st));
    st = status_of(SPAWN({ allow(RLIM_INFINITY); t_drop_root(); abort(); }));
    CHECK(WIFSIGNALED(st));
    CHECK(getuid() != 0 || !WCOREDUMP(st));
    CHECK_ERR(access("core", F_OK), ENOENT);
}

CASE(no_core_for_other_signals) {
    scratch();
    for (int i = 0; i < 4; i++) {
        int sig = (int[]){SIGKILL, SIGTERM, SIGALRM, SIGUSR1}[i];
        int st = status_of(SPAWN({ allow(RLIM_INFINITY); kill(getpid(), sig); pause(); }));
        CHECK(WIFSIGNALED(st) && WTERMSIG(st) == sig && !WCOREDUMP(st));
    }
    CHECK_ERR(access("core", F_OK), ENOENT);
}

CASE(every_core_signal_leaves_one) {
    NEEDS_PLAIN();
    scratch();
    int all[] = {SIGQUIT, SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGXCPU, SIGXFSZ, SIGSYS};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
        unlink("core");
        int st = status_of(SPAWN({ allow(8 * PG); kill(getpid(), all[i]); pause(); }));
        CHECK(WIFSIGNALED(st) && WTERMSIG(st) == all[i] && WCOREDUMP(st));
        CHECK(access("core", F_OK) == 0);
    }
}

CASE(the_parent_hears_of_the_dump) {
    NEEDS_PLAIN();
    scratch();
    pid_t p = SPAWN({ allow(8 * PG); abort(); });
    siginfo_t si;
    CHECK(waitid(P_PID, p, &si, WEXITED) == 0);
    CHECK_EQ(si.si_code, CLD_DUMPED);
    CHECK_EQ(si.si_status, SIGABRT);
}

CASE(an_old_core_is_replaced_and_links_are_not_followed) {
    NEEDS_PLAIN();
    scratch();
    close(mkfile("elsewhere", "kept"));
    CHECK(symlink("elsewhere", "core") == 0);
    int st = status_of(SPAWN({ allow(8 * PG); abort(); }));
    CHECK(WCOREDUMP(st));
    CHECK(!strcmp(slurp("elsewhere"), "kept"));
    load();
    unlink("core");
    // A directory of that name stays.
    CHECK(mkdir("core", 0700) == 0);
    st = status_of(SPAWN({ allow(8 * PG); abort(); }));
    CHECK(WIFSIGNALED(st) && !WCOREDUMP(st));
}

static void filter(const char *text) {
    int fd = CHECK_OK(open("/proc/self/coredump_filter", O_WRONLY));
    CHECK_EQ(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

CASE(the_filter_chooses_the_memory) {
    NEEDS_PLAIN();
    scratch();
    char *own = mmap(NULL, 4 * PG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *out = mmap(NULL, 4 * PG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *shared = mmap(NULL, PG, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    close(mkfile("data", "of a file"));
    int fd = CHECK_OK(open("data", O_RDWR));
    char *file = mmap(NULL, PG, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    char *private_file = mmap(NULL, PG, PROT_READ, MAP_PRIVATE, fd, 0);
    CHECK(own != MAP_FAILED && out != MAP_FAILED && shared != MAP_FAILED && file != MAP_FAILED && private_file != MAP_FAILED);
    strcpy(own, "own"), strcpy(own + PG, "own, then hidden"), strcpy(out, "left out"), strcpy(shared, "shared");
    CHECK(madvise(out, 4 * PG, MADV_DONTDUMP) == 0 && mprotect(own + PG, PG, PROT_NONE) == 0);
    CHECK(private_file[0] == 'o');
    const char *kinds[] = {"0x33", "0x1", "0x2", "0x8", "0x4", "0"};
    for (int i = 0; i < 6; i++) {
        unlink("core");
        int st = status_of(SPAWN({ allow(RLIM_INFINITY); filter(kinds[i]); abort(); }));
        CHECK(WCOREDUMP(st));
        load();
        unsigned bits = strtoul(kinds[i], NULL, 0);
        CHECK(!shown(out) && segment(out)->p_memsz >= 4 * PG);
        CHECK(bits & 1 ? shown(own) && !strcmp(shown(own), "own") : !shown(own));
        CHECK(bits & 1 ? shown(own + PG) && !strcmp(shown(own + PG), "own, then hidden") : !shown(own + PG));
        CHECK(bits & 2 ? shown(shared) && !strcmp(shown(shared), "shared") : !shown(shared));
        CHECK(bits & 4 ? shown(private_file) && !strcmp(shown(private_file), "of a file") : !shown(private_file));
        CHECK(bits & 8 ? shown(file) && !strcmp(shown(file), "of a file") : !shown(file));
        munmap(core, core_size);
    }
}

CASE(the_filter_is_inherited) {
    filter("0x7");
    CHECK_EQ(join(SPAWN(CHECK(!strcmp(slurp("/proc/self/coredump_filter"), "00000007\n")))), 0);
    int p[2];
    CHECK(pipe(p) == 0);
    pid_t c = SPAWN({ dup2(p[1], 1); execl("/bin/cat", "cat", "/proc/self/coredump_filter", NULL); _exit(9); });
    close(p[1]);
    char line[32] = "";
    CHECK(read(p[0], line, sizeof line - 1) > 0);
    CHECK(!strcmp(line, "00000007\n"));
    CHECK_EQ(join(c), 0);
}

CASE(a_thread_in_a_call_is_dumped_where_it_waits) {
    NEEDS_PLAIN();
    scratch();
    int st = status_of(SPAWN({
        allow(RLIM_INFINITY);
        pthread_t t;
        pthread_create(&t, NULL, idler, NULL);
        msleep(1);
        kill(getpid(), SIGQUIT);
        pause();
    }));
    CHECK(WCOREDUMP(st));
    load();
    int calls = 0;
    for (int i = 0; i < 2; i++) {
        struct elf_prstatus *s = (void *)note(NT_PRSTATUS, i, NULL);
        CHECK(s != NULL);
        calls += ((struct user_regs_struct *)&s->pr_reg)->orig_rax == SYS_pause;
    }
    CHECK(calls >= 1);
}
