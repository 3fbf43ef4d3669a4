//! System calls that make process descriptors.

use crate::process::task::TASKS;
use doppel_abi_linux::syscalls::nr;

use crate::objects::vfs::flags::OpenFlags;
use crate::personality::Arg::{Fd, Hex, Int};
use crate::personality::Support::Full;
use crate::personality::{Args, Syscall, call};
use crate::process::descriptors::pidfd::{open_with, process_of};
use crate::{Errno, Result};

/// System calls of this module.
pub const CALLS: &[Syscall] = &[
    call(nr::PIDFD_OPEN, sys_pidfd_open, Full, &[Int, Hex], ""),
    call(nr::PIDFD_GETFD, sys_pidfd_getfd, Full, &[Fd, Int, Hex], ""),
];

fn sys_pidfd_open(args: &Args) -> Result<u64> {
    let (pid, f) = (args.i32(0), args.flags_of(1, OpenFlags::NONBLOCK)?);
    if pid <= 0 {
        return Err(Errno::EINVAL);
    }
    let target = TASKS.process(pid).map_err(|e| {
        // A thread that leads no group.
        if TASKS.thread(pid).is_ok() { Errno::EINVAL } else { e }
    })?;
    let fd = open_with(&target, f)?;
    Ok(u64::from(fd.unsigned_abs()))
}

fn sys_pidfd_getfd(args: &Args) -> Result<u64> {
    if args.u32(2) != 0 {
        return Err(Errno::EINVAL);
    }
    let target = process_of(args.i32(0))?;
    let (mine, theirs) = (args.thread.cred(), target.cred());
    let same = [theirs.ruid, theirs.euid, theirs.suid].iter().all(|u| *u == mine.fsuid);
    if !same && !mine.capable(CAP_SYS_PTRACE) {
        return Err(Errno::EPERM);
    }
    if target.is_zombie() {
        return Err(Errno::ESRCH);
    }
    let file = target.files().get(args.i32(1))?;
    let fd = args.thread.files().insert(file, true)?;
    Ok(u64::from(fd.unsigned_abs()))
}

const CAP_SYS_PTRACE: u32 = 19;
