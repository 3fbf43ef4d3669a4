//! Rings of 64-byte entries: one producer, one consumer.

use super::{AtomicU64, Broken, Header, Ordering, ask, take};

/// 64-bit words of an entry.
pub const ENTRY_WORDS: usize = 8;

/// One entry, as private memory holds it.
pub type Entry = [u64; ENTRY_WORDS];

/// One entry, as shared memory holds it.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Slot([AtomicU64; ENTRY_WORDS]);

impl Slot {
    fn put(&self, entry: &Entry) {
        for (to, from) in self.0.iter().zip(entry) {
            to.store(*from, Ordering::Relaxed);
        }
    }

    fn get(&self) -> Entry {
        core::array::from_fn(|i| self.0[i].load(Ordering::Relaxed))
    }
}

/// A ring in shared memory.
#[derive(Clone, Copy, Debug)]
pub struct Entries<'a> {
    header: &'a Header,
    slots: &'a [Slot],
}

impl<'a> Entries<'a> {
    /// A ring of these words and slots.
    ///
    /// # Panics
    /// If the number of slots is not a power of two.
    #[must_use]
    pub fn new(header: &'a Header, slots: &'a [Slot]) -> Self {
        assert!(slots.len().is_power_of_two(), "a ring of {} slots", slots.len());
        Self { header, slots }
    }

    fn slot(&self, count: u32) -> &'a Slot {
        &self.slots[count as usize & (self.slots.len() - 1)]
    }

    fn capacity(&self) -> u32 {
        self.slots.len() as u32
    }
}

/// The producer's private side.
#[derive(Debug, Default)]
pub struct Producer {
    pub(crate) head: u32,
    /// What of it the consumer has been shown.
    pub(crate) shown: u32,
}

impl Producer {
    /// Puts an entry into the ring; false if it is full. The consumer sees it after [`Self::publish`].
    ///
    /// # Errors
    /// The consumer's index is impossible.
    pub fn push(&mut self, ring: &Entries<'_>, entry: &Entry) -> Result<bool, Broken> {
        if self.room(ring)? == 0 {
            return Ok(false);
        }
        ring.slot(self.head).put(entry);
        self.head = self.head.wrapping_add(1);
        Ok(true)
    }

    /// Shows the consumer what was pushed. True: it sleeps, notify it.
    #[must_use]
    pub fn publish(&mut self, ring: &Entries<'_>) -> bool {
        if self.shown == self.head {
            return false;
        }
        self.shown = self.head;
        ring.header.head.store(self.head, Ordering::Release);
        take(&ring.header.consumer_waits)
    }

    /// Entries that fit.
    ///
    /// # Errors
    /// The consumer's index is impossible.
    pub fn room(&self, ring: &Entries<'_>) -> Result<u32, Broken> {
        let used = self.head.wrapping_sub(ring.header.tail.load(Ordering::Acquire));
        ring.capacity().checked_sub(used).ok_or(Broken)
    }

    /// Asks for a notification when there is room; false if there is.
    ///
    /// # Errors
    /// The consumer's index is impossible.
    pub fn sleep(&self, ring: &Entries<'_>) -> Result<bool, Broken> {
        ask(&ring.header.producer_waits);
        Ok(self.room(ring)? == 0)
    }
}

/// The consumer's private side.
#[derive(Debug, Default)]
pub struct Consumer {
    pub(crate) tail: u32,
}

impl Consumer {
    /// Copies the next entry out; `None` if there is none. The producer gets the room at [`Self::release`].
    ///
    /// # Errors
    /// The producer's index is impossible.
    pub fn pop(&mut self, ring: &Entries<'_>) -> Result<Option<Entry>, Broken> {
        if self.waiting(ring)? == 0 {
            return Ok(None);
        }
        let entry = ring.slot(self.tail).get();
        self.tail = self.tail.wrapping_add(1);
        Ok(Some(entry))
    }

    /// Gives back the room of what was popped. True: the producer sleeps for room, notify it.
    #[must_use]
    pub fn release(&mut self, ring: &Entries<'_>) -> bool {
        ring.header.tail.store(self.tail, Ordering::Release);
        take(&ring.header.producer_waits)
    }

    /// Entries that wait.
    ///
    /// # Errors
    /// The producer's index is impossible.
    pub fn waiting(&self, ring: &Entries<'_>) -> Result<u32, Broken> {
        let waiting = ring.header.head.load(Ordering::Acquire).wrapping_sub(self.tail);
        if waiting > ring.capacity() { Err(Broken) } else { Ok(waiting) }
    }

    /// Asks for a notification when an entry comes; false if one is there.
    ///
    /// # Errors
    /// The producer's index is impossible.
    pub fn sleep(&self, ring: &Entries<'_>) -> Result<bool, Broken> {
        ask(&ring.header.consumer_waits);
        Ok(self.waiting(ring)? == 0)
    }
}
