//! What of a stopped domain's memory has to be kept.
//!
//! Arena and page file: the extents their files have. Processes: the private pages that are no longer what their
//! mapping would show, as `/proc/PID/pagemap` tells: anonymous pages, and in a clone the pages of its own frozen
//! image; those that are still mapped from a file that the new image may refer to are known without being read. Runs that lie close together are kept as one segment, since every segment costs each clone a mapping;
//! what lies between is kept as a hole (anonymous memory) or as it is (file pages).

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::BorrowedFd;

use doppel_abi_machine::frozen::{ARENA, MAX_SEGMENTS, Segment};
use doppel_abi_machine::layout::{PAGE, USER_END};
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::write::Subject;
use crate::write::compare::{Lookup, continues};

mod contents;
mod page_file;
pub mod processes;

pub use contents::Contents;
use processes::{Mapping, private_mappings, private_pages};

/// Anonymous runs with at most so many untouched pages between them become one segment.
const JOIN_ANONYMOUS: u64 = 256;
/// The same for pages of files, which are then copied.
const JOIN_FILE: u64 = 8;

const EXTENTS: &str = "find the domain's memory extents";
/// So many pages that an ancestor has are worth a mapping of their own.
pub(crate) const WORTH: u64 = 16;
/// A process gets no more mappings than so many by what of it is referred to, and about twice as many in all.
const MAPPINGS: u64 = 16384;

/// Where saved bytes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The arena's memory file.
    Arena,
    /// The page file's.
    PageFile,
    /// Memory of the process with this host pid.
    Process(i32),
    /// A file of a frozen image, of the one that the domain was made from if it is a domain's memory: its own, or its nth ancestor's.
    Image(u32),
}

/// A run of pages to copy: from where, and to which offset of the frozen image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// From where.
    pub source: Source,
    /// Address or offset there.
    pub addr: u64,
    /// Bytes.
    pub len: u64,
    /// Offset from the start of the image's data.
    pub to: u64,
}

impl Piece {
    /// The part of it between two offsets of the data.
    pub(crate) fn cut(&self, from: u64, to: u64) -> Self {
        let (start, end) = (self.to.max(from), (self.to + self.len).min(to));
        Self { source: self.source, addr: self.addr + (start - self.to), len: end - start, to: start }
    }

    /// Whose memory it is, if it is a process'.
    fn process(&self) -> Option<i32> {
        if let Source::Process(pid) = self.source { Some(pid) } else { None }
    }
}

/// A place of the image that an ancestor may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Offset from the start of the image's data.
    pub to: u64,
    /// Bytes.
    pub len: u64,
    /// Which ancestor.
    pub file: u32,
    /// Where in it.
    pub offset: u64,
    /// It is all there is of its segment.
    pub whole: bool,
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

/// All that has to be kept.
#[derive(Debug, Default)]
pub struct Plan {
    /// Segments in order of space and address; offsets count from the start of the data, or are those in an ancestor.
    pub segments: Vec<Segment>,
    /// What to copy, in order of `to`.
    pub pieces: Vec<Piece>,
    /// Bytes of data: of all segments but those of ancestors.
    pub len: u64,
    /// Where the data ends that all processes share, which comes first.
    pub shared_len: u64,
    /// What ancestors may have of it, in order of `to`.
    pub candidates: Vec<Candidate>,
    /// The processes: (pid in their namespace, host pid).
    pub processes: Vec<(i32, i32)>,
}

impl Plan {
    /// What of it is to be copied from processes.
    pub fn load(&self) -> Load {
        let sum = |of_processes: bool| {
            let counts = |p: &&Piece| matches!(p.source, Source::Process(_)) || !of_processes;
            self.pieces.iter().filter(counts).map(|p| p.len).sum()
        };
        let mut pids = self.processes.clone();
        let copied: BTreeSet<i32> = self.pieces.iter().filter_map(Piece::process).collect();
        pids.retain(|(_, pid)| copied.contains(pid));
        Load { pids, bytes: sum(true), total: sum(false) }
    }

    /// How many pages an ancestor must have in one piece so that they are cut out of a segment; none: it is not done.
    pub fn worth(&self) -> Option<u64> {
        let most = self.segments.chunk_by(|a, b| a.space == b.space).map(<[Segment]>::len).max();
        let pages = self.pieces.iter().map(|p| p.len).sum::<u64>() / PAGE;
        worth(most.unwrap_or(0), pages)
    }

    /// Adds one segment made of `runs` (address, length), ascending.
    pub(crate) fn add(&mut self, space: i32, source: Source, runs: &[(u64, u64)]) {
        let (Some(&(start, _)), Some(&(last, n))) = (runs.first(), runs.last()) else { return };
        let len = last + n - start;
        self.segments.push(Segment { space, file: 0, addr: start, len, offset: self.len });
        let to = self.len;
        self.pieces.extend(runs.iter().map(|&(addr, len)| Piece {
            source,
            addr,
            len,
            to: to + (addr - start),
        }));
        self.len += len;
    }

