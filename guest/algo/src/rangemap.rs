//! A map from disjoint half-open ranges of `u64` to values: the VMA tree.
//!
//! Key types: [`RangeMap`], and [`Piece`], what a value must be able to do when its range is cut or joined.
//! Neighbours that may be one are always joined, so the map holds as few entries as possible.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// A value of a [`RangeMap`].
pub trait Piece: Clone {
    /// The value of the part that begins `delta` behind the start of this one's range.
    #[must_use]
    fn tail(&self, delta: u64) -> Self;

    /// Whether `next`, whose range follows directly behind `len` of this one, continues it, so that this value
    /// describes both.
    fn continues(&self, len: u64, next: &Self) -> bool;
}

/// Disjoint ranges with values.
#[derive(Clone)]
pub struct RangeMap<V> {
    map: BTreeMap<u64, (u64, V)>,
}

impl<V> Default for RangeMap<V> {
    fn default() -> Self {
        Self { map: BTreeMap::new() }
    }
}

impl<V: Piece> RangeMap<V> {
    /// An empty map.
    pub const fn new() -> Self {
        Self { map: BTreeMap::new() }
    }

    /// Number of ranges.
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether it has no range.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// The range that holds `at`: start, end, value.
    pub fn get(&self, at: u64) -> Option<(u64, u64, &V)> {
        let (&s, (e, v)) = self.map.range(..=at).next_back()?;
        (at < *e).then_some((s, *e, v))
    }

    /// All ranges in ascending order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, u64, &V)> {
        self.map.iter().map(|(&s, (e, v))| (s, *e, v))
    }

    /// The ranges that overlap `start..end`, in full, in ascending order.
    pub fn overlapping(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64, &V)> {
        let first = self.get(start).map_or(start, |(s, ..)| s);
        self.map.range(first..end.max(first)).map(|(&s, (e, v))| (s, *e, v))
    }

    /// Whether no range overlaps `start..end`.
    pub fn is_free(&self, start: u64, end: u64) -> bool {
        self.overlapping(start, end).next().is_none()
    }

    /// Whether every address of `start..end` is in a range.
    pub fn is_covered(&self, start: u64, end: u64) -> bool {
        let mut at = start;
        for (s, e, _) in self.overlapping(start, end) {
            if s > at {
                return false;
            }
            at = e;
        }
        at >= end
    }

    /// Makes `at` a boundary if a range holds it.
    fn cut(&mut self, at: u64) {
        let Some((s, e, v)) = self.get(at) else { return };
        if s < at {
            let tail = v.tail(at - s);
            if let Some(head) = self.map.get_mut(&s) {
                head.0 = at;
            }
            self.map.insert(at, (e, tail));
        }
    }

    /// Joins the ranges that meet at `at`, if they may be one.
    fn join(&mut self, at: u64) {
        let Some((next_end, next)) = self.map.get(&at) else { return };
        let next_end = *next_end;
        let Some((&s, (e, v))) = self.map.range(..at).next_back() else { return };
        if *e == at && v.continues(at - s, next) {
            self.map.remove(&at);
            if let Some(head) = self.map.get_mut(&s) {
                head.0 = next_end;
            }
        }
    }

    /// Adds a range; what it overlaps is removed first and returned.
    pub fn insert(&mut self, start: u64, end: u64, value: V) -> Vec<(u64, u64, V)> {
        assert!(start < end, "empty range");
        let old = self.remove(start, end);
        self.map.insert(start, (end, value));
        self.join(end);
        self.join(start);
        old
    }

    /// Removes `start..end`, cutting ranges at its ends; returns what was there.
    pub fn remove(&mut self, start: u64, end: u64) -> Vec<(u64, u64, V)> {
        if self.is_free(start, end) {
            return Vec::new();
        }
        self.cut(start);
        self.cut(end);
        let mut out = Vec::new();
        while let Some((&s, _)) = self.map.range(start..end).next() {
            if let Some((e, v)) = self.map.remove(&s) {
                out.push((s, e, v));
            }
        }
        out
    }

    /// Changes the values of the parts inside `start..end`; `f` gets start, end and value of each.
    pub fn update(&mut self, start: u64, end: u64, mut f: impl FnMut(u64, u64, &mut V)) {
        if start >= end {
            return;
        }
        self.cut(start);
        self.cut(end);
        let mut bounds = Vec::new();
        for (&s, (e, v)) in self.map.range_mut(start..end) {
            f(s, *e, v);
            bounds.push(s);
        }
        self.join(end);
        for s in bounds.into_iter().rev() {
            self.join(s);
        }
    }

    /// The highest `at` with `at..at+len` free within `low..high`.
    pub fn gap_below(&self, low: u64, high: u64, len: u64) -> Option<u64> {
        let mut top = high;
        if let Some((s, ..)) = high.checked_sub(1).and_then(|h| self.get(h)) {
            top = s;
        }
        for (&s, (e, _)) in self.map.range(..top).rev() {
            let floor = (*e).max(low);
            if top >= floor && top - floor >= len {
                return Some(top - len);
            }
            top = top.min(s);
            if top <= low {
                return None;
            }
        }
        (top >= low && top - low >= len).then(|| top - len)
    }

    /// The lowest `at` not below `low` with `at..at+len` free and `at + len <= high`.
    pub fn gap_above(&self, low: u64, high: u64, len: u64) -> Option<u64> {
        let mut at = low;
        for (s, e, _) in self.overlapping(low, high) {
            if s >= at && s - at >= len {
                return Some(at);
            }
            at = at.max(e);
        }
        (high >= at && high - at >= len).then_some(at)
    }
}

#[cfg(test)]
mod tests;
