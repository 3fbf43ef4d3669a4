//! Built-in commands: what the host asks of a domain's files and processes without a program of the image
//! (docs/sessions.md). The guest kernel of a para domain has them too. They run inside the container, as a session's
//! process, with its user's rights and under its filter.
//!
//! Key types: [`outcome::Failure`] (what was wrong with which name).

use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;

use doppel_abi_machine::builtin::{Command, NoCommand};
use rustix::io::Errno;

use self::outcome::{About, Failure, Outcome};
use crate::program::request::Request;

mod files;
mod outcome;
mod processes;
mod stacks;
mod tar_in;
mod tar_out;
mod watch;

/// How much is moved at a time.
const CHUNK: usize = 64 << 10;

/// Runs the command; its exit code.
pub(crate) fn run(request: &Request) -> u8 {
    let mut args = request.program.argv.iter().map(|a| a.as_bytes());
    let name = args.next().unwrap_or_default();
    let args: Vec<&[u8]> = args.collect();
    let Err(failure) = execute(name, &args) else { return 0 };
    let number = u16::try_from(failure.errno.raw_os_error()).unwrap_or_default();
    let errno = doppel_abi_linux::errno::Errno(number).name();
    // Nobody may be there to read it.
    let _ = writeln!(io::stderr(), "{errno}: {}", String::from_utf8_lossy(&failure.what));
    1
}

fn execute(name: &[u8], args: &[&[u8]]) -> Outcome {
    let mut out = io::BufWriter::with_capacity(CHUNK, io::stdout());
    match Command::parse(name, args) {
        Ok(Command::TarOut(path)) => tar_out::run(&mut out, path),
        Ok(Command::TarIn(path)) => tar_in::run(path),
        Ok(Command::Stat { path, follow }) => files::stat(&mut out, path, follow),
        Ok(Command::List { path, depth }) => files::list(&mut out, path, depth),
        Ok(Command::Remove { path, recursive }) => files::remove(path, recursive),
        Ok(Command::Mkdir { path, mode }) => files::mkdir(path, mode),
        Ok(Command::Rename { from, to }) => rustix::fs::rename(from, to).about(from),
        Ok(Command::Read { path, offset, length }) => files::read(&mut out, path, offset, length),
        Ok(Command::Write { path, mode }) => files::write(path, mode),
        Ok(Command::Watch { path, recursive }) => watch::run(&mut out, path, recursive),
        Ok(Command::Processes) => processes::run(&mut out),
        Ok(Command::Stacks) => stacks::run(&mut out),
        Ok(Command::Events { .. } | Command::EventLevel(_)) => {
            let what = b"a paene domain has no guest kernel that keeps events".to_vec();
            Err(Failure { what, errno: Errno::OPNOTSUPP })
        }
        Err(NoCommand(what)) => Err(Failure { what: what.to_vec(), errno: Errno::INVAL }),
    }?;
    out.flush().about(b"standard output")
}

/// Fills `buf` from standard input; less only at its end.
fn get_all(buf: &mut [u8]) -> Outcome<usize> {
    let mut done = 0;
    while done < buf.len() {
        match io::stdin().lock().read(&mut buf[done..]) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e).about(b"standard input"),
        }
    }
    Ok(done)
}
