//! One file of a volume: the [`Inode`] operations, each a request.

use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::any::Any;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use doppel_abi_service::storage::{
    Attributes, Changes, Lease, Leases, Operation, Request, TARGET, VOLUMES, file_event, flags, set,
};
use doppel_machine::sync::{Once, SpinLock};

use super::call::{Before, Call};
use super::mapped::Held;
use super::names::Names;
use super::unwritten::Failed;
use super::writes::passing::Passing;
use super::{Storage, known, storage};
use crate::core::sched::Mutex;
use crate::core::time;
use crate::objects::lookup::perm::Perm;
use crate::objects::vfs::attach::Attachments;
use crate::objects::vfs::attach::locks::Outside;
use crate::objects::vfs::file::FileOps;
use crate::objects::vfs::flags::{OpenFlags, RenameFlags, SetXattr};
use crate::objects::vfs::inode::{FileType, Inode, SetAttr, Stat, StatFs};
use crate::{Errno, Result};

/// A volume of the domain, mounted.
pub(super) struct Volume {
    pub storage: &'static Storage,
    /// The service's number for it.
    pub number: u64,
    /// Device number.
    dev: u64,
    pub leases: &'static Leases,
    /// Whether its file system has room for what waits, and until when that is to be relied upon.
    pub room: SpinLock<(bool, u64)>,
    /// Changes of names that wait.
    pub names: Names,
}

/// Attributes as the service last told of them.
pub(super) struct Seen {
    pub attributes: Attributes,
    /// Under which they are those of this moment.
    lease: Lease,
    /// How often this domain has changed them.
    changes: u32,
    /// When a read last asked for another time of access.
    pub touched: i64,
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
    pub(super) seen: SpinLock<Seen>,
    /// What is in memory of it.
    pub(super) mapped: Mutex<Held>,
    /// Writes that go past that.
    pub(super) passing: Passing,
    /// It was read since somebody last wanted its pages' memory.
    pub(super) used: AtomicBool,
    /// Where a read that goes on begins.
    pub(super) next_read: AtomicU64,
    /// Bytes before this were read past the pages.
    pub(super) read_past: AtomicU64,
    /// Bytes of it wait, or are under way.
    pub(super) waits: AtomicBool,
    /// Requests of PID 1's that write it.
    pub(super) flying: AtomicU32,
    /// Its number among those that wait.
    pub(super) turn: AtomicU64,
    pub(super) failed: Failed,
    /// The service has it open for writing until a program closes it.
    pub(super) is_held: AtomicBool,
    /// A symbolic link's target, once it was asked for.
    target: Once<Box<[u8]>>,
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
    let leases = doppel_machine::storage::leases();
    let dev = crate::objects::vfs::mount::new_dev();
    let volume =
        Arc::new(Volume { storage, number, dev, leases, room: SpinLock::default(), names: Names::default() });
    let call = storage.call_at(Before { lease: volume.lease(), ..Before::default() });
    call.ask(Request::new(Operation::GetAttr, number))?;
    let kind = FileType::from_mode(call.attributes().mode).ok_or(Errno::EIO)?;
    let root = Node::make(&volume, number, kind, &call);
    drop(call);
    storage.roots.lock().push(Arc::downgrade(&root));
    Ok(root)
}

impl Volume {
    /// The lease that it has.
    pub fn given(&self) -> Lease {
        let lease = self.leases.lease(self.number).behind(self.storage.leases_before.load(Ordering::SeqCst));
        lease.at(time::monotonic_ns)
    }

    /// What may be kept of it now.
    pub fn lease(&self) -> Lease {
        let lease = self.given();
        // What is known of names may be wrong: nothing is kept until another one comes.
        let distrusted = self.names.distrusted.load(Ordering::SeqCst);
        if lease.is_held() && lease.number() == distrusted { Lease::NONE } else { lease }
    }

    /// Others have changed something in it: what is kept is nothing worth, until there is another lease.
    fn distrust(&self) {
        self.names.distrusted.store(self.given().number(), Ordering::SeqCst);
    }

