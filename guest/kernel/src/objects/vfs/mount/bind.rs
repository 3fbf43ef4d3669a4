//! Binding: mounting a part of what is mounted once more.

use alloc::sync::Arc;

use super::attach::topmost;
use super::copy::How;
use super::{MountNamespace, Vfs};
use crate::objects::filesystems::nsfs;
use crate::objects::lookup::path::Path;
use crate::objects::vfs::flags::MountLocks;
use crate::{Errno, Result};

impl Vfs {
    /// Mounts what is at `from` also at `to`; with what is mounted below it if `recursive`.
    pub fn bind(&self, space: &MountNamespace, from: &Path, to: &Path, recursive: bool) -> Result<()> {
        if let Some(file) = from.inode().reopen() {
            return self.mount_in(space, to, nsfs::mount(space, &file)?);
        }
        let mut tree = self.tree();
        let to = topmost(to);
        let top = tree.take_copy(space, from, recursive)?;
        let (on, point) = (to.mount().id, to.dentry());
        let done =
            tree.may_hang(from.dentry(), &to, space.number).and_then(|()| tree.attach(top, on, point, true));
        done.inspect_err(|_| {
            let all = tree.subtree(top);
            tree.discard(&all);
        })
    }

    /// Copies what is at `from` into a namespace that no process is in.
    pub fn detached_copy(
        &self,
        space: &MountNamespace,
        from: &Path,
        recursive: bool,
    ) -> Result<(Arc<MountNamespace>, Path)> {
        // Made before the lock is taken: if it goes, it needs that.
        let new = MountNamespace::anonymous(space);
        let mut tree = self.tree();
        let top = tree.take_copy(space, from, recursive)?;
        tree.own(&new, top);
        let all = tree.subtree(top);
        tree.show(&all);
        let mount = tree.mount(top)?.clone();
        let root = mount.root.clone();
        Ok((new, Path::new(mount, root)))
    }
}

impl super::tree::Tree {
    /// The copy that a bind hangs somewhere.
    fn take_copy(&mut self, space: &MountNamespace, from: &Path, recursive: bool) -> Result<u64> {
        let (mount, root) = (from.mount(), from.dentry());
        let n = self.node(mount.id)?;
        let anonymous = self.namespace(mount.space()).is_some_and(|n| n.is_anonymous());
        if n.unbindable
            || mount.space() != space.number && !anonymous
            || !recursive && self.locked_below(mount.id, root)
        {
            return Err(Errno::EINVAL);
        }
        self.room(space.number, 1)?;
        let top = if recursive {
            self.copy_tree(mount.id, root, How::Peer, false)?.top
        } else {
            self.copy_one(mount.id, root, How::Peer)?
        };
        self.mount(top)?.unlock(MountLocks::IN_PLACE);
        Ok(top)
    }
}
