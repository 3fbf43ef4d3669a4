//! System calls that change the memory map: mmap, munmap, mprotect, brk.

use alloc::sync::Arc;

use doppel_abi_linux::syscalls::nr;

use super::vma::{Backing, Vma, WriteGuard, vm};
use super::{MapSource, PAGE, Place, page_up};
use crate::fs::File;
use crate::fs::file::flags;
use crate::syscall::{Arg, Args, Support::Full, Support::Stub, Syscall, call};
use crate::{Errno, Result};
use Arg::{Fd, Hex, Int, Ptr};

/// The family.
pub const CALLS: &[Syscall] = &[
    call(
        nr::MMAP,
        mmap,
        Full,
        &[Ptr, Hex, Hex, Hex, Fd, Hex],
        "no huge pages; a map of an image file does not follow the first change of the file",
    ),
    call(nr::MUNMAP, munmap, Full, &[Ptr, Hex], ""),
    call(nr::MPROTECT, mprotect, Full, &[Ptr, Hex, Hex], ""),
    call(nr::PKEY_MPROTECT, pkey_mprotect, Stub, &[Ptr, Hex, Hex, Int], "only with key -1"),
    call(nr::PKEY_ALLOC, |_| Err(Errno::EINVAL), Stub, &[Hex, Hex], "EINVAL: no protection keys"),
    call(nr::PKEY_FREE, |_| Err(Errno::EINVAL), Stub, &[Int], "EINVAL: no protection keys"),
    call(nr::BRK, brk, Full, &[Ptr], ""),
];

/// Bits of mmap's flags.
#[allow(missing_docs)]
pub mod map_flags {
    pub const SHARED: u32 = 1;
    pub const PRIVATE: u32 = 2;
    pub const SHARED_VALIDATE: u32 = 3;
    pub const TYPE: u32 = 0xf;
    pub const FIXED: u32 = 0x10;
    pub const ANONYMOUS: u32 = 0x20;
    pub const BIT32: u32 = 0x40;
    pub const GROWSDOWN: u32 = 0x100;
    pub const LOCKED: u32 = 0x2000;
    pub const NORESERVE: u32 = 0x4000;
    pub const POPULATE: u32 = 0x8000;
    pub const NONBLOCK: u32 = 0x1_0000;
    pub const STACK: u32 = 0x2_0000;
    pub const HUGETLB: u32 = 0x4_0000;
    pub const SYNC: u32 = 0x8_0000;
    pub const FIXED_NOREPLACE: u32 = 0x10_0000;
    /// Flags MAP_SHARED_VALIDATE knows (`LEGACY_MAP_MASK`).
    pub const KNOWN: u32 = 0x7c07_f9f3;
}
use map_flags as mf;

const PROT_RWX: u32 = 7;
const PROT_SEM: u32 = 8;
const PROT_GROWSDOWN: u32 = 0x0100_0000;
const PROT_GROWSUP: u32 = 0x0200_0000;

fn mmap(a: &Args) -> Result<u64> {
    let (addr, len, prot, fl, offset) = (a.u64(0), a.u64(1), a.u32(2), a.u32(3), a.u64(5));
    if offset % PAGE != 0 || len == 0 {
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
        file_vma(&*a.file(4)?, prot, vflags, offset, len)?
    };
    let mut v = v;
    if fl & mf::LOCKED != 0 {
        super::advise::check_may_lock()?;
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

/// Memory shared with children: an unnamed object of the page file.
fn shared_anonymous(prot: u32, vflags: u32, len: u64) -> Result<Vma> {
    let o = crate::fs::pages::Object::new(len);
    Ok(Vma::object(prot, vflags, Backing::Pages(o), None, 0))
}

/// A mapping of `file` from `offset` on, permissions checked.
pub fn file_vma(file: &Arc<File>, prot: u32, vflags: u32, offset: u64, _len: u64) -> Result<Vma> {
    if file.flags() & flags::O_PATH != 0 {
        return Err(Errno::EBADF);
    }
    if !file.readable() {
        return Err(Errno::EACCES);
    }
    let shared = vflags & vm::SHARED != 0;
    let sealed = shared && crate::ipc::memfd::write_sealed(file);
    let max_prot = if shared && (sealed || !file.writable()) { PROT_RWX & !2 } else { PROT_RWX };
    if prot & !max_prot != 0 {
        return Err(if sealed { Errno::EPERM } else { Errno::EACCES });
    }
    let keep = Some(file.clone());
    let mut v = match file.ops().map(file)? {
        MapSource::Zero if shared => shared_anonymous(prot, vflags, _len)?,
        MapSource::Zero => Vma::anonymous(prot, vflags),
        MapSource::Image { offset: base, len } => {
            Vma::object(prot, vflags, Backing::Image { base, len }, keep, offset)
        }
        MapSource::Pages(o) => Vma::object(prot, vflags, Backing::Pages(o), keep, offset),
    };
    v.max_prot = max_prot;
    if shared
        && max_prot & 2 != 0
        && let Backing::Pages(o) = &v.backing
    {
        match WriteGuard::new(o) {
            Ok(g) => v.write_guard = Some(g),
            Err(e) if prot & 2 != 0 => return Err(e),
            // Sealed against writing: it may be read, and never made writable.
            Err(_) => v.max_prot &= !2,
        }
    }
    Ok(v)
}

/// End of the addresses a program may name.
const TASK_SIZE: u64 = (1 << 47) - PAGE;

/// Checks an address range argument: page aligned start, length rounded up, inside the user area.
pub(super) fn range(addr: u64, len: u64) -> Result<(u64, u64)> {
    if !addr.is_multiple_of(PAGE) {
        return Err(Errno::EINVAL);
    }
    let end = addr.checked_add(len).map(page_up).filter(|e| *e <= TASK_SIZE).ok_or(Errno::EINVAL)?;
    Ok((addr, end))
}

fn munmap(a: &Args) -> Result<u64> {
    let (start, end) = range(a.u64(0), a.u64(1))?;
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

fn brk(a: &Args) -> Result<u64> {
    Ok(a.thread.space().mm.brk(a.u64(0)))
}
