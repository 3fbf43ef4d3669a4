//! `getrandom(2)`.

use crate::objects::vfs::devices::fill_output;
use crate::objects::vfs::io::Output;
use crate::personality::Arg::{Hex, Int, Ptr};
use crate::personality::{Args, Support, Syscall, call};
use crate::{Errno, Result};
use doppel_abi_linux::syscalls::nr;

fn getrandom(a: &Args) -> Result<u64> {
    const NONBLOCK: u32 = 1;
    const RANDOM: u32 = 2;
    const INSECURE: u32 = 4;
    let flags = a.u32(2);
    if flags & !(NONBLOCK | RANDOM | INSECURE) != 0 || flags & (RANDOM | INSECURE) == RANDOM | INSECURE {
        return Err(Errno::EINVAL);
    }
    let len = a.len(1).min(i32::MAX as usize & !4095);
    fill_output(&mut Output::user(a.ptr(0), len)).map(|n| n as u64)
}

/// getrandom.
pub const CALLS: &[Syscall] = &[call(nr::GETRANDOM, getrandom, Support::Full, &[Ptr, Int, Hex], "")];
