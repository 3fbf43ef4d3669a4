//! Whose turn it is: of those with something to do, who has used least of the service's time.
//!
//! Time that a client has used is a clock of its own, which is the slower the greater its weight is. Who comes back after a rest goes on from where the others are, but for a
//! little credit, so that one with little to do is served before all that have used their share, and nobody can save up.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use crate::rules::{MOST_WEIGHT, WEIGHT};

/// How far behind others who rested may be, in nanoseconds: a few turns of one that uses all of each.
const CREDIT: u64 = 1_000_000;

/// Most that is charged for a turn, of which the host may have given the CPU to others.
const MOST: u64 = 250_000;

/// Clients by their places.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    queue: BinaryHeap<Reverse<(u64, usize)>>,
    clients: Vec<Clock>,
    /// What the last one had used whose turn it was.
    now: u64,
}

#[derive(Clone, Copy, Debug)]
struct Clock {
    /// Nanoseconds of who has the usual weight.
    used: u64,
    queued: bool,
    weight: u32,
}

impl Default for Clock {
    fn default() -> Self {
        Self { used: 0, queued: false, weight: WEIGHT }
    }
}

impl Turns {
    /// Another client has this place.
    pub fn admit(&mut self, i: usize) {
        if self.clients.len() <= i {
            self.clients.resize(i + 1, Clock::default());
        }
        self.clients[i] = Clock { used: self.now, weight: WEIGHT, ..self.clients[i] };
    }

    /// A client's share is so much from now on, beside others'.
    pub fn weigh(&mut self, i: usize, weight: Option<u32>) {
        self.clients[i].weight = weight.unwrap_or(WEIGHT).clamp(1, MOST_WEIGHT);
    }

    /// Queues a client, unless it is there.
    pub fn push(&mut self, i: usize) {
        let one = &mut self.clients[i];
        if !std::mem::replace(&mut one.queued, true) {
            one.used = one.used.max(self.now.saturating_sub(CREDIT));
            self.queue.push(Reverse((one.used, i)));
        }
    }

    /// Whose turn it is.
    pub fn pop(&mut self) -> Option<usize> {
        while let Some(Reverse((used, i))) = self.queue.pop() {
            let one = &mut self.clients[i];
            // One that was queued in its own turn has used more since.
            if used < one.used {
                self.queue.push(Reverse((one.used, i)));
                continue;
            }
            one.queued = false;
            self.now = self.now.max(used);
            return Some(i);
        }
        None
    }

    /// A client has used so much time.
    pub fn used(&mut self, i: usize, time: Duration) {
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).clamp(1, MOST);
        let one = &mut self.clients[i];
        let time = (time * u64::from(WEIGHT) / u64::from(one.weight)).max(1);
        one.used = one.used.saturating_add(time);
    }

    pub fn len(&self) -> usize {
        self.queue.len()
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(count: usize) -> Turns {
        let mut t = Turns::default();
        (0..count).for_each(|i| t.admit(i));
        t
    }

    #[test]
    fn who_has_used_least_comes_first_and_each_is_there_once() {
        let mut t = with(3);
        for i in [0, 1, 2] {
            t.used(i, Duration::from_micros(10 - i as u64));
            t.push(i);
            t.push(i);
        }
        assert_eq!(t.len(), 3);
        assert_eq!([t.pop(), t.pop(), t.pop(), t.pop()], [Some(2), Some(1), Some(0), None]);
    }

    #[test]
    fn who_always_wants_more_gets_as_much_as_others_that_do() {
        let mut t = with(2);
        let mut turns = [0; 2];
        (0..2).for_each(|i| t.push(i));
        for _ in 0..4000 {
            let i = t.pop().unwrap();
            turns[i] += 1;
            // One has longer turns, and is queued in them.
            t.push(i);
            t.used(i, Duration::from_micros(if i == 0 { 30 } else { 10 }));
        }
        assert!((995..=1005).contains(&turns[0]), "{turns:?}");
    }

    type Within = fn(u64) -> bool;

    /// How the time of a service is shared among these, who always want more, in thousandths: weight, and whether it is within
    /// what it is guaranteed at a time in microseconds.
    fn shared(of: &[(Option<u32>, Within)]) -> Vec<u64> {
        let mut t = with(of.len());
        let mut used = vec![0; of.len()];
        let mut at = 0;
        for (i, (weight, _)) in of.iter().enumerate() {
            t.weigh(i, *weight);
            t.push(i);
        }
        while at < 1_000_000 {
            let i = t.pop().unwrap();
            // Turns are not of one length.
            let time = 40 + at % 50;
            if !of[i].1(used[i] * 1_000_000 / (at + 1)) {
                t.used(i, Duration::from_micros(time));
            }
            (used[i], at) = (used[i] + time, at + time);
            t.push(i);
        }
        used.into_iter().map(|used| used * 1000 / at).collect()
    }

    #[test]
    fn who_weighs_more_gets_more() {
        let never: Within = |_| false;
        for (weights, shares) in [
            ([None, None, None], [333, 333, 333]),
            ([Some(200), None, Some(100)], [500, 250, 250]),
            ([Some(800), Some(100), Some(100)], [800, 100, 100]),
            ([Some(10_000), Some(1), Some(1)], [999, 0, 0]),
        ] {
            let found = shared(&weights.map(|weight| (weight, never)));
            let close = found.iter().zip(shares).all(|(found, share)| found.abs_diff(share) <= 5);
            assert!(close, "{weights:?}: {found:?}");
        }
    }

    #[test]
    fn who_is_guaranteed_time_has_that_beside_any_weights_and_the_others_share_the_rest() {
        // So many millionths of all time.
        let within: Within = |share| share < 300_000;
        let never: Within = |_| false;
        let found = shared(&[(Some(1), within), (Some(300), never), (Some(100), never)]);
        assert!((295..=310).contains(&found[0]), "{found:?}");
        let rest = found[1] + found[2];
        assert!((found[1] * 1000 / rest).abs_diff(750) <= 10, "{found:?}");
    }

    #[test]
    fn who_rested_has_a_credit_and_no_more() {
        let mut t = with(2);
        for _ in 0..1000 {
            t.push(0);
            assert_eq!(t.pop(), Some(0));
            t.used(0, Duration::from_micros(100));
        }
        let mut first = 0;
        (0..2).for_each(|i| t.push(i));
        while t.pop() == Some(1) {
            first += 1;
            t.used(1, Duration::from_micros(100));
            t.push(1);
        }
        assert!((10..=12).contains(&first), "{first}");
    }
}
