//! Accounts of CPU time, which cpu.rs keeps.

use core::sync::atomic::AtomicU64;

use doppel_machine::sync::SpinLock;

/// User and system time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// In the program.
    pub user: u64,
    /// In the guest kernel and, for it, in the host's.
    pub system: u64,
}

/// What one thread has used.
#[derive(Default)]
pub struct ThreadUse {
    /// Charged for. Only the vCPU that runs the thread writes it.
    pub(crate) charged: AtomicU64,
    /// Since when it runs (domain monotonic), 0 while it does not. As `charged`.
    pub(crate) since: AtomicU64,
    /// System time by timed calls. As `charged`.
    pub(crate) system: AtomicU64,
    /// The largest total told.
    pub(crate) total: AtomicU64,
    /// The parts as they were told last.
    pub(crate) shown: SpinLock<Times>,
}

/// What one process has used.
#[derive(Default)]
pub struct ProcessUse {
    /// Charged to threads that have ended, and in spaces it has left.
    pub(crate) dead: AtomicU64,
    /// System time of threads that have ended.
    pub(crate) dead_system: AtomicU64,
    /// The largest total told.
    pub(crate) total: AtomicU64,
    /// The parts as they were told last; for a zombie, what it has used.
    pub(crate) shown: SpinLock<Times>,
    /// Of reaped children.
    pub(crate) children: SpinLock<Times>,
}
