//! Which datagrams a UDP socket takes: those that come by its interface and that its filter lets through.
//!
//! A filter sees an IP header and a UDP header before the data. There are none on the way through the domain, so they are made
//! here, for sockets that have a filter.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use doppel_algo::bpf::Kind;
use doppel_algo::net::ports::unmapped;

use super::udp::{Datagram, Udp};
use crate::objects::net::filter;

const UDP_HEADER: usize = 8;
const HOPS: u8 = 64;

impl Udp {
    /// Whether it takes what comes by this interface.
    pub(super) fn hears(&self, index: u32) -> bool {
        let device = self.common.device.load(Ordering::Relaxed);
        device == 0 || device == index
    }

    /// Runs the socket's filter, if it has one, over a datagram for it, which may be shorter then. False: it is not wanted.
    #[inline]
    pub(crate) fn passes(&self, d: &mut Datagram) -> bool {
        !filter::is_set(&self.common) || self.filtered(d)
    }

    #[cold]
    fn filtered(&self, d: &mut Datagram) -> bool {
        const LOOPBACK: u32 = 1;
        const ARPHRD_LOOPBACK: u32 = 772;
        const ARPHRD_ETHER: u32 = 1;
        let header = if self.is_echo() { 0 } else { UDP_HEADER };
        let len = (header + d.data.len()) as u16;
        let mut bytes = ip_header(d, self.common.protocol as u8, len);
        let start = bytes.len();
        if header != 0 {
            for word in [d.from.port, d.to.port, len, 0] {
                bytes.extend_from_slice(&word.to_be_bytes());
            }
        }
        bytes.extend_from_slice(&d.data);
        let interface = if d.index == 0 { LOOPBACK } else { d.index };
        let kind = Kind {
            protocol: if unmapped(&d.to.ip).is_some() { 0x0800 } else { 0x86dd },
            interface,
            hardware: if interface == LOOPBACK { ARPHRD_LOOPBACK } else { ARPHRD_ETHER },
            ..Kind::default()
        };
        let Some(kept) = filter::judge(&self.common, &bytes, start, kind) else { return false };
        // The header itself is never cut.
        let kept = kept.max(header.max(1)) - header;
        if kept < d.data.len() {
            d.data = Arc::new(d.data[..kept].to_vec());
        }
        true
    }
}

/// The header of a datagram of `len` bytes. No checksum: nobody has computed one.
fn ip_header(d: &Datagram, protocol: u8, len: u16) -> Vec<u8> {
    const IPV4: u8 = 0x45;
    const IPV6: u8 = 0x60;
    const DONT_FRAGMENT: u8 = 0x40;
    let hops = u8::try_from(d.marks.hops).unwrap_or(HOPS);
    let class = u8::try_from(d.marks.class).unwrap_or(0);
    let mut h = Vec::with_capacity(40 + usize::from(len));
    if let (Some(from), Some(to)) = (unmapped(&d.from.ip), unmapped(&d.to.ip)) {
        let [l0, l1] = len.saturating_add(20).to_be_bytes();
        h.extend_from_slice(&[IPV4, class, l0, l1, 0, 0, DONT_FRAGMENT, 0, hops, protocol, 0, 0]);
        h.extend_from_slice(&from);
        h.extend_from_slice(&to);
    } else {
        let [l0, l1] = len.to_be_bytes();
        h.extend_from_slice(&[IPV6 | class >> 4, class << 4, 0, 0, l0, l1, protocol, hops]);
        h.extend_from_slice(&d.from.ip);
        h.extend_from_slice(&d.to.ip);
    }
    h
}
