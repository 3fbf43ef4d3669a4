//! The store: image files named by digest, and names that point to them.
//!
//! ```text
//! images/sha256-<hex>.erofs    read-only, never changed in place
//! names/<name>.json            a Record; a `/` in the name is `~` here
//! blobs/, partial/             what registries sent (kept by `doppel-oci`)
//! unpacked/sha256-<hex>/       images as directories, where the host cannot mount them (`unpacked.rs`)
//! pins/<hex>.<user>            images that somebody uses, named or not (`pins.rs`)
//! tmp/                         unfinished files; what a dead process left there goes at the next import
//! lock                         held (flock) while names and images change
//! ```
//!
//! Every file appears under its final name complete and on disk (write, fsync, rename, fsync of the
//! directory). Removing a name removes the image when no other name has it and nobody has pinned it; a domain
//! that has the image open keeps it.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use doppel_abi_image as abi;
use doppel_abi_image::patch::{FOOTER_FROM_END, PatchFooter};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tempfile::NamedTempFile;

use crate::config::Oci;
use crate::error::IoContext;
use crate::input::{archive, compressed, directory};
use crate::patch::{PatchReport, SCANNER};
use crate::tree::{Content, Limits, Tree};
use crate::watcher::Watcher;
use crate::{Error, Result, writer};

/// Where images are kept unless `DOPPEL_STORE` says otherwise.
const DEFAULT_ROOT: &str = "/var/lib/doppel";
/// A record is a few lines, and what an image says about running it; more is damage.
const RECORD_MAX: u64 = 4 << 20;

/// How many of what an image holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Regular files (hard links counted once).
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Devices, FIFOs and sockets.
    pub special: u64,
    /// Bytes of file data.
    pub bytes: u64,
}

impl Counts {
    pub(crate) const fn add(&mut self, content: &Content) {
        match content {
            Content::Dir(_) => self.directories += 1,
            Content::File(data) => {
                self.files += 1;
                self.bytes += data.len();
            }
            Content::Symlink(_) => self.symlinks += 1,
            _ => self.special += 1,
        }
    }

    /// All inodes.
    #[must_use]
    pub const fn inodes(&self) -> u64 {
        self.files + self.directories + self.symlinks + self.special
    }
}

/// What an image was made from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "kind")]
pub enum Source {
    /// A directory of the host.
    Directory {
        /// Its path.
        path: PathBuf,
    },
    /// A tar archive.
    Archive {
        /// Its path, `-` for standard input.
        path: PathBuf,
    },
    /// Debian packages.
    Packages {
        /// Debian suite.
        suite: String,
        /// What was asked for, sorted.
        packages: Vec<String>,
    },
    /// An OCI image.
    Oci {
        /// The reference it was pulled by, or the path of its archive.
        reference: String,
    },
    /// What a domain has made of another image.
    Domain {
        /// The domain, or its layer.
        name: String,
        /// The other image.
        image: String,
    },
}

/// What the store knows about a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The name.
    pub name: String,
    /// SHA-256 of the image file, hexadecimal.
    pub digest: String,
    /// Size of the image file in bytes.
    pub size: u64,
    /// When the name was given, seconds since 1970.
    pub created: u64,
    /// What it was made from.
    pub source: Source,
    /// What it holds.
    pub counts: Counts,
    /// What was patched; `None` without a patch section.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patches: Option<PatchReport>,
    /// Its layers and how to run it; `None` for an image that was never an OCI image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oci: Option<Oci>,
}

/// See [`Store::version`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameVersion {
    file: (u64, u64),
    size: u64,
    changed: (i64, i64, i64, i64),
}

/// An image ready to be mapped.
#[derive(Debug)]
pub struct OpenImage {
    /// The image file, open for reading.
    pub file: File,
    /// What the store knows about it.
    pub record: Record,
    /// Its path.
    pub path: PathBuf,
}

/// A tree that has been read, waiting for a name. Dropped without one, it leaves nothing.
#[derive(Debug)]
pub struct Staged<'a> {
    store: &'a Store,
    tree: Tree,
    spool: File,
    spooled: u64,
}

