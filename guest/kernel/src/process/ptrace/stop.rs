//! The tracee's side: where a traced thread stops, and how it goes on.
//!
//! A stopped thread parks on its own kernel stack with its registers in its task, where the tracer reads and
//! changes them. SIGKILL and the end of the tracer take it out of every stop.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use super::regs::set_trap_flag;
use super::{Kind, Options, Stop, attach, event, flag, notify};
use crate::core::sched;
use crate::process::signal::{self, SigInfo, code, sig};
use crate::process::task::Thread;

const TRAP_BRKPT: i32 = 1;
/// What PTRACE_O_TRACESYSGOOD adds to SIGTRAP.
const SYSGOOD_BIT: i32 = 0x80;

fn trap(code: i32, pid: i32) -> SigInfo {
    SigInfo::from_user(sig::SIGTRAP, code, pid, 0, 0)
}

/// Stops the current thread until its tracer lets it go on; gives the signal to go on with. `None` if it is no
/// longer traced, or must end.
fn stop(t: &Arc<Thread>, code: i32, kind: Kind, info: Option<SigInfo>) -> Option<i32> {
    // All registers must be in the task: the tracer changes them there.
    t.task.expose_xstate();
    t.task.set_fs_base(t.task.fs_base());
    if t.ptrace.flags() & flag::STEP != 0 {
        t.ptrace.set_flag(flag::STEP, false);
        set_trap_flag(t, false);
    }
    // Looked at before anybody knows of the stop: what kills the thread from then on ends it.
    let ends = t.exiting.load(Ordering::SeqCst);
    let tracer = {
        let mut s = t.ptrace.state.lock();
        let tracer = s.tracer.upgrade().filter(|_| t.ptrace.flags() != 0)?;
        s.signal = 0;
        s.stop = Some(Stop { code, kind, info, reported: false, listening: false });
        tracer
    };
    notify(&tracer, t, code::CLD_TRAPPED, code & 0x7f);
    drop(tracer);
    wait(t, kind, ends);
    let (signal, fs_base, traced) = {
        let mut s = t.ptrace.state.lock();
        s.stop = None;
        (s.signal, s.fs_base.take(), t.ptrace.flags() != 0)
    };
    if let Some(fs) = fs_base {
        t.task.set_fs_base(fs);
    }
    // Detaching may hand over a signal, too.
    if kind == Kind::Signal || traced { Some(signal) } else { None }
}

/// Parks until the stop is over; SIGKILL ends it unless the thread `ends` already.
fn wait(t: &Arc<Thread>, kind: Kind, ends: bool) {
    loop {
        if !ends && t.exiting.load(Ordering::SeqCst) {
            return;
        }
        let listening = match &t.ptrace.state.lock().stop {
            None => return,
            Some(s) => s.listening,
        };
        // PTRACE_LISTEN: SIGCONT or PTRACE_INTERRUPT show as another stop.
        let continued = kind == Kind::Group && !t.process.signals.is_stopped();
        if listening && (continued || t.ptrace.interrupt.swap(false, Ordering::SeqCst)) {
            restop(t);
        }
        sched::park(&**t, None);
    }
}

/// Makes the stop of a listening tracee a new one.
fn restop(t: &Arc<Thread>) {
    let group = t.process.signals.stop_signal();
    let tracer = {
        let mut s = t.ptrace.state.lock();
        let Some(stop) = &mut s.stop else { return };
        stop.code = group.unwrap_or(sig::SIGTRAP) | event::STOP << 8;
        stop.info = Some(trap(stop.code, t.process.pid));
        stop.reported = false;
        stop.listening = false;
        s.tracer.upgrade()
    };
    if let Some(q) = tracer {
        notify(&q, t, code::CLD_TRAPPED, sig::SIGTRAP);
    }
}

/// Stops for an event, if the tracer asked for it; true if it did.
fn event_stop(t: &Arc<Thread>, which: i32, message: u64) -> bool {
    let wanted = {
        let mut s = t.ptrace.state.lock();
        let on = t.ptrace.flags() != 0 && s.options.ask_for(which);
        if on {
            s.message = message;
        }
        on
    };
    if wanted {
        let code = sig::SIGTRAP | which << 8;
        let signal = stop(t, code, Kind::Event, Some(trap(code, t.process.pid)));
        inject(t, signal);
    }
    wanted
}

