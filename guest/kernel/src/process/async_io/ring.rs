//! The ring of events of an instance of kernel AIO, which its program may read without a call (`struct aio_ring`).

use alloc::vec::Vec;

use doppel_machine::pod_struct;
use doppel_machine::sync::SpinLock;

use super::shared::Shared;
use crate::memory::PAGE;
use crate::{Errno, Result};

/// Most events of all instances together (`/proc/sys/fs/aio-max-nr`).
pub const MAX_EVENTS: u64 = 65536;
/// What the ring begins with, by which libaio knows it.
const MAGIC: u32 = 0xa10a_10a1;

/// Offsets of words in the ring, and the size of what comes before the events.
mod at {
    pub const ID: u64 = 0;
    pub const SLOTS: u64 = 4;
    pub const HEAD: u64 = 8;
    pub const TAIL: u64 = 12;
    pub const MAGIC: u64 = 16;
    pub const FEATURES: u64 = 20;
    pub const HEADER: u64 = 28;
    pub const EVENTS: u64 = 32;
}

pod_struct! {
    /// `struct io_event`.
    pub struct IoEvent {
        /// What the program gave with the request.
        pub data: u64,
        /// Address of the request.
        pub object: u64,
        /// Its result.
        pub result: i64,
        /// Nothing.
        pub second: i64,
    }
}

const EVENT: u64 = size_of::<IoEvent>() as u64;

/// A ring. The kernel writes events and their end (tail), whoever takes them their beginning (head).
pub struct Ring {
    /// The memory.
    pub memory: Shared,
    slots: u32,
    tail: SpinLock<u32>,
}

impl Ring {
    /// A ring with room for `events`, and for as many again as Linux gives beyond that.
    pub fn new(id: u32, events: u32) -> Result<Self> {
        // One slot is always empty, one is spare; and Linux makes twice as many for requests that a CPU takes ahead.
        let wanted = u64::from(events).max(8) * 2 + 2;
        let memory = Shared::new(at::EVENTS + wanted * EVENT)?;
        let slots = u32::try_from((memory.size() - at::EVENTS) / EVENT).map_err(|_| Errno::EINVAL)?;
        debug_assert!(memory.size().is_multiple_of(PAGE), "a ring is whole pages");
        for (offset, word) in [
            (at::ID, id),
            (at::SLOTS, slots),
            (at::MAGIC, MAGIC),
            (at::FEATURES, 1),
            (at::HEADER, at::EVENTS as u32),
        ] {
            memory.store(offset, word)?;
        }
        Ok(Self { memory, slots, tail: SpinLock::new(0) })
    }

    /// How many events fit.
    pub fn room(&self) -> u32 {
        self.slots - 1
    }

    fn head(&self) -> u32 {
        self.memory.load(at::HEAD) % self.slots
    }

    fn count(&self, head: u32, tail: u32) -> u32 {
        (tail + self.slots - head) % self.slots
    }

    /// How many events nobody has taken yet.
    pub fn waiting(&self) -> u32 {
        let tail = *self.tail.lock();
        self.count(self.head(), tail)
    }

    /// Adds an event; the caller has reserved room for it.
    pub fn post(&self, event: &IoEvent) -> Result<()> {
        let mut tail = self.tail.lock();
        self.memory.write(at::EVENTS + u64::from(*tail) * EVENT, event)?;
        *tail = (*tail + 1) % self.slots;
        self.memory.store(at::TAIL, *tail)
    }

    /// The first events, at most so many, and the head behind them.
    pub fn peek(&self, most: usize) -> (Vec<IoEvent>, u32) {
        let tail = *self.tail.lock();
        let mut head = self.head();
        let n = most.min(self.count(head, tail) as usize);
        let events = (0..n).map(|_| {
            let event: IoEvent = self.memory.read(at::EVENTS + u64::from(head) * EVENT);
            head = (head + 1) % self.slots;
            event
        });
        (events.collect(), head)
    }

    /// Says that the events before `head` have been taken.
    pub fn taken(&self, head: u32) -> Result<()> {
        self.memory.store(at::HEAD, head)
    }
}
