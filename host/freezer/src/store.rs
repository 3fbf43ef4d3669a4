//! Frozen images by name.
//!
//! ```text
//! STORE/frozen/NAME.frozen       on disk
//! STORE/frozen/NAME.ancestors/   files of older images in which some of its memory is (ancestors.rs)
//! STORE/frozen/NAME.volumes/     what it keeps of the domain's volumes, if it had some (host/volumes)
//! STORE/frozen/NAME.layers/      files of layers that its memory refers to, if there are some (host/layers)
//! /dev/shm/doppel-frozen/UID/NAME.frozen   in memory, gone at the host's next boot
//! ```
//! A name is unique over both. Who has an image open (a clone, for its whole life) holds a shared lock on it;
//! removing takes the exclusive one.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use doppel_abi_service::storage::SHARED;
use rustix::fs::FlockOperation;

use crate::ancestors;
use crate::draft::Draft;
use crate::error::{Error, Result};
use crate::export::{read_file, write_file};
use crate::{FrozenImage, WorkingSet, checked};

mod flatten;

const SUFFIX: &str = "frozen";
/// How long what is left of a clone that has ended may have its image open, on a busy host.
const PATIENCE: Duration = Duration::from_secs(1);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(5);
/// Beside the files of layers: how these are one (host/layers).
const STACK: &str = "stack";

/// Where an image is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Medium {
    /// On disk: survives the host.
    #[default]
    Disk,
    /// In the host's memory.
    Memory,
}

/// One image of the store.
#[derive(Debug)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Its file.
    pub path: PathBuf,
    /// Where it is.
    pub medium: Medium,
    /// Bytes it takes.
    pub used: u64,
}

/// The frozen images of one user.
#[derive(Clone, Debug)]
pub struct FrozenStore {
    disk: PathBuf,
    memory: PathBuf,
}

/// Whether this is the file of an image in which a domain sleeps: its name says so.
#[must_use]
pub fn is_of_sleeper(image: &Path) -> bool {
    image.file_stem().is_some_and(|name| name.as_encoded_bytes().ends_with(b".asleep"))
}

impl FrozenStore {
    /// The store below `root` (see `doppel_image::Store`).
    #[must_use]
    pub fn new(root: &Path) -> Self {
        let uid = rustix::process::geteuid().as_raw();
        // One host may hold several stores.
        let tag = root.to_string_lossy().replace('/', "_");
        Self {
            disk: root.join("frozen"),
            memory: PathBuf::from(format!("/dev/shm/doppel-frozen-{uid}{tag}")),
        }
    }

    fn dir(&self, medium: Medium) -> &Path {
        match medium {
            Medium::Disk => &self.disk,
            Medium::Memory => &self.memory,
        }
    }

    /// Where a new image called `name` goes.
    ///
    /// # Errors
    /// If the name is taken or no name, or the directory cannot be made.
    pub fn vacant(&self, name: &str, medium: Medium) -> Result<PathBuf> {
        check_name(name)?;
        if let Some(taken) = self.find(name) {
            return Err(Error::Request(format!(
                "a frozen image named {name} exists ({}); remove it with `doppel frozen rm {name}` or choose another name",
                taken.display()
            )));
        }
        let dir = self.dir(medium);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .map_err(Error::host(format!("make {}", dir.display())))?;
        let meta = fs::metadata(dir).map_err(Error::host(format!("examine {}", dir.display())))?;
        if meta.uid() != rustix::process::geteuid().as_raw() || meta.mode() & 0o022 != 0 {
            return Err(Error::Request(format!("{} is not only ours to write; remove it", dir.display())));
        }
        Ok(dir.join(name).with_added_extension(SUFFIX))
    }

    fn find(&self, name: &str) -> Option<PathBuf> {
        [Medium::Memory, Medium::Disk]
            .into_iter()
            .map(|p| self.dir(p).join(name).with_added_extension(SUFFIX))
            .find(|p| p.exists())
    }

