//! What the host and the attendant have in common: the control area and a doorbell.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use doppel_abi_machine::{VirtualRegisters, control, ring, state};
use doppel_sys::shared::{SharedMap, offset};

use crate::program::ring::Ring;

/// What the host and the attendant have in common.
#[derive(Debug)]
pub(crate) struct Host {
    pub map: Arc<SharedMap>,
    pub doorbell: OwnedFd,
    pub _control: OwnedFd,
}

impl Host {
    /// Tells the host to look.
    pub fn ring(&self) {
        // A counter at its maximum has rung already.
        let _ = rustix::io::write(&self.doorbell, &1u64.to_ne_bytes());
    }

    /// The virtual registers.
    pub fn registers(&self) -> &VirtualRegisters {
        self.map.get(offset(control::VREGS))
    }

    /// Says something on the domain's log.
    pub fn log(&self, text: &str) {
        let _ = Ring::console(ring::LOG).produce(&self.map, format!("doppel: {text}\n").as_bytes());
        self.ring();
    }

    /// Says how the domain ended, as a guest kernel does.
    pub fn ended(&self, status: i32) {
        self.registers().exit_status.store(status, Ordering::Release);
        self.registers().state.store(state::EXITED, Ordering::Release);
        self.ring();
    }
}
