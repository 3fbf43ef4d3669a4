//! Directories: blocks of sorted entries, with the names behind the entries of each block.

use core::cmp::Ordering;

use doppel_abi_image as abi;

use crate::{Erofs, Error, Extent, Inode, Result};

const BLOCK: u64 = abi::BLOCK_SIZE as u64;

/// One entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// Inode number.
    pub nid: u64,
    /// One of the `FT_` numbers of `doppel-abi-image`; a hint, the inode's mode is the truth.
    pub file_type: u8,
    /// Name: 1 to 255 bytes without NUL or slash. `.` and `..` are entries too.
    pub name: &'a [u8],
    /// Cookie to resume a listing behind this entry.
    pub next: u64,
}

/// A directory block whose entry count is known to fit.
struct Block<'a> {
    bytes: &'a [u8],
    count: usize,
}

impl<'a> Block<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Self> {
        let first = bytes.first_chunk().map(abi::Dirent::decode);
        let nameoff = usize::from(first.ok_or(Error::Corrupt("directory block too short"))?.nameoff);
        if nameoff == 0 || !nameoff.is_multiple_of(abi::Dirent::SIZE) || nameoff > bytes.len() {
            return Err(Error::Corrupt("directory block has a bad entry count"));
        }
        Ok(Self { bytes, count: nameoff / abi::Dirent::SIZE })
    }

    fn dirent(&self, index: usize) -> Result<abi::Dirent> {
        let at = index * abi::Dirent::SIZE;
        let raw = self.bytes.get(at..).and_then(<[u8]>::first_chunk);
        raw.map(abi::Dirent::decode).ok_or(Error::Corrupt("directory entry outside its block"))
    }

    /// Entry `index` (below `count`): its head and its name.
    fn entry(&self, index: usize) -> Result<(abi::Dirent, &'a [u8])> {
        let head = self.dirent(index)?;
        let last = index + 1 == self.count;
        let end = if last { self.bytes.len() } else { usize::from(self.dirent(index + 1)?.nameoff) };
        let mut name = self
            .bytes
            .get(usize::from(head.nameoff)..end)
            .ok_or(Error::Corrupt("directory names out of order"))?;
        if last && let Some(nul) = name.iter().position(|b| *b == 0) {
            name = &name[..nul];
        }
        let inside_entries = usize::from(head.nameoff) < self.count * abi::Dirent::SIZE;
        if inside_entries || name.is_empty() || name.len() > abi::NAME_MAX {
            return Err(Error::Corrupt("directory entry has an impossible name"));
        }
        if name.iter().any(|b| *b == 0 || *b == b'/') {
            return Err(Error::Corrupt("NUL or slash in a file name"));
        }
        Ok((head, name))
    }
}

impl<'a> Erofs<'a> {
    fn dir_block(&self, dir: &Inode, index: u64) -> Result<Block<'a>> {
        let at = index * BLOCK; // below the directory's size, which is below the image's
        let len = BLOCK.min(dir.size.saturating_sub(at));
        match self.extent(dir, at)? {
            Some(Extent::Data { offset, len: run }) if run >= len => Block::parse(self.bytes(offset, len)?),
            _ => Err(Error::Corrupt("directory block is missing")),
        }
    }

    /// Finds `name` in `dir`: inode number and `FT_` type. Binary search over blocks, then in the block.
    pub fn lookup(&self, dir: &Inode, name: &[u8]) -> Result<Option<(u64, u8)>> {
        if !dir.is_dir() {
            return Err(Error::WrongKind);
        }
        if name.is_empty() || name.len() > abi::NAME_MAX {
            return Ok(None);
        }
        // The block to search is the last one whose first name is not after `name`.
        let (mut low, mut high) = (0, dir.size.div_ceil(BLOCK));
        let mut found = None;
        while low < high {
            let middle = low + (high - low) / 2;
            let block = self.dir_block(dir, middle)?;
            match block.entry(0)?.1.cmp(name) {
                Ordering::Greater => high = middle,
                Ordering::Less | Ordering::Equal => {
                    found = Some(block);
                    low = middle + 1;
                }
            }
        }
        let Some(block) = found else { return Ok(None) };
        let (mut low, mut high) = (0, block.count);
        while low < high {
            let middle = low + (high - low) / 2;
            let (head, entry) = block.entry(middle)?;
            match entry.cmp(name) {
                Ordering::Equal => return Ok(Some((head.nid, head.file_type))),
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
            }
        }
        Ok(None)
    }

    /// Lists `dir` from `cookie` (0, or the [`DirEntry::next`] of an entry seen) until `each` says false.
    pub fn readdir(
        &self,
        dir: &Inode,
        cookie: u64,
        mut each: impl FnMut(DirEntry<'a>) -> bool,
    ) -> Result<()> {
        if !dir.is_dir() {
            return Err(Error::WrongKind);
        }
        let mut first = usize::try_from(cookie % BLOCK).unwrap_or(0).div_ceil(abi::Dirent::SIZE);
        for index in cookie / BLOCK..dir.size.div_ceil(BLOCK) {
            let block = self.dir_block(dir, index)?;
            for i in first..block.count {
                let (head, name) = block.entry(i)?;
                let next = if i + 1 < block.count {
                    index * BLOCK + ((i + 1) * abi::Dirent::SIZE) as u64
                } else {
                    (index + 1) * BLOCK
                };
                if !each(DirEntry { nid: head.nid, file_type: head.file_type, name, next }) {
                    return Ok(());
                }
            }
            first = 0;
        }
        Ok(())
    }
}
