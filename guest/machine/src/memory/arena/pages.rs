//! The page level: a buddy allocator.
//!
//! All that is known of a page is a word in a table ([`Pages::word`]), so that a free page holds nothing and can be
//! given back to the host. The table is in two parts: that of the first pages lies before them, the rest at the end of
//! the arena, so that what a small domain uses lies close together.

use doppel_abi_machine::layout::PAGE;

#[cfg(test)]
pub(super) mod tests;

/// The largest block is 1 GiB.
pub(super) const MAX_ORDER: usize = 18;
/// Where the table starts: before it is the header.
pub(super) const MAP_OFFSET: u64 = 1024;
/// Where the pages start.
const BASE_OFFSET: u64 = 16 * PAGE;
/// Pages whose words lie in the first part of the table.
const NEAR: u64 = (BASE_OFFSET - MAP_OFFSET) / 8;
/// So many free pages that hold memory of the host are worth a [`trim`](super::trim()).
const DIRTY_MANY: u64 = 256;

/// The word of a free block's first page: numbers of the neighbours in its list plus 1 (0: none), order plus 1,
/// whether the block is all zeros. The words of all other pages are 0.
#[derive(Clone, Copy)]
struct Word {
    next: u64,
    prev: u64,
    order: u64,
    clean: bool,
}

const NUMBER_BITS: u32 = 24;
const NUMBER: u64 = (1 << NUMBER_BITS) - 1;
const ORDER_AT: u32 = 2 * NUMBER_BITS;
const CLEAN_AT: u32 = 63;

impl Word {
    fn pack(self) -> u64 {
        self.next | self.prev << NUMBER_BITS | self.order << ORDER_AT | u64::from(self.clean) << CLEAN_AT
    }

    fn unpack(w: u64) -> Self {
        Self {
            next: w & NUMBER,
            prev: w >> NUMBER_BITS & NUMBER,
            order: w >> ORDER_AT & 0xff,
            clean: w >> CLEAN_AT != 0,
        }
    }
}

/// The allocator of a range of memory. It touches nothing of it but the table.
pub(super) struct Pages {
    /// First free block of each order, plus 1.
    free: [u64; MAX_ORDER + 1],
    start: u64,
    count: u64,
    /// Pages from here on were never allocated: they are handed out in order, without touching their words.
    fresh: u64,
    /// Pages in free blocks that are not known to be zeros.
    dirty: u64,
    /// Where the word of page 0 would be, if it were in the second part of the table.
    far: u64,
}

impl Pages {
    /// The allocator of `size` bytes of zeros from `start` on. What lies before [`MAP_OFFSET`] is the caller's.
    pub(super) fn new(start: u64, size: u64) -> Self {
        let all = size / PAGE;
        assert!(all < NUMBER, "the arena is too large");
        let far = (start + size - all * 8) & !(PAGE - 1);
        let count = (far - start - BASE_OFFSET) / PAGE;
        Self { free: [0; MAX_ORDER + 1], start, count, fresh: 0, dirty: 0, far }
    }

    /// Pages there are.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Pages that were ever allocated.
    pub(super) fn used(&self) -> u64 {
        self.fresh
    }

    /// Bytes from the start of the arena to the end of those.
    pub(super) fn used_end(&self) -> u64 {
        BASE_OFFSET + self.fresh * PAGE
    }

    /// Whether it is worth giving free pages back.
    pub(super) fn dirty_much(&self) -> bool {
        self.dirty >= DIRTY_MANY
    }

    fn number(&self, at: u64) -> u64 {
        (at - self.address(0)) / PAGE
    }

    /// Where a page is.
    pub(super) fn address(&self, page: u64) -> u64 {
        self.start + BASE_OFFSET + page * PAGE
    }

    fn word(&self, page: u64) -> *mut u64 {
        let from = if page < NEAR { self.start + MAP_OFFSET } else { self.far };
        (from + page * 8) as *mut u64
    }

    fn get(&self, page: u64) -> Word {
        // SAFETY: every page has a word, which only this allocator uses, borrowed here.
        Word::unpack(unsafe { self.word(page).read() })
    }

    fn set(&mut self, page: u64, word: Word) {
        // SAFETY: as for get.
        unsafe { self.word(page).write(word.pack()) };
    }

