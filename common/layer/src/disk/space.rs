//! Free blocks of the data area.

use alloc::collections::BTreeMap;

/// Extents that are looked at before the largest of them is taken.
const LOOKED_AT: usize = 64;

/// Extents of blocks to which nothing refers.
#[derive(Debug)]
pub(crate) struct Space {
    free: BTreeMap<u64, u64>,
    total: u64,
    /// Where looking begins: behind what was taken last, so that files lie in a row.
    hand: u64,
}

impl Space {
    /// All blocks of `first..end` are free.
    pub fn new(first: u64, end: u64) -> Self {
        let total = end.saturating_sub(first);
        let free = if total == 0 { BTreeMap::new() } else { BTreeMap::from([(first, total)]) };
        Self { free, total, hand: first }
    }

    /// How many are free.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Takes these; false if one of them is not free.
    pub fn claim(&mut self, block: u64, count: u64) -> bool {
        let before = self.free.range(..=block).next_back().map(|(start, len)| (*start, *len));
        let Some((start, len)) = before else { return false };
        let Some(end) = block.checked_add(count).filter(|end| *end <= start + len) else { return false };
        self.free.remove(&start);
        if block > start {
            self.free.insert(start, block - start);
        }
        if end < start + len {
            self.free.insert(end, start + len - end);
        }
        self.total -= count;
        true
    }

    /// Takes at most `want` in a row: the first, and how many; none if nothing is free.
    pub fn take(&mut self, want: u64) -> Option<(u64, u64)> {
        let from_hand = self.free.range(self.hand..).chain(self.free.range(..self.hand));
        let mut best: Option<(u64, u64)> = None;
        for (start, len) in from_hand.take(LOOKED_AT).map(|(start, len)| (*start, *len)) {
            if best.is_none_or(|(_, most)| most < len) {
                best = Some((start, len));
            }
            if len >= want {
                break;
            }
        }
        let (start, len) = best?;
        let count = len.min(want);
        let taken = self.claim(start, count);
        debug_assert!(taken);
        self.hand = start + count;
        Some((start, count))
    }

    /// Gives back what was taken.
    pub fn give(&mut self, block: u64, count: u64) {
        let (mut start, mut end) = (block, block + count);
        if let Some((s, len)) = self.free.range(..=block).next_back().map(|(s, len)| (*s, *len))
            && s + len == block
        {
            start = s;
        }
        if let Some(len) = self.free.remove(&end) {
            end += len;
        }
        self.free.insert(start, end - start);
        self.total += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// The same by a table.
    #[test]
    fn it_does_what_a_table_does() {
        let mut seed = 3u64;
        let mut random = |n: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % n
        };
        let (mut space, mut taken) = (Space::new(10, 210), [false; 210]);
        let mut held: Vec<(u64, u64)> = Vec::new();
        for _ in 0..4000 {
            if random(2) == 0 {
                let free = taken[10..].iter().filter(|t| !**t).count() as u64;
                let got = space.take(random(30) + 1);
                assert_eq!(got.is_none(), free == 0);
                if let Some((block, count)) = got {
                    assert!(taken[block as usize..(block + count) as usize].iter().all(|t| !t));
                    taken[block as usize..(block + count) as usize].fill(true);
                    held.push((block, count));
                }
            } else if !held.is_empty() {
                let (block, count) = held.swap_remove(random(held.len() as u64) as usize);
                assert!(!space.claim(block, 1));
                space.give(block, count);
                taken[block as usize..(block + count) as usize].fill(false);
            }
            assert_eq!(space.total(), taken[10..].iter().filter(|t| !**t).count() as u64);
        }
        for (block, count) in held {
            space.give(block, count);
        }
        assert_eq!(space.take(1000), Some((10, 200)));
    }
}
