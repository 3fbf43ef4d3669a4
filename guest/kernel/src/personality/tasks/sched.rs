//! Scheduling attributes (`sched(7)`): kept and read back; the guest scheduler serves all threads alike.

use crate::process::task::TASKS;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use doppel_abi_linux::syscalls::nr;
use doppel_machine::pod_struct;
use doppel_machine::user::bytes_of;

use crate::core::time::{TICK_NS, Timespec};
use crate::personality::Arg::{Hex, Int, Ptr};
use crate::personality::Support::{Full, Partial};
use crate::personality::{Args, Syscall, call};
use crate::process::task::Thread;
use crate::process::task::attrs::all_cpus;
use crate::process::task::version::read_sized;
use crate::process::task::yield_now;
use crate::{Errno, Result};

const KEPT: &str = "kept, without effect on scheduling";

/// System calls of this module.
pub const CALLS: &[Syscall] = &[
    call!(nr::SCHED_YIELD, sys_sched_yield(), Full, ""),
    call(nr::SCHED_SETAFFINITY, sys_setaffinity, Partial, &[Int, Int, Ptr], KEPT),
    call(nr::SCHED_GETAFFINITY, sys_getaffinity, Full, &[Int, Int, Ptr], ""),
    call(nr::SCHED_SETPARAM, sys_setparam, Partial, &[Int, Ptr], KEPT),
    call(nr::SCHED_GETPARAM, sys_getparam, Full, &[Int, Ptr], ""),
    call(nr::SCHED_SETSCHEDULER, sys_setscheduler, Partial, &[Int, Int, Ptr], KEPT),
    call(nr::SCHED_GETSCHEDULER, sys_getscheduler, Full, &[Int], ""),
    call(nr::SCHED_SETATTR, sys_setattr, Partial, &[Int, Ptr, Hex], KEPT),
    call(nr::SCHED_GETATTR, sys_getattr, Full, &[Int, Ptr, Int, Hex], ""),
    call(nr::SCHED_GET_PRIORITY_MAX, |a| priority_range(a).map(|r| r.1), Full, &[Int], ""),
    call(nr::SCHED_GET_PRIORITY_MIN, |a| priority_range(a).map(|r| r.0), Full, &[Int], ""),
    call(nr::SCHED_RR_GET_INTERVAL, sys_rr_get_interval, Full, &[Int, Ptr], ""),
    call(nr::IOPRIO_SET, sys_ioprio_set, Partial, &[Int, Int, Hex], "kept, without effect"),
    call(nr::IOPRIO_GET, sys_ioprio_get, Full, &[Int, Int], ""),
];

const SCHED_OTHER: u32 = 0;
const SCHED_FIFO: u32 = 1;
const SCHED_RR: u32 = 2;
const SCHED_BATCH: u32 = 3;
const SCHED_IDLE: u32 = 5;
const SCHED_DEADLINE: u32 = 6;
const SCHED_RESET_ON_FORK: u32 = 0x4000_0000;
const CAP_SYS_NICE: u32 = 23;
/// Bytes of the affinity mask the kernel keeps.
const MASK_BYTES: usize = 8;

/// The thread argument 0 names; 0 is the caller.
fn target(a: &Args) -> Result<Arc<Thread>> {
    match a.i32(0) {
        0 => Ok(a.thread.clone()),
        n if n < 0 => Err(Errno::EINVAL),
        n => TASKS.thread(n),
    }
}

fn sys_sched_yield(_: &Args) -> Result<u64> {
    yield_now();
    Ok(0)
}

/// EPERM unless the caller may change `t`'s scheduling.
fn may_change(a: &Args, t: &Thread) -> Result<()> {
    let (c, o) = (a.thread.cred(), t.cred());
    let ok = c.euid == o.euid || c.euid == o.ruid || c.capable(CAP_SYS_NICE);
    if ok { Ok(()) } else { Err(Errno::EPERM) }
}

fn sys_setaffinity(a: &Args) -> Result<u64> {
    let mut b = [0; MASK_BYTES];
    let n = a.u32(1) as usize;
    a.ptr(2).read_bytes(&mut b[..n.min(MASK_BYTES)])?;
    let t = target(a).map_err(|_| Errno::ESRCH)?;
    may_change(a, &t)?;
    let mask = u64::from_le_bytes(b) & all_cpus();
    if mask == 0 {
        return Err(Errno::EINVAL);
    }
    t.attrs.sched.lock().affinity = mask;
    Ok(0)
}

