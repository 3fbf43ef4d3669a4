//! Reading clocks, and the calls that would set them (refused: a domain has the host's time).

use alloc::sync::Arc;

use doppel_abi_linux::syscalls::nr;
use doppel_abi_linux::time::clock::*;
use doppel_machine::{clock, pod_struct};

use super::{Timespec, Timeval, cpu, monotonic_ns, realtime_ns};
use crate::syscall::Arg::{Int, Ptr};
use crate::syscall::{Args, Support::Full, Support::Partial, Support::Stub, Syscall, call};
use crate::task::{Process, Thread};
use crate::{Errno, Result, kernel};

/// Rows of the system call table.
pub const CALLS: &[Syscall] = &[
    call(nr::CLOCK_GETTIME, clock_gettime, Full, &[Int, Ptr], ""),
    call(nr::CLOCK_GETRES, clock_getres, Full, &[Int, Ptr], ""),
    call(nr::CLOCK_SETTIME, clock_settime, Stub, &[Int, Ptr], "EPERM: a domain has the host's time"),
    call(nr::CLOCK_ADJTIME, clock_adjtime, Partial, &[Int, Ptr], "reading only"),
    call(nr::ADJTIMEX, adjtimex, Partial, &[Ptr], "reading only"),
    call(nr::GETTIMEOFDAY, gettimeofday, Full, &[Ptr, Ptr], ""),
    call(nr::SETTIMEOFDAY, settimeofday, Stub, &[Ptr, Ptr], "EPERM: a domain has the host's time"),
    call(nr::TIME, time, Full, &[Ptr], ""),
];

/// Whose CPU time a dynamic clock id means.
pub(super) enum Owner {
    Process(Arc<Process>),
    Thread(Arc<Thread>),
}

/// Decodes a negative clock id (`clock_getcpuclockid`, `pthread_getcpuclockid`): ~pid << 3 | kind.
pub(super) fn dynamic(me: &Arc<Thread>, id: i32) -> Result<Owner> {
    const PER_THREAD: i32 = 4;
    if id & 3 == 3 {
        return Err(Errno::EINVAL);
    }
    let pid = !(id >> 3);
    if id & PER_THREAD != 0 {
        let t = if pid == 0 { me.clone() } else { kernel().thread(pid).map_err(|_| Errno::EINVAL)? };
        // A thread's clock is shown to its own process only.
        return if t.process.pid == me.process.pid { Ok(Owner::Thread(t)) } else { Err(Errno::EINVAL) };
    }
    if pid == 0 {
        return Ok(Owner::Process(me.process.clone()));
    }
    kernel().process(pid).map(Owner::Process).map_err(|_| Errno::EINVAL)
}

/// Whether the clock counts CPU time.
pub(super) fn counts_cpu(id: i32) -> bool {
    id < 0 || id == CLOCK_PROCESS_CPUTIME_ID || id == CLOCK_THREAD_CPUTIME_ID
}

/// Nanoseconds of any clock.
pub(super) fn read(me: &Arc<Thread>, id: i32) -> Result<u64> {
    Ok(match id {
        CLOCK_REALTIME | CLOCK_REALTIME_ALARM => realtime_ns(),
        CLOCK_REALTIME_COARSE | CLOCK_TAI => clock::host_clock_ns(id),
        CLOCK_MONOTONIC
        | CLOCK_MONOTONIC_RAW
        | CLOCK_MONOTONIC_COARSE
        | CLOCK_BOOTTIME
        | CLOCK_BOOTTIME_ALARM => monotonic_ns(),
        CLOCK_PROCESS_CPUTIME_ID => cpu::process_ns(&me.process),
        CLOCK_THREAD_CPUTIME_ID => cpu::thread_ns(me),
        id if id < 0 => match dynamic(me, id)? {
            Owner::Process(p) => cpu::process_ns(&p),
            Owner::Thread(t) => cpu::thread_ns(&t),
        },
        _ => return Err(Errno::EINVAL),
    })
}

