//! `exit(2)` and `exit_group(2)`.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use doppel_abi_linux::syscalls::nr;

use crate::Result;
use crate::personality::Support::Full;
use crate::personality::{Args, Syscall, call};
use crate::process::life::ending::{do_group_exit, mark_exiting};

/// Ending.
pub const CALLS: &[Syscall] =
    &[call!(nr::EXIT, sys_exit(i32), Full, ""), call!(nr::EXIT_GROUP, sys_exit_group(i32), Full, "")];

fn sys_exit(a: &Args, status: i32) -> Result<u64> {
    let status = (status & 0xff) << 8;
    let p = &a.thread.process;
    {
        let threads = p.threads.lock();
        let others = threads.iter().any(|t| !Arc::ptr_eq(t, &a.thread) && !t.exiting.load(Ordering::SeqCst));
        let mut group = p.group_exit.lock();
        if !others && group.is_none() {
            *group = Some(status);
        }
    }
    mark_exiting(&a.thread);
    Ok(0)
}

fn sys_exit_group(a: &Args, status: i32) -> Result<u64> {
    do_group_exit(&a.thread, (status & 0xff) << 8);
    Ok(0)
}
