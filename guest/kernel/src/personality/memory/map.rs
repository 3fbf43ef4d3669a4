//! System calls on memory maps: mmap, munmap, mprotect, brk.

use doppel_abi_linux::syscalls::nr;

use crate::memory::vma::{Vma, vm};
use crate::memory::{PAGE, Place, page_up};
use crate::objects::vfs::file_map::map_flags as mf;
use crate::objects::vfs::file_map::{PROT_RWX, file_vma, range, shared_anonymous};
use crate::personality::Support::{Full, Stub};
use crate::personality::args::{RawFd, RawFlags};
use crate::personality::{Arg, Args, Syscall, call};
use crate::{Errno, Result};
use Arg::{Hex, Int, Ptr};
use doppel_machine::user::UserPtr;

/// The family.
pub const CALLS: &[Syscall] = &[
    call!(
        nr::MMAP,
        mmap(UserPtr, u64, RawFlags, RawFlags, RawFd, u64),
        Full,
        "no huge pages; a map of an image file does not follow the first change of the file",
    ),
    call!(nr::MUNMAP, munmap(UserPtr, u64), Full, ""),
    call(nr::MPROTECT, mprotect, Full, &[Ptr, Hex, Hex], ""),
    call(nr::PKEY_MPROTECT, pkey_mprotect, Stub, &[Ptr, Hex, Hex, Int], "only with key -1"),
    call(nr::PKEY_ALLOC, |_| Err(Errno::EINVAL), Stub, &[Hex, Hex], "EINVAL: no protection keys"),
    call(nr::PKEY_FREE, |_| Err(Errno::EINVAL), Stub, &[Int], "EINVAL: no protection keys"),
    call!(nr::BRK, brk(UserPtr), Full, ""),
];
const PROT_SEM: u32 = 8;
const PROT_GROWSDOWN: u32 = 0x0100_0000;
const PROT_GROWSUP: u32 = 0x0200_0000;

fn mmap(
    a: &Args,
    UserPtr(addr): UserPtr,
    len: u64,
    RawFlags(prot): RawFlags,
    RawFlags(fl): RawFlags,
    RawFd(fd): RawFd,
    offset: u64,
) -> Result<u64> {
    if !offset.is_multiple_of(PAGE) || len == 0 {
        return Err(Errno::EINVAL);
    }
    if len > 1 << 47 {
        return Err(Errno::ENOMEM);
    }
    let len = page_up(len);
    offset.checked_add(len).filter(|e| *e < i64::MAX as u64).ok_or(Errno::EOVERFLOW)?;
    let shared = match fl & mf::TYPE {
        mf::SHARED => true,
        mf::PRIVATE => false,
        mf::SHARED_VALIDATE if fl & mf::ANONYMOUS != 0 => return Err(Errno::EINVAL),
        mf::SHARED_VALIDATE if fl & !mf::KNOWN != 0 => return Err(Errno::EOPNOTSUPP),
        mf::SHARED_VALIDATE => true,
        _ => return Err(Errno::EINVAL),
    };
    let anonymous = fl & mf::ANONYMOUS != 0;
    // Only private memory without a file grows.
    if fl & mf::GROWSDOWN != 0 && (shared || !anonymous) || fl & mf::HUGETLB != 0 && !anonymous {
        return Err(Errno::EINVAL);
    }
    if fl & mf::HUGETLB != 0 {
        // No huge pages are reserved in a domain.
        return Err(Errno::ENOMEM);
    }
    let prot = prot & PROT_RWX;
    let mut vflags = if shared { vm::SHARED } else { 0 };
    if fl & (mf::NORESERVE | mf::STACK) != 0 {
        vflags |= vm::NO_CHARGE;
    }
    if fl & mf::GROWSDOWN != 0 {
        vflags |= vm::GROWSDOWN;
    }
    let v = if anonymous {
        if shared { shared_anonymous(prot, vflags, len)? } else { Vma::anonymous(prot, vflags) }
    } else {
        file_vma(&*a.thread.file(fd)?, prot, vflags, offset, len)?
    };
    let mut v = v;
    if fl & mf::LOCKED != 0 {
        crate::memory::advise::check_may_lock()?;
        v.flags |= vm::LOCKED;
    }
    let place = if fl & mf::FIXED_NOREPLACE != 0 {
        Place::NoReplace(addr)
    } else if fl & mf::FIXED != 0 {
        Place::Fixed(addr)
    } else if fl & mf::BIT32 != 0 {
        Place::Low(addr)
    } else {
        Place::Hint(addr)
    };
    let populate = fl & (mf::POPULATE | mf::LOCKED) != 0 && fl & mf::NONBLOCK == 0;
    a.thread.space().mm.map_file(place, len, v, populate)
}

fn munmap(a: &Args, UserPtr(addr): UserPtr, len: u64) -> Result<u64> {
    let (start, end) = range(addr, len)?;
    if start == end {
        return Err(Errno::EINVAL);
    }
    a.thread.space().mm.unmap(start, end)?;
    Ok(0)
}

fn mprotect(a: &Args) -> Result<u64> {
    let prot = a.u32(2);
    if prot & !(PROT_RWX | PROT_SEM | PROT_GROWSDOWN | PROT_GROWSUP) != 0
        || prot & (PROT_GROWSDOWN | PROT_GROWSUP) == PROT_GROWSDOWN | PROT_GROWSUP
        || prot & PROT_GROWSUP != 0
    {
        return Err(Errno::EINVAL);
    }
    let (mut start, end) = range(a.u64(0), a.u64(1))
        .map_err(|e| if a.u64(0).is_multiple_of(PAGE) { Errno::ENOMEM } else { e })?;
    if start == end {
        return Ok(0);
    }
    let space = a.thread.space();
    if prot & PROT_GROWSDOWN != 0 {
        start = space.mm.growsdown_start(start)?;
    }
    space.mm.protect(start, end, prot & PROT_RWX)?;
    Ok(0)
}

fn pkey_mprotect(a: &Args) -> Result<u64> {
    if a.i32(3) == -1 { mprotect(a) } else { Err(Errno::EINVAL) }
}

fn brk(a: &Args, UserPtr(addr): UserPtr) -> Result<u64> {
    Ok(a.thread.space().mm.brk(addr))
}
