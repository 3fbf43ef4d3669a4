//! What is written down of a domain so that another process can take it over when the one that runs it dies.
//!
//! One file a domain, named by its id, in a directory of the caller's that lasts as long as the host runs ([`Keep`]). It
//! is there before the domain's first process is, is changed as a whole, and goes after the processes have: whoever finds
//! one finds either a domain that runs, one that has ended, or one whose start was not completed. The process is named by
//! its number and the time it began, so that another one of that number is not taken for it. All else is found again:
//! the descriptors of a domain are fixed from its birth (the filter permits no call that opens, closes or copies any), and
//! rings and registers are in its control area (`adopt.rs`).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use doppel_freezer::Parent;
use doppel_volumes::Held;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub(crate) use doppel_service::Born as Process;

use crate::lock::lock;
use crate::{Error, Keep, Kind};

/// Version of the format; a record of another one is nobody's.
const VERSION: u32 = 1;

/// The frozen image that a domain goes on from.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Origin {
    pub path: PathBuf,
    pub index: u32,
    pub wake: bool,
}

/// Of a domain that runs: what it was born with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Birth {
    pub process: Process,
    pub kind: Kind,
    pub kernel: [u8; 32],
    pub image: PathBuf,
    pub generation: u64,
    pub vcpus: u32,
    pub boot_flags: u32,
    pub owner: u32,
    pub freeze_to: Option<PathBuf>,
    pub freeze_stop: bool,
    pub origin: Option<Origin>,
    pub network: bool,
    /// What of it is files of the host; a para domain has a channel to a storage service for it.
    #[serde(default)]
    pub volumes: Vec<String>,
    /// What is kept of these when it is frozen.
    #[serde(default)]
    pub held: Option<Held>,
    /// It has a layer that is kept.
    #[serde(default)]
    pub layer: bool,
    /// Where.
    #[serde(default)]
    pub layer_dir: Option<PathBuf>,
    /// It has disks; a paene domain has a channel to a storage service for these alone.
    #[serde(default)]
    pub disks: bool,
    /// Name of its control group.
    pub group: Option<String>,
}

/// What is known of a domain.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    version: u32,
    pub id: u32,
    /// The process that has claimed its id and name (`registry/mod.rs`).
    pub holder: String,
    pub name: Option<String>,
    pub hostname: String,
    /// None: it is being started.
    pub birth: Option<Birth>,
    /// It is being stopped for a moment, or goes on from that.
    pub stopping: bool,
    pub paused: bool,
    /// It is ended because its memory is in a frozen image.
    pub asleep: bool,
    /// The images that it was last frozen to; an older program did not write them down.
    #[serde(default)]
    pub parents: Vec<Parent>,
    /// How many of its programs' requests to be frozen were served.
    pub served: u32,
    pub note: Option<Value>,
}

/// A domain's record on disk; removed when dropped.
#[derive(Debug)]
pub(crate) struct Recorded {
    path: PathBuf,
    record: Mutex<Option<Record>>,
}

impl Recorded {
    /// Writes down that a domain is about to be started, as `holder` has claimed its id and name; the directory is there.
    pub fn begin(keep: &Keep, id: u32, name: Option<&str>, holder: &str) -> Result<Self, Error> {
        let record = Record {
            version: VERSION,
            id,
            holder: holder.to_owned(),
            name: name.map(str::to_owned),
            hostname: String::new(),
            birth: None,
            stopping: false,
            paused: false,
            asleep: false,
            parents: Vec::new(),
            served: 0,
            note: keep.note.clone(),
        };
        let recorded = Self::at(keep.dir.join(id.to_string()), record);
        recorded.change(|_| ())?;
        Ok(recorded)
    }

    /// One that was found.
    pub fn at(path: PathBuf, record: Record) -> Self {
        Self { path, record: Mutex::new(Some(record)) }
    }

    /// Changes it, here and on disk; nothing if it has been removed.
    ///
    /// # Errors
    /// If it cannot be written; what is there is whole.
    pub fn change(&self, change: impl FnOnce(&mut Record)) -> Result<(), Error> {
        let mut record = lock(&self.record);
        let Some(record) = record.as_mut() else { return Ok(()) };
        change(record);
        let new = self.path.with_extension("new");
        let text = serde_json::to_vec(record).map_err(io::Error::other);
        text.and_then(|text| fs::write(&new, text))
            .and_then(|()| fs::rename(&new, &self.path))
            .map_err(Error::host(format!("write {}", self.path.display())))
    }

