//! The pages of one file.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};

use doppel_machine::pagefile::{self, Place};
use doppel_machine::sync::{RwSpin, WriteGuard};

use super::backing::Missing;
use super::extents::Inner;
use super::{MAX_SIZE, PAGE, Quota, Seals, wipe};
use crate::memory::{MISSING, PageObject};
use crate::objects::vfs::io::{Input, Output, Piece};
use crate::{Errno, Result, kernel};

/// A mapping that would take more than one in so many pages of what is left gets them as they are touched.
const SPARSE_PART: u64 = 4;

/// Most parts of a mapping that are left in the frozen image: each is a mapping of the host's.
const MOST_MISSING: usize = 256;

/// The pages of one file or shared memory object.
pub struct Object {
    id: u64,
    pub(super) inner: RwSpin<Inner>,
    seals: AtomicU32,
    /// Writable shared mappings (F_SEAL_WRITE is EBUSY while there are any).
    pub(super) writable_maps: AtomicI64,
    /// There were some since somebody asked what was changed.
    pub(super) map_written: AtomicBool,
    /// Whether it was ever mapped.
    was_mapped: AtomicBool,
    /// Size and pages in use as the last change left them: `stat` asks without the lock, which a long write holds.
    size: AtomicU64,
    pages: AtomicU64,
}

/// The pages locked for a change; what `stat` shows follows when it is dropped.
pub(super) struct Change<'a> {
    object: &'a Object,
    inner: WriteGuard<'a, Inner>,
}

impl Deref for Change<'_> {
    type Target = Inner;
    fn deref(&self) -> &Inner {
        &self.inner
    }
}

impl DerefMut for Change<'_> {
    fn deref_mut(&mut self) -> &mut Inner {
        &mut self.inner
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        self.object.size.store(self.inner.size, Ordering::Release);
        self.object.pages.store(self.inner.all_pages(), Ordering::Release);
    }
}

impl Object {
    /// An object of `size` zero bytes that takes no memory yet.
    pub fn new(size: u64) -> Arc<Self> {
        Self::within(size, None)
    }

    /// As [`Self::new`], with this bound on its pages.
    pub fn within(size: u64, quota: Option<Arc<Quota>>) -> Arc<Self> {
        let size = size.min(MAX_SIZE);
        Arc::new(Self {
            id: kernel().next_id(),
            inner: RwSpin::new(Inner { size, quota, ..Inner::default() }),
            size: AtomicU64::new(size),
            pages: AtomicU64::new(0),
            seals: AtomicU32::new(Seals::SEAL.bits()),
            writable_maps: AtomicI64::new(0),
            map_written: AtomicBool::new(false),
            was_mapped: AtomicBool::new(false),
        })
    }

