//! Locks for state in the arena, shared by all processes and vCPUs of a domain.
//!
//! Key types: [`SpinLock`] (short critical sections), [`RwSpin`] (read-mostly state), [`Once`].
//! They spin for a bounded time, then sleep on a host futex, because the host may preempt the holder. Sleeps are
//! short, so that giving a lock back needs no atomic read-modify-write: a plain store, and a look whether
//! anybody sleeps. A sleeper that this look misses (its own store may still be on its way) finds the lock free
//! when its sleep ends.
//! Rules: never block in the scheduler while holding one; a host kick only sets flags, so it cannot deadlock.
//! Lock order is stated by each module that nests them.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, Ordering};

use crate::host;

/// Spins before sleeping: about 2 µs, more than the longest ordinary critical section.
const SPINS: u32 = 100;
/// The first sleep of one that waits for a lock, and how often it doubles: up to 3.2 ms.
const SHORTEST_NAP_NS: u64 = 50_000;
const NAP_DOUBLINGS: u32 = 6;

/// A mutual exclusion lock usable from every process of the domain.
#[derive(Default)]
pub struct SpinLock<T: ?Sized> {
    /// 0 free, 1 held.
    state: AtomicU32,
    /// Threads that sleep, or are about to.
    sleepers: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the lock gives exclusive access, so sharing it needs only that T may move between threads.
unsafe impl<T: ?Sized + Send> Sync for SpinLock<T> {}
// SAFETY: owning the lock is owning the value.
unsafe impl<T: ?Sized + Send> Send for SpinLock<T> {}

impl<T> SpinLock<T> {
    /// A free lock around `value`.
    pub const fn new(value: T) -> Self {
        Self { state: AtomicU32::new(0), sleepers: AtomicU32::new(0), value: UnsafeCell::new(value) }
    }

    /// The value, when nobody else can hold the lock any more.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> SpinLock<T> {
    /// Takes the lock.
    #[inline]
    pub fn lock(&self) -> SpinGuard<'_, T> {
        if self.state.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.lock_slow();
        }
        SpinGuard { lock: self }
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<SpinGuard<'_, T>> {
        self.state
            .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
            .ok()
            .map(|_| SpinGuard { lock: self })
    }

    #[cold]
    fn wake(&self) {
        host::futex_wake(&self.state, 1);
    }

    #[cold]
    fn lock_slow(&self) {
        for _ in 0..SPINS {
            if self.state.load(Ordering::Relaxed) == 0
                && self.state.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return;
            }
            core::hint::spin_loop();
        }
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let mut naps = 0;
        while self.state.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            nap(&self.state, 1, naps);
            naps += 1;
        }
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Exclusive access to a [`SpinLock`]'s value.
pub struct SpinGuard<'a, T: ?Sized> {
    lock: &'a SpinLock<T>,
}

impl<T: ?Sized> Deref for SpinGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard proves the lock is held.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized> DerefMut for SpinGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard proves the lock is held, and it is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T: ?Sized> Drop for SpinGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.state.store(0, Ordering::Release);
        if self.lock.sleepers.load(Ordering::Relaxed) != 0 {
            self.lock.wake();
        }
    }
}

/// A reader-writer lock for read-mostly state; writers exclude everybody.
#[derive(Default)]
pub struct RwSpin<T: ?Sized> {
    /// Number of readers, or WRITER.
    state: AtomicU32,
    value: UnsafeCell<T>,
}

const WRITER: u32 = 1 << 31;

// SAFETY: as for std's RwLock: readers share &T, a writer has &mut T.
unsafe impl<T: ?Sized + Send + Sync> Sync for RwSpin<T> {}
// SAFETY: owning the lock is owning the value.
unsafe impl<T: ?Sized + Send> Send for RwSpin<T> {}

impl<T> RwSpin<T> {
    /// A free lock around `value`.
    pub const fn new(value: T) -> Self {
        Self { state: AtomicU32::new(0), value: UnsafeCell::new(value) }
    }
}

