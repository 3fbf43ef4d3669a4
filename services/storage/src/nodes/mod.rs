//! Which files a domain knows, by number. What is known lies in memory that outlives the process, so that its successor finds
//! the files again; descriptors are a cache, but for files that nobody could find again: those are *pinned*, and the manager has a
//! copy of their descriptors.

mod frozen;
mod locks;
mod records;
mod watched;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use doppel_abi_service::storage::VOLUMES;
use doppel_sys::handle::{Handle, LONGEST};
use doppel_sys::shared::SharedMap;
use rustix::fs::{FileType, OFlags, Statx};
use rustix::io::Errno;

pub use frozen::{Remap, copy_nodes};
pub(crate) use locks::LOCKED;
use locks::LockedFiles;
pub(crate) use records::{CHARGES, Identity, giver};
use records::{Locator, Record, Records};
pub use records::{memory, nodes_file};
use watched::Bare;

use crate::changes::{Changes, FileId};
use crate::files::{open_name, statx};
use crate::host::Host;
use crate::pins::Pins;
use crate::quota::{Holding, Quota};
use crate::volume::{Disk, DiskFiles, Volume};

/// Most files of a domain that are pinned.
pub(crate) const PINNED: usize = 1024;
/// A file that was written is open for that so long: while it is, nobody on the host can execute it.
const WRITES: Duration = Duration::from_millis(200);
/// So far ahead it was used last that a program of the domain has open: longer than anything runs.
const HELD: Duration = Duration::from_secs(1 << 32);
/// Directories through which a file is found that has no handle.
const DEPTH: u32 = 128;

/// The descriptors of a file.
#[derive(Debug, Default)]
struct Open {
    /// Names it.
    name: Option<Arc<OwnedFd>>,
    /// Reads it.
    data: Option<Arc<OwnedFd>>,
    /// Reads and writes it; when it was used last.
    write: Option<(Arc<OwnedFd>, Instant)>,
    pinned: bool,
    /// What it takes of a bound is not given back before this goes.
    holding: Option<Holding>,
}

/// The root of a volume.
#[derive(Debug)]
struct Root {
    file: Arc<OwnedFd>,
    read_only: bool,
    kind: FileType,
    id: FileId,
    /// Its files are found by their handles.
    handles: bool,
    mount: u64,
    write: Option<(Arc<OwnedFd>, Instant)>,
    /// It is a disk.
    disk: Option<Arc<Disk>>,
    quota: Option<Arc<Quota>>,
    devices: [u64; 2],
}

/// The files of a domain.
#[derive(Debug)]
pub(crate) struct Nodes {
    records: Records,
    roots: Vec<Root>,
    host: Arc<Host>,
    pins: Pins,
    pinned: usize,
    known: HashMap<Identity, u32>,
    open: HashMap<u32, Open>,
    /// Those that are open, longest first.
    order: VecDeque<u32>,
    /// Nodes that are open for writing.
    writers: Vec<u64>,
    locked: LockedFiles,
    changes: Arc<Changes>,
    bare: Bare,
}

fn node_of(index: u32) -> u64 {
    VOLUMES + u64::from(index)
}

/// A file that was found, and what is to be noted of it.
pub(crate) struct Found<'a> {
    pub parent: u64,
    pub name: &'a [u8],
    pub statx: &'a Statx,
    pub giver: u64,
}

impl Nodes {
    /// Those in this memory, which may be a predecessor's, who has pinned these.
    pub fn open(
        memory: &OwnedFd,
        volumes: Vec<Volume>,
        host: Arc<Host>,
        pins: Pins,
        pinned: Vec<(u64, OwnedFd)>,
    ) -> io::Result<Self> {
        let mut nodes = Self {
            records: Records::open(memory)?,
            roots: volumes.into_iter().map(|v| Root::new(v, &host)).collect::<io::Result<_>>()?,
            changes: Arc::new(Changes::new(host.descriptors.clone())),
            bare: Bare::default(),
            host,
            pins,
            pinned: 0,
            known: HashMap::new(),
            open: HashMap::new(),
            order: VecDeque::new(),
            writers: Vec::new(),
            locked: LockedFiles::default(),
        };
        for index in 0..nodes.records.used() {
            let record = nodes.records.get(index);
            if record.given == 0 {
                nodes.records.release(index);
            } else {
                nodes.known.insert(record.identity, index);
            }
        }
        for (node, name) in pinned {
            let Some(name) = nodes.locked.take_over(node, name) else { continue };
            match nodes.known_record(node) {
                Ok((index, _)) => {
                    nodes.pinned += 1;
                    let nameless = rustix::fs::fstat(&name).is_ok_and(|s| s.st_nlink == 0);
                    nodes.hold(index, |open| (open.name, open.pinned) = (Some(Arc::new(name)), true));
                    if nameless {
                        nodes.nameless(index);
                    }
                }
                // It was given back, and that was all.
                Err(_) => nodes.pins.unpin(node),
            }
        }
        nodes.changes.were(nodes.former());
        Ok(nodes)
    }