fn sys_getaffinity(a: &Args) -> Result<u64> {
    let n = a.u32(1) as usize;
    if n < MASK_BYTES || !n.is_multiple_of(8) {
        return Err(Errno::EINVAL);
    }
    let t = target(a).map_err(|_| Errno::ESRCH)?;
    let mask = t.attrs.sched.lock().affinity & all_cpus();
    a.ptr(2).write(&mask)?;
    Ok(MASK_BYTES as u64)
}

/// Checks policy and priority and stores them.
fn set_policy(a: &Args, t: &Thread, policy: u32, priority: i32, reset: bool) -> Result<u64> {
    let range = match policy {
        SCHED_FIFO | SCHED_RR => 1..=99,
        SCHED_OTHER | SCHED_BATCH | SCHED_IDLE => 0..=0,
        _ => return Err(Errno::EINVAL),
    };
    if !range.contains(&priority) {
        return Err(Errno::EINVAL);
    }
    may_change(a, t)?;
    let c = a.thread.cred();
    let real_time = t.process.rlimit(crate::process::task::rlimit::RTPRIO);
    if priority > 0 && u64::from(priority.unsigned_abs()) > real_time && !c.capable(CAP_SYS_NICE) {
        return Err(Errno::EPERM);
    }
    let mut s = t.attrs.sched.lock();
    (s.policy, s.priority, s.reset_on_fork) = (policy, priority, reset);
    Ok(0)
}

fn sys_setscheduler(a: &Args) -> Result<u64> {
    if a.i32(1) < 0 || a.ptr(2).is_null() {
        return Err(Errno::EINVAL);
    }
    let policy = a.u32(1);
    let priority = a.ptr(2).read::<i32>()?;
    let t = target(a)?;
    set_policy(a, &t, policy & !SCHED_RESET_ON_FORK, priority, policy & SCHED_RESET_ON_FORK != 0)
}

fn sys_setparam(a: &Args) -> Result<u64> {
    if a.ptr(1).is_null() {
        return Err(Errno::EINVAL);
    }
    let priority = a.ptr(1).read::<i32>()?;
    let t = target(a)?;
    let s = *t.attrs.sched.lock();
    set_policy(a, &t, s.policy, priority, s.reset_on_fork)
}

fn sys_getparam(a: &Args) -> Result<u64> {
    if a.ptr(1).is_null() {
        return Err(Errno::EINVAL);
    }
    let priority = target(a)?.attrs.sched.lock().priority;
    a.ptr(1).write(&priority)?;
    Ok(0)
}

fn sys_getscheduler(a: &Args) -> Result<u64> {
    let t = target(a)?;
    let s = *t.attrs.sched.lock();
    Ok(u64::from(s.policy | if s.reset_on_fork { SCHED_RESET_ON_FORK } else { 0 }))
}

pod_struct! {
    /// `struct sched_attr`.
    pub struct SchedAttr {
        /// Size of the structure.
        pub size: u32,
        /// Policy.
        pub policy: u32,
        /// SCHED_FLAG_*.
        pub flags: u64,
        /// Nice value.
        pub nice: i32,
        /// Real-time priority.
        pub priority: u32,
        /// SCHED_DEADLINE.
        pub runtime: u64,
        /// SCHED_DEADLINE.
        pub deadline: u64,
        /// SCHED_DEADLINE.
        pub period: u64,
        /// Utilisation hints.
        pub util_min: u32,
        /// Utilisation hints.
        pub util_max: u32,
    }
}

/// SCHED_FLAG_*.
mod flag {
    pub const RESET_ON_FORK: u64 = 1;
    pub const KEEP_POLICY: u64 = 8;
    pub const KEEP_PARAMS: u64 = 16;
    pub const UTIL_CLAMP: u64 = 0x60;
    pub const ALL: u64 = 0x7f;
}

/// Size of the first published `struct sched_attr`.
const ATTR_V0: usize = 48;

