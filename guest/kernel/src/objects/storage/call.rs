//! One request, with the slot in which its names and data lie.

use alloc::vec::Vec;

use doppel_abi_service::storage::{
    Answer, Attributes, BUFFER, Changes, Operation, Request, SECOND, buffer, text,
};
use doppel_machine::storage::CHANNEL;

use super::{Storage, result};
use crate::objects::vfs::io::{Input, Output, Piece};
use crate::{Errno, Result};

/// A slot, until it is dropped.
pub(super) struct Call {
    storage: &'static Storage,
    slot: u16,
}

impl Drop for Call {
    fn drop(&mut self) {
        self.storage.give_back(self.slot);
    }
}

impl Call {
    pub fn new(storage: &'static Storage, slot: u16) -> Self {
        Self { storage, slot }
    }

    /// Asks, and waits for the answer.
    pub fn ask(&self, request: Request) -> Result<Answer> {
        self.storage.will_look();
        self.storage.link.lock().ask(self.slot, request);
        CHANNEL.ring();
        result(self.storage.answer(self.slot))
    }

    /// Puts a name into the text; gives its length.
    pub fn name(&self, name: &[u8]) -> u64 {
        self.put(0, name)
    }

    /// The same into the second half.
    pub fn second(&self, name: &[u8]) -> u64 {
        self.put(SECOND, name)
    }

    /// Callers check lengths: a name has at most 255 bytes, a link's target 4,095.
    fn put(&self, at: usize, bytes: &[u8]) -> u64 {
        CHANNEL.put(text(self.slot) + at as u64, bytes);
        bytes.len() as u64
    }

    /// Puts changes of attributes into the text.
    pub fn changes(&self, changes: &Changes) {
        CHANNEL.put(text(self.slot), &changes.encode());
    }

    /// The attributes that an answer brought.
    pub fn attributes(&self) -> Attributes {
        let mut bytes = [0; Attributes::BYTES];
        CHANNEL.get(text(self.slot), &mut bytes);
        Attributes::decode(&bytes)
    }

    /// So many bytes of the text.
    pub fn text(&self, len: usize) -> Vec<u8> {
        let mut bytes = alloc::vec![0; len];
        CHANNEL.get(text(self.slot), &mut bytes);
        bytes
    }

    /// Copies from the buffer.
    pub fn take(&self, at: usize, bytes: &mut [u8]) {
        CHANNEL.get(buffer(self.slot) + at as u64, bytes);
    }

    /// Copies into the buffer.
    pub fn fill(&self, bytes: &[u8]) {
        CHANNEL.put(buffer(self.slot), bytes);
    }

    /// Reads at most `len` bytes of a file, at most a buffer; gives how many came and how many of these could be taken.
    pub fn read(&self, node: u64, out: &mut Output<'_>, at: u64) -> Result<(usize, usize)> {
        let want = out.remaining().min(BUFFER);
        let request = Request { a: at, b: want as u64, ..Request::new(Operation::Read, node) };
        let got = usize::try_from(self.ask(request)?.value).unwrap_or(usize::MAX).min(want);
        if got == 0 {
            return Ok((0, 0));
        }
        let from = buffer(self.slot);
        let taken = out.pieces(got, |done, piece| match piece {
            Piece::User(to, len) => CHANNEL.get_to_user(from + done as u64, to, len).unwrap_or(0),
            Piece::Kernel(bytes) => {
                CHANNEL.get(from + done as u64, bytes);
                bytes.len()
            }
        })?;
        Ok((got, taken))
    }

    /// Fills the buffer with the next bytes of a write, at most `most`; gives how many.
    pub fn gather(&self, input: &mut Input<'_>, most: usize) -> Result<usize> {
        let to = buffer(self.slot);
        input.pieces(input.remaining().min(most).min(BUFFER), |done, piece| match piece {
            Piece::User(from, len) => CHANNEL.put_from_user(to + done as u64, from, len).unwrap_or(0),
            Piece::Kernel(bytes) => {
                CHANNEL.put(to + done as u64, bytes);
                bytes.len()
            }
        })
    }

    /// Checks a length that an answer gave.
    pub fn length(value: u64, most: usize) -> Result<usize> {
        usize::try_from(value).ok().filter(|n| *n <= most).ok_or(Errno::EIO)
    }
}
