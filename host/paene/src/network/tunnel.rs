//! Packets of the device, in and out.

use std::cell::RefCell;
use std::os::fd::OwnedFd;

use doppel_sys::tunnel::HEADER;
use rustix::io::Errno;

use super::device::MTU;

/// The device, as the helper has it.
pub(super) struct Tunnel {
    fd: OwnedFd,
    /// A packet that goes out, behind its header.
    out: RefCell<Vec<u8>>,
}

/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`: the checksum is nobody's business, as long as the packet stays on this host.
const UNSUMMED: u8 = 1;

/// The header for a packet: where its checksum would begin and go.
fn header(packet: &[u8]) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    let (start, protocol) = match packet {
        [first, ..] if first >> 4 == 4 => (u16::from(first & 15) * 4, packet.get(9)),
        _ => (40, packet.get(6)),
    };
    let place: u16 = match protocol {
        Some(6) => 16,
        Some(17) => 6,
        // Those of others are there.
        _ => return header,
    };
    header[0] = UNSUMMED;
    header[6..8].copy_from_slice(&start.to_ne_bytes());
    header[8..10].copy_from_slice(&place.to_ne_bytes());
    header
}

impl Tunnel {
    pub fn new(fd: OwnedFd) -> Self {
        Self { fd, out: RefCell::new(vec![0; HEADER + MTU]) }
    }

    /// Room for what [`Self::receive`] gives.
    pub fn room() -> Vec<u8> {
        vec![0; HEADER + MTU]
    }

    /// The next packet that the domain's kernel sends; none: none waits.
    pub fn receive<'b>(&self, room: &'b mut [u8]) -> Result<Option<&'b [u8]>, Errno> {
        match rustix::io::read(&self.fd, &mut *room) {
            Ok(n) => Ok(room.get(HEADER..n)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Gives the domain's kernel a packet of `len` bytes, which `fill` makes. One that it does not take is lost.
    pub fn send<R>(&self, len: usize, fill: impl FnOnce(&mut [u8]) -> R) -> R {
        let mut out = self.out.borrow_mut();
        let (head, packet) = out[..HEADER + len].split_at_mut(HEADER);
        let result = fill(packet);
        head.copy_from_slice(&header(packet));
        let _ = rustix::io::write(&self.fd, &out[..HEADER + len]);
        result
    }
}
