//! Further memory calls: mremap, madvise, locking, mincore, msync, membarrier.

use crate::memory::remap::RemapFlags;
use crate::personality::args::{Bits, NoFlags, NoLongFlags, Number};

use doppel_abi_linux::syscalls::nr;
use doppel_machine::host;
use doppel_machine::user::UserPtr;

use crate::core::numbers::numbers;
use crate::memory::advise::Advice;
use crate::memory::vma::Backing;
use crate::memory::{MapAt, PAGE};
use crate::objects::vfs::file_map::range;
use crate::personality::Support::{Full, Partial};
use crate::personality::{Args, Syscall, call};
use crate::{Errno, Result};

/// The family.
pub const CALLS: &[Syscall] = &[
    call!(
        nr::MREMAP,
        mremap(UserPtr, u64, u64, Bits<RemapFlags>, UserPtr),
        Full,
        "MREMAP_DONTUNMAP: private anonymous memory only",
    ),
    call!(nr::MADVISE, madvise(UserPtr, u64, Number<Advice>), Partial, "no guard pages"),
    call!(nr::MSEAL, mseal(UserPtr, u64, Bits<NoLongFlags>), Full, ""),
    call!(nr::MINCORE, mincore(UserPtr, u64, UserPtr), Partial, "says that everything is resident"),
    call!(nr::MSYNC, msync(UserPtr, u64, Bits<SyncFlags>), Full, ""),
    call!(nr::MLOCK, mlock(UserPtr, u64), Partial, "checked and counted; the host may still page"),
    call!(nr::MLOCK2, mlock2(UserPtr, u64, Bits<Lock2Flags>), Partial, "as mlock"),
    call!(nr::MUNLOCK, munlock(UserPtr, u64), Full, ""),
    call!(nr::MLOCKALL, mlockall(Bits<LockFlags>), Partial, "as mlock"),
    call!(nr::MUNLOCKALL, munlockall(), Full, ""),
    call!(nr::REMAP_FILE_PAGES, remap_file_pages(UserPtr, u64, u64, u64, u64), Full, ""),
    call!(
        nr::MEMBARRIER,
        membarrier(Number<Barrier>, Bits<NoFlags>, i32),
        Partial,
        "private expedited commands"
    ),
];

fn mremap(
    a: &Args,
    UserPtr(old): UserPtr,
    old_len: u64,
    new_len: u64,
    flags: Bits<RemapFlags>,
    UserPtr(new): UserPtr,
) -> Result<u64> {
    a.thread.space().mm.remap(old, old_len, new_len, flags.checked()?, new)
}

/// As [`range`]: EINVAL if it is no range at all, ENOMEM if it leads to where no program's memory is.
fn mapped_range(addr: u64, len: u64) -> Result<(u64, u64)> {
    range(addr, len).map_err(|e| {
        let sound = addr.is_multiple_of(PAGE)
            && len.checked_add(PAGE - 1).and_then(|n| addr.checked_add(n & !(PAGE - 1))).is_some();
        if sound { Errno::ENOMEM } else { e }
    })
}

fn madvise(a: &Args, UserPtr(addr): UserPtr, len: u64, advice: Number<Advice>) -> Result<u64> {
    let advice = advice.get()?;
    let (start, end) = mapped_range(addr, len)?;
    a.thread.space().mm.advise(start, end, advice)?;
    Ok(0)
}

fn mseal(a: &Args, UserPtr(addr): UserPtr, len: u64, flags: Bits<NoLongFlags>) -> Result<u64> {
    flags.checked()?;
    if !addr.is_multiple_of(PAGE) {
        return Err(Errno::EINVAL);
    }
    let end =
        len.checked_next_multiple_of(PAGE).and_then(|len| addr.checked_add(len)).ok_or(Errno::EINVAL)?;
    if addr < end {
        a.thread.space().mm.seal(addr, end)?;
    }
    Ok(0)
}

fn mincore(a: &Args, UserPtr(addr): UserPtr, len: u64, out: UserPtr) -> Result<u64> {
    let (start, end) =
        range(addr, len).map_err(|e| if addr.is_multiple_of(PAGE) { Errno::ENOMEM } else { e })?;
    if start < end && !a.thread.space().mm.is_covered(start, end) {
        return Err(Errno::ENOMEM);
    }
    let ones = [1u8; 256];
    let mut left = ((end - start) / PAGE) as usize;
    let mut out = out;
    while left > 0 {
        let n = left.min(ones.len());
        out.write_bytes(&ones[..n])?;
        out = out.add(n as u64);
        left -= n;
    }
    Ok(0)
}

bitflags::bitflags! {
    /// `MS_` flags of `msync(2)`.
    #[derive(Clone, Copy, PartialEq, Eq)]
    struct SyncFlags: u32 {
        const ASYNC = 1;
        const INVALIDATE = 2;
        const SYNC = 4;
    }
}

