//! One request, with the slot in which its names and data lie.

use alloc::vec::Vec;

use doppel_abi_service::storage::{
    Answer, Attributes, BUFFER, Changes, Lease, Operation, Request, SECOND, buffer, shown, text,
};
use doppel_machine::pagefile::Place;
use doppel_machine::storage::CHANNEL;

use super::{Storage, result};
use crate::objects::vfs::io::{Input, Output, Piece};
use crate::{Errno, Result};

/// A slot, until it is dropped.
pub(super) struct Call {
    storage: &'static Storage,
    slot: u16,
    /// What was known when it was begun.
    pub before: Before,
}

/// A moment: what an answer tells is true of it or of a later one.
#[derive(Clone, Copy, Default)]
pub(super) struct Before {
    /// What might be kept then.
    pub lease: Lease,
    /// How often the file's attributes had been changed.
    pub changes: u32,
    /// How many files had been forgotten.
    pub drops: u32,
}

impl Drop for Call {
    fn drop(&mut self) {
        self.storage.give_back(self.slot);
    }
}

impl Call {
    pub fn new(storage: &'static Storage, slot: u16, before: Before) -> Self {
        Self { storage, slot, before }
    }

    /// Asks, and waits for the answer.
    pub fn ask(&self, request: Request) -> Result<Answer> {
        self.start(request);
        self.finish()
    }

    /// Asks.
    pub fn start(&self, request: Request) {
        self.storage.will_look();
        self.storage.link.lock().ask(self.slot, request);
        CHANNEL.ring();
    }

    /// Waits for the answer to what was asked.
    pub fn finish(&self) -> Result<Answer> {
        result(self.storage.answer(self.slot))
    }

    /// The answer, if it has come.
    pub fn answered(&self) -> Option<Answer> {
        self.storage.link.lock().answered(self.slot)
    }

    /// Which one it is.
    pub fn slot(&self) -> u16 {
        self.slot
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
        CHANNEL.get(shown(self.slot), &mut bytes);
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

    /// Copies so many bytes of the buffer, from `at` on, to this place of the page file.
    pub fn take_to_pages(&self, at: usize, place: u64, len: usize) {
        CHANNEL.get_to_pages(buffer(self.slot) + at as u64, place, len);
    }

    /// Copies so many bytes of the page file from this place on into the buffer, to `at`.
    pub fn fill_from_pages(&self, at: usize, place: Place, len: usize) {
        CHANNEL.put_from_pages(buffer(self.slot) + at as u64, place, len);
    }

    /// Copies into the buffer.
    pub fn fill(&self, bytes: &[u8]) {
        CHANNEL.put(buffer(self.slot), bytes);
    }

    /// Brings bytes of a file into the buffer, as many as that holds at most; gives how many came.
    pub fn fetch(&self, node: u64, at: u64, len: usize) -> Result<usize> {
        let want = len.min(BUFFER);
        let request = Request { a: at, b: want as u64, ..Request::new(Operation::Read, node) };
        Ok(usize::try_from(self.ask(request)?.value).unwrap_or(usize::MAX).min(want))
    }

    /// Gives out `len` bytes of the buffer from `at` on; how many could be taken.
    pub fn give_out(&self, out: &mut Output<'_>, at: usize, len: usize) -> Result<usize> {
        let from = buffer(self.slot) + at as u64;
        out.pieces(len, |done, piece| match piece {
            Piece::User(to, len) => CHANNEL.get_to_user(from + done as u64, to, len).unwrap_or(0),
            Piece::Kernel(bytes) => {
                CHANNEL.get(from + done as u64, bytes);
                bytes.len()
            }
        })
    }

    /// Reads at most `len` bytes of a file, at most a buffer; gives how many came and how many of these could be taken.
    pub fn read(&self, node: u64, out: &mut Output<'_>, at: u64) -> Result<(usize, usize)> {
        let got = self.fetch(node, at, out.remaining())?;
        let taken = if got == 0 { 0 } else { self.give_out(out, 0, got)? };
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
