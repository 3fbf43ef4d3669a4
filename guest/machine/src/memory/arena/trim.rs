//! Giving memory back to the host.
//!
//! [`trim`] looks for pages all of whose small blocks are free, returns them to the page level, and then has the host
//! drop every free page. Nothing waits for it: free lists are taken out of the allocator while they are looked through,
//! and free pages while the host is called.

use core::sync::atomic::Ordering;

use doppel_abi_machine::layout::{ARENA_BASE, PAGE};

use super::{CLASS_SPARE, CLASSES, Class, Header, alloc_pages, free_pages, header, order_of, per_page};
use crate::host;

#[cfg(test)]
mod tests;

/// Free blocks given back between two looks at the page level.
const BATCH: usize = 16;
/// Looks of one [`trim`] at most: others go on freeing meanwhile.
const LOOKS: usize = 4096;

/// In the table of free blocks by page: the page goes, as soon as so many blocks more have been passed.
const GOES: u16 = 1 << 15;

/// Notes that a trim pays, and wakes PID 1 if that is news.
pub(super) fn want(h: &Header) {
    if !h.trim_wanted.swap(true, Ordering::Relaxed) {
        crate::rings::control::wake_init();
    }
}

/// Whether so much has been freed since the last [`trim`] that another pays.
pub fn trim_wanted() -> bool {
    header().trim_wanted.load(Ordering::Relaxed)
}

/// What [`trim`] does with huge pages ([`gather`](super::gather)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Huge {
    /// Leaves them alone.
    Spare,
    /// Fills what is free in them with zeros.
    Clear,
    /// Takes them apart.
    Split,
}

/// Gives free memory back to the host.
pub fn trim(huge: Huge) {
    let h = header();
    h.trim_wanted.store(false, Ordering::Relaxed);
    release_pages(h);
    let gathered = h.gathered.load(Ordering::Relaxed);
    if huge == Huge::Split && gathered > 0 {
        // Free memory that was clean has been filled with zeros by that.
        h.pages.lock().taint(gathered);
        h.gathered.store(0, Ordering::Relaxed);
    }
    let spare = if huge == Huge::Spare { gathered } else { 0 };
    let mut found = [(0, 0); BATCH];
    for _ in 0..LOOKS {
        let n = h.pages.lock().take_dirty(spare, &mut found);
        if n == 0 {
            return;
        }
        for &(at, order) in &found[..n] {
            // SAFETY: taken from the free pages.
            unsafe { discard(at, at + (PAGE << order)) };
            h.pages.lock().free(at, order, true);
        }
    }
}

/// Fills the pages that lie entirely in `start..end`, a part of an allocation that holds nothing, with zeros.
///
/// # Safety
/// Nobody may use them.
pub(crate) unsafe fn discard(start: u64, end: u64) {
    let (start, end) = (start.next_multiple_of(PAGE), end / PAGE * PAGE);
    if start >= end {
        return;
    }
    let huge = start - ARENA_BASE < header().gathered.load(Ordering::Relaxed);
    if huge || host::punch_arena(start - ARENA_BASE, end - start).is_err() {
        // SAFETY: forwarded contract.
        unsafe { (start as *mut u8).write_bytes(0, (end - start) as usize) };
    }
}

/// Returns pages all of whose small blocks are free to the page level.
fn release_pages(h: &Header) {
    let pages = h.pages.lock().used();
    let order = order_of(pages as usize * size_of::<u16>());
    let (table, zeroed) = alloc_pages(h, order);
    if table.is_null() {
        return;
    }
    // SAFETY: the block is so long and nobody else's; all bytes are valid numbers.
    let counts = unsafe {
        if !zeroed {
            table.write_bytes(0, (PAGE as usize) << order);
        }
        core::slice::from_raw_parts_mut(table.cast::<u16>(), pages as usize)
    };
    for c in 0..CLASSES.len() {
        release_class(h, c, counts);
    }
    free_pages(h, table as u64, order);
}

