//! Disks: those of the store, and what domains have of them.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use doppel_api::{self as api, Code, Files, Problem};
use doppel_disks::{Disk, DiskStore, Error, FrozenDisks};

use crate::core::Core;
use crate::domains::{Entry, Origin};
use crate::jobs::{blocking, is_full};
use crate::time;

/// An error of the store of disks.
pub(crate) fn disk_problem(error: &Error) -> Problem {
    let code = match error {
        Error::NotFound(_) => Code::DiskNotFound,
        Error::InUse(_) | Error::Busy => Code::InUse,
        Error::Newer(_) => Code::WrongState,
        Error::Exists(_) => Code::NameInUse,
        Error::Wrong(_) | Error::Snapshot(_) => Code::InvalidRequest,
        error if is_full(error) => Code::StorageFull,
        Error::Io { .. } | Error::Damaged { .. } => Code::Internal,
    };
    Problem::new(code, error.to_string())
}

fn describe(disk: &Disk) -> api::Disk {
    api::Disk {
        name: disk.name.clone(),
        size_bytes: disk.size,
        used_bytes: disk.used,
        created_at: time::of_seconds(disk.created as f64),
        snapshot: disk.snapshot,
        layers: u32::try_from(disk.layers).unwrap_or(u32::MAX),
        in_use: disk.is_in_use(),
    }
}

impl Core {
    /// Where the disks of a domain are, in their order.
    pub(crate) fn disk_dirs(&self, files: &Files) -> Result<Vec<PathBuf>, Problem> {
        let dir = |wanted: &api::BlockDevice| match self.disks.get(&wanted.name)? {
            disk if disk.snapshot && !wanted.read_only => Err(Error::Snapshot(disk.name)),
            disk => Ok(disk.dir),
        };
        files.disks.iter().map(dir).collect::<Result<_, _>>().map_err(|e| disk_problem(&e))
    }

    /// The same of a clone, whose memory goes with what was on them at the freeze.
    pub(crate) fn fresh_disks(&self, files: &Files) -> Result<Vec<PathBuf>, Problem> {
        files
            .disks
            .iter()
            .try_for_each(|disk| self.disks.refresh(&disk.name))
            .map_err(|e| disk_problem(&e))?;
        self.disk_dirs(files)
    }

    /// Removes what was kept for a frozen image that is no more.
    pub(crate) async fn collect_disks(self: Arc<Self>) {
        // It stays until somebody removes a disk, or the supervisor begins.
        let _ = blocking(move || Ok(self.disks.sweep())).await.map(|swept| {
            swept.unwrap_or_else(|error| tracing::warn!("{error}"));
        });
    }

    /// Removes the disks of a clone that is no more up, which it had alone.
    pub(crate) fn release_disks(&self, entry: &Entry) {
        let row = entry.row();
        if !matches!(row.origin, Origin::Clone { .. }) {
            return;
        }
        for disk in &row.config.files.disks {
            if self.disks.get(&disk.name).is_ok_and(|disk| disk.anonymous)
                && let Err(error) = self.disks.remove(&disk.name)
            {
                tracing::warn!("{error}");
            }
        }
    }

    /// Whether disks are what they were when a domain was hibernated.
    pub(crate) fn disks_are(&self, frozen: &FrozenDisks) -> bool {
        self.disks.are(frozen)
    }

    /// Removes what is left of disks that were being made or removed when a process died, and of clones that are no more.
    pub(crate) fn settle_disks(&self) {
        let mut known = HashSet::new();
        for entry in self.all() {
            known.extend(entry.row().config.files.disks.into_iter().map(|disk| disk.name));
        }
        let settled =
            self.disks.sweep().and_then(|()| self.disks.remove_unknown(|name| known.contains(name)));
        if let Err(error) = settled {
            tracing::warn!("{error}");
        }
    }

    async fn with_disks<T: Send + 'static>(
        self: Arc<Self>,
        act: impl FnOnce(&DiskStore) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Problem> {
        blocking(move || act(&self.disks).map_err(|e| disk_problem(&e))).await
    }

    pub async fn disk_list(self: Arc<Self>) -> Result<Vec<api::Disk>, Problem> {
        self.with_disks(|disks| Ok(disks.list()?.iter().map(describe).collect())).await
    }

    pub async fn disk_create(self: Arc<Self>, wanted: api::CreateDisk) -> Result<api::Disk, Problem> {
        self.with_disks(move |disks| {
            let name = &wanted.name;
            let made = match &wanted.source {
                Some(source) if wanted.snapshot => disks.snapshot(source, name),
                Some(source) => disks.clone_of(source, name),
                None => disks.create(name, wanted.size_bytes.unwrap_or(0)),
            };
            made.map(|disk| describe(&disk))
        })
        .await
    }

    pub async fn disk_inspect(self: Arc<Self>, name: String) -> Result<api::Disk, Problem> {
        self.with_disks(move |disks| disks.get(&name).map(|disk| describe(&disk))).await
    }

    pub async fn disk_resize(self: Arc<Self>, name: String, size: u64) -> Result<api::Disk, Problem> {
        self.with_disks(move |disks| disks.resize(&name, size).map(|disk| describe(&disk))).await
    }

    pub async fn disk_remove(self: Arc<Self>, name: String, how: api::RemoveDisk) -> Result<(), Problem> {
        self.with_disks(move |disks| match disks.remove(&name) {
            Err(Error::NotFound(_)) if how.force => Ok(()),
            done => done,
        })
        .await
    }
}
