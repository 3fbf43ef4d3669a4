//! One file of a volume: the [`Inode`] operations, each a request.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::any::Any;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use doppel_abi_service::storage::{Attributes, Changes, Operation, Request, TARGET, VOLUMES, flags, set};
use doppel_machine::sync::SpinLock;

use super::call::Call;
use super::mapped::Mapped;
use super::{Storage, known, storage};
use crate::core::sched::Mutex;
use crate::objects::lookup::perm::Perm;
use crate::objects::vfs::attach::Attachments;
use crate::objects::vfs::file::FileOps;
use crate::objects::vfs::flags::{OpenFlags, RenameFlags, SetXattr};
use crate::objects::vfs::inode::{FileType, Inode, SetAttr, Stat, StatFs};
use crate::{Errno, Result};

/// A volume of the domain, mounted.
pub(super) struct Volume {
    pub storage: &'static Storage,
    /// Device number.
    dev: u64,
}

/// A file of a volume.
pub struct Node {
    pub(super) volume: Arc<Volume>,
    pub(super) me: Weak<Self>,
    /// The service's number for it.
    pub(super) id: u64,
    /// How often that was given.
    given: AtomicU64,
    kind: FileType,
    /// It has no name and never gets one.
    nameless: AtomicBool,
    /// As they were when the service last told of them.
    pub(super) seen: SpinLock<Attributes>,
    /// What is mapped of it.
    pub(super) mapped: Mutex<Option<Mapped>>,
    attachments: Attachments,
}

/// The topmost file of the domain's volume with this number.
///
/// # Errors
/// ENODEV: it has no volumes; or what the service says.
pub fn mount(number: u64) -> Result<Arc<Node>> {
    let storage = storage().ok_or(Errno::ENODEV)?;
    if number >= VOLUMES {
        return Err(Errno::ENODEV);
    }
    let call = storage.call();
    call.ask(Request::new(Operation::GetAttr, number))?;
    let volume = Arc::new(Volume { storage, dev: crate::objects::vfs::mount::new_dev() });
    let seen = call.attributes();
    let root = Node::make(&volume, number, FileType::from_mode(seen.mode).ok_or(Errno::EIO)?, seen);
    storage.roots.lock().push(Arc::downgrade(&root));
    Ok(root)
}

impl Node {
    fn make(volume: &Arc<Volume>, id: u64, kind: FileType, seen: Attributes) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            volume: volume.clone(),
            me: me.clone(),
            id,
            given: AtomicU64::new(0),
            nameless: AtomicBool::new(false),
            kind,
            seen: SpinLock::new(seen),
            mapped: Mutex::default(),
            attachments: Attachments::default(),
        })
    }

    pub(super) fn call(&self) -> Call {
        self.volume.storage.call()
    }

    pub(super) fn request(&self, operation: Operation) -> Request {
        Request::new(operation, self.id)
    }

    /// Keeps the attributes that an answer brought.
    pub(super) fn note(&self, call: &Call) -> Attributes {
        let now = call.attributes();
        *self.seen.lock() = now;
        now
    }

    /// The node that an answer gave, with its attributes.
    fn given(&self, call: &Call, id: u64) -> Result<Arc<Self>> {
        let seen = call.attributes();
        let kind = FileType::from_mode(seen.mode).ok_or(Errno::EIO)?;
        if id < VOLUMES {
            return Err(Errno::EIO);
        }
        let node = known(self.volume.storage, id, || Self::make(&self.volume, id, kind, seen));
        node.given.fetch_add(1, Ordering::Relaxed);
        *node.seen.lock() = seen;
        // A service that is honest gives a number to one file.
        if node.kind == kind { Ok(node) } else { Err(Errno::EIO) }
    }

    /// Writes all of its file system to where it survives a power cut.
    pub fn sync_all(&self) -> Result<()> {
        super::settle(true);
        self.call().ask(Request { flags: flags::ALL, ..self.request(Operation::Sync) }).map(drop)
    }

    /// Another file of the same volume.
    fn same_volume(&self, inode: &Arc<dyn Inode>) -> Result<Arc<Self>> {
        let any: Arc<dyn Any + Send + Sync> = inode.clone();
        let node = any.downcast::<Self>().map_err(|_| Errno::EXDEV)?;
        if Arc::ptr_eq(&node.volume, &self.volume) { Ok(node) } else { Err(Errno::EXDEV) }
    }

    /// Asks for attributes; what was seen last if the file is no more.
    pub(super) fn look(&self) -> Attributes {
        let call = self.call();
        match call.ask(self.request(Operation::GetAttr)) {
            Ok(_) => self.note(&call),
            Err(_) => *self.seen.lock(),
        }
    }

    pub(super) fn change(&self, changes: &Changes, which: u32) -> Result<()> {
        let call = self.call();
        call.changes(changes);
        call.ask(Request { flags: which, ..self.request(Operation::SetAttr) })?;
        self.note(&call);
        Ok(())
    }

    fn remove(&self, operation: Operation, name: &[u8], unused: bool) -> Result<()> {
        let call = self.call();
        let request = Request { a: call.name(name), flags: losing(unused), ..self.request(operation) };
        call.ask(request).map(drop)
    }

    pub(super) fn shown(&self, a: &Attributes) -> Stat {
        Stat {
            dev: self.volume.dev,
            ino: a.ino,
            mode: a.mode,
            nlink: a.nlink,
            uid: a.uid,
            gid: a.gid,
            rdev: a.rdev,
            size: a.size,
            blksize: a.block_size.clamp(512, 1 << 20),
            blocks: a.blocks,
            atime: a.atime,
            mtime: a.mtime,
            ctime: a.ctime,
            btime: a.btime,
        }
    }
}

