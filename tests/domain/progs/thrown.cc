// Exceptions thrown by a signal handler through the frame of a system call: the unwinder must get from the handler
// through the signal frame and the (patched) call to the function that made it. backtrace() takes the same way.
#include <cstdio>
#include <cstdlib>
#include <execinfo.h>
#include <signal.h>
#include <sys/types.h>
#include <unistd.h>
#include <unwind.h>

static int depth, found;
struct Caught { int number; };
struct Local { ~Local() { depth--; } Local() { depth++; } };

extern "C" void call_it(int signo);
static _Unwind_Reason_Code frame(struct _Unwind_Context *c, void *) {
    if (_Unwind_FindEnclosingFunction(reinterpret_cast<void *>(_Unwind_GetIP(c) - 1)) == reinterpret_cast<void *>(call_it)) found++;
    return _URC_NO_REASON;
}

static void handler(int s, siginfo_t *, void *) {
    void *pcs[64];
    if (backtrace(pcs, 64) < 4) abort();
    _Unwind_Backtrace(frame, nullptr);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, s);
    sigprocmask(SIG_UNBLOCK, &set, nullptr);
    Local there;
    throw Caught{s};
}

// The headers say that kill() throws nothing.
extern "C" int kill_may_throw(pid_t pid, int signo) __asm__("kill");

extern "C" __attribute__((noinline)) void call_it(int signo) {
    Local here;
    if (kill_may_throw(getpid(), signo)) abort();
    puts("not thrown");
}

int main() {
    struct sigaction sa = {};
    sa.sa_sigaction = handler;
    sa.sa_flags = SA_SIGINFO;
    sigaction(SIGUSR1, &sa, nullptr);
    int caught = 0;
    for (int i = 0; i < 1000; i++) {
        try {
            Local outer;
            call_it(SIGUSR1);
        } catch (const Caught &c) {
            if (c.number == SIGUSR1 && depth == 0) caught++;
        }
    }
    if (caught != 1000 || found != 1000) return printf("caught %d, found %d\n", caught, found), 1;
    puts("thrown ok");
    return 0;
}
