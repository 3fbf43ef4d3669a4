//! Reading clocks.

use crate::process::namespaces::numbers;
use alloc::sync::Arc;

use doppel_abi_linux::time::clock::{CLOCK_REALTIME_COARSE, CLOCK_TAI};
use doppel_machine::{clock, pod_struct};

use super::clock::Clock;
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
        let t = if pid == 0 { me.clone() } else { numbers::thread(pid).map_err(|_| Errno::EINVAL)? };
        // A thread's clock is shown to its own process only.
        return if t.process.pid == me.process.pid { Ok(Owner::Thread(t)) } else { Err(Errno::EINVAL) };
    }
    if pid == 0 {
        return Ok(Owner::Process(me.process.clone()));
    }
    numbers::process(pid).map(Owner::Process).map_err(|_| Errno::EINVAL)
}

impl Clock {
    /// Whether the clock counts CPU time.
    pub(crate) fn counts_cpu(self) -> bool {
        matches!(self, Self::ProcessCpu | Self::ThreadCpu | Self::Dynamic(_))
    }

    /// Its nanoseconds.
    pub(crate) fn read(self, me: &Arc<Thread>) -> Result<u64> {
        Ok(match self {
            Self::Realtime | Self::RealtimeAlarm => realtime_ns(),
            Self::RealtimeCoarse => clock::host_clock_ns(CLOCK_REALTIME_COARSE),
            Self::Tai => clock::host_clock_ns(CLOCK_TAI),
            Self::Monotonic
            | Self::MonotonicRaw
            | Self::MonotonicCoarse
            | Self::Boottime
            | Self::BoottimeAlarm => monotonic_ns(),
            Self::ProcessCpu => cpu::process_ns(&me.process),
            Self::ThreadCpu => cpu::thread_ns(me),
            Self::Dynamic(id) => match dynamic(me, id)? {
                Owner::Process(p) => cpu::process_ns(&p),
                Owner::Thread(t) => cpu::thread_ns(&t),
            },
        })
    }

    /// The monotonic time at which a clock of real time shows `at`; EINVAL for clocks that cannot be waited on.
    pub(crate) fn to_monotonic(self, at: u64) -> Result<u64> {
        let now = match self {
            Self::Monotonic | Self::Boottime | Self::BoottimeAlarm => return Ok(at),
            Self::Realtime | Self::RealtimeAlarm => realtime_ns(),
            Self::Tai => clock::host_clock_ns(CLOCK_TAI),
            _ => return Err(Errno::EINVAL),
        };
        Ok(monotonic_ns().saturating_add(at.saturating_sub(now)))
    }
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
