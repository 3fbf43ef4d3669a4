//! Datagrams with what their headers say: hops left, and traffic class.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};

/// Fields of an IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks {
    /// Time to live, or hop limit; 0: not known.
    pub hops: u8,
    /// Type of service, or traffic class.
    pub class: u8,
}

impl Marks {
    /// Of a datagram whose header nobody has looked at.
    pub const UNKNOWN: Self = Self { hops: 0, class: 0 };
}

/// Has [`receive`] know the marks of what comes to a UDP socket.
///
/// # Errors
/// What the host says.
pub fn tell_marks(socket: BorrowedFd<'_>, v6: bool) -> io::Result<()> {
    let options = if v6 {
        [(libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT), (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS)]
    } else {
        [(libc::IPPROTO_IP, libc::IP_RECVTTL), (libc::IPPROTO_IP, libc::IP_RECVTOS)]
    };
    for (level, name) in options {
        let on: libc::c_int = 1;
        // SAFETY: the kernel reads an int, of the size that is given.
        let done = unsafe {
            let size = size_of::<libc::c_int>() as libc::socklen_t;
            libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const on).cast(), size)
        };
        if done != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Room for control messages: those of [`tell_marks`] take 48 bytes.
#[repr(C, align(8))]
struct Control([u8; 128]);

/// Receives a datagram: its length, where it comes from, and its marks.
///
/// # Errors
/// What the host says; or that it comes from nowhere on the Internet.
pub fn receive(socket: BorrowedFd<'_>, to: &mut [u8]) -> io::Result<(usize, SocketAddr, Marks)> {
    let mut from = MaybeUninit::<libc::sockaddr_storage>::zeroed();
    let mut control = Control([0; 128]);
    let mut part = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    // SAFETY: zeros are a message header.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_name = from.as_mut_ptr().cast();
    message.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len();
    // SAFETY: the header names memory that is ours, with its sizes.
    let n = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0) };
    let Ok(n) = usize::try_from(n) else { return Err(io::Error::last_os_error()) };
    // SAFETY: it was zeros, and every other value is one as well.
    let from = unsafe { from.assume_init() };
    Ok((
        n,
        address(&from).ok_or(io::ErrorKind::InvalidData)?,
        marks(&control.0[..message.msg_controllen.min(128)]),
    ))
}

fn address(from: &libc::sockaddr_storage) -> Option<SocketAddr> {
    let at = (&raw const *from).cast::<u8>();
    match libc::c_int::from(from.ss_family) {
        libc::AF_INET => {
            // SAFETY: a storage is as large as any address, and all values of its bytes are one.
            let a = unsafe { at.cast::<libc::sockaddr_in>().read_unaligned() };
            Some((Ipv4Addr::from(u32::from_be(a.sin_addr.s_addr)), u16::from_be(a.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let a = unsafe { at.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some((Ipv6Addr::from(a.sin6_addr.s6_addr), u16::from_be(a.sin6_port)).into())
        }
        _ => None,
    }
}

/// What control messages say: a header of 16 bytes (length, level, kind) before the data of each, padded to 8.
fn marks(mut control: &[u8]) -> Marks {
    const HEADER: usize = 16;
    let mut found = Marks::UNKNOWN;
    let int = |at: usize, b: &[u8]| b.get(at..at + 4).and_then(|b| b.try_into().ok()).map(i32::from_ne_bytes);
    while let Some(len) = control.get(..8).and_then(|b| b.try_into().ok()).map(usize::from_ne_bytes) {
        let Some(message) = control.get(..len).filter(|m| m.len() > HEADER) else { break };
        let byte = || int(HEADER, message).and_then(|v| u8::try_from(v).ok()).unwrap_or(0);
        match (int(8, message), int(12, message)) {
            (Some(libc::IPPROTO_IP), Some(libc::IP_TTL)) => found.hops = byte(),
            (Some(libc::IPPROTO_IPV6), Some(libc::IPV6_HOPLIMIT)) => found.hops = byte(),
            (Some(libc::IPPROTO_IPV6), Some(libc::IPV6_TCLASS)) => found.class = byte(),
            // A single byte.
            (Some(libc::IPPROTO_IP), Some(libc::IP_TOS)) => found.class = message[HEADER],
            _ => {}
        }
        control = control.get(len.next_multiple_of(8)..).unwrap_or_default();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    #[test]
    fn marks_come_with_datagrams() {
        for (ip, v6) in [("127.0.0.1", false), ("::1", true)] {
            let at = |port: u16| SocketAddr::new(ip.parse().unwrap(), port);
            let Ok(receiver) = UdpSocket::bind(at(0)) else { continue };
            let sender = UdpSocket::bind(at(0)).unwrap();
            let to = receiver.local_addr().unwrap();
            sender.send_to(b"first", to).unwrap();
            let mut b = [0; 16];
            let (n, from, marks) = receive(receiver.as_fd(), &mut b).unwrap();
            assert_eq!((&b[..n], from, marks), (&b"first"[..], sender.local_addr().unwrap(), Marks::UNKNOWN));
            tell_marks(receiver.as_fd(), v6).unwrap();
            if v6 {
                rustix::net::sockopt::set_ipv6_unicast_hops(&sender, Some(33)).unwrap();
                rustix::net::sockopt::set_ipv6_tclass(&sender, 16).unwrap();
            } else {
                rustix::net::sockopt::set_ip_ttl(&sender, 33).unwrap();
                rustix::net::sockopt::set_ip_tos(&sender, 16).unwrap();
            }
            sender.send_to(b"second", to).unwrap();
            let (n, _, marks) = receive(receiver.as_fd(), &mut b).unwrap();
            assert_eq!((&b[..n], marks), (&b"second"[..], Marks { hops: 33, class: 16 }));
        }
    }
}
