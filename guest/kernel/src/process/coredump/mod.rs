//! Core files (`core(5)`): what a program leaves of itself when a signal ends it.
//!
//! Key types: [`Settings`] (the domain's `core_pattern`), [`Dump`] (embedded in `Process`). The thread that got the signal
//! writes the file, in its own space and with its own identity, while all other threads of its process wait in
//! [`stand_still`] on their way out. name.rs finds the file's name, helper.rs starts the program that gets it instead, notes.rs and memory.rs make its two parts.

mod helper;
mod memory;
pub(crate) mod name;
mod notes;
pub mod state;

use crate::core::events::{Kind, record};
use crate::objects::lookup::caller::Caller;
use crate::objects::lookup::caller::at;
use crate::process::coredump::name::SETTINGS;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
pub use state::Dump;

use super::task::{Process, Resource, Thread};
use crate::core::sched::wait_until_uninterruptible;
use crate::memory::PAGE;
use crate::objects::ipc::pipe::PipeEnd;
use crate::objects::vfs::flags::OpenFlags;
use crate::objects::vfs::inode::SetAttr;
use crate::objects::vfs::{File, FileType, Input};
use crate::process::signal::{self, SigInfo, SigSet, bit, sig};
use crate::{Errno, Result, kernel};

use name::Target;

pub use name::Settings;

/// Signals whose default action leaves a core file.
const CORE_SIGNALS: SigSet = bit(sig::SIGQUIT)
    | bit(sig::SIGILL)
    | bit(sig::SIGTRAP)
    | bit(sig::SIGABRT)
    | bit(sig::SIGBUS)
    | bit(sig::SIGFPE)
    | bit(sig::SIGSEGV)
    | bit(sig::SIGXCPU)
    | bit(sig::SIGXFSZ)
    | bit(sig::SIGSYS);

/// What a wait status has besides the signal if a core file was left.
const DUMPED: i32 = 0x80;

impl Dump {
    /// Whether a core file is being written (`CoreDumping` in /proc/PID/status).
    pub fn is_under_way(&self) -> bool {
        self.under_way.load(Ordering::SeqCst)
    }
}

/// Ends the process of `t`, the current thread, as the default action of the signal `info` says: with a core file, if it
/// leaves one. Each thread ends on its way back to its program.
pub fn end_by_signal(t: &Arc<Thread>, info: &SigInfo) {
    let p = &t.process;
    tell(t, info);
    if !wanted(p, info.signo) {
        return signal::terminate(p, info.signo);
    }
    {
        let mut group = p.group_exit.lock();
        if group.is_some() {
            // It ends already, and this thread with it.
            return;
        }
        *group = Some(info.signo);
        p.dump.under_way.store(true, Ordering::SeqCst);
    }
    for other in p.threads() {
        if !Arc::ptr_eq(&other, t) {
            other.exiting.store(true, Ordering::SeqCst);
            other.notify();
        }
    }
    wait_until_uninterruptible(&p.exit_wait, || all_still(p, t).then_some(()));
    show_registers(t);
    match write(t, info) {
        Ok(()) => {
            record(Kind::CoreDumped, [0; 3]);
            *p.group_exit.lock() = Some(info.signo | DUMPED);
        }
        Err(e) => {
            record(Kind::CoreFailed, [u64::from(e.0), 0, 0]);
            say(p, "no core file", e);
        }
    }
    p.dump.under_way.store(false, Ordering::SeqCst);
    p.exit_wait.notify_all();
    t.exiting.store(true, Ordering::SeqCst);
}

/// Says what ends it. Faults have an address, and all of them come by an exception.
fn tell(t: &Thread, info: &SigInfo) {
    let signo = info.signo as u64;
    if info.trapno != 0 || info.err != 0 {
        record(Kind::FaultKill, [signo, info.value, t.task.regs().rip]);
    } else {
        record(Kind::SignalKill, [signo, i64::from(info.code).cast_unsigned(), info.pid as u64]);
    }
}

/// Whether a core file is to be written at all.
fn wanted(p: &Process, signo: i32) -> bool {
    CORE_SIGNALS & bit(signo) != 0
        && p.dumpable.load(Ordering::Relaxed) == 1
        && match SETTINGS.get().pattern().first() {
            None => false,
            // Programs get all of it, but of none that asks for one byte: so helpers leave no core.
            Some(b'|') => p.rlimit(Resource::Core) != 1,
            Some(_) => p.rlimit(Resource::Core) >= PAGE,
        }
}

/// Tells users of `--trace` what became of the core file.
fn say(p: &Process, what: &str, e: Errno) {
    if kernel().trace {
        crate::core::log::log(&alloc::format!("[{}] {what}: {}\n", p.pid, e.name()));
    }
}

fn all_still(p: &Process, writer: &Arc<Thread>) -> bool {
    let still = p.dump.still.lock().clone();
    p.threads.lock().iter().all(|t| Arc::ptr_eq(t, writer) || still.contains(&t.tid()))
}

/// A thread that ends waits here while another one of its process writes a core file.
pub fn stand_still(t: &Arc<Thread>) {
    let p = &t.process;
    if !p.dump.is_under_way() {
        return;
    }
    show_registers(t);
    p.dump.still.lock().push(t.tid());
    p.exit_wait.notify_all();
    wait_until_uninterruptible(&p.exit_wait, || (!p.dump.is_under_way()).then_some(()));
}

/// Puts all registers of the current thread where others can read them.
fn show_registers(t: &Thread) {
    t.task.expose_xstate();
    t.task.set_fs_base(t.task.fs_base());
}

