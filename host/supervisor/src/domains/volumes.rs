//! Volumes: those of the store, and what domains have of them.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use doppel_api::{self as api, Code, MountKind, OnClone, Problem};
use doppel_disks::FrozenDisks;
use doppel_freezer::FrozenImage;
use doppel_volumes::{Error, FrozenVolumes, Volume, VolumeLimits};

use crate::core::Core;
use crate::domains::{Entry, Origin};
use crate::images::disks::disk_problem;
use crate::jobs::{blocking, is_full};
use crate::{locked, time};

/// An error of the store of volumes.
pub(crate) fn volume_problem(error: &Error) -> Problem {
    let code = match error {
        Error::NotFound(_) => Code::VolumeNotFound,
        Error::InUse { .. } => Code::InUse,
        Error::Exists(_) => Code::NameInUse,
        Error::Wrong(_) => Code::InvalidRequest,
        Error::Refused(_) => Code::Forbidden,
        error if is_full(error) => Code::StorageFull,
        Error::Io { .. } | Error::Damaged { .. } | Error::Image { .. } => Code::Internal,
    };
    Problem::new(code, error.to_string())
}

fn describe(volume: Volume) -> api::Volume {
    api::Volume {
        name: volume.name,
        mountpoint: volume.path.display().to_string(),
        created_at: time::of_seconds(volume.created as f64),
        labels: volume.labels,
        anonymous: volume.anonymous,
        used_by: volume.users,
        size_bytes: volume.limits.bytes,
        inodes: volume.limits.inodes,
        snapshot: volume.snapshot,
    }
}

/// Names of the volumes of a domain.
fn names(config: &api::CreateDomain) -> impl Iterator<Item = &str> {
    let volumes = config.files.volumes().filter(|mount| mount.kind == MountKind::Volume);
    volumes.filter_map(|mount| mount.source.as_deref())
}

/// What a storage service knew of the files of a domain that sleeps in this image.
pub(crate) fn nodes_beside(config: &api::CreateDomain, frozen: &Path) -> Result<Option<PathBuf>, Problem> {
    if !config.files.are_served() {
        return Ok(None);
    }
    let kept = FrozenVolumes::open(&FrozenImage::volumes_beside(frozen)).map_err(|e| volume_problem(&e))?;
    Ok(Some(kept.nodes()))
}

impl Core {
    /// Where the binds and volumes of a domain are.
    pub(crate) fn sources_of(&self, config: &api::CreateDomain) -> Result<Vec<PathBuf>, Problem> {
        self.volumes.sources(&config.files).map_err(|e| volume_problem(&e))
    }

    /// What a storage service is to know of the files of a clone from the beginning.
    pub(crate) fn nodes_of_clone(&self, id: &str) -> PathBuf {
        self.domain_dir(id).join("nodes")
    }

    /// Gives a clone that begins what it is to have of the volumes in the frozen image: the same ones, copies, or new ones; and disks of
    /// its own.
    pub(crate) async fn give_volumes(&self, entry: &Entry, frozen: &Path) -> Result<(), Problem> {
        let image = FrozenImage::open_unchecked(frozen);
        let image = image.map_err(|e| Problem::new(Code::InvalidRequest, e.to_string()))?;
        let Some(dir) = image.volumes() else { return Ok(()) };
        let (store, nodes) = (self.volumes.clone(), self.nodes_of_clone(&entry.id));
        let disks = self.disks.clone();
        let mut files = entry.row().config.files;
        let (files, given) = blocking(move || {
            let given = FrozenVolumes::open(&dir);
            let given = given.and_then(|frozen| frozen.for_clone(&store, &mut files, &nodes));
            let given = given.map_err(|e| volume_problem(&e));
            let given = given.and_then(|()| {
                let frozen = FrozenDisks::open(&dir);
                frozen.and_then(|f| f.for_clone(&disks, &mut files.disks)).map_err(|e| disk_problem(&e))
            });
            Ok((files, given))
        })
        .await?;
        // Also if not all could be made: what was made is the domain's, and goes with it.
        locked(&entry.row).config.files = files;
        given
    }

    /// Makes what the mounts of a new domain name and is not there yet.
    pub(crate) async fn make_volumes(
        &self,
        mut config: api::CreateDomain,
        image: &Path,
    ) -> Result<api::CreateDomain, Problem> {
        if config.files.volumes().next().is_none() {
            return Ok(config);
        }
        let (store, image) = (self.volumes.clone(), image.to_owned());
        blocking(move || {
            store.prepare(&mut config.files, &image).map_err(|e| volume_problem(&e))?;
            Ok(config)
        })
        .await
    }

