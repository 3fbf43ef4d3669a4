//! Giving free kernel memory back to the host, some time after much of it has become free.
//!
//! The arena says when it pays (`doppel_machine::arena::trim_wanted`) and PID 1 does it, a while later: what a busy
//! domain frees it mostly needs again. A domain that makes many processes keeps its huge pages until it rests.
//! Before a freeze, [`before_freeze`] and [`when_still`] give back what a frozen image need not hold.

use crate::process::task::TASKS;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};

use doppel_machine::arena::{self, Huge};
use doppel_machine::cpu;

use crate::core::part::Part;
use crate::core::time;
use crate::core::time::Expire;
use crate::kernel;
use crate::objects::vfs;

/// How long after it was found that it pays.
const AFTER_NS: u64 = 1_000_000_000;
/// How often a domain that makes processes all the time puts it off.
const PUT_OFF_MAX: u32 = 30;

/// Whether a [`Trim`] is armed.
#[derive(Default)]
pub struct TrimTimer(AtomicBool);

/// The domain's.
pub static TRIM_TIMER: Part<TrimTimer> = Part::new();

impl TrimTimer {
    /// Arms the timer if there is something to give back. Runs on PID 1.
    pub fn look(&self) {
        if arena::trim_wanted() || arena::is_gathered() {
            self.arm();
        }
    }

    /// Arms the timer: for a domain that has just started, since starting leaves something behind.
    pub fn arm(&self) {
        if !self.0.swap(true, Ordering::Relaxed) {
            Trim::arm(0);
        }
    }
}

/// Trims the arena when its time has come.
struct Trim {
    /// [`Tasks::forks`](crate::process::task::table::Tasks::forks) when it was armed.
    forks: i32,
    put_off: u32,
}

impl Trim {
    fn arm(put_off: u32) {
        let trim = Self { forks: TASKS.forks(), put_off };
        kernel().timekeeper.arm(time::monotonic_ns() + AFTER_NS, Arc::new(trim));
    }
}

impl Expire for Trim {
    fn expire(self: Arc<Self>, _now: u64) {
        let rests = TASKS.forks() == self.forks;
        if !rests && arena::is_gathered() && self.put_off < PUT_OFF_MAX {
            return Self::arm(self.put_off + 1);
        }
        TRIM_TIMER.0.store(false, Ordering::Relaxed);
        cpu::trim_free_blocks();
        arena::trim(if rests { Huge::Split } else { Huge::Spare });
    }
}

/// Drops what can be had again, before the domain is stopped for a freeze.
pub fn before_freeze() {
    vfs::drop_caches();
}

/// Leaves only what is in use in the arena, while nothing runs.
pub fn when_still() {
    for t in TASKS.threads.lock().values() {
        t.task.trim_stack();
    }
    cpu::trim_free_blocks();
    arena::trim(Huge::Clear);
}

/// The domain may have less memory than before, or is asked to do with less: gives back at once what can be had
/// again. Runs on PID 1.
pub fn give_back() {
    crate::objects::storage::reclaim(u64::MAX);
    crate::objects::pages::reclaim(u64::MAX);
    vfs::drop_caches();
    cpu::trim_free_blocks();
    arena::trim(Huge::Split);
}
