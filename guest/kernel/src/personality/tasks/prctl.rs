//! `prctl(2)`, `arch_prctl(2)`, capabilities, `kcmp(2)`.

use crate::personality::args::{HexInt, Request};
use crate::process::task::TASKS;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use doppel_machine::user::UserPtr;

use doppel_abi_linux::syscalls::nr;
use doppel_abi_machine::layout::USER_END;

use crate::core::subject::ALL_CAPS;
use crate::personality::Arg::{Hex, Int, Ptr};
use crate::personality::Support::Partial;
use crate::personality::tasks::cred::change;
use crate::personality::{Args, Syscall, call};
use crate::process::task::attrs::{MCE_DEFAULT, TIMER_SLACK};
use crate::{Errno, Result};

/// System calls of this module.
pub const CALLS: &[Syscall] = &[
    call(nr::PRCTL, sys_prctl, Partial, &[Int, Hex, Hex, Hex, Hex], "no PR_SET_MM"),
    call!(
        nr::ARCH_PRCTL,
        sys_arch_prctl(Request, UserPtr),
        Partial,
        "FS only: GS belongs to the guest kernel"
    ),
    call(
        nr::SECCOMP,
        crate::personality::tasks::seccomp::sys_seccomp,
        Partial,
        &[Int, Hex, Ptr],
        "no notification descriptors",
    ),
    call!(nr::KCMP, sys_kcmp(i32, i32, u32, HexInt, HexInt), Partial, "files, tables, memory"),
];

const CAP_SETPCAP: u32 = 8;
const CAP_SYS_RESOURCE: u32 = 24;
const SECURE_KEEP_CAPS: u32 = 1 << 4;
/// Securebits and their locks that exist.
const SECURE_ALL: u32 = 0xfff;
/// Those that need a privilege; the others bind only programs that ask.
const SECURE_PRIVILEGED: u32 = 0xff;
const SECURE_NO_AMBIENT_RAISE: u32 = 1 << 6;
const CAPS: u64 = 41;

/// The rest of the arguments must be zero.
fn zeros(a: &Args, from: usize) -> Result<()> {
    if (from..5).all(|i| a.u64(i) == 0) { Ok(()) } else { Err(Errno::EINVAL) }
}

fn flag(v: u64) -> Result<bool> {
    match v {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Errno::EINVAL),
    }
}

fn sys_prctl(a: &Args) -> Result<u64> {
    let p = &a.thread.process;
    let arg = a.u64(1);
    match a.u32(0) {
        pr::SET_PDEATHSIG => {
            if arg > 64 {
                return Err(Errno::EINVAL);
            }
            p.pdeathsig.store(arg as i32, Ordering::Relaxed);
            Ok(0)
        }
        pr::GET_PDEATHSIG => {
            a.ptr(1).write(&p.pdeathsig.load(Ordering::Relaxed))?;
            Ok(0)
        }
        pr::GET_DUMPABLE => Ok(u64::from(p.dumpable.load(Ordering::Relaxed).unsigned_abs())),
        pr::SET_DUMPABLE => {
            p.dumpable.store(i32::from(flag(arg)?), Ordering::Relaxed);
            Ok(0)
        }
        pr::SET_NAME => set_name(a),
        pr::GET_NAME => {
            let name = *a.thread.comm.lock();
            a.ptr(1).write(&name)?;
            Ok(0)
        }
        pr::SET_CHILD_SUBREAPER => {
            p.subreaper.store(arg != 0, Ordering::Relaxed);
            Ok(0)
        }
        pr::GET_CHILD_SUBREAPER => {
            a.ptr(1).write(&i32::from(p.subreaper.load(Ordering::Relaxed)))?;
            Ok(0)
        }
        pr::SET_NO_NEW_PRIVS => {
            zeros(a, 2)?;
            if arg != 1 {
                return Err(Errno::EINVAL);
            }
            p.no_new_privs.store(true, Ordering::Relaxed);
            Ok(0)
        }
        pr::GET_NO_NEW_PRIVS => {
            zeros(a, 1)?;
            Ok(u64::from(p.no_new_privs.load(Ordering::Relaxed)))
        }
        pr::GET_TID_ADDRESS => {
            a.ptr(1).write(&a.thread.clear_child_tid.load(Ordering::Relaxed))?;
            Ok(0)
        }
        pr::SET_THP_DISABLE => {
            zeros(a, 2)?;
            p.attrs.thp_disable.store(u32::from(arg != 0), Ordering::Relaxed);
            Ok(0)
        }
        pr::GET_THP_DISABLE => {
            zeros(a, 1)?;
            Ok(u64::from(p.attrs.thp_disable.load(Ordering::Relaxed)))
        }
        pr::SET_TIMERSLACK => {
            let slack = if arg == 0 { TIMER_SLACK } else { arg };
            a.thread.attrs.timer_slack.store(slack, Ordering::Relaxed);
            Ok(0)
        }
        pr::GET_TIMERSLACK => Ok(a.thread.attrs.timer_slack.load(Ordering::Relaxed)),
        op => machine(a, op),
    }
}

