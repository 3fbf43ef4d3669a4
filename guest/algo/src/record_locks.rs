//! Record locks on byte ranges (`fcntl(2)`): which conflict, and how one owner's locks merge and split.

use alloc::vec::Vec;

/// A locked range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range<O> {
    /// Holder.
    pub owner: O,
    /// First byte.
    pub start: u64,
    /// Last byte; `i64::MAX` for "to the end".
    pub end: u64,
    /// Write lock.
    pub exclusive: bool,
}

impl<O: Copy + PartialEq> Range<O> {
    fn overlaps(&self, o: &Self) -> bool {
        self.start <= o.end && o.start <= self.end
    }

    fn conflicts(&self, o: &Self) -> bool {
        self.owner != o.owner && (self.exclusive || o.exclusive) && self.overlaps(o)
    }
}

/// The record locks of one file: those of one owner lie together, by start.
#[derive(Clone, Debug)]
pub struct RecordLocks<O> {
    list: Vec<Range<O>>,
}

impl<O> Default for RecordLocks<O> {
    fn default() -> Self {
        Self { list: Vec::new() }
    }
}

impl<O: Copy + PartialEq> RecordLocks<O> {
    /// The first lock of another owner that keeps `want` from being set.
    #[must_use]
    pub fn conflict(&self, want: &Range<O>) -> Option<&Range<O>> {
        self.list.iter().find(|r| want.conflicts(r))
    }

    /// The first lock that the owner of `range` has in it.
    #[must_use]
    pub fn own(&self, range: &Range<O>) -> Option<&Range<O>> {
        self.list.iter().find(|r| r.owner == range.owner && r.overlaps(range))
    }

    /// Puts a lock in its place; `first` is where its owner's locks began.
    fn insert(&mut self, new: Range<O>, first: usize) {
        let after = |r: &Range<O>| r.owner != new.owner || r.start > new.start;
        let first = first.min(self.list.len());
        let at = self.list[first..].iter().position(after).map_or(self.list.len(), |i| first + i);
        self.list.insert(at, new);
    }

    fn first_of(&self, owner: O) -> usize {
        self.list.iter().position(|r| r.owner == owner).unwrap_or(self.list.len())
    }

    /// Replaces what the owner has in the range by `new`, which must not conflict; joins it with neighbours of its
    /// kind.
    pub fn set(&mut self, new: Range<O>) {
        let first = self.first_of(new.owner);
        self.clear(&new);
        let mut new = new;
        self.list.retain(|r| {
            let touches = r.start <= new.end.saturating_add(1) && new.start <= r.end.saturating_add(1);
            let joins = r.owner == new.owner && r.exclusive == new.exclusive && touches;
            if joins {
                new.start = new.start.min(r.start);
                new.end = new.end.max(r.end);
            }
            !joins
        });
        self.insert(new, first);
    }

    /// Removes what the owner of `hole` has in its range; locks that reach beyond it keep the rest.
    pub fn clear(&mut self, hole: &Range<O>) {
        let mut rest = Vec::new();
        let first = self.first_of(hole.owner);
        self.list.retain(|r| {
            if r.owner != hole.owner || !r.overlaps(hole) {
                return true;
            }
            if r.start < hole.start {
                rest.push(Range { end: hole.start - 1, ..*r });
            }
            if r.end > hole.end {
                rest.push(Range { start: hole.end + 1, ..*r });
            }
            false
        });
        for r in rest {
            self.insert(r, first);
        }
    }

    /// Removes all locks that `drop` picks.
    pub fn drop_where(&mut self, drop: impl Fn(&Range<O>) -> bool) {
        self.list.retain(|r| !drop(r));
    }

    /// Parts of a range that nobody has locked, in order.
    #[must_use]
    pub fn free(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let mut taken: Vec<_> = self.list.iter().map(|r| (r.start, r.end)).collect();
        taken.sort_unstable();
        let (mut free, mut next) = (Vec::new(), start);
        for (first, last) in taken {
            if next > end || first > end {
                break;
            }
            if first > next {
                free.push((next, first - 1));
            }
            next = next.max(last.saturating_add(1));
        }
        if next <= end {
            free.push((next, end));
        }
        free
    }

    /// The locks, owner by owner.
    pub fn iter(&self) -> impl Iterator<Item = &Range<O>> {
        self.list.iter()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn r(owner: u8, start: u64, end: u64, exclusive: bool) -> Range<u8> {
        Range { owner, start, end, exclusive }
    }

    /// What each byte is locked with, per owner: the meaning of the list, byte by byte.
    fn model(locks: &RecordLocks<u8>) -> Vec<[Option<bool>; 2]> {
        (0..40u64)
            .map(|b| {
                [0, 1].map(|o| {
                    let at: Vec<_> =
                        locks.iter().filter(|r| r.owner == o && r.start <= b && b <= r.end).collect();
                    assert!(at.len() <= 1, "a byte locked twice by one owner");
                    at.first().map(|r| r.exclusive)
                })
            })
            .collect()
    }

    #[test]
    fn lists_mean_what_bytes_mean() {
        let mut locks = RecordLocks::default();
        let mut bytes = [[None; 2]; 40];
        let mut x = 1u64;
        let mut next = |n: u64| {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (x >> 33) % n
        };
        for _ in 0..20_000 {
            assert!(locks.list.windows(2).all(|w| w[0].owner != w[1].owner || w[0].start < w[1].start));
            let (a, b) = (next(40), next(40));
            let want = r(next(2) as u8, a.min(b), a.max(b), next(2) == 0);
            let other = usize::from(1 - want.owner);
            let span = want.start as usize..=want.end as usize;
            if next(3) == 0 {
                locks.clear(&want);
                bytes[span].iter_mut().for_each(|b| b[usize::from(want.owner)] = None);
            } else {
                let clash = bytes[span.clone()].iter().any(|b| b[other].is_some_and(|e| e || want.exclusive));
                assert_eq!(locks.conflict(&want).is_some(), clash);
                if !clash {
                    locks.set(want);
                    bytes[span].iter_mut().for_each(|b| b[usize::from(want.owner)] = Some(want.exclusive));
                }
            }
            assert_eq!(model(&locks), bytes);
            let free = locks.free(want.start, want.end);
            for b in want.start..=want.end {
                let is_free = free.iter().any(|(first, last)| (*first..=*last).contains(&b));
                assert_eq!(is_free, bytes[b as usize] == [None; 2]);
            }
            assert!(free.windows(2).all(|w| w[0].1 + 1 < w[1].0));
        }
    }

    #[test]
    fn neighbours_join() {
        let mut l = RecordLocks::default();
        l.set(r(1, 0, 9, true));
        l.set(r(1, 20, 29, true));
        l.set(r(1, 10, 19, true));
        assert_eq!(l.len(), 1);
        l.set(r(1, 5, 5, false));
        assert_eq!(l.len(), 3);
        l.clear(&r(1, 0, i64::MAX as u64, false));
        assert!(l.is_empty());
    }
}
