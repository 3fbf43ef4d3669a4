//! Whose request is next: batched round robin by weight.
//!
//! Each client has two clocks, which go on by the time that its requests take, divided by its weight: one for what the service's threads
//! do, and one for what waits for a device. Who waits for a device takes nothing from who does not: clocks are compared each
//! with its like, among clients that use it just now. The client that has had least of the threads is next: what waits for a device takes
//! next to nothing of these. One that is ahead waits a moment for one that is behind and has had something to ask just now, so that a full
//! queue does not get in the way of who asks one thing after the other. A clock that stood is set to where the others are: nobody
//! saves for later.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use doppel_abi_service::storage::Request;

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

/// One for each of [`Takes`].
pub(super) type Each<T> = [T; 2];

/// What a request takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Takes {
    /// A thread's time.
    Work,
    /// A device's: a thread waits meanwhile.
    Device,
}

impl Takes {
    /// As far as it can be told before.
    pub fn of(request: &Request) -> Self {
        if request.is_synced() || request.is_direct() { Self::Device } else { Self::Work }
    }
}

/// A client's clocks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Clock {
    /// In nanoseconds.
    shows: Each<u64>,
    /// They go on just now.
    runs: Each<bool>,
    /// It takes part.
    pub active: bool,
}

/// What is known of who is compared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub place: usize,
    /// What its clocks show, with what is at work.
    pub shows: Each<u64>,
    /// Requests at work.
    working: Each<u32>,
    /// When it was last given or answered something.
    last: Each<Instant>,
}

impl Clock {
    /// It takes part from here on, with others whose clocks show at least `least`, or have shown that, if there are none now.
    pub fn begin(&mut self, least: Each<u64>) {
        self.active = true;
        for (shows, least) in self.shows.iter_mut().zip(least) {
            *shows = least.max(*shows);
        }
    }

    /// What of it goes on, by what is seen; one that goes on again does so from `least` on. Who `asks` and is let wait does not rest: its
    /// clock would be set to where the others are, and weights would be none.
    pub fn run(&mut self, seen: &Seen, asks: bool, least: Each<u64>, now: Instant) {
        for (i, least) in least.into_iter().enumerate() {
            let runs = !seen.stands(i, now) || asks && self.runs[i];
            if runs && !self.runs[i] {
                self.shows[i] = self.shows[i].max(least);
            }
            self.runs[i] = runs;
        }
    }

    /// Whether each of them has gone on at the last look.
    pub fn runs(&self) -> Each<bool> {
        self.runs
    }

    /// Takes what its client has used, and looks.
    pub fn look(&mut self, place: usize, client: &Client) -> Seen {
        self.look_at(place, &client.pace, client.weight.load(Ordering::Relaxed))
    }

    fn look_at(&mut self, place: usize, pace: &Pace, weight: u32) -> Seen {
        let weight = u64::from(weight).max(1);
        let by_weight = |ns: u64| ns.saturating_mul(WEIGHT) / weight;
        let mut seen = Seen { place, shows: [0; 2], working: [0; 2], last: [Instant::now(); 2] };
        for (i, part) in pace.parts.iter().enumerate() {
            self.shows[i] += by_weight(part.spent());
            seen.working[i] = part.working.load(Ordering::Relaxed);
            seen.shows[i] = self.shows[i] + by_weight(part.mean().saturating_mul(seen.working[i].into()));
            seen.last[i] = pace.begun + Duration::from_nanos(part.last.load(Ordering::Relaxed));
        }
        seen
    }
}

impl Seen {
    /// It has had nothing to do for so long that it takes part no more.
    pub fn rests(&self, now: Instant) -> bool {
        (0..self.shows.len()).all(|i| self.stands(i, now))
    }

    fn stands(&self, i: usize, now: Instant) -> bool {
        self.working[i] == 0 && now.saturating_duration_since(self.last[i]) > RESTS
    }

    /// What it has had of the threads.
    pub fn work(&self) -> u64 {
        self.shows[Takes::Work as usize]
    }

    fn all(&self) -> u64 {
        self.shows.iter().fold(0, |all, shows| all.saturating_add(*shows))
    }

    /// Whether it waits for `other`. Of two that are ahead of each other, each in its kind, that which has had more in all does.
    pub fn waits_for(&self, other: &Self, now: Instant) -> bool {
        self.is_ahead_of(other, now) && (!other.is_ahead_of(self, now) || self.all() > other.all())
    }

    fn is_ahead_of(&self, other: &Self, now: Instant) -> bool {
        (0..self.shows.len()).any(|i| {
            let patience = if other.working[i] > 0 { WORKS } else { THINKS };
            other.shows[i] + AHEAD < self.shows[i] && now.saturating_duration_since(other.last[i]) < patience
        })
    }
}

/// How long a client's requests take.
#[derive(Debug)]
pub(crate) struct Pace {
    begun: Instant,
    parts: Each<Part>,
}

