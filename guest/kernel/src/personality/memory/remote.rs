//! Calls on the memory of other processes, or on one's own by the same name.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use doppel_abi_linux::syscalls::nr;
use doppel_machine::user::UserPtr;

use crate::memory::PAGE;
use crate::memory::advise::Advice;
use crate::objects::vfs::file_map::range;
use crate::personality::Support::{Full, Partial};
use crate::personality::args::{Bits, NoFlags, NoLongFlags, Number, RawFd, Size};
use crate::personality::{Args, Syscall, call};
use crate::process::descriptors::pidfd::process_of;
use crate::process::namespaces::numbers;
use crate::process::task::remote::{self, may_access};
use crate::process::task::{Process, TASKS};
use crate::{Errno, Result};

/// The family.
pub const CALLS: &[Syscall] = &[
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
        nr::PROCESS_MADVISE,
        process_madvise(RawFd, UserPtr, Size, Number<Advice>, Bits<NoFlags>),
        Partial,
        "of other processes: checked, without effect"
    ),
    call!(
        nr::PROCESS_MRELEASE,
        process_mrelease(RawFd, Bits<NoFlags>),
        Partial,
        "checked: memory goes at the end"
    ),
];

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
pub(super) fn accessible(a: &Args, pid: i32) -> Result<Arc<Process>> {
    let target = match numbers::process(pid) {
        Ok(p) => p,
        Err(_) => numbers::thread(pid)?.process.clone(),
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

fn process_madvise(
    a: &Args,
    RawFd(pidfd): RawFd,
    list: UserPtr,
    Size(count): Size,
    advice: Number<Advice>,
    flags: Bits<NoFlags>,
) -> Result<u64> {
    const CAP_SYS_NICE: u32 = 23;
    flags.checked()?;
    let list = iovecs(list, count)?;
    let target = process_of(pidfd)?;
    if target.is_zombie() {
        return Err(Errno::ESRCH);
    }
    may_access(&a.thread.process, &target).map_err(|_| Errno::EACCES)?;
    let own = core::ptr::eq(&*target, &*a.thread.process);
    let advice = advice.get()?;
    if !own {
        if !matches!(advice, Advice::Cold | Advice::PageOut | Advice::WillNeed | Advice::Collapse) {
            return Err(Errno::EINVAL);
        }
        if !a.thread.cred().capable(CAP_SYS_NICE) {
            return Err(Errno::EPERM);
        }
    }
    let space = target.space();
    let mut done = 0;
    for (start, len) in list {
        let advised = range(start, len).and_then(|(start, end)| match own {
            true => space.mm.advise(start, end, advice),
            false if start < end && !space.mm.is_covered(start, end) => Err(Errno::ENOMEM),
            false => Ok(()),
        });
        match advised {
            Ok(()) => done += len.next_multiple_of(PAGE).min(len),
            Err(e) if done == 0 => return Err(e),
            Err(_) => break,
        }
    }
    Ok(done)
}

fn process_mrelease(_: &Args, RawFd(pidfd): RawFd, flags: Bits<NoFlags>) -> Result<u64> {
    flags.checked()?;
    let target = process_of(pidfd)?;
    if !TASKS.process(target.pid).is_ok_and(|p| Arc::ptr_eq(&p, &target)) {
        return Err(Errno::ESRCH);
    }
    // Only of one that is being killed, which gives its memory back by itself.
    if target.threads().iter().all(|t| t.exiting.load(Ordering::SeqCst)) { Ok(0) } else { Err(Errno::EINVAL) }
}
