//! CPU time that this host's own host gave to others, while its tasks ran or would have run (proc(5), `steal`).

use crate::limits::short_file::brief;

/// What was read last, in ticks.
#[derive(Debug, Default)]
pub(super) struct StealTime {
    last: Option<u64>,
}

impl StealTime {
    /// Seconds since it was asked last, of all CPUs together; none at first. It is counted in whole ticks, whose errors do
    /// not add up.
    pub fn more(&mut self) -> f64 {
        let Some(now) = brief("/proc/stat").and_then(|text| ticks(&text)) else {
            return 0.0;
        };
        let last = self.last.replace(now).unwrap_or(now);
        now.saturating_sub(last) as f64 / rustix::param::clock_ticks_per_second() as f64
    }
}

fn ticks(stat: &str) -> Option<u64> {
    stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace().nth(7)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_eighth_field() {
        assert_eq!(ticks("cpu  10 20 30 40 50 60 70 80 90 100\ncpu0 1 2\n"), Some(80));
        assert_eq!(ticks("cpu  10 20 30 40\n"), None);
        assert_eq!(ticks(""), None);
    }

    #[test]
    fn counts_from_the_first_time() {
        assert_eq!(StealTime::default().more(), 0.0);
        let before = StealTime { last: Some(0) }.more();
        assert!(before >= 0.0 && StealTime { last: Some(0) }.more() >= before);
    }
}
