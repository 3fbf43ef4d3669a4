//! What a frozen image keeps of its domain's disks, in a directory beside it (`NAME.volumes`).
//!
//! ```text
//! disks.json    the disks, and what the store keeps of each
//! disk-ID       as long as it is there, the store keeps `disks/.kept-ID`
//! ```

use std::fs::{self, File};
use std::io;
use std::path::Path;

use doppel_spec::BlockDevice;
use serde::{Deserialize, Serialize};

use crate::error::{IoContext, Result};
use crate::layers::{name_of, new_id};
use crate::store::{DiskStore, KEPT, Record, read_record, sync, write_record};

const RECORD: &str = "disks.json";
const MARK: &str = "disk-";

/// A disk of a frozen domain.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FrozenDisk {
    /// Its name.
    pub name: String,
    /// The domain only reads it.
    pub read_only: bool,
    /// What tells its state then, for the domain itself if that wakes.
    pub state: String,
    /// What the store keeps for clones; none: there are no clones.
    kept: Option<String>,
}

/// The disks of a frozen domain, in their order.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FrozenDisks(Vec<FrozenDisk>);

impl FrozenDisk {
    /// Of a domain that goes on itself.
    pub(crate) fn of_sleeper(name: String, read_only: bool, state: String) -> Self {
        Self { name, read_only, state, kept: None }
    }

    /// Has the store keep what a layer and those below it have, of which nothing changes, as long as a file in `dir` is there. Whoever
    /// calls has the store's lock.
    pub(crate) fn keep(
        store: &DiskStore,
        (name, read_only): (String, bool),
        layer: &str,
        dir: &Path,
    ) -> Result<Self> {
        let id = name_of(&new_id());
        // Whoever looks for it may be in another directory.
        let mark = std::path::absolute(dir).doing("find", dir)?.join(format!("{MARK}{id}"));
        File::create_new(&mark).doing("make", &mark)?;
        let kept = format!("{KEPT}{id}");
        let record = Record::new(layer.to_owned()).snapshot();
        store.put_dir(&kept, &Record { needed_by: Some(mark), ..record }, |_| Ok(()))?;
        Ok(Self { name, read_only, state: String::new(), kept: Some(kept) })
    }
}

impl FrozenDisks {
    /// Writes down that a frozen image has these.
    pub(crate) fn write(disks: Vec<FrozenDisk>, dir: &Path) -> Result<()> {
        let path = dir.join(RECORD);
        let text = serde_json::to_vec(&Self(disks)).map_err(io::Error::from).doing("write", &path)?;
        fs::write(&path, text).doing("write", &path)?;
        File::open(&path).and_then(|file| file.sync_all()).doing("sync", &path)?;
        sync(dir)
    }

    /// Those of the frozen image whose volumes are in this directory.
    ///
    /// # Errors
    /// What is kept is damaged, or what the host says.
    pub fn open(dir: &Path) -> Result<Self> {
        let path = dir.join(RECORD);
        match fs::read(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            read => serde_json::from_slice(&read.doing("read", &path)?)
                .map_err(io::Error::from)
                .doing("read", &path),
        }
    }

    /// They, in their order.
    #[must_use]
    pub fn all(&self) -> &[FrozenDisk] {
        &self.0
    }

    /// How the domain had them.
    #[must_use]
    pub fn block_devices(&self) -> Vec<BlockDevice> {
        let device = |disk: &FrozenDisk| BlockDevice { name: disk.name.clone(), read_only: disk.read_only };
        self.0.iter().map(device).collect()
    }

    /// Makes disks for a clone that begin as these were, without names of their own. `made` has those that were made, also if this fails.
    ///
    /// # Errors
    /// The store does not have them any more, or what the host says.
    pub fn for_clone(&self, store: &DiskStore, made: &mut Vec<BlockDevice>) -> Result<()> {
        made.clear();
        for disk in &self.0 {
            let name = store.of_kept(disk.kept.as_deref().unwrap_or(&disk.name), disk.read_only)?;
            made.push(BlockDevice { name, read_only: disk.read_only });
        }
        Ok(())
    }
}

impl DiskStore {
    /// Makes a disk for a clone that begins as what is kept.
    fn of_kept(&self, kept: &str, read_only: bool) -> Result<String> {
        let _lock = self.lock()?;
        let layer = read_record(&self.dir_of(kept))?.layer;
        let record = match read_only {
            true => Record::new(layer).snapshot(),
            false => {
                let record = Record::new(self.over(&layer)?);
                Record { base: Some((layer, record.state.clone())), ..record }
            }
        };
        let name = name_of(&new_id());
        self.put_dir(&name, &Record { anonymous: true, ..record }, |_| Ok(()))?;
        Ok(name)
    }

    /// Makes what was made for a clone what it was then, if the clone has begun with it.
    ///
    /// # Errors
    /// There is none, a domain has it, or what the host says.
    pub fn refresh(&self, name: &str) -> Result<()> {
        let disk = self.get(name)?;
        let record = read_record(&disk.dir)?;
        let Some((layer, _)) = record.base.filter(|(_, then)| *then != record.state) else { return Ok(()) };
        let _lock = self.lock()?;
        let held = self.hold(&disk, false)?;
        held.settle()?;
        let new = Record::new(self.over(&layer)?);
        let base = Some((layer, new.state.clone()));
        write_record(&disk.dir, &Record { base, anonymous: true, created: record.created, ..new })?;
        self.collect()
    }

    /// Whether disks are what they were when their domain was hibernated.
    #[must_use]
    pub fn are(&self, frozen: &FrozenDisks) -> bool {
        let is = |disk: &FrozenDisk| {
            read_record(&self.dir_of(&disk.name)).is_ok_and(|now| now.state == disk.state)
        };
        frozen.0.iter().all(is)
    }

    /// Removes disks that were made for clones of which nobody knows any more.
    ///
    /// # Errors
    /// What the host says.
    pub fn remove_unknown(&self, is_known: impl Fn(&str) -> bool) -> Result<()> {
        for disk in self.list()?.into_iter().filter(|disk| disk.anonymous && !is_known(&disk.name)) {
            match self.remove(&disk.name) {
                // A command without the supervisor has it.
                Err(crate::Error::InUse(_) | crate::Error::NotFound(_)) => {}
                done => done?,
            }
        }
        Ok(())
    }
}
