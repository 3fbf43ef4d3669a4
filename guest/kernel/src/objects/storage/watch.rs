//! The vCPU that the service wakes itself: one on which a thread sleeps that waits for an answer.
//!
//! Without one PID 1 is woken, which wakes the thread: twice through the host.

use core::sync::atomic::{AtomicU32, Ordering};

use doppel_machine::{host, storage::CHANNEL};

use super::Storage;
use crate::core::sched;

/// The storage service, among a thread's sources of wake-ups.
pub const SOURCE: u8 = 2;

/// The right to be woken by the service. One vCPU of a domain has it.
pub struct Watch(&'static Storage);

impl Watch {
    /// Takes it; none if another vCPU has it.
    pub fn take(storage: &'static Storage) -> Option<Self> {
        if storage.watched.load(Ordering::Relaxed) || storage.watched.swap(true, Ordering::SeqCst) {
            return None;
        }
        CHANNEL.header().watched.store(1, Ordering::SeqCst);
        Some(Self(storage))
    }
}

impl sched::Watch for Watch {
    fn sleep(&self, word: &AtomicU32, seen: u32, deadline: Option<u64>) {
        let header = CHANNEL.header();
        self.0.listen();
        let heard = self.0.heard.load(Ordering::SeqCst);
        if !host::futex_wait_either([(word, seen), (&header.bell, heard)], deadline) {
            // An older host: PID 1 is woken, as if nobody watched.
            header.watched.store(0, Ordering::SeqCst);
            host::futex_wait(word, seen, deadline);
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        CHANNEL.header().watched.store(0, Ordering::SeqCst);
        self.0.watched.store(false, Ordering::SeqCst);
    }
}
