//! Page sharing after the checkpoint: clones of one command, so of one owner and one frozen image.
//!
//! [`Sharing`] is what they have in common: the search for equal pages (`doppel_freezer::share`) and the *share
//! file*, to which every content that two of them had is appended once. [`Member`] is one clone's part, worked on by
//! the thread that runs it, in rounds: look at some of its private pages while it runs, then stop it for a moment,
//! compare those found in full once more, and tell its guest kernel which to map from the share file.
//!
//! Boundary: a domain reads the share file and nothing else; what it writes there is its own copy. Contents are
//! compared with the domain standing still, so a page that is remapped has the content it had.
//! Lock order: the lock of `Sharing` is never held while a domain is stopped or waited for.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use doppel_abi_machine::control;
use doppel_abi_machine::frozen::Segment;
use doppel_freezer::scan::processes::{own_pages, processes};
use doppel_freezer::share::{LevelReport, Memory, PAGE, Page, Sharer, Verdict};
use doppel_sys::shared::{self, SharedMap};
use rustix::fs::{MemfdFlags, SealFlags};
use serde::{Deserialize, Serialize};

use crate::Error;

/// Size of a share file: sparse, so only what is kept costs anything.
const FILE_SIZE: u64 = 64 << 30;
/// Most mappings of the share file in one process; each may split one of the program's in two.
const MOST_MAPPINGS: usize = 4096;
/// A process with more mappings than this gets no further ones; the host's limit is 65,530.
const TOO_MANY_MAPPINGS: usize = 16384;
/// Pages looked at in one round, and pages that may be found in it: both bound how long the domain waits.
const LOOKED_AT: usize = 4096;
const FOUND: usize = control::SHARE_MAX as usize;
/// Time between rounds while there is something to find, and the longest when there is not.
const EAGER: Duration = Duration::from_millis(20);
const LAZY: Duration = Duration::from_secs(4);
/// How long counting a domain's memory may take: as long as it has processes and mappings.
const COUNTING: Duration = Duration::from_secs(10);
const PAGE_BYTES: u64 = PAGE as u64;

/// A page of a process, by host pid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct PageId {
    pid: i32,
    addr: u64,
}

/// Memory of the clones, and the share file.
#[derive(Debug)]
struct Pages {
    file: File,
    end: u64,
    open: HashMap<i32, File>,
}

impl Pages {
    fn read_at(&mut self, pid: i32, addr: u64, into: &mut [u8]) -> bool {
        // The file stays with the memory it was opened for, should the pid be used again.
        let file = match self.open.entry(pid) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => match File::open(format!("/proc/{pid}/mem")) {
                Ok(file) => entry.insert(file),
                Err(_) => return false,
            },
        };
        file.read_exact_at(into, addr).is_ok()
    }
}

impl Memory for Pages {
    type Id = PageId;

    fn read(&mut self, id: PageId, into: &mut Page) -> bool {
        self.read_at(id.pid, id.addr, into)
    }

    fn keep(&mut self, page: &Page) -> Option<u64> {
        let at = self.end;
        if at + PAGE_BYTES > FILE_SIZE || self.file.write_all_at(page, at).is_err() {
            return None;
        }
        self.end += PAGE_BYTES;
        Some(at)
    }

    fn read_kept(&mut self, at: u64, into: &mut Page) -> bool {
        at < self.end && self.file.read_exact_at(into, at).is_ok()
    }
}

/// What clones share with each other.
#[derive(Debug)]
pub struct Sharing {
    reader: File,
    inode: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    sharer: Sharer<Pages>,
    pages: Pages,
    /// Shared bytes of each member, by host pid of its first process.
    shared: HashMap<i32, u64>,
    totals: Totals,
}

#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    rounds: u64,
    paused_us: u64,
    longest_us: u64,
    zeroed: u64,
    remapped: u64,
}

