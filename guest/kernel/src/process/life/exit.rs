//! The end of threads and processes (`_exit(2)`), and the start of exec.
//!
//! A thread ends only in [`exit_work`], where its kernel stack is empty: everything else marks it `exiting`.

use crate::core::events::{Kind, record};
use crate::core::part::Part;
use crate::objects::vfs::FdTable;
use crate::process::life::ending::end_process;
use crate::process::task::SPARES;
use crate::process::task::TASKS;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use doppel_abi_machine::state;
use doppel_machine::{boot, cpu, host};

use crate::core::sched::{self, PollEvents, wait_until};
use crate::process::namespaces::{init, numbers};
use crate::process::signal::{self, SigInfo, code, sig};
use crate::process::task::Space;
use crate::process::task::{Process, Thread};
use crate::process::time::cpu as cpu_time;
use crate::process::{futex, ptrace};
use crate::{Errno, Result};

/// The descriptors of processes that have ended: none.
pub struct NoFiles(Arc<FdTable>);

/// The domain's.
pub static NO_FILES: Part<NoFiles> = Part::new();

impl Default for NoFiles {
    fn default() -> Self {
        Self(Arc::new(FdTable::new(0)))
    }
}

/// Work before a return to the program: reschedule, end, or act on signals.
pub fn exit_work(t: &Arc<Thread>) {
    if cpu::vcpu().need_resched.load(Ordering::SeqCst) != 0 {
        crate::process::task::yield_now();
    }
    if !t.exiting.load(Ordering::SeqCst) {
        signal::deliver(t);
    }
}

/// The thread that should end now, if it is this one. Called by the boot wiring with no references held.
pub fn end_if_exiting() {
    {
        let t = crate::process::task::current();
        if !t.exiting.load(Ordering::SeqCst) {
            return;
        }
        finish(&t);
    }
    sched::exit_current::<Thread>()
}

/// Everything the end of a thread does, except leaving its stack.
fn finish(t: &Arc<Thread>) {
    crate::process::coredump::stand_still(t);
    // A statement of its own: nobody may wait in a ptrace stop with the lock held.
    let status = group_status(&t.process);
    ptrace::exit_event(t, status);
    futex::exit_robust(t);
    if let Some(p) = t.take_clear_child_tid()
        && p.write(&0u32).is_ok()
    {
        futex::wake_addr(p, 1);
    }
    if let Some(v) = t.vfork_done.lock().take() {
        v.complete();
    }
    // Before others see that this thread has gone. The last one's table is closed with the process.
    drop(t.files.replace(None));
    let p = t.process.clone();
    TASKS.threads.lock().remove(&t.tid());
    cpu_time::thread_stops(t);
    let last = {
        let mut threads = p.threads.lock();
        threads.retain(|o| !Arc::ptr_eq(o, t));
        cpu_time::thread_ends(t);
        threads.is_empty()
    };
    // Before the process is a zombie: a tracer that has reaped it must not find a tracee any more.
    let tracer = ptrace::untrace(t);
    if last {
        init::end_namespace(&p);
        cpu_time::process_ends(&p, &t.space());
        *p.last_comm.lock() = *t.comm.lock();
        let resident = crate::memory::vm_stats(&t.space().mm).resident;
        p.max_rss.fetch_max(resident, Ordering::Relaxed);
        process_exit(&p);
        let status = group_status(&p);
        ptrace::thread_exit(t, tracer, Some(status));
    } else {
        ptrace::thread_exit(t, tracer, None);
        signal::retarget(&p);
        p.exit_wait.notify_all();
    }
    t.space().thread_removed();
}

/// The wait status with which a process ends.
fn group_status(p: &Process) -> i32 {
    p.group_exit.lock().unwrap_or(0)
}

