//! Groups: who is told, and reads it.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use doppel_machine::sync::SpinLock;
use doppel_machine::user::UserPtr;

use super::flags::{FanMask, InitFlags, MarkFlags};
use super::marks::{MARKS, Mark, Place, Wants};
use super::records::{self, Files, METADATA, NO_FD};
use crate::core::hook::Hook;
use crate::core::sched::{PollEvents, PollTable, WaitQueue, wait_until};
use crate::objects::lookup::path::Path;
use crate::objects::vfs::attach::handle::Handle;
use crate::objects::vfs::file::Splice;
use crate::objects::vfs::flags::OpenFlags;
use crate::objects::vfs::{File, FileOps, Input, Output};
use crate::{Errno, Result};

/// Most events of a group that wait to be read.
const MAX_QUEUED: usize = 16_384;
/// Most groups and marks of a user.
const MAX_GROUPS: usize = 128;
const MAX_MARKS: usize = 8192;
/// How many events back one is looked for that says the same.
const MERGE_DEPTH: usize = 128;
const FIONREAD: u32 = 0x541b;
const ALLOW: u32 = 1;
const DENY: u32 = 2;

/// What readers are given by the layers above.
#[derive(Clone, Copy)]
pub struct Ways {
    /// A descriptor of a file, which tells nobody of what is done with it.
    pub open: fn(Path, OpenFlags) -> Result<i32>,
    /// Closes a descriptor that could not be told.
    pub close: fn(i32),
    /// A descriptor of a process.
    pub process: fn(i32) -> Result<i32>,
}

/// Set at boot.
pub static WAYS: Hook<Ways> = Hook::new();

/// A question that somebody waits to have answered.
#[derive(Default)]
pub(super) struct Question {
    /// 0: not yet.
    answer: AtomicU32,
    pub(super) queue: WaitQueue,
}

impl Question {
    fn give(&self, answer: u32) {
        self.answer.store(answer, Ordering::SeqCst);
        self.queue.notify_all();
    }

    /// Whether it may be done, if that is known.
    pub(super) fn answer(&self) -> Option<Result<()>> {
        match self.answer.load(Ordering::SeqCst) {
            0 => None,
            ALLOW => Some(Ok(())),
            _ => Some(Err(Errno::EPERM)),
        }
    }
}

/// An event that waits to be read.
pub(super) struct Event {
    pub(super) mask: FanMask,
    /// Process or thread that did it.
    pub(super) id: i32,
    pub(super) pid: i32,
    pub(super) path: Option<Path>,
    pub(super) files: Files,
    pub(super) question: Option<Arc<Question>>,
}

impl Event {
    /// Whether two tell of the same, but for what was done.
    fn like(&self, o: &Self) -> bool {
        const APART: FanMask = FanMask::ONDIR.union(FanMask::RENAME).union(FanMask::Q_OVERFLOW);
        let same_path = match (&self.path, &o.path) {
            (Some(a), Some(b)) => a.same(b),
            (None, None) => true,
            _ => false,
        };
        self.question.is_none()
            && o.question.is_none()
            && self.id == o.id
            && self.mask & APART == o.mask & APART
            && same_path
            && self.files == o.files
    }
}

#[derive(Default)]
struct State {
    queue: VecDeque<Event>,
    overflown: bool,
    marks: Vec<Arc<Mark>>,
    /// Questions that were read and not answered yet, by the descriptor they were told with.
    asked: BTreeMap<i32, Arc<Question>>,
    closed: bool,
}

/// A group.
pub struct Group {
    me: Weak<Group>,
    /// How it was made.
    pub flags: InitFlags,
    /// How files of its events are opened.
    event_flags: OpenFlags,
    /// Made by who had no CAP_SYS_ADMIN: it hears of no processes but its reader's.
    pub unprivileged: bool,
    uid: u32,
    state: SpinLock<State>,
    readable: Arc<WaitQueue>,
}

impl Group {
    /// A new one of a user's. EMFILE if it has too many.
    pub fn new(flags: InitFlags, event_flags: OpenFlags, unprivileged: bool, uid: u32) -> Result<Arc<Self>> {
        let mut users = MARKS.users.lock();
        let groups = &mut users.entry(uid).or_default().0;
        if *groups >= MAX_GROUPS {
            return Err(Errno::EMFILE);
        }
        *groups += 1;
        drop(users);
        Ok(Arc::new_cyclic(|me| Self {
            me: me.clone(),
            flags,
            event_flags,
            unprivileged,
            uid,
            state: SpinLock::default(),
            readable: Arc::default(),
        }))
    }

