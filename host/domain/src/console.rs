//! The event loop of a running domain: console bytes, signals, the end.
//!
//! One thread, one `poll`: the doorbell, the first process, signals, standard input while there is room,
//! standard output and error while they block. Work per round is bounded, so that a domain that floods
//! its console cannot keep a signal waiting.

use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

use doppel_abi_machine::{event, ring, state};
use doppel_sys::shared::SharedMap;
use doppel_sys::signal::SignalFd;
use rustix::event::{PollFd, PollFlags};

use crate::Error;
use crate::ring::{InputRing, OutputRing, Stop, post, registers};
use crate::terminal::winsize;

/// Signals passed on to the program.
pub(crate) const FORWARDED: [i32; 6] = [1, 2, 3, 10, 12, 15];
/// SIGWINCH.
pub(crate) const WINCH: i32 = 28;

/// Largest write that does not block a pipe or terminal that polls as writable (PIPE_BUF).
const CHUNK: u32 = 4096;
/// Most chunks written per ring and round.
const CHUNKS_PER_ROUND: u32 = 64;

/// Why the loop ended.
#[derive(Debug)]
pub(crate) enum End {
    /// The guest kernel says that the program has ended, with this wait status.
    Exited(i32),
    /// The guest kernel says that it is broken.
    Panicked,
    /// The first process is gone.
    Died,
    /// The domain broke the console protocol.
    Broken,
}

/// One output ring and where it goes.
#[derive(Debug)]
struct Sink {
    ring: OutputRing,
    stderr: bool,
    /// The descriptor cannot take more now.
    blocked: bool,
    /// The descriptor failed; bytes are thrown away.
    dead: bool,
    /// The descriptor may be a terminal in raw mode, and these are lines for it.
    lines: bool,
}

/// The host side of a domain's console.
#[derive(Debug)]
pub(crate) struct Console {
    input: InputRing,
    input_open: bool,
    sinks: [Sink; 3],
}

impl Console {
    /// `stdin` says whether standard input is connected, `tty` whether the program has a terminal.
    pub fn new(map: &SharedMap, stdin: bool, tty: bool) -> Self {
        let input = InputRing::new(ring::STDIN);
        if !stdin {
            input.close(map);
        }
        let sink = |index, stderr| Sink {
            ring: OutputRing::new(index),
            stderr,
            blocked: false,
            dead: false,
            lines: tty && index == ring::LOG,
        };
        Self {
            input,
            input_open: stdin,
            sinks: [sink(ring::STDOUT, false), sink(ring::STDERR, true), sink(ring::LOG, true)],
        }
    }

    /// Runs until the domain ends; all output it produced has been written then.
    pub fn run(
        &mut self,
        map: &SharedMap,
        doorbell: &OwnedFd,
        pidfd: BorrowedFd<'_>,
        signals: &SignalFd,
        tty: bool,
    ) -> Result<End, Error> {
        let mut died = false;
        loop {
            // The state is read before the rings are drained: what was printed before it changed is out
            // before we act on it.
            let registers = registers(map);
            let end = match registers.state.load(Ordering::Acquire) {
                state::EXITED => Some(End::Exited(registers.exit_status.load(Ordering::Acquire))),
                state::PANICKED => Some(End::Panicked),
                _ if died => Some(End::Died),
                _ => None,
            };
            let more = match self.pump(map) {
                Ok(more) => more,
                Err(Stop::Broken) => return Ok(End::Broken),
                Err(Stop::Io(error)) => return Err(Error::host("write the domain's output")(error)),
            };
            if let Some(end) = end
                && !more
                && !self.sinks.iter().any(|s| s.blocked)
            {
                return Ok(end);
            }
            // A dead process would wake every poll while output is still blocked.
            let pidfd = (!died).then_some(pidfd);
            died |= self.wait(map, doorbell, pidfd, signals, tty, more)?;
            if let Err(Stop::Broken) = self.feed(map) {
                return Ok(End::Broken);
            }
        }
    }

