//! Paths: names resolved through mounts and directories (`path_resolution(7)`).
//!
//! Key type: [`Path`], a resolved place. Owned by the VFS part; others use [`Path`] and the functions below.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::Result;

use super::inode::Inode;

/// A resolved place: an inode together with how it was reached, so that `..`, getcwd and /proc/PID/fd work.
#[derive(Clone)]
pub struct Path {
    inode: Arc<dyn Inode>,
}

impl Path {
    /// The inode.
    pub fn inode(&self) -> &Arc<dyn Inode> {
        &self.inode
    }

    /// The absolute name as the current process sees it, with " (deleted)" if unlinked.
    pub fn name(&self) -> Vec<u8> {
        Vec::new()
    }
}

/// Root, working directory and umask of a process.
#[derive(Default)]
pub struct FsContext {}

impl FsContext {
    /// A copy for a new process.
    #[must_use]
    pub fn fork(&self) -> Self {
        Self {}
    }
}

/// Finds `name` from the current process' root or working directory, following symbolic links.
pub fn resolve(_name: &[u8]) -> Result<Path> {
    Err(crate::Errno::ENOENT)
}
