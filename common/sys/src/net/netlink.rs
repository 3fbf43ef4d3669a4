//! An option of netlink sockets.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Has the kernel look at what a request for a list asks for, and tell of that alone (Linux 4.20).
///
/// # Errors
/// What the host says; an older one does not know the option, and tells of everything.
pub fn strict(socket: BorrowedFd<'_>) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the kernel reads an int, of the size that is given.
    let done = unsafe {
        let size = size_of::<libc::c_int>() as libc::socklen_t;
        let name = libc::NETLINK_GET_STRICT_CHK;
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_NETLINK, name, (&raw const on).cast(), size)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
