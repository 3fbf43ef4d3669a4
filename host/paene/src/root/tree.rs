//! A container's root file system: the image, read-only and shared by all, under a layer of its own.
//!
//! The layer is a tmpfs, whose size and number of files are limited and whose pages count as the domain's memory; or one that is
//! kept ([`crate::root::layer`]).
//! All is mounted in the attendant's own mount namespace and goes with it.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatVfsMountFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MoveMountFlags, UnmountFlags, mount, move_mount, unmount};

use crate::failure::{Failure, cannot};
use crate::root::inside::open_inside;
use crate::root::layer::{self, Layer, UPPER, WORK};
use crate::root::lower::Lower;
use crate::root::owners::Owners;

/// How much a container may change.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Quota {
    /// Bytes; 0: half of the host's memory.
    pub bytes: u64,
    /// Files; 0: as many as there are by default.
    pub inodes: u64,
}

/// Most files without a limit of one's own.
const INODES: u64 = 1 << 20;

/// Directory of everything here, in the attendant's own view.
pub(crate) const RUN: &str = "/run";

/// Where the root file system is there.
const ROOT: &str = "root";

/// What is mounted for data alone.
const PLAIN: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV).union(MountFlags::NOEXEC);

/// Shows the attendant its own processes.
pub(crate) fn see_processes() -> Result<(), Failure> {
    mount("proc", "/proc", "proc", PLAIN, None).map_err(cannot("mount /proc"))
}

/// Makes the attendant's own view of the host: a directory for what is made here, and no control groups, in which it was
/// born and which are looked after by who made it.
pub(crate) fn view() -> Result<(), Failure> {
    mount("doppel", RUN, "tmpfs", MountFlags::NOSUID, Some(c"mode=711,size=1m"))
        .map_err(cannot("mount /run"))?;
    let groups = Path::new("/sys/fs/cgroup");
    if groups.exists() {
        while unmount(groups, UnmountFlags::DETACH).is_ok() {}
        mount("doppel", groups, "tmpfs", PLAIN, Some(c"mode=755,size=4k"))
            .map_err(cannot("hide control groups"))?;
    }
    Ok(())
}

/// Mounts the image and the layer above it, the one that is kept or a new one; where.
pub(crate) fn make(
    image: &Lower,
    kept: Option<&Layer>,
    quota: Quota,
    owners: Owners,
) -> Result<PathBuf, Failure> {
    let at = |name: &str| Path::new(RUN).join(name);
    let (lower, above, root) = (at("lower"), at("layer"), at(ROOT));
    for dir in [&lower, &above, &root] {
        fs::create_dir(dir).map_err(cannot("make a directory"))?;
    }
    move_mount(image.mount(), "", CWD, &lower, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        .map_err(cannot("mount the image"))?;
    let (upper, work) = (above.join(UPPER), above.join(WORK));
    match kept {
        Some(kept) => move_mount(kept.mount(), "", CWD, &above, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
            .map_err(cannot("mount the layer"))?,
        None => {
            in_memory(&above, quota)?;
            let like = fs::metadata(&lower).map_err(cannot("examine the image"))?;
            fs::create_dir(&work).and_then(|()| fs::create_dir(&upper)).map_err(cannot("make the layer"))?;
            fs::set_permissions(&upper, fs::Permissions::from_mode(like.mode() & 0o7777))
                .and_then(|()| chown(&upper, Some(like.uid()), Some(like.gid())))
                .map_err(cannot("make the layer"))?;
        }
    }
    let mut options =
        format!("lowerdir={},upperdir={},workdir={}", lower.display(), upper.display(), work.display());
    if kept.is_some() {
        // What is on the disk is the same whatever this host does by default.
        options.push_str(",index=off,metacopy=off,redirect_dir=off");
    }
    let options = std::ffi::CString::new(options).map_err(cannot("mount the root file system"))?;
    // What an overlay makes for itself belongs to whoever mounts it, who has to be somebody in the layer.
    layer::as_root(kept, owners, || {
        mount("doppel", &root, "overlay", MountFlags::NODEV, Some(options.as_c_str()))
    })?
    .map_err(cannot("mount the root file system (overlay)"))?;
    let made = rustix::fs::statvfs(&root).map_err(cannot("examine the root file system"))?;
    if made.f_flag.contains(StatVfsMountFlags::RDONLY) {
        return Err("cannot mount the root file system: the overlay cannot write to its layer".to_owned());
    }
    Ok(root)
}

/// Mounts a layer that ends with the container.
fn in_memory(layer: &Path, quota: Quota) -> Result<(), Failure> {
    let size = if quota.bytes == 0 { "50%".to_owned() } else { quota.bytes.to_string() };
    let inodes = if quota.inodes == 0 { INODES } else { quota.inodes };
    // Two directories are not the domain's.
    let options =
        std::ffi::CString::new(format!("mode=755,size={size},nr_inodes={}", inodes.saturating_add(3)))
            .map_err(cannot("mount the layer"))?;
    mount("doppel", layer, "tmpfs", MountFlags::NODEV, Some(options.as_c_str()))
        .map_err(cannot("mount the layer"))
}

/// Lets go of the root file system of a container that has ended: another one may have its layer then.
pub(crate) fn let_go() {
    // It goes with this process in any case.
    let _ = unmount(Path::new(RUN).join(ROOT), UnmountFlags::DETACH);
}

/// Makes a directory below a root file system, and those above it, as far as they are missing; links are followed as
/// programs inside would follow them. One that cannot be made is found missing by the program.
pub(crate) fn make_directory(root: &Path, dir: &Path, owners: Owners) -> io::Result<()> {
    let root = rustix::fs::open(root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let open = |path: &Path| {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        open_inside(&root, path, flags, 0)
    };
    let mut above = open(Path::new("/"))?;
    let mut path = PathBuf::from("/");
    for part in dir.components().filter_map(|c| match c {
        std::path::Component::Normal(name) => Some(name),
        _ => None,
    }) {
        path.push(part);
        above = match open(&path) {
            Err(Errno::NOENT) => {
                rustix::fs::mkdirat(&above, part, Mode::from_raw_mode(0o755))?;
                let (uid, gid) =
                    (rustix::fs::Uid::from_raw(owners.first), rustix::fs::Gid::from_raw(owners.first));
                rustix::fs::chownat(&above, part, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
                open(&path)?
            }
            found => found?,
        };
    }
    Ok(())
}
