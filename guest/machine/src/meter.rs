//! What a vCPU has used: CPU time by the host's own account, asked for where that pays.
//!
//! A slice, the time between two switches, mostly lasts microseconds, and the host then hardly takes the CPU away
//! meanwhile: its CPU time is what passed. A slice that took long ([`LONG_NS`]) may hold time in which the host ran
//! others, so the host is asked. So the common switch costs no host call, and what is wrong is at most a short
//! preemption a slice.
//!
//! `charged` and `rough` together are what the threads of this vCPU have been charged for. The rest of what its host
//! process has used by the host's account (sleeping and waking, running slices) is nobody's yet.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::host;

/// A slice that lasted longer is asked about.
const LONG_NS: u64 = 200_000;
/// After so many slices the host is asked anyway, so that what no slice holds does not hide what the host took.
const SLICES_MAX: u32 = 256;
/// A system call is timed after 1 to so many, a power of two; which one is a matter of chance.
const SAMPLING: u64 = 1024;

/// See the module.
#[derive(Default)]
pub struct Meter {
    /// The host's account of this host thread, when it was last asked.
    seen: AtomicU64,
    /// Charged for up to then.
    charged: AtomicU64,
    /// Charged for since, by what passed.
    rough: AtomicU64,
    slices: AtomicU32,
    /// The next system call that is timed, by its vCPU's count of them.
    next: AtomicU64,
    /// Whether it is the one behind another.
    close: AtomicBool,
}

/// What [`Meter::charge`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charge {
    /// CPU time of the slice.
    pub cpu: u64,
    /// What the host has taken away since it was last asked.
    pub stolen: u64,
}

/// All accesses are by the vCPU itself, but for reads of what was charged.
impl Meter {
    /// For a new host thread, whose calls are counted from `count` on. `dice` is some random number.
    pub(crate) fn reset(&mut self, count: u64, dice: u64) {
        *self = Self::default();
        // Each of its first calls is as likely to be timed as what a timed one stands for wants it.
        *self.next.get_mut() = count.wrapping_add(1 + dice % (SAMPLING / 2));
    }

    /// Ends a slice that took `wall` nanoseconds; `exact`: ask the host in any case. Runs on the vCPU of this meter.
    #[inline]
    pub fn charge(&self, wall: u64, exact: bool) -> Charge {
        let slices = self.slices.load(Ordering::Relaxed) + 1;
        if !exact && wall < LONG_NS && slices < SLICES_MAX {
            self.slices.store(slices, Ordering::Relaxed);
            self.rough.store(self.rough.load(Ordering::Relaxed) + wall, Ordering::Relaxed);
            return Charge { cpu: wall, stolen: 0 };
        }
        self.ask(wall)
    }

    #[cold]
    fn ask(&self, wall: u64) -> Charge {
        let now = host::thread_cpu_ns();
        let used = now.saturating_sub(self.seen.load(Ordering::Relaxed));
        let rough = self.rough.load(Ordering::Relaxed);
        let cpu = used.saturating_sub(rough).min(wall);
        self.seen.store(now, Ordering::Relaxed);
        // In this order: who reads meanwhile finds too much charged, never too little.
        self.charged.store(self.charged.load(Ordering::Relaxed) + rough + cpu, Ordering::Release);
        self.rough.store(0, Ordering::Release);
        self.slices.store(0, Ordering::Relaxed);
        Charge { cpu, stolen: (rough + wall).saturating_sub(used) }
    }

    /// What its threads have been charged for. By anyone.
    pub fn charged(&self) -> u64 {
        let rough = self.rough.load(Ordering::Acquire);
        self.charged.load(Ordering::Acquire) + rough
    }

    #[inline]
    pub(crate) fn is_sample(&self, count: u64) -> bool {
        // Others may count too: it may be past.
        count.wrapping_sub(self.next.load(Ordering::Relaxed)).cast_signed() >= 0
    }

    /// How many calls the one just timed stands for, of which `count` were made; `long`: the next one is timed too.
    /// `dice` is some random number.
    pub(crate) fn sampled(&self, count: u64, long: bool, dice: u64) -> u64 {
        // One behind another was certain to be timed; else it is the mean of 1 to SAMPLING.
        let stands_for = if self.close.load(Ordering::Relaxed) { 1 } else { SAMPLING / 2 };
        self.close.store(long, Ordering::Relaxed);
        let ahead = if long { 1 } else { 1 + dice % SAMPLING };
        self.next.store(count.wrapping_add(ahead), Ordering::Relaxed);
        stands_for
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_vcpus_calls_are_timed_as_often_as_what_they_stand_for() {
        // Over all throws of the dice each of the first calls is the timed one just once.
        let mut timed = [0; SAMPLING as usize / 2];
        for dice in 0..SAMPLING / 2 {
            let mut meter = Meter::default();
            meter.reset(u64::MAX - 9, dice);
            let first = (0..).find(|n| meter.is_sample((u64::MAX - 9).wrapping_add(n + 1))).unwrap();
            timed[first as usize] += 1;
            assert_eq!(meter.sampled(first, false, 0), SAMPLING / 2);
        }
        assert!(timed.iter().all(|n| *n == 1));
    }

    #[test]
    fn the_call_behind_a_long_one_stands_for_itself() {
        let meter = Meter::default();
        assert_eq!(meter.sampled(1, true, 7), SAMPLING / 2);
        assert!(meter.is_sample(2));
        assert_eq!(meter.sampled(2, false, 7), 1);
        assert!(!meter.is_sample(9));
        assert!(meter.is_sample(10));
    }
}
