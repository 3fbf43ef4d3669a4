//! Disks of a para domain that runs, to be frozen with it.
//!
//! What is on a disk at a freeze is a layer of which nothing changes from then on: the domain goes on with a new, empty one above it, and each
//! clone with another. So neither a freeze nor a clone grows with the disk. A snapshot of a disk that a domain writes is the same without a
//! frozen image.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use doppel_disk::{DATA_AT, MAP_AT};
use doppel_storage::Attachment;
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use crate::error::{Error, IoContext, Result};
use crate::frozen::{FrozenDisk, FrozenDisks};
use crate::held::Held;
use crate::layers::{Layers, header_of, name_of};
use crate::store::{DiskStore, Record, read_record, write_record};

/// How long a domain stands still for somebody else who changes disks of the store.
const PATIENCE: Duration = Duration::from_secs(2);

/// The disks of a domain, in their order, as long as it runs.
#[derive(Debug)]
pub struct InUse {
    attachment: Arc<Attachment>,
    /// Which of its volumes is the first of them.
    first: usize,
    disks: Vec<Held>,
}

/// A freeze that is about to happen.
#[derive(Debug)]
pub struct Cut<'a> {
    of: &'a InUse,
    store: DiskStore,
    /// New layers, by disk, and what says that these are needed; those that were not go with this.
    above: Vec<Option<(String, PathBuf)>>,
    /// The domain goes on itself from what is frozen.
    wakes: bool,
}

impl InUse {
    /// These, of which the first is the volume `first` of what is attached; none: it has no disks.
    #[must_use]
    pub fn new(attachment: &Arc<Attachment>, first: usize, disks: Vec<Held>) -> Option<Self> {
        let some = !disks.is_empty();
        some.then(|| Self { attachment: attachment.clone(), first, disks })
    }

    /// Before the domain stands still: does what takes long. `wakes`: it will go on itself, with its disks.
    ///
    /// # Errors
    /// A disk has too many layers, or what the host says.
    pub fn prepare(&self, wakes: bool) -> Result<Cut<'_>> {
        self.prepare_some(wakes, |_| true)
    }

    /// The same to keep the disk of this name alone, for which the domain does not have to end: [`Cut::keep_one`]. None: it does not write
    /// to such a disk.
    ///
    /// # Errors
    /// As above.
    pub fn prepare_one(&self, name: &str) -> Result<Option<Cut<'_>>> {
        let is_it = |held: &Held| !held.read_only && held.name() == name;
        self.disks.iter().any(is_it).then(|| self.prepare_some(false, is_it)).transpose()
    }

    fn prepare_some(&self, wakes: bool, wanted: impl Fn(&Held) -> bool) -> Result<Cut<'_>> {
        let root = self.disks.first().and_then(|held| held.dir.parent()).unwrap_or(Path::new(""));
        let store = DiskStore::at(root.to_owned());
        let mut cut = Cut { of: self, store, above: Vec::new(), wakes };
        // What is written until the domain stands still is little; and nobody else waits for this.
        cut.sync(&wanted)?;
        let _lock = cut.store.lock()?;
        for held in &self.disks {
            let record = read_record(&held.dir)?;
            let above = (!wakes && !record.snapshot && wanted(held))
                .then(|| cut.store.reserve(&record.layer))
                .transpose()?;
            cut.above.push(above);
        }
        Ok(cut)
    }
}

