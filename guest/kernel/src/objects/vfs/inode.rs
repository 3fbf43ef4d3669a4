//! Inodes: the objects of file systems.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;

pub use super::attach::Attachments;
use super::attach::locks::Outside;
pub use super::attr::{FileType, Perm, SetAttr, Stat, StatFs, Time};
use super::file::{File, FileOps};
use crate::objects::lookup::path::Path;
use crate::objects::vfs::flags::{OpenFlags, RenameFlags, SetXattr};
use crate::{Errno, Result};

/// One object of a file system. Methods are called with permissions already checked by the path layer;
/// names are single components, never empty, "." or "..".
pub trait Inode: Any + Send + Sync {
    /// Attributes.
    fn stat(&self) -> Stat;

    /// Attributes of a file that was looked up just now: those that the lookup brought, if it did.
    fn seen(&self) -> Stat {
        self.stat()
    }

    /// Fills in the attributes, if they are to be had under a guard of `doppel_machine::shield`; whether they were. They are filled in
    /// where they are wanted: as a result they would be moved twice on the way, which took a tenth of stat(2)'s time.
    fn at_hand(&self, out: &mut Stat) -> bool {
        *out = self.stat();
        true
    }

    /// The kind of file; never changes.
    fn kind(&self) -> FileType {
        self.stat().kind()
    }

    /// Its device and inode number; asks nobody, so it may be called under a lock.
    fn place(&self) -> (u64, u64) {
        let s = self.stat();
        (s.dev, s.ino)
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

    /// Removes a name that is not a directory. `unused`: no program has the file open, mapped, or as its own.
    fn unlink(&self, _name: &[u8], _unused: bool) -> Result<()> {
        Err(Errno::EPERM)
    }

    /// Removes an empty directory; `unused` as for [`Self::unlink`].
    fn rmdir(&self, _name: &[u8], _unused: bool) -> Result<()> {
        Err(Errno::EPERM)
    }

    /// Moves `name` to `new_name` in `new_dir` (same file system); `flags` as `renameat2(2)`. `unused`, as for [`Self::unlink`]: what
    /// stands there.
    fn rename(
        &self,
        _name: &[u8],
        _new_dir: &Arc<dyn Inode>,
        _new_name: &[u8],
        _flags: RenameFlags,
        _unused: bool,
    ) -> Result<()> {
        Err(Errno::EPERM)
    }

    /// An unnamed regular file (O_TMPFILE).
    fn tmpfile(&self, _mode: u32, _uid: u32, _gid: u32) -> Result<Arc<dyn Inode>> {
        Err(Errno::EOPNOTSUPP)
    }

    /// A file of [`Self::tmpfile`] that is to stay without a name (O_EXCL).
    fn never_link(&self) {}

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
    fn open(&self, _flags: OpenFlags) -> Result<Arc<dyn FileOps>> {
        Err(Errno::ENXIO)
    }

    /// Extended attributes: get, set, list (NUL-terminated names), remove.
    fn getxattr(&self, _name: &[u8]) -> Result<Vec<u8>> {
        Err(Errno::EOPNOTSUPP)
    }
    /// See [`Self::getxattr`].
    fn setxattr(&self, _name: &[u8], _value: &[u8], _how: SetXattr) -> Result<()> {
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

    /// The words of a handle by which its file system finds it from now on ([`super::attach::handle`]), if it has such.
    fn handle(&self) -> Option<[u32; 3]> {
        None
    }

    /// Programs watch it: whoever else may change it is to tell of that, by these events (`inotify(7)`). The caller may wait.
    fn watch(&self, _events: &dyn Fn() -> u32) -> Result<()> {
        Ok(())
    }

    /// A program watches it no more, and perhaps nobody.
    fn unwatch(&self, _is_watched: &dyn Fn() -> bool) {}

    /// Who keeps its locks, if others than this kernel may lock it as well.
    fn outside_locks(&self) -> Option<&dyn Outside> {
        None
    }

    /// Whether it belongs to a file system in memory: names come and go only through the path layer, which may
    /// therefore remember absent ones, and `stat`, `perm` and the like take only leaf locks, so that they may be
    /// called under a guard of `doppel_machine::shield`.
    fn in_memory(&self) -> bool {
        false
    }

    /// Whether others than this kernel may change its names: the path layer looks a known one up again, but under a lease.
    fn shared(&self) -> bool {
        false
    }

    /// The number of the lease under which others do not change names of its file system ([`Self::shared`]); 0: there is none. What
    /// was found under one is true as long as that is the number.
    fn lease_number(&self) -> u32 {
        0
    }

    /// A name of it came, went or changed; `gone`: it went, and nobody has the file in use by it.
    fn name_changed(&self, _gone: bool) {}

    /// Has a rename wait that cannot fail: the name is there, and at the new one stands nothing, or a file that is no directory and that
    /// nobody has in use. False: it is to be asked for.
    fn rename_later(&self, _name: &[u8], _new_dir: &Arc<dyn Inode>, _new_name: &[u8]) -> bool {
        false
    }

    /// References to it that its file system has for a while.
    fn own_references(&self) -> usize {
        0
    }

    /// Whether lookups and listings may be cached by the path layer (false for /proc).
    fn cacheable(&self) -> bool {
        true
    }
}
