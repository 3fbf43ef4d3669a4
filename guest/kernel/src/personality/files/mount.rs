//! `mount(2)` and `umount2(2)`.

use crate::objects::vfs::flags::MountFlags;
use crate::objects::vfs::kinds::TYPES;
use alloc::sync::Arc;
use alloc::vec::Vec;

use doppel_abi_linux::syscalls::nr;

use crate::objects::block::{self, Device};
use crate::objects::erofs;
use crate::objects::lookup::caller::read_string;
use crate::objects::lookup::caller::{Caller, Name, at};
use crate::objects::lookup::perm::cap;
use crate::objects::rootfs::{self, DiskOptions, tmpfs};
use crate::objects::vfs::dentry::Dentry;
use crate::objects::vfs::devices;
use crate::objects::vfs::inode::FileType;
use crate::objects::vfs::kinds::tmpfs_options;
use crate::objects::vfs::mount::vfs;
use crate::personality::Support::Partial;
use crate::personality::args::{Bits, UserStr};
use crate::personality::{Args, Syscall, call};
use crate::{Errno, Result};
use doppel_machine::user::UserPtr;

/// A string that may be left out.
fn optional(p: UserPtr) -> Result<Vec<u8>> {
    if p.is_null() { Ok(Vec::new()) } else { read_string(p, 4096) }
}

/// The block device that a path names.
fn block_device(c: &Caller, path: &[u8]) -> Result<Arc<Device>> {
    let found = c.find(at::FDCWD, path, true)?;
    if found.dentry().kind() != FileType::BlockDevice {
        return Err(Errno::ENOTBLK);
    }
    if found.mount().flags().contains(MountFlags::NODEV) {
        return Err(Errno::EACCES);
    }
    block::numbered(devices::split(found.inode().stat().rdev))
}

fn mount(
    a: &Args,
    UserStr(source): UserStr,
    UserStr(target): UserStr,
    UserStr(kind): UserStr,
    flags: Bits<MountFlags>,
    data: UserPtr,
) -> Result<u64> {
    let flags = flags.known();
    let c = Caller::new(&**a.thread);
    if !c.cred.capable(cap::SYS_ADMIN) {
        return Err(Errno::EPERM);
    }
    let target = Name::read(target)?;
    let point = c.find(at::FDCWD, target.bytes(), true)?;
    let is_root = Arc::ptr_eq(&point.mount().root, point.dentry());
    if flags.contains(MountFlags::REMOUNT) {
        if !is_root {
            return Err(Errno::EINVAL);
        }
        if flags.contains(MountFlags::RDONLY) {
            rootfs::settle(point.mount())?;
        } else {
            rootfs::allow_writes(point.mount())?;
        }
        point.mount().set_flags(flags)?;
        return Ok(0);
    }
    if flags.intersects(MountFlags::PROPAGATION) {
        // There is one mount namespace: nothing propagates anywhere.
        return if is_root { Ok(0) } else { Err(Errno::EINVAL) };
    }
    if flags.contains(MountFlags::MOVE) {
        return Err(Errno::EINVAL);
    }
    let source = optional(source)?;
    if flags.contains(MountFlags::BIND) {
        let from = c.find(at::FDCWD, &source, true)?;
        let m = from.mount();
        vfs().mount(&point, from.dentry().clone(), m.fstype, &m.source, m.flags())?;
        return Ok(0);
    }
    if kind.is_null() {
        return Err(Errno::EINVAL);
    }
    let kind = read_string(kind, 256)?;
    let mut kept = flags & MountFlags::KEPT;
    kept.set(
        MountFlags::RELATIME,
        kept.contains(MountFlags::RELATIME)
            || !flags.intersects(MountFlags::NOATIME | MountFlags::STRICTATIME),
    );
    if kind == b"tmpfs" || kind == b"ramfs" {
        let options = tmpfs_options(&optional(data)?)?;
        vfs().mount(&point, Dentry::root(tmpfs(options)), "tmpfs", &source, kept)?;
        return Ok(0);
    }
    if kind == b"erofs" {
        let root = erofs::mount(&block_device(&c, &source)?)?;
        vfs().mount(&point, Dentry::root(root), "erofs", &source, kept | MountFlags::RDONLY)?;
        return Ok(0);
    }
    if kind == rootfs::DISK_TYPE.as_bytes() {
        let options = DiskOptions::parse(&optional(data)?, kept.contains(MountFlags::RDONLY))?;
        let root = rootfs::mount_disk(&block_device(&c, &source)?, options)?;
        vfs().mount(&point, root, rootfs::DISK_TYPE, &source, kept)?;
        return Ok(0);
    }
    let types = TYPES.get();
    let found = types.list.lock().iter().find(|(n, _)| n.as_bytes() == kind).copied();
    let (name, make) = found.ok_or(Errno::ENODEV)?;
    vfs().mount(&point, Dentry::root(make()?), name, &source, kept)?;
    Ok(0)
}

bitflags::bitflags! {
    /// Flags of `umount2(2)`.
    #[derive(Clone, Copy, PartialEq, Eq)]
    struct UnmountFlags: u32 {
        const FORCE = 1;
        const DETACH = 2;
        const EXPIRE = 4;
        const NOFOLLOW = 8;
    }
}

fn umount2(a: &Args, UserStr(path): UserStr, flags: Bits<UnmountFlags>) -> Result<u64> {
    let c = Caller::new(&**a.thread);
    if !c.cred.capable(cap::SYS_ADMIN) {
        return Err(Errno::EPERM);
    }
    let flags = flags.checked()?;
    if flags.contains(UnmountFlags::EXPIRE) && flags.intersects(UnmountFlags::DETACH | UnmountFlags::FORCE) {
        return Err(Errno::EINVAL);
    }
    let name = Name::read(path)?;
    let p = c.find(at::FDCWD, name.bytes(), !flags.contains(UnmountFlags::NOFOLLOW))?;
    let disk = rootfs::settle(p.mount())?;
    vfs().umount(&p, flags.contains(UnmountFlags::DETACH))?;
    disk.inspect(|root| rootfs::unmounted(root));
    Ok(0)
}

/// mount and umount2.
pub const CALLS: &[Syscall] = &[
    call!(
        nr::MOUNT,
        mount(UserStr, UserStr, UserStr, Bits<MountFlags>, UserPtr),
        Partial,
        "tmpfs (a remount keeps its limits), proc, sysfs, devpts, EROFS and doppelfs on block devices, and bind; no propagation",
    ),
    call!(
        nr::UMOUNT2,
        umount2(UserStr, Bits<UnmountFlags>),
        Partial,
        "MNT_FORCE and MNT_EXPIRE are as no flag"
    ),
];
