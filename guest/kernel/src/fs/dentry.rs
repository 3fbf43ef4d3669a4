//! The directory cache: names that were looked up, as a tree of [`Dentry`]s over the inodes.
//!
//! A directory's children are held strongly, and each child holds its parent, so a cached name stays until
//! it is unlinked or [`prune`] drops it. Names change only under the parent's `children` lock, which is also
//! held over the inode operation that makes the change, so cache and file system never disagree.
//! Lock order: rename lock → children (of two directories: by address) → link → inode.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use doppel_machine::sync::RwSpin;

use super::inode::{FileType, Inode};
use crate::{Errno, Result};

/// The name is gone (unlinked, or its directory was).
pub(super) const UNLINKED: u32 = 1;
/// Something is mounted here.
pub(super) const MOUNTPOINT: u32 = 2;
/// Looked up since the last [`prune`].
const USED: u32 = 4;

/// Children of a directory by name.
pub(super) type Children = BTreeMap<Box<[u8]>, Arc<Dentry>>;

struct Link {
    parent: Option<Arc<Dentry>>,
    name: Box<[u8]>,
}

/// A name in a directory, with the inode it stands for.
pub struct Dentry {
    inode: Arc<dyn Inode>,
    kind: FileType,
    cacheable: bool,
    flags: AtomicU32,
    link: RwSpin<Link>,
    pub(super) children: RwSpin<Children>,
}

/// Number of dentries the cache holds.
fn cached() -> &'static AtomicUsize {
    &super::mount::vfs().cached
}

impl Dentry {
    /// The root of a file system.
    pub fn root(inode: Arc<dyn Inode>) -> Arc<Self> {
        Self::make(inode, None, Box::default())
    }

    pub(super) fn make(inode: Arc<dyn Inode>, parent: Option<Arc<Self>>, name: Box<[u8]>) -> Arc<Self> {
        let kind = inode.kind();
        let cacheable = inode.cacheable();
        Arc::new(Self {
            inode,
            kind,
            cacheable,
            flags: AtomicU32::new(USED),
            link: RwSpin::new(Link { parent, name }),
            children: RwSpin::default(),
        })
    }

    /// The inode.
    pub fn inode(&self) -> &Arc<dyn Inode> {
        &self.inode
    }

    /// The kind of file.
    pub fn kind(&self) -> FileType {
        self.kind
    }

    /// The directory it is in; `None` for the root of a file system.
    pub fn parent(&self) -> Option<Arc<Self>> {
        self.link.read().parent.clone()
    }

    /// Its name in that directory.
    pub fn name(&self) -> Vec<u8> {
        self.link.read().name.to_vec()
    }

    pub(super) fn has(&self, flag: u32) -> bool {
        self.flags.load(Ordering::Acquire) & flag != 0
    }

    pub(super) fn set(&self, flag: u32, on: bool) {
        if on {
            self.flags.fetch_or(flag, Ordering::AcqRel);
        } else {
            self.flags.fetch_and(!flag, Ordering::AcqRel);
        }
    }

    /// Whether the name is gone.
    pub fn unlinked(&self) -> bool {
        self.has(UNLINKED)
    }

    /// Gives it a new place (rename). The caller holds both directories' `children`.
    pub(super) fn moved(&self, parent: Arc<Self>, name: Box<[u8]>) {
        let old = core::mem::replace(&mut *self.link.write(), Link { parent: Some(parent), name });
        drop(old);
    }

    /// The child called `name`.
    pub fn child(self: &Arc<Self>, name: &[u8]) -> Result<Arc<Self>> {
        if let Some(c) = self.children.read().get(name) {
            if c.flags.load(Ordering::Relaxed) & USED == 0 {
                c.flags.fetch_or(USED, Ordering::Relaxed);
            }
            return Ok(c.clone());
        }
        if !self.cacheable {
            return Ok(Self::make(self.inode.lookup(name)?, Some(self.clone()), name.into()));
        }
        let c = self.child_locked(&mut self.children.write(), name)?;
        trim();
        Ok(c)
    }

    /// As [`Self::child`], with this directory's `children` locked by the caller.
    pub(super) fn child_locked(self: &Arc<Self>, children: &mut Children, name: &[u8]) -> Result<Arc<Self>> {
        if let Some(c) = children.get(name) {
            return Ok(c.clone());
        }
        let inode = self.inode.lookup(name)?;
        Ok(self.adopt(children, inode, name))
    }

    /// Caches a new name.
    pub(super) fn adopt(
        self: &Arc<Self>,
        children: &mut Children,
        inode: Arc<dyn Inode>,
        name: &[u8],
    ) -> Arc<Self> {
        let c = Self::make(inode, Some(self.clone()), name.into());
        if self.cacheable && !self.unlinked() {
            children.insert(name.into(), c.clone());
            cached().fetch_add(1, Ordering::Relaxed);
        }
        c
    }

    /// Takes a name out of the cache because it is no more.
    pub(super) fn forget(&self, children: &mut Children, name: &[u8]) {
        if let Some(c) = children.remove(name) {
            cached().fetch_sub(1, Ordering::Relaxed);
            c.set(UNLINKED, true);
        }
    }

    /// ENOENT in a directory that was removed.
    pub(super) fn alive(&self) -> Result<()> {
        if self.unlinked() { Err(Errno::ENOENT) } else { Ok(()) }
    }
}

impl Drop for Dentry {
    fn drop(&mut self) {
        // A chain of removed directories could be long: unwind it without recursion.
        let mut parent = self.link.write().parent.take();
        while let Some(p) = parent.and_then(Arc::into_inner) {
            parent = p.link.write().parent.take();
        }
    }
}

/// Most names kept.
const CACHE_MAX: usize = 24_000;

/// Prunes the cache if it has grown too large. The caller holds no dentry's lock.
pub(super) fn trim() {
    if cached().load(Ordering::Relaxed) > CACHE_MAX {
        prune(&super::mount::vfs().root_dentries());
    }
}

/// Drops cached names that nobody holds and nobody looked up since the last time, leaves first.
fn prune(roots: &[Arc<Dentry>]) {
    let mut stack: Vec<Arc<Dentry>> = roots.to_vec();
    while let Some(d) = stack.pop() {
        let mut dead = Vec::new();
        {
            let mut children = d.children.write();
            children.retain(|_, c| {
                let used = c.flags.fetch_and(!USED, Ordering::Relaxed) & (USED | MOUNTPOINT) != 0;
                // Only a name that nobody else holds is looked into: nobody can be waiting for its lock.
                if !used && Arc::strong_count(c) == 1 && c.children.read().is_empty() {
                    dead.push(c.clone());
                    return false;
                }
                if c.kind == FileType::Directory {
                    stack.push(c.clone());
                }
                true
            });
        }
        cached().fetch_sub(dead.len(), Ordering::Relaxed);
    }
}
