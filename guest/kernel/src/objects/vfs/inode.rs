//! Inodes: the objects of file systems.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::sync::atomic::{AtomicBool, Ordering};

use super::file::{File, FileOps};
use crate::objects::lookup::path::Path;
use crate::objects::lookup::perm::Perm;
use crate::{Errno, Result};

/// Kind of file, with its `S_IFMT` value.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum FileType {
    Fifo = 0o010000,
    CharDevice = 0o020000,
    Directory = 0o040000,
    BlockDevice = 0o060000,
    Regular = 0o100000,
    Symlink = 0o120000,
    Socket = 0o140000,
}

impl FileType {
    /// The `d_type` of getdents64.
    pub fn dirent_type(self) -> u8 {
        (self as u32 >> 12) as u8
    }

    /// From the file type bits of a mode.
    pub fn from_mode(mode: u32) -> Option<Self> {
        Some(match mode & 0o170000 {
            0o010000 => Self::Fifo,
            0o020000 => Self::CharDevice,
            0o040000 => Self::Directory,
            0o060000 => Self::BlockDevice,
            0o100000 => Self::Regular,
            0o120000 => Self::Symlink,
            0o140000 => Self::Socket,
            _ => return None,
        })
    }
}

/// A time stamp: nanoseconds since 1970.
pub type Time = i64;

/// Attributes, as `stat(2)` and `statx(2)` give them.
#[derive(Clone, Copy, Debug)]
pub struct Stat {
    /// Device number of the file system (`makedev`).
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// Type and permission bits.
    pub mode: u32,
    /// Hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device node.
    pub rdev: u64,
    /// Size in bytes.
    pub size: u64,
    /// Preferred I/O size.
    pub blksize: u32,
    /// Allocated 512-byte blocks.
    pub blocks: u64,
    /// Last access.
    pub atime: Time,
    /// Last data change.
    pub mtime: Time,
    /// Last attribute change.
    pub ctime: Time,
    /// Creation.
    pub btime: Time,
}

impl Stat {
    /// What anonymous inodes (eventfd, epoll…) show.
    pub fn anonymous() -> Self {
        Self {
            dev: 0xd,
            ino: 1,
            mode: 0o600,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 0,
            blksize: 4096,
            blocks: 0,
            atime: 0,
            mtime: 0,
            ctime: 0,
            btime: 0,
        }
    }

    /// The file type.
    pub fn kind(&self) -> FileType {
        FileType::from_mode(self.mode).unwrap_or(FileType::Regular)
    }
}

/// What `statfs(2)` says of a file system.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug)]
pub struct StatFs {
    pub magic: u64,
    pub block_size: u64,
    pub blocks: u64,
    pub free: u64,
    pub files: u64,
    pub files_free: u64,
    pub dev: u64,
}

impl Default for StatFs {
    fn default() -> Self {
        // ANON_INODE_FS_MAGIC: no file system of its own.
        Self { magic: 0x0904_1934, block_size: 4096, blocks: 0, free: 0, files: 0, files_free: 0, dev: 0 }
    }
}

/// A change of attributes; `None` leaves one alone. Permission checks are done by the caller.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SetAttr {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub atime: Option<Time>,
    pub mtime: Option<Time>,
    pub size: Option<u64>,
}

/// One object of a file system. Methods are called with permissions already checked by the path layer;
/// names are single components, never empty, "." or "..".
pub trait Inode: Any + Send + Sync {
    /// Attributes.
    fn stat(&self) -> Stat;

    /// The kind of file; never changes.
    fn kind(&self) -> FileType {
        self.stat().kind()
    }

    /// Mode and owner, for permission checks: override it if `stat` is costly.
    fn perm(&self) -> Perm {
        let s = self.stat();
        Perm { mode: s.mode, uid: s.uid, gid: s.gid }
    }

    /// What `statfs(2)` says of its file system.
    fn statfs(&self) -> StatFs {
        StatFs::default()
    }

    /// A file was read (`relatime` rules are applied by the inode).
    fn touch_atime(&self) {}

    /// Changes attributes.
    fn set_attr(&self, _attr: &SetAttr) -> Result<()> {
        Err(Errno::EPERM)
    }

    /// Finds `name` in this directory. ENOENT if absent.
    fn lookup(&self, _name: &[u8]) -> Result<Arc<dyn Inode>> {
        Err(Errno::ENOTDIR)
    }

    /// Makes a file, directory, fifo, socket or device node (by the type bits of `mode`). EEXIST if present.
    fn create(&self, _name: &[u8], _mode: u32, _uid: u32, _gid: u32, _rdev: u64) -> Result<Arc<dyn Inode>> {
        Err(Errno::EROFS)
    }

    /// Makes a symbolic link.
    fn symlink(&self, _name: &[u8], _target: &[u8], _uid: u32, _gid: u32) -> Result<Arc<dyn Inode>> {
        Err(Errno::EROFS)
    }

