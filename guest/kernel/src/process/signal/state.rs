//! Signal state of threads and processes.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

use doppel_abi_linux::signal::{SIG_DFL, SIG_IGN};
use doppel_machine::sync::SpinLock;

use super::queue::Queue;
use super::{DEFAULT_IGNORE, SigSet, bit, sig};
use crate::core::sched::WaitQueue;

bitflags::bitflags! {
    /// `sa_flags` that Linux keeps; others are cleared, so that programs can probe for support.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(crate) struct ActionFlags: u64 {
        const NOCLDSTOP = 1;
        const NOCLDWAIT = 2;
        const SIGINFO = 4;
        const RESTORER = 0x0400_0000;
        const ONSTACK = 0x0800_0000;
        const RESTART = 0x1000_0000;
        const NODEFER = 0x4000_0000;
        const RESETHAND = 0x8000_0000;
    }
}

bitflags::bitflags! {
    /// `ss_flags` of `sigaltstack(2)`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct AltStackFlags: u32 {
        const ONSTACK = 1;
        const DISABLE = 2;
        const AUTODISARM = 1 << 31;
    }
}

/// What a program asked to happen at a signal (`struct sigaction`).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Action {
    pub(crate) handler: u64,
    pub(crate) flags: ActionFlags,
    pub(crate) restorer: u64,
    pub(crate) mask: SigSet,
}

impl Action {
    /// Whether the signal would be dropped with this action.
    pub(crate) fn ignores(&self, signo: i32) -> bool {
        self.handler == SIG_IGN || self.handler == SIG_DFL && DEFAULT_IGNORE & bit(signo) != 0
    }
}

/// The handler table; shared between processes by CLONE_SIGHAND.
pub(crate) struct Handlers {
    pub(crate) actions: SpinLock<[Action; 64]>,
}

impl Handlers {
    fn defaults() -> Arc<Self> {
        Arc::new(Self { actions: SpinLock::new([Action::default(); 64]) })
    }

    fn copy(&self) -> Arc<Self> {
        let copy = *self.actions.lock();
        Arc::new(Self { actions: SpinLock::new(copy) })
    }
}

/// An alternate signal stack (`sigaltstack(2)`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct AltStack {
    pub(crate) sp: u64,
    pub(crate) size: u64,
    /// DISABLE, AUTODISARM.
    pub(crate) flags: AltStackFlags,
}

impl AltStack {
    pub(crate) const NONE: Self = Self { sp: 0, size: 0, flags: AltStackFlags::DISABLE };

    /// Whether `sp` lies in the stack. An auto-disarmed stack never counts: it is disarmed while in use.
    pub(crate) fn contains(&self, sp: u64) -> bool {
        !self.flags.contains(AltStackFlags::AUTODISARM) && self.covers(sp)
    }

    /// Whether `sp` lies in the stack's memory.
    pub(crate) fn covers(&self, sp: u64) -> bool {
        self.size != 0 && sp > self.sp && sp - self.sp <= self.size
    }
}

/// What only the thread itself changes.
pub(crate) struct Private {
    pub(crate) altstack: AltStack,
    /// Details of the last fault, shown in frames: trap number, error code, cr2.
    pub(crate) fault: [u64; 3],
}

/// Mask, pending signals and alternate stack of a thread.
pub struct ThreadSignals {
    pub(crate) mask: AtomicU64,
    pub(crate) queue: SpinLock<Queue>,
    /// The set of `queue`, readable without its lock.
    pub(crate) pending: AtomicU64,
    /// Signals that were forced: they act even on pid 1. Changed by the thread itself only.
    pub(crate) forced: AtomicU64,
    /// The mask to go back to after sigsuspend, pselect, ppoll, if the flag is set. Changed by the thread only.
    saved_mask: AtomicU64,
    has_saved_mask: AtomicBool,
    pub(crate) private: SpinLock<Private>,
}

impl Default for ThreadSignals {
    fn default() -> Self {
        Self::with(0, AltStack::NONE)
    }
}

