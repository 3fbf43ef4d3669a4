//! Volumes and the freezer. When a domain stands still all that it has written is the service's, and nothing is asked of that. Whoever
//! goes on from its memory has another service or another channel of the same one, which knows the same files by the same numbers; what is
//! kept under a lease from before is worth nothing there.

use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use doppel_machine::storage as channel;

use super::mapped::settle;
use super::node::Node;
use super::{Storage, storage};
use crate::core::{time, work};
use crate::objects::vfs::attach::locks::Locks;

/// How long all that is under way may take until the domain is not frozen, in nanoseconds: a disk may have much to write.
const PATIENCE_NS: u64 = 30_000_000_000;
/// How long a file is waited for that somebody has in hand who waits for a slot, before that one is let on.
const TURN_NS: u64 = 5_000_000;

/// Whether the domain can be frozen at once. If not, what waits is written first, and `again` is called when that is done.
pub fn ready_to_freeze(again: fn()) -> bool {
    let Some(storage) = storage() else { return true };
    let f = &storage.freezing;
    if f.writes.load(Ordering::Acquire) {
        return false;
    }
    if f.written.swap(false, Ordering::AcqRel) || storage.has_nothing_in_hand() {
        return true;
    }
    f.writes.store(true, Ordering::Release);
    let begun = work::START.get()(Box::new(move || {
        settle(true);
        storage.write_all_out();
        storage.freezing.written.store(true, Ordering::Release);
        storage.freezing.writes.store(false, Ordering::Release);
        again();
    }));
    if !begun {
        // It is written all the same, while programs wait for that.
        f.writes.store(false, Ordering::Release);
    }
    !begun
}

/// Threads ask nothing from here on until [`go_on`], and what was asked is answered. False: that took too long. Runs on PID 1.
pub fn pause() -> bool {
    let Some(storage) = storage() else { return true };
    let until = time::monotonic_ns() + PATIENCE_NS;
    storage.freezing.closing.store(true, Ordering::SeqCst);
    loop {
        storage.link.lock().close(true);
        if storage.comes_to_rest(until) {
            return true;
        }
        if time::monotonic_ns() > until {
            return false;
        }
        // Somebody who waits for a slot has bytes in hand that are to be written before.
        storage.open();
        storage.nap();
    }
}

/// The domain stands still: what was written since [`pause`] goes to the service too. False: it cannot. Runs on PID 1.
pub fn write_still() -> bool {
    let Some(storage) = storage() else { return true };
    let before = storage.leases_before.load(Ordering::SeqCst);
    let last = channel::leases().last();
    storage.freezing.last_lease.store(before.wrapping_add(last), Ordering::SeqCst);
    storage.comes_to_rest(time::monotonic_ns() + PATIENCE_NS)
}

/// The domain goes on, here or in a clone. Runs on PID 1.
pub fn go_on() {
    let storage = super::STORAGE.get();
    storage.freezing.closing.store(false, Ordering::SeqCst);
    storage.open();
}

/// The domain goes on from a frozen image. If it has a channel, that is a new one. Runs on PID 1.
pub fn resumed() {
    let Some(storage) = storage() else { return };
    // Whoever watched stayed behind.
    storage.watched.store(false, Ordering::SeqCst);
    storage.watched_files.restart();
    storage.leases_before.store(storage.freezing.last_lease.load(Ordering::SeqCst), Ordering::SeqCst);
    storage.link.lock().restart();
    storage.hear();
    storage.lock_again();
}

impl Storage {
    /// Threads ask again.
    fn open(&self) {
        self.link.lock().close(false);
        self.wanting.notify_all();
    }

    /// Whether what programs write must not wait.
    pub(super) fn is_closing(&self) -> bool {
        self.freezing.closing.load(Ordering::SeqCst)
    }

    /// Whether nothing of what was written waits, in files, names or mappings.
    fn has_nothing_in_hand(&self) -> bool {
        self.unwritten.bytes() == 0 && self.names_are_flushed() && self.maps.load(Ordering::SeqCst) == 0
    }

    /// Writes all that waits, until nothing is asked any more; false: not by then, or somebody has a file in hand.
    fn comes_to_rest(&'static self, until: u64) -> bool {
        let mut turn = time::monotonic_ns() + TURN_NS;
        loop {
            let settled = settle(true);
            let written = self.send_all() && settled;
            let idle = self.link.lock().is_idle();
            let now = time::monotonic_ns();
            match (written, idle) {
                (true, true) => return true,
                // What is under way takes its time.
                (_, false) => turn = now + TURN_NS,
                (false, true) => {}
            }
            if now > until || now > turn {
                return false;
            }
            self.nap();
        }
    }

    /// What its programs have locked is locked for the domain in its new channel, as far as nobody else has it.
    fn lock_again(&self) {
        let all = |nodes: &mut dyn Iterator<Item = &Weak<Node>>| -> Vec<Arc<Node>> {
            nodes.filter_map(Weak::upgrade).collect()
        };
        let roots = all(&mut self.roots.lock().iter());
        let nodes = all(&mut self.nodes.lock().values());
        for node in roots.into_iter().chain(nodes) {
            if let Some(locks) = node.attached().get::<Locks>() {
                locks.had_again(&*node);
            }
        }
    }
}
