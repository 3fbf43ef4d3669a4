//! Output rings on their way to where the output goes: those of a console, those of a session.
//!
//! Work per [`Forwarders::drain`] is bounded, so that a program that floods its output cannot keep others waiting.

use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use doppel_sys::shared::SharedMap;
use rustix::event::{PollFd, PollFlags};

use crate::io::ring::{Broken, OutputRing};
use crate::{Output, Stream};

/// Largest write that does not block a pipe or terminal that polls as writable (PIPE_BUF).
const CHUNK: usize = 4096;
/// Most bytes (but for the last piece) and pieces moved per ring and step.
const STEP: usize = 256 << 10;
const PIECES_PER_STEP: u32 = 64;
/// Most bytes kept of one stream; what comes later is thrown away.
pub const CAPTURE_MAX: usize = 4 << 20;

/// Output that was kept for the caller.
#[derive(Clone, Debug, Default)]
pub struct Captured {
    /// Standard output, at most [`CAPTURE_MAX`] bytes.
    pub stdout: Vec<u8>,
    /// Standard error and the guest kernel's log, likewise.
    pub stderr: Vec<u8>,
}

/// One output ring.
#[derive(Debug)]
struct Forwarder {
    ring: OutputRing,
    stream: Stream,
    /// Where it goes cannot take more now.
    blocked: bool,
    /// Where it went failed; bytes are thrown away.
    dead: bool,
}

/// Output rings and where they go.
#[derive(Debug)]
pub(crate) struct Forwarders {
    list: Vec<Forwarder>,
    output: Output,
    captured: Captured,
    /// The descriptors may be a terminal in raw mode, for which lines of the log need carriage returns.
    raw: bool,
    first: Option<Instant>,
    /// Bytes of output so far.
    bytes: u64,
}

/// What [`Forwarders::drain`] did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Drained {
    /// There is more to move right away.
    pub more: bool,
    /// The domain waited for this: it is to be told.
    pub tell: bool,
}

impl Forwarders {
    pub fn new(rings: impl IntoIterator<Item = (OutputRing, Stream)>, output: Output, raw: bool) -> Self {
        let forwarder = |(ring, stream)| Forwarder { ring, stream, blocked: false, dead: false };
        Self {
            list: rings.into_iter().map(forwarder).collect(),
            output,
            captured: Captured::default(),
            raw,
            first: None,
            bytes: 0,
        }
    }

    /// Sends output elsewhere from now on.
    pub fn set_output(&mut self, output: Output) {
        self.output = output;
    }

    /// What was kept so far.
    pub fn captured(&self) -> &Captured {
        &self.captured
    }

    /// Takes what was kept.
    pub fn take_captured(&mut self) -> Captured {
        std::mem::take(&mut self.captured)
    }

    /// Bytes taken from all rings, modulo 2^32.
    pub fn taken(&self) -> u32 {
        self.list.iter().fold(0, |sum, o| sum.wrapping_add(o.ring.taken()))
    }

    /// When the first byte of standard output was seen.
    pub fn first_output(&self) -> Option<Instant> {
        self.first
    }

    /// Bytes of output so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether output waits for standard output, and for standard error, to take more; or for a sink.
    pub fn blocked(&self) -> (bool, bool) {
        let any = |err: bool| self.list.iter().any(|o| o.blocked && (o.stream != Stream::Stdout) == err);
        (any(false), any(true))
    }

    /// Whether any output waits for where it goes.
    pub fn is_blocked(&self) -> bool {
        self.list.iter().any(|o| o.blocked)
    }

    /// Whether output goes to our own descriptors.
    pub fn is_ours(&self) -> bool {
        matches!(self.output, Output::Ours)
    }

    /// Says that nobody will read any more.
    pub fn hang_up(&self, map: &SharedMap) {
        for forwarder in &self.list {
            forwarder.ring.hang_up(map);
        }
    }

    /// Moves output as far as it goes now.
    pub fn drain(&mut self, map: &SharedMap) -> Result<Drained, Broken> {
        let mut all = Drained::default();
        for i in 0..self.list.len() {
            let room = self.tell_safe(map, i);
            let done = self.drain_one(map, i)?;
            all.more |= done.more;
            let ring = &self.list[i].ring;
            // One that holds all back has made no room.
            all.tell |= done.tell | ((room || !ring.holds_back()) && ring.take_producer_waits(map));
        }
        Ok(all)
    }

