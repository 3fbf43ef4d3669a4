//! The layers of a store.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use doppel_layer::{BLOCK, SUPERBLOCKS, Sum, Superblock};
use doppel_spec::Kind;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::below::{self, Stack};
use crate::error::{Error, IoContext, Result};

const RECORD: &str = "layer.json";
const LOCK: &str = "lock";
const USER: &str = "user";
const CHANGES: &str = "layer";
/// What is being made or removed is called so; no name of a layer begins with it.
const UNFINISHED: &str = ".";
/// File systems that take the upper directory of an overlay and can be mounted with other owners, as `statfs(2)` names them: ext4,
/// XFS, Btrfs, F2FS, bcachefs.
const OVERLAYS: [i64; 5] = [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010, 0xca45_1a4e];
/// Bytes of a block, as `stat(2)` counts them.
const SECTOR: u64 = 512;

/// How long somebody whose domain has ended may still have its lock: a process that it has just made has a copy of the descriptor until it
/// executes its program.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(1);

/// Does what wants a layer that no domain has: whose domain has just ended is waited for.
fn waiting<T>(act: impl Fn() -> Result<T>) -> Result<T> {
    let begun = Instant::now();
    loop {
        match act() {
            Err(Error::InUse { user: None, .. }) if begun.elapsed() < PATIENCE => std::thread::sleep(PAUSE),
            done => return done,
        }
    }
}

/// A layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// Its name.
    pub name: String,
    /// Its directory on this host.
    pub dir: PathBuf,
    /// When it was made, in seconds since 1970.
    pub created: u64,
    /// What it lies on.
    pub base: Base,
    /// It is a domain's own, and goes with that.
    pub own: bool,
    /// The domain of a supervisor's that has it, by its id.
    pub user: Option<String>,
}

/// What a layer lies on, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Base {
    /// The image as it was called.
    pub image: String,
    /// SHA-256 of the image in hexadecimal.
    pub digest: String,
    /// Which kind of domains can read it.
    pub kind: Kind,
}

/// What is written down.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    created: u64,
    #[serde(flatten)]
    base: Base,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    own: bool,
}

/// All layers of a store.
#[derive(Clone, Debug)]
pub struct LayerStore {
    root: PathBuf,
}

/// No other domain gets the layer as long as this is held.
#[derive(Debug)]
pub struct Lock {
    /// The layer's directory.
    pub dir: PathBuf,
    file: File,
}

impl LayerStore {
    /// Those of the store in this directory.
    #[must_use]
    pub fn of(store: &Path) -> Self {
        Self { root: store.join("layers") }
    }

    /// The own layer of a domain of a supervisor's, which is made if it is not there. One that is made is on disk after
    /// [`Self::settle`].
    ///
    /// # Errors
    /// It is another one's, or what the host says.
    pub fn own(&self, domain: &str, base: &Base) -> Result<Layer> {
        let _lock = self.lock()?;
        self.find_or_make(domain, base, Some(domain), true)
    }

    /// The layer of this name, which is made if it is not there; `user`: the domain of a supervisor's that has it from now on.
    ///
    /// # Errors
    /// The name is none, it was made for another image or kind of domains, a domain of a supervisor's has it, or what the host
    /// says.
    pub fn named(&self, name: &str, base: &Base, user: Option<&str>) -> Result<Layer> {
        let _lock = self.lock()?;
        let layer = self.find_or_make(name, base, user, false)?;
        self.settle(&layer)?;
        Ok(layer)
    }

    /// Has a layer that was just made survive a power cut.
    ///
    /// # Errors
    /// What the host says.
    pub fn settle(&self, layer: &Layer) -> Result<()> {
        let changes = layer.dir.join(CHANGES);
        if changes.exists() {
            sync(&changes)?;
        }
        sync(&layer.dir.join(RECORD))?;
        sync(&layer.dir)?;
        sync(&self.root)
    }

