//! Futexes (`futex(2)`): waiting on a word of user memory.
//!
//! Key types: [`Futexes`] (hash table of waiters), [`Key`] (which word), [`Waiter`]. A private word is known by its
//! space and address, a shared one by its page object and offset, so processes that map it elsewhere meet. Who calls
//! a word private and who does not never meet, as on Linux.
//! The value is compared and the waiter queued under the bucket's lock, which every waker takes, so no wake-up is
//! lost. Lock order: mm (for the key, released first) → bucket (two in table order) → run queue.

pub mod deadline;
pub(crate) mod pi;
pub(crate) mod robust;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use doppel_machine::sync::{SpinGuard, SpinLock};
use doppel_machine::user::UserPtr;

use super::task::{Thread, current, current_ref};
use crate::core::part::Part;
use crate::core::sched::{self, Deadline};
use crate::memory::{FutexPlace, before_copies};
use crate::{Errno, Result};

pub use robust::exit_robust;

const BUCKETS: usize = 64;
/// Matches every waiter (FUTEX_BITSET_MATCH_ANY).
pub const ANY: u32 = u32::MAX;

/// Identifies a word: space or object, and address or offset, which are multiples of 4: their low bits tell the kinds
/// apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    id: u64,
    at: u64,
}

/// A thread that waits for one word.
pub struct Waiter {
    thread: Arc<Thread>,
    key: SpinLock<Key>,
    bitset: u32,
    /// The lock that FUTEX_WAIT_REQUEUE_PI is to end with.
    lock: Option<Key>,
    woken: AtomicBool,
}

type Bucket = Vec<Arc<Waiter>>;

/// All waiters of the domain.
pub struct Futexes {
    buckets: Vec<SpinLock<Bucket>>,
}

/// The domain's.
pub static FUTEXES: Part<Futexes> = Part::new();

impl Default for Futexes {
    fn default() -> Self {
        Self { buckets: (0..BUCKETS).map(|_| SpinLock::default()).collect() }
    }
}

impl Key {
    /// The key of the word at `addr` of the current space: EINVAL if it is not aligned, EFAULT if there can be
    /// none. A shared word must be mapped; `write`: writable.
    pub fn new(thread: &Thread, addr: UserPtr, private: bool, write: bool) -> Result<Self> {
        if !addr.0.is_multiple_of(4) {
            return Err(Errno::EINVAL);
        }
        if addr.0 >= doppel_abi_machine::layout::USER_END {
            return Err(Errno::EFAULT);
        }
        if private {
            return Ok(Self { id: thread.space_id(), at: addr.0 });
        }
        // It is looked at under locks later.
        before_copies(addr, 4);
        match thread.with_space(|s| s.mm.futex_place(addr.0, write)) {
            FutexPlace::Object { id, offset } => Ok(Self { id, at: offset | 1 }),
            FutexPlace::Own => Ok(Self { id: thread.space_id(), at: addr.0 | 2 }),
            FutexPlace::Nowhere => Err(Errno::EFAULT),
        }
    }

    fn index(self) -> usize {
        let h = (self.id ^ (self.at >> 2).rotate_left(20)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (h >> 56) as usize % BUCKETS
    }
}

impl Waiter {
    pub(crate) fn new(thread: &Arc<Thread>, key: Key, bitset: u32) -> Arc<Self> {
        Self::for_lock(thread, key, bitset, None)
    }

    fn for_lock(thread: &Arc<Thread>, key: Key, bitset: u32, lock: Option<Key>) -> Arc<Self> {
        Arc::new(Self {
            thread: thread.clone(),
            key: SpinLock::new(key),
            bitset,
            lock,
            woken: AtomicBool::new(false),
        })
    }

    fn wake(&self) {
        self.woken.store(true, Ordering::SeqCst);
        self.thread.unpark();
    }

    /// Whether it waits for a word, in a way that `bitset` concerns. The bucket is locked.
    fn waits_for(&self, key: Key, bitset: u32) -> bool {
        self.bitset & bitset != 0 && *self.key.lock() == key
    }

    pub(crate) fn woken(&self) -> bool {
        self.woken.load(Ordering::SeqCst)
    }
}

impl Futexes {
    fn bucket(&self, key: Key) -> SpinGuard<'_, Bucket> {
        self.buckets[key.index()].lock()
    }

    /// Queues a waiter if the word still has the value `val`: EAGAIN if not.
    pub(crate) fn queue(&self, w: &Arc<Waiter>, key: Key, addr: UserPtr, val: u32) -> Result<()> {
        let mut b = self.bucket(key);
        if addr.load_u32()? != val {
            return Err(Errno::EAGAIN);
        }
        b.push(w.clone());
        Ok(())
    }

