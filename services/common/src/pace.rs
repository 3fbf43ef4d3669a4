//! Whether a service domain that has nothing to do looks again at once, or sleeps.
//!
//! To wake a process through the host costs microseconds on both sides; one that looks at its rings sees news at once, and
//! nobody needs to ring for it. It pays if news come soon, and only while nobody else needs the CPU: so a service domain
//! polls for a short while after it had something to do, if that was of use lately, and at most half of all time.

use std::time::{Duration, Instant};

/// How long after the last work it polls: about what a sleep and a wake-up cost the three who take part in a call.
const WINDOW: Duration = Duration::from_micros(50);
/// A sleep up to this would have been a poll that pays: it has two wake-ups in it.
const SHORT: Duration = Duration::from_micros(150);
/// Two looks are closer together than this, unless somebody else had the CPU between them.
const STOLEN: Duration = Duration::from_micros(100);
/// What it may poll in one go if it has not polled for long.
const CREDIT: Duration = Duration::from_millis(10);
/// Two to this power are the short sleeps that make up for polls in vain.
const DISTRUST_MAX: u8 = 9;
/// Polls of use that make up for one in vain.
const FORGIVE: u8 = 16;

/// Nobody polls whose starter has this in its environment: to measure what polls are worth (docs/services.md).
const NO_POLLING: &str = "DOPPEL_NO_POLLING";

/// Whether service domains and guest kernels that this process starts may poll.
#[must_use]
pub fn may_poll() -> bool {
    std::env::var_os(NO_POLLING).is_none_or(|v| v.is_empty() || v == "0")
}

/// When to poll, from how it went before.
#[derive(Debug)]
pub struct Pace {
    open: bool,
    never: bool,
    /// Polls in vain, less those that were long made up for.
    distrust: u8,
    /// Short sleeps since it stopped polling, or polls of use since `distrust` last fell.
    good: u16,
    /// Since when it polls, and its last look.
    polling: Option<(Instant, Instant)>,
    /// How long it may still poll, and since when that has not been reckoned.
    credit: Duration,
    reckoned: Instant,
}

impl Pace {
    /// Sleeps at first.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self { open: false, never: false, distrust: 0, good: 0, polling: None, credit: CREDIT, reckoned: now }
    }

    /// Always sleeps.
    #[must_use]
    pub fn without_polls(now: Instant) -> Self {
        Self { never: true, ..Self::new(now) }
    }

    /// Nothing is to be done: whether to look again at once. `crowded`: somebody else needs the CPU.
    pub fn polls(&mut self, now: Instant, crowded: impl FnOnce() -> bool) -> bool {
        if !self.open || crowded() {
            self.end(now);
            return false;
        }
        let (since, last) = self.polling.get_or_insert((now, now));
        if now - *last > STOLEN || now - *since > WINDOW || now - *since > self.credit {
            self.end(now);
            (self.open, self.good) = (false, 0);
            self.distrust = (self.distrust + 1).min(DISTRUST_MAX);
            return false;
        }
        *last = now;
        true
    }

    /// Something is to be done.
    pub fn works(&mut self, now: Instant) {
        if self.end(now) && self.distrust > 0 {
            self.good += 1;
            if self.good >= FORGIVE.into() {
                (self.good, self.distrust) = (0, self.distrust - 1);
            }
        }
    }

    /// It has slept from `begun` until something was to be done.
    pub fn slept(&mut self, begun: Instant, now: Instant) {
        if !self.open && !self.never && now - begun <= SHORT {
            self.good += 1;
            if self.good >= 1 << self.distrust {
                (self.open, self.good) = (true, 0);
            }
        }
    }

    /// Reckons a poll that is over; false if there was none.
    fn end(&mut self, now: Instant) -> bool {
        let Some((since, _)) = self.polling.take() else { return false };
        self.credit = (self.credit + (now - self.reckoned) / 2).min(CREDIT).saturating_sub(now - since);
        self.reckoned = now;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    /// A pace that polls, and its time.
    fn open() -> (Pace, Instant) {
        let begun = Instant::now();
        let mut p = Pace::new(begun);
        assert!(!p.polls(begun, || false), "nothing is known yet");
        p.slept(begun, begun + 20 * US);
        (p, begun + 20 * US)
    }

    #[test]
    fn short_sleeps_make_it_poll_for_a_while() {
        let (mut p, mut now) = open();
        let begun = now;
        while p.polls(now, || false) {
            now += US;
        }
        assert_eq!(now - begun, WINDOW + US);
        assert!(!p.polls(now, || false), "it was in vain");
        p.slept(now, now + SHORT);
        assert!(!p.polls(now + SHORT, || false), "once in vain: two short sleeps");
        p.slept(now, now + SHORT);
        assert!(p.polls(now + SHORT, || false));
    }

    #[test]
    fn without_polls_it_always_sleeps() {
        let begun = Instant::now();
        let mut p = Pace::without_polls(begun);
        for _ in 0..1000 {
            p.slept(begun, begun + 10 * US);
            assert!(!p.polls(begun + 20 * US, || false));
        }
    }

    #[test]
    fn a_long_sleep_says_nothing_for_polling() {
        let now = Instant::now();
        let mut p = Pace::new(now);
        p.slept(now, now + SHORT + US);
        assert!(!p.polls(now + SHORT + US, || false));
    }

    #[test]
    fn whoever_needs_the_cpu_ends_it() {
        let (mut p, now) = open();
        assert!(!p.polls(now, || true));
        assert!(p.polls(now, || false) && p.polls(now + US, || false));
        assert!(!p.polls(now + US + STOLEN + US, || false));
    }

    #[test]
    fn it_polls_at_most_half_of_all_time() {
        let (mut p, begun) = open();
        let (mut now, mut polled) = (begun, Duration::ZERO);
        for _ in 0..100_000 {
            if p.polls(now, || false) {
                now += 40 * US;
                polled += 40 * US;
                assert!(p.polls(now, || false) || !p.open);
                p.works(now);
            } else {
                p.slept(now, now + US);
            }
            now += US;
        }
        assert!(polled <= (now - begun) / 2 + 2 * CREDIT, "{polled:?} of {:?}", now - begun);
    }
}