    /// Whether files are told by handles.
    pub fn by_handle(&self) -> bool {
        self.flags.intersects(InitFlags::FID)
    }

    /// Tells of an event.
    pub(super) fn push(&self, e: Event) {
        {
            let mut s = self.state.lock();
            if s.closed {
                if let Some(q) = e.question {
                    q.give(ALLOW);
                }
                return;
            }
            if let Some(old) = s.queue.iter_mut().rev().take(MERGE_DEPTH).find(|old| old.like(&e)) {
                old.mask |= e.mask;
                return;
            }
            let full = s.queue.len() >= MAX_QUEUED && !self.flags.contains(InitFlags::UNLIMITED_QUEUE);
            let full = full || doppel_machine::arena::low();
            if !full {
                s.queue.push_back(e);
            } else {
                if let Some(q) = e.question {
                    q.give(ALLOW);
                }
                if core::mem::replace(&mut s.overflown, true) {
                    return;
                }
                s.queue.push_back(Event {
                    mask: FanMask::Q_OVERFLOW,
                    id: 0,
                    pid: 0,
                    path: None,
                    files: Files::default(),
                    question: None,
                });
            }
        }
        self.readable.wake_all(PollEvents::READABLE);
    }

    /// Takes the mark of this place, if the group has one.
    fn mark_of(&self, place: &Place) -> Option<Arc<Mark>> {
        self.state.lock().marks.iter().find(|m| m.place.is(place)).cloned()
    }

    /// Whether a mark of this place may be changed so: EEXIST if it says something that does not go with it.
    fn may_change(wants: &Wants, flags: MarkFlags) -> Result<()> {
        let ignores = flags.intersects(MarkFlags::IGNORES);
        let other = flags & MarkFlags::EVICTABLE;
        let firm = !other.is_empty() && !wants.flags.contains(MarkFlags::EVICTABLE);
        let kind = wants.flags.contains(MarkFlags::IGNORE) != flags.contains(MarkFlags::IGNORE);
        let had = !wants.ignored.is_empty() || wants.flags.contains(MarkFlags::IGNORE);
        let weaker = wants.flags.contains(MarkFlags::IGNORE | MarkFlags::IGNORED_SURV_MODIFY)
            && flags.contains(MarkFlags::IGNORE)
            && !flags.contains(MarkFlags::IGNORED_SURV_MODIFY);
        if firm || ignores && had && kind || weaker { Err(Errno::EEXIST) } else { Ok(()) }
    }

    /// Adds to what the group wants to know of a place.
    pub fn add(&self, place: Place, mask: FanMask, flags: MarkFlags) -> Result<()> {
        let mark = match self.mark_of(&place) {
            Some(m) => m,
            None => self.new_mark(place, flags)?,
        };
        let mut w = mark.wants.lock();
        Self::may_change(&w, flags)?;
        let asked = w.mask.intersects(FanMask::PERM);
        if flags.intersects(MarkFlags::IGNORES) {
            w.ignored |= mask;
            w.flags |= flags & (MarkFlags::IGNORED_SURV_MODIFY | MarkFlags::IGNORE);
        } else {
            w.mask |= mask;
        }
        if !flags.contains(MarkFlags::EVICTABLE) {
            w.flags -= MarkFlags::EVICTABLE;
        }
        if !asked && w.mask.intersects(FanMask::PERM) {
            MARKS.will_ask();
        }
        Ok(())
    }

    /// A mark that says nothing yet. ENOSPC if the user has too many.
    fn new_mark(&self, place: Place, flags: MarkFlags) -> Result<Arc<Mark>> {
        let mut users = MARKS.users.lock();
        let marks = &mut users.entry(self.uid).or_default().1;
        if *marks >= MAX_MARKS && !self.flags.contains(InitFlags::UNLIMITED_MARKS) {
            return Err(Errno::ENOSPC);
        }
        if doppel_machine::arena::low() {
            return Err(Errno::ENOMEM);
        }
        *marks += 1;
        drop(users);
        let wants =
            Wants { mask: FanMask::empty(), ignored: FanMask::empty(), flags: flags & MarkFlags::EVICTABLE };
        let mark = Arc::new(Mark { place, group: self.me.clone(), wants: SpinLock::new(wants) });
        self.state.lock().marks.push(mark.clone());
        MARKS.enter(&mark);
        Ok(mark)
    }

