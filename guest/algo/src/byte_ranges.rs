//! Which bytes, or pages, of a file something is true of.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

/// Ranges of bytes or pages, none of which touches another.
#[derive(Debug, Default)]
pub struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds one; gives by how many bytes there are more.
    pub fn add(&mut self, start: u64, end: u64) -> u64 {
        let (mut from, mut to, mut had) = (start, end, 0);
        while let Some((&s, &e)) = self.0.range(..=to).next_back().filter(|(_, e)| **e >= from) {
            had += e - s;
            (from, to) = (from.min(s), to.max(e));
            self.0.remove(&s);
        }
        self.0.insert(from, to);
        to - from - had
    }

    /// Takes the first one, or `most` bytes of it.
    pub fn take(&mut self, most: u64) -> Option<(u64, u64)> {
        let (start, end) = self.0.pop_first()?;
        let cut = end.min(start.saturating_add(most));
        if cut < end {
            self.0.insert(cut, end);
        }
        Some((start, cut))
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> {
        self.0.iter().map(|(start, end)| *start..*end)
    }

    /// What of `start..end` is in none of them.
    pub fn gaps(&self, start: u64, end: u64) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        let mut at = start;
        let before = self.0.range(..=start).next_back();
        for (from, to) in before.into_iter().chain(self.0.range(start + 1..end)) {
            if *from > at {
                gaps.push(at..*from);
            }
            at = at.max(*to);
        }
        if at < end {
            gaps.push(at..end);
        }
        gaps
    }

    /// Where the first one begins.
    pub fn first(&self) -> Option<u64> {
        self.0.first_key_value().map(|(start, _)| *start)
    }

    /// Drops what lies behind `end`; gives how many bytes these were.
    pub fn cut(&mut self, end: u64) -> u64 {
        let mut gone = 0;
        for (start, last) in self.0.split_off(&end) {
            gone += last - start;
        }
        if let Some((_, last)) = self.0.iter_mut().next_back().filter(|(_, last)| **last > end) {
            gone += *last - end;
            *last = end;
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn all(ranges: &Ranges) -> Vec<(u64, u64)> {
        ranges.0.iter().map(|(s, e)| (*s, *e)).collect()
    }

    #[test]
    fn what_touches_is_one() {
        let mut r = Ranges::default();
        assert_eq!([r.add(10, 20), r.add(30, 40), r.add(50, 60)], [10, 10, 10]);
        assert_eq!(r.add(20, 25), 5);
        assert_eq!(all(&r), [(10, 25), (30, 40), (50, 60)]);
        assert_eq!(r.add(12, 18), 0);
        assert_eq!(r.add(24, 55), 15);
        assert_eq!(all(&r), [(10, 60)]);
        assert_eq!(r.add(0, 10), 10);
        assert_eq!(all(&r), [(0, 60)]);
    }

    #[test]
    fn gaps_are_what_is_in_none() {
        let mut r = Ranges::default();
        r.add(10, 20);
        r.add(30, 40);
        assert!(r.iter().eq([10..20, 30..40]));
        let gaps = |start, end| r.gaps(start, end).iter().map(|g| (g.start, g.end)).collect::<Vec<_>>();
        assert_eq!(gaps(0, 50), [(0, 10), (20, 30), (40, 50)]);
        assert_eq!(gaps(15, 35), [(20, 30)]);
        assert_eq!(gaps(20, 30), [(20, 30)]);
        assert_eq!(gaps(40, 41), [(40, 41)]);
        assert!(r.gaps(10, 20).is_empty() && r.gaps(12, 13).is_empty());
    }

    #[test]
    fn pieces_are_taken_from_the_front() {
        let mut r = Ranges::default();
        r.add(5, 25);
        r.add(40, 41);
        assert_eq!([r.take(10), r.take(10)], [Some((5, 15)), Some((15, 25))]);
        assert_eq!((r.first(), r.take(10)), (Some(40), Some((40, 41))));
        assert!(r.is_empty() && r.take(1).is_none() && r.first().is_none());
    }

    #[test]
    fn what_lies_behind_an_end_is_dropped() {
        let mut r = Ranges::default();
        r.add(0, 10);
        r.add(20, 30);
        r.add(40, 50);
        assert_eq!(r.cut(25), 15);
        assert_eq!(all(&r), [(0, 10), (20, 25)]);
        assert_eq!((r.cut(25), r.cut(20), r.cut(0)), (0, 5, 10));
        assert!(r.is_empty());
    }
}
