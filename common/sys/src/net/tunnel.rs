//! Network devices whose packets a program moves (`/dev/net/tun`).

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// `TUN_F_CSUM`: packets may come without a checksum.
const UNSUMMED: libc::c_ulong = 1;
const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
const TUNSETOFFLOAD: libc::c_ulong = 0x4004_54d0;
/// Bytes of `struct virtio_net_hdr`, which stands before each packet.
pub const HEADER: usize = 10;

/// Makes a device of this name in the calling thread's network namespace. It has packets of IP, each behind [`HEADER`]
/// bytes, and is gone when the descriptor is. Reads do not wait.
///
/// # Errors
/// What the host says.
pub fn open(name: &str) -> io::Result<OwnedFd> {
    let file = File::options().read(true).write(true).open("/dev/net/tun")?;
    // SAFETY: plain data, for which all zeros is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays 0.
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name[..room].iter_mut().zip(name.bytes()) {
        *to = from.cast_signed();
    }
    let flags = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    request.ifr_ifru.ifru_flags = i16::try_from(flags).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the kernel reads the structure, and writes the name it has chosen to it.
    if unsafe { libc::ioctl(file.as_raw_fd(), TUNSETIFF, &raw mut request) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: takes an integer.
    if unsafe { libc::ioctl(file.as_raw_fd(), TUNSETOFFLOAD, UNSUMMED) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let fd = OwnedFd::from(file);
    rustix::io::ioctl_fionbio(&fd, true)?;
    Ok(fd)
}
