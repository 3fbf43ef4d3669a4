//! What others change in files that a domain watches: events of an inotify instance of the host's, one for each domain that watches
//! something, so that what one has too much of is its own loss.
//!
//! Whoever else has the files is heard by it in the same way: other domains, containers, programs of the host. What the service does for
//! the domain itself it must not tell, as the guest kernel does: an operation says beforehand what will be heard of it ([`own`]). The host
//! queues an event before the call returns that causes it; so what was said is true until the queue was read after that call.
//!
//! Lock order: the rings → this; the nodes → this.

mod own;
mod places;
mod watch;

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use doppel_abi_service::storage::{FileEvent, Name, file_event};
use rustix::fs::inotify::{self, ReadFlags};
use rustix::io::Errno;

use crate::budget::Share;
use crate::descriptors::Descriptors;
pub(crate) use own::{CLOSED, Own, WRITTEN};
use own::{Heard, Held, Owns};
use places::Places;
pub(crate) use places::{FileId, Reach, Site};

/// Most files that a domain watches.
const MOST: usize = 8192;
/// Most events of a domain that wait.
const WAITING: usize = 1024;
/// Bytes of events that are read at once.
const READ: usize = 4096;
/// Most events that are read in a turn.
const TURN: usize = 256;
/// Events after which a queue that goes on and on is left: more than the host's usual limit of one.
const LONGEST: usize = 32_768;

/// What a domain watches, and what has happened to it.
#[derive(Debug)]
pub(crate) struct Changes {
    descriptors: Arc<Descriptors>,
    /// Where its client is in the engine.
    place: AtomicUsize,
    /// There is something watched.
    any: AtomicBool,
    /// The host may have more to tell.
    told: AtomicBool,
    /// Something waits for the domain.
    waiting: AtomicBool,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    inotify: Option<Arc<Instance>>,
    places: Places,
    owns: Owns,
    waiting: VecDeque<FileEvent>,
    /// Some found no room.
    lost: bool,
    /// Watches of a predecessor that are to be had again, by node, with their events.
    former: Vec<(u64, u32)>,
    /// The domain may have missed something, until it has them.
    missed: bool,
}

impl Changes {
    pub fn new(descriptors: Arc<Descriptors>) -> Self {
        Self {
            descriptors,
            place: AtomicUsize::new(0),
            any: AtomicBool::new(false),
            told: AtomicBool::new(false),
            waiting: AtomicBool::new(false),
            inner: Mutex::default(),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // A thread that panics ends the process.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its client has this place in the engine.
    pub fn set_place(&self, place: usize) {
        self.place.store(place, Ordering::Relaxed);
    }

    /// Whether anything is watched.
    pub fn any(&self) -> bool {
        self.any.load(Ordering::SeqCst)
    }

    /// The host has something to tell.
    pub fn set_told(&self) {
        self.told.store(true, Ordering::SeqCst);
    }

    /// Whether the host may have something to tell.
    pub fn is_told(&self) -> bool {
        self.told.load(Ordering::SeqCst)
    }

    /// Whether something waits for the domain.
    pub fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::SeqCst)
    }

    /// Reads what the host tells, some of it.
    pub fn hear(&self) {
        self.told.store(false, Ordering::SeqCst);
        let mut inner = self.inner();
        if !inner.read(TURN) || inner.missed {
            self.set_told();
        }
        self.note(&inner);
    }

    fn note(&self, inner: &Inner) {
        self.any.store(!inner.places.is_empty(), Ordering::SeqCst);
        self.waiting.store(!inner.waiting.is_empty() || inner.lost, Ordering::SeqCst);
    }

    /// The event that waits longest.
    pub fn next(&self) -> Option<FileEvent> {
        let inner = self.inner();
        inner.waiting.front().copied().or_else(|| inner.lost.then_some(FileEvent::LOST))
    }

    /// The domain has that one.
    pub fn took(&self) {
        let mut inner = self.inner();
        if inner.waiting.pop_front().is_none() {
            inner.lost = false;
        }
        self.note(&inner);
    }

    /// Something that the domain asks for begins, by which these events come. It is known by a number until [`Self::ended`].
    pub fn begins(&self, own: Own) -> u64 {
        let mut inner = self.inner();
        // What happened before is not its own.
        inner.read(LONGEST);
        self.note(&inner);
        inner.owns.begin(own)
    }

    /// These events of this file come by it, too.
    pub fn also(&self, number: u64, file: FileId, events: u32) {
        self.inner().owns.also(number, file, events);
    }

