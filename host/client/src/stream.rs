//! Streams of lines.

use std::io::{self, BufRead, BufReader};
use std::marker::PhantomData;
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::de::DeserializeOwned;

use crate::wire::{Body, Connection};
use crate::{Error, Result};

/// Longest line.
const MAX_LINE: u64 = 16 << 20;

/// Values that come as lines of JSON.
#[derive(Debug)]
pub struct Lines<T> {
    body: BufReader<Body>,
    kind: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> Lines<T> {
    pub(crate) fn new(connection: Connection) -> Self {
        Self { body: BufReader::with_capacity(128 << 10, connection.into_body()), kind: PhantomData }
    }

    /// What ends the stream from another thread.
    ///
    /// # Errors
    /// The host's.
    pub fn stopper(&self) -> io::Result<Stopper> {
        self.body.get_ref().0.stopper()
    }

    /// Whether another line may be here already, so that what came before need not be shown yet.
    #[must_use]
    pub fn more_is_here(&self) -> bool {
        !self.body.buffer().is_empty() || self.body.get_ref().0.buffered()
    }
}

impl<T: DeserializeOwned> Iterator for Lines<T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        let mut line = Vec::new();
        let read = std::io::Read::take(&mut self.body, MAX_LINE).read_until(b'\n', &mut line);
        match read {
            Ok(0) => None,
            Ok(_) => Some(serde_json::from_slice(&line).map_err(|e| Error::Broken(e.to_string()))),
            Err(e) => Some(Err(e.into())),
        }
    }
}

/// Ends a stream from another thread.
#[derive(Debug)]
pub enum Stopper {
    /// Of a Unix socket.
    #[doc(hidden)]
    Unix(UnixStream),
    /// Of TCP.
    #[doc(hidden)]
    Tcp(TcpStream),
}

impl Stopper {
    /// Ends it: whoever reads sees the end.
    pub fn stop(&self) {
        // It may have ended by itself.
        let _ = match self {
            Self::Unix(s) => s.shutdown(Shutdown::Both),
            Self::Tcp(s) => s.shutdown(Shutdown::Both),
        };
    }

    /// Whether something has come, the end included.
    pub(crate) fn has_heard(&self) -> bool {
        let socket = match self {
            Self::Unix(s) => s.as_fd(),
            Self::Tcp(s) => s.as_fd(),
        };
        let mut looked = [PollFd::from_borrowed_fd(socket, PollFlags::IN)];
        poll(&mut looked, Some(&Timespec::default())).is_ok_and(|n| n > 0)
    }

    pub(crate) fn again(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Unix(s) => Self::Unix(s.try_clone()?),
            Self::Tcp(s) => Self::Tcp(s.try_clone()?),
        })
    }
}
