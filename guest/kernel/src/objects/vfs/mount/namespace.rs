//! What is done with mount namespaces (`mount_namespaces(7)`): copying one, entering it, its end.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::copy::How;
use super::space::Space;
use super::tree::Tree;
use super::{Mount, MountNamespace, vfs};
use crate::core::namespace::{Base, Kind, UserNamespace};
use crate::objects::lookup::context::FsContext;
use crate::objects::lookup::path::Path;
use crate::{Errno, Result};

impl MountNamespace {
    /// A copy for the user namespace `owner`. `fs` stands at the same places of the copy then.
    ///
    /// # Errors
    /// ENOSPC, ENOMEM.
    pub fn copy(&self, owner: &Arc<UserNamespace>, fs: &FsContext) -> Result<Arc<Self>> {
        let new = Self::make(Some(Base::new(Kind::Mount, owner)?), owner.clone());
        let mut tree = vfs().tree();
        let top = tree.top(self.number).ok_or(Errno::EINVAL)?;
        tree.room(self.number, 0)?;
        let root = tree.mount(top)?.root.clone();
        let less = !Arc::ptr_eq(owner, Space::owner(self));
        let how = if less { How::Received } else { How::Peer };
        let copied = tree.copy_tree(top, &root, how, true)?;
        if less {
            tree.lock_tree(copied.top);
        }
        tree.own(&new, copied.top);
        tree.show(&copied.ids());
        let moved = |p: Path| {
            let to = copied.of.get(&p.mount().id).and_then(|id| tree.mount(*id).ok());
            to.map(|m| Path::new(m.clone(), p.dentry().clone()))
        };
        let (root, cwd) = (moved(fs.root()), moved(fs.cwd()));
        drop(tree);
        root.into_iter().for_each(|p| fs.set_root(p));
        cwd.into_iter().for_each(|p| fs.set_cwd(p));
        Ok(new)
    }

    /// Where a process stands that enters it (`setns(2)`): its topmost root.
    pub fn entrance(&self) -> Option<Path> {
        let mount = {
            let tree = vfs().tree();
            tree.mount(tree.top(self.number)?).ok()?.clone()
        };
        let root = mount.root.clone();
        Some(super::attach::topmost(&Path::new(mount, root)))
    }

    /// A namespace that no process is in, with one new mount: its root.
    pub fn with(mount: Arc<Mount>, of: &Self) -> Result<(Arc<Self>, Path)> {
        let new = Self::anonymous(of);
        let mut tree = vfs().tree();
        tree.memory()?;
        let root = mount.root.clone();
        let id = tree.add(mount.clone(), 0);
        tree.own(&new, id);
        tree.show(&[id]);
        Ok((new, Path::new(mount, root)))
    }
}

impl Tree {
    /// What was mounted in a namespace that is gone is mounted no more, unless it was moved elsewhere.
    pub(super) fn dissolve(&mut self, number: u64) -> Vec<Arc<Mount>> {
        let top = self.top(number).filter(|top| self.mount(*top).is_ok_and(|m| m.space() == number));
        let gone = top.map(|top| self.take_away(top, false)).unwrap_or_default();
        self.disown(number);
        gone
    }
}
