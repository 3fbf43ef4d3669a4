//! How long the stages of starting and freezing domains take.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use crate::domains::Origin;
use crate::locked;
use crate::telemetry::histogram::Histogram;

/// Upper bounds of the buckets, in seconds.
const BOUNDS: [f64; 13] = [1e-4, 2.5e-4, 5e-4, 1e-3, 2e-3, 3e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 1.0, 10.0];

/// What is done in stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum What {
    Boot,
    Clone,
    Wake,
    Freeze,
}

impl What {
    /// Starting from there.
    pub fn of(origin: &Origin) -> Self {
        match origin {
            Origin::Boot => Self::Boot,
            Origin::Clone { .. } => Self::Clone,
        }
    }
}

/// Histograms by what is done and stage.
#[derive(Debug, Default)]
pub(crate) struct Stages(Mutex<BTreeMap<(What, String), Histogram>>);

impl Stages {
    /// Notes a stage.
    pub fn note(&self, what: What, stage: &str, took: Duration) {
        let mut all = locked(&self.0);
        all.entry((what, stage.to_owned())).or_insert_with(|| Histogram::new(&BOUNDS)).note(took);
    }

    /// The same of stages in microseconds.
    pub fn note_us(&self, what: What, stages: impl IntoIterator<Item = (impl AsRef<str>, u64)>) {
        for (stage, us) in stages {
            self.note(what, stage.as_ref(), Duration::from_micros(us));
        }
    }

    /// As text.
    pub fn text(&self) -> String {
        let all = locked(&self.0).clone();
        let metrics = [
            (
                "doppel_start_stage_seconds",
                "Stages of starting domains.",
                &[What::Boot, What::Clone, What::Wake][..],
            ),
            ("doppel_freeze_stage_seconds", "Stages of freezing domains.", &[What::Freeze][..]),
        ];
        let mut text = String::new();
        for (name, help, whats) in metrics {
            text.push_str(&format!("# HELP {name} {help}\n# TYPE {name} histogram\n"));
            for ((what, stage), histogram) in all.iter().filter(|((what, _), _)| whats.contains(what)) {
                let labels = match what {
                    What::Boot => format!("kind=\"boot\",stage=\"{stage}\""),
                    What::Clone => format!("kind=\"clone\",stage=\"{stage}\""),
                    What::Wake => format!("kind=\"wake\",stage=\"{stage}\""),
                    What::Freeze => format!("stage=\"{stage}\""),
                };
                histogram.write(&mut text, name, &labels);
            }
        }
        text
    }
}
