//! File change notification (`inotify(7)`).
//!
//! Key types: [`Inotify`] (an instance), [`Watch`] (one watched inode of one instance). Watches hang on the inode
//! as an attachment and hold it, so that it stays the same object. Boundary: the file system calls the
//! `*_event` functions after a change, with no lock held; without any watch in the domain they cost one load.
//! Lock order: an inode's list of watches → nothing; an instance's state → its wait queue.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use doppel_machine::sync::SpinLock;
use doppel_machine::user::UserPtr;

use super::dnotify;
use super::fanotify::{self, Change, Entry, FanMask};
use crate::core::sched::{PollEvents, PollTable, WaitQueue, wait_until};
use crate::objects::lookup::path::Path;
pub use crate::objects::vfs::attach::notify::InotifyMask;
use crate::objects::vfs::attach::notify::{count, uncount, watching};
use crate::objects::vfs::dentry::Dentry;
use crate::objects::vfs::file::{Splice, WATCHERS, Watchers};
use crate::objects::vfs::flags::OpenFlags;
use crate::objects::vfs::{File, FileOps, FileType, Inode, Output};
use crate::{Errno, Result};

/// Most events of one instance that wait to be read (`/proc/sys/fs/inotify/max_queued_events`).
const MAX_QUEUED: usize = 16_384;
/// Most watches of one instance.
const MAX_WATCHES: usize = 65_536;
/// Size of `struct inotify_event` without its name.
const HEADER: usize = 16;
const FIONREAD: u32 = 0x541b;

#[derive(Clone, PartialEq, Eq)]
struct Event {
    wd: i32,
    mask: InotifyMask,
    cookie: u32,
    name: Vec<u8>,
}

impl Event {
    /// Some were lost.
    const OVERFLOW: Self = Self { wd: -1, mask: InotifyMask::Q_OVERFLOW, cookie: 0, name: Vec::new() };

    /// Bytes it takes when read: names are padded to a multiple of the header with at least one NUL.
    fn size(&self) -> usize {
        HEADER + if self.name.is_empty() { 0 } else { (self.name.len() + 1).next_multiple_of(HEADER) }
    }
}

/// One watched inode.
pub struct Watch {
    wd: i32,
    mask: AtomicU32,
    instance: Weak<Inotify>,
    inode: Arc<dyn Inode>,
}

/// The watches of an inode, as its attachment.
#[derive(Default)]
struct Watches(SpinLock<Vec<Arc<Watch>>>);

#[derive(Default)]
struct State {
    queue: VecDeque<Event>,
    watches: BTreeMap<i32, Arc<Watch>>,
    last_wd: i32,
}

/// An inotify instance.
pub struct Inotify {
    me: Weak<Inotify>,
    state: SpinLock<State>,
    readable: Arc<WaitQueue>,
}

/// Has files tell of what happens to them. Once in each process of the domain.
pub fn run() {
    WATCHERS.set(Watchers { closed: dnotify::closed, event: tell_file });
}

/// Something happened to an open file that has a name.
#[inline]
pub fn file_event(file: &File, mask: InotifyMask) {
    if watching() {
        tell_file(file, mask);
    }
}

/// An open file is to be read. EPERM if one of those who want to be asked does not allow it.
#[inline]
pub fn ask_access(file: &File) -> Result<()> {
    if watching() { ask_cold(file) } else { Ok(()) }
}

#[cold]
fn ask_cold(file: &File) -> Result<()> {
    match &file.path {
        Some(p) if !file.is_quiet() => fanotify::ask(p, FanMask::ACCESS_PERM),
        _ => Ok(()),
    }
}

#[cold]
fn tell_file(file: &File, mask: InotifyMask) {
    if file.is_quiet() {
        return;
    }
    match &file.path {
        Some(p) => tell_path(p, mask),
        None => {
            if let Some(i) = &file.inode {
                tell(i, mask, 0, &[], false);
            }
        }
    }
}

/// A file is opened to be executed. EPERM if one of those who want to be asked does not allow it.
pub fn exec_event(path: &Path) -> Result<()> {
    if watching() {
        fanotify::ask(path, FanMask::OPEN_EXEC_PERM)?;
        fanotify::ask(path, FanMask::OPEN_PERM)?;
        fanotify::path_change(path, FanMask::OPEN | FanMask::OPEN_EXEC);
    }
    Ok(())
}

