//! The virtual firewall-router: what a domain may reach, and who may reach it (Xen §3.3.5, docs/design.md §7).

pub mod host;
pub mod ledger;
pub mod locals;
pub mod logs;
pub mod policy;
pub mod text;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::names::subnet::inside;

/// What travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// Echoes of ICMP and ICMPv6, which have no ports: 0.
    Icmp,
}

/// What has ports that can be published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// Which way a flow begins, seen from the domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Direction {
    /// The domain calls.
    Out,
    /// It is called.
    In,
}

/// What a rule is about: all of it must hold. One with neither address nor name opens nothing that is private, and does not
/// close the name server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pattern {
    /// The other end's address, and how many leading bits of it count; `None`: any.
    pub network: Option<(IpAddr, u8)>,
    /// A name the domain was told the address of, `*.` before it for all below it; only outbound, never a private address.
    #[serde(default)]
    pub name: Option<String>,
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
    /// Write down flows that it lets through, and whatever it does not.
    #[serde(default)]
    pub log: bool,
    /// Most flows a second; those beyond are denied.
    #[serde(default)]
    pub rate: Option<u32>,
}

impl Rule {
    /// Without a log and a rate.
    #[must_use]
    pub fn new(pattern: Pattern, action: Action) -> Self {
        Self { pattern, action, log: false, rate: None }
    }
}

/// Most bytes a second of a domain's data, beyond its own loopback, and its part beside others; `None`: as many as there is room for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rates {
    /// What it sends.
    pub outbound: Option<u64>,
    /// What it receives.
    pub inbound: Option<u64>,
    /// Its share of the service's time beside others that are busy, [`WEIGHT`] if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// So many bytes a second, sent and received together, are its own before that share is looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guaranteed: Option<u64>,
}

/// The weight of who says none.
pub const WEIGHT: u32 = 100;
/// Most that can be said.
pub const MOST_WEIGHT: u32 = 10_000;

/// The rules of one domain. The first that fits decides; if none does, the default policy:
/// out to anything but what [`is_private`] says; in from anyone, as only published ports are there to be reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    /// For what the domain sends.
    pub outbound: Vec<Rule>,
    /// For what comes to it.
    pub inbound: Vec<Rule>,
    /// How fast, whatever goes where.
    #[serde(default)]
    pub rates: Rates,
}

impl Rules {
    /// Puts a rule behind the others of its direction.
    ///
    /// # Errors
    /// Why it makes no sense.
    pub fn add(&mut self, direction: Direction, rule: Rule) -> Result<(), String> {
        if rule.rate == Some(0) {
            return Err("a rate of 0: deny it instead".into());
        }
        match direction {
            Direction::Out => self.outbound.push(rule),
            Direction::In if rule.pattern.name.is_some() => {
                return Err("names are for outbound rules only".into());
            }
            Direction::In => self.inbound.push(rule),
        }
        Ok(())
    }

    /// Those of one direction.
    #[must_use]
    pub fn of(&self, direction: Direction) -> &[Rule] {
        match direction {
            Direction::Out => &self.outbound,
            Direction::In => &self.inbound,
        }
    }
}

/// Whether an address, or the IPv4 address that it is another form of, is in a network.
pub(crate) fn covers(network: IpAddr, bits: u8, ip: IpAddr) -> bool {
    inside(ip, network, bits) || carried(ip).is_some_and(|ip| inside(ip, network, bits))
}

/// The same for what is refused: an address that leads to one of IPv4 by way of somebody's router counts, too. It opens
/// nothing, as that router is whoever's.
pub(crate) fn touches(network: IpAddr, bits: u8, ip: IpAddr) -> bool {
    stands_for(ip).any(|ip| inside(ip, network, bits))
}

/// An address, and those of IPv4 that it may lead to.
pub(crate) fn stands_for(ip: IpAddr) -> impl Iterator<Item = IpAddr> {
    [Some(ip), carried(ip), tunnelled(ip)].into_iter().flatten()
}

/// What a domain reaches by a rule only: the host itself, networks that are not public, addresses that are no host's.
/// Among them are the metadata services of clouds (169.254.169.254, fd00:ec2::254).
#[must_use]
pub fn is_private(ip: IpAddr) -> bool {
    const V4: [(Ipv4Addr, u8); 14] = [
        (Ipv4Addr::new(0, 0, 0, 0), 8),
        (Ipv4Addr::new(10, 0, 0, 0), 8),
        (Ipv4Addr::new(100, 64, 0, 0), 10),
        (Ipv4Addr::new(127, 0, 0, 0), 8),
        (Ipv4Addr::new(169, 254, 0, 0), 16),
        (Ipv4Addr::new(172, 16, 0, 0), 12),
        (Ipv4Addr::new(192, 0, 0, 0), 24),
        (Ipv4Addr::new(192, 0, 2, 0), 24),
        // The relay of 6to4, which is no more.
        (Ipv4Addr::new(192, 88, 99, 0), 24),
        (Ipv4Addr::new(192, 168, 0, 0), 16),
        (Ipv4Addr::new(198, 18, 0, 0), 15),
        (Ipv4Addr::new(198, 51, 100, 0), 24),
        (Ipv4Addr::new(203, 0, 113, 0), 24),
        (Ipv4Addr::new(224, 0, 0, 0), 3),
    ];
    // Teredo, whose relays are whoever's; benchmarks; documentation.
    const V6: [(Ipv6Addr, u8); 4] = [
        (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 32),
        (Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 0), 48),
        (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
        (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
    ];
    match ip {
        IpAddr::V4(_) => V4.iter().any(|(n, bits)| inside(ip, IpAddr::V4(*n), *bits)),
        // What is another form of an IPv4 address is judged by that. IPv4-compatible addresses are those with :: and ::1.
        IpAddr::V6(v6) => match (v6.segments(), carried(ip)) {
            ([0, 0, 0, 0, 0, 0, _, _], _) => true,
            (_, Some(ip)) => is_private(ip),
            _ => {
                !inside(ip, IpAddr::V6(Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0)), 3)
                    || V6.iter().any(|(n, bits)| inside(ip, IpAddr::V6(*n), *bits))
                    || tunnelled(ip).is_some_and(is_private)
            }
        },
    }
}

fn v4(a: u16, b: u16) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from_bits(u32::from(a) << 16 | u32::from(b)))
}

/// The IPv4 address in one of IPv6 that stands for it: mapped, NAT64, 6to4.
fn carried(ip: IpAddr) -> Option<IpAddr> {
    let IpAddr::V6(ip) = ip else { return None };
    match ip.segments() {
        [0, 0, 0, 0, 0, 0xffff, a, b] | [0x64, 0xff9b, 0, 0, 0, 0, a, b] | [0x2002, a, b, ..] => {
            Some(v4(a, b))
        }
        _ => None,
    }
}

/// The one to which an ISATAP router sends what is for such an address, in whatever network.
fn tunnelled(ip: IpAddr) -> Option<IpAddr> {
    let IpAddr::V6(ip) = ip else { return None };
    match ip.segments() {
        [_, _, _, _, 0 | 0x200, 0x5efe, a, b] => Some(v4(a, b)),
        _ => None,
    }
}
