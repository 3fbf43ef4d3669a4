//! `memfd_create(2)`.

use alloc::format;
use alloc::string::String;

use doppel_abi_linux::syscalls::nr;

use crate::objects::ipc::memfd::new_file;
use crate::objects::lookup::caller::read_string;
use crate::objects::pages::seal;
use crate::objects::rootfs::Node;
use crate::personality::Support::Partial;
use crate::personality::args::{RawFlags, UserStr};
use crate::personality::events::anon;
use crate::personality::{Args, Syscall, call};
use crate::{Errno, Result};

/// System calls of this module.
pub const CALLS: &[Syscall] =
    &[call!(nr::MEMFD_CREATE, sys_memfd_create(UserStr, RawFlags), Partial, "no huge pages")];

const MFD_CLOEXEC: u32 = 1;
const MFD_ALLOW_SEALING: u32 = 2;
const MFD_HUGETLB: u32 = 4;
const MFD_NOEXEC_SEAL: u32 = 8;
const MFD_EXEC: u32 = 16;
/// Longest name, with its NUL: NAME_MAX less "memfd:".
const NAME_SIZE: usize = 250;

fn sys_memfd_create(args: &Args, UserStr(given_name): UserStr, RawFlags(f): RawFlags) -> Result<u64> {
    let exec = f & (MFD_NOEXEC_SEAL | MFD_EXEC);
    if f & !(MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL | MFD_EXEC) != 0
        || f & MFD_HUGETLB != 0
        || exec == MFD_NOEXEC_SEAL | MFD_EXEC
    {
        return Err(Errno::EINVAL);
    }
    let name =
        read_string(given_name, NAME_SIZE).map_err(|e| if e == Errno::E2BIG { Errno::EINVAL } else { e })?;
    let name = format!("/memfd:{} (deleted)", String::from_utf8_lossy(&name));
    let cred = args.thread.cred();
    let mode = if f & MFD_NOEXEC_SEAL != 0 { 0o666 } else { 0o777 };
    let file = new_file(name, mode, cred.fsuid, cred.fsgid)?;
    if f & (MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL) != 0
        && let Some(n) = file.downcast::<Node>()
    {
        let object = n.object()?;
        object.allow_sealing();
        if f & MFD_NOEXEC_SEAL != 0 {
            object.add_seals(seal::EXEC)?;
        }
    }
    anon::insert(args, file, f & MFD_CLOEXEC != 0)
}
