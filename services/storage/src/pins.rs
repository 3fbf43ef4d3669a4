//! What a service says to its manager. Files that a successor could not find again: the manager keeps a copy of their descriptors. And
//! that it has followed an order which is waited for.
//!
//! What is said lies in the socket when it has been sent, also if who sent it is killed then; so nobody waits for an answer.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;

const WORDS: usize = 3;
const PIN: u64 = 1;
const UNPIN: u64 = 2;
const SWITCHED: u64 = 3;

/// What a service says to its manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PinMessage {
    /// Keep the descriptor that comes with this, of a domain's node.
    Pin { key: u64, node: u64 },
    /// It is not needed any more.
    Unpin { key: u64, node: u64 },
    /// The disk that is this volume of a domain is made of its new files.
    Switched { key: u64, volume: u64 },
}

impl PinMessage {
    pub const BYTES: usize = WORDS * 8;

    fn encode(self) -> [u8; Self::BYTES] {
        let words = match self {
            Self::Pin { key, node } => [PIN, key, node],
            Self::Unpin { key, node } => [UNPIN, key, node],
            Self::Switched { key, volume } => [SWITCHED, key, volume],
        };
        let mut out = [0; Self::BYTES];
        for (to, word) in out.as_chunks_mut().0.iter_mut().zip(words) {
            *to = word.to_le_bytes();
        }
        out
    }

    /// What was said; none if that is nothing.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::BYTES] = bytes.try_into().ok()?;
        let (words, _) = bytes.as_chunks();
        let [tag, key, node] = std::array::from_fn(|i| u64::from_le_bytes(words[i]));
        match tag {
            PIN => Some(Self::Pin { key, node }),
            UNPIN => Some(Self::Unpin { key, node }),
            SWITCHED => Some(Self::Switched { key, volume: node }),
            _ => None,
        }
    }
}

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
        send(to, PinMessage::Pin { key: *key, node }, &[file]).map_err(|_| Errno::NFILE)
    }

    /// Has it kept no more.
    pub fn unpin(&self, node: u64) {
        if let Some((to, key)) = &self.to {
            // A manager that is gone keeps nothing.
            let _ = send(to, PinMessage::Unpin { key: *key, node }, &[]);
        }
    }
}

pub(crate) fn send(to: &OwnedFd, said: PinMessage, files: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    doppel_service::send_packet(to.as_fd(), &said.encode(), files)
        .map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_heard() {
        let pin = PinMessage::Pin { key: 1, node: u64::MAX };
        let unpin = PinMessage::Unpin { key: u64::MAX, node: 2 };
        for said in [pin, unpin, PinMessage::Switched { key: 1, volume: 2 }] {
            assert_eq!(PinMessage::decode(&said.encode()), Some(said));
        }
        assert_eq!(PinMessage::decode(&[4; PinMessage::BYTES]), None);
        assert_eq!(PinMessage::decode(&[1; PinMessage::BYTES - 1]), None);
    }
}
