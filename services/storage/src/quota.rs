//! Bounds of volumes: how much of the host's disk the files of one may take, and how many there may be.
//!
//! What is used lies in a file that all services share which have the volume, so that it outlives each of them, and is counted whole
//! when somebody opens the volume whom nobody shares it with. A volume that is one file has no such file: its blocks are what is used.
//! A file that loses its last name is given back when nobody here has it open any more, because that is when the host does.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use doppel_abi_service::storage::{Amount, Used};
use doppel_sys::shared::SharedMap;
use rustix::io::Errno;

/// Bytes of a block as `stat(2)` counts them.
const BLOCK: u64 = 512;
/// Size in bytes of the file that says what is used.
pub const USED: u64 = 4096;

/// What the files of a volume may take.
#[derive(Debug)]
pub struct Bound {
    /// Bytes of the host's disk, and files.
    pub most: Amount,
    /// The file that says what is used ([`USED`] bytes, a [`Used`]); none for a volume that is one file.
    pub used: Option<OwnedFd>,
}

/// The bound of a volume, for all clients of this process that have it.
#[derive(Debug)]
pub(crate) struct Quota {
    most: Amount,
    count: Count,
}

#[derive(Debug)]
enum Count {
    /// The volume is this file.
    File(Arc<OwnedFd>),
    Shared {
        map: SharedMap,
        /// By device and inode: files that are open here.
        open: Mutex<HashMap<File, Holders>>,
    },
}

/// A file's device and inode.
pub(crate) type File = (u64, u64);

#[derive(Debug, Default)]
struct Holders {
    count: u32,
    /// It has lost its last name here.
    lost: bool,
}

/// Bytes of the host's disk that a file takes.
pub(crate) fn bytes_of(file: &OwnedFd) -> Result<u64, Errno> {
    Ok(u64::try_from(rustix::fs::fstat(file)?.st_blocks).unwrap_or(0).saturating_mul(BLOCK))
}

impl Quota {
    /// That of a volume with this root.
    pub fn new(bound: &Bound, root: &Arc<OwnedFd>) -> io::Result<Self> {
        let count = match &bound.used {
            None => Count::File(root.clone()),
            Some(used) => {
                let map = SharedMap::new(used.as_fd(), USED as usize)?;
                Count::Shared { map, open: Mutex::default() }
            }
        };
        Ok(Self { most: bound.most, count })
    }

    /// The most that may be used.
    pub fn most(&self) -> Amount {
        self.most
    }

    /// What is used.
    pub fn used(&self) -> Amount {
        match &self.count {
            Count::File(file) => Amount { bytes: bytes_of(file).unwrap_or(0), inodes: 1 },
            Count::Shared { map, .. } => map.get::<Used>(0).now(),
        }
    }

    /// Takes more.
    pub fn take(&self, more: Amount) -> Result<(), Errno> {
        let fits = match &self.count {
            // It counts by itself.
            Count::File(_) => {
                more.bytes == 0 || self.used().bytes.saturating_add(more.bytes) <= self.most.bytes
            }
            Count::Shared { map, .. } => map.get::<Used>(0).take(more, self.most),
        };
        if fits { Ok(()) } else { Err(Errno::NOSPC) }
    }

    /// Of what was taken in advance, `used` was needed.
    pub fn settle(&self, taken: Amount, used: Amount) {
        let Count::Shared { map, .. } = &self.count else { return };
        let count = map.get::<Used>(0);
        let over = |a: Amount, b: Amount| Amount {
            bytes: a.bytes.saturating_sub(b.bytes),
            inodes: a.inodes.saturating_sub(b.inodes),
        };
        count.add(over(used, taken));
        count.give(over(taken, used));
    }

