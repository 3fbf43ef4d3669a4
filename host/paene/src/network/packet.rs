//! What packets are, and those that are made without a connection: refusals and datagrams.

use std::net::{IpAddr, SocketAddr};

use doppel_abi_service::echo;
use doppel_abi_service::net::address::{HOST4, HOST6};
use rustix::io::Errno;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    Icmpv4DstUnreachable, Icmpv4Packet, Icmpv4Repr, Icmpv6DstUnreachable, Icmpv6Packet, Icmpv6Repr,
    IpProtocol, Ipv4Packet, Ipv4Repr, Ipv6Packet, Ipv6Repr, TcpControl, TcpPacket, TcpRepr, TcpSeqNumber,
    UdpPacket,
};

use super::addresses::Addresses;
use super::channel::end;
use super::device::MTU;
use super::tunnel::Tunnel;

/// Hops of what is made here.
const HOPS: u8 = 64;
/// Bytes of a packet that a refusal brings back.
const QUOTE: usize = 64;
const UDP_HEADER: usize = 8;
const IPV6_HEADER: usize = 40;

/// What the domain's kernel sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packet<'a> {
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub what: What<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What<'a> {
    Segment(Segment),
    Datagram(&'a [u8]),
    /// A request for an echo; the own port is its identifier, and there is no other.
    Echo(&'a [u8]),
}

/// Of a segment, what a refusal takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub syn: bool,
    pub reset: bool,
    ack: Option<TcpSeqNumber>,
    next: TcpSeqNumber,
}

/// Takes a packet for what it is; none: for nothing we know.
pub(super) fn read(bytes: &[u8]) -> Option<Packet<'_>> {
    let (from, to, protocol, inner): (IpAddr, IpAddr, _, _) = match bytes.first()? >> 4 {
        4 => {
            let ip = Ipv4Packet::new_checked(bytes).ok()?;
            if ip.more_frags() || ip.frag_offset() != 0 {
                return None;
            }
            (ip.src_addr().into(), ip.dst_addr().into(), ip.next_header(), ip.payload())
        }
        6 => {
            let ip = Ipv6Packet::new_checked(bytes).ok()?;
            (ip.src_addr().into(), ip.dst_addr().into(), ip.next_header(), ip.payload())
        }
        _ => return None,
    };
    let (from_port, to_port, what) = match protocol {
        IpProtocol::Tcp => {
            let tcp = TcpPacket::new_checked(inner).ok()?;
            let segment = Segment {
                syn: tcp.syn() && !tcp.ack(),
                reset: tcp.rst(),
                ack: tcp.ack().then(|| tcp.ack_number()),
                next: tcp.seq_number() + tcp.segment_len(),
            };
            (tcp.src_port(), tcp.dst_port(), What::Segment(segment))
        }
        IpProtocol::Udp => {
            let udp = UdpPacket::new_checked(inner).ok()?;
            (udp.src_port(), udp.dst_port(), What::Datagram(udp.payload()))
        }
        IpProtocol::Icmp | IpProtocol::Icmpv6 if echo::is_request(inner, &end(SocketAddr::new(to, 0)).ip) => {
            (u16::from_be_bytes([inner[4], inner[5]]), 0, What::Echo(inner))
        }
        _ => return None,
    };
    Some(Packet { from: SocketAddr::new(from, from_port), to: SocketAddr::new(to, to_port), what })
}

/// Whether somebody may be at an address.
pub(super) fn is_somebodys(to: SocketAddr) -> bool {
    is_somebody(to.ip()) && to.port() != 0
}

/// Likewise, without a port.
pub(super) fn is_somebody(ip: IpAddr) -> bool {
    let broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    !(ip.is_multicast() || ip.is_unspecified() || ip.is_loopback() || broadcast)
}

