//! System calls on directories: listing them, the working and the root directory.

use alloc::vec::Vec;

use doppel_abi_linux::syscalls::nr;

use crate::objects::lookup::caller::{Caller, Name, at};
use crate::objects::lookup::perm::cap;
use crate::objects::vfs::fdtable::Alone;
use crate::personality::Support::Full;
use crate::personality::args::{RawFd, UserStr};
use crate::personality::{Args, Syscall, call};
use crate::process::task::directory::{change_dir, enterable};
use crate::{Errno, Result};
use doppel_machine::user::UserPtr;

/// Most bytes of entries one call returns.
const LIST_MAX: usize = 64 << 10;

fn list(a: &Args, fd: i32, buffer: UserPtr, size: u32, layout: Layout) -> Result<u64> {
    let f = a.thread.file(fd)?;
    let room = (size as usize).min(LIST_MAX);
    let mut out: Vec<u8> = Vec::with_capacity(room);
    let mut full = false;
    let mut pos = f.pos.lock(f.alone());
    let mut reached = pos.at;
    f.ops().readdir(&f, pos.at, &mut |ino, next, kind, name| {
        let (head, tail) = if layout == Layout::New { (19, 1) } else { (18, 2) };
        let len = (head + name.len() + tail).next_multiple_of(8);
        if out.len() + len > room {
            full = true;
            return false;
        }
        let end = out.len() + len;
        out.extend_from_slice(&ino.to_le_bytes());
        out.extend_from_slice(&next.to_le_bytes());
        out.extend_from_slice(&(len as u16).to_le_bytes());
        if layout == Layout::New {
            out.push(kind.dirent_type());
        }
        out.extend_from_slice(name);
        out.resize(end, 0);
        if layout == Layout::Old {
            out[end - 1] = kind.dirent_type();
        }
        reached = next;
        true
    })?;
    if out.is_empty() && full {
        return Err(Errno::EINVAL);
    }
    buffer.write_bytes(&out)?;
    pos.at = reached;
    Ok(out.len() as u64)
}

fn getdents(a: &Args, RawFd(fd): RawFd, buffer: UserPtr, size: u32) -> Result<u64> {
    list(a, fd, buffer, size, Layout::Old)
}

fn getdents64(a: &Args, RawFd(fd): RawFd, buffer: UserPtr, size: u32) -> Result<u64> {
    list(a, fd, buffer, size, Layout::New)
}

fn getcwd(a: &Args, buffer: UserPtr, size: usize) -> Result<u64> {
    let fs = a.thread.fs();
    let cwd = fs.cwd();
    if cwd.deleted() {
        return Err(Errno::ENOENT);
    }
    let mut name = match cwd.name_from(&fs.root()) {
        Some(n) => n,
        None => {
            let mut n = b"(unreachable)".to_vec();
            n.extend_from_slice(&cwd.name_from_top());
            n
        }
    };
    name.push(0);
    if name.len() > size {
        return Err(Errno::ERANGE);
    }
    buffer.write_bytes(&name)?;
    Ok(name.len() as u64)
}

fn chdir(a: &Args, UserStr(path): UserStr) -> Result<u64> {
    let name = Name::read(path)?;
    change_dir(&Caller::new(&**a.thread), name.bytes())?;
    Ok(0)
}

fn fchdir(a: &Args, RawFd(fd): RawFd) -> Result<u64> {
    let f = a.thread.any_file(fd)?;
    let c = Caller::new(&**a.thread);
    let p = enterable(&c, f.path.clone().ok_or(Errno::ENOTDIR)?)?;
    c.fs.set_cwd(p);
    Ok(0)
}

fn chroot(a: &Args, UserStr(path): UserStr) -> Result<u64> {
    let name = Name::read(path)?;
    let c = Caller::new(&**a.thread);
    let p = enterable(&c, c.find(at::FDCWD, name.bytes(), true)?)?;
    if !c.cred.has(cap::SYS_CHROOT) {
        return Err(Errno::EPERM);
    }
    c.fs.set_root(p);
    Ok(0)
}

/// getdents, chdir and the like.
pub const CALLS: &[Syscall] = &[
    call!(nr::GETDENTS, getdents(RawFd, UserPtr, u32), Full, ""),
    call!(nr::GETDENTS64, getdents64(RawFd, UserPtr, u32), Full, ""),
    call!(nr::GETCWD, getcwd(UserPtr, usize), Full, ""),
    call!(nr::CHDIR, chdir(UserStr), Full, ""),
    call!(nr::FCHDIR, fchdir(RawFd), Full, ""),
    call!(nr::CHROOT, chroot(UserStr), Full, ""),
];

/// How one entry is laid out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// `linux_dirent`: the type is the record's last byte.
    Old,
    /// `linux_dirent64`.
    New,
}