impl ThreadSignals {
    fn with(mask: SigSet, altstack: AltStack) -> Self {
        Self {
            mask: AtomicU64::new(mask),
            queue: SpinLock::default(),
            pending: AtomicU64::new(0),
            forced: AtomicU64::new(0),
            saved_mask: AtomicU64::new(0),
            has_saved_mask: AtomicBool::new(false),
            private: SpinLock::new(Private { altstack, fault: [0; 3] }),
        }
    }

    /// Keeps the mask to go back to; for the thread itself.
    pub(crate) fn save_mask(&self, mask: SigSet) {
        self.saved_mask.store(mask, Ordering::Relaxed);
        self.has_saved_mask.store(true, Ordering::Relaxed);
    }

    /// Takes what [`Self::save_mask`] kept; for the thread itself.
    pub(crate) fn take_saved_mask(&self) -> Option<SigSet> {
        if !self.has_saved_mask.load(Ordering::Relaxed) {
            return None;
        }
        self.has_saved_mask.store(false, Ordering::Relaxed);
        Some(self.saved_mask.load(Ordering::Relaxed))
    }

    /// Whether the signal `b` was forced, once.
    pub(crate) fn take_forced(&self, b: SigSet) -> bool {
        let forced = self.forced.load(Ordering::Relaxed);
        if forced & b != 0 {
            self.forced.store(forced & !b, Ordering::Relaxed);
        }
        forced & b != 0
    }

    /// For a new thread: same mask and alternate stack, no pending signals.
    #[must_use]
    pub fn fork(&self) -> Self {
        Self::with(self.mask(), self.private.lock().altstack)
    }

    /// A thread that shares memory with its maker has no alternate stack; nor has one after exec.
    pub fn clear_altstack(&self) {
        self.private.lock().altstack = AltStack::NONE;
    }

    /// The blocked signals.
    pub fn mask(&self) -> SigSet {
        self.mask.load(Ordering::Relaxed)
    }

    /// The pending signals of this thread alone.
    pub fn pending(&self) -> SigSet {
        self.pending.load(Ordering::SeqCst)
    }

    /// Changes the queue and keeps `pending` in step.
    pub(crate) fn with_queue<R>(&self, f: impl FnOnce(&mut Queue) -> R) -> R {
        let mut q = self.queue.lock();
        let r = f(&mut q);
        self.pending.store(q.set(), Ordering::SeqCst);
        r
    }
}

/// Group stop (job control) of a process.
#[derive(Default)]
pub(crate) struct StopState {
    /// The signal that stopped it, for wait4 with WUNTRACED; taken once.
    pub(crate) stop_report: Option<i32>,
    /// The signal of the last stop.
    pub(crate) signo: i32,
    /// It was continued and nobody has waited for that yet.
    pub(crate) continue_report: bool,
}

/// Handlers and pending signals of a process.
pub struct ProcessSignals {
    handlers: SpinLock<Arc<Handlers>>,
    queue: SpinLock<Queue>,
    pending: AtomicU64,
    /// Which thread was woken to take each pending signal, 0 if none could: others leave it alone. Changed with
    /// the process' thread list locked.
    takers: [AtomicI32; 64],
    pub(crate) stopped: AtomicBool,
    /// Also held while `stopped` changes.
    pub(crate) stop: SpinLock<StopState>,
    /// Number of SIGCONTs so far: a stop signal taken before one must not stop the process after it.
    pub(crate) continues: AtomicU64,
    /// Woken (POLLIN) at every new signal for the process or one of its threads: sigtimedwait, signalfd.
    pub wait: Arc<WaitQueue>,
}

impl Default for ProcessSignals {
    fn default() -> Self {
        Self::with(Handlers::defaults())
    }
}

impl ProcessSignals {
    fn with(handlers: Arc<Handlers>) -> Self {
        Self {
            handlers: SpinLock::new(handlers),
            queue: SpinLock::default(),
            pending: AtomicU64::new(0),
            takers: [const { AtomicI32::new(0) }; 64],
            stopped: AtomicBool::new(false),
            stop: SpinLock::default(),
            continues: AtomicU64::new(0),
            wait: Arc::default(),
        }
    }

    /// For a forked process: a copy of the handlers (the same table if `share`), nothing pending.
    #[must_use]
    pub fn fork(&self, share: bool) -> Self {
        let h = self.handlers();
        Self::with(if share { h } else { h.copy() })
    }

