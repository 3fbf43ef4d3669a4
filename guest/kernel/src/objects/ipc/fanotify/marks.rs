//! Marks: what groups want to know.

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};

use doppel_machine::sync::SpinLock;

use super::flags::{FanMask, MarkFlags};
use super::group::Group;
use crate::core::part::Part;
use crate::objects::vfs::Inode;
use crate::objects::vfs::attach::notify::{count, uncount};

/// What is marked.
#[derive(Clone)]
pub enum Place {
    /// A file.
    Inode(Arc<dyn Inode>),
    /// A mount, by its number.
    Mount(u64),
    /// A file system, by its device.
    FileSystem(u64),
}

impl Place {
    /// Whether both are the same.
    pub(super) fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Inode(a), Self::Inode(b)) => Arc::ptr_eq(a, b),
            (Self::Mount(a), Self::Mount(b)) | (Self::FileSystem(a), Self::FileSystem(b)) => a == b,
            _ => false,
        }
    }

    /// The flag that stands for such a place.
    pub(super) fn kind(&self) -> MarkFlags {
        match self {
            Self::Inode(_) => MarkFlags::empty(),
            Self::Mount(_) => MarkFlags::MOUNT,
            Self::FileSystem(_) => MarkFlags::FILESYSTEM,
        }
    }
}

/// What a mark says.
#[derive(Clone, Copy)]
pub(super) struct Wants {
    /// Events that are wanted.
    pub(super) mask: FanMask,
    /// Events that are not.
    pub(super) ignored: FanMask,
    /// EVICTABLE, IGNORE and IGNORED_SURV_MODIFY of it.
    pub(super) flags: MarkFlags,
}

/// What a group wants to know of a place.
pub struct Mark {
    pub(super) place: Place,
    pub(super) group: Weak<Group>,
    pub(super) wants: SpinLock<Wants>,
}

/// The marks of an inode, as its attachment.
#[derive(Default)]
struct OfInode(SpinLock<Vec<Arc<Mark>>>);

/// Marks that are not of inodes, and how many there are of whom.
#[derive(Default)]
pub struct Marks {
    /// All marks of the domain.
    all: AtomicUsize,
    /// Those with events that wait for an answer.
    asking: AtomicUsize,
    mounts: SpinLock<BTreeMap<u64, Vec<Arc<Mark>>>>,
    file_systems: SpinLock<BTreeMap<u64, Vec<Arc<Mark>>>>,
    /// Groups and marks of users.
    pub(super) users: SpinLock<BTreeMap<u32, (usize, usize)>>,
}

/// The domain's.
pub static MARKS: Part<Marks> = Part::new();

impl Marks {
    /// Whether there is any mark.
    pub(super) fn any(&self) -> bool {
        self.all.load(Ordering::Relaxed) != 0
    }

    /// Whether any group wants to be asked.
    pub(super) fn asking(&self) -> bool {
        self.asking.load(Ordering::Relaxed) != 0
    }

    /// A mark wants to be asked, as none did before it.
    pub(super) fn will_ask(&self) {
        self.asking.fetch_add(1, Ordering::Relaxed);
    }

    /// A mark does not want to be asked any more.
    pub(super) fn asks_no_more(&self) {
        self.asking.fetch_sub(1, Ordering::Relaxed);
    }

    /// The marks of a place.
    pub(super) fn of(&self, place: &Place) -> Vec<Arc<Mark>> {
        match place {
            Place::Inode(i) => of_inode(i),
            Place::Mount(id) => self.mounts.lock().get(id).cloned().unwrap_or_default(),
            Place::FileSystem(dev) => self.file_systems.lock().get(dev).cloned().unwrap_or_default(),
        }
    }

    /// Enters a mark. What never changes has no place for one, and nothing to tell.
    pub(super) fn enter(&self, mark: &Arc<Mark>) {
        match &mark.place {
            Place::Inode(i) => {
                if let Some(a) = i.attachments() {
                    a.get_or_insert(OfInode::default).0.lock().push(mark.clone());
                }
            }
            Place::Mount(id) => self.mounts.lock().entry(*id).or_default().push(mark.clone()),
            Place::FileSystem(dev) => self.file_systems.lock().entry(*dev).or_default().push(mark.clone()),
        }
        self.all.fetch_add(1, Ordering::Relaxed);
        count(1);
    }

    /// Takes a mark out again.
    pub(super) fn leave(&self, mark: &Arc<Mark>) {
        let out = |list: &mut Vec<Arc<Mark>>| list.retain(|m| !Arc::ptr_eq(m, mark));
        let out_of = |map: &SpinLock<BTreeMap<u64, Vec<Arc<Mark>>>>, key: &u64| {
            let mut map = map.lock();
            if let Some(list) = map.get_mut(key) {
                out(list);
                if list.is_empty() {
                    map.remove(key);
                }
            }
        };
        match &mark.place {
            Place::Inode(i) => {
                if let Some(list) = i.attachments().and_then(|a| a.get::<OfInode>()) {
                    out(&mut list.0.lock());
                }
            }
            Place::Mount(id) => out_of(&self.mounts, id),
            Place::FileSystem(dev) => out_of(&self.file_systems, dev),
        }
        if mark.wants.lock().mask.intersects(FanMask::PERM) {
            self.asks_no_more();
        }
        self.all.fetch_sub(1, Ordering::Relaxed);
        uncount(1);
    }
}

/// The marks of a file.
pub(super) fn of_inode(inode: &Arc<dyn Inode>) -> Vec<Arc<Mark>> {
    let list = inode.attachments().and_then(|a| a.get::<OfInode>());
    list.map_or_else(Vec::new, |l| l.0.lock().clone())
}

impl Wants {
    /// Whether bits of a mark count for an event: of a directory only with ONDIR, of a file in it with EVENT_ON_CHILD.
    fn applies(bits: FanMask, on_dir: bool, from_child: bool) -> bool {
        (!on_dir || bits.contains(FanMask::ONDIR)) && (!from_child || bits.contains(FanMask::EVENT_ON_CHILD))
    }

    /// What is wanted of an event.
    pub(super) fn wanted(&self, on_dir: bool, from_child: bool) -> FanMask {
        if Self::applies(self.mask, on_dir, from_child) { self.mask } else { FanMask::empty() }
    }

    /// What is not.
    pub(super) fn unwanted(&self, on_dir: bool, from_child: bool) -> FanMask {
        let bits = if self.flags.contains(MarkFlags::IGNORE) {
            self.ignored
        } else {
            // As it was before there were flags of what is ignored: directories too, files in it as the mark says.
            self.ignored | FanMask::ONDIR | self.mask & FanMask::EVENT_ON_CHILD
        };
        if !self.ignored.is_empty() && Self::applies(bits, on_dir, from_child) {
            self.ignored
        } else {
            FanMask::empty()
        }
    }
}
