//! Becoming a program, inside the container: the last steps, which libcontainer leaves to us, and which further programs
//! take too. There is one thread here, so the rest of this process is what was forked.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use rustix::pty::OpenptFlags;
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};

use crate::program::builtin;
use crate::program::request::Request;
use crate::program::talk::{Message, Stage};

/// Where programs are looked for unless the environment says otherwise.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Executes the program, as the user this process is by now; returns the exit code only if it could not, or if it was a
/// built-in command. Why it could not goes to `report`, which is closed when it runs.
pub(crate) fn become_it(request: &Request, report: &Arc<OwnedFd>) -> u8 {
    let failed = |(stage, error): (Stage, io::Error)| {
        let errno = error.raw_os_error().unwrap_or(libc_eio());
        // If nobody listens, the exit code has to do.
        let _ = Message::Failed(stage, errno).say(report);
        if errno == ENOENT && stage == Stage::Execute { 127 } else { 126 }
    };
    if let Err(failure) = prepare(request, report) {
        return failed(failure);
    }
    if request.builtin() {
        let _ = Message::Started.say(report);
        return builtin::run(request);
    }
    failed((Stage::Execute, execute(request)))
}

const ENOENT: i32 = 2;

fn libc_eio() -> i32 {
    rustix::io::Errno::IO.raw_os_error()
}

fn prepare(request: &Request, report: &Arc<OwnedFd>) -> Result<(), (Stage, io::Error)> {
    if request.tty() {
        terminal(request, report).map_err(|e| (Stage::Enter, e))?;
    }
    if !request.program.cwd.is_empty() {
        rustix::process::chdir(Path::new(&request.program.cwd)).map_err(|e| (Stage::Directory, e.into()))?;
    }
    doppel_sys::signal::unblock_all().map_err(|e| (Stage::Enter, e))?;
    let filter: Vec<[u8; 8]> = doppel_confine::container::filter().iter().map(|i| i.to_bytes()).collect();
    doppel_sys::filter::install(&filter).map_err(|e| (Stage::Enter, e))
}

/// Makes a terminal of the container this process' own; the other end goes to who moves its bytes.
fn terminal(request: &Request, report: &Arc<OwnedFd>) -> io::Result<()> {
    let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    rustix::pty::unlockpt(&master)?;
    let slave = rustix::pty::ioctl_tiocgptpeer(&master, OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
    set_size(&master, request.winsize)?;
    dup2_stdin(&slave)?;
    dup2_stdout(&slave)?;
    dup2_stderr(&slave)?;
    doppel_sys::namespace::take_terminal()?;
    Message::Terminal(master).say(report)
}

/// Tells a terminal its size: rows << 16 | columns.
pub(crate) fn set_size(terminal: impl AsFd, size: u32) -> io::Result<()> {
    let [c0, c1, r0, r1] = size.to_le_bytes();
    let size = rustix::termios::Winsize {
        ws_row: u16::from_le_bytes([r0, r1]),
        ws_col: u16::from_le_bytes([c0, c1]),
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    Ok(rustix::termios::tcsetwinsize(terminal, size)?)
}

/// Executes it; why not.
fn execute(request: &Request) -> io::Error {
    let Some((name, args)) = request.program.argv.split_first() else {
        return io::ErrorKind::NotFound.into();
    };
    let mut last = io::Error::from_raw_os_error(ENOENT);
    for path in candidates(name, &request.program.env) {
        let mut command = Command::new(&path);
        command.arg0(name).args(args).env_clear();
        for variable in &request.program.env {
            let bytes = variable.as_bytes();
            let at = bytes.iter().position(|b| *b == b'=').unwrap_or(bytes.len());
            command
                .env(OsStr::from_bytes(&bytes[..at]), OsStr::from_bytes(bytes.get(at + 1..).unwrap_or(b"")));
        }
        // As execvp: a program that is there and cannot be executed counts more than one that is not.
        let error = command.exec();
        match error.raw_os_error() {
            Some(ENOENT | 20) => {}
            Some(13) => last = error,
            _ => return error,
        }
    }
    last
}

/// The paths that a program's name may mean.
fn candidates(name: &OsStr, env: &[std::ffi::OsString]) -> Vec<std::path::PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return vec![name.into()];
    }
    let path = env.iter().find_map(|v| v.as_bytes().strip_prefix(b"PATH=")).unwrap_or(PATH.as_bytes());
    path.split(|b| *b == b':')
        .map(|dir| Path::new(OsStr::from_bytes(if dir.is_empty() { b"." } else { dir })).join(name))
        .collect()
}