    /// By volume: the device it is on, and the disk of that.
    pub fn places(&self) -> Vec<[u64; 2]> {
        self.roots.iter().map(|root| root.devices).collect()
    }

    /// The memory, which begins with the ledger of what was done for the domain.
    pub fn share(&self) -> Arc<SharedMap> {
        self.records.share()
    }

    fn known_record(&self, node: u64) -> Result<(u32, Record), Errno> {
        let index = node.checked_sub(VOLUMES).and_then(|i| u32::try_from(i).ok());
        let index = index.filter(|i| *i < self.records.used()).ok_or(Errno::STALE)?;
        let record = self.records.get(index);
        if record.given == 0 { Err(Errno::STALE) } else { Ok((index, record)) }
    }

    fn root(&self, volume: u64) -> Result<&Root, Errno> {
        usize::try_from(volume).ok().and_then(|v| self.roots.get(v)).ok_or(Errno::STALE)
    }

    /// The disk that a node is.
    pub fn disk(&self, node: u64) -> Option<Arc<Disk>> {
        self.root(node).ok()?.disk.clone()
    }

    /// The disk that is this volume is made of these files from here on.
    pub fn switch_disk(&mut self, volume: usize, files: DiskFiles) -> io::Result<()> {
        let root = self.roots.get_mut(volume).filter(|root| root.disk.is_some());
        let root = root.ok_or_else(|| io::Error::other("a switch of no disk"))?;
        root.disk = Some(Arc::new(files.open_locked(root.read_only)?));
        Ok(())
    }

    /// Which volume a node is of.
    pub fn volume_of(&self, node: u64) -> Result<u64, Errno> {
        if node < VOLUMES { Ok(node) } else { Ok(self.known_record(node)?.1.identity.volume) }
    }

    /// What kind of file it is.
    pub fn kind_of(&self, node: u64) -> Result<FileType, Errno> {
        if node < VOLUMES { Ok(self.root(node)?.kind) } else { Ok(self.known_record(node)?.1.kind) }
    }

    /// EROFS if nothing may change where this node is.
    pub fn writable(&self, node: u64) -> Result<(), Errno> {
        if self.root(self.volume_of(node)?)?.read_only { Err(Errno::ROFS) } else { Ok(()) }
    }

    /// The bound of the volume that this node is of.
    pub fn quota(&self, node: u64) -> Result<Option<Arc<Quota>>, Errno> {
        Ok(self.root(self.volume_of(node)?)?.quota.clone())
    }

    /// A file has no name any more, or never had one: what it takes is given back when it is closed.
    fn nameless(&self, index: u32) {
        let Identity { volume, device, inode, .. } = self.records.get(index).identity;
        if let Ok(Root { quota: Some(quota), .. }) = self.root(volume) {
            quota.loses((device, inode));
        }
    }

    /// A file has lost its last name, of which no program has it in use: it is held open here no longer.
    pub fn close_lost(&mut self, s: &Statx) {
        for volume in (0..).take(self.roots.len()) {
            if let Some(&index) = self.known.get(&Identity::of(volume, s))
                && self.open.get(&index).is_some_and(|open| !open.pinned)
                && let Some(open) = self.open.remove(&index)
            {
                self.close(index, open);
            }
        }
    }

    /// Whether something is in the mount that the volume of this node is.
    pub fn is_inside(&self, node: u64, s: &Statx) -> Result<bool, Errno> {
        Ok(self.root(self.volume_of(node)?)?.mount == s.stx_mnt_id)
    }

    /// A descriptor that names a file.
    pub fn name(&mut self, node: u64) -> Result<Arc<OwnedFd>, Errno> {
        self.name_within(node, DEPTH)
    }

