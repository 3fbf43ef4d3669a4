//! System calls on process, group and session ids.

use crate::process::task::TASKS;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use doppel_machine::user::UserPtr;

use doppel_abi_linux::syscalls::nr;
use doppel_machine::sync::SpinLock;

use crate::personality::Support::Full;
use crate::personality::{Args, Syscall, call};
use crate::process::namespaces::numbers;
use crate::process::task::{Process, Session};
use crate::{Errno, Result};

/// Ids, groups, sessions.
pub const CALLS: &[Syscall] = &[
    call!(nr::GETPID, sys_getpid(), Full, ""),
    call!(nr::GETTID, sys_gettid(), Full, ""),
    call!(nr::GETPPID, sys_getppid(), Full, ""),
    call!(nr::GETPGRP, sys_getpgrp(), Full, ""),
    call!(nr::GETPGID, sys_getpgid(i32), Full, ""),
    call!(nr::GETSID, sys_getsid(i32), Full, ""),
    call!(nr::SETPGID, sys_setpgid(i32, i32), Full, ""),
    call!(nr::SETSID, sys_setsid(), Full, ""),
    call!(nr::SET_TID_ADDRESS, sys_set_tid_address(UserPtr), Full, ""),
];

/// The process a pid argument names; 0 is the caller's.
fn target(a: &Args, pid: i32) -> Result<Arc<Process>> {
    match pid {
        0 => Ok(a.thread.process.clone()),
        pid => numbers::process(pid),
    }
}

/// A number of the kernel's as the caller sees it.
fn shown(kernel: i32) -> u64 {
    numbers::shown(kernel) as u64
}

fn sys_getpid(a: &Args) -> Result<u64> {
    let p = &a.thread.process;
    Ok(p.numbers.as_ref().map_or(p.pid, |n| n.shown()) as u64)
}

fn sys_gettid(a: &Args) -> Result<u64> {
    Ok(a.thread.shown_tid() as u64)
}

fn sys_getppid(a: &Args) -> Result<u64> {
    Ok(shown(a.thread.process.ppid()))
}

fn sys_getpgrp(a: &Args) -> Result<u64> {
    Ok(shown(a.thread.process.pgid()))
}

fn sys_getpgid(a: &Args, pid: i32) -> Result<u64> {
    Ok(shown(target(a, pid)?.pgid()))
}

fn sys_getsid(a: &Args, pid: i32) -> Result<u64> {
    Ok(shown(target(a, pid)?.session().sid))
}

fn sys_setpgid(a: &Args, pid: i32, pgid: i32) -> Result<u64> {
    let me = &a.thread.process;
    if pgid < 0 {
        return Err(Errno::EINVAL);
    }
    let p = target(a, pid)?;
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
    let pgid = if pgid == 0 { p.pid } else { numbers::kernel(pgid).map_err(|_| Errno::EPERM)? };
    let group = if pgid == p.pid {
        p.numbers.clone()
    } else {
        let sid = p.session().sid;
        let all = TASKS.all_processes();
        let member = all.iter().find(|q| q.pgid() == pgid && q.session().sid == sid);
        member.ok_or(Errno::EPERM)?.group.lock().clone()
    };
    p.pgid.store(pgid, Ordering::SeqCst);
    let old = core::mem::replace(&mut *p.group.lock(), group);
    drop(old);
    Ok(0)
}

fn sys_setsid(a: &Args) -> Result<u64> {
    let p = &a.thread.process;
    if TASKS.all_processes().iter().any(|q| q.pgid() == p.pid) {
        return Err(Errno::EPERM);
    }
    let session = Session { sid: p.pid, numbers: p.numbers.clone(), tty: SpinLock::new(None) };
    let old = core::mem::replace(&mut *p.session.lock(), Arc::new(session));
    drop(old);
    p.pgid.store(p.pid, Ordering::SeqCst);
    let old = core::mem::replace(&mut *p.group.lock(), p.numbers.clone());
    drop(old);
    Ok(shown(p.pid))
}

fn sys_set_tid_address(a: &Args, UserPtr(address): UserPtr) -> Result<u64> {
    a.thread.clear_child_tid.store(address, Ordering::Relaxed);
    Ok(a.thread.shown_tid() as u64)
}
