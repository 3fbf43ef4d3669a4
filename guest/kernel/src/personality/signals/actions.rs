//! System calls on signal handlers, masks and pending signals.

use alloc::sync::Arc;

use doppel_abi_linux::syscalls::nr;
use doppel_machine::pod_struct;

use crate::core::numbers::numbers;
use crate::core::sched;
use crate::core::time::{Timespec, monotonic_ns};
use crate::personality::Support::Full;
use crate::personality::args::{Number, SigNo};
use crate::personality::{Args, Syscall, call};
use crate::process::signal::frame;
use crate::process::signal::frame::StackT;
use crate::process::signal::mask::{check_size, set_altstack, set_temporary_mask};
use crate::process::signal::send::{dequeue, flush, set_mask};
use crate::process::signal::state::{Action, ActionFlags, AltStack, AltStackFlags};
use crate::process::signal::{SigInfo, UNBLOCKABLE, bit, force, sig};
use crate::process::task::Thread;
use crate::{Errno, Result};
use doppel_machine::user::UserPtr;

/// Rows of the system call table.
pub const CALLS: &[Syscall] = &[
    call!(nr::RT_SIGACTION, rt_sigaction(SigNo, UserPtr, UserPtr, usize), Full, ""),
    call!(nr::RT_SIGPROCMASK, rt_sigprocmask(Number<How>, UserPtr, UserPtr, usize), Full, ""),
    call!(nr::RT_SIGRETURN, rt_sigreturn(), Full, ""),
    call!(nr::RT_SIGPENDING, rt_sigpending(UserPtr, usize), Full, ""),
    call!(nr::RT_SIGTIMEDWAIT, rt_sigtimedwait(UserPtr, UserPtr, UserPtr, usize), Full, ""),
    call!(nr::RT_SIGSUSPEND, rt_sigsuspend(UserPtr, usize), Full, ""),
    call!(nr::SIGALTSTACK, sigaltstack(UserPtr, UserPtr), Full, ""),
    call!(nr::PAUSE, pause(), Full, ""),
    call!(nr::RESTART_SYSCALL, restart_syscall(u64), Full, "only by the kernel itself"),
];

pod_struct! {
    /// `struct sigaction` as the kernel takes it.
    pub struct KernelSigaction {
        /// Handler address, SIG_DFL or SIG_IGN.
        pub handler: u64,
        /// `sa_flags`.
        pub flags: u64,
        /// `sa_restorer`.
        pub restorer: u64,
        /// `sa_mask`.
        pub mask: u64,
    }
}

fn rt_sigaction(
    a: &Args,
    SigNo(signo): SigNo,
    user_new: UserPtr,
    user_old: UserPtr,
    size: usize,
) -> Result<u64> {
    check_size(size)?;
    if !(1..=64).contains(&signo) {
        return Err(Errno::EINVAL);
    }
    let new: Option<KernelSigaction> = if user_new.is_null() { None } else { Some(user_new.read()?) };
    if new.is_some() && UNBLOCKABLE & bit(signo) != 0 {
        return Err(Errno::EINVAL);
    }
    let p = &a.thread.process;
    let handlers = p.signals.handlers();
    let old = {
        let mut actions = handlers.actions.lock();
        let slot = &mut actions[signo as usize - 1];
        let old = *slot;
        if let Some(n) = &new {
            *slot = Action {
                handler: n.handler,
                flags: ActionFlags::from_bits_truncate(n.flags),
                restorer: n.restorer,
                mask: n.mask & !UNBLOCKABLE,
            };
        }
        old
    };
    // A pending signal that is now ignored is forgotten.
    if new.is_some() && p.signals.action(signo).ignores(signo) {
        flush(p, bit(signo));
    }
    if !user_old.is_null() {
        let out = KernelSigaction {
            handler: old.handler,
            flags: old.flags.bits(),
            restorer: old.restorer,
            mask: old.mask,
        };
        user_old.write(&out)?;
    }
    Ok(0)
}