    /// Whether no bytes of its files wait.
    pub fn is_written(&self) -> bool {
        self.leases.is_written(self.number)
    }
}

impl Node {
    /// A new one, with the attributes that an answer brought.
    fn make(volume: &Arc<Volume>, id: u64, kind: FileType, call: &Call) -> Arc<Self> {
        // One with this number may have changed it, and may have been forgotten, while it was asked for.
        let same = volume.storage.drops.load(Ordering::SeqCst) == call.before.drops;
        let lease = if same { call.before.lease } else { Lease::NONE };
        let seen = Seen { attributes: call.attributes(), lease, changes: 0, touched: 0 };
        Arc::new_cyclic(|me| Self {
            volume: volume.clone(),
            me: me.clone(),
            id,
            given: AtomicU64::new(0),
            nameless: AtomicBool::new(false),
            kind,
            seen: SpinLock::new(seen),
            mapped: Mutex::default(),
            passing: Passing::default(),
            used: AtomicBool::new(false),
            next_read: AtomicU64::new(0),
            read_past: AtomicU64::new(0),
            waits: AtomicBool::new(false),
            flying: AtomicU32::new(0),
            turn: AtomicU64::new(0),
            failed: Failed::default(),
            is_held: AtomicBool::new(false),
            target: Once::new(),
            attachments: Attachments::default(),
        })
    }

    pub(super) fn call(&self) -> Call {
        self.volume.storage.call_at(self.before())
    }

    /// What others keep with it.
    pub(super) fn attached(&self) -> &Attachments {
        &self.attachments
    }

    /// This moment.
    pub(super) fn before(&self) -> Before {
        Before { lease: self.lease(), changes: self.changes(), ..Before::default() }
    }

    /// How often this domain has changed its attributes.
    pub(super) fn changes(&self) -> u32 {
        self.seen.lock().changes
    }

    /// What may be kept of its volume now.
    pub(super) fn lease(&self) -> Lease {
        self.volume.lease()
    }

    pub(super) fn request(&self, operation: Operation) -> Request {
        Request::new(operation, self.id)
    }

    /// Keeps the attributes that an answer brought; `changes`: what was asked for has changed them.
    pub(super) fn note(&self, call: &Call, changes: bool) -> Attributes {
        let now = call.attributes();
        let mut seen = self.seen.lock();
        // What others have done meanwhile they may show or not.
        let same = seen.changes == call.before.changes;
        if same || !call.before.lease.is_held() {
            seen.attributes = now;
        }
        // Changes of names that wait will change its times.
        let settled = same && self.volume.names.is_empty();
        seen.lease = if settled { call.before.lease } else { Lease::NONE };
        seen.changes = seen.changes.wrapping_add(changes.into());
        now
    }

    /// Others have changed it, or something in it.
    pub(super) fn distrust(&self) {
        self.volume.distrust();
        self.changed();
    }

    /// Its attributes were changed by something whose answer does not bring them.
    pub(super) fn changed(&self) {
        let mut seen = self.seen.lock();
        seen.lease = Lease::NONE;
        seen.changes = seen.changes.wrapping_add(1);
    }

    /// Its attributes, if nobody need be asked.
    fn known(&self) -> Option<Attributes> {
        let lease = self.lease();
        // What waits will change them.
        if !lease.is_held() || self.waits.load(Ordering::SeqCst) {
            return None;
        }
        let seen = self.seen.lock();
        (seen.lease == lease).then_some(seen.attributes)
    }

    /// The node that an answer gave, with its attributes.
    fn given(&self, call: &Call, id: u64) -> Result<Arc<Self>> {
        let seen = call.attributes();
        let kind = FileType::from_mode(seen.mode).ok_or(Errno::EIO)?;
        if id < VOLUMES {
            return Err(Errno::EIO);
        }
        let (node, known) = known(self.volume.storage, id, || Self::make(&self.volume, id, kind, call));
        node.given.fetch_add(1, Ordering::Relaxed);
        // Under a lease what is known of it is as good.
        if known && node.known().is_none() {
            node.seen.lock().attributes = seen;
        }
        // A service that is honest gives a number to one file.
        if node.kind == kind { Ok(node) } else { Err(Errno::EIO) }
    }

