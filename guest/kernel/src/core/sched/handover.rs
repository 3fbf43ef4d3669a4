//! Handing over: a thread that wakes another of its space and then waits leaves its vCPU to it, with no host call.
//!
//! To wake a sleeping vCPU for the other thread costs microseconds on both sides, and it comes too late: the waker's own
//! vCPU has taken the thread up by then. So a thread known to wait soon (`doppel_algo::park::Handover`) leaves the
//! sleeping ones alone. Should it go on this time, the next tick gives the other thread a vCPU.

use core::sync::atomic::Ordering;

use doppel_algo::park::Handover;

use super::runnable::{Entity, Runnable};
use crate::core::time;

impl<R: Runnable> Entity<R> {
    /// The current thread wakes another of its space: whether it is expected to wait soon.
    pub(super) fn hands_over(&self) -> bool {
        self.woke_at.store(time::monotonic_ns(), Ordering::Relaxed);
        Handover::from_raw(self.handover.load(Ordering::Relaxed)).is_expected()
    }

    /// The current thread leaves its vCPU: learns from when it last woke another.
    pub(super) fn learn_handover(&self, now: u64) {
        let woke = self.woke_at.load(Ordering::Relaxed);
        if woke != 0 {
            self.woke_at.store(0, Ordering::Relaxed);
            let record = Handover::from_raw(self.handover.load(Ordering::Relaxed));
            self.handover.store(record.after(now.saturating_sub(woke)).to_raw(), Ordering::Relaxed);
        }
    }
}
