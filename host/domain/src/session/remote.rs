//! A session of a domain that another process runs: the other end of `relay.rs`, and its way to our own terminal.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use doppel_sys::signal::SignalFd;
use rustix::event::{PollFd, PollFlags};

use crate::io::forward::write_ours;
use crate::io::terminal::{RawMode, winsize};
use crate::registry::requests::converse;
use crate::run::foreground::{FORWARDED, WINCH};
use crate::session::SessionEnd;
use crate::session::relay::{fill, flush, frame, put, take};
use crate::{Error, ExecConfig, Reply, Request, Stream};

/// Exit code of a program that wrote where nobody reads any more.
const SIGPIPE_CODE: u8 = 128 + 13;
/// Most output kept for a reader that is slow.
const ENOUGH: usize = 256 << 10;

/// What the other side says.
#[derive(Debug)]
pub enum SessionMessage {
    /// The program runs, as this process of the domain.
    Started(i32),
    /// It printed something.
    Output(Stream, Vec<u8>),
    /// It took input: there is room for more.
    InputRoom,
    /// It has ended; nothing follows.
    End(SessionEnd),
}

/// A session of a domain that another process runs. Dropping it hangs up.
#[derive(Debug)]
pub struct Remote {
    socket: UnixStream,
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
    /// Input under way.
    unanswered: usize,
    over: bool,
}

impl Remote {
    /// Starts a program in the domain called `name`.
    ///
    /// # Errors
    /// If there is no such domain, or it refuses.
    pub fn open(name: &str, config: &ExecConfig) -> Result<Self, Error> {
        match converse(name, &Request::Exec(Box::new(config.clone())))? {
            (Reply::Session, socket) => {
                Ok(Self { socket, incoming: Vec::new(), outgoing: Vec::new(), unanswered: 0, over: false })
            }
            (Reply::Refused(why), _) => Err(Error::State(why)),
            (other, _) => Err(Error::InDomain(format!("{name} answered something else: {other:?}"))),
        }
    }

    /// What was said, without waiting.
    ///
    /// # Errors
    /// If the connection fails.
    pub fn hear(&mut self) -> Result<Option<SessionMessage>, Error> {
        let failed = || Error::host("talk about a session");
        loop {
            while let Some((kind, bytes)) = take(&mut self.incoming).map_err(failed())? {
                let said = match (kind, bytes.as_slice()) {
                    (frame::STDOUT, _) => SessionMessage::Output(Stream::Stdout, bytes),
                    (frame::STDERR, _) => SessionMessage::Output(Stream::Stderr, bytes),
                    (frame::TAKEN, &[a, b, c, d]) => {
                        let taken = u32::from_le_bytes([a, b, c, d]) as usize;
                        self.unanswered = self.unanswered.saturating_sub(taken);
                        SessionMessage::InputRoom
                    }
                    (frame::STARTED, &[a, b, c, d]) => {
                        SessionMessage::Started(i32::from_le_bytes([a, b, c, d]))
                    }
                    (frame::EXITED, &[code]) => SessionMessage::End(SessionEnd::Exited(code)),
                    (frame::FAILED, &[a, b, c, d]) => {
                        SessionMessage::End(SessionEnd::Failed(i32::from_le_bytes([a, b, c, d])))
                    }
                    (frame::GONE, _) => SessionMessage::End(SessionEnd::DomainEnded),
                    (frame::BROKEN, _) => SessionMessage::End(SessionEnd::Broken),
                    _ => continue,
                };
                self.over |= matches!(said, SessionMessage::End(_));
                return Ok(Some(said));
            }
            let before = self.incoming.len();
            if self.over {
                return Ok(None);
            }
            if !fill(&self.socket, &mut self.incoming).map_err(failed())? {
                // The process that ran the domain is gone, and the domain with it.
                self.over = true;
                return Ok(Some(SessionMessage::End(SessionEnd::DomainEnded)));
            }
            if self.incoming.len() == before {
                return Ok(None);
            }
        }
    }

    /// Waits until there is something to hear, or room to speak.
    ///
    /// # Errors
    /// What the host says.
    pub fn wait(&self) -> Result<(), Error> {
        let mut fds = [PollFd::new(&self.socket, self.wanted())];
        match rustix::event::poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(Error::os("wait for a session")(error)),
        }
    }

    fn wanted(&self) -> PollFlags {
        if self.outgoing.is_empty() { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT }
    }

    /// How many bytes of input the other side takes now.
    #[must_use]
    pub fn input_room(&self) -> usize {
        frame::WINDOW - self.unanswered.min(frame::WINDOW)
    }

    /// Gives the program input, at most [`Self::input_room`] of it; how much was taken.
    ///
    /// # Errors
    /// If the connection fails.
    pub fn write_input(&mut self, bytes: &[u8]) -> Result<usize, Error> {
        let n = bytes.len().min(self.input_room());
        for part in bytes[..n].chunks(frame::MAX) {
            put(&mut self.outgoing, frame::INPUT, part);
        }
        self.unanswered += n;
        self.flush().map(|()| n)
    }

    fn say(&mut self, kind: u8, bytes: &[u8]) -> Result<(), Error> {
        put(&mut self.outgoing, kind, bytes);
        self.flush()
    }

    /// Sends what could not be sent before.
    ///
    /// # Errors
    /// If the connection fails.
    pub fn flush(&mut self) -> Result<(), Error> {
        match flush(&self.socket, &mut self.outgoing) {
            // The session has ended: what it said last is still there to be heard.
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => {
                self.outgoing.clear();
                Ok(())
            }
            other => other.map_err(Error::host("talk about a session")),
        }
    }

    /// Says that no more input will come.
    ///
    /// # Errors
    /// If the connection fails.
    pub fn close_input(&mut self) -> Result<(), Error> {
        self.say(frame::END_INPUT, &[])
    }

    /// Tells the program that its terminal has this size.
    ///
    /// # Errors
    /// If the connection fails.
    pub fn resize(&mut self, rows: u16, columns: u16) -> Result<(), Error> {
        let [a, b] = rows.to_le_bytes();
        let [c, d] = columns.to_le_bytes();
        self.say(frame::RESIZE, &[a, b, c, d])
    }

    /// Sends the program a signal.
    ///
    /// # Errors
    /// If the connection fails.
    pub fn signal(&mut self, signal: u8) -> Result<(), Error> {
        self.say(frame::SIGNAL, &[signal])
    }
}

