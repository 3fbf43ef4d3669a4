//! Open file descriptions.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use doppel_machine::sync::SpinLock;
use doppel_machine::user::UserPtr;

use super::attach::Attachments;
use super::attach::locks::{Locks, Outside};
use super::attach::notify::{self, InotifyMask};
use super::attr::Stat;
use super::inode::Inode;
use super::io::{Input, Output};
use super::sigio::{Async, Sigio};
use crate::core::hook::Hook;
use crate::core::numbers::numbers;
use crate::core::sched::{Mutex, MutexGuard, PollEvents, PollTable};
use crate::core::subject::CURRENT;
use crate::memory::{MapSource, Mapped};
use crate::objects::lookup::path::Path;
use crate::objects::vfs::flags::{FallocateFlags, OpenFlags};
use crate::{Errno, Result};

/// Receives one directory entry (inode number, position after it, type, name); false stops the listing.
pub type DirSink<'a> = dyn FnMut(u64, u64, super::attr::FileType, &[u8]) -> bool + 'a;

numbers! {
    /// From where a position is counted (`lseek(2)`).
    pub enum Whence {
        /// From the start.
        Set = 0,
        /// From where it is.
        Cur = 1,
        /// From the end.
        End = 2,
        /// To the next bytes.
        Data = 3,
        /// To the next hole.
        Hole = 4,
    }
}

/// Where `lseek(2)` leads from `base`: EINVAL before the start, EOVERFLOW behind the last position.
pub fn seek_from(base: u64, offset: i64) -> Result<u64> {
    let to = base.checked_add_signed(offset).filter(|p| *p <= i64::MAX.cast_unsigned());
    to.ok_or(if offset > 0 { Errno::EOVERFLOW } else { Errno::EINVAL })
}

/// See [`FileOps::splice`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Splice {
    /// Out of the file and into it.
    Both,
    /// Out of it only.
    From,
    /// Into it only.
    Into,
    /// It holds no bytes to move.
    Neither,
}

/// A transfer that has begun.
pub trait Flight: Send {
    /// Waits for its end; gives how many bytes it has moved.
    fn finish(self: Box<Self>) -> Result<usize>;
}

/// What an open file does. Methods get the [`File`] for its flags; offsets are given for seekable files.
///
/// Blocking: `read` and `write` block (interruptibly) unless `file.nonblocking()`, then give `EAGAIN`.
pub trait FileOps: Any + Send + Sync {
    /// Reads at `offset` (seekable files) or the next bytes (others). 0 is the end.
    fn read(&self, _file: &File, _out: &mut Output<'_>, _offset: u64) -> Result<usize> {
        Err(Errno::EINVAL)
    }

    /// Begins a read with O_DIRECT into one buffer of the program's, and leaves its end for later, so that others can begin
    /// meanwhile. None if it has to be done by [`Self::read`].
    fn begin_read(&self, _file: &File, _to: UserPtr, _len: usize, _offset: u64) -> Option<Box<dyn Flight>> {
        None
    }

    /// Writes at `offset` (seekable files) or as the next bytes (others).
    /// With O_APPEND a seekable file writes at its end and the new position is `offset()` + count.
    fn write(&self, _file: &File, _input: &mut Input<'_>, _offset: u64) -> Result<usize> {
        Err(Errno::EINVAL)
    }

    /// Writes at the end whatever the flags say (O_APPEND), in one step with finding the end; returns the count
    /// and the position behind it. The default is for files without a position.
    fn append(&self, file: &File, input: &mut Input<'_>, offset: u64) -> Result<(usize, u64)> {
        self.write(file, input, offset).map(|n| (n, offset + n as u64))
    }

    /// Whether the file has a position (lseek, pread, pwrite work). Always the same.
    fn seekable(&self) -> bool {
        false
    }

    /// Whether reads and writes move the position of a seekable file. Always the same.
    fn positioned(&self) -> bool {
        self.seekable()
    }

    /// Repositions (`lseek(2)`): the default gives ESPIPE for unseekable files; regular files and directories
    /// override it. Returns the new position, which the caller stores.
    fn seek(&self, _file: &File, _offset: i64, _whence: Whence) -> Result<u64> {
        Err(Errno::ESPIPE)
    }

    /// The events (`poll` bits) that hold now. If `table` is given, first registers on the queues that will
    /// be woken when that changes.
    fn poll(&self, _file: &File, _table: Option<&mut PollTable>) -> PollEvents {
        PollEvents::IN | PollEvents::OUT | PollEvents::RDNORM | PollEvents::WRNORM
    }

    /// Which ways splice and sendfile move its bytes; others give EINVAL at once.
    fn splice(&self) -> Splice {
        Splice::Both
    }

    /// Whether it may have urgent data, of which an owner (F_SETOWN) gets SIGURG.
    fn urgent(&self) -> bool {
        false
    }

