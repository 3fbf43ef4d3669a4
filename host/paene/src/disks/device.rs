//! The loop devices, and how the container gets them: as `/dev/vda` and so on, its root's and its group 6's.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};

use crate::failure::{Failure, cannot};
use crate::root::owners::Owners;
use crate::root::tree::RUN;

/// `disk` in Debian's images, as in para domains.
const GROUP: u32 = 6;
/// What programs have written is on the host's disk after so long, as in para domains.
const AGE: Duration = Duration::from_secs(5);

/// A disk as a device.
#[derive(Debug)]
pub(super) struct Device {
    name: String,
    pub read_only: bool,
    disk: doppel_sys::device::Disk,
}

impl Device {
    /// The file as a device.
    pub fn attach(file: &File, name: String, read_only: bool) -> Result<Self, Failure> {
        let disk = doppel_sys::device::attach_alone(file, read_only)
            .map_err(cannot("attach a disk as a loop device, which a paene domain's disks need"))?;
        Ok(Self { name, read_only, disk })
    }

    /// Writes what the host's kernel has of it.
    pub fn flush(&self) -> io::Result<()> {
        self.disk.device().sync_all()
    }

    /// Its device node, in the attendant's own view, as a mount.
    fn node(&self, dir: &Path, owners: Owners) -> io::Result<OwnedFd> {
        let path = dir.join(&self.name);
        let mode = Mode::from_raw_mode(if self.read_only { 0o440 } else { 0o660 });
        mknodat(CWD, &path, FileType::BlockDevice, mode, self.disk.number()?)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode.as_raw_mode()))?;
        chown(&path, Some(owners.first), Some(owners.first + GROUP))?;
        Ok(open_tree(CWD, &path, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)?)
    }
}

/// Shows them to the container of a process, which has not begun to run anything.
pub(super) fn show(devices: &[Device], process: BorrowedFd<'_>, owners: Owners) -> Result<(), Failure> {
    let dir = Path::new(RUN).join("disks");
    fs::DirBuilder::new().mode(0o700).create(&dir).map_err(cannot("make a directory"))?;
    let node = |device: &Device| Ok((format!("/dev/{}", device.name), device.node(&dir, owners)?));
    let nodes: io::Result<Vec<_>> = devices.iter().map(node).collect();
    let nodes = nodes.map_err(cannot("make device nodes of disks"))?;
    let go = || {
        doppel_sys::namespace::enter_mounts(process)?;
        nodes.iter().try_for_each(|(at, node)| {
            // What is made in the container's /dev belongs to somebody whom it knows.
            doppel_sys::privileges::as_owner(owners.first, || File::create_new(at))??;
            let how = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
            Ok::<_, io::Error>(move_mount(node.as_fd(), "", CWD, at, how)?)
        })
    };
    // On a thread of its own, which is over before anything forks: it ends with the container's view of files.
    std::thread::scope(|scope| {
        std::thread::Builder::new().spawn_scoped(scope, go).map(|thread| thread.join())
    })
    .map_err(cannot("start a thread"))?
    .map_err(|_| "cannot show the domain its disks")?
    .map_err(cannot("show the domain its disks"))
}

/// Writes from time to time what programs have written to disks: on a thread, which ends with the process.
pub(super) fn keep_flushed(devices: &[Device]) -> io::Result<()> {
    let written = devices.iter().filter(|device| !device.read_only);
    let written: Vec<File> =
        written.map(|device| device.disk.device().try_clone()).collect::<Result<_, _>>()?;
    if written.is_empty() {
        return Ok(());
    }
    let work = move || {
        loop {
            std::thread::sleep(AGE);
            // Who asks for it is told what is wrong.
            written.iter().for_each(|device| drop(device.sync_all()));
        }
    };
    doppel_sys::signal::spawn_blocked("flusher", work).map(drop)
}
