//! Who gives memory when it is short: the lowest priority first, of that the owner furthest above its share, of its domains the one
//! that has worked least recently; as many as are needed, and no more.

use std::collections::BTreeMap;
use std::time::Duration;

/// What is known of memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Memory {
    /// What the host can give without paging.
    pub available: u64,
    /// What of it stays free.
    pub reserve: u64,
    /// What all domains use.
    pub domains: u64,
    /// Most that they may.
    pub budget: Option<u64>,
    /// Hundredths of the last seconds in which some tasks waited for memory.
    pub pressure: f64,
    /// From there on it is short, if less than [`Memory::plenty`] is available; 0: not looked at.
    pub pressure_limit: f64,
    /// With so much available tasks wait for other reasons: memory that is used first, limits of their own, a host that gives
    /// pages back ahead of need.
    pub plenty: u64,
}

impl Memory {
    /// What can be given away.
    #[must_use]
    pub fn free(&self) -> u64 {
        let of_host = self.available.saturating_sub(self.reserve);
        self.budget.map_or(of_host, |budget| of_host.min(budget.saturating_sub(self.domains)))
    }

    /// What is missing for somebody who wants so much; 0: for nobody.
    #[must_use]
    pub fn missing(&self, wanted: u64) -> u64 {
        let of_host = self.reserve.saturating_add(wanted).saturating_sub(self.available);
        let of_budget = self.budget.map_or(0, |b| self.domains.saturating_add(wanted).saturating_sub(b));
        of_host.max(of_budget).max(self.pressed())
    }

    /// What tasks that wait for memory are to be given at a time: a tenth of what domains use.
    fn pressed(&self) -> u64 {
        let is = self.pressure_limit > 0.0 && self.pressure >= self.pressure_limit;
        if is && self.available < self.plenty { (self.domains / 10).max(1 << 20) } else { 0 }
    }

    /// Whether so much will ever be free.
    #[must_use]
    pub fn can_ever(&self, wanted: u64, host: u64) -> bool {
        wanted <= host.saturating_sub(self.reserve) && self.budget.is_none_or(|budget| wanted <= budget)
    }
}

/// A domain that could hibernate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Which.
    pub id: String,
    /// Whose.
    pub owner: String,
    /// What it uses.
    pub bytes: u64,
    /// Higher ones go later.
    pub priority: i32,
    /// When it was last known to work.
    pub active: Duration,
}

/// An owner's memory and weight.
#[derive(Clone, Copy, Debug)]
pub struct Holding {
    /// What its domains use, those that cannot hibernate too.
    pub bytes: u64,
    /// Its share.
    pub weight: u32,
}

impl Holding {
    /// Whether it is further above its share than another.
    fn is_above(self, other: Self) -> std::cmp::Ordering {
        let (a, b) = (
            u128::from(self.bytes) * u128::from(other.weight),
            u128::from(other.bytes) * u128::from(self.weight),
        );
        a.cmp(&b)
    }
}

/// Who hibernates so that `missing` bytes are free again: places in `candidates`, in the order in which they go. Fewer bytes than
/// that if not all are enough.
#[must_use]
pub fn choose(candidates: &[Candidate], missing: u64, owners: &BTreeMap<String, Holding>) -> Vec<usize> {
    let mut owners = owners.clone();
    // Of each priority and owner, those that go last at the end.
    let mut waiting: BTreeMap<(i32, &str), Vec<usize>> = BTreeMap::new();
    for (at, one) in candidates.iter().enumerate().filter(|(_, c)| c.bytes > 0) {
        waiting.entry((one.priority, &one.owner)).or_default().push(at);
    }
    for all in waiting.values_mut() {
        all.sort_by_key(|at| std::cmp::Reverse((candidates[*at].active, candidates[*at].bytes)));
    }
    let (mut chosen, mut freed) = (Vec::new(), 0u64);
    while freed < missing {
        let Some(&(lowest, _)) = waiting.keys().next() else { break };
        let holding = |owner: &str| owners.get(owner).copied().unwrap_or(Holding { bytes: 0, weight: 1 });
        let of_lowest = waiting.keys().filter(|(priority, _)| *priority == lowest);
        let Some(&key) = of_lowest.max_by(|a, b| holding(a.1).is_above(holding(b.1)).then(b.1.cmp(a.1)))
        else {
            break;
        };
        let Some(all) = waiting.get_mut(&key) else { break };
        if let Some(at) = all.pop() {
            freed = freed.saturating_add(candidates[at].bytes);
            if let Some(owner) = owners.get_mut(key.1) {
                owner.bytes = owner.bytes.saturating_sub(candidates[at].bytes);
            }
            chosen.push(at);
        }
        if all.is_empty() {
            waiting.remove(&key);
        }
    }
    spare(candidates, chosen, freed, missing)
}

