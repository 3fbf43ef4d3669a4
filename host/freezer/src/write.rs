//! Writing a frozen image while its domain stands still.
//!
//! What was copied ahead ([`Ahead`]) is taken as it is, unless it was written since.
//! The data is cut into chunks which two threads copy ([`copy`]); what ancestors have is not written but referred to ([`compare`]).
//! A domain whose processes have much memory need not stand still for all of it: after its arena and page file it may leave
//! shadows of its processes ([`Standing::leave`]), and goes on while those are copied. The file gets its name when it is complete.

mod ahead;
pub(crate) mod compare;
mod copy;

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, Instant};

use doppel_abi_machine::frozen::{
    CHUNK, HEADER_SIZE, Header, MAGIC, MAX_ANCESTORS, MAX_SEGMENTS, SEGMENT_SIZE, Segment, VERSION,
};
use doppel_abi_machine::layout::PAGE;
use doppel_sys::memory::read_process;

pub use ahead::Ahead;
use compare::Lookup;
pub(crate) use copy::{Chunk, Copier, Read};

use crate::ancestors::{self, Ancestors, Lineage, Links};
use crate::checked;
use crate::draft::Draft;
use crate::error::{Error, Result};
use crate::format::{header_bytes, pack_names, segment_bytes};
use crate::host;
use crate::open::{FrozenImage, Identity, identity};
use crate::scan::{Contents, Load, Piece, Plan, Source, WORTH, plan};

/// From how many bytes of processes on shadows are worth what they cost, about as much as copying a MiB.
const WORTH_SHADOWS: u64 = 4 << 20;

/// A domain, as its host process knows it: stopped, or copied ahead of that.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Host pid of its first process.
    pub pid: i32,
    /// Its arena.
    pub arena: BorrowedFd<'a>,
    /// Its page file.
    pub pagefile: BorrowedFd<'a>,
    /// The frozen image it was made from.
    pub origin: Option<&'a FrozenImage>,
    /// What its page file has there still, and not itself: runs in order ([`FrozenImage::pages_kept`]).
    pub kept: &'a [Segment],
    /// What of its page file may have been written since it was copied ahead: runs in order.
    pub written: &'a [Segment],
    /// Bytes of the page file of which that is known.
    pub logged: u64,
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
    /// Bytes of these that were written; ancestors have the others.
    pub written: u64,
    /// What tells the image from others.
    pub identity: Identity,
    /// Bytes looked at.
    pub scanned: u64,
    /// Segments.
    pub segments: u64,
    /// How long the domain stood still for it.
    pub time: Duration,
    /// Processes that left a shadow.
    pub shadows: usize,
    /// Bytes of pages that were copied ahead, and not again; what ancestors have of them counts.
    pub ahead: u64,
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
/// soon as it may. Without `lineage` the image is whole.
///
/// # Errors
/// What the host refuses: the disk is full, a process has died. Nothing is left behind then.
pub fn freeze(
    subject: &Subject<'_>,
    to: &Path,
    lineage: Option<Lineage>,
    ahead: Option<Ahead>,
    standing: &mut dyn Standing,
) -> Result<Report> {
    let begun = Instant::now();
    let mut left = None;
    let lookup = lineage.as_ref().map(Lookup::of);
    let written = write(subject, to, lookup, ahead, |load| {
        let shadows = standing.leave(load);
        left = shadows.is_some().then(|| begun.elapsed());
        shadows
    });
    if left.is_none() {
        standing.go_on(written.is_ok());
    }
    let (temporary, header, mut report) = written?;
    report.time = left.unwrap_or_else(|| begun.elapsed());
    name(temporary, to, lineage.map(|l| l.links), &header)?;
    Ok(report)
}

