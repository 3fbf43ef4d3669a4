//! Sending: who gets a signal, whether it is dropped, whom it wakes.

use crate::core::events::{self, record};
use crate::core::namespace::{Kind, user};
use crate::core::sched::PollEvents;
use crate::process::life::ending;
use crate::process::task::TASKS;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use doppel_abi_linux::signal::{SIG_DFL, SIG_IGN};
use doppel_machine::shield;

use super::queue::Queued;
use super::{DEFAULT_STOP, SigInfo, SigSet, UNBLOCKABLE, bit, code, sig, stop};
use crate::process::namespaces::numbers;
use crate::process::task::{Process, Resource, Thread, current, try_current};
use crate::{Errno, Result};

/// Most pending signals of one queue, whatever RLIMIT_SIGPENDING says.
const QUEUE_MAX: u64 = 32_768;

/// Queues a signal to a process and wakes a thread that can take it. Permission is the caller's business.
pub fn send_process(p: &Arc<Process>, info: SigInfo) -> Result<()> {
    post(p, None, info)
}

/// Queues a signal to one thread.
pub fn send_thread(t: &Arc<Thread>, info: SigInfo) -> Result<()> {
    post(&t.process, Some(t), info)
}

/// SIGPIPE to the current thread.
pub fn send_sigpipe() {
    // The current thread exists, and a standard signal is pending at worst without details.
    let _ = send_thread(&current(), SigInfo::kernel(sig::SIGPIPE));
}

/// Sends to every process of a process group; ESRCH if there is none.
pub fn send_group(pgid: i32, info: SigInfo) -> Result<()> {
    let mut found = Err(Errno::ESRCH);
    for p in TASKS.all_processes() {
        if p.pgid() == pgid && !p.is_zombie() {
            let r = send_process(&p, info);
            if found.is_err() {
                found = r;
            }
        }
    }
    found
}

/// A signal as `p` is told of it, with the numbers its namespaces have now for the process and the user that caused it.
fn told(p: &Process, info: SigInfo) -> SigInfo {
    if p.numbers.is_none() && !user::any(Kind::User) || !info.names_sender() {
        return info;
    }
    let uid = p.cred.get(&shield::read()).user.uid(info.uid);
    SigInfo { pid: numbers::shown_to(p, info.pid), uid, ..info }
}

fn post(p: &Arc<Process>, only: Option<&Arc<Thread>>, info: SigInfo) -> Result<()> {
    if !(1..=64).contains(&info.signo) {
        return Err(Errno::EINVAL);
    }
    if p.is_zombie() {
        return Ok(());
    }
    let info = told(p, info);
    stop::cancel_opposite(p, info.signo);
    let r = queue(p, only, info);
    if info.signo == sig::SIGCONT {
        stop::resume(p);
    }
    r
}

/// Queues a signal unless it is dropped, and wakes whom it concerns.
fn queue(p: &Arc<Process>, only: Option<&Arc<Thread>>, info: SigInfo) -> Result<()> {
    let b = bit(info.signo);
    if dropped(p, only, &info) {
        return Ok(());
    }
    if info.signo == sig::SIGKILL {
        record(events::Kind::KillSent, [p.pid as u64, 0, 0]);
        terminate(p, sig::SIGKILL);
        return Ok(());
    }
    let limit = p.rlimit(Resource::Sigpending).min(QUEUE_MAX) as usize;
    let queued = match only {
        Some(t) => t.signals.with_queue(|q| q.push(info, limit)),
        None => p.signals.with_queue(|q| q.push(info, limit)),
    };
    match queued {
        Queued::Yes => {}
        Queued::Already => return Ok(()),
        Queued::Full => return Err(Errno::EAGAIN),
    }
    match only {
        Some(t) => {
            if t.signals.mask() & b == 0 {
                t.notify();
            }
        }
        None => wake_one(p, b),
    }
    p.signals.wait.wake_all(PollEvents::IN);
    Ok(())
}

/// Has each signal of `set` taken by one thread that does not block it, the leader if it can, and wakes that.
fn wake_one(p: &Process, set: SigSet) {
    let threads = p.threads.lock();
    let mut left = set;
    while left != 0 {
        let b = left & left.wrapping_neg();
        let able = |t: &&Arc<Thread>| b & !t.signals.mask() != 0 && !t.exiting.load(Ordering::SeqCst);
        let taker = threads.iter().find(able);
        p.signals.assign(left.trailing_zeros() as i32 + 1, taker.map_or(0, |t| t.tid()));
        if let Some(t) = taker {
            t.notify();
        }
        left &= left - 1;
    }
}

/// A thread has ended, perhaps one that was to take a process-directed signal: another one is woken for it.
pub fn retarget(p: &Process) {
    let set = p.signals.pending();
    if set != 0 {
        wake_one(p, set);
    }
}

