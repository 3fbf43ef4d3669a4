//! Mounts: file systems, or parts of them, attached to places of other mounts, in trees.
//!
//! Key types: [`Mount`], [`Vfs`] (all of them), [`MountNamespace`] (the tree that a process sees), [`tree::Tree`] (how they hang
//! together and propagate).
//! Walks read where a mount is, and what is mounted on a name, under a guard of `doppel_machine::shield` alone. Everything else
//! about the shape of the trees is in the [`tree::Tree`], behind one lock; what is changed there is shown to the walks in one step.
//! A lookup by mount and name is one of all namespaces: their mounts are different objects.

pub mod attach;
pub mod attr;
pub mod bind;
pub mod copy;
mod groups;
mod index;
pub mod namespace;
pub mod pivot;
mod propagate;
pub mod space;
pub mod superblock;
pub mod table;
pub mod tree;
pub mod umount;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use doppel_machine::shield::{self, Reading, Shielded};
use doppel_machine::sync::Once;

use crate::core::part::Part;
use crate::core::sched::{Mutex, MutexGuard};
use crate::objects::lookup::path::Path;
use crate::objects::vfs::dentry::Dentry;
use crate::objects::vfs::flags::{MountFlags, MountLocks};
use crate::objects::vfs::inode::Inode;
use crate::{Errno, Result, kernel};
use index::Index;
pub use space::MountNamespace;
pub use superblock::Superblock;
use tree::Tree;

/// A file system, or a part of one, as it is seen at a place.
pub struct Mount {
    /// Number shown in mountinfo and statx.
    pub id: u64,
    /// Its topmost file.
    pub root: Arc<Dentry>,
    /// The file system.
    pub sb: Arc<Superblock>,
    /// First column of /proc/mounts.
    pub source: Vec<u8>,
    /// Where it is mounted; `None` at the top of a tree.
    at: Shielded<Option<Path>>,
    flags: AtomicU32,
    locks: AtomicU32,
    /// The namespace it is in; 0: none.
    space: AtomicU64,
    /// Of `MNT_EXPIRE`: 2 when it was marked, one less with each walk into it.
    expiry: AtomicU32,
    /// Files of it that are open for writing.
    writers: AtomicUsize,
}

/// Numbers that are never used twice are larger than those (statx, statmount).
pub const UNIQUE: u64 = 1 << 31;

impl Mount {
    fn make(root: Arc<Dentry>, sb: Arc<Superblock>, source: &[u8], flags: MountFlags) -> Self {
        Self {
            id: kernel().next_id(),
            root,
            sb,
            source: source.to_vec(),
            at: Shielded::new(None),
            flags: AtomicU32::new((flags & MountFlags::KEPT).bits()),
            locks: AtomicU32::new(0),
            space: AtomicU64::new(0),
            expiry: AtomicU32::new(0),
            writers: AtomicUsize::new(0),
        }
    }

    /// A new mount, in no tree yet.
    pub fn new(root: Arc<Dentry>, sb: Arc<Superblock>, source: &[u8], flags: MountFlags) -> Arc<Self> {
        Arc::new(Self::make(root, sb, source, flags))
    }

    /// Another mount of the same file system with `root` on top.
    fn again(&self, root: Arc<Dentry>) -> Self {
        let new = Self::make(root, self.sb.clone(), &self.source, self.flags());
        new.locks.store(self.locks().bits(), Ordering::Relaxed);
        new
    }

    /// The type of its file system: "tmpfs", "proc"…
    pub fn fstype(&self) -> &'static str {
        self.sb.fstype
    }

    /// Its number that is never used for another.
    pub fn unique(&self) -> u64 {
        UNIQUE + self.id
    }

    /// How it is mounted.
    pub fn flags(&self) -> MountFlags {
        MountFlags::from_bits_retain(self.flags.load(Ordering::Relaxed))
    }

    fn store_flags(&self, flags: MountFlags) {
        self.flags.store((flags & MountFlags::KEPT).bits(), Ordering::Relaxed);
    }

    /// What nobody may change of it.
    pub fn locks(&self) -> MountLocks {
        MountLocks::from_bits_retain(self.locks.load(Ordering::Relaxed))
    }

    fn lock(&self, locks: MountLocks) {
        self.locks.fetch_or(locks.bits(), Ordering::Relaxed);
    }

    fn unlock(&self, locks: MountLocks) {
        self.locks.fetch_and(!locks.bits(), Ordering::Relaxed);
    }

    /// Makes it read-only for good.
    pub(crate) fn lock_read_only(&self) {
        self.flags.fetch_or(MountFlags::RDONLY.bits(), Ordering::Relaxed);
        self.lock(MountLocks::READ_ONLY);
    }

    /// EROFS if it, or its file system, is read-only.
    pub fn writable(&self) -> Result<()> {
        if self.flags().contains(MountFlags::RDONLY) || self.sb.flags().contains(MountFlags::RDONLY) {
            Err(Errno::EROFS)
        } else {
            Ok(())
        }
    }

    /// Where it is mounted, for a walk.
    pub(crate) fn at_in<'g>(&'g self, r: &'g Reading) -> Option<&'g Path> {
        self.at.get(r).as_ref()
    }

    /// Where it is mounted.
    pub fn at(&self) -> Option<Path> {
        self.at.load()
    }

    /// The namespace it is in; 0: none.
    pub fn space(&self) -> u64 {
        self.space.load(Ordering::Relaxed)
    }

    /// A file of it is open for writing, or no more.
    pub(in crate::objects::vfs) fn written(&self, more: bool) {
        let _ = if more {
            self.writers.fetch_add(1, Ordering::SeqCst)
        } else {
            self.writers.fetch_sub(1, Ordering::SeqCst)
        };
    }

    /// A walk has come into it.
    #[inline]
    pub(crate) fn entered(&self) {
        let seen = self.expiry.load(Ordering::Relaxed);
        if seen != 0 {
            self.expiry.store(seen - 1, Ordering::Relaxed);
        }
    }
}

