//! Waiting for children (`wait(2)`).

use crate::process::task::TASKS;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use crate::process::namespaces::numbers;
use crate::process::ptrace;
use crate::process::signal::sig;
use crate::process::task::Process;
use crate::process::time::used::Times;
use crate::{Errno, Result};

bitflags::bitflags! {
    /// Options of wait4 and waitid.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct WaitOptions: u32 {
        const NOHANG = 1;
        const UNTRACED = 2;
        const EXITED = 4;
        const CONTINUED = 8;
        const NOWAIT = 0x0100_0000;
        const NOTHREAD = 0x2000_0000;
        const ALL = 0x4000_0000;
        const CLONE = 0x8000_0000;
    }
}

/// Which children.
#[derive(Clone, Copy)]
pub(crate) enum Who {
    Any,
    Pid(i32),
    Group(i32),
}

impl Who {
    fn matches(self, p: &Process) -> bool {
        self.is(p.pid, p.pgid())
    }

    fn is(self, tid: i32, pgid: i32) -> bool {
        match self {
            Self::Any => true,
            Self::Pid(pid) => tid == pid,
            Self::Group(g) => pgid == g,
        }
    }

    /// Whether an ended tracee waits to be heard of.
    fn sees_dead(self, me: &Process) -> bool {
        me.tracer.take_dead(true, |d| self.is(d.tid, d.pgid)).is_some()
    }
}

/// What was found: which child, by its number where the parent is, and a wait status.
pub(crate) struct Report {
    pub(crate) pid: i32,
    pub(crate) uid: u32,
    pub(crate) status: i32,
    pub(crate) used: Times,
    pub(crate) max_rss: u64,
    /// A tracee stopped for its tracer.
    pub(crate) trapped: bool,
}

/// CPU time of a process with its reaped children.
fn total_cpu(p: &Process) -> Times {
    let mut used = crate::process::time::cpu::process_times(p);
    used += p.used.children();
    used
}

/// Largest memory of a process or its reaped children.
pub(crate) fn max_rss(p: &Process) -> u64 {
    p.max_rss.load(Ordering::Relaxed).max(p.child_max_rss.load(Ordering::Relaxed))
}

/// Removes a zombie for good; false if another thread of the parent was first.
pub fn reap(parent: &Arc<Process>, child: &Arc<Process>) -> bool {
    let found = {
        let mut children = parent.children.lock();
        let before = children.len();
        children.retain(|c| !Arc::ptr_eq(c, child));
        children.len() < before
    };
    if found {
        let mut processes = TASKS.processes.lock();
        let gone = processes.remove(&child.pid);
        if let Some(n) = &child.numbers {
            // Its group or its session may outlive it.
            let named = |q: &Arc<Process>| q.pgid() == child.pid || q.session().sid == child.pid;
            if !processes.values().any(named) {
                n.release();
            }
        }
        drop(processes);
        drop(gone);
        parent.used.add_child(total_cpu(child));
        parent.child_max_rss.fetch_max(max_rss(child), Ordering::Relaxed);
    }
    found
}

/// One look at the children: a report, nothing yet, or ECHILD.
pub(crate) fn look(me: &Arc<Process>, who: Who, options: WaitOptions) -> Result<Option<Report>> {
    let children = me.children.lock().clone();
    let mut any = false;
    for c in children {
        // What happens to tracees shows below, in another form.
        let mine = c.threads().iter().any(|t| t.ptrace.tracer().is_some_and(|q| Arc::ptr_eq(&q, me)));
        let clone_child = c.exit_signal.load(Ordering::Relaxed) != sig::SIGCHLD;
        let other_thread = options.contains(WaitOptions::NOTHREAD)
            && c.made_by.load(Ordering::Relaxed) != crate::process::task::current_ref().tid();
        // Tracees count whatever signal they end with, dead ones too.
        let traced = mine || c.tracer.leader_by.load(Ordering::SeqCst) == me.pid;
        if other_thread
            || !who.matches(&c)
            || !options.contains(WaitOptions::ALL)
                && !traced
                && clone_child != (options.contains(WaitOptions::CLONE))
        {
            continue;
        }
        let exited = *c.exit_status.lock();
        // A zombie is waited for only by those who want its end.
        any |= exited.is_none() || options.contains(WaitOptions::EXITED);
        // Once it is reaped, it has no number any more.
        let shown = numbers::shown_to(me, c.pid);
        let report = |status| Report {
            pid: shown,
            uid: c.cred().ruid,
            status,
            used: total_cpu(&c),
            max_rss: max_rss(&c),
            trapped: false,
        };
        if let Some(status) = exited {
            if options.contains(WaitOptions::EXITED) {
                if !options.contains(WaitOptions::NOWAIT) && !reap(me, &c) {
                    continue;
                }
                return Ok(Some(report(status)));
            }
            continue;
        }
        if mine {
            continue;
        }
        if options.contains(WaitOptions::UNTRACED)
            && let Some(signo) = c.signals.take_stop_report(options.contains(WaitOptions::NOWAIT))
        {
            return Ok(Some(report(signo << 8 | 0x7f)));
        }
        if options.contains(WaitOptions::CONTINUED)
            && c.signals.take_continue_report(options.contains(WaitOptions::NOWAIT))
        {
            return Ok(Some(report(0xffff)));
        }
    }
    // A tracee that ends is first among the tracees, then expected, then dead: looked for in this order, none is missed.
    let found = look_at_tracees(me, who, options, &mut any);
    any |= me.tracer.expects(|tid, pgid| who.is(tid, pgid));
    let found = found.or_else(|| look_at_dead(me, who, options));
    any |= who.sees_dead(me);
    if found.is_none() && !any { Err(Errno::ECHILD) } else { Ok(found) }
}

/// One look at the threads this process traced, which have ended.
fn look_at_dead(me: &Process, who: Who, options: WaitOptions) -> Option<Report> {
    if !options.contains(WaitOptions::EXITED) {
        return None;
    }
    let d = me.tracer.take_dead(options.contains(WaitOptions::NOWAIT), |d| who.is(d.tid, d.pgid))?;
    Some(Report {
        pid: d.shown,
        uid: d.uid,
        status: d.status,
        used: Times::default(),
        max_rss: 0,
        trapped: false,
    })
}

/// One look at the threads this process traces, its children or not.
fn look_at_tracees(me: &Arc<Process>, who: Who, options: WaitOptions, any: &mut bool) -> Option<Report> {
    for t in me.tracer.tracees() {
        if !who.is(t.tid(), t.process.pgid()) {
            continue;
        }
        *any = true;
        if let Some(status) = ptrace::take_stop_report(&t, options.contains(WaitOptions::NOWAIT)) {
            let uid = t.process.cred().ruid;
            return Some(Report {
                pid: numbers::shown_to(me, t.tid()),
                uid,
                status,
                used: Times::default(),
                max_rss: 0,
                trapped: true,
            });
        }
    }
    None
}
