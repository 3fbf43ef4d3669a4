//! Giving a domain leases of its volumes, and taking them back (`doppel_abi_service::storage::Leases`). Whoever does it knows who
//! else has the volumes.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use doppel_abi_machine::VirtualRegisters;
use doppel_abi_service::layout;
use doppel_abi_service::storage::{LEASES, Leases};
use doppel_sys::shared::{SharedMap, offset};
use rustix::thread::futex;

pub use doppel_abi_service::storage::Keeps;

/// Gives one domain leases.
#[derive(Clone, Debug)]
pub struct Lessor(Arc<SharedMap>);

impl Lessor {
    /// By this channel's memory.
    ///
    /// # Errors
    /// What the host says.
    pub fn new(memory: BorrowedFd<'_>) -> io::Result<Self> {
        let map = SharedMap::new(memory, offset(LEASES) + size_of::<Leases>())?;
        Ok(Self(Arc::new(map)))
    }

    fn leases(&self) -> &Leases {
        self.0.get(offset(LEASES))
    }

    /// The domain may keep what it knows of the volume with this number: from here on nobody else changes that.
    pub fn give(&self, volume: u64, keeps: Keeps) {
        self.leases().give(volume, keeps);
    }

    /// It may no more.
    pub fn take_back(&self, volume: u64) {
        self.leases().take_back(volume);
    }

    /// Whether the service has seen all that was written under leases that were taken back. Until it has the domain is woken. What a
    /// domain has kept that is not waited for it writes later, or never.
    #[must_use]
    pub fn is_written(&self, volume: u64) -> bool {
        let done = self.leases().is_written(volume);
        if !done {
            self.wake();
        }
        done
    }

    /// Has the guest kernel's PID 1 look.
    fn wake(&self) {
        let registers: &VirtualRegisters = self.0.get(offset(layout::REGISTERS));
        registers.event_seq.fetch_add(1, Ordering::SeqCst);
        // The only possible failure is an unmapped word, and ours is mapped.
        let _ = futex::wake(&registers.event_seq, futex::Flags::empty(), i32::MAX.unsigned_abs());
    }
}
