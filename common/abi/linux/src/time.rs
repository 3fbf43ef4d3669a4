//! Clocks and timers (`clock_gettime(2)`, `timer_create(2)`): numbers and flags.

/// Clock ids.
#[allow(missing_docs)]
pub mod clock {
    pub const CLOCK_REALTIME: i32 = 0;
    pub const CLOCK_MONOTONIC: i32 = 1;
    pub const CLOCK_PROCESS_CPUTIME_ID: i32 = 2;
    pub const CLOCK_THREAD_CPUTIME_ID: i32 = 3;
    pub const CLOCK_MONOTONIC_RAW: i32 = 4;
    pub const CLOCK_REALTIME_COARSE: i32 = 5;
    pub const CLOCK_MONOTONIC_COARSE: i32 = 6;
    pub const CLOCK_BOOTTIME: i32 = 7;
    pub const CLOCK_REALTIME_ALARM: i32 = 8;
    pub const CLOCK_BOOTTIME_ALARM: i32 = 9;
    pub const CLOCK_TAI: i32 = 11;
}

/// Ticks of `times(2)` in a second (AT_CLKTCK).
pub const USER_HZ: u64 = 100;
