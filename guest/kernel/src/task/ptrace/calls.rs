//! ptrace(2): the tracer's requests.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use doppel_abi_linux::signal::frame::SIGINFO_SIZE;
use doppel_abi_linux::syscalls::nr;
use doppel_machine::user::UserPtr;

use super::regs::{self, GREGS};
use super::{Kind, State, attach, detach, event, flag, option};
use crate::signal::{self, SigInfo, sig};
use crate::syscall::Arg::{Hex, Int, Ptr};
use crate::syscall::Support::Partial;
use crate::syscall::{Args, Syscall, call};
use crate::task::{Process, Thread, remote};
use crate::{Errno, Result, kernel};

/// Tracing.
pub const CALLS: &[Syscall] = &[call(
    nr::PTRACE,
    sys_ptrace,
    Partial,
    &[Hex, Int, Ptr, Ptr],
    "no hardware breakpoints, no SYSEMU; the tracer is a whole process",
)];

#[allow(missing_docs)]
mod req {
    pub const TRACEME: u32 = 0;
    pub const PEEKTEXT: u32 = 1;
    pub const PEEKDATA: u32 = 2;
    pub const PEEKUSER: u32 = 3;
    pub const POKETEXT: u32 = 4;
    pub const POKEDATA: u32 = 5;
    pub const POKEUSER: u32 = 6;
    pub const CONT: u32 = 7;
    pub const KILL: u32 = 8;
    pub const SINGLESTEP: u32 = 9;
    pub const GETREGS: u32 = 12;
    pub const SETREGS: u32 = 13;
    pub const GETFPREGS: u32 = 14;
    pub const SETFPREGS: u32 = 15;
    pub const ATTACH: u32 = 16;
    pub const DETACH: u32 = 17;
    pub const SYSCALL: u32 = 24;
    pub const ARCH_PRCTL: u32 = 30;
    pub const SETOPTIONS: u32 = 0x4200;
    pub const GETEVENTMSG: u32 = 0x4201;
    pub const GETSIGINFO: u32 = 0x4202;
    pub const SETSIGINFO: u32 = 0x4203;
    pub const GETREGSET: u32 = 0x4204;
    pub const SETREGSET: u32 = 0x4205;
    pub const SEIZE: u32 = 0x4206;
    pub const INTERRUPT: u32 = 0x4207;
    pub const LISTEN: u32 = 0x4208;
    pub const GETSIGMASK: u32 = 0x420a;
    pub const SETSIGMASK: u32 = 0x420b;
    pub const GET_SYSCALL_INFO: u32 = 0x420e;
}

/// Register sets (ELF note types).
const NT_PRSTATUS: u64 = 1;
const NT_PRFPREG: u64 = 2;
const NT_X86_XSTATE: u64 = 0x202;

/// `offsetof(struct user, u_debugreg)` and the size of `struct user`.
const DEBUGREG: u64 = 848;
const USER_SIZE: u64 = 912;

fn sys_ptrace(a: &Args) -> Result<u64> {
    let me = &a.thread.process;
    let request = a.u32(0);
    match request {
        req::TRACEME => return trace_me(&a.thread),
        req::ATTACH => return attach_to(me, a.i32(1), None),
        req::SEIZE if a.u64(2) != 0 => return Err(Errno::EIO),
        req::SEIZE => return attach_to(me, a.i32(1), Some(a.u64(3))),
        _ => {}
    }
    let t = tracee(me, a.i32(1))?;
    match request {
        req::KILL => {
            signal::terminate(&t.process, sig::SIGKILL);
            return Ok(0);
        }
        req::INTERRUPT => return interrupt(&t),
        _ => {}
    }
    stopped(&t)?;
    let (addr, data) = (a.u64(2), a.u64(3));
    match request {
        req::CONT | req::SYSCALL | req::SINGLESTEP => resume(&t, request, data),
        req::DETACH => {
            detach(me, &t, signal_arg(data)?);
            Ok(0)
        }
        req::LISTEN => listen(&t),
        req::PEEKTEXT | req::PEEKDATA => peek(&t.process, addr, UserPtr(data)),
        req::POKETEXT | req::POKEDATA => poke(&t.process, addr, data),
        req::PEEKUSER => peek_user(&t, addr, UserPtr(data)),
        req::POKEUSER => poke_user(&t, addr, data),
        req::GETREGS => put(UserPtr(data), &regs::general_bytes(&t)),
        req::SETREGS => regs::set_general_bytes(&t, &get(UserPtr(data), GREGS)?).map(|()| 0),
        req::GETFPREGS => put(UserPtr(data), &regs::fp_bytes(&t)),
        req::SETFPREGS => regs::set_fp_bytes(&t, &get(UserPtr(data), regs::FPREGS)?).map(|()| 0),
        req::GETREGSET => get_regset(&t, addr, UserPtr(data)),
        req::SETREGSET => set_regset(&t, addr, UserPtr(data)),
        req::ARCH_PRCTL => arch_prctl(&t, data, addr),
        req::SETOPTIONS => {
            t.ptrace.state.lock().options = options(data)?;
            Ok(0)
        }
        req::GETEVENTMSG => {
            let m = t.ptrace.state.lock().message;
            put(UserPtr(data), &m.to_le_bytes())
        }
        req::GETSIGINFO => {
            let info = t.ptrace.state.lock().stop.and_then(|s| s.info).ok_or(Errno::EINVAL)?;
            put(UserPtr(data), &info.to_bytes())
        }
        req::SETSIGINFO => set_siginfo(&t, UserPtr(data)),
        req::GETSIGMASK if addr == 8 => put(UserPtr(data), &t.signals.mask().to_le_bytes()),
        req::SETSIGMASK if addr == 8 => {
            let mask: u64 = UserPtr(data).read()?;
            t.signals.mask.store(mask & !signal::UNBLOCKABLE, Ordering::SeqCst);
            signal::retarget(&t.process);
            t.task.post_work();
            Ok(0)
        }
        req::GETSIGMASK | req::SETSIGMASK => Err(Errno::EINVAL),
        req::GET_SYSCALL_INFO => syscall_info(&t, addr as usize, UserPtr(data)),
        _ => Err(Errno::EIO),
    }
}