/// How the service keeps a file that loses a name.
fn losing(unused: bool) -> u32 {
    if unused { flags::UNUSED } else { 0 }
}

impl Drop for Node {
    fn drop(&mut self) {
        if self.id < VOLUMES {
            return;
        }
        let storage = self.volume.storage;
        {
            let mut nodes = storage.nodes.lock();
            // It may have been given anew meanwhile.
            if nodes.get(&self.id).is_some_and(|n| n.strong_count() == 0) {
                nodes.remove(&self.id);
            }
        }
        if storage.link.lock().forget(self.id, *self.given.get_mut()) {
            doppel_machine::storage::CHANNEL.ring();
        }
    }
}

impl Inode for Node {
    fn stat(&self) -> Stat {
        self.shown(&self.look())
    }

    fn seen(&self) -> Stat {
        self.shown(&self.seen.lock())
    }

    fn kind(&self) -> FileType {
        self.kind
    }

    fn place(&self) -> (u64, u64) {
        (self.volume.dev, self.seen.lock().ino)
    }

    fn perm(&self) -> Perm {
        let seen = self.seen.lock();
        Perm { mode: seen.mode, uid: seen.uid, gid: seen.gid }
    }

    fn statfs(&self) -> StatFs {
        let call = self.call();
        if call.ask(self.request(Operation::StatFs)).is_err() {
            return StatFs::default();
        }
        let bytes = call.text(7 * 8);
        let word = |i: usize| bytes.as_chunks().0.get(i).map_or(0, |w| u64::from_le_bytes(*w));
        StatFs {
            magic: word(0),
            block_size: word(1),
            blocks: word(2),
            free: word(4),
            files: word(5),
            files_free: word(6),
            dev: self.volume.dev,
        }
    }

    fn set_attr(&self, a: &SetAttr) -> Result<()> {
        let mut which = 0;
        let mut take = |bit, wanted: bool| which |= if wanted { bit } else { 0 };
        take(set::MODE, a.mode.is_some());
        take(set::UID, a.uid.is_some());
        take(set::GID, a.gid.is_some());
        take(set::SIZE, a.size.is_some());
        take(set::ATIME, a.atime.is_some());
        take(set::MTIME, a.mtime.is_some());
        let changes = Changes {
            mode: a.mode.unwrap_or(0) & 0o7777,
            uid: a.uid.unwrap_or(0),
            gid: a.gid.unwrap_or(0),
            size: a.size.unwrap_or(0),
            atime: a.atime.unwrap_or(0),
            mtime: a.mtime.unwrap_or(0),
        };
        match a.size {
            Some(size) => self.resize(size, &changes, which),
            None => self.change(&changes, which),
        }
    }

