//! CPU time: what threads and processes have used, and in which parts.
//!
//! A thread is charged at each end of a slice, by its vCPU's meter (`doppel_machine::meter`). A process has what its
//! threads were charged for, and what its host process has used beyond that by the host's account: running slices,
//! sleeping and waking. So a process' time is the host's account of it, however its threads came by their shares.
//! A space has one process to which that rest belongs; one that borrows the space (vfork) has its threads' time only.
//!
//! System time is estimated, as on Linux, whose ticks do it: here every so manieth system call is timed, and the host
//! tells which part of a host process' time its own kernel took (page faults, host calls). Both see the host calls that
//! system calls make, so the larger counts.
//! Lock order: a process' threads, its space's vCPUs, what was shown: leaves, one after the other.

use super::used::{ProcessUse, ThreadUse, Times};
use crate::core::part::Part;
use crate::process::task::TASKS;
use core::sync::atomic::{AtomicU64, Ordering};

use doppel_machine::cpu;
use doppel_machine::host;
use doppel_machine::meter::Charge;

use crate::core::time::monotonic_ns;
use crate::process::task::Space;
use crate::process::task::{Process, Thread};

/// A system call that took longer is followed by another that is timed.
const LONG_CALL_NS: u64 = 20_000;

/// Most that a timed system call stands for by each of those that were not timed.
const LONGEST_CALL_NS: u64 = 100_000;

/// What the host took of its vCPUs, as far as they have asked, and as it was told last.
#[derive(Default)]
pub struct Stolen {
    ns: AtomicU64,
    shown: AtomicU64,
}

/// The domain's.
pub static STOLEN: Part<Stolen> = Part::new();

impl Times {
    /// Both together.
    pub fn total(self) -> u64 {
        self.user + self.system
    }

    /// Takes `total` with about `system` of it as the new value: neither part ever goes back.
    fn advance(&mut self, total: u64, system: u64) {
        let total = total.max(self.total());
        self.system = system.clamp(self.system, total - self.user);
        self.user = total - self.system;
    }
}

impl core::ops::AddAssign for Times {
    fn add_assign(&mut self, other: Self) {
        self.user += other.user;
        self.system += other.system;
    }
}

impl ProcessUse {
    /// What reaped children have used.
    pub fn children(&self) -> Times {
        *self.children.lock()
    }

    /// A child is reaped.
    pub fn add_child(&self, of: Times) {
        *self.children.lock() += of;
    }

    /// A total that never goes back.
    fn told(&self, total: u64) -> u64 {
        self.total.fetch_max(total, Ordering::Relaxed).max(total)
    }

    fn split(&self, total: u64, timed: u64, space: &Space) -> Times {
        let system = system_of(total, timed, space);
        let mut shown = self.shown.lock();
        shown.advance(total, system);
        *shown
    }

    /// What a zombie has used.
    pub fn last(&self) -> Times {
        *self.shown.lock()
    }
}

impl ThreadUse {
    /// Whether it runs.
    pub(crate) fn runs(&self) -> bool {
        self.since.load(Ordering::SeqCst) != 0
    }

    /// How long it has been running since it was last charged.
    fn slice(&self) -> u64 {
        match self.since.load(Ordering::Acquire) {
            0 => 0,
            since => monotonic_ns().saturating_sub(since),
        }
    }

    /// Charges the thread, which is the current one, up to `now`; from then on nobody is.
    fn charge(&self, now: u64, exact: bool) -> u64 {
        self.charge_and(now, exact, 0)
    }

    /// As [`Self::charge`]; `next`: since when it runs then, 0 if it does not. One that runs on is never seen at rest: a
    /// look at the process' CPU timers in that moment would be the last one.
    fn charge_and(&self, now: u64, exact: bool, next: u64) -> u64 {
        let since = self.since.load(Ordering::Relaxed);
        let mut charge = Charge { cpu: 0, stolen: 0 };
        if since != 0 {
            charge = cpu::vcpu().meter.charge(now.saturating_sub(since), exact);
            self.charged.store(self.charged.load(Ordering::Relaxed) + charge.cpu, Ordering::Release);
        }
        self.since.store(next, Ordering::Release);
        if charge.stolen != 0 {
            STOLEN.ns.fetch_add(charge.stolen, Ordering::Relaxed);
        }
        charge.cpu
    }
}

/// The current thread stops running, or sleeps together with its vCPU: its time stops.
#[inline]
pub(crate) fn stops(t: &Thread, now: u64) {
    t.used.charge(now, false);
}