    fn name_within(&mut self, node: u64, depth: u32) -> Result<Arc<OwnedFd>, Errno> {
        if node < VOLUMES {
            return Ok(self.root(node)?.file.clone());
        }
        let (index, record) = self.known_record(node)?;
        if let Some(open) = self.open.get(&index)
            && let Some(name) =
                open.name.as_ref().or(open.data.as_ref()).or(open.write.as_ref().map(|w| &w.0))
        {
            return Ok(name.clone());
        }
        let found = match &record.locator {
            Locator::None => return Err(Errno::STALE),
            Locator::Handle(_) => {
                let root = &self.root(record.identity.volume)?.file;
                reopen(root, &record, OFlags::PATH | OFlags::NOFOLLOW)?
            }
            Locator::Name { parent, name } => {
                let parent = self.name_within(*parent, depth.checked_sub(1).ok_or(Errno::STALE)?)?;
                let name = std::ffi::CString::new(name.as_slice()).map_err(|_| Errno::STALE)?;
                let found = open_name(&parent, &name)?;
                check(&record, &found)?;
                found
            }
        };
        let found = Arc::new(found);
        self.hold(index, |open| open.name = Some(found.clone()));
        Ok(found)
    }

    /// How to get a descriptor that reads a regular file or directory, and writes it if so asked.
    pub fn data(&mut self, node: u64, write: bool) -> Result<Data, Errno> {
        let access = match self.kind_of(node)? {
            FileType::Directory if write => return Err(Errno::ISDIR),
            FileType::Directory => OFlags::RDONLY | OFlags::DIRECTORY,
            FileType::RegularFile if write => OFlags::RDWR,
            FileType::RegularFile => OFlags::RDONLY,
            // To open another kind would do something.
            _ => return Err(Errno::INVAL),
        };
        let access = access | OFlags::NOCTTY;
        let Ok(index) = u32::try_from(node.wrapping_sub(VOLUMES)) else {
            let root = self.root(node)?;
            return Ok(match &root.write {
                _ if !write => Data::Open(root.file.clone()),
                Some((file, _)) => Data::Open(file.clone()),
                None => Data::Named(root.file.clone(), access),
            });
        };
        if let Some(open) = self.open.get_mut(&index) {
            if let Some((file, used)) = &mut open.write {
                *used = if write { Instant::now() } else { *used };
                return Ok(Data::Open(file.clone()));
            }
            if let (Some(data), false) = (&open.data, write) {
                return Ok(Data::Open(data.clone()));
            }
        }
        let (_, record) = self.known_record(node)?;
        let named = self.open.get(&index).is_some_and(|open| open.name.is_some());
        if !named && matches!(record.locator, Locator::Handle(_)) {
            let root = self.root(record.identity.volume)?.file.clone();
            return Ok(Data::Handle(root, record, access));
        }
        Ok(Data::Named(self.name(node)?, access))
    }

    /// What to open of a file for its locks, and how.
    pub fn name_to_lock(&mut self, node: u64) -> Result<(Arc<OwnedFd>, OFlags), Errno> {
        let access = match self.kind_of(node)? {
            FileType::Directory => OFlags::RDONLY | OFlags::DIRECTORY,
            FileType::RegularFile if self.writable(node).is_ok() => OFlags::RDWR,
            FileType::RegularFile => OFlags::RDONLY,
            _ => return Err(Errno::INVAL),
        };
        Ok((self.name(node)?, access))
    }

    /// The description of a file that has its locks, if there may be any.
    pub fn locked(&self, node: u64) -> Option<Arc<OwnedFd>> {
        self.locked.get(node)
    }

    /// Keeps this description for a file's locks, if there is none yet.
    ///
    /// # Errors
    /// ENOLCK: the domain has too many.
    pub fn lockable(&mut self, node: u64, file: Arc<OwnedFd>) -> Result<Arc<OwnedFd>, Errno> {
        // It may have been given back meanwhile.
        self.kind_of(node)?;
        self.locked.enter(node, file, self.host.locked(), &self.pins)
    }

    /// A file has no locks any more.
    pub fn unlocked(&mut self, node: u64) {
        if self.locked.leave(node, &self.pins)
            && let (Ok(volume), Ok(id)) = (self.volume_of(node), self.file_id(node))
        {
            // The manager closes the last descriptor, which may write.
            self.changes.owes(volume, id);
        }
    }

