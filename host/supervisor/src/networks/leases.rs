//! Addresses that domains have out of subnets: from when a domain comes to a network until it leaves it or is no more, whether
//! it runs or not.

use std::collections::BTreeMap;
use std::net::IpAddr;

use doppel_api::{self as api, Code, Problem};
use doppel_net::{Membership, Space};

use crate::domains::spec::wrong;
use crate::networks::subnets::Pool;
use crate::networks::table::{NetworkRow, NetworkTable, key};

/// A domain's addresses, by network.
pub(crate) type Addresses = BTreeMap<String, Vec<IpAddr>>;

/// Which domain has which address, by owner and network.
#[derive(Debug, Default)]
pub(crate) struct Leases(BTreeMap<(String, String), BTreeMap<IpAddr, String>>);

impl Leases {
    /// A domain has these.
    pub fn note(&mut self, owner: &str, id: &str, addresses: &Addresses) {
        for (network, all) in addresses {
            let taken = self.0.entry(key(owner, network)).or_default();
            taken.extend(all.iter().map(|ip| (*ip, id.to_owned())));
        }
    }

    /// A domain has none any more.
    pub fn release(&mut self, owner: &str, id: &str) {
        self.0.retain(|(of, _), taken| {
            if of == owner {
                taken.retain(|_, who| who != id);
            }
            !taken.is_empty()
        });
    }

    /// Who has this address of a network; somebody else than this domain.
    fn holder(&self, row: &NetworkRow, ip: IpAddr, id: &str) -> Option<&str> {
        let taken = self.0.get(&key(&row.owner, &row.name))?;
        taken.get(&ip).map(String::as_str).filter(|who| *who != id)
    }

    /// Addresses of a network's domains, by domain.
    pub fn of(&self, owner: &str, network: &str) -> BTreeMap<String, Vec<IpAddr>> {
        let mut all: BTreeMap<String, Vec<IpAddr>> = BTreeMap::new();
        for (ip, id) in self.0.get(&key(owner, network)).into_iter().flatten() {
            all.entry(id.clone()).or_default().push(*ip);
        }
        all
    }

    /// The address that a domain is to have out of one subnet: the one that it asks for, the one that it has, or the lowest
    /// that nobody has.
    fn choose(
        &self,
        row: &NetworkRow,
        pool: &Pool,
        id: &str,
        asked: Option<IpAddr>,
        had: &Addresses,
    ) -> Result<IpAddr, Problem> {
        let (name, subnet) = (&row.name, pool.subnet);
        if let Some(ip) = asked {
            if !subnet.has(ip) {
                return Err(wrong(format!(
                    "{ip} is not an address of network {name:?}, whose subnet is {subnet}"
                )));
            }
            if ip == pool.gateway {
                return Err(wrong(format!(
                    "{ip} is the gateway of network {name:?}; choose another address"
                )));
            }
            if !pool.offers(ip) {
                let what = if ip == subnet.first() { "network's own address" } else { "address of all" };
                return Err(wrong(format!("{ip} is the {what} in {subnet}; choose another address")));
            }
            return match self.holder(row, ip, id) {
                Some(who) => {
                    let text = format!("address {ip} of network {name:?} is in use by domain {who}");
                    Err(Problem::new(Code::InUse, text))
                }
                None => Ok(ip),
            };
        }
        let free = |ip: &IpAddr| self.holder(row, *ip, id).is_none();
        let kept = had.get(name).into_iter().flatten().copied().find(|ip| pool.offers(*ip) && free(ip));
        kept.or_else(|| pool.offered().find(free)).ok_or_else(|| {
            let of = pool.ip_range.unwrap_or(subnet);
            let text = format!("network {name:?} has no address left in {of}; remove domains that are on it, or disconnect them");
            Problem::new(Code::Capacity, text)
        })
    }
}

impl NetworkTable {
    /// The addresses that a domain is to have on these networks, where it had these; nobody else can have them from now on.
    pub fn lease(
        &mut self,
        owner: &str,
        id: &str,
        networks: &[api::NetworkMembership],
        had: &Addresses,
    ) -> Result<Addresses, Problem> {
        let mut all = Addresses::new();
        for one in networks {
            let asked = [one.ip4.map(IpAddr::V4), one.ip6.map(IpAddr::V6)];
            let row = self.get(owner, &one.name);
            let pools = row.map(|row| row.subnets.as_slice()).unwrap_or_default();
            let lacks = |ip: &IpAddr| !pools.iter().any(|pool| pool.subnet.is_v4() == ip.is_ipv4());
            if let Some(ip) = asked.into_iter().flatten().find(lacks) {
                let family = if ip.is_ipv4() { "IPv4" } else { "IPv6" };
                let text = format!(
                    "{ip}: an address can be asked for on a network that has a subnet of {family}, which {:?} has not; \
                     make one with `doppel network create --subnet SUBNET NAME`",
                    one.name
                );
                return Err(wrong(text));
            }
            for pool in pools {
                let asked = asked[usize::from(!pool.subnet.is_v4())];
                let row = row.expect("its subnets are there");
                let ip = self.leases.choose(row, pool, id, asked, had)?;
                all.entry(one.name.clone()).or_default().push(ip);
            }
        }
        self.leases.release(owner, id);
        self.leases.note(owner, id, &all);
        Ok(all)
    }