    fn lookup(&self, name: &[u8]) -> Result<Arc<dyn Inode>> {
        if self.kind != FileType::Directory {
            return Err(Errno::ENOTDIR);
        }
        let call = self.call();
        let request = Request { a: call.name(name), ..self.request(Operation::Lookup) };
        let id = call.ask(request)?.node;
        Ok(self.given(&call, id)?)
    }

    fn create(&self, name: &[u8], mode: u32, uid: u32, gid: u32, rdev: u64) -> Result<Arc<dyn Inode>> {
        let call = self.call();
        let request = Request {
            a: call.name(name),
            b: mode.into(),
            c: uid,
            d: gid,
            other: rdev,
            ..self.request(Operation::Make)
        };
        let id = call.ask(request)?.node;
        Ok(self.given(&call, id)?)
    }

    fn symlink(&self, name: &[u8], target: &[u8], uid: u32, gid: u32) -> Result<Arc<dyn Inode>> {
        if target.len() > TARGET {
            return Err(Errno::ENAMETOOLONG);
        }
        let call = self.call();
        let (a, b) = (call.name(name), call.second(target));
        let id = call.ask(Request { a, b, c: uid, d: gid, ..self.request(Operation::Symlink) })?.node;
        Ok(self.given(&call, id)?)
    }

    fn link(&self, name: &[u8], inode: &Arc<dyn Inode>) -> Result<()> {
        let file = self.same_volume(inode)?;
        if file.nameless.load(Ordering::Relaxed) {
            return Err(Errno::ENOENT);
        }
        let call = self.call();
        let request = Request { a: call.name(name), other: self.id, ..file.request(Operation::Link) };
        call.ask(request)?;
        file.note(&call);
        Ok(())
    }

    fn unlink(&self, name: &[u8], unused: bool) -> Result<()> {
        self.remove(Operation::Unlink, name, unused)
    }

    fn rmdir(&self, name: &[u8], unused: bool) -> Result<()> {
        self.remove(Operation::RmDir, name, unused)
    }

    fn rename(
        &self,
        name: &[u8],
        new_dir: &Arc<dyn Inode>,
        new_name: &[u8],
        flags: RenameFlags,
        unused: bool,
    ) -> Result<()> {
        let to = self.same_volume(new_dir)?;
        let call = self.call();
        let (a, b) = (call.name(name), call.second(new_name));
        let request = Request {
            a,
            b,
            other: to.id,
            flags: flags.bits() | losing(unused),
            ..self.request(Operation::Rename)
        };
        call.ask(request).map(drop)
    }

    fn tmpfile(&self, mode: u32, uid: u32, gid: u32) -> Result<Arc<dyn Inode>> {
        let call = self.call();
        let request = Request { b: mode.into(), c: uid, d: gid, ..self.request(Operation::TmpFile) };
        let id = call.ask(request)?.node;
        Ok(self.given(&call, id)?)
    }

    fn never_link(&self) {
        self.nameless.store(true, Ordering::Relaxed);
    }

    fn readlink(&self) -> Result<Vec<u8>> {
        if self.kind != FileType::Symlink {
            return Err(Errno::EINVAL);
        }
        let call = self.call();
        let len = call.ask(self.request(Operation::ReadLink))?.value;
        Ok(call.text(Call::length(len, TARGET)?))
    }

    fn open(&self, _flags: OpenFlags) -> Result<Arc<dyn FileOps>> {
        match self.kind {
            FileType::Regular | FileType::Directory => Ok(self.me.upgrade().ok_or(Errno::EIO)?),
            _ => Err(Errno::ENXIO),
        }
    }

    fn getxattr(&self, name: &[u8]) -> Result<Vec<u8>> {
        self.xattr_get(name)
    }

    fn setxattr(&self, name: &[u8], value: &[u8], how: SetXattr) -> Result<()> {
        self.xattr_set(name, value, how)
    }

    fn listxattr(&self) -> Result<Vec<u8>> {
        self.xattr_list()
    }

    fn removexattr(&self, name: &[u8]) -> Result<()> {
        self.xattr_remove(name)
    }

    fn attachments(&self) -> Option<&Attachments> {
        Some(&self.attachments)
    }

    fn shared(&self) -> bool {
        true
    }
}
