//! Who waits for memory: first in, first out by priority, and owners in turn, so that one owner's queue does not hold up another's.
//!
//! One that needs less may pass the first, if that has not waited for long: then all wait until it has its memory.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

/// Number of one that waits; later ones are larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// What one waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Want {
    /// On whose behalf.
    pub owner: String,
    /// Higher ones go first.
    pub priority: i32,
    /// How much.
    pub bytes: u64,
    /// Since when.
    pub since: Duration,
}

/// All that wait.
#[derive(Debug, Default)]
pub struct Queue {
    next: u64,
    waiting: HashMap<Ticket, Want>,
    /// Those of each owner, in their order.
    owners: BTreeMap<String, BTreeSet<(Reverse<i32>, Ticket)>>,
    /// When each owner was last served: the turn.
    served: HashMap<String, u64>,
    turn: u64,
}

impl Queue {
    /// One more, behind all others of its owner and priority.
    pub fn push(&mut self, want: Want) -> Ticket {
        self.next += 1;
        let ticket = Ticket(self.next);
        self.owners.entry(want.owner.clone()).or_default().insert((Reverse(want.priority), ticket));
        self.waiting.insert(ticket, want);
        ticket
    }

    /// One does not wait any more; false if it has not.
    pub fn remove(&mut self, ticket: Ticket) -> bool {
        let Some(want) = self.waiting.remove(&ticket) else { return false };
        if let Some(all) = self.owners.get_mut(&want.owner) {
            all.remove(&(Reverse(want.priority), ticket));
            if all.is_empty() {
                self.owners.remove(&want.owner);
            }
        }
        if self.waiting.is_empty() {
            // Nobody is behind anybody.
            self.served.clear();
        }
        true
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The first of each owner, in the order in which they go.
    fn heads(&self) -> Vec<Ticket> {
        let mut heads: Vec<_> = self
            .owners
            .iter()
            .filter_map(|(owner, all)| {
                let (priority, ticket) = *all.first()?;
                Some((priority, self.served.get(owner).copied().unwrap_or(0), ticket))
            })
            .collect();
        heads.sort_unstable();
        heads.into_iter().map(|(.., ticket)| ticket).collect()
    }

    /// The one for which room is to be made.
    #[must_use]
    pub fn first(&self) -> Option<&Want> {
        self.heads().first().and_then(|ticket| self.waiting.get(ticket))
    }

    /// The next that goes if so much is free; it waits no more.
    pub fn admit(&mut self, free: u64, now: Duration, patience: Duration) -> Option<(Ticket, Want)> {
        let mut found = None;
        for ticket in self.heads() {
            let want = self.waiting.get(&ticket)?;
            if want.bytes <= free {
                found = Some((ticket, want.clone()));
                break;
            }
            if now.saturating_sub(want.since) >= patience {
                return None;
            }
        }
        let (ticket, want) = found?;
        self.turn += 1;
        self.served.insert(want.owner.clone(), self.turn);
        self.remove(ticket);
        Some((ticket, want))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn want(owner: &str, priority: i32, bytes: u64) -> Want {
        Want { owner: owner.into(), priority, bytes, since: Duration::ZERO }
    }

    fn drain(queue: &mut Queue, free: u64, now: u64) -> Vec<(String, u64)> {
        let patience = Duration::from_secs(10);
        std::iter::from_fn(|| queue.admit(free, Duration::from_secs(now), patience))
            .map(|(_, want)| (want.owner, want.bytes))
            .collect()
    }

    #[test]
    fn owners_take_turns_and_priorities_go_first() {
        let mut queue = Queue::default();
        for n in 0..3 {
            queue.push(want("a", 0, n));
        }
        queue.push(want("b", 0, 3));
        queue.push(want("b", 5, 4));
        let order: Vec<u64> = drain(&mut queue, 9, 0).into_iter().map(|(_, bytes)| bytes).collect();
        assert_eq!(order, [4, 0, 3, 1, 2]);
        assert!(queue.is_empty() && queue.served.is_empty());
    }

    #[test]
    fn one_that_needs_much_is_passed_for_a_while() {
        let mut queue = Queue::default();
        queue.push(want("a", 0, 100));
        queue.push(want("a", 0, 1));
        queue.push(want("b", 0, 2));
        queue.push(want("b", 0, 2));
        assert_eq!(queue.first(), Some(&want("a", 0, 100)));
        // Within an owner it is first in, first out.
        assert_eq!(queue.admit(10, Duration::ZERO, Duration::from_secs(10)).map(|(_, w)| w.bytes), Some(2));
        assert_eq!(drain(&mut queue, 10, 10), []);
        assert_eq!(drain(&mut queue, 100, 10).len(), 3);
    }

    #[test]
    fn who_gives_up_holds_up_nobody() {
        let mut queue = Queue::default();
        let first = queue.push(want("a", 0, 100));
        queue.push(want("a", 0, 1));
        assert!(queue.remove(first) && !queue.remove(first));
        assert_eq!(drain(&mut queue, 1, 99), [("a".to_owned(), 1)]);
    }

    proptest! {
        #[test]
        fn nobody_is_forgotten_or_passed_by_his_own(
            all in prop::collection::vec((0..3u8, -1..2i32, 1u64..20), 1..40),
            free in prop::collection::vec(0u64..25, 1..200),
        ) {
            let mut queue = Queue::default();
            let wants: HashMap<Ticket, Want> = all
                .iter()
                .map(|(owner, priority, bytes)| {
                    let want = want(&owner.to_string(), *priority, *bytes);
                    (queue.push(want.clone()), want)
                })
                .collect();
            let mut gone: Vec<Ticket> = Vec::new();
            for (now, free) in free.into_iter().enumerate() {
                let now = Duration::from_secs(now as u64 / 4);
                let admitted = queue.admit(free, now, Duration::from_secs(10));
                match admitted {
                    Some((ticket, want)) => {
                        prop_assert!(want.bytes <= free);
                        let before = wants.iter().filter(|(t, w)| {
                            w.owner == want.owner && (Reverse(w.priority), **t) < (Reverse(want.priority), ticket)
                        });
                        prop_assert!(before.into_iter().all(|(t, _)| gone.contains(t)));
                        gone.push(ticket);
                    }
                    None => {
                        // Only for want of memory, or because the first has waited long enough.
                        let first = queue.first().map(|w| w.bytes);
                        prop_assert!(first.is_none_or(|bytes| bytes > free));
                    }
                }
            }
            // With enough, all go.
            while let Some((ticket, _)) = queue.admit(u64::MAX, Duration::from_secs(1000), Duration::ZERO) {
                gone.push(ticket);
            }
            prop_assert_eq!(gone.len(), wants.len());
            prop_assert!(queue.is_empty());
        }

        /// Of owners that all have someone waiting, none is served twice before each was served once.
        #[test]
        fn turns_are_fair(each in 1usize..10) {
            let mut queue = Queue::default();
            for owner in ["a", "b", "c"] {
                for _ in 0..each * if owner == "a" { 5 } else { 1 } {
                    queue.push(want(owner, 0, 1));
                }
            }
            let order = drain(&mut queue, 1, 0);
            for round in order.chunks(3).take(each) {
                let owners: BTreeSet<&str> = round.iter().map(|(o, _)| o.as_str()).collect();
                prop_assert_eq!(owners.len(), 3);
            }
        }
    }
}
