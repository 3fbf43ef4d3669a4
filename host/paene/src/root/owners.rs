//! The host ids that a container's ids are, from 0 on: no other container has them.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::FlockOperation;
use rustix::io::Errno;

/// The host ids that a container's ids are, from 0 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owners {
    pub first: u32,
    pub count: u32,
}

/// Ids of one container.
const COUNT: u32 = 1 << 16;
/// Where the first container's begin, and how many containers have some: below those of para domains.
const FIRST: u32 = 0x2000_0000;
const CONTAINERS: u32 = 1 << 14;

impl Owners {
    /// Claims ids that no other container has, for as long as the file is open: it is locked. The files stay, as many as
    /// there were containers at a time.
    pub fn claim(dir: &Path) -> io::Result<(Self, File)> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        for place in 0..CONTAINERS {
            let path = dir.join(place.to_string());
            let file = File::options().create(true).truncate(false).write(true).mode(0o600).open(&path)?;
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok((Self { first: FIRST + place * COUNT, count: COUNT }, file)),
                Err(Errno::WOULDBLOCK) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(io::Error::other("all are taken"))
    }
}

/// Where who has which ids is kept.
pub(crate) const CLAIMS: &str = "/run/doppel/users";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_have_ids_of_their_own() {
        let dir = tempfile::tempdir().unwrap();
        let (a, file) = Owners::claim(dir.path()).unwrap();
        let (b, _other) = Owners::claim(dir.path()).unwrap();
        assert_eq!((a.first, b.first), (FIRST, FIRST + COUNT));
        drop(file);
        assert_eq!(Owners::claim(dir.path()).unwrap().0, a, "free again");
        let last = FIRST + (CONTAINERS - 1) * COUNT + (COUNT - 1);
        assert!(last < doppel_confine::limits::SERVICE_UID);
    }
}