    /// A new layer for a clone, above the files that a frozen image keeps in this directory; one of that name is replaced. `user`: as
    /// with [`Self::named`], and it goes with that.
    ///
    /// # Errors
    /// A domain has it, or what the host says.
    pub fn of_clone(&self, name: &str, base: &Base, from: &Path, user: Option<&str>) -> Result<Layer> {
        match self.take_away(name, user) {
            Ok(()) | Err(Error::NotFound(_)) => {}
            Err(error) => return Err(error),
        }
        let _lock = self.lock()?;
        self.make(name, base, user.is_some(), Some(from))
    }

    fn find_or_make(&self, name: &str, base: &Base, user: Option<&str>, own: bool) -> Result<Layer> {
        doppel_spec::check_layer_name(name).map_err(Error::Wrong)?;
        let layer = match self.get(name) {
            Err(Error::NotFound(_)) => self.make(name, base, own, None)?,
            found => found?,
        };
        let in_use = || Error::InUse { name: name.to_owned(), user: layer.user.clone() };
        layer.check_no_clones()?;
        if layer.own != own || layer.user.as_deref().is_some_and(|has| Some(has) != user) {
            return Err(in_use());
        }
        let image = |base: &Base| (base.image.clone(), base.digest.clone());
        if layer.base.digest != base.digest {
            let (has, wanted) = (image(&layer.base), image(base));
            return Err(Error::OtherImage { name: name.to_owned(), has, wanted });
        }
        if layer.base.kind != base.kind {
            let (has, wanted) = (layer.base.kind, base.kind);
            return Err(Error::OtherKind { name: name.to_owned(), has, wanted });
        }
        if let Some(user) = user.filter(|_| layer.user.is_none()) {
            let path = layer.dir.join(USER);
            write_whole(&path, user.as_bytes())?;
            sync(&path)?;
            sync(&layer.dir)?;
        }
        self.get(name)
    }

    fn make(&self, name: &str, base: &Base, own: bool, above: Option<&Path>) -> Result<Layer> {
        let unfinished = tempfile::Builder::new()
            .prefix(UNFINISHED)
            .tempdir_in(&self.root)
            .doing("make a directory in", &self.root)?;
        let at = unfinished.path();
        let created = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let record = Record { created, base: base.clone(), own };
        let text = serde_json::to_vec(&record)
            .map_err(|e| Error::Damaged { name: name.to_owned(), why: e.to_string() })?;
        write_whole(&at.join(RECORD), &text)?;
        write_whole(&at.join(LOCK), b"")?;
        let head = above.map(|from| below::link_all(from, &below::below(at))).transpose()?.flatten();
        if base.kind == Kind::Para {
            write_whole(&at.join(CHANGES), &head.map_or_else(|| empty(&base.digest), Ok)?)?;
        }
        let from = unfinished.keep();
        fs::rename(&from, self.at(name)).doing("rename", &from)?;
        self.get(name)
    }

    /// The one of this name.
    ///
    /// # Errors
    /// There is none, or what the host says.
    pub fn get(&self, name: &str) -> Result<Layer> {
        doppel_spec::check_layer_name(name).map_err(Error::Wrong)?;
        let dir = self.at(name);
        let text = match fs::read(dir.join(RECORD)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(Error::NotFound(name.to_owned())),
            read => read.doing("read", &dir.join(RECORD))?,
        };
        let damaged = |e: serde_json::Error| Error::Damaged { name: name.to_owned(), why: e.to_string() };
        let Record { created, base, own } = serde_json::from_slice(&text).map_err(damaged)?;
        let user = match fs::read_to_string(dir.join(USER)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            read => Some(read.doing("read", &dir.join(USER))?),
        };
        let user = if own { Some(name.to_owned()) } else { user };
        Ok(Layer { name: name.to_owned(), dir, created, base, own, user })
    }

