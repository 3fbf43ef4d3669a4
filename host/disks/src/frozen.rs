//! What a frozen image keeps of its domain's disks, in a directory beside it (`NAME.volumes`).
//!
//! ```text
//! disks.json    the disks, and what the store keeps of each
//! disk-ID       as long as it is there, the store keeps `disks/.kept-ID`
//! ```

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use doppel_spec::BlockDevice;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::error::{IoContext, Result};
use crate::layers::{name_of, new_id};
use crate::store::{Disk, DiskStore, KEPT, Record, names, read_record, sync, write_record};

const RECORD: &str = "disks.json";
const MARK: &str = "disk-";
/// What [`DiskStore::want`] makes begins so.
const WANTED: &str = ".wanted-";

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
        let kept = store.keep(layer, mark)?;
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
    /// Keeps what a layer and those below it have, of which nothing changes, as long as this file is there. Whoever calls has the lock.
    pub(crate) fn keep(&self, layer: &str, needed_by: PathBuf) -> Result<String> {
        let kept = format!("{KEPT}{}", name_of(&new_id()));
        let record = Record::new(layer.to_owned()).snapshot();
        self.put_dir(&kept, &Record { needed_by: Some(needed_by), ..record }, |_| Ok(()))?;
        Ok(kept)
    }

    /// Somebody wants what is on a disk that a domain writes: what is kept for that is needed as long as this is there.
    ///
    /// # Errors
    /// What the host says.
    pub fn want(&self) -> Result<TempDir> {
        let _lock = self.lock()?;
        tempfile::Builder::new()
            .prefix(WANTED)
            .tempdir_in(&self.root)
            .doing("make a directory in", &self.root)
    }

    /// Nobody wants any more what somebody wanted who has died.
    ///
    /// # Errors
    /// What the host says.
    pub fn forget_wanted(&self) -> Result<()> {
        for name in names(&self.root)?.into_iter().filter(|name| name.starts_with(WANTED)) {
            let path = self.root.join(name);
            fs::remove_dir_all(&path).doing("remove", &path)?;
        }
        Ok(())
    }

    /// Makes a disk that is what was kept of one that a domain writes ([`crate::Cut::keep_one`]), which is not kept any longer: a snapshot
    /// of which nothing changes, or one that begins so.
    ///
    /// # Errors
    /// The name is none or taken, it has too many layers, or what the host says.
    pub fn make_of_kept(&self, kept: &str, name: &str, snapshot: bool) -> Result<Disk> {
        let _lock = self.lock()?;
        let dir = self.dir_of(kept);
        let layer = read_record(&dir)?.layer;
        let made = self.check_free(name).and_then(|()| match snapshot {
            true => self.put(name, &Record::new(layer).snapshot(), |_| Ok(())),
            false => self.put(name, &Record::new(self.over(&layer)?), |_| Ok(())),
        });
        fs::remove_dir_all(&dir).doing("remove", &dir)?;
        made
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    fn layers(dir: &Path) -> usize {
        fs::read_dir(dir.join("disks/.layers")).unwrap().count()
    }

    /// What a frozen image of this disk has, with its marks in `marks`.
    fn frozen(store: &DiskStore, name: &str, read_only: bool, marks: &Path) -> FrozenDisks {
        let layer = read_record(&store.dir_of(name)).unwrap().layer;
        let of = (name.to_owned(), read_only);
        let disk = FrozenDisk::keep(store, of, &layer, marks).unwrap();
        FrozenDisks::write(vec![disk], marks).unwrap();
        FrozenDisks::open(marks).unwrap()
    }

    #[test]
    fn what_is_kept_stays_until_nobody_needs_it() {
        let dir = tempfile::tempdir().unwrap();
        let (store, marks) = (DiskStore::of(dir.path()), dir.path().join("marks"));
        fs::create_dir(&marks).unwrap();
        store.create("db", 1 << 20).unwrap();
        let image = frozen(&store, "db", false, &marks);
        store.remove("db").unwrap();
        assert_eq!(layers(dir.path()), 1, "the image has it");
        let mut made = Vec::new();
        image.for_clone(&store, &mut made).unwrap();
        assert_eq!((made.len(), made[0].read_only, layers(dir.path())), (1, false, 2));
        fs::remove_dir_all(&marks).unwrap();
        store.sweep().unwrap();
        assert_eq!(layers(dir.path()), 2, "the clone has it");
        store.remove_unknown(|name| name == made[0].name).unwrap();
        assert_eq!(store.list().unwrap().len(), 1);
        store.remove_unknown(|_| false).unwrap();
        assert_eq!((store.list().unwrap().len(), layers(dir.path())), (0, 0));
        assert!(image.for_clone(&store, &mut made).is_err() && made.is_empty());
    }

    #[test]
    fn a_clone_that_begins_anew_has_its_disk_anew() {
        let dir = tempfile::tempdir().unwrap();
        let store = DiskStore::of(dir.path());
        store.create("db", 1 << 20).unwrap();
        let image = frozen(&store, "db", false, dir.path());
        let mut made = Vec::new();
        image.for_clone(&store, &mut made).unwrap();
        let name = made[0].name.as_str();
        let layer = || read_record(&store.dir_of(name)).unwrap().layer;
        let first = layer();
        store.refresh(name).unwrap();
        assert_eq!(layer(), first, "it has not begun yet");
        store.hold(&store.get(name).unwrap(), false).unwrap().begin(None).unwrap();
        store.refresh(name).unwrap();
        assert_ne!(layer(), first);
        assert_eq!((store.get(name).unwrap().layers, layers(dir.path())), (2, 2));
    }

    #[test]
    fn memory_goes_with_one_state_of_a_disk() {
        let dir = tempfile::tempdir().unwrap();
        let store = DiskStore::of(dir.path());
        store.create("db", 1 << 20).unwrap();
        let state = || read_record(&store.dir_of("db")).unwrap().state;
        let hold = |read_only| store.hold(&store.get("db").unwrap(), read_only).unwrap();
        let then = state();
        hold(true).begin(None).unwrap();
        hold(false).begin(Some(&then)).unwrap();
        assert!(
            matches!(hold(false).begin(Some(&then)), Err(crate::Error::Newer(_))),
            "it has begun with it"
        );
        let now = state();
        store.snapshot("db", "snap").unwrap();
        hold(false).begin(Some(&now)).unwrap();
        let now = state();
        store.resize("db", 2 << 20).unwrap();
        assert!(matches!(hold(true).begin(Some(&now)), Err(crate::Error::Newer(_))));
    }

    #[test]
    fn what_is_kept_for_a_copy_becomes_that_or_goes() {
        let dir = tempfile::tempdir().unwrap();
        let store = DiskStore::of(dir.path());
        store.create("db", 1 << 20).unwrap();
        let layer = read_record(&store.dir_of("db")).unwrap().layer;
        let there = || names(&store.root).unwrap().into_iter().filter(|name| name.starts_with(KEPT)).count();
        let wanted = store.want().unwrap();
        let keep = || store.keep(&layer, wanted.path().to_owned()).unwrap();
        let made = store.make_of_kept(&keep(), "snap", true).unwrap();
        assert_eq!((made.snapshot, made.layers, there()), (true, 1, 0));
        assert_eq!(store.make_of_kept(&keep(), "two", false).unwrap().layers, 2);
        assert!(matches!(store.make_of_kept(&keep(), "two", true), Err(crate::Error::Exists(_))));
        assert_eq!(there(), 0, "it is not kept for nobody");
        keep();
        store.sweep().unwrap();
        assert_eq!(there(), 1, "somebody wants it");
        drop(wanted);
        store.sweep().unwrap();
        assert_eq!(there(), 0);
        // Whoever wanted it has died.
        let path = store.want().unwrap().keep();
        store.keep(&layer, path).unwrap();
        store.forget_wanted().unwrap();
        store.sweep().unwrap();
        assert_eq!((there(), store.list().unwrap().len()), (0, 3));
    }

    #[test]
    fn a_layer_that_no_disk_has_yet_stays_while_it_is_reserved() {
        let dir = tempfile::tempdir().unwrap();
        let store = DiskStore::of(dir.path());
        store.create("db", 1 << 20).unwrap();
        let below = read_record(&store.dir_of("db")).unwrap().layer;
        let (_, needed) = store.reserve(&below).unwrap();
        store.sweep().unwrap();
        assert_eq!(layers(dir.path()), 2);
        fs::remove_dir_all(needed).unwrap();
        store.sweep().unwrap();
        assert_eq!(layers(dir.path()), 1);
    }
}
