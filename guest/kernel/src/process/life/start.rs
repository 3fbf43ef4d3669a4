//! Processes without a parent, faults, and the first moments of a thread.

use crate::core::sched;
use crate::process::task::TASKS;
use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use core::sync::atomic::Ordering;

use doppel_machine::boot::BootData;
use doppel_machine::sync::SpinLock;
use doppel_machine::task::UserContext;
use doppel_machine::trap::FaultInfo;
use doppel_machine::user::UserPtr;
use doppel_machine::xstate::XSave;

use crate::memory::Mm;
use crate::objects::lookup::context::FsContext;
use crate::objects::vfs::FdTable;
use crate::process::signal::{self, ProcessSignals, SigInfo, ThreadSignals};
use crate::process::task::Space;
use crate::process::task::{Cred, Process, Resource, Rlimit, Rlimits, Session, Thread, current};
use crate::{Result, memory};

/// Limits a domain starts with, as Docker's defaults.
fn default_rlimits() -> Rlimits {
    let mut l = Rlimits::NONE;
    l[Resource::Stack].cur = 8 << 20;
    l[Resource::Core].cur = 0;
    l[Resource::Nofile] = Rlimit { cur: 1 << 20, max: 1 << 20 };
    l[Resource::Nproc] = Rlimit { cur: 30_000, max: 30_000 };
    l[Resource::Memlock] = Rlimit { cur: 8 << 20, max: 8 << 20 };
    l[Resource::Sigpending] = Rlimit { cur: 30_000, max: 30_000 };
    l[Resource::Msgqueue] = Rlimit { cur: 819_200, max: 819_200 };
    l[Resource::Nice] = Rlimit { cur: 0, max: 0 };
    l[Resource::Rtprio] = Rlimit { cur: 0, max: 0 };
    l
}

/// Who the host wants a program to be.
pub fn identity(data: &BootData) -> Cred {
    Cred { groups: data.groups.clone(), ..Cred::new(data.args.uid, data.args.gid) }
}

/// Starts the program of a session, which has no parent in the domain: `open` gives the process its descriptors,
/// `run` is the first thing its thread does.
pub fn start_session(
    cred: Cred,
    open: impl FnOnce(&Arc<Process>) -> Result<()>,
    run: impl FnOnce(&Arc<Thread>) + Send + Sync + 'static,
) -> Result<i32> {
    let pid = TASKS.alloc_pid()?;
    start_process(pid, None, cred, open, run).map(|()| pid)
}

/// Makes a process and starts its space.
pub(crate) fn start_process(
    pid: i32,
    parent: Option<Arc<Process>>,
    cred: Cred,
    open: impl FnOnce(&Arc<Process>) -> Result<()>,
    run: impl FnOnce(&Arc<Thread>) + Send + Sync + 'static,
) -> Result<()> {
    let space = Space::new(Mm::default());
    space.owner.store(pid, Ordering::Relaxed);
    let limits = default_rlimits();
    let session = Arc::new(Session { sid: pid, numbers: None, tty: SpinLock::new(None) });
    let process = Process::new(
        pid,
        None,
        parent.as_ref().map_or_else(Weak::new, Arc::downgrade),
        pid,
        None,
        session,
        space.clone(),
        Arc::new(FdTable::new(limits[Resource::Nofile].cur)),
        Arc::new(FsContext::default()),
        Arc::new(cred),
        ProcessSignals::default(),
        limits,
    );
    let thread = Thread::new(
        pid,
        None,
        process.clone(),
        process.cred(),
        crate::process::namespaces::FIRST.0.clone(),
        Some(process.files()),
        space.clone(),
        UserContext::default(),
        XSave::initial(),
        [0; 16],
        ThreadSignals::default(),
    );
    open(&process)?;
    process.threads.lock().push(thread.clone());
    TASKS.threads.lock().insert(pid, thread.clone());
    TASKS.processes.lock().insert(pid, process.clone());
    if let Some(parent) = parent {
        process.exit_signal.store(signal::sig::SIGCHLD, Ordering::Relaxed);
        parent.children.lock().push(process);
    }
    *thread.start.lock() = Some(Box::new(run));
    space.thread_added();
    space.enqueue(thread.clone());
    super::clone::start_space(&space, true).inspect_err(|_| super::exit::abandon(&thread))
}

/// First code of a guest thread, before it enters its program.
pub fn thread_start() {
    if run_hook() {
        // A worker is done. Nothing is owned here: this stack is never unwound.
        sched::exit_current::<Thread>();
    }
}

/// Runs what the thread does first; true for a worker, which has then left its space.
fn run_hook() -> bool {
    let t = current();
    let hook = t.start.lock().take();
    if let Some(f) = hook {
        f(&t);
    }
    let child_tid = t.set_child_tid.swap(0, Ordering::Relaxed);
    if child_tid != 0 {
        // As on Linux, a bad address is ignored here.
        let _ = UserPtr(child_tid).write(&t.shown_tid());
    }
    if t.is_worker() {
        t.space().thread_removed();
    }
    t.is_worker()
}

/// An `int3` of the current thread. True if it goes on: it stood behind a system call that is a jump by now.
fn goes_on(t: &Thread, trapno: u64) -> bool {
    const BREAKPOINT: u64 = 3;
    let mut regs = t.task.regs();
    // The program counter is behind the instruction.
    match t.space().mm.behind_call(regs.rip.wrapping_sub(1)) {
        Some(pc) if trapno == BREAKPOINT => {
            regs.rip = pc;
            t.task.set_regs(&regs);
            true
        }
        _ => false,
    }
}

/// The program of the current thread took an exception.
pub fn fault(info: FaultInfo) {
    let t = current();
    if info.signo == signal::sig::SIGTRAP
        && (crate::process::ptrace::single_step(&t, info.trapno) || goes_on(&t, info.trapno))
    {
        return;
    }
    let (signo, code, addr) = match memory::handle_fault(&t.space().mm, &info) {
        memory::FaultOutcome::Retry => return,
        memory::FaultOutcome::Signal { signo, code, addr } => (signo, code, addr),
    };
    let info = SigInfo { signo, code, pid: 0, uid: 0, value: addr, trapno: info.trapno, err: info.err };
    signal::force(&t, info);
}
