//! The keeper's storage service, for all para domains that have volumes; started with the first of them.
//!
//! A domain has its channel itself, volumes are opened again by their paths, and what the service knows of a domain's files is
//! in a file beside the keeper's records: a successor goes on with these, and programs wait meanwhile.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use doppel_domain::{ServiceGroups, StorageLink};
use doppel_net::Health;
use doppel_storage::{Attachment, Manager, Volume};

use super::config::{KeeperConfig, records};
use super::protocol::Boot;
use super::records::KeptVolume;

/// The service, from the first domain on that wants it.
#[derive(Debug)]
pub(super) struct Service {
    manager: Option<Manager>,
    /// Where it is kept what the service knows of domains' files.
    dir: PathBuf,
}

/// A domain's volumes.
#[derive(Debug)]
pub(super) struct Storage {
    attachment: Attachment,
    pub volumes: Vec<KeptVolume>,
    /// What the service knows of its files.
    nodes: PathBuf,
}

impl Storage {
    /// What was done for the domain so far; it never goes down.
    pub fn traffic(&self) -> doppel_api::StorageStats {
        let t = self.attachment.traffic();
        doppel_api::StorageStats {
            operations: t.operations,
            errors: t.errors,
            read_bytes: t.read_bytes,
            written_bytes: t.written_bytes,
            seconds: t.nanoseconds as f64 / 1e9,
        }
    }

    /// What the domain is given of it.
    pub fn link(&self) -> StorageLink {
        StorageLink { memory: self.attachment.memory.clone(), doorbell: self.attachment.doorbell.clone() }
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        // What cannot be removed goes when the next keeper begins.
        let _ = fs::remove_file(&self.nodes);
    }
}

/// The volumes that a service is to have for a domain.
pub(super) fn wanted(boot: &Boot) -> Vec<KeptVolume> {
    if boot.kind != doppel_spec::Kind::Para {
        return Vec::new();
    }
    let pairs = boot.files.volumes().zip(&boot.sources);
    pairs.map(|(v, path)| KeptVolume { path: path.clone(), read_only: v.is_read_only() }).collect()
}

fn open(kept: &KeptVolume) -> io::Result<Volume> {
    Volume::open(&kept.path, kept.read_only)
        .map_err(|e| io::Error::new(e.kind(), format!("cannot open {}: {e}", kept.path.display())))
}

impl Service {
    pub fn new(config: &KeeperConfig) -> Self {
        Self { manager: None, dir: records(&config.runtime).join("storage") }
    }

    /// How it is; none before the first domain that wants it.
    pub fn health(&self) -> Option<Health> {
        let health = self.manager.as_ref()?.health();
        Some(Health {
            pid: health.pid,
            starts: health.starts,
            restarts: health.starts.saturating_sub(1),
            domains: health.domains,
            cpu_seconds: health.cpu_seconds,
            memory_bytes: health.memory_bytes,
            longest_step_seconds: health.longest_step_seconds,
        })
    }

    /// Gives a domain that begins these volumes.
    pub fn attach(&mut self, id: &str, run: u64, volumes: Vec<KeptVolume>) -> io::Result<Storage> {
        let nodes = self.nodes(id, run);
        // Nothing is known of its files.
        match fs::remove_file(&nodes) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        self.add(nodes, volumes, None)
    }

    /// Goes on with the volumes of a domain that goes on.
    pub fn resume(
        &mut self,
        id: &str,
        run: u64,
        volumes: Vec<KeptVolume>,
        channel: (OwnedFd, OwnedFd),
    ) -> io::Result<Storage> {
        self.add(self.nodes(id, run), volumes, Some(channel))
    }

    fn nodes(&self, id: &str, run: u64) -> PathBuf {
        self.dir.join(format!("{id}.{run}"))
    }

    fn add(
        &mut self,
        nodes: PathBuf,
        volumes: Vec<KeptVolume>,
        channel: Option<(OwnedFd, OwnedFd)>,
    ) -> io::Result<Storage> {
        let opened = volumes.iter().map(open).collect::<io::Result<Vec<_>>>()?;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
        let file = doppel_storage::nodes_file(&nodes)?;
        let manager = match &mut self.manager {
            Some(manager) => manager,
            none => none.insert(Manager::of_this_program(ServiceGroups::of_host())?),
        };
        let attachment = match channel {
            Some(channel) => manager.resume(opened, channel, file)?,
            None => manager.attach_in(opened, file)?,
        };
        Ok(Storage { attachment, volumes, nodes })
    }

    /// Removes what is known of files of domains that are no more.
    pub fn sweep<'a>(&self, used: impl Iterator<Item = &'a Storage>) {
        let used: Vec<_> = used.map(|s| s.nodes.as_path()).collect();
        for entry in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if !used.contains(&path.as_path())
                && let Err(error) = fs::remove_file(&path)
            {
                tracing::warn!("{} stays: {error}", path.display());
            }
        }
    }
}
