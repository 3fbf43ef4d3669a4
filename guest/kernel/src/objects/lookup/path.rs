//! Paths: resolved places, and where a process stands.
//!
//! Key types: [`Path`] (a mount and a cached name in it), [`FsContext`] (root, working directory, umask).
//! How names are resolved is in walk.rs.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use doppel_machine::shield::{self, Reading, Shielded};

use super::opener::opener;
use super::walk::Walker;
use crate::Result;
use crate::objects::vfs::dentry::Dentry;
use crate::objects::vfs::inode::Inode;
use crate::objects::vfs::mount::{Mount, vfs};

/// A resolved place: an inode together with how it was reached, so that `..`, getcwd and /proc/PID/fd work.
#[derive(Clone)]
pub struct Path {
    mount: Arc<Mount>,
    dentry: Arc<Dentry>,
}

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
        let mut at = self.clone();
        while Arc::ptr_eq(&at.dentry, &at.mount.root) {
            at = at.mount.at.clone()?;
        }
        let parent = at.dentry.parent()?;
        Some(Self { mount: at.mount, dentry: parent })
    }

    /// Whether the name, or a directory above it, is gone.
    pub fn deleted(&self) -> bool {
        self.dentry.unlinked()
    }

    /// The absolute name as seen from `root`, without a mark for deleted files; `None` if it does not lie
    /// below `root`.
    pub fn name_from(&self, root: &Self) -> Option<Vec<u8>> {
        let mut parts: Vec<Vec<u8>> = Vec::new();
        let mut at = self.clone();
        while !at.same(root) {
            if Arc::ptr_eq(&at.dentry, &at.mount.root) {
                at = at.mount.at.clone()?;
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
        let root = opener().fs().root();
        let mut n = self.name_from(&root).or_else(|| self.name_from(vfs().root())).unwrap_or_else(|| {
            let mut n = b"/".to_vec();
            n.extend_from_slice(&self.dentry.name());
            n
        });
        if self.deleted() {
            n.extend_from_slice(b" (deleted)");
        }
        n
    }
}

struct Places {
    root: Path,
    cwd: Path,
}

/// Root, working directory and umask of a process.
pub struct FsContext {
    places: Shielded<Places>,
    umask: AtomicU32,
}

impl Default for FsContext {
    /// At the root of the domain, umask 022.
    fn default() -> Self {
        let root = vfs().root().clone();
        Self { places: Shielded::new(Places { cwd: root.clone(), root }), umask: AtomicU32::new(0o022) }
    }
}

impl FsContext {
    /// A copy for a new process.
    #[must_use]
    pub fn fork(&self) -> Self {
        let r = shield::read();
        let p = self.places.get(&r);
        Self {
            places: Shielded::new(Places { root: p.root.clone(), cwd: p.cwd.clone() }),
            umask: AtomicU32::new(self.umask()),
        }
    }

    /// The root directory.
    pub fn root(&self) -> Path {
        self.places.get(&shield::read()).root.clone()
    }

    /// The working directory.
    pub fn cwd(&self) -> Path {
        self.places.get(&shield::read()).cwd.clone()
    }

    /// Root and working directory, for a walk.
    pub(crate) fn places_in<'g>(&'g self, r: &'g Reading) -> (&'g Path, &'g Path) {
        let p = self.places.get(r);
        (&p.root, &p.cwd)
    }

    /// Changes the working directory; the caller checked it.
    pub fn set_cwd(&self, p: Path) {
        let old = core::mem::replace(&mut self.places.get_mut(&mut shield::write()).cwd, p);
        drop(old);
    }

    /// Changes the root directory; the caller checked it.
    pub fn set_root(&self, p: Path) {
        let old = core::mem::replace(&mut self.places.get_mut(&mut shield::write()).root, p);
        drop(old);
    }

    /// The file mode creation mask.
    pub fn umask(&self) -> u32 {
        self.umask.load(Ordering::Relaxed)
    }

    /// Sets the mask; returns the old one.
    pub fn set_umask(&self, mask: u32) -> u32 {
        self.umask.swap(mask & 0o777, Ordering::Relaxed)
    }
}

/// Finds `name` from the current process' root or working directory, following symbolic links.
pub fn resolve(name: &[u8]) -> Result<Path> {
    let t = opener();
    let fs = t.fs();
    Walker::new(&fs, t.cred()).resolve(&fs.cwd(), name, true)
}
