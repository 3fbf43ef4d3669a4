//! Disks that domains have while they run.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use doppel_disk::{BLOCK, File as _, Header, MAP_AT, Stack, map_bytes};
use doppel_storage::{DiskFiles, Volume};
use rustix::fs::{FallocateFlags, FlockOperation, flock};

use crate::error::{Error, IoContext, Result};
use crate::layers::{Layers, header_of};
use crate::layers::{name_of, new_id};
use crate::store::{LOCK, Record, read_record, write_record};

const LIVE: &str = "live";
/// One that is being made.
const NEW_LIVE: &str = ".live";
/// What a live map begins with.
const MAGIC: &[u8; 8] = b"DOPPLIVE";
/// How long somebody who has just given a disk up may take.
const PATIENCE: Duration = Duration::from_millis(200);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(2);
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// A domain has the disk as long as this is held: alone, or with others that only read.
#[derive(Debug)]
pub struct Held {
    pub(crate) dir: PathBuf,
    pub(crate) read_only: bool,
    lock: File,
}

impl Held {
    /// The disk in this directory; none: somebody else has it. Who has had it until now may still do what was asked last: that is
    /// waited for.
    ///
    /// # Errors
    /// What the host says.
    pub fn of(dir: &Path, read_only: bool) -> Result<Option<Self>> {
        let begun = Instant::now();
        loop {
            match Self::at_once(dir, read_only)? {
                None if begun.elapsed() < PATIENCE => std::thread::sleep(PAUSE),
                held => return Ok(held),
            }
        }
    }

    /// The same without waiting.
    pub(crate) fn at_once(dir: &Path, read_only: bool) -> Result<Option<Self>> {
        let path = dir.join(LOCK);
        let lock = File::open(&path).doing("open", &path)?;
        let how = match read_only {
            true => FlockOperation::NonBlockingLockShared,
            false => FlockOperation::NonBlockingLockExclusive,
        };
        match flock(&lock, how) {
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            done => {
                done.doing("lock", &path)?;
                Ok(Some(Self { dir: dir.to_owned(), read_only, lock }))
            }
        }
    }

    /// A domain begins to run with it. One that goes on from a frozen image names the disk's state then: what is on it must be what it was.
    ///
    /// # Errors
    /// Something else is on it by now; or what the host says.
    pub fn begin(&self, state: Option<&str>) -> Result<()> {
        if state.is_some_and(|state| read_record(&self.dir).is_ok_and(|record| record.state != state)) {
            return Err(Error::Newer(self.name()));
        }
        if self.read_only { Ok(()) } else { self.change() }
    }

    /// What is on it is about to change.
    pub(crate) fn change(&self) -> Result<()> {
        let record = read_record(&self.dir)?;
        write_record(&self.dir, &Record { state: name_of(&new_id()), ..record })
    }