    /// Takes from what the group wants to know of a place. ENOENT if that is nothing, or nothing of this.
    pub fn remove(&self, place: &Place, mask: FanMask, flags: MarkFlags) -> Result<()> {
        let mark = self.mark_of(place).ok_or(Errno::ENOENT)?;
        let (empty, asks_no_more) = {
            let mut w = mark.wants.lock();
            let asked = w.mask.intersects(FanMask::PERM);
            if flags.intersects(MarkFlags::IGNORES) {
                w.ignored -= mask;
            } else {
                w.mask -= mask;
            }
            ((w.mask | w.ignored).is_empty(), asked && !w.mask.intersects(FanMask::PERM))
        };
        if asks_no_more {
            MARKS.asks_no_more();
        }
        if empty {
            self.drop_marks(|m| Arc::ptr_eq(m, &mark));
        }
        Ok(())
    }

    /// Takes all marks of a kind.
    pub fn flush(&self, kind: MarkFlags) {
        self.drop_marks(|m| m.place.kind() == kind);
    }

    /// Takes the marks of a place that is gone.
    pub(super) fn forget(&self, mark: &Arc<Mark>) {
        self.drop_marks(|m| Arc::ptr_eq(m, mark));
    }

    fn drop_marks(&self, which: impl Fn(&Arc<Mark>) -> bool) {
        let mut gone = Vec::new();
        self.state.lock().marks.retain(|m| {
            let goes = which(m);
            if goes {
                gone.push(m.clone());
            }
            !goes
        });
        if let Some(u) = MARKS.users.lock().get_mut(&self.uid) {
            u.1 -= gone.len();
        }
        gone.iter().for_each(|m| MARKS.leave(m));
    }

    /// Bytes of an event as it is read.
    fn size(&self, e: &Event) -> usize {
        let pidfd = if self.tells_process(e) { 8 } else { 0 };
        METADATA + e.files.bytes(e.mask, self.flags).len() + pidfd
    }

    fn tells_process(&self, e: &Event) -> bool {
        self.flags.contains(InitFlags::REPORT_PIDFD) && e.mask != FanMask::Q_OVERFLOW
    }

    /// Takes the first event if there is room for it.
    fn pop(&self, room: usize) -> Option<Result<Event>> {
        let mut s = self.state.lock();
        let first = s.queue.front()?;
        if self.size(first) > room {
            return Some(Err(Errno::EINVAL));
        }
        let first = s.queue.pop_front()?;
        if first.mask == FanMask::Q_OVERFLOW {
            s.overflown = false;
        }
        Some(Ok(first))
    }

    /// Gives an event to the reader.
    fn give(&self, e: Event, out: &mut Output<'_>) -> Result<usize> {
        let ways = WAYS.get();
        let told = self.put(&e, out, &ways);
        match (told, e.question) {
            (Ok((n, fd)), Some(q)) => {
                self.state.lock().asked.insert(fd, q);
                Ok(n)
            }
            (Ok((n, _)), None) => Ok(n),
            (Err(why), q) => {
                if let Some(q) = q {
                    q.give(DENY);
                }
                Err(why)
            }
        }
    }

    fn put(&self, e: &Event, out: &mut Output<'_>, ways: &Ways) -> Result<(usize, i32)> {
        let fd = match &e.path {
            None => NO_FD,
            Some(p) => match (ways.open)(p.clone(), self.event_flags) {
                Ok(fd) => fd,
                Err(why) if self.flags.contains(InitFlags::REPORT_FD_ERROR) => -i32::from(why.0 as i16),
                Err(why) => return Err(why),
            },
        };
        const NO_PROCESS: i32 = -1;
        let pidfd = self.tells_process(e).then(|| (ways.process)(e.pid).unwrap_or(NO_PROCESS));
        let mine = e.pid == crate::core::subject::pid();
        let id = if self.unprivileged && !mine { 0 } else { crate::core::subject::shown_pid(e.id) };
        let bytes = records::whole(e.mask, fd, id, &e.files.bytes(e.mask, self.flags), pidfd);
        let written = out.write(&bytes);
        if written.is_err() {
            [Some(fd), pidfd].into_iter().flatten().filter(|fd| *fd >= 0).for_each(ways.close);
        }
        written.map(|n| (n, fd))
    }
}