/// As [`release_pages`], of one class; `counts` is room for a number for each page.
fn release_class(h: &Header, c: usize, counts: &mut [u16]) {
    let size = u64::from(CLASSES[c]);
    let taken = {
        let mut class = h.classes[c].lock();
        let unused = (class.end - class.next) / size;
        (u64::from(class.count) + unused >= per_page(c)).then(|| take(&mut class, size))
    };
    let (kept, count) = taken.map_or((List::default(), 0), |list| {
        // Nothing of the classes before: a page that one of them gave back may have been cut for this one since.
        counts.fill(0);
        sort(h, list, per_page(c) as u16, counts)
    });
    let mut class = h.classes[c].lock();
    // SAFETY: the blocks are on no other list.
    unsafe { kept.put_before(&mut class) };
    class.count += count;
    class.spare = (CLASS_SPARE / size as u32).max(class.count.saturating_mul(2));
}

/// Takes all that is free in a class, the part of a page that was never handed out included.
fn take(class: &mut Class, size: u64) -> *mut u64 {
    while class.next != class.end {
        class.end -= size;
        let block = class.end as *mut u64;
        // SAFETY: a block of the class that nobody has; a free block's first word is the next free block.
        unsafe { block.write(class.free as u64) };
        class.free = block;
    }
    class.count = 0;
    core::mem::replace(&mut class.free, core::ptr::null_mut())
}

/// A list of free blocks whose end is known.
struct List {
    first: *mut u64,
    last: *mut u64,
}

impl Default for List {
    fn default() -> Self {
        Self { first: core::ptr::null_mut(), last: core::ptr::null_mut() }
    }
}

impl List {
    /// # Safety
    /// The block must be free and on no list.
    unsafe fn push(&mut self, block: *mut u64) {
        // SAFETY: forwarded contract; a free block's first word is the next free block.
        unsafe { block.write(self.first as u64) };
        self.first = block;
        if self.last.is_null() {
            self.last = block;
        }
    }

    /// # Safety
    /// The blocks must be free, of this class, and on no other list.
    unsafe fn put_before(self, class: &mut Class) {
        if !self.first.is_null() {
            // SAFETY: forwarded contract.
            unsafe { self.last.write(class.free as u64) };
            class.free = self.first;
        }
    }
}

/// Goes through a class' free blocks: frees the pages that consist of them, and returns the others with their number,
/// those of well used pages first, so that pages with few blocks in use become empty. `counts` is all zeros.
fn sort(h: &Header, list: *mut u64, per_page: u16, counts: &mut [u16]) -> (List, u32) {
    let first = h.pages.lock().address(0);
    let number = |block: *mut u64| ((block as u64 - first) / PAGE) as usize;
    let next = |block: *mut u64| {
        // SAFETY: the list's blocks are free, and only this code knows them; the first word leads to the next.
        unsafe { block.read() as *mut u64 }
    };
    let mut at = list;
    while !at.is_null() {
        // Pages that are newer than the table are kept.
        if let Some(n) = counts.get_mut(number(at)) {
            *n += 1;
        }
        at = next(at);
    }
    let (mut dense, mut thin, mut count) = (List::default(), List::default(), 0);
    at = list;
    while !at.is_null() {
        let block = at;
        at = next(block);
        let free = counts.get_mut(number(block));
        if let Some(n) = free.filter(|n| **n == per_page || **n & GOES != 0) {
            *n = GOES | ((*n & !GOES) - 1);
            if *n == GOES {
                free_pages(h, block as u64 / PAGE * PAGE, 0);
            }
            continue;
        }
        let many = counts.get(number(block)).is_some_and(|n| *n > per_page / 2);
        count += 1;
        // SAFETY: taken off its list above.
        unsafe { if many { thin.push(block) } else { dense.push(block) } };
    }
    if dense.first.is_null() {
        return (thin, count);
    }
    // SAFETY: the last block of a list, whose first word ends it.
    unsafe { dense.last.write(thin.first as u64) };
    if !thin.last.is_null() {
        dense.last = thin.last;
    }
    (dense, count)
}
