//! System calls that make process descriptors.

use crate::personality::args::{Bits, NoFlags, RawFd};
use crate::process::namespaces::numbers;
use doppel_abi_linux::syscalls::nr;

use crate::objects::vfs::flags::OpenFlags;
use crate::personality::Support::Full;
use crate::personality::{Args, Syscall, call};
use crate::process::descriptors::pidfd::{open_with, process_of};
use crate::{Errno, Result};

/// System calls of this module.
pub const CALLS: &[Syscall] = &[
    call!(nr::PIDFD_OPEN, sys_pidfd_open(i32, Bits<OpenFlags>), Full, ""),
    call!(nr::PIDFD_GETFD, sys_pidfd_getfd(RawFd, i32, Bits<NoFlags>), Full, ""),
];

fn sys_pidfd_open(_: &Args, pid: i32, flags: Bits<OpenFlags>) -> Result<u64> {
    let f = flags.of(OpenFlags::NONBLOCK)?;
    if pid <= 0 {
        return Err(Errno::EINVAL);
    }
    let target = numbers::process(pid).map_err(|e| {
        // A thread that leads no group.
        if numbers::thread(pid).is_ok() { Errno::EINVAL } else { e }
    })?;
    let fd = open_with(&target, f)?;
    Ok(u64::from(fd.unsigned_abs()))
}

fn sys_pidfd_getfd(args: &Args, RawFd(pidfd): RawFd, targetfd: i32, flags: Bits<NoFlags>) -> Result<u64> {
    flags.checked()?;
    let target = process_of(pidfd)?;
    let (mine, theirs) = (args.thread.cred(), target.cred());
    let same = [theirs.ruid, theirs.euid, theirs.suid].iter().all(|u| *u == mine.fsuid);
    if !same && !mine.capable_in(&theirs.user, CAP_SYS_PTRACE) {
        return Err(Errno::EPERM);
    }
    if target.is_zombie() {
        return Err(Errno::ESRCH);
    }
    let file = target.files().get(targetfd)?;
    let fd = args.thread.files().insert(file, true)?;
    Ok(u64::from(fd.unsigned_abs()))
}

const CAP_SYS_PTRACE: u32 = 19;
