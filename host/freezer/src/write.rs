//! Writing a frozen image while its domain stands still.
//!
//! The data is cut into chunks which two threads copy, look through for pages of zeros, checksum and write while it is
//! in their caches. A domain whose processes have much memory need not stand still for all of it: after its arena and
//! page file it may leave shadows of its processes ([`Standing::leave`]), and goes on while those are copied. The file
//! gets its name when it is complete.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use doppel_abi_machine::frozen::{CHUNK, HEADER_SIZE, Header, MAGIC, SEGMENT_SIZE, VERSION};
use doppel_abi_machine::layout::PAGE;
use doppel_sys::memory::read_process;
use xxhash_rust::xxh3::Xxh3;

use crate::draft::Draft;
use crate::error::{Error, Result};
use crate::format::{header_bytes, pack_names, segment_bytes};
use crate::host;
use crate::scan::{Piece, Plan, Source, plan};

/// Threads that copy.
const COPIERS: usize = 2;
/// From how many bytes of processes on shadows are worth what they cost, about as much as copying a MiB.
const WORTH_SHADOWS: u64 = 4 << 20;
const PAGE_BYTES: usize = PAGE as usize;

/// A stopped domain, as its host process knows it.
#[derive(Debug)]
pub struct Subject<'a> {
    /// Host pid of its first process.
    pub pid: i32,
    /// Its arena.
    pub arena: BorrowedFd<'a>,
    /// Its page file.
    pub pagefile: BorrowedFd<'a>,
    /// The frozen image it was cloned from.
    pub parent: Option<&'a File>,
    /// The file of pages it has in common with others.
    pub share: Option<&'a File>,
    /// Its swap region: what is mapped from there is its own.
    pub swap: Option<&'a File>,
    /// Digest of its guest kernel.
    pub kernel: [u8; 32],
    /// Digest of its root image.
    pub image: [u8; 32],
    /// File of its root image.
    pub image_path: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its host name.
    pub hostname: &'a str,
    /// Its id.
    pub domain_id: u64,
    /// Its generation.
    pub generation: u64,
    /// Its vCPUs.
    pub vcpus: u32,
    /// Its memory limit, 0 for none.
    pub memory_limit: u64,
    /// `VirtualRegisters::monotonic_offset`.
    pub monotonic_offset: u64,
    /// `BootArgs::flags`.
    pub boot_flags: u32,
    /// Terminal size.
    pub winsize: u32,
    /// Who runs it.
    pub owner: u32,
    /// What tells its layer as it is now, if it is to go on with that; 0: it is not.
    pub layer: u32,
    /// `Header::layers`.
    pub layers: u8,
}

/// What freezing cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// Bytes of pages kept.
    pub bytes: u64,
    /// Bytes looked at.
    pub scanned: u64,
    /// Segments.
    pub segments: u64,
    /// How long the domain stood still for it.
    pub time: Duration,
    /// Processes that left a shadow.
    pub shadows: usize,
}

/// What processes have that is to be copied.
#[derive(Debug)]
pub struct Load {
    /// Which: (pid in their namespace, host pid).
    pub pids: Vec<(i32, i32)>,
    /// Bytes of theirs.
    pub bytes: u64,
    /// Bytes with arena and page file.
    pub total: u64,
}

/// Host pids of processes, and of the shadows that keep their memory.
pub type Shadows = BTreeMap<i32, i32>;

/// A stopped domain, as its host process drives it.
pub trait Standing {
    /// Has it leave a shadow of each process, and go on; none if it does not, and stands still.
    fn leave(&mut self, load: &Load) -> Option<Shadows>;
    /// It may go on: its memory has been written, or cannot be.
    fn go_on(&mut self, written: bool);
}

/// Finds out about this host what a freeze has to write down, once: takes a while, in which the domain had better run.
///
/// # Errors
/// If the host does not tell.
pub fn prepare() -> Result<()> {
    let _ = doppel_sys::cpu::features();
    host::vdso()?;
    host::boot_id().map(drop)
}

