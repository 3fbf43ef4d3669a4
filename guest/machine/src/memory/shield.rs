//! Read-mostly state that is read without touching any line other processors write: one big-reader lock for the
//! domain, and cells that only its guards open.
//!
//! Key types: [`Shielded`] (a cell), [`Reading`] and [`Writing`] (the guards). There is one lock, made by [`init`],
//! so a guard proves what a cell asks for. References taken through a guard live as long as it, so whole structures
//! (a path of cached names) are walked without counting references.
//! Readers announce themselves in a word of their own (one of a few, by vCPU); a writer closes the door, then waits
//! for all words to become zero. Writing is therefore dear, and readers must be brief.
//! Rules: never take a second guard while holding one; never block, and copy from or to user memory, under either;
//! drop replaced values after the guard. Lock order: any lock may be held when a guard is taken; under a guard only
//! leaf locks may be taken.

use alloc::boxed::Box;
use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::host;
use crate::sync::{Once, backoff};

#[cfg(test)]
mod tests;

/// Words readers announce themselves in. More vCPUs than this share them, which only costs time.
const SLOTS: usize = 16;

#[derive(Default)]
#[repr(align(64))]
struct Slot(AtomicU32);

#[derive(Default)]
struct Shield {
    /// 0 open, 1 a writer is inside or waits for the readers, 2 and others wait for it.
    writer: AtomicU32,
    slots: [Slot; SLOTS],
}

impl Shield {
    /// A reader enters.
    #[inline]
    fn announce(&self, slot: &AtomicU32) {
        // The order of this and the look at the door against the writer's shutting it and looking here is what
        // keeps the two apart; both are sequentially consistent.
        slot.fetch_add(1, Ordering::SeqCst);
        if self.writer.load(Ordering::SeqCst) != 0 {
            wait_for_writer(self, slot);
        }
    }

    /// A writer enters: shuts the door and waits until the readers have gone.
    fn shut(&self) {
        if self.writer.compare_exchange(0, 1, Ordering::SeqCst, Ordering::Relaxed).is_err() {
            while self.writer.swap(2, Ordering::SeqCst) != 0 {
                host::futex_wait(&self.writer, 2, None);
            }
        }
        for slot in &self.slots {
            let mut spins = 0;
            loop {
                match slot.0.load(Ordering::SeqCst) {
                    0 => break,
                    seen => backoff(&slot.0, seen, &mut spins),
                }
            }
        }
    }

    /// A writer leaves.
    fn open(&self) {
        if self.writer.swap(0, Ordering::SeqCst) == 2 {
            // All of them: readers that lost patience sleep on this word too, and must not take a writer's only
            // call.
            host::futex_wake(&self.writer, i32::MAX.unsigned_abs());
        }
    }
}

static SHIELD: Once<&'static Shield> = Once::new();

/// Makes the lock; once, at boot, before the first fork.
pub fn init() {
    assert!(SHIELD.set(Box::leak(Box::default())).is_ok(), "shield made twice");
}

#[inline]
fn shield() -> &'static Shield {
    match SHIELD.get() {
        Some(s) => s,
        None => panic!("shielded state used before boot"),
    }
}

/// Proof that nobody writes.
pub struct Reading {
    slot: &'static AtomicU32,
    /// Not to be handed to another thread.
    _here: PhantomData<*const ()>,
}

/// Opens shielded state for reading.
#[inline]
pub fn read() -> Reading {
    let s = shield();
    // Blocks of vCPUs lie a few hundred bytes apart: a multiplication spreads them.
    let me = core::ptr::from_ref(crate::cpu::vcpu()) as u64;
    let slot = &s.slots[(me.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60) as usize % SLOTS].0;
    s.announce(slot);
    Reading { slot, _here: PhantomData }
}

#[cold]
fn wait_for_writer(s: &Shield, slot: &AtomicU32) {
    loop {
        slot.fetch_sub(1, Ordering::Release);
        let mut spins = 0;
        loop {
            match s.writer.load(Ordering::Relaxed) {
                0 => break,
                seen => backoff(&s.writer, seen, &mut spins),
            }
        }
        slot.fetch_add(1, Ordering::SeqCst);
        if s.writer.load(Ordering::SeqCst) == 0 {
            return;
        }
    }
}

impl Drop for Reading {
    #[inline]
    fn drop(&mut self) {
        self.slot.fetch_sub(1, Ordering::Release);
    }
}

/// Proof that nobody else reads or writes.
pub struct Writing {
    shield: &'static Shield,
    _here: PhantomData<*const ()>,
}

/// Opens shielded state for writing.
pub fn write() -> Writing {
    let s = shield();
    s.shut();
    Writing { shield: s, _here: PhantomData }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.shield.open();
    }
}

mod sealed {
    /// Either guard.
    pub trait Guard {}
    impl Guard for super::Reading {}
    impl Guard for super::Writing {}
}

/// A value that is read under a [`Reading`] and changed under a [`Writing`].
#[derive(Default)]
pub struct Shielded<T> {
    value: UnsafeCell<T>,
}

// SAFETY: there is one lock; `Reading` guards give only shared references, and a mutable one needs the one
// `Writing` guard, borrowed mutably: as for a reader-writer lock.
unsafe impl<T: Send + Sync> Sync for Shielded<T> {}
// SAFETY: owning the cell is owning the value.
unsafe impl<T: Send> Send for Shielded<T> {}

impl<T> Shielded<T> {
    /// A cell holding `value`.
    pub const fn new(value: T) -> Self {
        Self { value: UnsafeCell::new(value) }
    }

    /// The value, for as long as the guard is held.
    #[inline]
    pub fn get<'a, G: sealed::Guard>(&'a self, _guard: &'a G) -> &'a T {
        // SAFETY: under a `Reading` no `Writing` exists; under a `Writing`, a mutable reference would borrow the
        // guard mutably, which the shared borrow here excludes.
        unsafe { &*self.value.get() }
    }

    /// The value, to be changed.
    #[inline]
    pub fn get_mut<'a>(&'a self, _guard: &'a mut Writing) -> &'a mut T {
        // SAFETY: no `Reading` exists, there is one `Writing`, and it is borrowed mutably for as long.
        unsafe { &mut *self.value.get() }
    }

    /// The value, when nobody shares the cell.
    pub fn exclusive(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// Replaces the value.
    pub fn set(&self, value: T) {
        let old = core::mem::replace(self.get_mut(&mut write()), value);
        drop(old);
    }
}

impl<T: Clone> Shielded<T> {
    /// A copy of the value.
    pub fn load(&self) -> T {
        self.get(&read()).clone()
    }
}
