//! Rollback: a domain goes on from a frozen image in place of what it has become. It keeps its name, its id, its limits, its
//! volumes and its address, and is a clone of that image from then on.

use std::fmt::Display;
use std::path::PathBuf;
use std::sync::Arc;

use doppel_api::{self as api, Code, EventKind, Problem};
use doppel_disks::FrozenDisks;
use doppel_freezer::FrozenImage;
use doppel_spec::{Kind, OnClone};
use doppel_volumes::FrozenVolumes;

use crate::core::Core;
use crate::domains::{Entry, Origin, Row, is_live};
use crate::jobs::blocking;
use crate::locked;
use crate::residency::admission::Patience;

/// Where a domain goes back to.
struct Target {
    path: PathBuf,
    /// What the storage service knew of the files in its volumes; none: it has none, or has that from when it was cloned.
    nodes: Option<PathBuf>,
}

fn unreadable(error: impl Display) -> Problem {
    Problem::new(Code::InvalidRequest, error.to_string())
}

/// Refuses an image that a domain cannot go on from with the files that it has.
fn target(row: &Row, name: &str, path: PathBuf) -> Result<Target, Problem> {
    let refused = |why: String| {
        Problem::new(Code::InvalidRequest, format!("domain {} cannot be rolled back: {why}", row.name))
    };
    let files = &row.config.files;
    if row.config.kind != Kind::Para {
        return Err(refused("it is a paene domain, which has no frozen images".into()));
    }
    if let Some(layer) = &files.layer {
        return Err(refused(format!(
            "its files are in layer {layer}, which other domains may have after it"
        )));
    }
    let image = FrozenImage::open_unchecked(&path).map_err(unreadable)?;
    if image.describe().image_digest != row.image_digest {
        return Err(refused(format!("frozen image {name} was made on another root image")));
    }
    if matches!(&row.origin, Origin::Clone { frozen, .. } if frozen == name) {
        return Ok(Target { path, nodes: None });
    }
    let Some(dir) = image.volumes() else {
        return match files.are_served() {
            true => Err(refused(format!(
                "frozen image {name} was made from a domain without its volumes and disks"
            ))),
            false => Ok(Target { path, nodes: None }),
        };
    };
    let kept = FrozenVolumes::open(&dir).map_err(unreadable)?;
    let disks = FrozenDisks::open(&dir).map_err(unreadable)?;
    if !files.disks.is_empty() || !disks.all().is_empty() {
        return Err(refused(format!("disks stay as they are, but not in clones: clone {name}")));
    }
    if !files.volumes().eq(kept.mounts()) {
        return Err(refused(format!("frozen image {name} was made from a domain with other volumes")));
    }
    if kept.mounts().iter().any(|mount| mount.on_clone == OnClone::Snapshot) {
        return Err(refused(format!("frozen image {name} has copies of volumes, which only clones get")));
    }
    Ok(Target { path, nodes: Some(kept.nodes()) })
}

/// Makes it a clone of that image.
fn settle(row: &mut Row, frozen: &str, path: PathBuf) {
    let command = row.command().to_vec();
    let (index, args) = match &row.origin {
        // With what runs in it beside.
        Origin::Clone { frozen: from, .. } if from == frozen => return,
        Origin::Clone { index, args, .. } => (*index, args.clone()),
        Origin::Boot => (1, Vec::new()),
    };
    // Its programs are in the image.
    row.config.command.clear();
    row.config.files.persist = Some(false);
    row.origin = Origin::Clone { frozen: frozen.to_owned(), path, index, args, command };
}

impl Core {
    /// Has a domain go on from a frozen image: what it has become since is gone.
    pub async fn roll_back(
        self: Arc<Self>,
        entry: Arc<Entry>,
        how: api::RollBack,
    ) -> Result<api::Domain, Problem> {
        let _in_use = self.origins.cloning(&how.frozen);
        self.stop_waiting(&entry);
        let _busy = self.awake(&entry).await?;
        let _turn = entry.turn.lock().await;
        self.check_there(&entry)?;
        let Target { path, nodes } = self.target_of(&entry, &how.frozen).await?;
        let (run, live) = {
            let mut row = locked(&entry.row);
            row.is_to_stop();
            (row.run, is_live(row.state))
        };
        if live {
            // What it has not written yet is not wanted.
            self.kill_after(&entry, run, 0).await?;
        }
        let (kept, asleep) = {
            let mut row = locked(&entry.row);
            let kept = row.config.files.is_kept();
            settle(&mut row, &how.frozen, path);
            row.failures = 0;
            (kept, row.asleep.take())
        };
        if kept {
            // Whoever reads the row must not look for a layer that has gone.
            self.save(&entry).await?;
            self.forget_layer(&entry).await;
        }
        self.discard_asleep(asleep);
        if let Some(nodes) = nodes {
            let to = self.nodes_of_clone(&entry.id);
            blocking(move || {
                std::fs::copy(&nodes, &to)
                    .map(drop)
                    .map_err(|e| Problem::new(Code::Internal, format!("{}: {e}", to.display())))
            })
            .await?;
        }
        self.launch(&entry, false, Patience::Asked).await?;
        self.event(EventKind::RollBack, &entry, &[("frozen", how.frozen)]);
        Ok(entry.describe(&self.volumes))
    }

    async fn target_of(self: &Arc<Self>, entry: &Arc<Entry>, name: &str) -> Result<Target, Problem> {
        let (core, row, name) = (self.clone(), entry.row(), name.to_owned());
        blocking(move || {
            let path = core.frozen_entry(&name)?.path;
            target(&row, &name, path)
        })
        .await
    }
}
