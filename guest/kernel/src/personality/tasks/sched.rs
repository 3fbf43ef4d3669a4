//! Scheduling attributes (`sched(7)`): kept and read back; the guest scheduler serves all threads alike.

use crate::process::namespaces::numbers;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use doppel_abi_linux::syscalls::nr;
use doppel_machine::pod_struct;
use doppel_machine::user::bytes_of;

use crate::core::numbers::numbers;
use crate::core::time::{TICK_NS, Timespec};
use crate::personality::Support::{Full, Partial};
use crate::personality::args::{Bits, HexInt, NoFlags, Number};
use crate::personality::tasks::limits::PriorityOf;
use crate::personality::{Args, Syscall, call};
use crate::process::task::Thread;
use crate::process::task::attrs::{Policy, all_cpus};
use crate::process::task::version::read_sized;
use crate::process::task::yield_now;
use crate::{Errno, Result};
use doppel_machine::user::UserPtr;

const KEPT: &str = "kept, without effect on scheduling";

/// System calls of this module.
pub const CALLS: &[Syscall] = &[
    call!(nr::SCHED_YIELD, sys_sched_yield(), Full, ""),
    call!(nr::SCHED_SETAFFINITY, sys_setaffinity(i32, u32, UserPtr), Partial, KEPT),
    call!(nr::SCHED_GETAFFINITY, sys_getaffinity(i32, u32, UserPtr), Full, ""),
    call!(nr::SCHED_SETPARAM, sys_setparam(i32, UserPtr), Partial, KEPT),
    call!(nr::SCHED_GETPARAM, sys_getparam(i32, UserPtr), Full, ""),
    call!(nr::SCHED_SETSCHEDULER, sys_setscheduler(i32, i32, UserPtr), Partial, KEPT),
    call!(nr::SCHED_GETSCHEDULER, sys_getscheduler(i32), Full, ""),
    call!(nr::SCHED_SETATTR, sys_setattr(i32, UserPtr, Bits<NoFlags>), Partial, KEPT),
    call!(nr::SCHED_GETATTR, sys_getattr(i32, UserPtr, u32, Bits<NoFlags>), Full, ""),
    call!(nr::SCHED_GET_PRIORITY_MAX, sys_priority_max(Number<Policy>), Full, ""),
    call!(nr::SCHED_GET_PRIORITY_MIN, sys_priority_min(Number<Policy>), Full, ""),
    call!(nr::SCHED_RR_GET_INTERVAL, sys_rr_get_interval(i32, UserPtr), Full, ""),
    call!(nr::IOPRIO_SET, sys_ioprio_set(Number<IoPriorityOf>, i32, HexInt), Partial, "kept, without effect"),
    call!(nr::IOPRIO_GET, sys_ioprio_get(Number<IoPriorityOf>, i32), Full, ""),
];

numbers! {
    /// Whom ioprio_set and ioprio_get mean.
    enum IoPriorityOf {
        Thread = 1,
        Group = 2,
        User = 3,
    }
}

/// Bit that goes with a policy.
const SCHED_RESET_ON_FORK: u32 = 0x4000_0000;
const CAP_SYS_NICE: u32 = 23;
/// Bytes of the affinity mask the kernel keeps.
const MASK_BYTES: usize = 8;

/// The thread a pid argument names; 0 is the caller.
fn target(a: &Args, tid: i32) -> Result<Arc<Thread>> {
    match tid {
        0 => Ok(a.thread.clone()),
        n if n < 0 => Err(Errno::EINVAL),
        n => numbers::thread(n),
    }
}

fn sys_sched_yield(_: &Args) -> Result<u64> {
    yield_now();
    Ok(0)
}

/// EPERM unless the caller may change `t`'s scheduling.
fn may_change(a: &Args, t: &Thread) -> Result<()> {
    let (c, o) = (a.thread.cred(), t.cred());
    let ok = c.euid == o.euid || c.euid == o.ruid || c.capable_in(&o.user, CAP_SYS_NICE);
    if ok { Ok(()) } else { Err(Errno::EPERM) }
}

fn sys_setaffinity(a: &Args, tid: i32, size: u32, user_mask: UserPtr) -> Result<u64> {
    let mut b = [0; MASK_BYTES];
    let n = size as usize;
    user_mask.read_bytes(&mut b[..n.min(MASK_BYTES)])?;
    let t = target(a, tid).map_err(|_| Errno::ESRCH)?;
    may_change(a, &t)?;
    let mask = u64::from_le_bytes(b) & all_cpus();
    if mask == 0 {
        return Err(Errno::EINVAL);
    }
    t.attrs.sched.lock().affinity = mask;
    Ok(0)
}

