//! How a supervisor sees that a service domain works: a word of a memory file of theirs, which no domain ever sees.

use core::sync::atomic::AtomicU32;

/// The memory file's content.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Pulse {
    /// Odd: at work; even: waits for work. Another number at each step of work. The service domain's.
    pub count: AtomicU32,
    /// 1: the supervisor sleeps, and an alarm is to wake it at the next step. It sets this word, the service domain takes it.
    pub watcher_sleeps: AtomicU32,
    /// The longest step of work so far in microseconds, waits for a CPU included. The service domain's.
    pub longest: AtomicU32,
}
