//! System calls on the list of robust futexes.

use crate::process::namespaces::numbers;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use crate::personality::Args;
use crate::{Errno, Result};
use doppel_machine::user::UserPtr;

/// `sizeof(struct robust_list_head)`.
const HEAD_SIZE: u64 = 24;

pub(super) fn set_robust_list(a: &Args, UserPtr(head): UserPtr, size: u64) -> Result<u64> {
    if size != HEAD_SIZE {
        return Err(Errno::EINVAL);
    }
    a.thread.robust_list.store(head, Ordering::Relaxed);
    Ok(0)
}

pub(super) fn get_robust_list(a: &Args, tid: i32, user_head: UserPtr, user_size: UserPtr) -> Result<u64> {
    let t = if tid == 0 { a.thread.clone() } else { numbers::thread(tid)? };
    if !Arc::ptr_eq(&t.process, &a.thread.process) {
        let (mine, other) = (a.thread.cred(), t.process.cred());
        const CAP_SYS_PTRACE: u32 = 19;
        let same = [other.ruid, other.euid, other.suid].iter().all(|u| *u == mine.fsuid);
        if !same && !mine.capable_in(&other.user, CAP_SYS_PTRACE) {
            return Err(Errno::EPERM);
        }
    }
    user_size.write(&HEAD_SIZE)?;
    user_head.write(&t.robust_list.load(Ordering::Relaxed))?;
    Ok(0)
}
