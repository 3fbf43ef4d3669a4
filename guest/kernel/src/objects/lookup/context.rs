//! Where a process stands in the tree of names.
//!
//! Key type: [`FsContext`] (root, working directory, umask).

use core::sync::atomic::{AtomicU32, Ordering};

use doppel_machine::shield::{self, Reading, Shielded};

use super::path::Path;
use crate::objects::vfs::mount::vfs;

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

    /// Whoever stands at `from` stands at `to` then.
    pub fn replace(&self, from: &Path, to: &Path) {
        if self.root().same(from) {
            self.set_root(to.clone());
        }
        if self.cwd().same(from) {
            self.set_cwd(to.clone());
        }
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
