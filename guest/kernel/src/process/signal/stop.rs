//! Job control: stopping and continuing processes, telling parents, orphaned process groups.

use crate::process::task::TASKS;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use doppel_abi_linux::signal::SIG_IGN;

use super::send::flush;
use super::state::ActionFlags;
use super::{DEFAULT_STOP, SigInfo, bit, code, send_group, send_process, sig};
use crate::core::sched;
use crate::process::ptrace;
use crate::process::task::{Process, Thread};

/// What sending does first, whether or not the signal is then ignored or blocked: a stop signal cancels a
/// pending SIGCONT, SIGCONT cancels pending stops.
pub(super) fn cancel_opposite(p: &Arc<Process>, signo: i32) {
    if DEFAULT_STOP & bit(signo) != 0 {
        flush(p, bit(sig::SIGCONT));
    } else if signo == sig::SIGCONT {
        flush(p, DEFAULT_STOP);
    }
}

/// Continues a stopped process: SIGCONT, once it is queued, so that its handler runs before anything else.
pub(super) fn resume(p: &Arc<Process>) {
    {
        let mut s = p.signals.stop.lock();
        p.signals.continues.fetch_add(1, Ordering::SeqCst);
        if !p.signals.stopped.swap(false, Ordering::SeqCst) {
            return;
        }
        s.stop_report = None;
        s.continue_report = true;
    }
    for t in p.threads() {
        t.ptrace.forget_stop();
        t.notify();
    }
    notify_parent(p, code::CLD_CONTINUED, sig::SIGCONT);
}

/// Stops the process of the current thread, unless it was continued since its `continues` was `seen`, before
/// the stop signal was taken. Every thread parks in [`wait_while_stopped`].
pub(super) fn stop(p: &Arc<Process>, signo: i32, seen: u64) {
    {
        let mut s = p.signals.stop.lock();
        let late = p.signals.continues.load(Ordering::SeqCst) != seen;
        if late || p.signals.stopped.swap(true, Ordering::SeqCst) {
            return;
        }
        s.stop_report = Some(signo);
        s.signo = signo;
        s.continue_report = false;
    }
    for t in p.threads() {
        t.ptrace.forget_stop();
        t.notify();
    }
    notify_parent(p, code::CLD_STOPPED, signo);
}

/// Parks the current thread while its process is stopped.
pub(super) fn wait_while_stopped(t: &Arc<Thread>) {
    while t.process.signals.is_stopped() && !t.ptrace.is_past_stop() && !t.exiting.load(Ordering::SeqCst) {
        if !ptrace::group_stop(t) {
            sched::park(&**t, None);
        }
    }
}

/// Tells the parent that a child stopped or continued: SIGCHLD unless it asked not to be told, and wait4.
pub fn notify_parent(p: &Arc<Process>, what: i32, status: i32) {
    let Some(parent) = p.parent() else { return };
    let a = parent.signals.action(sig::SIGCHLD);
    if a.handler != SIG_IGN && !a.flags.contains(ActionFlags::NOCLDSTOP) {
        let uid = p.cred().ruid;
        let info = SigInfo::from_user(sig::SIGCHLD, what, p.pid, uid, status as u64);
        // SIGCHLD is a standard signal: it is pending at worst without details.
        let _ = send_process(&parent, info);
    }
    parent.child_wait.notify_all();
}

/// Whether no live member of the group, `without` left out, has a parent in another group of its session:
/// nobody could continue it once stopped.
pub fn pgrp_orphaned(pgid: i32, without: i32) -> bool {
    !TASKS.all_processes().iter().any(|p| {
        p.pgid() == pgid
            && p.pid != without
            && !p.is_zombie()
            && p.parent().is_some_and(|parent| {
                parent.pid != without && parent.pgid() != pgid && parent.session().sid == p.session().sid
            })
    })
}

fn hang_up_if_orphaned(pgid: i32, without: i32) {
    let stopped = TASKS
        .all_processes()
        .iter()
        .any(|p| p.pgid() == pgid && p.pid != without && !p.is_zombie() && p.signals.is_stopped());
    if stopped && pgrp_orphaned(pgid, without) {
        // ESRCH only says that the group has just gone.
        let _ = send_group(pgid, SigInfo::kernel(sig::SIGHUP));
        let _ = send_group(pgid, SigInfo::kernel(sig::SIGCONT));
    }
}

/// For exit: process groups that the end of `p` orphans and that hold stopped processes get SIGHUP and
/// SIGCONT. Called while `p` still has its parent and children.
pub fn orphan_check(p: &Arc<Process>) {
    let sid = p.session().sid;
    let pgid = p.pgid();
    if p.parent().is_some_and(|q| q.pgid() != pgid && q.session().sid == sid) {
        hang_up_if_orphaned(pgid, p.pid);
    }
    let children = p.children.lock().clone();
    for c in children {
        if c.pgid() != pgid && c.session().sid == sid {
            hang_up_if_orphaned(c.pgid(), p.pid);
        }
    }
}