    /// All of them, by name.
    ///
    /// # Errors
    /// What the host says.
    pub fn list(&self) -> Result<Vec<Layer>> {
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

    /// Removes one that no domain has, with all its files.
    ///
    /// # Errors
    /// There is none, a domain has it, or what the host says.
    pub fn remove(&self, name: &str) -> Result<()> {
        waiting(|| self.take_away(name, None))
    }

    /// Notes that a domain of a supervisor's has it no more; one that was the domain's own goes.
    ///
    /// # Errors
    /// There is none, the domain still runs on it, or what the host says.
    pub fn release(&self, name: &str, user: &str) -> Result<()> {
        let layer = self.get(name)?;
        if layer.user.as_deref() != Some(user) {
            return Ok(());
        }
        if layer.own {
            return waiting(|| self.take_away(name, Some(user)));
        }
        let path = layer.dir.join(USER);
        match fs::remove_file(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done.doing("remove", &path),
        }
    }

    fn take_away(&self, name: &str, user: Option<&str>) -> Result<()> {
        let gone = {
            let _lock = self.lock()?;
            let layer = self.get(name)?;
            if layer.user.as_deref() != user {
                return Err(Error::InUse { name: name.to_owned(), user: layer.user });
            }
            let _held = self.try_hold(&layer)?;
            let gone = self.root.join(format!("{UNFINISHED}gone-{name}"));
            fs::rename(&layer.dir, &gone).doing("rename", &layer.dir)?;
            gone
        };
        fs::remove_dir_all(&gone).doing("remove", &gone)
    }

    /// Removes those that no domain has; their names.
    ///
    /// # Errors
    /// What the host says.
    pub fn prune(&self) -> Result<Vec<String>> {
        let mut removed = Vec::new();
        for layer in self.list()?.into_iter().filter(|layer| layer.user.is_none()) {
            match self.take_away(&layer.name, None) {
                Ok(()) => removed.push(layer.name),
                Err(Error::InUse { .. } | Error::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(removed)
    }

    /// Removes what was not finished when a process died, or the host.
    ///
    /// # Errors
    /// What the host says.
    pub fn sweep(&self) -> Result<()> {
        if !self.root.exists() {
            return Ok(());
        }
        let _lock = self.lock()?;
        // A new layer that was not settled lacks what its files are made with.
        let shorter = |name: &str, file: &str, len: u64| {
            fs::metadata(self.at(name).join(file)).is_ok_and(|meta| meta.len() < len)
        };
        let torn = |name: &String| shorter(name, RECORD, 1) || shorter(name, CHANGES, SUPERBLOCKS * BLOCK);
        let unfinished = |name: &String| name.starts_with(UNFINISHED) || torn(name);
        for name in names(&self.root)?.into_iter().filter(unfinished) {
            let path = self.root.join(name);
            if path.is_dir() {
                fs::remove_dir_all(&path).doing("remove", &path)?;
            }
        }
        Ok(())
    }

    /// Has a domain that is about to run have it alone, as long as this process holds the lock.
    ///
    /// # Errors
    /// A domain runs on it, or what the host says.
    pub fn hold(&self, layer: &Layer) -> Result<Lock> {
        waiting(|| self.try_hold(layer))
    }

    /// The same at once or not at all.
    fn try_hold(&self, layer: &Layer) -> Result<Lock> {
        Lock::of(&layer.dir)?
            .ok_or_else(|| Error::InUse { name: layer.name.clone(), user: layer.user.clone() })
    }

    /// Whether the file system of the store is known to take what an overlay has above an image, with owners of its own: a paene
    /// domain's layer.
    #[must_use]
    pub fn takes_overlays(&self) -> bool {
        let store = self.root.parent().unwrap_or(&self.root);
        rustix::fs::statfs(store).is_ok_and(|fs| OVERLAYS.contains(&fs.f_type))
    }

    fn at(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn lock(&self) -> Result<File> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.root).doing("make", &self.root)?;
        let path = self.root.join(".lock");
        let file =
            File::options().create(true).truncate(false).write(true).open(&path).doing("open", &path)?;
        flock(&file, FlockOperation::LockExclusive).doing("lock", &path)?;
        Ok(file)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // A process that is just being made has a copy of the descriptor, with which the lock would stay.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

impl Lock {
    /// That of the layer in this directory; none: somebody has it.
    ///
    /// # Errors
    /// What the host says.
    pub fn of(dir: &Path) -> Result<Option<Self>> {
        let path = dir.join(LOCK);
        let file = File::open(&path).doing("open", &path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            done => done.doing("lock", &path).map(|()| Some(Self { dir: dir.to_owned(), file })),
        }
    }
}

impl Layer {
    /// Refuses that of a clone to others: it goes with the clone.
    fn check_no_clones(&self) -> Result<()> {
        match below::below(&self.dir).exists() {
            true => Err(Error::OfClone(self.name.clone())),
            false => Ok(()),
        }
    }

    /// What a para domain has written, of a clone with what that lies on. Whoever reads it holds it.
    ///
    /// # Errors
    /// It is a clone's that a version of Doppel made which did not note what it lies on, or what the host says.
    pub fn open(&self) -> Result<Stack> {
        Stack::open(&self.dir, &self.name)
    }

    /// Bytes of disk space that it takes.
    #[must_use]
    pub fn size(&self) -> u64 {
        let (mut total, mut todo) = (0, vec![self.dir.clone()]);
        while let Some(dir) = todo.pop() {
            // What cannot be read, or goes meanwhile, is not counted.
            for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
                let Ok(meta) = entry.metadata() else { continue };
                total += meta.blocks() * SECTOR;
                // What a clone's lies on counts where it was written.
                if meta.is_dir() && entry.path() != below::below(&self.dir) {
                    todo.push(entry.path());
                }
            }
        }
        total
    }
}

/// The file of the layer in this directory in which a para domain's guest kernel writes its changes.
#[must_use]
pub fn file(dir: &Path) -> PathBuf {
    dir.join(CHANGES)
}

/// What the file of a layer may take of the disk at most if what is kept may be `bytes`, whatever its domain does: its guest kernel
/// counts files, and writes what changes beside what it replaces.
#[must_use]
pub fn most(bytes: u64) -> u64 {
    const BESIDE: u64 = 64 << 20;
    bytes.saturating_mul(2).saturating_add(BESIDE)
}

/// A number that tells the state of the layer of a para domain in this directory, which nobody writes just now, and has it
/// survive a power cut: its log is never the same length again, so its length, what it begins with and what it ends with do. Not 0.
///
/// # Errors
/// What the host says.
pub fn state(dir: &Path) -> Result<u32> {
    let path = file(dir);
    let read = || {
        let log = File::open(&path)?;
        log.sync_data()?;
        let len = log.metadata()?.len();
        let mut bytes = vec![0; usize::try_from(SUPERBLOCKS * BLOCK).unwrap_or(0)];
        log.read_exact_at(&mut bytes, 0)?;
        let mut sum = Sum::new(len);
        sum.add(&bytes);
        log.read_exact_at(&mut bytes, len.saturating_sub(SUPERBLOCKS * BLOCK))?;
        sum.add(&bytes);
        Ok::<_, io::Error>(sum.value())
    };
    let sum = read().doing("read", &path)?;
    Ok(u32::try_from(sum >> 32).unwrap_or(0).max(1))
}

/// The directory of the layer in this directory that an overlay has above a paene domain's image.
#[must_use]
pub fn upper(dir: &Path) -> PathBuf {
    dir.join("upper")
}

/// The file of a para domain's layer that has no changes yet, of the image with this digest.
fn empty(digest: &str) -> Result<Vec<u8>> {
    let mut image = [0; 32];
    let digits = digest.as_bytes().as_chunks().0;
    for (byte, [high, low]) in image.iter_mut().zip(digits) {
        let digit = |c: u8| char::from(c).to_digit(16).and_then(|d| u8::try_from(d).ok());
        let pair =
            digit(*high).zip(digit(*low)).ok_or_else(|| Error::Wrong(format!("{digest:?} is no digest")))?;
        *byte = pair.0 << 4 | pair.1;
    }
    let mut salt = [0; 8];
    // Only very early in a host's boot could it fail, and without flags it waits then.
    let _ = rustix::rand::getrandom(&mut salt, rustix::rand::GetRandomFlags::empty());
    let first = Superblock::new(image, u64::from_le_bytes(salt));
    let mut blocks = vec![0; usize::try_from(SUPERBLOCKS * BLOCK).unwrap_or(0)];
    let at = usize::try_from(first.block() * BLOCK).unwrap_or(0);
    blocks[at..][..BLOCK as usize].copy_from_slice(&first.encode());
    Ok(blocks)
}

fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file =
        File::options().create(true).truncate(true).write(true).mode(0o600).open(path).doing("make", path)?;
    io::Write::write_all(&mut file, bytes).doing("write", path)
}

/// Has a file or a directory be on disk as it is now.
fn sync(path: &Path) -> Result<()> {
    File::open(path).and_then(|f| f.sync_all()).doing("sync", path)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> (tempfile::TempDir, LayerStore) {
        let dir = tempfile::tempdir().unwrap();
        let store = LayerStore::of(dir.path());
        (dir, store)
    }

    struct Bytes(Vec<u8>);

    impl doppel_layer::Source for Bytes {
        fn read(&mut self, at: u64, bytes: &mut [u8]) -> std::result::Result<usize, doppel_layer::Error> {
            let from = self.0.get(usize::try_from(at).unwrap()..).unwrap_or_default();
            let n = from.len().min(bytes.len());
            bytes[..n].copy_from_slice(&from[..n]);
            Ok(n)
        }
    }

    fn base(digest: &str, kind: Kind) -> Base {
        Base { image: "box".into(), digest: digest.repeat(64), kind }
    }

    #[test]
    fn they_are_made_once_and_fit_one_image_and_kind() {
        let (_dir, store) = store();
        let para = base("1", Kind::Para);
        assert!(store.list().unwrap().is_empty());
        let made = store.named("web", &para, None).unwrap();
        let new = doppel_layer::load(&mut Bytes(fs::read(file(&made.dir)).unwrap())).unwrap();
        assert_eq!((new.superblock.image, new.tree.files.len()), ([0x11; 32], 0));
        fs::write(made.dir.join("more"), [1; 5000]).unwrap();
        assert_eq!(store.named("web", &para, None).unwrap(), made);
        assert!(made.size() >= 5000);
        let said = store.named("web", &base("2", Kind::Para), None).unwrap_err().to_string();
        assert!(said.contains("sha256:11") && said.contains("sha256:22"), "{said}");
        let said = store.named("web", &base("1", Kind::Paene), None).unwrap_err().to_string();
        assert!(said.contains("a para domain, not for a paene one"), "{said}");
        assert!(matches!(store.named("../x", &para, None), Err(Error::Wrong(_))));
        store.remove("web").unwrap();
        assert!(!made.dir.exists() && matches!(store.remove("web"), Err(Error::NotFound(_))));
    }

    #[test]
    fn its_state_tells_that_something_was_written() {
        let (_dir, store) = store();
        let made = store.own("0123456789abcdef", &base("1", Kind::Para)).unwrap();
        let other = store.own("0123456789abcdee", &base("1", Kind::Para)).unwrap();
        let (first, path) = (state(&made.dir).unwrap(), file(&made.dir));
        assert!(first == state(&made.dir).unwrap() && first != 0 && first != state(&other.dir).unwrap());
        // Its log has grown, and then another superblock is written.
        let log = File::options().write(true).open(&path).unwrap();
        log.write_all_at(&[1; 4096], 3 * BLOCK).unwrap();
        let longer = state(&made.dir).unwrap();
        log.write_all_at(&[2; 8], 0).unwrap();
        let begun_elsewhere = state(&made.dir).unwrap();
        log.set_len(BLOCK).unwrap();
        assert!(first != longer && longer != begun_elsewhere && state(&made.dir).is_err());
    }

    #[test]
    fn one_domain_at_a_time_has_a_layer() {
        let (_dir, store) = store();
        let base = base("1", Kind::Para);
        let named = store.named("web", &base, Some("id1")).unwrap();
        assert_eq!(store.named("web", &base, Some("id1")).unwrap(), named);
        for other in [Some("id2"), None] {
            let said = store.named("web", &base, other).unwrap_err().to_string();
            assert!(said.contains("domain id1"), "{said}");
        }
        let held = store.hold(&named).unwrap();
        assert!(matches!(store.hold(&named), Err(Error::InUse { .. })));
        store.release("web", "id2").unwrap();
        assert!(matches!(store.remove("web"), Err(Error::InUse { .. })));
        store.release("web", "id1").unwrap();
        assert!(matches!(store.remove("web"), Err(Error::InUse { user: None, .. })), "it is held");
        assert!(store.prune().unwrap().is_empty());
        drop(held);
        assert_eq!(store.prune().unwrap(), ["web"]);
    }

    #[test]
    fn a_domains_own_goes_with_it() {
        let (_dir, store) = store();
        let base = base("1", Kind::Paene);
        let own = store.own("0123456789abcdef", &base).unwrap();
        assert_eq!((own.own, own.user.as_deref()), (true, Some("0123456789abcdef")));
        assert!(matches!(store.named(&own.name, &base, None), Err(Error::InUse { .. })));
        assert!(store.prune().unwrap().is_empty() && store.remove(&own.name).is_err());
        store.release(&own.name, &own.name).unwrap();
        assert!(!own.dir.exists());
    }

    #[test]
    fn who_is_just_giving_it_up_is_waited_for() {
        let (_dir, store) = store();
        let layer = store.named("web", &base("aa", Kind::Para), None).unwrap();
        let held = store.hold(&layer).unwrap();
        std::thread::scope(|scope| {
            let removed = std::thread::Builder::new().spawn_scoped(scope, || store.remove("web")).unwrap();
            std::thread::sleep(20 * PAUSE);
            assert!(!removed.is_finished());
            drop(held);
            removed.join().unwrap().unwrap();
        });
    }

    #[test]
    fn a_copy_of_its_descriptor_does_not_keep_a_lock() {
        let (_dir, store) = store();
        let layer = store.named("web", &base("aa", Kind::Para), None).unwrap();
        let held = store.hold(&layer).unwrap();
        let _copy = held.file.try_clone().unwrap();
        assert!(Lock::of(&layer.dir).unwrap().is_none());
        drop(held);
        assert!(Lock::of(&layer.dir).unwrap().is_some());
    }

    #[test]
    fn what_was_not_finished_goes() {
        let (dir, store) = store();
        store.named("kept", &base("1", Kind::Para), None).unwrap();
        fs::create_dir_all(dir.path().join("layers/.gone-1/upper")).unwrap();
        let torn = store.own("0123456789abcdef", &base("1", Kind::Para)).unwrap();
        fs::write(torn.dir.join(RECORD), "").unwrap();
        let short = store.own("0123456789abcdee", &base("1", Kind::Para)).unwrap();
        fs::write(file(&short.dir), "").unwrap();
        store.sweep().unwrap();
        assert!(!dir.path().join("layers/.gone-1").exists() && !torn.dir.exists() && !short.dir.exists());
        assert_eq!(store.list().unwrap().len(), 1);
    }
}