    /// Whether epoll may watch it (regular files and directories: EPERM).
    fn pollable(&self) -> bool {
        true
    }

    /// `ioctl(2)`.
    fn ioctl(&self, _file: &File, _cmd: u32, _arg: u64) -> Result<u64> {
        Err(Errno::ENOTTY)
    }

    /// What `mmap(2)` of this file maps.
    fn map(&self, _file: &File) -> Result<MapSource> {
        Err(Errno::ENODEV)
    }

    /// Directory entries from position `file.pos` on: calls `sink(ino, next_pos, type, name)` until it
    /// returns false or the end; the caller stores positions.
    fn readdir(&self, _file: &File, _pos: u64, _sink: &mut DirSink<'_>) -> Result<()> {
        Err(Errno::ENOTDIR)
    }

    /// `fsync(2)` and `fdatasync(2)`.
    fn fsync(&self, _file: &File) -> Result<()> {
        Err(Errno::EINVAL)
    }

    /// `fallocate(2)`.
    fn fallocate(&self, _file: &File, _mode: FallocateFlags, _offset: u64, _len: u64) -> Result<()> {
        Err(Errno::EOPNOTSUPP)
    }

    /// `ftruncate(2)`.
    fn truncate(&self, _file: &File, _len: u64) -> Result<()> {
        Err(Errno::EINVAL)
    }

    /// Attributes for files without an inode in a path (pipes, sockets, anonymous inodes).
    fn stat(&self, _file: &File) -> Result<Stat> {
        Ok(Stat::anonymous())
    }

    /// Called at each close(2) of a descriptor to this file.
    fn flush(&self, _file: &File) {}

    /// Called before a descriptor (or a call that used it longer) counts no more: the last may be among messages.
    fn parting(&self, _file: &File) {}

    /// Called once when the last descriptor is gone.
    fn release(&self, _file: &File) {}

    /// Extra lines of /proc/PID/fdinfo/N, as text.
    fn fdinfo(&self, _file: &File, _out: &mut alloc::string::String) {}
}

/// A file's position. Readers and writers that use it hold its lock over the operation, which may wait
/// for a storage service. Who alone can reach the file needs no lock: a pidfd_getfd at that very moment may see or
/// set a position in between, as on Linux.
#[derive(Default)]
pub struct Position {
    at: AtomicU64,
    lock: Mutex<()>,
}

impl Position {
    /// Where it is.
    pub fn get(&self) -> u64 {
        self.at.load(Ordering::Relaxed)
    }

    /// To be changed; `alone` if nobody else can reach the file.
    #[inline]
    pub fn lock(&self, alone: bool) -> PositionGuard<'_> {
        let lock = if alone { None } else { Some(self.lock.lock()) };
        PositionGuard { at: self.get(), pos: self, _lock: lock }
    }
}

/// A position to be changed: what is left here is stored when this goes.
pub struct PositionGuard<'a> {
    /// The position.
    pub at: u64,
    pos: &'a Position,
    _lock: Option<MutexGuard<'a, ()>>,
}

impl Drop for PositionGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.pos.at.store(self.at, Ordering::Relaxed);
    }
}

/// An open file description: what `open(2)` makes and descriptors, forks and SCM_RIGHTS share.
pub struct File {
    /// Unique number, never reused.
    pub id: u64,
    ops: Arc<dyn FileOps>,
    flags: AtomicU32,
    /// See [`FileOps::seekable`] and [`FileOps::positioned`].
    seekable: bool,
    positioned: bool,
    /// The file position.
    pub pos: Position,
    /// Where it was opened, if it has a name (regular files, directories, devices, fifos).
    pub path: Option<Path>,
    /// Its inode, if it has one.
    pub inode: Option<Arc<dyn Inode>>,
    /// Name shown in /proc/PID/fd for files without a path: `pipe:[12]`, `anon_inode:[eventpoll]`.
    pub anon_name: Option<alloc::string::String>,
    /// Keeps a program's file from being written while it runs, and the other way round.
    pub guard: SpinLock<Option<super::attach::busy::Guard>>,
    /// Whom to signal when it becomes ready.
    pub sigio: Sigio,
    /// Descriptors referring to this file, over all tables; `release` runs when it falls to zero.
    fds: AtomicU64,
    /// It was opened for writing.
    writes: bool,
    /// Nobody is told of what is done with it.
    quiet: AtomicBool,
    /// Who must know when the last descriptor has gone (epoll items).
    closing: SpinLock<alloc::vec::Vec<alloc::sync::Weak<dyn OnClose>>>,
}

impl Drop for File {
    fn drop(&mut self) {
        if let Some(p) = self.path.as_ref().filter(|_| self.writes) {
            p.mount().written(false);
        }
    }
}

