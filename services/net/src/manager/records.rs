//! What a supervisor writes down of its shards for a successor: a file each, replaced as a whole.
//!
//! What it has of domains is not here: who runs a domain writes down its [`Part`] with it.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use doppel_service::{Born, Process};
use rustix::pipe::PipeFlags;
use serde::{Deserialize, Serialize};

use crate::manager::{EndpointSpec, SHARDS};
use crate::service::serve::ORDERS;

/// Version of the format.
const VERSION: u32 = 1;

/// A domain's part in the network, for a successor of who runs it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    pub(crate) key: u64,
    pub(crate) shard: usize,
    /// With the published ports as they are.
    pub(crate) wanted: EndpointSpec,
    /// Numbers of their sockets, by which they are told from others.
    pub(crate) sockets: Vec<u64>,
}

/// A service domain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    version: u32,
    /// Of the orders it understands.
    pub orders: u32,
    pub process: Option<Born>,
    pub group: Option<String>,
    pub starts: u64,
    pub upgrades: u64,
}

impl Record {
    pub fn of(process: &Process, starts: u64, upgrades: u64) -> io::Result<Self> {
        let (born, group) = (process.born()?, process.group().map(str::to_owned));
        Ok(Self { version: VERSION, orders: ORDERS, process: Some(born), group, starts, upgrades })
    }
}

/// Where a supervisor's shards are written down.
#[derive(Debug)]
pub(crate) struct ShardRecords {
    dir: PathBuf,
    /// A pipe that ends with us: our service domains have the reading end.
    life: OwnedFd,
    _alive: OwnedFd,
}

impl ShardRecords {
    pub fn new(dir: &Path) -> io::Result<Arc<Self>> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let (life, alive) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok(Arc::new(Self { dir: dir.to_owned(), life, _alive: alive }))
    }

    /// The shards that are written down, in order; damaged ones are told of, and are as if they had died.
    pub fn read(&self) -> io::Result<Vec<Option<Record>>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            let index = entry.file_name().to_str().and_then(|name| name.parse::<usize>().ok());
            let Some(index) = index.filter(|i| *i < SHARDS) else { continue };
            let record = fs::read(entry.path()).and_then(|text| {
                let record: Record = serde_json::from_slice(&text)?;
                if record.version == VERSION {
                    Ok(record)
                } else {
                    Err(io::Error::other("of another version"))
                }
            });
            let record = record.inspect_err(|error| {
                doppel_service::say(format_args!("the record {}: {error}", entry.path().display()));
            });
            if found.len() <= index {
                found.resize(index + 1, None);
            }
            found[index] = record.ok();
        }
        Ok(found)
    }

    pub fn life(&self) -> BorrowedFd<'_> {
        self.life.as_fd()
    }
}

impl Drop for ShardRecords {
    fn drop(&mut self) {
        // One that is not empty stays.
        let _ = fs::remove_dir(&self.dir);
    }
}

/// Where one of them is.
#[derive(Debug)]
pub(crate) struct Slot {
    pub kept: Arc<ShardRecords>,
    pub index: usize,
}

impl Slot {
    fn path(&self) -> PathBuf {
        self.kept.dir.join(self.index.to_string())
    }

    pub fn life(&self) -> BorrowedFd<'_> {
        self.kept.life()
    }

    pub fn write(&self, record: &Record) -> io::Result<()> {
        let (path, new) = (self.path(), self.path().with_extension("new"));
        fs::write(&new, serde_json::to_vec(record)?)?;
        fs::rename(new, path)
    }

    /// Nothing is left of it.
    pub fn forget(&self) {
        // What cannot be removed is found to be of a process that has ended.
        let _ = fs::remove_file(self.path());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::membership::Membership;

    #[test]
    fn a_part_that_an_older_one_wrote_is_on_one_network() {
        let older = serde_json::json!({
            "key": 7, "shard": 0, "sockets": [],
            "wanted": {
                "network": "back", "name": "web", "aliases": ["store"], "rules": {"outbound": [], "inbound": []},
                "published": [], "resolver": null,
            },
        });
        let part: Part = serde_json::from_value(older).unwrap();
        let on = vec![Membership {
            network: "back".into(),
            aliases: vec!["store".into()],
            ..Membership::default()
        }];
        assert_eq!((part.wanted.networks(), part.wanted.internal), (on.clone(), false));
        // What is on one network is written as it was before.
        let mut wanted = part.wanted.clone();
        wanted.set_networks(on);
        assert_eq!(wanted, part.wanted);
        let text = serde_json::to_value(&wanted).unwrap();
        assert!(text.get("further").is_none() && text.get("internal").is_none() && text["network"] == "back");
        wanted.set_networks(Vec::new());
        assert_eq!((wanted.networks(), wanted.network.as_str()), (Vec::new(), ""));
    }

    #[test]
    fn records_are_found_in_order() {
        let dir = std::env::temp_dir().join(format!("doppel-shards-{}", std::process::id()));
        let kept = ShardRecords::new(&dir).unwrap();
        assert!(kept.read().unwrap().is_empty());
        let slot = |index| Slot { kept: kept.clone(), index };
        let record = Record { version: VERSION, starts: 3, ..Record::default() };
        slot(2).write(&record).unwrap();
        fs::write(dir.join("0"), "{").unwrap();
        fs::write(dir.join("1.new"), "{").unwrap();
        assert_eq!(kept.read().unwrap(), [None, None, Some(record)]);
        slot(2).forget();
        slot(0).forget();
        assert!(kept.read().unwrap().is_empty());
        fs::remove_dir_all(&dir).unwrap();
    }
}
