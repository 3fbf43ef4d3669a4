//! The network service: sockets of a domain that the service domain executes on its host's TCP/IP.
//!
//! A socket has a number in the channel. The guest kernel chooses that of a socket it makes (below [`ACCEPTED`]), the
//! service domain that of a connection it accepts (from there on). A number is free again when both know that it is:
//! [`Request::Close`] is the last that a guest kernel says of one, its answer the last that the service domain does.
//!
//! Bytes of a stream, and datagrams with a [`DatagramHeader`] each, lie in two buffers a socket, *up* (to the network)
//! and *down*. They move without a request: who has put or taken bytes marks the socket for the other side.

use core::sync::atomic::AtomicU32;

use doppel_ring::{Entry, Header, Stream, Ticket};

use crate::{OBJECTS, layout};

mod options;
mod own;
pub mod pages;
mod told;
mod urgent;

pub use options::{Congestion, SocketOption};
pub use own::OwnAddress;
pub use told::{ErrorRecord, MEASURES, Measure, measure};
pub use urgent::Urgent;

/// First number of accepted connections.
pub const ACCEPTED: u32 = 8192;
/// Size of a buffer in bytes.
pub const BUFFER: u32 = 256 << 10;
/// Offset of the sockets' headers, [`SocketHeader`] each.
pub const SOCKETS: u64 = layout::SERVICE;
/// Offset of the buffers: up and down of socket 0, of socket 1, and so on.
pub const BUFFERS: u64 = 16 << 20;
/// Size of a channel in bytes; it is sparse.
pub const SIZE: u64 = BUFFERS + OBJECTS as u64 * 2 * BUFFER as u64;

/// Where the up buffer of socket `n` is.
#[must_use]
pub fn up_buffer(n: u32) -> u64 {
    BUFFERS + u64::from(n) * 2 * u64::from(BUFFER)
}

/// Where the down buffer of socket `n` is.
#[must_use]
pub fn down_buffer(n: u32) -> u64 {
    up_buffer(n) + u64::from(BUFFER)
}

/// What both sides know of one socket.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct SocketHeader {
    up: Header,
    down: Header,
    /// What happened to the connection: an errno, taken by the guest kernel (SO_ERROR). The service domain's.
    pub error: AtomicU32,
    _space: u32,
    /// The urgent byte of `up`.
    pub up_urgent: Urgent,
    /// The urgent byte of `down`.
    pub down_urgent: Urgent,
    _end: [u32; 10],
}

impl SocketHeader {
    /// Bytes from the guest kernel to the network.
    #[must_use]
    pub fn up(&self) -> Stream<'_> {
        Stream::new(&self.up, BUFFER)
    }

    /// Bytes from the network to the guest kernel.
    #[must_use]
    pub fn down(&self) -> Stream<'_> {
        Stream::new(&self.down, BUFFER)
    }

    /// For another socket: by the side that chooses the number, before it tells the other.
    pub fn reset(&self) {
        self.up.reset();
        self.down.reset();
        self.up_urgent.reset();
        self.down_urgent.reset();
        self.error.store(0, core::sync::atomic::Ordering::Release);
    }
}

// Pinned: docs/services.md.
const _: () = {
    assert!(size_of::<SocketHeader>() == 320);
    assert!(SOCKETS + OBJECTS as u64 * size_of::<SocketHeader>() as u64 <= BUFFERS);
};

/// An address with a port; IPv4 in its v4-mapped form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct End {
    /// Address.
    pub ip: [u8; 16],
    /// Port.
    pub port: u16,
}

/// Addresses of every virtual network that no domain has.
pub mod address {
    /// The host itself.
    pub const HOST4: [u8; 4] = [10, 88, 0, 1];
    /// The host itself.
    pub const HOST6: [u16; 8] = [0xfd88, 0xd0bb, 0xe1, 0, 0, 0, 0, 1];
    /// Answers questions about names, at port 53.
    pub const RESOLVER4: [u8; 4] = [10, 88, 0, 2];
    /// Answers questions about names, at port 53.
    pub const RESOLVER6: [u16; 8] = [0xfd88, 0xd0bb, 0xe1, 0, 0, 0, 0, 2];
    /// How many bits addresses have in common that are out of no subnet of a network's own.
    pub const BITS4: u8 = 16;
    /// The same of IPv6.
    pub const BITS6: u8 = 48;
}

/// What stands before a datagram in a buffer. Length and bytes are padded to 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramHeader {
    /// Where it goes (up) or comes from (down).
    pub peer: End,
    /// Its bytes.
    pub len: u16,
    /// Time to live, or hop limit; 0: the host's own, or not known.
    pub hops: u8,
    /// Type of service, or traffic class.
    pub class: u8,
    /// The domain's port, in the buffers of a socket that was made at port 0; otherwise of no meaning.
    pub port: u16,
}