/// Told when the last descriptor of a file has gone; see [`File::on_close`].
pub trait OnClose: Send + Sync {
    /// The file is closed. Called without locks held.
    fn closed(self: Arc<Self>);
}

/// Those who are told of what happens to files, while [`notify::watching`] says that there is one.
#[derive(Clone, Copy)]
pub struct Watchers {
    /// The current process has closed a descriptor of it.
    pub closed: fn(&File),
    /// An event of it, for it and the directory it was opened in.
    pub event: fn(&File, InotifyMask),
}

/// Set by inotify and directory notification.
pub static WATCHERS: Hook<Watchers> = Hook::new();

impl File {
    /// An open file with a name in a file system.
    pub fn new(ops: Arc<dyn FileOps>, inode: Arc<dyn Inode>, path: Path, flags: OpenFlags) -> Arc<Self> {
        Self::make(ops, Some(inode), Some(path), None, flags)
    }

    /// An open file without a name. `name` is what /proc/PID/fd shows.
    pub fn anon(ops: Arc<dyn FileOps>, name: alloc::string::String, flags: OpenFlags) -> Arc<Self> {
        Self::make(ops, None, None, Some(name), flags)
    }

    /// An open file with an inode that has no name in any directory (memfd). `name` as for [`Self::anon`].
    pub fn nameless(
        ops: Arc<dyn FileOps>,
        inode: Arc<dyn Inode>,
        name: alloc::string::String,
        flags: OpenFlags,
    ) -> Arc<Self> {
        Self::make(ops, Some(inode), None, Some(name), flags)
    }

    fn make(
        ops: Arc<dyn FileOps>,
        inode: Option<Arc<dyn Inode>>,
        path: Option<Path>,
        anon_name: Option<alloc::string::String>,
        flags: OpenFlags,
    ) -> Arc<Self> {
        let keep =
            !(OpenFlags::CREAT | OpenFlags::EXCL | OpenFlags::NOCTTY | OpenFlags::TRUNC | OpenFlags::CLOEXEC);
        let writes = flags.intersects(OpenFlags::ACCMODE);
        if let Some(p) = path.as_ref().filter(|_| writes) {
            p.mount().written(true);
        }
        Arc::new(Self {
            id: crate::kernel().next_id(),
            writes,
            seekable: ops.seekable(),
            positioned: ops.positioned(),
            ops,
            flags: AtomicU32::new((flags & keep).bits()),
            pos: Position::default(),
            path,
            inode,
            anon_name,
            guard: SpinLock::new(None),
            sigio: Sigio::default(),
            fds: AtomicU64::new(0),
            quiet: AtomicBool::new(false),
            closing: SpinLock::default(),
        })
    }

    /// Whether nobody is told of what is done with it: it was opened for who is told of such things.
    pub fn is_quiet(&self) -> bool {
        self.quiet.load(Ordering::Relaxed)
    }

    /// From now on nobody is told.
    pub fn be_quiet(&self) {
        self.quiet.store(true, Ordering::Relaxed);
    }

    /// See [`FileOps::seekable`].
    #[inline]
    pub fn seekable(&self) -> bool {
        self.seekable
    }

    /// See [`FileOps::positioned`].
    #[inline]
    pub fn positioned(&self) -> bool {
        self.positioned
    }

    /// The operations.
    #[inline]
    pub fn ops(&self) -> &Arc<dyn FileOps> {
        &self.ops
    }

    /// The operations as a concrete type, for calls that only work on one kind of file.
    pub fn downcast<T: FileOps>(&self) -> Option<&T> {
        let any: &dyn Any = &*self.ops;
        any.downcast_ref::<T>()
    }

    /// Status flags and access mode.
    #[inline]
    pub fn flags(&self) -> OpenFlags {
        OpenFlags::from_bits_retain(self.flags.load(Ordering::Relaxed))
    }

    /// F_SETFL: replaces the changeable flags.
    pub fn set_flags(&self, new: OpenFlags) {
        let old = self.flags();
        self.flags.store(((old - OpenFlags::SETFL) | (new & OpenFlags::SETFL)).bits(), Ordering::Relaxed);
    }

    /// F_SETFL and the ioctls: new status flags given through descriptor `fd`.
    pub fn change_flags(&self, fd: i32, new: OpenFlags) {
        let before = self.flags();
        self.set_flags(new);
        let now = self.flags();
        if (before ^ now).contains(OpenFlags::ASYNC) {
            self.sigio.set_async(self, now.contains(OpenFlags::ASYNC).then_some(fd));
        }
    }

    /// Whether O_NONBLOCK is set.
    pub fn nonblocking(&self) -> bool {
        self.flags().contains(OpenFlags::NONBLOCK)
    }

    /// Whether the file was opened for reading.
    #[inline]
    pub fn readable(&self) -> bool {
        let f = self.flags();
        f & OpenFlags::ACCMODE != OpenFlags::WRONLY && !f.contains(OpenFlags::PATH)
    }

