//! System calls on memory maps: mmap, munmap, mprotect, brk.

use doppel_abi_linux::syscalls::nr;

use crate::memory::vma::{Prot, VmFlags, Vma};
use crate::memory::{MapAt, PAGE, page_up};
use crate::objects::vfs::file_map::{MapFlags, file_vma, range, shared_anonymous};
use crate::personality::Support::{Full, Stub};
use crate::personality::args::{Bits, RawFd};
use crate::personality::{Args, Syscall, call};
use crate::{Errno, Result};
use doppel_machine::user::UserPtr;

/// The family.
pub const CALLS: &[Syscall] = &[
    call!(
        nr::MMAP,
        mmap(UserPtr, u64, Bits<ProtFlags>, Bits<MapFlags>, RawFd, u64),
        Full,
        "no huge pages; a map of an image file does not follow the first change of the file",
    ),
    call!(nr::MUNMAP, munmap(UserPtr, u64), Full, ""),
    call!(nr::MPROTECT, mprotect(UserPtr, u64, Bits<ProtFlags>), Full, ""),
    call!(nr::PKEY_MPROTECT, pkey_mprotect(UserPtr, u64, Bits<ProtFlags>, i32), Stub, "only with key -1"),
    call!(nr::PKEY_ALLOC, pkey_alloc(u64, u64), Stub, "EINVAL: no protection keys"),
    call!(nr::PKEY_FREE, pkey_free(i32), Stub, "EINVAL: no protection keys"),
    call!(nr::BRK, brk(UserPtr), Full, ""),
];

bitflags::bitflags! {
    /// `PROT_` bits of mmap and mprotect.
    #[derive(Clone, Copy, PartialEq, Eq)]
    struct ProtFlags: u32 {
        const RWX = Prot::RWX.bits();
        const SEM = 8;
        const GROWSDOWN = 0x0100_0000;
        const GROWSUP = 0x0200_0000;
    }
}

impl ProtFlags {
    /// What may be done with the memory.
    fn access(self) -> Prot {
        Prot::from_bits_truncate(self.bits())
    }
}

fn mmap(
    a: &Args,
    UserPtr(addr): UserPtr,
    len: u64,
    prot: Bits<ProtFlags>,
    flags: Bits<MapFlags>,
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
    let fl = flags.any();
    let shared = match fl & MapFlags::TYPE {
        MapFlags::SHARED => true,
        MapFlags::PRIVATE => false,
        MapFlags::SHARED_VALIDATE if fl.contains(MapFlags::ANONYMOUS) => return Err(Errno::EINVAL),
        MapFlags::SHARED_VALIDATE if !MapFlags::KNOWN.contains(fl) => return Err(Errno::EOPNOTSUPP),
        MapFlags::SHARED_VALIDATE => true,
        _ => return Err(Errno::EINVAL),
    };
    let anonymous = fl.contains(MapFlags::ANONYMOUS);
    // Only private memory without a file grows.
    if fl.contains(MapFlags::GROWSDOWN) && (shared || !anonymous)
        || fl.contains(MapFlags::HUGETLB) && !anonymous
    {
        return Err(Errno::EINVAL);
    }
    if fl.contains(MapFlags::HUGETLB) {
        // No huge pages are reserved in a domain.
        return Err(Errno::ENOMEM);
    }
    let prot = prot.any().access();
    let mut vflags = if shared { VmFlags::SHARED } else { VmFlags::empty() };
    if fl.intersects(MapFlags::NORESERVE | MapFlags::STACK) {
        vflags |= VmFlags::NO_CHARGE;
    }
    if fl.contains(MapFlags::GROWSDOWN) {
        vflags |= VmFlags::GROWSDOWN;
    }
    let v = if anonymous {
        if shared { shared_anonymous(prot, vflags, len)? } else { Vma::anonymous(prot, vflags) }
    } else {
        file_vma(&*a.thread.file(fd)?, prot, vflags, offset, len)?
    };
    let mut v = v;
    if fl.contains(MapFlags::LOCKED) {
        crate::memory::advise::check_may_lock()?;
        v.flags |= VmFlags::LOCKED;
    }
    let place = if fl.contains(MapFlags::FIXED_NOREPLACE) {
        MapAt::NoReplace(addr)
    } else if fl.contains(MapFlags::FIXED) {
        MapAt::Fixed(addr)
    } else if fl.contains(MapFlags::BIT32) {
        MapAt::Low(addr)
    } else {
        MapAt::Hint(addr)
    };
    let populate = fl.intersects(MapFlags::POPULATE | MapFlags::LOCKED) && !fl.contains(MapFlags::NONBLOCK);
    a.thread.space().mm.map_file(place, len, v, populate)
}

fn munmap(a: &Args, UserPtr(addr): UserPtr, len: u64) -> Result<u64> {
    let (start, end) = range(addr, len)?;
    if start == end {
        return Err(Errno::EINVAL);
    }
    a.thread.space().mm.unmap(start, end)?;
    crate::objects::storage::settle(false);
    Ok(0)
}

fn mprotect(a: &Args, UserPtr(addr): UserPtr, len: u64, prot: Bits<ProtFlags>) -> Result<u64> {
    let prot = prot.checked()?;
    if prot.contains(ProtFlags::GROWSUP) {
        return Err(Errno::EINVAL);
    }
    let (mut start, end) =
        range(addr, len).map_err(|e| if addr.is_multiple_of(PAGE) { Errno::ENOMEM } else { e })?;
    if start == end {
        return Ok(0);
    }
    let space = a.thread.space();
    if prot.contains(ProtFlags::GROWSDOWN) {
        start = space.mm.growsdown_start(start)?;
    }
    space.mm.protect(start, end, prot.access())?;
    Ok(0)
}

fn pkey_mprotect(a: &Args, addr: UserPtr, len: u64, prot: Bits<ProtFlags>, key: i32) -> Result<u64> {
    if key == -1 { mprotect(a, addr, len, prot) } else { Err(Errno::EINVAL) }
}

fn pkey_alloc(_: &Args, _flags: u64, _rights: u64) -> Result<u64> {
    Err(Errno::EINVAL)
}

fn pkey_free(_: &Args, _key: i32) -> Result<u64> {
    Err(Errno::EINVAL)
}

fn brk(a: &Args, UserPtr(addr): UserPtr) -> Result<u64> {
    Ok(a.thread.space().mm.brk(addr))
}
