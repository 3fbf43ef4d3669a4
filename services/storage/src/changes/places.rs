//! Files that a domain watches, as the host numbers them and as the domain does.

use std::collections::HashMap;
use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use doppel_abi_service::storage::file_event;
use rustix::fs::{AtFlags, Statx, StatxFlags, makedev};
use rustix::io::Errno;

use crate::budget::Share;

/// What tells a file from all others that are there: device and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileId(pub u64, pub u64);

impl FileId {
    pub fn of(s: &Statx) -> Self {
        Self(makedev(s.stx_dev_major, s.stx_dev_minor), s.stx_ino)
    }
}

/// Opens a file anew, which can go meanwhile as it is not held open.
pub(crate) type Opens = Box<dyn Fn() -> Result<OwnedFd, Errno> + Send + Sync>;

/// How a watched file is found, when something must be known of it.
pub(crate) enum Reach {
    /// It is held open.
    Open(Arc<OwnedFd>),
    Anew(Opens),
}

impl std::fmt::Debug for Reach {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if matches!(self, Self::Open(_)) { "Open" } else { "Anew" })
    }
}

/// A file that is to be watched.
#[derive(Debug)]
pub(crate) struct Site {
    pub node: u64,
    pub volume: u64,
    pub file: FileId,
    pub is_directory: bool,
    /// The name by which it is known in a directory, if that is known.
    pub named: Option<(u64, Vec<u8>)>,
    pub reach: Reach,
}

/// Who is told: a volume's node. A directory that is in two volumes of a domain has two.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watcher {
    pub node: u64,
    pub volume: u64,
    pub events: u32,
}

/// A watched file.
#[derive(Debug)]
pub(super) struct Place {
    pub file: FileId,
    is_directory: bool,
    named: Option<(u64, Vec<u8>)>,
    reach: Reach,
    watchers: Vec<Watcher>,
    _share: Share,
}

impl Place {
    pub fn watchers(&self) -> &[Watcher] {
        &self.watchers
    }

    fn look<T>(&self, act: impl FnOnce(&OwnedFd) -> Result<T, Errno>) -> Result<T, Errno> {
        match &self.reach {
            Reach::Open(file) => act(file),
            Reach::Anew(open) => act(&open()?),
        }
    }

    /// The file that has this name here.
    pub fn named(&self, name: &[u8]) -> Option<FileId> {
        let name = std::ffi::CString::new(name).ok()?;
        self.look(|dir| look(dir, &name, AtFlags::SYMLINK_NOFOLLOW)).ok().map(|s| FileId::of(&s))
    }

    /// Whether it has lost its last name.
    pub fn is_gone(&self) -> bool {
        let links = || self.look(|file| look(file, c"", AtFlags::EMPTY_PATH)).map(|s| s.stx_nlink);
        matches!(links(), Ok(0) | Err(Errno::STALE | Errno::NOENT))
    }
}

fn look(file: &OwnedFd, name: &CStr, how: AtFlags) -> Result<Statx, Errno> {
    rustix::fs::statx(file.as_fd(), name, how | AtFlags::NO_AUTOMOUNT, StatxFlags::BASIC_STATS)
}

/// All of a domain's.
#[derive(Debug, Default)]
pub(super) struct Places {
    by_number: HashMap<i32, Place>,
    by_file: HashMap<FileId, i32>,
    /// The host's number, and that of the request.
    by_node: HashMap<u64, (i32, u64)>,
}

impl Places {
    pub fn is_empty(&self) -> bool {
        self.by_node.is_empty()
    }

    pub fn len(&self) -> usize {
        self.by_node.len()
    }

    pub fn get(&self, wd: i32) -> Option<&Place> {
        self.by_number.get(&wd)
    }

    /// Who watches the directory that had this name in the directory `parent`, and is gone.
    pub fn lost(&self, parent: u64, name: &[u8]) -> impl Iterator<Item = &Watcher> {
        let had = move |place: &&Place| {
            let named = place.named.as_ref().is_some_and(|(dir, known)| *dir == parent && known == name);
            named && place.is_directory && place.is_gone()
        };
        self.by_number.values().filter(had).flat_map(|place| &place.watchers)
    }

    /// The number of the request by which a node is watched.
    pub fn number(&self, node: u64) -> Option<u64> {
        self.by_node.get(&node).map(|(_, number)| *number)
    }

    /// What the host is to tell of a file if a node is told of these events.
    pub fn wanted(&self, site: &Site, events: u32) -> u32 {
        let place = self.by_file.get(&site.file).and_then(|wd| self.by_number.get(wd));
        let others = place.iter().flat_map(|place| &place.watchers).filter(|w| w.node != site.node);
        let all = others.fold(events, |all, watcher| all | watcher.events);
        // Of a file that is held open it says so first.
        if !site.is_directory && all & file_event::DELETE_SELF != 0 { all | file_event::ATTRIB } else { all }
    }

    /// The host watches it by this number.
    pub fn enter(&mut self, wd: i32, site: Site, (events, number): (u32, u64), share: Share) {
        self.leave(site.node);
        let Site { node, volume, file, is_directory, named, reach } = site;
        let place = Place { file, is_directory, named, reach, watchers: Vec::new(), _share: share };
        let place = self.by_number.entry(wd).or_insert(place);
        place.watchers.push(Watcher { node, volume, events });
        self.by_file.insert(file, wd);
        self.by_node.insert(node, (wd, number));
    }

    /// A node is watched no more; the number of what nobody watches now.
    pub fn leave(&mut self, node: u64) -> Option<i32> {
        let (wd, _) = self.by_node.remove(&node)?;
        let place = self.by_number.get_mut(&wd)?;
        place.watchers.retain(|watcher| watcher.node != node);
        if !place.watchers.is_empty() {
            return None;
        }
        self.gone(wd);
        Some(wd)
    }

    /// The host watches it no more.
    pub fn gone(&mut self, wd: i32) {
        let Some(place) = self.by_number.remove(&wd) else { return };
        // Another one may have the file's number by now.
        if self.by_file.get(&place.file) == Some(&wd) {
            self.by_file.remove(&place.file);
        }
        for watcher in &place.watchers {
            self.by_node.remove(&watcher.node);
        }
    }
}
