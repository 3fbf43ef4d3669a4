//! Bytes of an [`Object`] that come from elsewhere than a program's or the kernel's buffer, or go there, and pages that are not there yet
//! (objects/storage).

use doppel_machine::pagefile::{self, Place};

use super::{MAX_SIZE, Object, PAGE};
use crate::objects::vfs::io::{Output, Piece};
use crate::{Errno, Result};

impl Object {
    /// Pages that hold data.
    pub fn pages(&self) -> u64 {
        self.blocks() / (PAGE / 512)
    }

    /// Reads from `offset` up to the end of the object, or to the first page that holds no data.
    pub fn read_here(&self, out: &mut Output<'_>, offset: u64) -> Result<usize> {
        let g = self.inner.read();
        let (mut at, end) = (offset, g.size.min(offset.saturating_add(out.remaining() as u64)));
        while at < end {
            let (place, pages) = g.run_to_read(at / PAGE, end.div_ceil(PAGE));
            let Some(place) = place else { break };
            let n = ((at / PAGE + pages) * PAGE).min(end) - at;
            let from = place.behind(at % PAGE);
            let got = out.pieces(n as usize, |done, piece| match piece {
                Piece::User(to, len) => {
                    pagefile::copy_to_user(from.behind(done as u64), to, len).unwrap_or(0)
                }
                Piece::Kernel(buf) => {
                    pagefile::read(from.behind(done as u64), buf);
                    buf.len()
                }
            })?;
            at += got as u64;
            if (got as u64) < n {
                break;
            }
        }
        Ok((at - offset) as usize)
    }

    /// Has `len` bytes at `offset` copied into the object: `take(place, done, len)` puts a piece of them, behind `done` bytes, at a
    /// place of the page file. The size grows if `grows`.
    pub fn put(
        &self,
        offset: u64,
        len: usize,
        grows: bool,
        mut take: impl FnMut(u64, usize, usize),
    ) -> Result<()> {
        let mut g = self.change();
        let end = offset.checked_add(len as u64).filter(|end| *end <= MAX_SIZE).ok_or(Errno::EFBIG)?;
        g.ensure(offset / PAGE, end.div_ceil(PAGE))?;
        g.own(offset / PAGE, end.div_ceil(PAGE))?;
        let mut at = offset;
        while at < end {
            let (place, pages) = g.run_to_write(at / PAGE, end.div_ceil(PAGE));
            let n = ((at / PAGE + pages) * PAGE).min(end) - at;
            let place = place.ok_or(Errno::ENOSPC)?;
            take(place * PAGE + at % PAGE, (at - offset) as usize, n as usize);
            at += n;
        }
        if grows {
            g.size = g.size.max(end);
        }
        Ok(())
    }

    /// Has `len` bytes at `offset`, whose pages hold data, copied out of the object: `give(place, done, len)` takes a piece of them,
    /// behind `done` bytes, from a place.
    pub fn get(&self, offset: u64, len: usize, mut give: impl FnMut(Place, usize, usize)) {
        let g = self.inner.read();
        let (mut at, end) = (offset, offset + len as u64);
        while at < end {
            let (place, pages) = g.run_to_read(at / PAGE, end.div_ceil(PAGE));
            let n = ((at / PAGE + pages) * PAGE).min(end) - at;
            if let Some(place) = place {
                give(place.behind(at % PAGE), (at - offset) as usize, n as usize);
            }
            at += n;
        }
    }

    /// How many pages from `page` on, up to `end`, hold no data.
    pub fn missing(&self, page: u64, end: u64) -> u64 {
        match self.inner.read().run(page, end) {
            (false, n) => n,
            (true, _) => 0,
        }
    }

    /// Whether all pages from `page` up to `end` hold data.
    pub fn is_present(&self, mut page: u64, end: u64) -> bool {
        let g = self.inner.read();
        while page < end {
            let (here, n) = g.run(page, end);
            if !here {
                return false;
            }
            page += n;
        }
        true
    }
}

/// Access to memory that is shared with a program, a word or some bytes at a time. All of it has been reserved.
impl Object {
    /// The word at an offset, which is a multiple of four.
    pub fn load(&self, offset: u64) -> u32 {
        debug_assert!(offset.is_multiple_of(4), "a word is aligned");
        let mut word = 0;
        self.get(offset, 4, |place, _, _| word = pagefile::load(place));
        word
    }

    /// Stores a word; whoever sees it sees what was written before.
    pub fn store(&self, offset: u64, word: u32) -> Result<()> {
        debug_assert!(offset.is_multiple_of(4), "a word is aligned");
        self.put(offset, 4, false, |place, _, _| pagefile::store(place, word))
    }

    /// Where it begins in the page file, if it is in one piece there.
    pub fn place(&self) -> Option<u64> {
        let g = self.inner.read();
        let pages = g.size.div_ceil(PAGE);
        match g.run_to_write(0, pages) {
            (Some(at), n) if n == pages => Some(at * PAGE),
            _ => None,
        }
    }

    /// Copies bytes out.
    pub fn copy_out(&self, offset: u64, bytes: &mut [u8]) {
        self.get(offset, bytes.len(), |place, done, len| pagefile::read(place, &mut bytes[done..][..len]));
    }

    /// Copies bytes in.
    pub fn copy_in(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.put(offset, bytes.len(), false, |place, done, len| {
            pagefile::write(place, &bytes[done..][..len]);
        })
    }
}
