//! Whether a domain is idle: nothing was wanted of it and it did nothing, for as long as its rule says.
//!
//! It is looked at when its time comes, and not before: twice in its rule's time. So it is found idle when it has been for that time,
//! and at the latest half as long after that.

use std::time::Duration;

/// What it did so far in this run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// CPU time.
    pub cpu: Duration,
    /// Packets sent and received.
    pub packets: u64,
}

/// Up to what it counts as idle.
#[derive(Clone, Copy, Debug)]
pub struct Threshold {
    /// CPU time, in hundredths of a CPU.
    pub cpu_percent: f64,
    /// Packets.
    pub packets: u64,
}

impl Threshold {
    /// Whether that was work.
    #[must_use]
    pub fn is_above(&self, before: Counters, now: Counters, took: Duration) -> bool {
        let computed = now.cpu.saturating_sub(before.cpu);
        computed > took.mul_f64(self.cpu_percent / 100.0)
            || now.packets.saturating_sub(before.packets) > self.packets
    }
}

/// What a look at a domain says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// It has been idle for long enough.
    Idle,
    /// It is looked at again then.
    Again(Duration),
}

/// What is known of a domain's work. Times are since some moment, the same for all.
#[derive(Clone, Copy, Debug)]
pub struct Watch {
    after: Duration,
    /// It has not worked since, as far as is known.
    quiet_since: Duration,
    /// What it had done at some time since.
    seen: Counters,
    seen_at: Duration,
}

impl Watch {
    /// Of a run that begins `now`, and when to look first.
    #[must_use]
    pub fn begin(now: Duration, after: Duration) -> (Self, Duration) {
        let watch = Self { after, quiet_since: now, seen: Counters::default(), seen_at: now };
        (watch, now + after / 2)
    }

    /// Something was wanted of it.
    pub fn touch(&mut self, now: Duration) {
        self.quiet_since = self.quiet_since.max(now);
    }

    /// A look; `busy`: somebody uses it.
    pub fn look(&mut self, now: Duration, counters: Counters, busy: bool, threshold: Threshold) -> Look {
        if busy || threshold.is_above(self.seen, counters, now.saturating_sub(self.seen_at)) {
            self.work(now, counters);
        }
        let over = self.quiet_since + self.after;
        if now >= over { Look::Idle } else { Look::Again(over.min(now + self.after / 2)) }
    }

    /// It did not hibernate although it is idle: when to look again.
    pub fn put_off(&mut self, now: Duration, counters: Counters) -> Duration {
        self.work(now, counters);
        now + self.after / 2
    }

    fn work(&mut self, now: Duration, counters: Counters) {
        self.quiet_since = self.quiet_since.max(now);
        (self.seen, self.seen_at) = (counters, now);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const THRESHOLD: Threshold = Threshold { cpu_percent: 0.1, packets: 0 };

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// Plays a domain that works at these moments, each for 10 ms of CPU time; when it is found idle, and after how many looks.
    fn play(after: u64, work: &[u64], touches: &[u64]) -> (u64, u32) {
        let (mut watch, mut due) = Watch::begin(ms(0), ms(after));
        let mut told = 0;
        for looks in 1.. {
            let now = u64::try_from(due.as_millis()).unwrap();
            for t in touches.iter().filter(|t| (told..now).contains(t)) {
                watch.touch(ms(*t));
            }
            told = now;
            let done = work.iter().filter(|w| **w < now).count() as u64;
            let counters = Counters { cpu: ms(10 * done), packets: 0 };
            match watch.look(due, counters, false, THRESHOLD) {
                Look::Idle => return (now, looks),
                Look::Again(next) => {
                    assert!(next > due, "time goes on");
                    due = next;
                }
            }
        }
        unreachable!()
    }

    #[test]
    fn one_that_does_nothing_is_idle_when_its_time_has_come() {
        assert_eq!(play(1000, &[], &[]), (1000, 2));
        // A little is nothing: 10 ms in 100 s.
        assert_eq!(play(100_000, &[40_000], &[]), (100_000, 2));
        assert_eq!(play(1000, &[], &[400]).0, 1400);
    }

    #[test]
    fn who_is_used_is_not_idle() {
        let (mut watch, due) = Watch::begin(ms(0), ms(100));
        assert_eq!(due, ms(50));
        assert_eq!(watch.look(due, Counters::default(), true, THRESHOLD), Look::Again(ms(100)));
        let more = Counters { packets: 1, ..Counters::default() };
        assert_eq!(watch.look(ms(100), more, false, THRESHOLD), Look::Again(ms(150)));
        assert_eq!(watch.look(ms(150), more, false, THRESHOLD), Look::Again(ms(200)));
        assert_eq!(watch.look(ms(200), more, false, THRESHOLD), Look::Idle);
        assert_eq!(watch.put_off(ms(200), more), ms(250));
    }

    proptest! {
        /// Never before it was quiet for its time, and soon after; and there are not many looks.
        #[test]
        fn found_idle_in_time(
            work in prop::collection::vec(0u64..20_000, 0..20),
            touches in prop::collection::vec(0u64..20_000, 0..5),
        ) {
            let after = 2000;
            let (at, looks) = play(after, &work, &touches);
            // Work and touches after that are of the next time.
            let last = work.iter().chain(&touches).filter(|t| **t < at).max().copied().unwrap_or(0);
            prop_assert!(at >= last + after, "{at} {last}");
            prop_assert!(at <= last + after * 3 / 2, "{at} {last}");
            prop_assert!(u64::from(looks) <= 2 + 2 * at / after + touches.len() as u64, "{looks} looks until {at}");
        }
    }
}
