//! The disks of a store.

use std::collections::HashSet;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use doppel_disk::{BLOCK, DATA_AT, MOST_BYTES, MOST_LAYERS};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::error::{Error, IoContext, Result};
use crate::format;
use crate::held::Held;
use crate::layers::{Layers, header_of, name_of, new_id};

const RECORD: &str = "disk.json";
pub(crate) const LOCK: &str = "lock";
/// How long somebody whose domain has ended may still have its lock: a process that it has just made has a copy of the descriptor until it
/// executes its program.
const PATIENCE: Duration = Duration::from_millis(500);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(1);
/// What no disk's name begins with.
const DOT: &str = ".";
/// What is being made or removed begins so.
const UNFINISHED: &str = ".new-";
const GONE: &str = ".gone-";
/// What is kept for a frozen image begins so.
pub(crate) const KEPT: &str = ".kept-";
/// Bytes of a block, as `stat(2)` counts them.
const SECTOR: u64 = 512;

/// A disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// Its name.
    pub name: String,
    /// Its directory on this host.
    pub dir: PathBuf,
    /// When it was made, in seconds since 1970.
    pub created: u64,
    /// Its size in bytes.
    pub size: u64,
    /// Nothing of it changes.
    pub snapshot: bool,
    /// It was made for a clone, and goes with that.
    pub anonymous: bool,
    /// How many layers it has.
    pub layers: usize,
    /// Bytes of the host's disk that its own layer takes: those below may be others' as well.
    pub used: u64,
}

/// What is written down.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub created: u64,
    /// Its topmost layer.
    pub layer: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub snapshot: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub anonymous: bool,
    /// Another one whenever a domain begins to write, or the size changes: what is on the disk may be something else then.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub state: String,
    /// Of one that was made for a clone and is written: the layer it lies on, and its state then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<(String, String)>,
    /// What is kept for a frozen image is needed as long as this file is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needed_by: Option<PathBuf>,
}

impl Record {
    /// Of one that begins, with this topmost layer.
    pub fn new(layer: String) -> Self {
        let created = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let state = name_of(&new_id());
        Self { created, layer, state, snapshot: false, anonymous: false, base: None, needed_by: None }
    }

    /// The same of which nothing changes.
    pub fn snapshot(self) -> Self {
        Self { snapshot: true, ..self }
    }
}

/// All disks of a store.
#[derive(Clone, Debug)]
pub struct DiskStore {
    pub(crate) root: PathBuf,
    pub(crate) layers: Layers,
}

impl DiskStore {
    /// Those of the store in this directory.
    #[must_use]
    pub fn of(store: &Path) -> Self {
        Self::at(store.join("disks"))
    }

    /// Those in this directory.
    pub(crate) fn at(root: PathBuf) -> Self {
        Self { layers: Layers::of(&root), root }
    }

    /// Makes one of so many bytes, all zero.
    ///
    /// # Errors
    /// The name is none or taken, the size is no multiple of 4 KiB up to 8 TiB, or what the host says.
    pub fn create(&self, name: &str, size: u64) -> Result<Disk> {
        check_size(size)?;
        self.make(name, size, |_| Ok(()))
    }

    /// The same with an empty file system on it, that para domains mount.
    ///
    /// # Errors
    /// As for [`Self::create`], or the size is less than 1 MiB.
    pub fn create_formatted(&self, name: &str, size: u64) -> Result<Disk> {
        check_size(size)?;
        format::check_size(size)?;
        self.make(name, size, |dir| {
            let held = Held::of(dir, false)?.ok_or_else(|| Error::InUse(name.to_owned()))?;
            format::make(&held.open()?).doing("format", dir)?;
            held.settle()
        })
    }

    fn make(&self, name: &str, size: u64, prepare: impl FnOnce(&Path) -> Result<()>) -> Result<Disk> {
        let _lock = self.lock()?;
        self.check_free(name)?;
        let layer = self.layers.make(None, size)?;
        self.put(name, &Record::new(name_of(&layer)), prepare)
    }

    /// Makes a disk that is what another one is now, and of which nothing changes. It takes no time and no room.
    ///
    /// # Errors
    /// There is no such disk, a domain writes to it, the name is none or taken, it has too many layers, or what the host says.
    pub fn snapshot(&self, of: &str, name: &str) -> Result<Disk> {
        let _lock = self.lock()?;
        self.check_free(name)?;
        let layer = self.freeze(&self.get(of)?)?;
        self.put(name, &Record::new(layer).snapshot(), |_| Ok(()))
    }