    /// Sleeps until something happens and deals with signals; true when the first process is gone.
    fn wait(
        &mut self,
        map: &SharedMap,
        doorbell: &OwnedFd,
        pidfd: Option<BorrowedFd<'_>>,
        signals: &SignalFd,
        tty: bool,
        more: bool,
    ) -> Result<bool, Error> {
        let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
        let mut fds = Vec::with_capacity(6);
        fds.push(PollFd::new(doorbell, PollFlags::IN));
        fds.push(PollFd::new(signals, PollFlags::IN));
        fds.extend(pidfd.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        if self.sinks.iter().any(|s| s.blocked && !s.stderr) {
            fds.push(PollFd::new(&stdout, PollFlags::OUT));
        }
        if self.sinks.iter().any(|s| s.blocked && s.stderr) {
            fds.push(PollFd::new(&stderr, PollFlags::OUT));
        }
        if self.input_open && self.input.has_room(map).unwrap_or(true) {
            fds.push(PollFd::new(&stdin, PollFlags::IN));
        }
        let zero = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        match rustix::event::poll(&mut fds, more.then_some(&zero)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(Error::os("wait for the domain")(error)),
        }
        let died = pidfd.is_some() && !fds[2].revents().is_empty();
        if !fds[0].revents().is_empty() {
            // Only empties the counter; what happened is read from shared memory.
            let _ = rustix::io::read(doorbell, &mut [0u8; 8]);
        }
        while let Some(signal) = signals.next().map_err(Error::host("read a signal"))? {
            self.signal(map, signal, tty);
        }
        Ok(died)
    }

    fn signal(&self, map: &SharedMap, signal: i32, tty: bool) {
        if signal == WINCH {
            if tty && let Some(size) = winsize(io::stdin()).or_else(|| winsize(io::stdout())) {
                registers(map).winsize.store(size, Ordering::Release);
                post(map, event::WINCH);
            }
        } else {
            registers(map).signals.fetch_or(1 << (signal - 1), Ordering::SeqCst);
            post(map, event::SIGNAL);
        }
    }

    /// Moves output; true if there is more to move right away.
    fn pump(&mut self, map: &SharedMap) -> Result<bool, Stop> {
        let (mut more, mut made_room) = (false, false);
        for sink in &mut self.sinks {
            more |= sink.pump(map)?;
            made_room |= sink.ring.take_producer_waits(map);
        }
        if made_room {
            post(map, event::CONSOLE_OUT);
        }
        Ok(more)
    }

    /// Moves input, if there is any.
    fn feed(&mut self, map: &SharedMap) -> Result<(), Stop> {
        if !self.input_open || !self.input.has_room(map)? {
            return Ok(());
        }
        let stdin = io::stdin();
        if !ready(stdin.as_fd(), PollFlags::IN) {
            return Ok(());
        }
        match self.input.fill_from(map, stdin.as_fd()) {
            Ok(0) => self.end_input(map),
            Ok(_) => {
                if self.input.take_consumer_waits(map) {
                    post(map, event::CONSOLE_IN);
                }
            }
            Err(Stop::Io(e))
                if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            // A terminal that went away, for example: the program sees the end of its input.
            Err(Stop::Io(_)) => self.end_input(map),
            Err(broken) => return Err(broken),
        }
        Ok(())
    }

    fn end_input(&mut self, map: &SharedMap) {
        self.input_open = false;
        self.input.close(map);
        post(map, event::CONSOLE_IN);
    }
}

impl Sink {
    /// Writes what waits, as far as the descriptor takes it; true if there is more to do right away.
    fn pump(&mut self, map: &SharedMap) -> Result<bool, Stop> {
        self.blocked = false;
        if self.dead {
            self.ring.discard(map)?;
            return Ok(!self.ring.sleep(map)?);
        }
        let (stdout, stderr) = (io::stdout(), io::stderr());
        let fd = if self.stderr { stderr.as_fd() } else { stdout.as_fd() };
        for _ in 0..CHUNKS_PER_ROUND {
            if self.ring.available(map)? == 0 && self.ring.sleep(map)? {
                return Ok(false);
            }
            if !ready(fd, PollFlags::OUT) {
                self.blocked = true;
                return Ok(false);
            }
            let done =
                if self.lines { self.write_lines(map) } else { self.ring.drain_to(map, fd, CHUNK).map(drop) };
            match done {
                Ok(()) => {}
                Err(Stop::Io(e)) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(Stop::Io(e)) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.blocked = true;
                    return Ok(false);
                }
                Err(Stop::Io(_)) => {
                    // Nobody reads (EPIPE), or the disk is full: the program learns it as EPIPE.
                    self.dead = true;
                    self.ring.hang_up(map);
                    post(map, event::CONSOLE_OUT);
                    return Ok(true);
                }
                Err(broken) => return Err(broken),
            }
        }
        Ok(true)
    }

    /// Writes some of the kernel's log to a terminal in raw mode, which needs carriage returns.
    fn write_lines(&mut self, map: &SharedMap) -> Result<(), Stop> {
        let mut out = Vec::new();
        for byte in self.ring.take(map, CHUNK / 2)? {
            if byte == b'\n' {
                out.push(b'\r');
            }
            out.push(byte);
        }
        io::stderr().write_all(&out).map_err(Stop::Io)
    }
}

/// Whether a descriptor is ready now; one that cannot be polled is.
fn ready(fd: BorrowedFd<'_>, flags: PollFlags) -> bool {
    let zero = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut fds = [PollFd::from_borrowed_fd(fd, flags)];
    match rustix::event::poll(&mut fds, Some(&zero)) {
        Ok(n) => n > 0,
        Err(_) => true,
    }
}
