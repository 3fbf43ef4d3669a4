//! Interval timers of a process: setitimer, getitimer, alarm.

use doppel_abi_linux::syscalls::nr;
use doppel_machine::pod_struct;

use crate::Result;
use crate::core::time::Timeval;
use crate::personality::Support::Full;
use crate::personality::args::Number;
use crate::personality::{Args, Syscall, call};
use crate::process::time::itimer::Itimer;
use doppel_machine::user::UserPtr;

/// Rows of the system call table.
pub const CALLS: &[Syscall] = &[
    call!(nr::GETITIMER, getitimer(Number<Itimer>, UserPtr), Full, ""),
    call!(nr::SETITIMER, setitimer(Number<Itimer>, UserPtr, UserPtr), Full, ""),
    call!(nr::ALARM, alarm(u32), Full, ""),
];

pod_struct! {
    /// `struct itimerval`.
    pub struct Itimerval {
        /// Period.
        pub interval: Timeval,
        /// Time to the next expiration; zero: disarmed.
        pub value: Timeval,
    }
}

fn itimerval((left, interval): (u64, u64)) -> Itimerval {
    // Cut as on Linux, but an armed timer never shows zero: that would mean disarmed.
    let left = if left == 0 { 0 } else { left.max(1000) };
    Itimerval { interval: Timeval::from_ns(interval), value: Timeval::from_ns(left) }
}

fn getitimer(a: &Args, which: Number<Itimer>, out: UserPtr) -> Result<u64> {
    let p = &a.thread.process;
    let t = p.timers.itimer(p, which.get()?);
    out.write(&itimerval(t.get()))?;
    Ok(0)
}

fn setitimer(a: &Args, which: Number<Itimer>, user_new: UserPtr, user_old: UserPtr) -> Result<u64> {
    let p = &a.thread.process;
    let new: Itimerval = if user_new.is_null() { Itimerval::default() } else { user_new.read()? };
    let (value, interval) = (new.value.to_ns()?, new.interval.to_ns()?);
    let t = p.timers.itimer(p, which.get()?);
    let deadline = (value != 0).then(|| t.now().saturating_add(value));
    let old = t.set(deadline, interval);
    if !user_old.is_null() {
        user_old.write(&itimerval(old))?;
    }
    Ok(0)
}

fn alarm(a: &Args, given_seconds: u32) -> Result<u64> {
    const SECOND: u64 = 1_000_000_000;
    let p = &a.thread.process;
    let t = p.timers.itimer(p, Itimer::Real);
    let seconds = u64::from(given_seconds);
    let deadline = (seconds != 0).then(|| t.now() + seconds * SECOND);
    let (left, _) = t.set(deadline, 0);
    // As Linux: rounded to the nearest second, but an armed timer never shows zero.
    let rounded = (left + SECOND / 2) / SECOND;
    Ok(if left > 0 { rounded.max(1) } else { 0 })
}
