//! What the service is told of any socket's options, and what it says of the host's.

use core::sync::atomic::Ordering;

use doppel_abi_service::net::{Congestion, SocketOption};
use doppel_machine::network as channel;

use crate::objects::net::common::Common;
use crate::objects::net::consts as c;

/// An option, and what it is set to.
pub type Setting = (SocketOption, u32);

/// Algorithms without a network.
const INSIDE: &[u8] = b"cubic reno";

/// Algorithms of congestion control that programs may choose, the default first: the host's. A service that does not say so in
/// time has none.
pub fn algorithms() -> Congestion {
    if let Some(network) = super::network()
        && channel::congestion().names().next().is_none()
    {
        // It has said so before it answers anything, whatever it is asked about.
        network.measure(0);
    }
    let said = if channel::is_there() { Some(channel::congestion()) } else { None };
    said.filter(|s| s.names().next().is_some()).unwrap_or_else(|| {
        let mut own = Congestion([0; Congestion::SIZE]);
        own.0[..INSIDE.len()].copy_from_slice(INSIDE);
        own
    })
}

/// Sizes of buffers that were set, and the priority.
pub fn of_common(o: &Common) -> impl Iterator<Item = Setting> + use<> {
    let locks = o.buf_lock.load(Ordering::Relaxed);
    // The host counts twice what is asked, too.
    let size = |lock, size: usize| (locks & lock != 0).then_some((size / 2) as u32);
    let send = size(c::SNDBUF_LOCK, o.sndbuf.load(Ordering::Relaxed));
    let receive = size(c::RCVBUF_LOCK, o.rcvbuf.load(Ordering::Relaxed));
    let priority = o.priority.load(Ordering::Relaxed);
    send.map(|n| (SocketOption::SendBuffer, n))
        .into_iter()
        .chain(receive.map(|n| (SocketOption::ReceiveBuffer, n)))
        .chain((1..=6).contains(&priority).then_some((SocketOption::Priority, priority)))
}
