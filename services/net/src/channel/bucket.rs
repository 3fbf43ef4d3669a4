//! A token bucket.

use std::time::{Duration, Instant};

/// Least bytes that may go at once where bytes are limited.
const PIECE: f64 = 65_536.0;
/// The part of a second's bytes that may go at once, if that is more.
const BURST: f64 = 0.1;

/// So many tokens a second, of which those of some time may wait to be used.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    rate: f64,
    most: f64,
    tokens: f64,
    filled: Instant,
}

impl Bucket {
    /// Full: the tokens of a second. `rate` is more than 0.
    pub fn new(rate: u32, now: Instant) -> Self {
        let rate = f64::from(rate.max(1));
        Self { rate, most: rate, tokens: rate, filled: now }
    }

    /// Full, for bytes.
    pub fn of_bytes(rate: u64, now: Instant) -> Self {
        // Far below what a float is exact for, or of no consequence.
        #[allow(clippy::cast_precision_loss, reason = "as said")]
        let rate = rate.max(1) as f64;
        let most = (rate * BURST).max(PIECE);
        Self { rate, most, tokens: most, filled: now }
    }

    fn fill(&mut self, now: Instant) {
        let passed: Duration = now.saturating_duration_since(self.filled);
        self.filled = self.filled.max(now);
        self.tokens = (self.tokens + passed.as_secs_f64() * self.rate).min(self.most);
    }

    /// Takes a token if there is one.
    pub fn take(&mut self, now: Instant) -> bool {
        self.fill(now);
        let there = self.tokens >= 1.0;
        if there {
            self.tokens -= 1.0;
        }
        there
    }

    /// Tokens that are there now; none while they are few, or each would be spent by a call of its own.
    pub fn level(&mut self, now: Instant) -> usize {
        self.fill(now);
        if self.tokens < self.most / 8.0 {
            return 0;
        }
        // Never more than `most`, and nothing below 0.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as said")]
        let level = self.tokens as usize;
        level
    }

    /// Takes more than there may be: the rest is owed.
    pub fn spend(&mut self, tokens: usize) {
        #[allow(clippy::cast_precision_loss, reason = "bytes of one call")]
        let tokens = tokens as f64;
        self.tokens -= tokens;
    }

    /// When a good part of them is there again, at the earliest at once.
    pub fn ready(&self) -> Instant {
        let missing = (self.most / 4.0 - self.tokens).max(0.0);
        self.filled + Duration::try_from_secs_f64(missing / self.rate).unwrap_or(Duration::from_secs(3600))
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

    #[test]
    fn bytes_are_owed_until_they_are_paid() {
        let now = Instant::now();
        let mut b = Bucket::of_bytes(1_000_000, now);
        assert_eq!(b.level(now), 100_000);
        assert_eq!(b.ready(), now);
        b.spend(200_000);
        assert_eq!(b.level(now), 0);
        assert_eq!(b.ready(), now + Duration::from_millis(125));
        assert_eq!(b.level(now + Duration::from_millis(125)), 25_000);
        b.spend(25_000 - 12_499);
        assert_eq!(b.level(now + Duration::from_millis(125)), 0);
        // A small rate has room for a datagram.
        assert_eq!(Bucket::of_bytes(1000, now).level(now), 65_536);
    }
}
