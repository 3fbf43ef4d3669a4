//! TCP's urgent byte: it is in the stream like any other, and its place is said beside.

use core::sync::atomic::{AtomicU64, Ordering};

/// Where the last urgent byte of a stream is. Its writer says so before it shows the byte; the reader takes it.
#[repr(transparent)]
#[derive(Debug, Default)]
pub struct Urgent(AtomicU64);

const THERE: u64 = 1 << 32;

impl Urgent {
    /// The byte that is written after `count` others (modulo 2³²) is urgent, and no earlier one any more.
    pub fn put(&self, count: u32) {
        self.0.store(THERE | u64::from(count), Ordering::Release);
    }

    /// Which one is, if there is one.
    #[must_use]
    pub fn get(&self) -> Option<u32> {
        let word = self.0.load(Ordering::Acquire);
        (word & THERE != 0).then_some(word as u32)
    }

    /// The one that [`Self::get`] said is no more to be looked at.
    pub fn took(&self, count: u32) {
        // Another one may have been put meanwhile, and stays.
        let _ = self.0.compare_exchange(THERE | u64::from(count), 0, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// For another socket.
    pub(super) fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}
