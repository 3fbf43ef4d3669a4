//! Further memory calls: mremap, madvise, locking, mincore, msync, membarrier, process_vm_*, memory policy.

use crate::memory::remap::RemapFlags;
use crate::personality::args::{Bits, Size};
use crate::process::task::TASKS;
use alloc::vec;
use alloc::vec::Vec;

use doppel_abi_linux::syscalls::nr;
use doppel_machine::host;
use doppel_machine::user::UserPtr;

use crate::memory::vma::Backing;
use crate::memory::{PAGE, Place};
use crate::objects::vfs::file_map::range;
use crate::personality::Support::{Full, Partial, Stub};
use crate::personality::{Arg, Args, Syscall, call};
use crate::process::task::remote::{self, may_access};
use crate::{Errno, Result};
use Arg::{Hex, Int, Ptr};

/// The family.
pub const CALLS: &[Syscall] = &[
    call!(
        nr::MREMAP,
        mremap(UserPtr, u64, u64, Bits<RemapFlags>, UserPtr),
        Full,
        "MREMAP_DONTUNMAP: private anonymous memory only",
    ),
    call!(nr::MADVISE, madvise(UserPtr, u64, i32), Partial, "no guard pages"),
    call!(nr::MINCORE, mincore(UserPtr, u64, UserPtr), Partial, "says that everything is resident"),
    call!(nr::MSYNC, msync(UserPtr, u64, Bits<SyncFlags>), Full, ""),
    call!(nr::MLOCK, mlock(UserPtr, u64), Partial, "checked and counted; the host may still page"),
    call!(nr::MLOCK2, mlock2(UserPtr, u64, Bits<Lock2Flags>), Partial, "as mlock"),
    call!(nr::MUNLOCK, munlock(UserPtr, u64), Full, ""),
    call!(nr::MLOCKALL, mlockall(Bits<LockFlags>), Partial, "as mlock"),
    call!(nr::MUNLOCKALL, munlockall(), Full, ""),
    call!(nr::REMAP_FILE_PAGES, remap_file_pages(UserPtr, u64, u64, u64, u64), Full, ""),
    call(nr::MEMBARRIER, membarrier, Partial, &[Int, Hex, Int], "private expedited commands"),
    call(nr::PROCESS_VM_READV, process_vm_readv, Full, &[Int, Ptr, Int, Ptr, Int, Hex], ""),
    call(nr::PROCESS_VM_WRITEV, process_vm_writev, Full, &[Int, Ptr, Int, Ptr, Int, Hex], ""),
    call!(nr::GET_MEMPOLICY, get_mempolicy(UserPtr, UserPtr, Size, UserPtr, u64), Stub, "one memory node"),
    call!(nr::SET_MEMPOLICY, set_mempolicy(u32, UserPtr, i64), Stub, "one memory node"),
    call!(nr::MBIND, mbind(UserPtr, u64, u32, UserPtr, i64, u64), Stub, "one memory node"),
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

fn madvise(a: &Args, UserPtr(addr): UserPtr, len: u64, advice: i32) -> Result<u64> {
    crate::memory::advise::check(advice)?;
    let (start, end) = mapped_range(addr, len)?;
    a.thread.space().mm.advise(start, end, advice)?;
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
    space.mm.map(Place::Fixed(start), end - start, v, false)?;
    Ok(0)
}

fn membarrier(a: &Args) -> Result<u64> {
    const QUERY: i32 = 0;
    const PRIVATE_EXPEDITED: i32 = 8;
    const REGISTER_PRIVATE_EXPEDITED: i32 = 16;
    if a.u32(1) != 0 {
        return Err(Errno::EINVAL);
    }
    match a.i32(0) {
        QUERY => Ok((PRIVATE_EXPEDITED | REGISTER_PRIVATE_EXPEDITED) as u64),
        // The vCPUs of a space are the threads of one host process: the host's barrier covers them all.
        c @ (PRIVATE_EXPEDITED | REGISTER_PRIVATE_EXPEDITED) => {
            host::membarrier(c).map_err(|e| if e.0 == 1 { Errno::EPERM } else { Errno::EINVAL })?;
            Ok(0)
        }
        _ => Err(Errno::EINVAL),
    }
}

/// The buffers of an iovec array: at most 1024.
fn iovecs(p: UserPtr, n: u64) -> Result<Vec<(u64, u64)>> {
    if n > 1024 {
        return Err(Errno::EINVAL);
    }
    let mut v = Vec::new();
    let mut total = 0u64;
    for i in 0..n {
        let [base, len]: [u64; 2] = p.add(i * 16).read()?;
        total = total.checked_add(len).filter(|t| *t <= i64::MAX as u64).ok_or(Errno::EINVAL)?;
        v.push((base, len));
    }
    Ok(v)
}

/// Copies between two lists of buffers with `get` and `put`, up to the first fault.
fn copy(
    from: &[(u64, u64)],
    to: &[(u64, u64)],
    get: impl Fn(u64, &mut [u8]) -> usize,
    put: impl Fn(u64, &[u8]) -> usize,
) -> Result<u64> {
    let mut buf = vec![0u8; 16 << 10];
    let (mut i, mut j, mut oi, mut oj, mut done) = (0, 0, 0u64, 0u64, 0u64);
    while let (Some(&(f, fl)), Some(&(t, tl))) = (from.get(i), to.get(j)) {
        let n = (fl - oi).min(tl - oj).min(buf.len() as u64);
        if n > 0 {
            let got = get(f.wrapping_add(oi), &mut buf[..n as usize]);
            let moved = if got == 0 { 0 } else { put(t.wrapping_add(oj), &buf[..got]) } as u64;
            (oi, oj, done) = (oi + moved, oj + moved, done + moved);
            if moved < n {
                return if done > 0 { Ok(done) } else { Err(Errno::EFAULT) };
            }
        }
        if oi == fl {
            (i, oi) = (i + 1, 0);
        }
        if oj == tl {
            (j, oj) = (j + 1, 0);
        }
    }
    Ok(done)
}

fn process_vm(a: &Args, write: bool) -> Result<u64> {
    if a.u64(5) != 0 {
        return Err(Errno::EINVAL);
    }
    let local = iovecs(a.ptr(1), a.u64(2))?;
    let remote = iovecs(a.ptr(3), a.u64(4))?;
    let target = match TASKS.process(a.i32(0)) {
        Ok(p) => p,
        Err(_) => TASKS.thread(a.i32(0))?.process.clone(),
    };
    may_access(&a.thread.process, &target)?;
    let get = |at: u64, buf: &mut [u8]| UserPtr(at).read_some(buf).unwrap_or(0);
    let put = |at: u64, bytes: &[u8]| UserPtr(at).write_some(bytes).unwrap_or(0);
    if write {
        copy(&local, &remote, get, |at, b| remote::write(&target, at, b.to_vec()).unwrap_or(0))
    } else {
        let theirs = |at: u64, buf: &mut [u8]| match remote::read(&target, at, buf.len()) {
            Ok(v) => {
                buf[..v.len()].copy_from_slice(&v);
                v.len()
            }
            Err(_) => 0,
        };
        copy(&remote, &local, theirs, put)
    }
}

fn process_vm_readv(a: &Args) -> Result<u64> {
    process_vm(a, false)
}

fn process_vm_writev(a: &Args) -> Result<u64> {
    process_vm(a, true)
}

/// Largest mode of a memory policy (MPOL_WEIGHTED_INTERLEAVE).
const MPOL_MAX: u32 = 6;
const MPOL_MODE_FLAGS: u32 = 7 << 13;

fn get_mempolicy(
    a: &Args,
    mode: UserPtr,
    nodes: UserPtr,
    Size(max): Size,
    UserPtr(addr): UserPtr,
    fl: u64,
) -> Result<u64> {
    const NODE: u64 = 1;
    const ADDR: u64 = 2;
    const MEMS_ALLOWED: u64 = 4;
    if fl & !(NODE | ADDR | MEMS_ALLOWED) != 0 || (fl & ADDR == 0 && addr != 0) {
        return Err(Errno::EINVAL);
    }
    if fl & ADDR != 0 && a.thread.space().mm.vma(addr).is_none() {
        return Err(Errno::EFAULT);
    }
    if !mode.is_null() {
        mode.write(&0u32)?;
    }
    if !nodes.is_null() && max > 0 {
        // The only node, or no node at all for the default policy.
        let mask = u64::from(fl & MEMS_ALLOWED != 0);
        nodes.write(&mask)?;
        let words = max.div_ceil(64).min(16);
        for i in 1..words {
            nodes.add(i * 8).write(&0u64)?;
        }
    }
    Ok(0)
}

fn check_policy(mode: u32) -> Result<()> {
    if mode & !MPOL_MODE_FLAGS > MPOL_MAX { Err(Errno::EINVAL) } else { Ok(()) }
}

fn set_mempolicy(_: &Args, mode: u32, _nodes: UserPtr, _max: i64) -> Result<u64> {
    check_policy(mode)?;
    Ok(0)
}

fn mbind(
    a: &Args,
    UserPtr(addr): UserPtr,
    len: u64,
    mode: u32,
    _nodes: UserPtr,
    _max: i64,
    _flags: u64,
) -> Result<u64> {
    check_policy(mode)?;
    let (start, end) = range(addr, len)?;
    if start < end && !a.thread.space().mm.is_covered(start, end) {
        return Err(Errno::EFAULT);
    }
    Ok(0)
}