/// Something happened to the file at a place: tells its own watches and, with its name, its directory's.
pub fn path_event(path: &Path, mask: InotifyMask) {
    if watching() {
        tell_path(path, mask);
    }
}

/// A name in a directory was made, removed or moved; what it stands for is `child`.
pub fn name_event(dir: &Arc<Dentry>, name: &[u8], child: &Arc<Dentry>, mask: InotifyMask, cookie: u32) {
    if watching() {
        let is_dir = child.kind() == FileType::Directory;
        tell(dir.inode(), mask | InotifyMask::ISDIR.when(is_dir), cookie, name, false);
        let entry = Some(Entry { dir, name });
        fanotify::tell(&Change {
            mask: fan_mask(mask),
            object: child.inode(),
            at: Some(child),
            path: None,
            entry,
            renamed: None,
        });
    }
}

/// The same events, as fanotify has them.
fn fan_mask(mask: InotifyMask) -> FanMask {
    FanMask::from_bits_truncate(u64::from((mask & InotifyMask::ALL_EVENTS).bits()))
}

/// A name was moved: tells of both at once.
pub fn rename_event(from: Entry<'_>, to: Entry<'_>, child: &Arc<Dentry>) {
    if watching() {
        fanotify::tell(&Change {
            mask: FanMask::RENAME,
            object: child.inode(),
            at: Some(child),
            path: None,
            entry: Some(from),
            renamed: Some(to),
        });
    }
}

/// Something happened to an inode itself (IN_ATTRIB, IN_MOVE_SELF, IN_DELETE_SELF).
pub fn inode_event(inode: &Arc<dyn Inode>, mask: InotifyMask) {
    if watching() {
        let gone = mask.contains(InotifyMask::DELETE_SELF);
        let dir = inode.kind() == FileType::Directory && !gone;
        tell(inode, mask | InotifyMask::ISDIR.when(dir), 0, &[], false);
        fanotify::tell(&Change {
            mask: fan_mask(mask),
            object: inode,
            at: None,
            path: None,
            entry: None,
            renamed: None,
        });
        if gone {
            forget(inode);
        }
    }
}

/// A file has another size than before, which no open file has been used for: fanotify has no descriptor of that.
pub fn size_event(path: &Path) {
    if watching() {
        tell_names(path, InotifyMask::MODIFY);
        let (dir, name) = (path.dentry().parent(), path.dentry().name());
        fanotify::tell(&Change {
            mask: FanMask::MODIFY,
            object: path.inode(),
            at: Some(path.dentry()),
            path: None,
            entry: dir.as_ref().map(|dir| Entry { dir, name: &name }),
            renamed: None,
        });
    }
}

fn tell_path(path: &Path, mask: InotifyMask) {
    tell_names(path, mask);
    fanotify::path_change(path, fan_mask(mask));
}

/// Tells the watches of a file and those of its directory.
fn tell_names(path: &Path, mask: InotifyMask) {
    let is_dir = path.dentry().kind() == FileType::Directory;
    let mask = mask | InotifyMask::ISDIR.when(is_dir);
    if let Some(dir) = path.dentry().parent() {
        tell(dir.inode(), mask, 0, &path.dentry().name(), path.deleted());
    }
    tell(path.inode(), mask, 0, &[], false);
}

/// Others have changed a file, or a name in a directory, which outlives what it stood for. Whoever tells of that may not wait.
pub fn outside_event(inode: &Arc<dyn Inode>, mask: InotifyMask, cookie: u32, name: &[u8]) {
    queue(inode, mask, cookie, name, false);
    if mask.contains(InotifyMask::DELETE_SELF) {
        forget(inode);
    }
}

/// Others may have changed a file, and nobody knows how.
pub fn missed(inode: &Arc<dyn Inode>) {
    let Some(list) = inode.attachments().and_then(|a| a.get::<Watches>()) else { return };
    let watches: Vec<_> = list.0.lock().clone();
    for instance in watches.iter().filter_map(|w| w.instance.upgrade()) {
        instance.push(Event::OVERFLOW);
    }
}

