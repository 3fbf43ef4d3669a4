//! The networks that a domain is on, and what it is called there.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use crate::names::subnet::Space;

/// A network of a domain's.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Membership {
    /// Its name.
    pub network: String,
    /// Further names of the domain there, which others may have too.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// The network's subnets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spaces: Vec<Space>,
    /// Addresses of the domain out of these, one of a family at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub own: Vec<IpAddr>,
}

impl Membership {
    /// On this network, by its own name alone.
    #[must_use]
    pub fn of(network: &str) -> Self {
        Self { network: network.to_owned(), ..Self::default() }
    }

    /// The domain's addresses out of subnets of this network, each with its subnet.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = (IpAddr, Space)> {
        let space_of = |ip: &IpAddr| self.spaces.iter().find(|space| space.subnet.has(*ip));
        self.own.iter().filter_map(move |ip| Some((*ip, *space_of(ip)?)))
    }

    /// What it is found at by those of this network, if it has these addresses wherever it has none of the network's own.
    pub(crate) fn found_at(&self, (mut ip4, mut ip6): (Ipv4Addr, Ipv6Addr)) -> (Ipv4Addr, Ipv6Addr) {
        for own in &self.own {
            match own {
                IpAddr::V4(ip) => ip4 = *ip,
                IpAddr::V6(ip) => ip6 = *ip,
            }
        }
        (ip4, ip6)
    }
}

/// The networks of a domain, in the order of their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memberships(Vec<Membership>);

impl From<Vec<Membership>> for Memberships {
    fn from(mut all: Vec<Membership>) -> Self {
        all.sort_unstable();
        all.dedup_by(|later, one| later.network == one.network);
        Self(all)
    }
}

impl Memberships {
    /// On this network alone, by its own name.
    #[must_use]
    pub fn of(network: &str) -> Self {
        Self(vec![Membership::of(network)])
    }

    /// Whether both have a network in common.
    pub(crate) fn meet(&self, others: &Self) -> bool {
        let (mut a, mut b) = (self.names().peekable(), others.names().peekable());
        while let (Some(one), Some(other)) = (a.peek(), b.peek()) {
            match one.cmp(other) {
                std::cmp::Ordering::Equal => return true,
                std::cmp::Ordering::Less => drop(a.next()),
                std::cmp::Ordering::Greater => drop(b.next()),
            }
        }
        false
    }

    /// The networks.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|one| one.network.as_str())
    }

    /// Their subnets.
    pub(crate) fn spaces(&self) -> impl Iterator<Item = &Space> {
        self.0.iter().flat_map(|one| &one.spaces)
    }

    /// A domain's addresses out of these subnets.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = (IpAddr, Space)> {
        self.0.iter().flat_map(Membership::addresses)
    }

    /// What a domain of this name is called, by network.
    pub(crate) fn called<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a Membership, &'a str)> {
        self.0.iter().flat_map(move |one| {
            let all = std::iter::once(name).chain(one.aliases.iter().map(String::as_str));
            all.map(move |name| (one, name))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(networks: &[&str]) -> Memberships {
        networks.iter().map(|n| Membership::of(n)).collect::<Vec<_>>().into()
    }

    #[test]
    fn those_meet_who_have_one_in_common() {
        for (a, b, meet) in [
            (&["a"][..], &["a"][..], true),
            (&["a"], &["b"], false),
            (&["b", "a"], &["c", "b"], true),
            (&["a", "c", "e"], &["b", "d", "e"], true),
            (&["a", "c", "e"], &["b", "d", "f"], false),
            (&[], &["a"], false),
            (&[], &[], false),
        ] {
            assert_eq!((on(a).meet(&on(b)), on(b).meet(&on(a))), (meet, meet), "{a:?} {b:?}");
        }
        assert_eq!(on(&["a", "b", "a"]).names().collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn it_has_its_own_name_everywhere_and_others_where_they_were_given() {
        let store =
            Membership { network: "back".into(), aliases: vec!["store".into()], ..Membership::default() };
        let all = Memberships::from(vec![Membership::of("front"), store]);
        let called: Vec<_> = all.called("db").map(|(one, name)| (one.network.as_str(), name)).collect();
        assert_eq!(called, [("back", "db"), ("back", "store"), ("front", "db")]);
    }
}
