//! Pages of the page file: the memory behind files that were written to, memfds and shared mappings.
//!
//! Key types: [`PageFile`] (the allocator and its accounting), [`Object`] (one file's pages: a few
//! power-of-two extents that grow with the file, and which of their pages hold data). Never-written ranges
//! read as zeros and cost nothing. Invariants: free blocks and pages not marked present are all zeros; bytes
//! beyond `size` in present pages are zeros.
//! Lock order: object → page file. User memory is copied under the object's lock, which makes writes atomic.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};

use doppel_algo::buddy::Buddy;
use doppel_machine::sync::{Once, RwSpin, SpinLock};
use doppel_machine::{arena, boot, host, pagefile};

use super::io::{Input, Output};
use crate::mm::{Commit, PageObject};
use crate::{Errno, Result, kernel};

/// Bytes of a page.
pub const PAGE: u64 = 4096;
/// Largest extent: 64 MiB.
const MAX_ORDER: usize = 14;
/// From this many pages on, giving them back to the host beats overwriting them.
const PUNCH_PAGES: u64 = 16;
/// Files leave one in this many bytes of the domain's memory free.
const RESERVE: u64 = 8;
/// Largest file.
pub const MAX_SIZE: u64 = i64::MAX as u64 & !(PAGE - 1);

/// Seals of memfds (`fcntl(2)`).
#[allow(missing_docs)]
pub mod seal {
    pub const SEAL: u32 = 1;
    pub const SHRINK: u32 = 2;
    pub const GROW: u32 = 4;
    pub const WRITE: u32 = 8;
    pub const FUTURE_WRITE: u32 = 16;
    pub const ALL: u32 = 31;
}

/// The page file's allocator.
pub struct PageFile {
    blocks: SpinLock<Buddy>,
    /// Pages that hold data.
    used: AtomicU64,
    limit: u64,
    /// The domain's one account of memory, private mappings included.
    commit: Arc<Commit>,
}

static PAGE_FILE: Once<&'static PageFile> = Once::new();

/// Makes the allocator; once, at boot, before the first fork.
pub fn init() {
    let info = boot::start_info();
    let end = pagefile::size() / PAGE;
    let memory = [info.memory_limit, info.host_memory].into_iter().find(|n| *n != 0);
    let limit = memory.map_or(end, |m| end.min(m / PAGE));
    let pf = PageFile {
        blocks: SpinLock::new(Buddy::new(end)),
        used: AtomicU64::new(0),
        limit,
        commit: kernel().service(),
    };
    let pf: &'static PageFile = alloc::boxed::Box::leak(alloc::boxed::Box::new(pf));
    assert!(PAGE_FILE.set(pf).is_ok(), "page file made twice");
}

/// The page file.
pub fn page_file() -> &'static PageFile {
    match PAGE_FILE.get() {
        Some(p) => p,
        None => panic!("page file used before boot"),
    }
}

impl PageFile {
    /// Pages that hold data, and the most there may be.
    pub fn usage(&self) -> (u64, u64) {
        (self.used.load(Ordering::Relaxed), self.limit)
    }

    /// ENOSPC when the domain has no memory left for another file.
    pub fn has_room(&self) -> Result<()> {
        if arena::low() || self.commit.charge_leaving(0, RESERVE).is_err() {
            Err(Errno::ENOSPC)
        } else {
            Ok(())
        }
    }

    fn charge(&self, pages: u64) -> Result<()> {
        let old = self.used.fetch_add(pages, Ordering::Relaxed);
        if old + pages > self.limit {
            self.used.fetch_sub(pages, Ordering::Relaxed);
            return Err(Errno::ENOSPC);
        }
        self.commit.charge_leaving(pages * PAGE, RESERVE).map_err(|_| {
            self.used.fetch_sub(pages, Ordering::Relaxed);
            Errno::ENOSPC
        })
    }

    fn uncharge(&self, pages: u64) {
        self.used.fetch_sub(pages, Ordering::Relaxed);
        self.commit.uncharge(pages * PAGE);
    }

    /// A block of at most `1 << order` pages, smaller when the page file is nearly full.
    fn alloc(&self, order: usize) -> Result<(u64, usize)> {
        let mut b = self.blocks.lock();
        (0..=order).rev().find_map(|o| b.alloc(o).map(|p| (p, o))).ok_or(Errno::ENOSPC)
    }

    fn free(&self, page: u64, order: usize) {
        self.blocks.lock().free(page, order);
    }
}

/// Zeroes pages of the page file, giving them back to the host if that is worth it.
fn wipe(page: u64, count: u64) {
    if count >= PUNCH_PAGES && host::punch_pagefile(page * PAGE, count * PAGE).is_ok() {
        return;
    }
    pagefile::zero(page * PAGE, (count * PAGE) as usize);
}

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

