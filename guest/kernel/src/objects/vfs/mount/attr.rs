//! Changing how something is mounted: flags, and how it propagates.
//!
//! Key type: [`Change`].

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{Mount, MountNamespace, Superblock, Vfs};
use crate::objects::lookup::path::Path;
use crate::objects::vfs::flags::{MountFlags, MountLocks};
use crate::{Errno, Result};

/// What is to change of a mount.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// Flags to take away first.
    pub clear: MountFlags,
    /// Flags to give.
    pub set: MountFlags,
    /// Shared, slave, private or unbindable from now on; nothing: as it was.
    pub kind: MountFlags,
    /// All that is mounted below as well.
    pub recursive: bool,
}

impl Change {
    /// Exactly these flags.
    pub fn to(flags: MountFlags) -> Self {
        let (clear, kind) = (MountFlags::KEPT, MountFlags::empty());
        Self { clear, set: flags & MountFlags::KEPT, kind, recursive: false }
    }

    /// How it propagates.
    pub fn kind(kind: MountFlags, recursive: bool) -> Self {
        Self { clear: MountFlags::empty(), set: MountFlags::empty(), kind, recursive }
    }

    fn of(&self, m: &Mount) -> MountFlags {
        (m.flags() - self.clear) | self.set
    }
}

impl Mount {
    /// EPERM if what is locked would change; EBUSY if it would be read-only and files are open for writing.
    pub fn may_become(&self, flags: MountFlags) -> Result<()> {
        let (old, locks) = (self.flags(), self.locks());
        let kept = |lock, flag| !locks.contains(lock) || flags.contains(flag);
        let atime =
            !locks.contains(MountLocks::ATIME) || old & MountFlags::ATIME == flags & MountFlags::ATIME;
        if !(kept(MountLocks::READ_ONLY, MountFlags::RDONLY)
            && kept(MountLocks::NODEV, MountFlags::NODEV)
            && kept(MountLocks::NOSUID, MountFlags::NOSUID)
            && kept(MountLocks::NOEXEC, MountFlags::NOEXEC)
            && atime)
        {
            return Err(Errno::EPERM);
        }
        if flags.contains(MountFlags::RDONLY) && !old.contains(MountFlags::RDONLY) {
            self.unwritten()?;
        }
        Ok(())
    }

    /// EBUSY if files of it are open for writing.
    pub fn unwritten(&self) -> Result<()> {
        if self.writers.load(core::sync::atomic::Ordering::SeqCst) == 0 { Ok(()) } else { Err(Errno::EBUSY) }
    }
}

impl Vfs {
    /// Changes how what is mounted with its root at `at` is mounted: all of it, or nothing.
    ///
    /// # Errors
    /// EINVAL: `at` is no root of a mount that the caller may change; EPERM: it is locked; EBUSY: it is written to.
    pub fn change(&self, space: &MountNamespace, at: &Path, change: Change) -> Result<()> {
        let mut tree = self.tree();
        let m = at.mount();
        let anonymous = tree.namespace(m.space()).is_some_and(|n| n.is_anonymous());
        if !Arc::ptr_eq(&m.root, at.dentry()) || m.space() != space.number && !anonymous {
            return Err(Errno::EINVAL);
        }
        let ids = if change.recursive { tree.subtree(m.id) } else { alloc::vec![m.id] };
        let mounts: Vec<_> = ids.iter().filter_map(|id| tree.mount(*id).ok()).cloned().collect();
        mounts.iter().try_for_each(|m| m.may_become(change.of(m)))?;
        mounts.iter().for_each(|m| m.store_flags(change.of(m)));
        if !change.kind.is_empty() {
            ids.iter().for_each(|id| tree.set_kind(*id, change.kind));
        }
        tree.tell([m.space()]);
        Ok(())
    }

    /// Has the mount at `to` share what the one at `from` shares (MOVE_MOUNT_SET_GROUP): both of one file system, `to` private.
    pub fn set_group(&self, space: &MountNamespace, from: &Path, to: &Path) -> Result<()> {
        let mut tree = self.tree();
        let root = |p: &Path| Arc::ptr_eq(&p.mount().root, p.dentry());
        let known = |tree: &super::tree::Tree, p: &Path| {
            p.mount().space() == space.number
                || tree.namespace(p.mount().space()).is_some_and(|n| n.is_anonymous())
        };
        let (f, t) = (tree.node(from.mount().id)?, tree.node(to.mount().id)?);
        let (group, master) = (f.group, f.master);
        if !root(from)
            || !root(to)
            || !known(&tree, from)
            || !known(&tree, to)
            || !Arc::ptr_eq(&from.mount().sb, &to.mount().sb)
            || !to.dentry().is_in(&from.mount().root)
            || tree.locked_below(from.mount().id, to.dentry())
            || t.group != 0
            || t.master != 0
            || group == 0 && master == 0
        {
            return Err(Errno::EINVAL);
        }
        let id = to.mount().id;
        tree.enslave(id, master);
        tree.join(id, group);
        tree.tell([to.mount().space()]);
        Ok(())
    }

    /// EBUSY if files of a file system are open for writing, by whatever mount.
    pub fn unwritten(&self, sb: &Superblock) -> Result<()> {
        let written = |m: &Mount| core::ptr::eq(&raw const *m.sb, sb) && m.unwritten().is_err();
        if self.tree().shows(written).is_some() { Err(Errno::EBUSY) } else { Ok(()) }
    }
}