    /// It was opened.
    pub fn opened(&mut self, node: u64, write: bool, file: &Arc<OwnedFd>) {
        if let Ok(index) = u32::try_from(node.wrapping_sub(VOLUMES)) {
            // It may have been given back meanwhile.
            if self.known_record(node).is_err() {
            } else if write {
                self.writes(node, index, file.clone());
            } else {
                self.hold(index, |open| open.data = Some(file.clone()));
            }
        } else if write && let Some(root) = usize::try_from(node).ok().and_then(|n| self.roots.get_mut(n)) {
            root.write = Some((file.clone(), Instant::now()));
            self.writers.push(node);
        }
    }

    /// Notes that a file is open for writing.
    fn writes(&mut self, node: u64, index: u32, file: Arc<OwnedFd>) {
        self.writers.push(node);
        self.hold(index, |open| open.write = Some((file, Instant::now())));
    }

    /// Closes what was not written lately; false if there is nothing left to close but what programs have open.
    pub fn close_writers(&mut self, now: Instant) -> bool {
        let idle = |last: &Instant| now.saturating_duration_since(*last) >= WRITES;
        let (open, roots) = (&mut self.open, &mut self.roots);
        let (mut closed, mut left) = (Vec::new(), false);
        self.writers.retain(|&node| {
            let write = match u32::try_from(node.wrapping_sub(VOLUMES)) {
                Ok(index) => open.get_mut(&index).map(|open| &mut open.write),
                Err(_) => usize::try_from(node).ok().and_then(|n| roots.get_mut(n)).map(|r| &mut r.write),
            };
            let Some(write) = write else { return false };
            if write.as_ref().is_some_and(|(_, used)| idle(used)) {
                closed.extend(write.take().map(|(file, _)| (node, file)));
            }
            left |= write.as_ref().is_some_and(|(_, used)| *used < now + HELD / 2);
            write.is_some()
        });
        closed.into_iter().for_each(|(node, file)| self.close_writer(node, file));
        left
    }

    /// The node of a file that is known, given once more.
    pub fn again(&mut self, found: &Found<'_>) -> Result<Option<u64>, Errno> {
        let identity = Identity::of(self.volume_of(found.parent)?, found.statx);
        // Without its time of birth another one with its number cannot be told from it.
        if identity.born == 0 {
            return Ok(None);
        }
        Ok(self.known.get(&identity).copied().map(|index| self.give_known(index, found)))
    }

    fn give_known(&mut self, index: u32, found: &Found<'_>) -> u64 {
        let record = self.records.get(index);
        // A predecessor may have given it by this request.
        if record.giver != found.giver {
            self.records.set_given(index, record.given + 1, found.giver);
        }
        let locator = Locator::Name { parent: found.parent, name: found.name.to_vec() };
        let fits = (1..=LONGEST).contains(&found.name.len());
        if fits && matches!(record.locator, Locator::Name { .. }) && record.locator != locator {
            self.lead(index, locator);
        }
        node_of(index)
    }

    /// It is found in another way from now on. Through whatever directory a file is found, that stays known.
    fn lead(&mut self, index: u32, locator: Locator) {
        if let Locator::Name { parent, .. } = &locator
            && let Ok((parent, record)) = self.known_record(*parent)
        {
            self.records.set_given(parent, record.given + 1, record.giver);
        }
        let record = self.records.get(index);
        let before = record.locator.clone();
        self.records.put(index, &Record { locator, ..record });
        if let Locator::Name { parent, .. } = before {
            self.forget(parent, 1);
        }
    }

    /// The node of a file that was just opened. It is given once more.
    pub fn give(&mut self, found: &Found<'_>, name: OwnedFd, writes: bool) -> Result<u64, Errno> {
        let volume = self.volume_of(found.parent)?;
        let identity = Identity::of(volume, found.statx);
        let handle = if self.root(volume)?.handles { Handle::of(name.as_fd()).ok() } else { None };
        if let Some(&index) = self.known.get(&identity) {
            if self.is_same(index, handle.as_ref()) {
                return Ok(self.give_known(index, found));
            }
            // The host has given the number to another file: the old one is no more.
            self.known.remove(&identity);
        }
        let locator = match handle {
            Some(handle) => Locator::Handle(handle),
            None if (1..=LONGEST).contains(&found.name.len()) => {
                Locator::Name { parent: found.parent, name: found.name.to_vec() }
            }
            None => Locator::None,
        };
        let name = Arc::new(name);
        let pinned = locator == Locator::None || found.name.is_empty();
        let index = self.records.take()?;
        if pinned && let Err(e) = self.pin(index, &name) {
            self.records.release(index);
            return Err(e);
        }
        let kind = FileType::from_raw_mode(found.statx.stx_mode.into());
        self.records.put(
            index,
            &Record { given: 1, giver: found.giver, identity, kind, watched: 0, locator: Locator::None },
        );
        self.lead(index, locator);
        self.known.insert(identity, index);
        if writes {
            self.writes(node_of(index), index, name.clone());
        }
        if pinned || !writes {
            self.hold(index, |open| open.name = Some(name));
        }
        if found.name.is_empty() {
            self.nameless(index);
        }
        Ok(node_of(index))
    }

