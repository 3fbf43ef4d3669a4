//! Datagrams between packets and a socket of the channel.

use std::net::{IpAddr, SocketAddr};

use doppel_abi_service::echo::HEADER;
use doppel_abi_service::net::{DatagramHeader, End, Request};
use doppel_ring::{Reader, Writer};
use smoltcp::time::Instant;

use super::channel::{Channel, Pending, address, end};

/// What a datagram socket of the channel is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct DatagramUse {
    /// The domain's port.
    pub port: u16,
    /// To whom alone it sends, if that is so.
    pub peer: Option<SocketAddr>,
    /// It asks for echoes; the port is their identifier.
    pub echo: bool,
}

impl DatagramUse {
    /// That of every port which no other one has.
    pub const EVERY: Self = Self { port: 0, peer: None, echo: false };
}

/// A datagram socket of the channel.
#[derive(Debug)]
pub(super) struct Grams {
    number: u32,
    up: Writer,
    down: Reader,
    /// When it was last of use.
    pub used: Instant,
    /// Of echoes: what was asked for last, and of whom.
    pub asked: Option<(IpAddr, [u8; HEADER])>,
}

impl Grams {
    /// One at a port of the domain; port 0: at every port that no other one has. With a peer it hears that one alone, and
    /// of errors. None if there are too many sockets.
    pub fn new(
        channel: &mut Channel,
        DatagramUse { port, peer, echo }: DatagramUse,
        now: Instant,
    ) -> Option<Self> {
        let socket = channel.number()?;
        // The IPv6 wildcard takes IPv4 too.
        let at = End { ip: [0; 16], port };
        let request = if echo { Request::Echo { socket, at } } else { Request::Datagrams { socket, at } };
        channel.ask(Pending::Other, request);
        let number = socket;
        if let Some(to) = peer {
            channel.ask(Pending::Peer(number), Request::Peer { socket: number, to: end(to) });
        }
        let grams = Self { number, up: Writer::default(), down: Reader::default(), used: now, asked: None };
        // It is marked when something comes.
        let _ = grams.down.sleep(&channel.socket(number).down());
        Some(grams)
    }

    /// Its number in the channel.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Gives it up.
    pub fn close(self, channel: &mut Channel) {
        channel.ask(Pending::Close(self.number), Request::Close { socket: self.number, reset: false });
    }

    /// Sends a datagram from a port; one for which there is no room is lost.
    pub fn send(&mut self, channel: &Channel, port: u16, to: SocketAddr, bytes: &[u8]) {
        let Ok(len) = u16::try_from(bytes.len()) else { return };
        let stream = channel.socket(self.number).up();
        let room = DatagramHeader::room(bytes.len());
        if (self.up.room(&stream).unwrap_or(0) as usize) < room {
            return;
        }
        let head = DatagramHeader { peer: end(to), len, hops: 0, class: 0, port }.encode();
        channel.put_all(self.number, &self.up, 0, &head);
        channel.put_all(self.number, &self.up, head.len(), bytes);
        if self.up.advance(&stream, room) {
            channel.mark(self.number);
        }
    }

    /// The next datagram: from where, the domain's port if this is the socket of all ports, and its bytes.
    pub fn next(&mut self, channel: &Channel) -> Option<(SocketAddr, u16, Vec<u8>)> {
        let stream = channel.socket(self.number).down();
        loop {
            let waiting = self.down.waiting(&stream).unwrap_or(0) as usize;
            if waiting == 0 {
                if self.down.sleep(&stream).unwrap_or(true) {
                    return None;
                }
                continue;
            }
            let mut head = [0; DatagramHeader::SIZE];
            channel.get_all(self.number, &self.down, &stream, 0, &mut head);
            let head = DatagramHeader::decode(&head);
            let room = DatagramHeader::room(head.len.into());
            // A service that writes what is no datagram loses what it wrote.
            let sound = room <= waiting;
            let mut bytes = vec![0; if sound { head.len.into() } else { 0 }];
            channel.get_all(self.number, &self.down, &stream, DatagramHeader::SIZE, &mut bytes);
            if self.down.advance(&stream, room.min(waiting)) {
                channel.mark(self.number);
            }
            if sound {
                return Some((address(&head.peer), head.port, bytes));
            }
        }
    }
}
