//! A domain's volumes, layer and disks, with a storage service of this command's own for disks, and the volumes and layer of a para domain.

use std::error::Error;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use doppel_api::{BlockDevice, Files, Mount, OnClone, Resources};
use doppel_disks::{DiskStore, FrozenDisks, Held, InUse};
use doppel_domain::{DomainConfig, Kind, ServiceGroups, StorageLink};
use doppel_freezer::FrozenImage;
use doppel_layers::{Base, LayerStore, Lock};
use doppel_storage::{Attachment, Manager, Remap, Volume};
use doppel_volumes::{FrozenVolumes, Leases, VolumeStore};

/// The volumes, the layer and the disks of one domain, as long as it runs.
#[derive(Default)]
pub struct Storage {
    sources: Vec<PathBuf>,
    /// What is mounted there.
    mounts: Vec<Mount>,
    attached: Option<Attached>,
    leases: Leases,
    layer: Option<Lock>,
    disks: Option<Arc<InUse>>,
    /// Those that go with the domain.
    anonymous: Vec<String>,
    store: Option<VolumeStore>,
    /// Its disks that go with it, and what all of its disks are.
    own_disks: Option<DiskStore>,
    block_devices: Vec<BlockDevice>,
    /// The layer goes with the domain.
    of_clone: Option<(LayerStore, String)>,
}

struct Attached {
    attachment: Arc<Attachment>,
    /// What the service knows of the domain's files.
    nodes: OwnedFd,
    _manager: Arc<Manager>,
}

/// What a domain is of: its kind, what it may use, and its image's name and file.
pub struct Subject<'a> {
    pub kind: Kind,
    pub resources: &'a Resources,
    pub image: &'a str,
    pub path: &'a Path,
}

impl Storage {
    /// Makes what the files name and is not there yet, and starts a storage service if the domain needs one. `store`: where
    /// volumes and layers are.
    pub fn prepare(files: &mut Files, of: &Subject<'_>, store: &Path) -> Result<Self, Box<dyn Error>> {
        if files.volumes().next().is_none() && !files.is_kept() && files.disks.is_empty() {
            return Ok(Self::default());
        }
        files.check_disks().map_err(|(_, why)| why)?;
        let disks = held_disks(&files.disks, &DiskStore::of(store))?;
        let layer = files.layer.as_deref().map(|name| hold(name, of, store)).transpose()?;
        let store = VolumeStore::of(store);
        let nameless: Vec<bool> = files.volumes().map(|v| v.source.is_none()).collect();
        store.prepare(files, of.path)?;
        let name = |v: &doppel_api::Mount| v.source.clone().unwrap_or_default();
        let anonymous =
            files.volumes().zip(nameless).filter(|(_, none)| *none).map(|(v, _)| name(v)).collect();
        let mut own = Self::default();
        (own.sources, own.mounts) = (store.sources(files)?, files.mounts.clone());
        own.store = Some(store.clone());
        match of.kind {
            Kind::Para => {
                let mut volumes = opened(files, &own.sources, &store)?;
                volumes.extend(begun(&disks, &FrozenDisks::default())?);
                if let Some(layer) = &layer {
                    volumes.extend(of_layer(&layer.dir, of.resources)?);
                }
                let manager = Arc::new(Manager::of_this_program(ServiceGroups::of_host())?);
                own.attach((volumes, disks), doppel_storage::node_memory()?, manager, of.resources)?;
            }
            Kind::Paene => {
                store.check_uncounted(own.sources.iter().map(PathBuf::as_path))?;
                own.leases = store.hold(&own.sources, None)?;
                if !disks.is_empty() {
                    let volumes = begun(&disks, &FrozenDisks::default())?;
                    let manager = Arc::new(Manager::of_this_program(ServiceGroups::of_host())?);
                    own.attach_disks((volumes, disks), manager, of.resources)?;
                }
            }
        }
        (own.layer, own.anonymous) = (layer, anonymous);
        Ok(own)
    }

