//! How long the arbiter rests between looks, so that they take no more than a part of a CPU's time, those of all of the host's
//! arbiters together: each has of it what its domains have of the time of all domains. Ten thousand domains have forty keepers.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Looks may take this part of the time, moving tasks aside.
const PART: u32 = 50;
/// Domains that use nearly nothing may need to be looked at all the more.
const LEAST_SHARE: f64 = 1.0 / 64.0;
/// How much a look counts in the average of shares.
const RECENT: f64 = 0.2;

/// What the last look took, and the part that this process' domains have of the CPU time of all.
#[derive(Debug)]
pub(super) struct Pacing {
    last: Duration,
    share: f64,
}

impl Default for Pacing {
    fn default() -> Self {
        Self { last: Duration::ZERO, share: 1.0 }
    }
}

impl Pacing {
    /// This process' domains used so many CPUs, all of the host so many.
    pub fn used(&mut self, own: f64, all: f64) {
        if all > 0.0 && all.is_finite() {
            self.share += RECENT * ((own / all).min(1.0) - self.share);
        }
    }

    /// How long to rest, at least, after a look that took so much CPU time. A single long one says nothing: what the
    /// machine's own host takes from this one counts as the thread's, and can be a tenth of a second.
    pub fn rest(&mut self, took: Duration) -> Duration {
        let usual = took.min(std::mem::replace(&mut self.last, took));
        (usual * PART).div_f64(self.share.max(LEAST_SHARE))
    }
}

/// CPU time of the calling thread: waits for the kernel's locks, which domains can prolong, are none of its effort.
pub(super) fn spent() -> Duration {
    let spent = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(spent.tv_sec.unsigned_abs(), u32::try_from(spent.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_long_look_is_no_reason_to_rest() {
        let [short, long] = [1, 90].map(Duration::from_millis);
        let mut pacing = Pacing::default();
        let rests: Vec<_> = [short, long, short, long, long].map(|took| pacing.rest(took)).into();
        assert_eq!(rests, [Duration::ZERO, short * PART, short * PART, short * PART, long * PART]);
    }

    #[test]
    fn forty_arbiters_take_no_more_than_one() {
        let took = Duration::from_millis(1);
        let mut pacing = Pacing::default();
        for _ in 0..100 {
            pacing.used(0.05, 2.0);
            pacing.rest(took);
        }
        let rest = pacing.rest(took);
        assert!((rest.as_secs_f64() - (took * PART * 40).as_secs_f64()).abs() < 1e-3, "{rest:?}");
        // Nobody rests for ever, and those who have all do not rest for others.
        for (own, longest) in [(0.0, took * PART * 64), (2.0, took * PART)] {
            for _ in 0..100 {
                pacing.used(own, 2.0);
            }
            let rest = pacing.rest(took);
            assert!(rest.abs_diff(longest) < Duration::from_micros(100), "{rest:?}");
        }
        pacing.used(0.0, 0.0);
        assert!(pacing.rest(took).abs_diff(took * PART) < Duration::from_micros(100));
    }

    #[test]
    fn waiting_is_no_effort() {
        let (before, waits) = (spent(), Duration::from_millis(50));
        std::thread::sleep(waits);
        let waited = spent() - before;
        assert!(waited < waits / 2, "{waited:?}");
        // A machine that is too slow to get there fails by its time limit.
        while spent() - before < waits {
            std::hint::spin_loop();
        }
    }
}