fn put(p: UserPtr, bytes: &[u8]) -> Result<u64> {
    p.write_bytes(bytes)?;
    Ok(0)
}

fn get(p: UserPtr, len: usize) -> Result<Vec<u8>> {
    let mut b = alloc::vec![0; len];
    p.read_bytes(&mut b)?;
    Ok(b)
}

fn trace_me(t: &Arc<Thread>) -> Result<u64> {
    let parent = t.process.parent().ok_or(Errno::EPERM)?;
    if attach(&parent, t, 0, false) { Ok(0) } else { Err(Errno::EPERM) }
}

/// PTRACE_ATTACH, or PTRACE_SEIZE with options.
fn attach_to(me: &Arc<Process>, tid: i32, seize: Option<u64>) -> Result<u64> {
    let opts = seize.map(options).transpose().map_err(|_| Errno::EIO)?;
    let t = find(tid)?;
    if Arc::ptr_eq(me, &t.process) {
        return Err(Errno::EPERM);
    }
    remote::may_access(me, &t.process)?;
    if t.exiting.load(Ordering::SeqCst) || !attach(me, &t, opts.unwrap_or(0), opts.is_some()) {
        return Err(Errno::EPERM);
    }
    if opts.is_none() {
        // A standard signal is pending at worst without details.
        let _ = signal::send_thread(&t, SigInfo::from_user(sig::SIGSTOP, 0, 0, 0, 0));
    }
    if t.process.signals.is_stopped() {
        t.notify();
    }
    Ok(0)
}

fn options(v: u64) -> Result<u32> {
    u32::try_from(v).ok().filter(|o| o & !option::ALL == 0).ok_or(Errno::EINVAL)
}

