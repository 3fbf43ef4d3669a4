//! Who is where: addresses of domains, and shards of their networks.
//!
//! Domains of one network are served by one shard: they reach each other within it, and find each other's names there. So
//! the unit that is spread is the network, and it goes where the fewest domains are; networks that a domain has in common are on
//! one shard.

use std::collections::{BTreeMap, HashMap};
use std::io;

/// Keys: the last two bytes of an IPv4 address, from 3 on (1 is the host, 2 answers questions about names).
const FIRST: u64 = 3;
pub(crate) const LAST: u64 = 65_533;

#[derive(Debug)]
struct Network {
    shard: usize,
    members: usize,
}

/// Where a domain is.
#[derive(Debug)]
struct Placed {
    shard: usize,
    networks: Vec<String>,
}

/// The addresses of one manager's domains, and the shards of their networks.
#[derive(Debug)]
pub(crate) struct Placement {
    /// The key to try next: an address rests as long as possible before it is another domain's.
    next: u64,
    members: BTreeMap<u64, Placed>,
    /// Those that somebody is on.
    networks: HashMap<String, Network>,
    /// How many domains each shard has.
    loads: Vec<usize>,
}

impl Placement {
    /// Of so many shards, one at least.
    pub fn new(shards: usize) -> Self {
        let (members, networks) = (BTreeMap::new(), HashMap::new());
        Self { next: FIRST, members, networks, loads: vec![0; shards.max(1)] }
    }

    /// A key and a shard for a domain of these networks.
    pub fn enter<'a>(&mut self, networks: impl Iterator<Item = &'a str> + Clone) -> io::Result<(u64, usize)> {
        let key = (self.next..=LAST)
            .chain(FIRST..self.next)
            .find(|k| !self.members.contains_key(k))
            .ok_or_else(|| io::Error::other("the virtual network has no address left"))?;
        let emptiest = (0..self.loads.len()).min_by_key(|i| self.loads[*i]).unwrap_or(0);
        let shard = self.shard_for(networks.clone())?.unwrap_or(emptiest);
        self.next = if key == LAST { FIRST } else { key + 1 };
        self.put(key, networks, shard);
        Ok((key, shard))
    }

    /// A domain that has this key already, and whose networks were on this shard; the one they are on now.
    pub fn enter_again<'a>(
        &mut self,
        key: u64,
        networks: impl Iterator<Item = &'a str> + Clone,
        shard: usize,
    ) -> io::Result<usize> {
        if !(FIRST..=LAST).contains(&key) || self.members.contains_key(&key) || shard >= self.loads.len() {
            return Err(io::Error::other("an address that is another domain's, or none"));
        }
        let shard = self.shard_for(networks.clone())?.unwrap_or(shard);
        // Those that were given out last rest longest.
        if key >= self.next {
            self.next = if key == LAST { FIRST } else { key + 1 };
        }
        self.put(key, networks, shard);
        Ok(shard)
    }

    /// A domain is on other networks from now on. Its shard stays: its sockets are there.
    pub fn change<'a>(
        &mut self,
        key: u64,
        networks: impl Iterator<Item = &'a str> + Clone,
    ) -> io::Result<()> {
        let Some(Placed { shard, networks: before }) = self.members.get(&key) else { return Ok(()) };
        let (shard, before) = (*shard, before.clone());
        // Those that only this domain is on go with it.
        let others = networks.clone().filter(|name| {
            let alone =
                before.iter().any(|b| b == name) && self.networks.get(*name).is_some_and(|n| n.members == 1);
            !alone
        });
        if let Some(elsewhere) = self.shard_for(others)?.filter(|on| *on != shard) {
            return Err(apart(shard, elsewhere));
        }
        self.leave(key);
        self.put(key, networks, shard);
        Ok(())
    }

    /// The shard that those of these networks are on which somebody is on already.
    fn shard_for<'a>(&self, networks: impl Iterator<Item = &'a str>) -> io::Result<Option<usize>> {
        let mut found = networks.filter_map(|name| self.networks.get(name)).map(|network| network.shard);
        let first = found.next();
        match first.and_then(|first| found.find(|other| *other != first).map(|other| (first, other))) {
            Some((one, other)) => Err(apart(one, other)),
            None => Ok(first),
        }
    }

    fn put<'a>(&mut self, key: u64, networks: impl Iterator<Item = &'a str>, shard: usize) {
        let networks: Vec<String> = networks.map(str::to_owned).collect();
        for name in &networks {
            let found = self.networks.entry(name.clone()).or_insert(Network { shard, members: 0 });
            found.members += 1;
        }
        self.loads[shard] += 1;
        self.members.insert(key, Placed { shard, networks });
    }

    /// A domain is no more.
    pub fn leave(&mut self, key: u64) {
        let Some(Placed { shard, networks }) = self.members.remove(&key) else { return };
        self.loads[shard] -= 1;
        for name in networks {
            if let Some(network) = self.networks.get_mut(&name) {
                network.members -= 1;
                if network.members == 0 {
                    self.networks.remove(&name);
                }
            }
        }
    }

    /// The shard that serves a domain.
    pub fn shard_of(&self, key: u64) -> Option<usize> {
        self.members.get(&key).map(|placed| placed.shard)
    }

    /// The networks that a domain is on.
    pub fn networks_of_domain(&self, key: u64) -> Option<Vec<String>> {
        self.members.get(&key).map(|placed| placed.networks.clone())
    }

    /// How many networks a shard has.
    pub fn networks_of(&self, shard: usize) -> usize {
        self.networks.values().filter(|n| n.shard == shard).count()
    }
}

