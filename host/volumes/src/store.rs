//! The volumes of a store.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::error::{Error, IoContext, Result};
use crate::leases::try_lock;

const RECORD: &str = "volume.json";
const DATA: &str = "_data";
const LOCK: &str = "lock";
const USERS: &str = "users";
const USED: &str = "used";
/// How long somebody whose domain has ended may still have its lock: a process that it has just made has a copy of the descriptor
/// until it executes its program.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(2);
/// What is being made or removed is called so; no name of a volume begins with it.
const UNFINISHED: &str = ".";

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Its name.
    pub name: String,
    /// Where its files are on this host.
    pub path: PathBuf,
    /// When it was made, in seconds since 1970.
    pub created: u64,
    /// Key-value pairs for the user's own use.
    pub labels: BTreeMap<String, String>,
    /// It was made for a domain that gave no name.
    pub anonymous: bool,
    /// Ids of domains that have it.
    pub users: Vec<String>,
    /// What its files may take.
    pub limits: VolumeLimits,
    /// It is a snapshot: domains only read it.
    pub snapshot: bool,
}

/// What the files of a volume may take of the host's disk; none: as much as there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeLimits {
    /// Most bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Most files and directories.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inodes: Option<u64>,
}

impl VolumeLimits {
    /// Whether there is any.
    #[must_use]
    pub fn is_any(self) -> bool {
        self.bytes.is_some() || self.inodes.is_some()
    }
}

/// What is written down.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Record {
    created: u64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    anonymous: bool,
    #[serde(flatten)]
    limits: VolumeLimits,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    snapshot: bool,
}

/// All volumes of a store.
#[derive(Clone, Debug)]
pub struct VolumeStore {
    pub(crate) root: PathBuf,
    /// Where binds may lie.
    pub(crate) binds: Vec<PathBuf>,
}

impl VolumeStore {
    /// Those of the store in this directory.
    #[must_use]
    pub fn of(store: &Path) -> Self {
        Self { root: store.join("volumes"), binds: vec!["/".into()] }
    }

    /// The same, where the sources of binds lie below these directories, links followed.
    #[must_use]
    pub fn with_binds_below(self, binds: Vec<PathBuf>) -> Self {
        Self { binds, ..self }
    }

    /// Makes one, or finds that of this name; then labels are as they were. Without a name it gets a random one.
    ///
    /// # Errors
    /// The name is none, or what the host says.
    pub fn create(&self, name: Option<&str>, labels: BTreeMap<String, String>) -> Result<Volume> {
        self.create_within(name, labels, VolumeLimits::default())
    }

    /// The same, with limits.
    ///
    /// # Errors
    /// One of this name has others, or as above.
    pub fn create_within(
        &self,
        name: Option<&str>,
        labels: BTreeMap<String, String>,
        limits: VolumeLimits,
    ) -> Result<Volume> {
        if let Some(name) = name {
            doppel_spec::check_volume_name(name).map_err(Error::Wrong)?;
        }
        let _lock = self.lock()?;
        match name {
            Some(name) if self.at(name).is_dir() => match self.get(name)? {
                found if limits.is_any() && found.limits != limits => {
                    Err(Error::Wrong(format!("volume {name:?} is there already, with other limits")))
                }
                found => Ok(found),
            },
            Some(name) => self.make(name, Record { labels, limits, ..Record::default() }),
            None => self.make(&random_name(), Record { labels, limits, ..Record::default() }),
        }
    }

    /// Makes one that begins with the files of another one as they are now, which no domain runs with, or which is a snapshot; or a
    /// snapshot of it, which domains only read. It has the other one's limits. A domain that begins with the other one meanwhile waits.
    ///
    /// # Errors
    /// There is no such volume, a domain runs with it, the name is none or taken, or what the host says.
    pub fn copy(
        &self,
        of: &str,
        name: &str,
        labels: BTreeMap<String, String>,
        snapshot: bool,
    ) -> Result<Volume> {
        doppel_spec::check_volume_name(name).map_err(Error::Wrong)?;
        let (source, _held) = waiting(|| self.take_to_copy(of, name))?;
        let record = Record { labels, limits: source.limits, snapshot, ..Record::default() };
        let unfinished = self.unfinished(name, record)?;
        let to = unfinished.path().join(DATA);
        crate::copy::tree(&source.path, &to).doing("copy", &source.path)?;
        let _lock = self.lock()?;
        self.check_free(name)?;
        self.finish(unfinished, name)
    }

