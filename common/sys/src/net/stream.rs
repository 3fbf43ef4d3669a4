//! Streams with urgent bytes.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::ioctl::{Getter, ioctl};

/// SIOCATMARK
const AT_MARK: u32 = 0x8905;

/// Whether the next byte to be read is an urgent one.
///
/// # Errors
/// What the host says.
pub fn at_mark(socket: BorrowedFd<'_>) -> io::Result<bool> {
    // SAFETY: the request stores an int, and nothing else.
    let at: libc::c_int = unsafe { ioctl(socket, Getter::<{ AT_MARK }, libc::c_int>::new()) }?;
    Ok(at != 0)
}
