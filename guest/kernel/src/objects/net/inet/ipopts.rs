//! Options at IP and IPv6 level (`ip(7)`, `ipv6(7)`): what is set, read back and done with them. The table is iprows.rs.

use crate::core::subject::subject;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use doppel_abi_service::net::SocketOption;
use doppel_algo::net::ports::{EPHEMERAL_FIRST, EPHEMERAL_LAST, Ip, unmapped};
use doppel_algo::net::sockaddr::{AF_INET, AF_INET6, Addr};

use super::groups::{self, Groups};
use super::iprows::{self as rows, Kind, Length, Row};
use super::iprows::{IP_FREEBIND, IP_MTU, IP_OPTIONS, IP_PKTINFO, IP_RECVTOS, IP_RECVTTL};
use super::iprows::{IPV6_PKTINFO, IPV6_RECVHOPLIMIT, IPV6_RECVPKTINFO, IPV6_RECVTCLASS, IPV6_UNICAST_HOPS};
use super::{End, is_local};
use crate::objects::net::Common;
use crate::objects::net::consts::{
    IP_TOS, IP_TTL, IPV6_HOPLIMIT, IPV6_TCLASS, SOCK_STREAM, SOL_IP, SOL_IPV6, SOL_SOCKET,
};
use crate::objects::net::interfaces;
use crate::objects::net::outside::Setting;
use crate::objects::net::socket::Marks;
use crate::{Errno, Result};

/// Longest IP options.
const MOST_OPTIONS: usize = 40;

/// Values set, by level and name.
#[derive(Clone, Default)]
pub(crate) struct IpOptions {
    set: BTreeMap<(i32, i32), i32>,
    /// IPV6_V6ONLY
    pub(crate) v6only: bool,
    /// Multicast groups.
    pub(super) groups: Groups,
    /// IP_OPTIONS, if there are any.
    raw: Option<Box<[u8]>>,
}

/// The options of a level at a socket of this family.
fn table(level: i32, family: u16) -> Option<&'static [Row]> {
    match level {
        SOL_IP => Some(&rows::IP),
        SOL_IPV6 if family == AF_INET6 => Some(&rows::IPV6),
        _ => None,
    }
}

impl IpOptions {
    /// Whether nothing was ever set.
    pub(super) fn is_unset(&self) -> bool {
        self.set.is_empty()
    }

    pub(super) fn on(&self, level: i32, name: i32) -> bool {
        self.set.get(&(level, name)).is_some_and(|v| *v != 0)
    }

    /// A number, if it has been set and is not "the default".
    fn number(&self, level: i32, name: i32, default: i32) -> i32 {
        self.set.get(&(level, name)).copied().filter(|v| *v >= 0).unwrap_or(default)
    }

    /// Whether it may be bound to an address that is not the domain's.
    pub(super) fn binds_anything(&self) -> bool {
        !self.set.is_empty()
            && [
                (SOL_IP, IP_FREEBIND),
                (SOL_IP, rows::IP_TRANSPARENT),
                (SOL_IPV6, rows::IPV6_FREEBIND),
                (SOL_IPV6, rows::IPV6_TRANSPARENT),
            ]
            .iter()
            .any(|(l, n)| self.on(*l, *n))
    }

    /// Whether bind leaves the choice of a port to connect.
    pub(super) fn binds_no_port(&self) -> bool {
        self.on(SOL_IP, rows::IP_BIND_ADDRESS_NO_PORT)
    }

    /// Ports to choose from.
    pub(super) fn ports(&self) -> (u16, u16) {
        let asked = self.number(SOL_IP, rows::IP_LOCAL_PORT_RANGE, 0) as u32;
        let (low, high) = (asked as u16, (asked >> 16) as u16);
        let first = if low == 0 { EPHEMERAL_FIRST } else { low.clamp(EPHEMERAL_FIRST, EPHEMERAL_LAST) };
        let last = if high == 0 { EPHEMERAL_LAST } else { high.clamp(EPHEMERAL_FIRST, EPHEMERAL_LAST) };
        if first <= last { (first, last) } else { (EPHEMERAL_FIRST, EPHEMERAL_LAST) }
    }

