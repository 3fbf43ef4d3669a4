//! What a hostile guest kernel does with its channel, as bytes say: requests of all kinds, and whatever else can be written.
//!
//! The fuzz target `channel` is made of it too.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;

use doppel_abi_service::net::{
    ACCEPTED, BUFFERS, End, MEASURES, Request, SIZE, SOCKETS, SocketHeader, SocketOption, up_buffer,
};
use doppel_abi_service::{Bells, ChannelHeader, OBJECTS, Requests, layout};
use doppel_ring::{Producer, Ticket, Writer};
use doppel_sys::shared::SharedMap;

/// Sockets it has at once, so that its acts meet: of its own, and as many of those the service gives.
const FEW: u32 = 6;

/// A guest kernel without manners.
pub struct Hostile {
    map: SharedMap,
    doorbell: OwnedFd,
    requests: Producer,
    /// Its own sockets: their numbers.
    own: [Option<u32>; FEW as usize],
    ups: [Writer; 2 * FEW as usize],
    fresh: u32,
    tickets: u64,
    /// So many of 256 acts break the protocol.
    temper: u8,
}

fn at(offset: u64) -> usize {
    usize::try_from(offset).expect("a 64-bit host")
}

/// The next byte, or zeros for ever.
fn byte(bytes: &mut impl Iterator<Item = u8>) -> u8 {
    bytes.next().unwrap_or(0)
}

fn word(bytes: &mut impl Iterator<Item = u8>) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|_| byte(bytes)))
}

/// A socket's number: mostly one that is used.
fn number(bytes: &mut impl Iterator<Item = u8>) -> u32 {
    match u32::from(byte(bytes)) {
        n @ 0..100 => n % FEW,
        n @ 100..240 => ACCEPTED + n % FEW,
        n @ 240..254 => OBJECTS - 1 - (n - 240),
        _ => word(bytes),
    }
}

/// An address: mostly one of the first domains.
fn end(bytes: &mut impl Iterator<Item = u8>) -> End {
    let (last, port) = (byte(bytes), byte(bytes) % 4);
    let ip = match last {
        0..200 => Ipv4Addr::new(10, 88, 0, last % 8),
        200..230 => Ipv4Addr::UNSPECIFIED,
        230..250 => Ipv4Addr::LOCALHOST,
        _ => Ipv4Addr::from_bits(word(bytes)),
    };
    let IpAddr::V6(ip) = SocketAddr::new(ip.to_ipv6_mapped().into(), 0).ip() else {
        return End::default();
    };
    End { ip: ip.octets(), port: u16::from(port) }
}

impl Hostile {
    /// The guest kernel of this channel, which begins as any other. Of 256 acts `temper` may break the protocol.
    ///
    /// # Panics
    /// If the host has no memory.
    #[must_use]
    pub fn new(memory: &OwnedFd, doorbell: OwnedFd, temper: u8) -> Self {
        let map = SharedMap::new(memory.as_fd(), at(SIZE)).expect("memory for a channel");
        let (own, ups, requests) = Default::default();
        let hostile = Self { map, doorbell, requests, own, ups, fresh: 0, tickets: 0, temper };
        hostile.begin();
        hostile
    }

    fn begin(&self) {
        let header: &ChannelHeader = self.map.get(0);
        header.guest_epoch.store(header.epoch.load(Ordering::Acquire), Ordering::Release);
        self.ring();
    }

    fn ring(&self) {
        // A full counter is as good as rung.
        let _ = rustix::io::write(&self.doorbell, &1u64.to_ne_bytes());
    }

    /// Does something.
    pub fn act(&mut self, bytes: &mut impl Iterator<Item = u8>) {
        if byte(bytes) < self.temper {
            match byte(bytes) {
                0..80 => {
                    let number = number(bytes);
                    self.ask(number, bytes);
                }
                80..100 => self.begin(),
                100..120 => self.socket(bytes).reset(),
                120..190 => self.write_index(bytes),
                _ => self.write_anywhere(bytes),
            }
        } else {
            match byte(bytes) {
                0..40 => self.open_or_close(bytes),
                40..180 => self.send(bytes),
                180..220 => {
                    let bells: &Bells = self.map.get(at(layout::TO_SERVICE));
                    bells.mark(number(bytes).min(OBJECTS - 1));
                }
                _ => self.take_answers(),
            }
        }
        self.ring();
    }

    /// A request for one of its own sockets that its state allows.
    fn open_or_close(&mut self, bytes: &mut impl Iterator<Item = u8>) {
        let i = usize::from(byte(bytes)) % FEW as usize;
        let Some(number) = self.own[i] else {
            let number = self.fresh;
            if number == ACCEPTED {
                return;
            }
            (self.fresh, self.own[i], self.ups[i]) = (number + 1, Some(number), Writer::default());
            let header: &SocketHeader =
                self.map.get(at(SOCKETS + u64::from(number) * size_of::<SocketHeader>() as u64));
            header.reset();
            let kind = byte(bytes) % 10;
            return self.ask_for(kind, number, bytes);
        };
        let kind = 10 + byte(bytes) % 6;
        if kind > 13 {
            self.own[i] = None;
        }
        self.ask_for(kind, number, bytes);
    }

