//! System calls that make threads and processes.

use crate::personality::args::Bits;
use doppel_abi_linux::syscalls::nr;
use doppel_machine::user::UserPtr;

use crate::personality::Support::{Full, Partial};
use crate::personality::{Args, Syscall, call};
use crate::process::life::clone::{CloneFlags, Request, SET_TID_MAX, check, clone};
use crate::{Errno, Result};

/// Process creation.
pub const CALLS: &[Syscall] = &[
    call!(
        nr::CLONE,
        sys_clone(Bits<CloneFlags>, UserPtr, UserPtr, UserPtr, UserPtr),
        Partial,
        "no network namespaces (EPERM)"
    ),
    call!(nr::FORK, sys_fork(), Full, ""),
    call!(nr::VFORK, sys_vfork(), Full, ""),
    call!(nr::CLONE3, sys_clone3(UserPtr, usize), Partial, "no network namespaces or cgroups (EPERM)"),
];

fn sys_clone(
    a: &Args,
    flags: Bits<CloneFlags>,
    UserPtr(stack): UserPtr,
    UserPtr(parent_tid): UserPtr,
    UserPtr(child_tid): UserPtr,
    UserPtr(tls): UserPtr,
) -> Result<u64> {
    let bits = flags.any().bits() & u64::from(u32::MAX);
    let request = Request {
        flags: CloneFlags::from_bits_retain(bits & !CloneFlags::CSIGNAL),
        exit_signal: (bits & CloneFlags::CSIGNAL) as i32,
        stack,
        parent_tid,
        child_tid,
        pidfd: parent_tid,
        tls,
        ..Request::default()
    };
    clone(&a.thread, request)
}

fn sys_fork(a: &Args) -> Result<u64> {
    clone(&a.thread, Request { exit_signal: crate::process::signal::sig::SIGCHLD, ..Request::default() })
}

fn sys_vfork(a: &Args) -> Result<u64> {
    let flags = CloneFlags::VM | CloneFlags::VFORK;
    clone(
        &a.thread,
        Request { flags, exit_signal: crate::process::signal::sig::SIGCHLD, ..Request::default() },
    )
}

fn sys_clone3(a: &Args, user_request: UserPtr, size: usize) -> Result<u64> {
    const MIN: usize = 64;
    const MAX: usize = 88;
    if size < MIN {
        return Err(Errno::EINVAL);
    }
    if size > 4096 {
        return Err(Errno::E2BIG);
    }
    let mut words = [0u64; MAX / 8];
    let mut bytes = [0u8; MAX];
    let n = size.min(MAX);
    user_request.read_bytes(&mut bytes[..n])?;
    for off in (MAX..size).step_by(8) {
        if user_request.add(off as u64).read::<u64>()? != 0 {
            return Err(Errno::E2BIG);
        }
    }
    for (w, b) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *w = u64::from_ne_bytes(b.try_into().map_err(|_| Errno::EINVAL)?);
    }
    let [
        bits,
        pidfd,
        child_tid,
        parent_tid,
        exit_signal,
        stack,
        stack_size,
        tls,
        set_tid,
        set_tid_size,
        cgroup,
    ] = words;
    let flags = CloneFlags::from_bits_retain(bits);
    if set_tid_size > SET_TID_MAX as u64
        || (set_tid == 0) != (set_tid_size == 0)
        || exit_signal > 64
        || flags.contains(CloneFlags::INTO_CGROUP) && (cgroup > i32::MAX as u64 || size < MAX)
    {
        return Err(Errno::EINVAL);
    }
    let mut tids = [0i32; SET_TID_MAX];
    for (i, t) in (0..set_tid_size).zip(&mut tids) {
        *t = UserPtr(set_tid).add(i * 4).read()?;
    }
    let known = u64::from(u32::MAX) | (CloneFlags::CLEAR_SIGHAND | CloneFlags::INTO_CGROUP).bits();
    let signalled = flags.intersects(CloneFlags::THREAD | CloneFlags::PARENT) && exit_signal != 0;
    if bits & !known != 0
        || bits & CloneFlags::CSIGNAL & !CloneFlags::NEWTIME.bits() != 0
        || flags.contains(CloneFlags::DETACHED)
        || signalled
        || (stack == 0) != (stack_size == 0)
    {
        return Err(Errno::EINVAL);
    }
    let stack = if stack == 0 { 0 } else { stack.checked_add(stack_size).ok_or(Errno::EINVAL)? };
    if stack > doppel_abi_machine::layout::USER_END {
        return Err(Errno::EINVAL);
    }
    let request = Request {
        flags,
        exit_signal: exit_signal as i32,
        stack,
        parent_tid,
        child_tid,
        pidfd,
        tls,
        ..Request::default()
    };
    check(&request)?;
    if flags.contains(CloneFlags::INTO_CGROUP) {
        // A domain has one control group, which no descriptor stands for.
        return Err(Errno::EBADF);
    }
    let tids_count = set_tid_size as usize;
    clone(&a.thread, Request { tids, tids_count, ..request })
}
