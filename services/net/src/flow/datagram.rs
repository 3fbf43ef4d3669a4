//! Datagrams between a channel and sockets of the host.
//!
//! A domain's datagram socket has at most one socket of the host for each family, from which it sends. What comes to one
//! of these is taken from those only to whom something was sent, as address translation has it, and after a connect from
//! the one peer (then the host's socket is connected too, which is how errors come to be known). What comes to a
//! published port is answered from there.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use doppel_abi_service::net::{
    BUFFER, DatagramHeader, End, SocketHeader, SocketOption, down_buffer, up_buffer,
};
use doppel_ring::{Reader, Stream, Ticket, Writer};
use doppel_service::{Broken, Channel};
use doppel_sys::datagram::Marks;
use doppel_sys::shared::{self, SharedMap};
use rustix::io::Errno;

use crate::channel::client::{EngineRequest, Published, Settings, Shared};
use crate::channel::quota::{Account, Ports, SocketLease};
use crate::channel::room::Room;
use crate::channel::share::Share;
use crate::flow::address;
use crate::flow::address_cache::AddressCache;
use crate::flow::egress::EgressSocket;
use crate::flow::live::Exchange;
use crate::flow::options::{Options, set};
use crate::flow::route::Route;
use crate::flow::stream::Turn;
use crate::rules::ledger::Counts;
use crate::rules::policy::{Flow, Policy};
use crate::rules::{Direction, Protocol, Transport};

mod echo;
mod errors;
mod live;

/// Room for the longest datagram.
pub(crate) const LONGEST: usize = 65_535;
/// Datagrams for other domains that a turn may leave behind.
const MOST_WISHES: usize = 32;

/// Who called at a published port: through which, and from which address of the host's view.
type Caller = (usize, SocketAddr);

/// A datagram socket of a domain.
#[derive(Debug)]
pub(crate) struct Datagrams {
    number: u32,
    /// UDP, or ICMP for echo.
    protocol: Protocol,
    /// Its address in the domain, wildcards included.
    pub at: End,
    /// Whom alone it wants to hear.
    peer: Option<SocketAddr>,
    /// For IPv4 and for IPv6.
    egress: [Option<(EgressSocket, SocketLease)>; 2],
    /// What it has received.
    room: Room,
    /// A program wants to know the marks of what comes.
    tells_marks: bool,
    /// What the host's sockets are to have.
    options: Options,
    /// To whom it has sent: the address the domain knows.
    flows: AddressCache<(SocketAddr, Exchange)>,
    callers: AddressCache<(Caller, Exchange)>,
    /// Domains to which it has sent, or which have sent to it.
    peers: AddressCache<Exchange>,
    counts: Counts,
    up: Reader,
    down: Writer,
    /// The guest kernel has given it up with this request; it goes once everything is sent.
    pub closed_by: Option<Ticket>,
    up_ended: bool,
}

/// What a turn of a socket needs of its client.
pub(crate) struct TurnContext<'a> {
    pub channel: &'a mut Channel,
    pub settings: &'a Settings,
    pub policy: &'a mut Policy,
    pub account: &'a Arc<Account>,
    pub directory: &'a Shared,
    pub wishes: &'a mut Vec<EngineRequest>,
    pub share: &'a mut Share,
    /// Whether it may send, and how long that took.
    pub may_burden: bool,
    pub burdened: &'a mut Duration,
    /// [`LONGEST`] bytes and more, of no meaning between turns.
    pub scratch: &'a mut [u8],
}

impl Datagrams {
    pub fn new(number: u32, protocol: Protocol, at: End, room: Room, counts: Counts) -> Self {
        Self {
            number,
            protocol,
            at,
            peer: None,
            egress: [None, None],
            room,
            tells_marks: false,
            options: Options::default(),
            flows: AddressCache::default(),
            callers: AddressCache::default(),
            peers: AddressCache::default(),
            counts,
            up: Reader::default(),
            down: Writer::default(),
            closed_by: None,
            up_ended: false,
        }
    }

    /// It is no more: gives back what its buffer takes.
    pub fn leave(&mut self, memory: &SharedMap) {
        self.room.end(memory, self.down.count());
    }

