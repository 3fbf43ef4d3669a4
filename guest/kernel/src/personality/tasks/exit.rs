//! `exit(2)` and `exit_group(2)`.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use doppel_abi_linux::syscalls::nr;

use crate::Result;
use crate::personality::Arg::Int;
use crate::personality::Support::Full;
use crate::personality::{Args, Syscall, call};
use crate::process::life::ending::{do_group_exit, mark_exiting};

/// Ending.
pub const CALLS: &[Syscall] =
    &[call(nr::EXIT, sys_exit, Full, &[Int], ""), call(nr::EXIT_GROUP, sys_exit_group, Full, &[Int], "")];

fn sys_exit(a: &Args) -> Result<u64> {
    let status = (a.i32(0) & 0xff) << 8;
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

fn sys_exit_group(a: &Args) -> Result<u64> {
    do_group_exit(&a.thread, (a.i32(0) & 0xff) << 8);
    Ok(0)
}