/// Tells the watches of `inode` that want it.
fn tell(inode: &Arc<dyn Inode>, mask: InotifyMask, cookie: u32, name: &[u8], unlinked: bool) {
    if !name.is_empty() || mask.contains(InotifyMask::ISDIR) {
        dnotify::tell(inode, mask);
    }
    queue(inode, mask, cookie, name, unlinked);
}

/// Queues an event at them.
fn queue(inode: &Arc<dyn Inode>, mask: InotifyMask, cookie: u32, name: &[u8], unlinked: bool) {
    let Some(list) = inode.attachments().and_then(|a| a.get::<Watches>()) else { return };
    let watches: Vec<_> = list.0.lock().clone();
    for w in watches {
        let want = w.mask();
        if !(want & mask).intersects(InotifyMask::ALL_EVENTS)
            || (unlinked && want.contains(InotifyMask::EXCL_UNLINK))
        {
            continue;
        }
        let Some(i) = w.instance.upgrade() else { continue };
        i.push(Event { wd: w.wd, mask: mask - InotifyMask::DONT_FOLLOW, cookie, name: name.to_vec() });
        if want.contains(InotifyMask::ONESHOT) {
            i.drop_watch(w.wd);
        }
    }
}

/// The inode is gone: ends its watches.
fn forget(inode: &Arc<dyn Inode>) {
    let Some(list) = inode.attachments().and_then(|a| a.get::<Watches>()) else { return };
    let watches: Vec<_> = list.0.lock().clone();
    for w in watches {
        if let Some(i) = w.instance.upgrade() {
            i.drop_watch(w.wd);
        }
    }
}

impl Watch {
    /// What it is told of.
    fn mask(&self) -> InotifyMask {
        InotifyMask::from_bits_retain(self.mask.load(Ordering::Relaxed))
    }

    /// Takes the watch off its inode.
    fn detach(self: &Arc<Self>) {
        let list = self.inode.attachments().and_then(|a| a.get::<Watches>());
        if let Some(l) = list {
            l.0.lock().retain(|w| !Arc::ptr_eq(w, self));
        }
        uncount(1);
        self.inode.unwatch(&|| wanted(&self.inode) != 0);
    }
}

/// The events that watches of an inode want.
fn wanted(inode: &Arc<dyn Inode>) -> u32 {
    let list = inode.attachments().and_then(|a| a.get::<Watches>());
    list.map_or(0, |list| list.0.lock().iter().fold(0, |all, w| all | w.mask().bits()))
}

impl Inotify {
    fn push(&self, e: Event) {
        {
            let mut s = self.state.lock();
            // The same event again before the first was read tells nothing new.
            if s.queue.back() == Some(&e) {
                return;
            }
            if s.queue.len() < MAX_QUEUED {
                s.queue.push_back(e);
            } else if s.queue.len() == MAX_QUEUED {
                s.queue.push_back(Event::OVERFLOW);
            } else {
                return;
            }
        }
        self.readable.wake_all(PollEvents::READABLE);
    }

    /// Ends a watch; EINVAL if there is none of this number.
    pub(crate) fn drop_watch(&self, wd: i32) -> Option<()> {
        let w = self.state.lock().watches.remove(&wd)?;
        w.detach();
        self.push(Event { wd, mask: InotifyMask::IGNORED, cookie: 0, name: Vec::new() });
        Some(())
    }

    /// Watches what was found; who may is the caller's matter. Others that may change it tell of that from here on.
    pub fn add(&self, path: &Path, mask: InotifyMask) -> Result<i32> {
        let inode = path.inode();
        let (wd, new) = self.enter(inode, mask)?;
        let watched = inode.watch(&|| wanted(inode));
        if watched.is_err() && new {
            // It was never there.
            let gone = self.state.lock().watches.remove(&wd);
            gone.iter().for_each(Watch::detach);
        }
        watched.map(|()| wd)
    }

