//! Wake-ups through the host that wait until a lock is given back.
//!
//! Whoever is woken through the host may run at once, in place of the waker if they share a CPU. If the waker then still
//! holds the lock of the queue it woke from, the other needs that lock first: it spins, sleeps, and is woken twice. So
//! wake-ups that are made while somebody holds back those of this vCPU ([`hold`]) reach the host when that ends.
//!
//! Key types: [`Held`] (the guard), `Kept` (a vCPU's part, in its block).
//! Boundary: only the host call is late. The word that a sleeper waits on has changed before, so one that is just
//! falling asleep notices; and an address that means something else by then costs its sleeper a look, no more.

use core::marker::PhantomData;
use core::sync::atomic::AtomicU32;

use crate::cpu::vcpu;
use crate::host;

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
