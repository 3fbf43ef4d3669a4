//! `mount(2)` and `umount2(2)`.

use crate::objects::vfs::flags::MountFlags;
use crate::objects::vfs::kinds::TYPES;
use alloc::vec::Vec;

use doppel_abi_linux::syscalls::nr;

use crate::objects::lookup::caller::read_string;
use crate::objects::lookup::caller::{Caller, Name, at};
use crate::objects::lookup::perm::cap;
use crate::objects::rootfs::tmpfs;
use crate::objects::vfs::dentry::Dentry;
use crate::objects::vfs::kinds::tmpfs_options;
use crate::objects::vfs::mount::vfs;
use crate::personality::Arg::{Hex, Ptr, Str};
use crate::personality::Support::Partial;
use crate::personality::{Args, Syscall, call};
use crate::{Errno, Result};

fn mount(a: &Args) -> Result<u64> {
    let flags: MountFlags = a.known_flags(3);
    let c = Caller::new(&**a.thread);
    if !c.cred.capable(cap::SYS_ADMIN) {
        return Err(Errno::EPERM);
    }
    let target = Name::read(a.ptr(1))?;
    let point = c.find(at::FDCWD, target.bytes(), true)?;
    let is_root = alloc::sync::Arc::ptr_eq(&point.mount().root, point.dentry());
    if flags.contains(MountFlags::REMOUNT) {
        if !is_root {
            return Err(Errno::EINVAL);
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
    let source = if a.ptr(0).is_null() { Vec::new() } else { read_string(a.ptr(0), 4096)? };
    if flags.contains(MountFlags::BIND) {
        let from = c.find(at::FDCWD, &source, true)?;
        let m = from.mount();
        vfs().mount(&point, from.dentry().clone(), m.fstype, &m.source, m.flags())?;
        return Ok(0);
    }
    if a.ptr(2).is_null() {
        return Err(Errno::EINVAL);
    }
    let kind = read_string(a.ptr(2), 256)?;
    let mut kept = flags & MountFlags::KEPT;
    kept.set(
        MountFlags::RELATIME,
        kept.contains(MountFlags::RELATIME)
            || !flags.intersects(MountFlags::NOATIME | MountFlags::STRICTATIME),
    );
    if kind == b"tmpfs" || kind == b"ramfs" {
        let data = if a.ptr(4).is_null() { Vec::new() } else { read_string(a.ptr(4), 4096)? };
        vfs().mount(&point, Dentry::root(tmpfs(tmpfs_options(&data)?)), "tmpfs", &source, kept)?;
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

fn umount2(a: &Args) -> Result<u64> {
    let flags = UnmountFlags::from_bits(a.u32(1));
    let c = Caller::new(&**a.thread);
    if !c.cred.capable(cap::SYS_ADMIN) {
        return Err(Errno::EPERM);
    }
    let flags = flags.ok_or(Errno::EINVAL)?;
    if flags.contains(UnmountFlags::EXPIRE) && flags.intersects(UnmountFlags::DETACH | UnmountFlags::FORCE) {
        return Err(Errno::EINVAL);
    }
    let name = Name::read(a.ptr(0))?;
    let p = c.find(at::FDCWD, name.bytes(), !flags.contains(UnmountFlags::NOFOLLOW))?;
    vfs().umount(&p, flags.contains(UnmountFlags::DETACH))?;
    Ok(0)
}

/// mount and umount2.
pub const CALLS: &[Syscall] = &[
    call(
        nr::MOUNT,
        mount,
        Partial,
        &[Str, Str, Str, Hex, Ptr],
        "tmpfs (a remount keeps its limits), proc, sysfs, devpts and bind; no propagation",
    ),
    call(nr::UMOUNT2, umount2, Partial, &[Str, Hex], "MNT_FORCE and MNT_EXPIRE are as no flag"),
];