    /// The file of an image.
    ///
    /// # Errors
    /// If there is none of that name.
    pub fn path(&self, name: &str) -> Result<PathBuf> {
        check_name(name)?;
        self.find(name).ok_or_else(|| {
            Error::Request(format!("no frozen image named {name}; `doppel frozen ls` lists them"))
        })
    }

    /// Opens an image, checked whole.
    ///
    /// # Errors
    /// As [`FrozenImage::open`].
    pub fn open(&self, name: &str) -> Result<FrozenImage> {
        FrozenImage::open(&self.path(name)?)
    }

    /// Opens the image of a domain that is to wake: what it will touch first, as far as that is known, is checked
    /// and brought to memory; [`FrozenImage::check_rest`] is for afterwards. Without `prefetch`, all is.
    ///
    /// # Errors
    /// As [`FrozenImage::open`], and if the domain is awake or a clone of it runs.
    pub fn open_to_wake(&self, name: &str, prefetch: bool) -> Result<FrozenImage> {
        let path = self.path(name)?;
        let first = if prefetch { WorkingSet::load(&path) } else { None };
        FrozenImage::open_ahead(&path, first.as_ref())
    }

    /// All images, by name.
    ///
    /// # Errors
    /// If a directory cannot be read.
    pub fn list(&self) -> Result<Vec<Entry>> {
        let mut all = Vec::new();
        for medium in [Medium::Disk, Medium::Memory] {
            let dir = self.dir(medium);
            let entries = match fs::read_dir(dir) {
                Ok(entries) => entries,
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                Err(e) => return Err(Error::host(format!("list {}", dir.display()))(e)),
            };
            for entry in entries.flatten() {
                let path = entry.path();
                let (Some(name), true) = (path.file_stem(), path.extension().is_some_and(|e| e == SUFFIX))
                else {
                    continue;
                };
                let used = entry.metadata().map_or(0, |m| m.blocks() * 512);
                all.push(Entry {
                    name: name.to_string_lossy().into_owned(),
                    path: path.clone(),
                    medium,
                    used,
                });
            }
        }
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }

    /// Removes an image that nobody uses. What is left of a clone that has just ended may have it open for a moment: that is waited for.
    ///
    /// # Errors
    /// If there is none, or a clone of it lives.
    pub fn remove(&self, name: &str) -> Result<()> {
        self.remove_within(name, PATIENCE)
    }

    /// The same without waiting.
    ///
    /// # Errors
    /// As above.
    pub fn remove_at_once(&self, name: &str) -> Result<()> {
        self.remove_within(name, Duration::ZERO)
    }

