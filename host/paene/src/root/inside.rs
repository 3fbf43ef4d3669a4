//! Files of a domain's root, found as programs inside would find them.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::{Errno, Result};

/// How often a path is gone along again. Each time something else of the host was renamed or mounted meanwhile.
const TRIES: u32 = 1000;

/// Opens a path below `root`; links are followed, but lead nowhere outside.
///
/// # Errors
///
/// As `openat2(2)`. It gives EAGAIN where anything on the host was renamed just when it had gone to a parent (`..`), for it cannot say
/// then whether that was still below `root`: such a one is begun again.
pub(crate) fn open_inside(root: impl AsFd, path: &Path, flags: OFlags, mode: u32) -> Result<OwnedFd> {
    let open = || {
        openat2(root.as_fd(), path, flags | OFlags::CLOEXEC, Mode::from_raw_mode(mode), ResolveFlags::IN_ROOT)
    };
    let mut tries = 1;
    loop {
        match open() {
            Err(Errno::AGAIN) if tries < TRIES => tries += 1,
            r => return r,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn renames_elsewhere_keep_nobody_out() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::os::unix::fs::symlink("../../a/../a/../a/b", root.join("a/link")).unwrap();
        let fd = rustix::fs::open(&root, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let over = AtomicBool::new(false);
        std::thread::scope(|s| {
            let renames = || {
                let (x, y) = (dir.path().join("x"), dir.path().join("y"));
                std::fs::create_dir(&x).unwrap();
                while !over.load(Ordering::Relaxed) {
                    std::fs::rename(&x, &y).unwrap();
                    std::fs::rename(&y, &x).unwrap();
                }
            };
            std::thread::Builder::new().spawn_scoped(s, renames).unwrap();
            for _ in 0..20_000 {
                let found = open_inside(&fd, Path::new("/a/link"), OFlags::PATH, 0);
                if found.is_err() {
                    over.store(true, Ordering::Relaxed);
                }
                found.unwrap();
            }
            over.store(true, Ordering::Relaxed);
        });
    }
}