    /// Writes all of its file system to where it survives a power cut.
    pub fn sync_all(&self) -> Result<()> {
        super::settle(true);
        self.volume.storage.write_all_out();
        self.ordered_call().ask(Request { flags: flags::ALL, ..self.request(Operation::Sync) }).map(drop)
    }

    /// Another file of the same volume.
    fn same_volume(&self, inode: &Arc<dyn Inode>) -> Result<Arc<Self>> {
        let any: Arc<dyn Any + Send + Sync> = inode.clone();
        let node = any.downcast::<Self>().map_err(|_| Errno::EXDEV)?;
        if Arc::ptr_eq(&node.volume, &self.volume) { Ok(node) } else { Err(Errno::EXDEV) }
    }

    /// Its attributes, once all that was written is.
    pub(super) fn look(&self) -> Attributes {
        self.write_out();
        self.asked()
    }

    /// Asks for attributes that are not known; what was seen last if the file is no more.
    pub(super) fn asked(&self) -> Attributes {
        if let Some(known) = self.known() {
            return known;
        }
        let call = self.ordered_call();
        match call.ask(self.request(Operation::GetAttr)) {
            Ok(_) => self.note(&call, false),
            Err(_) => self.seen.lock().attributes,
        }
    }

    pub(super) fn change(&self, changes: &Changes, which: u32) -> Result<()> {
        let call = self.ordered_call();
        call.changes(changes);
        // One that fails may have changed some.
        let done = call.ask(Request { flags: which, ..self.request(Operation::SetAttr) });
        match done {
            Ok(_) => drop(self.note(&call, true)),
            Err(_) => self.changed(),
        }
        done.map(drop)
    }

    fn remove(&self, operation: Operation, name: &[u8], unused: bool) -> Result<()> {
        let call = self.ordered_call();
        let request = Request { a: call.name(name), flags: losing(unused), ..self.request(operation) };
        let done = call.ask(request).map(drop);
        self.changed();
        self.proves(done)
    }

    /// If a change of names was made, they can be changed.
    fn proves<T>(&self, done: Result<T>) -> Result<T> {
        done.inspect(|_| self.volume.names.prove())
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
        storage.drops.fetch_add(1, Ordering::SeqCst);
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
        self.shown(&self.seen.lock().attributes)
    }

    fn at_hand(&self, out: &mut Stat) -> bool {
        let known = self.known();
        if let Some(known) = &known {
            *out = self.shown(known);
        }
        known.is_some()
    }

    fn kind(&self) -> FileType {
        self.kind
    }

    fn place(&self) -> (u64, u64) {
        (self.volume.dev, self.seen.lock().attributes.ino)
    }

    fn perm(&self) -> Perm {
        let seen = self.seen.lock().attributes;
        Perm { mode: seen.mode, uid: seen.uid, gid: seen.gid }
    }