    /// Removes it: nothing of the domain is left, or nobody is to take it over.
    pub fn remove(&self) {
        if lock(&self.record).take().is_some() {
            // What cannot be removed is found to be of an ended domain.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Reads all records of a directory, with their paths; what cannot be read is told of.
pub(crate) fn read_all(dir: &Path) -> (Vec<(PathBuf, Record)>, Vec<String>) {
    let (mut found, mut bad) = (Vec::new(), Vec::new());
    let paths = match paths(dir) {
        Ok(paths) => paths,
        Err(error) => return (found, vec![format!("{}: {error}", dir.display())]),
    };
    for path in paths {
        match read(&path) {
            Ok(record) => found.push((path, record)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => bad.push(format!("{}: {error}", path.display())),
        }
    }
    (found, bad)
}

/// The files that are named as records are.
fn paths(dir: &Path) -> io::Result<impl Iterator<Item = PathBuf>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        entries => entries.into_iter().flatten(),
    };
    let of_an_id =
        |path: &PathBuf| path.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.parse::<u32>().is_ok());
    Ok(entries.flatten().map(|entry| entry.path()).filter(of_an_id))
}

fn read(path: &Path) -> io::Result<Record> {
    let record: Record = serde_json::from_slice(&fs::read(path)?)?;
    let named = path.file_name().and_then(|n| n.to_str()).is_some_and(|n| n == record.id.to_string());
    if record.version != VERSION || !named {
        return Err(io::Error::other("a record of another version, or of another domain"));
    }
    Ok(record)
}

/// Whether a domain that this holder has claimed the id of may still live, by the records in `dir`. One is enough: each
/// start of a domain asks this, and there may be thousands of records.
pub(crate) fn any_lives(dir: &Path, holder: &str) -> bool {
    let lives = |record: &Record| record.birth.as_ref().is_none_or(|birth| birth.process.lives());
    let may_live = |path: PathBuf| match read(&path) {
        Ok(record) => record.holder == holder && lives(&record),
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    };
    paths(dir).map_or(true, |mut paths| paths.any(may_live))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(id: u32, birth: Option<Birth>) -> Record {
        Record {
            version: VERSION,
            id,
            holder: "7-0".into(),
            name: None,
            hostname: "d".into(),
            birth,
            stopping: false,
            paused: false,
            asleep: false,
            parents: Vec::new(),
            served: 0,
            note: Some(Value::from("mine")),
        }
    }

    fn birth(process: Process) -> Birth {
        Birth {
            process,
            kind: Kind::Para,
            kernel: [1; 32],
            image: "/image".into(),
            generation: 0,
            vcpus: 1,
            boot_flags: 0,
            owner: 0,
            freeze_to: None,
            freeze_stop: false,
            origin: None,
            network: false,
            volumes: Vec::new(),
            held: None,
            layer: false,
            layer_dir: None,
            disks: false,
            group: None,
        }
    }

    #[test]
    fn records_are_whole_and_tell_who_lives() {
        let dir = std::env::temp_dir().join(format!("doppel-records-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        assert!(!any_lives(&dir, "7-0"));
        let me = Process::of(std::process::id().try_into().unwrap()).unwrap();
        let one = Recorded::at(dir.join("3"), record(3, Some(birth(me))));
        one.change(|r| r.paused = true).unwrap();
        let (found, bad) = read_all(&dir);
        assert!(bad.is_empty() && found.len() == 1 && found[0].1.paused);
        assert_eq!(found[0].1.note, Some(Value::from("mine")));
        assert!(any_lives(&dir, "7-0") && !any_lives(&dir, "8-0"));
        one.change(|r| r.birth = Some(birth(Process::named(me.pid(), 1)))).unwrap();
        assert!(!any_lives(&dir, "7-0"));
        one.change(|r| r.birth = None).unwrap();
        assert!(any_lives(&dir, "7-0"), "one that is being started may live");
        one.remove();
        one.change(|r| r.paused = false).unwrap();
        drop(one);
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
        fs::write(dir.join("4"), "{").unwrap();
        assert!(any_lives(&dir, "9-0"), "who cannot be read may live");
        fs::remove_dir_all(&dir).unwrap();
    }
}