    /// Makes a disk that begins as what another one is now. It takes no time and no room.
    ///
    /// # Errors
    /// As for [`Self::snapshot`].
    pub fn clone_of(&self, of: &str, name: &str) -> Result<Disk> {
        let _lock = self.lock()?;
        self.check_free(name)?;
        let below = self.freeze(&self.get(of)?)?;
        let layer = self.over(&below)?;
        self.put(name, &Record::new(layer), |_| Ok(()))
    }

    /// Why a disk that a domain writes can be neither snapshotted nor cloned, if no supervisor runs that domain.
    #[must_use]
    pub fn in_use_elsewhere(name: &str) -> String {
        format!(
            "disk {name:?} is written by a domain that no supervisor of this store runs (`doppel run` without one): it can be \
             snapshotted and cloned when that has ended"
        )
    }

    /// The layer that has all a disk is now, and in which nothing changes from here on.
    fn freeze(&self, disk: &Disk) -> Result<String> {
        let record = read_record(&disk.dir)?;
        if record.snapshot {
            return Ok(record.layer);
        }
        // Who only reads it does not notice.
        let held = self.hold(disk, true)?;
        held.settle()?;
        let layer = self.over(&record.layer)?;
        // The disk writes elsewhere before anybody relies upon what it has written.
        write_record(&disk.dir, &Record { layer, ..record })?;
        Ok(record.layer)
    }

    /// A new layer over another.
    pub(crate) fn over(&self, below: &str) -> Result<String> {
        if self.layers.chain(below)?.len() >= MOST_LAYERS {
            let text = format!("{MOST_LAYERS} layers are the most: `doppel disk flatten` makes one of them");
            return Err(Error::Wrong(text));
        }
        let path = self.layers.path(below);
        let header = header_of(&File::open(&path).doing("open", &path)?, &path)?;
        Ok(name_of(&self.layers.make(Some(header.id), header.size)?))
    }

    /// Gives a disk another size. What is behind the new end is lost, what comes behind the old one is zero.
    ///
    /// # Errors
    /// There is none, a domain has it, it is a snapshot, the size is none, or what the host says.
    pub fn resize(&self, name: &str, size: u64) -> Result<Disk> {
        check_size(size)?;
        let _lock = self.lock()?;
        let disk = self.get(name)?;
        let held = self.hold(&disk, false)?;
        held.settle()?;
        held.change()?;
        let path = self.layers.path(&read_record(&disk.dir)?.layer);
        let file = File::options().read(true).write(true).open(&path).doing("open", &path)?;
        let header = header_of(&file, &path)?;
        if size > header.size {
            file.set_len(DATA_AT + size).doing("resize", &path)?;
        }
        doppel_disk::resize(&file, header, size).doing("resize", &path)?;
        file.set_len(DATA_AT + size).doing("resize", &path)?;
        self.get(name)
    }

    /// Copies all that a disk has in other layers into its own, so that it needs none of them.
    ///
    /// # Errors
    /// There is none, a domain has it, it is a snapshot, or what the host says.
    pub fn flatten(&self, name: &str) -> Result<Disk> {
        let _lock = self.lock()?;
        let disk = self.get(name)?;
        let held = self.hold(&disk, false)?;
        held.open()?.flatten().doing("flatten", &disk.dir)?;
        self.collect()?;
        self.get(name)
    }

    /// The one of this name.
    ///
    /// # Errors
    /// There is none, or what the host says.
    pub fn get(&self, name: &str) -> Result<Disk> {
        doppel_spec::check_disk_name(name).map_err(Error::Wrong)?;
        let dir = self.dir_of(name);
        let Record { created, layer, snapshot, anonymous, .. } = read_record(&dir)?;
        let paths = self.layers.chain(&layer)?;
        let path = self.layers.path(&layer);
        let file = File::open(&path).doing("open", &path)?;
        let size = header_of(&file, &path)?.size;
        let used = file.metadata().doing("examine", &path)?.blocks() * SECTOR;
        Ok(Disk { name: name.to_owned(), dir, created, size, snapshot, anonymous, layers: paths.len(), used })
    }

