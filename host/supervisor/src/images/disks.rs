//! Disks: those of the store, and what domains have of them.

use std::path::PathBuf;
use std::sync::Arc;

use doppel_api::{self as api, Code, Files, Problem};
use doppel_disks::{Disk, DiskStore, Error};

use crate::core::Core;
use crate::jobs::{blocking, is_full};
use crate::time;

/// An error of the store of disks.
fn disk_problem(error: &Error) -> Problem {
    let code = match error {
        Error::NotFound(_) => Code::DiskNotFound,
        Error::InUse(_) => Code::InUse,
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

    /// Removes what is left of disks that were being made or removed when a process died.
    pub(crate) fn settle_disks(&self) {
        if let Err(error) = self.disks.sweep() {
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
