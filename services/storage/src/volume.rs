//! A directory or a regular file of the host that a domain is given.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::mount::{OpenTreeFlags, open_tree};

/// What a domain is given: the root as an open file.
#[derive(Debug)]
pub struct Volume {
    /// A directory or a regular file; of a mount of its own, if root opened it: above it there is nothing.
    pub root: OwnedFd,
    /// Nothing in it may change.
    pub read_only: bool,
}

impl Volume {
    /// Opens a directory or a regular file at a path without links: whoever resolved it has seen what is mounted.
    ///
    /// # Errors
    /// What the host says (ELOOP: there is a link by now), or if it is neither.
    pub fn open(path: &Path, read_only: bool) -> io::Result<Self> {
        let how = OFlags::PATH | OFlags::CLOEXEC;
        let mut name = rustix::fs::openat2(CWD, path, how, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
        if rustix::process::geteuid().is_root() {
            // What is mounted below it is not part of it.
            let how = OpenTreeFlags::OPEN_TREE_CLONE
                | OpenTreeFlags::OPEN_TREE_CLOEXEC
                | OpenTreeFlags::AT_EMPTY_PATH;
            name = open_tree(&name, "", how)?;
            doppel_sys::namespace::restrict(name.as_fd(), read_only)?;
        }
        // To open another kind would do something.
        let access = match FileType::from_raw_mode(rustix::fs::fstat(&name)?.st_mode) {
            FileType::Directory => OFlags::DIRECTORY,
            FileType::RegularFile => OFlags::empty(),
            _ => {
                let text = format!("{}: neither a directory nor a regular file", path.display());
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
        };
        let again = format!("/proc/self/fd/{}", name.as_raw_fd());
        let root = rustix::fs::open(again, access | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { root, read_only })
    }
}
