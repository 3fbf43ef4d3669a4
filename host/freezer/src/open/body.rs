//! One file of frozen memory: its header and tables checked, its pages as far as somebody asks.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use doppel_abi_machine::frozen::{
    CHUNK, HEADER_SIZE, Header, MAGIC, MAX_ANCESTORS, MAX_SEGMENTS, SEGMENT_SIZE, Segment, VERSION,
};
use doppel_abi_machine::layout::{FROZEN_MAX, PAGE};
use doppel_sys::FileMap;
use rustix::fs::{FlockOperation, SeekFrom};
use xxhash_rust::xxh3::{Xxh3, xxh3_64, xxh3_128};

use crate::error::{Error, Result};
use crate::format::{hash_page, is_zero, parse_header, parse_segment};

/// What tells a file of frozen memory from all others (`Header::ancestors`).
pub type Identity = [u8; 16];

/// A frozen image's file, or an ancestor's.
#[derive(Debug)]
pub(crate) struct Body {
    pub path: PathBuf,
    pub file: File,
    pub map: FileMap,
    pub header: Header,
    identity: OnceLock<Identity>,
}

impl Body {
    /// Opens a file and checks header and tables.
    pub fn open(path: &Path, lock: Option<FlockOperation>) -> Result<Self> {
        let doing = || format!("open frozen image {}", path.display());
        let file = File::open(path).map_err(Error::host(doing()))?;
        match lock.map_or(Ok(()), |l| rustix::fs::flock(&file, l)) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(Error::Request(format!(
                    "frozen image {} is in use: its domain is awake, or one that goes on from it runs",
                    path.file_stem().unwrap_or_default().to_string_lossy()
                )));
            }
            Err(e) => return Err(Error::os(doing())(e)),
        }
        let bad = |reason: String| Error::Damaged { path: path.into(), reason };
        let len = file.metadata().map_err(Error::host(doing()))?.len();
        let header = checked_header(&file, len).map_err(bad)?;
        let map = FileMap::new(&file).map_err(Error::host(doing()))?;
        let mut tables = map[..header.tables_len as usize].to_vec();
        // The checksum was made with its own field zero.
        let at = std::mem::offset_of!(Header, checksum);
        tables[at..at + 8].fill(0);
        if xxh3_64(&tables) != header.checksum {
            return Err(bad("header or tables are damaged (checksum)".into()));
        }
        Ok(Self { path: path.into(), file, map, header, identity: OnceLock::new() })
    }

    /// Its segments, unchecked.
    pub fn segments(&self) -> Vec<Segment> {
        self.map[HEADER_SIZE as usize..]
            .chunks_exact(SEGMENT_SIZE as usize)
            .take(self.header.segments as usize)
            .map(|c| parse_segment(c.try_into().expect("chunks of its size")))
            .collect()
    }

    /// What tells it from all others.
    pub fn identity(&self) -> Identity {
        *self.identity.get_or_init(|| identity(&self.map[..self.header.tables_len as usize]))
    }

    /// Its place on the host: device and inode number.
    pub fn place(&self) -> Result<(u64, u64)> {
        let meta = self.file.metadata().map_err(Error::host("examine a frozen image"))?;
        Ok((meta.dev(), meta.ino()))
    }

    /// Whether its name is another file's by now.
    pub fn is_replaced(&self) -> bool {
        let there = std::fs::metadata(&self.path).map(|m| (m.dev(), m.ino()));
        there.is_ok_and(|there| self.place().is_ok_and(|place| place != there))
    }

    /// Bytes it takes.
    pub fn used(&self) -> u64 {
        self.file.metadata().map_or(0, |m| m.blocks() * 512)
    }

    /// Compares the pages of a chunk with their checksum; `buf` has room for them.
    pub fn check_chunk(&self, chunk: u64, buf: &mut [u8]) -> Result<()> {
        let from = self.header.data_at + chunk * CHUNK;
        let len = CHUNK.min(self.header.file_len - from) as usize;
        let sum = self
            .chunk_sum(from, &mut buf[..len])
            .map_err(Error::host(format!("read {}", self.path.display())))?;
        let at = (HEADER_SIZE + self.header.segments * SEGMENT_SIZE + chunk * 8) as usize;
        if self.map[at..at + 8] == sum.to_le_bytes() {
            return Ok(());
        }
        Err(Error::Damaged {
            path: self.path.clone(),
            reason: format!("damaged between byte {from} and {} (checksum)", from + len as u64),
        })
    }

    fn chunk_sum(&self, from: u64, buf: &mut [u8]) -> std::io::Result<u64> {
        let mut hash = Xxh3::new();
        let end = from + buf.len() as u64;
        let mut at = from;
        // Holes are not read: that would fill them.
        while let Some(Range { start, end: stop }) = data(&self.file, at, end)? {
            let range = (start - from) as usize..(stop - from) as usize;
            self.file.read_exact_at(&mut buf[range.clone()], start)?;
            for (i, page) in buf[range.clone()].chunks(PAGE as usize).enumerate() {
                if !is_zero(page) {
                    hash_page(&mut hash, range.start + i * PAGE as usize, page);
                }
            }
            at = stop;
        }
        Ok(hash.digest())
    }

    /// Reads what lies at this offset; holes are not read.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<()> {
        let (mut at, end) = (offset, offset + buf.len() as u64);
        while let Some(Range { start, end: stop }) = data(&self.file, at, end)? {
            buf[(at - offset) as usize..(start - offset) as usize].fill(0);
            self.file.read_exact_at(&mut buf[(start - offset) as usize..(stop - offset) as usize], start)?;
            at = stop;
        }
        buf[(at - offset) as usize..].fill(0);
        Ok(())
    }
}

