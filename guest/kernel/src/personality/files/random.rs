//! `getrandom(2)`.

use crate::objects::vfs::devices::fill_output;
use crate::objects::vfs::io::Output;
use crate::personality::args::Bits;
use crate::personality::{Args, Support, Syscall, call};
use crate::{Errno, Result};
use doppel_abi_linux::syscalls::nr;
use doppel_machine::user::UserPtr;

bitflags::bitflags! {
    /// `GRND_` flags.
    #[derive(Clone, Copy, PartialEq, Eq)]
    struct RandomFlags: u32 {
        const NONBLOCK = 1;
        const RANDOM = 2;
        const INSECURE = 4;
    }
}

fn getrandom(_: &Args, out: UserPtr, len: usize, flags: Bits<RandomFlags>) -> Result<u64> {
    if flags.checked()?.contains(RandomFlags::RANDOM | RandomFlags::INSECURE) {
        return Err(Errno::EINVAL);
    }
    let len = len.min(i32::MAX as usize & !4095);
    fill_output(&mut Output::user(out, len)).map(|n| n as u64)
}

/// getrandom.
pub const CALLS: &[Syscall] =
    &[call!(nr::GETRANDOM, getrandom(UserPtr, usize, Bits<RandomFlags>), Support::Full, "")];
