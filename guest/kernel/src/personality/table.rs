//! The table of all system calls, put together from the families.

use doppel_abi_linux::syscalls::{NAMES, nr};

use alloc::collections::BTreeSet;
use alloc::format;

use doppel_machine::cpu::{CurrentRef, count_call, current_as};
use doppel_machine::sync::SpinLock;

use crate::core::events::{Kind, record_text};
use crate::core::log;
use crate::core::part::Part;
use crate::personality::async_io::uring::calls::MAKE;
use crate::personality::async_io::uring::steps::go_on_without_program;
use crate::personality::{Args, Syscall, trace};
use crate::process::async_io::uring::GO_ON;
use crate::process::task::Thread;
use crate::process::{ptrace, seccomp};
use crate::{Errno, Result, kernel};

/// The families, in the order of docs/COMPATIBILITY.md.
#[rustfmt::skip]
pub const FAMILIES: &[(&str, &[Syscall])] = &[
    ("Opening files", crate::personality::files::open::CALLS),
    ("Reading and writing", crate::personality::files::rw::CALLS),
    ("File attributes", crate::personality::files::stat::CALLS),
    ("Directories", crate::personality::files::dir::CALLS),
    ("Names", crate::personality::files::names::CALLS),
    ("File handles", crate::personality::files::handle::CALLS),
    ("Changing attributes", crate::personality::files::attr::CALLS),
    ("Descriptor control", crate::personality::files::fcntl::CALLS),
    ("Extended attributes", crate::personality::files::xattr::CALLS),
    ("Mounts", crate::personality::files::mount::CALLS),
    ("Randomness", crate::personality::files::random::CALLS),
    ("Process creation", crate::personality::tasks::clone::CALLS),
    ("Process end", crate::personality::tasks::exit::CALLS),
    ("Waiting", crate::personality::tasks::wait::CALLS),
    ("Process ids", crate::personality::tasks::ids::CALLS),
    ("Executing programs", crate::personality::tasks::exec::CALLS),
    ("Memory maps", crate::personality::memory::map::CALLS),
    ("Memory", crate::personality::memory::ranges::CALLS),
    ("Memory of other processes", crate::personality::memory::remote::CALLS),
    ("Memory policy", crate::personality::memory::numa::CALLS),
    ("Futexes", crate::personality::futex::calls::CALLS),
    ("Signals", crate::personality::signals::actions::CALLS),
    ("Sending signals", crate::personality::signals::kill::CALLS),
    ("Clocks", crate::personality::time::clocks::CALLS),
    ("Sleeping", crate::personality::time::sleep::CALLS),
    ("Interval timers", crate::personality::time::itimer::CALLS),
    ("POSIX timers", crate::personality::time::posix::CALLS),
    ("CPU time", crate::personality::time::usage::CALLS),
    ("Identity", crate::personality::tasks::cred::CALLS),
    ("Limits", crate::personality::tasks::limits::CALLS),
    ("Scheduling attributes", crate::personality::tasks::sched::CALLS),
    ("Process attributes", crate::personality::tasks::prctl::CALLS),
    ("Tracing", crate::personality::tasks::ptrace::CALLS),
    ("System information", crate::personality::tasks::sys_info::CALLS),
    ("Namespaces", crate::personality::tasks::namespaces::CALLS),
    ("Never offered", crate::personality::tasks::refused::CALLS),
    ("Pipes", crate::personality::ipc::pipe::CALLS),
    ("Moving data", crate::personality::ipc::splice::CALLS),
    ("Event counters", crate::personality::events::eventfd::CALLS),
    ("Process descriptors", crate::personality::events::pidfd::CALLS),
    ("Timer descriptors", crate::personality::events::timerfd::CALLS),
    ("Signal descriptors", crate::personality::events::signalfd::CALLS),
    ("memfd", crate::personality::ipc::memfd::CALLS),
    ("fanotify", crate::personality::events::fanotify::CALLS),
    ("inotify", crate::personality::events::inotify::CALLS),
    ("Shared memory", crate::personality::ipc::shm::CALLS),
    ("Semaphores", crate::personality::ipc::sem::CALLS),
    ("Message queues", crate::personality::ipc::msg::CALLS),
    ("POSIX message queues", crate::personality::ipc::mqueue::CALLS),
    ("Keys", crate::personality::keys::CALLS),
    ("poll", crate::personality::events::poll::CALLS),
    ("select", crate::personality::events::select::CALLS),
    ("epoll", crate::personality::events::epoll::CALLS),
    ("Asynchronous I/O", crate::personality::async_io::aio::CALLS),
    ("io_uring", crate::personality::async_io::uring::CALLS),
    ("Sockets", crate::personality::net::sockets::CALLS),
];

/// Numbers below this have a slot.
const SLOTS: usize = 512;

/// The families' rows by number; a number twice is a compile-time error.
static TABLE: [Option<&'static Syscall>; SLOTS] = build();

const fn build() -> [Option<&'static Syscall>; SLOTS] {
    let mut t = [None; SLOTS];
    let mut f = 0;
    while f < FAMILIES.len() {
        let calls = FAMILIES[f].1;
        let mut i = 0;
        while i < calls.len() {
            let nr = calls[i].nr as usize;
            assert!(t[nr].is_none(), "system call listed twice");
            t[nr] = Some(&calls[i]);
            i += 1;
        }
        f += 1;
    }
    t
}

/// A function that serves a call.
type Handler = fn(&Args) -> Result<u64>;

/// The handlers alone, for calls of threads that nobody watches; without those that replace registers.
static HANDLERS: [Option<Handler>; SLOTS] = handlers();

const fn handlers() -> [Option<Handler>; SLOTS] {
    let mut t = [None; SLOTS];
    let mut i = 0;
    while i < SLOTS {
        t[i] = match TABLE[i] {
            Some(s) if !s.sets_registers() => Some(s.handler),
            _ => None,
        };
        i += 1;
    }
    t
}

/// Gives the lower parts of the personality what they ask of the table; once, at boot.
pub fn offer() {
    MAKE.set(make);
    GO_ON.set(go_on_without_program);
}

/// The name of a number, as in `<sys/syscall.h>`.
pub fn name(nr: u64) -> Option<&'static str> {
    NAMES.iter().find(|(n, _)| u64::from(*n) == nr).map(|(_, s)| *s)
}

