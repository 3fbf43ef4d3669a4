//! Bars that tell how far the transfer and the making of an image are: on a terminal; nothing elsewhere.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use doppel_image::{Step, Store, Watcher};
use doppel_oci::{Event, Progress};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::terminal::out;

/// A bar of bytes.
const BYTES: &str = "{prefix} [{bar:30}] {bytes:>10}/{total_bytes:10} {bytes_per_sec:12} {msg}";
/// Something that is under way, and how much of it is done.
const SPINNER: &str = "{prefix} {spinner} {msg}";
/// How often a spinner turns, whatever is told.
const TICK: Duration = Duration::from_millis(120);

/// The bars of one command. They go with it.
pub struct Bars {
    all: Option<MultiProgress>,
    blobs: Mutex<BTreeMap<String, ProgressBar>>,
    work: Arc<Mutex<Work>>,
}

/// What is under way beside transfers.
#[derive(Default)]
struct Work(Option<(&'static str, ProgressBar)>);

impl Bars {
    /// Bars, or not.
    pub fn new() -> Self {
        let all = out::stderr().is_terminal().then(MultiProgress::new);
        Self { all, blobs: Mutex::default(), work: Arc::default() }
    }

    /// The same store, of whose work there are bars.
    pub fn watch(&self, store: &Store) -> Store {
        let Some(all) = self.all.clone() else { return store.clone() };
        let work = self.work.clone();
        store.clone().watched(Watcher::new(move |step| locked(&work).show(&all, step)))
    }

    /// Whether anybody sees them.
    pub fn are_shown(&self) -> bool {
        self.all.is_some()
    }

    /// Something has begun that tells nothing of itself.
    pub fn begin(&self, what: &'static str) {
        if let Some(all) = &self.all {
            locked(&self.work).turn_to(all, what, None);
        }
    }

    /// What another host says of such work.
    pub fn told(&self, what: &str, done: u64, total: Option<u64>) {
        let Some(all) = &self.all else { return };
        let mut work = locked(&self.work);
        let bar = work.turn_to(all, "over there", total);
        match total {
            Some(_) => {
                bar.set_position(done);
                bar.set_message(what.to_owned());
            }
            None => bar.set_message(format!("{what} {}", indicatif::BinaryBytes(done))),
        }
    }
}

impl Drop for Bars {
    fn drop(&mut self) {
        locked(&self.work).end();
    }
}

impl Work {
    fn show(&mut self, all: &MultiProgress, step: Step) {
        match step {
            Step::Read { done } => {
                self.turn_to(all, "unpacking", None).set_message(indicatif::BinaryBytes(done).to_string())
            }
            Step::Write { done, total } => self.turn_to(all, "writing", Some(total)).set_position(done),
            Step::Patch { done, total } => self.turn_to(all, "patching", Some(total)).set_position(done),
        }
    }

    /// The bar of this work, which takes the place of what was done before it.
    fn turn_to(&mut self, all: &MultiProgress, what: &'static str, total: Option<u64>) -> &ProgressBar {
        if self.0.as_ref().is_none_or(|(now, bar)| *now != what || bar.length() != total) {
            self.end();
        }
        let make = || {
            let bar = match total {
                Some(total) => ProgressBar::new(total).with_style(style(BYTES)),
                None => ProgressBar::new_spinner().with_style(style(SPINNER)),
            };
            let bar = all.add(bar.with_prefix(what));
            bar.enable_steady_tick(TICK);
            (what, bar)
        };
        &self.0.get_or_insert_with(make).1
    }

    fn end(&mut self) {
        if let Some((_, bar)) = self.0.take() {
            bar.finish_and_clear();
        }
    }
}

impl Progress for Bars {
    fn event(&self, event: Event<'_>) {
        let Some(all) = &self.all else { return };
        let mut blobs = locked(&self.blobs);
        match event {
            Event::Begin { blob, size, have } => {
                let bar = ProgressBar::new(size).with_style(style(BYTES));
                let bar = all.add(bar.with_prefix(blob.short().to_owned()));
                bar.set_position(have);
                blobs.insert(blob.hex().into(), bar);
            }
            Event::Bytes { blob, done } => {
                if let Some(bar) = blobs.get(blob.hex()) {
                    bar.set_position(done);
                }
            }
            Event::Retry { blob, why } => {
                if let Some(bar) = blobs.get(blob.hex()) {
                    bar.set_message(why.to_owned());
                }
            }
            Event::Done { blob, .. } => {
                if let Some(bar) = blobs.get(blob.hex()) {
                    bar.finish_with_message("");
                }
            }
            // The store tells of these by bytes.
            Event::Resolved { .. } | Event::Apply { .. } | Event::Write => {}
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
