//! `nanosleep(2)` and `clock_nanosleep(2)`.

use alloc::boxed::Box;
use alloc::sync::Arc;

use doppel_abi_linux::syscalls::nr;
use doppel_abi_linux::time::TIMER_ABSTIME;
use doppel_abi_linux::time::clock::{CLOCK_MONOTONIC, CLOCK_THREAD_CPUTIME_ID};
use doppel_machine::user::UserPtr;

use crate::core::sched;
use crate::core::time::{Timespec, monotonic_ns};
use crate::personality::Arg::{Hex, Int, Ptr};
use crate::personality::Support::{Full, Partial};
use crate::personality::{Args, Syscall, call};
use crate::process::task::{Thread, current};
use crate::process::time::clocks;
use crate::{Errno, Result};

/// Rows of the system call table.
pub const CALLS: &[Syscall] = &[
    call(nr::NANOSLEEP, nanosleep, Full, &[Ptr, Ptr], ""),
    call(nr::CLOCK_NANOSLEEP, clock_nanosleep, Partial, &[Int, Hex, Ptr, Ptr], "not on CPU-time clocks"),
];

/// Sleeps until `deadline`; false if interrupted.
fn sleep_until(t: &Arc<Thread>, deadline: u64) -> bool {
    loop {
        if monotonic_ns() >= deadline {
            return true;
        }
        if t.interrupted() {
            return false;
        }
        sched::park(&**t, Some(deadline));
    }
}

/// A relative sleep: when interrupted without a handler it goes on to the same deadline.
fn relative(t: &Arc<Thread>, deadline: u64, remaining: UserPtr) -> Result<u64> {
    if sleep_until(t, deadline) {
        return Ok(0);
    }
    if !remaining.is_null() {
        remaining.write(&Timespec::from_ns(deadline.saturating_sub(monotonic_ns())))?;
    }
    *t.restart.lock() = Some(Box::new(move || relative(&current(), deadline, remaining)));
    Err(Errno::ERESTART_RESTARTBLOCK)
}

fn nanosleep(a: &Args) -> Result<u64> {
    let span = a.ptr(0).read::<Timespec>()?.to_ns()?;
    relative(&a.thread, monotonic_ns().saturating_add(span), a.ptr(1))
}

fn clock_nanosleep(a: &Args) -> Result<u64> {
    let (id, flags) = (a.i32(0), a.i32(1));
    let when = a.ptr(2).read::<Timespec>()?;
    if clocks::counts_cpu(id) {
        clocks::read(&a.thread, id)?;
        return Err(if id == CLOCK_THREAD_CPUTIME_ID { Errno::EINVAL } else { Errno::EOPNOTSUPP });
    }
    clocks::to_monotonic(id, 0)?;
    let ns = when.to_ns()?;
    if flags & TIMER_ABSTIME == 0 {
        let now = clocks::to_monotonic(CLOCK_MONOTONIC, monotonic_ns())?;
        return relative(&a.thread, now.saturating_add(ns), a.ptr(3));
    }
    let deadline = clocks::to_monotonic(id, ns)?;
    if sleep_until(&a.thread, deadline) { Ok(0) } else { Err(Errno::ERESTARTNOHAND) }
}
