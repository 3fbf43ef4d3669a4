//! Tables of counted objects that their users read without a lock: descriptor tables.
//!
//! Key types: [`Slots`], the table; [`Attached`], one task's use of a table; [`Held`], an item looked up through
//! it; [`Locked`], the table under its lock, for changes and for everybody else.
//! Boundary: only a task itself looks items up through its [`Attached`] (checked); others take the lock.
//! Lock order: a table's lock is a leaf. Items are dropped, and let go, outside it.
//!
//! What is removed while somebody holds it ([`Removed::Held`]) is still in use: the last holder lets it go, by the
//! function the table was made with, which so may block and call what it likes.
//!
//! An item lies in a *cell*, and a number's entry points to its cell. A cell's word says whether it is in use
//! (`VALID`), or was removed while somebody held it (`CLOSED`), and how many hold it. Cells are reused but never
//! freed before the table, so a stale pointer to one is harmless. Why this is sound:
//!
//! 1. An item is put into a cell and taken out only under the lock, and only while the word's count is zero and
//!    `VALID` is not set (`set`: a cell from the free list; `retire`: by a step from `VALID` with count 0 to 0;
//!    `dispose`: after the step from `CLOSED` with count 0 to 0, which one task makes).
//! 2. A lookup adds 1 to the count *and* sees `VALID` in one atomic step, so from then on `retire` finds the
//!    count above zero, sets `CLOSED` and leaves the item to whoever takes the count to zero. A lookup that sees
//!    no `VALID` (or another number: the cell was reused) takes its 1 back and touches no item.
//! 3. `owner` names the task that is the only user, if that is known; only this task may change entries then
//!    (checked), and only it looks up, so its counts need no atomic read-modify-write. Others under the lock touch
//!    no word. The owner alone gives this up (`attach` of a second user, made by the owner itself: checked), or
//!    takes it (`try_own`: under the lock, as the only user, when no cell is held by anybody).
//! 4. A task's table cannot go while the task holds an item of it: what is held and borrowed through an
//!    [`Attached`] is counted there, and it keeps its table while the count is not zero (checked).

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::UnsafeCell;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::sync::{SpinGuard, SpinLock};
pub use attached::{Attached, Borrowed, Held, Table};

/// The cell's item is in the table.
const VALID: u32 = 1 << 31;
/// The item was removed; the last holder drops it.
const CLOSED: u32 = 1 << 30;
const COUNT: u32 = CLOSED - 1;
/// Entries in the table itself; level k behind them has `FIRST << k` more.
const FIRST: usize = 64;
const LEVELS: usize = 14;
/// Numbers a table can have.
pub const SLOTS_MAX: usize = FIRST << LEVELS;

// A number that no other live task has. Constant for the code that runs on one stack.
#[cfg(not(test))]
use crate::cpu::task_id;
#[cfg(test)]
use tests::task_id;

struct Cell<T> {
    word: AtomicU32,
    index: AtomicU32,
    item: UnsafeCell<Option<Arc<T>>>,
}

type Entry<T> = AtomicPtr<Cell<T>>;

/// What was removed from a table.
pub enum Removed<T> {
    /// Nobody uses it.
    Free(Arc<T>),
    /// Somebody does, and will let it go.
    Held(Arc<T>),
}

/// A table of `Arc<T>` by small numbers, with data `M` under its lock. See the module's head.
pub struct Slots<T, M> {
    /// Told of what was removed while it was held, when it is held no more.
    let_go: fn(Arc<T>),
    /// The only user's task, 0 while that is not known.
    owner: AtomicU64,
    /// Tasks attached. Changed under the lock.
    users: AtomicU32,
    first: [Entry<T>; FIRST],
    more: [AtomicPtr<Entry<T>>; LEVELS],
    inner: SpinLock<Inner<T, M>>,
}

struct Inner<T, M> {
    meta: M,
    /// One more than the largest number ever used.
    end: usize,
    free: Vec<NonNull<Cell<T>>>,
    chunks: Vec<NonNull<[Cell<T>]>>,
}

// SAFETY: items are shared as Arc<T>; everything else is atomic or under the lock (see the module's head).
unsafe impl<T: Send + Sync, M: Send> Sync for Slots<T, M> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync, M: Send> Send for Slots<T, M> {}

impl<T, M> Slots<T, M> {
    /// An empty table with no users. `let_go`: see the module's head.
    pub fn new(meta: M, let_go: fn(Arc<T>)) -> Self {
        Self {
            let_go,
            owner: AtomicU64::new(0),
            users: AtomicU32::new(0),
            first: [const { AtomicPtr::new(null_mut()) }; FIRST],
            more: [const { AtomicPtr::new(null_mut()) }; LEVELS],
            inner: SpinLock::new(Inner { meta, end: 0, free: Vec::new(), chunks: Vec::new() }),
        }
    }

    /// Tasks that use the table.
    pub fn users(&self) -> u32 {
        self.users.load(Ordering::Relaxed)
    }

