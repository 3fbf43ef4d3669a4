//! What a frozen image keeps of its domain's volumes, in a directory beside it (`NAME.volumes`).
//!
//! ```text
//! volumes.json    the domain's mounts that are files of the host, and where these were
//! nodes           what the storage service knew of its files
//! N/              files of volume N, of which clones have copies
//! ```

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use doppel_spec::{Files, Mount, OnClone};
use doppel_storage::{Remap, copy_nodes};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use serde::{Deserialize, Serialize};

use crate::error::{IoContext, Result};
use crate::store::VolumeStore;

const RECORD: &str = "volumes.json";
const NODES: &str = "nodes";

/// What a domain has of volumes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Held {
    /// Binds and volumes, in their order.
    pub mounts: Vec<Mount>,
    /// Where on this host these are.
    pub sources: Vec<PathBuf>,
    /// What the storage service knows of its files, as [`doppel_storage::nodes_file`] has it.
    pub nodes: PathBuf,
}

/// What a frozen image keeps of that.
#[derive(Clone, Debug)]
pub struct FrozenVolumes {
    dir: PathBuf,
    held: Held,
}

/// Where files are in a copy, by device and number of the ones that were copied; and the copy's root.
type Copied = (OwnedFd, HashMap<(u64, u64), PathBuf>);

impl Held {
    /// Keeps it for a frozen image in a directory, in place of what is there. The domain stands still, and its service has seen all that it
    /// has written. `wakes`: the domain goes on itself, with the same volumes.
    ///
    /// # Errors
    /// What the host says; nothing is left behind then.
    pub fn keep(&self, dir: &Path, wakes: bool) -> Result<()> {
        forget(dir)?;
        DirBuilder::new().mode(0o700).create(dir).doing("make", dir)?;
        self.keep_in(dir, wakes).inspect_err(|_| {
            // What is left is replaced by the next one of that name.
            let _ = forget(dir);
        })
    }

    fn keep_in(&self, dir: &Path, wakes: bool) -> Result<()> {
        let mut copies = HashMap::new();
        for (i, (mount, source)) in self.mounts.iter().zip(&self.sources).enumerate() {
            if mount.on_clone == OnClone::Snapshot && !wakes {
                let to = dir.join(i.to_string());
                DirBuilder::new().mode(0o755).create(&to).doing("make", &to)?;
                copies.insert(i as u64, copied(source, &to)?);
            }
        }
        let nodes = dir.join(NODES);
        copy_nodes(&self.nodes, &nodes, &mut |volume, device, number| place(&copies, volume, device, number))
            .doing("copy to", &nodes)?;
        let path = dir.join(RECORD);
        let text = serde_json::to_vec(self).map_err(io::Error::from).doing("write", &path)?;
        fs::write(&path, text).doing("write", &path)?;
        for path in [&path, &nodes, dir] {
            File::open(path).and_then(|file| file.sync_all()).doing("sync", path)?;
        }
        Ok(())
    }
}

/// Removes what is kept for a frozen image, if there is something.
fn forget(dir: &Path) -> Result<()> {
    match fs::remove_dir_all(dir) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e).doing("remove", dir),
        _ => Ok(()),
    }
}

fn copied(from: &Path, to: &Path) -> Result<Copied> {
    let places = crate::copy::tree(from, to).doing("copy", from)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(to, flags, Mode::empty()).map_err(io::Error::from).doing("open", to)?;
    Ok((root, places))
}

/// Where a file is now of which it is known where it was.
fn place(copies: &HashMap<u64, Copied>, volume: u64, device: u64, number: u64) -> io::Result<Remap> {
    let Some((root, places)) = copies.get(&volume) else { return Ok(Remap::Same) };
    let Some(path) = places.get(&(device, number)) else { return Ok(Remap::Gone) };
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    Ok(Remap::To(rustix::fs::openat2(root, path, flags, Mode::empty(), how)?))
}

impl FrozenVolumes {
    /// What is kept in this directory.
    ///
    /// # Errors
    /// It is not there, or damaged.
    pub fn open(dir: &Path) -> Result<Self> {
        let path = dir.join(RECORD);
        let text = fs::read(&path).doing("read", &path)?;
        let held = serde_json::from_slice(&text).map_err(io::Error::from).doing("read", &path)?;
        Ok(Self { dir: dir.to_owned(), held })
    }

    /// How many volumes and binds the domain had.
    #[must_use]
    pub fn count(&self) -> usize {
        self.held.mounts.len()
    }

    /// What the storage service knew of the domain's files.
    #[must_use]
    pub fn nodes(&self) -> PathBuf {
        self.dir.join(NODES)
    }

    /// What the domain had mounted, and has again when it wakes.
    #[must_use]
    pub fn mounts(&self) -> &[Mount] {
        &self.held.mounts
    }

    /// Has `files` mount what a clone is to have: the same volumes, copies of them or new ones, which are made; and says in a new file at
    /// `nodes` what a service knows of the clone's files.
    ///
    /// # Errors
    /// What the host says; volumes that were made are named by `files`.
    pub fn for_clone(&self, store: &VolumeStore, files: &mut Files, nodes: &Path) -> Result<()> {
        let (mut copies, mut gone) = (HashMap::new(), Vec::new());
        let parent = nodes.parent().unwrap_or(nodes);
        fs::create_dir_all(parent).doing("make", parent)?;
        files.mounts.clear();
        for (i, mount) in self.held.mounts.iter().enumerate() {
            let mut mount = mount.clone();
            if mount.on_clone != OnClone::Share {
                let limits = mount.source.as_deref().and_then(|name| store.get(name).ok()).map(|v| v.limits);
                let made = store.create_anonymous(limits.unwrap_or_default())?;
                mount.source = Some(made.name.clone());
                files.mounts.push(mount.clone());
                match mount.on_clone {
                    OnClone::Snapshot => {
                        copies.insert(i as u64, copied(&self.dir.join(i.to_string()), &made.path)?);
                    }
                    _ => gone.push(i as u64),
                }
            } else {
                files.mounts.push(mount);
            }
        }
        let copy =
            copy_nodes(&self.nodes(), nodes, &mut |volume, device, number| match gone.contains(&volume) {
                true => Ok(Remap::Gone),
                false => place(&copies, volume, device, number),
            });
        copy.doing("copy to", nodes)
    }
}