    /// All of them, by name.
    ///
    /// # Errors
    /// What the host says.
    pub fn list(&self) -> Result<Vec<Disk>> {
        let mut all = Vec::new();
        for name in names(&self.root)?.into_iter().filter(|name| !name.starts_with(DOT)) {
            match self.get(&name) {
                // Removed meanwhile, or somebody else's.
                Err(Error::NotFound(_) | Error::Wrong(_)) => {}
                other => all.push(other?),
            }
        }
        Ok(all)
    }

    /// Removes one that no running domain has. What others have in common with it stays.
    ///
    /// # Errors
    /// There is none, a domain has it, or what the host says.
    pub fn remove(&self, name: &str) -> Result<()> {
        let _lock = self.lock()?;
        let disk = self.get(name)?;
        let _held = self.hold_any(&disk, false)?;
        let gone = self.root.join(format!("{GONE}{name}"));
        fs::rename(&disk.dir, &gone).doing("rename", &disk.dir)?;
        sync(&self.root)?;
        fs::remove_dir_all(&gone).doing("remove", &gone)?;
        self.collect()
    }

    /// Removes what was not finished when a process died.
    ///
    /// # Errors
    /// What the host says.
    pub fn sweep(&self) -> Result<()> {
        if !self.root.exists() {
            return Ok(());
        }
        let _lock = self.lock()?;
        self.collect()
    }

    /// Removes what was not finished when a process died, and layers that no disk needs. Whoever makes one has the lock.
    pub(crate) fn collect(&self) -> Result<()> {
        let mut needed = HashSet::new();
        let unfinished = |name: &String| name.starts_with(UNFINISHED) || name.starts_with(GONE);
        for name in names(&self.root)?.into_iter().filter(unfinished) {
            let path = self.root.join(name);
            fs::remove_dir_all(&path).doing("remove", &path)?;
        }
        let counts = |name: &String| !name.starts_with(DOT) || name.starts_with(KEPT);
        for name in names(&self.root)?.into_iter().filter(counts) {
            let dir = self.dir_of(&name);
            match read_record(&dir) {
                // It appears with its record: whoever removed it has died.
                Err(Error::NotFound(_)) if name.starts_with(KEPT) => {
                    fs::remove_dir_all(&dir).doing("remove", &dir)?;
                }
                Err(Error::NotFound(_)) => {}
                Ok(record) if record.needed_by.as_ref().is_some_and(|by| !by.exists()) => {
                    fs::remove_dir_all(&dir).doing("remove", &dir)?;
                }
                // As long as one cannot be read, nobody knows what it needs.
                record => needed.extend(self.layers.chain(&record?.layer)?),
            }
        }
        self.layers.keep_only(&needed)
    }

    /// Keeps a disk for a domain that is about to run, as long as this process has what is returned.
    ///
    /// # Errors
    /// A domain runs with it that writes, or this one is to write and a domain reads it; or what the host says.
    pub fn hold(&self, disk: &Disk, read_only: bool) -> Result<Held> {
        if disk.snapshot && !read_only {
            return Err(Error::Snapshot(disk.name.clone()));
        }
        self.hold_any(disk, read_only)
    }

    fn hold_any(&self, disk: &Disk, read_only: bool) -> Result<Held> {
        let begun = Instant::now();
        loop {
            match Held::of(&disk.dir, read_only)? {
                Some(held) => return Ok(held),
                None if begun.elapsed() < PATIENCE => std::thread::sleep(PAUSE),
                None => return Err(Error::InUse(disk.name.clone())),
            }
        }
    }

