//! Tracing (`ptrace(2)`).
//!
//! Key types: [`Traced`] (what a thread knows of its tracer, embedded in `Thread`), [`Tracer`] (the threads a
//! process traces, embedded in `Process`). stop.rs is the tracee's side: the places where it stops; calls.rs
//! serves the requests of the tracer; regs.rs gives registers their user form.
//! A tracer is a whole process: any of its threads may make requests and wait.
//! Lock order: [`Traced`]'s state and [`Tracer`]'s lists are leaves, never held together.

pub(crate) mod regs;
pub mod requests;
pub mod state;
mod stop;

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
pub use state::{Dead, Traced, Tracer};
pub(crate) use state::{Kind, Options, State, Stop};

use super::task::{Process, Thread};
use crate::process::namespaces::numbers;
use crate::process::signal::state::ActionFlags;
use crate::process::signal::{self, SigInfo, code, sig};

pub use regs::{fp_bytes, general_bytes, xstate_bytes};
pub use stop::{
    after_frame, before_frame, clone_event, exit_event, group_stop, inherit, seccomp_event, single_step,
    stop_for_interrupt, stop_for_signal, syscall_enter, syscall_leave, vfork_done,
};

/// PTRACE_EVENT_*.
#[allow(missing_docs)]
pub(crate) mod event {
    pub const FORK: i32 = 1;
    pub const VFORK: i32 = 2;
    pub const CLONE: i32 = 3;
    pub const EXEC: i32 = 4;
    pub const VFORK_DONE: i32 = 5;
    pub const EXIT: i32 = 6;
    pub const SECCOMP: i32 = 7;
    pub const STOP: i32 = 128;
}

/// Bits of [`Traced::flags`].
pub(crate) mod flag {
    /// Somebody traces this thread.
    pub const TRACED: u32 = 1;
    /// It stops at the next entry or exit of a system call.
    pub const SYSCALL: u32 = 2;
    /// It runs one instruction.
    pub const STEP: u32 = 4;
}

impl Traced {
    /// Nonzero if the thread is traced.
    #[inline]
    pub fn flags(&self) -> u32 {
        self.flags.load(Ordering::Relaxed)
    }

    /// Whether the thread must stop for its tracer, signals or not.
    pub fn wants_stop(&self) -> bool {
        self.interrupt.load(Ordering::SeqCst)
    }

    /// Whether it runs although its process is stopped, because its tracer said so.
    pub fn is_past_stop(&self) -> bool {
        self.past_stop.load(Ordering::SeqCst)
    }

    /// A new group stop, or the end of one.
    pub fn forget_stop(&self) {
        self.past_stop.store(false, Ordering::SeqCst);
    }

    /// Whether it is stopped for its tracer.
    pub fn is_stopped(&self) -> bool {
        self.flags() != 0 && self.state.lock().stop.is_some()
    }

    /// The process that traces this thread.
    pub fn tracer(&self) -> Option<Arc<Process>> {
        if self.flags() == 0 { None } else { self.state.lock().tracer.upgrade() }
    }

    fn set_flag(&self, bits: u32, on: bool) {
        if on {
            self.flags.fetch_or(bits, Ordering::SeqCst);
        } else {
            self.flags.fetch_and(!bits, Ordering::SeqCst);
        }
    }
}

impl Tracer {
    /// The living tracees.
    pub fn tracees(&self) -> Vec<Arc<Thread>> {
        self.tracees.lock().iter().filter_map(Weak::upgrade).collect()
    }

    fn add(&self, t: &Arc<Thread>) {
        let mut list = self.tracees.lock();
        list.retain(|w| w.strong_count() != 0);
        list.push(Arc::downgrade(t));
    }

    fn remove(&self, t: &Thread) {
        self.tracees.lock().retain(|w| !core::ptr::eq(w.as_ptr(), t) && w.strong_count() != 0);
    }

    /// Whether a tracee that `wanted` likes is about to be in [`Self::take_dead`], or a zombie. For those who found it
    /// no more among [`Self::tracees`].
    pub fn expects(&self, wanted: impl Fn(i32, i32) -> bool) -> bool {
        self.ending.lock().iter().any(|&(tid, pgid)| wanted(tid, pgid))
    }

    fn heard_of(&self, tid: i32) {
        self.ending.lock().retain(|e| e.0 != tid);
    }

    /// An ended tracee that `wanted` likes; taken out unless `peek`.
    pub fn take_dead(&self, peek: bool, wanted: impl Fn(&Dead) -> bool) -> Option<Dead> {
        let mut list = self.dead.lock();
        let i = list.iter().position(wanted)?;
        Some(if peek { list[i] } else { list.remove(i) })
    }
}

/// For wait4: the wait status of a stop of `t` that its tracer has not waited for, once unless `peek`.
pub fn take_stop_report(t: &Thread, peek: bool) -> Option<i32> {
    let mut s = t.ptrace.state.lock();
    let stop = s.stop.as_mut().filter(|s| !s.reported)?;
    stop.reported = !peek;
    Some(stop.code << 8 | 0x7f)
}