    pub(super) fn change(&self) -> Change<'_> {
        Change { object: self, inner: self.inner.write() }
    }

    /// Locks it for a change if nobody has it locked.
    pub(super) fn try_change(&self) -> Option<Change<'_>> {
        Some(Change { object: self, inner: self.inner.try_write()? })
    }

    /// An object holding a copy of `len` bytes of the root image (copy-up).
    pub fn from_image(offset: u64, len: u64) -> Result<Arc<Self>> {
        let o = Self::new(len);
        let mut g = o.change();
        let pages = len.div_ceil(PAGE);
        g.ensure(0, pages)?;
        let mut page = 0;
        while page < pages {
            let (at, n) = g.run_to_write(page, pages);
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
        self.size.load(Ordering::Acquire)
    }

    /// Whether the size is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// 512-byte blocks in use.
    pub fn blocks(&self) -> u64 {
        self.pages.load(Ordering::Acquire) * (PAGE / 512)
    }

    /// Reads from `offset` up to the end of the object.
    pub fn read(&self, out: &mut Output<'_>, offset: u64) -> Result<usize> {
        let end = offset.saturating_add(out.remaining() as u64);
        let mut at = offset;
        loop {
            let missing = self.read_present(out, &mut at, end)?;
            let Some(missing) = missing else { return Ok((at - offset) as usize) };
            // Pages are stored whole; what is behind the end is no part of the file.
            let left = end.min(self.len()).saturating_sub(at);
            if left == 0 {
                return Ok((at - offset) as usize);
            }
            match self.bring_or(missing, at, |bytes| out.write(&bytes[..bytes.len().min(left as usize)])) {
                Ok(n) => at += n,
                Err(_) if at > offset => return Ok((at - offset) as usize),
                Err(e) => return Err(e),
            }
        }
    }

    /// Reads from `at` on, at most up to `end`, and moves `at`; stops at pages that are not present.
    #[inline]
    fn read_present(&self, out: &mut Output<'_>, at: &mut u64, end: u64) -> Result<Option<Missing>> {
        let g = self.inner.read();
        let mut end = end.min(g.size);
        let missing = if *at < end { g.missing(*at / PAGE, end.div_ceil(PAGE)) } else { None };
        if let Some(missing) = &missing {
            end = end.min(missing.first_byte());
        }
        while *at < end {
            let (place, pages) = g.run_to_read(*at / PAGE, end.div_ceil(PAGE));
            let n = ((*at / PAGE + pages) * PAGE).min(end) - *at;
            let got = match place {
                None => out.zero(n as usize)?,
                Some(place) => {
                    let from = place.behind(*at % PAGE);
                    out.pieces(n as usize, |done, piece| match piece {
                        Piece::User(to, len) => {
                            pagefile::copy_to_user(from.behind(done as u64), to, len).unwrap_or(0)
                        }
                        Piece::Kernel(buf) => {
                            pagefile::read(from.behind(done as u64), buf);
                            buf.len()
                        }
                    })?
                }
            };
            *at += got as u64;
            if (got as u64) < n {
                return Ok(None);
            }
        }
        Ok(missing)
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
        let want = input.remaining() as u64;
        let from = |g: &Inner| if append { g.size } else { offset };
        let mut g = self.change_with(|g| {
            g.missing(from(g) / PAGE, from(g).saturating_add(want).min(MAX_SIZE).div_ceil(PAGE))
        })?;
        let offset = from(&g);
        let seals = self.seals();
        if seals.intersects(Seals::NO_WRITE) {
            return Err(Errno::EPERM);
        }
        let limit = limit.min(MAX_SIZE);
        if want == 0 {
            return Ok((0, offset));
        }
        if offset >= limit {
            return Err(Errno::EFBIG);
        }
        let mut end = offset.saturating_add(want).min(limit);
        if seals.contains(Seals::GROW) && end > g.size {
            end = g.size.max(offset);
            if end == offset {
                return Err(Errno::EPERM);
            }
        }
        let r = g.ensure(offset / PAGE, end.div_ceil(PAGE));
        let r = g.own(offset / PAGE, end.div_ceil(PAGE)).and(r);
        let mut at = offset;
        while at < end {
            let (place, pages) = g.run_to_write(at / PAGE, end.div_ceil(PAGE));
            // No room for all of it: write what fits.
            let Some(p) = place else { break };
            let n = ((at / PAGE + pages) * PAGE).min(end) - at;
            let to = p * PAGE + at % PAGE;
            let got = input.pieces(n as usize, |done, piece| match piece {
                Piece::User(from, len) => pagefile::copy_from_user(to + done as u64, from, len).unwrap_or(0),
                Piece::Kernel(buf) => {
                    pagefile::write(to + done as u64, buf);
                    buf.len()
                }
            })?;
            at += got as u64;
            if (got as u64) < n {
                break;
            }
        }
        g.size = g.size.max(at);
        g.changed(offset, at);
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
        // The last page stays in part.
        let mut g = self.change_with(|g| match len % PAGE {
            0 => None,
            _ if len >= g.size => None,
            _ => g.missing(len / PAGE, len / PAGE + 1),
        })?;
        let seals = self.seals();
        if (len < g.size && seals.contains(Seals::SHRINK)) || (len > g.size && seals.contains(Seals::GROW)) {
            return Err(Errno::EPERM);
        }
        if len < g.size {
            g.mapped = self.was_mapped.load(Ordering::Acquire);
            let first = len.div_ceil(PAGE);
            g.zero_part(len, first * PAGE)?;
            let end = g.extents.iter().next_back().map_or(0, |(s, e)| s + e.pages());
            g.clear(first, end.max(first));
            g.drop_extents(first);
            let old = g.size;
            g.changed(len, old);
            g.cut_stored(first, u64::MAX);
        }
        let shrunk = len < g.size && g.mapped;
        g.size = len;
        drop(g);
        if shrunk {
            crate::memory::object_shrunk(self.id, len);
        }
        Ok(())
    }

    /// Makes `offset..offset+len` read as zeros and frees its whole pages; the size stays.
    pub fn punch(&self, offset: u64, len: u64) -> Result<()> {
        let edge = |g: &Inner, byte: u64| match byte % PAGE {
            0 => None,
            _ => g.missing(byte / PAGE, byte / PAGE + 1),
        };
        let behind = offset.saturating_add(len);
        let mut g = self.change_with(|g| edge(g, offset).or_else(|| edge(g, behind.min(g.size))))?;
        if self.seals().intersects(Seals::NO_WRITE) {
            return Err(Errno::EPERM);
        }
        let end = offset.saturating_add(len).min(g.size);
        if offset >= end {
            return Ok(());
        }
        g.changed(offset, end);
        let (first, last) = (offset.div_ceil(PAGE), end / PAGE);
        if first > last {
            return g.zero_part(offset, end);
        }
        g.zero_part(offset, first * PAGE)?;
        g.zero_part(last * PAGE, end)?;
        // The last page of the file may go whole: behind the end are only zeros.
        let last = if end == g.size { end.div_ceil(PAGE) } else { last };
        if self.writable_maps.load(Ordering::Acquire) > 0 {
            // What is written through a mapping must be found: the pages stay, as zeros.
            g.wipe_present(first, last.max(first));
        } else {
            g.clear(first, last.max(first));
        }
        g.cut_stored(first, last.max(first));
        Ok(())
    }

    /// Gives `offset..offset+len` memory (fallocate); grows the size unless `keep_size`.
    pub fn reserve(&self, offset: u64, len: u64, keep_size: bool) -> Result<()> {
        let end = offset.checked_add(len).filter(|e| *e <= MAX_SIZE).ok_or(Errno::EFBIG)?;
        let mut g = self.change_with(|g| g.missing(offset / PAGE, end.div_ceil(PAGE)))?;
        if !keep_size && end > g.size && self.seals().contains(Seals::GROW) {
            return Err(Errno::EPERM);
        }
        if end.div_ceil(PAGE) - offset / PAGE > g.room().saturating_add(g.pages) {
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
            let (here, n) = g.run(page, end);
            let (here, n) = if here { (true, n) } else { g.is_stored(page, n) };
            if here == data {
                return Ok((page * PAGE).max(offset));
            }
            page += n;
        }
        if data { Err(Errno::ENXIO) } else { Ok(g.size) }
    }

    /// Seals in force.
    pub fn seals(&self) -> Seals {
        Seals::from_bits_retain(self.seals.load(Ordering::Relaxed))
    }

    /// Allows sealing (memfd_create with MFD_ALLOW_SEALING).
    pub fn allow_sealing(&self) {
        self.seals.store(0, Ordering::Relaxed);
    }

    /// F_ADD_SEALS.
    pub fn add_seals(&self, add: Seals) -> Result<()> {
        let g = self.change();
        if self.seals().contains(Seals::SEAL) {
            return Err(Errno::EPERM);
        }
        if add.contains(Seals::WRITE)
            && !self.seals().contains(Seals::WRITE)
            && self.writable_maps.load(Ordering::Acquire) > 0
        {
            return Err(Errno::EBUSY);
        }
        self.seals.fetch_or(add.bits(), Ordering::Relaxed);
        drop(g);
        Ok(())
    }

    /// Counts a writable shared mapping (`delta` 1, or -1 when it goes). EPERM if the seals forbid it.
    pub fn writable_map(&self, delta: i64) -> Result<()> {
        let g = self.change();
        if delta > 0 && self.seals().intersects(Seals::NO_WRITE) {
            return Err(Errno::EPERM);
        }
        if delta > 0 {
            self.map_written.store(true, Ordering::Release);
        }
        self.writable_maps.fetch_add(delta, Ordering::AcqRel);
        drop(g);
        Ok(())
    }
}

