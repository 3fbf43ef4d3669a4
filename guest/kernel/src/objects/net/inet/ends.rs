//! Addresses with ports, and which of them are the domain's own.

use doppel_abi_service::net as abi;
use doppel_algo::net::ports::{ANY4, ANY6, Ip, LOOPBACK4, LOOPBACK6, mapped, unmapped};
use doppel_algo::net::sockaddr::{AF_INET, AF_INET6, Addr};
use doppel_machine::network;

use crate::{Errno, Result};

/// An address with a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Address; IPv4 in its v4-mapped form.
    pub ip: Ip,
    /// Port.
    pub port: u16,
}

impl End {
    /// The unspecified address of a family.
    pub fn unspecified(family: u16) -> Self {
        Self { ip: if family == AF_INET { ANY4 } else { ANY6 }, port: 0 }
    }

    /// As a socket of `family` shows it.
    pub fn show(&self, family: u16) -> Addr {
        match unmapped(&self.ip) {
            Some(ip) if family == AF_INET => Addr::V4 { ip, port: self.port },
            _ => Addr::V6 { ip: self.ip, port: self.port, flow: 0, scope: 0 },
        }
    }

    /// Decodes an address given to a socket of `family`. EAFNOSUPPORT for others.
    pub fn from_addr(family: u16, addr: &Addr) -> Result<Self> {
        match addr {
            Addr::V4 { ip, port } if family == AF_INET => Ok(Self { ip: mapped(*ip), port: *port }),
            Addr::V6 { ip, port, .. } if family == AF_INET6 => Ok(Self { ip: *ip, port: *port }),
            _ => Err(Errno::EAFNOSUPPORT),
        }
    }

    /// Whether this is a wildcard address.
    pub fn is_any(&self) -> bool {
        self.ip == ANY4 || self.ip == ANY6
    }
}

/// Whether an address is one of this domain.
pub fn is_local(ip: &Ip) -> bool {
    *ip == LOOPBACK6 || unmapped(ip).is_some_and(|v4| v4[0] == 127) || is_own(ip)
}

/// Whether it is an address of the domain in its networks.
pub(crate) use crate::objects::net::own::is_own;
/// The domain's address in its networks with which it talks to another one.
pub(crate) use crate::objects::net::own::towards as own_address;

/// Which of the sockets that share a port by SO_REUSEPORT gets what comes from an address: always the same one, and
/// all of them alike.
pub(super) fn spread(from: &End, to: &End) -> usize {
    let mut h = 0xcbf2_9ce4_8422_2325_u64;
    for b in from.ip.iter().chain(&to.ip).chain(&from.port.to_ne_bytes()).chain(&to.port.to_ne_bytes()) {
        h = (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3);
    }
    // The low bits alone would follow the last byte's.
    (h ^ h >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize >> 33
}

pub(super) fn is_multicast(ip: &Ip) -> bool {
    unmapped(ip).map_or(ip[0] == 0xff, |v4| (224..240).contains(&v4[0]))
}

/// Where a connection or datagram to `to` goes: wildcards mean loopback.
pub(super) fn to_loopback(mut to: End) -> End {
    if to.ip == ANY4 {
        to.ip = LOOPBACK4;
    } else if to.ip == ANY6 {
        to.ip = LOOPBACK6;
    }
    to
}

/// The same. ENETUNREACH outside the domain, if it has no network.
pub fn route(to: End) -> Result<End> {
    let to = to_loopback(to);
    if is_local(&to.ip) || network::is_there() { Ok(to) } else { Err(Errno::ENETUNREACH) }
}

/// The source address used towards an address.
pub fn source_for(to: &Ip) -> Ip {
    if is_own(to) || !is_local(to) {
        return own_address(to);
    }
    if unmapped(to).is_some() { LOOPBACK4 } else { LOOPBACK6 }
}

/// The domain's address on an interface, of the same family as `like`.
pub(super) fn address_on(index: u32, like: &Ip) -> Ip {
    match (index, unmapped(like).is_some()) {
        (1, true) => LOOPBACK4,
        (1, false) => LOOPBACK6,
        _ => own_address(like),
    }
}

impl From<End> for abi::End {
    fn from(e: End) -> Self {
        Self { ip: e.ip, port: e.port }
    }
}

impl From<abi::End> for End {
    fn from(e: abi::End) -> Self {
        Self { ip: e.ip, port: e.port }
    }
}