    /// Takes a waiter back; false if it was woken meanwhile.
    pub(crate) fn unqueue(&self, w: &Arc<Waiter>) -> bool {
        loop {
            let key = *w.key.lock();
            let mut b = self.bucket(key);
            // A requeue may have moved it between the two locks.
            if *w.key.lock() != key {
                continue;
            }
            let Some(i) = b.iter().position(|o| Arc::ptr_eq(o, w)) else { return false };
            b.remove(i);
            return true;
        }
    }

    /// Wakes up to `n` waiters of `key` that share a bit with `bitset`; returns how many.
    pub fn wake(&self, key: Key, n: u32, bitset: u32) -> u32 {
        let mut b = self.bucket(key);
        if b.is_empty() {
            return 0;
        }
        if n == 1 {
            let first = b.iter().position(|w| w.waits_for(key, bitset)).map(|i| b.remove(i));
            drop(b);
            first.iter().for_each(|w| w.wake());
            return u32::from(first.is_some());
        }
        let mut woken = Vec::new();
        take(&mut b, key, n, bitset, &mut woken);
        drop(b);
        woken.iter().for_each(|w| w.wake());
        woken.len() as u32
    }

    /// The buckets of two keys, locked in table order; the second is `None` if it is the same one.
    fn two(&self, a: Key, b: Key) -> (SpinGuard<'_, Bucket>, Option<SpinGuard<'_, Bucket>>) {
        let (i, j) = (a.index(), b.index());
        match i.cmp(&j) {
            core::cmp::Ordering::Equal => (self.buckets[i].lock(), None),
            core::cmp::Ordering::Less => {
                let x = self.buckets[i].lock();
                (x, Some(self.buckets[j].lock()))
            }
            core::cmp::Ordering::Greater => {
                let y = self.buckets[j].lock();
                (self.buckets[i].lock(), Some(y))
            }
        }
    }

    /// Wakes up to `wake` waiters of `from` and moves up to `requeue` others to `to`; if `expected` is given the
    /// word must have that value (EAGAIN). Returns `(woken, moved)`.
    pub fn requeue(
        &self,
        from: Key,
        to: Key,
        wake: u32,
        requeue: u32,
        expected: Option<(UserPtr, u32)>,
    ) -> Result<(u32, u32)> {
        let mut woken = Vec::new();
        let mut moved = Vec::new();
        {
            let (mut a, b) = self.two(from, to);
            if let Some((addr, val)) = expected
                && addr.load_u32()? != val
            {
                return Err(Errno::EAGAIN);
            }
            take(&mut a, from, wake, ANY, &mut woken);
            if from == to {
                // They stay where they are.
                let left = a.iter().filter(|w| *w.key.lock() == from).count() as u32;
                drop((a, b));
                woken.iter().for_each(|w| w.wake());
                return Ok((woken.len() as u32, left.min(requeue)));
            }
            take(&mut a, from, requeue, ANY, &mut moved);
            for w in &moved {
                *w.key.lock() = to;
            }
            match b {
                Some(mut b) => b.extend(moved.iter().cloned()),
                None => a.extend(moved.iter().cloned()),
            }
        }
        woken.iter().for_each(|w| w.wake());
        Ok((woken.len() as u32, moved.len() as u32))
    }
}

/// Moves up to `n` waiters of `key` from a bucket to `out`, first come first.
fn take(b: &mut Bucket, key: Key, n: u32, bitset: u32, out: &mut Vec<Arc<Waiter>>) {
    let mut left = n;
    b.retain(|w| {
        let hit = left > 0 && w.waits_for(key, bitset);
        if hit {
            left -= 1;
            out.push(w.clone());
        }
        !hit
    });
}

/// Waits until woken, while the word at `addr` has the value `val`.
pub(crate) fn wait(key: Key, addr: UserPtr, val: u32, bitset: u32, deadline: Deadline) -> Result<u64> {
    let me = current_ref();
    let table = &FUTEXES;
    let w = Waiter::new(&me, key, bitset);
    table.queue(&w, key, addr, val)?;
    let error = loop {
        if w.woken() {
            return Ok(0);
        }
        if me.interrupted() {
            break Errno::ERESTARTSYS;
        }
        if !sched::park(&**me, deadline) {
            break Errno::ETIMEDOUT;
        }
    };
    if table.unqueue(&w) { Err(error) } else { Ok(0) }
}

/// Wakes up to `n` waiters of the word at `p` in the current space (clear_child_tid).
pub fn wake_addr(p: UserPtr, n: u32) {
    // A bad address has no waiters.
    if let Ok(key) = Key::new(&current(), p, false, false) {
        FUTEXES.wake(key, n, ANY);
    }
}
