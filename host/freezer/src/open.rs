//! A frozen image opened for cloning.

use std::fs::File;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use doppel_abi_machine::boot_flags;
use doppel_abi_machine::frozen::{
    ARENA, CHUNK, CPU_WORDS, HEADER_SIZE, Header, MAGIC, MAX_SEGMENTS, OWN_LAYER, SEGMENT_SIZE, Segment,
    VERSION,
};
use doppel_abi_machine::layout::{FROZEN_MAX, PAGE};
use doppel_sys::FileMap;
use rustix::fs::{FlockOperation, SeekFrom};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::error::{Error, Result};
use crate::format::{Description, hex, names, parse_header, parse_segment, sound};
use crate::host;
use crate::working_set::WorkingSet;
use crate::write::{hash_page, is_zero};

/// A frozen image whose every byte has been checked. While it is open it is locked against removal.
#[derive(Debug)]
pub struct FrozenImage {
    path: PathBuf,
    file: File,
    map: FileMap,
    header: Header,
    segments: Vec<Segment>,
    names: [String; 3],
    /// Chunks that were not checked when it was opened.
    rest: Vec<u64>,
}

impl FrozenImage {
    /// Opens and checks an image.
    ///
    /// # Errors
    /// If it is not there, damaged, or of another format version.
    pub fn open(path: &Path) -> Result<Self> {
        let image = Self::open_locked(path, Some(FlockOperation::NonBlockingLockShared))?;
        image.check_chunks(&image.all_chunks())?;
        Ok(image)
    }

