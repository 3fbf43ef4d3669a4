//! Paths: resolved places.
//!
//! Key type: [`Path`] (a mount and a cached name in it). How names are resolved is in walk.rs.

use alloc::sync::Arc;
use alloc::vec::Vec;

use doppel_machine::shield;

use crate::core::hook::Hook;
use crate::objects::vfs::dentry::Dentry;
use crate::objects::vfs::inode::Inode;
use crate::objects::vfs::mount::Mount;

/// A resolved place: an inode together with how it was reached, so that `..`, getcwd and /proc/PID/fd work.
#[derive(Clone)]
pub struct Path {
    mount: Arc<Mount>,
    dentry: Arc<Dentry>,
}

/// The root directory of the current process; set by the layer of processes.
pub static ROOT: Hook<fn() -> Path> = Hook::new();

impl Path {
    pub(crate) fn new(mount: Arc<Mount>, dentry: Arc<Dentry>) -> Self {
        Self { mount, dentry }
    }

    /// Moves to a name of the same mount.
    pub(crate) fn descend(&mut self, to: Arc<Dentry>) {
        self.dentry = to;
    }

    /// The inode.
    pub fn inode(&self) -> &Arc<dyn Inode> {
        self.dentry.inode()
    }

    /// The name in the directory cache.
    pub fn dentry(&self) -> &Arc<Dentry> {
        &self.dentry
    }

    /// The mount it is reached through.
    pub fn mount(&self) -> &Arc<Mount> {
        &self.mount
    }

    /// Whether both are the same place.
    pub fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.dentry, &other.dentry) && Arc::ptr_eq(&self.mount, &other.mount)
    }

    /// The directory above, through mount points; `None` at the root of everything.
    pub fn parent(&self) -> Option<Self> {
        let r = shield::read();
        let mut at = self;
        while Arc::ptr_eq(&at.dentry, &at.mount.root) {
            at = at.mount.at_in(&r)?;
        }
        let dentry = at.dentry.parent_in(&r)?.clone();
        Some(Self { mount: at.mount.clone(), dentry })
    }

    /// Whether the name, or a directory above it, is gone.
    pub fn deleted(&self) -> bool {
        self.dentry.unlinked()
    }

    /// The absolute name as seen from `root`, without a mark for deleted files; `None` if it does not lie
    /// below `root`.
    pub fn name_from(&self, root: &Self) -> Option<Vec<u8>> {
        self.name_up_to(Some(root))
    }

    /// The name from the top of the mounts that it lies in.
    pub fn name_from_top(&self) -> Vec<u8> {
        self.name_up_to(None).unwrap_or_default()
    }

    fn name_up_to(&self, root: Option<&Self>) -> Option<Vec<u8>> {
        let mut parts: Vec<Vec<u8>> = Vec::new();
        let mut at = self.clone();
        while !root.is_some_and(|root| at.same(root)) {
            if Arc::ptr_eq(&at.dentry, &at.mount.root) {
                match (at.mount.at(), root) {
                    (Some(p), _) => at = p,
                    (None, None) => break,
                    (None, Some(_)) => return None,
                }
                continue;
            }
            parts.push(at.dentry.name());
            let parent = at.dentry.parent()?;
            at = Self { mount: at.mount, dentry: parent };
        }
        let mut out = Vec::new();
        for p in parts.iter().rev() {
            out.push(b'/');
            out.extend_from_slice(p);
        }
        if out.is_empty() {
            out.push(b'/');
        }
        Some(out)
    }

    /// The absolute name as the current process sees it, with " (deleted)" if unlinked.
    pub fn name(&self) -> Vec<u8> {
        let root = (ROOT.get())();
        let mut n = self.name_from(&root).unwrap_or_else(|| self.name_from_top());
        if self.deleted() {
            n.extend_from_slice(b" (deleted)");
        }
        n
    }
}
