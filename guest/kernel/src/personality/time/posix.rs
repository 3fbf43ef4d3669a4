//! System calls of POSIX timers (`timer_create(2)`).

use crate::process::namespaces::numbers;
use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicU64, Ordering};

use doppel_abi_linux::syscalls::nr;
use doppel_machine::pod_struct;
use doppel_machine::user::UserPtr;

use crate::core::time::Timespec;
use crate::personality::Support::Full;
use crate::personality::args::{Bits, Number};
use crate::personality::time::TimerFlags;
use crate::personality::{Args, Syscall, call};
use crate::process::signal::sig;
use crate::process::task::Resource;
use crate::process::time::clock::Clock;
use crate::process::time::clocks::{Owner, dynamic};
use crate::process::time::timers::{Base, IntervalTimer, PosixTimer, SigevNotify, Sigevent};
use crate::{Errno, Result, kernel};

/// Rows of the system call table.
pub const CALLS: &[Syscall] = &[
    call!(nr::TIMER_CREATE, timer_create(Number<Clock>, UserPtr, UserPtr), Full, ""),
    call!(nr::TIMER_SETTIME, timer_settime(i32, Bits<TimerFlags>, UserPtr, UserPtr), Full, ""),
    call!(nr::TIMER_GETTIME, timer_gettime(i32, UserPtr), Full, ""),
    call!(nr::TIMER_GETOVERRUN, timer_getoverrun(i32), Full, ""),
    call!(nr::TIMER_DELETE, timer_delete(i32), Full, ""),
];

pod_struct! {
    /// `struct itimerspec`.
    pub struct Itimerspec {
        /// Period.
        pub interval: Timespec,
        /// Time to the next expiration; zero: disarmed.
        pub value: Timespec,
    }
}

impl Itimerspec {
    /// From nanoseconds (remaining, interval).
    pub fn from_ns((left, interval): (u64, u64)) -> Self {
        Self { interval: Timespec::from_ns(interval), value: Timespec::from_ns(left) }
    }
}

/// Most timers of a process.
const MAX_TIMERS: u64 = 8192;

fn base(a: &Args, clock: Clock) -> Result<Base> {
    Ok(match clock {
        Clock::ProcessCpu => Base::Process(Arc::downgrade(&a.thread.process)),
        Clock::ThreadCpu => Base::Thread(Arc::downgrade(&a.thread)),
        Clock::Dynamic(id) => match dynamic(&a.thread, id)? {
            Owner::Process(p) => Base::Process(Arc::downgrade(&p)),
            Owner::Thread(t) => Base::Thread(Arc::downgrade(&t)),
        },
        _ => {
            clock.to_monotonic(0)?;
            Base::Monotonic
        }
    })
}

fn timer_create(a: &Args, clock: Number<Clock>, user_event: UserPtr, user_id: UserPtr) -> Result<u64> {
    let clock = clock.get()?;
    let base = base(a, clock)?;
    let p = &a.thread.process;
    let given: Option<Sigevent> = if user_event.is_null() { None } else { Some(user_event.read()?) };
    let mut thread = None;
    if let Some(e) = &given {
        match SigevNotify::try_from(e.notify.cast_unsigned())? {
            SigevNotify::None => {}
            how => {
                if !(1..=64).contains(&e.signo) {
                    return Err(Errno::EINVAL);
                }
                if how == SigevNotify::ThreadId {
                    let t = numbers::thread(e.tid).map_err(|_| Errno::EINVAL)?;
                    if t.process.pid != p.pid {
                        return Err(Errno::EINVAL);
                    }
                    thread = Some(Arc::downgrade(&t));
                }
            }
        }
    }
    let id = {
        let mut timers = p.timers.posix.timers.lock();
        if timers.len() as u64 >= p.rlimit(Resource::Sigpending).min(MAX_TIMERS) {
            return Err(Errno::EAGAIN);
        }
        let id = (0..).find(|i| !timers.contains_key(i)).unwrap_or(0);
        let event = given.unwrap_or(Sigevent {
            value: id as u64,
            signo: sig::SIGALRM,
            notify: SigevNotify::Signal as i32,
            tid: 0,
            pad: [0; 11],
        });
        let process = Arc::downgrade(p);
        let timer = Arc::new_cyclic(|me: &Weak<PosixTimer>| PosixTimer {
            id,
            key: kernel().next_id(),
            clock,
            event,
            process,
            thread,
            timer: IntervalTimer::new(base, me.clone()),
            overrun: AtomicU64::new(0),
        });
        timers.insert(id, timer);
        id
    };
    if let Err(e) = user_id.write(&id) {
        p.timers.posix.timers.lock().remove(&id);
        return Err(e.into());
    }
    Ok(0)
}

fn timer(a: &Args, id: i32) -> Result<Arc<PosixTimer>> {
    a.thread.process.timers.posix.get(id)
}

fn timer_settime(
    a: &Args,
    id: i32,
    flags: Bits<TimerFlags>,
    user_new: UserPtr,
    user_old: UserPtr,
) -> Result<u64> {
    if user_new.is_null() {
        return Err(Errno::EINVAL);
    }
    let new: Itimerspec = user_new.read()?;
    let (value, interval) = (new.value.to_ns()?, new.interval.to_ns()?);
    let t = timer(a, id)?;
    let deadline = if value == 0 {
        None
    } else if !flags.any().contains(TimerFlags::ABSTIME) {
        Some(t.timer.now().saturating_add(value))
    } else if t.clock.counts_cpu() {
        Some(value)
    } else {
        Some(t.clock.to_monotonic(value)?)
    };
    let old = t.timer.set(deadline, interval);
    t.overrun.store(0, Ordering::Relaxed);
    if !user_old.is_null() {
        user_old.write(&Itimerspec::from_ns(old))?;
    }
    Ok(0)
}

fn timer_gettime(a: &Args, id: i32, out: UserPtr) -> Result<u64> {
    out.write(&Itimerspec::from_ns(timer(a, id)?.timer.get()))?;
    Ok(0)
}

fn timer_getoverrun(a: &Args, id: i32) -> Result<u64> {
    Ok(timer(a, id)?.overrun.load(Ordering::Relaxed))
}

fn timer_delete(a: &Args, id: i32) -> Result<u64> {
    let t = a.thread.process.timers.posix.timers.lock().remove(&id).ok_or(Errno::EINVAL)?;
    t.timer.set(None, 0);
    Ok(0)
}