struct Extent {
    /// First page in the page file.
    at: u64,
    order: usize,
    present: Bits,
}

impl Extent {
    fn pages(&self) -> u64 {
        1 << self.order
    }
}

#[derive(Default)]
struct Inner {
    size: u64,
    /// By the object's page number.
    extents: BTreeMap<u64, Extent>,
    /// Pages present.
    pages: u64,
    /// Whether some process may have mapped pages, so that blocks must not be reused before the object ends.
    mapped: bool,
}

impl Inner {
    /// The run of equal state starting at `page`, up to `end`: its place if present, and its length in pages.
    fn run(&self, page: u64, end: u64) -> (Option<u64>, u64) {
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
    fn ensure(&mut self, mut page: u64, end: u64) -> Result<()> {
        while page < end {
            let last = self.extents.range_mut(..=page).next_back();
            if let Some((start, e)) = last.filter(|(s, e)| **s + (1 << e.order) > page) {
                let stop = (start + e.pages()).min(end);
                let missing = (page..stop).filter(|p| !e.present.get(p - start)).count() as u64;
                if missing > 0 {
                    // Near the limit take what there is, so that a write can be short.
                    let whole = page_file().charge(missing).is_ok();
                    for p in page..stop {
                        if !e.present.get(p - start) {
                            if !whole {
                                page_file().charge(1)?;
                            }
                            e.present.set(p - start, true);
                            self.pages += 1;
                        }
                    }
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

    /// Makes whole pages `page..end` read as zeros again and frees blocks that fall away.
    fn clear(&mut self, mut page: u64, end: u64) {
        while page < end {
            let (at, n) = self.run(page, end);
            if let Some(at) = at {
                wipe(at, n);
                page_file().uncharge(n);
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
    fn drop_extents(&mut self, page: u64) {
        if !self.mapped {
            for (_, e) in self.extents.split_off(&page) {
                page_file().free(e.at, e.order);
            }
        }
    }

    /// Zeroes bytes `from..to` of one page if it is present.
    fn zero_part(&self, from: u64, to: u64) {
        if from < to
            && let (Some(at), _) = self.run(from / PAGE, from / PAGE + 1)
        {
            pagefile::zero(at * PAGE + from % PAGE, (to - from) as usize);
        }
    }
}

/// The pages of one file or shared memory object.
pub struct Object {
    id: u64,
    inner: RwSpin<Inner>,
    seals: AtomicU32,
    /// Writable shared mappings (F_SEAL_WRITE is EBUSY while there are any).
    writable_maps: AtomicI64,
    /// Whether it was ever mapped.
    was_mapped: AtomicBool,
}

impl Object {
    /// An object of `size` zero bytes that takes no memory yet.
    pub fn new(size: u64) -> Arc<Self> {
        Arc::new(Self {
            id: kernel().next_id(),
            inner: RwSpin::new(Inner { size: size.min(MAX_SIZE), ..Inner::default() }),
            seals: AtomicU32::new(seal::SEAL),
            writable_maps: AtomicI64::new(0),
            was_mapped: AtomicBool::new(false),
        })
    }

    /// An object holding a copy of `len` bytes of the root image (copy-up).
    pub fn from_image(offset: u64, len: u64) -> Result<Arc<Self>> {
        let o = Self::new(len);
        let mut g = o.inner.write();
        let pages = len.div_ceil(PAGE);
        g.ensure(0, pages)?;
        let mut page = 0;
        while page < pages {
            let (at, n) = g.run(page, pages);
            let Some(at) = at else { return Err(Errno::EIO) };
            let bytes = (n * PAGE).min(len - page * PAGE);
            pagefile::copy_from_image(offset + page * PAGE, at * PAGE, bytes as usize);
            page += n;
        }
        drop(g);
        Ok(o)
    }

    /// Size in bytes.
    pub fn len(&self) -> u64 {
        self.inner.read().size
    }

    /// Whether the size is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// 512-byte blocks in use.
    pub fn blocks(&self) -> u64 {
        self.inner.read().pages * (PAGE / 512)
    }

    /// Reads from `offset` up to the end of the object.
    pub fn read(&self, out: &mut Output<'_>, offset: u64) -> Result<usize> {
        let g = self.inner.read();
        let Some(left) = g.size.checked_sub(offset).filter(|l| *l > 0) else { return Ok(0) };
        let total = (out.remaining() as u64).min(left);
        let (mut at, end) = (offset, offset + total);
        while at < end {
            let (place, pages) = g.run(at / PAGE, end.div_ceil(PAGE));
            let n = ((at / PAGE + pages) * PAGE).min(end) - at;
            let got = match place {
                None => out.zero(n as usize)?,
                Some(p) => {
                    let from = Cell::new(p * PAGE + at % PAGE);
                    out.pieces(
                        n as usize,
                        |dst, len| {
                            let n = pagefile::copy_to_user(from.get(), dst, len).unwrap_or(0);
                            from.set(from.get() + n as u64);
                            n
                        },
                        |buf| {
                            pagefile::read(from.get(), buf);
                            from.set(from.get() + buf.len() as u64);
                            buf.len()
                        },
                    )?
                }
            };
            at += got as u64;
            if (got as u64) < n {
                break;
            }
        }
        Ok((at - offset) as usize)
    }

    /// Writes at `offset`, or at the end if `append`; returns the count and the position behind it.
    /// `limit` is RLIMIT_FSIZE: EFBIG if nothing may be written there.
    pub fn write(
        &self,
        input: &mut Input<'_>,
        offset: u64,
        append: bool,
        limit: u64,
    ) -> Result<(usize, u64)> {
        let mut g = self.inner.write();
        let offset = if append { g.size } else { offset };
        let seals = self.seals();
        if seals & (seal::WRITE | seal::FUTURE_WRITE) != 0 {
            return Err(Errno::EPERM);
        }
        let limit = limit.min(MAX_SIZE);
        let want = input.remaining() as u64;
        if want == 0 {
            return Ok((0, offset));
        }
        if offset >= limit {
            return Err(Errno::EFBIG);
        }
        let mut end = offset.saturating_add(want).min(limit);
        if seals & seal::GROW != 0 && end > g.size {
            end = g.size.max(offset);
            if end == offset {
                return Err(Errno::EPERM);
            }
        }
        let r = g.ensure(offset / PAGE, end.div_ceil(PAGE));
        let mut at = offset;
        while at < end {
            let (place, pages) = g.run(at / PAGE, end.div_ceil(PAGE));
            // No room for all of it: write what fits.
            let Some(p) = place else { break };
            let n = ((at / PAGE + pages) * PAGE).min(end) - at;
            let to = Cell::new(p * PAGE + at % PAGE);
            let got = input.pieces(
                n as usize,
                |src, len| {
                    let n = pagefile::copy_from_user(to.get(), src, len).unwrap_or(0);
                    to.set(to.get() + n as u64);
                    n
                },
                |buf| {
                    pagefile::write(to.get(), buf);
                    to.set(to.get() + buf.len() as u64);
                    buf.len()
                },
            )?;
            at += got as u64;
            if (got as u64) < n {
                break;
            }
        }
        g.size = g.size.max(at);
        if at == offset {
            r?;
        }
        Ok(((at - offset) as usize, at))
    }

    /// Sets the size; new bytes read as zeros.
    pub fn truncate(&self, len: u64) -> Result<()> {
        if len > MAX_SIZE {
            return Err(Errno::EFBIG);
        }
        let mut g = self.inner.write();
        let seals = self.seals();
        if (len < g.size && seals & seal::SHRINK != 0) || (len > g.size && seals & seal::GROW != 0) {
            return Err(Errno::EPERM);
        }
        if len < g.size {
            g.mapped = self.was_mapped.load(Ordering::Acquire);
            let first = len.div_ceil(PAGE);
            g.zero_part(len, first * PAGE);
            let end = g.extents.iter().next_back().map_or(0, |(s, e)| s + e.pages());
            g.clear(first, end.max(first));
            g.drop_extents(first);
        }
        let shrunk = len < g.size && g.mapped;
        g.size = len;
        drop(g);
        if shrunk {
            crate::mm::object_shrunk(self.id, len);
        }
        Ok(())
    }

    /// Makes `offset..offset+len` read as zeros and frees its whole pages; the size stays.
    pub fn punch(&self, offset: u64, len: u64) -> Result<()> {
        let mut g = self.inner.write();
        if self.seals() & (seal::WRITE | seal::FUTURE_WRITE) != 0 {
            return Err(Errno::EPERM);
        }
        let end = offset.saturating_add(len).min(g.size);
        if offset >= end {
            return Ok(());
        }
        let (first, last) = (offset.div_ceil(PAGE), end / PAGE);
        if first > last {
            g.zero_part(offset, end);
            return Ok(());
        }
        g.zero_part(offset, first * PAGE);
        g.zero_part(last * PAGE, end);
        // The last page of the file may go whole: behind the end are only zeros.
        let last = if end == g.size { end.div_ceil(PAGE) } else { last };
        g.clear(first, last.max(first));
        Ok(())
    }

    /// Gives `offset..offset+len` memory (fallocate); grows the size unless `keep_size`.
    pub fn reserve(&self, offset: u64, len: u64, keep_size: bool) -> Result<()> {
        let end = offset.checked_add(len).filter(|e| *e <= MAX_SIZE).ok_or(Errno::EFBIG)?;
        let mut g = self.inner.write();
        if !keep_size && end > g.size && self.seals() & seal::GROW != 0 {
            return Err(Errno::EPERM);
        }
        let (used, limit) = page_file().usage();
        if end.div_ceil(PAGE) - offset / PAGE > limit.saturating_sub(used) + g.pages {
            return Err(Errno::ENOSPC);
        }
        g.ensure(offset / PAGE, end.div_ceil(PAGE))?;
        if !keep_size {
            g.size = g.size.max(end);
        }
        Ok(())
    }

    /// The next data (or hole) at or behind `offset`: SEEK_DATA, SEEK_HOLE. ENXIO at or behind the end.
    pub fn seek(&self, offset: u64, data: bool) -> Result<u64> {
        let g = self.inner.read();
        if offset >= g.size {
            return Err(Errno::ENXIO);
        }
        let end = g.size.div_ceil(PAGE);
        let mut page = offset / PAGE;
        while page < end {
            let (at, n) = g.run(page, end);
            if at.is_some() == data {
                return Ok((page * PAGE).max(offset));
            }
            page += n;
        }
        if data { Err(Errno::ENXIO) } else { Ok(g.size) }
    }

    /// Seals in force.
    pub fn seals(&self) -> u32 {
        self.seals.load(Ordering::Relaxed)
    }

    /// Allows sealing (memfd_create with MFD_ALLOW_SEALING).
    pub fn allow_sealing(&self) {
        self.seals.store(0, Ordering::Relaxed);
    }

    /// F_ADD_SEALS.
    pub fn add_seals(&self, add: u32) -> Result<()> {
        if add & !seal::ALL != 0 {
            return Err(Errno::EINVAL);
        }
        let g = self.inner.write();
        if self.seals() & seal::SEAL != 0 {
            return Err(Errno::EPERM);
        }
        if add & seal::WRITE != 0
            && self.seals() & seal::WRITE == 0
            && self.writable_maps.load(Ordering::Acquire) > 0
        {
            return Err(Errno::EBUSY);
        }
        self.seals.fetch_or(add, Ordering::Relaxed);
        drop(g);
        Ok(())
    }

    /// Counts a writable shared mapping (`delta` 1, or -1 when it goes). EPERM if the seals forbid it.
    pub fn writable_map(&self, delta: i64) -> Result<()> {
        let g = self.inner.write();
        if delta > 0 && self.seals() & (seal::WRITE | seal::FUTURE_WRITE) != 0 {
            return Err(Errno::EPERM);
        }
        self.writable_maps.fetch_add(delta, Ordering::AcqRel);
        drop(g);
        Ok(())
    }
}

impl PageObject for Object {
    fn punch(&self, offset: u64, len: u64) -> Result<()> {
        Self::punch(self, offset, len)
    }

    fn writable_map(&self, delta: i64) -> Result<()> {
        Self::writable_map(self, delta)
    }

    fn map_range(&self, offset: u64, len: u64, each: &mut dyn FnMut(u64, u64) -> Result<()>) -> Result<()> {
        self.was_mapped.store(true, Ordering::Release);
        let (first, end) = (offset / PAGE, offset.checked_add(len).ok_or(Errno::EINVAL)?.div_ceil(PAGE));
        let mut pieces: Vec<(u64, u64)> = Vec::new();
        {
            let mut g = self.inner.write();
            let (used, limit) = page_file().usage();
            if end - first > limit.saturating_sub(used) + g.pages {
                return Err(Errno::ENOMEM);
            }
            g.ensure(first, end).map_err(|_| Errno::ENOMEM)?;
            let mut page = first;
            while page < end {
                let (at, n) = g.run(page, end);
                let Some(at) = at else { return Err(Errno::ENOMEM) };
                match pieces.last_mut() {
                    Some((start, count)) if *start + *count == at => *count += n,
                    _ => pieces.push((at, n)),
                }
                page += n;
            }
        }
        pieces.into_iter().try_for_each(|(at, n)| each(at * PAGE, n * PAGE))
    }

    fn size(&self) -> u64 {
        self.len()
    }

    fn id(&self) -> u64 {
        self.id
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        let mut g = self.inner.write();
        g.mapped = false;
        let end = g.extents.iter().next_back().map_or(0, |(s, e)| s + e.pages());
        g.clear(0, end);
        // Pages written through a mapping after a truncation are not marked present: wipe those blocks whole.
        if self.was_mapped.load(Ordering::Acquire) {
            for e in g.extents.values() {
                wipe(e.at, e.pages());
            }
        }
        g.drop_extents(0);
    }
}
