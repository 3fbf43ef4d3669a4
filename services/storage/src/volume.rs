//! A directory or a regular file of the host that a domain is given, or a disk.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use doppel_abi_service::storage::Amount;
use doppel_disk::{Layer, Stack};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::mount::{OpenTreeFlags, open_tree};

use crate::quota::Bound;

/// What a domain is given: the root as an open file.
#[derive(Debug)]
pub struct Volume {
    /// A directory or a regular file. A directory, and a file that may not change, is of a mount of its own, if root opened it: above
    /// it there is nothing.
    pub root: OwnedFd,
    /// Nothing in it may change.
    pub read_only: bool,
    /// It is a disk: the root is its topmost layer.
    pub disk: Option<DiskFiles>,
    /// What its files may take of the host's disk.
    pub bound: Option<Bound>,
    /// The device it is on, and the disk that this is a part of.
    pub devices: [u64; 2],
}

/// The files of a disk (`common/disk`).
#[derive(Debug)]
pub struct DiskFiles {
    /// Its layers, the topmost first.
    pub layers: Vec<File>,
    /// The live map of the topmost.
    pub live: Option<File>,
    /// Open as long as the disk is this domain's, which is until the last of its requests is done.
    pub lock: File,
}

/// A disk that is open.
#[derive(Debug)]
pub(crate) struct Disk {
    pub stack: Stack<File>,
    _lock: File,
}

impl DiskFiles {
    /// As an order has them.
    pub(crate) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.layers.iter().chain(&self.live).chain([&self.lock]).map(AsFd::as_fd).collect()
    }

    /// The disk.
    ///
    /// # Errors
    /// They are none, or what the host says.
    pub fn open(self, read_only: bool) -> io::Result<Stack<File>> {
        self.open_locked(read_only).map(|disk| disk.stack)
    }

    pub(crate) fn open_locked(self, read_only: bool) -> io::Result<Disk> {
        let mut live = self.live;
        let layers = self.layers.into_iter().map(|file| Layer::open(file, live.take()));
        let stack = Stack::new(layers.collect::<io::Result<_>>()?, read_only)?;
        Ok(Disk { stack, _lock: self.lock })
    }
}

impl Volume {
    /// Opens a directory or a regular file at a path without links: whoever resolved it has seen what is mounted.
    ///
    /// # Errors
    /// What the host says (ELOOP: there is a link by now), or if it is neither.
    pub fn open(path: &Path, read_only: bool) -> io::Result<Self> {
        let how = OFlags::PATH | OFlags::CLOEXEC;
        let mut name = rustix::fs::openat2(CWD, path, how, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
        // To open another kind would do something.
        let kind = FileType::from_raw_mode(rustix::fs::fstat(&name)?.st_mode);
        let access = match kind {
            FileType::Directory => OFlags::DIRECTORY,
            FileType::RegularFile => OFlags::empty(),
            _ => {
                let text = format!("{}: neither a directory nor a regular file", path.display());
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
        };
        // From a file nothing else is reached, and a mount's end waits for all CPUs: milliseconds of a start on a busy host.
        if rustix::process::geteuid().is_root() && (kind == FileType::Directory || read_only) {
            // What is mounted below it is not part of it.
            let how = OpenTreeFlags::OPEN_TREE_CLONE
                | OpenTreeFlags::OPEN_TREE_CLOEXEC
                | OpenTreeFlags::AT_EMPTY_PATH;
            name = open_tree(&name, "", how)?;
            doppel_sys::namespace::restrict(name.as_fd(), read_only)?;
        }
        let again = format!("/proc/self/fd/{}", name.as_raw_fd());
        let root = rustix::fs::open(again, access | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let device = rustix::fs::fstat(&root)?.st_dev;
        Ok(Self { root, read_only, disk: None, bound: None, devices: [device, disk_of(device)] })
    }

    /// Opens a regular file that is only read, as [`Self::open`], but without a mount of its own, whose end takes a clone's time.
    ///
    /// # Errors
    /// As above.
    pub fn open_shared(path: &Path) -> io::Result<Self> {
        Ok(Self { read_only: true, ..Self::open(path, false)? })
    }

    /// The same, with a bound.
    #[must_use]
    pub fn with_bound(self, bound: Option<Bound>) -> Self {
        Self { bound, ..self }
    }

    /// One that is a file, which may take so many bytes of the host's disk.
    #[must_use]
    pub fn with_bytes(self, bytes: u64) -> Self {
        self.with_bound(Some(Bound { most: Amount { bytes, inodes: u64::MAX }, used: None }))
    }
}

/// The disk that a device is a part of; itself, if it is none, or that is not known.
fn disk_of(device: u64) -> u64 {
    let place = format!("/sys/dev/block/{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let place = Path::new(&place);
    if !place.join("partition").exists() {
        return device;
    }
    let disk = std::fs::read_to_string(place.join("../dev")).ok();
    let number = disk.as_deref().and_then(|text| text.trim().split_once(':'));
    let number = number.and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    number.map_or(device, |(major, minor)| rustix::fs::makedev(major, minor))
}
