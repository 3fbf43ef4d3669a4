//! What the gatekeeper has done, as metrics.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use doppel_api::{HibernationReason, MemoryInfo, WakeReason};
use serde::Serialize;

use crate::core::Core;
use crate::locked;
use crate::telemetry::histogram::Histogram;

/// Upper bounds in seconds.
const BOUNDS: [f64; 10] = [0.001, 0.01, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0, 3600.0];

/// What has happened so far.
#[derive(Debug)]
pub(crate) struct Figures {
    pub hibernations: BTreeMap<HibernationReason, u64>,
    pub wakes: BTreeMap<WakeReason, u64>,
    /// Domains that were woken so soon that their hibernation was for nothing.
    pub thrashed: u64,
    /// Idle domains that did not hibernate: a timer was due, or it failed.
    pub put_off: u64,
    /// Looks at domains.
    pub looks: u64,
    /// How long starts and wakes waited that got their memory.
    pub waited: Histogram,
    /// Those that got none: in time, at once, or because somebody cancelled them.
    pub refused: u64,
}

impl Default for Figures {
    fn default() -> Self {
        Self {
            hibernations: BTreeMap::new(),
            wakes: BTreeMap::new(),
            thrashed: 0,
            put_off: 0,
            looks: 0,
            waited: Histogram::new(&BOUNDS),
            refused: 0,
        }
    }
}

impl Figures {
    pub fn hibernated(&mut self, reason: HibernationReason) {
        *self.hibernations.entry(reason).or_default() += 1;
    }

    pub fn woke(&mut self, reason: WakeReason) {
        *self.wakes.entry(reason).or_default() += 1;
    }

    pub fn waited(&mut self, took: Duration) {
        self.waited.note(took);
    }
}

/// A reason as the interface writes it.
pub(crate) fn word(reason: impl Serialize) -> String {
    let value = serde_json::to_value(reason).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}

fn by_reason(text: &mut String, name: &str, help: &str, counts: impl Iterator<Item = (String, u64)>) {
    // A string takes everything.
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} counter");
    for (reason, n) in counts {
        let _ = writeln!(text, "{name}{{reason=\"{reason}\"}} {n}");
    }
}

impl Core {
    /// What is known of memory.
    pub fn memory_info(&self) -> MemoryInfo {
        let memory = self.gate.memory();
        MemoryInfo {
            available_bytes: memory.available,
            reserve_bytes: memory.reserve,
            domains_bytes: memory.domains,
            budget_bytes: memory.budget,
            waiting: self.gate.waiting() as u64,
        }
    }

    /// Text of the gatekeeper's metrics.
    pub fn gate_metrics(&self) -> String {
        let mut text = String::new();
        let memory = self.gate.memory();
        let figures = locked(&self.gate.figures);
        let hibernations = figures.hibernations.iter().map(|(reason, n)| (word(reason), *n));
        by_reason(&mut text, "doppel_hibernations_total", "Hibernations by reason.", hibernations);
        let wakes = figures.wakes.iter().map(|(reason, n)| (word(reason), *n));
        by_reason(&mut text, "doppel_wakes_total", "Wakes by reason.", wakes);
        let name = "doppel_memory_wait_seconds";
        let help = "How long starts and wakes waited for memory that got it.";
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} histogram");
        figures.waited.write(&mut text, name, "what=\"memory\"");
        let one = [
            (
                "doppel_memory_refusals_total",
                "counter",
                "Starts and wakes that got no memory.",
                figures.refused,
            ),
            (
                "doppel_thrashes_total",
                "counter",
                "Domains woken too soon after they hibernated.",
                figures.thrashed,
            ),
            (
                "doppel_hibernations_put_off_total",
                "counter",
                "Idle domains that did not hibernate.",
                figures.put_off,
            ),
            ("doppel_gatekeeper_looks_total", "counter", "Looks whether a domain is idle.", figures.looks),
            (
                "doppel_memory_waiting",
                "gauge",
                "Starts and wakes that wait for memory.",
                self.gate.waiting() as u64,
            ),
            (
                "doppel_memory_available_bytes",
                "gauge",
                "Memory of the host that can be given away.",
                memory.available,
            ),
            ("doppel_memory_reserve_bytes", "gauge", "What of it stays free.", memory.reserve),
            (
                "doppel_domains_memory_bytes",
                "gauge",
                "What all domains use, as far as it was counted.",
                memory.domains,
            ),
        ];
        for (name, kind, help, value) in one {
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
        }
        let _ = writeln!(
            text,
            "# HELP doppel_memory_pressure_percent Time in which tasks of the host waited for memory (PSI, some, 10 s).\n\
             # TYPE doppel_memory_pressure_percent gauge\ndoppel_memory_pressure_percent {}",
            memory.pressure
        );
        text
    }
}