/// Names an image that is complete.
fn name(draft: Draft, to: &Path, links: Option<Links>, header: &Header) -> Result<()> {
    let naming = || format!("name the frozen image {}", to.display());
    // A reader must never find a file without its bytes after a crash.
    draft.as_file().sync_data().map_err(Error::host(naming()))?;
    links.as_ref().map_or(Ok(()), Links::sync).map_err(Error::host(naming()))?;
    checked::stamp(draft.as_file()).map_err(Error::host(naming()))?;
    let file = draft.as_file().try_clone().map_err(Error::host(naming()))?;
    draft.persist(to).map_err(Error::host(naming()))?;
    // Nor may the name be lost: the domain may end now.
    let dir = to.parent().unwrap_or(Path::new("."));
    File::open(dir).and_then(|d| d.sync_all()).map_err(Error::host(naming()))?;
    match links {
        Some(links) => links.done(&header.ancestors[..header.ancestor_count as usize]),
        // One that it replaces may have had some.
        None => ancestors::forget(to)?,
    }
    // The checksums are of the very bytes that were written. Those of ancestors are looked at when it is first opened.
    if let Some(state) = checked::state([&file]).filter(|_| header.ancestor_count == 0) {
        checked::note(to, &state);
    }
    Ok(())
}

fn write(
    subject: &Subject<'_>,
    to: &Path,
    parent: Option<Lookup<'_>>,
    ahead: Option<Ahead>,
    leave: impl FnOnce(&Load) -> Option<Shadows>,
) -> Result<(Draft, Header, Report)> {
    let mut others = Vec::new();
    for file in [subject.share, subject.swap].into_iter().flatten() {
        others.push(file.metadata().map_err(Error::host("examine the files it maps"))?.ino());
    }
    let contents = Contents::of(subject.pid, &others, parent.as_ref().map(|p| p.ancestors))?;
    let ahead = ahead.filter(|ahead| ahead.is_current(subject));
    let plan = plan(subject, &contents, parent.as_ref(), ahead.as_ref().map(Ahead::len))?;
    let (mut image, known) = match ahead {
        Some(ahead) => ahead.into_image(&plan, header(subject)?, subject.written, to)?,
        None => (Unfinished::new(&plan, header(subject)?, parent.is_some(), to)?, Vec::new()),
    };
    let copier = image.copier(&plan, parent.as_ref());
    let mut source = DomainReader { subject, shadows: Shadows::new() };
    // The processes share arena and page file with their shadows: those are copied first.
    let first = plan.shared_len.div_ceil(CHUNK);
    let (mut done, ahead) = copier.rest(first, known, &source)?;
    let load = plan.load();
    if load.bytes >= WORTH_SHADOWS {
        source.shadows = leave(&load).unwrap_or_default();
    }
    done.extend(copier.all(&(first..plan.len.div_ceil(CHUNK)).collect::<Vec<_>>(), &source)?);
    let equal: Vec<_> = done.iter().flat_map(|c| c.equal.iter().copied()).collect();
    let segments = compare::split(&plan.segments, &equal);
    let shadows = source.shadows.len();
    let identity = image.finish(segments, &done, parent.map(|p| p.ancestors))?;
    let report = Report {
        bytes: image.header.data_bytes + image.header.ancestor_bytes,
        written: image.header.data_bytes,
        identity,
        scanned: plan.len,
        segments: image.header.segments,
        time: Duration::ZERO,
        shadows,
        ahead,
    };
    Ok((image.draft, image.header, report))
}

/// An image whose tables are not written yet.
pub(crate) struct Unfinished {
    pub draft: Draft,
    pub header: Header,
    doing: String,
}

impl Unfinished {
    /// One for what is planned, beside where it will be. Its tables come before the data and grow as segments are `split`: there is
    /// room for as many as there can be, most of it a hole.
    pub fn new(plan: &Plan, header: Header, split: bool, to: &Path) -> Result<Self> {
        let draft = Self::draft(to)?;
        let chunks = plan.len.div_ceil(CHUNK);
        let most = plan.segments.len() as u64 + if split { runs_most(plan, chunks) } else { 0 };
        let data_at = (HEADER_SIZE + most * SEGMENT_SIZE + chunks * 8).next_multiple_of(PAGE);
        Self::with(draft, data_at, plan, header, to)
    }

    /// One in a file whose data begins at this offset.
    pub fn with(draft: Draft, data_at: u64, plan: &Plan, mut header: Header, to: &Path) -> Result<Self> {
        header.data_at = data_at;
        header.file_len = data_at + plan.len;
        header.chunks = plan.len.div_ceil(CHUNK);
        let doing = Self::doing(to);
        draft.as_file().set_len(header.file_len).map_err(Error::host(&*doing))?;
        Ok(Self { draft, header, doing })
    }

    /// A file for the image that is to be `to`.
    pub fn draft(to: &Path) -> Result<Draft> {
        Draft::new(to.parent().unwrap_or(Path::new("."))).map_err(Error::host(Self::doing(to)))
    }

