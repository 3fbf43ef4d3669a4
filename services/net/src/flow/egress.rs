//! A socket of the host from which a domain's datagrams are sent.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;

use doppel_sys::datagram::{self, Marks};
use rustix::io::Errno;
use rustix::net::SendFlags;
use rustix::net::sockopt;
use socket2::{Domain, Socket, Type};

use crate::rules::Protocol;

/// What the host's datagrams have if nobody says otherwise.
const USUAL: Marks = Marks { hops: 64, class: 0 };

/// A socket of the host.
#[derive(Debug)]
pub(crate) struct EgressSocket {
    /// Of UDP, or of ICMP echo, which is used like one.
    pub socket: UdpSocket,
    v6: bool,
    /// It may have datagrams, or room: until it says otherwise (edges of epoll).
    pub readable: bool,
    pub writable: bool,
    /// The same of errors that it keeps.
    pub errors: bool,
    /// What the next datagram would have.
    marks: Marks,
}

impl EgressSocket {
    /// One for addresses like this, from a port of the host's choice.
    pub fn new(to: SocketAddr, protocol: Protocol) -> io::Result<Self> {
        let v6 = to.is_ipv6();
        let socket = if protocol == Protocol::Icmp {
            let icmp = if v6 { socket2::Protocol::ICMPV6 } else { socket2::Protocol::ICMPV4 };
            let kind = Type::DGRAM.nonblocking().cloexec();
            // It takes an identifier of the host's choice when it first sends.
            Socket::new(Domain::for_address(to), kind, Some(icmp))?.into()
        } else {
            let any: SocketAddr =
                if v6 { (Ipv6Addr::UNSPECIFIED, 0).into() } else { (Ipv4Addr::UNSPECIFIED, 0).into() };
            let socket = UdpSocket::bind(any)?;
            socket.set_nonblocking(true)?;
            socket
        };
        Ok(Self { socket, v6, readable: true, writable: true, errors: true, marks: USUAL })
    }

    /// Has [`Self::receive`] know the marks of what comes.
    pub fn tell_marks(&self) {
        // Without them a program sees none.
        let _ = datagram::tell_marks(self.socket.as_fd(), self.v6);
    }

    /// Sends a datagram with these marks.
    pub fn send(&mut self, bytes: &[u8], to: SocketAddr, marks: Marks) -> Result<(), Errno> {
        let marks = if marks.hops == 0 { USUAL } else { marks };
        if marks != self.marks {
            self.mark(marks)?;
            self.marks = marks;
        }
        rustix::net::sendto(&self.socket, bytes, SendFlags::NOSIGNAL, &to).map(|_| ())
    }

    fn mark(&self, to: Marks) -> Result<(), Errno> {
        if self.v6 {
            sockopt::set_ipv6_unicast_hops(&self.socket, Some(to.hops))?;
            sockopt::set_ipv6_tclass(&self.socket, to.class.into())
        } else {
            sockopt::set_ip_ttl(&self.socket, to.hops.into())?;
            sockopt::set_ip_tos(&self.socket, to.class)
        }
    }

    /// Takes an error that the host has kept, and what was sent.
    pub fn kept(&self, sent: &mut [u8]) -> io::Result<datagram::Kept> {
        datagram::receive_error(self.socket.as_fd(), sent)
    }

    /// Receives a datagram.
    pub fn receive(&self, to: &mut [u8]) -> io::Result<(usize, SocketAddr, Marks)> {
        datagram::receive(self.socket.as_fd(), to)
    }
}