    /// One that is to be copied to this name, and its lock.
    fn take_to_copy(&self, of: &str, name: &str) -> Result<(Volume, File)> {
        let _lock = self.lock()?;
        self.check_free(name)?;
        let source = self.get(of)?;
        let path = self.lock_of(of);
        let held = File::open(&path).doing("open", &path)?;
        match try_lock(&held, !source.snapshot).doing("lock", &path)? {
            true => Ok((source, held)),
            false => Err(Error::InUse { name: of.to_owned(), users: source.users }),
        }
    }

    fn check_free(&self, name: &str) -> Result<()> {
        if self.at(name).exists() { Err(Error::Exists(name.to_owned())) } else { Ok(()) }
    }

    /// Makes one for a domain that gives no name.
    ///
    /// # Errors
    /// What the host says.
    pub(crate) fn create_anonymous(&self, limits: VolumeLimits) -> Result<Volume> {
        let _lock = self.lock()?;
        self.make(&random_name(), Record { anonymous: true, limits, ..Record::default() })
    }

    fn make(&self, name: &str, record: Record) -> Result<Volume> {
        self.finish(self.unfinished(name, record)?, name)
    }

    /// An empty one that has no name yet.
    fn unfinished(&self, name: &str, record: Record) -> Result<TempDir> {
        let unfinished = tempfile::Builder::new()
            .prefix(UNFINISHED)
            .tempdir_in(&self.root)
            .doing("make a directory in", &self.root)?;
        let at = unfinished.path();
        let created = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let record = Record { created, ..record };
        let text = serde_json::to_vec(&record)
            .map_err(|e| Error::Damaged { name: name.to_owned(), why: e.to_string() })?;
        let sync = |path: &Path| File::open(path).and_then(|f| f.sync_all()).doing("sync", path);
        fs::write(at.join(RECORD), text).doing("write", &at.join(RECORD))?;
        sync(&at.join(RECORD))?;
        for (dir, mode) in [(DATA, 0o755), (USERS, 0o700)] {
            let dir = at.join(dir);
            DirBuilder::new().mode(mode).create(&dir).doing("make", &dir)?;
            fs::set_permissions(&dir, Permissions::from_mode(mode)).doing("make", &dir)?;
        }
        File::create(at.join(LOCK)).doing("make", &at.join(LOCK))?;
        sync(at)?;
        Ok(unfinished)
    }

    /// Gives it its name.
    fn finish(&self, unfinished: TempDir, name: &str) -> Result<Volume> {
        let from = unfinished.keep();
        fs::rename(&from, self.at(name)).doing("rename", &from)?;
        File::open(&self.root).and_then(|f| f.sync_all()).doing("sync", &self.root)?;
        self.get(name)
    }

    /// The one of this name.
    ///
    /// # Errors
    /// There is none, or what the host says.
    pub fn get(&self, name: &str) -> Result<Volume> {
        doppel_spec::check_volume_name(name).map_err(Error::Wrong)?;
        let dir = self.at(name);
        let text = match fs::read(dir.join(RECORD)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(Error::NotFound(name.to_owned())),
            read => read.doing("read", &dir.join(RECORD))?,
        };
        let damaged = |e: serde_json::Error| Error::Damaged { name: name.to_owned(), why: e.to_string() };
        let Record { created, labels, anonymous, limits, snapshot } =
            serde_json::from_slice(&text).map_err(damaged)?;
        let (name, path, users) = (name.to_owned(), dir.join(DATA), self.users(name)?);
        Ok(Volume { name, path, created, labels, anonymous, users, limits, snapshot })
    }

    /// All of them, by name.
    ///
    /// # Errors
    /// What the host says.
    pub fn list(&self) -> Result<Vec<Volume>> {
        let mut all = Vec::new();
        for name in names(&self.root)?.into_iter().filter(|name| !name.starts_with(UNFINISHED)) {
            match self.get(&name) {
                // Removed meanwhile, or somebody else's.
                Err(Error::NotFound(_) | Error::Wrong(_)) => {}
                other => all.push(other?),
            }
        }
        Ok(all)
    }

