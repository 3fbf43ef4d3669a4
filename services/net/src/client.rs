//! One domain: its channel, its sockets, what it may do.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use doppel_abi_service::OBJECTS;
use doppel_abi_service::net::{ACCEPTED, Answer, End, Request, SOCKETS, SocketHeader, SocketOption};
use doppel_ring::{Entry, Ticket};
use doppel_service::{Broken, Channel};
use rustix::io::Errno;
use socket2::{Domain, SockRef, Socket, TcpKeepalive, Type};

use crate::address;
use crate::rules::{Protocol, Rules};
use crate::stream::{Stream, Turn};

/// A port of the host that leads to one of a domain.
#[derive(Debug)]
pub struct Published {
    /// The domain's port.
    pub port: u16,
    /// The host's listening socket, non-blocking. The supervisor made it and has it too, so that connections wait in
    /// it while a service domain is replaced.
    pub listener: OwnedFd,
}

/// What the supervisor says of a client.
#[derive(Debug)]
pub struct Settings {
    /// Its virtual network; those on one reach each other.
    pub network: u32,
    /// Its addresses there.
    pub ip4: Ipv4Addr,
    /// Its IPv6 address.
    pub ip6: Ipv6Addr,
    /// What it may do.
    pub rules: Rules,
    /// Ports of the host.
    pub published: Vec<Published>,
}

impl Settings {
    /// Whether this is one of the domain's addresses.
    #[must_use]
    pub fn is_own(&self, ip: IpAddr) -> bool {
        ip == self.ip4 || ip == self.ip6
    }
}

/// Requests heard in a turn, and answers that may wait for room.
const BATCH: usize = 64;
/// Connections accepted from one listener in a turn.
const ACCEPTS: usize = 16;

/// A socket of a client.
#[derive(Debug)]
enum Entity {
    /// A connection of the host that is being made.
    Connecting { socket: Socket, ticket: Ticket },
    /// A connection.
    Stream(Box<Stream>),
    /// Takes connections at a port.
    Listener(End),
}

/// What a client wants that its engine has to do: it concerns the poll, or another client.
#[derive(Debug)]
pub(crate) enum Wish {
    /// Tell me of this socket's events.
    Watch(u32),
    /// A connection to another domain.
    Peer { socket: u32, ticket: Ticket, to: SocketAddr, from_port: u16 },
}

/// One domain.
#[derive(Debug)]
pub(crate) struct Client {
    pub channel: Channel,
    pub settings: Settings,
    sockets: HashMap<u32, Entity>,
    /// Numbers of accepted connections that were given back; beyond them, those from `fresh` on.
    free: Vec<u32>,
    fresh: u32,
    /// Answers for which the ring had no room.
    answers: VecDeque<Entry>,
    /// Streams with something to do.
    busy: VecDeque<u32>,
    /// Published ports with connections that may wait.
    callers: Vec<usize>,
    pub wishes: Vec<Wish>,
}

/// The header of a socket. `number` is below [`OBJECTS`].
pub(crate) fn socket_header(channel: &Channel, number: u32) -> &SocketHeader {
    channel.get(SOCKETS + u64::from(number) * size_of::<SocketHeader>() as u64)
}

impl Client {
    pub fn new(channel: Channel, settings: Settings) -> Self {
        let callers = (0..settings.published.len()).collect();
        Self {
            channel,
            settings,
            sockets: HashMap::new(),
            free: Vec::new(),
            fresh: ACCEPTED,
            answers: VecDeque::new(),
            busy: VecDeque::new(),
            callers,
            wishes: Vec::new(),
        }
    }