/// What belongs to the processor, and what is taken without effect.
fn machine(a: &Args, op: u32) -> Result<u64> {
    let p = &a.thread.process;
    let arg = a.u64(1);
    match op {
        // Statistical timing only.
        pr::GET_TIMING => Ok(0),
        pr::SET_TIMING if arg == 0 => Ok(0),
        // The counter is readable; a program cannot have it fault.
        pr::GET_TSC => {
            a.ptr(1).write(&1i32)?;
            Ok(0)
        }
        pr::SET_TSC if arg == 1 => Ok(0),
        pr::GET_SECCOMP => Ok(u64::from(a.thread.seccomp.status().0)),
        pr::SET_SECCOMP => crate::personality::tasks::seccomp::from_prctl(a),
        // There are no counters to turn off.
        pr::TASK_PERF_EVENTS_DISABLE | pr::TASK_PERF_EVENTS_ENABLE => Ok(0),
        pr::MCE_KILL => {
            zeros(a, 3)?;
            let policy = match (arg, a.u64(2)) {
                (0, 0) => MCE_DEFAULT,
                (1, policy @ 0..=2) => policy as u32,
                _ => return Err(Errno::EINVAL),
            };
            p.attrs.mce_kill.store(policy, Ordering::Relaxed);
            Ok(0)
        }
        pr::MCE_KILL_GET => zeros(a, 1).map(|()| u64::from(p.attrs.mce_kill.load(Ordering::Relaxed))),
        pr::SET_IO_FLUSHER | pr::GET_IO_FLUSHER => io_flusher(a, op == pr::SET_IO_FLUSHER),
        // Off is all there is.
        pr::SET_SYSCALL_USER_DISPATCH if arg == 0 => zeros(a, 2).map(|()| 0),
        pr::SET_MM => Err(Errno::EPERM),
        pr::GET_SPECULATION_CTRL => {
            zeros(a, 2)?;
            if arg <= 2 { Ok(0) } else { Err(Errno::ENODEV) }
        }
        // What the host does about speculation is not the program's to change.
        pr::SET_SPECULATION_CTRL => {
            zeros(a, 3)?;
            Err(if arg <= 2 { Errno::ENXIO } else { Errno::ENODEV })
        }
        // Names of anonymous memory: accepted, not shown.
        pr::SET_VMA if arg == 0 => Ok(0),
        pr::SET_PTRACER => Ok(0),
        op => caps(a, op),
    }
}

/// Whether the process helps to write pages back: kept, nothing else comes of it.
fn io_flusher(a: &Args, set: bool) -> Result<u64> {
    let flusher = &a.thread.process.attrs.io_flusher;
    if !a.thread.cred().capable(CAP_SYS_RESOURCE) {
        return Err(Errno::EPERM);
    }
    if !set {
        zeros(a, 1)?;
        return Ok(u64::from(flusher.load(Ordering::Relaxed)));
    }
    zeros(a, 2)?;
    flusher.store(u32::from(flag(a.u64(1))?), Ordering::Relaxed);
    Ok(0)
}

