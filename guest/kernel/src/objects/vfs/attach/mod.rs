//! What subsystems keep with an inode they do not own: locks, watches, a bound socket, a fifo's pipe.

pub mod busy;
pub mod handle;
pub mod locks;
pub mod notify;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::sync::atomic::{AtomicBool, Ordering};

/// Objects of other subsystems attached to an inode, found by type.
#[derive(Default)]
pub struct Attachments {
    /// Whether there ever was one: most inodes have none, and every close asks.
    used: AtomicBool,
    list: doppel_machine::sync::SpinLock<Vec<Arc<dyn Any + Send + Sync>>>,
}

impl Attachments {
    /// The attached object of type `T`.
    pub fn get<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        if !self.used.load(Ordering::Acquire) {
            return None;
        }
        let found = self.list.lock().iter().find(|a| a.is::<T>()).cloned();
        found.and_then(|a| a.downcast::<T>().ok())
    }

    /// The attached object of type `T`, made by `make` if there is none.
    pub fn get_or_insert<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> Arc<T> {
        let mut l = self.list.lock();
        if let Some(t) = l.iter().find(|a| a.is::<T>()).and_then(|a| a.clone().downcast::<T>().ok()) {
            return t;
        }
        let t = Arc::new(make());
        l.push(t.clone());
        self.used.store(true, Ordering::Release);
        t
    }

    /// Attaches `t`, replacing an object of the same type.
    pub fn set<T: Any + Send + Sync>(&self, t: Arc<T>) {
        let mut l = self.list.lock();
        l.retain(|a| !a.is::<T>());
        l.push(t);
        self.used.store(true, Ordering::Release);
    }

    /// Detaches the object of type `T`.
    pub fn remove<T: Any + Send + Sync>(&self) {
        self.list.lock().retain(|a| !a.is::<T>());
    }
}
