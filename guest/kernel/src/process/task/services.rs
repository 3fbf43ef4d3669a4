//! The services a thread may be woken by.

use core::sync::atomic::AtomicU32;

use crate::core::sched::{Outside, Watch};
use crate::objects::net::outside::{self, Network};
use crate::objects::storage::{self, Storage};

/// A service of the domain.
#[derive(Clone, Copy)]
pub enum Services {
    /// Of sockets.
    Network(&'static Network),
    /// Of files.
    Storage(&'static Storage),
}

/// The right to be woken by it.
pub enum ServiceWatch {
    /// See [`outside::Watch`].
    Network(outside::Watch),
    /// See [`storage::Watch`].
    Storage(storage::Watch),
}

impl Outside for Services {
    type Watch = ServiceWatch;

    fn of(sources: u8) -> Option<(Self, u8)> {
        // Who has asked for a file waits for that before anything else.
        if sources & storage::SOURCE != 0
            && let Some(s) = storage::storage()
        {
            return Some((Self::Storage(s), storage::SOURCE));
        }
        (sources & outside::SOURCE != 0)
            .then(outside::network)
            .flatten()
            .map(|n| (Self::Network(n), outside::SOURCE))
    }

    fn release(sources: u8) {
        if sources & outside::SOURCE != 0
            && let Some(network) = outside::network()
        {
            network.release();
        }
    }

    fn rings(self) -> bool {
        match self {
            Self::Network(n) => n.rings(),
            Self::Storage(s) => s.rings(),
        }
    }

    fn look_in_place(self) {
        match self {
            Self::Network(n) => n.look_in_place(),
            Self::Storage(s) => s.look_in_place(),
        }
    }

    fn watch(self) -> Option<ServiceWatch> {
        match self {
            Self::Network(n) => outside::Watch::take(n).map(ServiceWatch::Network),
            Self::Storage(s) => storage::Watch::take(s).map(ServiceWatch::Storage),
        }
    }
}

impl Watch for ServiceWatch {
    fn sleep(&self, word: &AtomicU32, seen: u32, deadline: Option<u64>) {
        match self {
            Self::Network(w) => w.sleep(word, seen, deadline),
            Self::Storage(w) => w.sleep(word, seen, deadline),
        }
    }
}
