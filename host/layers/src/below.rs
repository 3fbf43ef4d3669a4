//! Files that several layers have in common: what a domain had written when it was frozen.
//!
//! A frozen image has them in a directory beside it, as hard links called 0, 1, …, the lowest first; a clone's layer has them in `below/`.
//! What a domain writes to its layer later lies behind what they share. So a file goes when the last one goes that has a link to it.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use doppel_abi_service::storage::SHARED;
use rustix::fs::{XattrFlags, fsetxattr};
use rustix::io::Errno;

use crate::error::{IoContext, Result};
use crate::store::file;

/// Most files that a layer may lie on.
const MOST: usize = 8;

/// Where a layer has links to the files that it lies on.
pub(crate) fn below(dir: &Path) -> PathBuf {
    dir.join("below")
}

/// The links in a directory, the lowest first.
pub(crate) fn links(dir: &Path) -> Vec<PathBuf> {
    (0..MOST).map(|i| dir.join(i.to_string())).take_while(|path| path.exists()).collect()
}

/// The files of the para domain's layer in this directory, as a storage service is given them: the one that is written, then those that
/// it lies on.
#[must_use]
pub fn files(dir: &Path) -> Vec<PathBuf> {
    [file(dir)].into_iter().chain(links(&below(dir))).collect()
}

/// Whether what the layer in this directory has can be kept in a directory that is made beside that file.
#[must_use]
pub fn can_share(dir: &Path, beside: &Path) -> bool {
    let device = |path: &Path| fs::metadata(path).map(|meta| meta.dev()).ok();
    let there = beside.parent().and_then(device);
    there.is_some() && there == device(&file(dir)) && links(&below(dir)).len() + 1 < MOST
}

/// Keeps the first `end` bytes of the layer in this directory in a new directory; gives how many files these are. What is there already is
/// replaced. From here on a storage service lets nobody change them; without the rights of root only the domain's kernel sees to that.
///
/// # Errors
/// What the host says.
pub fn share(dir: &Path, end: u64, to: &Path) -> Result<u8> {
    let all: Vec<_> = links(&below(dir)).into_iter().chain([file(dir)]).collect();
    if to.exists() {
        fs::remove_dir_all(to).doing("remove", to)?;
    }
    link(&all, to)?;
    let synced = || {
        let log = File::open(file(dir))?;
        match fsetxattr(&log, SHARED, &end.to_le_bytes(), XattrFlags::empty()) {
            // Not root, or a file system without attributes.
            Err(Errno::PERM | Errno::OPNOTSUPP) => {}
            done => done?,
        }
        log.sync_all()?;
        File::open(to)?.sync_all()?;
        Ok::<_, io::Error>(())
    };
    synced().doing("sync", to)?;
    Ok(u8::try_from(all.len()).unwrap_or(0))
}

/// Makes a directory with links to these files.
pub(crate) fn link(files: &[PathBuf], to: &Path) -> Result<()> {
    DirBuilder::new().mode(0o700).create(to).doing("make", to)?;
    for (i, from) in files.iter().enumerate() {
        fs::hard_link(from, to.join(i.to_string())).doing("link", from)?;
    }
    Ok(())
}

/// Whether what the layer in this directory has is somebody else's too, and must stay as it is.
#[must_use]
pub fn is_shared(dir: &Path) -> bool {
    fs::metadata(file(dir)).is_ok_and(|meta| meta.nlink() > 1)
}