    /// Keeps the volumes of a domain.
    pub(crate) fn hold_volumes(&self, entry: &Entry) -> Result<(), Problem> {
        let row = entry.row();
        names(&row.config)
            .try_for_each(|name| self.volumes.pin(name, &entry.id))
            .map_err(|e| volume_problem(&e))
    }

    /// Gives the volumes of a domain that is no more up; those without a name go with it if that is wanted.
    pub(crate) fn release_volumes(&self, entry: &Entry) {
        let row = entry.row();
        let too = row.config.auto_remove || locked(&entry.live).drop_volumes;
        let is_clone = matches!(row.origin, Origin::Clone { .. });
        let volumes = row.config.files.volumes().filter(|mount| mount.kind == MountKind::Volume);
        for (name, own) in volumes.filter_map(|m| Some((m.source.as_deref()?, m.on_clone != OnClone::Share)))
        {
            let too = too || is_clone && own;
            let mut done = self.volumes.unpin(name, &entry.id);
            if too && done.is_ok() && self.volumes.get(name).is_ok_and(|volume| volume.anonymous) {
                done = self.volumes.remove(name);
            }
            match done {
                // Another domain has it.
                Ok(()) | Err(Error::InUse { .. } | Error::NotFound(_)) => {}
                Err(error) => tracing::warn!("{error}"),
            }
        }
    }

    /// Makes what is noted of volumes' users agree with the domains there are: a crash may have come between.
    pub(crate) fn settle_volumes(&self) {
        let settled = self.volumes.sweep().and_then(|()| self.volumes.list());
        let volumes = match settled {
            Ok(volumes) => volumes,
            Err(error) => return tracing::warn!("{error}"),
        };
        let mut wanted = HashSet::new();
        for entry in self.all() {
            let row = entry.row();
            wanted.extend(names(&row.config).map(|name| (name.to_owned(), row.id.clone())));
        }
        for volume in volumes {
            for user in &volume.users {
                if !wanted.remove(&(volume.name.clone(), user.clone()))
                    && let Err(error) = self.volumes.unpin(&volume.name, user)
                {
                    tracing::warn!("{error}");
                }
            }
        }
        for (name, user) in wanted {
            if let Err(error) = self.volumes.pin(&name, &user) {
                tracing::warn!("domain {user} has lost a volume: {error}");
            }
        }
    }

    pub async fn volume_list(self: Arc<Self>) -> Result<Vec<api::Volume>, Problem> {
        blocking(move || {
            let all = self.volumes.list().map_err(|e| volume_problem(&e))?;
            Ok(all.into_iter().map(describe).collect())
        })
        .await
    }

    pub async fn volume_create(self: Arc<Self>, wanted: api::CreateVolume) -> Result<api::Volume, Problem> {
        blocking(move || {
            let limits = VolumeLimits { bytes: wanted.size_bytes, inodes: wanted.inodes };
            let name = wanted.name.as_deref();
            let made = match &wanted.source {
                Some(of) => self.volumes.copy(of, name.unwrap_or_default(), wanted.labels, wanted.snapshot),
                None => self.volumes.create_within(name, wanted.labels, limits),
            };
            made.map(describe).map_err(|e| volume_problem(&e))
        })
        .await
    }

    pub async fn volume_inspect(self: Arc<Self>, name: String) -> Result<api::Volume, Problem> {
        blocking(move || self.volumes.get(&name).map(describe).map_err(|e| volume_problem(&e))).await
    }

    pub async fn volume_remove(self: Arc<Self>, name: String, how: api::RemoveVolume) -> Result<(), Problem> {
        blocking(move || match self.volumes.remove(&name) {
            Err(Error::NotFound(_)) if how.force => Ok(()),
            done => done.map_err(|e| volume_problem(&e)),
        })
        .await
    }

    pub async fn volume_prune(
        self: Arc<Self>,
        which: api::VolumePruneOptions,
    ) -> Result<api::VolumePruneReport, Problem> {
        blocking(move || {
            let label = which.label.unwrap_or_default();
            let removed = self.volumes.prune(which.all, |volume| api::has_labels(&volume.labels, &label));
            removed.map(|removed| api::VolumePruneReport { removed }).map_err(|e| volume_problem(&e))
        })
        .await
    }
}
