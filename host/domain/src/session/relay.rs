//! A session over a Unix socket: what `doppel exec` speaks with the process that runs the domain.
//!
//! After [`crate::Request::Exec`] and its answer both sides send frames: a kind, a length, so many bytes. Input is
//! sent only as far as the other side has granted ([`frame::TAKEN`]), so that signals never wait behind it. The owner
//! of a domain talks to itself here (only it can reach the socket), but lengths are checked all the same.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

use rustix::event::{PollFd, PollFlags};

use crate::lock::lock;
use crate::registry::messages::{Answer, Reply};
use crate::run::state::Core;
use crate::session::SessionEnd;
use crate::{Error, ExecConfig, Output, Session, Sink, Stream};

/// Kinds of frames.
pub(crate) mod frame {
    /// To the domain: input.
    pub const INPUT: u8 = 0;
    /// To the domain: no more input will come.
    pub const END_INPUT: u8 = 1;
    /// To the domain: rows and columns of the terminal, 2 bytes each.
    pub const RESIZE: u8 = 2;
    /// To the domain: a signal's number, 1 byte.
    pub const SIGNAL: u8 = 3;
    /// From the domain: standard output.
    pub const STDOUT: u8 = 16;
    /// From the domain: standard error.
    pub const STDERR: u8 = 17;
    /// From the domain: so many bytes of input were taken (4 bytes).
    pub const TAKEN: u8 = 18;
    /// From the domain: the program runs as this process (4 bytes).
    pub const STARTED: u8 = 19;
    /// From the domain, last: it exited (1 byte).
    pub const EXITED: u8 = 20;
    /// From the domain, last: it could not be started (errno, 4 bytes).
    pub const FAILED: u8 = 21;
    /// From the domain, last: the domain is gone.
    pub const GONE: u8 = 22;
    /// From the domain, last: the domain broke the protocol.
    pub const BROKEN: u8 = 23;

    /// Longest frame's bytes.
    pub const MAX: usize = 64 << 10;
    /// Bytes of input that may be under way.
    pub const WINDOW: usize = 256 << 10;
}

/// Bytes on their way to the other side; more than this and a program waits.
const ENOUGH: usize = 256 << 10;

/// Appends a frame.
pub(crate) fn put(out: &mut Vec<u8>, kind: u8, bytes: &[u8]) {
    out.push(kind);
    out.extend(u32::try_from(bytes.len()).expect("bounded by MAX").to_le_bytes());
    out.extend(bytes);
}

/// Takes the first whole frame off `bytes`.
pub(crate) fn take(bytes: &mut Vec<u8>) -> Result<Option<(u8, Vec<u8>)>, io::Error> {
    let Some((head, rest)) = bytes.split_at_checked(5) else { return Ok(None) };
    let len = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
    if len > frame::MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a frame is too long"));
    }
    if rest.len() < len {
        return Ok(None);
    }
    let frame = (head[0], rest[..len].to_vec());
    bytes.drain(..5 + len);
    Ok(Some(frame))
}

