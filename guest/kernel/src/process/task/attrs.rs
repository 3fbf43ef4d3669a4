//! Attributes of threads and processes that are kept for programs to read back: scheduling, slack, personality.

use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use doppel_machine::sync::SpinLock;

use crate::core::numbers::numbers;
use crate::kernel;

numbers! {
    /// Scheduling policies (`sched(7)`).
    #[allow(missing_docs)]
    pub enum Policy {
        Other = 0,
        Fifo = 1,
        RoundRobin = 2,
        Batch = 3,
        Idle = 5,
        Deadline = 6,
    }
}

/// Scheduling attributes of a thread. The guest scheduler treats all threads alike; policies and priorities
/// are remembered, affinity too.
#[derive(Clone, Copy, Debug)]
pub struct SchedAttrs {
    /// The policy.
    pub policy: Policy,
    /// Real-time priority, 0 for ordinary policies.
    pub priority: i32,
    /// SCHED_RESET_ON_FORK.
    pub reset_on_fork: bool,
    /// Allowed CPUs, bit by bit.
    pub affinity: u64,
    /// `ioprio_set(2)` value.
    pub ioprio: u32,
}

/// Per-thread attributes.
pub struct ThreadAttrs {
    /// Scheduling.
    pub sched: SpinLock<SchedAttrs>,
    /// PR_SET_TIMERSLACK, nanoseconds.
    pub timer_slack: AtomicU64,
}

/// Default timer slack.
pub const TIMER_SLACK: u64 = 50_000;

/// CPUs programs see, as a mask.
pub fn all_cpus() -> u64 {
    u64::MAX >> (64 - kernel().vcpu_limit.clamp(1, 64))
}

impl Default for ThreadAttrs {
    fn default() -> Self {
        Self {
            sched: SpinLock::new(SchedAttrs {
                policy: Policy::Other,
                priority: 0,
                reset_on_fork: false,
                affinity: u64::MAX,
                ioprio: 0,
            }),
            timer_slack: AtomicU64::new(TIMER_SLACK),
        }
    }
}

impl ThreadAttrs {
    /// Takes over what a new thread inherits from its maker.
    pub fn inherit(&self, from: &Self) {
        let mut s = *from.sched.lock();
        if s.reset_on_fork {
            (s.policy, s.priority, s.reset_on_fork) = (Policy::Other, 0, false);
        }
        *self.sched.lock() = s;
        self.timer_slack.store(from.timer_slack.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Per-process attributes.
pub struct ProcessAttrs {
    /// /proc/PID/coredump_filter.
    pub core_filter: AtomicU32,
    /// `personality(2)`.
    pub personality: AtomicU32,
    /// PR_SET_THP_DISABLE.
    pub thp_disable: AtomicU32,
    /// /proc/PID/oom_score_adj.
    pub oom_score_adj: AtomicI32,
    /// PR_MCE_KILL.
    pub mce_kill: AtomicU32,
    /// PR_SET_IO_FLUSHER.
    pub io_flusher: AtomicU32,
}

/// PR_MCE_KILL_DEFAULT.
pub const MCE_DEFAULT: u32 = 2;

/// Kinds of memory in a core file unless the program says otherwise: private and shared anonymous memory, ELF headers,
/// private huge pages.
const CORE_FILTER: u32 = 0x33;

impl Default for ProcessAttrs {
    fn default() -> Self {
        Self {
            core_filter: AtomicU32::new(CORE_FILTER),
            personality: AtomicU32::default(),
            thp_disable: AtomicU32::default(),
            oom_score_adj: AtomicI32::default(),
            mce_kill: AtomicU32::new(MCE_DEFAULT),
            io_flusher: AtomicU32::default(),
        }
    }
}

impl ProcessAttrs {
    /// Takes over what a forked process inherits.
    pub fn inherit(&self, from: &Self) {
        self.core_filter.store(from.core_filter.load(Ordering::Relaxed), Ordering::Relaxed);
        self.personality.store(from.personality.load(Ordering::Relaxed), Ordering::Relaxed);
        self.thp_disable.store(from.thp_disable.load(Ordering::Relaxed), Ordering::Relaxed);
        self.oom_score_adj.store(from.oom_score_adj.load(Ordering::Relaxed), Ordering::Relaxed);
        self.mce_kill.store(from.mce_kill.load(Ordering::Relaxed), Ordering::Relaxed);
        self.io_flusher.store(from.io_flusher.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}
