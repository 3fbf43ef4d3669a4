//! The disks of a paene domain: the same ones as a para domain's, by the same storage service (docs/disks.md).
//!
//! A disk is a loop device over a file of a FUSE file system that nobody has mounted anywhere, and which a helper process serves: it
//! plays the guest kernel's part of the domain's channel to the storage service. So layers, locks, rates, weights, accounts and what
//! happens when the service dies are the service's. The host's kernel has pages of the device, as of any block device, and none of
//! the file's.
//!
//! * `device`: the loop devices, and how the container gets them. `process`: the helper. `fuse`: what the host's kernel asks.
//!   `serve`: what is done for it. `channel`: the guest kernel's end of the channel.
//!
//! Boundary: nothing of the host reads what is on a disk. The helper has ids that own nothing, no capabilities and a filter of some
//! twenty calls, none of which opens anything; all that it has of the disks is the channel. Loop devices detach themselves when their
//! last user is gone, however that ended.

mod channel;
mod device;
mod fuse;
pub(crate) mod process;
mod serve;

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen,
};
use rustix::process::Pid;

use crate::failure::{Failure, cannot};
use crate::program::helper;
use crate::program::request::Request;
use crate::root::owners::Owners;
use device::Device;

/// Type of the mount that says that there is a disk.
pub(crate) const DISK: &str = "disk";

/// What a domain with disks is born with: its channel to the storage service.
#[derive(Debug)]
pub(crate) struct DiskLink {
    /// The channel's memory file.
    pub memory: OwnedFd,
    /// The service's doorbell.
    pub doorbell: OwnedFd,
}

/// The disks of a container.
#[derive(Debug)]
pub(crate) struct Disks {
    devices: Vec<Device>,
    helper: Pid,
}

/// One that is asked for.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    /// `vda`, `vdb`, …
    name: String,
    volume: u8,
    read_only: bool,
}

impl Wanted {
    /// From a mount: where, `disk`, and `index=N[,ro]`.
    fn of([at, _, options]: &[OsString; 3]) -> Option<Self> {
        let name = at.to_str()?.strip_prefix("/dev/")?;
        let mut words = options.to_str()?.split(',');
        let volume = words.next()?.strip_prefix("index=")?.parse().ok()?;
        let read_only = match words.next() {
            None => false,
            Some("ro") => true,
            Some(_) => return None,
        };
        Some(Self { name: name.to_owned(), volume, read_only })
    }
}

impl Disks {
    /// Attaches those that are asked for; none: there are none. By the host's own view of files.
    pub fn open(request: &Request, link: Option<&DiskLink>, owners: Owners) -> Result<Option<Self>, Failure> {
        let asked = request.mounts.iter().filter(|[_, kind, _]| kind == DISK);
        let asked: Option<Vec<Wanted>> = asked.map(Wanted::of).collect();
        let asked = asked.ok_or("a disk without a number")?;
        if asked.is_empty() {
            return Ok(None);
        }
        let link = link.ok_or("disks are asked for, and no storage service is there")?;
        let kernel = File::options().read(true).write(true).open("/dev/fuse");
        let kernel = kernel.map_err(cannot("use /dev/fuse, which a paene domain's disks need"))?;
        let mount = mount(&kernel).map_err(cannot("make a file system for disks (FUSE)"))?;
        // An id of the domain's that neither its programs nor its network use.
        let user = owners.first + owners.count - 3;
        let helper =
            link.serve(&kernel, &asked, user).map_err(cannot("start who serves the domain's disks"))?;
        // If that one dies, what waits for it is told.
        drop(kernel);
        let attach = |(place, wanted): (usize, &Wanted)| {
            let how = if wanted.read_only { OFlags::RDONLY } else { OFlags::RDWR } | OFlags::CLOEXEC;
            let file = rustix::fs::openat(&mount, place.to_string(), how, Mode::empty())
                .map_err(cannot("open a disk, which the storage service has"))?;
            Device::attach(&File::from(file), wanted.name.clone(), wanted.read_only)
        };
        let devices = asked.iter().enumerate().map(attach).collect::<Result<_, _>>()?;
        Ok(Some(Self { devices, helper }))
    }

    /// Shows them to the container of a process, which has not begun to run anything.
    pub fn show(&self, process: BorrowedFd<'_>, owners: Owners) -> Result<(), Failure> {
        device::show(&self.devices, process, owners)
    }

    /// Who serves them.
    pub fn helper(&self) -> Pid {
        self.helper
    }

    /// Begins to write from time to time what programs have written.
    pub fn keep_flushed(&self) -> io::Result<()> {
        device::keep_flushed(&self.devices)
    }

    /// Nobody uses them any more: what was written is on them when this returns.
    pub fn finish(self) -> io::Result<()> {
        self.devices.iter().filter(|device| !device.read_only).try_for_each(Device::flush)
    }
}

impl DiskLink {
    /// Starts the helper, which answers the kernel as this user.
    fn serve(&self, kernel: &File, disks: &[Wanted], user: u32) -> io::Result<Pid> {
        let disks = disks.iter().map(|disk| (disk.volume, disk.read_only)).collect();
        let wanted = process::HelperConfig { user, disks };
        let descriptors = [kernel.as_fd(), self.memory.as_fd(), self.doorbell.as_fd()];
        helper::start(process::VERB, &wanted.to_bytes(), &descriptors)
    }
}

/// A file system whose requests come to `kernel`; it is nowhere in anybody's tree of files.
fn mount(kernel: &File) -> rustix::io::Result<OwnedFd> {
    let fs = fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let number = kernel.as_raw_fd().to_string();
    let options =
        [("source", "doppel"), ("fd", &number), ("rootmode", "40000"), ("user_id", "0"), ("group_id", "0")];
    options.iter().try_for_each(|(key, value)| fsconfig_set_string(fs.as_fd(), *key, *value))?;
    fsconfig_create(fs.as_fd())?;
    let plain = MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    fsmount(fs.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_are_found_among_mounts() {
        let wanted = |at: &str, options: &str| Wanted::of(&[at, DISK, options].map(OsString::from));
        let disk = |name: &str, volume, read_only| Some(Wanted { name: name.into(), volume, read_only });
        assert_eq!(wanted("/dev/vda", "index=0"), disk("vda", 0, false));
        assert_eq!(wanted("/dev/vdb", "index=3,ro"), disk("vdb", 3, true));
        assert_eq!(wanted("/dev/vda", "ro"), None);
        assert_eq!(wanted("/mnt", "index=0"), None);
    }
}