/// Numbers already reported as unimplemented.
#[derive(Default)]
pub(crate) struct Reported(SpinLock<BTreeSet<u64>>);

/// The domain's.
pub(crate) static REPORTED: Part<Reported> = Part::new();

/// Says once per number that a call is not implemented.
fn log_unimplemented(nr: u64) {
    // Bounded: a program can make up as many numbers as it likes.
    let known = name(nr);
    if known.is_some() && REPORTED.0.lock().insert(nr) {
        log::log(&format!("doppel: {} is not implemented (ENOSYS)\n", known.unwrap_or("?")));
    }
}

/// Serves the system call in the current thread's registers.
///
/// This is on the way of every call, so nothing is done here that a plain call does not need.
pub extern "C" fn dispatch() {
    if count_call() {
        return crate::process::time::cpu::timed(serve_call);
    }
    serve_call();
}

#[inline(always)]
fn serve_call() {
    let Some(thread) = current_as::<Thread>() else { unreachable!("idle vCPUs make no system calls") };
    if !thread.is_watched() {
        let (nr, raw) = thread.task.syscall_args();
        if let Some(Some(handler)) = HANDLERS.get(nr as usize) {
            let args = Args { thread, raw };
            return match handler(&args) {
                Ok(v) => args.thread.task.set_result(v),
                Err(e) => failed(&args, *handler, e),
            };
        }
    }
    dispatch_slowly(thread);
}

/// Makes a call for the current thread. See [`MAKE`].
fn make(nr: u32, args: &Args) -> Result<u64> {
    let Some(Some(handler)) = HANDLERS.get(nr as usize) else { return Err(Errno::ENOSYS) };
    match handler(args) {
        Err(Errno::EFAULT) => again(args, *handler),
        r => r,
    }
}

/// A call met memory that was not there: makes it again as long as that can be mended.
#[cold]
fn again(args: &Args, handler: Handler) -> Result<u64> {
    while crate::memory::mend_missed(&args.thread.space().mm) {
        let r = handler(args);
        if r != Err(Errno::EFAULT) {
            return r;
        }
    }
    Err(Errno::EFAULT)
}

/// A call that failed, perhaps not for good.
#[cold]
#[inline(never)]
fn failed(args: &Args, handler: Handler, e: Errno) {
    match if e == Errno::EFAULT { again(args, handler) } else { Err(e) } {
        Ok(v) => args.thread.task.set_result(v),
        Err(e) => fail(&args.thread, e),
    }
}

/// The result of a failed call.
fn fail(thread: &Thread, e: Errno) {
    if e.0 >= Errno::ERESTARTSYS.0 {
        // The signal code decides between restart and EINTR on the way out.
        thread.task.post_work();
    }
    thread.task.set_result((-i64::from(e.0)).cast_unsigned());
}

/// Calls that are watched (traced, logged), replace the caller's registers or do not exist.
#[inline(never)]
fn dispatch_slowly(thread: CurrentRef<Thread>) {
    let traced = thread.ptrace.flags() != 0;
    if traced && !ptrace::syscall_enter(&thread) {
        return ptrace::syscall_leave(&thread, u64::MAX, false);
    }
    if thread.seccomp.active() && !seccomp::enter(&thread) {
        if traced {
            ptrace::syscall_leave(&thread, u64::MAX, false);
        }
        return;
    }
    let (nr, raw) = thread.task.syscall_args();
    let args = Args { thread, raw };
    let entry = usize::try_from(nr).ok().and_then(|n| TABLE.get(n).copied().flatten());
    let result = if kernel().trace { shown(&args, nr, entry) } else { serve(&args, nr, entry) };
    let own_registers = entry.is_some_and(Syscall::sets_registers);
    match result {
        Ok(_) if own_registers => {
            if traced {
                ptrace::syscall_leave(&args.thread, nr, nr != u64::from(nr::RT_SIGRETURN));
            }
            return;
        }
        Ok(v) => args.thread.task.set_result(v),
        Err(e) => fail(&args.thread, e),
    }
    if traced {
        ptrace::syscall_leave(&args.thread, nr, false);
    }
}

fn serve(args: &Args, nr: u64, entry: Option<&Syscall>) -> Result<u64> {
    match entry {
        Some(s) => match (s.handler)(args) {
            Err(Errno::EFAULT) if !s.sets_registers() => again(args, s.handler),
            r => r,
        },
        None => {
            record_text(Kind::SyscallMissing, [nr, 0, 0], name(nr).unwrap_or("unknown").as_bytes());
            log_unimplemented(nr);
            Err(Errno::ENOSYS)
        }
    }
}

/// Serves and prints the call. exit, exec and sigreturn do not come back to their caller: shown before.
#[cold]
fn shown(args: &Args, nr: u64, entry: Option<&Syscall>) -> Result<u64> {
    let line = trace::enter(args, nr, entry);
    let result = serve(args, nr, entry);
    trace::leave(line, &result);
    result
}
