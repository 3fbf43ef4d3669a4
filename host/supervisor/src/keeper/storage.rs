//! The keeper's storage service, for all domains that have disks, and para domains that have volumes or a layer; started with the first of
//! them. A paene domain's volumes are mounts of its own, and are held here alone.
//!
//! A domain has its channel itself, volumes are opened again by their paths, and what the service knows of a domain's files is
//! in a file beside the keeper's records: a successor goes on with these, and programs wait meanwhile.

use std::fs;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use doppel_disks::{FrozenDisks, Held, InUse};
use doppel_domain::{ServiceGroups, StorageLink};
use doppel_net::Health;
use doppel_storage::{Attachment, Manager, Remap, Volume};
use doppel_volumes::{Leases, VolumeStore};

use super::config::{KeeperConfig, STORAGE, records};
use super::protocol::Spec;
use super::records::KeptVolume;

/// The service, from the first domain on that wants it.
#[derive(Debug)]
pub(super) struct Service {
    manager: Option<Manager>,
    /// Where it is kept what the service knows of domains' files.
    dir: PathBuf,
    store: VolumeStore,
}

/// A domain's end of a channel to the service: memory and doorbell.
pub(super) type Channel = (OwnedFd, OwnedFd);

/// A domain's volumes.
#[derive(Debug)]
pub(super) struct Storage {
    /// None: the service does not have them.
    service: Option<Served>,
    pub volumes: Vec<KeptVolume>,
    leases: Leases,
    /// Its disks are nobody else's meanwhile.
    disks: Option<Arc<InUse>>,
}

/// What the service has for a domain.
#[derive(Debug)]
struct Served {
    attachment: Arc<Attachment>,
    /// What it knows of the domain's files.
    nodes: PathBuf,
}

impl Storage {
    /// What was done for the domain so far; it never goes down.
    pub fn traffic(&self) -> Option<doppel_api::StorageStats> {
        let t = self.service.as_ref()?.attachment.traffic();
        Some(doppel_api::StorageStats {
            operations: t.operations,
            errors: t.errors,
            read_bytes: t.read_bytes,
            written_bytes: t.written_bytes,
            seconds: t.nanoseconds as f64 / 1e9,
        })
    }

    /// What the domain may do with its volumes from here on.
    pub fn limit(&self, resources: &doppel_spec::Resources) {
        let Some(Served { attachment, .. }) = &self.service else { return };
        match doppel_volumes::rates(resources) {
            Ok(limits) => attachment.limit(limits),
            // It was there when it was asked for.
            Err(error) => tracing::warn!("limits of block I/O are not kept: {error}"),
        }
    }

    /// Whether its service has begun; a domain without one waits for none.
    pub fn has_begun(&self) -> bool {
        self.service.as_ref().is_none_or(|served| served.attachment.has_begun())
    }

    /// Why its service will not serve it, if that is so.
    pub fn failure(&self) -> Option<String> {
        self.service.as_ref()?.attachment.failure()
    }

    /// The domain is about to be killed: what it keeps is written first, if it takes no time.
    pub fn settle(&self) {
        self.leases.settle();
    }

    /// What the domain is given of it.
    pub fn link(&self) -> Option<StorageLink> {
        let Served { attachment, nodes } = self.service.as_ref()?;
        Some(StorageLink {
            memory: attachment.memory.clone(),
            doorbell: attachment.doorbell.clone(),
            nodes: Some(nodes.clone()),
            disks: self.disks(),
        })
    }

    /// Its disks, to be frozen with it.
    pub fn disks(&self) -> Option<Weak<InUse>> {
        self.disks.as_ref().map(Arc::downgrade)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // What cannot be removed goes when the next keeper begins.
        let _ = fs::remove_file(&self.nodes);
    }
}

/// What a service has for a domain: its volumes, its disks, and its layer.
pub(super) fn wanted(spec: &Spec) -> Vec<KeptVolume> {
    let asked = spec.asked();
    let pairs = asked.files.volumes().zip(spec.sources());
    let kept = |path, read_only, disk| KeptVolume {
        path,
        read_only,
        disk,
        bytes: None,
        below: false,
        own: false,
        cached: false,
    };
    let own = asked.kind == doppel_spec::Kind::Paene;
    let volumes = pairs.map(|(v, path)| KeptVolume {
        cached: v.cached,
        own,
        ..kept(path.clone(), v.is_read_only(), false)
    });
    let layer = spec.layer().filter(|_| !own);
    let bytes = asked.resources.disk_bytes.map(doppel_layers::most);
    let layer = layer.map_or_else(Vec::new, doppel_layers::files);
    let layer = layer.into_iter().enumerate().map(|(i, path)| match i {
        0 => KeptVolume { bytes, ..kept(path, false, false) },
        // What a clone's lies on is read only.
        _ => KeptVolume { below: true, ..kept(path, true, false) },
    });
    let disks = asked.files.disks.iter().zip(spec.disks());
    let disks = disks.map(|(disk, dir)| kept(dir.clone(), disk.read_only, true));
    volumes.chain(disks).chain(layer).collect()
}

/// Opens it; a disk is kept from others in `disks`.
fn open(store: &VolumeStore, kept: &KeptVolume, disks: &mut Vec<Held>) -> io::Result<Volume> {
    let path = &kept.path;
    let cannot = |e: io::Error| io::Error::new(e.kind(), format!("cannot open {}: {e}", path.display()));
    if kept.below {
        return Volume::open_shared(path).map_err(cannot);
    }
    if !kept.disk {
        let volume = Volume::open(path, kept.read_only).map_err(cannot)?;
        return match kept.bytes {
            Some(bytes) => Ok(volume.with_bytes(bytes)),
            None => Ok(volume.with_bound(store.bound(path).map_err(io::Error::other)?)),
        };
    }
    let held = Held::of(path, kept.read_only).map_err(io::Error::other)?;
    let in_use = || {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        io::Error::new(io::ErrorKind::ResourceBusy, format!("another domain runs with disk {name:?}"))
    };
    let held = held.ok_or_else(in_use)?;
    let volume = held.volume().map_err(io::Error::other)?;
    disks.push(held);
    Ok(volume)
}