fn find(tid: i32) -> Result<Arc<Thread>> {
    kernel().threads.lock().get(&tid).cloned().ok_or(Errno::ESRCH)
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

fn signal_arg(v: u64) -> Result<i32> {
    if v <= 64 { Ok(v as i32) } else { Err(Errno::EIO) }
}

fn resume(t: &Arc<Thread>, request: u32, data: u64) -> Result<u64> {
    let signal = signal_arg(data)?;
    {
        let mut s = t.ptrace.state.lock();
        if s.stop.is_none() {
            return Err(Errno::ESRCH);
        }
        t.ptrace.set_flag(flag::SYSCALL, request == req::SYSCALL);
        t.ptrace.set_flag(flag::STEP, request == req::SINGLESTEP);
        regs::set_trap_flag(t, request == req::SINGLESTEP);
        s.stop = None;
        s.signal = signal;
    }
    t.unpark();
    Ok(0)
}

fn interrupt(t: &Arc<Thread>) -> Result<u64> {
    if !t.ptrace.state.lock().seized {
        return Err(Errno::EIO);
    }
    t.ptrace.interrupt.store(true, Ordering::SeqCst);
    t.notify();
    Ok(0)
}

/// Keeps a tracee in its group stop, but lets SIGCONT end it.
fn listen(t: &Arc<Thread>) -> Result<u64> {
    {
        let mut s = t.ptrace.state.lock();
        let State { seized, stop, .. } = &mut *s;
        match stop {
            Some(stop) if *seized && stop.code >> 8 == event::STOP => stop.listening = true,
            _ => return Err(Errno::EIO),
        }
    }
    // It looks whether the group stop is over already.
    t.unpark();
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

/// The `struct iovec` at `p`.
fn iovec(p: UserPtr) -> Result<(UserPtr, usize)> {
    let (base, len): (u64, u64) = (p.read()?, p.add(8).read()?);
    Ok((UserPtr(base), len as usize))
}

fn get_regset(t: &Thread, which: u64, iov: UserPtr) -> Result<u64> {
    let bytes = match which {
        NT_PRSTATUS => regs::general_bytes(t),
        NT_PRFPREG => regs::fp_bytes(t),
        NT_X86_XSTATE => regs::xstate_bytes(t),
        _ => return Err(Errno::EINVAL),
    };
    let (base, len) = iovec(iov)?;
    if !len.is_multiple_of(8) {
        return Err(Errno::EINVAL);
    }
    let n = len.min(bytes.len());
    base.write_bytes(&bytes[..n])?;
    iov.add(8).write(&(n as u64))?;
    Ok(0)
}

fn set_regset(t: &Thread, which: u64, iov: UserPtr) -> Result<u64> {
    let (base, len) = iovec(iov)?;
    if !len.is_multiple_of(8) {
        return Err(Errno::EINVAL);
    }
    let bytes = get(base, len.min(doppel_machine::xstate::XSAVE_SIZE))?;
    match which {
        NT_PRSTATUS => regs::set_general_bytes(t, &bytes)?,
        NT_PRFPREG => regs::set_fp_bytes(t, &bytes)?,
        NT_X86_XSTATE => regs::set_xstate_bytes(t, &bytes)?,
        _ => return Err(Errno::EINVAL),
    }
    iov.add(8).write(&(bytes.len() as u64))?;
    Ok(0)
}

fn arch_prctl(t: &Thread, code: u64, addr: u64) -> Result<u64> {
    const SET_FS: u64 = 0x1002;
    const GET_FS: u64 = 0x1003;
    let mut r = regs::general(t);
    match code {
        GET_FS => put(UserPtr(addr), &r.words[21].to_le_bytes()),
        SET_FS => {
            r.words[21] = addr;
            regs::set_general(t, &r).map_err(|_| Errno::EPERM).map(|()| 0)
        }
        _ => Err(Errno::EINVAL),
    }
}

fn set_siginfo(t: &Thread, p: UserPtr) -> Result<u64> {
    let mut b = [0u8; SIGINFO_SIZE];
    p.read_bytes(&mut b)?;
    let signo = i32::from_le_bytes([b[0], b[1], b[2], b[3]]);
    let mut s = t.ptrace.state.lock();
    let State { stop, replaced, .. } = &mut *s;
    let info = stop.as_mut().and_then(|s| s.info.as_mut()).ok_or(Errno::EINVAL)?;
    // What a debugger only read and wrote back keeps its details.
    if info.to_bytes() != b {
        *info = SigInfo::from_bytes(signo, &b);
        *replaced = Some(*info);
    }
    Ok(0)
}

/// PTRACE_GET_SYSCALL_INFO: copies at most `room` bytes, gives how many there are.
fn syscall_info(t: &Thread, room: usize, to: UserPtr) -> Result<u64> {
    const ARCH_X86_64: u32 = 0xc000_003e;
    let r = regs::general(t);
    let kind = t.ptrace.state.lock().stop.map(|s| s.kind);
    let mut b = [0u8; 88];
    let mut at = |i: usize, v: &[u8]| b[i..i + v.len()].copy_from_slice(v);
    at(4, &ARCH_X86_64.to_le_bytes());
    at(8, &r.words[16].to_le_bytes());
    at(16, &r.words[19].to_le_bytes());
    let len = match kind {
        Some(Kind::Enter) => {
            at(0, &[1]);
            // orig_rax, then rdi rsi rdx r10 r8 r9.
            for (i, w) in [15, 14, 13, 12, 7, 9, 8].into_iter().enumerate() {
                at(24 + 8 * i, &r.words[w].to_le_bytes());
            }
            80
        }
        Some(Kind::Leave) => {
            at(0, &[2]);
            at(24, &r.words[10].to_le_bytes());
            at(32, &[u8::from((-4095..0).contains(&r.words[10].cast_signed()))]);
            33
        }
        _ => 24,
    };
    to.write_bytes(&b[..room.min(len)])?;
    Ok(len as u64)
}
