//! Addresses of the host itself: its `local` routing table, by rtnetlink(7), followed live.
//!
//! What is sent to one of them never leaves the host, whatever the address looks like: it comes to the host's own services,
//! from the host's own address. So they are private to domains, as its loopback is.
//!
//! The socket is opened before the process is confined, which can make none. An address that comes is added at once; after one
//! that goes, or if messages were lost, the whole list is asked for again, which may take turns.

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, PoisonError, RwLock};

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use crate::rules::covers;

/// Multicast groups: routes of IPv4 and of IPv6.
const GROUPS: u32 = 0x40 | 0x400;
/// Types of messages.
const ERROR: u16 = 2;
const DONE: u16 = 3;
const NEW_ROUTE: u16 = 24;
const DELETE_ROUTE: u16 = 25;
const GET_ROUTE: u16 = 26;
/// Flags: a request; for all of them; others changed while they were listed.
const REQUEST: u16 = 1;
const ALL: u16 = 0x300;
const INTERRUPTED: u16 = 0x10;
/// The table, and types of routes in it: local, broadcast, anycast.
const LOCAL: u8 = 255;
const OURS: [u8; 3] = [2, 3, 4];
/// An attribute: the destination.
const DESTINATION: u16 = 1;
/// Lengths of a message's header, and of a route's.
const HEADER: usize = 16;
const ROUTE: usize = 12;
/// Messages come in pieces of this size at most, so many of which are taken in a turn.
const PIECE: usize = 32 << 10;
const PIECES: usize = 16;

/// A network: its address, and how many leading bits of it count.
pub(crate) type Network = (IpAddr, u8);

/// What is known, for all who ask.
#[derive(Debug, Default)]
pub(crate) struct Known(RwLock<Networks>);

#[derive(Debug, Default)]
struct Networks {
    addresses: HashSet<IpAddr>,
    /// Those of more than one address.
    wide: HashSet<Network>,
}

impl Networks {
    fn add(&mut self, (ip, bits): Network) {
        if bits == if ip.is_ipv4() { 32 } else { 128 } {
            self.addresses.insert(ip);
        } else {
            self.wide.insert((ip, bits));
        }
    }
}

impl Known {
    /// Whether an address is one of the host's.
    pub fn has(&self, ip: IpAddr) -> bool {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        known.addresses.contains(&ip) || known.wide.iter().any(|(network, bits)| covers(*network, *bits, ip))
    }

    /// One more.
    pub fn add(&self, network: Network) {
        self.change(|known| known.add(network));
    }