    /// The number of the watch of an inode, and whether it is a new one.
    fn enter(&self, inode: &Arc<dyn Inode>, mask: InotifyMask) -> Result<(i32, bool)> {
        let list = inode.attachments().map(|a| a.get_or_insert(Watches::default));
        let mut s = self.state.lock();
        let same = |w: &&Arc<Watch>| Arc::ptr_eq(&w.inode, inode);
        if let Some(w) = s.watches.values().find(same) {
            if mask.contains(InotifyMask::MASK_CREATE) {
                return Err(Errno::EEXIST);
            }
            let all = if mask.contains(InotifyMask::MASK_ADD) { w.mask() | mask } else { mask };
            w.mask.store(all.bits(), Ordering::Relaxed);
            return Ok((w.wd, false));
        }
        if s.watches.len() >= MAX_WATCHES {
            return Err(Errno::ENOSPC);
        }
        s.last_wd += 1;
        let wd = s.last_wd;
        let w = Arc::new(Watch {
            wd,
            mask: AtomicU32::new(mask.bits()),
            instance: self.me.clone(),
            inode: inode.clone(),
        });
        s.watches.insert(wd, w.clone());
        drop(s);
        count(1);
        if let Some(l) = list {
            l.0.lock().push(w);
        }
        Ok((wd, true))
    }

    /// Takes the first event if it takes at most `room` bytes. `None` if the queue is empty.
    fn pop(&self, room: usize) -> Option<Result<Event>> {
        let mut s = self.state.lock();
        if s.queue.front()?.size() > room {
            return Some(Err(Errno::EINVAL));
        }
        s.queue.pop_front().map(Ok)
    }
}

fn put(out: &mut Output<'_>, e: &Event) -> Result<usize> {
    let mut b = Vec::with_capacity(e.size());
    b.extend_from_slice(&e.wd.to_ne_bytes());
    b.extend_from_slice(&e.mask.bits().to_ne_bytes());
    b.extend_from_slice(&e.cookie.to_ne_bytes());
    b.extend_from_slice(&((e.size() - HEADER) as u32).to_ne_bytes());
    b.extend_from_slice(&e.name);
    b.resize(e.size(), 0);
    out.write(&b)
}

impl Inotify {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new_cyclic(|me| Self { me: me.clone(), state: SpinLock::default(), readable: Arc::default() })
    }

    /// A new instance as an open file, to be released by who made it.
    pub fn file() -> Arc<File> {
        File::anon(Self::new(), "anon_inode:inotify".into(), OpenFlags::RDONLY)
    }
}

impl FileOps for Inotify {
    fn splice(&self) -> Splice {
        Splice::Neither
    }

    fn read(&self, file: &File, out: &mut Output<'_>, _offset: u64) -> Result<usize> {
        let first = match self.pop(out.remaining()) {
            Some(e) => e?,
            None if file.nonblocking() => return Err(Errno::EAGAIN),
            None => wait_until(&self.readable, None, || self.pop(out.remaining()))??,
        };
        let mut done = put(out, &first)?;
        while let Some(Ok(e)) = self.pop(out.remaining()) {
            done += put(out, &e)?;
        }
        Ok(done)
    }

    fn poll(&self, _file: &File, table: Option<&mut PollTable>) -> PollEvents {
        if let Some(t) = table {
            t.add(&self.readable);
        }
        PollEvents::READABLE.when(!self.state.lock().queue.is_empty())
    }

    fn ioctl(&self, _file: &File, cmd: u32, arg: u64) -> Result<u64> {
        if cmd != FIONREAD {
            return Err(Errno::ENOTTY);
        }
        let n: usize = self.state.lock().queue.iter().map(Event::size).sum();
        UserPtr(arg).write(&(n as u32))?;
        Ok(0)
    }

    fn release(&self, _file: &File) {
        let watches = core::mem::take(&mut self.state.lock().watches);
        for w in watches.values() {
            w.detach();
        }
    }

    fn fdinfo(&self, _file: &File, out: &mut alloc::string::String) {
        for w in self.state.lock().watches.values() {
            let (dev, ino) = w.inode.place();
            let mask = w.mask.load(Ordering::Relaxed);
            out.push_str(&alloc::format!(
                "inotify wd:{:x} ino:{ino:x} sdev:{dev:x} mask:{mask:x} ignored_mask:0\n",
                w.wd
            ));
        }
    }
}
