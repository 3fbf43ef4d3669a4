//! Which pages of a file have memory, and where: extents of the page file and their present pages.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use doppel_machine::pagefile::{self, Place};

use super::backing::Backing;
use super::dirty::Dirty;
use super::{PAGE, Quota, page_file, wipe};
use crate::memory::LOG;
use crate::{Errno, Result};

/// Largest extent: 64 MiB.
const MAX_ORDER: usize = 14;

/// A set of page numbers within an extent; small ones need no memory of their own.
#[derive(Default)]
struct Bits {
    first: u64,
    more: Vec<u64>,
}

impl Bits {
    fn get(&self, i: u64) -> bool {
        let w = if i < 64 { self.first } else { self.more.get((i / 64 - 1) as usize).copied().unwrap_or(0) };
        w >> (i % 64) & 1 != 0
    }

    fn set(&mut self, i: u64, on: bool) {
        let w = if i < 64 {
            &mut self.first
        } else {
            let k = (i / 64 - 1) as usize;
            if self.more.len() <= k {
                self.more.resize(k + 1, 0);
            }
            &mut self.more[k]
        };
        if on {
            *w |= 1 << (i % 64);
        } else {
            *w &= !(1 << (i % 64));
        }
    }
}

/// A block of the page file that holds part of a file.
pub(super) struct Extent {
    /// First page in the page file.
    pub at: u64,
    pub order: usize,
    present: Bits,
}

impl Extent {
    pub fn pages(&self) -> u64 {
        1 << self.order
    }
}

/// The pages of one file, under its lock.
#[derive(Default)]
pub(super) struct Inner {
    pub size: u64,
    /// By the object's page number.
    pub extents: BTreeMap<u64, Extent>,
    /// Pages present.
    pub pages: u64,
    /// Whether some process may have mapped pages, so that blocks must not be reused before the object ends.
    pub mapped: bool,
    /// What bounds it besides the domain's memory.
    pub quota: Option<Arc<Quota>>,
    /// Which pages were changed, if somebody asks.
    pub dirty: Option<Box<Dirty>>,
    /// Where pages are that are not present, if they are anywhere.
    pub backing: Option<Box<Backing>>,
}

impl Inner {
    /// Bytes `from..to` were changed.
    #[inline]
    pub fn changed(&mut self, from: u64, to: u64) {
        if let Some(dirty) = &mut self.dirty
            && from < to
        {
            dirty.pages.add(from / PAGE, to.div_ceil(PAGE));
        }
    }

    fn charge(&self, pages: u64) -> Result<()> {
        let Some(q) = &self.quota else { return page_file().charge(pages) };
        q.charge(pages)?;
        page_file().charge(pages).inspect_err(|_| q.uncharge(pages))
    }

    fn uncharge(&self, pages: u64) {
        if let Some(q) = &self.quota {
            q.uncharge(pages);
        }
        page_file().uncharge(pages);
    }

    /// Pages there may be more, as far as anybody can tell.
    pub fn room(&self) -> u64 {
        let left = |(used, limit): (u64, u64)| limit.saturating_sub(used);
        let own = self.quota.as_ref().map_or(u64::MAX, |q| left(q.usage()));
        left(page_file().usage()).min(own)
    }

    /// The run of equal state starting at `page`, up to `end`: whether its pages are present, and how many they are.
    pub fn run(&self, page: u64, end: u64) -> (bool, u64) {
        let (at, n) = self.find(page, end);
        (at.is_some(), n)
    }

    /// The same, for reading: where it is, if it is present.
    pub fn run_to_read(&self, page: u64, end: u64) -> (Option<Place>, u64) {
        match self.find(page, end) {
            (Some(at), n) => {
                let (place, n) = page_file().kept.place(at, n);
                (Some(place), n)
            }
            (None, n) => (None, n),
        }
    }

    /// The same, for writing or mapping: its place in the page file, if it has one there ([`Self::own`]).
    #[inline]
    pub fn run_to_write(&self, page: u64, end: u64) -> (Option<u64>, u64) {
        let found = self.find(page, end);
        if page_file().is_watched() { Self::watched(found) } else { found }
    }

    #[cold]
    fn watched(found: (Option<u64>, u64)) -> (Option<u64>, u64) {
        match found {
            (Some(at), n) => match page_file().kept.find(at, n) {
                (Some(_), n) => (None, n),
                (None, n) => {
                    LOG.note(at, n);
                    (Some(at), n)
                }
            },
            (None, n) => (None, n),
        }
    }

    /// Copies those of the present pages `page..end` that are in the frozen image to the page file.
    ///
    /// # Errors
    /// EIO: the host cannot.
    pub fn own(&mut self, mut page: u64, end: u64) -> Result<()> {
        if !page_file().is_watched() {
            return Ok(());
        }
        while page < end {
            let (at, n) = self.find(page, end);
            if let Some(at) = at {
                page_file().kept.own(at, n)?;
            }
            page += n;
        }
        Ok(())
    }