    fn push(&mut self, order: usize, page: u64, clean: bool) {
        let next = self.free[order];
        self.set(page, Word { next, prev: 0, order: 1 + order as u64, clean });
        if next != 0 {
            let w = self.get(next - 1);
            self.set(next - 1, Word { prev: page + 1, ..w });
        }
        self.free[order] = page + 1;
        if !clean {
            self.dirty += 1 << order;
        }
    }

    /// Takes a block from its list; whether it was clean.
    fn unlink(&mut self, order: usize, page: u64) -> bool {
        let Word { next, prev, clean, .. } = self.get(page);
        if prev == 0 {
            self.free[order] = next;
        } else {
            let w = self.get(prev - 1);
            self.set(prev - 1, Word { next, ..w });
        }
        if next != 0 {
            let w = self.get(next - 1);
            self.set(next - 1, Word { prev, ..w });
        }
        // SAFETY: as for get.
        unsafe { self.word(page).write(0) };
        if !clean {
            self.dirty -= 1 << order;
        }
        clean
    }

    /// A block from a free one of less than `1 << below` pages.
    pub(super) fn alloc_below(&mut self, order: usize, below: usize) -> Option<(u64, bool)> {
        let from = (order..below).find(|o| self.free[*o] != 0)?;
        let page = self.free[from] - 1;
        let clean = self.unlink(from, page);
        for half in (order..from).rev() {
            self.push(half, page + (1 << half), clean);
        }
        Some((self.address(page), clean))
    }

    /// A block of `1 << order` pages, and whether it is known to be all zeros.
    pub(super) fn alloc(&mut self, order: usize) -> Option<(u64, bool)> {
        if let Some(found) = self.alloc_below(order, MAX_ORDER + 1) {
            return Some(found);
        }
        // Fresh pages, aligned to the block size; what alignment skips goes to the free lists.
        let want = 1u64 << order;
        while !self.fresh.is_multiple_of(want) {
            let o = self.fresh.trailing_zeros() as usize;
            if self.fresh + (1 << o) > self.count {
                return None;
            }
            let page = self.fresh;
            self.fresh += 1 << o;
            self.push(o, page, true);
        }
        if self.fresh + want > self.count {
            return None;
        }
        let at = self.address(self.fresh);
        self.fresh += want;
        Some((at, true))
    }

    /// Takes a block back; `clean`: it is all zeros.
    pub(super) fn free(&mut self, at: u64, order: usize, mut clean: bool) {
        let mut page = self.number(at);
        let mut o = order;
        while o < MAX_ORDER {
            let buddy = page ^ (1 << o);
            if buddy + (1 << o) > self.fresh || self.get(buddy).order != 1 + o as u64 {
                break;
            }
            clean &= self.unlink(o, buddy);
            page &= !(1 << o);
            o += 1;
        }
        self.push(o, page, clean);
    }

    /// Forgets that free blocks which start in the first `below` bytes of the arena are clean.
    pub(super) fn taint(&mut self, below: u64) {
        let mut dirty = 0;
        for order in 0..=MAX_ORDER {
            let mut at = self.free[order];
            while at != 0 {
                let w = self.get(at - 1);
                if w.clean && self.address(at - 1) < self.start + below {
                    self.set(at - 1, Word { clean: false, ..w });
                    dirty += 1 << order;
                }
                at = w.next;
            }
        }
        self.dirty += dirty;
    }

    /// Takes free blocks that are not clean out of the lists, as if they were allocated: address and order of each;
    /// none that starts in the first `spare` bytes of the arena. Returns how many.
    pub(super) fn take_dirty(&mut self, spare: u64, found: &mut [(u64, usize)]) -> usize {
        let mut n = 0;
        for order in (0..=MAX_ORDER).rev() {
            let mut at = self.free[order];
            while at != 0 && n < found.len() && self.dirty > 0 {
                let (page, w) = (at - 1, self.get(at - 1));
                if !w.clean && self.address(page) >= self.start + spare {
                    self.unlink(order, page);
                    found[n] = (self.address(page), order);
                    n += 1;
                }
                at = w.next;
            }
        }
        n
    }
}
