//! System calls that change names: mkdir, mknod, unlink, rmdir, rename, link, symlink.

use doppel_abi_linux::syscalls::nr;

use crate::objects::lookup::caller::{Caller, Name, Target, at};
use crate::objects::lookup::names;
use crate::objects::lookup::perm::cap;
use crate::objects::vfs::flags::{AtFlags, RenameFlags};
use crate::objects::vfs::inode::FileType;
use crate::personality::Support::Full;
use crate::personality::args::{Bits, DeviceNumber, FileMode, RawFd, UserStr};
use crate::personality::{Args, Syscall, call};
use crate::{Errno, Result};
use doppel_machine::user::UserPtr;

/// A last component that is no plain name: EEXIST for what would make it.
fn new_name(name: &[u8]) -> Result<()> {
    if matches!(name, b"" | b"." | b"..") { Err(Errno::EEXIST) } else { Ok(()) }
}

fn make_dir(a: &Args, dirfd: i32, path: UserPtr, mode: u32) -> Result<u64> {
    let name = Name::read(path)?;
    let c = Caller::new(&**a.thread);
    let (dir, last, _) = c.parent(dirfd, name.bytes())?;
    new_name(&last)?;
    let mode = FileType::Directory as u32 | (mode & 0o1777 & !c.fs.umask());
    names::create(&c, &dir, &last, mode, 0)?;
    Ok(0)
}

fn mkdir(a: &Args, UserStr(path): UserStr, FileMode(mode): FileMode) -> Result<u64> {
    make_dir(a, at::FDCWD, path, mode)
}

fn mkdirat(a: &Args, RawFd(dirfd): RawFd, UserStr(path): UserStr, FileMode(mode): FileMode) -> Result<u64> {
    make_dir(a, dirfd, path, mode)
}

fn make_node(a: &Args, dirfd: i32, path: UserPtr, mode: u32, dev: u32) -> Result<u64> {
    let kind = match mode & 0o170000 {
        0 => FileType::Regular,
        m => FileType::from_mode(m).ok_or(Errno::EINVAL)?,
    };
    let name = Name::read(path)?;
    let c = Caller::new(&**a.thread);
    match kind {
        FileType::Directory => return Err(Errno::EPERM),
        FileType::Symlink => return Err(Errno::EINVAL),
        FileType::CharDevice | FileType::BlockDevice if !c.cred.capable(cap::MKNOD) => {
            return Err(Errno::EPERM);
        }
        _ => {}
    }
    let (dir, last, slash) = c.parent(dirfd, name.bytes())?;
    new_name(&last)?;
    if slash {
        return Err(Errno::ENOENT);
    }
    names::create(&c, &dir, &last, kind as u32 | (mode & 0o7777 & !c.fs.umask()), u64::from(dev))?;
    Ok(0)
}

fn mknod(
    a: &Args,
    UserStr(path): UserStr,
    FileMode(mode): FileMode,
    DeviceNumber(dev): DeviceNumber,
) -> Result<u64> {
    make_node(a, at::FDCWD, path, mode, dev)
}

fn mknodat(
    a: &Args,
    RawFd(dirfd): RawFd,
    UserStr(path): UserStr,
    FileMode(mode): FileMode,
    DeviceNumber(dev): DeviceNumber,
) -> Result<u64> {
    make_node(a, dirfd, path, mode, dev)
}

fn unlink_at(a: &Args, dirfd: i32, path: UserPtr) -> Result<u64> {
    let name = Name::read(path)?;
    let c = Caller::new(&**a.thread);
    let (dir, last, slash) = c.parent(dirfd, name.bytes())?;
    if matches!(&*last, b"" | b"." | b"..") {
        return Err(Errno::EISDIR);
    }
    if slash {
        let kind = dir.dentry().child(&last)?.kind();
        return Err(if kind == FileType::Directory { Errno::EISDIR } else { Errno::ENOTDIR });
    }
    names::remove(&c, &dir, &last, false)?;
    Ok(0)
}

fn rmdir_at(a: &Args, dirfd: i32, path: UserPtr) -> Result<u64> {
    let name = Name::read(path)?;
    let c = Caller::new(&**a.thread);
    let (dir, last, _) = c.parent(dirfd, name.bytes())?;
    match &*last {
        b"" => return Err(Errno::EBUSY),
        b"." => return Err(Errno::EINVAL),
        b".." => return Err(Errno::ENOTEMPTY),
        _ => {}
    }
    names::remove(&c, &dir, &last, true)?;
    Ok(0)
}

fn unlink(a: &Args, UserStr(path): UserStr) -> Result<u64> {
    unlink_at(a, at::FDCWD, path)
}

fn rmdir(a: &Args, UserStr(path): UserStr) -> Result<u64> {
    rmdir_at(a, at::FDCWD, path)
}

fn unlinkat(a: &Args, RawFd(dirfd): RawFd, UserStr(path): UserStr, flags: Bits<AtFlags>) -> Result<u64> {
    let dir = flags.of(AtFlags::REMOVEDIR)?.contains(AtFlags::REMOVEDIR);
    if dir { rmdir_at(a, dirfd, path) } else { unlink_at(a, dirfd, path) }
}

/// A name as a program gives it: the directory it is looked up from, and its address.
type Place = (i32, UserPtr);

