//! Options of sockets by level and name, as Linux numbers them.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};

pub use libc::{
    IP_MTU, IP_MTU_DISCOVER, IP_RECVERR, IP_TOS, IP_TTL, IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP, IPV6_MTU,
    IPV6_MTU_DISCOVER, IPV6_RECVERR, IPV6_TCLASS, IPV6_UNICAST_HOPS, SO_KEEPALIVE, SO_PRIORITY, SO_RCVBUF,
    SO_SNDBUF, SOL_SOCKET, TCP_CONGESTION, TCP_DEFER_ACCEPT, TCP_FASTOPEN, TCP_INFO, TCP_KEEPCNT,
    TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_LINGER2, TCP_MAXSEG, TCP_NODELAY, TCP_NOTSENT_LOWAT, TCP_QUICKACK,
    TCP_SYNCNT, TCP_USER_TIMEOUT, TCP_WINDOW_CLAMP,
};

/// SO_BUF_LOCK: which sizes of buffers somebody has set.
pub const SO_BUF_LOCK: i32 = 72;
/// Of [`SO_BUF_LOCK`]: that of the receive buffer.
pub const RCVBUF_LOCK: i32 = 2;

/// Sets an option that is a number.
///
/// # Errors
/// What the host says.
pub fn set(socket: BorrowedFd<'_>, level: i32, name: i32, value: i32) -> io::Result<()> {
    set_bytes(socket, level, name, &value.to_ne_bytes())
}

/// Sets an option.
///
/// # Errors
/// What the host says.
pub fn set_bytes(socket: BorrowedFd<'_>, level: i32, name: i32, value: &[u8]) -> io::Result<()> {
    let len = libc::socklen_t::try_from(value.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the kernel reads so many bytes, which are there.
    let done = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value.as_ptr().cast(), len) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// An option that is a number.
///
/// # Errors
/// What the host says.
pub fn get(socket: BorrowedFd<'_>, level: i32, name: i32) -> io::Result<i32> {
    let mut value = [0; size_of::<libc::c_int>()];
    get_bytes(socket, level, name, &mut value)?;
    Ok(i32::from_ne_bytes(value))
}

/// An option: how many bytes of it there are, or have room.
///
/// # Errors
/// What the host says.
pub fn get_bytes(socket: BorrowedFd<'_>, level: i32, name: i32, to: &mut [u8]) -> io::Result<usize> {
    let mut len = libc::socklen_t::try_from(to.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the kernel writes as many bytes as there is room for, and how many these were.
    let done =
        unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, to.as_mut_ptr().cast(), &raw mut len) };
    if done == 0 { Ok((len as usize).min(to.len())) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::fd::AsFd;

    #[test]
    fn options_are_read_back() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = socket.as_fd();
        set(socket, IPPROTO_TCP, TCP_MAXSEG, 1000).unwrap();
        assert_eq!(get(socket, IPPROTO_TCP, TCP_MAXSEG).unwrap(), 1000);
        set_bytes(socket, IPPROTO_TCP, TCP_CONGESTION, b"reno").unwrap();
        let mut name = [0; 16];
        assert_eq!(get_bytes(socket, IPPROTO_TCP, TCP_CONGESTION, &mut name).unwrap(), 16);
        assert_eq!(&name[..5], b"reno\0");
        assert!(set(socket, IPPROTO_TCP, TCP_KEEPIDLE, 0).is_err());
    }
}
