//! `signalfd(2)`.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};

use doppel_abi_linux::syscalls::nr;

use crate::objects::vfs::file::poll;
use crate::objects::vfs::flags::OpenFlags;
use crate::personality::Arg::{Hex, Int, Ptr};
use crate::personality::Support::Full;
use crate::personality::events::anon;
use crate::personality::{Args, Syscall, call};
use crate::process::descriptors::signalfd::SignalFd;
use crate::process::signal::{SigSet, UNBLOCKABLE};
use crate::{Errno, Result};

/// System calls of this module.
pub const CALLS: &[Syscall] = &[
    call(nr::SIGNALFD, sys_signalfd, Full, &[Int, Ptr, Int], ""),
    call(nr::SIGNALFD4, sys_signalfd4, Full, &[Int, Ptr, Int, Hex], ""),
];

fn make(args: &Args, f: OpenFlags) -> Result<u64> {
    if args.len(2) != size_of::<SigSet>() {
        return Err(Errno::EINVAL);
    }
    let mask: SigSet = args.ptr(1).read::<SigSet>()? & !UNBLOCKABLE;
    if args.i32(0) == -1 {
        let ops = Arc::new(SignalFd { mask: AtomicU64::new(mask) });
        return anon::new_fd(args, ops, "signalfd", OpenFlags::RDWR | f);
    }
    let file = args.file(0)?;
    let fd = file.downcast::<SignalFd>().ok_or(Errno::EINVAL)?;
    fd.mask.store(mask, Ordering::SeqCst);
    // What is pending may match now.
    args.thread.process.signals.wait.wake_all(poll::POLLIN);
    Ok(args.u64(0))
}

fn sys_signalfd(args: &Args) -> Result<u64> {
    make(args, OpenFlags::empty())
}

fn sys_signalfd4(args: &Args) -> Result<u64> {
    make(args, args.flags_of(3, OpenFlags::DESCRIPTOR)?)
}