/// Writes the memory of a stopped domain to `to`, which appears there complete or not at all. The domain goes on as
/// soon as it may.
///
/// # Errors
/// What the host refuses: the disk is full, a process has died. Nothing is left behind then.
pub fn freeze(subject: &Subject<'_>, to: &Path, standing: &mut dyn Standing) -> Result<Report> {
    let begun = Instant::now();
    let mut left = None;
    let written = write(subject, to, |load| {
        let shadows = standing.leave(load);
        left = shadows.is_some().then(|| begun.elapsed());
        shadows
    });
    if left.is_none() {
        standing.go_on(written.is_ok());
    }
    let (temporary, mut report) = written?;
    report.time = left.unwrap_or_else(|| begun.elapsed());
    let naming = || format!("name the frozen image {}", to.display());
    // A reader must never find a file without its bytes after a crash.
    temporary.as_file().sync_data().map_err(Error::host(naming()))?;
    temporary.persist(to).map_err(Error::host(naming()))?;
    // Nor may the name be lost: the domain may end now.
    let dir = to.parent().unwrap_or(Path::new("."));
    File::open(dir).and_then(|d| d.sync_all()).map_err(Error::host(naming()))?;
    Ok(report)
}

fn write(
    subject: &Subject<'_>,
    to: &Path,
    leave: impl FnOnce(&Load) -> Option<Shadows>,
) -> Result<(Draft, Report)> {
    let mut parents = Vec::new();
    for file in [subject.parent, subject.share, subject.swap].into_iter().flatten() {
        parents.push(file.metadata().map_err(Error::host("examine the files it maps"))?.ino());
    }
    let mut plan = plan(subject.pid, subject.arena, subject.pagefile, &parents)?;
    let chunks = plan.len.div_ceil(CHUNK);
    let tables = HEADER_SIZE + plan.segments.len() as u64 * SEGMENT_SIZE + chunks * 8;
    let data_at = tables.next_multiple_of(PAGE);
    for s in &mut plan.segments {
        s.offset += data_at;
    }
    let mut header = header(subject)?;
    header.tables_len = data_at;
    header.file_len = data_at + plan.len;
    header.segments = plan.segments.len() as u64;
    header.chunks = chunks;

    let dir = to.parent().unwrap_or(Path::new("."));
    let doing = || format!("write a frozen image in {}", dir.display());
    let temporary = Draft::new(dir).map_err(Error::host(doing()))?;
    temporary.as_file().set_len(header.file_len).map_err(Error::host(doing()))?;
    let mut copier = Copier {
        subject,
        plan: &plan,
        file: temporary.as_file(),
        data_at,
        bytes: AtomicU64::new(0),
        shadows: Shadows::new(),
    };
    // The processes share arena and page file with their shadows: those are copied first.
    let first = plan.shared_len().div_ceil(CHUNK);
    let mut sums = copier.all(0..first)?;
    let load = plan.load();
    if load.bytes >= WORTH_SHADOWS {
        copier.shadows = leave(&load).unwrap_or_default();
    }
    sums.extend(copier.all(first..chunks)?);
    header.data_bytes = copier.bytes.into_inner();

    let mut tables = Vec::with_capacity(usize::try_from(data_at).unwrap_or(0));
    tables.extend(header_bytes(&header));
    tables.extend(plan.segments.iter().flat_map(segment_bytes));
    tables.extend(sums.iter().flat_map(|s| s.to_le_bytes()));
    tables.resize(usize::try_from(data_at).unwrap_or(0), 0);
    header.checksum = xxhash_rust::xxh3::xxh3_64(&tables);
    tables[..HEADER_SIZE as usize].copy_from_slice(&header_bytes(&header));
    temporary.as_file().write_all_at(&tables, 0).map_err(Error::host(doing()))?;
    temporary.as_file().flush().map_err(Error::host(doing()))?;
    let report = Report {
        bytes: header.data_bytes,
        scanned: plan.len,
        segments: header.segments,
        time: Duration::ZERO,
        shadows: copier.shadows.len(),
    };
    Ok((temporary, report))
}

