//! `prctl(2)`, `arch_prctl(2)`, capabilities, `kcmp(2)`.

use crate::personality::args::{Bits, Code, HexInt, Number};
use crate::process::namespaces::numbers;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use doppel_machine::user::UserPtr;

use doppel_abi_linux::syscalls::nr;
use doppel_abi_machine::layout::USER_END;

use crate::core::numbers::numbers;
use crate::core::subject::ALL_CAPS;
use crate::personality::Support::Partial;
use crate::personality::tasks::cred::change;
use crate::personality::tasks::seccomp::{self, sys_seccomp};
use crate::personality::{Args, Syscall, call};
use crate::process::seccomp::FilterFlags;
use crate::process::task::attrs::{MCE_DEFAULT, TIMER_SLACK};
use crate::{Errno, Result};

/// System calls of this module.
pub const CALLS: &[Syscall] = &[
    call!(nr::PRCTL, sys_prctl(Number<Operation>, u64, u64, u64, u64), Partial, "no PR_SET_MM"),
    call!(
        nr::ARCH_PRCTL,
        sys_arch_prctl(Code<ArchOperation>, UserPtr),
        Partial,
        "FS only: GS belongs to the guest kernel"
    ),
    call!(
        nr::SECCOMP,
        sys_seccomp(Number<seccomp::Operation>, Bits<FilterFlags>, UserPtr),
        Partial,
        "no notification descriptors",
    ),
    call!(nr::KCMP, sys_kcmp(i32, i32, Number<Compared>, HexInt, HexInt), Partial, "files, tables, memory"),
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

numbers! {
    /// Operations of `prctl(2)`.
    enum Operation {
        SetParentDeathSignal = 1,
        GetParentDeathSignal = 2,
        GetDumpable = 3,
        SetDumpable = 4,
        GetKeepCaps = 7,
        SetKeepCaps = 8,
        GetTiming = 13,
        SetTiming = 14,
        SetName = 15,
        GetName = 16,
        GetSeccomp = 21,
        SetSeccomp = 22,
        CapBoundingRead = 23,
        CapBoundingDrop = 24,
        GetTsc = 25,
        SetTsc = 26,
        GetSecureBits = 27,
        SetSecureBits = 28,
        SetTimerSlack = 29,
        GetTimerSlack = 30,
        TaskPerfEventsDisable = 31,
        TaskPerfEventsEnable = 32,
        MceKill = 33,
        MceKillGet = 34,
        SetMm = 35,
        SetChildSubreaper = 36,
        GetChildSubreaper = 37,
        SetNoNewPrivs = 38,
        GetNoNewPrivs = 39,
        GetTidAddress = 40,
        SetThpDisable = 41,
        GetThpDisable = 42,
        CapAmbient = 47,
        GetSpeculationCtrl = 52,
        SetSpeculationCtrl = 53,
        SetIoFlusher = 57,
        GetIoFlusher = 58,
        SetSyscallUserDispatch = 59,
        SetVma = 0x5356_4d41,
        SetPtracer = 0x5961_6d61,
    }
}

/// The arguments of `prctl(2)` after the operation, which says what they mean.
#[derive(Clone, Copy)]
struct Operands([u64; 4]);

impl Operands {
    /// The first one, an address.
    fn user(self) -> UserPtr {
        UserPtr(self.0[0])
    }

    /// EINVAL unless all from `first` on are zero.
    fn zero_from(self, first: usize) -> Result<()> {
        if self.0[first..].iter().all(|v| *v == 0) { Ok(()) } else { Err(Errno::EINVAL) }
    }
}

fn flag(v: u64) -> Result<bool> {
    match v {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Errno::EINVAL),
    }
}