/// A signal the tracer gave for a stop that was not for a signal.
fn inject(t: &Arc<Thread>, signal: Option<i32>) {
    if let Some(n) = signal.filter(|n| *n != 0) {
        // A thread that ends takes no more signals.
        let _ = signal::send_thread(t, SigInfo::kernel(n));
    }
}

/// Before the signal `info` acts on the current thread: what shall act instead, if anything.
pub fn stop_for_signal(t: &Arc<Thread>, info: SigInfo) -> Option<SigInfo> {
    if t.ptrace.flags() == 0 || info.signo == sig::SIGKILL {
        return Some(info);
    }
    let signo = stop(t, info.signo, Kind::Signal, Some(info))?;
    if t.exiting.load(Ordering::SeqCst) || signo == 0 {
        return None;
    }
    let changed = t.ptrace.state.lock().replaced.take();
    let info = match changed.unwrap_or(info) {
        i if i.signo == signo => i,
        _ => SigInfo::from_user(signo, 0, 0, 0, 0),
    };
    if t.signals.mask() & signal::bit(signo) != 0 && signo != sig::SIGSTOP {
        t.signals.with_queue(|q| q.push(info, usize::MAX));
        return None;
    }
    Some(info)
}

/// Stops the current thread if PTRACE_INTERRUPT, or the start of a new tracee, asks for it.
pub fn stop_for_interrupt(t: &Arc<Thread>) {
    let asked = t.ptrace.interrupt.load(Ordering::SeqCst) && t.ptrace.interrupt.swap(false, Ordering::SeqCst);
    if asked && t.ptrace.flags() != 0 {
        let group = t.process.signals.stop_signal().filter(|_| !t.ptrace.is_past_stop());
        let code = group.unwrap_or(sig::SIGTRAP) | event::STOP << 8;
        let kind = if group.is_some() { Kind::Group } else { Kind::Event };
        stop(t, code, kind, Some(trap(code, t.process.pid)));
        if kind == Kind::Group {
            t.ptrace.past_stop.store(true, Ordering::SeqCst);
        }
    }
}

/// The process of the current thread is stopped: a traced thread tells its tracer. False if it is not traced,
/// or has been let go on.
pub fn group_stop(t: &Arc<Thread>) -> bool {
    if t.ptrace.flags() == 0 {
        return false;
    }
    let Some(signo) = t.process.signals.stop_signal() else { return false };
    let seized = t.ptrace.state.lock().seized;
    let code = if seized { signo | event::STOP << 8 } else { signo };
    let info = seized.then(|| trap(code, t.process.pid));
    if stop(t, code, Kind::Group, info).is_some() && t.process.signals.is_stopped() {
        t.ptrace.past_stop.store(true, Ordering::SeqCst);
    }
    true
}

/// Entry of a system call of a traced thread. False: the tracer took the call away.
pub fn syscall_enter(t: &Arc<Thread>) -> bool {
    if t.ptrace.flags() & flag::SYSCALL == 0 {
        return true;
    }
    const ENOSYS: u64 = (-38i64).cast_unsigned();
    t.task.set_result(ENOSYS);
    syscall_stop(t, Kind::Enter);
    // SIGKILL in the stop: the call must not happen.
    !t.exiting.load(Ordering::SeqCst) && t.task.regs().orig_rax != u64::MAX
}

/// Exit of the system call `nr` of a traced thread; `exec` if it was a successful exec.
pub fn syscall_leave(t: &Arc<Thread>, nr: u64, exec: bool) {
    if t.exiting.load(Ordering::SeqCst) {
        return;
    }
    if exec {
        exec_event(t);
    }
    if t.ptrace.flags() & flag::SYSCALL != 0 {
        // exec and sigreturn leave registers without a call; tracers ask which call ended.
        let none = t.task.regs().orig_rax == u64::MAX;
        if none {
            set_orig(t, nr);
        }
        syscall_stop(t, Kind::Leave);
        if none {
            set_orig(t, u64::MAX);
        }
    }
    if t.ptrace.flags() & flag::STEP != 0 {
        signal::force(t, SigInfo { value: t.task.regs().rip, ..trap(TRAP_BRKPT, 0) });
    }
}

fn set_orig(t: &Thread, nr: u64) {
    let mut r = t.task.regs();
    r.orig_rax = nr;
    t.task.set_regs(&r);
}

