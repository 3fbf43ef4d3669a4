//! Rings between a domain's guest kernel and a service domain, in memory that both can write (VirtuOS §4.1, Xen §3.2).
//!
//! Key types: [`Producer`] and [`Consumer`] of [`Entries`] (64-byte descriptors), [`Writer`] and [`Reader`] of a byte
//! [`Stream`], [`Dirty`] (which of many streams want a look), [`Tickets`] (which requests are under way), [`ClientEnd`] (who
//! asks, and takes answers).
//!
//! **Trust.** Either side takes the other for hostile. An index of one's own is kept privately and never read back; the
//! peer's is read once and checked, and an impossible one is [`Broken`]. An entry is copied once, and only the copy is
//! looked at. Shared memory is reached as atomics alone, so nothing the peer does is a data race.
//!
//! **Sleeping.** Nobody is notified who does not ask: who wants to sleep sets a word, then looks again; who has made
//! progress takes that word, and notifies if it was set. A fence stands between the two steps on both sides, so no
//! wake-up is lost (`model.rs` checks every interleaving: `make loom`).
//!
//! **Epochs.** A service domain that is replaced begins a new epoch: both sides begin with new indices and zeroed words,
//! and tickets of the old epoch fit nothing any more (`docs/services.md`).
//!
//! Boundary: no system call, no memory mapping, no unsafe code; how a peer is notified is the caller's business.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod client;
mod dirty;
mod entries;
mod stream;
mod tickets;

pub use client::{ClientEnd, Numbers};
pub use dirty::{Dirty, Marks};
pub use entries::{Consumer, ENTRY_WORDS, Entries, Entry, Producer, Slot};
pub use stream::{Reader, Span, Stream, Writer};
pub use tickets::{Ticket, Tickets};

#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(not(all(test, loom)))]
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(all(test, loom))]
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// The peer has stored an index that no peer which keeps to the protocol stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

/// The shared words of a ring of entries or of a stream of bytes. Zeros are an empty ring.
///
/// Counts are modulo 2³². Each side writes a cache line of its own, but for the word with which the peer asks to be
/// notified.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Header {
    /// How much was ever produced. The producer's.
    head: AtomicU32,
    /// 1: the consumer wants to be notified when there is something. It sets it, the producer takes it.
    consumer_waits: AtomicU32,
    /// 1: nothing will come any more. The producer's.
    closed: AtomicU32,
    _line: [u32; 13],
    /// How much was ever consumed. The consumer's.
    tail: AtomicU32,
    /// 1: the producer wants to be notified when there is room.
    producer_waits: AtomicU32,
    /// 1: nothing will be consumed any more. The consumer's.
    hung_up: AtomicU32,
    _end: [u32; 13],
}

// Pinned: docs/services.md. Loom's atomics are larger.
#[cfg(not(all(test, loom)))]
const _: () = assert!(size_of::<Header>() == 128 && align_of::<Header>() == 64);

impl Header {
    /// Begins anew. Only while the peer does not use the ring: between epochs.
    pub fn reset(&self) {
        for word in
            [&self.head, &self.consumer_waits, &self.closed, &self.tail, &self.producer_waits, &self.hung_up]
        {
            word.store(0, Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
    }
}

/// Sets a word that asks the peer for a notification. The caller then looks again.
fn ask(word: &AtomicU32) {
    word.store(1, Ordering::Relaxed);
    fence(Ordering::SeqCst);
}

/// Takes the peer's request for a notification, after progress was stored. True: notify.
#[must_use]
fn take(word: &AtomicU32) -> bool {
    fence(Ordering::SeqCst);
    // A plain look first: mostly nobody waits, and an exchange would take the line.
    word.load(Ordering::Relaxed) != 0 && word.swap(0, Ordering::AcqRel) != 0
}
