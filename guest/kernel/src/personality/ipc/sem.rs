//! System calls of System V semaphores.

use crate::objects::ipc::sysv::sem::UNDOS;
use crate::personality::args::{HexInt, RawFlags};
use alloc::vec::Vec;

use doppel_abi_linux::syscalls::nr;
use doppel_machine::pod_struct;
use doppel_machine::sync::SpinLock;

use crate::core::sched::{WaitQueue, wait_until};
use crate::objects::ipc::sysv::sem::{Set, sets};
use crate::objects::ipc::sysv::sem_state::{SEMVMX, SemBuf, State};
use crate::objects::ipc::sysv::{IPC_64, IPC_INFO, IPC_RMID, IPC_SET, IPC_STAT, UserPerm, seconds};
use crate::objects::ipc::timeout::Timeout;
use crate::personality::Arg::{Hex, Int, Ptr};
use crate::personality::Support::Full;
use crate::personality::{Args, Syscall, call};
use crate::{Errno, Result};

/// System calls of this module.
pub const CALLS: &[Syscall] = &[
    call!(nr::SEMGET, sys_semget(HexInt, i32, RawFlags), Full, ""),
    call(nr::SEMOP, |a| semop(a, Timeout::never()), Full, &[Int, Ptr, Int], ""),
    call(nr::SEMTIMEDOP, |a| semop(a, Timeout::timespec(a.ptr(3))?), Full, &[Int, Ptr, Int, Ptr], ""),
    call(nr::SEMCTL, sys_semctl, Full, &[Int, Int, Int, Hex], ""),
];
const GETPID: i32 = 11;
const GETVAL: i32 = 12;
const GETALL: i32 = 13;
const GETNCNT: i32 = 14;
const GETZCNT: i32 = 15;
const SETVAL: i32 = 16;
const SETALL: i32 = 17;
const SEM_STAT: i32 = 18;
const SEM_INFO: i32 = 19;
const SEM_STAT_ANY: i32 = 20;
const SEMMNI: usize = 32000;
const SEMMSL: usize = 32000;
const SEMOPM: usize = 500;

fn sys_semget(_: &Args, HexInt(key): HexInt, n: i32, RawFlags(f): RawFlags) -> Result<u64> {
    let n = usize::try_from(n).ok().filter(|n| *n <= SEMMSL).ok_or(Errno::EINVAL)?;
    let id = sets().get(
        key,
        f,
        SEMMNI,
        |s| if n > s.state.lock().sems.len() { Err(Errno::EINVAL) } else { Ok(()) },
        |perm| {
            if n == 0 {
                return Err(Errno::EINVAL);
            }
            let state = State::new(n);
            Ok(Set { perm: SpinLock::new(perm), state: SpinLock::new(state), changed: WaitQueue::new() })
        },
    )?;
    Ok(u64::from(id.unsigned_abs()))
}

fn semop(a: &Args, timeout: Timeout) -> Result<u64> {
    let n = a.len(2);
    if n == 0 {
        return Err(Errno::EINVAL);
    }
    if n > SEMOPM {
        return Err(Errno::E2BIG);
    }
    let mut ops = Vec::with_capacity(n);
    for i in 0..n as u64 {
        ops.push(a.ptr(1).add(i * 6).read::<SemBuf>()?);
    }
    let set = sets().find(a.i32(0))?;
    let perm = *set.perm.lock();
    perm.check(if ops.iter().any(|o| o.op != 0) { 2 } else { 4 })?;
    let count = set.state.lock().sems.len();
    if ops.iter().any(|o| usize::from(o.num) >= count) {
        return Err(Errno::EFBIG);
    }
    let pid = a.thread.process.pid;
    let mut ticket = None;
    let r = wait_until(&set.changed, timeout.deadline, || set.attempt(&ops, pid, &mut ticket));
    // It may have been done in the moment in which the wait ended.
    let late = ticket.and_then(|t| set.state.lock().leave(t));
    match late.map_or(r, Ok) {
        Ok(r) => r.map(|()| 0),
        Err(Errno::ETIMEDOUT) => Err(Errno::EAGAIN),
        // A handler always ends the wait with EINTR, SA_RESTART or not.
        Err(Errno::ERESTARTSYS) => Err(Errno::ERESTARTNOHAND),
        Err(e) => Err(e),
    }
}

/// Values were set: nothing is left to undo for them.
fn forget_undo(id: i32, num: Option<u16>) {
    let table = UNDOS.get();
    for mine in table.0.lock().values_mut() {
        mine.retain(|(i, n), _| *i != id || num.is_some_and(|m| m != *n));
    }
}

pod_struct! {
    /// `struct semid64_ds`.
    pub struct SemidDs {
        /// Permissions.
        pub perm: UserPerm,
        /// Last operation.
        pub otime: i64,
        /// Unused.
        pub unused1: u64,
        /// Last change.
        pub ctime: i64,
        /// Unused.
        pub unused2: u64,
        /// Semaphores in the set.
        pub nsems: u64,
        /// Unused.
        pub unused: [u64; 2],
    }
}