    /// Takes the lock.
    pub fn lock(&self) -> Locked<'_, T, M> {
        let inner = self.inner.lock();
        let (owner, users) = (self.owner.load(Ordering::Relaxed), self.users.load(Ordering::Relaxed));
        let alone = users == 0 || owner != 0 && owner == task_id();
        Locked { slots: self, inner, alone, foreign: owner != 0 && !alone }
    }

    #[inline]
    fn entry(&self, i: usize) -> Option<&Entry<T>> {
        if let Some(e) = self.first.get(i) {
            return Some(e);
        }
        let k = (i / FIRST).ilog2() as usize;
        let level = self.more.get(k)?.load(Ordering::Acquire);
        if level.is_null() {
            return None;
        }
        // SAFETY: level k holds the FIRST << k entries from number FIRST << k on, as long as the table.
        Some(unsafe { &*level.add(i - (FIRST << k)) })
    }

    /// Looks up as the only user.
    #[inline]
    fn get_owned(&self, i: usize) -> Option<NonNull<Cell<T>>> {
        let c = NonNull::new(self.entry(i)?.load(Ordering::Relaxed))?;
        // SAFETY: cells live as long as the table. Nobody else changes words now (rule 3).
        let word = unsafe { &c.as_ref().word };
        word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        Some(c)
    }

    /// Looks up as one of several users.
    #[inline(never)]
    fn get_shared(&self, i: usize, me: u64) -> Option<NonNull<Cell<T>>> {
        if self.users() == 1 && self.try_own(me) {
            return self.get_owned(i);
        }
        let entry = self.entry(i)?;
        loop {
            let c = NonNull::new(entry.load(Ordering::Acquire))?;
            // SAFETY: cells live as long as the table.
            let cell = unsafe { c.as_ref() };
            let w = cell.word.fetch_add(1, Ordering::AcqRel);
            if w & VALID != 0 && cell.index.load(Ordering::Relaxed) as usize == i {
                return Some(c);
            }
            self.release(c);
        }
    }

    /// Makes the only user the owner, if nothing is held; see rule 3.
    #[cold]
    fn try_own(&self, me: u64) -> bool {
        let g = self.inner.lock();
        if self.users() != 1 {
            return false;
        }
        for chunk in &g.chunks {
            // SAFETY: chunks live as long as the table.
            let cells = unsafe { chunk.as_ref() };
            if cells.iter().any(|c| c.word.load(Ordering::Acquire) & COUNT != 0) {
                return false;
            }
        }
        self.owner.store(me, Ordering::Relaxed);
        true
    }

    /// Gives back what a lookup took.
    #[inline]
    fn release(&self, c: NonNull<Cell<T>>) {
        // SAFETY: cells live as long as the table.
        let word = unsafe { &c.as_ref().word };
        let left = if self.owner.load(Ordering::Relaxed) == task_id() {
            let left = word.load(Ordering::Relaxed) - 1;
            word.store(left, Ordering::Release);
            left
        } else {
            word.fetch_sub(1, Ordering::AcqRel) - 1
        };
        if left == CLOSED {
            self.dispose(c);
        }
    }

    /// Lets a removed item go that nobody holds any more.
    #[cold]
    fn dispose(&self, c: NonNull<Cell<T>>) {
        // SAFETY: cells live as long as the table.
        let cell = unsafe { c.as_ref() };
        if cell.word.compare_exchange(CLOSED, 0, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return;
        }
        let mut g = self.inner.lock();
        // SAFETY: rule 1: this task made the step to 0, and the cell is not on the free list yet.
        let item = unsafe { (*cell.item.get()).take() };
        g.free.push(c);
        drop(g);
        if let Some(item) = item {
            (self.let_go)(item);
        }
    }

    /// One more task uses the table. If it has an owner, that is the caller.
    fn attach(&self) {
        let _g = self.inner.lock();
        let owner = self.owner.load(Ordering::Relaxed);
        assert!(owner == 0 || owner == task_id(), "a table is shared by its owner only");
        self.owner.store(0, Ordering::Relaxed);
        self.users.store(self.users() + 1, Ordering::Relaxed);
    }

    /// `task`, which is the caller or has ended, uses the table no more.
    fn detach(&self, task: u64) {
        let _g = self.inner.lock();
        if self.owner.load(Ordering::Relaxed) == task {
            self.owner.store(0, Ordering::Relaxed);
        }
        self.users.store(self.users() - 1, Ordering::Release);
    }
}

impl<T, M> Drop for Slots<T, M> {
    fn drop(&mut self) {
        let g = self.inner.lock();
        for chunk in &g.chunks {
            // SAFETY: chunks are freed here only, each once; nobody else has the table any more.
            drop(unsafe { Box::from_raw(chunk.as_ptr()) });
        }
        for (k, level) in self.more.iter().enumerate() {
            let level = level.load(Ordering::Relaxed);
            if !level.is_null() {
                // SAFETY: made by `make_level` with this length, freed here only.
                drop(unsafe { Box::from_raw(core::ptr::slice_from_raw_parts_mut(level, FIRST << k)) });
            }
        }
    }
}

/// A table under its lock. Only the owner may change the entries of a table that has one; anybody may read.
pub struct Locked<'a, T, M> {
    slots: &'a Slots<T, M>,
    inner: SpinGuard<'a, Inner<T, M>>,
    /// No other task looks up: words need no atomic steps.
    alone: bool,
    /// The owner is somebody else.
    foreign: bool,
}