fn header(s: &Subject<'_>) -> Result<Header> {
    let size = |fd: BorrowedFd<'_>| {
        let stat = rustix::fs::fstat(fd).map_err(Error::os("examine the domain's memory"))?;
        Ok(u64::try_from(stat.st_size).unwrap_or(0))
    };
    let mut h = Header {
        magic: MAGIC,
        version: VERSION,
        machine_version: doppel_abi_machine::VERSION,
        checksum: 0,
        tables_len: 0,
        file_len: 0,
        segments: 0,
        chunks: 0,
        data_bytes: 0,
        kernel: s.kernel,
        image: s.image,
        vdso: host::vdso()?,
        cpu: *doppel_sys::cpu::features(),
        vcpus: s.vcpus,
        layer: s.layer,
        memory_limit: s.memory_limit,
        arena_size: size(s.arena)?,
        pagefile_size: size(s.pagefile)?,
        domain_id: s.domain_id,
        generation: s.generation,
        monotonic_offset: s.monotonic_offset,
        host_monotonic_ns: host::monotonic_ns(),
        realtime_ns: host::realtime_ns(),
        host_boot: host::boot_id()?,
        winsize: s.winsize,
        boot_flags: s.boot_flags,
        owner: s.owner,
        name_len: 0,
        hostname_len: 0,
        image_name_len: 0,
        layers: s.layers,
        names: [0; 256],
    };
    pack_names(&mut h, [s.name, s.hostname, s.image_path]).ok_or_else(|| {
        Error::Request(format!(
            "the root image's path {} is too long for a frozen image (about 120 bytes)",
            s.image_path
        ))
    })?;
    Ok(h)
}

/// Copies the data.
struct Copier<'a> {
    subject: &'a Subject<'a>,
    plan: &'a Plan,
    file: &'a File,
    data_at: u64,
    bytes: AtomicU64,
    shadows: Shadows,
}