    pub(crate) fn dir_of(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Whether a disk can have this name.
    ///
    /// # Errors
    /// The name is none or taken.
    pub fn check_free(&self, name: &str) -> Result<()> {
        doppel_spec::check_disk_name(name).map_err(Error::Wrong)?;
        if self.dir_of(name).exists() { Err(Error::Exists(name.to_owned())) } else { Ok(()) }
    }

    /// There is a disk of this name from here on, once `prepare` is done with its directory.
    pub(crate) fn put(
        &self,
        name: &str,
        record: &Record,
        prepare: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<Disk> {
        self.put_dir(name, record, prepare)?;
        self.get(name)
    }

    /// There is a directory of this name with such a record, once `prepare` is done with it.
    pub(crate) fn put_dir(
        &self,
        name: &str,
        record: &Record,
        prepare: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<()> {
        let unfinished = tempfile::Builder::new()
            .prefix(UNFINISHED)
            .tempdir_in(&self.root)
            .doing("make a directory in", &self.root)?;
        let at = unfinished.path();
        write_record(at, record)?;
        new_file(&at.join(LOCK))?;
        prepare(at)?;
        sync(at)?;
        let from = unfinished.keep();
        fs::rename(&from, self.dir_of(name)).doing("rename", &from)?;
        sync(&self.root)
    }

    /// A new layer over another, which stays although no disk has it yet: as long as this process lives, or until the directory that is given goes.
    pub(crate) fn reserve(&self, below: &str) -> Result<(String, PathBuf)> {
        let layer = self.over(below)?;
        let name = format!("{KEPT}{layer}");
        let process = Path::new("/proc").join(std::process::id().to_string());
        self.put_dir(&name, &Record { needed_by: Some(process), ..Record::new(layer.clone()) }, |_| Ok(()))?;
        Ok((layer, self.dir_of(&name)))
    }

    /// The same lock as [`Self::lock`], unless somebody has it for longer.
    pub(crate) fn lock_within(&self, patience: Duration) -> Result<File> {
        let (path, begun) = (self.root.join(".lock"), Instant::now());
        let file = File::open(&path).doing("open", &path)?;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Err(rustix::io::Errno::WOULDBLOCK) if begun.elapsed() < patience => std::thread::sleep(PAUSE),
                Err(rustix::io::Errno::WOULDBLOCK) => return Err(Error::Busy),
                done => return done.map(|()| file).doing("lock", &path),
            }
        }
    }

    /// Nobody else makes, changes or removes a disk as long as this process has what is returned.
    pub(crate) fn lock(&self) -> Result<File> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.root).doing("make", &self.root)?;
        let path = self.root.join(".lock");
        let file =
            File::options().create(true).truncate(false).write(true).open(&path).doing("open", &path)?;
        flock(&file, FlockOperation::LockExclusive).doing("lock", &path)?;
        Ok(file)
    }
}

impl Disk {
    /// Whether a domain runs with it.
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        matches!(Held::at_once(&self.dir, false), Ok(None))
    }

    /// Whether a domain writes to it.
    #[must_use]
    pub fn is_written(&self) -> bool {
        matches!(Held::at_once(&self.dir, true), Ok(None))
    }
}

fn check_size(size: u64) -> Result<()> {
    if size == 0 || !size.is_multiple_of(BLOCK) || size > MOST_BYTES {
        let text = format!("{size} bytes is no size of a disk: a multiple of {BLOCK}, at most {MOST_BYTES}");
        return Err(Error::Wrong(text));
    }
    Ok(())
}

/// What is written down of the disk in this directory.
pub(crate) fn read_record(dir: &Path) -> Result<Record> {
    let name = || dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let text = match fs::read(dir.join(RECORD)) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(Error::NotFound(name())),
        read => read.doing("read", &dir.join(RECORD))?,
    };
    serde_json::from_slice(&text).map_err(|e| Error::Damaged { name: name(), why: e.to_string() })
}

/// Writes it down; after a power cut there is the old one or this one.
pub(crate) fn write_record(dir: &Path, record: &Record) -> Result<()> {
    let (new, path) = (dir.join(".disk.json"), dir.join(RECORD));
    let text = serde_json::to_vec(record)
        .map_err(|e| Error::Damaged { name: dir.display().to_string(), why: e.to_string() })?;
    let mut how = File::options();
    let how = how.create(true).truncate(true).write(true).mode(0o600);
    let mut file = how.open(&new).doing("make", &new)?;
    io::Write::write_all(&mut file, &text).and_then(|()| file.sync_all()).doing("write", &new)?;
    fs::rename(&new, &path).doing("rename", &new)?;
    sync(dir)
}

fn new_file(path: &Path) -> Result<File> {
    File::options().create_new(true).write(true).mode(0o600).open(path).doing("make", path)
}

pub(crate) fn sync(dir: &Path) -> Result<()> {
    File::open(dir).and_then(|f| f.sync_all()).doing("sync", dir)
}

/// Names in a directory, sorted; none if there is no such directory.
pub(crate) fn names(dir: &Path) -> Result<Vec<String>> {
    let entries = match fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.doing("list", dir)?,
    };
    let mut all = Vec::new();
    for entry in entries {
        all.extend(entry.doing("list", dir)?.file_name().into_string());
    }
    all.sort_unstable();
    Ok(all)
}
