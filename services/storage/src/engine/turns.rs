//! Whose request is next: batched round robin by weight.
//!
//! Each client has a clock, which goes on by the time that its requests take, divided by its weight. The one whose clock shows least
//! is next. One whose clock is ahead waits a moment for one that is behind and has had something to ask just now, so that a full
//! queue does not get in the way of who asks one thing after the other. A clock that stood is set to where the others are: nobody
//! saves for later.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::client::Client;

/// The usual weight.
const WEIGHT: u64 = 100;
/// So far ahead of another's clock a request may be begun, in nanoseconds.
const AHEAD: u64 = 200_000;
/// So long one that has nothing to ask is waited for, after its last request was answered.
const THINKS: Duration = Duration::from_micros(100);
/// So long one is waited for whose requests are at work: what takes longer waits for a device, and for nothing that others do.
const WORKS: Duration = Duration::from_millis(2);
/// One that has not asked for so long takes part no more.
const RESTS: Duration = Duration::from_millis(10);

/// A request that takes no longer is counted as it is, in nanoseconds.
const LEAST: u64 = 20_000;

/// A client's clock.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Clock {
    /// In nanoseconds.
    shows: u64,
    /// It takes part.
    pub active: bool,
}

/// What is known of who is compared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub place: usize,
    /// What its clock shows, with what is at work.
    pub shows: u64,
    /// Requests at work.
    working: u32,
    /// When it was last given or answered something.
    last: Instant,
}

impl Clock {
    /// It takes part from here on, with others whose clocks show at least `least`, or have shown that, if there are none now.
    pub fn begin(&mut self, least: u64) {
        self.active = true;
        self.shows = self.shows.max(least);
    }

    /// Takes what its client has used, and looks.
    pub fn look(&mut self, place: usize, client: &Client) -> Seen {
        let weight = u64::from(client.weight.load(Ordering::Relaxed)).max(1);
        let by_weight = |ns: u64| ns.saturating_mul(WEIGHT) / weight;
        self.shows += by_weight(client.pace.spent());
        let working = client.working();
        let shows = self.shows + by_weight(client.pace.mean().saturating_mul(working.into()));
        Seen { place, shows, working, last: client.pace.last() }
    }
}

impl Seen {
    /// It has had nothing to do for so long that it takes part no more.
    pub fn rests(&self, now: Instant) -> bool {
        self.working == 0 && now.saturating_duration_since(self.last) > RESTS
    }

    /// Whether it waits for `other`.
    pub fn waits_for(&self, other: &Self, now: Instant) -> bool {
        let patience = if other.working > 0 { WORKS } else { THINKS };
        other.shows + AHEAD < self.shows && now.saturating_duration_since(other.last) < patience
    }
}

/// How long a client's requests take.
#[derive(Debug)]
pub(crate) struct Pace {
    begun: Instant,
    spent: std::sync::atomic::AtomicU64,
    mean: std::sync::atomic::AtomicU64,
    last: std::sync::atomic::AtomicU64,
}

impl Default for Pace {
    fn default() -> Self {
        Self { begun: Instant::now(), spent: 0.into(), mean: 0.into(), last: 0.into() }
    }
}

impl Pace {
    fn touch(&self, now: Instant) {
        let since = now.saturating_duration_since(self.begun).as_nanos() as u64;
        self.last.store(since, Ordering::Relaxed);
    }

    /// A request is taken.
    pub fn begins(&self, now: Instant) {
        self.touch(now);
    }

    /// It took so long.
    pub fn ends(&self, now: Instant, took: Duration) {
        // Two threads at once: one of them counts.
        let mean = self.mean.load(Ordering::Relaxed);
        // One whose thread had no CPU meanwhile has not used what that took.
        let took = (took.as_nanos() as u64).min(LEAST.max(4 * mean));
        self.spent.fetch_add(took, Ordering::Relaxed);
        self.mean.store(mean - mean / 8 + took / 8, Ordering::Relaxed);
        self.touch(now);
    }

    fn spent(&self) -> u64 {
        self.spent.swap(0, Ordering::Relaxed)
    }

    fn mean(&self) -> u64 {
        self.mean.load(Ordering::Relaxed)
    }

    fn last(&self) -> Instant {
        self.begun + Duration::from_nanos(self.last.load(Ordering::Relaxed))
    }
}

/// Who takes part: shared by the engine and its clients.
pub(super) type Place = Option<(u64, Arc<Client>, Clock)>;

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(shows: u64, working: u32, last: Instant) -> Seen {
        Seen { place: 0, shows, working, last }
    }

    #[test]
    fn who_is_ahead_waits_a_moment_for_who_is_behind() {
        let now = Instant::now();
        let hog = seen(10 * AHEAD, 0, now);
        assert!(hog.waits_for(&seen(0, 0, now), now));
        assert!(hog.waits_for(&seen(0, 1, now), now + THINKS));
        assert!(!hog.waits_for(&seen(0, 0, now), now + THINKS), "it thinks too long");
        assert!(!hog.waits_for(&seen(0, 1, now), now + WORKS), "a device is slow");
        assert!(!hog.waits_for(&seen(10 * AHEAD, 1, now), now), "it is not behind");
    }

    #[test]
    fn a_clock_that_stood_saves_nothing() {
        let mut clock = Clock::default();
        clock.begin(500);
        assert_eq!(clock.shows, 500);
        clock.begin(300);
        assert_eq!(clock.shows, 500);
    }

    #[test]
    fn time_is_counted_by_weight() {
        let pace = Pace::default();
        pace.ends(Instant::now(), Duration::from_nanos(800));
        assert_eq!((pace.spent(), pace.spent(), pace.mean()), (800, 0, 100));
    }
}
