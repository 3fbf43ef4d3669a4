//! Which pages of a file were changed since they were last written to where they are kept.
//!
//! Writes say so. What is written through mappings nobody says: the sums of pages are compared.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use doppel_algo::byte_ranges::Ranges;
use doppel_layer::Sum;
use doppel_machine::pagefile;

use super::{Object, PAGE};

/// Pages that are summed at once.
const AT_ONCE: u64 = 16;

/// Changed pages of a file.
#[derive(Default)]
pub(super) struct Dirty {
    pub pages: Ranges,
    /// Of files with mappings that may be written through: the sums of pages when they were last looked at.
    sums: BTreeMap<u64, u64>,
}

/// A run of pages that were changed.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// The first page.
    pub page: u64,
    /// How many.
    pub pages: u64,
    /// They hold data; if not, they are zeros.
    pub data: bool,
}

impl Object {
    /// From here on it is known which pages were changed.
    pub fn track(&self) {
        self.inner.write().dirty.get_or_insert_default();
    }

    /// The size, and the pages below it that were changed since this was last asked; or `all`.
    pub fn take_changed(&self, all: bool) -> (u64, Vec<Run>) {
        self.look_at_mapped();
        let mut g = self.inner.write();
        let end = g.size.div_ceil(PAGE);
        let changed = core::mem::take(&mut g.dirty.get_or_insert_default().pages);
        g.storing();
        let changed: Vec<_> = if all { alloc::vec![0..end] } else { changed.iter().collect() };
        let mut runs = Vec::new();
        for range in changed {
            let (mut page, stop) = (range.start, range.end.min(end));
            while page < stop {
                let (data, pages) = g.run(page, stop);
                runs.push(Run { page, pages, data });
                page += pages;
            }
        }
        (g.size, runs)
    }

    /// These count as changed again: they could not be written.
    pub fn changed_again(&self, runs: impl Iterator<Item = Run>) {
        let mut g = self.inner.write();
        let dirty = g.dirty.get_or_insert_default();
        for run in runs {
            dirty.pages.add(run.page, run.page + run.pages);
        }
        g.stored_nothing();
    }

    /// The bytes of whole pages from `page` on; zeros where there are none.
    pub fn read_pages(&self, page: u64, bytes: &mut [u8]) {
        let g = self.inner.read();
        let (mut at, end) = (page, page + bytes.len() as u64 / PAGE);
        while at < end {
            let (place, n) = g.run_to_read(at, end);
            let part = &mut bytes[((at - page) * PAGE) as usize..((at - page + n) * PAGE) as usize];
            match place {
                Some(place) => pagefile::read(place, part),
                None => part.fill(0),
            }
            at += n;
        }
    }

    /// Whether it may be written through mappings, or was since this was last looked at.
    pub fn is_written_through(&self) -> bool {
        self.map_written.load(Ordering::Acquire)
    }

    /// Finds what was written through mappings. One thread at a time does so.
    fn look_at_mapped(&self) {
        if !self.is_written_through() {
            return;
        }
        // Pages that are found changed below must not be given up as clean ones before.
        self.inner.write().storing();
        // A mapping that comes after this look says so again.
        let ended = self.writable_maps.load(Ordering::Acquire) <= 0;
        if ended {
            self.map_written.store(false, Ordering::Release);
        }
        let mut sums = core::mem::take(&mut self.inner.write().dirty.get_or_insert_default().sums);
        let mut bytes = alloc::vec![0; (AT_ONCE * PAGE) as usize];
        let mut page = 0;
        while let Some((n, data)) = self.read_run(page, &mut bytes) {
            if data {
                let bytes = &bytes[..(n * PAGE) as usize];
                for (number, bytes) in (page..).zip(bytes.chunks_exact(PAGE as usize)) {
                    let sum = Sum::of(0, bytes);
                    if sums.insert(number, sum) != Some(sum) {
                        self.inner.write().dirty.get_or_insert_default().pages.add(number, number + 1);
                    }
                }
            }
            page += n;
        }
        if !ended {
            self.inner.write().dirty.get_or_insert_default().sums = sums;
        }
    }

    /// Reads the pages from `page` on that are present, or finds how many are not; none behind the end.
    fn read_run(&self, page: u64, bytes: &mut [u8]) -> Option<(u64, bool)> {
        // Held over the read: nobody gives them up meanwhile.
        let g = self.inner.read();
        let end = g.size.div_ceil(PAGE);
        (page < end).then(|| match g.run_to_read(page, end) {
            (Some(place), n) => {
                let n = n.min(AT_ONCE);
                pagefile::read(place, &mut bytes[..(n * PAGE) as usize]);
                (n, true)
            }
            (None, n) => (n, false),
        })
    }
}
