//! Further memory calls: mremap, madvise, locking, mincore, msync, membarrier, process_vm_*, memory policy.

use crate::memory::remap::RemapFlags;
use crate::personality::args::{Arg, Bits, FromArg, NoFlags, NoLongFlags, Number, Size};
use crate::process::task::{Process, TASKS};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use doppel_abi_linux::syscalls::nr;
use doppel_machine::host;
use doppel_machine::user::UserPtr;

use crate::core::numbers::numbers;
use crate::memory::advise::Advice;
use crate::memory::vma::Backing;
use crate::memory::{MapAt, PAGE};
use crate::objects::vfs::file_map::range;
use crate::personality::Support::{Full, Partial, Stub};
use crate::personality::{Args, Syscall, call};
use crate::process::task::remote::{self, may_access};
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
    call!(
        nr::PROCESS_VM_READV,
        process_vm_readv(i32, UserPtr, Size, UserPtr, Size, Bits<NoLongFlags>),
        Full,
        ""
    ),
    call!(
        nr::PROCESS_VM_WRITEV,
        process_vm_writev(i32, UserPtr, Size, UserPtr, Size, Bits<NoLongFlags>),
        Full,
        ""
    ),
    call!(
        nr::GET_MEMPOLICY,
        get_mempolicy(UserPtr, UserPtr, Size, UserPtr, Bits<PolicyFlags>),
        Stub,
        "one memory node"
    ),
    call!(nr::SET_MEMPOLICY, set_mempolicy(PolicyMode, UserPtr, i64), Stub, "one memory node"),
    call!(nr::MBIND, mbind(UserPtr, u64, PolicyMode, UserPtr, i64, u64), Stub, "one memory node"),
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

/// A process that a pid argument names, by any of its threads, if the caller may reach into it.
fn accessible(a: &Args, pid: i32) -> Result<Arc<Process>> {
    let target = match TASKS.process(pid) {
        Ok(p) => p,
        Err(_) => TASKS.thread(pid)?.process.clone(),
    };
    may_access(&a.thread.process, &target)?;
    Ok(target)
}

fn process_vm_readv(
    a: &Args,
    pid: i32,
    local: UserPtr,
    Size(local_count): Size,
    remote: UserPtr,
    Size(remote_count): Size,
    flags: Bits<NoLongFlags>,
) -> Result<u64> {
    flags.checked()?;
    let (local, remote) = (iovecs(local, local_count)?, iovecs(remote, remote_count)?);
    let target = accessible(a, pid)?;
    let theirs = |at: u64, buf: &mut [u8]| match remote::read(&target, at, buf.len()) {
        Ok(v) => {
            buf[..v.len()].copy_from_slice(&v);
            v.len()
        }
        Err(_) => 0,
    };
    let put = |at: u64, bytes: &[u8]| UserPtr(at).write_some(bytes).unwrap_or(0);
    copy(&remote, &local, theirs, put)
}

fn process_vm_writev(
    a: &Args,
    pid: i32,
    local: UserPtr,
    Size(local_count): Size,
    remote: UserPtr,
    Size(remote_count): Size,
    flags: Bits<NoLongFlags>,
) -> Result<u64> {
    flags.checked()?;
    let (local, remote) = (iovecs(local, local_count)?, iovecs(remote, remote_count)?);
    let target = accessible(a, pid)?;
    let get = |at: u64, buf: &mut [u8]| UserPtr(at).read_some(buf).unwrap_or(0);
    copy(&local, &remote, get, |at, b| remote::write(&target, at, b.to_vec()).unwrap_or(0))
}

bitflags::bitflags! {
    /// `MPOL_F_` flags of `get_mempolicy(2)`.
    #[derive(Clone, Copy, PartialEq, Eq)]
    struct PolicyFlags: u64 {
        const NODE = 1;
        const ADDR = 2;
        const MEMS_ALLOWED = 4;
    }
}

/// A memory policy and its flags, not checked yet.
#[derive(Clone, Copy)]
struct PolicyMode(u32);

impl FromArg for PolicyMode {
    const KIND: Arg = Arg::Hex;

    #[inline(always)]
    fn from_arg(raw: u64) -> Self {
        Self(raw as u32)
    }
}

impl PolicyMode {
    /// EINVAL for policies there are not.
    fn check(self) -> Result<()> {
        /// MPOL_WEIGHTED_INTERLEAVE.
        const LAST: u32 = 6;
        const MODE_FLAGS: u32 = 7 << 13;
        if self.0 & !MODE_FLAGS > LAST { Err(Errno::EINVAL) } else { Ok(()) }
    }
}

fn get_mempolicy(
    a: &Args,
    mode: UserPtr,
    nodes: UserPtr,
    Size(max): Size,
    UserPtr(addr): UserPtr,
    flags: Bits<PolicyFlags>,
) -> Result<u64> {
    let flags = flags.checked()?;
    let of_address = flags.contains(PolicyFlags::ADDR);
    if !of_address && addr != 0 {
        return Err(Errno::EINVAL);
    }
    if of_address && a.thread.space().mm.vma(addr).is_none() {
        return Err(Errno::EFAULT);
    }
    if !mode.is_null() {
        mode.write(&0u32)?;
    }
    if !nodes.is_null() && max > 0 {
        // The only node, or no node at all for the default policy.
        let mask = u64::from(flags.contains(PolicyFlags::MEMS_ALLOWED));
        nodes.write(&mask)?;
        let words = max.div_ceil(64).min(16);
        for i in 1..words {
            nodes.add(i * 8).write(&0u64)?;
        }
    }
    Ok(0)
}

fn set_mempolicy(_: &Args, mode: PolicyMode, _nodes: UserPtr, _max: i64) -> Result<u64> {
    mode.check().map(|()| 0)
}

fn mbind(
    a: &Args,
    UserPtr(addr): UserPtr,
    len: u64,
    mode: PolicyMode,
    _nodes: UserPtr,
    _max: i64,
    flags: u64,
) -> Result<u64> {
    /// STRICT, MOVE and MOVE_ALL (mbind(2)).
    const KNOWN: u64 = 7;
    const MOVE_ALL: u64 = 4;
    const CAP_SYS_NICE: u32 = 23;
    if flags & !KNOWN != 0 {
        return Err(Errno::EINVAL);
    }
    if flags & MOVE_ALL != 0 && !a.thread.cred().capable(CAP_SYS_NICE) {
        return Err(Errno::EPERM);
    }
    mode.check()?;
    let (start, end) = range(addr, len)?;
    if start < end && !a.thread.space().mm.is_covered(start, end) {
        return Err(Errno::EFAULT);
    }
    Ok(0)
}
