//! The contract between a guest kernel and a service domain (docs/services.md): what lies where in the memory file they
//! share, its *channel*, and what they say to each other in it.
//!
//! Key types: [`ChannelHeader`], [`Requests`] and [`Answers`] (rings of entries), [`net`] (what the entries of the
//! network service mean), [`storage`] (those of the storage service), [`echo`] (ICMP), [`Account`] (what that counts, for the supervisor alone). Numbers and layouts only; both sides
//! compile this.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

mod account;
pub mod echo;
pub mod net;
mod pulse;
pub mod storage;

pub use account::{Account, Tally};
pub use pulse::Pulse;

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use doppel_ring::{Dirty, Entries, Header, Marks, Slot};

/// Both sides must have the same.
pub const VERSION: u32 = 8;
/// First word of a channel: "doppelch".
pub const MAGIC: u64 = u64::from_le_bytes(*b"doppelch");

/// Offsets in a channel.
pub mod layout {
    /// [`super::ChannelHeader`].
    pub const HEADER: u64 = 0;
    /// [`super::Bells`] of the guest kernel for the service domain.
    pub const TO_SERVICE: u64 = 4 << 10;
    /// [`super::Bells`] of the service domain for the guest kernel.
    pub const TO_GUEST: u64 = 8 << 10;
    /// The domain's virtual registers (`common/abi/machine`), in which the service domain posts an event when it has news.
    pub const REGISTERS: u64 = 12 << 10;
    /// [`super::Requests`].
    pub const REQUESTS: u64 = 64 << 10;
    /// [`super::Answers`].
    pub const ANSWERS: u64 = 128 << 10;
    /// Where what belongs to one kind of service begins.
    pub const SERVICE: u64 = 1 << 20;
}

/// Objects (sockets) of a channel.
pub const OBJECTS: u32 = BANKS as u32 * doppel_ring::Dirty::LIMIT;
/// Bitmaps of marks; more do not fit a page.
const BANKS: usize = 7;
/// Entries of each ring.
pub const ENTRIES: usize = 256;

/// Values of [`ChannelHeader::guest_sleeps`].
pub mod sleeps {
    /// It looks by itself.
    pub const NOT: u32 = 0;
    /// It wants an event.
    pub const IDLE: u32 = 1;
    /// Its domain is hibernated: the supervisor, who sets this, is to be told, and wakes it.
    pub const HIBERNATED: u32 = 2;
    /// A thread that is about to look runs: it wants to be woken if news have not been taken when the service domain falls
    /// asleep.
    pub const SOON: u32 = 3;
}

/// First page of a channel.
#[repr(C)]
#[derive(Debug)]
pub struct ChannelHeader {
    /// [`MAGIC`]; who makes the channel writes it.
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// The service domain's: which one serves now. It begins at 1 and rises when one is replaced; 0: none yet.
    pub epoch: AtomicU32,
    /// The guest kernel's: the epoch for which it has begun anew. Until both are equal neither touches a ring.
    pub guest_epoch: AtomicU32,
    /// How the guest kernel is to be told of the next news: one of [`sleeps`]. It sets this word, the service domain
    /// takes it.
    pub guest_sleeps: AtomicU32,
    /// 1: the service domain sleeps, or is about to: the guest kernel rings its doorbell.
    pub service_sleeps: AtomicU32,
    /// The service domain's: another number at each news. A vCPU of the guest kernel may sleep on it.
    pub bell: AtomicU32,
    /// The guest kernel's: 1 while a vCPU sleeps on [`Self::bell`]. Then no event is posted for it.
    pub watched: AtomicU32,
    /// The service domain's: another number at each news that a program may wait for. The end of a socket that a program
    /// has closed is none, so a hibernated domain is not woken for it.
    pub calls: AtomicU32,
    /// The guest kernel's: [`Self::calls`] before it took the news it has taken last.
    pub heard: AtomicU32,
}

impl ChannelHeader {
    /// Whether there is news for a program that the guest kernel has not taken.
    #[must_use]
    pub fn is_called(&self) -> bool {
        self.calls.load(Ordering::SeqCst) != self.heard.load(Ordering::SeqCst)
    }
}

/// Which objects want a look: one side marks, the other takes.
#[repr(transparent)]
#[derive(Debug)]
pub struct Bells([Marks; BANKS]);

impl Bells {
    /// See [`Dirty::mark`].
    ///
    /// # Panics
    /// If there is no such object.
    pub fn mark(&self, object: u32) {
        Dirty(&self.0[(object / Dirty::LIMIT) as usize]).mark(object % Dirty::LIMIT);
    }

    /// See [`Dirty::take`].
    pub fn take(&self, mut look: impl FnMut(u32)) {
        for (bank, marks) in (0..).zip(&self.0) {
            Dirty(marks).take(|i| look(bank * Dirty::LIMIT + i));
        }
    }

    /// See [`Dirty::any`].
    #[must_use]
    pub fn any(&self) -> bool {
        self.0.iter().any(|marks| Dirty(marks).any())
    }
}

/// What the guest kernel asks.
#[repr(C)]
#[derive(Debug)]
pub struct Requests {
    /// The ring's words.
    pub header: Header,
    /// Its entries.
    pub slots: [Slot; ENTRIES],
}

/// What the service domain says.
#[repr(C)]
#[derive(Debug)]
pub struct Answers {
    /// The ring's words.
    pub header: Header,
    /// Its entries.
    pub slots: [Slot; ENTRIES],
}

impl Requests {
    /// As a ring.
    #[must_use]
    pub fn ring(&self) -> Entries<'_> {
        Entries::new(&self.header, &self.slots)
    }
}

impl Answers {
    /// As a ring.
    #[must_use]
    pub fn ring(&self) -> Entries<'_> {
        Entries::new(&self.header, &self.slots)
    }
}

// Pinned: docs/services.md.
const _: () = {
    assert!(size_of::<ChannelHeader>() == 48);
    assert!(size_of::<Bells>() <= 4096);
    assert!(layout::REQUESTS + size_of::<Requests>() as u64 <= layout::ANSWERS);
    assert!(layout::ANSWERS + size_of::<Answers>() as u64 <= layout::SERVICE);
};
