//! `ptrace(2)`.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use doppel_abi_linux::syscalls::nr;
use doppel_machine::user::UserPtr;

use crate::personality::Support::Partial;
use crate::personality::args::Code;
use crate::personality::{Args, Syscall, call};
use crate::process::ptrace::regs;
use crate::process::ptrace::regs::GREGS;
use crate::process::ptrace::requests::{
    Request, arch_prctl, attach_to, find, get, get_regset, listen, options, put, resume, set_regset,
    set_siginfo, signal_arg, syscall_info,
};
use crate::process::ptrace::{Options, attach, detach};
use crate::process::signal::{self, sig};
use crate::process::task::{Process, Thread, remote};
use crate::{Errno, Result};

/// Tracing.
pub const CALLS: &[Syscall] = &[call!(
    nr::PTRACE,
    sys_ptrace(Code<Request>, i32, UserPtr, UserPtr),
    Partial,
    "no hardware breakpoints, no SYSEMU; the tracer is a whole process",
)];

/// `offsetof(struct user, u_debugreg)` and the size of `struct user`.
const DEBUGREG: u64 = 848;
const USER_SIZE: u64 = 912;

fn sys_ptrace(
    a: &Args,
    request: Code<Request>,
    pid: i32,
    UserPtr(addr): UserPtr,
    UserPtr(data): UserPtr,
) -> Result<u64> {
    let me = &a.thread.process;
    let request = request.get();
    match request {
        Ok(Request::TraceMe) => return trace_me(&a.thread),
        Ok(Request::Attach) => return attach_to(me, pid, None),
        Ok(Request::Seize) if addr != 0 => return Err(Errno::EIO),
        Ok(Request::Seize) => return attach_to(me, pid, Some(data)),
        _ => {}
    }
    let t = tracee(me, pid)?;
    match request {
        Ok(Request::Kill) => {
            signal::terminate(&t.process, sig::SIGKILL);
            return Ok(0);
        }
        Ok(Request::Interrupt) => return interrupt(&t),
        _ => {}
    }
    stopped(&t)?;
    let request = request.map_err(|_| Errno::EIO)?;
    match request {
        Request::Cont | Request::Syscall | Request::SingleStep => resume(&t, request, data),
        Request::Detach => {
            detach(me, &t, signal_arg(data)?);
            Ok(0)
        }
        Request::Listen => listen(&t),
        Request::PeekText | Request::PeekData => peek(&t.process, addr, UserPtr(data)),
        Request::PokeText | Request::PokeData => poke(&t.process, addr, data),
        Request::PeekUser => peek_user(&t, addr, UserPtr(data)),
        Request::PokeUser => poke_user(&t, addr, data),
        Request::GetRegs => put(UserPtr(data), &regs::general_bytes(&t)),
        Request::SetRegs => regs::set_general_bytes(&t, &get(UserPtr(data), GREGS)?).map(|()| 0),
        Request::GetFpRegs => put(UserPtr(data), &regs::fp_bytes(&t)),
        Request::SetFpRegs => regs::set_fp_bytes(&t, &get(UserPtr(data), regs::FPREGS)?).map(|()| 0),
        Request::GetRegSet => get_regset(&t, addr, UserPtr(data)),
        Request::SetRegSet => set_regset(&t, addr, UserPtr(data)),
        Request::ArchPrctl => arch_prctl(&t, data, addr),
        Request::SetOptions => {
            t.ptrace.state.lock().options = options(data)?;
            Ok(0)
        }
        Request::GetEventMsg => {
            let m = t.ptrace.state.lock().message;
            put(UserPtr(data), &m.to_le_bytes())
        }
        Request::GetSigInfo => {
            let info = t.ptrace.state.lock().stop.and_then(|s| s.info).ok_or(Errno::EINVAL)?;
            put(UserPtr(data), &info.to_bytes())
        }
        Request::SetSigInfo => set_siginfo(&t, UserPtr(data)),
        Request::GetSigMask if addr == 8 => put(UserPtr(data), &t.signals.mask().to_le_bytes()),
        Request::SetSigMask if addr == 8 => {
            let mask: u64 = UserPtr(data).read()?;
            t.signals.mask.store(mask & !signal::UNBLOCKABLE, Ordering::SeqCst);
            signal::retarget(&t.process);
            t.task.post_work();
            Ok(0)
        }
        Request::GetSigMask | Request::SetSigMask => Err(Errno::EINVAL),
        Request::GetSyscallInfo => syscall_info(&t, addr as usize, UserPtr(data)),
        Request::TraceMe | Request::Attach | Request::Seize | Request::Kill | Request::Interrupt => {
            Err(Errno::EIO)
        }
    }
}

fn trace_me(t: &Arc<Thread>) -> Result<u64> {
    let parent = t.process.parent().ok_or(Errno::EPERM)?;
    if attach(&parent, t, Options::empty(), false) { Ok(0) } else { Err(Errno::EPERM) }
}

/// A thread this process traces.
fn tracee(me: &Arc<Process>, tid: i32) -> Result<Arc<Thread>> {
    let t = find(tid)?;
    let mine = t.ptrace.tracer().is_some_and(|q| Arc::ptr_eq(&q, me));
    if mine { Ok(t) } else { Err(Errno::ESRCH) }
}

/// ESRCH unless the tracee is stopped and listens; then it has also left its vCPU.
fn stopped(t: &Arc<Thread>) -> Result<()> {
    {
        let s = t.ptrace.state.lock();
        if s.stop.is_none_or(|s| s.listening) {
            return Err(Errno::ESRCH);
        }
    }
    Ok(())
}

fn interrupt(t: &Arc<Thread>) -> Result<u64> {
    if !t.ptrace.state.lock().seized {
        return Err(Errno::EIO);
    }
    t.ptrace.interrupt.store(true, Ordering::SeqCst);
    t.notify();
    Ok(0)
}

fn peek(p: &Arc<Process>, addr: u64, to: UserPtr) -> Result<u64> {
    let b = remote::read_forced(p, addr, 8).map_err(|_| Errno::EIO)?;
    if b.len() < 8 {
        return Err(Errno::EIO);
    }
    put(to, &b)
}

fn poke(p: &Arc<Process>, addr: u64, word: u64) -> Result<u64> {
    match remote::write_forced(p, addr, word.to_le_bytes().to_vec()) {
        Ok(8) => Ok(0),
        _ => Err(Errno::EIO),
    }
}

/// The registers and debug registers of `struct user`.
fn peek_user(t: &Thread, offset: u64, to: UserPtr) -> Result<u64> {
    if !offset.is_multiple_of(8) || offset >= USER_SIZE {
        return Err(Errno::EIO);
    }
    let word = regs::general(t).words.get(offset as usize / 8).copied().unwrap_or(0);
    put(to, &word.to_le_bytes())
}

fn poke_user(t: &Thread, offset: u64, word: u64) -> Result<u64> {
    if !offset.is_multiple_of(8) || offset >= USER_SIZE {
        return Err(Errno::EIO);
    }
    let mut r = regs::general(t);
    match r.words.get_mut(offset as usize / 8) {
        Some(w) => *w = word,
        // No hardware breakpoints: they can only be switched off.
        None => return if offset >= DEBUGREG && word == 0 { Ok(0) } else { Err(Errno::EIO) },
    }
    regs::set_general(t, &r).map(|()| 0)
}
