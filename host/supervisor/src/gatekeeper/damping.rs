//! Domains that are woken soon after they were hibernated: that was for nothing, and cost more than it gave. Each time such a
//! domain is left alone for twice as long after its wake; one that sleeps long enough comes down again.

use std::time::Duration;

/// Most steps.
const MOST: u8 = 16;

/// How long a domain is left alone that has woken, after so many hibernations in a row that were for nothing; `first` without
/// any, `longest` at most.
#[must_use]
pub fn protection(level: u8, (first, longest): (Duration, Duration)) -> Duration {
    first.saturating_mul(1 << level.min(MOST)).min(longest.max(first))
}

/// Its level after it has slept for so long, and whether its hibernation was for nothing.
#[must_use]
pub fn woken(level: u8, slept: Duration, bounds: (Duration, Duration)) -> (u8, bool) {
    let worth = protection(level, bounds);
    if slept < worth {
        (level.saturating_add(1).min(MOST), true)
    } else if slept >= worth.saturating_mul(4) {
        (0, false)
    } else {
        (level.saturating_sub(1), false)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BOUNDS: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(600));

    #[test]
    fn who_is_woken_soon_is_left_alone_for_longer_each_time() {
        let mut level = 0;
        let mut left_alone = Vec::new();
        for _ in 0..8 {
            let thrashed;
            (level, thrashed) = woken(level, Duration::from_secs(1), BOUNDS);
            assert!(thrashed);
            left_alone.push(protection(level, BOUNDS).as_secs());
        }
        assert_eq!(left_alone, [20, 40, 80, 160, 320, 600, 600, 600]);
        assert_eq!(woken(level, Duration::from_secs(3600), BOUNDS), (0, false));
        assert_eq!(woken(3, Duration::from_secs(100), BOUNDS), (2, false));
    }

    proptest! {
        /// However it is woken, a domain that is always woken after `slept` hibernates less and less often, down to once in
        /// the longest protection.
        #[test]
        fn thrashing_dies_down(slept in 0u64..10) {
            let mut level = 0;
            let (mut now, mut hibernations) = (0, 0);
            while now < 36_000 {
                hibernations += 1;
                now += slept;
                (level, _) = woken(level, Duration::from_secs(slept), BOUNDS);
                now += protection(level, BOUNDS).as_secs();
            }
            prop_assert!(hibernations <= 5 + 36_000 / 600 + 1, "{hibernations}");
        }

        #[test]
        fn levels_stay_within_bounds(level: u8, slept in 0u64..u64::MAX / 2) {
            let (next, _) = woken(level, Duration::from_secs(slept), BOUNDS);
            prop_assert!(next <= MOST.max(level));
            prop_assert!(protection(next, BOUNDS) >= BOUNDS.0 && protection(next, BOUNDS) <= BOUNDS.1);
        }
    }
}
