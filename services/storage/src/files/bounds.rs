//! What operations take of a volume's bound: taken before anything is done, as much as may be needed, and settled afterwards.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use doppel_abi_service::storage::{Amount, Charges, flags};
use rustix::fs::{FileType, SeekFrom, Statx};
use rustix::io::Errno;

use super::{Result, Work, open_name};
use crate::nodes::{CHARGES, Identity};
use crate::quota::{File, Holding, Quota, bytes_of};

/// What a host's file system gives out, in bytes, or a multiple of that.
const PAGE: u64 = 4096;

/// Bytes of the disk that so many bytes of a file may need.
pub(super) fn room_for(at: u64, len: u64) -> u64 {
    let end = at.saturating_add(len);
    end.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX) - at / PAGE * PAGE
}

/// A file that is about to lose its last name, in a volume with a bound.
pub(super) struct Lost {
    quota: Arc<Quota>,
    file: File,
    _holding: Option<Holding>,
}

impl Lost {
    /// It has lost it.
    pub fn gone(self) {
        self.quota.loses(self.file);
    }
}

impl Work<'_> {
    /// Does something to a file, which takes `more` at most; `act` gives what it has made, and the bytes of that.
    pub(super) fn charged<T>(
        &mut self,
        node: u64,
        file: &OwnedFd,
        more: Amount,
        act: impl FnOnce(&mut Self) -> Result<(T, u64)>,
    ) -> Result<T> {
        let Some(quota) = self.nodes().quota(node)? else { return act(self).map(|done| done.0) };
        let s = rustix::fs::fstat(file)?;
        let host = self.host;
        let _alone = host.charge(s.st_ino ^ s.st_dev.rotate_left(32));
        let (slot, ticket) = (self.request.slot, self.request.ticket.0);
        let charges = self.client.records.get::<Charges>(CHARGES);
        let again = charges.get(slot, ticket).filter(|_| self.request.flags & flags::AGAIN != 0);
        let (taken, before) = match again {
            // A predecessor has taken it.
            Some(noted) => noted,
            None => {
                let before = bytes_of(file)?;
                quota.take(more)?;
                charges.set(slot, ticket, more, before);
                (more, before)
            }
        };
        let done = act(self);
        let (made, inodes) = match &done {
            Ok(done) => (done.1, taken.inodes),
            // It is there, and the domain has not been told.
            Err(_) if self.made => (taken.bytes, taken.inodes),
            Err(_) => (0, 0),
        };
        let after = bytes_of(file).unwrap_or(before).saturating_add(made);
        // What is less now than it was is given back as well.
        let used = Amount { bytes: after.saturating_sub(before), inodes };
        let less = before.saturating_sub(after);
        quota.settle(Amount { bytes: taken.bytes.saturating_add(less), ..taken }, used);
        charges.clear(slot);
        done.map(|done| done.0)
    }

    /// How many of `len` bytes at `at` fit into the bound, and the room that these need.
    pub(super) fn fitting(&self, node: u64, file: &OwnedFd, at: u64, len: usize) -> Result<(usize, Amount)> {
        let whole = Amount { bytes: room_for(at, len as u64), inodes: 0 };
        let Some(quota) = self.nodes().quota(node)? else { return Ok((len, whole)) };
        let room = quota.most().bytes.saturating_sub(quota.used().bytes);
        if whole.bytes <= room || len == 0 {
            return Ok((len, whole));
        }
        let there = Self::there_until(file, at)?;
        // Behind that, whole pages.
        let fits = there.saturating_sub(at).saturating_add(room / PAGE * PAGE);
        let fits = usize::try_from(fits).unwrap_or(usize::MAX).min(len);
        if fits == 0 {
            return Err(Errno::NOSPC);
        }
        let end = at.saturating_add(fits as u64);
        Ok((fits, Amount { bytes: room_for(there, end.saturating_sub(there)), inodes: 0 }))
    }

    /// From `at` on a file has its room on the disk until there, the end of a page, or `at` itself if it has none.
    fn there_until(file: &OwnedFd, at: u64) -> Result<u64> {
        let s = rustix::fs::fstat(file)?;
        let end = s.st_size.cast_unsigned().next_multiple_of(PAGE);
        if at >= end {
            return Ok(at);
        }
        // Room that was allocated and not written looks like a hole.
        if bytes_of(file)? >= end {
            return Ok(end);
        }
        let hole = match rustix::fs::seek(file, SeekFrom::Hole(at)) {
            Ok(hole) => hole,
            Err(Errno::NXIO) => return Ok(at.next_multiple_of(PAGE)),
            Err(e) => return Err(e),
        };
        // In its last page a file has room behind its end.
        Ok(if hole == at && at.is_multiple_of(PAGE) { at } else { hole.next_multiple_of(PAGE) })
    }

    /// A name of this file is about to go: what is to be told if it has gone.
    pub(super) fn lost(&self, node: u64, dir: &OwnedFd, name: &CStr, s: &Statx) -> Result<Option<Lost>> {
        let directory = FileType::from_raw_mode(s.stx_mode.into()) == FileType::Directory;
        if s.stx_nlink > 1 && !directory {
            return Ok(None);
        }
        let Some(quota) = self.nodes().quota(node)? else { return Ok(None) };
        let Identity { device, inode, .. } = Identity::of(0, s);
        let file = (device, inode);
        let holding = quota.hold(file, &Arc::new(open_name(dir.as_fd(), name)?));
        Ok(Some(Lost { quota, file, _holding: holding }))
    }

    /// It has gone.
    pub(super) fn is_gone(&self, lost: Option<Lost>, s: &Statx) {
        let Some(lost) = lost else { return };
        if self.request.flags & flags::UNUSED != 0 {
            self.nodes().close_lost(s);
        }
        lost.gone();
    }
}

/// A new file, with a page for itself and for its name.
pub(super) const NEW: Amount = Amount { bytes: 2 * PAGE, inodes: 1 };
/// A new name.
pub(super) const NAME: Amount = Amount { bytes: PAGE, inodes: 0 };
/// What needs no more than there is.
pub(super) const NOTHING: Amount = Amount { bytes: 0, inodes: 0 };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_given_out_by_pages() {
        assert_eq!(room_for(0, 1), PAGE);
        assert_eq!(room_for(PAGE - 1, 2), 2 * PAGE);
        assert_eq!(room_for(PAGE, 0), 0);
        assert_eq!(room_for(u64::MAX - 1, 9), u64::MAX - (u64::MAX - 1) / PAGE * PAGE);
    }
}
