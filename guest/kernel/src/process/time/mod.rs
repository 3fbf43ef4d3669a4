//! Clocks as programs see them, CPU time, timers of processes.

pub mod clock;
pub mod clocks;
pub mod cpu;
pub mod interval;
pub mod itimer;
pub mod posix;
pub mod timers;
pub mod used;
pub mod watch;