    fn remove_within(&self, name: &str, patience: Duration) -> Result<()> {
        let path = self.path(name)?;
        let doing = || format!("remove {}", path.display());
        let mut file = File::open(&path).map_err(Error::host(doing()))?;
        let begun = Instant::now();
        loop {
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {
                    // It may have been flattened meanwhile.
                    let there = File::open(&path).map_err(Error::host(doing()))?;
                    if inode(&there)? == inode(&file)? {
                        break;
                    }
                    file = there;
                }
                Err(rustix::io::Errno::WOULDBLOCK) if begun.elapsed() < patience => std::thread::sleep(PAUSE),
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    return Err(Error::Request(format!(
                        "frozen image {name} is in use by a clone; stop its clones first"
                    )));
                }
                Err(e) => return Err(Error::os(doing())(e)),
            }
        }
        fs::remove_file(&path).map_err(Error::host(doing()))?;
        ancestors::forget(&path)?;
        forget_layers(&path)?;
        forget_dir(&FrozenImage::volumes_beside(&path))?;
        checked::forget(&path).map_err(Error::host(doing()))?;
        forget_working_set(&path)
    }

    /// Removes the image that a domain woke from and has no more use for, although it is still open.
    ///
    /// # Errors
    /// What the host says.
    pub fn discard(&self, image: &FrozenImage) -> Result<()> {
        let path = image.path();
        fs::remove_file(path).map_err(Error::host(format!("remove {}", path.display())))?;
        ancestors::forget(path)?;
        forget_dir(&FrozenImage::volumes_beside(path))?;
        checked::forget(path).map_err(Error::host(format!("remove what is beside {}", path.display())))?;
        forget_working_set(path)
    }

    /// Makes an image whole that has ancestors, so that it needs no other file; how many bytes it takes then. Clones of it go on with
    /// the files they have.
    ///
    /// # Errors
    /// If there is none or it is damaged, its domain is awake, or what the host says. It is as it was then.
    pub fn flatten(&self, name: &str) -> Result<u64> {
        let path = self.path(name)?;
        // Locked until it is done: nobody removes it meanwhile, so that it would come back.
        let image = FrozenImage::open(&path)?;
        let failed = || Error::host(format!("name the frozen image {}", path.display()));
        if image.has_ancestors() {
            let draft = flatten::whole(&image, &path)?;
            draft.as_file().sync_data().map_err(failed())?;
            draft.persist(&path).map_err(failed())?;
            File::open(path.parent().unwrap_or(Path::new(".")))
                .and_then(|d| d.sync_all())
                .map_err(failed())?;
            ancestors::forget(&path)?;
        }
        Ok(fs::metadata(&path).map_err(failed())?.blocks() * 512)
    }

    /// Removes what is left of images whose making or removal was interrupted.
    ///
    /// # Errors
    /// What the host says.
    pub fn sweep(&self) -> Result<()> {
        for dir in [&self.disk, &self.memory] {
            let swept = ancestors::sweep(dir).and_then(|()| checked::sweep(dir));
            swept.map_err(Error::host(format!("sweep {}", dir.display())))?;
        }
        Ok(())
    }

    /// Writes an image to `out`, whole, with the files of layers that its memory refers to.
    ///
    /// # Errors
    /// If it is damaged, a domain sleeps in it whose files are its own, or what the host says.
    pub fn export(&self, name: &str, out: &mut dyn Write) -> Result<u64> {
        let image = self.open(name)?;
        if image.volumes().is_some() {
            return Err(Error::Request(format!(
                "frozen image {name} is of a domain with volumes, which are this host's: it is not exported"
            )));
        }
        let failed = || Error::host("export a frozen image");
        let layers = image.layers()?;
        let flat = image.has_ancestors().then(|| flatten::whole(&image, image.path())).transpose()?;
        let file = flat.as_ref().map_or(image.file(), Draft::as_file);
        let len = file.metadata().map_err(failed())?.len();
        out.write_all(EXPORT_MAGIC).map_err(failed())?;
        write_file(file, len, out)?;
        if let Some(dir) = layers {
            for number in 0..image.header().layers {
                let path = dir.join(number.to_string());
                let file = File::open(&path).map_err(Error::host(format!("open {}", path.display())))?;
                // The domain that was frozen writes behind what it has in common with the image.
                let mut end = [0; size_of::<u64>()];
                let end = match rustix::fs::fgetxattr(&file, SHARED, &mut end) {
                    Ok(8) => u64::from_le_bytes(end),
                    _ => u64::MAX,
                };
                let len = file.metadata().map_err(failed())?.len().min(end);
                write_file(&file, len, out)?;
            }
            if let Ok(stack) = File::open(dir.join(STACK)) {
                write_file(&stack, stack.metadata().map_err(failed())?.len(), out)?;
            }
        }
        out.flush().map_err(failed())?;
        Ok(len)
    }

    /// Takes what [`Self::export`] wrote.
    ///
    /// # Errors
    /// If it is not sound, the name is taken, it has files that are not kept in memory, or what the host says; nothing is left behind then.
    pub fn import(&self, name: &str, medium: Medium, from: &mut dyn Read) -> Result<FrozenImage> {
        let to = self.vacant(name, medium)?;
        let failed = || Error::host("import a frozen image");
        let bad = |reason: &str| Error::Damaged { path: name.into(), reason: reason.into() };
        let mut magic = [0u8; 8];
        from.read_exact(&mut magic).map_err(failed())?;
        if magic != *EXPORT_MAGIC {
            return Err(bad("not an exported frozen image"));
        }
        // Without a name until it is whole, so that whoever is killed leaves nothing.
        let temporary = Draft::new(self.dir(medium)).map_err(failed())?;
        read_file(from, temporary.as_file(), &bad)?;
        let nameless = PathBuf::from(format!("/proc/self/fd/{}", temporary.as_file().as_raw_fd()));
        let image = FrozenImage::open(&nameless).map_err(|e| match e {
            Error::Damaged { reason, .. } => bad(&reason),
            other => other,
        })?;
        let layers = image.header().layers;
        if image.volumes().is_some() {
            return Err(bad("it is of a domain with volumes, which are not in it"));
        }
        drop(image);
        match layers {
            0 => {}
            _ if medium == Medium::Memory => {
                return Err(Error::Request(format!(
                    "frozen image {name} has files in layers, which are kept on disk: import it without --in-memory"
                )));
            }
            1..=LAYERS_MOST => import_layers(&to, layers, from, &bad)?,
            _ => return Err(bad("its files are not in it")),
        }
        let persisted = temporary.as_file().sync_data().and_then(|()| temporary.persist(&to));
        if let Err(e) = persisted {
            forget_layers(&to)?;
            return Err(failed()(e));
        }
        FrozenImage::open_unchecked(&to)
    }
}

