//! Built-in commands: what the host asks of a domain's files and processes without a program of the image
//! (docs/sessions.md). They run as the only code of a session's process, with its identity, through the checks that
//! programs' calls go through.
//!
//! Key types: [`Command`] (who runs, and its streams), [`Failure`] (what was wrong with which name).

use alloc::format;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use doppel_abi_machine::builtin::{Command as Builtin, NoCommand};
use doppel_machine::boot::BootData;
use doppel_machine::cpu;

use crate::objects::lookup::open;
use crate::objects::lookup::path::Path;
use crate::objects::vfs::flags::OpenFlags;
use crate::objects::vfs::{Caller, File, Input, Output, at};
use crate::process::signal;
use crate::process::task::Thread;
use crate::process::task::directory::change_dir;
use crate::{Errno, Result};

mod events;
mod files;
mod processes;
mod stacks;
mod tar_in;
mod tar_out;
mod user_stack;
mod watch;

/// How much is moved at a time.
const CHUNK: usize = 32 << 10;

/// What went wrong, with which file.
struct Failure {
    what: Vec<u8>,
    errno: Errno,
}

/// Says which file an error is about.
trait About<T> {
    fn about(self, what: &[u8]) -> core::result::Result<T, Failure>;
}

impl<T> About<T> for Result<T> {
    fn about(self, what: &[u8]) -> core::result::Result<T, Failure> {
        self.map_err(|errno| Failure { what: what.to_vec(), errno })
    }
}

type Outcome = core::result::Result<(), Failure>;

/// A command that runs.
struct Command<'a> {
    thread: &'a Arc<Thread>,
    caller: Caller,
    input: Arc<File>,
    output: Arc<File>,
    /// Output that is still to be written.
    pending: Vec<u8>,
}

/// Whether an error means that a signal waits.
fn is_interruption(e: Errno) -> bool {
    matches!(e, Errno::EINTR | Errno::ERESTARTSYS | Errno::ERESTARTNOINTR)
}

/// Runs the command; its exit code.
pub fn run(thread: &Arc<Thread>, data: &BootData) -> i32 {
    let name = data.argv.first().map_or(&b""[..], |n| n);
    let mut comm = [0; 16];
    let n = name.len().min(15);
    comm[..n].copy_from_slice(&name[..n]);
    *thread.comm.lock() = comm;
    *thread.process.cmdline.lock() = data.argv.iter().flat_map(|a| [a.as_slice(), b"\0"].concat()).collect();
    let args: Vec<&[u8]> = data.argv.iter().skip(1).map(Vec::as_slice).collect();
    match execute(thread, data, name, &args) {
        Ok(()) => 0,
        // A signal ends it, which says enough.
        Err(_) if thread.exiting.load(Ordering::SeqCst) => 1,
        Err(f) => {
            let what = alloc::string::String::from_utf8_lossy(&f.what);
            let line = format!("{}: {what}\n", f.errno.name());
            if let Ok(err) = thread.files().get(2) {
                // Nobody may be there to read it.
                let _ = err.ops().write(&err, &mut Input::kernel(line.as_bytes()), 0);
            }
            1
        }
    }
}

