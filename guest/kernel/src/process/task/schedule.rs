//! Threads as the scheduler sees them.

use crate::process::time::cpu;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use super::Thread;
use super::services::Services;
use super::{SPACES, Space};
use crate::core::sched::{Entity, PollEvents, Runnable, Wake};
use crate::kernel;
use crate::memory::Mm;
use crate::process::{shadow, signal};

impl Wake for Thread {
    fn wake(&self, _events: PollEvents) -> bool {
        self.unpark();
        true
    }
}

impl Runnable for Thread {
    type Memory = Mm;
    type Outside = Services;

    fn entity(&self) -> &Entity<Self> {
        &self.entity
    }

    fn is_interrupted(&self) -> bool {
        self.exiting.load(core::sync::atomic::Ordering::SeqCst) || signal::pending(self)
    }

    fn runs(&self, now: u64) {
        cpu::runs(self, now);
    }

    fn stops(&self, now: u64) {
        cpu::stops(self, now);
    }

    fn ends(&self) {
        cpu::last_slice(self);
    }

    fn start_host(space: Arc<Space>) {
        SPACES.requests.lock().push(space);
        kernel().timekeeper.wake();
    }

    fn while_still(space: &Arc<Space>) {
        shadow::leave(space);
        if space.to_guard.load(Ordering::SeqCst) {
            space.mm.guard();
            space.to_guard.store(false, Ordering::SeqCst);
        }
    }
}