impl<T, M> Locked<'_, T, M> {
    /// The data under the lock.
    pub fn meta(&self) -> &M {
        &self.inner.meta
    }

    /// As [`Self::meta`], to be changed.
    pub fn meta_mut(&mut self) -> &mut M {
        &mut self.inner.meta
    }

    /// One more than the largest number ever used.
    pub fn end(&self) -> usize {
        self.inner.end
    }

    fn cell(&self, i: usize) -> Option<NonNull<Cell<T>>> {
        NonNull::new(self.slots.entry(i)?.load(Ordering::Relaxed))
    }

    /// The item of number `i`.
    pub fn get(&self, i: usize) -> Option<&Arc<T>> {
        // SAFETY: an entry's cell holds an item, which is only changed under the lock (rule 1).
        unsafe { (*self.cell(i)?.as_ref().item.get()).as_ref() }
    }

    /// Makes room for `n` more items.
    pub fn reserve(&mut self, n: usize) {
        if self.inner.free.len() >= n {
            return;
        }
        let n = n - self.inner.free.len();
        let fresh =
            || Cell { word: AtomicU32::new(0), index: AtomicU32::new(0), item: UnsafeCell::new(None) };
        let cells: Box<[Cell<T>]> = core::iter::repeat_with(fresh).take(n).collect();
        // From here on the cells are reached through pointers only, until the table's drop.
        let chunk = Box::into_raw(cells);
        // SAFETY: just made, not null, n cells long.
        unsafe {
            self.inner.chunks.push(NonNull::new_unchecked(chunk));
            for k in (0..n).rev() {
                self.inner.free.push(NonNull::new_unchecked(chunk.cast::<Cell<T>>().add(k)));
            }
        }
    }

    /// Puts `item` at number `i` (below [`SLOTS_MAX`]); what was there is returned. A lookup at the same time
    /// finds the one or the other.
    pub fn set(&mut self, i: usize, item: Arc<T>) -> Option<Removed<T>> {
        assert!(!self.foreign, "a task changes another's table");
        assert!(i < SLOTS_MAX, "number out of range");
        if self.inner.free.is_empty() {
            let have = self.inner.chunks.len();
            self.reserve(8 << have.min(4));
        }
        let Some(c) = self.inner.free.pop() else { unreachable!("just reserved") };
        // SAFETY: cells live as long as the table.
        let cell = unsafe { c.as_ref() };
        // SAFETY: this one was free: nobody reads its item (rule 1).
        unsafe { *cell.item.get() = Some(item) };
        cell.index.store(i as u32, Ordering::Relaxed);
        if self.alone {
            cell.word.store(VALID, Ordering::Relaxed);
        } else {
            // Lookups with a stale pointer may have their 1 in the count.
            cell.word.fetch_or(VALID, Ordering::AcqRel);
        }
        if self.slots.entry(i).is_none() {
            self.make_level(i);
        }
        let Some(entry) = self.slots.entry(i) else { unreachable!("just made") };
        let old = NonNull::new(entry.load(Ordering::Relaxed));
        entry.store(c.as_ptr(), Ordering::Release);
        self.inner.end = self.inner.end.max(i + 1);
        old.map(|c| self.retire(c))
    }

    /// Removes number `i`.
    pub fn take(&mut self, i: usize) -> Option<Removed<T>> {
        assert!(!self.foreign, "a task changes another's table");
        let c = self.cell(i)?;
        self.slots.entry(i)?.store(null_mut(), Ordering::Release);
        Some(self.retire(c))
    }

    fn make_level(&self, i: usize) {
        let k = (i / FIRST).ilog2() as usize;
        let empty = || AtomicPtr::new(null_mut());
        let level: Box<[Entry<T>]> = core::iter::repeat_with(empty).take(FIRST << k).collect();
        self.slots.more[k].store(Box::into_raw(level).cast(), Ordering::Release);
    }

    /// Takes the item out of a cell that no entry refers to any more, or leaves that to its last holder.
    fn retire(&mut self, c: NonNull<Cell<T>>) -> Removed<T> {
        // SAFETY: cells live as long as the table.
        let cell = unsafe { c.as_ref() };
        let step = |w: u32| if w & COUNT == 0 { 0 } else { (w & !VALID) | CLOSED };
        let old = if self.alone {
            let w = cell.word.load(Ordering::Relaxed);
            cell.word.store(step(w), Ordering::Relaxed);
            w
        } else {
            let r = cell.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |w| Some(step(w)));
            r.unwrap_or_else(|w| w)
        };
        // SAFETY: under the lock (rule 1); taken out only after the step to 0.
        let item = unsafe { &mut *cell.item.get() };
        let taken = if old & COUNT == 0 {
            self.inner.free.push(c);
            item.take().map(Removed::Free)
        } else {
            item.clone().map(Removed::Held)
        };
        match taken {
            Some(t) => t,
            None => unreachable!("an entry without an item"),
        }
    }
}

mod attached;
#[cfg(test)]
mod tests;
