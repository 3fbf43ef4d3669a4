//! The store of blobs: what registries and archives sent, named by digest and shared by images.
//!
//! ```text
//! blobs/sha256-<hex>       complete and right; read-only
//! partial/sha256-<hex>     what has come of a blob so far; locked (flock) while it grows
//! blobs.lock               held shared by whoever needs blobs to stay, exclusively while they are collected
//! ```
//!
//! A blob gets its name when its digest has been checked and it is on disk, so a crash leaves it whole or partial.
//! What is partial is taken up again, or removed by the next collection.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, Permissions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use doppel_image::Store;
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::error::IoContext;
use crate::{Cancel, Digest, Error, Result};

/// The store of blobs. As long as it lives, no blob is collected.
#[derive(Debug)]
pub struct Blobs {
    root: PathBuf,
    _lock: File,
}

/// What a collection removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Pruned {
    /// Digests of blobs no image has.
    pub blobs: Vec<String>,
    /// Digests of unfinished ones.
    pub partial: Vec<String>,
    /// Bytes that are free again.
    pub bytes: u64,
}

/// What there is of a blob that is wanted.
pub(crate) enum Have {
    All,
    Part(Partial),
}

impl Blobs {
    /// The blobs of `store`.
    pub fn open(store: &Store) -> Result<Self> {
        store.prepare()?;
        let root = store.root().to_owned();
        for name in ["blobs", "partial"] {
            let path = root.join(name);
            DirBuilder::new().recursive(true).mode(0o700).create(&path).doing("create", &path)?;
        }
        let (lock, path) = lock_file(&root)?;
        lock.lock_shared().doing("lock", &path)?;
        Ok(Self { root, _lock: lock })
    }

    fn path(&self, digest: &Digest) -> PathBuf {
        self.root.join("blobs").join(format!("sha256-{}", digest.hex()))
    }

    /// The blob, if it is there with this size.
    pub(crate) fn find(&self, digest: &Digest, size: u64) -> Option<File> {
        let file = File::open(self.path(digest)).ok()?;
        file.metadata().is_ok_and(|m| m.len() == size).then_some(file)
    }

    /// The blob and its size.
    pub(crate) fn get(&self, digest: &Digest) -> Result<(File, u64)> {
        let path = self.path(digest);
        let file = File::open(&path).doing("open", &path)?;
        let size = file.metadata().doing("read", &path)?.len();
        Ok((file, size))
    }

    /// The bytes of a small blob, checked.
    pub(crate) fn bytes(&self, digest: &Digest, most: u64) -> Result<Vec<u8>> {
        let (file, _) = self.get(digest)?;
        let mut bytes = Vec::new();
        file.take(most + 1).read_to_end(&mut bytes).doing("read", &self.path(digest))?;
        if bytes.len() as u64 > most || Digest::of(&bytes) != *digest {
            self.forget(digest)?;
            return Err(Error::invalid(
                format!("blob {digest}"),
                "it is damaged in the store, and was removed",
            ));
        }
        Ok(bytes)
    }

    /// Reads a blob whose content did not make sense once more; removes it if it is not what its name says.
    pub(crate) fn check(&self, digest: &Digest) -> Result<()> {
        let (file, _) = self.get(digest)?;
        let path = self.path(digest);
        let mut part = Partial { file, path };
        let (hash, _) = part.resume(u64::MAX)?;
        if Digest::finish(hash) == *digest {
            return Ok(());
        }
        self.forget(digest)?;
        Err(Error::invalid(
            format!("blob {digest}"),
            "it was damaged in the store, and has been removed; try again",
        ))
    }

    /// Removes a blob that turned out to be damaged.
    pub(crate) fn forget(&self, digest: &Digest) -> Result<()> {
        let path = self.path(digest);
        match fs::remove_file(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other.doing("remove", &path),
        }
    }

    /// Keeps `bytes`; returns their digest.
    pub(crate) fn put(&self, bytes: &[u8]) -> Result<Digest> {
        let digest = Digest::of(bytes);
        if self.find(&digest, bytes.len() as u64).is_none() {
            self.put_from(bytes, bytes.len() as u64, Some(&digest), &mut |_| Ok(()))?;
        }
        Ok(digest)
    }

