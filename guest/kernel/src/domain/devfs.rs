//! The kernel's own mounts at boot: /dev with its device nodes and links, /dev/shm, /tmp.
//!
//! /proc and /sys too; devpts is mounted by the terminal layer through [`mount_point`].

use alloc::sync::Arc;

use crate::objects::block;
use crate::objects::rootfs::{TmpfsOptions, makedev, tmpfs};
use crate::objects::vfs::flags::MountFlags;
use crate::objects::vfs::inode::Inode;
use crate::objects::vfs::mount::vfs;
use crate::{Errno, Result};

/// The group that block devices belong to.
pub(super) const DISK: u32 = 6;
const CHAR: u32 = 0o020000;
const DIR: u32 = 0o040000;
/// Device numbers of the synthetic file systems: others than that of the root, and below those of `vfs::mount::new_dev`.
const PROC_DEV: u64 = 0x16;
const SYS_DEV: u64 = 0x17;
const CGROUP_DEV: u64 = 0x18;

/// Character devices of /dev: name, major, minor, mode.
const DEVICES: &[(&[u8], u32, u32, u32)] = &[
    (b"null", 1, 3, 0o666),
    (b"zero", 1, 5, 0o666),
    (b"full", 1, 7, 0o666),
    (b"random", 1, 8, 0o666),
    (b"urandom", 1, 9, 0o666),
    (b"kmsg", 1, 11, 0o644),
    (b"tty", 5, 0, 0o666),
    (b"console", 5, 1, 0o620),
    (b"ptmx", 5, 2, 0o666),
];

/// Symbolic links of /dev.
const LINKS: &[(&[u8], &[u8])] = &[
    (b"fd", b"/proc/self/fd"),
    (b"stdin", b"/proc/self/fd/0"),
    (b"stdout", b"/proc/self/fd/1"),
    (b"stderr", b"/proc/self/fd/2"),
    (b"core", b"/proc/kcore"),
];

/// The directory `name` in the root, made if the image has none.
fn root_dir(name: &[u8]) -> Result<Arc<dyn Inode>> {
    let root = vfs().root().inode();
    match root.lookup(name) {
        Err(Errno::ENOENT) => root.create(name, DIR | 0o755, 0, 0, 0),
        r => r,
    }
}

/// Mounts a file system on a directory of the root (`name` without slashes), made if it is missing.
pub fn mount_point(
    name: &[u8],
    root: Arc<dyn Inode>,
    fstype: &'static str,
    source: &[u8],
    flags: MountFlags,
) -> Result<()> {
    root_dir(name)?;
    let mut path = alloc::vec![b'/'];
    path.extend_from_slice(name);
    crate::objects::lookup::walk::mount_at(&path, root, fstype, source, flags)
}

fn populate() -> Result<()> {
    let dev = tmpfs(TmpfsOptions { mode: 0o755, size: 64 << 20, ..TmpfsOptions::default() });
    for (name, major, minor, mode) in DEVICES {
        dev.create(name, CHAR | mode, 0, 0, makedev(*major, *minor))?;
    }
    block::init();
    for (name, mode, (major, minor)) in block::loops::nodes() {
        dev.create(name.as_bytes(), mode, 0, DISK, makedev(major, minor))?;
    }
    for (name, target) in LINKS {
        dev.symlink(name, target, 0, 0)?;
    }
    dev.create(b"pts", DIR | 0o755, 0, 0, 0)?;
    dev.create(b"shm", DIR | 0o755, 0, 0, 0)?;
    let exec = MountFlags::NOSUID | MountFlags::RELATIME;
    mount_point(b"dev", dev, "devtmpfs", b"dev", exec)?;
    crate::objects::lookup::walk::mount_at(
        b"/dev/shm",
        tmpfs(TmpfsOptions::default()),
        "tmpfs",
        b"shm",
        exec | MountFlags::NODEV,
    )?;
    let nothing = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::RELATIME;
    mount_point(
        b"proc",
        super::procfs::root(PROC_DEV, crate::core::namespace::pid::first().clone()),
        "proc",
        b"proc",
        nothing,
    )?;
    mount_point(b"sys", super::sysfs::root(SYS_DEV), "sysfs", b"sysfs", nothing)?;
    crate::objects::lookup::walk::mount_at(
        b"/sys/fs/cgroup",
        super::cgroupfs::root(CGROUP_DEV),
        "cgroup2",
        b"cgroup",
        nothing,
    )?;
    root_dir(b"tmp").map(drop)
}

/// Mounts /dev and /dev/shm (boot).
pub fn init() {
    if let Err(e) = populate() {
        panic!("boot: cannot mount /dev: {}", e.name());
    }
}
