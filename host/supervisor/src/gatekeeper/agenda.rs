//! What is due when. What lapses meanwhile stays until its time, and is passed over then.

use std::collections::BTreeMap;
use std::time::Duration;

/// Things by the time at which they are due.
#[derive(Debug)]
pub struct Agenda<T> {
    next: u64,
    due: BTreeMap<(Duration, u64), T>,
}

impl<T> Default for Agenda<T> {
    fn default() -> Self {
        Self { next: 0, due: BTreeMap::new() }
    }
}

impl<T> Agenda<T> {
    /// One more; whether it is the first now.
    pub fn add(&mut self, at: Duration, what: T) -> bool {
        self.next += 1;
        let first = self.first().is_none_or(|first| at < first);
        self.due.insert((at, self.next), what);
        first
    }

    /// When the first is due.
    #[must_use]
    pub fn first(&self) -> Option<Duration> {
        self.due.first_key_value().map(|((at, _), _)| *at)
    }

    /// The next that is due by now.
    pub fn take(&mut self, now: Duration) -> Option<T> {
        let first = self.due.first_entry().filter(|first| first.key().0 <= now)?;
        Some(first.remove())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_the_order_of_time() {
        let s = Duration::from_secs;
        let mut agenda = Agenda::default();
        assert!(agenda.add(s(5), 'b') && !agenda.add(s(5), 'c') && agenda.add(s(1), 'a'));
        assert_eq!(agenda.first(), Some(s(1)));
        assert_eq!((agenda.take(s(0)), agenda.take(s(4)), agenda.take(s(4))), (None, Some('a'), None));
        assert_eq!((agenda.take(s(9)), agenda.take(s(9)), agenda.take(s(9))), (Some('b'), Some('c'), None));
        assert_eq!(agenda.first(), None);
    }
}
