//! System calls of `inotify(7)`.

use doppel_abi_linux::syscalls::nr;

use crate::objects::ipc::inotify::Inotify;
use crate::objects::ipc::inotify::event::*;
use crate::objects::lookup::perm;
use crate::objects::vfs::flags::OpenFlags;
use crate::objects::vfs::{Caller, File, FileType, Name};
use crate::personality::Arg::Hex;
use crate::personality::Support::{Full, Partial};
use crate::personality::args::{RawFd, RawFlags, UserStr};
use crate::personality::events::anon;
use crate::personality::{Args, Syscall, call};
use crate::{Errno, Result};

/// System calls of this module.
pub const CALLS: &[Syscall] = &[
    call(nr::INOTIFY_INIT, |a| init(a, OpenFlags::empty()), Full, &[], ""),
    call(nr::INOTIFY_INIT1, |a| init(a, a.flags_of(0, OpenFlags::DESCRIPTOR)?), Full, &[Hex], ""),
    call!(
        nr::INOTIFY_ADD_WATCH,
        sys_add_watch(RawFd, UserStr, RawFlags),
        Partial,
        "files of /proc and /sys never change; IN_DELETE_SELF comes at the last unlink",
    ),
    call!(nr::INOTIFY_RM_WATCH, sys_rm_watch(RawFd, i32), Full, ""),
];

fn init(args: &Args, f: OpenFlags) -> Result<u64> {
    let ops = Inotify::new();
    let file = File::anon(ops, "anon_inode:inotify".into(), OpenFlags::RDONLY | f);
    anon::insert(args, file, f.contains(OpenFlags::CLOEXEC))
}

fn sys_add_watch(
    args: &Args,
    RawFd(fd): RawFd,
    UserStr(given_path): UserStr,
    RawFlags(mask): RawFlags,
) -> Result<u64> {
    let valid = IN_ALL_EVENTS
        | IN_ONLYDIR
        | IN_DONT_FOLLOW
        | IN_EXCL_UNLINK
        | IN_MASK_CREATE
        | IN_MASK_ADD
        | IN_ONESHOT
        | IN_UNMOUNT
        | IN_Q_OVERFLOW
        | IN_IGNORED
        | IN_ISDIR;
    if mask & IN_ALL_EVENTS == 0
        || mask & !valid != 0
        || mask & IN_MASK_ADD != 0 && mask & IN_MASK_CREATE != 0
    {
        return Err(Errno::EINVAL);
    }
    let file = args.thread.file(fd)?;
    let instance = file.downcast::<Inotify>().ok_or(Errno::EINVAL)?;
    let name = Name::read(given_path)?;
    let caller = Caller::new(&**args.thread);
    let path = caller.find(crate::objects::vfs::at::FDCWD, name.bytes(), mask & IN_DONT_FOLLOW == 0)?;
    if mask & IN_ONLYDIR != 0 && path.dentry().kind() != FileType::Directory {
        return Err(Errno::ENOTDIR);
    }
    perm::check(&caller.cred, &**path.inode(), perm::MAY_READ)?;
    let wd = instance.add(&path, mask)?;
    Ok(u64::from(wd.unsigned_abs()))
}

fn sys_rm_watch(args: &Args, RawFd(fd): RawFd, wd: i32) -> Result<u64> {
    let file = args.thread.file(fd)?;
    let instance = file.downcast::<Inotify>().ok_or(Errno::EINVAL)?;
    instance.drop_watch(wd).map(|()| 0).ok_or(Errno::EINVAL)
}