    /// Whether a record is of the file with this handle, and not of an earlier one with its number.
    fn is_same(&self, index: u32, handle: Option<&Handle>) -> bool {
        let record = self.records.get(index);
        match (&record.locator, handle) {
            _ if record.identity.born != 0 => true,
            (Locator::Handle(known), Some(handle)) => known == handle,
            _ => self.open.get(&index).is_some_and(|open| open.name.is_some()),
        }
    }

    /// A node is given back so often.
    pub fn forget(&mut self, mut node: u64, mut times: u64) {
        while let Ok((index, record)) = self.known_record(node) {
            let given = record.given.saturating_sub(times);
            self.records.set_given(index, given, record.giver);
            if given > 0 {
                return;
            }
            if let Some(open) = self.open.remove(&index) {
                if open.pinned {
                    self.unpin(index);
                }
                self.close(index, open);
            }
            self.unlocked(node);
            self.watched_no_more(index);
            if self.known.get(&record.identity) == Some(&index) {
                self.known.remove(&record.identity);
            }
            self.records.release(index);
            // The directory through which it was found may be needed no more.
            let Locator::Name { parent, .. } = record.locator else { return };
            (node, times) = (parent, 1);
        }
    }

    /// A name of this file is about to go: what is known of it and could not be found again is pinned. `file` opens it.
    pub fn losing(&mut self, s: &Statx, file: impl Fn() -> Result<OwnedFd, Errno>) -> Result<(), Errno> {
        let last = s.stx_nlink <= 1 || FileType::from_raw_mode(s.stx_mode.into()) == FileType::Directory;
        // Two volumes may be of one directory.
        for volume in (0..).take(self.roots.len()) {
            let Some(&index) = self.known.get(&Identity::of(volume, s)) else { continue };
            if (!last && self.root(volume)?.handles) || self.open.get(&index).is_some_and(|open| open.pinned)
            {
                continue;
            }
            let name = self.open.get(&index).and_then(|open| open.name.clone());
            let name = name.map_or_else(|| file().map(Arc::new), Ok)?;
            self.pin(index, &name)?;
            self.hold(index, |open| open.name = Some(name));
        }
        Ok(())
    }

    /// A name that was about to go has stayed.
    pub fn kept(&mut self, s: &Statx) {
        for volume in (0..).take(self.roots.len()) {
            if let Some(&index) = self.known.get(&Identity::of(volume, s))
                && self.records.get(index).locator != Locator::None
                && let Some(open) = self.open.get_mut(&index)
                && std::mem::take(&mut open.pinned)
            {
                self.unpin(index);
            }
        }
    }

    /// A file has another name now, by which it is found if need be.
    pub fn named(&mut self, s: &Statx, parent: u64, name: &[u8]) {
        let Ok(volume) = self.volume_of(parent) else { return };
        let Some(&index) = self.known.get(&Identity::of(volume, s)) else { return };
        let record = self.records.get(index);
        let locator = match record.locator {
            Locator::Handle(_) => record.locator.clone(),
            _ if name.len() <= LONGEST => Locator::Name { parent, name: name.to_vec() },
            // It stays open, if it is, and so many may.
            _ => {
                if let Some(name) = self.open.get(&index).and_then(|open| open.name.clone()) {
                    let _ = self.pin(index, &name);
                }
                return;
            }
        };
        if self.open.get_mut(&index).is_some_and(|open| std::mem::take(&mut open.pinned)) {
            self.unpin(index);
        }
        if locator != record.locator {
            self.lead(index, locator);
        }
    }

    /// Holds a file open, here and at the manager.
    fn pin(&mut self, index: u32, name: &Arc<OwnedFd>) -> Result<(), Errno> {
        if self.open.get(&index).is_some_and(|open| open.pinned) {
            return Ok(());
        }
        if self.pinned >= self.host.pinned() {
            return Err(Errno::NFILE);
        }
        self.pins.pin(node_of(index), name.as_fd())?;
        self.pinned += 1;
        self.hold(index, |open| open.pinned = true);
        Ok(())
    }

