//! What a guest kernel asks for: sockets that are made, connected, given peers and options, and closed.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use doppel_abi_service::net::{ACCEPTED, BUFFER, End, Measure, Request, SocketOption, measure};
use doppel_ring::Ticket;
use doppel_service::Broken;
use doppel_sys::shared;
use rustix::io::Errno;
use socket2::{Domain, SockRef, Socket, Type};

use super::{Client, EngineRequest, Entity, Listening};
use crate::channel::quota::Ports;
use crate::channel::room::Room;
use crate::flow::address::{self, errno};
use crate::flow::datagram::{Datagrams, TurnContext};
use crate::flow::options::{Options, checked, measure_of, set, set_connected};
use crate::flow::route::Route;
use crate::rules::Protocol;

impl Client {
    pub(super) fn asked(
        &mut self,
        request: Request,
        ticket: Ticket,
        scratch: &mut [u8],
    ) -> Result<(), Broken> {
        let fresh = |n: u32| n < ACCEPTED && !self.sockets.contains_key(&n);
        match request {
            Request::Connect { socket, from, to } => {
                if !fresh(socket) {
                    return Err(Broken);
                }
                let options = self.prepared_for(socket);
                self.connect(socket, ticket, from.port, address::socket_addr(&to), &options);
            }
            Request::Listen { socket, at, .. } => {
                if !fresh(socket) {
                    return Err(Broken);
                }
                Room::new(self.account.clone(), socket).notice(self.channel.memory());
                let options = self.prepared_for(socket);
                self.sockets.insert(socket, Entity::Listener(Listening { at, options }));
                self.ports.entry(at.port).or_default().push(socket);
                self.callers = (0..self.settings.published.len()).collect();
                self.done(ticket, Ok(at));
            }
            Request::Datagrams { socket, at } => {
                if !fresh(socket) {
                    return Err(Broken);
                }
                self.insert_datagrams(socket, Protocol::Udp, at);
                self.ports.entry(at.port).or_default().push(socket);
                self.busy.push(socket);
                self.callers = (0..self.settings.published.len()).collect();
                self.done(ticket, Ok(at));
            }
            Request::Echo { socket, at } => {
                if !fresh(socket) {
                    return Err(Broken);
                }
                self.insert_datagrams(socket, Protocol::Icmp, at);
                self.busy.push(socket);
                self.done(ticket, Ok(at));
            }
            Request::Peer { socket, to } => {
                let result = self.set_peer(socket, &to, scratch);
                self.done(ticket, result.map(|()| End::default()));
            }
            Request::Set { socket, option, value } => {
                let result = self.set_option(socket, option, value);
                self.done(ticket, result.map(|()| End::default()));
            }
            Request::Take { socket } => {
                let result = match self.sockets.get_mut(&socket) {
                    Some(Entity::Stream(s)) => {
                        self.wishes.extend(s.caller.take().map(EngineRequest::SocketLease));
                        Ok(End::default())
                    }
                    _ => Err(Errno::BADF),
                };
                self.done(ticket, result);
            }
            Request::Measure { socket, place } => {
                let result = self.measured(socket).map(|found| {
                    self.channel.memory().write(shared::offset(measure(place)), &found.encode());
                    End::default()
                });
                self.done(ticket, result);
            }
            Request::Close { socket, reset } => self.close(socket, ticket, reset)?,
        }
        Ok(())
    }

    /// Gives a datagram socket a peer, or takes it away.
    pub(super) fn set_peer(&mut self, socket: u32, to: &End, scratch: &mut [u8]) -> Result<(), Errno> {
        let to = (to.port != 0).then(|| address::socket_addr(to));
        let (sockets, around) = self.sockets_in_turn(scratch);
        // Its time is that of the request.
        let mut burdened = Duration::ZERO;
        let around = &mut TurnContext { may_burden: true, burdened: &mut burdened, ..around };
        match sockets.get_mut(&socket) {
            Some(Entity::Datagrams(d)) if !d.is_echo() => d.set_peer(to, around),
            _ => Err(Errno::BADF),
        }
    }

    /// What was set of a socket that is made now.
    fn prepared_for(&mut self, socket: u32) -> Options {
        let prepared = self.prepared.take();
        prepared.filter(|(number, _)| *number == socket).map(|(_, options)| options).unwrap_or_default()
    }

    pub(super) fn set_option(&mut self, number: u32, option: SocketOption, value: u32) -> Result<(), Errno> {
        let value = checked(option, value)?;
        match self.sockets.get_mut(&number) {
            Some(Entity::Datagrams(d)) => d.set_option(option, value, &self.settings.published)?,
            Some(Entity::Stream(s)) => set_connected(s.link().as_fd(), option, value)?,
            Some(Entity::Connecting { socket, to, .. }) => {
                set(socket.as_fd(), to.is_ipv6(), option, value)?;
            }
            Some(Entity::Listener(l)) => {
                l.options.put(option, value);
                // The host's sockets have it when they are looked at.
                self.callers = (0..self.settings.published.len()).collect();
            }
            Some(Entity::Joining { .. }) => {}
            None if number < ACCEPTED => match &mut self.prepared {
                Some((of, options)) if *of == number => options.put(option, value),
                // Whoever prepares one makes it before the next.
                other => other.insert((number, Options::default())).1.put(option, value),
            },
            None => return Err(Errno::BADF),
        }
        Ok(())
    }

