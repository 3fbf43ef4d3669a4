//! Unmounting.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use doppel_machine::shield;

use super::tree::Tree;
use super::{Mount, MountNamespace, Vfs, vfs};
use crate::objects::lookup::path::Path;
use crate::objects::vfs::dentry::Dentry;
use crate::objects::vfs::flags::MountLocks;
use crate::{Errno, Result};

/// How a mount goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmount {
    /// If nobody uses it.
    Idle,
    /// At once, with all that is mounted on it: who uses it keeps that.
    Lazy,
    /// If nobody has used it since this was asked last.
    Expired,
}

impl Tree {
    /// Takes a tree of mounts away, and what it was propagated to. Gives the mounts, to be dropped without the lock.
    pub(super) fn take_away(&mut self, top: u64, propagate: bool) -> Vec<Arc<Mount>> {
        let gone = self.subtree(top);
        let mut set: BTreeSet<u64> = gone.iter().copied().collect();
        let mut moved = Vec::new();
        if propagate {
            let found = self.propagated(&gone);
            self.settle_candidates(found, &mut set, &mut moved);
        }
        let mut spaces = Vec::new();
        let mut mounts = Vec::new();
        for (topper, mut on, mut point) in moved {
            // Where it would land may go as well.
            while set.contains(&on)
                && let Ok(n) = self.node(on)
                && let Some(lower) = n.point.clone()
            {
                (on, point) = (n.parent, lower);
            }
            self.unhang(topper);
            self.hang(topper, on, &point);
            mounts.extend(self.mount(topper).cloned());
        }
        for id in &set {
            spaces.extend(self.mount(*id).map(|m| m.space()));
            mounts.extend(self.remove(*id));
        }
        // Children that went away from a mount that stays, or the other way round, are hung nowhere now.
        self.show_all(mounts.clone());
        self.tell(spaces);
        mounts
    }

    /// The mounts that came from those by propagation.
    fn propagated(&self, gone: &[u64]) -> Vec<u64> {
        let mut found = Vec::new();
        // What is mounted on others comes first: those can go only after it.
        for id in gone.iter().rev() {
            let Ok(n) = self.node(*id) else { continue };
            let Some(point) = n.point.clone() else { continue };
            let receivers = self.receivers(n.parent);
            found.extend(receivers.into_iter().filter_map(|r| self.child_at(r, &point)));
        }
        found
    }

    /// Adds those candidates to `gone` on which nothing is left mounted; what is mounted right on the root of one moves down.
    fn settle_candidates(
        &self,
        mut found: Vec<u64>,
        gone: &mut BTreeSet<u64>,
        moved: &mut Vec<(u64, u64, Arc<Dentry>)>,
    ) {
        loop {
            let before = gone.len();
            found.retain(|id| {
                let Ok(n) = self.node(*id) else { return false };
                if gone.contains(id) {
                    return false;
                }
                if n.mount.locks().contains(MountLocks::IN_PLACE) && !gone.contains(&n.parent) {
                    return true;
                }
                let left: Vec<u64> = n.children.iter().copied().filter(|c| !gone.contains(c)).collect();
                match (left.as_slice(), n.point.clone()) {
                    ([], _) => {}
                    ([only], Some(point)) if self.topper(*id) == Some(*only) => {
                        // Where it lands goes on down if that goes too.
                        moved.push((*only, n.parent, point));
                    }
                    _ => return true,
                }
                gone.insert(*id);
                false
            });
            if gone.len() == before {
                return;
            }
        }
    }
}

