//! The layers of a store.

use std::collections::HashSet;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use doppel_disk::{DATA_AT, File as _, Header, Id, MOST_LAYERS};

use crate::error::{Error, IoContext, Result};

/// Their directory.
#[derive(Clone, Debug)]
pub(crate) struct Layers {
    dir: PathBuf,
}

/// A layer's name in digits.
pub(crate) fn name_of(id: &Id) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A name that nothing has.
pub(crate) fn new_id() -> Id {
    let mut id = Id::default();
    // Only very early in a host's boot could it fail, and without flags it waits then.
    let _ = rustix::rand::getrandom(&mut id, rustix::rand::GetRandomFlags::empty());
    id
}

/// Reads what a layer is.
pub(crate) fn header_of(file: &File, path: &Path) -> Result<Header> {
    let mut bytes = [0; Header::BYTES];
    file.read(0, &mut bytes).doing("read", path)?;
    let damaged = |why: &str| Error::Damaged { name: path.display().to_string(), why: why.to_owned() };
    Header::decode(&bytes).map_err(damaged)
}

impl Layers {
    /// Those of the disks in this directory.
    pub fn of(disks: &Path) -> Self {
        Self { dir: disks.join(".layers") }
    }

    /// Where one is.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Makes an empty one, over another or over nothing, that is on disk when this returns.
    pub fn make(&self, below: Option<Id>, size: u64) -> Result<Id> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.dir).doing("make", &self.dir)?;
        let id = new_id();
        let path = self.path(&name_of(&id));
        let mut how = File::options();
        let file =
            how.create_new(true).read(true).write(true).mode(0o600).open(&path).doing("make", &path)?;
        let visible = if below.is_some() { size } else { 0 };
        file.set_len(DATA_AT + size).doing("make", &path)?;
        file.write(0, &Header { id, below, size, visible }.encode()).doing("write", &path)?;
        file.sync_all().doing("sync", &path)?;
        File::open(&self.dir).and_then(|dir| dir.sync_all()).doing("sync", &self.dir)?;
        Ok(id)
    }

    /// Paths of a layer and all below it, that first.
    pub fn chain(&self, top: &str) -> Result<Vec<PathBuf>> {
        let mut paths = vec![self.path(top)];
        loop {
            let path = paths.last().map_or(self.dir.as_path(), PathBuf::as_path);
            let file = File::open(path).doing("open", path)?;
            match header_of(&file, path)?.below {
                None => return Ok(paths),
                Some(_) if paths.len() == MOST_LAYERS => {
                    let why = "it has too many layers".to_owned();
                    return Err(Error::Damaged { name: top.to_owned(), why });
                }
                Some(below) => paths.push(self.path(&name_of(&below))),
            }
        }
    }

    /// Removes all but these.
    pub fn keep_only(&self, kept: &HashSet<PathBuf>) -> Result<()> {
        let entries = match fs::read_dir(&self.dir) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other.doing("list", &self.dir)?,
        };
        for entry in entries {
            let path = entry.doing("list", &self.dir)?.path();
            if !kept.contains(&path) {
                fs::remove_file(&path).doing("remove", &path)?;
            }
        }
        Ok(())
    }
}