fn sys_prctl(
    a: &Args,
    operation: Number<Operation>,
    arg: u64,
    arg3: u64,
    arg4: u64,
    arg5: u64,
) -> Result<u64> {
    let rest = Operands([arg, arg3, arg4, arg5]);
    let p = &a.thread.process;
    match operation.get()? {
        Operation::SetParentDeathSignal => {
            if arg > 64 {
                return Err(Errno::EINVAL);
            }
            p.pdeathsig.store(arg as i32, Ordering::Relaxed);
            Ok(0)
        }
        Operation::GetParentDeathSignal => {
            rest.user().write(&p.pdeathsig.load(Ordering::Relaxed))?;
            Ok(0)
        }
        Operation::GetDumpable => Ok(u64::from(p.dumpable.load(Ordering::Relaxed).unsigned_abs())),
        Operation::SetDumpable => {
            p.dumpable.store(i32::from(flag(arg)?), Ordering::Relaxed);
            Ok(0)
        }
        Operation::SetName => set_name(a, rest.user()),
        Operation::GetName => {
            let name = *a.thread.comm.lock();
            rest.user().write(&name)?;
            Ok(0)
        }
        Operation::SetChildSubreaper => {
            p.subreaper.store(arg != 0, Ordering::Relaxed);
            Ok(0)
        }
        Operation::GetChildSubreaper => {
            rest.user().write(&i32::from(p.subreaper.load(Ordering::Relaxed)))?;
            Ok(0)
        }
        Operation::SetNoNewPrivs => {
            rest.zero_from(1)?;
            if arg != 1 {
                return Err(Errno::EINVAL);
            }
            p.no_new_privs.store(true, Ordering::Relaxed);
            Ok(0)
        }
        Operation::GetNoNewPrivs => {
            rest.zero_from(0)?;
            Ok(u64::from(p.no_new_privs.load(Ordering::Relaxed)))
        }
        Operation::GetTidAddress => {
            rest.user().write(&a.thread.clear_child_tid.load(Ordering::Relaxed))?;
            Ok(0)
        }
        Operation::SetThpDisable => {
            rest.zero_from(1)?;
            p.attrs.thp_disable.store(u32::from(arg != 0), Ordering::Relaxed);
            Ok(0)
        }
        Operation::GetThpDisable => {
            rest.zero_from(0)?;
            Ok(u64::from(p.attrs.thp_disable.load(Ordering::Relaxed)))
        }
        Operation::SetTimerSlack => {
            let slack = if arg == 0 { TIMER_SLACK } else { arg };
            a.thread.attrs.timer_slack.store(slack, Ordering::Relaxed);
            Ok(0)
        }
        Operation::GetTimerSlack => Ok(a.thread.attrs.timer_slack.load(Ordering::Relaxed)),
        op => machine(a, op, rest),
    }
}

/// What belongs to the processor, and what is taken without effect.
fn machine(a: &Args, op: Operation, rest: Operands) -> Result<u64> {
    let p = &a.thread.process;
    let [arg, arg3, ..] = rest.0;
    match op {
        // Statistical timing only.
        Operation::GetTiming => Ok(0),
        Operation::SetTiming if arg == 0 => Ok(0),
        // The counter is readable; a program cannot have it fault.
        Operation::GetTsc => {
            rest.user().write(&1i32)?;
            Ok(0)
        }
        Operation::SetTsc if arg == 1 => Ok(0),
        Operation::GetSeccomp => Ok(u64::from(a.thread.seccomp.status().0)),
        Operation::SetSeccomp => seccomp::from_prctl(a, arg, UserPtr(arg3)),
        // There are no counters to turn off.
        Operation::TaskPerfEventsDisable | Operation::TaskPerfEventsEnable => Ok(0),
        Operation::MceKill => {
            rest.zero_from(2)?;
            let policy = match (arg, arg3) {
                (0, 0) => MCE_DEFAULT,
                (1, policy @ 0..=2) => policy as u32,
                _ => return Err(Errno::EINVAL),
            };
            p.attrs.mce_kill.store(policy, Ordering::Relaxed);
            Ok(0)
        }
        Operation::MceKillGet => {
            rest.zero_from(0).map(|()| u64::from(p.attrs.mce_kill.load(Ordering::Relaxed)))
        }
        Operation::SetIoFlusher | Operation::GetIoFlusher => {
            io_flusher(a, rest, op == Operation::SetIoFlusher)
        }
        // Off is all there is.
        Operation::SetSyscallUserDispatch if arg == 0 => rest.zero_from(1).map(|()| 0),
        Operation::SetMm => Err(Errno::EPERM),
        Operation::GetSpeculationCtrl => {
            rest.zero_from(1)?;
            if arg <= 2 { Ok(0) } else { Err(Errno::ENODEV) }
        }
        // What the host does about speculation is not the program's to change.
        Operation::SetSpeculationCtrl => {
            rest.zero_from(2)?;
            Err(if arg <= 2 { Errno::ENXIO } else { Errno::ENODEV })
        }
        // Names of anonymous memory: accepted, not shown.
        Operation::SetVma if arg == 0 => Ok(0),
        Operation::SetPtracer => Ok(0),
        op => caps(a, op, rest),
    }
}