/// The mounts of the domain.
pub struct Vfs {
    root: Path,
    initial: Arc<MountNamespace>,
    index: Shielded<Index>,
    tree: Mutex<Tree>,
    /// Most mounts in a namespace (fs.mount-max).
    pub most: AtomicUsize,
    /// Held while a directory changes its place, so that ancestry can be judged.
    pub(crate) rename: Mutex<()>,
    pub(in crate::objects::vfs) cached: AtomicUsize,
}

static VFS: Once<&'static Vfs> = Once::new();

/// Where the first process of a clone finds it.
pub static KEPT: Part<Once<&'static Vfs>> = Part::new();

/// The mounts of the domain.
pub fn vfs() -> &'static Vfs {
    match VFS.get() {
        Some(v) => v,
        None => panic!("file systems used before fs::init"),
    }
}

/// Most mounts in a namespace, unless the domain says otherwise.
const MOUNTS: usize = 100_000;

/// Mounts the root file system; once, at boot. It stands on an empty directory that nobody sees, so that another can take its place
/// (`pivot_root(2)`).
pub(in crate::objects::vfs) fn init(below: Arc<dyn Inode>, root: Arc<dyn Inode>) {
    let on = |inode, kind, flags| {
        let root = Dentry::root(inode);
        let sb = Superblock::of_domain(kind, root.clone());
        Mount::new(root, sb, kind.as_bytes(), flags)
    };
    let bottom = on(below, "rootfs", MountFlags::empty());
    let mount = on(root, "overlay", MountFlags::RELATIME);
    space::CLEAR.set(clear);
    let initial = MountNamespace::first();
    let mut tree = Tree::default();
    let v = Vfs {
        root: Path::new(mount.clone(), mount.root.clone()),
        initial: initial.clone(),
        index: Shielded::default(),
        tree: Mutex::default(),
        most: AtomicUsize::new(MOUNTS),
        rename: Mutex::default(),
        cached: AtomicUsize::new(0),
    };
    let v: &'static Vfs = alloc::boxed::Box::leak(alloc::boxed::Box::new(v));
    assert!(VFS.set(v).is_ok() && KEPT.get().set(v).is_ok(), "root mounted twice");
    let id = bottom.id;
    tree.add(bottom.clone(), 0);
    tree.add(mount.clone(), 0);
    tree.hang(mount.id, id, &bottom.root);
    tree.own(&initial, id);
    tree.show(&[mount.id]);
    *v.tree.lock() = tree;
}

/// See [`space::CLEAR`].
fn clear() {
    let Some(v) = VFS.get() else { return };
    if let Some(mut tree) = v.tree.try_lock() {
        v.clear(&mut tree);
    }
}

/// In a clone: the mounts are in the arena.
pub(in crate::objects::vfs) fn adopt() {
    space::CLEAR.set(clear);
    let kept = KEPT.get().get();
    assert!(kept.is_some_and(|v| VFS.set(v).is_ok()), "no frozen mounts");
}

/// A device number for a new file system without a device.
pub fn new_dev() -> u64 {
    // Behind those given out at boot.
    0x20 + kernel().next_id()
}

impl Vfs {
    /// The root of the first namespace, as it was at boot.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The namespace that processes start in.
    pub fn initial(&self) -> &Arc<MountNamespace> {
        &self.initial
    }

    /// The trees, to be looked at or changed.
    pub(crate) fn tree(&self) -> MutexGuard<'_, Tree> {
        let mut tree = self.tree.lock();
        self.clear(&mut tree);
        tree
    }

    /// Takes away the mounts of namespaces that are gone.
    fn clear(&self, tree: &mut Tree) {
        loop {
            let doomed = core::mem::take(&mut *space::FIRST.doomed.lock());
            if doomed.is_empty() {
                return;
            }
            // What was mounted in one may have been the last to hold another.
            for number in doomed {
                drop(tree.dissolve(number));
            }
        }
    }

    /// All mounts, oldest first.
    pub fn list(&self) -> Vec<Arc<Mount>> {
        self.tree().all()
    }

    /// The file systems that have files in memory here: their topmost names.
    pub(in crate::objects::vfs) fn root_dentries(&self) -> Vec<Arc<Dentry>> {
        let mut roots: Vec<_> = self.tree().all().iter().map(|m| m.sb.root.clone()).collect();
        roots.sort_unstable_by_key(Arc::as_ptr);
        roots.dedup_by(|a, b| Arc::ptr_eq(a, b));
        roots
    }

    /// What is mounted directly on `path`, if anything.
    pub(crate) fn mounted_on(&self, path: &Path) -> Option<Path> {
        let m = self.mounted_in(&shield::read(), path.mount(), path.dentry())?.clone();
        let root = m.root.clone();
        Some(Path::new(m, root))
    }

    /// As [`Self::mounted_on`], for a walk.
    #[inline]
    pub(crate) fn mounted_in<'g>(
        &'g self,
        r: &'g Reading,
        mount: &Arc<Mount>,
        dentry: &Arc<Dentry>,
    ) -> Option<&'g Arc<Mount>> {
        let m = self.index.get(r).find(r, mount, dentry)?;
        m.entered();
        Some(m)
    }
}
