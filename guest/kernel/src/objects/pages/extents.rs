//! Which pages of a file have memory, and where: extents of the page file and their present pages.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use doppel_machine::pagefile;

use super::backing::Backing;
use super::dirty::Dirty;
use super::{PAGE, Quota, page_file, wipe};
use crate::Result;

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

    /// The run of equal state starting at `page`, up to `end`: its place if present, and its length in pages.
    pub fn run(&self, page: u64, end: u64) -> (Option<u64>, u64) {
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
            let appends = gap == u64::MAX && page > 0 && self.run(page - 1, page).0.is_some();
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
            }
            self.pages += 1;
        }
        Ok(())
    }

    /// Makes whole pages `page..end` read as zeros again and frees blocks that fall away.
    pub fn clear(&mut self, mut page: u64, end: u64) {
        while page < end {
            let (at, n) = self.run(page, end);
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

    /// Frees blocks that lie wholly at or behind `page` (all their pages cleared before).
    pub fn drop_extents(&mut self, page: u64) {
        if !self.mapped {
            for (_, e) in self.extents.split_off(&page) {
                page_file().free(e.at, e.order);
            }
        }
    }

    /// Makes whole pages `page..end` read as zeros again; those that are present stay so.
    pub fn wipe_present(&mut self, mut page: u64, end: u64) {
        while page < end {
            let (at, n) = self.run(page, end);
            if let Some(at) = at {
                wipe(at, n);
            }
            page += n;
        }
    }

    /// Zeroes bytes `from..to` of one page if it is present.
    pub fn zero_part(&self, from: u64, to: u64) {
        if from < to
            && let (Some(at), _) = self.run(from / PAGE, from / PAGE + 1)
        {
            pagefile::zero(at * PAGE + from % PAGE, (to - from) as usize);
        }
    }
}