/// Whether the process helps to write pages back: kept, nothing else comes of it.
fn io_flusher(a: &Args, rest: Operands, set: bool) -> Result<u64> {
    let flusher = &a.thread.process.attrs.io_flusher;
    if !a.thread.cred().capable(CAP_SYS_RESOURCE) {
        return Err(Errno::EPERM);
    }
    if !set {
        rest.zero_from(0)?;
        return Ok(u64::from(flusher.load(Ordering::Relaxed)));
    }
    rest.zero_from(1)?;
    flusher.store(u32::from(flag(rest.0[0])?), Ordering::Relaxed);
    Ok(0)
}

/// Operations on capabilities.
fn caps(a: &Args, op: Operation, rest: Operands) -> Result<u64> {
    let arg = rest.0[0];
    let cred = a.thread.cred();
    match op {
        Operation::GetKeepCaps => Ok(u64::from(cred.securebits & SECURE_KEEP_CAPS != 0)),
        Operation::SetKeepCaps => {
            let on = flag(arg)?;
            if cred.securebits & (SECURE_KEEP_CAPS << 1) != 0 {
                return Err(Errno::EPERM);
            }
            change(a, |c| {
                c.securebits = (c.securebits & !SECURE_KEEP_CAPS) | if on { SECURE_KEEP_CAPS } else { 0 };
                Ok(0)
            })
        }
        Operation::CapBoundingRead if arg < CAPS => Ok(cred.cap_bounding >> arg & 1),
        Operation::CapBoundingDrop if arg < CAPS => {
            if !cred.has(CAP_SETPCAP) {
                return Err(Errno::EPERM);
            }
            change(a, |c| {
                c.cap_bounding &= !(1 << arg);
                Ok(0)
            })
        }
        Operation::GetSecureBits => Ok(u64::from(cred.securebits)),
        Operation::SetSecureBits => {
            let new = u32::try_from(arg).ok().filter(|n| n & !SECURE_ALL == 0).ok_or(Errno::EPERM)?;
            // A lock bit cannot be cleared, nor what it locks changed.
            let locked = cred.securebits & 0xaaa;
            let fixed = locked | locked >> 1;
            let changed = cred.securebits ^ new;
            let privileged = changed & SECURE_PRIVILEGED != 0 || changed == 0;
            if privileged && !cred.has(CAP_SETPCAP) || changed & fixed != 0 {
                return Err(Errno::EPERM);
            }
            change(a, |c| {
                c.securebits = new;
                Ok(0)
            })
        }
        Operation::CapAmbient => ambient(a, rest),
        _ => Err(Errno::EINVAL),
    }
}

numbers! {
    /// What PR_CAP_AMBIENT does with a capability.
    enum Ambient {
        IsSet = 1,
        Raise = 2,
        Lower = 3,
        ClearAll = 4,
    }
}

