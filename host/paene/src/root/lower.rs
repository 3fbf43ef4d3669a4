//! The image below a container's layer: read-only, one for all domains of the image, its owners as the container has them.
//!
//! The image's EROFS file is a loop device, the same for all, so the host's kernel has one file system and one cache of its
//! pages for all of them; nobody has to detach it. Hosts without EROFS or loop devices have the image unpacked in its store once,
//! as a directory that all share.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use doppel_image::Unpacked;
use rustix::fs::CWD;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, OpenTreeFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen, open_tree,
};

use crate::failure::{Failure, cannot};
use crate::root::check;
use crate::root::owners::Owners;

/// How the image's files come to be below the layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Its file mounted, or unpacked where the host cannot do so.
    Any,
    /// Unpacked in any case.
    Unpacked,
}

/// The image's files: a mount that is not attached yet.
#[derive(Debug)]
pub(crate) struct Lower {
    mount: OwnedFd,
    /// Held as long as the container is there: it is not removed meanwhile.
    _unpacked: Option<Unpacked>,
}

impl Lower {
    /// The image's, with its owners as the container's user namespace maps them. By the host's own view of files, where the
    /// store is.
    pub fn open(image: &File, owners: Owners, form: Form) -> Result<Self, Failure> {
        let users = doppel_sys::namespace::users(owners.first, owners.count)
            .map_err(cannot("make a user namespace"))?;
        let mapped = |mount: OwnedFd, unpacked| {
            doppel_sys::namespace::map_owners(mount.as_fd(), users.as_fd(), true)
                .map_err(cannot("map the owners of the image's files"))?;
            Ok(Self { mount, _unpacked: unpacked })
        };
        let why = match form {
            Form::Unpacked => String::new(),
            Form::Any => {
                check::check(image, owners)?;
                match mounted(image).and_then(|mount| mapped(mount, None)) {
                    Ok(lower) => return Ok(lower),
                    Err(why) => format!("{why}, and "),
                }
            }
        };
        let unpacked = doppel_image::unpacked(image)
            .map_err(|error| format!("{why}cannot unpack the image in its store: {error}"))?;
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let mount = open_tree(CWD, &unpacked.path, flags).map_err(cannot("open the unpacked image"))?;
        mapped(mount, Some(unpacked)).map_err(|error| format!("{why}{error}"))
    }

    /// The mount.
    pub fn mount(&self) -> BorrowedFd<'_> {
        self.mount.as_fd()
    }
}

/// The image's file as a file system.
fn mounted(image: &File) -> Result<OwnedFd, Failure> {
    let disk = doppel_sys::device::attach(image).map_err(cannot("attach the image as a loop device"))?;
    let mount = || {
        let fs = fsopen("erofs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_set_string(fs.as_fd(), "source", &disk.path)?;
        fsconfig_set_flag(fs.as_fd(), "ro")?;
        fsconfig_create(fs.as_fd())?;
        fsmount(fs.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::MOUNT_ATTR_RDONLY)
    };
    mount().map_err(cannot("mount the image (EROFS)"))
}