impl Cut<'_> {
    /// The domain stands still, and its service has done all that it has asked: keeps its disks as they are for the frozen image whose
    /// volumes are in `dir`.
    ///
    /// # Errors
    /// What the host says; the domain can go on all the same.
    pub fn keep(mut self, dir: &Path) -> Result<()> {
        self.sync(|_| true)?;
        // Whoever is waited for has not this domain's harm: it stands still.
        let _lock = self.store.lock_within(PATIENCE)?;
        let mut kept = Vec::new();
        for (i, held) in self.of.disks.iter().enumerate() {
            kept.push(match self.wakes {
                true => of_sleeper(held)?,
                false => {
                    let layer = self.cut(i, held)?;
                    FrozenDisk::keep(&self.store, (held.name(), held.read_only), &layer, dir)?
                }
            });
        }
        FrozenDisks::write(kept, dir)
    }

    /// The domain stands still likewise, until `go_on`: keeps one of its disks as it is then, as long as the file `needed_by` is there. Gives
    /// the name for [`DiskStore::make_of_kept`].
    ///
    /// # Errors
    /// As above.
    pub fn keep_one(mut self, name: &str, needed_by: &Path, go_on: impl FnOnce()) -> Result<String> {
        let place = self.of.disks.iter().position(|held| held.name() == name);
        let place = place.filter(|i| self.above.get(*i).is_some_and(Option::is_some));
        let i = place.ok_or_else(|| Error::NotFound(name.to_owned()))?;
        self.sync(|held| held.name() == name)?;
        let lock = self.store.lock_within(PATIENCE)?;
        let layer = self.cut(i, &self.of.disks[i])?;
        drop(lock);
        // The disk itself needs the layer meanwhile. Nobody waits for how the domain does this.
        go_on();
        let _lock = self.store.lock()?;
        self.store.layers.chain(&layer)?;
        self.store.keep(&layer, needed_by.to_owned())
    }

    /// Has the host write what it has of the bytes of these.
    fn sync(&self, wanted: impl Fn(&Held) -> bool) -> Result<()> {
        for held in self.of.disks.iter().filter(|held| !held.read_only && wanted(held)) {
            let path = self.store.layers.path(&read_record(&held.dir)?.layer);
            File::open(&path).and_then(|file| file.sync_data()).doing("sync", &path)?;
        }
        Ok(())
    }

    /// The layer that has all that is on a disk, and in which nothing changes any more.
    fn cut(&mut self, i: usize, held: &Held) -> Result<String> {
        let record = read_record(&held.dir)?;
        let Some((above, needed)) = self.above[i].clone() else { return Ok(record.layer) };
        held.flush()?;
        if let Some(below) = below_if_empty(&self.store.layers, &record.layer)? {
            return Ok(below);
        }
        let path = self.store.layers.path(&above);
        let below = header_of(&File::open(&path).doing("open", &path)?, &path)?.below;
        if below.map(|id| name_of(&id)).as_ref() != Some(&record.layer) {
            // It has got another one since, as only a disk can that several read.
            return Err(Error::Busy);
        }
        // All that may fail for want of room comes before: the domain goes on as it was then.
        let files = (!held.read_only).then(|| held.files_above(&above)).transpose()?;
        // The disk writes elsewhere before anybody relies upon what it has written.
        write_record(&held.dir, &Record { layer: above, ..record.clone() })?;
        self.above[i] = None;
        match files {
            Some(files) => {
                let switched = self.of.attachment.switch_disk(self.of.first + i, files);
                switched.doing("have the storage service switch", &held.dir)?;
                held.go_on_above()?;
            }
            None => held.forget_live()?,
        }
        fs::remove_dir_all(&needed).doing("remove", &needed)?;
        Ok(record.layer)
    }
}

impl Drop for Cut<'_> {
    fn drop(&mut self) {
        for (name, needed) in self.above.iter().flatten() {
            // What stays is found by whoever removes a disk, once this process has ended.
            let _ = fs::remove_dir_all(needed).and_then(|()| fs::remove_file(self.store.layers.path(name)));
        }
    }
}

fn of_sleeper(held: &Held) -> Result<FrozenDisk> {
    if !held.read_only {
        held.flush()?;
    }
    Ok(FrozenDisk::of_sleeper(held.name(), held.read_only, read_record(&held.dir)?.state))
}

/// The layer below one that says nothing itself.
fn below_if_empty(layers: &Layers, name: &str) -> Result<Option<String>> {
    let path = layers.path(name);
    let file = File::open(&path).doing("open", &path)?;
    let header = header_of(&file, &path)?;
    let data = match rustix::fs::seek(&file, SeekFrom::Data(MAP_AT)) {
        Err(Errno::NXIO) => DATA_AT,
        found => found.doing("read", &path)?,
    };
    let Some(below) = header.below.filter(|_| data >= DATA_AT && header.visible == header.size) else {
        return Ok(None);
    };
    let below = name_of(&below);
    let path = layers.path(&below);
    let size = header_of(&File::open(&path).doing("open", &path)?, &path)?.size;
    Ok((size == header.size).then_some(below))
}
