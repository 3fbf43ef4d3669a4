//! Mounting: hanging a tree of mounts on a place.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::propagate::Copies;
use super::tree::Tree;
use super::{Mount, MountNamespace, Vfs};
use crate::objects::lookup::path::Path;
use crate::objects::vfs::dentry::Dentry;
use crate::objects::vfs::flags::{MountFlags, MountLocks};
use crate::objects::vfs::inode::FileType;
use crate::{Errno, Result};

/// Where on a place something is mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    /// On it.
    Top,
    /// Under what is mounted there.
    Beneath,
}

impl Tree {
    /// Hangs the tree `top`, which hangs nowhere, on the name `point` of the mount `on`, and copies of it wherever that propagates.
    /// `new`: it was in no namespace, and counts in that of `on` from now on. What is mounted there already is mounted on the tree then.
    pub(super) fn attach(&mut self, top: u64, on: u64, point: &Arc<Dentry>, new: bool) -> Result<()> {
        let (space, shared) = self.node(on).map(|n| (n.mount.space(), n.group != 0))?;
        let members = self.subtree(top);
        if new {
            self.room(space, members.len())?;
        }
        let mut copies = Copies::default();
        let mut invented = Vec::new();
        if shared {
            invented.extend(members.iter().copied().filter(|id| self.share(*id)));
            // Until it hangs, it gets nothing of what it gives.
            let old: Vec<_> =
                members.iter().filter_map(|id| self.mount(*id).ok()).map(|m| m.space()).collect();
            self.settle(top, 0);
            let done = self.copies(on, point, top, &mut copies);
            for (id, old) in members.iter().zip(old) {
                self.settle_one(*id, old);
            }
            if let Err(e) = done {
                copies.list.iter().for_each(|(top, _)| self.discard(&self.subtree(*top)));
                for id in invented {
                    self.leave(id);
                }
                return Err(e);
            }
        }
        let mut dirty = self.put(top, on, point);
        self.settle(top, space);
        let mut told = alloc::vec![space];
        for (top, on) in copies.list {
            let Ok(other) = self.mount(on).map(|m| m.space()) else { continue };
            dirty.extend(self.put(top, on, point));
            self.settle(top, other);
            if self.receives(space, other) {
                self.lock_tree(top);
            }
            told.push(other);
        }
        self.show(&dirty);
        self.tell(told);
        Ok(())
    }

    /// Whether what comes from one namespace to another is locked there: it has another owner.
    fn receives(&self, from: u64, to: u64) -> bool {
        match (self.namespace(from), self.namespace(to)) {
            (Some(from), Some(to)) => !from.has_owner_of(to),
            _ => false,
        }
    }

    /// Hangs a tree on a name, under what is mounted there; gives all that must be shown.
    fn put(&mut self, top: u64, on: u64, point: &Arc<Dentry>) -> Vec<u64> {
        let above = self.child_at(on, point);
        self.hang(top, on, point);
        let mut dirty = self.subtree(top);
        if let Some(above) = above {
            // On the topmost of what is mounted on the tree's own top.
            let (mut under, mut root) = (top, self.mount(top).map(|m| m.root.clone()));
            while let Ok(point) = &root
                && let Some(next) = self.child_at_unseen(under, point)
            {
                under = next;
                root = self.mount(next).map(|m| m.root.clone());
            }
            if let Ok(root) = root {
                self.unhang(above);
                self.hang(above, under, &root);
                dirty.push(above);
            }
        }
        dirty
    }

    /// As [`Tree::child_at`], of trees that may not be shown yet.
    fn child_at_unseen(&self, parent: u64, point: &Arc<Dentry>) -> Option<u64> {
        let here = |c: &&u64| {
            let point_of = self.node(**c).ok().and_then(|n| n.point.as_ref());
            point_of.is_some_and(|p| Arc::ptr_eq(p, point))
        };
        self.node(parent).ok()?.children.iter().find(here).copied()
    }

    /// Whether a tree may be mounted on the place: ENOENT, ENOTDIR or EINVAL if not.
    pub(super) fn may_hang(&self, root: &Dentry, at: &Path, space: u64) -> Result<()> {
        if at.mount().space() != space {
            return Err(Errno::EINVAL);
        }
        let directory = |d: &Dentry| d.kind() == FileType::Directory;
        if directory(root) != directory(at.dentry()) {
            return Err(Errno::ENOTDIR);
        }
        at.dentry().alive()
    }

    /// Whether something in a tree may not be bound.
    pub(super) fn has_unbindable(&self, top: u64) -> bool {
        self.subtree(top).into_iter().any(|id| self.node(id).is_ok_and(|n| n.unbindable))
    }
}

/// Goes up to what is mounted last on a place.
pub(crate) fn topmost(at: &Path) -> Path {
    let mut at = at.clone();
    while let Some(above) = super::vfs().mounted_on(&at) {
        at = above;
    }
    at
}

