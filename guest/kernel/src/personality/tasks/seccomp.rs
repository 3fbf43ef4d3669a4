//! `seccomp(2)`.

use core::sync::atomic::Ordering;

use crate::personality::Args;
use crate::process::seccomp::{DISABLED, STRICT, action, set_filter};
use crate::process::task::Thread;
use crate::{Errno, Result};

fn set_strict(t: &Thread) -> Result<u64> {
    t.seccomp
        .mode
        .compare_exchange(DISABLED, STRICT, Ordering::Relaxed, Ordering::Relaxed)
        .or_else(|m| if m == STRICT { Ok(m) } else { Err(Errno::EINVAL) })?;
    Ok(0)
}

/// `prctl(PR_SET_SECCOMP)`.
pub fn from_prctl(a: &Args) -> Result<u64> {
    match a.u64(1) {
        1 => set_strict(&a.thread),
        2 => set_filter(&a.thread, 0, a.ptr(2)),
        _ => Err(Errno::EINVAL),
    }
}

fn action_avail(a: &Args) -> Result<u64> {
    use action::{ALLOW, ERRNO, KILL_PROCESS, KILL_THREAD, LOG, TRACE, TRAP};
    let v: u32 = a.ptr(2).read()?;
    let known = [KILL_PROCESS, KILL_THREAD, TRAP, ERRNO, TRACE, LOG, ALLOW].contains(&v);
    if known { Ok(0) } else { Err(Errno::EOPNOTSUPP) }
}

/// `seccomp(2)`.
pub fn sys_seccomp(a: &Args) -> Result<u64> {
    let (flags, p) = (a.u64(1) & u64::from(u32::MAX), a.ptr(2));
    match a.u32(0) {
        0 if flags == 0 && p.is_null() => set_strict(&a.thread),
        1 => set_filter(&a.thread, flags, p),
        2 if flags == 0 => action_avail(a),
        _ => Err(Errno::EINVAL),
    }
}