    /// Removes one with all its files.
    ///
    /// # Errors
    /// There is none, somebody has it, or what the host says.
    pub fn remove(&self, name: &str) -> Result<()> {
        waiting(|| self.remove_at_once(name))
    }

    /// The same without waiting.
    fn remove_at_once(&self, name: &str) -> Result<()> {
        let gone = {
            let _lock = self.lock()?;
            let Volume { users, .. } = self.get(name)?;
            let dir = self.at(name);
            let file = File::open(self.lock_of(name)).doing("open", &self.lock_of(name))?;
            if !users.is_empty() || flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
                return Err(Error::InUse { name: name.to_owned(), users });
            }
            let gone = self.root.join(format!("{UNFINISHED}gone-{}", random_name()));
            fs::rename(&dir, &gone).doing("rename", &dir)?;
            gone
        };
        fs::remove_dir_all(&gone).doing("remove", &gone)
    }

    /// Removes those that nobody has: the anonymous ones, or `all`. Whose labels `wanted` refuses stays.
    ///
    /// # Errors
    /// What the host says.
    pub fn prune(&self, all: bool, wanted: impl Fn(&Volume) -> bool) -> Result<Vec<String>> {
        let mut removed = Vec::new();
        for volume in self.list()?.into_iter().filter(|v| (all || v.anonymous) && v.users.is_empty()) {
            if !wanted(&volume) {
                continue;
            }
            match self.remove_at_once(&volume.name) {
                Ok(()) => removed.push(volume.name),
                Err(Error::InUse { .. } | Error::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(removed)
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
        for name in names(&self.root)?.into_iter().filter(|name| name.starts_with(UNFINISHED)) {
            let path = self.root.join(name);
            if path.is_dir() {
                fs::remove_dir_all(&path).doing("remove", &path)?;
            }
        }
        Ok(())
    }

    /// Notes that a domain of a supervisor's has it.
    ///
    /// # Errors
    /// There is none, or what the host says.
    pub fn pin(&self, name: &str, user: &str) -> Result<()> {
        let _lock = self.lock()?;
        self.get(name)?;
        let path = self.at(name).join(USERS).join(user);
        File::create(&path).doing("make", &path).map(drop)
    }

    /// Notes that it has it no more.
    ///
    /// # Errors
    /// What the host says.
    pub fn unpin(&self, name: &str, user: &str) -> Result<()> {
        let path = self.at(name).join(USERS).join(user);
        match fs::remove_file(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done.doing("remove", &path),
        }
    }

    /// The file that says who has it now.
    pub(crate) fn lock_of(&self, name: &str) -> PathBuf {
        self.at(name).join(LOCK)
    }

    /// The file that says what the files of one with limits take.
    pub(crate) fn used_of(&self, name: &str) -> PathBuf {
        self.at(name).join(USED)
    }

    fn users(&self, name: &str) -> Result<Vec<String>> {
        names(&self.at(name).join(USERS))
    }

    /// Where the files of one of this name are, or would be.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.at(name).join(DATA)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Nobody else makes, removes or takes a volume as long as this is held.
    pub(crate) fn lock(&self) -> Result<File> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.root).doing("make", &self.root)?;
        let path = self.root.join(".lock");
        let file =
            File::options().create(true).truncate(false).write(true).open(&path).doing("open", &path)?;
        flock(&file, FlockOperation::LockExclusive).doing("lock", &path)?;
        Ok(file)
    }
}

/// Does what wants a volume that no domain has: whose domain has just ended is waited for.
fn waiting<T>(act: impl Fn() -> Result<T>) -> Result<T> {
    let begun = Instant::now();
    loop {
        match act() {
            Err(Error::InUse { users, .. }) if users.is_empty() && begun.elapsed() < PATIENCE => {
                std::thread::sleep(PAUSE);
            }
            done => return done,
        }
    }
}

