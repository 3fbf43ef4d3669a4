//! Halting one address space: all of its vCPUs but the caller's stand still, so that its program's text can be
//! changed under it.
//!
//! It works as for the Freezer (freezer.rs), with the same stopped vCPUs: nobody takes up a thread while
//! [`Space::must_stop`], those that run are kicked and give up their vCPU at the border to their program, those that
//! sleep are woken and fall asleep again where they are counted. Kernel stacks of blocked threads are left alone.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use doppel_machine::host;

use super::runnable::Runnable;
use super::runqueue::{Space, yield_now};
use crate::core::part::Part;
use crate::core::time;
use crate::{Errno, Result, kernel};

/// How long the vCPUs may take to stop, in nanoseconds: as long as the longest call that does not block.
const PATIENCE_NS: u64 = 2_000_000_000;
/// How often the caller looks again while they stop, in nanoseconds.
const LOOK_AGAIN_NS: u64 = 200_000;

/// Whether the whole domain is to stand still (the Freezer).
#[derive(Default)]
pub struct Standstill(AtomicBool);

/// The domain's.
pub static STANDSTILL: Part<Standstill> = Part::new();

impl Standstill {
    /// Whether vCPUs have to leave their threads alone.
    #[inline]
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// Asks for it, or lets the domain go on.
    pub fn ask(&self, still: bool) {
        self.0.store(still, Ordering::SeqCst);
    }
}

impl<R: Runnable> Space<R> {
    /// Whether vCPUs have to leave the threads of this space alone.
    pub(super) fn must_stop(&self) -> bool {
        self.halting.load(Ordering::SeqCst) || STANDSTILL.is_asked()
    }

    /// Tells the one who waits for it that a vCPU stands still.
    pub(super) fn tell_stopped(&self) {
        if STANDSTILL.is_asked() {
            // PID 1 waits for the last one.
            kernel().timekeeper.wake();
        }
        if self.halting.load(Ordering::SeqCst) {
            host::futex_wake(&self.stopped, 1);
        }
    }

    /// Runs `f` while every other vCPU of this space, which is the caller's, stands still and outside of its
    /// program; ENOMEM if they do not stop. The caller holds no lock. `f` must be short and must not block.
    pub fn halted<T>(self: &Arc<Self>, f: impl FnOnce() -> T) -> Result<T> {
        while self.halting.swap(true, Ordering::SeqCst) {
            // Another thread does the same: this one stops for it.
            yield_now::<R>();
        }
        let still = self.wait_until_still();
        let r = still.then(f);
        self.halting.store(false, Ordering::SeqCst);
        self.wake_all();
        r.ok_or(Errno::ENOMEM)
    }

    fn wait_until_still(&self) -> bool {
        settle(&self.stopped, LOOK_AGAIN_NS, PATIENCE_NS, |first| {
            if self.stopped.load(Ordering::SeqCst) + 1 >= self.set.count() {
                return Some(true);
            }
            self.stop(first);
            None
        })
    }

    /// Makes the vCPUs of this space, which they must leave, look; `first`: they were not made to before.
    pub(crate) fn stop(&self, first: bool) {
        self.preempt_all();
        if first {
            // Those who wait on their vCPU leave it; nobody else falls asleep there from now on.
            self.wake_all();
        }
    }
}

/// Calls `look` whenever `word` has changed, and every `again_ns`, until it says how it ends: that it is done, or
/// that it never will be, as after `patience_ns`. It is told whether this is the first time.
pub(crate) fn settle(
    word: &AtomicU32,
    again_ns: u64,
    patience_ns: u64,
    mut look: impl FnMut(bool) -> Option<bool>,
) -> bool {
    let give_up = time::monotonic_ns().saturating_add(patience_ns);
    let mut first = true;
    loop {
        let seen = word.load(Ordering::SeqCst);
        if let Some(end) = look(first) {
            return end;
        }
        first = false;
        let now = time::monotonic_ns();
        if now > give_up {
            return false;
        }
        host::futex_wait(word, seen, Some(time::to_host_monotonic(now + again_ns)));
    }
}