impl Object {
    /// The pages that a range of bytes lies in, for a mapping, once they were made `ready`: runs of places in the page file, and of
    /// none.
    fn pieces(
        &self,
        offset: u64,
        len: u64,
        ready: impl FnOnce(&mut Inner, u64, u64) -> Result<()>,
    ) -> Result<Vec<(Option<u64>, u64)>> {
        self.was_mapped.store(true, Ordering::Release);
        let (first, end) = (offset / PAGE, offset.checked_add(len).ok_or(Errno::EINVAL)?.div_ceil(PAGE));
        let mut pieces: Vec<(Option<u64>, u64)> = Vec::new();
        let mut g = self.change_with(|g| g.missing(first, end.min(g.size.div_ceil(PAGE)).max(first)))?;
        ready(&mut g, first, end)?;
        let mut page = first;
        while page < end {
            let (at, n) = g.run_to_write(page, end);
            match pieces.last_mut() {
                Some((Some(start), count)) if at == Some(*start + *count) => *count += n,
                Some((None, count)) if at.is_none() => *count += n,
                _ => pieces.push((at, n)),
            }
            page += n;
        }
        Ok(pieces)
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
        let pieces = self.pieces(offset, len, |g, first, end| {
            g.give_all(first, end)?;
            g.own(first, end)
        });
        let pieces = pieces.map_err(|_| Errno::ENOMEM)?;
        pieces.into_iter().try_for_each(|(at, n)| each(at.ok_or(Errno::ENOMEM)? * PAGE, n * PAGE))
    }

