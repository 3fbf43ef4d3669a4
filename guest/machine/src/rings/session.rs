//! The guest's side of session slots (`common/abi/machine`, [`SessionHeader`]).

use core::sync::atomic::Ordering;

use doppel_abi_machine::control;
use doppel_abi_machine::layout::CONTROL_BASE;
use doppel_abi_machine::session::{
    SESSION_REQUEST, SESSION_REQUEST_MAX, SESSION_STRIDE, SESSIONS, SessionHeader,
};

use crate::boot::{self, BootData};

fn offset(slot: usize) -> u64 {
    assert!(slot < SESSIONS);
    control::SESSIONS + slot as u64 * SESSION_STRIDE
}

/// The header of session `slot`.
pub fn header(slot: usize) -> &'static SessionHeader {
    // SAFETY: inside the control area, which is mapped for ever; a header is all atomics.
    unsafe { &*((CONTROL_BASE + offset(slot)) as *const SessionHeader) }
}

/// What session `slot` is to run.
pub fn request(slot: usize) -> BootData {
    let len = header(slot).request_len.load(Ordering::Acquire);
    boot::parse_args(offset(slot) + SESSION_REQUEST, len, SESSION_REQUEST_MAX)
}

/// Takes the numbers of the sessions that want something.
pub fn take_wanting() -> impl Iterator<Item = usize> {
    let words = boot::vregs().sessions.each_ref().map(|w| w.swap(0, Ordering::SeqCst));
    (0..SESSIONS).filter(move |n| words[n / 64] & 1 << (n % 64) != 0)
}