impl DatagramHeader {
    /// Its size in a buffer in bytes.
    pub const SIZE: usize = 24;

    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let mut b = [0; Self::SIZE];
        b[..16].copy_from_slice(&self.peer.ip);
        b[16..18].copy_from_slice(&self.peer.port.to_le_bytes());
        b[18..20].copy_from_slice(&self.len.to_le_bytes());
        (b[20], b[21]) = (self.hops, self.class);
        b[22..24].copy_from_slice(&self.port.to_le_bytes());
        b
    }

    /// From bytes. Everything is a header.
    #[must_use]
    pub fn decode(b: &[u8; Self::SIZE]) -> Self {
        let mut ip = [0; 16];
        ip.copy_from_slice(&b[..16]);
        let short = |at: usize| u16::from_le_bytes([b[at], b[at + 1]]);
        let peer = End { ip, port: short(16) };
        Self { peer, len: short(18), hops: b[20], class: b[21], port: short(22) }
    }

    /// Room for a datagram of `len` bytes in a buffer.
    #[must_use]
    pub fn room(len: usize) -> usize {
        Self::SIZE + len.next_multiple_of(8)
    }
}

/// What a guest kernel asks. Each is answered once, by [`Answer::Done`] with its ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Connects a new stream socket. The answer comes when it is connected or that has failed.
    Connect {
        /// Number, the guest kernel's choice.
        socket: u32,
        /// From where; port 0: any.
        from: End,
        /// Where to.
        to: End,
    },
    /// Makes a new stream socket that takes connections.
    Listen {
        /// Number, the guest kernel's choice.
        socket: u32,
        /// Address, wildcards included; port 0: every port that no other socket listens at.
        at: End,
        /// Connections that may wait.
        backlog: u16,
    },
    /// Makes a new datagram socket.
    Datagrams {
        /// Number, the guest kernel's choice.
        socket: u32,
        /// Address, wildcards included; port 0: every port that no other datagram socket has ([`DatagramHeader::port`]).
        at: End,
    },
    /// Makes a new socket of ICMP echo: its datagrams are requests up and answers down, without IP headers ([`crate::echo`]).
    /// Errors are told, peer or not.
    Echo {
        /// Number, the guest kernel's choice.
        socket: u32,
        /// Address, wildcards included, and as its port the identifier of its messages.
        at: End,
    },
    /// Gives a datagram socket a peer: what comes from others is dropped, and errors are told.
    Peer {
        /// Number.
        socket: u32,
        /// Which; port 0: none any more.
        to: End,
    },
    /// Sets an option. Those of a socket that is not there yet are kept for the [`Self::Connect`] or [`Self::Listen`] that
    /// makes it, if that comes before those of another one; connections that come to a listener have what it has.
    Set {
        /// Number.
        socket: u32,
        /// Which.
        option: SocketOption,
        /// To what.
        value: u32,
    },
    /// Says that a connection was taken which came to a socket that listens at every port: who calls from another domain
    /// waits until then, and is refused if it is given up first.
    Take {
        /// Number.
        socket: u32,
    },
    /// Has the service put what the host knows of a socket ([`Measure`]) in this place, before it answers.
    Measure {
        /// Number.
        socket: u32,
        /// Which of [`MEASURES`], the guest kernel's choice.
        place: u16,
    },
    /// Gives a socket up. What is still in its up buffer is sent, unless it is reset.
    Close {
        /// Number.
        socket: u32,
        /// End the connection with a reset, and drop what cannot be sent at once.
        reset: bool,
    },
}

/// What the service domain says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A request is done.
    Done {
        /// Which.
        ticket: Ticket,
        /// 0, or why it could not be done: an errno.
        error: u16,
        /// The socket's own address.
        local: End,
    },
    /// A listening socket has a connection.
    Accepted {
        /// Which.
        listener: u32,
        /// Number of the connection, the service domain's choice.
        socket: u32,
        /// The other end's address.
        peer: End,
        /// The domain's port that was called.
        port: u16,
    },
}

/// An entry that is none of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadEntry;

// Word 0: kind (16 bits), 16 bits of its own, socket (32 bits). Word 1: ticket. Words 2 to 4 and 5 to 7: ends.

fn head(kind: u16, own: u16, socket: u32) -> u64 {
    u64::from(kind) | u64::from(own) << 16 | u64::from(socket) << 32
}

