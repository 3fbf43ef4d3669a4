//! A token bucket.

use std::time::{Duration, Instant};

/// So many tokens a second, of which those of one second may wait to be used.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    rate: f64,
    tokens: f64,
    filled: Instant,
}

impl Bucket {
    /// Full. `rate` is more than 0.
    pub fn new(rate: u32, now: Instant) -> Self {
        let rate = f64::from(rate.max(1));
        Self { rate, tokens: rate, filled: now }
    }

    /// Takes a token if there is one.
    pub fn take(&mut self, now: Instant) -> bool {
        let passed: Duration = now.saturating_duration_since(self.filled);
        self.filled = self.filled.max(now);
        self.tokens = (self.tokens + passed.as_secs_f64() * self.rate).min(self.rate);
        let there = self.tokens >= 1.0;
        if there {
            self.tokens -= 1.0;
        }
        there
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_is_saved_and_no_more() {
        let now = Instant::now();
        let mut b = Bucket::new(10, now);
        let mut taken = |at: Duration| (0..100).filter(|_| b.take(now + at)).count();
        assert_eq!(taken(Duration::ZERO), 10);
        assert_eq!(taken(Duration::from_millis(250)), 2);
        assert_eq!(taken(Duration::from_millis(300)), 1);
        assert_eq!(taken(Duration::from_secs(100)), 10);
        // A clock that goes back gives nothing.
        assert_eq!(taken(Duration::ZERO), 0);
    }
}