    fn open(&self) -> Option<MutexGuard<'_, HashMap<File, Holders>>> {
        match &self.count {
            Count::File(_) => None,
            // It is whole at any moment.
            Count::Shared { open, .. } => Some(open.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    /// It is open here, for as long as what this gives is held.
    pub fn hold(self: &Arc<Self>, file: File, descriptor: &Arc<OwnedFd>) -> Option<Holding> {
        self.open()?.entry(file).or_default().count += 1;
        Some(Holding { quota: self.clone(), file, descriptor: descriptor.clone() })
    }

    /// It has lost its last name, and is open here.
    pub fn loses(&self, file: File) {
        if let Some(mut open) = self.open()
            && let Some(holders) = open.get_mut(&file)
        {
            holders.lost = true;
        }
    }

    /// Whether nobody else has a file open that has lost its last name.
    fn leave(&self, file: File) -> bool {
        let Some(mut open) = self.open() else { return false };
        let Some(holders) = open.get_mut(&file) else { return false };
        holders.count -= 1;
        if holders.count > 0 {
            return false;
        }
        open.remove(&file).is_some_and(|holders| holders.lost)
    }
}

/// A file that is open here.
#[derive(Debug)]
pub(crate) struct Holding {
    quota: Arc<Quota>,
    file: File,
    descriptor: Arc<OwnedFd>,
}

impl Drop for Holding {
    fn drop(&mut self) {
        // It may have got a name again.
        if self.quota.leave(self.file)
            && let Ok(s) = rustix::fs::fstat(&self.descriptor)
            && s.st_nlink == 0
        {
            let bytes = u64::try_from(s.st_blocks).unwrap_or(0).saturating_mul(BLOCK);
            self.quota.settle(Amount { bytes, inodes: 1 }, Amount::default());
        }
    }
}

/// The bounds of all volumes that clients of this process have.
#[derive(Debug, Default)]
pub(crate) struct Quotas(Mutex<Vec<(File, std::sync::Weak<Quota>)>>);

impl Quotas {
    /// That of a volume with this root; the same one for all who have it.
    pub fn get(&self, bound: &Bound, root: &Arc<OwnedFd>) -> io::Result<Arc<Quota>> {
        let s = rustix::fs::fstat(bound.used.as_ref().unwrap_or(root))?;
        let file = (s.st_dev, s.st_ino);
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(_, quota)| quota.strong_count() > 0);
        if let Some(quota) =
            all.iter().find(|(known, _)| *known == file).and_then(|(_, quota)| quota.upgrade())
        {
            return Ok(quota);
        }
        let quota = Arc::new(Quota::new(bound, root)?);
        all.push((file, Arc::downgrade(&quota)));
        Ok(quota)
    }
}

/// Counts what the files below a directory take, itself included, and notes it in the file that says so. Nobody changes them
/// meanwhile.
///
/// # Errors
/// What the host says.
pub fn count(dir: &OwnedFd, used: &OwnedFd) -> io::Result<()> {
    rustix::fs::ftruncate(used, USED)?;
    let mut sum = Amount::default();
    let mut linked = std::collections::HashSet::new();
    let s = rustix::fs::fstat(dir)?;
    add(&mut sum, &mut linked, &s);
    count_below(dir, s.st_dev, &mut sum, &mut linked, DEPTH)?;
    SharedMap::new(used.as_fd(), USED as usize)?.get::<Used>(0).set(sum);
    Ok(())
}

/// Directories one in the other that are counted: each costs a descriptor meanwhile. A volume with more of them is full.
const DEPTH: u32 = 512;
const FULL: u64 = u64::MAX / 4;

fn add(sum: &mut Amount, linked: &mut std::collections::HashSet<u64>, s: &rustix::fs::Stat) {
    let directory = rustix::fs::FileType::from_raw_mode(s.st_mode) == rustix::fs::FileType::Directory;
    // A file with several names is one.
    if s.st_nlink > 1 && !directory && !linked.insert(s.st_ino) {
        return;
    }
    sum.bytes = sum.bytes.saturating_add(u64::try_from(s.st_blocks).unwrap_or(0).saturating_mul(BLOCK));
    sum.inodes += 1;
}

fn count_below(
    dir: &OwnedFd,
    device: u64,
    sum: &mut Amount,
    linked: &mut std::collections::HashSet<u64>,
    depth: u32,
) -> io::Result<()> {
    use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let s = match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            // The host has removed it meanwhile.
            Err(Errno::NOENT) => continue,
            s => s?,
        };
        // What is mounted there is not the volume's.
        if s.st_dev != device {
            continue;
        }
        add(sum, linked, &s);
        if FileType::from_raw_mode(s.st_mode) != FileType::Directory {
            continue;
        }
        if depth == 0 {
            // Nothing more is taken, and all can be removed.
            sum.bytes = FULL;
        } else {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let below = rustix::fs::openat(dir, name, flags, Mode::empty())?;
            count_below(&below, device, sum, linked, depth - 1)?;
        }
    }
    Ok(())
}
