//! Datagrams with what their headers say: hops left, and traffic class.

use std::io;
use std::mem::size_of;
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

/// Room for control messages: those of [`tell_marks`] take 48 bytes, an error 64.
#[repr(C, align(8))]
struct Control([u8; 128]);

/// Receives a datagram: its length, where it comes from, and its marks.
///
/// # Errors
/// What the host says; or that it comes from nowhere on the Internet.
pub fn receive(socket: BorrowedFd<'_>, to: &mut [u8]) -> io::Result<(usize, SocketAddr, Marks)> {
    let (n, from, control) = receive_message(socket, to, 0)?;
    Ok((n, from.ok_or(io::ErrorKind::InvalidData)?, marks(&control)))
}

/// Control messages: so many bytes of these.
struct Messages(Control, usize);

impl std::ops::Deref for Messages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0.0[..self.1]
    }
}

/// Receives a message: its length, its address, and what is said of it.
fn receive_message(
    socket: BorrowedFd<'_>,
    to: &mut [u8],
    flags: libc::c_int,
) -> io::Result<(usize, Option<SocketAddr>, Messages)> {
    let mut from = libc_address();
    let mut control = Control([0; 128]);
    let mut part = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    // SAFETY: zeros are a message header.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_name = (&raw mut from).cast();
    message.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len();
    // SAFETY: the header names memory that is ours, with its sizes.
    let n = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
    let Ok(n) = usize::try_from(n) else { return Err(io::Error::last_os_error()) };
    let len = message.msg_controllen.min(control.0.len());
    Ok((n, address(&from), Messages(control, len)))
}

/// An error that the host keeps of a datagram that was sent (IP_RECVERR, IPV6_RECVERR).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Where that went.
    pub to: SocketAddr,
    /// `ee_errno`
    pub errno: u32,
    /// `ee_origin`
    pub origin: u8,
    /// `ee_type`
    pub kind: u8,
    /// `ee_code`
    pub code: u8,
    /// `ee_info`
    pub info: u32,
    /// Who has told, if somebody has.
    pub offender: Option<SocketAddr>,
    /// Bytes of what was sent.
    pub len: usize,
}

/// Takes the oldest error that is kept, with what was sent as far as there is room for it. Without one it would block.
///
/// # Errors
/// What the host says; or that what it keeps is no such error.
pub fn receive_error(socket: BorrowedFd<'_>, sent: &mut [u8]) -> io::Result<Kept> {
    let (len, to, control) = receive_message(socket, sent, libc::MSG_ERRQUEUE)?;
    let to = to.ok_or(io::ErrorKind::InvalidData)?;
    messages(&control)
        .find(|(level, kind, _)| {
            matches!(
                (*level, *kind),
                (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)
            )
        })
        .and_then(|(_, _, data)| kept(data, to, len))
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// A `struct sock_extended_err`, and the address behind it.
fn kept(data: &[u8], to: SocketAddr, len: usize) -> Option<Kept> {
    const EXTENDED: usize = 16;
    let (error, address) = data.split_at_checked(EXTENDED)?;
    let word = |at: usize| Some(u32::from_ne_bytes(error.get(at..at + 4)?.try_into().ok()?));
    let mut offender = libc_address();
    let room = size_of::<libc::sockaddr_storage>();
    let bytes = &address[..address.len().min(room)];
    // SAFETY: so many bytes fit, and all values of them are an address of some kind.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), (&raw mut offender).cast(), bytes.len()) };
    Some(Kept {
        to,
        errno: word(0)?,
        origin: error[4],
        kind: error[5],
        code: error[6],
        info: word(8)?,
        offender: self::address(&offender),
        len,
    })
}

fn libc_address() -> libc::sockaddr_storage {
    // SAFETY: zeros are an address of no kind.
    unsafe { std::mem::zeroed() }
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

/// Control messages: level, kind and data of each. A header of 16 bytes (length, level, kind) stands before the data,
/// padded to 8.
fn messages(mut control: &[u8]) -> impl Iterator<Item = (i32, i32, &[u8])> {
    const HEADER: usize = 16;
    std::iter::from_fn(move || {
        let len = usize::from_ne_bytes(control.get(..8)?.try_into().ok()?);
        let message = control.get(..len).filter(|m| m.len() > HEADER)?;
        control = control.get(len.next_multiple_of(8)..).unwrap_or_default();
        Some((int(8, message)?, int(12, message)?, &message[HEADER..]))
    })
}

fn int(at: usize, b: &[u8]) -> Option<i32> {
    Some(i32::from_ne_bytes(b.get(at..at + 4)?.try_into().ok()?))
}

/// What control messages say of a datagram's header.
fn marks(control: &[u8]) -> Marks {
    let mut found = Marks::UNKNOWN;
    for (level, kind, data) in messages(control) {
        let byte = || int(0, data).and_then(|v| u8::try_from(v).ok()).unwrap_or(0);
        match (level, kind) {
            (libc::IPPROTO_IP, libc::IP_TTL) => found.hops = byte(),
            (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => found.hops = byte(),
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => found.class = byte(),
            // A single byte.
            (libc::IPPROTO_IP, libc::IP_TOS) => found.class = data[0],
            _ => {}
        }
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

    #[test]
    fn errors_of_datagrams_are_kept() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        crate::options::set(socket.as_fd(), libc::IPPROTO_IP, libc::IP_RECVERR, 1).unwrap();
        let mut sent = [0; 64];
        let none = receive_error(socket.as_fd(), &mut sent).unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::WouldBlock);
        // Nobody is there: its port was given back.
        let nobody = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        socket.send_to(b"hello", nobody).unwrap();
        let kept = receive_error(socket.as_fd(), &mut sent).unwrap();
        let refused = u32::try_from(libc::ECONNREFUSED).unwrap();
        assert_eq!((kept.to, kept.errno, kept.origin, kept.kind, kept.code), (nobody, refused, 2, 3, 3));
        assert_eq!(kept.offender.map(|a| a.ip()), Some(nobody.ip()));
        assert_eq!(&sent[..kept.len], b"hello");
    }
}
