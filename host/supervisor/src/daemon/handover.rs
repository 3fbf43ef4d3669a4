//! Going on as another program (`doppel upgrade`): the process stays what it is for its service manager and its children, and
//! keeps its lock and the sockets it listens on; whoever connects meanwhile waits a moment.
//!
//! The program before is kept open as well. Should the next one not get as far as serving, it is that again.

use std::error::Error;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use doppel_supervisor::Replacement;
use doppel_supervisor::http::{Listener, Source};
use rustix::io::FdFlags;
use rustix::process::{Pid, WaitOptions, waitpid};
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};

/// The environment variable with the words for the next program.
const VARIABLE: &str = "DOPPELD_HANDOVER";
/// What a service manager said of descriptors: they have other numbers by now.
const SERVICE_MANAGERS: [&str; 3] = ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"];

#[derive(Serialize, Deserialize)]
struct Words {
    /// The process they are for: its children have them in their environment, too.
    pid: u32,
    arguments: Vec<OsString>,
    lock: RawFd,
    before: RawFd,
    listeners: Vec<(Source, RawFd)>,
    replacement: Replacement,
}

/// What one program leaves the next.
pub struct Handover {
    pub lock: OwnedFd,
    pub replacement: Replacement,
    listeners: Vec<Listener>,
    /// The program before, and what it was called with.
    before: OwnedFd,
    arguments: Vec<OsString>,
}

/// What the program before has left for this one.
pub fn take() -> Result<Option<Handover>, Box<dyn Error>> {
    let Some(words) = std::env::var_os(VARIABLE).and_then(|w| w.into_string().ok()) else { return Ok(None) };
    let words: Words = serde_json::from_str(&words)?;
    if words.pid != std::process::id() {
        return Ok(None);
    }
    let sources = words.listeners.iter().map(|(_, fd)| *fd);
    let numbers: Vec<RawFd> = [words.lock, words.before].into_iter().chain(sources).collect();
    let mut fds = doppel_sys::inherited::kept(&numbers)?.into_iter();
    let (Some(lock), Some(before)) = (fds.next(), fds.next()) else { return Ok(None) };
    let listeners = words.listeners.into_iter().map(|(source, _)| source).zip(fds);
    let listeners = listeners.map(|(source, fd)| Listener { source, fd }).collect();
    let Words { arguments, replacement, .. } = words;
    Ok(Some(Handover { lock, listeners, replacement, before, arguments }))
}

/// Goes on as the program of `replacement`; returns only if neither that nor this one can be begun.
pub fn replace(lock: OwnedFd, listeners: Vec<Listener>, replacement: Replacement) -> Box<dyn Error> {
    let before = match File::open("/proc/self/exe") {
        Ok(file) => file.into(),
        Err(e) => return format!("/proc/self/exe: {e}").into(),
    };
    let arguments = std::env::args_os().skip(1).collect();
    let program = replacement.program.clone();
    let handover = Handover { lock, listeners, replacement, before, arguments };
    let error = handover.exec(&program);
    handover.back(&format!("{}: {error}", program.display()))
}

impl Handover {
    /// The sockets, once more.
    pub fn listeners(&self) -> io::Result<Vec<Listener>> {
        let again = |l: &Listener| Ok(Listener { source: l.source, fd: l.fd.try_clone()? });
        self.listeners.iter().map(again).collect()
    }

    /// Whether this is the program before again.
    pub fn failed(&self) -> bool {
        self.replacement.failed.is_some()
    }

    /// Goes on as the program before, because of this; returns if that cannot be.
    pub fn back(mut self, why: &str) -> Box<dyn Error> {
        self.replacement.failed = Some(why.to_owned());
        let program = PathBuf::from(format!("/proc/self/fd/{}", self.before.as_raw_fd()));
        let error = self.exec(&program);
        format!("{why}; and the program before cannot be begun again: {error}").into()
    }

    fn exec(&self, program: &Path) -> io::Error {
        let stay = |fd: &OwnedFd| rustix::io::fcntl_setfd(fd, FdFlags::empty());
        let all = [&self.lock, &self.before].into_iter().chain(self.listeners.iter().map(|l| &l.fd));
        for fd in all {
            if let Err(e) = stay(fd) {
                return e.into();
            }
        }
        let words = Words {
            pid: std::process::id(),
            arguments: self.arguments.clone(),
            lock: self.lock.as_raw_fd(),
            before: self.before.as_raw_fd(),
            listeners: self.listeners.iter().map(|l| (l.source, l.fd.as_raw_fd())).collect(),
            replacement: self.replacement.clone(),
        };
        let words = match serde_json::to_string(&words) {
            Ok(words) => words,
            Err(e) => return e.into(),
        };
        let mut command = Command::new(program);
        command.arg0("doppeld").args(&self.arguments).env(VARIABLE, words);
        for name in SERVICE_MANAGERS {
            command.env_remove(name);
        }
        command.exec()
    }
}

/// Waits for the ends of children that the program before has started, so that they are not there for ever.
pub fn collect_children() -> io::Result<()> {
    let mut ends = signal(SignalKind::child())?;
    let children = std::fs::read_to_string(format!("/proc/self/task/{}/children", std::process::id()))?;
    let mut left: Vec<Pid> =
        children.split_ascii_whitespace().filter_map(|p| Pid::from_raw(p.parse().ok()?)).collect();
    tokio::spawn(async move {
        loop {
            left.retain(|pid| matches!(waitpid(Some(*pid), WaitOptions::NOHANG), Ok(None)));
            if left.is_empty() || ends.recv().await.is_none() {
                return;
            }
        }
    });
    Ok(())
}
