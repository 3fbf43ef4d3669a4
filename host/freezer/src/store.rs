//! Frozen images by name.
//!
//! ```text
//! STORE/frozen/NAME.frozen       on disk
//! /dev/shm/doppel-frozen/UID/NAME.frozen   in memory, gone at the host's next boot
//! ```
//! A name is unique over both. Who has an image open (a clone, for its whole life) holds a shared lock on it;
//! removing takes the exclusive one.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, SeekFrom};

use crate::draft::Draft;
use crate::error::{Error, Result};
use crate::{FrozenImage, WorkingSet};

const SUFFIX: &str = "frozen";

/// Where an image is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
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
    pub place: Place,
    /// Bytes it takes.
    pub used: u64,
}

/// The frozen images of one user.
#[derive(Clone, Debug)]
pub struct FrozenStore {
    disk: PathBuf,
    memory: PathBuf,
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

    fn dir(&self, place: Place) -> &Path {
        match place {
            Place::Disk => &self.disk,
            Place::Memory => &self.memory,
        }
    }

    /// Where a new image called `name` goes.
    ///
    /// # Errors
    /// If the name is taken or no name, or the directory cannot be made.
    pub fn vacant(&self, name: &str, place: Place) -> Result<PathBuf> {
        check_name(name)?;
        if let Some(taken) = self.find(name) {
            return Err(Error::Request(format!(
                "a frozen image named {name} exists ({}); remove it with `doppel frozen rm {name}` or choose another name",
                taken.display()
            )));
        }
        let dir = self.dir(place);
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
        [Place::Memory, Place::Disk]
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
        for place in [Place::Disk, Place::Memory] {
            let dir = self.dir(place);
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
                    place,
                    used,
                });
            }
        }
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }

    /// Removes an image that nobody uses.
    ///
    /// # Errors
    /// If there is none, or a clone of it lives.
    pub fn remove(&self, name: &str) -> Result<()> {
        let path = self.path(name)?;
        let doing = || format!("remove {}", path.display());
        let file = File::open(&path).map_err(Error::host(doing()))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(Error::Request(format!(
                    "frozen image {name} is in use by a clone; stop its clones first"
                )));
            }
            Err(e) => return Err(Error::os(doing())(e)),
        }
        fs::remove_file(&path).map_err(Error::host(doing()))?;
        forget_working_set(&path)
    }

    /// Removes the image that a domain woke from and has no more use for, although it is still open.
    ///
    /// # Errors
    /// What the host says.
    pub fn discard(&self, image: &FrozenImage) -> Result<()> {
        let path = image.path();
        fs::remove_file(path).map_err(Error::host(format!("remove {}", path.display())))?;
        forget_working_set(path)
    }

    /// Writes an image to `out`: extents and their bytes, holes left out.
    ///
    /// # Errors
    /// If it is damaged, or what the host says.
    pub fn export(&self, name: &str, out: &mut dyn Write) -> Result<u64> {
        let image = self.open(name)?;
        let failed = || Error::host("export a frozen image");
        let len = image.header().file_len;
        out.write_all(EXPORT_MAGIC).and_then(|()| out.write_all(&len.to_le_bytes())).map_err(failed())?;
        let mut at = 0;
        let mut buf = vec![0; 1 << 20];
        while at < len {
            let start = match rustix::fs::seek(image.file(), SeekFrom::Data(at)) {
                Ok(s) => s,
                Err(rustix::io::Errno::NXIO) => break,
                Err(e) => return Err(Error::os("export a frozen image")(e)),
            };
            let hole = rustix::fs::seek(image.file(), SeekFrom::Hole(start))
                .map_err(Error::os("export a frozen image"))?;
            let end = hole.min(start + buf.len() as u64);
            let piece = &mut buf[..(end - start) as usize];
            image.file().read_exact_at(piece, start).map_err(failed())?;
            for word in [start, piece.len() as u64] {
                out.write_all(&word.to_le_bytes()).map_err(failed())?;
            }
            out.write_all(piece).map_err(failed())?;
            at = end;
        }
        out.write_all(&[0xff; 16]).and_then(|()| out.flush()).map_err(failed())?;
        Ok(len)
    }

    /// Takes what [`Self::export`] wrote.
    ///
    /// # Errors
    /// If it is not sound, the name is taken, or what the host says; nothing is left behind then.
    pub fn import(&self, name: &str, place: Place, from: &mut dyn Read) -> Result<FrozenImage> {
        let to = self.vacant(name, place)?;
        let failed = || Error::host("import a frozen image");
        let bad = |reason: &str| Error::Damaged { path: name.into(), reason: reason.into() };
        let mut word = [0u8; 8];
        let mut next = |from: &mut dyn Read| -> Result<u64> {
            from.read_exact(&mut word).map_err(|_| bad("the export is cut short"))?;
            Ok(u64::from_le_bytes(word))
        };
        let mut magic = [0u8; 8];
        from.read_exact(&mut magic).map_err(failed())?;
        if magic != *EXPORT_MAGIC {
            return Err(bad("not an exported frozen image"));
        }
        let len = next(from)?;
        // Without a name until it is whole, so that whoever is killed leaves nothing.
        let temporary = Draft::new(self.dir(place)).map_err(failed())?;
        temporary.as_file().set_len(len).map_err(failed())?;
        let mut buf = vec![0; 1 << 20];
        loop {
            let (at, n) = (next(from)?, next(from)?);
            if at == u64::MAX && n == u64::MAX {
                break;
            }
            let inside = at.checked_add(n).is_some_and(|e| e <= len);
            let (true, Some(piece)) = (inside, buf.get_mut(..usize::try_from(n).unwrap_or(usize::MAX)))
            else {
                return Err(bad("an extent makes no sense"));
            };
            from.read_exact(piece).map_err(|_| bad("the export is cut short"))?;
            temporary.as_file().write_all_at(piece, at).map_err(failed())?;
        }
        let nameless = PathBuf::from(format!("/proc/self/fd/{}", temporary.as_file().as_raw_fd()));
        FrozenImage::open(&nameless).map_err(|e| match e {
            Error::Damaged { reason, .. } => bad(&reason),
            other => other,
        })?;
        temporary.as_file().sync_data().map_err(failed())?;
        temporary.persist(&to).map_err(failed())?;
        FrozenImage::open_unchecked(&to)
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

fn check_name(name: &str) -> Result<()> {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.len() <= 63 && name.chars().all(good) && name.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return Ok(());
    }
    Err(Error::Request(format!(
        "{name:?} is no name for a frozen image: use up to 63 letters, digits, '-', '_' and '.', the first a letter or digit"
    )))
}