fn apart(one: usize, other: usize) -> io::Error {
    let text = format!(
        "networks of its are on different network services ({one} and {other}), and no domain can be on both; stop the domains \
         of one of them and start this one first, or have one service (`network_shards = 1` of doppeld.toml)"
    );
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(networks: &str) -> impl Iterator<Item = &str> + Clone {
        networks.split(' ').filter(|name| !name.is_empty())
    }

    #[test]
    fn networks_of_one_domain_are_on_one_shard() {
        let mut book = Placement::new(2);
        let (a, on_a) = book.enter(on("a")).unwrap();
        let (b, on_b) = book.enter(on("b")).unwrap();
        assert_ne!(on_a, on_b);
        assert!(book.enter(on("a b")).unwrap_err().to_string().contains("network_shards = 1"));
        // A new network goes where the others are.
        let (both, shard) = book.enter(on("a c")).unwrap();
        assert_eq!((shard, book.enter(on("c")).unwrap().1), (on_a, on_a));
        assert_eq!(book.networks_of_domain(both), Some(vec!["a".into(), "c".into()]));
        // One that is on none is alone wherever it is.
        let (none, _) = book.enter(on("")).unwrap();
        assert_eq!(book.networks_of_domain(none), Some(Vec::new()));
        book.leave(none);
        // Who is there already stays, whatever comes to it.
        book.change(a, on("a b")).unwrap_err();
        assert_eq!(book.networks_of_domain(a), Some(vec!["a".into()]));
        book.change(a, on("d")).unwrap();
        assert_eq!((book.shard_of(a), book.networks_of(on_a), book.networks_of(on_b)), (Some(on_a), 3, 1));
        book.leave(b);
        book.change(a, on("d b")).unwrap();
        assert_eq!(book.enter(on("b")).unwrap().1, on_a);
        // A network goes with who was on it alone.
        book.change(both, on("")).unwrap();
        assert_eq!(book.networks_of(on_a), 3);
        assert_eq!(book.loads.iter().sum::<usize>(), book.members.len());
    }

    #[test]
    fn a_domain_on_several_networks_is_entered_again() {
        let mut book = Placement::new(2);
        assert_eq!(book.enter_again(9, on("a b"), 1).unwrap(), 1);
        assert_eq!(book.enter_again(8, on("c"), 0).unwrap(), 0);
        book.enter_again(7, on("b c"), 1).unwrap_err();
        assert_eq!(book.enter_again(7, on("b"), 0).unwrap(), 1);
    }

    #[test]
    fn a_network_is_on_one_shard_and_new_ones_go_where_the_fewest_are() {
        let mut book = Placement::new(2);
        let (a, on_a) = book.enter(on("a")).unwrap();
        let (b, on_b) = book.enter(on("b")).unwrap();
        assert_ne!(on_a, on_b);
        for _ in 0..3 {
            assert_eq!(book.enter(on("a")).unwrap().1, on_a);
        }
        assert_eq!(book.enter(on("c")).unwrap().1, on_b);
        assert_eq!((book.shard_of(a), book.shard_of(b)), (Some(on_a), Some(on_b)));
        assert_eq!((book.networks_of(on_a), book.networks_of(on_b)), (1, 2));
        // One that nobody is on any more begins anew.
        book.leave(b);
        assert_eq!(book.shard_of(b), None);
        book.leave(b);
        assert_eq!(book.enter(on("b")).unwrap().1, on_b);
    }

    #[test]
    fn domains_are_entered_again_as_they_were() {
        let mut book = Placement::new(2);
        assert_eq!(book.enter_again(9, on("a"), 1).unwrap(), 1);
        assert_eq!(book.enter_again(7, on("a"), 1).unwrap(), 1);
        book.enter_again(9, on("b"), 0).unwrap_err();
        book.enter_again(8, on("b"), 2).unwrap_err();
        book.enter_again(2, on("b"), 0).unwrap_err();
        assert_eq!(book.enter(on("a")).unwrap(), (10, 1));
        assert_eq!(book.enter(on("b")).unwrap(), (11, 0));
        book.leave(9);
        assert_eq!((book.shard_of(7), book.networks_of(1)), (Some(1), 1));
    }

    #[test]
    fn addresses_rest_before_they_are_used_again() {
        let mut book = Placement::new(1);
        let (first, _) = book.enter(on("n")).unwrap();
        book.leave(first);
        let (second, _) = book.enter(on("n")).unwrap();
        assert_ne!(first, second);
        for _ in 0..LAST - FIRST {
            book.enter(on("n")).unwrap();
        }
        book.enter(on("n")).unwrap_err();
        book.leave(second);
        assert_eq!(book.enter(on("n")).unwrap().0, second);
    }
}