numbers! {
    /// What `rt_sigprocmask(2)` does with a set.
    enum How {
        Block = 0,
        Unblock = 1,
        Set = 2,
    }
}

fn rt_sigprocmask(a: &Args, how: Number<How>, new: UserPtr, user_old: UserPtr, size: usize) -> Result<u64> {
    check_size(size)?;
    let old = a.thread.signals.mask();
    if !new.is_null() {
        let set: u64 = new.read()?;
        let mask = match how.get()? {
            How::Block => old | set,
            How::Unblock => old & !set,
            How::Set => set,
        };
        set_mask(&a.thread, mask);
    }
    if !user_old.is_null() {
        user_old.write(&old)?;
    }
    Ok(0)
}

fn rt_sigreturn(a: &Args) -> Result<u64> {
    match frame::restore(&a.thread) {
        Ok(rax) => Ok(rax),
        Err(_) => {
            let mut regs = a.thread.task.regs();
            regs.orig_rax = u64::MAX;
            a.thread.task.set_regs(&regs);
            force(&a.thread, SigInfo::kernel(sig::SIGSEGV));
            Ok(0)
        }
    }
}

fn rt_sigpending(a: &Args, out: UserPtr, size: usize) -> Result<u64> {
    // Linux takes any size up to its own.
    if size > 8 {
        return Err(Errno::EINVAL);
    }
    let t = &a.thread;
    let set = (t.signals.pending() | t.process.signals.pending()) & t.signals.mask();
    out.write_bytes(&set.to_le_bytes()[..size])?;
    Ok(0)
}

fn rt_sigtimedwait(a: &Args, set: UserPtr, user_info: UserPtr, timeout: UserPtr, size: usize) -> Result<u64> {
    check_size(size)?;
    let set = set.read::<u64>()? & !UNBLOCKABLE;
    let deadline = if timeout.is_null() {
        None
    } else {
        let wait = timeout.read::<Timespec>()?.to_ns()?;
        Some(monotonic_ns().saturating_add(wait))
    };
    let t = &a.thread;
    let queue = t.process.signals.wait.clone();
    let info = sched::wait_until(&queue, deadline, || dequeue(t, set)).map_err(|e| match e {
        Errno::ETIMEDOUT => Errno::EAGAIN,
        _ => Errno::EINTR,
    })?;
    if !user_info.is_null() {
        user_info.write_bytes(&info.to_bytes())?;
    }
    Ok(info.signo as u64)
}

fn wait_for_signal(t: &Arc<Thread>) -> Result<u64> {
    while !t.interrupted() {
        sched::park(&**t, None);
    }
    Err(Errno::ERESTARTNOHAND)
}

fn rt_sigsuspend(a: &Args, user_mask: UserPtr, size: usize) -> Result<u64> {
    check_size(size)?;
    let mask: u64 = user_mask.read()?;
    set_temporary_mask(&a.thread, mask);
    wait_for_signal(&a.thread)
}

fn pause(a: &Args) -> Result<u64> {
    wait_for_signal(&a.thread)
}

fn sigaltstack(a: &Args, user_new: UserPtr, user_old: UserPtr) -> Result<u64> {
    let t = &a.thread;
    let sp = t.task.regs().rsp;
    let new: Option<StackT> = if user_new.is_null() { None } else { Some(user_new.read()?) };
    let old = StackT::of(&t.signals.private.lock().altstack, sp);
    if let Some(n) = new {
        set_altstack(
            t,
            AltStack { sp: n.sp, size: n.size, flags: AltStackFlags::from_bits_retain(n.flags) },
            sp,
        )?;
    }
    if !user_old.is_null() {
        user_old.write(&old)?;
    }
    Ok(0)
}

fn restart_syscall(a: &Args, _unused: u64) -> Result<u64> {
    let Some(mut f) = a.thread.restart.lock().take() else { return Err(Errno::EINTR) };
    let r = f();
    if r == Err(Errno::ERESTART_RESTARTBLOCK) {
        a.thread.restart.lock().get_or_insert(f);
    }
    r
}