/// Operations on capabilities.
fn caps(a: &Args, op: u32) -> Result<u64> {
    let arg = a.u64(1);
    let cred = a.thread.cred();
    match op {
        pr::GET_KEEPCAPS => Ok(u64::from(cred.securebits & SECURE_KEEP_CAPS != 0)),
        pr::SET_KEEPCAPS => {
            let on = flag(arg)?;
            if cred.securebits & (SECURE_KEEP_CAPS << 1) != 0 {
                return Err(Errno::EPERM);
            }
            change(a, |c| {
                c.securebits = (c.securebits & !SECURE_KEEP_CAPS) | if on { SECURE_KEEP_CAPS } else { 0 };
                Ok(0)
            })
        }
        pr::CAPBSET_READ if arg < CAPS => Ok(cred.cap_bounding >> arg & 1),
        pr::CAPBSET_DROP if arg < CAPS => {
            if !cred.capable(CAP_SETPCAP) {
                return Err(Errno::EPERM);
            }
            change(a, |c| {
                c.cap_bounding &= !(1 << arg);
                Ok(0)
            })
        }
        pr::GET_SECUREBITS => Ok(u64::from(cred.securebits)),
        pr::SET_SECUREBITS => {
            let new = u32::try_from(arg).ok().filter(|n| n & !SECURE_ALL == 0).ok_or(Errno::EPERM)?;
            // A lock bit cannot be cleared, nor what it locks changed.
            let locked = cred.securebits & 0xaaa;
            let fixed = locked | locked >> 1;
            let changed = cred.securebits ^ new;
            let privileged = changed & SECURE_PRIVILEGED != 0 || changed == 0;
            if privileged && !cred.capable(CAP_SETPCAP) || changed & fixed != 0 {
                return Err(Errno::EPERM);
            }
            change(a, |c| {
                c.securebits = new;
                Ok(0)
            })
        }
        pr::CAP_AMBIENT => ambient(a),
        _ => Err(Errno::EINVAL),
    }
}

fn ambient(a: &Args) -> Result<u64> {
    const IS_SET: u64 = 1;
    const RAISE: u64 = 2;
    const LOWER: u64 = 3;
    const CLEAR_ALL: u64 = 4;
    let (op, cap) = (a.u64(1), a.u64(2));
    zeros(a, 3)?;
    if op == CLEAR_ALL {
        zeros(a, 2)?;
        return change(a, |c| {
            c.cap_ambient = 0;
            Ok(0)
        });
    }
    if cap >= CAPS {
        return Err(Errno::EINVAL);
    }
    let bit = 1u64 << cap & ALL_CAPS;
    change(a, |c| match op {
        IS_SET => Ok(u64::from(c.cap_ambient & bit != 0)),
        RAISE
            if c.cap_permitted & c.cap_inheritable & bit == 0
                || c.securebits & SECURE_NO_AMBIENT_RAISE != 0 =>
        {
            Err(Errno::EPERM)
        }
        RAISE => {
            c.cap_ambient |= bit;
            Ok(0)
        }
        LOWER => {
            c.cap_ambient &= !bit;
            Ok(0)
        }
        _ => Err(Errno::EINVAL),
    })
}

fn set_name(a: &Args) -> Result<u64> {
    let mut name = [0u8; 16];
    // Longer names are cut; the last byte stays NUL.
    let n = a.ptr(1).read_cstr(&mut name[..15])?.unwrap_or(15);
    name[n..].fill(0);
    *a.thread.comm.lock() = name;
    Ok(0)
}

fn sys_arch_prctl(a: &Args, Request(option): Request, address: UserPtr) -> Result<u64> {
    const SET_GS: u32 = 0x1001;
    const SET_FS: u32 = 0x1002;
    const GET_FS: u32 = 0x1003;
    const GET_GS: u32 = 0x1004;
    const GET_CPUID: u32 = 0x1011;
    const SET_CPUID: u32 = 0x1012;
    match option {
        SET_FS => {
            if address.0 >= USER_END {
                return Err(Errno::EPERM);
            }
            a.thread.task.set_fs_base(address.0);
            Ok(0)
        }
        GET_FS => {
            address.write(&a.thread.task.fs_base())?;
            Ok(0)
        }
        GET_GS => {
            address.write(&0u64)?;
            Ok(0)
        }
        SET_GS => Err(Errno::EINVAL),
        GET_CPUID => Ok(1),
        SET_CPUID => Err(Errno::ENODEV),
        // Shadow stacks (0x5001…), dynamic features of the FPU (0x1021…): not offered.
        _ => Err(Errno::EINVAL),
    }
}