    fn doing(to: &Path) -> String {
        format!("write a frozen image in {}", to.parent().unwrap_or(Path::new(".")).display())
    }

    /// What copies its data.
    pub fn copier<'a>(&'a self, plan: &'a Plan, parent: Option<&Lookup<'a>>) -> Copier<'a> {
        Copier {
            plan,
            file: self.draft.as_file(),
            data_at: self.header.data_at,
            comparison: parent.map(|p| p.comparison(plan)),
        }
    }

    /// Writes header and tables; offsets of segments in the data become such in the file. Gives what tells it from others.
    pub fn finish(
        &mut self,
        mut segments: Vec<Segment>,
        done: &[Chunk],
        ancestors: Option<&Ancestors>,
    ) -> Result<Identity> {
        if segments.len() as u64 > MAX_SEGMENTS {
            return Err(Error::Request(format!(
                "the domain's memory is in {} pieces; at most {MAX_SEGMENTS} can be frozen",
                segments.len()
            )));
        }
        let header = &mut self.header;
        for s in segments.iter_mut().filter(|s| s.file == 0) {
            s.offset += header.data_at;
        }
        let identities = ancestors.map_or_else(Vec::new, |a| a.keep_needed(&mut segments));
        header.ancestor_count = identities.len() as u64;
        header.ancestors = [[0; 16]; MAX_ANCESTORS];
        header.ancestors[..identities.len()].copy_from_slice(&identities);
        header.ancestor_bytes = segments.iter().filter(|s| s.file > 0).map(|s| s.len).sum();
        header.data_bytes = done.iter().map(|c| c.bytes).sum();
        header.segments = segments.len() as u64;
        header.checksum = 0;
        let tables = HEADER_SIZE + header.segments * SEGMENT_SIZE + header.chunks * 8;
        header.tables_len = tables.next_multiple_of(PAGE);
        if header.tables_len > header.data_at {
            return Err(Error::Request("the tables of the frozen image have no room".into()));
        }
        let len = usize::try_from(header.tables_len).unwrap_or(0);
        let mut tables = Vec::with_capacity(len);
        tables.extend(header_bytes(header));
        tables.extend(segments.iter().flat_map(segment_bytes));
        tables.extend(done.iter().flat_map(|c| c.sum.to_le_bytes()));
        tables.resize(len, 0);
        header.checksum = xxhash_rust::xxh3::xxh3_64(&tables);
        tables[..HEADER_SIZE as usize].copy_from_slice(&header_bytes(header));
        self.draft.as_file().write_all_at(&tables, 0).map_err(Error::host(&*self.doing))?;
        Ok(identity(&tables))
    }
}

/// How many segments more there can be when what ancestors have is cut out of the planned ones: two for each run that is worth it.
fn runs_most(plan: &Plan, chunks: u64) -> u64 {
    let of_chunk = (CHUNK / PAGE).div_ceil(WORTH + 1);
    // Those that are all of a segment can be shorter, and are cut where chunks end.
    2 * (chunks * (of_chunk + 1) + plan.candidates.len() as u64)
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
        data_at: 0,
        data_bytes: 0,
        ancestor_bytes: 0,
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
        ancestor_count: 0,
        ancestors: [[0; 16]; MAX_ANCESTORS],
    };
    pack_names(&mut h, [s.name, s.hostname, s.image_path]).ok_or_else(|| {
        Error::Request(format!(
            "the root image's path {} is too long for a frozen image (about 120 bytes)",
            s.image_path
        ))
    })?;
    Ok(h)
}

/// Reads the memory of a domain, or of its shadows.
pub(crate) struct DomainReader<'a> {
    pub subject: &'a Subject<'a>,
    pub shadows: Shadows,
}

impl Read for DomainReader<'_> {
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
            Source::Image(number) => {
                let files = self.subject.origin.map_or(&[][..], FrozenImage::files);
                let none = || Error::Request("the domain was made from no such image".into());
                let body = files.get(number as usize).ok_or_else(none)?;
                let mut at = 0;
                for p in group {
                    let n = p.len as usize;
                    body.read(p.addr, &mut buf[at..at + n])
                        .map_err(Error::host(format!("read {}", body.path.display())))?;
                    at += n;
                }
                Ok(())
            }
        }
    }
}
