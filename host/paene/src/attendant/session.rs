//! A session: a further program, its streams, and its slot in the control area (`common/abi/machine`, session.rs).

use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;

use doppel_abi_machine::session::{
    SESSION_REQUEST, SESSION_REQUEST_MAX, SESSION_STRIDE, SessionHeader, session_state,
};
use doppel_abi_machine::{ATTENDANT, control, ring};
use doppel_sys::shared::offset;
use rustix::event::PollFlags;
use rustix::process::{Pid, Signal};

use crate::attendant::host::Host;
use crate::attendant::signals::{send, signals};
use crate::program::enter;
use crate::program::request::{self, Request};
use crate::program::ring::Ring;
use crate::program::start::set_size;
use crate::program::streams::{Pumped, Streams};
use crate::program::talk::{self, Message};

/// SIGKILL as a wait status.
const KILLED: i32 = 9;

/// One that was asked for and is not over.
#[derive(Debug)]
pub(crate) struct Session {
    slot: usize,
    request: Request,
    streams: Streams,
    /// The helper's end of it says what becomes of the program.
    helper: Option<OwnedFd>,
    /// The program, in the attendant's PID namespace.
    pid: Option<Pid>,
    /// How it ended, until the host has been told.
    status: Option<i32>,
    told: bool,
    released: bool,
}

fn header(host: &Host, slot: usize) -> &SessionHeader {
    host.map.get(offset(control::SESSIONS + slot as u64 * SESSION_STRIDE))
}

impl Session {
    /// Starts what the host asks for in a slot; none if it asks for nothing, or if it could not be started, which the
    /// host is told.
    pub fn begin(slot: usize, host: &Host, container: BorrowedFd<'_>) -> Option<Self> {
        let h = header(host, slot);
        if h.state.load(Ordering::Acquire) != session_state::ASKED {
            // It was released before it ended; there is nobody to tell.
            if h.released.load(Ordering::Acquire) != 0 {
                leave(host, slot);
            }
            return None;
        }
        let len = h.request_len.load(Ordering::Relaxed);
        let at = offset(control::SESSIONS + slot as u64 * SESSION_STRIDE + SESSION_REQUEST);
        let mut session = request::read(&host.map, at, len, SESSION_REQUEST_MAX)
            .ok_or(rustix::io::Errno::INVAL)
            .and_then(|request| Self::start(slot, host, request, at, len, container));
        if let Ok(session) = &mut session {
            session.heed(host);
        }
        session.map_err(|errno| fail(host, slot, errno.raw_os_error())).ok()
    }

