//! TCP's urgent bytes, from a channel to the host's socket and back.

use std::os::fd::AsFd;

use doppel_abi_service::net::up_buffer;
use doppel_service::{Broken, Channel};
use rustix::io::Errno;
use rustix::net::SendFlags;

use doppel_sys::shared;

use crate::flow::stream::Stream;

/// What to send of the bytes that come next.
pub(crate) enum Next {
    /// So many as ordinary ones.
    Bytes(usize),
    /// One that is urgent.
    Urgent,
}

impl Stream {
    /// How much of the next `len` bytes comes before the urgent one.
    pub(crate) fn before_urgent(&self, channel: &Channel, len: usize) -> Next {
        let word = &self.header(channel).up_urgent;
        let Some(count) = word.get() else { return Next::Bytes(len) };
        let before = count.wrapping_sub(self.up.count()) as usize;
        if before == 0 {
            return Next::Urgent;
        }
        // One that has passed, or is nowhere, is found far ahead.
        if before >= doppel_abi_service::net::BUFFER as usize {
            word.took(count);
        }
        Next::Bytes(before.min(len))
    }

    /// Sends the next byte, which is urgent.
    pub(crate) fn send_urgent(&mut self, channel: &Channel, offset: usize) -> Result<(), Errno> {
        let mut byte = [0];
        channel.memory().read(shared::offset(up_buffer(self.number)) + offset, &mut byte);
        let flags = SendFlags::OOB | SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        match rustix::net::send(self.link(), &byte, flags) {
            // A connection between domains, on a host that knows of no urgent bytes there.
            Err(Errno::OPNOTSUPP) => rustix::net::send(self.link(), &byte, flags - SendFlags::OOB)?,
            r => r?,
        };
        let count = self.up.count();
        self.header(channel).up_urgent.took(count);
        Ok(())
    }

    /// The host's socket has an urgent byte. Reading stops before it, and then goes on with it.
    pub(crate) fn expect_urgent(&mut self) {
        if !self.urging {
            // Without it the byte would be left out.
            self.urging = rustix::net::sockopt::set_socket_oobinline(self.link(), true).is_ok();
        }
    }

    /// Tells the guest kernel if the next byte of the host's socket is the urgent one.
    pub(crate) fn find_urgent(&mut self, channel: &mut Channel) -> Result<(), Broken> {
        if !self.urging || !doppel_sys::stream::at_mark(self.link().as_fd()).unwrap_or(false) {
            return Ok(());
        }
        self.urging = false;
        let count = self.down.count();
        if self.urged != Some(count) {
            self.urged = Some(count);
            self.header(channel).down_urgent.put(count);
            self.mark(channel);
        }
        Ok(())
    }
}