/// The last thread has gone: release what the process holds, and become a zombie.
fn process_exit(p: &Arc<Process>) {
    let status = group_status(p);
    p.timers.clear();
    crate::process::async_io::process_leaves(p.pid);
    ptrace::tracer_exit(p);
    let files = core::mem::replace(&mut *p.files.lock(), NO_FILES.0.clone());
    drop(files);
    crate::objects::ipc::process_exit(p.pid);
    let space = p.space();
    if space.thread_count() == 1 {
        // Nobody else lives here. Whoever waits for this process may rely on its files being free.
        space.mm.release();
    }
    drop(space);
    crate::objects::storage::settle(false);
    signal::orphan_check(p);
    leave_session(p);
    // What ran no program, as a command of the kernel's own, is no news.
    if p.exe.lock().take().is_some() {
        match status & 0x7f {
            0 => record(Kind::ProcessExit, [(status >> 8 & 0xff) as u64, 0, 0]),
            signo => record(Kind::ProcessKilled, [signo as u64, 0, 0]),
        }
    }
    reparent_children(p);
    if p.pid == crate::process::task::init_pid() || p.pid == TASKS.foreground.load(Ordering::Relaxed) {
        crate::objects::rootfs::close_disks();
        crate::objects::block::sync();
        crate::objects::storage::end();
        crate::objects::rootfs::close_layer();
        end_domain(status);
    }
    let parent = p.parent();
    {
        // Whoever finds the zombie finds its parent's signal sent: a wait that returned before would see it arrive in the
        // middle of another call.
        let mut ended = p.exit_status.lock();
        *ended = Some(status);
        if let Some(parent) = &parent {
            signal_parent(p, parent, status);
        }
    }
    p.exit_wait.wake_all(PollEvents::IN);
    if let Some(n) = &p.numbers {
        n.namespace.tell_end();
    }
    let exec = p.exec.lock().take();
    if let Some(channel) = exec {
        // The host is its parent.
        TASKS.processes.lock().remove(&p.pid);
        channel.ended(status);
    } else if p.pid != crate::process::task::init_pid() && p.parent().is_none() {
        // The kernel started it, and waits for nothing.
        TASKS.processes.lock().remove(&p.pid);
    }
    if let Some(parent) = parent {
        wake_parent(p, &parent);
    }
}

/// Has the parent look; if it ignores SIGCHLD the child is reaped at once.
fn wake_parent(p: &Arc<Process>, parent: &Arc<Process>) {
    if p.exit_signal.load(Ordering::Relaxed) == sig::SIGCHLD && parent.signals.ignores_children() {
        super::wait::reap(parent, p);
    }
    parent.child_wait.notify_all();
}

/// Sends the parent the signal that its child's end is to have.
fn signal_parent(p: &Process, parent: &Arc<Process>, status: i32) {
    let signo = p.exit_signal.load(Ordering::Relaxed);
    // clone(2) takes numbers that are no signals; nobody is told then.
    if (1..=64).contains(&signo) {
        let (code, value) = if status & 0x7f == 0 {
            (code::CLD_EXITED, status >> 8 & 0xff)
        } else if status & 0x80 != 0 {
            (code::CLD_DUMPED, status & 0x7f)
        } else {
            (code::CLD_KILLED, status & 0x7f)
        };
        let uid = p.cred().ruid;
        let info = SigInfo { signo, code, pid: p.pid, uid, value: value as u64, trapno: 0, err: 0 };
        // The parent may be exiting itself; then nobody waits for this signal.
        let _ = signal::send_process(parent, info);
    }
}

fn reparent_children(p: &Arc<Process>) {
    let children: Vec<_> = core::mem::take(&mut *p.children.lock());
    if children.is_empty() {
        return;
    }
    let here = numbers::of(p);
    let mut heir = p.parent();
    while let Some(h) = &heir {
        if !Arc::ptr_eq(numbers::of(h), here) || numbers::is_init(h) {
            // Nobody outside the PID namespace inherits.
            heir = None;
            break;
        }
        if h.subreaper.load(Ordering::Relaxed) && !h.is_zombie() {
            break;
        }
        heir = h.parent();
    }
    let heir = heir.or_else(|| TASKS.process(here.init()).ok());
    let Some(heir) = heir.filter(|h| !Arc::ptr_eq(h, p)) else { return };
    for c in children {
        c.set_parent(&heir);
        heir.children.lock().push(c.clone());
        let death = c.pdeathsig.load(Ordering::Relaxed);
        if death != 0 {
            // The child may be a zombie already.
            let _ = signal::send_process(&c, SigInfo::kernel(death));
        }
        if c.is_zombie() {
            c.exit_signal.store(sig::SIGCHLD, Ordering::Relaxed);
            let status = c.exit_status.lock().unwrap_or(0);
            signal_parent(&c, &heir, status);
            wake_parent(&c, &heir);
        }
    }
}

