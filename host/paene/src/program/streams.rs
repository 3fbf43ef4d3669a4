//! A program's streams: bytes between rings and pipes or a terminal. Nothing here waits; the attendant's loop asks what to
//! wait for.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use doppel_sys::shared::SharedMap;
use rustix::event::PollFlags;
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::pipe::PipeFlags;

use crate::program::request::Request;
use crate::program::ring::Ring;

/// Most bytes moved at a time.
const CHUNK: usize = 32 << 10;
/// Most chunks moved of one stream before others have their turn.
const TURNS: usize = 8;
/// What a terminal takes for the end of input (VEOF).
const END_OF_INPUT: u8 = 4;

/// Output on its way from a descriptor to a ring.
#[derive(Debug)]
struct Outward {
    ring: Ring,
    from: Option<Arc<OwnedFd>>,
    /// There was no room.
    full: bool,
}

/// Input on its way from a ring to a descriptor.
#[derive(Debug)]
struct Inward {
    ring: Ring,
    to: Option<Arc<OwnedFd>>,
    /// Taken from the ring, not yet written.
    held: Vec<u8>,
    /// Its end is told with a character.
    terminal: bool,
}

/// What a program is given: its own ends.
#[derive(Debug)]
pub(crate) struct Theirs {
    pub stdin: OwnedFd,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
}

/// All streams of a program.
#[derive(Debug)]
pub(crate) struct Streams {
    input: Inward,
    output: [Outward; 2],
}

/// What [`Streams::pump`] has done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pumped {
    /// The host is to be told.
    pub tell: bool,
    /// There is more to move right away.
    pub more: bool,
}

fn null() -> Result<OwnedFd, Errno> {
    rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, rustix::fs::Mode::empty())
}

fn unblock(fd: &OwnedFd) -> Result<(), Errno> {
    rustix::fs::fcntl_setfl(fd, rustix::fs::fcntl_getfl(fd)? | OFlags::NONBLOCK)
}

impl Streams {
    /// Streams between three rings and new pipes; with a terminal there are no pipes: [`Self::terminal`] comes later.
    pub fn new([stdin, stdout, stderr]: [Ring; 3], request: &Request) -> Result<(Self, Theirs), Errno> {
        let mut streams = Self {
            input: Inward { ring: stdin, to: None, held: Vec::new(), terminal: request.tty() },
            output: [stdout, stderr].map(|ring| Outward { ring, from: None, full: false }),
        };
        if request.tty() {
            return Ok((streams, Theirs { stdin: null()?, stdout: null()?, stderr: null()? }));
        }
        let pipe = || {
            let (from, to) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
            unblock(&from)?;
            Ok::<_, Errno>((from, to))
        };
        let ((out, stdout), (err, stderr)) = (pipe()?, pipe()?);
        streams.output[0].from = Some(Arc::new(out));
        streams.output[1].from = Some(Arc::new(err));
        let stdin = if request.stdin() {
            let (stdin, to) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
            unblock(&to)?;
            streams.input.to = Some(Arc::new(to));
            stdin
        } else {
            null()?
        };
        Ok((streams, Theirs { stdin, stdout, stderr }))
    }

    /// The program has this terminal.
    pub fn terminal(&mut self, master: OwnedFd, request: &Request) -> Result<(), Errno> {
        unblock(&master)?;
        let master = Arc::new(master);
        if request.stdin() {
            self.input.to = Some(master.clone());
        }
        self.output[0].from = Some(master);
        Ok(())
    }

    /// Its terminal, if it has one that is still there.
    pub fn master(&self) -> Option<BorrowedFd<'_>> {
        self.output[0].from.as_ref().filter(|_| self.input.terminal).map(|fd| fd.as_fd())
    }

    /// Moves what can be moved now.
    pub fn pump(&mut self, map: &SharedMap) -> Pumped {
        let mut done = self.input.pump(map);
        for output in &mut self.output {
            let one = output.pump(map);
            done.tell |= one.tell;
            done.more |= one.more;
        }
        done
    }

    /// What to wait for.
    pub fn interests(&self) -> impl Iterator<Item = (BorrowedFd<'_>, PollFlags)> {
        let output = self.output.iter().filter(|o| !o.full).filter_map(|o| o.from.as_ref());
        let input = self.input.to.as_ref().filter(|_| !self.input.held.is_empty());
        output.map(|fd| (fd.as_fd(), PollFlags::IN)).chain(input.map(|fd| (fd.as_fd(), PollFlags::OUT)))
    }

    /// Whether output is left that has no room in its ring; asked once the program has ended and all was pumped.
    pub fn is_full(&self) -> bool {
        self.output.iter().any(|o| o.full && o.from.is_some())
    }

    /// Nobody is at the other end any more.
    pub fn hang_up(&mut self) {
        self.input.to = None;
        for output in &mut self.output {
            output.from = None;
        }
    }
}

impl Outward {
    fn pump(&mut self, map: &SharedMap) -> Pumped {
        let mut done = Pumped::default();
        self.full = false;
        if self.from.is_some() && self.ring.hung_up(map) {
            // The program finds its pipe broken, or its terminal hung up.
            self.from = None;
        }
        let mut buf = vec![0; CHUNK];
        for _ in 0..TURNS {
            let Some(from) = &self.from else { return done };
            let room = self.ring.room(map).min(buf.len());
            if room == 0 {
                self.full = true;
                return done;
            }
            match rustix::io::read(from, &mut buf[..room]) {
                Ok(n) if n > 0 => done.tell |= self.ring.produce(map, &buf[..n]).tell,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return done,
                // The end; of a terminal, EIO says so.
                _ => self.from = None,
            }
        }
        Pumped { more: true, ..done }
    }
}

impl Inward {
    fn pump(&mut self, map: &SharedMap) -> Pumped {
        let mut done = Pumped::default();
        for _ in 0..TURNS {
            let Some(to) = &self.to else { return done };
            if self.held.is_empty() {
                let mut buf = vec![0; CHUNK];
                // Read before the ring is: what comes before the end is in it by then.
                let closed = self.ring.closed(map);
                let moved = self.ring.consume(map, &mut buf);
                done.tell |= moved.tell;
                if moved.bytes == 0 {
                    if closed {
                        if self.terminal {
                            // If it takes no more now, nobody reads it.
                            let _ = rustix::io::write(to, &[END_OF_INPUT]);
                        }
                        self.to = None;
                    }
                    return done;
                }
                buf.truncate(moved.bytes);
                self.held = buf;
            }
            match rustix::io::write(to, &self.held) {
                Ok(n) => drop(self.held.drain(..n)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return done,
                Err(_) => {
                    // Nobody reads: what comes is thrown away, as it never gets to anybody.
                    self.held.clear();
                    self.to = None;
                }
            }
        }
        Pumped { more: true, ..done }
    }
}
