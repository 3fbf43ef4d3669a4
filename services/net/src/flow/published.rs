//! What comes to a domain from outside: through published ports.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;

use doppel_abi_service::OBJECTS;
use doppel_abi_service::net::End;
use doppel_service::Broken;
use socket2::SockRef;

use doppel_abi_service::net::address::HOST4;

use crate::channel::client::{BATCH, Client, Entity, Published};
use crate::flow::address;
use crate::flow::options::prepare_listener;
use crate::flow::route::as_seen;
use crate::rules::{Direction, Protocol, Transport};

/// Connections accepted from one listener in a turn.
const ACCEPTS: usize = 16;
/// Port of a socket that has every port which no other one has.
const EVERY: u16 = 0;
/// Datagrams taken from one published port in a turn.
const DATAGRAMS: usize = 64;

/// When to look at a published port again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// When the host tells of something.
    AtEvents,
    /// When there is another reason for a turn.
    Later,
    /// At once, after the others.
    Now,
}

/// Whether a socket at this address is one of IPv4 alone.
fn is_v4(at: &End) -> bool {
    Ipv6Addr::from(at.ip).to_canonical().is_ipv4()
}

/// Whether a socket at this address takes what comes to `ip`.
fn covers(at: &End, ip: IpAddr) -> bool {
    at.ip == address::bytes(ip)
        || match Ipv6Addr::from(at.ip).to_canonical() {
            IpAddr::V4(any) => any.is_unspecified() && ip.is_ipv4(),
            // An IPv6 wildcard takes IPv4 too; the guest kernel knows about IPV6_V6ONLY.
            IpAddr::V6(any) => any.is_unspecified(),
        }
}

impl Client {
    /// The socket that takes connections to this address.
    pub fn listener(&self, ip: IpAddr, port: u16) -> Option<u32> {
        let is_it = |n: &u32| matches!(self.sockets.get(n), Some(Entity::Listener(l)) if covers(&l.at, ip));
        let at = |port| self.ports.get(&port)?.iter().copied().find(is_it);
        at(port).or_else(|| at(EVERY))
    }

    /// The socket that takes what comes to this port from outside, by whatever address.
    fn listener_of_port(&self, port: u16) -> Option<u32> {
        self.settings.all_own().find_map(|ip| self.listener(ip, port))
    }

    /// How a listener sees who calls: one that knows IPv4 alone takes a caller of IPv6 for the host.
    fn seen_by(&self, listener: u32, peer: SocketAddr) -> SocketAddr {
        match self.sockets.get(&listener) {
            Some(Entity::Listener(l)) if peer.is_ipv6() && is_v4(&l.at) => (HOST4, peer.port()).into(),
            _ => peer,
        }
    }

    /// Whether it takes connections at every port that no other socket listens at: who calls must wait until they are taken.
    pub fn listens_everywhere(&self, listener: u32) -> bool {
        matches!(self.sockets.get(&listener), Some(Entity::Listener(l)) if l.at.port == EVERY)
    }

    /// The socket that takes a datagram which comes from here to this address: one with that very peer before others.
    pub fn taker(&self, ip: IpAddr, port: u16, from: SocketAddr) -> Option<u32> {
        let fits = |n: &&u32| match self.sockets.get(n) {
            Some(Entity::Datagrams(d)) if covers(&d.at, ip) => d.wants(from).map(|close| (close, **n)),
            _ => None,
        };
        let at = |port| self.ports.get(&port)?.iter().filter_map(|n| fits(&n)).max().map(|(_, n)| n);
        at(port).or_else(|| at(EVERY))
    }

    /// Takes connections and datagrams at published ports. True: there are more, for another turn.
    pub fn look_outside(&mut self, scratch: &mut [u8]) -> Result<bool, Broken> {
        if !self.channel.agreed() {
            return Ok(false);
        }
        let mut more = false;
        for i in std::mem::take(&mut self.callers) {
            let look = match self.settings.published[i].protocol {
                Transport::Tcp => self.accept(i),
                Transport::Udp => self.hear_datagrams(i, scratch)?,
            };
            if look != Look::AtEvents {
                self.callers.push(i);
            }
            more |= look == Look::Now;
        }
        Ok(more)
    }

    fn hear_datagrams(&mut self, published: usize, scratch: &mut [u8]) -> Result<Look, Broken> {
        let Published { port, socket, .. } = &self.settings.published[published];
        let (port, own) = (*port, [IpAddr::V4(self.settings.ip4), IpAddr::V6(self.settings.ip6)]);
        for _ in 0..DATAGRAMS {
            if self.share.is_spent() {
                break;
            }
            if self.share.most(Direction::In) == 0 {
                return Ok(Look::Later);
            }
            let (n, real, marks) = match doppel_sys::datagram::receive(socket.as_fd(), scratch) {
                Ok(received) => received,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(Look::AtEvents),
                // What became of an answer is not the next caller's business.
                Err(_) => continue,
            };
            self.share.moved(Direction::In, n);
            let from = as_seen(real);
            // A socket that knows IPv4 alone could not answer a caller of IPv6.
            let ip = own[usize::from(from.is_ipv6())];
            if let Some(taker) = self.taker(ip, port, from)
                && let Some(Entity::Datagrams(d)) = self.sockets.get_mut(&taker)
            {
                if self.policy.is_closed()
                    || !self.policy.receive(real, port, Protocol::Udp, d.is_new_caller(from))
                {
                    self.settings.counts.received().dropped();
                    continue;
                }
                d.called(&mut self.channel, from, port, (published, real), marks, &scratch[..n])?;
            }
        }
        Ok(Look::Now)
    }

    /// Has the host's listening socket be as this listener wants it.
    fn prepare(&mut self, published: usize, listener: u32) {
        let Some(Entity::Listener(l)) = self.sockets.get(&listener) else { return };
        let wanted = l.options.before_accept();
        if self.listening[published] != Some(wanted) {
            prepare_listener(self.settings.published[published].socket.as_fd(), wanted);
            self.listening[published] = Some(wanted);
        }
    }

    fn accept(&mut self, published: usize) -> Look {
        let port = self.settings.published[published].port;
        for _ in 0..ACCEPTS {
            let Some(listener) = self.listener_of_port(port) else { return Look::AtEvents };
            if self.share.is_spent() {
                break;
            }
            // Callers wait where the host has them wait for a program without descriptors.
            if self.answers.len() >= BATCH
                || self.free.is_empty() && self.fresh == OBJECTS
                || !self.account.has_room()
            {
                return Look::Later;
            }
            self.prepare(published, listener);
            let socket = SockRef::from(&self.settings.published[published].socket.as_fd())
                .accept_raw()
                .map(|(s, a)| (s, a.as_socket()));
            match socket {
                Ok((socket, Some(peer))) => {
                    let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
                    self.share.asked();
                    if self.policy.is_closed() || !self.policy.receive(peer, port, Protocol::Tcp, true) {
                        self.settings.counts.received().dropped();
                    } else if socket.set_nonblocking(true).is_ok()
                        && let Ok(held) = self.account.take(None)
                    {
                        if let Some(Entity::Listener(l)) = self.sockets.get(&listener) {
                            l.options.apply_connected(socket.as_fd());
                        }
                        // For one that finds no room nothing is left to do: it is closed.
                        let seen = self.seen_by(listener, peer);
                        let _ = self.give(listener, socket.into(), held, (peer, seen), port);
                    }
                }
                Ok((_, None)) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Look::AtEvents,
                // A connection that ended while it waited, or no descriptors: look again at the next turn.
                Err(_) => return Look::Later,
            }
        }
        Look::Now
    }
}