    /// Makes a hard link to `inode`, an object of the same file system.
    fn link(&self, _name: &[u8], _inode: &Arc<dyn Inode>) -> Result<()> {
        Err(Errno::EROFS)
    }

    /// Removes a name that is not a directory.
    fn unlink(&self, _name: &[u8]) -> Result<()> {
        Err(Errno::EPERM)
    }

    /// Removes an empty directory.
    fn rmdir(&self, _name: &[u8]) -> Result<()> {
        Err(Errno::EPERM)
    }

    /// Moves `name` to `new_name` in `new_dir` (same file system); `flags` as `renameat2(2)`.
    fn rename(&self, _name: &[u8], _new_dir: &Arc<dyn Inode>, _new_name: &[u8], _flags: u32) -> Result<()> {
        Err(Errno::EPERM)
    }

    /// An unnamed regular file (O_TMPFILE).
    fn tmpfile(&self, _mode: u32, _uid: u32, _gid: u32) -> Result<Arc<dyn Inode>> {
        Err(Errno::EOPNOTSUPP)
    }

    /// The target of a symbolic link.
    fn readlink(&self) -> Result<Vec<u8>> {
        Err(Errno::EINVAL)
    }

    /// The target of a symbolic link that never changes, for walks; magic links have none.
    fn link_text(&self) -> Option<&[u8]> {
        None
    }

    /// For magic links (/proc/PID/fd/N, exe, cwd, root): where following leads, bypassing the text.
    fn follow(&self) -> Option<Result<Path>> {
        None
    }

    /// For magic links to files without a path (pipes, sockets, memfd in /proc/PID/fd): opening re-opens this.
    fn reopen(&self) -> Option<Arc<File>> {
        None
    }

    /// Opens it: gives the operations for a new open file. `flags` as `open(2)`.
    fn open(&self, _flags: u32) -> Result<Arc<dyn FileOps>> {
        Err(Errno::ENXIO)
    }

    /// Extended attributes: get, set (flags as `setxattr(2)`), list (NUL-terminated names), remove.
    fn getxattr(&self, _name: &[u8]) -> Result<Vec<u8>> {
        Err(Errno::EOPNOTSUPP)
    }
    /// See [`Self::getxattr`].
    fn setxattr(&self, _name: &[u8], _value: &[u8], _flags: u32) -> Result<()> {
        Err(Errno::EOPNOTSUPP)
    }
    /// See [`Self::getxattr`].
    fn listxattr(&self) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }
    /// See [`Self::getxattr`].
    fn removexattr(&self, _name: &[u8]) -> Result<()> {
        Err(Errno::EOPNOTSUPP)
    }

    /// A slot where another subsystem keeps what belongs to this inode (a bound AF_UNIX socket, a fifo's pipe,
    /// locks, watches); see [`Attachments`].
    fn attachments(&self) -> Option<&Attachments> {
        None
    }

    /// Whether it belongs to a file system in memory: names come and go only through the path layer, which may
    /// therefore remember absent ones, and `stat`, `perm` and the like take only leaf locks, so that they may be
    /// called under a guard of `doppel_machine::shield`.
    fn in_memory(&self) -> bool {
        false
    }

    /// Whether lookups and listings may be cached by the path layer (false for /proc).
    fn cacheable(&self) -> bool {
        true
    }
}

/// Objects of other subsystems attached to an inode, found by type.
#[derive(Default)]
pub struct Attachments {
    /// Whether there ever was one: most inodes have none, and every close asks.
    used: AtomicBool,
    list: doppel_machine::sync::SpinLock<Vec<Arc<dyn Any + Send + Sync>>>,
}

impl Attachments {
    /// The attached object of type `T`.
    pub fn get<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        if !self.used.load(Ordering::Acquire) {
            return None;
        }
        let found = self.list.lock().iter().find(|a| a.is::<T>()).cloned();
        found.and_then(|a| a.downcast::<T>().ok())
    }

    /// The attached object of type `T`, made by `make` if there is none.
    pub fn get_or_insert<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> Arc<T> {
        let mut l = self.list.lock();
        if let Some(t) = l.iter().find(|a| a.is::<T>()).and_then(|a| a.clone().downcast::<T>().ok()) {
            return t;
        }
        let t = Arc::new(make());
        l.push(t.clone());
        self.used.store(true, Ordering::Release);
        t
    }

    /// Attaches `t`, replacing an object of the same type.
    pub fn set<T: Any + Send + Sync>(&self, t: Arc<T>) {
        let mut l = self.list.lock();
        l.retain(|a| !a.is::<T>());
        l.push(t);
        self.used.store(true, Ordering::Release);
    }

    /// Detaches the object of type `T`.
    pub fn remove<T: Any + Send + Sync>(&self) {
        self.list.lock().retain(|a| !a.is::<T>());
    }
}
