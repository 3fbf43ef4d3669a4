//! System calls of POSIX timers (`timer_create(2)`).

use crate::process::task::TASKS;
use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicU64, Ordering};

use doppel_abi_linux::syscalls::nr;
use doppel_abi_linux::time::clock::{CLOCK_PROCESS_CPUTIME_ID, CLOCK_THREAD_CPUTIME_ID};
use doppel_abi_linux::time::{TIMER_ABSTIME, sigev};
use doppel_machine::pod_struct;

use crate::core::time::Timespec;
use crate::personality::Arg::{Hex, Int, Ptr};
use crate::personality::Support::Full;
use crate::personality::{Args, Syscall, call};
use crate::process::signal::sig;
use crate::process::task::rlimit;
use crate::process::time::clocks;
use crate::process::time::timers::{Base, IntervalTimer, PosixTimer, Sigevent};
use crate::{Errno, Result, kernel};

/// Rows of the system call table.
pub const CALLS: &[Syscall] = &[
    call(nr::TIMER_CREATE, timer_create, Full, &[Int, Ptr, Ptr], ""),
    call(nr::TIMER_SETTIME, timer_settime, Full, &[Int, Hex, Ptr, Ptr], ""),
    call(nr::TIMER_GETTIME, timer_gettime, Full, &[Int, Ptr], ""),
    call(nr::TIMER_GETOVERRUN, timer_getoverrun, Full, &[Int], ""),
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

fn base(a: &Args, clock: i32) -> Result<Base> {
    Ok(match clock {
        CLOCK_PROCESS_CPUTIME_ID => Base::Process(Arc::downgrade(&a.thread.process)),
        CLOCK_THREAD_CPUTIME_ID => Base::Thread(Arc::downgrade(&a.thread)),
        c if c < 0 => match clocks::dynamic(&a.thread, c)? {
            clocks::Owner::Process(p) => Base::Process(Arc::downgrade(&p)),
            clocks::Owner::Thread(t) => Base::Thread(Arc::downgrade(&t)),
        },
        c => {
            clocks::to_monotonic(c, 0)?;
            Base::Monotonic
        }
    })
}

fn timer_create(a: &Args) -> Result<u64> {
    let clock = a.i32(0);
    let base = base(a, clock)?;
    let p = &a.thread.process;
    let given: Option<Sigevent> = if a.ptr(1).is_null() { None } else { Some(a.ptr(1).read()?) };
    let mut thread = None;
    if let Some(e) = &given {
        match e.notify {
            sigev::SIGEV_NONE => {}
            sigev::SIGEV_SIGNAL | sigev::SIGEV_THREAD | sigev::SIGEV_THREAD_ID => {
                if !(1..=64).contains(&e.signo) {
                    return Err(Errno::EINVAL);
                }
                if e.notify == sigev::SIGEV_THREAD_ID {
                    let t = TASKS.thread(e.tid).map_err(|_| Errno::EINVAL)?;
                    if t.process.pid != p.pid {
                        return Err(Errno::EINVAL);
                    }
                    thread = Some(Arc::downgrade(&t));
                }
            }
            _ => return Err(Errno::EINVAL),
        }
    }
    let id = {
        let mut timers = p.timers.posix.timers.lock();
        if timers.len() as u64 >= p.rlimit(rlimit::SIGPENDING).min(MAX_TIMERS) {
            return Err(Errno::EAGAIN);
        }
        let id = (0..).find(|i| !timers.contains_key(i)).unwrap_or(0);
        let event = given.unwrap_or(Sigevent {
            value: id as u64,
            signo: sig::SIGALRM,
            notify: sigev::SIGEV_SIGNAL,
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
    if let Err(e) = a.ptr(2).write(&id) {
        p.timers.posix.timers.lock().remove(&id);
        return Err(e.into());
    }
    Ok(0)
}

fn timer(a: &Args) -> Result<Arc<PosixTimer>> {
    a.thread.process.timers.posix.get(a.i32(0))
}

fn timer_settime(a: &Args) -> Result<u64> {
    if a.ptr(2).is_null() {
        return Err(Errno::EINVAL);
    }
    let new: Itimerspec = a.ptr(2).read()?;
    let (value, interval) = (new.value.to_ns()?, new.interval.to_ns()?);
    let t = timer(a)?;
    let deadline = if value == 0 {
        None
    } else if a.i32(1) & TIMER_ABSTIME == 0 {
        Some(t.timer.now().saturating_add(value))
    } else if clocks::counts_cpu(t.clock) {
        Some(value)
    } else {
        Some(clocks::to_monotonic(t.clock, value)?)
    };
    let old = t.timer.set(deadline, interval);
    t.overrun.store(0, Ordering::Relaxed);
    if !a.ptr(3).is_null() {
        a.ptr(3).write(&Itimerspec::from_ns(old))?;
    }
    Ok(0)
}

fn timer_gettime(a: &Args) -> Result<u64> {
    a.ptr(1).write(&Itimerspec::from_ns(timer(a)?.timer.get()))?;
    Ok(0)
}

fn timer_getoverrun(a: &Args) -> Result<u64> {
    Ok(timer(a)?.overrun.load(Ordering::Relaxed))
}

fn timer_delete(a: &Args, id: i32) -> Result<u64> {
    let t = a.thread.process.timers.posix.timers.lock().remove(&id).ok_or(Errno::EINVAL)?;
    t.timer.set(None, 0);
    Ok(0)
}
