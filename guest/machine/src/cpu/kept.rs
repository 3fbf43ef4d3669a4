//! Wake-ups that a vCPU keeps until a lock is given back ([`crate::wakes`]).

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Wake-ups that can be kept. More are made at once.
pub(crate) const MOST: usize = 8;

/// What a vCPU keeps. Only the vCPU itself looks at it.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// How many guards there are.
    held: AtomicU32,
    count: AtomicU32,
    words: [AtomicU64; MOST],
}

impl Kept {
    pub(crate) fn hold(&self) {
        self.held.store(self.held.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Keeps the wake-up of a word; false if it is to be made now.
    pub(crate) fn keep(&self, word: u64) -> bool {
        let count = self.count.load(Ordering::Relaxed);
        if self.held.load(Ordering::Relaxed) == 0 || count as usize == MOST {
            return false;
        }
        self.words[count as usize].store(word, Ordering::Relaxed);
        self.count.store(count + 1, Ordering::Relaxed);
        true
    }

    /// The end of a guard; the last one makes what was kept.
    pub(crate) fn release(&self, wake: impl Fn(u64)) {
        let held = self.held.load(Ordering::Relaxed) - 1;
        self.held.store(held, Ordering::Relaxed);
        if held != 0 {
            return;
        }
        let count = self.count.load(Ordering::Relaxed) as usize;
        for word in &self.words[..count] {
            wake(word.load(Ordering::Relaxed));
        }
        self.count.store(0, Ordering::Relaxed);
    }
}