impl Staged<'_> {
    /// Applies the layer `source` over what is there. `compressed` is its size as it was sent; a layer that grows
    /// beyond reason is refused. Returns the SHA-256 of the decompressed layer, in hexadecimal.
    pub fn apply_layer(&mut self, source: impl Read, compressed: u64) -> Result<String> {
        let broken = |e: io::Error| Error::source(b"", format!("cannot be read: {e}"));
        let limits = self.tree.limits();
        let most = compressed.saturating_mul(RATIO_MAX).saturating_add(RATIO_FREE);
        let plain = self.store.watcher.watch(compressed::plain(source).map_err(broken)?);
        let mut metered = Metered { source: plain, hash: Sha256::new(), left: most, over: false };
        let applied = archive::apply_layer(&mut metered, &self.spool, &mut self.spooled, &mut self.tree);
        // What follows the end marker belongs to the digest.
        let rest = applied.and_then(|()| {
            io::copy(&mut (&mut metered).take(limits.bytes), &mut io::sink()).map(|_| ()).map_err(broken)
        });
        if metered.over {
            return Err(Error::source(
                b"",
                format!("a layer of {compressed} bytes grows to more than {most}: refused as a bomb"),
            ));
        }
        rest?;
        Ok(metered.hash.finalize().iter().map(|b| format!("{b:02x}")).collect())
    }

    /// Writes the image and gives it `name`.
    pub fn publish(self, name: &str, source: Source, oci: Option<Oci>) -> Result<Record> {
        self.store.publish(name, &self.tree, Some(&self.spool), source, oci)
    }
}

/// A layer may grow by this factor …
const RATIO_MAX: u64 = 200;
/// … and by this many bytes beside.
const RATIO_FREE: u64 = 1 << 30;

/// Hashes what is read, and ends what is too much.
struct Metered<R> {
    source: R,
    hash: Sha256,
    left: u64,
    over: bool,
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.source.read(buf)?;
        self.hash.update(&buf[..n]);
        let left = self.left.checked_sub(n as u64);
        self.over |= left.is_none();
        self.left = left.ok_or_else(|| io::Error::other("too much data"))?;
        Ok(n)
    }
}

/// An image store in a directory.
#[derive(Clone, Debug)]
pub struct Store {
    root: PathBuf,
    patch: bool,
    watcher: Watcher,
}

/// Where the store is, as [`Store::from_env`] says.
fn default_root(root: bool, variable: impl Fn(&str) -> Option<PathBuf>) -> PathBuf {
    if let Some(named) = variable("DOPPEL_STORE") {
        return named;
    }
    let data = || {
        // The specification of base directories: what is not absolute does not count.
        variable("XDG_DATA_HOME")
            .filter(|p| p.is_absolute())
            .or_else(|| variable("HOME").map(|home| home.join(".local/share")))
    };
    match (!root).then(data).flatten() {
        Some(data) => data.join("doppel"),
        None => DEFAULT_ROOT.into(),
    }
}

impl Store {
    /// The store the environment names (`DOPPEL_STORE`); else root's is `/var/lib/doppel`, and that of any other user
    /// `doppel` in the user's data directory (`XDG_DATA_HOME`, `~/.local/share`).
    #[must_use]
    pub fn from_env() -> Self {
        let variable = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        Self::at(default_root(rustix::process::geteuid().is_root(), variable))
    }

    /// The store at `root`; nothing is created before the first import.
    #[must_use]
    pub const fn at(root: PathBuf) -> Self {
        Self { root, patch: true, watcher: Watcher::nobody() }
    }

    /// The same store, which tells of images that are made in it.
    #[must_use]
    pub fn watched(mut self, watcher: Watcher) -> Self {
        self.watcher = watcher;
        self
    }

    /// The store, making images without a patch section from now on.
    #[must_use]
    pub fn without_patches(mut self) -> Self {
        self.patch = false;
        self
    }

    /// Whether an image is as this store would make it, as to patches.
    #[must_use]
    pub fn patched_alike(&self, record: &Record) -> bool {
        record.patches.as_ref().map(|p| p.scanner) == self.patch.then_some(SCANNER)
    }

    /// The directory of the store.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Makes image `name` from a directory. Returns notes on what was left out, too.
    pub fn import_dir(&self, name: &str, path: &Path, limits: Limits) -> Result<(Record, Vec<String>)> {
        check_name(name)?;
        self.prepare()?;
        let (tree, notes) = directory::from_dir(path, limits)?;
        let path = fs::canonicalize(path).doing("read", path)?;
        Ok((self.publish(name, &tree, None, Source::Directory { path }, None)?, notes))
    }

    /// Makes image `name` from a tar or tar.gz archive.
    pub fn import_tar(
        &self,
        name: &str,
        archive: impl Read,
        source: Source,
        limits: Limits,
    ) -> Result<Record> {
        check_name(name)?;
        self.stage_tar(archive, limits)?.publish(name, source, None)
    }

