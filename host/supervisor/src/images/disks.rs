//! Disks: those of the store, and what domains have of them.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use doppel_api::{self as api, Code, Files, Problem};
use doppel_disks::{Disk, DiskStore, Error, FrozenDisks};

use crate::core::Core;
use crate::domains::{Entry, Origin, Row, is_live};
use crate::jobs::{blocking, is_full, whole};
use crate::keeper::protocol::{KeeperCommand, Reply};
use crate::{locked, time};

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

/// The same of what was to be made of a disk that no domain of this supervisor writes.
fn written_elsewhere(error: &Error) -> Problem {
    let problem = disk_problem(error);
    match error {
        Error::InUse(name) => Problem::new(problem.code, DiskStore::in_use_elsewhere(name)),
        _ => problem,
    }
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
        let swept = self.disks.forget_wanted().and_then(|()| self.disks.sweep());
        let settled = swept.and_then(|()| self.disks.remove_unknown(|name| known.contains(name)));
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
        if let Some(source) = &wanted.source
            && let Some(writer) = self.writer_of(source)
        {
            let source = source.clone();
            return whole(self.disk_of_writer(writer, source, wanted)).await;
        }
        let make = move |disks: &DiskStore| {
            let name = &wanted.name;
            let made = match &wanted.source {
                Some(source) if wanted.snapshot => disks.snapshot(source, name),
                Some(source) => disks.clone_of(source, name),
                None => disks.create(name, wanted.size_bytes.unwrap_or(0)),
            };
            made.map(|disk| describe(&disk))
        };
        blocking(move || make(&self.disks).map_err(|error| written_elsewhere(&error))).await
    }

    /// The domain that runs and writes to a disk.
    fn writer_of(&self, disk: &str) -> Option<Arc<Entry>> {
        let writes =
            |row: &Row| row.config.files.disks.iter().any(|device| device.name == disk && !device.read_only);
        self.all().into_iter().find(|entry| {
            let row = locked(&entry.row);
            is_live(row.state) && writes(&row)
        })
    }

    /// Makes a disk that is, or begins as, what is now on one that a domain writes: its keeper keeps that.
    async fn disk_of_writer(
        self: Arc<Self>,
        writer: Arc<Entry>,
        source: String,
        to: api::CreateDisk,
    ) -> Result<api::Disk, Problem> {
        let _turn = writer.turn.lock().await;
        let name = to.name.clone();
        let wanted =
            self.clone().with_disks(move |disks| disks.check_free(&name).and_then(|()| disks.want()));
        let wanted = wanted.await?;
        let ask = KeeperCommand::KeepDisk {
            id: writer.id.clone(),
            disk: source,
            needed_by: wanted.path().to_owned(),
        };
        let said = self.ask(&writer, ask).await;
        self.with_disks(move |disks| {
            let made = match said {
                Ok(Reply::KeptDisk { kept }) => disks.make_of_kept(&kept, &to.name, to.snapshot).map(Ok)?,
                Ok(_) => Err(Problem::new(Code::Internal, "the keeper answered something else")),
                Err(problem) => Err(problem),
            };
            drop(wanted);
            if made.is_err() {
                // A keeper that has died may have kept something for nobody.
                disks.sweep()?;
            }
            Ok(made.map(|disk| describe(&disk)))
        })
        .await?
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
