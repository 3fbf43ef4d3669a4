//! The process' own descriptors, as a directory: by its name there a file that is named by one is opened, or watched, without any other
//! way to it.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rustix::fs::inotify::{self, WatchFlags};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{OpenTreeFlags, open_tree};

use crate::budget::Budget;

/// Token of a client's inotify instance: this, and the client's place.
const FILES: usize = 1 << 32;

/// See above.
#[derive(Debug)]
pub(crate) struct Descriptors {
    directory: OwnedFd,
    /// It is the process' working directory.
    entered: AtomicBool,
    /// Where descriptors are waited for.
    registry: OnceLock<Registry>,
    /// What it may have of the host's inotify.
    pub instances: Budget,
    pub watches: Budget,
}

impl Descriptors {
    /// Before the process is confined.
    pub fn new() -> io::Result<Self> {
        let (entered, registry) = (AtomicBool::new(false), OnceLock::new());
        let (instances, watches) = (Budget::of("max_user_instances"), Budget::of("max_user_watches"));
        Ok(Self { directory: own_descriptors()?, entered, registry, instances, watches })
    }

    /// It becomes the process' working directory: who is confined has no other way to a path in it, which a watch takes.
    pub fn enter(&self) -> io::Result<()> {
        rustix::process::fchdir(&self.directory)?;
        self.entered.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Descriptors are waited for there.
    pub fn set_registry(&self, registry: Registry) {
        // There is one engine.
        let _ = self.registry.set(registry);
    }

    /// Opens what a descriptor names.
    pub fn open(&self, name: BorrowedFd<'_>, access: OFlags) -> Result<OwnedFd, Errno> {
        let flags = access | OFlags::CLOEXEC | OFlags::NOCTTY;
        with_name(name, |name| rustix::fs::openat(&self.directory, name, flags, Mode::empty()))
    }

    /// Does something to what a descriptor names, by its name in the directory of descriptors.
    pub fn by_name<T>(
        &self,
        file: BorrowedFd<'_>,
        act: impl FnOnce(BorrowedFd<'_>, &CStr) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        with_name(file, |name| act(self.directory.as_fd(), name))
    }

    /// The name by which the file of a descriptor was opened, as it is now, and that with which the host says that it has gone.
    pub fn called(&self, file: BorrowedFd<'_>) -> [Vec<u8>; 2] {
        let path = self.by_name(file, |directory, name| rustix::fs::readlinkat(directory, name, Vec::new()));
        let path = path.map(CString::into_bytes).unwrap_or_default();
        let name = path.rsplit(|b| *b == b'/').next().unwrap_or_default();
        [name.to_vec(), name.strip_suffix(b" (deleted)").unwrap_or_default().to_vec()]
    }

    /// Has an inotify instance tell of what a descriptor names; gives the number of the watch.
    pub fn watch(
        &self,
        inotify: BorrowedFd<'_>,
        file: BorrowedFd<'_>,
        events: WatchFlags,
    ) -> Result<i32, Errno> {
        with_name(file, |name| {
            if self.entered.load(Ordering::SeqCst) {
                return inotify::add_watch(inotify, name, events);
            }
            // In a test, whose working directory is that of others.
            let path = [b"/proc/self/fd/", name.to_bytes()].concat();
            inotify::add_watch(inotify, CString::new(path).map_err(|_| Errno::INVAL)?, events)
        })
    }

    /// The engine is told when this instance of the client at `place` has something to tell.
    pub fn follow(&self, inotify: BorrowedFd<'_>, place: usize) -> Result<(), Errno> {
        let registry = self.registry.get().ok_or(Errno::NOSYS)?;
        registry
            .register(&mut SourceFd(&inotify.as_raw_fd()), Token(FILES | place), Interest::READABLE)
            .map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))
    }
}

/// The place of the client whose inotify instance has this token.
pub(crate) fn followed(token: Token) -> Option<usize> {
    (token.0 & FILES != 0).then_some(token.0 & (FILES - 1))
}

/// What a descriptor is called in the directory of descriptors.
fn with_name<T>(fd: BorrowedFd<'_>, act: impl FnOnce(&CStr) -> Result<T, Errno>) -> Result<T, Errno> {
    let mut digits = [0; 12];
    let (mut at, mut n) = (digits.len() - 1, fd.as_raw_fd().unsigned_abs());
    loop {
        at -= 1;
        digits[at] = b'0' + (n % 10) as u8;
        n /= 10;
        if n == 0 {
            break;
        }
    }
    act(CStr::from_bytes_with_nul(&digits[at..]).map_err(|_| Errno::BADF)?)
}

/// The directory of its own descriptors, above which nothing is.
fn own_descriptors() -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let tree = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let tree = match open_tree(rustix::fs::CWD, "/proc/self/fd", tree) {
        // Only who may mount can have it without what is above.
        Err(Errno::PERM) => return Ok(rustix::fs::open("/proc/self/fd", flags, Mode::empty())?),
        tree => tree?,
    };
    Ok(rustix::fs::openat(&tree, c".", flags, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_descriptor_names_is_opened() {
        let descriptors = Descriptors::new().unwrap();
        for _ in 0..12 {
            let name = rustix::fs::open("/", OFlags::PATH, Mode::empty()).unwrap();
            let file = descriptors.open(name.as_fd(), OFlags::DIRECTORY).unwrap();
            let ino = |file: &OwnedFd| rustix::fs::fstat(file).unwrap().st_ino;
            assert_eq!(ino(&file), ino(&name));
            std::mem::forget(name);
        }
    }
}
