//! How long the arbiter rests between looks, so that they take no more than a part of a CPU's time.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Looks may take this part of the time, moving tasks aside.
const PART: u32 = 50;

/// What the last look took.
#[derive(Debug, Default)]
pub(super) struct Pacing {
    last: Duration,
}

impl Pacing {
    /// How long to rest, at least, after a look that took so much CPU time. A single long one says nothing: what the
    /// machine's own host takes from this one counts as the thread's, and can be a tenth of a second.
    pub fn rest(&mut self, took: Duration) -> Duration {
        took.min(std::mem::replace(&mut self.last, took)) * PART
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
