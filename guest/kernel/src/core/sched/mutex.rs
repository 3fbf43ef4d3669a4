//! A lock that may be held over waits: who finds it taken sleeps, as any thread that waits.

use core::ops::{Deref, DerefMut};

use doppel_machine::sync::SpinLock;

use super::wait::{WaitQueue, can_wait, wait_until_uninterruptible};

/// Looks before a thread sleeps: most holders are done in less.
const LOOKS: u32 = 100;

/// Mutual exclusion over waits. The value is a small one: it is moved out while somebody holds the lock.
pub struct Mutex<T> {
    /// None while somebody holds it.
    value: SpinLock<Option<T>>,
    queue: WaitQueue,
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self { value: SpinLock::new(Some(T::default())), queue: WaitQueue::new() }
    }
}

impl<T> Mutex<T> {
    /// Takes the lock, whatever signals come. The caller holds no [`SpinLock`].
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.try_lock().unwrap_or_else(|| self.lock_slow())
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let value = self.value.lock().take()?;
        Some(MutexGuard { lock: self, value: Some(value) })
    }

    #[cold]
    fn lock_slow(&self) -> MutexGuard<'_, T> {
        let mut looks = 0;
        loop {
            core::hint::spin_loop();
            if let Some(guard) = self.try_lock() {
                return guard;
            }
            looks += 1;
            // Without a thread there is nothing that could sleep.
            if looks > LOOKS && can_wait() {
                return wait_until_uninterruptible(&self.queue, || self.try_lock());
            }
        }
    }
}

/// Exclusive access to a [`Mutex`]'s value.
pub struct MutexGuard<'a, T> {
    lock: &'a Mutex<T>,
    /// None only while it is given back.
    value: Option<T>,
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        match &self.value {
            Some(value) => value,
            None => unreachable!("a lock that was given back"),
        }
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        match &mut self.value {
            Some(value) => value,
            None => unreachable!("a lock that was given back"),
        }
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        *self.lock.value.lock() = self.value.take();
        self.lock.queue.notify_one();
    }
}