impl Vfs {
    /// Undoes the mount whose root is `at`, the caller's only [`Path`] of it. `space` is the caller's namespace.
    ///
    /// # Errors
    /// EINVAL: it is none, or stays in place; EBUSY: it is in use; EAGAIN: it is marked to expire from now on.
    pub fn umount(&self, space: &MountNamespace, at: &Path, how: Unmount) -> Result<()> {
        let mut tree = self.tree();
        let m = at.mount();
        if !Arc::ptr_eq(&m.root, at.dentry())
            || m.space() != space.number
            || m.locks().contains(MountLocks::IN_PLACE)
        {
            return Err(Errno::EINVAL);
        }
        if tree.node(m.id)?.parent == 0 {
            // The bottom of a namespace stays.
            return Err(if how == Unmount::Lazy { Errno::EINVAL } else { Errno::EBUSY });
        }
        match how {
            Unmount::Expired if tree.in_use(m.id, 1) => return Err(Errno::EBUSY),
            Unmount::Expired if m.expiry.swap(2, Ordering::Relaxed) != 1 => return Err(Errno::EAGAIN),
            Unmount::Lazy => {}
            _ if tree.busy(m.id) => return Err(Errno::EBUSY),
            _ => {}
        }
        let gone = tree.take_away(m.id, true);
        drop(tree);
        drop(gone);
        Ok(())
    }

    /// Whether something is mounted on a name in the namespace of a place.
    pub(crate) fn mounted_here(&self, place: &Path, point: &Arc<Dentry>) -> bool {
        let tree = self.tree();
        let space = place.mount().space();
        tree.on_name(point).iter().any(|id| tree.mount(*id).is_ok_and(|m| m.space() == space))
    }

    /// Undoes whatever other namespaces have mounted on a name that goes: EBUSY if the caller's has something there.
    pub(crate) fn leave_name(&self, space: u64, point: &Arc<Dentry>) -> Result<()> {
        let mut tree = self.tree();
        let here = tree.on_name(point);
        if here.iter().any(|id| tree.mount(*id).is_ok_and(|m| m.space() == space)) {
            return Err(Errno::EBUSY);
        }
        let mut gone = Vec::new();
        for id in here {
            if tree.node(id).is_ok() {
                gone.extend(tree.take_away(id, false));
            }
        }
        drop(tree);
        drop(gone);
        Ok(())
    }
}

impl Tree {
    /// All that is mounted on a name, whatever the mount.
    fn on_name(&self, point: &Arc<Dentry>) -> Vec<u64> {
        let on = |m: &Arc<Mount>| self.node(m.id).ok().and_then(|n| n.point.clone());
        let here = |m: &Arc<Mount>| on(m).is_some_and(|p| Arc::ptr_eq(&p, point));
        self.all().iter().filter(|m| here(m)).map(|m| m.id).collect()
    }
}

/// References to a mount that nobody uses: of the tree, and of the index if it hangs somewhere.
const OWN: usize = 2;

impl Tree {
    /// Whether somebody has a place in a mount, but for `known` ones. What is mounted on it counts as such a place.
    pub(super) fn in_use(&self, id: u64, known: usize) -> bool {
        // No walk is under way under this guard, so these are places that somebody keeps.
        let _w = shield::write();
        let Ok(m) = self.mount(id) else { return false };
        let boot = usize::from(Arc::ptr_eq(vfs().root().mount(), m));
        Arc::strong_count(m) > OWN + known + boot
    }

    /// Whether a mount, of which the caller has one place, or one that would go with it is in use.
    pub(super) fn busy(&self, id: u64) -> bool {
        let Ok(n) = self.node(id) else { return true };
        if !n.children.is_empty() || self.in_use(id, 1) {
            return true;
        }
        let (parent, Some(point)) = (n.parent, n.point.clone()) else { return false };
        self.receivers(parent).into_iter().filter_map(|r| self.child_at(r, &point)).any(|child| {
            if child == id {
                return false;
            }
            match self.node(child).map_or(0, |n| n.children.len()) {
                0 => self.in_use(child, 0),
                1 if self.topper(child).is_some() => self.in_use(child, 1),
                _ => false,
            }
        })
    }

    /// What is mounted on the root of a mount, if that is all that is mounted on it.
    pub(super) fn topper(&self, id: u64) -> Option<u64> {
        let n = self.node(id).ok()?;
        let only = n.children.first().filter(|_| n.children.len() == 1)?;
        let point = self.node(*only).ok()?.point.clone()?;
        Arc::ptr_eq(&point, &n.mount.root).then_some(*only)
    }
}
