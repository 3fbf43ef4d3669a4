//! What frozen images were made from: the name of the root image and the command of the domain that was frozen.
//!
//! An image itself knows neither. A note belongs to one image and not to another that gets the same name later: it
//! bears the image's [`stamp`]. Images that were not frozen by this supervisor have none.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;

use doppel_api::Problem;
use doppel_freezer::FrozenImage;
use serde::{Deserialize, Serialize};

use crate::locked;
use crate::state::{StateStore, Table};
use crate::time::seconds_now;

/// What is noted of a frozen image.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Note {
    /// Of which image of this name.
    stamp: String,
    /// Name of the root image, as it was given when the domain was made.
    pub image: String,
    /// The domain's command.
    pub command: Vec<String>,
    /// It is removed when nobody needs it any more ([`crate::frozen::collect`]).
    #[serde(default)]
    pub temporary: bool,
    /// When it was noted, in seconds since 1970.
    #[serde(default)]
    at: f64,
    /// It was cloned.
    #[serde(skip)]
    cloned: bool,
    /// How many requests make clones of it now.
    #[serde(skip)]
    busy: u32,
}

/// Seconds for which a temporary image that nobody cloned is kept.
const UNUSED: f64 = 60.0;

/// Notes by name of the frozen image.
#[derive(Debug)]
pub(crate) struct Notes(Mutex<HashMap<String, Note>>);

/// What tells a frozen image from all others.
fn stamp(image: &FrozenImage) -> String {
    let header = image.header();
    format!("{:x} {} {}", header.domain_id, header.generation, header.realtime_ns)
}

impl Notes {
    pub fn new(rows: Vec<(String, Note)>) -> Self {
        Self(Mutex::new(rows.into_iter().collect()))
    }

    /// Forgets notes of images that are no more.
    pub fn keep_only(&self, state: &StateStore, there: &HashSet<String>) {
        locked(&self.0).retain(|name, _| {
            let keep = there.contains(name);
            if !keep {
                state.remove_soon(Table::Frozen, name);
            }
            keep
        });
    }

    /// Notes what an image was made from; the future is done when that is durable.
    pub fn put(
        &self,
        state: &StateStore,
        name: &str,
        frozen: &FrozenImage,
        image: String,
        command: Vec<String>,
        temporary: bool,
    ) -> impl Future<Output = Result<(), Problem>> + use<> {
        let note = Note {
            stamp: stamp(frozen),
            image,
            command,
            temporary,
            at: seconds_now(),
            cloned: false,
            busy: 0,
        };
        let saved = state.put(Table::Frozen, name, &note);
        locked(&self.0).insert(name.to_owned(), note);
        saved
    }

    /// What this image was made from, if that is known.
    pub fn get(&self, name: &str, frozen: &FrozenImage) -> Option<Note> {
        locked(&self.0).get(name).filter(|note| note.stamp == stamp(frozen)).cloned()
    }

    /// Clones of an image are being made, until what this gives is dropped.
    pub fn cloning(&self, name: &str) -> Cloning<'_> {
        self.busy(name, |note| note.busy += 1);
        Cloning { notes: self, name: name.to_owned() }
    }

    fn busy(&self, name: &str, change: impl FnOnce(&mut Note)) {
        if let Some(note) = locked(&self.0).get_mut(name) {
            change(note);
        }
    }

    /// Names of temporary images: those that nobody needs if no domain does, or those that are yet to be cloned.
    pub fn temporary(&self, due: bool) -> Vec<String> {
        let now = seconds_now();
        let is_due = |n: &Note| n.busy == 0 && (n.cloned || now - n.at > UNUSED);
        let all = locked(&self.0);
        all.iter().filter(|(_, n)| n.temporary && is_due(n) == due).map(|(name, _)| name.clone()).collect()
    }

    /// Whether an image goes by itself when nobody needs it any more.
    pub fn is_temporary(&self, name: &str) -> bool {
        locked(&self.0).get(name).is_some_and(|note| note.temporary)
    }

    /// An image has been removed.
    pub fn remove(&self, state: &StateStore, name: &str) {
        if locked(&self.0).remove(name).is_some() {
            state.remove_soon(Table::Frozen, name);
        }
    }
}

/// Clones of an image are being made.
pub(crate) struct Cloning<'a> {
    notes: &'a Notes,
    name: String,
}

impl Drop for Cloning<'_> {
    fn drop(&mut self) {
        self.notes.busy(&self.name, |note| {
            note.busy = note.busy.saturating_sub(1);
            note.cloned = true;
        });
    }
}