    /// Reads an archive completely, without giving it a name yet.
    pub(crate) fn stage_tar(&self, archive: impl Read, limits: Limits) -> Result<Staged<'_>> {
        let staged = self.stage(limits)?;
        let tree = archive::from_tar(self.watcher.watch(archive), &staged.spool, limits)?;
        Ok(Staged { tree, ..staged })
    }

    /// An empty tree, for layers.
    pub fn stage(&self, limits: Limits) -> Result<Staged<'_>> {
        self.prepare()?;
        Ok(Staged { store: self, tree: Tree::new(limits), spool: self.scratch()?, spooled: 0 })
    }

    /// A file without a name in the store: it goes when it is closed.
    pub fn scratch(&self) -> Result<File> {
        let tmp = self.root.join("tmp");
        tempfile::tempfile_in(&tmp).doing("create a file in", &tmp)
    }

    /// Makes `new` a further name of the image `name`, in place of what it named before.
    pub fn tag(&self, name: &str, new: &str) -> Result<Record> {
        check_name(new)?;
        self.prepare()?;
        self.change(new, |store| Ok(Record { name: new.into(), ..store.record(name)? }))
    }

    /// Notes the layers of image `name`, made after it.
    pub fn set_oci(&self, name: &str, oci: Oci) -> Result<Record> {
        self.change(name, |store| Ok(Record { oci: Some(oci), ..store.record(name)? }))
    }

    /// Gives `name` the record that `make` returns.
    fn change(&self, name: &str, make: impl FnOnce(&Self) -> Result<Record>) -> Result<Record> {
        let _lock = self.lock()?;
        let record = make(self)?;
        let old = self.record(name).ok().map(|r| r.digest).filter(|d| *d != record.digest);
        self.write_record(&record)?;
        if let Some(old) = old {
            self.collect(&old)?;
        }
        Ok(record)
    }

    /// The name that `name` stands for on a command line: itself, or Docker's short form of `NAME:latest`.
    pub fn find(&self, name: &str) -> Result<String> {
        let short = name.strip_prefix("docker.io/").unwrap_or(name);
        let short = short.strip_prefix("library/").unwrap_or(short);
        let tagged = short.rsplit('/').next().is_some_and(|last| last.contains([':', '@']));
        let mut tries = vec![name.to_owned(), short.to_owned()];
        if !tagged {
            tries.push(format!("{short}:latest"));
        }
        check_name(name)?;
        for name in tries.into_iter().filter(|n| check_name(n).is_ok()) {
            let path = self.name_path(&name);
            // One that may not be looked for is not one that is missing.
            if path.try_exists().doing("look for", &path)? {
                return Ok(name);
            }
        }
        Err(Error::NotFound(name.into()))
    }

    /// Opens image `name` for a domain. Checks what is cheap to check: that record, file size and superblock
    /// agree; `OpenImage::verify` checks every byte.
    pub fn open(&self, name: &str) -> Result<OpenImage> {
        let record = self.record(name)?;
        let path = self.image_path(&record.digest);
        let damaged = |why: &str| Error::Damaged { image: path.display().to_string(), why: why.into() };
        let file = match File::open(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(damaged("its file is gone")),
            other => other.doing("open", &path)?,
        };
        let size = file.metadata().doing("read", &path)?.len();
        if size != record.size {
            return Err(damaged(&format!("it has {size} bytes instead of {}", record.size)));
        }
        let mut raw = [0; abi::Superblock::SIZE];
        file.read_exact_at(&mut raw, abi::SUPER_OFFSET as u64)
            .map_err(|_| damaged("it has no superblock"))?;
        let superblock = abi::Superblock::decode(&raw);
        let blocks = u64::from(superblock.blocks) << abi::BLOCK_BITS;
        if superblock.magic != abi::MAGIC || blocks > size {
            return Err(damaged("its superblock is wrong"));
        }
        if blocks < size && !has_footer(&file, size) {
            return Err(damaged("its patch section is wrong"));
        }
        Ok(OpenImage { file, record, path })
    }

    /// What `name` stands for now, without reading it: as long as this is the same, so is its record.
    #[must_use]
    pub fn version(&self, name: &str) -> Option<NameVersion> {
        check_name(name).ok()?;
        let meta = std::fs::metadata(self.name_path(name)).ok()?;
        let changed = (meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec());
        Some(NameVersion { file: (meta.dev(), meta.ino()), size: meta.len(), changed })
    }

    /// The record of `name`.
    pub fn record(&self, name: &str) -> Result<Record> {
        check_name(name)?;
        let path = self.name_path(name);
        let file = match File::open(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(Error::NotFound(name.into())),
            other => other.doing("open", &path)?,
        };
        let mut text = String::new();
        file.take(RECORD_MAX).read_to_string(&mut text).doing("read", &path)?;
        let bad = |why: String| Error::BadRecord { name: name.into(), why };
        let record: Record = serde_json::from_str(&text).map_err(|e| bad(e.to_string()))?;
        let hex = record.digest.len() == 64 && record.digest.bytes().all(|b| b.is_ascii_hexdigit());
        if !hex || record.name != name {
            return Err(bad("its digest or name is wrong".into()));
        }
        Ok(record)
    }

    /// Every name with its record, or why the record cannot be read; sorted by name.
    pub fn list(&self) -> Result<Vec<(String, Result<Record>)>> {
        let dir = self.root.join("names");
        let entries = match fs::read_dir(&dir) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.doing("list", &dir)?,
        };
        let mut all = Vec::new();
        for entry in entries {
            let file = entry.doing("list", &dir)?.file_name();
            if let Some(name) =
                file.to_str().and_then(|f| f.strip_suffix(".json")).map(|f| f.replace('~', "/"))
                && check_name(&name).is_ok()
            {
                let record = self.record(&name);
                all.push((name, record));
            }
        }
        all.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(all)
    }

    /// Removes `name`, and its image when no other name has it. Says whether the image went too.
    pub fn remove(&self, name: &str) -> Result<bool> {
        check_name(name)?;
        let path = self.name_path(name);
        if !path.exists() {
            return Err(Error::NotFound(name.into()));
        }
        let _lock = self.lock()?;
        let digest = self.record(name).ok().map(|r| r.digest);
        fs::remove_file(&path).doing("remove", &path)?;
        let names = self.list()?;
        // A record that cannot be read may point to any image: then keep them all.
        let Some(digest) = digest.filter(|_| names.iter().all(|(_, r)| r.is_ok())) else { return Ok(false) };
        if names.iter().any(|(_, r)| r.as_ref().is_ok_and(|r| r.digest == digest)) {
            return Ok(false);
        }
        if self.held()?.contains(&digest) {
            return Ok(false);
        }
        let image = self.image_path(&digest);
        match fs::remove_file(&image) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            other => {
                other.doing("remove", &image)?;
                self.sweep_unpacked().map(|()| true)
            }
        }
    }

    /// Writes the image of `tree` and gives it `name`.
    fn publish(
        &self,
        name: &str,
        tree: &Tree,
        spool: Option<&File>,
        source: Source,
        oci: Option<Oci>,
    ) -> Result<Record> {
        check_name(name)?;
        let tmp = self.temporary()?;
        let written = writer::write(tree, spool, tmp.as_file(), tmp.path(), self.patch, &self.watcher)?;
        tmp.as_file().set_permissions(Permissions::from_mode(0o444)).doing("chmod", tmp.path())?;
        tmp.as_file().sync_all().doing("sync", tmp.path())?;
        let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        let record = Record {
            name: name.into(),
            digest: written.digest,
            size: written.size,
            created,
            source,
            counts: written.counts,
            patches: written.patches,
            oci,
        };
        let _lock = self.lock()?;
        let old = self.record(name).ok().map(|r| r.digest).filter(|d| *d != record.digest);
        self.persist(tmp, &self.image_path(&record.digest))?;
        self.write_record(&record)?;
        if let Some(old) = old {
            self.collect(&old)?;
        }
        Ok(record)
    }

    /// Removes the image `digest` if no name has it any more and nobody has pinned it. Under the lock.
    fn collect(&self, digest: &str) -> Result<()> {
        let used = |r: &Result<Record>| r.as_ref().map_or(true, |r| r.digest == digest);
        if !self.list()?.iter().any(|(_, r)| used(r)) && !self.held()?.contains(digest) {
            let image = self.image_path(digest);
            match fs::remove_file(&image) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                other => other.doing("remove", &image)?,
            }
            self.sweep_unpacked()?;
        }
        Ok(())
    }

    fn write_record(&self, record: &Record) -> Result<()> {
        let mut tmp = self.temporary()?;
        let mut text =
            serde_json::to_string_pretty(record).map_err(io::Error::from).doing("encode", tmp.path())?;
        text.push('\n');
        tmp.write_all(text.as_bytes()).doing("write", tmp.path())?;
        tmp.as_file().set_permissions(Permissions::from_mode(0o644)).doing("chmod", tmp.path())?;
        tmp.as_file().sync_all().doing("sync", tmp.path())?;
        self.persist(tmp, &self.name_path(&record.name))
    }

    /// Moves a finished file to its place and makes that durable.
    fn persist(&self, tmp: NamedTempFile, to: &Path) -> Result<()> {
        tmp.persist(to).map_err(|e| e.error).doing("rename a file to", to)?;
        let parent = to.parent().unwrap_or(&self.root);
        File::open(parent).and_then(|d| d.sync_all()).doing("sync", parent)
    }

    /// Makes the store's directories, and clears what dead processes left: files in `tmp`, images without a name.
    pub fn prepare(&self) -> Result<()> {
        // Images hold other systems' files (password hashes, keys): the store is its owner's.
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder
            .create(&self.root)
            .doing("make the image store (DOPPEL_STORE names another place)", &self.root)?;
        let _lock = self.lock()?;
        for name in ["images", "names", "tmp"] {
            let path = self.root.join(name);
            builder.create(&path).doing("create", &path)?;
        }
        let tmp = self.root.join("tmp");
        for entry in fs::read_dir(&tmp).doing("list", &tmp)? {
            let path = entry.doing("list", &tmp)?.path();
            // Its maker holds a lock on it as long as it lives.
            let dead = File::open(&path).is_ok_and(|f| f.try_lock().is_ok());
            if dead {
                fs::remove_file(&path).doing("remove", &path)?;
            }
        }
        self.sweep()
    }

    /// Removes images without a name or pin: under the lock there are some only after a death between two steps.
    fn sweep(&self) -> Result<()> {
        let mut used: BTreeSet<String> =
            self.held()?.iter().map(|digest| format!("sha256-{digest}.erofs")).collect();
        for (_, record) in self.list()? {
            // A record that cannot be read may point to any image: then keep them all.
            let Ok(record) = record else { return Ok(()) };
            used.insert(format!("sha256-{}.erofs", record.digest));
        }
        let images = self.root.join("images");
        for entry in fs::read_dir(&images).doing("list", &images)? {
            let entry = entry.doing("list", &images)?;
            if entry.file_name().to_str().is_some_and(|name| !used.contains(name)) {
                fs::remove_file(entry.path()).doing("remove", &entry.path())?;
            }
        }
        self.sweep_unpacked()
    }

    /// A locked file in `tmp`, removed when dropped.
    fn temporary(&self) -> Result<NamedTempFile> {
        let dir = self.root.join("tmp");
        let tmp = NamedTempFile::new_in(&dir).doing("create a file in", &dir)?;
        tmp.as_file().lock().doing("lock", tmp.path())?;
        Ok(tmp)
    }

    pub(crate) fn lock(&self) -> Result<File> {
        let path = self.root.join("lock");
        let file =
            File::options().create(true).truncate(false).write(true).open(&path).doing("open", &path)?;
        file.lock().doing("lock", &path)?;
        Ok(file)
    }

    pub(crate) fn image_path(&self, digest: &str) -> PathBuf {
        self.root.join("images").join(format!("sha256-{digest}.erofs"))
    }

    fn name_path(&self, name: &str) -> PathBuf {
        self.root.join("names").join(format!("{}.json", name.replace('/', "~")))
    }
}

