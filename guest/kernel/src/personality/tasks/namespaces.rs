//! System calls that change namespaces.

use doppel_abi_linux::syscalls::nr;

use crate::Result;
use crate::personality::Support::Partial;
use crate::personality::args::{Bits, RawFd};
use crate::personality::{Args, Syscall, call};
use crate::process::life::flags::CloneFlags;
use crate::process::namespaces::enter;

/// System calls of this module.
pub const CALLS: &[Syscall] = &[
    call!(nr::UNSHARE, sys_unshare(Bits<CloneFlags>), Partial, "network namespaces are refused: EPERM"),
    call!(nr::SETNS, sys_setns(RawFd, Bits<CloneFlags>), Partial, "there is one network namespace"),
];

fn sys_unshare(a: &Args, flags: Bits<CloneFlags>) -> Result<u64> {
    enter::unshare(&a.thread, flags.any()).map(|()| 0)
}

fn sys_setns(a: &Args, RawFd(fd): RawFd, flags: Bits<CloneFlags>) -> Result<u64> {
    let file = a.thread.file(fd)?.clone();
    // The argument is an int.
    let flags = CloneFlags::from_bits_retain(flags.any().bits() & u64::from(u32::MAX));
    enter::setns(&a.thread, &file, flags).map(|()| 0)
}