/// Of requests of a kind.
#[derive(Debug, Default)]
struct Part {
    spent: AtomicU64,
    mean: AtomicU64,
    /// When one was last begun or ended.
    last: AtomicU64,
    working: AtomicU32,
}

impl Default for Pace {
    fn default() -> Self {
        Self { begun: Instant::now(), parts: Each::default() }
    }
}

impl Pace {
    /// When this is, for what is noted of one kind.
    fn at(&self, takes: Takes, now: Instant) -> &Part {
        let part = &self.parts[takes as usize];
        part.last.store(now.saturating_duration_since(self.begun).as_nanos() as u64, Ordering::Relaxed);
        part
    }

    /// A request is taken.
    pub fn begins(&self, takes: Takes, now: Instant) {
        self.at(takes, now).working.fetch_add(1, Ordering::Relaxed);
    }

    /// One waits for a device that was taken then, for work as it was thought: what it has taken of a thread so far is work all the same.
    pub fn waits(&self, before: Takes, begun: Instant) {
        let now = Instant::now();
        let work = &self.parts[Takes::Work as usize];
        let took = now.saturating_duration_since(begun).as_nanos() as u64;
        work.spent.fetch_add(took.min(LEAST), Ordering::Relaxed);
        if before == Takes::Work {
            work.working.fetch_sub(1, Ordering::Relaxed);
            self.begins(Takes::Device, now);
        }
    }

