//! What timers are made of; how they work is said where they are used (interval.rs, posix.rs, watch.rs, itimer.rs).

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64};

use doppel_machine::pod_struct;
use doppel_machine::sync::SpinLock;

use crate::core::numbers::numbers;
use crate::core::time::TimerId;
use crate::process::task::{Process, Thread};
use crate::process::time::clock::Clock;

/// What a timer counts.
#[derive(Clone)]
pub enum Base {
    /// CLOCK_MONOTONIC (clocks of real time are converted when armed).
    Monotonic,
    /// CPU time of a process.
    Process(Weak<Process>),
    /// User time of a process.
    User(Weak<Process>),
    /// CPU time of a thread.
    Thread(Weak<Thread>),
}

/// Owner of a timer.
pub trait Elapsed: Send + Sync {
    /// `n` periods have ended. True lets a periodic timer go on by itself; false holds it until
    /// [`IntervalTimer::resume`]. Runs on PID 1 without locks: must not block.
    fn elapsed(&self, n: u64) -> bool;
}

#[derive(Default)]
pub(crate) struct State {
    /// When the current period ends on the base; `None` while disarmed.
    pub(crate) next: Option<u64>,
    pub(crate) interval: u64,
    pub(crate) id: Option<TimerId>,
    /// Bumped by every setting, so that an expiration under way does not re-arm a changed timer.
    pub(crate) setting: u64,
    pub(crate) held: bool,
}

/// A one-shot or periodic timer.
pub struct IntervalTimer {
    pub(crate) me: Weak<IntervalTimer>,
    pub(crate) base: Base,
    pub(crate) owner: Weak<dyn Elapsed>,
    pub(crate) state: SpinLock<State>,
}

numbers! {
    /// How a program is told (`sigev_notify` of `sigevent(3type)`).
    pub(crate) enum SigevNotify {
        Signal = 0,
        None = 1,
        Thread = 2,
        ThreadId = 4,
    }
}

pod_struct! {
    /// `struct sigevent`.
    pub struct Sigevent {
        /// `sigev_value`.
        pub value: u64,
        /// Signal number.
        pub signo: i32,
        /// SIGEV_SIGNAL, SIGEV_NONE, SIGEV_THREAD_ID.
        pub notify: i32,
        /// Thread id for SIGEV_THREAD_ID.
        pub tid: i32,
        /// Rest of the union.
        pub pad: [i32; 11],
    }
}

/// A timer made by timer_create.
pub(crate) struct PosixTimer {
    pub(crate) id: i32,
    /// Distinguishes it from a former timer with the same id.
    pub(crate) key: u64,
    pub(crate) clock: Clock,
    pub(crate) event: Sigevent,
    pub(crate) process: Weak<Process>,
    pub(crate) thread: Option<Weak<Thread>>,
    pub(crate) timer: Arc<IntervalTimer>,
    /// Overruns of the signal that was taken last.
    pub(crate) overrun: AtomicU64,
}

/// The timers of one process by id.
#[derive(Default)]
pub(crate) struct PosixTimers {
    pub(crate) timers: SpinLock<BTreeMap<i32, Arc<PosixTimer>>>,
}

/// The CPU-time timers of a process, and when to look at them.
pub struct CpuWatch {
    pub(crate) timers: SpinLock<Vec<Arc<IntervalTimer>>>,
    /// No thread ran at the last look: the next one that is switched in sees to another.
    pub(crate) dormant: AtomicBool,
    /// A look is due.
    pub(crate) armed: AtomicBool,
    /// Seconds of CPU time at which RLIMIT_CPU was last complained about.
    pub(crate) warned: AtomicU64,
}

/// A timer with what it tells, which it refers to only weakly.
pub(crate) type OwnedTimer = (Arc<IntervalTimer>, Arc<dyn Elapsed>);

/// Timers of one process (setitimer, timer_create).
#[derive(Default)]
pub struct ProcessTimers {
    pub(crate) interval: SpinLock<[Option<OwnedTimer>; 3]>,
    pub(crate) posix: PosixTimers,
    /// Timers and limits on CPU time.
    pub cpu: CpuWatch,
}
