//! Clocks and timers.
//!
//! Key types: [`Timekeeper`] (asynchronous timers and ticks, served by the domain's PID 1), [`TimerId`].
//! Blocking calls do not use timers: they give [`crate::core::sched::park`] a deadline.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use doppel_machine::sync::SpinLock;
use doppel_machine::{boot, clock, pod_struct};

use crate::core::sched::Deadline;
use crate::kernel;
use crate::{Errno, Result};

/// CLOCK_MONOTONIC of the domain in nanoseconds.
pub fn monotonic_ns() -> u64 {
    clock::host_monotonic_ns().wrapping_add(boot::vregs().monotonic_offset.load(Ordering::Relaxed))
}

/// CLOCK_REALTIME in nanoseconds since 1970.
pub fn realtime_ns() -> u64 {
    clock::host_clock_ns(clock::REALTIME)
}

/// CLOCK_REALTIME as of the host's last tick: the clock of file times, as on Linux.
pub fn coarse_realtime_ns() -> u64 {
    clock::host_clock_ns(clock::REALTIME_COARSE)
}

/// Turns a domain deadline into the host's CLOCK_MONOTONIC.
pub fn to_host_monotonic(deadline: u64) -> u64 {
    deadline.wrapping_sub(boot::vregs().monotonic_offset.load(Ordering::Relaxed)).min(i64::MAX as u64)
}

/// Identifies an armed timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimerId(u64, u64);

/// Something that happens at a time. Runs on PID 1 without locks held; must not block, and must not touch
/// user memory. Wake threads, queue signals, arm again.
pub trait Expire: Send + Sync {
    /// The time has come; `now` is CLOCK_MONOTONIC of the domain.
    fn expire(self: Arc<Self>, now: u64);
}

/// An address space, which has more to do than vCPUs that do it, or threads with deadlines and no vCPU that looks at them.
pub trait Ticks: Send + Sync {
    /// One tick: expires sleepers, preempts if threads wait; unless a `whole` time slice is over, only if one has come by
    /// its deadline. False if there was nothing to do: it ticks no more then.
    fn tick(&self, whole: bool) -> bool;

    /// The earliest deadline of a thread that sleeps off its vCPU.
    fn first_deadline(&self) -> Deadline;
}

/// Time slice between preemptions of a space that has more runnable threads than vCPUs.
pub const TICK_NS: u64 = 4_000_000;

/// The least time between two looks of PID 1 at deadlines of threads.
const LEAST_GAP_NS: u64 = 50_000;

/// Timers, ticks and requests that PID 1 serves.
#[derive(Default)]
pub struct Timekeeper {
    timers: SpinLock<BTreeMap<TimerId, Arc<dyn Expire>>>,
    ticking: SpinLock<Vec<Arc<dyn Ticks>>>,
    /// When the spaces last ticked, other than for a deadline.
    ticked: AtomicU64,
    /// When PID 1 will next wake by itself (domain monotonic), u64::MAX when it sleeps without limit.
    next_wake: AtomicU64,
}

impl Timekeeper {
    /// Arms a timer for `deadline` (domain monotonic nanoseconds).
    pub fn arm(&self, deadline: u64, what: Arc<dyn Expire>) -> TimerId {
        let id = TimerId(deadline, kernel().next_id());
        self.timers.lock().insert(id, what);
        if deadline < self.next_wake.load(Ordering::SeqCst) {
            self.wake();
        }
        id
    }

    /// Disarms a timer; false if it has expired already (it may be running now).
    pub fn cancel(&self, id: TimerId) -> bool {
        self.timers.lock().remove(&id).is_some()
    }

    /// When the first timer expires.
    pub fn first(&self) -> Deadline {
        self.timers.lock().first_key_value().map(|(k, _)| k.0)
    }

    /// Starts ticking a space.
    pub fn add_ticking(&self, space: Arc<dyn Ticks>) {
        let deadline = space.first_deadline().unwrap_or(u64::MAX);
        self.ticking.lock().push(space);
        self.look_by(deadline.min(monotonic_ns() + TICK_NS));
    }

    /// Sees to it that PID 1 looks at what there is to do at `deadline` at the latest.
    pub fn look_by(&self, deadline: u64) {
        if self.next_wake.load(Ordering::SeqCst) > deadline {
            self.wake();
        }
    }

    /// Wakes PID 1.
    pub fn wake(&self) {
        boot::wake_init();
    }

    /// Runs what is due; returns when to be called again. For PID 1's event loop.
    pub fn run(&self) -> Option<u64> {
        // Until the new sleep is known, everyone who adds work has to wake this loop once more: the wake-up noted
        // here is in the past, and would make them count on it.
        self.next_wake.store(u64::MAX, Ordering::SeqCst);
        let now = monotonic_ns();
        loop {
            let due = {
                let mut t = self.timers.lock();
                match t.first_entry() {
                    Some(e) if e.key().0 <= now => Some(e.remove()),
                    _ => None,
                }
            };
            match due {
                Some(e) => e.expire(now),
                None => break,
            }
        }
        let spaces = core::mem::take(&mut *self.ticking.lock());
        // A deadline may have come within a time slice: that is no reason to end the slices of others.
        let ticked = self.ticked.load(Ordering::Relaxed);
        let whole = now >= ticked.saturating_add(TICK_NS);
        if whole {
            self.ticked.store(now, Ordering::Relaxed);
        }
        let keep: Vec<_> = spaces.into_iter().filter(|s| s.tick(whole)).collect();
        let next_tick = if whole { now } else { ticked } + TICK_NS;
        let deadlines = keep.iter().filter_map(|s| s.first_deadline());
        let tick = (!keep.is_empty()).then(|| deadlines.fold(next_tick, u64::min).max(now + LEAST_GAP_NS));
        self.ticking.lock().extend(keep);
        let next = match (self.first(), tick) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        self.next_wake.store(next.unwrap_or(u64::MAX), Ordering::SeqCst);
        next
    }
}

pod_struct! {
    /// `struct timespec`.
    pub struct Timespec {
        /// Seconds.
        pub sec: i64,
        /// Nanoseconds below a second.
        pub nsec: i64,
    }
}

impl Timespec {
    /// The span in nanoseconds; EINVAL if it is negative or not normal. Saturates after 292 years.
    pub fn to_ns(self) -> Result<u64> {
        if self.sec < 0 || !(0..1_000_000_000).contains(&self.nsec) {
            return Err(Errno::EINVAL);
        }
        let ns = self.sec.saturating_mul(1_000_000_000).saturating_add(self.nsec);
        Ok(ns.cast_unsigned())
    }

    /// From nanoseconds.
    pub fn from_ns(ns: u64) -> Self {
        Self { sec: (ns / 1_000_000_000) as i64, nsec: (ns % 1_000_000_000) as i64 }
    }
}

pod_struct! {
    /// `struct timeval`.
    pub struct Timeval {
        /// Seconds.
        pub sec: i64,
        /// Microseconds below a second.
        pub usec: i64,
    }
}

impl Timeval {
    /// The span in nanoseconds; EINVAL if it is negative or not normal. Saturates after 292 years.
    pub fn to_ns(self) -> Result<u64> {
        if !(0..1_000_000).contains(&self.usec) {
            return Err(Errno::EINVAL);
        }
        Timespec { sec: self.sec, nsec: self.usec * 1000 }.to_ns()
    }

    /// From nanoseconds, rounded down.
    pub fn from_ns(ns: u64) -> Self {
        let t = Timespec::from_ns(ns);
        Self { sec: t.sec, usec: t.nsec / 1000 }
    }
}
