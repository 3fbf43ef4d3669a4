//! System calls on resource limits and nice values.

use crate::process::namespaces::numbers;
use crate::process::task::TASKS;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use doppel_abi_linux::syscalls::nr;

use crate::core::numbers::numbers;
use crate::personality::Support::{Full, Partial};
use crate::personality::args::Number;
use crate::personality::{Args, Syscall, call};
use crate::process::task::limits::{CAP_SYS_RESOURCE, UserRlimit, set};
use crate::process::task::{Process, Resource};
use crate::{Errno, Result};
use doppel_machine::user::UserPtr;

/// System calls of this module.
pub const CALLS: &[Syscall] = &[
    call!(nr::GETRLIMIT, sys_getrlimit(Number<Resource>, UserPtr), Full, ""),
    call!(nr::SETRLIMIT, sys_setrlimit(Number<Resource>, UserPtr), Full, ""),
    call!(nr::PRLIMIT64, sys_prlimit64(i32, Number<Resource>, UserPtr, UserPtr), Full, ""),
    call!(nr::GETPRIORITY, sys_getpriority(Number<PriorityOf>, i32), Full, ""),
    call!(
        nr::SETPRIORITY,
        sys_setpriority(Number<PriorityOf>, i32, i32),
        Partial,
        "kept, without effect on scheduling"
    ),
];

const CAP_SYS_NICE: u32 = 23;

numbers! {
    /// Whom getpriority and setpriority mean: a process, a process group, or the processes of a user.
    pub(super) enum PriorityOf {
        Process = 0,
        Group = 1,
        User = 2,
    }
}

fn sys_getrlimit(a: &Args, resource: Number<Resource>, out: UserPtr) -> Result<u64> {
    let l = a.thread.process.rlimits.lock()[resource.get()?];
    out.write(&UserRlimit { cur: l.cur, max: l.max })?;
    Ok(0)
}

fn sys_setrlimit(a: &Args, resource: Number<Resource>, user_new: UserPtr) -> Result<u64> {
    let r = resource.get()?;
    let new = user_new.read::<UserRlimit>()?;
    set(&a.thread.process, &a.thread.process, r, new)?;
    Ok(0)
}

fn sys_prlimit64(
    a: &Args,
    pid: i32,
    resource: Number<Resource>,
    user_new: UserPtr,
    user_old: UserPtr,
) -> Result<u64> {
    let r = resource.get()?;
    let new = if user_new.is_null() { None } else { Some(user_new.read::<UserRlimit>()?) };
    let me = &a.thread.process;
    let target = match pid {
        0 => me.clone(),
        pid => numbers::thread(pid)?.process.clone(),
    };
    if target.pid != me.pid {
        let (c, t) = (a.thread.cred(), target.cred());
        let same_user = [t.ruid, t.euid, t.suid].iter().all(|u| *u == c.ruid);
        let same_group = [t.rgid, t.egid, t.sgid].iter().all(|g| *g == c.rgid);
        let same = same_user && same_group;
        if !same && !c.capable_in(&t.user, CAP_SYS_RESOURCE) {
            return Err(Errno::EPERM);
        }
    }
    let old = match new {
        Some(n) => set(me, &target, r, n)?,
        None => target.rlimits.lock()[r],
    };
    if !user_old.is_null() {
        user_old.write(&UserRlimit { cur: old.cur, max: old.max })?;
    }
    Ok(0)
}

/// The processes that `which` and `who` name; ESRCH if there are none.
pub(super) fn targets(a: &Args, which: PriorityOf, who: i32) -> Result<Vec<Arc<Process>>> {
    let me = &a.thread.process;
    let list: Vec<_> = match (which, who) {
        (PriorityOf::Process, 0) => alloc::vec![me.clone()],
        (PriorityOf::Process, pid) => alloc::vec![numbers::thread(pid)?.process.clone()],
        (PriorityOf::Group, n) => {
            let pgid = if n == 0 { me.pgid() } else { numbers::kernel(n)? };
            TASKS.all_processes().into_iter().filter(|p| p.pgid() == pgid && !p.is_zombie()).collect()
        }
        (PriorityOf::User, n) => {
            let me = a.thread.cred();
            let given = me.user.kernel_uid(n.cast_unsigned());
            let uid = if n == 0 { me.ruid } else { given.ok_or(Errno::ESRCH)? };
            TASKS.all_processes().into_iter().filter(|p| p.cred().ruid == uid && !p.is_zombie()).collect()
        }
    };
    if list.is_empty() { Err(Errno::ESRCH) } else { Ok(list) }
}

fn sys_getpriority(a: &Args, which: Number<PriorityOf>, who: i32) -> Result<u64> {
    let list = targets(a, which.get()?, who)?;
    let best = list.iter().map(|p| p.nice.load(Ordering::Relaxed)).min().ok_or(Errno::ESRCH)?;
    // 40 to 1, so that no value looks like an error.
    Ok(u64::from((20 - best).unsigned_abs()))
}

fn sys_setpriority(a: &Args, which: Number<PriorityOf>, who: i32, nice: i32) -> Result<u64> {
    let nice = nice.clamp(-20, 19);
    let me = a.thread.cred();
    for p in targets(a, which.get()?, who)? {
        let t = p.cred();
        if me.euid != t.euid && me.euid != t.ruid && !me.capable_in(&t.user, CAP_SYS_NICE) {
            return Err(Errno::EPERM);
        }
        let lowest = 20 - i64::try_from(p.rlimit(Resource::Nice).min(40)).unwrap_or(40);
        if nice < p.nice.load(Ordering::Relaxed) && i64::from(nice) < lowest && !me.capable(CAP_SYS_NICE) {
            return Err(Errno::EACCES);
        }
        p.nice.store(nice, Ordering::Relaxed);
    }
    Ok(0)
}
