//! Wake-ups through the host that wait until a lock is given back.
//!
//! Whoever is woken through the host may run at once, in place of the waker if they share a CPU. If the waker then still
//! holds the lock of the queue it woke from, the other needs that lock first: it spins, sleeps, and is woken twice. So
//! wake-ups that are made while somebody holds back those of this vCPU ([`hold`]) reach the host when that ends.
//!
//! Key types: [`Held`] (the guard), [`Kept`] (a vCPU's part, in its block).
//! Boundary: only the host call is late. The word that a sleeper waits on has changed before, so one that is just
//! falling asleep notices; and an address that means something else by then costs its sleeper a look, no more.

use core::marker::PhantomData;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::cpu::vcpu;
use crate::host;

/// Wake-ups that can be kept. More are made at once.
const MOST: usize = 8;

/// What a vCPU keeps. Only the vCPU itself looks at it.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// How many guards there are.
    held: AtomicU32,
    count: AtomicU32,
    words: [AtomicU64; MOST],
}

impl Kept {
    fn hold(&self) {
        self.held.store(self.held.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Keeps the wake-up of a word; false if it is to be made now.
    fn keep(&self, word: u64) -> bool {
        let count = self.count.load(Ordering::Relaxed);
        if self.held.load(Ordering::Relaxed) == 0 || count as usize == MOST {
            return false;
        }
        self.words[count as usize].store(word, Ordering::Relaxed);
        self.count.store(count + 1, Ordering::Relaxed);
        true
    }

    /// The end of a guard; the last one makes what was kept.
    fn release(&self, wake: impl Fn(u64)) {
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

/// While it lives, wake-ups of this vCPU are kept. Its owner neither blocks nor leaves the vCPU.
pub struct Held(PhantomData<*const ()>);

/// Keeps wake-ups of this vCPU until the guard is dropped. Take it before the lock, so that it outlives that.
pub fn hold() -> Held {
    vcpu().kept.hold();
    Held(PhantomData)
}

impl Drop for Held {
    fn drop(&mut self) {
        vcpu().kept.release(|word| {
            host::futex_wake_at(word, 1);
        });
    }
}

/// Wakes one host thread that waits on `word`, when nobody holds that back any more.
pub fn wake(word: &AtomicU32) {
    let word = core::ptr::from_ref(word) as u64;
    if !vcpu().kept.keep(word) {
        host::futex_wake_at(word, 1);
    }
}

#[cfg(test)]
mod tests;
