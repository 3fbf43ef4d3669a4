//! File data: where bytes live in the image, reading them, and symbolic-link targets.

use doppel_abi_image as abi;

use crate::inode::Layout;
use crate::{Erofs, Error, Inode, Kind, Result};

/// Longest symbolic-link target, without the NUL that Linux counts in `PATH_MAX`.
const TARGET_MAX: u64 = 4095;

/// A run of a file's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// `len` bytes at `offset` of the image.
    Data {
        /// Where the run starts in the image.
        offset: u64,
        /// Bytes in the run, at least 1.
        len: u64,
    },
    /// `len` bytes that read as zero.
    Hole {
        /// Bytes in the run, at least 1.
        len: u64,
    },
}

impl<'a> Erofs<'a> {
    /// The run of data that starts at file offset `at` and is contiguous in the image; `None` at or past
    /// the end of the file. Data runs are checked to lie in the image.
    pub fn extent(&self, inode: &Inode, at: u64) -> Result<Option<Extent>> {
        if at >= inode.size {
            return Ok(None);
        }
        let left = inode.size - at;
        let (offset, len) = match inode.layout {
            Layout::Empty => return Ok(None),
            Layout::Plain { start } => (start.checked_add(at), left),
            Layout::Inline { start, head, .. } if at < head => (start.checked_add(at), head - at),
            Layout::Inline { head, tail, .. } => (tail.checked_add(at - head), left),
            Layout::Chunks { table, bits, indexed } => {
                let within = at & ((1 << bits) - 1);
                let len = left.min((1 << bits) - within);
                match self.chunk(table, at >> bits, indexed)? {
                    None => return Ok(Some(Extent::Hole { len })),
                    Some(start) => (start.checked_add(within), len),
                }
            }
        };
        let offset = offset.ok_or(Error::Corrupt("data address overflows"))?;
        self.bytes(offset, len)?;
        Ok(Some(Extent::Data { offset, len }))
    }

    /// Image offset of chunk `index`, or `None` for a hole.
    fn chunk(&self, table: u64, index: u64, indexed: bool) -> Result<Option<u64>> {
        let unit = if indexed { abi::ChunkIndex::SIZE as u64 } else { 4 };
        let at = index
            .checked_mul(unit)
            .and_then(|o| o.checked_add(table))
            .ok_or(Error::Corrupt("chunk table overflows"))?;
        let block = if indexed {
            let entry = abi::ChunkIndex::decode(self.array(at)?);
            if entry.device_id != 0 {
                return Err(Error::Unsupported("data on another device"));
            }
            entry.blkaddr
        } else {
            u32::from_le_bytes(*self.array(at)?)
        };
        Ok((block != abi::NULL_ADDR).then(|| u64::from(block) << abi::BLOCK_BITS))
    }

    /// Where the whole file lies when it can be mapped page by page: its bytes are contiguous, start on a
    /// page, and the image holds the last page in full. `(image offset, file size)`.
    ///
    /// `None` for an empty file and for layouts that do not allow it (an inline tail, scattered chunks);
    /// such a file must be copied with [`Erofs::read_at`]. Images made by Doppel always allow it.
    pub fn data_range(&self, inode: &Inode) -> Result<Option<(u64, u64)>> {
        if inode.kind != Kind::Regular {
            return Err(Error::WrongKind);
        }
        match self.extent(inode, 0)? {
            Some(Extent::Data { offset, len })
                if len == inode.size && offset.is_multiple_of(abi::BLOCK_SIZE as u64) =>
            {
                let pages = len.checked_next_multiple_of(abi::BLOCK_SIZE as u64);
                let end = pages.and_then(|p| p.checked_add(offset));
                Ok(end.filter(|e| *e <= self.image().len() as u64).map(|_| (offset, len)))
            }
            _ => Ok(None),
        }
    }

    /// Reads file bytes from `at` into `buf`; returns how many, short only at the end of the file.
    pub fn read_at(&self, inode: &Inode, at: u64, buf: &mut [u8]) -> Result<usize> {
        if inode.kind != Kind::Regular {
            return Err(Error::WrongKind);
        }
        let mut done = 0;
        while let Some(rest) = buf.get_mut(done..).filter(|r| !r.is_empty()) {
            // `done` counts bytes that exist in the file, so the sum stays at or below its size.
            let n = match self.extent(inode, at.saturating_add(done as u64))? {
                None => break,
                Some(Extent::Hole { len }) => {
                    let n = clamp(len, rest.len());
                    rest[..n].fill(0);
                    n
                }
                Some(Extent::Data { offset, len }) => {
                    let n = clamp(len, rest.len());
                    rest[..n].copy_from_slice(self.bytes(offset, n as u64)?);
                    n
                }
            };
            done += n;
        }
        Ok(done)
    }

    /// Target of a symbolic link, 1 to 4095 bytes without a NUL.
    pub fn symlink(&self, inode: &Inode) -> Result<&'a [u8]> {
        if inode.kind != Kind::Symlink {
            return Err(Error::WrongKind);
        }
        if inode.size == 0 || inode.size > TARGET_MAX {
            return Err(Error::Corrupt("symbolic link of impossible length"));
        }
        match self.extent(inode, 0)? {
            Some(Extent::Data { offset, len }) if len == inode.size => {
                let target = self.bytes(offset, len)?;
                if target.contains(&0) { Err(Error::Corrupt("NUL in a symbolic link")) } else { Ok(target) }
            }
            _ => Err(Error::Corrupt("symbolic link is not contiguous")),
        }
    }
}

/// `len`, at most `limit`.
fn clamp(len: u64, limit: usize) -> usize {
    usize::try_from(len).map_or(limit, |l| l.min(limit))
}