    /// Keeps what `source` has, which must be `size` bytes and have this digest, if one is given. `tick` is told how
    /// much was read.
    pub(crate) fn put_from(
        &self,
        source: impl Read,
        size: u64,
        expected: Option<&Digest>,
        tick: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<Digest> {
        let what = || expected.map_or_else(|| "a blob".to_owned(), |d| format!("blob {d}"));
        let mut new = self.create()?;
        let path = new.path().to_owned();
        let mut source = source.take(size.saturating_add(1));
        let mut buf = vec![0; 1 << 18];
        let (mut hash, mut done) = (Sha256::new(), 0);
        loop {
            let n = match source.read(&mut buf) {
                Ok(0) => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                other => other.map_err(|e| Error::invalid(what(), format!("cannot be read: {e}")))?,
            };
            hash.update(&buf[..n]);
            new.write_all(&buf[..n]).doing("write", &path)?;
            done += n as u64;
            tick(done)?;
        }
        if done != size {
            let why = if done > size { "is longer" } else { "is shorter" };
            return Err(Error::invalid(what(), format!("it {why} than the {size} bytes stated")));
        }
        let digest = Digest::finish(hash);
        if let Some(expected) = expected.filter(|e| **e != digest) {
            return Err(Error::invalid(format!("blob {expected}"), format!("its data has digest {digest}")));
        }
        self.keep(new, &digest)?;
        Ok(digest)
    }

    /// A new locked file, which goes if it is not kept.
    pub(crate) fn create(&self) -> Result<tempfile::NamedTempFile> {
        let dir = self.root.join("tmp");
        let new = tempfile::NamedTempFile::new_in(&dir).doing("create a file in", &dir)?;
        new.as_file().lock().doing("lock", new.path())?;
        Ok(new)
    }

    /// Makes a complete file the blob `digest`.
    pub(crate) fn keep(&self, new: tempfile::NamedTempFile, digest: &Digest) -> Result<()> {
        finish(new.as_file(), new.path())?;
        let to = self.path(digest);
        new.persist(&to).map_err(|e| e.error).doing("rename a file to", &to)?;
        self.sync()
    }

    fn sync(&self) -> Result<()> {
        let dir = self.root.join("blobs");
        File::open(&dir).and_then(|d| d.sync_all()).doing("sync", &dir)
    }

    /// The part of a blob that is there, locked: waits for another process that fetches the same.
    pub(crate) fn part(&self, digest: &Digest, size: u64, cancel: &Cancel) -> Result<Have> {
        let path = self.root.join("partial").join(format!("sha256-{}", digest.hex()));
        loop {
            if self.find(digest, size).is_some() {
                return Ok(Have::All);
            }
            let mut options = File::options();
            let options = options.create(true).truncate(false).read(true).write(true);
            let file = options.open(&path).doing("open", &path)?;
            match file.try_lock() {
                // Whoever had it may have finished or removed it meanwhile.
                Ok(()) if is_at(&file, &path) => return Ok(Have::Part(Partial { file, path })),
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    cancel.check()?;
                    std::thread::sleep(Duration::from_millis(50));
                }
                Err(TryLockError::Error(e)) => return Err(e).doing("lock", &path),
            }
        }
    }

    /// Makes a complete and checked part the blob `digest`.
    pub(crate) fn complete(&self, part: Partial, digest: &Digest) -> Result<()> {
        finish(&part.file, &part.path)?;
        let to = self.path(digest);
        fs::rename(&part.path, &to).doing("rename a file to", &to)?;
        self.sync()
    }

    /// Removes what no image of `store` needs, and what was never finished.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`] while an image is being pulled or pushed: what it needs is not written down yet.
    pub fn prune(store: &Store) -> Result<Pruned> {
        store.prepare()?;
        let (lock, path) = lock_file(store.root())?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Error::Busy),
            Err(TryLockError::Error(e)) => return Err(e).doing("lock", &path),
        }
        let mut used = BTreeSet::new();
        for (_, record) in store.list()? {
            // A record that cannot be read may need any blob: its error says how to go on.
            let oci = record?.oci;
            used.extend(oci.iter().flat_map(|o| &o.blobs).map(|digest| digest.replace(':', "-")));
        }
        let (blobs, bytes) = clear(&store.root().join("blobs"), |name| !used.contains(name))?;
        let (partial, more) = clear(&store.root().join("partial"), |_| true)?;
        Ok(Pruned { blobs, partial, bytes: bytes + more })
    }
}

fn lock_file(root: &Path) -> Result<(File, PathBuf)> {
    let path = root.join("blobs.lock");
    let file = File::options().create(true).truncate(false).write(true).open(&path).doing("open", &path)?;
    Ok((file, path))
}

/// Makes a file read-only and durable.
fn finish(file: &File, path: &Path) -> Result<()> {
    file.set_permissions(Permissions::from_mode(0o444)).doing("chmod", path)?;
    file.sync_all().doing("sync", path)
}

/// Whether `path` still names the open file.
fn is_at(file: &File, path: &Path) -> bool {
    let same = |a: fs::Metadata, b: fs::Metadata| a.dev() == b.dev() && a.ino() == b.ino();
    file.metadata().ok().zip(fs::metadata(path).ok()).is_some_and(|(a, b)| same(a, b))
}

/// Removes the files of a directory that `which` names; their digests, and their bytes.
fn clear(dir: &Path, which: impl Fn(&str) -> bool) -> Result<(Vec<String>, u64)> {
    let entries = match fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok((Vec::new(), 0)),
        other => other.doing("list", dir)?,
    };
    let (mut removed, mut bytes) = (Vec::new(), 0);
    for entry in entries {
        let entry = entry.doing("list", dir)?;
        if entry.file_name().to_str().is_none_or(&which) {
            bytes += entry.metadata().doing("read", &entry.path())?.len();
            fs::remove_file(entry.path()).doing("remove", &entry.path())?;
            removed.push(entry.file_name().to_string_lossy().replace('-', ":"));
        }
    }
    Ok((removed, bytes))
}

/// What has come of a blob so far.
pub(crate) struct Partial {
    file: File,
    path: PathBuf,
}

impl Partial {
    /// Hashes what is there and goes to its end; begins again if it is more than `most`.
    pub(crate) fn resume(&mut self, most: u64) -> Result<(Sha256, u64)> {
        let mut hash = Sha256::new();
        if self.file.metadata().doing("read", &self.path)?.len() > most {
            self.restart()?;
        }
        self.file.rewind().doing("read", &self.path)?;
        let mut buf = vec![0; 1 << 18];
        let mut have = 0;
        loop {
            match self.file.read(&mut buf) {
                Ok(0) => return Ok((hash, have)),
                Ok(n) => {
                    hash.update(&buf[..n]);
                    have += n as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e).doing("read", &self.path),
            }
        }
    }

    /// Forgets what is there.
    pub(crate) fn restart(&mut self) -> Result<()> {
        self.file.set_len(0).doing("truncate", &self.path)?;
        self.file.seek(SeekFrom::Start(0)).doing("seek", &self.path).map(|_| ())
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).doing("write", &self.path)
    }

    /// Removes it: what has come is wrong.
    pub(crate) fn discard(self) -> Result<()> {
        fs::remove_file(&self.path).doing("remove", &self.path)
    }
}