fn sys_getaffinity(a: &Args, tid: i32, size: u32, user_mask: UserPtr) -> Result<u64> {
    let n = size as usize;
    if n < MASK_BYTES || !n.is_multiple_of(8) {
        return Err(Errno::EINVAL);
    }
    let t = target(a, tid).map_err(|_| Errno::ESRCH)?;
    let mask = t.attrs.sched.lock().affinity & all_cpus();
    user_mask.write(&mask)?;
    Ok(MASK_BYTES as u64)
}

/// Checks policy and priority and stores them.
fn set_policy(a: &Args, t: &Thread, policy: Policy, priority: i32, reset: bool) -> Result<u64> {
    let range = match policy {
        Policy::Fifo | Policy::RoundRobin => 1..=99,
        Policy::Other | Policy::Batch | Policy::Idle => 0..=0,
        Policy::Deadline => return Err(Errno::EINVAL),
    };
    if !range.contains(&priority) {
        return Err(Errno::EINVAL);
    }
    may_change(a, t)?;
    let c = a.thread.cred();
    let real_time = t.process.rlimit(crate::process::task::Resource::Rtprio);
    if priority > 0 && u64::from(priority.unsigned_abs()) > real_time && !c.capable(CAP_SYS_NICE) {
        return Err(Errno::EPERM);
    }
    let mut s = t.attrs.sched.lock();
    (s.policy, s.priority, s.reset_on_fork) = (policy, priority, reset);
    Ok(0)
}

fn sys_setscheduler(a: &Args, tid: i32, policy: i32, param: UserPtr) -> Result<u64> {
    let policy = u32::try_from(policy).map_err(|_| Errno::EINVAL)?;
    if param.is_null() {
        return Err(Errno::EINVAL);
    }
    let priority = param.read::<i32>()?;
    let t = target(a, tid)?;
    let reset = policy & SCHED_RESET_ON_FORK != 0;
    set_policy(a, &t, Policy::try_from(policy & !SCHED_RESET_ON_FORK)?, priority, reset)
}

fn sys_setparam(a: &Args, tid: i32, param: UserPtr) -> Result<u64> {
    if param.is_null() {
        return Err(Errno::EINVAL);
    }
    let priority = param.read::<i32>()?;
    let t = target(a, tid)?;
    let s = *t.attrs.sched.lock();
    set_policy(a, &t, s.policy, priority, s.reset_on_fork)
}

fn sys_getparam(a: &Args, tid: i32, param: UserPtr) -> Result<u64> {
    if param.is_null() {
        return Err(Errno::EINVAL);
    }
    let priority = target(a, tid)?.attrs.sched.lock().priority;
    param.write(&priority)?;
    Ok(0)
}