impl Sharing {
    /// Makes an empty share file.
    ///
    /// # Errors
    /// What the host refuses.
    pub fn new() -> Result<Arc<Self>, Error> {
        let doing = || "make the share file";
        let fd = rustix::fs::memfd_create("doppel-share", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
            .map_err(Error::os(doing()))?;
        rustix::fs::ftruncate(&fd, FILE_SIZE).map_err(Error::os(doing()))?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW)
            .map_err(Error::os(doing()))?;
        let reader = File::open(format!("/proc/self/fd/{}", fd.as_raw_fd())).map_err(Error::host(doing()))?;
        let inode = reader.metadata().map_err(Error::host(doing()))?.ino();
        let pages = Pages { file: fd.into(), end: 0, open: HashMap::new() };
        let state =
            State { sharer: Sharer::default(), pages, shared: HashMap::new(), totals: Totals::default() };
        Ok(Arc::new(Self { reader, inode, state: Mutex::new(state) }))
    }

    /// The share file, open for reading only.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }

    /// The same as a file.
    pub(crate) fn file(&self) -> &File {
        &self.reader
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves at worst wrong guesses, which are compared before they count.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A page that was found to be shareable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Find {
    space: i32,
    id: PageId,
    /// Offset in the share file; none for zeros.
    at: Option<u64>,
}

/// One process' pages that are still to be looked at.
#[derive(Debug)]
struct Work {
    space: i32,
    pid: i32,
    runs: VecDeque<(u64, u64)>,
    /// So many more mappings it may get.
    room: usize,
}

/// One clone's part.
#[derive(Debug)]
pub(crate) struct Member {
    sharing: Arc<Sharing>,
    init: i32,
    pids: Vec<i32>,
    work: VecDeque<Work>,
    found: bool,
    pause: Duration,
    next: Instant,
}

impl Member {
    /// `init` is the host pid of the domain's first process.
    pub fn new(sharing: Arc<Sharing>, init: i32) -> Self {
        let next = Instant::now() + EAGER;
        Self { sharing, init, pids: Vec::new(), work: VecDeque::new(), found: false, pause: EAGER, next }
    }

    /// When the next round is due.
    pub fn due(&self) -> Instant {
        self.next
    }

    /// The share file.
    pub fn file(&self) -> &File {
        self.sharing.file()
    }

    /// Looks at some pages while the domain runs.
    pub fn look(&mut self) -> Vec<Find> {
        let sharing = self.sharing.clone();
        let mut found = Vec::new();
        let mut left = LOOKED_AT;
        if self.work.is_empty() {
            self.begin();
        }
        let state = &mut *sharing.lock();
        let mut buf = [0u8; PAGE];
        'work: while let Some(work) = self.work.front_mut() {
            while let Some((addr, len)) = work.runs.pop_front() {
                if left == 0 || found.len() == FOUND {
                    work.runs.push_front((addr, len));
                    break 'work;
                }
                if work.room == 0 {
                    break;
                }
                if len > PAGE_BYTES {
                    work.runs.push_front((addr + PAGE_BYTES, len - PAGE_BYTES));
                }
                left -= 1;
                let id = PageId { pid: work.pid, addr };
                if state.sharer.is_hot(id) || !state.pages.read_at(work.pid, addr, &mut buf) {
                    continue;
                }
                let at = match state.sharer.look(&mut state.pages, id, &buf) {
                    Verdict::Zero => None,
                    Verdict::Equal(at) => Some(at),
                    Verdict::Hot | Verdict::Unique | Verdict::Full => continue,
                };
                let continues = found.last().is_some_and(|l: &Find| continues(l, id, at));
                work.room -= usize::from(!continues);
                found.push(Find { space: work.space, id, at });
            }
            self.work.pop_front();
        }
        self.found |= !found.is_empty();
        if self.work.is_empty() {
            self.pause = if self.found { EAGER } else { (self.pause * 2).min(LAZY) };
            self.found = false;
        }
        self.next = Instant::now() + if self.work.is_empty() { self.pause } else { EAGER };
        found
    }

    /// Begins a pass over all processes. What has ended meanwhile is seen by the next.
    fn begin(&mut self) {
        let now = processes(self.init).unwrap_or_default();
        let pids: Vec<i32> = now.iter().map(|p| p.1).collect();
        let mut shared = 0;
        for (space, pid) in now {
            let Ok(own) = own_pages(pid, Some(self.sharing.inode)) else { continue };
            shared += own.shared;
            let room = if own.mappings > TOO_MANY_MAPPINGS { 0 } else { MOST_MAPPINGS };
            let room = room.saturating_sub(own.shared_mappings);
            self.work.push_back(Work { space, pid, runs: own.runs.into(), room });
        }
        let mut state = self.sharing.lock();
        state.shared.insert(self.init, shared);
        let gone: Vec<i32> = self.pids.iter().copied().filter(|p| !pids.contains(p)).collect();
        forget(&mut state, &gone);
        self.pids = pids;
    }

    /// With the domain standing still: writes the list of what to map, of what is still equal; how many entries.
    pub fn offer(&self, map: &SharedMap, found: &[Find]) -> usize {
        let state = &mut *self.sharing.lock();
        let (mut mine, mut kept) = ([0u8; PAGE], [0u8; PAGE]);
        let mut list: Vec<Segment> = Vec::new();
        let mut last: Option<Find> = None;
        for &find in found {
            kept.fill(0);
            let known = find.at.is_none_or(|at| state.pages.read_kept(at, &mut kept));
            if !known || !state.pages.read(find.id, &mut mine) || mine != kept {
                continue;
            }
            state.sharer.shared(find.id);
            let totals = &mut state.totals;
            match find.at {
                Some(_) => totals.remapped += 1,
                None => totals.zeroed += PAGE_BYTES,
            }
            match (list.last_mut(), last) {
                (Some(segment), Some(l)) if continues(&l, find.id, find.at) => segment.len += PAGE_BYTES,
                _ => list.push(Segment {
                    space: find.space,
                    file: 0,
                    addr: find.id.addr,
                    len: PAGE_BYTES,
                    offset: find.at.unwrap_or(control::SHARE_ZERO),
                }),
            }
            last = Some(find);
        }
        // In the order of spaces: the guest kernel serves one after the other.
        list.sort_by_key(|s| (s.space, s.addr));
        let mut bytes = Vec::with_capacity(list.len() * 32);
        for s in &list {
            bytes.extend(s.space.to_le_bytes());
            bytes.extend(s.file.to_le_bytes());
            for word in [s.addr, s.len, s.offset] {
                bytes.extend(word.to_le_bytes());
            }
        }
        map.write(shared::offset(control::SHARE_LIST + control::SHARE_ENTRIES), &bytes);
        map.write(shared::offset(control::SHARE_LIST), &(list.len() as u64).to_le_bytes());
        list.len()
    }

    /// Accounts a pause of the domain.
    pub fn paused(&self, time: Duration) {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let totals = &mut self.sharing.lock().totals;
        totals.rounds += 1;
        totals.paused_us += us;
        totals.longest_us = totals.longest_us.max(us);
    }

    /// Figures of the search.
    fn stats(&self, shared: u64) -> SharingStats {
        let mut state = self.sharing.lock();
        state.shared.insert(self.init, shared);
        let levels = state.sharer.collisions();
        let counts = state.sharer.counts();
        SharingStats {
            file_bytes: state.pages.end,
            all_shared_bytes: state.shared.values().sum(),
            remapped_pages: state.totals.remapped,
            zeroed_bytes: state.totals.zeroed,
            hot_pages: state.sharer.hot(),
            rounds: state.totals.rounds,
            paused_us: state.totals.paused_us,
            longest_pause_us: state.totals.longest_us,
            compared: counts.compared,
            equal: counts.equal,
            collisions_overall: levels.iter().map(|l| l.frequency).product(),
            levels,
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut state = self.sharing.lock();
        forget(&mut state, &self.pids);
        state.shared.remove(&self.init);
    }
}

fn forget(state: &mut State, pids: &[i32]) {
    if !pids.is_empty() {
        state.sharer.forget(|id| pids.contains(&id.pid));
        state.pages.open.retain(|pid, _| !pids.contains(pid));
    }
}

/// Whether a page follows another in memory and in the share file, so that one mapping shows both.
fn continues(last: &Find, id: PageId, at: Option<u64>) -> bool {
    last.id.pid == id.pid
        && last.id.addr + PAGE_BYTES == id.addr
        && match (last.at, at) {
            (None, None) => true,
            (Some(a), Some(b)) => a + PAGE_BYTES == b,
            _ => false,
        }
}

/// A domain's memory, for `doppel stats`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DomainStats {
    /// Its name.
    pub name: String,
    /// Host pid of its first process.
    pub pid: i32,
    /// Number of its other processes.
    pub processes: usize,
    /// Bytes of user memory that are its processes' own.
    pub private_bytes: u64,
    /// Bytes mapped from the share file.
    pub shared_bytes: u64,
    /// What these would cost more if every clone had its own: shared bytes less the part of the share file that
    /// falls to this clone.
    pub saved_bytes: u64,
    /// Bytes of the guest kernel's memory.
    #[serde(default)]
    pub kernel_bytes: u64,
    /// Bytes of shared memory and of files, written or cached, that are its own.
    #[serde(default)]
    pub pages_bytes: u64,
    /// Bytes of these that are still in the frozen image it was made from, which all its clones have in common.
    #[serde(default)]
    pub image_bytes: u64,
    /// The search, if it shares.
    pub sharing: Option<SharingStats>,
}

/// What the clones that share with each other have in common.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SharingStats {
    /// Bytes kept in the share file.
    pub file_bytes: u64,
    /// Bytes mapped from it, by all clones.
    pub all_shared_bytes: u64,
    /// Pages that were replaced by mappings of it, ever.
    pub remapped_pages: u64,
    /// Bytes of zero pages given back, ever.
    pub zeroed_bytes: u64,
    /// Pages left alone because they were written too often.
    pub hot_pages: u64,
    /// Times a domain was stopped.
    pub rounds: u64,
    /// Microseconds domains stood still for it, all together.
    pub paused_us: u64,
    /// The longest of these.
    pub longest_pause_us: u64,
    /// Pages compared in full.
    pub compared: u64,
    /// Pages found equal.
    pub equal: u64,
    /// Product of the levels' frequencies (equation 3.3).
    pub collisions_overall: f64,
    /// Collisions of each hash level.
    pub levels: Vec<LevelReport>,
}

