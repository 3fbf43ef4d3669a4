//! Files: open files, descriptors, inodes, paths and the file systems behind them.
//!
//! Key types: [`File`] (an open file description) over [`FileOps`]; [`FdTable`]; [`Inode`] (one object of a
//! file system). Boundary: `FileOps` and `Inode` are the two traits everything that can be opened implements.

pub mod attach;
pub mod attr;
pub mod dentry;
pub mod devices;
pub mod fdtable;
pub mod file;
pub mod file_map;
pub mod flags;
pub mod inode;
pub mod io;
pub mod kinds;
pub mod mount;
pub mod rw;
pub mod sigio;
pub mod synthetic;

pub use super::lookup::caller::{Caller, Name, Target, at};
pub use super::lookup::opener::{Opener, opener};
pub use fdtable::FdTable;
pub use file::{File, FileOps, Whence};
pub use inode::{FileType, Inode, Stat};
pub use io::{Input, Output};

/// Drops what is only cached.
pub fn drop_caches() {
    dentry::drop_unused();
}

/// Drops what is only cached below a directory, which may be mounted nowhere any more.
pub fn drop_cached(root: &alloc::sync::Arc<dentry::Dentry>) {
    dentry::drop_cached(core::slice::from_ref(root));
}

/// In a clone: finds what [`init`] made.
pub fn adopt() {
    super::pages::adopt();
    mount::adopt();
}

/// Sets up the page file and mounts the root file system; once, at boot, before the first process.
pub fn init() {
    super::pages::init();
    devices::init();
    let bottom = super::rootfs::TmpfsOptions { mode: 0o755, inodes: 1, ..Default::default() };
    mount::init(super::rootfs::tmpfs(bottom), super::rootfs::from_image());
}