    /// Gives room back that bytes had which are safe by now.
    fn tell_safe(&mut self, map: &SharedMap, index: usize) -> bool {
        let Self { list, output: Output::To(sink), .. } = self else { return false };
        let Forwarder { ring, stream, .. } = &mut list[index];
        sink.safe(*stream).is_some_and(|at| ring.tell_taken(map, at))
    }

    /// What was taken and is not safe is taken again.
    pub fn rewind(&mut self) {
        for forwarder in &mut self.list {
            forwarder.ring.rewind();
        }
    }

    /// Bytes of a stream that were taken, modulo 2^32.
    pub fn taken_of(&self, stream: Stream) -> u32 {
        self.list.iter().find(|o| o.stream == stream).map_or(0, |o| o.ring.taken())
    }

    fn drain_one(&mut self, map: &SharedMap, index: usize) -> Result<Drained, Broken> {
        let Self { list, output, captured, raw, first, bytes } = self;
        let forwarder = &mut list[index];
        let done = Drained::default();
        forwarder.blocked = false;
        if forwarder.dead {
            forwarder.ring.discard(map)?;
            return Ok(Drained { more: !forwarder.ring.sleep(map)?, ..done });
        }
        let mut moved = 0;
        for _ in 0..PIECES_PER_STEP {
            if moved >= STEP {
                break;
            }
            let waiting = usize::try_from(forwarder.ring.available(map)?).expect("at most a ring");
            if waiting == 0 {
                if forwarder.ring.sleep(map)? {
                    return Ok(done);
                }
                continue;
            }
            // Descriptors take a little at a time; everybody else is spared the hand-overs.
            let mut buf = vec![0; if matches!(output, Output::Ours) { waiting.min(CHUNK) } else { waiting }];
            let n = forwarder.ring.peek(map, &mut buf)?;
            if first.is_none() && forwarder.stream == Stream::Stdout {
                *first = Some(Instant::now());
            }
            let put = match output {
                Output::Kept => {
                    captured.keep(forwarder.stream, &buf[..n]);
                    Ok(n)
                }
                Output::To(sink) => sink.put(forwarder.stream, forwarder.ring.taken(), &buf[..n]),
                Output::Ours => write_ours(forwarder.stream, &buf[..n], *raw),
            };
            match put {
                Ok(0) => {
                    forwarder.blocked = true;
                    return Ok(done);
                }
                Ok(count) => {
                    let count = count.min(n);
                    *bytes += count as u64;
                    moved += count;
                    match output {
                        Output::To(sink) if sink.safe(forwarder.stream).is_some() => {
                            forwarder.ring.take(count)
                        }
                        _ => forwarder.ring.advance(map, count),
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    forwarder.blocked = true;
                    return Ok(done);
                }
                Err(_) => {
                    // Nobody reads (EPIPE), or the disk is full: the program learns it as EPIPE.
                    forwarder.dead = true;
                    forwarder.ring.hang_up(map);
                    return Ok(Drained { more: true, tell: true });
                }
            }
        }
        Ok(Drained { more: true, ..done })
    }
}

impl Captured {
    fn keep(&mut self, stream: Stream, bytes: &[u8]) {
        let kept = if stream == Stream::Stdout { &mut self.stdout } else { &mut self.stderr };
        let room = CAPTURE_MAX - kept.len();
        kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
}

/// Writes to our own descriptor, if that does not block.
pub(crate) fn write_ours(stream: Stream, bytes: &[u8], raw: bool) -> io::Result<usize> {
    let (stdout, stderr) = (io::stdout(), io::stderr());
    let fd = if stream == Stream::Stdout { stdout.as_fd() } else { stderr.as_fd() };
    if !ready(fd, PollFlags::OUT) {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    if !(raw && stream == Stream::Log) {
        return Ok(rustix::io::write(fd, &bytes[..bytes.len().min(CHUNK)])?);
    }
    let bytes = &bytes[..bytes.len().min(CHUNK / 2)];
    let mut out = Vec::with_capacity(bytes.len() * 2);
    for byte in bytes {
        if *byte == b'\n' {
            out.push(b'\r');
        }
        out.push(*byte);
    }
    io::stderr().write_all(&out)?;
    Ok(bytes.len())
}

/// Whether a descriptor is ready now; one that cannot be polled is.
pub(crate) fn ready(fd: BorrowedFd<'_>, flags: PollFlags) -> bool {
    let zero = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut fds = [PollFd::from_borrowed_fd(fd, flags)];
    match rustix::event::poll(&mut fds, Some(&zero)) {
        Ok(n) => n > 0,
        Err(_) => true,
    }
}