/// Names in a directory, sorted; none if there is no such directory.
fn names(dir: &Path) -> Result<Vec<String>> {
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

/// As Docker's: 64 hexadecimal digits.
fn random_name() -> String {
    let mut bytes = [0; 32];
    // Only very early in a host's boot could it fail, and without flags it waits then.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> (tempfile::TempDir, VolumeStore) {
        let dir = tempfile::tempdir().unwrap();
        let store = VolumeStore::of(dir.path());
        (dir, store)
    }

    #[test]
    fn volumes_are_made_once_and_stay() {
        let (_dir, store) = store();
        assert!(store.list().unwrap().is_empty());
        let made = store.create(Some("data"), BTreeMap::from([("a".into(), "b".into())])).unwrap();
        fs::write(made.path.join("file"), "x").unwrap();
        assert_eq!(store.create(Some("data"), BTreeMap::new()).unwrap(), made);
        assert_eq!(store.list().unwrap(), std::slice::from_ref(&made));
        let other = store.create(None, BTreeMap::new()).unwrap();
        assert!(!other.anonymous && other.name.len() == 64);
        store.remove("data").unwrap();
        assert!(!made.path.exists());
        assert!(matches!(store.get("data"), Err(Error::NotFound(_))));
        assert!(matches!(store.get("../x"), Err(Error::Wrong(_))));
    }

    #[test]
    fn who_is_just_giving_it_up_is_waited_for() {
        let (_dir, store) = store();
        store.create(Some("data"), BTreeMap::new()).unwrap();
        let lease = store.hold(&[store.path("data")], None).unwrap();
        std::thread::scope(|scope| {
            let gives_up = || {
                std::thread::sleep(Duration::from_millis(100));
                drop(lease);
            };
            std::thread::Builder::new().spawn_scoped(scope, gives_up).unwrap();
            store.remove("data").unwrap();
        });
    }

    #[test]
    fn what_is_in_use_stays() {
        let (_dir, store) = store();
        for name in ["pinned", "leased", "free"] {
            store.create(Some(name), BTreeMap::new()).unwrap();
        }
        store.pin("pinned", "id1").unwrap();
        let lease = store.hold(&[store.path("leased")], None).unwrap();
        let said = store.remove("pinned").unwrap_err().to_string();
        assert!(said.contains("domain id1"), "{said}");
        assert!(matches!(store.remove("leased"), Err(Error::InUse { .. })));
        assert!(store.prune(false, |_| true).unwrap().is_empty(), "named ones are kept");
        assert_eq!(store.prune(true, |_| true).unwrap(), ["free"]);
        drop(lease);
        store.unpin("pinned", "id1").unwrap();
        assert_eq!(store.prune(true, |v| v.name != "pinned").unwrap(), ["leased"]);
    }

    #[test]
    fn copies_are_of_one_moment_and_snapshots_are_read() {
        let (_dir, store) = store();
        let made = store.create(Some("data"), BTreeMap::new()).unwrap();
        fs::write(made.path.join("file"), "then").unwrap();
        let snapshot = store.copy("data", "then", BTreeMap::new(), true).unwrap();
        fs::write(made.path.join("file"), "now").unwrap();
        let clone = store.copy("then", "again", BTreeMap::new(), false).unwrap();
        assert!(snapshot.snapshot && !clone.snapshot);
        assert_eq!(fs::read_to_string(clone.path.join("file")).unwrap(), "then");
        assert!(matches!(store.copy("data", "then", BTreeMap::new(), false), Err(Error::Exists(_))));
        let lease = store.hold(&[store.path("data")], None).unwrap();
        assert!(matches!(store.copy("data", "busy", BTreeMap::new(), false), Err(Error::InUse { .. })));
        drop(lease);
        let lease = store.hold(&[store.path("then")], None).unwrap();
        store.copy("then", "more", BTreeMap::new(), true).unwrap();
        drop(lease);
        let left = fs::read_dir(&store.root).unwrap().flatten();
        let left: Vec<_> = left.filter(|e| e.file_name().as_encoded_bytes().starts_with(b".tmp")).collect();
        assert!(left.is_empty(), "{left:?}");
    }

    #[test]
    fn what_was_not_finished_goes() {
        let (dir, store) = store();
        store.create(Some("kept"), BTreeMap::new()).unwrap();
        fs::create_dir_all(dir.path().join("volumes/.gone-1/_data")).unwrap();
        store.sweep().unwrap();
        assert!(!dir.path().join("volumes/.gone-1").exists());
        assert_eq!(store.list().unwrap().len(), 1);
    }
}
