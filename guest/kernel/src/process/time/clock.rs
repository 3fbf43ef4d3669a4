//! What clock ids stand for; how clocks are read is said in [`super::clocks`].

use doppel_abi_linux::time::clock::*;

use crate::{Errno, Result};

/// What a clock id stands for (`clock_gettime(2)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    Realtime,
    Monotonic,
    ProcessCpu,
    ThreadCpu,
    MonotonicRaw,
    RealtimeCoarse,
    MonotonicCoarse,
    Boottime,
    RealtimeAlarm,
    BoottimeAlarm,
    Tai,
    /// The CPU time of a process or thread, by a negative id.
    Dynamic(i32),
}

impl TryFrom<u32> for Clock {
    type Error = Errno;

    #[inline]
    fn try_from(id: u32) -> Result<Self> {
        Ok(match id.cast_signed() {
            CLOCK_REALTIME => Self::Realtime,
            CLOCK_MONOTONIC => Self::Monotonic,
            CLOCK_PROCESS_CPUTIME_ID => Self::ProcessCpu,
            CLOCK_THREAD_CPUTIME_ID => Self::ThreadCpu,
            CLOCK_MONOTONIC_RAW => Self::MonotonicRaw,
            CLOCK_REALTIME_COARSE => Self::RealtimeCoarse,
            CLOCK_MONOTONIC_COARSE => Self::MonotonicCoarse,
            CLOCK_BOOTTIME => Self::Boottime,
            CLOCK_REALTIME_ALARM => Self::RealtimeAlarm,
            CLOCK_BOOTTIME_ALARM => Self::BoottimeAlarm,
            CLOCK_TAI => Self::Tai,
            id if id < 0 => Self::Dynamic(id),
            _ => return Err(Errno::EINVAL),
        })
    }
}