    fn unpin(&mut self, index: u32) {
        self.pinned = self.pinned.saturating_sub(1);
        self.pins.unpin(node_of(index));
    }

    /// Notes descriptors, and closes others that have been open for long.
    fn hold(&mut self, index: u32, change: impl FnOnce(&mut Open)) {
        if !self.open.contains_key(&index) {
            self.order.push_back(index);
        }
        let open = self.open.entry(index).or_default();
        change(open);
        if open.holding.is_none()
            && let Some(file) =
                open.name.as_ref().or(open.data.as_ref()).or(open.write.as_ref().map(|w| &w.0))
        {
            let Identity { volume, device, inode, .. } = self.records.get(index).identity;
            let root = usize::try_from(volume).ok().and_then(|v| self.roots.get(v));
            let quota = root.and_then(|root| root.quota.as_ref());
            open.holding = quota.and_then(|quota| quota.hold((device, inode), file));
        }
        if self.bare.has(index) && !open.pinned {
            self.open.remove(&index);
        }
        let most = self.host.open_files() + self.pinned;
        let mut looks = self.order.len();
        while (self.open.len() > most || self.order.len() > 2 * most)
            && looks > 0
            && let Some(oldest) = self.order.pop_front()
        {
            looks -= 1;
            match self.open.get(&oldest) {
                Some(open) if open.pinned || oldest == index => self.order.push_back(oldest),
                Some(_) => {
                    if let Some(open) = self.open.remove(&oldest) {
                        self.close(oldest, open);
                    }
                }
                // It was forgotten.
                None => {}
            }
        }
    }
}

impl Root {
    fn new(volume: Volume, host: &Host) -> io::Result<Self> {
        let s = statx(volume.root.as_fd(), c"", rustix::fs::AtFlags::EMPTY_PATH)?;
        let path = OFlags::PATH.bits().cast_signed();
        let handles =
            Handle::of(volume.root.as_fd()).is_ok_and(|h| h.open(volume.root.as_fd(), path).is_ok());
        let disk = volume.disk.map(|disk| disk.open_locked(volume.read_only)).transpose()?;
        let file = Arc::new(volume.root);
        let quota = volume.bound.map(|bound| host.quotas.get(&bound, &file)).transpose()?;
        Ok(Self {
            disk: disk.map(Arc::new),
            file,
            quota,
            devices: volume.devices,
            read_only: volume.read_only,
            kind: FileType::from_raw_mode(s.stx_mode.into()),
            id: FileId::of(&s),
            handles,
            mount: s.stx_mnt_id,
            write: None,
        })
    }
}

/// Opens a file by its handle.
fn reopen(root: &OwnedFd, record: &Record, flags: OFlags) -> Result<OwnedFd, Errno> {
    let Locator::Handle(handle) = &record.locator else { return Err(Errno::STALE) };
    let found = handle.open(root.as_fd(), flags.bits().cast_signed()).map_err(errno)?;
    check(record, &found)?;
    Ok(found)
}

/// How to get a descriptor of a file's bytes. To open it may take long, and is not for who has the nodes' lock.
pub(crate) enum Data {
    /// It is open.
    Open(Arc<OwnedFd>),
    /// It is what this names.
    Named(Arc<OwnedFd>, OFlags),
    /// It has a handle, in this file system.
    Handle(Arc<OwnedFd>, Record, OFlags),
}

impl Data {
    /// Opens it. True: it was not open.
    pub fn open(self, host: &Host) -> Result<(Arc<OwnedFd>, bool), Errno> {
        let file = match self {
            Self::Open(file) => return Ok((file, false)),
            Self::Named(name, access) => host.open(name.as_fd(), access)?,
            Self::Handle(root, record, access) => reopen(&root, &record, access)?,
        };
        Ok((Arc::new(file), true))
    }
}

/// Whether what was found is the record's file.
fn check(record: &Record, found: &OwnedFd) -> Result<(), Errno> {
    let s = statx(found.as_fd(), c"", rustix::fs::AtFlags::EMPTY_PATH)?;
    if Identity::of(record.identity.volume, &s) == record.identity { Ok(()) } else { Err(Errno::STALE) }
}

/// The errno of an error of the host's.
pub(crate) fn errno(error: io::Error) -> Errno {
    if error.kind() == io::ErrorKind::InvalidInput {
        return Errno::INVAL;
    }
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}
