//! The files of one file system that handles were given for (`name_to_handle_at(2)`).
//!
//! Numbers of files are never used twice, so a handle needs no more than the number. Only a number that was given
//! out finds anything: a forged one must not make a node of an arbitrary place of the image.

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicBool, Ordering};

use doppel_machine::sync::SpinLock;

use super::node::Node;

/// A file with a handle.
struct Known {
    node: Weak<Node>,
    /// It has names in the image's tree: when nobody holds its node, the image still has it.
    named: bool,
}

#[derive(Default)]
pub(super) struct Handled {
    /// Whether there ever was a handle: nearly never, and every node that goes asks.
    any: AtomicBool,
    known: SpinLock<BTreeMap<u64, Known>>,
}

impl Handled {
    /// Calls `f` with what is known of a number.
    fn with(&self, ino: u64, f: impl FnOnce(&mut Known)) {
        if self.any.load(Ordering::Acquire)
            && let Some(k) = self.known.lock().get_mut(&ino)
        {
            f(k);
        }
    }

    /// The file has lost its last name: from now on it lives as long as it is open.
    pub(super) fn unnamed(&self, ino: u64) {
        self.with(ino, |k| k.named = false);
    }

    /// The node is gone. What the image still has is remembered.
    pub(super) fn gone(&self, ino: u64) {
        if self.any.load(Ordering::Acquire) {
            let mut known = self.known.lock();
            // Somebody may have made the node anew meanwhile.
            if known.get(&ino).is_some_and(|k| !k.named && k.node.strong_count() == 0) {
                known.remove(&ino);
            }
        }
    }
}

impl Node {
    /// Remembers that a handle was given for this file; its number.
    pub fn give_handle(&self) -> u64 {
        let h = &self.fs.handled;
        let named = self.lower.is_some() && self.meta.lock().nlink != 0;
        h.any.store(true, Ordering::Release);
        h.known.lock().insert(self.ino(), Known { node: self.me.clone(), named });
        self.ino()
    }

    /// The file of this file system that a handle with this number was given for, if it still is.
    pub fn by_handle(&self, ino: u64) -> Option<Arc<Node>> {
        let (node, named) = {
            let known = self.fs.handled.known.lock();
            let k = known.get(&ino)?;
            (k.node.clone(), k.named)
        };
        if let Some(n) = node.upgrade() {
            return Some(n);
        }
        let n = if named { self.fs.image_node(ino).ok()? } else { return None };
        self.fs.handled.with(ino, |k| k.node = Arc::downgrade(&n));
        Some(n)
    }

    /// What tells this file system from all others, for ever.
    pub fn generation(&self) -> u32 {
        self.fs.dev as u32
    }
}
