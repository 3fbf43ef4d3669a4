//! `pivot_root(2)`: another mount takes the place of a process' root.

use alloc::sync::Arc;

use super::{MountNamespace, Vfs};
use crate::objects::lookup::path::Path;
use crate::objects::vfs::flags::MountLocks;
use crate::{Errno, Result};

impl Vfs {
    /// Mounts the mount whose root is `new` where `root` is, the root of a process, and that on `old`.
    ///
    /// # Errors
    /// EINVAL, ENOENT and EBUSY, as `pivot_root(2)` has them.
    pub fn pivot(&self, space: &MountNamespace, root: &Path, new: &Path, old: &Path) -> Result<()> {
        let mut tree = self.tree();
        let (root_id, new_id, old_id) = (root.mount().id, new.mount().id, old.mount().id);
        let shared = |id: u64| tree.node(id).is_ok_and(|n| n.group != 0);
        let (below_root, below_new) = (tree.node(root_id)?.parent, tree.node(new_id)?.parent);
        let ours = |p: &Path| p.mount().space() == space.number;
        if shared(old_id)
            || shared(below_new)
            || shared(below_root)
            || !ours(root)
            || !ours(new)
            || new.mount().locks().contains(MountLocks::IN_PLACE)
        {
            return Err(Errno::EINVAL);
        }
        new.dentry().alive()?;
        if new_id == root_id || old_id == root_id {
            return Err(Errno::EBUSY);
        }
        let top = |p: &Path| Arc::ptr_eq(&p.mount().root, p.dentry());
        let reachable = top(root)
            && below_root != 0
            && top(new)
            && below_new != 0
            && tree.reachable(old_id, old.dentry().clone(), (new_id, new.dentry()))
            && tree.reachable(new_id, new.dentry().clone(), (root_id, root.dentry()));
        let place = tree.node(root_id)?.point.clone();
        let (true, Some(place)) = (reachable, place) else { return Err(Errno::EINVAL) };
        tree.unhang(new_id);
        tree.unhang(root_id);
        // Whoever locked the old root in its place meant what is there now.
        if root.mount().locks().contains(MountLocks::IN_PLACE) {
            new.mount().lock(MountLocks::IN_PLACE);
            root.mount().unlock(MountLocks::IN_PLACE);
        }
        tree.hang(root_id, old_id, old.dentry());
        tree.hang(new_id, below_root, &place);
        tree.show(&[root_id, new_id]);
        tree.tell([space.number]);
        Ok(())
    }
}
