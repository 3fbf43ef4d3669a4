//! Slots of a domain's control area, a session each: which are taken, and who waits for news of them.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, Weak};

use doppel_abi_machine::control;
use doppel_abi_machine::session::{SESSION_STRIDE, SESSIONS, SessionHeader};
use doppel_sys::shared::{self, SharedMap};

use crate::lock::lock;

/// Which slots of a domain are taken.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    pub used: u128,
    /// Given up by us, not yet by the domain.
    pub leaving: u128,
    /// Who is to be told that the doorbell rang.
    pub bells: Vec<(usize, Weak<OwnedFd>)>,
    /// Those that another process has left to us, with its note of each.
    pub left: Vec<(usize, String)>,
}

const _: () = assert!(SESSIONS <= 128, "the sets above have 128 bits");

impl Slots {
    /// Takes back the slots that the domain has left.
    pub fn sweep(&mut self, map: &SharedMap) {
        let leaving = self.leaving;
        for slot in (0..SESSIONS).filter(|slot| leaving & 1 << slot != 0) {
            if header(map, slot).left.load(Ordering::Acquire) == 0 {
                continue;
            }
            // With its old bytes it could not be used again: it stays as it is.
            if map.free(offset(slot, 0), stride()).is_ok() {
                self.leaving &= !(1 << slot);
                self.used &= !(1 << slot);
            }
        }
    }

    /// A free slot, if there is one.
    pub fn take(&mut self, map: &SharedMap) -> Option<usize> {
        self.sweep(map);
        let slot = (0..SESSIONS).find(|slot| self.used & 1 << slot == 0)?;
        self.used |= 1 << slot;
        Some(slot)
    }
}

pub(crate) fn offset(slot: usize, within: u64) -> usize {
    shared::offset(control::SESSIONS + slot as u64 * SESSION_STRIDE + within)
}

pub(crate) fn stride() -> usize {
    usize::try_from(SESSION_STRIDE).expect("fits the control area")
}

pub(crate) fn header(map: &SharedMap, slot: usize) -> &SessionHeader {
    map.get(offset(slot, 0))
}

/// The domain's doorbell rang, or it ended: those who drive sessions on other threads are to look.
pub(crate) fn ring_bells(sessions: &Mutex<Slots>, map: &SharedMap) {
    let mut slots = lock(sessions);
    if slots.leaving != 0 {
        slots.sweep(map);
    }
    for bell in slots.bells.iter().filter_map(|(_, bell)| bell.upgrade()) {
        // A counter at its maximum has rung already.
        let _ = rustix::io::write(&*bell, &1u64.to_ne_bytes());
    }
}
