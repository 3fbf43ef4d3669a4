//! Connections that come: from the host to published ports, and from other domains.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Instant;

use doppel_abi_service::OBJECTS;
use doppel_abi_service::net::{Answer, End};
use doppel_ring::Ticket;
use rustix::io::Errno;

use super::{Caller, Client, EngineRequest, Entity, socket_header};
use crate::channel::quota::SocketLease;
use crate::flow::address;
use crate::rules::policy::Flow;
use crate::rules::{Direction, Protocol};

/// The domain's port, and where a connection goes.
pub(crate) type Ends = (u16, SocketAddr);

impl Client {
    /// Something waits at a published port.
    pub fn called(&mut self, published: usize) {
        if !self.callers.contains(&published) {
            self.callers.push(published);
        }
    }

    /// From now on `number`, which the guest kernel chose, is this connection.
    pub fn begin_stream(
        &mut self,
        number: u32,
        link: OwnedFd,
        held: SocketLease,
        ticket: Ticket,
        (from_port, to): Ends,
    ) {
        self.settings.counts.sent().began();
        self.insert_stream(number, link, held, (Flow::Out(to), from_port));
        self.done(ticket, Ok(End::default()));
    }

    /// From now on `number` is a connection to another domain that has yet to be taken.
    pub fn wait_for_taking(
        &mut self,
        number: u32,
        link: OwnedFd,
        held: SocketLease,
        ticket: Ticket,
        (from_port, to): Ends,
    ) {
        let since = Instant::now();
        self.sockets.insert(number, Entity::Joining { link, held, ticket, to, from_port, since });
    }

    /// It has been taken; false if it is not waited for any more.
    pub fn taken(&mut self, Caller { socket, ticket, .. }: Caller) -> bool {
        match self.sockets.remove(&socket) {
            Some(Entity::Joining { link, held, ticket: asked, to, from_port, .. }) if asked == ticket => {
                self.begin_stream(socket, link, held, ticket, (from_port, to));
                true
            }
            other => {
                self.sockets.extend(other.map(|entity| (socket, entity)));
                false
            }
        }
    }

    /// A connection could not be made.
    pub fn refuse(&mut self, ticket: Ticket, why: Errno) {
        self.done(ticket, Err(why));
    }

    /// Gives a listener a connection of `peer`, whom it sees as `seen`. Its number; none if the domain has no room for more.
    pub fn give(
        &mut self,
        listener: u32,
        link: OwnedFd,
        held: SocketLease,
        (peer, seen): (SocketAddr, SocketAddr),
        port: u16,
    ) -> Option<u32> {
        let number = match self.free.pop() {
            Some(n) => n,
            None if self.fresh < OBJECTS => {
                self.fresh += 1;
                self.fresh - 1
            }
            None => return None,
        };
        socket_header(&self.channel, number).reset();
        self.settings.counts.received().began();
        self.insert_stream(number, link, held, (Flow::In(peer, port), port));
        self.wishes.push(EngineRequest::Watch(number));
        self.answer(Answer::Accepted { listener, socket: number, peer: address::end(seen), port });
        Some(number)
    }

    /// Notes that somebody waits until a connection is taken.
    pub fn waits(&mut self, number: u32, caller: Caller) {
        if let Some(Entity::Stream(s)) = self.sockets.get_mut(&number) {
            s.caller = Some(caller);
        }
    }

    /// Whether another domain gets an echo, for a request of so many bytes. It is not woken for that.
    pub fn echoes(&mut self, from: SocketAddr, new: bool, bytes: usize) -> bool {
        let counts = &self.settings.counts;
        let room = self.share.most(Direction::In) > 0 && self.share.most(Direction::Out) > 0;
        if !self.policy.receive(from, 0, Protocol::Icmp, new) || !room {
            counts.received().dropped();
            return false;
        }
        if new {
            counts.received().began();
        }
        counts.received().moved(bytes);
        counts.sent().moved(bytes);
        self.share.passed(Direction::In, bytes);
        self.share.passed(Direction::Out, bytes);
        true
    }
}