    /// What the clone with this number of a frozen image has of volumes, and a layer, if files of the image are in one. The layer goes with
    /// the clone. Clones have `service` in common, which is started with the first of them.
    pub fn of_clone(
        image: &FrozenImage,
        index: u32,
        resources: &Resources,
        store: &Path,
        service: &mut Option<Arc<Manager>>,
    ) -> Result<Self, Box<dyn Error>> {
        let (layers, frozen) = (image.layers()?, image.volumes());
        if layers.is_none() && frozen.is_none() {
            return Ok(Self::default());
        }
        let mut own = Self::default();
        let (mut volumes, mut disks, mut nodes) = (Vec::new(), Vec::new(), doppel_storage::node_memory()?);
        if let Some(dir) = frozen {
            let volume_store = own.store.insert(VolumeStore::of(store)).clone();
            let (mut files, place) = (Files::default(), tempfile::tempdir()?);
            let known = place.path().join("nodes");
            let given = FrozenVolumes::open(&dir)?.for_clone(&volume_store, &mut files, &known);
            let private = files.volumes().filter(|mount| mount.on_clone != OnClone::Share);
            own.anonymous = private.filter_map(|mount| mount.source.clone()).collect();
            given?;
            volumes = own.take(files, &volume_store)?;
            nodes = doppel_storage::nodes_file(&known)?;
            let disk_store = own.own_disks.insert(DiskStore::of(store));
            FrozenDisks::open(&dir)?.for_clone(disk_store, &mut own.block_devices)?;
            disks = held_disks(&own.block_devices, disk_store)?;
            volumes.extend(begun(&disks, &FrozenDisks::default())?);
        }
        if let Some(from) = layers {
            let description = image.describe();
            let base = Base { image: description.image, digest: description.image_digest, kind: Kind::Para };
            let layers = LayerStore::of(store);
            let name = format!("clone-{}-{index}", std::process::id());
            let layer = layers.hold(&layers.of_clone(&name, &base, &from, None)?)?;
            volumes.extend(of_layer(&layer.dir, resources)?);
            (own.layer, own.of_clone) = (Some(layer), Some((layers, name)));
        }
        let manager = match service {
            Some(manager) => manager.clone(),
            None => Arc::new(Manager::of_this_program(ServiceGroups::of_host())?),
        };
        *service = Some(manager.clone());
        own.attach((volumes, disks), nodes, manager, resources)?;
        Ok(own)
    }

    /// The volumes and disks of a domain that wakes.
    pub fn of_sleeper(image: &FrozenImage, store: &Path) -> Result<Self, Box<dyn Error>> {
        let Some(dir) = image.volumes() else { return Ok(Self::default()) };
        let (mut own, frozen) = (Self::default(), FrozenVolumes::open(&dir)?);
        let (disk_store, frozen_disks) = (DiskStore::of(store), FrozenDisks::open(&dir)?);
        let store = own.store.insert(VolumeStore::of(store)).clone();
        let files = Files { mounts: frozen.mounts().to_vec(), ..Files::default() };
        let mut volumes = own.take(files, &store)?;
        own.block_devices = frozen_disks.block_devices();
        let disks = held_disks(&own.block_devices, &disk_store)?;
        volumes.extend(begun(&disks, &frozen_disks)?);
        // It may be frozen there again while this is in use.
        let nodes = tempfile::tempdir()?;
        let known = nodes.path().join("nodes");
        doppel_storage::copy_nodes(&frozen.nodes(), &known, &mut |_, _, _| Ok(Remap::Same))?;
        let manager = Arc::new(Manager::of_this_program(ServiceGroups::of_host())?);
        own.attach((volumes, disks), doppel_storage::nodes_file(&known)?, manager, &Resources::default())?;
        Ok(own)
    }

    /// Finds what `files` mount.
    fn take(&mut self, files: Files, store: &VolumeStore) -> Result<Vec<Volume>, Box<dyn Error>> {
        self.sources = store.sources(&files)?;
        let volumes = opened(&files, &self.sources, store)?;
        self.mounts = files.mounts;
        Ok(volumes)
    }

    fn attach(
        &mut self,
        (volumes, disks): (Vec<Volume>, Vec<Held>),
        nodes: OwnedFd,
        manager: Arc<Manager>,
        resources: &Resources,
    ) -> Result<(), Box<dyn Error>> {
        let attachment = Arc::new(manager.attach_in(volumes, nodes.try_clone()?)?);
        self.disks = InUse::new(&attachment, self.sources.len(), disks).map(Arc::new);
        attachment.limit(doppel_volumes::rates(resources)?);
        attachment.keep_recent(cached(&self.mounts))?;
        if let Some(store) = &self.store {
            self.leases = store.hold(&self.sources, Some(attachment.lessor()?))?;
        }
        self.attached = Some(Attached { attachment, nodes, _manager: manager });
        Ok(())
    }

    /// Attaches the disks of a domain that has its volumes itself.
    fn attach_disks(
        &mut self,
        (volumes, disks): (Vec<Volume>, Vec<Held>),
        manager: Arc<Manager>,
        resources: &Resources,
    ) -> Result<(), Box<dyn Error>> {
        let nodes = doppel_storage::node_memory()?;
        let attachment = Arc::new(manager.attach_in(volumes, nodes.try_clone()?)?);
        self.disks = InUse::new(&attachment, 0, disks).map(Arc::new);
        attachment.limit(doppel_volumes::rates(resources)?);
        self.attached = Some(Attached { attachment, nodes, _manager: manager });
        Ok(())
    }

    /// Gives it to a domain that goes on from a frozen image.
    pub fn give(&self, config: &mut DomainConfig) {
        (config.layer, config.storage) = (self.layer(), self.link());
        (config.sources, config.spec.files.mounts) = (self.sources(), self.mounts.clone());
        config.spec.files.disks.clone_from(&self.block_devices);
    }

