//! `signalfd(2)`.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};

use doppel_abi_linux::syscalls::nr;

use crate::core::sched::PollEvents;
use crate::objects::vfs::flags::OpenFlags;
use crate::personality::Support::Full;
use crate::personality::args::{Bits, RawFd};
use crate::personality::events::anon;
use crate::personality::{Args, Syscall, call};
use crate::process::descriptors::signalfd::SignalFd;
use crate::process::signal::{SigSet, UNBLOCKABLE};
use crate::{Errno, Result};
use doppel_machine::user::UserPtr;

/// System calls of this module.
pub const CALLS: &[Syscall] = &[
    call!(nr::SIGNALFD, sys_signalfd(RawFd, UserPtr, usize), Full, ""),
    call!(nr::SIGNALFD4, sys_signalfd4(RawFd, UserPtr, usize, Bits<OpenFlags>), Full, ""),
];

fn make(args: &Args, fd: i32, user_mask: UserPtr, size: usize, f: OpenFlags) -> Result<u64> {
    if size != size_of::<SigSet>() {
        return Err(Errno::EINVAL);
    }
    let mask: SigSet = user_mask.read::<SigSet>()? & !UNBLOCKABLE;
    if fd == -1 {
        let ops = Arc::new(SignalFd { mask: AtomicU64::new(mask) });
        return anon::new_fd(args, ops, "signalfd", OpenFlags::RDWR | f);
    }
    let file = args.thread.file(fd)?;
    let signals = file.downcast::<SignalFd>().ok_or(Errno::EINVAL)?;
    signals.mask.store(mask, Ordering::SeqCst);
    // What is pending may match now.
    args.thread.process.signals.wait.wake_all(PollEvents::IN);
    Ok(fd as u64)
}

fn sys_signalfd(args: &Args, RawFd(fd): RawFd, mask: UserPtr, size: usize) -> Result<u64> {
    make(args, fd, mask, size, OpenFlags::empty())
}

fn sys_signalfd4(
    args: &Args,
    RawFd(fd): RawFd,
    mask: UserPtr,
    size: usize,
    flags: Bits<OpenFlags>,
) -> Result<u64> {
    make(args, fd, mask, size, flags.of(OpenFlags::DESCRIPTOR)?)
}
