//! Timers as descriptors (`timerfd_create(2)`).
//!
//! Key type: [`TimerFd`]. The timekeeper arms one deadline at a time, the next one only when the last expiry has
//! been read (as on Linux, an unread timer wakes nobody again); what has expired is computed from the clock when
//! somebody looks, so a late tick loses nothing and a periodic timer costs nothing unless awaited.
//! Lock order: state → timekeeper; wake-ups after the state lock is released.

use alloc::sync::{Arc, Weak};

use doppel_machine::pod_struct;
use doppel_machine::sync::SpinLock;

use crate::core::sched::{PollEvents, PollTable, WaitQueue, wait_until};
use crate::core::time::{Expire, TimerId, Timespec, monotonic_ns, realtime_ns};
use crate::objects::vfs::file::Splice;
use crate::objects::vfs::{File, FileOps, Output};
use crate::{Errno, Result, kernel};

bitflags::bitflags! {
    /// `TFD_TIMER_` flags of `timerfd_settime(2)`.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub(crate) struct TimerFdFlags: u32 {
        const ABSTIME = 1;
        const CANCEL_ON_SET = 2;
    }
}

pod_struct! {
    /// `struct itimerspec`.
    pub struct ItimerSpec {
        /// Period; zero for a single expiry.
        pub interval: Timespec,
        /// First expiry; zero disarms.
        pub value: Timespec,
    }
}

#[derive(Default)]
pub(crate) struct State {
    /// Next expiry not yet counted (monotonic), 0 when disarmed.
    next: u64,
    interval: u64,
    /// Expiries not yet read.
    ticks: u64,
    armed: Option<TimerId>,
}

/// A timer descriptor.
pub struct TimerFd {
    me: Weak<TimerFd>,
    realtime: bool,
    pub(crate) state: SpinLock<State>,
    queue: Arc<WaitQueue>,
}

impl State {
    /// Counts the expiries up to `now`.
    pub(crate) fn catch_up(&mut self, now: u64) {
        if self.next == 0 || self.next > now {
            return;
        }
        match (now - self.next).checked_div(self.interval) {
            None => {
                self.ticks += 1;
                self.next = 0;
            }
            Some(missed) => {
                let n = missed + 1;
                self.ticks += n;
                self.next = self.next.saturating_add(n.saturating_mul(self.interval));
            }
        }
    }

    pub(crate) fn show(&self, now: u64) -> ItimerSpec {
        let left = if self.next == 0 { 0 } else { self.next.saturating_sub(now).max(1) };
        ItimerSpec { interval: Timespec::from_ns(self.interval), value: Timespec::from_ns(left) }
    }
}

impl Expire for TimerFd {
    fn expire(self: Arc<Self>, now: u64) {
        {
            let mut s = self.state.lock();
            s.armed = None;
            s.catch_up(now);
            if s.ticks == 0 {
                self.arm(&mut s);
                return;
            }
        }
        self.queue.wake_all(PollEvents::READABLE);
    }
}

impl TimerFd {
    pub(crate) fn new(realtime: bool) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            realtime,
            state: SpinLock::default(),
            queue: Arc::default(),
        })
    }

    /// Has the timekeeper call at the next expiry.
    fn arm(&self, s: &mut State) {
        if let (true, Some(me)) = (s.next != 0 && s.armed.is_none(), self.me.upgrade()) {
            s.armed = Some(kernel().timekeeper.arm(s.next, me));
        }
    }

    fn disarm(s: &mut State) {
        if let Some(id) = s.armed.take() {
            // If it is expiring right now, that finds nothing to count.
            kernel().timekeeper.cancel(id);
        }
    }

    fn take(&self) -> Option<u64> {
        let mut s = self.state.lock();
        s.catch_up(monotonic_ns());
        if s.ticks == 0 {
            return None;
        }
        self.arm(&mut s);
        Some(core::mem::take(&mut s.ticks))
    }

    pub(crate) fn set(&self, flags: TimerFdFlags, new: &ItimerSpec) -> Result<ItimerSpec> {
        let (value, interval) = (new.value.to_ns()?, new.interval.to_ns()?);
        let now = monotonic_ns();
        let next = if value == 0 {
            0
        } else if !flags.contains(TimerFdFlags::ABSTIME) {
            now.saturating_add(value)
        } else if self.realtime {
            // A time in the past expires at once.
            now.saturating_add(value.saturating_sub(realtime_ns())).max(1)
        } else {
            value
        };
        let mut s = self.state.lock();
        s.catch_up(now);
        let old = s.show(now);
        Self::disarm(&mut s);
        s.next = next;
        s.interval = interval;
        s.ticks = 0;
        self.arm(&mut s);
        Ok(old)
    }
}

impl FileOps for TimerFd {
    fn splice(&self) -> Splice {
        Splice::Neither
    }

    fn read(&self, file: &File, out: &mut Output<'_>, _offset: u64) -> Result<usize> {
        if out.remaining() < 8 {
            return Err(Errno::EINVAL);
        }
        let ticks = match self.take() {
            Some(n) => n,
            None if file.nonblocking() => return Err(Errno::EAGAIN),
            None => wait_until(&self.queue, None, || self.take())?,
        };
        out.write(&ticks.to_ne_bytes())
    }

    fn poll(&self, _file: &File, table: Option<&mut PollTable>) -> PollEvents {
        if let Some(t) = table {
            t.add(&self.queue);
        }
        // Only what `expire` has counted and told: an expiry seen here first would be told a second time, which an
        // edge-triggered epoll would report twice.
        PollEvents::READABLE.when(self.state.lock().ticks > 0)
    }

    fn release(&self, _file: &File) {
        let mut s = self.state.lock();
        s.next = 0;
        Self::disarm(&mut s);
    }

    fn fdinfo(&self, _file: &File, out: &mut alloc::string::String) {
        let s = self.state.lock();
        let v = s.show(monotonic_ns());
        out.push_str(&alloc::format!(
            "clockid: {}\nticks: {}\nsettime flags: 00\nit_value: ({}, {})\nit_interval: ({}, {})\n",
            i32::from(!self.realtime),
            s.ticks,
            v.value.sec,
            v.value.nsec,
            v.interval.sec,
            v.interval.nsec,
        ));
    }
}