    /// What the host has for it in one family.
    pub fn descriptor(&self, v6: bool) -> Option<BorrowedFd<'_>> {
        self.egress[usize::from(v6)].as_ref().map(|(o, _)| o.socket.as_fd())
    }

    /// What the host has for its peer, if that is outside.
    pub fn connected(&self) -> Option<BorrowedFd<'_>> {
        self.peer.and_then(|peer| self.descriptor(peer.is_ipv6()))
    }

    /// Something happened to one of the host's sockets.
    pub fn happened(&mut self) {
        for (o, _) in self.egress.iter_mut().flatten() {
            (o.readable, o.writable, o.errors) = (true, true, true);
        }
    }

    /// Whether nothing is left to be done for a guest kernel that has given it up.
    pub fn is_over(&self) -> bool {
        self.closed_by.is_some() && self.up_ended
    }

    /// How well it fits what comes from an address: more is better, `None` not at all.
    pub fn wants(&self, from: SocketAddr) -> Option<bool> {
        match self.peer {
            None => Some(false),
            Some(peer) => (peer == from).then_some(true),
        }
    }

    fn header<'c>(&self, channel: &'c Channel) -> &'c SocketHeader {
        crate::channel::client::socket_header(channel, self.number)
    }

    /// Takes another peer, or none.
    pub fn set_peer(&mut self, to: Option<SocketAddr>, around: &mut TurnContext<'_>) -> Result<(), Errno> {
        if self.peer.take().is_some() {
            // A socket of the host that is connected is of no use for anything else.
            (self.egress, self.flows) = ([None, None], AddressCache::default());
        }
        let Some(to) = to else { return Ok(()) };
        if self.callers.get(&to).is_none()
            && let Some(real) = self.allowed(to, 0, around)?
        {
            // As Linux says that there is no port for datagrams.
            let no_port = |e| if e == Errno::ADDRNOTAVAIL { Errno::AGAIN } else { e };
            let socket = self.egress_socket(real, around).map_err(no_port)?;
            rustix::net::connect(&socket.socket, &real)?;
        }
        self.peer = Some(to);
        Ok(())
    }

    /// Asks the rules whether it may send there, and remembers that it did, and how many bytes. The host's form of the address; none: it is
    /// another domain's.
    fn allowed(
        &mut self,
        to: SocketAddr,
        len: usize,
        around: &mut TurnContext<'_>,
    ) -> Result<Option<SocketAddr>, Errno> {
        let way = self.route(to, around.settings);
        let real = match way {
            Route::Host(real) => Some(real),
            Route::Names(real) => real,
            Route::Domain => None,
        };
        let new = match real {
            Some(real) => self.flows.get(&real).is_none(),
            None => self.peers.get(&to).is_none(),
        };
        around.policy.send(way, to, self.protocol, new)?;
        if new {
            self.counts.sent().began();
        }
        let exchange = match real {
            Some(real) => {
                let (known, exchange) = self.flows.renew(real, || (to, Exchange::begin()));
                // The domain may know another address of it by now.
                *known = to;
                exchange
            }
            None => self.peers.renew(to, Exchange::begin),
        };
        exchange.sent += len as u64;
        Ok(real)
    }

    /// Whether `from`, which is another domain, has not been heard before.
    pub fn is_new(&self, from: SocketAddr) -> bool {
        self.peers.get(&from).is_none()
    }

    /// Whether `from` has not called at a published port before.
    pub fn is_new_caller(&self, from: SocketAddr) -> bool {
        self.callers.get(&from).is_none()
    }

    /// The same as [`Self::put`] for what another domain sent.
    pub fn heard(
        &mut self,
        channel: &mut Channel,
        from: SocketAddr,
        port: u16,
        marks: Marks,
        bytes: &[u8],
    ) -> Result<(), Broken> {
        if self.is_new(from) {
            self.counts.received().began();
        }
        self.peers.renew(from, Exchange::begin).received += bytes.len() as u64;
        self.put(channel, from, port, marks, bytes)
    }

    /// From now on datagrams are handed over with their marks, also those that come to these sockets of published ports.
    fn tell_marks(&mut self, published: &[Published]) {
        self.tells_marks = true;
        self.egress.iter().flatten().for_each(|(o, _)| o.tell_marks());
        for p in self.ports_of(published) {
            // As for the sockets.
            let v6 = address::own_of(&p.socket).is_some_and(|at| at.is_ipv6());
            let _ = doppel_sys::datagram::tell_marks(p.socket.as_fd(), v6);
        }
    }

    /// Sets an option to a value that was checked, also of sockets of published ports where it is how much of what comes may wait.
    pub fn set_option(
        &mut self,
        option: SocketOption,
        value: u32,
        published: &[Published],
    ) -> Result<(), Errno> {
        if option == SocketOption::ReceiveMarks {
            self.tell_marks(published);
            return Ok(());
        }
        self.options.put(option, value);
        for v6 in [false, true] {
            if let Some(socket) = self.descriptor(v6) {
                set(socket, v6, option, value)?;
            }
        }
        if option == SocketOption::ReceiveBuffer {
            for p in self.ports_of(published) {
                set(p.socket.as_fd(), false, option, value)?;
            }
        }
        Ok(())
    }

    /// The published ports that lead to it.
    fn ports_of<'a>(&self, published: &'a [Published]) -> impl Iterator<Item = &'a Published> + use<'a> {
        let port = (!self.is_echo()).then_some(self.at.port);
        published.iter().filter(move |p| Some(p.port) == port && p.protocol == Transport::Udp)
    }

    /// Gives up what other rules do not allow any more.
    pub fn judge_again(&mut self, channel: &mut Channel, settings: &Settings, policy: &Policy) {
        let keeps = |to: SocketAddr| policy.keeps(settings, Flow::Out(to), self.protocol);
        self.flows.retain(|_, (to, _)| keeps(*to));
        self.callers.retain(|_, ((published, real), _)| {
            let port = settings.published[*published].port;
            policy.keeps(settings, Flow::In(*real, port), Protocol::Udp)
        });
        // Judged again at the next datagram.
        self.peers = AddressCache::default();
        if let Some(peer) = self.peer
            && self.callers.get(&peer).is_none()
            && !keeps(peer)
        {
            self.egress = [None, None];
            self.tell(channel, Errno::ACCESS);
        }
    }

    /// The host's socket towards an address, made when it is first wanted.
    fn egress_socket(
        &mut self,
        to: SocketAddr,
        around: &mut TurnContext<'_>,
    ) -> Result<&mut EgressSocket, Errno> {
        let v6 = to.is_ipv6();
        let place = &mut self.egress[usize::from(v6)];
        if place.is_none() {
            // An echo's identifier is no port, but there are as few.
            let held = around.account.take(Some(Ports::Udp))?;
            let made = EgressSocket::new(to, self.protocol).map_err(|e| address::errno(&e))?;
            if self.tells_marks {
                made.tell_marks();
            }
            self.options.apply(made.socket.as_fd(), v6);
            *place = Some((made, held));
            around.wishes.push(EngineRequest::WatchDatagrams { number: self.number, v6 });
        }
        place.as_mut().map(|(socket, _)| socket).ok_or(Errno::NOBUFS)
    }

    /// Moves what can be moved, about `budget` bytes each way.
    pub fn turn(&mut self, around: &mut TurnContext<'_>, budget: usize) -> Result<Turn, Broken> {
        let begun = Instant::now();
        let mut turn = self.send(around, budget)?;
        *around.burdened += begun.elapsed();
        for v6 in [false, true] {
            turn = turn.and(self.receive(v6, around, budget)?);
        }
        Ok(turn)
    }

    fn send(&mut self, around: &mut TurnContext<'_>, budget: usize) -> Result<Turn, Broken> {
        let (mut done, mut looked) = (0, false);
        loop {
            if done >= budget || around.share.is_spent() || around.wishes.len() >= MOST_WISHES {
                return Ok(Turn::More);
            }
            let channel = &*around.channel;
            let stream = self.header(channel).up();
            let waiting = self.up.waiting(&stream)? as usize;
            if waiting == 0 {
                if self.closed_by.is_some() {
                    self.up_ended = true;
                } else if !self.up.sleep(&stream)? && !self.up.closed(&stream) {
                    // Not for ever: a peer may change its mind as often as it likes.
                    if std::mem::replace(&mut looked, true) {
                        return Ok(Turn::More);
                    }
                    continue;
                }
                return Ok(Turn::Idle);
            }
            if !around.may_burden {
                return Ok(Turn::Deferred);
            }
            if around.share.most(Direction::Out) == 0 {
                return Ok(Turn::HeldDescriptors);
            }
            let mut head = [0; DatagramHeader::SIZE];
            self.take(channel, &stream, 0, &mut head)?;
            let head = DatagramHeader::decode(&head);
            let room = DatagramHeader::room(head.len.into());
            if waiting < room {
                return Err(Broken);
            }
            let bytes = &mut around.scratch[..head.len.into()];
            self.take(channel, &stream, DatagramHeader::SIZE, bytes)?;
            match self.send_one(&head, around) {
                Err(Errno::AGAIN) => return Ok(Turn::Idle),
                Err(Errno::INTR) => continue,
                Err(e) => {
                    self.counts.sent().dropped();
                    self.tell(around.channel, e);
                }
                Ok(()) => self.counts.sent().moved(head.len.into()),
            }
            done += room;
            around.share.launched(Direction::Out, head.len.into());
            let stream = self.header(around.channel).up();
            if self.up.advance(&stream, room) && self.closed_by.is_none() {
                around.channel.mark(self.number);
            }
        }
    }

    /// Copies bytes of the up buffer, `skip` bytes after the next.
    fn take(&self, channel: &Channel, stream: &Stream<'_>, skip: usize, to: &mut [u8]) -> Result<(), Broken> {
        let mut done = 0;
        while done < to.len() {
            let span = self.up.span(stream, u32::try_from(skip + done).map_err(|_| Broken)?)?;
            let n = span.len.min(to.len() - done);
            if n == 0 {
                return Err(Broken);
            }
            channel
                .memory()
                .read(shared::offset(up_buffer(self.number)) + span.offset, &mut to[done..done + n]);
            done += n;
        }
        Ok(())
    }

    /// Sends a datagram, whose bytes are the first of `scratch`.
    fn send_one(&mut self, head: &DatagramHeader, around: &mut TurnContext<'_>) -> Result<(), Errno> {
        if self.is_echo() {
            return self.ask_echo(head, around);
        }
        let (to, len) = (address::socket_addr(&head.peer), usize::from(head.len));
        let marks = Marks { hops: head.hops, class: head.class };
        let port = if self.at.port == 0 { head.port } else { self.at.port };
        if let Some(((published, real), exchange)) = self.callers.get_mut(&to) {
            exchange.sent += len as u64;
            let (published, real) = (*published, *real);
            let socket = &around.settings.published[published].socket;
            // A socket that has no room loses it: it is not this domain's socket that waits there.
            return match rustix::net::sendto(socket, &around.scratch[..len], no_flags(), &real) {
                Ok(_) | Err(Errno::AGAIN) => Ok(()),
                Err(e) => Err(e),
            };
        }
        let real = self.allowed(to, len, around)?;
        if let Route::Names(server) = around.settings.route(to) {
            let directory = around.directory.lock().unwrap_or_else(PoisonError::into_inner);
            let answer = directory.answer(&around.settings.networks, &around.scratch[..len]);
            drop(directory);
            if let Some(answer) = answer {
                // A channel that is broken is found to be so by the next who looks.
                let _ = self.put(around.channel, to, port, Marks::UNKNOWN, &answer);
                return Ok(());
            }
            server.ok_or(Errno::CONNREFUSED)?;
        }
        let Some(real) = real else {
            around.wishes.push(EngineRequest::Datagram {
                socket: self.number,
                to,
                from_port: port,
                marks,
                bytes: around.scratch[..len].into(),
            });
            return Ok(());
        };
        self.send_out(real, marks, len, around)
    }

    /// Sends what is in `scratch` from the host.
    fn send_out(
        &mut self,
        real: SocketAddr,
        marks: Marks,
        len: usize,
        around: &mut TurnContext<'_>,
    ) -> Result<(), Errno> {
        let keeps = self.keeps_errors(real.is_ipv6());
        let socket = self.egress_socket(real, around)?;
        if !socket.writable {
            return Err(Errno::AGAIN);
        }
        let mut sent = socket.send(&around.scratch[..len], real, marks);
        if keeps && !matches!(sent, Ok(()) | Err(Errno::AGAIN)) {
            // The error may be that of an earlier one, which is kept: this one was not sent for it.
            (socket.errors, socket.readable) = (true, true);
            sent = socket.send(&around.scratch[..len], real, marks);
        }
        socket.writable = sent != Err(Errno::AGAIN);
        sent
    }

    fn receive(&mut self, v6: bool, around: &mut TurnContext<'_>, budget: usize) -> Result<Turn, Broken> {
        let mut done = 0;
        let more = if self.closed_by.is_none() { self.tell_kept(v6, around)? } else { false };
        while self.egress[usize::from(v6)].as_ref().is_some_and(|(o, _)| o.readable) {
            if self.closed_by.is_some() {
                break;
            }
            let Some((socket, _)) = self.egress[usize::from(v6)].as_mut() else { break };
            if done >= budget || around.share.is_spent() {
                return Ok(Turn::More);
            }
            if around.share.most(Direction::In) == 0 {
                return Ok(Turn::HeldDescriptors);
            }
            // Its length is known when it has been taken, so there must be room for any.
            let header = crate::channel::client::socket_header(around.channel, self.number);
            let any = DatagramHeader::room(LONGEST);
            if (self.down.room(&header.down())? as usize) < any {
                // The word is set; what it says of room is of no interest.
                let _ = self.down.sleep(&header.down())?;
                if (self.down.room(&header.down())? as usize) < any {
                    break;
                }
            }
            match socket.receive(around.scratch) {
                Ok((n, real, marks)) => {
                    done += DatagramHeader::room(n);
                    around.share.moved(Direction::In, n);
                    if let Some((from, exchange)) = self.flows.get_mut(&real) {
                        exchange.received += n as u64;
                        let from = *from;
                        let own = around.settings.own(from.ip());
                        if self.is_echo() && !self.takes_answer(&mut around.scratch[..n], from, own) {
                            continue;
                        }
                        if around.settings.route(from) == Route::Names(Some(real)) {
                            around.policy.heard_names(&around.scratch[..n]);
                        }
                        self.put(around.channel, from, self.at.port, marks, &around.scratch[..n])?;
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => socket.readable = false,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // Those that are kept have been told, or will be at the next look.
                Err(_) if self.keeps_errors(v6) => {}
                Err(e) => self.tell(around.channel, address::errno(&e)),
            }
        }
        Ok(if more { Turn::More } else { Turn::Idle })
    }

    /// Gives the domain a datagram that came for this socket, at `port`; lost if there is no room.
    pub fn put(
        &mut self,
        channel: &mut Channel,
        from: SocketAddr,
        port: u16,
        marks: Marks,
        bytes: &[u8],
    ) -> Result<(), Broken> {
        let Ok(len) = u16::try_from(bytes.len()) else { return Ok(()) };
        // Without hops it is a record.
        let Marks { hops, class } = if marks.hops == 0 { Marks::UNKNOWN } else { marks };
        let head = DatagramHeader { peer: address::end(from), len, hops, class, port };
        if self.put_behind(channel, &head, [bytes, &[]])? {
            self.counts.received().moved(bytes.len());
        } else {
            self.counts.received().dropped();
        }
        Ok(())
    }

    /// The same of what stands behind this header; false if it is lost.
    fn put_behind(
        &mut self,
        channel: &mut Channel,
        head: &DatagramHeader,
        parts: [&[u8]; 2],
    ) -> Result<bool, Broken> {
        let stream = self.header(channel).down();
        let room = DatagramHeader::room(parts.iter().map(|part| part.len()).sum());
        if (self.down.room(&stream)? as usize) < room || self.closed_by.is_some() {
            return Ok(false);
        }
        let (span, waiting) = (self.down.span(&stream, 0)?, BUFFER - self.down.room(&stream)?);
        if !self.room.datagram(channel.memory(), (span.offset, room), waiting) {
            return Ok(false);
        }
        let head = head.encode();
        let mut skip = 0;
        for mut part in [&head[..], parts[0], parts[1]] {
            while !part.is_empty() {
                let span = self.down.span(&stream, skip)?;
                let (now, rest) = part.split_at(span.len.min(part.len()));
                if now.is_empty() {
                    return Err(Broken);
                }
                channel.memory().write(shared::offset(down_buffer(self.number)) + span.offset, now);
                skip += u32::try_from(now.len()).unwrap_or(BUFFER);
                part = rest;
            }
        }
        if self.down.advance(&stream, room) {
            channel.mark(self.number);
        }
        Ok(true)
    }

    /// The same as [`Self::put`] for one that came through a published port.
    pub fn called(
        &mut self,
        channel: &mut Channel,
        from: SocketAddr,
        port: u16,
        caller: Caller,
        marks: Marks,
        bytes: &[u8],
    ) -> Result<(), Broken> {
        if self.is_new_caller(from) {
            self.counts.received().began();
        }
        let (known, exchange) = self.callers.renew(from, || (caller, Exchange::begin()));
        *known = caller;
        exchange.received += bytes.len() as u64;
        self.put(channel, from, port, marks, bytes)
    }

    /// An error for the guest kernel. As on Linux, one of UDP without a peer hears of none.
    pub fn tell(&mut self, channel: &mut Channel, error: Errno) {
        if self.closed_by.is_none() && (self.peer.is_some() || self.is_echo()) {
            let header = self.header(channel);
            header.error.store(error.raw_os_error().unsigned_abs(), Ordering::Release);
            channel.mark(self.number);
        }
    }
}

fn no_flags() -> rustix::net::SendFlags {
    rustix::net::SendFlags::NOSIGNAL
}