/// Leaves out whom the others make superfluous, those that would go last first.
fn spare(candidates: &[Candidate], chosen: Vec<usize>, mut freed: u64, missing: u64) -> Vec<usize> {
    let mut kept: Vec<usize> = chosen
        .into_iter()
        .rev()
        .filter(|at| {
            let without = freed - candidates[*at].bytes.min(freed);
            let superfluous = freed >= missing && without >= missing;
            if superfluous {
                freed = without;
            }
            !superfluous
        })
        .collect();
    kept.reverse();
    kept
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn one(id: u32, owner: &str, bytes: u64, priority: i32, active: u64) -> Candidate {
        Candidate {
            id: id.to_string(),
            owner: owner.into(),
            bytes,
            priority,
            active: Duration::from_secs(active),
        }
    }

    fn owners(all: &[(&str, u64, u32)]) -> BTreeMap<String, Holding> {
        all.iter()
            .map(|(o, bytes, weight)| ((*o).to_owned(), Holding { bytes: *bytes, weight: *weight }))
            .collect()
    }

    #[test]
    fn what_is_missing() {
        let memory = Memory { available: 10, reserve: 4, domains: 7, budget: Some(9), ..Memory::default() };
        assert_eq!((memory.free(), memory.missing(0), memory.missing(2), memory.missing(9)), (2, 0, 0, 7));
        let short = Memory { available: 3, budget: None, ..memory };
        assert_eq!((short.free(), short.missing(0), short.missing(5)), (0, 1, 6));
        let pressed = Memory {
            pressure: 30.0,
            pressure_limit: 20.0,
            domains: 100 << 20,
            budget: None,
            plenty: 11,
            ..memory
        };
        assert_eq!((pressed.missing(0), pressed.free()), (10 << 20, 6));
        assert_eq!(Memory { plenty: 10, ..pressed }.missing(0), 0);
        assert!(memory.can_ever(9, 20) && !memory.can_ever(10, 20) && !memory.can_ever(8, 11));
    }

    #[test]
    fn the_least_recently_active_of_the_lowest_priority_goes_first() {
        let all = [one(0, "a", 5, 0, 9), one(1, "a", 5, 0, 3), one(2, "a", 5, -1, 20), one(3, "a", 5, 7, 1)];
        let of = owners(&[("a", 20, 100)]);
        assert_eq!(choose(&all, 1, &of), [2]);
        assert_eq!(choose(&all, 6, &of), [2, 1]);
        assert_eq!(choose(&all, 1000, &of), [2, 1, 0, 3]);
        assert!(choose(&all, 0, &of).is_empty());
    }

    #[test]
    fn the_owner_furthest_above_its_share_gives_first() {
        let all: Vec<_> =
            (0..6).map(|n| one(n, if n < 3 { "a" } else { "b" }, 10, 0, u64::from(n))).collect();
        // Both use 30; b may have twice as much.
        let of = owners(&[("a", 30, 100), ("b", 30, 200)]);
        assert_eq!(choose(&all, 20, &of), [0, 1]);
        assert_eq!(choose(&all, 40, &of), [0, 1, 3, 2]);
    }

    #[test]
    fn no_more_than_is_needed() {
        let all = [one(0, "a", 1, 0, 1), one(1, "a", 2, 0, 2), one(2, "a", 50, 0, 3)];
        assert_eq!(choose(&all, 50, &owners(&[("a", 53, 100)])), [2]);
    }

    prop_compose! {
        fn candidate()(owner in 0..3u8, bytes in 0u64..100, priority in -2..3, active in 0u64..50) -> Candidate {
            one(0, &owner.to_string(), bytes, priority, active)
        }
    }

    proptest! {
        #[test]
        fn enough_and_not_more(all in prop::collection::vec(candidate(), 0..30), missing in 0u64..600) {
            let mut of = BTreeMap::new();
            for c in &all {
                of.entry(c.owner.clone()).or_insert(Holding { bytes: 0, weight: 100 }).bytes += c.bytes;
            }
            let chosen = choose(&all, missing, &of);
            let freed: u64 = chosen.iter().map(|at| all[*at].bytes).sum();
            let there: u64 = all.iter().map(|c| c.bytes).sum();
            prop_assert_eq!(freed >= missing, there >= missing);
            prop_assert!(chosen.iter().all(|at| missing > 0 && freed - all[*at].bytes < missing || there < missing));
            // Nobody goes while one of lower priority, or of its owner and less recently active, stays that would do as well.
            let gone = |at: &usize| chosen.contains(at);
            for at in &chosen {
                for other in (0..all.len()).filter(|o| !gone(o) && all[*o].bytes >= all[*at].bytes) {
                    prop_assert!(all[other].priority >= all[*at].priority);
                    let alike = all[other].owner == all[*at].owner && all[other].priority == all[*at].priority;
                    prop_assert!(!alike || all[other].active >= all[*at].active);
                }
            }
        }
    }
}