    /// Its networks with these addresses, as the network service is told of them.
    pub fn placed(
        &self,
        owner: &str,
        mut networks: Vec<Membership>,
        addresses: &Addresses,
    ) -> Vec<Membership> {
        for one in &mut networks {
            let row = self.get(owner, &one.network);
            let pools = row.map(|row| row.subnets.as_slice()).unwrap_or_default();
            let space = |pool: &Pool| Space { subnet: pool.subnet, gateway: pool.gateway };
            one.spaces = pools.iter().map(space).collect();
            one.own = addresses.get(&one.network).cloned().unwrap_or_default();
        }
        networks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::networks::subnets::pools;
    use crate::networks::table::tests::row;

    fn table() -> NetworkTable {
        let mut table = NetworkTable::default();
        for (name, subnets) in
            [("back", &["172.20.0.0/29", "fd00:20::/64"][..]), ("front", &["172.21.0.0/24"]), ("plain", &[])]
        {
            let asked: Vec<_> = subnets
                .iter()
                .map(|s| api::NetworkSubnet { subnet: (*s).into(), ..api::NetworkSubnet::default() })
                .collect();
            let subnets = pools(&asked, &[]).unwrap();
            table.put(NetworkRow { subnets, ..row("uid 0", name) }).unwrap();
        }
        table
    }

    fn on(name: &str, ip: Option<&str>) -> api::NetworkMembership {
        let ip4 = ip.map(|ip| ip.parse().unwrap());
        api::NetworkMembership { name: name.into(), ip4, ..api::NetworkMembership::default() }
    }

    fn shown(all: &Addresses) -> String {
        let one = |(name, all): (&String, &Vec<IpAddr>)| {
            let all: Vec<String> = all.iter().map(ToString::to_string).collect();
            format!("{name} {}", all.join(" "))
        };
        all.iter().map(one).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn each_has_the_lowest_that_is_free_in_each_of_its_networks() {
        let mut table = table();
        let mut lease = |id: &str, networks: &[api::NetworkMembership], had: &Addresses| {
            table.lease("uid 0", id, networks, had).map(|all| shown(&all)).map_err(|p| p.detail)
        };
        let none = Addresses::new();
        let both = [on("back", None), on("plain", None), on("front", None)];
        assert_eq!(lease("a", &both, &none).unwrap(), "back 172.20.0.2 fd00:20::2; front 172.21.0.2");
        assert_eq!(lease("b", &[on("back", None)], &none).unwrap(), "back 172.20.0.3 fd00:20::3");
        // It keeps what it has, and leaves what it is not on any more.
        let had = Addresses::from([("back".to_owned(), vec!["172.20.0.3".parse().unwrap()])]);
        assert_eq!(lease("a", &[on("front", None)], &none).unwrap(), "front 172.21.0.2");
        assert_eq!(lease("b", &[on("back", None)], &had).unwrap(), "back 172.20.0.3 fd00:20::2");
        assert_eq!(lease("c", &[on("back", None)], &none).unwrap(), "back 172.20.0.2 fd00:20::3");
        table.leases.release("uid 0", "c");
        assert_eq!(table.leases.of("uid 0", "back").into_keys().collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn who_asks_for_one_has_that_or_is_told_why_not() {
        let mut table = table();
        let none = Addresses::new();
        let mut lease = |id: &str, network, ip| {
            table
                .lease("uid 0", id, &[on(network, Some(ip))], &none)
                .map(|all| shown(&all))
                .map_err(|p| p.detail)
        };
        assert_eq!(lease("a", "back", "172.20.0.5").unwrap(), "back 172.20.0.5 fd00:20::2");
        assert_eq!(
            lease("a", "back", "172.20.0.5").unwrap(),
            "back 172.20.0.5 fd00:20::2",
            "it has it itself"
        );
        for (network, ip, why) in [
            ("back", "172.20.0.5", "in use by domain a"),
            ("back", "172.20.0.1", "gateway"),
            ("back", "172.20.0.0", "network's own"),
            ("back", "172.20.0.7", "address of all"),
            ("back", "172.21.0.2", "is not an address of network \"back\""),
            ("plain", "172.21.0.2", "--subnet"),
            ("nobody", "172.21.0.2", "--subnet"),
        ] {
            let said = lease("b", network, ip).unwrap_err();
            assert!(said.contains(why), "{ip}: {said}");
        }
    }

    #[test]
    fn there_is_an_end_to_them_and_what_fails_changes_nothing() {
        let mut table = table();
        let none = Addresses::new();
        for id in ["a", "b", "c", "d", "e"] {
            table.lease("uid 0", id, &[on("back", None)], &none).unwrap();
        }
        let both = [on("front", None), on("back", None)];
        let full = table.lease("uid 0", "f", &both, &none).unwrap_err();
        assert!(full.detail.contains("no address left in 172.20.0.0/29"), "{}", full.detail);
        assert!(table.leases.of("uid 0", "front").is_empty());
        table.leases.release("uid 0", "c");
        let freed = table.lease("uid 0", "f", &both, &none).unwrap();
        assert_eq!(freed["back"][0].to_string(), "172.20.0.4");
        // Another owner's network of this name has none of these.
        assert_eq!(table.lease("uid 1", "g", &[on("back", None)], &none).unwrap(), Addresses::new());
    }
}