    /// Adds a mapping of an ancestor in which `runs` are the process' own: the others are as that has them. What lies between two
    /// runs that are close together is read and compared with it, as these are.
    fn add_changed(
        &mut self,
        space: i32,
        source: Source,
        m: &Mapping,
        runs: &[(u64, u64)],
        (file, worth): (u32, u64),
    ) {
        let offset = |addr: u64| m.offset + (addr - m.start);
        let unchanged = |plan: &mut Self, from: u64, to: u64| {
            if from < to {
                let theirs = Segment { space, file, addr: from, len: to - from, offset: offset(from) };
                match plan.segments.last_mut().filter(|last| continues(last, &theirs)) {
                    Some(last) => last.len += theirs.len,
                    None => plan.segments.push(theirs),
                }
            }
        };
        let mut at = m.start;
        for group in runs.chunk_by(|a, b| b.0 - (a.0 + a.1) < worth * PAGE) {
            let (start, end) = (group[0].0, group[group.len() - 1].0 + group[group.len() - 1].1);
            unchanged(self, at, start);
            let (to, len) = (self.len, end - start);
            self.add(space, source, &[(start, len)]);
            self.candidates.push(Candidate { to, len, file, offset: offset(start), whole: true });
            at = end;
        }
        unchanged(self, at, m.end);
    }

    /// Finds what its last image has at the same places, but where it is known already.
    pub(crate) fn find_candidates(&mut self, parent: &Lookup<'_>) {
        let mut all = std::mem::take(&mut self.candidates);
        let known = all.len();
        let own: Vec<&Segment> = self.segments.iter().filter(|s| s.file == 0).collect();
        for of_space in own.chunk_by(|a, b| a.space == b.space) {
            let Some(largest) = of_space.iter().max_by_key(|s| s.len) else { continue };
            let space = parent.space_like(largest.space, largest.addr, largest.len);
            for s in of_space {
                if all[..known].binary_search_by_key(&s.offset, |c| c.to).is_err() {
                    parent.of_space(space, s.addr, s.len, s.offset, &mut all);
                }
            }
        }
        all.sort_unstable_by_key(|c| c.to);
        self.candidates = all;
    }

    /// Adds runs, joining those that are at most `gap` bytes apart; with `fill` what is between is copied too.
    fn add_joined(&mut self, space: i32, source: Source, runs: &[(u64, u64)], gap: u64, fill: bool) {
        for group in runs.chunk_by(|a, b| b.0 - (a.0 + a.1) <= gap) {
            let (first, last) = (group[0], group[group.len() - 1]);
            let whole = [(first.0, last.0 + last.1 - first.0)];
            self.add(space, source, if fill { &whole } else { group });
        }
    }
}

/// Plans the freeze of a stopped domain; `parent` is what the new image may refer to. `spread`: each page of the page file lies at its own
/// offset, behind which so many bytes are left at least.
///
/// # Errors
/// What the host refuses, or a process that is no longer there.
pub(crate) fn plan(
    subject: &Subject<'_>,
    contents: &Contents,
    parent: Option<&Lookup<'_>>,
    spread: Option<u64>,
) -> Result<Plan> {
    let mut plan = Plan::default();
    let mut processes = processes::processes(subject.pid)?;
    processes.sort_unstable();
    // Segments are sorted by space: the page file, the arena, then processes by pid in their namespace.
    plan.add_page_file(subject, parent, spread)?;
    let arena = extents(subject.arena).map_err(Error::os(EXTENTS))?;
    plan.add_joined(ARENA, Source::Arena, &arena, 0, false);
    plan.shared_len = plan.len;
    for &(inner, pid) in &processes {
        scan_process(&mut plan, inner, pid, contents)?;
    }
    plan.processes = processes;
    if let Some(parent) = parent {
        plan.find_candidates(parent);
    }
    if plan.segments.len() as u64 > MAX_SEGMENTS {
        return Err(Error::Request(format!(
            "the domain's memory is in {} pieces; at most {MAX_SEGMENTS} can be frozen",
            plan.segments.len()
        )));
    }
    Ok(plan)
}

/// Extents of a sparse file: (offset, length).
fn extents(fd: BorrowedFd<'_>) -> std::result::Result<Vec<(u64, u64)>, Errno> {
    extents_within(fd, 0, u64::MAX >> 1)
}

fn extents_within(fd: BorrowedFd<'_>, from: u64, to: u64) -> std::result::Result<Vec<(u64, u64)>, Errno> {
    let mut runs = Vec::new();
    let mut at = from;
    while at < to {
        let start = match rustix::fs::seek(fd, SeekFrom::Data(at)) {
            Ok(start) if start < to => start,
            Ok(_) | Err(Errno::NXIO) => break,
            Err(e) => return Err(e),
        };
        let end = rustix::fs::seek(fd, SeekFrom::Hole(start))?.min(to);
        runs.push((start, end - start));
        at = end;
    }
    Ok(runs)
}