    /// The interface that datagrams to groups of this family shall take, 0 for none.
    pub(super) fn multicast_interface(&self, v6: bool) -> u32 {
        let key = if v6 { (SOL_IPV6, rows::IPV6_MULTICAST_IF) } else { INDEX_OF_GROUPS };
        self.number(key.0, key.1, 0).unsigned_abs()
    }

    /// The address that datagrams to groups shall come from, if one was named.
    pub(super) fn multicast_source(&self) -> Option<[u8; 4]> {
        let address = self.set.get(&(SOL_IP, rows::IP_MULTICAST_IF)).copied().unwrap_or(0);
        (address != 0).then(|| address.to_ne_bytes())
    }

    /// Whether what is sent to groups comes back to members on this machine.
    pub(super) fn multicast_loops(&self, v6: bool) -> bool {
        let key = if v6 { (SOL_IPV6, rows::IPV6_MULTICAST_LOOP) } else { (SOL_IP, rows::IP_MULTICAST_LOOP) };
        self.number(key.0, key.1, 1) != 0
    }

    /// Whether it takes what comes on this interface from an address to a group.
    pub(super) fn takes_of_group(&self, group: &Ip, index: u32, from: &Ip) -> bool {
        let v6 = unmapped(group).is_none();
        let key = if v6 { (SOL_IPV6, rows::IPV6_MULTICAST_ALL) } else { (SOL_IP, rows::IP_MULTICAST_ALL) };
        self.groups.takes(group, index, from, self.number(key.0, key.1, 1) != 0)
    }

    /// Whether errors of datagrams are kept (IP_RECVERR).
    pub(crate) fn keeps_errors(&self, family: u16) -> bool {
        let key = if family == AF_INET { (SOL_IP, rows::IP_RECVERR) } else { (SOL_IPV6, rows::IPV6_RECVERR) };
        !self.set.is_empty() && self.on(key.0, key.1)
    }

    /// What a packet sent from a socket with these options carries where its sender did not say.
    pub(super) fn marks(&self, v6: bool, group: bool, m: Marks) -> Marks {
        if m.hops >= 0 && m.class >= 0 {
            return m;
        }
        let (hops, class) = if v6 {
            (self.number(SOL_IPV6, IPV6_UNICAST_HOPS, 64), self.number(SOL_IPV6, IPV6_TCLASS, 0))
        } else {
            (self.number(SOL_IP, IP_TTL, 64), self.number(SOL_IP, IP_TOS, 0))
        };
        let hops = match (group, v6) {
            (false, _) => hops,
            (true, true) => self.number(SOL_IPV6, rows::IPV6_MULTICAST_HOPS, 1),
            (true, false) => self.number(SOL_IP, rows::IP_MULTICAST_TTL, 1),
        };
        Marks {
            hops: if m.hops < 0 { hops } else { m.hops },
            class: if m.class < 0 { class } else { m.class },
        }
    }