impl<T: ?Sized> RwSpin<T> {
    /// Takes the lock for reading.
    #[inline]
    pub fn read(&self) -> ReadGuard<'_, T> {
        let mut spins = 0;
        loop {
            let s = self.state.load(Ordering::Relaxed);
            if s & WRITER == 0
                && self.state.compare_exchange_weak(s, s + 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return ReadGuard { lock: self };
            }
            backoff(&self.state, s, &mut spins);
        }
    }

    /// Takes the lock for writing.
    #[inline]
    pub fn write(&self) -> WriteGuard<'_, T> {
        let mut spins = 0;
        loop {
            let s = self.state.load(Ordering::Relaxed);
            if s == 0 && self.state.compare_exchange(0, WRITER, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return WriteGuard { lock: self };
            }
            backoff(&self.state, s, &mut spins);
        }
    }
}

impl<T: ?Sized> RwSpin<T> {
    /// Takes the lock for writing if it is free.
    #[inline]
    pub fn try_write(&self) -> Option<WriteGuard<'_, T>> {
        let taken = self.state.compare_exchange(0, WRITER, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok().then_some(WriteGuard { lock: self })
    }
}

/// Spins, and once that has lasted long sleeps for a short while: the holder may have been preempted.
pub(crate) fn backoff(word: &AtomicU32, seen: u32, spins: &mut u32) {
    *spins = spins.saturating_add(1);
    match spins.checked_sub(SPINS) {
        None => core::hint::spin_loop(),
        Some(naps) => nap(word, seen, naps),
    }
}

/// Sleeps for a short while, as long as `word` is `seen`; longer after each nap in vain. Hundreds that all looked again
/// every 50 µs would leave the holder no time to run.
#[cold]
fn nap(word: &AtomicU32, seen: u32, naps: u32) {
    let until = crate::clock::host_monotonic_ns() + (SHORTEST_NAP_NS << naps.min(NAP_DOUBLINGS));
    host::futex_wait(word, seen, Some(until));
}

/// Shared access to a [`RwSpin`]'s value.
pub struct ReadGuard<'a, T: ?Sized> {
    lock: &'a RwSpin<T>,
}

/// Exclusive access to a [`RwSpin`]'s value.
pub struct WriteGuard<'a, T: ?Sized> {
    lock: &'a RwSpin<T>,
}

impl<T: ?Sized> Deref for ReadGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: readers exclude writers.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized> Deref for WriteGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the writer is alone.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized> DerefMut for WriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the writer is alone, and the guard is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T: ?Sized> Drop for ReadGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.state.fetch_sub(1, Ordering::Release);
    }
}

impl<T: ?Sized> Drop for WriteGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.state.store(0, Ordering::Release);
    }
}

/// A value set once and read many times.
pub struct Once<T> {
    set: AtomicU32,
    value: UnsafeCell<Option<T>>,
}

// SAFETY: written once before `set` is published, only read afterwards.
unsafe impl<T: Send + Sync> Sync for Once<T> {}
// SAFETY: owning the cell is owning the value.
unsafe impl<T: Send> Send for Once<T> {}

impl<T> Default for Once<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Once<T> {
    /// An empty cell.
    pub const fn new() -> Self {
        Self { set: AtomicU32::new(0), value: UnsafeCell::new(None) }
    }

    /// Sets the value; returns it back if one was set (or is being set) already.
    pub fn set(&self, value: T) -> Result<(), T> {
        if self.set.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return Err(value);
        }
        // SAFETY: the exchange above made this thread the only writer, and readers wait for 2.
        unsafe { *self.value.get() = Some(value) };
        self.set.store(2, Ordering::Release);
        Ok(())
    }

    /// The value, if set.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        if self.set.load(Ordering::Acquire) != 2 {
            return None;
        }
        // SAFETY: state 2 is final, the value no longer changes.
        unsafe { (*self.value.get()).as_ref() }
    }
}
