//! Layers that somebody else reads too: frozen images and clones have links to their files (`host/layers`), and what was written before
//! the domain was frozen stays as it is, whatever its guest kernel asks for.

use std::os::fd::OwnedFd;

use doppel_abi_service::storage::{SHARED, SUPERBLOCKS, VOLUMES};
use rustix::fs::{fgetxattr, fstat};
use rustix::io::Errno;

use super::Result;

/// EPERM if bytes `from..to` of a file, which is a domain's volume, are somebody else's too.
pub(super) fn check(node: u64, file: &OwnedFd, from: u64, to: u64) -> Result<()> {
    if node >= VOLUMES || to <= SUPERBLOCKS || fstat(file)?.st_nlink < 2 {
        return Ok(());
    }
    let mut end = [0; 8];
    // Other files with several names do not have it.
    let found = fgetxattr(file, SHARED, &mut end[..]) == Ok(end.len());
    if found && from < u64::from_le_bytes(end) { Err(Errno::PERM) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use rustix::fs::{XattrFlags, fsetxattr};

    use super::*;

    #[test]
    fn what_others_read_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("layer");
        let file = OwnedFd::from(File::create(&path).unwrap());
        if fsetxattr(&file, SHARED, &(1_u64 << 20).to_le_bytes(), XattrFlags::empty()).is_err() {
            // Only root may.
            return;
        }
        assert_eq!(check(0, &file, SUPERBLOCKS, 1 << 20), Ok(()), "nobody else has it any more");
        fs::hard_link(&path, dir.path().join("image")).unwrap();
        for (from, to) in [(SUPERBLOCKS, SUPERBLOCKS + 1), (0, u64::MAX), ((1 << 20) - 1, 1 << 21)] {
            assert_eq!(check(0, &file, from, to), Err(Errno::PERM), "{from} {to}");
        }
        assert_eq!(check(0, &file, 0, SUPERBLOCKS), Ok(()));
        assert_eq!(check(0, &file, 1 << 20, u64::MAX), Ok(()));
        assert_eq!(check(VOLUMES, &file, 0, u64::MAX), Ok(()), "a file of a volume");
    }
}
