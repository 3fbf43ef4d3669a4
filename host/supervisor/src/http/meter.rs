//! How many requests there were, and how long they took: counters and histograms in Prometheus' text format.

use std::fmt::Write as _;
use std::sync::Mutex;
use std::time::Duration;

use crate::telemetry::histogram::Histogram;

/// Upper bounds of the histogram's buckets, in seconds.
const BOUNDS: [f64; 10] = [0.001, 0.0025, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0];

#[derive(Clone)]
struct Line {
    /// By status.
    statuses: Vec<(u16, u64)>,
    times: Histogram,
}

/// Counts, one line a route and one for what found none.
pub(super) struct Meter {
    lines: Mutex<Vec<Line>>,
}

impl Meter {
    /// For so many routes.
    pub fn new(routes: usize) -> Self {
        let line = Line { statuses: Vec::new(), times: Histogram::new(&BOUNDS) };
        Self { lines: Mutex::new(vec![line; routes + 1]) }
    }

    /// Notes one request; `route` is its index, if it had one.
    pub fn note(&self, route: Option<usize>, status: u16, took: Duration) {
        let mut lines = self.lines.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let other = lines.len() - 1;
        let line = &mut lines[route.unwrap_or(other)];
        match line.statuses.iter_mut().find(|(s, _)| *s == status) {
            Some((_, n)) => *n += 1,
            None => line.statuses.push((status, 1)),
        }
        line.times.note(took);
    }

    /// As text. `names` gives method and path of each route.
    pub fn text(&self, names: &[(String, &str)]) -> String {
        let lines = self.lines.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        let name = |at: usize| names.get(at).map_or(("any", "none"), |(m, p)| (m.as_str(), *p));
        let mut text = String::from(
            "# HELP doppel_http_requests_total Requests answered.\n# TYPE doppel_http_requests_total counter\n",
        );
        for (at, line) in lines.iter().enumerate() {
            let (method, path) = name(at);
            for (status, n) in &line.statuses {
                let _ = writeln!(
                    text,
                    "doppel_http_requests_total{{method=\"{method}\",path=\"{path}\",status=\"{status}\"}} {n}"
                );
            }
        }
        text.push_str(
            "# HELP doppel_http_request_seconds Time until the answer's head.\n# TYPE doppel_http_request_seconds histogram\n",
        );
        for (at, line) in lines.iter().enumerate().filter(|(_, l)| l.times.count() > 0) {
            let (method, path) = name(at);
            let labels = format!("method=\"{method}\",path=\"{path}\"");
            line.times.write(&mut text, "doppel_http_request_seconds", &labels);
        }
        text
    }
}
