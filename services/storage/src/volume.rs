//! A directory of the host that a domain is given.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{OpenTreeFlags, open_tree};

/// A directory that a domain is given: the directory as an open file.
#[derive(Debug)]
pub struct Volume {
    /// Of a mount of its own, if root opened it: above it there is nothing.
    pub directory: OwnedFd,
    /// Nothing in it may change.
    pub read_only: bool,
}

impl Volume {
    /// Opens a directory.
    ///
    /// # Errors
    /// What the host says.
    pub fn open(path: &Path, read_only: bool) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        if !rustix::process::geteuid().is_root() {
            let directory = rustix::fs::open(path, flags, Mode::empty())?;
            return Ok(Self { directory, read_only });
        }
        // What is mounted below it is not part of it.
        let tree = open_tree(CWD, path, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)?;
        doppel_sys::namespace::restrict(tree.as_fd(), read_only)?;
        let directory = rustix::fs::openat(&tree, ".", flags, Mode::empty())?;
        Ok(Self { directory, read_only })
    }
}