    /// What the host knows of a socket.
    fn measured(&self, number: u32) -> Result<Measure, Errno> {
        match self.sockets.get(&number).ok_or(Errno::BADF)? {
            Entity::Stream(s) => measure_of(s.link().as_fd()),
            Entity::Datagrams(d) => d.connected().ok_or(Errno::NOTCONN).and_then(measure_of),
            Entity::Connecting { socket, .. } => measure_of(socket.as_fd()),
            Entity::Joining { .. } | Entity::Listener(_) => Err(Errno::NOTCONN),
        }
    }

    pub(super) fn insert_datagrams(&mut self, number: u32, protocol: Protocol, at: End) {
        let room = Room::new(self.account.clone(), number);
        let datagrams = Datagrams::new(number, protocol, at, room, self.settings.counts.clone());
        self.sockets.insert(number, Entity::Datagrams(Box::new(datagrams)));
    }

    pub(super) fn close(&mut self, number: u32, ticket: Ticket, reset: bool) -> Result<(), Broken> {
        match self.sockets.get_mut(&number) {
            Some(Entity::Stream(s)) if !reset => {
                s.closing = true;
                s.closed_by = Some(ticket);
                self.busy.push(number);
            }
            Some(Entity::Datagrams(d)) => {
                d.closed_by = Some(ticket);
                self.busy.push(number);
            }
            Some(entity) => {
                if let Entity::Stream(s) = entity {
                    s.closed_by = Some(ticket);
                    // What was written before is sent as far as the host takes it at once; the rest is dropped, and the
                    // peer sees a reset.
                    s.send(&mut self.channel, BUFFER as usize, &mut self.share)?;
                    let _ = SockRef::from(s.link()).set_linger(Some(std::time::Duration::ZERO));
                }
                self.forget(number);
                self.closed(ticket);
            }
            None => self.done(ticket, Err(Errno::BADF)),
        }
        Ok(())
    }

    pub(super) fn connect(
        &mut self,
        number: u32,
        ticket: Ticket,
        from_port: u16,
        to: SocketAddr,
        options: &Options,
    ) {
        let way = self.settings.route(to);
        let host = match self.policy.send(way, to, Protocol::Tcp, true).map(|()| way) {
            Ok(Route::Host(host) | Route::Names(Some(host))) => host,
            Ok(Route::Names(None)) => return self.done(ticket, Err(Errno::CONNREFUSED)),
            // Within the virtual networks the engine knows the way.
            Ok(Route::Domain) => {
                return self.wishes.push(EngineRequest::Peer { socket: number, ticket, to, from_port });
            }
            Err(e) => {
                self.settings.counts.sent().dropped();
                return self.done(ticket, Err(e));
            }
        };
        let begun = self.account.take(Some(Ports::Tcp)).and_then(|held| {
            let socket = begin(host, options).map_err(|e| errno(&e))?;
            Ok(Entity::Connecting { socket, held, ticket, to, from_port, since: Instant::now() })
        });
        match begun {
            Ok(entity) => {
                self.sockets.insert(number, entity);
                self.wishes.push(EngineRequest::Watch(number));
            }
            Err(e) => self.done(ticket, Err(e)),
        }
    }

    /// A connection of the host is made, or has failed.
    pub(super) fn connected(&mut self, number: u32) {
        let Some(was) = self.sockets.remove(&number) else { return };
        let Entity::Connecting { socket, held, ticket, to, from_port, since } = was else { return };
        let failed = match socket.take_error() {
            Ok(None) if socket.peer_addr().is_ok() => None,
            // Still under way: an event of its beginning.
            Ok(None) => {
                let still = Entity::Connecting { socket, held, ticket, to, from_port, since };
                self.sockets.insert(number, still);
                return;
            }
            Ok(Some(e)) | Err(e) => Some(e),
        };
        match failed {
            None => self.begin_stream(number, socket.into(), held, ticket, (from_port, to)),
            Some(e) => self.done(ticket, Err(errno(&e))),
        }
    }
}

/// Begins to connect a socket of the host that has these options.
fn begin(to: SocketAddr, options: &Options) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM.nonblocking().cloexec(), None)?;
    options.apply(socket.as_fd(), to.is_ipv6());
    match socket.connect(&to.into()) {
        Err(e) if Errno::from_io_error(&e) != Some(Errno::INPROGRESS) => Err(e),
        _ => Ok(socket),
    }
}