    /// What the host has for a socket that it may be watched by.
    pub fn descriptor(&self, number: u32) -> Option<std::os::fd::BorrowedFd<'_>> {
        use std::os::fd::AsFd;
        match self.sockets.get(&number)? {
            Entity::Connecting { socket, .. } => Some(socket.as_fd()),
            Entity::Stream(s) => Some(s.link().as_fd()),
            Entity::Listener(_) => None,
        }
    }

    /// Something happened to a socket of the host.
    pub fn happened(&mut self, number: u32, readable: bool, writable: bool, ending: bool) {
        match self.sockets.get_mut(&number) {
            Some(Entity::Stream(s)) => {
                s.readable |= readable || ending;
                s.writable |= writable || ending;
                s.ending |= ending;
                self.busy.push_back(number);
            }
            Some(Entity::Connecting { .. }) if writable || readable || ending => self.connected(number),
            _ => {}
        }
    }

    /// A published port has connections.
    pub fn called(&mut self, published: usize) {
        if !self.callers.contains(&published) {
            self.callers.push(published);
        }
    }

    /// One turn, of at most `budget` bytes a stream and direction. [`Turn::More`]: there is more to do.
    pub fn turn(&mut self, budget: usize) -> Result<Turn, Broken> {
        self.flush()?;
        // Whoever does not take answers is not heard either, so they are bounded.
        if self.answers.is_empty() {
            let heard = self.channel.hear(BATCH)?;
            for entry in &heard.requests {
                let (request, ticket) = Request::decode(entry).map_err(|_| Broken)?;
                self.asked(request, ticket)?;
            }
            self.busy.extend(heard.marked);
        }
        self.accept();
        for _ in 0..self.busy.len() {
            let Some(number) = self.busy.pop_front() else { break };
            self.move_bytes(number, budget)?;
        }
        self.flush()?;
        self.channel.wake();
        let idle = self.busy.is_empty() && self.channel.sleep()?;
        Ok(if idle { Turn::Idle } else { Turn::More })
    }

    fn flush(&mut self) -> Result<(), Broken> {
        while let Some(entry) = self.answers.front() {
            if !self.channel.answer(entry)? {
                break;
            }
            self.answers.pop_front();
        }
        Ok(())
    }

    fn answer(&mut self, answer: Answer) {
        self.answers.push_back(answer.encode());
    }

    fn done(&mut self, ticket: Ticket, result: Result<End, Errno>) {
        let (error, local) = match result {
            Ok(local) => (0, local),
            Err(e) => (u16::try_from(e.raw_os_error()).unwrap_or(u16::MAX), End::default()),
        };
        self.answer(Answer::Done { ticket, error, local });
    }

    fn asked(&mut self, request: Request, ticket: Ticket) -> Result<(), Broken> {
        let fresh = |n: u32| n < ACCEPTED && !self.sockets.contains_key(&n);
        match request {
            Request::Connect { socket, from, to } => {
                if !fresh(socket) {
                    return Err(Broken);
                }
                self.connect(socket, ticket, from.port, address::socket_addr(&to));
            }
            Request::Listen { socket, at, .. } => {
                if !fresh(socket) {
                    return Err(Broken);
                }
                self.sockets.insert(socket, Entity::Listener(at));
                self.callers = (0..self.settings.published.len()).collect();
                self.done(ticket, Ok(at));
            }
            Request::Datagrams { .. } => self.done(ticket, Err(Errno::PROTONOSUPPORT)),
            Request::Set { socket, option, value } => {
                let result = match self.sockets.get(&socket) {
                    Some(Entity::Stream(s)) => set(SockRef::from(s.link()), option, value),
                    Some(Entity::Connecting { socket, .. }) => set(SockRef::from(socket), option, value),
                    Some(Entity::Listener(_)) => Ok(()),
                    None => Err(Errno::BADF),
                };
                self.done(ticket, result.map(|()| End::default()));
            }
            Request::Close { socket, reset } => self.close(socket, ticket, reset),
        }
        Ok(())
    }

    fn close(&mut self, number: u32, ticket: Ticket, reset: bool) {
        match self.sockets.get_mut(&number) {
            Some(Entity::Stream(s)) if !reset => {
                s.closing = true;
                s.closed_by = Some(ticket);
                self.busy.push_back(number);
            }
            Some(entity) => {
                if let Entity::Stream(s) = entity {
                    // What is not sent is dropped, and the peer sees a reset.
                    let _ = SockRef::from(s.link()).set_linger(Some(std::time::Duration::ZERO));
                }
                self.forget(number);
                self.done(ticket, Ok(End::default()));
            }
            None => self.done(ticket, Err(Errno::BADF)),
        }
    }

    fn forget(&mut self, number: u32) {
        if self.sockets.remove(&number).is_some() && number >= ACCEPTED {
            self.free.push(number);
        }
    }

    fn connect(&mut self, number: u32, ticket: Ticket, from_port: u16, to: SocketAddr) {
        // Within the virtual networks the engine knows the way, but to the host.
        let host = as_host(to);
        if is_virtual(to.ip()) && host.is_none() {
            self.wishes.push(Wish::Peer { socket: number, ticket, to, from_port });
            return;
        }
        if !self.settings.rules.outbound(to.ip(), to.port(), Protocol::Tcp) {
            return self.done(ticket, Err(Errno::ACCESS));
        }
        match begin(host.unwrap_or(to)) {
            Ok(socket) => {
                self.sockets.insert(number, Entity::Connecting { socket, ticket });
                self.wishes.push(Wish::Watch(number));
            }
            Err(e) => self.done(ticket, Err(errno(&e))),
        }
    }

    /// A connection of the host is made, or has failed.
    fn connected(&mut self, number: u32) {
        let Some(Entity::Connecting { socket, ticket }) = self.sockets.remove(&number) else { return };
        let failed = match socket.take_error() {
            Ok(None) if socket.peer_addr().is_ok() => None,
            // Still under way: an event of its beginning.
            Ok(None) => {
                self.sockets.insert(number, Entity::Connecting { socket, ticket });
                return;
            }
            Ok(Some(e)) | Err(e) => Some(e),
        };
        match failed {
            None => self.begin_stream(number, socket.into(), ticket),
            Some(e) => self.done(ticket, Err(errno(&e))),
        }
    }

    /// From now on `number`, which the guest kernel chose, is this connection.
    pub fn begin_stream(&mut self, number: u32, link: OwnedFd, ticket: Ticket) {
        self.sockets.insert(number, Entity::Stream(Box::new(Stream::new(number, link))));
        self.busy.push_back(number);
        self.done(ticket, Ok(End::default()));
    }

    /// A connection could not be made.
    pub fn refuse(&mut self, ticket: Ticket, why: Errno) {
        self.done(ticket, Err(why));
    }

    /// The socket that takes connections to this address.
    pub fn listener(&self, ip: IpAddr, port: u16) -> Option<u32> {
        let wildcard = |at: &End| match std::net::Ipv6Addr::from(at.ip).to_canonical() {
            IpAddr::V4(any) => any.is_unspecified() && ip.is_ipv4(),
            // An IPv6 wildcard takes IPv4 too; the guest kernel knows about IPV6_V6ONLY.
            IpAddr::V6(any) => any.is_unspecified(),
        };
        let fits = |at: &End| at.port == port && (at.ip == address::bytes(ip) || wildcard(at));
        self.sockets.iter().find_map(|(n, e)| match e {
            Entity::Listener(at) if fits(at) => Some(*n),
            _ => None,
        })
    }

    /// Gives a listener a connection; false if the domain has no room for more.
    pub fn give(&mut self, listener: u32, link: OwnedFd, peer: SocketAddr) -> bool {
        let number = match self.free.pop() {
            Some(n) => n,
            None if self.fresh < OBJECTS => {
                self.fresh += 1;
                self.fresh - 1
            }
            None => return false,
        };
        socket_header(&self.channel, number).reset();
        self.sockets.insert(number, Entity::Stream(Box::new(Stream::new(number, link))));
        self.wishes.push(Wish::Watch(number));
        self.busy.push_back(number);
        self.answer(Answer::Accepted { listener, socket: number, peer: address::end(peer) });
        true
    }

    /// Takes connections to published ports.
    fn accept(&mut self) {
        if !self.channel.agreed() {
            return;
        }
        let mut waiting = std::mem::take(&mut self.callers);
        waiting.retain(|&i| self.accept_some(i));
        self.callers = waiting;
    }

    /// True: look again, there may be more.
    fn accept_some(&mut self, published: usize) -> bool {
        use std::os::fd::AsFd;
        let port = self.settings.published[published].port;
        let ip = IpAddr::V4(self.settings.ip4);
        for _ in 0..ACCEPTS {
            let Some(listener) = self.listener(ip, port) else { return false };
            if self.answers.len() >= BATCH || self.free.is_empty() && self.fresh == OBJECTS {
                return true;
            }
            let socket = SockRef::from(&self.settings.published[published].listener.as_fd())
                .accept_raw()
                .map(|(s, a)| (s, a.as_socket()));
            match socket {
                Ok((socket, Some(peer))) => {
                    let allowed = self.settings.rules.inbound(peer.ip().to_canonical(), port, Protocol::Tcp);
                    if allowed && socket.set_nonblocking(true).is_ok() {
                        self.give(listener, socket.into(), peer);
                    }
                }
                Ok((_, None)) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return false,
                // A connection that ended while it waited, or no descriptors: look again at the next turn.
                Err(_) => return true,
            }
        }
        true
    }

    fn move_bytes(&mut self, number: u32, budget: usize) -> Result<(), Broken> {
        let Some(Entity::Stream(s)) = self.sockets.get_mut(&number) else { return Ok(()) };
        if s.turn(&mut self.channel, budget)? == Turn::More {
            self.busy.push_back(number);
        } else if s.is_over() {
            let ticket = s.closed_by;
            self.forget(number);
            if let Some(ticket) = ticket {
                self.done(ticket, Ok(End::default()));
            }
        }
        Ok(())
    }
}

