//! The mount table.
//!
//! Key types: [`Mount`] (a file system, or part of one, attached somewhere), [`Vfs`] (all of them).
//! The table is shielded; its changes follow each other under `changing`.

pub mod table;

use crate::core::part::Part;
use crate::objects::vfs::flags::MountFlags;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use doppel_machine::shield::{self, Reading, Shielded};
use doppel_machine::sync::{Once, SpinLock};

use crate::core::sched::{Mutex, PollEvents, WaitQueue};
use crate::objects::lookup::path::Path;
use crate::objects::vfs::dentry::{self, Dentry, MOUNTPOINT};
use crate::objects::vfs::inode::{FileType, Inode};
use crate::{Errno, Result, kernel};

/// A mounted file system.
pub struct Mount {
    /// Number shown in mountinfo and statx.
    pub id: u64,
    /// Its topmost directory.
    pub root: Arc<Dentry>,
    /// Where it is mounted; `None` for the root.
    pub at: Option<Path>,
    /// Type: "tmpfs", "proc"…
    pub fstype: &'static str,
    /// First column of /proc/mounts.
    pub source: Vec<u8>,
    flags: AtomicU32,
}

impl Mount {
    /// How it is mounted.
    pub fn flags(&self) -> MountFlags {
        MountFlags::from_bits_retain(self.flags.load(Ordering::Relaxed))
    }

    /// Changes the flags (remount); EPERM if it is read-only for good.
    pub fn set_flags(&self, flags: MountFlags) -> Result<()> {
        let locked = self.flags() & MountFlags::LOCKED;
        if !locked.is_empty() && !flags.contains(MountFlags::RDONLY) {
            return Err(Errno::EPERM);
        }
        self.flags.store((flags & MountFlags::KEPT | locked).bits(), Ordering::Relaxed);
        Ok(())
    }

    /// Makes it read-only for good.
    pub(crate) fn lock_read_only(&self) {
        let locked = MountFlags::RDONLY | MountFlags::LOCKED;
        self.flags.fetch_or(locked.bits(), Ordering::Relaxed);
    }

    /// EROFS if mounted read-only.
    pub fn writable(&self) -> Result<()> {
        if self.flags().contains(MountFlags::RDONLY) { Err(Errno::EROFS) } else { Ok(()) }
    }

    /// Options as /proc/mounts shows them.
    pub fn options(&self) -> alloc::string::String {
        let f = self.flags();
        let mut s = alloc::string::String::from(if f.contains(MountFlags::RDONLY) { "ro" } else { "rw" });
        for (bit, name) in [
            (MountFlags::NOSUID, ",nosuid"),
            (MountFlags::NODEV, ",nodev"),
            (MountFlags::NOEXEC, ",noexec"),
            (MountFlags::NOATIME, ",noatime"),
            (MountFlags::RELATIME, ",relatime"),
        ] {
            if f.contains(bit) {
                s.push_str(name);
            }
        }
        s
    }
}

/// The mounts of the domain.
pub struct Vfs {
    root: Path,
    mounts: Shielded<Vec<Arc<Mount>>>,
    changing: SpinLock<()>,
    /// How often the table has changed, and who waits for the next time.
    pub(in crate::objects::vfs) changes: AtomicU64,
    pub(in crate::objects::vfs) changed: Arc<WaitQueue>,
    /// Held while a directory changes its place, so that ancestry can be judged.
    pub(crate) rename: Mutex<()>,
    pub(in crate::objects::vfs) cached: AtomicUsize,
}

static VFS: Once<&'static Vfs> = Once::new();

/// Where the first process of a clone finds it.
pub static KEPT: Part<Once<&'static Vfs>> = Part::new();

/// The mount table.
pub fn vfs() -> &'static Vfs {
    match VFS.get() {
        Some(v) => v,
        None => panic!("file systems used before fs::init"),
    }
}

/// Mounts the root file system; once, at boot.
pub(in crate::objects::vfs) fn init(root: Arc<dyn Inode>) {
    let mount = Arc::new(Mount {
        id: kernel().next_id(),
        root: Dentry::root(root),
        at: None,
        fstype: "overlay",
        source: b"overlay".to_vec(),
        flags: AtomicU32::new(MountFlags::RELATIME.bits()),
    });
    let root = Path::new(mount.clone(), mount.root.clone());
    let v = Vfs {
        root,
        mounts: Shielded::new(alloc::vec![mount]),
        changing: SpinLock::default(),
        changes: AtomicU64::new(0),
        changed: Arc::default(),
        rename: Mutex::default(),
        cached: AtomicUsize::new(0),
    };
    let v: &'static Vfs = alloc::boxed::Box::leak(alloc::boxed::Box::new(v));
    assert!(VFS.set(v).is_ok() && KEPT.get().set(v).is_ok(), "root mounted twice");
}

