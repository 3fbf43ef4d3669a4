//! CPU time: accounting at thread switches, timers on it, RLIMIT_CPU.
//!
//! A thread's time is all that passes between its switch-in and switch-out, kernel work included; it is
//! reported as user time. Timers on CPU time ([`CpuWatch`]) are checked by a Timekeeper timer that is set
//! while a thread of the process runs, no earlier than the time could be used up.
//! Lock order: watch list, alarm: leaves.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::any::Any;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use doppel_machine::cpu::{self, ThreadObject};
use doppel_machine::sync::SpinLock;

use super::interval::IntervalTimer;
use super::{Expire, monotonic_ns};
use crate::kernel;
use crate::signal::{self, SigInfo, sig};
use crate::task::{Process, Thread, rlimit};

/// Grain of CPU timers.
const GRAIN_NS: u64 = 4_000_000;

/// Runs `next` instead of the current task, accounting the time of both. All switches go through here.
pub(crate) fn switch_to(next: Arc<dyn ThreadObject>) {
    let now = monotonic_ns();
    if let Some(t) = cpu::current_as::<Thread>() {
        let since = t.cpu_since.load(Ordering::Relaxed);
        if since != 0 {
            t.cpu_ns.fetch_add(now.saturating_sub(since), Ordering::Relaxed);
            t.cpu_since.store(0, Ordering::Release);
        }
        t.learn_handover(now);
    }
    let object: &dyn Any = &*next;
    if let Some(t) = object.downcast_ref::<Thread>() {
        switched_in(t, now);
    }
    cpu::switch_to(next);
}

/// The current thread sleeps together with its vCPU: its time stops.
pub(crate) fn pause() {
    let now = monotonic_ns();
    if let Some(t) = cpu::current_as::<Thread>() {
        let since = t.cpu_since.load(Ordering::Relaxed);
        t.cpu_ns.fetch_add(now.saturating_sub(since), Ordering::Relaxed);
        t.cpu_since.store(0, Ordering::Release);
    }
}

/// The end of [`pause`].
pub(crate) fn go_on() {
    if let Some(t) = cpu::current_as::<Thread>() {
        switched_in(&t, monotonic_ns());
    }
}

fn switched_in(t: &Thread, now: u64) {
    t.cpu_since.store(now, Ordering::Release);
    if t.process.timers.cpu.dormant.load(Ordering::Relaxed) {
        t.process.timers.cpu.wake(&t.process, GRAIN_NS);
    }
}

/// CPU time of a thread, the running slice included.
pub fn thread_ns(t: &Thread) -> u64 {
    let done = t.cpu_ns.load(Ordering::Relaxed);
    let since = t.cpu_since.load(Ordering::Acquire);
    done + if since == 0 { 0 } else { monotonic_ns().saturating_sub(since) }
}

/// CPU time of a process: its threads, the ended ones included. Never goes back.
pub fn process_ns(p: &Process) -> u64 {
    let sum = {
        // A thread that ends moves its time to dead_cpu_ns under this lock.
        let threads = p.threads.lock();
        let live: u64 = threads.iter().map(|t| thread_ns(t)).sum();
        live + p.dead_cpu_ns.load(Ordering::Relaxed)
    };
    p.timers.cpu.shown.fetch_max(sum, Ordering::Relaxed).max(sum)
}

/// The CPU-time timers of a process, and when to look at them.
pub struct CpuWatch {
    timers: SpinLock<Vec<Arc<IntervalTimer>>>,
    /// Nobody will look until a thread of the process is switched in.
    dormant: AtomicBool,
    /// A look is due.
    armed: AtomicBool,
    /// Largest value `process_ns` has given.
    shown: AtomicU64,
    /// Seconds of CPU time at which RLIMIT_CPU was last complained about.
    warned: AtomicU64,
}

impl Default for CpuWatch {
    fn default() -> Self {
        Self {
            timers: SpinLock::default(),
            // The first switch-in looks once: an inherited RLIMIT_CPU may have to be watched.
            dormant: AtomicBool::new(true),
            armed: AtomicBool::new(false),
            shown: AtomicU64::new(0),
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
    pub(super) fn watch(&self, p: &Arc<Process>, timer: Arc<IntervalTimer>) {
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
    pub(super) fn clear(&self) {
        self.timers.lock().clear();
    }

    /// RLIMIT_CPU has changed: look again.
    pub fn limit_changed(&self, p: &Arc<Process>) {
        self.wake(p, 0);
    }

    fn wake(&self, p: &Arc<Process>, wait: u64) {
        self.dormant.store(false, Ordering::SeqCst);
        if p.rlimit(rlimit::CPU) == rlimit::INFINITY && self.timers.lock().is_empty() {
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
        let running = || p.threads.lock().iter().any(|t| t.cpu_since.load(Ordering::SeqCst) != 0);
        if !running() {
            self.dormant.store(true, Ordering::SeqCst);
            if !running() {
                return;
            }
            self.dormant.store(false, Ordering::SeqCst);
        }
        if !self.armed.swap(true, Ordering::SeqCst) {
            // With several vCPUs the time can pass that much faster.
            let real = (wait / u64::from(kernel().vcpu_limit)).max(GRAIN_NS / 4);
            kernel().timekeeper.arm(monotonic_ns() + real, Arc::new(Look(Arc::downgrade(p))));
        }
    }

    /// RLIMIT_CPU: SIGXCPU each second over the soft limit, SIGKILL at the hard one. Returns the CPU time left
    /// until the next event.
    fn check_limit(&self, p: &Arc<Process>) -> u64 {
        const SECOND: u64 = 1_000_000_000;
        let limit = p.rlimits.lock()[rlimit::CPU];
        if limit.cur == rlimit::INFINITY {
            return u64::MAX;
        }
        let used = process_ns(p);
        let seconds = used / SECOND;
        // Neither can fail: a standard signal is pending at worst without details.
        if seconds >= limit.max {
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