fn sys_getscheduler(a: &Args, tid: i32) -> Result<u64> {
    let t = target(a, tid)?;
    let s = *t.attrs.sched.lock();
    Ok(u64::from(s.policy as u32 | if s.reset_on_fork { SCHED_RESET_ON_FORK } else { 0 }))
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

bitflags::bitflags! {
    /// `SCHED_FLAG_` flags of `struct sched_attr`.
    #[derive(Clone, Copy, PartialEq, Eq)]
    struct AttrFlags: u64 {
        const RESET_ON_FORK = 1;
        const RECLAIM = 2;
        const DEADLINE_OVERRUN = 4;
        const KEEP_POLICY = 8;
        const KEEP_PARAMS = 16;
        const UTIL_CLAMP_MIN = 32;
        const UTIL_CLAMP_MAX = 64;
    }
}

/// Size of the first published `struct sched_attr`.
const ATTR_V0: usize = 48;

fn sys_setattr(a: &Args, tid: i32, user: UserPtr, flags: Bits<NoFlags>) -> Result<u64> {
    flags.checked()?;
    if user.is_null() {
        return Err(Errno::EINVAL);
    }
    let size = match user.read::<u32>()? as usize {
        0 => Ok(ATTR_V0),
        n if n < ATTR_V0 => Err(Errno::E2BIG),
        n => Ok(n),
    };
    let mut attr: SchedAttr = match size.and_then(|n| read_sized(user, n)) {
        // What is too large is told the size that would do.
        Err(Errno::E2BIG) => {
            user.write(&(size_of::<SchedAttr>() as u32))?;
            return Err(Errno::E2BIG);
        }
        r => r?,
    };
    if attr.policy.cast_signed() < 0 {
        return Err(Errno::EINVAL);
    }
    let flags = AttrFlags::from_bits_retain(attr.flags);
    let t = target(a, tid)?;
    let now = *t.attrs.sched.lock();
    let policy =
        if flags.contains(AttrFlags::KEEP_POLICY) { Ok(now.policy) } else { Policy::try_from(attr.policy) };
    if flags.contains(AttrFlags::KEEP_PARAMS) {
        attr.priority = now.priority.unsigned_abs();
        attr.nice = t.process.nice.load(Ordering::Relaxed);
    }
    if !AttrFlags::all().contains(flags) {
        return Err(Errno::EINVAL);
    }
    if flags.intersects(AttrFlags::UTIL_CLAMP_MIN | AttrFlags::UTIL_CLAMP_MAX) {
        return Err(Errno::EOPNOTSUPP);
    }
    if policy == Ok(Policy::Deadline) {
        return Err(Errno::EPERM);
    }
    let priority = i32::try_from(attr.priority).map_err(|_| Errno::EINVAL)?;
    let policy = policy?;
    set_policy(a, &t, policy, priority, flags.contains(AttrFlags::RESET_ON_FORK))?;
    if matches!(policy, Policy::Other | Policy::Batch) {
        t.process.nice.store(attr.nice.clamp(-20, 19), Ordering::Relaxed);
    }
    Ok(0)
}

fn sys_getattr(a: &Args, tid: i32, out: UserPtr, size: u32, flags: Bits<NoFlags>) -> Result<u64> {
    flags.checked()?;
    let size = size as usize;
    if out.is_null() || !(ATTR_V0..=4096).contains(&size) {
        return Err(Errno::EINVAL);
    }
    let t = target(a, tid)?;
    let s = *t.attrs.sched.lock();
    let n = size.min(size_of::<SchedAttr>());
    let attr = SchedAttr {
        size: n as u32,
        policy: s.policy as u32,
        flags: u64::from(s.reset_on_fork),
        nice: t.process.nice.load(Ordering::Relaxed),
        priority: s.priority.unsigned_abs(),
        ..SchedAttr::default()
    };
    out.write_bytes(&bytes_of(&attr)[..n])?;
    Ok(0)
}

/// The least and the greatest priority of a policy.
fn priority_range(policy: Policy) -> (u64, u64) {
    match policy {
        Policy::Fifo | Policy::RoundRobin => (1, 99),
        Policy::Other | Policy::Batch | Policy::Idle | Policy::Deadline => (0, 0),
    }
}

fn sys_priority_min(_: &Args, policy: Number<Policy>) -> Result<u64> {
    Ok(priority_range(policy.get()?).0)
}

fn sys_priority_max(_: &Args, policy: Number<Policy>) -> Result<u64> {
    Ok(priority_range(policy.get()?).1)
}

fn sys_rr_get_interval(a: &Args, tid: i32, out: UserPtr) -> Result<u64> {
    target(a, tid)?;
    out.write(&Timespec::from_ns(TICK_NS))?;
    Ok(0)
}

/// The first thread of each process that `ioprio_set(2)` names, or the one thread.
fn io_targets(a: &Args, which: IoPriorityOf, who: i32) -> Result<alloc::vec::Vec<Arc<Thread>>> {
    let several = match which {
        IoPriorityOf::Thread if who == 0 => return Ok(alloc::vec![a.thread.clone()]),
        IoPriorityOf::Thread => return Ok(alloc::vec![numbers::thread(who)?]),
        IoPriorityOf::Group => PriorityOf::Group,
        IoPriorityOf::User => PriorityOf::User,
    };
    Ok(super::limits::targets(a, several, who)?.iter().flat_map(|p| p.threads()).collect())
}

fn sys_ioprio_set(a: &Args, which: Number<IoPriorityOf>, who: i32, HexInt(priority): HexInt) -> Result<u64> {
    let value = priority.cast_unsigned();
    match (value >> 13, value & 0x1fff) {
        // The low three bits are the level, the others hints.
        (0, 0) | (1..=3, _) => {}
        _ => return Err(Errno::EINVAL),
    }
    if value >> 13 == 1 && !a.thread.cred().capable(CAP_SYS_NICE) {
        return Err(Errno::EPERM);
    }
    for t in io_targets(a, which.get()?, who)? {
        may_change(a, &t)?;
        t.attrs.sched.lock().ioprio = value;
    }
    Ok(0)
}

fn sys_ioprio_get(a: &Args, which: Number<IoPriorityOf>, who: i32) -> Result<u64> {
    let which = which.get()?;
    let single = which == IoPriorityOf::Thread;
    let effective = |t: &Arc<Thread>| {
        let set = t.attrs.sched.lock().ioprio;
        // Among several, those that have none count with the one that follows from their nice value.
        let nice = t.process.nice.load(Ordering::Relaxed);
        if set == 0 && !single { 2 << 13 | ((nice + 20) / 5).unsigned_abs() } else { set }
    };
    let best = io_targets(a, which, who)?.iter().map(effective).min();
    best.map(u64::from).ok_or(Errno::ESRCH)
}
