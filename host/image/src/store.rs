//! The store: image files named by digest, and names that point to them.
//!
//! ```text
//! images/sha256-<hex>.erofs    read-only, never changed in place
//! names/<name>.json            a Record
//! tmp/                         unfinished files; what a dead process left there goes at the next import
//! lock                         held (flock) while names and images change
//! ```
//!
//! Every file appears under its final name complete and on disk (write, fsync, rename, fsync of the
//! directory). Removing a name removes the image when no other name has it; a domain that has the image
//! open keeps it.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use doppel_abi_image as abi;
use doppel_abi_image::patch::{FOOTER_FROM_END, PatchFooter};
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use crate::error::Doing;
use crate::patch::{PatchReport, SCANNER};
use crate::tree::{Content, Limits, Tree};
use crate::{Error, Result, archive, dir, writer};

/// Where images are kept unless `DOPPEL_STORE` says otherwise.
const DEFAULT_ROOT: &str = "/var/lib/doppel";
/// A record is a few lines; more is damage.
const RECORD_MAX: u64 = 1 << 20;

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

/// An archive that has been read, waiting for a name.
pub(crate) struct Staged<'a> {
    store: &'a Store,
    tree: Tree,
    spool: File,
}

impl Staged<'_> {
    pub(crate) fn publish(self, name: &str, source: Source) -> Result<Record> {
        self.store.publish(name, &self.tree, Some(&self.spool), source)
    }
}

/// An image store in a directory.
#[derive(Clone, Debug)]
pub struct Store {
    root: PathBuf,
    patch: bool,
}

impl Store {
    /// The store the environment names (`DOPPEL_STORE`), or `/var/lib/doppel`.
    #[must_use]
    pub fn from_env() -> Self {
        let root = std::env::var_os("DOPPEL_STORE").filter(|v| !v.is_empty());
        Self::at(root.map_or_else(|| DEFAULT_ROOT.into(), PathBuf::from))
    }

    /// The store at `root`; nothing is created before the first import.
    #[must_use]
    pub const fn at(root: PathBuf) -> Self {
        Self { root, patch: true }
    }

    /// The store, making images without a patch section from now on.
    #[must_use]
    pub fn without_patches(mut self) -> Self {
        self.patch = false;
        self
    }

    /// Whether an image is as this store would make it, as to patches.
    pub(crate) fn patched_alike(&self, record: &Record) -> bool {
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
        let (tree, notes) = dir::from_dir(path, limits)?;
        let path = fs::canonicalize(path).doing("read", path)?;
        Ok((self.publish(name, &tree, None, Source::Directory { path })?, notes))
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
        self.stage_tar(archive, limits)?.publish(name, source)
    }

    /// Reads an archive completely, without giving it a name yet.
    pub(crate) fn stage_tar(&self, archive: impl Read, limits: Limits) -> Result<Staged<'_>> {
        self.prepare()?;
        let tmp = self.root.join("tmp");
        let spool = tempfile::tempfile_in(&tmp).doing("create a file in", &tmp)?;
        let tree = archive::from_tar(archive, &spool, limits)?;
        Ok(Staged { store: self, tree, spool })
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
            if let Some(name) = file.to_str().and_then(|f| f.strip_suffix(".json"))
                && check_name(name).is_ok()
            {
                all.push((name.to_owned(), self.record(name)));
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
        let image = self.image_path(&digest);
        match fs::remove_file(&image) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            other => other.doing("remove", &image).map(|()| true),
        }
    }

    /// Writes the image of `tree` and gives it `name`.
    fn publish(&self, name: &str, tree: &Tree, spool: Option<&File>, source: Source) -> Result<Record> {
        let tmp = self.temporary()?;
        let written = writer::write(tree, spool, tmp.as_file(), tmp.path(), self.patch)?;
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

    /// Removes the image `digest` if no name has it any more.
    fn collect(&self, digest: &str) -> Result<()> {
        let used = |r: &Result<Record>| r.as_ref().map_or(true, |r| r.digest == digest);
        if !self.list()?.iter().any(|(_, r)| used(r)) {
            let image = self.image_path(digest);
            fs::remove_file(&image).doing("remove", &image)?;
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

    /// Makes the store's directories, and clears what dead processes left in `tmp`.
    fn prepare(&self) -> Result<()> {
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
        Ok(())
    }

    /// A locked file in `tmp`, removed when dropped.
    fn temporary(&self) -> Result<NamedTempFile> {
        let dir = self.root.join("tmp");
        let tmp = NamedTempFile::new_in(&dir).doing("create a file in", &dir)?;
        tmp.as_file().lock().doing("lock", tmp.path())?;
        Ok(tmp)
    }

    fn lock(&self) -> Result<File> {
        let path = self.root.join("lock");
        let file =
            File::options().create(true).truncate(false).write(true).open(&path).doing("open", &path)?;
        file.lock().doing("lock", &path)?;
        Ok(file)
    }

    fn image_path(&self, digest: &str) -> PathBuf {
        self.root.join("images").join(format!("sha256-{digest}.erofs"))
    }

    fn name_path(&self, name: &str) -> PathBuf {
        self.root.join("names").join(format!("{name}.json"))
    }
}

/// Whether a file of this size ends in the footer of a patch section.
fn has_footer(file: &File, size: u64) -> bool {
    let mut raw = [0; size_of::<PatchFooter>()];
    let at = size.checked_sub(FOOTER_FROM_END);
    at.is_some_and(|at| file.read_exact_at(&mut raw, at).is_ok()) && PatchFooter::parse(&raw).is_some()
}

/// Accepts names that are safe as a file name and unambiguous on a command line.
pub(crate) fn check_name(name: &str) -> Result<()> {
    let good = |b: u8| b.is_ascii_alphanumeric() || b"._-:".contains(&b);
    let first = name.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
    if first && name.len() <= 128 && name.bytes().all(good) {
        Ok(())
    } else {
        Err(Error::BadName(name.into()))
    }
}