fn put_end(e: &mut Entry, at: usize, end: &End) {
    let half = |r: core::ops::Range<usize>| {
        let mut b = [0; 8];
        b.copy_from_slice(&end.ip[r]);
        u64::from_le_bytes(b)
    };
    e[at] = half(0..8);
    e[at + 1] = half(8..16);
    e[at + 2] = u64::from(end.port);
}

fn get_end(e: &Entry, at: usize) -> Result<End, BadEntry> {
    let mut ip = [0; 16];
    ip[..8].copy_from_slice(&e[at].to_le_bytes());
    ip[8..].copy_from_slice(&e[at + 1].to_le_bytes());
    Ok(End { ip, port: u16::try_from(e[at + 2]).map_err(|_| BadEntry)? })
}

fn socket_of(e: &Entry) -> Result<u32, BadEntry> {
    let n = (e[0] >> 32) as u32;
    if n < OBJECTS { Ok(n) } else { Err(BadEntry) }
}

impl Request {
    /// As an entry.
    #[must_use]
    pub fn encode(&self, ticket: Ticket) -> Entry {
        let mut e = [0; doppel_ring::ENTRY_WORDS];
        e[1] = ticket.0;
        e[0] = match self {
            Self::Connect { socket, from, to } => {
                put_end(&mut e, 2, from);
                put_end(&mut e, 5, to);
                head(1, 0, *socket)
            }
            Self::Listen { socket, at, backlog } => {
                put_end(&mut e, 2, at);
                head(2, *backlog, *socket)
            }
            Self::Datagrams { socket, at } => {
                put_end(&mut e, 2, at);
                head(3, 0, *socket)
            }
            Self::Set { socket, option, value } => {
                e[2] = u64::from(*value);
                head(4, *option as u16, *socket)
            }
            Self::Close { socket, reset } => head(5, u16::from(*reset), *socket),
            Self::Peer { socket, to } => {
                put_end(&mut e, 2, to);
                head(6, 0, *socket)
            }
            Self::Echo { socket, at } => {
                put_end(&mut e, 2, at);
                head(7, 0, *socket)
            }
            Self::Take { socket } => head(8, 0, *socket),
            Self::Measure { socket, place } => head(9, *place, *socket),
        };
        e
    }

    /// From an entry that a domain wrote.
    ///
    /// # Errors
    /// It is none.
    pub fn decode(e: &Entry) -> Result<(Self, Ticket), BadEntry> {
        let own = (e[0] >> 16) as u16;
        let socket = socket_of(e)?;
        let request = match e[0] as u16 {
            1 => Self::Connect { socket, from: get_end(e, 2)?, to: get_end(e, 5)? },
            2 => Self::Listen { socket, at: get_end(e, 2)?, backlog: own },
            3 => Self::Datagrams { socket, at: get_end(e, 2)? },
            4 => {
                let option = SocketOption::of(own).ok_or(BadEntry)?;
                Self::Set { socket, option, value: u32::try_from(e[2]).map_err(|_| BadEntry)? }
            }
            5 if own < 2 => Self::Close { socket, reset: own == 1 },
            6 => Self::Peer { socket, to: get_end(e, 2)? },
            7 => Self::Echo { socket, at: get_end(e, 2)? },
            8 => Self::Take { socket },
            9 if own < MEASURES => Self::Measure { socket, place: own },
            _ => return Err(BadEntry),
        };
        Ok((request, Ticket(e[1])))
    }
}

impl Answer {
    /// As an entry.
    #[must_use]
    pub fn encode(&self) -> Entry {
        let mut e = [0; doppel_ring::ENTRY_WORDS];
        e[0] = match self {
            Self::Done { ticket, error, local } => {
                e[1] = ticket.0;
                put_end(&mut e, 2, local);
                head(1, *error, 0)
            }
            Self::Accepted { listener, socket, peer, port } => {
                e[1] = u64::from(*socket);
                put_end(&mut e, 2, peer);
                head(2, *port, *listener)
            }
        };
        e
    }

    /// From an entry that the service domain wrote.
    ///
    /// # Errors
    /// It is none.
    pub fn decode(e: &Entry) -> Result<Self, BadEntry> {
        match e[0] as u16 {
            1 => Ok(Self::Done { ticket: Ticket(e[1]), error: (e[0] >> 16) as u16, local: get_end(e, 2)? }),
            2 => {
                let socket = u32::try_from(e[1]).map_err(|_| BadEntry)?;
                if !(ACCEPTED..OBJECTS).contains(&socket) {
                    return Err(BadEntry);
                }
                Ok(Self::Accepted {
                    listener: socket_of(e)?,
                    socket,
                    peer: get_end(e, 2)?,
                    port: (e[0] >> 16) as u16,
                })
            }
            _ => Err(BadEntry),
        }
    }
}

#[cfg(test)]
mod tests;
