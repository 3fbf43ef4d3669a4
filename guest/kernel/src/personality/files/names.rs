//! System calls that change names: mkdir, mknod, unlink, rmdir, rename, link, symlink.

use doppel_abi_linux::syscalls::nr;

use crate::objects::lookup::caller::{Caller, Name, Target, at};
use crate::objects::lookup::names;
use crate::objects::lookup::perm::cap;
use crate::objects::vfs::flags::{AtFlags, RenameFlags};
use crate::objects::vfs::inode::FileType;
use crate::personality::Arg::{Fd, Hex, Int, Octal, Str};
use crate::personality::Support::Full;
use crate::personality::{Args, Syscall, call};
use crate::{Errno, Result};

/// A last component that is no plain name: EEXIST for what would make it.
fn new_name(name: &[u8]) -> Result<()> {
    if matches!(name, b"" | b"." | b"..") { Err(Errno::EEXIST) } else { Ok(()) }
}

fn make_dir(a: &Args, dirfd: i32, path: usize) -> Result<u64> {
    let name = Name::read(a.ptr(path))?;
    let c = Caller::new(&**a.thread);
    let (dir, last, _) = c.parent(dirfd, name.bytes())?;
    new_name(&last)?;
    let mode = FileType::Directory as u32 | (a.u32(path + 1) & 0o1777 & !c.fs.umask());
    names::create(&c, &dir, &last, mode, 0)?;
    Ok(0)
}

fn mkdir(a: &Args) -> Result<u64> {
    make_dir(a, at::FDCWD, 0)
}

fn mkdirat(a: &Args) -> Result<u64> {
    make_dir(a, a.i32(0), 1)
}

fn make_node(a: &Args, dirfd: i32, path: usize) -> Result<u64> {
    let (mode, dev) = (a.u32(path + 1), a.u32(path + 2));
    let kind = match mode & 0o170000 {
        0 => FileType::Regular,
        m => FileType::from_mode(m).ok_or(Errno::EINVAL)?,
    };
    let name = Name::read(a.ptr(path))?;
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

fn mknod(a: &Args) -> Result<u64> {
    make_node(a, at::FDCWD, 0)
}

fn mknodat(a: &Args) -> Result<u64> {
    make_node(a, a.i32(0), 1)
}

fn unlink_at(a: &Args, dirfd: i32, path: usize) -> Result<u64> {
    let name = Name::read(a.ptr(path))?;
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

fn rmdir_at(a: &Args, dirfd: i32, path: usize) -> Result<u64> {
    let name = Name::read(a.ptr(path))?;
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

fn unlink(a: &Args) -> Result<u64> {
    unlink_at(a, at::FDCWD, 0)
}

fn rmdir(a: &Args) -> Result<u64> {
    rmdir_at(a, at::FDCWD, 0)
}

fn unlinkat(a: &Args) -> Result<u64> {
    let dir = a.flags_of(2, AtFlags::REMOVEDIR)?.contains(AtFlags::REMOVEDIR);
    if dir { rmdir_at(a, a.i32(0), 1) } else { unlink_at(a, a.i32(0), 1) }
}

fn rename_at(a: &Args, from: (i32, usize), to: (i32, usize), flags: RenameFlags) -> Result<u64> {
    if flags == RenameFlags::all() {
        return Err(Errno::EINVAL);
    }
    let (old, new) = (Name::read(a.ptr(from.1))?, Name::read(a.ptr(to.1))?);
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

fn rename(a: &Args) -> Result<u64> {
    rename_at(a, (at::FDCWD, 0), (at::FDCWD, 1), RenameFlags::empty())
}

fn renameat(a: &Args) -> Result<u64> {
    rename_at(a, (a.i32(0), 1), (a.i32(2), 3), RenameFlags::empty())
}

fn renameat2(a: &Args) -> Result<u64> {
    rename_at(a, (a.i32(0), 1), (a.i32(2), 3), a.flags(4)?)
}

fn link_at(a: &Args, from: (i32, usize), to: (i32, usize), flags: AtFlags) -> Result<u64> {
    let (old, new) = (Name::read(a.ptr(from.1))?, Name::read(a.ptr(to.1))?);
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

fn link(a: &Args) -> Result<u64> {
    link_at(a, (at::FDCWD, 0), (at::FDCWD, 1), AtFlags::empty())
}

fn linkat(a: &Args) -> Result<u64> {
    link_at(a, (a.i32(0), 1), (a.i32(2), 3), a.flags_of(4, AtFlags::SYMLINK_FOLLOW | AtFlags::EMPTY_PATH)?)
}

fn symlink_at(a: &Args, target: usize, dirfd: i32, path: usize) -> Result<u64> {
    let (target, name) = (Name::read(a.ptr(target))?, Name::read(a.ptr(path))?);
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

fn symlink(a: &Args) -> Result<u64> {
    symlink_at(a, 0, at::FDCWD, 1)
}

fn symlinkat(a: &Args) -> Result<u64> {
    symlink_at(a, 0, a.i32(1), 2)
}

/// mkdir, unlink, rename and the like.
pub const CALLS: &[Syscall] = &[
    call(nr::MKDIR, mkdir, Full, &[Str, Octal], ""),
    call(nr::MKDIRAT, mkdirat, Full, &[Fd, Str, Octal], ""),
    call(nr::MKNOD, mknod, Full, &[Str, Octal, Hex], ""),
    call(nr::MKNODAT, mknodat, Full, &[Fd, Str, Octal, Hex], ""),
    call(nr::UNLINK, unlink, Full, &[Str], ""),
    call(nr::RMDIR, rmdir, Full, &[Str], ""),
    call(nr::UNLINKAT, unlinkat, Full, &[Fd, Str, Hex], ""),
    call(nr::RENAME, rename, Full, &[Str, Str], ""),
    call(nr::RENAMEAT, renameat, Full, &[Fd, Str, Fd, Str], ""),
    call(nr::RENAMEAT2, renameat2, Full, &[Fd, Str, Fd, Str, Int], "RENAME_WHITEOUT gives EINVAL"),
    call(nr::LINK, link, Full, &[Str, Str], ""),
    call(nr::LINKAT, linkat, Full, &[Fd, Str, Fd, Str, Hex], ""),
    call(nr::SYMLINK, symlink, Full, &[Str, Str], ""),
    call(nr::SYMLINKAT, symlinkat, Full, &[Str, Fd, Str], ""),
];