fn msync(a: &Args, UserPtr(addr): UserPtr, len: u64, flags: Bits<SyncFlags>) -> Result<u64> {
    let flags = flags.checked()?;
    if flags.contains(SyncFlags::ASYNC | SyncFlags::SYNC) {
        return Err(Errno::EINVAL);
    }
    if !addr.is_multiple_of(PAGE) {
        return Err(Errno::EINVAL);
    }
    // The length wraps when it is rounded up, as on Linux.
    let len = len.wrapping_add(PAGE - 1) & !(PAGE - 1);
    let (start, end) = range(addr, len).map_err(|_| Errno::ENOMEM)?;
    let space = a.thread.space();
    if start < end && !space.mm.is_covered(start, end) {
        return Err(Errno::ENOMEM);
    }
    if flags.contains(SyncFlags::INVALIDATE) && space.mm.any_locked(start, end) {
        return Err(Errno::EBUSY);
    }
    crate::objects::storage::settle(true);
    if flags.contains(SyncFlags::SYNC) {
        crate::objects::rootfs::sync_mapped_disks()?;
        crate::objects::rootfs::sync_mapped()?;
    }
    Ok(0)
}

/// The pages that hold `len` bytes from `addr` on.
fn page_range(addr: u64, len: u64) -> Result<(u64, u64)> {
    let end = addr.checked_add(len).ok_or(Errno::EINVAL)?;
    if end > 1 << 47 {
        return Err(Errno::ENOMEM);
    }
    Ok((crate::memory::page_down(addr), crate::memory::page_up(end)))
}

fn mlock(a: &Args, UserPtr(addr): UserPtr, len: u64) -> Result<u64> {
    lock(a, addr, len, true)
}

/// Locks; `now`: what cannot be touched cannot be there, and is ENOMEM.
fn lock(a: &Args, addr: u64, len: u64, now: bool) -> Result<u64> {
    crate::memory::advise::check_may_lock()?;
    let (start, end) = page_range(addr, len)?;
    let mm = &a.thread.space().mm;
    mm.set_locked(start, end, true)?;
    if now && mm.any_untouchable(start, end) { Err(Errno::ENOMEM) } else { Ok(0) }
}

bitflags::bitflags! {
    /// Flags of `mlock2(2)`.
    #[derive(Clone, Copy, PartialEq, Eq)]
    struct Lock2Flags: u32 {
        const ONFAULT = 1;
    }
}

fn mlock2(a: &Args, UserPtr(addr): UserPtr, len: u64, flags: Bits<Lock2Flags>) -> Result<u64> {
    let flags = flags.checked()?;
    lock(a, addr, len, !flags.contains(Lock2Flags::ONFAULT))
}

fn munlock(a: &Args, UserPtr(addr): UserPtr, len: u64) -> Result<u64> {
    let (start, end) = page_range(addr, len)?;
    a.thread.space().mm.set_locked(start, end, false)?;
    Ok(0)
}

bitflags::bitflags! {
    /// `MCL_` flags of `mlockall(2)`.
    #[derive(Clone, Copy, PartialEq, Eq)]
    struct LockFlags: u32 {
        const CURRENT = 1;
        const FUTURE = 2;
        const ONFAULT = 4;
    }
}

fn mlockall(a: &Args, flags: Bits<LockFlags>) -> Result<u64> {
    let flags = flags.checked()?;
    if !flags.intersects(LockFlags::CURRENT | LockFlags::FUTURE) {
        return Err(Errno::EINVAL);
    }
    a.thread
        .space()
        .mm
        .set_all_locked(flags.contains(LockFlags::CURRENT), flags.contains(LockFlags::FUTURE))?;
    Ok(0)
}

fn munlockall(a: &Args) -> Result<u64> {
    a.thread.space().mm.set_all_locked(false, false)?;
    Ok(0)
}

fn remap_file_pages(
    a: &Args,
    UserPtr(addr): UserPtr,
    len: u64,
    prot: u64,
    pgoff: u64,
    _flags: u64,
) -> Result<u64> {
    let (start, end) = range(crate::memory::page_down(addr), len & !(PAGE - 1))?;
    if prot != 0 || start == end || pgoff > 1 << 50 {
        return Err(Errno::EINVAL);
    }
    let space = a.thread.space();
    let mut v = space.mm.vma(start).filter(|v| v.shared()).ok_or(Errno::EINVAL)?;
    if !matches!(v.backing, Backing::Pages(_)) || !space.mm.is_covered(start, end) {
        return Err(Errno::EINVAL);
    }
    v.offset = pgoff * PAGE;
    space.mm.map(MapAt::Fixed(start), end - start, v, false)?;
    Ok(0)
}

numbers! {
    /// Commands of `membarrier(2)`.
    enum Barrier {
        Query = 0,
        PrivateExpedited = 8,
        RegisterPrivateExpedited = 16,
    }
}

fn membarrier(_: &Args, command: Number<Barrier>, flags: Bits<NoFlags>, _cpu: i32) -> Result<u64> {
    flags.checked()?;
    match command.get()? {
        Barrier::Query => Ok(Barrier::PrivateExpedited as u64 | Barrier::RegisterPrivateExpedited as u64),
        // The vCPUs of a space are the threads of one host process: the host's barrier covers them all.
        c @ (Barrier::PrivateExpedited | Barrier::RegisterPrivateExpedited) => {
            let done = host::membarrier(c as i32);
            done.map_err(|e| if e.0 == 1 { Errno::EPERM } else { Errno::EINVAL })?;
            Ok(0)
        }
    }
}
