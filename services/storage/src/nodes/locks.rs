//! Files that a domain has locked on the host. A lock lasts as long as its open file description: the manager has a copy of each, so that
//! locks outlive the process.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use doppel_sys::record_lock::{self, Range};
use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::pins::Pins;

/// Most files of a domain that are locked at once.
pub(crate) const LOCKED: usize = 1024;
/// Tells a descriptor with locks from one of a file that is only kept, among what is pinned.
const LOCKS: u64 = 1 << 63;

/// See above.
#[derive(Debug, Default)]
pub(super) struct LockedFiles(HashMap<u64, Arc<OwnedFd>>);

impl LockedFiles {
    /// Takes what a predecessor has pinned, if that is a file with locks; otherwise gives it back.
    pub fn take_over(&mut self, node: u64, file: OwnedFd) -> Option<OwnedFd> {
        if node & LOCKS == 0 {
            return Some(file);
        }
        self.0.insert(node & !LOCKS, Arc::new(file));
        None
    }

    pub fn get(&self, node: u64) -> Option<Arc<OwnedFd>> {
        self.0.get(&node).cloned()
    }

    /// Has a file that may be locked from here on, if there are not `most`; the one that was there first stays.
    pub fn enter(
        &mut self,
        node: u64,
        file: Arc<OwnedFd>,
        most: usize,
        pins: &Pins,
    ) -> Result<Arc<OwnedFd>, Errno> {
        if let Some(known) = self.get(node) {
            return Ok(known);
        }
        if self.0.len() >= most {
            return Err(Errno::NOLCK);
        }
        pins.pin(node | LOCKS, file.as_fd()).map_err(|_| Errno::NOLCK)?;
        self.0.insert(node, file.clone());
        Ok(file)
    }

    /// Nothing of it is locked any more; whether it was open for that.
    pub fn leave(&mut self, node: u64, pins: &Pins) -> bool {
        let Some(file) = self.0.remove(&node) else { return false };
        release(file.as_fd());
        pins.unpin(node | LOCKS);
        true
    }
}

/// Gives up all locks of a description, of which there are other descriptors.
fn release(file: BorrowedFd<'_>) {
    // The locks go with the last descriptor in any case, which is the manager's.
    let _ = record_lock::unlock(file, Range::ALL);
    let _ = rustix::fs::flock(file, FlockOperation::NonBlockingUnlock);
}
