//! `eventfd(2)`.

use alloc::sync::Arc;

use doppel_abi_linux::syscalls::nr;

use crate::Result;
use crate::objects::ipc::eventfd::EventFd;
use crate::objects::vfs::flags::OpenFlags;
use crate::personality::Support::Full;
use crate::personality::args::Bits;
use crate::personality::events::anon;
use crate::personality::{Args, Syscall, call};

/// System calls of this module.
pub const CALLS: &[Syscall] = &[
    call!(nr::EVENTFD, sys_eventfd(u32), Full, ""),
    call!(nr::EVENTFD2, sys_eventfd2(u32, Bits<EventFdFlags>), Full, ""),
];

bitflags::bitflags! {
    /// Flags of `eventfd2(2)`.
    #[derive(Clone, Copy, PartialEq, Eq)]
    struct EventFdFlags: u32 {
        const SEMAPHORE = 1;
        const CLOEXEC = OpenFlags::CLOEXEC.bits();
        const NONBLOCK = OpenFlags::NONBLOCK.bits();
    }
}

fn make(args: &Args, count: u32, flags: EventFdFlags) -> Result<u64> {
    let ops = Arc::new(EventFd::new(u64::from(count), flags.contains(EventFdFlags::SEMAPHORE)));
    anon::new_fd(
        args,
        ops,
        "eventfd",
        OpenFlags::RDWR | OpenFlags::from_bits_truncate(flags.bits()) & OpenFlags::DESCRIPTOR,
    )
}

fn sys_eventfd(args: &Args, count: u32) -> Result<u64> {
    make(args, count, EventFdFlags::empty())
}

fn sys_eventfd2(args: &Args, count: u32, flags: Bits<EventFdFlags>) -> Result<u64> {
    make(args, count, flags.checked()?)
}
