//! Requests one behind the other, of which most instances have none: whoever looks for one takes no lock then.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, Ordering};

use doppel_machine::sync::{SpinGuard, SpinLock};

use super::request::Request;

/// Such a list.
#[derive(Default)]
pub struct Queue {
    list: SpinLock<VecDeque<Arc<Request>>>,
    /// Whether there is one: as the last change left it.
    any: AtomicBool,
}

/// The list, locked for changes.
pub struct Changing<'a> {
    queue: &'a Queue,
    list: SpinGuard<'a, VecDeque<Arc<Request>>>,
}

impl Queue {
    /// Whether there is none. Who adds one wakes others behind that, and who waits looks again once it is registered.
    #[inline]
    pub fn is_empty(&self) -> bool {
        !self.any.load(Ordering::SeqCst)
    }

    /// Locks it.
    pub fn lock(&self) -> Changing<'_> {
        Changing { queue: self, list: self.list.lock() }
    }
}

impl Deref for Changing<'_> {
    type Target = VecDeque<Arc<Request>>;

    fn deref(&self) -> &Self::Target {
        &self.list
    }
}

impl DerefMut for Changing<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.list
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        let any = !self.list.is_empty();
        // A store that says the same again costs as much as a lock.
        if self.queue.any.load(Ordering::Relaxed) != any {
            self.queue.any.store(any, Ordering::SeqCst);
        }
    }
}
