//! A domain's volumes, with a storage service of this command's own for those of a para domain.

use std::error::Error;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use doppel_api::{Files, MountKind};
use doppel_domain::{Kind, ServiceGroups, StorageLink};
use doppel_storage::{Attachment, Manager, Volume};
use doppel_volumes::{Lease, VolumeStore};

/// The volumes of one domain, as long as it runs.
#[derive(Default)]
pub struct Storage {
    sources: Vec<PathBuf>,
    attached: Option<Attached>,
    leases: Vec<Lease>,
    /// Those that go with the domain.
    anonymous: Vec<String>,
    store: Option<VolumeStore>,
}

struct Attached {
    attachment: Attachment,
    _manager: Manager,
}

impl Storage {
    /// Makes what the mounts name and is not there yet, and starts a storage service if the domain needs one. `image`: the
    /// domain's; `store`: where volumes are.
    pub fn prepare(
        files: &mut Files,
        kind: Kind,
        image: &Path,
        store: &Path,
    ) -> Result<Self, Box<dyn Error>> {
        if files.volumes().next().is_none() {
            return Ok(Self::default());
        }
        let store = VolumeStore::of(store);
        let nameless: Vec<bool> = files.volumes().map(|v| v.source.is_none()).collect();
        store.prepare(files, image)?;
        let named = |v: &&doppel_api::Mount| v.kind == MountKind::Volume;
        let name = |v: &doppel_api::Mount| v.source.clone().unwrap_or_default();
        let anonymous =
            files.volumes().zip(nameless).filter(|(_, none)| *none).map(|(v, _)| name(v)).collect();
        let leases =
            files.volumes().filter(named).map(|v| store.lease(&name(v))).collect::<Result<_, _>>()?;
        let sources = store.sources(files)?;
        let attached = match kind {
            Kind::Para => Some(attach(files, &sources)?),
            Kind::Paene => None,
        };
        Ok(Self { sources, attached, leases, anonymous, store: Some(store) })
    }

    /// Where on this host they are.
    pub fn sources(&self) -> Vec<PathBuf> {
        self.sources.clone()
    }

    /// What a para domain is given of its storage service.
    pub fn link(&self) -> Option<StorageLink> {
        let Attached { attachment, .. } = self.attached.as_ref()?;
        Some(StorageLink { memory: attachment.memory.clone(), doorbell: attachment.doorbell.clone() })
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        self.leases.clear();
        let Some(store) = &self.store else { return };
        for name in &self.anonymous {
            // Another domain may have it by now; whoever prunes finds it.
            let _ = store.remove(name);
        }
    }
}

fn attach(files: &Files, sources: &[PathBuf]) -> Result<Attached, Box<dyn Error>> {
    let open = |(mount, path): (&doppel_api::Mount, &PathBuf)| {
        Volume::open(path, mount.is_read_only()).map_err(|e| format!("cannot open {}: {e}", path.display()))
    };
    let volumes = files.volumes().zip(sources).map(open).collect::<Result<_, _>>()?;
    let manager = Manager::of_this_program(ServiceGroups::of_host())?;
    Ok(Attached { attachment: manager.attach(volumes)?, _manager: manager })
}

/// The service domain's process.
pub fn service(polls: bool) -> Result<ExitCode, Box<dyn Error>> {
    // It ends with this command.
    doppel_storage::serve(std::io::stdin().as_fd(), polls)?;
    Ok(ExitCode::SUCCESS)
}
