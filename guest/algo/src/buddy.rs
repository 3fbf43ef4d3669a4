//! A buddy allocator of page ranges: power-of-two blocks, merged when freed.
//!
//! It only counts; what the pages are is the caller's business. Blocks never handed out before come from a
//! rising mark, so an untouched tail costs nothing.

use alloc::collections::BTreeSet;

/// Number of block sizes: blocks of 1 to 2^(ORDERS-1) pages.
pub const ORDERS: usize = 20;

/// Allocator of pages `0..end`.
pub struct Buddy {
    free: [BTreeSet<u64>; ORDERS],
    /// Pages from here on were never handed out.
    top: u64,
    end: u64,
}

impl Buddy {
    /// An allocator with `end` pages, all free.
    #[must_use]
    pub fn new(end: u64) -> Self {
        Self { free: [const { BTreeSet::new() }; ORDERS], top: 0, end }
    }

    /// First page of a free block of `1 << order` pages, aligned to its size.
    pub fn alloc(&mut self, order: usize) -> Option<u64> {
        let found = (order..ORDERS).find(|o| !self.free[*o].is_empty());
        if let Some(from) = found {
            let page = self.free[from].pop_first()?;
            for o in order..from {
                self.free[o].insert(page + (1 << o));
            }
            return Some(page);
        }
        if order >= ORDERS {
            return None;
        }
        let start = self.top.next_multiple_of(1 << order);
        let stop = start.checked_add(1 << order).filter(|s| *s <= self.end)?;
        // What alignment skipped goes to the free lists, in aligned blocks.
        while self.top < start {
            let o = self.top.trailing_zeros() as usize;
            self.free[o].insert(self.top);
            self.top += 1 << o;
        }
        self.top = stop;
        Some(start)
    }

    /// Gives a block back.
    pub fn free(&mut self, mut page: u64, mut order: usize) {
        while order + 1 < ORDERS && self.free[order].remove(&(page ^ (1 << order))) {
            page &= !(1 << order);
            order += 1;
        }
        self.free[order].insert(page);
    }

    /// Pages from this one on were never handed out.
    #[must_use]
    pub fn end_of_used(&self) -> u64 {
        self.top
    }

    /// Pages not handed out.
    #[must_use]
    pub fn free_pages(&self) -> u64 {
        let listed: u64 = self.free.iter().enumerate().map(|(o, s)| (s.len() as u64) << o).sum();
        listed + (self.end - self.top)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn blocks_are_aligned_disjoint_and_come_back() {
        let mut b = Buddy::new(1 << 12);
        let mut held: Vec<(u64, usize)> = Vec::new();
        let mut x = 7u64;
        for _ in 0..20_000 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            if x >> 63 == 0 && !held.is_empty() {
                let (p, o) = held.swap_remove((x >> 20) as usize % held.len());
                b.free(p, o);
            } else {
                let o = (x >> 40) as usize % 8;
                if let Some(p) = b.alloc(o) {
                    assert!(p.is_multiple_of(1 << o) && p + (1 << o) <= 1 << 12);
                    assert!(held.iter().all(|(q, r)| p + (1 << o) <= *q || q + (1 << r) <= p));
                    held.push((p, o));
                }
            }
            let used: u64 = held.iter().map(|(_, o)| 1u64 << o).sum();
            assert_eq!(b.free_pages(), (1 << 12) - used);
        }
        for (p, o) in held.drain(..) {
            b.free(p, o);
        }
        assert_eq!(b.free_pages(), 1 << 12);
        assert!(b.alloc(11).is_some());
    }

    #[test]
    fn exhaustion_is_none() {
        let mut b = Buddy::new(3);
        assert_eq!(b.alloc(1), Some(0));
        assert_eq!(b.alloc(1), None);
        assert_eq!(b.alloc(0), Some(2));
        assert_eq!(b.alloc(0), None);
    }
}
