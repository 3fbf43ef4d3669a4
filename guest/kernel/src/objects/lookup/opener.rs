//! The current thread, for those who look at its files and directories.
//!
//! Key type: [`Opener`], a [`Subject`] with descriptors and a place in the tree of names.

use alloc::sync::Arc;

use doppel_machine::shield::Reading;

use super::context::FsContext;
use crate::Result;
use crate::core::hook::Hook;
use crate::core::subject::{Cred, Subject};
use crate::objects::vfs::fdtable::{FileRef, FilesRef};
use crate::objects::vfs::file::File;
use crate::objects::vfs::mount::MountNamespace;

/// A thread, which is the calling one.
pub trait Opener: Subject {
    /// Root, working directory, umask.
    fn fs(&self) -> Arc<FsContext>;

    /// The namespace of its mounts.
    fn mounts(&self) -> Arc<MountNamespace>;

    /// Its descriptors.
    fn files(&self) -> FilesRef<'_>;

    /// The open file behind `fd`, also for O_PATH descriptors.
    fn any_file(&self, fd: i32) -> Result<Arc<File>>;

    /// As [`Self::any_file`], not counted; none if there is none.
    fn peek_file(&self, fd: i32) -> Option<FileRef<'_>>;

    /// As [`Self::fs`], not counted; none for a thread whose process has another one.
    fn peek_fs<'g>(&'g self, r: &'g Reading) -> Option<&'g FsContext>;

    /// Its identity, not counted.
    fn peek_cred<'g>(&'g self, r: &'g Reading) -> &'g Cred;
}

/// How the current thread is found; set by the layer of processes.
pub static OPENER: Hook<fn() -> Arc<dyn Opener>> = Hook::new();

/// The current thread. Panics on an idle vCPU.
pub fn opener() -> Arc<dyn Opener> {
    (OPENER.get())()
}
