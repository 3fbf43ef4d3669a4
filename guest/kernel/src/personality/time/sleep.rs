//! `nanosleep(2)` and `clock_nanosleep(2)`.

use alloc::boxed::Box;
use alloc::sync::Arc;

use doppel_abi_linux::syscalls::nr;
use doppel_machine::user::UserPtr;

use crate::core::sched;
use crate::core::time::{Timespec, monotonic_ns};
use crate::personality::Support::{Full, Partial};
use crate::personality::args::{Bits, Number};
use crate::personality::time::TimerFlags;
use crate::personality::{Args, Syscall, call};
use crate::process::task::{Thread, current};
use crate::process::time::clock::Clock;
use crate::{Errno, Result};

/// Rows of the system call table.
pub const CALLS: &[Syscall] = &[
    call!(nr::NANOSLEEP, nanosleep(UserPtr, UserPtr), Full, ""),
    call!(
        nr::CLOCK_NANOSLEEP,
        clock_nanosleep(Number<Clock>, Bits<TimerFlags>, UserPtr, UserPtr),
        Partial,
        "not on CPU-time clocks"
    ),
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

fn nanosleep(a: &Args, span: UserPtr, remaining: UserPtr) -> Result<u64> {
    let span = span.read::<Timespec>()?.to_ns()?;
    relative(&a.thread, monotonic_ns().saturating_add(span), remaining)
}

fn clock_nanosleep(
    a: &Args,
    clock: Number<Clock>,
    flags: Bits<TimerFlags>,
    when: UserPtr,
    remaining: UserPtr,
) -> Result<u64> {
    let when = when.read::<Timespec>()?;
    let clock = clock.get()?;
    if clock.counts_cpu() {
        clock.read(&a.thread)?;
        return Err(if clock == Clock::ThreadCpu { Errno::EINVAL } else { Errno::EOPNOTSUPP });
    }
    clock.to_monotonic(0)?;
    let ns = when.to_ns()?;
    if !flags.any().contains(TimerFlags::ABSTIME) {
        return relative(&a.thread, monotonic_ns().saturating_add(ns), remaining);
    }
    let deadline = clock.to_monotonic(ns)?;
    if sleep_until(&a.thread, deadline) { Ok(0) } else { Err(Errno::ERESTARTNOHAND) }
}
