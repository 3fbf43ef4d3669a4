//! The virtual firewall-router: what a domain may reach, and who may reach it (Xen §3.3.5, DESIGN §7).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

/// What travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// What a rule is about: all of it must hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pattern {
    /// The other end's address, and how many leading bits of it count; `None`: any.
    pub network: Option<(IpAddr, u8)>,
    /// The port connected or sent to.
    pub ports: RangeInclusive<u16>,
    /// `None`: any.
    pub protocol: Option<Protocol>,
}

/// What a rule says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// Goes through.
    Allow,
    /// Does not: a connection is refused with EACCES, a datagram is dropped.
    Deny,
}

/// `<pattern, action>`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// What it is about.
    pub pattern: Pattern,
    /// What it says.
    pub action: Action,
}

/// The rules of one domain. The first that fits decides; if none does, the default policy:
/// out to anything but what [`is_private`] says; in from anyone, as only published ports are there to be reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    /// For what the domain sends.
    pub outbound: Vec<Rule>,
    /// For what comes to it.
    pub inbound: Vec<Rule>,
}

impl Pattern {
    fn fits(&self, ip: IpAddr, port: u16, protocol: Protocol) -> bool {
        self.protocol.is_none_or(|p| p == protocol)
            && self.ports.contains(&port)
            && self.network.is_none_or(|(network, bits)| inside(ip, network, bits))
    }
}

impl Rules {
    /// Whether the domain may send to this address. `ip` is canonical: never a v4-mapped one.
    #[must_use]
    pub fn outbound(&self, ip: IpAddr, port: u16, protocol: Protocol) -> bool {
        self.decides(ip, port, protocol).unwrap_or_else(|| !is_private(ip))
    }

    /// What a rule says of sending to this address; `None`: none does.
    #[must_use]
    pub fn decides(&self, ip: IpAddr, port: u16, protocol: Protocol) -> Option<bool> {
        decide(&self.outbound, ip, port, protocol)
    }

    /// Whether this address may send to the domain's `port`.
    #[must_use]
    pub fn inbound(&self, ip: IpAddr, port: u16, protocol: Protocol) -> bool {
        decide(&self.inbound, ip, port, protocol).unwrap_or(true)
    }
}

fn decide(rules: &[Rule], ip: IpAddr, port: u16, protocol: Protocol) -> Option<bool> {
    let rule = rules.iter().find(|r| r.pattern.fits(ip, port, protocol))?;
    Some(rule.action == Action::Allow)
}

fn inside(ip: IpAddr, network: IpAddr, bits: u8) -> bool {
    let (a, b, width) = match (ip, network) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (u128::from(a.to_bits()), u128::from(b.to_bits()), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits(), b.to_bits(), 128),
        _ => return false,
    };
    let ignored = width - u32::from(bits).min(width);
    ignored == 128 || a >> ignored == b >> ignored
}

/// What a domain reaches by a rule only: the host itself, networks that are not public, addresses that are no host's.
/// Among them are the metadata services of clouds (169.254.169.254, fd00:ec2::254).
#[must_use]
pub fn is_private(ip: IpAddr) -> bool {
    const V4: [(Ipv4Addr, u8); 13] = [
        (Ipv4Addr::new(0, 0, 0, 0), 8),
        (Ipv4Addr::new(10, 0, 0, 0), 8),
        (Ipv4Addr::new(100, 64, 0, 0), 10),
        (Ipv4Addr::new(127, 0, 0, 0), 8),
        (Ipv4Addr::new(169, 254, 0, 0), 16),
        (Ipv4Addr::new(172, 16, 0, 0), 12),
        (Ipv4Addr::new(192, 0, 0, 0), 24),
        (Ipv4Addr::new(192, 0, 2, 0), 24),
        (Ipv4Addr::new(192, 168, 0, 0), 16),
        (Ipv4Addr::new(198, 18, 0, 0), 15),
        (Ipv4Addr::new(198, 51, 100, 0), 24),
        (Ipv4Addr::new(203, 0, 113, 0), 24),
        (Ipv4Addr::new(224, 0, 0, 0), 3),
    ];
    match ip {
        IpAddr::V4(ip) => V4.iter().any(|(n, bits)| inside(IpAddr::V4(ip), IpAddr::V4(*n), *bits)),
        // What carries an IPv4 address is judged by that: NAT64, 6to4, and IPv4-compatible addresses (with :: and ::1).
        IpAddr::V6(ip) => match ip.segments() {
            [0, 0, 0, 0, 0, 0, _, _] => true,
            [0x64, 0xff9b, 0, 0, 0, 0, a, b] => is_private(embedded(a, b)),
            [0x2002, a, b, ..] => is_private(embedded(a, b)),
            _ => {
                !inside(IpAddr::V6(ip), IpAddr::V6(Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0)), 3)
                    || inside(IpAddr::V6(ip), IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0)), 32)
            }
        },
    }
}

fn embedded(a: u16, b: u16) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from_bits(u32::from(a) << 16 | u32::from(b)))
}
