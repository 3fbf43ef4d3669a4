//! A task's use of a table: lookups without a lock. The rules are in the parent module's head.

use alloc::sync::Arc;
use core::cell::{Cell as Plain, UnsafeCell};
use core::ops::Deref;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

use super::{Cell, Slots, task_id};

/// What contains a [`Slots`].
pub trait Table: Send + Sync {
    /// The items.
    type Item: Send + Sync;
    /// What is kept with them.
    type Meta: Send;
    /// The table itself.
    fn slots(&self) -> &Slots<Self::Item, Self::Meta>;
}

type SlotsOf<H> = Slots<<H as Table>::Item, <H as Table>::Meta>;

/// One task's use of a table. Its methods are for the task itself; the first to call one is that task.
pub struct Attached<H: Table> {
    task: AtomicU64,
    /// [`Held`]s and [`Borrowed`]s that exist.
    borrowed: Plain<u32>,
    /// Of `table`, as long as that is set.
    slots: Plain<Option<NonNull<SlotsOf<H>>>>,
    table: UnsafeCell<Option<Arc<H>>>,
}

// SAFETY: the cells are touched by one task only, which `mine` checks.
unsafe impl<H: Table> Sync for Attached<H> {}
// SAFETY: an Arc of something Sync, and numbers.
unsafe impl<H: Table> Send for Attached<H> {}

impl<H: Table> Attached<H> {
    /// Attaches a task that has not run yet to `table`. A table with an owner is shared by the owner only.
    pub fn new(table: Option<Arc<H>>) -> Self {
        let slots = table.as_ref().map(|t| {
            t.slots().attach();
            NonNull::from(t.slots())
        });
        Self {
            task: AtomicU64::new(0),
            borrowed: Plain::new(0),
            slots: Plain::new(slots),
            table: UnsafeCell::new(table),
        }
    }

    /// This task, after checking that it is the one this belongs to.
    #[inline]
    fn mine(&self) -> u64 {
        let me = task_id();
        if self.task.load(Ordering::Relaxed) != me {
            let r = self.task.compare_exchange(0, me, Ordering::AcqRel, Ordering::Relaxed);
            assert!(r.is_ok(), "a task uses another's table");
        }
        me
    }

    /// The item of number `i`.
    #[inline]
    pub fn get(&self, i: usize) -> Option<Held<'_, H::Item, H::Meta>> {
        let me = self.mine();
        let slots = self.slots.get()?;
        // SAFETY: `table` keeps it, and only this task replaces that.
        let s = unsafe { slots.as_ref() };
        let cell = if s.owner.load(Ordering::Relaxed) == me { s.get_owned(i) } else { s.get_shared(i, me) }?;
        self.borrowed.set(self.borrowed.get() + 1);
        Some(Held { slots, cell, count: &self.borrowed })
    }

    /// The table.
    #[inline]
    pub fn table(&self) -> Option<Borrowed<'_, H>> {
        self.mine();
        // SAFETY: only this task changes it, and not while something is borrowed (replace and leave check).
        let table = unsafe { (*self.table.get()).as_ref()? };
        self.borrowed.set(self.borrowed.get() + 1);
        Some(Borrowed { table, count: &self.borrowed })
    }

    /// Uses another table (`None`: none any more) from now on; returns the old one.
    pub fn replace(&self, new: Option<Arc<H>>) -> Option<Arc<H>> {
        let me = self.mine();
        assert!(self.borrowed.get() == 0, "a table is replaced while it is borrowed");
        let slots = new.as_ref().map(|t| {
            t.slots().attach();
            NonNull::from(t.slots())
        });
        self.slots.set(slots);
        // SAFETY: only this task touches it, and nothing is borrowed.
        let old = unsafe { core::mem::replace(&mut *self.table.get(), new) };
        if let Some(t) = &old {
            t.slots().detach(me);
        }
        old
    }
}

impl<H: Table> Drop for Attached<H> {
    fn drop(&mut self) {
        if let Some(t) = self.table.get_mut() {
            t.slots().detach(*self.task.get_mut());
        }
    }
}

/// An item looked up by a task: it stays while this lives, even if it is removed from the table.
pub struct Held<'a, T, M> {
    slots: NonNull<Slots<T, M>>,
    cell: NonNull<Cell<T>>,
    count: &'a Plain<u32>,
}

impl<T, M> Held<'_, T, M> {
    /// Whether no other task looks items up in the table this one came from.
    #[inline]
    pub fn unshared(&self) -> bool {
        // SAFETY: rule 4.
        unsafe { self.slots.as_ref() }.owner.load(Ordering::Relaxed) == task_id()
    }
}

impl<T, M> Deref for Held<'_, T, M> {
    type Target = Arc<T>;
    #[inline]
    fn deref(&self) -> &Arc<T> {
        // SAFETY: a held cell keeps its item (rule 2) and its table (rule 4).
        match unsafe { &*self.cell.as_ref().item.get() } {
            Some(t) => t,
            None => unreachable!("a held cell without an item"),
        }
    }
}

impl<T, M> Drop for Held<'_, T, M> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: rule 4.
        unsafe { self.slots.as_ref() }.release(self.cell);
        self.count.set(self.count.get() - 1);
    }
}

/// A task's table, borrowed without touching its count.
pub struct Borrowed<'a, H> {
    table: &'a Arc<H>,
    count: &'a Plain<u32>,
}

impl<H> Deref for Borrowed<'_, H> {
    type Target = Arc<H>;
    #[inline]
    fn deref(&self) -> &Arc<H> {
        self.table
    }
}

impl<H> Drop for Borrowed<'_, H> {
    #[inline]
    fn drop(&mut self) {
        self.count.set(self.count.get() - 1);
    }
}
