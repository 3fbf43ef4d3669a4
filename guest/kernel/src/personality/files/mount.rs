//! `mount(2)` and `umount2(2)`.

use crate::objects::vfs::kinds::TYPES;
use alloc::vec::Vec;

use doppel_abi_linux::syscalls::nr;

use crate::objects::lookup::caller::read_string;
use crate::objects::lookup::caller::{Caller, Name, at};
use crate::objects::lookup::perm::cap;
use crate::objects::rootfs::tmpfs;
use crate::objects::vfs::dentry::Dentry;
use crate::objects::vfs::kinds::tmpfs_options;
use crate::objects::vfs::mount::{ms, vfs};
use crate::personality::Arg::{Hex, Ptr, Str};
use crate::personality::Support::Partial;
use crate::personality::{Args, Syscall, call};
use crate::{Errno, Result};

fn mount(a: &Args) -> Result<u64> {
    let flags = a.u64(3) as u32;
    let c = Caller::new(&**a.thread);
    if !c.cred.capable(cap::SYS_ADMIN) {
        return Err(Errno::EPERM);
    }
    let target = Name::read(a.ptr(1))?;
    let point = c.find(at::FDCWD, target.bytes(), true)?;
    let is_root = alloc::sync::Arc::ptr_eq(&point.mount().root, point.dentry());
    if flags & ms::REMOUNT != 0 {
        if !is_root {
            return Err(Errno::EINVAL);
        }
        point.mount().set_flags(flags);
        return Ok(0);
    }
    if flags & (ms::PRIVATE | ms::SLAVE | ms::SHARED | ms::UNBINDABLE) != 0 {
        // There is one mount namespace: nothing propagates anywhere.
        return if is_root { Ok(0) } else { Err(Errno::EINVAL) };
    }
    if flags & ms::MOVE != 0 {
        return Err(Errno::EINVAL);
    }
    let source = if a.ptr(0).is_null() { Vec::new() } else { read_string(a.ptr(0), 4096)? };
    if flags & ms::BIND != 0 {
        let from = c.find(at::FDCWD, &source, true)?;
        let m = from.mount();
        vfs().mount(&point, from.dentry().clone(), m.fstype, &m.source, m.flags())?;
        return Ok(0);
    }
    if a.ptr(2).is_null() {
        return Err(Errno::EINVAL);
    }
    let kind = read_string(a.ptr(2), 256)?;
    let kept = flags & ms::KEPT | if flags & (ms::NOATIME | ms::STRICTATIME) == 0 { ms::RELATIME } else { 0 };
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

fn umount2(a: &Args) -> Result<u64> {
    const FORCE: u32 = 1;
    const DETACH: u32 = 2;
    const EXPIRE: u32 = 4;
    const NOFOLLOW: u32 = 8;
    let flags = a.u32(1);
    let c = Caller::new(&**a.thread);
    if !c.cred.capable(cap::SYS_ADMIN) {
        return Err(Errno::EPERM);
    }
    if flags & !15 != 0 || flags & EXPIRE != 0 && flags & (DETACH | FORCE) != 0 {
        return Err(Errno::EINVAL);
    }
    let name = Name::read(a.ptr(0))?;
    let p = c.find(at::FDCWD, name.bytes(), flags & NOFOLLOW == 0)?;
    vfs().umount(&p, flags & DETACH != 0)?;
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