    /// Opens an image, brings to memory what a clone copies and what `first` has, and checks only that; without
    /// `first`, all. It is locked against all others.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub(crate) fn open_ahead(path: &Path, first: Option<&WorkingSet>) -> Result<Self> {
        let mut image = Self::open_locked(path, Some(FlockOperation::NonBlockingLockExclusive))?;
        let Some(first) = first else {
            image.check_chunks(&image.all_chunks())?;
            return Ok(image);
        };
        let copied = image.segments.iter().filter(|s| s.space < 0).map(|s| (s.offset, s.len));
        let mut wanted: Vec<(u64, u64)> = copied.chain(first.offsets(&image.segments)).collect();
        wanted.sort_unstable();
        let base = image.header.tables_len;
        let mut now: Vec<u64> = Vec::new();
        for (at, len) in wanted {
            now.extend((at - base) / CHUNK..=(at + len - 1 - base) / CHUNK);
        }
        now.dedup();
        // All at once, so that the device has all requests before the first is waited for.
        for i in &now {
            let advice = rustix::fs::Advice::WillNeed;
            rustix::fs::fadvise(&image.file, base + i * CHUNK, NonZeroU64::new(CHUNK), advice)
                .map_err(Error::os(format!("read {} ahead", path.display())))?;
        }
        image.check_chunks(&now)?;
        image.rest = image.all_chunks().into_iter().filter(|i| now.binary_search(i).is_err()).collect();
        Ok(image)
    }

    /// Checks what was not checked when it was opened.
    ///
    /// # Errors
    /// If that is damaged.
    pub fn check_rest(&self) -> Result<()> {
        self.check_chunks(&self.rest)
    }

    fn all_chunks(&self) -> Vec<u64> {
        (0..self.header.chunks).collect()
    }

    /// The directory with the files of layers that an image's memory refers to, if its header says that there are some.
    #[must_use]
    pub fn layers_beside(image: &Path) -> PathBuf {
        image.with_extension("layers")
    }

    /// The directory with what an image keeps of its domain's volumes (`host/volumes`), if its header says that there is something.
    #[must_use]
    pub fn volumes_beside(image: &Path) -> PathBuf {
        image.with_extension("volumes")
    }

    /// That of this one; none: the domain had no volumes.
    #[must_use]
    pub fn volumes(&self) -> Option<PathBuf> {
        (self.header.boot_flags & boot_flags::VOLUMES != 0).then(|| Self::volumes_beside(&self.path))
    }

    /// That of this one; none: its memory has all files.
    ///
    /// # Errors
    /// They are in the layer of the domain that sleeps in it, or not there.
    pub fn layers(&self) -> Result<Option<PathBuf>> {
        match self.header.layers {
            0 => Ok(None),
            OWN_LAYER => Err(Error::Request(
                "the domain sleeps, and its files are its own: wake it and freeze it, and the frozen image has clones".into(),
            )),
            n => {
                let dir = Self::layers_beside(&self.path);
                match (0..n).all(|i| dir.join(i.to_string()).exists()) {
                    true => Ok(Some(dir)),
                    false => Err(Error::Damaged {
                        path: self.path.clone(),
                        reason: format!("its files are not in {}", dir.display()),
                    }),
                }
            }
        }
    }

    /// Opens an image without locking it and checks its header and tables only: enough to describe it.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_unchecked(path: &Path) -> Result<Self> {
        Self::open_locked(path, None)
    }

    fn open_locked(path: &Path, lock: Option<FlockOperation>) -> Result<Self> {
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
        let mut first = [0u8; HEADER_SIZE as usize];
        file.read_exact_at(&mut first, 0).map_err(|_| bad(format!("only {len} bytes long")))?;
        let header = parse_header(&first);
        if header.magic != MAGIC {
            return Err(bad("not a frozen image".into()));
        }
        if header.version != VERSION {
            return Err(bad(format!(
                "format version {}; this program knows version {VERSION}. Freeze the domain again with this program",
                header.version
            )));
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
            || header.file_len < room
        {
            return Err(bad("the header contradicts itself: damaged".into()));
        }
        if header.file_len != len {
            return Err(bad(format!(
                "{len} bytes long instead of {}: truncated or damaged",
                header.file_len
            )));
        }
        let map = FileMap::new(&file).map_err(Error::host(doing()))?;
        let mut tables = map[..room as usize].to_vec();
        // The checksum was made with its own field zero.
        let at = std::mem::offset_of!(Header, checksum);
        tables[at..at + 8].fill(0);
        if xxh3_64(&tables) != header.checksum {
            return Err(bad("header or tables are damaged (checksum)".into()));
        }
        let from = HEADER_SIZE as usize;
        let segments: Vec<Segment> = tables[from..]
            .chunks_exact(SEGMENT_SIZE as usize)
            .take(header.segments as usize)
            .map(|c| parse_segment(c.try_into().expect("chunks of its size")))
            .collect();
        if !sound(&header, &segments) {
            return Err(bad("its segment table makes no sense".into()));
        }
        let names = names(&header).ok_or_else(|| bad("its names make no sense".into()))?;
        Ok(Self { path: path.into(), file, map, header, segments, names, rest: Vec::new() })
    }

    /// Compares the pages of chunks with their checksums.
    fn check_chunks(&self, chunks: &[u64]) -> Result<()> {
        let base = self.header.tables_len;
        let sums_at = (HEADER_SIZE + self.header.segments * SEGMENT_SIZE) as usize;
        let next = AtomicUsize::new(0);
        let check = || -> Result<()> {
            let mut buf = vec![0u8; CHUNK as usize];
            loop {
                let Some(&i) = chunks.get(next.fetch_add(1, Ordering::Relaxed)) else { return Ok(()) };
                let from = base + i * CHUNK;
                let len = CHUNK.min(self.header.file_len - from) as usize;
                let sum = self
                    .chunk_sum(from, &mut buf[..len])
                    .map_err(Error::host(format!("read {}", self.path.display())))?;
                let at = sums_at + i as usize * 8;
                if self.map[at..at + 8] != sum.to_le_bytes() {
                    return Err(Error::Damaged {
                        path: self.path.clone(),
                        reason: format!("damaged between byte {from} and {} (checksum)", from + len as u64),
                    });
                }
            }
        };
        std::thread::scope(|scope| {
            // If the host gives no thread it takes longer.
            let begin = || std::thread::Builder::new().spawn_scoped(scope, check).ok();
            let helper = (chunks.len() > 4).then(begin).flatten();
            let mine = check();
            helper.map_or(Ok(()), |h| h.join().expect("a checking thread panicked")).and(mine)
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

    /// Refuses a host, guest kernel or root image that the frozen programs could not go on with.
    ///
    /// # Errors
    /// [`Error::Unfit`] says what differs.
    pub fn check_fit(&self, kernel: &[u8; 32], image: &[u8; 32]) -> Result<()> {
        let unfit = |reason: String| Err(Error::Unfit { name: self.label(), reason });
        let h = &self.header;
        if h.machine_version != doppel_abi_machine::VERSION || h.kernel != *kernel {
            return unfit(format!(
                "it was frozen with another guest kernel ({}…, here {}…); use the doppel that froze it, or freeze again",
                &hex(&h.kernel)[..12],
                &hex(kernel)[..12]
            ));
        }
        if h.image != *image {
            return unfit(format!(
                "root image {} has changed since the freeze; restore it, or freeze again",
                self.names[2]
            ));
        }
        let here = doppel_sys::cpu::features();
        let lacking: Vec<String> = h
            .cpu
            .iter()
            .zip(here)
            .enumerate()
            .filter(|(_, (frozen, here))| *frozen & !**here != 0)
            .map(|(i, (frozen, here))| match CPU_WORDS.get(i) {
                Some((leaf, sub, r)) => {
                    format!(
                        "CPUID {leaf:#x}.{sub} e{}x bits {:#x}",
                        ["a", "b", "c", "d"][usize::from(*r)],
                        frozen & !here
                    )
                }
                None => format!("XCR0 bits {:#x}", frozen & !here),
            })
            .collect();
        if !lacking.is_empty() {
            return unfit(format!("this CPU lacks features the programs may use: {}", lacking.join(", ")));
        }
        if h.vdso != host::vdso()? {
            return unfit(
                "it was frozen under another host kernel (its vDSO differs); freeze again under this one"
                    .into(),
            );
        }
        Ok(())
    }

    /// Offset of the domain's monotonic clock on this host: it goes on, counting the time that has passed.
    ///
    /// # Errors
    /// If the host does not tell its boot id.
    pub fn monotonic_offset(&self) -> Result<u64> {
        let h = &self.header;
        if h.host_boot == host::boot_id()? {
            return Ok(h.monotonic_offset);
        }
        let passed = host::realtime_ns().saturating_sub(h.realtime_ns);
        let then = h.host_monotonic_ns.wrapping_add(h.monotonic_offset);
        Ok(then.wrapping_add(passed).wrapping_sub(host::monotonic_ns()))
    }

    /// Copies what every clone has its own copy of to its arena and page file, which are empty: pages of zeros take no memory.
    ///
    /// # Errors
    /// If the host has no room.
    pub fn fill(&self, arena: impl std::os::fd::AsFd, pagefile: impl std::os::fd::AsFd) -> Result<()> {
        let doing = || "fill the clone's memory";
        for s in self.segments.iter().filter(|s| s.space < 0) {
            let fd = if s.space == ARENA { arena.as_fd() } else { pagefile.as_fd() };
            let (mut at, end) = (s.offset, s.offset + s.len);
            while let Some(data) = data(&self.file, at, end).map_err(Error::os(doing()))? {
                at = data.start;
                while at < data.end {
                    let bytes = &self.map[at as usize..data.end as usize];
                    let n = rustix::io::pwrite(fd, bytes, s.addr + (at - s.offset))
                        .map_err(Error::os(doing()))?;
                    at += n as u64;
                }
            }
        }
        Ok(())
    }

    /// The file.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Its inode number.
    ///
    /// # Errors
    /// If the host does not tell.
    pub fn inode(&self) -> Result<u64> {
        Ok(self.file.metadata().map_err(Error::host("examine a frozen image"))?.ino())
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The header.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Root image's file on this host: where it was when the domain was frozen or, if nothing is there, in the same store as this.
    #[must_use]
    pub fn root_image(&self) -> PathBuf {
        let recorded = Path::new(self.image_path());
        if recorded.exists() {
            return recorded.to_owned();
        }
        let store = self.path.parent().and_then(Path::parent);
        let here = store.zip(recorded.file_name()).map(|(store, name)| store.join("images").join(name));
        here.filter(|path| path.exists()).unwrap_or_else(|| recorded.to_owned())
    }

    /// Root image's file when it was frozen.
    #[must_use]
    pub fn image_path(&self) -> &str {
        &self.names[2]
    }

    /// Host name of the frozen domain.
    #[must_use]
    pub fn hostname(&self) -> &str {
        &self.names[1]
    }

    /// The image's own name.
    #[must_use]
    pub fn label(&self) -> String {
        self.path.file_stem().map_or_else(String::new, |s| s.to_string_lossy().into_owned())
    }

    /// What it is.
    #[must_use]
    pub fn describe(&self) -> Description {
        let h = &self.header;
        let mut processes: Vec<i32> = self.segments.iter().map(|s| s.space).filter(|s| *s > 0).collect();
        processes.dedup();
        Description {
            domain: self.names[0].clone(),
            domain_id: h.domain_id,
            hostname: self.names[1].clone(),
            image: self.names[2].clone(),
            generation: h.generation,
            frozen_at: h.realtime_ns / 1_000_000_000,
            vcpus: h.vcpus,
            memory_limit: h.memory_limit,
            processes: processes.len(),
            segments: h.segments,
            data_bytes: h.data_bytes,
            copied_bytes: self.segments.iter().filter(|s| s.space < 0).map(|s| s.len).sum(),
            kernel: hex(&h.kernel),
            image_digest: hex(&h.image),
        }
    }
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

#[cfg(test)]
mod tests;
