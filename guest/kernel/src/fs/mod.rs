//! Files: open files, descriptors, inodes, paths and the file systems behind them.
//!
//! Key types: [`File`] (an open file description) over [`FileOps`]; [`FdTable`]; [`Inode`] (one object of a
//! file system). Boundary: `FileOps` and `Inode` are the two traits everything that can be opened implements.

pub mod busy;
pub mod caller;
pub mod cgroupfs;
pub mod dentry;
pub mod devfs;
pub mod devices;
pub mod fdtable;
pub mod file;
pub(crate) mod glide;
pub mod inode;
pub mod io;
pub mod kinds;
pub mod locks;
pub mod mount;
pub mod names;
pub mod open;
pub mod opener;
pub mod pages;
pub mod path;
pub mod perm;
pub mod procfs;
pub mod random;
pub mod rootfs;
pub mod rw;
pub mod sigio;
pub mod synthetic;
pub mod sysfs;
mod sysnet;
pub mod walk;

pub use caller::{Caller, Name, Target, at};
pub use fdtable::FdTable;
pub use file::{File, FileOps};
pub use inode::{FileType, Inode, Stat};
pub use io::{Input, Output};
pub use opener::{Opener, opener};

/// Drops what is only cached.
pub fn drop_caches() {
    dentry::drop_unused();
}

/// In a clone: finds what [`init`] made.
pub fn adopt() {
    pages::adopt();
    mount::adopt();
}

/// Sets up the page file and mounts the root file system; once, at boot, before the first process.
pub fn init() {
    pages::init();
    devices::init();
    mount::init(rootfs::from_image());
}
