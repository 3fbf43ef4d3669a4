// Signals landing anywhere in system calls, patched ones too: 8 threads call, one thread sends them signals. Every
// handler must see an address of the program (no trampoline), and unwind from there to the thread's function.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

extern char __executable_start[], etext[];
static atomic_int stop, hits, in_call, strange, lost, wrong;

static void *work(void *arg);
static _Unwind_Reason_Code frame(struct _Unwind_Context *c, void *found) {
    if (_Unwind_FindEnclosingFunction((void *)(_Unwind_GetIP(c) - 1)) == (void *)work) *(int *)found = 1;
    return _URC_NO_REASON;
}

static void handler(int s, siginfo_t *i, void *context) {
    (void)s, (void)i;
    unsigned long pc = ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    hits++;
    if (pc < (unsigned long)__executable_start || pc >= (unsigned long)etext) {
        strange++;
        return;
    }
    if (!memcmp((char *)pc - 2, "\x0f\x05", 2)) in_call++;
    int found = 0;
    _Unwind_Backtrace(frame, &found);
    if (!found) lost++;
}

static void *work(void *arg) {
    int fd[2];
    pid_t parent = getppid(), me = syscall(SYS_gettid);
    if (pipe(fd)) abort();
    while (!stop) {
        char out = (char)(long)arg, in = 0;
        if (getppid() != parent || syscall(SYS_gettid) != me) wrong++;
        if (write(fd[1], &out, 1) != 1 || read(fd[0], &in, 1) != 1 || in != out) wrong++;
        if (read(-1, &in, 1) != -1 || lseek(fd[0], 0, SEEK_CUR) != -1) wrong++;
    }
    close(fd[0]);
    close(fd[1]);
    return 0;
}

int main(void) {
    struct sigaction sa = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(SIGUSR1, &sa, 0);
    pthread_t t[8];
    for (long i = 0; i < 8; i++) pthread_create(&t[i], 0, work, (void *)(i + 1));
    struct timespec now, end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += 3;
    usleep(50000);
    do {
        for (int i = 0; i < 8; i++) pthread_kill(t[i], SIGUSR1);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec < end.tv_sec);
    stop = 1;
    for (int i = 0; i < 8; i++) pthread_join(t[i], 0);
    fprintf(stderr, "signals %d, in calls %d, strange %d, lost %d, wrong %d\n", hits, in_call, strange, lost, wrong);
    if (hits < 100 || strange || wrong) return 1;
    // A signal before the thread's function starts, or after it ends, is not in it.
    if (lost > 64) return 2;
    puts("windows ok");
    return 0;
}
