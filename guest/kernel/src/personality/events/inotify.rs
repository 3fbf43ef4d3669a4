//! System calls of `inotify(7)`.

use doppel_abi_linux::syscalls::nr;

use crate::objects::ipc::inotify::{Inotify, InotifyMask};
use crate::objects::lookup::perm;
use crate::objects::vfs::flags::OpenFlags;
use crate::objects::vfs::{Caller, File, FileType, Name};
use crate::personality::Support::{Full, Partial};
use crate::personality::args::{Bits, RawFd, UserStr};
use crate::personality::events::anon;
use crate::personality::{Args, Syscall, call};
use crate::{Errno, Result};

/// System calls of this module.
pub const CALLS: &[Syscall] = &[
    call!(nr::INOTIFY_INIT, sys_init(), Full, ""),
    call!(nr::INOTIFY_INIT1, sys_init1(Bits<OpenFlags>), Full, ""),
    call!(
        nr::INOTIFY_ADD_WATCH,
        sys_add_watch(RawFd, UserStr, Bits<InotifyMask>),
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

fn sys_init(args: &Args) -> Result<u64> {
    init(args, OpenFlags::empty())
}

fn sys_init1(args: &Args, flags: Bits<OpenFlags>) -> Result<u64> {
    init(args, flags.of(OpenFlags::DESCRIPTOR)?)
}

fn sys_add_watch(
    args: &Args,
    RawFd(fd): RawFd,
    UserStr(given_path): UserStr,
    mask: Bits<InotifyMask>,
) -> Result<u64> {
    let mask = mask.checked()?;
    if !mask.intersects(InotifyMask::ALL_EVENTS)
        || mask.contains(InotifyMask::MASK_ADD | InotifyMask::MASK_CREATE)
    {
        return Err(Errno::EINVAL);
    }
    let file = args.thread.file(fd)?;
    let instance = file.downcast::<Inotify>().ok_or(Errno::EINVAL)?;
    let name = Name::read(given_path)?;
    let caller = Caller::new(&**args.thread);
    let path = caller.find(
        crate::objects::vfs::at::FDCWD,
        name.bytes(),
        !mask.contains(InotifyMask::DONT_FOLLOW),
    )?;
    if mask.contains(InotifyMask::ONLYDIR) && path.dentry().kind() != FileType::Directory {
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
