//! The first program of the domain, faults, and the first moments of a thread.

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
use crate::fs::FdTable;
use crate::fs::path::FsContext;
use crate::mm::Mm;
use crate::sched::Space;
use crate::signal::{self, ProcessSignals, SigInfo, ThreadSignals};
use crate::{console, kernel, mm};

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

/// Makes guest pid 1 and starts its space; the program itself is loaded by its thread.
pub fn start_init(data: BootData) {
    let pid = kernel().alloc_pid().unwrap_or(0);
    assert!(pid == init_pid(), "guest pid 1 must be the first");
    crate::fs::init();
    crate::tty::init();
    let space = Space::new(Mm::default());
    let limits = default_rlimits();
    let session = Arc::new(Session { sid: pid, tty: SpinLock::new(None) });
    let process = Process::new(
        pid,
        Weak::new(),
        pid,
        session,
        space.clone(),
        Arc::new(FdTable::new(limits[rlimit::NOFILE].cur)),
        Arc::new(FsContext::default()),
        Arc::new(Cred::new(data.args.uid, data.args.gid)),
        ProcessSignals::default(),
        limits,
    );
    let thread = Thread::new(
        pid,
        process.clone(),
        space.clone(),
        UserContext::default(),
        XSave::initial(),
        [0; 16],
        ThreadSignals::default(),
    );
    console::open_standard(&process, data.args.flags & boot_flags::TTY != 0, data.args.winsize);
    process.threads.lock().push(thread.clone());
    kernel().threads.lock().insert(pid, thread.clone());
    kernel().processes.lock().insert(pid, process);
    *thread.start.lock() = Some(Box::new(move |t: &Arc<Thread>| load_first_program(t, &data)));
    space.thread_added();
    space.enqueue(thread);
    if let Err(e) = super::clone::start_space(&space, true) {
        panic!("the host starts no process: {e:?}");
    }
}

fn load_first_program(t: &Arc<Thread>, data: &BootData) {
    if let Err(e) = super::exec::load_init(t, data) {
        let name = alloc::string::String::from_utf8_lossy(data.argv.first().map_or(&[][..], |a| a));
        let code = if e == crate::Errno::ENOENT { 127 } else { 126 };
        console::log(&alloc::format!("doppel: cannot run {name}: {}\n", e.name()));
        super::exit::do_group_exit(t, code << 8);
    }
}

/// First code of a guest thread, before it enters its program.
pub fn thread_start() {
    if run_hook() {
        // A worker is done. Nothing is owned here: this stack is never unwound.
        crate::sched::exit_current();
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