fn sys_kcmp(
    _: &Args,
    pid1: i32,
    pid2: i32,
    kind: u32,
    HexInt(idx1): HexInt,
    HexInt(idx2): HexInt,
) -> Result<u64> {
    const FILE: u32 = 0;
    const VM: u32 = 1;
    const FILES: u32 = 2;
    const FS: u32 = 3;
    let p = TASKS.thread(pid1)?.process.clone();
    let q = TASKS.thread(pid2)?.process.clone();
    fn order<T: ?Sized>(x: &Arc<T>, y: &Arc<T>) -> u64 {
        match Arc::as_ptr(x).addr().cmp(&Arc::as_ptr(y).addr()) {
            core::cmp::Ordering::Equal => 0,
            core::cmp::Ordering::Less => 1,
            core::cmp::Ordering::Greater => 2,
        }
    }
    match kind {
        FILE => {
            let (x, y) = (p.files().get(idx1)?, q.files().get(idx2)?);
            Ok(order(&x, &y))
        }
        VM => Ok(order(&p.space(), &q.space())),
        FILES => Ok(order(&p.files(), &q.files())),
        FS => Ok(order(&p.fs(), &q.fs())),
        _ => Err(Errno::EINVAL),
    }
}

/// Operations of `prctl(2)`.
pub(crate) mod pr {
    pub const SET_PDEATHSIG: u32 = 1;
    pub const GET_PDEATHSIG: u32 = 2;
    pub const GET_DUMPABLE: u32 = 3;
    pub const SET_DUMPABLE: u32 = 4;
    pub const GET_KEEPCAPS: u32 = 7;
    pub const SET_KEEPCAPS: u32 = 8;
    pub const GET_TIMING: u32 = 13;
    pub const SET_TIMING: u32 = 14;
    pub const SET_NAME: u32 = 15;
    pub const GET_NAME: u32 = 16;
    pub const GET_SECCOMP: u32 = 21;
    pub const SET_SECCOMP: u32 = 22;
    pub const CAPBSET_READ: u32 = 23;
    pub const CAPBSET_DROP: u32 = 24;
    pub const GET_TSC: u32 = 25;
    pub const SET_TSC: u32 = 26;
    pub const GET_SECUREBITS: u32 = 27;
    pub const SET_SECUREBITS: u32 = 28;
    pub const SET_TIMERSLACK: u32 = 29;
    pub const GET_TIMERSLACK: u32 = 30;
    pub const TASK_PERF_EVENTS_DISABLE: u32 = 31;
    pub const TASK_PERF_EVENTS_ENABLE: u32 = 32;
    pub const MCE_KILL: u32 = 33;
    pub const MCE_KILL_GET: u32 = 34;
    pub const SET_MM: u32 = 35;
    pub const SET_CHILD_SUBREAPER: u32 = 36;
    pub const GET_CHILD_SUBREAPER: u32 = 37;
    pub const SET_NO_NEW_PRIVS: u32 = 38;
    pub const GET_NO_NEW_PRIVS: u32 = 39;
    pub const GET_TID_ADDRESS: u32 = 40;
    pub const SET_THP_DISABLE: u32 = 41;
    pub const GET_THP_DISABLE: u32 = 42;
    pub const CAP_AMBIENT: u32 = 47;
    pub const GET_SPECULATION_CTRL: u32 = 52;
    pub const SET_SPECULATION_CTRL: u32 = 53;
    pub const SET_IO_FLUSHER: u32 = 57;
    pub const GET_IO_FLUSHER: u32 = 58;
    pub const SET_SYSCALL_USER_DISPATCH: u32 = 59;
    pub const SET_VMA: u32 = 0x5356_4d41;
    pub const SET_PTRACER: u32 = 0x5961_6d61;
}
