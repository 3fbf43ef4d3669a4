//! Addresses of channels and addresses of the host.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;

use doppel_abi_service::net::End;
use rustix::io::Errno;

/// The host's form of an address. A v4-mapped one is IPv4.
pub(crate) fn socket_addr(end: &End) -> SocketAddr {
    SocketAddr::new(Ipv6Addr::from(end.ip).to_canonical(), end.port)
}

/// The channel's form of an address.
pub(crate) fn end(address: SocketAddr) -> End {
    End { ip: bytes(address.ip()), port: address.port() }
}

/// The channel's form of an address without a port.
pub(crate) fn bytes(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

/// What a program is told of a failure.
pub(crate) fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// The address of a socket of the host; none if it has none on the Internet.
pub(crate) fn own_of(socket: impl AsFd) -> Option<SocketAddr> {
    let own = SocketAddr::try_from(rustix::net::getsockname(socket).ok()?).ok()?;
    Some(SocketAddr::new(own.ip().to_canonical(), own.port()))
}
