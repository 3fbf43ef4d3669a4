//! Files that a successor could not find again: the manager keeps a copy of their descriptors.
//!
//! What is said lies in the socket when it has been sent, also if who sent it is killed then; so nobody waits for an answer.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;

use crate::said::{Said, tell};

/// The way to the manager for one domain.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pins {
    /// None: there is no manager.
    to: Option<(Arc<OwnedFd>, u64)>,
}

impl Pins {
    /// `control`: the socket that orders come from; `key`: the domain.
    pub fn new(control: Arc<OwnedFd>, key: u64) -> Self {
        Self { to: Some((control, key)) }
    }

    /// Has a file kept. It is when this returns.
    pub fn pin(&self, node: u64, file: BorrowedFd<'_>) -> Result<(), Errno> {
        let Some((to, key)) = &self.to else { return Ok(()) };
        // One that is not to be had, because too many are under way or the manager is busy, is as one too many.
        send(to, &Said::Pin { key: *key, node }, &[file]).map_err(|_| Errno::NFILE)
    }

    /// Has it kept no more.
    pub fn unpin(&self, node: u64) {
        if let Some((to, key)) = &self.to {
            // A manager that is gone keeps nothing.
            let _ = send(to, &Said::Unpin { key: *key, node }, &[]);
        }
    }
}

fn send(to: &OwnedFd, said: &Said, files: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    tell(to.as_fd(), said, files).map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))
}
