//! A frozen image opened for cloning.

use std::fs::File;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use doppel_abi_machine::boot_flags;
use doppel_abi_machine::frozen::{ARENA, CHUNK, CPU_WORDS, Header, OWN_LAYER, PAGEFILE, Segment, kept};
use rustix::fs::FlockOperation;

use crate::checked;
use crate::error::{Error, Result};
use crate::format::{Description, hex, names, sound};
use crate::host;
use crate::working_set::WorkingSet;

mod body;

pub use body::Identity;
pub(crate) use body::{Body, data, identity};

/// A chunk of pages: of which file, and which.
type Chunk = (u32, u64);

/// A frozen image whose every byte has been checked ([`checked`] says when). While it is open it is locked against removal.
#[derive(Debug)]
pub struct FrozenImage {
    /// Its own file, and those of its ancestors.
    files: Vec<Body>,
    segments: Vec<Segment>,
    names: [String; 3],
    /// Chunks that were not checked when it was opened.
    rest: Vec<Chunk>,
}

/// Opens an ancestor of the image at `image`.
fn ancestor(image: &Path, wanted: &Identity) -> Result<Body> {
    let path = FrozenImage::ancestors_beside(image).join(hex(wanted));
    let bad = |reason: String| Error::Damaged { path: image.into(), reason };
    let body = Body::open(&path, None).map_err(|e| bad(format!("its memory is in another file: {e}")))?;
    if body.identity() != *wanted {
        return Err(bad(format!("{} is not the file that its memory is in", path.display())));
    }
    Ok(body)
}

impl FrozenImage {
    /// Opens and checks an image: whole, but once a boot of the host while nobody changes it.
    ///
    /// # Errors
    /// If it is not there, damaged, or of another format version.
    pub fn open(path: &Path) -> Result<Self> {
        let image = Self::open_locked(path, Some(FlockOperation::NonBlockingLockShared))?;
        let files = || image.files.iter().map(|body| &body.file);
        let state = checked::state(files());
        if !state.as_ref().is_some_and(|state| checked::is_noted(path, state)) {
            image.check_chunks(&image.all_chunks())?;
            // In which it was before that.
            if let Some(state) = state.filter(|_| checked::settled(files())) {
                checked::note(path, &state);
            }
        }
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
        let copied = image.copied().map(|s| (s.file, s.offset, s.len));
        let now = image.chunks_of(copied.chain(first.offsets(&image.segments)));
        // All at once, so that the device has all requests before the first is waited for.
        for &(file, chunk) in &now {
            let body = &image.files[file as usize];
            let advice = rustix::fs::Advice::WillNeed;
            let at = body.header.data_at + chunk * CHUNK;
            rustix::fs::fadvise(&body.file, at, NonZeroU64::new(CHUNK), advice)
                .map_err(Error::os(format!("read {} ahead", path.display())))?;
        }
        image.check_chunks(&now)?;
        image.rest = image.all_chunks().into_iter().filter(|c| now.binary_search(c).is_err()).collect();
        Ok(image)
    }

    /// Checks what was not checked when it was opened.
    ///
    /// # Errors
    /// If that is damaged.
    pub fn check_rest(&self) -> Result<()> {
        self.check_chunks(&self.rest)
    }

    /// Its own chunks, and those of ancestors that it needs.
    fn all_chunks(&self) -> Vec<Chunk> {
        let theirs = self.segments.iter().filter(|s| s.file > 0).map(|s| (s.file, s.offset, s.len));
        let own = (0..self.header().chunks).map(|chunk| (0, chunk));
        own.chain(self.chunks_of(theirs)).collect()
    }

    /// The directory with the files of its ancestors, named by their identities.
    #[must_use]
    pub fn ancestors_beside(image: &Path) -> PathBuf {
        image.with_extension("ancestors")
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
        (self.header().boot_flags & boot_flags::VOLUMES != 0).then(|| Self::volumes_beside(self.path()))
    }