    /// Whether ended children are reaped at once (SIGCHLD ignored or SA_NOCLDWAIT).
    pub fn ignores_children(&self) -> bool {
        let a = self.action(sig::SIGCHLD);
        a.handler == SIG_IGN || a.flags.contains(ActionFlags::NOCLDWAIT)
    }

    /// For exec: handlers that were set become default; ignored signals stay ignored.
    pub fn exec(&self) {
        let own = self.handlers().copy();
        for a in own.actions.lock().iter_mut() {
            let handler = if a.handler == SIG_IGN { SIG_IGN } else { SIG_DFL };
            *a = Action { handler, ..Action::default() };
        }
        *self.handlers.lock() = own;
    }

    /// From now on ended children are reaped at once.
    pub fn ignore_children(&self) {
        let own = self.handlers().copy();
        own.actions.lock()[sig::SIGCHLD as usize - 1].handler = SIG_IGN;
        *self.handlers.lock() = own;
    }

    /// Whether another process has the same handlers (CLONE_SIGHAND).
    pub fn are_shared(&self) -> bool {
        Arc::strong_count(&self.handlers.lock()) > 1
    }

    pub(crate) fn handlers(&self) -> Arc<Handlers> {
        self.handlers.lock().clone()
    }

    /// The action for a signal.
    pub(crate) fn action(&self, signo: i32) -> Action {
        self.handlers.lock().actions.lock()[signo as usize - 1]
    }

    /// Whether the signal would be dropped by the action now set.
    pub fn would_ignore(&self, signo: i32) -> bool {
        self.action(signo).ignores(signo)
    }

    /// The process-directed pending signals.
    pub fn pending(&self) -> SigSet {
        self.pending.load(Ordering::SeqCst)
    }

    /// The sets of ignored and caught signals (/proc/PID/status).
    pub fn ignored_and_caught(&self) -> (SigSet, SigSet) {
        let h = self.handlers();
        let (mut ignored, mut caught) = (0, 0);
        for (i, a) in h.actions.lock().iter().enumerate() {
            match a.handler {
                SIG_DFL => {}
                SIG_IGN => ignored |= 1 << i,
                _ => caught |= 1 << i,
            }
        }
        (ignored, caught)
    }

    /// Whether the process is stopped (job control).
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// The signal that stopped the process, while it is stopped.
    pub fn stop_signal(&self) -> Option<i32> {
        let s = self.stop.lock();
        self.is_stopped().then_some(s.signo)
    }

    /// For wait4 with WUNTRACED: the signal that stopped the process, once (unless `peek`: WNOWAIT).
    pub fn take_stop_report(&self, peek: bool) -> Option<i32> {
        let mut s = self.stop.lock();
        if peek { s.stop_report } else { s.stop_report.take() }
    }

    /// For wait4 with WCONTINUED: whether the process was continued, once (unless `peek`: WNOWAIT).
    pub fn take_continue_report(&self, peek: bool) -> bool {
        let mut s = self.stop.lock();
        let r = s.continue_report;
        s.continue_report &= peek;
        r
    }

    /// Has the signals of a set taken by one thread, or by any if it is 0.
    pub(super) fn assign(&self, signo: i32, tid: i32) {
        self.takers[signo as usize - 1].store(tid, Ordering::SeqCst);
    }

    /// Pending signals of a set that are a thread's to take.
    pub(super) fn pending_for(&self, tid: i32, set: SigSet) -> SigSet {
        let mut left = self.pending() & set;
        let mut mine = 0;
        while left != 0 {
            let taker = self.takers[left.trailing_zeros() as usize].load(Ordering::SeqCst);
            if taker == 0 || taker == tid {
                mine |= left & left.wrapping_neg();
            }
            left &= left - 1;
        }
        mine
    }

    /// Changes the shared queue and keeps `pending` in step.
    pub(crate) fn with_queue<R>(&self, f: impl FnOnce(&mut Queue) -> R) -> R {
        let mut q = self.queue.lock();
        let r = f(&mut q);
        self.pending.store(q.set(), Ordering::SeqCst);
        r
    }
}