    /// The run of equal state starting at `page`, up to `end`: its place in the page file if present, and its length in pages.
    fn find(&self, page: u64, end: u64) -> (Option<u64>, u64) {
        let Some((start, e)) =
            self.extents.range(..=page).next_back().filter(|(s, e)| **s + e.pages() > page)
        else {
            let next = self.extents.range(page..).next().map_or(end, |(s, _)| (*s).min(end));
            return (None, next - page);
        };
        let stop = (start + e.pages()).min(end);
        let here = e.present.get(page - start);
        let mut p = page + 1;
        while p < stop && e.present.get(p - start) == here {
            p += 1;
        }
        (here.then(|| e.at + (page - start)), p - page)
    }

    /// Gives every page of `page..end` memory for a mapping: ENOMEM if there is too little.
    pub fn give_all(&mut self, page: u64, end: u64) -> Result<()> {
        if end - page > self.room().saturating_add(self.pages) {
            return Err(Errno::ENOMEM);
        }
        self.ensure(page, end).map_err(|_| Errno::ENOMEM)
    }

    /// Gives every page of `page..end` memory.
    pub fn ensure(&mut self, mut page: u64, end: u64) -> Result<()> {
        while page < end {
            let last = self.extents.range(..=page).next_back();
            if let Some((&start, e)) = last.filter(|(s, e)| **s + (1 << e.order) > page) {
                let stop = (start + e.pages()).min(end);
                let missing = (page..stop).filter(|p| !e.present.get(p - start)).count() as u64;
                if missing > 0 {
                    self.fill(start, page..stop, missing)?;
                }
                page = stop;
                continue;
            }
            let gap = self.extents.range(page..).next().map_or(u64::MAX, |(s, _)| s - page);
            let appends = gap == u64::MAX && page > 0 && self.run(page - 1, page).0;
            let grow = if appends { self.pages } else { 0 };
            let want = (end - page).max(grow).min(1 << MAX_ORDER).min(gap);
            let order = if want.next_power_of_two() <= gap { want.next_power_of_two() } else { want };
            let order = (order.ilog2() as usize).min(MAX_ORDER);
            let (at, order) = page_file().alloc(order)?;
            self.extents.insert(page, Extent { at, order, present: Bits::default() });
        }
        Ok(())
    }

    /// Gives the `missing` pages of `range` memory that have none; the range lies in the extent at `start`.
    fn fill(&mut self, start: u64, range: Range<u64>, missing: u64) -> Result<()> {
        // Near a limit take what there is, so that a write can be short.
        let whole = self.charge(missing).is_ok();
        for p in range {
            if self.extents.get(&start).is_none_or(|e| e.present.get(p - start)) {
                continue;
            }
            if !whole {
                self.charge(1)?;
            }
            if let Some(e) = self.extents.get_mut(&start) {
                e.present.set(p - start, true);
                // Nobody's pages are zeros there, too.
                page_file().kept.take(e.at + (p - start), 1);
            }
            self.pages += 1;
        }
        Ok(())
    }

    /// Makes whole pages `page..end` read as zeros again and frees blocks that fall away.
    pub fn clear(&mut self, mut page: u64, end: u64) {
        while page < end {
            let (at, n) = self.find(page, end);
            if let Some(at) = at {
                wipe(at, n);
                self.uncharge(n);
                self.pages -= n;
                let Some((start, e)) = self.extents.range_mut(..=page).next_back() else { return };
                for p in page..page + n {
                    e.present.set(p - start, false);
                }
            }
            page += n;
        }
    }

    /// Makes whole pages `page..end` read as zeros again; those that are present stay so.
    pub fn wipe_present(&mut self, mut page: u64, end: u64) {
        while page < end {
            let (at, n) = self.find(page, end);
            if let Some(at) = at {
                wipe(at, n);
            }
            page += n;
        }
    }

    /// Frees blocks that lie wholly at or behind `page` (all their pages cleared before).
    pub fn drop_extents(&mut self, page: u64) {
        if !self.mapped {
            for (_, e) in self.extents.split_off(&page) {
                page_file().free(e.at, e.order);
            }
        }
    }

    /// Zeroes bytes `from..to` of one page if it is present.
    pub fn zero_part(&mut self, from: u64, to: u64) -> Result<()> {
        if from >= to {
            return Ok(());
        }
        let page = from / PAGE;
        self.own(page, page + 1)?;
        if let (Some(at), _) = self.run_to_write(page, page + 1) {
            pagefile::zero(at * PAGE + from % PAGE, (to - from) as usize);
        }
        Ok(())
    }
}
