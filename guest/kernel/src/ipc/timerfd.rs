//! Timers as descriptors (`timerfd_create(2)`).
//!
//! Key type: [`TimerFd`]. The timekeeper arms one deadline at a time, the next one only when the last expiry has
//! been read (as on Linux, an unread timer wakes nobody again); what has expired is computed from the clock when
//! somebody looks, so a late tick loses nothing and a periodic timer costs nothing unless awaited.
//! Lock order: state → timekeeper; wake-ups after the state lock is released.

use alloc::sync::{Arc, Weak};

use doppel_abi_linux::syscalls::nr;
use doppel_machine::pod_struct;
use doppel_machine::sync::SpinLock;

use super::anon;
use crate::fs::file::{Splice, flags, poll};
use crate::fs::{File, FileOps, Output};
use crate::sched::{PollTable, WaitQueue, wait_until};
use crate::syscall::Arg::{Fd, Hex, Int, Ptr};
use crate::syscall::Support::{Full, Partial};
use crate::syscall::{Args, Syscall, call};
use crate::time::{Expire, TimerId, Timespec, monotonic_ns, realtime_ns};
use crate::{Errno, Result, kernel};

/// System calls of this module.
pub const CALLS: &[Syscall] = &[
    call(nr::TIMERFD_CREATE, sys_timerfd_create, Full, &[Int, Hex], ""),
    call(
        nr::TIMERFD_SETTIME,
        sys_timerfd_settime,
        Partial,
        &[Fd, Hex, Ptr, Ptr],
        "TFD_TIMER_CANCEL_ON_SET is accepted; the clock is never set",
    ),
    call(nr::TIMERFD_GETTIME, sys_timerfd_gettime, Full, &[Fd, Ptr], ""),
];

const TFD_TIMER_ABSTIME: u32 = 1;
const TFD_TIMER_CANCEL_ON_SET: u32 = 2;
const CLOCK_REALTIME: i32 = 0;
const CLOCK_MONOTONIC: i32 = 1;
const CLOCK_BOOTTIME: i32 = 7;
const CLOCK_REALTIME_ALARM: i32 = 8;
const CLOCK_BOOTTIME_ALARM: i32 = 9;

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
struct State {
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
    state: SpinLock<State>,
    queue: Arc<WaitQueue>,
}

impl State {
    /// Counts the expiries up to `now`.
    fn catch_up(&mut self, now: u64) {
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

    fn show(&self, now: u64) -> ItimerSpec {
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
        self.queue.wake_all(poll::POLLIN | poll::POLLRDNORM);
    }
}

impl TimerFd {
    fn new(realtime: bool) -> Arc<Self> {
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

    fn set(&self, f: u32, new: &ItimerSpec) -> Result<ItimerSpec> {
        let (value, interval) = (new.value.to_ns()?, new.interval.to_ns()?);
        let now = monotonic_ns();
        let next = if value == 0 {
            0
        } else if f & TFD_TIMER_ABSTIME == 0 {
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

    fn poll(&self, _file: &File, table: Option<&mut PollTable>) -> u32 {
        if let Some(t) = table {
            t.add(&self.queue);
        }
        // Only what `expire` has counted and told: an expiry seen here first would be told a second time, which an
        // edge-triggered epoll would report twice.
        if self.state.lock().ticks > 0 { poll::POLLIN | poll::POLLRDNORM } else { 0 }
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

fn sys_timerfd_create(args: &Args) -> Result<u64> {
    let f = args.u32(1);
    if f & !(flags::O_NONBLOCK | flags::O_CLOEXEC) != 0 {
        return Err(Errno::EINVAL);
    }
    let realtime = match args.i32(0) {
        CLOCK_REALTIME => true,
        CLOCK_MONOTONIC | CLOCK_BOOTTIME => false,
        CLOCK_REALTIME_ALARM | CLOCK_BOOTTIME_ALARM => return Err(Errno::EPERM),
        _ => return Err(Errno::EINVAL),
    };
    anon::new_fd(args, TimerFd::new(realtime), "timerfd", flags::O_RDWR | f)
}

/// Runs `f` on the timer behind descriptor argument 0.
fn with_timer<T>(args: &Args, f: impl FnOnce(&TimerFd) -> Result<T>) -> Result<T> {
    let file = args.file(0)?;
    f(file.downcast::<TimerFd>().ok_or(Errno::EINVAL)?)
}

fn sys_timerfd_settime(args: &Args) -> Result<u64> {
    let f = args.u32(1);
    if f & !(TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET) != 0 {
        return Err(Errno::EINVAL);
    }
    let new = args.ptr(2).read::<ItimerSpec>()?;
    let old = with_timer(args, |t| t.set(f, &new))?;
    if !args.ptr(3).is_null() {
        args.ptr(3).write(&old)?;
    }
    Ok(0)
}

fn sys_timerfd_gettime(args: &Args) -> Result<u64> {
    let now = monotonic_ns();
    let v = with_timer(args, |t| {
        let mut s = t.state.lock();
        s.catch_up(now);
        Ok(s.show(now))
    })?;
    args.ptr(1).write(&v)?;
    Ok(0)
}
