//! The guest's side of the channel to the network service (`common/abi/service`).
//!
//! Only a domain with a network has one ([`is_there`]).

use alloc::vec::Vec;
use core::sync::atomic::{Ordering, fence};

use doppel_abi_machine::{fd, layout::NETWORK_BASE, resume_flags};
use doppel_abi_service::net::pages::PAGE;
use doppel_abi_service::net::{
    BUFFER, Congestion, Measure, OwnAddress, SIZE, SOCKETS, SocketHeader, down_buffer, measure, up_buffer,
};
use doppel_abi_service::{Answers, Bells, ChannelHeader, OBJECTS, Requests};
use doppel_ring::Span;

use super::channel::Channel;
use crate::host::{self, nr};
use crate::memory::user::{Fault, UserPtr};
use crate::rings::control::start_info;

static CHANNEL: Channel = Channel::new(NETWORK_BASE, SIZE, fd::NETWORK_DOORBELL, is_there);

/// Whether this domain has a network.
pub fn is_there() -> bool {
    start_info().network != 0
}

/// Whether this domain, which wakes, has the network it had.
pub fn is_same() -> bool {
    is_there() && start_info().resume_flags & resume_flags::SAME_NETWORK != 0
}

/// What the service domain says of the host's congestion control; nothing before it serves.
pub fn congestion() -> Congestion {
    let mut said = Congestion([0; Congestion::SIZE]);
    CHANNEL.get(Congestion::PLACE, &mut said.0);
    said
}

/// Addresses out of subnets that this domain has now, and whether they are whole: they may be written just now.
pub fn own_addresses() -> (Vec<OwnAddress>, bool) {
    let number = || {
        let mut b = [0; 4];
        CHANNEL.get(OwnAddress::PLACE, &mut b);
        u32::from_le_bytes(b)
    };
    let before = number();
    fence(Ordering::Acquire);
    let mut count = [0; 4];
    CHANNEL.get(OwnAddress::PLACE + 4, &mut count);
    let count = (u32::from_le_bytes(count) as usize).min(OwnAddress::MOST);
    let mut all = Vec::with_capacity(count);
    for n in 0..count {
        let mut b = [0; OwnAddress::SIZE];
        CHANNEL.get(OwnAddress::PLACE + (OwnAddress::HEAD + n * OwnAddress::SIZE) as u64, &mut b);
        all.push(OwnAddress::decode(&b));
    }
    fence(Ordering::Acquire);
    (all, before & 1 == 0 && number() == before)
}

/// A measurement that the service domain has put in this place.
pub fn measured(place: u16) -> Measure {
    let mut said = [0; Measure::SIZE];
    CHANNEL.get(measure(place), &mut said);
    Measure::decode(&said)
}

/// The channel's first page.
pub fn header() -> &'static ChannelHeader {
    CHANNEL.header()
}

/// What the guest kernel asks.
pub fn requests() -> &'static Requests {
    CHANNEL.requests()
}

/// What the service domain says.
pub fn answers() -> &'static Answers {
    CHANNEL.answers()
}

/// Sockets the service domain should look at.
pub fn to_service() -> &'static Bells {
    CHANNEL.to_service()
}

/// Sockets the guest kernel should look at.
pub fn to_guest() -> &'static Bells {
    CHANNEL.to_guest()
}

/// What both sides know of socket `n`.
pub fn socket(n: u32) -> &'static SocketHeader {
    assert!(n < OBJECTS, "no such socket");
    CHANNEL.at(SOCKETS + u64::from(n) * size_of::<SocketHeader>() as u64)
}

/// Copies bytes to the up buffer of socket `n`; they must fit the span.
pub fn put(n: u32, span: Span, bytes: &[u8]) {
    CHANNEL.put(buffer(up_buffer(n), n, span, bytes.len()), bytes);
}

/// Copies user memory to the up buffer of socket `n` up to the first fault; returns how many bytes.
pub fn put_from_user(n: u32, span: Span, from: UserPtr, len: usize) -> Result<usize, Fault> {
    CHANNEL.put_from_user(buffer(up_buffer(n), n, span, len), from, len)
}

/// Copies from the down buffer of socket `n` to user memory up to the first fault; returns how many bytes.
pub fn get_to_user(n: u32, span: Span, to: UserPtr, len: usize) -> Result<usize, Fault> {
    CHANNEL.get_to_user(buffer(down_buffer(n), n, span, len), to, len)
}

/// Copies bytes from the down buffer of socket `n`; the span must have as many.
pub fn get(n: u32, span: Span, bytes: &mut [u8]) {
    CHANNEL.get(buffer(down_buffer(n), n, span, bytes.len()), bytes);
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

/// Where in the channel a span of a buffer is.
fn buffer(start: u64, n: u32, span: Span, len: usize) -> u64 {
    assert!(n < OBJECTS && len <= span.len && span.offset + span.len <= BUFFER as usize, "outside a buffer");
    start + span.offset as u64
}

/// Rings the service domain's doorbell, if it sleeps. What it is to see was stored before.
pub fn ring_service() {
    CHANNEL.ring();
}
