//! Where a domain's output goes.

use std::io;

/// What an output byte belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stream {
    /// The program's standard output; with a terminal, all of it.
    Stdout,
    /// The program's standard error.
    Stderr,
    /// What the guest kernel says, and traced system calls.
    Log,
}

/// A place for output that is neither our own descriptors nor memory: a log file, a socket, a test.
pub trait Sink: Send {
    /// Takes bytes of a stream without waiting, behind the first `at` (modulo 2^32); says how many. [`io::ErrorKind::WouldBlock`] or 0 for none: the rest
    /// stays in the domain's ring, whose programs then block, until [`crate::Fleet::unblock`]. After any other error
    /// the stream is closed and programs that write to it get EPIPE.
    ///
    /// # Errors
    /// As above.
    fn put(&mut self, stream: Stream, at: u32, bytes: &[u8]) -> io::Result<usize>;

    /// Up to where (modulo 2^32) the bytes of a stream that it took outlive this process; until then they stay in the
    /// domain's ring, where a successor finds them. None: all that it took do.
    fn safe(&self, _: Stream) -> Option<u32> {
        None
    }
}

/// Where a domain's output goes.
#[derive(Default)]
pub enum Output {
    /// To our own standard output and error.
    #[default]
    Ours,
    /// To memory ([`crate::Captured`]).
    Kept,
    /// To a place of the caller's.
    To(Box<dyn Sink>),
}

impl std::fmt::Debug for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Ours => "Ours",
            Self::Kept => "Kept",
            Self::To(_) => "To",
        })
    }
}
