//! System calls of System V semaphores.

use crate::personality::args::{Arg, Bits, FromArg, HexInt};
use crate::personality::ipc::Control;
use alloc::vec::Vec;

use doppel_abi_linux::syscalls::nr;
use doppel_machine::pod_struct;
use doppel_machine::sync::SpinLock;
use doppel_machine::user::UserPtr;

use crate::core::numbers::numbers;
use crate::core::sched::{WaitQueue, wait_until};
use crate::core::subject::shown_pid;
use crate::objects::ipc::sysv::namespace::here;
use crate::objects::ipc::sysv::sem::Set;
use crate::objects::ipc::sysv::sem_state::{SEMVMX, SemBuf, State};
use crate::objects::ipc::sysv::{GetFlags, UserPerm, seconds};
use crate::objects::ipc::timeout::Timeout;
use crate::personality::Support::Full;
use crate::personality::{Args, Syscall, call};
use crate::{Errno, Result};

/// System calls of this module.
pub const CALLS: &[Syscall] = &[
    call!(nr::SEMGET, sys_semget(HexInt, i32, Bits<GetFlags>), Full, ""),
    call!(nr::SEMOP, sys_semop(i32, UserPtr, usize), Full, ""),
    call!(nr::SEMTIMEDOP, sys_semtimedop(i32, UserPtr, usize, UserPtr), Full, ""),
    call!(nr::SEMCTL, sys_semctl(i32, i32, Control<Command>, SemctlArg), Full, ""),
];

numbers! {
    /// Commands of `semctl(2)`.
    enum Command {
        Remove = 0,
        Set = 1,
        Stat = 2,
        IpcInfo = 3,
        GetPid = 11,
        GetValue = 12,
        GetAll = 13,
        GetIncreaseCount = 14,
        GetZeroCount = 15,
        SetValue = 16,
        SetAll = 17,
        StatAt = 18,
        SemInfo = 19,
        StatAtAny = 20,
    }
}

/// `union semun`: the address of what a command copies, or a value.
#[derive(Clone, Copy)]
struct SemctlArg(u64);

impl SemctlArg {
    fn user(self) -> UserPtr {
        UserPtr(self.0)
    }

    fn value(self) -> i32 {
        self.0 as i32
    }
}

impl FromArg for SemctlArg {
    const KIND: Arg = Arg::Hex;

    #[inline(always)]
    fn from_arg(raw: u64) -> Self {
        Self(raw)
    }
}

const SEMMNI: usize = 32000;
const SEMMSL: usize = 32000;
const SEMOPM: usize = 500;