    fn statfs(&self) -> StatFs {
        let call = self.ordered_call();
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
            None => {
                self.write_out();
                self.change(&changes, which)
            }
        }
    }

    fn lookup(&self, name: &[u8]) -> Result<Arc<dyn Inode>> {
        if self.kind != FileType::Directory {
            return Err(Errno::ENOTDIR);
        }
        let call = self.ordered_call();
        let request = Request { a: call.name(name), ..self.request(Operation::Lookup) };
        let id = call.ask(request)?.node;
        Ok(self.given(&call, id)?)
    }

    fn create(&self, name: &[u8], mode: u32, uid: u32, gid: u32, rdev: u64) -> Result<Arc<dyn Inode>> {
        let call = self.ordered_call();
        let request = Request {
            a: call.name(name),
            b: mode.into(),
            c: uid,
            d: gid,
            other: rdev,
            ..self.request(Operation::Make)
        };
        let made = self.proves(call.ask(request));
        self.changed();
        Ok(self.given(&call, made?.node)?)
    }

    fn symlink(&self, name: &[u8], target: &[u8], uid: u32, gid: u32) -> Result<Arc<dyn Inode>> {
        if target.len() > TARGET {
            return Err(Errno::ENAMETOOLONG);
        }
        let call = self.ordered_call();
        let (a, b) = (call.name(name), call.second(target));
        let made = call.ask(Request { a, b, c: uid, d: gid, ..self.request(Operation::Symlink) });
        self.changed();
        Ok(self.given(&call, made?.node)?)
    }

    fn link(&self, name: &[u8], inode: &Arc<dyn Inode>) -> Result<()> {
        let file = self.same_volume(inode)?;
        if file.nameless.load(Ordering::Relaxed) {
            return Err(Errno::ENOENT);
        }
        let call = file.ordered_call();
        let request = Request { a: call.name(name), other: self.id, ..file.request(Operation::Link) };
        let done = call.ask(request);
        self.changed();
        done?;
        file.note(&call, true);
        // Whoever takes a name away has to know that there is another one.
        let links = call.attributes().nlink;
        let mut seen = file.seen.lock();
        seen.attributes.nlink = seen.attributes.nlink.max(links);
        Ok(())
    }

    fn unlink(&self, name: &[u8], unused: bool) -> Result<()> {
        if unused && self.unlink_later(name) {
            self.changed();
            return Ok(());
        }
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
        let call = self.ordered_call();
        let (a, b) = (call.name(name), call.second(new_name));
        let request = Request {
            a,
            b,
            other: to.id,
            flags: flags.bits() | losing(unused),
            ..self.request(Operation::Rename)
        };
        let done = call.ask(request).map(drop);
        self.changed();
        to.changed();
        self.proves(done)
    }

    fn rename_later(&self, name: &[u8], new_dir: &Arc<dyn Inode>, new_name: &[u8]) -> bool {
        let Ok(to) = self.same_volume(new_dir) else { return false };
        let later = self.rename_later_to(name, &to, new_name);
        if later {
            self.changed();
            to.changed();
        }
        later
    }

    fn tmpfile(&self, mode: u32, uid: u32, gid: u32) -> Result<Arc<dyn Inode>> {
        let call = self.ordered_call();
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
        if let Some(target) = self.target.get() {
            return Ok(target.to_vec());
        }
        let call = self.call();
        let len = call.ask(self.request(Operation::ReadLink))?.value;
        let target = call.text(Call::length(len, TARGET)?);
        // Who has set it meanwhile has set the same.
        let _ = self.target.set(target.clone().into());
        Ok(target)
    }

    fn link_text(&self) -> Option<&[u8]> {
        self.target.get().map(|target| &**target)
    }

    fn name_changed(&self, gone: bool) {
        // Nobody will read what waits.
        if gone && self.waits.load(Ordering::SeqCst) && self.seen.lock().attributes.nlink <= 1 {
            let mut held = self.mapped.lock();
            if let Some(m) = held.as_mut() {
                self.cut(m, 0);
            }
            self.is_written(&held);
        }
        self.changed();
    }

    fn own_references(&self) -> usize {
        self.waits.load(Ordering::SeqCst).into()
    }

    fn lease_number(&self) -> u32 {
        self.volume.lease().number()
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

    fn watch(&self, events: &dyn Fn() -> u32) -> Result<()> {
        let storage = self.volume.storage;
        let number = storage.watched_files.begin(self.id, self.me.clone());
        let wanted = u64::from(events() & file_event::ALL);
        if wanted == 0 {
            // Who only reads is not told of.
            return Ok(());
        }
        let request = Request { a: wanted, b: number, ..self.request(Operation::Watch) };
        storage.call().ask(request).map(drop)
    }

    fn unwatch(&self, is_watched: &dyn Fn() -> bool) {
        let storage = self.volume.storage;
        storage.watched_files.end(&storage.link, self.id, is_watched);
    }

    fn outside_locks(&self) -> Option<&dyn Outside> {
        Some(self)
    }

    fn shared(&self) -> bool {
        true
    }
}
