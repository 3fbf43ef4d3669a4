//! Which pages of a file are still in another one, where they came from, and where there.
//!
//! Runs of pages are known once, and never grow; a bit each says whether a page is still there. So a file of which
//! everything is elsewhere takes a bit a page, and a word or two a run.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

#[cfg(test)]
mod tests;

/// Pages in a row, in both files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first page.
    pub page: u64,
    /// How many.
    pub pages: u64,
    /// The page of the other file that the first one is.
    pub place: u64,
}

/// A run and where its bits begin.
#[derive(Clone, Copy, Debug)]
struct Known {
    run: Run,
    bit: u64,
}

/// The pages that are still elsewhere. Whoever asks about a page keeps others from taking that one meanwhile.
#[derive(Debug, Default)]
pub struct Elsewhere {
    runs: Box<[Known]>,
    bits: Box<[AtomicU64]>,
    left: AtomicU64,
}

impl Elsewhere {
    /// All pages of these runs, which are in order of their pages and do not overlap; none if they are not.
    pub fn new(runs: impl IntoIterator<Item = Run>) -> Option<Self> {
        let mut known: Vec<Known> = Vec::new();
        let (mut end, mut bit) = (0, 0u64);
        for run in runs {
            if run.page < end || run.pages == 0 {
                return None;
            }
            end = run.page.checked_add(run.pages)?;
            run.place.checked_add(run.pages)?;
            known.push(Known { run, bit });
            bit = bit.checked_add(run.pages)?;
        }
        let words = usize::try_from(bit.div_ceil(64)).ok()?;
        let bits: Box<[AtomicU64]> = (0..words).map(|_| AtomicU64::new(u64::MAX)).collect();
        if let Some(last) = bits.last().filter(|_| !bit.is_multiple_of(64)) {
            last.store((1 << (bit % 64)) - 1, Ordering::Relaxed);
        }
        Some(Self { runs: known.into(), bits, left: AtomicU64::new(bit) })
    }

    /// How many pages are still elsewhere.
    pub fn left(&self) -> u64 {
        self.left.load(Ordering::Relaxed)
    }

    /// Where `page` is, if it is elsewhere, and how many pages from it on are so in a row, at most up to `end`.
    pub fn find(&self, page: u64, end: u64) -> (Option<u64>, u64) {
        let i = self.runs.partition_point(|k| k.run.page + k.run.pages <= page);
        let Some(k) = self.runs.get(i) else { return (None, end - page) };
        if k.run.page > page {
            return (None, k.run.page.min(end) - page);
        }
        let skipped = page - k.run.page;
        let most = (k.run.pages - skipped).min(end - page);
        let (here, n) = self.alike(k.bit + skipped, most);
        (here.then_some(k.run.place + skipped), n)
    }

    /// Whether this bit is set, and how many from it on are like it, at most `most`.
    fn alike(&self, bit: u64, most: u64) -> (bool, u64) {
        let word = |bit: u64| self.bits.get((bit / 64) as usize).map_or(0, |w| w.load(Ordering::Relaxed));
        let here = word(bit) >> (bit % 64) & 1 != 0;
        let mut n = 0;
        while n < most {
            let at = bit + n;
            let w = word(at) >> (at % 64);
            let room = 64 - at % 64;
            let run = u64::from(if here { w.trailing_ones() } else { w.trailing_zeros() }).min(room);
            n += run;
            if run < room {
                break;
            }
        }
        (here, n.min(most))
    }

    /// Pages `page..end` are not elsewhere any more, if they were; gives how many were.
    pub fn take(&self, page: u64, end: u64) -> u64 {
        let mut taken = 0;
        let first = self.runs.partition_point(|k| k.run.page + k.run.pages <= page);
        for k in self.runs[first..].iter().take_while(|k| k.run.page < end) {
            let from = k.bit + page.saturating_sub(k.run.page);
            let to = k.bit + (end - k.run.page).min(k.run.pages);
            let mut at = from;
            while at < to {
                let n = (64 - at % 64).min(to - at);
                let mask = (u64::MAX >> (64 - n)) << (at % 64);
                if let Some(w) = self.bits.get((at / 64) as usize) {
                    taken += u64::from((w.fetch_and(!mask, Ordering::Relaxed) & mask).count_ones());
                }
                at += n;
            }
        }
        self.left.fetch_sub(taken, Ordering::Relaxed);
        taken
    }

    /// The runs that are still elsewhere, in order.
    pub fn iter(&self) -> impl Iterator<Item = Run> + '_ {
        self.runs.iter().flat_map(move |k| {
            let (mut page, end) = (k.run.page, k.run.page + k.run.pages);
            core::iter::from_fn(move || {
                while page < end {
                    let at = page;
                    let (place, pages) = self.find(at, end);
                    page += pages;
                    if let Some(place) = place {
                        return Some(Run { page: at, pages, place });
                    }
                }
                None
            })
        })
    }
}