    /// It took so long; none: nobody is told.
    pub fn ends(&self, takes: Takes, now: Instant, took: Option<Duration>) {
        let part = self.at(takes, now);
        if let Some(took) = took {
            part.spends(took);
        }
        part.working.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Part {
    fn spends(&self, took: Duration) {
        // Two threads at once: one of them counts.
        let mean = self.mean();
        // One whose thread had no CPU meanwhile has not used what that took.
        let took = (took.as_nanos() as u64).min(LEAST.max(4 * mean));
        self.spent.fetch_add(took, Ordering::Relaxed);
        self.mean.store(mean - mean / 8 + took / 8, Ordering::Relaxed);
    }

    fn spent(&self) -> u64 {
        self.spent.swap(0, Ordering::Relaxed)
    }

    fn mean(&self) -> u64 {
        self.mean.load(Ordering::Relaxed)
    }
}

/// Who takes part: shared by the engine and its clients.
pub(super) type Place = Option<(u64, Arc<Client>, Clock)>;

#[cfg(test)]
mod tests {
    use super::*;

    /// One whose clock of this kind shows so much.
    fn seen(takes: Takes, shows: u64, working: u32, last: Instant) -> Seen {
        let long_ago = last.checked_sub(Duration::from_secs(1)).unwrap();
        let mut seen = Seen { place: 0, shows: [0; 2], working: [0; 2], last: [long_ago; 2] };
        let i = takes as usize;
        (seen.shows[i], seen.working[i], seen.last[i]) = (shows, working, last);
        seen
    }

    #[test]
    fn who_is_ahead_waits_a_moment_for_who_is_behind() {
        let now = Instant::now();
        for takes in [Takes::Work, Takes::Device] {
            let seen = |shows, working, last| seen(takes, shows, working, last);
            let hog = seen(10 * AHEAD, 0, now);
            assert!(hog.waits_for(&seen(0, 0, now), now));
            assert!(hog.waits_for(&seen(0, 1, now), now + THINKS));
            assert!(!hog.waits_for(&seen(0, 0, now), now + THINKS), "it thinks too long");
            assert!(!hog.waits_for(&seen(0, 1, now), now + WORKS), "a device is slow");
            assert!(!hog.waits_for(&seen(10 * AHEAD, 1, now), now), "it is not behind");
        }
    }

    #[test]
    fn who_waits_for_a_device_does_not_wait_for_who_works() {
        let now = Instant::now();
        let (database, hog) = (seen(Takes::Device, 1000 * AHEAD, 4, now), seen(Takes::Work, AHEAD, 1, now));
        assert!(database.work() < hog.work() && !database.waits_for(&hog, now));
        // Each uses both, and is ahead in one: one of them goes on.
        let (mut a, mut b) = (seen(Takes::Device, 10 * AHEAD, 1, now), seen(Takes::Work, 5 * AHEAD, 1, now));
        (a.last, b.last) = ([now; 2], [now; 2]);
        assert!(a.waits_for(&b, now) && !b.waits_for(&a, now));
    }

    #[test]
    fn a_clock_that_stood_saves_nothing() {
        let now = Instant::now();
        let mut clock = Clock::default();
        clock.begin([500, 100]);
        assert_eq!(clock.shows, [500, 100]);
        clock.begin([300, 200]);
        assert_eq!(clock.shows, [500, 200]);
        // It works, and begins to ask for a device that others have used meanwhile.
        clock.run(&seen(Takes::Work, 500, 1, now), false, [600, 900], now);
        assert_eq!((clock.shows, clock.runs()), ([600, 200], [true, false]));
        clock.run(&seen(Takes::Device, 200, 1, now), false, [700, 900], now);
        assert_eq!((clock.shows, clock.runs()), ([600, 900], [false, true]));
        // It is let wait for longer than those rest who have nothing to ask.
        clock.run(&seen(Takes::Work, 500, 0, now), true, [700, 950], now + 2 * RESTS);
        assert_eq!((clock.shows, clock.runs()), ([600, 900], [false, true]));
    }

    #[test]
    fn time_is_counted_by_weight_and_kind() {
        let (pace, now) = (Pace::default(), Instant::now());
        let spent = |pace: &Pace| [pace.parts[0].spent(), pace.parts[1].spent()];
        let working = |pace: &Pace| [0, 1].map(|i| pace.parts[i].working.load(Ordering::Relaxed));
        pace.begins(Takes::Work, now);
        pace.begins(Takes::Work, now);
        pace.waits(Takes::Work, now);
        assert_eq!(working(&pace), [1, 1]);
        pace.ends(Takes::Device, now, Some(Duration::from_nanos(800)));
        pace.ends(Takes::Work, now, None);
        let [work, device] = spent(&pace);
        assert!(device == 800 && work <= LEAST, "{work} for the thread that gave it away");
        assert_eq!((working(&pace), pace.parts[1].mean()), ([0, 0], 100));
        assert_eq!(spent(&pace), [0, 0]);
    }

    /// A client in a trial without threads: times are nanoseconds since the trial began.
    struct Trial {
        pace: Pace,
        clock: Clock,
        takes: Takes,
        /// How long a request takes, and how long each of its threads thinks before the next one.
        request: u64,
        thinks: u64,
        /// When each of its threads asks next.
        asks: Vec<u64>,
        /// Those under way: until when.
        ends: Vec<u64>,
        done: u64,
    }

    fn trial(takes: Takes, threads: usize, request: u64, thinks: u64) -> Trial {
        let (asks, ends) = (vec![0; threads], Vec::new());
        Trial { pace: Pace::default(), clock: Clock::default(), takes, request, thinks, asks, ends, done: 0 }
    }

    /// One thread gives out requests for a second, by turns, and does those itself that wait for no device; how many of each are done.
    fn served<const N: usize>(mut clients: [Trial; N]) -> [u64; N] {
        let begun = Instant::now();
        clients.iter_mut().for_each(|client| client.pace.begun = begun);
        let mut busy = 0;
        for ns in (0..1_000_000_000).step_by(1000) {
            let now = begun + Duration::from_nanos(ns);
            for client in &mut clients {
                let ended = client.ends.iter().filter(|end| **end <= ns).count();
                client.ends.retain(|end| *end > ns);
                for _ in 0..ended {
                    client.pace.ends(client.takes, now, Some(Duration::from_nanos(client.request)));
                    client.asks.push(ns + client.thinks);
                    client.done += 1;
                }
            }
            if ns < busy {
                continue;
            }
            let seen = clients.iter_mut().enumerate();
            let mut order: Vec<Seen> =
                seen.map(|(place, client)| client.clock.look_at(place, &client.pace, 100)).collect();
            order.sort_unstable_by_key(Seen::work);
            let may = |seen: &&Seen| !order.iter().any(|other| seen.waits_for(other, now));
            for seen in order.iter().filter(may) {
                let client = &mut clients[seen.place];
                if let Some(ready) = client.asks.iter().position(|asks| *asks <= ns) {
                    client.asks.swap_remove(ready);
                    client.pace.begins(client.takes, now);
                    client.ends.push(ns + client.request);
                    busy = if client.takes == Takes::Work { ns + client.request } else { busy };
                    break;
                }
            }
        }
        clients.map(|client| client.done)
    }

    #[test]
    fn a_database_that_syncs_loses_little_beside_who_does_not() {
        let database = |sync| trial(Takes::Device, 4, sync, 100_000);
        for sync in [200_000, 1_000_000, 3_000_000] {
            let [alone] = served([database(sync)]);
            // Names one after the other, and large writes, two at a time.
            for hog in [trial(Takes::Work, 1, 30_000, 20_000), trial(Takes::Work, 2, 60_000, 10_000)] {
                let most = 1_000_000_000 / (hog.request + hog.thinks) * hog.asks.len() as u64;
                let [beside, hogs] = served([database(sync), hog]);
                assert!(beside * 100 >= alone * 95, "{beside} of {alone}");
                assert!(hogs * 2 > most, "{hogs}: the other one is not kept from work");
            }
        }
    }

    #[test]
    fn two_that_work_have_half_each() {
        let [one, many] = served([trial(Takes::Work, 1, 30_000, 20_000), trial(Takes::Work, 8, 30_000, 0)]);
        assert!(one * 10 > many * 8, "{one} and {many}");
    }
}