    /// Whether control messages with hops or class of datagrams are wanted.
    pub(crate) fn wants_marks(&self) -> bool {
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

    /// How the longest packet on a way is found out, where that was set (IP_MTU_DISCOVER, IPV6_MTU_DISCOVER).
    pub(crate) fn discovers(&self) -> impl Iterator<Item = Setting> + use<> {
        let of = |level, name, option| Some((option, self.set.get(&(level, name))?.unsigned_abs()));
        let v4 = of(SOL_IP, rows::IP_MTU_DISCOVER, SocketOption::MtuDiscover);
        v4.into_iter().chain(of(SOL_IPV6, rows::IPV6_MTU_DISCOVER, SocketOption::MtuDiscover6))
    }

    /// Control messages a datagram for `to` comes with at a socket of `family`.
    pub(super) fn control(
        &self,
        family: u16,
        from: &End,
        to: &End,
        index: u32,
        marks: Marks,
    ) -> Vec<(i32, i32, Vec<u8>)> {
        let mut out = Vec::new();
        if self.set.is_empty() {
            return out;
        }
        let device: u32 = if index != 0 {
            index
        } else if is_local(&from.ip) {
            1
        } else {
            2
        };
        if let Some(v4) = unmapped(&to.ip).filter(|_| family == AF_INET) {
            if self.on(SOL_IP, IP_PKTINFO) {
                // The address it came to, of the interface and in the packet.
                let specific = if super::is_multicast(&to.ip) {
                    unmapped(&super::address_on(device, &to.ip)).unwrap_or(v4)
                } else {
                    v4
                };
                let mut d = device.to_ne_bytes().to_vec();
                d.extend(specific);
                d.extend(v4);
                out.push((SOL_IP, IP_PKTINFO, d));
            }
            if self.on(SOL_IP, IP_RECVTTL) {
                out.push((SOL_IP, IP_TTL, marks.hops.to_ne_bytes().to_vec()));
            }
            if self.on(SOL_IP, IP_RECVTOS) {
                out.push((SOL_IP, IP_TOS, alloc::vec![marks.class as u8]));
            }
            if self.on(SOL_IP, rows::IP_ORIGDSTADDR) {
                out.push((SOL_IP, rows::IP_ORIGDSTADDR, address(&to.show(AF_INET))));
            }
        } else {
            if self.on(SOL_IPV6, IPV6_RECVPKTINFO) {
                let mut d = to.ip.to_vec();
                d.extend(device.to_ne_bytes());
                out.push((SOL_IPV6, IPV6_PKTINFO, d));
            }
            if self.on(SOL_IPV6, rows::IPV6_2292PKTINFO) {
                let mut d = to.ip.to_vec();
                d.extend(device.to_ne_bytes());
                out.push((SOL_IPV6, rows::IPV6_2292PKTINFO, d));
            }
            if self.on(SOL_IPV6, rows::IPV6_2292HOPLIMIT) {
                out.push((SOL_IPV6, rows::IPV6_2292HOPLIMIT, marks.hops.to_ne_bytes().to_vec()));
            }
            if self.on(SOL_IPV6, IPV6_RECVHOPLIMIT) {
                out.push((SOL_IPV6, IPV6_HOPLIMIT, marks.hops.to_ne_bytes().to_vec()));
            }
            if self.on(SOL_IPV6, IPV6_RECVTCLASS) {
                out.push((SOL_IPV6, IPV6_TCLASS, marks.class.to_ne_bytes().to_vec()));
            }
            if self.on(SOL_IPV6, rows::IPV6_ORIGDSTADDR) {
                out.push((SOL_IPV6, rows::IPV6_ORIGDSTADDR, address(&to.show(AF_INET6))));
            }
        }
        out
    }
}

/// Where IP_MULTICAST_IF keeps its interface: a number that no option has.
const INDEX_OF_GROUPS: (i32, i32) = (SOL_IP, -1);

/// An address as bytes.
fn address(a: &Addr) -> Vec<u8> {
    let mut b = [0; doppel_algo::net::sockaddr::MAX];
    let n = a.encode(&mut b);
    b[..n].to_vec()
}

/// The number in a value, as far as the option lets it be short.
fn number(level: i32, length: Length, value: &[u8]) -> Result<i32> {
    match (value, length) {
        ([a, b, c, d, ..], _) => Ok(i32::from_ne_bytes([*a, *b, *c, *d])),
        ([a, ..], Length::Nothing | Length::Byte) if level == SOL_IP => Ok(i32::from(*a)),
        ([], Length::Nothing) | (_, Length::WordOrZero) => Ok(0),
        _ => Err(Errno::EINVAL),
    }
}

/// The number to keep for what was asked.
fn checked(r: &Row, v: i32) -> Result<i32> {
    match r.kind {
        Kind::Switch => Ok(i32::from(v != 0)),
        Kind::Number(from, to) if (from..=to).contains(&v) => Ok(v),
        Kind::OrDefault(..) if v == -1 => Ok(r.default),
        Kind::OrDefault(from, to) if (from..=to).contains(&v) => Ok(v),
        Kind::Number(..) | Kind::OrDefault(..) => Err(Errno::EINVAL),
        Kind::Any => Ok(v),
        Kind::Fixed(e) => Err(e),
    }
}

/// IPV6_ADDR_PREFERENCES: one of each kind; what is not named stays.
fn preferences(old: i32, v: i32) -> Result<i32> {
    const SOURCE: i32 = 0x103;
    const HOME: i32 = 0x404;
    let mut new = old;
    for kind in [SOURCE, HOME] {
        match (v & kind).count_ones() {
            0 => {}
            1 => new = new & !kind | v & kind,
            _ => return Err(Errno::EINVAL),
        }
    }
    Ok(new)
}

/// setsockopt; `fixed` once the socket is bound.
pub(super) fn set(
    o: &mut IpOptions,
    common: &Common,
    fixed: bool,
    level: i32,
    name: i32,
    value: &[u8],
) -> Result<()> {
    let table = table(level, common.domain).ok_or(Errno::ENOPROTOOPT)?;
    let stream = common.kind == SOCK_STREAM;
    if (level, name) == (SOL_IP, IP_OPTIONS) {
        return set_raw(o, value);
    }
    if (level, name) == (SOL_IPV6, rows::IPV6_V6ONLY) {
        let v = number(level, Length::Word, value)?;
        if fixed {
            return Err(Errno::EINVAL);
        }
        o.v6only = v != 0;
        return Ok(());
    }
    if let Some(done) = o.groups.set(stream, level, name, value) {
        return done;
    }
    if let Some(done) = o.groups.set_filter(level, name, value) {
        return done;
    }
    let r = table.iter().find(|r| r.name == name).ok_or(Errno::ENOPROTOOPT)?;
    if let Some(e) = r.stream.filter(|_| stream) {
        return Err(e);
    }
    let mut v = checked(r, number(level, r.length, value)?)?;
    let old = o.set.get(&(level, name)).copied().unwrap_or(r.default);
    match (level, name) {
        (SOL_IP, IP_TOS) => {
            v &= 0xff;
            if stream {
                // Congestion notification is TCP's own.
                v = v & !3 | old & 3;
            }
            common.set_class(v);
        }
        (SOL_IPV6, IPV6_TCLASS) if stream => v = v & !3 | old & 3,
        (SOL_IP, rows::IP_TRANSPARENT) | (SOL_IPV6, rows::IPV6_TRANSPARENT) if v != 0 => {
            const CAP_NET_ADMIN: u32 = 12;
            const CAP_NET_RAW: u32 = 13;
            let cred = subject().cred();
            if !cred.capable(CAP_NET_ADMIN) && !cred.capable(CAP_NET_RAW) {
                return Err(Errno::EPERM);
            }
        }
        (SOL_IP, rows::IP_UNICAST_IF) | (SOL_IPV6, rows::IPV6_UNICAST_IF) => {
            let index = u32::from_be(v as u32);
            if index != 0 && !groups::exists(index) {
                return Err(Errno::EADDRNOTAVAIL);
            }
        }
        (SOL_IP, rows::IP_LOCAL_PORT_RANGE) => {
            let (low, high) = (v as u32 & 0xffff, v as u32 >> 16);
            if low != 0 && high != 0 && low > high {
                return Err(Errno::EINVAL);
            }
        }
        (SOL_IP, rows::IP_MULTICAST_IF) => {
            let (address, index) = multicast_interface(value)?;
            o.set.insert(INDEX_OF_GROUPS, index as i32);
            v = address;
        }
        (SOL_IPV6, rows::IPV6_MULTICAST_IF) if v != 0 && !groups::exists(v as u32) => {
            return Err(Errno::ENODEV);
        }
        (SOL_IPV6, rows::IPV6_MTU) if v != 0 && v < 1280 => return Err(Errno::EINVAL),
        (SOL_IPV6, rows::IPV6_ADDR_PREFERENCES) => v = preferences(old, v)?,
        _ => {}
    }
    o.set.insert((level, name), v);
    Ok(())
}

/// IP_MULTICAST_IF: the address as it is shown, and the interface.
fn multicast_interface(value: &[u8]) -> Result<(i32, u32)> {
    let word = |at: usize| value.get(at..at + 4).map(|b| [b[0], b[1], b[2], b[3]]);
    let (address, index) = match value.len() {
        12.. => (word(4), word(8).map_or(0, u32::from_ne_bytes)),
        8.. => (word(4), 0),
        _ => (word(0), 0),
    };
    let address = address.ok_or(Errno::EINVAL)?;
    let found = match (index, address) {
        (0, [0, 0, 0, 0]) => Some(0),
        (0, a) => groups::interface_of(a),
        (i, _) => groups::exists(i).then_some(i),
    };
    Ok((i32::from_ne_bytes(address), found.ok_or(Errno::EADDRNOTAVAIL)?))
}

/// IP_OPTIONS: there are no routers that could look at any; those that say nothing are kept.
fn set_raw(o: &mut IpOptions, value: &[u8]) -> Result<()> {
    const END: u8 = 0;
    const NOTHING: u8 = 1;
    if value.len() > MOST_OPTIONS {
        return Err(Errno::EINVAL);
    }
    let told = value.iter().position(|b| *b == END).map_or(value, |n| &value[..n]);
    if told.iter().any(|b| *b != NOTHING) {
        return Err(Errno::EINVAL);
    }
    let mut raw = told.to_vec();
    raw.resize(value.len().next_multiple_of(4), END);
    o.raw = Some(raw.into());
    Ok(())
}

/// Whether it is the option that says the longest packet on the way to the peer.
pub(super) fn is_mtu(level: i32, name: i32) -> bool {
    matches!((level, name), (SOL_IP, IP_MTU) | (SOL_IPV6, rows::IPV6_MTU))
}

/// Longest packet to an address: the interface's, which has no larger one for IP than 65,535.
pub(super) fn mtu(to: &End) -> i32 {
    let index = if is_local(&to.ip) { 1 } else { 2 };
    let found = interfaces::all().into_iter().find(|i| i.index == index);
    found.map_or(0, |i| i.mtu.min(u16::MAX.into()) as i32)
}

/// getsockopt of a socket with this port and peer.
pub(super) fn get(
    o: &IpOptions,
    common: &Common,
    port: u16,
    peer: Option<&End>,
    level: i32,
    name: i32,
) -> Result<Vec<u8>> {
    const IP_PROTOCOL: i32 = 52;
    let word = |v: i32| Ok(v.to_ne_bytes().to_vec());
    let Some(table) = table(level, common.domain) else {
        let elsewhere = common.domain == AF_INET && level != SOL_SOCKET;
        return Err(if elsewhere { Errno::EOPNOTSUPP } else { Errno::ENOPROTOOPT });
    };
    match (level, name) {
        (SOL_IPV6, rows::IPV6_V6ONLY) => return word(i32::from(o.v6only)),
        (SOL_IP, IP_OPTIONS) => return Ok(o.raw.as_deref().unwrap_or_default().to_vec()),
        (SOL_IP, IP_MTU) => return word(mtu(peer.ok_or(Errno::ENOTCONN)?)),
        (SOL_IPV6, rows::IPV6_MTU) => {
            // The longest of IPv6 is the interface's whole one.
            let to = peer.ok_or(Errno::ENOTCONN)?;
            return word(if is_local(&to.ip) { 65_536 } else { mtu(to) });
        }
        (SOL_IP, IP_PROTOCOL) => return word(port.into()),
        // Of IPv6 sockets it is not set.
        (SOL_IP, rows::IP_MULTICAST_ALL) if common.domain == AF_INET6 => {
            return word(o.set.get(&(level, name)).copied().unwrap_or(0));
        }
        _ => {}
    }
    let known = table.iter().find(|r| r.name == name).ok_or(Errno::ENOPROTOOPT)?;
    word(o.set.get(&(level, name)).copied().unwrap_or(known.default))
}