    /// Waits until the service serves the domain, which would wait for it for ever.
    pub fn wait_served(&self) -> Result<(), Box<dyn Error>> {
        let served = self.attached.as_ref().map_or(Ok(()), |attached| attached.attachment.wait_served());
        Ok(served.map_err(|e| format!("it cannot have its volumes or disks: {e}"))?)
    }

    /// Where on this host they are.
    pub fn sources(&self) -> Vec<PathBuf> {
        self.sources.clone()
    }

    /// Where on this host its layer is.
    pub fn layer(&self) -> Option<PathBuf> {
        self.layer.as_ref().map(|layer| layer.dir.clone())
    }

    /// What a domain is given of its storage service.
    pub fn link(&self) -> Option<StorageLink> {
        let Attached { attachment, nodes, .. } = self.attached.as_ref()?;
        Some(StorageLink {
            memory: attachment.memory.clone(),
            doorbell: attachment.doorbell.clone(),
            nodes: Some(format!("/proc/self/fd/{}", nodes.as_raw_fd()).into()),
            disks: self.disks.as_ref().map(Arc::downgrade),
        })
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        self.leases.end();
        if let Some((layers, name)) = self.of_clone.take() {
            self.attached = None;
            self.layer = None;
            // Whoever prunes finds what cannot be removed.
            let _ = layers.remove(&name);
        }
        if let Some(store) = self.own_disks.take() {
            (self.attached, self.disks) = (None, None);
            for disk in &self.block_devices {
                // Whoever removes disks finds it.
                let _ = store.remove(&disk.name);
            }
        }
        let Some(store) = &self.store else { return };
        for name in &self.anonymous {
            // Another domain may have it by now; whoever prunes finds it.
            let _ = store.remove(name);
        }
    }
}

/// The layer of this name, which is made if it is not there, for this domain alone.
fn hold(name: &str, of: &Subject<'_>, store: &Path) -> Result<Lock, Box<dyn Error>> {
    let digest = doppel_domain::image_digest(of.path)?.iter().map(|byte| format!("{byte:02x}")).collect();
    let layers = LayerStore::of(store);
    let layer = layers.named(name, &Base { image: of.image.to_owned(), digest, kind: of.kind }, None)?;
    Ok(layers.hold(&layer)?)
}

/// The disks that it is to have, for this domain alone if it writes.
fn held_disks(wanted: &[BlockDevice], store: &DiskStore) -> Result<Vec<Held>, Box<dyn Error>> {
    let hold = |wanted: &BlockDevice| store.hold(&store.get(&wanted.name)?, wanted.read_only);
    Ok(wanted.iter().map(hold).collect::<Result<_, _>>()?)
}

/// What a storage service is given of these, with which a domain begins; `frozen`: which it had, if it goes on itself.
fn begun(disks: &[Held], frozen: &FrozenDisks) -> Result<Vec<Volume>, Box<dyn Error>> {
    let mut states = frozen.all().iter().map(|disk| disk.state.as_str());
    let begin = |disk: &Held| disk.begin(states.next()).and_then(|()| disk.volume());
    Ok(disks.iter().map(begin).collect::<Result<_, _>>()?)
}

/// Numbers of the volumes of which a domain keeps for a moment what it has read.
fn cached(mounts: &[Mount]) -> impl Iterator<Item = u64> {
    let volumes = mounts.iter().filter(|mount| mount.is_volume());
    (0..).zip(volumes).filter(|(_, mount)| mount.cached).map(|(number, _)| number)
}

/// The binds and volumes of a domain, in their order.
fn opened(files: &Files, sources: &[PathBuf], store: &VolumeStore) -> Result<Vec<Volume>, Box<dyn Error>> {
    let open = |(path, read_only): (PathBuf, bool)| -> Result<Volume, Box<dyn Error>> {
        let volume = Volume::open(&path, read_only);
        let volume = volume.map_err(|e| format!("cannot open {}: {e}", path.display()))?;
        Ok(volume.with_bound(store.bound(&path)?))
    };
    files.volumes().zip(sources).map(|(mount, path)| open((path.clone(), mount.is_read_only()))).collect()
}

/// The files of a layer.
fn of_layer(dir: &Path, resources: &Resources) -> Result<Vec<Volume>, Box<dyn Error>> {
    let mut volumes = Vec::new();
    for (i, path) in doppel_layers::files(dir).iter().enumerate() {
        // What a clone's lies on is read only.
        let volume = if i == 0 { Volume::open(path, false) } else { Volume::open_shared(path) };
        let volume = volume.map_err(|e| format!("cannot open {}: {e}", path.display()))?;
        volumes.push(match resources.disk_bytes.filter(|_| i == 0) {
            Some(bytes) => volume.with_bytes(doppel_layers::most(bytes)),
            None => volume,
        });
    }
    Ok(volumes)
}

/// The service domain's process.
pub fn service(polls: bool) -> Result<ExitCode, Box<dyn Error>> {
    // It ends with this command.
    Ok(doppel_storage::serve(std::io::stdin().as_fd(), polls)?)
}
