//! What the arbiter has read of a domain last. Of one that does nothing it reads less and less often: thousands that are idle cost
//! next to nothing.

use std::time::Instant;

use super::waiting::Waiting;
use crate::limits::rests::Rests;

/// Most looks in a row at which nothing is read of a domain that does nothing.
const MOST_SKIPPED: u32 = 15;

/// What was read of a domain's group last.
#[derive(Debug)]
pub(super) struct Record {
    /// CPU time in nanoseconds, and when it was read.
    used: u64,
    read: Instant,
    rests: Rests<2, MOST_SKIPPED>,
    pub waiting: Waiting,
}

impl Record {
    pub fn new(used: u64, read: Instant) -> Self {
        Self { used, read, rests: Rests::default(), waiting: Waiting::default() }
    }

    /// How many CPUs it has used since it was read last.
    pub fn enter(&mut self, used: u64, now: Instant) -> f64 {
        let seconds = (now - std::mem::replace(&mut self.read, now)).as_secs_f64();
        let more = used.saturating_sub(std::mem::replace(&mut self.used, used)) as f64 / 1e9;
        if seconds > 0.0 { more / seconds } else { 0.0 }
    }

    /// Whether it is not read at this look.
    pub fn is_skipped(&mut self) -> bool {
        self.rests.skips()
    }

    /// It does nothing, or does: the longer it does nothing, the more looks pass without it.
    pub fn rests(&mut self, nothing: bool) {
        self.rests.looked(!nothing);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn whoever_does_nothing_is_read_less_and_less_often() {
        let begin = Instant::now();
        let mut record = Record::new(0, begin);
        let mut read = Vec::new();
        for look in 0..40 {
            if !record.is_skipped() {
                read.push(look);
                record.rests(true);
            }
        }
        assert_eq!(read, [0, 2, 6, 14, 30]);
        // What it uses is of all the time since then.
        assert_eq!(record.enter(500_000_000, begin + Duration::from_secs(1)), 0.5);
        record.rests(false);
        assert!(!record.is_skipped());
    }
}
