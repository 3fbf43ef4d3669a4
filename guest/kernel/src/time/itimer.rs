//! setitimer, getitimer, alarm.

use alloc::sync::{Arc, Weak};

use doppel_abi_linux::syscalls::nr;
use doppel_abi_linux::time::itimer::{ITIMER_PROF, ITIMER_REAL, ITIMER_VIRTUAL};
use doppel_machine::pod_struct;

use super::interval::{Base, Elapsed, IntervalTimer};
use super::posix::PosixTimers;
use super::{Timeval, watch};
use crate::signal::{self, SigInfo, sig};
use crate::syscall::Arg::{Int, Ptr};
use crate::syscall::{Args, Support::Full, Syscall, call};
use crate::task::Process;
use crate::{Errno, Result};
use doppel_machine::sync::SpinLock;

/// Rows of the system call table.
pub const CALLS: &[Syscall] = &[
    call(nr::GETITIMER, getitimer, Full, &[Int, Ptr], ""),
    call(nr::SETITIMER, setitimer, Full, &[Int, Ptr, Ptr], ""),
    call(nr::ALARM, alarm, Full, &[Int], ""),
];

pod_struct! {
    /// `struct itimerval`.
    pub struct Itimerval {
        /// Period.
        pub interval: Timeval,
        /// Time to the next expiration; zero: disarmed.
        pub value: Timeval,
    }
}

/// Sends the timer's signal to its process.
struct Owner {
    process: Weak<Process>,
    signo: i32,
}

impl Elapsed for Owner {
    fn elapsed(&self, _n: u64) -> bool {
        let Some(p) = self.process.upgrade() else { return false };
        // A standard signal is pending at worst without details.
        let _ = signal::send_process(&p, SigInfo::kernel(self.signo));
        true
    }
}

/// A timer with what it tells, which it refers to only weakly.
type OwnedTimer = (Arc<IntervalTimer>, Arc<Owner>);

/// Timers of one process (setitimer, timer_create).
#[derive(Default)]
pub struct ProcessTimers {
    interval: SpinLock<[Option<OwnedTimer>; 3]>,
    pub(super) posix: PosixTimers,
    /// Timers and limits on CPU time.
    pub cpu: watch::CpuWatch,
}

impl ProcessTimers {
    /// Disarms everything (exit).
    pub fn clear(&self) {
        self.exec();
        let old = core::mem::take(&mut *self.interval.lock());
        for (t, _) in old.into_iter().flatten() {
            t.set(None, 0);
        }
        self.cpu.clear();
    }

    /// For exec: timers of timer_create are deleted; those of setitimer go on.
    pub fn exec(&self) {
        self.posix.clear();
    }

    /// The interval timer `which`, made at first use.
    fn itimer(&self, p: &Arc<Process>, which: i32) -> Result<Arc<IntervalTimer>> {
        let (i, signo, base) = match which {
            ITIMER_REAL => (0, sig::SIGALRM, Base::Monotonic),
            ITIMER_VIRTUAL => (1, sig::SIGVTALRM, Base::User(Arc::downgrade(p))),
            ITIMER_PROF => (2, sig::SIGPROF, Base::Process(Arc::downgrade(p))),
            _ => return Err(Errno::EINVAL),
        };
        let mut timers = self.interval.lock();
        let (t, _) = timers[i].get_or_insert_with(|| {
            let owner = Arc::new(Owner { process: Arc::downgrade(p), signo });
            let weak: Weak<dyn Elapsed> = Arc::<Owner>::downgrade(&owner);
            (IntervalTimer::new(base, weak), owner)
        });
        Ok(t.clone())
    }
}

fn itimerval((left, interval): (u64, u64)) -> Itimerval {
    // Cut as on Linux, but an armed timer never shows zero: that would mean disarmed.
    let left = if left == 0 { 0 } else { left.max(1000) };
    Itimerval { interval: Timeval::from_ns(interval), value: Timeval::from_ns(left) }
}

fn getitimer(a: &Args) -> Result<u64> {
    let p = &a.thread.process;
    let t = p.timers.itimer(p, a.i32(0))?;
    a.ptr(1).write(&itimerval(t.get()))?;
    Ok(0)
}

fn setitimer(a: &Args) -> Result<u64> {
    let p = &a.thread.process;
    let new: Itimerval = if a.ptr(1).is_null() { Itimerval::default() } else { a.ptr(1).read()? };
    let (value, interval) = (new.value.to_ns()?, new.interval.to_ns()?);
    let t = p.timers.itimer(p, a.i32(0))?;
    let deadline = (value != 0).then(|| t.now().saturating_add(value));
    let old = t.set(deadline, interval);
    if !a.ptr(2).is_null() {
        a.ptr(2).write(&itimerval(old))?;
    }
    Ok(0)
}

fn alarm(a: &Args) -> Result<u64> {
    const SECOND: u64 = 1_000_000_000;
    let p = &a.thread.process;
    let t = p.timers.itimer(p, ITIMER_REAL)?;
    let seconds = u64::from(a.u32(0));
    let deadline = (seconds != 0).then(|| t.now() + seconds * SECOND);
    let (left, _) = t.set(deadline, 0);
    // As Linux: rounded to the nearest second, but an armed timer never shows zero.
    let rounded = (left + SECOND / 2) / SECOND;
    Ok(if left > 0 { rounded.max(1) } else { 0 })
}
