//! System calls on clocks.

use doppel_abi_linux::syscalls::nr;

use crate::core::time::{Timespec, Timeval, realtime_ns};
use crate::personality::Support::{Full, Partial, Stub};
use crate::personality::args::Number;
use crate::personality::{Args, Syscall, call};
use crate::process::time::clock::Clock;
use crate::process::time::clocks::Timex;
use crate::{Errno, Result};
use doppel_machine::user::UserPtr;

/// Rows of the system call table.
pub const CALLS: &[Syscall] = &[
    call!(nr::CLOCK_GETTIME, clock_gettime(Number<Clock>, UserPtr), Full, ""),
    call!(nr::CLOCK_GETRES, clock_getres(Number<Clock>, UserPtr), Full, ""),
    call!(
        nr::CLOCK_SETTIME,
        clock_settime(Number<Clock>, UserPtr),
        Stub,
        "EPERM: a domain has the host's time"
    ),
    call!(nr::CLOCK_ADJTIME, clock_adjtime(Number<Clock>, UserPtr), Partial, "reading only"),
    call!(nr::ADJTIMEX, adjtimex(UserPtr), Partial, "reading only"),
    call!(nr::GETTIMEOFDAY, gettimeofday(UserPtr, UserPtr), Full, ""),
    call!(nr::SETTIMEOFDAY, settimeofday(UserPtr, UserPtr), Stub, "EPERM: a domain has the host's time"),
    call!(nr::TIME, time(UserPtr), Full, ""),
];

#[inline]
fn clock_gettime(a: &Args, clock: Number<Clock>, out: UserPtr) -> Result<u64> {
    let ns = clock.get()?.read(&a.thread)?;
    out.write(&Timespec::from_ns(ns))?;
    Ok(0)
}

fn clock_getres(a: &Args, clock: Number<Clock>, out: UserPtr) -> Result<u64> {
    /// A host tick at 250 Hz.
    const TICK: u64 = 4_000_000;
    let clock = clock.get()?;
    clock.read(&a.thread)?;
    let ns = if matches!(clock, Clock::RealtimeCoarse | Clock::MonotonicCoarse) { TICK } else { 1 };
    if !out.is_null() {
        out.write(&Timespec::from_ns(ns))?;
    }
    Ok(0)
}

fn clock_settime(_: &Args, clock: Number<Clock>, value: UserPtr) -> Result<u64> {
    let new: Timespec = value.read()?;
    match clock.get()? {
        Clock::Realtime => {
            new.to_ns()?;
            Err(Errno::EPERM)
        }
        _ => Err(Errno::EINVAL),
    }
}

fn gettimeofday(_: &Args, time: UserPtr, zone: UserPtr) -> Result<u64> {
    if !time.is_null() {
        time.write(&Timeval::from_ns(realtime_ns()))?;
    }
    if !zone.is_null() {
        // struct timezone: UTC.
        zone.write(&[0i32; 2])?;
    }
    Ok(0)
}

fn settimeofday(_: &Args, time: UserPtr, _zone: UserPtr) -> Result<u64> {
    if !time.is_null() {
        time.read::<Timeval>()?.to_ns()?;
    }
    Err(Errno::EPERM)
}

fn time(_: &Args, out: UserPtr) -> Result<u64> {
    let seconds = realtime_ns() / 1_000_000_000;
    if !out.is_null() {
        out.write(&seconds)?;
    }
    Ok(seconds)
}

fn adjtimex(_: &Args, user: UserPtr) -> Result<u64> {
    /// Status: not synchronised; returned state TIME_ERROR.
    const STA_UNSYNC: i32 = 0x40;
    const TIME_ERROR: u64 = 5;
    let mut t: Timex = user.read()?;
    if t.modes != 0 {
        return Err(Errno::EPERM);
    }
    t = Timex {
        errors: [0, 0, 16_000_000, 16_000_000],
        status: STA_UNSYNC,
        constants: [2, 1, 32_768_000],
        time: Timeval::from_ns(realtime_ns()),
        tick: 10_000,
        ..Timex::default()
    };
    user.write(&t)?;
    Ok(TIME_ERROR)
}

fn clock_adjtime(a: &Args, clock: Number<Clock>, user: UserPtr) -> Result<u64> {
    match clock.get()? {
        Clock::Realtime => adjtimex(a, user),
        Clock::Monotonic | Clock::Boottime | Clock::Tai => Err(Errno::EOPNOTSUPP),
        _ => Err(Errno::EINVAL),
    }
}
