//! What the network service counts for its supervisor: a memory file of its own, an [`Account`] a domain, which no domain
//! ever sees. The service adds, the supervisor reads; neither waits for the other, so a service that hangs hangs alone.

use core::sync::atomic::{AtomicU64, Ordering};

/// One domain's, a cache line.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Account {
    /// What it sent.
    pub sent: Tally,
    /// What it received.
    pub received: Tally,
}

/// One direction.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Tally {
    /// Bytes of programs' data.
    pub bytes: AtomicU64,
    /// Datagrams, and pieces of streams as the host moved them.
    pub packets: AtomicU64,
    /// Connections made, and pairs of addresses that began to exchange datagrams.
    pub flows: AtomicU64,
    /// Connections and datagrams refused by a rule, and datagrams for which there was no room.
    pub drops: AtomicU64,
}

impl Tally {
    /// One packet of this length went through.
    pub fn moved(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.packets.fetch_add(1, Ordering::Relaxed);
    }

    /// A flow began.
    pub fn began(&self) {
        self.flows.fetch_add(1, Ordering::Relaxed);
    }

    /// Something did not go through.
    pub fn dropped(&self) {
        self.drops.fetch_add(1, Ordering::Relaxed);
    }

    /// Nothing yet.
    pub fn clear(&self) {
        for n in [&self.bytes, &self.packets, &self.flows, &self.drops] {
            n.store(0, Ordering::Relaxed);
        }
    }
}

const _: () = assert!(size_of::<Account>() == 64, "docs/services.md");
