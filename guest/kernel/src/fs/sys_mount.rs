//! mount and umount2.

use alloc::string::String;
use alloc::vec::Vec;

use doppel_abi_linux::syscalls::nr;
use doppel_machine::sync::SpinLock;

use super::caller::{Caller, Name, at};
use super::dentry::Dentry;
use super::mount::{ms, vfs};
use super::perm::cap;
use super::rootfs::{TmpfsOptions, tmpfs};
use crate::syscall::Arg::{Hex, Ptr, Str};
use crate::syscall::Support::Partial;
use crate::syscall::{Args, Syscall, call, read_string};
use crate::{Errno, Result, kernel};

/// Makes the root of a new instance of a file system.
pub type MakeFs = fn() -> Result<alloc::sync::Arc<dyn super::Inode>>;

#[derive(Default)]
struct Types {
    list: SpinLock<Vec<(&'static str, MakeFs)>>,
}

/// Registers a file system type for mount(2) (`proc`, `sysfs`, `devpts`).
pub fn register(name: &'static str, make: MakeFs) {
    kernel().service::<Types>().list.lock().push((name, make));
}

/// Limits, mode and owner from tmpfs' mount options.
fn tmpfs_options(data: &[u8]) -> Result<TmpfsOptions> {
    let mut o = TmpfsOptions::default();
    let text = core::str::from_utf8(data).map_err(|_| Errno::EINVAL)?;
    for option in text.split(',').filter(|o| !o.is_empty()) {
        let (key, value) = option.split_once('=').unwrap_or((option, ""));
        let number = |radix| u32::from_str_radix(value, radix).map_err(|_| Errno::EINVAL);
        match key {
            "mode" => o.mode = number(8)? & 0o7777,
            "uid" => o.uid = number(10)?,
            "gid" => o.gid = number(10)?,
            "size" => o.size = parse_size(value)?,
            "nr_blocks" => {
                let pages = parse_size(value)?;
                o.size = pages.checked_mul(super::pages::PAGE).ok_or(Errno::EINVAL)?;
            }
            "nr_inodes" => o.inodes = parse_size(value)?,
            "huge" | "mpol" | "inode32" | "inode64" | "noswap" | "ro" | "rw" => {}
            _ => return Err(Errno::EINVAL),
        }
    }
    Ok(o)
}

/// A size with an optional k, m, g or % behind it.
fn parse_size(s: &str) -> Result<u64> {
    let digits: String = s.chars().take_while(char::is_ascii_digit).collect();
    let n: u64 = digits.parse().map_err(|_| Errno::EINVAL)?;
    let shift = match s.get(digits.len()..).unwrap_or("") {
        "" => 0,
        "k" | "K" => 10,
        "m" | "M" => 20,
        "g" | "G" => 30,
        "%" => return Ok(super::pages::page_file().usage().1 / 100 * n.min(100) * super::pages::PAGE),
        _ => return Err(Errno::EINVAL),
    };
    n.checked_shl(shift).filter(|v| v >> shift == n).ok_or(Errno::EINVAL)
}

fn mount(a: &Args) -> Result<u64> {
    let flags = a.u64(3) as u32;
    let c = Caller::new(a);
    if !c.cred.capable(cap::SYS_ADMIN) {
        return Err(Errno::EPERM);
    }
    let target = Name::arg(a, 1)?;
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
    let types = kernel().service::<Types>();
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
    let c = Caller::new(a);
    if !c.cred.capable(cap::SYS_ADMIN) {
        return Err(Errno::EPERM);
    }
    if flags & !15 != 0 || flags & EXPIRE != 0 && flags & (DETACH | FORCE) != 0 {
        return Err(Errno::EINVAL);
    }
    let name = Name::arg(a, 0)?;
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