/// The domain's first process (or a clone's command) has ended, or the host asked for the end.
pub fn end_domain(status: i32) {
    let v = boot::vregs();
    v.exit_status.store(status, Ordering::SeqCst);
    v.state.store(state::EXITED, Ordering::SeqCst);
    host::ring_doorbell();
    for p in TASKS.all_processes() {
        if p.pid != crate::process::task::init_pid() {
            end_process(&p, sig::SIGKILL);
        }
    }
}

/// Takes back a child whose host process could not be started.
pub fn abandon(child: &Arc<Thread>) {
    let p = &child.process;
    TASKS.threads.lock().remove(&child.tid());
    TASKS.processes.lock().remove(&p.pid);
    if let Some(parent) = p.parent() {
        parent.children.lock().retain(|c| !Arc::ptr_eq(c, p));
    }
    p.threads.lock().clear();
    child.space().discard_queue();
}

/// A space that exec waits for cannot be started: its process dies as by SIGKILL. Runs on PID 1.
pub fn end_space(space: &Arc<Space>) {
    for t in space.discard_queue() {
        t.process.group_exit.lock().get_or_insert(sig::SIGKILL);
        let p = t.process.clone();
        TASKS.threads.lock().remove(&t.tid());
        p.threads.lock().clear();
        if let Some(v) = t.vfork_done.lock().take() {
            v.complete();
        }
        process_exit(&p);
    }
}

/// The point of no return of exec: ends the other threads of the process and gives an empty memory map to
/// fill. Afterwards the current thread runs in the returned space. `EINTR`-like errors only before anything
/// has changed.
pub fn begin_exec(thread: &Arc<Thread>) -> Result<Arc<Space>> {
    let p = &thread.process;
    if p.group_exit.lock().is_some() {
        return Err(Errno::ERESTARTNOINTR);
    }
    for t in p.threads() {
        if !Arc::ptr_eq(&t, thread) {
            t.exiting.store(true, Ordering::SeqCst);
            t.notify();
        }
    }
    let alone = || (p.threads.lock().len() == 1).then_some(());
    while wait_until(&p.exit_wait, None, alone).is_err() {
        if thread.exiting.load(Ordering::SeqCst) {
            return Err(Errno::ERESTARTNOINTR);
        }
        // A signal waits; it is delivered after exec. Only the other threads' end counts here.
        crate::process::task::yield_now();
    }
    take_leader_id(thread);
    p.signals.exec();
    thread.signals.clear_altstack();
    p.timers.exec();
    crate::process::async_io::process_leaves(p.pid);
    let old = thread.space();
    let alone = old.thread_count() == 1;
    if alone && !old.mm.is_large() {
        old.mm.exec_reset()?;
        old.owner.store(p.pid, Ordering::Relaxed);
    } else {
        // Somebody else (a vfork parent) lives in this space, or clearing it would take longer than leaving it to
        // the host to take apart: go on in a clean one.
        let new = SPARES.take();
        cpu_time::leave_space(thread, &old, &new);
        thread.set_space(new.clone());
        *p.space.lock() = new.clone();
        sched::migrate(thread, &new);
        if alone {
            old.mm.release();
        }
        old.thread_removed();
    }
    if let Some(v) = thread.vfork_done.lock().take() {
        v.complete();
    }
    p.did_exec.store(true, Ordering::Relaxed);
    Ok(thread.space())
}

/// After exec the only thread has the process id as its thread id.
fn take_leader_id(t: &Arc<Thread>) {
    let (old, pid) = (t.tid(), t.process.pid);
    if old != pid {
        let mut threads = TASKS.threads.lock();
        threads.remove(&old);
        threads.insert(pid, t.clone());
        t.tid.store(pid, Ordering::SeqCst);
        drop(threads);
        // Signals may be meant for its old id.
        signal::retarget(&t.process);
    }
}

/// A session leader that exits hangs up its terminal (SIGHUP to the foreground group).
fn leave_session(p: &Arc<Process>) {
    let session = p.session();
    if session.sid == p.pid {
        let tty = session.tty.lock().take();
        if let Some(tty) = tty {
            tty.leader_exits();
        }
    }
}