impl Copier<'_> {
    /// Copies chunks; returns their checksums.
    fn all(&self, chunks: Range<u64>) -> Result<Vec<u64>> {
        let count = usize::try_from(chunks.end - chunks.start).unwrap_or(usize::MAX);
        let next = AtomicUsize::new(0);
        let run = || -> Result<Vec<(usize, u64)>> {
            let mut buf = vec![0u8; CHUNK as usize];
            let mut sums = Vec::new();
            loop {
                let i = next.fetch_add(1, Ordering::Relaxed);
                if i >= count {
                    return Ok(sums);
                }
                sums.push((i, self.chunk(chunks.start + i as u64, &mut buf)?));
            }
        };
        let results: Vec<_> = std::thread::scope(|scope| {
            // What threads the host gives: without any it takes longer.
            let helpers: Vec<_> = (1..COPIERS.min(count))
                .map_while(|_| std::thread::Builder::new().spawn_scoped(scope, run).ok())
                .collect();
            let mine = run();
            helpers.into_iter().map(|h| h.join().expect("a copying thread panicked")).chain([mine]).collect()
        });
        let mut sums = vec![0; count];
        for result in results {
            for (i, sum) in result? {
                sums[i] = sum;
            }
        }
        Ok(sums)
    }

    /// Copies one chunk; returns its checksum.
    fn chunk(&self, index: u64, buf: &mut [u8]) -> Result<u64> {
        let (from, to) = (index * CHUNK, ((index + 1) * CHUNK).min(self.plan.len));
        let mut filled: Vec<(usize, usize)> = Vec::new();
        let first = self.plan.pieces.partition_point(|p| p.to + p.len <= from);
        let here: Vec<Piece> =
            self.plan.pieces[first..].iter().take_while(|p| p.to < to).map(|p| cut(p, from, to)).collect();
        for group in here.chunk_by(|a, b| a.source == b.source && a.to + a.len == b.to) {
            let (start, end) =
                (group[0].to - from, group[group.len() - 1].to + group[group.len() - 1].len - from);
            let range = to_range(start, end);
            self.read(group, &mut buf[range.clone()])?;
            filled.push((range.start, range.end));
        }
        self.put(from, buf, &filled)
    }

    fn read(&self, group: &[Piece], buf: &mut [u8]) -> Result<()> {
        let file = |fd: BorrowedFd<'_>, what: &str, buf: &mut [u8]| {
            let mut at = 0;
            for p in group {
                let n = p.len as usize;
                rustix::io::pread(fd, &mut buf[at..at + n], p.addr)
                    .and_then(|got| if got == n { Ok(()) } else { Err(rustix::io::Errno::IO) })
                    .map_err(Error::os(format!("read the domain's {what}")))?;
                at += n;
            }
            Ok(())
        };
        match group[0].source {
            Source::Arena => file(self.subject.arena, "arena", buf),
            Source::PageFile => file(self.subject.pagefile, "page file", buf),
            Source::Process(pid) if let Some(shadow) = self.shadows.get(&pid) => {
                // Not by process_vm_readv: it pins pages, and would give the shadow its own copy of each for that.
                let memory = File::open(format!("/proc/{shadow}/mem"))
                    .map_err(Error::host("open the memory of a shadow"))?;
                file(memory.as_fd(), "memory, which a shadow keeps", buf)
            }
            Source::Process(pid) => {
                let pieces: Vec<(u64, usize)> = group.iter().map(|p| (p.addr, p.len as usize)).collect();
                read_process(pid, &pieces, buf)
                    .map_err(Error::host(format!("read the memory of process {pid}")))
            }
        }
    }

    /// Writes the pages of `filled` that are not zero to the chunk that begins at `from`.
    fn put(&self, from: u64, buf: &[u8], filled: &[(usize, usize)]) -> Result<u64> {
        let mut hash = Xxh3::new();
        let mut bytes = 0;
        for &(start, end) in filled {
            let mut at = start;
            while at < end {
                if is_zero(&buf[at..at + PAGE_BYTES]) {
                    at += PAGE_BYTES;
                    continue;
                }
                let run = at;
                while at < end && (at == run || !is_zero(&buf[at..at + PAGE_BYTES])) {
                    hash_page(&mut hash, at, &buf[at..at + PAGE_BYTES]);
                    at += PAGE_BYTES;
                }
                self.file
                    .write_all_at(&buf[run..at], self.data_at + from + run as u64)
                    .map_err(Error::host("write the frozen image"))?;
                bytes += (at - run) as u64;
            }
        }
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(hash.digest())
    }
}

/// The part of a piece between two offsets.
fn cut(p: &Piece, from: u64, to: u64) -> Piece {
    let (start, end) = (p.to.max(from), (p.to + p.len).min(to));
    Piece { source: p.source, addr: p.addr + (start - p.to), len: end - start, to: start }
}

fn to_range(start: u64, end: u64) -> std::ops::Range<usize> {
    start as usize..end as usize
}

pub(crate) fn is_zero(page: &[u8]) -> bool {
    // Most pages differ in their first bytes; the rest is compared in words.
    let (head, body, tail) =
        page.split_at_checked(16).map_or((page, &[][..], &[][..]), |(h, b)| (h, b, &[][..]));
    head.iter().chain(tail).all(|&b| b == 0)
        && body.chunks_exact(16).all(|c| u128::from_ne_bytes(c.try_into().unwrap_or([1; 16])) == 0)
}

/// A chunk's checksum covers its pages that are not zero, with their places.
pub(crate) fn hash_page(hash: &mut Xxh3, at: usize, page: &[u8]) {
    hash.update(&(at as u32).to_le_bytes());
    hash.update(page);
}