/// Whether an address is another domain's than that which has these.
pub(super) fn is_domains(a: SocketAddr, own: &Addresses) -> bool {
    let in_network = match (a.ip(), IpAddr::from(HOST4), IpAddr::from(HOST6)) {
        (IpAddr::V4(ip), IpAddr::V4(host), _) => ip.octets()[..2] == host.octets()[..2],
        (IpAddr::V6(ip), _, IpAddr::V6(host)) => ip.octets()[..6] == host.octets()[..6],
        _ => false,
    };
    (in_network || own.has_beside(a.ip())) && ![HOST4.into(), HOST6.into()].contains(&a.ip())
}

/// How the domain sees a caller: the host's loopback is not its own.
pub(super) fn seen(from: SocketAddr) -> SocketAddr {
    match from.ip() {
        IpAddr::V4(ip) if ip.is_loopback() => SocketAddr::new(HOST4.into(), from.port()),
        IpAddr::V6(ip) if ip.is_loopback() => SocketAddr::new(HOST6.into(), from.port()),
        _ => from,
    }
}

/// Sends a packet with this header and payload.
fn send(
    tunnel: &Tunnel,
    (from, to): (IpAddr, IpAddr),
    protocol: IpProtocol,
    len: usize,
    fill: impl FnOnce(&mut [u8]),
) {
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let ip = Ipv4Repr {
                src_addr: from,
                dst_addr: to,
                next_header: protocol,
                payload_len: len,
                hop_limit: HOPS,
            };
            let head = ip.buffer_len();
            if head + len <= MTU {
                tunnel.send(head + len, |bytes| {
                    ip.emit(&mut Ipv4Packet::new_unchecked(&mut *bytes), &ChecksumCapabilities::default());
                    fill(&mut bytes[head..]);
                });
            }
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let ip = Ipv6Repr {
                src_addr: from,
                dst_addr: to,
                next_header: protocol,
                payload_len: len,
                hop_limit: HOPS,
            };
            let head = ip.buffer_len();
            if head + len <= MTU {
                tunnel.send(head + len, |bytes| {
                    ip.emit(&mut Ipv6Packet::new_unchecked(&mut *bytes));
                    fill(&mut bytes[head..]);
                });
            }
        }
        _ => {}
    }
}

/// Gives the domain a datagram; one for which there is no packet is lost.
pub(super) fn datagram(tunnel: &Tunnel, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
    let len = UDP_HEADER + bytes.len();
    let Ok(short) = u16::try_from(len) else { return };
    send(tunnel, (from.ip(), to.ip()), IpProtocol::Udp, len, |place| {
        let mut udp = UdpPacket::new_unchecked(place);
        udp.set_src_port(from.port());
        udp.set_dst_port(to.port());
        udp.set_len(short);
        udp.set_checksum(0);
        udp.payload_mut().copy_from_slice(bytes);
        // IPv6 drops a datagram without one (RFC 8200 §8.1); IPv4 takes it as it is.
        if from.is_ipv6() {
            udp.fill_checksum(&from.ip().into(), &to.ip().into());
        }
    });
}

/// Gives the domain an echo, with its header and checksum.
pub(super) fn echo(tunnel: &Tunnel, from: IpAddr, to: IpAddr, message: &[u8]) {
    let protocol = if from.is_ipv4() { IpProtocol::Icmp } else { IpProtocol::Icmpv6 };
    send(tunnel, (from, to), protocol, message.len(), |place| place.copy_from_slice(message));
}

/// Answers a segment with a reset: nobody is there.
pub(super) fn reset(tunnel: &Tunnel, from: SocketAddr, to: SocketAddr, segment: Segment) {
    let tcp = TcpRepr {
        src_port: to.port(),
        dst_port: from.port(),
        control: TcpControl::Rst,
        seq_number: segment.ack.unwrap_or_default(),
        ack_number: segment.ack.is_none().then_some(segment.next),
        window_len: 0,
        window_scale: None,
        max_seg_size: None,
        sack_permitted: false,
        sack_ranges: [None; 3],
        timestamp: None,
        payload: &[],
    };
    let caps = ChecksumCapabilities::ignored();
    send(tunnel, (to.ip(), from.ip()), IpProtocol::Tcp, tcp.buffer_len(), |place| {
        tcp.emit(&mut TcpPacket::new_unchecked(place), &to.ip().into(), &from.ip().into(), &caps);
    });
}

