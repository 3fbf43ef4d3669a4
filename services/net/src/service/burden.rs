//! What a domain burdens the service with: datagrams it sends, sockets it makes and gives up, what it leaves at its end.
//!
//! These cost the service and the host much more than whoever asks for them, and nothing slows that one down: its datagrams are lost
//! where they find no room. Bytes of streams, and all that comes to a domain, cost both sides alike. So while the host has no CPU
//! left and others move theirs, a domain's burden is a part of the service's time, less than what they would notice, and the rest waits.
//! A domain that asks for less than that never does.

use std::time::{Duration, Instant};

/// Hundredths of the time that what ended domains have left may take.
pub(crate) const LEFT: u8 = 5;
/// What may be done at once by who has not done any for a while.
const BURST: Duration = Duration::from_millis(1);
/// What may be done after a wait, so that a wait is some milliseconds long.
const STEP: Duration = Duration::from_micros(125);
/// Most that is charged at once: who was kept waiting for a CPU does not pay for that.
const MOST: Duration = Duration::from_micros(250);

/// Of one domain.
#[derive(Debug)]
pub(crate) struct Burden {
    /// Its part of the time in hundredths.
    percent: u32,
    /// Time that was used and has not passed by in its part.
    owed: Duration,
    reckoned: Instant,
    /// It waits until then.
    until: Option<Instant>,
}

impl Burden {
    pub fn new(percent: u8, now: Instant) -> Self {
        Self { percent: percent.clamp(1, 100).into(), owed: Duration::ZERO, reckoned: now, until: None }
    }

    /// Whether more may be done now. `strained`: others would notice.
    pub fn may(&mut self, now: Instant, strained: impl FnOnce() -> bool) -> bool {
        if self.until.is_some_and(|until| now < until) {
            return false;
        }
        self.until = None;
        self.owed =
            self.owed.saturating_sub(now.saturating_duration_since(self.reckoned) / 100 * self.percent);
        self.reckoned = now;
        if self.owed < BURST {
            return true;
        }
        if !strained() {
            self.owed = BURST;
            return true;
        }
        // What it has overdrawn it waits for as well.
        self.until = Some(now + (self.owed - BURST + STEP) * 100 / self.percent);
        false
    }

    /// When more may be done, if it waits.
    pub fn waits(&self) -> Option<Instant> {
        self.until
    }

    /// So much time was used.
    pub fn used(&mut self, time: Duration) {
        self.owed += time.min(MOST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    /// How long it works in a second of which it would use all.
    fn works(strained: bool) -> Duration {
        let begun = Instant::now();
        let (mut b, mut now, mut done) = (Burden::new(LEFT, begun), begun, Duration::ZERO);
        while now < begun + Duration::from_secs(1) {
            if b.may(now, || strained) {
                b.used(10 * US);
                done += 10 * US;
                now += 10 * US;
            } else {
                now = b.waits().unwrap();
            }
        }
        done
    }

    #[test]
    fn it_is_a_part_of_the_time_while_others_notice() {
        let done = works(true);
        assert!(done > Duration::from_millis(45) && done < Duration::from_millis(55), "{done:?}");
        assert_eq!(works(false), Duration::from_secs(1));
    }

    #[test]
    fn who_asks_for_less_never_waits() {
        let begun = Instant::now();
        let mut b = Burden::new(LEFT, begun);
        for n in 0..100_000 {
            assert!(b.may(begun + n * 200 * US, || true));
            b.used(9 * US);
        }
    }
}