    /// Whether the file was opened for writing.
    #[inline]
    pub fn writable(&self) -> bool {
        let f = self.flags();
        f.intersects(OpenFlags::ACCMODE) && !f.contains(OpenFlags::PATH)
    }

    /// Where RLIMIT_FSIZE of the current process stops writes; nowhere for the kernel's own.
    pub fn size_limit(&self) -> u64 {
        (CURRENT.get().size_limit)()
    }

    /// Polls, see [`FileOps::poll`].
    pub fn poll(&self, table: Option<&mut PollTable>) -> PollEvents {
        self.ops.poll(self, table)
    }

    /// How many descriptors and messages in flight refer to this file.
    pub fn fd_count(&self) -> u64 {
        self.fds.load(Ordering::Acquire)
    }

    /// A descriptor (or a message in flight) now refers to this file.
    pub fn fd_added(&self) {
        self.fds.fetch_add(1, Ordering::Relaxed);
    }

    /// A descriptor no longer refers to this file; the last one releases it.
    pub fn fd_removed(&self) {
        self.ops.flush(self);
        self.ops.parting(self);
        self.quiet();
        let last = self.fds.fetch_sub(1, Ordering::AcqRel) == 1;
        self.unlock(true, last);
        self.released(last);
    }

    /// A descriptor was closed while a call used the file: it counts until [`Self::let_go`].
    pub fn fd_closed(&self) {
        self.ops.flush(self);
        self.quiet();
        self.unlock(true, false);
    }

    /// What other subsystems keep with its inode, if it can have any.
    pub fn attachments(&self) -> Option<&Attachments> {
        self.inode.as_ref()?.attachments()
    }

    /// Who keeps its locks, if others than this kernel may lock it as well.
    pub fn outside_locks(&self) -> Option<&dyn Outside> {
        self.inode.as_ref()?.outside_locks()
    }

    /// Drops locks on the file: the current process' if it has closed a descriptor, the file's own with the last one.
    fn unlock(&self, closed: bool, last: bool) {
        let Some(locks) = self.attachments().and_then(Attachments::get::<Locks>) else { return };
        let (pid, file) = (closed.then(crate::core::subject::pid), last.then_some(self.id));
        match self.outside_locks() {
            Some(outside) => locks.drop_with(outside, pid, file, None),
            None => locks.drop_of(pid, file),
        }
    }

    /// A process that closes a directory hears no more of it.
    #[inline]
    fn quiet(&self) {
        if notify::watching() {
            (WATCHERS.get().closed)(self);
        }
    }

    /// The last call has ended that used the file through a descriptor closed meanwhile.
    pub fn let_go(&self) {
        self.ops.parting(self);
        let last = self.fds.fetch_sub(1, Ordering::AcqRel) == 1;
        if last {
            self.unlock(false, true);
        }
        self.released(last);
    }

    /// Releases the file if the last descriptor is gone.
    fn released(&self, last: bool) {
        if last {
            self.sigio.closed();
            let closing = core::mem::take(&mut *self.closing.lock());
            for c in closing.into_iter().filter_map(|c| c.upgrade()) {
                c.closed();
            }
            if notify::watching() && !self.flags().contains(OpenFlags::PATH) {
                let how = if self.writable() { InotifyMask::CLOSE_WRITE } else { InotifyMask::CLOSE_NOWRITE };
                (WATCHERS.get().event)(self, how);
            }
            self.ops.release(self);
        }
    }

    /// Has `hook` told when the last descriptor of this file goes.
    pub fn on_close(&self, hook: alloc::sync::Weak<dyn OnClose>) {
        let mut c = self.closing.lock();
        c.retain(|w| w.strong_count() > 0);
        c.push(hook);
    }

    /// Writes a kernel-side error to user space is never needed here; ioctl helpers use this to return data.
    pub fn copy_out<T: doppel_machine::user::Pod>(arg: u64, v: &T) -> Result<u64> {
        UserPtr(arg).write(v)?;
        Ok(0)
    }
}

impl Async for File {
    fn directions(&self) -> (bool, bool) {
        (self.readable(), self.writable())
    }

    fn urgent(&self) -> bool {
        self.ops.urgent()
    }

    fn register(&self, table: &mut PollTable) {
        self.poll(Some(table));
    }
}

impl Mapped for File {
    fn id(&self) -> u64 {
        self.id
    }

    fn place(&self) -> Option<(u64, u64)> {
        self.inode.as_ref().map(|i| i.place())
    }

    fn name(&self) -> Vec<u8> {
        match (&self.path, &self.anon_name) {
            (Some(p), _) => p.name(),
            (None, Some(n)) => n.clone().into_bytes(),
            (None, None) => Vec::new(),
        }
    }
}