/// In a clone: the mount table is in the arena.
pub(in crate::objects::vfs) fn adopt() {
    let kept = KEPT.get().get();
    assert!(kept.is_some_and(|v| VFS.set(v).is_ok()), "no frozen mount table");
}

/// A device number for a new file system without a device.
pub fn new_dev() -> u64 {
    // Behind those given out at boot.
    0x20 + kernel().next_id()
}

impl Vfs {
    /// The root of everything.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The table has changed.
    fn tell(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        self.changed.wake_all(PollEvents::PRI | PollEvents::ERR);
    }

    /// All mounts, oldest first (for /proc/mounts).
    pub fn list(&self) -> Vec<Arc<Mount>> {
        self.mounts.load()
    }

    pub(in crate::objects::vfs) fn root_dentries(&self) -> Vec<Arc<Dentry>> {
        self.mounts.load().iter().map(|m| m.root.clone()).collect()
    }

    /// Mounts a file system whose root is `root` on `at`.
    pub fn mount(
        &self,
        at: &Path,
        root: Arc<Dentry>,
        fstype: &'static str,
        source: &[u8],
        flags: MountFlags,
    ) -> Result<()> {
        if (root.kind() == FileType::Directory) != (at.dentry().kind() == FileType::Directory) {
            return Err(Errno::ENOTDIR);
        }
        at.dentry().alive()?;
        let m = Arc::new(Mount {
            id: kernel().next_id(),
            root,
            at: Some(at.clone()),
            fstype,
            source: source.to_vec(),
            flags: AtomicU32::new((flags & (MountFlags::KEPT | MountFlags::LOCKED)).bits()),
        });
        let _one_at_a_time = self.changing.lock();
        let mut mounts = self.list();
        mounts.push(m);
        at.dentry().set(MOUNTPOINT, true);
        self.mounts.set(mounts);
        self.tell();
        Ok(())
    }

    /// Undoes the mount whose root is `at`, the caller's only [`Path`] of it: EINVAL if it is none. EBUSY if files
    /// of it are in use or others are mounted in it; if `lazy` these stay as they are, and the others go with it.
    pub fn umount(&self, at: &Path, lazy: bool) -> Result<()> {
        let _one_at_a_time = self.changing.lock();
        // No walk is under way under this guard, so the counts below are those of places that somebody keeps.
        let mut w = shield::write();
        let mounts = self.mounts.get_mut(&mut w);
        let m = at.mount();
        if m.at.is_none() || !Arc::ptr_eq(&m.root, at.dentry()) {
            return Err(Errno::EINVAL);
        }
        // The table's reference and the caller's; every place in the mount that somebody holds has one more.
        const OURS: usize = 2;
        if !lazy && Arc::strong_count(m) > OURS {
            return Err(Errno::EBUSY);
        }
        let mut gone = alloc::vec![m.clone()];
        let mut next = 0;
        while let Some(above) = gone.get(next).cloned() {
            let on = |o: &&Arc<Mount>| o.at.as_ref().is_some_and(|p| Arc::ptr_eq(p.mount(), &above));
            gone.extend(mounts.iter().filter(on).cloned());
            next += 1;
        }
        mounts.retain(|o| !gone.iter().any(|g| Arc::ptr_eq(o, g)));
        let points = gone.iter().filter_map(|g| g.at.as_ref());
        for d in points.map(Path::dentry) {
            if !mounts.iter().any(|o| o.at.as_ref().is_some_and(|p| Arc::ptr_eq(p.dentry(), d))) {
                d.set(MOUNTPOINT, false);
            }
        }
        drop(w);
        let roots: Vec<_> = gone.iter().map(|m| m.root.clone()).collect();
        drop(gone);
        // A cached name and its directory hold each other: nobody else would find them any more.
        dentry::drop_cached(&roots);
        self.tell();
        Ok(())
    }

    /// What is mounted directly on `path`, if anything.
    pub(crate) fn mounted_on(&self, path: &Path) -> Option<Path> {
        let m = self.mounted_in(&shield::read(), path.mount(), path.dentry())?.clone();
        let root = m.root.clone();
        Some(Path::new(m, root))
    }

    /// As [`Self::mounted_on`], for a walk.
    pub(crate) fn mounted_in<'g>(
        &'g self,
        r: &'g Reading,
        mount: &Arc<Mount>,
        dentry: &Arc<Dentry>,
    ) -> Option<&'g Arc<Mount>> {
        let here = |p: &Path| Arc::ptr_eq(p.dentry(), dentry) && Arc::ptr_eq(p.mount(), mount);
        self.mounts.get(r).iter().rev().find(|m| m.at.as_ref().is_some_and(here))
    }
}
