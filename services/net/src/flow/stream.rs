//! Bytes between a channel and a socket of the host, moved by the host kernel in place.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::Instant;

use doppel_abi_service::net::{BUFFER, SocketHeader, down_buffer, up_buffer};
use doppel_ring::{Reader, Ticket, Writer};
use doppel_service::{Broken, Channel};
use doppel_sys::shared::{self, SharedMap};
use rustix::net::Shutdown;

use crate::channel::client::Caller;
use crate::channel::quota::SocketLease;
use crate::channel::room::Room;
use crate::channel::share::Share;
use crate::flow::live::FlowState;
use crate::flow::urgent::Next;
use crate::rules::Direction;
use crate::rules::ledger::Counts;
use crate::rules::policy::Flow;

/// Bytes for which a domain is woken before the turn is over.
const LARGE: usize = 32 << 10;

/// A connected stream.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) number: u32,
    link: OwnedFd,
    /// What the link takes of the domain's quota, and what it has received.
    _held: SocketLease,
    room: Room,
    /// Which flow it is, for rules that come later.
    pub flow: Flow,
    counts: Counts,
    pub(crate) up: Reader,
    pub(crate) down: Writer,
    /// The host's socket has an urgent byte that was not read yet; where in `down` the last one was.
    pub(crate) urging: bool,
    pub(crate) urged: Option<u32>,
    /// The host's socket may have bytes, or room: until it says otherwise (edges of epoll).
    pub readable: bool,
    pub writable: bool,
    /// The peer has ended its side: no event will tell so again.
    pub ending: bool,
    /// Nothing more is sent, or received.
    up_ended: bool,
    down_ended: bool,
    /// The domain's port, bytes that were moved, and since when it is there.
    pub port: u16,
    pub sent: u64,
    pub received: u64,
    pub since: Instant,
    /// The guest kernel has given it up; it goes once everything is sent.
    pub closing: bool,
    /// The request that did so.
    pub closed_by: Option<Ticket>,
    /// Who waits until it is taken.
    pub caller: Option<Caller>,
}

/// How a turn of a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Nothing to do until something happens.
    Idle,
    /// The budget is used up.
    More,
    /// What there is to do waits for its rate.
    HeldDescriptors,
    /// It burdens the service, and may not now.
    Deferred,
}

impl Turn {
    /// How both ended together.
    pub fn and(self, other: Self) -> Self {
        let is = |turn| self == turn || other == turn;
        if is(Self::More) {
            Self::More
        } else if is(Self::HeldDescriptors) {
            Self::HeldDescriptors
        } else if is(Self::Deferred) {
            Self::Deferred
        } else {
            Self::Idle
        }
    }
}

impl Stream {
    pub fn new(
        number: u32,
        link: OwnedFd,
        held: SocketLease,
        room: Room,
        (flow, port): (Flow, u16),
        counts: Counts,
    ) -> Self {
        Self {
            port,
            sent: 0,
            received: 0,
            since: Instant::now(),
            number,
            link,
            _held: held,
            room,
            flow,
            counts,
            up: Reader::default(),
            down: Writer::default(),
            urging: false,
            urged: None,
            readable: true,
            writable: true,
            ending: false,
            up_ended: false,
            down_ended: false,
            closing: false,
            closed_by: None,
            caller: None,
        }
    }

    /// How far it is.
    pub fn state(&self) -> FlowState {
        match (self.up_ended, self.down_ended) {
            (true, true) => FlowState::Closing,
            _ if self.closing => FlowState::Closing,
            (false, false) => FlowState::Established,
            _ => FlowState::HalfClosed,
        }
    }

    pub fn link(&self) -> &OwnedFd {
        &self.link
    }

    /// Whether nothing is left to be done for a guest kernel that has given it up.
    pub fn is_over(&self) -> bool {
        self.closing && self.up_ended
    }