/// What tells a file with these header and tables from all others.
pub(crate) fn identity(tables: &[u8]) -> Identity {
    xxh3_128(tables).to_le_bytes()
}

/// Reads a header and sees whether it can be one of a file so long; what is wrong with it.
fn checked_header(file: &File, len: u64) -> std::result::Result<Header, String> {
    let mut first = [0u8; HEADER_SIZE as usize];
    // One that is shorter than a header can still be told from other files.
    let have = file.read_at(&mut first, 0).unwrap_or(0);
    if have < HEADER_SIZE as usize && len >= HEADER_SIZE || have < 16 {
        return Err(format!("only {len} bytes long"));
    }
    let header = parse_header(&first);
    if header.magic != MAGIC {
        return Err("not a frozen image".into());
    }
    if header.version != VERSION {
        return Err(format!(
            "format version {}; this program knows version {VERSION}. Freeze the domain again with this program",
            header.version
        ));
    }
    if have < HEADER_SIZE as usize {
        return Err(format!("only {len} bytes long"));
    }
    let room = header.tables_len;
    let need = header
        .segments
        .checked_mul(SEGMENT_SIZE)
        .and_then(|n| n.checked_add(header.chunks.checked_mul(8)?))
        .and_then(|n| n.checked_add(HEADER_SIZE));
    if header.segments > MAX_SEGMENTS
        || room > FROZEN_MAX
        || !room.is_multiple_of(PAGE)
        || need.is_none_or(|n| n > room)
        || header.data_at < room
        || !header.data_at.is_multiple_of(PAGE)
        || header.file_len < header.data_at
        || header.chunks != (header.file_len - header.data_at).div_ceil(CHUNK)
        || header.ancestor_count > MAX_ANCESTORS as u64
    {
        return Err("the header contradicts itself: damaged".into());
    }
    if header.file_len != len {
        return Err(format!("{len} bytes long instead of {}: truncated or damaged", header.file_len));
    }
    Ok(header)
}

/// The first bytes of `from..end` of a file that are no hole.
pub(crate) fn data(file: &File, from: u64, end: u64) -> rustix::io::Result<Option<Range<u64>>> {
    if from >= end {
        return Ok(None);
    }
    match rustix::fs::seek(file, SeekFrom::Data(from)) {
        Ok(start) if start < end => Ok(Some(start..rustix::fs::seek(file, SeekFrom::Hole(start))?.min(end))),
        Ok(_) | Err(rustix::io::Errno::NXIO) => Ok(None),
        Err(e) => Err(e),
    }
}
