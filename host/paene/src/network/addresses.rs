//! A domain's addresses.

use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use doppel_abi_service::net::OwnAddress;
use doppel_abi_service::net::address::{BITS4, BITS6, HOST4, HOST6};

/// A domain's addresses in its virtual networks, the first of each family before others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Addresses(Vec<OwnAddress>);

/// An address as the channel has it.
fn bytes(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

fn address(bytes: [u8; 16]) -> IpAddr {
    Ipv6Addr::from(bytes).to_canonical()
}

impl Addresses {
    /// Those of networks that have no subnets.
    pub fn new(ip4: Ipv4Addr, ip6: Ipv6Addr) -> Self {
        let own = |ip: IpAddr, host: IpAddr, bits| OwnAddress { ip: bytes(ip), gateway: bytes(host), bits };
        Self(vec![own(ip4.into(), HOST4.into(), BITS4), own(ip6.into(), HOST6.into(), BITS6)])
    }

    /// Those that are written down in a channel, or these.
    pub fn in_channel(memory: &OwnedFd, or: Self) -> io::Result<Self> {
        let file = File::from(memory.try_clone()?);
        let mut head = [0; OwnAddress::HEAD];
        file.read_exact_at(&mut head, OwnAddress::PLACE)?;
        let [_, _, _, _, count @ ..] = head;
        let count = usize::try_from(u32::from_le_bytes(count)).unwrap_or(usize::MAX).min(OwnAddress::MOST);
        let mut all = vec![0; count * OwnAddress::SIZE];
        file.read_exact_at(&mut all, OwnAddress::PLACE + OwnAddress::HEAD as u64)?;
        let found = Self::parse(&all);
        Ok(if found.0.is_empty() { or } else { found })
    }

    /// From those of them that are whole.
    pub fn parse(bytes: &[u8]) -> Self {
        Self(bytes.as_chunks().0.iter().map(OwnAddress::decode).collect())
    }

    /// As bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(OwnAddress::encode).collect()
    }

    /// All of them, each with the bits that are its network's.
    pub fn all(&self) -> impl Iterator<Item = (IpAddr, u8)> {
        self.0.iter().map(|own| (address(own.ip), own.bits))
    }

    /// Whether it is one of them.
    pub fn has(&self, ip: IpAddr) -> bool {
        self.0.iter().any(|own| own.ip == bytes(ip))
    }

    /// Whether it is out of one of its networks.
    pub fn has_beside(&self, ip: IpAddr) -> bool {
        self.0.iter().any(|own| own.is_beside(&bytes(ip)))
    }

    /// The one with which the domain talks to another one: of the same network if it has one there.
    pub fn towards(&self, to: IpAddr) -> IpAddr {
        let beside = self.0.iter().find(|own| own.is_beside(&bytes(to)));
        let found = beside.or_else(|| self.0.iter().find(|own| own.is_v4() == to.is_ipv4()));
        let nobody = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        found.map_or(nobody, |own| address(own.ip))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_talks_with_the_address_that_it_has_beside() {
        let own = |ip: &str, bits| OwnAddress { ip: bytes(ip.parse().unwrap()), gateway: [0; 16], bits };
        let all = Addresses(vec![own("172.20.0.2", 16), own("10.99.0.7", 24), own("fd00:20::2", 64)]);
        for (to, from) in [
            ("172.20.9.9", "172.20.0.2"),
            ("10.99.0.9", "10.99.0.7"),
            ("192.0.2.1", "172.20.0.2"),
            ("2001:db8::1", "fd00:20::2"),
        ] {
            assert_eq!(all.towards(to.parse().unwrap()), from.parse::<IpAddr>().unwrap(), "{to}");
        }
        let ip = |text: &str| text.parse().unwrap();
        assert!(all.has(ip("10.99.0.7")) && !all.has(ip("10.99.0.8")) && all.has_beside(ip("10.99.0.8")));
        assert!(!all.has_beside(ip("10.99.1.8")) && !all.has_beside(ip("192.0.2.1")));
        assert_eq!(Addresses::parse(&all.to_bytes()), all);
        assert_eq!(all.all().map(|(_, bits)| bits).collect::<Vec<_>>(), [16, 24, 64]);
    }
}