fn sys_setattr(a: &Args) -> Result<u64> {
    if a.ptr(1).is_null() || a.u32(2) != 0 {
        return Err(Errno::EINVAL);
    }
    let size = match a.ptr(1).read::<u32>()? as usize {
        0 => Ok(ATTR_V0),
        n if n < ATTR_V0 => Err(Errno::E2BIG),
        n => Ok(n),
    };
    let mut attr: SchedAttr = match size.and_then(|n| read_sized(a.ptr(1), n)) {
        // What is too large is told the size that would do.
        Err(Errno::E2BIG) => {
            a.ptr(1).write(&(size_of::<SchedAttr>() as u32))?;
            return Err(Errno::E2BIG);
        }
        r => r?,
    };
    if attr.policy.cast_signed() < 0 {
        return Err(Errno::EINVAL);
    }
    let t = target(a)?;
    let now = *t.attrs.sched.lock();
    if attr.flags & flag::KEEP_POLICY != 0 {
        attr.policy = now.policy;
    }
    if attr.flags & flag::KEEP_PARAMS != 0 {
        attr.priority = now.priority.unsigned_abs();
        attr.nice = t.process.nice.load(Ordering::Relaxed);
    }
    if attr.flags & !flag::ALL != 0 {
        return Err(Errno::EINVAL);
    }
    if attr.flags & flag::UTIL_CLAMP != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    if attr.policy == SCHED_DEADLINE {
        return Err(Errno::EPERM);
    }
    let priority = i32::try_from(attr.priority).map_err(|_| Errno::EINVAL)?;
    set_policy(a, &t, attr.policy, priority, attr.flags & flag::RESET_ON_FORK != 0)?;
    if attr.policy == SCHED_OTHER || attr.policy == SCHED_BATCH {
        t.process.nice.store(attr.nice.clamp(-20, 19), Ordering::Relaxed);
    }
    Ok(0)
}

fn sys_getattr(a: &Args) -> Result<u64> {
    let size = a.u32(2) as usize;
    if a.ptr(1).is_null() || !(ATTR_V0..=4096).contains(&size) || a.u32(3) != 0 {
        return Err(Errno::EINVAL);
    }
    let t = target(a)?;
    let s = *t.attrs.sched.lock();
    let n = size.min(size_of::<SchedAttr>());
    let attr = SchedAttr {
        size: n as u32,
        policy: s.policy,
        flags: u64::from(s.reset_on_fork),
        nice: t.process.nice.load(Ordering::Relaxed),
        priority: s.priority.unsigned_abs(),
        ..SchedAttr::default()
    };
    a.ptr(1).write_bytes(&bytes_of(&attr)[..n])?;
    Ok(0)
}

fn priority_range(a: &Args) -> Result<(u64, u64)> {
    match a.u32(0) {
        SCHED_FIFO | SCHED_RR => Ok((1, 99)),
        SCHED_OTHER | SCHED_BATCH | SCHED_IDLE | SCHED_DEADLINE => Ok((0, 0)),
        _ => Err(Errno::EINVAL),
    }
}

fn sys_rr_get_interval(a: &Args) -> Result<u64> {
    target(a)?;
    a.ptr(1).write(&Timespec::from_ns(TICK_NS))?;
    Ok(0)
}

/// The first thread of each process that `ioprio_set(2)` names, or the one thread.
fn io_targets(a: &Args) -> Result<alloc::vec::Vec<Arc<Thread>>> {
    // IOPRIO_WHO_PROCESS, _PGRP and _USER are 1 to 3; getpriority's start at 0.
    match (a.i32(0), a.i32(1)) {
        (1, 0) => Ok(alloc::vec![a.thread.clone()]),
        (1, n) => Ok(alloc::vec![TASKS.thread(n)?]),
        (which @ 2..=3, who) => {
            Ok(super::limits::targets(a, which - 1, who)?.iter().flat_map(|p| p.threads()).collect())
        }
        _ => Err(Errno::EINVAL),
    }
}

fn sys_ioprio_set(a: &Args) -> Result<u64> {
    let value = a.u32(2);
    match (value >> 13, value & 0x1fff) {
        // The low three bits are the level, the others hints.
        (0, 0) | (1..=3, _) => {}
        _ => return Err(Errno::EINVAL),
    }
    if value >> 13 == 1 && !a.thread.cred().capable(CAP_SYS_NICE) {
        return Err(Errno::EPERM);
    }
    for t in io_targets(a)? {
        may_change(a, &t)?;
        t.attrs.sched.lock().ioprio = value;
    }
    Ok(0)
}

fn sys_ioprio_get(a: &Args) -> Result<u64> {
    let single = a.i32(0) == 1;
    let effective = |t: &Arc<Thread>| {
        let set = t.attrs.sched.lock().ioprio;
        // Among several, those that have none count with the one that follows from their nice value.
        let nice = t.process.nice.load(Ordering::Relaxed);
        if set == 0 && !single { 2 << 13 | ((nice + 20) / 5).unsigned_abs() } else { set }
    };
    let best = io_targets(a)?.iter().map(effective).min();
    best.map(u64::from).ok_or(Errno::ESRCH)
}
