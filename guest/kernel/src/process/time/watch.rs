//! Timers on CPU time and RLIMIT_CPU.
//!
//! They are checked by a Timekeeper timer that is set while a thread of the process runs, no earlier than the time
//! could be used up.
//! Lock order: watch list, alarm: leaves.

use crate::core::events::{Kind, record};
use crate::process::time::timers::{CpuWatch, IntervalTimer};
use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use doppel_machine::sync::SpinLock;

use super::cpu::process_ns;
use crate::core::time::{Expire, monotonic_ns};
use crate::kernel;
use crate::process::signal::{self, SigInfo, sig};
use crate::process::task::{Process, Resource, Rlimit};

/// Grain of CPU timers.
const GRAIN_NS: u64 = 4_000_000;

impl Default for CpuWatch {
    fn default() -> Self {
        Self {
            timers: SpinLock::default(),
            // The first switch-in looks once: an inherited RLIMIT_CPU may have to be watched.
            dormant: AtomicBool::new(true),
            armed: AtomicBool::new(false),
            warned: AtomicU64::new(0),
        }
    }
}

/// A coming look at the CPU timers of a process.
struct Look(Weak<Process>);

impl Expire for Look {
    fn expire(self: Arc<Self>, _now: u64) {
        if let Some(p) = self.0.upgrade() {
            p.timers.cpu.armed.store(false, Ordering::SeqCst);
            p.timers.cpu.look(&p);
        }
    }
}

impl CpuWatch {
    /// Adds an armed timer.
    pub(crate) fn watch(&self, p: &Arc<Process>, timer: Arc<IntervalTimer>) {
        let wait = timer.due_in().unwrap_or(0);
        {
            let mut list = self.timers.lock();
            if !list.iter().any(|t| Arc::ptr_eq(t, &timer)) {
                list.push(timer);
            }
        }
        self.wake(p, wait);
    }

    /// Forgets all timers.
    pub(crate) fn clear(&self) {
        self.timers.lock().clear();
    }

    /// RLIMIT_CPU has changed: look again.
    pub fn limit_changed(&self, p: &Arc<Process>) {
        self.wake(p, 0);
    }

    /// A thread of `p` begins to run.
    pub(crate) fn thread_runs(&self, p: &Arc<Process>) {
        if self.dormant.load(Ordering::Relaxed) {
            self.wake(p, GRAIN_NS);
        }
    }

    fn wake(&self, p: &Arc<Process>, wait: u64) {
        self.dormant.store(false, Ordering::SeqCst);
        if p.rlimit(Resource::Cpu) == Rlimit::INFINITY && self.timers.lock().is_empty() {
            return;
        }
        if !self.armed.swap(true, Ordering::SeqCst) {
            let when = monotonic_ns() + wait.clamp(GRAIN_NS / 4, GRAIN_NS);
            kernel().timekeeper.arm(when, Arc::new(Look(Arc::downgrade(p))));
        }
    }

    /// Serves what is due and plans the next look.
    fn look(&self, p: &Arc<Process>) {
        if p.is_zombie() {
            return;
        }
        let timers = self.timers.lock().clone();
        for t in &timers {
            t.check();
        }
        let mut wait = self.check_limit(p);
        self.timers.lock().retain(|t| match t.due_in() {
            Some(left) => {
                wait = wait.min(left);
                true
            }
            None => false,
        });
        if wait == u64::MAX {
            return;
        }
        let pause = if p.threads.lock().iter().any(|t| t.used.runs()) {
            self.dormant.store(false, Ordering::SeqCst);
            // With several vCPUs the time can pass that much faster.
            (wait / u64::from(kernel().vcpu_limit)).max(GRAIN_NS / 4)
        } else if self.dormant.swap(true, Ordering::SeqCst) {
            return;
        } else {
            // One look more: a thread that began to run just now may have found that it needs no other. It looks at
            // `dormant` without a fence, which would cost each switch.
            GRAIN_NS
        };
        if !self.armed.swap(true, Ordering::SeqCst) {
            kernel().timekeeper.arm(monotonic_ns() + pause, Arc::new(Look(Arc::downgrade(p))));
        }
    }

    /// RLIMIT_CPU: SIGXCPU each second over the soft limit, SIGKILL at the hard one. Returns the CPU time left
    /// until the next event.
    fn check_limit(&self, p: &Arc<Process>) -> u64 {
        const SECOND: u64 = 1_000_000_000;
        let limit = p.rlimits.lock()[Resource::Cpu];
        if limit.cur == Rlimit::INFINITY {
            return u64::MAX;
        }
        let used = process_ns(p);
        let seconds = used / SECOND;
        // Neither can fail: a standard signal is pending at worst without details.
        if seconds >= limit.max {
            record(Kind::CpuLimit, [p.pid as u64, 0, 0]);
            signal::terminate(p, sig::SIGKILL);
            return u64::MAX;
        }
        if seconds >= limit.cur && self.warned.swap(seconds, Ordering::Relaxed) != seconds {
            let _ = signal::send_process(p, SigInfo::kernel(sig::SIGXCPU));
        }
        let next = if seconds < limit.cur { limit.cur } else { seconds + 1 };
        next.min(limit.max).saturating_mul(SECOND).saturating_sub(used).max(1)
    }
}
