//! System calls on process, group and session ids.

use crate::process::task::TASKS;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use doppel_machine::user::UserPtr;

use doppel_abi_linux::syscalls::nr;
use doppel_machine::sync::SpinLock;

use crate::personality::Arg::Int;
use crate::personality::Support::Full;
use crate::personality::{Args, Syscall, call};
use crate::process::task::{Process, Session};
use crate::{Errno, Result};

/// Ids, groups, sessions.
pub const CALLS: &[Syscall] = &[
    call(nr::GETPID, |a| Ok(a.thread.process.pid as u64), Full, &[], ""),
    call(nr::GETTID, |a| Ok(a.thread.tid() as u64), Full, &[], ""),
    call(nr::GETPPID, |a| Ok(a.thread.process.ppid() as u64), Full, &[], ""),
    call(nr::GETPGRP, |a| Ok(a.thread.process.pgid() as u64), Full, &[], ""),
    call(nr::GETPGID, |a| Ok(target(a)?.pgid() as u64), Full, &[Int], ""),
    call(nr::GETSID, |a| Ok(target(a)?.session().sid as u64), Full, &[Int], ""),
    call(nr::SETPGID, sys_setpgid, Full, &[Int, Int], ""),
    call!(nr::SETSID, sys_setsid(), Full, ""),
    call!(nr::SET_TID_ADDRESS, sys_set_tid_address(UserPtr), Full, ""),
];

/// The process named by argument 0; 0 is the caller's.
fn target(a: &Args) -> Result<Arc<Process>> {
    match a.i32(0) {
        0 => Ok(a.thread.process.clone()),
        pid => TASKS.process(pid),
    }
}

fn sys_setpgid(a: &Args) -> Result<u64> {
    let me = &a.thread.process;
    let pgid = a.i32(1);
    if pgid < 0 {
        return Err(Errno::EINVAL);
    }
    let p = target(a)?;
    let child = p.parent().is_some_and(|q| Arc::ptr_eq(&q, me));
    if !Arc::ptr_eq(&p, me) && !child {
        return Err(Errno::ESRCH);
    }
    if child && !Arc::ptr_eq(&p, me) {
        if p.session().sid != me.session().sid {
            return Err(Errno::EPERM);
        }
        if p.did_exec.load(Ordering::Relaxed) {
            return Err(Errno::EACCES);
        }
    }
    if p.session().sid == p.pid {
        return Err(Errno::EPERM);
    }
    let pgid = if pgid == 0 { p.pid } else { pgid };
    if pgid != p.pid {
        let sid = p.session().sid;
        let exists = TASKS.all_processes().iter().any(|q| q.pgid() == pgid && q.session().sid == sid);
        if !exists {
            return Err(Errno::EPERM);
        }
    }
    p.pgid.store(pgid, Ordering::SeqCst);
    Ok(0)
}

fn sys_setsid(a: &Args) -> Result<u64> {
    let p = &a.thread.process;
    if TASKS.all_processes().iter().any(|q| q.pgid() == p.pid) {
        return Err(Errno::EPERM);
    }
    *p.session.lock() = Arc::new(Session { sid: p.pid, tty: SpinLock::new(None) });
    p.pgid.store(p.pid, Ordering::SeqCst);
    Ok(p.pid as u64)
}

fn sys_set_tid_address(a: &Args, UserPtr(address): UserPtr) -> Result<u64> {
    a.thread.clear_child_tid.store(address, Ordering::Relaxed);
    Ok(a.thread.tid() as u64)
}