fn scan_process(plan: &mut Plan, inner: i32, pid: i32, contents: &Contents) -> Result<()> {
    let failed = || Error::host(format!("read /proc/{pid}/pagemap"));
    let pagemap = File::open(format!("/proc/{pid}/pagemap")).map_err(failed())?;
    let all: Vec<Mapping> = private_mappings(pid, USER_END)?.collect::<Result<_>>()?;
    let refers = |m: &Mapping| contents.find(m.inode)?.refers(m.offset, m.end - m.start);
    let pages = all.iter().filter(|m| refers(m).is_some()).map(|m| (m.end - m.start) / PAGE).sum();
    let worth = worth(all.len(), pages);
    for m in &all {
        let source = Source::Process(pid);
        match (contents.find(m.inode), refers(m), worth) {
            (Some(_), Some(file), Some(worth)) => {
                let runs = private_pages(&pagemap, m.start, m.end).map_err(failed())?;
                plan.add_changed(inner, source, m, &runs, (file, worth));
            }
            // Its own frozen image, share file or swap region: all of it is content; pages of zeros are found when it is copied.
            (Some(_), file, _) => {
                if let Some(file) = file {
                    let (to, len) = (plan.len, m.end - m.start);
                    plan.candidates.push(Candidate { to, len, file, offset: m.offset, whole: true });
                }
                plan.add(inner, source, &[(m.start, m.end - m.start)]);
            }
            (None, ..) => {
                let runs = private_pages(&pagemap, m.start, m.end).map_err(failed())?;
                let (gap, fill) = if m.inode == 0 { (JOIN_ANONYMOUS, false) } else { (JOIN_FILE, true) };
                plan.add_joined(inner, source, &runs, gap * PAGE, fill);
            }
        }
    }
    Ok(())
}

/// How many pages a run of an ancestor must have to be worth a mapping of its own, in a process with so many mappings and pages: the
/// host allows a process some 65,000 mappings, which it had better not come near; none: it has too many already.
pub(crate) fn worth(mappings: usize, pages: u64) -> Option<u64> {
    let room = MAPPINGS.saturating_sub(mappings as u64);
    (room > 0).then(|| (pages / room.max(1)).max(WORTH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_referred_to_is_in_few_pieces() {
        assert_eq!(worth(100, 128 << 10), Some(WORTH));
        // 64 GiB, of which every other page may have changed.
        let pages = (64 << 30) / PAGE;
        let runs = pages / worth(100, pages).unwrap();
        assert!((8192..=MAPPINGS).contains(&runs), "{runs}");
        assert_eq!(worth(40_000, 1), None);
    }

    #[test]
    fn changed_pages_of_an_ancestor_are_cut_out() {
        let m = Mapping { start: 100 * PAGE, end: 200 * PAGE, private: true, offset: 7 * PAGE, inode: 1 };
        let mut plan = Plan::default();
        let runs = [(110 * PAGE, PAGE), (120 * PAGE, 2 * PAGE), (198 * PAGE, 2 * PAGE)];
        plan.add_changed(4, Source::Process(9), &m, &runs, (2, WORTH));
        let found: Vec<_> =
            plan.segments.iter().map(|s| (s.file, s.addr / PAGE, s.len / PAGE, s.offset / PAGE)).collect();
        assert_eq!(found, [(2, 100, 10, 7), (0, 110, 12, 0), (2, 122, 76, 29), (0, 198, 2, 12)]);
        let candidates: Vec<_> =
            plan.candidates.iter().map(|c| (c.to / PAGE, c.len / PAGE, c.offset / PAGE)).collect();
        assert_eq!(candidates, [(0, 12, 17), (12, 2, 105)]);
        assert_eq!((plan.len, plan.pieces.len()), (14 * PAGE, 2));
    }

    #[test]
    fn close_runs_become_one_segment() {
        let mut plan = Plan::default();
        let runs = [(0, PAGE), (2 * PAGE, PAGE), (100 * PAGE, PAGE)];
        plan.add_joined(5, Source::Process(1), &runs, 4 * PAGE, false);
        assert_eq!(
            plan.segments.iter().map(|s| (s.addr, s.len)).collect::<Vec<_>>(),
            [(0, 3 * PAGE), (100 * PAGE, PAGE)]
        );
        assert_eq!(plan.pieces.iter().map(|p| p.to).collect::<Vec<_>>(), [0, 2 * PAGE, 3 * PAGE]);
        assert_eq!(plan.len, 4 * PAGE);
        let mut filled = Plan::default();
        filled.add_joined(5, Source::Process(1), &runs, 4 * PAGE, true);
        assert_eq!(filled.pieces.len(), 2);
    }
}
