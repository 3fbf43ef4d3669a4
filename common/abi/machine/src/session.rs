//! Sessions: more programs in a running domain, each with streams or a terminal of its own (`doppel exec`).
//!
//! The control area has room for [`SESSIONS`] of them. The host owns the room: it takes a slot, writes the request and
//! the header, then sets the slot's bit in `VirtualRegisters::sessions` and posts `event::SESSION`. The guest answers
//! in the header and rings the doorbell. A slot is free again once the guest has let go of it
//! ([`SessionHeader::left`]); the host gives its pages back then, so that the next one finds zeros.

use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};

use crate::RING_STRIDE;

/// Most sessions of a domain at a time.
pub const SESSIONS: usize = 128;
/// Offset, in a slot, of what the host notes for whoever takes the domain over from it: text, up to the first NUL. The guest
/// does not look at it.
pub const SESSION_NOTE: u64 = 2048;
/// Room for it in bytes.
pub const SESSION_NOTE_MAX: u64 = 2048;
/// Offset of the request in a slot: [`crate::BootArgs`] followed by its strings.
pub const SESSION_REQUEST: u64 = 4096;
/// Room for it in bytes.
pub const SESSION_REQUEST_MAX: u64 = 128 << 10;
/// Offset of the first of the rings `ring::STDIN`, `STDOUT` and `STDERR`, [`RING_STRIDE`] bytes apart.
pub const SESSION_RINGS: u64 = SESSION_REQUEST + SESSION_REQUEST_MAX;
/// Number of rings.
pub const SESSION_RING_COUNT: usize = 3;
/// Distance between slots in bytes.
pub const SESSION_STRIDE: u64 = SESSION_RINGS + SESSION_RING_COUNT as u64 * RING_STRIDE;

/// Values of [`SessionHeader::state`].
pub mod session_state {
    /// Nobody's.
    pub const FREE: u32 = 0;
    /// The host wants it; the request is there.
    pub const ASKED: u32 = 1;
    /// The program runs.
    pub const RUNNING: u32 = 2;
    /// The program has ended, or could not be started.
    pub const ENDED: u32 = 3;
}

/// First page of a session's slot.
#[repr(C)]
#[derive(Debug)]
pub struct SessionHeader {
    /// [`session_state`]; the host writes `ASKED`, the guest the rest.
    pub state: AtomicU32,
    /// Bytes of the request.
    pub request_len: AtomicU32,
    /// Terminal size: rows << 16 | columns; the host writes it.
    pub winsize: AtomicU32,
    /// 1: the host has gone away from this session: its streams and its terminal are hung up.
    pub released: AtomicU32,
    /// Signals for the program's process group, bit n-1 for signal n; the guest takes all of it at once.
    pub signals: AtomicU64,
    /// Why the program could not be started: an errno; 0 if it could.
    pub error: AtomicI32,
    /// Its process id in the domain.
    pub pid: AtomicI32,
    /// Its wait status once it has ended (exit code << 8 | signal).
    pub status: AtomicI32,
    /// 1: the guest will not touch this slot again. Only after `released`.
    pub left: AtomicU32,
}

// Pinned: docs/machine-interface.md.
const _: () = {
    assert!(size_of::<SessionHeader>() == 40);
    assert!(SESSION_STRIDE.is_multiple_of(4096));
    assert!(SESSION_NOTE >= size_of::<SessionHeader>() as u64);
    assert!(SESSION_NOTE + SESSION_NOTE_MAX <= SESSION_REQUEST);
};