    /// Any request for any socket.
    fn ask(&mut self, socket: u32, bytes: &mut impl Iterator<Item = u8>) {
        let kind = byte(bytes) % 16;
        self.ask_for(kind, socket.min(OBJECTS - 1), bytes);
    }

    fn ask_for(&mut self, kind: u8, socket: u32, bytes: &mut impl Iterator<Item = u8>) {
        let request = match kind {
            0..4 => Request::Connect { socket, from: end(bytes), to: end(bytes) },
            4..7 => Request::Listen { socket, at: end(bytes), backlog: u16::from(byte(bytes)) },
            7..9 => Request::Datagrams { socket, at: end(bytes) },
            9 => Request::Echo { socket, at: end(bytes) },
            10 => Request::Peer { socket, to: end(bytes) },
            11 => {
                let option = SocketOption::ALL[usize::from(byte(bytes)) % SocketOption::ALL.len()];
                let small = byte(bytes);
                // Many values are small.
                let value = if small < 128 { u32::from(small) } else { word(bytes) };
                Request::Set { socket, option, value }
            }
            12 => Request::Take { socket },
            13 => Request::Measure { socket, place: u16::from(byte(bytes)) % MEASURES },
            _ => Request::Close { socket, reset: byte(bytes).is_multiple_of(2) },
        };
        self.tickets += 1;
        let mut entry = request.encode(Ticket(self.tickets));
        if byte(bytes) < self.temper && byte(bytes) < 16 {
            entry[usize::from(byte(bytes) % 8)] = u64::from(word(bytes)) << 32 | u64::from(word(bytes));
        }
        let ring = self.map.get::<Requests>(at(layout::REQUESTS)).ring();
        // An index that it has itself overwritten: nothing is asked.
        if self.requests.push(&ring, &entry) == Ok(true) {
            let _ = self.requests.publish(&ring);
        }
    }

    fn socket(&self, bytes: &mut impl Iterator<Item = u8>) -> &SocketHeader {
        let n = u64::from(number(bytes).min(OBJECTS - 1));
        self.map.get(at(SOCKETS + n * size_of::<SocketHeader>() as u64))
    }

    /// Bytes in an up buffer: noise, or what may be a datagram.
    fn send(&mut self, bytes: &mut impl Iterator<Item = u8>) {
        let i = u32::from(byte(bytes)) % (2 * FEW);
        let Some(socket) = (if i < FEW { self.own[i as usize] } else { Some(ACCEPTED + i - FEW) }) else {
            return;
        };
        let header: &SocketHeader =
            self.map.get(at(SOCKETS + u64::from(socket) * size_of::<SocketHeader>() as u64));
        let (stream, up) = (header.up(), &mut self.ups[i as usize]);
        let mut data = [0; 64];
        data[..16].copy_from_slice(&end(bytes).ip);
        data[16] = byte(bytes) % 4;
        data[18] = byte(bytes) % 40;
        // Of ICMP echo it is a request, if it is long enough.
        data[24] = 8;
        let room = 24 + usize::from(data[18]).next_multiple_of(8);
        let len = if byte(bytes) < self.temper { 64 } else { room };
        if let Ok(span) = up.span(&stream, 0) {
            let len = len.min(span.len);
            self.map.write(at(up_buffer(socket)) + span.offset, &data[..len]);
            let _ = up.advance(&stream, len);
        }
        match byte(bytes) {
            0..8 => drop(up.close(&stream)),
            8..16 if byte(bytes) < self.temper => *up = Writer::default(),
            _ => {}
        }
    }

    fn take_answers(&self) {
        // It says to have taken all there are, without a look.
        let head = at(layout::ANSWERS);
        let mut word = [0; 4];
        self.map.read(head, &mut word);
        self.map.write(head + 64, &word);
    }

    /// Near what it is, where indices and words of rings are.
    fn write_index(&self, bytes: &mut impl Iterator<Item = u8>) {
        let header = match byte(bytes) % 8 {
            0 => layout::REQUESTS,
            1 => layout::ANSWERS,
            k => {
                let n = u64::from(number(bytes).min(OBJECTS - 1));
                SOCKETS + n * size_of::<SocketHeader>() as u64 + u64::from(k % 2) * 128
            }
        };
        let place = at(header) + usize::from(byte(bytes) % 6) % 3 * 4 + usize::from(byte(bytes) % 2) * 64;
        let mut word = [0; 4];
        self.map.read(place, &mut word);
        let near = u32::from_le_bytes(word).wrapping_add(u32::from(byte(bytes))).wrapping_sub(128);
        self.map.write(place, &near.to_le_bytes());
    }

    fn write_anywhere(&self, bytes: &mut impl Iterator<Item = u8>) {
        let place = match byte(bytes) % 4 {
            0 => u64::from(word(bytes)) % (16 << 10),
            1 => layout::REQUESTS + u64::from(word(bytes)) % (128 << 10),
            2 => SOCKETS + u64::from(word(bytes)) % (64 << 10),
            _ => BUFFERS + u64::from(word(bytes)) % (8 << 20),
        };
        let data: [u8; 8] = std::array::from_fn(|_| byte(bytes));
        self.map.write(at(place), &data);
    }
}