impl FileOps for Group {
    fn splice(&self) -> Splice {
        Splice::Neither
    }

    fn read(&self, file: &File, out: &mut Output<'_>, _offset: u64) -> Result<usize> {
        let first = match self.pop(out.remaining()) {
            Some(e) => e?,
            None if file.nonblocking() => return Err(Errno::EAGAIN),
            None => wait_until(&self.readable, None, || self.pop(out.remaining()))??,
        };
        let mut done = self.give(first, out)?;
        while let Some(Ok(e)) = self.pop(out.remaining()) {
            match self.give(e, out) {
                Ok(n) => done += n,
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// An answer: a descriptor and whether it may be done.
    fn write(&self, _file: &File, input: &mut Input<'_>, _offset: u64) -> Result<usize> {
        let mut bytes = [0; 8];
        if input.remaining() < bytes.len() {
            return Err(Errno::EINVAL);
        }
        input.read(&mut bytes)?;
        let word = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let (fd, answer) = (word(0).cast_signed(), word(4));
        if !matches!(answer, ALLOW | DENY) || fd < 0 {
            return Err(Errno::EINVAL);
        }
        let question = self.state.lock().asked.remove(&fd).ok_or(Errno::ENOENT)?;
        question.give(answer);
        Ok(bytes.len())
    }

    fn seek(&self, _file: &File, _offset: i64, _whence: crate::objects::vfs::file::Whence) -> Result<u64> {
        Ok(0)
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
        let n = self.state.lock().queue.len() * METADATA;
        UserPtr(arg).write(&(n as u32))?;
        Ok(0)
    }

    /// Whoever waits for an answer waits no more.
    fn release(&self, _file: &File) {
        let (queue, asked) = {
            let mut s = self.state.lock();
            s.closed = true;
            (core::mem::take(&mut s.queue), core::mem::take(&mut s.asked))
        };
        self.drop_marks(|_| true);
        let waiting = queue.into_iter().filter_map(|e| e.question).chain(asked.into_values());
        waiting.for_each(|q| q.give(ALLOW));
        let mut users = MARKS.users.lock();
        if let Some(u) = users.get_mut(&self.uid) {
            u.0 -= 1;
            if *u == (0, 0) {
                users.remove(&self.uid);
            }
        }
    }

    fn fdinfo(&self, _file: &File, out: &mut String) {
        let flags = self.flags.bits();
        let event_flags = (self.event_flags | OpenFlags::LARGEFILE).bits();
        out.push_str(&alloc::format!("fanotify flags:{flags:x} event-flags:{event_flags:x}\n"));
        let marks = self.state.lock().marks.clone();
        for m in marks.iter().rev() {
            let w = *m.wants.lock();
            let said = alloc::format!(
                "mflags:{:x} mask:{:x} ignored_mask:{:x}",
                w.flags.bits(),
                w.mask.bits(),
                w.ignored.bits()
            );
            match &m.place {
                Place::Inode(i) => {
                    let (dev, ino) = i.place();
                    let handle = Handle::of(&**i, None).unwrap_or(Handle::compared(ino));
                    let words = handle.words();
                    out.push_str(&alloc::format!(
                        "fanotify ino:{ino:x} sdev:{dev:x} {said} fhandle-bytes:{:x} fhandle-type:{:x} f_handle:",
                        4 * words.len(),
                        handle.kind
                    ));
                    for b in words.iter().flat_map(|w| w.to_ne_bytes()) {
                        out.push_str(&alloc::format!("{b:02x}"));
                    }
                    out.push('\n');
                }
                Place::Mount(id) => out.push_str(&alloc::format!("fanotify mnt_id:{id:x} {said}\n")),
                Place::FileSystem(dev) => out.push_str(&alloc::format!("fanotify sdev:{dev:x} {said}\n")),
            }
        }
    }
}
