//! Locks against others than the domain: of ranges and of whole files, on one open file description for each file. On the host they are
//! locks as any other: those of its programs, of containers and of other domains conflict with them.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use doppel_abi_service::storage::lock::{EXCLUSIVE, LAST, TEST, UNLOCK, WHOLE};
use doppel_sys::record_lock::{self, Range};
use rustix::fs::FlockOperation;

use super::{Done, Result, Work};
use crate::nodes::errno;

impl Work<'_> {
    pub(super) fn lock(&mut self) -> Result<Done> {
        let (node, how) = (self.request.node, self.request.flags);
        let range = Range { start: self.request.a, end: self.request.b };
        let exclusive = how & EXCLUSIVE != 0;
        if how & TEST != 0 {
            return self.test(node, range, exclusive);
        }
        if how & UNLOCK != 0 {
            return self.unlock(node, range, how).map(|()| Done::default());
        }
        let file = self.lockable(node)?;
        if how & WHOLE != 0 {
            let operation = if exclusive {
                FlockOperation::NonBlockingLockExclusive
            } else {
                FlockOperation::NonBlockingLockShared
            };
            rustix::fs::flock(&*file, operation)?;
        } else {
            record_lock::lock(file.as_fd(), range, exclusive).map_err(errno)?;
        }
        Ok(Done::default())
    }

    fn unlock(&self, node: u64, range: Range, how: u32) -> Result<()> {
        let locked = self.nodes().locked(node);
        let Some(file) = locked else { return Ok(()) };
        if how & LAST != 0 {
            self.nodes().unlocked(node);
        } else if how & WHOLE != 0 {
            rustix::fs::flock(&*file, FlockOperation::NonBlockingUnlock)?;
        } else {
            record_lock::unlock(file.as_fd(), range).map_err(errno)?;
        }
        Ok(())
    }

    /// The lock of somebody else that would be in the way.
    fn test(&self, node: u64, range: Range, exclusive: bool) -> Result<Done> {
        let known = self.nodes().locked(node);
        // One without locks sees all of them.
        let file = match known {
            Some(file) => file,
            None => self.lockable_data(node)?,
        };
        let Some((found, exclusive)) =
            record_lock::conflict(file.as_fd(), range, exclusive).map_err(errno)?
        else {
            return Ok(Done::default());
        };
        let words = [found.start.to_le_bytes(), found.end.to_le_bytes()];
        self.put(words.as_flattened());
        Ok(Done { value: 1 + u64::from(exclusive), node: 0 })
    }

    /// The description that has the file's locks.
    fn lockable(&self, node: u64) -> Result<Arc<OwnedFd>> {
        let known = self.nodes().locked(node);
        match known {
            Some(file) => Ok(file),
            None => {
                let file = self.lockable_data(node)?;
                self.nodes().lockable(node, file)
            }
        }
    }

    /// A description of its own, which writes if it can: only one that does has exclusive locks of ranges.
    fn lockable_data(&self, node: u64) -> Result<Arc<OwnedFd>> {
        let (named, access) = self.nodes().name_to_lock(node)?;
        Ok(Arc::new(self.host.open(named.as_fd(), access)?))
    }
}