fn syscall_stop(t: &Arc<Thread>, kind: Kind) {
    let good = t.ptrace.state.lock().options.contains(Options::SYSGOOD);
    let code = sig::SIGTRAP | if good { SYSGOOD_BIT } else { 0 };
    let signal = stop(t, code, kind, Some(trap(code, t.process.pid)));
    inject(t, signal);
}

fn exec_event(t: &Arc<Thread>) {
    if t.ptrace.flags() & flag::STEP != 0 {
        set_trap_flag(t, true);
    }
    if !event_stop(t, event::EXEC, t.tid() as u64) && !t.ptrace.state.lock().seized && t.ptrace.flags() != 0 {
        // What tracers without PTRACE_O_TRACEEXEC rely on.
        let _ = signal::send_thread(t, SigInfo::from_user(sig::SIGTRAP, 0, t.process.pid, 0, 0));
    }
}

/// Which event a clone of the current thread is, if its tracer wants to follow it.
fn clone_kind(t: &Thread, vfork: bool, exit_signal: i32) -> Option<i32> {
    if t.ptrace.flags() == 0 {
        return None;
    }
    let which = match (vfork, exit_signal) {
        (true, _) => event::VFORK,
        (false, sig::SIGCHLD) => event::FORK,
        _ => event::CLONE,
    };
    t.ptrace.state.lock().options.ask_for(which).then_some(which)
}

/// Before a new thread is seen by anybody: it gets its maker's tracer if that follows it, and will stop first.
pub fn inherit(t: &Arc<Thread>, child: &Arc<Thread>, vfork: bool, exit_signal: i32) {
    if clone_kind(t, vfork, exit_signal).is_none() {
        return;
    }
    let Some(tracer) = t.ptrace.tracer() else { return };
    let (options, seized) = {
        let s = t.ptrace.state.lock();
        (s.options, s.seized)
    };
    attach(&tracer, child, options, seized);
    if seized {
        child.ptrace.interrupt.store(true, Ordering::SeqCst);
    } else {
        let info = SigInfo::from_user(sig::SIGSTOP, 0, 0, 0, 0);
        child.signals.with_queue(|q| q.push(info, usize::MAX));
    }
    child.task.post_work();
}

/// After a clone: the event, if the tracer asked for it.
pub fn clone_event(t: &Arc<Thread>, vfork: bool, exit_signal: i32, child: i32) {
    if let Some(which) = clone_kind(t, vfork, exit_signal) {
        event_stop(t, which, child as u64);
    }
}

/// A filter of the current thread asks its tracer about a call; false if there is none that wants to know.
pub fn seccomp_event(t: &Arc<Thread>, datum: u32) -> bool {
    t.ptrace.flags() != 0 && event_stop(t, event::SECCOMP, datum.into())
}

/// The child of a vfork has let go of its parent's memory.
pub fn vfork_done(t: &Arc<Thread>, child: i32) {
    if t.ptrace.flags() != 0 {
        event_stop(t, event::VFORK_DONE, child as u64);
    }
}

/// The current thread is about to end; `status` is what it ends with. Not if it was killed: nobody may hold
/// that up.
pub fn exit_event(t: &Arc<Thread>, status: i32) {
    if t.ptrace.flags() != 0 && status != sig::SIGKILL {
        event_stop(t, event::EXIT, status as u64);
    }
}

/// A SIGTRAP of a thread that runs one instruction. True if it goes on: it is in code that stands for one
/// instruction of the program, the way into a patched system call.
pub fn single_step(t: &Thread, trapno: u64) -> bool {
    const DEBUG: u64 = 1;
    if t.ptrace.flags() & flag::STEP == 0 || trapno != DEBUG {
        return false;
    }
    t.space().mm.is_inside(t.task.regs().rip)
}

/// Before a handler's frame is built: it must not hold the tracer's trap flag.
pub fn before_frame(t: &Thread) {
    if t.ptrace.flags() & flag::STEP != 0 {
        set_trap_flag(t, false);
    }
}

/// A single step into a handler stops at its first instruction.
pub fn after_frame(t: &Arc<Thread>) {
    if t.ptrace.flags() & flag::STEP != 0 {
        let info = SigInfo::from_user(sig::SIGTRAP, 0, t.process.pid, 0, 0);
        let signal = stop(t, sig::SIGTRAP, Kind::Event, Some(info));
        inject(t, signal);
    }
}
