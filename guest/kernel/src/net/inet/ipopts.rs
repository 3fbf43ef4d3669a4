//! Options at IP and IPv6 level (`ip(7)`, `ipv6(7)`). Multicast membership is accepted and has no effect; the
//! options that ask for control messages do.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use doppel_algo::net::ports::unmapped;
use doppel_algo::net::sockaddr::{AF_INET, AF_INET6};

use super::{End, is_local};
use crate::net::consts::{IP_TOS, IP_TTL, IPV6_HOPLIMIT, IPV6_TCLASS, SOL_IP, SOL_IPV6};
use crate::net::interfaces;
use crate::net::socket::Marks;
use crate::{Errno, Result};

const IPV6_UNICAST_HOPS: i32 = 16;
const IP_OPTIONS: i32 = 4;
const IP_PKTINFO: i32 = 8;
const IP_MTU: i32 = 14;
const IP_RECVTTL: i32 = 12;
const IP_RECVTOS: i32 = 13;
const IPV6_V6ONLY: i32 = 26;
const IPV6_MTU: i32 = 24;
const IPV6_RECVPKTINFO: i32 = 49;
const IPV6_PKTINFO: i32 = 50;
const IPV6_RECVHOPLIMIT: i32 = 51;
const IPV6_RECVTCLASS: i32 = 66;

/// IP options that are numbers, with their defaults.
const IP_NUMBERS: [(i32, i32); 22] = [
    (IP_TOS, 0),
    (IP_TTL, 64),
    (6, 0), // RECVOPTS
    (7, 0), // RETOPTS
    (IP_PKTINFO, 0),
    (10, 1), // MTU_DISCOVER
    (11, 0), // RECVERR
    (IP_RECVTTL, 0),
    (IP_RECVTOS, 0),
    (15, 0), // FREEBIND
    (18, 0), // PASSSEC
    (19, 0), // TRANSPARENT
    (20, 0), // RECVORIGDSTADDR
    (21, 0), // MINTTL
    (22, 0), // NODEFRAG
    (23, 0), // CHECKSUM
    (24, 0), // BIND_ADDRESS_NO_PORT
    (26, 0), // RECVERR_RFC4884
    (32, 0), // MULTICAST_IF
    (33, 1), // MULTICAST_TTL
    (34, 1), // MULTICAST_LOOP
    (49, 1), // MULTICAST_ALL
];
/// Likewise for IPv6.
const IPV6_NUMBERS: [(i32, i32); 24] = [
    (7, -1), // CHECKSUM
    (IPV6_UNICAST_HOPS, 64),
    (17, 0), // MULTICAST_IF
    (18, 1), // MULTICAST_HOPS
    (19, 1), // MULTICAST_LOOP
    (23, 1), // MTU_DISCOVER
    (IPV6_MTU, 65_536),
    (25, 0), // RECVERR
    (29, 1), // MULTICAST_ALL
    (IPV6_RECVPKTINFO, 0),
    (IPV6_RECVHOPLIMIT, 0),
    (53, 0), // RECVHOPOPTS
    (56, 0), // RECVRTHDR
    (58, 0), // RECVDSTOPTS
    (60, 0), // RECVPATHMTU
    (62, 0), // DONTFRAG
    (IPV6_RECVTCLASS, 0),
    (IPV6_TCLASS, 0),
    (70, 1), // AUTOFLOWLABEL
    (72, 0), // ADDR_PREFERENCES
    (73, 0), // MINHOPCOUNT
    (74, 0), // RECVORIGDSTADDR
    (75, 0), // TRANSPARENT
    (78, 0), // FREEBIND
];

/// Joining and leaving groups, and source filters.
fn is_membership(level: i32, name: i32) -> bool {
    let general = (42..=48).contains(&name);
    if level == SOL_IP {
        general || (35..=41).contains(&name)
    } else {
        general || matches!(name, 20 | 21 | 27 | 28)
    }
}

/// Values set, by level and name.
#[derive(Clone, Default)]
pub(super) struct IpOptions {
    set: BTreeMap<(i32, i32), i32>,
    /// IPV6_V6ONLY
    pub(super) v6only: bool,
}

fn numbers(level: i32) -> Result<&'static [(i32, i32)]> {
    match level {
        SOL_IP => Ok(&IP_NUMBERS),
        SOL_IPV6 => Ok(&IPV6_NUMBERS),
        _ => Err(Errno::ENOPROTOOPT),
    }
}

impl IpOptions {
    fn on(&self, level: i32, name: i32) -> bool {
        self.set.get(&(level, name)).is_some_and(|v| *v != 0)
    }

    /// A number, if it has been set and is not "the default".
    fn number(&self, level: i32, name: i32, default: i32) -> i32 {
        self.set.get(&(level, name)).copied().filter(|v| *v >= 0).unwrap_or(default)
    }

    /// What a packet sent from a socket with these options carries where its sender did not say.
    pub(super) fn marks(&self, v6: bool, m: Marks) -> Marks {
        if m.hops >= 0 && m.class >= 0 {
            return m;
        }
        let (hops, class) = if v6 {
            (self.number(SOL_IPV6, IPV6_UNICAST_HOPS, 64), self.number(SOL_IPV6, IPV6_TCLASS, 0))
        } else {
            (self.number(SOL_IP, IP_TTL, 64), self.number(SOL_IP, IP_TOS, 0))
        };
        Marks {
            hops: if m.hops < 0 { hops } else { m.hops },
            class: if m.class < 0 { class } else { m.class },
        }
    }