impl Service {
    pub fn new(config: &KeeperConfig) -> Self {
        let dir = records(&config.runtime).join(STORAGE);
        Self { manager: None, dir, store: VolumeStore::of(&config.store) }
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

    /// Rung when domains are served, or will not be; none before the first domain that wants it.
    pub fn bell(&self) -> Option<BorrowedFd<'_>> {
        self.manager.as_ref().map(Manager::bell)
    }

    /// The bell was heard.
    pub fn heard(&self) {
        self.manager.iter().for_each(Manager::heard);
    }

    /// Gives a domain that begins these volumes; by this channel, if it was made with one. If it goes on from a frozen image, `known` is
    /// what was known of its files then, and what its disks were if it goes on itself.
    pub fn attach(
        &mut self,
        id: &str,
        run: u64,
        volumes: Vec<KeptVolume>,
        channel: Option<Channel>,
        (known, frozen): (Option<&Path>, &FrozenDisks),
    ) -> io::Result<Storage> {
        let nodes = self.nodes(id, run);
        // Nothing is known of its files from before.
        match fs::remove_file(&nodes) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        if let Some(known) = known {
            self.make_dir()?;
            doppel_storage::copy_nodes(known, &nodes, &mut |_, _, _| Ok(Remap::Same))?;
        }
        self.add(nodes, volumes, Some(frozen), |manager, opened, file| match channel {
            Some(channel) => manager.attach_by(opened, channel, file),
            None => manager.attach_in(opened, file),
        })
    }

    fn make_dir(&self) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)
    }

    /// Goes on with the volumes of a domain that goes on.
    pub fn resume(
        &mut self,
        id: &str,
        run: u64,
        volumes: Vec<KeptVolume>,
        channel: Channel,
    ) -> io::Result<Storage> {
        let nodes = self.nodes(id, run);
        self.add(nodes, volumes, None, |manager, opened, file| manager.resume(opened, channel, file))
    }

    /// Holds the volumes of a domain that has them itself.
    pub fn hold(&self, volumes: Vec<KeptVolume>) -> io::Result<Storage> {
        self.check_own(&volumes)?;
        let leases = self.leases(&volumes, None)?;
        Ok(Storage { service: None, volumes, leases, disks: None })
    }

    /// Refuses volumes with limits to a domain that has them itself, and so writes past the service.
    fn check_own(&self, volumes: &[KeptVolume]) -> io::Result<()> {
        let own = volumes.iter().filter(|kept| kept.own).map(|kept| kept.path.as_path());
        self.store.check_uncounted(own).map_err(io::Error::other)
    }

    fn leases(&self, volumes: &[KeptVolume], attachment: Option<&Attachment>) -> io::Result<Leases> {
        // What a domain has itself nobody can ask it to give up.
        let attachment = attachment.filter(|_| !volumes.iter().any(|kept| kept.own));
        let lessor = attachment.map(Attachment::lessor).transpose()?;
        let sources: Vec<_> = volumes.iter().map(|v| v.path.clone()).collect();
        self.store.hold(&sources, lessor).map_err(io::Error::other)
    }

    fn nodes(&self, id: &str, run: u64) -> PathBuf {
        self.dir.join(format!("{id}.{run}"))
    }

    /// `frozen`: the domain begins, with disks that are as these say.
    fn add(
        &mut self,
        nodes: PathBuf,
        volumes: Vec<KeptVolume>,
        frozen: Option<&FrozenDisks>,
        attach: impl FnOnce(&Manager, Vec<Volume>, OwnedFd) -> io::Result<Attachment>,
    ) -> io::Result<Storage> {
        self.check_own(&volumes)?;
        let mut disks = Vec::new();
        let served = volumes.iter().filter(|kept| !kept.own);
        let opened =
            served.clone().map(|kept| open(&self.store, kept, &mut disks)).collect::<io::Result<Vec<_>>>()?;
        if let Some(frozen) = frozen {
            let mut states = frozen.all().iter().map(|disk| disk.state.as_str());
            disks.iter().try_for_each(|disk| disk.begin(states.next())).map_err(io::Error::other)?;
        }
        self.make_dir()?;
        let file = doppel_storage::nodes_file(&nodes)?;
        let manager = match &mut self.manager {
            Some(manager) => manager,
            none => none.insert(Manager::of_this_program(ServiceGroups::of_host())?),
        };
        let first = served.clone().position(|volume| volume.disk).unwrap_or(0);
        let cached: Vec<u64> = (0..).zip(served).filter(|(_, v)| v.cached).map(|(n, _)| n).collect();
        let served = Served { attachment: Arc::new(attach(manager, opened, file)?), nodes };
        let disks = InUse::new(&served.attachment, first, disks).map(Arc::new);
        let leases = self.leases(&volumes, Some(&served.attachment))?;
        served.attachment.keep_recent(cached.into_iter())?;
        Ok(Storage { service: Some(served), volumes, leases, disks })
    }

    /// Removes what is known of files of domains that are no more.
    pub fn sweep<'a>(&self, used: impl Iterator<Item = &'a Storage>) {
        let used: Vec<_> = used.filter_map(|s| s.service.as_ref()).map(|s| s.nodes.as_path()).collect();
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