/// Tells a tracer about a tracee: SIGCHLD and wait4.
fn notify(tracer: &Arc<Process>, t: &Thread, what: i32, status: i32) {
    let action = tracer.signals.action(sig::SIGCHLD);
    let quiet = what == code::CLD_TRAPPED
        && (action.handler == doppel_abi_linux::signal::SIG_IGN
            || action.flags.contains(ActionFlags::NOCLDSTOP));
    if !quiet {
        let uid = t.cred().ruid;
        let info = SigInfo::from_user(sig::SIGCHLD, what, t.tid(), uid, status as u64);
        // SIGCHLD is a standard signal: it is pending at worst without details.
        let _ = signal::send_process(tracer, info);
    }
    tracer.child_wait.notify_all();
}

/// Makes `tracer` the tracer of `t`; false if it has one.
pub(crate) fn attach(tracer: &Arc<Process>, t: &Arc<Thread>, options: Options, seized: bool) -> bool {
    {
        let mut s = t.ptrace.state.lock();
        if t.ptrace.flags() != 0 {
            return false;
        }
        *s = State { tracer: Arc::downgrade(tracer), options, seized, ..State::default() };
        t.ptrace.set_flag(flag::TRACED, true);
    }
    tracer.tracer.add(t);
    note_leader(t, tracer.pid);
    true
}

/// Keeps who traces the leader of a process.
fn note_leader(t: &Thread, by: i32) {
    if t.tid() == t.process.pid {
        t.process.tracer.leader_by.store(by, Ordering::SeqCst);
    }
}

/// Lets `t` run untraced, with `signal` if it stopped to deliver one.
pub(crate) fn detach(tracer: &Process, t: &Thread, signal: i32) {
    note_leader(t, 0);
    tracer.tracer.remove(t);
    {
        let mut s = t.ptrace.state.lock();
        if t.ptrace.flags() & flag::STEP != 0 && s.stop.is_some() {
            regs::set_trap_flag(t, false);
        }
        t.ptrace.flags.store(0, Ordering::SeqCst);
        t.ptrace.interrupt.store(false, Ordering::SeqCst);
        t.ptrace.forget_stop();
        s.stop = None;
        s.signal = signal;
        s.tracer = Weak::new();
    }
    t.notify();
}

/// The end of a process: what it traced goes on alone, or dies with it (PTRACE_O_EXITKILL).
pub fn tracer_exit(p: &Process) {
    for t in p.tracer.tracees() {
        let kill = t.ptrace.state.lock().options.contains(Options::EXITKILL);
        detach(p, &t, 0);
        if kill {
            signal::terminate(&t.process, sig::SIGKILL);
        }
    }
    p.tracer.dead.lock().clear();
}

/// A thread that ends is traced no longer. Value: who traced it, for [`thread_exit`].
pub fn untrace(t: &Thread) -> Option<Arc<Process>> {
    let tracer = t.ptrace.tracer()?;
    // A process whose parent traces it is found among its children all the time.
    let child = t.tid() == t.process.pid && t.process.parent().is_some_and(|p| Arc::ptr_eq(&p, &tracer));
    if !child {
        tracer.tracer.ending.lock().push((t.tid(), t.process.pgid()));
    }
    tracer.tracer.remove(t);
    t.ptrace.flags.store(0, Ordering::SeqCst);
    Some(tracer)
}

/// The end of a thread. Its tracer hears of it: here for threads beside the leader, and through the parent's
/// wait for a process, unless the parent is somebody else. `last` is the wait status of the process if this
/// was its last thread.
pub fn thread_exit(t: &Arc<Thread>, tracer: Option<Arc<Process>>, last: Option<i32>) {
    let leader = t.tid() == t.process.pid;
    if leader && last.is_none() {
        // The process ends with its last thread.
        *t.process.tracer.of_leader.lock() = tracer.as_ref().map(Arc::downgrade);
        return;
    }
    let own = t.process.parent();
    let tell = |q: &Arc<Process>, tid: i32, status: i32| {
        let dead = Dead {
            tid,
            shown: numbers::shown_to(q, tid),
            pgid: t.process.pgid(),
            uid: t.cred().ruid,
            status,
        };
        q.tracer.dead.lock().push(dead);
        q.tracer.heard_of(tid);
        let (what, value) = if status & 0x7f == 0 {
            (code::CLD_EXITED, status >> 8 & 0xff)
        } else {
            (code::CLD_KILLED, status & 0x7f)
        };
        notify(q, t, what, value);
    };
    if !leader && let Some(q) = &tracer {
        tell(q, t.tid(), last.or(*t.process.group_exit.lock()).unwrap_or(0));
    }
    let of_leader =
        if leader { tracer } else { t.process.tracer.of_leader.lock().take().and_then(|w| w.upgrade()) };
    if let (Some(q), Some(status)) = (of_leader, last) {
        if own.is_some_and(|p| Arc::ptr_eq(&p, &q)) {
            // It was made its child meanwhile, and is a zombie by now.
            q.tracer.heard_of(t.process.pid);
            q.child_wait.notify_all();
        } else {
            tell(&q, t.process.pid, status);
        }
    }
}