    fn map_lazily(
        &self,
        offset: u64,
        len: u64,
        each: &mut dyn FnMut(Option<u64>, u64) -> Result<()>,
    ) -> Result<()> {
        let pieces = self.pieces(offset, len, Inner::give_all).map_err(|_| Errno::ENOMEM)?;
        let missing = pieces.iter().filter(|(at, _)| at.is_none()).count();
        if missing > MOST_MISSING {
            return self.map_range(offset, len, &mut |at, n| each(Some(at), n));
        }
        if missing > 0 {
            MISSING.set(true);
        }
        pieces.into_iter().try_for_each(|(at, n)| each(at.map(|at| at * PAGE), n * PAGE))
    }

    fn map_present(
        &self,
        offset: u64,
        len: u64,
        each: &mut dyn FnMut(Option<u64>, u64) -> Result<()>,
    ) -> Result<()> {
        // What is mapped is present, and stays.
        let pieces = self.pieces(offset, len, |_, _, _| Ok(()))?;
        pieces.into_iter().try_for_each(|(at, n)| each(at.map(|at| at * PAGE), n * PAGE))
    }

    fn places(&self, offset: u64, len: u64, each: &mut dyn FnMut(Option<u64>, u64)) {
        let g = self.inner.read();
        let (mut page, end) = (offset / PAGE, offset.saturating_add(len).div_ceil(PAGE));
        while page < end {
            let (place, n) = g.run_to_read(page, end);
            let own = if let Some(Place::Own(off)) = place { Some(off) } else { None };
            each(own, n * PAGE);
            page += n;
        }
    }

    fn note_mapped(&self, offset: u64, len: u64) {
        let g = self.inner.read();
        let (mut page, end) = (offset / PAGE, offset.saturating_add(len).div_ceil(PAGE));
        while page < end {
            page += g.run_to_write(page, end).1;
        }
    }

    fn is_sparse(&self, offset: u64, len: u64) -> bool {
        let g = self.inner.read();
        let room = g.room() / SPARSE_PART;
        // Only what is larger than that can miss as much.
        if len / PAGE <= room {
            return false;
        }
        let (mut page, end) = (offset / PAGE, (offset + len).div_ceil(PAGE));
        let mut missing = 0;
        while page < end && missing <= room {
            let (here, n) = g.run(page, end);
            missing += if here { 0 } else { n };
            page += n;
        }
        missing > room
    }

    fn room(&self) -> u64 {
        self.inner.read().room().saturating_mul(PAGE)
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
        let mut g = self.change();
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