fn rename_at(a: &Args, from: Place, to: Place, flags: RenameFlags) -> Result<u64> {
    if flags == RenameFlags::all() {
        return Err(Errno::EINVAL);
    }
    let (old, new) = (Name::read(from.1)?, Name::read(to.1)?);
    let c = Caller::new(&**a.thread);
    let (old_dir, old_last, old_slash) = c.parent(from.0, old.bytes())?;
    let (new_dir, new_last, new_slash) = c.parent(to.0, new.bytes())?;
    let special = |n: &[u8]| matches!(n, b"" | b"." | b"..");
    if special(&old_last) || special(&new_last) {
        return Err(if flags.contains(RenameFlags::NOREPLACE) && special(&new_last) {
            Errno::EEXIST
        } else {
            Errno::EBUSY
        });
    }
    let slash = old_slash || (new_slash && !flags.contains(RenameFlags::EXCHANGE));
    names::rename(&c, (&old_dir, &old_last), (&new_dir, &new_last), flags, slash)?;
    Ok(0)
}

fn rename(a: &Args, UserStr(old): UserStr, UserStr(new): UserStr) -> Result<u64> {
    rename_at(a, (at::FDCWD, old), (at::FDCWD, new), RenameFlags::empty())
}

fn renameat(
    a: &Args,
    RawFd(olddirfd): RawFd,
    UserStr(old): UserStr,
    RawFd(newdirfd): RawFd,
    UserStr(new): UserStr,
) -> Result<u64> {
    rename_at(a, (olddirfd, old), (newdirfd, new), RenameFlags::empty())
}

fn renameat2(
    a: &Args,
    RawFd(olddirfd): RawFd,
    UserStr(old): UserStr,
    RawFd(newdirfd): RawFd,
    UserStr(new): UserStr,
    flags: Bits<RenameFlags>,
) -> Result<u64> {
    rename_at(a, (olddirfd, old), (newdirfd, new), flags.checked()?)
}

fn link_at(a: &Args, from: Place, to: Place, flags: AtFlags) -> Result<u64> {
    let (old, new) = (Name::read(from.1)?, Name::read(to.1)?);
    let c = Caller::new(&**a.thread);
    if flags.contains(AtFlags::EMPTY_PATH) && old.bytes().is_empty() && !c.cred.capable(cap::DAC_READ_SEARCH)
    {
        return Err(Errno::ENOENT);
    }
    let nofollow = AtFlags::SYMLINK_NOFOLLOW.when(!flags.contains(AtFlags::SYMLINK_FOLLOW));
    let target = c.target(from.0, old.bytes(), (flags & AtFlags::EMPTY_PATH) | nofollow)?;
    let Target::Path(source) = target else { return Err(Errno::EXDEV) };
    let (dir, last, slash) = c.parent(to.0, new.bytes())?;
    new_name(&last)?;
    if slash {
        return Err(Errno::ENOENT);
    }
    names::link(&c, &source, &dir, &last)?;
    Ok(0)
}

fn link(a: &Args, UserStr(old): UserStr, UserStr(new): UserStr) -> Result<u64> {
    link_at(a, (at::FDCWD, old), (at::FDCWD, new), AtFlags::empty())
}

fn linkat(
    a: &Args,
    RawFd(olddirfd): RawFd,
    UserStr(old): UserStr,
    RawFd(newdirfd): RawFd,
    UserStr(new): UserStr,
    flags: Bits<AtFlags>,
) -> Result<u64> {
    let flags = flags.of(AtFlags::SYMLINK_FOLLOW | AtFlags::EMPTY_PATH)?;
    link_at(a, (olddirfd, old), (newdirfd, new), flags)
}

fn symlink_at(a: &Args, target: UserPtr, dirfd: i32, path: UserPtr) -> Result<u64> {
    let (target, name) = (Name::read(target)?, Name::read(path)?);
    if target.bytes().is_empty() {
        return Err(Errno::ENOENT);
    }
    let c = Caller::new(&**a.thread);
    let (dir, last, slash) = c.parent(dirfd, name.bytes())?;
    new_name(&last)?;
    if slash {
        return Err(Errno::ENOENT);
    }
    names::symlink(&c, &dir, &last, target.bytes())?;
    Ok(0)
}

fn symlink(a: &Args, UserStr(target): UserStr, UserStr(path): UserStr) -> Result<u64> {
    symlink_at(a, target, at::FDCWD, path)
}

fn symlinkat(a: &Args, UserStr(target): UserStr, RawFd(dirfd): RawFd, UserStr(path): UserStr) -> Result<u64> {
    symlink_at(a, target, dirfd, path)
}

/// mkdir, unlink, rename and the like.
pub const CALLS: &[Syscall] = &[
    call!(nr::MKDIR, mkdir(UserStr, FileMode), Full, ""),
    call!(nr::MKDIRAT, mkdirat(RawFd, UserStr, FileMode), Full, ""),
    call!(nr::MKNOD, mknod(UserStr, FileMode, DeviceNumber), Full, ""),
    call!(nr::MKNODAT, mknodat(RawFd, UserStr, FileMode, DeviceNumber), Full, ""),
    call!(nr::UNLINK, unlink(UserStr), Full, ""),
    call!(nr::RMDIR, rmdir(UserStr), Full, ""),
    call!(nr::UNLINKAT, unlinkat(RawFd, UserStr, Bits<AtFlags>), Full, ""),
    call!(nr::RENAME, rename(UserStr, UserStr), Full, ""),
    call!(nr::RENAMEAT, renameat(RawFd, UserStr, RawFd, UserStr), Full, ""),
    call!(
        nr::RENAMEAT2,
        renameat2(RawFd, UserStr, RawFd, UserStr, Bits<RenameFlags>),
        Full,
        "RENAME_WHITEOUT gives EINVAL"
    ),
    call!(nr::LINK, link(UserStr, UserStr), Full, ""),
    call!(nr::LINKAT, linkat(RawFd, UserStr, RawFd, UserStr, Bits<AtFlags>), Full, ""),
    call!(nr::SYMLINK, symlink(UserStr, UserStr), Full, ""),
    call!(nr::SYMLINKAT, symlinkat(UserStr, RawFd, UserStr), Full, ""),
];
