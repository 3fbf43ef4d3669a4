//! System calls that send signals.

use crate::personality::args::{Bits, NoFlags, RawFd, SigNo};
use crate::process::task::TASKS;
use alloc::sync::Arc;
use doppel_machine::user::UserPtr;

use doppel_abi_linux::signal::frame::SIGINFO_SIZE;
use doppel_abi_linux::syscalls::nr;
use doppel_machine::shield;

use crate::core::namespace::user::OVERFLOW;
use crate::personality::Support::Full;
use crate::personality::{Args, Syscall, call};
use crate::process::namespaces::numbers;
use crate::process::signal::kill::may_signal;
use crate::process::signal::{SigInfo, code, send_process, send_thread};
use crate::process::task::{Process, Thread};
use crate::{Errno, Result};

/// Rows of the system call table.
pub const CALLS: &[Syscall] = &[
    call!(nr::KILL, kill(i32, SigNo), Full, ""),
    call!(nr::TKILL, tkill(i32, SigNo), Full, ""),
    call!(nr::TGKILL, tgkill(i32, i32, SigNo), Full, ""),
    call!(nr::RT_SIGQUEUEINFO, rt_sigqueueinfo(i32, SigNo, UserPtr), Full, ""),
    call!(nr::RT_TGSIGQUEUEINFO, rt_tgsigqueueinfo(i32, i32, SigNo, UserPtr), Full, ""),
    call!(nr::PIDFD_SEND_SIGNAL, pidfd_send_signal(RawFd, SigNo, UserPtr, Bits<NoFlags>), Full, ""),
];

fn user_info(a: &Args, signo: i32, how: i32) -> SigInfo {
    let p = &a.thread.process;
    let uid = a.thread.cred.get(&shield::read()).ruid;
    SigInfo::from_user(signo, how, p.pid, uid, 0)
}

/// The process a pid argument names; any of its threads will do, as on Linux.
fn find(pid: i32) -> Result<Arc<Process>> {
    numbers::process(pid).or_else(|_| numbers::thread(pid).map(|t| t.process.clone()))
}

fn one(a: &Args, p: &Arc<Process>, info: SigInfo) -> Result<()> {
    may_signal(&a.thread.process, p, info.signo)?;
    if info.signo == 0 { Ok(()) } else { send_process(p, info) }
}

fn kill(a: &Args, pid: i32, SigNo(signo): SigNo) -> Result<u64> {
    let info = user_info(a, signo, code::SI_USER);
    let me = &a.thread.process;
    if pid == numbers::shown_to(me, me.pid) {
        one(a, me, info)?;
        return Ok(0);
    }
    if pid > 0 {
        one(a, &find(pid)?, info)?;
        return Ok(0);
    }
    if pid == i32::MIN {
        return Err(Errno::ESRCH);
    }
    if !(0..=64).contains(&signo) {
        return Err(Errno::EINVAL);
    }
    let group = match pid {
        0 => me.pgid(),
        -1 => 0,
        _ => numbers::kernel(-pid)?,
    };
    let (mut found, mut sent, mut error) = (false, false, None);
    for p in TASKS.all_processes() {
        // -1: everybody except init and oneself.
        let meant = if pid == -1 { numbers::shown(p.pid) > 1 && p.pid != me.pid } else { p.pgid() == group };
        if !meant {
            continue;
        }
        found = true;
        match one(a, &p, info) {
            Ok(()) => sent = true,
            Err(e) => error = Some(e),
        }
    }
    match error {
        _ if !found => Err(Errno::ESRCH),
        Some(e) if !sent => Err(e),
        _ => Ok(0),
    }
}

/// Sends to thread `tid`, which must belong to process `tgid` if that is given.
fn to_thread(a: &Args, tgid: Option<i32>, tid: i32, info: SigInfo) -> Result<u64> {
    if tid <= 0 || tgid.is_some_and(|g| g <= 0) {
        return Err(Errno::EINVAL);
    }
    let t: Arc<Thread> = numbers::thread(tid)?;
    if tgid.is_some_and(|g| g != numbers::shown(t.process.pid)) {
        return Err(Errno::ESRCH);
    }
    may_signal(&a.thread.process, &t.process, info.signo)?;
    if info.signo != 0 {
        send_thread(&t, info)?;
    }
    Ok(0)
}

fn tkill(a: &Args, tid: i32, SigNo(signo): SigNo) -> Result<u64> {
    to_thread(a, None, tid, user_info(a, signo, code::SI_TKILL))
}

fn tgkill(a: &Args, tgid: i32, tid: i32, SigNo(signo): SigNo) -> Result<u64> {
    to_thread(a, Some(tgid), tid, user_info(a, signo, code::SI_TKILL))
}

/// Reads a program's siginfo; only the own process may be sent what looks like kill or the kernel.
fn queued_info(a: &Args, tgid: i32, signo: i32, user_info: UserPtr) -> Result<SigInfo> {
    let mut b = [0u8; SIGINFO_SIZE];
    user_info.read_bytes(&mut b)?;
    let mut info = SigInfo::from_bytes(signo, &b);
    // In the queue are the kernel's numbers. What nobody has is told as nobody.
    let user = &a.thread.cred().user;
    info.uid = user.kernel_uid(info.uid).unwrap_or(OVERFLOW);
    info.pid = numbers::kernel(info.pid).unwrap_or(0);
    let forged = info.code >= 0 || info.code == code::SI_TKILL;
    if forged && tgid != numbers::shown(a.thread.process.pid) { Err(Errno::EPERM) } else { Ok(info) }
}

fn rt_sigqueueinfo(a: &Args, pid: i32, SigNo(signo): SigNo, user_info: UserPtr) -> Result<u64> {
    let info = queued_info(a, pid, signo, user_info)?;
    one(a, &find(pid)?, info)?;
    Ok(0)
}

fn rt_tgsigqueueinfo(a: &Args, tgid: i32, tid: i32, SigNo(signo): SigNo, user_info: UserPtr) -> Result<u64> {
    let info = queued_info(a, tgid, signo, user_info)?;
    to_thread(a, Some(tgid), tid, info)
}

fn pidfd_send_signal(
    a: &Args,
    RawFd(pidfd): RawFd,
    SigNo(signo): SigNo,
    given: UserPtr,
    flags: Bits<NoFlags>,
) -> Result<u64> {
    flags.checked()?;
    let target = match crate::process::descriptors::pidfd::process_of(pidfd) {
        // The directory of a process in /proc does as well.
        Err(Errno::EBADF) => {
            let dir = crate::objects::vfs::synthetic::process_of(&*a.thread.file(pidfd)?);
            let process = dir.ok_or(Errno::EBADF)?.upgrade().ok_or(Errno::ESRCH)?;
            process.downcast::<Process>().map_err(|_| Errno::EBADF)?
        }
        found => found?,
    };
    if !numbers::sees(&target) {
        return Err(Errno::EINVAL);
    }
    let info = if given.is_null() {
        user_info(a, signo, code::SI_USER)
    } else {
        if given.read::<i32>()? != signo {
            return Err(Errno::EINVAL);
        }
        queued_info(a, numbers::shown(target.pid), signo, given)?
    };
    // A reaped process is gone, though the descriptor remains.
    if TASKS.process(target.pid).is_ok_and(|p| Arc::ptr_eq(&p, &target)) {
        one(a, &target, info)?;
        Ok(0)
    } else {
        Err(Errno::ESRCH)
    }
}