    fn change(&self, change: impl FnOnce(&mut Networks)) {
        // What it protects is whole at any moment.
        change(&mut self.0.write().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Who follows the table.
#[derive(Debug)]
pub(crate) struct LocalAddresses {
    socket: OwnedFd,
    known: Arc<Known>,
    /// What a list that is under way has told of.
    listing: Option<Networks>,
    /// It is to be asked for again.
    stale: bool,
    /// Names the request that was made last.
    request: u32,
    piece: Vec<u8>,
}

impl LocalAddresses {
    /// Knows the table as it is.
    ///
    /// # Errors
    /// What the host says.
    pub fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        rustix::net::bind(&socket, &SocketAddrNetlink::new(0, GROUPS))?;
        // One that does not know it tells of other tables too, which are left out here.
        let _ = doppel_sys::netlink::strict(socket.as_fd());
        let mut locals = Self {
            socket,
            known: Arc::default(),
            listing: None,
            stale: true,
            request: 0,
            piece: vec![0; PIECE],
        };
        while locals.stale || locals.listing.is_some() {
            locals.ask_again()?;
            locals.take()?;
        }
        rustix::io::ioctl_fionbio(&locals.socket, true)?;
        Ok(locals)
    }

    /// What it knows.
    pub fn known(&self) -> &Arc<Known> {
        &self.known
    }

    /// Readable when something has changed.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Takes what has changed. True: there may be more, for another turn.
    pub fn follow(&mut self) -> bool {
        for _ in 0..PIECES {
            match self.ask_again().and_then(|()| self.take()) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return false,
                // For want of memory: what was known is still good, and the list is asked for again.
                Err(_) => {
                    self.stale = true;
                    return true;
                }
                Ok(()) => {}
            }
        }
        true
    }

    /// Asks for the list, if it is to be asked for and is not under way.
    fn ask_again(&mut self) -> io::Result<()> {
        if !self.stale || self.listing.is_some() {
            return Ok(());
        }
        self.request = self.request.wrapping_add(1).max(1);
        let mut message = Vec::with_capacity(HEADER + ROUTE);
        message.extend(u32::try_from(HEADER + ROUTE).expect("it is short").to_ne_bytes());
        message.extend(GET_ROUTE.to_ne_bytes());
        message.extend((REQUEST | ALL).to_ne_bytes());
        message.extend(self.request.to_ne_bytes());
        message.extend([0; 4]);
        // Of any family; no lengths; the table; nothing else.
        message.extend([0, 0, 0, 0, LOCAL, 0, 0, 0, 0, 0, 0, 0]);
        rustix::net::send(&self.socket, &message, SendFlags::empty())?;
        (self.stale, self.listing) = (false, Some(Networks::default()));
        Ok(())
    }

    /// Takes a piece, and waits for it if the socket does.
    fn take(&mut self) -> io::Result<()> {
        let mut piece = std::mem::take(&mut self.piece);
        let got = rustix::net::recv(&self.socket, &mut piece[..], RecvFlags::TRUNC);
        let heard = match got {
            Ok((_, n)) if n > piece.len() => {
                self.stale = true;
                Ok(())
            }
            Ok((n, _)) => self.hear(&piece[..n]),
            // Some were lost.
            Err(Errno::NOBUFS) => {
                self.stale = true;
                Ok(())
            }
            Err(Errno::INTR) => Ok(()),
            Err(e) => Err(e.into()),
        };
        self.piece = piece;
        heard
    }

    fn hear(&mut self, mut messages: &[u8]) -> io::Result<()> {
        while let Some(message) = Message::first(messages) {
            match message.kind {
                NEW_ROUTE => {
                    if let Some(network) = message.network() {
                        self.known.add(network);
                        self.listing.iter_mut().for_each(|l| l.add(network));
                    }
                }
                DELETE_ROUTE => self.stale |= message.network().is_some(),
                DONE | ERROR if message.request == self.request => self.listed(&message)?,
                _ => {}
            }
            if message.flags & INTERRUPTED != 0 {
                self.stale = true;
            }
            messages = message.rest;
        }
        Ok(())
    }

    /// A list has ended.
    fn listed(&mut self, message: &Message<'_>) -> io::Result<()> {
        let Some(listed) = self.listing.take() else { return Ok(()) };
        let error = message.body.first_chunk().map_or(0, |b| i32::from_ne_bytes(*b));
        if error < 0 {
            return Err(io::Error::from_raw_os_error(error.wrapping_neg()));
        }
        // One that others have changed meanwhile may lack something: then the next one decides.
        if !self.stale && message.flags & INTERRUPTED == 0 {
            self.known.change(|known| *known = listed);
        }
        Ok(())
    }
}

/// A message of netlink.
struct Message<'a> {
    kind: u16,
    flags: u16,
    request: u32,
    body: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Message<'a> {
    /// The first of these; none if there is none that is whole.
    fn first(bytes: &'a [u8]) -> Option<Self> {
        let length = usize::try_from(u32::from_ne_bytes(*bytes.first_chunk()?)).ok()?;
        let (message, _) = bytes.split_at_checked(length)?;
        let (header, body) = message.split_first_chunk::<HEADER>()?;
        let half = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        let request = u32::from_ne_bytes([header[8], header[9], header[10], header[11]]);
        let rest = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Self { kind: half(4), flags: half(6), request, body, rest })
    }

    /// The network of a route of the local table.
    fn network(&self) -> Option<Network> {
        let (route, mut attributes) = self.body.split_first_chunk::<ROUTE>()?;
        let [family, bits, _, _, table, _, _, kind, ..] = *route;
        if table != LOCAL || !OURS.contains(&kind) {
            return None;
        }
        let any = match family {
            2 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            10 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            _ => return None,
        };
        // One without a destination is about all addresses.
        let mut ip = any;
        while let Some((header, _)) = attributes.split_first_chunk::<4>() {
            let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
            let value = attributes.get(4..length)?;
            if u16::from_ne_bytes([header[2], header[3]]) == DESTINATION {
                ip = match any {
                    IpAddr::V4(_) => IpAddr::from(<[u8; 4]>::try_from(value).ok()?),
                    IpAddr::V6(_) => IpAddr::from(<[u8; 16]>::try_from(value).ok()?),
                };
            }
            attributes = attributes.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
        Some((ip, bits))
    }
}

#[cfg(test)]
mod tests;
