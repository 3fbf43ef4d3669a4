//! Subnets of networks, and addresses that domains have out of them.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

/// Addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Subnet {
    ip: IpAddr,
    bits: u8,
}

/// Whether an address begins with the same bits as a network.
pub(crate) fn inside(ip: IpAddr, network: IpAddr, bits: u8) -> bool {
    let (a, b, width) = match (ip, network) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (u128::from(a.to_bits()), u128::from(b.to_bits()), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits(), b.to_bits(), 128),
        _ => return false,
    };
    let ignored = width - u32::from(bits).min(width);
    ignored == 128 || a >> ignored == b >> ignored
}

fn number(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => ip.to_bits().into(),
        IpAddr::V6(ip) => ip.to_bits(),
    }
}

impl Subnet {
    /// The addresses that have this many bits in common with `ip`; none if it has fewer.
    #[must_use]
    pub fn of(ip: IpAddr, bits: u8) -> Option<Self> {
        let rest = width(ip).checked_sub(bits)?;
        let keep = u128::MAX.checked_shl(rest.into()).unwrap_or(0);
        let this = Self { ip, bits };
        Some(Self { ip: this.like(number(ip) & keep), bits })
    }

    /// The address with this number, of the same family.
    fn like(&self, number: u128) -> IpAddr {
        match self.ip {
            IpAddr::V4(_) => Ipv4Addr::from_bits(number as u32).into(),
            IpAddr::V6(_) => Ipv6Addr::from_bits(number).into(),
        }
    }

    /// How many bits all have in common.
    #[must_use]
    pub fn bits(&self) -> u8 {
        self.bits
    }

    /// Whether it is one of IPv4.
    #[must_use]
    pub fn is_v4(&self) -> bool {
        self.ip.is_ipv4()
    }

    /// Its first address, which is the network's own.
    #[must_use]
    pub fn first(&self) -> IpAddr {
        self.ip
    }

    /// Its last address, which of IPv4 is that of all.
    #[must_use]
    pub fn last(&self) -> IpAddr {
        let rest = u128::MAX.checked_shl((width(self.ip) - self.bits).into()).unwrap_or(0);
        let all = if self.is_v4() { u128::from(u32::MAX) } else { u128::MAX };
        self.like(number(self.ip) | (!rest & all))
    }

    /// Whether an address is one of these.
    #[must_use]
    pub fn has(&self, ip: IpAddr) -> bool {
        inside(ip, self.ip, self.bits)
    }

    /// Whether both have addresses in common.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.has(other.ip) || other.has(self.ip)
    }

    /// Its addresses from the lowest on.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + use<> {
        let (this, last) = (*self, number(self.last()));
        (number(self.ip)..=last).map(move |n| this.like(n))
    }
}

fn width(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { 32 } else { 128 }
}

impl fmt::Display for Subnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ip, self.bits)
    }
}

impl FromStr for Subnet {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no subnet; one looks like 172.20.0.0/16 or fd00:20::/64");
        let (ip, bits) = text.split_once('/').ok_or_else(wrong)?;
        let (ip, bits) = (ip.parse().map_err(|_| wrong())?, bits.parse().map_err(|_| wrong())?);
        Self::of(ip, bits).ok_or_else(wrong)
    }
}

impl TryFrom<String> for Subnet {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Subnet> for String {
    fn from(subnet: Subnet) -> Self {
        subnet.to_string()
    }
}

/// A subnet of a network, and which of its addresses is the host's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Space {
    /// The subnet.
    pub subnet: Subnet,
    /// The host, as domains see it there: as 10.88.0.1 everywhere.
    pub gateway: IpAddr,
}

/// Addresses of all domains that are served, as far as they are out of subnets.
#[derive(Clone, Debug, Default)]
pub struct ServedAddresses(Arc<Mutex<HashMap<IpAddr, usize>>>);

impl ServedAddresses {
    /// A domain has this one now.
    pub(crate) fn add(&self, ip: IpAddr) {
        *self.lock().entry(ip).or_default() += 1;
    }

    /// It has it no more; another one may have it already.
    pub(crate) fn remove(&self, ip: IpAddr) {
        let mut all = self.lock();
        if let Some(count) = all.get_mut(&ip) {
            *count -= 1;
            if *count == 0 {
                all.remove(&ip);
            }
        }
    }

    /// Whether a domain has this one.
    pub(crate) fn has(&self, ip: IpAddr) -> bool {
        self.lock().contains_key(&ip)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<IpAddr, usize>> {
        // What it protects is whole at any moment.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subnet(text: &str) -> Subnet {
        text.parse().unwrap()
    }

    #[test]
    fn subnets_as_they_are_written() {
        for (text, shown, last) in [
            ("172.20.0.0/16", "172.20.0.0/16", "172.20.255.255"),
            ("172.20.1.9/24", "172.20.1.0/24", "172.20.1.255"),
            ("0.0.0.0/0", "0.0.0.0/0", "255.255.255.255"),
            ("10.0.0.1/32", "10.0.0.1/32", "10.0.0.1"),
            ("fd00:20::5/64", "fd00:20::/64", "fd00:20::ffff:ffff:ffff:ffff"),
            ("::/0", "::/0", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ] {
            let found = subnet(text);
            assert_eq!((found.to_string().as_str(), found.last()), (shown, last.parse().unwrap()), "{text}");
        }
        for wrong in ["", "10.0.0.0", "10.0.0.0/33", "10.0.0/8", "fd00::/129", "a/8", "10.0.0.0/-1"] {
            assert!(wrong.parse::<Subnet>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn they_overlap_or_not() {
        for (a, b, both) in [
            ("172.20.0.0/16", "172.20.5.0/24", true),
            ("172.20.0.0/16", "172.21.0.0/16", false),
            ("0.0.0.0/0", "10.0.0.0/8", true),
            ("0.0.0.0/0", "fd00::/8", false),
            ("fd00:1::/64", "fd00:1::/48", true),
            ("fd00:1::/64", "fd00:2::/64", false),
        ] {
            let (a, b) = (subnet(a), subnet(b));
            assert_eq!((a.overlaps(&b), b.overlaps(&a)), (both, both), "{a} {b}");
        }
    }

    #[test]
    fn an_address_is_there_as_long_as_somebody_has_it() {
        let served = ServedAddresses::default();
        let ip = "172.20.0.2".parse().unwrap();
        served.add(ip);
        served.add(ip);
        served.remove(ip);
        assert!(served.has(ip));
        served.remove(ip);
        served.remove(ip);
        assert!(!served.has(ip));
    }
}