    /// Whether control messages with hops or class of datagrams are wanted.
    pub(super) fn wants_marks(&self) -> bool {
        [
            (SOL_IP, IP_RECVTTL),
            (SOL_IP, IP_RECVTOS),
            (SOL_IPV6, IPV6_RECVHOPLIMIT),
            (SOL_IPV6, IPV6_RECVTCLASS),
        ]
        .iter()
        .any(|(level, name)| self.on(*level, *name))
    }

    /// Whether hops or class were ever set.
    pub(super) fn has_marks(&self) -> bool {
        [(SOL_IP, IP_TTL), (SOL_IP, IP_TOS), (SOL_IPV6, IPV6_UNICAST_HOPS), (SOL_IPV6, IPV6_TCLASS)]
            .iter()
            .any(|key| self.set.contains_key(key))
    }

    /// Control messages a datagram for `to` comes with at a socket of `family`.
    pub(super) fn control(
        &self,
        family: u16,
        from: &End,
        to: &End,
        marks: Marks,
    ) -> Vec<(i32, i32, Vec<u8>)> {
        let mut out = Vec::new();
        if self.set.is_empty() {
            return out;
        }
        let device: u32 = if is_local(&from.ip) { 1 } else { 2 };
        if let Some(v4) = unmapped(&to.ip).filter(|_| family == AF_INET) {
            if self.on(SOL_IP, IP_PKTINFO) {
                let mut d = device.to_ne_bytes().to_vec();
                d.extend(v4);
                d.extend(v4);
                out.push((SOL_IP, IP_PKTINFO, d));
            }
            if self.on(SOL_IP, IP_RECVTTL) {
                out.push((SOL_IP, IP_TTL, marks.hops.to_ne_bytes().to_vec()));
            }
            if self.on(SOL_IP, IP_RECVTOS) {
                out.push((SOL_IP, IP_TOS, alloc::vec![marks.class as u8]));
            }
        } else {
            if self.on(SOL_IPV6, IPV6_RECVPKTINFO) {
                let mut d = to.ip.to_vec();
                d.extend(device.to_ne_bytes());
                out.push((SOL_IPV6, IPV6_PKTINFO, d));
            }
            if self.on(SOL_IPV6, IPV6_RECVHOPLIMIT) {
                out.push((SOL_IPV6, IPV6_HOPLIMIT, marks.hops.to_ne_bytes().to_vec()));
            }
            if self.on(SOL_IPV6, IPV6_RECVTCLASS) {
                out.push((SOL_IPV6, IPV6_TCLASS, marks.class.to_ne_bytes().to_vec()));
            }
        }
        out
    }
}

/// setsockopt; `fixed` once the socket is bound.
pub(super) fn set(
    o: &mut IpOptions,
    family: u16,
    fixed: bool,
    level: i32,
    name: i32,
    value: &[u8],
) -> Result<()> {
    let list = numbers(level)?;
    if level == SOL_IPV6 && family != AF_INET6 {
        return Err(Errno::ENOPROTOOPT);
    }
    if is_membership(level, name) || (level, name) == (SOL_IP, IP_OPTIONS) {
        return if value.len() >= 4 { Ok(()) } else { Err(Errno::EINVAL) };
    }
    // A single byte will do for many of them.
    let v = match value {
        [a, b, c, d, ..] => i32::from_ne_bytes([*a, *b, *c, *d]),
        [a, ..] if level == SOL_IP => i32::from(*a),
        _ => return Err(Errno::EINVAL),
    };
    if (level, name) == (SOL_IPV6, IPV6_V6ONLY) {
        if fixed {
            return Err(Errno::EINVAL);
        }
        o.v6only = v != 0;
        return Ok(());
    }
    if !list.iter().any(|n| n.0 == name) {
        return Err(Errno::ENOPROTOOPT);
    }
    const TTL: i32 = 2;
    // -1 asks for the default again.
    let v = match v {
        -1 if (level, name) == (SOL_IP, TTL) => 64,
        v if (level, name) == (SOL_IP, TTL) && !(1..256).contains(&v) => return Err(Errno::EINVAL),
        v => v,
    };
    o.set.insert((level, name), v);
    Ok(())
}

/// Longest packet to an address: the interface's, which has no larger one for IP than 65,535.
pub(super) fn mtu(to: &End) -> i32 {
    let index = if is_local(&to.ip) { 1 } else { 2 };
    let found = interfaces::all().into_iter().find(|i| i.index == index);
    found.map_or(0, |i| i.mtu.min(u16::MAX.into()) as i32)
}

/// getsockopt of a socket with this peer.
pub(super) fn get(o: &IpOptions, peer: Option<&End>, level: i32, name: i32) -> Result<Vec<u8>> {
    let list = numbers(level)?;
    if (level, name) == (SOL_IPV6, IPV6_V6ONLY) {
        return Ok(i32::from(o.v6only).to_ne_bytes().to_vec());
    }
    if (level, name) == (SOL_IP, IP_OPTIONS) {
        return Ok(Vec::new());
    }
    if (level, name) == (SOL_IP, IP_MTU) {
        return Ok(mtu(peer.ok_or(Errno::ENOTCONN)?).to_ne_bytes().to_vec());
    }
    let known = list.iter().find(|n| n.0 == name).ok_or(Errno::ENOPROTOOPT)?;
    let v = o.set.get(&(level, name)).copied().unwrap_or(known.1);
    Ok(v.to_ne_bytes().to_vec())
}