impl AsFd for Remote {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Size of our terminal: rows and columns.
#[must_use]
pub fn terminal_size() -> (u16, u16) {
    let size = winsize(io::stdin()).or_else(|| winsize(io::stdout())).unwrap_or(24 << 16 | 80);
    ((size >> 16) as u16, (size & 0xffff) as u16)
}

/// Runs a program in the domain called `name`, connected to our own standard streams; returns how it ended.
///
/// # Errors
/// If there is no such domain, it refuses, or the host fails us.
pub fn attach(name: &str, config: &ExecConfig) -> Result<SessionEnd, Error> {
    // Blocked before anything can arrive.
    let all = [&FORWARDED[..], &[WINCH]].concat();
    let signals = SignalFd::new(&all).map_err(Error::host("watch signals"))?;
    let remote = Remote::open(name, config)?;
    let raw = if config.spec.tty && config.spec.stdin {
        RawMode::enter().map_err(Error::host("put the terminal into raw mode"))?
    } else {
        None
    };
    let mut attached = Attached {
        remote,
        signals,
        tty: config.spec.tty,
        input_open: config.spec.stdin,
        queue: VecDeque::new(),
        queued: 0,
    };
    let end = attached.run();
    drop(raw);
    end
}

/// Our standard streams on a session.
struct Attached {
    remote: Remote,
    signals: SignalFd,
    tty: bool,
    input_open: bool,
    /// Output that our descriptors have not taken yet.
    queue: VecDeque<(Stream, Vec<u8>)>,
    queued: usize,
}

impl Attached {
    fn run(&mut self) -> Result<SessionEnd, Error> {
        let mut end = None;
        loop {
            while end.is_none() && self.queued < ENOUGH {
                match self.remote.hear()? {
                    Some(SessionMessage::Output(stream, bytes)) => {
                        self.queued += bytes.len();
                        self.queue.push_back((stream, bytes));
                    }
                    Some(SessionMessage::End(how)) => end = Some(how),
                    Some(SessionMessage::Started(_) | SessionMessage::InputRoom) => {}
                    None => break,
                }
            }
            self.remote.flush()?;
            if !self.print() {
                return Ok(SessionEnd::Exited(SIGPIPE_CODE));
            }
            if let Some(end) = end
                && self.queue.is_empty()
            {
                return Ok(end);
            }
            self.wait(end.is_some())?;
        }
    }

    /// Writes what our descriptors take now; false if nobody reads there any more.
    fn print(&mut self) -> bool {
        while let Some((stream, bytes)) = self.queue.front_mut() {
            match write_ours(*stream, bytes, false) {
                Ok(n) => {
                    self.queued -= n;
                    bytes.drain(..n);
                    if bytes.is_empty() {
                        self.queue.pop_front();
                    }
                }
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => break,
                Err(_) => return false,
            }
        }
        true
    }

    fn wait(&mut self, ended: bool) -> Result<(), Error> {
        let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
        let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN)];
        match self.queue.front() {
            Some((Stream::Stdout, _)) => fds.push(PollFd::new(&stdout, PollFlags::OUT)),
            Some(_) => fds.push(PollFd::new(&stderr, PollFlags::OUT)),
            None => {}
        }
        if !ended && self.queued < ENOUGH {
            fds.push(PollFd::new(&self.remote.socket, self.remote.wanted()));
        }
        let input = self.input_open && !ended && self.remote.input_room() > 0;
        if input {
            fds.push(PollFd::new(&stdin, PollFlags::IN));
        }
        match rustix::event::poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(Error::os("wait for a session")(error)),
        }
        let readable = input && fds.last().is_some_and(|f| !f.revents().is_empty());
        drop(fds);
        while let Some(signal) = self.signals.next().map_err(Error::host("read a signal"))? {
            self.forward(signal)?;
        }
        if readable { self.feed() } else { Ok(()) }
    }

    fn forward(&mut self, signal: i32) -> Result<(), Error> {
        if signal == WINCH {
            if self.tty {
                let (rows, columns) = terminal_size();
                self.remote.resize(rows, columns)?;
            }
            return Ok(());
        }
        u8::try_from(signal).map_or(Ok(()), |s| self.remote.signal(s))
    }

    /// Sends on what stands on standard input.
    fn feed(&mut self) -> Result<(), Error> {
        let mut buf = [0u8; 16 << 10];
        let most = buf.len().min(self.remote.input_room());
        match rustix::io::read(io::stdin(), &mut buf[..most]) {
            Ok(n) if n > 0 => self.remote.write_input(&buf[..n]).map(drop),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(()),
            // The end, or a terminal that went away, which is the same to the program.
            Ok(_) | Err(_) => {
                self.input_open = false;
                self.remote.close_input()
            }
        }
    }
}
