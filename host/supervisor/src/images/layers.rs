//! Layers: what domains change of their images' files, where that is kept.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use doppel_api::{Code, Problem};
use doppel_freezer::FrozenImage;
use doppel_layers::{Base, Error};

use crate::core::Core;
use crate::domains::{Entry, Origin, Row};
use crate::jobs::{blocking, is_full};

/// How long after a layer was made it is put on disk.
const SETTLE_AFTER: Duration = Duration::from_millis(300);

/// An error of the store of layers.
fn layer_problem(error: &Error) -> Problem {
    let code = match error {
        Error::InUse { .. } => Code::InUse,
        Error::OfClone(_)
        | Error::Unsaid(_)
        | Error::Wrong(_)
        | Error::OtherImage { .. }
        | Error::OtherKind { .. } => Code::InvalidRequest,
        error if is_full(error) => Code::StorageFull,
        Error::Io { .. } | Error::Damaged { .. } | Error::NotFound(_) => Code::Internal,
    };
    Problem::new(code, error.to_string())
}

/// Name of the layer of a domain, if what it changes is kept: its own is called by its id.
fn name(row: &Row) -> Option<&str> {
    let files = &row.config.files;
    files.is_kept().then(|| files.layer.as_deref().unwrap_or(&row.id))
}

/// Whether it goes on from a frozen image.
fn is_clone(row: &Row) -> bool {
    matches!(row.origin, Origin::Clone { .. })
}

/// What a domain's layer lies on.
fn base(row: &Row) -> Base {
    Base { image: row.config.image.clone(), digest: row.image_digest.clone(), kind: row.config.kind }
}

impl Core {
    /// Makes the layer of a new domain, if it is to have one and that is not there, and keeps it for the domain.
    pub(crate) async fn make_layer(&self, entry: &Entry) -> Result<(), Problem> {
        let row = entry.row();
        if name(&row).is_none() {
            return Ok(());
        }
        let layers = self.layers.clone();
        blocking(move || {
            let base = base(&row);
            let made = match &row.config.files.layer {
                Some(name) => layers.named(name, &base, Some(&row.id)),
                None => layers.own(&row.id, &base),
            };
            made.map(drop).map_err(|e| layer_problem(&e))
        })
        .await
    }

    /// Has the own layer of a new domain survive a power cut, soon. Nobody waits for it: one that did not is made again when the
    /// supervisor starts, and had nothing in it.
    pub(crate) fn settle_layer(&self, entry: &Entry) {
        let row = entry.row();
        if name(&row).is_none() || row.config.files.layer.is_some() {
            return;
        }
        let layers = self.layers.clone();
        let settle = move || match layers.get(&row.id).and_then(|layer| layers.settle(&layer)) {
            // It has gone again.
            Ok(()) | Err(Error::NotFound(_)) => {}
            Err(error) => tracing::warn!("{error}"),
        };
        tokio::spawn(async move {
            // Not while its domain is being written down and started.
            tokio::time::sleep(SETTLE_AFTER).await;
            drop(tokio::task::spawn_blocking(settle));
        });
    }

    /// Makes the layer of a clone that begins, if files of the frozen image are in one.
    pub(crate) fn layer_of_clone(&self, entry: &Entry, frozen: &Path) -> Result<Option<PathBuf>, Problem> {
        let row = entry.row();
        let image = FrozenImage::open_unchecked(frozen);
        let from = image.and_then(|image| image.layers());
        let from = from.map_err(|e| Problem::new(Code::FrozenNotFound, e.to_string()))?;
        let make = |from: PathBuf| self.layers.of_clone(&row.id, &base(&row), &from, Some(&row.id));
        let made = from.map(make).transpose().map_err(|e| layer_problem(&e))?;
        Ok(made.map(|layer| layer.dir))
    }

    /// Where the layer of a domain is.
    pub(crate) fn layer_dir(&self, row: &Row) -> Result<Option<PathBuf>, Problem> {
        let layer = match name(row) {
            Some(name) => self.layers.get(name).map(Some),
            // It has one if the frozen image's files are in one.
            None if is_clone(row) => match self.layers.get(&row.id) {
                Err(Error::NotFound(_)) => Ok(None),
                found => found.map(Some),
            },
            None => Ok(None),
        };
        Ok(layer.map_err(|e| layer_problem(&e))?.map(|layer| layer.dir))
    }

    /// Gives the layer of a domain that is no more up; its own goes.
    pub(crate) fn release_layer(&self, entry: &Entry) {
        let row = entry.row();
        let Some(name) = name(&row).or_else(|| is_clone(&row).then_some(row.id.as_str())) else { return };
        let (layers, name, id) = (self.layers.clone(), name.to_owned(), row.id.clone());
        let release = move || match layers.release(&name, &id) {
            Ok(()) | Err(Error::NotFound(_)) => {}
            Err(error) => tracing::warn!("{error}"),
        };
        match row.config.files.layer {
            // The next domain may have it at once.
            Some(_) => release(),
            // Many files take a while.
            None => drop(tokio::task::spawn_blocking(release)),
        }
    }

    /// Removes the own layer of a domain that does not run and goes on without.
    pub(crate) async fn forget_layer(&self, entry: &Entry) {
        let (layers, id) = (self.layers.clone(), entry.id.clone());
        let forget = move || match layers.release(&id, &id) {
            Ok(()) | Err(Error::NotFound(_)) => Ok(()),
            Err(error) => Err(layer_problem(&error)),
        };
        if let Err(problem) = blocking(forget).await {
            tracing::warn!("{problem}");
        }
    }

    /// Makes what is noted of layers' users agree with the domains there are: a crash may have come between.
    pub(crate) fn settle_layers(&self) {
        let layers = match self.layers.sweep().and_then(|()| self.layers.list()) {
            Ok(layers) => layers,
            Err(error) => return tracing::warn!("{error}"),
        };
        let mut wanted: HashMap<String, String> = HashMap::new();
        // Some have one, which is made anew with each start.
        let mut clones = Vec::new();
        for entry in self.all() {
            let row = entry.row();
            wanted.extend(name(&row).map(|name| (name.to_owned(), row.id.clone())));
            if is_clone(&row) {
                clones.push(row.id.clone());
            }
        }
        for layer in layers.into_iter().filter(|layer| !clones.contains(&layer.name)) {
            if wanted.get(&layer.name) == layer.user.as_ref() {
                wanted.remove(&layer.name);
            } else if let Some(user) = &layer.user
                && let Err(error) = self.layers.release(&layer.name, user)
            {
                tracing::warn!("{error}");
            }
        }
        for (name, user) in wanted {
            tracing::warn!("domain {user} has lost its layer {name:?}");
            self.make_own_again(&user);
        }
    }

    /// A domain's own layer was not on the disk yet when the host died.
    fn make_own_again(&self, id: &str) {
        let Some(row) = self.all().iter().map(|entry| entry.row()).find(|row| row.id == id) else { return };
        let (own, base) = (row.config.files.layer.is_none(), base(&row));
        let made = own.then(|| self.layers.own(id, &base).and_then(|layer| self.layers.settle(&layer)));
        if let Some(Err(error)) = made {
            tracing::warn!("{error}");
        }
    }
}