impl Vfs {
    /// Mounts a new mount at a place of a namespace.
    pub fn mount_in(&self, space: &MountNamespace, at: &Path, mount: Arc<Mount>) -> Result<()> {
        let mut tree = self.tree();
        let at = topmost(at);
        if at.mount().space() != space.number {
            return Err(Errno::EINVAL);
        }
        let (again, covered) = (&at.mount().sb, &at.mount().root);
        if Arc::ptr_eq(again, &mount.sb) && Arc::ptr_eq(covered, at.dentry()) {
            return Err(Errno::EBUSY);
        }
        tree.may_hang(&mount.root, &at, space.number)?;
        tree.memory()?;
        let id = tree.add(mount, 0);
        let on = at.mount().id;
        tree.attach(id, on, at.dentry(), true).inspect_err(|_| tree.discard(&[id]))
    }

    /// Mounts a file system whose root is `root` on `at`, for the kernel.
    pub fn mount(
        &self,
        at: &Path,
        root: Arc<Dentry>,
        fstype: &'static str,
        source: &[u8],
        flags: MountFlags,
    ) -> Result<()> {
        let sb = super::Superblock::of_domain(fstype, root.clone());
        self.mount_in(self.initial(), at, Mount::new(root, sb, source, flags))
    }

    /// Moves the tree whose root is `from` to `to`, in the caller's namespace; or, if it is a tree that hangs nowhere, mounts it there.
    ///
    /// # Errors
    /// EINVAL and ELOOP as `mount(2)` (MS_MOVE) and `move_mount(2)` have them.
    pub fn move_to(&self, space: &MountNamespace, from: &Path, to: &Path, place: Where) -> Result<()> {
        let mut tree = self.tree();
        let (id, old) = (from.mount().id, from.mount().space());
        let to = if place == Where::Top { topmost(to) } else { to.clone() };
        let directory = |p: &Path| p.dentry().kind() == FileType::Directory;
        let attached = tree.node(id)?.parent != 0;
        let anonymous = tree.namespace(old).is_some_and(|n| n.is_anonymous());
        let ours = if attached { old == space.number } else { anonymous };
        let into = to.mount().space();
        if into != space.number
            || !ours
            || from.mount().locks().contains(MountLocks::IN_PLACE)
            || !Arc::ptr_eq(&from.mount().root, from.dentry())
            || directory(from) != directory(&to)
        {
            return Err(Errno::EINVAL);
        }
        to.dentry().alive()?;
        let parent = tree.node(id)?.parent;
        if attached && tree.node(parent)?.group != 0 {
            return Err(Errno::EINVAL);
        }
        let (on, point) = match place {
            Where::Top => (to.mount().id, to.dentry().clone()),
            Where::Beneath => tree.beneath(id, &to, space)?,
        };
        if tree.node(on)?.group != 0 && tree.has_unbindable(id) {
            return Err(Errno::EINVAL);
        }
        let mut above = on;
        while above != 0 {
            if above == id {
                return Err(Errno::ELOOP);
            }
            above = tree.node(above)?.parent;
        }
        let point_before = tree.node(id)?.point.clone();
        tree.unhang(id);
        let moved = tree.attach(id, on, &point, !attached);
        match (&moved, point_before) {
            (Err(_), Some(point)) => tree.hang(id, parent, &point),
            (Ok(()), _) if !attached => tree.tell([old]),
            _ => {}
        }
        moved
    }
}

impl Tree {
    /// Where something goes that is mounted under the mount whose root is `to`.
    fn beneath(&self, id: u64, to: &Path, space: &MountNamespace) -> Result<(u64, Arc<Dentry>)> {
        let n = self.node(to.mount().id)?;
        let (Some(point), true) = (n.point.clone(), Arc::ptr_eq(&to.mount().root, to.dentry())) else {
            return Err(Errno::EINVAL);
        };
        let on = self.node(n.parent)?;
        let locked = to.mount().locks().contains(MountLocks::IN_PLACE);
        // Not under the root of the namespace, nor where the mount would cover itself.
        let bottom = self.top(space.number);
        if locked || on.parent == 0 && bottom == Some(on.mount.id) || on.mount.space() != space.number {
            return Err(Errno::EINVAL);
        }
        // Nor where both would propagate onto each other.
        let moved = self.node(id)?;
        let covers = |to: &super::tree::Node| {
            on.group != 0
                && Arc::ptr_eq(&to.mount.root, &point)
                && (to.mount.id == n.parent || self.receivers(n.parent).contains(&to.mount.id))
        };
        if covers(n) || covers(moved) {
            return Err(Errno::EINVAL);
        }
        Ok((n.parent, point))
    }

    fn settle_one(&self, id: u64, space: u64) {
        if let Ok(m) = self.mount(id) {
            self.set_space(m, space);
        }
    }
}
