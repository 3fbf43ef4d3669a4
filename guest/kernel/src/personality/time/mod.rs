//! System calls on clocks and timers.

bitflags::bitflags! {
    /// Flags of `clock_nanosleep(2)` and `timer_settime(2)`; others are overlooked.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub(crate) struct TimerFlags: u32 {
        const ABSTIME = 1;
    }
}

pub mod clocks;
pub mod itimer;
pub mod posix;
pub mod sleep;
pub mod usage;