/// Figures of a domain as it is now.
pub(crate) fn stats(name: String, init: i32, member: Option<&Member>) -> Result<DomainStats, Error> {
    let all = processes(init)?;
    let (mut private, mut shared) = (0, 0);
    let until = Instant::now() + COUNTING;
    for &(_, pid) in &all {
        if Instant::now() > until {
            return Err(Error::State(format!(
                "the memory of domain {name} is in too many pieces to be counted: {} processes, and not done in {} s",
                all.len(),
                COUNTING.as_secs()
            )));
        }
        let own = own_pages(pid, member.map(|m| m.sharing.inode))?;
        private += own.runs.iter().map(|r| r.1).sum::<u64>();
        shared += own.shared;
    }
    let sharing = member.map(|m| m.stats(shared));
    let part = sharing.as_ref().map_or(0, |s| {
        let part = u128::from(s.file_bytes) * u128::from(shared) / u128::from(s.all_shared_bytes.max(1));
        u64::try_from(part).unwrap_or(u64::MAX)
    });
    Ok(DomainStats {
        name,
        pid: init,
        processes: all.len(),
        private_bytes: private,
        shared_bytes: shared,
        saved_bytes: shared.saturating_sub(part),
        kernel_bytes: 0,
        pages_bytes: 0,
        image_bytes: 0,
        sharing,
    })
}