/// Whether an address is in the virtual networks: 10.88.0.0/16 and fd88:d0bb:e1::/48.
pub(crate) fn is_virtual(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.octets()[..2] == [10, 88],
        IpAddr::V6(ip) => ip.segments()[..3] == [0xfd88, 0xd0bb, 0xe1],
    }
}

/// The host itself, as domains see it (10.88.0.1, fd88:d0bb:e1::1): its loopback. Only by a rule, as all that is private.
fn as_host(to: SocketAddr) -> Option<SocketAddr> {
    match to.ip() {
        IpAddr::V4(ip) if ip.octets() == [10, 88, 0, 1] => Some((Ipv4Addr::LOCALHOST, to.port()).into()),
        IpAddr::V6(ip) if ip.segments() == [0xfd88, 0xd0bb, 0xe1, 0, 0, 0, 0, 1] => {
            Some((Ipv6Addr::LOCALHOST, to.port()).into())
        }
        _ => None,
    }
}

/// What a program is told of a failure.
pub(crate) fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// Begins to connect a socket of the host.
fn begin(to: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM.nonblocking().cloexec(), None)?;
    match socket.connect(&to.into()) {
        Err(e) if Errno::from_io_error(&e) != Some(Errno::INPROGRESS) => Err(e),
        _ => Ok(socket),
    }
}