fn describe(s: &Set) -> SemidDs {
    let perm = s.perm.lock().to_user();
    let st = s.state.lock();
    SemidDs { perm, otime: st.otime, ctime: st.ctime, nsems: st.sems.len() as u64, ..SemidDs::default() }
}

/// IPC_INFO and SEM_INFO: limits, or limits and use.
fn info(a: &Args, used: bool) -> Result<u64> {
    let list = sets().list();
    let sems: usize = list.iter().map(|s| s.state.lock().sems.len()).sum();
    let (usz, aem) = if used { (list.len() as i32, sems as i32) } else { (20, SEMVMX) };
    let (mni, msl, opm) = (SEMMNI as i32, SEMMSL as i32, SEMOPM as i32);
    a.ptr(3).write(&[mni, mni, mni * 10, mni * 10, msl, opm, opm, usz, SEMVMX, aem])?;
    Ok(sets().highest())
}

fn sys_semctl(a: &Args) -> Result<u64> {
    let (id, cmd, arg) = (a.i32(0), a.i32(2) & !IPC_64, a.ptr(3));
    match cmd {
        IPC_INFO | SEM_INFO => return info(a, cmd == SEM_INFO),
        SEM_STAT | SEM_STAT_ANY => {
            let s = sets().at(id)?;
            let perm = *s.perm.lock();
            if cmd == SEM_STAT {
                perm.check(4)?;
            }
            arg.write(&describe(&s))?;
            return Ok(u64::from(perm.id.unsigned_abs()));
        }
        IPC_RMID..=IPC_STAT | GETPID..=SETALL => {}
        _ => return Err(Errno::EINVAL),
    }
    let set = sets().find(id)?;
    let perm = *set.perm.lock();
    match cmd {
        IPC_RMID => {
            perm.check_owner()?;
            set.state.lock().removed = true;
            sets().remove(id);
            forget_undo(id, None);
            set.changed.wake_all(0);
            return Ok(0);
        }
        IPC_SET => {
            let new = arg.read::<SemidDs>()?;
            perm.check_owner()?;
            set.perm.lock().set(&new.perm);
            set.state.lock().ctime = seconds();
            return Ok(0);
        }
        IPC_STAT => {
            perm.check(4)?;
            arg.write(&describe(&set))?;
            return Ok(0);
        }
        _ => {}
    }
    perm.check(if cmd == SETVAL || cmd == SETALL { 2 } else { 4 })?;
    match cmd {
        GETALL | SETALL => all_values(a, &set, id, cmd == SETALL),
        _ => one_value(a, &set, id, cmd),
    }
}

/// GETALL and SETALL.
fn all_values(a: &Args, set: &Set, id: i32, change: bool) -> Result<u64> {
    let arg = a.ptr(3);
    let count = set.state.lock().sems.len();
    if !change {
        let values: Vec<u16> = set.state.lock().sems.iter().map(|s| s.value as u16).collect();
        for (i, v) in (0..).zip(&values) {
            arg.add(i * 2).write(v)?;
        }
    } else {
        let mut values = Vec::with_capacity(count);
        for i in 0..count as u64 {
            let v = i32::from(arg.add(i * 2).read::<u16>()?);
            values.push(if v > SEMVMX { return Err(Errno::ERANGE) } else { v });
        }
        forget_undo(id, None);
        set.change(|s| {
            for (sem, v) in s.sems.iter_mut().zip(values) {
                (sem.value, sem.pid) = (v, a.thread.process.pid);
            }
            s.ctime = seconds();
        });
    }
    Ok(0)
}

/// The commands on one semaphore of a set.
fn one_value(a: &Args, set: &Set, id: i32, cmd: i32) -> Result<u64> {
    let num = a.i32(1);
    let count = set.state.lock().sems.len();
    let i = usize::try_from(num).ok().filter(|n| *n < count).ok_or(Errno::EINVAL)?;
    if cmd == SETVAL {
        let v = a.i32(3);
        if !(0..=SEMVMX).contains(&v) {
            return Err(Errno::ERANGE);
        }
        forget_undo(id, Some(i as u16));
        set.change(|s| {
            (s.sems[i].value, s.sems[i].pid) = (v, a.thread.process.pid);
            s.ctime = seconds();
        });
        return Ok(0);
    }
    let state = set.state.lock();
    let sem = state.sems[i];
    Ok(u64::from(match cmd {
        GETPID => sem.pid.unsigned_abs(),
        GETVAL => sem.value.unsigned_abs(),
        GETNCNT => state.waiting(i, false),
        GETZCNT => state.waiting(i, true),
        _ => return Err(Errno::EINVAL),
    }))
}
