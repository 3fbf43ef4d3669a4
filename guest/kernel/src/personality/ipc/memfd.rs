//! `memfd_create(2)`.

use alloc::format;
use alloc::string::String;

use doppel_abi_linux::syscalls::nr;

use crate::objects::ipc::memfd::new_file;
use crate::objects::lookup::caller::read_string;
use crate::objects::pages::Seals;
use crate::objects::rootfs::Node;
use crate::personality::Support::Partial;
use crate::personality::args::{Bits, UserStr};
use crate::personality::events::anon;
use crate::personality::{Args, Syscall, call};
use crate::{Errno, Result};

/// System calls of this module.
pub const CALLS: &[Syscall] =
    &[call!(nr::MEMFD_CREATE, sys_memfd_create(UserStr, Bits<MemFdFlags>), Partial, "no huge pages")];

bitflags::bitflags! {
    /// `MFD_` flags.
    #[derive(Clone, Copy, PartialEq, Eq)]
    struct MemFdFlags: u32 {
        const CLOEXEC = 1;
        const ALLOW_SEALING = 2;
        const NOEXEC_SEAL = 8;
        const EXEC = 16;
    }
}

/// Longest name, with its NUL: NAME_MAX less "memfd:".
const NAME_SIZE: usize = 250;

fn sys_memfd_create(args: &Args, UserStr(given_name): UserStr, flags: Bits<MemFdFlags>) -> Result<u64> {
    let flags = flags.checked()?;
    if flags.contains(MemFdFlags::NOEXEC_SEAL | MemFdFlags::EXEC) {
        return Err(Errno::EINVAL);
    }
    let name =
        read_string(given_name, NAME_SIZE).map_err(|e| if e == Errno::E2BIG { Errno::EINVAL } else { e })?;
    let name = format!("/memfd:{} (deleted)", String::from_utf8_lossy(&name));
    let cred = args.thread.cred();
    let mode = if flags.contains(MemFdFlags::NOEXEC_SEAL) { 0o666 } else { 0o777 };
    let file = new_file(name, mode, cred.fsuid, cred.fsgid)?;
    if flags.intersects(MemFdFlags::ALLOW_SEALING | MemFdFlags::NOEXEC_SEAL)
        && let Some(n) = file.downcast::<Node>()
    {
        let object = n.object()?;
        object.allow_sealing();
        if flags.contains(MemFdFlags::NOEXEC_SEAL) {
            object.add_seals(Seals::EXEC)?;
        }
    }
    anon::insert(args, file, flags.contains(MemFdFlags::CLOEXEC))
}
