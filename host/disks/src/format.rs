//! An empty file system on a disk (`doppelfs`, docs/disks.md).

use std::fs::File;
use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use doppel_disk::{File as _, Stack};
use doppel_layer::disk::{FEWEST, format};
use doppel_layer::{Attributes, BLOCK, Store};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::error::{Error, Result};

/// Whether a disk of so many bytes has room for one.
pub(crate) fn check_size(size: u64) -> Result<()> {
    if size / BLOCK >= FEWEST {
        return Ok(());
    }
    Err(Error::Wrong(format!(
        "a disk of {size} bytes has no room for a file system: {} are the fewest",
        FEWEST * BLOCK
    )))
}

/// Makes one.
pub(crate) fn make(disk: &Stack<File>) -> io::Result<()> {
    let (mut salt, mut uuid) = ([0; 8], [0; 16]);
    // Only very early in a host's boot could it fail, and without flags it waits then.
    let _ = getrandom(&mut salt, GetRandomFlags::empty());
    let _ = getrandom(&mut uuid, GetRandomFlags::empty());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = i64::try_from(now.as_nanos()).unwrap_or_default();
    let times = Attributes { atime: now, mtime: now, ctime: now, btime: now, ..Attributes::default() };
    let root = Attributes { mode: 0o040_755, nlink: 2, ..times };
    format(&mut Blocks(disk), disk.size() / BLOCK, u64::from_le_bytes(salt), uuid, root)
}

/// The disk as what is written to.
struct Blocks<'a>(&'a Stack<File>);

impl Store for Blocks<'_> {
    type Error = io::Error;

    fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            let rest = &bytes[done..];
            let put = |file: &File, at: u64, n: usize| file.write(at, &rest[..n]).map(|()| n);
            done += self.0.write(at + done as u64, rest.len(), put)?;
        }
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.flush()
    }

    fn punch(&mut self, at: u64, len: u64) {
        // It only takes room.
        let _ = self.0.zero(at, len);
    }
}
