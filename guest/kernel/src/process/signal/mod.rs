//! Signals (`signal(7)`).
//!
//! Key types: [`SigInfo`] (what a signal carries), [`ThreadSignals`] and [`ProcessSignals`] (mask, handlers,
//! pending signals). send.rs queues signals and wakes a thread; deliver.rs acts on them when a thread returns
//! to its program; frame.rs builds and undoes handler frames; stop.rs is job control; calls.rs and kill.rs are
//! the system calls.
//! Lock order: a process' thread list → handler table; handler table, shared queue, thread queues and stop
//! state are leaves, never held together.

mod deliver;
pub(crate) mod frame;
pub(crate) mod kill;
pub mod mask;
pub(crate) mod owner;
mod queue;
pub(crate) mod send;
pub(crate) mod state;
mod stop;

pub use crate::core::siginfo::SigInfo;
pub use deliver::deliver;
pub use doppel_abi_linux::signal::{code, sig};
pub use kill::may_signal;
pub use send::{force, pending, send_group, send_process, send_sigpipe, send_thread, terminate};
pub use state::{ProcessSignals, ThreadSignals};
pub use stop::{notify_parent, orphan_check, pgrp_orphaned};

pub use crate::process::signal::mask::{read_sigset, restore_temporary_mask, set_temporary_mask};
pub use send::{blocked_or_ignored, dequeue, retarget, set_mask};

/// A set of signals: bit n-1 for signal n.
pub type SigSet = u64;

/// The set with one signal.
pub const fn bit(signo: i32) -> SigSet {
    1 << (signo - 1)
}

/// Signals that can be neither blocked, caught nor ignored.
pub const UNBLOCKABLE: SigSet = bit(sig::SIGKILL) | bit(sig::SIGSTOP);
/// Signals whose default action is to do nothing (SIGCONT continues when it is sent).
pub const DEFAULT_IGNORE: SigSet =
    bit(sig::SIGCHLD) | bit(sig::SIGCONT) | bit(sig::SIGURG) | bit(sig::SIGWINCH);
/// Signals whose default action is to stop the process.
pub const DEFAULT_STOP: SigSet =
    bit(sig::SIGSTOP) | bit(sig::SIGTSTP) | bit(sig::SIGTTIN) | bit(sig::SIGTTOU);
/// Signals a fault raises; they are taken before all others.
pub const SYNCHRONOUS: SigSet = bit(sig::SIGSEGV)
    | bit(sig::SIGBUS)
    | bit(sig::SIGILL)
    | bit(sig::SIGTRAP)
    | bit(sig::SIGFPE)
    | bit(sig::SIGSYS);
