//! The first program of the domain, faults, and the first moments of a thread.

use crate::console;
use crate::sched;
use crate::task::TASKS;
use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use core::sync::atomic::Ordering;

use doppel_abi_machine::boot_flags;
use doppel_machine::boot::BootData;
use doppel_machine::sync::SpinLock;
use doppel_machine::task::UserContext;
use doppel_machine::trap::FaultInfo;
use doppel_machine::user::UserPtr;
use doppel_machine::xstate::XSave;

use super::{Cred, Process, Rlimit, Session, Thread, current, rlimit};
use crate::fs::caller::Caller;
use crate::fs::path::FsContext;
use crate::fs::{FdTable, names};
use crate::mm::Mm;
use crate::signal::{self, ProcessSignals, SigInfo, ThreadSignals};
use crate::task::Space;
use crate::{Errno, Result, log, mm};

/// Pid of the domain's first guest process.
pub const fn init_pid() -> i32 {
    1
}

/// Limits a domain starts with, as Docker's defaults.
fn default_rlimits() -> [Rlimit; rlimit::COUNT] {
    let mut l = [Rlimit { cur: rlimit::INFINITY, max: rlimit::INFINITY }; rlimit::COUNT];
    l[rlimit::STACK].cur = 8 << 20;
    l[rlimit::CORE].cur = 0;
    l[rlimit::NOFILE] = Rlimit { cur: 1 << 20, max: 1 << 20 };
    l[rlimit::NPROC] = Rlimit { cur: 30_000, max: 30_000 };
    l[rlimit::MEMLOCK] = Rlimit { cur: 8 << 20, max: 8 << 20 };
    l[rlimit::SIGPENDING] = Rlimit { cur: 30_000, max: 30_000 };
    l[rlimit::MSGQUEUE] = Rlimit { cur: 819_200, max: 819_200 };
    l[rlimit::NICE] = Rlimit { cur: 0, max: 0 };
    l[rlimit::RTPRIO] = Rlimit { cur: 0, max: 0 };
    l
}

/// What can be done before it is known what the first program is.
pub fn prepare() {
    crate::fs::init();
    crate::tty::init();
}

/// Makes guest pid 1 and starts its space; the program itself is loaded by its thread.
pub fn start_init(data: BootData) {
    crate::net::remote::files::write();
    let pid = TASKS.alloc_pid().unwrap_or(0);
    assert!(pid == init_pid(), "guest pid 1 must be the first");
    let tty = data.args.flags & boot_flags::TTY != 0;
    must_start(start_on_console(pid, None, data, tty));
}

/// In a clone: starts the command it was given beside the processes that were frozen, as a child of guest pid 1.
/// The domain ends with it.
pub fn start_command(data: BootData) {
    let Ok(pid) = TASKS.alloc_pid() else {
        log::log("doppel: no process number is left for the command\n");
        super::end_domain(126 << 8);
        return;
    };
    TASKS.foreground.store(pid, Ordering::Relaxed);
    let parent = TASKS.process(init_pid()).ok();
    must_start(start_on_console(pid, parent, data, false));
}

fn must_start(started: Result<()>) {
    if let Err(e) = started {
        panic!("the host starts no process: {e:?}");
    }
}

/// Starts a process with the console as its standard streams.
fn start_on_console(pid: i32, parent: Option<Arc<Process>>, data: BootData, tty: bool) -> Result<()> {
    let winsize = data.args.winsize;
    let open = |p: &Arc<Process>| {
        console::open_standard(p, tty, winsize);
        Ok(())
    };
    start_process(pid, parent, identity(&data), open, move |t| load_first_program(t, &data))
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
fn start_process(
    pid: i32,
    parent: Option<Arc<Process>>,
    cred: Cred,
    open: impl FnOnce(&Arc<Process>) -> Result<()>,
    run: impl FnOnce(&Arc<Thread>) + Send + Sync + 'static,
) -> Result<()> {
    let space = Space::new(Mm::default());
    space.owner.store(pid, Ordering::Relaxed);
    let limits = default_rlimits();
    let session = Arc::new(Session { sid: pid, tty: SpinLock::new(None) });
    let process = Process::new(
        pid,
        parent.as_ref().map_or_else(Weak::new, Arc::downgrade),
        pid,
        session,
        space.clone(),
        Arc::new(FdTable::new(limits[rlimit::NOFILE].cur)),
        Arc::new(FsContext::default()),
        Arc::new(cred),
        ProcessSignals::default(),
        limits,
    );
    let thread = Thread::new(
        pid,
        process.clone(),
        process.cred(),
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

fn load_first_program(t: &Arc<Thread>, data: &BootData) {
    if let Err(e) = make_working_directory(t, data) {
        give_up(t, "start in", &data.cwd, e, 126);
    } else if let Err(e) = super::exec::load_program(t, data) {
        let name = data.argv.first().map_or(&[][..], |a| a);
        give_up(t, "run", name, e, if e == Errno::ENOENT { 127 } else { 126 });
    }
}

fn give_up(t: &Arc<Thread>, what: &str, name: &[u8], e: Errno, code: i32) {
    let name = alloc::string::String::from_utf8_lossy(name);
    log::log(&alloc::format!("doppel: cannot {what} {name}: {}\n", e.words()));
    super::exit::do_group_exit(t, code << 8);
}

/// Makes the directory in which the first program starts if it is missing, as Docker does: as root, whoever the
/// program runs as.
fn make_working_directory(t: &Arc<Thread>, data: &BootData) -> Result<()> {
    let caller = Caller::with_cred(&t.process, Arc::new(Cred::new(0, 0)));
    names::make_dirs(&caller, &data.cwd, 0o755).map(drop)
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
        let _ = UserPtr(child_tid).write(&t.tid());
    }
    if t.is_worker() {
        t.space().thread_removed();
    }
    t.is_worker()
}

/// The program of the current thread took an exception.
pub fn fault(info: FaultInfo) {
    let t = current();
    if info.signo == signal::sig::SIGTRAP && super::ptrace::single_step(&t, info.trapno) {
        return;
    }
    let (signo, code, addr) = match mm::handle_fault(&t, &info) {
        mm::FaultOutcome::Retry => return,
        mm::FaultOutcome::Signal { signo, code, addr } => (signo, code, addr),
    };
    let info = SigInfo { signo, code, pid: 0, uid: 0, value: addr, trapno: info.trapno, err: info.err };
    signal::force(&t, info);
}
