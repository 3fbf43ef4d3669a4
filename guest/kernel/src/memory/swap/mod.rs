//! Pages that have left memory: the swap region and who has what of it (docs/memory.md).
//!
//! Key types: [`Region`] (the domain's, which of its pages are taken), [`Extent`] (pages of it that somebody's memory is mapped
//! from), [`Piece`] (a range of a space that is). A page that has left memory is mapped from the region, private, so the host
//! brings it back when it is touched, whoever touches it, and a fork shares it. An extent goes when nobody refers to it.
//! Boundary: what leaves memory is the host's choice ([`out`]), since only the host sees which pages there are.
//! Lock order: mm → freed → blocks. Freed pages are punched by [`Region::tidy`], without any lock.

mod out;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use doppel_algo::buddy::Buddy;
use doppel_algo::rangemap;
use doppel_machine::sync::SpinLock;
use doppel_machine::{boot, swap};

use super::map::Inner;
use super::{Mm, PAGE};
use crate::core::part::Part;

/// Freed pages from which on PID 1 is woken to punch them out: a mebibyte.
const TIDY_PAGES: u64 = 256;

/// The swap region.
#[derive(Default)]
pub struct Region {
    /// Made when the first page goes there: most domains have no region.
    blocks: SpinLock<Option<Buddy>>,
    /// Pages that are nobody's any more, and hold something still.
    freed: SpinLock<Vec<(u64, u64)>>,
    freed_pages: AtomicU64,
    /// Pages that hold something.
    used: AtomicU64,
    /// Counts clones: extents of the domain that was frozen are of another region.
    generation: AtomicU32,
}

/// The domain's.
pub static REGION: Part<Region> = Part::new();

/// Pages of the region that memory is mapped from.
#[derive(Debug)]
pub(super) struct Extent {
    page: u64,
    count: u64,
    generation: u32,
}

impl Drop for Extent {
    fn drop(&mut self) {
        REGION.free(self);
    }
}

/// A range of a space that is mapped from the region.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    extent: Arc<Extent>,
    /// Page of the region at which the range begins.
    page: u64,
}

impl rangemap::Piece for Piece {
    fn tail(&self, delta: u64) -> Self {
        Self { extent: self.extent.clone(), page: self.page + delta / PAGE }
    }

    fn continues(&self, len: u64, next: &Self) -> bool {
        Arc::ptr_eq(&self.extent, &next.extent) && self.page + len / PAGE == next.page
    }
}

impl Region {
    /// Bytes that hold pages, and all bytes; 0 of none if there is no region.
    pub fn usage(&self) -> (u64, u64) {
        (self.used.load(Ordering::Relaxed) * PAGE, swap::pages() * PAGE)
    }

    /// `count` pages in a row, which read as zeros; none if there is no room.
    fn take(&self, count: u64) -> Option<Arc<Extent>> {
        let order = count.next_power_of_two().trailing_zeros() as usize;
        let mut blocks = self.blocks.lock();
        let all = blocks.get_or_insert_with(|| Buddy::new(swap::pages()));
        let page = all.alloc(order)?;
        give(all, page + count, (1 << order) - count);
        drop(blocks);
        self.used.fetch_add(count, Ordering::Relaxed);
        self.say();
        Some(Arc::new(Extent { page, count, generation: self.generation.load(Ordering::Relaxed) }))
    }

    fn free(&self, extent: &Extent) {
        if extent.generation != self.generation.load(Ordering::Relaxed) {
            return;
        }
        self.freed.lock().push((extent.page, extent.count));
        let before = self.freed_pages.fetch_add(extent.count, Ordering::Relaxed);
        if before < TIDY_PAGES && before + extent.count >= TIDY_PAGES {
            boot::wake_init();
        }
    }

    /// Gives what pages that are nobody's hold back to the host. Runs on PID 1.
    pub fn tidy(&self) {
        if self.freed_pages.load(Ordering::Relaxed) == 0 || super::is_saved_still() {
            return;
        }
        let freed = core::mem::take(&mut *self.freed.lock());
        let mut kept = Vec::new();
        for (page, count) in freed {
            if swap::punch(page, count).is_err() {
                kept.push((page, count));
                continue;
            }
            self.freed_pages.fetch_sub(count, Ordering::Relaxed);
            self.used.fetch_sub(count, Ordering::Relaxed);
            if let Some(all) = &mut *self.blocks.lock() {
                give(all, page, count);
            }
        }
        // They are tried again with the next ones.
        self.freed.lock().extend(kept);
        self.say();
    }

    fn say(&self) {
        boot::vregs().swap_used.store(self.used.load(Ordering::Relaxed) * PAGE, Ordering::Relaxed);
    }

    /// In a clone: its image has what was in the region that stayed behind; its own is empty.
    pub fn adopt(&self) {
        self.generation.fetch_add(1, Ordering::Relaxed);
        *self.blocks.lock() = None;
        self.freed.lock().clear();
        self.freed_pages.store(0, Ordering::Relaxed);
        self.used.store(0, Ordering::Relaxed);
    }
}

/// Gives `count` pages to an allocator, in blocks as large as their place allows.
fn give(all: &mut Buddy, mut page: u64, mut count: u64) {
    while count > 0 {
        let order = page.trailing_zeros().min(count.ilog2());
        all.free(page, order as usize);
        page += 1 << order;
        count -= 1 << order;
    }
}

impl Inner {
    /// What is mapped from the region has moved with its addresses.
    pub(super) fn move_swapped(&mut self, from: u64, to: u64, len: u64) {
        for (s, e, piece) in self.swapped.remove(from, from + len) {
            self.swapped.insert(to + (s - from), to + (e - from), piece);
        }
    }

    /// Bytes of a range that are mapped from the region.
    pub(super) fn swapped_in(&self, start: u64, end: u64) -> u64 {
        self.swapped.overlapping(start, end).map(|(s, e, _)| e.min(end) - s.max(start)).sum()
    }
}

impl Mm {
    /// Bytes of this space that are mapped from the region. Some of them may be in memory again.
    pub fn swapped(&self) -> u64 {
        self.lock().swapped.iter().map(|(s, e, _)| e - s).sum()
    }
}