fn execute(thread: &Arc<Thread>, data: &BootData, name: &[u8], args: &[&[u8]]) -> Outcome {
    let caller = Caller::new(&**thread);
    if !data.cwd.is_empty() {
        change_dir(&caller, &data.cwd).about(&data.cwd)?;
    }
    let stream = |fd| thread.files().get(fd).about(b"standard streams");
    let mut c = Command { thread, caller, input: stream(0)?, output: stream(1)?, pending: Vec::new() };
    match Builtin::parse(name, args) {
        Ok(Builtin::TarOut(path)) => tar_out::run(&mut c, path),
        Ok(Builtin::TarIn(path)) => tar_in::run(&mut c, path),
        Ok(Builtin::Stat { path, follow }) => files::stat(&mut c, path, follow),
        Ok(Builtin::List { path, depth }) => files::list(&mut c, path, depth),
        Ok(Builtin::Remove { path, recursive }) => files::remove(&mut c, path, recursive),
        Ok(Builtin::Mkdir { path, mode }) => files::mkdir(&c, path, mode),
        Ok(Builtin::Rename { from, to }) => files::rename(&c, from, to),
        Ok(Builtin::Read { path, offset, length }) => files::read(&mut c, path, offset, length),
        Ok(Builtin::Write { path, mode }) => files::write(&mut c, path, mode),
        Ok(Builtin::Watch { path, recursive }) => watch::run(&mut c, path, recursive),
        Ok(Builtin::Processes) => processes::run(&mut c),
        Ok(Builtin::Stacks) => stacks::run(&mut c),
        Ok(Builtin::Events { follow }) => events::run(&mut c, follow),
        Ok(Builtin::EventLevel(level)) => events::keep(level),
        Err(NoCommand(what)) => Err(Failure { what: what.to_vec(), errno: Errno::EINVAL }),
    }?;
    c.flush().about(b"standard output")
}

impl Command<'_> {
    /// Lets others have the CPU, a freeze happen, and signals be acted on; an error if one ends the process.
    fn breathe(&self) -> Result<()> {
        if cpu::vcpu().need_resched.load(Ordering::SeqCst) != 0 {
            crate::process::task::yield_now();
        }
        signal::deliver(self.thread);
        if self.thread.exiting.load(Ordering::SeqCst) { Err(Errno::EINTR) } else { Ok(()) }
    }

    /// Does something that waits, again after signals that do not end the process.
    fn patiently<T>(&self, mut act: impl FnMut() -> Result<T>) -> Result<T> {
        loop {
            match act() {
                Err(e) if is_interruption(e) => self.breathe()?,
                r => return r,
            }
        }
    }

    /// Writes to standard output, sooner or later.
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.pending.extend_from_slice(bytes);
        if self.pending.len() >= CHUNK { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        let bytes = core::mem::take(&mut self.pending);
        let mut done = 0;
        while done < bytes.len() {
            let f = &self.output;
            done += self.patiently(|| f.ops().write(f, &mut Input::kernel(&bytes[done..]), 0))?;
        }
        self.breathe()
    }

    /// Reads from standard input; 0 at its end.
    fn get(&self, buf: &mut [u8]) -> Result<usize> {
        let f = &self.input;
        self.patiently(|| f.ops().read(f, &mut Output::kernel(buf), 0))
    }

    /// Fills `buf` from standard input; less only at its end.
    fn get_all(&self, buf: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            match self.get(&mut buf[done..])? {
                0 => break,
                n => done += n,
            }
        }
        Ok(done)
    }

    fn find(&self, path: &[u8], follow: bool) -> Result<Path> {
        self.caller.find(at::FDCWD, path, follow)
    }

    /// A name in a directory, a link itself.
    fn child(&self, dir: &Path, name: &[u8]) -> Result<Path> {
        self.caller.walker.resolve(dir, name, false)
    }

    /// Opens what was found.
    fn open(&self, path: &Path, flags: OpenFlags) -> Result<Arc<File>> {
        open::existing(&self.caller, path.clone(), flags)
    }

    /// The names in a directory.
    fn names(&self, dir: &Path) -> Result<Vec<Vec<u8>>> {
        const AT_A_TIME: usize = 512;
        let file = self.open(dir, OpenFlags::RDONLY | OpenFlags::DIRECTORY)?;
        let mut names = Vec::new();
        let mut pos = 0;
        loop {
            let mut got = 0;
            file.ops().readdir(&file, pos, &mut |_, next, _, name| {
                pos = next;
                got += 1;
                if name != b"." && name != b".." {
                    names.push(name.to_vec());
                }
                got < AT_A_TIME
            })?;
            self.breathe()?;
            if got == 0 {
                return Ok(names);
            }
        }
    }
}

/// A buffer to move bytes through.
fn chunk() -> Vec<u8> {
    vec![0; CHUNK]
}
