//! Copies of mounts and of trees of them.
//!
//! Key type: [`How`] (what a copy has to do with its original).

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::tree::Tree;
use crate::objects::vfs::dentry::Dentry;
use crate::objects::vfs::flags::MountLocks;
use crate::{Errno, Result};

/// What a copy has to do with its original.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// A peer of it, if that is shared, and a slave of the same master.
    Peer,
    /// A slave of it, if that is shared.
    Slave,
    /// A slave of it, and the first of a new group.
    SharedSlave,
    /// A slave of it if that is shared, else as [`How::Peer`]: for a namespace with fewer rights.
    Received,
}

/// A copy of a tree: its top, and the copy of each mount.
pub(crate) struct Copied {
    pub top: u64,
    pub of: BTreeMap<u64, u64>,
}

impl Copied {
    pub(super) fn ids(&self) -> Vec<u64> {
        self.of.values().copied().collect()
    }
}

impl Tree {
    /// Copies one mount, with `root` on top; the copy hangs nowhere.
    pub(super) fn copy_one(&mut self, id: u64, root: &Arc<Dentry>, how: How) -> Result<u64> {
        self.memory()?;
        let n = self.node(id)?;
        let (group, master, unbindable) = (n.group, n.master, n.unbindable);
        let mut new = n.mount.again(root.clone());
        // Whether it stays in place is said of each place anew.
        *new.locks.get_mut() &= !MountLocks::IN_PLACE.bits();
        let slave = match how {
            How::Slave | How::SharedSlave => true,
            How::Received => group != 0,
            How::Peer => false,
        };
        let from = if slave && group != 0 { group } else { master };
        let new = self.add(Arc::new(new), from);
        if let Some(n) = self.node_mut(new) {
            n.unbindable = unbindable && !slave;
        }
        match how {
            How::Peer => self.join(new, group),
            How::Received if group == 0 => {}
            How::SharedSlave => {
                self.share(new);
            }
            How::Slave | How::Received => {}
        }
        Ok(new)
    }

    /// Copies a mount from `root` on and what is mounted below that; without what may not be bound, unless `all`. The copy hangs
    /// nowhere. EPERM if something that may not be bound would be left out, and stays in place.
    pub(super) fn copy_tree(&mut self, id: u64, root: &Arc<Dentry>, how: How, all: bool) -> Result<Copied> {
        let mut copied = Copied { top: 0, of: BTreeMap::new() };
        let done = self.copy_into(&mut copied, id, root, how, all);
        if let Err(e) = done {
            self.discard(&copied.ids());
            return Err(e);
        }
        Ok(copied)
    }

    fn copy_into(
        &mut self,
        copied: &mut Copied,
        id: u64,
        root: &Arc<Dentry>,
        how: How,
        all: bool,
    ) -> Result<()> {
        copied.top = self.copy_one(id, root, how)?;
        copied.of.insert(id, copied.top);
        let mut next = alloc::vec![id];
        while let Some(from) = next.pop() {
            let Some(to) = copied.of.get(&from).copied() else { continue };
            for child in self.node(from)?.children.clone() {
                let n = self.node(child)?;
                let Some(point) = n.point.clone() else { continue };
                if copied.of.contains_key(&child) || from == id && !point.is_in(root) {
                    continue;
                }
                let locked = n.mount.locks().contains(MountLocks::IN_PLACE);
                if n.unbindable && !all {
                    if locked {
                        return Err(Errno::EPERM);
                    }
                    continue;
                }
                let top = n.mount.root.clone();
                let new = self.copy_one(child, &top, how)?;
                copied.of.insert(child, new);
                if locked {
                    self.mount(new)?.lock(MountLocks::IN_PLACE);
                }
                self.hang(new, to, &point);
                next.push(child);
            }
        }
        Ok(())
    }

    /// Whether something below `root` of a mount stays in place, so that it may not be left out.
    pub(super) fn locked_below(&self, id: u64, root: &Arc<Dentry>) -> bool {
        let Ok(n) = self.node(id) else { return false };
        n.children.iter().filter_map(|c| self.node(*c).ok()).any(|c| {
            c.mount.locks().contains(MountLocks::IN_PLACE) && c.point.as_ref().is_some_and(|p| p.is_in(root))
        })
    }

    /// Undoes mounts that nobody has seen.
    pub(super) fn discard(&mut self, ids: &[u64]) {
        for id in ids.iter().rev() {
            self.remove(*id);
        }
    }

    /// What came from somebody with more rights stays as it is: all but the topmost also where it is.
    pub(super) fn lock_tree(&self, top: u64) {
        use crate::objects::vfs::flags::MountFlags;
        for id in self.subtree(top) {
            let Ok(m) = self.mount(id) else { continue };
            let flags = m.flags();
            let mut locks = MountLocks::ATIME;
            locks.set(MountLocks::READ_ONLY, flags.contains(MountFlags::RDONLY));
            locks.set(MountLocks::NODEV, flags.contains(MountFlags::NODEV));
            locks.set(MountLocks::NOSUID, flags.contains(MountFlags::NOSUID));
            locks.set(MountLocks::NOEXEC, flags.contains(MountFlags::NOEXEC));
            locks.set(MountLocks::IN_PLACE, id != top);
            m.lock(locks);
        }
    }
}