/// Whether a signal has no effect: ignored and not blocked, or not handled by the domain's first process.
fn dropped(p: &Process, only: Option<&Arc<Thread>>, info: &SigInfo) -> bool {
    let kernel_only = UNBLOCKABLE & bit(info.signo) != 0;
    // A tracer hears of every signal.
    let (mask, traced) = match only {
        Some(t) => (t.signals.mask(), t.ptrace.flags() != 0),
        None => {
            let threads = p.threads.lock();
            let mask = threads.first().map_or(0, |t| t.signals.mask());
            (mask, threads.iter().any(|t| t.ptrace.flags() != 0))
        }
    };
    // Blocked signals are kept whatever their action: it may change, or somebody may wait for them.
    if mask & bit(info.signo) != 0 {
        return false;
    }
    if traced && info.signo != sig::SIGKILL {
        return false;
    }
    let action = p.signals.action(info.signo);
    if numbers::is_init(p) && action.handler == SIG_DFL {
        // Those above its namespace can end or stop it, those in it cannot.
        let from_above = || try_current().is_some_and(|t| numbers::shown_to(p, t.process.pid) == 0);
        return !kernel_only || info.code != code::SI_KERNEL && !from_above();
    }
    !kernel_only && action.ignores(info.signo)
}

/// Ends a process: every thread leaves its program at the next chance, with wait status `status`.
pub fn terminate(p: &Process, status: i32) {
    p.signals.stopped.store(false, Ordering::SeqCst);
    ending::end_process(p, status);
}

/// Whether the thread has a signal to act on (unblocked), or must stop.
pub fn pending(t: &Thread) -> bool {
    let s = &t.signals;
    let p = &t.process.signals;
    s.pending() & !s.mask() != 0
        || p.pending() & !s.mask() != 0 && p.pending_for(t.tid(), !s.mask()) != 0
        || p.is_stopped() && !t.ptrace.is_past_stop()
        || t.ptrace.wants_stop()
}

/// Forces a fault signal on the current thread: unblocked and with the default action if it was blocked or
/// ignored.
pub fn force(t: &Arc<Thread>, info: SigInfo) {
    let b = bit(info.signo);
    let blocked = t.signals.mask() & b != 0;
    {
        let handlers = t.process.signals.handlers();
        let mut actions = handlers.actions.lock();
        let a = &mut actions[info.signo as usize - 1];
        if blocked || a.handler == SIG_IGN {
            a.handler = SIG_DFL;
        }
    }
    t.signals.mask.fetch_and(!b, Ordering::SeqCst);
    t.signals.forced.fetch_or(b, Ordering::Relaxed);
    {
        let mut s = t.signals.private.lock();
        if info.trapno != 0 || info.err != 0 {
            let cr2 = if info.trapno == 14 { info.value } else { s.fault[2] };
            s.fault = [info.trapno, info.err, cr2];
        }
    }
    // A pending signal of the same number that somebody sent gives way to the fault.
    t.signals.with_queue(|q| {
        q.discard(b);
        q.push(info, usize::MAX)
    });
    t.task.post_work();
}

/// Takes a pending signal in `set` of the thread or its process, whomever it was meant for (sigtimedwait, signalfd).
pub fn dequeue(t: &Thread, set: SigSet) -> Option<SigInfo> {
    take(t, set, t.process.signals.pending() & set)
}

/// Takes a pending signal that the thread does not block, of its process only one that is its to take.
pub(super) fn dequeue_unblocked(t: &Thread) -> Option<SigInfo> {
    let set = !t.signals.mask();
    take(t, set, t.process.signals.pending_for(t.tid(), set))
}

fn take(t: &Thread, set: SigSet, shared: SigSet) -> Option<SigInfo> {
    let own = t.signals.pending() & set;
    if own | shared == 0 {
        return None;
    }
    let mine = if own != 0 { t.signals.with_queue(|q| q.take(set)) } else { None };
    let info = mine.or_else(|| t.process.signals.with_queue(|q| q.take(shared)));
    info.map(|mut i| {
        crate::process::time::posix::signal_taken(&t.process, &mut i);
        i
    })
}

/// Sets the mask of the current thread; signals it can no longer take are offered to others, signals it can
/// take now are acted on before it returns to its program.
pub fn set_mask(t: &Thread, mask: SigSet) {
    let mask = mask & !UNBLOCKABLE;
    let old = t.signals.mask.swap(mask, Ordering::SeqCst);
    let shared = t.process.signals.pending();
    if shared & mask & !old != 0 {
        wake_one(&t.process, shared & mask & !old);
    }
    if pending(t) {
        t.task.post_work();
    }
}

/// Whether a signal sent to this thread would have no effect now: blocked, or ignored by a handler of SIG_IGN.
pub fn blocked_or_ignored(t: &Thread, signo: i32) -> bool {
    t.signals.mask() & bit(signo) != 0 || t.process.signals.action(signo).handler == SIG_IGN
}

/// Drops pending signals of `set` everywhere in a process.
pub(crate) fn flush(p: &Process, set: SigSet) {
    p.signals.with_queue(|q| q.discard(set));
    for t in p.threads() {
        t.signals.with_queue(|q| q.discard(set));
    }
}

/// Whether the default action of a signal is to stop.
pub(crate) fn stops(signo: i32) -> bool {
    DEFAULT_STOP & bit(signo) != 0
}