/// Writes the core file of the current thread's process.
fn write(t: &Arc<Thread>, info: &SigInfo) -> Result<()> {
    match name::target(t, info.signo) {
        Target::File(name) => {
            let file = make_file(t, &name)?;
            fill(t, info, &file, t.process.rlimit(Resource::Core));
            Ok(())
        }
        Target::Program(argv) => pipe(t, info, argv),
    }
}

/// Gives the core to a program.
fn pipe(t: &Arc<Thread>, info: &SigInfo, argv: Vec<Vec<u8>>) -> Result<()> {
    let settings = SETTINGS.get();
    let limit = settings.pipe_limit.load(Ordering::Relaxed);
    let others = settings.pipes.fetch_add(1, Ordering::SeqCst);
    let result = if limit != 0 && others >= limit { Err(Errno::EAGAIN) } else { helper::start(argv) };
    let result = result.map(|file| {
        fill(t, info, &file, u64::MAX);
        file.fd_removed();
        if limit != 0 {
            wait_for_reader(t, &file);
        }
    });
    settings.pipes.fetch_sub(1, Ordering::SeqCst);
    result
}

/// Waits until nobody reads from a pipe, which has been closed, any more: so that the process is still there for who does.
fn wait_for_reader(t: &Thread, file: &File) {
    let Some(end) = file.downcast::<PipeEnd>() else { return };
    wait_until_uninterruptible(end.pipe().writable(), || {
        (!end.pipe().has_reader() || t.exiting.load(Ordering::SeqCst)).then_some(())
    });
}

/// Writes a core.
fn fill(t: &Arc<Thread>, info: &SigInfo, file: &Arc<File>, limit: u64) {
    let p = &t.process;
    let mut out = Writer { t, file, at: 0, written: 0, limit };
    let segments = memory::segments(t);
    let notes = notes::all(t, info, &segments);
    // What does not fit under the limit, or into the file system, is left out; the file is a core file all the same.
    if let Err(e) = memory::write(&mut out, &segments, &notes) {
        say(p, "core file cut short", e);
    }
}

/// Makes the file, and nothing else than a new file.
fn make_file(t: &Arc<Thread>, name: &[u8]) -> Result<Arc<File>> {
    let caller = Caller::new(&**t);
    let base = caller.base(at::FDCWD, name)?;
    if let Ok((dir, last, _)) = caller.walker.parent(&base, name) {
        // If an old one cannot be removed, the new one cannot be made.
        let _ = crate::objects::lookup::names::remove(&caller, &dir, &last, false);
    }
    let flags =
        OpenFlags::CREAT | OpenFlags::WRONLY | OpenFlags::NOFOLLOW | OpenFlags::LARGEFILE | OpenFlags::EXCL;
    let file = crate::objects::lookup::open::open(&caller, &caller.walker, &base, name, flags, 0o600)?;
    match &file.inode {
        Some(i) if i.kind() == FileType::Regular => Ok(file),
        _ => Err(Errno::EACCES),
    }
}

/// Where a core file is written to.
struct Writer<'a> {
    t: &'a Arc<Thread>,
    file: &'a Arc<File>,
    at: u64,
    /// Bytes written so far; holes do not count.
    written: u64,
    limit: u64,
}

impl Writer<'_> {
    /// Appends bytes. EFBIG beyond the limit, EINTR once somebody has killed the process for good.
    fn put(&mut self, mut bytes: &[u8]) -> Result<()> {
        if self.t.exiting.load(Ordering::SeqCst) {
            return Err(Errno::EINTR);
        }
        self.written += bytes.len() as u64;
        if self.written > self.limit {
            return Err(Errno::EFBIG);
        }
        while !bytes.is_empty() {
            let n = self.write(bytes)?;
            if n == 0 {
                return Err(Errno::EIO);
            }
            self.at += n as u64;
            bytes = &bytes[n..];
        }
        Ok(())
    }

    fn write(&self, bytes: &[u8]) -> Result<usize> {
        let Some(end) = self.file.downcast::<PipeEnd>() else {
            return self.file.ops().write(self.file, &mut Input::kernel(bytes), self.at);
        };
        // Signals that wait for the process do not matter any more, only its end does.
        wait_until_uninterruptible(end.pipe().writable(), || {
            if self.t.exiting.load(Ordering::SeqCst) {
                return Some(Err(Errno::EINTR));
            }
            match end.pipe().write(&mut Input::kernel(bytes), false, false) {
                Err(Errno::EAGAIN) => None,
                r => Some(r),
            }
        })
    }

    /// Leaves a hole, or zeros where there can be none.
    fn skip(&mut self, n: u64) -> Result<()> {
        const ZEROS: [u8; PAGE as usize] = [0; PAGE as usize];
        if self.file.inode.is_some() {
            self.at += n;
            return Ok(());
        }
        let end = self.at + n;
        while self.at < end {
            self.put(&ZEROS[..(end - self.at).min(PAGE) as usize])?;
        }
        Ok(())
    }

    /// Gives the file its length, if it ends with a hole.
    fn finish(&self) -> Result<()> {
        if self.file.downcast::<PipeEnd>().is_some() {
            return Ok(());
        }
        let Some(inode) = &self.file.inode else { return Err(Errno::EACCES) };
        if inode.stat().size < self.at {
            inode.set_attr(&SetAttr { size: Some(self.at), ..SetAttr::default() })?;
        }
        Ok(())
    }
}
