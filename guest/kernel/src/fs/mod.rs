//! Files: open files, descriptors, inodes, paths and the file systems behind them.
//!
//! Key types: [`File`] (an open file description) over [`FileOps`]; [`FdTable`]; [`Inode`] (one object of a
//! file system). Boundary: `FileOps` and `Inode` are the two traits everything that can be opened implements.

pub mod fdtable;
pub mod file;
pub mod inode;
pub mod io;
pub mod pages;
pub mod path;

pub use fdtable::FdTable;
pub use file::{File, FileOps};
pub use inode::{FileType, Inode, Stat};
pub use io::{Input, Output};

/// Mounts the root image and the kernel's own file systems; once, at boot.
pub fn init() {}
