//! Reading clocks.

use crate::process::task::TASKS;
use alloc::sync::Arc;

use doppel_abi_linux::time::clock::*;
use doppel_machine::{clock, pod_struct};

use super::cpu;
use crate::core::time::{Timeval, monotonic_ns, realtime_ns};
use crate::process::task::{Process, Thread};
use crate::{Errno, Result};

/// Whose CPU time a dynamic clock id means.
pub(crate) enum Owner {
    Process(Arc<Process>),
    Thread(Arc<Thread>),
}

/// Decodes a negative clock id (`clock_getcpuclockid`, `pthread_getcpuclockid`): ~pid << 3 | kind.
pub(crate) fn dynamic(me: &Arc<Thread>, id: i32) -> Result<Owner> {
    const PER_THREAD: i32 = 4;
    if id & 3 == 3 {
        return Err(Errno::EINVAL);
    }
    let pid = !(id >> 3);
    if id & PER_THREAD != 0 {
        let t = if pid == 0 { me.clone() } else { TASKS.thread(pid).map_err(|_| Errno::EINVAL)? };
        // A thread's clock is shown to its own process only.
        return if t.process.pid == me.process.pid { Ok(Owner::Thread(t)) } else { Err(Errno::EINVAL) };
    }
    if pid == 0 {
        return Ok(Owner::Process(me.process.clone()));
    }
    TASKS.process(pid).map(Owner::Process).map_err(|_| Errno::EINVAL)
}

/// Whether the clock counts CPU time.
pub(crate) fn counts_cpu(id: i32) -> bool {
    id < 0 || id == CLOCK_PROCESS_CPUTIME_ID || id == CLOCK_THREAD_CPUTIME_ID
}

/// Nanoseconds of any clock.
pub(crate) fn read(me: &Arc<Thread>, id: i32) -> Result<u64> {
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
