//! The interval-timer engine behind setitimer, timer_create and timerfd.
//!
//! Key types: [`IntervalTimer`] counts on a [`Base`] and tells its owner ([`Elapsed`]) when periods end.
//! Timers on real time are armed with the Timekeeper; those on CPU time are watched by cpu.rs.
//! Lock order: timer state → Timekeeper's timers or the process' CPU watch. The owner is called without locks.

use super::timers::{Base, Elapsed, IntervalTimer, State};
use alloc::sync::{Arc, Weak};

use doppel_machine::sync::{SpinGuard, SpinLock};

use super::cpu;
use crate::core::time::{Expire, monotonic_ns};
use crate::kernel;

/// Shortest time between two expirations that are served one by one; shorter intervals are counted together.
const MIN_GAP_NS: u64 = 50_000;

impl IntervalTimer {
    /// A disarmed timer.
    pub fn new(base: Base, owner: Weak<dyn Elapsed>) -> Arc<Self> {
        Arc::new_cyclic(|me| Self { me: me.clone(), base, owner, state: SpinLock::default() })
    }

    /// The time on the timer's base; 0 once its process or thread has gone.
    pub fn now(&self) -> u64 {
        match &self.base {
            Base::Monotonic => monotonic_ns(),
            Base::Process(p) => p.upgrade().map_or(0, |p| cpu::process_ns(&p)),
            Base::User(p) => p.upgrade().map_or(0, |p| cpu::process_times(&p).user),
            Base::Thread(t) => t.upgrade().map_or(0, |t| cpu::thread_ns(&t)),
        }
    }

    /// Arms the timer for `deadline` on its base (then every `interval` nanoseconds, 0 = once), or disarms it.
    /// Returns the former (remaining, interval).
    pub fn set(&self, deadline: Option<u64>, interval: u64) -> (u64, u64) {
        let now = self.now();
        let mut s = self.state.lock();
        let old = remaining(&s, now);
        if let Some(id) = s.id.take() {
            kernel().timekeeper.cancel(id);
        }
        s.setting += 1;
        s.held = false;
        s.next = deadline;
        s.interval = interval;
        self.arm(s, 0);
        old
    }

    /// (Nanoseconds to the next expiration or 0 if disarmed, interval).
    pub fn get(&self) -> (u64, u64) {
        let now = self.now();
        remaining(&self.state.lock(), now)
    }

    /// Lets a held timer go on; returns how many more periods have ended meanwhile.
    pub fn resume(&self) -> u64 {
        let now = self.now();
        let mut s = self.state.lock();
        if !s.held {
            return 0;
        }
        s.held = false;
        let n = advance(&mut s, now);
        self.arm(s, 0);
        n
    }

    /// Arms for `next`, on real time not before `earliest`. Takes the state's lock over.
    fn arm(&self, mut s: SpinGuard<'_, State>, earliest: u64) {
        let (Some(next), Some(me)) = (s.next, self.me.upgrade()) else { return };
        match &self.base {
            Base::Monotonic => s.id = Some(kernel().timekeeper.arm(next.max(earliest), me)),
            Base::Process(p) | Base::User(p) => {
                drop(s);
                if let Some(p) = p.upgrade() {
                    p.timers.cpu.watch(&p, me);
                }
            }
            Base::Thread(t) => {
                drop(s);
                if let Some(t) = t.upgrade() {
                    t.process.timers.cpu.watch(&t.process, me);
                }
            }
        }
    }

    /// Nanoseconds on the base until it should be looked at; `None` if it is disarmed or held.
    pub(crate) fn due_in(&self) -> Option<u64> {
        let now = self.now();
        let s = self.state.lock();
        if s.held { None } else { s.next.map(|n| n.saturating_sub(now)) }
    }

    /// Serves the end of a period, if it has come.
    pub(crate) fn check(&self) {
        let now = self.now();
        let (n, setting) = {
            let mut s = self.state.lock();
            if s.held || s.next.is_none_or(|t| t > now) {
                return;
            }
            s.id = None;
            let n = advance(&mut s, now);
            // Held until the owner has been told, so that it cannot expire twice at once.
            s.held = s.next.is_some();
            (n, s.setting)
        };
        let goes_on = self.owner.upgrade().is_some_and(|o| o.elapsed(n));
        let mut s = self.state.lock();
        if goes_on && s.setting == setting && s.held {
            s.held = false;
            self.arm(s, now + MIN_GAP_NS);
        }
    }
}

impl Expire for IntervalTimer {
    fn expire(self: Arc<Self>, _now: u64) {
        self.check();
    }
}

fn remaining(s: &State, now: u64) -> (u64, u64) {
    // An armed timer never shows zero, which would mean disarmed; a held one shows its coming period.
    let left = s.next.map_or(0, |t| {
        if t > now || s.interval == 0 {
            t.saturating_sub(now).max(1)
        } else {
            s.interval - (now - t) % s.interval
        }
    });
    (left, s.interval)
}

/// Moves `next` beyond `now`; returns how many periods have ended.
fn advance(s: &mut State, now: u64) -> u64 {
    let Some(t) = s.next else { return 0 };
    if t > now {
        return 0;
    }
    if s.interval == 0 {
        s.next = None;
        return 1;
    }
    let n = 1 + (now - t) / s.interval;
    s.next = Some(t.saturating_add(n.saturating_mul(s.interval)));
    n
}