/// The monotonic time at which a clock of real time shows `at`; EINVAL for clocks that cannot be waited on.
pub fn to_monotonic(id: i32, at: u64) -> Result<u64> {
    let now = match id {
        CLOCK_MONOTONIC | CLOCK_BOOTTIME | CLOCK_BOOTTIME_ALARM => return Ok(at),
        CLOCK_REALTIME | CLOCK_REALTIME_ALARM => realtime_ns(),
        CLOCK_TAI => clock::host_clock_ns(CLOCK_TAI),
        _ => return Err(Errno::EINVAL),
    };
    Ok(monotonic_ns().saturating_add(at.saturating_sub(now)))
}

fn clock_gettime(a: &Args) -> Result<u64> {
    let ns = read(&a.thread, a.i32(0))?;
    a.ptr(1).write(&Timespec::from_ns(ns))?;
    Ok(0)
}

fn clock_getres(a: &Args) -> Result<u64> {
    /// A host tick at 250 Hz.
    const TICK: u64 = 4_000_000;
    let id = a.i32(0);
    read(&a.thread, id)?;
    let ns = if matches!(id, CLOCK_REALTIME_COARSE | CLOCK_MONOTONIC_COARSE) { TICK } else { 1 };
    if !a.ptr(1).is_null() {
        a.ptr(1).write(&Timespec::from_ns(ns))?;
    }
    Ok(0)
}

fn clock_settime(a: &Args) -> Result<u64> {
    let new: Timespec = a.ptr(1).read()?;
    match a.i32(0) {
        CLOCK_REALTIME => {
            new.to_ns()?;
            Err(Errno::EPERM)
        }
        _ => Err(Errno::EINVAL),
    }
}

fn gettimeofday(a: &Args) -> Result<u64> {
    if !a.ptr(0).is_null() {
        a.ptr(0).write(&Timeval::from_ns(realtime_ns()))?;
    }
    if !a.ptr(1).is_null() {
        // struct timezone: UTC.
        a.ptr(1).write(&[0i32; 2])?;
    }
    Ok(0)
}

fn settimeofday(a: &Args) -> Result<u64> {
    if !a.ptr(0).is_null() {
        a.ptr(0).read::<Timeval>()?.to_ns()?;
    }
    Err(Errno::EPERM)
}

fn time(a: &Args) -> Result<u64> {
    let seconds = realtime_ns() / 1_000_000_000;
    if !a.ptr(0).is_null() {
        a.ptr(0).write(&seconds)?;
    }
    Ok(seconds)
}

pod_struct! {
    /// `struct timex`.
    pub struct Timex {
        /// What to change; 0 only reads.
        pub modes: u32,
        /// Padding.
        pub pad0: u32,
        /// offset, freq, maxerror, esterror.
        pub errors: [i64; 4],
        /// STA_* flags.
        pub status: i32,
        /// Padding.
        pub pad1: i32,
        /// constant, precision, tolerance.
        pub constants: [i64; 3],
        /// The time.
        pub time: Timeval,
        /// Microseconds between ticks.
        pub tick: i64,
        /// ppsfreq, jitter.
        pub pps0: [i64; 2],
        /// PPS shift.
        pub shift: i32,
        /// Padding.
        pub pad2: i32,
        /// stabil, jitcnt, calcnt, errcnt, stbcnt.
        pub pps1: [i64; 5],
        /// TAI offset.
        pub tai: i32,
        /// Reserved.
        pub pad3: [i32; 11],
    }
}

const _: () = assert!(size_of::<Timex>() == 208);

fn adjust(a: &Args, at: usize) -> Result<u64> {
    /// Status: not synchronised; returned state TIME_ERROR.
    const STA_UNSYNC: i32 = 0x40;
    const TIME_ERROR: u64 = 5;
    let mut t: Timex = a.ptr(at).read()?;
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
    a.ptr(at).write(&t)?;
    Ok(TIME_ERROR)
}

fn adjtimex(a: &Args) -> Result<u64> {
    adjust(a, 0)
}

fn clock_adjtime(a: &Args) -> Result<u64> {
    match a.i32(0) {
        CLOCK_REALTIME => adjust(a, 1),
        CLOCK_MONOTONIC | CLOCK_BOOTTIME | CLOCK_TAI => Err(Errno::EOPNOTSUPP),
        _ => Err(Errno::EINVAL),
    }
}