/// `t` begins to run.
#[inline]
pub(crate) fn runs(t: &Thread, now: u64) {
    t.used.since.store(now, Ordering::Release);
    t.process.timers.cpu.thread_runs(&t.process);
}

/// Charges the current thread with what it has used up to now.
pub(crate) fn settle(t: &Thread) {
    let now = monotonic_ns();
    t.used.charge_and(now, true, now);
}

/// Whether `t` is the current thread.
fn is_me(t: &Thread) -> bool {
    cpu::current_as::<Thread>().is_some_and(|me| core::ptr::eq(&**me, t))
}

/// What the host process of `space` has used beyond what threads were charged for, which may be too much; none if it
/// does not run.
fn rest(space: &Space) -> Option<i64> {
    let charged = space.charged_ns();
    let host = match space.host_pid.load(Ordering::Relaxed) {
        0 => None,
        pid => host::process_cpu_ns(pid),
    };
    host.map(|ns| ns.cast_signed() - charged.cast_signed())
}

/// Charged time of a thread with the slice that runs.
fn so_far(t: &Thread, rest: u64) -> u64 {
    t.used.charged.load(Ordering::Acquire) + t.used.slice().min(rest)
}

/// CPU time of a thread.
pub fn thread_ns(t: &Thread) -> u64 {
    let total = if is_me(t) {
        settle(t);
        t.used.charged.load(Ordering::Relaxed)
    } else if t.used.runs() {
        // The one slice that runs, or one of them, has what nobody was charged for.
        so_far(t, rest(&t.space()).map_or(u64::MAX, |r| r.max(0).cast_unsigned()))
    } else {
        t.used.charged.load(Ordering::Acquire)
    };
    t.used.total.fetch_max(total, Ordering::Relaxed).max(total)
}

/// User and system time of a thread.
pub fn thread_times(t: &Thread) -> Times {
    let (total, space) = (thread_ns(t), t.space());
    let system = system_of(total, t.used.system.load(Ordering::Relaxed), &space);
    let mut shown = t.used.shown.lock();
    shown.advance(total, system);
    *shown
}

/// System time out of `total`, of which timed calls say `timed`.
fn system_of(total: u64, timed: u64, space: &Space) -> u64 {
    let pid = space.host_pid.load(Ordering::Relaxed);
    let ppm = if pid == 0 { 0 } else { host::process_kernel_ppm(pid).unwrap_or(0) };
    let by_host = u128::from(total) * u128::from(ppm) / 1_000_000;
    timed.max(u64::try_from(by_host).unwrap_or(u64::MAX))
}

/// Charged and timed system time of all threads of a process, those that have ended included; none for a zombie.
fn charged(p: &Process, own: bool) -> Option<(u64, u64)> {
    // A thread that ends moves its time under this lock.
    let threads = p.threads.lock();
    if threads.is_empty() {
        return None;
    }
    let (mut sum, mut system) =
        (p.used.dead.load(Ordering::Relaxed), p.used.dead_system.load(Ordering::Relaxed));
    for t in threads.iter() {
        sum += if own { t.used.charged.load(Ordering::Acquire) } else { so_far(t, u64::MAX) };
        system += t.used.system.load(Ordering::Relaxed);
    }
    Some((sum, system))
}

/// What a process has used, and how much of it timed calls say was system time; none for a zombie.
fn count(p: &Process, space: &Space) -> Option<(u64, u64)> {
    if space.owner.load(Ordering::Relaxed) == p.pid {
        let (sum, system) = charged(p, true)?;
        if let Some(rest) = rest(space) {
            return Some((sum.saturating_add_signed(rest), system));
        }
    }
    if let Some(me) = cpu::current_as::<Thread>().filter(|me| core::ptr::eq(&*me.process, p)) {
        settle(&me);
    }
    charged(p, false)
}

/// CPU time of a process: its threads, the ended ones included. Never goes back.
pub fn process_ns(p: &Process) -> u64 {
    match count(p, &p.space()) {
        Some((total, _)) => p.used.told(total),
        None => p.used.told(p.used.last().total()),
    }
}

/// User and system time of a process. Neither ever goes back.
pub fn process_times(p: &Process) -> Times {
    let space = p.space();
    match count(p, &space) {
        Some((total, timed)) => p.used.split(p.used.told(total), timed, &space),
        None => p.used.last(),
    }
}

/// The current thread is about to end. What it has used is known as well as after any other slice: the host's account of
/// its process has the rest.
pub(crate) fn thread_stops(t: &Thread) {
    let now = monotonic_ns();
    t.used.charge_and(now, false, now);
}

