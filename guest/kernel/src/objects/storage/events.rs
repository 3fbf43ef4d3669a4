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
use doppel_machine::storage::{CHANNEL, is_there};
use doppel_machine::sync::SpinLock;

use super::link::Link;
use crate::objects::ipc::inotify;
use crate::objects::vfs::Inode;
use crate::objects::vfs::attach::notify::InotifyMask;

/// Set in numbers that tie two events of others together, and not in this kernel's.
const OTHERS: u32 = 1 << 31;

/// Files that are watched.
#[derive(Default)]
pub(super) struct Watched {
    /// By node.
    files: SpinLock<BTreeMap<u64, Weak<dyn Inode>>>,
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

    /// A file is watched; the number of the request for that. Whoever has a larger one sees more watches afterwards.
    pub fn begin(&self, node: u64, file: Weak<dyn Inode>) -> u64 {
        self.ever.store(true, Ordering::SeqCst);
        self.files.lock().insert(node, file);
        self.next()
    }

    /// It may be watched no more; has the service told, unless it is.
    pub fn end(&self, link: &SpinLock<Link>, node: u64, is_watched: &dyn Fn() -> bool) {
        let number = self.next();
        let mut files = self.files.lock();
        if is_watched() {
            return;
        }
        files.remove(&node);
        drop(files);
        unwatch(link, node, number);
    }

    /// Nobody tells any more: the domain goes on elsewhere.
    pub fn restart(&self) {
        self.tells.store(false, Ordering::SeqCst);
    }

    /// Tells programs of events that have come. The caller holds no lock of a leaf. `changed`: what is known of a file may be wrong.
    pub fn tell(&self, link: &SpinLock<Link>, changed: impl Fn(&Arc<dyn Inode>)) {
        if !self.ever.load(Ordering::Relaxed) {
            return;
        }
        // Who tells looks again afterwards.
        while CHANNEL.to_guest().any() && !self.tells.swap(true, Ordering::SeqCst) {
            CHANNEL.to_guest().take(|_| {});
            loop {
                let events = link.lock().events();
                if events.is_empty() {
                    break;
                }
                events.iter().for_each(|event| self.tell_one(link, event, &changed));
            }
            self.tells.store(false, Ordering::SeqCst);
        }
    }

    fn tell_one(&self, link: &SpinLock<Link>, event: &FileEvent, changed: &impl Fn(&Arc<dyn Inode>)) {
        if event.mask & file_event::OVERFLOW != 0 {
            let all: Vec<_> = self.files.lock().values().filter_map(Weak::upgrade).collect();
            for file in &all {
                changed(file);
                inotify::missed(file);
            }
            return;
        }
        let files = self.files.lock();
        let Some(file) = files.get(&event.node).and_then(Weak::upgrade) else {
            // The service has not heard of the end of the watch, or another one did.
            let number = self.next();
            drop(files);
            return unwatch(link, event.node, number);
        };
        drop(files);
        if event.mask & file_event::CLOSE_WRITE == 0 {
            changed(&file);
        }
        let mask = InotifyMask::from_bits_retain(event.mask & (file_event::ALL | file_event::ISDIR));
        let cookie = if event.cookie == 0 { 0 } else { event.cookie | OTHERS };
        inotify::outside_event(&file, mask, cookie, event.name.bytes());
    }
}

/// Nobody waits for that.
fn unwatch(link: &SpinLock<Link>, node: u64, number: u64) {
    let request = Request { b: number, ..Request::new(Operation::Unwatch, node) };
    // A clone may have no service.
    if is_there() && link.lock().note(request) {
        CHANNEL.ring();
    }
}
