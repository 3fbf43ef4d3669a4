//! Who is where: addresses of domains, and shards of their networks.
//!
//! Domains of one network are served by one shard: they reach each other within it, and find each other's names there. So
//! the unit that is spread is the network, and it goes where the fewest domains are.

use std::collections::{BTreeMap, HashMap};
use std::io;

/// Keys: the last two bytes of an IPv4 address, from 3 on (1 is the host, 2 answers questions about names).
const FIRST: u64 = 3;
const LAST: u64 = 65_533;

#[derive(Debug)]
struct Network {
    shard: usize,
    members: usize,
}

/// The addresses of one manager's domains, and the shards of their networks.
#[derive(Debug)]
pub(crate) struct Placement {
    /// The key to try next: an address rests as long as possible before it is another domain's.
    next: u64,
    /// The network of each domain.
    members: BTreeMap<u64, String>,
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

    /// A key and a shard for a domain of this network.
    pub fn enter(&mut self, network: &str) -> io::Result<(u64, usize)> {
        let key = (self.next..=LAST)
            .chain(FIRST..self.next)
            .find(|k| !self.members.contains_key(k))
            .ok_or_else(|| io::Error::other("the virtual network has no address left"))?;
        self.next = if key == LAST { FIRST } else { key + 1 };
        let emptiest = (0..self.loads.len()).min_by_key(|i| self.loads[*i]).unwrap_or(0);
        Ok((key, self.put(key, network, emptiest)))
    }

    /// A domain that has this key already, and whose network was on this shard; the one it is on now.
    pub fn enter_again(&mut self, key: u64, network: &str, shard: usize) -> io::Result<usize> {
        if !(FIRST..=LAST).contains(&key) || self.members.contains_key(&key) || shard >= self.loads.len() {
            return Err(io::Error::other("an address that is another domain's, or none"));
        }
        // Those that were given out last rest longest.
        if key >= self.next {
            self.next = if key == LAST { FIRST } else { key + 1 };
        }
        Ok(self.put(key, network, shard))
    }

    fn put(&mut self, key: u64, network: &str, shard: usize) -> usize {
        self.members.insert(key, network.to_owned());
        let found = self.networks.entry(network.to_owned()).or_insert(Network { shard, members: 0 });
        found.members += 1;
        self.loads[found.shard] += 1;
        found.shard
    }

    /// A domain is no more.
    pub fn leave(&mut self, key: u64) {
        let Some(name) = self.members.remove(&key) else { return };
        let Some(network) = self.networks.get_mut(&name) else { return };
        network.members -= 1;
        self.loads[network.shard] -= 1;
        if network.members == 0 {
            self.networks.remove(&name);
        }
    }

    /// The shard that serves a domain.
    pub fn shard_of(&self, key: u64) -> Option<usize> {
        self.networks.get(self.members.get(&key)?).map(|n| n.shard)
    }

    /// How many networks a shard has.
    pub fn networks_of(&self, shard: usize) -> usize {
        self.networks.values().filter(|n| n.shard == shard).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_on_one_shard_and_new_ones_go_where_the_fewest_are() {
        let mut book = Placement::new(2);
        let (a, on_a) = book.enter("a").unwrap();
        let (b, on_b) = book.enter("b").unwrap();
        assert_ne!(on_a, on_b);
        for _ in 0..3 {
            assert_eq!(book.enter("a").unwrap().1, on_a);
        }
        assert_eq!(book.enter("c").unwrap().1, on_b);
        assert_eq!((book.shard_of(a), book.shard_of(b)), (Some(on_a), Some(on_b)));
        assert_eq!((book.networks_of(on_a), book.networks_of(on_b)), (1, 2));
        // One that nobody is on any more begins anew.
        book.leave(b);
        assert_eq!(book.shard_of(b), None);
        book.leave(b);
        assert_eq!(book.enter("b").unwrap().1, on_b);
    }

    #[test]
    fn domains_are_entered_again_as_they_were() {
        let mut book = Placement::new(2);
        assert_eq!(book.enter_again(9, "a", 1).unwrap(), 1);
        assert_eq!(book.enter_again(7, "a", 1).unwrap(), 1);
        book.enter_again(9, "b", 0).unwrap_err();
        book.enter_again(8, "b", 2).unwrap_err();
        book.enter_again(2, "b", 0).unwrap_err();
        assert_eq!(book.enter("a").unwrap(), (10, 1));
        assert_eq!(book.enter("b").unwrap(), (11, 0));
        book.leave(9);
        assert_eq!((book.shard_of(7), book.networks_of(1)), (Some(1), 1));
    }

    #[test]
    fn addresses_rest_before_they_are_used_again() {
        let mut book = Placement::new(1);
        let (first, _) = book.enter("n").unwrap();
        book.leave(first);
        let (second, _) = book.enter("n").unwrap();
        assert_ne!(first, second);
        for _ in 0..LAST - FIRST {
            book.enter("n").unwrap();
        }
        book.enter("n").unwrap_err();
        book.leave(second);
        assert_eq!(book.enter("n").unwrap().0, second);
    }
}
