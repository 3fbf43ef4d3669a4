//! `wait4(2)` and `waitid(2)`.

use alloc::sync::Arc;

use doppel_abi_linux::syscalls::nr;

use crate::core::numbers::numbers;
use crate::core::sched::wait_until;
use crate::personality::Support::Full;
use crate::personality::args::{Bits, Number};
use crate::personality::time::usage::Rusage;
use crate::personality::{Args, Syscall, call};
use crate::process::life::wait::{Report, WaitOptions, Who, look};
use crate::process::namespaces::numbers;
use crate::process::signal::{code, sig};
use crate::process::task::Process;
use crate::{Errno, Result};
use doppel_machine::user::UserPtr;

/// Waiting.
pub const CALLS: &[Syscall] = &[
    call!(nr::WAIT4, sys_wait4(i32, UserPtr, Bits<WaitOptions>, UserPtr), Full, ""),
    call!(nr::WAITID, sys_waitid(Number<IdType>, i32, UserPtr, Bits<WaitOptions>, UserPtr), Full, ""),
];

/// Waits; `None` with WNOHANG if nothing has happened.
fn wait(me: &Arc<Process>, who: Who, options: WaitOptions) -> Result<Option<Report>> {
    if options.contains(WaitOptions::NOHANG) {
        return look(me, who, options);
    }
    wait_until(&me.child_wait.clone(), None, || look(me, who, options).transpose())?.map(Some)
}

/// The kernel's number of a process or group that is waited for; ECHILD if nobody has it.
fn named(n: i32) -> Result<i32> {
    numbers::kernel(n).map_err(|_| Errno::ECHILD)
}

fn sys_wait4(a: &Args, pid: i32, status: UserPtr, options: Bits<WaitOptions>, usage: UserPtr) -> Result<u64> {
    let waits = WaitOptions::all() - WaitOptions::EXITED - WaitOptions::NOWAIT;
    let options = options.of(waits)?;
    let me = &a.thread.process;
    let who = match pid {
        i32::MIN => return Err(Errno::ESRCH),
        -1 => Who::Any,
        0 => Who::Group(me.pgid()),
        p if p < 0 => Who::Group(named(-p)?),
        p => Who::Pid(named(p)?),
    };
    let Some(r) = wait(me, who, options | WaitOptions::EXITED)? else { return Ok(0) };
    if !status.is_null() {
        status.write(&r.status)?;
    }
    if !usage.is_null() {
        usage.write(&Rusage::of(r.used, r.max_rss))?;
    }
    Ok(r.pid as u64)
}

numbers! {
    /// What the id of `waitid(2)` names.
    enum IdType {
        All = 0,
        Process = 1,
        Group = 2,
        ProcessFd = 3,
    }
}

fn sys_waitid(
    a: &Args,
    which: Number<IdType>,
    id: i32,
    user_info: UserPtr,
    options: Bits<WaitOptions>,
    usage: UserPtr,
) -> Result<u64> {
    let mut options = options.checked()?;
    let mut again = false;
    if !options.intersects(WaitOptions::EXITED | WaitOptions::UNTRACED | WaitOptions::CONTINUED) {
        return Err(Errno::EINVAL);
    }
    let me = &a.thread.process;
    let who = match which.get()? {
        IdType::All => Who::Any,
        IdType::Process if id > 0 => Who::Pid(named(id)?),
        IdType::Group if id >= 0 => Who::Group(if id == 0 { me.pgid() } else { named(id)? }),
        IdType::ProcessFd => {
            let pid = crate::process::descriptors::pidfd::pid_of(id)?;
            if a.thread.file(id)?.nonblocking() && !options.contains(WaitOptions::NOHANG) {
                options |= WaitOptions::NOHANG;
                again = true;
            }
            Who::Pid(pid)
        }
        _ => return Err(Errno::EINVAL),
    };
    let found = wait(me, who, options)?;
    if found.is_none() && again {
        return Err(Errno::EAGAIN);
    }
    let mut info = [0u8; 128];
    if let Some(r) = &found {
        let (code, status) = match r.status {
            s if r.trapped => (code::CLD_TRAPPED, s >> 8),
            0xffff => (code::CLD_CONTINUED, sig::SIGCONT),
            s if s & 0xff == 0x7f => (code::CLD_STOPPED, s >> 8),
            s if s & 0x7f == 0 => (code::CLD_EXITED, s >> 8 & 0xff),
            s if s & 0x80 != 0 => (code::CLD_DUMPED, s & 0x7f),
            s => (code::CLD_KILLED, s & 0x7f),
        };
        let mut put = |at: usize, v: i32| info[at..at + 4].copy_from_slice(&v.to_ne_bytes());
        put(0, sig::SIGCHLD);
        put(8, code);
        put(16, r.pid);
        put(20, a.thread.cred().user.uid(r.uid).cast_signed());
        put(24, status);
    }
    if !user_info.is_null() {
        user_info.write_bytes(&info)?;
    }
    if let Some(r) = found
        && !usage.is_null()
    {
        usage.write(&Rusage::of(r.used, r.max_rss))?;
    }
    Ok(0)
}