    pub(crate) fn header<'c>(&self, channel: &'c Channel) -> &'c SocketHeader {
        crate::channel::client::socket_header(channel, self.number)
    }

    /// Moves what can be moved, at most `budget` bytes each way.
    pub fn turn(&mut self, channel: &mut Channel, budget: usize, share: &mut Share) -> Result<Turn, Broken> {
        let up = self.send(channel, budget, share)?;
        let down = self.receive(channel, budget, share)?;
        Ok(up.and(down))
    }

    /// Moves what can be sent, at most `budget` bytes.
    pub fn send(&mut self, channel: &mut Channel, budget: usize, share: &mut Share) -> Result<Turn, Broken> {
        let (mut done, mut looked) = (0, false);
        while !self.up_ended {
            if done >= budget || share.is_spent() {
                return Ok(Turn::More);
            }
            let stream = self.header(channel).up();
            // Before the look for bytes: those that came before the end are sent.
            let ended = self.closing || self.up.closed(&stream);
            let span = self.up.span(&stream, 0)?;
            if span.len == 0 {
                if ended {
                    self.up_ended = true;
                    // A peer that has gone is told by reading.
                    let _ = rustix::net::shutdown(&self.link, Shutdown::Write);
                } else if !self.up.sleep(&stream)? {
                    // Not for ever: a peer may change its mind as often as it likes.
                    if std::mem::replace(&mut looked, true) {
                        return Ok(Turn::More);
                    }
                    continue;
                }
                break;
            }
            if !self.writable {
                break;
            }
            let most = share.most(Direction::Out);
            if most == 0 {
                return Ok(Turn::HeldDescriptors);
            }
            let offset = shared::offset(up_buffer(self.number)) + span.offset;
            let want = span.len.min(budget - done).min(most);
            let sent = match self.before_urgent(channel, want) {
                Next::Bytes(n) => channel.memory().write_to(self.link.as_fd(), offset, n),
                Next::Urgent => self.send_urgent(channel, span.offset).map(|()| 1).map_err(io::Error::from),
            };
            match sent {
                Ok(n) => {
                    done += n;
                    share.moved(Direction::Out, n);
                    self.counts.sent().moved(n);
                    self.sent += n as u64;
                    if self.up.advance(&stream, n) {
                        self.mark(channel);
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.writable = false,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => self.fail(channel, &e),
            }
        }
        Ok(Turn::Idle)
    }

    fn receive(&mut self, channel: &mut Channel, budget: usize, share: &mut Share) -> Result<Turn, Broken> {
        let (mut done, mut looked) = (0, false);
        while !self.down_ended && self.readable {
            if done >= budget || share.is_spent() {
                return Ok(Turn::More);
            }
            self.find_urgent(channel)?;
            let stream = self.header(channel).down();
            let span = self.down.span(&stream, 0)?;
            if span.len == 0 || self.closing {
                if self.closing || !self.down.sleep(&stream)? {
                    // Nobody will read, or there is room now.
                    if self.closing || self.down.hung_up(&stream) {
                        self.down_ended = true;
                    } else if std::mem::replace(&mut looked, true) {
                        return Ok(Turn::More);
                    }
                    continue;
                }
                break;
            }
            let offset = shared::offset(down_buffer(self.number)) + span.offset;
            let most = share.most(Direction::In);
            if most == 0 {
                return Ok(Turn::HeldDescriptors);
            }
            let want = span.len.min(budget - done).min(most);
            let waiting = BUFFER - self.down.room(&stream)?;
            let at_most = want;
            let want = self.room.stream(channel.memory(), (span.offset, at_most), waiting);
            if want == 0 {
                // The guest kernel says when it has taken some, or has touched more, if it has not just done so.
                let _ = self.down.sleep(&stream)?;
                let same = BUFFER - self.down.room(&stream)? == waiting;
                if same && self.room.stream(channel.memory(), (span.offset, at_most), waiting) == 0 {
                    break;
                }
                if std::mem::replace(&mut looked, true) {
                    return Ok(Turn::More);
                }
                continue;
            }
            match channel.memory().read_from(&self.link, offset, want) {
                Ok(0) => {
                    self.down_ended = true;
                    if self.down.close(&self.header(channel).down()) {
                        self.mark(channel);
                    }
                }
                Ok(n) => {
                    done += n;
                    share.moved(Direction::In, n);
                    self.counts.received().moved(n);
                    self.received += n as u64;
                    // Less than asked for: the host's socket is empty, and says so when it is no more.
                    self.readable = n == want || self.ending || self.urging;
                    if self.down.advance(&stream, n) {
                        self.mark(channel);
                        if n >= LARGE {
                            // The domain takes these while more are fetched.
                            channel.wake();
                        }
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.readable = false,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => self.fail(channel, &e),
            }
        }
        Ok(Turn::Idle)
    }

    /// It is no more: gives back what its buffer takes.
    pub fn leave(&mut self, memory: &SharedMap) {
        self.room.end(memory, self.down.count());
    }

    /// Ends it for both sides, as a rule says.
    pub fn cut(&mut self, channel: &mut Channel) {
        // A connection of the host is reset by this; a pair has no such thing.
        if rustix::net::connect_unspec(&self.link).is_err() {
            let _ = rustix::net::shutdown(&self.link, Shutdown::Both);
        }
        self.fail(channel, &rustix::io::Errno::CONNRESET.into());
    }

    /// Has the guest kernel look at it, as long as a program may.
    pub(crate) fn mark(&self, channel: &mut Channel) {
        if self.closed_by.is_none() {
            channel.mark(self.number);
        }
    }

    /// The connection is no more: an error for the guest kernel, and the end in both directions.
    fn fail(&mut self, channel: &mut Channel, error: &io::Error) {
        let number = crate::flow::address::errno(error).raw_os_error();
        let header = self.header(channel);
        header.error.store(number.unsigned_abs(), Ordering::Release);
        // Whether or not it asked, the guest kernel is told below.
        let _ = self.down.close(&header.down());
        let _ = self.up.hang_up(&header.up());
        self.up_ended = true;
        self.down_ended = true;
        self.mark(channel);
    }
}