    /// That of this one; none: its memory has all files.
    ///
    /// # Errors
    /// They are in the layer of the domain that sleeps in it, or not there.
    pub fn layers(&self) -> Result<Option<PathBuf>> {
        match self.header().layers {
            0 => Ok(None),
            OWN_LAYER => Err(Error::Request(
                "the domain sleeps, and its files are its own: wake it and freeze it, and the frozen image has clones".into(),
            )),
            n => {
                let dir = Self::layers_beside(self.path());
                match (0..n).all(|i| dir.join(i.to_string()).exists()) {
                    true => Ok(Some(dir)),
                    false => Err(Error::Damaged {
                        path: self.path().into(),
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
        let body = Body::open(path, lock)?;
        let bad = |reason: String| Error::Damaged { path: path.into(), reason };
        let header = body.header;
        let mut files = vec![body];
        for wanted in &header.ancestors[..header.ancestor_count as usize] {
            match ancestor(path, wanted) {
                Ok(body) => files.push(body),
                // It has been replaced meanwhile: flattened, or by the next hibernation.
                Err(_) if files[0].is_replaced() => return Self::open_locked(path, lock),
                Err(e) => return Err(e),
            }
        }
        let segments = files[0].segments();
        let headers: Vec<&Header> = files.iter().map(|f| &f.header).collect();
        if !sound(&headers, &segments) {
            return Err(bad("its segment table makes no sense".into()));
        }
        let names = names(&header).ok_or_else(|| bad("its names make no sense".into()))?;
        Ok(Self { files, segments, names, rest: Vec::new() })
    }

    /// The chunks in which these are: (file, offset, length); each once.
    fn chunks_of(&self, parts: impl Iterator<Item = (u32, u64, u64)>) -> Vec<Chunk> {
        let mut all: Vec<Chunk> = Vec::new();
        for (file, at, len) in parts {
            let base = self.files[file as usize].header.data_at;
            all.extend(((at - base) / CHUNK..=(at + len - 1 - base) / CHUNK).map(|chunk| (file, chunk)));
            // What is asked for one after the other lies close together.
            all.dedup();
        }
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Compares the pages of chunks with their checksums.
    fn check_chunks(&self, chunks: &[Chunk]) -> Result<()> {
        let next = AtomicUsize::new(0);
        let check = || -> Result<()> {
            let mut buf = vec![0u8; CHUNK as usize];
            loop {
                let Some(&(file, chunk)) = chunks.get(next.fetch_add(1, Ordering::Relaxed)) else {
                    return Ok(());
                };
                self.files[file as usize].check_chunk(chunk, &mut buf)?;
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

    /// Refuses a host, guest kernel or root image that the frozen programs could not go on with.
    ///
    /// # Errors
    /// [`Error::Unfit`] says what differs.
    pub fn check_fit(&self, kernel: &[u8; 32], image: &[u8; 32]) -> Result<()> {
        let unfit = |reason: String| Err(Error::Unfit { name: self.label(), reason });
        let h = self.header();
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
        let h = self.header();
        if h.host_boot == host::boot_id()? {
            return Ok(h.monotonic_offset);
        }
        let passed = host::realtime_ns().saturating_sub(h.realtime_ns);
        let then = h.host_monotonic_ns.wrapping_add(h.monotonic_offset);
        Ok(then.wrapping_add(passed).wrapping_sub(host::monotonic_ns()))
    }

    /// What every clone has its own copy of from the start: the arena, and what of the page file it could not find here.
    fn copied(&self) -> impl Iterator<Item = &Segment> {
        let of_processes = self.segments.partition_point(|s| s.space < 0);
        let kept = kept(&self.segments);
        self.segments[..of_processes].iter().filter(move |s| kept.place(s).is_none())
    }

    /// Where these runs of the page file are, that a clone says it has still here: (offset, length), in order; none if they cannot be here.
    #[must_use]
    pub fn pages_kept(&self, runs: &[(u64, u64)]) -> Option<Vec<Segment>> {
        let mut rest = &self.segments[..self.segments.partition_point(|s| s.space <= PAGEFILE)];
        let mut found = Vec::with_capacity(runs.len());
        let mut before = 0;
        for &(addr, len) in runs {
            let end = addr.checked_add(len).filter(|end| *end > addr && addr >= before)?;
            before = end;
            rest = &rest[rest.partition_point(|s| s.addr + s.len <= addr)..];
            let s = rest.first().filter(|s| s.addr <= addr && end <= s.addr + s.len)?;
            found.push(Segment { addr, len, offset: s.offset + (addr - s.addr), ..*s });
        }
        Some(found)
    }

    /// Copies what every clone has its own copy of to its arena and page file, which are empty: pages of zeros take no memory.
    ///
    /// # Errors
    /// If the host has no room.
    pub fn fill(&self, arena: impl std::os::fd::AsFd, pagefile: impl std::os::fd::AsFd) -> Result<()> {
        let doing = || "fill the clone's memory";
        for s in self.copied() {
            let fd = if s.space == ARENA { arena.as_fd() } else { pagefile.as_fd() };
            let body = &self.files[s.file as usize];
            let (mut at, end) = (s.offset, s.offset + s.len);
            while let Some(data) = data(&body.file, at, end).map_err(Error::os(doing()))? {
                at = data.start;
                while at < data.end {
                    let bytes = &body.map[at as usize..data.end as usize];
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
        &self.files[0].file
    }

    /// Whether some of its memory is in files of ancestors.
    #[must_use]
    pub fn has_ancestors(&self) -> bool {
        self.files.len() > 1
    }

    /// The files of its ancestors.
    pub fn ancestors(&self) -> impl Iterator<Item = &File> {
        self.files[1..].iter().map(|body| &body.file)
    }

    /// All its files, its own first.
    pub(crate) fn files(&self) -> &[Body] {
        &self.files
    }

    /// What it is made of.
    pub(crate) fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// What tells it from all others.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.files[0].identity()
    }

    /// Inode numbers of its files.
    ///
    /// # Errors
    /// If the host does not tell.
    pub fn inodes(&self) -> Result<Vec<u64>> {
        self.files.iter().map(|body| Ok(body.place()?.1)).collect()
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.files[0].path
    }

    /// The header.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.files[0].header
    }

    /// Root image's file on this host: where it was when the domain was frozen or, if nothing is there, in the same store as this.
    #[must_use]
    pub fn root_image(&self) -> PathBuf {
        let recorded = Path::new(self.image_path());
        if recorded.exists() {
            return recorded.to_owned();
        }
        let store = self.path().parent().and_then(Path::parent);
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
        self.path().file_stem().map_or_else(String::new, |s| s.to_string_lossy().into_owned())
    }

    /// What it is.
    #[must_use]
    pub fn describe(&self) -> Description {
        let h = self.header();
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
            data_bytes: h.data_bytes + h.ancestor_bytes,
            own_bytes: h.data_bytes,
            ancestor_bytes: h.ancestor_bytes,
            ancestors: h.ancestor_count,
            ancestors_used: self.files[1..].iter().map(Body::used).sum(),
            copied_bytes: self.copied().map(|s| s.len).sum(),
            kernel: hex(&h.kernel),
            image_digest: hex(&h.image),
        }
    }
}

#[cfg(test)]
mod tests;