    pub(crate) fn name(&self) -> String {
        self.dir.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// What a storage service is given of it.
    ///
    /// # Errors
    /// It is a snapshot and was to be written, it is damaged, or what the host says.
    pub fn volume(&self) -> Result<Volume> {
        let (paths, files) = self.files()?;
        let top = paths.first().map_or(self.dir.as_path(), PathBuf::as_path);
        let volume = Volume::open(top, self.read_only).doing("open", top)?;
        Ok(Volume { disk: Some(files), ..volume })
    }

    /// The disk, for this process.
    pub(crate) fn open(&self) -> Result<Stack<File>> {
        let (_, files) = self.files()?;
        files.open(self.read_only).doing("open", &self.dir)
    }

    /// Writes what is only known as long as the host runs to where it stays.
    pub(crate) fn settle(&self) -> Result<()> {
        self.flush()?;
        self.forget_live()
    }

    /// Writes it there; what is known as long as the host runs is the same afterwards. Nobody writes to the disk meanwhile.
    pub(crate) fn flush(&self) -> Result<()> {
        let (_, files) = self.files_to(true)?;
        files.open(false).doing("open", &self.dir)?.flush().doing("sync", &self.dir)
    }

    /// Only what stays counts.
    pub(crate) fn forget_live(&self) -> Result<()> {
        let path = self.dir.join(LIVE);
        fs::remove_file(&path).doing("remove", &path)
    }

    pub(crate) fn files(&self) -> Result<(Vec<PathBuf>, DiskFiles)> {
        self.files_to(!self.read_only)
    }

    /// Those to be written to once the disk's topmost layer is this one, which has nothing yet. Until [`Self::go_on_above`] they are not the
    /// disk's.
    pub(crate) fn files_above(&self, layer: &str) -> Result<DiskFiles> {
        let (paths, opened) = self.open_layers(layer, true)?;
        let (top, path) = opened.first().zip(paths.first()).ok_or_else(|| Error::NotFound(self.name()))?;
        let header = header_of(top, path)?;
        let live = Some(self.new_live(top, &header, &begin_of(&header)?)?);
        Ok(DiskFiles { live, layers: opened, lock: self.lock.try_clone().doing("keep", &self.dir)? })
    }

    /// The disk's record names the layer that [`Self::files_above`] was told.
    pub(crate) fn go_on_above(&self) -> Result<()> {
        let new = self.dir.join(NEW_LIVE);
        fs::rename(&new, self.dir.join(LIVE)).doing("rename", &new)
    }

    /// A layer and those below it, the topmost to be written to, or not.
    fn open_layers(&self, top: &str, write: bool) -> Result<(Vec<PathBuf>, Vec<File>)> {
        let layers = Layers::of(self.dir.parent().unwrap_or(&self.dir));
        let paths = layers.chain(top)?;
        let mut opened = Vec::new();
        for (n, path) in paths.iter().enumerate() {
            let writes = n == 0 && write;
            opened.push(File::options().read(true).write(writes).open(path).doing("open", path)?);
        }
        Ok((paths, opened))
    }

    /// Those to be written to, or only read.
    fn files_to(&self, write: bool) -> Result<(Vec<PathBuf>, DiskFiles)> {
        let record = read_record(&self.dir)?;
        if record.snapshot && write {
            return Err(Error::Snapshot(self.name()));
        }
        let (paths, opened) = self.open_layers(&record.layer, write)?;
        let live = match opened.first().zip(paths.first()) {
            Some((top, path)) => self.live(top, &header_of(top, path)?, write)?,
            None => None,
        };
        let lock = self.lock.try_clone().doing("keep", &self.dir)?;
        Ok((paths, DiskFiles { layers: opened, live, lock }))
    }

    /// The live map of the topmost layer, which is made if it is missing and needed.
    fn live(&self, top: &File, header: &Header, write: bool) -> Result<Option<File>> {
        let (path, begin) = (self.dir.join(LIVE), begin_of(header)?);
        match File::options().read(true).write(write).open(&path) {
            Ok(live) => {
                let mut found = vec![0; begin.len()];
                live.read(0, &mut found).doing("read", &path)?;
                if found == begin {
                    return Ok(Some(live));
                }
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e).doing("open", &path),
        }
        // One of another boot, or of another layer, counts no more.
        if !write {
            return Ok(None);
        }
        let live = self.new_live(top, header, &begin)?;
        self.go_on_above()?;
        Ok(Some(live))
    }

    /// One that counts when it has its name.
    fn new_live(&self, top: &File, header: &Header, begin: &[u8]) -> Result<File> {
        let new = self.dir.join(NEW_LIVE);
        let mut how = File::options();
        let how = how.create(true).truncate(true).read(true).write(true).mode(0o600);
        let live = how.open(&new).doing("make", &new)?;
        copy_map(top, &live, header.size).and_then(|()| live.write(0, begin)).doing("write", &new)?;
        Ok(live)
    }
}

/// What the live map of a layer begins with in this boot of the host.
fn begin_of(header: &Header) -> Result<Vec<u8>> {
    let boot = fs::read(BOOT_ID).doing("read", Path::new(BOOT_ID))?;
    Ok([MAGIC.as_slice(), &header.encode(), boot.trim_ascii()].concat())
}

/// Makes a live map of what the layer's own says; there is room for all of it.
fn copy_map(top: &File, live: &File, size: u64) -> io::Result<()> {
    let len = map_bytes(size);
    rustix::fs::fallocate(live, FallocateFlags::empty(), 0, MAP_AT + len)?;
    let mut page = [0; BLOCK as usize];
    for at in (0..len / BLOCK).map(|page| MAP_AT + page * BLOCK) {
        top.read(at, &mut page)?;
        if page.iter().any(|byte| *byte != 0) {
            live.write(at, &page)?;
        }
    }
    Ok(())
}