/// Answers the first packet of a connection, which could not be made, as a router would, or whoever is there.
pub(super) fn refuse(tunnel: &Tunnel, bytes: &[u8], why: Errno) {
    let Some(Packet { from, to, what: What::Segment(segment) }) = read(bytes) else { return };
    if why == Errno::CONNREFUSED {
        return reset(tunnel, from, to, segment);
    }
    let header = match from {
        SocketAddr::V4(_) => usize::from(bytes[0] & 15) * 4,
        SocketAddr::V6(_) => IPV6_HEADER,
    };
    let quote = bytes.get(header..).unwrap_or_default();
    unreachable(tunnel, (from.ip(), to.ip()), IpProtocol::Tcp, &quote[..quote.len().min(QUOTE)], why);
}

/// Says that a datagram which the domain sent cannot be delivered.
pub(super) fn undelivered(tunnel: &Tunnel, own: SocketAddr, far: SocketAddr, why: Errno) {
    let mut quote = [0; UDP_HEADER];
    let mut udp = UdpPacket::new_unchecked(&mut quote);
    udp.set_src_port(own.port());
    udp.set_dst_port(far.port());
    udp.set_len(8);
    unreachable(tunnel, (own.ip(), far.ip()), IpProtocol::Udp, &quote, why);
}

/// Says that a request for an echo, which began so, cannot be delivered.
pub(super) fn unasked(tunnel: &Tunnel, own: IpAddr, far: IpAddr, request: &[u8], why: Errno) {
    let protocol = if far.is_ipv4() { IpProtocol::Icmp } else { IpProtocol::Icmpv6 };
    unreachable(tunnel, (own, far), protocol, request, why);
}

/// Answers a packet of this protocol, which began so, from `own` to `far`.
fn unreachable(
    tunnel: &Tunnel,
    (own, far): (IpAddr, IpAddr),
    next_header: IpProtocol,
    data: &[u8],
    why: Errno,
) {
    let caps = ChecksumCapabilities::default();
    let (payload_len, hop_limit) = (data.len(), HOPS);
    match (own, far) {
        (IpAddr::V4(src_addr), IpAddr::V4(dst_addr)) => {
            let reason = match why {
                Errno::NETUNREACH => Icmpv4DstUnreachable::NetUnreachable,
                Errno::ACCESS => Icmpv4DstUnreachable::CommProhibited,
                Errno::CONNREFUSED => Icmpv4DstUnreachable::PortUnreachable,
                _ => Icmpv4DstUnreachable::HostUnreachable,
            };
            let header = Ipv4Repr { src_addr, dst_addr, next_header, payload_len, hop_limit };
            let icmp = Icmpv4Repr::DstUnreachable { reason, header, data };
            send(tunnel, (far, own), IpProtocol::Icmp, icmp.buffer_len(), |place| {
                icmp.emit(&mut Icmpv4Packet::new_unchecked(place), &caps);
            });
        }
        (IpAddr::V6(src_addr), IpAddr::V6(dst_addr)) => {
            let reason = match why {
                Errno::NETUNREACH => Icmpv6DstUnreachable::NoRoute,
                Errno::ACCESS => Icmpv6DstUnreachable::AdminProhibit,
                Errno::CONNREFUSED => Icmpv6DstUnreachable::PortUnreachable,
                _ => Icmpv6DstUnreachable::AddrUnreachable,
            };
            let header = Ipv6Repr { src_addr, dst_addr, next_header, payload_len, hop_limit };
            let icmp = Icmpv6Repr::DstUnreachable { reason, header, data };
            send(tunnel, (far, own), IpProtocol::Icmpv6, icmp.buffer_len(), |place| {
                icmp.emit(&dst_addr, &src_addr, &mut Icmpv6Packet::new_unchecked(place), &caps);
            });
        }
        _ => {}
    }
}