    fn start(
        slot: usize,
        host: &Host,
        request: Request,
        at: usize,
        len: u32,
        container: BorrowedFd<'_>,
    ) -> Result<Self, rustix::io::Errno> {
        let other =
            |error: std::io::Error| rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO);
        let rings = [ring::STDIN, ring::STDOUT, ring::STDERR].map(|index| Ring::session(slot, index));
        let (streams, theirs) = Streams::new(rings, &request)?;
        let (ours, helpers) = talk::pair().map_err(other)?;
        Command::new("/proc/self/exe")
            .arg0(ATTENDANT)
            .arg(enter::VERB)
            .env_clear()
            .stdin(Stdio::from(helpers))
            .spawn()
            .map_err(other)?;
        let mut bytes = vec![0; len as usize];
        host.map.read(at, &mut bytes);
        let fds = [container, theirs.stdin.as_fd(), theirs.stdout.as_fd(), theirs.stderr.as_fd()];
        talk::send(&ours, &bytes, &fds).map_err(other)?;
        Ok(Self {
            slot,
            request,
            streams,
            helper: Some(ours),
            pid: None,
            status: None,
            told: false,
            released: false,
        })
    }

    /// Does what the host asks for.
    pub fn heed(&mut self, host: &Host) {
        let h = header(host, self.slot);
        let wanted = h.signals.load(Ordering::SeqCst);
        // Until there is a program signals wait.
        if let Some(pid) = self.pid
            && wanted != 0
        {
            for signal in signals(h.signals.swap(0, Ordering::SeqCst)) {
                send(pid, true, signal);
            }
        }
        if let Some(master) = self.streams.master() {
            // It may be hung up by now.
            let _ = set_size(master, h.winsize.load(Ordering::Relaxed));
        }
        if h.released.load(Ordering::Acquire) != 0 && !self.released {
            self.released = true;
            self.streams.hang_up();
            if let (true, Some(pid)) = (self.request.builtin(), self.pid) {
                send(pid, true, Signal::KILL);
            }
            leave(host, self.slot);
        }
    }

    /// Moves bytes, hears what the helper says, and tells the host.
    pub fn step(&mut self, host: &Host) -> Pumped {
        let mut done = if self.released { Pumped::default() } else { self.streams.pump(&host.map) };
        while let Some(helper) = self.helper.as_ref().filter(|fd| readable(fd.as_fd())) {
            match Message::hear(helper) {
                Ok(Some(word)) => self.heard(word, host),
                // It is gone.
                Ok(None) | Err(_) => {
                    self.helper = None;
                    self.status.get_or_insert(KILLED);
                }
            }
            done.more = true;
        }
        if let Some(status) = self.status
            && !(done.more || self.told || self.released || self.streams.is_full())
        {
            self.told = true;
            let h = header(host, self.slot);
            h.status.store(status, Ordering::Relaxed);
            h.state.store(session_state::ENDED, Ordering::Release);
            done.tell = true;
        }
        done
    }

    fn heard(&mut self, word: Message, host: &Host) {
        match word {
            Message::Process(pid) => self.pid = Pid::from_raw(pid),
            Message::Terminal(master) => {
                // One that cannot be used is hung up.
                let _ = self.streams.terminal(master, &self.request);
            }
            Message::Started => self.started(host),
            Message::Failed(_, errno) => {
                self.helper = None;
                self.status = Some(KILLED);
                if !self.released {
                    self.told = true;
                    fail(host, self.slot, errno);
                }
            }
            Message::Ended(status) => {
                self.helper = None;
                self.status = Some(status);
            }
        }
    }

    fn started(&mut self, host: &Host) {
        let h = header(host, self.slot);
        if self.released || h.state.load(Ordering::Relaxed) != session_state::ASKED {
            return;
        }
        h.pid.store(self.pid.and_then(inner).unwrap_or(1), Ordering::Relaxed);
        h.state.store(session_state::RUNNING, Ordering::Release);
        host.ring();
        // Signals that came meanwhile.
        self.heed(host);
    }

    /// What to wait for.
    pub fn interests(&self) -> impl Iterator<Item = (BorrowedFd<'_>, PollFlags)> {
        let helper = self.helper.as_ref().map(|fd| (fd.as_fd(), PollFlags::IN));
        self.streams.interests().chain(helper)
    }

    /// Whether the slot is the host's again. The helper waits for the program by itself.
    pub fn is_over(&self) -> bool {
        self.released
    }
}

/// Gives a slot back; it is not touched again.
fn leave(host: &Host, slot: usize) {
    header(host, slot).left.store(1, Ordering::Release);
    host.ring();
}

fn fail(host: &Host, slot: usize, errno: i32) {
    let h = header(host, slot);
    h.error.store(errno, Ordering::Relaxed);
    h.state.store(session_state::ENDED, Ordering::Release);
    host.ring();
}

fn readable(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [rustix::event::PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    rustix::event::poll(&mut fds, Some(&rustix::event::Timespec::default())).is_ok_and(|n| n > 0)
}

/// The number that a process has in the container: the last of those it has.
fn inner(pid: Pid) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("NSpid:"))?;
    line.split_whitespace().last()?.parse().ok()
}