/// Whether a file of this size ends in the footer of a patch section.
fn has_footer(file: &File, size: u64) -> bool {
    let mut raw = [0; size_of::<PatchFooter>()];
    let at = size.checked_sub(FOOTER_FROM_END);
    at.is_some_and(|at| file.read_exact_at(&mut raw, at).is_ok()) && PatchFooter::parse(&raw).is_some()
}

/// Accepts names that are safe as a file name and unambiguous on a command line; `/` and `@` as in references.
pub(crate) fn check_name(name: &str) -> Result<()> {
    let good = |b: u8| b.is_ascii_alphanumeric() || b"._-:/@".contains(&b);
    let first = name.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
    let parts = name.split('/').all(|part| !matches!(part, "" | "." | ".."));
    if first && parts && name.len() <= 200 && name.bytes().all(good) {
        Ok(())
    } else {
        Err(Error::BadName(name.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_has_a_store() {
        let of = |root, set: &[(&str, &str)]| {
            default_root(root, |name| set.iter().find(|(n, _)| *n == name).map(|(_, v)| PathBuf::from(v)))
        };
        let home = ("HOME", "/home/u");
        assert_eq!(of(true, &[home]), Path::new("/var/lib/doppel"));
        assert_eq!(of(false, &[home]), Path::new("/home/u/.local/share/doppel"));
        assert_eq!(of(false, &[home, ("XDG_DATA_HOME", "/data")]), Path::new("/data/doppel"));
        assert_eq!(of(false, &[home, ("XDG_DATA_HOME", "data")]), Path::new("/home/u/.local/share/doppel"));
        assert_eq!(of(false, &[]), Path::new("/var/lib/doppel"));
        for root in [true, false] {
            assert_eq!(of(root, &[home, ("DOPPEL_STORE", "/s")]), Path::new("/s"));
        }
    }
}
