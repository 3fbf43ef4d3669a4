//! System calls on clocks and timers.

pub mod clocks;
pub mod itimer;
pub mod posix;
pub mod sleep;
pub mod usage;
