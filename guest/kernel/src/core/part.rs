//! Parts of the kernel: the one instance of a subsystem's state, reached through a static.
//!
//! Key type: [`Part`]. All state lies in the arena; each process of the domain finds it through its own copy of the
//! statics, which are filled at boot, before there is a second process. A clone's first process fills them with what
//! the frozen kernel had made.

use alloc::boxed::Box;
use core::any::Any;
use core::ops::Deref;

use doppel_machine::sync::{Once, SpinLock};

/// A subsystem's state. Used before boot it panics.
pub struct Part<T: 'static>(Once<&'static T>);

impl<T> Part<T> {
    /// One that is filled at boot.
    pub const fn new() -> Self {
        Self(Once::new())
    }

    /// What is in it, if the kernel has come so far.
    pub fn peek(&self) -> Option<&'static T> {
        self.0.get().copied()
    }

    /// What is in it.
    #[inline]
    pub fn get(&self) -> &'static T {
        match self.0.get() {
            Some(t) => t,
            None => panic!("a part of the kernel is used before boot"),
        }
    }
}

impl<T> Default for Part<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Deref for Part<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.get()
    }
}

/// What is in a part, of whatever type.
pub type Filling = &'static (dyn Any + Send + Sync);

/// A [`Part`], of whatever type.
pub trait Fill: Sync {
    /// Fills it anew.
    fn fill(&self) -> Filling;

    /// Fills it with what [`Self::fill`] gave in the kernel this one is a clone of.
    fn refill(&self, filling: Filling);
}

impl<T: Any + Send + Sync + Default> Fill for Part<T> {
    fn fill(&self) -> Filling {
        let t: &'static T = Box::leak(Box::default());
        assert!(self.0.set(t).is_ok(), "a part of the kernel is made twice");
        t
    }

    fn refill(&self, filling: Filling) {
        let set = filling.downcast_ref().map(|t| self.0.set(t));
        assert!(matches!(set, Some(Ok(()))), "the parts of the kernel are others than when it was frozen");
    }
}

/// State made on first use, for a part that cannot be made at boot already.
#[derive(Default)]
pub struct Lazy<T> {
    making: SpinLock<()>,
    made: Once<T>,
}

impl<T: Default> Lazy<T> {
    /// What is in it. Making it must not block.
    pub fn get(&self) -> &T {
        loop {
            if let Some(t) = self.made.get() {
                return t;
            }
            let _one = self.making.lock();
            if self.made.get().is_none() {
                let set = self.made.set(T::default());
                debug_assert!(set.is_ok());
            }
        }
    }
}