/// Takes the files of layers for an image that is to be at `image`. What is there of them is of none that was whole.
fn import_layers(image: &Path, count: u8, from: &mut dyn Read, bad: &dyn Fn(&str) -> Error) -> Result<()> {
    forget_layers(image)?;
    let dir = FrozenImage::layers_beside(image);
    let failed = || Error::host("import a frozen image");
    let take = || {
        DirBuilder::new().mode(0o700).create(&dir).map_err(failed())?;
        let one = |name: &str, from: &mut dyn Read| {
            let mut options = File::options();
            let options = options.write(true).create_new(true).mode(0o600);
            let file = options.open(dir.join(name)).map_err(failed())?;
            read_file(from, &file, bad)?;
            file.sync_all().map_err(failed())
        };
        for number in 0..count {
            one(&number.to_string(), from)?;
        }
        // Older versions did not write it.
        let mut first = [0];
        if from.read(&mut first).map_err(failed())? == 1 {
            one(STACK, &mut first.chain(from))?;
        }
        File::open(&dir).and_then(|dir| dir.sync_all()).map_err(failed())
    };
    take().inspect_err(|_| {
        // What is left of it is replaced by the next one of that name.
        let _ = forget_layers(image);
    })
}

fn inode(file: &File) -> Result<u64> {
    Ok(file.metadata().map_err(Error::host("examine a frozen image"))?.ino())
}

/// Removes what is kept of layers for an image.
fn forget_layers(image: &Path) -> Result<()> {
    forget_dir(&FrozenImage::layers_beside(image))
}

fn forget_dir(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            Err(Error::host(format!("remove {}", path.display()))(e))
        }
        _ => Ok(()),
    }
}

fn forget_working_set(image: &Path) -> Result<()> {
    let path = WorkingSet::beside(image);
    match fs::remove_file(&path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            Err(Error::host(format!("remove {}", path.display()))(e))
        }
        _ => Ok(()),
    }
}

const EXPORT_MAGIC: &[u8; 8] = b"DOPPELEX";
/// Most files of layers that an image refers to.
const LAYERS_MOST: u8 = 8;

fn check_name(name: &str) -> Result<()> {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.len() <= 63 && name.chars().all(good) && name.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return Ok(());
    }
    Err(Error::Request(format!(
        "{name:?} is no name for a frozen image: use up to 63 letters, digits, '-', '_' and '.', the first a letter or digit"
    )))
}
