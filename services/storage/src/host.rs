//! What all clients of a process share of the host.

use std::ffi::CStr;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::Resource;

use crate::descriptors::Descriptors;
use crate::nodes::{LOCKED, PINNED};
use crate::quota::Quotas;

/// Most files that are held open for a domain, beside those that are pinned.
const OPEN: usize = 512;
/// Descriptors of the process' own, and what one of them costs at most: three for a file.
const OWN: usize = 128;
const EACH: usize = 3;
/// Locks of files: two files have the same one seldom.
const LOCKS: usize = 1024;

/// See above.
#[derive(Debug)]
pub(crate) struct Host {
    /// By which a named file is opened.
    pub descriptors: Arc<Descriptors>,
    /// Descriptors that the process may have.
    most: usize,
    open_files: AtomicUsize,
    pinned: AtomicUsize,
    locked: AtomicUsize,
    locks: Vec<Mutex<()>>,
    charges: Vec<Mutex<()>>,
    /// Bounds of volumes.
    pub quotas: Quotas,
}

impl Host {
    /// Before the process is confined.
    pub fn new() -> io::Result<Self> {
        let most = rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        Ok(Self {
            descriptors: Arc::new(Descriptors::new()?),
            most: usize::try_from(most).unwrap_or(usize::MAX).saturating_sub(OWN),
            open_files: AtomicUsize::new(OPEN),
            pinned: AtomicUsize::new(PINNED),
            locked: AtomicUsize::new(LOCKED),
            locks: (0..LOCKS).map(|_| Mutex::default()).collect(),
            charges: (0..LOCKS).map(|_| Mutex::default()).collect(),
            quotas: Quotas::default(),
        })
    }

    /// So many domains share the descriptors.
    pub fn share(&self, domains: usize) {
        let each = self.most / domains.max(8);
        let (pinned, locked) = (PINNED.min(each / 4), LOCKED.min(each / 4));
        self.pinned.store(pinned, Ordering::Relaxed);
        self.locked.store(locked, Ordering::Relaxed);
        self.open_files.store(((each - pinned - locked) / EACH).clamp(8, OPEN), Ordering::Relaxed);
    }

    /// Files that may be pinned for a domain.
    pub fn pinned(&self) -> usize {
        self.pinned.load(Ordering::Relaxed)
    }

    /// Files that a domain may have locked.
    pub fn locked(&self) -> usize {
        self.locked.load(Ordering::Relaxed)
    }

    /// Files that may be held open for a domain.
    pub fn open_files(&self) -> usize {
        self.open_files.load(Ordering::Relaxed)
    }

    /// Opens what a descriptor names.
    pub fn open(&self, name: BorrowedFd<'_>, access: OFlags) -> Result<OwnedFd, Errno> {
        self.descriptors.open(name, access)
    }

    /// Does something to what a descriptor names, by its name in the directory of descriptors.
    pub fn by_name<T>(
        &self,
        file: BorrowedFd<'_>,
        act: impl FnOnce(BorrowedFd<'_>, &CStr) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        self.descriptors.by_name(file, act)
    }

    /// Keeps others from appending to a file, or from reading this directory.
    pub fn lock(&self, file: u64) -> MutexGuard<'_, ()> {
        one_of(&self.locks, file)
    }

    /// Keeps others from changing what this file of a volume with a bound takes. It is taken before the one above.
    pub fn charge(&self, file: u64) -> MutexGuard<'_, ()> {
        one_of(&self.charges, file)
    }
}

fn one_of(locks: &[Mutex<()>], file: u64) -> MutexGuard<'_, ()> {
    let lock = usize::try_from(file).unwrap_or(0) % locks.len();
    // It protects nothing that could be half done.
    locks[lock].lock().unwrap_or_else(PoisonError::into_inner)
}
