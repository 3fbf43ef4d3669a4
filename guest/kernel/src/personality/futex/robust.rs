//! System calls on the list of robust futexes.

use crate::process::task::TASKS;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use crate::personality::Args;
use crate::{Errno, Result};

/// `sizeof(struct robust_list_head)`.
const HEAD_SIZE: u64 = 24;

pub(super) fn set_robust_list(a: &Args) -> Result<u64> {
    if a.u64(1) != HEAD_SIZE {
        return Err(Errno::EINVAL);
    }
    a.thread.robust_list.store(a.u64(0), Ordering::Relaxed);
    Ok(0)
}

pub(super) fn get_robust_list(a: &Args) -> Result<u64> {
    let t = if a.i32(0) == 0 { a.thread.clone() } else { TASKS.thread(a.i32(0))? };
    if !Arc::ptr_eq(&t.process, &a.thread.process) {
        let (mine, other) = (a.thread.cred(), t.process.cred());
        const CAP_SYS_PTRACE: u32 = 19;
        let same = [other.ruid, other.euid, other.suid].iter().all(|u| *u == mine.fsuid);
        if !same && !mine.capable(CAP_SYS_PTRACE) {
            return Err(Errno::EPERM);
        }
    }
    a.ptr(2).write(&HEAD_SIZE)?;
    a.ptr(1).write(&t.robust_list.load(Ordering::Relaxed))?;
    Ok(0)
}
