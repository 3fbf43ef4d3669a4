//! `eventfd(2)`.

use alloc::sync::Arc;

use doppel_abi_linux::syscalls::nr;

use crate::objects::ipc::eventfd::EventFd;
use crate::objects::vfs::file::flags;
use crate::personality::Arg::{Hex, Int};
use crate::personality::Support::Full;
use crate::personality::events::anon;
use crate::personality::{Args, Syscall, call};
use crate::{Errno, Result};

/// System calls of this module.
pub const CALLS: &[Syscall] = &[
    call(nr::EVENTFD, sys_eventfd, Full, &[Int], ""),
    call(nr::EVENTFD2, sys_eventfd2, Full, &[Int, Hex], ""),
];

const EFD_SEMAPHORE: u32 = 1;

fn make(args: &Args, efd_flags: u32) -> Result<u64> {
    if efd_flags & !(EFD_SEMAPHORE | flags::O_CLOEXEC | flags::O_NONBLOCK) != 0 {
        return Err(Errno::EINVAL);
    }
    let ops = Arc::new(EventFd::new(u64::from(args.u32(0)), efd_flags & EFD_SEMAPHORE != 0));
    anon::new_fd(args, ops, "eventfd", flags::O_RDWR | (efd_flags & !EFD_SEMAPHORE))
}

fn sys_eventfd(args: &Args) -> Result<u64> {
    make(args, 0)
}

fn sys_eventfd2(args: &Args) -> Result<u64> {
    make(args, args.u32(1))
}