fn ambient(a: &Args, rest: Operands) -> Result<u64> {
    let [op, cap, ..] = rest.0;
    rest.zero_from(2)?;
    let op = Ambient::try_from(u32::try_from(op).map_err(|_| Errno::EINVAL)?)?;
    if op == Ambient::ClearAll {
        rest.zero_from(1)?;
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
        Ambient::IsSet => Ok(u64::from(c.cap_ambient & bit != 0)),
        Ambient::Raise
            if c.cap_permitted & c.cap_inheritable & bit == 0
                || c.securebits & SECURE_NO_AMBIENT_RAISE != 0 =>
        {
            Err(Errno::EPERM)
        }
        Ambient::Raise => {
            c.cap_ambient |= bit;
            Ok(0)
        }
        Ambient::Lower => {
            c.cap_ambient &= !bit;
            Ok(0)
        }
        Ambient::ClearAll => Err(Errno::EINVAL),
    })
}

fn set_name(a: &Args, user_name: UserPtr) -> Result<u64> {
    let mut name = [0u8; 16];
    // Longer names are cut; the last byte stays NUL.
    let n = user_name.read_cstr(&mut name[..15])?.unwrap_or(15);
    name[n..].fill(0);
    *a.thread.comm.lock() = name;
    Ok(0)
}

numbers! {
    /// Operations of `arch_prctl(2)`. Shadow stacks (0x5001…) and dynamic features of the FPU (0x1021…) are not offered.
    enum ArchOperation {
        SetGs = 0x1001,
        SetFs = 0x1002,
        GetFs = 0x1003,
        GetGs = 0x1004,
        GetCpuid = 0x1011,
        SetCpuid = 0x1012,
    }
}

fn sys_arch_prctl(a: &Args, operation: Code<ArchOperation>, address: UserPtr) -> Result<u64> {
    match operation.get()? {
        ArchOperation::SetFs => {
            if address.0 >= USER_END {
                return Err(Errno::EPERM);
            }
            a.thread.task.set_fs_base(address.0);
            Ok(0)
        }
        ArchOperation::GetFs => {
            address.write(&a.thread.task.fs_base())?;
            Ok(0)
        }
        ArchOperation::GetGs => {
            address.write(&0u64)?;
            Ok(0)
        }
        ArchOperation::SetGs => Err(Errno::EINVAL),
        ArchOperation::GetCpuid => Ok(1),
        ArchOperation::SetCpuid => Err(Errno::ENODEV),
    }
}

numbers! {
    /// What `kcmp(2)` compares of two processes.
    enum Compared {
        File = 0,
        Memory = 1,
        Files = 2,
        FileSystem = 3,
    }
}

fn sys_kcmp(
    _: &Args,
    pid1: i32,
    pid2: i32,
    kind: Number<Compared>,
    HexInt(idx1): HexInt,
    HexInt(idx2): HexInt,
) -> Result<u64> {
    let p = numbers::thread(pid1)?.process.clone();
    let q = numbers::thread(pid2)?.process.clone();
    fn order<T: ?Sized>(x: &Arc<T>, y: &Arc<T>) -> u64 {
        match Arc::as_ptr(x).addr().cmp(&Arc::as_ptr(y).addr()) {
            core::cmp::Ordering::Equal => 0,
            core::cmp::Ordering::Less => 1,
            core::cmp::Ordering::Greater => 2,
        }
    }
    match kind.get()? {
        Compared::File => {
            let (x, y) = (p.files().get(idx1)?, q.files().get(idx2)?);
            Ok(order(&x, &y))
        }
        Compared::Memory => Ok(order(&p.space(), &q.space())),
        Compared::Files => Ok(order(&p.files(), &q.files())),
        Compared::FileSystem => Ok(order(&p.fs(), &q.fs())),
    }
}
