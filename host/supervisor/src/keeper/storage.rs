//! The keeper's storage service, for all para domains that have volumes; started with the first of them.
//!
//! A domain has its channel itself, volumes are opened again by their paths, and what the service knows of a domain's files is
//! in a file beside the keeper's records: a successor goes on with these, and programs wait meanwhile.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use doppel_domain::{ServiceGroups, StorageLink};
use doppel_storage::{Attachment, Manager, Volume};
use serde::{Deserialize, Serialize};

use super::Keeper;
use super::config::{KeeperConfig, records};
use super::protocol::{Fault, Said, Spec};
use super::serve::refused;

/// A volume, as a successor has to know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KeptVolume {
    /// Where it is on the host.
    pub path: PathBuf,
    pub read_only: bool,
}

impl KeptVolume {
    fn open(&self) -> io::Result<Volume> {
        Volume::open(&self.path, self.read_only)
            .map_err(|e| io::Error::new(e.kind(), format!("cannot open {}: {e}", self.path.display())))
    }
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

impl Keeper {
    /// Gives a para domain the volumes it is to have, or says why not.
    pub(super) fn storage_of(&mut self, id: &str, run: u64, spec: &Spec) -> Result<Option<Storage>, Said> {
        let Spec::Boot(boot) = spec else { return Ok(None) };
        if boot.kind != doppel_spec::Kind::Para || boot.sources.is_empty() {
            return Ok(None);
        }
        let pairs = boot.files.volumes().zip(&boot.sources);
        let volumes: Vec<_> =
            pairs.map(|(v, path)| KeptVolume { path: path.clone(), read_only: v.is_read_only() }).collect();
        let attached = self.attach_volumes(id, run, volumes, None);
        attached.map(Some).map_err(|e| refused(Fault::Host, format!("no volumes: {e}")))
    }

    /// Goes on with the volumes of a domain that goes on.
    pub(super) fn resume_storage(
        &mut self,
        id: &str,
        run: u64,
        volumes: Vec<KeptVolume>,
        channel: (OwnedFd, OwnedFd),
    ) -> io::Result<Storage> {
        self.attach_volumes(id, run, volumes, Some(channel))
    }

    fn attach_volumes(
        &mut self,
        id: &str,
        run: u64,
        volumes: Vec<KeptVolume>,
        channel: Option<(OwnedFd, OwnedFd)>,
    ) -> io::Result<Storage> {
        let open = volumes.iter().map(KeptVolume::open).collect::<io::Result<Vec<_>>>()?;
        let dir = all_nodes(&self.config);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
        let nodes = dir.join(format!("{id}.{run}"));
        if channel.is_none() {
            // Nothing is known of the files of one that begins.
            match fs::remove_file(&nodes) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
        }
        let file = doppel_storage::nodes_file(&nodes)?;
        let manager = match &mut self.storage {
            Some(manager) => manager,
            none => none.insert(Manager::of_this_program(ServiceGroups::of_host())?),
        };
        let attachment = match channel {
            Some(channel) => manager.resume(open, channel, file)?,
            None => manager.attach_in(open, file)?,
        };
        Ok(Storage { attachment, volumes, nodes })
    }

    /// Removes what is known of files of domains that are no more.
    pub(super) fn sweep_storage(&self) {
        let used: Vec<&Path> =
            self.domains.values().filter_map(|d| d.storage.as_ref()).map(|s| s.nodes.as_path()).collect();
        for entry in fs::read_dir(all_nodes(&self.config)).into_iter().flatten().flatten() {
            let path = entry.path();
            if !used.contains(&path.as_path())
                && let Err(error) = fs::remove_file(&path)
            {
                tracing::warn!("{} stays: {error}", path.display());
            }
        }
    }
}

/// Where it is kept what the service knows of domains' files.
fn all_nodes(config: &KeeperConfig) -> PathBuf {
    records(&config.runtime).join("storage")
}
