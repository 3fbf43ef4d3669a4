//! What others change in files that programs watch: other domains, the host's programs. The service tells of it
//! (`doppel_abi_service::storage::FileEvents`), but for what it does for this domain: that the path layer tells, as it does of files in memory.
//!
//! A successor of a service knows what is watched, and so does whoever goes on from a frozen image; then programs are told that they may
//! have missed something. Lock order: files that are watched → an inode's list of watches.

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use doppel_abi_service::storage::{FileEvent, Operation, Request, file_event};
use doppel_machine::storage::CHANNEL;
use doppel_machine::sync::SpinLock;

use super::Storage;
use super::node::Node;
use crate::Result;
use crate::objects::ipc::inotify;
use crate::objects::vfs::Inode;
use crate::objects::vfs::attach::notify::InotifyMask;

/// Set in numbers that tie two events of others together, and not in this kernel's.
const OTHERS: u32 = 1 << 31;

/// Files that are watched.
#[derive(Default)]
pub(super) struct Watched {
    files: SpinLock<BTreeMap<u64, Weak<Node>>>,
    /// Number of the last request about them.
    last: AtomicU64,
    /// There was one.
    ever: AtomicBool,
    /// Somebody tells programs of events, in their order.
    tells: AtomicBool,
}

impl Watched {
    fn next(&self) -> u64 {
        self.last.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Nobody tells any more: the domain goes on elsewhere.
    pub fn restart(&self) {
        self.tells.store(false, Ordering::SeqCst);
    }
}

impl Node {
    /// Has the service tell of what others do to it, of `events` (which is asked when that is about to be said).
    pub(super) fn watch_outside(&self, events: &dyn Fn() -> u32) -> Result<()> {
        let storage = self.volume.storage;
        storage.watched_files.ever.store(true, Ordering::SeqCst);
        storage.watched_files.files.lock().insert(self.id, self.me.clone());
        // Whoever has a larger number sees more watches.
        let number = storage.watched_files.next();
        let wanted = u64::from(events() & file_event::ALL);
        if wanted == 0 {
            // Who reads is not told of.
            return Ok(());
        }
        let request = Request { a: wanted, b: number, ..self.request(Operation::Watch) };
        storage.call().ask(request).map(drop)
    }

    /// The service is to tell no more, unless somebody watches it.
    pub(super) fn unwatch_outside(&self, is_watched: &dyn Fn() -> bool) {
        let storage = self.volume.storage;
        let number = storage.watched_files.next();
        let mut files = storage.watched_files.files.lock();
        if is_watched() {
            return;
        }
        files.remove(&self.id);
        drop(files);
        storage.unwatch(self.id, number);
    }
}

impl Storage {
    /// Nobody waits for that.
    fn unwatch(&self, node: u64, number: u64) {
        let request = Request { b: number, ..Request::new(Operation::Unwatch, node) };
        if self.link.lock().note(request) {
            CHANNEL.ring();
        }
    }

    /// Tells programs of events that have come. The caller holds no lock of a leaf.
    pub(super) fn tell_events(&self) {
        if !self.watched_files.ever.load(Ordering::Relaxed) {
            return;
        }
        // Who tells looks again afterwards.
        while CHANNEL.to_guest().any() && !self.watched_files.tells.swap(true, Ordering::SeqCst) {
            CHANNEL.to_guest().take(|_| {});
            loop {
                let events = self.link.lock().events();
                if events.is_empty() {
                    break;
                }
                events.iter().for_each(|event| self.tell_event(event));
            }
            self.watched_files.tells.store(false, Ordering::SeqCst);
        }
    }

    fn tell_event(&self, event: &FileEvent) {
        if event.mask & file_event::OVERFLOW != 0 {
            let all: Vec<Arc<Node>> =
                self.watched_files.files.lock().values().filter_map(Weak::upgrade).collect();
            for node in all {
                node.distrust();
                let inode: Arc<dyn Inode> = node;
                inotify::missed(&inode);
            }
            return;
        }
        let files = self.watched_files.files.lock();
        let node = files.get(&event.node).and_then(Weak::upgrade);
        let Some(node) = node else {
            // The service has not heard of the end of the watch, or another one did.
            let number = self.watched_files.next();
            drop(files);
            return self.unwatch(event.node, number);
        };
        drop(files);
        if event.mask & file_event::CLOSE_WRITE == 0 {
            node.distrust();
        }
        let mask = InotifyMask::from_bits_retain(event.mask & (file_event::ALL | file_event::ISDIR));
        let cookie = if event.cookie == 0 { 0 } else { event.cookie | OTHERS };
        let inode: Arc<dyn Inode> = node;
        inotify::outside_event(&inode, mask, cookie, event.name.bytes());
    }
}
