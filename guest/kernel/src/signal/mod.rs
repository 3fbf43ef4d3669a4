//! Signals (`signal(7)`). Owned by the signal part; the types other parts use are here.

use alloc::sync::Arc;

use crate::Result;
use crate::task::{Process, Thread};

/// What a signal carries (`siginfo_t`).
#[derive(Clone, Copy, Debug)]
pub struct SigInfo {
    /// Signal number, 1 to 64.
    pub signo: i32,
    /// `si_code`.
    pub code: i32,
    /// `si_pid`, `si_uid` of the sender or the child.
    pub pid: i32,
    /// See [`Self::pid`].
    pub uid: u32,
    /// `si_status` (SIGCHLD), `si_int`/`si_ptr` (queued value), `si_addr` (faults), `si_band` (SIGIO).
    pub value: u64,
    /// Fault details for the frame: trap number, error code, cr2.
    pub trapno: u64,
    /// See [`Self::trapno`].
    pub err: u64,
}

/// `si_code` values.
#[allow(missing_docs)]
pub mod code {
    pub const SI_USER: i32 = 0;
    pub const SI_KERNEL: i32 = 0x80;
    pub const SI_QUEUE: i32 = -1;
    pub const SI_TIMER: i32 = -2;
    pub const SI_TKILL: i32 = -6;
    pub const CLD_EXITED: i32 = 1;
    pub const CLD_KILLED: i32 = 2;
    pub const CLD_DUMPED: i32 = 3;
    pub const CLD_TRAPPED: i32 = 4;
    pub const CLD_STOPPED: i32 = 5;
    pub const CLD_CONTINUED: i32 = 6;
}

/// Signal numbers.
#[allow(missing_docs)]
pub mod sig {
    pub const SIGHUP: i32 = 1;
    pub const SIGINT: i32 = 2;
    pub const SIGQUIT: i32 = 3;
    pub const SIGILL: i32 = 4;
    pub const SIGTRAP: i32 = 5;
    pub const SIGABRT: i32 = 6;
    pub const SIGBUS: i32 = 7;
    pub const SIGFPE: i32 = 8;
    pub const SIGKILL: i32 = 9;
    pub const SIGUSR1: i32 = 10;
    pub const SIGSEGV: i32 = 11;
    pub const SIGUSR2: i32 = 12;
    pub const SIGPIPE: i32 = 13;
    pub const SIGALRM: i32 = 14;
    pub const SIGTERM: i32 = 15;
    pub const SIGCHLD: i32 = 17;
    pub const SIGCONT: i32 = 18;
    pub const SIGSTOP: i32 = 19;
    pub const SIGTSTP: i32 = 20;
    pub const SIGTTIN: i32 = 21;
    pub const SIGTTOU: i32 = 22;
    pub const SIGURG: i32 = 23;
    pub const SIGXCPU: i32 = 24;
    pub const SIGXFSZ: i32 = 25;
    pub const SIGVTALRM: i32 = 26;
    pub const SIGPROF: i32 = 27;
    pub const SIGWINCH: i32 = 28;
    pub const SIGIO: i32 = 29;
    pub const SIGSYS: i32 = 31;
}

impl SigInfo {
    /// A signal the kernel itself sends (SI_KERNEL).
    pub fn kernel(signo: i32) -> Self {
        Self { signo, code: code::SI_KERNEL, pid: 0, uid: 0, value: 0, trapno: 0, err: 0 }
    }
}

/// Mask, pending signals and alternate stack of a thread.
#[derive(Default)]
pub struct ThreadSignals {}

/// Handlers and pending signals of a process.
#[derive(Default)]
pub struct ProcessSignals {}

impl ThreadSignals {
    /// For a thread made by clone: same mask, no pending signals, no alternate stack.
    #[must_use]
    pub fn fork(&self) -> Self {
        Self {}
    }

    /// A thread that shares memory with its maker has no alternate stack.
    pub fn clear_altstack(&self) {}
}

impl ProcessSignals {
    /// For a forked process: a copy of the handlers (the same table if `share`), nothing pending.
    #[must_use]
    pub fn fork(&self, _share: bool) -> Self {
        Self {}
    }

    /// Whether ended children are reaped at once (SIGCHLD ignored or SA_NOCLDWAIT).
    pub fn ignores_children(&self) -> bool {
        false
    }

    /// For wait4 WUNTRACED: the signal that stopped the process, reported once unless `peek`.
    pub fn take_stop_report(&self, _peek: bool) -> Option<i32> {
        None
    }

    /// For wait4 WCONTINUED: whether the process was continued, reported once unless `peek`.
    pub fn take_continue_report(&self, _peek: bool) -> bool {
        false
    }

    /// For exec: handlers that were set become default; ignored signals stay ignored.
    pub fn exec(&self) {}
}

/// Queues a signal to a process and wakes a thread that can take it.
pub fn send_process(_p: &Arc<Process>, _info: SigInfo) -> Result<()> {
    Ok(())
}

/// Queues a signal to one thread.
pub fn send_thread(_t: &Arc<Thread>, _info: SigInfo) -> Result<()> {
    Ok(())
}

/// SIGPIPE to the current thread.
pub fn send_sigpipe() {
    // A thread always exists to itself.
    let _ = send_thread(&crate::task::current(), SigInfo::kernel(sig::SIGPIPE));
}

/// Sends to every process of a process group; ESRCH if there is none.
pub fn send_group(_pgid: i32, _info: SigInfo) -> Result<()> {
    Ok(())
}

/// Whether the thread has a signal to act on (unblocked and not ignored), or must stop.
pub fn pending(_t: &Thread) -> bool {
    false
}

/// Forces a fault signal on the current thread: unblocked and with the default action if it was blocked or
/// ignored.
pub fn force(_t: &Arc<Thread>, _info: SigInfo) {}

/// Runs before every return to a program when work was posted: acts on pending signals (default actions,
/// stops, building handler frames in the registers and on the user stack) and finishes interrupted system
/// calls. `t` is the current thread.
pub fn deliver(_t: &Arc<Thread>) {}