/// Writes what the socket takes now.
pub(crate) fn flush(socket: &UnixStream, out: &mut Vec<u8>) -> io::Result<()> {
    use rustix::net::{SendFlags, send};
    while !out.is_empty() {
        match send(socket, out, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(n) => drop(out.drain(..n)),
            Err(rustix::io::Errno::AGAIN) => break,
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// Reads what is there; false at the end. That the other side ended with something unread is no failure: we may always
/// have said one thing more than it waited for.
pub(crate) fn fill(socket: &UnixStream, to: &mut Vec<u8>) -> io::Result<bool> {
    use rustix::net::{RecvFlags, recv};
    let mut buf = [0u8; 16 << 10];
    match recv(socket, &mut buf[..], RecvFlags::DONTWAIT) {
        Ok((0, _)) | Err(rustix::io::Errno::CONNRESET) => Ok(false),
        Ok((n, _)) => {
            to.extend(&buf[..n]);
            Ok(true)
        }
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(true),
        Err(e) => Err(e.into()),
    }
}

/// Output on its way to the socket.
#[derive(Clone, Default)]
struct Outgoing(Arc<Mutex<Vec<u8>>>);

impl Sink for Outgoing {
    fn put(&mut self, stream: Stream, _: u32, bytes: &[u8]) -> io::Result<usize> {
        let mut out = lock(&self.0);
        if out.len() >= ENOUGH {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        put(&mut out, if stream == Stream::Stdout { frame::STDOUT } else { frame::STDERR }, bytes);
        Ok(bytes.len())
    }
}

/// Runs a session for who asked for it, on a thread of its own, until it ends or the peer goes away.
pub(crate) fn serve(core: &Arc<Core>, config: &ExecConfig, answer: Answer) {
    let out = Outgoing::default();
    match Session::open(core, config, Output::To(Box::new(out.clone())), true) {
        Ok(session) => {
            answer.give(&Reply::Session);
            // A peer that went away, or talks nonsense: dropping the session hangs up.
            let _ =
                Relay { session, out, input: Vec::new(), input_ends: false, socket: answer.into_stream() }
                    .run();
        }
        Err(error) => answer.give(&Reply::Refused(error.to_string())),
    }
}

struct Relay {
    session: Session,
    out: Outgoing,
    /// Input that the program has not taken yet.
    input: Vec<u8>,
    /// No more comes behind it.
    input_ends: bool,
    socket: UnixStream,
}

impl Relay {
    fn run(mut self) -> Result<(), Error> {
        let failed = || Error::host("talk about a session");
        let mut incoming = Vec::new();
        loop {
            let step = self.session.step();
            if let Some(pid) = step.started {
                self.say(frame::STARTED, &pid.to_le_bytes());
            }
            if let Some(end) = step.end {
                return self.finish(end).map_err(failed());
            }
            let pushed = self.push();
            flush(&self.socket, &mut lock(&self.out.0)).map_err(failed())?;
            // What is left may find room that came meanwhile; only a full ring asks for the doorbell.
            if step.more
                || (pushed && !self.input.is_empty())
                || (self.session.is_blocked() && lock(&self.out.0).len() < ENOUGH)
            {
                continue;
            }
            let wanted =
                if lock(&self.out.0).is_empty() { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT };
            let bell = self.session.bell().expect("it was opened with one");
            let mut fds = [PollFd::from_borrowed_fd(bell, PollFlags::IN), PollFd::new(&self.socket, wanted)];
            match rustix::event::poll(&mut fds, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(Error::os("wait for a session")(error)),
            }
            if !(fds[1].revents() & (PollFlags::IN | PollFlags::HUP | PollFlags::ERR)).is_empty() {
                if !fill(&self.socket, &mut incoming).map_err(failed())? {
                    return Ok(());
                }
                while let Some((kind, bytes)) = take(&mut incoming).map_err(failed())? {
                    self.heard(kind, &bytes);
                }
                if self.input.len() > 2 * frame::WINDOW {
                    return Err(Error::Misuse("more input than was granted"));
                }
            }
        }
    }

    fn say(&self, kind: u8, bytes: &[u8]) {
        put(&mut lock(&self.out.0), kind, bytes);
    }

    fn heard(&mut self, kind: u8, bytes: &[u8]) {
        match (kind, bytes) {
            (frame::INPUT, bytes) => self.input.extend(bytes),
            (frame::END_INPUT, _) if self.input.is_empty() => self.session.close_input(),
            // Behind what is still to be given.
            (frame::END_INPUT, _) => self.input_ends = true,
            (frame::RESIZE, &[a, b, c, d]) => {
                self.session.resize(u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]));
            }
            (frame::SIGNAL, &[signal]) => self.session.signal(signal.into()),
            _ => {}
        }
    }

    /// Gives the program what input it has room for; whether there was any.
    fn push(&mut self) -> bool {
        if self.input.is_empty() {
            return false;
        }
        let taken = self.session.write_input(&self.input);
        if taken > 0 {
            self.input.drain(..taken);
            self.say(frame::TAKEN, &u32::try_from(taken).expect("at most a ring").to_le_bytes());
            if self.input.is_empty() && self.input_ends {
                self.session.close_input();
            }
        }
        taken > 0
    }

    /// Says how it ended, as the last thing.
    fn finish(&self, end: SessionEnd) -> io::Result<()> {
        match end {
            SessionEnd::Exited(code) => self.say(frame::EXITED, &[code]),
            SessionEnd::Failed(errno) => self.say(frame::FAILED, &errno.to_le_bytes()),
            SessionEnd::DomainEnded => self.say(frame::GONE, &[]),
            SessionEnd::Broken => self.say(frame::BROKEN, &[]),
        }
        // The rest may take a while; whoever reads so slowly has this thread wait.
        use std::io::Write;
        self.socket.set_write_timeout(None)?;
        let rest = std::mem::take(&mut *lock(&self.out.0));
        (&self.socket).write_all(&rest)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_peer_that_left_something_unread_has_ended() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (&theirs).write_all(b"last words").unwrap();
        (&ours).write_all(b"unread").unwrap();
        drop(theirs);
        let mut heard = Vec::new();
        assert!(fill(&ours, &mut heard).unwrap());
        assert_eq!(heard, b"last words");
        assert!(!fill(&ours, &mut heard).unwrap());
    }
}