    /// It is over; if it was not done, what has come is somebody else's.
    pub fn ended(&self, number: u64, done: bool) {
        let mut inner = self.inner();
        inner.read(LONGEST);
        let held = inner.owns.end(number);
        if !done {
            held.into_iter().for_each(|event| inner.tell(event));
        }
        self.note(&inner);
    }

    /// Closes a file that the domain has written.
    pub fn close(&self, volume: u64, file: FileId, open: Arc<OwnedFd>) {
        if !self.any() {
            return;
        }
        if Arc::strong_count(&open) > 1 {
            // Who still has it closes it.
            return self.owes(volume, file);
        }
        let called = self.descriptors.called(open.as_fd());
        let own = self.begins(Own::of(volume).changes(file, CLOSED).called(called));
        drop(open);
        self.ended(own, true);
    }

    /// A file that was open for writing for the domain is closed soon, elsewhere.
    pub fn owes(&self, volume: u64, file: FileId) {
        if self.any() {
            self.inner().owns.owe(volume, file);
        }
    }
}

impl Inner {
    /// Reads events, so many or a few more; false if there may be more.
    fn read(&mut self, most: usize) -> bool {
        let Some(inotify) = self.inotify.clone() else { return true };
        let mut space = [MaybeUninit::uninit(); READ];
        let mut reader = inotify::Reader::new(&inotify.file, &mut space);
        let mut read = 0;
        while read < most || !reader.is_buffer_empty() {
            // AGAIN: that was all. There is no other error.
            let Ok(event) = reader.next() else { return true };
            read += 1;
            let name = event.file_name().map_or(&b""[..], std::ffi::CStr::to_bytes);
            // No file has a longer one.
            let name = Name::new(name).unwrap_or(Name::NONE);
            self.heard(event.wd(), event.events(), event.cookie(), name);
        }
        false
    }

    fn heard(&mut self, wd: i32, events: ReadFlags, cookie: u32, name: Name) {
        if events.contains(ReadFlags::QUEUE_OVERFLOW) {
            return self.lose();
        }
        if events.contains(ReadFlags::IGNORED) {
            // The file is no more, or its file system.
            return self.places.gone(wd);
        }
        let Some(place) = self.places.get(wd) else { return };
        let kind = events.bits() & file_event::ISDIR;
        let mask = events.bits() & file_event::ALL;
        let mut heard = Heard::new(place, name.bytes(), mask);
        if heard.is_of_nameless() {
            return;
        }
        let mut told = Vec::new();
        for watcher in place.watchers() {
            let event = FileEvent { node: watcher.node, mask: mask | kind, cookie, name };
            match self.owns.find(watcher, &mut heard) {
                Some(Held::Until(held)) => {
                    if held.len() < WAITING {
                        held.push(event);
                    }
                    continue;
                }
                Some(Held::ForGood) => continue,
                None => told.push(event),
            }
            // As long as somebody has it open the host does not say that it is gone.
            if mask == file_event::ATTRIB && name.bytes().is_empty() && place.is_gone() {
                told.push(FileEvent { mask: file_event::DELETE_SELF, ..event });
            }
            told.retain(|event| event.node != watcher.node || event.mask & watcher.events != 0);
            if mask == file_event::DELETE && kind != 0 {
                let lost = self.places.lost(watcher.node, name.bytes());
                let lost = lost.filter(|lost| lost.events & file_event::DELETE_SELF != 0);
                let mask = file_event::DELETE_SELF;
                told.extend(lost.map(|lost| FileEvent {
                    node: lost.node,
                    mask,
                    cookie: 0,
                    name: Name::NONE,
                }));
            }
        }
        told.into_iter().for_each(|event| self.tell(event));
    }

    fn tell(&mut self, event: FileEvent) {
        // As the host does: the same once more tells nothing new.
        if self.waiting.back() == Some(&event) {
            return;
        }
        // What comes behind something that was lost waits for that to be told.
        if self.lost || self.waiting.len() >= WAITING {
            return self.lose();
        }
        self.waiting.push_back(event);
    }

    fn lose(&mut self) {
        self.lost = true;
    }
}

/// The instance of a domain.
#[derive(Debug)]
struct Instance {
    file: OwnedFd,
    _share: Share,
}

impl Instance {
    /// One that is followed for the client at this place.
    fn new(descriptors: &Descriptors, place: usize) -> Result<Arc<Self>, Errno> {
        let share = descriptors.instances.take().ok_or(Errno::NOSPC)?;
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        // To the domain's programs it is as one watch too many.
        let file = inotify::init(flags).map_err(|e| if e == Errno::MFILE { Errno::NOSPC } else { e })?;
        descriptors.follow(file.as_fd(), place)?;
        Ok(Arc::new(Self { file, _share: share }))
    }
}
