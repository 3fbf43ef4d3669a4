//! Places domains that only compute, each with one task, so that the weights on all CPUs are alike.
//!
//! On one CPU the host's scheduler keeps weights to the slice. Among CPUs it balances coarsely: the weights 1 to 8 on two
//! CPUs were kept to 92-98 % by it alone, to 99.8 % placed (docs/supervisor.md).

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// They must have computed for so many looks, or no longer.
const STEADY: u32 = 2;
const OVER: u32 = 12;
/// Places change when what those of one CPU are owed, in seconds of CPU time, is off by this, and have then stood for this
/// long. Weights are looked at as often.
const MUCH: f64 = 0.025;
const STAND: Duration = Duration::from_millis(250);
/// In so many seconds debts are paid back, by weights that are off by no more than these factors.
const PAYS: f64 = 1.0;
const LIGHTEST: f64 = 0.5;
const HEAVIEST: f64 = 2.0;

/// A domain that computes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Computes {
    pub id: u64,
    /// CPUs it should have, and seconds that it is owed.
    pub share: f64,
    pub owed: f64,
}

/// Where a domain is, and what it weighs there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Placement {
    /// The index of a CPU.
    pub cpu: usize,
    /// Part of its weight.
    pub weighs: f64,
}

/// Where domains are, by their number.
#[derive(Clone, Debug, Default)]
pub(super) struct Placements {
    at: HashMap<u64, Placement>,
    since: Option<Instant>,
    /// Looks in which there was something to place, or nothing, one after the other.
    some: u32,
    none: u32,
}

impl Placements {
    /// Where a domain is.
    pub fn of(&self, id: u64) -> Option<Placement> {
        self.at.get(&id).copied()
    }

    pub fn are_none(&self) -> bool {
        self.at.is_empty()
    }

    /// Gives all places up. Whether there were any.
    pub fn clear(&mut self) -> bool {
        self.since = None;
        !std::mem::take(&mut self.at).is_empty()
    }

    /// Finds places for these, or for none. Whether any changed.
    pub fn settle(&mut self, all: &[Computes], cpus: usize, now: Instant) -> bool {
        // With one CPU, or no more than there are CPUs, the host has nothing to balance.
        if cpus < 2 || all.len() <= cpus {
            (self.some, self.none) = (0, self.none + 1);
            return self.none >= OVER && self.clear();
        }
        (self.some, self.none) = (self.some + 1, 0);
        if self.some < STEADY || self.since.is_some_and(|since| now - since < STAND) {
            return false;
        }
        self.since = Some(now);
        let all = among_themselves(all);
        let same = all.len() == self.at.len() && all.iter().all(|c| self.at.contains_key(&c.id));
        let mut owed = vec![0.0; cpus];
        all.iter().filter_map(|c| Some((self.of(c.id)?, c))).for_each(|(at, c)| owed[at.cpu] += c.owed);
        let old = std::mem::take(&mut self.at);
        let at = if same && owed.iter().all(|owed| owed.abs() < MUCH) {
            old.iter().map(|(id, place)| (*id, place.cpu)).collect()
        } else {
            divide(&all, cpus)
        };
        let place = |c: &Computes| {
            let weighs = (1.0 + c.owed / (c.share * PAYS)).clamp(LIGHTEST, HEAVIEST);
            (c.id, Placement { cpu: at[&c.id], weighs })
        };
        self.at = all.iter().map(place).collect();
        self.at != old
    }
}

/// What they owe each other: what all lack is no matter of places.
fn among_themselves(all: &[Computes]) -> Vec<Computes> {
    let share: f64 = all.iter().map(|c| c.share).sum();
    let owed: f64 = all.iter().map(|c| c.owed).sum();
    all.iter().map(|c| Computes { owed: c.owed - owed * c.share / share, ..*c }).collect()
}

