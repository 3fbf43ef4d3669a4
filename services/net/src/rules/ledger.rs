//! What is counted of each domain: a memory file that manager and service domain share, a slot a domain.
//!
//! Nothing but counters is in it. A service domain that has gone mad can say anything in them, and no more than that; a
//! successor goes on from what is there, so a death loses no count.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use doppel_abi_service::{Account, Tally};
use doppel_sys::shared::SharedMap;
use rustix::fs::{MemfdFlags, SealFlags};
use serde::{Deserialize, Serialize};

/// Slots; only those in use cost memory.
const SLOTS: usize = 1 << 16;
const SIZE: usize = SLOTS * size_of::<Account>();

/// All accounts of one manager.
#[derive(Debug)]
pub struct Ledger {
    file: OwnedFd,
    map: SharedMap,
}

impl Ledger {
    /// Makes one with nothing in it.
    ///
    /// # Errors
    /// What the host says.
    pub fn new() -> io::Result<Arc<Self>> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("doppel-ledger", flags)?;
        rustix::fs::ftruncate(&file, SIZE as u64)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Self::open(file)
    }

    /// Opens the one in `file`.
    ///
    /// # Errors
    /// What the host says.
    pub fn open(file: OwnedFd) -> io::Result<Arc<Self>> {
        let map = SharedMap::new(file.as_fd(), SIZE)?;
        Ok(Arc::new(Self { file, map }))
    }

    /// Opens one that was taken from another process.
    ///
    /// # Errors
    /// What the host says, or if it is none.
    pub fn taken(file: OwnedFd) -> io::Result<Arc<Self>> {
        doppel_service::check_memory(&file, SIZE as u64)?;
        Self::open(file)
    }

    /// The memory file.
    #[must_use]
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The account with this key.
    #[must_use]
    pub fn entry(self: &Arc<Self>, key: u64) -> Counts {
        let slot = usize::try_from(key).unwrap_or(usize::MAX) % SLOTS;
        Counts { ledger: self.clone(), offset: slot * size_of::<Account>() }
    }
}

/// One domain's account.
#[derive(Clone, Debug)]
pub struct Counts {
    ledger: Arc<Ledger>,
    offset: usize,
}

impl Counts {
    fn account(&self) -> &Account {
        self.ledger.map.get(self.offset)
    }

    /// What the domain sends.
    #[must_use]
    pub fn sent(&self) -> &Tally {
        &self.account().sent
    }

    /// What it receives.
    #[must_use]
    pub fn received(&self) -> &Tally {
        &self.account().received
    }

    /// Begins at nothing.
    pub fn clear(&self) {
        self.sent().clear();
        self.received().clear();
    }

    /// How it stands.
    #[must_use]
    pub fn read(&self) -> Traffic {
        Traffic { sent: Sum::of(self.sent()), received: Sum::of(self.received()) }
    }
}

/// How an account stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// What the domain sent.
    pub sent: Sum,
    /// What it received.
    pub received: Sum,
}

/// One direction of it; see [`Tally`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sum {
    /// Bytes of programs' data.
    pub bytes: u64,
    /// Datagrams and pieces of streams.
    pub packets: u64,
    /// Flows that began.
    pub flows: u64,
    /// What did not go through.
    pub drops: u64,
}

impl Sum {
    fn of(way: &Tally) -> Self {
        let get = |n: &AtomicU64| n.load(Ordering::Relaxed);
        Self {
            bytes: get(&way.bytes),
            packets: get(&way.packets),
            flows: get(&way.flows),
            drops: get(&way.drops),
        }
    }

    fn with(self, other: Self, f: fn(u64, u64) -> u64) -> Self {
        Self {
            bytes: f(self.bytes, other.bytes),
            packets: f(self.packets, other.packets),
            flows: f(self.flows, other.flows),
            drops: f(self.drops, other.drops),
        }
    }
}

impl Traffic {
    fn with(self, other: Self, f: fn(u64, u64) -> u64) -> Self {
        Self { sent: self.sent.with(other.sent, f), received: self.received.with(other.received, f) }
    }

    /// Both together, however large.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.with(other, u64::saturating_add)
    }

    /// The larger of each: a count does not go down, whatever a service domain does.
    #[must_use]
    pub fn most(self, other: Self) -> Self {
        self.with(other, u64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_side_counts_the_other_reads() {
        let ours = Ledger::new().unwrap();
        let theirs = Ledger::open(rustix::io::fcntl_dupfd_cloexec(ours.file(), 0).unwrap()).unwrap();
        theirs.entry(7).sent().moved(100);
        theirs.entry(7).received().dropped();
        theirs.entry(8).sent().began();
        let found = ours.entry(7).read();
        assert_eq!(found.sent, Sum { bytes: 100, packets: 1, ..Sum::default() });
        assert_eq!(found.received, Sum { drops: 1, ..Sum::default() });
        ours.entry(7).clear();
        assert_eq!(theirs.entry(7).read(), Traffic::default());
        assert_eq!(ours.entry(8).read().sent.flows, 1);
        // A key beyond the slots is one of them, too.
        assert_eq!(ours.entry(8 + SLOTS as u64).read().sent.flows, 1);
    }

    #[test]
    fn counts_do_not_overflow_nor_go_down() {
        let all = |n| Sum { bytes: n, packets: n, flows: n, drops: n };
        let traffic = |n| Traffic { sent: all(n), received: all(n) };
        assert_eq!(traffic(u64::MAX).plus(traffic(1)), traffic(u64::MAX));
        assert_eq!(traffic(5).most(traffic(3)), traffic(5));
    }
}