fn sys_semget(_: &Args, HexInt(key): HexInt, n: i32, flags: Bits<GetFlags>) -> Result<u64> {
    let n = usize::try_from(n).ok().filter(|n| *n <= SEMMSL).ok_or(Errno::EINVAL)?;
    let id = here().sets.get(
        key,
        flags.known(),
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

fn sys_semop(a: &Args, id: i32, ops: UserPtr, n: usize) -> Result<u64> {
    semop(a, id, ops, n, Timeout::never())
}

fn sys_semtimedop(a: &Args, id: i32, ops: UserPtr, n: usize, timeout: UserPtr) -> Result<u64> {
    semop(a, id, ops, n, Timeout::timespec(timeout)?)
}

fn semop(a: &Args, id: i32, user_ops: UserPtr, n: usize, timeout: Timeout) -> Result<u64> {
    if n == 0 {
        return Err(Errno::EINVAL);
    }
    if n > SEMOPM {
        return Err(Errno::E2BIG);
    }
    let mut ops = Vec::with_capacity(n);
    for i in 0..n as u64 {
        ops.push(user_ops.add(i * 6).read::<SemBuf>()?);
    }
    let set = here().sets.find(id)?;
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
    for mine in here().undos.0.lock().values_mut() {
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
fn info(out: UserPtr, used: bool) -> Result<u64> {
    let list = here().sets.list();
    let sems: usize = list.iter().map(|s| s.state.lock().sems.len()).sum();
    let (usz, aem) = if used { (list.len() as i32, sems as i32) } else { (20, SEMVMX) };
    let (mni, msl, opm) = (SEMMNI as i32, SEMMSL as i32, SEMOPM as i32);
    out.write(&[mni, mni, mni * 10, mni * 10, msl, opm, opm, usz, SEMVMX, aem])?;
    Ok(here().sets.highest())
}

fn sys_semctl(a: &Args, id: i32, number: i32, command: Control<Command>, arg: SemctlArg) -> Result<u64> {
    let command = command.get()?;
    match command {
        Command::IpcInfo | Command::SemInfo => return info(arg.user(), command == Command::SemInfo),
        Command::StatAt | Command::StatAtAny => {
            let s = here().sets.at(id)?;
            let perm = *s.perm.lock();
            if command == Command::StatAt {
                perm.check(4)?;
            }
            arg.user().write(&describe(&s))?;
            return Ok(u64::from(perm.id.unsigned_abs()));
        }
        _ => {}
    }
    let set = here().sets.find(id)?;
    let perm = *set.perm.lock();
    match command {
        Command::Remove => {
            perm.check_owner()?;
            set.state.lock().removed = true;
            here().sets.remove(id);
            forget_undo(id, None);
            set.changed.notify_all();
            return Ok(0);
        }
        Command::Set => {
            let new = arg.user().read::<SemidDs>()?;
            perm.check_owner()?;
            set.perm.lock().set(&new.perm)?;
            set.state.lock().ctime = seconds();
            return Ok(0);
        }
        Command::Stat => {
            perm.check(4)?;
            arg.user().write(&describe(&set))?;
            return Ok(0);
        }
        _ => {}
    }
    perm.check(if matches!(command, Command::SetValue | Command::SetAll) { 2 } else { 4 })?;
    match command {
        Command::GetAll => all_values(&set, arg.user()),
        Command::SetAll => set_all_values(a, &set, id, arg.user()),
        Command::SetValue => set_value(a, &set, id, number, arg.value()),
        _ => one_value(&set, number, command),
    }
}

fn all_values(set: &Set, out: UserPtr) -> Result<u64> {
    let values: Vec<u16> = set.state.lock().sems.iter().map(|s| s.value as u16).collect();
    for (i, v) in (0..).zip(&values) {
        out.add(i * 2).write(v)?;
    }
    Ok(0)
}

fn set_all_values(a: &Args, set: &Set, id: i32, values_at: UserPtr) -> Result<u64> {
    let count = set.state.lock().sems.len();
    let mut values = Vec::with_capacity(count);
    for i in 0..count as u64 {
        let v = i32::from(values_at.add(i * 2).read::<u16>()?);
        values.push(if v > SEMVMX { return Err(Errno::ERANGE) } else { v });
    }
    forget_undo(id, None);
    set.change(|s| {
        for (sem, v) in s.sems.iter_mut().zip(values) {
            (sem.value, sem.pid) = (v, a.thread.process.pid);
        }
        s.ctime = seconds();
    });
    Ok(0)
}

/// The place of a semaphore in its set.
fn place(set: &Set, number: i32) -> Result<usize> {
    let count = set.state.lock().sems.len();
    usize::try_from(number).ok().filter(|n| *n < count).ok_or(Errno::EINVAL)
}

fn set_value(a: &Args, set: &Set, id: i32, number: i32, value: i32) -> Result<u64> {
    let i = place(set, number)?;
    if !(0..=SEMVMX).contains(&value) {
        return Err(Errno::ERANGE);
    }
    forget_undo(id, Some(i as u16));
    set.change(|s| {
        (s.sems[i].value, s.sems[i].pid) = (value, a.thread.process.pid);
        s.ctime = seconds();
    });
    Ok(0)
}

/// The commands that ask for something of one semaphore.
fn one_value(set: &Set, number: i32, command: Command) -> Result<u64> {
    let i = place(set, number)?;
    let state = set.state.lock();
    let sem = state.sems[i];
    Ok(u64::from(match command {
        Command::GetPid => shown_pid(sem.pid).unsigned_abs(),
        Command::GetValue => sem.value.unsigned_abs(),
        Command::GetIncreaseCount => state.waiting(i, false),
        Command::GetZeroCount => state.waiting(i, true),
        _ => return Err(Errno::EINVAL),
    }))
}
