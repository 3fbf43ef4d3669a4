//! AF_INET and AF_INET6 inside the domain: TCP, UDP and ICMP echo over loopback (`ip(7)`, `tcp(7)`, `udp(7)`, `icmp(7)`).
//!
//! There are no packets: a TCP connection is two endpoints that put bytes into each other's queue; a datagram
//! is put into the receiver's queue. Addresses are 127.0.0.0/8, ::1 and the wildcards; everything else is
//! ENETUNREACH until a service domain provides it. Key types: [`tcp::Tcp`], [`udp::Udp`], [`Ports`].
//! Lock order: one socket's `inner` at a time; port table → nothing.

mod echo;
mod groups;
mod ipopts;
mod iprows;
mod msfilter;
pub mod tcp;
mod tcpend;
mod tcpio;
pub(crate) mod tcpopts;
pub mod udp;
mod udpfilter;
mod udpio;
mod udpopts;

use crate::core::subject::subject;
use alloc::sync::Weak;
use alloc::vec::Vec;

use doppel_algo::net::ports::{
    ANY4, ANY6, Binding, Ip, LOOPBACK4, LOOPBACK6, PortTable, Scope, mapped, unmapped,
};
use doppel_algo::net::sockaddr::{AF_INET, AF_INET6, Addr};
use doppel_machine::sync::SpinLock;
use doppel_machine::{boot, network};

use super::Common;
use super::consts::{SO_REUSEADDR, SO_REUSEPORT, SOL_TCP, SOL_UDP, SOL_UDPLITE};
use crate::core::part::Part;
use crate::core::random;
use crate::core::time;
use crate::{Errno, Result};

/// Port tables of the domain.
#[derive(Default)]
pub struct Ports {
    /// TCP.
    pub tcp: SpinLock<PortTable<Weak<tcp::Tcp>>>,
    /// UDP.
    pub udp: SpinLock<PortTable<Weak<udp::Udp>>>,
    /// UDP-Lite.
    pub lite: SpinLock<PortTable<Weak<udp::Udp>>>,
    /// ICMP echo: by identifier.
    pub echo: SpinLock<PortTable<Weak<udp::Udp>>>,
}

/// The domain's.
pub static PORTS: Part<Ports> = Part::new();

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

/// Whether it is the domain's address in its virtual network.
fn is_own(ip: &Ip) -> bool {
    network::is_there() && *ip == own_address(ip)
}

/// The domain's address in its virtual network, of the same family as `like`.
pub(crate) fn own_address(like: &Ip) -> Ip {
    let info = boot::start_info();
    if unmapped(like).is_some() { mapped(info.ip4) } else { info.ip6 }
}

/// Which of the sockets that share a port by SO_REUSEPORT gets what comes from an address: always the same one, and
/// all of them alike.
fn spread(from: &End, to: &End) -> usize {
    let mut h = 0xcbf2_9ce4_8422_2325_u64;
    for b in from.ip.iter().chain(&to.ip).chain(&from.port.to_ne_bytes()).chain(&to.port.to_ne_bytes()) {
        h = (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3);
    }
    // The low bits alone would follow the last byte's.
    (h ^ h >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize >> 33
}

fn is_multicast(ip: &Ip) -> bool {
    unmapped(ip).map_or(ip[0] == 0xff, |v4| (224..240).contains(&v4[0]))
}

/// Where a connection or datagram to `to` goes: wildcards mean loopback.
fn to_loopback(mut to: End) -> End {
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
fn address_on(index: u32, like: &Ip) -> Ip {
    match (index, unmapped(like).is_some()) {
        (1, true) => LOOPBACK4,
        (1, false) => LOOPBACK6,
        _ => own_address(like),
    }
}

/// Checks an address to bind to: it must be ours unless anything will do, and low ports need a capability.
fn check_bind(common: &Common, at: &End, multicast: bool, free: bool) -> Result<()> {
    const CAP_NET_BIND_SERVICE: u32 = 10;
    let ours = free || at.is_any() || is_local(&at.ip) || multicast && is_multicast(&at.ip);
    if !ours {
        return Err(Errno::EADDRNOTAVAIL);
    }
    // The identifier of an echo is no port.
    let ports = matches!(common.protocol, SOL_TCP | SOL_UDP | SOL_UDPLITE);
    if ports && (1..1024).contains(&at.port) && !subject().cred().capable(CAP_NET_BIND_SERVICE) {
        return Err(Errno::EACCES);
    }
    Ok(())
}

/// Offers what is bound to the network that the domain has now.
pub fn offer_outside() {
    let ports = PORTS.get();
    let listeners: Vec<_> =
        ports.tcp.lock().iter().filter(|(_, b)| b.listening).filter_map(|(_, b)| b.what.upgrade()).collect();
    let bound: Vec<_> = ports.udp.lock().iter().filter_map(|(_, b)| b.what.upgrade()).collect();
    for tcp in listeners {
        tcp.listen_far();
    }
    for udp in bound {
        udp.bind_far();
    }
}

/// A binding of a socket with its present options.
fn binding<T>(common: &Common, ip: Ip, v6only: bool, what: T) -> Binding<T> {
    Binding {
        id: common.ino,
        scope: Scope::new(ip, v6only),
        reuse_addr: common.on(SO_REUSEADDR),
        reuse_port: common.on(SO_REUSEPORT).then(|| subject().cred().euid),
        listening: false,
        what,
    }
}

/// How a bound socket shares its port has changed.
fn share_anew<T>(b: &mut Binding<T>, common: &Common) {
    b.reuse_addr = common.on(SO_REUSEADDR);
    let owner = b.reuse_port.unwrap_or_else(|| subject().cred().euid);
    b.reuse_port = common.on(SO_REUSEPORT).then_some(owner);
}

/// Binds `at` in `table`; port 0 chooses one of a range. Returns the port.
fn claim<T: Clone>(
    table: &SpinLock<PortTable<T>>,
    at: &End,
    range: (u16, u16),
    connects: bool,
    b: Binding<T>,
) -> Result<u16> {
    let now = time::monotonic_ns();
    if at.port == 0 {
        let mut r = [0; 4];
        random::fill(&mut r);
        table.lock().bind_any(u32::from_ne_bytes(r), range, now, connects, b).map_err(|_| Errno::EADDRINUSE)
    } else {
        table.lock().bind(at.port, now, b).map(|()| at.port).map_err(|_| Errno::EADDRINUSE)
    }
}
