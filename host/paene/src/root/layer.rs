//! A layer that is kept: an overlay's directories on the host's disk (`host/layers`).
//!
//! On the disk its files belong to whom the container says, from 0 on: which host ids that is differs from run to run. So the
//! overlay gets the directories by an id-mapped mount of their own.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use rustix::fs::CWD;
use rustix::mount::{OpenTreeFlags, open_tree};

use crate::failure::{Failure, cannot};
use crate::program::request::Request;
use crate::root::lower::Lower;
use crate::root::owners::Owners;
use crate::root::volumes::split;

/// Type of the mount that says where it is.
pub(crate) const LAYER: &str = "layer";
/// Its directories: what the container changed, and what the overlay needs besides.
pub(crate) const UPPER: &str = "upper";
pub(crate) const WORK: &str = "work";
/// The first of them before it is complete.
const UNFINISHED: &str = "new";

/// One that is open.
#[derive(Debug)]
pub(crate) struct Layer {
    mount: OwnedFd,
}

impl Layer {
    /// That of the container, if it is asked for; by the host's own view of files. A new one begins as the image's root directory.
    pub fn open(request: &Request, owners: Owners, image: &Lower) -> Result<Option<Self>, Failure> {
        let Some([_, _, options]) = request.mounts.iter().find(|[_, kind, _]| kind == LAYER) else {
            return Ok(None);
        };
        let (_, dir) = split(options).ok_or("a layer without a place")?;
        make(dir, owners, image).map_err(cannot("make the layer"))?;
        let users = doppel_sys::namespace::users(owners.first, owners.count)
            .map_err(cannot("make a user namespace"))?;
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let mount = open_tree(CWD, dir, flags).map_err(cannot("open the layer"))?;
        doppel_sys::namespace::map_owners(mount.as_fd(), users.as_fd(), false).map_err(cannot(
            "map the owners of the layer's files (the store's file system must know idmapped mounts)",
        ))?;
        Ok(Some(Self { mount }))
    }

    /// The mount.
    pub fn mount(&self) -> BorrowedFd<'_> {
        self.mount.as_fd()
    }
}

/// Does something to the root file system of a container as who is somebody in its layer, if that is kept.
pub(crate) fn as_root<T: Send>(
    layer: Option<&Layer>,
    owners: Owners,
    act: impl FnOnce() -> T + Send,
) -> Result<T, Failure> {
    match layer {
        Some(_) => {
            doppel_sys::privileges::as_owner(owners.first, act).map_err(cannot("be root in the container"))
        }
        None => Ok(act()),
    }
}

/// Makes its directories, as far as they are missing.
fn make(dir: &Path, owners: Owners, image: &Lower) -> io::Result<()> {
    there(&dir.join(WORK))?;
    let upper = dir.join(UPPER);
    if upper.exists() {
        return Ok(());
    }
    let root = rustix::fs::fstat(image.mount())?;
    // Who is nobody in the container is so on the disk.
    let inside = |id: u32| id.checked_sub(owners.first).filter(|id| *id < owners.count).unwrap_or(0);
    let unfinished = dir.join(UNFINISHED);
    there(&unfinished)?;
    chown(&unfinished, Some(inside(root.st_uid)), Some(inside(root.st_gid)))?;
    fs::set_permissions(&unfinished, fs::Permissions::from_mode(root.st_mode & 0o7777))?;
    fs::rename(&unfinished, &upper)
}

/// Makes a directory, if there is none.
fn there(dir: &Path) -> io::Result<()> {
    match fs::create_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}