/// Who should get most comes first, each to the CPU that has the least to give.
fn divide(all: &[Computes], cpus: usize) -> HashMap<u64, usize> {
    let seconds = STAND.as_secs_f64();
    let due = |c: &Computes| (c.share * seconds + c.owed).clamp(0.0, seconds);
    let mut order: Vec<_> = all.iter().collect();
    order.sort_by(|a, b| due(b).total_cmp(&due(a)).then(a.id.cmp(&b.id)));
    let mut given: Vec<f64> = vec![0.0; cpus];
    let mut at = HashMap::new();
    for c in order {
        let least = (0..cpus).min_by(|a, b| given[*a].total_cmp(&given[*b])).unwrap_or(0);
        given[least] += due(c);
        at.insert(c.id, least);
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn computing(weights: &[f64], cpus: f64) -> Vec<Computes> {
        let sum: f64 = weights.iter().sum();
        weights.iter().zip(0..).map(|(w, id)| Computes { id, share: cpus * w / sum, owed: 0.0 }).collect()
    }

    /// The sums of weights on each CPU.
    fn sums(places: &Placements, weights: &[f64], cpus: usize) -> Vec<f64> {
        let on = |cpu| {
            weights.iter().zip(0..).filter(move |(_, id)| places.of(*id).is_some_and(|at| at.cpu == cpu))
        };
        (0..cpus).map(|cpu| on(cpu).map(|(w, _)| w).sum()).collect()
    }

    #[test]
    fn weights_are_alike_on_all_cpus() {
        let weights: Vec<_> = (1..=8).map(f64::from).collect();
        let mut places = Placements::default();
        let now = Instant::now();
        let looks: Vec<_> = (0..4).map(|_| places.settle(&computing(&weights, 2.0), 2, now)).collect();
        assert_eq!(looks, [false, true, false, false]);
        assert_eq!(sums(&places, &weights, 2), [18.0, 18.0]);
        assert!((1..OVER).all(|_| !places.settle(&[], 2, now)));
        assert!(places.settle(&[], 2, now));
        assert_eq!(places.of(0), None);
    }

    #[test]
    fn as_many_as_cpus_need_no_places() {
        let mut places = Placements::default();
        assert!(!(0..9).any(|_| places.settle(&computing(&[1.0, 3.0], 2.0), 2, Instant::now())));
        assert!(!(0..9).any(|_| places.settle(&computing(&[1.0, 3.0], 1.0), 1, Instant::now())));
        assert!(!(0..9).any(|_| places.settle(&computing(&[1.0, 3.0], 2.0), 0, Instant::now())), "unknown");
    }

    #[test]
    fn who_is_owed_weighs_more_until_it_is_paid() {
        let mut places = Placements::default();
        let mut all = computing(&[1.0, 1.0, 1.0, 1.0], 2.0);
        let mut now = Instant::now();
        let mut weighs = |all: &[Computes]| {
            now += STAND;
            (0..STEADY).for_each(|_| _ = places.settle(all, 2, now));
            all.iter().map(|c| places.of(c.id).unwrap().weighs).collect::<Vec<_>>()
        };
        assert_eq!(weighs(&all), [1.0; 4]);
        // All lack something, one more than others.
        all.iter_mut().for_each(|c| c.owed = 0.1);
        all[2].owed = 0.14;
        let found = weighs(&all);
        assert!(found[2] > 1.0 && [0, 1, 3].iter().all(|id| found[*id] < 1.0), "{found:?}");
        all[2].owed = 9.0;
        assert_eq!(weighs(&all)[2], HEAVIEST);
        all[2].owed = 0.1;
        assert_eq!(weighs(&all), [1.0; 4]);
    }

    /// Three of the same weight on two CPUs: one has a CPU for itself, and that is another one each time.
    #[test]
    fn what_does_not_divide_takes_turns() {
        let mut places = Placements::default();
        let mut all = computing(&[1.0, 1.0, 1.0], 2.0);
        let mut got = [0.0; 3];
        let mut now = Instant::now();
        for _ in 0..STEADY {
            places.settle(&all, 2, now);
        }
        for _ in 0..300 {
            now += STAND / 2;
            for c in &mut all {
                let place = places.of(c.id).unwrap().cpu;
                let mates = (0..3).filter(|id| places.of(*id).unwrap().cpu == place).count();
                let gets = STAND.as_secs_f64() / 2.0 / mates as f64;
                got[c.id as usize] += gets;
                c.owed += c.share * STAND.as_secs_f64() / 2.0 - gets;
            }
            places.settle(&all, 2, now);
        }
        let most = got.iter().copied().fold(0.0, f64::max);
        assert!(got.iter().all(|g| most - g < 0.3), "{got:?}");
    }
}
