//! The guest's side of the channel to the network service (`common/abi/service`).
//!
//! It is mapped at boot, shared, at a fixed address; only a domain with a network has one ([`is_there`]). The service
//! domain is not trusted with more than the traffic: indices are checked (`doppel_ring`), bytes are copied.

use core::sync::atomic::Ordering;

use doppel_abi_machine::{fd, layout::NETWORK_BASE, resume_flags};
use doppel_abi_service::net::pages::PAGE;
use doppel_abi_service::net::{BUFFER, SIZE, SOCKETS, SocketHeader, down_buffer, up_buffer};
use doppel_abi_service::{Answers, Bells, ChannelHeader, OBJECTS, Requests, layout};
use doppel_ring::Span;

use crate::host::{self, nr};
use crate::memory::user::{Fault, UserPtr};
use crate::rings::control::start_info;

/// Whether this domain has a network.
pub fn is_there() -> bool {
    start_info().network != 0
}

/// Whether this domain, which wakes, has the network it had.
pub fn is_same() -> bool {
    is_there() && start_info().resume_flags & resume_flags::SAME_NETWORK != 0
}

fn at<T>(offset: u64) -> &'static T {
    assert!(is_there() && offset + size_of::<T>() as u64 <= SIZE, "no channel");
    // SAFETY: inside the channel, which is mapped for ever; the callers below name structures made of atomics, at the
    // offsets their layout is pinned to.
    unsafe { &*((NETWORK_BASE + offset) as *const T) }
}

/// The channel's first page.
pub fn header() -> &'static ChannelHeader {
    at(layout::HEADER)
}

/// What the guest kernel asks.
pub fn requests() -> &'static Requests {
    at(layout::REQUESTS)
}

/// What the service domain says.
pub fn answers() -> &'static Answers {
    at(layout::ANSWERS)
}

/// Sockets the service domain should look at.
pub fn to_service() -> &'static Bells {
    at(layout::TO_SERVICE)
}

/// Sockets the guest kernel should look at.
pub fn to_guest() -> &'static Bells {
    at(layout::TO_GUEST)
}

/// What both sides know of socket `n`.
pub fn socket(n: u32) -> &'static SocketHeader {
    assert!(n < OBJECTS, "no such socket");
    at(SOCKETS + u64::from(n) * size_of::<SocketHeader>() as u64)
}

/// Copies bytes to the up buffer of socket `n`; they must fit the span.
pub fn put(n: u32, span: Span, bytes: &[u8]) {
    let to = buffer(up_buffer(n), n, span, bytes.len());
    // SAFETY: checked to be inside the buffer; the source is the kernel's own.
    unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) }
}

/// Copies user memory to the up buffer of socket `n` up to the first fault; returns how many bytes.
pub fn put_from_user(n: u32, span: Span, from: UserPtr, len: usize) -> Result<usize, Fault> {
    let to = buffer(up_buffer(n), n, span, len) as u64;
    from.transfer(len, |s| (to, s))
}

/// Copies from the down buffer of socket `n` to user memory up to the first fault; returns how many bytes.
pub fn get_to_user(n: u32, span: Span, to: UserPtr, len: usize) -> Result<usize, Fault> {
    let from = buffer(down_buffer(n), n, span, len) as u64;
    to.transfer(len, |d| (d, from))
}

/// Copies bytes from the down buffer of socket `n`; the span must have as many.
pub fn get(n: u32, span: Span, bytes: &mut [u8]) {
    let from = buffer(down_buffer(n), n, span, bytes.len());
    // SAFETY: checked to be inside the buffer; the target is the kernel's own. Bytes the service domain changes
    // meanwhile are bytes it could have sent.
    unsafe { core::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len()) }
}

/// Has the host put `count` pages of the down buffer of socket `n`, from page `first` on, where they are not there yet, to this
/// domain's account. Their bytes stay, also those that the service domain writes meanwhile. False: the host does not, or not now.
pub fn touch(n: u32, first: usize, count: usize) -> bool {
    const MADV_POPULATE_WRITE: u64 = 23;
    assert!(n < OBJECTS && (first + count) * PAGE <= BUFFER as usize, "outside a buffer");
    let from = NETWORK_BASE + down_buffer(n) + (first * PAGE) as u64;
    // SAFETY: inside the channel; no byte changes.
    unsafe { host::call(nr::MADVISE, [from, (count * PAGE) as u64, MADV_POPULATE_WRITE, 0, 0, 0]) }.is_ok()
}

fn buffer(start: u64, n: u32, span: Span, len: usize) -> *mut u8 {
    assert!(n < OBJECTS && len <= span.len && span.offset + span.len <= BUFFER as usize, "outside a buffer");
    (NETWORK_BASE + start + span.offset as u64) as *mut u8
}

/// Rings the service domain's doorbell, if it sleeps. What it is to see was stored before.
pub fn ring_service() {
    let header = header();
    core::sync::atomic::fence(Ordering::SeqCst);
    if header.service_sleeps.load(Ordering::Relaxed) == 0
        || header.service_sleeps.swap(0, Ordering::AcqRel) == 0
    {
        return;
    }
    let one = 1u64;
    // SAFETY: writes 8 bytes from a local to an eventfd. A full counter (EAGAIN) is as good as rung.
    let _ = unsafe {
        host::call(nr::WRITE, [fd::NETWORK_DOORBELL as u64, core::ptr::from_ref(&one) as u64, 8, 0, 0, 0])
    };
}
