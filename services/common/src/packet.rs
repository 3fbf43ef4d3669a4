//! Packets with descriptors, by which a supervisor and a service domain's process speak over a sequenced-packet socket.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

/// Most descriptors of one packet.
pub const DESCRIPTORS: usize = 128;

/// Sends a packet.
///
/// # Errors
/// There are more than [`DESCRIPTORS`], or what the host says.
pub fn send_packet(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// A packet that came.
#[derive(Debug)]
pub struct Packet {
    /// What it says.
    pub bytes: Vec<u8>,
    /// Those that came with it.
    pub descriptors: Vec<OwnedFd>,
    /// There were more descriptors, for which this process has no room.
    pub cut: bool,
}

/// The next packet, of at most `longest` bytes, with all its descriptors; `None` if none waits.
///
/// # Errors
/// As [`receive_some`], or this process has no room for its descriptors.
pub fn receive_packet(socket: BorrowedFd<'_>, longest: usize) -> io::Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
    match receive_some(socket, longest)? {
        Some(Packet { cut: true, .. }) => {
            Err(io::Error::other("an order with more descriptors than there is room for"))
        }
        packet => Ok(packet.map(|p| (p.bytes, p.descriptors))),
    }
}

/// The next packet, of at most `longest` bytes; `None` if none waits.
///
/// # Errors
/// `UnexpectedEof` at the end; a packet that is longer; or what the host says.
pub fn receive_some(socket: BorrowedFd<'_>, longest: usize) -> io::Result<Option<Packet>> {
    let mut bytes = vec![0; longest];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let receive = || rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, flags);
    let got = match doppel_sys::packet::receive(receive) {
        Err(rustix::io::Errno::AGAIN) => return Ok(None),
        r => r?,
    };
    if got.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    if got.flags.contains(ReturnFlags::TRUNC) {
        return Err(io::Error::other("an order longer than orders are"));
    }
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            descriptors.extend(fds);
        }
    }
    bytes.truncate(got.bytes);
    Ok(Some(Packet { bytes, descriptors, cut: got.flags.contains(ReturnFlags::CTRUNC) }))
}
