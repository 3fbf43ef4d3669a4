//! ICMP echo without privilege (`icmp(7)`): what a [`Udp`] of this protocol does with its messages.
//!
//! The identifier is the socket's port. The domain's own addresses answer here, all others through the network service.

use alloc::sync::Arc;
use alloc::vec::Vec;

use doppel_abi_service::echo;
use doppel_algo::net::ports::unmapped;
use doppel_algo::net::sockaddr::AF_INET;

use super::udp::{Datagram, Udp};
use super::{End, is_local, route, source_for};
use crate::core::time;
use crate::objects::net::socket::Marks;
use crate::{Errno, Result};

/// Hops of what the domain answers itself, as Linux has it.
const HOPS: i32 = 64;

impl Udp {
    /// Where a request goes. An echo has no port; Linux ignores what is given as one.
    pub(super) fn route_echo(&self, to: End) -> Result<End> {
        if (self.common.domain == AF_INET) != unmapped(&to.ip).is_some() {
            // A socket of IPv6 does not speak IPv4.
            return Err(Errno::EINVAL);
        }
        route(End { port: 0, ..to })
    }

    /// Sends a request: with the socket's identifier and the checksum, whatever it says of them.
    pub(super) fn ask(&self, to: End, mut message: Vec<u8>, marks: Marks, nonblock: bool) -> Result<()> {
        if !echo::is_request(&message, &to.ip) {
            return Err(Errno::EINVAL);
        }
        self.autobind()?;
        let local = self.inner.lock().local;
        let from = End { ip: if local.is_any() { source_for(&to.ip) } else { local.ip }, ..local };
        echo::identify(&mut message, from.port, &from.ip, &to.ip);
        if !is_local(&to.ip) {
            return self.send_far(to, &message, marks, nonblock);
        }
        echo::answer(&mut message, &to.ip, &from.ip);
        let marks = Marks { hops: HOPS, ..marks };
        self.deliver(Datagram {
            data: Arc::new(message),
            from: to,
            to: from,
            marks,
            index: 0,
            segment: 0,
            at: time::realtime_ns(),
        });
        Ok(())
    }

    /// Whether this, from outside, is an answer to it.
    pub(crate) fn is_answered(local: &End, from: &End, message: &[u8]) -> bool {
        echo::is_answer(message, &from.ip) && message[4..6] == local.port.to_be_bytes()
    }
}
