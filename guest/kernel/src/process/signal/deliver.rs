//! Acting on signals when a thread is about to return to its program.

use alloc::format;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use doppel_abi_linux::signal::{SIG_DFL, SIG_IGN};
use doppel_abi_linux::syscalls::nr;

use super::state::{Action, ActionFlags};
use super::{
    DEFAULT_IGNORE, SigInfo, UNBLOCKABLE, bit, force, frame, pgrp_orphaned, send, set_mask, sig, stop,
};
use crate::core::log;
use crate::process::namespaces::numbers;
use crate::process::task::Thread;
use crate::process::{coredump, ptrace};
use crate::{Errno, kernel};

/// Runs before every return to a program when work was posted: acts on pending signals (default actions,
/// stops, building handler frames in the registers and on the user stack) and finishes interrupted system
/// calls. `t` is the current thread; the caller ends it if it is `exiting` afterwards.
pub fn deliver(t: &Arc<Thread>) {
    while let Some((info, continues)) = next(t) {
        if let Some(info) = ptrace::stop_for_signal(t, info) {
            act(t, &info, continues);
        }
    }
    if t.exiting.load(Ordering::SeqCst) {
        return;
    }
    finish_call(t, None);
    let saved = t.signals.take_saved_mask();
    if let Some(m) = saved {
        set_mask(t, m);
    }
}

/// The next signal to act on, with the process' `continues` before it was taken (see [`stop::stop`]); waits
/// here while the process is stopped.
fn next(t: &Arc<Thread>) -> Option<(SigInfo, u64)> {
    ptrace::stop_for_interrupt(t);
    stop::wait_while_stopped(t);
    if t.exiting.load(Ordering::SeqCst) {
        return None;
    }
    let continues = t.process.signals.continues.load(Ordering::SeqCst);
    send::dequeue_unblocked(t).map(|i| (i, continues))
}

fn act(t: &Arc<Thread>, info: &SigInfo, continues: u64) {
    let b = bit(info.signo);
    let forced = t.signals.take_forced(b);
    let action = t.process.signals.action(info.signo);
    if kernel().trace {
        trace(t, info);
    }
    match action.handler {
        SIG_IGN => {}
        SIG_DFL => default_action(t, info, forced, continues),
        _ => call_handler(t, info, &action),
    }
}

/// Shows a signal as strace does.
fn trace(t: &Thread, i: &SigInfo) {
    let (name, n) = (doppel_abi_linux::signal::name(i.signo), i.signo);
    log::log(&format!(
        "[{}] --- {name} ({n}) {{si_code={}, si_pid={}, si_uid={}, si_value={:#x}}} ---\n",
        t.tid(),
        i.code,
        i.pid,
        i.uid,
        i.value
    ));
}

fn default_action(t: &Arc<Thread>, info: &SigInfo, forced: bool, continues: u64) {
    let b = bit(info.signo);
    if DEFAULT_IGNORE & b != 0 || numbers::is_init(&t.process) && !forced && UNBLOCKABLE & b == 0 {
        return;
    }
    if send::stops(info.signo) {
        if info.signo == sig::SIGSTOP || !pgrp_orphaned(t.process.pgid(), 0) {
            stop::stop(&t.process, info.signo, continues);
        }
        return;
    }
    coredump::end_by_signal(t, info);
}

fn call_handler(t: &Arc<Thread>, info: &SigInfo, action: &Action) {
    finish_call(t, Some(action));
    let b = bit(info.signo);
    if action.flags.contains(ActionFlags::RESETHAND) {
        let handlers = t.process.signals.handlers();
        handlers.actions.lock()[info.signo as usize - 1].handler = SIG_DFL;
    }
    let mask = t.signals.mask();
    let back = t.signals.take_saved_mask().unwrap_or(mask);
    ptrace::before_frame(t);
    let mut built = frame::build(t, info, action, back);
    while built.is_err() && crate::memory::mend_missed(&t.space().mm) {
        built = frame::build(t, info, action, back);
    }
    if built.is_err() {
        // The stack is unusable. If it was SIGSEGV itself that could not be delivered, nothing can be.
        if info.signo == sig::SIGSEGV {
            let handlers = t.process.signals.handlers();
            handlers.actions.lock()[info.signo as usize - 1].handler = SIG_DFL;
        }
        set_mask(t, back);
        force(t, SigInfo::kernel(sig::SIGSEGV));
        return;
    }
    let own = if !action.flags.contains(ActionFlags::NODEFER) { b } else { 0 };
    // sigsuspend's mask stays in force for the handler, as on Linux.
    set_mask(t, mask | action.mask | own);
    ptrace::after_frame(t);
}

/// Finishes a system call that gave a restart code: with EINTR, or so that the program makes it again.
/// `action` is that of the handler about to run, if any.
fn finish_call(t: &Thread, action: Option<&Action>) {
    if t.task.syscall_args().0 == u64::MAX {
        return;
    }
    let mut regs = t.task.regs();
    let result = regs.rax.cast_signed();
    if !(-516..=-512).contains(&result) {
        return;
    }
    let code = Errno((-result) as u16);
    let again = match (code, action) {
        (Errno::ERESTARTNOINTR, _) => true,
        (Errno::ERESTARTSYS, Some(a)) => a.flags.contains(ActionFlags::RESTART),
        (_, Some(_)) => false,
        (_, None) => true,
    };
    if !again {
        regs.rax = (-i64::from(Errno::EINTR.0)).cast_unsigned();
        *t.restart.lock() = None;
    } else {
        let continues = code == Errno::ERESTART_RESTARTBLOCK;
        regs.rax = if continues { u64::from(nr::RESTART_SYSCALL) } else { regs.orig_rax };
        regs.rip = regs.rip.wrapping_sub(2);
    }
    // Finished: a further signal must not do it again.
    regs.orig_rax = u64::MAX;
    t.task.set_regs(&regs);
}
