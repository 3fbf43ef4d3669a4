//! Histograms in Prometheus' text format.

use std::fmt::Write as _;
use std::time::Duration;

/// How often something took how long; `bounds` are upper bounds of its buckets in seconds.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    bounds: &'static [f64],
    buckets: Vec<u64>,
    seconds: f64,
    count: u64,
}

impl Histogram {
    pub fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, buckets: vec![0; bounds.len()], seconds: 0.0, count: 0 }
    }

    /// Notes one.
    pub fn note(&mut self, took: Duration) {
        let seconds = took.as_secs_f64();
        if let Some(at) = self.bounds.iter().position(|b| seconds <= *b) {
            self.buckets[at] += 1;
        }
        self.seconds += seconds;
        self.count += 1;
    }

    /// How many were noted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Its lines, as metric `name` with these labels.
    pub fn write(&self, text: &mut String, name: &str, labels: &str) {
        let mut sum = 0;
        for (bound, n) in self.bounds.iter().zip(&self.buckets) {
            sum += n;
            // A string takes everything.
            let _ = writeln!(text, "{name}_bucket{{{labels},le=\"{bound}\"}} {sum}");
        }
        let _ = writeln!(text, "{name}_bucket{{{labels},le=\"+Inf\"}} {}", self.count);
        let _ = writeln!(text, "{name}_sum{{{labels}}} {}", self.seconds);
        let _ = writeln!(text, "{name}_count{{{labels}}} {}", self.count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative() {
        let mut histogram = Histogram::new(&[0.5, 1.0]);
        for ms in [250, 750, 4000] {
            histogram.note(Duration::from_millis(ms));
        }
        let mut text = String::new();
        histogram.write(&mut text, "x", "a=\"b\"");
        let expected = "x_bucket{a=\"b\",le=\"0.5\"} 1\nx_bucket{a=\"b\",le=\"1\"} 2\n\
            x_bucket{a=\"b\",le=\"+Inf\"} 3\nx_sum{a=\"b\"} 5\nx_count{a=\"b\"} 3\n";
        assert_eq!(text, expected);
        assert_eq!(histogram.count(), 3);
    }
}