/// The current thread, which [stops](thread_stops), goes off its process' list of threads. Under the list's lock, so that
/// the process' time neither drops nor counts the thread twice.
pub(crate) fn thread_ends(t: &Thread) {
    let p = &t.process;
    p.used.dead.fetch_add(t.used.charged.load(Ordering::Relaxed), Ordering::Relaxed);
    p.used.dead_system.fetch_add(t.used.system.load(Ordering::Relaxed), Ordering::Relaxed);
}

/// The current thread, which has ended or is a worker, runs nothing more.
pub(crate) fn last_slice(t: &Thread) {
    let cpu = t.used.charge(monotonic_ns(), false);
    // What a worker has used before is in no list of threads.
    let cpu = if t.is_worker() { t.used.charged.load(Ordering::Relaxed) } else { cpu };
    t.process.used.dead.fetch_add(cpu, Ordering::Relaxed);
}

/// The last thread of `p` has ended, in `space`: what the process has used.
pub(crate) fn process_ends(p: &Process, space: &Space) {
    let mut total = p.used.dead.load(Ordering::Relaxed);
    if space.owner.load(Ordering::Relaxed) == p.pid
        && let Some(rest) = rest(space)
    {
        total = total.saturating_add_signed(rest);
    }
    p.used.split(p.used.told(total), p.used.dead_system.load(Ordering::Relaxed), space);
}

/// The current thread, the only one of its process, goes from one space to another.
pub(crate) fn leave_space(t: &Thread, old: &Space, new: &Space) {
    settle(t);
    let pid = t.process.pid;
    if old.owner.compare_exchange(pid, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        && let Some(rest) = rest(old)
    {
        t.process.used.dead.fetch_add(rest.max(0).cast_unsigned(), Ordering::Relaxed);
    }
    new.owner.store(pid, Ordering::Relaxed);
}

/// In a clone: the host's accounts stayed behind, and every process goes on from what it was told last.
pub(crate) fn adopt() {
    for p in TASKS.all_processes() {
        if let Some((sum, _)) = charged(&p, true) {
            let told = p.used.told(p.used.last().total());
            p.used.dead.fetch_add(told.saturating_sub(sum), Ordering::Relaxed);
        }
    }
}

/// Serves one system call of the current thread, of which every so many are timed.
#[cold]
#[inline(never)]
pub(crate) fn timed(serve: impl FnOnce()) {
    let used =
        || cpu::current_as::<Thread>().map_or(0, |t| t.used.charged.load(Ordering::Relaxed) + t.used.slice());
    // To look at the clock takes longer than many a call.
    let first = used();
    let start = used();
    serve();
    let mut end = used();
    if end.saturating_sub(start) > LONG_CALL_NS
        && let Some(t) = cpu::current_as::<Thread>()
    {
        // The host may have run others meanwhile, for a time that counts as often as the call does: it is asked.
        settle(&t);
        end = used();
    }
    let took = end.saturating_sub(start).saturating_sub(start.saturating_sub(first));
    // Fibonacci hashing: calls that come in a pattern must not be timed in one.
    let dice = end.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let calls = cpu::call_timed(took > LONG_CALL_NS, dice);
    if let Some(t) = cpu::current_as::<Thread>() {
        // One that took very long stands for itself with what is beyond: no chance decides about so much.
        let often = took.min(LONGEST_CALL_NS);
        let system = often * calls + (took - often);
        t.used.system.store(t.used.system.load(Ordering::Relaxed) + system, Ordering::Relaxed);
    }
}

/// CPU time of all processes that still have an entry, and of the children they have reaped.
pub fn domain_times() -> Times {
    let mut sum = Times::default();
    for p in TASKS.all_processes() {
        sum += process_times(&p);
        sum += p.used.children();
    }
    sum
}

/// Time in which threads of the domain would have run, but the host ran others.
pub fn stolen_ns() -> u64 {
    let mut stolen = STOLEN.ns.load(Ordering::Relaxed);
    for p in TASKS.all_processes() {
        let space = p.space();
        let running: u64 = p.threads().iter().map(|t| t.used.slice()).sum();
        if running != 0
            && space.owner.load(Ordering::Relaxed) == p.pid
            && let Some(rest) = rest(&space)
        {
            stolen += running.saturating_sub(rest.max(0).cast_unsigned());
        }
    }
    STOLEN.shown.fetch_max(stolen, Ordering::Relaxed).max(stolen)
}
