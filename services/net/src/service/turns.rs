//! Whose turn it is: of those with something to do, who has used least of the service's time.
//!
//! Time that a client has used is a clock of its own. Who comes back after a rest goes on from where the others are, but for a
//! little credit, so that one with little to do is served before all that have used their share, and nobody can save up.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

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

#[derive(Clone, Copy, Debug, Default)]
struct Clock {
    /// Nanoseconds.
    used: u64,
    queued: bool,
}

impl Turns {
    /// Another client has this place.
    pub fn admit(&mut self, i: usize) {
        if self.clients.len() <= i {
            self.clients.resize(i + 1, Clock::default());
        }
        self.clients[i].used = self.now;
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
        self.clients[i].used = self.clients[i].used.saturating_add(time);
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
