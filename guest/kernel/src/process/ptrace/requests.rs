//! What a tracer asks for (`ptrace(2)`).

use crate::process::namespaces::numbers;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use doppel_abi_linux::signal::frame::SIGINFO_SIZE;
use doppel_machine::user::UserPtr;

use crate::core::numbers::numbers;
use crate::process::ptrace::regs;
use crate::process::ptrace::{Kind, Options, State, attach, event, flag};
use crate::process::signal::{self, SigInfo, sig};
use crate::process::task::{Process, Thread, remote};
use crate::{Errno, Result};

numbers! {
    /// Requests of `ptrace(2)`.
    pub(crate) enum Request {
        TraceMe = 0,
        PeekText = 1,
        PeekData = 2,
        PeekUser = 3,
        PokeText = 4,
        PokeData = 5,
        PokeUser = 6,
        Cont = 7,
        Kill = 8,
        SingleStep = 9,
        GetRegs = 12,
        SetRegs = 13,
        GetFpRegs = 14,
        SetFpRegs = 15,
        Attach = 16,
        Detach = 17,
        Syscall = 24,
        ArchPrctl = 30,
        SetOptions = 0x4200,
        GetEventMsg = 0x4201,
        GetSigInfo = 0x4202,
        SetSigInfo = 0x4203,
        GetRegSet = 0x4204,
        SetRegSet = 0x4205,
        Seize = 0x4206,
        Interrupt = 0x4207,
        Listen = 0x4208,
        GetSigMask = 0x420a,
        SetSigMask = 0x420b,
        GetSyscallInfo = 0x420e,
    }
}

/// Register sets (ELF note types).
const NT_PRSTATUS: u64 = 1;
const NT_PRFPREG: u64 = 2;
const NT_X86_XSTATE: u64 = 0x202;

pub(crate) fn put(p: UserPtr, bytes: &[u8]) -> Result<u64> {
    p.write_bytes(bytes)?;
    Ok(0)
}

pub(crate) fn get(p: UserPtr, len: usize) -> Result<Vec<u8>> {
    let mut b = alloc::vec![0; len];
    p.read_bytes(&mut b)?;
    Ok(b)
}

/// PTRACE_ATTACH, or PTRACE_SEIZE with options.
pub(crate) fn attach_to(me: &Arc<Process>, tid: i32, seize: Option<u64>) -> Result<u64> {
    let opts = seize.map(options).transpose().map_err(|_| Errno::EIO)?;
    let t = find(tid)?;
    if Arc::ptr_eq(me, &t.process) {
        return Err(Errno::EPERM);
    }
    remote::may_access(me, &t.process)?;
    if t.exiting.load(Ordering::SeqCst) || !attach(me, &t, opts.unwrap_or_default(), opts.is_some()) {
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

pub(crate) fn options(v: u64) -> Result<Options> {
    u32::try_from(v).ok().and_then(Options::from_bits).ok_or(Errno::EINVAL)
}

pub(crate) fn find(tid: i32) -> Result<Arc<Thread>> {
    numbers::thread(tid)
}

pub(crate) fn signal_arg(v: u64) -> Result<i32> {
    if v <= 64 { Ok(v as i32) } else { Err(Errno::EIO) }
}

pub(crate) fn resume(t: &Arc<Thread>, request: Request, data: u64) -> Result<u64> {
    let signal = signal_arg(data)?;
    {
        let mut s = t.ptrace.state.lock();
        if s.stop.is_none() {
            return Err(Errno::ESRCH);
        }
        t.ptrace.set_flag(flag::SYSCALL, request == Request::Syscall);
        t.ptrace.set_flag(flag::STEP, request == Request::SingleStep);
        regs::set_trap_flag(t, request == Request::SingleStep);
        s.stop = None;
        s.signal = signal;
    }
    t.unpark();
    Ok(0)
}

/// Keeps a tracee in its group stop, but lets SIGCONT end it.
pub(crate) fn listen(t: &Arc<Thread>) -> Result<u64> {
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

/// The `struct iovec` at `p`.
fn iovec(p: UserPtr) -> Result<(UserPtr, usize)> {
    let (base, len): (u64, u64) = (p.read()?, p.add(8).read()?);
    Ok((UserPtr(base), len as usize))
}

pub(crate) fn get_regset(t: &Thread, which: u64, iov: UserPtr) -> Result<u64> {
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

pub(crate) fn set_regset(t: &Thread, which: u64, iov: UserPtr) -> Result<u64> {
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

pub(crate) fn arch_prctl(t: &Thread, code: u64, addr: u64) -> Result<u64> {
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

pub(crate) fn set_siginfo(t: &Thread, p: UserPtr) -> Result<u64> {
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
pub(crate) fn syscall_info(t: &Thread, room: usize, to: UserPtr) -> Result<u64> {
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
