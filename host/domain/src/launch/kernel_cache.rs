//! The guest kernel as a file in the store, so that all domains of a host share its pages.
//!
//! The file is executed, so it counts only if nobody but the store's owner can have written it. Whatever is
//! wrong, the answer is "none" and the caller uses a memory file: this is an economy, not a need.

use std::ffi::CString;
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, Dir, Mode, OFlags, Stat, StatVfsMountFlags};

/// How long another version's kernel is kept after it was made.
const KEEP_SECONDS: u64 = 24 * 3600;
/// How the names of all guest kernels begin.
const PREFIX: &str = "guest-kernel-";

/// The place of one guest kernel in a store.
#[derive(Debug)]
pub(crate) struct KernelCache<'a> {
    dir: OwnedFd,
    name: String,
    elf: &'a [u8],
}

impl<'a> KernelCache<'a> {
    /// The place of `elf` in `store`; none if programs there cannot be trusted or executed.
    pub fn new(store: &Path, elf: &'a [u8], digest: u64) -> Option<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(store, flags, Mode::empty()).ok()?;
        let no_exec = rustix::fs::fstatvfs(&dir).ok()?.f_flag.contains(StatVfsMountFlags::NOEXEC);
        let good = is_ours(&rustix::fs::fstat(&dir).ok()?) && !no_exec;
        good.then(|| Self { dir, name: format!("{PREFIX}{digest:016x}"), elf })
    }

    /// Opens the file, making it if it is not there.
    pub fn open(&self) -> Option<OwnedFd> {
        let file = File::from(self.open_existing().or_else(|| {
            self.make()?;
            self.remove_old();
            self.open_existing()
        })?);
        // Small pages make a slower kernel, no other difference.
        let pages = super::elf::code_len(self.elf).map_or(0, |n| n.div_ceil(super::elf::HUGE));
        let _ = doppel_sys::huge::cached_huge(&file, u32::try_from(pages).unwrap_or(0));
        Some(OwnedFd::from(file))
    }

    fn open_existing(&self) -> Option<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.dir, &self.name, flags, Mode::empty()).ok()?;
        let stat = rustix::fs::fstat(&fd).ok()?;
        let whole = u64::try_from(stat.st_size).is_ok_and(|size| size == self.elf.len() as u64);
        (is_ours(&stat) && whole && stat.st_mode & 0o001 != 0).then_some(fd)
    }

    /// Writes the file under another name first, so that it is never seen half done. It is written by one call,
    /// for which file systems that can use huge pages do.
    fn make(&self) -> Option<()> {
        let temporary = format!("{}.{}", self.name, std::process::id());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.dir, &temporary, flags, Mode::RWXU).ok()?;
        let mut file = File::from(fd);
        let written = file.write_all(self.elf).and_then(|()| file.sync_all()).is_ok()
            // Whatever our umask: domains have user ids of their own.
            && rustix::fs::fchmod(&file, Mode::from_raw_mode(0o755)).is_ok();
        // Executing a file that is open for writing fails.
        drop(file);
        let done = written && rustix::fs::renameat(&self.dir, &temporary, &self.dir, &self.name).is_ok();
        if !done {
            self.remove(&CString::new(temporary).ok()?);
        }
        done.then_some(())
    }

    /// Removes versions made long ago: domains that run one keep it, and new ones make it again.
    fn remove_old(&self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let Ok(entries) = Dir::read_from(&self.dir) else { return };
        for entry in entries.flatten() {
            let other = entry.file_name();
            if !other.to_bytes().starts_with(PREFIX.as_bytes()) || other.to_bytes() == self.name.as_bytes() {
                continue;
            }
            if let Ok(stat) = rustix::fs::statat(&self.dir, other, AtFlags::SYMLINK_NOFOLLOW)
                && u64::try_from(stat.st_mtime).is_ok_and(|made| made + KEEP_SECONDS < now)
            {
                self.remove(other);
            }
        }
    }

    /// Removes a file, which matters little if it fails.
    fn remove(&self, name: &std::ffi::CStr) {
        let _ = rustix::fs::unlinkat(&self.dir, name, AtFlags::empty());
    }
}

/// Whether nobody but us can have changed it.
fn is_ours(stat: &Stat) -> bool {
    stat.st_uid == rustix::process::geteuid().as_raw() && stat.st_mode & 0o022 == 0
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_kernel_is_made_once_and_removed_when_old() {
        let store = std::env::temp_dir().join(format!("doppel-kernel-cache-{}", std::process::id()));
        fs::create_dir(&store).unwrap();
        fs::set_permissions(&store, fs::Permissions::from_mode(0o700)).unwrap();
        let names = || {
            let mut all: Vec<_> = fs::read_dir(&store).unwrap().map(|e| e.unwrap().file_name()).collect();
            all.sort();
            all
        };
        fs::write(store.join("other"), "kept").unwrap();
        assert!(KernelCache::new(&store, b"one", 1).unwrap().open().is_some());
        assert!(KernelCache::new(&store, b"one", 1).unwrap().open().is_some());
        assert_eq!(names(), ["guest-kernel-0000000000000001", "other"]);
        let old = File::options().write(true).open(store.join("guest-kernel-0000000000000001")).unwrap();
        old.set_modified(UNIX_EPOCH).unwrap();
        assert!(KernelCache::new(&store, b"two", 2).unwrap().open().is_some());
        assert_eq!(names(), ["guest-kernel-0000000000000002", "other"]);
        // Damaged, or writable for others: made anew.
        let path = store.join("guest-kernel-0000000000000002");
        fs::write(&path, "t").unwrap();
        assert!(KernelCache::new(&store, b"two", 2).unwrap().open().is_some());
        assert_eq!(fs::read(&path).unwrap(), b"two");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(KernelCache::new(&store, b"two", 2).unwrap().open().is_some());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o755);
        // A store that others can write to is not used.
        fs::set_permissions(&store, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(KernelCache::new(&store, b"two", 2).is_none());
        fs::remove_dir_all(&store).unwrap();
    }
}