fn set(socket: SockRef<'_>, option: SocketOption, value: u32) -> Result<(), Errno> {
    use std::time::Duration;
    let seconds = Duration::from_secs(u64::from(value));
    let result = match option {
        SocketOption::NoDelay => socket.set_tcp_nodelay(value != 0),
        SocketOption::KeepAlive => socket.set_keepalive(value != 0),
        SocketOption::KeepIdle => socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(seconds)),
        SocketOption::KeepInterval => socket.set_tcp_keepalive(&TcpKeepalive::new().with_interval(seconds)),
        SocketOption::KeepCount => socket.set_tcp_keepalive(&TcpKeepalive::new().with_retries(value)),
        SocketOption::Cork => socket.set_tcp_cork(value != 0),
        SocketOption::UserTimeout => {
            socket.set_tcp_user_timeout(Some(Duration::from_millis(u64::from(value))))
        }
        SocketOption::TypeOfService => socket.set_tos_v4(value),
        SocketOption::Hops => socket.set_ttl_v4(value),
    };
    // A connection within the host's virtual network is no TCP socket: what cannot be set there has no effect.
    match result.map_err(|e| errno(&e)) {
        Err(Errno::OPNOTSUPP | Errno::NOPROTOOPT) => Ok(()),
        r => r,
    }
}
