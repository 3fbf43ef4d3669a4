//! What rules have written down, and who is called, from all shards.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::manager::placement::Placement;
use crate::rules::policy::{Line, read_log};

/// The supervisor's end of the logs. As a descriptor it is readable when there is a line.
#[derive(Clone, Debug)]
pub struct Logs {
    readable: Arc<OwnedFd>,
    ends: Arc<[OwnedFd]>,
    book: Arc<Mutex<Placement>>,
}

impl Logs {
    /// Of these shards, in their order.
    pub(crate) fn new(ends: Vec<OwnedFd>, book: Arc<Mutex<Placement>>) -> io::Result<Self> {
        let readable = epoll::create(CreateFlags::CLOEXEC)?;
        for end in &ends {
            epoll::add(&readable, end, EventData::new_u64(0), EventFlags::IN)?;
        }
        Ok(Self { readable: Arc::new(readable), ends: ends.into(), book })
    }

    /// The next line that waits, if one does.
    #[must_use]
    pub fn next_line(&self) -> Option<Line> {
        self.ends.iter().enumerate().find_map(|(shard, end)| {
            loop {
                let line = read_log(end.as_fd())?;
                let book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
                // A shard speaks of those whom it serves; that of one that has ended is of no interest.
                if book.shard_of(line.key) == Some(shard) {
                    return Some(line);
                }
            }
        })
    }
}

/// Bells of all shards. As a descriptor it is readable when one of them has been rung.
#[derive(Debug)]
pub struct Bells {
    readable: OwnedFd,
    all: Vec<OwnedFd>,
}

impl Bells {
    pub(crate) fn new(all: Vec<OwnedFd>) -> io::Result<Self> {
        let readable = epoll::create(CreateFlags::CLOEXEC)?;
        for bell in &all {
            epoll::add(&readable, bell, EventData::new_u64(0), EventFlags::IN)?;
        }
        Ok(Self { readable, all })
    }

    /// Takes note of all that were rung.
    pub fn heard(&self) {
        for bell in &self.all {
            let mut fds = [PollFd::new(bell, PollFlags::IN)];
            // Looked at first: it is shared with the service domain, which could have a read wait.
            if matches!(rustix::event::poll(&mut fds, Some(&Timespec::default())), Ok(1..)) {
                // Nothing to read is as good.
                let _ = rustix::io::read(bell, &mut [0; 8]);
            }
        }
    }
}

impl AsFd for Bells {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }
}

impl AsFd for Logs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }
}
