//! System calls that change namespaces.

use doppel_abi_linux::syscalls::nr;

use crate::personality::Support::Partial;
use crate::personality::args::{Bits, RawFd};
use crate::personality::{Args, Syscall, call};
use crate::process::life::flags::CloneFlags;
use crate::process::namespaces::{enter, init};
use crate::process::signal::sig;
use crate::{Errno, Result};

/// System calls of this module.
pub const CALLS: &[Syscall] = &[
    call!(nr::UNSHARE, sys_unshare(Bits<CloneFlags>), Partial, "network namespaces are refused: EPERM"),
    call!(
        nr::REBOOT,
        sys_reboot(u32, u32, u32),
        Partial,
        "ends a PID namespace below the first; in the first it is refused: EPERM"
    ),
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

/// `reboot(2)`: the first process of the PID namespace ends as if by SIGHUP (restart) or SIGINT (halt, power off).
fn sys_reboot(a: &Args, magic: u32, magic2: u32, command: u32) -> Result<u64> {
    const MAGIC: u32 = 0xfee1_dead;
    const MAGICS: [u32; 4] = [672_274_793, 85_072_278, 369_367_448, 537_993_216];
    const RESTART: [u32; 2] = [0x0123_4567, 0xa1b2_c3d4];
    const HALT: [u32; 2] = [0xcdef_0123, 0x4321_fedc];
    init::may_reboot(&a.thread)?;
    if magic != MAGIC || !MAGICS.contains(&magic2) {
        return Err(Errno::EINVAL);
    }
    let signal = match command {
        c if RESTART.contains(&c) => sig::SIGHUP,
        c if HALT.contains(&c) => sig::SIGINT,
        _ => return Err(Errno::EINVAL),
    };
    init::reboot(&a.thread, signal)
}
