//! What a shard's service domains have from their supervisor, one after the other, and how a successor of that takes it.
//!
//! A service domain that outlives its supervisor is born with a copy of each ([`ServiceResources::estate`]) at numbers that do not
//! change, of which it makes no use itself. It could put something else there, so what is taken is looked at.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use doppel_service::{Calls, Heartbeat, Process, check_bell};
use rustix::event::EventfdFlags;
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_domain, socket_type};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::rules::ledger::Ledger;

/// How long a service domain may take to make room for an order.
const ROOM: Duration = Duration::from_secs(5);
/// The numbers, from the first after the standard streams on, which is the pipe that tells of the supervisor's end.
const CONTROL: RawFd = 4;
const LEDGER: RawFd = 5;
const BELL: RawFd = 6;
const LOG: RawFd = 7;
const LINES: RawFd = 8;
const HEART: RawFd = 9;
const ALARM: RawFd = 10;
const CALLS: RawFd = 11;

/// All of it but the orders' socket, which each has its own of.
#[derive(Debug)]
pub(crate) struct ServiceResources {
    pub ledger: Arc<Ledger>,
    pub heart: Arc<Heartbeat>,
    pub calls: Arc<Calls>,
    /// Rung when there is news for a hibernated domain.
    pub bell: OwnedFd,
    /// The service domain's end of the log, and ours.
    log: OwnedFd,
    pub lines: OwnedFd,
}

impl ServiceResources {
    /// For a shard that has had no service domain yet.
    pub fn new() -> io::Result<Self> {
        let bell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (lines, log) = pair(SocketFlags::NONBLOCK)?;
        let (ledger, heart, calls) = (Ledger::new()?, Arc::new(Heartbeat::new()?), Arc::new(Calls::new()?));
        Ok(Self { ledger, heart, calls, bell, log, lines })
    }

    /// The descriptors of the first order.
    pub fn files(&self) -> [BorrowedFd<'_>; 6] {
        let (heart, calls) = (&self.heart, &self.calls);
        [self.ledger.file(), self.bell.as_fd(), self.log.as_fd(), heart.file(), heart.alarm(), calls.bell()]
    }

    /// What a service domain that outlives its supervisor is born with. `control`: our end of its orders' socket.
    pub fn estate<'a>(&'a self, life: BorrowedFd<'a>, control: &'a OwnedFd) -> [BorrowedFd<'a>; 9] {
        let [ledger, bell, log, heart, alarm, calls] = self.files();
        [life, control.as_fd(), ledger, bell, log, self.lines.as_fd(), heart, alarm, calls]
    }

    /// What a service domain was born with, and our end of its orders' socket.
    pub fn take(process: &Process) -> io::Result<(Self, OwnedFd)> {
        let socket = |number| -> io::Result<OwnedFd> {
            let socket = process.take(number)?;
            let is = (socket_domain(&socket)?, socket_type(&socket)?);
            if is == (AddressFamily::UNIX, SocketType::SEQPACKET) {
                Ok(socket)
            } else {
                Err(io::Error::new(io::ErrorKind::InvalidData, "a socket that was taken is another one"))
            }
        };
        let bell = process.take(BELL)?;
        check_bell(&bell)?;
        let calls = process.take(CALLS)?;
        check_bell(&calls)?;
        let control = socket(CONTROL)?;
        set_socket_timeout(&control, Timeout::Send, Some(ROOM))?;
        let gear = Self {
            ledger: Ledger::taken(process.take(LEDGER)?)?,
            heart: Arc::new(Heartbeat::taken(process.take(HEART)?, process.take(ALARM)?)?),
            calls: Arc::new(Calls::with(calls)?),
            bell,
            log: socket(LOG)?,
            lines: socket(LINES)?,
        };
        Ok((gear, control))
    }
}

/// Two ends of a socket of packets.
pub(crate) fn pair(flags: SocketFlags) -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | flags;
    Ok(rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// A socket for orders: our end, and the service domain's.
pub(crate) fn orders() -> io::Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) = pair(SocketFlags::empty())?;
    // One that takes none is as good as dead.
    set_socket_timeout(&ours, Timeout::Send, Some(ROOM))?;
    Ok((ours, theirs))
}
