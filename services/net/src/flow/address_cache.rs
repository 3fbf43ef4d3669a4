//! What was lately known of addresses, in bounded memory.

use std::collections::HashMap;
use std::net::SocketAddr;

/// Values by address. The [`AddressCache::KEEP`] latest stay, those before them go some time.
#[derive(Debug)]
pub(crate) struct AddressCache<V> {
    new: HashMap<SocketAddr, V>,
    old: HashMap<SocketAddr, V>,
}

impl<V> Default for AddressCache<V> {
    fn default() -> Self {
        Self { new: HashMap::new(), old: HashMap::new() }
    }
}

impl<V: Copy> AddressCache<V> {
    /// Least number of addresses that are remembered; at most twice as many are.
    pub const KEEP: usize = 512;

    /// The value of an address, which is kept for longer by this; `new` if there was none.
    pub fn renew(&mut self, address: SocketAddr, new: impl FnOnce() -> V) -> &mut V {
        let mut before = None;
        if !self.new.contains_key(&address) {
            before = self.old.remove(&address);
            if self.new.len() >= Self::KEEP {
                self.old = std::mem::take(&mut self.new);
            }
        }
        self.new.entry(address).or_insert_with(|| before.unwrap_or_else(new))
    }

    pub fn get_mut(&mut self, address: &SocketAddr) -> Option<&mut V> {
        self.new.get_mut(address).or_else(|| self.old.get_mut(address))
    }

    /// How many are remembered; one that is both new and old counts twice.
    pub fn len(&self) -> usize {
        self.new.len() + self.old.len()
    }

    /// Those that are remembered, the latest first.
    pub fn iter(&self) -> impl Iterator<Item = (&SocketAddr, &V)> {
        let before = self.old.iter().filter(|(address, _)| !self.new.contains_key(address));
        self.new.iter().chain(before)
    }

    /// Forgets those for which `keep` does not hold.
    pub fn retain(&mut self, mut keep: impl FnMut(&SocketAddr, &V) -> bool) {
        self.new.retain(|address, value| keep(address, value));
        self.old.retain(|address, value| keep(address, value));
    }

    pub fn get(&self, address: &SocketAddr) -> Option<V> {
        self.new.get(address).or_else(|| self.old.get(address)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_remembered_and_memory_is_bounded() {
        let mut r = AddressCache::default();
        let address = |port: u16| SocketAddr::from(([192, 0, 2, 1], port));
        let keep = u16::try_from(AddressCache::<u16>::KEEP).unwrap();
        for port in 0..10 * keep {
            assert_eq!(*r.renew(address(port), || port), port);
            assert!(r.new.len() + r.old.len() <= 2 * usize::from(keep));
            let first = port.saturating_sub(keep - 1);
            assert_eq!((r.get(&address(first)), r.get(&address(port))), (Some(first), Some(port)));
        }
        assert_eq!(r.get(&address(0)), None);
        // One that is used stays, with what it has become.
        *r.renew(address(0), || 1) += 1;
        for port in 0..10 * keep {
            r.renew(address(40_000 + port), || 7);
            assert!(r.len() <= 2 * usize::from(keep) && r.iter().count() <= r.len());
            assert_eq!(*r.renew(address(0), || 1), 2);
        }
    }
}
